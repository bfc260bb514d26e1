//! Programs that compute functions, run on the emulator.

use collective::functions::*;
use collective::{
    Bounded, Elementary, Exact, Fast, Fastest, Gradient, Level, Pointwise, Real, Scalars, evaluate_bounded,
};
use emulator::{Memory, Options, Program};
use ptx::abi::{Argument, Grid};
use ptx::{Builder, Entry, Function, Special, Target, Value};

/// Runs a kernel in which thread i writes `body` of its `N` inputs, row i of `x`. Returns one value per row.
pub(crate) fn run<const N: usize>(
    scalars: &[f32],
    x: &[[f32; N]],
    body: impl for<'f> Fn(Vec<Value<'f, f32>>, [Value<'f, f32>; N]) -> Value<'f, f32>,
) -> Vec<f32> {
    const NAMES: [&str; 4] = ["s0", "s1", "s2", "s3"];
    let entry = Entry {
        name: "probe".into(),
        target: Target::Sm90a,
        threads: 128,
        shared_bytes: 0,
        cluster: [1, 1, 1],
    };
    let function = Function::build(entry, |f: &Builder| {
        let (inputs, outputs) = (f.param::<u64>("x"), f.param::<u64>("y"));
        let scalars = NAMES[..scalars.len()].iter().map(|&name| f.param(name)).collect();
        let thread = f.special(Special::CtaX) * 128 + f.special(Special::ThreadX);
        let at = inputs + thread.mul_wide(4 * N as u32);
        let x = core::array::from_fn(|i| f.load_global::<f32>(at, 4 * i as i32));
        f.store_global(outputs + thread.mul_wide(4), 0, [body(scalars, x)]);
    });
    let program = Program::new(&function.verify().expect("a legal program"));
    let ctas = x.len().div_ceil(128);
    let mut bytes: Vec<u8> = x.iter().flatten().flat_map(|x| x.to_le_bytes()).collect();
    bytes.resize(ctas * 128 * 4 * N, 0);
    let mut memory = Memory::new();
    let (inputs, outputs) = (memory.upload(&bytes), memory.upload(&vec![0xAA; ctas * 512]));
    let mut arguments: Vec<Argument> = vec![inputs.into(), outputs.into()];
    arguments.extend(scalars.iter().map(|&scalar| Argument::from(scalar)));
    let grid = Grid { ctas: [ctas as u32, 1, 1] };
    program.launch(grid, &arguments, &memory, &Options::default()).expect("runs");
    let out = memory.read(outputs, ctas * 512).expect("inside");
    out.chunks_exact(4).take(x.len()).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// Numbers of every magnitude, the special ones, and those at which functions change.
pub(crate) fn numbers() -> Vec<f32> {
    let special = [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.0,
        -1.0,
        0.625,
        3.0,
        -3.0,
        4.0,
        6.0,
        88.0,
        -88.0,
        -100.0,
        150.0,
        f32::MAX,
        f32::MIN,
        f32::MIN_POSITIVE,
        1e-40,
        -1e-40,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let everywhere = (0..4096u32).map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B9)));
    let usual = (0..2048u32).map(|i| (i as f32 - 1024.0) / 97.0);
    special.into_iter().chain(everywhere).chain(usual).collect()
}

#[test]
fn the_emulator_computes_the_bits_of_the_host() {
    let x: Vec<_> = numbers().into_iter().map(|x| [x]).collect();
    for function in Elementary::ALL {
        for level in Level::ALL {
            let got = run(&[], &x, |_, [x]| x.elementary(function, level));
            for ([x], got) in x.iter().zip(got) {
                let want = x.elementary(function, level);
                let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
                assert!(
                    same,
                    "{function:?} {level:?} of {x:e}: {got:e} on the emulator, {want:e} on the host"
                );
            }
        }
    }
}

