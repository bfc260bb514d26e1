//! What a caller may give in addition to A, B and D, and whether the described GEMM uses it: what is given and not used is
//! refused by every adapter, in the caller's own names.

use core::fmt;

use falchion::kernel::{GroupedProblem, Request, Types};

use crate::refusal::Refusal;
use crate::slots::Slot;

/// What a caller may give in addition to A, B and D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionalArgument {
    /// A, B, C and D themselves, where each GEMM names its own.
    Matrices,
    /// C.
    C,
    /// Block scales of A (0) or B (1).
    Scales(usize),
    /// Scales of groups of weights.
    GroupScales,
    /// Zero points of groups of weights.
    GroupZeros,
    /// Metadata of a sparse operand.
    Metadata,
    /// Where groups begin, how many rows they use, or records.
    Groups,
    /// Arguments of an epilogue's text.
    Inputs,
}

impl OptionalArgument {
    /// Why a described GEMM does not use it; `None` if it does. `slots` are those of the epilogue's text.
    pub fn unused(self, request: &Request<'_>, slots: &[Slot]) -> Option<&'static str> {
        let types: &Types = &request.types;
        let weights = types.weights.iter().flatten();
        let products = request.call.products;
        let (used, why) = match self {
            Self::Matrices => (!matches!(products, GroupedProblem::PointerArray { .. }), RECORDS),
            Self::C if matches!(products, GroupedProblem::PointerArray { .. }) => (false, RECORDS),
            Self::C => {
                let named = request.fusion.is_none() || slots.iter().any(|slot| slot.name == "c");
                (named, "the epilogue has no c")
            }
            Self::Scales(i) => (types.scaled[i] > 0, "the types name no scales of this operand's blocks"),
            Self::GroupScales => {
                (weights.clone().any(|of| of.group > 0), "the types name no weights in groups with scales")
            }
            Self::GroupZeros => {
                (weights.clone().any(|of| of.zeros), "the types name no weights with zero points")
            }
            Self::Metadata => (types.has_sparse(), "the types name no sparse operand"),
            Self::Groups => {
                let one = matches!(products, GroupedProblem::One | GroupedProblem::Batched { .. });
                (!one, "the GEMMs are not in groups")
            }
            Self::Inputs => (request.fusion.is_some(), "the epilogue is no text with arguments"),
        };
        (!used).then_some(why)
    }
}

const RECORDS: &str = "the records of the pointer arrays say where the matrices are";

/// Refuses a field that is given and not used: its name, its value, why, and what was needed.
///
/// # Errors
/// It is given, and there is a reason why it is not used.
pub fn refuse_unused(
    field: &str,
    value: impl fmt::Display,
    is_given: bool,
    why: Option<&str>,
    needed: &str,
) -> Result<(), Refusal> {
    match why.filter(|_| is_given) {
        None => Ok(()),
        Some(why) => Err(Refusal::Invalid(format!("{field} is {value}, and {why}: {needed} was needed"))),
    }
}
