//! `falchion schedule`: draws which worker computes which tile, when, and the cost of that.

mod picture;
mod svg;

use std::io::{self, Write};
use std::path::PathBuf;

use collective::Form;
use kernel::{AnyGemm, GemmProblem, Machine, Prediction, Request, Types};
use scheduler::{Activity, Slice, Span, Tiles, Timeline, Work};

use crate::call::Launched;
use crate::catalogue::tile;
use crate::memory::bytes;
use crate::options::{Given, Verb};
use crate::output::{out, shortened};
use crate::{Command, Failure, catalogue, files, named};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::Schedule,
    about: "Draw which worker computes which tile, and which range of K, over time.

A worker is a CTA or a cluster; a slot is a place for one worker on the GPU. The unit of time is a k-tile: the part of K that one \
stage holds. The drawing assumes that every slot multiplies equally fast, and that loads and epilogues overlap the next tile. A \
slice of a tile takes its part of the tile's time. Without --kernel it is the first that `falchion plan` ranks, as for `falchion gemm`. Traffic is a prediction of the model of `falchion plan`.",
    examples: "Examples:\n  falchion schedule --m 4096 --n 4096 --k 4096\n  falchion schedule --kernel 128x256-bf16-kk --m 4096 --n 4096 --k 4096\n  \
                  falchion schedule --kernel 256x192-stream-k-bf16-kk --m 2048 --n 2048 --k 512 --sms 20 --svg schedule.svg\n  \
                  falchion schedule --kernel 128x128-stream-k-2x2-f16-kk --m 256 --n 256 --k 8192 --list\n  \
                  falchion schedule --kernel ragged-128x256-step32-bf16-kk --rows 300,0,17,129 --n 512 --k 512 --sms 8\n  \
                  falchion schedule --kernel grouped-128x256-bf16-kk --group 300x512x64,70x40x512 --sms 8",
    run: schedule,
};

/// Largest number of GEMMs of a batch in a picture.
const MOST_BATCHED: u32 = 65_536;

/// Largest number of tiles in a picture.
const MOST_TILES: u64 = 1 << 18;

/// A kernel's schedule for one launch.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) entry: AnyGemm,
    /// The GEMMs of the launch, in words.
    described: String,
    pub(crate) tiles: Tiles<u32>,
    pub(crate) workers: u32,
    /// Number of columns that each tile multiplies; `None` if all are equal.
    widths: Option<Vec<u32>>,
    pub(crate) timeline: Timeline,
    pub(crate) machine: Machine,
    /// `None` if the launch has no GEMM.
    pub(crate) prediction: Option<Prediction>,
}

