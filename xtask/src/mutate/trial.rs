//! Runs one kernel on its test problems, and checks whether a mutant behaves as the unbroken program.

use core::fmt;

use collective::{Form, Plan};
use emulator::{Failure, Fault, Options, Program, Schedule};
use falchion::verify::family::{Checks, Relaunched};
use kernel::operands::{Contents, Fill};
use kernel::{Filled, GemmProblem};
use ptx::inst::{Inst, Operand};
use ptx::{Function, Statement};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use scheduler::{Tiles, Work};

use super::products::{self, Products};
use super::record::Outcome;
use super::subject::{Gemm, Subject};

/// The number of resident clusters: few, so that persistent kernels compute several tiles per cluster.
const RESIDENT: u32 = 2;
/// The number of uses of each stage in addition to the arrivals that its barrier counts. One arrival too many
/// or too few per use then adds up to a whole phase.
const SPARE_USES: u32 = 2;

/// The result of a mutant.
#[derive(Clone, Debug)]
pub(super) enum Verdict {
    /// The verifier refused it.
    Refused,
    /// It trapped, hung or had a different output.
    Killed {
        /// The kind of failure.
        by: Outcome,
        /// The schedule under which it failed, and the seed.
        schedule: (Schedule, u64),
        /// The emulator's whole report, or what differs.
        report: String,
    },
    /// It behaved as the unbroken program on all problems under all schedules.
    Alive,
    /// As [`Verdict::Alive`], for the reason with this name.
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
pub(super) struct Case {
    pub(super) checks: Checks<Relaunched>,
    /// Whether the case exercises the ring. It then takes many times as long as a short case.
    pub(super) long: bool,
}

/// A case, and what the unbroken program does with it.
struct Known {
    case: Case,
    /// What the unbroken launches write.
    expected: Vec<u8>,
    /// Instructions after which a mutant counts as endless.
    fuel: u64,
}

/// The purpose of a case.
#[derive(Clone, Copy)]
pub(super) struct Purpose {
    /// The factor of C. C is not read if it is 0.
    pub(super) beta: f64,
    /// Whether two columns can never be moved at once: C's leading dimension is odd, and so is N if the
    /// kernel can store such an output.
    pub(super) odd: bool,
    pub(super) size: Size,
    /// Whether C and D are the same matrix.
    pub(super) in_place: bool,
}

/// The number of tiles, and the length of K.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Size {
    /// Four tiles of a few stages each; for pingpong kernels that many per consumer.
    Small,
    /// Tiles without k-tiles: nothing is multiplied, and everything is stored. Where tiles are drawn, there
    /// are enough of them that the queue of their numbers wraps twice.
    Empty,
    /// Tiles of one stage each, enough per CTA that each stage is the first stage of a tile twice. Only for
    /// kernels that compute more than one tile per CTA.
    OneStageTiles,
    /// Tiles of one k-tile more than the ring has stages: a role that wraps too late uses a stage that does
    /// not exist. If a CTA computes more than one tile, each stage is the first stage of a tile.
    OneMoreThanStages,
    /// Tiles of as many k-tiles as the ring has stages: nothing of the next round comes before the last stage is given back. Only for
    /// clusters that compute one tile.
    AsManyAsStages,
    /// Four tiles with a K so long that the ring wraps many times.
    Long,
    /// A number of tiles for a number of clusters, with the smallest K for which tiles are split. Only for
    /// kernels that split tiles.
    Divided {
        /// The number of tiles.
        tiles: u32,
        /// The number of resident clusters.
        resident: u32,
    },
    /// As [`Size::Divided`], with six tiles for eleven clusters. One of them computes the first part of a tile, and
    /// then the last part of the tile before. That part has so few k-tiles that one consumer can compute it while
    /// another one still stores its sums of the first part.
    DividedShort,
    /// As [`Size::Divided`], with one tile of each width. Only for kernels that split and narrow tiles.
    DividedWidths,
    /// A number of tiles for a number of clusters, so that some clusters compute a slice alone, or a whole tile
    /// and no slice. Only for kernels that slice tiles.
    Sliced {
        /// The number of tiles.
        tiles: u32,
        /// The number of resident clusters.
        resident: u32,
    },
    /// As [`Size::Small`], with tiles that have the columns of one slice. They run the code of slices, and
    /// other tiles follow them. Only for kernels that slice tiles.
    Narrow,
    /// As [`Size::OneMoreThanStages`], with the tiles of [`Size::Narrow`].
    NarrowOneMoreThanStages,
}

