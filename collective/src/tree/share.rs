//! A value that is used several times but computed once.

use core::cell::{Cell, RefCell};
use core::fmt;
use core::marker::PhantomData;
use std::rc::Rc;

use typenum::{U0, Unsigned};

use super::{
    Begin, Bounded, Given, Host, Node, NodeState, NodeTile, NodeTraits, Pair, Part, Shape, Site, Spell,
    State, Supplied, Supply,
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

/// The state of a [`Let`].
struct LetState<'f> {
    x: Rc<RefCell<State<'f>>>,
    /// Whether X writes something.
    writes: bool,
    body: [State<'f>; 1],
}

impl<'f> NodeState<'f> for LetState<'f> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.body
    }

    fn survey(&mut self, part: &Part<'f>) {
        self.x.borrow_mut().survey(part);
        let later = Later { x: Rc::clone(&self.x), writes: self.writes, loaded: Cell::new(false) };
        part.bound.borrow_mut().push(Binding::Later(Rc::new(later)));
        self.body[0].survey(part);
        part.bound.borrow_mut().pop();
    }

    fn load(&mut self, part: &Part<'f>) {
        self.x.borrow_mut().load(part);
        self.body[0].load(part);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let value = self.x.borrow_mut().compute(part, row, pair);
        part.bound.borrow_mut().push(Binding::Value(value));
        let value = self.body[0].compute(part, row, pair);
        part.bound.borrow_mut().pop();
        value
    }

    fn end(&mut self, tile: &NodeTile<'f>) {
        self.x.borrow_mut().end(tile);
        self.body[0].end(tile);
    }
}

impl<X: Node, Body: Node> Node for Let<X, Body> {
    type Arguments = (X::Arguments, Body::Arguments);
    const TRAITS: NodeTraits = NodeTraits::legal(shared(X::TRAITS, Body::TRAITS));

    fn name() -> String {
        format!("let_{}_in_{}", X::name(), Body::name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[X::name(), Body::name()]);
        X::spell(out);
        Body::spell(out);
    }

    fn visit((x, body): &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
        X::visit(x, shape, &mut site.then("let"));
        Body::visit(body, shape, site);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let (x, body) = (X::device(given), Body::device(given));
        Box::new(move |tile| {
            let (x, writes) = (Rc::new(RefCell::new(x(tile))), X::TRAITS.effects);
            Box::new(LetState { x, writes, body: [body(tile)] })
        })
    }

    fn evaluate(host: &mut Host<'_>, (x, body): &Self::Arguments, at: [u32; 2]) -> Bounded {
        let value = X::evaluate(host, x, at);
        let x = |host: &mut Host<'_>, at: [u32; 2]| X::evaluate(host, x, at);
        host.with((at, value), &x, |host| Body::evaluate(host, body, at))
    }
}

impl<X: Supplied, Body: Supplied> Supplied for Let<X, Body> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        (X::supply(from, shape), Body::supply(from, shape))
    }
}

/// The value of an enclosing [`Let`] for the elements of a part.
#[derive(Clone)]
pub(crate) enum Binding<'f> {
    /// The value of the pair that is computed.
    Value(Pair<'f>),
    /// Rows are surveyed: the value of any pair, computed where it is asked for.
    Later(Rc<Later<'f>>),
}

impl fmt::Debug for Binding<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Binding")
    }
}

/// X of a [`Let`] while rows are surveyed.
pub(crate) struct Later<'f> {
    x: Rc<RefCell<State<'f>>>,
    writes: bool,
    loaded: Cell<bool>,
}

impl<'f> Later<'f> {
    /// Starts the loads of the part, once.
    fn load(&self, part: &Part<'f>) {
        if self.writes {
            part.tile.f.refuse(
                "a node that surveys rows computes what is inside of it twice, and a Bound inside of it names a Let whose value \
                 writes: put reductions and AuxStore around the node",
            );
        }
        if !self.loaded.replace(true) {
            self.x.borrow_mut().load(part);
        }
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

/// The state of a [`Bound`]: its depth.
struct BoundState(usize);

impl<'f> NodeState<'f> for BoundState {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut []
    }

    fn load(&mut self, part: &Part<'f>) {
        part.with_binding(self.0, |binding| match binding {
            Binding::Later(x) => x.load(part),
            Binding::Value(_) => (),
        });
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let value = part.with_binding(self.0, |binding| match binding {
            Binding::Later(later) => later.x.borrow_mut().compute(part, row, pair),
            Binding::Value(value) => *value,
        });
        value.unwrap_or_else(|| {
            let f = part.tile.f;
            f.refuse(
                "a Bound stands where its Let has no value: put the Let inside of the node that computes other columns",
            );
            [part.tile.arithmetic.constant(f, 0.0); 2]
        })
    }
}

impl<Depth: Unsigned + 'static> Node for Bound<Depth> {
    type Arguments = ();
    const TRAITS: NodeTraits = NodeTraits { free: Depth::U32 + 1, ..NodeTraits::LEAF };

    fn name() -> String {
        format!("v{}", Depth::U32)
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[]);
    }

    fn visit((): &mut (), _shape: Shape, _site: &mut Site<'_>) {}

    fn device<'f>(_given: &mut Given<'f>) -> Begin<'f> {
        Box::new(|_| Box::new(BoundState(Depth::USIZE)))
    }

    fn evaluate(host: &mut Host<'_>, (): &(), at: [u32; 2]) -> Bounded {
        host.bound(Depth::USIZE, at).unwrap_or(Bounded::exact(f64::NAN))
    }
}

impl<D: Unsigned + 'static> Supplied for Bound<D> {
    fn supply(_from: &mut dyn Supply, _shape: Shape) {}
}
