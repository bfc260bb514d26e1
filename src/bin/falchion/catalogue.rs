//! `falchion configs`, `plan` and `emit`: what there is, in numbers and in PTX.

use std::io::{self, Write};
use std::path::PathBuf;

use collective::Plan;
use cute_rs::atom::Major;
use kernel::AnyGemm;

use crate::Failure;

/// Print every number that follows from a configuration.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  falchion plan large-bf16-kk")]
pub(crate) struct PlanArgs {
    /// A name from `falchion configs`.
    name: String,
}

/// Print a kernel as PTX.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:\n  falchion emit small-f16-mn\n  falchion emit large-bf16-kk -o large.ptx")]
pub(crate) struct EmitArgs {
    /// A name from `falchion configs`.
    name: String,
    /// Write to this file instead of standard output.
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// The tile as people write it.
pub(crate) fn tile(plan: &Plan) -> String {
    let [m, n, k] = plan.mainloop.tile;
    format!("{m}x{n}x{k}")
}

fn direction(major: Major, other: &'static str) -> &'static str {
    match major {
        Major::K => "K",
        Major::Mn => other,
    }
}

pub(crate) fn configs() -> Result<(), Failure> {
    Failure::unless_read(list(&mut io::stdout().lock()))
}

fn list(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:16} {:5} {:>2} {:>2}  {:11} {:>6} {:>8} {:>7}  tiles are dealt to",
        "name", "type", "A", "B", "tile", "stages", "shared B", "threads"
    )?;
    for entry in kernel::catalogue() {
        let plan = entry.plan();
        writeln!(
            out,
            "{:16} {:5} {:>2} {:>2}  {:11} {:>6} {:>8} {:>7}  {}",
            entry.name(),
            entry.element(),
            direction(plan.mainloop.a_major, "M"),
            direction(plan.mainloop.b_major, "N"),
            tile(&plan),
            plan.stages,
            plan.shared_bytes,
            plan.threads,
            entry.schedule(),
        )?;
    }
    out.flush()
}

impl PlanArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let entry = kernel::find(&self.name)?;
        let program = entry.program()?;
        Failure::unless_read(explain(&mut io::stdout().lock(), entry.as_ref(), program.name()))
    }
}

fn explain(out: &mut impl Write, entry: &dyn AnyGemm, program: &str) -> io::Result<()> {
    let plan = entry.plan();
    let stage = plan.stage;
    writeln!(out, "{} ({program})", entry.name())?;
    let mut row = |what: &str, value: String, why: &str| writeln!(out, "{what:24} {value:>12}  {why}");
    row("element type", entry.element().to_owned(), "of A, B, C and D; accumulators are f32")?;
    row(
        "contiguous directions",
        format!("{}, {}", direction(plan.mainloop.a_major, "M"), direction(plan.mainloop.b_major, "N")),
        "of A and of B",
    )?;
    row("tile", tile(&plan), "M x N x K elements a CTA computes at a time")?;
    let [m, n] = plan.mainloop.cluster;
    row("cluster", format!("{m}x{n}"), "CTAs that share their operands by multicast")?;
    row("consumer warpgroups", plan.mainloop.consumers.to_string(), "beside one producer warpgroup")?;
    row("threads", plan.threads.to_string(), "of a CTA")?;
    row("stages", plan.stages.to_string(), "of the ring between producer and consumers")?;
    row("bytes a stage", stage.bytes.to_string(), "one A tile and one B tile")?;
    row("A tile bytes", stage.a_bytes.to_string(), swizzle(stage.a_swizzle.bytes()))?;
    row("B tile bytes", stage.b_bytes.to_string(), swizzle(stage.b_swizzle.bytes()))?;
    row("bytes announced", plan.transaction_bytes().to_string(), "to each full barrier")?;
    row("epilogue offset", plan.epilogue_offset.to_string(), "where D is staged")?;
    row("barrier offset", plan.barrier_offset.to_string(), "where the mbarriers are")?;
    row("shared bytes", plan.shared_bytes.to_string(), "of 232448 that a CTA can have")?;
    row("registers, launch", plan.registers.launch.to_string(), "of each thread, at most")?;
    row("registers, producer", plan.registers.producer.to_string(), "after setmaxnreg")?;
    row("registers, consumer", plan.registers.consumer.to_string(), "after setmaxnreg")?;
    row("accumulators", plan.registers.accumulators.to_string(), "registers of a consumer thread")?;
    writeln!(out, "tiles are dealt to {}", entry.schedule())?;
    out.flush()
}

fn swizzle(bytes: u32) -> &'static str {
    match bytes {
        128 => "in rows of 128 bytes, swizzled",
        64 => "in rows of 64 bytes, swizzled",
        32 => "in rows of 32 bytes, swizzled",
        _ => "in rows of 16 bytes",
    }
}

impl EmitArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let program = kernel::find(&self.name)?.program()?;
        match &self.output {
            None => {
                let mut out = io::stdout().lock();
                Failure::unless_read(out.write_all(program.text().as_bytes()).and_then(|()| out.flush()))
            }
            Some(path) => std::fs::write(path, program.text())
                .map_err(|error| Failure::environment(format!("cannot write {}: {error}", path.display()))),
        }
    }
}

/// Contiguous directions of A and B, as in kernel names.
pub(crate) fn layout(entry: &dyn AnyGemm) -> String {
    let spec = entry.plan().mainloop;
    format!("{}{}", direction(spec.a_major, "M"), direction(spec.b_major, "N")).to_lowercase()
}

/// Every kernel of an element type and of directions.
pub(crate) fn of(element: &str, directions: &str) -> Vec<Box<dyn AnyGemm>> {
    let fits = |entry: &dyn AnyGemm| entry.element() == element && layout(entry) == directions;
    kernel::catalogue().into_iter().filter(|entry| fits(entry.as_ref())).collect()
}

/// The kernel for a product of `tiles_of(tile)` output tiles: the usual choice by size.
pub(crate) fn choose(
    directions: &str,
    element: &str,
    [m, n]: [u32; 2],
    aligned: bool,
) -> Result<Box<dyn AnyGemm>, Failure> {
    let tiles = |tile_m: u32, tile_n: u32| u64::from(m.div_ceil(tile_m)) * u64::from(n.div_ceil(tile_n));
    // A wave is 132 CTAs: below one, smaller tiles keep more multiprocessors busy.
    let kind = if tiles(128, 256) >= 100 {
        if aligned { "staged" } else { "large" }
    } else if tiles(128, 128) >= 100 {
        "medium"
    } else {
        "small"
    };
    Ok(kernel::find(&format!("{kind}-{element}-{directions}"))?)
}
