//! The time of a k-tile: the longest of its multiplications, shared memory's bytes, copies, conversions and
//! the latency of a load.

use collective::{Atom, AtomTypes, Code, Plan, Producer, sparse};
use ptx::inst::MmaTypes;

use super::Machine;
use super::tiling::Seen;

/// What can limit the time of a k-tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Multiplications,
    SharedMemory,
    Copies,
    Conversions,
    Latency,
}

/// The part of a k-tile's time that depends only on the kernel and the machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Fixed {
    /// Microseconds in which an SM loads A, and B, if nothing else requests them.
    loads: [f64; 2],
    /// Fraction of it that is no requests, and that the CTA's own requests for A and B take.
    arriving: f64,
    requesting: [f64; 2],
    /// Microseconds of the multiplications, and of shared memory.
    pub(super) math: f64,
    shared: f64,
    /// Microseconds in which threads convert weights to fragments.
    converting: f64,
    /// Latency of a load, divided by the stages in flight, and the number of stages.
    latency: f64,
    stages: f64,
    /// In addition to what limits a k-tile.
    between: f64,
    /// In addition to multiplications and shared memory: what consumers add and read meanwhile. Copies go on.
    adding: f64,
    coupled: f64,
    crowd: f64,
    /// Microseconds for each row of A, and of B, that is outside of the matrix.
    outside: [f64; 2],
    /// If threads copy operands: bytes of a k-tile of A and of B.
    copied: Option<[f64; 2]>,
}

impl Fixed {
    /// For a kernel whose tiles have `n` columns.
    pub(super) fn new(machine: &Machine, plan: &Plan, n: f64) -> Self {
        let [m, _, k] = plan.mainloop.tile.map(f64::from);
        let rounds = k / f64::from(plan.mainloop.atom.k());
        // Wide tiles, and tiles in waves of columns, are multiplied by instructions next to each other.
        let waves = plan.mainloop.waves > 1;
        let beside = if waves || n > 256.0 { f64::from(plan.mainloop.product().across()) } else { 1.0 };
        let width = n / beside;
        let rows = m / 64.0;
        let adding = m * n / 128.0 * adding(machine, plan) / machine.cycles;
        let slower = slower(plan.mainloop.atom) * if n > 256.0 { 1.0 + machine.wide } else { 1.0 };
        let math = rows * beside * width / 2.0 * rounds * slower / (machine.cycles * machine.tensor) + adding;
        // An instruction reads 64 rows of A, and B; copies write both once. Shared memory moves 128 bytes per
        // cycle. A from registers is read once, when threads load it.
        let of_a = if plan.mainloop.weights().is_some() { 0.0 } else { 16.0 };
        // A sparse instruction reads twice the K of B; threads read metadata once.
        let density = f64::from(plan.mainloop.atom.density());
        let read = rows * beside * (of_a + density * width / 4.0);
        let metadata = match plan.mainloop.is_sparse() {
            false => 0.0,
            true => 2.0 * m * f64::from(plan.mainloop.atom.k()) * metadata_bits(plan) / 1024.0,
        };
        let written = (m + density * n) / 4.0;
        // Operands that eight CTAs share arrive while others are read.
        let eight = if plan.cluster_size() == 8 { machine.eight } else { 1.0 };
        let all = (read + written + metadata) * rounds * eight * machine.shared / machine.cycles;
        let shared = match plan.mainloop.is_sparse() {
            false => all,
            true => all.max(read * rounds * machine.sparse / machine.cycles),
        };
        let clustered = plan.cluster_size() > 1;
        let latency = machine.latency * if clustered { 1.0 + machine.clustered_latency } else { 1.0 };
        let (scaled, adds) = (plan.mainloop.is_scaled(), plan.mainloop.atom.promote > 0);
        let sharing = f64::from(plan.mainloop.sharing());
        // Where columns have scales, each accumulator has a scale to multiply first.
        let instructions = if plan.mainloop.operands[1].scaled == 1 { 2.0 } else { 1.0 };
        let alone = machine.alone + machine.added * instructions * m * n / (128.0 * sharing.max(1.0));
        Self {
            loads: [(m, 0), (n, 1)].map(|(rows, i)| {
                rows * k * bits_of(plan)[i] / 8.0 * eight * short_rows(plan)[i] / machine.ingest
            }),
            converting: match conversions(plan) {
                0.0 => 0.0,
                instructions => {
                    let making = rows * rounds * instructions * machine.converted / machine.cycles;
                    making + machine.uncovered * math
                }
            },
            arriving: 1.0 - machine.requesting,
            requesting: [1, 0].map(|i| machine.requesting / f64::from(plan.mainloop.cluster[i])),
            math,
            shared,
            latency: latency / (f64::from(plan.ring.stages) - machine.drained),
            stages: f64::from(plan.ring.stages),
            between: machine.step / f64::from(plan.mainloop.consumers),
            adding: machine.runs * f64::from(plan.mainloop.scaled_runs().saturating_sub(1))
                + match plan.mainloop.sharing() > 1 {
                    false if scaled || adds => alone,
                    // Narrow tiles end before the others' multiplications can cover it.
                    true if scaled => {
                        let others = math * (1.0 - 1.0 / sharing);
                        machine.beside.max(alone - others)
                    }
                    _ => 0.0,
                },
            // Consumers that take turns, or add the products of a whole tile, lose time where CTAs wait for each other.
            // Waves end so often that the others' instructions cover this wait; alone they need more of L2.
            coupled: match plan.mainloop.waves > 1 {
                true if !clustered => machine.coupled,
                false if clustered && (plan.turns() > 0 || scaled) => machine.coupled,
                _ => 1.0,
            },
            // Tiles that many clusters request at once come from few places.
            crowd: machine.crowded / f64::from(plan.cluster_size()).sqrt(),
            outside: bits_of(plan).map(|bits| machine.outside * k * bits / 1024.0),
            copied: match plan.mainloop.producer {
                Producer::Thread => None,
                Producer::Warpgroup => Some([0, 1].map(|i| f64::from(plan.ring.tile_bytes(i)))),
            },
        }
    }

