//! Evaluation: computes the value of a parsed expression.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use super::argument::{Argument, Operand};
use super::calls::swizzled;
use super::operations::{self, Failure, Operation};
use super::parse::{Kind, Node};
use super::{Fault, Value, range};
use crate::composed::{ComposedLayout, SwizzledInverse};
use crate::coord_layout::{Basis, CoordLayout};
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::partition::Tensor;
use crate::swizzle::Swizzle;

/// The value of a whole expression.
pub(super) fn value(node: &Node) -> Result<Value, Fault> {
    let argument = argument(node)?;
    let Operand::Value(value) = argument.operand else {
        return Err(argument.instead_of("a value"));
    };
    Ok(value)
}

/// The layout that an expression is, or that its shape stands for.
pub(super) fn layout(node: &Node) -> Result<Layout, Fault> {
    argument(node)?.layout()
}

fn argument(node: &Node) -> Result<Argument, Fault> {
    Ok(Argument { span: node.span.clone(), operand: operand(node)? })
}

fn arguments(nodes: &[Node]) -> Result<Vec<Argument>, Fault> {
    nodes.iter().map(argument).collect()
}

fn operand(node: &Node) -> Result<Operand, Fault> {
    let refused = |what, error: LayoutError| Fault::refused(node.span.clone(), what, &error);
    let operand = match &node.kind {
        Kind::Int(value) => Value::Int(*value).into(),
        Kind::Keep => Operand::Keep,
        Kind::Tuple(members) => tuple(node.span.clone(), &arguments(members)?)?,
        Kind::Tiler(modes) => Operand::Tiler(arguments(modes)?),
        Kind::Layout(parts) => {
            let (shape, stride) = (argument(&parts[0])?.shape()?, argument(&parts[1])?);
            if matches!(stride.operand, Operand::Strides(..)) {
                let (scales, strides) = stride.strides()?;
                let coords = Layout::new(shape, scales)
                    .and_then(|_| CoordLayout::new(shape, &strides, Basis::coprofile(&strides)?));
                Value::from(coords.map_err(|error| refused("a coordinate layout", error))?).into()
            } else {
                let layout = Layout::new(shape, stride.tuple()?);
                Value::Layout(layout.map_err(|error| refused("a layout", error))?).into()
            }
        }
        Kind::Basis(scale, path) => {
            let path: Option<Vec<usize>> = path.iter().map(|&mode| usize::try_from(mode).ok()).collect();
            let Some(path) = path else {
                return Err(Fault::new(
                    node.span.clone(),
                    "a component is named by mode numbers of 0 and more",
                ));
            };
            let basis = Basis::new(*scale, &path).map_err(|error| refused("a stride", error))?;
            Operand::Strides(IntTuple::int(*scale), Vec::from([basis]))
        }
        Kind::Swizzle([b, m, s]) => {
            let (Ok(bits), Ok(base), Ok(shift)) = ((*b).try_into(), (*m).try_into(), (*s).try_into()) else {
                let message = format!("Sw<{b},{m},{s}> counts bits; choose numbers from 0 to 32");
                return Err(Fault::new(node.span.clone(), message));
            };
            Value::Swizzle(Swizzle { bits, base, shift }).into()
        }
        Kind::Chain(terms) => chain(&arguments(terms)?)?,
        Kind::Call { name, name_span, arguments: nodes } => {
            let operation = find(name).ok_or_else(|| Fault::new(name_span.clone(), unknown(name)))?;
            call(operation, node.span.clone(), arguments(nodes)?)?
        }
    };
    in_range(node.span.clone(), operand)
}

fn in_range(span: Range<usize>, operand: Operand) -> Result<Operand, Fault> {
    if let Operand::Value(value) = &operand {
        range::check(value).map_err(|message| Fault::new(span, message))?;
    }
    Ok(operand)
}

/// The value of `(a,b)`: a tuple of integers, a layout with these modes, or a coordinate with `_`.
fn tuple(span: Range<usize>, members: &[Argument]) -> Result<Operand, Fault> {
    let refused = |error: LayoutError| Fault::refused(span.clone(), "a tuple", &error);
    let is_partial = |member: &Argument| matches!(member.operand, Operand::Keep | Operand::Coord(_));
    let is_layout = |member: &Argument| matches!(member.operand, Operand::Value(Value::Layout(_)));
    if members.iter().any(is_partial) {
        for member in members.iter().filter(|member| !is_partial(member)) {
            member.tuple()?;
        }
        Ok(Operand::Coord(members.iter().map(|member| member.operand.clone()).collect()))
    } else if members.iter().any(|member| matches!(member.operand, Operand::Strides(..))) {
        let parts = members.iter().map(Argument::strides).collect::<Result<Vec<_>, _>>()?;
        let (scales, strides): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        Ok(Operand::Strides(IntTuple::tuple(&scales).map_err(refused)?, strides.concat()))
    } else if members.iter().any(|member| member.coords().is_some()) {
        let concat = operation("make_layout", &span)?;
        call(concat, span, members.to_vec())
    } else if members.iter().any(is_layout) {
        let modes: Vec<_> = members.iter().map(Argument::layout).collect::<Result<_, _>>()?;
        Ok(Value::Layout(Layout::concat(&modes).map_err(refused)?).into())
    } else {
        let modes: Vec<_> = members.iter().map(Argument::tuple).collect::<Result<_, _>>()?;
        Ok(Value::from(IntTuple::tuple(&modes).map_err(refused)?).into())
    }
}

