//! `falchion explore`: writes a kernel as one HTML page, with its plan, memory, tiles and an emulated run.

mod cluster;
mod family;
mod gallery;
mod memory;
mod multiply;
mod node;
mod order;
mod overview;
mod page;
mod run;
mod tour;

use std::io::Write;
use std::path::{Path, PathBuf};

use collective::Form;
use falchion::verify::FusedGemm;
use kernel::{AnyGemm, GemmProblem};
use serde_json::{Value, json};

use crate::call::Launched;
use crate::options::{Given, Verb};
use crate::output::out;
use crate::schedule::Schedule;
use crate::{Command, Failure, catalogue, files, named};

pub(crate) use family::family;

pub(crate) const COMMAND: Command = Command {
    verb: Verb::Explore,
    about: "Write a page that shows a kernel: one HTML file that needs no network.

The page has the plan, shared memory with its swizzles and banks, the operands of wgmma, the order of the output's tiles, the \
cluster, and the timeline of a small run in the emulator. Without a kernel it is a gallery of layouts, with a box to type one. With --tour it \
is a tour of seven stops: raster order, the card, wgmma and swizzle, barriers, cluster, tile scheduling, the node. With --family it shows \
a kernel of another family: its numbers, which blocks it computes and leaves out, its products, and the timeline of --problem.",
    examples: "Examples:\n  falchion explore --kernel 128x256-direct-bf16-kk -o large.html\n  falchion explore --kernel \"tile=128x192x64 cluster=2x1\" \
                  --m 8192 --n 8192 --k 2048\n  falchion explore -o layouts.html\n  falchion explore --tour\n  \
                  falchion explore --family attention --problem \"1x2x512 mask=causal\"",
    run: explore,
};

fn explore(given: &Given) -> Result<(), Failure> {
    if given.flag("tour") {
        let file = given.get::<PathBuf>("out").unwrap_or_else(|| PathBuf::from("tour.html"));
        files::writable(&file)?;
        given.finish("the tour, which chooses its kernels")?;
        return written(&file, "tour", ("tour", tour::tour()?));
    }
    let entry = named::kernel(given)?.map(|name| catalogue::find(&name)).transpose()?;
    let file = given.get::<PathBuf>("out").unwrap_or_else(|| default_file(entry.as_ref()));
    files::writable(&file)?;
    let (title, subject) = match entry {
        Some(entry) => (entry.name().to_owned(), ("kernel", kernel(given, entry)?)),
        None => {
            given.finish("a gallery of layouts, which has no kernel: --kernel was needed")?;
            ("layouts".to_owned(), ("gallery", json!(gallery::cards().map_err(Failure::environment)?)))
        }
    };
    written(&file, &title, subject)
}

fn written(file: &Path, title: &str, subject: (&str, Value)) -> Result<(), Failure> {
    let page = page::document(title, subject);
    files::write_text(file, &page)?;
    Ok(writeln!(out(), "written   {} ({} kB)", file.display(), page.len() / 1000)?)
}

