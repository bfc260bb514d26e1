//! The options for quantised weights.

use super::GemmArgs;
use super::inputs::Inputs;
use crate::cli::Failure;
use crate::cli::scales::Scaling;
use crate::cli::weights::{self, FewBits, Found};
use kernel::GemmProblem;

impl GemmArgs<'_> {
    /// The quantised operand, if there is one.
    pub(super) fn few_bits(&self) -> Result<Option<FewBits>, Failure> {
        let of = |(is_b, coded, wide)| FewBits { coded, is_b, wide };
        Ok(self.types.weights()?.map(of))
    }

    /// The scales of the files, for a kernel with scales of `blocks` if it is known and has them.
    pub(super) fn scaling(&self, problem: GemmProblem, blocks: Option<[u32; 2]>) -> Result<Scaling, Failure> {
        let [a, b] = ["scale-a", "scale-b"].map(|name| self.given.get::<String>(name));
        Scaling::read([a.as_deref(), b.as_deref()], problem, blocks)
    }

    /// Reads scales, zero points and codes of the quantised operand.
    pub(super) fn found(&self, few_bits: FewBits, inputs: &Inputs) -> Result<Found, Failure> {
        if let (Some(layer), Some([_, b])) = (&inputs.layer, &inputs.files) {
            // The file has B's scales and zero points.
            let scale = self.given.get::<String>("scale-a");
            return layer.found(few_bits, b, Scaling::read([scale.as_deref(), None], inputs.problem, None)?);
        }
        let file = |name: &str| self.given.get::<String>(name);
        let [scales, zeros] = [["scale-a", "scale-b"], ["zero-a", "zero-b"]].map(|names| names.map(file));
        let said = weights::Said {
            scales: scales.each_ref().map(Option::as_deref),
            zeros: zeros.each_ref().map(Option::as_deref),
        };
        let matrix = inputs.files.as_ref().map(|[a, b]| if few_bits.is_b { b } else { a });
        few_bits.read(said, inputs.problem, matrix)
    }
}
