//! Compares kept launches with newly made ones, without a driver.

#[path = "../../../tests/support/later.rs"]
mod later;
mod parts;

use std::cell::Cell;
use std::hint::black_box;
use std::time::Instant;

use collective::functions::{MultiplyAdd, Relu};
use collective::tree::{Accumulator, Compute, Named, RowArgument, RowVector, Scalar};
use collective::{BlockScales, Form, GroupScales, LinearArguments, LinearCombination, MatrixRef};
use half::bf16;
use ptx::abi::{Argument, ArgumentError, MapDescription, TENSOR_MAP_BYTES, parameter_bytes};
use scheduler::{AlongM, OneTile};

use self::later::{First, Later};
use self::parts::{Linear, addressed, split};
use super::{Blocks, KEPT, LaunchBuilder, LaunchCache, Parts};
use crate::arguments::{Arguments, Tree};
use crate::buffer::Buffer;
use crate::call::Call;
use crate::config::Composed;
use crate::driver::counting::allocations;
use crate::error::{EngineError, LaunchError};
use crate::filled::Launch;
use crate::gemm::AnyGemm;
use crate::kernel::{Kernel, as_stated};
use crate::operands::Visit;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::program::Program;
use crate::spec::KernelSpec;

/// Number of single-CTA clusters that are resident at once on an H200.
const RESIDENT: u32 = 132;

/// A kernel without a driver. An encoded map begins with its address; the rest is a digest of its
/// description.
struct Stub {
    gemm: AnyGemm,
    program: Program,
    offsets: Vec<usize>,
    launches: Cell<u32>,
    refuses: Cell<bool>,
    /// Number of parameter blocks that were made.
    blocks: Cell<u32>,
}

impl Stub {
    fn new(gemm: AnyGemm) -> Self {
        let program = gemm.program().expect("legal");
        let offsets = program.function().param_offsets().0;
        Self {
            gemm,
            program,
            offsets,
            launches: Cell::new(0),
            refuses: Cell::new(false),
            blocks: Cell::new(0),
        }
    }

    fn named(name: &str) -> Self {
        Self::new(crate::find(name).expect("a name"))
    }
}

impl<E: Arguments + Clone> LaunchBuilder<Call<E>> for Stub {
    fn launch(&self, call: &Call<E>) -> Result<Option<Launch>, EngineError> {
        self.launches.set(self.launches.get() + 1);
        let refused = |source| LaunchBuilder::<Call<E>>::refused(self, source);
        let launch = self.gemm.launch(call, RESIDENT).map_err(refused)?;
        launch.iter().try_for_each(|launch| as_stated(&self.gemm, &self.program, call, launch))?;
        Ok(launch)
    }

    fn refused(&self, source: LaunchError) -> EngineError {
        EngineError::Call { kernel: self.gemm.name().to_owned(), source }
    }

    fn visit(&self, call: &mut Call<E>, visit: &mut dyn Visit) {
        Kernel::visit(&self.gemm, call, visit);
    }
}

impl Blocks for Stub {
    fn block(&self, arguments: &[Argument]) -> Result<Vec<u8>, EngineError> {
        self.blocks.set(self.blocks.get() + 1);
        let block = parameter_bytes::<ArgumentError>(self.program.function(), arguments, |map| {
            let MapDescription::Tiled(map) = map else { unreachable!("no GEMM has an im2col map") };
            let numbers = map.dims.iter().chain(&map.strides).copied();
            let numbers = numbers.chain(map.box_dims.iter().map(|&extent| extent.into()));
            let mut bytes = [0; TENSOR_MAP_BYTES];
            for (place, number) in bytes.chunks_exact_mut(8).zip([map.address].into_iter().chain(numbers)) {
                place.copy_from_slice(&number.to_le_bytes());
            }
            Ok(bytes)
        });
        block.map_err(|source| EngineError::Argument { kernel: self.gemm.name().to_owned(), source })
    }

    fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    fn readdress(&self, map: &mut [u8; TENSOR_MAP_BYTES], address: u64) -> Result<(), EngineError> {
        if self.refuses.get() {
            let (code, reason) = ("CUDA_ERROR_INVALID_VALUE".to_owned(), "refused".to_owned());
            return Err(EngineError::Driver { call: "cuTensorMapReplaceAddress", code, reason });
        }
        map[..8].copy_from_slice(&address.to_le_bytes());
        Ok(())
    }
}

fn call(address: u64) -> Call {
    Call::of(GemmProblem { m: 64, n: 64, k: 64 }).a(address, 64).b(address, 64).d(address + (1 << 40), 64)
}

/// LaunchCache of one shape that differ in what they read besides A, B, C and D: the second one is not launched
/// with what the first one reads.
#[test]
fn layers_of_one_shape_have_their_own_scales_rows_and_metadata() {
    let at = |i: u64| MatrixRef::new(i << 20, 512);
    let problem = GemmProblem { m: 128, n: 128, k: 256 };
    let base = Call::of(problem).a(1 << 30, 512).b(1 << 31, 512).d(1 << 32, 512);
    let base = Call { workspace: Some(Buffer { address: 1 << 33, bytes: 1 << 30 }), ..base };
    let rows = |i: u64, room| Call {
        products: GroupedProblem::GroupedMasked { count: 2, rows: i << 20, room },
        ..base
    };
    let groups = |scales, zeros| base.group_scaled(GroupScales { scales: at(scales), zeros: at(zeros) });
    let blocks = |a, b| base.scaled(BlockScales { a: at(a), b: at(b) });
    let far = MatrixRef::new(1 << 20, 1024);
    for (spec, calls) in [
        ("weights-b=s4 group=128 swap=yes tile=128x16x128", [groups(1, 2), groups(3, 2)]),
        ("weights-b=u4 group=128 zeros=yes swap=yes tile=128x16x128", [groups(1, 2), groups(1, 3)]),
        ("sparse=a tile=128x128x64", [base.sparse(at(1)), base.sparse(at(2))]),
        ("sparse=a tile=128x128x64", [base.sparse(at(1)), base.sparse(far)]),
        ("dtype=e4m3 scale-a=1x128 scale-b=128x128", [blocks(1, 2), blocks(3, 2)]),
        ("dtype=e4m3 scale-a=1x128 scale-b=128x128", [blocks(1, 2), blocks(1, 3)]),
        ("form=masked tile=128x128x64", [rows(1, 64), rows(2, 64)]),
        ("form=masked tile=128x128x64", [rows(1, 64), rows(1, 32)]),
    ] {
        let stub = Stub::new(spec.parse::<KernelSpec>().expect("a spec").kernel().expect("legal"));
        let mut kept = LaunchCache::default();
        for call in calls.iter().chain(&calls) {
            let afresh =
                stub.launch(call).unwrap_or_else(|error| panic!("{spec}: {error}")).expect("not empty");
            let block = stub.block(&afresh.arguments).expect("legal");
            let got = kept.get(&stub, call).expect("legal").map(|(grid, block)| (grid, block.to_vec()));
            assert!(got == Some((afresh.grid, block)), "{spec}: {call:?}");
        }
    }
}

/// Pseudo-random numbers: SplitMix64.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 8
}

