//! 2:4 sparse operands: stored elements are multiplied at their original place, on either side and in every
//! format, also by the kernels that are chosen for them; types and specs are the same kernels; calls and operands
//! that are not sparse are refused.

use collective::sparse::{SparseError, compress};
use collective::{
    AsManyAsFit, Cluster, Cooperative, EachWarp, F8E4M3, Format, KMajor, LinearCombination, Operands, Plan,
    Sparse, Tile, TmaStore, TmaWgmma, Transposed,
};
use cute_rs::atom::Major;
use emulator::{Numerics, Schedule};
use falchion::verify::matrix::Distribution;
use falchion::verify::product::{formats, orders};
use falchion::verify::{GemmCase, HostMatrix, Order, storage};
use half::bf16;
use kernel::{
    AnyGemm, Batched, Buffer, Call, Composed, Emulator, Gemm, GemmProblem, KernelSpec, Known, LaunchError,
    Machine, MatrixRef, Request, Types, search,
};
use scheduler::{AlongM, Grouped, Persistent, StreamK};
use typenum::{U1, U2, U8, U64, U128};

fn kernel(text: &str) -> AnyGemm {
    text.parse::<KernelSpec>().unwrap_or_else(|error| panic!("{text}: {error}")).kernel().expect(text)
}

/// A GEMM of random matrices; the sparse one is pruned.
fn product(gemm: &AnyGemm, problem: GemmProblem, seed: u64) -> GemmCase {
    let GemmProblem { m, n, k } = problem;
    let ([of_a, of_b, of_d], [a_order, b_order]) = (formats(gemm), orders(gemm));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut fill = |format: falchion::verify::Format, extents, order| {
        HostMatrix::random(format, extents, order, 16 / format.bytes(), Distribution::Normal, &mut random)
    };
    let operands = [fill(of_a, [m, k], a_order), fill(of_b, [k, n], b_order)];
    let c = fill(of_d, [m, n], Order::RowMajor);
    let ([a, b], weights) = storage::fitted(gemm, problem, operands, &mut random);
    GemmCase {
        a,
        b,
        scales: None,
        weights,
        vectors: None,
        operand_offset: 0,
        c: Some(c),
        alpha: 1.0,
        beta: 1.0,
        d_ld: n,
        d_offset: 0,
        in_place: false,
    }
}

/// Whether this is a long run. Others have every second case, in turns.
fn long() -> bool {
    std::env::var_os("FALCHION_LONG").is_some()
}

#[test]
fn what_is_kept_is_multiplied_where_it_was() {
    let mut seed = 0;
    for (kind, problem) in [
        ("tile=128x64xK", [130, 200, 328]),
        ("tile=64x32xK consumers=1 scheduler=stream-k", [72, 136, 1000]),
        ("tile=64x64xK roles=pingpong", [200, 264, 200]),
        ("tile=256x64xK cluster=1x2", [520, 40, 136]),
        ("tile=128x64xK cluster=2x1 stages=2", [270, 136, 264]),
        ("tile=128x64x2K", [136, 72, 777]),
    ] {
        for dtype in ["bf16", "f16", "e4m3", "e4m3 dtype-b=e5m2", "s8", "u8 dtype-b=s8", "tf32"] {
            for (turn, side) in ["sparse=a", "sparse=b swap=yes"].into_iter().enumerate() {
                // Seven formats have both sides: the next kind has the other one.
                if !long() && seed / 2 % 2 != turn as u64 {
                    seed += 1;
                    continue;
                }
                let k = if dtype == "tf32" { 32 } else { 64 };
                let kind = kind.replace("2K", &(2 * k).to_string()).replace('K', &k.to_string());
                let gemm = kernel(&format!("{kind} dtype={dtype} {side}"));
                let [mut m, mut n, k]: [u32; 3] = problem;
                if side != "sparse=a" {
                    (m, n) = (n, m);
                }
                // Rows of D are stored by TMA.
                let problem = GemmProblem { m, n: n.next_multiple_of(16), k };
                seed += 1;
                let schedule = [Schedule::Default, Schedule::Latest, Schedule::Random][seed as usize % 3];
                let numerics = if seed % 2 == 0 { Numerics::Exact } else { Numerics::Fast };
                let mut emulator = Emulator::new().with_numerics(numerics).with_schedule(schedule, seed);
                let product = product(&gemm, problem, seed);
                let outcome = product.run(&gemm, &mut emulator).expect("runs");
                assert_eq!(outcome.mismatch, None, "{}: {problem:?}", gemm.name());
            }
        }
    }
}

/// The kernels ranked first for sparse operands of each format, compared with the reference.
#[test]
fn chosen_kernels_multiply_what_they_are_chosen_for() {
    let small = GemmProblem { m: 136, n: 272, k: 640 };
    let thin = GemmProblem { m: 16, n: 512, k: 1024 };
    let e5m2 = Types::of(Format::E4m3).with_b(Format::E5m2);
    let all = [Format::Bf16, Format::F16, Format::E4m3, Format::S8, Format::U8, Format::Tf32];
    let mut seed = 100;
    for types in all.map(Types::of).into_iter().chain([e5m2]) {
        for sparse in [[true, false], [false, true]] {
            // The first kind of sparse operand has one shape, the second one the other.
            let of_turn = if long() {
                &[small, thin][..]
            } else if sparse[0] {
                &[small]
            } else {
                &[thin]
            };
            for &problem in of_turn {
                let types = types.sparse(sparse);
                let request = Request::packed(types, [Major::K; 2], problem).known(Known::Nothing);
                let selection = search(&request, &Machine::h200(), 2);
                assert_eq!(selection.ranked.len(), 2, "{types}: {:?}", selection.refused);
                for gemm in selection.ranked.into_iter().map(|ranked| ranked.gemm) {
                    seed += 1;
                    assert_eq!(Types::of_plan(&gemm.plan()), types, "{}", gemm.name());
                    let mut emulator = Emulator::new().with_multiprocessors(8);
                    let product = product(&gemm, problem, seed);
                    let outcome = product.run(&gemm, &mut emulator).expect("runs");
                    assert_eq!(outcome.mismatch, None, "{}: {problem:?}", gemm.name());
                }
            }
        }
    }
}

