//! The section of the tile order: which slot computes which tile of the output when, and what a wave reads
//! from L2.

use std::collections::HashMap;

use kernel::GemmProblem;
use scheduler::{Activity, Span, Work};
use serde_json::{Value, json};

use super::schedule::Schedule;

/// Largest number of spans on a page.
const MOST_SPANS: usize = 20_000;

/// The tiles of an output in the order in which they are computed.
pub fn of(schedule: &Schedule, products: &[GemmProblem]) -> Value {
    let (plan, timeline) = (schedule.entry.plan(), &schedule.timeline);
    let [m, n, _] = plan.mainloop.tile;
    let [cluster_m, cluster_n] = plan.mainloop.cluster;
    let tile = plan.oriented([m * cluster_m, n * cluster_n]);
    let mut waves = HashMap::<u32, u64>::new();
    let mut spans = Vec::new();
    let mut works: Vec<(u64, Work<u32>)> = Vec::new();
    // Sorted by start, so that the end is cut.
    let mut all: Vec<&Span> = timeline.spans.iter().collect();
    all.sort_by_key(|span| (span.start, span.slot, span.end));
    for span in all.iter().take(MOST_SPANS) {
        let (does, work) = match span.activity {
            Activity::Multiply(work) => (0, work),
            Activity::Wait(work) => (1, work),
            Activity::FixUp(work) => (2, work),
        };
        let next = waves.entry(span.slot).or_default();
        let wave = if does == 0 { *next } else { next.saturating_sub(1) };
        if does == 0 {
            *next += 1;
            works.push((wave, work));
        }
        let [row, column] = schedule.place(&work).map(u64::from);
        let [k_begin, k_end] = [work.k_begin, work.k_end].map(u64::from);
        let (slot, worker) = (u64::from(span.slot), u64::from(span.worker));
        let [first, end] = schedule.slice(&work).unwrap_or([0, n]).map(u64::from);
        spans.push([does, row, column, k_begin, k_end, slot, worker, span.start, span.end, wave, first, end]);
    }
    let sliced = schedule.slices().map(|_| {
        // Columns of a CTA's tile, and number of CTAs of a cluster next to each other in this direction.
        json!({ "along": schedule.sliced_along(), "extent": n, "ctas": cluster_n })
    });
    json!({
        // M, N and K of each GEMM.
        "products": products.iter().map(|&GemmProblem { m, n, k }| [m, n, k]).collect::<Vec<_>>(),
        "describe": schedule.entry.schedule(),
        // Numbers of D's tiles along M and N. A tile is what a cluster computes at a time; and its extents in elements.
        "grid": schedule.grid(),
        "tile": tile,
        "k_tiles": schedule.tiles.k,
        // Number of clusters that are launched, and number of clusters that run at the same time.
        "workers": schedule.workers,
        "slots": timeline.slots,
        "sms": schedule.machine.multiprocessors,
        // When the last slot ends, in k-tiles.
        "end": timeline.end,
        // The summary that `falchion schedule` prints.
        "summary": schedule.summary(),
        // Number of all spans, if the page does not hold all of them.
        "cut": (all.len() > MOST_SPANS).then_some(all.len()),
        // Activity (0 multiply, 1 wait, 2 add up), row and column of the tile, first k-tile, end of the k-tiles
        // (exclusive), slot, worker, start, end, wave, first column of each CTA's tile, end of its columns
        // (exclusive). The columns are rows if operands are swapped.
        "spans": spans,
        // How tiles are sliced; null if the scheduler never slices tiles.
        "sliced": sliced,
        // By wave; empty for several GEMMs, because their operands differ.
        "reuse": if products.len() == 1 { reuse(schedule, &works) } else { Vec::new() },
    })
}

/// What the clusters of each wave read. Wave n is the n-th work unit of every slot. Tiles at the edges count as full tiles.
fn reuse(schedule: &Schedule, works: &[(u64, Work<u32>)]) -> Vec<Value> {
    let plan = schedule.entry.plan();
    let [m, n, k] = plan.mainloop.tile.map(u64::from);
    let [cluster_m, cluster_n] = plan.mainloop.cluster.map(u64::from);
    let [a_bits, b_bits] = plan.operands.map(|tile| u64::from(tile.bits()));
    let parts = schedule.slices().unwrap_or(1);
    // Bytes per CTA and k-tile; of B per slice of the columns.
    let (a, b) = (m * k * a_bits / 8, n * k * b_bits / 8 / u64::from(parts));
    let last = works.iter().map(|(wave, _)| *wave).max();
    let of_wave = |wave: u64| {
        let (mut tiles, mut loaded, mut alone) = (0, 0, 0);
        // The k-tiles of each row of tiles, and of each slice of a column of tiles.
        let (mut of_a, mut of_b) = (HashMap::<u32, Ranges>::new(), HashMap::<[u32; 2], Ranges>::new());
        for (_, work) in works.iter().filter(|(of, _)| *of == wave) {
            tiles += 1;
            let k_tiles = u64::from(work.k_end - work.k_begin);
            let (first, count) = work.slice.map_or((0, parts), |slice| (slice.first, slice.count));
            let b = b * u64::from(count);
            loaded += k_tiles * (a * cluster_m + b * cluster_n);
            alone += k_tiles * (a + b) * cluster_m * cluster_n;
            of_a.entry(work.m).or_default().push([work.k_begin, work.k_end]);
            for slice in first..first + count {
                of_b.entry([work.n, slice]).or_default().push([work.k_begin, work.k_end]);
            }
        }
        let distinct = of_a.into_values().map(covered).sum::<u64>() * a * cluster_m
            + of_b.into_values().map(covered).sum::<u64>() * b * cluster_n;
        // Bytes that go from L2 to the clusters, the bytes without multicast, if every CTA loaded its own tiles, and the
        // bytes of `loaded` that are distinct.
        json!({ "tiles": tiles, "loaded": loaded, "alone": alone, "distinct": distinct })
    };
    last.map_or_else(Vec::new, |last| (0..=last).map(of_wave).collect())
}

/// Ranges of k-tiles, each with its end (exclusive).
type Ranges = Vec<[u32; 2]>;

/// Number of k-tiles that are in at least one of the ranges.
fn covered(mut ranges: Ranges) -> u64 {
    ranges.sort_unstable();
    let (mut count, mut end) = (0, 0);
    for [first, last] in ranges {
        count += u64::from(last.saturating_sub(first.max(end)));
        end = end.max(last);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::covered;

    #[test]
    fn k_tiles_are_counted_once() {
        for (ranges, want) in [
            (vec![], 0),
            (vec![[0, 5], [0, 5]], 5),
            (vec![[4, 9], [0, 5]], 9),
            (vec![[2, 3], [0, 9], [9, u32::MAX]], u64::from(u32::MAX)),
            (vec![[7, 8], [0, 2], [3, 3]], 3),
        ] {
            assert_eq!(covered(ranges.clone()), want, "{ranges:?}");
        }
    }
}
