//! Tests the elementary functions in single precision against double precision, within the bounds they state.

use collective::{Elementary, Level, Real};

/// Every `step`-th bit pattern of a float, and the neighbours of the points where the algorithms change.
fn samples(step: usize) -> impl Iterator<Item = f32> {
    let edges = [
        0.0, 0.5, 0.625, 1.0, 2.0, 3.0, 4.0, 9.0, 10.0, 87.5, 88.7, 104.0, 126.0, 128.0, 149.0, 150.0, 1e-38,
    ];
    let around = |edge: f32| {
        let bits = edge.to_bits();
        (bits.saturating_sub(200)..=bits + 200).map(f32::from_bits).flat_map(|x| [x, -x])
    };
    (0..=u32::MAX).step_by(step).map(f32::from_bits).chain(edges.into_iter().flat_map(around))
}

/// The largest fraction of its bound that a function uses, over the samples with a finite bound.
fn worst(function: Elementary, level: Level, step: usize) -> (f64, f32) {
    let mut worst = (0.0, 0.0);
    for x in samples(step).filter(|x| x.is_finite()) {
        let truth = f64::from(x).elementary(function, Level::Exact);
        let got = x.elementary(function, level);
        if truth.is_nan() || f64::from(truth as f32).is_infinite() {
            // Infinite and NaN where the rounded true value is.
            assert!(
                truth.is_nan() == got.is_nan(),
                "{function:?} {level:?} of {x:e}: {got:e}, not {truth:e}"
            );
            assert!(
                got.is_nan() || f64::from(got).abs() >= f64::from(f32::MAX),
                "{function:?} {level:?} of {x:e}: {got:e}, not {truth:e}"
            );
            continue;
        }
        let off = (f64::from(got) - truth).abs();
        let used = off / function.error(level, x.into());
        if used.is_nan() || used > worst.0 {
            worst = (used, x);
        }
    }
    worst
}

#[test]
fn every_function_keeps_its_bound() {
    for function in Elementary::ALL {
        for level in Level::ALL {
            let (used, at) = worst(function, level, 2003);
            assert!(used <= 1.0, "{function:?} {level:?} of {at:e}: {used} of the bound");
        }
    }
}
