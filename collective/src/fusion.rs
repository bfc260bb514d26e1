//! The usual fused epilogues by name: trees that kernel selection and the catalogue know.

use crate::element::Format;
use crate::epilogue::{EpilogueEmitter, StoreSpec, Treed};
use crate::plan::EpilogueSpec;
use std::sync::Arc;

/// A fused epilogue with a name, as the command line and specs use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fusion {
    /// `alpha * A * B`.
    Scaled,
    /// `alpha * A * B + bias`.
    Bias,
    /// `relu(alpha * A * B + bias)`.
    BiasRelu,
    /// `gelu(alpha * A * B + bias)`.
    BiasGelu,
    /// `silu(alpha * A * B + bias)`.
    BiasSilu,
    /// `alpha * A * B + bias + beta * C`.
    Residual,
    /// `scale * A * B + bias`, with one scale per row.
    RowScaled,
    /// `silu(gate) * up` of alternating columns.
    Swiglu,
    /// As [`Swiglu`](Self::Swiglu), with columns in alternating blocks of 8 gates and 8 ups.
    SwigluBlocks,
    /// As [`Swiglu`](Self::Swiglu), with all gates first, then all ups.
    SwigluSplit,
    /// Dropout of `alpha * A * B + bias`.
    BiasDropout,
    /// Rotary position embedding.
    Rope,
    /// `alpha * A * B + bias` and the sums of its columns, with the same bits in every run.
    BiasSumsOrdered,
    /// `gelu(gate) * up` of alternating columns.
    Geglu,
    /// `alpha * A * B + bias` and its largest magnitude.
    BiasAmax,
    /// `alpha * A * B + bias` and the sums of its columns.
    BiasSums,
    /// `alpha * A * B + bias` in e4m3, and its largest magnitude.
    BiasFp8,
    /// `rows * A * B * columns`, with one scale per row and one per column.
    RowColumnScaled,
    /// `alpha * A * B` in e4m3, with one scale per 128 columns of a row.
    Quantized,
}

/// Binds the type `$x` to the tree of a fusion for operands of a format, and expands `$body` once per tree.
/// With 16-bit operands, the tree's vectors and matrices have the operands' format. With 8-bit operands they
/// are `bf16`.
#[macro_export]
macro_rules! with_fusion {
    ($fusion:expr, $format:expr, $x:ident => $body:expr) => {
        if matches!($format, $crate::Format::F16) {
            $crate::with_fusion!(@ half::f16, $fusion, $x => $body)
        } else {
            $crate::with_fusion!(@ half::bf16, $fusion, $x => $body)
        }
    };
    (@ $t:ty, $fusion:expr, $x:ident => $body:expr) => {
        match $fusion {
            $crate::Fusion::Scaled => { type $x = $crate::tree::Scaled; $body }
            $crate::Fusion::Bias => { type $x = $crate::tree::LinearBias<$t>; $body }
            $crate::Fusion::BiasRelu => { type $x = $crate::tree::LinearBiasRelu<$t>; $body }
            $crate::Fusion::BiasGelu => { type $x = $crate::tree::LinearBiasGelu<$t>; $body }
            $crate::Fusion::BiasSilu => { type $x = $crate::tree::LinearBiasSilu<$t>; $body }
            $crate::Fusion::Residual => { type $x = $crate::tree::LinearResidual<$t>; $body }
            $crate::Fusion::RowScaled => { type $x = $crate::tree::RowScaled<$t>; $body }
            $crate::Fusion::Swiglu => { type $x = $crate::tree::SwiGlu; $body }
            $crate::Fusion::SwigluBlocks => { type $x = $crate::tree::SwiGluBlocks; $body }
            $crate::Fusion::SwigluSplit => { type $x = $crate::tree::SwiGluSplit; $body }
            $crate::Fusion::BiasDropout => { type $x = $crate::tree::Dropout<$crate::tree::LinearBias<$t>>; $body }
            $crate::Fusion::Rope => {
                type $x = $crate::tree::Rotate<$crate::tree::Scaled, $crate::tree::Cyclic<$t, typenum::U128>>;
                $body
            }
            $crate::Fusion::BiasSumsOrdered => {
                type $x = $crate::tree::OrderedRow<$crate::tree::Sum, $crate::tree::LinearBias<$t>>;
                $body
            }
            $crate::Fusion::Geglu => { type $x = $crate::tree::GeGlu; $body }
            $crate::Fusion::BiasAmax => { type $x = $crate::tree::Amax<$crate::tree::LinearBias<$t>>; $body }
            $crate::Fusion::BiasSums => {
                type $x = $crate::tree::ReduceRow<$crate::tree::Sum, $crate::tree::LinearBias<$t>>;
                $body
            }
            $crate::Fusion::BiasFp8 => { type $x = $crate::tree::LinearBiasScaled<$t>; $body }
            $crate::Fusion::RowColumnScaled => { type $x = $crate::tree::RowColumnScaled; $body }
            $crate::Fusion::Quantized => {
                type $x = $crate::tree::Quantize<$crate::F8E4M3, $crate::tree::Scaled>;
                $body
            }
        }
    };
}

