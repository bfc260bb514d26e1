//! One kernel on its problems: what the unbroken program computes, and whether a mutant does the same.

use core::fmt;

use collective::{Form, Format, Plan};
use emulator::{Failure, Fault, Memory, Options, Program, Schedule};
use kernel::{GemmProblem, Launch};
use ptx::inst::{Inst, Operand};
use ptx::{Function, Statement};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use scheduler::{Tiles, Work};

use super::products::{self, Products};
use super::record::Outcome;
use super::subject::Subject;

/// Clusters that run at once: few, so that persistent kernels compute several tiles each.
const SLOTS: u32 = 2;
/// Uses of each stage beyond the arrivals that its barriers count: one arrival too many or too few a use adds up to
/// a whole phase within that many.
const SPARE_USES: u32 = 2;

/// What became of a mutant.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// The verifier refused it.
    Refused,
    /// It trapped, hung or computed something else, under this schedule.
    Killed {
        /// How.
        by: Outcome,
        /// Where it was noticed.
        schedule: (Schedule, u64),
        /// The emulator's whole report, or what differs.
        report: String,
    },
    /// It behaved as its origin on every problem under every schedule.
    Alive,
    /// As [`Verdict::Alive`], and it has to, for the reason of this name.
    Equivalent(&'static str),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("refused by the verifier"),
            Self::Killed { by, schedule: (schedule, seed), report } => {
                write!(f, "{} under {schedule:?} (seed {seed}): {report}", by.name())
            }
            Self::Alive => f.write_str("survived"),
            Self::Equivalent(reason) => write!(f, "equivalent: {reason}"),
        }
    }
}

/// One problem of a kernel.
struct Case {
    launch: Launch,
    /// What A, B, C, D, the workspace, the offsets of groups, the scales of blocks and of groups, and metadata hold before the launch.
    contents: [Vec<u8>; 11],
    /// What D and the workspace hold after the unbroken launch.
    expected: Vec<u8>,
    fuel: u64,
    /// The kernel waits for the grids before it, so that it may begin before they have ended.
    dependent: bool,
    /// It exercises the ring, for which it takes many times the short ones' time.
    long: bool,
}

/// What a case is for.
#[derive(Clone, Copy)]
pub(super) struct Purpose {
    /// Whether C is read.
    pub(super) beta: f32,
    /// Whether nothing lies so that two columns can be moved at once: C's pitch is odd, and N where a kernel stores
    /// such an output.
    pub(super) odd: bool,
    pub(super) size: Size,
    /// Whether D is C.
    pub(super) in_place: bool,
}

/// How many tiles, and how long K is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// Four tiles of a few stages each, or as many for each of the consumers that take turns.
    Small,
    /// The same tiles of no k-tile: nothing is multiplied, and all is stored.
    Empty,
    /// Tiles of one stage each, and so many of them for each CTA that every stage is the first of a tile twice.
    /// Only for kernels that compute more than one tile in a CTA.
    OneStageTiles,
    /// Tiles of one k-tile more than the ring has stages: who goes round too late uses a stage that is not there. Where a
    /// CTA computes more than one tile, each stage is the first of one.
    OneMoreThanStages,
    /// Four tiles, and K is long enough for the ring to go round and round.
    Long,
    /// So many tiles for so many clusters, and a K of which several clusters compute parts of one tile. Only for kernels
    /// that divide tiles.
    Divided {
        /// Tiles.
        tiles: u32,
        /// Clusters.
        slots: u32,
    },
    /// As [`Size::Divided`], a tile of each width. Only for kernels that divide tiles and narrow them.
    DividedWidths,
}

impl Purpose {
    const fn new(beta: f32, odd: bool, size: Size) -> Self {
        Self { beta, odd, size, in_place: false }
    }

    /// Clusters that run at once.
    pub(super) fn slots(self, plan: &Plan) -> u32 {
        match self.size {
            Size::Divided { slots, .. } => slots,
            // As many as the last tiles that are divided.
            Size::DividedWidths => products::widths(plan),
            // One that computes tiles of each width behind each other.
            Size::Small | Size::Empty | Size::OneStageTiles | Size::Long if plan.balanced() && !self.odd => 1,
            Size::Small | Size::Empty | Size::OneStageTiles | Size::OneMoreThanStages | Size::Long => SLOTS,
        }
    }
}

