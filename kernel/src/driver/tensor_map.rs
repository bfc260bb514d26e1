//! Tensor maps, encoded by the driver.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::c_void;
use core::ptr;

use ptx::abi::{MapDescription, Promotion, TENSOR_MAP_BYTES, TensorElement, TensorSwizzle};

use super::context::Context;
use super::sys::EncodedMap;
use crate::error::EngineError;

/// `CU_TENSOR_MAP_INTERLEAVE_NONE`.
const NO_INTERLEAVE: u32 = 0;
/// `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE`: elements out of bounds are zeros.
const FILL_ZEROS: u32 = 0;

/// Encodes a tensor map that has been checked, with `cuTensorMapEncodeTiled` or `cuTensorMapEncodeIm2col`: packed boxes, no
/// interleave, zeros out of bounds. The context must be current in the calling thread.
///
/// A null address is legal in a map through which nothing is read; it is encoded as the lowest aligned address.
///
/// # Errors
/// The driver rejects it.
pub(super) fn encode(
    context: &Context,
    description: MapDescription<'_>,
) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    let mut encoded = EncodedMap { bytes: [0; TENSOR_MAP_BYTES] };
    let mut element_strides = [1u32; 5];
    let functions = &context.driver().functions;
    match description {
        MapDescription::Tiled(map) => {
            // SAFETY: the description has been checked. So there are `rank` extents, box extents and element
            // strides, and one stride fewer. The driver reads no more of them and writes one encoded map. The
            // address is only stored.
            let status = unsafe {
                (functions.encode_tiled)(
                    &mut encoded,
                    data_type(map.element),
                    map.rank() as u32,
                    address(map.address),
                    map.dims.as_ptr(),
                    map.strides.as_ptr(),
                    map.box_dims.as_ptr(),
                    element_strides.as_ptr(),
                    NO_INTERLEAVE,
                    swizzle(map.swizzle),
                    promotion(context, map.promotion)?,
                    FILL_ZEROS,
                )
            };
            context.check("cuTensorMapEncodeTiled", status)?;
        }
        MapDescription::Im2col(map) => {
            // Steps are 1 for channels and images; those of the pixel dimensions begin with the second entry.
            for (place, &step) in element_strides[1..].iter_mut().zip(&map.steps) {
                *place = step;
            }
            // SAFETY: as above. There are two corner coordinates fewer than extents.
            let status = unsafe {
                (functions.encode_im2col)(
                    &mut encoded,
                    data_type(map.element),
                    map.rank() as u32,
                    address(map.address),
                    map.dims.as_ptr(),
                    map.strides.as_ptr(),
                    map.lower.as_ptr(),
                    map.upper.as_ptr(),
                    map.channels,
                    map.pixels,
                    element_strides.as_ptr(),
                    NO_INTERLEAVE,
                    swizzle(map.swizzle),
                    promotion(context, Promotion::B256)?,
                    FILL_ZEROS,
                )
            };
            context.check("cuTensorMapEncodeIm2col", status)?;
        }
    }
    Ok(encoded.bytes)
}

/// Changes the address of an encoded tiled map with `cuTensorMapReplaceAddress`. The address has been checked: it has
/// at least the alignment of the old one.
pub(super) fn readdress(
    context: &Context,
    map: &mut [u8; TENSOR_MAP_BYTES],
    to: u64,
) -> Result<(), EngineError> {
    let mut encoded = EncodedMap { bytes: *map };
    // SAFETY: the driver reads and writes one encoded map; the address is only stored.
    let status = unsafe { (context.driver().functions.replace_address)(&mut encoded, address(to)) };
    context.check("cuTensorMapReplaceAddress", status)?;
    *map = encoded.bytes;
    Ok(())
}

fn address(address: u64) -> *mut c_void {
    ptr::without_provenance_mut(address.max(16) as usize)
}

/// From this memory bandwidth in bytes per second on, what is read once is fetched by single lines. Measured on H100s (3.35e12) and
/// H200s (4.8e12).
const FAST_MEMORY: f64 = 4e12;

/// Values of `CUtensorMapL2promotion`.
fn promotion(context: &Context, promotion: Promotion) -> Result<u32, EngineError> {
    Ok(match promotion {
        Promotion::None => 0,
        Promotion::B64 => 1,
        Promotion::B128 => 2,
        Promotion::B256 => 3,
        Promotion::ByCard if context.card()?.memory_bandwidth > FAST_MEMORY => 2,
        Promotion::ByCard => 3,
    })
}

/// Values of `CUtensorMapDataType`.
fn data_type(element: TensorElement) -> u32 {
    match element {
        TensorElement::U8 => 0,
        TensorElement::U16 => 1,
        TensorElement::U32 => 2,
        TensorElement::S32 => 3,
        TensorElement::U64 => 4,
        TensorElement::S64 => 5,
        TensorElement::F16 => 6,
        TensorElement::F32 => 7,
        TensorElement::F64 => 8,
        TensorElement::Bf16 => 9,
    }
}

/// Values of `CUtensorMapSwizzle`.
fn swizzle(swizzle: TensorSwizzle) -> u32 {
    match swizzle {
        TensorSwizzle::None => 0,
        TensorSwizzle::B32 => 1,
        TensorSwizzle::B64 => 2,
        TensorSwizzle::B128 => 3,
    }
}

#[cfg(test)]
mod tests {
    use ptx::abi::{TensorElement, TensorSwizzle};

    use super::{data_type, swizzle};

    #[test]
    fn elements_and_swizzles_have_the_numbers_of_the_header() {
        for (element, number) in [
            (TensorElement::U8, 0),
            (TensorElement::U16, 1),
            (TensorElement::U32, 2),
            (TensorElement::S32, 3),
            (TensorElement::U64, 4),
            (TensorElement::S64, 5),
            (TensorElement::F16, 6),
            (TensorElement::F64, 8),
            (TensorElement::F32, 7),
            (TensorElement::Bf16, 9),
        ] {
            assert_eq!(data_type(element), number, "{element:?}");
        }
        for (span, number) in [
            (TensorSwizzle::None, 0),
            (TensorSwizzle::B32, 1),
            (TensorSwizzle::B64, 2),
            (TensorSwizzle::B128, 3),
        ] {
            assert_eq!(swizzle(span), number, "{span:?}");
        }
    }
}
