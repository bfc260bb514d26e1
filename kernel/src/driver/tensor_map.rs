//! Tensor maps, encoded by the driver.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::c_void;
use core::ptr;

use ptx::abi::{
    Description, Im2colMap, Promotion, TENSOR_MAP_BYTES, TensorElement, TensorMap, TensorSwizzle,
};

use super::library::Driver;
use super::sys::{EncodedMap, Status};
use super::{call, library};
use crate::error::EngineError;

/// `CU_TENSOR_MAP_INTERLEAVE_NONE`.
const NO_INTERLEAVE: u32 = 0;
/// `CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE`: elements out of bounds are zeros.
const FILL_ZEROS: u32 = 0;

/// Encodes a tensor map with `cuTensorMapEncodeTiled`: packed boxes, no interleave, zeros out of bounds.
///
/// A null address is legal in a map through which nothing is read; it is encoded as the lowest aligned
/// address.
///
/// A context must be current in the calling thread.
///
/// # Errors
/// There is no driver, the description breaks a rule, or the driver rejects it.
pub fn encode_tensor_map(map: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    map.check().map_err(|source| EngineError::TensorMap { source })?;
    let driver = library::driver()?;
    encode(driver, &|call, status| call::check(driver, call, status), Description::Tiled(map))
}

/// Encodes a tensor map with `cuTensorMapEncodeIm2col`: no interleave, zeros out of bounds.
/// A context must be current in the calling thread.
///
/// # Errors
/// There is no driver, the description breaks a rule, or the driver rejects it.
pub fn encode_im2col_map(map: &Im2colMap) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    map.check().map_err(|source| EngineError::TensorMap { source })?;
    let driver = library::driver()?;
    encode(driver, &|call, status| call::check(driver, call, status), Description::Im2col(map))
}

/// Turns a call's status into a result. In a context that a kernel has made unusable, the error names that
/// kernel.
pub(super) type Check<'a> = &'a dyn Fn(&'static str, Status) -> Result<(), EngineError>;

/// The same with the driver already found and the description already checked.
pub(super) fn encode(
    driver: &Driver,
    check: Check<'_>,
    description: Description<'_>,
) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    match description {
        Description::Tiled(map) => encode_tiled(driver, check, map),
        Description::Im2col(map) => encode_pixels(driver, check, map),
    }
}

fn encode_pixels(
    driver: &Driver,
    check: Check<'_>,
    map: &Im2colMap,
) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    let mut encoded = EncodedMap { words: [0; 16] };
    // Steps are 1 for channels and images; those of the pixel dimensions begin with the second entry.
    let mut element_strides = [1u32; 5];
    for (place, &step) in element_strides[1..].iter_mut().zip(&map.steps) {
        *place = step;
    }
    let address = ptr::without_provenance_mut::<c_void>(map.address.max(16) as usize);
    // SAFETY: the description has been checked. So there are `rank` extents and element strides, one stride
    // fewer, and two corner coordinates fewer. The driver reads no more of them and writes one encoded map.
    // The address is only stored.
    let status = unsafe {
        (driver.functions.encode_im2col)(
            &mut encoded,
            data_type(map.element),
            map.rank() as u32,
            address,
            map.dims.as_ptr(),
            map.strides.as_ptr(),
            map.lower.as_ptr(),
            map.upper.as_ptr(),
            map.channels,
            map.pixels,
            element_strides.as_ptr(),
            NO_INTERLEAVE,
            swizzle(map.swizzle),
            promotion(Promotion::B256),
            FILL_ZEROS,
        )
    };
    check("cuTensorMapEncodeIm2col", status)?;
    Ok(bytes(&encoded))
}

/// Values of `CUtensorMapL2promotion`.
fn promotion(promotion: Promotion) -> u32 {
    match promotion {
        Promotion::None => 0,
        Promotion::B64 => 1,
        Promotion::B128 => 2,
        Promotion::B256 => 3,
    }
}

