//! Leaves with one value for all elements, and the accumulator.

use core::marker::PhantomData;

use ptx::Value;
use typenum::{U1, Unsigned};

use super::{
    Bounded, Declare, Host, Node, NodeError, NodeTraits, Pair, Parameters, Part, Path, Shape, Visit,
};
use crate::element::Element;

/// The accumulator: the element of A * B.
#[derive(Clone, Copy, Debug)]
pub struct Accumulator;

impl Node for Accumulator {
    type Arguments = ();
    type Device<'f> = ();
    type State<'f> = ();
    const TRAITS: NodeTraits = NodeTraits { halvings: Some(0), ..NodeTraits::LEAF };

    fn name() -> String {
        "acc".to_owned()
    }

    fn check((): &(), _shape: Shape, _path: &Path<'_>) -> Result<(), NodeError> {
        Ok(())
    }

    fn pairs((): &()) -> bool {
        true
    }

    fn parameters((): &(), _out: &mut Parameters) {}

    fn declare(_declare: &mut Declare<'_>) {}

    fn begin(_tile: &Visit<'_>, (): &()) {}

    fn survey<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn load(_part: &Part<'_>, (): &mut ()) {}

    fn compute<'f>(part: &Part<'f>, (): &mut (), row: usize, pair: usize) -> Pair<'f> {
        part.rows[row].accumulators[pair]
    }

    fn end(_tile: &Visit<'_>, (): &mut ()) {}

    fn evaluate(host: &mut Host<'_>, (): &(), at: [u32; 2]) -> Bounded {
        host.accumulator(at)
    }
}

/// The number `N / D`, a constant of the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Constant<N, D = U1>(PhantomData<(N, D)>);

impl<N: Unsigned + 'static, D: Unsigned + 'static> Constant<N, D> {
    fn value() -> f32 {
        const { assert!(D::U32 > 0, "a Constant's denominator is 0: use Constant<U1, U2> for one half") }
        N::U32 as f32 / D::U32 as f32
    }
}

impl<N: Unsigned + 'static, D: Unsigned + 'static> Node for Constant<N, D> {
    type Arguments = ();
    type Device<'f> = ();
    type State<'f> = ();
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        format!("{}d{}", N::U32, D::U32)
    }

    fn check((): &(), _shape: Shape, _path: &Path<'_>) -> Result<(), NodeError> {
        Ok(())
    }

    fn pairs((): &()) -> bool {
        true
    }

    fn parameters((): &(), _out: &mut Parameters) {}

    fn declare(_declare: &mut Declare<'_>) {}

    fn begin(_tile: &Visit<'_>, (): &()) {}

    fn survey<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn load(_part: &Part<'_>, (): &mut ()) {}

    fn compute<'f>(part: &Part<'f>, (): &mut (), _row: usize, _pair: usize) -> Pair<'f> {
        [part.tile.f.constant(Self::value()); 2]
    }

    fn end(_tile: &Visit<'_>, (): &mut ()) {}

    fn evaluate(_host: &mut Host<'_>, (): &(), _at: [u32; 2]) -> Bounded {
        Bounded::exact(Self::value().into())
    }
}

/// A number passed by the host, the same for all elements.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl Node for Scalar {
    type Arguments = f32;
    type Device<'f> = Value<'f, f32>;
    type State<'f> = Value<'f, f32>;
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        "s".to_owned()
    }

    fn check(_value: &f32, _shape: Shape, _path: &Path<'_>) -> Result<(), NodeError> {
        Ok(())
    }

    fn pairs(_value: &f32) -> bool {
        true
    }

    fn parameters(value: &f32, out: &mut Parameters) {
        out.push(*value);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Value<'f, f32> {
        declare.param()
    }

    fn begin<'f>(_tile: &Visit<'f>, device: &Value<'f, f32>) -> Value<'f, f32> {
        *device
    }

    fn survey<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn load<'f>(_part: &Part<'f>, _state: &mut Value<'f, f32>) {}

    fn compute<'f>(_part: &Part<'f>, state: &mut Value<'f, f32>, _row: usize, _pair: usize) -> Pair<'f> {
        [*state; 2]
    }

    fn end<'f>(_tile: &Visit<'f>, _state: &mut Value<'f, f32>) {}

    fn evaluate(_host: &mut Host<'_>, value: &f32, _at: [u32; 2]) -> Bounded {
        Bounded::exact((*value).into())
    }
}

/// A number in device memory, the same for all elements: for example, the result of an earlier kernel. Its
/// argument is the address.
#[derive(Clone, Copy, Debug)]
pub struct ScalarPointer<T>(PhantomData<T>);

impl<T: Element> Node for ScalarPointer<T> {
    type Arguments = u64;
    type Device<'f> = Value<'f, u64>;
    type State<'f> = Value<'f, f32>;
    const TRAITS: NodeTraits = NodeTraits::LEAF;

    fn name() -> String {
        format!("p{}", T::FORMAT.name())
    }

    fn check(address: &u64, _shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        path.reads(T::FORMAT, *address, 1)
    }

    fn pairs(_address: &u64) -> bool {
        true
    }

    fn parameters(address: &u64, out: &mut Parameters) {
        out.push(*address);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Value<'f, u64> {
        declare.param()
    }

    fn begin<'f>(tile: &Visit<'f>, device: &Value<'f, u64>) -> Value<'f, f32> {
        T::FORMAT.widen(T::FORMAT.load(tile.f, tile.place(*device), 0))
    }

    fn survey<'f>(_part: &Part<'f>, _state: &mut Self::State<'f>) {}

    fn load<'f>(_part: &Part<'f>, _state: &mut Value<'f, f32>) {}

    fn compute<'f>(_part: &Part<'f>, state: &mut Value<'f, f32>, _row: usize, _pair: usize) -> Pair<'f> {
        [*state; 2]
    }

    fn end<'f>(_tile: &Visit<'f>, _state: &mut Value<'f, f32>) {}

    fn evaluate(host: &mut Host<'_>, address: &u64, _at: [u32; 2]) -> Bounded {
        host.read(T::FORMAT, *address)
    }
}
