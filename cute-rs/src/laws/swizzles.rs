//! Laws of swizzles and of composed layouts, which have a swizzle after a layout.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::oracle::shifts;
use super::{Broken, Oracle, Verdict, ensure, equal};
use crate::composed::ComposedLayout;
use crate::layout::Layout;
use crate::swizzle::Swizzle;

/// The swizzle, bit by bit. For `S >= 0`, bit `M + i` is XORed with bit `M + S + i`. For `S < 0`, bit
/// `M - S + i` is XORed with bit `M + i`.
fn swizzled(swizzle: Swizzle, x: i64) -> i64 {
    let bit = |i: i64| (x >> i) & 1;
    let (base, shift) = (i64::from(swizzle.base), i64::from(swizzle.shift));
    let (from, to) = if shift >= 0 { (base + shift, base) } else { (base, base - shift) };
    (0..i64::from(swizzle.bits)).fold(x, |y, i| y ^ (bit(from + i) << (to + i)))
}

/// Checks a swizzle against its definition, bit by bit. It is its own inverse and periodic, and its masks
/// define it. Its alignment, its recasts and its composition with `b` agree with the definition.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn swizzle(a: Swizzle, b: Swizzle, x: i64) -> Result<Verdict, Broken> {
    let apply = |swizzle: Swizzle, x: i64| swizzle.apply(x.cast_unsigned()).cast_signed();
    let what = format!("{a} and {b} at {x}");
    let want = swizzled(a, x);
    equal(&(apply(a, x), i64::from(a.apply_to(x as u32))), &(want, want), &[], &what)?;
    equal(&apply(a.inverse(), want), &x, &[], format_args!("undone: {what}"))?;
    let of_masks = Swizzle::from_masks(a.source_mask(), a.target_mask());
    let same = of_masks.map(|same| swizzled(same, x));
    equal(&same, &Ok(want), &[], format_args!("from masks: {what}"))?;
    let made = Swizzle::new(a.bits, a.base, a.shift);
    equal(&made, &Ok(a), &[], &what)?;
    equal(&swizzled(a, x + a.period()), &(want + a.period()), &[], format_args!("period: {what}"))?;
    if a.bits > 0 {
        let group = a.max_alignment();
        let start = x / group * group;
        equal(&want, &(swizzled(a, start) + x % group), &[], format_args!("alignment: {what}"))?;
    }
    for n in [1, 2, 4, 8, 16] {
        match a.upcast(n).map(|up| swizzled(up, x / n)) {
            Ok(up) => equal(&up, &(want / n), &[], format_args!("upcast by {n}: {what}"))?,
            Err(_) => {
                let splits = (0..1 << 16).any(|x| swizzled(a, x) / n != swizzled(a, x / n * n) / n);
                equal(&splits, &true, &[], format_args!("upcast by {n}: {what}"))?;
            }
        }
        let down = a.downcast(n).map(|down| swizzled(down, n * x + x % n));
        equal(&down, &Ok(n * want + x % n), &[], format_args!("downcast by {n}: {what}"))?;
    }
    let Ok(both) = a.composition(b) else { return Ok(Verdict::NoResult) };
    equal(
        &swizzled(both, x),
        &swizzled(a, swizzled(b, x)),
        &[],
        format_args!("one after the other: {what}"),
    )?;
    Ok(Verdict::Held)
}

/// The offsets of a composed layout, computed from the definition.
fn table(composed: &ComposedLayout, layout: &Oracle) -> Vec<i64> {
    layout.offsets().iter().map(|&offset| swizzled(composed.swizzle, composed.offset + offset)).collect()
}

/// Checks a composed layout: it is `Sw(offset + L(c))`. Its inverses undo it. A slice, and the plain layout
/// that a slice decays to, have the offsets of the elements that they keep. Vectors stay contiguous, and
/// recasts change the size of the elements.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn composed(composed: &ComposedLayout, b: &Layout, fixed: &[Option<i64>]) -> Result<Verdict, Broken> {
    let case = Case::of(composed);
    case.values()?;
    case.compositions(b)?;
    case.cosize()?;
    case.edits()?;
    case.inverses()?;
    case.slices(fixed)?;
    case.vectors()?;
    case.recasts()?;
    Ok(Verdict::Held)
}

