//! The epilogue of a formula.

use super::{AnyEpilogue, StoreSpec, Treed};
use crate::element::Format;
use crate::formula::Formula;
use crate::plan::EpilogueSpec;
use crate::tree::Arithmetic;

impl Formula {
    /// What the epilogue asks of the plan, for operands of this format.
    ///
    /// # Errors
    /// A sentence, if the tree cannot be computed of such operands, or stored in this way.
    pub const fn spec(self, operand: Format, store: StoreSpec) -> Result<EpilogueSpec, &'static str> {
        let of = self.lowered(operand);
        let (whole, double) = match of.arithmetic() {
            Arithmetic::S32 => (true, false),
            Arithmetic::F64 => (false, true),
            Arithmetic::F32 => (false, false),
        };
        if whole && (operand.is_float() || operand.bits() > 8) {
            return Err("the formula is s32(..), computed in integers: operands of s8 or u8 were needed");
        }
        if whole != matches!(store.format, Format::S32) || double != matches!(store.format, Format::F64) {
            return Err(
                "a D of s32 is computed in integers, and is what a formula says: s32(..); a D of f64 is for operands of f64",
            );
        }
        match of.checked() {
            Ok(traits) => super::tree::spec(traits, store),
            Err(sentence) => Err(sentence),
        }
    }

    /// The epilogue, for operands of this format.
    pub fn epilogue(self, operand: Format, store: StoreSpec) -> AnyEpilogue {
        Treed::lowered(self.lowered(operand), store).into()
    }
}
