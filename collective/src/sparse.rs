//! 2:4 sparse operands on the host: prune, compress, check and restore.
//!
//! Of four neighbours along K two are kept; of two neighbours of `tf32`, one. The kept elements are stored
//! next to each other, and metadata says where they were. `kernel::Compress` of the crate `kernel` does on
//! the device what [`compress`] does here.
//!
//! ```
//! use collective::{Format, sparse};
//!
//! // A row of `bf16`: 1, 0, 0, 2, then 0, 3, -0, 0.
//! let row = [0x3F80, 0, 0, 0x4000, 0, 0x4040, 0x8000, 0];
//! let compressed = sparse::compress(Format::Bf16, [1, 8], &row)?;
//! // At most two of four may be nonzero; they are kept. -0 is kept in preference to 0.
//! assert_eq!(compressed.values, [0x3F80, 0x4000, 0x4040, 0x8000]);
//! assert_eq!(sparse::restore(Format::Bf16, [1, 8], &compressed)?, row);
//! # Ok::<(), sparse::SparseError>(())
//! ```

use cute_rs::Layout;

use crate::element::Format;

/// Rows per block of metadata.
pub const ROWS: u32 = 64;

/// Words per unit of metadata: one per thread of a warpgroup.
pub const WORDS: u32 = 128;

/// Why an operand cannot be compressed, or restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SparseError {
    /// A format that no sparse instruction multiplies.
    #[error("no sparse instruction multiplies {format}: bf16, f16, tf32 or a format of 8 bits was needed")]
    Format {
        /// The format.
        format: Format,
    },
    /// The number of elements does not match the extents.
    #[error("{what} of {rows} x {k} are {found}, {needed} were needed")]
    Elements {
        /// Name of the quantity.
        what: &'static str,
        /// Rows.
        rows: u32,
        /// K.
        k: u32,
        /// Number found.
        found: usize,
        /// Number needed.
        needed: u64,
    },
    /// More elements of a chunk are nonzero than can be kept.
    #[error(
        "of the {chunk} elements in row {row} from column {column} on, more than {} are not zero: prune the operand first",
        chunk / 2
    )]
    Dense {
        /// Row of the chunk.
        row: u32,
        /// Index along K of the chunk's first element.
        column: u32,
        /// Elements per chunk.
        chunk: u32,
    },
    /// Metadata that no compressor produces.
    #[error("the metadata of row {row} from column {column} on is {found:#06b}, which names no elements")]
    Metadata {
        /// Row of the chunk.
        row: u32,
        /// Index along K of the chunk's first element.
        column: u32,
        /// The four bits found.
        found: u32,
    },
}

/// A compressed sparse operand, as kernels read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compressed {
    /// The kept elements, row by row, [`kept`] per row.
    pub values: Vec<u32>,
    /// The metadata: blocks of 64 rows, [`metadata_ld`] words each.
    pub metadata: Vec<u32>,
}

/// Elements per chunk, of which half are kept: 4, for `tf32` 2.
pub const fn chunk(format: Format) -> u32 {
    if format.bits() == 32 { 2 } else { 4 }
}

/// Number of elements kept per row.
pub const fn kept(format: Format, k: u32) -> u32 {
    k.div_ceil(chunk(format)) * (chunk(format) / 2)
}

/// K per unit of metadata: 64, for `tf32` 32.
pub const fn unit_k(format: Format) -> u32 {
    if format.bits() == 32 { 32 } else { 64 }
}

/// Words of metadata from one block of 64 rows to the next. For a K of 2^31 they are more than a `u32` holds.
pub const fn metadata_ld(format: Format, k: u32) -> u64 {
    k.div_ceil(unit_k(format)) as u64 * WORDS as u64
}

/// The layout of a unit of metadata: from `(row, chunk)` to the index of the chunk's group of four bits. A
/// word has eight groups, the lowest bits first. A unit is [`ROWS`] rows by [`unit_k`] of K.
///
/// For 16-bit and 32-bit elements, a thread's word covers half of one of two instructions along K: its row in
/// the low 16 bits, the row 8 below it in the high ones. For 8-bit elements, it covers half of one
/// instruction and one row. Source: PTX ISA "Sparse matrix storage" of `wgmma.mma_async.sp`.
///
/// ```
/// use collective::{Format, sparse};
///
/// assert_eq!(sparse::unit(Format::Bf16).to_string(), "((8,2,4),(4,4)):((32,4,256),(1,8))");
/// assert_eq!(sparse::unit(Format::E4m3).to_string(), "((8,2,4),(8,2)):((32,8,256),(1,16))");
/// ```
///
/// # Panics
/// Never: both layouts are constants.
pub fn unit(format: Format) -> Layout {
    // Rows: groups of four lanes, the row 8 below, warps. Chunks: within a word, and its lanes.
    let (shape, stride) = if format.bits() == 8 {
        (((8, 2, 4), (8, 2)), ((32, 8, 256), (1, 16)))
    } else {
        (((8, 2, 4), (4, 4)), ((32, 4, 256), (1, 8)))
    };
    Layout::new(shape.into(), stride.into()).expect("congruent")
}

