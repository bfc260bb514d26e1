//! Operands that are prepared on the host: few-bit weights and sparse matrices.

use core::ffi::c_char;

use falchion::collective::{Code, Format, sparse, weights};

use crate::fields::words;
use crate::{Failure, Status, guard, invalid};

/// # Safety
/// The name is null or ends in a zero.
unsafe fn code(name: *const c_char) -> Result<Code, Failure> {
    // SAFETY: the caller guarantees it.
    let name = unsafe { words(name, "code") }?.unwrap_or("NULL");
    Ok(falchion_core::code(name)?)
}

/// # Safety
/// The name is null or ends in a zero.
unsafe fn format(name: *const c_char) -> Result<Format, Failure> {
    // SAFETY: the caller guarantees it.
    let name = unsafe { words(name, "type") }?.unwrap_or("NULL");
    Ok(falchion_core::format("type", name)?)
}

/// The bytes at an address.
///
/// # Safety
/// The address is null, or that number of bytes can be read there.
unsafe fn bytes<'a>(address: *const u8, count: u64, name: &str) -> Result<&'a [u8], Failure> {
    match (isize::try_from(count).map(isize::cast_unsigned), address.is_null()) {
        (Ok(0), _) => Ok(&[]),
        // SAFETY: the caller guarantees it.
        (Ok(count), false) => Ok(unsafe { core::slice::from_raw_parts(address, count) }),
        _ => invalid(format!("{name} is NULL or too large, {count} bytes were needed")),
    }
}

/// Copies a result to the caller.
///
/// # Safety
/// The address is null, or that number of bytes can be written there.
unsafe fn put(result: &[u8], address: *mut u8, name: &str) -> Result<(), Failure> {
    if result.is_empty() {
        return Ok(());
    }
    if address.is_null() {
        return invalid(format!("{name} is NULL, {} bytes were needed", result.len()));
    }
    // SAFETY: the caller guarantees it.
    unsafe { core::ptr::copy_nonoverlapping(result.as_ptr(), address, result.len()) };
    Ok(())
}

/// Writes the number of bytes of reordered weights.
///
/// # Safety
/// The name is null or ends in a zero, and `bytes` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_weights_bytes(
    code: *const c_char,
    rows: u32,
    k: u32,
    bytes: *mut u64,
) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees it.
        let (code, bytes) = unsafe { (self::code(code)?, bytes.as_mut()) };
        let Some(bytes) = bytes else { return invalid("bytes is NULL, one was needed".to_owned()) };
        *bytes = weights::bytes(code, [rows, k]).or_else(|error| invalid(error.to_string()))?;
        Ok(())
    })
}

/// Puts codes, one per byte and row by row, in the order that kernels read.
///
/// # Safety
/// The name is null or ends in a zero. `codes` is null or has `rows * k` bytes, and `out` is null or has as many as
/// [`falchion_weights_bytes`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_weights_reorder(
    code: *const c_char,
    rows: u32,
    k: u32,
    codes: *const u8,
    out: *mut u8,
) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees it.
        unsafe {
            let code = self::code(code)?;
            let codes = bytes(codes, u64::from(rows) * u64::from(k), "codes")?;
            let units = weights::reorder(code, [rows, k], codes);
            put(&units.or_else(|error| invalid(error.to_string()))?, out, "out")
        }
    })
}

/// Writes the number of elements that are kept of a row, and the number of bytes of metadata.
///
/// # Safety
/// The name is null or ends in a zero; both pointers are null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_sparse_sizes(
    format: *const c_char,
    rows: u32,
    k: u32,
    kept: *mut u32,
    metadata_bytes: *mut u64,
) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees it.
        let (format, kept, of_metadata) =
            unsafe { (self::format(format)?, kept.as_mut(), metadata_bytes.as_mut()) };
        let (Some(kept), Some(of_metadata)) = (kept, of_metadata) else {
            return invalid("kept or metadata_bytes is NULL, both were needed".to_owned());
        };
        *kept = sparse::kept(format, k);
        let lines = u64::from(rows.div_ceil(sparse::ROWS));
        *of_metadata = 4 * lines * sparse::metadata_ld(format, k);
        Ok(())
    })
}

/// Compresses a matrix of which half of each chunk along K is zero.
///
/// # Safety
/// The name is null or ends in a zero. `elements` is null or has `rows * k` elements. `values` is null or has `rows` times the
/// kept elements, and `metadata` is null or has the bytes that [`falchion_sparse_sizes`] says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_sparse_compress(
    format: *const c_char,
    rows: u32,
    k: u32,
    elements: *const u8,
    values: *mut u8,
    metadata: *mut u8,
) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees it.
        unsafe {
            let format = self::format(format)?;
            let size = format.bytes() as usize;
            let count = (u64::from(rows) * u64::from(k)).saturating_mul(size as u64);
            let elements = bytes(elements, count, "elements")?;
            let word =
                |bytes: &[u8]| bytes.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
            let elements: Vec<u32> = elements.chunks(size).map(word).collect();
            let compressed = sparse::compress(format, [rows, k], &elements);
            let compressed = compressed.or_else(|error| invalid(error.to_string()))?;
            let of = |words: &[u32], size: usize| -> Vec<u8> {
                words.iter().flat_map(|word| word.to_le_bytes().into_iter().take(size)).collect()
            };
            put(&of(&compressed.values, size), values, "values")?;
            put(&of(&compressed.metadata, 4), metadata, "metadata")
        }
    })
}
