//! Quantised weights: every code is multiplied as the number that it represents, with scales and zero points,
//! on either side; types and specs are the same kernels; incomplete calls are refused.

use collective::{
    AsManyAsFit, Cluster, Cooperative, EachWarp, F4E2M1, GroupScales, KMajor, LinearCombination, Operands,
    Plan, Quantized, Tile, TmaStore, TmaWgmma, Transposed, Uint4, ZeroPoints,
};
use emulator::{Numerics, Schedule};
use falchion::verify::matrix::Distribution;
use falchion::verify::product::{formats, orders};
use falchion::verify::storage::random_weights;
use falchion::verify::{Format, GemmCase, HostMatrix, Order, Weights, weights};
use half::bf16;
use kernel::{
    AnyGemm, Buffer, Call, Composed, Emulator, Gemm, GemmProblem, GroupedContiguous, KernelSpec, LaunchError,
    MatrixRef,
};
use scheduler::{AlongM, Grouped, Persistent, StreamK};
use typenum::{U1, U2, U8, U32, U64, U128};

fn kernel(text: &str) -> AnyGemm {
    text.parse::<KernelSpec>().unwrap_or_else(|error| panic!("{text}: {error}")).kernel().expect(text)
}

/// A GEMM of random matrices, one of them quantised weights.
fn product(gemm: &AnyGemm, problem: GemmProblem, weights: Weights, random: &mut fastrand::Rng) -> GemmCase {
    let GemmProblem { m, n, k } = problem;
    let ([of_a, of_b, of_d], [a_order, b_order]) = (formats(gemm), orders(gemm));
    let mut fill =
        |format, extents, order| HostMatrix::random(format, extents, order, 8, Distribution::Normal, random);
    let (mut a, mut b) = (fill(of_a, [m, k], a_order), fill(of_b, [k, n], b_order));
    let c = fill(of_d, [m, n], Order::RowMajor);
    match gemm.plan().call_operands()[0].weights {
        Some(_) => a = weights.matrix(of_a, false),
        _ => b = weights.matrix(of_b, true),
    }
    GemmCase {
        a,
        b,
        scales: None,
        weights: Some(weights),
        vectors: None,
        operand_offset: 0,
        c: Some(c),
        alpha: 1.0,
        beta: 0.0,
        d_ld: n,
        d_offset: 0,
        in_place: false,
    }
}

fn right(gemm: &AnyGemm, problem: GemmProblem, seed: u64, emulator: &mut Emulator) {
    let mut random = fastrand::Rng::with_seed(seed);
    let weights = random_weights(gemm, problem, &mut random).expect("a kernel of weights");
    let product = GemmCase { beta: 0.5, ..product(gemm, problem, weights, &mut random) };
    let outcome = product.run(gemm, emulator).expect("runs");
    assert_eq!(outcome.mismatch, None, "{}: {problem:?}", gemm.name());
}

/// D = I * W: every code of a kernel gives the number that it represents, in both formats.
#[test]
fn every_code_is_the_number_it_stands_for() {
    for code in weights::WeightFormat::ALL {
        for format in ["bf16", "f16"] {
            let spec = format!(
                "dtype={format} weights-b={} swap=yes tile=64x64x64 consumers=1 store=direct out=f32",
                code.name()
            );
            let gemm = kernel(&spec);
            let ([of_a, ..], problem) = (formats(&gemm), GemmProblem { m: 64, n: 64, k: 64 });
            let all: Vec<u8> = (0..=255)
                .filter(|&byte| byte < 16 || !matches!(code.name(), "s4" | "u4" | "e2m1"))
                .filter(|&byte| code.decode(byte).is_finite())
                .collect();
            // Each code occurs in every position of a thread's words.
            let codes: Vec<u8> = (0..64 * 64).map(|i| all[(i + i / 64) % all.len()]).collect();
            let weights = Weights { code, extents: [64, 64], codes, group: 0, scales: None, zeros: None };
            let identity = HostMatrix::from_fn(of_a, [64, 64], Order::RowMajor, 64, |row, column| {
                f64::from(u8::from(row == column))
            });
            let mut random = fastrand::Rng::with_seed(1);
            let product = GemmCase { a: identity, ..product(&gemm, problem, weights.clone(), &mut random) };
            let outcome = product.run(&gemm, &mut Emulator::new()).expect("runs");
            assert_eq!(outcome.mismatch, None, "{spec}");
            for (row, column) in (0..64).flat_map(|row| (0..64).map(move |column| (row, column))) {
                let got = Format::F32.decode(outcome.d[row as usize * 64 + column as usize]);
                assert_eq!(got, weights.get(of_a, column, row), "{spec}: W({row}, {column})");
            }
        }
    }
}

