//! A small GEMM. Four warps multiply, each with its own quarter of K, and eight warps load the quarters.
//! Before the first warp adds up the four sums there is a `__syncthreads`, which the loading warps never
//! reach.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::inst::MmaTypes;
use ptx::{Builder, Special};

use super::exhibit::{BOX_BYTES, Exhibit, box_map};
use super::parts::{load_box, set_up};

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "barrier-for-some",
    shipped: &["flashinfer PR#2996"],
    bug: "__syncthreads waits for the 384 threads of the CTA, and it is in the branch of the 128 that \
          multiply.",
    mended: "The barrier comes after the branches, where all threads pass.",
    hidden: "The barrier is undefined when some threads never reach it. On some H100s it let the others \
             pass, on others the kernel hung now and then.",
    threads: 384,
    cluster: 1,
    dependent: false,
    silent: None,
    arguments,
    program,
};

/// Steps of each quarter of K.
const STEPS: u32 = 2;

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    let mut boxes = || box_map(memory.upload(&[0x3F; BOX_BYTES as usize])).into();
    let mut all = vec![boxes(), boxes()];
    all.push(memory.allocate(512).into());
    all
}

fn program(f: &Builder, mended: bool) {
    let (weights, activations) = (f.tensor_map("weights"), f.tensor_map("activations"));
    let output = f.param::<u64>("output");
    let (base, warp, lane) = (f.shared_base(), f.warp_index(), f.special(Special::Lane));
    let thread = f.special(Special::ThreadX);
    // The quarter of this warp: its boxes, and its barriers.
    let quarter = warp % 4;
    let (weight, activation) = (base + quarter * BOX_BYTES, base + (quarter + 4) * BOX_BYTES);
    let barrier = |quarter, kind: u32| base + (8192 + 32 * kind) + quarter * 8;
    let [weight_full, activation_full, consumed] = [0, 1, 2].map(|kind| barrier(quarter, kind));
    let partial = base + 9216;

    let all = (0..4).map(|quarter| f.constant(quarter));
    let barriers: Vec<_> =
        all.flat_map(|at| [(barrier(at, 0), 1), (barrier(at, 1), 1), (barrier(at, 2), 32)]).collect();
    set_up(f, &barriers);
    f.barrier_sync(0, 384);

    let load = || {
        f.if_(f.elect(), || {
            for step in 0..STEPS {
                f.mbarrier_wait(consumed, (step + 1) % 2);
                f.if_else(
                    warp.less_than(8),
                    || load_box(f, weights, weight, weight_full),
                    || load_box(f, activations, activation, activation_full),
                );
            }
        });
    };
    let compute = || {
        let mut sums = [f.constant(0.0f32); 4];
        for step in 0..STEPS {
            f.mbarrier_wait(weight_full, step % 2);
            f.mbarrier_wait(activation_full, step % 2);
            let row = (lane % 8) * 128 + ((lane / 8) ^ (lane % 8)) * 16;
            let a = f.load_matrix::<4>(weight + row, false);
            let b = f.load_matrix::<2>(activation + row, false);
            sums = f.multiply(MmaTypes::Bf16F32, a, b, sums);
            f.mbarrier_arrive(consumed);
        }
        f.store_shared(partial + thread * 16, 0, sums);
    };
    let add_up = || {
        f.barrier_sync(0, 384);
        f.if_(warp.equals(0), || {
            let parts = [0, 1, 2, 3]
                .map(|warp| f.load_shared_vector::<f32, 4>(partial + (warp * 512) + lane * 16, 0));
            let sums =
                [0, 1, 2, 3].map(|at: usize| parts[0][at] + parts[1][at] + parts[2][at] + parts[3][at]);
            f.store_global(output + lane.mul_wide(16), 0, sums);
        });
    };
    f.if_else(
        warp.less_than(4),
        || {
            f.scope("multiplying warps", compute);
            if !mended {
                f.scope("sum of the quarters", add_up);
            }
        },
        || f.scope("loading warps", load),
    );
    if mended {
        f.scope("sum of the quarters", add_up);
    }
}
