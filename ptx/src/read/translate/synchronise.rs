//! Barriers of a CTA and of a cluster, fences, and what a thread says about itself.

use super::super::error::Read;
use super::super::lex::Number;
use super::super::syntax::{Instruction, Item, Operand as Word, OperandKind};
use super::Translator;
use super::form::Form;
use super::integers::is_all;
use super::memory::SCOPES;
use crate::inst::barrier::EVERYONE;
use crate::inst::{
    BarrierOp, BarrierReduce, FenceSem, Inst, LooseBarrier, MapInst, Operand, ProxySpace, Scope, WarpInst,
};
use crate::types::{Space, Type};

/// The `bar.red` of a block that compares two numbers for its predicate, as the printer writes one whose predicate is known.
pub(super) fn known_reduction<'t>(items: &[Item<'t>]) -> Option<Instruction<'t>> {
    let [Item::Registers(_), Item::Instruction(compare), Item::Instruction(reduce)] = items else {
        return None;
    };
    let zero = |operand: &Word<'t>| matches!(operand.kind, OperandKind::Number(Number::Integer(0, _)));
    let (OperandKind::Name(set), [_, a, b]) = (&compare.operands.first()?.kind, &compare.operands[..]) else {
        return None;
    };
    let holds = match (compare.name, &compare.modifiers[..]) {
        ("setp", ["eq", "u32"]) => 1,
        ("setp", ["ne", "u32"]) => 0,
        _ => return None,
    };
    let OperandKind::Name(read) = reduce.operands.last()?.kind else { return None };
    let known = reduce.name == "bar" && reduce.modifiers.first() == Some(&"red") && *set == read;
    if !known || !zero(a) || !zero(b) || compare.guard.is_some() {
        return None;
    }
    let mut reduce = reduce.clone();
    reduce.operands.last_mut()?.kind = OperandKind::Number(Number::Integer(holds, false));
    Some(reduce)
}

