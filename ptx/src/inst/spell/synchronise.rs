//! The lines of barriers, mbarriers and fences, and of what else a CTA does as a whole.

use super::Line;
use crate::inst::barrier::EVERYONE;
use crate::inst::{FenceSem, MbarrierOrder, Operand, ProxySpace, Reg, Scope};
use crate::types::{Space, Type};

impl Line<'_> {
    pub(super) fn set_max_registers(self, grow: bool, count: u32) -> Self {
        let way = if grow { "inc" } else { "dec" };
        self.op("setmaxnreg", format_args!(".{way}.sync.aligned.u32")).also(count)
    }

    pub(super) fn grid_dependency(self, wait: bool) -> Self {
        self.op("griddepcontrol", if wait { ".wait" } else { ".launch_dependents" })
    }

    pub(in crate::inst) fn named_barrier(self, name: &'static str, id: Operand, threads: u32) -> Self {
        self.op(name, "").read(id, Type::U32).threads(threads)
    }

    /// The number of threads that take part in a barrier.
    pub(in crate::inst) fn threads(self, threads: u32) -> Self {
        if threads == EVERYONE { self } else { self.also(threads) }
    }

    pub(super) fn cluster_arrive(self, relaxed: bool) -> Self {
        self.op("barrier.cluster.arrive", if relaxed { ".relaxed.aligned" } else { ".aligned" })
    }

    pub(super) fn mbarrier_init(self, barrier: Operand, count: Operand) -> Self {
        let line = self.op("mbarrier.init", ".shared::cta.b64");
        line.at(barrier, Type::U32).read(count, Type::U32)
    }

    pub(super) fn mbarrier_invalidate(self, barrier: Operand) -> Self {
        self.op("mbarrier.inval", ".shared::cta.b64").at(barrier, Type::U32)
    }

    pub(super) fn mbarrier_transact(
        self,
        (barrier, space, bytes): (Operand, Space, Operand),
        (complete, scope): (bool, Scope),
    ) -> Self {
        let name = if complete { "mbarrier.complete_tx" } else { "mbarrier.expect_tx" };
        let line = self.op(name, format_args!(".relaxed.{}.{}.b64", scope.suffix(), space.name()));
        line.at(barrier, Type::U32).read(bytes, Type::U32)
    }

    pub(super) fn mbarrier_pending(self, dst: Reg, state: Operand) -> Self {
        self.op("mbarrier.pending_count", ".b64").set(dst, Type::U32).read(state, Type::U64)
    }

    /// A loop of tests, which is several lines.
    pub(super) fn mbarrier_wait(self, barrier: Operand, parity: Operand, order: MbarrierOrder) {
        let (label, order) = (self.sink.label(), order.spelled("acquire"));
        let line = self.named("mbarrier.try_wait", "{\n\t.reg .pred %done;\n");
        let line = line.raw(format_args!("{label}:\n\tmbarrier.try_wait.parity{order}"));
        let line = line.raw(".shared::cta.b64 %done").glue(", ");
        let line = line.at(barrier, Type::U32).read(parity, Type::U32);
        line.raw(format_args!(";\n\t@!%done bra {label};\n\t}}"));
    }

    pub(super) fn fence_proxy_async(self, space: ProxySpace) -> Self {
        let of = match space {
            ProxySpace::Shared => ".shared::cta",
            ProxySpace::SharedCluster => ".shared::cluster",
            ProxySpace::Global => ".global",
            ProxySpace::All => "",
        };
        self.op("fence.proxy.async", of)
    }

    pub(super) fn fence(self, sem: FenceSem, scope: Scope) -> Self {
        self.op("fence", format_args!(".{}.{}", sem.suffix(), scope.suffix()))
    }
}
