//! Copies in im2col mode: the map's kind, the base, the filter offset.

use emulator::{Fault, TensorFault};
use ptx::{MapChange, Scope, TensorLoad, Value};

use crate::{BOX_BYTES, Case, Kernel};

impl<'f> Kernel<'f> {
    /// Loads the pixels of both images through an im2col map, from a base on, with a filter offset.
    fn pixels_from(self, map: Value<'f, u64>, base: [i32; 4], offset: [u16; 2]) {
        let load = TensorLoad { map, dst: self.base, barrier: self.barrier(), multicast: None, hint: None };
        self.once(|| {
            self.f.mbarrier_arrive_expect(self.barrier(), BOX_BYTES);
            let coords = base.map(|coord| self.f.constant(coord));
            self.f.im2col_load(load, coords, offset.map(|offset| self.f.constant(offset)));
        });
        self.f.mbarrier_wait(self.barrier(), 0);
    }
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "a copy in tile mode through an im2col map",
            32,
            |fault| matches!(fault, Fault::Tensor(TensorFault::Mode { im2col: true })),
            |k| {
                k.init();
                if !k.broken {
                    return k.pixels_from(k.pixels, [0, -1, -1, 0], [1, 1]);
                }
                let (map, dst, barrier) = (k.pixels, k.base, k.barrier());
                let load = TensorLoad { map, dst, barrier, multicast: None, hint: None };
                k.once(|| {
                    k.f.mbarrier_arrive_expect(barrier, BOX_BYTES);
                    k.f.tensor_load(load, [k.f.constant(0); 4]);
                });
            },
        ),
        Case::new(
            "a copy in im2col mode through a tiled map",
            32,
            |fault| matches!(fault, Fault::Tensor(TensorFault::Mode { im2col: false })),
            |k| {
                k.init();
                k.pixels_from(if k.broken { k.map } else { k.pixels }, [0; 4], [0; 2]);
            },
        ),
        Case::new(
            "a base outside of the bounding box",
            32,
            |fault| {
                matches!(fault, Fault::Tensor(TensorFault::Im2colBase { dim: 1, base: 1, low: -1, high: 0 }))
            },
            |k| {
                k.init();
                // The tensor has a pixel 1, but the bounding box does not: no filter begins there.
                k.pixels_from(k.pixels, [0, 0, if k.broken { 1 } else { 0 }, 0], [1, 1]);
            },
        ),
        Case::new(
            "a filter offset of too many bits",
            32,
            |fault| {
                matches!(fault, Fault::Tensor(TensorFault::Im2colOffset { dim: 0, offset: 256, bits: 8 }))
            },
            |k| {
                k.init();
                k.pixels_from(k.pixels, [0; 4], [if k.broken { 256 } else { 255 }, 0]);
            },
        ),
        Case::new(
            "a part of an im2col map replaced",
            32,
            |fault| matches!(fault, Fault::Tensor(TensorFault::MapFields { reason, .. }) if reason.contains("im2col")),
            |k| {
                let copy = k.base + 4096;
                k.init();
                k.f.copy_tensor_map(k.pixels, copy);
                k.f.warp_sync();
                if k.broken {
                    k.once(|| k.f.replace_tensor_map(copy, MapChange::Address(k.data)));
                    k.f.warp_sync();
                }
                k.f.publish_tensor_map(k.out, copy, Scope::Gpu);
                k.f.acquire_tensor_map(k.out, Scope::Gpu);
                k.pixels_from(k.out, [0; 4], [0; 2]);
            },
        ),
        Case::new(
            "an im2col store's source changed before it was read",
            32,
            |fault| matches!(fault, Fault::SharedInFlight { .. }),
            |k| {
                k.zero(BOX_BYTES);
                k.once(|| {
                    k.f.im2col_store(k.out_pixels, k.base, [k.f.constant(0); 4], None);
                    k.f.bulk_commit();
                    k.in_twin(|| k.f.bulk_wait(0, true));
                    k.f.store_shared(k.base + 3 * 128, 0, [k.thread]);
                });
            },
        ),
        Case::new(
            "an im2col store through a bounding box that is not inside of the tensor",
            32,
            |fault| {
                matches!(
                    fault,
                    Fault::Tensor(TensorFault::Im2colBounds { dim: 0, low: -1, high: 0, extent: 2 })
                )
            },
            |k| {
                k.zero(BOX_BYTES);
                k.once(|| {
                    let map = if k.broken { k.pixels } else { k.out_pixels };
                    k.f.im2col_store(map, k.base, [k.f.constant(0); 4], None);
                    k.f.bulk_commit();
                    k.f.bulk_wait(0, false);
                });
            },
        ),
    ]
}