/// Groups of every length, with and without zero points, on either side, in tiles and clusters of every kind;
/// extents that end inside units, groups and tiles.
#[test]
fn groups_are_scaled() {
    let mut seed = 0;
    for (kind, problem) in [
        ("tile=128x64x64", [130, 200, 328]),
        ("tile=64x16x128 consumers=1 scheduler=stream-k", [9, 136, 1000]),
        ("tile=64x32x64 roles=pingpong", [70, 264, 200]),
        ("tile=256x32x64 cluster=1x2", [40, 520, 136]),
        ("tile=128x64x128 cluster=2x1", [70, 136, 264]),
        ("tile=128x8x256 stages=2", [8, 128, 776]),
        ("tile=64x32x96", [17, 72, 200]),
    ] {
        for (code, group, zeros) in [
            ("s4", "none", "no"),
            ("s4", "128", "no"),
            ("u4", "32", "yes"),
            ("s8", "64", "no"),
            ("u8", "128", "yes"),
            ("e4m3", "64", "no"),
            ("e2m1", "32", "no"),
        ] {
            for side in ["weights-b", "weights-a"] {
                let swap = if side == "weights-b" { "yes" } else { "no" };
                let text = format!("{kind} {side}={code} group={group} zeros={zeros} swap={swap}");
                let Ok(spec) = text.parse::<KernelSpec>() else {
                    assert!(kind.contains("x96"), "{text}: {:?}", text.parse::<KernelSpec>());
                    continue;
                };
                let [few, many, k]: [u32; 3] = problem;
                let [m, n] = if side == "weights-b" { [few, many] } else { [many, few.next_multiple_of(8)] };
                seed += 1;
                let schedule = [Schedule::Default, Schedule::Latest, Schedule::Random][seed as usize % 3];
                let mut emulator =
                    Emulator::new().with_numerics(Numerics::Exact).with_schedule(schedule, seed);
                right(&spec.kernel().expect("legal"), GemmProblem { m, n, k }, seed, &mut emulator);
            }
        }
    }
}

/// 4-bit weights with zero points for groups of 64, as B: swap-AB makes them the kernel's A, and D is stored
/// transposed.
type Dense = Composed<
    TmaWgmma<
        Operands<Quantized<KMajor<bf16>, ZeroPoints<Uint4>, U64>, KMajor<bf16>>,
        Tile<U128, U64, U128>,
        Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>,
    >,
    LinearCombination<bf16, Transposed<TmaStore>>,
    StreamK<AlongM>,
>;

/// MXFP4 experts.
type Experts = GroupedContiguous<
    Composed<
        TmaWgmma<
            Operands<Quantized<KMajor<bf16>, F4E2M1, U32>, KMajor<bf16>>,
            Tile<U128, U32, U64>,
            Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>,
        >,
        LinearCombination<bf16, Transposed<TmaStore>>,
        Persistent<Grouped<AlongM, U8>>,
    >,
>;

const _: Plan = Gemm::<Dense>::PLAN;
const _: Plan = Gemm::<Experts>::PLAN;

/// A type and its spec are one kernel, with the same program.
#[test]
fn types_are_their_specs() {
    for (gemm, words) in [
        (
            AnyGemm::of::<Dense>("dense"),
            "weights-b=u4 group=64 zeros=yes swap=yes tile=128x64x128 scheduler=stream-k raster=m",
        ),
        (AnyGemm::of::<Experts>("experts"), "form=ragged weights-b=e2m1 group=32 swap=yes tile=128x32x64"),
    ] {
        let (text, typed) = (kernel(words).program().expect("legal"), gemm.program().expect("legal"));
        assert_eq!(text.text(), typed.text(), "{words}");
        assert_eq!(gemm.spec(), Some(words.parse().expect(words)), "{words}");
    }
    let spec: KernelSpec = "weights-b=s8 group=128 swap=yes".parse().expect("legal");
    assert!(
        spec.rust_type().contains("Operands<Quantized<KMajor<bf16>, i8, U128>, KMajor<bf16>>"),
        "{}",
        spec.rust_type()
    );
}

