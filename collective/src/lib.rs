//! Collectives: what the threads of a CTA do together to one output tile.
//!
//! A kernel is composed of three roles, each a trait with interchangeable implementations. Two of them live here:
//!
//! * a [`Mainloop`] brings operand tiles into shared memory and multiplies them ([`TmaWgmma`], or [`CopyWgmma`] for operands
//!   at any address; [`MmaSync`] and [`Simt`] are those before `wgmma`);
//! * an [`Epilogue`] turns accumulators into the output ([`LinearCombination`], or a [`tree`] of your own).
//!
//! The third, the tile scheduler, is a crate of its own and never meets these two.
//!
//! # Who produces, who consumes
//!
//! The first warpgroup of a CTA is the *producer*: it gives most of its registers away, and one of its threads
//! starts all tensor copies, or all of its threads copy. The other warpgroups are *consumers*: they take those registers, multiply, and store. Between
//! them lies a ring of *stages* ([`pipeline`]), each of which holds a list of tiles: A's, B's, and what else a mainloop needs.
//!
//! # A mainloop of your own
//!
//! Our mainloops are made of public parts, and so is yours:
//!
//! | part | does |
//! |---|---|
//! | [`OperandTile`] | says how an operand's tile lies in a stage, and finds it there |
//! | [`Room`], [`RingPlan`] | plan a stage from a list of tiles, and a ring from stages |
//! | [`Ring`](pipeline::Ring), [`Position`](pipeline::Position), [`Release`](pipeline::Release) | walk the ring: fill, wait, give back |
//! | [`TensorCopy`], [`ThreadCopy`] | load a tile, by tensor copies or by `cp.async` |
//! | [`Product`] | multiplies two tiles by `wgmma` into accumulators, as many products as there are registers for |
//! | [`Fragments`] | A from registers: converted on the way, or the sums of another product |
//! | [`Consumer::each_stage`] | walks the stages of a piece |
//!
//! `MainloopSpec { more, own_bytes, registers, atom, .. }` tells the plan what differs from one of ours: further tiles of a stage,
//! shared memory of its own, registers of another product, the instruction's types. `kernel/tests/parts` has two products of one A, two
//! products one after the other, block scales as a third tile, and A from registers.
//!
//! # Where the numbers come from
//!
//! [`Plan::new`] turns what the mainloop and the epilogue ask for into every number of the kernel, or into a
//! [`PlanError`] that says which rule of the hardware is broken and what would mend it. It is a `const fn`: kernel
//! types evaluate it while they compile. Addresses come from the layouts of `cute_rs`; none is written by hand.
#![forbid(unsafe_code)]

mod element;
mod epilogue;
mod extent;
mod fixup;
mod form;
pub mod functions;
mod fusion;
mod group_scales;
mod mainloop;
mod operand;
pub mod pipeline;
mod plan;
pub mod queue;
pub mod random;
mod real;
mod record;
mod scales;
mod sentence;
pub mod sparse;
mod tile;
pub mod tree;
pub mod weights;

pub use cute_rs::types::{ColumnMajor, RowMajor, Sw, Swizzled};
pub use element::{Code, Coded, Element, F4E2M1, Format, Int4, MultipliesWith, Narrow, Packed, Tf32, Uint4};
pub use epilogue::{
    Access, Combine, DeviceEpilogue, DirectStore, Epilogue, EpilogueEmitter, Evaluated, Linear,
    LinearArguments, LinearCombination, LinearHost, Output, Sourced, SourcedCombination, Store, StoreDevice,
    StoreSpec, Stored, TmaStore, Transposed, TreeEpilogue, Treed, Values, Way,
};
pub use extent::Extent;
pub use fixup::{FixUp, Share, exchange_in_cluster, sums_bytes};
pub use float8::{F8E4M3, F8E5M2};
pub use form::{Batch, Form, Forms};
pub use functions::{Gradient, Pointwise, Scalars, evaluate, evaluate_bounded, evaluate_in};
pub use fusion::Fusion;
pub use group_scales::GroupScales;
pub use mainloop::{
    Accumulator, Consumer, Convert, CopyWgmma, DeviceMainloop, Finish, Found, Fragment, FragmentPair,
    FragmentRow, Fragments, InFlight, Mainloop, MainloopEmitter, MmaPair, MmaSync, MmaSyncWith, Origin,
    Piece, Product, QuantizedCopies, ScaledCopies, Simt, SimtElement, SimtPair, SparseCopies, Sums,
    TensorCopies, TensorCopy, ThreadCopies, ThreadCopy, ThreadOrigin, TmaWgmma,
};
pub use operand::{
    BlockScaled, EvictFirst, EvictLast, InHalf, KMajor, Matrix, MatrixRef, MnMajor, Operand, OperandPair,
    Operands, Promoted, Quantized, Sparse, Summing, TileAtom, Unpromoted, Widest, ZeroPoints,
};
pub use plan::{
    Arrivals, Atom, AtomTypes, CachePolicy, EpilogueSpec, MainloopSpec, Multiply, OperandSpec, OperandTile,
    Plan, PlanError, Producer, QueuePlan, RegisterPlan, RingPlan, Roles, Room, Source, StagingPlan, SumType,
    TileLayout, TileNeeds, WeightsSpec,
};
pub use real::{Accuracy, Bounded, Dual, Elementary, Exact, Fast, Fastest, Level, Real};
pub use record::{Record, RecordDevice};
pub use scales::BlockScales;
pub use sentence::Sentence;
pub use tile::{
    AsManyAsFit, Cluster, ClusterShape, Cooperative, EachThread, EachWarp, Fitted, Pingpong, StageCount,
    Tile, TileShape, Unspecialised, WarpRoles,
};