    /// What neither of two kernels goes below. Latencies, which CTAs on one SM share, do not count.
    pub(super) fn least(&self, other: &Self) -> Self {
        let both = |[a, b]: [f64; 2], [c, d]: [f64; 2]| [a.min(c), b.min(d)];
        Self {
            loads: both(self.loads, other.loads),
            math: self.math.min(other.math),
            arriving: self.arriving,
            requesting: both(self.requesting, other.requesting),
            shared: self.shared.min(other.shared),
            converting: self.converting.min(other.converting),
            latency: 0.0,
            stages: 0.0,
            between: self.between.min(other.between),
            adding: self.adding.min(other.adding),
            coupled: self.coupled.min(other.coupled),
            crowd: 0.0,
            outside: [0.0; 2],
            copied: self.copied.zip(other.copied).map(|(a, b)| both(a, b)),
        }
    }

    /// Microseconds from one k-tile to the next, and what limits it. Given are the numbers of tiles along M and N, of
    /// k-tiles that the CTA computes, of CTAs per SM, and of clusters on the card at once; how the operands are seen; and the
    /// rows of A and of B that are requested at once, but are outside.
    #[inline]
    pub(super) fn step(
        &self,
        [tiles_m, tiles_n]: [f64; 2],
        k_tiles: f64,
        sharing: f64,
        at_once: f64,
        seen: &Seen,
        outside: [f64; 2],
    ) -> (f64, Step) {
        let of = |readers: f64| 1.0 + self.crowd * readers.min(at_once);
        let [a, b] = self.loads;
        let [a, b] =
            [(a, 0), (b, 1)].map(|(load, i)| load * (self.arriving + self.requesting[i] * seen.requests[i]));
        let copies =
            a * of(tiles_n) + b * of(tiles_m) + outside[0] * self.outside[0] + outside[1] * self.outside[1];
        let mut longest = (self.math + self.adding, Step::Multiplications);
        let mut or = |time: f64, step: Step| {
            if time > longest.0 {
                longest = (time, step);
            }
        };
        or(self.shared + self.adding, Step::SharedMemory);
        or(copies, Step::Copies);
        or(self.converting, Step::Conversions);
        let mut longest = (longest.0 * sharing, longest.1);
        if self.latency > longest.0 {
            // The loads of the first stages are requested together, when the launch begins.
            let later = self.latency * (1.0 - self.stages / k_tiles.max(1.0)).max(0.0);
            longest = if later > longest.0 { (later, Step::Latency) } else { longest };
        }
        let between = self.between * sharing;
        let (step, why) = ((longest.0 + between) * self.coupled, longest.1);
        match self.copied {
            None => (step, why),
            Some([a, b]) => {
                let copied = (a / seen.copied[0] + b / seen.copied[1]) * sharing;
                if copied > step { (copied + between, Step::Copies) } else { (step + between, why) }
            }
        }
    }
}

