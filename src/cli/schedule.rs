//! `falchion schedule`: draws which worker computes which tile, when, and the cost of that.

mod picture;
mod svg;

use std::io::{self, Write};
use std::path::PathBuf;

use crate::explore::{self, MOST_BATCHED, Schedule, ScheduleError, does};
use kernel::{AnyGemm, GemmProblem, Machine};
use scheduler::Span;

use crate::cli::call::Launched;
use crate::cli::options::{Given, Verb};
use crate::cli::output::{out, shortened};
use crate::cli::{Command, Failure, catalogue, files, named};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::SCHEDULE,
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
    let schedule = of(entry, &launched, sms, &asked(given, &launched))?;
    if let Some(path) = &svg {
        files::write_text(path, &svg::document(&schedule))?;
    }
    let out = &mut out();
    for line in schedule.summary() {
        writeln!(out, "{line}")?;
    }
    writeln!(out)?;
    match size {
        None => list(&schedule, out)?,
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

/// The schedule of a launch on a GPU with `sms` SMs. `asked` is the text of the arguments, for errors.
pub(crate) fn of(entry: AnyGemm, launched: &Launched, sms: u32, asked: &str) -> Result<Schedule, Failure> {
    launched.suits(entry.name(), entry.form())?;
    let (products, described) = (launched.products(), launched.described());
    let request = |request| launched.request(request);
    let all = explore::Launched { products: &products, described, request: &request };
    Schedule::new(entry, all, machine(sms)).map_err(|error| {
        if let ScheduleError::Tiles { tiles, most } = error {
            usage!("{asked} make {tiles} tiles, a picture shows at most {most}: lower them")
        } else {
            usage!("{asked}: {error}")
        }
    })
}

fn list(schedule: &Schedule, out: &mut impl Write) -> io::Result<()> {
    let sliced = schedule.slices().map(|_| schedule.sliced_along());
    let k_tiles =
        if let Some(along) = sliced { format!("{:10}  {along}", "k-tiles") } else { "k-tiles".into() };
    writeln!(out, "  slot worker     from       to  does            tile  {k_tiles}")?;
    for span in &schedule.timeline.spans {
        let (does, work) = does(&span.activity);
        let [row, column] = schedule.place(work);
        let Span { slot, worker, start, end, .. } = span;
        let mut k_tiles = format!("{}..{}", work.k_begin, work.k_end);
        if sliced.is_some() {
            let whole = [0, schedule.entry.plan().mainloop.tile[1]];
            let [first, end] = schedule.slice(work).unwrap_or(whole);
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