/// LaunchCache of a kernel: with one GEMM and several, with C and without, none empty.
fn calls_of(gemm: &AnyGemm) -> Vec<Call> {
    let address = 1 << 20;
    let one = Call::of(GemmProblem { m: 192, n: 128, k: 256 });
    let one = one.a(address, 512).b(address, 512).d(32 * address, 512);
    let every = |matrix: MatrixRef| matrix.every(1 << 18);
    let plain = match gemm.form() {
        Form::Single => one,
        Form::Batched => {
            let products = GroupedProblem::Batched { count: 3 };
            Call { products, a: every(one.a), d: every(one.d), ..one }
        }
        Form::GroupedContiguous => {
            let products = GroupedProblem::GroupedContiguous { count: 3, offsets: 4096 };
            Call { products, b: every(one.b), ..one }
        }
        Form::GroupedMasked => {
            let products = GroupedProblem::GroupedMasked { count: 3, rows: 4096, room: 60 };
            Call { products, b: every(one.b), ..one }
        }
        Form::KGrouped => {
            let products = GroupedProblem::KGrouped { count: 3, offsets: 4096 };
            Call { products, d: every(one.d), ..one }
        }
        Form::PointerArray => Call::grouped(3, 4096),
    };
    let plain = Call { workspace: Some(Buffer { address: 1 << 30, bytes: 1 << 30 }), ..plain };
    let (mainloop, at) = (gemm.plan().mainloop, MatrixRef::new(1 << 29, 512).every(1 << 20));
    let scaled = mainloop.weights().is_some_and(|weights| weights.group > 0);
    let plain = Call {
        scales: mainloop.is_scaled().then_some(BlockScales { a: at, b: at }),
        group_scales: scaled.then_some(GroupScales { scales: at, zeros: at }),
        metadata: mainloop.is_sparse().then_some(at),
        ..plain
    };
    let c = (gemm.form() != Form::PointerArray).then(|| every(one.d));
    let sourced = LinearArguments { beta: 0.5, c, ..plain.epilogue };
    let scaled = LinearArguments { alpha: 0.0, ..sourced };
    let mut calls = vec![plain, plain.with(sourced), plain.with(scaled)];
    calls.retain(|call| Stub::legal(gemm, call));
    calls
}

/// Kernels that read more than A, B and C.
const MORE: [&str; 8] = [
    "weights-b=s4 group=128 swap=yes tile=128x16x128",
    "weights-b=u4 group=128 zeros=yes swap=yes tile=128x16x128",
    "form=ragged weights-b=s4 group=128 swap=yes tile=128x16x128",
    "sparse=a tile=128x128x64",
    "form=batched sparse=a tile=128x128x64",
    "dtype=e4m3 scale-a=1x128 scale-b=128x128",
    "form=masked tile=128x128x64",
    "form=k-grouped tile=128x128x64",
];

#[test]
fn moved_addresses_are_those_of_a_launch_made_afresh() {
    let mut state = 7;
    let (mut moved, mut refused) = (0, 0);
    let named = crate::catalogue().into_iter().chain(crate::several());
    let named = named.filter(|gemm| gemm.name().ends_with("-bf16-kk") || gemm.name().ends_with("-bf16-mn"));
    let more = MORE.map(|text| text.parse::<KernelSpec>().expect("a spec").kernel().expect("legal"));
    for gemm in named.chain(more) {
        let name = gemm.name().to_owned();
        let stub = Stub::new(gemm);
        let mut calls = LaunchCache::default();
        let all = calls_of(&stub.gemm);
        assert!(!all.is_empty(), "{name}: no call is legal");
        for base in all {
            calls.get(&stub, &base).expect("legal");
            for turn in 0..12 {
                // Aligned like the first, or less.
                let alignment = if turn < 8 { 256 } else { 1 << (random(&mut state) % 8) };
                let call = addressed(&Linear, &base, |address| {
                    *address = ((random(&mut state) >> 16) + 1) * alignment;
                });
                let afresh = stub.launch(&call).and_then(|launch| {
                    launch.map(|launch| Ok((launch.grid, stub.block(&launch.arguments)?))).transpose()
                });
                let before = stub.launches.get();
                let got = calls.get(&stub, &call).map(|got| got.map(|(grid, block)| (grid, block.to_vec())));
                if alignment == 256 && split(&Linear, &call).0 == split(&Linear, &base).0 {
                    assert_eq!(stub.launches.get(), before, "{name}: {call:?} was made afresh");
                    moved += 1;
                }
                match (got, afresh) {
                    (Ok(got), Ok(afresh)) => assert_eq!(got, afresh, "{name}: {call:?}"),
                    (Err(got), Err(afresh)) => {
                        assert_eq!(got.to_string(), afresh.to_string(), "{name}: {call:?}");
                        refused += 1;
                    }
                    (got, afresh) => panic!("{name}: {call:?}: {got:?} and {afresh:?}"),
                }
            }
        }
    }
    assert!(moved > 1000 && refused > 100, "{moved} moved, {refused} refused");
}

collective::labels! {
    Bias = "bias";
}

