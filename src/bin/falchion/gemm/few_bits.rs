//! The arguments for weights in few bits.

use collective::{Code, Format};

use super::GemmArgs;
use super::inputs::Inputs;
use crate::bench::suites::Group;
use crate::packed::Packing;
use crate::scales::Scaling;
use crate::weights::{self, FewBits, Found};
use crate::{Failure, types};

impl GemmArgs {
    /// The names of A's and B's formats, if --dtype-b is given.
    pub(super) fn names(&self) -> Option<[&str; 2]> {
        Some([self.dtype.as_deref().unwrap_or("bf16"), self.dtype_b.as_deref()?])
    }

    /// The kind of quantized file that B is in, and the 16-bit format that its weights become: by default
    /// `f16`, like its scales.
    pub(super) fn packing(&self) -> Result<Option<(Packing, Format)>, Failure> {
        let Some(packing) = self.dtype_b.as_deref().and_then(Packing::named) else { return Ok(None) };
        let name = self.dtype.as_deref().unwrap_or("f16");
        let wide = Format::named(name).filter(|format| format.bits() == 16 && format.is_float());
        wide.map(|wide| Some((packing, wide))).ok_or_else(|| {
            Failure::usage(format!("--dtype is `{name}`, bf16 or f16 was needed for --dtype-b gptq and awq"))
        })
    }

    /// The operand in few bits, if there is one.
    pub(super) fn few_bits(&self) -> Result<Option<FewBits>, Failure> {
        if let Some((_, wide)) = self.packing()? {
            let given = [
                ("--group", self.group_size().is_some()),
                ("--scale-b", self.scale_b.is_some()),
                ("--zero-a", self.zero_a.is_some()),
                ("--zero-b", self.zero_b.is_some()),
            ];
            if let Some((flag, _)) = given.into_iter().find(|(_, given)| *given) {
                return Err(Failure::usage(format!(
                    "{flag} is given, and --dtype-b gptq and awq read groups, scales and zero points from the file: leave it out"
                )));
            }
            return Ok(Some(FewBits { code: Code::U4, is_b: true, wide }));
        }
        let found = self.names().and_then(|[a, b]| weights::of_names(a, b));
        if let (None, Some(dtype)) = (found, &self.dtype_b) {
            let all = types::operands();
            if !all.contains(&dtype.as_str()) {
                let codes = Code::ALL.map(Code::name).join(", ");
                return Err(Failure::usage(format!(
                    "--dtype-b is `{dtype}`, one of {} was needed, or with --dtype bf16 or f16 one of int4, uint4, {codes}",
                    all.join(", ")
                )));
            }
        }
        let size = self.group_size();
        if let (None, Some(size)) = (found, size) {
            return Err(Failure::usage(format!(
                "--group {size} is about weights in few bits: --dtype bf16 or f16 and --dtype-b int4, or another code, were needed"
            )));
        }
        if let (None, Some(flag)) =
            (found, self.zero_a.as_ref().map(|_| "--zero-a").or(self.zero_b.as_ref().map(|_| "--zero-b")))
        {
            return Err(Failure::usage(format!(
                "{flag} is about weights in few bits: --dtype-b uint4, or another code, was needed"
            )));
        }
        Ok(found)
    }

    /// Number of elements along K that share a scale.
    pub(super) fn group_size(&self) -> Option<u32> {
        self.group.iter().find_map(|group| match group {
            Group::Weights(size) => Some(*size),
            Group::Product(_) => None,
        })
    }

    /// Reads scales, zero points and codes of the operand in few bits from the files and arguments.
    pub(super) fn found(&self, few_bits: FewBits, inputs: &Inputs) -> Result<Found, Failure> {
        if let (Some(layer), Some([_, b])) = (&inputs.layer, &inputs.files) {
            let side = [self.scale_a.as_deref(), None];
            return layer.found(few_bits, b, Scaling::read(side, inputs.problem, None)?);
        }
        let said = weights::Said {
            group: self.group_size(),
            scales: [self.scale_a.as_deref(), self.scale_b.as_deref()],
            zeros: [self.zero_a.as_deref(), self.zero_b.as_deref()],
        };
        let matrix = inputs.files.as_ref().map(|[a, b]| if few_bits.is_b { b } else { a });
        few_bits.read(said, inputs.problem, matrix)
    }
}
