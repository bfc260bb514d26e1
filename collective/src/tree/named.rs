//! Named trees: structs with named arguments, and the usual fusions.

use core::marker::PhantomData;

use typenum::U8;

use super::{
    Accumulator, Amax, Begin, Blocks, Bounded, ColumnArgument, ColumnVector, Compute, Declare, Gated, Glu,
    Host, Node, NodeTraits, Residual, ResidualArgument, RowArgument, RowVector, Scalar, ScalarPointer, Shape,
    Site, Split,
};
use crate::functions::{Add, GeluTanh, Multiply, MultiplyAdd, MultiplyAddGelu, Relu, Silu};
use crate::real::{Fast, Fastest};

/// A name as a type.
pub trait Label: 'static {
    /// The name.
    const NAME: &'static str;
}

/// X, named `L` in error messages instead of by its path.
#[derive(Clone, Copy, Debug)]
pub struct Named<L, X>(PhantomData<(L, X)>);

impl<L: Label, X: Node> Node for Named<L, X> {
    type Arguments = X::Arguments;
    const TRAITS: NodeTraits = X::TRAITS;

    fn name() -> String {
        X::name()
    }

    fn visit(arguments: &mut X::Arguments, shape: Shape, site: &mut Site<'_>) {
        X::visit(arguments, shape, &mut site.named(L::NAME));
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Begin<'f> {
        X::declare(declare)
    }

    fn evaluate(host: &mut Host<'_>, arguments: &X::Arguments, at: [u32; 2]) -> Bounded {
        X::evaluate(host, arguments, at)
    }
}

/// Defines types that are names: `labels! { pub Bias = "bias"; }`.
#[macro_export]
macro_rules! labels {
    ($($(#[$doc:meta])* $vis:vis $name:ident = $text:literal;)*) => {$(
        #[doc = concat!("The name `", $text, "`.")]
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name;
        impl $crate::tree::Label for $name {
            const NAME: &'static str = $text;
        }
    )*};
}

/// Defines a node of a tree whose arguments are a struct with named fields, and says where each of them is among
/// the tree's arguments.
///
/// ```
/// use collective::functions::{Add, Tanh};
/// use collective::tree::{Accumulator, Compute, Named, Node, RowArgument, RowVector};
///
/// collective::labels! {
///     Bias = "bias";
/// }
/// collective::epilogue! {
///     /// `tanh(acc + bias)`.
///     pub struct BiasTanh<T>: Compute<Tanh, (Compute<Add, (Accumulator, Named<Bias, RowVector<T>>)>,)>;
///     arguments RowArgument, [bias] = ((), (((), ((), bias)),));
/// }
/// assert_eq!(BiasTanh::<half::bf16>::name(), "tanh_add_acc_rbf16");
/// ```
#[macro_export]
macro_rules! epilogue {
    ($(
        $(#[$doc:meta])* $vis:vis struct $name:ident $(<$t:ident>)? : $tree:ty;
        arguments $arguments:ty, [$($pattern:tt)+] = $tuple:tt;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name $(<$t>(::core::marker::PhantomData<$t>))?;

        impl $(<$t: $crate::Element>)? $name $(<$t>)? {
            fn of_tree(given: &$arguments) -> <$tree as $crate::tree::Node>::Arguments {
                let $($pattern)+ = *given;
                $tuple
            }
        }

        impl $(<$t: $crate::Element>)? $crate::tree::Node for $name $(<$t>)? {
            type Arguments = $arguments;
            const TRAITS: $crate::tree::NodeTraits = <$tree as $crate::tree::Node>::TRAITS;

            fn name() -> String {
                <$tree as $crate::tree::Node>::name()
            }

            fn visit(
                given: &mut $arguments,
                shape: $crate::tree::Shape,
                site: &mut $crate::tree::Site<'_>,
            ) {
                let mut arguments = Self::of_tree(given);
                <$tree as $crate::tree::Node>::visit(&mut arguments, shape, site);
                let $tuple = arguments;
                *given = $($pattern)+;
            }

            fn declare<'f>(declare: &mut $crate::tree::Declare<'f>) -> $crate::tree::Begin<'f> {
                <$tree as $crate::tree::Node>::declare(declare)
            }
            fn evaluate(
                host: &mut $crate::tree::Host<'_>,
                arguments: &$arguments,
                at: [u32; 2],
            ) -> $crate::tree::Bounded {
                <$tree as $crate::tree::Node>::evaluate(host, &Self::of_tree(arguments), at)
            }
        }
    )*};
}

labels! {
    Bias = "bias";
    Source = "C";
    Scale = "scale";
    Largest = "amax";
    RowScales = "row scales";
    ColumnScales = "column scales";
}

/// Arguments of [`LinearBias`] and of its variants with an activation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearBiasArguments {
    /// Factor of A * B.
    pub alpha: f32,
    /// The bias, one element per column.
    pub bias: RowArgument,
}

/// Arguments of [`LinearResidual`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearResidualArguments {
    /// Factor of A * B.
    pub alpha: f32,
    /// The bias, one element per column.
    pub bias: RowArgument,
    /// Factor and address of the residual.
    pub residual: ResidualArgument,
}

/// Arguments of [`RowScaled`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowScaledArguments {
    /// One factor per row.
    pub scale: ColumnArgument,
    /// The bias, one element per column.
    pub bias: RowArgument,
}

/// Arguments of [`RowColumnScaled`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowColumnScaledArguments {
    /// One factor per row.
    pub rows: ColumnArgument,
    /// One factor per column.
    pub columns: RowArgument,
}

