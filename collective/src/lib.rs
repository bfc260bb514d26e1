//! Collectives: what the threads of a CTA do together to one output tile.
//!
//! A kernel combines three roles. Each role is a trait with interchangeable implementations. Two of the roles
//! are in this crate:
//!
//! * A [`Mainloop`] loads operand tiles into shared memory and multiplies them. [`TmaWgmma`] is the usual
//!   one; [`CopyWgmma`] takes operands at any address; [`MmaSync`] and [`Simt`] use the instructions that
//!   came before `wgmma`.
//! * An [`Epilogue`] turns accumulators into the output: [`LinearCombination`], or an epilogue visitor
//!   [`tree`] of your own.
//!
//! The third role, the tile scheduler, is a separate crate. It does not depend on this one, nor this one on
//! it.
//!
//! # Producer and consumers
//!
//! A CTA is warp-specialised. Its first warpgroup is the *producer*: it gives up most of its registers, and
//! either one of its threads starts all tensor copies, or all of its threads copy. The other warpgroups are
//! *consumers*: they take those registers, multiply, and store. Producer and consumers share a ring of
//! *stages* ([`pipeline`]). Each stage holds a list of tiles: A's, B's, and whatever else a mainloop needs.
//!
//! # A mainloop of your own
//!
//! The mainloops of this crate are made of public parts. Yours can use the same parts:
//!
//! | part | does |
//! |---|---|
//! | [`OperandTile`] | describes the layout of an operand's tile in a stage, and finds the tile there |
//! | [`StageSlot`], [`RingPlan`] | plan a stage from a list of tiles, and a ring from stages |
//! | [`Ring`](pipeline::Ring), [`Position`](pipeline::Position), [`Release`](pipeline::Release) | walk the ring: fill a stage, wait for it, release it |
//! | [`stage::OperandMap`] | the parameters of a tensor map, for one matrix or for a batch |
//! | [`TensorCopy`], [`ThreadCopy`] | load a tile, by tensor copies or by `cp.async` |
//! | [`WarpgroupMma`] | multiplies two tiles by `wgmma` into accumulators; a mainloop may have several |
//! | [`Fragments`] | A from registers: converted on the way, or the accumulators of another product |
//! | [`Consumer::each_stage`], [`Consumer::each_stage_of`] | walks the stages of a work unit, in one ring or in several |
//!
//! `MainloopSpec { more, own_bytes, registers, atom, .. }` tells the plan how your mainloop differs from one
//! of this crate: further tiles of a stage, shared memory of its own, registers for a second product, the
//! types of the instruction. [`Mainloop::NEEDS`] says what it needs of the kernel around it: all of a tile's
//! K, whole tiles, no cluster, registers for its producer. `kernel/tests/parts` has four examples: two products that share A, two products
//! one after the other, block scales as a third tile, and A from registers.
//!
//! # Where the numbers come from
//!
//! [`Plan::new`] computes every number of the kernel from what the mainloop and the epilogue ask for. If the
//! configuration is illegal, it returns a [`PlanError`] that names the broken hardware rule and a way to fix
//! it. It is a `const fn`: kernel types evaluate it at compile time. All addresses come from the layouts of
//! `cute_rs`; none is written by hand.
#![forbid(unsafe_code)]

mod element;
mod epilogue;
pub mod expression;
mod extent;
mod fixup;
mod form;
pub mod formula;
pub mod functions;
pub mod heads;
mod mainloop;
mod operand;
pub mod operands;
pub mod pipeline;
mod plan;
pub mod process;
pub mod queue;
pub mod random;
mod real;
mod record;
mod sentence;
pub mod skeleton;
pub mod sparse;
pub mod stage;
mod tensor_map;
mod tile;
pub mod tree;
pub mod weights;

pub use cute_rs::types::{ColumnMajor, RowMajor, Sw, Swizzled};
pub use element::{Code, Coded, Element, F4E2M1, Format, Int4, MultipliesWith, Narrow, Packed, Tf32, Uint4};
pub use epilogue::{
    AnyEpilogue, DeviceEpilogue, DirectStore, Epilogue, EpilogueSite, Linear, LinearArguments,
    LinearCombination, Output, SourcedCombination, StagedRows, Store, StorePath, StoreSpec, TmaStore,
    Transposed, TreeEpilogue, Treed,
};
pub use expression::FormulaError;
pub use extent::Extent;
pub use fixup::{
    ClusterFours, FixUp, Partial, Share, Slot, SlotPlan, Slots, exchange_in_cluster, load_fours, store_fours,
    sums_bytes,
};
pub use float8::{F8E4M3, F8E5M2};
pub use form::{Batch, Form, Forms};
pub use formula::{Formula, FormulaArguments, FormulaFunction, Input};
pub use functions::{Gradient, Pointwise, Scalars, evaluate, evaluate_bounded, evaluate_in};
pub use mainloop::{
    AccumulatorElement, Accumulators, AnyMainloop, BlockScales, Consumer, Convert, CopyWgmma, DeviceMainloop,
    FACTORS, Finish, Fragment, FragmentPair, FragmentRow, Fragments, GroupScales, InFlight, METADATA,
    Mainloop, MainloopSite, MmaOperands, MmaPair, MmaSync, MmaSyncWith, Older, Origin, Pass, RowVariables,
    SCALES, Simt, SimtPair, StagedOperands, TensorCopy, ThreadCopy, ThreadOrigin, TmaWgmma, WarpgroupMma,
    WorkUnit, check_metadata,
};
pub use operand::{
    BlockScaled, EvictFirst, EvictLast, InHalf, InWaves, KMajor, Matrix, MatrixRef, MnMajor, Operand,
    OperandPair, Operands, Promoted, Quantized, Sparse, Summing, TileAtom, Unpromoted, Widest, ZeroPoints,
};
pub use plan::{
    AccumulatorType, Arrivals, Atom, AtomTypes, CachePolicy, CtaPlan, EpilogueSpec, MainloopNeeds,
    MainloopSpec, MmaKind, OperandSpec, OperandTile, Peers, Plan, PlanError, Producer, ProductShape,
    ProductSpec, QueuePlan, RegisterPlan, RingPlan, RoleRegisters, Roles, Source, StageSlot, StagingPlan,
    TablePlan, TileLayout, TileNeeds, WeightsSpec, element_offset, element_place,
};
pub use real::{
    Accuracy, Arithmetic, Bounded, Dual, Elementary, Exact, Fast, Fastest, Level, Needs, Number, Real,
};
pub use record::{Record, RecordDevice};
pub use sentence::Sentence;
pub use tile::{
    AsManyAsFit, Cluster, ClusterShape, Cooperative, EachThread, EachWarp, Fitted, Pingpong, StageCount,
    Tile, TileShape, Unspecialised, WarpRoles,
};
