//! GEMMs on the card. cubecl does not expose its streams, so launches use a stream of this crate. Two events
//! of the whole context keep the order: our launches wait for what cubecl has enqueued before, and what
//! cubecl enqueues later waits for our launches.

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::DType;
use burn_cubecl::cubecl::cuda::CudaRuntime;
use burn_cubecl::kernel::{into_contiguous, untile};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};
use cubecl_runtime::runtime::Runtime;
use cudarc::driver::{CudaContext, CudaStream, result, sys};
use falchion::collective::Format;
use falchion::cute_rs::atom::Major;
use falchion::kernel::GemmProblem;
use falchion::kernel::driver::{self, Chooser, DeviceSlice, GemmDesc, StreamRef};

use crate::product::{Backend, Extents, Product};
use crate::{Activation, Error};

/// A card: the stream of our launches, and the kernels that were chosen and compiled so far.
struct Card {
    stream: Arc<CudaStream>,
    chooser: Chooser,
    /// The events before and after a launch; the mutex admits one launch at a time.
    events: Mutex<[sys::CUevent; 2]>,
}

// SAFETY: events are handles that the driver accepts from any thread.
unsafe impl Send for Card {}
// SAFETY: as above; the events are in a mutex.
unsafe impl Sync for Card {}

fn words(error: impl core::fmt::Display) -> Error {
    Error::Card(error.to_string())
}

/// The first driver version that has events of contexts: 12.5.
const DRIVER: i32 = 12050;

fn card(ordinal: usize) -> Result<Arc<Card>, Error> {
    static CARDS: Mutex<Vec<(usize, Arc<Card>)>> = Mutex::new(Vec::new());
    let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, card)) = cards.iter().find(|(of, _)| *of == ordinal) {
        return Ok(Arc::clone(card));
    }
    let mut version = 0;
    // SAFETY: the call writes one number.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result().map_err(words)?;
    if version < DRIVER {
        return Err(Error::Card(format!(
            "the driver is of CUDA {}.{}, 12.5 or later was needed",
            version / 1000,
            version % 1000 / 10
        )));
    }
    let context = CudaContext::new(ordinal).map_err(words)?;
    let stream = context.new_stream().map_err(words)?;
    let event = || result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING).map_err(words);
    let events = Mutex::new([event()?, event()?]);
    let chooser = Chooser::new(&driver::Context::primary(ordinal).map_err(words)?).map_err(words)?;
    let card = Arc::new(Card { stream, chooser, events });
    cards.push((ordinal, Arc::clone(&card)));
    Ok(card)
}

