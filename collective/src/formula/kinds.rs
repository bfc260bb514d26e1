//! The nodes that a formula can have: tables of the library's nodes.

use std::collections::BTreeMap;

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use typenum::{U1, U2, U3, U8, U16, U32, U64, U128, U256};

use super::dialect::Index;
use crate::element::Format;
use crate::expression::digest;
use crate::functions::{
    Absolute, Add, Clamp, Divide, Gelu, GeluTanh, Gradient, HardSwish, Identity, LeakyRelu, Maximum, Minimum,
    Multiply, MultiplyAdd, MultiplyAddGelu, Negate, Pointwise, Relu, Sigmoid, Silu, Snake, Square, Subtract,
    Tanh, ThresholdRelu,
};
use crate::process::Once;
use crate::real::{Arithmetic, Exact, Fast, Fastest, Needs};
use crate::tree::{
    self, Accumulator, Alternating, Amax, AnyNode, AuxStore, Blocks, Bound, CHILD, ColumnVector, Compute,
    Cyclic, Each, Gated, Glu, Item, Let, Literal, Load, Max, NUMBER, NodeTraits, NodeValue, OrderedColumn,
    OrderedRow, OrderedScalar, ReduceColumn, ReduceRow, ReduceScalar, Residual, RowVector, Scalar,
    ScalarPointer, Split, Sum, combined, gated, shared,
};

/// A kind of node whose traits are its children's and its own.
macro_rules! node {
    ($node:ty) => {
        NodeValue::of::<$node>(stringify!($node), combined::<$node>)
    };
}

/// A function of a formula.
pub(super) struct Function {
    pub(super) name: fn() -> String,
    /// The names of its scalar arguments, which follow its inputs.
    pub(super) scalars: &'static [&'static str],
    /// What it needs of the numbers that the tree computes with.
    pub(super) needs: fn() -> Needs,
    pub(super) node: NodeValue,
}

macro_rules! functions {
    ($($f:ty: $n:literal ($($x:ident),+);)*) => {
        [$(Function {
            name: <$f as Pointwise<$n>>::name,
            scalars: <$f as Pointwise<$n>>::ARGUMENTS,
            needs: Needs::of::<$f, $n>,
            node: node!(Compute<$f, ($($x,)+)>),
        }),*]
    };
}

/// Every function by name.
pub(super) fn functions() -> &'static BTreeMap<String, &'static Function> {
    static KNOWN: Once<BTreeMap<String, &'static Function>> = Once::new();
    static ALL: &[Function] = &functions! {
        Identity: 1 (AnyNode);
        Absolute: 1 (AnyNode);
        Negate: 1 (AnyNode);
        Square: 1 (AnyNode);
        Relu: 1 (AnyNode);
        LeakyRelu: 1 (AnyNode);
        ThresholdRelu: 1 (AnyNode);
        Clamp: 1 (AnyNode);
        HardSwish: 1 (AnyNode);
        Sigmoid<Exact>: 1 (AnyNode);
        Sigmoid<Fast>: 1 (AnyNode);
        Sigmoid<Fastest>: 1 (AnyNode);
        Tanh<Exact>: 1 (AnyNode);
        Tanh<Fast>: 1 (AnyNode);
        Tanh<Fastest>: 1 (AnyNode);
        Silu<Exact>: 1 (AnyNode);
        Silu<Fast>: 1 (AnyNode);
        Silu<Fastest>: 1 (AnyNode);
        Gelu<Exact>: 1 (AnyNode);
        Gelu<Fast>: 1 (AnyNode);
        Gelu<Fastest>: 1 (AnyNode);
        GeluTanh<Exact>: 1 (AnyNode);
        GeluTanh<Fast>: 1 (AnyNode);
        GeluTanh<Fastest>: 1 (AnyNode);
        Snake<Exact>: 1 (AnyNode);
        Snake<Fast>: 1 (AnyNode);
        Snake<Fastest>: 1 (AnyNode);
        Add: 2 (AnyNode, AnyNode);
        Subtract: 2 (AnyNode, AnyNode);
        Multiply: 2 (AnyNode, AnyNode);
        Divide: 2 (AnyNode, AnyNode);
        Maximum: 2 (AnyNode, AnyNode);
        Minimum: 2 (AnyNode, AnyNode);
        Gradient<Relu>: 2 (AnyNode, AnyNode);
        Gradient<LeakyRelu>: 2 (AnyNode, AnyNode);
        Gradient<Sigmoid<Fast>>: 2 (AnyNode, AnyNode);
        Gradient<Tanh<Fast>>: 2 (AnyNode, AnyNode);
        Gradient<Silu<Exact>>: 2 (AnyNode, AnyNode);
        Gradient<Silu<Fast>>: 2 (AnyNode, AnyNode);
        Gradient<Gelu<Exact>>: 2 (AnyNode, AnyNode);
        Gradient<Gelu<Fast>>: 2 (AnyNode, AnyNode);
        Gradient<GeluTanh<Exact>>: 2 (AnyNode, AnyNode);
        Gradient<GeluTanh<Fast>>: 2 (AnyNode, AnyNode);
        MultiplyAdd: 3 (AnyNode, AnyNode, AnyNode);
        MultiplyAddGelu<Exact>: 3 (AnyNode, AnyNode, AnyNode);
        MultiplyAddGelu<Fast>: 3 (AnyNode, AnyNode, AnyNode);
        MultiplyAddGelu<Fastest>: 3 (AnyNode, AnyNode, AnyNode);
    };
    KNOWN.get_or_init(|| ALL.iter().map(|function| ((function.name)(), function)).collect())
}

