//! The table of operations that an expression can call.

use alloc::vec::Vec;
use core::fmt;
use core::ops::RangeInclusive;

use super::argument::Argument;
use super::calls::{
    at, by_rank, complement, composed, inside, integer, inverse, part, product, profiled, relation, shaped,
    side_by_side, tiled, tiled_plain,
};
use super::parts::{part_of, partition};
use super::{Fault, Value};
use crate::composed::ComposedLayout;
use crate::coord_layout::CoordLayout;
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;

/// An operation that an expression can call.
#[derive(Clone)]
pub struct Operation {
    /// The name, as in CuTe where CuTe has the operation, such as `composition`.
    pub name: &'static str,
    /// How to write a call, such as `composition(A,T)`; [`operations`] explains the letters.
    pub usage: &'static str,
    /// The allowed numbers of arguments.
    pub(super) arguments: RangeInclusive<usize>,
    pub(super) apply: Apply,
}

type Apply = fn(&[Argument]) -> Result<Value, Failure>;

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.usage)
    }
}

/// Returns all operations that an expression can call.
///
/// In [`usage`](Operation::usage), `L`, `A` and `B` are layouts or shapes. `T` is a layout or a tiler `<…>`,
/// `S` is a shape, `P` is a tuple, and `C` is a coordinate that may contain `_`. Lower-case letters are
/// integers, except that `c` may be a nested coordinate. Arguments in brackets are optional. A relation, such
/// as `congruent(P,P)`, is 1 if it holds and 0 if not.
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
    /// The algebra has no result.
    Algebra(LayoutError),
    /// The numbers would leave the range of 64-bit computation.
    Large,
    /// An argument is of the wrong kind or out of range.
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
    operation("shape(L)", 1..=1, |a| Ok(a[0].domain()?.shape().into())),
    operation("stride(L)", 1..=1, |a| Ok(a[0].composed()?.layout.stride().into())),
    operation("size(L)", 1..=1, |a| Ok(a[0].domain()?.size().into())),
    operation("cosize(L)", 1..=1, |a| match a[0].coords() {
        Some(coords) => Ok(coords.coshape().product()?.into()),
        None => Ok(a[0].composed()?.cosize().into()),
    }),
    operation("coshape(L)", 1..=1, |a| {
        Ok(a[0]
            .coords()
            .map_or_else(|| a[0].layout().map(|l| l.cosize().into()), |l| Ok(l.coshape().into()))?)
    }),
    operation("rank(L)", 1..=1, |a| integer(a[0].domain()?.rank())),
    operation("depth(L)", 1..=1, |a| integer(a[0].domain()?.depth())),
    operation("get(L,i,j,…)", 2..=9, |a| {
        let path: Vec<_> = a[1..].iter().map(Argument::index).collect::<Result<_, _>>()?;
        inside(a, |l| l.get(&path))
    }),
    operation("at(L,c)", 2..=2, |a| at(&a[0], &a[1])),
    operation("crd2idx(c,L)", 2..=2, |a| at(&a[1], &a[0])),
    operation("idx2crd(i,L)", 2..=2, |a| Ok(a[1].domain()?.coord(a[0].int()?).into())),
    operation("crd2crd(c,S,S)", 3..=3, |a| Ok(a[1].shape()?.crd2crd(&a[0].tuple()?, &a[2].shape()?)?.into())),
    operation("get_hier_coord(i,L)", 2..=2, |a| {
        let (offset, layout) = (a[0].int()?, a[1].layout()?);
        let nowhere = || a[0].nowhere(offset, &layout);
        Ok(layout.coord_of(offset).ok_or_else(nowhere)?.into())
    }),
    operation("get_1d_coord(i,L)", 2..=2, |a| {
        let (offset, layout) = (a[0].int()?, a[1].layout()?);
        let nowhere = || a[0].nowhere(offset, &layout);
        Ok(layout.index_of(offset).ok_or_else(nowhere)?.into())
    }),
    // Tuples.
    operation("product(P)", 1..=1, |a| Ok(a[0].tuple()?.product()?.into())),
    operation("product_each(P)", 1..=1, |a| Ok(a[0].tuple()?.product_each()?.into())),
    operation("product_like(P,P)", 2..=2, |a| Ok(a[0].tuple()?.product_like(&a[1].tuple()?)?.into())),
    operation("prefix_product(P)", 1..=1, |a| Ok(a[0].tuple()?.prefix_product()?.into())),
    operation("sum(P)", 1..=1, |a| Ok(a[0].tuple()?.sum()?.into())),
    operation("max(P)", 1..=1, |a| Ok(a[0].tuple()?.max().into())),
    operation("min(P)", 1..=1, |a| Ok(a[0].tuple()?.min().into())),
    operation("gcd(P)", 1..=1, |a| Ok(a[0].tuple()?.gcd()?.into())),
    operation("lcm(P)", 1..=1, |a| Ok(a[0].tuple()?.lcm()?.into())),
    operation("inner_product(P,P)", 2..=2, |a| Ok(a[0].tuple()?.inner_product(&a[1].tuple()?)?.into())),
    operation("elem_scale(P,P)", 2..=2, |a| Ok(a[0].tuple()?.elem_scale(&a[1].tuple()?)?.into())),
    operation("elem_add(P,P)", 2..=2, |a| Ok(a[0].tuple()?.elem_add(&a[1].tuple()?)?.into())),
    operation("shape_div(S,S)", 2..=2, |a| Ok(a[0].shape()?.shape_div(&a[1].shape()?)?.into())),
    operation("shape_mod(S,n)", 2..=2, |a| Ok(a[0].shape()?.shape_mod(a[1].int()?)?.into())),
    operation("ceil_div(S,S)", 2..=2, |a| Ok(a[0].shape()?.ceil_div(&a[1].shape()?)?.into())),
    operation("round_up(S,S)", 2..=2, |a| Ok(a[0].shape()?.round_up(&a[1].shape()?)?.into())),
    operation("congruent(P,P)", 2..=2, |a| relation(a, IntTuple::congruent)),
    operation("weakly_congruent(P,P)", 2..=2, |a| relation(a, IntTuple::weakly_congruent)),
    operation("compatible(S,S)", 2..=2, |a| relation(a, IntTuple::compatible)),
    operation("evenly_divides(S,S)", 2..=2, |a| relation(a, IntTuple::evenly_divides)),
    operation("elem_less(P,P)", 2..=2, |a| relation(a, IntTuple::elem_less)),
    operation("lex_less(P,P)", 2..=2, |a| relation(a, IntTuple::lex_less)),
    operation("colex_less(P,P)", 2..=2, |a| relation(a, IntTuple::colex_less)),
    // Making and editing.
    operation("column_major(S)", 1..=1, |a| Ok(Layout::column_major(a[0].shape()?)?.into())),
    operation("row_major(S)", 1..=1, |a| Ok(Layout::row_major(a[0].shape()?)?.into())),
    operation("make_layout(A,B,…)", 1..=32, side_by_side),
    operation("make_identity_layout(S)", 1..=1, |a| Ok(CoordLayout::identity(a[0].shape()?)?.into())),
    operation("make_ordered_layout(S,order)", 2..=2, |a| {
        Ok(Layout::ordered(a[0].shape()?, &a[1].tuple()?)?.into())
    }),
    operation("make_layout_like(L)", 1..=1, |a| Ok(a[0].layout()?.compact_like()?.into())),
    operation("make_fragment_like(L)", 1..=1, |a| Ok(a[0].layout()?.fragment_like()?.into())),
    operation("domain_distribute(S,n)", 2..=2, |a| {
        Ok(Layout::domain_distribute(a[0].shape()?, a[1].int()?)?.into())
    }),
    operation("coalesce(L[,P])", 1..=2, |a| profiled(a, Layout::coalesce, Layout::coalesce_by)),
    operation("coalesce_x(L)", 1..=1, |a| inside(a, |l| Ok(l.coalesce_x()))),
    operation("filter(L[,P])", 1..=2, |a| profiled(a, Layout::filter, Layout::filter_by)),
    operation("filter_zeros(L)", 1..=1, |a| inside(a, |l| Ok(l.filter_zeros()))),
    operation("flatten(L)", 1..=1, |a| inside(a, |l| Ok(l.flatten()))),
    operation("unflatten(L,P)", 2..=2, |a| {
        let profile = a[1].tuple()?;
        inside(a, |l| l.unflatten(&profile))
    }),
    operation("wrap(L)", 1..=1, |a| inside(a, Layout::wrap)),
    operation("group(L,begin,end)", 3..=3, |a| {
        let (begin, end) = (a[1].index()?, a[2].index()?);
        inside(a, |l| l.group(begin, end))
    }),
    operation("take(L,begin,end)", 3..=3, |a| {
        let (begin, end) = (a[1].index()?, a[2].index()?);
        inside(a, |l| l.take(begin, end))
    }),
    operation("select(L,i,j,…)", 2..=33, |a| {
        let modes: Vec<_> = a[1..].iter().map(Argument::index).collect::<Result<_, _>>()?;
        inside(a, |l| l.select(&modes))
    }),
    operation("append(L,B)", 2..=2, |a| Ok(a[0].layout()?.append(&a[1].layout()?)?.into())),
    operation("prepend(L,B)", 2..=2, |a| Ok(a[0].layout()?.prepend(&a[1].layout()?)?.into())),
    operation("insert(L,i,B)", 3..=3, |a| Ok(a[0].layout()?.insert(a[1].index()?, &a[2].layout()?)?.into())),
    operation("remove(L,i)", 2..=2, |a| {
        let mode = a[1].index()?;
        inside(a, |l| l.remove(mode))
    }),
    operation("replace(L,i,B)", 3..=3, |a| {
        Ok(a[0].layout()?.replace(a[1].index()?, &a[2].layout()?)?.into())
    }),
    operation("padded(L,rank)", 2..=2, |a| {
        let rank = a[1].index()?;
        inside(a, |l| l.padded(rank))
    }),
    operation("reverse(L)", 1..=1, |a| inside(a, |l| Ok(l.reverse()))),
    operation("zip(A,B)", 2..=2, |a| Ok(a[0].layout()?.zip(&a[1].layout()?)?.into())),
    operation("tile_unzip(L,n)", 2..=2, |a| {
        let count = a[1].index()?;
        inside(a, |l| l.tile_unzip(count))
    }),
    operation("with_shape(L,S)", 2..=2, |a| {
        let shape = a[1].shape()?;
        inside(a, |l| l.with_shape(shape))
    }),
    operation("slice(C,L)", 2..=2, |a| part(a, true)),
    operation("dice(C,L)", 2..=2, |a| part(a, false)),
    operation("domain_offset(c,L)", 2..=2, |a| Ok(a[1].composed()?.domain_offset(&a[0].tuple()?)?.into())),
    // Composition and inverses.
    operation("composition(A,T)", 2..=3, composed),
    operation("complement(L[,n])", 1..=2, complement),
    operation("right_inverse(L)", 1..=1, |a| inverse(&a[0], true)),
    operation("left_inverse(L)", 1..=1, |a| inverse(&a[0], false)),
    operation("nullspace(L)", 1..=1, |a| Ok(a[0].layout()?.nullspace()?.into())),
    operation("max_common_layout(A,B)", 2..=2, |a| {
        Ok(a[0].composed()?.max_common_layout_swizzled(&a[1].composed()?)?.into())
    }),
    operation("max_common_vector(A,B)", 2..=2, |a| {
        Ok(a[0].composed()?.max_common_vector_swizzled(&a[1].composed()?)?.into())
    }),
    operation("max_alignment(L)", 1..=1, |a| Ok(a[0].composed()?.max_alignment().into())),
    // Larger and smaller elements.
    operation("upcast(L,n)", 2..=2, |a| {
        let n = a[1].int()?;
        if a[0].is_composed() {
            Ok(a[0].composed()?.upcast(n)?.into())
        } else {
            Ok(a[0].layout()?.upcast(n)?.into())
        }
    }),
    operation("downcast(L,n)", 2..=2, |a| {
        let n = a[1].int()?;
        if a[0].is_composed() {
            Ok(a[0].composed()?.downcast(n)?.into())
        } else {
            Ok(a[0].layout()?.downcast(n)?.into())
        }
    }),
    operation("recast(L,old,new)", 3..=3, |a| {
        let (old, new) = (a[1].int()?, a[2].int()?);
        if a[0].is_composed() {
            Ok(a[0].composed()?.recast(old, new)?.into())
        } else {
            Ok(a[0].layout()?.recast(old, new)?.into())
        }
    }),
    // Tiles and copies.
    operation("logical_divide(L,T)", 2..=2, |a| tiled(a, Layout::logical_divide_by)),
    operation("zipped_divide(L,T)", 2..=2, |a| tiled(a, Layout::zipped_divide_by)),
    operation("tiled_divide(L,T)", 2..=2, |a| tiled(a, Layout::tiled_divide)),
    operation("flat_divide(L,T)", 2..=2, |a| tiled(a, Layout::flat_divide)),
    operation("inner_partition(L,T,C)", 3..=3, |a| partition(a, Layout::inner_partition)),
    operation("outer_partition(L,T,C)", 3..=3, |a| partition(a, Layout::outer_partition)),
    operation("local_tile(L,T,C)", 3..=3, |a| partition(a, Layout::inner_partition)),
    operation("local_partition(L,threads,i)", 3..=3, |a| {
        let threads = a[1].layout()?;
        part_of(&a[0], &a[0].domain()?.thread_partition(&threads)?, &a[2])
    }),
    operation("logical_product(A,T)", 2..=2, |a| {
        if a[0].is_composed() {
            return product(a, Layout::logical_product, ComposedLayout::logical_product);
        }
        tiled_plain(a, Layout::logical_product_by)
    }),
    operation("zipped_product(A,T)", 2..=2, |a| tiled_plain(a, Layout::zipped_product)),
    operation("tiled_product(A,T)", 2..=2, |a| tiled_plain(a, Layout::tiled_product)),
    operation("flat_product(A,T)", 2..=2, |a| tiled_plain(a, Layout::flat_product)),
    operation("blocked_product(A,B)", 2..=2, |a| {
        product(a, Layout::blocked_product, ComposedLayout::blocked_product)
    }),
    operation("raked_product(A,B)", 2..=2, |a| {
        product(a, Layout::raked_product, ComposedLayout::raked_product)
    }),
    operation("tile_to_shape(A,S[,order])", 2..=3, |a| {
        let shape = shaped(&a[1])?;
        let order = a.get(2).map_or_else(|| Ok((0..shape.len()).collect()), by_rank)?;
        inside(a, |block| block.tile_to_shape(&shape, &order))
    }),
];
