//! NVIDIA's assembler compiles a program for every function of an epilogue.

mod assembler;

use falchion::collective::functions::*;
use falchion::collective::random::philox;
use falchion::collective::{Exact, Fast, Fastest, Gradient, Pointwise, Scalars};
use falchion::ptx::{Builder, Entry, Function, Special, Target, module_text};

/// Assembles a kernel in which each thread writes `body` of its floats.
fn accepted(name: &str, body: impl FnOnce(&Builder)) {
    let entry =
        Entry { name: name.into(), target: Target::Sm90a, threads: 128, shared_bytes: 0, cluster: [1, 1, 1] };
    let function = Function::build(entry, body).verify().unwrap_or_else(|error| panic!("{error}"));
    let report = assembler::assemble(name, &module_text(&function));
    assert!(report.accepted, "{name}: {}", report.log);
    assert!(report.log.contains("0 bytes spill stores"), "{name}: {}", report.log);
}

fn function<F: Pointwise<N>, const N: usize>() {
    const NAMES: [&str; 2] = ["first", "second"];
    accepted(&F::name(), |f| {
        let at = f.param::<u64>("data") + f.special(Special::ThreadX).mul_wide(4 * N as u32);
        let mut names = NAMES.into_iter();
        let arguments =
            F::Arguments::gather(&mut || f.param::<f32>(names.next().expect("two arguments at most")));
        let x = core::array::from_fn(|i| f.load_global::<f32>(at, 4 * i as i32));
        f.store_global(at, 0, [F::apply(arguments, x)]);
    });
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn every_function_is_accepted() {
    macro_rules! levels {
        ($($name:ident),*) => {$(
            function::<$name<Exact>, 1>();
            function::<$name<Fast>, 1>();
            function::<$name<Fastest>, 1>();
            function::<Gradient<$name<Exact>>, 2>();
            function::<Gradient<$name<Fast>>, 2>();
            function::<Gradient<$name<Fastest>>, 2>();
        )*};
    }
    macro_rules! plain {
        ($($name:ident),*) => {$(
            function::<$name, 1>();
            function::<Gradient<$name>, 2>();
        )*};
    }
    levels!(Sigmoid, Tanh, Silu, Gelu, GeluTanh, Snake);
    plain!(Identity, Absolute, Negate, Square, Scale, Relu, LeakyRelu, ThresholdRelu, Clamp, HardSwish);
    function::<Add, 2>();
    function::<Subtract, 2>();
    function::<Multiply, 2>();
    function::<Divide, 2>();
    function::<Maximum, 2>();
    function::<Minimum, 2>();
    function::<MultiplyAdd, 3>();
    function::<MultiplyAddGelu<Exact>, 3>();
    function::<MultiplyAddGelu<Fastest>, 3>();
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn the_generator_is_accepted() {
    accepted("philox", |f| {
        let at = f.param::<u64>("data") + f.special(Special::ThreadX).mul_wide(16);
        let counter = f.load_global_vector::<u32, 4>(at, 0);
        f.store_global(at, 0, philox(counter, [f.param("key"), f.constant(1)]));
    });
}
