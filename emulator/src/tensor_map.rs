//! Tensor maps: the emulator's own encoding in 128 bytes, and the walk over a box.

mod im2col;
mod spans;

use ptx::abi::{Im2colMap, MapDescription, Promotion, TENSOR_MAP_BYTES, TensorElement, TensorMap};
use ptx::inst::MapField;

pub(crate) use im2col::Walk;
pub(crate) use spans::Span;

/// Marks bytes that [`encode`] made, so that other bytes are not mistaken for a tensor map.
const MAGIC: u64 = 0x6661_6c63_6869_6f6e;

/// A tensor map as the copy engine uses it. Unused dimensions have extent 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    pub(crate) rank: usize,
    pub(crate) element: TensorElement,
    /// Number of address bits in the swizzle: 0 to 3.
    pub(crate) swizzle: u32,
    pub(crate) address: u64,
    pub(crate) dims: [u64; 5],
    /// In bytes. The first is the size of an element.
    strides: [u64; 5],
    /// Number of elements that a copy transfers per dimension of the box.
    box_dims: [u32; 5],
    /// Distance in elements between the elements that a copy transfers.
    steps: [u32; 5],
    /// For an im2col map, which has a box of channels by pixels.
    pub(crate) walk: Option<Box<Walk>>,
}

/// The decoded 128 bytes, valid or not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Raw {
    rank: u64,
    element: u64,
    swizzle: u64,
    address: u64,
    dims: [u64; 5],
    /// In bytes, for dimensions 1 and up.
    strides: [u64; 4],
    box_dims: [u64; 5],
    steps: [u64; 5],
    /// [`TILED`], [`IM2COL`] or [`BROKEN`].
    mode: u64,
    /// Lower and upper corner of the bounding box, with 16 bits per coordinate.
    corners: [u64; 2],
}

const TILED: u64 = 0;
const IM2COL: u64 = 1;
/// An im2col map that `tensormap.replace` has changed.
const BROKEN: u64 = 2;

/// Number of bits of a box extent and of a step in the encoding. They hold every legal value, and larger ones
/// to detect illegal values.
const BOX_BITS: u32 = 12;
const STEP_BITS: u32 = 4;

fn packed(values: [u64; 5], bits: u32) -> u64 {
    values.iter().rev().fold(0, |all, &value| all << bits | value.min((1 << bits) - 1))
}

fn unpacked(word: u64, bits: u32) -> [u64; 5] {
    core::array::from_fn(|i| word >> (bits * i as u32) & ((1 << bits) - 1))
}

impl Raw {
    fn bytes(&self) -> [u8; TENSOR_MAP_BYTES] {
        let head = self.rank.min(0xFF) | self.element << 8 | self.swizzle << 16 | self.mode << 24;
        let mut words = vec![MAGIC, head, self.address, packed(self.box_dims, BOX_BITS)];
        words.extend(self.dims);
        words.extend(self.strides);
        words.push(packed(self.steps, STEP_BITS));
        words.extend(self.corners);
        let mut bytes = [0; TENSOR_MAP_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Zeros are a map without values, whose fields can be replaced. `None` for other bytes that the emulator did not
    /// make.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut words = [0u64; 16];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().ok()?);
        }
        let [magic, head, address, boxes, d0, d1, d2, d3, d4, s1, s2, s3, s4, steps, lower, upper] = words;
        let made = magic == MAGIC || words.iter().all(|&word| word == 0);
        (made && bytes.len() == TENSOR_MAP_BYTES).then_some(Self {
            rank: head & 0xFF,
            element: head >> 8 & 0xFF,
            swizzle: head >> 16 & 0x3,
            address,
            dims: [d0, d1, d2, d3, d4],
            strides: [s1, s2, s3, s4],
            box_dims: unpacked(boxes, BOX_BITS),
            steps: unpacked(steps, STEP_BITS),
            mode: head >> 24 & 0x3,
            corners: [lower, upper],
        })
    }

