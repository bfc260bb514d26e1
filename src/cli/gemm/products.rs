//! `falchion gemm --batch`, `--rows`, `--k-groups`, `--group`: runs several GEMMs in one launch, and checks the results.

use std::io::Write;

use crate::verify::product::formats;
use crate::verify::{Bench, SeveralProducts};
use collective::{Form, Formula};
use kernel::{AnyGemm, GemmProblem};

use super::{GemmArgs, checked, report, verdict, words};
use crate::cli::call::Launched;
use crate::cli::engine::{Choice, Chosen, machine};
use crate::cli::output::out;
use crate::cli::{Failure, catalogue, memory, named, numbers};

impl GemmArgs<'_> {
    /// Runs several GEMMs in one launch, which the option `flag` asks for.
    pub(super) fn several(&self, flag: &str) -> Result<(), Failure> {
        let launched = Launched::read(self.given, |_| Ok(256))?;
        possible(&launched)?;
        let epilogue = self.given.get::<Formula>("epilogue");
        let entry = match named::kernel(self.given)? {
            Some(name) => catalogue::find(&name)?,
            None => catalogue::chosen(self.given, &launched, epilogue, machine())?,
        };
        let epilogue = entry.spec().and_then(|spec| spec.fusion());
        launched.suits(entry.name(), entry.form())?;
        let (engine, seed): (Choice, u64) = (self.given.value("engine"), self.given.value("seed"));
        // A formula has its own numbers, and is run once.
        let (fused, factors, repeat) = match epilogue {
            Some(_) => (" and --epilogue", [1.0, 0.0], 1),
            None => ("", [self.alpha(), self.beta()], self.given.value("repeat")),
        };
        self.given.finish(&format!("--{flag}{fused}"))?;
        let products = of_launch(&launched);
        fits(&launched, &entry)?;
        if let (Form::PointerArray, Some(formula)) = (launched.form, epilogue) {
            refuse!(
                "--group: GEMMs of any shapes share no vectors, so their results are not compared with {formula}: use \
                 --batch, --rows or --k-groups, or a kernel without a formula"
            );
        }
        let [.., of_d] = formats(&entry);
        let [alpha, beta] = factors;
        numbers::taken("--alpha", alpha, of_d)?;
        numbers::taken("--beta", beta, of_d)?;
        let several = SeveralProducts { factors, seed, ..products };
        let Chosen { mut engine, emulated, why } = engine.open()?;
        memory::work(&*engine, &entry, &launched.products(), &format!("--{flag}, --m, --n or --k"))?;
        let program = entry.program()?;
        let mut out = out();
        writeln!(out, "engine    {} ({why})", engine.describe())?;
        let (products, types) = (launched.described(), words(&entry));
        let Some(formula) = epilogue else {
            writeln!(out, "products  {products} {types}, alpha {alpha}, beta {beta}")?;
            writeln!(out, "kernel    {} ({})", entry.name(), program.name())?;
            let outcome = several.run_times(&entry, engine.as_mut(), repeat)?;
            report(&mut out, &outcome, several.operations(), emulated)?;
            if let Some(wrapped) = outcome.wrapped {
                writeln!(out, "wrapped   {wrapped}")?;
            }
            return verdict(&mut out, outcome.mismatch, repeat);
        };
        writeln!(out, "products  {products} {types}")?;
        writeln!(out, "epilogue  D = {}", formula.text())?;
        writeln!(out, "kernel    {} ({})", entry.name(), program.name())?;
        let mut bench = Bench::new(engine.as_mut(), seed);
        let operand = entry.plan().mainloop.operands[0].format;
        let arguments = bench.sample(formula, operand, several.shape(formula))?;
        checked(&mut out, bench.check_several(&entry, &several, &arguments), emulated)
    }
}

/// The GEMMs with random matrices.
fn of_launch(Launched { form, one, groups, batch, max_rows }: &Launched) -> SeveralProducts {
    let GemmProblem { m, n, k } = *one;
    let sizes = |of: fn(&GemmProblem) -> u32| groups.iter().map(of).collect::<Vec<u32>>();
    match form {
        Form::Single | Form::Batched => SeveralProducts::batch(*one, *batch),
        Form::PointerArray => SeveralProducts::array(groups.clone()),
        Form::GroupedContiguous => SeveralProducts::of_rows(&sizes(|one| one.m), 0, [n, k]),
        Form::GroupedMasked => SeveralProducts::masked(&sizes(|one| one.m), *max_rows, [n, k]),
        Form::KGrouped => SeveralProducts::of_lengths(&sizes(|one| one.k), [m, n]),
    }
}

/// Fails if a launch cannot number all tiles, if this machine has not enough memory, or if a group along K begins
/// neither at a multiple of the kernel's tile K nor at the end of K.
fn fits(launched: &Launched, entry: &AnyGemm) -> Result<(), Failure> {
    let flag = match launched.form {
        Form::Single | Form::Batched => {
            let Launched { one, batch, .. } = launched;
            // Check before the list is allocated: the estimate includes the list.
            let needed = memory::checked(&[*one]) * u128::from(*batch);
            memory::enough(&format!("--batch {batch}"), needed, "--batch, --m, --n or --k")?;
            "--batch"
        }
        Form::KGrouped => {
            launched.begin_at_tiles(entry)?;
            "--k-groups"
        }
        Form::GroupedContiguous | Form::GroupedMasked => "--rows",
        Form::PointerArray => "--group",
    };
    let products = launched.products();
    entry.tiles_of(&products).map_err(|error| usage!("{flag}: {error}"))?;
    let what = format!("{flag} of {} GEMMs", products.len());
    memory::enough(&what, memory::checked(&products), &format!("{flag}, --m, --n or --k"))
}

/// Fails for a launch whose B has too many elements to compare.
fn possible(launched: &Launched) -> Result<(), Failure> {
    let whole = launched.whole()?;
    let m = u64::from(launched.one.m) * u64::from(launched.batch);
    if launched.form == Form::Batched && m > i32::MAX as u64 {
        refuse!("{m} rows in all are too many: at most 2^31 - 1 are possible");
    }
    let of = |GemmProblem { n, k, .. }: &GemmProblem| u128::from(*n) * u128::from(*k);
    let operands = match launched.form {
        Form::KGrouped => of(&whole),
        Form::Single | Form::Batched => of(&launched.one) * u128::from(launched.batch),
        Form::GroupedContiguous | Form::GroupedMasked | Form::PointerArray => {
            launched.groups.iter().map(of).sum()
        }
    };
    if operands > 1 << 32 {
        refuse!("{operands} elements of B are too many to compare: at most 2^32 are possible");
    }
    Ok(())
}
