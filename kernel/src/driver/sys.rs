//! The part of `cuda.h` that is used: types, constants and functions. Functions are looked up in the
//! installed driver, once.
//!
//! Why no binding crate: such a crate chooses a CUDA version at build time. It then looks for a toolkit, or
//! conflicts with the version that another crate of the same program chose. The functions here are in every
//! driver since CUDA 12.0.
#![allow(unsafe_code, reason = "looks functions up by name")]

use core::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

/// `CUresult`.
pub(super) type Status = c_int;
/// `CUcontext`.
pub(super) type RawContext = *mut c_void;
/// `CUstream`.
pub(super) type RawStream = *mut c_void;
/// `CUevent`.
pub(super) type RawEvent = *mut c_void;
/// `CUmodule`.
pub(super) type RawModule = *mut c_void;
/// `CUfunction`.
pub(super) type RawFunction = *mut c_void;
/// `CUgraph`.
pub(super) type RawGraph = *mut c_void;
/// `CUgraphExec`.
pub(super) type RawGraphExec = *mut c_void;

/// `CUresult` of a successful call.
pub(super) const SUCCESS: Status = 0;

/// Results after which a context answers every call with the same one, because a kernel made it unusable.
pub(super) const STICKY: [Status; 12] = [
    214, // CUDA_ERROR_ECC_UNCORRECTABLE
    220, // CUDA_ERROR_NVLINK_UNCORRECTABLE
    700, // CUDA_ERROR_ILLEGAL_ADDRESS
    702, // CUDA_ERROR_LAUNCH_TIMEOUT
    709, // CUDA_ERROR_CONTEXT_IS_DESTROYED
    710, // CUDA_ERROR_ASSERT
    714, // CUDA_ERROR_HARDWARE_STACK_ERROR
    715, // CUDA_ERROR_ILLEGAL_INSTRUCTION
    716, // CUDA_ERROR_MISALIGNED_ADDRESS
    717, // CUDA_ERROR_INVALID_ADDRESS_SPACE
    718, // CUDA_ERROR_INVALID_PC
    719, // CUDA_ERROR_LAUNCH_FAILED
];

/// Values of `CUdevice_attribute`.
pub(super) mod device {
    pub(in super::super) const KILOHERTZ: i32 = 13;
    pub(in super::super) const MULTIPROCESSORS: i32 = 16;
    pub(in super::super) const MEMORY_KILOHERTZ: i32 = 36;
    pub(in super::super) const MEMORY_BUS_BITS: i32 = 37;
    pub(in super::super) const L2_BYTES: i32 = 38;
    pub(in super::super) const CAPABILITY_MAJOR: i32 = 75;
    pub(in super::super) const CAPABILITY_MINOR: i32 = 76;
}

/// Values of `CUfunction_attribute`.
pub(super) mod function {
    pub(in super::super) const LOCAL_BYTES: i32 = 3;
    pub(in super::super) const REGISTERS: i32 = 4;
    pub(in super::super) const MOST_DYNAMIC_SHARED_BYTES: i32 = 8;
    pub(in super::super) const LARGE_CLUSTERS: i32 = 14;
}

/// Values of `CUjit_option`.
pub(super) mod jit {
    pub(in super::super) const INFO_LOG: i32 = 3;
    pub(in super::super) const INFO_LOG_BYTES: i32 = 4;
    pub(in super::super) const ERROR_LOG: i32 = 5;
    pub(in super::super) const ERROR_LOG_BYTES: i32 = 6;
    pub(in super::super) const VERBOSE: i32 = 12;
}

/// `CU_STREAM_NON_BLOCKING`: does not wait for the default stream.
pub(super) const NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
pub(super) const CAPTURE_THREAD_LOCAL: c_int = 1;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
pub(super) const AUTO_FREE_ON_LAUNCH: u64 = 1;

