//! One GEMM on an engine, compared with the reference in f64.

use collective::{Epilogue, LinearArguments, Mainloop, Producer};
use cute_rs::atom::Major;
use half::bf16;
use kernel::{Call, Engine, Gemm, GemmConfig, GemmProblem, MatrixRef};
use reference::{Expected, Format, HostMatrix, Order, Sums};

/// Pseudo-random values in -1..1, the same for the same seed. Padding is NaN.
fn random(extents: [u32; 2], order: Order, ld: u32, seed: &mut u32) -> HostMatrix {
    HostMatrix::from_fn(Format::Bf16, extents, order, ld, |_, _| {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f64::from(*seed >> 8) / 8_388_608.0 - 1.0
    })
}

/// Runs `D = 1.5 * A * B - 0.5 * C` and `D = 1.5 * A * B`, without `cargo xtask test --long` one of them, as the letters of the kernel's
/// name and M say; and compares every element and the memory around D.
pub(crate) fn check<C: GemmConfig>(engine: &mut dyn Engine, problem: GemmProblem)
where
    C::Epilogue: Epilogue<Arguments = LinearArguments>,
{
    let turn = Gemm::<C>::name().bytes().fold((problem.m / 2) as u8, |sum, byte| sum ^ byte) % 2;
    for (number, beta) in [-0.5, 0.0].into_iter().enumerate() {
        if number == usize::from(turn) || std::env::var_os("FALCHION_LONG").is_some() {
            check_with::<C>(engine, problem, beta);
        }
    }
}

fn check_with<C: GemmConfig>(engine: &mut dyn Engine, problem: GemmProblem, beta: f64)
where
    C::Epilogue: Epilogue<Arguments = LinearArguments>,
{
    let name = Gemm::<C>::name();
    assert_eq!(<C::Mainloop as Mainloop>::SPEC.operands[0].format.name(), "bf16", "the test speaks bf16");
    let GemmProblem { m, n, k } = problem;
    let [a_major, b_major] = Gemm::<C>::PLAN.majors();
    let mut seed = m ^ n << 8 ^ k << 16;
    let ld = |contiguous: u32| match Gemm::<C>::PLAN.mainloop.producer {
        Producer::Thread => contiguous.next_multiple_of(8),
        // An odd number: rows are aligned only to an element.
        Producer::Warpgroup => contiguous | 1,
    };
    let a = match a_major {
        Major::K => random([m, k], Order::RowMajor, ld(k), &mut seed),
        Major::Mn => random([m, k], Order::ColumnMajor, ld(m), &mut seed),
    };
    let b = match b_major {
        Major::K => random([k, n], Order::ColumnMajor, ld(k), &mut seed),
        Major::Mn => random([k, n], Order::RowMajor, ld(n), &mut seed),
    };
    let c = random([m, n], Order::RowMajor, n, &mut seed);
    let poison = bf16::from_bits(0x7fff);
    let (guard, d_ld) = (64, n.next_multiple_of(8));
    let before = poison.to_le_bytes().repeat((m * d_ld) as usize + guard);
    let mut upload = |bytes: &[u8], ld: u32| {
        let buffer = engine.upload(bytes).expect("memory");
        (buffer, MatrixRef::new(buffer.address, ld.into()))
    };
    let (_, a_ref) = upload(&a.bytes(), a.ld);
    let (_, b_ref) = upload(&b.bytes(), b.ld);
    let (_, c_ref) = upload(&c.bytes(), c.ld);
    let (d, d_ref) = upload(&before, d_ld);
    let program = Gemm::<C>::program().expect("a legal program");
    let resident = engine.resident_clusters(&program).expect("a program that loads");
    let call = Call { a: a_ref, b: b_ref, d: d_ref, ..Call::of(problem) };
    let workspace = engine.workspace(Gemm::<C>::workspace(&call, resident)).expect("memory");
    let linear = LinearArguments { alpha: 1.5, beta, c: Some(c_ref) };
    let call = Call { workspace, ..call.with(linear) };
    let launch = Gemm::<C>::launch(&call, resident).expect("a legal call").expect("something to do");
    // A workspace must be ready for a second launch.
    for _ in 0..if workspace.is_some() { 2 } else { 1 } {
        engine
            .launch(&program, launch.grid, &launch.arguments)
            .unwrap_or_else(|error| panic!("{name} at {m} x {n} x {k}: {error}"));
    }

    let result = engine.read(d).expect("no fault");
    let result: Vec<_> = result.chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]])).collect();
    let sums = Sums::of(&a, &b, &|_| ());
    assert!(sums.complete, "{m} x {n} x {k} are few enough to compare all of D");
    let places = (0..m).flat_map(|i| (0..n).map(move |j| (i, j)));
    for ((i, j), &sum) in places.zip(&sums.sums) {
        let expected = Expected::new(Format::Bf16, k, [1.5, beta], sum, Some(c.get(i, j)));
        let got = result[(i * d_ld + j) as usize].to_f64();
        assert!(
            expected.admits(Format::Bf16, got),
            "{name} at {m} x {n} x {k}: D({i},{j}) is {got}, not {} within {}",
            expected.value,
            expected.bound
        );
    }
    for (i, value) in result.iter().enumerate() {
        let outside = i / d_ld as usize >= m as usize || i % d_ld as usize >= n as usize;
        assert!(!outside || value.to_bits() == poison.to_bits(), "{name} at {m} x {n} x {k}: wrote beside D");
    }
}
