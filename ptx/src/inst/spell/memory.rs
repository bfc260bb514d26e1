//! The lines of parameters, and of loads and stores by threads.

use super::{In, Line, Plus, memory_type, width};
use crate::inst::{Address, Operand, Reg};
use crate::types::{Space, Type};

impl Line<'_> {
    pub(super) fn load_param(self, ty: Type, dst: &[Reg], (param, offset): (u32, u32)) -> Self {
        let name = self.sink.param(param);
        let line = self.op("ld.param", format_args!("{}.{}", width(dst.len()), memory_type(ty)));
        line.set_vector_extended(dst, ty).also(format_args!("[{name}{}]", Plus(offset)))
    }

    pub(super) fn param_address(self, generic: bool, dst: Reg, (param, offset): (u32, u32)) -> Self {
        let name = self.sink.param(param);
        self.op(if generic { "cvta.param" } else { "mov" }, ".u64")
            .set(dst, Type::U64)
            .also(format_args!("{name}{}", Plus(offset)))
    }

    pub(super) fn shared_base(self, dst: Reg, offset: u32) -> Self {
        let name = self.sink.shared(offset);
        self.op("mov", ".u32").set(dst, Type::U32).also(name)
    }

    pub(super) fn local_base(self, dst: Reg, offset: u32) -> Self {
        self.op("mov", ".u64").set(dst, Type::U64).also(format_args!("{LOCAL}{}", Plus(offset)))
    }

    pub(super) fn convert_address(self, (space, to): (Space, bool), dst: Reg, src: Operand) -> Self {
        let way = if to { ".to" } else { "" };
        let line = self.op("cvta", format_args!("{way}.{}.u64", space.name()));
        line.set(dst, Type::U64).read(src, Type::U64)
    }

    pub(super) fn in_space(self, space: Space, dst: Reg, src: Operand) -> Self {
        let line = self.op("isspacep", format_args!(".{}", space.name()));
        line.set(dst, Type::Pred).read(src, Type::U64)
    }

    pub(super) fn load_constant(self, ty: Type, dst: &[Reg], address: Address) -> Self {
        let line = self.op("ld.global.nc", format_args!("{}.{}", width(dst.len()), memory_type(ty)));
        line.set_vector_extended(dst, ty).address(address, Space::Global)
    }

    pub(super) fn load(self, (space, ty): (Space, Type), dst: &[Reg], address: Address) -> Self {
        let wide = width(dst.len());
        let line = self.named(access(space).0, format_args!("ld{}{wide}.{}", In(space), memory_type(ty)));
        line.set_vector_extended(dst, ty).address(address, space)
    }

    pub(super) fn store(self, (space, ty): (Space, Type), src: &[Operand], address: Address) -> Self {
        let wide = width(src.len());
        let line = self.named(access(space).1, format_args!("st{}{wide}.{}", In(space), memory_type(ty)));
        line.address(address, space).vector_low(src, ty)
    }

    pub(super) fn map_shared(self, dst: Reg, place: [Operand; 2]) -> Self {
        let line = self.op("mapa", ".shared::cluster.u32").set(dst, Type::U32);
        line.reads(&place, Type::U32)
    }

    pub(super) fn cta_rank(self, dst: Reg, address: Operand) -> Self {
        self.op("getctarank", ".shared::cluster.u32").set(dst, Type::U32).read(address, Type::U32)
    }

    pub(super) fn store_matrix(self, address: Operand, src: &[Operand], transpose: bool) -> Self {
        let (count, transpose) = (src.len(), if transpose { ".trans" } else { "" });
        let line = self.op("stmatrix", format_args!(".sync.aligned.m8n8.x{count}{transpose}"));
        line.raw(".shared::cta.b16").at(address, Type::U32).group(src, Type::U32)
    }
}

/// The names of a load and of a store in reports.
const fn access(space: Space) -> (&'static str, &'static str) {
    match space {
        Space::Global => ("ld.global", "st.global"),
        Space::Shared | Space::SharedCluster => ("ld.shared", "st.shared"),
        Space::Local => ("ld.local", "st.local"),
        Space::Param => ("ld.param", "st.param"),
        Space::Generic => ("ld", "st"),
    }
}

/// The name of the program's local memory.
pub(crate) const LOCAL: &str = "local_memory";
