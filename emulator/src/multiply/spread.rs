//! Operands of 16-bit elements from shared memory, in the layout of the accumulators.

use super::products::{OfA, OfB};
use super::vectors::{Vectors, dispatch};
use crate::descriptor::Chunks;
use crate::shared::Shared;

/// Number of chunks per row, and of elements per chunk.
const UNITS: usize = 2;
const ELEMENTS: usize = 8;

/// A dense K-major operand of 16-bit elements in shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Halves<'s> {
    shared: &'s Shared,
    chunks: &'s [u32],
}

impl<'s> Halves<'s> {
    /// `None` if the operand is MN-major.
    pub(crate) fn of(shared: &'s Shared, chunks: &'s Chunks) -> Option<Self> {
        (!chunks.tile.transposed).then_some(Self { shared, chunks: &chunks.chunks })
    }

    /// One of the chunks of a row or column.
    #[inline(always)]
    fn chunk(self, row: usize, unit: usize) -> [u16; ELEMENTS] {
        let bytes = self.shared.chunk(self.chunks[row * UNITS + unit]);
        let (halves, _) = bytes.as_chunks::<2>();
        core::array::from_fn(|at| u16::from_le_bytes(halves[at]))
    }
}

/// Eight rows of A or columns of B, at one k.
pub(super) trait Eight: Sized {
    /// Places eight chunks at their k.
    fn place(places: &mut [Self; ELEMENTS], eight: [[u16; ELEMENTS]; 8], from: impl Fn(u16) -> f32 + Copy);
}

impl Eight for OfA {
    #[inline(always)]
    fn place(places: &mut [Self; ELEMENTS], eight: [[u16; ELEMENTS]; 8], from: impl Fn(u16) -> f32 + Copy) {
        for (row, elements) in eight.into_iter().enumerate() {
            let values = elements.map(from);
            for (place, value) in places.iter_mut().zip(values) {
                place.as_chunks_mut::<4>().0[row] = [value; 4];
            }
        }
    }
}

impl Eight for OfB {
    #[inline(always)]
    fn place(places: &mut [Self; ELEMENTS], eight: [[u16; ELEMENTS]; 8], from: impl Fn(u16) -> f32 + Copy) {
        for parity in 0..2 {
            let [a, b, c, d] = [0, 2, 4, 6].map(|column| eight[column + parity]);
            let (low, high) = ((low(a, c), low(b, d)), (high(a, c), high(b, d)));
            for (half, (one, other)) in [low, high].into_iter().enumerate() {
                for (quarter, mixed) in
                    [self::low(one, other), self::high(one, other)].into_iter().enumerate()
                {
                    let values = mixed.map(from);
                    for (k, values) in values.as_chunks::<4>().0.iter().enumerate() {
                        places[half * 4 + quarter * 2 + k][parity] = *values;
                    }
                }
            }
        }
    }
}

/// The first halves of two vectors, element by element. The compiler makes one instruction of it.
#[inline(always)]
fn low(a: [u16; 8], b: [u16; 8]) -> [u16; 8] {
    [a[0], b[0], a[1], b[1], a[2], b[2], a[3], b[3]]
}

/// The second halves.
#[inline(always)]
fn high(a: [u16; 8], b: [u16; 8]) -> [u16; 8] {
    [a[4], b[4], a[5], b[5], a[6], b[6], a[7], b[7]]
}

/// Converts an operand.
pub(super) fn spread<T: Eight>(halves: Halves<'_>, places: &mut [T], from: impl Fn(u16) -> f32 + Copy) {
    dispatch(Spread { halves, places, from });
}

struct Spread<'s, T, F> {
    halves: Halves<'s>,
    places: &'s mut [T],
    from: F,
}

impl<T: Eight, F: Fn(u16) -> f32 + Copy> Vectors for Spread<'_, T, F> {
    #[inline(always)]
    fn run<const W: usize>(self) {
        let Self { halves, places, from } = self;
        for (at, places) in places.as_chunks_mut::<ELEMENTS>().0.iter_mut().enumerate() {
            let (first, unit) = (at / UNITS * 8, at % UNITS);
            let eight = core::array::from_fn(|row| halves.chunk(first + row, unit));
            T::place(places, eight, from);
        }
    }
}
