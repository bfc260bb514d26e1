//! An analytic model of a kernel's time, in closed form.
//!
//! The time of the busiest SM follows from its tiles. Each k-tile ([`super::step`]) takes the longest of: its
//! `wgmma`s (an m64nN instruction takes N / 2 cycles), the bytes that these read and copies write in shared
//! memory, the bytes that the SM loads, and the latency of a load divided by the stages in flight. To this, the
//! part of the epilogue that nothing overlaps is added. Separately, L2 and DRAM need their times for the whole GEMM.
//! The slowest of the three decides, with a smooth maximum.
//!
//! Whole spaces of kernels are ranked by the model, so it contains no loop over tiles.

use collective::{CachePolicy, MatrixRef, Plan, Producer};
use scheduler::{Divided, Facts, ReductionKind, Schedule, Tiles};

use super::step::{Fixed, Step, bits_of};
use super::{Machine, Request};
use crate::gemm::AnyGemm;
use crate::problem::{Call, GemmProblem};

/// The model's prediction. Times are in microseconds. The times of resources overlap, so they do not add up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Time from one launch to the next in a stream. A [`Selection`](super::Selection) may correct it by
    /// measurements at similar shapes.
    pub microseconds: f64,
    /// Number of waves: tiles divided by the number of clusters resident at once. 2.5 are two full waves and
    /// a half.
    pub waves: f64,
    /// Time for the launch, for filling the ring, and for CTAs that start after others have ended.
    pub launch: f64,
    /// Time of the busiest SM's k-tiles.
    pub multiply: f64,
    /// Time of the busiest SM's epilogues, as far as nothing overlaps them, and of exchanging partial sums.
    pub epilogue: f64,
    /// Time of L2 for the operands.
    pub l2: f64,
    /// Time of DRAM for operands and output.
    pub dram: f64,
    /// What limits a k-tile.
    pub(super) step: Step,
}

/// What the model uses of a kernel.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) plan: &'a Plan,
    pub(super) facts: &'a Facts,
    pub(super) scheduler: &'a dyn Schedule,
    /// Whether it may begin while the kernel before it still runs.
    pub(super) overlaps: bool,
}

impl<'a> Subject<'a> {
    pub(super) fn of(gemm: &'a AnyGemm) -> Self {
        Self {
            plan: &gemm.plan,
            facts: &gemm.facts,
            scheduler: gemm.scheduler.as_ref(),
            overlaps: gemm.overlaps,
        }
    }

    /// Whether the requests of CTAs for the same part of an operand may be joined before L2. CTAs must be launched in
    /// order, on SMs that are all free, and not multicast to each other.
    pub(super) fn may_join(&self) -> bool {
        !self.overlaps
            && self.plan.cluster_size() == 1
            && self.facts.reduction.is_some()
            && self.facts.parts == 1
    }

    /// Whether they are: CTAs that follow each other read the same K-range of different tiles.
    fn joins(&self, tiles: Tiles<u32>, slots: u32) -> bool {
        self.may_join() && {
            let workers = self.scheduler.workers(tiles, slots);
            let Divided { units, tiles } = self.scheduler.divided(tiles, workers);
            units > 0 && units <= workers && units.is_multiple_of(tiles)
        }
    }

    /// Of one GEMM: whether requests are joined, and the work of the busiest worker.
    pub(super) fn busiest_of_one(&self, tiles: Tiles<u32>, slots: u32) -> (bool, Busiest) {
        let workers = self.scheduler.workers(tiles, slots).max(1);
        let one = [f64::from(tiles.k), 1.0];
        (self.joins(tiles, slots), busiest_of(self, tiles, one, [workers, slots]))
    }

    /// The tiles of a problem as the kernel sees it.
    fn tiles(&self, problem: GemmProblem) -> Tiles<u32> {
        let spec = &self.plan.mainloop;
        let ([m, n, k], [across, along]) = (spec.tile, spec.cluster);
        Tiles {
            m: problem.m.div_ceil(m * across),
            n: problem.n.div_ceil(n * along),
            k: problem.k.div_ceil(k),
        }
    }
}

/// Number of sides of the card. Each has half of the SMs, and joins their requests for the same line of L2.
pub(super) const SIDES: f64 = 2.0;

