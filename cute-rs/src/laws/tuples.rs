//! Laws of integer tuples.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::oracle::{Tree, digits};
use super::{Broken, Verdict, equal};
use crate::int_tuple::IntTuple;

/// Checks the rank, depth, modes, paths, nesting and arithmetic of a tuple against the tree that its text
/// shows.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn tuple_structure(tuple: &IntTuple) -> Result<Verdict, Broken> {
    let tree = Tree::of(tuple);
    let (modes, leaves) = (tree.modes(), tree.leaves());
    equal(
        &(tuple.rank(), tuple.depth(), tuple.len()),
        &(modes.len(), tree.depth(), leaves.len()),
        &[],
        "structure",
    )?;
    for (i, mode) in modes.iter().enumerate() {
        equal(&tuple.mode(i).to_string(), &mode.to_string(), &[], "a mode")?;
        if matches!(tree, Tree::Node(_)) {
            equal(&tuple.get(&[i]).map(|part| part.to_string()), &Ok(mode.to_string()), &[], "a path")?;
        }
    }
    let flat: Vec<_> = leaves.iter().map(ToString::to_string).collect();
    let flat = if matches!(tree, Tree::Leaf(_)) { flat.concat() } else { format!("({})", flat.join(",")) };
    equal(&tuple.flatten().to_string(), &flat, &[], "flattened")?;
    let each = modes.iter().map(Tree::product).collect::<Vec<_>>();
    equal(&tuple.product_each().map(|each| Tree::of(&each).leaves()), &Ok(each), &[], "product_each")?;
    let ints = (tuple.product(), tuple.sum(), tuple.max(), tuple.min());
    let (max, min) = (leaves.iter().copied().max(), leaves.iter().copied().min());
    let want = (Ok(leaves.iter().product()), Ok(leaves.iter().sum()), max.unwrap_or(0), min.unwrap_or(0));
    equal(&ints, &want, &[], "product, sum, max and min")?;
    let running: Vec<i64> = (0..leaves.len()).map(|i| leaves[..i].iter().product()).collect();
    equal(
        &tuple.prefix_product().map(|running| Tree::of(&running).leaves()),
        &Ok(running),
        &[],
        "prefix_product",
    )?;
    let lists = (tuple.leaves().collect(), tuple.modes().map(|mode| mode.to_string()).collect());
    let texts: Vec<_> = modes.iter().map(ToString::to_string).collect();
    equal(&lists, &(leaves.clone(), texts), &[], "leaves and modes")?;
    let doubled: Vec<_> = leaves.iter().map(|leaf| 2 * leaf + 1).collect();
    let mapped = tuple.map(|leaf| 2 * leaf + 1);
    let alike = Tree::of(&mapped).congruent(&tree);
    equal(&(Tree::of(&mapped).leaves(), alike), &(doubled, true), &[], "map")?;
    let absolute: Vec<_> = leaves.iter().map(|leaf| leaf.abs()).collect();
    let top = absolute.iter().copied().max().unwrap_or(0);
    equal(&tuple.abs().map(|absolute| Tree::of(&absolute).leaves()), &Ok(absolute), &[], "absolute values")?;
    let signs: Vec<_> = leaves.iter().map(|leaf| leaf.signum()).collect();
    equal(&Tree::of(&tuple.signum()).leaves(), &signs, &[], "signs")?;
    let gcd = (1..=top).rev().find(|d| leaves.iter().all(|leaf| leaf % d == 0)).unwrap_or(0);
    equal(&tuple.gcd(), &Ok(gcd), &[], "gcd")?;
    let lcm = tuple.lcm().unwrap_or(-1);
    let zero = leaves.contains(&0);
    let multiple = if zero { lcm == 0 } else { lcm > 0 && leaves.iter().all(|leaf| lcm % leaf == 0) };
    equal(&multiple, &true, &[], "a common multiple")?;
    if !zero && lcm <= 5000 {
        let smaller = (1..lcm).any(|m| leaves.iter().all(|leaf| m % leaf == 0));
        equal(&smaller, &false, &[], "no smaller common multiple")?;
    }
    Ok(Verdict::Held)
}

