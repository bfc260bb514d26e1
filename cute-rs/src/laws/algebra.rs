//! Laws of evaluation, coalescing, composition, complement and inverses.

use alloc::format;
use alloc::vec::Vec;

use super::oracle::{covers, fewest_modes, shifts};
use super::{Broken, Oracle, Verdict, ensure, equal};
use crate::int_tuple::IntTuple;
use crate::layout::Layout;

/// Checks every evaluator: `L(c)` is the sum of digits times strides, for integer, flat and nested
/// coordinates.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn evaluation(layout: &Layout) -> Result<Verdict, Broken> {
    let oracle = Oracle::of(layout);
    let table = oracle.offsets();
    let last = table.iter().max().copied().unwrap_or(0);
    equal(&(layout.size(), layout.cosize()), &(oracle.size(), last + 1), &[layout], "size and cosize")?;
    let sizes: Vec<_> = oracle.modes().iter().map(Oracle::size).collect();
    let forwards = oracle.leaves().iter().all(|leaf| leaf.1 >= 0);
    for (i, &want) in (0..).zip(&table) {
        let coords = super::oracle::digits(&sizes, i);
        let got = [layout.at(i), layout.at_modes(&coords), layout.flatten().at(i), -layout.at(-i)];
        equal(&got, &[want; 4], &[layout], format_args!("offset {i}"))?;
        equal(
            &layout.at_coord(&layout.coord(i)),
            &Ok(want),
            &[layout],
            format_args!("offset {}", layout.coord(i)),
        )?;
        if forwards {
            let unsigned: Vec<_> = coords.iter().map(|&c| c as u32).collect();
            let got = (layout.apply(i as u32), layout.apply_modes(&unsigned));
            equal(&got, &(Ok(want as u32), Ok(want as u32)), &[layout], "offset with operators")?;
        }
    }
    let beyond = 2 * layout.size() + 1;
    equal(&layout.at(beyond), &oracle.at(beyond), &[layout], "an offset beyond the size")?;
    Ok(Verdict::Held)
}

/// Checks coalescing and filters. `coalesce`: `R(i) = L(i)` with the fewest leaves. `coalesce_x`: also beyond
/// the size. `coalesce_by`: the same per mode. `filter` and `filter_zeros` keep the offsets without
/// broadcasts.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn coalesce(layout: &Layout) -> Result<Verdict, Broken> {
    let oracle = Oracle::of(layout);
    let table = oracle.offsets();
    let coalesced = layout.coalesce();
    let of = Oracle::of(&coalesced);
    equal(&of.offsets(), &table, &[layout, &coalesced], "coalesce")?;
    let modes = of.leaves().iter().filter(|leaf| leaf.0 > 1).count();
    let flat = of.shape.depth() <= 1;
    equal(&(Some(modes), flat), &(fewest_modes(&table), true), &[layout, &coalesced], "fewest leaves")?;
    let endless = layout.coalesce_x();
    let of = Oracle::of(&endless);
    let size = oracle.size();
    for i in (-size..3 * size).step_by(1 + size as usize / 24) {
        equal(&of.at(i), &oracle.at(i), &[layout, &endless], format_args!("coalesce_x at {i}"))?;
    }
    equal(
        &of.shape.leaves().len().saturating_sub(modes + 1),
        &0,
        &[layout, &endless],
        "leaves of coalesce_x",
    )?;
    let profile = IntTuple::flat(&alloc::vec![0; layout.rank()]).unwrap_or(IntTuple::EMPTY);
    if !layout.shape().is_int() {
        let by_mode = layout.coalesce_by(&profile);
        for (got, want) in by_mode.iter().flat_map(|by_mode| Oracle::of(by_mode).modes()).zip(oracle.modes())
        {
            equal(&got.offsets(), &want.offsets(), &[layout], "coalesce_by")?;
            let leaves = got.leaves().iter().filter(|leaf| leaf.0 > 1).count();
            equal(&Some(leaves), &fewest_modes(&want.offsets()), &[layout], "leaves of coalesce_by")?;
        }
        equal(&by_mode.map(|by_mode| by_mode.rank()), &Ok(layout.rank()), &[layout], "rank of coalesce_by")?;
    }
    filtered(layout, &oracle, &profile)
}

