//! A kernel ready for any engine: the verified function and its PTX text.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ptx::{Builder, Entry, Function, Verified, VerifyError};

use crate::kernel::{Kernel, declare};

/// One kernel's program: verified once, printed once. [`AnyGemm::program`](crate::AnyGemm::program) builds
/// it.
#[derive(Clone, Debug)]
pub struct Program {
    function: Arc<Verified>,
    text: Arc<str>,
    #[cfg_attr(not(feature = "driver"), expect(dead_code, reason = "the driver alone asks"))]
    digest: u64,
    scheduler: Option<String>,
    #[cfg_attr(not(feature = "driver"), expect(dead_code, reason = "the driver alone asks"))]
    described: bool,
}

impl Program {
    /// Verifies and prints a function.
    ///
    /// # Errors
    /// All faults that the verifier found.
    pub fn new(function: Function) -> Result<Self, VerifyError> {
        let function = Arc::new(function.verify()?);
        let text = ptx::module_text(&function).into();
        Ok(Self { function, text, digest: 0, scheduler: None, described: false }.hashed())
    }

    /// The same program with the text that it was read from: that is what a driver compiles. Both must have the same entry and parameters.
    #[must_use]
    pub fn with_text(self, text: &str) -> Self {
        Self { text: text.into(), ..self }.hashed()
    }

    fn hashed(self) -> Self {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        Self { digest: hasher.finish(), ..self }
    }

    /// The program of a kernel whose interface [declares](crate::declare) its parameters, verified and printed.
    ///
    /// # Errors
    /// All faults that the verifier found.
    pub fn of<C: Default>(
        kernel: &(impl Kernel<C> + ?Sized),
        entry: Entry,
        emit: impl FnOnce(&Builder),
    ) -> Result<Self, VerifyError> {
        Self::new(Function::build(entry, |f| {
            declare(kernel, f);
            emit(f);
        }))
    }

    /// Adds the name of the kernel's scheduler, and whether records in device memory hold the addresses of
    /// its matrices.
    pub(crate) fn of_kernel(self, scheduler: String, described: bool) -> Self {
        Self { scheduler: Some(scheduler), described, ..self }
    }

    /// Whether the program reads addresses from records in device memory: `groups` records at the address in
    /// its parameter `records`.
    #[cfg(feature = "driver")]
    pub(crate) fn is_described(&self) -> bool {
        self.described
    }

    /// The name of the kernel's scheduler, if this is the program of a kernel configuration.
    pub fn scheduler(&self) -> Option<&str> {
        self.scheduler.as_deref()
    }

    /// The verified function.
    pub fn function(&self) -> &Verified {
        &self.function
    }

    /// The name of the program's entry.
    pub fn name(&self) -> &str {
        &self.function.name
    }

    /// The PTX module as text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The PTX text, shared by all clones of the program.
    #[cfg(feature = "driver")]
    pub(crate) fn shared_text(&self) -> &Arc<str> {
        &self.text
    }

    /// A hash of the text, to look programs up by. Equal texts have equal digests.
    #[cfg(feature = "driver")]
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
}