/// The cheap ones first: most mutants die there. The first exercise the
/// epilogue's variants, the divided ones what adds sums up, and the last three the ring.
const PURPOSES: [Purpose; 13] = [
    Purpose::new(1.0, false, Size::Small),
    Purpose::new(0.0, false, Size::Small),
    Purpose::new(1.0, true, Size::Small),
    Purpose::new(0.0, true, Size::Small),
    Purpose { in_place: true, ..Purpose::new(1.0, false, Size::Small) },
    Purpose::new(1.0, false, Size::Empty),
    Purpose::new(1.0, false, Size::Divided { tiles: 1, slots: 2 }),
    Purpose::new(0.0, true, Size::Divided { tiles: 1, slots: 3 }),
    Purpose::new(1.0, false, Size::Divided { tiles: 3, slots: 2 }),
    Purpose::new(1.0, false, Size::DividedWidths),
    Purpose::new(1.0, false, Size::OneStageTiles),
    Purpose::new(1.0, false, Size::OneMoreThanStages),
    Purpose::new(1.0, false, Size::Long),
];

/// A kernel and the problems that its mutants are tried on.
pub(super) struct Specimen {
    function: Function,
    cases: Vec<Case>,
}

impl Specimen {
    /// Builds a kernel and runs it on its problems.
    pub(super) fn new(gemm: &Subject) -> Result<Self, String> {
        let failed = |error: &dyn fmt::Display| format!("{}: {error}", gemm.name());
        let program = gemm.program().map_err(|error| failed(&error))?;
        let lowered = Program::new(program.function());
        let function: Function = (**program.function()).clone();
        let mut cases = Vec::new();
        for purpose in PURPOSES {
            let Some(mut case) = Case::new(gemm, &function, purpose).map_err(|error| failed(&error))? else {
                continue;
            };
            let (outcome, output) = case.run(&lowered, (Schedule::Default, 0));
            case.fuel = outcome.map_err(|failure| failed(&failure))? * 16 + (1 << 16);
            case.expected = output;
            cases.push(case);
        }
        Ok(Self { function, cases })
    }

    /// How many problems it runs on, with the long ones or without them.
    pub(super) fn problems(&self, long: bool) -> usize {
        self.cases.iter().filter(|case| long || !case.long).count()
    }

    /// The unbroken program.
    pub(super) fn function(&self) -> &Function {
        &self.function
    }

    /// Runs a program on every problem under these schedules until it shows that it is not the unbroken one.
    pub(super) fn judge(&self, mutant: Function, schedules: &[(Schedule, u64)]) -> Verdict {
        let Ok(verified) = mutant.verify() else { return Verdict::Refused };
        let program = Program::new(&verified);
        // Most die under the first schedule, whichever problem shows it.
        let runs = schedules.iter().flat_map(|by| self.cases.iter().map(move |case| (case, *by)));
        Self::compare(&program, runs)
    }

    /// As [`judge`](Self::judge) on the short problems alone, the schedules side by side: it is for the few that live on.
    pub(super) fn judge_longer(&self, mutant: Function, schedules: &[(Schedule, u64)]) -> Verdict {
        let Ok(verified) = mutant.verify() else { return Verdict::Refused };
        let program = Program::new(&verified);
        let under = |by: &(Schedule, u64)| {
            Self::compare(&program, self.cases.iter().filter(|case| !case.long).map(|case| (case, *by)))
        };
        let told = |verdict: &Verdict| !matches!(verdict, Verdict::Alive);
        schedules.par_iter().map(under).find_first(told).unwrap_or(Verdict::Alive)
    }

    /// Runs the unbroken program under a schedule: on every problem, or, where `long` is not asked for, on the short ones.
    pub(super) fn repeat(&self, schedule: (Schedule, u64), long: bool) -> Verdict {
        let Ok(verified) = self.function.clone().verify() else { return Verdict::Refused };
        let program = Program::new(&verified);
        let cases = self.cases.iter().filter(|case| long || !case.long);
        Self::compare(&program, cases.map(|case| (case, schedule)))
    }

    fn compare<'c>(program: &Program, runs: impl Iterator<Item = (&'c Case, (Schedule, u64))>) -> Verdict {
        for (case, schedule) in runs {
            let (by, report) = match case.run(program, schedule) {
                (Ok(_), output) if output == case.expected => continue,
                (Ok(_), output) => (Outcome::WrongOutput, difference(&output, &case.expected)),
                (Err(failure), _) => (class(&failure), failure.to_string()),
            };
            return Verdict::Killed { by, schedule, report };
        }
        Verdict::Alive
    }
}

