//! Products on the host's memory, in the emulator.

use std::sync::Arc;

use falchion::collective::{Code, Format, Input, LinearArguments, MatrixRef, Record};
use falchion::cute_rs::atom::Major;
use falchion::emulator::Schedule;
use falchion::kernel::driver::Activation;
use falchion::kernel::{AnyGemm, Call, Family, GemmProblem, GroupedProblem, Machine, Request, Types};
use falchion_core::{Epilogue, FewBit, FewBitMemory, Gemms, Picked, Run, Weights, aligned};

use crate::{Aligned, bytes, numbers, values};

const BF16: Format = Format::Bf16;

/// `sum(a[m][k] * b[n][k])`.
fn product(a: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    let one = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum();
    a.chunks(k).flat_map(|a| b.chunks(k).map(move |b| one(a, b))).collect()
}

/// Numbers that are rounded to `bf16` once, after sums of eighths that are exact.
fn assert_near(what: &str, got: &[u8], wanted: impl IntoIterator<Item = f64>) {
    let (got, wanted) = (values(BF16, got), wanted.into_iter().collect::<Vec<_>>());
    assert_eq!(got.len(), wanted.len(), "{what}");
    for (at, (got, wanted)) in got.iter().zip(&wanted).enumerate() {
        assert!(
            (got - wanted).abs() <= wanted.abs() / 200.0 + 1e-6,
            "{what}: element {at} is {got}, not {wanted}"
        );
    }
}

/// Runs a call in the emulator.
fn emulate(gemm: &Picked<AnyGemm>, call: &Call<Epilogue>) {
    let how = Run { schedule: Schedule::Random, seed: 3, ..Run::default() };
    // SAFETY: the callers' memory is alive, and as large as the call says.
    unsafe { gemm.emulate(call, how) }.unwrap_or_else(|error| panic!("{error}"));
}

const PROBLEM: GemmProblem = GemmProblem { m: 70, n: 72, k: 40 };

/// Alpha, beta and C; A and B in one piece of memory; nothing around D is touched.
#[test]
fn linear() {
    let GemmProblem { m, n, k } = PROBLEM;
    let [m, n, k] = [m, n, k].map(|extent| extent as usize);
    let gemm =
        Picked::<AnyGemm>::new(&Request::packed(BF16, [Major::K; 2], PROBLEM), None, &Machine::h200(), None)
            .expect("a kernel");
    assert!(gemm.kernel().slots().is_empty() && gemm.microseconds() > 0.0 && !gemm.reason().is_empty());
    assert_eq!((gemm.card(), gemm.workspace(&call_of(&gemm))), (None, None));
    let (both, before) = (numbers((m + n) * k, 1), numbers(m * n, 2));
    let sums = product(&both[..m * k], &both[m * k..], k);
    let [mut operands, mut c] = [&both, &before].map(|of| Aligned::new(&bytes(BF16, of)));
    for (alpha, beta, in_place) in
        [(1.0, 0.0, false), (0.5, 2.0, false), (-1.0, 1.0, true), (0.0, 0.5, false)]
    {
        let mut d = Aligned::new(&bytes(BF16, if in_place { &before } else { &[f64::NAN; 5040] }));
        let source = if in_place { d.address() } else { c.address() };
        let linear = LinearArguments { alpha, beta, c: Some(MatrixRef::new(source, n as u64)) };
        let (a, b) = (operands.address(), operands.address() + 2 * (m * k) as u64);
        let call = Call::of(PROBLEM).a(a, k as u64).b(b, k as u64).d(d.address(), n as u64);
        emulate(&gemm, &call.with(Epilogue::Linear(linear)));
        let wanted = sums.iter().zip(&before).map(|(sum, before)| alpha * sum + beta * before);
        assert_near(&format!("alpha {alpha}, beta {beta}"), d.bytes(), wanted);
        assert!(d.is_intact() && operands.is_intact() && c.is_intact());
    }
}

