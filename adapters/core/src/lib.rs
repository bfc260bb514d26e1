//! A GEMM, or attention, that is described at run time, for adapters to other languages: the kernel is chosen, or taken from
//! a spec; the epilogue may be a text; it is launched with plain addresses on any stream, or run in the
//! emulator on the host's memory.
//!
//! A description is a [`Request`](falchion::kernel::Request). Its addresses say only which powers of two
//! divide the later ones: see [`aligned`].
//!
//! * [`GEMM`], [`ATTENTION`], [`GRADIENT`], [`MERGE_ATTENTION`], [`APPEND_PAGES`]: the arguments of operations by name, which doors walk;
//!   [`Gemms`], [`Heads`], [`MergedHeads`] and [`NewKeys`]: what they say;
//!   [`bind`]: addresses for the memory that a kernel's interface names.
//! * [`Picked`]: the kernel for a request of any family that is [`Offered`]: GEMM, attention, its gradient, kernels over rows. It is loaded, launched and
//!   emulated.
//! * [`Kept`]: any kernel, loaded at its first launch: what was picked is one.
//! * [`Choices`]: kernels that were chosen, by what their choices depend on; [`Picks`]: those of a family whose kernels requests share.
//! * [`Slot`]: an argument of the epilogue's text, and what it must be.
//! * [`Epilogue`]: the arguments of a call's epilogue.
//! * [`OptionalArgument`]: what may be given in addition, and whether it is used.
//! * [`Weights`]: few-bit weights, from codes or from files of GPTQ, AWQ and MXFP4.
//! * [`Layer`]: a linear layer from the [`Tensors`] of a file, by name; [`FewBit`] is its product.

mod arguments;
mod attention;
mod backward;
mod choices;
mod described;
mod fewbit;
mod file;
mod host;
mod kept;
mod layer;
mod picked;
mod refusal;
mod rows;
mod slots;
mod unused;
mod weights;
mod words;

pub use arguments::array::{ARRAY, NamedArray};
pub use arguments::attention::{ATTENTION, AskedHeads, GRADIENT, Heads};
pub use arguments::gemm::{GEMM, Gemms, ProductRun};
pub use arguments::gemms::Asked;
pub use arguments::input::{INPUT, NamedInput};
pub use arguments::rows::{APPEND_PAGES, MERGE_ATTENTION, MergedHeads, NewKeys};
pub use arguments::{
    Argument, Goes, Kind as FieldKind, Operation, Placed, Python, Structure, Switch, Value, bind,
};
pub use choices::{Choices, Picks, Shared, machine};
pub use described::{Described, Epilogue};
pub use falchion::kernel::driver::Activation;
pub use fewbit::{FewBit, FewBitMemory};
#[cfg(feature = "safetensors")]
pub use file::Prefixed;
pub use file::{Stored, Tensors, missing};
pub use host::{Hosted, Run, Watch};
pub use kept::{Kept, is_captured};
pub use layer::{FewBits, Layer, bias};
pub use picked::{Offered, Picked, choose, ranked};
pub use refusal::{Refusal, aligned};
pub use slots::{Kind, Slot, slots};
pub use unused::{OptionalArgument, refuse_unused};
pub use weights::{AlignedLines, WeightGroups, Weights};
pub use words::{code, format, formula, majors, types};
