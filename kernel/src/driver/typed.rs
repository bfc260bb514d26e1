//! Kernels of your own types on the GPU, called with only a problem and its matrices: [`Gemm::load`].

use std::sync::Arc;

use collective::{Epilogue, F8E4M3, F8E5M2, Form, Format, LinearArguments};
use half::{bf16, f16};

use super::context::Context;
use super::loaded::Loaded;
use super::slice::DeviceSlice;
use super::stream::{Stream, StreamRef};
use crate::call::Call;
use crate::config::{Gemm, GemmConfig};
use crate::error::EngineError;
use crate::kernel::written;
use crate::problem::GemmProblem;
#[cfg(feature = "cudarc")]
use crate::types::Types;

mod sealed {
    /// Formats are the library's, so only the library implements [`DeviceElement`](super::DeviceElement).
    pub trait Sealed {}
}

/// A Rust number type that matrices in device memory can have.
pub trait DeviceElement: sealed::Sealed + Copy + 'static {
    /// The formats that the type can stand for. `f32` is multiplied as `f32` or as `tf32`; a byte may be any
    /// 8-bit format.
    const FORMATS: &'static [Format];
}

macro_rules! elements {
    ($($host:ty: $($format:ident),+;)+) => {$(
        impl sealed::Sealed for $host {}
        impl DeviceElement for $host {
            const FORMATS: &'static [Format] = &[$(Format::$format),+];
        }
    )+};
}

elements! {
    bf16: Bf16;
    f16: F16;
    f32: F32, Tf32;
    f64: F64;
    F8E4M3: E4m3;
    F8E5M2: E5m2;
    i8: S8;
    u8: U8, E4m3, E5m2, S8;
    i32: S32;
}

/// Whether a Rust number type can stand for a format.
#[cfg(any(feature = "cudarc", test))]
const fn fits<T: DeviceElement>(format: Format) -> bool {
    let mut i = 0;
    while i < T::FORMATS.len() {
        if T::FORMATS[i] as u8 == format as u8 {
            return true;
        }
        i += 1;
    }
    false
}

/// Something that belongs to a context: a kernel can be loaded there.
pub trait InContext {
    /// The context.
    ///
    /// # Errors
    /// A driver error.
    fn context(&self) -> Result<Arc<Context>, EngineError>;
}

impl InContext for Arc<Context> {
    fn context(&self) -> Result<Arc<Context>, EngineError> {
        Ok(Self::clone(self))
    }
}

impl InContext for Arc<Stream> {
    fn context(&self) -> Result<Arc<Context>, EngineError> {
        Ok(Arc::clone(Stream::context(self)))
    }
}

#[cfg(feature = "cudarc")]
impl InContext for Arc<cudarc::driver::CudaStream> {
    fn context(&self) -> Result<Arc<Context>, EngineError> {
        // cudarc's contexts are primary contexts.
        Context::primary(cudarc::driver::CudaStream::context(self).ordinal())
    }
}

impl<C: GemmConfig> Gemm<C> {
    /// Compiles the kernel for the GPU of a context or a stream. This takes milliseconds, so keep the result.
    ///
    /// ```no_run
    /// use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaStore, TmaWgmma};
    /// use half::bf16;
    /// use kernel::driver::{Context, DeviceSlice, Stream};
    /// use kernel::{Composed, Gemm, GemmProblem};
    /// use scheduler::{AlongM, Grouped, Persistent};
    /// use typenum::{U2, U8, U64, U128, U256};
    ///
    /// type MyGemm = Composed<
    ///     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>,
    ///     LinearCombination<bf16, TmaStore>,
    ///     Persistent<Grouped<AlongM, U8>>,
    /// >;
    ///
    /// fn multiply([a, b, d]: [DeviceSlice<'_>; 3]) -> Result<(), kernel::EngineError> {
    ///     let stream = Stream::new(&Context::primary(0)?)?;
    ///     let gemm = Gemm::<MyGemm>::load(&stream)?;
    ///     gemm.multiply_slices(&stream, GemmProblem { m: 300, n: 200, k: 136 }, [a, b, d])?;
    ///     stream.wait()
    /// }
    /// ```
    ///
    /// # Errors
    /// The compiler's log if the driver rejects the program, the faults that the verifier found, or a driver
    /// error.
    pub fn load(on: &impl InContext) -> Result<Loaded<Self>, EngineError> {
        let kernel = Self::typed();
        let program = written::<Call>(&kernel)?;
        Loaded::load_in(&on.context()?, kernel, program)
    }
}

/// Whether a kernel computes one GEMM and reads nothing for its operands except their matrices.
const fn is_plain<C: GemmConfig>() -> bool {
    let spec = Gemm::<C>::PLAN.mainloop;
    let [a, b] = spec.operands;
    let stored = a.weights.is_none() && b.weights.is_none() && !spec.atom.sparse;
    stored && a.scaled == 0 && b.scaled == 0 && matches!(C::FORM, Form::Single)
}