/// A composed layout and what it is by definition.
struct Case<'a> {
    composed: &'a ComposedLayout,
    oracle: Oracle,
    offsets: Vec<i64>,
    /// The layout before the swizzle, for reports.
    layouts: [&'a Layout; 1],
    what: String,
}

impl<'a> Case<'a> {
    fn of(composed: &'a ComposedLayout) -> Self {
        let oracle = Oracle::of(&composed.layout);
        let offsets = table(composed, &oracle);
        Self { composed, oracle, offsets, layouts: [&composed.layout], what: format!("{composed}") }
    }

    /// Each coordinate has its offset, also after the layout is coalesced.
    fn values(&self) -> Result<(), Broken> {
        let Self { composed, offsets, layouts, what, .. } = self;
        for (i, &want) in (0..).zip(offsets) {
            let got = (composed.at(i), composed.at_coord(&composed.layout.coord(i)));
            equal(&got, &(want, Ok(want)), layouts, what)?;
            equal(&composed.coalesce().at(i), &want, layouts, what)?;
        }
        Ok(())
    }

    /// The composition with `b`, and the tile of the division by it, have the offsets that `b` selects.
    fn compositions(&self, b: &Layout) -> Result<(), Broken> {
        let Self { composed, oracle, layouts, what, .. } = self;
        let Ok(walked) = composed.composition(b) else { return Ok(()) };
        let want: Vec<_> = Oracle::of(b)
            .offsets()
            .iter()
            .map(|&c| swizzled(composed.swizzle, composed.offset + oracle.at(c)))
            .collect();
        equal(&table(&walked, &Oracle::of(&walked.layout)), &want, layouts, format_args!("{what} o {b}"))?;
        if let Ok(divided) = composed.logical_divide(b) {
            let tile = divided.mode(0);
            equal(&table(&tile, &Oracle::of(&tile.layout)), &want, layouts, format_args!("{what} / {b}"))?;
        }
        Ok(())
    }

    /// The cosize is the end of the offsets, rounded up to whole patterns of the swizzle.
    fn cosize(&self) -> Result<(), Broken> {
        let Self { composed, offsets, layouts, what, .. } = self;
        let needed = offsets.iter().max().map_or(0, |last| last + 1);
        let (cosize, pattern) = (
            composed.cosize(),
            1 << (composed.swizzle.base + composed.swizzle.bits + composed.swizzle.shift.unsigned_abs()),
        );
        let pattern = if composed.swizzle.bits == 0 { 1 } else { pattern };
        let enough = cosize >= needed && cosize % pattern == 0 && cosize - needed < pattern;
        ensure(enough, layouts, || {
            format!("cosize {cosize} of {what}, whose largest offset is {}", needed - 1)
        })
    }

    /// Edits of the layout before the swizzle keep the offsets of the modes that they keep.
    fn edits(&self) -> Result<(), Broken> {
        let Self { composed, oracle, offsets, layouts, what } = self;
        let rank = oracle.modes().len();
        let last = oracle.modes()[rank - 1].clone();
        for (edit, edited) in [
            ("flatten", Ok(composed.flatten())),
            ("group", composed.group(0, rank)),
            ("append", composed.append(&Layout::leaf(1, 0))),
            ("take", composed.take(0, rank)),
        ] {
            let got = edited.map(|edited| table(&edited, &Oracle::of(&edited.layout)));
            equal(&got, &Ok(offsets.clone()), layouts, format_args!("{edit} of {what}"))?;
        }
        let selected = composed.select(&[rank - 1]).map(|part| table(&part, &Oracle::of(&part.layout)));
        equal(&selected, &Ok(table(composed, &last)), layouts, format_args!("select of {what}"))
    }

