//! Im2col tensor maps: the filter of a convolution moves over the pixels of a tensor.

use super::{TensorElement, TensorMap, TensorMapError, TensorSwizzle, check_inner, check_tensor};

/// An im2col tensor map: a tensor, the bounding box that the base of a filter visits, and the size of one
/// copy.
///
/// The tensor has channels, one to three dimensions of pixels, and a batch of images. All lists are innermost
/// dimension first: channels; width, height, depth; batch.
///
/// A copy names a base in the bounding box and a filter offset. It takes `pixels` bases, beginning with the
/// named one, in steps of `steps` along the innermost dimension of the box. After the end of a dimension it
/// continues at the begin of that dimension, one step further in the next dimension; after the end of the
/// box, in the next image. For each base it copies `channels` channels of the pixel at base plus offset.
/// Elements outside the tensor are zero.
///
/// Source: CUDA driver API, `cuTensorMapEncodeIm2col`; PTX ISA 5.5 "Tensors", im2col mode.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Im2colMap {
    /// Element type.
    pub element: TensorElement,
    /// Global address in bytes, a multiple of 16.
    pub address: u64,
    /// Extents of the tensor in elements: 3 to 5 dimensions, each 1..=2^32.
    pub dims: Vec<u64>,
    /// Strides in bytes of dimensions 1 and up: multiples of 16, below 2^40. Dimension 0 is contiguous.
    pub strides: Vec<u64>,
    /// Lower corner of the bounding box, one coordinate per dimension of pixels (width, height, depth).
    /// Usually minus the padding.
    pub lower: Vec<i32>,
    /// Upper corner of the bounding box, inclusive, counted from the last element of each dimension of
    /// pixels: 0 is that element.
    pub upper: Vec<i32>,
    /// Channels per pixel in a copy, 1..=256. They are a multiple of 16 bytes; with a swizzle exactly its
    /// span.
    pub channels: u32,
    /// Pixels per copy, 1..=1024.
    pub pixels: u32,
    /// Elements from one base to the next along width, height and depth, each 1..=8: the strides of the
    /// convolution.
    pub steps: Vec<u32>,
    /// Swizzle of the copy in shared memory, which is pixels by channels.
    pub swizzle: TensorSwizzle,
}