/// Checks congruence, weak congruence, compatibility, the three orders and element-wise arithmetic of two
/// tuples against their trees.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn tuple_relations(a: &IntTuple, b: &IntTuple) -> Result<Verdict, Broken> {
    let (x, y) = (Tree::of(a), Tree::of(b));
    let of_trees = (x.congruent(&y), x.refined_by(&y, false), x.refined_by(&y, true));
    equal(&(a.congruent(b), a.weakly_congruent(b), a.compatible(b)), &of_trees, &[], "relations")?;
    let (u, v) = (x.leaves(), y.leaves());
    let reversed = |leaves: &[i64]| leaves.iter().rev().copied().collect::<Vec<_>>();
    let (ru, rv) = (reversed(&u), reversed(&v));
    let alike = x.congruent(&y);
    let got = [a.elem_less(b), a.elem_leq(b), a.lex_less(b), a.lex_leq(b), a.colex_less(b), a.colex_leq(b)];
    let want = [
        u.iter().zip(&v).all(|(a, b)| a < b),
        u.iter().zip(&v).all(|(a, b)| a <= b),
        u < v,
        u <= v,
        ru < rv,
        ru <= rv,
    ];
    equal(&got, &want.map(|holds| alike && holds), &[], format_args!("orders of {a} and {b}"))?;
    let scaled = a.elem_scale(b).map(|scaled| Tree::of(&scaled).leaves());
    let want = x.refined_by(&y, false).then(|| products(&x, &y));
    equal(&scaled.ok(), &want, &[], "elem_scale")?;
    if alike {
        let each = |f: fn(i64, i64) -> i64| u.iter().zip(&v).map(|(&a, &b)| f(a, b)).collect::<Vec<_>>();
        let leaves = |tuple: Result<IntTuple, _>| tuple.map(|tuple| Tree::of(&tuple).leaves());
        equal(&leaves(a.elem_add(b)), &Ok(each(|a, b| a + b)), &[], "elem_add")?;
        equal(&leaves(a.elem_max(b)), &Ok(each(Ord::max)), &[], "elem_max")?;
        equal(&leaves(a.elem_min(b)), &Ok(each(Ord::min)), &[], "elem_min")?;
        equal(&a.inner_product(b), &Ok(each(|a, b| a * b).iter().sum()), &[], "inner_product")?;
        let mut even = true;
        for (a, b) in u.iter().zip(&v) {
            even &= *b != 0 && a % b == 0;
        }
        equal(&a.evenly_divides(b), &even, &[], "evenly_divides")?;
    }
    Ok(Verdict::Held)
}

/// Each leaf of `a` times the product of the part of `b` at that leaf.
fn products(a: &Tree, b: &Tree) -> Vec<i64> {
    match (a, b) {
        (Tree::Leaf(a), b) => Vec::from([a * b.product()]),
        (Tree::Node(a), Tree::Node(b)) => a.iter().zip(b).flat_map(|(a, b)| products(a, b)).collect(),
        (Tree::Node(_), Tree::Leaf(_)) => Vec::new(),
    }
}

/// Checks coordinates: integer, flat and nested coordinates of a shape convert into each other, in the order
/// of the integers.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn coordinates(shape: &IntTuple, other: &IntTuple) -> Result<Verdict, Broken> {
    let tree = Tree::of(shape);
    let (leaves, sizes) = (tree.leaves(), tree.modes().iter().map(Tree::product).collect::<Vec<_>>());
    let size: i64 = leaves.iter().product();
    let nested = |values: &[i64]| {
        let mut text = Tree::of(&shape.filled(0));
        fill(&mut text, &mut values.iter().copied());
        text.to_string()
    };
    let mut next = Some(shape.filled(0));
    for i in 0..size {
        let coord = shape.idx2crd(i);
        equal(
            &coord.to_string(),
            &nested(&digits(&leaves, i)),
            &[],
            format_args!("coordinate {i} of {shape}"),
        )?;
        equal(&next, &Some(coord), &[], format_args!("the coordinate after {} of {shape}", i - 1))?;
        next = next.and_then(|coord| shape.increment(&coord));
        let by_mode =
            IntTuple::flat(&digits(&sizes, i)).map(|flat| if shape.is_int() { coord } else { flat });
        let index = by_mode.and_then(|by_mode| shape.crd2idx(&by_mode));
        equal(&(shape.crd2idx(&coord), index), &(Ok(i), Ok(i)), &[], format_args!("index {i} of {shape}"))?;
        let there = Tree::of(other).leaves();
        let (last, front) = (there.len() - 1, &there[..there.len() - 1]);
        let mut want = digits(&there, i);
        want[last] = i / front.iter().product::<i64>();
        let got = shape.crd2crd(&coord, other).map(|coord| Tree::of(&coord).leaves());
        equal(&got, &Ok(want), &[], format_args!("coordinate {coord} of {shape} in {other}"))?;
    }
    equal(&next, &None, &[], format_args!("the coordinate after the last of {shape}"))?;
    equal(&(shape.coords().count() as i64), &size, &[], "coords")?;
    Ok(Verdict::Held)
}