/// The traits of a gate in an order.
fn gate<F: Pointwise<2>, const BLOCK: u32>(x: &[NodeTraits]) -> Result<NodeTraits, &'static str> {
    gated(x.first().copied().unwrap_or(NodeTraits::LEAF), BLOCK, F::REGISTERS)
}

macro_rules! gates {
    ($($order:literal $ty:ty, $block:expr; )*; $functions:tt) => {
        [$(($order, &gates!(@of $ty, $block, $functions))),*]
    };
    (@of $ty:ty, $block:expr, { $($f:ty: $name:expr;)* }) => {
        [$(Function {
            name: || { let name: fn() -> String = $name; name() },
            scalars: <$f as Pointwise<2>>::ARGUMENTS,
            needs: Needs::of::<$f, 2>,
            node: NodeValue::of::<Gated<$f, AnyNode, $ty>>(
                stringify!(Gated<$f, AnyNode, $ty>),
                gate::<$f, { $block }>,
            ),
        }),*]
    };
}

/// Gated pairs: the orders of columns, each with its functions of gate and up. A function of one number is
/// that of the gate.
pub(super) static GATES: [(&str, &[Function]); 4] = gates! {
    "gated" Alternating, 1;
    "gated8" Blocks<U8>, 8;
    "gated16" Blocks<U16>, 16;
    "gated_split" Split, NodeTraits::SPLIT;
    ; {
        Glu<Identity>: <Identity as Pointwise>::name;
        Glu<Relu>: <Relu as Pointwise>::name;
        Glu<LeakyRelu>: <LeakyRelu as Pointwise>::name;
        Glu<Sigmoid<Fast>>: <Sigmoid<Fast> as Pointwise>::name;
        Glu<Silu<Exact>>: <Silu<Exact> as Pointwise>::name;
        Glu<Silu<Fast>>: <Silu<Fast> as Pointwise>::name;
        Glu<Silu<Fastest>>: <Silu<Fastest> as Pointwise>::name;
        Glu<Gelu<Exact>>: <Gelu<Exact> as Pointwise>::name;
        Glu<Gelu<Fast>>: <Gelu<Fast> as Pointwise>::name;
        Glu<GeluTanh<Fast>>: <GeluTanh<Fast> as Pointwise>::name;
        Glu<GeluTanh<Fastest>>: <GeluTanh<Fastest> as Pointwise>::name;
        Maximum: <Maximum as Pointwise<2>>::name;
    }
};

