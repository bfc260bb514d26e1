//! Tests derivatives against finite differences of the functions.

use collective::functions::*;
use collective::{Fastest, Gradient, Pointwise, evaluate};

/// Checks that the derivative is the slope of a short chord, if the chord does not cross a corner.
fn is_the_slope<F: Pointwise>(arguments: F::Arguments, corners: &[f64]) {
    const STEP: f64 = 1e-5;
    for i in -500..=500 {
        let x = f64::from(i) / 97.0;
        if corners.iter().any(|corner| (x - corner).abs() < 2.0 * STEP) {
            continue;
        }
        let f = |x: f64| evaluate::<F, 1>(arguments, [x]);
        let chord = (f(x + STEP) - f(x - STEP)) / (2.0 * STEP);
        let got = evaluate::<Gradient<F>, 2>(arguments, [-2.0, x]);
        assert!((got + 2.0 * chord).abs() < 1e-7, "{} at {x}: {got}, not {}", F::name(), -2.0 * chord);
    }
}

#[test]
fn every_gradient_is_the_slope_of_its_function() {
    is_the_slope::<Relu>((), &[0.0]);
    is_the_slope::<LeakyRelu>(0.1, &[0.0]);
    is_the_slope::<Clamp>([-1.0, 2.0], &[-1.0, 2.0]);
    is_the_slope::<HardSwish>((), &[-3.0, 3.0]);
    is_the_slope::<Sigmoid>((), &[]);
    is_the_slope::<Tanh<Fastest>>((), &[]);
    is_the_slope::<Silu>((), &[]);
    is_the_slope::<Gelu>((), &[]);
    is_the_slope::<GeluTanh>((), &[]);
    is_the_slope::<Snake>(1.3, &[]);
    is_the_slope::<Square>((), &[]);
    is_the_slope::<Absolute>((), &[0.0]);
    is_the_slope::<Scale>(0.3, &[]);
}

#[test]
fn the_gradient_of_relu_is_zero_at_zero() {
    assert_eq!(evaluate::<Gradient<Relu>, 2>((), [3.0, 0.0]), 0.0);
}