    /// The map, or the reason why it is not valid.
    fn map(&self) -> Result<Map, &'static str> {
        let rank = usize::try_from(self.rank).ok().filter(|rank| (1..=5).contains(rank));
        let rank = rank.ok_or("its rank is not 1 to 5")?;
        let element = TensorElement::ALL.into_iter().find(|one| u64::from(one.replaced()) == self.element);
        let element = element.ok_or("its element type does not exist")?;
        if !self.address.is_multiple_of(16) {
            return Err("its address is not a multiple of 16 bytes");
        }
        if self.mode == BROKEN {
            return Err("it is an im2col map, and tensormap.replace has changed it");
        }
        let pixels = self.mode == IM2COL;
        let (mut dims, mut strides) = ([1; 5], [0; 5]);
        let (mut box_dims, mut steps) = ([1; 5], [1; 5]);
        strides[0] = element.bytes().into();
        for dim in 0..rank {
            dims[dim] = self.dims[dim];
            if !(1..=1 << 32).contains(&dims[dim]) {
                return Err("an extent is not 1 to 2^32");
            }
            if dim > 0 {
                strides[dim] = self.strides[dim - 1];
            }
            if dim > 0 && (!strides[dim].is_multiple_of(16) || strides[dim] >= 1 << 40) {
                return Err("a stride is not a multiple of 16 bytes below 2^40");
            }
            if !(1..=256).contains(&self.box_dims[dim]) && !pixels {
                return Err("an extent of the box is not 1 to 256");
            }
            if !(1..=8).contains(&self.steps[dim]) {
                return Err("an element stride is not 1 to 8");
            }
            // Without interleaving the innermost dimension has no step.
            steps[dim] = if dim == 0 { 1 } else { self.steps[dim] as u32 };
            // The box of an im2col map gives the number of pixels, not the span.
            let apart = if pixels { 1 } else { steps[dim] };
            box_dims[dim] = (self.box_dims[dim] as u32).div_ceil(apart);
        }
        let inner = box_dims[0] * element.bytes();
        match self.swizzle {
            0 if !inner.is_multiple_of(16) => {
                return Err("the inner extent of its box is not a multiple of 16 bytes");
            }
            0 => {}
            _ if rank == 1 => return Err("it has a swizzle but only one dimension"),
            swizzle if inner != 16 << swizzle => {
                return Err("the inner extent of its box is not the swizzle's span");
            }
            _ => {}
        }
        let swizzle = self.swizzle as u32;
        let walk = pixels.then(|| Box::new(self.walk(&dims)));
        Ok(Map { rank, element, swizzle, address: self.address, dims, strides, box_dims, steps, walk })
    }

    /// The walk over the pixels of a tensor with these extents.
    fn walk(&self, dims: &[u64; 5]) -> Walk {
        let corner = |word: u64, dim: usize| i64::from((word >> (16 * dim)) as u16 as i16);
        let [lower, upper] = self.corners;
        let last = |dim: usize| i64::try_from(dims[dim + 1]).unwrap_or(i64::MAX) - 1;
        let bounds = [0, 1, 2].map(|dim| (corner(lower, dim), last(dim) + corner(upper, dim)));
        Walk { bounds, offsets: [0; 3] }
    }

    fn replace(&mut self, field: MapField, value: u64) {
        if self.mode == IM2COL {
            self.mode = BROKEN;
        }
        let place = |values: &mut [u64], dim: u32| {
            if let Some(place) = values.get_mut(dim as usize) {
                *place = value;
            }
        };
        match field {
            MapField::Address => self.address = value,
            MapField::Rank => self.rank = value.saturating_add(1),
            MapField::Box(dim) => place(&mut self.box_dims, dim),
            MapField::Extent(dim) => place(&mut self.dims, dim),
            MapField::Stride(dim) => place(&mut self.strides, dim.wrapping_sub(1)),
            MapField::ElementStride(dim) => place(&mut self.steps, dim),
            MapField::Element(_) => self.element = field.named().unwrap_or(0).into(),
            MapField::Swizzle(_) => self.swizzle = field.named().unwrap_or(0).into(),
        }
    }
}

/// Replaces a field of an encoded map; `None` if the bytes are not a map.
pub(crate) fn replaced(bytes: &[u8], field: MapField, value: u64) -> Option<[u8; TENSOR_MAP_BYTES]> {
    let mut raw = Raw::from_bytes(bytes)?;
    raw.replace(field, value);
    Some(raw.bytes())
}

