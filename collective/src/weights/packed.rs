//! Codes as other tools pack them in files: GPTQ, AWQ, and two codes per byte.
//!
//! GPTQ and AWQ share the following: several codes per 32-bit word, the first in the lowest bits; scales with
//! one line per group of K, along which the columns follow each other, as [`GroupScales`](crate::GroupScales)
//! expects. Sources: the files that AutoGPTQ, AutoAWQ and vLLM write and read.

use super::WeightsError;

/// Column, of eight, of the `i`-th code of an AWQ word.
const AWQ: [u32; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Checks that the number of words is the one needed.
fn sized([rows, k]: [u32; 2], found: usize, needed: u64) -> Result<(), WeightsError> {
    let (found, needed) = (found.saturating_mul(4), needed.saturating_mul(4));
    if found as u64 == needed { Ok(()) } else { Err(WeightsError::Bytes { rows, k, found, needed }) }
}

/// The codes of GPTQ's `qweight`, as N rows of K, one code per byte. The input is `K * bits / 32` lines of N
/// words. `bits` is 4 or 8. The codes are unsigned ([`Code::U4`](crate::Code) or `U8`), with zero points.
///
/// ```
/// use collective::weights;
///
/// // Two columns of K = 8: one word each.
/// let codes = weights::of_gptq(4, [2, 8], &[0x8765_4321, 0x0000_000F])?;
/// assert_eq!(codes, [1, 2, 3, 4, 5, 6, 7, 8, 15, 0, 0, 0, 0, 0, 0, 0]);
/// # Ok::<(), weights::WeightsError>(())
/// ```
///
/// # Errors
/// [`WeightsError::Packed`] for other bits, or if K does not fill whole words; [`WeightsError::Bytes`] for a
/// wrong number of words.
pub fn of_gptq(bits: u32, [n, k]: [u32; 2], words: &[u32]) -> Result<Vec<u8>, WeightsError> {
    let of_word = per_word(bits, "K", k)?;
    sized([n, k], words.len(), u64::from(n) * u64::from(k / of_word))?;
    let code = |column: u32, place: u32| {
        let word = words[place as usize / of_word as usize * n as usize + column as usize];
        field(word, bits, place % of_word)
    };
    Ok((0..n)
        .flat_map(|column| (0..k).map(move |place| (column, place)))
        .map(|(column, place)| code(column, place))
        .collect())
}

/// The zero points of GPTQ's `qzeros`, as one line of N per group. The input is one line of `N * bits / 32`
/// words per group. Files hold the zero point minus 1, so `less` is 1. In the format's second version
/// (`checkpoint_format` is `gptq_v2`) they hold the zero point itself, so `less` is 0.
///
/// # Errors
/// As [`of_gptq`].
pub fn zeros_of_gptq(
    bits: u32,
    [groups, n]: [u32; 2],
    words: &[u32],
    less: u16,
) -> Result<Vec<u16>, WeightsError> {
    let of_word = per_word(bits, "N", n)?;
    sized([groups, n], words.len(), u64::from(groups) * u64::from(n / of_word))?;
    let zeros = words.iter().flat_map(|&word| (0..of_word).map(move |i| field(word, bits, i)));
    Ok(zeros.map(|zero| u16::from(zero) + less).collect())
}

/// The codes of AWQ's `qweight`, as N rows of K, one code per byte. The input is K lines of `N / 8` words.
/// The codes are unsigned, 4 bits, with zero points.
///
/// # Errors
/// As [`of_gptq`].
pub fn of_awq([n, k]: [u32; 2], words: &[u32]) -> Result<Vec<u8>, WeightsError> {
    let of_word = per_word(4, "N", n)?;
    sized([n, k], words.len(), u64::from(k) * u64::from(n / of_word))?;
    let code = |column: u32, place: u32| {
        let word = words[place as usize * (n / of_word) as usize + (column / of_word) as usize];
        field(word, 4, awq_place(column % of_word))
    };
    Ok((0..n)
        .flat_map(|column| (0..k).map(move |place| (column, place)))
        .map(|(column, place)| code(column, place))
        .collect())
}

/// The zero points of AWQ's `qzeros`, as one line of N per group. The input is one line of `N / 8` words per
/// group.
///
/// # Errors
/// As [`of_gptq`].
pub fn zeros_of_awq([groups, n]: [u32; 2], words: &[u32]) -> Result<Vec<u16>, WeightsError> {
    let of_word = per_word(4, "N", n)?;
    sized([groups, n], words.len(), u64::from(groups) * u64::from(n / of_word))?;
    let zero = |&word: &u32| (0..of_word).map(move |column| u16::from(field(word, 4, awq_place(column))));
    Ok(words.iter().flat_map(zero).collect())
}

/// The codes of bytes that hold two each, the first in the low half, row by row: MXFP4, and tools that pack
/// `int4` in this way. K must be even.
///
/// # Errors
/// As [`of_gptq`].
pub fn of_pairs([rows, k]: [u32; 2], bytes: &[u8]) -> Result<Vec<u8>, WeightsError> {
    if !k.is_multiple_of(2) {
        return Err(WeightsError::Packed { what: "K", extent: k, needed: 2 });
    }
    super::sized([rows, k], bytes.len(), u64::from(rows) * u64::from(k / 2))?;
    Ok(bytes.iter().flat_map(|byte| [byte & 15, byte >> 4]).collect())
}

/// The order in which to read K so that the members of each group are consecutive, from GPTQ's `g_idx`, the
/// group index of each place along K. Each group has `group` places. Apply the order to the columns of A and
/// of the codes ([`permuted`]).
///
/// ```
/// use collective::weights;
///
/// let order = weights::order_of_groups(&[1, 0, 1, 0], 2)?;
/// assert_eq!(order, [1, 3, 0, 2]);
/// assert_eq!(weights::permuted(&[10, 11, 12, 13], &order), [11, 13, 10, 12]);
/// # Ok::<(), weights::WeightsError>(())
/// ```
///
/// # Errors
/// [`WeightsError::Group`] if the groups are not all of `group` places.
pub fn order_of_groups(g_idx: &[u32], group: u32) -> Result<Vec<u32>, WeightsError> {
    let mut order: Vec<u32> = (0..g_idx.len() as u32).collect();
    order.sort_by_key(|&place| g_idx[place as usize]);
    let of = |place: usize| g_idx[order[place] as usize] as usize;
    match (0..order.len()).find(|&place| of(place) != place / group.max(1) as usize) {
        None => Ok(order),
        Some(place) => Err(WeightsError::Group { index: of(place) as u32, place: place as u32, group }),
    }
}

/// A row with its elements reordered: element `i` of the result is element `order[i]` of `row`. Indices
/// beyond the row are skipped.
pub fn permuted<T: Copy>(row: &[T], order: &[u32]) -> Vec<T> {
    order.iter().filter_map(|&place| row.get(place as usize).copied()).collect()
}

/// Number of codes per word.
fn per_word(bits: u32, what: &'static str, extent: u32) -> Result<u32, WeightsError> {
    if !matches!(bits, 4 | 8) {
        return Err(WeightsError::Packed { what: "the bits of a code", extent: bits, needed: 4 });
    }
    let of_word = 32 / bits;
    if extent.is_multiple_of(of_word) {
        Ok(of_word)
    } else {
        Err(WeightsError::Packed { what, extent, needed: of_word })
    }
}

const fn field(word: u32, bits: u32, i: u32) -> u8 {
    (word >> (bits * i)) as u8 & if bits == 4 { 15 } else { 255 }
}

/// Position in an AWQ word of a column of eight.
const fn awq_place(column: u32) -> u32 {
    let mut i = 0;
    while AWQ[i as usize] != column {
        i += 1;
    }
    i
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packing as the tools do it: the inverse direction.
    #[test]
    fn packed_codes_come_back() {
        let (n, k) = (16_u32, 24_u32);
        let codes: Vec<u8> = (0..n * k).map(|i| (i * 7 % 16) as u8).collect();
        let at = |column: u32, place: u32| u32::from(codes[(column * k + place) as usize]);
        let mut gptq = vec![0; (k / 8 * n) as usize];
        let mut awq = vec![0; (k * (n / 8)) as usize];
        for (column, place) in (0..n).flat_map(|column| (0..k).map(move |place| (column, place))) {
            gptq[(place / 8 * n + column) as usize] |= at(column, place) << (4 * (place % 8));
            let i = AWQ.iter().position(|&of| of == column % 8).unwrap() as u32;
            awq[(place * (n / 8) + column / 8) as usize] |= at(column, place) << (4 * i);
        }
        assert_eq!(of_gptq(4, [n, k], &gptq).as_ref(), Ok(&codes));
        assert_eq!(of_awq([n, k], &awq).as_ref(), Ok(&codes));
        let pairs: Vec<u8> = codes.chunks(2).map(|pair| pair[0] | pair[1] << 4).collect();
        assert_eq!(of_pairs([n, k], &pairs), Ok(codes));
    }

    #[test]
    fn zero_points_come_back() {
        assert_eq!(zeros_of_gptq(4, [1, 8], &[0x7654_3210], 1), Ok(vec![1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(zeros_of_gptq(8, [2, 4], &[0xFF02_0100, 7], 0), Ok(vec![0, 1, 2, 255, 7, 0, 0, 0]));
        // Columns 0 2 4 6 1 3 5 7, from the lowest bits up.
        assert_eq!(zeros_of_awq([1, 8], &[0x7531_6420]), Ok(vec![0, 1, 2, 3, 4, 5, 6, 7]));
    }

    #[test]
    fn what_is_not_packed_so_is_refused() {
        for (got, want) in [
            (
                of_gptq(3, [8, 8], &[]),
                WeightsError::Packed { what: "the bits of a code", extent: 3, needed: 4 },
            ),
            (of_gptq(4, [8, 12], &[]), WeightsError::Packed { what: "K", extent: 12, needed: 8 }),
            (of_awq([12, 8], &[]), WeightsError::Packed { what: "N", extent: 12, needed: 8 }),
            (of_gptq(4, [2, 8], &[0; 3]), WeightsError::Bytes { rows: 2, k: 8, found: 12, needed: 8 }),
            (of_pairs([1, 3], &[0; 2]), WeightsError::Packed { what: "K", extent: 3, needed: 2 }),
        ] {
            assert_eq!(got, Err(want));
        }
        assert_eq!(
            order_of_groups(&[0, 0, 0, 1], 2),
            Err(WeightsError::Group { index: 0, place: 2, group: 2 })
        );
    }
}
