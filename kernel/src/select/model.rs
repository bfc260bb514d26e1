//! How long a kernel takes: an analytic model.
//!
//! Each multiprocessor's time follows from the tiles it is dealt: k-tiles times the cycles of their `wgmma`s (an
//! m64nN instruction takes N / 2 cycles), and what of the epilogue nothing overlaps. Beside it stand the times that L2,
//! memory and stores need for the whole product; the slowest of these decides, softly ([`Machine::sharpness`]).

use std::collections::HashSet;

use collective::{MatrixRef, Plan, Producer};
use scheduler::{Tiles, Work};

use super::places::{Place, Places};
use super::{Machine, Request};
use crate::gemm::AnyGemm;
use crate::problem::Call;

/// The model's answer. Times are in microseconds; those of resources overlap, so they do not add up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// From one launch to the next in a stream.
    pub microseconds: f64,
    /// Tiles for each that runs at once: 2.5 are two full waves and a half.
    pub waves: f64,
    /// Launch, and CTAs that begin where others have ended.
    pub launch: f64,
    /// The busiest multiprocessor's multiplications.
    pub multiply: f64,
    /// The busiest multiprocessor's epilogues, as far as nothing overlaps them.
    pub epilogue: f64,
    /// The part of multiplications and epilogues in which a multiprocessor on average has nothing to do.
    pub idle: f64,
    /// L2's time for the operands.
    pub l2: f64,
    /// Memory's time for operands and output.
    pub dram: f64,
    /// The time that stores straight from registers need in L2; zero for other kernels.
    pub stores: f64,
}

/// Waves that are walked; what comes behind is taken to be like them.
const WALKED_WAVES: usize = 48;

/// What one slot does, wave by wave.
struct Slot {
    pieces: Vec<Work<u32>>,
    /// CTAs that begin on it, one after the other.
    starts: usize,
}

impl Machine {
    /// Predicts the time of a kernel for a legal call whose matrices are not in L2.
    pub fn predict(&self, gemm: &AnyGemm, request: &Request<'_>) -> Prediction {
        let plan = &gemm.plan;
        let slots = self.slots(plan);
        let places = Places::new(gemm, request, slots);
        let tiles = places.tiles;
        let call = &request.call.seen_by(plan);
        let beta = request.fusion.is_none() && call.epilogue.beta != 0.0;
        let lanes = walk(gemm, tiles, slots);
        let walked: usize = lanes.iter().map(|lane| lane.pieces.len()).sum();
        let all = f64::from(tiles.m) * f64::from(tiles.n);
        let whole_lanes = lanes.iter().all(|lane| lane.pieces.len() < WALKED_WAVES);
        let scale = if whole_lanes { 1.0 } else { (all / walked.max(1) as f64).max(1.0) };

        let step = self.step(plan, call);
        let draw = if plan.queue.slots > 0 { self.draw } else { 0.0 };
        let epilogue = self.epilogue(plan, call, beta) + draw;
        let exchange = self.exchange(plan);
        let times: Vec<Lane> = lanes
            .iter()
            .map(|slot| Lane::of(plan, slot, tiles, step.seconds, [epilogue, exchange]))
            .collect();
        let most = |part: fn(&Lane) -> f64| times.iter().map(part).fold(0.0, f64::max) * scale;
        let total: f64 = times.iter().map(|lane| lane.multiply + lane.epilogue).sum::<f64>() * scale;
        let busiest = most(|lane| lane.multiply + lane.epilogue);
        let multiply = most(|lane| lane.multiply);
        // What the tensor cores of the whole card do of what they could.
        let lanes_at_once = f64::from(slots);
        let math: f64 =
            times.iter().map(|lane| lane.multiply).sum::<f64>() * scale * step.math / step.seconds;
        let load = if busiest > 0.0 { math / (lanes_at_once * busiest) } else { 0.0 };
        let [m, n, _] = plan.mainloop.tile;
        let power = self.moved * (1.0 / f64::from(m) + 1.0 / f64::from(n));
        let slower = power * load * multiply;

        let starts = most(|lane| lane.starts as f64 - 1.0).max(0.0) * self.start;
        let traffic = traffic(self, plan, &lanes, call, &places);
        let bits = plan.epilogue.output.bits() >> plan.epilogue.halvings;
        let d_bytes = places.outputs * f64::from(bits) / 8.0;
        let c_bytes = if beta { d_bytes } else { 0.0 };
        let l2 = traffic.l2 * scale / self.l2;
        let dram = (traffic.dram * scale + d_bytes + c_bytes) / self.dram;
        let stores =
            if direct(plan) { d_bytes / self.direct_bytes / self.part_of_pairs(plan, call) } else { 0.0 };
        let launch = self.launch
            + if plan.cluster_size() > 1 { self.clustered_launch } else { 0.0 }
            + if gemm.reduction().is_some() { self.divided_launch } else { 0.0 };
        let resources = [busiest + slower + starts, l2 + stores, dram];
        let norm: f64 = resources.iter().map(|time| time.powf(self.sharpness)).sum();
        Prediction {
            microseconds: launch + norm.powf(1.0 / self.sharpness),
            waves: all / f64::from(slots),
            launch: launch + starts,
            multiply: multiply + slower,
            epilogue: busiest - multiply,
            idle: (busiest - total / lanes_at_once).max(0.0),
            l2,
            dram,
            stores,
        }
    }

