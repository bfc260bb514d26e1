//! Weights in few bits on the host: packing into the order that kernels read, and unpacking.
//!
//! Codes are stored in [units](cute_rs::atom::unit). Four 4-bit codes share 16 bits and follow each other.
//! [`Code::E2m1`] is the exception: its sign, exponent and mantissa bits are placed so that shifts and few
//! masks turn them into a `bf16`.
//!
//! ```
//! use collective::{Code, weights};
//!
//! // One code per byte, row by row.
//! let codes: Vec<u8> = (0..96 * 80).map(|i| (i * 7 % 16) as u8).collect();
//! let units = weights::reorder(Code::S4, [96, 80], &codes)?;
//! // 80 of K take two units of 64; 96 rows take two blocks of 64.
//! assert_eq!(weights::ld(Code::S4, 80), 128);
//! assert_eq!(units.len(), 128 * 128 / 2);
//! assert_eq!(weights::restore(Code::S4, [96, 80], &units)?, codes);
//! # Ok::<(), weights::WeightsError>(())
//! ```

mod packed;

use cute_rs::atom::unit;

use crate::element::Code;

pub use packed::{of_awq, of_gptq, of_pairs, order_of_groups, permuted, zeros_of_awq, zeros_of_gptq};

/// Why weights cannot be reordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// The number of bytes does not match the extents.
    #[error("weights of {rows} x {k} have {found} bytes, {needed} were needed")]
    Bytes {
        /// Rows.
        rows: u32,
        /// K.
        k: u32,
        /// Bytes found.
        found: usize,
        /// Bytes needed.
        needed: u64,
    },
    /// The weights are too large for any memory.
    #[error("weights of {rows} x {k} are too many: at most 2^40 are possible")]
    Extents {
        /// Rows.
        rows: u32,
        /// K.
        k: u32,
    },
    /// Extents or bits that do not fill whole words.
    #[error(
        "{what} is {extent}, a multiple of {needed} was needed: codes lie in words of 32 bits, or bytes of two"
    )]
    Packed {
        /// Name of the quantity.
        what: &'static str,
        /// Its value.
        extent: u32,
        /// What it must be a multiple of.
        needed: u32,
    },
    /// Groups of K of unequal size.
    #[error(
        "in the order of groups, place {place} along K belongs to group {index}, groups of {group} were needed"
    )]
    Group {
        /// Index of the group that was found.
        index: u32,
        /// Where it was found, along K in the order of groups.
        place: u32,
        /// K per group.
        group: u32,
    },
    /// A byte that the code does not assign a number to.
    #[error("the weight in row {row}, column {column} is {found:#04x}, which is no number of {code}")]
    Code {
        /// Row of the weight.
        row: u32,
        /// Index along K of the weight.
        column: u32,
        /// The byte found.
        found: u8,
        /// The code.
        code: Code,
    },
}

/// Leading dimension of weights in units, in elements: K rounded up to whole units.
pub const fn ld(code: Code, k: u32) -> u64 {
    (k as u64).next_multiple_of(unit::k(code.bits()) as u64)
}

/// Bytes of weights in units: rows rounded up to a multiple of 64, with [`ld`] codes each.
///
/// # Errors
/// [`WeightsError::Extents`] for more than 2^40 codes.
pub const fn bytes(code: Code, [rows, k]: [u32; 2]) -> Result<u64, WeightsError> {
    if rows as u64 * k as u64 > MOST {
        return Err(WeightsError::Extents { rows, k });
    }
    Ok((rows as u64).next_multiple_of(unit::ROWS as u64) * row_bytes(code, k))
}

/// Most codes of weights.
const MOST: u64 = 1 << 40;

/// Bytes of a row in units.
const fn row_bytes(code: Code, k: u32) -> u64 {
    ld(code, k) * code.bits() as u64 / 8
}

/// Packs codes into units. The codes are given one per byte, row by row. Padding of the last units is 0.
///
/// # Errors
/// [`WeightsError::Bytes`] if there are not `rows * k` codes; [`WeightsError::Code`] for a byte that is not a
/// number of the code; those of [`bytes`].
pub fn reorder(code: Code, [rows, k]: [u32; 2], codes: &[u8]) -> Result<Vec<u8>, WeightsError> {
    let bytes = bytes(code, [rows, k])?;
    sized([rows, k], codes.len(), u64::from(rows) * u64::from(k))?;
    let mut units = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let places = Places::of(code, k);
    let legal: Vec<bool> =
        (0..=255u8).map(|found| (code.bits() == 8 || found < 16) && code.value(found).is_some()).collect();
    for (row, line) in (0..rows).zip(codes.chunks(k.max(1) as usize)) {
        for (column, &found) in (0..k).zip(line) {
            if !legal[usize::from(found)] {
                return Err(WeightsError::Code { row, column, found, code });
            }
            let (unit, place) = places.at(row, column);
            place.put(&mut units[unit..], stored(code, found));
        }
    }
    Ok(units)
}

/// Unpacks units into codes, one per byte, row by row: the inverse of [`reorder`].
///
/// # Errors
/// [`WeightsError::Bytes`] if the number of bytes is not that of [`bytes`] for these extents; those of [`bytes`].
pub fn restore(code: Code, [rows, k]: [u32; 2], units: &[u8]) -> Result<Vec<u8>, WeightsError> {
    sized([rows, k], units.len(), bytes(code, [rows, k])?)?;
    let places = Places::of(code, k);
    let code_at = |row, column| {
        let (unit, place) = places.at(row, column);
        stored(code, place.get(&units[unit..]))
    };
    Ok((0..rows)
        .flat_map(|row| (0..k).map(move |column| (row, column)))
        .map(|(row, column)| code_at(row, column))
        .collect())
}

