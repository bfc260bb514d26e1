//! The operations on the card, on candle's stream.

use candle_core::backend::BackendStorage;
use candle_core::cuda_backend::cudarc::driver::{
    CudaStream, CudaView, DeviceRepr, LaunchConfig, PushKernelArg, ValidAsZeroBits,
};
use candle_core::cuda_backend::{CudaDType, CudaStorage, kernels};
use candle_core::{DType, Error, Result, Storage, bail};
use falchion::collective::Format;
use falchion::cute_rs::atom::Major;
use falchion::kernel::driver::cudarc::{read, write};
use falchion::kernel::driver::{Chooser, DeviceSlice, GemmDesc};
use falchion::kernel::{EngineError, GemmProblem, Types};
use float8::F8E4M3;
use half::{bf16, f16};

use crate::experts::Experts;
use crate::plain::{Part, Stored};
use crate::product::{Extents, Product};
use crate::scaled::Scaled;

/// The 16-bit element types that are multiplied on the card.
trait Half: CudaDType + DeviceRepr + ValidAsZeroBits {
    const FORMAT: Format;
}

impl Half for bf16 {
    const FORMAT: Format = Format::Bf16;
}

impl Half for f16 {
    const FORMAT: Format = Format::F16;
}

fn view<'a, T: CudaDType>((storage, layout): Part<'a>) -> Result<CudaView<'a, T>> {
    let (start, count) = (layout.start_offset(), layout.shape().elem_count());
    Ok(storage.cuda()?.as_cuda_slice::<T>()?.slice(start..start + count))
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

