//! Every kernel by its name: those of the catalogue, those of several products, and those with a fused epilogue.

use collective::Plan;
use kernel::{AnyGemm, Program, UnknownConfig};
use ptx::VerifyError;

use super::{FusedGemm, fused_catalogue};

/// A kernel of some name.
#[allow(clippy::large_enum_variant, reason = "a list of them is short and lives briefly")]
pub enum Named {
    /// With an epilogue of alpha and beta.
    Plain(Box<dyn AnyGemm>),
    /// With a fused epilogue.
    Fused(FusedGemm),
}

impl core::fmt::Debug for Named {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("Named").field(&self.name()).finish()
    }
}

impl Named {
    /// Every kernel there is, in a fixed order.
    pub fn all() -> Vec<Self> {
        let plain = kernel::catalogue().into_iter().chain(kernel::several()).map(Self::Plain);
        plain.chain(fused_catalogue().into_iter().map(Self::Fused)).collect()
    }

    /// The kernel of a name.
    ///
    /// # Errors
    /// The name, with every name there is.
    pub fn find(name: &str) -> Result<Self, UnknownConfig> {
        let mut all = Self::all();
        match all.iter().position(|kernel| kernel.name() == name) {
            Some(i) => Ok(all.swap_remove(i)),
            None => {
                let known = all.iter().map(Self::name).collect();
                Err(UnknownConfig { name: name.to_owned(), known })
            }
        }
    }

    /// The kernel's name.
    pub fn name(&self) -> String {
        match self {
            Self::Plain(entry) => entry.name().to_owned(),
            Self::Fused(kernel) => kernel.name(),
        }
    }

    /// Name of the element type of A and B.
    pub fn element(&self) -> &'static str {
        match self {
            Self::Plain(entry) => entry.element(),
            Self::Fused(kernel) => kernel.element,
        }
    }

    /// Every number of the kernel.
    pub fn plan(&self) -> Plan {
        match self {
            Self::Plain(entry) => entry.plan(),
            Self::Fused(kernel) => kernel.plan,
        }
    }

    /// How tiles are dealt out, in words.
    pub fn schedule(&self) -> String {
        match self {
            Self::Plain(entry) => entry.schedule(),
            Self::Fused(kernel) => (kernel.schedule)(),
        }
    }

    /// Builds, verifies and prints the kernel.
    ///
    /// # Errors
    /// What the verifier finds.
    pub fn program(&self) -> Result<Program, VerifyError> {
        match self {
            Self::Plain(entry) => entry.program(),
            Self::Fused(kernel) => kernel.program(),
        }
    }
}
