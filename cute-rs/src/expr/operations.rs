//! The operations that an expression can call: one line of a table each.

use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use super::argument::{Argument, Operand};
use super::{Fault, Value, range};
use crate::composed::ComposedLayout;
use crate::error::LayoutError;
use crate::layout::Layout;

/// An operation that an expression can call.
#[derive(Clone)]
pub struct Operation {
    /// As CuTe calls it.
    pub name: &'static str,
    /// How a call is written.
    pub usage: &'static str,
    /// How many arguments it takes.
    pub(super) arguments: RangeInclusive<usize>,
    pub(super) apply: Apply,
}

type Apply = fn(&[Argument]) -> Result<Value, Failure>;

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.usage)
    }
}

/// The operations that an expression can call.
///
/// In their usage `L`, `A` and `B` are layouts or shapes, `T` is a layout or a tiler `<…>`, `S` a shape, `C` a coordinate
/// that may hold `_`, lower-case letters are integers, and what is in brackets may be left out.
///
/// ```
/// use cute_rs::expr::operations;
///
/// assert!(operations().iter().any(|operation| operation.usage == "composition(A,T)"));
/// ```
pub const fn operations() -> &'static [Operation] {
    OPERATIONS
}

/// Why an operation has no result.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "errors of the algebra are values without a heap")]
pub(super) enum Failure {
    /// The algebra has none.
    Algebra(LayoutError),
    /// The numbers would leave the range that is computed with.
    Large,
    /// An argument is not what it must be.
    Argument(Fault),
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        Self::Algebra(error)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Argument(fault)
    }
}

const fn operation(usage: &'static str, arguments: RangeInclusive<usize>, apply: Apply) -> Operation {
    let mut end = 0;
    while end < usage.len() && usage.as_bytes()[end] != b'(' {
        end += 1;
    }
    Operation { name: usage.split_at(end).0, usage, arguments, apply }
}