impl Case {
    /// A problem of a few tiles; `None` where the kernel does not take such a problem.
    fn new(gemm: &Subject, function: &Function, purpose: Purpose) -> Result<Option<Self>, String> {
        if purpose.in_place && !gemm.is_linear() {
            return Ok(None);
        }
        let plan = gemm.plan();
        let [tile_m, tile_n, tile_k] = plan.mainloop.tile;
        let [cluster_m, cluster_n] = plan.mainloop.cluster;
        let [cluster_tile_m, cluster_tile_n] = [tile_m * cluster_m, tile_n * cluster_n];
        let slots = purpose.slots(&plan);
        let four = Tiles { m: 2, n: 2, k: 1 };
        let persists = gemm.workers(four, SLOTS) < 4;
        // Where consumers take turns, each has as many tiles as otherwise all.
        let turns = plan.mainloop.consumers / plan.mainloop.sharing();
        // The last row and column of tiles are not whole.
        let (m, n) = match purpose.size {
            _ if plan.balanced() => {
                let rows = products::fitted(&plan, purpose).iter().sum();
                (beside(purpose) * cluster_tile_m - 8, rows)
            }
            Size::OneMoreThanStages if persists => {
                ((plan.ring.stages + 1) * SLOTS * cluster_tile_m - 8, cluster_tile_n - 8)
            }
            // A buffer has whole tiles, two for a CTA, and one that is not.
            Size::Small | Size::Empty | Size::Long if gemm.form() == Form::Masked => {
                (3 * (4 * turns * cluster_tile_m + 8), cluster_tile_n + 8)
            }
            // Either group has a whole tile and one that is not.
            Size::Small | Size::Empty | Size::Long if gemm.form().shares_rows() => {
                (2 * turns * cluster_tile_m + 16, cluster_tile_n + 8)
            }
            Size::Small | Size::Empty | Size::OneMoreThanStages | Size::Long => {
                ((2 * turns - 1) * cluster_tile_m + 8, cluster_tile_n + 8)
            }
            Size::Divided { tiles, .. } => (tiles * cluster_tile_m - 8, cluster_tile_n - 8),
            Size::OneStageTiles => ((2 * plan.ring.stages + 1) * SLOTS * cluster_tile_m - 8, cluster_tile_n),
            Size::DividedWidths => return Ok(None),
        };
        let oriented = |m, n| if plan.swapped() { [n, m] } else { [m, n] };
        let [rows, columns] = oriented(m, n);
        let mut problem =
            GemmProblem { m: rows, n: if purpose.odd { columns - 1 } else { columns }, k: tile_k };
        if Products::new(gemm, problem, purpose).launch(gemm, slots).is_err() {
            problem.n = columns;
        }
        let launch = match Products::new(gemm, problem, purpose).launch(gemm, slots) {
            // A kernel that brings C by tensor copies takes no such pitch.
            Err(_) if purpose.odd => return Ok(None),
            launch => launch.map_err(|error| error.to_string())?,
        };
        let Some(launch) = launch else { return Ok(None) };
        let clusters = launch.grid.ctas.iter().product::<u32>() / (cluster_m * cluster_n);
        let all = m.div_ceil(cluster_tile_m) * n.div_ceil(cluster_tile_n) * products::count(gemm);
        // Of each width, where widths differ.
        let tiles_each = if plan.balanced() { beside(purpose) } else { all / clusters.max(1) };
        let k_tiles = match purpose.size {
            Size::Empty => 0,
            Size::Small => 4u32.div_ceil(tiles_each.max(1)),
            Size::OneStageTiles if tiles_each < 2 => return Ok(None),
            Size::OneStageTiles => 1,
            Size::OneMoreThanStages => plan.ring.stages + 1,
            Size::Divided { .. } | Size::DividedWidths => match least_divided(gemm, problem, slots) {
                Some(k_tiles) => k_tiles,
                None => return Ok(None),
            },
            Size::Long => {
                // What is done behind the last k-tile meets the ring's end too.
                (plan.ring.stages * (most_arrivals(function) + SPARE_USES)).div_ceil(tiles_each.max(1)) + 2
            }
        };
        problem.k = (tile_k * k_tiles).saturating_sub(8);
        let products = Products::new(gemm, problem, purpose);
        let Some(launch) = products.launch(gemm, slots).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let mut random = Random(0x5EED);
        let formats = products::formats(gemm);
        let [a, b, c, mut d] = [0, 1, 2, 3].map(|at| random.matrix(formats[at], products.extents[at]));
        if purpose.in_place {
            d.clone_from(&c);
        } else {
            // What is left of this in D was never computed.
            d.fill(0xA5);
        }
        let offsets = products.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        let [a_scales, b_scales] = products.scales.map(|scales| random.matrix(Format::F32, scales));
        let [scales, zeros] = products.groups.map(|groups| random.matrix(formats[0], groups));
        // Each chunk keeps two of its four elements, or one of two.
        let named: &[u32] = if formats[0].bits() == 32 { &[4, 14] } else { &[4, 8, 9, 12, 13, 14] };
        let mut word = || (0..8).fold(0, |word, _| word << 4 | named[random.next() as usize % named.len()]);
        let metadata = (0..products.metadata).flat_map(|_| word().to_le_bytes()).collect();
        let workspace = vec![0; products.workspace];
        let contents = [a, b, c, d, workspace, offsets, a_scales, b_scales, scales, zeros, metadata];
        Ok(Some(Self {
            launch,
            contents,
            expected: Vec::new(),
            fuel: Options::default().fuel,
            dependent: function.waits_for_grids(),
            long: matches!(
                purpose.size,
                Size::DividedWidths | Size::OneStageTiles | Size::OneMoreThanStages | Size::Long
            ),
        }))
    }