/// B has sparse weights: swap-AB makes it the kernel's A, and D is stored transposed.
type Dense = Composed<
    TmaWgmma<
        Operands<Sparse<KMajor<bf16>>, KMajor<bf16>>,
        Tile<U128, U64, U128>,
        Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>,
    >,
    LinearCombination<bf16, Transposed<TmaStore>>,
    StreamK<AlongM>,
>;

/// A batch with a sparse A of 8-bit floats.
type Batch = Batched<
    Composed<
        TmaWgmma<
            Operands<Sparse<KMajor<F8E4M3>>, KMajor<F8E4M3>>,
            Tile<U128, U64, U128>,
            Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>,
        >,
        LinearCombination<bf16, TmaStore>,
        Persistent<Grouped<AlongM, U8>>,
    >,
>;

const _: Plan = Gemm::<Dense>::PLAN;
const _: Plan = Gemm::<Batch>::PLAN;

#[test]
fn types_are_their_specs() {
    for (gemm, words) in [
        (AnyGemm::of::<Dense>("dense"), "sparse=b swap=yes tile=128x64x128 scheduler=stream-k raster=m"),
        (AnyGemm::of::<Batch>("batch"), "form=batched dtype=e4m3 sparse=a tile=128x64x128"),
    ] {
        let (text, typed) = (kernel(words).program().expect("legal"), gemm.program().expect("legal"));
        assert_eq!(text.text(), typed.text(), "{words}");
        assert_eq!(gemm.spec(), Some(words.parse().expect(words)), "{words}");
    }
    let spec: KernelSpec = "sparse=a".parse().expect("legal");
    assert!(
        spec.rust_type().contains("Operands<Sparse<KMajor<bf16>>, KMajor<bf16>>"),
        "{}",
        spec.rust_type()
    );
}

#[test]
fn what_calls_say_of_a_sparse_operand_is_checked() {
    let gemm = kernel("sparse=a");
    let problem = GemmProblem { m: 100, n: 64, k: 200 };
    let legal = Call {
        workspace: Some(Buffer { address: 1 << 20, bytes: 1 << 20 }),
        ..Call::of(problem).a(1 << 16, 104).b(1 << 17, 200).d(1 << 18, 64).sparse(MatrixRef::new(4096, 512))
    };
    assert!(gemm.launch(&legal, 132).expect("legal").is_some());
    for (call, words) in [
        (Call { metadata: None, ..legal }, "Call::metadata was needed"),
        (legal.sparse(MatrixRef::NONE), "are at 0x0, a multiple of 16 above 0 was needed"),
        (legal.sparse(MatrixRef::new(4096, 384)), "is 384, a multiple of 128 from 512 on"),
        (legal.sparse(MatrixRef::new(4096, 576)), "is 576, a multiple of 128 from 512 on"),
        (legal.a(1 << 16, 96), "A's leading dimension is 96 elements, at least 100 were needed"),
    ] {
        let error = gemm.launch(&call, 132).expect_err(words).to_string();
        assert!(error.contains(words), "`{words}`: {error}");
    }
    let dense = Call { a: MatrixRef::new(1 << 16, 200), ..legal };
    assert_eq!(kernel("tile=64x64x64").launch(&dense, 132), Err(LaunchError::NotSparse));
    // Where nothing is multiplied, the metadata is not checked.
    let nothing = Call { problem: GemmProblem { k: 0, ..problem }, metadata: None, ..legal };
    assert!(gemm.launch(&nothing, 132).expect("legal").is_some());
}

#[test]
fn what_cannot_be_sparse_is_refused() {
    for (words, sentence) in [
        ("sparse=b", "swap A and B"),
        ("sparse=both", "multiplies a sparse operand by a dense one: leave one dense"),
        ("sparse=a layout=mk", "contiguous along K"),
        ("sparse=a tile=128x128x96", "tile K of a sparse operand is 96, a multiple of 64 was needed"),
        (
            "dtype=tf32 sparse=a tile=128x128x48",
            "tile K of a sparse operand is 48, a multiple of 32 was needed",
        ),
        ("sparse=a swizzle-b=32", "use a swizzle of 64 or 128 bytes"),
        ("sparse=a weights-a=s4", "from shared memory, without conversion"),
        ("dtype=e4m3 sparse=a promote=8", "promoted within a k-tile"),
        ("sparse=a step=32", "use Tile, not Fitted"),
        ("sparse=a load=copy", "use TmaWgmma"),
        ("sparse=a roles=unspecialised", "use Cooperative or Pingpong"),
        ("sparse=a arrivals=warpgroup", "EachWarp<AsManyAsFit>"),
        ("form=grouped sparse=a", "use one product, a batch or groups of rows"),
        ("form=ragged sparse=a", "swap A and B"),
    ] {
        let error = words.parse::<KernelSpec>().expect_err(words).to_string();
        assert!(error.contains(sentence), "{words}: {error}");
    }
    let dense = compress(collective::Format::Bf16, [1, 4], &[1, 2, 3, 0]);
    assert_eq!(dense, Err(SparseError::Dense { row: 0, column: 0, chunk: 4 }));
}
