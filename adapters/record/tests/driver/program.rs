//! A program that launches three kernels, and prints what they have written. Its first argument says how it finds the driver's functions.
#![allow(non_snake_case, reason = "the driver's names")]

use std::ffi::{CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// `cuGetProcAddress_v2`.
type Look = unsafe extern "C" fn(*const c_char, *mut usize, c_int, u64, *mut c_int) -> c_int;

struct Driver {
    handle: *mut c_void,
    look: Option<Look>,
}

impl Driver {
    fn open(how: &str) -> Self {
        unsafe {
            let handle = dlopen(c"libcuda.so.1".as_ptr(), 2);
            assert!(!handle.is_null(), "the stand-in");
            let look = dlsym(handle, c"cuGetProcAddress_v2".as_ptr());
            Self { handle, look: (how == "asked").then(|| std::mem::transmute(look)) }
        }
    }

    /// A function: its name, and the version in the library's name.
    fn get(&self, name: &str, version: &str) -> usize {
        unsafe {
            match self.look {
                Some(look) => {
                    let (mut to, mut why) = (0, 0);
                    let name = CString::new(name).unwrap();
                    assert_eq!(look(name.as_ptr(), &mut to, 12_030, 0, &mut why), 0, "{name:?}");
                    to
                }
                None => dlsym(self.handle, CString::new(format!("{name}{version}")).unwrap().as_ptr()) as usize,
            }
        }
    }
}

macro_rules! call {
    ($driver:expr, $name:literal, $version:literal, $($value:expr => $ty:ty),*) => {{
        let function: unsafe extern "C" fn($($ty),*) -> c_int = unsafe { std::mem::transmute($driver.get($name, $version)) };
        assert_eq!(unsafe { function($($value),*) }, 0, $name);
    }};
}

/// What a module is loaded from: a text, a binary, or a fat binary with what the compiler puts before one.
struct Image(Vec<u8>, Option<Box<(u32, u32, *const u8)>>);

impl Image {
    /// The file, or the one beside it that is no text.
    fn of(file: &str) -> Self {
        let other = file.replace(".ptx", ".image");
        let mut bytes = std::fs::read(other).or_else(|_| std::fs::read(file)).unwrap();
        bytes.push(0);
        let wrapper = bytes.starts_with(&0xba55_ed50_u32.to_le_bytes()).then(|| Box::new((0x4662_43b1, 1, bytes.as_ptr())));
        Self(bytes, wrapper)
    }

    fn address(&self) -> *const c_void {
        match &self.1 {
            Some(wrapper) => (&raw const **wrapper).cast(),
            None => self.0.as_ptr().cast(),
        }
    }
}

impl Driver {
    fn memory(&self, bytes: usize, first: f32) -> u64 {
        let mut address = 0u64;
        call!(self, "cuMemAlloc", "_v2", &mut address => *mut u64, bytes => usize);
        let numbers: Vec<f32> = (0..bytes / 4).map(|at| first + at as f32).collect();
        call!(self, "cuMemcpyHtoD", "_v2", address => u64, numbers.as_ptr() => *const f32, bytes => usize);
        address
    }

    fn print(&self, address: u64) {
        let mut numbers = [0f32; 64];
        call!(self, "cuMemcpyDtoH", "_v2", numbers.as_mut_ptr() => *mut f32, address => u64, 256 => usize);
        println!("{numbers:?}");
    }

    fn function(&self, file: &str, name: &str) -> usize {
        let image = Image::of(file);
        let (mut module, mut function, name) = (0usize, 0usize, CString::new(name).unwrap());
        call!(self, "cuModuleLoadData", "", &mut module => *mut usize, image.address() => *const c_void);
        call!(self, "cuModuleGetFunction", "", &mut function => *mut usize, module => usize, name.as_ptr() => *const c_char);
        function
    }

    fn kernel(&self, file: &str, name: &str) -> usize {
        let image = Image::of(file);
        let (mut library, mut kernel, name) = (0usize, 0usize, CString::new(name).unwrap());
        call!(self, "cuLibraryLoadData", "", &mut library => *mut usize, image.address() => *const c_void, 0 => usize,
            0 => usize, 0 => u32, 0 => usize, 0 => usize, 0 => u32);
        call!(self, "cuLibraryGetKernel", "", &mut kernel => *mut usize, library => usize, name.as_ptr() => *const c_char);
        kernel
    }

    fn launch(&self, (function, grid, threads, stream): (usize, u32, u32, usize), values: &[*const c_void]) {
        call!(self, "cuLaunchKernel", "", function => usize, grid => u32, 1 => u32, 1 => u32, threads => u32, 1 => u32,
            1 => u32, 0 => u32, stream => usize, values.as_ptr() => *const *const c_void, 0 => usize);
    }

    fn add(&self, file: &str) {
        let function = self.function(file, "add");
        // Two matrices in one allocation.
        let (both, y) = (self.memory(1024, 1.0), self.memory(512, 0.0));
        let (a, b, n, factor) = (both, both + 512, 100u32, 0.5f32);
        let of = |value: &u64| (value as *const u64).cast::<c_void>();
        let values = [of(&a), of(&b), of(&y), (&raw const n).cast(), (&raw const factor).cast()];
        // A launch that is captured goes by.
        self.launch((function, 2, 64, 7), &values);
        self.launch((function, 2, 64, 0), &values);
        self.launch((function, 2, 64, 0), &values);
        self.print(y);
    }

    fn scale(&self, file: &str) {
        #[repr(C)]
        struct Pair {
            x: u64,
            y: u64,
            factor: f32,
            n: u32,
        }
        #[repr(C)]
        struct Config(u32, u32, u32, u32, u32, u32, u32, usize, *const u32, u32);
        let function = self.function(file, "scale");
        let memory = self.memory(4096, 3.0);
        let pair = Pair { x: memory + 256, y: memory + 2048, factor: 2.0, n: 64 };
        let size = size_of::<Pair>();
        let extra = [1 as *const c_void, (&raw const pair).cast(), 2 as *const c_void, (&raw const size).cast(), std::ptr::null()];
        let mut attributes = [0u32; 36];
        attributes[..5].copy_from_slice(&[4, 0, 2, 1, 1]);
        attributes[18..21].copy_from_slice(&[6, 0, 0]);
        let config = Config(2, 1, 1, 64, 1, 1, 1024, 0, attributes.as_ptr(), 2);
        call!(self, "cuLaunchKernelEx", "", &raw const config => *const Config, function => usize, 0 => usize,
            extra.as_ptr() => *const *const c_void);
        self.print(pair.y);
    }

    fn tile(&self, file: &str) {
        let kernel = self.kernel(file, "tile");
        let (matrix, y) = (self.memory(4096, 0.0), self.memory(256, 0.0));
        #[repr(C, align(64))]
        struct Map([u64; 16]);
        let mut map = Map([0; 16]);
        let (dims, strides, extents, steps) = ([32u64, 32], [128u64], [8u32, 8], [1u32, 1]);
        call!(self, "cuTensorMapEncodeTiled", "", &mut map => *mut Map, 7 => u32, 2 => u32, matrix => u64,
            dims.as_ptr() => *const u64, strides.as_ptr() => *const u64, extents.as_ptr() => *const u32,
            steps.as_ptr() => *const u32, 0 => u32, 0 => u32, 2 => u32, 0 => u32);
        self.launch((kernel, 1, 32, 0), &[(&raw const map).cast(), (&raw const y).cast()]);
        self.print(y);
    }

    fn indirect(&self, file: &str) {
        let function = self.function(file, "indirect");
        let (table, x, y) = (self.memory(64, 0.0), self.memory(256, 5.0), self.memory(256, 0.0));
        let both = [x, y];
        call!(self, "cuMemcpyHtoD", "_v2", table => u64, both.as_ptr() => *const u64, 16 => usize);
        self.launch((function, 1, 64, 0), &[(&raw const table).cast()]);
        self.print(y);
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    // The next `malloc` is the system's, whoever answers the look-up.
    assert!(!unsafe { dlsym(-1isize as *mut c_void, c"malloc".as_ptr()) }.is_null());
    assert!(unsafe { dlsym(std::ptr::null_mut(), c"cuNothing".as_ptr()) }.is_null());
    let driver = Driver::open(&arguments[1]);
    let file = |name: &str| format!("{}/{name}.ptx", arguments[2]);
    driver.add(&file("add"));
    driver.scale(&file("scale"));
    driver.tile(&file("tile"));
    driver.indirect(&file("indirect"));
}
