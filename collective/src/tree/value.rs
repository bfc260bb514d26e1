//! Trees as values: a node whose kind is known at run time.
//!
//! [`AnyNode`] is a [`Node`] like any other, so each kind is the node of the library, or one of your own,
//! with [`AnyNode`]s for children: `Compute<Gelu, (AnyNode,)>`. [`NodeValue::of`] makes a value of such a
//! type. Which kind stands where comes from a list of [`Item`]s in the order of declaration.

use core::fmt;
use std::sync::Arc;

use ptx::{Builder, Value};

use super::{
    Bounded, Declare, Host, Node, NodeError, NodeTraits, Pair, Parameters, Part, Path, Shape, Supplied,
    Supply, Visit,
};

/// The traits of a node from those of its children.
pub type FactsOf = fn(&[NodeTraits]) -> Result<NodeTraits, &'static str>;

/// A kind of node as a value.
#[derive(Clone, Copy)]
pub struct NodeValue {
    /// The Rust type, with `AnyNode` for children.
    pub rust: &'static str,
    /// The name, with [`AnyNode::name`] for children.
    pub name: fn() -> String,
    /// The traits from those of the children.
    pub traits: FactsOf,
    declare: for<'f> fn(&mut Declare<'f>) -> Box<dyn AnyDevice<'f> + 'f>,
    supply: fn(&mut dyn Supply, Shape) -> Arc<dyn AnyArguments>,
}

impl fmt::Debug for NodeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeValue").field(&self.rust).finish()
    }
}

impl NodeValue {
    /// The node `N`, whose children are [`AnyNode`]s and whose Rust type is `rust`.
    pub const fn of<N: Supplied<Arguments: Send + Sync>>(rust: &'static str, traits: FactsOf) -> Self {
        Self { rust, name: N::name, traits, declare: declare::<N>, supply: supply::<N> }
    }

    /// The number of children.
    pub fn children(&self) -> usize {
        self.rust.matches("AnyNode").count()
    }
}

/// The traits of a node that passes on what its children need, and adds what its type says alone.
///
/// # Errors
/// The children cannot be combined.
pub fn combined<N: Node>(children: &[NodeTraits]) -> Result<NodeTraits, &'static str> {
    children.iter().try_fold(N::TRAITS, |traits, child| traits.beside(*child))
}

/// One node of a tree that is a value.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its kind.
    pub node: &'static NodeValue,
    /// The number of a [`Literal`]; else 0.
    pub number: f32,
    /// Its name in error messages; empty if it has none.
    pub label: &'static str,
    /// The names of its own arguments.
    pub inputs: Vec<Argument>,
}

/// An argument of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// The caller gives it under this name.
    Named(&'static str),
    /// The tree gives it.
    Number(f32),
}

/// A node whose kind is known at run time.
#[derive(Clone, Copy, Debug)]
pub struct AnyNode;

/// The arguments of an [`AnyNode`].
#[derive(Clone)]
pub struct AnyNodeArguments {
    label: &'static str,
    of: Arc<dyn AnyArguments>,
}

impl fmt::Debug for AnyNodeArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyNodeArguments").field("label", &self.label).finish_non_exhaustive()
    }
}

/// The methods of a node that take its arguments.
trait AnyArguments: Send + Sync {
    fn check(&self, shape: Shape, path: &Path<'_>) -> Result<(), NodeError>;
    fn pairs(&self) -> bool;
    fn parameters(&self, out: &mut Parameters);
    fn evaluate(&self, host: &mut Host<'_>, at: [u32; 2]) -> Bounded;
}

struct ArgumentsOf<N: Node>(N::Arguments);

impl<N: Node<Arguments: Send + Sync>> AnyArguments for ArgumentsOf<N> {
    fn check(&self, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        N::check(&self.0, shape, path)
    }

    fn pairs(&self) -> bool {
        N::pairs(&self.0)
    }

    fn parameters(&self, out: &mut Parameters) {
        N::parameters(&self.0, out);
    }

    fn evaluate(&self, host: &mut Host<'_>, at: [u32; 2]) -> Bounded {
        N::evaluate(host, &self.0, at)
    }
}

fn supply<N: Supplied<Arguments: Send + Sync>>(from: &mut dyn Supply, shape: Shape) -> Arc<dyn AnyArguments> {
    Arc::new(ArgumentsOf::<N>(N::supply(from, shape)))
}

/// A node's parameters on the device.
trait AnyDevice<'f> {
    fn begin(&self, tile: &Visit<'f>) -> Box<dyn AnyState<'f> + 'f>;
}

struct DeviceOf<'f, N: Node>(N::Device<'f>);

impl<'f, N: Node> AnyDevice<'f> for DeviceOf<'f, N> {
    fn begin(&self, tile: &Visit<'f>) -> Box<dyn AnyState<'f> + 'f> {
        Box::new(StateOf::<N>(N::begin(tile, &self.0)))
    }
}

fn declare<'f, N: Node>(declare: &mut Declare<'f>) -> Box<dyn AnyDevice<'f> + 'f> {
    Box::new(DeviceOf::<N>(N::declare(declare)))
}

