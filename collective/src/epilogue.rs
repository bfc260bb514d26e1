//! Collective epilogues: they turn accumulators into the output in global memory.

mod direct;
mod doubles;
mod factors;
mod formula;
mod linear;
mod parts;
mod sourced;
mod staged_rows;
mod staging;
mod store;
mod tma;
mod transposed;
mod tree;

pub use direct::DirectStore;
pub use linear::{Linear, LinearArguments, LinearCombination};
pub use sourced::SourcedCombination;
pub use staged_rows::StagedRows;
pub use store::{Output, Store, StorePath, StoreSpec};
pub use tma::TmaStore;
pub use transposed::Transposed;
pub use tree::{TreeEpilogue, Treed};

use core::fmt;
use core::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use ptx::Builder;
use ptx::Value;

use crate::extent::Extent;
use crate::form::Forms;
use crate::formula::Formula;
use crate::mainloop::{Consumer, Fragment, Pass};
use crate::operands::{Extents, Visit};
use crate::plan::{EpilogueSpec, Plan};
use crate::tree::{Bounded, Host, Shape, Site};

/// For what the arguments of an epilogue are visited.
#[derive(Clone, Copy, Debug)]
pub struct EpilogueSite<'a> {
    /// The extents of D, which has its name in what is visited before.
    pub d: Extents,
    /// The GEMM's N, where it is known: an epilogue may join columns, and D has fewer.
    pub n: Option<u32>,
    /// The kernel's plan; `None` if no kernel is chosen yet, and no parameters are stated.
    pub plan: Option<&'a Plan>,
    /// D, if a launch is made: then parameters have their values.
    pub output: Option<Output>,
}

impl EpilogueSite<'_> {
    /// For a D of this shape, without a kernel.
    pub fn of_shape(Shape { m, n }: Shape) -> Self {
        let d = Extents { lines: m, ..Extents::line(0, n.into()) };
        Self { d, n: None, plan: None, output: None }
    }

    /// The shape of D.
    pub fn shape(&self) -> Shape {
        // D has fewer than 2^31 columns.
        Shape { m: self.d.lines, n: self.d.length as u32 }
    }
}

/// A collective epilogue as a type: the second role of a kernel.
///
/// The type states at compile time what the plan needs and which arguments the epilogue takes, emits its code, and evaluates itself on the
/// host. As a value it is an [`AnyEpilogue`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an epilogue",
    note = "write `LinearCombination<bf16>` for D = alpha * A * B + beta * C in bf16"
)]
pub trait Epilogue: Sized + 'static {
    /// The epilogue's arguments on the host.
    type Arguments: Clone + Default;
    /// What the epilogue asks of the plan.
    const SPEC: EpilogueSpec;
    /// The forms of kernels it supports. Beyond a single GEMM it has to select its C and D by
    /// [`Extent::group`] and [`Extent::record`].
    const FORMS: Forms = Forms::SINGLE;

    /// An identifier for kernel names.
    fn name() -> String;

    /// The arguments as alpha, beta and C, if they mean what [`LinearArguments`] says: with alpha = 0, A and B are not read,
    /// and records in device memory have a C. By default they do not.
    fn linear(_arguments: &Self::Arguments) -> Option<&LinearArguments> {
        None
    }

    /// The same, to be changed. Whoever implements one implements both.
    fn linear_mut(_arguments: &mut Self::Arguments) -> Option<&mut LinearArguments> {
        None
    }

    /// The epilogue's interface: visits the arguments, every address, with what is read or written there in addition
    /// to D, and every number; and states the kernel parameters, where there is a [plan](EpilogueSite::plan). What is visited is checked to be lent, part of what
    /// a kept launch compares, and filled by whoever measures or proves a kernel. It also says
    /// what is illegal ([`Site::refuse`]).
    fn visit(arguments: &mut Self::Arguments, of: &EpilogueSite<'_>, site: &mut Site<'_>);

    /// The epilogue inside a kernel, which gets its parameters by their names ([`Builder::parameter`]).
    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f>;

    /// The value of D's element `at` (row, column) before it is rounded to D's format, with a bound on the
    /// error a kernel may have. `host` records what the epilogue writes in addition to D. Checks compare kernels with it.
    fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> Bounded;

    /// The epilogue as a value.
    fn value() -> AnyEpilogue {
        AnyEpilogue(Arc::new(OfType::<Self>(PhantomData)))
    }
}

