//! Layers that are divided among GPUs: tensor parallelism over NCCL with falchion's kernels.
//!
//! A [`Group`] is a rank's part among others: one process per GPU, started by torchrun, Slurm or MPI, or one
//! thread per GPU. The same group runs on a laptop, where each rank has an emulator and the ranks talk over
//! sockets; layers, their tests and their errors are the same.
//!
//! * [`Group`]: forming a group, memory, collectives.
//! * [`ColumnParallel`], [`RowParallel`]: products whose weights are divided, with their collective.
//! * [`Cut`]: which part of a matrix a rank takes.
//! * [`Place`]: which rank a process is.
//! * [`topology`], [`predict`]: what connects ranks, and how long layers take on more of them.
//! * [`verify`], [`mod@bench`]: random layers beside the whole product, and layers of models beside NCCL and cuBLASLt.
//!
//! The [guide] goes from one GPU to many machines.
//!
//! Nothing hangs: a rank that ends, does not come, or brings another shape is an error on every rank, within
//! the times of [`Limits`].

pub mod bench;
mod control;
mod device;
mod element;
mod enqueue;
mod error;
#[doc = include_str!("guide.md")]
pub mod guide {}
mod group;
mod layer;
mod place;
pub mod predict;
mod record;
mod stream;
mod tensor;
pub mod topology;
pub mod verify;

pub use control::Limits;
pub use control::frame::Member;
pub use device::nccl::Reduction;
pub use element::{Element, Kind};
pub use error::Error;
pub use falchion::collective::F8E4M3;
pub use falchion_core::Kept;
pub use group::Group;
pub use layer::{
    Argument, ColumnParallel, CrossEntropy, Cut, Embedding, Experts, Input, Operand, Routes, RowParallel,
    Scales, Tokens, Weights,
};
pub use place::{Meeting, Place};
pub use record::Record;
pub use stream::{Event, SideStream};
pub use tensor::{Slice, SliceMut, Tensor};
