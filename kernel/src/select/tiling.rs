//! How a call's GEMMs are cut into tiles, and the bytes that these read.
//!
//! Hundreds of kernels have the same tiles. What follows from the tiles alone is computed once for all of them.

use collective::{MatrixRef, Plan};
use scheduler::Tiles;

use super::step::bits_of;
use super::{Machine, Request};
use crate::problem::GemmProblem;

/// Which of the caller's operands is a kernel's A, and the bits of both operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct View {
    swapped: bool,
    /// Bits per element.
    bits: [u32; 2],
    /// Bytes in memory for each of K.
    kept: [f64; 2],
}

/// A call as the kernels of a [`View`] see it.
pub(super) struct Seen {
    gemms: Vec<Gemm>,
    /// Whether the GEMMs may have different extents.
    grouped: bool,
    /// Factors by which L2 takes longer for A and for B.
    costs: [f64; 2],
    /// Bytes of A and of B that threads copy per microsecond.
    pub(super) copied: [f64; 2],
    /// Factors by which requests for A and for B take longer.
    pub(super) requests: [f64; 2],
    /// Elements of all outputs, and bytes of all operands.
    pub(super) outputs: f64,
    operands: f64,
    /// Microseconds of L2 if requests are joined before it.
    joined: f64,
    /// Whether the epilogue is fused, whether C is read, and whether rows of D have an odd number of elements.
    pub(super) fused: bool,
    pub(super) beta: bool,
    pub(super) odd: bool,
}

/// GEMMs of equal extents.
struct Gemm {
    problem: GemmProblem,
    times: u32,
    /// Bytes of A and of B.
    bytes: [f64; 2],
    /// Fraction of them that L2 no longer has when they are read again.
    lost: [f64; 2],
}

/// The tiles of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tiling {
    /// Elements of a cluster's tile along M, N and K.
    extents: [u32; 3],
    /// If groups are cut into tiles of nearly equal width: the columns of a whole tile, and the unit of widths.
    fitted: Option<[u32; 2]>,
}

/// The tiles of all GEMMs of a launch together.
pub(super) struct Tiled {
    /// All tiles one below the other, and the most k-tiles.
    all: Tiles<u32>,
    /// If the GEMMs have the same extents: the tiles of one, and the number of GEMMs.
    each: Option<(Tiles<u32>, u32)>,
    /// Mean number of k-tiles per tile.
    pub(super) k_tiles: f64,
    /// Mean number of columns per tile, as a fraction of a whole one's. Tiles of groups may be as narrow as their group.
    pub(super) fitted: f64,
    /// Columns of the narrowest tile, as a fraction of the mean.
    pub(super) narrowest: f64,
    /// Bytes of A that tiles read again if L2 evicts A first, and the same of B.
    pub(super) evicted: [f64; 2],
    /// Bytes of A if only one tile reads each part of it, and the same of B.
    pub(super) alone: [f64; 2],
    /// Rows of A outside of it that a tile requests in the mean, and the same of B.
    pub(super) outside: [f64; 2],
    /// Bytes that several clusters read.
    shared: f64,
    /// Microseconds of L2.
    l2: f64,
    /// The place of the first GEMM's numbers of tiles.
    from: usize,
}

/// Where rows of a matrix begin.
#[derive(Clone, Copy)]
enum Rows {
    Whole,
    WithinLine,
    WithinSector,
}

impl Rows {
    fn of(matrix: MatrixRef, bits: u32) -> Self {
        // Units of weights are whole lines.
        let ld = if bits < 8 { 0 } else { matrix.ld.wrapping_mul((bits / 8).into()) };
        match (ld.is_multiple_of(128), ld.is_multiple_of(32)) {
            (true, _) => Self::Whole,
            (false, true) => Self::WithinLine,
            (false, false) => Self::WithinSector,
        }
    }

    /// Factor by which copies of rows take longer: 1, or one of the others.
    const fn cost(self, [lines, sectors]: [f64; 2]) -> f64 {
        match self {
            Self::Whole => 1.0,
            Self::WithinLine => lines,
            Self::WithinSector => sectors,
        }
    }
}

/// Numbers of tiles along M and N of every GEMM, for each tiling.
pub(super) type Counts = Vec<[f64; 2]>;

/// Number of sides of the card. Each has half of the SMs, and joins their requests for the same line of L2.
const SIDES: f64 = 2.0;

impl View {
    pub(super) fn of(plan: &Plan) -> Self {
        Self {
            swapped: plan.swapped(),
            bits: plan.mainloop.operands.map(|operand| operand.bits()),
            kept: bits_of(plan).map(|bits| bits / 8.0),
        }
    }

