//! Laws of coordinate layouts.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::oracle::{Tree, digits};
use super::{Broken, Oracle, Verdict, ensure, equal};
use crate::algebra::Tiler;
use crate::coord_layout::{Basis, CoordLayout};
use crate::int_tuple::IntTuple;
use crate::layout::Layout;

/// The leaves of a coordinate layout, read from its text: extent, scale, and the text of the component.
fn leaves(coords: &CoordLayout) -> Vec<(i64, i64, String)> {
    let text = coords.to_string();
    let (shape, stride) = text.split_once(':').unwrap_or((&text, ""));
    let strides = stride.split(['(', ')', ',']).filter(|part| !part.is_empty());
    let read = |(extent, stride): (i64, &str)| {
        let (scale, component) = stride.split_once('@').unwrap_or((stride, ""));
        (extent, scale.parse().unwrap_or(i64::MIN), component.to_string())
    };
    Tree::of(&shape).leaves().into_iter().zip(strides).map(read).collect()
}

/// The components of a profile, named as in the text of a stride: the innermost mode first.
fn components(profile: &Tree, outer: &str) -> Vec<String> {
    match profile {
        Tree::Leaf(_) => Vec::from([outer.to_string()]),
        Tree::Node(members) => {
            let inner = |(i, member): (usize, &Tree)| {
                components(member, &if outer.is_empty() { i.to_string() } else { format!("{i}@{outer}") })
            };
            members.iter().enumerate().flat_map(inner).collect()
        }
    }
}

/// A coordinate layout, read from its text: per leaf the extent, the scale, and the component of the profile
/// that the stride counts along.
struct Reading {
    leaves: Vec<(i64, i64, Option<usize>)>,
    components: usize,
}

impl Reading {
    fn of(coords: &CoordLayout) -> Self {
        let names = components(&Tree::of(&coords.profile()), "");
        let place = |(extent, scale, name): (i64, i64, String)| {
            (extent, scale, names.iter().position(|other| *other == name))
        };
        Self { leaves: leaves(coords).into_iter().map(place).collect(), components: names.len() }
    }

    /// The coordinate: per component, the sum of digits times scales.
    fn at(&self, coord: i64) -> Vec<i64> {
        let (last, mut rest) = (self.leaves.len().saturating_sub(1), coord);
        let mut sums = alloc::vec![0; self.components];
        for (i, &(extent, scale, component)) in self.leaves.iter().enumerate() {
            let digit = if i == last { rest } else { rest % extent };
            rest /= extent;
            if let Some(component) = component {
                sums[component] += digit * scale;
            }
        }
        sums
    }

    /// All coordinates.
    fn all(&self) -> Vec<Vec<i64>> {
        (0..self.leaves.iter().map(|leaf| leaf.0).product()).map(|i| self.at(i)).collect()
    }
}

/// The leaves of a coordinate that a layout yields.
fn yielded(coord: &IntTuple) -> Vec<i64> {
    Tree::of(coord).leaves()
}