    /// Runs a program: how many instructions it executed, and what D and the workspace hold then. The workspace's flags
    /// are what the next launch begins with.
    fn run(&self, program: &Program, (schedule, seed): (Schedule, u64)) -> (Result<u64, Failure>, Vec<u8>) {
        let mut memory = Memory::new();
        let addresses = self.contents.each_ref().map(|bytes| memory.upload(bytes));
        let options = Options {
            schedule,
            seed,
            fuel: self.fuel,
            threads: 1,
            dependent: self.dependent,
            ..Options::default()
        };
        let outcome = program.launch(self.launch.grid, &self.launch.arguments, &memory, &options);
        let read = |matrix: usize| memory.read(addresses[matrix], self.contents[matrix].len());
        let output = [3, 4].into_iter().flat_map(|matrix| read(matrix).unwrap_or_default()).collect();
        (outcome.map(|report| report.instructions), output)
    }
}

/// Tiles of the same width beside each other, of kernels that narrow them.
fn beside(purpose: Purpose) -> u32 {
    if purpose.odd || matches!(purpose.size, Size::Divided { .. } | Size::DividedWidths) { 1 } else { 2 }
}

/// The fewest k-tiles of which a problem's tiles are divided, if they ever are.
fn least_divided(gemm: &Subject, problem: GemmProblem, slots: u32) -> Option<u32> {
    let [.., tile_k] = gemm.plan().mainloop.tile;
    gemm.reduction()?;
    (2..64).find(|&k_tiles| {
        let mut tiles = gemm.tiles(GemmProblem { k: tile_k * k_tiles, ..problem });
        tiles.m *= products::count(gemm);
        let workers = gemm.workers(tiles, slots);
        // A piece with all of K means nothing by its place.
        let divided = |work: &Work<u32>| work.split.is_some() && (work.k_begin > 0 || work.k_end < k_tiles);
        (0..workers).any(|worker| gemm.work(tiles, worker, workers).any(|work| divided(&work)))
    })
}

/// The most arrivals that a barrier of the program counts.
fn most_arrivals(function: &Function) -> u32 {
    fn search(statements: &[Statement]) -> u32 {
        let most = statements.iter().map(|statement| match statement {
            Statement::Inst { inst: Inst::MbarrierInit { count: Operand::Imm(count), .. }, .. } => {
                u32::try_from(*count).unwrap_or(0)
            }
            Statement::If { then, otherwise, .. } => search(then).max(search(otherwise)),
            Statement::Loop { body, .. } | Statement::Scope { body, .. } => search(body),
            Statement::Inst { .. } | Statement::Break { .. } => 0,
        });
        most.max().unwrap_or(0)
    }
    search(&function.body)
}

/// SplitMix64, by S. Vigna.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Elements between -1 and 1.
    fn matrix(&mut self, format: Format, elements: usize) -> Vec<u8> {
        let size = format.bytes() as usize;
        let mut bytes = Vec::with_capacity(elements * size);
        for _ in 0..elements {
            let value = (self.next() >> 40) as f64 / (1u64 << 23) as f64 - 1.0;
            bytes.extend(&format.encode(value).to_le_bytes()[..size]);
        }
        bytes
    }
}

fn difference(output: &[u8], expected: &[u8]) -> String {
    let wrong = output.iter().zip(expected).filter(|(a, b)| a != b).count();
    format!("{wrong} of {} bytes of D and the workspace differ", expected.len())
}

/// What kind of failure it is.
fn class(failure: &Failure) -> Outcome {
    let Failure::Trap(trap) = failure else { return Outcome::Refused };
    if matches!(trap.fault, Fault::Hang { .. }) {
        Outcome::Hang
    } else if matches!(trap.fault, Fault::Fuel { .. }) {
        Outcome::Livelock
    } else {
        Outcome::Trap
    }
}
