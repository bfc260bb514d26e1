//! An analytic model of a kernel's time, in closed form.
//!
//! The time of the busiest SM follows from its tiles. Each k-tile ([`super::step`]) takes the longest of: its
//! `wgmma`s (an m64nN instruction takes N / 2 cycles), the bytes that these read and copies write in shared
//! memory, the bytes that the SM loads, and the latency of a load divided by the stages in flight. To this, the
//! part of the epilogue that nothing overlaps is added. Separately, L2 and DRAM need their times for the whole GEMM.
//! The slowest of the three decides, with a smooth maximum.
//!
//! Whole spaces of kernels are ranked by the model, so it contains no loop over tiles.

use collective::{CachePolicy, Plan};
use scheduler::ReductionKind;

use super::Machine;
use super::dealing::Dealt;
use super::space::Subject;
use super::step::{Fixed, Step, bits_of};
use super::tiling::{Seen, Tiled};

/// The model's prediction. Times are in microseconds. The times of resources overlap, so they do not add up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Time from one launch to the next in a graph. A [`Selection`](super::Selection) may correct it by
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
    /// Bytes of operands and output between DRAM and L2.
    pub dram_bytes: f64,
    /// What limits a k-tile.
    pub(super) step: Step,
}

/// What the model uses of a kernel, in addition to its tiles, how it deals them, and the time of a k-tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub(super) swapped: bool,
    /// CTAs per cluster, and CTAs that an SM has room for.
    cluster: f64,
    ctas: f64,
    /// Microseconds of a launch before anything is multiplied.
    launch: f64,
    /// Microseconds per tile to find its group among those of an entry of the table.
    walked: f64,
    /// Microseconds of an epilogue that reads no C, with even row lengths of D, and whether it is slower for odd ones.
    epilogue: f64,
    odd: bool,
    /// Whether tensor copies store D, whether they load C, and whether they store parts of sectors.
    staged: bool,
    sourced: bool,
    torn: bool,
    /// Number of consumers that alternate (pingpong), or 0.
    turns: f64,
    /// Which of A and B leave L2 first, and which may.
    first: [bool; 2],
    may_leave: [bool; 2],
    /// Which of them are prefetched before the kernels before have ended.
    ahead: [bool; 2],
    /// Bytes of D per element of the output.
    output: f64,
    /// How partial sums are added up. The time for one other CTA, and the part of it that grows with the square root
    /// of their number.
    reduction: Option<ReductionKind>,
    exchange: [f64; 2],
    /// Microseconds for each of many parts that are added up separately.
    gathering: f64,
    /// CTAs that finish a tile, slices of a tile, and whether workers draw tiles.
    parts: f64,
    pub(super) slices: f64,
    draws: bool,
}

impl Kernel {
    pub(super) fn new(subject: &Subject<'_>, machine: &Machine) -> Self {
        let Subject { plan, traits, .. } = subject;
        let first = plan.mainloop.operands.map(|operand| operand.cache == CachePolicy::EvictFirst);
        let prefetches = subject.roles_wait() && plan.mainloop.weights().is_none();
        let staged = plan.epilogue.staged_bits > 0;
        let stored = plan.staging.columns * plan.epilogue.staged_bits;
        let [m, n, _] = plan.mainloop.tile.map(f64::from);
        let gathers = traits.reduction == Some(ReductionKind::Separate);
        Self {
            swapped: plan.swapped(),
            cluster: plan.cluster_size().into(),
            ctas: machine.ctas(plan).into(),
            launch: machine.launch_of(subject),
            walked: machine.walked * f64::from(plan.table.span - 1) / 2.0,
            epilogue: machine.epilogue_of(plan),
            // Threads that store transposed hold neighbours of a row of D one by one in any case.
            odd: !staged && !plan.swapped(),
            staged,
            sourced: plan.epilogue.sourced,
            torn: staged && !plan.swapped() && !stored.is_multiple_of(256),
            turns: plan.turns().into(),
            first,
            may_leave: first,
            ahead: first.map(|first| first && prefetches),
            output: f64::from(plan.epilogue.output.bits() >> plan.epilogue.halvings) / 8.0,
            reduction: traits.reduction,
            exchange: traits.reduction.map_or([0.0; 2], |kind| machine.exchange(plan, kind, traits.parts)),
            gathering: if gathers { m * n * machine.gathered[1] } else { 0.0 },
            parts: traits.parts.into(),
            slices: traits.slices.into(),
            draws: traits.draws,
        }
    }

