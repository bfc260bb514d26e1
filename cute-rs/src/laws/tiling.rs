//! Laws of divides, products, and composition by mode.

use alloc::format;
use alloc::vec::Vec;

use super::oracle::{covers, digits, shifts};
use super::{Broken, Oracle, Verdict, ensure, equal};
use crate::algebra::Tiler;
use crate::layout::Layout;

/// Checks a logical divide: `R = L o (T, complement(T, size(L)))`. Mode 0 iterates inside a tile, mode 1 over
/// the tiles.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn logical_divide(layout: &Layout, tiler: &Layout) -> Result<Verdict, Broken> {
    let Ok(r) = layout.logical_divide(tiler) else { return Ok(Verdict::NoResult) };
    let (of_l, of_t, of_r) = (Oracle::of(layout), Oracle::of(tiler), Oracle::of(&r));
    divided(&of_l, &of_t, &of_r.modes(), &[layout, tiler, &r])?;
    ensure(r.size() >= layout.size(), &[layout, tiler, &r], || {
        format!("{layout} / {tiler} = {r} reaches all")
    })?;
    Ok(Verdict::Held)
}

/// Checks the tile and the rest of one mode against the definition. The starts of tiles first fill the gaps
/// of a tile, then come one after the other, until the tiles cover the layout.
fn divided(layout: &Oracle, tiler: &Oracle, parts: &[Oracle], layouts: &[&Layout]) -> Result<(), Broken> {
    let [tile, rest] = parts else { return equal(&parts.len(), &2, layouts, "tile and rest") };
    let at = |coords: &[i64]| coords.iter().map(|&c| layout.at(c)).collect::<Vec<_>>();
    let (mut inside, rests) = (tiler.offsets(), rest.offsets());
    equal(&tile.offsets(), &at(&inside), layouts, "the tile")?;
    inside.sort_unstable();
    inside.dedup();
    let (starts, disjoint) = shifts(&inside, rests.len());
    ensure(disjoint, layouts, || "tiles overlap".into())?;
    equal(&rests, &at(&starts), layouts, "the starts of tiles")?;
    let fits = covers(&inside, &starts, layout.size());
    ensure(fits, layouts, || format!("{} tiles of {} for {}", starts.len(), inside.len(), layout.size()))
}

/// Checks the logical, zipped, tiled and flat divides: each holds the tile and the rest of every mode. A mode
/// without a tiler stays whole.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn divides_by_mode(layout: &Layout, tilers: &[Option<Layout>]) -> Result<Verdict, Broken> {
    let list: Vec<_> = tilers.iter().map(|tiler| tiler.as_ref().map_or(Tiler::Keep, Tiler::By)).collect();
    let tiler = Tiler::Modes(&list);
    let Ok(logical) = layout.logical_divide_by(&tiler) else { return Ok(Verdict::NoResult) };
    let whole = Oracle::of(layout).modes();
    let parts = Oracle::of(&logical).modes();
    for (i, (mode, part)) in whole.iter().zip(&parts).enumerate() {
        match tilers.get(i).copied().flatten() {
            None => equal(part, mode, &[layout, &logical], "a mode that is kept")?,
            Some(by) => {
                divided(mode, &Oracle::of(&by), &part.modes(), &[layout, &by, &logical])?;
            }
        }
    }
    equal(&parts.len(), &whole.len(), &[layout, &logical], "modes of logical_divide_by")?;
    let has_tiler = |i: usize| tilers.get(i).copied().flatten().is_some();
    arranged(
        layout,
        &parts,
        has_tiler,
        &[layout.zipped_divide_by(&tiler), layout.tiled_divide(&tiler), layout.flat_divide(&tiler)],
    )?;
    // Tilers as a list, and `tile_unzip`, which gathers the halves of a logical divide.
    let front = tilers.iter().take_while(|tiler| tiler.is_some()).count();
    let only: Vec<_> = tilers[..front].iter().flatten().copied().collect();
    if front == 0 {
        return Ok(Verdict::Held);
    }
    let list: Vec<_> = only.iter().map(Tiler::By).collect();
    let logical = layout.logical_divide_by(&Tiler::Modes(&list));
    let halves: Vec<_> = parts[..front].iter().map(Oracle::modes).collect();
    let tiles: Vec<_> = halves.iter().map(|half| half[0].clone()).collect();
    let rests: Vec<_> = halves.iter().map(|half| half[1].clone()).chain(whole[front..].to_vec()).collect();
    for (what, got) in [
        ("tilers as a list", layout.zipped_divide(&only)),
        ("tile_unzip", logical.and_then(|logical| logical.tile_unzip(front))),
    ] {
        let got = got.map(|got| Oracle::of(&got).modes().iter().map(Oracle::modes).collect::<Vec<_>>());
        equal(&got, &Ok(Vec::from([tiles.clone(), rests.clone()])), &[layout], what)?;
    }
    Ok(Verdict::Held)
}