impl Purpose {
    const fn new(beta: f64, odd: bool, size: Size) -> Self {
        Self { beta, odd, size, in_place: false }
    }

    /// The number of resident clusters.
    pub(super) fn resident_clusters(self, plan: &Plan) -> u32 {
        match self.size {
            Size::Divided { resident, .. } | Size::Sliced { resident, .. } => resident,
            Size::DividedShort => 11,
            // One per tile, so that all tiles are split.
            Size::DividedWidths => products::widths(plan),
            // One cluster, which computes tiles of each width one after the other.
            Size::Small | Size::Empty | Size::OneStageTiles | Size::Long if plan.balanced() && !self.odd => 1,
            Size::Small
            | Size::Empty
            | Size::OneStageTiles
            | Size::OneMoreThanStages
            | Size::AsManyAsStages
            | Size::Long
            | Size::Narrow
            | Size::NarrowOneMoreThanStages => RESIDENT,
        }
    }
}

/// The cheap cases come first: most mutants are killed there. The first cases exercise the variants of the
/// epilogue, the divided ones the reduction of partial sums, the sliced and narrow ones the code of slices, and
/// the last five the ring.
const PURPOSES: [Purpose; 21] = [
    Purpose::new(1.0, false, Size::Small),
    Purpose::new(0.0, false, Size::Small),
    Purpose::new(1.0, true, Size::Small),
    Purpose::new(0.0, true, Size::Small),
    Purpose { in_place: true, ..Purpose::new(1.0, false, Size::Small) },
    Purpose::new(1.0, false, Size::Empty),
    Purpose::new(1.0, false, Size::Divided { tiles: 1, resident: 2 }),
    Purpose::new(0.0, true, Size::Divided { tiles: 1, resident: 3 }),
    Purpose::new(1.0, false, Size::Divided { tiles: 3, resident: 2 }),
    Purpose::new(1.0, false, Size::DividedShort),
    Purpose::new(1.0, false, Size::DividedWidths),
    Purpose::new(1.0, false, Size::Sliced { tiles: 1, resident: 2 }),
    Purpose::new(0.0, true, Size::Sliced { tiles: 4, resident: 3 }),
    Purpose::new(1.0, false, Size::Narrow),
    Purpose::new(1.0, true, Size::Narrow),
    Purpose::new(0.0, true, Size::Narrow),
    Purpose::new(1.0, false, Size::NarrowOneMoreThanStages),
    Purpose::new(1.0, false, Size::OneStageTiles),
    Purpose::new(1.0, false, Size::OneMoreThanStages),
    Purpose::new(1.0, false, Size::AsManyAsStages),
    Purpose::new(1.0, false, Size::Long),
];

/// A kernel and the problems on which its mutants run.
pub(super) struct Specimen {
    function: Function,
    /// Whether the kernel waits for the grids that it depends on, so that it may begin before they have
    /// ended.
    dependent: bool,
    cases: Vec<Known>,
}

impl Specimen {
    /// Builds a kernel, and runs it unbroken on its problems for the expected outputs.
    pub(super) fn new(subject: &dyn Subject) -> Result<Self, String> {
        let failed = |error: &dyn fmt::Display| format!("{}: {error}", subject.name());
        let program = subject.program().map_err(|error| failed(&error))?;
        let lowered = Program::new(program.function());
        let function: Function = (**program.function()).clone();
        let cases = subject.cases(&function).map_err(|error| failed(&error))?;
        let mut specimen = Self { dependent: function.waits_for_grids(), function, cases: Vec::new() };
        for case in cases {
            let mut known = Known { case, expected: Vec::new(), fuel: Options::default().fuel };
            let (outcome, output) = specimen.run(&known, &lowered, (Schedule::Default, 0));
            known.fuel = outcome.map_err(|failure| failed(&failure))? * 16 + (1 << 16);
            known.expected = output;
            specimen.cases.push(known);
        }
        Ok(specimen)
    }

    /// The number of problems, with or without the long ones.
    pub(super) fn problems(&self, long: bool) -> usize {
        self.cases.iter().filter(|known| long || !known.case.long).count()
    }

    /// The unbroken program.
    pub(super) fn function(&self) -> &Function {
        &self.function
    }

    /// Runs a mutant on all problems under these schedules, until it behaves differently from the unbroken
    /// program.
    pub(super) fn judge(&self, mutant: Function, schedules: &[(Schedule, u64)]) -> Verdict {
        let Ok(verified) = mutant.verify() else { return Verdict::Refused };
        let program = Program::new(&verified);
        // Most mutants are killed under the first schedule, so all problems run under it first.
        let runs = schedules.iter().flat_map(|by| self.cases.iter().map(move |known| (known, *by)));
        self.compare(&program, runs)
    }

