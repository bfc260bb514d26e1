//! Default kernels for fused epilogues of formats that the selection does not rank.

use falchion::verify::product::formats;
use falchion::verify::{Format, Formula};
use kernel::{AnyGemm, GemmProblem};

use crate::{Failure, catalogue};

/// What differs from a format's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Said<'a> {
    /// B's format.
    pub(crate) dtype_b: Option<&'a str>,
    /// D's format.
    pub(crate) out: Option<&'a str>,
    /// The fused epilogue.
    pub(crate) epilogue: Option<Formula>,
}

/// The default kernel of such a format. If rows of an operand or of D are no multiples of 16 bytes, its loads
/// or stores take any address.
pub(crate) fn unranked(
    format: Format,
    problem: GemmProblem,
    Said { dtype_b, out, epilogue }: Said<'_>,
) -> Result<AnyGemm, Failure> {
    let word = |key, value: Option<&str>| value.map_or_else(String::new, |value| format!(" {key}={value}"));
    let epilogue = epilogue.map(Formula::name);
    let said = [word("dtype-b", dtype_b), word("out", out), word("epilogue", epilogue)].concat();
    let spec = |more: &str| format!("dtype={}{said}{more}", format.name());
    let found = catalogue::find(&spec(""))?;
    let [_, _, of_d] = formats(&found);
    let whole = |extent: u32, of: Format| (u64::from(extent) * u64::from(of.bytes())).is_multiple_of(16);
    let mut more = String::new();
    if !whole(problem.k, format) {
        // Threads that copy need registers. The consumers of larger tiles do not leave enough.
        more += &format!(" tile=128x128x{} load=copy", found.plan().mainloop.tile[2]);
    }
    if !whole(problem.n, of_d) {
        more += " store=direct";
    }
    if more.is_empty() { Ok(found) } else { catalogue::find(&spec(&more)) }
}
