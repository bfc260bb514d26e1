//! Prints atomics, and loads and stores with memory ordering.

use super::{Printer, memory_type, space_name};
use crate::inst::{Atomic, LoadOrder, Operand, Ordered, StoreOrder};

impl Printer<'_> {
    pub(super) fn atomic(&self, atomic: &Atomic) -> String {
        let Atomic { op, ty, space, sem, scope, dst, address, src, swap } = atomic;
        let register = ty.register();
        let suffix = if op.is_untyped() { format!("b{}", register.bits()) } else { ty.suffix().to_owned() };
        let noftz = if atomic.noftz() { ".noftz" } else { "" };
        let (width, src) = self.vector(src, register);
        let name = format!(
            "{}.{}.{}.{}.{}{noftz}{width}.{suffix}",
            atomic.name(),
            sem.suffix(),
            scope.suffix(),
            space_name(*space),
            op.name(),
        );
        let result = if dst.is_empty() {
            String::new()
        } else {
            let dst: Vec<_> = dst.iter().map(|&reg| Operand::Reg(reg)).collect();
            format!("{}, ", self.vector(&dst, register).1)
        };
        let swap = swap.map_or_else(String::new, |swap| format!(", {}", self.op(swap, register)));
        format!("{name} {result}{}, {src}{swap};", self.address(*address, *space))
    }

    pub(super) fn ordered(&self, access: &Ordered) -> String {
        match access {
            Ordered::Load { order, space, ty, dst, address } => {
                let order = match order {
                    LoadOrder::Volatile => "volatile".to_owned(),
                    LoadOrder::Relaxed(scope) => format!("relaxed.{}", scope.suffix()),
                    LoadOrder::Acquire(scope) => format!("acquire.{}", scope.suffix()),
                };
                let dst: Vec<_> = dst.iter().map(|&reg| Operand::Reg(reg)).collect();
                let (width, dst) = self.vector(&dst, *ty);
                let (space_name, ty) = (space_name(*space), memory_type(*ty));
                format!("ld.{order}.{space_name}{width}.{ty} {dst}, {};", self.address(*address, *space))
            }
            Ordered::Store { order, space, ty, src, address } => {
                let order = match order {
                    StoreOrder::Volatile => "volatile".to_owned(),
                    StoreOrder::Relaxed(scope) => format!("relaxed.{}", scope.suffix()),
                    StoreOrder::Release(scope) => format!("release.{}", scope.suffix()),
                };
                let (width, src) = self.vector(src, *ty);
                let (space_name, ty) = (space_name(*space), memory_type(*ty));
                format!("st.{order}.{space_name}{width}.{ty} {}, {src};", self.address(*address, *space))
            }
        }
    }
}