/// Arguments of [`LinearBiasScaled`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearBiasScaledArguments {
    /// Factor of A * B.
    pub alpha: f32,
    /// The bias, one element per column.
    pub bias: RowArgument,
    /// Device address of an `f32` with which the largest magnitude is combined. Set it to zero before the
    /// first launch.
    pub amax: u64,
    /// Device address of an `f32`, the factor of the result.
    pub scale: u64,
}

/// Arguments of [`Scaled`], [`SwiGlu`] in all orders and [`GeGlu`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaledArguments {
    /// Factor of A * B.
    pub alpha: f32,
}

/// `alpha * acc + bias`.
type Biased<T> = Compute<MultiplyAdd, (Accumulator, Scalar, Named<Bias, RowVector<T>>)>;

/// `alpha * acc`.
type ScaledTree = Compute<Multiply, (Accumulator, Scalar)>;

epilogue! {
    /// `alpha * acc`.
    pub struct Scaled: ScaledTree;
    arguments ScaledArguments, [ScaledArguments { alpha }] = ((), ((), alpha));

    /// `alpha * acc + bias`.
    pub struct LinearBias<T>: Biased<T>;
    arguments LinearBiasArguments, [LinearBiasArguments { alpha, bias }] = ((), ((), alpha, bias));

    /// `relu(alpha * acc + bias)`.
    pub struct LinearBiasRelu<T>: Compute<Relu, (Biased<T>,)>;
    arguments LinearBiasArguments, [LinearBiasArguments { alpha, bias }] = ((), (((), ((), alpha, bias)),));

    /// `gelu(alpha * acc + bias)`, the tanh form, with the hardware's approximation: 11 bits.
    pub struct LinearBiasGelu<T>:
        Compute<MultiplyAddGelu<Fastest>, (Accumulator, Scalar, Named<Bias, RowVector<T>>)>;
    arguments LinearBiasArguments, [LinearBiasArguments { alpha, bias }] = ((), ((), alpha, bias));

    /// `silu(alpha * acc + bias)`, accurate to a few ulp of f32.
    pub struct LinearBiasSilu<T>: Compute<Silu<Fast>, (Biased<T>,)>;
    arguments LinearBiasArguments, [LinearBiasArguments { alpha, bias }] = ((), (((), ((), alpha, bias)),));

    /// `alpha * acc + bias + beta * C`.
    pub struct LinearResidual<T>: Compute<Add, (Biased<T>, Named<Source, Residual<T>>)>;
    arguments LinearResidualArguments, [LinearResidualArguments { alpha, bias, residual }] = ((), (((), ((), alpha, bias)), residual));

    /// `scale * (alpha * acc + bias)`, and the largest magnitude before scaling. For 8-bit results, whose
    /// next scale is computed from that magnitude.
    pub struct LinearBiasScaled<T>:
        Compute<Multiply, (Named<Largest, Amax<Biased<T>>>, Named<Scale, ScalarPointer<f32>>)>;
    arguments LinearBiasScaledArguments, [LinearBiasScaledArguments { alpha, bias, amax, scale }] = ((), ((amax, ((), ((), alpha, bias))), scale));

    /// `scale * acc + bias`, with one factor per row and one bias per column. For operands that were
    /// quantised row by row.
    pub struct RowScaled<T>:
        Compute<MultiplyAdd, (Accumulator, Named<Scale, ColumnVector<T>>, Named<Bias, RowVector<T>>)>;
    arguments RowScaledArguments, [RowScaledArguments { scale, bias }] = ((), ((), scale, bias));

    /// `acc * rows * columns`, with one `f32` factor per row and one per column. For 8-bit operands that were
    /// quantised row by row, and column by column.
    pub struct RowColumnScaled: Compute<
        Multiply,
        (
            Compute<Multiply, (Accumulator, Named<RowScales, ColumnVector<f32>>)>,
            Named<ColumnScales, RowVector<f32>>,
        ),
    >;
    arguments RowColumnScaledArguments, [RowColumnScaledArguments { rows, columns }] = ((), (((), ((), rows)), columns));

    /// `silu(gate) * up` of alternating columns of `alpha * acc`: D has N / 2 columns.
    pub struct SwiGlu: Gated<Glu<Silu<Fast>>, ScaledTree>;
    arguments ScaledArguments, [ScaledArguments { alpha }] = ((), ((), ((), alpha)));

    /// As [`SwiGlu`] with columns in [`Blocks`] of 8 gates and 8 ups: no shuffles.
    pub struct SwiGluBlocks: Gated<Glu<Silu<Fast>>, ScaledTree, Blocks<U8>>;
    arguments ScaledArguments, [ScaledArguments { alpha }] = ((), ((), ((), alpha)));

    /// As [`SwiGlu`] with all gates before all ups, as in the concatenation of two weight matrices.
    pub struct SwiGluSplit: Gated<Glu<Silu<Fast>>, ScaledTree, Split>;
    arguments ScaledArguments, [ScaledArguments { alpha }] = ((), ((), ((), alpha)));

    /// `gelu(gate) * up` of alternating columns of `alpha * acc`, with the tanh form of gelu. D has N / 2
    /// columns.
    pub struct GeGlu: Gated<Glu<GeluTanh<Fastest>>, ScaledTree>;
    arguments ScaledArguments, [ScaledArguments { alpha }] = ((), ((), ((), alpha)));
}