/// All GEMMs of a launch together.
struct Totals {
    /// Tiles as the scheduler sees them.
    tiles: Tiles<u32>,
    /// Mean number of k-tiles per tile.
    k_tiles: f64,
    /// Mean number of columns per tile. Tiles of groups may be as narrow as their group.
    columns: f64,
    /// Columns of the narrowest tile, as a fraction of the mean.
    narrowest: f64,
    /// Bytes from L2, and bytes from DRAM for the operands.
    l2: f64,
    dram: f64,
    /// Elements of all outputs.
    outputs: f64,
}

/// The work of the busiest worker.
pub(super) struct Busiest {
    pub(super) k_tiles: f64,
    /// K-tiles of these that belong to tiles split at different places along K.
    pub(super) unaligned: f64,
    /// Work units, without slices of tiles.
    pub(super) pieces: f64,
    /// Slices of tiles along N.
    slices: f64,
    /// Work units of these that are parts of tiles along K.
    pub(super) divided: f64,
    /// Parts per split tile.
    pub(super) parts: f64,
    /// Number of CTAs that run one after the other.
    starts: f64,
}

impl Machine {
    /// Predicts the time of a kernel for a legal call whose matrices are not in L2.
    pub fn predict(&self, gemm: &AnyGemm, request: &Request<'_>) -> Prediction {
        self.predict_subject(&Subject::of(gemm), request, request.counted_groups().as_deref())
    }

    pub(super) fn predict_subject(
        &self,
        subject: &Subject<'_>,
        request: &Request<'_>,
        groups: Option<&[(GemmProblem, u32)]>,
    ) -> Prediction {
        let plan = subject.plan;
        let call = request.call.seen_by(plan);
        let slots = self.slots_of(subject);
        let totals = self.totals(subject, &call, groups, slots);
        let fitted = totals.columns / f64::from(plan.mainloop.tile[1]);
        let workers = subject.scheduler.workers(totals.tiles, slots).max(1);
        let busiest = busiest(subject, &totals, workers, slots);
        let cluster = f64::from(plan.cluster_size());
        let beta = request.fusion.is_none() && call.epilogue.beta != 0.0;

        let at_once = f64::from(workers.min(slots)) * cluster;
        let sharing = (at_once / f64::from(self.multiprocessors)).ceil().min(f64::from(self.ctas(plan)));
        // Joined requests do not crowd.
        let crowd = if subject.joins(totals.tiles, slots) { 0.0 } else { f64::from(workers.min(slots)) };
        let k_tiles = busiest.k_tiles + busiest.slices * totals.k_tiles;
        let (step, math, why) = self.step(plan, &call, &totals, [k_tiles, sharing, crowd]);
        let epilogue = self.epilogue(plan, &call, beta) * fitted;
        let epilogue = self.fused(epilogue, request.fusion.is_some(), plan.swapped());
        let epilogue = epilogue / f64::from(subject.facts.parts);
        let staged = plan.epilogue.staged_bits > 0;
        let epilogue =
            if staged || subject.facts.reduction.is_some() { epilogue } else { epilogue + self.by_threads };
        let multiply = (busiest.k_tiles + busiest.unaligned * self.unaligned) * step;
        // A slice is a tile of fewer columns.
        let slices = f64::from(subject.facts.slices);
        let multiply = if busiest.slices > 0.0 {
            let sliced = Totals { columns: totals.columns / slices, ..totals };
            let (step, ..) = self.step(plan, &call, &sliced, [k_tiles, sharing, crowd]);
            multiply + busiest.slices * totals.k_tiles * step * self.sliced
        } else {
            multiply
        };
        // Each unit of such a tile finishes a part of it, not all.
        let spared = match subject.facts.reduction {
            Some(ReductionKind::Separate) => {
                let own = epilogue / busiest.parts + if staged { self.staged } else { 0.0 };
                busiest.divided * (epilogue - own)
            }
            _ => 0.0,
        };
        let pieces = busiest.pieces + busiest.slices;
        let last = if busiest.slices > 0.0 { epilogue / slices } else { epilogue };
        let all = pieces * (epilogue + self.tile) - (epilogue - last) - spared;
        let turns = f64::from(plan.turns());
        let busy = if turns > 0.0 {
            (multiply + pieces * self.tile).max(all / turns) + last
        } else {
            multiply + all
        };
        let exchange = subject
            .facts
            .reduction
            .map_or(0.0, |reduction| self.exchange(plan, reduction, busiest.parts - 1.0));
        let draws = if subject.facts.draws { pieces * self.draw } else { 0.0 };
        let busy = busy + busiest.divided * exchange + draws;
        // Multiplications of the whole card, as a fraction of the time: power lowers the clock.
        let tiles = f64::from(totals.tiles.m) * f64::from(totals.tiles.n);
        let load =
            (tiles * cluster * totals.k_tiles * math / f64::from(self.multiprocessors) / busy).min(1.0);
        let slower = 1.0 + self.power * load;
        let starts = (busiest.starts - 1.0) * self.start;

        let bits = f64::from(plan.epilogue.output.bits() >> plan.epilogue.halvings);
        let d_bytes = totals.outputs * bits / 8.0;
        let c_bytes = if beta { d_bytes } else { 0.0 };
        let rows = plan.staging.columns * plan.epilogue.staged_bits;
        let torn = !plan.swapped() && staged && !rows.is_multiple_of(256);
        let d_bytes = d_bytes * if torn { 1.0 + self.torn } else { 1.0 };
        let (l2, dram) = (totals.l2 / self.l2, (totals.dram + d_bytes + c_bytes) / self.dram);
        let launch = self.launch_of(subject);
        Prediction {
            microseconds: launch + norm(busy * slower + starts, l2, dram),
            waves: tiles / f64::from(slots),
            launch: launch + starts,
            multiply: multiply * slower,
            epilogue: busy * slower - multiply * slower,
            l2,
            dram,
            step: why,
        }
    }

