//! A kernel ready for any engine: the verified function and its PTX text.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use ptx::{Function, Verified, VerifyError};

/// One kernel: verified once, printed once.
#[derive(Clone, Debug)]
pub struct Program {
    function: Verified,
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
    /// Every violation the verifier found.
    pub fn new(function: Function) -> Result<Self, VerifyError> {
        let function = function.verify()?;
        let text: Arc<str> = ptx::module_text(&function).into();
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Ok(Self { function, text, digest: hasher.finish(), scheduler: None, described: false })
    }

    /// The same with the name of the scheduler that deals out its tiles, and whether records in device memory name its
    /// matrices.
    pub(crate) fn of_kernel(self, scheduler: String, described: bool) -> Self {
        Self { scheduler: Some(scheduler), described, ..self }
    }

    /// Whether it takes addresses from records in device memory, the parameter `records`, as many as `groups` says.
    #[cfg(feature = "driver")]
    pub(crate) fn is_described(&self) -> bool {
        self.described
    }

    /// The name of the scheduler that deals out its tiles, where it is the kernel of a configuration.
    pub fn scheduler(&self) -> Option<&str> {
        self.scheduler.as_deref()
    }

    /// The program itself.
    pub fn function(&self) -> &Verified {
        &self.function
    }

    /// The entry's name.
    pub fn name(&self) -> &str {
        &self.function.name
    }

    /// The PTX module.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The PTX module, shared by all copies of the program.
    #[cfg(feature = "driver")]
    pub(crate) fn shared_text(&self) -> &Arc<str> {
        &self.text
    }

    /// A number by which programs are found: of equal texts the same one, of others as good as never.
    #[cfg(feature = "driver")]
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
}
