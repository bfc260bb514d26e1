//! What the program has loaded: images by module and library, names by function.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use crate::driver;
use crate::image::Image;

/// A function that may be launched.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: Arc<str>,
    /// Where it was loaded from, if that was seen.
    pub(crate) image: Option<Arc<Image>>,
    /// Whether the handle is that of a library's kernel.
    pub(crate) is_kernel: bool,
    /// The module or library.
    owner: usize,
}

/// Everything that was loaded.
#[derive(Debug, Default)]
pub(crate) struct Known {
    modules: HashMap<usize, Arc<Image>>,
    libraries: HashMap<usize, Arc<Image>>,
    functions: HashMap<usize, Function>,
}

pub(crate) fn known() -> MutexGuard<'static, Known> {
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    fn images(&mut self, is_library: bool) -> &mut HashMap<usize, Arc<Image>> {
        if is_library { &mut self.libraries } else { &mut self.modules }
    }

    pub(crate) fn loaded(&mut self, handle: usize, image: Image, is_library: bool) {
        self.images(is_library).insert(handle, Arc::new(image));
    }

    /// Something was unloaded: its handles may be given again.
    pub(crate) fn forget(&mut self, handle: usize, is_library: bool) {
        self.images(is_library).remove(&handle);
        self.functions.retain(|_, function| function.owner != handle);
    }

    pub(crate) fn function(&mut self, handle: usize, name: &str, owner: usize, is_kernel: bool) {
        let image = self.images(is_kernel).get(&owner).cloned();
        self.functions.insert(handle, Function { name: name.into(), image, is_kernel, owner });
    }

    /// A kernel of a library has a function.
    pub(crate) fn function_of(&mut self, function: usize, kernel: usize) {
        if let Some(found) = self.functions.get(&kernel).cloned() {
            self.functions.insert(function, Function { is_kernel: false, ..found });
        }
    }

    /// A library has a module.
    pub(crate) fn module_of(&mut self, module: usize, library: usize) {
        if let Some(image) = self.libraries.get(&library).cloned() {
            self.modules.insert(module, image);
        }
    }

    /// The function of a handle. What was not seen, the driver is asked for.
    pub(crate) fn find(&mut self, handle: usize) -> Option<Function> {
        if let Some(function) = self.functions.get(&handle) {
            return Some(function.clone());
        }
        let (name, is_kernel) = driver::name(handle)?;
        let owner = if is_kernel { None } else { driver::module(handle) };
        let image = owner.and_then(|owner| self.modules.get(&owner).cloned());
        let function = Function { name: name.into(), image, is_kernel, owner: owner.unwrap_or(0) };
        self.functions.insert(handle, function.clone());
        Some(function)
    }
}
