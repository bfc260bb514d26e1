//! One GEMM on an engine against plain f64 loops.

use collective::{Element, Epilogue, LinearArguments, Mainloop, Producer};
use cute_rs::atom::Major;
use half::bf16;
use kernel::{Call, Engine, Gemm, GemmConfig, GemmProblem, MatrixRef};

/// Pseudo-random bf16 values in -1..1, the same for the same seed.
fn values(count: u32, seed: &mut u32) -> Vec<bf16> {
    let mut next = || {
        *seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bf16::from_f32((*seed >> 8) as f32 / 8_388_608.0 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

fn bytes(values: &[bf16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// Runs `D = 1.5 * A * B - 0.5 * C` and `D = 1.5 * A * B`, and compares every element and the memory around D.
pub(crate) fn check<C: GemmConfig>(engine: &mut dyn Engine, problem: GemmProblem)
where
    C::Epilogue: Epilogue<Arguments = LinearArguments>,
{
    check_with::<C>(engine, problem, -0.5);
    check_with::<C>(engine, problem, 0.0);
}

fn check_with<C: GemmConfig>(engine: &mut dyn Engine, problem: GemmProblem, beta: f32)
where
    C::Epilogue: Epilogue<Arguments = LinearArguments>,
{
    let name = Gemm::<C>::name();
    assert_eq!(<<C::Mainloop as Mainloop>::A as Element>::NAME, "bf16", "the test speaks bf16");
    let GemmProblem { m, n, k } = problem;
    let [a_major, b_major] = Gemm::<C>::PLAN.majors();
    let mut seed = m ^ n << 8 ^ k << 16;
    // Element (i, kk) lies at i * row + kk * column.
    let mut operand = |major, mn: u32| {
        let contiguous = if major == Major::K { k } else { mn };
        let pitch = match Gemm::<C>::PLAN.mainloop.producer {
            Producer::Thread => contiguous.next_multiple_of(8),
            // Odd: rows that begin at multiples of nothing but an element.
            Producer::Warpgroup => contiguous | 1,
        };
        let (row, column, lines) = if major == Major::K { (pitch, 1, mn) } else { (1, pitch, k) };
        (values(pitch * lines, &mut seed), row, column, pitch)
    };
    let (a, a_row, a_column, a_pitch) = operand(a_major, m);
    let (b, b_row, b_column, b_pitch) = operand(b_major, n);
    let c = values(m * n, &mut seed);
    let poison = bf16::from_bits(0x7fff);
    let (guard, d_pitch) = (64, n.next_multiple_of(8));
    let mut upload = |values: &[bf16], pitch: u32| {
        let buffer = engine.upload(&bytes(values)).expect("memory");
        (buffer, MatrixRef { address: buffer.address, pitch: pitch.into() })
    };
    let (_, a_ref) = upload(&a, a_pitch);
    let (_, b_ref) = upload(&b, b_pitch);
    let (_, c_ref) = upload(&c, n);
    let (d, d_ref) = upload(&vec![poison; (m * d_pitch) as usize + guard], d_pitch);
    let program = Gemm::<C>::program().expect("a legal program");
    let slots = engine.slots(&program).expect("a program that loads");
    let workspace = engine.workspace(Gemm::<C>::workspace(problem, slots)).expect("memory");
    let call = Call { problem, a: a_ref, b: b_ref, c: Some(c_ref), d: d_ref, alpha: 1.5, beta, workspace };
    let launch = Gemm::<C>::launch(&call, slots).expect("a legal call").expect("something to do");
    // A workspace has to be ready for another launch.
    for _ in 0..if workspace.is_some() { 2 } else { 1 } {
        engine
            .launch(&program, launch.grid, &launch.arguments)
            .unwrap_or_else(|error| panic!("{name} at {m} x {n} x {k}: {error}"));
    }

    let result = engine.read(d).expect("no fault");
    let result: Vec<_> = result.chunks_exact(2).map(|pair| bf16::from_le_bytes([pair[0], pair[1]])).collect();
    for i in 0..m {
        for j in 0..n {
            let products = (0..k).map(|kk| {
                a[(i * a_row + kk * a_column) as usize].to_f64()
                    * b[(j * b_row + kk * b_column) as usize].to_f64()
            });
            let (sum, magnitude) = products.fold((0.0, 0.0), |(sum, all), p| (sum + p, all + p.abs()));
            let c = c[(i * n + j) as usize].to_f64();
            let exact = 1.5 * sum + f64::from(beta) * c;
            let roundoff = f64::from(k + 18) * f64::powi(2.0, -24) * (1.5 * magnitude + 0.5 * c.abs());
            let bound = roundoff + bf16::UNIT_ROUNDOFF * (exact.abs() + roundoff);
            let got = result[(i * d_pitch + j) as usize].to_f64();
            let error = (got - exact).abs();
            assert!(
                error <= bound,
                "{name} at {m} x {n} x {k}: D({i},{j}) is {got}, not {exact} within {bound}"
            );
        }
    }
    for (i, value) in result.iter().enumerate() {
        let outside = i / d_pitch as usize >= m as usize || i % d_pitch as usize >= n as usize;
        assert!(!outside || value.to_bits() == poison.to_bits(), "{name} at {m} x {n} x {k}: wrote beside D");
    }
}
