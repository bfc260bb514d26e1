//! Where a tensor's elements are, and the current stream, from DLPack's table of C functions: one call per tensor in place of
//! ten attributes. torch has the table from version 2.10 on.
#![allow(unsafe_code, reason = "calls functions of C")]

use core::ffi::{CStr, c_int, c_void};

use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

/// `DLTensor`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tensor {
    data: *mut c_void,
    /// Kind of device (1 is the host, 2 is CUDA), and its number.
    pub(crate) device: [i32; 2],
    rank: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    offset: u64,
}

/// `DLPackExchangeAPI`, as version 1 has it.
#[repr(C)]
struct Table {
    version: [u32; 2],
    _previous: *const c_void,
    _others: [*const c_void; 3],
    tensor: Option<unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int>,
    stream: Option<unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int>,
}

/// The functions of a library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    tensor: unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int,
    stream: unsafe extern "C" fn(c_int, i32, *mut *mut c_void) -> c_int,
}

const NAME: &CStr = c"dlpack_exchange_api";

/// `kDLCUDA`.
const CUDA: c_int = 2;

impl Exchange {
    /// The functions of a class of tensors; `None` if it has none, or others.
    pub(crate) fn of(class: &Bound<'_, PyAny>) -> Option<Self> {
        let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?.cast_into::<PyCapsule>().ok()?;
        let table = capsule.pointer_checked(Some(NAME)).ok()?.cast::<Table>();
        // SAFETY: a capsule of this name holds the table, which lives as long as the process.
        let table = unsafe { table.as_ref() };
        if table.version[0] != 1 {
            return None;
        }
        Some(Self { tensor: table.tensor?, stream: table.stream? })
    }

    /// Describes a tensor of the class. What it points to belongs to the tensor.
    pub(crate) fn tensor(&self, object: &Bound<'_, PyAny>) -> Option<Tensor> {
        let mut out = core::mem::MaybeUninit::<Tensor>::zeroed();
        // SAFETY: the object is of the class, and the function fills the structure if it returns 0.
        let status = unsafe { (self.tensor)(object.as_ptr().cast(), out.as_mut_ptr()) };
        if status != 0 {
            // Whoever asks looks at the attributes, which say what is wrong.
            drop(PyErr::take(object.py()));
            return None;
        }
        // SAFETY: zeros are a value, and the function has written it.
        Some(unsafe { out.assume_init() })
    }

    /// The handle of a card's current stream.
    pub(crate) fn stream(&self, py: Python<'_>, ordinal: usize) -> PyResult<usize> {
        let mut stream = core::ptr::null_mut();
        // SAFETY: the pointer may be written.
        let status = unsafe { (self.stream)(CUDA, ordinal as i32, &raw mut stream) };
        if status != 0 {
            return Err(PyErr::fetch(py));
        }
        Ok(stream.expose_provenance())
    }
}

impl Tensor {
    /// The address of the first element.
    pub(crate) fn address(&self) -> u64 {
        self.data.expose_provenance() as u64 + self.offset
    }

    /// The name of the type of the elements.
    pub(crate) fn dtype(&self) -> Option<&'static str> {
        Some(match (self.code, self.bits, self.lanes) {
            (0, 8, 1) => "int8",
            (0, 16, 1) => "int16",
            (0, 32, 1) => "int32",
            (0, 64, 1) => "int64",
            (1, 8, 1) => "uint8",
            (1, 16, 1) => "uint16",
            (1, 32, 1) => "uint32",
            (2, 16, 1) => "float16",
            (2, 32, 1) => "float32",
            (2, 64, 1) => "float64",
            (4, 16, 1) => "bfloat16",
            (10, 8, 1) => "float8_e4m3fn",
            (12, 8, 1) => "float8_e5m2",
            _ => return None,
        })
    }

    /// Extents and distances of the dimensions; `None` if there are more than `N`.
    pub(crate) fn sizes<const N: usize>(&self) -> Option<([[i64; 2]; N], usize)> {
        let rank = usize::try_from(self.rank).ok().filter(|&rank| rank <= N)?;
        if rank > 0 && (self.shape.is_null() || self.strides.is_null()) {
            return None;
        }
        let mut sizes = [[1, 0]; N];
        for (i, size) in sizes.iter_mut().take(rank).enumerate() {
            // SAFETY: there are as many extents and distances as dimensions.
            *size = unsafe { [self.shape.add(i).read(), self.strides.add(i).read()] };
        }
        Some((sizes, rank))
    }
}
