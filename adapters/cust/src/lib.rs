//! GEMMs on [cust](https://docs.rs/cust)'s device buffers, with falchion's kernels for Hopper.
//!
//! [`Products`] chooses a kernel for each GEMM and keeps it. [`Products::load`] loads a kernel type of your
//! own, and [`Products::multiply`] launches it on the same buffers.
//!
//! ```no_run
//! use cust::memory::{CopyDestination, DeviceBuffer};
//! use cust::stream::{Stream, StreamFlags};
//! use falchion_cust::{GemmProblem, Products};
//! use half::bf16;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let context = cust::quick_init()?;
//!     let stream = Stream::new(StreamFlags::NON_BLOCKING, None)?;
//!     let products = Products::new(&context)?;
//!
//!     let problem = GemmProblem { m: 300, n: 200, k: 136 };
//!     let a = DeviceBuffer::from_slice(&vec![bf16::ONE; 300 * 136])?; // M x K
//!     let b = DeviceBuffer::from_slice(&vec![bf16::ONE; 136 * 200])?; // K x N
//!     let mut d = DeviceBuffer::from_slice(&vec![bf16::ZERO; 300 * 200])?; // M x N
//!     products.matmul(&stream, problem, &a, &b, &mut d)?;
//!
//!     let mut host = vec![bf16::ZERO; 300 * 200];
//!     d.copy_to(&mut host)?;
//!     assert!(host.iter().all(|&value| value == bf16::from_f32(136.0)));
//!     Ok(())
//! }
//! ```

use std::sync::Arc;

use cust::context::{Context, CurrentContext};
use cust::memory::{DeviceCopy, DeviceSlice};
use cust::stream::Stream;
use falchion::collective::{Epilogue, Format, LinearArguments};
use falchion::cute_rs::atom::Major;
pub use falchion::kernel::driver::Activation;
use falchion::kernel::driver::{self, Chooser, GemmDesc, Loaded, StreamRef};
pub use falchion::kernel::{EngineError, GemmProblem};
use falchion::kernel::{Gemm, GemmConfig};

mod error;

pub use error::Error;

/// A 16-bit element of cust's buffers: `bf16` or `f16` of [`half`] 1.8.
pub trait Element: DeviceCopy {
    /// Its number format.
    const FORMAT: Format;
}

impl Element for half::bf16 {
    const FORMAT: Format = Format::Bf16;
}

impl Element for half::f16 {
    const FORMAT: Format = Format::F16;
}

/// The weight, bias and activation of a linear layer, `Y = activation(X * W^T + bias)`.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a, T: Element> {
    /// W: outputs by inputs, row-major.
    pub matrix: &'a DeviceSlice<T>,
    /// One number per output; `None` for no bias.
    pub bias: Option<&'a DeviceSlice<T>>,
    /// The activation of each output. Without a bias it must be [`Activation::Identity`].
    pub activation: Activation,
}

/// GEMMs on one card. falchion's model and the records that come with it choose the kernels; chosen and
/// compiled kernels are kept. The first GEMM of a shape takes milliseconds.
#[derive(Debug)]
pub struct Products {
    context: Arc<driver::Context>,
    chooser: Chooser,
}

impl Products {
    /// Makes it for the card of a context. The context must be the card's primary one (as that of
    /// [`cust::quick_init`] is), and becomes the thread's current context.
    ///
    /// # Errors
    /// An error of cust or of the driver.
    pub fn new(context: &Context) -> Result<Self, Error> {
        CurrentContext::set_current(context)?;
        let ordinal = CurrentContext::get_device()?.as_raw();
        let ordinal = usize::try_from(ordinal).map_err(|_| Error::Device { found: ordinal })?;
        let context = driver::Context::primary(ordinal)?;
        Ok(Self { chooser: Chooser::new(&context)?, context })
    }

    /// Computes `D = A * B` of row-major matrices: A is `M x K`, B `K x N`, D `M x N`. Waits for the stream.
    ///
    /// # Errors
    /// A slice is too short (the error names it); no kernel supports the GEMM; an error of the driver.
    pub fn matmul<T: Element>(
        &self,
        stream: &Stream,
        problem: GemmProblem,
        a: &DeviceSlice<T>,
        b: &DeviceSlice<T>,
        d: &mut DeviceSlice<T>,
    ) -> Result<(), Error> {
        // SAFETY: the slices are borrowed until the stream has been waited for.
        let enqueued = unsafe { self.enqueue_matmul(stream, problem, a, b, d) };
        settled(stream, enqueued)
    }

    /// Like [`matmul`](Self::matmul), without waiting.
    ///
    /// # Errors
    /// Those of [`matmul`](Self::matmul), except errors after the launch.
    ///
    /// # Safety
    /// Until the launch has ended, the slices must not be freed, no other work may write A or B, and no other
    /// work may use D.
    pub unsafe fn enqueue_matmul<T: Element>(
        &self,
        stream: &Stream,
        problem: GemmProblem,
        a: &DeviceSlice<T>,
        b: &DeviceSlice<T>,
        d: &mut DeviceSlice<T>,
    ) -> Result<(), Error> {
        let what = GemmDesc::new(T::FORMAT, [Major::K, Major::Mn], problem);
        // SAFETY: the caller guarantees it.
        unsafe { Ok(self.chooser.enqueue(on(stream), &what, [readable(a), readable(b), writable(d)])?) }
    }