    /// The inverses undo the layout.
    fn inverses(&self) -> Result<(), Broken> {
        let Self { composed, offsets, layouts, what, .. } = self;
        if let Ok(left) = composed.left_inverse() {
            for (i, &offset) in (0..).zip(offsets) {
                equal(&left.at(offset), &i, layouts, format_args!("left inverse of {what}"))?;
            }
        }
        let compact = (0..).zip(&sorted(offsets)).all(|(i, &offset)| i == offset);
        if compact && composed.offset == 0 {
            let right = composed.right_inverse();
            for i in 0..offsets.len() as i64 {
                let got = right.map(|right| offsets.get(right.at(i) as usize).copied());
                equal(&got, &Ok(Some(i)), layouts, format_args!("right inverse of {what} at {i}"))?;
            }
        }
        Ok(())
    }

    /// A slice, and the plain layout that it decays to, have the offsets of the elements that they keep.
    fn slices(&self, fixed: &[Option<i64>]) -> Result<(), Broken> {
        let Self { composed, oracle, layouts, what, .. } = self;
        let modes = oracle.modes();
        let fixed: Vec<_> = modes.iter().zip(fixed).map(|(mode, c)| c.map(|c| c % mode.size())).collect();
        let Ok(slice) = composed.slice(&fixed) else { return Ok(()) };
        let base: i64 = modes.iter().zip(&fixed).filter_map(|(mode, c)| c.map(|c| mode.at(c))).sum();
        let kept = Oracle::of(&slice.layout).offsets();
        let open: Vec<_> =
            modes.iter().zip(&fixed).filter(|(_, c)| c.is_none()).map(|(mode, _)| mode.clone()).collect();
        equal(&Oracle::of(&slice.layout).modes(), &open, layouts, what)?;
        let want: Vec<_> =
            kept.iter().map(|&k| swizzled(composed.swizzle, composed.offset + base + k)).collect();
        equal(
            &table(&slice, &Oracle::of(&slice.layout)),
            &want,
            layouts,
            format_args!("{what} at {fixed:?}"),
        )?;
        if let Some((plain, offset)) = slice.decay() {
            let got: Vec<_> = Oracle::of(&plain).offsets().iter().map(|&k| offset + k).collect();
            equal(&got, &want, layouts, format_args!("{slice} decays to {offset} + {plain}"))?;
        }
        Ok(())
    }

    /// The offsets lie in whole aligned groups, and vectors of elements are contiguous.
    fn vectors(&self) -> Result<(), Broken> {
        let Self { composed, offsets, layouts, what, .. } = self;
        let n = composed.max_alignment();
        let mut rest = sorted(offsets);
        rest.dedup();
        let whole = rest.chunks(n as usize).all(|group| {
            let counted = (group[0]..).zip(group).all(|(want, &o)| want == o);
            group[0] % n == 0 && group.len() as i64 == n && counted
        });
        ensure(whole, layouts, || format!("{what} has no groups of {n}"))?;
        let vector = composed.max_common_vector(&composed.layout).unwrap_or(0);
        let run =
            composed.layout.right_inverse().map(|right| Oracle::of(&right).offsets()).unwrap_or_default();
        let at = |i: usize| offsets[run[i] as usize];
        let together = run.len() as i64 >= vector && (0..vector as usize).all(|i| at(i) == at(0) + i as i64);
        ensure(together, layouts, || format!("{what} has no vector of {vector}"))
    }

