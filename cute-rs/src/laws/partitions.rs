//! Laws of partitions: the elements that tiles, threads and instructions hold, checked one by one.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::oracle::{Tree, digits};
use super::{Broken, Oracle, Verdict, ensure, equal};
use crate::algebra::Tiler;
use crate::composed::ComposedLayout;
use crate::coord_layout::CoordLayout;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::partition::{Predicate, Tensor};
use crate::thread_value::ThreadValue;
use crate::tiled_copy::TiledCopy;
use crate::tiled_mma::{Operand, TiledMma};

/// The size of each mode.
fn sizes(layout: &Oracle) -> Vec<i64> {
    layout.modes().iter().map(Oracle::size).collect()
}

/// The offset at one integer coordinate per mode.
fn at_modes(layout: &Oracle, coord: &[i64]) -> i64 {
    layout.modes().iter().zip(coord).map(|(mode, &c)| mode.at(c)).sum()
}

/// The number of tiles along each mode.
fn counts(extents: &[i64], tile: &[i64]) -> Vec<i64> {
    extents.iter().zip(tile).map(|(extent, tile)| (extent + tile - 1) / tile).collect()
}

/// `a + b * step`, element by element.
fn stepped(a: &[i64], b: &[i64], step: &[i64]) -> Vec<i64> {
    a.iter().zip(b).zip(step).map(|((a, b), step)| a + b * step).collect()
}

/// Checks tiles of a layout. Element `x` of tile `c` is the element of the layout at `x + c * tile`. The
/// outer partition at `x` holds that element for every `c`. A [`Tensor`] that starts at a `u32` gives the
/// same tiles.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn tiles(layout: &Layout, tile: &[i64]) -> Result<Verdict, Broken> {
    let oracle = Oracle::of(layout);
    let (extents, shape) = (sizes(&oracle), IntTuple::flat(tile).unwrap_or(IntTuple::EMPTY));
    let tiler = Tiler::Shape(&shape);
    let (Ok(inner), Ok(outer)) = (layout.inner_partition(&tiler), layout.outer_partition(&tiler)) else {
        return Ok(Verdict::NoResult);
    };
    let counts = counts(&extents, tile);
    let (inside, tiles): (i64, i64) = (tile.iter().product(), counts.iter().product());
    let within = (inner.part().size(), inner.count(), outer.part().size(), outer.count());
    equal(&within, &(inside, tiles, tiles, inside), &[layout], "sizes of tiles and rests")?;
    let host = Tensor::new(*layout, 1000_u32);
    for c in 0..tiles {
        let place = digits(&counts, c);
        let coord: Vec<_> = place.iter().copied().map(Some).collect();
        let (Ok((part, start)), Ok(one)) = (inner.at(&coord), inner.at(&[Some(c)])) else {
            return equal(&false, &true, &[layout], "every tile exists").map(|()| Verdict::Held);
        };
        equal(&one, &(part, start), &[layout], "one integer and one a mode")?;
        equal(&layout.local_tile(&tiler, &coord), &Ok((part, start)), &[layout], "local_tile")?;
        let numbers: Vec<_> = place.iter().map(|&c| u32::try_from(c).ok()).collect();
        let of_host =
            host.local_tile(&tiler, &numbers).map(|tile| (tile.layout, i64::from(tile.start) - 1000));
        equal(&of_host, &Ok((part, start)), &[layout], "a tile that begins at 1000")?;
        for (i, offset) in (0..).zip(Oracle::of(&part).offsets()) {
            let element = at_modes(&oracle, &stepped(&digits(tile, i), &place, tile));
            equal(&(start + offset), &element, &[layout, &part], format!("element {i} of tile {place:?}"))?;
            let across = outer.at(&[Some(i)]).map(|(part, start)| start + Oracle::of(&part).at(c));
            equal(&across, &Ok(element), &[layout], format!("tile {c} at place {i}"))?;
        }
    }
    // An open mode of the coordinate becomes the last mode of the part.
    for open in 0..counts.len() {
        let coord: Vec<_> = (0..counts.len()).map(|i| (i != open).then_some(counts[i] - 1)).collect();
        let Ok((part, start)) = inner.at(&coord) else { return Ok(Verdict::NoResult) };
        for c in 0..counts[open] {
            let place: Vec<_> = coord.iter().map(|fixed| fixed.unwrap_or(c)).collect();
            let last = inside - 1;
            let want = at_modes(&oracle, &stepped(&digits(tile, last), &place, tile));
            let got = start + Oracle::of(&part).at(last + inside * c);
            equal(&got, &want, &[layout, &part], format!("the last element of tile {place:?}"))?;
        }
    }
    Ok(Verdict::Held)
}

