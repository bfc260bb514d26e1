//! Kernels at plain addresses: on candle's stream of a card, or in falchion's emulator on the host's memory.
#![allow(unsafe_code, reason = "kernels read and write the tensors' memory")]

#[cfg(feature = "cuda")]
use std::collections::HashMap;
#[cfg(feature = "cuda")]
use std::sync::{Mutex, PoisonError};

use candle_core::backend::BackendStorage;
#[cfg(feature = "cuda")]
use candle_core::cuda_backend::cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
#[cfg(feature = "cuda")]
use candle_core::cuda_backend::{CudaDevice, CudaStorageSlice};
use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, DType, Error, Layout, Result, Storage, Tensor, bail};
#[cfg(feature = "cuda")]
use candle_core::{CudaStorage, Device};
use falchion::collective::Format;
#[cfg(feature = "cuda")]
use falchion::kernel::Buffer;
#[cfg(feature = "cuda")]
use falchion::kernel::EngineError;
#[cfg(feature = "cuda")]
use falchion_core::is_captured;
use falchion_core::{Choices, Offered, Picked, Run};
use half::{bf16, f16};

/// Memory of a tensor: the host's, or a card's.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    Host(&'a CpuStorage),
    #[cfg(feature = "cuda")]
    Card(&'a CudaStorage),
}

/// A tensor's memory, and where its elements are.
pub(crate) type Part<'a> = (Stored<'a>, &'a Layout);

impl<'a> Stored<'a> {
    pub(crate) fn host(self) -> Result<&'a CpuStorage> {
        match self {
            Self::Host(host) => Ok(host),
            #[cfg(feature = "cuda")]
            Self::Card(_) => bail!("a tensor is on a card, one in the host's memory was needed"),
        }
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn cuda(self) -> Result<&'a CudaStorage> {
        match self {
            Self::Card(card) => Ok(card),
            Self::Host(_) => bail!("a tensor is in the host's memory, one on a card was needed"),
        }
    }

    pub(crate) fn dtype(&self) -> DType {
        match self {
            Self::Host(host) => host.dtype(),
            #[cfg(feature = "cuda")]
            Self::Card(card) => card.dtype(),
        }
    }

    /// The format of 16-bit elements.
    pub(crate) fn format(&self, name: &str) -> Result<Format> {
        match self.dtype() {
            DType::BF16 => Ok(Format::Bf16),
            DType::F16 => Ok(Format::F16),
            other => bail!("{name} is {other:?}, bf16 or f16 was needed"),
        }
    }

    /// The card's number; `None` is the host.
    pub(crate) fn card(&self) -> Option<usize> {
        match self {
            Self::Host(_) => None,
            #[cfg(feature = "cuda")]
            Self::Card(card) => Some(CudaStream::context(&card.device.cuda_stream()).ordinal()),
        }
    }

    /// Address of a layout's first element. Candle has one stream per device, on which everything is ordered.
    pub(crate) fn address(&self, layout: &Layout) -> u64 {
        let base = match self {
            Self::Host(host) => {
                (match host {
                    CpuStorage::U8(of) => of.as_ptr().expose_provenance(),
                    CpuStorage::U32(of) => of.as_ptr().expose_provenance(),
                    CpuStorage::I16(of) => of.as_ptr().expose_provenance(),
                    CpuStorage::I32(of) => of.as_ptr().expose_provenance(),
                    CpuStorage::I64(of) => of.as_ptr().expose_provenance(),
                    CpuStorage::BF16(of) => of.as_ptr().expose_provenance(),
                    CpuStorage::F16(of) => of.as_ptr().expose_provenance(),
                    CpuStorage::F32(of) => of.as_ptr().expose_provenance(),
                    CpuStorage::F64(of) => of.as_ptr().expose_provenance(),
                    CpuStorage::F8E4M3(of) => of.as_ptr().expose_provenance(),
                    CpuStorage::F6E2M3(of)
                    | CpuStorage::F6E3M2(of)
                    | CpuStorage::F4(of)
                    | CpuStorage::F8E8M0(of) => of.as_ptr().expose_provenance(),
                }) as u64
            }
            #[cfg(feature = "cuda")]
            Self::Card(card) => {
                let stream = card.device.cuda_stream();
                match &card.slice {
                    CudaStorageSlice::U8(of) => of.device_ptr(&stream).0,
                    CudaStorageSlice::U32(of) => of.device_ptr(&stream).0,
                    CudaStorageSlice::I16(of) => of.device_ptr(&stream).0,
                    CudaStorageSlice::I32(of) => of.device_ptr(&stream).0,
                    CudaStorageSlice::I64(of) => of.device_ptr(&stream).0,
                    CudaStorageSlice::BF16(of) => of.device_ptr(&stream).0,
                    CudaStorageSlice::F16(of) => of.device_ptr(&stream).0,
                    CudaStorageSlice::F32(of) => of.device_ptr(&stream).0,
                    CudaStorageSlice::F64(of) => of.device_ptr(&stream).0,
                    CudaStorageSlice::F8E4M3(of) => of.device_ptr(&stream).0,
                    CudaStorageSlice::F6E2M3(of)
                    | CudaStorageSlice::F6E3M2(of)
                    | CudaStorageSlice::F4(of)
                    | CudaStorageSlice::F8E8M0(of) => of.device_ptr(&stream).0,
                }
            }
        };
        base + (layout.start_offset() * self.dtype().size_in_bytes()) as u64
    }

    /// New zeros in the same place.
    pub(crate) fn zeros(&self, dtype: DType, count: usize) -> Result<Owned> {
        #[cfg_attr(not(feature = "cuda"), expect(unused_mut, reason = "the host's memory begins as zeros"))]
        let mut zeros = self.room(dtype, count)?;
        #[cfg(feature = "cuda")]
        if let Owned::Card(card) = &mut zeros {
            let stream = card.device.cuda_stream();
            let cleared = match &mut card.slice {
                CudaStorageSlice::BF16(of) => stream.memset_zeros(of),
                CudaStorageSlice::F16(of) => stream.memset_zeros(of),
                CudaStorageSlice::F32(of) => stream.memset_zeros(of),
                _ => Ok(()),
            };
            cleared.map_err(Error::wrap)?;
        }
        Ok(zeros)
    }

    /// New memory in the same place, for a kernel to write.
    pub(crate) fn room(&self, dtype: DType, count: usize) -> Result<Owned> {
        match self {
            Self::Host(_) => Ok(Owned::Host(match dtype {
                DType::BF16 => CpuStorage::BF16(vec![bf16::ZERO; count]),
                DType::F16 => CpuStorage::F16(vec![f16::ZERO; count]),
                DType::F32 => CpuStorage::F32(vec![0.0; count]),
                other => bail!("a result of {other:?}, bf16, f16 or f32 was needed"),
            })),
            #[cfg(feature = "cuda")]
            Self::Card(card) => {
                let device = card.device.clone();
                // SAFETY: the kernel writes every element before anybody reads one.
                let slice = unsafe {
                    match dtype {
                        DType::BF16 => CudaStorageSlice::BF16(device.alloc::<bf16>(count)?),
                        DType::F16 => CudaStorageSlice::F16(device.alloc::<f16>(count)?),
                        DType::F32 => CudaStorageSlice::F32(device.alloc::<f32>(count)?),
                        other => bail!("a result of {other:?}, bf16, f16 or f32 was needed"),
                    }
                };
                Ok(Owned::Card(CudaStorage { slice, device }))
            }
        }
    }
}

