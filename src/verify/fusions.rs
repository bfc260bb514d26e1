//! The usual fusions by name, for the command line.

use collective::tree::{
    Amax, GeGlu, LinearBias, LinearBiasGelu, LinearBiasRelu, LinearBiasSilu, LinearResidual, ReduceRow,
    RowScaled, Scaled, Shape, Sum, SwiGlu,
};
use collective::{
    Cooperative, DirectStore, KMajor, MultipliesWith, Operands, Tile, TmaStore, TmaWgmma, TreeEpilogue,
};
use half::{bf16, f16};
use kernel::{Composed, GemmProblem};
use scheduler::{AlongM, Grouped, Persistent};
use typenum::{U2, U8, U64, U128};

use super::tree::Checked;
use super::{Bench, Format, Sample, TreeError};

/// A kernel with a fused epilogue, on random matrices.
type Run = fn(&mut Bench<'_>, GemmProblem) -> Result<Checked, TreeError>;

/// A fused epilogue.
#[derive(Clone, Copy, Debug)]
pub struct Fusion {
    /// Its name.
    pub name: &'static str,
    /// What D is.
    pub formula: &'static str,
    bf16: Run,
    f16: Run,
}

impl Fusion {
    /// Runs it on random matrices and compares everything that it writes with its tree.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(
        &self,
        bench: &mut Bench<'_>,
        format: Format,
        problem: GemmProblem,
    ) -> Result<Checked, TreeError> {
        match format {
            Format::Bf16 => (self.bf16)(bench, problem),
            Format::F16 => (self.f16)(bench, problem),
        }
    }
}

/// A 128 x 128 tile, two consumer warpgroups, persistent, with a tree.
type Fused<T, S, X> = Composed<
    TmaWgmma<Operands<KMajor<T>, KMajor<T>>, Tile<U128, U128, U64>, Cooperative<U2>>,
    TreeEpilogue<T, S, X>,
    Persistent<Grouped<AlongM, U8>>,
>;

fn run<T: MultipliesWith<T>, X: Sample>(
    bench: &mut Bench<'_>,
    problem: GemmProblem,
) -> Result<Checked, TreeError> {
    let n = problem.n >> X::FACTS.halvings.unwrap_or(0);
    let arguments = X::sample(bench, Shape { m: problem.m, n })?;
    // Tensor stores need rows of whole 16 bytes.
    if n.is_multiple_of(8) {
        bench.check::<Fused<T, TmaStore, X>>(problem, &arguments)
    } else {
        bench.check::<Fused<T, DirectStore, X>>(problem, &arguments)
    }
}

/// Every fusion.
pub fn fusions() -> Vec<Fusion> {
    macro_rules! fusions {
        ($($name:literal, $formula:literal, |$t:ident| $tree:ty;)*) => {
            vec![$(Fusion {
                name: $name,
                formula: $formula,
                bf16: { type $t = bf16; run::<$t, $tree> },
                f16: { type $t = f16; run::<$t, $tree> },
            }),*]
        };
    }
    fusions! {
        "scaled", "alpha * A * B", |T| Scaled;
        "bias", "alpha * A * B + bias", |T| LinearBias<T>;
        "bias-relu", "relu(alpha * A * B + bias)", |T| LinearBiasRelu<T>;
        "bias-gelu", "gelu(alpha * A * B + bias)", |T| LinearBiasGelu<T>;
        "bias-silu", "silu(alpha * A * B + bias)", |T| LinearBiasSilu<T>;
        "residual", "alpha * A * B + bias + beta * C", |T| LinearResidual<T>;
        "row-scaled", "scale * A * B + bias, a scale for each row", |T| RowScaled<T>;
        "swiglu", "silu(gate) * up of alternating columns of alpha * A * B", |T| SwiGlu;
        "geglu", "gelu(gate) * up of alternating columns of alpha * A * B", |T| GeGlu;
        "bias-amax", "alpha * A * B + bias, and its largest magnitude", |T| Amax<LinearBias<T>>;
        "bias-sums", "alpha * A * B + bias, and the sums of its columns", |T| ReduceRow<Sum, LinearBias<T>>;
    }
}
