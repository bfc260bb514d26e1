//! Fix-up within a cluster: adds up the partial sums of a tile whose K is divided among the CTAs of a
//! cluster, through distributed shared memory.

use ptx::{Builder, Number, Special};

use super::{GROUPS, group_bytes, groups, in_vectors, places};
use crate::mainloop::Fragment;
use crate::plan::{CtaPlan, Plan};
use crate::skeleton;

/// Bytes of the partial sums of a tile in each CTA. They reuse the memory of the stages.
pub const fn sums_bytes(plan: &Plan) -> u64 {
    let [m, n, _] = plan.mainloop.tile;
    m as u64 * n as u64 * (plan.mainloop.atom.types.d().registers() * 4) as u64
}

/// Emitted for a consumer warpgroup that has multiplied its CTA's K-range of a tile. It stores the partial
/// sums where the stages were, and adds up those of all `parts` CTAs of the cluster for some of the columns,
/// in rank order. It calls `finish` with the results as narrower tiles with plans of their own.
///
/// All threads of the cluster that do not multiply must meanwhile arrive once at the cluster barrier. All
/// threads must do so once more before they end, because others read their shared memory.
pub fn exchange_in_cluster<'f, T: Number + Default>(
    f: &'f Builder,
    plan: &Plan,
    parts: u32,
    fragment: &Fragment<'f, T>,
    finish: &dyn Fn(&Plan, Fragment<'f, T>),
) {
    let finish = &|narrowed: &Plan, sums| finish(narrowed, in_vectors(plan, sums));
    let fragment = &in_vectors(plan, fragment.copied());
    // A warp may overwrite operands that another warp still reads.
    f.barrier_sync(CtaPlan::CTA_BARRIER, plan.mainloop.consumers * 128);
    let of_warpgroup = (sums_bytes(plan) / u64::from(plan.mainloop.sharing())) as u32;
    let own = fragment.shared + fragment.warpgroup * of_warpgroup + fragment.thread * 16;
    for (group, offset) in groups(fragment) {
        let [a, b, c, d] = group.map(|value| value.get());
        match places::<T>() {
            [_, _, 8, _] => f.store_shared(own, offset, [a, b, c, d]),
            [_, _, next, _] => {
                f.store_shared(own, offset, [a, b]);
                f.store_shared(own, offset + next, [c, d]);
            }
        }
    }
    skeleton::meet(f, false);

    let narrow = plan.narrowed(GROUPS * 8);
    let [_, n, _] = narrow.mainloop.tile;
    let (count, columns) = (n / 8, plan.mainloop.tile[1] / n);
    let of_ranks: Vec<_> = (0..parts).map(|rank| f.map_shared(own, rank)).collect();
    let index = f.variable(f.special(Special::ClusterRank));
    f.while_(
        || index.get().less_than(plan.blocks() * columns),
        || {
            let first = index.get() * (count * group_bytes::<T>().unsigned_abs());
            let totals: Vec<_> = (0..count * 4).map(|_| f.variable(T::default())).collect();
            for &of_rank in &of_ranks {
                let at = of_rank + first;
                for (i, totals) in (0..).zip(totals.chunks_exact(4)) {
                    let offset = i * group_bytes::<T>();
                    let values = match places::<T>() {
                        [_, _, 8, _] => f.load_cluster::<T, 4>(at, offset).to_vec(),
                        [_, _, next, _] => {
                            let [low, high] =
                                [0, next].map(|further| f.load_cluster::<T, 2>(at, offset + further));
                            [low, high].concat()
                        }
                    };
                    for (total, value) in totals.iter().zip(values) {
                        total.set(total.get() + value);
                    }
                }
            }
            let (block, column) = (index.get() / columns, index.get() % columns);
            finish(&narrow, fragment.narrowed(&narrow, totals, [block * plan.block_rows(), column * n]));
            index.set(index.get() + parts);
        },
    );
}