    /// As [`judge`](Self::judge), on the short problems only, with the schedules in parallel. For the few
    /// mutants that have survived.
    pub(super) fn judge_longer(&self, mutant: Function, schedules: &[(Schedule, u64)]) -> Verdict {
        let Ok(verified) = mutant.verify() else { return Verdict::Refused };
        let program = Program::new(&verified);
        let under = |by: &(Schedule, u64)| {
            let short = self.cases.iter().filter(|known| !known.case.long);
            self.compare(&program, short.map(|known| (known, *by)))
        };
        let told = |verdict: &Verdict| !matches!(verdict, Verdict::Alive);
        schedules.par_iter().map(under).find_first(told).unwrap_or(Verdict::Alive)
    }

    /// Runs the unbroken program under a schedule, on all problems or without `long` on the short ones.
    pub(super) fn repeat(&self, schedule: (Schedule, u64), long: bool) -> Verdict {
        let Ok(verified) = self.function.clone().verify() else { return Verdict::Refused };
        let program = Program::new(&verified);
        let cases = self.cases.iter().filter(|known| long || !known.case.long);
        self.compare(&program, cases.map(|known| (known, schedule)))
    }

    fn compare<'k>(
        &self,
        program: &Program,
        runs: impl Iterator<Item = (&'k Known, (Schedule, u64))>,
    ) -> Verdict {
        for (known, schedule) in runs {
            let (by, report) = match self.run(known, program, schedule) {
                (Ok(_), output) if output == known.expected => continue,
                (Ok(_), output) => (Outcome::WrongOutput, difference(&output, &known.expected)),
                (Err(failure), _) => (class(&failure), failure.to_string()),
            };
            return Verdict::Killed { by, schedule, report };
        }
        Verdict::Alive
    }

    /// Runs a program on a case. Returns the number of instructions of the last launch, and what was written.
    fn run(
        &self,
        known: &Known,
        program: &Program,
        (schedule, seed): (Schedule, u64),
    ) -> (Result<u64, Failure>, Vec<u8>) {
        let options = Options {
            schedule,
            seed,
            fuel: known.fuel,
            threads: 1,
            dependent: self.dependent,
            ..Options::default()
        };
        known.case.checks.run(program, &options)
    }
}

/// The problems of a GEMM.
pub(super) fn cases(gemm: &Gemm, function: &Function) -> Result<Vec<Case>, String> {
    PURPOSES.iter().filter_map(|purpose| Case::new(gemm, function, *purpose).transpose()).collect()
}