/// LaunchCache with a bias: for one shape, alignment and factor the block is kept, and new addresses are written to it.
#[test]
fn arguments_of_trees_are_those_of_a_launch_made_afresh() {
    type Biased = Compute<MultiplyAdd, (Accumulator, Scalar, Named<Bias, RowVector<bf16>>)>;
    let mut state = 9;
    for name in ["256x128-1x2-bias-bf16-kk", "64x64-direct-bias-bf16-kk"] {
        let (stub, mut calls) = (Stub::named(name), LaunchCache::default());
        let mut blocks = 0;
        for turn in 0..200u64 {
            let alignment = 1 << [9, 4][turn as usize % 10 / 8];
            let mut address = || ((random(&mut state) >> 16) * 2 + 1) * alignment;
            let n = [128, 136][turn as usize % 2];
            let problem = GemmProblem { m: 192, n, k: 256 };
            let call = Call::of(problem).a(address(), 256).b(address(), 256).d(address(), n.into());
            let bias = RowArgument { address: address() / 2, len: n };
            let arguments = ((), ((), (turn / 20) as f64 / 8.0, bias));
            let call = call.with(Tree::<Biased>(arguments));
            let afresh = stub.launch(&call).expect("legal").expect("not empty");
            let block = stub.block(&afresh.arguments).expect("legal");
            let encoded = stub.blocks.get();
            let got = calls.get(&stub, &call).expect("legal").map(|(grid, block)| (grid, block.to_vec()));
            assert_eq!(got, Some((afresh.grid, block)), "{name}: {call:?}");
            blocks += stub.blocks.get() - encoded;
        }
        assert_eq!(blocks, 10 * 2 * 2, "{name}: one for each factor, alignment and shape");
        // A linear call with the same extents has another shape.
        let linear = Call::of(GemmProblem { m: 192, n: 128, k: 256 }).a(4096, 256).b(4096, 256).d(4096, 128);
        let error = calls.get(&stub, &linear).expect_err("the kernel has a tree").to_string();
        assert!(error.contains("only alpha, beta and C"), "{error}");
        let refused = ((), ((), 1.0, RowArgument { address: 4096, len: 127 }));
        let error =
            calls.get(&stub, &linear.with(Tree::<Biased>(refused))).expect_err("too short").to_string();
        assert!(error.contains("bias has 127 elements, 128 were needed"), "{error}");
        assert!(calls.get(&stub, &linear.with(Tree::<Compute<Relu, (Accumulator,)>>(((), ((),))))).is_err());
    }
}

/// A mainloop's own arguments move with those of later calls.
#[test]
fn arguments_of_mainloops_are_those_of_a_launch_made_afresh() {
    type Gathers = Composed<Later, LinearCombination<bf16>, OneTile<AlongM>>;
    let (stub, mut calls) = (Stub::new(AnyGemm::of::<Gathers>("later")), LaunchCache::default());
    for (a, first) in [(4096, 256), (4096, 512), (8192, 512), (4096, 256)] {
        let call = call(a).with_mainloop(First(first));
        let afresh = stub.launch(&call).expect("legal").expect("not empty");
        let block = stub.block(&afresh.arguments).expect("legal");
        let got = calls.get(&stub, &call).expect("legal").map(|(grid, block)| (grid, block.to_vec()));
        assert_eq!(got, Some((afresh.grid, block)), "A at {a}, first at {first}");
    }
    assert_eq!(calls.len(), 1, "it is one shape");
    assert!(calls.get(&stub, &call(4096)).is_err(), "the default is refused");
}

impl Stub {
    fn legal(gemm: &AnyGemm, call: &Call) -> bool {
        gemm.launch(call, RESIDENT).is_ok()
    }
}

