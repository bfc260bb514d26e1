//! Structures of C, read by the tables of their fields.

use core::ffi::{CStr, c_char, c_void};

use falchion::kernel::Buffer;
use falchion_core::{FieldKind, Structure, Value};

use crate::{Failure, INVALID, invalid};

/// The values of a structure's fields, in their order.
pub(crate) struct Values<'a, T: 'static> {
    structure: &'static Structure<T>,
    pub(crate) all: Vec<Value<'a>>,
}

/// Most bytes of a structure that this library knows.
const MOST: usize = 512;

// The kinds of fields have the sizes that they have on machines of 64 bits.
const _: () = assert!(size_of::<usize>() == 8 && size_of::<*const c_void>() == 8);

impl<'a, T> Values<'a, T> {
    /// A structure of this size: fields that it does not have are 0. It may be longer than this library's, if it says nothing there, and it
    /// may be the shorter one of an earlier version.
    ///
    /// # Safety
    /// `size` bytes can be read at the address, and the texts are null or end in a zero and live as long as the values.
    pub(crate) unsafe fn read(
        structure: &'static Structure<T>,
        address: *const c_void,
        size: usize,
    ) -> Result<Self, Failure> {
        let (fields, own) = structure.laid_out();
        let name = structure.name;
        if size < structure.offset(structure.later) || size > 1 << 16 {
            return invalid(format!("size is {size}, sizeof({name}), {own}, was needed"));
        }
        let bytes = address.cast::<u8>();
        if size > own {
            // SAFETY: the caller guarantees that number of bytes.
            let rest = unsafe { core::slice::from_raw_parts(bytes.add(own), size - own) };
            if rest.iter().any(|&byte| byte != 0) {
                return invalid(format!(
                    "size is {size} and this library knows the first {own} bytes, zeros were needed after them"
                ));
            }
        }
        let mut whole = [0u64; MOST / 8];
        let known = size.min(own).min(MOST);
        // SAFETY: no more bytes are copied than either side has.
        unsafe { core::ptr::copy_nonoverlapping(bytes, whole.as_mut_ptr().cast(), known) };
        let whole = whole.as_ptr().cast::<u8>();
        // SAFETY: a field is inside of the structure, which is inside of the copy; every number is a value of it.
        let all = fields.map(|(offset, field)| unsafe { value(field.kind, whole.add(offset), field.c) });
        Ok(Self { structure, all: all.collect::<Result<_, _>>()? })
    }

    /// A structure that begins with its size.
    ///
    /// # Safety
    /// The address is null, or that of a `usize` and of as many bytes as it says.
    pub(crate) unsafe fn sized(
        structure: &'static Structure<T>,
        address: *const c_void,
    ) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees it.
        unsafe {
            let size = *crate::given(address.cast::<usize>(), "desc")?;
            Self::read(structure, address, size)
        }
    }

    /// The arguments of a run, of a size that the description said; 0 for their first version.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    pub(crate) unsafe fn given(
        structure: &'static Structure<T>,
        address: *const c_void,
        size: usize,
    ) -> Result<Self, Failure> {
        let size = if size == 0 { structure.offset(structure.later) } else { size };
        // SAFETY: the caller guarantees it.
        unsafe { Self::read(structure, address, size) }
    }

    /// The value of a field that is this adapter's own.
    fn own(&self, name: &str) -> Value<'a> {
        let at = self.structure.fields.iter().position(|field| field.c == name);
        at.map_or(Value::Nothing, |at| self.all[at])
    }

    /// A number.
    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.own(name) {
            Value::Whole(number) | Value::Address(number) => number,
            _ => 0,
        }
    }

    /// A text, if it is given.
    pub(crate) fn text(&self, name: &str) -> Option<&'a str> {
        if let Value::Text(text) = self.own(name) { Some(text) } else { None }
    }

    /// The workspace.
    pub(crate) fn workspace(&self) -> Result<Option<Buffer>, Failure> {
        match (self.number("workspace"), self.number("workspace_bytes")) {
            (0, 0) => Ok(None),
            (0, bytes) => {
                invalid(format!("workspace is NULL and workspace_bytes {bytes}, an address was needed"))
            }
            (address, bytes) => Ok(Some(Buffer::new(address, bytes))),
        }
    }
}

/// The value of a field at an address.
///
/// # Safety
/// The bytes of the kind can be read there. A text is null or ends in a zero, and lives as long as the value.
unsafe fn value<'a>(kind: FieldKind, at: *const u8, name: &str) -> Result<Value<'a>, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe {
        Ok(match kind {
            FieldKind::Whole => Value::Whole(at.cast::<u32>().read_unaligned().into()),
            FieldKind::Long => Value::Whole(at.cast::<u64>().read_unaligned()),
            FieldKind::Signed => Value::Signed(at.cast::<i32>().read_unaligned()),
            FieldKind::Single => Value::Real(at.cast::<f32>().read_unaligned().into()),
            FieldKind::Double => Value::Real(at.cast::<f64>().read_unaligned()),
            FieldKind::Address => {
                Value::Address(at.cast::<*const c_void>().read_unaligned().expose_provenance() as u64)
            }
            FieldKind::Text => {
                let text = words(at.cast::<*const c_char>().read_unaligned(), name)?;
                text.map_or(Value::Nothing, Value::Text)
            }
        })
    }
}

/// A C string; `None` for null.
///
/// # Safety
/// The pointer is null, or its string ends in a zero.
pub(crate) unsafe fn words<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees it.
    let found = unsafe { CStr::from_ptr(pointer) };
    found.to_str().map(Some).map_err(|_| Failure(INVALID, format!("{name} is {found:?}, UTF-8 was needed")))
}
