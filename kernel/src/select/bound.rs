//! A cheap lower bound of a kernel's time. The model is evaluated only for kernels that may be among the
//! first.
//!
//! The bound is the model's closed form without terms that only add time: details of how tiles are split, and
//! operands that are read again from DRAM. Everything that depends only on kernel and machine is computed
//! once. Kernels that may split tiles get a second bound that counts their work units, if the first does not
//! exclude them. A bound is never more than the prediction, so leaving out kernels by it changes no choice; a
//! test checks both.

use std::sync::Arc;

use collective::{CachePolicy, MatrixRef, Plan};
use scheduler::{ReductionKind, Tiles};

use super::model::{self, Subject};
use super::space::{Class, Entry, Space};
use super::step::{self, Fixed};
use super::table::Table;
use super::{Machine, Request};
use crate::products::Products;

/// The bound of several entries that do not differ in anything it uses.
struct Bound {
    /// The range of these entries.
    entries: core::ops::Range<usize>,
    class: Class,
    /// Elements of a cluster's tile along M, N and K, as the kernel sees them.
    tile: [u32; 3],
    swapped: bool,
    cluster: f64,
    slots: u32,
    ctas: f64,
    /// If tiles may be split, the time to exchange partial sums with one other CTA, and the part of it that
    /// grows with the square root of their number.
    exchange: Option<[f64; 2]>,
    /// Whether each worker of a split tile finishes only a part of it.
    separate: bool,
    /// Whether CTAs start after others have ended.
    restarts: bool,
    /// Whether consumers alternate (pingpong).
    turns: bool,
    fixed: Fixed,
    /// If the last wave may be in slices, their number per tile, and one as a tile of its own.
    slices: Option<(f64, Fixed)>,
    /// The time of one CTA's epilogue that reads no C, with even row lengths of D.
    epilogue: f64,
    /// CTAs that finish a tile.
    parts: f64,
    /// Whether the epilogue is slower for odd row lengths, and whether tensor copies load C.
    by_threads: bool,
    sourced: bool,
    launch: f64,
    /// Whether requests for operands may be joined before L2.
    may_join: bool,
    /// Bits of an element of A and of B, bits in memory for each of K, and which of them leave L2 first.
    bits: [u32; 2],
    kept: [f64; 2],
    first: [bool; 2],
    /// Bytes of D per element of the output.
    output: f64,
}

/// The bounds of a space on a machine.
pub(super) struct Bounds(Vec<Bound>);

impl PartialEq for Bound {
    /// Equal except for the entries.
    fn eq(&self, other: &Self) -> bool {
        let key = |of: &Self| {
            let [one, grows] = of.exchange.unwrap_or([-1.0; 2]);
            let numbers = [of.cluster, of.ctas, of.parts, of.epilogue, of.launch, of.output, one, grows];
            let numbers = numbers.map(f64::to_bits);
            let facts =
                [of.swapped, of.restarts, of.turns, of.by_threads, of.sourced, of.may_join, of.separate];
            (of.class, of.tile, of.slots, numbers, facts, of.bits, of.kept.map(f64::to_bits), of.first)
        };
        key(self) == key(other) && self.fixed == other.fixed && self.slices == other.slices
    }
}

/// A request as the kernel sees it: M, N and K, and its operands A and B.
struct Seen {
    problem: [u32; 3],
    matrices: [MatrixRef; 2],
}

/// Predictions and bounds round differently.
const ROUNDED: f64 = 1.0 - 1e-9;