    /// Recasts to larger and to smaller elements have the offsets of these.
    fn recasts(&self) -> Result<(), Broken> {
        let Self { composed, oracle, offsets, layouts, what } = self;
        for n in [2, 4] {
            if let Ok(up) = composed.upcast(n) {
                // The offsets of the larger elements are the distinct quotients.
                let (mut got, mut want) = (table(&up, &Oracle::of(&up.layout)), offsets.clone());
                want.iter_mut().for_each(|offset| *offset /= n);
                (got, want) = (sorted(&got), sorted(&want));
                got.dedup();
                want.dedup();
                equal(&got, &want, layouts, format_args!("{what} in elements of {n}"))?;
            }
            if let Ok(down) = composed.downcast(n)
                && oracle.leaves().iter().any(|leaf| leaf.1 == 1)
            {
                let got = sorted(&table(&down, &Oracle::of(&down.layout)));
                let want: Vec<_> =
                    offsets.iter().flat_map(|&offset| (0..n).map(move |j| n * offset + j)).collect();
                equal(&got, &sorted(&want), layouts, format_args!("{what} in parts of {n}"))?;
            }
        }
        Ok(())
    }
}

/// Checks the common layout of two composed layouts. Its offsets are contiguous in both. If the layouts
/// without swizzles have a common run of one leaf, it is the longest run that divides the leaf and that both
/// swizzles keep aligned.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn composed_common(a: &ComposedLayout, b: &ComposedLayout) -> Result<Verdict, Broken> {
    let Ok(common) = a.max_common_layout_swizzled(b) else { return Ok(Verdict::NoResult) };
    let layouts: &[&Layout] = &[&a.layout, &b.layout, &common];
    let run = Oracle::of(&common).offsets();
    for composed in [a, b] {
        let offsets = table(composed, &Oracle::of(&composed.layout));
        let places: Vec<_> = run.iter().map(|&c| offsets[c as usize]).collect();
        let contiguous = (places[0]..).zip(&places).all(|(want, &place)| want == place);
        ensure(contiguous, layouts, || format!("{a} and {b}: {places:?} are not contiguous"))?;
    }
    let size = run.len() as i64;
    equal(&a.max_common_vector_swizzled(b), &Ok(size), layouts, format!("the vector of {a} and {b}"))?;
    if *b == Swizzle::NONE.after(b.layout) {
        equal(&a.max_common_layout(&b.layout), &Ok(common), layouts, format!("{a} and a plain layout"))?;
        equal(&a.max_common_vector(&b.layout), &Ok(size), layouts, format!("{a} and a plain layout"))?;
    }
    let whole = a.layout.max_common_layout(&b.layout).map(|whole| Oracle::of(&whole).leaves().to_vec());
    if let Ok([(extent, _)]) = whole.as_deref() {
        // The longest run divides the leaf. For each swizzled layout, it also divides the offset and the size
        // of the groups that the swizzle keeps together.
        let groups = |n: i64| {
            let keeps = |c: &&ComposedLayout| (1_i64 << c.swizzle.base) % n == 0 && c.offset % n == 0;
            [a, b].iter().filter(|c| c.swizzle.bits > 0).all(keeps)
        };
        let want = (1..=*extent).rev().find(|&n| extent % n == 0 && groups(n));
        equal(&Some(size), &want, layouts, format!("the longest run of {a} and {b}"))?;
    }
    Ok(Verdict::Held)
}

/// Checks the product of a swizzled block and a grid: each copy is swizzled according to its offset.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn composed_products(block: &ComposedLayout, grid: &Layout) -> Result<Verdict, Broken> {
    let Ok(r) = block.logical_product(grid) else { return Ok(Verdict::NoResult) };
    let (tile, order) = (Oracle::of(&block.layout).offsets(), Oracle::of(grid).offsets());
    let (starts, _) = shifts(&tile, order.iter().max().map_or(1, |&last| last as usize + 1));
    let places = order.iter().flat_map(|&copy| {
        tile.iter().map({
            let start = starts[copy as usize];
            move |t| t + start
        })
    });
    let want: Vec<_> = places.map(|place| swizzled(block.swizzle, block.offset + place)).collect();
    let got = table(&r, &Oracle::of(&r.layout));
    equal(&got, &want, &[&block.layout, grid], format_args!("{block} x {grid}"))?;
    Ok(Verdict::Held)
}

fn sorted(offsets: &[i64]) -> Vec<i64> {
    let mut offsets = offsets.to_vec();
    offsets.sort_unstable();
    offsets
}
