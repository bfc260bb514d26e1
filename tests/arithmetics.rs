//! Formulas whose D is of integers or of `f64`, compared with independent sums: integers bit for bit, with all that
//! overflows; 8-bit integers rounded and saturated; doubles to a few units in the last place.

use falchion::collective::tree::Shape;
use falchion::collective::{Formula, FormulaError, Input, Pointwise, Real};
use falchion::kernel::{Call, Emulator, Engine, GemmProblem, KernelSpec, MatrixRef};

const PROBLEM: GemmProblem = GemmProblem { m: 70, n: 40, k: 96 };

/// Names of inputs with their numbers: a scalar, or the bytes of a vector or of an M x N matrix.
type Given<'a> = (&'static str, Result<f64, &'a [u8]>);

/// D's bytes, of A (M x K) and B (N x K), for a kernel of a formula.
fn run(spec: &str, [a, b]: [&[u8]; 2], element: u32, given: &[Given<'_>]) -> Vec<u8> {
    let GemmProblem { m, n, k } = PROBLEM;
    let spec: KernelSpec = spec.parse().unwrap_or_else(|error| panic!("{spec}: {error}"));
    let gemm = spec.kernel().unwrap_or_else(|error| panic!("{error}"));
    let mut engine = Emulator::new().with_multiprocessors(3);
    let mut upload = |bytes: &[u8]| engine.upload(bytes).expect("memory").address;
    let [a, b] = [a, b].map(|bytes| MatrixRef::new(upload(bytes), k.into()));
    let inputs: Vec<(&str, Input)> = given
        .iter()
        .map(|(name, input)| {
            let input = match input {
                Ok(number) => Input::Scalar(*number),
                Err(bytes) if bytes.len() >= (m * n) as usize => {
                    Input::Matrix(MatrixRef::new(upload(bytes), n.into()))
                }
                Err(bytes) => Input::Address(upload(bytes)),
            };
            (*name, input)
        })
        .collect();
    let buffer = engine.upload(&vec![0x5A; (m * n * element) as usize]).expect("memory");
    let operand = gemm.plan().mainloop.operands[0].format;
    let arguments = spec.fusion().expect("a formula").bind(operand, Shape { m, n }, &inputs);
    let arguments = arguments.unwrap_or_else(|error| panic!("{error}"));
    let call =
        Call { a, b, d: MatrixRef::new(buffer.address, n.into()), ..Call::of(PROBLEM) }.with(arguments);
    let program = gemm.program().expect("legal");
    let launch = gemm
        .launch(&call, engine.resident_clusters(&program).expect("clusters"))
        .expect("legal")
        .expect("work");
    engine.launch(&program, launch.grid, &launch.arguments).unwrap_or_else(|error| panic!("{error}"));
    engine.read(buffer).expect("memory")
}

/// All (row, column) of D.
fn places() -> impl Iterator<Item = (usize, usize)> {
    let (m, n) = (PROBLEM.m as usize, PROBLEM.n as usize);
    (0..m).flat_map(move |row| (0..n).map(move |column| (row, column)))
}

fn bytes(count: u32, random: &mut fastrand::Rng) -> Vec<u8> {
    (0..count).map(|_| random.u8(..)).collect()
}

/// The accumulators of signed bytes.
fn sums(a: &[u8], b: &[u8]) -> Vec<i32> {
    let k = PROBLEM.k as usize;
    let sum = |(row, column): (usize, usize)| {
        let of = |all: &[u8], line: usize, i: usize| i32::from(all[line * k + i].cast_signed());
        (0..k).map(|i| of(a, row, i) * of(b, column, i)).sum()
    };
    places().map(sum).collect()
}

#[test]
fn integers_wrap_around() {
    let GemmProblem { m, n, k } = PROBLEM;
    let mut random = fastrand::Rng::with_seed(1);
    let [a, b, x] = [m * k, n * k, m * n].map(|count| bytes(count, &mut random));
    let bias: Vec<i32> = (0..n).map(|_| random.i32(..)).collect();
    let of_bias: Vec<u8> = bias.iter().flat_map(|x| x.to_le_bytes()).collect();
    let want: Vec<u8> = places()
        .zip(sums(&a, &b))
        .enumerate()
        .flat_map(|(at, ((_, column), sum))| {
            let relu = sum.wrapping_mul(3).wrapping_add(bias[column]).max(0);
            let rest = sum.wrapping_mul(sum).wrapping_sub(i32::from(x[at].cast_signed()).wrapping_mul(-5));
            relu.wrapping_sub(rest).to_le_bytes()
        })
        .collect();
    let formula = "s32(relu(3*acc + bias[n]) - (acc*acc - factor*x[m,n]:s8))";
    for words in ["tile=64x32x128 store=direct", "tile=128x96x128 roles=pingpong", "tile=128x8x128 swap=yes"]
    {
        let spec = format!("dtype=s8 {words} epilogue=\"{formula}\"");
        let given = [("bias", Err(&of_bias[..])), ("factor", Ok(-5.0)), ("x", Err(&x[..]))];
        assert!(run(&spec, [&a, &b], 4, &given) == want, "{spec}");
    }
}

#[test]
fn bytes_are_rounded_and_saturated() {
    let GemmProblem { m, n, k } = PROBLEM;
    let mut random = fastrand::Rng::with_seed(2);
    let [a, b] = [m * k, n * k].map(|count| bytes(count, &mut random));
    let bias: Vec<f32> = (0..n).map(|_| random.i32(-4000..4000) as f32 / 64.0).collect();
    let of_bias: Vec<u8> = bias.iter().flat_map(|x| x.to_le_bytes()).collect();
    // Every number here has less than 24 bits.
    let value = |((_, column), sum): ((usize, usize), i32)| {
        (f64::from(sum) / 512.0 + f64::from(bias[column])).round_ties_even()
    };
    let values: Vec<f64> = places().zip(sums(&a, &b)).map(value).collect();
    let ends = |low: f64, high: f64| values.iter().filter(|&&x| x < low || x > high).count();
    assert!(ends(-128.0, 127.0) > 100 && ends(-128.0, 127.0) < values.len() - 100);
    let signed: Vec<u8> = values.iter().map(|&x| (x as i8).cast_unsigned()).collect();
    let unsigned: Vec<u8> = values.iter().map(|&x| x as u8).collect();
    for (format, want) in [("s8", signed), ("u8", unsigned)] {
        for words in ["tile=64x32x128 store=direct", "tile=128x96x128", "tile=128x16x128 swap=yes"] {
            // Tensor copies need rows of 16 bytes.
            let words =
                if words.contains("direct") { words.to_owned() } else { format!("{words} store=direct") };
            let spec = format!("dtype=s8 {words} epilogue=\"{format}(scale*acc + bias[n]:f32)\"");
            let given = [("scale", Ok(1.0 / 512.0)), ("bias", Err(&of_bias[..]))];
            assert!(run(&spec, [&a, &b], 1, &given) == want, "{spec}");
        }
    }
}

/// `x / (1 + |x|)`.
struct Softsign;

impl Pointwise for Softsign {
    type Arguments = ();
    fn name() -> String {
        "softsign_of_a_test".to_owned()
    }
    fn apply<R: Real>((): (), [x]: [R; 1]) -> R {
        x / x.abs().plus(1.0)
    }
}

/// With a function of one's own, and a factor that `f32` has not.
#[test]
fn doubles_have_their_digits() -> Result<(), FormulaError> {
    let GemmProblem { m, n, k } = PROBLEM;
    Formula::define::<Softsign, 1>()?;
    let mut random = fastrand::Rng::with_seed(3);
    let mut numbers = |count: u32| (0..count).map(|_| random.f64() - 0.5).collect::<Vec<f64>>();
    let [a, b, x] = [m * k, n * k, m * n].map(&mut numbers);
    let in_memory = |all: &[f64]| all.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let k = k as usize;
    for words in ["tile=64x64x8 stages=4", "tile=128x64x16 consumers=2 stages=3"] {
        let spec = format!(
            "dtype=f64 {words} epilogue=\"softsign_of_a_test(acc) + 0.1*x[m,n] - clamp(acc, -0.25, 0.5)\""
        );
        let of_x = in_memory(&x);
        let got = run(&spec, [&in_memory(&a), &in_memory(&b)], 8, &[("x", Err(&of_x[..]))]);
        for (at, (row, column)) in places().enumerate() {
            let sum: f64 = (0..k).map(|i| a[row * k + i] * b[column * k + i]).sum();
            let want = sum / (1.0 + sum.abs()) + 0.1 * x[at] - sum.clamp(-0.25, 0.5);
            let got = f64::from_le_bytes(got[at * 8..][..8].try_into().expect("8 bytes"));
            assert!((got - want).abs() < 1e-14 * (1.0 + want.abs()), "{spec}: {got} {want}");
        }
    }
    Ok(())
}
