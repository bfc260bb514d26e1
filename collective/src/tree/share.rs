//! A value that is used several times but computed once.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::marker::PhantomData;
use std::rc::Rc;

use typenum::{U0, Unsigned};

use super::{
    Bounded, Declare, Host, Node, NodeError, NodeTraits, Pair, Parameters, Part, Path, Shape, Visit,
};

/// `Body`, in which [`Bound`] stands for the value of X. X is computed once per element; once more for each
/// [`Bound`] inside of a node that surveys rows.
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

/// The traits of a [`Let`] of a value and a body.
///
/// # Errors
/// They cannot be combined.
pub(crate) const fn shared(x: NodeTraits, body: NodeTraits) -> Result<NodeTraits, &'static str> {
    x.beside(NodeTraits { free: body.free.saturating_sub(1), ..body })
}

impl<X: Node, Body: Node> Node for Let<X, Body> {
    type Arguments = (X::Arguments, Body::Arguments);
    type Device<'f> = (X::Device<'f>, Body::Device<'f>);
    type State<'f> = (Rc<RefCell<X::State<'f>>>, Body::State<'f>);
    const TRAITS: NodeTraits = NodeTraits::legal(shared(X::TRAITS, Body::TRAITS));

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
        (Rc::new(RefCell::new(X::begin(tile, x))), Body::begin(tile, body))
    }

    fn survey<'f>(part: &Part<'f>, (x, body): &mut Self::State<'f>) {
        X::survey(part, &mut x.borrow_mut());
        let later = Later { x: Rc::clone(x), loaded: Cell::new(false), node: PhantomData::<X> };
        part.bound.borrow_mut().push(Binding::Later(Rc::new(later)));
        Body::survey(part, body);
        part.bound.borrow_mut().pop();
    }

    fn load<'f>(part: &Part<'f>, (x, body): &mut Self::State<'f>) {
        X::load(part, &mut x.borrow_mut());
        Body::load(part, body);
    }

    fn compute<'f>(part: &Part<'f>, (x, body): &mut Self::State<'f>, row: usize, pair: usize) -> Pair<'f> {
        let value = X::compute(part, &mut x.borrow_mut(), row, pair);
        part.bound.borrow_mut().push(Binding::Value(value));
        let value = Body::compute(part, body, row, pair);
        part.bound.borrow_mut().pop();
        value
    }

    fn end<'f>(tile: &Visit<'f>, (x, body): &mut Self::State<'f>) {
        X::end(tile, &mut x.borrow_mut());
        Body::end(tile, body);
    }

    fn evaluate(host: &mut Host<'_>, (x, body): &Self::Arguments, at: [u32; 2]) -> Bounded {
        let value = X::evaluate(host, x, at);
        let x = |host: &mut Host<'_>, at: [u32; 2]| X::evaluate(host, x, at);
        host.with((at, value), &x, |host| Body::evaluate(host, body, at))
    }
}

/// The value of an enclosing [`Let`] for the elements of a part.
#[derive(Clone, Debug)]
pub(crate) enum Binding<'f> {
    /// The value of the pair that is computed.
    Value(Pair<'f>),
    /// Rows are surveyed: the value of any pair, computed where it is asked for.
    Later(Rc<dyn Bind<'f> + 'f>),
}

/// A binding whose value is computed when it is asked for.
pub(crate) trait Bind<'f>: fmt::Debug {
    /// Starts the loads of the part, once.
    fn load(&self, part: &Part<'f>);

    /// The value of a pair.
    fn compute(&self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f>;
}

/// X of a [`Let`] while rows are surveyed.
struct Later<'f, X: Node> {
    x: Rc<RefCell<X::State<'f>>>,
    loaded: Cell<bool>,
    node: PhantomData<X>,
}

impl<X: Node> fmt::Debug for Later<'_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Later").field("x", &X::name()).finish_non_exhaustive()
    }
}

impl<'f, X: Node> Bind<'f> for Later<'f, X> {
    fn load(&self, part: &Part<'f>) {
        if X::TRAITS.effects {
            part.tile.f.refuse(
                "a node that surveys rows computes what is inside of it twice, and a Bound inside of it names a Let whose value \
                 writes: put reductions and AuxStore around the node",
            );
        }
        if !self.loaded.replace(true) {
            X::load(part, &mut self.x.borrow_mut());
        }
    }

    fn compute(&self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        X::compute(part, &mut self.x.borrow_mut(), row, pair)
    }
}

impl<'f> Part<'f> {
    /// Calls `then` with the binding of the enclosing [`Let`] number `depth`, the innermost first, where only
    /// those around that one are visible. `None` if there is no such binding.
    fn with_binding<R>(&self, depth: usize, then: impl FnOnce(&Binding<'f>) -> R) -> Option<R> {
        let mut bound = self.bound.borrow_mut();
        let place = bound.len().checked_sub(depth + 1)?;
        let inner = bound.split_off(place);
        drop(bound);
        let result = inner.first().map(then);
        self.bound.borrow_mut().extend(inner);
        result
    }
}

impl<Depth: Unsigned + 'static> Node for Bound<Depth> {
    type Arguments = ();
    type Device<'f> = ();
    type State<'f> = ();
    const TRAITS: NodeTraits = NodeTraits { free: Depth::U32 + 1, ..NodeTraits::LEAF };

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

    fn load<'f>(part: &Part<'f>, (): &mut ()) {
        part.with_binding(Depth::USIZE, |binding| match binding {
            Binding::Later(x) => x.load(part),
            Binding::Value(_) => (),
        });
    }

    fn compute<'f>(part: &Part<'f>, (): &mut (), row: usize, pair: usize) -> Pair<'f> {
        let value = part.with_binding(Depth::USIZE, |binding| match binding {
            Binding::Later(x) => x.compute(part, row, pair),
            Binding::Value(value) => *value,
        });
        value.unwrap_or_else(|| {
            let f = part.tile.f;
            f.refuse(
                "a Bound stands where its Let has no value: put the Let inside of the node that computes other columns",
            );
            [f.constant(0.0); 2]
        })
    }

    fn end(_tile: &Visit<'_>, (): &mut ()) {}

    fn evaluate(host: &mut Host<'_>, (): &(), at: [u32; 2]) -> Bounded {
        host.bound(Depth::USIZE, at).unwrap_or(Bounded::exact(f64::NAN))
    }
}
