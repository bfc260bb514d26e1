//! What the host knows of a call before anything runs: tables, memory that is shared, what is used, and how much is done.

use std::sync::Arc;

use falchion::attention::backward::{AttentionBackward, BackwardCall};
use falchion::attention::{
    Attention, AttentionCall, AttentionProblem, AttentionRequest, HeadsRef, Lengths, Packed, Pages,
};
use falchion::collective::{Code, Format, Input, LinearArguments, MatrixRef};
use falchion::cute_rs::atom::Major;
use falchion::kernel::driver::Activation;
use falchion::kernel::operands::Memory;
use falchion::kernel::{AnyGemm, Call, EngineError, GemmProblem, GroupedProblem, Kernel, Machine, Request};
use falchion_core::{
    Epilogue, FewBit, FewBitMemory, Heads, OptionalArgument, Picked, Run, Watch, Weights, aligned,
    refuse_unused,
};

use crate::{Aligned, bytes, numbers, refused, values};

const BF16: Format = Format::Bf16;

fn words(numbers: &[u32]) -> Aligned {
    Aligned::new(&numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>())
}

/// The same request for several GEMMs.
fn several(request: Request<'_>, products: GroupedProblem) -> Request<'_> {
    let at = MatrixRef::new(aligned(256), 64);
    let b = at.every(64 * 64);
    Request { call: Call { products, a: at, b, d: at, ..request.call }, ..request }
}

/// Rows of groups end where the table says, up to its last number.
#[test]
fn offsets_of_groups_are_read() {
    let problem = GemmProblem { m: 20, n: 64, k: 64 };
    let products = GroupedProblem::GroupedContiguous { count: 2, offsets: aligned(16) };
    let request = several(Request::packed(BF16, [Major::K; 2], problem), products);
    let gemm = Picked::<AnyGemm>::new(&request, None, &Machine::h200(), None).expect("a kernel");
    for (table, wrong) in
        [([0, 7, 20], None), ([0, 7, 21], Some("offset 2")), ([0, 21, 20], Some("offset 1"))]
    {
        let [mut a, mut b] =
            [20 * 64, 2 * 64 * 64].map(|count| Aligned::new(&bytes(BF16, &numbers(count, 3))));
        let (mut d, mut offsets) = (Aligned::new(&vec![0; 2 * 20 * 64]), words(&table));
        let products = GroupedProblem::GroupedContiguous { count: 2, offsets: offsets.address() };
        let call = Call { products, ..Call::of(problem).a(a.address(), 64).d(d.address(), 64) };
        let call = Call { b: MatrixRef::new(b.address(), 64).every(64 * 64), ..call };
        let call = call.with(Epilogue::Linear(LinearArguments::default()));
        // SAFETY: the memory is alive, and as large as the call says.
        let found = unsafe { gemm.emulate(&call, Run::default()) }.map_err(|error| error.to_string());
        match (found, wrong) {
            (Ok(()), None) => assert!(values(BF16, d.bytes()).iter().any(|&value| value != 0.0)),
            (Err(error), Some(words)) => assert!(error.contains(words), "{table:?}: {error}"),
            (found, _) => panic!("{table:?}: {found:?}"),
        }
    }
}

/// The beginnings of packed sequences, and the pages of a cache, forward and backward.
#[test]
fn tables_of_sequences_are_read() {
    let problem = AttentionProblem::new(2, 1, [30, 30], 64);
    let request = AttentionRequest { lengths: Lengths::Packed, ..AttentionRequest::new(problem, 64) };
    let machine = Machine::h200();
    let kernel = Picked::<Attention>::new(&request, None, &machine, None).expect("a kernel");
    let backward = Picked::<AttentionBackward>::new(&request, None, &machine, None).expect("a kernel");
    let equal = AttentionRequest::new(problem, 64);
    for (table, wrong) in [([0, 13, 40], None), ([0, 13, 39], Some("39")), ([0, 9, 40], Some("at most 30"))] {
        let mut tensors: Vec<_> =
            (1..=5).map(|seed| Aligned::new(&bytes(BF16, &numbers(40 * 64, seed)))).collect();
        let mut results: Vec<_> = (0..4).map(|_| Aligned::new(&vec![0; 2 * 40 * 64])).collect();
        let (mut begins, mut sums) = (words(&table), Aligned::new(&bytes(Format::F32, &[1.0; 40])));
        let at = |of: &mut Aligned| HeadsRef::length_first(of.address(), [1, 40, 64]);
        let [q, k, v, o, d_o] = [0, 1, 2, 3, 4].map(|i| at(&mut tensors[i]));
        let to = at(&mut results[3]);
        let call = Heads::new(request).at([q, k, v, to]).asked().expect("a call").call;
        let packed = Packed { begins: [begins.address(); 2], rows: [40; 2] };
        let call = AttentionCall { packed, ..call };
        let gradients = [0, 1, 2].map(|i| at(&mut results[i]));
        let forward = AttentionCall { o, log_sum_exp: sums.address(), ..call.clone() };
        let of_backward = BackwardCall::of(forward, d_o, gradients);
        let bytes = backward.kernel().workspace(&problem, &packed);
        assert_eq!((backward.layout(&of_backward), bytes > 1000), ([bytes, 0, 0, 0], true));
        let watch = Watch::default();
        // SAFETY: the memory is alive, and as large as the calls say.
        let found = unsafe {
            let how = Run { watch: Some(&watch), ..Run::default() };
            [kernel.emulate(&call, Run::default()), backward.emulate(&of_backward, how)]
        };
        for found in found.map(|found| found.map_err(|error| error.to_string())) {
            match (found, wrong) {
                (Ok(()), None) => {}
                (Err(error), Some(words)) => assert!(error.contains(words), "{table:?}: {error}"),
                (found, _) => panic!("{table:?}: {found:?}"),
            }
        }
        if wrong.is_none() {
            assert_eq!(watch.done(), 1.0, "all three programs have ended");
        }
    }
    let of_pages = AttentionRequest { pages: Some(16), ..equal };
    let kernel = Picked::<Attention>::new(&of_pages, None, &machine, None).expect("a kernel");
    for (table, wrong) in [([3, 0, 2, 1], None), ([3, 0, 4, 1], Some("4"))] {
        let mut tensors: Vec<_> =
            (1..=4).map(|seed| Aligned::new(&bytes(BF16, &numbers(64 * 64, seed)))).collect();
        let [q, k, v, o] = [0, 1, 2, 3].map(|i| tensors[i].address());
        let (mut table_of, mut lengths) = (words(&table), words(&[30, 17]));
        let in_pages = |address| HeadsRef::heads_first(address, [1, 16, 64]);
        let rows = |address| HeadsRef::heads_first(address, [1, 30, 64]);
        let call = Heads::new(of_pages)
            .at([rows(q), in_pages(k), in_pages(v), rows(o)])
            .asked()
            .expect("a call")
            .call;
        let pages = Pages { lengths: lengths.address(), table: table_of.address(), each: 2, count: 4 };
        // SAFETY: as above.
        let found = unsafe { kernel.emulate(&AttentionCall { pages, ..call }, Run::default()) };
        match (found.map_err(|error| error.to_string()), wrong) {
            (Ok(()), None) => {}
            (Err(error), Some(words)) => assert!(error.contains(words), "{table:?}: {error}"),
            (found, _) => panic!("{table:?}: {found:?}"),
        }
    }
}

#[test]
fn a_watch_says_how_much_is_done() {
    let watch = Watch::default();
    assert_eq!((watch.done(), watch.is_stopped()), (0.0, false));
    watch.show(1, 4);
    assert_eq!(watch.done(), 0.25);
    let problem = GemmProblem { m: 64, n: 64, k: 64 };
    let request = Request::packed(BF16, [Major::K; 2], problem);
    let gemm = Picked::<AnyGemm>::new(&request, None, &Machine::h200(), None).expect("a kernel");
    let [mut a, mut b, mut d] = [1, 2, 3].map(|seed| Aligned::new(&bytes(BF16, &numbers(64 * 64, seed))));
    let call = Call::of(problem).a(a.address(), 64).b(b.address(), 64).d(d.address(), 64);
    let call = call.with(Epilogue::Linear(LinearArguments::default()));
    // The second of four launches has ended.
    let how = Run { watch: Some(&watch), part: [1, 4], ..Run::default() };
    // SAFETY: the memory is alive, and as large as the call says.
    unsafe { gemm.emulate(&call, how) }.expect("a product");
    assert_eq!(watch.done(), 0.5);
    watch.stop();
    assert!(watch.is_stopped());
    // SAFETY: as above.
    let stopped = unsafe { gemm.emulate(&call, how) }.expect_err("it is stopped");
    assert!(matches!(stopped, EngineError::Stopped { .. }), "{stopped}");
}

/// A kernel that divides keys needs memory for the parts.
#[test]
fn parts_need_a_workspace() {
    let problem = AttentionProblem::new(1, 1, [1, 5000], 64);
    let request = AttentionRequest { workspace: true, ..AttentionRequest::new(problem, 64) };
    let kernel = Picked::<Attention>::new(&request, None, &Machine::h200(), None).expect("a kernel");
    let at = |i: u64| HeadsRef::heads_first(i << 30, [1, 5000, 64]);
    let call = Heads::new(request).at([at(1), at(2), at(3), at(4)]).asked().expect("a call").call;
    assert_eq!(kernel.workspace(&call), Some(kernel.kernel().workspace(&call)));
    assert!(kernel.workspace(&call) > Some(1000), "{}", kernel.name());
}

/// What is not used is refused where it is given, with its name, its value and what was needed.
#[test]
fn what_is_given_and_not_used() {
    assert!(refuse_unused("c", 5, false, Some("there is none"), "0").is_ok());
    assert!(refuse_unused("c", 5, true, None, "0").is_ok());
    let error = refused(refuse_unused("c", 5, true, Some("there is none"), "0"));
    assert_eq!(error, "c is 5, and there is none: 0 was needed");
}

/// B begins inside of A: both are read from one copy.
#[test]
fn operands_may_overlap() {
    let problem = GemmProblem { m: 64, n: 64, k: 64 };
    let gemm =
        Picked::<AnyGemm>::new(&Request::packed(BF16, [Major::K; 2], problem), None, &Machine::h200(), None)
            .expect("a kernel");
    let all = numbers(96 * 64, 5);
    let (mut both, mut d) = (Aligned::new(&bytes(BF16, &all)), Aligned::new(&vec![0; 2 * 64 * 64]));
    let call = Call::of(problem).a(both.address(), 64).b(both.address() + 32 * 128, 64).d(d.address(), 64);
    // SAFETY: the memory is alive, and as large as the call says.
    let found =
        unsafe { gemm.emulate(&call.with(Epilogue::Linear(LinearArguments::default())), Run::default()) };
    found.expect("nothing is written to what is read");
    let sum = |row: usize, column: usize| {
        (0..64).map(|k| all[row * 64 + k] * all[(32 + column) * 64 + k]).sum::<f64>()
    };
    for (at, got) in values(BF16, d.bytes()).into_iter().enumerate() {
        let wanted = sum(at / 64, at % 64);
        assert!((got - wanted).abs() <= wanted.abs() / 200.0 + 1e-6, "{at}: {got}, {wanted}");
    }
}

/// A text whose columns are gated in pairs has half as many of D.
#[test]
fn gates_halve_columns() {
    let problem = GemmProblem { m: 40, n: 64, k: 32 };
    let fusion = Some(falchion_core::formula("swiglu", BF16, None).expect("a formula"));
    let request = Request { fusion, ..Request::packed(BF16, [Major::K; 2], problem) };
    let gemm = Picked::<AnyGemm>::new(&request, None, &Machine::h200(), None).expect("a kernel");
    let [a, b] = [(40 * 32, 1), (64 * 32, 2)].map(|(count, seed)| numbers(count, seed));
    let [mut of_a, mut of_b] = [&a, &b].map(|of| Aligned::new(&bytes(BF16, of)));
    let mut d = Aligned::new(&vec![0; 2 * 40 * 32]);
    let call = Call::of(problem).a(of_a.address(), 32).b(of_b.address(), 32).d(d.address(), 32);
    let inputs = gemm.kernel().slots().iter().map(|_| Some(Input::Scalar(1.0))).collect();
    let call = call.with(Epilogue::Fused(Arc::clone(gemm.kernel().slots()), inputs, 1));
    // SAFETY: the memory is alive, and as large as the call says.
    unsafe { gemm.emulate(&call, Run::default()) }.unwrap_or_else(|error| panic!("{error}"));
    assert!(d.is_intact() && values(BF16, d.bytes()).iter().filter(|&&value| value != 0.0).count() > 900);
}

/// A bias for each expert reaches as far as the experts; without weights' scales a call has none; and without anything after the
/// sums it is linear.
#[test]
fn few_bits_say_what_they_read() {
    let codes: Vec<u8> = (0..64 * 128).map(|i| (i % 16) as u8).collect();
    let scales = bytes(BF16, &numbers(4 * 64, 5));
    let weights = Weights::new(Code::U4, BF16, [64, 128], &codes, [Some(&scales), None]).expect("weights");
    let product = FewBit { experts: 3, ..FewBit::of(&weights, true) };
    let kernel = product.kernel(30, &Machine::h200(), None).expect("a kernel");
    let at = |i: u64| i << 30;
    let memory =
        FewBitMemory { x: at(1), units: at(2), lines: [at(3), at(4)], bias: at(5), offsets: at(6), d: at(7) };
    let mut found = None;
    kernel.kernel().visit(&mut product.call_of(&kernel, 30, memory), &mut |memory: Memory<'_>| {
        if *memory.address == at(5) {
            found = Some(memory.extents.bytes());
        }
    });
    assert_eq!(found, Some(3 * 2 * 64), "three rows of 64 elements of 2 bytes");
    let plain = FewBit { activation: Activation::Identity, ..FewBit::of(&weights, false) };
    let kernel = plain.kernel(30, &Machine::h200(), None).expect("a kernel");
    let call = plain.call_of(&kernel, 30, memory);
    assert!(matches!(call.epilogue, Epilogue::Linear(_)) && call.group_scales.is_some());
    let bare = Weights::new(Code::S8, BF16, [64, 128], &codes, [None, None]).expect("weights");
    let bare = FewBit::of(&bare, false);
    let kernel = bare.kernel(30, &Machine::h200(), None).expect("a kernel");
    assert_eq!(bare.call_of(&kernel, 30, memory).group_scales, None);
}

