//! Prints tensor copies in im2col mode.

use core::fmt::Write;

use super::Printer;
use crate::inst::Im2col;
use crate::types::Type;

impl Printer<'_> {
    pub(super) fn im2col(&self, inst: &Im2col) -> String {
        match inst {
            Im2col::Load { map, coords, offsets, dst, barrier, multicast, hint } => {
                let mut name = format!(
                    "cp.async.bulk.tensor.{}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes",
                    coords.len()
                );
                let mut tail = String::new();
                if let Some(mask) = multicast {
                    name.push_str(".multicast::cluster");
                    let _ = write!(tail, ", {}", self.op(*mask, Type::U16));
                }
                let (hint, policy) = self.hinted(*hint);
                let (coords, offsets) = (self.list(coords, Type::S32), self.list(offsets, Type::U16));
                let (dst, map, barrier) = (self.u32(*dst), self.u64(*map), self.u32(*barrier));
                format!(
                    "{name}{hint} [{dst}], [{map}, {{{coords}}}], [{barrier}], {{{offsets}}}{tail}{policy};"
                )
            }
            Im2col::Store { reduce, map, coords, src, hint } => {
                let (verb, op) =
                    reduce.map_or(("", String::new()), |op| (".reduce", format!(".{}", op.name())));
                let (hint, policy) = self.hinted(*hint);
                let (rank, coords) = (coords.len(), self.list(coords, Type::S32));
                let form = format!("{rank}d.global.shared::cta{op}.im2col_no_offs.bulk_group");
                let (map, src) = (self.u64(*map), self.u32(*src));
                format!("cp{verb}.async.bulk.tensor.{form}{hint} [{map}, {{{coords}}}], [{src}]{policy};")
            }
            Im2col::Prefetch { map, coords, offsets } => {
                let (rank, map) = (coords.len(), self.u64(*map));
                let (coords, offsets) = (self.list(coords, Type::S32), self.list(offsets, Type::U16));
                format!(
                    "cp.async.bulk.prefetch.tensor.{rank}d.L2.global.im2col [{map}, {{{coords}}}], {{{offsets}}};"
                )
            }
        }
    }
}