/// Calls a function of the host's operations, or of the card's, by the place of a tensor.
macro_rules! in_place {
    ($place:expr, $function:ident($($argument:expr),*)) => {
        match $place {
            $crate::plain::Stored::Host(_) => $crate::cpu::$function($($argument),*).map($crate::plain::Owned::Host),
            #[cfg(feature = "cuda")]
            $crate::plain::Stored::Card(_) => $crate::cuda::$function($($argument),*).map($crate::plain::Owned::Card),
        }
    };
}

pub(crate) use in_place;

/// A result of a kernel.
pub(crate) enum Owned {
    Host(CpuStorage),
    #[cfg(feature = "cuda")]
    Card(CudaStorage),
}

impl Owned {
    pub(crate) fn stored(&self) -> Stored<'_> {
        match self {
            Self::Host(host) => Stored::Host(host),
            #[cfg(feature = "cuda")]
            Self::Card(card) => Stored::Card(card),
        }
    }

    /// The address for a kernel that writes it.
    pub(crate) fn address(&mut self) -> u64 {
        self.stored().address(&Layout::contiguous(1))
    }

    /// A tensor without an operation.
    pub(crate) fn tensor(self, shape: &[usize]) -> Tensor {
        let storage = match self {
            Self::Host(host) => Storage::Cpu(host),
            #[cfg(feature = "cuda")]
            Self::Card(card) => Storage::Cuda(card),
        };
        Tensor::from_storage(storage, shape, BackpropOp::none(), false)
    }

    pub(crate) fn host(self) -> Result<CpuStorage> {
        match self {
            Self::Host(host) => Ok(host),
            #[cfg(feature = "cuda")]
            Self::Card(_) => bail!("a result on a card, one in the host's memory was needed"),
        }
    }

    #[cfg(feature = "cuda")]
    pub(crate) fn card(self) -> Result<CudaStorage> {
        match self {
            Self::Card(card) => Ok(card),
            Self::Host(_) => bail!("a result in the host's memory, one on a card was needed"),
        }
    }
}

