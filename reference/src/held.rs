//! Each bound of a product's errors is held from both sides: a kernel that is right comes to a third of it, and not
//! beyond. The kernels here lose all that the definition lets them lose: what is added is half of the last place, again
//! and again.

use half::f16;
use ptx::WgmmaTypes;
use ptx::inst::{Fp8, WgmmaSum};

use crate::bound::{Expected, U};
use crate::oracle::DotProduct;
use crate::{AccumulatorPrecision, Format, HostMatrix, Order, Scales, Sums, Wanted, scales, wgmma};

/// An error is within its bound, and at least two thirds of it.
#[track_caller]
pub(crate) fn held(what: &str, error: f64, bound: f64) {
    between(what, 2.0 / 3.0, error, bound);
}

/// An error is within its bound, and at least a third of it: where two errors cannot be had at the same time, or the bound
/// is for any order of additions.
#[track_caller]
pub(crate) fn held_loosely(what: &str, error: f64, bound: f64) {
    between(what, 1.0 / 3.0, error, bound);
}

#[track_caller]
fn between(what: &str, least: f64, error: f64, bound: f64) {
    let ratio = error / bound;
    assert!((least..=1.0).contains(&ratio), "{what}: an error of {error:e} is {ratio:.3} of {bound:e}");
}

/// The largest ratio of many, with its error and its bound.
pub(crate) fn largest(all: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    all.fold((0.0, 1.0), |most, one| if one.0 / one.1 > most.0 / most.1 { one } else { most })
}

/// A row of A and a column of B: the product of their first elements is 2, and every `every`-th other is twice that of
/// `pair`; the rest are 0.
fn matrices(format: Format, k: u32, pair: [f64; 2], every: u32) -> [HostMatrix; 2] {
    let of = |at: u32, element: f64| match at {
        0 => 1.0,
        at if at.is_multiple_of(every) => element,
        _ => 0.0,
    };
    [
        HostMatrix::from_fn(format, [1, k], Order::RowMajor, k, |_, at| 2.0 * of(at, pair[0])),
        HostMatrix::from_fn(format, [k, 1], Order::ColumnMajor, k, |at, _| of(at, pair[1])),
    ]
}

/// The sum in the hardware's instructions.
fn multiplied(types: WgmmaTypes, a: &HostMatrix, b: &HostMatrix) -> f64 {
    let pairs: Vec<_> = a.bits.iter().zip(&b.bits).map(|(&a, &b)| (a as u32, b as u32)).collect();
    let step = |old, pairs: &[_]| Some(wgmma::sum(types, pairs, false, old));
    let bits = pairs.chunks(types.k() as usize).fold(None, step).unwrap_or(0);
    match types.d() {
        WgmmaSum::F16 => f16::from_bits(bits as u16).to_f64(),
        WgmmaSum::F32 | WgmmaSum::S32 => f32::from_bits(bits).into(),
    }
}

/// The sum, product by product.
fn one_by_one(a: &HostMatrix, b: &HostMatrix) -> f64 {
    let products = (0..a.columns).map(|at| (a.get(0, at) * b.get(at, 0)) as f32);
    products.fold(0.0f32, |sum, product| sum + product).into()
}