/// How many times longer an instruction takes than a `wgmma` with the same number of bytes along K, at its
/// peak rate: `mma.sync` has about five eighths of that rate, and an SM does 128 multiplications of `f32` per
/// cycle. Not measured.
const fn slower(atom: Atom) -> f64 {
    match atom.types {
        AtomTypes::Wgmma(_) => 1.0,
        // As many operations per cycle as for `f32`, with half as many elements of K.
        AtomTypes::MmaSync(MmaTypes::F64) => 8.0,
        AtomTypes::MmaSync(_) => 1.6,
        AtomTypes::Simt => 4.0,
    }
}

/// Cycles by which the additions of a thread's accumulators delay the multiplications, for each accumulator
/// and k-tile. A factor for each row costs nothing more: the other consumer multiplies meanwhile.
fn adding(machine: &Machine, plan: &Plan) -> f64 {
    let spec = &plan.mainloop;
    match (spec.is_scaled(), spec.atom.promote) {
        (true, _) if spec.operands[1].scaled == 1 => machine.columns,
        (true, _) | (false, 0) => 0.0,
        (false, every) => machine.promoted * f64::from(spec.tile[2]) / f64::from(every * spec.atom.k()),
    }
}

/// Instructions per thread to convert codes to one fragment of A, for one multiplying instruction, and the
/// instructions around it. A fragment has four pairs; each is extracted from its word and scaled. Counted in
/// machine code.
fn conversions(plan: &Plan) -> f64 {
    let Some(weights) = plan.mainloop.weights() else { return 0.0 };
    let scaled = if weights.group > 0 { 1.0 } else { 0.0 } + if weights.zeros { 1.0 } else { 0.0 };
    let pair = match weights.code {
        Code::S4 | Code::U4 => 2.75,
        Code::S8 | Code::U8 => 3.75,
        Code::E4m3 | Code::E5m2 => 4.75,
        Code::E2m1 => 3.6,
    };
    // Scales that are powers of two are made from their exponents, for two rows in each group.
    let powers = if weights.powers() && weights.group > 0 { 128.0 / f64::from(weights.group) } else { 0.0 };
    4.0 * (pair + scaled) + powers + 7.0
}

/// Bits in memory of a row of A, and of B, for each of its K. A sparse A has half of its elements, and
/// metadata: one word for each thread and unit of K of a block of rows.
pub(super) fn bits_of(plan: &Plan) -> [f64; 2] {
    let [a, b] = plan.mainloop.operands.map(|operand| f64::from(operand.bits()));
    match plan.mainloop.is_sparse() {
        false => [a, b],
        true => [a / 2.0 + metadata_bits(plan), b],
    }
}

/// How many times longer tensor copies of A and of B take than with rows of 128 bytes. A row of 64 bytes takes as long as one of
/// 128; shorter ones take longer than that, whether they are multicast or not. Measured on an H100 with an N-major B of tiles of 136
/// to 224 columns (docs/evidence/lab-notes.md, "Columns of a direction").
fn short_rows(plan: &Plan) -> [f64; 2] {
    let [m, n, k] = plan.mainloop.tile;
    let [a, b] = plan.mainloop.operands;
    [(a, m), (b, n)].map(|(operand, extent)| {
        let copied = matches!(plan.mainloop.producer, Producer::Thread);
        let dense = operand.staged && operand.weights.is_none() && !operand.sparse;
        match operand.slab_bytes(extent, k) {
            bytes @ 64.. if copied && dense => 128.0 / f64::from(bytes),
            bytes @ 32.. if copied && dense => 2.9 * 128.0 / f64::from(bytes),
            bytes if copied && dense => 2.3 * 128.0 / f64::from(bytes),
            _ => 1.0,
        }
    })
}

/// Bits of metadata of a row of a sparse A for each of its K.
fn metadata_bits(plan: &Plan) -> f64 {
    let unit_k = sparse::unit_k(plan.mainloop.operands[0].format);
    f64::from(sparse::WORDS * u32::BITS) / f64::from(sparse::ROWS * unit_k)
}