    /// Sums up the GEMMs of a launch.
    fn totals(
        &self,
        subject: &Subject<'_>,
        call: &Call,
        groups: Option<&[(GemmProblem, u32)]>,
        slots: u32,
    ) -> Totals {
        let swapped = subject.plan.swapped();
        let Some(groups) = groups else {
            let tiles = subject.tiles(call.problem);
            let count = call.products.count();
            let (l2, dram) = self.traffic(subject, call, call.problem, tiles, slots);
            let all = match subject.facts.rows_last {
                true => Tiles { m: tiles.m.saturating_mul(count), ..tiles },
                false => Tiles { n: tiles.n.saturating_mul(count), ..tiles },
            };
            let times = f64::from(count);
            let outputs = f64::from(call.problem.m) * f64::from(call.problem.n) * times;
            return Totals {
                tiles: all,
                k_tiles: f64::from(tiles.k),
                columns: f64::from(subject.plan.mainloop.tile[1]),
                narrowest: 1.0,
                l2: l2 * times,
                dram: dram * times,
                outputs,
            };
        };
        let mut totals = Totals {
            tiles: Tiles { m: 0, n: 1, k: 1 },
            k_tiles: 0.0,
            columns: 0.0,
            narrowest: f64::INFINITY,
            l2: 0.0,
            dram: 0.0,
            outputs: 0.0,
        };
        let width = subject.plan.mainloop.tile[1];
        // Groups are cut into tiles of nearly equal width.
        let step = if subject.plan.balanced() { subject.plan.mainloop.step } else { 0 };
        for &(group, times) in groups {
            let problem = if swapped { group.transposed() } else { group };
            let tiles = subject.tiles(problem);
            let count = tiles.m.saturating_mul(tiles.n).saturating_mul(times);
            if count == 0 {
                continue;
            }
            let times = f64::from(times);
            let (l2, dram) = self.traffic(subject, call, problem, tiles, slots);
            totals.tiles.m = totals.tiles.m.saturating_add(count);
            totals.tiles.k = totals.tiles.k.max(tiles.k);
            totals.k_tiles += f64::from(count) * f64::from(tiles.k);
            let columns = match step {
                0 => f64::from(width),
                step => f64::from(problem.n.next_multiple_of(step)) / f64::from(tiles.n),
            };
            totals.columns += f64::from(count) * columns;
            totals.narrowest = totals.narrowest.min(columns);
            totals.l2 += l2 * times;
            totals.dram += dram * times;
            totals.outputs += f64::from(problem.m) * f64::from(problem.n) * times;
        }
        let count = f64::from(totals.tiles.m.max(1));
        totals.k_tiles /= count;
        totals.columns = if totals.columns > 0.0 { totals.columns / count } else { f64::from(width) };
        totals.narrowest = (totals.narrowest / totals.columns).min(1.0);
        totals
    }

