//! Checks of a call's numbers and tensors.

use collective::{Format, MatrixRef};
use kernel::{LaunchError, MatrixRule};

use crate::problem::{HeadsRef, Packed, Pages};

/// Extents are below this.
pub(crate) const LIMIT: u32 = 1 << 31;

pub(crate) fn refused<T>(reason: String) -> Result<T, LaunchError> {
    Err(LaunchError::Problem { reason })
}

/// Checks the addresses of tables in device memory.
fn check_tables(tables: impl IntoIterator<Item = (&'static str, u64)>) -> Result<(), LaunchError> {
    tables.into_iter().try_for_each(|(name, address)| {
        let rule = MatrixRule { name, contiguous: 1, lines: 1, bits: 32, alignment: 4 };
        rule.check(MatrixRef::new(address, 1))
    })
}

/// Checks a cache for pages of `page` keys and sequences of at most `keys`. The numbers themselves are in device memory.
pub(crate) fn check_pages(pages: &Pages, page: u32, keys: u32) -> Result<(), LaunchError> {
    let (name, needed) = ("the number of pages", keys.div_ceil(page));
    if pages.count >= LIMIT {
        return Err(LaunchError::Extent { name, extent: pages.count.into(), limit: LIMIT });
    }
    if keys > 0 && pages.count == 0 {
        return refused(format!("the cache has no page, {needed} were needed for {keys} keys"));
    }
    if pages.each < needed {
        return refused(format!(
            "the table has {} pages per sequence, {needed} of {page} keys were needed for {keys} keys",
            pages.each
        ));
    }
    Ok(())
}

/// Checks where sequences begin, for `sides` of queries and keys. The numbers themselves are in device memory.
pub(crate) fn check_packed(packed: &Packed, sides: usize) -> Result<(), LaunchError> {
    let names = ["the beginnings of queries", "the beginnings of keys"];
    check_tables(names.into_iter().zip(packed.begins).take(sides))?;
    let names = ["the number of all queries", "the number of all keys"];
    for (name, extent) in names.into_iter().zip(packed.rows).take(sides) {
        if extent >= LIMIT {
            return Err(LaunchError::Extent { name, extent: extent.into(), limit: LIMIT });
        }
    }
    Ok(())
}

/// Checks a tensor with `rows` rows of `d` elements.
pub(crate) fn check_tensor(
    (name, of): (&'static str, HeadsRef),
    [batch, heads, rows, d]: [u32; 4],
    (format, alignment): (Format, u64),
) -> Result<(), LaunchError> {
    let HeadsRef { address, row, head, batch: sequence } = of;
    let rule = MatrixRule { name, contiguous: d, lines: rows, bits: format.bits().into(), alignment };
    let rows = MatrixRef::new(address, row);
    rule.check(rows)?;
    rule.batch(heads, rows.every(head))?;
    rule.batch(batch, rows.every(sequence))?;
    Ok(())
}

/// Checks that a tensor map of sequences of different lengths, which begins `most` rows before the tensor, is possible.
pub(crate) fn check_begin(
    (name, of): (&'static str, HeadsRef),
    most: u32,
    bytes: u32,
) -> Result<(), LaunchError> {
    let least = u128::from(most) * u128::from(of.row) * u128::from(bytes);
    if u128::from(of.address) >= least {
        return Ok(());
    }
    refused(format!(
        "{name} is at {:#x}, an address from {least:#x} on was needed: sequences of different lengths are copied by a tensor map that begins before them",
        of.address
    ))
}