impl Card {
    /// Enqueues launches after all work that the context has enqueued so far, and before all work that it
    /// enqueues later.
    fn in_order(
        &self,
        launch: impl FnOnce(&Chooser, StreamRef<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let context = self.stream.context();
        context.bind_to_thread().map_err(words)?;
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let [before, behind] = *events;
        let (raw, context) = (self.stream.cu_stream(), context.cu_ctx());
        // SAFETY: stream, events and context live as long as the card's entry, which is never removed.
        unsafe {
            sys::cuCtxRecordEvent(context, before).result().map_err(words)?;
            result::stream::wait_event(raw, before, sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
                .map_err(words)?;
            let launched = launch(&self.chooser, StreamRef::from_raw(raw.cast()));
            result::event::record(behind, raw).map_err(words)?;
            sys::cuCtxWaitEvent(context, behind).result().map_err(words)?;
            launched
        }
    }
}

/// A tensor whose matrices are stored row by row, and whether these are the transposes.
fn stored(tensor: CubeTensor, transposed: bool) -> (CubeTensor, bool) {
    let mut tensor = untile(tensor);
    if !tensor.is_contiguous() {
        let rank = tensor.rank();
        let mut swapped = tensor.clone();
        swapped.meta.swap(rank - 2, rank - 1);
        if swapped.is_contiguous() {
            return (swapped, !transposed);
        }
        tensor = into_contiguous(tensor);
    }
    (tensor, transposed)
}

impl Backend for CubeBackend {
    fn product(
        product: Product,
        a: FloatTensor<Self>,
        b: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
    ) -> Result<FloatTensor<Self>, Error> {
        let CubeDevice::Cuda(device) = &a.device else {
            return Err(Error::Device {
                argument: "a",
                found: format!("{:?}", a.device),
                needed: "Cuda".to_owned(),
            });
        };
        let ordinal = device.index;
        let of_bias = bias.as_ref().map(TensorMetadata::shape);
        let extents = Extents::of(&product, &a.shape(), &b.shape(), of_bias.as_ref())?;
        let dtype = a.dtype;
        let element = |argument, found: DType, needed: &str| {
            Err(Error::Element { argument, found: format!("{found:?}"), needed: needed.to_owned() })
        };
        let format = match dtype {
            DType::BF16 => Format::Bf16,
            DType::F16 => Format::F16,
            other => return element("a", other, "bf16 or f16, on the card,"),
        };
        for (argument, tensor) in [("b", Some(&b)), ("bias", bias.as_ref())] {
            if let Some(tensor) = tensor.filter(|tensor| tensor.dtype != dtype) {
                return element(argument, tensor.dtype, &format!("{dtype:?}, as of a,"));
            }
        }
        let number = |extent: usize| {
            u32::try_from(extent)
                .map_err(|_| Error::Card(format!("an extent is {extent}, less than 2^32 was needed")))
        };
        let problem = GemmProblem { m: number(extents.m)?, n: number(extents.n)?, k: number(extents.k)? };

        let (a, of_a) = stored(a, product.transposed[0]);
        let (b, of_b) = stored(b, product.transposed[1]);
        let bias = match bias {
            Some(bias) => Some(into_contiguous(bias)),
            // An activation without a bias uses a bias of zeros.
            None if product.activation != Activation::Identity => {
                Some(burn_cubecl::ops::numeric::zeros_client(
                    a.client.clone(),
                    a.device.clone(),
                    [extents.n].into(),
                    dtype,
                ))
            }
            None => None,
        };
        let majors = [if of_a { Major::Mn } else { Major::K }, if of_b { Major::K } else { Major::Mn }];
        let what = GemmDesc::new(format, majors, problem);
        let what = match extents.batch {
            Some(count) => what.batched(number(count)?),
            None => what,
        };
        let d = empty_device_contiguous_dtype(a.client.clone(), a.device.clone(), extents.shape(), dtype);
        let activation = match product.activation {
            Activation::Identity => driver::Activation::Identity,
            Activation::Relu => driver::Activation::Relu,
            Activation::Gelu => driver::Activation::Gelu,
            Activation::Silu => driver::Activation::Silu,
        };

        // Addresses of the tensors; cubecl keeps their memory while these resources are held. When it answers, it
        // has enqueued all earlier work.
        let resource = |tensor: &CubeTensor| {
            a.client
                .get_resource::<<CudaRuntime as Runtime>::Server>(tensor.handle.clone())
                .map_err(|error| Error::Card(format!("{error:?}")))
        };
        let [of_a, of_b, of_d] = [resource(&a)?, resource(&b)?, resource(&d)?];
        let of_bias = bias.as_ref().map(resource).transpose()?;
        let bytes = |tensor: &CubeTensor| (tensor.shape().num_elements() * dtype.size()) as u64;
        let card = card(ordinal)?;
        card.in_order(|chooser, stream| {
            // SAFETY: cubecl keeps the memory longer than this call. Its next user waits for the launch, as
            // all work of the context does.
            let slices = unsafe {
                [
                    DeviceSlice::readable(of_a.resource().ptr, bytes(&a)),
                    DeviceSlice::readable(of_b.resource().ptr, bytes(&b)),
                    DeviceSlice::writable(of_d.resource().ptr, bytes(&d)),
                ]
            };
            let what = match (&bias, &of_bias) {
                (Some(bias), Some(of_bias)) => {
                    // SAFETY: as above.
                    let slice = unsafe { DeviceSlice::readable(of_bias.resource().ptr, bytes(bias)) };
                    what.biased(activation, slice)
                }
                _ => what,
            };
            chooser.enqueue(stream, &what, slices).map_err(words)
        })?;
        Ok(d)
    }
}