/// Checks a partition over threads. Thread `t` has the elements `p + x * extent`, where `p` is the coordinate
/// at which the layout of threads is `t`, and `extent` are the sizes of its modes. Together, the threads have
/// each element exactly once. In a partition along mode 0 alone, threads that differ only in other modes have
/// the same elements.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn threads(layout: &Layout, threads: &Layout) -> Result<Verdict, Broken> {
    let Ok(parts) = layout.thread_partition(threads) else { return Ok(Verdict::NoResult) };
    let (oracle, of_threads) = (Oracle::of(layout), Oracle::of(threads));
    let (extents, tile) = (sizes(&oracle), sizes(&of_threads));
    let counts = counts(&extents, &tile);
    let rest: i64 = counts.iter().product();
    let mut seen = alloc::vec![0; of_threads.size() as usize * rest as usize];
    let host = Tensor::new(*layout, 0_u32);
    for place in 0..of_threads.size() {
        let thread = of_threads.at(place);
        let Ok((part, start)) = parts.at(&[Some(thread)]) else { return Ok(Verdict::NoResult) };
        equal(&layout.local_partition(threads, thread), &Ok((part, start)), &[layout, threads], "a part")?;
        let of_host = host.local_partition(threads, u32::try_from(thread).unwrap_or(0));
        let of_host = of_host.map(|part| (part.layout, i64::from(part.start)));
        equal(&of_host, &Ok((part, start)), &[layout, threads], "a part that u32 chooses")?;
        equal(&part.size(), &rest, &[layout, threads, &part], "the size of a part")?;
        for x in 0..rest {
            let element = stepped(&digits(&tile, place), &digits(&counts, x), &tile);
            let got = start + Oracle::of(&part).at(x);
            let what = format!("element {x} of thread {thread}");
            equal(&got, &at_modes(&oracle, &element), &[layout, threads, &part], &what)?;
            let mut number = 0;
            for ((&c, &t), &n) in element.iter().zip(&tile).zip(&counts).rev() {
                number = number * t * n + c;
            }
            seen[number as usize] += 1;
        }
    }
    equal(&seen.iter().all(|&times| times == 1), &true, &[layout, threads], "each element once")?;
    // CuTe's projection: partition along mode 0 alone.
    let first = Layout::concat(&[layout.mode(0)]);
    let Ok(projected) = first.and_then(|first| first.thread_partition_along(threads, &only_first(threads)))
    else {
        return Ok(Verdict::Held);
    };
    for place in 0..of_threads.size() {
        let want = oracle.modes()[0].at(digits(&tile, place)[0]);
        let got = projected.at(&[Some(of_threads.at(place))]).map(|part| part.1);
        equal(&got, &Ok(want), &[layout, threads], format!("the rows of place {place}"))?;
    }
    Ok(Verdict::Held)
}

fn only_first(threads: &Layout) -> Vec<bool> {
    (0..threads.rank()).map(|i| i == 0).collect()
}