#[test]
fn the_operations_of_a_device_value_are_those_of_the_host() {
    fn each<R: Real>(a: R, b: R) -> [R; 11] {
        [
            a + b,
            a - b,
            a * b,
            a / b,
            -a,
            a.mul_add(b, a),
            a.abs().copysign(b),
            a.min(b),
            a.max(b),
            a.min_nan(b),
            a.max_nan(b).less(b, a, b),
        ]
    }
    let numbers = numbers();
    let x: Vec<[f32; 2]> = numbers.iter().zip(numbers.iter().rev()).map(|(&a, &b)| [a, b]).collect();
    for i in 0..11 {
        for (x, got) in x.iter().zip(run(&[], &x, |_, [a, b]| each(a, b)[i])) {
            let want = each(x[0], x[1])[i];
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "operation {i} of {x:?}: {got:e} on the emulator, {want:e} on the host");
        }
    }
}

/// Checks that each function's program stays within the bound of its formula.
fn keeps_its_bound<F: Pointwise<N>, const N: usize>(arguments: F::Arguments) {
    let numbers = numbers();
    let x: Vec<[f32; N]> = (0..numbers.len())
        .map(|i| core::array::from_fn(|input| numbers[(i + input * 1031) % numbers.len()]))
        .collect();
    let scalars: Vec<f32> = arguments.values().into_iter().map(|scalar| scalar as f32).collect();
    assert_eq!(F::ARGUMENTS.len(), scalars.len(), "{}", F::name());
    let got = run(&scalars, &x, |scalars, x| {
        let mut scalars = scalars.into_iter();
        F::apply(F::Arguments::gather(&mut || scalars.next().expect("one for each")), x)
    });
    let mut bounded = 0;
    for (x, got) in x.iter().zip(got) {
        let want = evaluate_bounded::<F, N>(arguments, x.map(|x| Bounded::exact(x.into())));
        assert!(want.admits(got), "{} of {x:?}: {got:e}, not {want:?}", F::name());
        bounded += usize::from(want.error < 1e-2 * want.value.abs() + 1e-2);
    }
    assert!(
        bounded > x.len() / 4,
        "{}: a bound that means something for {bounded} of {}",
        F::name(),
        x.len()
    );
}

#[test]
fn every_function_on_the_emulator() {
    macro_rules! levels {
        ($($name:ident($arguments:expr)),*) => {$(
            keeps_its_bound::<$name<Exact>, 1>($arguments);
            keeps_its_bound::<$name<Fast>, 1>($arguments);
            keeps_its_bound::<$name<Fastest>, 1>($arguments);
            keeps_its_bound::<Gradient<$name<Exact>>, 2>($arguments);
            keeps_its_bound::<Gradient<$name<Fast>>, 2>($arguments);
        )*};
    }
    levels!(Sigmoid(()), Tanh(()), Silu(()), Gelu(()), GeluTanh(()), Snake(1.5));
    keeps_its_bound::<Identity, 1>(());
    keeps_its_bound::<Absolute, 1>(());
    keeps_its_bound::<Negate, 1>(());
    keeps_its_bound::<Square, 1>(());
    keeps_its_bound::<Scale, 1>(0.3);
    keeps_its_bound::<Add, 2>(());
    keeps_its_bound::<Subtract, 2>(());
    keeps_its_bound::<Multiply, 2>(());
    keeps_its_bound::<Divide, 2>(());
    keeps_its_bound::<Maximum, 2>(());
    keeps_its_bound::<Minimum, 2>(());
    keeps_its_bound::<MultiplyAdd, 3>(());
    keeps_its_bound::<Relu, 1>(());
    keeps_its_bound::<LeakyRelu, 1>(0.01);
    keeps_its_bound::<ThresholdRelu, 1>(0.7);
    keeps_its_bound::<Clamp, 1>([-0.5, 2.0]);
    keeps_its_bound::<HardSwish, 1>(());
    keeps_its_bound::<Gradient<Relu>, 2>(());
    keeps_its_bound::<Gradient<LeakyRelu>, 2>(0.01);
    keeps_its_bound::<Gradient<Clamp>, 2>([-0.5, 2.0]);
    keeps_its_bound::<Gradient<HardSwish>, 2>(());
}
