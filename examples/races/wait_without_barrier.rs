//! Two warpgroups multiply with the same tile of B. Each waits for its own `wgmma`. Then the first warpgroup
//! copies the next tile over it with cp.async, while the second warpgroup's `wgmma` may still read.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, ProxySpace, Special, Value, WgmmaOperands, WgmmaTypes};

use super::exhibit::Exhibit;

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "wait-without-barrier",
    shipped: &["triton#11047"],
    bug: "wgmma.wait_group 0 is used as a barrier between warpgroups. It waits only for the warpgroup's own \
          multiplies.",
    mended: "A barrier of both warpgroups comes after the wait.",
    hidden: "A cp.async takes hundreds of cycles to deliver its bytes; the other warpgroup's multiply takes \
             a few dozen to end.",
    threads: 256,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    vec![memory.upload(&[0x3F; 2048]).into()]
}

/// The descriptor of a K-major operand without a swizzle: core matrices of 8 rows of 16 bytes, 128 bytes apart along M
/// and 1024 along K.
fn descriptor<'f>(at: Value<'f, u32>) -> Value<'f, u64> {
    ((at & 0x3_FFFF) >> 4).cast::<u64>() | (64 << 16 | 8 << 32)
}

fn program(f: &Builder, mended: bool) {
    let next = f.param::<u64>("next");
    let (tile, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let sums: Vec<_> = (0..4).map(|_| f.variable(0.0f32)).collect();

    f.store_shared(tile + thread * 8, 0, [f.constant(0u32); 2]);
    f.fence_proxy_async(ProxySpace::Shared);
    f.barrier_sync(0, 256);
    f.scope("each warpgroup multiplies", || {
        f.wgmma_fence();
        let operands = WgmmaOperands::new(WgmmaTypes::Bf16F32, 8, descriptor(tile), descriptor(tile));
        f.wgmma(operands, &sums);
        f.wgmma_commit();
        f.wgmma_wait(0);
    });
    if mended {
        f.barrier_sync(0, 256);
    }
    f.scope("the first warpgroup copies the next tile", || {
        f.if_(thread.less_than(128), || {
            f.copy_async(16, tile + thread * 16, (next + thread.mul_wide(16), 0), None);
            f.copy_wait_all();
        });
    });
}