    /// `groups` are those of [`Request::counted_groups`].
    pub(super) fn see(
        &self,
        machine: &Machine,
        request: &Request<'_>,
        groups: Option<&[(GemmProblem, u32)]>,
    ) -> Seen {
        let call = &request.call;
        let matrices = if self.swapped { [call.b, call.a] } else { [call.a, call.b] };
        let gemm = |&(problem, times): &(GemmProblem, u32)| {
            let problem = if self.swapped { problem.transposed() } else { problem };
            let [m, n, k] = [problem.m, problem.n, problem.k].map(f64::from);
            let bytes = [m * k * self.kept[0], n * k * self.kept[1]];
            Gemm { problem, times, bytes, lost: bytes.map(|bytes| machine.lost(bytes)) }
        };
        let filled = |(problem, _): &&(GemmProblem, u32)| problem.m > 0 && problem.n > 0;
        let gemms: Vec<Gemm> = match groups {
            Some(groups) => groups.iter().filter(filled).map(gemm).collect(),
            None => vec![gemm(&(call.problem, call.products.count()))],
        };
        let lines = [0, 1].map(|i| Rows::of(matrices[i], self.bits[i]));
        let [a_cost, b_cost] = lines.map(|lines| lines.cost([machine.part_lines, machine.part_sectors]));
        let sum = |of: &dyn Fn(&Gemm) -> f64| gemms.iter().map(|gemm| of(gemm) * f64::from(gemm.times)).sum();
        Seen {
            outputs: sum(&|of| f64::from(of.problem.m) * f64::from(of.problem.n)),
            operands: sum(&|of| of.bytes[0] + of.bytes[1]),
            // Each of the two sides of the card requests a line once, however many of its CTAs ask for it.
            joined: sum(&|of| SIDES * (of.bytes[0] * a_cost + of.bytes[1] * b_cost)) / machine.l2,
            grouped: groups.is_some(),
            costs: [a_cost, b_cost],
            copied: [0, 1].map(|i| machine.copy_rate(matrices[i], self.bits[i])),
            requests: lines.map(|lines| lines.cost(machine.part_requests)),
            fused: request.fusion.is_some(),
            beta: request.fusion.is_none() && call.epilogue.beta != 0.0,
            odd: !call.d.ld.is_multiple_of(2),
            gemms,
        }
    }
}

impl Tiling {
    pub(super) fn of(plan: &Plan) -> Self {
        let ([m, n, k], [across, along]) = (plan.mainloop.tile, plan.mainloop.cluster);
        let fitted = plan.balanced().then_some([n, plan.mainloop.step]);
        Self { extents: [m * across, n * along, k], fitted }
    }

    /// Whether groups decide how wide tiles are.
    pub(super) fn is_fitted(&self) -> bool {
        self.fitted.is_some()
    }

    fn tiles(&self, problem: GemmProblem) -> Tiles<u32> {
        let [m, n, k] = self.extents;
        Tiles { m: problem.m.div_ceil(m), n: problem.n.div_ceil(n), k: problem.k.div_ceil(k) }
    }

    /// Cuts a call into tiles, and adds the numbers of tiles of its GEMMs to `counts`.
    pub(super) fn cut(&self, machine: &Machine, seen: &Seen, counts: &mut Counts) -> Tiled {
        let (from, mut all, mut each) = (counts.len(), Tiles { m: 0_u32, n: 1, k: 1 }, None);
        let (mut k_tiles, mut columns, mut narrowest) = (0.0, 0.0, f64::INFINITY);
        let (mut evicted, mut shared, mut l2) = ([0.0; 2], 0.0, 0.0);
        let (mut alone, mut outside) = ([0.0; 2], [0.0; 2]);
        for &Gemm { problem, times, bytes: [a, b], .. } in &seen.gemms {
            let tiles = self.tiles(problem);
            let (tiles_m, tiles_n) = (f64::from(tiles.m.max(1)), f64::from(tiles.n.max(1)));
            counts.push([tiles_m, tiles_n]);
            let ([a_cost, b_cost], of_all) = (seen.costs, f64::from(times));
            shared += (if tiles.n > 1 { a } else { 0.0 } + if tiles.m > 1 { b } else { 0.0 }) * of_all;
            l2 += (a * tiles_n * a_cost + b * tiles_m * b_cost) * of_all;
            evicted[0] += a * (tiles_n - 1.0) * of_all;
            evicted[1] += b * (tiles_m - 1.0) * of_all;
            alone[0] += if tiles.n > 1 { 0.0 } else { a * of_all };
            alone[1] += if tiles.m > 1 { 0.0 } else { b * of_all };
            // What follows a group of rows is another group.
            if !seen.grouped {
                let [m, n, _] = self.extents.map(f64::from);
                outside[0] += (m * tiles_m - f64::from(problem.m)) * tiles_n * of_all;
                outside[1] += (n * tiles_n - f64::from(problem.n)) * tiles_m * of_all;
            }
            let count = tiles.m.saturating_mul(tiles.n).saturating_mul(times);
            all = Tiles { m: all.m.saturating_add(count), n: 1, k: all.k.max(tiles.k) };
            k_tiles += f64::from(count) * f64::from(tiles.k);
            let width = match self.fitted {
                Some([width, step]) if seen.grouped => {
                    f64::from(problem.n.div_ceil(step)) * f64::from(step)
                        / f64::from(tiles.n)
                        / f64::from(width)
                }
                _ => 1.0,
            };
            columns += f64::from(count) * width;
            narrowest = width.min(narrowest);
            each = (!seen.grouped).then_some((tiles, times));
        }
        let count = f64::from(all.m.max(1));
        let fitted = if columns > 0.0 { columns / count } else { 1.0 };
        let (k_tiles, narrowest, l2) = (k_tiles / count, (narrowest / fitted).min(1.0), l2 / machine.l2);
        let outside = outside.map(|rows| rows / count);
        Tiled { all, each, k_tiles, fitted, narrowest, evicted, alone, outside, shared, l2, from }
    }
}