/// A file in fp8 has a scale for each 128 x 128.
#[test]
fn files_in_fp8_have_a_scale_per_block() {
    let (codes, scales) = (vec![0x38; 272 * 512], vec![1.0; 12]);
    Weights::fp8(BF16, [272, 512], &codes, &scales).expect("3 x 4 scales");
    assert!(Weights::fp8(BF16, [272, 512], &codes, &scales[..7]).is_err());
}

/// What is given in addition to A, B and D is used, or there is a reason why not.
#[test]
fn what_is_used() {
    let problem = GemmProblem { m: 64, n: 64, k: 128 };
    let plain = Request::packed(BF16, [Major::K; 2], problem);
    let text = |text: &str| Request {
        fusion: Some(falchion_core::formula(text, BF16, None).expect("a formula")),
        ..plain
    };
    let slots = |request: &Request<'_>| {
        Picked::<AnyGemm>::new(request, None, &Machine::h200(), None)
            .expect("a kernel")
            .kernel()
            .slots()
            .to_vec()
    };
    let (with_c, without) = (text("acc + c[m,n]"), text("acc + bias[n]"));
    let records = several(plain, GroupedProblem::PointerArray { count: 2, records: 16 });
    let groups = several(plain, GroupedProblem::GroupedContiguous { count: 2, offsets: 16 });
    let batch = several(plain, GroupedProblem::Batched { count: 2 });
    let weights = |name: &str| {
        let (types, _) = falchion_core::types(name).expect("types");
        Request::packed(types, [Major::K; 2], problem)
    };
    for (part, request, used) in [
        (OptionalArgument::C, &plain, true),
        (OptionalArgument::C, &with_c, true),
        (OptionalArgument::C, &without, false),
        (OptionalArgument::C, &records, false),
        (OptionalArgument::Matrices, &plain, true),
        (OptionalArgument::Matrices, &records, false),
        (OptionalArgument::Groups, &plain, false),
        (OptionalArgument::Groups, &batch, false),
        (OptionalArgument::Groups, &groups, true),
        (OptionalArgument::Groups, &records, true),
        (OptionalArgument::Inputs, &plain, false),
        (OptionalArgument::Inputs, &without, true),
        (OptionalArgument::GroupScales, &plain, false),
        (OptionalArgument::GroupScales, &weights("bf16-s4g128"), true),
        (OptionalArgument::GroupZeros, &weights("bf16-s4g128"), false),
        (OptionalArgument::GroupZeros, &weights("bf16-u4g128z"), true),
        (OptionalArgument::Metadata, &plain, false),
        (OptionalArgument::Metadata, &weights("bf16-sparse-a"), true),
        (OptionalArgument::Scales(0), &plain, false),
        (OptionalArgument::Scales(0), &weights("e4m3-1x128-128x128"), true),
        (OptionalArgument::Scales(1), &weights("e4m3-1x128-128x128"), true),
    ] {
        let slots = if request.fusion.is_some() { slots(request) } else { Vec::new() };
        assert_eq!(part.unused(request, &slots).is_none(), used, "{part:?} of {request:?}");
    }
}