/// Checks predicates. A tile of an identity layout holds the coordinates of the elements, and the predicate
/// is true for the coordinates inside the shape.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn predicate(shape: &[i64], tile: &[i64]) -> Result<Verdict, Broken> {
    let (extents, tiler) = (IntTuple::flat(shape), IntTuple::flat(tile).unwrap_or(IntTuple::EMPTY));
    let Ok(extents) = extents else { return Ok(Verdict::NoResult) };
    let Ok(identity) = CoordLayout::identity(extents) else { return Ok(Verdict::NoResult) };
    let counts = counts(shape, tile);
    let mut inside_all = 0;
    for c in 0..counts.iter().product() {
        let place = digits(&counts, c);
        let coord: Vec<_> = place.iter().copied().map(Some).collect();
        let Ok((part, start)) = identity.local_tile(&Tiler::Shape(&tiler), &coord) else {
            return Ok(Verdict::NoResult);
        };
        let Ok(predicate) = Predicate::new(part, start, extents) else { return Ok(Verdict::NoResult) };
        let mut inside = 0;
        for i in 0..tile.iter().product() {
            let element = stepped(&digits(tile, i), &place, tile);
            let want = element.iter().zip(shape).all(|(c, extent)| c < extent);
            equal(&predicate.at(i), &want, &[], format!("{element:?} inside {shape:?}"))?;
            inside += i64::from(want);
        }
        equal(&predicate.count(), &inside, &[], "elements inside")?;
        equal(&predicate.is_full(), &(inside == tile.iter().product()), &[], "a full tile")?;
        inside_all += inside;
    }
    equal(&inside_all, &shape.iter().product(), &[], "tiles hold each element inside once")?;
    Ok(Verdict::Held)
}

/// Checks a tiled copy. Thread `t` reads value `v` of tile `r` at the coordinate that the equation of
/// [`TiledCopy::new`] gives. All threads together read each element exactly once.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn tiled_copy(threads: &Layout, values: &Layout, tiles: &[i64]) -> Result<Verdict, Broken> {
    let Ok(copy) = TiledCopy::new(threads, values) else { return Ok(Verdict::NoResult) };
    let (of_threads, of_values) = (Oracle::of(threads), Oracle::of(values));
    let (t, v) = (sizes(&of_threads), sizes(&of_values));
    let tile: Vec<_> = t.iter().zip(&v).map(|(t, v)| t * v).collect();
    equal(&Tree::of(&copy.tile()).leaves(), &tile, &[threads, values], "the tile")?;
    let shape: Vec<_> = tile.iter().zip(tiles).map(|(tile, n)| tile * n).collect();
    let whole = IntTuple::flat(&shape).and_then(Layout::row_major);
    let Ok(whole) = whole else { return Ok(Verdict::NoResult) };
    let Ok(parts) = copy.partition_s(&whole) else { return Ok(Verdict::NoResult) };
    equal(&copy.partition_d(&whole), &Ok(parts), &[threads, values], "what is written")?;
    let (part, starts) = (Oracle::of(&parts.part()), Oracle::of(&parts.starts()));
    let mut seen = alloc::vec![false; whole.size() as usize];
    let rests: i64 = tiles.iter().product();
    for (i, j, r) in every([of_threads.size(), of_values.size(), rests]) {
        let (thread, value) = (of_threads.at(i), of_values.at(j));
        let inside = stepped(&digits(&v, j), &digits(&t, i), &v);
        let element = stepped(&inside, &digits(tiles, r), &tile);
        let want = at_modes(&Oracle::of(&whole), &element);
        let got = starts.at(thread) + part.at(value + of_values.size() * r);
        equal(&got, &want, &[threads, values], format!("value {value} of thread {thread} in tile {r}"))?;
        seen[want as usize] = true;
    }
    equal(&seen.iter().all(|&seen| seen), &true, &[threads, values], "each element once")?;
    Ok(Verdict::Held)
}

