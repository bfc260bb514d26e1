//! Branches and ends.

use super::super::error::Read;
use super::super::syntax::{Operand as Word, OperandKind};
use super::Translator;
use super::form::Form;
use super::names::Meaning;
use crate::function::{Guard, Statement};
use crate::inst::{CompareOp, Inst, Operand};
use crate::name::Name;
use crate::types::Type;

/// Whether an instruction takes its guard itself.
pub(super) fn ends_or_branches(name: &str) -> bool {
    matches!(name, "bra" | "ret" | "exit")
}

impl<'t> Translator<'_, 't> {
    pub(super) fn bra(&mut self, form: &mut Form<'_, 't>, guard: Option<Guard>) -> Read<()> {
        form.takes("uni");
        let word = form.operand()?;
        let target = self.label(word)?;
        let site = self.site();
        self.out.push(Statement::Branch { guard, target, site });
        Ok(())
    }

    fn label(&mut self, word: &Word<'t>) -> Read<Name> {
        let OperandKind::Name(name) = word.kind else { return word.at.wrong("a label was needed") };
        match self.names.find(name)? {
            Some(Meaning::Label(label)) => Ok(label),
            Some(_) => word.at.wrong(format!("`{name}` is not a label")),
            None => word.at.wrong(format!("there is no label `{name}` here")),
        }
    }

    /// `brx.idx`: a comparison for each label but the last. What happens with other numbers is not defined.
    pub(super) fn brx(&mut self, form: &mut Form<'_, 't>, guard: Option<Guard>) -> Read<()> {
        form.takes("uni");
        if !form.takes("idx") {
            return form.wrong("`.idx` was needed");
        }
        let index = self.src(form, Type::U32)?;
        let word = form.operand()?;
        let OperandKind::Name(name) = word.kind else { return word.at.wrong("a list of labels was needed") };
        let Some(Meaning::Targets(labels)) = self.names.find(name)? else {
            return word.at.wrong(format!("`{name}` is not a list of labels (`.branchtargets`)"));
        };
        let site = self.site();
        for (number, label) in (0u64..).zip(&labels) {
            let target = self.label(&Word { at: label.at, kind: OperandKind::Name(label.text) })?;
            let guard = if number as usize + 1 < labels.len() {
                let dst = self.names.fresh(Type::Pred)?;
                let b = Operand::Imm(number);
                self.emit(Inst::Compare { op: CompareOp::Eq, ty: Type::U32, dst, a: index, b });
                Some(Guard { cond: Operand::Reg(dst), negated: false })
            } else {
                guard
            };
            self.out.push(Statement::Branch { guard, target, site: site.clone() });
        }
        Ok(())
    }

    /// `ret` and `exit`. A return from a called function branches to the end of the call.
    pub(super) fn leave(&mut self, form: &mut Form<'_, 't>, guard: Option<Guard>) -> Read<()> {
        form.takes("uni");
        let site = self.site();
        let returns = !form.spelled().starts_with("exit");
        self.out.push(match self.calls.last() {
            Some((_, end)) if returns => Statement::Branch { guard, target: end.clone(), site },
            _ => Statement::Exit { guard, site },
        });
        Ok(())
    }
}
