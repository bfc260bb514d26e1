//! Memory at multiples of 256 bytes, small integers and their products, and the run of a description.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;

use crate::structures::{
    Arguments, Description, Gemm, OK, falchion_gemm_create, falchion_gemm_destroy, falchion_gemm_emulate,
    falchion_gemm_name, falchion_last_error,
};

/// A structure of zeros.
pub(crate) fn zeros<T: Copy>() -> T {
    // SAFETY: the structures of the interface may be zero.
    unsafe { core::mem::zeroed() }
}

pub(crate) fn last() -> String {
    // SAFETY: the text lives until the thread's next failure.
    unsafe { CStr::from_ptr(falchion_last_error()) }.to_string_lossy().into_owned()
}

pub(crate) fn description(types: &CStr, [m, n, k]: [usize; 3]) -> Description {
    let [m, n, k] = [m, n, k].map(|extent| extent as u32);
    let (size, args_size) = (size_of::<Description>(), size_of::<Arguments>());
    Description { size, args_size, types: types.as_ptr(), m, n, k, alignment: 16, ..zeros() }
}

/// Memory at a multiple of 256 bytes, plus an offset.
pub(crate) struct Aligned(Vec<u8>, usize);

impl Aligned {
    pub(crate) fn new(bytes: &[u8], offset: usize) -> Self {
        let mut all = vec![0; bytes.len() + 512];
        let start = all.as_ptr().align_offset(256) + offset;
        all[start..start + bytes.len()].copy_from_slice(bytes);
        Self(all, start)
    }

    pub(crate) fn of<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Self {
        Self::new(&values.iter().flat_map(|&value| bytes(value)).collect::<Vec<u8>>(), 0)
    }

    pub(crate) fn at(&self) -> *const c_void {
        self.0[self.1..].as_ptr().cast()
    }

    pub(crate) fn f64s(&self, count: usize) -> Vec<f64> {
        self.0[self.1..].as_chunks().0.iter().take(count).map(|bytes| f64::from_le_bytes(*bytes)).collect()
    }

    pub(crate) fn f32s(&self, count: usize) -> Vec<f32> {
        self.0[self.1..].as_chunks().0.iter().take(count).map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

/// Emulates a GEMM and returns the kernel's name.
pub(crate) fn emulate(why: &str, description: &Description, arguments: &Arguments) -> String {
    let mut gemm: *mut Gemm = null_mut();
    // SAFETY: the structures are valid, and so is the memory that they name.
    unsafe {
        assert_eq!(falchion_gemm_create(description, &mut gemm), OK, "{why}: {}", last());
        assert_eq!(falchion_gemm_emulate(gemm, arguments), OK, "{why}: {}", last());
        let name = CStr::from_ptr(falchion_gemm_name(gemm)).to_string_lossy().into_owned();
        falchion_gemm_destroy(gemm);
        name
    }
}

/// Small integers.
pub(crate) fn small(count: usize, by: usize) -> Vec<i8> {
    (0..count).map(|i| (i * by % 7) as i8 - 3).collect()
}

/// `A * B^T` of rows of K.
pub(crate) fn product(a: &[i8], b: &[i8], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let dot =
        |i: usize, j: usize| (0..k).map(|l| i32::from(a[i * k + l]) * i32::from(b[j * k + l])).sum::<i32>();
    (0..m * n).map(|at| dot(at / n, at % n) as f32).collect()
}

pub(crate) const EXTENTS: [usize; 3] = [40, 48, 256];

/// `e4m3` codes of small integers.
pub(crate) fn e4m3(value: i8) -> [u8; 1] {
    let size = [0, 0x38, 0x40, 0x44][usize::from(value.unsigned_abs())];
    [if value < 0 { 0x80 | size } else { size }]
}

/// `f16` bits of small numbers.
pub(crate) fn f16(value: f32) -> [u8; 2] {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 0xff) as u16;
    let half = if value == 0.0 { 0 } else { (exponent - 112) << 10 | (bits >> 13 & 0x3ff) as u16 };
    (half | (bits >> 16 & 0x8000) as u16).to_le_bytes()
}
