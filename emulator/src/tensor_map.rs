//! Tensor maps: the emulator's own 128 bytes for a description, and the walk over a box.

use ptx::abi::{TENSOR_MAP_BYTES, TensorMap, TensorSwizzle};

/// Marks bytes that [`encode`] made: nothing else in memory passes for a tensor map by accident.
const MAGIC: u64 = 0x6661_6c63_6869_6f6e;

/// A tensor map as the copy engine uses it; unused dimensions have extent 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) rank: usize,
    /// Bytes of an element.
    pub(crate) element: u32,
    /// Bits that the swizzle exchanges: 0 to 3.
    pub(crate) swizzle: u32,
    address: u64,
    dims: [u64; 5],
    /// Bytes; the first is the element's.
    strides: [u64; 5],
    box_dims: [u32; 5],
}

/// One row of a box that lies in the tensor at least partly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Address of the first byte inside.
    pub(crate) address: u64,
    /// Bytes of the row before the inside begins, and where it ends.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Bytes of a description that passed [`TensorMap::check`].
pub(crate) fn encode(map: &TensorMap) -> [u8; TENSOR_MAP_BYTES] {
    let swizzle = match map.swizzle {
        TensorSwizzle::None => 0,
        TensorSwizzle::B32 => 1,
        TensorSwizzle::B64 => 2,
        TensorSwizzle::B128 => 3,
    };
    let head = map.dims.len() as u64 | u64::from(map.element.bytes()) << 8 | swizzle << 16;
    let pad = |values: &[u64], missing: u64| -> [u64; 5] {
        core::array::from_fn(|i| values.get(i).copied().unwrap_or(missing))
    };
    let boxes: Vec<u64> = map.box_dims.iter().map(|&extent| extent.into()).collect();
    let boxes = pad(&boxes, 1).iter().rev().fold(0, |all, extent| all << 12 | (extent & 0xFFF));
    let mut words = vec![MAGIC, head, map.address, boxes];
    words.extend(pad(&map.dims, 1));
    words.extend(pad(&map.strides, 0));
    let mut bytes = [0; TENSOR_MAP_BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The way back; `None` where `bytes` did not come from [`encode`].
pub(crate) fn decode(bytes: &[u8]) -> Option<Map> {
    let mut words = [0u64; 16];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    let [magic, head, address, boxes, d0, d1, d2, d3, d4, s1, s2, s3, s4, ..] = words;
    let rank = (head & 0xFF) as usize;
    let element = (head >> 8 & 0xFF) as u32;
    let map = Map {
        rank,
        element,
        swizzle: (head >> 16 & 0x3) as u32,
        address,
        dims: [d0, d1, d2, d3, d4],
        strides: [element.into(), s1, s2, s3, s4],
        box_dims: core::array::from_fn(|i| (boxes >> (12 * i) & 0xFFF) as u32),
    };
    let sound = (1..=5).contains(&rank) && map.box_dims.iter().all(|extent| (1..=256).contains(extent));
    (magic == MAGIC && bytes.len() == TENSOR_MAP_BYTES && sound).then_some(map)
}

/// XORs address bits 7.. into bits 4.., `bits` of them: the swizzle of 32, 64 or 128 bytes.
pub(crate) fn swizzled(address: u32, bits: u32) -> u32 {
    address ^ ((address >> 7) & ((1 << bits) - 1)) << 4
}

impl Map {
    /// Bytes of a row of the box.
    pub(crate) fn row_bytes(&self) -> u32 {
        self.box_dims[0] * self.element
    }

    /// Rows of the box.
    pub(crate) fn rows(&self) -> u32 {
        self.box_dims[1..].iter().product()
    }

    /// Bytes of the box, those outside of the tensor included; saturates, which no shared memory holds.
    pub(crate) fn box_bytes(&self) -> u32 {
        self.box_dims.iter().fold(self.element, |bytes, &extent| bytes.saturating_mul(extent))
    }

    /// Where row `row` of the box at `start` lies; `None` where it lies outside of the tensor.
    pub(crate) fn row(&self, start: &[i64; 5], row: u32) -> Option<Row> {
        let mut address = self.address;
        let mut rest = row;
        let outer = start.iter().zip(&self.box_dims).zip(self.dims.iter().zip(&self.strides)).skip(1);
        for ((&start, &extent), (&dim, &stride)) in outer {
            let at = start + i64::from(rest % extent);
            rest /= extent;
            let at = u64::try_from(at).ok().filter(|&at| at < dim)?;
            address = address.wrapping_add(at.wrapping_mul(stride));
        }
        let (width, extent) = (i64::from(self.box_dims[0]), i64::try_from(self.dims[0]).unwrap_or(i64::MAX));
        let first = (-start[0]).clamp(0, width);
        let last = (extent - start[0]).clamp(0, width);
        let element = i64::from(self.element);
        let inside = u64::try_from((start[0] + first) * element).ok()?;
        (first < last).then_some(Row {
            address: address.wrapping_add(inside),
            start: usize::try_from(first * element).ok()?,
            end: usize::try_from(last * element).ok()?,
        })
    }

    /// Where a store writes row `row` of the box at `start`: up to the end of the 16-byte chunk in which the tensor's
    /// inner extent ends, as an H200 was seen to do.
    pub(crate) fn stored_row(&self, start: &[i64; 5], row: u32) -> Option<Row> {
        let inside = self.row(start, row)?;
        let extent = self.dims[0].checked_mul(u64::from(self.element))?.checked_next_multiple_of(16)?;
        let from_start = i64::try_from(extent).ok()? - start[0] * i64::from(self.element);
        let end = usize::try_from(from_start).ok()?.clamp(inside.end, self.row_bytes() as usize);
        Some(Row { end, ..inside })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptx::abi::TensorElement;

    fn description() -> TensorMap {
        TensorMap {
            element: TensorElement::Bf16,
            address: 0x1000,
            dims: vec![100, 50, 3],
            strides: vec![208, 208 * 64],
            box_dims: vec![64, 256, 2],
            swizzle: TensorSwizzle::B128,
        }
    }

    #[test]
    fn bytes_and_back() {
        let description = description();
        description.check().unwrap();
        let map = decode(&encode(&description)).unwrap();
        assert_eq!(
            map,
            Map {
                rank: 3,
                element: 2,
                swizzle: 3,
                address: 0x1000,
                dims: [100, 50, 3, 1, 1],
                strides: [2, 208, 208 * 64, 0, 0],
                box_dims: [64, 256, 2, 1, 1],
            }
        );
        assert_eq!(u64::from(map.box_bytes()), description.box_bytes());
        assert_eq!(decode(&[0; 128]), None);
        assert_eq!(decode(&[]), None);
    }

    #[test]
    fn rows_are_clipped_on_every_side() {
        let map = decode(&encode(&description())).unwrap();
        let row = |address: u64, start, end| Some(Row { address: 0x1000 + address, start, end });
        for (why, start, index, want) in [
            ("inside", [0, 0, 0, 0, 0], 0, row(0, 0, 128)),
            ("the next row", [0, 0, 0, 0, 0], 1, row(208, 0, 128)),
            ("the next plane", [0, 0, 0, 0, 0], 256, row(208 * 64, 0, 128)),
            ("past the inner end", [64, 1, 0, 0, 0], 0, row(208 + 128, 0, 72)),
            ("before the inner beginning", [-10, 0, 1, 0, 0], 0, row(208 * 64, 20, 128)),
            ("wholly before", [-64, 0, 0, 0, 0], 0, None),
            ("wholly behind", [100, 0, 0, 0, 0], 0, None),
            ("above", [0, -1, 0, 0, 0], 0, None),
            ("from above into the tensor", [0, -1, 0, 0, 0], 1, row(0, 0, 128)),
            ("below", [0, 49, 0, 0, 0], 1, None),
            ("behind the last plane", [0, 0, 2, 0, 0], 256, None),
        ] {
            assert_eq!(map.row(&start, index), want, "{why}");
        }
    }

    #[test]
    fn stores_end_at_whole_chunks() {
        // 100 elements of 2 bytes end in the middle of the thirteenth chunk.
        let map = decode(&encode(&description())).unwrap();
        for (why, first, read, stored) in [
            ("inside", 0, (0, 128), (0, 128)),
            ("over the end", 64, (0, 72), (0, 80)),
            ("over the end, from inside its chunk", 98, (0, 4), (0, 12)),
        ] {
            let ends = |row: Option<Row>| row.map(|row| (row.start, row.end));
            let start = [first, 1, 0, 0, 0];
            assert_eq!(ends(map.row(&start, 0)), Some(read), "{why}");
            assert_eq!(ends(map.stored_row(&start, 0)), Some(stored), "{why}");
        }
        assert_eq!(map.stored_row(&[100, 0, 0, 0, 0], 0), None, "nothing inside, nothing written");
    }

    #[test]
    fn swizzles_are_the_byte_formulas() {
        for address in (0..4096u32).step_by(16) {
            let (line, chunk) = (address / 128, address / 16 % 8);
            assert_eq!(swizzled(address, 3), line * 128 + (chunk ^ (line & 7)) * 16, "128 B");
            assert_eq!(swizzled(address, 2), line * 128 + (chunk ^ (line & 3)) * 16, "64 B");
            assert_eq!(swizzled(address, 1), line * 128 + (chunk ^ (line & 1)) * 16, "32 B");
            assert_eq!(swizzled(address, 0), address, "none");
        }
    }
}
