//! A `wgmma` whose A comes from registers is still running when the next fragments are loaded into the same
//! registers.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, ProxySpace, Special, Value, WgmmaOperands, WgmmaSource, WgmmaTypes};

use super::exhibit::Exhibit;

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "fragments-overwritten",
    shipped: &["DeepGEMM#449", "triton#9433"],
    bug: "The fragments of the next step are written to the registers of A without waiting for the multiply \
          that reads them.",
    mended: "wgmma.wait_group comes between the multiply and the next fragments.",
    hidden: "The first multiply of a group reads its registers soon after it is issued. Whether the write \
             comes later depends on where the compiler places the loads.",
    threads: 128,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    vec![memory.upload(&[0x3F; 2 * 16 * 128]).into()]
}

/// The descriptor of a K-major operand of 8 rows without a swizzle: two core matrices of 8 rows of 16 bytes, 128 bytes
/// apart.
fn descriptor<'f>(at: Value<'f, u32>) -> Value<'f, u64> {
    ((at & 0x3_FFFF) >> 4).cast::<u64>() | (8 << 16 | 8 << 32)
}

fn program(f: &Builder, mended: bool) {
    let fragments = f.param::<u64>("fragments");
    let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));

    // B has 16 rows of 8 zeros, written by 16 threads.
    f.if_(thread.less_than(16), || {
        f.store_shared(base + thread * 16, 0, [f.constant(0u32); 4]);
        f.fence_proxy_async(ProxySpace::Shared);
    });
    f.barrier_sync(0, 128);

    let sums: Vec<_> = (0..4).map(|_| f.variable(0.0f32)).collect();
    let a: [_; 4] = core::array::from_fn(|_| f.uninitialised::<u32>());
    for step in 0..2u32 {
        f.scope("fragments of the step", || {
            let at = fragments + u64::from(step * 2048) + thread.mul_wide(16);
            let loaded = f.load_global_vector::<u32, 4>(at, 0);
            a.iter().zip(loaded).for_each(|(register, value)| register.set(value));
        });
        f.wgmma_fence();
        let source = WgmmaSource::Registers(a);
        f.wgmma(WgmmaOperands::new(WgmmaTypes::Bf16F32, 8, source, descriptor(base)), &sums);
        f.wgmma_commit();
        if mended {
            f.wgmma_wait(0);
        }
    }
    f.wgmma_wait(0);
}
