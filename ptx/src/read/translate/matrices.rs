//! Matrix instructions of a warp and of a warpgroup.

use super::super::error::Read;
use super::super::syntax::OperandKind;
use super::Translator;
use super::form::Form;
use crate::inst::{Inst, MmaTypes, Operand, Reg, WarpMatrix, WgmmaA, WgmmaSparse, WgmmaTypes};
use crate::types::{Space, Type};

impl<'t> Translator<'_, 't> {
    /// `ldmatrix` and `stmatrix`.
    pub(super) fn move_matrix(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        form.ignore(&["sync", "aligned"]);
        if name == "movmatrix" || !form.takes("m8n8") || !form.takes("b16") {
            return form.wrong("only `ldmatrix` and `stmatrix` of m8n8 and b16 are read");
        }
        let count = form.need("a number of matrices", &[("x1", 1), ("x2", 2), ("x4", 4)])?;
        let transpose = form.takes("trans");
        let space = form.choose(&[("shared", Space::Shared), ("shared::cta", Space::Shared)]);
        if name == "ldmatrix" {
            let words = self.vector(form)?;
            let dst = words.iter().map(|word| self.result(word, Type::U32)).collect::<Read<Vec<_>>>()?;
            let address = self.at_shared(form, space)?;
            if dst.len() != count {
                return form.wrong(format!("{} registers, {count} were needed", dst.len()));
            }
            self.emit(Inst::WarpMatrix(WarpMatrix::Load { dst, address, transpose }));
            return Ok(());
        }
        let address = self.at_shared(form, space)?;
        let words = self.vector(form)?;
        let src = words.iter().map(|word| self.source(word, Type::U32)).collect::<Read<Vec<_>>>()?;
        if src.len() != count {
            return form.wrong(format!("{} registers, {count} were needed", src.len()));
        }
        self.emit(Inst::StoreMatrix { address, src, transpose });
        Ok(())
    }

    /// `mma.sync.aligned.m16n8k<K>.row.col…`
    pub(super) fn mma(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        form.ignore(&["sync", "aligned"]);
        let saturate = form.takes("satfinite");
        let shape = form.left().first().copied().unwrap_or("");
        form.first(shape);
        if !form.first_ones(&["row", "col"]) {
            return form.wrong("`.row.col` was needed");
        }
        let types = form.rest();
        let types = mma_types(&types, saturate).filter(|types| shape == format!("m16n8k{}", types.k()));
        let Some(types) = types else {
            return form.wrong("products of this shape and these types are not read");
        };
        let ((ty, _), of) = (types.accumulators(), types.operand());
        let d = self.vector(form)?.iter().map(|word| self.result(word, ty)).collect::<Read<Vec<_>>>()?;
        let [a, b] = [self.elements(form, of)?, self.elements(form, of)?];
        let c = self.elements(form, ty)?;
        let (Ok(a), Ok(b)) = (a.try_into(), b.try_into()) else {
            return form.wrong("four registers of A and two of B were needed");
        };
        self.emit(Inst::WarpMatrix(WarpMatrix::Multiply { types, d, a, b, c }));
        Ok(())
    }

    fn elements(&mut self, form: &mut Form<'_, 't>, ty: Type) -> Read<Vec<Operand>> {
        self.vector(form)?.iter().map(|word| self.source(word, ty)).collect()
    }

    /// `wgmma.{fence|commit_group|wait_group|mma_async}`.
    pub(super) fn wgmma(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let operation = form.left().first().copied().unwrap_or("");
        form.first(operation);
        let sparse = form.first("sp");
        form.ignore(&["sync", "aligned"]);
        match operation {
            "fence" => self.emit(Inst::WgmmaFence),
            "commit_group" => self.emit(Inst::WgmmaCommit),
            "wait_group" => {
                let pending = form.count_of("a number of groups")?;
                self.emit(Inst::WgmmaWait { pending });
            }
            "mma_async" => return self.wgmma_product(sparse, form),
            _ => return form.wrong("this operation of `wgmma` is not read"),
        }
        Ok(())
    }

    fn wgmma_product(&mut self, sparse: bool, form: &mut Form<'_, 't>) -> Read<()> {
        let shape = form.left().first().copied().unwrap_or("");
        form.first(shape);
        let (n, k) = match wgmma_shape(shape) {
            Some(shape) => shape,
            None => return form.wrong(format!("`.{shape}`: a shape such as m64n128k16 was needed")),
        };
        let spelled = form.rest();
        let types = WgmmaTypes::all().find(|types| types.suffix() == spelled);
        let types = types.filter(|types| k == types.k() * (1 + u32::from(sparse)));
        let Some(types) = types else {
            return form.wrong("products of this shape and these types are not read");
        };
        let words = self.vector(form)?;
        let d = words.iter().map(|word| self.result(word, Type::B32)).collect::<Read<Vec<Reg>>>()?;
        let a = match form.peek().map(|word| &word.kind) {
            Some(OperandKind::Vector(_)) => {
                let words = self.vector(form)?;
                let regs =
                    words.iter().map(|word| self.result(word, Type::B32)).collect::<Read<Vec<Reg>>>()?;
                match regs.try_into() {
                    Ok(regs) => WgmmaA::Registers(regs),
                    Err(_) => return form.wrong("four registers of A were needed"),
                }
            }
            _ => WgmmaA::Shared(self.src(form, Type::U64)?),
        };
        let b = self.src(form, Type::U64)?;
        let sparse = if sparse {
            let metadata = self.dst(form, Type::U32)?;
            Some(WgmmaSparse { metadata, selector: form.count_of("a selector")? })
        } else {
            None
        };
        let accumulate = self.src(form, Type::Pred)?;
        let [mut negate_a, mut negate_b, mut transpose_a, mut transpose_b] = [false; 4];
        if types.allows_negation() {
            [negate_a, negate_b] = [sign(form)?, sign(form)?];
        }
        if types.allows_transpose() && matches!(a, WgmmaA::Shared(_)) {
            transpose_a = flag(form)?;
        }
        if types.allows_transpose() {
            transpose_b = flag(form)?;
        }
        self.emit(Inst::Wgmma {
            types,
            n,
            sparse,
            d,
            a,
            b,
            accumulate,
            negate_a,
            negate_b,
            transpose_a,
            transpose_b,
        });
        Ok(())
    }
}

