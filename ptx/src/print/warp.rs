//! Prints warp-level instructions, `cp.async`, `ldmatrix` and `mma.sync`.

use super::Printer;
use crate::inst::{CopyAsync, MmaTypes, Operand, ReduceOp, Shuffle, Vote, WarpInst, WarpMatrix};
use crate::types::{Space, Type};

impl Printer<'_> {
    pub(super) fn warp(&self, inst: &WarpInst) -> String {
        match inst {
            WarpInst::Vote { vote, dst, src, members } => {
                let vote = match vote {
                    Vote::All => "all",
                    Vote::Any => "any",
                    Vote::Uniform => "uni",
                };
                let (src, members) = (self.op(*src, Type::Pred), self.u32(*members));
                format!("vote.sync.{vote}.pred {}, {src}, {members};", self.name(*dst))
            }
            WarpInst::Ballot { dst, src, members } => {
                let (src, members) = (self.op(*src, Type::Pred), self.u32(*members));
                format!("vote.sync.ballot.b32 {}, {src}, {members};", self.name(*dst))
            }
            WarpInst::MatchAny { ty, dst, src, members } => {
                let (src, members) = (self.op(*src, *ty), self.u32(*members));
                format!("match.any.sync.b{} {}, {src}, {members};", ty.bits(), self.name(*dst))
            }
            WarpInst::MatchAll { ty, dst, all, src, members } => {
                let (src, members) = (self.op(*src, *ty), self.u32(*members));
                let (dst, all) = (self.name(*dst), self.name(*all));
                format!("match.all.sync.b{} {dst}|{all}, {src}, {members};", ty.bits())
            }
            WarpInst::Reduce { op, ty, dst, src, members } => {
                let (name, ty_name) = match op {
                    ReduceOp::Add => ("add", ty.suffix()),
                    ReduceOp::Min => ("min", ty.suffix()),
                    ReduceOp::Max => ("max", ty.suffix()),
                    ReduceOp::And => ("and", "b32"),
                    ReduceOp::Or => ("or", "b32"),
                    ReduceOp::Xor => ("xor", "b32"),
                };
                let (src, members) = (self.op(*src, *ty), self.u32(*members));
                format!("redux.sync.{name}.{ty_name} {}, {src}, {members};", self.name(*dst))
            }
            WarpInst::Shuffle { mode, dst, found, src, lane, width, members } => {
                let segment = (32u32.saturating_sub(*width)) << 8;
                let (mode, clamp) = match mode {
                    Shuffle::Up => ("up", segment),
                    Shuffle::Down => ("down", segment | 31),
                    Shuffle::Butterfly => ("bfly", segment | 31),
                    Shuffle::Index => ("idx", segment | 31),
                };
                let found = found.map_or_else(String::new, |reg| format!("|{}", self.name(reg)));
                let (src, lane, members) =
                    (self.op(*src, self.ty(*dst)), self.u32(*lane), self.u32(*members));
                let dst = self.name(*dst);
                format!("shfl.sync.{mode}.b32 {dst}{found}, {src}, {lane}, {clamp}, {members};")
            }
            WarpInst::ActiveMask { dst } => format!("activemask.b32 {};", self.name(*dst)),
            WarpInst::Sleep { nanoseconds } => format!("nanosleep.u32 {};", self.u32(*nanoseconds)),
        }
    }

    pub(super) fn copy_async(&self, copy: &CopyAsync) -> String {
        match copy {
            CopyAsync::Copy { bytes, past_l1, dst, src, size } => {
                let cache = if *past_l1 { "cg" } else { "ca" };
                let size = size.map_or_else(String::new, |size| format!(", {}", self.u32(size)));
                let (dst, src) = (self.u32(*dst), self.address(*src, Space::Global));
                format!("cp.async.{cache}.shared::cta.global [{dst}], {src}, {bytes}{size};")
            }
            CopyAsync::Commit => "cp.async.commit_group;".to_owned(),
            CopyAsync::Wait { pending } => format!("cp.async.wait_group {pending};"),
            CopyAsync::WaitAll => "cp.async.wait_all;".to_owned(),
            CopyAsync::Arrive { barrier, counted } => {
                let noinc = if *counted { ".noinc" } else { "" };
                format!("cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [{}];", self.u32(*barrier))
            }
        }
    }

    pub(super) fn warp_matrix(&self, matrix: &WarpMatrix) -> String {
        match matrix {
            WarpMatrix::Load { dst, address, transpose } => {
                let (transpose, address) = (if *transpose { ".trans" } else { "" }, self.u32(*address));
                let (count, dst) = (dst.len(), self.regs(dst));
                format!(
                    "ldmatrix.sync.aligned.m8n8.x{count}{transpose}.shared::cta.b16 {{{dst}}}, [{address}];"
                )
            }
            WarpMatrix::Multiply { types, d, a, b, c } => {
                let (ty, _) = types.accumulators();
                let saturate = matches!(types, MmaTypes::Int8 { saturate: true, .. });
                let d: Vec<Operand> = d.iter().map(|&reg| Operand::Reg(reg)).collect();
                let (d, c) = (self.list(&d, ty), self.list(c, ty));
                let (a, b) = (self.list(a, types.operand()), self.list(b, types.operand()));
                format!(
                    "mma.sync.aligned.m16n8k{}.row.col{}.{} {{{d}}}, {{{a}}}, {{{b}}}, {{{c}}};",
                    types.k(),
                    if saturate { ".satfinite" } else { "" },
                    types.suffix(),
                )
            }
        }
    }
}
