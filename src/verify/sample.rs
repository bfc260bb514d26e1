//! Random arguments for epilogue trees.
//!
//! ```
//! use falchion::collective::tree::{LinearBias, Shape};
//! use falchion::prelude::*;
//! use falchion::verify::{Bench, Sample};
//!
//! let mut emulator = Emulator::new();
//! let mut bench = Bench::new(&mut emulator, 1);
//! let arguments = LinearBias::<bf16>::sample(&mut bench, Shape { m: 70, n: 40 })?;
//! assert_eq!(arguments.bias.len, 40);
//! # Ok::<(), falchion::kernel::EngineError>(())
//! ```

use collective::functions::Pointwise;
use collective::tree::{
    Accumulator, Bound, ColumnArgument, ColumnVector, Compute, Constant, Gated, GeGlu, Let, LinearBias,
    LinearBiasArguments, LinearBiasGelu, LinearBiasRelu, LinearBiasScaled, LinearBiasScaledArguments,
    LinearBiasSilu, LinearResidual, LinearResidualArguments, Load, MatrixArgument, Named, Node, Quantize,
    Reduce, ReduceColumn, ReduceRow, ReduceScalar, Residual, ResidualArgument, RowArgument, RowColumnScaled,
    RowColumnScaledArguments, RowScaled, RowScaledArguments, RowVector, Scalar, ScalarPointer, Scaled,
    ScaledArguments, Shape, SwiGlu,
};
use collective::tree::{
    AuxStore, Cyclic, Dropout, DropoutArgument, GateOrder, Label, OrderedColumn, OrderedRow, OrderedScalar,
    Rotate, SwiGluBlocks, SwiGluSplit, TopKSoftmax,
};
use collective::{Accuracy, Element, Scalars};
use kernel::EngineError;
use typenum::Unsigned;

use super::{Bench, Format};

/// A tree for which random arguments can be drawn.
pub trait Sample: Node {
    /// Draws arguments for a value of this shape: vectors and matrices of random numbers, uploaded to the
    /// bench's engine.
    ///
    /// # Errors
    /// The engine fails.
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError>;
}

/// Arguments of functions that can be drawn at random.
pub trait RandomScalars: Scalars {
    /// Makes the arguments from numbers that `next` returns.
    fn random(next: &mut dyn FnMut() -> f32) -> Self;
}

impl RandomScalars for () {
    fn random(_next: &mut dyn FnMut() -> f32) {}
}

impl RandomScalars for f32 {
    fn random(next: &mut dyn FnMut() -> f32) -> Self {
        next()
    }
}

impl<const N: usize> RandomScalars for [f32; N] {
    fn random(next: &mut dyn FnMut() -> f32) -> Self {
        let mut all = core::array::from_fn(|_| next());
        // The lower limit comes first.
        all.sort_by(f32::total_cmp);
        all
    }
}

/// Random elements of type `T`. The first is up to two elements after an aligned address.
fn elements<T: Element>(bench: &mut Bench<'_>, count: u32) -> Result<u64, EngineError> {
    let shift = bench.shift();
    bench.random(Format::named(T::FORMAT.name()).unwrap_or(Format::Bf16), count, shift)
}

/// A random row-major matrix with up to two elements between its rows.
fn matrix(
    bench: &mut Bench<'_>,
    Shape { m, n }: Shape,
    format: Format,
) -> Result<MatrixArgument, EngineError> {
    let pitch = n + bench.shift();
    let shift = bench.shift();
    Ok(MatrixArgument { address: bench.random(format, m * pitch, shift)?, pitch: pitch.into() })
}

/// Initial values that do not change a reduction's result.
fn identities<O: Reduce>(bench: &mut Bench<'_>, count: u32) -> Result<u64, EngineError> {
    bench.upload(&O::IDENTITY.to_le_bytes().repeat(count as usize))
}

macro_rules! nothing {
    ($([$($generics:tt)*] $node:ty;)*) => {$(
        impl<$($generics)*> Sample for $node {
            fn sample(_bench: &mut Bench<'_>, _shape: Shape) -> Result<(), EngineError> {
                Ok(())
            }
        }
    )*};
}