impl Bounds {
    /// The bounds of a space. They are computed once per process.
    pub(super) fn of(space: Space, entries: &[Entry], machine: &Machine) -> Arc<Self> {
        static KNOWN: Table<(Space, Machine), Arc<Bounds>> = Table::new();
        KNOWN.get(&(space, *machine), || {
            let mut all: Vec<Bound> = Vec::with_capacity(entries.len());
            let mut last: Option<(&Arc<Plan>, Fixed)> = None;
            for (i, entry) in entries.iter().enumerate() {
                // Entries that follow each other mostly share a plan.
                let fixed = match last {
                    Some((plan, fixed)) if Arc::ptr_eq(plan, entry.plan()) => fixed,
                    _ => Fixed::new(machine, entry.plan(), entry.plan().mainloop.tile[1].into()),
                };
                last = Some((entry.plan(), fixed));
                let bound = Bound::new(i, entry, fixed, machine);
                match all.last_mut() {
                    Some(last) if *last == bound => last.entries.end = i + 1,
                    _ => all.push(bound),
                }
            }
            Arc::new(Self(all))
        })
    }

    /// The `count` entries with the shortest predicted times, in order, with these times, without those of
    /// `closed` classes. `predict` is called for few entries. `None` if the bounds do not hold, or exclude too few.
    pub(super) fn fastest(
        &self,
        request: &Request<'_>,
        machine: &Machine,
        count: usize,
        (entries, closed): (&[Entry], &[Class]),
        predict: impl Fn(usize) -> f64,
    ) -> Option<Vec<(f64, usize)>> {
        let asked = Asked::new(request, machine)?;
        let mut bounds = self.all(&asked);
        bounds.retain(|&(_, bound)| !closed.contains(&self.0[bound].class));
        let order = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let look = |bound: usize, times: &mut Vec<(f64, usize)>| {
            times.extend(self.0[bound].entries.clone().map(|i| (predict(i), i)));
        };
        let least = count.min(bounds.len());
        if least == 0 || least == bounds.len() {
            return None;
        }
        bounds.select_nth_unstable_by(least, order);
        let (near, far) = bounds.split_at(least);
        let mut times = Vec::new();
        near.iter().for_each(|&(_, bound)| look(bound, &mut times));
        // Each bound covers at least one entry.
        times.select_nth_unstable_by(count - 1, order);
        let mut most = times[count - 1].0;
        // In parts, from the least bound on, as each part may lower the time that the next ones must reach.
        let mut far: Vec<(f64, usize)> = far.iter().copied().filter(|(least, _)| *least <= most).collect();
        far.sort_unstable_by(order);
        for part in far.chunks(64) {
            for &(_, bound) in part.iter().take_while(|(least, _)| *least <= most) {
                let of = &self.0[bound];
                if !asked.divides(of) {
                    look(bound, &mut times);
                    continue;
                }
                // Entries of one bound may differ in how they split tiles.
                let counted = |i: &usize| asked.least(of, asked.tiles(of), Some(&entries[*i].subject()));
                let open = of.entries.clone().filter(|i| counted(i) <= most);
                times.extend(open.map(|i| (predict(i), i)));
            }
            times.select_nth_unstable_by(count - 1, order);
            most = times[count - 1].0;
        }
        times.truncate(count);
        times.sort_unstable_by(order);
        Some(times)
    }

    /// Every bound for a request, with its index.
    fn all(&self, asked: &Asked<'_>) -> Vec<(f64, usize)> {
        let mut last: Option<([u32; 3], bool, [u32; 3])> = None;
        let bound = |of: &Bound| {
            let tiles = match last {
                Some((tile, swapped, tiles)) if (tile, swapped) == (of.tile, of.swapped) => tiles,
                _ => asked.tiles(of),
            };
            last = Some((of.tile, of.swapped, tiles));
            asked.least(of, tiles, None)
        };
        self.0.iter().map(bound).zip(0..).collect()
    }
}

/// A request, with what the bounds use of it.
struct Asked<'r> {
    machine: &'r Machine,
    /// As kernels see it that are not swap-AB, and as those that are.
    seen: [Seen; 2],
    /// Number of GEMMs.
    count: u32,
    fused: bool,
    /// Whether C is read, and whether rows of D have an odd number of elements.
    beta: bool,
    odd: bool,
}