#[test]
fn sums() {
    use WgmmaTypes::{Bf16F32, F16F16, F16F32, Fp8F16, Fp8F32, Tf32F32};
    let two = |exponent: i32| f64::powi(2.0, exponent);
    let (e4m3, e5m2) = (Fp8::E4m3, Fp8::E5m2);
    // Products that the accumulator does not notice: half of its last place, or less than what terms are cut off at.
    let tie = [two(-12); 2];
    let below = |exponent: i32| [1.75 * two(exponent / 2 - 1), two(exponent - exponent / 2)];
    for (why, format, k, (pair, every), by) in [
        ("one by one", Format::Bf16, 1000, (tie, 1), None),
        ("of f16, one by one", Format::F16, 1000, (tie, 1), None),
        ("of tf32, one by one", Format::Tf32, 1000, (tie, 1), None),
        ("bf16", Format::Bf16, 4096, (below(-25), 1), Some(Bf16F32)),
        ("f16", Format::F16, 4096, (below(-25), 1), Some(F16F32)),
        ("tf32", Format::Tf32, 4096, (below(-25), 1), Some(Tf32F32)),
        ("e4m3", Format::E4m3, 128, (below(-13), 1), Some(Fp8F32(e4m3, e4m3))),
        ("e4m3, long", Format::E4m3, 1024, (below(-13), 1), Some(Fp8F32(e4m3, e4m3))),
        ("e5m2", Format::E5m2, 128, (below(-13), 1), Some(Fp8F32(e5m2, e5m2))),
        ("half of e4m3 are zeros", Format::E4m3, 256, (below(-13), 2), Some(Fp8F32(e4m3, e4m3))),
        ("f16 in f16", Format::F16, 1024, ([two(-5), two(-6)], 16), Some(F16F16)),
        ("e4m3 in f16", Format::E4m3, 128, (below(-13), 1), Some(Fp8F16(e4m3, e4m3))),
    ] {
        let [a, b] = matrices(format, k, pair, every);
        let loose = every == 2 || matches!(by, Some(Bf16F32 | F16F32 | Tf32F32));
        let half = by.is_some_and(|types: WgmmaTypes| types.d() == WgmmaSum::F16);
        let accumulators = if half { AccumulatorPrecision::Half } else { AccumulatorPrecision::Single };
        let sum = Sums::in_accumulators(accumulators, &a, &b, &|_| ()).sums[0];
        let got = by.map_or_else(|| one_by_one(&a, &b), |types| multiplied(types, &a, &b));
        let check = if loose { held_loosely } else { held };
        check(why, (sum.value - got).abs(), sum.error);
        check(&format!("{why}, in f32"), (sum.value - got).abs(), sum.in_single(k).1);
    }
    let [a, b] = matrices(Format::F64, 1000, [two(-26), two(-27)], 1);
    let sum = Sums::of(&a, &b, &|_| ()).sums[0];
    let got = (0..1000).fold(0.0f64, |sum, at| a.get(0, at).mul_add(b.get(at, 0), sum));
    held("f64", (sum.value - got).abs(), sum.error);
    // An integer between two f32.
    let sum = DotProduct::of_integers(f64::from((1 << 24) + 1));
    held("integers", (f64::from(sum.value as f32) - sum.value).abs(), sum.error);
    // Products that are less than the smallest f32.
    let k = 64;
    let sum = DotProduct::single(k, f64::from(k) * two(-75) * two(-75), f64::from(k) * two(-75) * two(-75));
    held_loosely("subnormal products", sum.value, sum.in_single(k).1);
}

#[test]
fn scaled_sums() {
    // A block of 128 that is 1, and others that are lost when they are added to it.
    let count = 1000;
    let (a, b) = (vec![1.0; 128 * count], vec![1.0; 128 * count]);
    let of = |block: u32| if block == 0 { 1.0 } else { U };
    let sum = scales::sum([&a, &b], of, |_, _| DotProduct { error: 0.0, ..DotProduct::single(0, 1.0, 1.0) });
    held("blocks", sum.value - 1.0, sum.error);
    // Blocks whose sums lose all but their first product.
    let k = 512;
    let one = |at: u32, element: f64| if at.is_multiple_of(128) { 1.0 } else { element };
    let a = HostMatrix::from_fn(Format::E4m3, [1, k], Order::RowMajor, k, |_, at| one(at, 1.75 * 0.0078125));
    let b = HostMatrix::from_fn(Format::E4m3, [k, 1], Order::ColumnMajor, k, |at, _| one(at, 0.0078125));
    let scale = |mn| {
        let [lines, blocks] = Scales::extents([1, k], mn);
        let order = Scales::order(mn);
        Scales {
            rows: mn,
            values: HostMatrix::from_fn(Format::F32, [lines, blocks], order, 4, |_, at| 3.0 + f64::from(at)),
        }
    };
    let (of_a, of_b) = (scale(1), scale(128));
    let sum = Sums::in_blocks(&a, &b, [&of_a, &of_b], &|_| ()).sums[0];
    let got: f64 = (0..4).map(|block| (3.0 + f64::from(block)) * (3.0 + f64::from(block))).sum();
    held("blocks of e4m3", sum.value - got, sum.error);
    // Factors of rows and columns, by one after the other.
    let mut random = fastrand::Rng::with_seed(1);
    let products = (0..10_000).map(|_| {
        let [of, row, column] = [(); 3].map(|()| random.f32() + 0.5);
        let exact = DotProduct { error: 0.0, ..DotProduct::single(0, of.into(), of.into()) };
        let all = Sums { rows: vec![0], columns: vec![0], sums: vec![exact], complete: true };
        let sum = all.times(&[row], &[column]).sums[0];
        ((f64::from(of * row * column) - sum.value).abs(), sum.error)
    });
    let (error, bound) = largest(products);
    held_loosely("factors of rows and columns", error, bound);
    // What erred before errs as much in proportion.
    let erring = Sums {
        rows: vec![0],
        columns: vec![0],
        sums: vec![DotProduct { error: 0.1, ..DotProduct::single(0, 1.0, 1.0) }],
        complete: true,
    };
    held("a sum that errs, times factors", 0.1 * 12.0, erring.times(&[3.0], &[-4.0]).sums[0].error);
}