    /// A kernel that is nowhere slower than two others of the same tiles, roles and cluster.
    pub(super) fn least(&self, other: &Self) -> Self {
        let exchange = |of: &Self| of.exchange[0] + of.exchange[1];
        Self {
            ctas: 1.0,
            launch: self.launch.min(other.launch),
            walked: self.walked.min(other.walked),
            epilogue: self.epilogue.min(other.epilogue),
            odd: self.odd && other.odd,
            staged: self.staged || self.reduction.is_some() || other.staged || other.reduction.is_some(),
            sourced: self.sourced || other.sourced,
            torn: self.torn && other.torn,
            first: [false; 2],
            may_leave: [0, 1].map(|i| self.may_leave[i] || other.may_leave[i]),
            ahead: [0, 1].map(|i| self.ahead[i] || other.ahead[i]),
            reduction: None,
            exchange: [exchange(self).min(exchange(other)), 0.0],
            gathering: 0.0,
            parts: self.parts.max(other.parts),
            draws: self.draws && other.draws,
            ..*self
        }
    }

    /// Whether two kernels have the same roles and clusters, if they have the same tiles.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.cluster == other.cluster
            && self.turns == other.turns
            && self.slices == other.slices
            && self.is_clustered() == other.is_clustered()
    }

    /// Whether the CTAs of a cluster share each tile's K.
    pub(super) fn is_clustered(&self) -> bool {
        self.parts > 1.0
    }

    /// Whether no tile is split.
    pub(super) fn is_whole(&self) -> bool {
        self.reduction.is_none() && self.slices == 1.0
    }

    /// Microseconds of one CTA's epilogue.
    fn finish(&self, machine: &Machine, seen: &Seen, fitted: f64) -> f64 {
        let mut time = self.epilogue * fitted;
        if self.odd && seen.odd {
            time /= machine.odd_rows;
        }
        // Reading C takes about as long as storing D, unless tensor copies have loaded it before.
        if seen.beta && !self.sourced {
            time *= 2.0;
        }
        if seen.fused {
            time = time * (1.0 + machine.fused[usize::from(self.swapped)]) + machine.reading;
        }
        if self.parts > 1.0 {
            time /= self.parts;
        }
        if self.staged || self.reduction.is_some() { time } else { time + machine.by_threads }
    }

    /// The prediction, in which the microseconds are those of the launch, and the time of the busiest SM. `fixed` is for a
    /// whole tile, and for a slice of one.
    #[inline(always)]
    pub(super) fn parts(
        &self,
        machine: &Machine,
        (seen, tiled, dealt): (&Seen, &Tiled, &Dealt),
        fixed: [&Fixed; 2],
    ) -> (Prediction, f64) {
        let sharing = match self.ctas {
            1.0 => 1.0,
            ctas => (dealt.at_once * self.cluster / f64::from(machine.multiprocessors)).ceil().min(ctas),
        };
        let in_all = dealt.k_tiles + dealt.slices * tiled.k_tiles;
        let step = |fixed: &Fixed, outside: [f64; 2]| {
            fixed.step(dealt.tiles, in_all, sharing, dealt.crowd, seen, outside)
        };
        let (step_of_tile, why) = step(fixed[0], [0.0; 2]);
        let mut multiply = (dealt.k_tiles + dealt.unaligned * machine.unaligned) * step_of_tile;
        if dealt.outside[0] + dealt.outside[1] > 0.0 {
            // One of its tiles is partly outside.
            let of_one = if dealt.divided > 0.0 { dealt.k_tiles / dealt.pieces } else { tiled.k_tiles };
            multiply += of_one.min(dealt.k_tiles) * (step(fixed[0], dealt.outside).0 - step_of_tile);
        }
        let epilogue = self.finish(machine, seen, tiled.fitted);
        let (mut pieces, mut last) = (dealt.pieces, epilogue);
        if dealt.slices > 0.0 {
            // A slice is a tile of fewer columns.
            multiply += dealt.slices * tiled.k_tiles * step(fixed[1], [0.0; 2]).0 * machine.sliced;
            pieces += dealt.slices;
            last /= self.slices;
        }
        let between = machine.tile + self.walked;
        let mut all = pieces * (epilogue + between) - (epilogue - last);
        let mut exchange = 0.0;
        if dealt.divided > 0.0 {
            // Each unit of such a tile finishes a part of it, not all.
            if self.reduction == Some(ReductionKind::Separate) {
                let own = epilogue / dealt.parts + if self.staged { machine.staged } else { 0.0 };
                all -= dealt.divided * (epilogue - own);
            }
            let gathering = self.gathering * (dealt.parts - machine.gathered[0]).max(0.0);
            exchange = dealt.divided * (self.exchange[0] + self.exchange[1] * dealt.others + gathering);
        }
        let mut busy = if self.turns > 0.0 {
            (multiply + pieces * between).max(all / self.turns) + last
        } else {
            multiply + all
        };
        busy += exchange;
        if self.draws {
            busy += pieces * machine.draw;
        }
        // Multiplications of the whole card, as a fraction of the time: power lowers the clock.
        let work = dealt.work * self.cluster * fixed[0].math;
        let slower = 1.0 + machine.power * (work / busy).min(1.0);
        let starts = (dealt.starts - 1.0) * machine.start;

        let (dram, dram_bytes) = self.dram(machine, seen, tiled, dealt);
        let [gained, from] = machine.evicting;
        let lost = if self.first[0] || self.first[1] { gained * (1.0 - dram / from).max(0.0) } else { 0.0 };
        let prediction = Prediction {
            microseconds: self.launch + lost,
            waves: dealt.tiles[0] * dealt.tiles[1] / dealt.slots,
            launch: self.launch + lost + starts,
            multiply: multiply * slower,
            epilogue: (busy - multiply) * slower,
            l2: dealt.l2,
            dram,
            dram_bytes,
            step: why,
        };
        (prediction, busy * slower + starts)
    }

    /// Microseconds of DRAM, and bytes.
    #[inline(always)]
    fn dram(&self, machine: &Machine, seen: &Seen, tiled: &Tiled, dealt: &Dealt) -> (f64, f64) {
        let d = seen.outputs * self.output;
        let c = if seen.beta { d } else { 0.0 };
        let d = d * if self.torn { 1.0 + machine.torn } else { 1.0 };
        let (mut read, mut saved, mut ahead) = (dealt.dram + c, 0.0, 0.0);
        let written = d * (1.0 + machine.written);
        read += dealt.shared * (1.0 - machine.echoed * written / (read + written)).max(0.0);
        for i in 0..2 {
            read += if self.first[i] { tiled.evicted[i] * machine.refetched } else { 0.0 };
            saved += if self.may_leave[i] { tiled.alone[i] * machine.streamed } else { 0.0 };
            ahead += if self.ahead[i] { tiled.alone[i] } else { 0.0 };
        }
        // Two SMs share a way to memory. If only some of these pairs have two CTAs, the others end earlier.
        let (pairs, ctas) = (0.5 * f64::from(machine.multiprocessors), dealt.at_once * self.cluster);
        let rate = match ctas > pairs {
            true => {
                let of_pairs = 0.5 * ctas * machine.paired;
                machine.dram.min(of_pairs).min(machine.merged * 0.5 * (machine.dram + of_pairs))
            }
            false => machine.dram,
        };
        let [part, most] = machine.ahead;
        let ahead = (ahead * part / machine.dram).min(most);
        ((read - saved + written) / rate + machine.ramp - ahead, read + d)
    }
}