impl<'r> Asked<'r> {
    /// `None` for requests without bounds.
    fn new(request: &Request<'_>, machine: &'r Machine) -> Option<Self> {
        let (call, one) = (&request.call, request.call.problem);
        let count = match call.products {
            Products::One => 1,
            Products::Batched { count } => count,
            Products::Ragged { .. }
            | Products::Masked { .. }
            | Products::KGrouped { .. }
            | Products::Grouped { .. } => return None,
        };
        // So few tiles can be counted.
        let elements = u128::from(one.m) * u128::from(one.n) * u128::from(count);
        if elements == 0 || elements >= 1 << 31 {
            return None;
        }
        let fused = request.fusion.is_some();
        Some(Self {
            machine,
            seen: [
                Seen { problem: [one.m, one.n, one.k], matrices: [call.a, call.b] },
                Seen { problem: [one.n, one.m, one.k], matrices: [call.b, call.a] },
            ],
            count,
            fused,
            beta: !fused && call.epilogue.beta != 0.0,
            odd: !call.d.pitch.is_multiple_of(2),
        })
    }

    /// Whether the kernels may split the tiles of the only GEMM, so that their work units can be counted.
    fn divides(&self, of: &Bound) -> bool {
        of.exchange.is_some() && of.parts == 1.0 && self.count == 1
    }

    fn tiles(&self, of: &Bound) -> [u32; 3] {
        let problem = self.seen[usize::from(of.swapped)].problem;
        [0, 1, 2].map(|i| problem[i].div_ceil(of.tile[i]))
    }