fn filtered(layout: &Layout, oracle: &Oracle, profile: &IntTuple) -> Result<Verdict, Broken> {
    // The offsets at the coordinates whose broadcast digits are 0.
    let extents: Vec<_> = oracle.leaves().iter().map(|leaf| leaf.0).collect();
    let kept = |i: &i64| {
        let digits = super::oracle::digits(&extents, *i);
        digits.iter().zip(oracle.leaves()).all(|(&digit, leaf)| digit == 0 || leaf.1 != 0)
    };
    let want: Vec<_> = (0..oracle.size()).filter(kept).map(|i| oracle.at(i)).collect();
    let (zeros, filter) = (layout.filter_zeros(), layout.filter());
    equal(&Oracle::of(&zeros).offsets(), &want, &[layout, &zeros], "filter_zeros")?;
    ensure(zeros.shape().congruent(&layout.shape()), &[layout, &zeros], || format!("nesting of {zeros}"))?;
    equal(&Oracle::of(&filter).offsets(), &want, &[layout, &filter], "filter")?;
    let dense = filter.size() == 1 || Oracle::of(&filter).leaves().iter().all(|leaf| leaf.1 != 0);
    ensure(dense, &[layout, &filter], || format!("{layout} filtered is {filter}"))?;
    if let Ok(by_mode) = layout.filter_by(profile) {
        equal(&Oracle::of(&by_mode).offsets(), &want, &[layout, &by_mode], "filter_by")?;
    }
    Ok(Verdict::Held)
}

/// Checks a composition R of A and B: `R(c) = A(B(c))`, and the shape of B is compatible with the shape of R.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn composition(a: &Layout, b: &Layout) -> Result<Verdict, Broken> {
    let Ok(r) = a.composition(b) else { return Ok(Verdict::NoResult) };
    let (of_a, of_b, of_r) = (Oracle::of(a), Oracle::of(b), Oracle::of(&r));
    let want: Vec<_> = of_b.offsets().iter().map(|&c| of_a.at(c)).collect();
    equal(&of_r.offsets(), &want, &[a, b, &r], "composition")?;
    ensure(of_b.shape.refined_by(&of_r.shape, true), &[a, b, &r], || format!("{b} is not refined by {r}"))?;
    Ok(Verdict::Held)
}

/// Checks `with_shape`: `R(i) = L(i)` for every `i < size(R)`, and `shape` is compatible with the shape of R.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn with_shape(layout: &Layout, shape: &IntTuple) -> Result<Verdict, Broken> {
    let Ok(r) = layout.with_shape(*shape) else { return Ok(Verdict::NoResult) };
    let (of_l, of_r) = (Oracle::of(layout), Oracle::of(&r));
    let want: Vec<_> = (0..of_r.size()).map(|i| of_l.at(i)).collect();
    equal(&of_r.offsets(), &want, &[layout, &r], format_args!("the shape {shape}"))?;
    let refined = super::oracle::Tree::of(shape).refined_by(&of_r.shape, true);
    ensure(refined, &[layout, &r], || format!("{shape} is not refined by {r}"))?;
    Ok(Verdict::Held)
}

/// Checks a complement R of L: R is increasing, all sums of an offset of L and an offset of R are different,
/// and the sums take every value below `cotarget`.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn complement(layout: &Layout, cotarget: i64) -> Result<Verdict, Broken> {
    let Ok(rest) = layout.complement(cotarget) else { return Ok(Verdict::NoResult) };
    completed(layout, &rest, cotarget)?;
    let last = Oracle::of(layout).offsets().iter().max().copied().unwrap_or(0);
    let Ok(gaps) = layout.complement_all() else {
        return equal(&"none", &"a result", &[layout], "complement_all").map(|()| Verdict::Held);
    };
    completed(layout, &gaps, last + 1)?;
    Ok(Verdict::Held)
}

fn completed(layout: &Layout, rest: &Layout, cotarget: i64) -> Result<(), Broken> {
    let mut tile = Oracle::of(layout).offsets();
    tile.sort_unstable();
    tile.dedup();
    let copies = Oracle::of(rest).offsets();
    let what = format!("complement up to {cotarget}");
    let (want, disjoint) = shifts(&tile, copies.len());
    equal(&copies, &want, &[layout, rest], &what)?;
    ensure(disjoint, &[layout, rest], || format!("{what}: copies of {layout} at {rest} overlap"))?;
    let fits = covers(&tile, &copies, cotarget);
    ensure(fits, &[layout, rest], || format!("{what}: {} copies of {layout}", copies.len()))
}