fn sized([rows, k]: [u32; 2], found: usize, needed: u64) -> Result<(), WeightsError> {
    if found as u64 == needed { Ok(()) } else { Err(WeightsError::Bytes { rows, k, found, needed }) }
}

/// A code as it is stored in a unit. The sign bit of signed 4-bit codes is flipped, so that they count from
/// zero. The function is its own inverse.
const fn stored(code: Code, bits: u8) -> u8 {
    if matches!(code, Code::S4) { bits ^ 8 } else { bits }
}

/// The place of each code in the units.
struct Places {
    /// Those of a unit's codes, row by row.
    of_unit: Vec<Place>,
    unit_k: u32,
    /// Bytes per block of 64 rows.
    block: usize,
}

impl Places {
    fn of(code: Code, k: u32) -> Self {
        let layout = unit::layout(code.bits()).expect("codes have 4 or 8 bits");
        let unit_k = unit::k(code.bits());
        let place = |row: u32, column: u32| {
            let within = layout.at_modes(&[row.into(), column.into()]) as u32;
            match code.bits() {
                4 => Place::Bits((within / 4 * 2) as usize, code.places(within % 4)),
                _ => Place::Byte(within as usize),
            }
        };
        let of_row = |row| (0..unit_k).map(move |column| (row, column));
        let of_unit = (0..unit::ROWS).flat_map(of_row).map(|(row, column)| place(row, column)).collect();
        Self { of_unit, unit_k, block: (u64::from(unit::ROWS) * row_bytes(code, k)) as usize }
    }

    /// The first byte of a code's unit, and the place in the unit.
    fn at(&self, row: u32, column: u32) -> (usize, &Place) {
        let unit =
            self.block * (row / unit::ROWS) as usize + unit::BYTES as usize * (column / self.unit_k) as usize;
        (unit, &self.of_unit[(row % unit::ROWS * self.unit_k + column % self.unit_k) as usize])
    }
}

/// The place of one code in its unit.
enum Place {
    /// This byte.
    Byte(usize),
    /// These bits, lowest first, of the two bytes from this one on.
    Bits(usize, [u32; 4]),
}

impl Place {
    /// Stores a code where the bits are zero.
    fn put(&self, units: &mut [u8], code: u8) {
        match *self {
            Self::Byte(byte) => units[byte] = code,
            Self::Bits(byte, places) => {
                for (bit, place) in places.into_iter().enumerate() {
                    units[byte + (place / 8) as usize] |= (code >> bit & 1) << (place % 8);
                }
            }
        }
    }

    fn get(&self, units: &[u8]) -> u8 {
        match *self {
            Self::Byte(byte) => units[byte],
            Self::Bits(byte, places) => places.into_iter().enumerate().fold(0, |code, (bit, place)| {
                code | (units[byte + (place / 8) as usize] >> (place % 8) & 1) << bit
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn codes_come_back(index in 0..Code::ALL.len(), rows in 0_u32..140, k in 0_u32..150, seed: u64) {
            let code = Code::ALL[index];
            let mut random = fastrand::Rng::with_seed(seed);
            let mut draw = || loop {
                let bits = random.u8(..if code.bits() == 4 { 16 } else { 255 });
                if code.value(bits).is_some() {
                    return bits;
                }
            };
            let codes: Vec<u8> = (0..rows * k).map(|_| draw()).collect();
            let units = reorder(code, [rows, k], &codes).expect("codes are numbers");
            prop_assert_eq!(Ok(units.len() as u64), bytes(code, [rows, k]));
            prop_assert_eq!(restore(code, [rows, k], &units), Ok(codes));
        }
    }

    /// The first words of a unit's first thread hold the first columns of its first rows, as the converters
    /// expect.
    #[test]
    fn a_threads_word_is_an_instructions_fragment() {
        let at = |row: u32, column: u32| (row * 16 + column) as u8;
        let mut codes = vec![0; 64 * 64];
        for (row, column, code) in
            [(0, 0, 1), (8, 0, 2), (0, 8, 3), (8, 8, 4), (0, 1, 5), (8, 1, 6), (0, 9, 7), (8, 9, 8)]
        {
            codes[(row * 64 + column) as usize] = code;
        }
        let units = reorder(Code::U4, [64, 64], &codes).expect("codes are numbers");
        // Registers of (row, k), (row + 8, k), (row, k + 8), (row + 8, k + 8); the second of each pair 16 bits higher.
        assert_eq!(units[..4], [0x21, 0x43, 0x65, 0x87], "{}", at(0, 0));
    }

    #[test]
    fn what_is_no_weight_is_refused() {
        for (got, want) in [
            (reorder(Code::S4, [2, 2], &[0; 3]), WeightsError::Bytes { rows: 2, k: 2, found: 3, needed: 4 }),
            (
                reorder(Code::U4, [1, 2], &[3, 16]),
                WeightsError::Code { row: 0, column: 1, found: 16, code: Code::U4 },
            ),
            (
                reorder(Code::E4m3, [1, 1], &[0x7F]),
                WeightsError::Code { row: 0, column: 0, found: 0x7F, code: Code::E4m3 },
            ),
            (
                restore(Code::S8, [1, 1], &[0; 2047]),
                WeightsError::Bytes { rows: 1, k: 1, found: 2047, needed: 2048 },
            ),
        ] {
            assert_eq!(got, Err(want));
        }
    }
}
