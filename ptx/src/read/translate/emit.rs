//! How statements are appended.

use super::super::error::Read;
use super::Translator;
use crate::function::{Guard, Statement};
use crate::inst::{Inst, Operand, UnaryOp};
use crate::site::SourceSite;
use crate::types::Type;

impl Translator<'_, '_> {
    /// Where the instruction that is translated stands.
    pub(super) fn site(&self) -> SourceSite {
        let (line, column) = self.lines.of(self.at);
        let site = SourceSite::new(self.file.clone(), line, column);
        match &self.origin {
            Some((file, line)) => site.with_origin(file.clone(), *line),
            None => site,
        }
    }

    pub(super) fn emit(&mut self, inst: Inst) {
        let site = self.site();
        self.out.push(Statement::Inst { inst, site });
    }

    /// Appends statements that only some threads execute.
    pub(super) fn push_guarded(&mut self, guard: Guard, body: Vec<Statement>) -> Read<()> {
        let site = self.site();
        let plain = body.iter().all(|statement| matches!(statement, Statement::Inst { .. }));
        if body.is_empty() {
            return Ok(());
        }
        if !plain {
            // The other threads branch around it.
            let target = self.names.unique("$over");
            let around = Guard { negated: !guard.negated, ..guard };
            self.out.push(Statement::Branch { guard: Some(around), target: target.clone(), site });
            self.out.extend(body);
            self.out.push(Statement::Label(target));
            return Ok(());
        }
        let mut cond = guard.cond;
        let before_last = body.iter().rev().skip(1).filter_map(Statement::inst);
        let changes = |inst: &Inst| inst.operands().writes.iter().any(|&(reg, _)| Operand::Reg(reg) == cond);
        if before_last.into_iter().any(changes) {
            // The guard holds as it was before the first of them.
            let dst = self.names.fresh(Type::Pred)?;
            self.emit(Inst::Move { ty: Type::Pred, dst, src: cond });
            cond = Operand::Reg(dst);
        }
        let (then, otherwise) = if guard.negated { (Vec::new(), body) } else { (body, Vec::new()) };
        self.out.push(Statement::If { cond, then, otherwise, site });
        Ok(())
    }

    /// The opposite of a predicate.
    pub(super) fn not(&mut self, a: Operand) -> Read<Operand> {
        if let Operand::Imm(bit) = a {
            return Ok(Operand::Imm(u64::from(bit == 0)));
        }
        let dst = self.names.fresh(Type::Pred)?;
        self.emit(Inst::Unary { op: UnaryOp::Not, ty: Type::Pred, dst, a });
        Ok(Operand::Reg(dst))
    }
}