/// N and K of `m64nNkK`.
fn wgmma_shape(shape: &str) -> Option<(u32, u32)> {
    let (n, k) = shape.strip_prefix("m64n")?.split_once('k')?;
    Some((n.parse().ok()?, k.parse().ok()?))
}

/// Whether an operand is negated: -1 or 1.
fn sign(form: &mut Form<'_, '_>) -> Read<bool> {
    match form.number("1 or -1")? {
        1 => Ok(false),
        -1 => Ok(true),
        other => form.wrong(format!("{other} as a sign, 1 or -1 was needed")),
    }
}

/// Whether an operand is transposed: 1 or 0.
fn flag(form: &mut Form<'_, '_>) -> Read<bool> {
    match form.number("0 or 1")? {
        0 => Ok(false),
        1 => Ok(true),
        other => form.wrong(format!("{other} as a flag, 0 or 1 was needed")),
    }
}

fn mma_types(types: &str, saturate: bool) -> Option<MmaTypes> {
    let integers = [false, true]
        .into_iter()
        .flat_map(|signed_a| [false, true].map(|signed_b| MmaTypes::Int8 { signed_a, signed_b, saturate }));
    let floats = [MmaTypes::Bf16F32, MmaTypes::F16F32, MmaTypes::F16F16, MmaTypes::Tf32F32, MmaTypes::F64];
    let all = floats.into_iter().filter(|_| !saturate).chain(integers);
    all.into_iter().find(|known| known.suffix() == types)
}