/// Checks that the zipped, tiled and flat results arrange the halves of the modes as their names say.
fn arranged(
    layout: &Layout,
    modes: &[Oracle],
    halved: impl Fn(usize) -> bool,
    results: &[Result<Layout, crate::LayoutError>; 3],
) -> Result<(), Broken> {
    let (mut firsts, mut rests) = (Vec::new(), Vec::new());
    for (i, mode) in modes.iter().enumerate() {
        match &mode.modes()[..] {
            [first, rest] if halved(i) => {
                firsts.push(first.clone());
                rests.push(rest.clone());
            }
            _ => rests.push(mode.clone()),
        }
    }
    if firsts.is_empty() {
        return Ok(());
    }
    let [Ok(zipped), Ok(tiled), Ok(flat)] = results else {
        return equal(&results.iter().all(Result::is_ok), &true, &[layout], "all arrangements have a result");
    };
    let zipped = Oracle::of(zipped).modes();
    equal(&zipped[0].modes(), &firsts, &[layout], "zipped tiles")?;
    equal(&zipped[1].modes(), &rests, &[layout], "zipped rests")?;
    let tiled = Oracle::of(tiled).modes();
    equal(&tiled[0].modes(), &firsts, &[layout], "tiled tiles")?;
    equal(&tiled[1..].to_vec(), &rests, &[layout], "tiled rests")?;
    firsts.extend(rests);
    equal(&Oracle::of(flat).modes(), &firsts, &[layout], "flat tiles and rests")
}

/// Checks a composition with a tiler: `R((c0,c1,…)) = L((T0(c0),T1(c1),…))`.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn composition_by_mode(layout: &Layout, tilers: &[Option<Layout>]) -> Result<Verdict, Broken> {
    let list: Vec<_> = tilers.iter().map(|tiler| tiler.as_ref().map_or(Tiler::Keep, Tiler::By)).collect();
    let Ok(r) = layout.composition_by(&Tiler::Modes(&list)) else { return Ok(Verdict::NoResult) };
    let (whole, parts) = (Oracle::of(layout).modes(), Oracle::of(&r).modes());
    equal(&parts.len(), &whole.len(), &[layout, &r], "modes")?;
    for (i, (mode, part)) in whole.iter().zip(&parts).enumerate() {
        match tilers.get(i).copied().flatten() {
            None => equal(part, mode, &[layout, &r], "a mode that is kept")?,
            Some(by) => {
                let want: Vec<_> = Oracle::of(&by).offsets().iter().map(|&c| mode.at(c)).collect();
                equal(&part.offsets(), &want, &[layout, &by, &r], "a mode")?;
            }
        }
    }
    Ok(Verdict::Held)
}

/// Checks a logical product: `R = (L, complement(L, size(L) * cosize(T)) o T)`. Mode 0 is the block, mode 1
/// the copies in the order of T.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn logical_product(block: &Layout, grid: &Layout) -> Result<Verdict, Broken> {
    let Ok(r) = block.logical_product(grid) else { return Ok(Verdict::NoResult) };
    let parts = Oracle::of(&r).modes();
    repeated(&Oracle::of(block), &Oracle::of(grid), &parts, &[block, grid, &r])?;
    Ok(Verdict::Held)
}

/// Checks the block and the copies of one mode against the definition.
fn repeated(block: &Oracle, grid: &Oracle, parts: &[Oracle], layouts: &[&Layout]) -> Result<(), Broken> {
    let [same, copies] = parts else { return equal(&parts.len(), &2, layouts, "block and copies") };
    equal(same, block, layouts, "the block")?;
    let order = grid.offsets();
    let mut tile = block.offsets();
    tile.sort_unstable();
    tile.dedup();
    let (starts, _) = shifts(&tile, order.iter().max().map_or(1, |&last| last as usize + 1));
    let want: Vec<_> = order.iter().map(|&copy| starts[copy as usize]).collect();
    equal(&copies.offsets(), &want, layouts, "the copies")?;
    ensure(grid.shape.refined_by(&copies.shape, true), layouts, || format!("{:?}", copies.shape))
}

