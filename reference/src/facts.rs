//! What everything else here is built from, each against what its format's definition says: codes, poisons, thresholds,
//! exact sums, and the instruction's special results.

use ptx::WgmmaTypes;
use ptx::inst::{Fp8, WgmmaSum};

use crate::matrix::{HostMatrix, Order};
use crate::weights::{WeightFormat, Weights};
use crate::{Format, Sums, Wanted, wgmma};

/// The smallest magnitude that rounds to infinity, or saturates: halfway from the largest value to the next one of the same step.
#[test]
fn formats_overflow_where_they_round_up() {
    let two = |exponent: i32| f64::powi(2.0, exponent);
    for (format, wanted) in [
        (Format::F16, 65520.0),
        (Format::Bf16, (2.0 - two(-8)) * two(127)),
        (Format::F32, (2.0 - two(-24)) * two(127)),
        (Format::E5m2, 61440.0),
    ] {
        let (found, step) = (format.overflow(), format.unit_roundoff());
        assert!(
            found <= wanted && found >= wanted * (1.0 - step * step),
            "{format:?}: {found:e}, {wanted:e}"
        );
    }
}

/// No format has the same poison as the number 0; of formats of floats it is NaN.
#[test]
fn poisons_are_no_results() {
    let floats =
        [Format::F64, Format::F32, Format::Tf32, Format::Bf16, Format::F16, Format::E4m3, Format::E5m2];
    for format in floats {
        assert!(format.decode(format.poison()).is_nan(), "{format:?}");
    }
    for format in [Format::S8, Format::U8, Format::S32] {
        assert_ne!(format.decode(format.poison()), 0.0, "{format:?}");
    }
}

#[test]
fn codes_are_what_they_say() {
    let of = |code: WeightFormat, codes: &[u8]| codes.iter().map(|&of| code.decode(of)).collect::<Vec<_>>();
    let all: Vec<u8> = (0..16).collect();
    let positive = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    assert_eq!(of(WeightFormat::U4, &all), (0..16).map(f64::from).collect::<Vec<_>>());
    assert_eq!(of(WeightFormat::S4, &all), (0..8).chain(-8..0).map(f64::from).collect::<Vec<_>>());
    assert_eq!(of(WeightFormat::E2m1, &all), [positive, positive.map(|value| -value)].concat());
    assert_eq!(of(WeightFormat::U8, &[0, 127, 128, 255]), [0.0, 127.0, 128.0, 255.0]);
    assert_eq!(of(WeightFormat::S8, &[0, 127, 128, 255]), [0.0, 127.0, -128.0, -1.0]);
    let mut random = fastrand::Rng::with_seed(3);
    let weights = Weights::random(WeightFormat::S4, [3, 40], (16, true), Format::F16, &mut random);
    assert_eq!((weights.codes.len(), weights.extents), (120, [3, 40]));
    let extents = |of: &Option<HostMatrix>| of.as_ref().map(|of| [of.rows, of.columns]);
    assert_eq!([extents(&weights.scales), extents(&weights.zeros)], [Some([3, 3]); 2], "3 groups of 3 rows");
}

/// The error is a fraction of the bound.
#[test]
fn ratios_are_of_the_bound() {
    let wanted = Wanted { format: Format::F32, unrounded: true, value: 1.0, error: 0.5 };
    for (got, ratio) in [(1.0, 0.0), (1.25, 0.5), (0.5, 1.0), (9.0, 16.0)] {
        assert!((wanted.ratio(got) - ratio).abs() < 1e-6, "{got}: {}", wanted.ratio(got));
    }
}

/// Sums of f64 keep what single additions lose: `2^60 + 1 - 2^60` and products that no f64 holds.
#[test]
fn sums_of_doubles_are_exact() {
    let large = f64::powi(2.0, 60);
    let odd = 1.0 + f64::powi(2.0, -30);
    for (a, b, wanted) in [
        (vec![large, 1.0, -large], vec![1.0; 3], 1.0),
        (vec![1.0, large, -large], vec![1.0; 3], 1.0),
        (vec![odd, 1.0, 1.0], vec![odd, -1.0, -f64::powi(2.0, -29)], f64::powi(2.0, -60)),
    ] {
        let matrix = |values: &[f64], extents, order| {
            let at = |row: u32, column: u32| values[row.max(column) as usize];
            HostMatrix::from_fn(Format::F64, extents, order, 3, at)
        };
        let (of_a, of_b) = (matrix(&a, [1, 3], Order::RowMajor), matrix(&b, [3, 1], Order::ColumnMajor));
        let sums = Sums::of(&of_a, &of_b, &|_| ());
        assert_eq!(sums.sums[0].value, wanted, "{a:?} {b:?}");
    }
}

/// A product of exact numbers is exact, with either sign; infinities and NaN are what they are.
#[test]
fn instructions_multiply() {
    let bits = |format: Format, value: f64| format.round(value) as u32;
    for (types, format) in [
        (WgmmaTypes::Bf16F32, Format::Bf16),
        (WgmmaTypes::F16F32, Format::F16),
        (WgmmaTypes::F16F16, Format::F16),
        (WgmmaTypes::Fp8F32(Fp8::E5m2, Fp8::E5m2), Format::E5m2),
        (WgmmaTypes::Tf32F32, Format::Tf32),
    ] {
        let d = if types.d() == WgmmaSum::F16 { Format::F16 } else { Format::F32 };
        // Numbers are saturated to this one.
        let has_infinity = format != Format::E5m2;
        let inf = f64::INFINITY;
        for (pairs, old, wanted) in [
            (&[(3.0, 5.0), (-2.0, 4.0)][..], None, 7.0),
            (&[(3.0, 5.0), (-2.0, 4.0)], Some(10.0), 17.0),
            (&[(0.5, -0.25)], Some(0.0), -0.125),
            (&[(inf, 2.0), (1.0, 1.0)], None, inf),
            (&[(inf, -2.0)], Some(5.0), -inf),
            (&[(inf, 0.0)], None, f64::NAN),
            (&[(1.0, 1.0)], Some(inf), inf),
        ] {
            if !has_infinity && pairs.iter().any(|(a, _)| a.is_infinite()) {
                continue;
            }
            for negate in [false, true] {
                let of: Vec<_> = pairs.iter().map(|&(a, b)| (bits(format, a), bits(format, b))).collect();
                let before = old.map(|old| bits(d, old));
                let found = d.decode(wgmma::sum(types, &of, negate, before).into());
                let old = old.unwrap_or(0.0);
                let wanted = if negate { 2.0 * old - wanted } else { wanted };
                let wanted = if negate && old.is_infinite() { old } else { wanted };
                let equal = found == wanted || found.is_nan() && wanted.is_nan();
                assert!(equal, "{types:?} {pairs:?} + {old}, negated {negate}: {found}, {wanted} was wanted");
            }
        }
    }
}