#[test]
fn what_calls_say_of_weights_is_checked() {
    let gemm = kernel("weights-b=u4 group=64 zeros=yes swap=yes");
    let problem = GemmProblem { m: 16, n: 104, k: 200 };
    let groups = GroupScales { scales: MatrixRef::new(4096, 104), zeros: MatrixRef::new(8192, 104) };
    let legal = Call {
        workspace: Some(Buffer { address: 1 << 20, bytes: 1 << 20 }),
        ..Call::of(problem).a(1 << 16, 200).b(1 << 17, 256).d(1 << 18, 104).group_scaled(groups)
    };
    assert!(gemm.launch(&legal, 132).expect("legal").is_some());
    let scaled = |scales, zeros| Call { group_scales: Some(GroupScales { scales, zeros }), ..legal };
    let of_groups = |groups: GroupScales| (groups.scales, groups.zeros);
    let (scales, zeros) = of_groups(groups);
    for (call, words) in [
        (Call { group_scales: None, ..legal }, "Call::group_scales was needed"),
        (
            scaled(MatrixRef::NONE, zeros),
            "the scales of weights are at 0x0, a multiple of 16 above 0 was needed",
        ),
        (scaled(scales, MatrixRef::new(8200, 104)), "the zero points of weights are at 0x2008"),
        (
            scaled(MatrixRef::new(4096, 96), zeros),
            "the leading dimension of the scales of weights is 96, a multiple of 8 from 104 on, below 2^38, was needed",
        ),
        (legal.b(1 << 17, 200), "B's leading dimension is 200 elements, at least 256 were needed"),
        (legal.b(1 << 17, 264), "B's leading dimension is 132 B, a multiple of 32 B below 2^40 was needed"),
        (legal.b(0, 256), "B is a null pointer"),
        (legal.b(1032, 256), "0x408"),
    ] {
        let error = gemm.launch(&call, 132).expect_err(words).to_string();
        assert!(error.contains(words), "`{words}`: {error}");
    }
    let plain = kernel("tile=64x64x64");
    let call = Call { b: MatrixRef::new(1 << 17, 200), ..legal };
    assert_eq!(plain.launch(&call, 132), Err(LaunchError::NotGroupScaled));
    // Where nothing is multiplied, the scales are not checked.
    let nothing = Call { problem: GemmProblem { k: 0, ..problem }, group_scales: None, ..legal };
    assert!(gemm.launch(&nothing, 132).expect("legal").is_some());
}

/// An illegal kernel is refused with the rule and a legal alternative.
#[test]
fn specs_that_cannot_be_are_refused() {
    for (words, sentence) in [
        ("weights-b=s4", "swap A and B"),
        ("weights-a=s4 weights-b=s4", "both operands are weights in few bits"),
        ("dtype=e4m3 weights-b=s4", "multiplied as bf16 or f16"),
        ("dtype=e4m3 weights-a=s4", "multiplied as bf16 or f16"),
        ("weights-a=s4 layout=mk", "contiguous along K"),
        ("weights-a=s4 group=96", "K of a group of weights is 96, 32, 64 or 128 was needed"),
        ("weights-a=s4 tile=128x128x32", "tile K of weights in few bits is 32, a multiple of 64 was needed"),
        ("weights-a=s8 group=64 tile=128x64x96", "a part of a group, or whole groups, was needed"),
        ("weights-a=e4m3 group=64 zeros=yes", "zero points need integer codes and groups"),
        ("weights-a=u4 zeros=yes", "zero points need integer codes and groups"),
        ("dtype=f16 weights-a=e2m1 group=32", "use operands of bf16"),
        ("weights-a=s4 promote=4", "leave the promotion out"),
        ("weights-a=s4 step=32", "use Tile, not Fitted"),
        ("weights-a=s4 load=copy", "use TmaWgmma"),
        ("weights-a=s4 roles=unspecialised", "use Cooperative or Pingpong"),
        ("weights-a=s4 arrivals=warpgroup", "EachWarp<AsManyAsFit>"),
        ("form=grouped weights-a=s4", "use one product, a batch or groups of rows"),
        ("form=ragged weights-a=s4", "swap A and B"),
        ("weights-a=s4 tile=128x64x64 cluster=1x4", "in blocks of 64 rows"),
        ("group=64", "belongs to weights-a and weights-b"),
    ] {
        let error = words.parse::<KernelSpec>().expect_err(words).to_string();
        assert!(error.contains(sentence), "{words}: {error}");
    }
}