/// Checks the logical, zipped, tiled and flat products: each holds the block and the copies of every mode.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn products_by_mode(block: &Layout, grids: &[Option<Layout>]) -> Result<Verdict, Broken> {
    let list: Vec<_> = grids.iter().map(|grid| grid.as_ref().map_or(Tiler::Keep, Tiler::By)).collect();
    let tiler = Tiler::Modes(&list);
    let Ok(logical) = block.logical_product_by(&tiler) else { return Ok(Verdict::NoResult) };
    let (whole, parts) = (Oracle::of(block).modes(), Oracle::of(&logical).modes());
    equal(&parts.len(), &whole.len(), &[block, &logical], "modes")?;
    for (i, (mode, part)) in whole.iter().zip(&parts).enumerate() {
        match grids.get(i).copied().flatten() {
            None => equal(part, mode, &[block, &logical], "a mode that is kept")?,
            Some(grid) => repeated(mode, &Oracle::of(&grid), &part.modes(), &[block, &grid, &logical])?,
        }
    }
    let has_grid = |i: usize| grids.get(i).copied().flatten().is_some();
    arranged(
        block,
        &parts,
        has_grid,
        &[block.zipped_product(&tiler), block.tiled_product(&tiler), block.flat_product(&tiler)],
    )?;
    Ok(Verdict::Held)
}

/// Checks blocked and raked products, mode by mode. In a blocked product, the coordinate in the block varies
/// faster than the copy. In a raked product, the copy varies faster.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn blocked_and_raked(block: &Layout, grid: &Layout) -> Result<Verdict, Broken> {
    let (Ok(blocked), Ok(raked)) = (block.blocked_product(grid), block.raked_product(grid)) else {
        return Ok(Verdict::NoResult);
    };
    let counts: Vec<_> = Oracle::of(grid).modes().iter().map(Oracle::size).collect();
    let steps: Vec<_> = Oracle::of(grid).modes();
    let number = |place: &[i64]| place.iter().zip(&steps).map(|(&c, mode)| mode.at(c)).sum();
    assembled(block, &counts, number, &blocked, false)?;
    assembled(block, &counts, number, &raked, true)?;
    Ok(Verdict::Held)
}

/// Checks `tile_to_shape`: copies of the block fill the shape, first along mode `order[0]`.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn filled_shape(block: &Layout, counts: &[i64], order: &[usize]) -> Result<Verdict, Broken> {
    let sizes: Vec<_> = Oracle::of(block).modes().iter().map(Oracle::size).collect();
    let shape: Vec<_> = sizes.iter().zip(counts).map(|(s, n)| s * n).collect();
    let Ok(r) = block.tile_to_shape(&shape, order) else { return Ok(Verdict::NoResult) };
    let number = |place: &[i64]| {
        let digits = order.iter().rev().map(|&mode| (place[mode], counts[mode]));
        digits.fold(0, |number, (digit, count)| number * count + digit)
    };
    assembled(block, counts, number, &r, false)?;
    Ok(Verdict::Held)
}

/// Checks that `r` consists of copies of `block`, `counts[i]` along mode `i`. `number` gives the number of
/// the copy at a coordinate of the grid.
fn assembled(
    block: &Layout,
    counts: &[i64],
    number: impl Fn(&[i64]) -> i64,
    r: &Layout,
    raked: bool,
) -> Result<(), Broken> {
    let of_block = Oracle::of(block);
    let (tile, sizes) = (of_block.offsets(), of_block.modes().iter().map(Oracle::size).collect::<Vec<_>>());
    let (starts, _) = shifts(&tile, counts.iter().product::<i64>() as usize);
    let whole: Vec<_> = sizes.iter().zip(counts).map(|(s, n)| s * n).collect();
    let places = Oracle::of(r).modes();
    equal(&places.iter().map(Oracle::size).collect::<Vec<_>>(), &whole, &[block, r], "extents")?;
    for i in 0..whole.iter().product() {
        let coord = digits(&whole, i);
        let (mut inside, mut step) = (0, 1);
        let mut place = Vec::new();
        for ((c, s), n) in coord.iter().zip(&sizes).zip(counts) {
            let (within, copy) = if raked { (c / n, c % n) } else { (c % s, c / s) };
            inside += within * step;
            step *= s;
            place.push(copy);
        }
        let want = tile[inside as usize] + starts[number(&place) as usize];
        let got: i64 = places.iter().zip(&coord).map(|(mode, &c)| mode.at(c)).sum();
        equal(&got, &want, &[block, r], format_args!("the element at {coord:?}"))?;
    }
    Ok(())
}
