//! Number formats and scaled blocks on the command line.

use collective::Format;
use kernel::{KernelSpec, Types};

use crate::{Failure, catalogue};

/// What is multiplied and stored.
#[derive(clap::Args, Debug)]
pub(crate) struct TypeArgs {
    /// Number format of A and B, as `dtype=` of a spec names it [default: bf16].
    #[arg(long, value_parser = operands())]
    dtype: Option<String>,
    /// Number format of B, where it differs from A's: another 8-bit one.
    #[arg(long, value_parser = operands())]
    dtype_b: Option<String>,
    /// Number format of D [default: that of A and B; bf16 for 8-bit floats, s32 for integers, f32 for tf32].
    #[arg(long, value_parser = Format::ALL.map(Format::name))]
    out_dtype: Option<String>,
    /// Blocks of A (rows by K) that have a scale each.
    #[arg(long, requires = "scale_b", value_parser = KINDS)]
    scale_a: Option<String>,
    /// Blocks of B (columns by K) that have a scale each.
    #[arg(long, requires = "scale_a", value_parser = KINDS)]
    scale_b: Option<String>,
}

/// The names of formats that some instruction multiplies.
pub(crate) fn operands() -> Vec<&'static str> {
    KernelSpec::operands().map(Format::name).collect()
}

/// Blocks that have a scale.
const KINDS: [&str; 2] = ["1x128", "128x128"];

/// The types of an A, of the B and the D that are named, if they are, and of blocks of so many rows that have a scale.
pub(crate) fn named(a: Format, b: Option<&str>, d: Option<&str>, scaled: [u32; 2]) -> Result<Types, Failure> {
    let types = Types::of(a).scaled(scaled);
    let types = b.and_then(Format::named).map_or(types, |b| types.with_b(b));
    let types = d.and_then(Format::named).map_or(types, |d| types.stored(d));
    catalogue::possible(types)?;
    Ok(types)
}

impl TypeArgs {
    /// The types that are asked for; `None` where nothing is said.
    pub(crate) fn given(&self) -> Result<Option<Types>, Failure> {
        let Self { dtype, dtype_b, out_dtype, scale_a, scale_b } = self;
        let all = [dtype, dtype_b, out_dtype, scale_a, scale_b];
        if all.into_iter().all(Option::is_none) { Ok(None) } else { self.types().map(Some) }
    }

    /// The types that are asked for.
    pub(crate) fn types(&self) -> Result<Types, Failure> {
        let rows = |kind: &Option<String>| match kind.as_deref() {
            None => 0,
            Some("1x128") => 1,
            Some(_) => 128,
        };
        let a = self.dtype.as_deref().and_then(Format::named).unwrap_or(Format::Bf16);
        let scaled = [rows(&self.scale_a), rows(&self.scale_b)];
        named(a, self.dtype_b.as_deref(), self.out_dtype.as_deref(), scaled)
    }

    /// Fails where anything but 16-bit floats is asked for.
    pub(crate) fn sixteen(&self, what: &str) -> Result<Format, Failure> {
        let types = self.types()?;
        if [Format::Bf16, Format::F16].map(Types::of).contains(&types) {
            return Ok(types.a);
        }
        Err(Failure::usage(format!("{what} is timed for bf16 and f16, and {types} is asked for")))
    }
}
