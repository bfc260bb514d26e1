//! Laws of slices, edits, generated strides and recasts.

use alloc::format;
use alloc::vec::Vec;

use super::oracle::{Tree, digits};
use super::{Broken, Oracle, Verdict, ensure, equal};
use crate::int_tuple::IntTuple;
use crate::layout::{Coord, Layout};

/// Checks slices R of L. `L(c) = offset + R(kept coordinates)`, for slices one and two levels deep. `dice`
/// keeps the other modes. `domain_offset` moves the start. `index_of` and `coord_of` find the coordinate of
/// an offset again, if each mode steps over all smaller ones.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn slices(layout: &Layout, coord: &[Option<i64>]) -> Result<Verdict, Broken> {
    let oracle = Oracle::of(layout);
    let modes = oracle.modes();
    let coord: Vec<_> = modes.iter().zip(coord).map(|(mode, c)| c.map(|c| c % mode.size())).collect();
    let (Ok((slice, offset)), Ok(dice)) = (layout.slice(&coord), layout.dice(&coord)) else {
        return equal(&coord.len(), &modes.len(), &[layout], "a slice").map(|()| Verdict::Held);
    };
    let fixed: i64 = modes.iter().zip(&coord).filter_map(|(mode, c)| c.map(|c| mode.at(c))).sum();
    equal(&offset, &fixed, &[layout], format_args!("offset of the slice {coord:?}"))?;
    let part = |open: bool| {
        let both = modes.iter().zip(&coord).filter(|(_, c)| c.is_none() == open);
        both.map(|(mode, _)| mode.clone()).collect::<Vec<_>>()
    };
    equal(&Oracle::of(&slice).modes(), &part(true), &[layout, &slice], format_args!("slice {coord:?}"))?;
    equal(&Oracle::of(&dice).modes(), &part(false), &[layout, &dice], format_args!("dice {coord:?}"))?;

    // Two levels: the slice keeps the first member of a nested mode and fixes the others.
    let mut inner: Vec<Vec<Coord<'_>>> = Vec::new();
    for (mode, c) in modes.iter().zip(&coord) {
        let members = mode.modes();
        let mut list = alloc::vec![Coord::Keep];
        list.extend(members.iter().skip(1).map(|member| Coord::At(c.unwrap_or(0) % member.size())));
        inner.push(list);
    }
    let nested = |i: usize| matches!(modes[i].shape, Tree::Node(_)) && coord[i].is_some();
    let entry = |i: usize| match coord[i] {
        None => Coord::Keep,
        Some(_) if nested(i) => Coord::Modes(&inner[i]),
        Some(c) => Coord::At(c),
    };
    let entries: Vec<_> = (0..modes.len()).map(entry).collect();
    if matches!(oracle.shape, Tree::Node(_)) {
        let Ok((slice, offset)) = layout.slice_at(&Coord::Modes(&entries)) else {
            return equal(&false, &true, &[layout], "a nested slice").map(|()| Verdict::Held);
        };
        let (mut kept, mut fixed) = (Vec::new(), 0);
        for (i, mode) in modes.iter().enumerate() {
            match entries[i] {
                Coord::Keep => kept.push(mode.clone()),
                Coord::At(c) => fixed += mode.at(c),
                Coord::Modes(list) => {
                    let members = mode.modes();
                    kept.push(members[0].clone());
                    for (member, c) in members.iter().zip(list).skip(1) {
                        fixed += if let Coord::At(c) = c { member.at(*c) } else { 0 };
                    }
                }
            }
        }
        equal(&(Oracle::of(&slice).modes(), offset), &(kept, fixed), &[layout, &slice], "nested slice")?;
    }

    let start = layout.coord(coord.iter().flatten().sum::<i64>() % oracle.size().max(1));
    let moved = layout.domain_offset(&start).map(|(_, offset)| offset);
    let extents = oracle.shape.leaves();
    let want = Tree::of(&start).leaves().iter().zip(oracle.leaves()).map(|(c, leaf)| c * leaf.1).sum();
    equal(&moved, &Ok(want), &[layout], format_args!("offset of {start}"))?;
    let found = layout.index_of(want).map(|index| oracle.at(index));
    ensure(found.is_none_or(|found| found == want), &[layout], || format!("{found:?} for {want}"))?;
    let mut steps: Vec<_> = oracle.leaves().iter().copied().filter(|leaf| leaf.0 > 1).collect();
    steps.sort_unstable_by_key(|leaf| leaf.1);
    let forwards = steps.iter().all(|leaf| leaf.1 > 0);
    if forwards && steps.windows(2).all(|pair| pair[1].1 % (pair[0].0 * pair[0].1) == 0) {
        let found = layout.coord_of(want).map(|coord| Tree::of(&coord).leaves());
        let one = |(c, s): (&i64, &i64)| if *s == 1 { 0 } else { *c };
        let want: Vec<_> = Tree::of(&start).leaves().iter().zip(&extents).map(one).collect();
        equal(&found, &Some(want), &[layout], "the coordinate of an offset")?;
    }
    Ok(Verdict::Held)
}

