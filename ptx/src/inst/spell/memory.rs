//! The lines of parameters, and of loads and stores by threads.

use super::{Line, memory_type, width};
use crate::inst::{Address, Operand, Reg};
use crate::types::{Space, Type};

impl Line<'_> {
    pub(super) fn load_param(self, dst: Reg, param: u32) -> Self {
        let (ty, name) = (self.declared(dst), self.sink.param(param));
        let line = self.op("ld.param", format_args!(".{}", memory_type(ty)));
        line.set_bits(dst, ty.bits()).also(format_args!("[{name}]"))
    }

    pub(super) fn param_address(self, dst: Reg, param: u32) -> Self {
        let name = self.sink.param(param);
        self.op("cvta.param", ".u64").set(dst, Type::U64).also(name)
    }

    pub(super) fn load(self, (space, ty): (Space, Type), dst: &[Reg], address: Address) -> Self {
        let ((name, cta), wide) = (in_space(space, ["ld.global", "ld.shared"]), width(dst.len()));
        let line = self.op(name, format_args!("{cta}{wide}.{}", memory_type(ty)));
        line.set_vector(dst, ty).address(address, space)
    }

    pub(super) fn store(self, (space, ty): (Space, Type), src: &[Operand], address: Address) -> Self {
        let ((name, cta), wide) = (in_space(space, ["st.global", "st.shared"]), width(src.len()));
        let line = self.op(name, format_args!("{cta}{wide}.{}", memory_type(ty)));
        line.address(address, space).vector(src, ty)
    }

    pub(super) fn map_shared(self, dst: Reg, place: [Operand; 2]) -> Self {
        let line = self.op("mapa", ".shared::cluster.u32").set(dst, Type::U32);
        line.reads(&place, Type::U32)
    }

    pub(super) fn store_matrix(self, address: Operand, src: &[Operand], transpose: bool) -> Self {
        let (count, transpose) = (src.len(), if transpose { ".trans" } else { "" });
        let line = self.op("stmatrix", format_args!(".sync.aligned.m8n8.x{count}{transpose}"));
        line.raw(".shared::cta.b16").at(address, Type::U32).group(src, Type::U32)
    }
}

/// The name of an access, of global or of shared memory, and the rest of the space's name.
const fn in_space(space: Space, [global, shared]: [&'static str; 2]) -> (&'static str, &'static str) {
    match space {
        Space::Global => (global, ""),
        Space::Shared => (shared, "::cta"),
        Space::SharedCluster => (shared, "::cluster"),
    }
}