    /// Bytes of a GEMM's operands: from L2 to the SMs, and from DRAM to L2.
    fn traffic(
        &self,
        subject: &Subject<'_>,
        call: &Call,
        problem: GemmProblem,
        tiles: Tiles<u32>,
        slots: u32,
    ) -> (f64, f64) {
        let plan = subject.plan;
        let bits = plan.mainloop.operands.map(|operand| operand.bits());
        let [a_bytes, b_bytes] = bits_of(plan).map(|bits| bits / 8.0);
        let [m, n, k] = [problem.m, problem.n, problem.k].map(f64::from);
        let [tiles_m, tiles_n] = [tiles.m, tiles.n].map(|tiles| f64::from(tiles.max(1)));
        let cost = |matrix: MatrixRef, bits: u32| self.line_cost(matrix, bits);
        let [a_bits, b_bits] = bits;
        let (a, b) = (m * k * a_bytes, n * k * b_bytes);
        let l2 = a * tiles_n * cost(call.a, a_bits) + b * tiles_m * cost(call.b, b_bits);
        // Tiles of a band are computed together. The operand that crosses the bands is read again for each
        // band, unless L2 still has it.
        let at_once = f64::from(slots).min(tiles_m * tiles_n);
        let band = f64::from(subject.facts.band.max(1));
        let (bands, again) = if subject.facts.rows_last {
            ((tiles_m / band.max(at_once / tiles_n)).ceil(), b)
        } else {
            ((tiles_n / band.max(at_once / tiles_m)).ceil(), a)
        };
        let lost = self.lost(again);
        let first = |i: usize| plan.mainloop.operands[i].cache == CachePolicy::EvictFirst;
        let evicted = if first(0) { a * (tiles_n - 1.0) } else { 0.0 }
            + if first(1) { b * (tiles_m - 1.0) } else { 0.0 };
        let crossed = again * (bands - 1.0).max(0.0) * lost;
        // If several clusters read an operand at nearly the same time, a fraction of it is read from DRAM a
        // second time.
        let shared = if tiles.n > 1 { a } else { 0.0 } + if tiles.m > 1 { b } else { 0.0 };
        // Each of the two sides of the card requests a line once, however many of its CTAs ask for it.
        let joins = subject.joins(tiles, slots);
        let (echo, l2) = if joins {
            (0.0, l2.min(SIDES * (a * cost(call.a, a_bits) + b * cost(call.b, b_bits))))
        } else {
            (self.echo, l2)
        };
        let dram = a + b + crossed + evicted * self.refetched + shared * echo;
        (l2, dram)
    }

    /// Fraction of `bytes` bytes that L2 no longer has when they are read again.
    fn lost(&self, bytes: f64) -> f64 {
        let ratio = self.l2_bytes / bytes.max(1.0);
        1.0 / (1.0 + ratio * ratio * ratio)
    }

    /// Microseconds from one k-tile to the next, microseconds of its multiplications, and what limits it.
    fn step(
        &self,
        plan: &Plan,
        call: &Call,
        totals: &Totals,
        [k_tiles, sharing, at_once]: [f64; 3],
    ) -> (f64, f64, Step) {
        let fixed = Fixed::new(self, plan, totals.columns);
        let (step, why) = fixed.step([totals.tiles.m, totals.tiles.n], k_tiles, sharing, at_once);
        match plan.mainloop.producer {
            Producer::Thread => (step, fixed.math, why),
            Producer::Warpgroup => {
                let copied = self.copies(plan, call) * sharing;
                let between = fixed.between * sharing + fixed.alone;
                if copied > step {
                    (copied + between, fixed.math, Step::Copies)
                } else {
                    (step + between, fixed.math, why)
                }
            }
        }
    }