    /// From one k-tile to the next.
    fn step(&self, plan: &Plan, call: &Call) -> Step {
        let [m, n, k] = plan.mainloop.tile;
        let instructions = f64::from(m / 64) * f64::from(k) / f64::from(plan.mainloop.atom.k());
        // CTAs of one multiprocessor share its tensor cores.
        let math = instructions * f64::from(n) / 2.0 / self.cycles * f64::from(self.ctas(plan));
        let wait = if m > 64 { self.step_shared } else { self.step_alone };
        let clustered = plan.cluster_size() > 1;
        let latency = self.latency * if clustered { 1.0 + self.clustered_latency } else { 1.0 };
        let seconds = (math + wait).max(latency / f64::from(plan.ring.stages));
        let coupled = plan.turns() > 0 && clustered;
        let seconds = if coupled { seconds * self.coupled } else { seconds };
        let seconds = match plan.mainloop.producer {
            Producer::Thread => seconds,
            Producer::Warpgroup => seconds.max(self.copies(plan, call)) + self.step_alone,
        };
        Step { math, seconds }
    }

    /// Microseconds in which threads copy a k-tile.
    fn copies(&self, plan: &Plan, call: &Call) -> f64 {
        let rate = |matrix: MatrixRef, bits: u32| {
            let bytes = u64::from(bits / 8);
            let aligned = |width: u64| (matrix.address | (matrix.pitch * bytes)).is_multiple_of(width);
            let width = [16, 8, 4].into_iter().position(aligned).unwrap_or(3);
            self.copied[width]
        };
        let [a_bits, b_bits] = plan.operand_bits();
        let [a, b] = [0, 1].map(|i| f64::from(plan.ring.tile_bytes(i)));
        a / rate(call.a, a_bits) + b / rate(call.b, b_bits)
    }

    /// One CTA's epilogue.
    fn epilogue(&self, plan: &Plan, call: &Call, beta: bool) -> f64 {
        let [m, n, _] = plan.mainloop.tile;
        let rate = if direct(plan) { self.direct * self.part_of_pairs(plan, call) } else { self.staged };
        let rate = if plan.swapped() { rate * self.transposed } else { rate };
        // Reading C takes about as long as storing D, unless copies have brought it before.
        let reads = beta && !plan.epilogue.sourced;
        f64::from(m * n) / rate * if reads { 2.0 } else { 1.0 }
    }

    /// What the sum of a part of a tile costs beside: it is exchanged with those of the other parts.
    fn exchange(&self, plan: &Plan) -> f64 {
        let [m, n, _] = plan.mainloop.tile;
        f64::from(m * n) / self.exchanged + self.meeting
    }

    /// The part of the speed of direct stores that is left for this D.
    fn part_of_pairs(&self, plan: &Plan, call: &Call) -> f64 {
        // Threads that store transposed hold neighbours of a row of D one by one in any case.
        if call.d.pitch.is_multiple_of(2) || plan.swapped() { 1.0 } else { self.odd_rows }
    }
}

/// Whether D is stored straight from registers.
fn direct(plan: &Plan) -> bool {
    plan.epilogue.staged_bits == 0
}

/// Microseconds of a k-tile: of its multiplications, and in all.
struct Step {
    math: f64,
    seconds: f64,
}

/// A slot's times.
struct Lane {
    multiply: f64,
    epilogue: f64,
    starts: usize,
}