/// A node's state while the code of a tile is emitted.
trait AnyState<'f> {
    fn survey(&mut self, part: &Part<'f>);
    fn load(&mut self, part: &Part<'f>);
    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f>;
    fn end(&mut self, tile: &Visit<'f>);
}

struct StateOf<'f, N: Node>(N::State<'f>);

impl<'f, N: Node> AnyState<'f> for StateOf<'f, N> {
    fn survey(&mut self, part: &Part<'f>) {
        N::survey(part, &mut self.0);
    }

    fn load(&mut self, part: &Part<'f>) {
        N::load(part, &mut self.0);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        N::compute(part, &mut self.0, row, pair)
    }

    fn end(&mut self, tile: &Visit<'f>) {
        N::end(tile, &mut self.0);
    }
}

/// A node's parameters on the device.
pub struct AnyNodeDevice<'f>(Box<dyn AnyDevice<'f> + 'f>);

impl fmt::Debug for AnyNodeDevice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyNodeDevice")
    }
}

/// A node's state while the code of a tile is emitted.
pub struct AnyNodeState<'f>(Box<dyn AnyState<'f> + 'f>);

impl fmt::Debug for AnyNodeState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnyNodeState")
    }
}

/// What stands for a child in the name of a node.
pub(crate) const CHILD: char = '\u{1}';

/// What stands for the number in the name of a [`Literal`].
pub(crate) const NUMBER: char = '\u{2}';

impl Node for AnyNode {
    type Arguments = AnyNodeArguments;
    type Device<'f> = AnyNodeDevice<'f>;
    type State<'f> = AnyNodeState<'f>;
    // What the kind says is known at run time.
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        CHILD.to_string()
    }

    fn check(
        AnyNodeArguments { label, of }: &Self::Arguments,
        shape: Shape,
        path: &Path<'_>,
    ) -> Result<(), NodeError> {
        if label.is_empty() { of.check(shape, path) } else { of.check(shape, &path.named(label)) }
    }

    fn pairs(arguments: &Self::Arguments) -> bool {
        arguments.of.pairs()
    }

    fn parameters(arguments: &Self::Arguments, out: &mut Parameters) {
        arguments.of.parameters(out);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Self::Device<'f> {
        match declare.item() {
            Some(item) => AnyNodeDevice((item.node.declare)(declare)),
            None => {
                declare.builder().refuse("a tree that is a value is declared without its nodes");
                AnyNodeDevice(Box::new(DeviceOf::<super::Accumulator>(())))
            }
        }
    }

    fn begin<'f>(tile: &Visit<'f>, device: &Self::Device<'f>) -> Self::State<'f> {
        AnyNodeState(device.0.begin(tile))
    }

    fn survey<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
        state.0.survey(part);
    }

    fn load<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
        state.0.load(part);
    }

    fn compute<'f>(part: &Part<'f>, state: &mut Self::State<'f>, row: usize, pair: usize) -> Pair<'f> {
        state.0.compute(part, row, pair)
    }

    fn end<'f>(tile: &Visit<'f>, state: &mut Self::State<'f>) {
        state.0.end(tile);
    }

    fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> Bounded {
        arguments.of.evaluate(host, at)
    }
}

impl Supplied for AnyNode {
    fn supply(from: &mut dyn Supply, shape: Shape) -> AnyNodeArguments {
        match from.item() {
            Some(item) => AnyNodeArguments { label: item.label, of: (item.node.supply)(from, shape) },
            None => AnyNodeArguments { label: "", of: Arc::new(ArgumentsOf::<super::Accumulator>(())) },
        }
    }
}

/// A number of the tree, a constant of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Literal;

impl Node for Literal {
    type Arguments = f32;
    type Device<'f> = f32;
    type State<'f> = Value<'f, f32>;
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        NUMBER.to_string()
    }

    fn check(_value: &f32, _shape: Shape, _path: &Path<'_>) -> Result<(), NodeError> {
        Ok(())
    }

    fn pairs(_value: &f32) -> bool {
        true
    }

    fn parameters(_value: &f32, _out: &mut Parameters) {}

    fn declare(declare: &mut Declare<'_>) -> f32 {
        declare.literal()
    }

    fn begin<'f>(tile: &Visit<'f>, value: &f32) -> Value<'f, f32> {
        let f: &'f Builder = tile.f;
        f.constant(*value)
    }

    fn survey<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn load<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn compute<'f>(_part: &Part<'f>, value: &mut Value<'f, f32>, _row: usize, _pair: usize) -> Pair<'f> {
        [*value; 2]
    }

    fn end<'f>(_tile: &Visit<'f>, _state: &mut Self::State<'f>) {}

    fn evaluate(_host: &mut Host<'_>, value: &f32, _at: [u32; 2]) -> Bounded {
        Bounded::exact((*value).into())
    }
}

impl Supplied for Literal {
    fn supply(from: &mut dyn Supply, _shape: Shape) -> f32 {
        let mut value = [0.0];
        from.scalars(&[], &mut value);
        value[0]
    }
}