const OPERATIONS: &[Operation] = &[
    // Parts and numbers.
    operation("shape(L)", 1..=1, |a| Ok(a[0].composed()?.layout.shape().into())),
    operation("stride(L)", 1..=1, |a| Ok(a[0].composed()?.layout.stride().into())),
    operation("size(L)", 1..=1, |a| Ok(a[0].composed()?.layout.size().into())),
    operation("cosize(L)", 1..=1, |a| Ok(a[0].layout()?.cosize().into())),
    operation("rank(L)", 1..=1, |a| count(a[0].composed()?.layout.rank())),
    operation("depth(L)", 1..=1, |a| count(a[0].composed()?.layout.depth())),
    operation("get(L,i)", 2..=2, |a| {
        let i = a[1].index()?;
        inside(a, |l| if i < l.rank() { Ok(l.mode(i)) } else { Err(rank(i + 1, l.rank())) })
    }),
    operation("at(L,c)", 2..=2, |a| at(&a[0], &a[1])),
    operation("crd2idx(c,L)", 2..=2, |a| at(&a[1], &a[0])),
    operation("idx2crd(i,L)", 2..=2, |a| Ok(a[1].composed()?.layout.coord(a[0].int()?).into())),
    operation("shape_div(S,S)", 2..=2, |a| Ok(a[0].shape()?.shape_div(&a[1].shape()?)?.into())),
    operation("ceil_div(S,S)", 2..=2, |a| Ok(a[0].shape()?.ceil_div(&a[1].shape()?)?.into())),
    // Making and editing.
    operation("column_major(S)", 1..=1, |a| Ok(Layout::column_major(a[0].shape()?)?.into())),
    operation("row_major(S)", 1..=1, |a| Ok(Layout::row_major(a[0].shape()?)?.into())),
    operation("make_layout(A,B,…)", 1..=32, |a| {
        let modes: Vec<_> = a.iter().map(Argument::layout).collect::<Result<_, _>>()?;
        Ok(Layout::concat(&modes)?.into())
    }),
    operation("make_ordered_layout(S,order)", 2..=2, |a| {
        Ok(Layout::ordered(a[0].shape()?, &a[1].tuple()?)?.into())
    }),
    operation("make_layout_like(L)", 1..=1, |a| Ok(a[0].layout()?.compact_like()?.into())),
    operation("coalesce(L)", 1..=1, |a| inside(a, |l| Ok(l.coalesce()))),
    operation("filter(L)", 1..=1, |a| inside(a, filter)),
    operation("flatten(L)", 1..=1, |a| inside(a, |l| Ok(l.flatten()))),
    operation("group(L,begin,end)", 3..=3, |a| {
        let (begin, end) = (a[1].index()?, a[2].index()?);
        inside(a, |l| Ok(l.group(begin, end)?))
    }),
    operation("take(L,begin,end)", 3..=3, |a| {
        let (begin, end) = (a[1].index()?, a[2].index()?);
        inside(a, |l| Ok(l.take(begin, end)?))
    }),
    operation("select(L,i,j,…)", 2..=33, |a| {
        let modes: Vec<_> = a[1..].iter().map(Argument::index).collect::<Result<_, _>>()?;
        inside(a, |l| Ok(l.select(&modes)?))
    }),
    operation("append(L,B)", 2..=2, |a| Ok(a[0].layout()?.append(&a[1].layout()?)?.into())),
    operation("prepend(L,B)", 2..=2, |a| Ok(a[0].layout()?.prepend(&a[1].layout()?)?.into())),
    operation("replace(L,i,B)", 3..=3, |a| {
        Ok(a[0].layout()?.replace(a[1].index()?, &a[2].layout()?)?.into())
    }),
    operation("reverse(L)", 1..=1, |a| inside(a, |l| Ok(l.reverse()))),
    operation("zip(A,B)", 2..=2, |a| Ok(a[0].layout()?.zip(&a[1].layout()?)?.into())),
    operation("with_shape(L,S)", 2..=2, |a| {
        let walk = Layout::column_major(a[1].shape()?)?;
        inside(a, |l| compose(l, &walk))
    }),
    operation("slice(C,L)", 2..=2, |a| part(a, true)),
    operation("dice(C,L)", 2..=2, |a| part(a, false)),
    // Composition and inverses.
    operation("composition(A,T)", 2..=2, |a| inside(a, |l| by_mode(l, &a[1], compose))),
    operation("complement(L[,n])", 1..=2, complement),
    operation("right_inverse(L)", 1..=1, |a| Ok(a[0].layout()?.right_inverse()?.into())),
    operation("left_inverse(L)", 1..=1, |a| Ok(a[0].layout()?.left_inverse()?.into())),
    // Tiles and copies.
    operation("logical_divide(L,T)", 2..=2, |a| inside(a, |l| by_mode(l, &a[1], divide))),
    operation("zipped_divide(L,T)", 2..=2, |a| {
        inside(a, |l| tile_and_rest(l, &a[1]).and_then(|(tile, rest)| concat(&[tile, rest])))
    }),
    operation("tiled_divide(L,T)", 2..=2, |a| {
        inside(a, |l| {
            tile_and_rest(l, &a[1]).and_then(|(tile, rest)| concat(&[&[tile][..], &modes(&rest)].concat()))
        })
    }),
    operation("flat_divide(L,T)", 2..=2, |a| {
        inside(a, |l| {
            tile_and_rest(l, &a[1]).and_then(|(tile, rest)| concat(&[modes(&tile), modes(&rest)].concat()))
        })
    }),
    operation("logical_product(A,B)", 2..=2, |a| product(a, Layout::logical_product)),
    operation("blocked_product(A,B)", 2..=2, |a| product(a, Layout::blocked_product)),
    operation("raked_product(A,B)", 2..=2, |a| product(a, raked_product)),
    operation("tile_to_shape(A,S[,order])", 2..=3, tile_to_shape),
];

fn rank(needed: usize, given: usize) -> Failure {
    LayoutError::Rank { needed, given }.into()
}

fn count(value: usize) -> Result<Value, Failure> {
    i64::try_from(value).map(Value::Int).map_err(|_| Failure::Large)
}

/// Changes the coordinates of the first argument: what comes after the layout stays.
fn inside(
    arguments: &[Argument],
    change: impl FnOnce(&Layout) -> Result<Layout, Failure>,
) -> Result<Value, Failure> {
    let composed = arguments[0].composed()?;
    let layout = change(&composed.layout)?;
    Ok(if arguments[0].is_composed() { ComposedLayout { layout, ..composed }.into() } else { layout.into() })
}

