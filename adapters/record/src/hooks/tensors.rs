//! Tensor maps: what was encoded is noted by the 128 bytes that came out.

use core::ffi::{c_int, c_uint};

use crate::guard;
use crate::maps::{Encoded, Kind, Map, list, maps};

hooks! {
    /// Encodes a tiled tensor map.
    cuTensorMapEncodeTiled(
        map: *mut Encoded,
        element: c_uint,
        rank: c_uint,
        address: u64,
        dims: *const u64,
        strides: *const u64,
        extents: *const u32,
        steps: *const u32,
        interleave: c_uint,
        swizzle: c_uint,
        promotion: c_uint,
        fill: c_uint,
    ) |real| {
        let status = real(
            map, element, rank, address, dims, strides, extents, steps, interleave, swizzle, promotion, fill,
        );
        if status == 0 {
            guard(|| {
                let (rank, most) = (rank as usize, rank.saturating_sub(1) as usize);
                let kind = Kind::Tiled { extents: list(extents, rank) };
                let (dims, strides, steps) = (list(dims, rank), list(strides, most), list(steps, rank));
                let words = [element, interleave, swizzle, promotion, fill];
                maps().insert(*map, Map { address, dims, strides, steps, words, kind });
            });
        }
        status
    }
    /// Encodes an im2col tensor map.
    cuTensorMapEncodeIm2col(
        map: *mut Encoded,
        element: c_uint,
        rank: c_uint,
        address: u64,
        dims: *const u64,
        strides: *const u64,
        lower: *const c_int,
        upper: *const c_int,
        channels: u32,
        pixels: u32,
        steps: *const u32,
        interleave: c_uint,
        swizzle: c_uint,
        promotion: c_uint,
        fill: c_uint,
    ) |real| {
        let status = real(
            map, element, rank, address, dims, strides, lower, upper, channels, pixels, steps, interleave, swizzle,
            promotion, fill,
        );
        if status == 0 {
            guard(|| {
                let (rank, most) = (rank as usize, rank.saturating_sub(1) as usize);
                let corners = rank.saturating_sub(2);
                let (lower, upper) = (list(lower, corners), list(upper, corners));
                let kind = Kind::Im2col { lower, upper, channels, pixels };
                let (dims, strides, steps) = (list(dims, rank), list(strides, most), list(steps, rank));
                let words = [element, interleave, swizzle, promotion, fill];
                maps().insert(*map, Map { address, dims, strides, steps, words, kind });
            });
        }
        status
    }
    /// Gives a tensor map another address.
    cuTensorMapReplaceAddress(map: *mut Encoded, address: u64) |real| {
        let before = *map;
        let status = real(map, address);
        if status == 0 {
            guard(|| {
                let mut known = maps();
                if let Some(old) = known.get(&before).cloned() {
                    known.insert(*map, Map { address, ..old });
                }
            });
        }
        status
    }
}