impl Case {
    /// Makes a case for a purpose. `None` if the kernel does not accept such a problem.
    fn new(gemm: &Gemm, function: &Function, purpose: Purpose) -> Result<Option<Self>, String> {
        if purpose.in_place && !gemm.is_linear() {
            return Ok(None);
        }
        let plan = gemm.plan();
        let [tile_m, tile_n, tile_k] = plan.mainloop.tile;
        let [cluster_m, cluster_n] = plan.mainloop.cluster;
        let [cluster_tile_m, cluster_tile_n] = [tile_m * cluster_m, tile_n * cluster_n];
        let resident = purpose.resident_clusters(&plan);
        let four = Tiles { m: 2, n: 2, k: 1 };
        let persists = gemm.workers(four, RESIDENT) < 4;
        // For pingpong kernels each consumer gets the number of tiles that otherwise the whole CTA gets.
        let turns = plan.mainloop.consumers / plan.mainloop.sharing();
        let parts = slices(gemm);
        // The last row and the last column of tiles are partial.
        let (m, n) = match purpose.size {
            _ if plan.balanced() => {
                let rows = products::fitted(&plan, purpose).iter().sum();
                (beside(purpose, plan.ring.stages) * cluster_tile_m - 8, rows)
            }
            _ if parts > 1 => match sliced(purpose, plan.ring.stages, turns) {
                Some(tiles) => {
                    // The other slices of a narrow tile have no columns.
                    let narrow = matches!(purpose.size, Size::Narrow | Size::NarrowOneMoreThanStages);
                    let unused = if narrow { tile_n - tile_n / parts } else { 0 };
                    (tiles * cluster_tile_m - 8, cluster_tile_n - unused - 8)
                }
                None => return Ok(None),
            },
            Size::OneMoreThanStages if persists => {
                ((plan.ring.stages + 1) * RESIDENT * cluster_tile_m - 8, cluster_tile_n - 8)
            }
            Size::Empty if plan.queue.entries > 0 => {
                ((2 * plan.queue.entries + 1) * RESIDENT * cluster_tile_m - 8, cluster_tile_n - 8)
            }
            // A buffer has `4 * turns` rows of whole tiles, two per cluster and turn, and a partial row.
            Size::Small | Size::Empty | Size::Long if gemm.form() == Form::GroupedMasked => {
                (3 * (4 * turns * cluster_tile_m + 8), cluster_tile_n + 8)
            }
            // Each group with rows has a whole tile and a partial one.
            Size::Small | Size::Empty | Size::Long if gemm.form().shares_rows() => {
                (2 * turns * cluster_tile_m + 16, cluster_tile_n + 8)
            }
            Size::AsManyAsStages if persists || cluster_m * cluster_n == 1 => return Ok(None),
            Size::Small | Size::Empty | Size::OneMoreThanStages | Size::AsManyAsStages | Size::Long => {
                ((2 * turns - 1) * cluster_tile_m + 8, cluster_tile_n + 8)
            }
            Size::Divided { tiles, .. } => (tiles * cluster_tile_m - 8, cluster_tile_n - 8),
            Size::DividedShort => (6 / products::count(gemm) * cluster_tile_m - 8, cluster_tile_n - 8),
            Size::OneStageTiles => {
                ((2 * plan.ring.stages + 1) * RESIDENT * cluster_tile_m - 8, cluster_tile_n)
            }
            Size::DividedWidths | Size::Sliced { .. } | Size::Narrow | Size::NarrowOneMoreThanStages => {
                return Ok(None);
            }
        };
        let [rows, columns] = plan.oriented([m, n]);
        let mut problem =
            GemmProblem { m: rows, n: if purpose.odd { columns - 1 } else { columns }, k: tile_k };
        if Products::new(gemm, problem, purpose).launch(gemm, resident).is_err() {
            problem.n = columns;
        }
        let launch = match Products::new(gemm, problem, purpose).launch(gemm, resident) {
            // A kernel that loads C by tensor copies does not accept such a leading dimension.
            Err(_) if purpose.odd => return Ok(None),
            launch => launch.map_err(|error| error.to_string())?,
        };
        let Some(launch) = launch else { return Ok(None) };
        let clusters = launch.grid.ctas.iter().product::<u32>() / (cluster_m * cluster_n);
        let all = m.div_ceil(cluster_tile_m) * n.div_ceil(cluster_tile_n) * products::count(gemm);
        // The number of tiles per cluster; of each width, if widths differ.
        let tiles_each =
            if plan.balanced() { beside(purpose, plan.ring.stages) } else { all / clusters.max(1) };
        let k_tiles = match purpose.size {
            Size::Empty => 0,
            Size::AsManyAsStages => plan.ring.stages,
            Size::Small | Size::Narrow => 4u32.div_ceil(tiles_each.max(1)),
            Size::OneStageTiles if tiles_each < 2 => return Ok(None),
            Size::OneStageTiles => 1,
            Size::OneMoreThanStages | Size::Sliced { .. } | Size::NarrowOneMoreThanStages => {
                plan.ring.stages + 1
            }
            Size::Divided { .. } | Size::DividedShort | Size::DividedWidths => {
                match least_divided(gemm, problem, resident) {
                    Some(k_tiles) => k_tiles,
                    None => return Ok(None),
                }
            }
            Size::Long => {
                // The 2 k-tiles more let the code after the last k-tile reach the end of the ring, too.
                let uses =
                    (plan.ring.stages * (most_arrivals(function) + SPARE_USES)).div_ceil(tiles_each.max(1));
                // A ring of three stages wraps after each k-tile of a turn in one of three turns.
                let unrolled = plan.mainloop.unrolled();
                let turns = if unrolled > 1 { 3 * unrolled + 1 } else { 0 };
                // Two groups along K have half of it each.
                let groups = if gemm.form() == Form::KGrouped { 2 } else { 1 };
                (uses + 2).max(groups * turns + groups - 1)
            }
        };
        problem.k = (tile_k * k_tiles).saturating_sub(8);
        if parts > 1 && !has_slices(gemm, problem, resident) {
            return Err(format!("no tile of {problem:?} is sliced for {resident} clusters"));
        }
        let products = Products::new(gemm, problem, purpose);
        let Some(launch) = products.launch(gemm, resident).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let mut random = Fill::new(0x5EED);
        let mut pieces: Vec<Filled> =
            products.memory.iter().map(|piece| Filled::new(piece.clone(), random.bytes(piece))).collect();
        let d = products.memory.iter().position(|piece| matches!(piece.contents, Contents::Output(_)));
        if let Some(d) = d.filter(|_| purpose.in_place) {
            // It is C too.
            pieces[d].bytes = random.matrix(gemm.formats()[2], products.memory[d].bytes);
        }
        let long = matches!(
            purpose.size,
            Size::DividedWidths
                | Size::OneStageTiles
                | Size::OneMoreThanStages
                | Size::AsManyAsStages
                | Size::Long
                | Size::NarrowOneMoreThanStages
        );
        // The next launch begins with the workspace as the first one has left it.
        let keeps = products.memory.iter().any(|piece| piece.contents == Contents::Workspace);
        let times = if !long && d.is_some() && keeps { 2 } else { 1 };
        Ok(Some(Self { checks: Checks::placed(Relaunched { launch, times }, pieces), long }))
    }
}
/// The number of slices of a tile of the last wave; 1 if the scheduler never slices tiles.
fn slices(gemm: &Gemm) -> u32 {
    let first = gemm.work(Tiles { m: 1, n: 1, k: 1 }, 0, 1).next();
    first.and_then(|work| work.slice).map_or(1, |slice| slice.of)
}

