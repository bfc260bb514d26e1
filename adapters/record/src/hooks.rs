//! The functions that stand before the driver's: each calls the driver's function of its name, and notes what it was called with.
#![allow(unsafe_code, reason = "takes the place of functions of the CUDA driver")]
#![allow(non_snake_case, reason = "the driver's names")]

use core::ffi::{CStr, c_char, c_int, c_void};

use crate::driver::Status;
use crate::guard;
use crate::symbols::{Slot, replacement};

/// Defines hooks: the name and the arguments of a function of the driver, and what is done, with the driver's function by a name.
macro_rules! hooks {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $ty:ty),* $(,)?) |$real:ident| $body:block)+) => {
        /// The driver's functions behind the hooks.
        mod slots {
            #![allow(non_upper_case_globals, reason = "the driver's names")]
            use crate::symbols::Slot;
            $(pub(super) static $name: Slot = Slot::new(
                // SAFETY: the text ends with its only zero.
                unsafe { core::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
            );)+
        }
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// As for the driver's function of this name.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C" fn $name($($argument: $ty),*) -> crate::driver::Status {
                let address = slots::$name.get();
                if address == 0 {
                    return crate::driver::MISSING;
                }
                // SAFETY: the types are those of the function of this name in `cuda.h`.
                let $real: unsafe extern "C" fn($($ty),*) -> crate::driver::Status = unsafe { core::mem::transmute(address) };
                // SAFETY: what the caller of this hook guarantees is what the driver's function needs.
                unsafe { $body }
            }
        )+
        /// The hook of a name, and the driver's function behind it.
        pub(super) fn named(name: &str) -> Option<(usize, &'static crate::symbols::Slot)> {
            match name {
                $(stringify!($name) => Some(($name as *const () as usize, &slots::$name)),)+
                _ => None,
            }
        }
    };
}

mod launches;
mod modules;
mod tensors;

/// The hook of a name, and the driver's function behind it.
pub(crate) fn named(name: &str) -> Option<(usize, &'static Slot)> {
    launches::named(name)
        .or_else(|| modules::named(name))
        .or_else(|| tensors::named(name))
        .or_else(|| look_ups::named(name))
}

mod look_ups {
    use super::{CStr, Status, c_char, c_int, c_void, guard, replacement};

    hooks! {
        /// Looks a function up.
        cuGetProcAddress(symbol: *const c_char, to: *mut *mut c_void, version: c_int, flags: u64) |real| {
            let status = real(symbol, to, version, flags);
            replaced(status, symbol, to, version, flags);
            status
        }
        /// Looks a function up, and says why there is none.
        cuGetProcAddress_v2(
            symbol: *const c_char,
            to: *mut *mut c_void,
            version: c_int,
            flags: u64,
            why: *mut c_int,
        ) |real| {
            let status = real(symbol, to, version, flags, why);
            replaced(status, symbol, to, version, flags);
            status
        }
    }

    /// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
    const PER_THREAD: u64 = 2;
    /// The version from which on `cuGetProcAddress` has five arguments.
    const FIVE: c_int = 12_000;

    /// Puts a hook in place of the function that was found.
    ///
    /// # Safety
    /// The arguments are those of a call of `cuGetProcAddress` that has returned.
    unsafe fn replaced(
        status: Status,
        symbol: *const c_char,
        to: *mut *mut c_void,
        version: c_int,
        flags: u64,
    ) {
        guard(|| {
            if status != 0 || symbol.is_null() || to.is_null() {
                return;
            }
            // SAFETY: both were given to the driver, which has read and written them.
            let (name, found) = unsafe { (CStr::from_ptr(symbol).to_string_lossy(), *to) };
            if found.is_null() {
                return;
            }
            let mut name = name.into_owned();
            if name == "cuGetProcAddress" && version >= FIVE {
                name.push_str("_v2");
            }
            let threaded = format!("{name}_ptsz");
            if flags & PER_THREAD != 0 && super::named(&threaded).is_some() {
                name = threaded;
            }
            // SAFETY: the driver has written there.
            unsafe { *to = replacement(&name, found as usize) as *mut c_void };
        });
    }
}