fn schedule(given: &Given) -> Result<(), Failure> {
    let svg = given.get::<PathBuf>("svg");
    if let Some(path) = &svg {
        files::writable(path)?;
    }
    let instead =
        |plain: &str, _: &str| format!("its tiles are assigned to workers like those of {plain}; draw that");
    let named = named::plain(given, instead)?;
    let missing = |name: &str| Err(usage!("--{name} was needed"));
    let launched = Launched::read(given, missing)?;
    if launched.batch > MOST_BATCHED {
        let count = launched.batch;
        refuse!("--batch is {count}, at most {MOST_BATCHED} are drawn");
    }
    let size = if given.flag("list") { None } else { Some([given.value("lines"), given.value("width")]) };
    let sms = given.value("sms");
    let with = if named.is_some() { "--kernel" } else { "these GEMMs" };
    let entry = match named {
        Some(entry) => entry,
        None => catalogue::chosen(given, &launched, None, &machine(sms))?,
    };
    given.finish(with)?;
    let schedule = Schedule::new(entry, &launched, sms, &asked(given, &launched))?;
    if let Some(path) = &svg {
        files::write_text(path, &svg::document(&schedule))?;
    }
    let out = &mut out();
    for line in schedule.summary() {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    match size {
        None => schedule.list(out)?,
        Some([lines, width]) => picture::draw(out, &schedule, lines, width)?,
    }
    Ok(out.flush()?)
}

/// An H200 with this number of SMs.
fn machine(sms: u32) -> Machine {
    let whole = Machine::h200();
    let clusters = whole.clusters.map(|clusters| sms * clusters / whole.multiprocessors);
    Machine { multiprocessors: sms, clusters, ..whole }
}

/// The given options about extents, as text.
fn asked(given: &Given, launched: &Launched) -> String {
    let list = |name: &str, of: &dyn Fn(&GemmProblem) -> String| {
        let values: Vec<String> = launched.groups.iter().map(of).collect();
        given.has(name).then(|| format!("--{name} {}", shortened(&values.join(","))))
    };
    let one = |name: &str| given.has(name).then(|| given.get::<u32>(name)).flatten();
    let number = |name: &str| one(name).map(|value| format!("--{name} {value}"));
    let asked = [
        number("batch"),
        list("rows", &|one| one.m.to_string()),
        number("max-rows"),
        list("k-groups", &|one| one.k.to_string()),
        list("group", &|GemmProblem { m, n, k }| format!("{m}x{n}x{k}")),
        number("m"),
        number("n"),
        number("k"),
    ];
    asked.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

impl Schedule {
    /// The schedule of a launch on a GPU with `sms` SMs. `asked` is the text of the arguments, for errors.
    pub(crate) fn new(entry: AnyGemm, launched: &Launched, sms: u32, asked: &str) -> Result<Self, Failure> {
        launched.suits(entry.name(), entry.form())?;
        let products = launched.products();
        let plan = entry.plan();
        let machine = machine(sms);
        let slots = machine.resident_clusters(&plan);
        // Groups in buffers of one size are drawn like contiguous groups.
        let form = if entry.form() == Form::GroupedMasked { Form::GroupedContiguous } else { entry.form() };
        let all = products.iter().fold(0u32, |sum, problem| sum.saturating_add(problem.k));
        let call = products.first().map(|&first| {
            let along_k = form == Form::KGrouped;
            catalogue::legal(&entry, GemmProblem { k: if along_k { all } else { first.k }, ..first })
        });
        if let (Form::Single, Some(call)) = (form, &call) {
            entry.launch(call, slots)?;
        }
        let tiles = entry.tiles_of(&products).map_err(|error| usage!("{asked}: {error}"))?;
        let all = u64::from(tiles.m) * u64::from(tiles.n);
        if all > MOST_TILES {
            refuse!("{asked} make {all} tiles, a picture shows at most {MOST_TILES}: lower them");
        }
        let workers = entry.workers(tiles, slots);
        // Each GEMM of a pointer array has its own K.
        let sums = (form == Form::PointerArray).then(|| {
            let of = |problem: &GemmProblem| {
                let tiles = entry.tiles(*problem);
                core::iter::repeat_n(tiles.k, (tiles.m * tiles.n) as usize)
            };
            products.iter().flat_map(of).collect::<Vec<u32>>()
        });
        // So has each group along K, whose tiles are next to each other in one direction.
        let along_k = products.first().filter(|_| form == Form::KGrouped).map(|&first| {
            let sums: Vec<u32> = products.iter().map(|&problem| entry.tiles(problem).k).collect();
            (entry.tiles(first), sums)
        });
        let work = |worker| -> Box<dyn Iterator<Item = Work<u32>>> {
            let work = entry.work(tiles, worker, workers);
            if let Some((one, sums)) = along_k.clone() {
                let group = move |work: &Work<u32>| {
                    if tiles.m > one.m { work.m / one.m } else { work.n / one.n }
                };
                return Box::new(work.map(move |work| Work { k_end: sums[group(&work) as usize], ..work }));
            }
            let Some(sums) = sums.clone() else { return work };
            Box::new(work.map(move |work| Work { k_end: sums[work.m as usize], ..work }))
        };
        let widths = entry.widths_of(&products, workers);
        let full = u64::from(plan.mainloop.tile[1]);
        // The unit is a k-tile of full width.
        let length = |work: &Work<u32>| {
            let columns = widths.as_ref().and_then(|widths| widths.get(work.m as usize).copied());
            let [count, of] = work.slice.map_or([1, 1], |slice| [slice.count, slice.of]);
            let columns = columns.map_or(full, u64::from) * u64::from(count);
            (u64::from(work.k_end - work.k_begin) * columns).div_ceil(full * u64::from(of))
        };
        let (count, drawn) = ([workers, slots], entry.draws());
        let timeline = Timeline::of_lengths(tiles, count, entry.reduction(), work, drawn, &length);
        let prediction = call.map(|call| {
            let request =
                Request { call, ..Request::packed(Types::of_plan(&plan), plan.majors(), call.problem) };
            machine.predict(&entry, &launched.request(request))
        });
        let described = launched.described();
        Ok(Schedule { entry, described, tiles, workers, widths, timeline, machine, prediction })
    }

    /// The position of a tile in D: row and column, in tiles.
    pub(crate) fn place(&self, work: &Work<u32>) -> [u32; 2] {
        self.entry.plan().oriented([work.m, work.n])
    }

    /// Numbers of D's tiles along M and N.
    pub(crate) fn grid(&self) -> [u32; 2] {
        let Tiles { m, n, .. } = self.tiles;
        self.entry.plan().oriented([m, n])
    }

    /// Number of slices per sliced tile; `None` if the scheduler never slices tiles.
    pub(crate) fn slices(&self) -> Option<u32> {
        let of = |span: &Span| does(&span.activity).1.slice.map(|slice| slice.of);
        self.timeline.spans.first().and_then(of)
    }

    /// The columns of each CTA's tile that a slice has: the first, and one past the last. Rows of D for a
    /// swap-AB kernel. `None` for a whole tile.
    pub(crate) fn slice(&self, work: &Work<u32>) -> Option<[u32; 2]> {
        let Slice { first, count, of } = work.slice.filter(|slice| slice.count < slice.of)?;
        let width = self.entry.plan().mainloop.tile[1] / of;
        Some([first * width, (first + count) * width])
    }

    /// The direction of D in which tiles are sliced.
    pub(crate) fn sliced_along(&self) -> &'static str {
        self.entry.plan().oriented(["rows", "columns"])[1]
    }

    fn divided(&self, work: &Work<u32>) -> bool {
        self.entry.reduction().is_some() && work.k_end - work.k_begin < self.tiles.k
    }

    /// The numbers of the schedule, one line each.
    pub(crate) fn summary(&self) -> Vec<String> {
        let Self { entry, described, tiles, workers, timeline, .. } = self;
        let plan = entry.plan();
        let [rows, columns] = self.grid();
        let each = match plan.oriented(plan.mainloop.cluster) {
            [1, 1] => "a CTA each".to_owned(),
            [m, n] => format!("a cluster of {m} x {n} CTAs each"),
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
            format!("{} at {described} on {} SMs", entry.name(), self.machine.multiprocessors),
            format!("schedule   {}", entry.schedule()),
            format!(
                "tiles      {rows} x {columns} of D, {} k-tiles each; CTAs multiply {}",
                tiles.k,
                tile(&plan)
            ),
            format!("workers    {workers} on {slots} slots, {each}"),
            format!("waves      {waves:.2}"),
            format!("time       {end} k-tiles: {} multiplying, {} idle", share(multiplied), share(idle)),
        ];
        if let Some(widths) = self.widths.as_ref().filter(|widths| !widths.is_empty()) {
            let (least, most) = (widths.iter().min().unwrap_or(&0), widths.iter().max().unwrap_or(&0));
            let full = f64::from(plan.mainloop.tile[1]);
            let all = widths.iter().map(|&width| f64::from(width)).sum::<f64>() / widths.len() as f64;
            lines.push(format!(
                "narrowed   to {least} to {most} columns, {:.2} of a tile on average; times are for full width",
                all / full
            ));
        }
        if let Some(of) = self.slices() {
            let (width, along) = (plan.mainloop.tile[1] / of, self.sliced_along());
            let multiplied = |span: &&Span| matches!(&span.activity, Activity::Multiply(work) if self.slice(work).is_some());
            lines.push(match timeline.spans.iter().filter(multiplied).count() as u32 / of {
                0 => format!(
                    "slices     none: there is no partial last wave, or {of} slices of each of its tiles are more than \
                     the workers"
                ),
                1 => format!("slices     1 tile of the last wave in {of} slices of {width} {along}"),
                tiles => {
                    format!("slices     {tiles} tiles of the last wave in {of} slices of {width} {along} each")
                }
            });
        }
        if entry.reduction().is_some() {
            lines.push(format!(
                "sums       {} waiting for partial sums of other workers, {} adding them",
                share(waited),
                share(added)
            ));
        }
        if let Some(prediction) = &self.prediction {
            let (l2, dram) = (prediction.l2 * self.machine.l2, prediction.dram_bytes);
            lines.push(format!(
                "traffic    {} from L2 to the SMs, {} between memory and L2 (predicted)",
                bytes(l2),
                bytes(dram)
            ));
        }
        if plan.swapped() {
            lines.push("operands   swapped (swap-AB): tiles are shown at their places in D".to_owned());
        }
        lines
    }

    fn list(&self, out: &mut impl Write) -> io::Result<()> {
        let sliced = self.slices().map(|_| self.sliced_along());
        let k_tiles =
            if let Some(along) = sliced { format!("{:10}  {along}", "k-tiles") } else { "k-tiles".into() };
        writeln!(out, "  slot worker     from       to  does            tile  {k_tiles}")?;
        for span in &self.timeline.spans {
            let (does, work) = does(&span.activity);
            let [row, column] = self.place(work);
            let Span { slot, worker, start, end, .. } = span;
            let mut k_tiles = format!("{}..{}", work.k_begin, work.k_end);
            if sliced.is_some() {
                let whole = [0, self.entry.plan().mainloop.tile[1]];
                let [first, end] = self.slice(work).unwrap_or(whole);
                k_tiles = format!("{k_tiles:10}  {first}..{end}");
            }
            writeln!(
                out,
                "{slot:6} {worker:6} {start:8} {end:8}  {does:8} {:>11}  {k_tiles}",
                format!("{row},{column}")
            )?;
        }
        Ok(())
    }
}

/// What a slot does, as a word, and the work unit that it does.
fn does(activity: &Activity) -> (&'static str, &Work<u32>) {
    match activity {
        Activity::Multiply(work) => ("multiply", work),
        Activity::Wait(work) => ("wait", work),
        Activity::FixUp(work) => ("add up", work),
    }
}