impl<'t> Translator<'_, 't> {
    /// `bar` and `barrier`. `bar.sync` is `barrier.sync.aligned`.
    pub(super) fn barrier(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        if form.first("cluster") {
            return self.cluster_barrier(form);
        }
        if form.first("warp") {
            return self.warp_barrier(form);
        }
        form.takes("cta");
        let aligned = form.takes("aligned") || name == "bar";
        let kind = form.need("an operation", &[("sync", 0), ("arrive", 1), ("red", 2)])?;
        if kind == 2 {
            return self.barrier_reduction(form);
        }
        let id = self.src(form, Type::U32)?;
        let threads = if form.more() { self.constant(form, "the number of threads", 32)? } else { EVERYONE };
        if threads == EVERYONE && kind == 1 {
            return form.wrong("an arrival says how many threads take part");
        }
        self.emit(match (kind, aligned) {
            (0, true) => Inst::BarrierSync { id, threads },
            (0, false) => Inst::Loose(LooseBarrier::Sync { id, threads }),
            (_, true) => Inst::BarrierArrive { id, threads },
            (_, false) => Inst::Loose(LooseBarrier::Arrive { id, threads }),
        });
        Ok(())
    }

    fn barrier_reduction(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ops = [("popc", BarrierOp::Population), ("and", BarrierOp::And), ("or", BarrierOp::Or)];
        let op = form.need("a reduction", &ops)?;
        let ty = form.last_type()?;
        let dst = self.dst(form, ty)?;
        let id = self.src(form, Type::U32)?;
        let threads =
            if form.count() > 1 { self.constant(form, "the number of threads", 32)? } else { EVERYONE };
        let src = self.src(form, Type::Pred)?;
        self.emit(Inst::BarrierReduce(BarrierReduce { op, id, threads, dst, src }));
        Ok(())
    }

    fn warp_barrier(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        form.takes("sync");
        let all = is_all(form.peek());
        let members = self.src(form, Type::U32)?;
        self.emit(if all || members == Operand::Imm(u32::MAX.into()) {
            Inst::WarpSync
        } else {
            Inst::Warp(WarpInst::Sync { members })
        });
        Ok(())
    }

    fn cluster_barrier(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let arrive = form.need("an operation", &[("arrive", true), ("wait", false)])?;
        let aligned = form.takes("aligned");
        let relaxed = arrive && form.takes("relaxed");
        form.takes(if arrive { "release" } else { "acquire" });
        self.emit(match (arrive, aligned) {
            (true, true) => Inst::ClusterArrive { relaxed },
            (false, true) => Inst::ClusterWait,
            (true, false) => Inst::Loose(LooseBarrier::ClusterArrive { relaxed }),
            (false, false) => Inst::Loose(LooseBarrier::ClusterWait),
        });
        Ok(())
    }

    /// `fence` and `membar`.
    pub(super) fn fence(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        if name == "membar" && !form.left().contains(&"proxy") {
            // `membar.<level>` is `fence.sc.<scope>`.
            let levels = [("cta", Scope::Cta), ("gl", Scope::Gpu), ("sys", Scope::System)];
            let scope = form.need("a level", &levels)?;
            self.emit(Inst::Fence { sem: FenceSem::SequentiallyConsistent, scope });
            return Ok(());
        }
        if form.first("mbarrier_init") {
            if !form.first_ones(&["release", "cluster"]) {
                return form.wrong("`.release.cluster` was needed");
            }
            self.emit(Inst::FenceMbarrierInit);
            return Ok(());
        }
        if form.first("proxy") {
            return self.proxy_fence(form);
        }
        let sems = [("acq_rel", FenceSem::AcquireRelease), ("sc", FenceSem::SequentiallyConsistent)];
        // A fence that acquires or releases is one that does both, which orders more.
        let sem = form.need("a memory ordering", &sems)?;
        let scope = form.need("a scope", &SCOPES)?;
        self.emit(Inst::Fence { sem, scope });
        Ok(())
    }

    fn proxy_fence(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        if form.first("async") {
            let space = form.choose(&[
                ("shared::cta", ProxySpace::Shared),
                ("shared::cluster", ProxySpace::SharedCluster),
                ("global", ProxySpace::Global),
            ]);
            self.emit(Inst::FenceProxyAsync { space: space.unwrap_or(ProxySpace::All) });
            return Ok(());
        }
        if !form.first("tensormap::generic") {
            return form.wrong("of proxies, `.async` and `.tensormap::generic` are read");
        }
        let release = form.need("a memory ordering", &[("release", true), ("acquire", false)])?;
        let scope = form.need("a scope", &SCOPES)?;
        if release {
            self.emit(Inst::TensorMap(MapInst::Release { scope }));
            return Ok(());
        }
        let map = self.at(form, Space::Generic)?;
        let bytes = form.number("the size of a tensor map")?;
        if bytes != 128 {
            return form.wrong(format!("{bytes} B, a tensor map has 128"));
        }
        self.emit(Inst::TensorMap(MapInst::Acquire { map, scope }));
        Ok(())
    }

    /// Instructions of a thread that compute nothing.
    pub(super) fn thread(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        match name {
            "griddepcontrol" => {
                let wait = form.need("an operation", &[("wait", true), ("launch_dependents", false)])?;
                self.emit(Inst::GridDependency { wait });
            }
            "setmaxnreg" => {
                let grow = form.need("a direction", &[("inc", true), ("dec", false)])?;
                form.ignore(&["sync", "aligned", "u32"]);
                let count = form.count_of("a number of registers")?;
                self.emit(Inst::SetMaxRegisters { grow, count });
            }
            "nanosleep" => {
                form.last_type()?;
                let nanoseconds = self.src(form, Type::U32)?;
                self.emit(Inst::Warp(WarpInst::Sleep { nanoseconds }));
            }
            // A profiler counts it.
            "pmevent" => {
                form.takes("mask");
                form.number("an event")?;
            }
            // Without a debugger, a breakpoint ends the program too.
            _ => self.emit(Inst::Trap),
        }
        Ok(())
    }
}