/// Checks the inverses R and the nullspace of L. Right inverse: `L(R(i)) = i`, and R has the size of L if L
/// is compact. Left inverse: `R(L(i)) = i`, where it has a result. Nullspace: `L(R(i)) = 0`, and its size is
/// the product of the extents with stride 0.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn inverses(layout: &Layout) -> Result<Verdict, Broken> {
    let oracle = Oracle::of(layout);
    let table = oracle.offsets();
    let right = layout.right_inverse().unwrap_or(Layout::EMPTY);
    let of_right = Oracle::of(&right).offsets();
    for (i, &c) in (0..).zip(&of_right) {
        equal(
            &table.get(c as usize).copied(),
            &Some(i),
            &[layout, &right],
            format_args!("right inverse at {i}"),
        )?;
    }
    let mut sorted = table.clone();
    sorted.sort_unstable();
    let distinct = sorted.windows(2).all(|pair| pair[0] < pair[1]);
    let compact = (0..).zip(&sorted).all(|(i, &offset)| i == offset);
    if compact {
        equal(&of_right.len(), &table.len(), &[layout, &right], "a permutation's inverse is as large")?;
    }
    let null = layout.nullspace().unwrap_or(Layout::EMPTY);
    let zeros = Oracle::of(&null).offsets();
    let broadcast: i64 = oracle.leaves().iter().filter(|leaf| leaf.1 == 0).map(|leaf| leaf.0).product();
    equal(&(zeros.len() as i64), &broadcast, &[layout, &null], "size of the nullspace")?;
    let all_zero = zeros.is_sorted_by(|a, b| a < b) && zeros.iter().all(|&c| oracle.at(c) == 0);
    ensure(all_zero, &[layout, &null], || format!("nullspace {null} of {layout}"))?;
    let Ok(left) = layout.left_inverse() else { return Ok(Verdict::NoResult) };
    ensure(distinct, &[layout, &left], || {
        format!("{layout} repeats offsets and has no left inverse {left}")
    })?;
    let of_left = Oracle::of(&left);
    for (i, &offset) in (0..).zip(&table) {
        equal(&of_left.at(offset), &i, &[layout, &left], format_args!("left inverse at {offset}"))?;
    }
    Ok(Verdict::Held)
}

/// Checks the common layout R of A and B: `A(R(i)) = B(R(i)) = i`. If A has all of B's contiguous run in the
/// same order, R is as long as that run. `max_common_vector` is the size of R.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn common(a: &Layout, b: &Layout) -> Result<Verdict, Broken> {
    if a.size() != b.size() {
        return Ok(Verdict::NoResult);
    }
    let common = a.max_common_layout(b).unwrap_or(Layout::EMPTY);
    let (x, y) = (Oracle::of(a).offsets(), Oracle::of(b).offsets());
    let run = Oracle::of(&common).offsets();
    for (i, &c) in (0..).zip(&run) {
        let got = (x.get(c as usize), y.get(c as usize));
        equal(&got, &(Some(&i), Some(&i)), &[a, b, &common], format_args!("common layout at {i}"))?;
    }
    equal(&a.max_common_vector(b), &Ok(run.len() as i64), &[a, b], "common vector")?;
    // If A has every element of B's run at the same offset, the whole run is common.
    let whole = b.right_inverse().map(|right| Oracle::of(&right).offsets()).unwrap_or_default();
    if (0..).zip(&whole).all(|(i, &c)| x.get(c as usize) == Some(&i)) {
        equal(&run.len(), &whole.len(), &[a, b, &common], "a run that is common as a whole")?;
    }
    Ok(Verdict::Held)
}

/// Checks `max_alignment`: the offsets of L come in whole groups `kn, kn + 1, …, kn + n - 1`, where `n` is
/// the alignment.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn alignment(layout: &Layout) -> Result<Verdict, Broken> {
    let n = layout.max_alignment();
    let mut offsets = Oracle::of(layout).offsets();
    offsets.sort_unstable();
    offsets.dedup();
    let whole = offsets.chunks(n as usize).all(|group| {
        let first = group[0];
        group.len() as i64 == n
            && first % n == 0
            && (first..).zip(group).all(|(want, &offset)| want == offset)
    });
    ensure(whole, &[layout], || format!("{layout} has no groups of {n} elements"))?;
    Ok(Verdict::Held)
}

/// Checks `domain_distribute`: R is increasing, its size divides `n`, and each leaf of R moves within one
/// leaf of the shape.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn distribution(shape: &IntTuple, n: i64) -> Result<Verdict, Broken> {
    let Ok(r) = Layout::domain_distribute(*shape, n) else { return Ok(Verdict::NoResult) };
    let offsets = Oracle::of(&r).offsets();
    let extents = super::oracle::Tree::of(shape).leaves();
    let size: i64 = extents.iter().product();
    let what = format!("{n} items over {shape}");
    let rises = offsets.is_sorted_by(|a, b| a < b) && offsets.iter().all(|&c| c < size);
    ensure(rises && n % offsets.len() as i64 == 0, &[&r], || format!("{what}: {r}"))?;
    if size % n == 0 && extents.len() == 1 {
        equal(&(offsets.len() as i64), &n, &[&r], &what)?;
    }
    // Digits of a sum of offsets never carry: in each leaf of the shape, the last offset has the largest
    // digit.
    let last = super::oracle::digits(&extents, offsets.last().copied().unwrap_or(0));
    for &offset in &offsets {
        let digits = super::oracle::digits(&extents, offset);
        ensure(digits.iter().zip(&last).all(|(a, b)| a <= b), &[&r], || format!("{what}: {r} carries"))?;
    }
    Ok(Verdict::Held)
}