#[test]
fn new_addresses_of_a_known_shape_allocate_nothing() {
    for name in [
        "64x64-direct-bf16-kk",
        "batched-128x256-bf16-kk",
        "ragged-128x256-bf16-kk",
        "grouped-128x256-bf16-kk",
        "128x128-unaligned-bf16-kk",
        "256x192-stream-k-bf16-kk",
    ] {
        let stub = Stub::named(name);
        let mut calls = LaunchCache::default();
        let base = calls_of(&stub.gemm).into_iter().next().expect("one is legal");
        assert!(allocations(|| _ = black_box(calls.get(&stub, &base))) > 0, "{name}: the counter counts");
        for i in 1..100 {
            let mut call = addressed(&Linear, &base, |address| *address += i << 8);
            if split(&Linear, &call).0 != split(&Linear, &base).0 {
                call = base;
            }
            assert_eq!(allocations(|| _ = black_box(calls.get(&stub, &call))), 0, "{name}: {call:?}");
        }
    }
}

#[test]
fn shapes_are_forgotten_and_come_back() {
    let stub = Stub::named("64x64-direct-bf16-kk");
    let mut calls = LaunchCache::default();
    for k in 0..2 * KEPT.get() as u32 {
        let call = of_depth(k);
        for _ in 0..2 {
            let got = calls.get(&stub, &call).expect("legal").map(|(_, block)| block.to_vec());
            let afresh = stub.launch(&call).expect("legal").expect("not empty");
            assert_eq!(got, Some(stub.block(&afresh.arguments).expect("legal")));
        }
        assert!(calls.len() <= KEPT.get());
    }
}

/// A call whose shape depends on a number.
fn of_depth(k: u32) -> Call {
    let call = Call::of(GemmProblem { m: 64, n: 64, k: 8 + k });
    // D is columns of the matrix that A is columns of.
    call.a(4096, 1 << 20).b(4096, 1 << 20).d(16384, 1 << 20)
}

#[test]
fn of_too_many_shapes_the_one_that_was_not_called_for_longest_is_forgotten() {
    let stub = Stub::named("64x64-direct-bf16-kk");
    let mut calls = LaunchCache::default();
    let made = |calls: &mut LaunchCache, k| {
        let before = stub.launches.get();
        calls.get(&stub, &of_depth(k)).expect("legal");
        stub.launches.get() > before
    };
    let most = KEPT.get() as u32;
    for k in 0..most {
        assert!(made(&mut calls, k), "{k} is new");
    }
    assert!(!made(&mut calls, 0), "the first is kept, and used again");
    assert!(made(&mut calls, most), "one too many is new");
    assert_eq!(calls.len(), most as usize, "one goes for one that comes");
    for k in (2..=most).chain([0]) {
        assert!(!made(&mut calls, k), "{k} is kept");
    }
    assert!(made(&mut calls, 1), "the one that was not called for longest is not");
}

#[test]
fn empty_products_are_launched_nowhere() {
    let stub = Stub::named("64x64-direct-bf16-kk");
    let mut calls = LaunchCache::default();
    for address in [4096, 8192] {
        let problem = GemmProblem { m: 0, n: 64, k: 64 };
        let empty = Call { problem, ..call(address) };
        assert_eq!(calls.get(&stub, &empty).expect("legal"), None);
    }
    assert_eq!((calls.len(), stub.launches.get()), (1, 1));
}

#[test]
fn a_map_that_the_driver_refuses_leaves_no_launch_behind() {
    let stub = Stub::named("64x64-direct-bf16-kk");
    let mut calls = LaunchCache::default();
    let [first, second] = [4096, 8192].map(call);
    let made = calls.get(&stub, &first).expect("legal").map(|(_, block)| block.to_vec());
    stub.refuses.set(true);
    let error = calls.get(&stub, &second).expect_err("refused").to_string();
    assert!(error.contains("cuTensorMapReplaceAddress"), "{error}");
    assert_eq!(calls.len(), 0);
    assert_eq!(calls.get(&stub, &first).expect("made afresh").map(|(_, block)| block.to_vec()), made);
}