/// Checks `coords_in`: the coordinates of a shape come in the given order. The leaf with the largest number
/// in `order` varies slowest; among equal numbers, the rightmost leaf does.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn ordered_coordinates(shape: &IntTuple, order: &IntTuple) -> Result<Verdict, Broken> {
    let Ok(coords) = shape.coords_in(order) else { return Ok(Verdict::NoResult) };
    let (extents, numbers) = (Tree::of(shape).leaves(), Tree::of(order).leaves());
    // If the order is coarser than the shape, all its leaves have the same number here: the leftmost varies
    // fastest.
    let of_leaf = if numbers.len() == extents.len() { numbers } else { alloc::vec![0; extents.len()] };
    let mut slowest: Vec<_> = (0..extents.len()).collect();
    slowest.sort_by_key(|&leaf| core::cmp::Reverse((of_leaf[leaf], leaf)));
    let mut all: Vec<_> = (0..extents.iter().product()).map(|i| digits(&extents, i)).collect();
    all.sort_by_key(|coord| slowest.iter().map(|&leaf| coord[leaf]).collect::<Vec<_>>());
    let got: Vec<_> = coords.map(|coord| Tree::of(&coord).leaves()).collect();
    equal(&got, &all, &[], format_args!("coordinates of {shape} in the order {order}"))?;
    Ok(Verdict::Held)
}

/// Puts values into the leaves of a tree.
fn fill(tree: &mut Tree, values: &mut impl Iterator<Item = i64>) {
    match tree {
        Tree::Leaf(leaf) => *leaf = values.next().unwrap_or(*leaf),
        Tree::Node(members) => members.iter_mut().for_each(|member| fill(member, values)),
    }
}

/// Checks division of shapes. `shape_div` divides the extents from the left, `shape_mod` keeps the factors
/// that `shape_div` removes, and `ceil_div` and `round_up` round up.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn shape_division(shape: &IntTuple, n: i64) -> Result<Verdict, Broken> {
    let leaves = Tree::of(shape).leaves();
    let size: i64 = leaves.iter().product();
    let up = |a: i64| (0..).find(|q| q * n >= a).unwrap_or(0);
    equal(&shape.ceil_div(&IntTuple::int(n)), &Ok(IntTuple::int(up(size))), &[], "ceil_div")?;
    equal(&shape.round_up(&IntTuple::int(n)), &Ok(IntTuple::int(up(size) * n)), &[], "round_up")?;
    let divisors = IntTuple::flat(&alloc::vec![n; shape.rank()]).unwrap_or(IntTuple::EMPTY);
    if !shape.is_int() {
        let each: Vec<_> = Tree::of(shape).modes().iter().map(|mode| up(mode.product())).collect();
        let got = shape.ceil_div(&divisors).map(|grid| Tree::of(&grid).leaves());
        equal(&got, &Ok(each), &[], "ceil_div mode by mode")?;
    }
    let Ok(rest) = shape.shape_div(&IntTuple::int(n)) else { return Ok(Verdict::NoResult) };
    let rests = Tree::of(&rest).leaves();
    let what = format!("{shape} / {n} = {rest}");
    equal(&Tree::of(shape).congruent(&Tree::of(&rest)), &true, &[], &what)?;
    let even = leaves.iter().zip(&rests).all(|(a, r)| a % r == 0);
    let taken: Vec<_> = leaves.iter().zip(&rests).map(|(a, r)| a / r).collect();
    let count: i64 = taken.iter().product();
    equal(&(even, rests.iter().product::<i64>()), &(true, up(size)), &[], &what)?;
    // From the left: every extent before the last divided one becomes 1.
    let last = taken.iter().rposition(|&q| q > 1).unwrap_or(0);
    equal(&rests[..last].iter().all(|&r| r == 1), &true, &[], &what)?;
    if count == n {
        let kept = shape.shape_mod(n).map(|kept| Tree::of(&kept).leaves());
        equal(&kept, &Ok(taken), &[], format_args!("{shape} % {n}"))?;
    }
    Ok(Verdict::Held)
}

