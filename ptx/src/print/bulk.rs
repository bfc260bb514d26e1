//! Prints bulk copies, asynchronous stores and the less common operations on barriers.

use core::fmt::Write;

use super::{Printer, arrival, cta_space, wait};
use crate::inst::{BarrierOp, BarrierReduce, Bulk, MbarrierInst, Operand, Reduction};
use crate::types::Type;

/// Suffix of completion by an mbarrier's transaction count.
const BYTES: &str = "mbarrier::complete_tx::bytes";

fn reduced(reduce: Option<Reduction>) -> (&'static str, String) {
    reduce.map_or(("", String::new()), |reduce| (".reduce", reduce.suffix()))
}

impl Printer<'_> {
    pub(super) fn hinted(&self, hint: Option<u64>) -> (&'static str, String) {
        hint.map_or(("", String::new()), |policy| (".L2::cache_hint", format!(", {policy:#x}")))
    }

    pub(super) fn bulk(&self, bulk: &Bulk) -> String {
        match bulk {
            Bulk::Load { dst, src, bytes, barrier, multicast, hint } => {
                let mut name = format!("cp.async.bulk.shared::cluster.global.{BYTES}");
                let (hint, policy) = self.hinted(*hint);
                let mut tail = String::new();
                if let Some(mask) = multicast {
                    name.push_str(".multicast::cluster");
                    let _ = write!(tail, ", {}", self.op(*mask, Type::U16));
                }
                let (dst, src, bytes) = (self.u32(*dst), self.u64(*src), self.u32(*bytes));
                format!("{name}{hint} [{dst}], [{src}], {bytes}, [{}]{tail}{policy};", self.u32(*barrier))
            }
            Bulk::Store { dst, src, bytes, reduce, hint } => {
                let ((verb, op), (hint, policy)) = (reduced(*reduce), self.hinted(*hint));
                let (dst, src, bytes) = (self.u64(*dst), self.u32(*src), self.u32(*bytes));
                let spaces = "global.shared::cta.bulk_group";
                format!("cp{verb}.async.bulk.{spaces}{hint}{op} [{dst}], [{src}], {bytes}{policy};")
            }
            Bulk::Share { dst, src, bytes, barrier, reduce } => {
                let (verb, op) = reduced(*reduce);
                let (dst, src, bytes) = (self.u32(*dst), self.u32(*src), self.u32(*bytes));
                let spaces = format!("shared::cluster.shared::cta.{BYTES}");
                format!(
                    "cp{verb}.async.bulk.{spaces}{op} [{dst}], [{src}], {bytes}, [{}];",
                    self.u32(*barrier)
                )
            }
            Bulk::Prefetch { src, bytes } => {
                format!("cp.async.bulk.prefetch.L2.global [{}], {};", self.u64(*src), self.u32(*bytes))
            }
            Bulk::TensorReduce { op, map, coords, src, hint } => {
                let (hint, policy) = self.hinted(*hint);
                let (rank, op, coords) = (coords.len(), op.name(), self.list(coords, Type::S32));
                let (map, src) = (self.u64(*map), self.u32(*src));
                let form = format!("{rank}d.global.shared::cta.{op}.tile.bulk_group");
                format!("cp.reduce.async.bulk.tensor.{form}{hint} [{map}, {{{coords}}}], [{src}]{policy};")
            }
            Bulk::TensorPrefetch { map, coords } => {
                let (rank, map, coords) = (coords.len(), self.u64(*map), self.list(coords, Type::S32));
                format!("cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile [{map}, {{{coords}}}];")
            }
            Bulk::Im2col(inst) => self.im2col(inst),
            Bulk::AsyncStore { ty, src, dst, barrier } => {
                let (width, src) = self.vector(src, *ty);
                let (dst, barrier) = (self.u32(*dst), self.u32(*barrier));
                format!("st.async.weak.shared::cluster.{BYTES}{width}.{ty} [{dst}], {src}, [{barrier}];")
            }
            Bulk::AsyncReduce { reduce, src, dst, barrier } => {
                let (src, dst) = (self.op(*src, reduce.ty.register()), self.u32(*dst));
                let (op, barrier) = (reduce.suffix(), self.u32(*barrier));
                format!("red.async.relaxed.cluster.shared::cluster.{BYTES}{op} [{dst}], {src}, [{barrier}];")
            }
        }
    }

    pub(super) fn mbarrier(&self, inst: &MbarrierInst) -> String {
        let two = |barrier: Operand, other: Operand| format!("[{}], {}", self.u32(barrier), self.u32(other));
        match inst {
            MbarrierInst::Arrive { dst, barrier, count, order } => {
                let (order, operands) = (arrival(*order), two(*barrier, *count));
                format!("mbarrier.arrive{order}.shared::cta.b64 {}, {operands};", self.name(*dst))
            }
            MbarrierInst::ArriveExpect { dst, barrier, bytes, order } => {
                let (order, operands) = (arrival(*order), two(*barrier, *bytes));
                format!("mbarrier.arrive.expect_tx{order}.shared::cta.b64 {}, {operands};", self.name(*dst))
            }
            MbarrierInst::ArriveNoComplete { dst, barrier, count, drop } => {
                let (verb, operands) = (if *drop { "arrive_drop" } else { "arrive" }, two(*barrier, *count));
                format!("mbarrier.{verb}.noComplete.shared::cta.b64 {}, {operands};", self.name(*dst))
            }
            MbarrierInst::DropState { dst, barrier, count, order } => {
                let (order, operands) = (arrival(*order), two(*barrier, *count));
                format!("mbarrier.arrive_drop{order}.shared::cta.b64 {}, {operands};", self.name(*dst))
            }
            MbarrierInst::DropExpect { dst, barrier, bytes, order } => {
                let (order, operands, dst) = (arrival(*order), two(*barrier, *bytes), self.name(*dst));
                format!("mbarrier.arrive_drop.expect_tx{order}.shared::cta.b64 {dst}, {operands};")
            }
            MbarrierInst::DropExpectCluster { barrier, bytes, order } => {
                let (order, operands) = (arrival(*order), two(*barrier, *bytes));
                format!("mbarrier.arrive_drop.expect_tx{order}.shared::cluster.b64 _, {operands};")
            }
            MbarrierInst::Drop { barrier, space, count, order } => {
                let (order, space, operands) = (arrival(*order), cta_space(*space), two(*barrier, *count));
                format!("mbarrier.arrive_drop{order}.{space}.b64 _, {operands};")
            }
            MbarrierInst::ExpectCluster { arrive, barrier, bytes, order } => {
                let (verb, state) = if *arrive { (".arrive", "_, ") } else { ("", "") };
                let (order, operands) = (arrival(*order), two(*barrier, *bytes));
                format!("mbarrier{verb}.expect_tx{order}.shared::cluster.b64 {state}{operands};")
            }
            MbarrierInst::Complete { barrier, space, bytes, scope } => {
                let (scope, space, operands) = (scope.suffix(), cta_space(*space), two(*barrier, *bytes));
                format!("mbarrier.complete_tx.relaxed.{scope}.{space}.b64 {operands};")
            }
            MbarrierInst::Test { dst, barrier, state, patient, order } => {
                let (verb, order) = (if *patient { "try_wait" } else { "test_wait" }, wait(*order));
                let (dst, barrier, state) = (self.name(*dst), self.u32(*barrier), self.u64(*state));
                format!("mbarrier.{verb}{order}.shared::cta.b64 {dst}, [{barrier}], {state};")
            }
            MbarrierInst::TestParity { dst, barrier, parity, order } => {
                let (order, operands) = (wait(*order), two(*barrier, *parity));
                format!("mbarrier.test_wait.parity{order}.shared::cta.b64 {}, {operands};", self.name(*dst))
            }
            MbarrierInst::PendingCount { dst, state } => {
                format!("mbarrier.pending_count.b64 {}, {};", self.name(*dst), self.u64(*state))
            }
        }
    }

    pub(super) fn barrier_reduce(&self, reduce: &BarrierReduce) -> String {
        let BarrierReduce { op, id, threads, dst, src } = reduce;
        let op = match op {
            BarrierOp::Population => "popc.u32",
            BarrierOp::And => "and.pred",
            BarrierOp::Or => "or.pred",
        };
        let (dst, id) = (self.name(*dst), self.u32(*id));
        match src {
            Operand::Reg(src) => format!("bar.red.{op} {dst}, {id}, {threads}, {};", self.name(*src)),
            Operand::Imm(value) => {
                // Predicates have no immediates.
                let relation = if *value == 0 { "ne" } else { "eq" };
                format!(
                    "{{\n\t.reg .pred %src;\n\tsetp.{relation}.u32 %src, 0, 0;\n\tbar.red.{op} {dst}, {id}, {threads}, \
                     %src;\n\t}}"
                )
            }
        }
    }
}