impl Fusion {
    /// Every fusion.
    pub const ALL: [Self; 19] = [
        Self::Scaled,
        Self::Bias,
        Self::BiasRelu,
        Self::BiasGelu,
        Self::BiasSilu,
        Self::Residual,
        Self::RowScaled,
        Self::Swiglu,
        Self::SwigluBlocks,
        Self::SwigluSplit,
        Self::BiasDropout,
        Self::Rope,
        Self::BiasSumsOrdered,
        Self::Geglu,
        Self::BiasAmax,
        Self::BiasSums,
        Self::BiasFp8,
        Self::RowColumnScaled,
        Self::Quantized,
    ];

    /// Its name on the command line and in kernel names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scaled => "scaled",
            Self::Bias => "bias",
            Self::BiasRelu => "bias-relu",
            Self::BiasGelu => "bias-gelu",
            Self::BiasSilu => "bias-silu",
            Self::Residual => "residual",
            Self::RowScaled => "row-scaled",
            Self::Swiglu => "swiglu",
            Self::SwigluBlocks => "swiglu-blocks",
            Self::SwigluSplit => "swiglu-split",
            Self::BiasDropout => "bias-dropout",
            Self::Rope => "rope",
            Self::BiasSumsOrdered => "bias-sums-ordered",
            Self::Geglu => "geglu",
            Self::BiasAmax => "bias-amax",
            Self::BiasSums => "bias-sums",
            Self::BiasFp8 => "bias-fp8",
            Self::RowColumnScaled => "row-column-scaled",
            Self::Quantized => "quantized",
        }
    }

    /// The formula of D.
    pub const fn formula(self) -> &'static str {
        match self {
            Self::Scaled => "alpha * A * B",
            Self::Bias => "alpha * A * B + bias",
            Self::BiasRelu => "relu(alpha * A * B + bias)",
            Self::BiasGelu => "gelu(alpha * A * B + bias)",
            Self::BiasSilu => "silu(alpha * A * B + bias)",
            Self::Residual => "alpha * A * B + bias + beta * C",
            Self::RowScaled => "scale * A * B + bias, a scale for each row",
            Self::Swiglu => "silu(gate) * up of alternating columns of alpha * A * B",
            Self::SwigluBlocks => {
                "silu(gate) * up of alpha * A * B, whose columns are 8 gates, 8 ups, and so on"
            }
            Self::SwigluSplit => {
                "silu(gate) * up of alpha * A * B, whose columns are all gates, then all ups"
            }
            Self::BiasDropout => "dropout(alpha * A * B + bias), scaled",
            Self::Rope => {
                "pairs of columns of alpha * A * B, rotated by a table of 128 columns, cosine and sine"
            }
            Self::BiasSumsOrdered => {
                "alpha * A * B + bias, and the sums of its columns, the same bits in every run"
            }
            Self::Geglu => "gelu(gate) * up of alternating columns of alpha * A * B",
            Self::BiasAmax => "alpha * A * B + bias, and its largest magnitude",
            Self::BiasSums => "alpha * A * B + bias, and the sums of its columns",
            Self::BiasFp8 => {
                "e4m3(scale * (alpha * A * B + bias)), and the largest magnitude before the scale"
            }
            Self::Quantized => "e4m3(alpha * A * B / scale), and a scale for each 128 columns of a row",
            Self::RowColumnScaled => {
                "A * B * rows * columns, a scale in f32 for each row and for each column"
            }
        }
    }

    /// The fusion of this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fusion| fusion.name() == name)
    }

    /// D's default format for operands of this format.
    pub const fn output(self, operand: Format) -> Format {
        match self {
            Self::BiasFp8 | Self::Quantized => Format::E4m3,
            Self::Scaled
            | Self::Bias
            | Self::BiasRelu
            | Self::BiasGelu
            | Self::BiasSilu
            | Self::Residual
            | Self::RowScaled
            | Self::Swiglu
            | Self::SwigluBlocks
            | Self::SwigluSplit
            | Self::BiasDropout
            | Self::Rope
            | Self::BiasSumsOrdered
            | Self::Geglu
            | Self::BiasAmax
            | Self::BiasSums
            | Self::RowColumnScaled => operand.output(),
        }
    }

    /// The error for operands of other formats.
    pub const OPERANDS: &str = "named fusions are for operands of bf16, f16 and 8-bit floats: use epilogue=linear or sourced, or a \
                                TreeEpilogue type";

    /// Whether a fusion accepts operands of this format.
    pub const fn takes(operand: Format) -> bool {
        operand.is_float() && operand.bits() <= 16
    }

    /// What the epilogue asks of the plan, for operands of this format.
    ///
    /// # Errors
    /// A sentence, if the tree cannot be stored in this way.
    pub const fn spec(self, operand: Format, store: StoreSpec) -> Result<EpilogueSpec, &'static str> {
        with_fusion!(self, operand, X => Treed::<X>::spec(store))
    }

    /// The epilogue, for operands of this format.
    pub fn emitter(self, operand: Format, store: StoreSpec) -> Arc<dyn EpilogueEmitter> {
        with_fusion!(self, operand, X => Arc::new(Treed::<X>::new(store)))
    }
}