#[test]
fn results() {
    let mut random = fastrand::Rng::with_seed(2);
    // `alpha * acc` and `+ beta * c` in f32. Without C one of the two roundings is none.
    let all = (0..10_000).map(|_| {
        let [acc, alpha, c] = [(); 3].map(|()| random.f32() + 0.5);
        let sum = DotProduct { error: 0.0, ..DotProduct::single(0, acc.into(), acc.into()) };
        let expected = Expected::new(Format::F32, 0, [alpha.into(), 0.75], sum, Some(c.into()));
        ((f64::from(0.75f32.mul_add(c, alpha * acc)) - expected.value).abs(), expected.bound)
    });
    let (error, bound) = largest(all);
    held_loosely("with C", error, bound);
    let all = (0..10_000).map(|_| {
        let [value, alpha, beta, c] = [(); 4].map(|()| random.f64() + 0.5);
        let sum = DotProduct { error: 0.0, ..DotProduct::double(0, value, value) };
        let expected = Expected::new(Format::F64, 0, [alpha, beta], sum, Some(c));
        let got = beta.mul_add(c, alpha * value);
        ((got - expected.value).abs(), expected.bound)
    });
    let (error, bound) = largest(all);
    held_loosely("with C in f64", error, bound);
    // The sum's own error, by alpha.
    for (format, sum) in
        [(Format::F32, DotProduct::single(0, 1.0, 1.0)), (Format::F64, DotProduct::double(0, 1.0, 1.0))]
    {
        let expected = Expected::new(format, 0, [-8.0, 0.0], DotProduct { error: 0.125, ..sum }, None);
        held("a sum that errs, times alpha", 1.0, expected.bound);
    }
    // Products that are less than the smallest f32, with a large factor and with none.
    let lost = 64.0 * f64::powi(2.0, -75) * f64::powi(2.0, -75);
    for alpha in [1.0, 1e30] {
        let expected = Expected::new(Format::F32, 64, [alpha, 0.0], DotProduct::single(64, lost, lost), None);
        held_loosely("subnormal products", expected.value, expected.bound);
    }
}

/// Ties of each format, near 1 and near 0; an error before it may come to its size.
#[test]
fn roundings() {
    for format in Format::ALL.into_iter().filter(|format| !format.is_integer()) {
        let name = format.name();
        // A `tf32` is stored as a binary32, of which the low bits do not count.
        let rounded = |value: f64| format.decode(format.round(value));
        let (unit, tiniest) = (format.unit_roundoff(), format.tiniest());
        assert_eq!(rounded(tiniest), tiniest, "{name}");
        let tie = 1.0 + unit;
        let near_one = (rounded(tie) - tie).abs().max((rounded(tie - unit / 2.0) - (tie - unit / 2.0)).abs());
        if format != Format::F64 {
            held(&format!("{name} near 1"), near_one, unit * tie);
            held(&format!("{name} near 0"), (rounded(tiniest / 2.0) - tiniest / 2.0).abs(), tiniest / 2.0);
            let wanted = |value, error| Wanted { format, unrounded: false, value, error };
            held(&format!("{name}, rounded"), near_one, wanted(tie, 0.0).bound());
            held(&format!("{name}, rounded near 0"), tiniest / 2.0, wanted(tiniest / 2.0, 0.0).bound());
            held(&format!("{name}, erring by a half"), 0.5, wanted(1.0, 0.5).bound());
        }
        if format.bytes() < 4 {
            let sum = DotProduct { error: 0.0, ..DotProduct::single(0, tie, tie) };
            let expected = Expected::new(format, 0, [1.0, 0.0], sum, None);
            held(&format!("{name}, a sum"), near_one, expected.bound);
        }
    }
    let unrounded = Wanted { format: Format::Bf16, unrounded: true, value: 3.0, error: 0.25 };
    assert_eq!(unrounded.bound(), 0.25);
}