/// A kernel of your own type, called with only a problem and its matrices.
///
/// All matrices are [packed](Gemm::packed). For leading dimensions, alpha and beta, batches, scales and other epilogues make the call
/// yourself and [`launch`](Self::launch) it: `gemm.launch(stream, &Gemm::<MyGemm>::packed(problem, addresses).plus(..), &lent)`.
impl<C: GemmConfig> Loaded<Gemm<C>>
where
    C::Epilogue: Epilogue<Arguments = LinearArguments>,
{
    /// Enqueues `D = A * B` on slices of cudarc, and returns at once.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaStore, TmaWgmma};
    /// use cudarc::driver::{CudaSlice, CudaStream};
    /// use half::bf16;
    /// use kernel::{Composed, EngineError, Gemm, GemmProblem};
    /// use scheduler::{AlongM, Grouped, Persistent};
    /// use typenum::{U2, U8, U64, U128, U256};
    ///
    /// type MyGemm = Composed<
    ///     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>,
    ///     LinearCombination<bf16, TmaStore>,
    ///     Persistent<Grouped<AlongM, U8>>,
    /// >;
    /// type Slice = CudaSlice<bf16>;
    ///
    /// fn layer(stream: &Arc<CudaStream>, x: &Slice, w: &Slice, y: &mut Slice) -> Result<(), EngineError> {
    ///     let gemm = Gemm::<MyGemm>::load(stream)?; // once
    ///     gemm.multiply(stream, GemmProblem { m: 300, n: 200, k: 136 }, x, w, y)
    /// }
    /// ```
    ///
    /// Slices of another element type than the kernel's do not compile:
    ///
    /// ```compile_fail
    /// # use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
    /// # use cudarc::driver::{CudaSlice, CudaStream};
    /// # use half::{bf16, f16};
    /// # use kernel::driver::Loaded;
    /// # use kernel::{Composed, EngineError, Gemm, GemmProblem};
    /// # use scheduler::{AlongM, OneTile};
    /// # use typenum::{U1, U64};
    /// # type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
    /// # type MyGemm = Composed<TmaWgmma<Kk, Tile<U64, U64, U64>, Cooperative<U1>>, LinearCombination<bf16>, OneTile<AlongM>>;
    /// # fn layer(gemm: &Loaded<Gemm<MyGemm>>, stream: &CudaStream, x: &CudaSlice<f16>, w: &CudaSlice<bf16>, y: &mut CudaSlice<bf16>)
    /// # -> Result<(), EngineError> {
    /// # let problem = GemmProblem { m: 300, n: 200, k: 136 };
    /// // x: &CudaSlice<f16>, of a kernel whose A is bf16
    /// gemm.multiply(stream, problem, x, w, y)
    /// # }
    /// # fn main() { std::hint::black_box(layer as *const ()); }
    /// ```
    ///
    /// # Errors
    /// A slice is too short for the problem ([`EngineError::Short`]), or as [`launch`](Self::launch).
    #[cfg(feature = "cudarc")]
    pub fn multiply<A: DeviceElement, B: DeviceElement, D: DeviceElement>(
        &self,
        stream: &cudarc::driver::CudaStream,
        problem: GemmProblem,
        a: &impl cudarc::driver::DevicePtr<A>,
        b: &impl cudarc::driver::DevicePtr<B>,
        d: &mut impl cudarc::driver::DevicePtrMut<D>,
    ) -> Result<(), EngineError> {
        const {
            assert!(
                fits::<A>(Types::of_plan(&Gemm::<C>::PLAN).a),
                "the slice of A has other elements than the kernel's A"
            );
            assert!(
                fits::<B>(Types::of_plan(&Gemm::<C>::PLAN).b),
                "the slice of B has other elements than the kernel's B"
            );
            assert!(
                fits::<D>(Types::of_plan(&Gemm::<C>::PLAN).d),
                "the slice of D has other elements than the kernel's D"
            );
        }
        enough(problem, [a.len(), b.len(), d.len()])?;
        let (a, b, d) = super::cudarc::lent(stream, a, b, d);
        self.multiply_slices(stream, problem, [a.slice(), b.slice(), d.slice()])
    }

    /// Enqueues `D = A * B` on lent memory, on any stream, and returns at once. `slices` are A, B and D.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn multiply_slices<'s>(
        &self,
        stream: impl Into<StreamRef<'s>>,
        problem: GemmProblem,
        slices: [DeviceSlice<'_>; 3],
    ) -> Result<(), EngineError> {
        const {
            assert!(
                is_plain::<C>(),
                "several GEMMs per launch, and scaled, quantized or sparse operands, need more than their matrices: use `launch`"
            );
        }
        self.launch(stream, &Gemm::<C>::packed(problem, slices.map(|slice| slice.address())), &slices)
    }
}

/// Checks that slices have enough elements for the matrices of a problem.
#[cfg(any(feature = "cudarc", test))]
pub(super) fn enough(problem: GemmProblem, elements: [usize; 3]) -> Result<(), EngineError> {
    let GemmProblem { m, n, k } = problem;
    let of = [("a", "M x K", [m, k]), ("b", "K x N", [k, n]), ("d", "M x N", [m, n])];
    for ((argument, extents, [x, y]), found) in of.into_iter().zip(elements) {
        if (found as u64) < u64::from(x) * u64::from(y) {
            return Err(EngineError::Short { argument, found, extents, needed: [x, y] });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use collective::Format;
    use half::bf16;

    use super::{enough, fits};
    use crate::problem::GemmProblem;

    #[test]
    fn elements_fit_their_formats() {
        assert!(fits::<bf16>(Format::Bf16) && !fits::<bf16>(Format::F16));
        assert!(fits::<f32>(Format::Tf32) && fits::<u8>(Format::E5m2) && !fits::<i8>(Format::U8));
    }

    #[test]
    fn short_slices_are_named() {
        let problem = GemmProblem { m: 400, n: 3, k: 2 };
        for (elements, words) in [
            ([800, 6, 1200], None),
            ([799, 6, 1200], Some("a has 799 elements, M x K = 400 x 2 needs 800")),
            ([800, 5, 1200], Some("b has 5 elements, K x N = 2 x 3 needs 6")),
            ([9000, 9000, 0], Some("d has 0 elements, M x N = 400 x 3 needs 1200")),
        ] {
            let found = enough(problem, elements).err().map(|error| error.to_string());
            assert_eq!(found.as_deref(), words);
        }
    }
}