/// `CUlaunchAttribute`.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(super) struct LaunchAttribute {
    id: c_uint,
    pad: [u8; 4],
    value: [u32; 16],
}

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
    pub(super) fn cluster([x, y, z]: [u32; 3]) -> Self {
        Self::new(4, [x, y, z])
    }

    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: lets a kernel start before the previous
    /// kernel in its stream has ended. A `griddepcontrol.wait` in the kernel waits for that end.
    pub(super) fn overlap() -> Self {
        Self::new(6, [1, 0, 0])
    }

    fn new(id: c_uint, first: [u32; 3]) -> Self {
        let mut value = [0; 16];
        value[..3].copy_from_slice(&first);
        Self { id, pad: [0; 4], value }
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(super) struct LaunchConfig {
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared_bytes: c_uint,
    pub(super) stream: RawStream,
    pub(super) attributes: *mut LaunchAttribute,
    pub(super) attribute_count: c_uint,
}

/// `CUtensorMap`, with the alignment of the strictest version of the header.
#[repr(C, align(128))]
pub(super) struct EncodedMap {
    pub(super) words: [u64; 16],
}

/// The functions of the driver.
pub(super) struct Functions {
    pub(super) init: unsafe extern "C" fn(c_uint) -> Status,
    pub(super) error_name: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    pub(super) error_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    pub(super) device_count: unsafe extern "C" fn(*mut c_int) -> Status,
    pub(super) device_get: unsafe extern "C" fn(*mut c_int, c_int) -> Status,
    pub(super) device_name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Status,
    pub(super) device_uuid: unsafe extern "C" fn(*mut [u8; 16], c_int) -> Status,
    pub(super) device_attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Status,
    pub(super) primary_retain: unsafe extern "C" fn(*mut RawContext, c_int) -> Status,
    pub(super) primary_release: unsafe extern "C" fn(c_int) -> Status,
    pub(super) current: unsafe extern "C" fn(*mut RawContext) -> Status,
    pub(super) set_current: unsafe extern "C" fn(RawContext) -> Status,
    pub(super) synchronize: unsafe extern "C" fn() -> Status,
    pub(super) stream_create: unsafe extern "C" fn(*mut RawStream, c_uint) -> Status,
    pub(super) stream_destroy: unsafe extern "C" fn(RawStream) -> Status,
    pub(super) stream_synchronize: unsafe extern "C" fn(RawStream) -> Status,
    pub(super) stream_capturing: unsafe extern "C" fn(RawStream, *mut c_int) -> Status,
    pub(super) capture_begin: unsafe extern "C" fn(RawStream, c_int) -> Status,
    pub(super) capture_end: unsafe extern "C" fn(RawStream, *mut RawGraph) -> Status,
    pub(super) graph_instantiate: unsafe extern "C" fn(*mut RawGraphExec, RawGraph, u64) -> Status,
    pub(super) graph_destroy: unsafe extern "C" fn(RawGraph) -> Status,
    pub(super) graph_launch: unsafe extern "C" fn(RawGraphExec, RawStream) -> Status,
    pub(super) graph_exec_destroy: unsafe extern "C" fn(RawGraphExec) -> Status,
    pub(super) event_create: unsafe extern "C" fn(*mut RawEvent, c_uint) -> Status,
    pub(super) event_record: unsafe extern "C" fn(RawEvent, RawStream) -> Status,
    pub(super) event_elapsed: unsafe extern "C" fn(*mut f32, RawEvent, RawEvent) -> Status,
    pub(super) event_destroy: unsafe extern "C" fn(RawEvent) -> Status,
    pub(super) allocate: unsafe extern "C" fn(*mut u64, usize) -> Status,
    pub(super) free: unsafe extern "C" fn(u64) -> Status,
    pub(super) copy_to_device: unsafe extern "C" fn(u64, *const c_void, usize, RawStream) -> Status,
    pub(super) copy_to_host: unsafe extern "C" fn(*mut c_void, u64, usize, RawStream) -> Status,
    pub(super) module_load:
        unsafe extern "C" fn(*mut RawModule, *const c_void, c_uint, *mut c_int, *mut *mut c_void) -> Status,
    pub(super) module_function: unsafe extern "C" fn(*mut RawFunction, RawModule, *const c_char) -> Status,
    pub(super) module_unload: unsafe extern "C" fn(RawModule) -> Status,
    pub(super) function_set: unsafe extern "C" fn(RawFunction, c_int, c_int) -> Status,
    pub(super) function_get: unsafe extern "C" fn(*mut c_int, c_int, RawFunction) -> Status,
    pub(super) active_clusters: unsafe extern "C" fn(*mut c_int, RawFunction, *const LaunchConfig) -> Status,
    pub(super) launch:
        unsafe extern "C" fn(*const LaunchConfig, RawFunction, *mut *mut c_void, *mut *mut c_void) -> Status,
    pub(super) encode_tiled: unsafe extern "C" fn(
        *mut EncodedMap,
        c_uint,
        c_uint,
        *mut c_void,
        *const u64,
        *const u64,
        *const u32,
        *const u32,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
    ) -> Status,
    pub(super) encode_im2col: unsafe extern "C" fn(
        *mut EncodedMap,
        c_uint,
        c_uint,
        *mut c_void,
        *const u64,
        *const u64,
        *const c_int,
        *const c_int,
        u32,
        u32,
        *const u32,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
    ) -> Status,
    pub(super) replace_address: unsafe extern "C" fn(*mut EncodedMap, *mut c_void) -> Status,
}

impl Functions {
    /// Looks up every function, so that a missing one is an error now and not in the middle of a launch.
    ///
    /// # Errors
    /// The first function that the library lacks.
    ///
    /// # Safety
    /// The library must be CUDA's driver, and must stay loaded as long as the functions are called.
    pub(super) unsafe fn look_up(library: &Library) -> Result<Self, &'static str> {
        // SAFETY: each field's type is that of the function of this name in `cuda.h`; the caller keeps the library.
        unsafe {
            Ok(Self {
                init: get(library, "cuInit")?,
                error_name: get(library, "cuGetErrorName")?,
                error_string: get(library, "cuGetErrorString")?,
                device_count: get(library, "cuDeviceGetCount")?,
                device_get: get(library, "cuDeviceGet")?,
                device_name: get(library, "cuDeviceGetName")?,
                device_uuid: get(library, "cuDeviceGetUuid_v2")?,
                device_attribute: get(library, "cuDeviceGetAttribute")?,
                primary_retain: get(library, "cuDevicePrimaryCtxRetain")?,
                primary_release: get(library, "cuDevicePrimaryCtxRelease_v2")?,
                current: get(library, "cuCtxGetCurrent")?,
                set_current: get(library, "cuCtxSetCurrent")?,
                synchronize: get(library, "cuCtxSynchronize")?,
                stream_create: get(library, "cuStreamCreate")?,
                stream_destroy: get(library, "cuStreamDestroy_v2")?,
                stream_synchronize: get(library, "cuStreamSynchronize")?,
                stream_capturing: get(library, "cuStreamIsCapturing")?,
                capture_begin: get(library, "cuStreamBeginCapture_v2")?,
                capture_end: get(library, "cuStreamEndCapture")?,
                graph_instantiate: get(library, "cuGraphInstantiateWithFlags")?,
                graph_destroy: get(library, "cuGraphDestroy")?,
                graph_launch: get(library, "cuGraphLaunch")?,
                graph_exec_destroy: get(library, "cuGraphExecDestroy")?,
                event_create: get(library, "cuEventCreate")?,
                event_record: get(library, "cuEventRecord")?,
                event_elapsed: get(library, "cuEventElapsedTime")?,
                event_destroy: get(library, "cuEventDestroy_v2")?,
                allocate: get(library, "cuMemAlloc_v2")?,
                free: get(library, "cuMemFree_v2")?,
                copy_to_device: get(library, "cuMemcpyHtoDAsync_v2")?,
                copy_to_host: get(library, "cuMemcpyDtoHAsync_v2")?,
                module_load: get(library, "cuModuleLoadDataEx")?,
                module_function: get(library, "cuModuleGetFunction")?,
                module_unload: get(library, "cuModuleUnload")?,
                function_set: get(library, "cuFuncSetAttribute")?,
                function_get: get(library, "cuFuncGetAttribute")?,
                active_clusters: get(library, "cuOccupancyMaxActiveClusters")?,
                launch: get(library, "cuLaunchKernelEx")?,
                encode_tiled: get(library, "cuTensorMapEncodeTiled")?,
                encode_im2col: get(library, "cuTensorMapEncodeIm2col")?,
                replace_address: get(library, "cuTensorMapReplaceAddress")?,
            })
        }
    }
}