/// Checks an identity layout: it yields its own coordinates, both as a whole and divided into tiles.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn identity(shape: &IntTuple, tile: &[i64]) -> Result<Verdict, Broken> {
    let Ok(identity) = CoordLayout::identity(*shape) else { return Ok(Verdict::NoResult) };
    let extents = Tree::of(shape).leaves();
    let size: i64 = extents.iter().product();
    let reading = Reading::of(&identity);
    for i in 0..size {
        let got = Tree::of(&identity.at(i)).leaves();
        equal(&got, &digits(&extents, i), &[], format_args!("{identity} at {i}"))?;
        equal(&got, &reading.at(i), &[], format_args!("{identity} at {i}"))?;
        let at_coord = identity.at_coord(&shape.idx2crd(i)).map(|coord| Tree::of(&coord).leaves());
        equal(&at_coord, &Ok(digits(&extents, i)), &[], format_args!("{identity} at {i}"))?;
    }
    equal(&Tree::of(&identity.profile()).congruent(&Tree::of(shape)), &true, &[], "profile")?;
    // Tile `c` of a flat shape starts at `c` times the tile's extents.
    let modes: Vec<_> = Tree::of(shape).modes().iter().map(Tree::product).collect();
    let tile: Vec<_> = modes.iter().zip(tile).map(|(m, t)| (1 + t % m).min(*m)).collect();
    let flat = IntTuple::flat(&modes).and_then(CoordLayout::identity);
    let tiler = IntTuple::flat(&tile).unwrap_or(IntTuple::EMPTY);
    let tiles = flat.and_then(|flat| flat.zipped_divide_by(&Tiler::Shape(&tiler)));
    let Ok(tiles) = tiles else { return Ok(Verdict::NoResult) };
    let counts: Vec<_> = modes.iter().zip(&tile).map(|(m, t)| m / t + i64::from(m % t > 0)).collect();
    for c in 0..counts.iter().product() {
        for i in [0, tile.iter().product::<i64>() - 1] {
            let want: Vec<_> = digits(&counts, c)
                .iter()
                .zip(&tile)
                .zip(digits(&tile, i))
                .map(|((c, t), i)| c * t + i)
                .collect();
            let got = Tree::of(&tiles.at_modes(&[i, c])).leaves();
            equal(&got, &want, &[], format_args!("{tiles} at ({i},{c})"))?;
            let sliced = tiles.slice(&[None, Some(c)]).map(|(part, start)| {
                let (part, start) = (Tree::of(&part.at(i)).leaves(), Tree::of(&start).leaves());
                part.iter().zip(&start).map(|(p, s)| p + s).collect::<Vec<_>>()
            });
            equal(&sliced, &Ok(want), &[], format_args!("slice {c} of {tiles}"))?;
        }
    }
    Ok(Verdict::Held)
}

/// Checks a coordinate layout C. Each component of `C(i)` is the sum of digits times strides. A composition
/// with B is `C(B(i))`. A composition of A with C is A at the coordinates that C yields; A has a shape with
/// the profile of C. Edits act on the modes.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn coordinate_layout(coords: &CoordLayout, b: &Layout, a: &Layout) -> Result<Verdict, Broken> {
    let what = format!("{coords}");
    let reading = Reading::of(coords);
    let places = reading.all();
    let coalesced = Reading::of(&coords.coalesce());
    for (i, want) in (0..).zip(&places) {
        equal(&yielded(&coords.at(i)), want, &[], format_args!("{what} at {i}"))?;
        equal(&coalesced.at(i), want, &[], format_args!("{what}, coalesced, at {i}"))?;
    }
    let most = |k: usize| places.iter().map(|place| 1 + place[k]).max().unwrap_or(1);
    let extents: Vec<_> = (0..reading.components).map(most).collect();
    equal(&yielded(&coords.coshape()), &extents, &[], format_args!("coshape of {what}"))?;
    // The profile of the strides names all their components.
    let strides: Vec<_> = (0..coords.shape().len()).map(|i| coords.stride(i)).collect();
    let profile = Basis::coprofile(&strides).map(|profile| {
        let own = components(&Tree::of(&profile), "");
        leaves(coords).iter().all(|leaf| leaf.1 == 0 || own.contains(&leaf.2))
    });
    equal(&profile, &Ok(true), &[], format_args!("coprofile of {what}"))?;
    if let Ok(walked) = coords.composition(b) {
        let walked = Reading::of(&walked);
        for (i, &c) in (0..).zip(&Oracle::of(b).offsets()) {
            equal(&walked.at(i), &reading.at(c), &[b], format_args!("{what} o {b}"))?;
        }
    }
    // The identity of all coordinates that occur changes nothing.
    let same = CoordLayout::identity(coords.coshape()).and_then(|all| coords.then(&all));
    let same = same.map(|same| Reading::of(&same).all());
    equal(&same, &Ok(places.clone()), &[], format_args!("an identity o {what}"))?;
    // Edits rearrange the modes.
    let own = leaves(coords);
    let mut ends = alloc::vec![0];
    for mode in Tree::of(&coords.shape()).modes() {
        ends.push(ends[ends.len() - 1] + mode.leaves().len());
    }
    let rank = ends.len() - 1;
    let part = |modes: &[usize]| {
        modes.iter().flat_map(|&mode| own[ends[mode]..ends[mode + 1]].to_vec()).collect::<Vec<_>>()
    };
    let backwards: Vec<_> = (0..rank).rev().collect();
    for (edit, got, want) in [
        ("select", coords.select(&backwards), part(&backwards)),
        ("take", coords.take(rank - 1, rank), part(&[rank - 1])),
        ("group", coords.group(0, rank), own.clone()),
        ("flatten", Ok(coords.flatten()), own.clone()),
        ("mode", Ok(coords.mode(rank - 1)), part(&[rank - 1])),
    ] {
        equal(&got.map(|got| leaves(&got)), &Ok(want), &[], format_args!("{edit} of {what}"))?;
    }
    let Ok(after) = a.composition_coords(coords) else { return Ok(Verdict::NoResult) };
    // The layout of the profile's shape has one leaf per component.
    let steps: Vec<_> = Oracle::of(a).leaves().iter().map(|leaf| leaf.1).collect();
    let want: Vec<i64> =
        places.iter().map(|place| place.iter().zip(&steps).map(|(c, step)| c * step).sum()).collect();
    equal(&Oracle::of(&after).offsets(), &want, &[a, &after], format_args!("{a} o {what}"))?;
    Ok(Verdict::Held)
}

