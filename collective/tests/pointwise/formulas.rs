//! Tests the functions in double precision against their usual formulas and tabulated values.

use collective::functions::*;
use collective::{Exact, Fast, Fastest, Pointwise, evaluate};

/// Compares a function with its formula.
fn is<F: Pointwise>(arguments: F::Arguments, formula: impl Fn(f64) -> f64) {
    for i in -400..=400 {
        let x = f64::from(i) / 40.0;
        let (got, want) = (evaluate::<F, 1>(arguments, [x]), formula(x));
        assert!((got - want).abs() <= 1e-13 * want.abs().max(1.0), "{} of {x}: {got}, not {want}", F::name());
    }
    assert!(evaluate::<F, 1>(arguments, [f64::NAN]).is_nan(), "{} of NaN", F::name());
}

#[test]
fn activations_are_their_formulas() {
    is::<Identity>((), |x| x);
    is::<Relu>((), |x| if x > 0.0 { x } else { 0.0 });
    is::<LeakyRelu>(0.25, |x| if x > 0.0 { x } else { 0.25 * x });
    is::<ThresholdRelu>(1.5, |x| if x > 1.5 { x } else { 0.0 });
    is::<Clamp>([-1.0, 2.0], |x| x.clamp(-1.0, 2.0));
    is::<HardSwish>((), |x| {
        if x <= -3.0 {
            0.0
        } else if x >= 3.0 {
            x
        } else {
            x * (x + 3.0) / 6.0
        }
    });
    is::<Scale>(0.5, |x| x / 2.0);
    let logistic = |x: f64| 0.5 + 0.5 * (x / 2.0).tanh();
    is::<Sigmoid<Exact>>((), logistic);
    is::<Sigmoid<Fastest>>((), logistic);
    is::<Silu<Fast>>((), |x| x * logistic(x));
    is::<Tanh>((), |x| 1.0 - 2.0 / ((2.0 * x).exp() + 1.0));
    is::<GeluTanh>((), |x| {
        let inner = (2.0 / core::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
        0.5 * x * (1.0 + inner.tanh())
    });
    is::<Snake>(2.0, |x| x + (1.0 - (4.0 * x).cos()) / 4.0);
}

#[test]
fn gelu_is_x_times_the_normal_distribution() {
    // Cumulative probabilities of the standard normal distribution.
    for (x, probability) in [
        (0.0, 0.5),
        (1.0, 0.841_344_746_068_543),
        (-1.0, 0.158_655_253_931_457),
        (2.0, 0.977_249_868_051_821),
    ] {
        let got = evaluate::<Gelu, 1>((), [x]);
        assert!((got - x * probability).abs() < 1e-14, "gelu({x}) = {got}");
    }
}

#[test]
fn arithmetic_is_what_it_is_called() {
    for (a, b, c) in [(6.0, 3.0, 1.5), (-2.0, 8.0, 0.0), (0.0, -1.0, 4.0)] {
        let two = [
            (evaluate::<Add, 2>((), [a, b]), a + b),
            (evaluate::<Subtract, 2>((), [a, b]), a - b),
            (evaluate::<Multiply, 2>((), [a, b]), a * b),
            (evaluate::<Divide, 2>((), [a, b]), a / b),
            (evaluate::<Maximum, 2>((), [a, b]), if a > b { a } else { b }),
            (evaluate::<Minimum, 2>((), [a, b]), if a < b { a } else { b }),
            (evaluate::<MultiplyAdd, 3>((), [a, b, c]), a * b + c),
        ];
        for (i, (got, want)) in two.into_iter().enumerate() {
            assert_eq!(got, want, "function {i} of {a}, {b}, {c}");
        }
    }
    assert!(
        evaluate::<Maximum, 2>((), [f64::NAN, 1.0]).is_nan()
            && evaluate::<Minimum, 2>((), [1.0, f64::NAN]).is_nan()
    );
}