/// Looks up one function.
///
/// # Safety
/// `F` must be the type of that function. The function must not be called after the library is unloaded.
unsafe fn get<F: Copy>(library: &Library, name: &'static str) -> Result<F, &'static str> {
    // SAFETY: guaranteed by the caller.
    let symbol = unsafe { library.get::<F>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| name)
}

#[cfg(test)]
mod tests {
    use super::{EncodedMap, LaunchAttribute, LaunchConfig};

    #[test]
    fn structures_are_laid_out_as_in_the_header() {
        assert_eq!((size_of::<LaunchAttribute>(), align_of::<LaunchAttribute>()), (72, 8));
        assert_eq!(core::mem::offset_of!(LaunchAttribute, value), 8);
        assert_eq!((size_of::<LaunchConfig>(), core::mem::offset_of!(LaunchConfig, stream)), (56, 32));
        assert_eq!((size_of::<EncodedMap>(), align_of::<EncodedMap>()), (128, 128));
    }

    /// This program itself is not a driver.
    #[cfg(unix)]
    #[test]
    #[allow(unsafe_code, reason = "looks functions up")]
    fn a_missing_function_is_named() {
        let library = libloading::Library::from(libloading::os::unix::Library::this());
        // SAFETY: nothing is called.
        assert_eq!(unsafe { super::Functions::look_up(&library) }.err(), Some("cuInit"));
    }
}
