//! The arguments for several GEMMs in one launch.

use collective::{Form, Formula};
use kernel::{AnyGemm, GemmProblem};

use super::GemmArgs;
use crate::call::Launched;
use crate::several::Several;
use crate::{Failure, catalogue, named, types};

impl GemmArgs<'_> {
    /// Runs several GEMMs in one launch, which the option `flag` asks for.
    pub(super) fn several(&self, flag: &str) -> Result<(), Failure> {
        let launched = Launched::read(self.given, |_| Ok(256))?;
        possible(&launched)?;
        let epilogue = self.given.get::<Formula>("epilogue");
        let entry = match named::kernel(self.given)? {
            Some(name) => catalogue::find(&name)?,
            None => self.first_of(&launched, epilogue).map_err(|error| error.about(&format!("--{flag}")))?,
        };
        let epilogue = entry.spec().and_then(|spec| spec.fusion());
        launched.suits(entry.name(), entry.form())?;
        let several = Several {
            launched,
            epilogue,
            // A formula has its own numbers, and is run once.
            factors: if epilogue.is_some() { [1.0, 0.0] } else { [self.alpha(), self.beta()] },
            engine: self.given.value("engine"),
            seed: self.given.value("seed"),
            repeat: if epilogue.is_some() { 1 } else { self.given.value("repeat") },
        };
        let fused = if epilogue.is_some() { " and --epilogue" } else { "" };
        self.given.finish(&format!("--{flag}{fused}"))?;
        several.run(&entry)
    }

    /// The kernel with the shortest predicted time.
    fn first_of(&self, launched: &Launched, epilogue: Option<Formula>) -> Result<AnyGemm, Failure> {
        let types = self.types.types()?;
        let layout = self.given.get::<String>("layout").unwrap_or_else(|| "kk".to_owned());
        catalogue::multiplied_as_they_lie(types, &layout)?;
        types::sparse_as_it_lies(
            types,
            &layout,
            matches!(launched.form, Form::GroupedContiguous | Form::GroupedMasked),
        )?;
        let request = catalogue::padded(types, catalogue::majors(&layout), launched.extents()?);
        let request = launched.request(request);
        self.first(epilogue.map_or(request, |formula| request.fused(formula)))
    }
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