/// The value of `a o b o c`, computed from the right.
fn chain(terms: &[Argument]) -> Result<Operand, Fault> {
    // The inverse of a composed layout: `L o OFFSET o Sw<B,M,S>`.
    if let [layout, offset, swizzle] = terms
        && let (Operand::Value(Value::Int(_)), Some(swizzle)) = (&offset.operand, swizzle.swizzle())
        && layout.swizzle().is_none()
    {
        let (layout, offset) = (layout.layout()?, -offset.int()?);
        return Ok(Value::Inverse(SwizzledInverse { layout, offset, swizzle }).into());
    }
    let Some((last, before)) = terms.split_last() else { return Ok(Operand::Keep) };
    let mut result = last.clone();
    for term in before.iter().rev() {
        let span = term.span.start..result.span.end;
        let operand = after(term, &result, span.clone())?;
        result = Argument { operand: in_range(span.clone(), operand)?, span };
    }
    Ok(result.operand)
}

/// The value of `a o b`.
fn after(a: &Argument, b: &Argument, span: Range<usize>) -> Result<Operand, Fault> {
    let inner = || {
        let inner = b.composed()?;
        if inner.swizzle.bits == 0 { Ok(inner) } else { Err(b.instead_of("a layout without a swizzle")) }
    };
    if matches!(a.operand, Operand::Value(Value::Int(_))) {
        let (offset, inner) = (a.int()?, inner()?);
        Ok(Value::Composed(ComposedLayout { offset: inner.offset + offset, ..inner }).into())
    } else if let (Operand::Value(Value::Tuple(start)), Some(coords)) = (&a.operand, b.coords())
        && let Ok(layout) = coords.covering(start)
        && layout.profile().congruent(start)
    {
        Ok(Value::Part(Tensor { layout, start: *start }).into())
    } else if let (Some(swizzle), None) = (a.swizzle(), b.swizzle()) {
        let both = swizzled(swizzle, 0, &b.composed()?);
        Ok(Value::Composed(both.map_err(|error| Fault::refused(span, "two swizzles", &error))?).into())
    } else {
        call(operation("composition", &span)?, span, Vec::from([a.clone(), b.clone()]))
    }
}

/// The operation with this name.
fn find(name: &str) -> Option<&'static Operation> {
    operations::operations().iter().find(|operation| operation.name == name)
}

/// The operation that implements a notation.
fn operation(name: &str, span: &Range<usize>) -> Result<&'static Operation, Fault> {
    find(name).ok_or_else(|| Fault::new(span.clone(), format!("this needs an operation `{name}`")))
}

/// The message that there is no operation with this name. It suggests a similar name, or lists all names.
fn unknown(name: &str) -> String {
    let known = operations::operations().iter().map(|operation| operation.name);
    let nearest = known.clone().min_by_key(|known| distance(known, name));
    match nearest {
        Some(nearest) if distance(nearest, name) * 3 <= name.len().max(3) => {
            format!("there is no operation `{name}`; did you mean `{nearest}`?")
        }
        _ => {
            let mut known: Vec<_> = known.collect();
            known.sort_unstable();
            format!("there is no operation `{name}`; there are {}", known.join(", "))
        }
    }
}

/// The edit distance: the number of letters to insert, remove or replace to turn `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

fn call(operation: &Operation, span: Range<usize>, arguments: Vec<Argument>) -> Result<Operand, Fault> {
    let (name, given) = (operation.name, arguments.len());
    if !operation.arguments.contains(&given) {
        let plural = if given == 1 { "" } else { "s" };
        let message = format!("`{name}` has {given} argument{plural}; it is written `{}`", operation.usage);
        return Err(Fault::new(span, message));
    }
    (operation.apply)(&arguments).map(Operand::Value).map_err(|failure| match failure {
        Failure::Algebra(error) => Fault::refused(span, name, &error),
        Failure::Large => {
            Fault::new(span, format!("{name}: the numbers leave the range of 64 bits; use smaller layouts"))
        }
        Failure::Argument(fault) => fault,
    })
}
