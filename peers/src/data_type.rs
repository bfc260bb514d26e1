//! Number formats as NVIDIA's libraries number them: `cudaDataType`.

use collective::Format;

pub(crate) const F32: i32 = 0;
pub(crate) const F64: i32 = 1;
pub(crate) const F16: i32 = 2;
pub(crate) const S8: i32 = 3;
pub(crate) const U8: i32 = 8;
pub(crate) const S32: i32 = 10;
pub(crate) const BF16: i32 = 14;
pub(crate) const E4M3: i32 = 28;
pub(crate) const E5M2: i32 = 29;

/// The number of a format. `tf32` lies in memory as `f32`.
pub(crate) const fn of(format: Format) -> i32 {
    match format {
        Format::F32 | Format::Tf32 => F32,
        Format::Bf16 => BF16,
        Format::F16 => F16,
        Format::E4m3 => E4M3,
        Format::E5m2 => E5M2,
        Format::S8 => S8,
        Format::U8 => U8,
        Format::S32 => S32,
        Format::F64 => F64,
    }
}