    /// Factor by which copies fetch more than they need of a matrix, because its rows may begin inside a
    /// sector or a line.
    pub(super) fn line_cost(&self, matrix: MatrixRef, bits: u32) -> f64 {
        // Units of weights are whole lines.
        let pitch = if bits < 8 { 0 } else { matrix.pitch.wrapping_mul((bits / 8).into()) };
        match (pitch.is_multiple_of(128), pitch.is_multiple_of(32)) {
            (true, _) => 1.0,
            (false, true) => self.part_lines,
            (false, false) => self.part_sectors,
        }
    }

    /// Number of a kernel's workers that run at once.
    pub(super) fn slots_of(&self, subject: &Subject<'_>) -> u32 {
        let parts = subject.facts.parts;
        self.at_once(subject.plan.cluster_size() * parts, subject.plan) * parts
    }

    /// Whether a kernel that may slice tiles slices none here. It then does as one with `Persistent`.
    pub(super) fn slices_nothing(&self, subject: &Subject<'_>, request: &Request<'_>) -> bool {
        let slices = subject.facts.slices;
        slices > 1 && {
            let call = request.call.seen_by(subject.plan);
            let Tiles { m, n, .. } = subject.tiles(call.problem);
            let all = f64::from(m) * f64::from(n) * f64::from(call.products.count());
            let [_, sliced] = in_slices(all, self.slots_of(subject).into(), slices.into());
            sliced == 0.0
        }
    }

    /// Time of a launch before anything is multiplied.
    pub(super) fn launch_of(&self, Subject { plan, facts, overlaps, .. }: &Subject<'_>) -> f64 {
        let ([m, n, k], [a, b]) = (plan.mainloop.tile.map(f64::from), bits_of(plan));
        let clustered = if plan.cluster_size() * facts.parts > 1 { 1.0 } else { 0.0 };
        let divides = facts.reduction.is_some() && facts.parts == 1;
        self.launch
            + clustered * self.clustered_launch
            + if *overlaps { 0.0 } else { self.serial_launch }
            + if divides { self.divided_launch } else { 0.0 }
            + if facts.tiles_on_device || divides || facts.slices > 1 { self.persistent_launch } else { 0.0 }
            + (m * a + n * b) * k / 8.0 * self.filling
            - if plan.mainloop.operands.iter().any(|of| of.cache == CachePolicy::EvictFirst) {
                self.evicting
            } else {
                0.0
            }
    }

    /// Microseconds in which threads copy a k-tile.
    fn copies(&self, plan: &Plan, call: &Call) -> f64 {
        let rate = |matrix: MatrixRef, bits: u32| {
            let bytes = u64::from(bits / 8);
            let aligned =
                |width: u64| (matrix.address | matrix.pitch.wrapping_mul(bytes)).is_multiple_of(width);
            let width = [16, 8, 4].into_iter().position(aligned).unwrap_or(3);
            self.copied[width]
        };
        let [a_bits, b_bits] = plan.mainloop.operands.map(|operand| operand.bits());
        let [a, b] = [0, 1].map(|i| f64::from(plan.ring.tile_bytes(i)));
        a / rate(call.a, a_bits) + b / rate(call.b, b_bits)
    }

    /// Time to exchange the partial sums of a split tile with `others` other CTAs.
    pub(super) fn exchange(&self, plan: &Plan, reduction: ReductionKind, others: f64) -> f64 {
        let [m, n, _] = plan.mainloop.tile.map(f64::from);
        match reduction {
            ReductionKind::Separate => self.meeting + 2.0 * m * n / self.exchanged,
            ReductionKind::Ordered | ReductionKind::Atomic => {
                self.meeting + m * n / self.exchanged * others.max(1.0).sqrt()
            }
            ReductionKind::Clustered => {
                let [meeting, rate, further] = self.near;
                meeting + m * n / rate + (others - 1.0).max(0.0) * further
            }
        }
    }

    /// Time of one CTA's epilogue.
    fn epilogue(&self, plan: &Plan, call: &Call, beta: bool) -> f64 {
        // Threads that store transposed hold neighbours of a row of D one by one in any case.
        let direct = plan.epilogue.staged_bits == 0;
        let odd = direct && !plan.swapped() && !call.d.pitch.is_multiple_of(2);
        // Reading C takes about as long as storing D, unless tensor copies have loaded it before.
        let reads = if beta && !plan.epilogue.sourced { 2.0 } else { 1.0 };
        self.epilogue_of(plan) / if odd { self.odd_rows } else { 1.0 } * reads
    }

