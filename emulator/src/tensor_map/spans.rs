//! The rows of a box that follow each other at equal distances in memory, so that a copy need not look for each.

use super::{Map, Row};

/// Rows of a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The index of the first one, and how many there are.
    pub(crate) first: u32,
    pub(crate) rows: u32,
    /// The first one. The others have the same part of a row inside the tensor.
    row: Row,
    /// The distance from one to the next in memory.
    stride: u64,
}

impl Span {
    /// The address of its first byte, and the number of bytes from there to its last one.
    pub(crate) fn extent(self) -> (u64, u64) {
        let between = u64::from(self.rows.saturating_sub(1)).saturating_mul(self.stride);
        (self.row.address, between.saturating_add((self.row.end - self.row.start) as u64))
    }

    /// The part of each row that is inside the tensor.
    pub(crate) fn inside(self) -> core::ops::Range<usize> {
        self.row.start..self.row.end
    }

    /// The rows one after the other.
    #[inline]
    pub(crate) fn rows(self) -> impl Iterator<Item = Row> {
        (0..u64::from(self.rows)).map(move |at| Row {
            address: self.row.address.wrapping_add(at.wrapping_mul(self.stride)),
            ..self.row
        })
    }
}

impl Map {
    /// The rows of the box at `start` that are inside the tensor.
    pub(crate) fn spans<'m>(&'m self, start: &'m [i64; 5]) -> impl Iterator<Item = Span> + 'm {
        // An im2col copy looks for each pixel.
        let tiled = self.walk.is_none();
        let group = if tiled { self.box_dims[1].max(1) } else { 1 };
        let step = if tiled { u64::from(self.steps[1].max(1)) } else { 1 };
        // The rows of a group that are inside along the second dimension.
        let from = |at: i64| u64::try_from(at).unwrap_or(0).div_ceil(step).min(group.into()) as u32;
        let extent = i64::try_from(self.dims[1]).unwrap_or(i64::MAX);
        let inside = if tiled { from(-start[1])..from(extent - start[1]) } else { 0..1 };
        (0..self.rows() / group).filter_map(move |at| {
            let (first, rows) = (at * group + inside.start, inside.end.saturating_sub(inside.start));
            let row = if rows > 0 { self.row(start, first) } else { None };
            row.map(|row| Span { first, rows, row, stride: self.strides[1].wrapping_mul(step) })
        })
    }
}

#[cfg(test)]
mod tests {
    use ptx::abi::{MapDescription, Promotion, TensorElement, TensorMap, TensorSwizzle};

    use super::*;
    use crate::tensor_map::{decode, encode};

    /// The rows of all spans are the rows of the box, wherever it is.
    #[test]
    fn spans_have_the_rows_of_the_box() {
        let description = TensorMap {
            element: TensorElement::Bf16,
            address: 0x1000,
            dims: vec![40, 9, 3],
            strides: vec![80, 800],
            box_dims: vec![16, 6, 2],
            swizzle: TensorSwizzle::None,
            promotion: Promotion::default(),
            reach: None,
        };
        let mut map = decode(&encode(MapDescription::Tiled(&description))).unwrap().unwrap();
        for step in [1, 2, 4] {
            map.steps[1] = step;
            for (x, y, z) in
                [(0, 0, 0), (24, 3, 1), (32, 4, 2), (-8, -1, -1), (0, -7, 0), (0, 8, 0), (0, 9, 0)]
            {
                let start = [x, y, z, 0, 0];
                let mut rows = vec![None; map.rows() as usize];
                for span in map.spans(&start) {
                    for (at, row) in (span.first as usize..).zip(span.rows()) {
                        rows[at] = Some(row);
                    }
                }
                let each: Vec<Option<Row>> = (0..map.rows()).map(|row| map.row(&start, row)).collect();
                assert_eq!(rows, each, "{start:?}, step {step}");
            }
        }
    }
}