/// One row of a box that is at least partly inside the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Address of the first byte that is inside.
    pub(crate) address: u64,
    /// The part of the row that is inside, in bytes from the beginning of the row: first byte, and end.
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// Encodes a description that has passed its check.
pub(crate) fn encode(description: MapDescription<'_>) -> [u8; TENSOR_MAP_BYTES] {
    match description {
        MapDescription::Tiled(map) => encode_tiled(map).bytes(),
        MapDescription::Im2col(map) => encode_pixels(map).bytes(),
    }
}

fn encode_tiled(map: &TensorMap) -> Raw {
    let mut raw = Raw {
        rank: map.dims.len() as u64,
        element: map.element.replaced().into(),
        swizzle: MapField::Swizzle(map.swizzle).named().unwrap_or(0).into(),
        address: map.address,
        dims: [1; 5],
        strides: [0; 4],
        box_dims: [1; 5],
        steps: [1; 5],
        mode: TILED,
        corners: [0; 2],
    };
    for (place, &extent) in raw.dims.iter_mut().zip(&map.dims) {
        *place = extent;
    }
    for (place, &bytes) in raw.strides.iter_mut().zip(&map.strides) {
        *place = bytes;
    }
    for (place, &extent) in raw.box_dims.iter_mut().zip(&map.box_dims) {
        *place = extent.into();
    }
    raw
}

fn encode_pixels(map: &Im2colMap) -> Raw {
    let tiled = TensorMap {
        element: map.element,
        address: map.address,
        dims: map.dims.clone(),
        strides: map.strides.clone(),
        box_dims: vec![map.channels, map.pixels],
        swizzle: map.swizzle,
        promotion: Promotion::default(),
        reach: None,
    };
    let corner =
        |of: &[i32]| of.iter().rev().fold(0u64, |word, &corner| word << 16 | u64::from(corner as u16));
    let corners = [corner(&map.lower), corner(&map.upper)];
    let mut raw = Raw { mode: IM2COL, corners, ..encode_tiled(&tiled) };
    for (place, &step) in raw.steps[1..].iter_mut().zip(&map.steps) {
        *place = step.into();
    }
    raw
}

/// Decodes a map. `None` if `bytes` did not come from [`encode`]; an error with the reason if the map is not
/// valid.
pub(crate) fn decode(bytes: &[u8]) -> Option<Result<Map, &'static str>> {
    Raw::from_bytes(bytes).map(|raw| raw.map())
}

/// XORs address bits 7.. into bits 4.., `bits` of them: the swizzle of 32, 64 or 128 bytes.
pub(crate) fn swizzled(address: u32, bits: u32) -> u32 {
    address ^ ((address >> 7) & ((1 << bits) - 1)) << 4
}

impl Map {
    /// Contiguous bytes, a multiple of 16, as a box of one row.
    pub(crate) fn line(address: u64, bytes: u32) -> Self {
        Self {
            rank: 1,
            element: TensorElement::U8,
            swizzle: 0,
            address,
            dims: [bytes.into(), 1, 1, 1, 1],
            strides: [1, 0, 0, 0, 0],
            box_dims: [bytes, 1, 1, 1, 1],
            steps: [1; 5],
            walk: None,
        }
    }

    /// Bytes of a row of the box.
    pub(crate) fn row_bytes(&self) -> u32 {
        self.box_dims[0] * self.element.bytes()
    }

    /// Rows of the box.
    pub(crate) fn rows(&self) -> u32 {
        self.box_dims[1..].iter().product()
    }

    /// Number of bytes of the box, including those outside the tensor. Saturates; no shared memory is that
    /// large.
    pub(crate) fn box_bytes(&self) -> u32 {
        self.box_dims.iter().fold(self.element.bytes(), |bytes, &extent| bytes.saturating_mul(extent))
    }