nothing! {
    [] Accumulator;
    [N: Unsigned + 'static, D: Unsigned + 'static] Constant<N, D>;
    [D: Unsigned + 'static] Bound<D>;
}

impl Sample for Scalar {
    fn sample(bench: &mut Bench<'_>, _shape: Shape) -> Result<f32, EngineError> {
        Ok(bench.number())
    }
}

impl<T: Element> Sample for ScalarPointer<T> {
    fn sample(bench: &mut Bench<'_>, _shape: Shape) -> Result<u64, EngineError> {
        elements::<T>(bench, 1)
    }
}

impl<T: Element> Sample for RowVector<T> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<RowArgument, EngineError> {
        Ok(RowArgument { address: elements::<T>(bench, shape.n)?, len: shape.n })
    }
}

impl<T: Element> Sample for ColumnVector<T> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<ColumnArgument, EngineError> {
        Ok(ColumnArgument { address: elements::<T>(bench, shape.m)?, len: shape.m })
    }
}

impl<T: Element> Sample for Load<T> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<MatrixArgument, EngineError> {
        matrix(bench, shape, Format::named(T::FORMAT.name()).unwrap_or(Format::Bf16))
    }
}

impl<T: Element, P: Unsigned + 'static> Sample for Cyclic<T, P> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<MatrixArgument, EngineError> {
        Load::<T>::sample(bench, Shape { n: P::U32, ..shape })
    }
}

impl<T: Element> Sample for Residual<T> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<ResidualArgument, EngineError> {
        if bench.omits() {
            return Ok(ResidualArgument::default());
        }
        Ok(ResidualArgument { beta: bench.number(), c: Some(Load::<T>::sample(bench, shape)?) })
    }
}

impl<T: Element, X: Sample> Sample for AuxStore<T, X> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        let pitch = shape.n + bench.shift();
        let address = bench.output(shape.m as usize * pitch as usize * (T::FORMAT.bytes() as usize))?;
        Ok((MatrixArgument { address, pitch: pitch.into() }, X::sample(bench, shape)?))
    }
}

impl<O: Reduce, X: Sample> Sample for ReduceRow<O, X> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        let row = RowArgument { address: identities::<O>(bench, shape.n)?, len: shape.n };
        Ok((row, X::sample(bench, shape)?))
    }
}

impl<O: Reduce, X: Sample> Sample for ReduceColumn<O, X> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        let column = ColumnArgument { address: identities::<O>(bench, shape.m)?, len: shape.m };
        Ok((column, X::sample(bench, shape)?))
    }
}

impl<O: Reduce, X: Sample> Sample for ReduceScalar<O, X> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        Ok((identities::<O>(bench, 1)?, X::sample(bench, shape)?))
    }
}

impl<T: Element, X: Sample> Sample for Quantize<T, X> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        let pitch = shape.m + bench.shift();
        let address = bench.output(shape.n.div_ceil(128) as usize * pitch as usize * 4)?;
        Ok((MatrixArgument { address, pitch: pitch.into() }, X::sample(bench, shape)?))
    }
}

impl<L: Label, X: Sample> Sample for Named<L, X> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<X::Arguments, EngineError> {
        X::sample(bench, shape)
    }
}

impl<X: Sample, Body: Sample> Sample for Let<X, Body> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        Ok((X::sample(bench, shape)?, Body::sample(bench, shape)?))
    }
}

impl<X: Sample> Sample for Dropout<X> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        let mut word = || u64::from(bench.choose(u32::MAX)) << 32 | u64::from(bench.choose(u32::MAX));
        let (seed, offset) = (word(), word());
        let probability = [0.0, 0.1, 0.5][bench.choose(3) as usize];
        Ok((DropoutArgument { probability, seed, offset }, X::sample(bench, shape)?))
    }
}

impl<X: Sample, A: Sample> Sample for Rotate<X, A> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        Ok((X::sample(bench, shape)?, A::sample(bench, shape)?))
    }
}

impl<K: Unsigned + 'static, X: Sample, A: Accuracy> Sample for TopKSoftmax<K, X, A> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<X::Arguments, EngineError> {
        X::sample(bench, shape)
    }
}