/// Everything that a kernel's page shows.
fn kernel(given: &Given, entry: AnyGemm) -> Result<Value, Failure> {
    // A kernel with a fused epilogue is drawn and run as the same kernel without it.
    let plain = match FusedGemm::of(entry.clone()) {
        None => entry.clone(),
        Some(fused) => catalogue::find(&fused.plain_name())?,
    };
    let (launched, asked) = launched(given, &entry);
    let (products, sms) = (launched.products(), given.value("sms"));
    let problem = products.first().copied().unwrap_or(GemmProblem { m: 0, n: 0, k: 0 });
    let recorded = catalogue::one_product(&plain).is_ok();
    let small = recorded.then(|| given.get("run").unwrap_or_else(|| run::small(&plain, problem)));
    given.finish(&format!("kernel {}, which computes {}", entry.name(), entry.form().words()))?;
    let schedule = Schedule::new(plain.clone(), &launched, sms, &asked)?;
    let memory = memory::of(&entry).map_err(Failure::environment)?;
    let (run, run_note) = match small {
        None => (
            None,
            Some(
                "The timeline of this kernel is not recorded: it computes several GEMMs in one launch, and only launches of one GEMM \
                 are recorded. The other sections are complete."
                    .to_owned(),
            ),
        ),
        Some(small) => {
            let note = (plain.name() != entry.name()).then(|| {
                format!(
                    "The recorded kernel is {}: the same kernel without its fused epilogue.",
                    plain.name()
                )
            });
            (Some(run::of(&plain, small)?), note)
        }
    };
    Ok(json!({
        "overview": overview::of(&entry),
        "memory": memory,
        "multiply": multiply::of(&entry).map_err(Failure::environment)?,
        "order": order::of(&schedule, &products),
        "cluster": cluster::of(&entry),
        "run": run,
        // Why there is no run, or which kernel ran instead.
        "run_note": run_note,
    }))
}

/// The GEMMs whose tiles are shown, and the options that request them, for errors.
fn launched(given: &Given, entry: &AnyGemm) -> (Launched, String) {
    // A swap-AB kernel is made for few rows: use those of one cluster tile.
    let (plan, usual) = (entry.plan(), 4096);
    let rows = if plan.swapped() { plan.mainloop.tile[1] * plan.mainloop.cluster[1] } else { usual };
    let [n, k] = ["n", "k"].map(|name| given.get(name).unwrap_or(usual));
    let form = entry.form();
    let m = if matches!(form, Form::GroupedContiguous | Form::GroupedMasked) {
        0
    } else {
        given.get("m").unwrap_or(rows)
    };
    let one = GemmProblem { m, n, k };
    let (groups, max_rows, asked) = match form {
        Form::Single | Form::Batched => (Vec::new(), 0, format!("--m {m}, --n {n}, --k {k}")),
        Form::GroupedContiguous | Form::GroupedMasked => {
            let rows = Some(given.list::<u32>("rows")).filter(|rows| !rows.is_empty());
            let rows = rows.unwrap_or_else(|| vec![300, 0, 17, 129]);
            let most = rows.iter().max().copied().unwrap_or(0);
            let asked = format!("{} groups of rows, --n {n}, --k {k}", rows.len());
            let max_rows = if form == Form::GroupedMasked { most } else { 0 };
            (rows.into_iter().map(|m| GemmProblem { m, n, k }).collect(), max_rows, asked)
        }
        Form::KGrouped => {
            // Half of K, nothing, a quarter, and the rest.
            let steps = |part: u32| (k / part).next_multiple_of(plan.mainloop.tile[2]).min(k);
            let [half, quarter] = [steps(2), steps(4).min(k - steps(2))];
            let groups = [half, 0, quarter, k - half - quarter].map(|k| GemmProblem { m, n, k });
            (groups.to_vec(), 0, format!("four groups along K, --m {m}, --n {n}, --k {k}"))
        }
        Form::PointerArray => {
            // Four GEMMs of different shapes, with the same K.
            let shapes = [[m, n, k], [m / 2, n, k], [m / 4, n / 2, k], [m / 8, n / 8, k]];
            let shape = |[m, n, k]: [u32; 3]| GemmProblem { m: m.max(1), n: n.max(1), k };
            let asked = format!("four products up to --m {m}, --n {n}, --k {k}");
            (shapes.map(shape).to_vec(), 0, asked)
        }
    };
    (Launched { form, one, groups, batch: 1, max_rows }, asked)
}

fn default_file(entry: Option<&AnyGemm>) -> PathBuf {
    let Some(entry) = entry else { return PathBuf::from("layouts.html") };
    let name = if entry.name().contains('=') { entry.entry_name() } else { entry.name().to_owned() };
    Path::new(&name).with_extension("html")
}