    /// Time of a fused epilogue, from the time of the same epilogue without fusion.
    pub(super) fn fused(&self, epilogue: f64, fused: bool, swapped: bool) -> f64 {
        if fused { epilogue * (1.0 + self.fused[usize::from(swapped)]) + self.reading } else { epilogue }
    }

    /// The same without C, and with even row lengths of D.
    pub(super) fn epilogue_of(&self, plan: &Plan) -> f64 {
        let [m, n, _] = plan.mainloop.tile.map(f64::from);
        let swapped = plan.swapped();
        let rate = self.stored * if swapped { self.transposed } else { 1.0 };
        let row = if swapped { m } else { n };
        let narrow = 1.0 + self.narrow * (64.0 / row - 1.0).max(0.0);
        // Tensor copies store parts of some columns.
        let slabs = match plan.epilogue.staged_bits {
            0 => 1.0,
            bits => {
                let part = plan.staging.columns * bits / 8;
                let more = (128.0 / f64::from(part) - 1.0).max(0.0);
                1.0 + self.slabs * more * more
            }
        };
        m * n / rate * narrow * slabs
    }
}

/// The time of three resources that overlap: a smooth maximum.
pub(super) fn norm(busy: f64, l2: f64, dram: f64) -> f64 {
    let fourth = |time: f64| (time * time) * (time * time);
    (fourth(busy) + fourth(l2) + fourth(dram)).sqrt().sqrt()
}

/// Whole tiles, and slices of tiles, of the busiest of `lanes` workers if the last wave is sliced where each
/// worker gets at most one slice.
pub(super) fn in_slices(all: f64, lanes: f64, slices: f64) -> [f64; 2] {
    let waves = (all / lanes).floor();
    let rest = all - waves * lanes;
    if rest * slices > lanes { [waves + 1.0, 0.0] } else { [waves, if rest > 0.0 { 1.0 } else { 0.0 }] }
}

/// The work of the worker that ends last.
fn busiest(subject: &Subject<'_>, totals: &Totals, workers: u32, slots: u32) -> Busiest {
    busiest_of(subject, totals.tiles, [totals.k_tiles, totals.narrowest], [workers, slots])
}

/// As [`busiest`], with the mean number of k-tiles per tile and the narrowest tile.
fn busiest_of(
    subject: &Subject<'_>,
    tiles: Tiles<u32>,
    [k_tiles, narrowest]: [f64; 2],
    [workers, slots]: [u32; 2],
) -> Busiest {
    let Tiles { m, n, k } = tiles;
    let all = f64::from(m) * f64::from(n);
    let Divided { units, tiles: divided } = subject.scheduler.divided(tiles, workers);
    let lanes = f64::from(workers.min(slots));
    let dealt = (all - f64::from(divided)).max(0.0) / lanes;
    let [dealt, slices] = match subject.facts.slices {
        1 => [dealt, 0.0],
        slices => in_slices(all, lanes, slices.into()),
    };
    // The narrowest tiles come last, and fill the last wave.
    let whole = dealt + (dealt.ceil() - dealt) * narrowest;
    let starts = (f64::from(workers) / f64::from(slots)).ceil();
    let (units, divided) = (f64::from(units), f64::from(divided));
    if divided == 0.0 || units == 0.0 {
        return Busiest {
            k_tiles: whole * k_tiles,
            pieces: whole,
            slices,
            divided: 0.0,
            parts: 1.0,
            starts,
            unaligned: 0.0,
        };
    }
    let own = (units / lanes).ceil();
    let length = (divided * f64::from(k) / units).ceil();
    let even = (units / divided).fract() == 0.0 && subject.facts.parts == 1;
    Busiest {
        unaligned: if even { 0.0 } else { own * length },
        k_tiles: whole * k_tiles + own * length,
        pieces: whole + own,
        slices,
        divided: own,
        parts: units / divided,
        starts,
    }
}