/// Checks edits of tuples: each does to the list of modes what its name says.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn tuple_edits(a: &IntTuple, b: &IntTuple, i: usize, j: usize) -> Result<Verdict, Broken> {
    let (x, y) = (Tree::of(a), Tree::of(b));
    let modes = x.modes();
    let (i, j) = (i % modes.len(), j % modes.len());
    let (low, high) = (i.min(j), i.max(j) + 1);
    let node = |modes: Vec<Tree>| Ok(Tree::Node(modes).to_string());
    let with = |edit: &dyn Fn(&mut Vec<Tree>)| {
        let mut edited = modes.clone();
        edit(&mut edited);
        node(edited)
    };
    let text = |tuple: Result<IntTuple, crate::LayoutError>| tuple.map(|tuple| tuple.to_string());
    let (int, one) = (matches!(x, Tree::Leaf(_)), Ok(y.to_string()));
    for (what, got, want) in [
        ("append", text(a.append(b)), with(&|modes| modes.push(y.clone()))),
        ("prepend", text(a.prepend(b)), with(&|modes| modes.insert(0, y.clone()))),
        ("insert", text(a.insert(i, b)), with(&|modes| modes.insert(i, y.clone()))),
        ("replace", text(a.replace(i, b)), if int { one } else { with(&|modes| modes[i] = y.clone()) }),
        ("take", text(a.take(low, high)), node(modes[low..high].to_vec())),
        ("select", text(a.select(&[j, i])), node(Vec::from([modes[j].clone(), modes[i].clone()]))),
        (
            "group",
            text(a.group(low, high)),
            if int {
                node(modes.clone())
            } else {
                with(&|modes| {
                    let group = modes.drain(low..high).collect();
                    modes.insert(low, Tree::Node(group));
                })
            },
        ),
        (
            "concat",
            text(IntTuple::concat(&[*a, *b, *a])),
            node([modes.clone(), y.modes(), modes.clone()].concat()),
        ),
        ("repeat", text(a.repeat(2)), node(Vec::from([x.clone(), x.clone()]))),
        ("wrap", text(a.wrap()), node(Vec::from([x.clone()]))),
        ("unflatten", text(a.flatten().unflatten(a)), Ok(x.to_string())),
    ] {
        equal(&got, &want, &[], format_args!("{what} of {a} and {b} at {i}, {j}"))?;
    }
    if modes.len() > 1 {
        equal(&text(a.remove(i)), &with(&|modes| drop(modes.remove(i))), &[], "remove")?;
    }
    equal(&a.reverse().to_string(), &mirrored(&x).to_string(), &[], format_args!("reverse of {a}"))?;
    if modes.len() == y.modes().len() {
        let pairs = modes.iter().cloned().zip(y.modes()).map(|(a, b)| Tree::Node(Vec::from([a, b])));
        equal(&text(a.zip(b)), &node(pairs.collect()), &[], format_args!("zip of {a} and {b}"))?;
    }
    // A profile with an integer in place of one of the modes.
    if !int {
        let mut coarse = modes.clone();
        coarse[i] = Tree::Leaf(modes[i].product());
        let profile = a.replace(i, &IntTuple::int(0));
        let got = profile.and_then(|profile| a.product_like(&profile));
        equal(&text(got), &node(coarse), &[], format_args!("product_like of {a}, mode {i}"))?;
    }
    Ok(Verdict::Held)
}

fn mirrored(tree: &Tree) -> Tree {
    match tree {
        Tree::Leaf(value) => Tree::Leaf(*value),
        Tree::Node(members) => Tree::Node(members.iter().rev().map(mirrored).collect()),
    }
}