/// Allocates a D of `count` elements and enqueues `multiply` of A and B into it.
fn enqueue<T: CudaDType + DeviceRepr, D: CudaDType + DeviceRepr>(
    [a, b]: [Part<'_>; 2],
    count: usize,
    multiply: impl FnOnce(&Chooser, &CudaStream, [DeviceSlice<'_>; 3]) -> core::result::Result<(), EngineError>,
) -> Result<CudaStorage> {
    let device = a.0.cuda()?.device().clone();
    let stream = device.cuda_stream();
    let chooser = Chooser::shared(CudaStream::context(&stream).ordinal()).map_err(Error::wrap)?;
    let (of_a, of_b) = (view::<T>(a)?, view::<T>(b)?);
    #[allow(unsafe_code, reason = "nobody reads D before it is written")]
    // SAFETY: every element of D is written before the operation's result is read.
    let mut d = unsafe { device.alloc::<D>(count) }?;
    {
        let (a, b, d) = (read(&of_a, &stream), read(&of_b, &stream), write(&mut d, &stream));
        multiply(&chooser, &stream, [a.slice(), b.slice(), d.slice()]).map_err(Error::wrap)?;
    }
    Ok(CudaStorage::wrap_cuda_slice(d, device))
}

pub(crate) fn product(
    product: &Product,
    extents: &Extents,
    operands: [Part<'_>; 2],
    bias: Option<Part<'_>>,
) -> Result<CudaStorage> {
    of_type!(operands[0].0, multiply(product, extents, operands, bias))
}

fn multiply<T: Half>(
    product: &Product,
    extents: &Extents,
    [a, b]: [Part<'_>; 2],
    bias: Option<Part<'_>>,
) -> Result<CudaStorage> {
    let problem = problem(extents)?;
    let [of_a, of_b] = product.transposed;
    // A is contiguous along K or along M, and B along K or along N.
    let majors = [if of_a { Major::Mn } else { Major::K }, if of_b { Major::K } else { Major::Mn }];
    let what = GemmDesc::new(T::FORMAT, majors, problem);
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
    enqueue::<T, T>([a, b], extents.elements()[2], |chooser, stream, slices| match &bias {
        Some(bias) => {
            let bias = read(bias, stream);
            chooser.enqueue(stream, &what.biased(product.activation, bias.slice()), slices)
        }
        None => chooser.enqueue(stream, &what, slices),
    })
}

pub(crate) fn experts(
    experts: &Experts,
    count: usize,
    extents: &Extents,
    [x, weights, offsets]: [Part<'_>; 3],
) -> Result<CudaStorage> {
    of_type!(x.0, grouped(experts, count, extents, [x, weights], offsets))
}

fn grouped<T: Half>(
    experts: &Experts,
    count: usize,
    extents: &Extents,
    [x, weights]: [Part<'_>; 2],
    offsets: Part<'_>,
) -> Result<CudaStorage> {
    let device = x.0.cuda()?.device().clone();
    let stream = device.cuda_stream();
    let chooser = Chooser::shared(CudaStream::context(&stream).ordinal()).map_err(Error::wrap)?;
    let (x, weights, offsets) = (view::<T>(x)?, view::<T>(weights)?, view::<u32>(offsets)?);
    let count = u32::try_from(count).map_err(Error::wrap)?;
    let of_weights = if experts.transposed { Major::K } else { Major::Mn };
    let what = GemmDesc::new(T::FORMAT, [Major::K, of_weights], problem(extents)?);
    // The groups may not cover all rows, so D begins as zeros.
    let mut d = device.alloc_zeros::<T>(extents.elements()[2])?;
    {
        let (a, b, offsets) = (read(&x, &stream), read(&weights, &stream), read(&offsets, &stream));
        let d = write(&mut d, &stream);
        let what = what.ragged(count, offsets.slice());
        chooser.enqueue(&*stream, &what, [a.slice(), b.slice(), d.slice()]).map_err(Error::wrap)?;
    }
    Ok(CudaStorage::wrap_cuda_slice(d, device))
}

/// Rounds `f32` to `F8E4M3` by candle's kernel.
pub(crate) fn rounded(x: Part<'_>) -> Result<CudaStorage> {
    let device = x.0.cuda()?.device().clone();
    let (x, count) = (view::<f32>(x)?, x.1.shape().elem_count());
    let function = device.get_or_load_func("cast_f32_f8_e4m3", &kernels::CAST)?;
    #[allow(unsafe_code, reason = "a launch of candle's kernel")]
    // SAFETY: the kernel reads `count` numbers and writes `count` codes. With zero dimensions it treats both
    // as contiguous.
    let codes = unsafe {
        let codes = device.alloc::<F8E4M3>(count)?;
        let [dimensions, info] = [0usize; 2];
        let mut launch = function.builder();
        launch.arg(&count).arg(&dimensions).arg(&info).arg(&x).arg(&codes);
        launch
            .launch(LaunchConfig::for_num_elems(u32::try_from(count).map_err(Error::wrap)?))
            .map_err(Error::wrap)?;
        codes
    };
    Ok(CudaStorage::wrap_cuda_slice(codes, device))
}

pub(crate) fn scaled(
    scaled: &Scaled,
    extents: &Extents,
    operands: [Part<'_>; 2],
    bias: Option<Part<'_>>,
) -> Result<CudaStorage> {
    let types = Types::of(Format::E4m3).scaled([1, 128]);
    let what = GemmDesc::new(types, [Major::K; 2], problem(extents)?);
    let bias = bias.map(view::<bf16>).transpose()?;
    if let Some(bias) = &bias
        && bias.len() != extents.n
    {
        bail!("the bias has {} elements, {} were needed", bias.len(), extents.n);
    }
    let [a, b] = scaled.packed()?;
    let [a, b] = [a.storage_and_layout(), b.storage_and_layout()];
    let (Storage::Cuda(of_a), Storage::Cuda(of_b)) = (&*a.0, &*b.0) else {
        bail!("scales are on another device than the codes");
    };
    let of = |(of, layout)| view::<f32>((Stored::Card(of), layout));
    let (of_a, of_b) = (of((of_a, a.1))?, of((of_b, b.1))?);
    enqueue::<F8E4M3, bf16>(operands, extents.elements()[2], |chooser, stream, slices| {
        let (of_a, of_b) = (read(&of_a, stream), read(&of_b, stream));
        let what = what.scaled([of_a.slice(), of_b.slice()]);
        match &bias {
            Some(bias) => {
                let bias = read(bias, stream);
                chooser.enqueue(stream, &what.biased(scaled.activation, bias.slice()), slices)
            }
            None => chooser.enqueue(stream, &what, slices),
        }
    })
}
