//! A kernel ready for any engine: the verified function and its PTX text.

use ptx::{Function, Verified, VerifyError};

/// One kernel: verified once, printed once.
#[derive(Clone, Debug)]
pub struct Program {
    function: Verified,
    text: String,
}

impl Program {
    /// Verifies and prints a function.
    ///
    /// # Errors
    /// Every violation the verifier found.
    pub fn new(function: Function) -> Result<Self, VerifyError> {
        let function = function.verify()?;
        let text = ptx::module_text(&function);
        Ok(Self { function, text })
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
}
