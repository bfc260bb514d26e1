//! The flat form of a function: labels and branches in place of blocks. It is what the printer writes.

use crate::function::{Function, Guard, Statement};
use crate::inst::{Inst, MbarrierArrive, Operand};
use crate::name::Name;

impl Function {
    /// The flat form of the function, which has the same text and does the same. A body that is flat stays as it is.
    ///
    /// ```
    /// # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 32, shared_bytes: 0, cluster: [1, 1, 1] };
    /// use ptx::Statement;
    ///
    /// let count = |f: &ptx::Builder| f.repeat(f.special(ptx::Special::CtaX), |_| f.warp_sync());
    /// let function = ptx::Function::build(entry, count);
    /// let flat = function.flattened();
    /// assert!(flat.body.iter().any(|statement| matches!(statement, Statement::Label(name) if name == "$loop_1")));
    /// assert_eq!(ptx::module_text(&flat.verify()?), ptx::module_text(&function.verify()?));
    /// # Ok::<(), ptx::VerifyError>(())
    /// ```
    #[must_use]
    pub fn flattened(&self) -> Self {
        let mut function = self.clone();
        if !self.is_flat() {
            function.body = Flattening { labels: 0, loops: Vec::new() }.block(&self.body);
        }
        function
    }
}

struct Flattening {
    /// Number of labels so far. Labels of one statement share a number.
    labels: u32,
    /// Exit labels of the open loops, innermost last.
    loops: Vec<Name>,
}

impl Flattening {
    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    fn block(&mut self, statements: &[Statement]) -> Vec<Statement> {
        let mut flat = Vec::with_capacity(statements.len());
        for statement in statements {
            self.statement(statement, &mut flat);
        }
        flat
    }

    fn statement(&mut self, statement: &Statement, flat: &mut Vec<Statement>) {
        match statement {
            Statement::Inst { inst, .. } => {
                if let Inst::MbarrierWait { .. } = inst {
                    // It is a loop of one test, which is printed with its label.
                    flat.push(Statement::Label(format!("$wait_{}", self.label()).into()));
                }
                flat.push(statement.clone());
            }
            Statement::If { .. } => self.if_(statement, flat),
            Statement::Loop { body, site } => {
                let number = self.label();
                let [start, exit] = ["loop", "exit"].map(|what| Name::from(format!("${what}_{number}")));
                flat.push(Statement::Label(start.clone()));
                self.loops.push(exit);
                flat.extend(self.block(body));
                flat.push(Statement::Branch { guard: None, target: start, site: site.clone() });
                flat.extend(self.loops.pop().map(Statement::Label));
            }
            Statement::Break { cond, site } => {
                let guard = Some(Guard { cond: *cond, negated: false });
                let Some(target) = self.loops.last().cloned() else { return };
                flat.extend(branch(guard, target, site));
            }
            Statement::Scope { name, body } => {
                flat.push(Statement::Scope { name: name.clone(), body: self.block(body) });
            }
            Statement::Label(_) | Statement::Branch { .. } | Statement::Exit { .. } => {
                flat.push(statement.clone());
            }
        }
    }

    fn if_(&mut self, statement: &Statement, flat: &mut Vec<Statement>) {
        let Statement::If { cond, then, otherwise, site } = statement else { return };
        if let Operand::Imm(bits) = cond {
            let taken = if *bits == 0 { otherwise } else { then };
            return flat.extend(self.block(taken));
        }
        if let ([Statement::Inst { inst, .. }], []) = (&then[..], &otherwise[..])
            && can_guard(inst)
        {
            return flat.push(statement.clone());
        }
        let number = self.label();
        let [other, end] = ["else", "endif"].map(|what| Name::from(format!("${what}_{number}")));
        let skipped = if otherwise.is_empty() { &end } else { &other };
        let guard = Some(Guard { cond: *cond, negated: true });
        flat.push(Statement::Branch { guard, target: skipped.clone(), site: site.clone() });
        flat.extend(self.block(then));
        if !otherwise.is_empty() {
            flat.push(Statement::Branch { guard: None, target: end.clone(), site: site.clone() });
            flat.push(Statement::Label(other));
            flat.extend(self.block(otherwise));
        }
        flat.push(Statement::Label(end));
    }
}

/// A branch that some threads take.
fn branch(guard: Option<Guard>, target: Name, site: &crate::site::SourceSite) -> Option<Statement> {
    let site = site.clone();
    match guard.and_then(Guard::always) {
        Some(false) => None,
        Some(true) => Some(Statement::Branch { guard: None, target, site }),
        None => Some(Statement::Branch { guard, target, site }),
    }
}

/// Whether a conditional block of this instruction alone becomes a guarded instruction.
fn can_guard(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Move { .. }
            | Inst::Binary { .. }
            | Inst::Load { .. }
            | Inst::Store { .. }
            | Inst::MbarrierArrive(MbarrierArrive { state: None, drop: false, .. })
            | Inst::Trap
    )
}