fn at(layout: &Argument, coord: &Argument) -> Result<Value, Failure> {
    let (composed, coord) = (layout.composed()?, coord.tuple()?);
    if !(0..coord.len()).all(|i| range::reaches(&composed.layout, coord.leaf(i))) {
        return Err(Failure::Large);
    }
    let offset = composed.offset + composed.layout.at_coord(&coord)?;
    Ok(composed.swizzle.apply(offset.cast_unsigned()).cast_signed().into())
}

/// The modes that a coordinate keeps open, or else those that it fixes.
fn part(a: &[Argument], open: bool) -> Result<Value, Failure> {
    let is_layout = |argument: &Argument| matches!(argument.operand, Operand::Value(Value::Layout(_)));
    // A layout first is read as well: `slice(L,C)`.
    let (coord, target) =
        if is_layout(&a[0]) || a[0].is_composed() { (&a[1], &a[0]) } else { (&a[0], &a[1]) };
    let composed = target.composed()?;
    if matches!(coord.operand, Operand::Keep) && open {
        return inside(core::slice::from_ref(target), |l| Ok(*l));
    }
    let mut cut = Cut { coord, open, kept: Vec::new(), offset: 0 };
    cut.at(&composed.layout, &coord.operand)?;
    let layout = Layout::concat(&cut.kept)?;
    let offset = composed.offset + if open { cut.offset } else { 0 };
    Ok(if target.is_composed() {
        ComposedLayout { layout, offset, ..composed }.into()
    } else {
        layout.into()
    })
}

/// A layout cut at a coordinate.
struct Cut<'a> {
    coord: &'a Argument,
    /// Whether open modes are kept, or fixed ones.
    open: bool,
    kept: Vec<Layout>,
    /// Of the fixed modes.
    offset: i64,
}

impl Cut<'_> {
    fn at(&mut self, layout: &Layout, coord: &Operand) -> Result<(), Failure> {
        let mut each = |count: usize, member: &dyn Fn(usize) -> Operand| {
            if count != layout.rank() || layout.shape().is_int() {
                return Err(rank(layout.rank(), count));
            }
            (0..count).try_for_each(|i| self.at(&layout.mode(i), &member(i)))
        };
        let is_open = match coord {
            Operand::Coord(members) => return each(members.len(), &|i| members[i].clone()),
            Operand::Value(Value::Tuple(tuple)) => {
                return each(tuple.rank(), &|i| Value::from(tuple.mode(i)).into());
            }
            Operand::Value(Value::Int(c)) if range::reaches(layout, *c) => {
                self.offset += layout.at(*c);
                false
            }
            Operand::Value(Value::Int(_)) => return Err(Failure::Large),
            Operand::Keep => true,
            Operand::Value(_) | Operand::Tiler(_) => {
                return Err(self.coord.instead_of("a coordinate of integers and `_`").into());
            }
        };
        if is_open == self.open {
            self.kept.push(*layout);
        }
        Ok(())
    }
}

fn complement(a: &[Argument]) -> Result<Value, Failure> {
    let layout = a[0].layout()?;
    let cotarget = match a.get(1) {
        Some(shape) => range::size(&shape.shape()?).ok_or(Failure::Large)?,
        None => layout.cosize(),
    };
    Ok(layout.complement(cotarget)?.into())
}

/// Treats each mode by the tiler's mode; modes without one, and those of `_`, stay.
fn by_mode(
    layout: &Layout,
    tiler: &Argument,
    change: fn(&Layout, &Layout) -> Result<Layout, Failure>,
) -> Result<Layout, Failure> {
    match &tiler.operand {
        Operand::Keep => Ok(*layout),
        Operand::Tiler(tilers) if tilers.len() > layout.rank() => Err(rank(layout.rank(), tilers.len())),
        Operand::Tiler(tilers) => {
            let mode = |i| match tilers.get(i) {
                Some(tiler) => by_mode(&layout.mode(i), tiler, change),
                None => Ok(layout.mode(i)),
            };
            let modes: Vec<_> = (0..layout.rank()).map(mode).collect::<Result<_, _>>()?;
            Ok(Layout::concat(&modes)?)
        }
        Operand::Value(_) | Operand::Coord(_) => change(layout, &tiler.layout()?),
    }
}

