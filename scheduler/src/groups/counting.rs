//! The places of many groups in sorted order, found by counting: keys have few values.
//!
//! A *class* is a value of the key, numbered in the order of the places. Each warp takes consecutive groups and counts them by
//! class. The sum of all counts before a class and a warp is where the groups of that class and warp begin.

use ptx::inst::{AluOp, BitOp};
use ptx::{Builder, Scalar, Special, Value};

use super::order::TileWidths;
use super::shared::scan;
use super::sorted::{Ranked, Sorted};

/// Emits code for all threads of a CTA: the places of their groups. `most` is the number of groups that the table is made for. The
/// counts take the memory of the table's words, which are written later.
pub(super) fn ranked<'f>(
    sorted: &Sorted<'f>,
    (most, threads): (u32, u32),
    cut: TileWidths,
    few: Value<'f, u32>,
) -> Ranked<'f> {
    let Sorted { f, at, groups, .. } = *sorted;
    // Per kind, one class for each number of steps, from the most to 0.
    let kind = cut.most_steps() + 1;
    // Warps that take groups: as many as there is memory for.
    let warps = (threads / 32).min((most + 1) / (2 * kind));
    assert!(warps > 0, "the table has a word per class of groups");
    let (rounds, counts) = (most.div_ceil(32 * warps), 2 * kind * warps);
    let (lane, warp, thread) = (f.special(Special::Lane), f.warp_index(), f.special(Special::ThreadX));
    let count_at = move |class: Value<'f, u32>| at + ((class * warps + warp) * 4);
    let group = move |round| (warp * rounds + round) * 32 + lane;

    clear(f, at, counts, (thread, threads));
    f.barrier_sync(0, threads);

    let below = (f.constant(1u32) << lane) - 1;
    let population =
        |mask: Value<'f, u32>| f.alu::<u32>(AluOp::Bits(BitOp::Population, u32::TYPE), &[mask.operand()]);
    let of_rounds: Vec<_> = (0..rounds)
        .map(|round| {
            // Warps without groups have only groups past the last one.
            let exists = group(round).less_than(groups);
            let [begin, end] = sorted.rows(group(round).min(groups - 1));
            let key = cut.key(end - begin, few);
            let class = (key >> 16) * kind + (f.constant(kind - 1) - (key & 0xffff));
            let same = f.match_any(class.where_or(exists, 2 * kind));
            let (first, rank) = (population(same & below), f.variable(0u32));
            let load = || {
                let [before] = f.load_shared_vector::<u32, 1>(count_at(class), 0);
                rank.set(before + first);
            };
            if round > 0 {
                f.warp_sync();
            }
            f.if_(exists, load);
            // All lanes have read before one of them counts.
            f.warp_sync();
            f.if_(exists & first.equals(0), || {
                f.store_shared(count_at(class), 0, [rank.get() + population(same)]);
            });
            (exists, key, class, rank)
        })
        .collect();
    f.barrier_sync(0, threads);
    f.if_(warp.equals(0), || sum_before(f, at, counts, lane));
    f.barrier_sync(0, threads);
    let [many] = f.load_shared_vector::<u32, 1>(at, (4 * kind * warps) as i32);
    let places = of_rounds.into_iter().map(|(exists, key, class, rank)| {
        let before = f.variable(0u32);
        f.if_(exists, || {
            let [place] = f.load_shared_vector::<u32, 1>(count_at(class), 0);
            before.set(place);
        });
        let (place, is_few) = (before.get() + rank.get(), key.at_least(1 << 16));
        let rank = (place - many).where_or(is_few, place);
        sorted.spread(key, rank, (groups - many).where_or(is_few, many))
    });
    Ranked { places: places.collect(), group: Box::new(group) }
}

/// Emits code for all threads of a CTA: sets all counts to 0.
fn clear<'f>(f: &'f Builder, at: Value<'f, u32>, counts: u32, (thread, threads): (Value<'f, u32>, u32)) {
    let next = f.variable(thread);
    f.while_(
        || next.get().less_than(counts),
        || {
            f.store_shared(at + next.get() * 4, 0, [f.constant(0u32)]);
            next.set(next.get() + threads);
        },
    );
}

/// Emits code for one warp: replaces each count by the sum of all counts before it.
fn sum_before<'f>(f: &'f Builder, at: Value<'f, u32>, counts: u32, lane: Value<'f, u32>) {
    let (sum, base) = (f.variable(0u32), f.variable(0u32));
    f.while_(
        || base.get().less_than(counts),
        || {
            let place = base.get() + lane;
            let inside = place.less_than(counts);
            let [count] = f.load_shared_vector::<u32, 1>(at + place.min(counts - 1) * 4, 0);
            let own = count.where_or(inside, 0);
            let end = scan(f, lane, own, &|a, b| a + b) + sum.get();
            // The last count is read by the lanes past it too.
            f.warp_sync();
            f.if_(inside, || f.store_shared(at + place * 4, 0, [end - own]));
            sum.set(f.shuffle(end, 31));
            base.set(base.get() + 32);
        },
    );
}
