//! `falchion explore`: writes a kernel as one HTML page, with its plan, memory, tiles and an emulated run.

mod cluster;
mod gallery;
mod memory;
mod multiply;
mod order;
mod overview;
mod page;
mod run;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use collective::Form;
use falchion::verify::FusedGemm;
use kernel::{AnyGemm, GemmProblem, KernelSpec};
use serde::Serialize;

use crate::bench::suites::parse_group;
use crate::output::out;
use crate::schedule::Schedule;
use crate::{Failure, catalogue, files, named};

/// Write a page that shows a kernel: one HTML file that needs no network.
///
/// The page has the plan, shared memory with its swizzles and banks, the operands of wgmma, the order of the
/// output's tiles, the cluster, and the timeline of a small run in the emulator. Without a kernel it is a
/// gallery of layouts, with a box to type one.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  falchion explore 128x256-direct-bf16-kk -o large.html\n  falchion explore --spec \"tile=128x192x64 cluster=2x1\" \
                  --m 8192 --n 8192 --k 2048\n  falchion explore -o layouts.html"
)]
pub(crate) struct ExploreArgs {
    /// Kernel name from `falchion configs`. Without a kernel the page is a gallery of layouts.
    #[arg(conflicts_with = "spec", value_name = "KERNEL")]
    name: Option<String>,
    /// Kernel as `key=value` words. Words that are left out have the defaults that `falchion plan --spec ""`
    /// prints.
    #[arg(long, value_name = "WORDS", value_parser = named::spec)]
    spec: Option<KernelSpec>,
    /// Rows of A and D, for the order of tiles [default: 4096; with swap-AB, the rows of D that a cluster
    /// computes].
    #[arg(long)]
    m: Option<u32>,
    /// Columns of B and D, for the order of tiles [default: 4096].
    #[arg(long)]
    n: Option<u32>,
    /// Columns of A, rows of B, for the order of tiles [default: 4096].
    #[arg(long)]
    k: Option<u32>,
    /// Rows of each group, in place of --m, for kernels `ragged…` and `masked…` [default: 300,0,17,129].
    #[arg(long, value_name = "ROWS,ROWS,..", value_delimiter = ',', value_parser = crate::numbers::rows, conflicts_with = "m")]
    rows: Vec<u32>,
    /// Problem of the emulated run [default: two cluster tiles, with a K of two k-tiles more than the ring
    /// has stages].
    #[arg(long, value_name = "MxNxK", value_parser = parse_group)]
    run: Option<GemmProblem>,
    /// Number of SMs of the GPU, for the order of tiles.
    #[arg(long, default_value_t = 132, value_parser = clap::value_parser!(u32).range(1..=1024))]
    sms: u32,
    /// File to write; `-` is standard output [default: the kernel's name and `.html`, in the current folder].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Everything that a kernel's page shows.
#[derive(Debug, Serialize)]
struct Kernel {
    overview: overview::Overview,
    memory: memory::Memory,
    multiply: multiply::Multiply,
    order: order::Order,
    cluster: cluster::Cluster,
    run: Option<run::Run>,
    /// Why there is no run, or which kernel ran instead.
    run_note: Option<String>,
}

/// The contents of a page.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(clippy::large_enum_variant, reason = "a page is made once")]
enum Subject {
    Kernel(Kernel),
    Gallery(Vec<gallery::Card>),
}

impl ExploreArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let entry = match (&self.name, self.spec) {
            (Some(name), _) => Some(catalogue::find(name)?),
            (None, Some(spec)) => Some(catalogue::find(&spec.to_string())?),
            (None, None) => None,
        };
        let file = self.output.clone().unwrap_or_else(|| default_file(entry.as_ref()));
        let to_stdout = file.as_os_str() == "-";
        if !to_stdout {
            files::writable(&file)?;
        }
        let (title, subject) = match entry {
            Some(entry) => (entry.name().to_owned(), Subject::Kernel(self.kernel(entry)?)),
            None => ("layouts".to_owned(), Subject::Gallery(self.gallery()?)),
        };
        let page = page::document(&title, &subject)?;
        if to_stdout {
            return Ok(out().write_all(page.as_bytes())?);
        }
        files::write_text(&file, &page)?;
        Ok(writeln!(out(), "written   {} ({} kB)", file.display(), page.len() / 1000)?)
    }

    fn gallery(&self) -> Result<Vec<gallery::Card>, Failure> {
        let Self { m, n, k, rows, run, .. } = self;
        if m.or(*n).or(*k).is_some() || !rows.is_empty() || run.is_some() {
            return Err(Failure::usage(
                "--m, --n, --k, --rows and --run need a kernel: `falchion explore KERNEL`",
            ));
        }
        gallery::cards().map_err(Failure::environment)
    }

    fn kernel(&self, entry: AnyGemm) -> Result<Kernel, Failure> {
        for (name, extent) in [("--m", self.m), ("--n", self.n), ("--k", self.k)] {
            if extent == Some(0) {
                return Err(Failure::usage(format!("{name} is 0, at least 1 was needed")));
            }
        }
        // A kernel with a fused epilogue is drawn and run as the same kernel without it.
        let plain = match FusedGemm::of(entry.clone()) {
            None => entry.clone(),
            Some(fused) => catalogue::find(&fused.plain_name())?,
        };
        let (products, asked) = self.products(&entry)?;
        let schedule = Schedule::new(plain.clone(), products.clone(), form(&entry), self.sms, &asked)?;
        let problem = products.first().copied().unwrap_or(GemmProblem { m: 0, n: 0, k: 0 });
        let memory = memory::Memory::of(&entry).map_err(Failure::environment)?;
        let (run, run_note) = match catalogue::one_product(&plain) {
            Err(_) => (
                None,
                Some(
                    "The timeline of this kernel is not recorded: it computes several GEMMs in one launch, and only launches of one GEMM \
                     are recorded. The other sections are complete."
                        .to_owned(),
                ),
            ),
            Ok(()) => {
                let small = self.run.unwrap_or_else(|| run::small(&plain, problem));
                let note = (plain.name() != entry.name()).then(|| {
                    format!(
                        "The recorded kernel is {}: the same kernel without its fused epilogue.",
                        plain.name()
                    )
                });
                (Some(run::Run::of(&plain, small)?), note)
            }
        };
        Ok(Kernel {
            overview: overview::Overview::of(&entry),
            memory,
            multiply: multiply::Multiply::of(&entry).map_err(Failure::environment)?,
            order: order::Order::of(&schedule, &products),
            cluster: cluster::Cluster::of(&entry),
            run,
            run_note,
        })
    }

    /// The GEMMs whose tiles are shown, and the arguments that request them, for errors.
    fn products(&self, entry: &AnyGemm) -> Result<(Vec<GemmProblem>, String), Failure> {
        // A swap-AB kernel is made for few rows: use those of one cluster tile.
        let (plan, usual) = (entry.plan(), 4096);
        let rows = if plan.swapped() { plan.mainloop.tile[1] * plan.mainloop.cluster[1] } else { usual };
        let m = self.m.unwrap_or(rows);
        let [n, k] = [self.n, self.k].map(|extent| extent.unwrap_or(usual));
        let groups = matches!(entry.form(), Form::Ragged | Form::Masked);
        if !groups && !self.rows.is_empty() {
            return Err(Failure::usage(format!(
                "kernel {} is {:?}, and --rows is for kernels of groups of rows: give --m",
                entry.name(),
                entry.form()
            )));
        }
        if groups && self.m.is_some() {
            return Err(Failure::usage(format!(
                "kernel {} is {:?}, for groups of rows: give --rows in place of --m",
                entry.name(),
                entry.form()
            )));
        }
        Ok(match entry.form() {
            Form::Single | Form::Batched => {
                (vec![GemmProblem { m, n, k }], format!("--m {m}, --n {n}, --k {k}"))
            }
            Form::Ragged | Form::Masked => {
                let rows = if self.rows.is_empty() { vec![300, 0, 17, 129] } else { self.rows.clone() };
                let asked = format!("{} groups of rows, --n {n}, --k {k}", rows.len());
                (rows.into_iter().map(|m| GemmProblem { m, n, k }).collect(), asked)
            }
            Form::KGrouped => {
                // Half of K, nothing, a quarter, and the rest.
                let steps = |part: u32| (k / part).next_multiple_of(plan.mainloop.tile[2]).min(k);
                let [half, quarter] = [steps(2), steps(4).min(k - steps(2))];
                let groups = [half, 0, quarter, k - half - quarter].map(|k| GemmProblem { m, n, k });
                (groups.to_vec(), format!("four groups along K, --m {m}, --n {n}, --k {k}"))
            }
            Form::Grouped => {
                // Four GEMMs of different shapes, with the same K.
                let shapes = [[m, n, k], [m / 2, n, k], [m / 4, n / 2, k], [m / 8, n / 8, k]];
                let shape = |[m, n, k]: [u32; 3]| GemmProblem { m: m.max(1), n: n.max(1), k };
                (shapes.map(shape).to_vec(), format!("four products up to --m {m}, --n {n}, --k {k}"))
            }
        })
    }
}

/// The form that the schedule is drawn for: groups in buffers of one size are drawn like contiguous groups.
fn form(entry: &AnyGemm) -> Form {
    if entry.form() == Form::Masked { Form::Ragged } else { entry.form() }
}

fn default_file(entry: Option<&AnyGemm>) -> PathBuf {
    let Some(entry) = entry else { return PathBuf::from("layouts.html") };
    let name = if entry.name().contains('=') { entry.entry_name() } else { entry.name().to_owned() };
    Path::new(&name).with_extension("html")
}
