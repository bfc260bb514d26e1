//! A value that is used several times but computed once.

use core::marker::PhantomData;

use typenum::{U0, Unsigned};

use super::{Bounded, Declare, Facts, Host, Node, NodeError, Pair, Parameters, Part, Path, Shape, Visit};

/// `Body`, in which [`Bound`] stands for the value of X. X is computed once per element.
///
/// ```
/// use collective::functions::{Multiply, Relu};
/// use collective::tree::{Accumulator, Bound, Compute, Let, Node};
///
/// /// relu(acc) squared.
/// type SquaredRelu = Let<Compute<Relu, (Accumulator,)>, Compute<Multiply, (Bound, Bound)>>;
/// assert_eq!(SquaredRelu::name(), "let_relu_acc_in_mul_v0_v0");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Let<X, Body>(PhantomData<(X, Body)>);

/// The value of an enclosing [`Let`]: `U0` is the innermost, the default; `U1` the one around it.
#[derive(Clone, Copy, Debug)]
pub struct Bound<Depth = U0>(PhantomData<Depth>);

impl<X: Node, Body: Node> Node for Let<X, Body> {
    type Arguments = (X::Arguments, Body::Arguments);
    type Device<'f> = (X::Device<'f>, Body::Device<'f>);
    type State<'f> = (X::State<'f>, Body::State<'f>);
    const FACTS: Facts = {
        let (x, body) = (X::FACTS, Body::FACTS);
        x.beside(Facts { free: body.free.saturating_sub(1), ..body })
    };

    fn name() -> String {
        format!("let_{}_in_{}", X::name(), Body::name())
    }

    fn check((x, body): &Self::Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        X::check(x, shape, &path.then("let"))?;
        Body::check(body, shape, path)
    }

    fn pairs((x, body): &Self::Arguments) -> bool {
        X::pairs(x) && Body::pairs(body)
    }

    fn parameters((x, body): &Self::Arguments, out: &mut Parameters) {
        X::parameters(x, out);
        Body::parameters(body, out);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Self::Device<'f> {
        (X::declare(declare), Body::declare(declare))
    }

    fn begin<'f>(tile: &Visit<'f>, (x, body): &Self::Device<'f>) -> Self::State<'f> {
        (X::begin(tile, x), Body::begin(tile, body))
    }

    fn survey<'f>(part: &Part<'f>, (x, body): &mut Self::State<'f>) {
        X::survey(part, x);
        Body::survey(part, body);
    }

    fn load<'f>(part: &Part<'f>, (x, body): &mut Self::State<'f>) {
        X::load(part, x);
        Body::load(part, body);
    }

    fn compute<'f>(part: &Part<'f>, (x, body): &mut Self::State<'f>, row: usize, pair: usize) -> Pair<'f> {
        let value = X::compute(part, x, row, pair);
        part.bound.borrow_mut().push(value);
        let value = Body::compute(part, body, row, pair);
        part.bound.borrow_mut().pop();
        value
    }

    fn end<'f>(tile: &Visit<'f>, (x, body): &mut Self::State<'f>) {
        X::end(tile, x);
        Body::end(tile, body);
    }

    fn evaluate(host: &mut Host<'_>, (x, body): &Self::Arguments, at: [u32; 2]) -> Bounded {
        let value = X::evaluate(host, x, at);
        host.bound.push(value);
        let value = Body::evaluate(host, body, at);
        host.bound.pop();
        value
    }
}

impl<Depth: Unsigned + 'static> Node for Bound<Depth> {
    type Arguments = ();
    type Device<'f> = ();
    type State<'f> = ();
    const FACTS: Facts = Facts { free: Depth::U32 + 1, ..Facts::LEAF };

    fn name() -> String {
        format!("v{}", Depth::U32)
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
        // Not reached: a tree with missing bindings does not compile as an epilogue.
        let nan = [part.tile.f.constant(f32::NAN); 2];
        part.bound.borrow().iter().rev().nth(Depth::USIZE).copied().unwrap_or(nan)
    }

    fn end(_tile: &Visit<'_>, (): &mut ()) {}

    fn evaluate(host: &mut Host<'_>, (): &(), _at: [u32; 2]) -> Bounded {
        host.bound.iter().rev().nth(Depth::USIZE).copied().unwrap_or(Bounded::exact(f64::NAN))
    }
}