/// Checks edits of layouts. `flatten`, `group`, `unflatten`, `wrap` and `padded` keep the function. `append`,
/// `remove`, `select`, `reverse` and the like act on the modes.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn layout_edits(a: &Layout, b: &Layout, i: usize, j: usize) -> Result<Verdict, Broken> {
    let (of_a, of_b) = (Oracle::of(a), Oracle::of(b));
    let modes = of_a.modes();
    let (i, j) = (i % modes.len(), j % modes.len());
    let (low, high) = (i.min(j), i.max(j) + 1);
    let table = of_a.offsets();
    for (what, same) in [
        ("flatten", Ok(a.flatten())),
        ("group", a.group(low, high)),
        ("unflatten", a.flatten().unflatten(&a.shape())),
        ("wrap", a.wrap()),
        ("padded", a.padded(modes.len() + 2)),
    ] {
        let got = same.as_ref().map(|same| Oracle::of(same).offsets());
        equal(&got, &Ok(table.clone()), &[a], what)?;
    }
    let with = |edit: &dyn Fn(&mut Vec<Oracle>)| {
        let mut edited = modes.clone();
        edit(&mut edited);
        Ok(edited)
    };
    let int = matches!(of_a.shape, Tree::Leaf(_));
    let replaced = if int { Ok(of_b.modes()) } else { with(&|modes| modes[i] = of_b.clone()) };
    for (what, got, want) in [
        ("append", a.append(b), with(&|modes| modes.push(of_b.clone()))),
        ("prepend", a.prepend(b), with(&|modes| modes.insert(0, of_b.clone()))),
        ("insert", a.insert(i, b), with(&|modes| modes.insert(i, of_b.clone()))),
        ("replace", a.replace(i, b), replaced),
        ("take", a.take(low, high), Ok(modes[low..high].to_vec())),
        ("select", a.select(&[j, i]), Ok(Vec::from([modes[j].clone(), modes[i].clone()]))),
        ("concat", Layout::concat(&[*a, *b]), Ok(Vec::from([of_a.clone(), of_b.clone()]))),
    ] {
        let got = got.map(|got| Oracle::of(&got).modes());
        equal(&got, &want, &[a, b], format_args!("{what} at {i}, {j}"))?;
    }
    if modes.len() > 1 {
        let got = a.remove(i).map(|got| Oracle::of(&got).modes());
        equal(&got, &with(&|modes| drop(modes.remove(i))), &[a], "remove")?;
    }
    let mut backwards = of_a.leaves().to_vec();
    backwards.reverse();
    equal(&Oracle::of(&a.reverse()).leaves().to_vec(), &backwards, &[a], "reverse")?;
    if modes.len() == of_b.modes().len() {
        let pairs = a.zip(b).map(|zipped| {
            let pairs = Oracle::of(&zipped).modes();
            pairs.iter().map(Oracle::modes).collect::<Vec<_>>()
        });
        let want: Vec<_> = modes.iter().cloned().zip(of_b.modes()).map(|(a, b)| Vec::from([a, b])).collect();
        equal(&pairs, &Ok(want), &[a, b], "zip")?;
    }
    Ok(Verdict::Held)
}

