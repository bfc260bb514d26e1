//! Tensor maps changed on the device: the next copy follows the new description.

use emulator::Memory;
use ptx::abi::{Promotion, TensorElement, TensorMap, TensorSwizzle};
use ptx::{MapChange, Scope, Special, TensorLoad};

use crate::{kernel, run, words};

/// 8 rows of 32 words. The value of each word is its index.
fn numbers() -> Vec<u8> {
    (0u32..256).flat_map(u32::to_le_bytes).collect()
}

fn template(address: u64) -> TensorMap {
    TensorMap {
        element: TensorElement::F32,
        address,
        dims: vec![4, 1],
        strides: vec![16],
        box_dims: vec![4, 1],
        swizzle: TensorSwizzle::None,
        promotion: Promotion::default(),
        reach: None,
    }
}

/// The words that a box of 4 x 4 loads, with every second row, from column 28 of 30 and row 1.
const WANTED: [u32; 16] = [60, 61, 0, 0, 124, 125, 0, 0, 188, 189, 0, 0, 0, 0, 0, 0];

#[test]
fn a_box_through_a_replaced_map() {
    // Changed in shared memory from a parameter, or in place in global memory.
    for in_place in [false, true] {
        let program = kernel(32, 1, |f| {
            let (data, slot, out) = (f.param::<u64>("data"), f.param::<u64>("slot"), f.param::<u64>("out"));
            let map = f.tensor_map("map");
            let (base, lane) = (f.shared_base(), f.special(Special::Lane));
            let changes = [
                MapChange::Address(data),
                MapChange::Extent(0, f.constant(30)),
                MapChange::Extent(1, f.constant(7)),
                MapChange::Stride(1, f.constant(128)),
                MapChange::Box(1, f.constant(8)),
                MapChange::ElementStride(1, f.constant(2)),
                MapChange::Element(TensorElement::U32),
                MapChange::Rank(2),
            ];
            let barrier = base + 1024;
            let first = lane.equals(0);
            if in_place {
                f.if_(first, || {
                    for change in changes {
                        f.replace_tensor_map(slot, change);
                    }
                    f.release_tensor_maps(Scope::Gpu);
                });
            } else {
                f.copy_tensor_map(map, base);
                f.warp_sync();
                f.if_(first, || {
                    for change in changes {
                        f.replace_tensor_map(base, change);
                    }
                });
                f.warp_sync();
                f.publish_tensor_map(slot, base, Scope::Gpu);
            }
            f.acquire_tensor_map(slot, Scope::Gpu);
            f.if_(first, || {
                f.mbarrier_init(barrier, 1);
                f.fence_mbarrier_init();
                f.mbarrier_arrive_expect(barrier, 64);
                let load = TensorLoad { map: slot, dst: base + 512, barrier, multicast: None, hint: None };
                f.tensor_load(load, [f.constant(28), f.constant(1)]);
            });
            f.warp_sync();
            f.mbarrier_wait(barrier, 0);
            f.if_(lane.less_than(16), || {
                let [word] = f.load_shared_vector::<u32, 1>(base + 512 + lane * 4, 0);
                f.store_global(out + lane.mul_wide(4), 0, [word]);
            });
        });
        let mut memory = Memory::new();
        let data = memory.upload(&numbers());
        let slot = memory.upload_tensor_map(&template(data)).unwrap();
        let out = memory.allocate(64);
        run(&program, 1, &[data.into(), slot.into(), out.into(), template(data).into()], &memory);
        assert_eq!(words(&memory, out, 16), WANTED, "in place: {in_place}");
    }
}