    /// The bound. If `divides` gives a kernel that may split the tiles of the only GEMM, its work units are
    /// counted: this takes longer, and the bound is closer.
    fn least(&self, of: &Bound, tiles: [u32; 3], divides: Option<&Subject<'_>>) -> f64 {
        let (machine, seen) = (self.machine, &self.seen[usize::from(of.swapped)]);
        let all = tiles[0] * tiles[1] * self.count;
        let [tiles_m, tiles_n, k_tiles] = tiles.map(f64::from);
        let (every, slots) = (f64::from(all), f64::from(of.slots));
        let whole = f64::from(all.div_ceil(of.slots));
        let units = every * of.parts;
        let at_once = units.min(slots);
        let sharing = (at_once * of.cluster / f64::from(machine.multiprocessors)).ceil().min(of.ctas);
        let [m, n, k] = tiles;
        let divided = divides.map(|subject| subject.busiest_of_one(Tiles { m, n, k }, of.slots));
        let joins = of.may_join && divided.as_ref().is_none_or(|(joins, _)| *joins);
        let crowd = if joins { 0.0 } else { at_once };
        let in_all = match &divided {
            Some((_, busiest)) => busiest.k_tiles,
            None if of.exchange.is_some() => 0.0,
            None => whole * k_tiles,
        };
        let (step, _) = of.fixed.step([m, n], in_all, sharing, crowd);
        let odd = if of.by_threads && self.odd { machine.odd_rows } else { 1.0 };
        let reads = if self.beta && !of.sourced { 2.0 } else { 1.0 };
        let epilogue = machine.fused(of.epilogue / odd * reads, self.fused, of.swapped) / of.parts;
        let mut multiply = whole * k_tiles * step;
        let mut epilogues = if of.turns { epilogue } else { whole * epilogue };
        if let Some((count, fixed)) = &of.slices {
            let [full, sliced] = model::in_slices(every, slots, *count);
            if sliced > 0.0 {
                let (step_of_slice, _) = fixed.step([m, n], in_all, sharing, crowd);
                multiply = full * k_tiles * step + k_tiles * step_of_slice * machine.sliced;
                epilogues = if of.turns { epilogue / count } else { (full + 1.0 / count) * epilogue };
            }
        }
        let mut busy = multiply + whole * machine.tile + epilogues;
        let mut starts = if of.restarts { whole } else { 1.0 };
        if of.parts > 1.0 {
            // Each tile is split.
            starts = (units / slots).ceil();
            let part = (k_tiles / of.parts).ceil() * (1.0 + machine.unaligned) * step;
            busy = starts * (part + epilogue + machine.tile + of.exchange.map_or(0.0, |[one, _]| one));
        } else if let (Some([one, grows]), Some((_, busiest))) = (of.exchange, divided) {
            let finished = match (of.turns, of.separate) {
                (true, _) => 0.0,
                (false, true) => busiest.pieces - busiest.divided * (1.0 - 1.0 / busiest.parts),
                (false, false) => busiest.pieces,
            };
            let exchange = one + grows * ((busiest.parts - 1.0).max(1.0).sqrt() - 1.0);
            busy = (busiest.k_tiles + busiest.unaligned * machine.unaligned) * step
                + busiest.pieces * machine.tile
                + finished * epilogue
                + busiest.divided * exchange;
        } else if let Some([one, grows]) = of.exchange {
            // Either no tile is split, or some are. Then a worker has at least one work unit, which may
            // cover parts of several tiles.
            let shared = every / slots * k_tiles * step + one;
            let divided = shared.max(parted(k_tiles * step, grows) + one - grows);
            let finish = if of.separate { 0.0 } else { epilogue };
            busy = busy.min(divided + finish + machine.tile);
        }
        let work = every * of.cluster * k_tiles * of.fixed.math / f64::from(machine.multiprocessors);
        let busy = busy + machine.power * work.min(busy) + (starts - 1.0) * machine.start;

        let [m, n, k] = seen.problem.map(f64::from);
        let [a_bytes, b_bytes] = of.kept.map(|bits| bits / 8.0);
        let (a, b, times) = (m * k * a_bytes, n * k * b_bytes, f64::from(self.count));
        let cost = |i: usize| machine.line_cost(seen.matrices[i], of.bits[i]);
        let (a_cost, b_cost) = (a * cost(0), b * cost(1));
        let l2 = a_cost * tiles_n + b_cost * tiles_m;
        let l2 = if joins { l2.min(model::SIDES * (a_cost + b_cost)) } else { l2 };
        let l2 = l2 * times / machine.l2;
        let evicted = if of.first[0] { a * (tiles_n - 1.0) } else { 0.0 }
            + if of.first[1] { b * (tiles_m - 1.0) } else { 0.0 };
        let shared = if tiles[1] > 1 { a } else { 0.0 } + if tiles[0] > 1 { b } else { 0.0 };
        let echo = if joins { 0.0 } else { machine.echo };
        let operands = a + b + evicted * machine.refetched + shared * echo;
        let d = m * n * of.output * if self.beta { 2.0 } else { 1.0 };
        let dram = (operands + d) * times / machine.dram;
        (of.launch + model::norm(busy, l2, dram)) * ROUNDED
    }
}

/// Lower bound of the time to multiply a part of a tile and to exchange its partial sums. For `p` parts it is
/// `tile / p + grows * sqrt(p - 1)`, and at least `grows` in addition to the part.
fn parted(tile: f64, grows: f64) -> f64 {
    if grows <= 0.0 {
        return 0.0;
    }
    // For two or more parts, `sqrt(p - 1)` is at least `sqrt(p / 2)`. The sum is smallest where its
    // derivative is zero.
    let least = grows * core::f64::consts::FRAC_1_SQRT_2;
    (0.5 * tile + grows).min(1.5 * least * (2.0 * tile / least).cbrt())
}