impl Tiled {
    /// The tiles as a scheduler sees them that reaches the end of M last, or of N.
    pub(super) fn stacked(&self, rows_last: bool) -> Tiles<u32> {
        match self.each {
            Some((tiles, count)) if rows_last => Tiles { m: tiles.m.saturating_mul(count), ..tiles },
            Some((tiles, count)) => Tiles { n: tiles.n.saturating_mul(count), ..tiles },
            None => self.all,
        }
    }

    /// The tiles of one GEMM, if all have the same extents.
    pub(super) fn one(&self) -> Option<Tiles<u32>> {
        self.each.map(|(tiles, _)| tiles)
    }

    /// Microseconds of L2 and bytes from DRAM if nothing is read from there twice, and all requests are joined that may be.
    pub(super) fn least(&self, seen: &Seen, joins: bool) -> [f64; 2] {
        [if joins { self.l2.min(seen.joined) } else { self.l2 }, seen.operands]
    }

    /// Microseconds of L2, bytes from DRAM, and bytes of these that are there twice because several clusters read them at
    /// nearly the same time. Tiles of a band are computed together; `slots` clusters run at once.
    pub(super) fn read(
        &self,
        seen: &Seen,
        counts: &Counts,
        (rows_last, band): (bool, u32),
        slots: u32,
        joins: bool,
    ) -> [f64; 3] {
        let (slots, band) = (f64::from(slots), f64::from(band.max(1)));
        // The operand that crosses the bands is read again for each band, unless L2 still has it.
        let (again, mut crossed) = (usize::from(rows_last), 0.0);
        for (gemm, &[tiles_m, tiles_n]) in seen.gemms.iter().zip(&counts[self.from..]) {
            let (across, along) = if rows_last { (tiles_m, tiles_n) } else { (tiles_n, tiles_m) };
            let bands = ceil(across / band.max(slots.min(tiles_m * tiles_n) / along));
            crossed += gemm.bytes[again] * (bands - 1.0) * gemm.lost[again] * f64::from(gemm.times);
        }
        match joins {
            true => [self.l2.min(seen.joined), seen.operands + crossed, 0.0],
            false => [self.l2, seen.operands + crossed, self.shared],
        }
    }
}

/// The least whole number that is not less. Such numbers are not large; in programs for any x86-64, `f64::ceil` is a call.
pub(super) fn ceil(number: f64) -> f64 {
    let whole = f64::from(number as u32);
    if whole < number { whole + 1.0 } else { whole }
}

impl Machine {
    /// Fraction of `bytes` bytes that L2 no longer has when they are read again.
    fn lost(&self, bytes: f64) -> f64 {
        let ratio = self.l2_bytes / bytes.max(1.0);
        1.0 / (1.0 + ratio * ratio * ratio)
    }

    /// Bytes of a matrix that threads copy per microsecond.
    fn copy_rate(&self, matrix: MatrixRef, bits: u32) -> f64 {
        let bytes = u64::from(bits / 8);
        let aligned = |width: u64| (matrix.address | matrix.ld.wrapping_mul(bytes)).is_multiple_of(width);
        self.copied[[16, 8, 4].into_iter().position(aligned).unwrap_or(3)]
    }
}
