//! Warp-level instructions: votes, matches, reductions, shuffles.
//!
//! `members` is PTX's membermask: exactly the lanes that execute the instruction together. Source: PTX ISA
//! "vote.sync", "match.sync", "redux.sync", "shfl.sync", "activemask", "nanosleep".
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! use ptx::inst::{ReduceOp, Vote};
//!
//! let function = ptx::Function::build(entry, |f| {
//!     let (out, lane) = (f.param::<u64>("out"), f.special(ptx::Special::Lane));
//!     let most = f.reduce_lanes(ReduceOp::Max, lane);
//!     let same = f.vote(Vote::Uniform, most.equals(31));
//!     f.if_(same, || f.store_global(out, 0, [most]));
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains("redux.sync.max.u32"));
//! assert!(text.contains("vote.sync.uni"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use super::spell::Line;
use super::{Operand, Reg};
use crate::types::Type;

/// The question of a vote about the lanes' predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// Whether all are true.
    All,
    /// Whether at least one is true.
    Any,
    /// Whether all are equal.
    Uniform,
}

/// The operation of a reduction over the lanes' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum, which wraps.
    Add,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

/// The source lane of a shuffle; j is the lane operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// `.up`: lane - j. No source if that is below the segment.
    Up,
    /// `.down`: lane + j. No source if that is above the segment.
    Down,
    /// `.bfly`: lane ^ j.
    Butterfly,
    /// `.idx`: lane j of the segment.
    Index,
}

/// A warp-level instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WarpInst {
    /// `vote.sync.{all|any|uni}.pred`.
    Vote {
        /// The question.
        vote: Vote,
        /// A predicate register.
        dst: Reg,
        /// Each lane's predicate.
        src: Operand,
        /// The lanes that vote.
        members: Operand,
    },
    /// `vote.sync.ballot.b32`: a mask of the lanes whose predicate is true.
    Ballot {
        /// A `.u32` register.
        dst: Reg,
        /// Each lane's predicate.
        src: Operand,
        /// The lanes that vote.
        members: Operand,
    },
    /// `match.any.sync`: a mask of the lanes with the same value.
    MatchAny {
        /// [`Type::U32`] or [`Type::U64`].
        ty: Type,
        /// A `.u32` register.
        dst: Reg,
        /// Each lane's value.
        src: Operand,
        /// The lanes that take part.
        members: Operand,
    },
    /// `match.all.sync`: the member mask if all members have the same value, otherwise 0.
    MatchAll {
        /// [`Type::U32`] or [`Type::U64`].
        ty: Type,
        /// A `.u32` register.
        dst: Reg,
        /// A predicate register: whether all have the same value.
        all: Reg,
        /// Each lane's value.
        src: Operand,
        /// The lanes that take part.
        members: Operand,
    },
    /// `redux.sync`: a reduction over all lanes.
    Reduce {
        /// The operation.
        op: ReduceOp,
        /// [`Type::U32`] or [`Type::S32`]; for bitwise operations `U32`.
        ty: Type,
        /// Receives the result in each lane.
        dst: Reg,
        /// Each lane's value.
        src: Operand,
        /// The lanes that take part.
        members: Operand,
    },
    /// `shfl.sync.{up|down|bfly|idx}.b32`.
    Shuffle {
        /// How the source lane is computed.
        mode: Shuffle,
        /// A 32-bit register. A lane without a source gets its own value.
        dst: Reg,
        /// A predicate register: whether there was a source.
        found: Option<Reg>,
        /// Each lane's value, 32 bits.
        src: Operand,
        /// The lane operand j.
        lane: Operand,
        /// The number of lanes per segment: a power of two, 1 to 32.
        width: u32,
        /// The lanes that take part.
        members: Operand,
    },
    /// `elect.sync dst|p, members`: one of the lanes, and whether it is this one.
    Elect {
        /// A predicate register.
        dst: Reg,
        /// A `.u32` register that receives the number of the lane.
        lane: Option<Reg>,
        /// The lanes that take part.
        members: Operand,
    },
    /// `bar.warp.sync members`: waits for these lanes of the warp.
    Sync {
        /// The lanes that take part.
        members: Operand,
    },
    /// `activemask.b32`: a mask of the lanes that execute it.
    ActiveMask {
        /// A `.u32` register.
        dst: Reg,
    },
    /// `nanosleep.u32`: suspends the thread for between zero and twice this time.
    Sleep {
        /// Time in nanoseconds, at most 1 000 000.
        nanoseconds: Operand,
    },
}

impl WarpInst {
    /// The mask of the lanes that take part, if the instruction has one.
    pub fn members(&self) -> Option<Operand> {
        match self {
            Self::Vote { members, .. }
            | Self::Ballot { members, .. }
            | Self::MatchAny { members, .. }
            | Self::MatchAll { members, .. }
            | Self::Reduce { members, .. }
            | Self::Shuffle { members, .. }
            | Self::Elect { members, .. }
            | Self::Sync { members } => Some(*members),
            Self::ActiveMask { .. } | Self::Sleep { .. } => None,
        }
    }