/// What attention and its gradient write shares memory with nothing that they read.
#[test]
fn results_have_memory_of_their_own() {
    let (problem, machine) = (AttentionProblem::new(1, 1, [16, 16], 64), Machine::h200());
    let request = AttentionRequest::new(problem, 64);
    let mut all: Vec<_> = (1..=8).map(|seed| Aligned::new(&bytes(BF16, &numbers(16 * 64, seed)))).collect();
    let at: Vec<_> = all.iter_mut().map(|of| HeadsRef::heads_first(of.address(), [1, 16, 64])).collect();
    let mut sums = Aligned::new(&bytes(Format::F32, &[1.0; 16]));
    let kernel = Picked::<Attention>::new(&request, None, &machine, None).expect("a kernel");
    let backward = Picked::<AttentionBackward>::new(&request, None, &machine, None).expect("a kernel");
    for (o, apart) in [(3, true), (0, false), (1, false), (2, false)] {
        let call = Heads::new(request).at([at[0], at[1], at[2], at[o]]).asked().expect("a call").call;
        // SAFETY: the memory is alive, and as large as the call says.
        let found = unsafe { kernel.emulate(&call, Run::default()) }.map_err(|error| error.to_string());
        assert_eq!(found.is_ok(), apart, "O is tensor {o}: {found:?}");
    }
    let call = Heads::new(request).at([at[0], at[1], at[2], at[3]]).asked().expect("a call").call;
    let forward = AttentionCall { log_sum_exp: sums.address(), ..call };
    for (gradients, apart) in [([5, 6, 7], true), ([0, 6, 7], false), ([5, 5, 7], false), ([5, 6, 4], false)]
    {
        let call = BackwardCall::of(forward.clone(), at[4], gradients.map(|i| at[i]));
        // SAFETY: as above.
        let found = unsafe { backward.emulate(&call, Run::default()) }.map_err(|error| error.to_string());
        assert_eq!(found.is_ok(), apart, "gradients are {gradients:?}: {found:?}");
        if let Err(error) = found {
            assert!(error.contains("shares memory with"), "{error}");
        }
    }
}