impl Machine {
    /// Time of a launch before anything is multiplied.
    fn launch_of(&self, subject: &Subject<'_>) -> f64 {
        let Subject { plan, traits, overlaps, .. } = subject;
        let ([m, n, k], [a, b]) = (plan.mainloop.tile.map(f64::from), bits_of(plan));
        let is = |fact: bool| if fact { 1.0 } else { 0.0 };
        let of_one_tile = !traits.tiles_on_device && traits.reduction.is_none() && traits.slices == 1;
        let divides = traits.reduction.is_some() && traits.parts == 1;
        self.launch
            + is(traits.parts > 1) * self.clustered_launch
            + is(of_one_tile && plan.mainloop.cluster[0] > 1) * self.clustered_tile
            + is(plan.cluster_size() > 1) * self.together
            + if *overlaps { 0.0 } else { self.serial_launch }
            + is(divides) * self.divided_launch
            - is(divides && subject.roles_wait()) * self.awaited
            + if traits.tiles_on_device || divides || traits.slices > 1 {
                self.persistent_launch
            } else {
                0.0
            }
            + (m * a + n * b) * k / 8.0 * self.filling
            - if plan.mainloop.operands.iter().any(|of| of.cache == CachePolicy::EvictFirst) {
                self.evicting[0]
            } else {
                0.0
            }
    }

    /// Time to exchange the partial sums of a split tile with one other CTA, and the part of it that grows with the square
    /// root of the number of other CTAs. In clusters, the time among all of their `parts` CTAs.
    fn exchange(&self, plan: &Plan, reduction: ReductionKind, parts: u32) -> [f64; 2] {
        let [m, n, _] = plan.mainloop.tile.map(f64::from);
        match reduction {
            ReductionKind::Separate => [self.meeting + 2.0 * m * n / self.exchanged, 0.0],
            ReductionKind::Ordered | ReductionKind::Atomic => [self.meeting, m * n / self.exchanged],
            ReductionKind::Clustered => {
                let [meeting, rate, further] = self.near;
                [meeting + m * n / rate + (f64::from(parts) - 2.0).max(0.0) * further, 0.0]
            }
        }
    }

    /// Time of one CTA's epilogue without C, and with even row lengths of D.
    fn epilogue_of(&self, plan: &Plan) -> f64 {
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
#[inline]
pub(super) fn norm(busy: f64, l2: f64, dram: f64) -> f64 {
    let fourth = |time: f64| (time * time) * (time * time);
    (fourth(busy) + fourth(l2) + fourth(dram)).sqrt().sqrt()
}