    pub(super) fn spell<'l>(&self, line: Line<'l>) -> Line<'l> {
        let (pred, u32) = (Type::Pred, Type::U32);
        match self {
            Self::Vote { vote, dst, src, members } => {
                let vote = match vote {
                    Vote::All => ".all.pred",
                    Vote::Any => ".any.pred",
                    Vote::Uniform => ".uni.pred",
                };
                line.op("vote.sync", vote).set(*dst, pred).read(*src, pred).read(*members, u32)
            }
            Self::Ballot { dst, src, members } => {
                line.op("vote.sync", ".ballot.b32").set(*dst, u32).read(*src, pred).read(*members, u32)
            }
            Self::MatchAny { ty, dst, src, members } => {
                let line = line.named("match.sync", format_args!("match.any.sync.b{}", ty.bits()));
                line.set(*dst, u32).read(*src, *ty).read(*members, u32)
            }
            Self::MatchAll { ty, dst, all, src, members } => {
                let line = line.named("match.sync", format_args!("match.all.sync.b{}", ty.bits()));
                line.set(*dst, u32).glue("|").set(*all, pred).read(*src, *ty).read(*members, u32)
            }
            Self::Reduce { op, ty, dst, src, members } => {
                let (name, of) = match op {
                    ReduceOp::Add => ("add", ty.suffix()),
                    ReduceOp::Min => ("min", ty.suffix()),
                    ReduceOp::Max => ("max", ty.suffix()),
                    ReduceOp::And => ("and", "b32"),
                    ReduceOp::Or => ("or", "b32"),
                    ReduceOp::Xor => ("xor", "b32"),
                };
                let line = line.op("redux.sync", format_args!(".{name}.{of}"));
                line.set(*dst, *ty).read(*src, *ty).read(*members, u32)
            }
            Self::Shuffle { mode, dst, found, src, lane, width, members } => {
                let segment = (32u32.saturating_sub(*width)) << 8;
                let (mode, clamp) = match mode {
                    Shuffle::Up => (".up.b32", segment),
                    Shuffle::Down => (".down.b32", segment | 31),
                    Shuffle::Butterfly => (".bfly.b32", segment | 31),
                    Shuffle::Index => (".idx.b32", segment | 31),
                };
                let line = line.op("shfl.sync", mode).set(*dst, Type::B32);
                let line = found.iter().fold(line, |line, &found| line.glue("|").set(found, pred));
                line.read(*src, Type::B32).read(*lane, u32).also(clamp).read(*members, u32)
            }
            Self::Elect { dst, lane, members } => {
                let line = line.op("elect.sync", "");
                let line = match lane {
                    Some(lane) => line.set(*lane, u32),
                    None => line.also("_"),
                };
                line.glue("|").set(*dst, pred).read(*members, u32)
            }
            Self::Sync { members } => line.op("bar.warp.sync", "").read(*members, u32),
            Self::ActiveMask { dst } => line.op("activemask", ".b32").set(*dst, u32),
            Self::Sleep { nanoseconds } => line.op("nanosleep", ".u32").read(*nanoseconds, u32),
        }
    }

    /// Checks the types, the segment width and the time.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        match self {
            Self::MatchAny { ty, .. } | Self::MatchAll { ty, .. } if !matches!(ty, Type::U32 | Type::U64) => {
                Err(format!("match.sync of .{ty}, not .u32 or .u64"))
            }
            Self::Reduce { ty, .. } if !matches!(ty, Type::U32 | Type::S32) => {
                Err(format!("redux.sync of .{ty}, not .u32 or .s32"))
            }
            Self::Reduce { op: ReduceOp::And | ReduceOp::Or | ReduceOp::Xor, ty: Type::S32, .. } => {
                Err("redux.sync of bits takes .u32".to_owned())
            }
            Self::Shuffle { width, .. } if !width.is_power_of_two() || *width > 32 => {
                Err(format!("shuffle in segments of {width} lanes, not a power of two up to 32"))
            }
            Self::Sleep { nanoseconds: Operand::Imm(time) } if *time > 1_000_000 => {
                Err(format!("nanosleep of {time} ns, more than a millisecond"))
            }
            Self::Vote { .. }
            | Self::Ballot { .. }
            | Self::MatchAny { .. }
            | Self::MatchAll { .. }
            | Self::Reduce { .. }
            | Self::Shuffle { .. }
            | Self::Elect { .. }
            | Self::Sync { .. }
            | Self::ActiveMask { .. }
            | Self::Sleep { .. } => Ok(()),
        }
    }
}
