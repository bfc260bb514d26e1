//! Trees as values: a node whose kind is known at run time.
//!
//! [`AnyNode`] is a [`Node`] like any other, so each kind is the node of the library, or one of your own,
//! with [`AnyNode`]s for children: `Compute<Gelu, (AnyNode,)>`. [`NodeValue::of`] makes a value of such a
//! type. Which kind stands where comes from a list of [`Item`]s in the order of declaration.

use core::fmt;
use std::sync::Arc;

use super::leaf::uniform;
use super::{Arithmetic, Begin, Bounded, Given, Host, Node, NodeTraits, Shape, Site, Supplied, Supply};

/// The traits of a node from those of its children.
type TraitsOf = fn(&[NodeTraits]) -> Result<NodeTraits, &'static str>;

/// A kind of node as a value.
#[derive(Clone, Copy)]
pub(crate) struct NodeValue {
    /// The Rust type, with `AnyNode` for children.
    pub(crate) rust: &'static str,
    /// The name, with [`AnyNode::name`] for children.
    pub(crate) name: fn() -> String,
    /// The traits from those of the children.
    pub(crate) traits: TraitsOf,
    device: for<'f> fn(&mut Given<'f>) -> Begin<'f>,
    supply: fn(&mut dyn Supply, Shape) -> Arc<dyn AnyArguments>,
}

impl fmt::Debug for NodeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeValue").field(&self.rust).finish()
    }
}

impl NodeValue {
    /// The node `N`, whose children are [`AnyNode`]s and whose Rust type is `rust`.
    pub(crate) const fn of<N: Supplied<Arguments: Send + Sync>>(
        rust: &'static str,
        traits: TraitsOf,
    ) -> Self {
        Self { rust, name: N::name, traits, device: N::device, supply: supply::<N> }
    }

    /// The number of children.
    pub(crate) fn children(&self) -> usize {
        self.rust.matches("AnyNode").count()
    }
}

/// The traits of a node that passes on what its children need, and adds what its type says alone.
///
/// # Errors
/// The children cannot be combined.
pub(crate) fn combined<N: Node>(children: &[NodeTraits]) -> Result<NodeTraits, &'static str> {
    children.iter().try_fold(N::TRAITS, |traits, child| traits.beside(*child))
}

/// One node of a tree that is a value.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its kind.
    pub(crate) node: &'static NodeValue,
    /// The number of a [`Literal`]; else 0.
    pub(crate) number: f64,
    /// What the tree computes in.
    pub(crate) arithmetic: Arithmetic,
    /// Its name in error messages; empty if it has none.
    pub(crate) label: &'static str,
    /// The names of its own arguments.
    pub(crate) inputs: Vec<Argument>,
}

/// An argument of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Argument {
    /// The caller gives it under this name.
    Named(&'static str),
    /// The tree gives it.
    Number(f64),
}

/// A node whose kind is known at run time.
#[derive(Clone, Copy, Debug)]
pub struct AnyNode;

/// The arguments of an [`AnyNode`].
#[derive(Clone)]
pub struct AnyNodeArguments {
    /// The node's name, empty if it has none, and the name of the second piece of its memory.
    labels: [&'static str; 2],
    of: Arc<dyn AnyArguments>,
}

impl fmt::Debug for AnyNodeArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyNodeArguments").field("labels", &self.labels).finish_non_exhaustive()
    }
}

impl Default for AnyNodeArguments {
    /// Those of the accumulator.
    fn default() -> Self {
        Self { labels: [""; 2], of: Arc::new(ArgumentsOf::<super::Accumulator>(())) }
    }
}

impl PartialEq for AnyNodeArguments {
    /// Whether they are the same value: copies are, until one is changed.
    fn eq(&self, other: &Self) -> bool {
        self.labels == other.labels && Arc::ptr_eq(&self.of, &other.of)
    }
}

/// The methods of a node that take its arguments.
trait AnyArguments: Send + Sync {
    /// Visits them. Returns the arguments if the visitor changed them: others may use the old ones.
    fn visit(&self, shape: Shape, site: &mut Site<'_>) -> Option<Arc<dyn AnyArguments>>;
    fn evaluate(&self, host: &mut Host<'_>, at: [u32; 2]) -> Bounded;
}

struct ArgumentsOf<N: Node>(N::Arguments);

impl<N: Node<Arguments: Send + Sync>> AnyArguments for ArgumentsOf<N> {
    fn visit(&self, shape: Shape, site: &mut Site<'_>) -> Option<Arc<dyn AnyArguments>> {
        let mut own = self.0.clone();
        N::visit(&mut own, shape, site);
        (own != self.0).then(|| Arc::new(Self(own)) as _)
    }

    fn evaluate(&self, host: &mut Host<'_>, at: [u32; 2]) -> Bounded {
        N::evaluate(host, &self.0, at)
    }
}

fn supply<N: Supplied<Arguments: Send + Sync>>(from: &mut dyn Supply, shape: Shape) -> Arc<dyn AnyArguments> {
    Arc::new(ArgumentsOf::<N>(N::supply(from, shape)))
}

/// What stands for a child in the name of a node.
pub(crate) const CHILD: char = '\u{1}';

/// What stands for the number in the name of a [`Literal`].
pub(crate) const NUMBER: char = '\u{2}';

impl Node for AnyNode {
    type Arguments = AnyNodeArguments;
    // What the kind says is known at run time.
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        CHILD.to_string()
    }

    fn visit(arguments: &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
        let AnyNodeArguments { labels, of } = arguments;
        let changed = match *labels {
            ["", _] => of.visit(shape, site),
            labels => of.visit(shape, &mut site.named(labels)),
        };
        if let Some(changed) = changed {
            *of = changed;
        }
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        match given.item() {
            Some(item) => (item.node.device)(given),
            None => {
                given.builder().refuse("a tree that is a value is emitted without its nodes");
                super::Accumulator::device(given)
            }
        }
    }

    fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> Bounded {
        arguments.of.evaluate(host, at)
    }
}

impl Supplied for AnyNode {
    fn supply(from: &mut dyn Supply, shape: Shape) -> AnyNodeArguments {
        match from.item() {
            Some(item) => {
                let second = match item.inputs.get(1) {
                    Some(Argument::Named(name)) => name,
                    Some(Argument::Number(_)) | None => item.label,
                };
                AnyNodeArguments { labels: [item.label, second], of: (item.node.supply)(from, shape) }
            }
            None => AnyNodeArguments::default(),
        }
    }
}

/// A number of the tree, a constant of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Literal;

impl Node for Literal {
    type Arguments = f64;
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        NUMBER.to_string()
    }

    fn visit(_value: &mut f64, _shape: Shape, _site: &mut Site<'_>) {}

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let value = given.literal();
        Box::new(move |tile| uniform(tile.arithmetic.constant(tile.f, value)))
    }

    fn evaluate(_host: &mut Host<'_>, value: &f64, _at: [u32; 2]) -> Bounded {
        Bounded::exact(*value)
    }
}

impl Supplied for Literal {
    fn supply(from: &mut dyn Supply, _shape: Shape) -> f64 {
        from.literal()
    }
}
