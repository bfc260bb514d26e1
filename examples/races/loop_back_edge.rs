//! All threads store a tile that two warpgroups multiply. A barrier is missing at the loop's back edge: the
//! faster warpgroup stores the next tile while the other warpgroup's `wgmma` still reads the old one.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, ProxySpace, Special, Value, WgmmaOperands, WgmmaTypes};

use super::exhibit::Exhibit;

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "loop-back-edge",
    shipped: &["tilelang#2613"],
    bug: "Each warpgroup waits for its own multiply and then overwrites the tile that both warpgroups read.",
    mended: "A barrier of both warpgroups ends each iteration of the loop.",
    hidden: "Both warpgroups share one tensor core pipe per quarter of the SM and alternate on it, so they \
             stay within one multiply of each other. With mma.sync, as on older GPUs, the reads are \
             complete when the instruction is.",
    threads: 256,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(_: &mut Memory) -> Vec<Argument> {
    Vec::new()
}

/// The descriptor of a K-major operand without a swizzle: core matrices of 8 rows of 16 bytes, 128 bytes apart along M
/// and 1024 along K.
fn descriptor<'f>(at: Value<'f, u32>) -> Value<'f, u64> {
    ((at & 0x3_FFFF) >> 4).cast::<u64>() | (64 << 16 | 8 << 32)
}

fn program(f: &Builder, mended: bool) {
    let (tile, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let sums: Vec<_> = (0..4).map(|_| f.variable(0.0f32)).collect();

    for _ in 0..2 {
        f.scope("all threads store the tile", || {
            // 64 x 16 elements of A; the first 8 rows serve as B too.
            f.store_shared(tile + thread * 8, 0, [f.constant(0u32); 2]);
            f.fence_proxy_async(ProxySpace::Shared);
        });
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
    }
}
