//! `falchion gemm --batch`, `--rows`, `--k-groups`, `--group`: runs several GEMMs in one launch, and checks the results.

use std::io::Write;

use collective::{Form, Formula};
use falchion::verify::product::formats;
use falchion::verify::{Bench, RecordProducts, RunError, SeveralProducts};
use kernel::{AnyGemm, GemmProblem};

use crate::call::Launched;
use crate::engine::{Choice, Chosen};
use crate::output::out;
use crate::{Failure, memory, numbers};

/// A launch of several GEMMs.
#[derive(Debug)]
pub(crate) struct Several {
    pub(crate) launched: Launched,
    /// The kernel's formula, if it has one.
    pub(crate) epilogue: Option<Formula>,
    pub(crate) factors: [f64; 2],
    pub(crate) engine: Choice,
    pub(crate) seed: u64,
    /// Number of runs of the kernel.
    pub(crate) repeat: u32,
}

impl Several {
    fn products(&self) -> SeveralProducts {
        let Launched { form, one, groups, batch, max_rows } = &self.launched;
        let GemmProblem { m, n, k } = *one;
        let sizes = |of: fn(&GemmProblem) -> u32| groups.iter().map(of).collect::<Vec<u32>>();
        match form {
            Form::Single | Form::Batched | Form::PointerArray => SeveralProducts::batch(*one, *batch),
            Form::GroupedContiguous => SeveralProducts::of_rows(&sizes(|one| one.m), 0, [n, k]),
            Form::GroupedMasked => SeveralProducts::masked(&sizes(|one| one.m), *max_rows, [n, k]),
            Form::KGrouped => SeveralProducts::of_lengths(&sizes(|one| one.k), [m, n]),
        }
    }

    /// Fails if a launch cannot number all tiles, or if this machine has not enough memory.
    fn possible(&self, entry: &AnyGemm) -> Result<(), Failure> {
        let Launched { form, one, groups, batch, .. } = &self.launched;
        let (products, flag) = match form {
            Form::Single | Form::Batched => {
                // Check before the list is allocated: the estimate includes the list.
                let needed = memory::checked(&[*one]) * u128::from(*batch);
                memory::enough(&format!("--batch {batch}"), needed, "--batch, --m, --n or --k")?;
                (self.launched.products(), "--batch")
            }
            Form::KGrouped => {
                self.begin_at_tiles(entry)?;
                (groups.clone(), "--k-groups")
            }
            Form::GroupedContiguous | Form::GroupedMasked => (groups.clone(), "--rows"),
            Form::PointerArray => (groups.clone(), "--group"),
        };
        entry.tiles_of(&products).map_err(|error| usage!("{flag}: {error}"))?;
        let what = format!("{flag} of {} GEMMs", products.len());
        memory::enough(&what, memory::checked(&products), &format!("{flag}, --m, --n or --k"))
    }

    /// Fails unless each group along K begins at a multiple of the kernel's tile K or at the end of K.
    fn begin_at_tiles(&self, entry: &AnyGemm) -> Result<(), Failure> {
        let (products, tile) = (self.products(), entry.plan().mainloop.tile[2]);
        let begins = |offset: &u32| offset.is_multiple_of(tile) || *offset == products.problem.k;
        match products.offsets.iter().find(|offset| !begins(offset)) {
            Some(offset) => Err(usage!(
                "--k-groups: a group begins at K = {offset}, a multiple of tile K = {tile} was needed for kernel {}",
                entry.name()
            )),
            None => Ok(()),
        }
    }

    pub(crate) fn run(&self, entry: &AnyGemm) -> Result<(), Failure> {
        self.possible(entry)?;
        if let (Form::PointerArray, Some(formula)) = (self.launched.form, self.epilogue) {
            refuse!(
                "--group: GEMMs of any shapes share no vectors, so their results are not compared with {formula}: use \
                 --batch, --rows or --k-groups, or a kernel without a formula"
            );
        }
        let Launched { form, one, groups, .. } = &self.launched;
        let GemmProblem { m, n, k } = *one;
        let ([alpha, beta], [.., of_d]) = (self.factors, formats(entry));
        let factors =
            [numbers::in_single("--alpha", alpha, of_d)?, numbers::in_single("--beta", beta, of_d)?];
        let described = (*form == Form::PointerArray).then(|| RecordProducts {
            shapes: groups.iter().map(|&GemmProblem { m, n, k }| [m, n, k]).collect(),
            factors,
            operand_bytes: 16,
            d_padding: 0,
            seed: self.seed,
        });
        let seed = self.seed;
        let several = SeveralProducts { factors, seed, ..self.products() };
        let Chosen { mut engine, emulated, why } = self.engine.open()?;
        let program = entry.program()?;
        let [alpha, beta] = factors;
        let mut out = out();
        writeln!(out, "engine    {} ({why})", engine.describe())?;
        let count = several.products.count();
        let products = match form {
            Form::PointerArray => format!("{} of any shapes", groups.len()),
            Form::KGrouped => {
                format!("{count} groups along K, K {} in all, {m} x {n} each,", several.problem.k)
            }
            Form::Single | Form::Batched => format!("{count} of {m} x {n} x {k}"),
            Form::GroupedContiguous | Form::GroupedMasked => {
                let all: u64 = groups.iter().map(|one| u64::from(one.m)).sum();
                format!("{} groups, {all} rows in all, N {n}, K {k}", groups.len())
            }
        };
        if let Some(formula) = self.epilogue {
            writeln!(out, "products  {products} {}", crate::gemm::words(entry))?;
            writeln!(out, "epilogue  D = {}", formula.text())?;
            writeln!(out, "kernel    {} ({})", entry.name(), program.name())?;
            let mut bench = Bench::new(engine.as_mut(), seed);
            let operand = entry.plan().mainloop.operands[0].format;
            let arguments = bench.sample(formula, operand, several.shape(formula))?;
            return crate::gemm::checked(
                &mut out,
                bench.check_several(entry, &several, &arguments),
                emulated,
            );
        }
        writeln!(out, "products  {products} {}, alpha {alpha}, beta {beta}", crate::gemm::words(entry))?;
        writeln!(out, "kernel    {} ({})", entry.name(), program.name())?;
        let outcome = match &described {
            None => several.run_times(entry, &program, engine.as_mut(), self.repeat),
            Some(described) => described.run_times(entry, &program, engine.as_mut(), self.repeat),
        };
        let outcome = outcome.map_err(|error| match error {
            RunError::Launch(error) => Failure::from(error),
            RunError::Engine(error) => Failure::from(error),
            RunError::Program(error) => Failure::from(error),
            error @ RunError::Direction { .. } => Failure::usage(error),
        })?;
        let operations = match described {
            None => several.operations(),
            Some(_) => groups.iter().map(GemmProblem::operations).sum(),
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
