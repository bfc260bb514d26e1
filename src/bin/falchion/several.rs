//! `falchion gemm --batch`, `--rows`, `--k-groups`, `--group`: runs several GEMMs in one launch, and checks the results.

use std::io::Write;

use collective::Form;
use cute_rs::atom::Major;
use falchion::verify::product::formats;
use falchion::verify::{RecordProducts, RunError, SeveralProducts};
use kernel::{AnyGemm, GemmProblem, Machine, Types};

use crate::engine::{Choice, Chosen};
use crate::output::out;
use crate::{Failure, catalogue, memory, numbers};

/// What the arguments request.
#[derive(Debug)]
pub(crate) struct SeveralArgs<'a> {
    pub(crate) batch: Option<u32>,
    pub(crate) rows: Option<&'a [u32]>,
    /// Rows of the buffer of each group.
    pub(crate) room: Option<u32>,
    /// K of each group along K.
    pub(crate) along_k: Option<&'a [u32]>,
    /// GEMMs of a pointer array; empty for a batch or groups.
    pub(crate) records: &'a [GemmProblem],
    /// The extents of each GEMM. M does not count for groups of rows, K not for groups along K.
    pub(crate) problem: GemmProblem,
    pub(crate) types: Types,
    pub(crate) config: Option<&'a str>,
    pub(crate) factors: [f64; 2],
    pub(crate) engine: Choice,
    pub(crate) seed: u64,
    /// Number of runs of the kernel.
    pub(crate) repeat: u32,
}

