//! Collective epilogues: from accumulators to the output in memory.

mod direct;
mod linear;
mod parts;
mod sourced;
mod staging;
mod store;
mod tma;
mod transposed;
mod tree;

pub use direct::DirectStore;
pub use linear::{LinearArguments, LinearCombination};
pub use sourced::SourcedCombination;
pub(crate) use staging::FIRST_BARRIER;
pub use store::{Access, Combine, Output, Store, Values};
pub use tma::TmaStore;
pub use transposed::Transposed;
pub use tree::{HasTree, TreeEpilogue};

use ptx::Builder;
use ptx::Value;
use ptx::abi::Argument;

use crate::element::Element;
use crate::form::Forms;
use crate::mainloop::{Consumer, Fragment, Piece};
use crate::plan::{EpilogueSpec, Plan};
use crate::record::RecordDevice;
use crate::tree::{NodeError, Shape};

/// The output's extent on the device.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'f> {
    /// Rows.
    pub m: Value<'f, u32>,
    /// Columns.
    pub n: Value<'f, u32>,
    /// Which of several outputs it is; `None` where there is but one.
    pub group: Option<Value<'f, u32>>,
    /// What memory says of the product, where it does.
    pub record: Option<RecordDevice<'f>>,
}

/// A collective epilogue over accumulators of type `f32`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an epilogue",
    note = "write `LinearCombination<bf16>` for D = alpha * A * B + beta * C in bf16"
)]
pub trait Epilogue: 'static {
    /// Type of the accumulators it takes.
    type Accumulator;
    /// Type of C and D.
    type Output: Element;
    /// Its arguments on the host.
    type Arguments;
    /// Its kernel parameters on the device.
    type Device<'f>: Copy;
    /// What it asks of the plan.
    const SPEC: EpilogueSpec;
    /// The forms of kernels it can be part of: beyond one product, those whose C and D it takes by [`Extent::group`] and
    /// [`Extent::record`].
    const FORMS: Forms = Forms::SINGLE;
    /// What D's address, row length and row pitch must be a multiple of, in bytes.
    const OUTPUT_ALIGNMENT: u64;

    /// An identifier for kernel names.
    fn name() -> String;

    /// Declares its kernel parameters, in the order of [`Epilogue::parameters`].
    fn declare<'f>(f: &'f Builder, plan: &Plan) -> Self::Device<'f>;

    /// Whether the arguments are legal for a product of this shape.
    ///
    /// # Errors
    /// The first that is not.
    fn check(arguments: &Self::Arguments, product: Shape) -> Result<(), NodeError>;

    /// The values of its parameters.
    fn parameters(plan: &Plan, arguments: &Self::Arguments, d: Output) -> Vec<Argument>;

    /// Emitted for a consumer warpgroup before it multiplies a piece: starts what [`store`](Self::store) will need.
    fn begin<'f>(
        _f: &'f Builder,
        _plan: &Plan,
        _device: Self::Device<'f>,
        _extent: Extent<'f>,
        _consumer: Consumer<'f>,
        _piece: Piece<'f>,
    ) {
    }

    /// Emitted for a consumer warpgroup: finishes and stores its part of a tile.
    fn store<'f>(
        f: &'f Builder,
        plan: &Plan,
        device: Self::Device<'f>,
        extent: Extent<'f>,
        fragment: Fragment<'f, Self::Accumulator>,
    );

    /// Emitted for a consumer warpgroup behind its last tile: waits for what is still being stored. `thread` is the
    /// thread's index in the warpgroup.
    fn finish(f: &Builder, plan: &Plan, thread: Value<'_, u32>);
}
