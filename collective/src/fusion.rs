//! The usual fused epilogues by name: trees that kernel selection and the catalogue know.

use core::marker::PhantomData;
use std::sync::Arc;

use typenum::U128;

use crate::F8E4M3;
use crate::element::{Element, Format};
use crate::epilogue::{EpilogueEmitter, StoreSpec, Treed};
use crate::plan::EpilogueSpec;
use crate::tree::{
    Amax, Cyclic, Dropout, GeGlu, LinearBias, LinearBiasGelu, LinearBiasRelu, LinearBiasScaled,
    LinearBiasSilu, LinearResidual, Node, OrderedRow, Quantize, ReduceRow, Rotate, RowColumnScaled,
    RowScaled, Scaled, Sum, SwiGlu, SwiGluBlocks, SwiGluSplit,
};

/// Defines the fusions from a table: variant, name, formula of D, and tree. `T` is the format of the tree's
/// vectors and matrices. `$d` is a dollar sign, for the macro that the table defines.
macro_rules! fusions {
    ($d:tt $($variant:ident $name:literal $formula:literal $tree:ty;)*) => {
        /// A fused epilogue with a name, as the command line and specs use it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Fusion {
            $(#[doc = concat!("`", $formula, "`.")] $variant,)*
        }

        impl Fusion {
            /// Every fusion.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// Its name on the command line and in kernel names.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// The formula of D.
            pub const fn formula(self) -> &'static str {
                match self { $(Self::$variant => $formula),* }
            }

            /// The tree as a Rust type, with names of [`tree`](crate::tree). `T` is the type of its vectors and
            /// matrices.
            pub const fn tree(self) -> &'static str {
                match self { $(Self::$variant => stringify!($tree)),* }
            }
        }

        /// The trees of the fusions.
        pub trait Trees {
            $(#[doc = concat!("`", $formula, "`.")] type $variant: Node;)*
        }

        impl<T: Element> Trees for TreesOf<T> {
            $(type $variant = $tree;)*
        }

        /// Binds the type `$x` to the tree of a fusion for operands of a format, and expands `$body` once per
        /// tree. With 16-bit operands, the tree's vectors and matrices have the operands' format. With 8-bit
        /// operands they are `bf16`.
        #[macro_export]
        macro_rules! with_fusion {
            ($d fusion:expr, $d format:expr, $d x:ident => $d body:expr) => {
                match ($d fusion, $d format) {$(
                    ($crate::Fusion::$variant, $crate::Format::F16) => {
                        type $d x = <$crate::TreesOf<half::f16> as $crate::Trees>::$variant;
                        $d body
                    }
                    ($crate::Fusion::$variant, _) => {
                        type $d x = <$crate::TreesOf<half::bf16> as $crate::Trees>::$variant;
                        $d body
                    }
                )*}
            };
        }
    };
}

/// The [`Trees`] whose vectors and matrices are made of `T`.
#[derive(Clone, Copy, Debug)]
pub struct TreesOf<T>(PhantomData<T>);

fusions! { $
    Scaled "scaled" "alpha * A * B" Scaled;
    Bias "bias" "alpha * A * B + bias" LinearBias<T>;
    BiasRelu "bias-relu" "relu(alpha * A * B + bias)" LinearBiasRelu<T>;
    BiasGelu "bias-gelu" "gelu(alpha * A * B + bias)" LinearBiasGelu<T>;
    BiasSilu "bias-silu" "silu(alpha * A * B + bias)" LinearBiasSilu<T>;
    Residual "residual" "alpha * A * B + bias + beta * C" LinearResidual<T>;
    RowScaled "row-scaled" "scale * A * B + bias, a scale for each row" RowScaled<T>;
    Swiglu "swiglu" "silu(gate) * up of alternating columns of alpha * A * B" SwiGlu;
    SwigluBlocks "swiglu-blocks" "silu(gate) * up of alpha * A * B, whose columns are 8 gates, 8 ups, and so on" SwiGluBlocks;
    SwigluSplit "swiglu-split" "silu(gate) * up of alpha * A * B, whose columns are all gates, then all ups" SwiGluSplit;
    BiasDropout "bias-dropout" "dropout(alpha * A * B + bias), scaled" Dropout<LinearBias<T>>;
    Rope "rope" "pairs of columns of alpha * A * B, rotated by a table of 128 columns, cosine and sine" Rotate<Scaled, Cyclic<T, U128>>;
    BiasSumsOrdered "bias-sums-ordered" "alpha * A * B + bias, and the sums of its columns, the same bits in every run" OrderedRow<Sum, LinearBias<T>>;
    Geglu "geglu" "gelu(gate) * up of alternating columns of alpha * A * B" GeGlu;
    BiasAmax "bias-amax" "alpha * A * B + bias, and its largest magnitude" Amax<LinearBias<T>>;
    BiasSums "bias-sums" "alpha * A * B + bias, and the sums of its columns" ReduceRow<Sum, LinearBias<T>>;
    BiasFp8 "bias-fp8" "e4m3(scale * (alpha * A * B + bias)), and the largest magnitude before the scale" LinearBiasScaled<T>;
    RowColumnScaled "row-column-scaled" "A * B * rows * columns, a scale in f32 for each row and for each column" RowColumnScaled;
    Quantized "quantized" "e4m3(alpha * A * B / scale), and a scale for each 128 columns of a row" Quantize<F8E4M3, Scaled>;
}

impl Fusion {
    /// The fusion of this name; `None` if there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fusion| fusion.name() == name)
    }

    /// D's default format for operands of this format.
    pub const fn output(self, operand: Format) -> Format {
        if matches!(self, Self::BiasFp8 | Self::Quantized) { Format::E4m3 } else { operand.output() }
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
