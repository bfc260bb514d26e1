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
/// The type states at compile time what the plan needs and which arguments the epilogue takes, and provides
/// the [`EpilogueEmitter`] that emits the code.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an epilogue",
    note = "write `LinearCombination<bf16>` for D = alpha * A * B + beta * C in bf16"
)]
pub trait Epilogue: 'static {
    /// The epilogue's arguments on the host.
    type Arguments: Clone + Default;
    /// What the epilogue asks of the plan.
    const SPEC: EpilogueSpec;
    /// The forms of kernels it supports. Beyond a single GEMM it has to select its C and D by
    /// [`Extent::group`] and [`Extent::record`].
    const FORMS: Forms = Forms::SINGLE;

    /// The emitter of this epilogue.
    fn emitter() -> Arc<dyn EpilogueEmitter>;

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
}

/// The object-safe side of an [`Epilogue`]: it emits the code.
pub trait EpilogueEmitter: fmt::Debug + Send + Sync {
    /// An identifier for kernel names.
    fn name(&self) -> String;

    /// [Visits](Epilogue::visit) the default arguments: a program has the parameters that are stated of them.
    fn state(&self, of: &EpilogueSite<'_>, visit: &mut dyn Visit);

    /// The epilogue inside a kernel, which gets its parameters by their names ([`Builder::parameter`]).
    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceEpilogue<'f> + 'f>;

    /// How it stores D, for an epilogue of this crate; `None` for one of your own.
    fn store(&self) -> Option<StoreSpec> {
        None
    }

    /// The tree as text, if the epilogue is a tree that [`Formula`] names or made; else `None`.
    fn formula(&self) -> Option<Formula> {
        None
    }

    /// This epilogue as one that takes [`LinearArguments`]; `None` if it takes other arguments.
    fn linear(&self) -> Option<Linear> {
        None
    }
}

/// An epilogue that the host can evaluate, so that a check can compute the expected result.
pub trait Evaluated: Epilogue {
    /// The value of D's element `at` (row, column) before it is rounded to D's format, with a bound on the
    /// error a kernel may have. `host` records what the epilogue writes in addition to D.
    fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> Bounded;
}

/// An epilogue inside a kernel: its parameters on the device.
pub trait DeviceEpilogue<'f> {
    /// Emitted for a consumer warpgroup before it multiplies a work unit: starts loads that
    /// [`store`](Self::store) will need.
    fn begin(&self, Pass { .. }: Pass<'_, 'f>, _extent: Extent<'f>, _consumer: Consumer<'f>) {}

    /// Emitted for a consumer warpgroup: applies the epilogue to the warpgroup's fragment of a tile and
    /// stores it.
    fn store(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f32>);

    /// As [`store`](Self::store), for integer accumulators. The default converts them to the nearest `f32`
    /// first.
    fn store_integers(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, i32>) {
        self.store(f, plan, extent, fragment.to_f32(f));
    }

    /// As [`store`](Self::store), for `f64` accumulators. The default makes the program illegal: only
    /// [`LinearCombination`] stores them.
    fn store_doubles(&self, f: &'f Builder, _plan: &Plan, _extent: Extent<'f>, _fragment: Fragment<'f, f64>) {
        f.refuse("the epilogue computes in f32, and the accumulators are f64: use LinearCombination<f64>");
    }

    /// Emitted for a consumer warpgroup after its last tile: waits for outstanding stores. `thread` is the
    /// thread's index in the warpgroup.
    fn finish(&self, f: &'f Builder, plan: &Plan, thread: Value<'f, u32>);
}
