//! `falchion schedule`: which worker computes which tile, when, and what that costs.

mod picture;
mod svg;

use std::io::{self, Write};
use std::path::PathBuf;

use kernel::{AnyGemm, Call, GemmProblem, Machine, MatrixRef, Prediction, WorkspaceRef};
use scheduler::{Activity, Span, Tiles, Timeline, Work};

use crate::Failure;
use crate::catalogue::tile;

/// Draw which worker computes which tile and which part of K, when.
///
/// Times are in k-tiles: every slot multiplies equally fast, loads and epilogues overlap the next tile. Workers that draw
/// their tiles are taken to be equally fast too. Traffic is what the model of `falchion plan` predicts.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  falchion schedule staged-bf16-kk --m 4096 --n 4096 --k 4096\n  \
                  falchion schedule stream-bf16-kk --m 2048 --n 2048 --k 512 --sms 20 --svg schedule.svg\n  \
                  falchion schedule deep-f16-kk --m 256 --n 256 --k 8192 --list")]
pub(crate) struct ScheduleArgs {
    /// A name from `falchion configs`.
    name: String,
    /// Rows of A and D.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    m: u32,
    /// Columns of B and D.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    n: u32,
    /// Columns of A, rows of B.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    k: u32,
    /// Multiprocessors of the card.
    #[arg(long, default_value_t = 132, value_parser = clap::value_parser!(u32).range(1..=1024))]
    sms: u32,
    /// Most slots that are drawn as text.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(2..))]
    rows: u32,
    /// Characters of a row.
    #[arg(long, default_value_t = 96, value_parser = clap::value_parser!(u32).range(8..=1000))]
    columns: u32,
    /// List every piece of work instead of drawing.
    #[arg(long)]
    list: bool,
    /// Write a picture of every slot, and of the tiles in D, to this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// More tiles than a picture shows.
const MOST_TILES: u64 = 1 << 18;

/// A kernel's schedule for one problem.
struct Schedule {
    entry: Box<dyn AnyGemm>,
    problem: GemmProblem,
    tiles: Tiles<u32>,
    workers: u32,
    timeline: Timeline,
    machine: Machine,
    prediction: Prediction,
}

impl ScheduleArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let schedule = self.schedule()?;
        if let Some(path) = &self.svg {
            std::fs::write(path, svg::document(&schedule))
                .map_err(|error| Failure::environment(format!("cannot write {}: {error}", path.display())))?;
        }
        let out = &mut io::stdout().lock();
        Failure::unless_read(self.print(out, &schedule))
    }

    fn schedule(&self) -> Result<Schedule, Failure> {
        let entry = kernel::find(&self.name)?;
        let plan = entry.plan();
        let machine = Machine::h200();
        let clustered = self.sms * machine.clustered_multiprocessors / machine.multiprocessors;
        let machine =
            Machine { multiprocessors: self.sms, clustered_multiprocessors: clustered.max(1), ..machine };
        let slots = machine.slots(&plan);
        let problem = GemmProblem { m: self.m, n: self.n, k: self.k };
        let call = legal(entry.as_ref(), problem);
        entry.launch(&call, slots)?;
        let tiles = entry.tiles(problem);
        let all = u64::from(tiles.m) * u64::from(tiles.n);
        if all > MOST_TILES {
            return Err(Failure::usage(format!(
                "--m {} and --n {} make {all} tiles, at most {MOST_TILES} were needed for a picture: lower --m or --n",
                self.m, self.n
            )));
        }
        let workers = entry.workers(tiles, slots);
        let work = |worker| entry.work(tiles, worker, workers);
        let timeline = Timeline::new(tiles, workers, slots, entry.reduction(), work);
        let prediction = machine.predict(entry.as_ref(), &call);
        Ok(Schedule { entry, problem, tiles, workers, timeline, machine, prediction })
    }

    fn print(&self, out: &mut impl Write, schedule: &Schedule) -> io::Result<()> {
        for line in schedule.summary() {
            writeln!(out, "{line}")?;
        }
        writeln!(out)?;
        if self.list {
            schedule.list(out)?;
        } else {
            picture::draw(out, schedule, self.rows, self.columns)?;
        }
        out.flush()
    }
}

/// A call with matrices whose rows begin at multiples of 16 B, if they have to.
fn legal(entry: &dyn AnyGemm, problem: GemmProblem) -> Call {
    let plan = entry.plan();
    let elements = 128 / plan.mainloop.types.element_bits();
    // Nothing is read: the addresses only have to be legal.
    let matrix = |contiguous: u32| {
        let pitch = u64::from(contiguous).next_multiple_of(elements.into());
        MatrixRef { address: 1 << 20, pitch }
    };
    let GemmProblem { m, n, k } = problem;
    let contiguous = |major, mn| if major == cute_rs::atom::Major::K { k } else { mn };
    let [a, b] = plan.majors();
    Call {
        problem,
        a: matrix(contiguous(a, m)),
        b: matrix(contiguous(b, n)),
        c: None,
        d: matrix(n),
        alpha: 1.0,
        beta: 0.0,
        workspace: Some(WorkspaceRef { address: 1 << 20, bytes: u64::MAX }),
    }
}