impl<O: Reduce, X: Sample> Sample for OrderedRow<O, X> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        let row = RowArgument { address: identities::<O>(bench, shape.n)?, len: shape.n };
        let scratch = bench.scratch(Self::scratch_bytes(shape))?;
        Ok(((row, scratch), X::sample(bench, shape)?))
    }
}

impl<O: Reduce, X: Sample> Sample for OrderedColumn<O, X> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        let column = ColumnArgument { address: identities::<O>(bench, shape.m)?, len: shape.m };
        let scratch = bench.scratch(Self::scratch_bytes(shape))?;
        Ok(((column, scratch), X::sample(bench, shape)?))
    }
}

impl<O: Reduce, X: Sample> Sample for OrderedScalar<O, X> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        let address = identities::<O>(bench, 1)?;
        let scratch = bench.scratch(Self::scratch_bytes(shape))?;
        Ok(((address, scratch), X::sample(bench, shape)?))
    }
}

impl<F: Pointwise<2, Arguments: RandomScalars>, X: Sample, Order: GateOrder> Sample for Gated<F, X, Order> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        let arguments = F::Arguments::random(&mut || bench.number());
        Ok((arguments, X::sample(bench, Shape { n: shape.n * 2, ..shape })?))
    }
}

macro_rules! compute {
    ($($n:literal: $($node:ident),+;)*) => {$(
        impl<F: Pointwise<$n, Arguments: RandomScalars>, $($node: Sample),+> Sample for Compute<F, ($($node,)+)> {
            fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
                let arguments = F::Arguments::random(&mut || bench.number());
                Ok((arguments, ($($node::sample(bench, shape)?,)+)))
            }
        }
    )*};
}

compute! {
    1: A;
    2: A, B;
    3: A, B, C;
    4: A, B, C, D;
}

macro_rules! structs {
    ($([$($t:ident)?] $node:ty, |$bench:ident, $shape:ident| $arguments:expr;)*) => {$(
        impl $(<$t: Element>)? Sample for $node {
            fn sample($bench: &mut Bench<'_>, $shape: Shape) -> Result<Self::Arguments, EngineError> {
                Ok($arguments)
            }
        }
    )*};
}

/// Draws alpha and a bias.
fn biased<T: Element>(bench: &mut Bench<'_>, shape: Shape) -> Result<LinearBiasArguments, EngineError> {
    Ok(LinearBiasArguments { alpha: bench.number(), bias: RowVector::<T>::sample(bench, shape)? })
}

structs! {
    [] Scaled, |bench, _shape| ScaledArguments { alpha: bench.number() };
    [] SwiGlu, |bench, _shape| ScaledArguments { alpha: bench.number() };
    [] SwiGluBlocks, |bench, _shape| ScaledArguments { alpha: bench.number() };
    [] SwiGluSplit, |bench, _shape| ScaledArguments { alpha: bench.number() };
    [] GeGlu, |bench, _shape| ScaledArguments { alpha: bench.number() };
    [T] LinearBias<T>, |bench, shape| biased::<T>(bench, shape)?;
    [T] LinearBiasRelu<T>, |bench, shape| biased::<T>(bench, shape)?;
    [T] LinearBiasGelu<T>, |bench, shape| biased::<T>(bench, shape)?;
    [T] LinearBiasSilu<T>, |bench, shape| biased::<T>(bench, shape)?;
    [T] LinearBiasScaled<T>, |bench, shape| LinearBiasScaledArguments {
        alpha: bench.number(),
        bias: RowVector::<T>::sample(bench, shape)?,
        amax: bench.upload(&[0; 4])?,
        scale: bench.upload(&8f32.to_le_bytes())?,
    };
    [T] LinearResidual<T>, |bench, shape| LinearResidualArguments {
        alpha: bench.number(),
        bias: RowVector::<T>::sample(bench, shape)?,
        residual: Residual::<T>::sample(bench, shape)?,
    };
    [] RowColumnScaled, |bench, shape| RowColumnScaledArguments {
        rows: ColumnVector::<f32>::sample(bench, shape)?,
        columns: RowVector::<f32>::sample(bench, shape)?,
    };
    [T] RowScaled<T>, |bench, shape| RowScaledArguments {
        scale: ColumnVector::<T>::sample(bench, shape)?,
        bias: RowVector::<T>::sample(bench, shape)?,
    };
}
