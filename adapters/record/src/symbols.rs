//! Who finds which function: the program's `dlsym` is answered here, so that it finds this library's functions in place of the driver's.
#![allow(unsafe_code, reason = "looks functions up, and takes the place of the loader's own look-up")]

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::settings::settings;
use crate::{counts, guard, hooks};

/// The driver's function behind a hook: an address, once it is known.
#[derive(Debug)]
pub(crate) struct Slot {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Slot {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(0) }
    }

    /// The address of the driver's function; 0 if the driver has none of this name.
    pub(crate) fn get(&self) -> usize {
        let known = self.address.load(Ordering::Acquire);
        if known != 0 {
            return known;
        }
        let found = in_driver(self.name);
        self.set(found);
        found
    }

    /// Notes the address, unless one is known.
    fn set(&self, address: usize) {
        let _ = self.address.compare_exchange(0, address, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// The loader's `dlsym`.
type LookUp = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The address of the loader's `dlsym`. It is asked for by its version: by its name, this library's would be found.
fn own() -> usize {
    static OWN: AtomicUsize = AtomicUsize::new(0);
    let known = OWN.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    for version in [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17", c"GLIBC_2.0"] {
        // SAFETY: the three are texts or a handle that the loader knows.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) } as usize;
        if found != 0 {
            OWN.store(found, Ordering::Relaxed);
            return found;
        }
    }
    nothing as *const () as usize
}

/// In place of a `dlsym` that is not there.
unsafe extern "C" fn nothing(_: *mut c_void, _: *const c_char) -> *mut c_void {
    core::ptr::null_mut()
}

/// Looks a name up as the loader does.
fn look_up(handle: *mut c_void, name: &CStr) -> usize {
    // SAFETY: the address is that of the loader's `dlsym`, or of a function of its type.
    unsafe { core::mem::transmute::<usize, LookUp>(own())(handle, name.as_ptr()) as usize }
}

/// A function of the driver, past all hooks; 0 if there is none.
pub(crate) fn in_driver(name: &CStr) -> usize {
    static HANDLE: AtomicUsize = AtomicUsize::new(0);
    let mut handle = HANDLE.load(Ordering::Relaxed);
    if handle == 0 {
        // SAFETY: the driver's initialiser may run on any thread, and what has a hook called wants the driver.
        handle = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) } as usize;
        HANDLE.store(handle, Ordering::Relaxed);
    }
    if handle == 0 { 0 } else { look_up(handle as *mut c_void, name) }
}

/// What the program gets in place of a function that the driver has given: the hook of this name, if there is one.
pub(crate) fn replacement(name: &str, found: usize) -> usize {
    match hooks::named(name) {
        Some((hook, slot)) if settings().is_some() => {
            counts::watch();
            // A look-up in everything that is loaded finds the hook itself.
            if found != hook {
                slot.set(found);
            }
            if slot.get() == 0 { 0 } else { hook }
        }
        _ => found,
    }
}

/// `dlsym` of a name that may have a hook.
unsafe extern "C" fn hooked(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller of `dlsym` gives a text.
    let name = unsafe { CStr::from_ptr(name) };
    let found = look_up(handle, name);
    if found == 0 {
        return core::ptr::null_mut();
    }
    let text = name.to_str().unwrap_or_default();
    guard(|| replacement(text, found)).unwrap_or(found) as *mut c_void
}

/// Which function answers a call of `dlsym`: the loader's own, except for names of the driver's functions. "The next one" is counted
/// from whoever asks, so that the loader itself must be jumped to.
extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> usize {
    // SAFETY: the caller of `dlsym` gives a text, of which the first two bytes are read as far as they go.
    let is_cuda = !name.is_null() && unsafe { *name == b'c' as c_char && *name.add(1) == b'u' as c_char };
    if is_cuda && handle != libc::RTLD_NEXT { hooked as *const () as usize } else { own() }
}

/// The program's `dlsym`: asks `choose`, and jumps to what answers, as if that had been called.
///
/// # Safety
/// As for the loader's `dlsym`.
#[cfg(target_arch = "x86_64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        choose = sym choose,
    )
}

/// The program's `dlsym`: asks `choose`, and jumps to what answers, as if that had been called.
///
/// # Safety
/// As for the loader's `dlsym`.
#[cfg(target_arch = "aarch64")]
#[cfg_attr(not(test), unsafe(no_mangle))]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {choose}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        choose = sym choose,
    )
}
