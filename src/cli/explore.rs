//! `falchion explore`: writes a kernel as one HTML page, with its plan, memory, tiles and an emulated run.

mod family;
mod gallery;
mod node;
mod run;
mod tour;

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::explore::{self, Usual};
use collective::Form;
use kernel::{AnyGemm, GemmProblem};
use serde_json::{Value, json};

use crate::cli::call::Launched;
use crate::cli::options::{Given, Verb};
use crate::cli::output::out;
use crate::cli::{Command, Failure, catalogue, files, named, schedule};

pub(crate) use family::family;

pub(crate) const COMMAND: Command = Command {
    verb: Verb::EXPLORE,
    about: "Write a page that shows a kernel: one HTML file that needs no network.

The page has the plan, shared memory with its swizzles and banks, the operands of wgmma, the order of the output's tiles, the \
cluster, and the timeline of a small run in the emulator. Without a kernel it is a gallery of layouts, with a box to type one. With --tour it \
is a tour of seven stops: raster order, the card, wgmma and swizzle, barriers, cluster, tile scheduling, the node. With --family it shows \
a kernel of another family: its numbers, which blocks it computes and leaves out, its products, and the timeline of --problem.",
    examples: "Examples:\n  falchion explore --kernel 128x256-direct-bf16-kk -o large.html\n  falchion explore --kernel \"tile=128x192x64 cluster=2x1\" \
                  --m 8192 --n 8192 --k 2048\n  falchion explore -o layouts.html\n  falchion explore --tour\n  \
                  falchion explore --family attention --problem \"1x2x512 mask=causal\"",
    run: page,
};

fn page(given: &Given) -> Result<(), Failure> {
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
        Some(entry) => (entry.name().to_owned(), ("kernel", kernel(given, &entry)?)),
        None => {
            given.finish("a gallery of layouts, which has no kernel: --kernel was needed")?;
            ("layouts".to_owned(), ("gallery", json!(gallery::cards().map_err(Failure::environment)?)))
        }
    };
    written(&file, &title, subject)
}

fn written(file: &Path, title: &str, subject: (&str, Value)) -> Result<(), Failure> {
    let page = explore::document(title, subject);
    files::write_text(file, &page)?;
    Ok(writeln!(out(), "written   {} ({} kB)", file.display(), page.len() / 1000)?)
}

/// Everything that a kernel's page shows.
fn kernel(given: &Given, entry: &AnyGemm) -> Result<Value, Failure> {
    let plain = explore::plain(entry)?;
    let (launched, asked) = launched(given, entry);
    let (products, sms) = (launched.products(), given.value("sms"));
    let problem = products.first().copied().unwrap_or(GemmProblem { m: 0, n: 0, k: 0 });
    let recorded = catalogue::one_product(&plain).is_ok();
    let small = recorded.then(|| given.get("run").unwrap_or_else(|| explore::run::small(&plain, problem)));
    given.finish(&format!("kernel {}, which computes {}", entry.name(), entry.form().words()))?;
    let schedule = schedule::of(plain.clone(), &launched, sms, &asked)?;
    let run = small.map_or(Ok(Value::Null), |small| run::of(&plain, small))?;
    explore::kernel(entry, &schedule, &products, run).map_err(Failure::environment)
}

/// The GEMMs whose tiles are shown, and the options that request them, for errors.
fn launched(given: &Given, entry: &AnyGemm) -> (Launched, String) {
    let form = entry.form();
    let extents = ["m", "n", "k"].map(|name| match (name, form) {
        ("m", Form::GroupedContiguous | Form::GroupedMasked) => None,
        _ => given.get(name),
    });
    let rows = match form {
        Form::GroupedContiguous | Form::GroupedMasked => given.list("rows"),
        Form::Single | Form::Batched | Form::KGrouped | Form::PointerArray => Vec::new(),
    };
    let Usual { one, groups, max_rows } = Usual::of(entry, extents, rows);
    let GemmProblem { m, n, k } = one;
    let asked = match form {
        Form::Single | Form::Batched => format!("--m {m}, --n {n}, --k {k}"),
        Form::GroupedContiguous | Form::GroupedMasked => {
            format!("{} groups of rows, --n {n}, --k {k}", groups.len())
        }
        Form::KGrouped => format!("four groups along K, --m {m}, --n {n}, --k {k}"),
        Form::PointerArray => format!("four products up to --m {m}, --n {n}, --k {k}"),
    };
    (Launched { form, one, groups, batch: 1, max_rows }, asked)
}

fn default_file(entry: Option<&AnyGemm>) -> PathBuf {
    let Some(entry) = entry else { return PathBuf::from("layouts.html") };
    let name = if entry.name().contains('=') { entry.entry_name() } else { entry.name().to_owned() };
    Path::new(&name).with_extension("html")
}
