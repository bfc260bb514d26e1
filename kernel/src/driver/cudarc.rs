//! Lends cudarc's slices to launches on cudarc's streams.
//!
//! cudarc tracks which stream reads and writes a slice. A [`Loan`] reports a use to cudarc when the loan
//! begins and when it is dropped. Keep the loan until the launch has been enqueued.
//!
//! ```no_run
//! use cudarc::driver::{CudaSlice, CudaStream};
//! use kernel::driver::{Loaded, cudarc::{read, write}};
//! use kernel::{Call, EngineError};
//!
//! fn multiply(
//!     loaded: &Loaded,
//!     stream: &CudaStream,
//!     (a, b, d): (&CudaSlice<u16>, &CudaSlice<u16>, &mut CudaSlice<u16>),
//!     mut call: Call,
//! ) -> Result<(), EngineError> {
//!     let (a, b, d) = (read(a, stream), read(b, stream), write(d, stream));
//!     (call.a.address, call.b.address, call.d.address) = (a.address(), b.address(), d.address());
//!     loaded.launch(stream, &call, &[a.slice(), b.slice(), d.slice()])
//! }
//! ```
#![allow(unsafe_code, reason = "takes addresses that cudarc vouches for")]

use core::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut, SyncOnDrop};

use super::slice::DeviceSlice;
use super::stream::StreamRef;

/// A loan of a cudarc slice, for the time in which work on it is enqueued.
pub struct Loan<'a> {
    slice: DeviceSlice<'a>,
    _until: SyncOnDrop<'a>,
}

impl fmt::Debug for Loan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("slice", &self.slice).finish_non_exhaustive()
    }
}

impl Loan<'_> {
    /// Device address of the first element.
    pub fn address(&self) -> u64 {
        self.slice.address()
    }

    /// The slice to pass to a launch.
    pub fn slice(&self) -> DeviceSlice<'_> {
        self.slice
    }
}

/// Lends a slice, or a view of one, to be read on a stream.
pub fn read<'a, T>(slice: &'a impl DevicePtr<T>, stream: &'a CudaStream) -> Loan<'a> {
    let bytes = slice.num_bytes() as u64;
    let (address, until) = slice.device_ptr(stream);
    // SAFETY: cudarc's slice is allocated on the device. cudarc orders its next write and its release after
    // the work that is enqueued during the loan.
    let slice = unsafe { DeviceSlice::readable(address, bytes) };
    Loan { slice: slice.on(stream.cu_stream().cast()), _until: until }
}

/// Lends a slice, or a view of one, to be read and written on a stream.
pub fn write<'a, T>(slice: &'a mut impl DevicePtrMut<T>, stream: &'a CudaStream) -> Loan<'a> {
    let bytes = slice.num_bytes() as u64;
    let (address, until) = slice.device_ptr_mut(stream);
    // SAFETY: as above, and the slice is borrowed mutably, so nothing else uses it meanwhile.
    let slice = unsafe { DeviceSlice::writable(address, bytes) };
    Loan { slice: slice.on(stream.cu_stream().cast()), _until: until }
}

/// Lends A and B to be read, and D to be written.
pub(super) fn lent<'a, A, B, D>(
    stream: &'a CudaStream,
    a: &'a impl DevicePtr<A>,
    b: &'a impl DevicePtr<B>,
    d: &'a mut impl DevicePtrMut<D>,
) -> (Loan<'a>, Loan<'a>, Loan<'a>) {
    (read(a, stream), read(b, stream), write(d, stream))
}

impl<'a> From<&'a CudaStream> for StreamRef<'a> {
    fn from(stream: &'a CudaStream) -> Self {
        // SAFETY: the stream is borrowed as long as the value is used.
        unsafe { Self::from_raw(stream.cu_stream().cast()) }
    }
}

impl<'a> From<&'a Arc<CudaStream>> for StreamRef<'a> {
    fn from(stream: &'a Arc<CudaStream>) -> Self {
        Self::from(stream.as_ref())
    }
}
