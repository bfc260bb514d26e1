//! What tensors of heads, packed sequences and pages of a call must satisfy.

use collective::MatrixRef;
use collective::heads::{HeadTensor, HeadsRef, Packed, Pages};

use crate::error::LaunchError;
use crate::matrix_rule::MatrixRule;

/// Extents of kernels over sequences are below this.
pub const MOST_ROWS: u32 = 1 << 31;

/// Checks that an extent is below [`MOST_ROWS`].
///
/// # Errors
/// [`LaunchError::Extent`].
pub fn check_extent(name: &'static str, extent: u32) -> Result<(), LaunchError> {
    if extent < MOST_ROWS {
        return Ok(());
    }
    Err(LaunchError::Extent { name, extent: extent.into(), limit: MOST_ROWS })
}

/// Checks address and strides of a tensor, if it is accessed.
///
/// # Errors
/// Those of [`MatrixRule::check`] and [`MatrixRule::batch`]; and an address too small for a tensor map that begins before it.
pub fn check_heads(tensor: &HeadTensor<'_>) -> Result<(), LaunchError> {
    if !tensor.is_accessed() {
        return Ok(());
    }
    let (name, [batch, heads, lines, d], bits) = (tensor.name, tensor.shape, tensor.format.bits().into());
    let HeadsRef { address, row, head, batch: sequence } = *tensor.at;
    let (alignment, before) = tensor.placed();
    let rule = MatrixRule { name, contiguous: d, lines, bits, alignment };
    let rows = MatrixRef::new(address, row);
    rule.check(rows)?;
    rule.batch(heads, rows.every(head))?;
    rule.batch(batch, rows.every(sequence))?;
    let least = u128::from(before) * u128::from(row) * u128::from(bits) / 8;
    if u128::from(address) >= least {
        return Ok(());
    }
    let reason = format!(
        "{name} is at {address:#x}, an address from {least:#x} on was needed: sequences of different lengths are copied by a tensor map that begins before them"
    );
    Err(LaunchError::Problem { reason })
}

/// Checks the addresses and the numbers of rows of packed queries, and of keys if there are two sides. The tables themselves are in device
/// memory.
///
/// # Errors
/// The first address or number that is illegal.
pub fn check_packed(packed: &Packed, sides: usize) -> Result<(), LaunchError> {
    let all = ["the number of all queries", "the number of all keys"];
    let tables = Packed::TABLES.into_iter().zip(packed.begins);
    for ((name, address), (all, rows)) in tables.zip(all.into_iter().zip(packed.rows)).take(sides) {
        MatrixRule { name, contiguous: 1, lines: 1, bits: 32, alignment: 4 }.begins(address)?;
        check_extent(all, rows)?;
    }
    Ok(())
}

/// Checks the numbers of a cache, for pages of `page` keys and sequences of at most `keys`. The tables themselves are in device memory.
///
/// # Errors
/// The first number that is illegal.
pub fn check_pages(pages: &Pages, page: u32, keys: u32) -> Result<(), LaunchError> {
    check_extent("the number of pages", pages.count)?;
    let (needed, each) = (keys.div_ceil(page.max(1)), pages.each);
    let reason = if keys > 0 && pages.count == 0 {
        format!("the cache has no page, {needed} were needed for {keys} keys")
    } else if each < needed {
        format!(
            "the table has {each} pages per sequence, {needed} of {page} keys were needed for {keys} keys"
        )
    } else {
        return Ok(());
    };
    Err(LaunchError::Problem { reason })
}