/// For each leaf of the coarser tree `profile`, the product of the part of `tree` at that leaf.
fn parts(profile: &Tree, tree: &Tree) -> Vec<i64> {
    match profile {
        Tree::Leaf(_) => Vec::from([tree.product()]),
        Tree::Node(members) => {
            members.iter().zip(tree.modes()).flat_map(|(member, mode)| parts(member, &mode)).collect()
        }
    }
}

/// A coordinate as one integer, the first component fastest.
fn number(coord: &[i64], extents: &[i64]) -> i64 {
    coord.iter().zip(extents).rev().fold(0, |number, (c, extent)| number * extent + c)
}

/// Checks the inverses of a coordinate layout C. The right inverse gives the index of every coordinate in a
/// box that starts at 0; no leaf of C continues where the box ends. The left inverse gives the index of every
/// coordinate that occurs; it exists only if no coordinate occurs twice.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn coordinate_inverses(coords: &CoordLayout) -> Result<Verdict, Broken> {
    let (reading, profile) = (Reading::of(coords), Tree::of(&coords.profile()));
    let places = reading.all();
    let Ok(right) = coords.right_inverse() else { return Ok(Verdict::NoResult) };
    let extents = parts(&profile, &Tree::of(&right.shape()));
    for (i, place) in (0..).zip(Oracle::of(&right).offsets()) {
        let got = usize::try_from(place).ok().and_then(|place| places.get(place));
        equal(&got, &Some(&digits(&extents, i)), &[&right], format!("{coords} at {place}, found for {i}"))?;
    }
    let goes_on = reading
        .leaves
        .iter()
        .any(|&(extent, scale, component)| extent > 1 && component.is_some_and(|k| scale == extents[k]));
    equal(&goes_on, &false, &[&right], format!("a leaf of {coords} continues where the box ends"))?;
    let Ok(left) = coords.left_inverse() else { return Ok(Verdict::Held) };
    // Beyond its last mode, the integer of a component continues.
    let modes = parts(&profile, &Tree::of(&left.shape()));
    let size: i64 = modes.iter().product();
    let oracle = Oracle::of(&left);
    for (i, place) in (0..).zip(&places) {
        if place.iter().zip(&modes).all(|(c, extent)| c < extent) {
            let got = oracle.at(number(place, &modes));
            equal(&got, &i, &[&left], format!("{place:?}, which is {coords} at {i}"))?;
        } else {
            ensure(false, &[&left], || format!("{place:?} of {coords} is not among {size}"))?;
        }
    }
    Ok(Verdict::Held)
}