/// A call of a kernel that is never launched.
fn call_of(gemm: &Picked<AnyGemm>) -> Call<Epilogue> {
    let at = aligned(256);
    let call = Call::of(PROBLEM).a(at, 40).b(at, 40).d(at, 72);
    let linear = Epilogue::Linear(LinearArguments::default());
    if gemm.kernel().slots().is_empty() {
        call.with(linear)
    } else {
        call.with(Epilogue::Fused(Arc::clone(gemm.kernel().slots()), vec![], 1))
    }
}

/// A text's arguments by name: vectors, a matrix, a number, and a row of sums that is written.
#[test]
fn texts() {
    let GemmProblem { m, n, k } = PROBLEM;
    let [m, n, k] = [m, n, k].map(|extent| extent as usize);
    let text = "reduce_sum(sums[n], relu(alpha*acc + bias[n]) + x[m,n])";
    let fusion = Some(falchion_core::formula(text, BF16, None).expect("a formula"));
    let request = Request { fusion, ..Request::packed(BF16, [Major::K; 2], PROBLEM) };
    let gemm = Picked::<AnyGemm>::new(&request, None, &Machine::h200(), None).expect("a kernel");
    let names: Vec<_> = gemm.kernel().slots().iter().map(|slot| slot.name).collect();
    assert_eq!(names, ["alpha", "bias", "sums", "x"]);
    let [a, b, bias, x] =
        [(m * k, 1), (n * k, 2), (n, 3), (m * n, 4)].map(|(count, seed)| numbers(count, seed));
    let [mut of_a, mut of_b, mut of_bias, mut of_x] =
        [&a, &b, &bias, &x].map(|of| Aligned::new(&bytes(BF16, of)));
    let mut d = Aligned::new(&vec![0xFF; 2 * m * n]);
    let mut sums = Aligned::new(&bytes(Format::F32, &vec![0.0; n]));
    let inputs = vec![
        Some(Input::Scalar(0.5)),
        Some(Input::Address(of_bias.address())),
        Some(Input::Address(sums.address())),
        Some(Input::matrix(of_x.address(), n as u64)),
    ];
    let call =
        Call::of(PROBLEM).a(of_a.address(), k as u64).b(of_b.address(), k as u64).d(d.address(), n as u64);
    let call = call.with(Epilogue::Fused(Arc::clone(gemm.kernel().slots()), inputs, 1));
    emulate(&gemm, &call);
    let all = product(&a, &b, k);
    let wanted: Vec<f64> =
        all.iter().enumerate().map(|(at, sum)| (0.5 * sum + bias[at % n]).max(0.0) + x[at]).collect();
    assert_near(text, d.bytes(), wanted.iter().copied());
    for (column, got) in values(Format::F32, sums.bytes()).into_iter().enumerate() {
        let sum: f64 = wanted.iter().skip(column).step_by(n).sum();
        assert!((got - sum).abs() < 1e-3, "column {column}: {got}, not {sum}");
    }
    assert!(d.is_intact() && sums.is_intact());
    // An argument that is not given is named.
    let Epilogue::Fused(slots, mut inputs, count) = call.epilogue.clone() else { panic!("a text") };
    inputs[1] = None;
    let without = call.with(Epilogue::Fused(slots, inputs, count));
    // SAFETY: nothing is run.
    let error = unsafe { gemm.emulate(&without, Run::default()) }.expect_err("no bias").to_string();
    assert!(error.contains("bias"), "{error}");
}