impl Bound {
    fn new(i: usize, entry: &Entry, fixed: Fixed, machine: &Machine) -> Self {
        let (plan, facts) = (entry.plan(), entry.subject().facts);
        let ([m, n, k], [across, along]) = (plan.mainloop.tile, plan.mainloop.cluster);
        Self {
            entries: i..i + 1,
            class: entry.class(),
            tile: [m * across, n * along, k],
            swapped: plan.swapped(),
            cluster: plan.cluster_size().into(),
            slots: machine.slots_of(&entry.subject()),
            ctas: machine.ctas(plan).into(),
            exchange: facts.reduction.map(|reduction| {
                // For four other CTAs the square root is twice that for one.
                let [one, four] = [1.0, 4.0].map(|others| machine.exchange(plan, reduction, others));
                [one, four - one]
            }),
            separate: facts.reduction == Some(ReductionKind::Separate),
            restarts: facts.reduction.is_none() && !facts.tiles_on_device && facts.slices == 1,
            turns: plan.turns() > 0,
            fixed,
            slices: match facts.slices {
                1 => None,
                slices => {
                    let slices = f64::from(slices);
                    Some((slices, Fixed::new(machine, plan, f64::from(n) / slices)))
                }
            },
            epilogue: machine.epilogue_of(plan),
            parts: facts.parts.into(),
            by_threads: plan.epilogue.staged_bits == 0 && !plan.swapped(),
            sourced: plan.epilogue.sourced,
            launch: machine.launch_of(&entry.subject()),
            may_join: entry.subject().may_join(),
            bits: plan.mainloop.operands.map(|operand| operand.bits()),
            kept: step::bits_of(plan),
            first: [0, 1].map(|i| plan.mainloop.operands[i].cache == CachePolicy::EvictFirst),
            output: f64::from(plan.epilogue.output.bits() >> plan.epilogue.halvings) / 8.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use collective::{Code, Format, Fusion, WeightsSpec};
    use cute_rs::atom::Major;

    use super::super::{Known, Ranking, Selection};
    use super::*;
    use crate::problem::GemmProblem;
    use crate::types::Types;

    const H200: Machine = Machine::h200();

    /// Requests of many kinds, with pseudo-random extents between 1 and 2^14.
    fn drawn(mut each: impl FnMut(&str, &Request<'_>, usize)) {
        let mut state = 20_260_401_u64;
        let mut draw = move |most: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let size = (state >> 33) as u32 % most;
            let odd = (state >> 20) as u32 % 3;
            // Mostly round numbers, and some others.
            match (1u32 << size, odd) {
                (extent, 0) => extent,
                (extent, 1) => extent + (extent / 2).next_multiple_of(8),
                (extent, _) => extent + (state >> 8) as u32 % extent,
            }
        };
        let e4m3 = Types::of(Format::E4m3);
        let weights = WeightsSpec { group: 128, ..WeightsSpec::of(Code::S4) };
        for round in 0..24 {
            let problem = GemmProblem { m: draw(14), n: draw(14), k: draw(15) };
            let packed = |types: Types, majors| Request::packed(types, majors, problem);
            let bf16 = packed(Types::of(Format::Bf16), [Major::K; 2]);
            let mut read = bf16;
            (read.call.epilogue.beta, read.call.epilogue.c) = (0.5, Some(read.call.d));
            let mut padded = bf16;
            (padded.call.a.pitch, padded.call.b.pitch) =
                (u64::from(problem.k).next_multiple_of(64), u64::from(problem.k).next_multiple_of(8));
            for (why, request) in [
                ("plain", bf16.known(Known::Nothing)),
                ("with records", bf16),
                ("with C", read),
                ("padded", padded),
                ("other directions", packed(Types::of(Format::F16), [Major::Mn, Major::K])),
                ("a batch", bf16.batched(1 + problem.k % 7)),
                ("fused", bf16.fused(Fusion::BiasGelu)),
                ("halves of columns", bf16.fused(Fusion::Swiglu)),
                ("bytes", packed(e4m3, [Major::K; 2])),
                ("scaled", packed(e4m3.scaled([1, 128]), [Major::K; 2])),
                ("integers", packed(Types::of(Format::S8), [Major::K; 2])),
                ("weights", packed(Types::of(Format::Bf16).weights([None, Some(weights)]), [Major::K; 2])),
                ("a sparse A", packed(Types::of(Format::Bf16).sparse([true, false]), [Major::K; 2])),
                ("a sparse B", packed(e4m3.sparse([false, true]), [Major::K; 2])),
                ("a sparse A of tf32", packed(Types::of(Format::Tf32).sparse([true, false]), [Major::K; 2])),
            ] {
                each(why, &request, round);
            }
        }
    }

    #[test]
    fn bounds_are_no_more_than_predictions() {
        let (mut least, mut sum, mut count) = (f64::INFINITY, 0.0, 0.0);
        drawn(|why, request, _| {
            let space = request.space();
            let entries = space.entries();
            let all = Bounds::of(space, &entries, &H200);
            let Some(asked) = Asked::new(request, &H200) else { return };
            let own: Vec<usize> = all.0.iter().flat_map(|bound| bound.entries.clone()).collect();
            assert!(own.into_iter().eq(0..entries.len()), "every entry has a bound");
            for (bound, place) in all.all(&asked) {
                let of = &all.0[place];
                for i in of.entries.clone() {
                    let counted = asked
                        .divides(of)
                        .then(|| asked.least(of, asked.tiles(of), Some(&entries[i].subject())));
                    let time = H200.predict_subject(&entries[i].subject(), request, None).microseconds;
                    let (spec, problem) = (entries[i].spec, request.call.problem);
                    assert!(bound <= time, "{why} {problem:?}: {spec} takes {time}, not {bound} at least");
                    let bound = counted.unwrap_or(bound);
                    assert!(bound <= time, "{why} {problem:?}: {spec} takes {time}, not {bound} with units");
                    least = least.min(bound / time);
                    (sum, count) = (sum + bound / time, count + 1.0);
                }
            }
        });
        println!("{:.3} of the prediction in the mean, {least:.3} at least, of {count}", sum / count);
        assert!(sum / count > 0.7, "bounds that say something");
    }

    /// With bounds and without, the same kernels are chosen in the same order, for the same reasons; with
    /// bounds, few predictions are made.
    #[test]
    fn bounds_change_no_choice() {
        let (mut asked, mut entered, mut few) = (0, 0, [0; 2]);
        drawn(|why, request, round| {
            let (space, groups) = (request.space(), request.counted_groups());
            let entries = space.entries();
            let calls = Cell::new(0_usize);
            let predict = |i: usize| {
                calls.set(calls.get() + 1);
                H200.predict_subject(&entries[i].subject(), request, groups.as_deref())
            };
            for most in if round % 4 == 0 { vec![1, 7, 64] } else { vec![1] } {
                let ranking = Ranking {
                    request,
                    machine: &H200,
                    entries: &entries,
                    closed: &[],
                    predict: &predict,
                    most,
                };
                let said = |selection: Selection| {
                    let ranked = selection.ranked.into_iter();
                    let ranked = ranked.map(|of| (of.gemm.spec(), of.prediction, of.measured, of.reason));
                    let refused = selection.refused.into_iter().map(|of| (of.name, of.error));
                    (ranked.collect::<Vec<_>>(), refused.collect::<Vec<_>>())
                };
                calls.set(0);
                let bounded = ranking.of_few(&Bounds::of(space, &entries, &H200));
                // If tensor copies can access no row, nearly all kernels are refused, and all are predicted.
                let GemmProblem { m, n, k } = request.call.problem;
                if [m, n, k].iter().all(|extent| extent.is_multiple_of(16)) {
                    (asked, entered) = (asked + calls.get(), entered + entries.len());
                    few[usize::from(bounded.is_some())] += 1;
                }
                let Some(bounded) = bounded else { continue };
                assert_eq!(said(bounded), said(ranking.of_all()), "{why} {:?}, {most}", request.call.problem);
            }
        });
        println!("{asked} predictions of {entered}; {few:?} without and with bounds");
        assert!(asked * 2 < entered && few[1] > 8 * few[0], "{asked} of {entered}, {few:?}");
    }
}