/// An epilogue as a value: it emits the code. It is cheap to clone.
#[derive(Clone)]
pub struct AnyEpilogue(Arc<dyn Emitter>);

impl fmt::Debug for AnyEpilogue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyEpilogue").field(&self.name()).finish()
    }
}

impl AnyEpilogue {
    /// An identifier for kernel names.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// [Visits](Epilogue::visit) the default arguments: a program has the parameters that are stated of them.
    pub fn state(&self, of: &EpilogueSite<'_>, visit: &mut dyn Visit) {
        self.0.state(of, visit);
    }

    /// As [`Epilogue::device`].
    pub fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f> {
        self.0.device(f, plan)
    }

    /// How it stores D, for an epilogue of this crate; `None` for one of your own.
    pub fn store(&self) -> Option<StoreSpec> {
        self.0.store()
    }

    /// The tree as text, if the epilogue is a tree that [`Formula`] names or made; else `None`.
    pub fn formula(&self) -> Option<Formula> {
        self.0.formula()
    }

    /// This epilogue as one that takes [`LinearArguments`]; `None` if it takes other arguments.
    pub fn linear(&self) -> Option<Linear> {
        self.0.linear()
    }
}

/// What an [`AnyEpilogue`] is.
trait Emitter: Send + Sync {
    fn name(&self) -> String;
    fn state(&self, of: &EpilogueSite<'_>, visit: &mut dyn Visit);
    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f>;

    fn store(&self) -> Option<StoreSpec> {
        None
    }

    fn formula(&self) -> Option<Formula> {
        None
    }

    fn linear(&self) -> Option<Linear> {
        None
    }
}

/// An epilogue of one's own.
struct OfType<E>(PhantomData<fn() -> E>);

impl<E: Epilogue> Emitter for OfType<E> {
    fn name(&self) -> String {
        E::name()
    }

    fn state(&self, of: &EpilogueSite<'_>, visit: &mut dyn Visit) {
        E::visit(&mut E::Arguments::default(), of, &mut Site::root(1, visit));
    }

    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f> {
        E::device(f, plan)
    }
}

/// An epilogue inside a kernel, with its parameters on the device: functions that are emitted for a consumer warpgroup.
pub struct DeviceEpilogue<'f> {
    begin: Rc<Begins<'f>>,
    store: Rc<Stores<'f, f32>>,
    store_integers: Rc<Stores<'f, i32>>,
    store_doubles: Rc<Stores<'f, f64>>,
    finish: Rc<Finishes<'f>>,
}

type Begins<'f> = dyn Fn(Pass<'_, 'f>, Extent<'f>, Consumer<'f>) + 'f;
type Stores<'f, T> = dyn Fn(&'f Builder, &Plan, Extent<'f>, Fragment<'f, T>) + 'f;
type Finishes<'f> = dyn Fn(&'f Builder, &Plan, Value<'f, u32>) + 'f;

impl fmt::Debug for DeviceEpilogue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceEpilogue").finish_non_exhaustive()
    }
}

