//! Collective epilogues: from accumulators to the output in memory.

mod direct;
mod doubles;
mod factors;
mod linear;
mod parts;
mod sourced;
mod staging;
mod store;
mod tma;
mod transposed;
mod tree;

pub use direct::DirectStore;
pub use linear::{Linear, LinearArguments, LinearCombination};
pub use sourced::{Sourced, SourcedCombination};
pub use store::{Access, Combine, Output, Store, StoreDevice, StoreSpec, Stored, Values, Way};
pub use tma::TmaStore;
pub use transposed::Transposed;
pub use tree::{TreeEpilogue, Treed};

use core::fmt;
use std::sync::Arc;

use ptx::Builder;
use ptx::Value;
use ptx::abi::Argument;

use crate::extent::Extent;
use crate::form::Forms;
use crate::mainloop::{Consumer, Fragment, Piece};
use crate::plan::{EpilogueSpec, Plan};
use crate::tree::{Bounded, Host, NodeError, Path, Shape};

/// A collective epilogue as a type: the second role of a kernel.
///
/// The type says what a plan needs while it compiles, what the epilogue's arguments are, and gives the value that emits: an
/// [`EpilogueEmitter`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an epilogue",
    note = "write `LinearCombination<bf16>` for D = alpha * A * B + beta * C in bf16"
)]
pub trait Epilogue: 'static {
    /// Its arguments on the host.
    type Arguments;
    /// What it asks of the plan.
    const SPEC: EpilogueSpec;
    /// The forms of kernels it can be part of: beyond one product, those whose C and D it takes by [`Extent::group`] and
    /// [`Extent::record`].
    const FORMS: Forms = Forms::SINGLE;

    /// The epilogue as a value.
    fn emitter() -> Arc<dyn EpilogueEmitter>;

    /// Whether the arguments are legal for a product of this shape. `path` is where the epilogue stands; what it reads and writes
    /// beside D is told to it ([`Path::reads`], [`Path::writes`]), so that launches can check that it was lent.
    ///
    /// # Errors
    /// The first that is not.
    fn check(arguments: &Self::Arguments, product: Shape, path: &Path<'_>) -> Result<(), NodeError>;

    /// The values of its parameters.
    fn parameters(plan: &Plan, arguments: &Self::Arguments, d: Output) -> Vec<Argument>;
}

/// An epilogue that emits itself.
pub trait EpilogueEmitter: fmt::Debug + Send + Sync {
    /// An identifier for kernel names.
    fn name(&self) -> String;

    /// Declares its kernel parameters, in the order of [`Epilogue::parameters`].
    fn declare<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceEpilogue<'f> + 'f>;

    /// How it stores D, if it is one of this crate; `None` for one of your own.
    fn store(&self) -> Option<StoreSpec> {
        None
    }

    /// The epilogue as one whose arguments are [`LinearArguments`]; `None` where it has others.
    fn linear(&self) -> Option<&dyn LinearHost> {
        None
    }
}

/// An epilogue that the host can evaluate, so that a check knows what a kernel with it has to compute.
pub trait Evaluated: Epilogue {
    /// What D's element `at` (row, column) is before it is rounded to D's format, and how far from that a kernel may be. What is written beside
    /// D is remembered in `host`.
    fn evaluate(host: &mut Host<'_>, arguments: &Self::Arguments, at: [u32; 2]) -> Bounded;
}

/// The host's side of an epilogue of [`LinearArguments`].
pub trait LinearHost {
    /// As [`Epilogue::check`].
    ///
    /// # Errors
    /// The first argument that is illegal.
    fn check(&self, arguments: &LinearArguments, product: Shape, path: &Path<'_>) -> Result<(), NodeError>;

    /// As [`Epilogue::parameters`].
    fn parameters(&self, plan: &Plan, arguments: &LinearArguments, d: Output) -> Vec<Argument>;
}

/// An epilogue in a kernel: its parameters on the device.
pub trait DeviceEpilogue<'f> {
    /// Emitted for a consumer warpgroup before it multiplies a piece: starts what [`store`](Self::store) will need.
    fn begin(
        &self,
        _f: &'f Builder,
        _plan: &Plan,
        _extent: Extent<'f>,
        _consumer: Consumer<'f>,
        _piece: Piece<'f>,
    ) {
    }

    /// Emitted for a consumer warpgroup: finishes and stores its part of a tile.
    fn store(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f32>);

    /// The same for sums of integers. By default they become the nearest `f32`.
    fn store_integers(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, i32>) {
        self.store(f, plan, extent, fragment.to_f32(f));
    }

    /// The same for sums of `f64`. By default the program is illegal: [`LinearCombination`] alone stores them.
    fn store_doubles(&self, f: &'f Builder, _plan: &Plan, _extent: Extent<'f>, _fragment: Fragment<'f, f64>) {
        f.refuse("the epilogue computes in f32, and the sums are f64: use LinearCombination<f64>");
    }

    /// Emitted for a consumer warpgroup after its last tile: waits for what is still being stored. `thread` is the
    /// thread's index in the warpgroup.
    fn finish(&self, f: &'f Builder, plan: &Plan, thread: Value<'f, u32>);
}
