//! The arguments for several GEMMs in one launch.

use collective::Form;
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
        let entry = match named::kernel(self.given)? {
            Some(name) => {
                let instead = |plain: &str, _: &str| {
                    format!("several GEMMs are checked here without a fused epilogue: use {plain}")
                };
                catalogue::plain(&name, instead)?
            }
            None => self.first_of(&launched).map_err(|error| error.about(&format!("--{flag}")))?,
        };
        launched.suits(entry.name(), entry.form())?;
        let several = Several {
            launched,
            factors: [self.alpha(), self.beta()],
            engine: self.given.value("engine"),
            seed: self.given.value("seed"),
            repeat: self.given.value("repeat"),
        };
        self.given.finish(&format!("--{flag}"))?;
        several.run(&entry)
    }

    /// The kernel with the shortest predicted time.
    fn first_of(&self, launched: &Launched) -> Result<AnyGemm, Failure> {
        let types = self.types.types()?;
        let layout = self.given.get::<String>("layout").unwrap_or_else(|| "kk".to_owned());
        catalogue::multiplied_as_they_lie(types, &layout)?;
        types::sparse_as_it_lies(types, &layout, matches!(launched.form, Form::Ragged | Form::Masked))?;
        let request = catalogue::padded(types, catalogue::majors(&layout), launched.extents()?);
        self.first(launched.request(request))
    }
}

/// Fails for a launch whose B has too many elements to compare.
fn possible(launched: &Launched) -> Result<(), Failure> {
    let whole = launched.whole()?;
    let m = u64::from(launched.one.m) * u64::from(launched.batch);
    if launched.form == Form::Batched && m > i32::MAX as u64 {
        return Err(Failure::usage(format!("{m} rows in all are too many: at most 2^31 - 1 are possible")));
    }
    let of = |GemmProblem { n, k, .. }: &GemmProblem| u128::from(*n) * u128::from(*k);
    let operands = match launched.form {
        Form::KGrouped => of(&whole),
        Form::Single | Form::Batched => of(&launched.one) * u128::from(launched.batch),
        Form::Ragged | Form::Masked | Form::Grouped => launched.groups.iter().map(of).sum(),
    };
    if operands > 1 << 32 {
        return Err(Failure::usage(format!(
            "{operands} elements of B are too many to compare: at most 2^32 are possible"
        )));
    }
    Ok(())
}