impl<'f> DeviceEpilogue<'f> {
    /// An epilogue of two functions: [`store`](Self::store), before which integer accumulators are converted to the nearest `f32`, and
    /// [`finish`](Self::finish). Accumulators of `f64` make the program illegal.
    pub fn new(
        store: impl Fn(&'f Builder, &Plan, Extent<'f>, Fragment<'f, f32>) + 'f,
        finish: impl Fn(&'f Builder, &Plan, Value<'f, u32>) + 'f,
    ) -> Self {
        Self::of(Functions { store, finish })
    }

    fn of(device: impl OnDevice<'f> + 'f) -> Self {
        let [begin, store, integers, doubles, finish] = {
            let device = Rc::new(device);
            core::array::from_fn(|_| Rc::clone(&device))
        };
        Self {
            begin: Rc::new(move |pass, extent, consumer| begin.begin(pass, extent, consumer)),
            store: Rc::new(move |f, plan, extent, sums| store.store(f, plan, extent, sums)),
            store_integers: Rc::new(move |f, plan, extent, sums| {
                integers.store_integers(f, plan, extent, sums);
            }),
            store_doubles: Rc::new(move |f, plan, extent, sums| doubles.store_doubles(f, plan, extent, sums)),
            finish: Rc::new(move |f, plan, thread| finish.finish(f, plan, thread)),
        }
    }

    /// The same with another [`begin`](Self::begin).
    #[must_use]
    pub fn with_begin(self, begin: impl Fn(Pass<'_, 'f>, Extent<'f>, Consumer<'f>) + 'f) -> Self {
        Self { begin: Rc::new(begin), ..self }
    }

    /// The same with another [`store_integers`](Self::store_integers).
    #[must_use]
    pub fn with_integers(
        self,
        store: impl Fn(&'f Builder, &Plan, Extent<'f>, Fragment<'f, i32>) + 'f,
    ) -> Self {
        Self { store_integers: Rc::new(store), ..self }
    }

    /// The same with another [`store_doubles`](Self::store_doubles).
    #[must_use]
    pub fn with_doubles(
        self,
        store: impl Fn(&'f Builder, &Plan, Extent<'f>, Fragment<'f, f64>) + 'f,
    ) -> Self {
        Self { store_doubles: Rc::new(store), ..self }
    }

    /// The same, which stores what `change` makes of a fragment and of where it is stored. Accumulators are as for [`new`](Self::new).
    #[must_use]
    pub fn with_change(
        self,
        change: impl Fn(&'f Builder, Extent<'f>, Fragment<'f, f32>) -> (Extent<'f>, Fragment<'f, f32>) + 'f,
    ) -> Self {
        let Self { begin, store, finish, .. } = self;
        let changed = move |f, plan: &Plan, extent, fragment| {
            let (extent, fragment) = change(f, extent, fragment);
            store(f, plan, extent, fragment);
        };
        Self { begin, ..Self::new(changed, move |f, plan, thread| finish(f, plan, thread)) }
    }

    /// Emitted before a work unit is multiplied: starts loads that [`store`](Self::store) will need.
    pub fn begin(&self, pass: Pass<'_, 'f>, extent: Extent<'f>, consumer: Consumer<'f>) {
        (self.begin)(pass, extent, consumer);
    }

    /// Applies the epilogue to the warpgroup's fragment of a tile and stores it.
    pub fn store(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f32>) {
        (self.store)(f, plan, extent, fragment);
    }

    /// As [`store`](Self::store), for integer accumulators.
    pub fn store_integers(
        &self,
        f: &'f Builder,
        plan: &Plan,
        extent: Extent<'f>,
        fragment: Fragment<'f, i32>,
    ) {
        (self.store_integers)(f, plan, extent, fragment);
    }

    /// As [`store`](Self::store), for `f64` accumulators.
    pub fn store_doubles(
        &self,
        f: &'f Builder,
        plan: &Plan,
        extent: Extent<'f>,
        fragment: Fragment<'f, f64>,
    ) {
        (self.store_doubles)(f, plan, extent, fragment);
    }

    /// Emitted after the last tile: waits for outstanding stores. `thread` is the thread's index in the warpgroup.
    pub fn finish(&self, f: &'f Builder, plan: &Plan, thread: Value<'f, u32>) {
        (self.finish)(f, plan, thread);
    }
}

/// The functions of a [`DeviceEpilogue`] of this crate.
trait OnDevice<'f> {
    fn begin(&self, Pass { .. }: Pass<'_, 'f>, _extent: Extent<'f>, _consumer: Consumer<'f>) {}

    fn store(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f32>);

    fn store_integers(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, i32>) {
        self.store(f, plan, extent, fragment.to_f32(f));
    }

    fn store_doubles(&self, f: &'f Builder, _plan: &Plan, _extent: Extent<'f>, _fragment: Fragment<'f, f64>) {
        f.refuse("the epilogue computes in f32, and the accumulators are f64: use LinearCombination<f64>");
    }

    fn finish(&self, f: &'f Builder, plan: &Plan, thread: Value<'f, u32>);
}

/// An epilogue of one's own on the device.
struct Functions<S, F> {
    store: S,
    finish: F,
}

impl<'f, S, F> OnDevice<'f> for Functions<S, F>
where
    S: Fn(&'f Builder, &Plan, Extent<'f>, Fragment<'f, f32>),
    F: Fn(&'f Builder, &Plan, Value<'f, u32>),
{
    fn store(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f32>) {
        (self.store)(f, plan, extent, fragment);
    }

    fn finish(&self, f: &'f Builder, plan: &Plan, thread: Value<'f, u32>) {
        (self.finish)(f, plan, thread);
    }
}
