//! The same on the card, on candle's stream.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::cudarc::driver::{CudaStream, CudaView, DeviceRepr};
use candle_core::cuda_backend::{CudaDType, CudaStorage};
use candle_core::{DType, Error, Layout, Result, bail};
use falchion::collective::Format;
use falchion::cute_rs::atom::Major;
use falchion::kernel::driver::cudarc::{read, write};
use falchion::kernel::driver::{self, Chooser, DeviceSlice, Multiplication};
use falchion::kernel::{EngineError, GemmProblem};
use half::{bf16, f16};

use crate::Activation;
use crate::product::{Extents, Product};

type Stored<'a> = (&'a CudaStorage, &'a Layout);

/// What was chosen and compiled so far, for each card.
fn chooser(stream: &Arc<CudaStream>) -> Result<Arc<Chooser>> {
    static CHOOSERS: Mutex<Vec<(usize, Arc<Chooser>)>> = Mutex::new(Vec::new());
    let ordinal = CudaStream::context(stream).ordinal();
    let mut all = CHOOSERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, found)) = all.iter().find(|(of, _)| *of == ordinal) {
        return Ok(Arc::clone(found));
    }
    let made = Arc::new(Chooser::new(stream).map_err(Error::wrap)?);
    all.push((ordinal, Arc::clone(&made)));
    Ok(made)
}

/// Elements that are multiplied here.
trait Half: CudaDType + DeviceRepr {
    const FORMAT: Format;
}

impl Half for bf16 {
    const FORMAT: Format = Format::Bf16;
}

impl Half for f16 {
    const FORMAT: Format = Format::F16;
}

fn view<'a, T: CudaDType>((storage, layout): Stored<'a>) -> Result<CudaView<'a, T>> {
    let (start, count) = (layout.start_offset(), layout.shape().elem_count());
    Ok(storage.as_cuda_slice::<T>()?.slice(start..start + count))
}

fn problem(&Extents { m, n, k, .. }: &Extents) -> Result<GemmProblem> {
    let number = |extent: usize| match u32::try_from(extent) {
        Ok(number) => Ok(number),
        Err(_) => bail!("an extent is {extent}, less than 2^32 was needed"),
    };
    Ok(GemmProblem { m: number(m)?, n: number(n)?, k: number(k)? })
}

/// Calls a generic function with the elements' type.
macro_rules! of_type {
    ($storage:expr, $function:ident($($argument:expr),*)) => {
        match $storage.dtype() {
            DType::BF16 => $function::<bf16>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            other => bail!("tensors are {other:?}, bf16 or f16 was needed on the card"),
        }
    };
}

/// Enqueues what `what` describes, of A and B into a new D of so many elements.
fn enqueue<T: Half>(
    [a, b]: [Stored<'_>; 2],
    count: usize,
    multiply: impl FnOnce(&Chooser, &CudaStream, [DeviceSlice<'_>; 3]) -> core::result::Result<(), EngineError>,
) -> Result<CudaStorage> {
    let device = a.0.device().clone();
    let stream = device.cuda_stream();
    let chooser = chooser(&stream)?;
    let (of_a, of_b) = (view::<T>(a)?, view::<T>(b)?);
    #[allow(unsafe_code, reason = "nobody reads D before it is written")]
    // SAFETY: every element of D is written before the operation's result is read.
    let mut d = unsafe { device.alloc::<T>(count) }?;
    {
        let (a, b, d) = (read(&of_a, &stream), read(&of_b, &stream), write(&mut d, &stream));
        multiply(&chooser, &stream, [a.slice(), b.slice(), d.slice()]).map_err(Error::wrap)?;
    }
    Ok(CudaStorage::wrap_cuda_slice(d, device))
}

pub(crate) fn product(
    product: &Product,
    extents: &Extents,
    operands: [Stored<'_>; 2],
    bias: Option<Stored<'_>>,
) -> Result<CudaStorage> {
    of_type!(operands[0].0, multiply(product, extents, operands, bias))
}

fn multiply<T: Half>(
    product: &Product,
    extents: &Extents,
    [a, b]: [Stored<'_>; 2],
    bias: Option<Stored<'_>>,
) -> Result<CudaStorage> {
    let problem = problem(extents)?;
    let [of_a, of_b] = product.transposed;
    // Rows of A, and columns of B, lie along K or across it.
    let majors = [if of_a { Major::Mn } else { Major::K }, if of_b { Major::K } else { Major::Mn }];
    let what = Multiplication::new(T::FORMAT, majors, problem);
    let what = match extents.batch {
        Some(count) => what.batched(u32::try_from(count).map_err(Error::wrap)?),
        None => what,
    };
    let bias = bias.map(view::<T>).transpose()?;
    if let Some(bias) = &bias
        && bias.len() != extents.n
    {
        bail!("the bias has {} elements, {} were needed", bias.len(), extents.n);
    }
    let activation = match product.activation {
        Activation::Identity => driver::Activation::Identity,
        Activation::Relu => driver::Activation::Relu,
        Activation::Gelu => driver::Activation::Gelu,
        Activation::Silu => driver::Activation::Silu,
    };
    enqueue::<T>([a, b], extents.elements()[2], |chooser, stream, slices| match &bias {
        Some(bias) => {
            let bias = read(bias, stream);
            chooser.enqueue(stream, &what.biased(activation, bias.slice()), slices)
        }
        None => chooser.enqueue(stream, &what, slices),
    })
}

pub(crate) fn experts(
    count: usize,
    extents: &Extents,
    [x, weights, offsets]: [Stored<'_>; 3],
) -> Result<CudaStorage> {
    of_type!(x.0, grouped(count, extents, [x, weights], offsets))
}

fn grouped<T: Half>(
    count: usize,
    extents: &Extents,
    operands: [Stored<'_>; 2],
    offsets: Stored<'_>,
) -> Result<CudaStorage> {
    let offsets = view::<u32>(offsets)?;
    let count = u32::try_from(count).map_err(Error::wrap)?;
    let what = Multiplication::new(T::FORMAT, [Major::K; 2], problem(extents)?);
    enqueue::<T>(operands, extents.elements()[2], |chooser, stream, slices| {
        let offsets = read(&offsets, stream);
        chooser.enqueue(stream, &what.ragged(count, offsets.slice()), slices)
    })
}