macro_rules! by_format {
    ($format:expr, $t:ident => $node:ty) => {{
        static OF: [(Format, NodeValue); 9] = by_format!(@all $t, $node, [
            F32 f32, Bf16 bf16, F16 f16, E4m3 F8E4M3, E5m2 F8E5M2, S8 i8, U8 u8, S32 i32, F64 f64
        ]);
        OF.iter().find(|(format, _)| *format == $format).map(|(_, node)| node)
    }};
    (@all $t:ident, $node:ty, [$($format:ident $element:ident),*]) => {
        [$((Format::$format, by_format!(@one $t, $element, $node))),*]
    };
    (@one $t:ident, $element:ident, $node:ty) => {{
        type $t = $element;
        NodeValue::of::<$node>(
            concat!("<", stringify!($element), ">", stringify!($node)),
            combined::<$node>,
        )
    }};
}

/// The node that reads a place.
pub(super) fn read(index: Index, format: Format) -> Option<&'static NodeValue> {
    match index {
        Index::Zero => by_format!(format, T => ScalarPointer<T>),
        Index::Column => by_format!(format, T => RowVector<T>),
        Index::Row => by_format!(format, T => ColumnVector<T>),
        Index::Both => by_format!(format, T => Load<T>),
        Index::Cyclic(8) => by_format!(format, T => Cyclic<T, U8>),
        Index::Cyclic(16) => by_format!(format, T => Cyclic<T, U16>),
        Index::Cyclic(32) => by_format!(format, T => Cyclic<T, U32>),
        Index::Cyclic(64) => by_format!(format, T => Cyclic<T, U64>),
        Index::Cyclic(128) => by_format!(format, T => Cyclic<T, U128>),
        Index::Cyclic(256) => by_format!(format, T => Cyclic<T, U256>),
        Index::Cyclic(_) => None,
    }
}

/// The numbers of columns that a repeated matrix can have.
pub(super) const CYCLIC: [u32; 6] = [8, 16, 32, 64, 128, 256];

/// A multiple of C.
pub(super) fn residual(format: Format) -> Option<&'static NodeValue> {
    by_format!(format, T => Residual<T>)
}

/// A value that is written to a matrix, too.
pub(super) fn store(format: Format) -> Option<&'static NodeValue> {
    by_format!(format, T => AuxStore<T, AnyNode>)
}

/// The reductions: a name, and the nodes that reduce to a row, to a column and to a number.
pub(super) static REDUCTIONS: [(&str, [NodeValue; 3]); 6] = {
    macro_rules! of {
        ($row:ident, $column:ident, $scalar:ident, $op:ty) => {
            [node!($row<$op, AnyNode>), node!($column<$op, AnyNode>), node!($scalar<$op, AnyNode>)]
        };
    }
    [
        ("reduce_sum", of!(ReduceRow, ReduceColumn, ReduceScalar, Sum)),
        ("reduce_max", of!(ReduceRow, ReduceColumn, ReduceScalar, Max)),
        ("reduce_amax", of!(ReduceRow, ReduceColumn, ReduceScalar, Amax)),
        ("ordered_sum", of!(OrderedRow, OrderedColumn, OrderedScalar, Sum)),
        ("ordered_max", of!(OrderedRow, OrderedColumn, OrderedScalar, Max)),
        ("ordered_amax", of!(OrderedRow, OrderedColumn, OrderedScalar, Amax)),
    ]
};

/// Whether a node reduces all elements to one number.
pub(super) fn reduces_all(node: &NodeValue) -> bool {
    REDUCTIONS.iter().any(|(_, [.., scalar])| core::ptr::eq(scalar, node))
}

pub(super) static ACCUMULATOR: NodeValue = node!(Accumulator);
pub(super) static SCALAR: NodeValue = node!(Scalar);
pub(super) static LITERAL: NodeValue = node!(Literal);
pub(super) static EACH: NodeValue = node!(Each<AnyNode>);
pub(super) static LET: NodeValue =
    NodeValue::of::<Let<AnyNode, AnyNode>>("Let<AnyNode, AnyNode>", |x| match x {
        [x, body] => shared(*x, *body),
        _ => Ok(NodeTraits::LEAF),
    });

