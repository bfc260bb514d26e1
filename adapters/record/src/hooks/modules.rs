//! Modules, libraries and their functions: what was loaded is noted by the handle that the driver gave.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::driver::Status;
use crate::guard;
use crate::image::Image;
use crate::known::known;

hooks! {
    /// Loads a module of a file.
    cuModuleLoad(module: *mut usize, file: *const c_char) |real| {
        let status = real(module, file);
        of_file(status, module, file, false);
        status
    }
    /// Loads a module.
    cuModuleLoadData(module: *mut usize, image: *const c_void) |real| {
        let status = real(module, image);
        of_memory(status, module, image, false);
        status
    }
    /// Loads a module, with options.
    cuModuleLoadDataEx(
        module: *mut usize,
        image: *const c_void,
        count: c_uint,
        options: *mut c_int,
        values: *mut *mut c_void,
    ) |real| {
        let status = real(module, image, count, options, values);
        of_memory(status, module, image, false);
        status
    }
    /// Loads a module of a fat binary.
    cuModuleLoadFatBinary(module: *mut usize, image: *const c_void) |real| {
        let status = real(module, image);
        of_memory(status, module, image, false);
        status
    }
    /// Loads a library.
    cuLibraryLoadData(
        library: *mut usize,
        image: *const c_void,
        options: *mut c_int,
        values: *mut *mut c_void,
        count: c_uint,
        own_options: *mut c_int,
        own_values: *mut *mut c_void,
        own_count: c_uint,
    ) |real| {
        let status = real(library, image, options, values, count, own_options, own_values, own_count);
        of_memory(status, library, image, true);
        status
    }
    /// Loads a library of a file.
    cuLibraryLoadFromFile(
        library: *mut usize,
        file: *const c_char,
        options: *mut c_int,
        values: *mut *mut c_void,
        count: c_uint,
        own_options: *mut c_int,
        own_values: *mut *mut c_void,
        own_count: c_uint,
    ) |real| {
        let status = real(library, file, options, values, count, own_options, own_values, own_count);
        of_file(status, library, file, true);
        status
    }
    /// Unloads a module.
    cuModuleUnload(module: usize) |real| {
        guard(|| known().forget(module, false));
        real(module)
    }
    /// Unloads a library.
    cuLibraryUnload(library: usize) |real| {
        guard(|| known().forget(library, true));
        real(library)
    }
    /// Finds a function of a module.
    cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) |real| {
        let status = real(function, module, name);
        if status == 0 {
            guard(|| known().function(*function, &text(name), module, false));
        }
        status
    }
    /// Finds a kernel of a library.
    cuLibraryGetKernel(kernel: *mut usize, library: usize, name: *const c_char) |real| {
        let status = real(kernel, library, name);
        if status == 0 {
            guard(|| known().function(*kernel, &text(name), library, true));
        }
        status
    }
    /// The function of a kernel.
    cuKernelGetFunction(function: *mut usize, kernel: usize) |real| {
        let status = real(function, kernel);
        if status == 0 {
            guard(|| known().function_of(*function, kernel));
        }
        status
    }
    /// The module of a library.
    cuLibraryGetModule(module: *mut usize, library: usize) |real| {
        let status = real(module, library);
        if status == 0 {
            guard(|| known().module_of(*module, library));
        }
        status
    }
}

/// Notes what was loaded from memory.
///
/// # Safety
/// The arguments are those of a call that has returned.
unsafe fn of_memory(status: Status, handle: *const usize, image: *const c_void, is_library: bool) {
    if status == 0 {
        // SAFETY: the driver has written the handle, and has read the image.
        guard(|| unsafe {
            let loaded = Image::of_memory(image.cast());
            known().loaded(*handle, loaded, is_library);
        });
    }
}

/// Notes what was loaded from a file.
///
/// # Safety
/// As for [`of_memory`].
unsafe fn of_file(status: Status, handle: *const usize, file: *const c_char, is_library: bool) {
    if status == 0 {
        // SAFETY: the driver has written the handle, and has read the text.
        guard(|| unsafe {
            let loaded = Image::of_file(text(file).as_ref());
            known().loaded(*handle, loaded, is_library);
        });
    }
}

/// A text of C.
///
/// # Safety
/// It must be one.
unsafe fn text(words: *const c_char) -> String {
    // SAFETY: the caller guarantees it.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}