/// Address of a tensor's elements, which must be in the place of another one.
pub(crate) fn address(name: &str, tensor: &Tensor, place: Stored<'_>) -> Result<u64> {
    let (storage, layout) = tensor.storage_and_layout();
    match (&*storage, place) {
        (Storage::Cpu(host), Stored::Host(_)) => Ok(Stored::Host(host).address(layout)),
        #[cfg(feature = "cuda")]
        (Storage::Cuda(card), Stored::Card(other)) if same(&card.device, &other.device) => {
            Ok(Stored::Card(card).address(layout))
        }
        _ => {
            bail!("{name} is on {:?}, the device of the other tensors was needed", tensor.device().location())
        }
    }
}

#[cfg(feature = "cuda")]
fn same(a: &CudaDevice, b: &CudaDevice) -> bool {
    Device::Cuda(a.clone()).same_device(&Device::Cuda(b.clone()))
}

/// A kernel, with the workspaces of its launches by stream.
pub(crate) struct Kept<K: Offered> {
    kernel: Picked<K>,
    #[cfg(feature = "cuda")]
    workspaces: Mutex<HashMap<usize, (CudaSlice<u8>, [u64; 4])>>,
}

impl<K: Offered> Kept<K> {
    pub(crate) fn new(kernel: Picked<K>) -> Self {
        Self {
            kernel,
            #[cfg(feature = "cuda")]
            workspaces: Mutex::default(),
        }
    }

    pub(crate) fn kernel(&self) -> &Picked<K> {
        &self.kernel
    }

    /// Runs a call in the place of a tensor.
    ///
    /// # Safety
    /// The call's addresses are those of tensors in that place, whose layouts it has; nobody else uses what it writes.
    pub(crate) unsafe fn run(&self, place: Stored<'_>, call: K::Arguments) -> Result<()> {
        match place {
            // SAFETY: the caller guarantees it.
            Stored::Host(_) => unsafe { self.kernel.emulate(&call, Run::default()) }.map_err(Error::wrap),
            #[cfg(feature = "cuda")]
            // SAFETY: the same.
            Stored::Card(card) => unsafe { self.launch(&card.device, call) },
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    #[cfg(feature = "cuda")]
    unsafe fn launch(&self, device: &CudaDevice, mut call: K::Arguments) -> Result<()> {
        let stream = device.cuda_stream();
        let (ordinal, raw) = (CudaStream::context(&stream).ordinal(), stream.cu_stream().cast());
        // SAFETY: the stream is candle's, of the card's primary context.
        unsafe { self.kernel.ready(ordinal, raw) }.map_err(Error::wrap)?;
        let layout = self.kernel.layout(&call);
        let mut all = self.workspaces.lock().unwrap_or_else(PoisonError::into_inner);
        if layout[0] > 0 {
            let size = usize::try_from(layout[0]).map_err(Error::wrap)?;
            let handle = stream.cu_stream().expose_provenance();
            if all.get(&handle).is_none_or(|(known, _)| known.len() < size) {
                // What is allocated during a capture is the graph's.
                // SAFETY: the same.
                if unsafe { is_captured(ordinal, raw) }.map_err(Error::wrap)? {
                    let what = format!("a workspace of {size} B");
                    return Err(Error::wrap(EngineError::Captured { what }));
                }
                all.insert(handle, (device.alloc_zeros::<u8>(size)?, layout));
            }
            if let Some((room, known)) = all.get_mut(&handle) {
                // What is zero at first is elsewhere.
                if *known != layout {
                    stream.memset_zeros(room).map_err(Error::wrap)?;
                    *known = layout;
                }
                let room = Buffer::new(room.device_ptr(&stream).0, layout[0]);
                self.kernel.lend(&mut call, Some(room));
            }
        }
        // SAFETY: the caller guarantees it; the stream is candle's, of the card's primary context, and the workspace is kept.
        unsafe { self.kernel.launch(ordinal, raw, &call) }.map_err(Error::wrap)
    }
}

/// Kernels that were chosen, by what they were chosen for.
pub(crate) type Known<Of, K> = Choices<Of, Kept<K>>;

/// Number of choices that are kept of a kind.
pub(crate) const KEPT: usize = 4096;