impl Lane {
    fn of(plan: &Plan, slot: &Slot, tiles: Tiles<u32>, step: f64, [epilogue, exchange]: [f64; 2]) -> Self {
        // One tile is multiplied at a time. Warpgroups that take turns store one tile while the next is multiplied.
        let turns = plan.turns().max(1) as usize;
        let mut tensor_cores_free = 0.0_f64;
        let mut free = vec![0.0_f64; turns];
        let mut multiply = 0.0;
        for (i, work) in slot.pieces.iter().enumerate() {
            let k_tiles = f64::from(work.k_end.saturating_sub(work.k_begin));
            let divided = k_tiles < f64::from(tiles.k);
            let turn = i % turns;
            tensor_cores_free = tensor_cores_free.max(free[turn]) + k_tiles * step;
            free[turn] = tensor_cores_free + epilogue + if divided { exchange } else { 0.0 };
            multiply += k_tiles * step;
        }
        let end = free.into_iter().fold(0.0, f64::max);
        Self { multiply, epilogue: end - multiply, starts: slot.starts }
    }
}

/// What each slot computes. A scheduler that launches more workers than slots has them dealt out by the hardware.
fn walk(gemm: &AnyGemm, tiles: Tiles<u32>, slots: u32) -> Vec<Slot> {
    let workers = gemm.workers(tiles, slots);
    (0..workers.min(slots))
        .map(|slot| {
            let mut lane = Slot { pieces: Vec::new(), starts: 0 };
            for worker in (slot..workers).step_by(slots.max(1) as usize) {
                let room = WALKED_WAVES - lane.pieces.len();
                if room == 0 {
                    break;
                }
                lane.pieces.extend(gemm.work(tiles, worker, workers).take(room));
                lane.starts += 1;
            }
            lane
        })
        .collect()
}

/// Bytes of operands: from L2 to the multiprocessors, and from memory to L2.
struct Traffic {
    l2: f64,
    dram: f64,
}

/// Walks the waves: what the tiles of one wave share comes from memory once, and what the wave before has left in L2
/// does not come again.
fn traffic(machine: &Machine, plan: &Plan, lanes: &[Slot], call: &Call, places: &Places) -> Traffic {
    let (spec, tiles) = (&plan.mainloop, places.tiles);
    let [a_bytes, b_bytes] = plan.operand_bits().map(|bits| f64::from(bits) / 8.0);
    let (band_m, band_n) = (spec.tile[0] * spec.cluster[0], spec.tile[1] * spec.cluster[1]);
    // Rows that begin inside a sector or a line make copies fetch more of them than they fill.
    let cost = |matrix: MatrixRef, bytes: f64| {
        let pitch = matrix.pitch as f64 * bytes;
        match (pitch % 128.0 == 0.0, pitch % 32.0 == 0.0) {
            (true, _) => 1.0,
            (false, true) => machine.part_lines,
            (false, false) => machine.part_sectors,
        }
    };
    let (a_cost, b_cost) = (cost(call.a, a_bytes), cost(call.b, b_bytes));
    // Elements of a band that exist; the rest of a tile at the edge is not fetched.
    let inside =
        |band: u32, index: u32, extent: u32| f64::from(band.min(extent.saturating_sub(index * band)));
    let mut traffic = Traffic { l2: 0.0, dram: 0.0 };
    let waves = lanes.iter().map(|lane| lane.pieces.len()).max().unwrap_or(0);
    // Products that share an operand are one where it is concerned.
    let own = |matrix: MatrixRef, group| if matrix.stride == 0 && !places.described { 0 } else { group };
    let mut kept: HashSet<(bool, u32, u32)> = HashSet::new();
    for wave in 0..waves {
        let (mut now, mut again) = (HashSet::<(bool, u32, u32)>::new(), HashSet::new());
        let mut footprint = 0.0;
        for work in lanes.iter().filter_map(|lane| lane.pieces.get(wave)) {
            let part = f64::from(work.k_end - work.k_begin) / f64::from(tiles.k.max(1));
            let Place { group, problem, tile: [m, n] } = places.of([work.m, work.n]);
            let k = f64::from(problem.k) * part;
            let a = inside(band_m, m, problem.m) * (k * a_bytes);
            let b = inside(band_n, n, problem.n) * (k * b_bytes);
            traffic.l2 += a * a_cost + b * b_cost;
            // Rows of groups lie behind each other: a group's are its own.
            let rows = if places.ragged { group } else { own(call.a, group) };
            for (key, size) in [((true, rows, m), a), ((false, own(call.b, group), n), b)] {
                if now.insert(key) {
                    footprint += size;
                    if !kept.contains(&key) {
                        traffic.dram += size;
                    }
                } else if again.insert(key) && !kept.contains(&key) {
                    traffic.dram += machine.echo * size;
                }
            }
        }
        if footprint <= machine.l2_bytes {
            kept = now;
        } else {
            kept.clear();
        }
    }
    traffic
}
