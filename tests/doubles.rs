//! GEMMs of `f64` whose tiles are split among several CTAs: the partial sums are added in double precision.

use emulator::Schedule;
use falchion::verify::matrix::Fill;
use falchion::verify::product::{accumulators, formats, orders};
use falchion::verify::{GemmCase, HostMatrix, Order};
use kernel::{AnyGemm, Call, Emulator, GemmProblem, KernelSpec};

fn kernel(text: &str) -> AnyGemm {
    text.parse::<KernelSpec>().unwrap_or_else(|error| panic!("{text}: {error}")).kernel().expect(text)
}

fn product(gemm: &AnyGemm, GemmProblem { m, n, k }: GemmProblem, seed: u64) -> GemmCase {
    let ([of_a, of_b, of_d], [a_order, b_order]) = (formats(gemm), orders(gemm));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut fill =
        |format, extents, order| HostMatrix::random(format, extents, order, 2, Fill::Normal, &mut random);
    GemmCase {
        a: fill(of_a, [m, k], a_order),
        b: fill(of_b, [k, n], b_order),
        scales: None,
        weights: None,
        vectors: None,
        operand_offset: 0,
        c: Some(fill(of_d, [m, n], Order::RowMajor)),
        alpha: 0.5,
        beta: -2.0,
        d_ld: n,
        d_offset: 0,
        in_place: false,
    }
}

#[test]
fn divided_tiles_are_added_up_in_double_precision() {
    let (mut seed, mut divided) = (0, 0);
    for scheduler in [
        "scheduler=stream-k divide=remainder min-k-tiles=1",
        "scheduler=stream-k reduction=atomic divide=remainder min-k-tiles=2",
        "scheduler=stream-k reduction=separate divide=split3 min-k-tiles=1",
        "scheduler=stream-k divide=split4 min-k-tiles=1",
        "scheduler=dynamic-tail min-k-tiles=1",
    ] {
        for tile in [
            "tile=128x64x16 consumers=1 stages=4",
            "tile=128x64x16 consumers=2 stages=3",
            "tile=64x32x16 consumers=1",
        ] {
            let gemm = kernel(&format!("dtype=f64 {tile} {scheduler}"));
            for problem in [[150, 70, 400], [64, 32, 1000], [200, 131, 17]] {
                let [m, n, k] = problem;
                let problem = GemmProblem { m, n, k };
                seed += 1;
                // The workspace has partial sums and flags, not only a counter of tiles.
                divided += u32::from(gemm.workspace(&Call::of(problem), 7) > 1 << 16);
                let schedule = [Schedule::Default, Schedule::Latest, Schedule::Random][seed as usize % 3];
                let mut emulator = Emulator::new().with_multiprocessors(7).with_schedule(schedule, seed);
                let (product, program) = (product(&gemm, problem, seed), gemm.program().expect("legal"));
                let sums = product.sums(accumulators(&gemm), &|_| ());
                // Atomic additions may give other bits in another run.
                let runs = if scheduler.contains("atomic") { 1 } else { 2 };
                let outcome = product.run_times(&gemm, &program, &mut emulator, &sums, runs);
                let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", gemm.name()));
                assert_eq!(outcome.mismatch, None, "{}: {problem:?}", gemm.name());
            }
        }
    }
    assert!(divided >= seed as u32 / 2, "{divided} of {seed} products have divided tiles");
}
