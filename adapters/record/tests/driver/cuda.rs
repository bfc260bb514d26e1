//! A stand-in for CUDA's driver. Device memory is host memory, and a launch does on the host what the kernel of its name does.
#![allow(non_snake_case, unused_unsafe, reason = "the driver's names; some functions do nothing")]

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Mutex;

/// Allocations: their bytes by their beginning. Functions: their names by handle.
static MEMORY: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

const INVALID: c_int = 1;
/// The stream that is captured.
const CAPTURED: usize = 7;
const NOT_FOUND: c_int = 500;

/// The functions, by name: for `cuGetProcAddress`.
macro_rules! functions {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $ty:ty),* $(,)?) $body:block)+) => {
        $($(#[$attribute])* #[unsafe(no_mangle)] pub unsafe extern "C" fn $name($($argument: $ty),*) -> c_int { unsafe { $body } })+
        fn address(name: &str) -> usize {
            match name {
                $(stringify!($name) => $name as *const () as usize,)+
                _ => 0,
            }
        }
    };
}

functions! {
    fn cuInit(_flags: c_uint) { 0 }
    fn cuCtxSynchronize() { 0 }
    fn cuGetProcAddress_v2(name: *const c_char, to: *mut usize, _version: c_int, _flags: u64, _why: *mut c_int) {
        let name = CStr::from_ptr(name).to_str().unwrap();
        let own = match name {
            "cuMemAlloc" | "cuMemFree" | "cuMemcpyHtoD" | "cuMemcpyDtoH" | "cuGetProcAddress" => format!("{name}_v2"),
            _ => name.to_owned(),
        };
        *to = address(&own);
        if *to == 0 { NOT_FOUND } else { 0 }
    }
    fn cuMemAlloc_v2(to: *mut u64, bytes: usize) {
        let memory = vec![0u128; bytes.div_ceil(16) + 16].leak();
        *to = (memory.as_ptr() as u64).next_multiple_of(256);
        MEMORY.lock().unwrap().insert(*to, bytes);
        0
    }
    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) {
        let memory = MEMORY.lock().unwrap();
        match memory.range(..=address).next_back().filter(|(start, bytes)| address - **start < **bytes as u64) {
            Some((start, size)) => {
                (*base, *bytes) = (*start, *size);
                0
            }
            None => INVALID,
        }
    }
    fn cuMemcpyHtoD_v2(to: u64, from: *const u8, bytes: usize) {
        from.copy_to(to as *mut u8, bytes);
        0
    }
    fn cuMemcpyDtoH_v2(to: *mut u8, from: u64, bytes: usize) {
        (from as *const u8).copy_to(to, bytes);
        0
    }
    fn cuStreamIsCapturing(stream: usize, status: *mut c_int) {
        *status = (stream == CAPTURED).into();
        0
    }
    fn cuModuleLoadData(module: *mut usize, _image: *const c_char) {
        *module = 0x100;
        0
    }
    fn cuModuleGetFunction(function: *mut usize, _module: usize, name: *const c_char) {
        named(function, name)
    }
    fn cuLibraryLoadData(
        library: *mut usize, _image: *const c_char, _a: usize, _b: usize, _c: c_uint, _d: usize, _e: usize, _f: c_uint,
    ) {
        *library = 0x200;
        0
    }
    fn cuLibraryGetKernel(kernel: *mut usize, _library: usize, name: *const c_char) {
        named(kernel, name)
    }
    fn cuKernelGetParamInfo(kernel: usize, number: usize, offset: *mut usize, bytes: *mut usize) {
        let all: &[(usize, usize)] = match name(kernel).as_str() {
            "tile" => &[(0, 128), (128, 8)],
            _ => &[],
        };
        let Some(&(at, size)) = all.get(number) else { return INVALID };
        (*offset, *bytes) = (at, size);
        0
    }
    fn cuTensorMapEncodeTiled(
        map: *mut [u64; 16], element: c_uint, rank: c_uint, address: u64, dims: *const u64, strides: *const u64,
        _box: *const u32, _steps: *const u32, _a: c_uint, _b: c_uint, _c: c_uint, _d: c_uint,
    ) {
        let mut words = [0xabcd; 16];
        words[..4].copy_from_slice(&[address, u64::from(element) << 32 | u64::from(rank), *dims, *strides]);
        *map = words;
        0
    }
    fn cuLaunchKernel(
        function: usize, gx: c_uint, _gy: c_uint, _gz: c_uint, tx: c_uint, _ty: c_uint, _tz: c_uint, _shared: c_uint,
        stream: usize, values: *const *const c_void, extra: *const *const c_void,
    ) {
        if stream == CAPTURED {
            return 0;
        }
        run(&name(function), (gx * tx) as usize, values, extra)
    }
    fn cuLaunchKernelEx(config: *const c_uint, function: usize, values: *const *const c_void, extra: *const *const c_void) {
        run(&name(function), (*config * *config.add(3)) as usize, values, extra)
    }
}

unsafe fn named(function: *mut usize, name: *const c_char) -> c_int {
    let mut names = NAMES.lock().unwrap();
    unsafe {
        names.push(CStr::from_ptr(name).to_str().unwrap().to_owned());
        *function = 0x1000 + names.len() * 16;
    }
    0
}

fn name(function: usize) -> String {
    NAMES.lock().unwrap()[(function - 0x1000) / 16 - 1].clone()
}

/// Does what a kernel does.
unsafe fn run(name: &str, threads: usize, values: *const *const c_void, extra: *const *const c_void) -> c_int {
    let floats = |address: u64, at: usize| unsafe { (address as *mut f32).add(at) };
    unsafe {
        match name {
            "add" => {
                let [a, b, y] = [0, 1, 2].map(|number| *(*values.add(number)).cast::<u64>());
                let (n, factor) = (*(*values.add(3)).cast::<u32>(), *(*values.add(4)).cast::<f32>());
                for at in 0..threads.min(n as usize) {
                    *floats(y, at) = (*floats(b, at)).mul_add(factor, *floats(a, at));
                }
            }
            "scale" => {
                // The bytes of all parameters, after their key.
                let all = *extra.add(1);
                let [x, y] = *all.cast::<[u64; 2]>();
                let factor = *all.add(16).cast::<f32>();
                for at in 0..*all.add(20).cast::<u32>() as usize {
                    *floats(y, at) = *floats(x, at) * factor;
                }
            }
            "indirect" => {
                let table = *(*values).cast::<u64>();
                let [x, y] = *(table as *const [u64; 2]);
                for at in 0..threads {
                    *floats(y, at) = *floats(x, at);
                }
            }
            "tile" => {
                let [from, _, _, pitch] = *(*values).cast::<[u64; 4]>();
                let y = *(*values.add(1)).cast::<u64>();
                for at in 0..64 {
                    *floats(y, at) = *floats(from + (2 + at as u64 / 8) * pitch, 4 + at % 8);
                }
            }
            _ => return NOT_FOUND,
        }
    }
    0
}
