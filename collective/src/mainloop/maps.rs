//! Tensor maps that a CTA modifies for each new GEMM of a grouped launch.
//!
//! Each CTA has several pairs of maps in global memory, one map for A and one for B. They begin as copies of
//! the templates that the host encoded. For each GEMM, the thread that starts the copies takes the next pair,
//! replaces address, extents and stride in it, and hands it from the generic proxy to the tensormap proxy.
//! There is one pair more than there are stages. When a pair is reused, each GEMM since has had a copy claim
//! a stage, so the copies that used the pair before have landed.

use cute_rs::atom::Major;
use ptx::{Builder, MapChange, Scope, Special, Value, Var};

use super::{MainloopSite, WorkUnit};
use crate::operands::{Visit, WORKSPACE};
use crate::plan::{OperandTile, Plan};
use crate::record::Described;

/// The name of the kernel parameter.
const MAPS: &str = "maps";

/// A CTA's maps on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnMaps<'f> {
    /// Address of the first pair.
    address: Value<'f, u64>,
    /// Index of the pair in use.
    pair: Var<'f, u32>,
    /// The GEMM that the pair is for: its index plus one; 0 for none.
    product: Var<'f, u32>,
}

impl<'f> OwnMaps<'f> {
    /// States the kernel parameter.
    pub(super) fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        visit.address_in(MAPS, WORKSPACE, of.maps);
    }

    /// Finds it.
    pub(crate) fn of(f: &'f Builder, plan: &Plan) -> Self {
        let all = f.parameter::<u64>(MAPS);
        let address = all + f.special(Special::CtaX).mul_wide(plan.map_bytes());
        Self { address, pair: f.variable(0u32), product: f.variable(0u32) }
    }

    /// Emitted for the lanes of a warp: copies the templates of A and B to all pairs.
    pub(crate) fn prepare(self, f: &'f Builder, plan: &Plan, templates: Vec<Value<'f, u64>>) {
        let own = self.address + f.special(Special::Lane).mul_wide(4);
        for (operand, template) in (0..).zip(templates) {
            let word = f.tensor_map_word(template);
            for pair in 0..plan.map_pairs() {
                let offset = pair * Plan::MAP_PAIR_BYTES + operand * (Plan::MAP_PAIR_BYTES / 2);
                f.store_global(own, offset.cast_signed(), [word]);
            }
        }
    }

    /// Emitted for a work unit: the maps of A and B for its GEMM. If the pair in use is for another GEMM, the
    /// thread for which `loads` holds prepares a new one.
    pub(crate) fn of_unit(
        self,
        f: &'f Builder,
        plan: &Plan,
        unit: WorkUnit<'f>,
        loads: Option<Value<'f, bool>>,
    ) -> [Value<'f, u64>; 2] {
        let maps = |pair: Value<'f, u32>| {
            let a = self.address + pair.mul_wide(Plan::MAP_PAIR_BYTES);
            [a, a + u64::from(Plan::MAP_PAIR_BYTES / 2)]
        };
        if let (Some(record), Some(group)) = (unit.record, unit.group) {
            let product = group + 1;
            // An empty range of k-tiles needs no copies.
            let mut changes = product.differs_from(self.product.get()) & unit.k_begin.less_than(unit.k_end);
            if let Some(loads) = loads {
                changes = changes & loads;
            }
            f.if_(changes, || {
                let next = self.pair.get() + 1;
                self.pair.set(next.where_or(next.less_than(plan.map_pairs()), 0));
                self.product.set(product);
                let [m, n, k] = record.extents(f, plan);
                let operands = record.operands(f, plan);
                let [a, b] = plan.operands;
                let tiles = [(a, m), (b, n)];
                let maps = maps(self.pair.get());
                for ((map, (tile, mn)), operand) in maps.into_iter().zip(tiles).zip(operands) {
                    replace(f, map, tile, operand, [mn, k]);
                }
                f.release_tensor_maps(Scope::Gpu);
                for map in maps {
                    f.acquire_tensor_map(map, Scope::Gpu);
                }
            });
        }
        maps(self.pair.get())
    }
}

/// Replaces the fields that differ between GEMMs.
fn replace<'f>(
    f: &'f Builder,
    map: Value<'f, u64>,
    tile: OperandTile,
    Described { address, ld }: Described<'f>,
    [mn, k]: [Value<'f, u32>; 2],
) {
    let [inner, outer] = match tile.major {
        Major::K => [k, mn],
        Major::Mn => [mn, k],
    };
    f.replace_tensor_map(map, MapChange::Address(address));
    f.replace_tensor_map(map, MapChange::Extent(0, inner));
    f.replace_tensor_map(map, MapChange::Extent(1, outer));
    f.replace_tensor_map(map, MapChange::Stride(1, ld * u64::from(tile.bits() / 8)));
}
