//! GEMMs on the card. cubecl does not expose its streams, so launches use a stream of this crate. Two events
//! of the whole context keep the order: our launches wait for what cubecl has enqueued before, and what
//! cubecl enqueues later waits for our launches.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::TensorMetadata;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{DType, Int, Tensor};
use burn_cubecl::cubecl::cuda::CudaRuntime;
use burn_cubecl::kernel::{into_contiguous, untile};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{CubeBackend, CubeDevice};
use cubecl_runtime::runtime::Runtime;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, result, sys};
use falchion::collective::Format;
use falchion::cute_rs::atom::Major;
use falchion::kernel::driver::{self, Chooser, DeviceSlice, GemmDesc, StreamRef};
use falchion::kernel::{Buffer, GemmProblem};

use falchion_core::{FewBit, FewBitMemory};

use crate::fewbit::{KEPT, kernel};
use crate::product::{Backend, Extents, Product};
use crate::{Activation, Error, FewBitLinear};

/// A card: the stream of our launches, and the process's kernels for it.
struct Card {
    stream: Arc<CudaStream>,
    chooser: Arc<Chooser>,
    /// The events before and after a launch; the mutex admits one launch at a time.
    events: Mutex<[sys::CUevent; 2]>,
    /// Workspaces of products with few-bit weights, by their rows.
    workspaces: Mutex<HashMap<(u32, FewBit), CudaSlice<u8>>>,
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
    let chooser = Chooser::shared(ordinal).map_err(words)?;
    let card = Arc::new(Card { stream, chooser, events, workspaces: Mutex::default() });
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
            let launched = launch(self.chooser.as_ref(), StreamRef::from_raw(raw.cast()));
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
                    what.biased(product.activation, slice)
                }
                _ => what,
            };
            chooser.enqueue(stream, &what, slices).map_err(words)
        })?;
        Ok(d)
    }
}

/// A layer with few-bit weights.
pub(crate) fn few_bits(layer: &FewBitLinear, rows: u32, x: Tensor<2>) -> Result<Tensor<2>, Error> {
    let x = into_contiguous(untile(
        x.try_into_primitive::<CubeBackend>().map_err(|error| words(format!("{error:?}")))?,
    ));
    let CubeDevice::Cuda(device) = &x.device else {
        return Err(Error::Device {
            argument: "x",
            found: format!("{:?}", x.device),
            needed: "Cuda".to_owned(),
        });
    };
    let (ordinal, what) = (device.index, layer.what);
    let machine = || driver::Context::primary(ordinal).and_then(|of| of.machine()).map_err(words);
    let kernel = kernel((Some(ordinal), rows, what), machine)?;
    kernel.load(ordinal).map_err(words)?;
    let shape = [rows as usize, what.shape[0] as usize].into();
    let d = empty_device_contiguous_dtype(x.client.clone(), x.device.clone(), shape, x.dtype);

    // As for other GEMMs, cubecl keeps the memory while these resources are held.
    let resource = |tensor: &CubeTensor| {
        x.client
            .get_resource::<<CudaRuntime as Runtime>::Server>(tensor.handle.clone())
            .map_err(|error| Error::Card(format!("{error:?}")))
    };
    let of_ints = |tensor: &Tensor<1, Int>| {
        let tensor = tensor.clone().try_into_primitive::<CubeBackend>();
        resource(&tensor.map_err(|error| words(format!("{error:?}")))?)
    };
    let of_bias = layer.bias.as_ref().map(|bias| {
        let bias = bias.clone().try_into_primitive::<CubeBackend>();
        resource(&bias.map_err(|error| words(format!("{error:?}")))?)
    });
    let [of_x, of_d, of_units] = [resource(&x)?, resource(&d)?, of_ints(&layer.units)?];
    let of_scales = layer.scales.as_ref().map(of_ints).transpose()?;
    let of_zeros = layer.zeros.as_ref().map(of_ints).transpose()?;
    let of_bias = of_bias.transpose()?;
    let memory = FewBitMemory {
        x: of_x.resource().ptr,
        units: of_units.resource().ptr,
        lines: [&of_scales, &of_zeros].map(|of| of.as_ref().map_or(0, |of| of.resource().ptr)),
        bias: of_bias.as_ref().map_or(0, |of| of.resource().ptr),
        offsets: 0,
        d: of_d.resource().ptr,
    };
    let mut call = what.call_of(&kernel, rows, memory);
    let card = card(ordinal)?;
    card.in_order(|_, _| {
        let bytes = kernel.workspace(&call).unwrap_or(0);
        let mut all = card.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > 0 {
            if all.len() >= KEPT {
                all.clear();
            }
            let room = match all.entry((rows, what)) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    new.insert(card.stream.alloc_zeros::<u8>(bytes as usize).map_err(words)?)
                }
            };
            call.workspace = Some(Buffer::new(room.device_ptr(&card.stream).0, bytes));
        }
        // SAFETY: the stream is of the card's primary context. cubecl keeps the memory longer than this call, and its next user waits
        // for the launch, as all work of the context does. The workspace is kept, for launches of this stream alone.
        unsafe { kernel.launch(ordinal, card.stream.cu_stream().cast(), &call) }.map_err(words)
    })?;
    Ok(Tensor::from_primitive::<CubeBackend>(d))
}