/// The values of enclosing bindings, the innermost first.
pub(super) static BOUND: [NodeValue; 4] =
    [node!(Bound), node!(Bound<U1>), node!(Bound<U2>), node!(Bound<U3>)];

/// What formulas call that is no function of numbers.
pub(super) fn words() -> impl Iterator<Item = &'static str> {
    let names = GATES.iter().map(|(name, _)| *name).chain(REDUCTIONS.iter().map(|(name, _)| *name));
    names.chain([STORE]).chain(tree::words().map(|word| word.name))
}

/// The word for [`store`].
pub(super) const STORE: &str = "store";

/// A number as a fraction of small numbers, if it is one in what a tree computes in.
fn fraction(number: f64, arithmetic: Arithmetic) -> Option<(u32, u32)> {
    let of = |d: u32| {
        let n = (number * f64::from(d)).round();
        let n = (0.0..=1024.0).contains(&n).then_some(n as u32)?;
        (arithmetic.held(f64::from(n) / f64::from(d)) == number).then_some((n, d))
    };
    [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 10, 100, 1000, 10_000, 100_000, 1_000_000]
        .into_iter()
        .find_map(of)
}

/// The bits of a number, of `f32` if that has it.
fn bits(number: f64) -> String {
    let single = number as f32;
    if f64::from(single) == number {
        format!("x{:08x}", single.to_bits())
    } else {
        format!("x{:016x}", number.to_bits())
    }
}

/// Longest name of a tree in a kernel's name.
const LONGEST: usize = 200;

/// The name of a tree, in kernels' names: what the same tree as a type has. A long one ends in a number that
/// stands for the rest.
pub(super) fn name(items: &[Item]) -> String {
    let name = fold(items, &mut item_name);
    if name.len() <= LONGEST {
        return name;
    }
    let hash = digest(&name);
    let begin: String = name.chars().take(LONGEST - 20).collect();
    format!("{begin}_{hash:016x}")
}

/// The name of a node, with marks for its children.
pub(super) fn item_name(item: &Item) -> String {
    let number =
        fraction(item.number, item.arithmetic).map_or_else(|| bits(item.number), |(n, d)| format!("{n}d{d}"));
    (item.node.name)().replace(NUMBER, &number)
}

/// The tree as a Rust type.
pub(super) fn rust_type(items: &[Item]) -> String {
    fold(items, &mut |item| {
        let mut of = item.node.rust;
        let mut element = None;
        if let Some((of_element, rest)) = of.strip_prefix('<').and_then(|of| of.split_once('>')) {
            (element, of) = (Some(of_element), rest);
        }
        let mut text: String = of.split_whitespace().collect();
        if let Some(element) = element {
            text = text.replace("<T", &format!("<{element}"));
        }
        if text == "Literal" {
            let whole =
                |number: f64| fraction(number, item.arithmetic).map(|(n, d)| format!("Constant<U{n},U{d}>"));
            text = match whole(item.number) {
                Some(text) => text,
                None => whole(-item.number)
                    .map_or_else(|| "Scalar".to_owned(), |constant| format!("Compute<Negate,({constant},)>")),
            };
        }
        if item.node.children() > 1 {
            text = text.replace(",)", ")");
        }
        text.replace("AnyNode", &CHILD.to_string()).replace(',', ", ").replace(", )", ",)")
    })
}

/// The text of a tree: that of its root, with those of its children in their places.
fn fold(items: &[Item], of: &mut dyn FnMut(&Item) -> String) -> String {
    fn one(items: &mut core::slice::Iter<'_, Item>, of: &mut dyn FnMut(&Item) -> String) -> String {
        let Some(item) = items.next() else { return String::new() };
        let own = of(item);
        let mut text = String::new();
        for (i, part) in own.split(CHILD).enumerate() {
            if i > 0 {
                text.push_str(&one(items, of));
            }
            text.push_str(part);
        }
        text
    }
    one(&mut items.iter(), of)
}