/// Checks a tiled copy repeated over groups of threads. Thread `t` of group `g` reads and writes the elements
/// of thread `t` of a single group, moved by whole tiles.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn grouped_copy(copy: &TiledCopy, groups: &[i64]) -> Result<Verdict, Broken> {
    let Ok(grouped) = copy.in_groups(groups) else { return Ok(Verdict::NoResult) };
    let tile = Tree::of(&copy.tile()).leaves();
    let whole: Vec<_> = tile.iter().zip(groups).map(|(tile, n)| tile * n).collect();
    equal(&Tree::of(&grouped.tile()).leaves(), &whole, &[], "the tile of all groups")?;
    for (one, all) in [(copy.source(), grouped.source()), (copy.destination(), grouped.destination())] {
        let (from, to) = (Oracle::of(&one).modes(), Oracle::of(&all).modes());
        let (threads, values, count) = (from[0].size(), from[1].size(), groups.iter().product());
        equal(
            &(to[0].size(), to[1].size()),
            &(threads * count, values),
            &[&one, &all],
            "threads and values",
        )?;
        for (t, v, g) in every([threads, values, count]) {
            let element = stepped(&digits(&tile, from[0].at(t) + from[1].at(v)), &digits(groups, g), &tile);
            let want = element.iter().zip(&whole).rev().fold(0, |number, (c, extent)| number * extent + c);
            let got = to[0].at(t + threads * g) + to[1].at(v);
            equal(&got, &want, &[&one, &all], format!("value {v} of thread {t} in group {g}"))?;
        }
    }
    Ok(Verdict::Held)
}

fn every(extents: [i64; 3]) -> impl Iterator<Item = (i64, i64, i64)> {
    let [a, b, c] = extents;
    (0..a).flat_map(move |i| (0..b).flat_map(move |j| (0..c).map(move |l| (i, j, l))))
}

/// Checks `retile`: `source(t, v) = fragment(t, R(v))`. There is no R if a thread would need elements of
/// another thread.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn retile(copy: &TiledCopy, fragment: &Layout) -> Result<Verdict, Broken> {
    let (from, to) = (Oracle::of(fragment).modes(), Oracle::of(&copy.source()).modes());
    let held = |modes: &[Oracle], t, v| modes[0].at(t) + modes[1].at(v);
    let threads = from[0].size();
    let order = match copy.retile(fragment) {
        Ok(order) => Oracle::of(&order),
        Err(_) => return Ok(Verdict::NoResult),
    };
    for t in 0..threads {
        for v in 0..to[1].size() {
            let (got, want) = (held(&from, t, order.at(v)), held(&to, t, v));
            equal(&got, &want, &[fragment, &copy.source()], format!("value {v} of thread {t}"))?;
        }
    }
    Ok(Verdict::Held)
}

