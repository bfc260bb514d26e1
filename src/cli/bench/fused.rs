//! cuBLASLt's fusions: which of ours it has, and what arguments they read.

use crate::verify::{Bench as Inputs, Format};
use collective::Formula;
use kernel::{Buffer, Engine, EngineError, GemmProblem, Gpu, Types};
use peers::cublaslt::{Fused, FusedActivation};

/// A fusion of cuBLASLt with random arguments.
pub(super) struct Peer {
    /// The requested fusion.
    pub(super) fused: Fused,
    /// One C per set of matrices, if the formula has a C.
    pub(super) cs: Vec<u64>,
    buffers: Vec<Buffer>,
}

/// cuBLASLt's counterpart of a formula.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Has {
    /// A bias, an activation, and a factor of C.
    Bias(FusedActivation, f32),
    /// One scale per row and one per column, for 8-bit floats.
    Scales,
}

/// cuBLASLt's fusion of the same formula.
fn of_peer(fusion: Formula, types: Types) -> Option<Has> {
    match fusion.name() {
        "bias" => Some(Has::Bias(FusedActivation::Identity, 0.0)),
        "bias-relu" => Some(Has::Bias(FusedActivation::Relu, 0.0)),
        "bias-gelu" => Some(Has::Bias(FusedActivation::Gelu, 0.0)),
        "residual" => Some(Has::Bias(FusedActivation::Identity, 0.5)),
        "row-column-scaled" if types.bytes()[0] == 1 && types.a.is_float() => Some(Has::Scales),
        _ => None,
    }
}

impl Peer {
    /// cuBLASLt's fusion of a formula for a number of sets of matrices, if it has one.
    pub(super) fn new(
        gpu: &mut Gpu,
        fusion: Formula,
        types: Types,
        GemmProblem { m, n, .. }: GemmProblem,
        sets: usize,
    ) -> Result<Option<Self>, EngineError> {
        let Some(has) = of_peer(fusion, types) else { return Ok(None) };
        let mut inputs = Inputs::aligned(gpu, 1000);
        let mut cs = Vec::new();
        let fused = match has {
            Has::Bias(activation, beta) => {
                let d = Format::named(fusion.output(types.a).name()).unwrap_or(Format::F32);
                for _ in (0..sets).filter(|_| beta != 0.0) {
                    cs.push(inputs.random(d, m * n, 0)?);
                }
                Fused::Bias { activation, bias: inputs.random(d, n, 0)?, beta }
            }
            Has::Scales => {
                let (rows, columns) = (inputs.random(Format::F32, m, 0)?, inputs.random(Format::F32, n, 0)?);
                Fused::Scaled { rows, columns }
            }
        };
        Ok(Some(Self { fused, cs, buffers: inputs.buffers() }))
    }

    /// Frees the arguments.
    pub(super) fn free(self, gpu: &mut Gpu) -> Result<(), EngineError> {
        self.buffers.into_iter().try_for_each(|buffer| gpu.free(buffer))
    }
}

#[cfg(test)]
mod tests {
    use collective::{Format, Formula};
    use kernel::Types;

    use super::of_peer;

    #[test]
    fn the_peers_fusions_are_some_of_ours() {
        for (format, want) in [
            (Format::Bf16, &["bias", "bias-relu", "bias-gelu", "residual"][..]),
            (Format::E4m3, &["bias", "bias-relu", "bias-gelu", "residual", "row-column-scaled"]),
        ] {
            let has = |fusion: &Formula| of_peer(*fusion, Types::of(format)).is_some();
            let names: Vec<_> = Formula::all().filter(has).map(Formula::name).collect();
            assert_eq!(names, want, "{format}");
        }
    }
}