/// Place of a chunk's four bits of metadata: index of the word, and of its lowest bit.
fn place(format: Format, k: u32, [row, chunk_index]: [u32; 2]) -> (usize, u32) {
    let of_unit = unit_k(format) / chunk(format);
    let within = [row % ROWS, chunk_index % of_unit].map(i64::from);
    let place = unit(format).at_modes(&within) as u32;
    let before = u64::from(row / ROWS) * metadata_ld(format, k) + u64::from(chunk_index / of_unit * WORDS);
    ((before + u64::from(place / 8)) as usize, place % 8 * 4)
}

/// The four metadata bits for the kept elements `places`, in order. For 32-bit elements only the first place
/// counts.
pub const fn bits(format: Format, places: [u32; 2]) -> u32 {
    match (format.bits(), places[0]) {
        (32, 0) => 0b0100,
        (32, _) => 0b1110,
        (_, _) => places[0] | places[1] << 2,
    }
}

/// The elements that four metadata bits select; `None` for illegal bits.
fn named(format: Format, bits: u32) -> Option<[u32; 2]> {
    let places = match (format.bits(), bits) {
        (32, 0b0100) => [0, 1],
        (32, 0b1110) => [1, 0],
        (32, _) => return None,
        (_, bits) => [bits & 3, bits >> 2],
    };
    (format.bits() == 32 || places[0] < places[1]).then_some(places)
}

fn supported(format: Format) -> Result<(), SparseError> {
    let operand = Format::operands().any(|of| of == format);
    if operand { Ok(()) } else { Err(SparseError::Format { format }) }
}

fn sized(what: &'static str, [rows, k]: [u32; 2], found: usize, needed: u64) -> Result<(), SparseError> {
    if found as u64 == needed { Ok(()) } else { Err(SparseError::Elements { what, rows, k, found, needed }) }
}

/// Priority of an element to be kept: 0 for zero, 1 for -0, 2 for all others.
fn worth(format: Format, bits: u32) -> u32 {
    let sign = 1 << (format.bits() - 1);
    match bits {
        0 => 0,
        bits if format.is_float() && bits == sign => 1,
        _ => 2,
    }
}

/// Compresses an operand, given as the bits of its elements, row by row. Half of each chunk is kept: nonzero
/// elements first, then -0.
///
/// # Errors
/// [`SparseError::Dense`] if more than half of a chunk is nonzero; [`SparseError::Elements`],
/// [`SparseError::Format`].
pub fn compress(format: Format, [rows, k]: [u32; 2], elements: &[u32]) -> Result<Compressed, SparseError> {
    supported(format)?;
    sized("elements", [rows, k], elements.len(), u64::from(rows) * u64::from(k))?;
    let (chunk, half) = (chunk(format), chunk(format) / 2);
    let mut values = Vec::with_capacity(rows as usize * kept(format, k) as usize);
    // Padding of the last blocks and units selects the first elements of each chunk.
    let nothing = (0..8).fold(0, |word, i| word | bits(format, [0, 1]) << (4 * i));
    let mut metadata = vec![nothing; rows.div_ceil(ROWS) as usize * metadata_ld(format, k) as usize];
    for (row, line) in (0..rows).zip(elements.chunks(k.max(1) as usize)) {
        for (index, of_chunk) in (0..).zip(line.chunks(chunk as usize)) {
            let at = |place: u32| of_chunk.get(place as usize).copied().unwrap_or(0);
            let mut order: Vec<u32> = (0..chunk).collect();
            order.sort_by_key(|&place| core::cmp::Reverse(worth(format, at(place))));
            if order.get(half as usize).is_some_and(|&place| worth(format, at(place)) == 2) {
                return Err(SparseError::Dense { row, column: index * chunk, chunk });
            }
            order.truncate(half as usize);
            order.sort_unstable();
            values.extend(order.iter().map(|&place| at(place)));
            let (word, bit) = place(format, k, [row, index]);
            let second = order.get(1).copied().unwrap_or(0);
            metadata[word] = metadata[word] & !(15 << bit) | bits(format, [order[0], second]) << bit;
        }
    }
    Ok(Compressed { values, metadata })
}