impl SeveralArgs<'_> {
    fn products(&self) -> SeveralProducts {
        let GemmProblem { m, n, k } = self.problem;
        if let Some(lengths) = self.along_k {
            return SeveralProducts::of_lengths(lengths, [m, n]);
        }
        match (self.batch, self.rows) {
            (Some(count), _) => SeveralProducts::batch(self.problem, count),
            (None, rows) => match self.room {
                Some(room) => SeveralProducts::masked(rows.unwrap_or_default(), room, [n, k]),
                None => SeveralProducts::of_rows(rows.unwrap_or_default(), 0, [n, k]),
            },
        }
    }

    /// The named kernel, or the one that the model ranks first.
    fn kernel(&self) -> Result<AnyGemm, Failure> {
        let form = match (self.records, self.batch) {
            ([_, ..], _) => Form::Grouped,
            _ if self.along_k.is_some() => Form::KGrouped,
            (_, Some(_)) => Form::Batched,
            (_, None) if self.room.is_some() => Form::Masked,
            (_, None) => Form::Ragged,
        };
        let Some(name) = self.config else { return self.first(form) };
        let instead = |plain: &str, fusion: &str| {
            format!(
                "it computes one GEMM: use a kernel like {plain}, or leave out all but --epilogue {fusion}"
            )
        };
        let entry = catalogue::plain(name, instead)?;
        catalogue::of_type(entry.name(), entry.element(), self.types.a.name())?;
        if entry.form() != form {
            let (name, is) = (entry.name(), entry.form());
            return Err(Failure::usage(format!(
                "kernel {name} is {is:?}, one that is {form:?} was needed: use another kernel, or leave out --config"
            )));
        }
        Ok(entry)
    }

    /// The kernel with the shortest predicted time.
    fn first(&self, form: Form) -> Result<AnyGemm, Failure> {
        let rows = self.rows.unwrap_or_default();
        let all = rows.iter().fold(0u32, |sum, &rows| sum.saturating_add(rows));
        let one = match form {
            Form::Ragged => GemmProblem { m: all, ..self.problem },
            Form::KGrouped => GemmProblem { k: self.products().problem.k, ..self.problem },
            Form::Single | Form::Batched | Form::Masked | Form::Grouped => self.problem,
        };
        let groups: Vec<GemmProblem> = match self.along_k {
            Some(lengths) => lengths.iter().map(|&k| GemmProblem { k, ..one }).collect(),
            None => rows.iter().map(|&m| GemmProblem { m, ..one }).collect(),
        };
        let request = catalogue::padded(self.types, [Major::K; 2], one);
        let request = match form {
            Form::Single => request,
            Form::Batched => request.batched(self.batch.unwrap_or(1)),
            Form::Ragged => request.ragged(&groups),
            Form::Masked => request.masked(self.room.unwrap_or(1), &groups),
            Form::KGrouped => request.k_grouped(&groups),
            Form::Grouped => request.grouped(self.records),
        };
        let mut selection = kernel::select(&request, &Machine::h200());
        catalogue::first(&selection)?;
        Ok(selection.ranked.swap_remove(0).gemm)
    }

    /// Fails if a launch cannot number all tiles, or if this machine has not enough memory.
    fn possible(&self, entry: &AnyGemm) -> Result<(), Failure> {
        let one = self.problem;
        let (products, flag) = match (self.records, self.batch, self.rows) {
            (records @ [_, ..], ..) => (records.to_vec(), "--group"),
            _ if self.along_k.is_some() => (self.of_lengths(entry)?, "--k-groups"),
            (_, Some(count), _) => {
                // Check before the list is allocated: the estimate includes the list.
                let needed = memory::checked(&[one]) * u128::from(count);
                memory::enough(&format!("--batch {count}"), needed, "--batch, --m, --n or --k")?;
                (vec![one; count as usize], "--batch")
            }
            (_, None, rows) => {
                let rows = rows.unwrap_or_default();
                (rows.iter().map(|&m| GemmProblem { m, ..one }).collect(), "--rows")
            }
        };
        entry.tiles_of(&products).map_err(|error| Failure::usage(format!("{flag}: {error}")))?;
        let what = format!("{flag} of {} GEMMs", products.len());
        memory::enough(&what, memory::checked(&products), &format!("{flag}, --m, --n or --k"))
    }

    /// The groups along K, if each begins at a multiple of the kernel's tile K or at the end of K.
    fn of_lengths(&self, entry: &AnyGemm) -> Result<Vec<GemmProblem>, Failure> {
        let (products, tile) = (self.products(), entry.plan().mainloop.tile[2]);
        let begins = |offset: &u32| offset.is_multiple_of(tile) || *offset == products.problem.k;
        match products.offsets.iter().find(|offset| !begins(offset)) {
            Some(offset) => Err(Failure::usage(format!(
                "--k-groups: a group begins at K = {offset}, a multiple of tile K = {tile} was needed for kernel {}",
                entry.name()
            ))),
            None => Ok(products
                .offsets
                .windows(2)
                .map(|of| GemmProblem { k: of[1] - of[0], ..self.problem })
                .collect()),
        }
    }

    pub(crate) fn run(&self) -> Result<(), Failure> {
        let entry = self.kernel()?;
        self.possible(&entry)?;
        let GemmProblem { m, n, k } = self.problem;
        let ([alpha, beta], [.., of_d]) = (self.factors, formats(&entry));
        let factors =
            [numbers::in_single("--alpha", alpha, of_d)?, numbers::in_single("--beta", beta, of_d)?];
        let records: Vec<_> = self.records.iter().map(|&GemmProblem { m, n, k }| [m, n, k]).collect();
        let described =
            RecordProducts { shapes: records, factors, operand_bytes: 16, d_padding: 0, seed: self.seed };
        let seed = self.seed;
        let several = SeveralProducts { factors, seed, ..self.products() };
        let Chosen { mut engine, emulated, why } = self.engine.open()?;
        let program = entry.program()?;
        let [alpha, beta] = factors;
        let mut out = out();
        writeln!(out, "engine    {} ({why})", engine.describe())?;
        let products = match (self.batch, self.rows) {
            _ if !self.records.is_empty() => format!("{} of any shapes", self.records.len()),
            _ if self.along_k.is_some() => {
                let (count, all) = (several.products.count(), several.problem.k);
                format!("{count} groups along K, K {all} in all, {m} x {n} each,")
            }
            (Some(count), _) => format!("{count} of {m} x {n} x {k}"),
            (None, rows) => {
                let rows = rows.unwrap_or_default();
                let all: u64 = rows.iter().map(|&rows| u64::from(rows)).sum();
                format!("{} groups, {all} rows in all, N {n}, K {k}", rows.len())
            }
        };
        writeln!(out, "products  {products} {}, alpha {alpha}, beta {beta}", crate::gemm::words(&entry))?;
        writeln!(out, "kernel    {} ({})", entry.name(), program.name())?;
        let outcome = match self.records {
            [] => several.run_times(&entry, &program, engine.as_mut(), self.repeat),
            _ => described.run_times(&entry, &program, engine.as_mut(), self.repeat),
        };
        let outcome = outcome.map_err(|error| match error {
            RunError::Launch(error) => Failure::from(error),
            RunError::Engine(error) => Failure::from(error),
            RunError::Program(error) => Failure::from(error),
            error @ RunError::Direction { .. } => Failure::usage(error),
        })?;
        let operations = match self.records {
            [] => several.operations(),
            records => records.iter().map(GemmProblem::operations).sum(),
        };
        match outcome.time.map(|time| time.as_secs_f64()) {
            Some(seconds) if emulated => {
                writeln!(out, "time      {seconds:.3} s on this machine's CPU; it says nothing about a GPU")?;
            }
            Some(seconds) => {
                let rate = operations / seconds / 1e12;
                writeln!(
                    out,
                    "time      {:.1} us on the device, {rate:.1} TFLOP/s (one cold run)",
                    seconds * 1e6
                )?;
            }
            None => writeln!(out, "time      nothing to launch")?,
        }
        writeln!(
            out,
            "error     at most {:.2} of the bound, of {} elements",
            outcome.ratio, outcome.compared
        )?;
        if let Some(wrapped) = outcome.wrapped {
            writeln!(out, "wrapped   {wrapped}")?;
        }
        match outcome.mismatch {
            None => {
                crate::gemm::repeated(&mut out, self.repeat)?;
                writeln!(out, "verified")?;
                Ok(out.flush()?)
            }
            Some(mismatch) => {
                writeln!(out, "WRONG {mismatch}")?;
                Err(Failure::Wrong)
            }
        }
    }
}
