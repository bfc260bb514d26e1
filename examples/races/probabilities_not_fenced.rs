//! Attention with one latent K for all heads, computed as its transpose. The first warpgroup multiplies K and
//! Q, stores the probabilities to shared memory, and multiplies with them; the second multiplies with them
//! too.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, ProxySpace, Special, Value, WgmmaOperands, WgmmaTypes};

use super::exhibit::Exhibit;

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "probabilities-not-fenced",
    shipped: &["FlashMLA-ETAP PR#3"],
    bug: "A warpgroup stores the probabilities and multiplies with them at once. The multiply reads what \
          all four warps stored, and through another proxy.",
    mended: "Every thread executes fence.proxy.async after its stores, and a barrier of the warpgroup comes \
             before its multiply.",
    hidden: "The four warps come from one multiply and store at nearly the same time. Of 56 shapes 17 gave \
             results that changed from run to run.",
    threads: 256,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Number of blocks of keys, and bytes of one: 64 rows of 16.
const BLOCKS: u32 = 3;
const BLOCK: u32 = 2048;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let (keys, q) = (memory.upload(&[0x3F; (BLOCKS * BLOCK) as usize]), memory.upload(&[0x3F; 256]));
    vec![keys.into(), q.into()]
}

/// The descriptor of a K-major operand without a swizzle: core matrices of 8 rows of 16 bytes, 128 bytes apart
/// along M or N.
fn descriptor<'f>(at: Value<'f, u32>, apart: u64) -> Value<'f, u64> {
    ((at & 0x3_FFFF) >> 4).cast::<u64>() | (apart >> 4 << 16 | 8 << 32)
}

fn program(f: &Builder, mended: bool) {
    let (keys, queries) = (f.param::<u64>("keys"), f.param::<u64>("q"));
    let (base, thread, lane) = (f.shared_base(), f.special(Special::ThreadX), f.special(Special::Lane));
    let (q, p, scales) = (base + 4096, base + 5120, base + 6144);
    let key = |block: u32| base + block % 2 * BLOCK;
    let out: Vec<_> = (0..4).map(|_| f.variable(0.0f32)).collect();
    // Adds V^T P to the output. A slice of 16 keys is what one warp has stored.
    let multiply = |block: u32| {
        f.wgmma_fence();
        for slice in 0..4 {
            let (a, b) = (descriptor(key(block), 1024), descriptor(p + slice * 256, 128));
            f.wgmma(WgmmaOperands::new(WgmmaTypes::Bf16F32, 8, a, b), &out);
        }
        f.wgmma_commit();
        f.wgmma_wait(0);
    };

    // The tile before has left its probabilities.
    f.if_(thread.less_than(64), || f.store_shared(p + thread * 16, 0, [f.constant(0u32); 4]));
    f.fence_proxy_async(ProxySpace::Shared);

    let first = |block: u32| {
        f.barrier_sync(0, 256);
        let scores: Vec<_> = (0..4).map(|_| f.variable(0.0f32)).collect();
        f.wgmma_fence();
        let (a, b) = (descriptor(key(block), 1024), descriptor(q, 128));
        f.wgmma(WgmmaOperands::new(WgmmaTypes::Bf16F32, 8, a, b), &scores);
        f.wgmma_commit();
        f.wgmma_wait(0);
        // The maximum over the keys goes through shared memory here, as they are in all warps.
        f.barrier_sync(0, 256);
        f.scope("probabilities to shared memory", || {
            for (index, score) in (0..).zip(&scores) {
                // Row and column of the score in the block.
                let (row, column) =
                    (f.warp_index() * 16 + lane / 4 + index / 2 * 8, lane % 4 * 2 + index % 2);
                let at = p + (row / 8) * 128 + column * 16 + row % 8 * 2;
                f.store_shared(at, 0, [(score.get().bits_as::<u32>() >> 16).cast::<u16>()]);
            }
            f.store_shared(scales + thread * 4, 0, [f.constant(1.0f32)]);
        });
        if mended {
            f.fence_proxy_async(ProxySpace::Shared);
        }
        f.barrier_arrive(1, 256);
        if mended {
            f.barrier_sync(2, 128);
        }
        multiply(block);
    };
    let own = thread % 128;
    let load = |block: u32| {
        let at = keys + u64::from(block * BLOCK) + own.mul_wide(16);
        f.copy_async(16, key(block) + own * 16, (at, 0), None);
        f.copy_commit();
    };
    let second = |block: u32| {
        f.copy_wait_all();
        f.fence_proxy_async(ProxySpace::Shared);
        f.barrier_sync(0, 256);
        if block + 1 < BLOCKS {
            load(block + 1);
        }
        f.barrier_sync(0, 256);
        f.barrier_sync(1, 256);
        let _scale = f.load_shared_vector::<f32, 1>(scales + own * 4, 0);
        multiply(block);
    };
    f.if_else(
        thread.less_than(128),
        || f.scope("first warpgroup", || (0..BLOCKS).for_each(first)),
        || {
            f.scope("second warpgroup", || {
                f.if_(own.less_than(16), || {
                    f.copy_async(16, q + own * 16, (queries + own.mul_wide(16), 0), None);
                });
                load(0);
                (0..BLOCKS).for_each(second);
            });
        },
    );
}
