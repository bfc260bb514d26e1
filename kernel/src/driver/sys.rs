//! The part of `cuda.h` that is used: types, constants and functions. Functions are looked up in the
//! installed driver, once.
//!
//! Why no binding crate: such a crate chooses a CUDA version at build time. It then looks for a toolkit, or
//! conflicts with the version that another crate of the same program chose. The functions here are in every
//! driver since CUDA 12.0.
#![allow(unsafe_code, reason = "looks functions up by name")]

use core::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;
use ptx::abi::TENSOR_MAP_BYTES;

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
/// `CUuserObject`.
pub(super) type RawUserObject = *mut c_void;
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
/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(super) const CAPTURE_RELAXED: c_int = 2;
/// `CU_USER_OBJECT_NO_DESTRUCTOR_SYNC`, the only way there is.
pub(super) const NO_DESTRUCTOR_SYNC: c_uint = 1;
/// `CU_GRAPH_USER_OBJECT_MOVE`: the graph takes the caller's reference.
pub(super) const USER_OBJECT_MOVE: c_uint = 1;
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
    pub(super) bytes: [u8; TENSOR_MAP_BYTES],
}

/// The table of the driver's functions: a field, the function's name in the library, and the types of its arguments.
macro_rules! functions {
    ($($field:ident = $name:literal ($($argument:ty),*);)+) => {
        /// The functions of the driver.
        pub(super) struct Functions {
            $(pub(super) $field: unsafe extern "C" fn($($argument),*) -> Status,)+
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
                unsafe { Ok(Self { $($field: get(library, $name)?,)+ }) }
            }
        }
    };
}

functions! {
    init = "cuInit" (c_uint);
    error_name = "cuGetErrorName" (Status, *mut *const c_char);
    error_string = "cuGetErrorString" (Status, *mut *const c_char);
    device_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_uuid = "cuDeviceGetUuid_v2" (*mut [u8; 16], c_int);
    device_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    primary_retain = "cuDevicePrimaryCtxRetain" (*mut RawContext, c_int);
    primary_release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    current = "cuCtxGetCurrent" (*mut RawContext);
    set_current = "cuCtxSetCurrent" (RawContext);
    synchronize = "cuCtxSynchronize" ();
    stream_create = "cuStreamCreate" (*mut RawStream, c_uint);
    stream_destroy = "cuStreamDestroy_v2" (RawStream);
    stream_synchronize = "cuStreamSynchronize" (RawStream);
    capture_info = "cuStreamGetCaptureInfo_v2" (
        RawStream, *mut c_int, *mut u64, *mut RawGraph, *mut *const c_void, *mut usize
    );
    capture_mode = "cuThreadExchangeStreamCaptureMode" (*mut c_int);
    user_object = "cuUserObjectCreate" (
        *mut RawUserObject, *mut c_void, unsafe extern "C" fn(*mut c_void), c_uint, c_uint
    );
    graph_retain = "cuGraphRetainUserObject" (RawGraph, RawUserObject, c_uint, c_uint);
    capture_begin = "cuStreamBeginCapture_v2" (RawStream, c_int);
    capture_end = "cuStreamEndCapture" (RawStream, *mut RawGraph);
    graph_instantiate = "cuGraphInstantiateWithFlags" (*mut RawGraphExec, RawGraph, u64);
    graph_destroy = "cuGraphDestroy" (RawGraph);
    graph_launch = "cuGraphLaunch" (RawGraphExec, RawStream);
    graph_exec_destroy = "cuGraphExecDestroy" (RawGraphExec);
    event_create = "cuEventCreate" (*mut RawEvent, c_uint);
    event_record = "cuEventRecord" (RawEvent, RawStream);
    event_elapsed = "cuEventElapsedTime" (*mut f32, RawEvent, RawEvent);
    event_destroy = "cuEventDestroy_v2" (RawEvent);
    allocate = "cuMemAlloc_v2" (*mut u64, usize);
    free = "cuMemFree_v2" (u64);
    copy_to_device = "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, RawStream);
    copy_to_host = "cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, RawStream);
    module_load = "cuModuleLoadDataEx" (*mut RawModule, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_function = "cuModuleGetFunction" (*mut RawFunction, RawModule, *const c_char);
    module_unload = "cuModuleUnload" (RawModule);
    function_set = "cuFuncSetAttribute" (RawFunction, c_int, c_int);
    function_get = "cuFuncGetAttribute" (*mut c_int, c_int, RawFunction);
    active_clusters = "cuOccupancyMaxActiveClusters" (*mut c_int, RawFunction, *const LaunchConfig);
    launch = "cuLaunchKernelEx" (*const LaunchConfig, RawFunction, *mut *mut c_void, *mut *mut c_void);
    encode_tiled = "cuTensorMapEncodeTiled" (
        *mut EncodedMap, c_uint, c_uint, *mut c_void, *const u64, *const u64, *const u32, *const u32, c_uint,
        c_uint, c_uint, c_uint
    );
    encode_im2col = "cuTensorMapEncodeIm2col" (
        *mut EncodedMap, c_uint, c_uint, *mut c_void, *const u64, *const u64, *const c_int, *const c_int,
        u32, u32, *const u32, c_uint, c_uint, c_uint, c_uint
    );
    replace_address = "cuTensorMapReplaceAddress" (*mut EncodedMap, *mut c_void);
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