/// A tensor map to be encoded by an engine.
#[derive(Clone, Copy, Debug)]
pub enum MapDescription<'a> {
    /// A tiled map.
    Tiled(&'a TensorMap),
    /// An im2col map.
    Im2col(&'a Im2colMap),
}

impl Im2colMap {
    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Size of one copy in shared memory in bytes, including out-of-bounds elements.
    pub fn box_bytes(&self) -> u64 {
        u64::from(self.channels) * u64::from(self.pixels) * u64::from(self.element.bytes())
    }

    /// The number of bits of a corner's coordinate and of a filter offset: 16, 8 or 5 for a rank of 3, 4 or
    /// 5.
    pub const fn corner_bits(rank: usize) -> u32 {
        match rank {
            ..4 => 16,
            4 => 8,
            5.. => 5,
        }
    }

    /// The first and the last coordinate of the bounding box in a dimension of pixels; 0 is the width. `None`
    /// if the map does not have this dimension.
    pub fn bounds(&self, dim: usize) -> Option<(i64, i64)> {
        let last = i64::try_from(*self.dims.get(dim + 1)?).ok()? - 1;
        Some((i64::from(*self.lower.get(dim)?), last + i64::from(*self.upper.get(dim)?)))
    }

    /// Checks the driver's rules, so that both engines refuse the same descriptions.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), TensorMapError> {
        let rank = self.rank();
        let lists = [self.lower.len(), self.upper.len(), self.steps.len()];
        let wrong = lists.iter().any(|&count| count + 2 != rank);
        if !(3..=5).contains(&rank) || self.strides.len() + 1 != rank || wrong {
            let [lower, upper, steps] = lists;
            let strides = self.strides.len();
            return Err(TensorMapError::Im2colRank { dims: rank, strides, lower, upper, steps });
        }
        check_tensor(self.address, &self.dims, &self.strides)?;
        let bits = Self::corner_bits(rank);
        let limit = 1 << (bits - 1);
        for dim in 0..rank - 2 {
            for (upper, corner) in [(false, self.lower[dim]), (true, self.upper[dim])] {
                if !(-limit..limit).contains(&corner) {
                    return Err(TensorMapError::Corner { dim, upper, corner, bits });
                }
            }
            let (low, high) = self.bounds(dim).unwrap_or((0, -1));
            if low > high {
                return Err(TensorMapError::BoundingBox { dim, low, high });
            }
            let step = self.steps[dim];
            if !(1..=8).contains(&step) {
                return Err(TensorMapError::Step { dim, step });
            }
        }
        if !(1..=256).contains(&self.channels) {
            return Err(TensorMapError::Channels { channels: self.channels });
        }
        if !(1..=1024).contains(&self.pixels) {
            return Err(TensorMapError::Pixels { pixels: self.pixels });
        }
        check_inner(self.channels * self.element.bytes(), self.swizzle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 channels of 8 x 6 pixels in 2 images, for a filter of 3 x 3 with a padding of 1.
    fn map() -> Im2colMap {
        Im2colMap {
            element: TensorElement::Bf16,
            address: 0x1000,
            dims: vec![64, 8, 6, 2],
            strides: vec![128, 1024, 6144],
            lower: vec![-1, -1],
            upper: vec![-1, -1],
            channels: 64,
            pixels: 96,
            steps: vec![1, 1],
            swizzle: TensorSwizzle::B128,
        }
    }

    #[test]
    fn each_rule_is_named() {
        assert_eq!(map().check(), Ok(()));
        assert_eq!((map().bounds(0), map().bounds(1), map().bounds(3)), (Some((-1, 6)), Some((-1, 4)), None));
        assert_eq!(map().box_bytes(), 96 * 128);
        type Change = fn(&mut Im2colMap);
        let table: [(Change, &str); 14] = [
            (|map| map.lower.truncate(1), "lower 1"),
            (|map| map.steps.push(1), "steps 3"),
            (|map| map.dims.truncate(2), "2 extents"),
            (|map| map.address = 8, "0x8"),
            (|map| map.dims[3] = 0, "extent 0 of dimension 3"),
            (|map| map.strides[1] = 8, "dimension 2 is 8 B"),
            (|map| map.lower[1] = -129, "lower corner -129 of pixel dimension 1"),
            (|map| map.upper[0] = 128, "upper corner 128 of pixel dimension 0"),
            (|map| map.upper[0] = -10, "from -1 to -3"),
            (|map| map.steps[1] = 9, "step 9 of pixel dimension 1"),
            (|map| map.channels = 257, "257 channels"),
            (|map| map.pixels = 1025, "1025 pixels"),
            (|map| map.channels = 32, "64 B"),
            (
                |map| {
                    map.swizzle = TensorSwizzle::None;
                    map.channels = 4;
                },
                "8 B",
            ),
        ];
        for (change, told) in table {
            let mut map = map();
            change(&mut map);
            let error = map.check().expect_err(told).to_string();
            assert!(error.contains(told), "{error}: {told}");
        }
    }

    #[test]
    fn corners_have_fewer_bits_in_more_dimensions() {
        for (rank, limit) in [(3, 1 << 15), (4, 128), (5, 16)] {
            let spatial = rank - 2;
            let of = |corner| Im2colMap {
                dims: vec![64; rank],
                strides: (0..rank as u32 - 1).map(|dim| 128 * 64u64.pow(dim)).collect(),
                lower: vec![corner; spatial],
                upper: vec![0; spatial],
                steps: vec![1; spatial],
                ..map()
            };
            assert_eq!(of(-limit).check(), Ok(()), "rank {rank}");
            assert!(matches!(of(-limit - 1).check(), Err(TensorMapError::Corner { .. })), "rank {rank}");
        }
    }
}