impl Schedule {
    /// A tile's place among those of D: row and column.
    fn place(&self, work: &Work<u32>) -> [u32; 2] {
        if self.entry.plan().swapped() { [work.n, work.m] } else { [work.m, work.n] }
    }

    /// D's tiles along M and N.
    fn grid(&self) -> [u32; 2] {
        let Tiles { m, n, .. } = self.tiles;
        if self.entry.plan().swapped() { [n, m] } else { [m, n] }
    }

    fn divided(&self, work: &Work<u32>) -> bool {
        work.k_end - work.k_begin < self.tiles.k
    }

    /// What there is to say in numbers.
    fn summary(&self) -> Vec<String> {
        let Self { entry, problem: GemmProblem { m, n, k }, tiles, workers, timeline, .. } = self;
        let plan = entry.plan();
        let [rows, columns] = self.grid();
        let [cluster_m, cluster_n] = plan.mainloop.cluster;
        let each = match (plan.cluster_size(), plan.swapped()) {
            (1, _) => "a CTA each".to_owned(),
            (_, false) => format!("a cluster of {cluster_m} x {cluster_n} CTAs each"),
            (_, true) => format!("a cluster of {cluster_n} x {cluster_m} CTAs each"),
        };
        let slots = u64::from(timeline.slots);
        let (end, all) = (timeline.end, (slots * timeline.end).max(1));
        let multiplied = timeline.spent(|activity| matches!(activity, Activity::Multiply(_)));
        let waited = timeline.spent(|activity| matches!(activity, Activity::Wait(_)));
        let added = timeline.spent(|activity| matches!(activity, Activity::FixUp(_)));
        let idle = slots * end - multiplied - waited - added;
        let share = |part: u64| format!("{:.1} %", part as f64 * 100.0 / all as f64);
        let waves = f64::from(tiles.m) * f64::from(tiles.n) / f64::from(timeline.slots);
        let mut lines = vec![
            format!(
                "{} at {m} x {n} x {k} on {} multiprocessors",
                entry.name(),
                self.machine.multiprocessors
            ),
            format!("dealt to   {}", entry.schedule()),
            format!(
                "tiles      {rows} x {columns} of D, {} k-tiles each; CTAs multiply {}",
                tiles.k,
                tile(&plan)
            ),
            format!("workers    {workers} on {slots} slots, {each}"),
            format!("waves      {waves:.2}"),
            format!("time       {end} k-tiles: {} multiplying, {} idle", share(multiplied), share(idle)),
        ];
        if entry.reduction().is_some() {
            lines.push(format!(
                "sums       {} waiting for those of other workers, {} adding them up",
                share(waited),
                share(added)
            ));
        }
        let (l2, dram) = (self.prediction.l2 * self.machine.l2, self.prediction.dram * self.machine.dram);
        lines.push(format!(
            "traffic    {} from L2 to the multiprocessors, {} between memory and L2 (predicted)",
            bytes(l2),
            bytes(dram)
        ));
        if plan.swapped() {
            lines.push("operands   exchanged: the kernel's tiles are shown as they lie in D".to_owned());
        }
        lines
    }

    fn list(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(
            out,
            "{:>6} {:>6} {:>8} {:>8}  {:8} {:>11}  k-tiles",
            "slot", "worker", "from", "to", "does", "tile"
        )?;
        for span in &self.timeline.spans {
            let (does, work) = does(&span.activity);
            let [row, column] = self.place(work);
            let Span { slot, worker, start, end, .. } = span;
            writeln!(
                out,
                "{slot:6} {worker:6} {start:8} {end:8}  {does:8} {:>11}  {}..{}",
                format!("{row},{column}"),
                work.k_begin,
                work.k_end
            )?;
        }
        Ok(())
    }
}

/// What a slot does, in a word, and with which piece.
fn does(activity: &Activity) -> (&'static str, &Work<u32>) {
    match activity {
        Activity::Multiply(work) => ("multiply", work),
        Activity::Wait(work) => ("wait", work),
        Activity::FixUp(work) => ("add up", work),
    }
}

/// Bytes as people read them.
fn bytes(count: f64) -> String {
    let units = [(1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    match units.into_iter().find(|(unit, _)| count >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", count / unit),
        None => format!("{count:.0} B"),
    }
}