/// The matrices of records are the host's, too: C only if beta is not zero.
#[test]
fn pointer_arrays() {
    let request = Request::packed(BF16, [Major::K; 2], PROBLEM);
    let products = GroupedProblem::PointerArray { count: 2, records: aligned(16) };
    let at = MatrixRef::new(aligned(16), 0);
    let call = Call { products, a: at, b: at, d: at, ..request.call };
    let gemm =
        Picked::<AnyGemm>::new(&Request { call, ..request }, None, &Machine::h200(), None).expect("a kernel");
    let shapes = [[70, 72, 40], [9, 16, 24]];
    for beta in [0.0, 1.0] {
        let mut memory: Vec<_> = (10u64..)
            .zip(shapes)
            .map(|(seed, [m, n, k])| {
                let of = [(m * k, seed), (n * k, seed + 10), (m * n, seed + 20)];
                let all = of.map(|(count, seed)| numbers(count, seed));
                let held = all.each_ref().map(|of| Aligned::new(&bytes(BF16, of)));
                (all, held, Aligned::new(&vec![0xFF; 2 * m * n]))
            })
            .collect();
        let records: Vec<u8> = memory
            .iter_mut()
            .zip(shapes)
            .flat_map(|((_, [a, b, c], d), [m, n, k])| {
                let [a, b, c] = [a, b, c].map(Aligned::address);
                let [lda, ldd] = [k, n].map(|ld| ld as u64);
                let c = if beta == 0.0 { 0 } else { c };
                let [m, n, k] = [m, n, k].map(|extent| extent as u32);
                Record { m, n, k, addresses: [a, b, c, d.address()], lds: [lda, lda, ldd, ldd] }.to_bytes()
            })
            .collect();
        let mut records = Aligned::new(&records);
        let products = GroupedProblem::PointerArray { count: 2, records: records.address() };
        let linear = LinearArguments { beta, c: None, ..LinearArguments::default() };
        let linear = LinearArguments { c: (beta != 0.0).then_some(at), ..linear };
        emulate(&gemm, &Call { products, ..call }.with(Epilogue::Linear(linear)));
        for (([a, b, c], _, d), [_, _, k]) in memory.iter().zip(shapes) {
            let wanted = product(a, b, k).into_iter().zip(c).map(|(sum, c)| sum + beta * c);
            assert_near(&format!("K {k}, beta {beta}"), d.bytes(), wanted);
            assert!(d.is_intact());
        }
    }
}

/// Layers and experts with few-bit weights: codes less zero points times scales, a bias, and what follows it.
#[test]
fn few_bits() {
    let [n, k] = [72_usize, 128];
    let silu = |x: f64| x / (1.0 + (-x).exp());
    for (experts, rows, biased, activation) in [
        (0, vec![5], false, Activation::Identity),
        (0, vec![70], true, Activation::Relu),
        (0, vec![3], false, Activation::Silu),
        (2, vec![20, 13], true, Activation::Identity),
    ] {
        let count = rows.len();
        let codes: Vec<u8> = (0..count * n * k).map(|i| (i * 7 % 16) as u8).collect();
        let scales = numbers(count * 4 * n, 5);
        let zeros: Vec<f64> = (0..count * 4 * n).map(|i| (i % 5) as f64 + 4.0).collect();
        let of = |expert: usize| {
            let [scales, zeros] = [&scales, &zeros].map(|all| bytes(BF16, &all[expert * 4 * n..][..4 * n]));
            let codes = &codes[expert * n * k..][..n * k];
            Weights::new(Code::U4, BF16, [n as u32, k as u32], codes, [Some(&scales), Some(&zeros)])
                .expect("weights")
        };
        let all: Vec<Weights> = (0..count).map(of).collect();
        let product = FewBit { experts, activation, ..FewBit::of(&all[0], biased) };
        assert_eq!((product.shape, product.lds, product.biased), ([72, 128], [72, 72], biased));
        let joined = |of: &dyn Fn(&Weights) -> &Vec<u8>| {
            Aligned::new(&all.iter().flat_map(|one| of(one).clone()).collect::<Vec<_>>())
        };
        let (mut units, mut lines) =
            (joined(&|one| &one.units), [joined(&|one| &one.scales.bytes), joined(&|one| &one.zeros.bytes)]);
        let total: u32 = rows.iter().sum();
        let (x, bias) = (numbers(total as usize * k, 6), numbers(count * n, 7));
        let [mut of_x, mut of_bias] = [&x, &bias].map(|of| Aligned::new(&bytes(BF16, of)));
        let begins: Vec<u32> = (0..=count).map(|of| rows[..of].iter().sum()).collect();
        let mut offsets =
            Aligned::new(&begins.iter().flat_map(|begin| begin.to_le_bytes()).collect::<Vec<_>>());
        let mut d = Aligned::new(&vec![0xFF; 2 * total as usize * n]);
        let memory = FewBitMemory {
            x: of_x.address(),
            units: units.address(),
            lines: lines.each_mut().map(Aligned::address),
            bias: of_bias.address(),
            offsets: offsets.address(),
            d: d.address(),
        };
        let kernel = product.kernel(total, &Machine::h200(), None).expect("a kernel");
        emulate(&kernel, &product.call_of(&kernel, total, memory));
        let wanted = (0..total as usize).flat_map(|row| {
            let expert =
                if experts == 0 { 0 } else { begins.partition_point(|&begin| begin as usize <= row) - 1 };
            let (x, scales, zeros, codes, bias) = (&x[row * k..], &scales, &zeros, &codes, &bias);
            (0..n).map(move |column| {
                let sum: f64 = (0..k)
                    .map(|at| {
                        let group = (expert * 4 + at / 32) * n + column;
                        let code = f64::from(codes[(expert * n + column) * k + at]);
                        x[at] * (code - zeros[group]) * scales[group]
                    })
                    .sum();
                let sum = sum + if biased { bias[expert * n + column] } else { 0.0 };
                match activation {
                    Activation::Identity => sum,
                    Activation::Relu => sum.max(0.0),
                    _ => silu(sum),
                }
            })
        });
        let wanted: Vec<f64> = wanted.collect();
        // Weights are rounded to `bf16` before they are multiplied.
        for (at, (got, wanted)) in values(BF16, d.bytes()).iter().zip(&wanted).enumerate() {
            assert!(
                (got - wanted).abs() < 0.5 + wanted.abs() / 100.0,
                "{product:?}: element {at} is {got}, not {wanted}"
            );
        }
        assert!(d.is_intact() && wanted.iter().any(|wanted| wanted.abs() > 20.0));
    }
}

