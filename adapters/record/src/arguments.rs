//! Arguments of a launch: the bytes of each parameter, and the addresses and tensor maps in them.
#![allow(unsafe_code, reason = "reads the values that the program gives to a launch")]

use core::ffi::c_void;

use crate::driver;
use crate::entry::Parameter;
use crate::known::Function;
use crate::maps::{Map, maps};
use crate::memory::Memory;

/// An argument.
#[derive(Debug)]
pub(crate) struct Value {
    pub(crate) bytes: Vec<u8>,
    /// Its parameter, where the PTX is known.
    pub(crate) parameter: Option<Parameter>,
    pub(crate) inside: Inside,
}

/// What bytes hold that is no number.
#[derive(Debug, Default)]
pub(crate) struct Inside {
    /// Offsets and addresses.
    pub(crate) pointers: Vec<(usize, u64)>,
    /// Offsets and tensor maps.
    pub(crate) maps: Vec<(usize, Map)>,
}

/// Offset and bytes of each parameter.
pub(crate) fn layout(
    handle: usize,
    function: &Function,
    listed: Option<&[Parameter]>,
) -> Option<Vec<(usize, usize)>> {
    let asked = |number| driver::parameter(handle, function.is_kernel, number);
    match asked(0) {
        None => listed.map(|all| all.iter().map(|one| (one.offset, one.bytes)).collect()),
        Some(first) => Some(core::iter::once(first).chain((1..).map_while(asked)).collect()),
    }
}

/// The bytes of each argument.
///
/// # Safety
/// The pointers must be those of a launch of a kernel with parameters of this layout.
pub(crate) unsafe fn values(
    layout: &[(usize, usize)],
    values: *const *mut c_void,
    extra: *const *mut c_void,
) -> Option<Vec<Vec<u8>>> {
    // SAFETY: a launch has a pointer for each parameter, or one to the bytes of all.
    unsafe {
        if !values.is_null() {
            let one = |(number, &(_, bytes)): (usize, &(usize, usize))| {
                core::slice::from_raw_parts((*values.add(number)).cast::<u8>(), bytes).to_vec()
            };
            return Some(layout.iter().enumerate().map(one).collect());
        }
        if layout.is_empty() {
            return Some(Vec::new());
        }
        let all = packed(extra)?;
        layout.iter().map(|&(offset, bytes)| all.get(offset..offset + bytes).map(<[u8]>::to_vec)).collect()
    }
}

/// `CU_LAUNCH_PARAM_BUFFER_POINTER` and `CU_LAUNCH_PARAM_BUFFER_SIZE`.
const POINTER: usize = 1;
const SIZE: usize = 2;

/// The bytes of all parameters.
///
/// # Safety
/// The list must be that of a launch.
unsafe fn packed<'a>(mut extra: *const *mut c_void) -> Option<&'a [u8]> {
    let (mut start, mut bytes) = (None, None);
    // SAFETY: the list ends with 0, and a value follows each key.
    unsafe {
        while !extra.is_null() && !(*extra).is_null() {
            let value = *extra.add(1);
            match *extra as usize {
                POINTER => start = Some(value.cast::<u8>()),
                SIZE => bytes = Some(*value.cast::<usize>()),
                _ => return None,
            }
            extra = extra.add(2);
        }
        Some(core::slice::from_raw_parts(start?, bytes?))
    }
}

/// Finds tensor maps and addresses in bytes, and notes the memory that they are in.
pub(crate) fn inside(bytes: &[u8], memory: &mut Memory<'_>) -> Inside {
    let mut inside = Inside::default();
    let known = maps();
    let mut at = 0;
    while at < bytes.len() {
        let map = bytes[at..].first_chunk::<128>().filter(|_| at.is_multiple_of(64));
        if let Some(map) = map.and_then(|encoded| known.get(encoded)) {
            memory.note(map.address);
            inside.maps.push((at, map.clone()));
            at += 128;
            continue;
        }
        if let Some(word) = bytes[at..].first_chunk().map(|&word| u64::from_le_bytes(word))
            && memory.note(word)
        {
            inside.pointers.push((at, word));
        }
        at += 8;
    }
    inside
}
