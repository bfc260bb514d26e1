//! The arguments that select a kernel: a name, or a spec.

use kernel::{AnyGemm, KernelSpec};

use crate::{Failure, catalogue};

/// Parses a spec.
pub(crate) fn spec(text: &str) -> Result<KernelSpec, String> {
    text.parse().map_err(|error: kernel::SpecError| error.to_string())
}

/// A kernel by its name or by its spec.
#[derive(clap::Args, Debug)]
pub(crate) struct KernelArgs {
    /// Kernel name from `falchion configs`.
    #[arg(required_unless_present = "spec", conflicts_with = "spec")]
    name: Option<String>,
    /// Kernel as `key=value` words. Words that are left out have the defaults that `falchion plan --spec ""`
    /// prints.
    #[arg(long, value_name = "WORDS", value_parser = spec)]
    spec: Option<KernelSpec>,
}

impl KernelArgs {
    /// The name, or the spec's text, which is valid in place of a name.
    pub(crate) fn name(&self) -> String {
        let spec = || self.spec.map(|spec| spec.to_string()).unwrap_or_default();
        self.name.clone().unwrap_or_else(spec)
    }

    /// The kernel.
    pub(crate) fn find(&self) -> Result<AnyGemm, Failure> {
        catalogue::find(&self.name())
    }
}