    /// Computes `Y = activation(X * W^T + bias)` in one kernel: X is `M x K` and Y `M x N`, row-major. Waits
    /// for the stream.
    ///
    /// # Errors
    /// A slice is too short (the error names it); no kernel supports the GEMM; an error of the driver.
    pub fn linear<T: Element>(
        &self,
        stream: &Stream,
        problem: GemmProblem,
        x: &DeviceSlice<T>,
        weight: &Weight<'_, T>,
        y: &mut DeviceSlice<T>,
    ) -> Result<(), Error> {
        // SAFETY: the slices are borrowed until the stream has been waited for.
        let enqueued = unsafe { self.enqueue_linear(stream, problem, x, weight, y) };
        settled(stream, enqueued)
    }

    /// Like [`linear`](Self::linear), without waiting.
    ///
    /// # Errors
    /// Those of [`linear`](Self::linear), except errors after the launch.
    ///
    /// # Safety
    /// Until the launch has ended, the slices must not be freed, no other work may write X or the weight, and
    /// no other work may use Y.
    pub unsafe fn enqueue_linear<T: Element>(
        &self,
        stream: &Stream,
        problem: GemmProblem,
        x: &DeviceSlice<T>,
        weight: &Weight<'_, T>,
        y: &mut DeviceSlice<T>,
    ) -> Result<(), Error> {
        let what = GemmDesc::new(T::FORMAT, [Major::K; 2], problem);
        // SAFETY: the caller guarantees it.
        unsafe {
            let what = match (weight.bias, weight.activation) {
                (Some(bias), activation) => what.biased(activation, readable(bias)),
                (None, Activation::Identity) => what,
                (None, activation) => return Err(Error::NoBias { activation }),
            };
            let slices = [readable(x), readable(weight.matrix), writable(y)];
            Ok(self.chooser.enqueue(on(stream), &what, slices)?)
        }
    }

    /// Compiles a kernel type of your own for this card. This takes milliseconds, so keep the result.
    ///
    /// # Errors
    /// An error of the verifier, the compiler or the driver.
    pub fn load<C: GemmConfig>(&self) -> Result<Loaded<Gemm<C>>, Error> {
        Ok(Gemm::<C>::load(&self.context)?)
    }

    /// Computes `D = A * B` by a kernel type of your own that was [loaded](Self::load). The type defines the layouts of A, B and D. Waits
    /// for the stream.
    ///
    /// # Errors
    /// A slice is too short (the error names it); an address or an extent is illegal for the kernel; an error of
    /// the driver.
    pub fn multiply<C, T: DeviceCopy, D: DeviceCopy>(
        &self,
        gemm: &Loaded<Gemm<C>>,
        stream: &Stream,
        problem: GemmProblem,
        a: &DeviceSlice<T>,
        b: &DeviceSlice<T>,
        d: &mut DeviceSlice<D>,
    ) -> Result<(), Error>
    where
        C: GemmConfig<Epilogue: Epilogue<Arguments = LinearArguments>>,
    {
        // SAFETY: the slices are borrowed until the stream has been waited for; the launch checks that they have
        // enough bytes.
        let enqueued =
            unsafe { gemm.multiply_slices(on(stream), problem, [readable(a), readable(b), writable(d)]) };
        settled(stream, enqueued.map_err(Error::from))
    }
}

/// Waits for the stream even if the launch failed.
fn settled(stream: &Stream, enqueued: Result<(), Error>) -> Result<(), Error> {
    let waited = stream.synchronize();
    enqueued?;
    Ok(waited?)
}

fn on(stream: &Stream) -> StreamRef<'_> {
    // SAFETY: cust's stream lives as long as it is borrowed.
    unsafe { StreamRef::from_raw(stream.as_inner().cast()) }
}

fn bytes<T: DeviceCopy>(slice: &DeviceSlice<T>) -> u64 {
    slice.len() as u64 * size_of::<T>() as u64
}

/// The bytes of a slice, for a launch that reads them.
///
/// # Safety
/// The bytes stay valid, and no other work writes them, until the launch has ended.
unsafe fn readable<'a, T: DeviceCopy>(slice: &DeviceSlice<T>) -> driver::DeviceSlice<'a> {
    // SAFETY: as the caller says.
    unsafe { driver::DeviceSlice::readable(slice.as_device_ptr().as_raw(), bytes(slice)) }
}

/// The bytes of a slice, for a launch that writes them.
///
/// # Safety
/// The bytes stay valid, and no other work uses them, until the launch has ended.
unsafe fn writable<'a, T: DeviceCopy>(slice: &mut DeviceSlice<T>) -> driver::DeviceSlice<'a> {
    // SAFETY: as the caller says.
    unsafe { driver::DeviceSlice::writable(slice.as_device_ptr().as_raw(), bytes(slice)) }
}
