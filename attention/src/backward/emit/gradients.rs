//! dK and dV of a CTA that walks over blocks of keys: consumers hand them over where tiles of dQ waited to be added, and the thread that adds
//! these stores them. So K and V of the next block are loaded while they are stored.

use collective::{Consumer, WarpgroupMma};
use ptx::{ProxySpace, Value};

use super::Kernel;
use super::consumer::{Slab, fragment, packed_rows};
use super::parts::TileParts;
use crate::emit::slab;

impl<'f> Kernel<'_, 'f> {
    /// The slabs of dV and of dK in the order in which they are handed over, as many at once as fit into a stage: which gradient, and which slab.
    fn handed_over(&self) -> Vec<Vec<(usize, u32)>> {
        let (tiles, spec) = (&self.plan.tiles, &self.plan.spec);
        let at_once = self.plan.rings.dq.stage_bytes / tiles.output_slab_bytes(spec);
        let slabs = |i| (0..tiles.output_slabs(spec, i)).map(move |slab| (i, slab));
        let all: Vec<_> = [1, 0].into_iter().flat_map(slabs).collect();
        all.chunks(at_once as usize).map(<[_]>::to_vec).collect()
    }

    /// The slabs that are in a stage.
    fn in_stage(&self, address: Value<'f, u32>, slabs: &[(usize, u32)]) -> Vec<Slab<'f>> {
        let bytes = self.plan.tiles.output_slab_bytes(&self.plan.spec);
        let place = |(number, &(gradient, slab))| Slab { gradient, slab, from: address + number * bytes };
        (0..).zip(slabs).map(place).collect()
    }

    /// Emitted for a consumer: hands its rows of dV and dK over.
    pub(super) fn hand_over_gradients(
        &self,
        consumer: Consumer<'f>,
        dq: &TileParts<'f>,
        [d_v, d_k]: [&WarpgroupMma<'f, f32>; 2],
    ) {
        let Self { f, plan, .. } = *self;
        let (staged, _) = slab(&plan.tiles.outputs[0], consumer.thread);
        let [_, columns] = plan.tiles.output_slab(&plan.spec);
        let scale = f.parameter("scale");
        for slabs in self.handed_over() {
            let rows = |&(i, slab): &(usize, u32)| {
                let (product, factor) = if i == 0 { (d_k, Some(scale)) } else { (d_v, None) };
                let own = slab * columns..(slab + 1) * columns;
                packed_rows(f, plan.spec.format, (&fragment(f, product, consumer), own), factor)
            };
            let rows: Vec<_> = slabs.iter().map(rows).collect();
            let stage = dq.claim(0);
            for (Slab { gradient, from, .. }, rows) in self.in_stage(stage.address, &slabs).iter().zip(&rows)
            {
                self.fill(consumer, &staged, &plan.tiles.outputs[*gradient], *from, rows);
            }
            f.fence_proxy_async(ProxySpace::Shared);
            self.warp_arrives(consumer, stage.full);
            dq.next_tile();
        }
    }

    /// Emitted for the thread that adds: stores what consumers have handed over.
    pub(super) fn store_handed_over(&self, dq: &TileParts<'f>) {
        let f = self.f;
        for slabs in self.handed_over() {
            let stage = dq.acquire(0);
            let slabs = self.in_stage(stage.address, &slabs);
            (0..self.plan.cta.consumers).for_each(|part| self.store_part(f.constant(part), &slabs));
            f.bulk_commit();
            // The grid's end makes them visible.
            f.bulk_wait(0, true);
            f.mbarrier_arrive(stage.empty);
            dq.next_tile();
        }
    }
}