/// The elements of a compressed operand, row by row. Elements that were not kept are 0.
///
/// # Errors
/// [`SparseError::Elements`] for a wrong number of values or words; [`SparseError::Metadata`] for four bits
/// that do not select two elements.
pub fn restore(
    format: Format,
    [rows, k]: [u32; 2],
    compressed: &Compressed,
) -> Result<Vec<u32>, SparseError> {
    supported(format)?;
    let (chunk, half, kept) = (chunk(format), chunk(format) / 2, kept(format, k));
    sized("values", [rows, k], compressed.values.len(), u64::from(rows) * u64::from(kept))?;
    let words = u64::from(rows.div_ceil(ROWS)) * metadata_ld(format, k);
    sized("words of metadata", [rows, k], compressed.metadata.len(), words)?;
    let mut elements = vec![0; rows as usize * k as usize];
    for (row, index) in (0..rows).flat_map(|row| (0..k.div_ceil(chunk)).map(move |index| (row, index))) {
        let (word, bit) = place(format, k, [row, index]);
        let (found, column) = (compressed.metadata[word] >> bit & 15, index * chunk);
        let places = named(format, found).ok_or(SparseError::Metadata { row, column, found })?;
        for (i, place) in (0..half).zip(places) {
            if column + place < k {
                let at = |line: u32, place: u32| row as usize * line as usize + place as usize;
                elements[at(k, column + place)] = compressed.values[at(kept, index * half + i)];
            }
        }
    }
    Ok(elements)
}

/// Prunes an operand in place: sets half of each chunk to zero and keeps the largest by magnitude, the first
/// of equal ones.
///
/// # Errors
/// [`SparseError::Elements`], [`SparseError::Format`].
pub fn prune(format: Format, [rows, k]: [u32; 2], elements: &mut [u32]) -> Result<(), SparseError> {
    supported(format)?;
    sized("elements", [rows, k], elements.len(), u64::from(rows) * u64::from(k))?;
    let chunk = chunk(format) as usize;
    for line in elements.chunks_mut(k.max(1) as usize) {
        for of_chunk in line.chunks_mut(chunk) {
            let size = |bits: u32| format.decode(bits.into()).abs();
            let mut order: Vec<usize> = (0..of_chunk.len()).collect();
            order.sort_by(|&a, &b| size(of_chunk[b]).total_cmp(&size(of_chunk[a])));
            for &place in order.iter().skip(chunk / 2) {
                of_chunk[place] = 0;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A pruned operand can be compressed, and is restored bit by bit.
        #[test]
        fn pruned_operands_come_back(index in 0..7_usize, rows in 0_u32..140, k in 0_u32..150, seed: u64) {
            let formats: Vec<Format> = Format::operands().collect();
            let format = formats[index % formats.len()];
            let mut random = fastrand::Rng::with_seed(seed);
            let mask = if format.bits() == 32 { u32::MAX } else { (1 << format.bits()) - 1 };
            let mut draw = || match random.u32(..4) {
                0 => 0,
                1 if format.is_float() => 1 << (format.bits() - 1),
                _ => random.u32(..) & mask,
            };
            let mut elements: Vec<u32> = (0..rows * k).map(|_| draw()).collect();
            prune(format, [rows, k], &mut elements).expect("a format that is multiplied");
            let compressed = compress(format, [rows, k], &elements).expect("a pruned operand");
            prop_assert_eq!(compressed.values.len() as u32, rows * kept(format, k));
            prop_assert_eq!(restore(format, [rows, k], &compressed), Ok(elements));
        }
    }

    #[test]
    fn what_is_dense_is_refused() {
        let rows = |row: [u32; 8]| compress(Format::F16, [1, 8], &row);
        assert_eq!(rows([0, 1, 0, 0, 5, 0, 6, 7]), Err(SparseError::Dense { row: 0, column: 4, chunk: 4 }));
        // Three of four may be zeros of either sign.
        let kept = rows([0x8000, 0, 0x8000, 3, 0x8000, 0x8000, 0x8000, 0]).expect("two are kept");
        assert_eq!(kept.values, [0x8000, 3, 0x8000, 0x8000]);
        for (got, want) in [
            (compress(Format::F32, [1, 1], &[0]), SparseError::Format { format: Format::F32 }),
            (
                compress(Format::Bf16, [2, 2], &[0; 3]),
                SparseError::Elements { what: "elements", rows: 2, k: 2, found: 3, needed: 4 },
            ),
        ] {
            assert_eq!(got, Err(want));
        }
        let mut broken = kept;
        broken.metadata[0] = 0b0101;
        assert_eq!(
            restore(Format::F16, [1, 8], &broken),
            Err(SparseError::Metadata { row: 0, column: 0, found: 0b0101 })
        );
    }
}
