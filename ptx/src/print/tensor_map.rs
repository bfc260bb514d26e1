//! Prints instructions on tensor maps.

use super::{Printer, space_name};
use crate::abi::TENSOR_MAP_BYTES;
use crate::inst::{MapField, MapInst, Scope};

impl Printer<'_> {
    pub(super) fn tensor_map(&self, inst: &MapInst) -> String {
        let fence = |order: &str, scope: Scope| format!("tensormap::generic.{order}.{}", scope.suffix());
        match inst {
            MapInst::Word { dst, address } => {
                format!("ld.b32 {}, [{}];", self.name(*dst), self.u64(*address))
            }
            MapInst::Replace { space, map, field, value } => {
                let map = self.op(*map, space.address_type());
                let ordinal = field.ordinal().map_or_else(String::new, |ordinal| format!("{ordinal}, "));
                let value = match field.named() {
                    Some(number) => number.to_string(),
                    None => self.op(*value, field.ty()),
                };
                let (name, bits) = (MapField::name(*field), field.ty().bits());
                let space = space_name(*space);
                format!("tensormap.replace.tile.{name}.{space}.b1024.b{bits} [{map}], {ordinal}{value};")
            }
            MapInst::Publish { dst, src, scope } => format!(
                "tensormap.cp_fenceproxy.global.shared::cta.{}.sync.aligned [{}], [{}], {TENSOR_MAP_BYTES};",
                fence("release", *scope),
                self.u64(*dst),
                self.u32(*src),
            ),
            MapInst::Release { scope } => format!("fence.proxy.{};", fence("release", *scope)),
            MapInst::Acquire { map, scope } => {
                format!("fence.proxy.{} [{}], {TENSOR_MAP_BYTES};", fence("acquire", *scope), self.u64(*map))
            }
        }
    }
}