/// New addresses of a known shape that are over one another are refused, and leave what is kept as it is.
#[test]
fn moved_outputs_have_memory_of_their_own() {
    let stub = Stub::named("64x64-direct-bf16-kk");
    let mut calls = LaunchCache::default();
    let first = call(1 << 20);
    let at = |d: u64| first.d(d, 64);
    for (why, call, apart, made) in [
        ("the first", first, true, 1),
        ("D elsewhere", at(3 << 20), true, 1),
        ("D is A", at(1 << 20), false, 1),
        ("D is in A", at((1 << 20) + 4096), false, 1),
        ("D behind A", at((1 << 20) + 8192), true, 1),
        ("the first again", first, true, 1),
        (
            "an unknown shape, and D is A",
            Call { problem: GemmProblem { m: 32, n: 64, k: 64 }, ..at(1 << 20) },
            false,
            2,
        ),
        ("the same, and apart", Call { problem: GemmProblem { m: 32, n: 64, k: 64 }, ..first }, true, 3),
    ] {
        match calls.get(&stub, &call).map(|got| got.map(|(_, block)| block.to_vec())) {
            Ok(got) => {
                assert!(apart, "{why}");
                assert_eq!(stub.launches.get(), made, "{why}");
                let afresh = stub.gemm.launch(&call, RESIDENT).expect("legal").expect("not empty");
                assert_eq!(got, Some(stub.block(&afresh.arguments).expect("legal")), "{why}");
            }
            Err(error) => {
                assert!(!apart, "{why}: {error}");
                assert!(error.to_string().contains("and shares memory with A at 0x100000"), "{why}: {error}");
                assert_eq!(stub.launches.get(), made, "{why}");
            }
        }
    }
}

#[test]
fn addresses_of_another_alignment_are_checked() {
    let stub = Stub::named("64x64-direct-bf16-kk");
    let mut calls = LaunchCache::default();
    calls.get(&stub, &call(4096)).expect("legal");
    for address in [0, 8, 4097] {
        let error = calls.get(&stub, &call(address)).expect_err("illegal");
        let EngineError::Call { source, .. } = &error else { panic!("{error}") };
        assert!(matches!(source, LaunchError::Null { .. } | LaunchError::Address { .. }), "{error}");
    }
    assert_eq!(calls.len(), 1);
}

/// Prints the time in nanoseconds of the parts of a launch on this machine, without the driver's: `cargo test
/// --release -- --ignored --nocapture parts_of_a_launch`.
#[test]
#[ignore = "prints times"]
fn parts_of_a_launch_in_nanoseconds() {
    let median = |what: &str, work: &mut dyn FnMut(u64)| {
        let mut times: Vec<f64> = (0..2000)
            .map(|i| {
                let start = Instant::now();
                (0..20).for_each(|j| work(i * 20 + j));
                start.elapsed().as_nanos() as f64 / 20.0
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!("  {what:44} {:8.0}", times[times.len() / 2]);
    };
    for name in [
        "64x64-direct-bf16-kk",
        "256x192-bf16-kk",
        "batched-128x256-bf16-kk",
        "ragged-128x256-bf16-kk",
        "grouped-128x256-bf16-kk",
    ] {
        println!("{name}, nanoseconds without the driver:");
        let stub = Stub::named(name);
        let base = calls_of(&stub.gemm).into_iter().next().expect("one is legal");
        let moved = |i: u64| addressed(&Linear, &base, |address| *address += (i << 12) + (1 << 11));
        let mut parts = Parts::default();
        median("the call itself", &mut |i| _ = black_box(moved(i)));
        median("shape and addresses", &mut |i| {
            parts.read(|parts| Kernel::visit(&stub.gemm, &mut moved(i), parts));
            black_box(&parts);
        });
        median("what is written is apart", &mut |_| {
            parts.overlaps.check(|_| ()).expect("apart");
        });
        median("checks, grid and arguments", &mut |i| drop(black_box(stub.launch(&moved(i)))));
        let arguments = stub.launch(&base).expect("legal").expect("not empty").arguments;
        median("parameter block", &mut |_| drop(black_box(stub.block(&arguments))));
        median("a shape it has not seen", &mut |i| {
            let mut calls = LaunchCache::default();
            black_box(calls.get(&stub, &moved(i)).expect("legal"));
        });
        let mut calls = LaunchCache::default();
        median("new addresses of a known shape", &mut |i| {
            black_box(calls.get(&stub, &moved(i)).expect("legal"));
        });
        median("a call it has had before", &mut |_| {
            black_box(calls.get(&stub, &moved(0)).expect("legal"));
        });
    }
}
