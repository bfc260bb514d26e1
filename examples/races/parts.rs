//! Parts that several exhibits are made of.

use ptx::{Builder, Special, TensorLoad, Value, Var, WgmmaOperands, WgmmaSource, WgmmaTypes};

use super::exhibit::BOX_BYTES;

/// Initialises mbarriers, each with its number of arrivals. Thread 0 does it, and a barrier must follow.
pub(crate) fn set_up(f: &Builder, barriers: &[(Value<'_, u32>, u32)]) {
    f.if_(f.special(Special::ThreadX).equals(0), || {
        barriers.iter().for_each(|&(at, count)| f.mbarrier_init(at, count));
        f.fence_mbarrier_init();
    });
}

/// Starts the load of a box, whose bytes are counted by an mbarrier.
pub(crate) fn copy_box<'f>(
    f: &'f Builder,
    map: Value<'f, u64>,
    dst: Value<'f, u32>,
    barrier: Value<'f, u32>,
) {
    let load = TensorLoad { map, dst, barrier, multicast: None, hint: None };
    f.tensor_load(load, [f.constant(0); 2]);
}

/// Arrives at an mbarrier with the bytes of a box, and starts the load of the box.
pub(crate) fn load_box<'f>(
    f: &'f Builder,
    map: Value<'f, u64>,
    dst: Value<'f, u32>,
    barrier: Value<'f, u32>,
) {
    f.mbarrier_arrive_expect(barrier, BOX_BYTES);
    copy_box(f, map, dst, barrier);
}

/// A multiply of a warpgroup: ones in registers, and the first 16 columns of the boxes at `tile`, 8 rows each,
/// as B of N columns. Waits for the multiply.
pub(crate) fn multiply<'f>(f: &'f Builder, tile: Value<'f, u32>, n: u32) -> Vec<Var<'f, f32>> {
    let ones: [_; 4] = core::array::from_fn(|_| f.variable(0x3F80_3F80u32));
    let sums: Vec<_> = (0..n / 2).map(|_| f.variable(0.0f32)).collect();
    // K-major, swizzled in spans of 128 bytes; the groups of 8 rows are 1024 bytes apart.
    let b = ((tile & 0x3_FFFF) >> 4).cast::<u64>() | (1 << 62 | 64 << 32 | 1 << 16);
    f.wgmma_fence();
    f.wgmma(WgmmaOperands::new(WgmmaTypes::Bf16F32, n, WgmmaSource::Registers(ones), b), &sums);
    f.wgmma_commit();
    f.wgmma_wait(0);
    sums
}

/// The upper halves of two floats in one register: both rounded to `bf16`, towards zero.
pub(crate) fn halves<'f>(low: Value<'f, f32>, high: Value<'f, f32>) -> Value<'f, u32> {
    (low.bits_as::<u32>() >> 16) | (high.bits_as::<u32>() & 0xFFFF_0000)
}
