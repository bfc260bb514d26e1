//! Calls. The body of a called function is put where the call stands, with registers of its own.

use std::collections::HashMap;

use super::super::error::{At, Read};
use super::super::syntax::{Function as Called, Name as Word, Operand as Argument, OperandKind, Space};
use super::Translator;
use super::form::Form;
use super::names::Meaning;
use crate::function::Statement;
use crate::inst::{Inst, Operand, Reg};
use crate::types::Type;

/// Calls inside of calls.
const DEEPEST: usize = 32;
/// Calls of one kernel.
const MOST: u32 = 10_000;

impl<'t> Translator<'_, 't> {
    /// `call (results), function, (arguments);`, where results and arguments may be left out.
    pub(super) fn call(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        form.takes("uni");
        let mut results: &[Argument<'t>] = &[];
        if let Some(OperandKind::List(list)) = form.peek().map(|operand| &operand.kind) {
            results = list;
            form.operand()?;
        }
        let word = form.operand()?;
        let OperandKind::Name(name) = word.kind else {
            return word.at.wrong("the name of a function was needed");
        };
        let mut arguments: &[Argument<'t>] = &[];
        if let Some(OperandKind::List(list)) = form.peek().map(|operand| &operand.kind) {
            arguments = list;
            form.operand()?;
        }
        if form.more() {
            // The prototype of a call of a register.
            form.operand()?;
        }
        let functions =
            self.text.functions.iter().filter(|function| !function.entry && function.name.text == name);
        let functions: Vec<_> = functions.collect();
        match (functions.iter().find(|function| function.body.is_some()), functions.is_empty()) {
            (Some(function), _) => self.inlined(function, (results, arguments), word.at),
            (None, false) => self.external(name, (results, arguments), word.at),
            (None, true) => word
                .at
                .wrong(format!("`{name}` is not a function of this text: calls of addresses are not read")),
        }
    }

    fn inlined(
        &mut self,
        function: &'_ Called<'t>,
        (results, arguments): (&[Argument<'t>], &[Argument<'t>]),
        at: At,
    ) -> Read<()> {
        let name = function.name.text;
        if self.calls.iter().any(|(open, _)| *open == name) {
            return at.wrong(format!("`{name}` calls itself: recursion is not read"));
        }
        if self.calls.len() == DEEPEST {
            return at.wrong(format!("more than {DEEPEST} calls inside of each other"));
        }
        if self.inlined > MOST {
            return at.wrong(format!("more than {MOST} calls: each is put where it stands"));
        }
        self.inlined += 1;
        let given = self.given(arguments, &function.params, (name, "parameters"), at)?;
        let taken = self.given(results, &function.returns, (name, "results"), at)?;
        let end = self.names.unique(&format!("$after_{name}"));
        let outer = (self.at, self.origin.clone());
        self.names.open_closed();
        self.calls.push((name, end.clone()));
        for (param, meaning) in function.params.iter().zip(&given) {
            if let (Meaning::Register(src), Space::Register) = (meaning, param.space) {
                self.emit_copy(param.name, Operand::Reg(*src))?;
            } else {
                self.names.define(param.name, meaning.clone())?;
            }
        }
        for (result, meaning) in function.returns.iter().zip(&taken) {
            self.names.define(result.name, meaning.clone())?;
        }
        let body = function.body.as_deref().unwrap_or_default();
        self.block(body)?;
        self.calls.pop();
        self.names.close();
        (self.at, self.origin) = outer;
        self.out.push(Statement::Label(end));
        Ok(())
    }

    /// A register of the called function, which gets a value of the caller.
    fn emit_copy(&mut self, name: Word<'t>, src: Operand) -> Read<()> {
        let Operand::Reg(reg) = src else { return Ok(()) };
        let ty = self.names.ty(reg);
        let dst = self.names.fresh(ty)?;
        self.emit(Inst::Move { ty, dst, src });
        self.names.define(name, Meaning::Register(dst))
    }

    /// What arguments or results of a call are.
    fn given(
        &mut self,
        words: &[Argument<'t>],
        params: &[super::super::syntax::Variable<'t>],
        (name, what): (&str, &str),
        at: At,
    ) -> Read<Vec<Meaning<'t>>> {
        if words.len() != params.len() {
            return at.wrong(format!("`{name}` has {} {what}, {} were given", params.len(), words.len()));
        }
        let mut given = Vec::new();
        for (word, param) in words.iter().zip(params) {
            let meaning = match word.kind {
                OperandKind::Name(name) => self.names.find(name)?,
                _ => None,
            };
            let meaning = match (meaning, param.space) {
                (Some(cells @ Meaning::Cells(_)), Space::Param) => cells,
                (Some(reg @ Meaning::Register(_)), Space::Register) => reg,
                (None, Space::Register) if matches!(word.kind, OperandKind::Number(_)) => {
                    let ty = super::form::scalar(param.ty.text).unwrap_or(Type::B32);
                    let src = self.source(word, ty)?;
                    let dst = self.names.fresh(ty.untyped())?;
                    self.emit(Inst::Move { ty, dst, src });
                    Meaning::Register(dst)
                }
                _ => {
                    return word
                        .at
                        .wrong(format!("a parameter of a call for `{}` was needed", param.name.text));
                }
            };
            given.push(meaning);
        }
        Ok(given)
    }

    /// Functions of the CUDA runtime. `vprintf` prints nothing here: its arguments are evaluated, and its result is 0. `__assertfail` ends
    /// the program.
    fn external(&mut self, name: &str, (results, _): (&[Argument<'t>], &[Argument<'t>]), at: At) -> Read<()> {
        match name {
            "vprintf" => {
                for word in results {
                    let OperandKind::Name(result) = word.kind else { continue };
                    let Some(Meaning::Cells(cells)) = self.names.find(result)? else { continue };
                    let dst = self.names.fresh(Type::B32)?;
                    self.emit(Inst::Move { ty: Type::U32, dst, src: Operand::Imm(0) });
                    if let Some(cells) = self.cells.get_mut(cells) {
                        cells.insert((0, 32), dst);
                    }
                }
                Ok(())
            }
            "__assertfail" => {
                let site = self.site();
                let trap = Statement::Inst { inst: Inst::Trap, site };
                self.out.push(Statement::Scope { name: "a failed assertion".into(), body: vec![trap] });
                Ok(())
            }
            _ => at.wrong(format!(
                "`{name}` is defined elsewhere: of such functions, `vprintf` and `__assertfail` are read"
            )),
        }
    }

    // ---- parameters of calls ----

    /// The register that holds a part of a parameter of a call.
    pub(super) fn cell(&self, cells: usize, (offset, bits): (i64, u32), name: &str, at: At) -> Read<Reg> {
        let held = self.cells.get(cells).and_then(|cells| cells.get(&(offset, bits)));
        held.copied().map_or_else(
            || {
                at.wrong(format!(
                    "`{name}` at {offset}: {bits} bits are read where nothing so wide was written"
                ))
            },
            Ok,
        )
    }

    /// The register that shall hold a part of a parameter of a call.
    pub(super) fn cell_for(&mut self, cells: usize, offset: i64, ty: Type) -> Read<Reg> {
        let key = (offset, ty.bits());
        if let Some(&reg) = self.cells.get(cells).and_then(|cells: &HashMap<_, _>| cells.get(&key)) {
            return Ok(reg);
        }
        let reg = self.names.fresh(ty.untyped())?;
        if let Some(cells) = self.cells.get_mut(cells) {
            cells.insert(key, reg);
        }
        Ok(reg)
    }
}