/// Checks generated strides: each stride is the product of the extents of all earlier leaves in the given
/// order.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn generated_strides(layout: &Layout, order: &[i64]) -> Result<Verdict, Broken> {
    let oracle = Oracle::of(layout);
    let shape = layout.shape();
    // The stride of a leaf: the product of the extents of all leaves that come before it.
    let generated = |before: &dyn Fn(usize, usize) -> bool, counts: &dyn Fn(usize) -> bool| {
        let leaves = oracle.leaves();
        let stride = |i: usize| {
            let earlier = (0..leaves.len()).filter(|&k| before(k, i) && counts(k));
            if counts(i) { earlier.map(|k| leaves[k].0).product::<i64>() } else { 0 }
        };
        (0..leaves.len()).map(stride).collect::<Vec<_>>()
    };
    let strides =
        |layout: Result<Layout, crate::LayoutError>| layout.map(|layout| Tree::of(&layout.stride()).leaves());
    let all = |_: usize| true;
    equal(
        &strides(Layout::column_major(shape)),
        &Ok(generated(&|k, i| k < i, &all)),
        &[layout],
        "column_major",
    )?;
    equal(&strides(Layout::row_major(shape)), &Ok(generated(&|k, i| k > i, &all)), &[layout], "row_major")?;
    // An order of modes: each leaf takes the position of its mode.
    let modes = oracle.modes();
    let mode_of: Vec<_> = (0..modes.len()).flat_map(|m| alloc::vec![m; modes[m].leaves().len()]).collect();
    let places: Vec<_> = (0..modes.len()).map(|m| order[m % order.len()]).collect();
    let key = |leaf: usize| (places[mode_of[leaf]], mode_of[leaf], leaf);
    let coarse = if shape.is_int() { Ok(IntTuple::int(0)) } else { IntTuple::flat(&places) };
    let got = coarse.and_then(|coarse| Layout::ordered(shape, &coarse));
    let want = generated(&|k, i| key(k) < key(i), &all);
    equal(&strides(got), &Ok(want), &[layout], format_args!("ordered by {places:?}"))?;
    let real = |i: usize| oracle.leaves()[i].1 != 0;
    let stride = |i: usize| (oracle.leaves()[i].1, i);
    let like = generated(&|k, i| stride(k) < stride(i), &real);
    equal(&strides(layout.compact_like()), &Ok(like), &[layout], "compact_like")?;
    let first = modes.first().map_or(0, |mode| mode.leaves().len());
    let key = |i: usize| if i < first { (false, 0, i) } else { (true, oracle.leaves()[i].1, i) };
    let fragment = generated(&|k, i| key(k) < key(i), &real);
    equal(&strides(layout.fragment_like()), &Ok(fragment), &[layout], "fragment_like")?;
    Ok(Verdict::Held)
}

/// Checks recasts. `upcast`: `R(c') = floor(L(c) / n)`. `downcast`: `R(c') = n * L(c) + j`, with `j` from 0
/// to `n - 1`. `recast` is one of the two.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn recasts(layout: &Layout, n: i64) -> Result<Verdict, Broken> {
    let oracle = Oracle::of(layout);
    let extents: Vec<_> = oracle.leaves().iter().map(|leaf| leaf.0).collect();
    let small = layout.downcast(n).unwrap_or(Layout::EMPTY);
    let of_small = Oracle::of(&small);
    // The leaf with stride 1, along which an element is split into parts.
    let along = |real: bool| oracle.leaves().iter().position(|leaf| leaf.1 == 1 && (leaf.0 > 1 || !real));
    let unit = along(true).or(along(false));
    let parts = of_small.shape.leaves();
    for i in 0..of_small.size() {
        let mut place = digits(&parts, i);
        let mut part = 0;
        if let Some(unit) = unit {
            part = place[unit] % n;
            place[unit] /= n;
        }
        let whole: i64 = place.iter().zip(oracle.leaves()).map(|(c, leaf)| c * leaf.1).sum();
        equal(
            &of_small.at(i),
            &(n * whole + part),
            &[layout, &small],
            format_args!("downcast by {n} at {place:?}"),
        )?;
    }
    // A downcast, then the upcast back.
    if unit.is_some() {
        let back = small.upcast(n).map(|back| Oracle::of(&back).offsets());
        equal(&back, &Ok(oracle.offsets()), &[layout, &small], "downcast, then upcast")?;
        let recast = layout.recast(8 * n, 8).map(|recast| Oracle::of(&recast));
        equal(&recast, &Ok(of_small), &[layout], "recast to smaller elements")?;
    }
    let Ok(large) = layout.upcast(n) else { return Ok(Verdict::NoResult) };
    let of_large = Oracle::of(&large);
    let recast = layout.recast(8, 8 * n).map(|recast| Oracle::of(&recast));
    equal(&recast, &Ok(of_large.clone()), &[layout], "recast to larger elements")?;
    for i in 0..oracle.size() {
        let place = digits(&extents, i);
        let mut got = 0;
        for ((c, leaf), wide) in place.iter().zip(oracle.leaves()).zip(of_large.leaves()) {
            // The number of coordinates that became one.
            let each = if leaf.1 % n == 0 || leaf.0 == 1 { 1 } else { n / leaf.1 };
            got += (c / each) * wide.1;
        }
        equal(
            &got,
            &oracle.at(i).div_euclid(n),
            &[layout, &large],
            format_args!("upcast by {n} at {place:?}"),
        )?;
    }
    Ok(Verdict::Held)
}