/// Checks a tiled MMA. The threads of each group hold the elements of A, B and C that the layouts of the
/// instruction give, moved by the group's position and by whole tiles. If `rows` is given, it permutes the
/// rows. Together, the threads hold each element the same number of times: once per thread of the instruction
/// that holds it and per group that shares it.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn tiled_mma(
    mma: &TiledMma,
    groups: [i64; 3],
    rows: Option<&Layout>,
    repeats: [i64; 3],
) -> Result<Verdict, Broken> {
    let atom = mma.atom().shape();
    let tile: Vec<_> = (0..3).map(|i| atom[i] * groups[i]).collect();
    let extents: Vec<_> = (0..3).map(|i| mma.tile_shape()[i] * repeats[i]).collect();
    for (operand, [p, q]) in [(Operand::A, [0, 2]), (Operand::B, [1, 2]), (Operand::C, [0, 1])] {
        let shape = IntTuple::flat(&[extents[p], extents[q]]);
        let Ok(whole) = shape.and_then(Layout::row_major) else { return Ok(Verdict::NoResult) };
        let Ok(parts) = mma.partition(operand, &whole) else { return Ok(Verdict::NoResult) };
        let held = mma.atom().operand(operand);
        let (part, starts) = (Oracle::of(&parts.part()), Oracle::of(&parts.starts()));
        let what = format!("{operand:?} of {} threads", mma.threads());
        equal(&starts.size(), &mma.threads(), &[&whole], &what)?;
        let rests = [extents[p] / tile[p], extents[q] / tile[q]];
        let values = Oracle::of(&held.layout()).modes()[1].size();
        equal(&part.size(), &(values * rests[0] * rests[1]), &[&whole], &what)?;
        let fragment = mma.fragment(operand, [extents[p], extents[q]]).map(|layout| layout.to_string());
        let compact = Layout::column_major(parts.part().shape()).map(|layout| layout.to_string());
        equal(&fragment, &compact, &[&whole], "the registers")?;
        let mut seen = alloc::vec![0; whole.size() as usize];
        // The elements that the layout of the instruction gives to each thread, in plain arithmetic.
        let (atom_tv, atom_rows) = (Oracle::of(&held.layout()).modes(), held.tile().0);
        for thread in 0..mma.threads() {
            let place = digits(&[mma.atom().threads(), groups[0], groups[1], groups[2]], thread);
            let group = &place[1..];
            for (v, r0, r1) in every([values, rests[0], rests[1]]) {
                let inside = atom_tv[0].at(place[0]) + atom_tv[1].at(v);
                let named = [
                    inside % atom_rows + atom[p] * (group[p] + groups[p] * r0),
                    inside / atom_rows + atom[q] * (group[q] + groups[q] * r1),
                ];
                let row = match rows {
                    Some(rows) if p == 0 => {
                        let size = Oracle::of(rows).size();
                        Oracle::of(rows).at(named[0] % size) + named[0] / size * size
                    }
                    _ => named[0],
                };
                let want = row * extents[q] + named[1];
                let got = starts.at(thread) + part.at(v + values * (r0 + rests[0] * r1));
                let what = format!("value {v} of thread {thread}, {r0},{r1}, of {operand:?}");
                equal(&got, &want, &[&whole, &parts.part()], &what)?;
                seen[want as usize] += 1;
            }
        }
        let other = 3 - p - q;
        let sharing = groups[other] * shared(&held);
        let each = seen.iter().all(|&times| i64::from(times) == sharing);
        ensure(each, &[&whole], || format!("{operand:?}: each element {sharing} times"))?;
    }
    Ok(Verdict::Held)
}

/// The number of threads of an instruction that hold each element.
fn shared(held: &ThreadValue) -> i64 {
    let (rows, columns) = held.tile();
    Oracle::of(&held.layout()).size() / (rows * columns)
}

/// Checks tiles of a composed layout: they are the tiles of the layout before the swizzle, followed by the
/// swizzle. The host's `i64` and a tensor that starts at a `u32` give the same offsets.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn composed_tiles(layout: &ComposedLayout, tile: &[i64]) -> Result<Verdict, Broken> {
    let shape = IntTuple::flat(tile).unwrap_or(IntTuple::EMPTY);
    let Ok(parts) = layout.inner_partition(&Tiler::Shape(&shape)) else { return Ok(Verdict::NoResult) };
    let plain = Oracle::of(&layout.layout);
    let counts = counts(&sizes(&plain), tile);
    for c in 0..parts.count() {
        let place = digits(&counts, c);
        let part = parts.at(&[Some(c)]);
        let tensor = parts.tensor(0_u32, &[u32::try_from(c).ok()]);
        let (Ok(part), Ok(tensor)) = (part, tensor) else { return Ok(Verdict::NoResult) };
        for i in 0..part.size() {
            let inner = layout.offset + at_modes(&plain, &stepped(&digits(tile, i), &place, tile));
            let want = layout.swizzle.apply(inner.cast_unsigned()).cast_signed();
            equal(&part.at(i), &want, &[&layout.layout], format!("element {i} of tile {place:?}"))?;
            let by_u32 = tensor.at(i).map(i64::from);
            equal(&by_u32, &Ok(want), &[&layout.layout], format!("element {i} of tile {place:?} with u32"))?;
        }
    }
    Ok(Verdict::Held)
}
