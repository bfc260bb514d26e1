//! Matrix products of [cust](https://docs.rs/cust)'s device buffers, by kernels for Hopper.
//!
//! [`Products`] chooses a kernel for each product and keeps it. Kernels of types of one's own are loaded with [`Products::load`], and are
//! launched with the same buffers.
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
use falchion::kernel::driver::{self, Chooser, LoadedGemm, Multiplication, StreamRef};
pub use falchion::kernel::{EngineError, GemmProblem};
use falchion::kernel::{Gemm, GemmConfig};

mod error;

pub use error::Error;

/// A number of 16 bits as it lies in cust's buffers: [`half`] 1.8's `bf16` and `f16`.
pub trait Element: DeviceCopy {
    /// Its format.
    const FORMAT: Format;
}

impl Element for half::bf16 {
    const FORMAT: Format = Format::Bf16;
}

impl Element for half::f16 {
    const FORMAT: Format = Format::F16;
}

/// What a linear layer multiplies by: `Y = activation(X * W^T + bias)`.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a, T: Element> {
    /// Outputs by inputs, row by row.
    pub matrix: &'a DeviceSlice<T>,
    /// A number for each output.
    pub bias: Option<&'a DeviceSlice<T>>,
    /// What becomes of each output.
    pub activation: Activation,
}

/// Products on one card. Kernels are chosen by falchion's model and the records that come with it; what was chosen and compiled is kept. The first
/// product of a shape takes milliseconds.
#[derive(Debug)]
pub struct Products {
    context: Arc<driver::Context>,
    chooser: Chooser,
}

impl Products {
    /// On the card of a context, which is its primary one (as those of [`cust::quick_init`] are). It becomes the thread's current context.
    ///
    /// # Errors
    /// cust's, or the driver's.
    pub fn new(context: &Context) -> Result<Self, Error> {
        CurrentContext::set_current(context)?;
        let ordinal = CurrentContext::get_device()?.as_raw();
        let ordinal = usize::try_from(ordinal).map_err(|_| Error::Device { found: ordinal })?;
        let context = driver::Context::primary(ordinal)?;
        Ok(Self { chooser: Chooser::new(&context)?, context })
    }

    /// `D = A * B` of row-major matrices: A is `M x K`, B `K x N`, D `M x N`. Waits for the stream.
    ///
    /// # Errors
    /// A slice is too short, which names it; no kernel takes the product; or the driver's.
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

    /// As [`matmul`](Self::matmul), without waiting.
    ///
    /// # Errors
    /// As of [`matmul`](Self::matmul), but for what happens after the launch.
    ///
    /// # Safety
    /// Until the stream has come so far, the slices are not freed, nobody writes A and B, and nobody else uses D.
    pub unsafe fn enqueue_matmul<T: Element>(
        &self,
        stream: &Stream,
        problem: GemmProblem,
        a: &DeviceSlice<T>,
        b: &DeviceSlice<T>,
        d: &mut DeviceSlice<T>,
    ) -> Result<(), Error> {
        let what = Multiplication::new(T::FORMAT, [Major::K, Major::Mn], problem);
        // SAFETY: as the caller says.
        unsafe { Ok(self.chooser.enqueue(on(stream), &what, [readable(a), readable(b), writable(d)])?) }
    }

    /// `Y = activation(X * W^T + bias)`, in one kernel: X is `M x K`, row by row, Y `M x N`. Waits for the stream.
    ///
    /// # Errors
    /// A slice is too short, which names it; no kernel takes the product; or the driver's.
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

    /// As [`linear`](Self::linear), without waiting.
    ///
    /// # Errors
    /// As of [`linear`](Self::linear), but for what happens after the launch.
    ///
    /// # Safety
    /// Until the stream has come so far, the slices are not freed, nobody writes X and the weight, and nobody else uses Y.
    pub unsafe fn enqueue_linear<T: Element>(
        &self,
        stream: &Stream,
        problem: GemmProblem,
        x: &DeviceSlice<T>,
        weight: &Weight<'_, T>,
        y: &mut DeviceSlice<T>,
    ) -> Result<(), Error> {
        let what = Multiplication::new(T::FORMAT, [Major::K; 2], problem);
        // SAFETY: as the caller says.
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

    /// Compiles a kernel of a type of one's own for this card: milliseconds, so keep it.
    ///
    /// # Errors
    /// What the verifier, the compiler or the driver says.
    pub fn load<C: GemmConfig>(&self) -> Result<LoadedGemm<C>, Error> {
        Ok(Gemm::<C>::load(&self.context)?)
    }
}

/// `D = A * B` by a kernel of one's own ([`Products::load`]); A, B and D lie as its type says. Waits for the stream.
///
/// # Errors
/// A slice is too short, which names it; an address or an extent is illegal for the kernel; or the driver's.
pub fn launch<C, T: DeviceCopy, D: DeviceCopy>(
    gemm: &LoadedGemm<C>,
    stream: &Stream,
    problem: GemmProblem,
    a: &DeviceSlice<T>,
    b: &DeviceSlice<T>,
    d: &mut DeviceSlice<D>,
) -> Result<(), Error>
where
    C: GemmConfig<Epilogue: Epilogue<Arguments = LinearArguments>>,
{
    // SAFETY: the slices are borrowed until the stream has been waited for; the launch holds their bytes against what it needs.
    let enqueued =
        unsafe { gemm.launch_slices(on(stream), problem, [readable(a), readable(b), writable(d)]) };
    settled(stream, enqueued.map_err(Error::from))
}

/// Waits, whatever the launch says.
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

/// Bytes that a launch reads.
///
/// # Safety
/// They stay, and nobody writes them, until it has ended.
unsafe fn readable<'a, T: DeviceCopy>(slice: &DeviceSlice<T>) -> driver::DeviceSlice<'a> {
    // SAFETY: as the caller says.
    unsafe { driver::DeviceSlice::readable(slice.as_device_ptr().as_raw(), bytes(slice)) }
}

/// Bytes that a launch writes.
///
/// # Safety
/// They stay, and nobody else uses them, until it has ended.
unsafe fn writable<'a, T: DeviceCopy>(slice: &mut DeviceSlice<T>) -> driver::DeviceSlice<'a> {
    // SAFETY: as the caller says.
    unsafe { driver::DeviceSlice::writable(slice.as_device_ptr().as_raw(), bytes(slice)) }
}