    /// The coordinates of row `row` of the box at `start`.
    fn place(&self, start: &[i64; 5], row: u32) -> [i64; 5] {
        if let Some(walk) = &self.walk {
            return walk.place(start, row, self.rank, &self.steps);
        }
        let (mut place, mut rest) = (*start, row);
        for ((place, &extent), &step) in place.iter_mut().zip(&self.box_dims).zip(&self.steps).skip(1) {
            if rest < extent {
                *place += i64::from(rest * step);
                break;
            }
            *place += i64::from(rest % extent * step);
            rest /= extent;
        }
        place
    }

    /// The part of row `row` of the box at `start` that is inside the tensor; `None` if there is none.
    pub(crate) fn row(&self, start: &[i64; 5], row: u32) -> Option<Row> {
        let mut address = self.address;
        let place = self.place(start, row);
        for ((&at, &dim), &stride) in place.iter().zip(&self.dims).zip(&self.strides).skip(1) {
            let at = u64::try_from(at).ok().filter(|&at| at < dim)?;
            address = address.wrapping_add(at.wrapping_mul(stride));
        }
        let (width, extent) = (i64::from(self.box_dims[0]), i64::try_from(self.dims[0]).unwrap_or(i64::MAX));
        let first = (-start[0]).clamp(0, width);
        let last = (extent - start[0]).clamp(0, width);
        let element = i64::from(self.element.bytes());
        let inside = u64::try_from((start[0] + first) * element).ok()?;
        (first < last).then_some(Row {
            address: address.wrapping_add(inside),
            start: usize::try_from(first * element).ok()?,
            end: usize::try_from(last * element).ok()?,
        })
    }