fn compose(a: &Layout, b: &Layout) -> Result<Layout, Failure> {
    if range::evaluates(a, range::span(b)) { Ok(a.composition(b)?) } else { Err(Failure::Large) }
}

fn divide(layout: &Layout, tiler: &Layout) -> Result<Layout, Failure> {
    // The tile and its complement together reach one tile beyond the layout at most.
    let reach = range::span(layout) + 2 * range::span(tiler);
    if range::evaluates(layout, reach) { Ok(layout.logical_divide(tiler)?) } else { Err(Failure::Large) }
}

/// What a division puts into the tile and what it leaves, mode by mode. The tile of `_` is the whole mode.
fn tile_and_rest(layout: &Layout, tiler: &Argument) -> Result<(Layout, Layout), Failure> {
    match &tiler.operand {
        Operand::Keep => Ok((*layout, Layout::flat(&[1], &[0])?.mode(0))),
        Operand::Tiler(tilers) if tilers.len() > layout.rank() => Err(rank(layout.rank(), tilers.len())),
        Operand::Tiler(tilers) => {
            let parts = tilers.iter().enumerate().map(|(i, tiler)| tile_and_rest(&layout.mode(i), tiler));
            let (tiles, mut rests): (Vec<_>, Vec<_>) =
                parts.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
            rests.extend((tilers.len()..layout.rank()).map(|i| layout.mode(i)));
            Ok((concat(&tiles)?, concat(&rests)?))
        }
        Operand::Value(_) | Operand::Coord(_) => {
            let divided = divide(layout, &tiler.layout()?)?;
            Ok((divided.mode(0), divided.mode(1)))
        }
    }
}

fn concat(modes: &[Layout]) -> Result<Layout, Failure> {
    Ok(Layout::concat(modes)?)
}

fn modes(layout: &Layout) -> Vec<Layout> {
    (0..layout.rank()).map(|i| layout.mode(i)).collect()
}

/// Without the modes of stride 0, which add nothing to the offsets.
fn filter(layout: &Layout) -> Result<Layout, Failure> {
    let (shape, stride) = (layout.shape(), layout.stride());
    let kept = (0..shape.len()).filter(|&i| stride.leaf(i) != 0);
    let (shape, stride): (Vec<_>, Vec<_>) = kept.map(|i| (shape.leaf(i), stride.leaf(i))).unzip();
    Ok(Layout::flat(&shape, &stride)?.coalesce())
}

/// A blocked product where the copies vary fastest.
fn raked_product(block: &Layout, grid: &Layout) -> Result<Layout, LayoutError> {
    let modes: Vec<_> = modes(&block.blocked_product(grid)?)
        .iter()
        .map(|mode| Layout::concat(&[mode.mode(1), mode.mode(0)]))
        .collect::<Result<_, _>>()?;
    Layout::concat(&modes)
}

fn product(
    a: &[Argument],
    multiply: fn(&Layout, &Layout) -> Result<Layout, LayoutError>,
) -> Result<Value, Failure> {
    let (block, grid) = (a[0].layout()?, a[1].layout()?);
    if !range::multiplies(range::span(&block), range::span(&grid)) {
        return Err(Failure::Large);
    }
    Ok(multiply(&block, &grid)?.into())
}

fn tile_to_shape(a: &[Argument]) -> Result<Value, Failure> {
    let shape = a[1].shape()?;
    let extents: Vec<_> = (0..shape.rank()).map(|i| shape.mode(i).product()).collect();
    let order: Vec<_> = match a.get(2) {
        None => (0..extents.len()).collect(),
        Some(order) => by_rank(order)?,
    };
    inside(a, |block| {
        let fits = range::size(&shape).is_some_and(|size| range::multiplies(range::span(block), size));
        if fits { Ok(block.tile_to_shape(&extents, &order)?) } else { Err(Failure::Large) }
    })
}

/// The modes of an order, as CuTe writes it (for each mode its place), in the order in which they come.
fn by_rank(order: &Argument) -> Result<Vec<usize>, Fault> {
    let places = order.tuple()?;
    let mut modes: Vec<_> = (0..places.rank()).collect();
    modes.sort_by_key(|&mode| places.mode(mode).leaf(0));
    Ok(modes)
}