/// The number of tiles of a problem for a kernel that slices tiles. After the last whole wave there is one tile
/// more. `None` if the problem has no purpose for such a kernel.
fn sliced(purpose: Purpose, stages: u32, turns: u32) -> Option<u32> {
    let waves = match purpose.size {
        Size::Sliced { tiles, .. } => return Some(tiles),
        Size::Divided { .. } | Size::DividedShort | Size::DividedWidths | Size::AsManyAsStages => {
            return None;
        }
        Size::Small | Size::Empty | Size::Narrow => 2 * turns,
        Size::OneStageTiles => 2 * stages + 1,
        Size::OneMoreThanStages | Size::NarrowOneMoreThanStages => stages + 1,
        // Few whole tiles, so that the ring also wraps many times during a slice.
        Size::Long => turns,
    };
    Some(waves * RESIDENT + 1)
}

/// Whether the schedule of a problem has slices of tiles.
fn has_slices(gemm: &Gemm, problem: GemmProblem, resident: u32) -> bool {
    let tiles = gemm.tiles(problem);
    let workers = gemm.workers(tiles, resident);
    let part = |work: &Work<u32>| work.slice.is_some_and(|slice| slice.count < slice.of);
    (0..workers).any(|worker| gemm.work(tiles, worker, workers).any(|work| part(&work)))
}

/// The number of tiles of the same width next to each other, for kernels that narrow tiles. Of tiles of one stage
/// there are enough that each width once begins with each stage.
fn beside(purpose: Purpose, stages: u32) -> u32 {
    let divided = matches!(purpose.size, Size::Divided { .. } | Size::DividedShort | Size::DividedWidths);
    match purpose.size == Size::OneStageTiles {
        true => stages,
        false if divided || purpose.odd => 1,
        false => 2,
    }
}

/// The smallest number of k-tiles, from 2 to 63, for which tiles of a problem are split. `None` if they are
/// not.
fn least_divided(gemm: &Gemm, problem: GemmProblem, resident: u32) -> Option<u32> {
    let [.., tile_k] = gemm.plan().mainloop.tile;
    gemm.reduction()?;
    (2..64).find(|&k_tiles| {
        let mut tiles = gemm.tiles(GemmProblem { k: tile_k * k_tiles, ..problem });
        tiles.m *= products::count(gemm);
        let workers = gemm.workers(tiles, resident);
        // `split` has no meaning for a work unit with all of K.
        let divided = |work: &Work<u32>| work.split.is_some() && (work.k_begin > 0 || work.k_end < k_tiles);
        (0..workers).any(|worker| gemm.work(tiles, worker, workers).any(|work| divided(&work)))
    })
}

/// The largest number of arrivals that an mbarrier of the program expects.
fn most_arrivals(function: &Function) -> u32 {
    let counts = Statement::instructions(&function.body).into_iter().filter_map(|inst| {
        let Inst::MbarrierInit { count: Operand::Imm(count), .. } = inst else { return None };
        u32::try_from(*count).ok()
    });
    counts.max().unwrap_or(0)
}

fn difference(output: &[u8], expected: &[u8]) -> String {
    let wrong = output.iter().zip(expected).filter(|(a, b)| a != b).count();
    format!("{wrong} of {} bytes of the outputs differ", expected.len())
}

/// The kind of a failure.
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