    /// The part of row `row` of the box at `start` that a store writes: up to the end of the 16-byte chunk in
    /// which the tensor's inner extent ends, as measured on an H200.
    pub(crate) fn stored_row(&self, start: &[i64; 5], row: u32) -> Option<Row> {
        let inside = self.row(start, row)?;
        let extent =
            self.dims[0].checked_mul(u64::from(self.element.bytes()))?.checked_next_multiple_of(16)?;
        let from_start = i64::try_from(extent).ok()? - start[0] * i64::from(self.element.bytes());
        let end = usize::try_from(from_start).ok()?.clamp(inside.end, self.row_bytes() as usize);
        Some(Row { end, ..inside })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ptx::abi::TensorSwizzle;

    fn description() -> TensorMap {
        TensorMap {
            element: TensorElement::Bf16,
            address: 0x1000,
            dims: vec![100, 50, 3],
            strides: vec![208, 208 * 64],
            box_dims: vec![64, 256, 2],
            swizzle: TensorSwizzle::B128,
            promotion: Promotion::default(),
            reach: None,
        }
    }

    #[test]
    fn bytes_and_back() {
        let description = description();
        description.check().unwrap();
        let map = decode(&encode(MapDescription::Tiled(&description))).unwrap().unwrap();
        assert_eq!(
            map,
            Map {
                rank: 3,
                element: TensorElement::Bf16,
                swizzle: 3,
                address: 0x1000,
                dims: [100, 50, 3, 1, 1],
                strides: [2, 208, 208 * 64, 0, 0],
                box_dims: [64, 256, 2, 1, 1],
                steps: [1; 5],
                walk: None,
            }
        );
        assert_eq!(u64::from(map.box_bytes()), description.box_bytes());
        assert_eq!(decode(&[1; 128]), None);
        assert!(decode(&[0; 128]).unwrap().is_err(), "zeros are a map without values");
        assert_eq!(decode(&[]), None);
    }

    #[test]
    fn a_replaced_map_is_the_map_of_the_replaced_description() {
        use MapField::{Address, Box, Element, ElementStride, Extent, Rank, Stride, Swizzle};
        let mut bytes = encode(MapDescription::Tiled(&description()));
        for (field, value) in [
            (Address, 0x2000),
            (Rank, 1),
            (Extent(0), 77),
            (Extent(1), 33),
            (Stride(1), 320),
            (Box(0), 8),
            (Box(1), 9),
            (Element(TensorElement::F32), 0),
            (Swizzle(TensorSwizzle::B32), 0),
        ] {
            bytes = replaced(&bytes, field, value).unwrap();
        }
        let wanted = TensorMap {
            element: TensorElement::F32,
            address: 0x2000,
            dims: vec![77, 33],
            strides: vec![320],
            box_dims: vec![8, 9],
            swizzle: TensorSwizzle::B32,
            promotion: Promotion::default(),
            reach: None,
        };
        assert_eq!(decode(&bytes), decode(&encode(MapDescription::Tiled(&wanted))));
        let map = decode(&replaced(&bytes, ElementStride(1), 2).unwrap()).unwrap().unwrap();
        assert_eq!((map.rows(), map.box_bytes()), (5, 5 * 32), "every second of nine");
        assert_eq!(map.row(&[0, 1, 0, 0, 0], 2), Some(Row { address: 0x2000 + 5 * 320, start: 0, end: 32 }));
        for (why, field, value) in [
            ("a rank above 5", Rank, 5),
            ("an address between", Address, 0x2008),
            ("an empty tensor", Extent(1), 0),
            ("a stride between", Stride(1), 328),
            ("a box that is too large for its bits", Box(1), (1 << BOX_BITS) + 9),
            ("a step that is too large for its bits", ElementStride(1), 17),
            ("a box that its swizzle does not have", Box(0), 16),
        ] {
            let map = decode(&replaced(&bytes, field, value).unwrap()).unwrap();
            assert!(map.is_err(), "{why}: {map:?}");
        }
        assert_eq!(replaced(&[1; 128], Rank, 1), None);
        // From zeros, field by field.
        let fields = [
            (Rank, 1),
            (Element(TensorElement::Bf16), 0),
            (Address, 0x1000),
            (Extent(0), 64),
            (Extent(1), 8),
            (Stride(1), 128),
            (Box(0), 64),
            (Box(1), 8),
            (ElementStride(0), 1),
            (ElementStride(1), 1),
        ];
        let made =
            fields.into_iter().fold([0; 128], |map, (field, value)| replaced(&map, field, value).unwrap());
        let made = decode(&made).unwrap().unwrap();
        assert_eq!((made.rank, made.box_bytes()), (2, 1024));
    }

    #[test]
    fn an_im2col_map_and_back() {
        let description = Im2colMap {
            element: TensorElement::U32,
            address: 0x1000,
            dims: vec![8, 5, 4, 3],
            strides: vec![32, 160, 640],
            lower: vec![-1, -128],
            upper: vec![1, -2],
            channels: 8,
            pixels: 1024,
            steps: vec![2, 3],
            swizzle: TensorSwizzle::B32,
        };
        description.check().unwrap();
        let bytes = encode(MapDescription::Im2col(&description));
        let map = decode(&bytes).unwrap().unwrap();
        assert_eq!((map.rows(), map.row_bytes(), map.steps), (1024, 32, [1, 2, 3, 1, 1]));
        let bounds = map.walk.as_ref().unwrap().bounds;
        assert_eq!(bounds[..2], [(-1, 5), (-128, 1)]);
        // A row of the box has 4 bases, a column 44: from -128 to 1.
        let row = |start, index| map.row(&start, index).map(|row| row.address - 0x1000);
        assert_eq!(row([0, 1, 0, 1, 0], 1), Some(3 * 32 + 640), "two further");
        assert_eq!(row([0, 5, 0, 1, 0], 0), None, "beyond the width");
        assert_eq!(
            row([0, 5, 1, 1, 0], 1 + 43 * 4 + 1),
            Some(32 + 160 + 1280),
            "an image later, the last row"
        );
        assert_eq!(row([0, 5, 1, 1, 0], 1 + 42 * 4 + 1), None, "the row before, above the tensor");
        let changed = decode(&replaced(&bytes, MapField::Rank, 1).unwrap()).unwrap();
        assert!(changed.unwrap_err().contains("im2col"));
    }

    #[test]
    fn rows_are_clipped_on_every_side() {
        let map = decode(&encode(MapDescription::Tiled(&description()))).unwrap().unwrap();
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
        // 100 elements of 2 bytes end in the middle of the 13th chunk.
        let map = decode(&encode(MapDescription::Tiled(&description()))).unwrap().unwrap();
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
