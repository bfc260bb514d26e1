//! Changes of tensor maps.

use super::super::error::Read;
use super::Translator;
use super::form::Form;
use super::memory::SCOPES;
use crate::abi::{TensorElement, TensorSwizzle};
use crate::inst::{Inst, MapField, MapInst, Operand};
use crate::types::Space;

impl<'t> Translator<'_, 't> {
    /// `tensormap.{replace|cp_fenceproxy}`.
    pub(super) fn tensormap(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        if form.first("cp_fenceproxy") {
            form.ignore(&["global", "shared::cta", "tensormap::generic", "release", "sync", "aligned"]);
            let scope = form.need("a scope", &SCOPES)?;
            let (dst, src) = (self.at(form, Space::Global)?, self.at(form, Space::Shared)?);
            if form.number("the size of a tensor map")? != 128 {
                return form.wrong("a tensor map has 128 B");
            }
            self.emit(Inst::TensorMap(MapInst::Publish { dst, src, scope }));
            return Ok(());
        }
        if !form.first("replace") {
            return form.wrong("`.replace` or `.cp_fenceproxy` was needed");
        }
        form.ignore(&["tile", "b1024"]);
        form.last_type()?;
        let spaces = [("global", Space::Global), ("shared::cta", Space::Shared), ("shared", Space::Shared)];
        let space = form.need("a state space", &spaces)?;
        let name = form.last_word()?;
        let map = self.at(form, space)?;
        let field = match name {
            "global_address" => MapField::Address,
            "rank" => MapField::Rank,
            "box_dim" => MapField::Box(form.count_of("a dimension")?),
            "global_dim" => MapField::Extent(form.count_of("a dimension")?),
            "global_stride" => MapField::Stride(form.count_of("a dimension")?.saturating_add(1)),
            "element_stride" => MapField::ElementStride(form.count_of("a dimension")?),
            _ => return self.named_field(name, (space, map), form),
        };
        let value = self.src(form, field.ty())?;
        self.emit(Inst::TensorMap(MapInst::Replace { space, map, field, value }));
        Ok(())
    }

    /// A field whose new value is a number with a meaning.
    fn named_field(
        &mut self,
        name: &str,
        (space, map): (Space, Operand),
        form: &mut Form<'_, 't>,
    ) -> Read<()> {
        let code = form.count_of("a code")?;
        let field = match name {
            "elemtype" => TensorElement::ALL
                .into_iter()
                .map(MapField::Element)
                .find(|field| field.named() == Some(code)),
            "swizzle_mode" => {
                let all = [TensorSwizzle::None, TensorSwizzle::B32, TensorSwizzle::B64, TensorSwizzle::B128];
                all.into_iter().map(MapField::Swizzle).find(|field| field.named() == Some(code))
            }
            "interleave_layout" if code == 0 => return Ok(()),
            "fill_mode" if code == 0 => return Ok(()),
            _ => None,
        };
        let Some(field) = field else {
            return form.wrong(format!("the code {code} of this field is not read"));
        };
        self.emit(Inst::TensorMap(MapInst::Replace { space, map, field, value: Operand::Imm(0) }));
        Ok(())
    }
}
