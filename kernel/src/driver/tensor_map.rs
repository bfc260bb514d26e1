//! Tensor maps as the driver encodes them.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use core::ffi::c_void;
use core::ptr;

use cudarc::driver::sys::{
    self, CUtensorMapDataType as DataType, CUtensorMapFloatOOBfill as Fill,
    CUtensorMapInterleave as Interleave, CUtensorMapL2promotion as Fetch, CUtensorMapSwizzle as Swizzle,
};
use ptx::abi::{
    Description, Im2colMap, Promotion, TENSOR_MAP_BYTES, TensorElement, TensorMap, TensorSwizzle,
};

use super::{call, library};
use crate::error::EngineError;

/// Encodes a tensor map with `cuTensorMapEncodeTiled`: packed boxes, no interleave, zeros out of bounds.
///
/// A null address, legal in a description that nothing is read through, is encoded as the lowest aligned one.
///
/// # Errors
/// There is no driver, the description breaks a rule, or the driver refuses it.
pub fn encode_tensor_map(map: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    map.check().map_err(|source| EngineError::TensorMap { source })?;
    library::driver()?;
    encode(Description::Tiled(map))
}

/// Encodes a tensor map with `cuTensorMapEncodeIm2col`: no interleave, zeros out of bounds.
///
/// # Errors
/// There is no driver, the description breaks a rule, or the driver refuses it.
pub fn encode_im2col_map(map: &Im2colMap) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    map.check().map_err(|source| EngineError::TensorMap { source })?;
    library::driver()?;
    encode(Description::Im2col(map))
}

/// The same once the driver is known and the description checked.
pub(super) fn encode(description: Description<'_>) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    match description {
        Description::Tiled(map) => encode_tiled(map),
        Description::Im2col(map) => encode_pixels(map),
    }
}

fn encode_pixels(map: &Im2colMap) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    let mut encoded = sys::CUtensorMap { opaque: [0; 16] };
    // Channels and images are taken one by one; the width's step comes second.
    let mut element_strides = [1u32; 5];
    for (place, &step) in element_strides[1..].iter_mut().zip(&map.steps) {
        *place = step;
    }
    let address = ptr::without_provenance_mut::<c_void>(map.address.max(16) as usize);
    // SAFETY: the description has been checked, so there are `rank` extents and element strides, one stride fewer and
    // two corner coordinates fewer; the driver reads no more of them and writes one encoded map. The address is only
    // stored.
    let result = unsafe {
        sys::cuTensorMapEncodeIm2col(
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
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle(map.swizzle),
            Fetch::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
            Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    call::driver("cuTensorMapEncodeIm2col", result.result())?;
    Ok(bytes(&encoded))
}

fn promotion(promotion: Promotion) -> Fetch {
    match promotion {
        Promotion::None => Fetch::CU_TENSOR_MAP_L2_PROMOTION_NONE,
        Promotion::B64 => Fetch::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        Promotion::B128 => Fetch::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        Promotion::B256 => Fetch::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    }
}

fn encode_tiled(map: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES], EngineError> {
    // The binding's type has the alignment that this version of the driver's header asks for.
    let mut encoded = sys::CUtensorMap { opaque: [0; 16] };
    let element_strides = [1u32; 5];
    let address = ptr::without_provenance_mut::<c_void>(map.address.max(16) as usize);
    // SAFETY: the description has been checked, so there are `rank` extents, box extents and element strides and
    // one stride fewer; the driver reads no more of them and writes one encoded map. The address is only stored.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            &mut encoded,
            data_type(map.element),
            map.rank() as u32,
            address,
            map.dims.as_ptr(),
            map.strides.as_ptr(),
            map.box_dims.as_ptr(),
            element_strides.as_ptr(),
            Interleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle(map.swizzle),
            promotion(map.promotion),
            Fill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    call::driver("cuTensorMapEncodeTiled", result.result())?;
    Ok(bytes(&encoded))
}

/// Encodes a map and changes its address, so that the driver's functions have been found, which allocates once a process, before
/// launches need them.
pub(super) fn find_functions() -> Result<(), EngineError> {
    let map = TensorMap {
        element: TensorElement::U16,
        address: 1 << 12,
        dims: vec![64, 8],
        strides: vec![128],
        box_dims: vec![64, 8],
        swizzle: TensorSwizzle::B128,
        promotion: Promotion::default(),
    };
    readdress(&mut encode_tiled(&map)?, 1 << 13)
}

/// Changes the address of an encoded tiled map with `cuTensorMapReplaceAddress`, once the driver is known and the address
/// checked: a multiple of what the one before was a multiple of.
pub(super) fn readdress(map: &mut [u8; TENSOR_MAP_BYTES], address: u64) -> Result<(), EngineError> {
    let mut encoded = sys::CUtensorMap { opaque: [0; 16] };
    for (word, chunk) in encoded.opaque.iter_mut().zip(map.chunks_exact(8)) {
        *word = u64::from_ne_bytes(chunk.try_into().expect("8 bytes"));
    }
    let address = ptr::without_provenance_mut::<c_void>(address.max(16) as usize);
    // SAFETY: the driver reads and writes one encoded map; the address is only stored.
    let result = unsafe { sys::cuTensorMapReplaceAddress(&mut encoded, address) };
    call::driver("cuTensorMapReplaceAddress", result.result())?;
    *map = bytes(&encoded);
    Ok(())
}

fn bytes(encoded: &sys::CUtensorMap) -> [u8; TENSOR_MAP_BYTES] {
    let mut bytes = [0; TENSOR_MAP_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(encoded.opaque) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn data_type(element: TensorElement) -> DataType {
    match element {
        TensorElement::U8 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        TensorElement::U16 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
        TensorElement::U32 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
        TensorElement::S32 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        TensorElement::U64 => DataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
        TensorElement::S64 => DataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
        TensorElement::F64 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        TensorElement::F16 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        TensorElement::Bf16 => DataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        TensorElement::F32 => DataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    }
}

fn swizzle(swizzle: TensorSwizzle) -> Swizzle {
    match swizzle {
        TensorSwizzle::None => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        TensorSwizzle::B32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        TensorSwizzle::B64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        TensorSwizzle::B128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

#[cfg(test)]
mod tests {
    use ptx::abi::{Im2colMap, Promotion, TensorElement, TensorMap, TensorSwizzle};

    use super::{bytes, data_type, encode_im2col_map, encode_tensor_map, swizzle, sys};
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
            assert_eq!(data_type(element) as u32, number, "{element:?}");
        }
        for (span, number) in [
            (TensorSwizzle::None, 0),
            (TensorSwizzle::B32, 1),
            (TensorSwizzle::B64, 2),
            (TensorSwizzle::B128, 3),
        ] {
            assert_eq!(swizzle(span) as u32, number, "{span:?}");
        }
    }

    #[test]
    fn words_become_bytes_in_memory_order() {
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        map.opaque[1] = u64::from_ne_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes(&map)[7..17], [0, 1, 2, 3, 4, 5, 6, 7, 8, 0]);
        assert!(align_of::<sys::CUtensorMap>() >= 64 && size_of::<sys::CUtensorMap>() == 128);
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