fn encode_tiled(
    driver: &Driver,
    check: Check<'_>,
    map: &TensorMap,
) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    // The type has the alignment that the strictest version of the driver's header needs.
    let mut encoded = EncodedMap { words: [0; 16] };
    let element_strides = [1u32; 5];
    let address = ptr::without_provenance_mut::<c_void>(map.address.max(16) as usize);
    // SAFETY: the description has been checked. So there are `rank` extents, box extents and element strides,
    // and one stride fewer. The driver reads no more of them and writes one encoded map. The address is only
    // stored.
    let status = unsafe {
        (driver.functions.encode_tiled)(
            &mut encoded,
            data_type(map.element),
            map.rank() as u32,
            address,
            map.dims.as_ptr(),
            map.strides.as_ptr(),
            map.box_dims.as_ptr(),
            element_strides.as_ptr(),
            NO_INTERLEAVE,
            swizzle(map.swizzle),
            promotion(map.promotion),
            FILL_ZEROS,
        )
    };
    check("cuTensorMapEncodeTiled", status)?;
    Ok(bytes(&encoded))
}

/// Changes the address of an encoded tiled map with `cuTensorMapReplaceAddress`. The driver has been found,
/// and the address has been checked: it has at least the alignment of the old one.
pub(super) fn readdress(
    driver: &Driver,
    check: Check<'_>,
    map: &mut [u8; TENSOR_MAP_BYTES],
    address: u64,
) -> Result<(), EngineError> {
    let mut encoded = EncodedMap { words: [0; 16] };
    for (word, chunk) in encoded.words.iter_mut().zip(map.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*chunk);
    }
    let address = ptr::without_provenance_mut::<c_void>(address.max(16) as usize);
    // SAFETY: the driver reads and writes one encoded map; the address is only stored.
    let status = unsafe { (driver.functions.replace_address)(&mut encoded, address) };
    check("cuTensorMapReplaceAddress", status)?;
    *map = bytes(&encoded);
    Ok(())
}

fn bytes(encoded: &EncodedMap) -> [u8; TENSOR_MAP_BYTES] {
    let mut bytes = [0; TENSOR_MAP_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(encoded.words) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
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
    use ptx::abi::{Im2colMap, Promotion, TensorElement, TensorMap, TensorSwizzle};

    use super::{EncodedMap, bytes, data_type, encode_im2col_map, encode_tensor_map, swizzle};
    use crate::error::EngineError;

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

    #[test]
    fn words_become_bytes_in_memory_order() {
        let mut map = EncodedMap { words: [0; 16] };
        map.words[1] = u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes(&map)[7..17], [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
    }

    #[test]
    fn illegal_descriptions_are_refused_before_the_driver_is_asked() {
        let map = TensorMap {
            element: TensorElement::Bf16,
            address: 8,
            dims: vec![64, 64],
            strides: vec![128],
            box_dims: vec![64, 64],
            swizzle: TensorSwizzle::B128,
            promotion: Promotion::default(),
            reach: None,
        };
        let error = encode_tensor_map(&map).unwrap_err();
        assert!(matches!(error, EngineError::TensorMap { .. }), "{error}");
        assert!(error.to_string().contains("0x8"), "{error}");
        let map = Im2colMap {
            element: TensorElement::Bf16,
            address: 0,
            dims: vec![64, 8, 8, 2],
            strides: vec![128, 1024, 8192],
            lower: vec![-1, -1],
            upper: vec![-1, -1],
            channels: 64,
            pixels: 128,
            steps: vec![1, 9],
            swizzle: TensorSwizzle::B128,
        };
        let error = encode_im2col_map(&map).unwrap_err();
        assert!(matches!(error, EngineError::TensorMap { .. }), "{error}");
        assert!(error.to_string().contains("step 9 of pixel dimension 1"), "{error}");
    }
}