/// Types that no kernel multiplies have a sentence.
#[test]
fn what_no_kernel_does() {
    let types = Types::of(Format::Bf16).with_b(Format::S8);
    let request = Request::packed(types, [Major::K; 2], PROBLEM);
    let error = Picked::<AnyGemm>::new(&request, None, &Machine::h200(), None)
        .expect_err("no such kernel")
        .to_string();
    assert!(
        error.starts_with("gemm single 70x72x40 ") && error.contains("bf16") && error.contains("s8"),
        "{error}"
    );
}

/// What is described without leading dimensions, strides and alignment is packed: it is the same problem, whose times have one text.
#[test]
fn what_is_described_is_packed() {
    for (named, layout, batch, epilogue) in [
        ("bf16", "kk", 1, None),
        ("bf16-bf16-f32", "kn", 1, None),
        ("f16", "mn", 5, None),
        ("f32", "kn", 3, Some("relu(acc)")),
        ("e4m3-e5m2", "kk", 2, None),
        ("e4m3-1x128-128x128", "kk", 1, None),
        ("bf16-s4g128", "kk", 1, Some("acc + bias[n]")),
        ("bf16-sparse-b", "kk", 1, None),
        ("bf16", "kn", 1, Some("gated(silu, acc)")),
    ] {
        // D of half as many columns has rows of multiples of 16 bytes, too.
        let [m, n, k] = [300, 208, 384];
        let described = Gemms {
            types: named.to_owned(),
            layout: layout.to_owned(),
            extents: [m, n, k],
            batch,
            epilogue: epilogue.map(str::to_owned),
            ..Gemms::default()
        };
        let described = described.asked().expect("described").request;
        let (types, said) = falchion_core::types(named).expect("types");
        let fusion = epilogue.map(|text| falchion_core::formula(text, types.a, said).expect("a formula"));
        let types = fusion.map_or(types, |of| types.stored(of.output(types.a)));
        let majors = falchion_core::majors(layout).expect("directions");
        let packed = Request { fusion, ..Request::packed(types, majors, GemmProblem { m, n, k }) };
        let packed = if batch > 1 { packed.batched(batch) } else { packed };
        assert_eq!(AnyGemm::problem(&described), AnyGemm::problem(&packed), "{named} {layout}");
        let halvings = fusion.map_or(0, |fusion| fusion.halvings());
        assert_eq!(described.call.d.ld, u64::from(n >> halvings), "{named} {layout}");
    }
}
