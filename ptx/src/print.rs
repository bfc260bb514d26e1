//! The printer: a verified function as PTX text.
//!
//! The printer relies on the verifier's checks. Scopes become comments, and a conditional block of one plain
//! instruction becomes a guarded instruction instead of a branch.

use core::fmt::{self, Write};

use crate::function::{Function, ParamKind, Statement};
use crate::inst::spell::Sink;
use crate::inst::{Expect, Inst, MbarrierArrive, Operand, Reg};
use crate::types::Type;
use crate::verify::Verified;

/// The PTX module of one kernel: `.version`, `.target` and the entry. Pass it to the driver or to an
/// assembler.
pub fn module_text(function: &Verified) -> String {
    let mut printer = Printer { function, out: String::new(), labels: 0, loops: Vec::new() };
    printer.module();
    printer.out
}

struct Printer<'a> {
    function: &'a Function,
    out: String,
    labels: u32,
    /// Exit labels of the open loops, innermost last.
    loops: Vec<u32>,
}

/// Alignment of dynamic shared memory in bytes: the period of the widest swizzle.
const SHARED_ALIGNMENT: u32 = 1024;

impl Printer<'_> {
    fn line(&mut self, text: &str) {
        self.out.push('\t');
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn module(&mut self) {
        let function = self.function;
        let (major, minor) = function.version();
        let name = function.target.name();
        let _ = writeln!(self.out, ".version {major}.{minor}\n.target {name}\n.address_size 64\n");
        let _ = writeln!(self.out, ".extern .shared .align {SHARED_ALIGNMENT} .b8 dynamic_shared[];\n");
        let _ = writeln!(self.out, ".visible .entry {}(", function.name);
        for (i, param) in function.params.iter().enumerate() {
            let comma = if i + 1 < function.params.len() { "," } else { "" };
            let name = param.name;
            let _ = match param.kind {
                ParamKind::Scalar(ty) => writeln!(self.out, "\t.param .{ty} {name}{comma}"),
                ParamKind::TensorMap => writeln!(self.out, "\t.param .align 64 .b8 {name}[128]{comma}"),
            };
        }
        let [x, y, z] = function.cluster;
        let _ = writeln!(self.out, ")\n.maxntid {}, 1, 1\n.minnctapersm 1", function.threads);
        if [x, y, z] != [1, 1, 1] {
            let _ = writeln!(self.out, ".reqnctapercluster {x}, {y}, {z}");
        }
        self.out.push_str("{\n");
        self.registers();
        self.block(&function.body);
        self.line("ret;");
        self.out.push_str("}\n");
    }

    /// Declares the registers, a run of equal types in one line. Each register keeps its number.
    fn registers(&mut self) {
        for (class, declared) in
            [("p", "pred"), ("h", "b16"), ("r", "b32"), ("f", "f32"), ("d", "b64"), ("e", "f64")]
        {
            let of_class = |ty: &Type| register_class(*ty) == class;
            if let Some(last) = self.function.registers.iter().rposition(of_class) {
                let _ = writeln!(self.out, "\t.reg .{declared} %{class}<{}>;", last + 1);
            }
        }
    }

    fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Inst { inst, .. } => self.inst(inst),
            Statement::If { cond, then, otherwise, .. } => self.if_(*cond, then, otherwise),
            Statement::Loop { body, .. } => {
                let exit = self.label();
                let _ = writeln!(self.out, "$loop_{exit}:");
                self.loops.push(exit);
                self.block(body);
                self.loops.pop();
                let _ = writeln!(self.out, "\tbra $loop_{exit};\n$exit_{exit}:");
            }
            Statement::Break { cond, .. } => {
                if let Some(&exit) = self.loops.last() {
                    match *cond {
                        Operand::Imm(0) => {}
                        Operand::Imm(_) => self.line(&format!("bra $exit_{exit};")),
                        Operand::Reg(reg) => {
                            let guard = self.register(reg);
                            self.line(&format!("@{guard} bra $exit_{exit};"));
                        }
                    }
                }
            }
            Statement::Scope { name, body } => {
                let _ = writeln!(self.out, "\t// {name} {{");
                self.block(body);
                let _ = writeln!(self.out, "\t// }} {name}");
            }
        }
    }

    fn if_(&mut self, cond: Operand, then: &[Statement], otherwise: &[Statement]) {
        let Operand::Reg(cond) = cond else {
            let taken = if cond == Operand::Imm(0) { otherwise } else { then };
            return self.block(taken);
        };
        let cond = self.register(cond);
        if let ([Statement::Inst { inst, .. }], []) = (then, otherwise)
            && can_guard(inst)
        {
            let start = self.out.len();
            self.inst(inst);
            self.out.insert_str(start + 1, &format!("@{cond} "));
            return;
        }
        let label = self.label();
        let skip = if otherwise.is_empty() { "endif" } else { "else" };
        self.line(&format!("@!{cond} bra ${skip}_{label};"));
        self.block(then);
        if !otherwise.is_empty() {
            self.line(&format!("bra $endif_{label};"));
            let _ = writeln!(self.out, "$else_{label}:");
            self.block(otherwise);
        }
        let _ = writeln!(self.out, "$endif_{label}:");
    }

    fn register(&self, reg: Reg) -> String {
        format!("%{}{}", register_class(self.function.registers[reg.0 as usize]), reg.0)
    }

    fn inst(&mut self, inst: &Inst) {
        self.out.push('\t');
        inst.spell(self);
        self.out.push('\n');
    }
}

/// Spells an instruction into the text.
impl Sink for Printer<'_> {
    fn name(&mut self, _: &'static str) {}

    fn text(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(text);
    }

    fn read(&mut self, operand: Operand, _: Expect, ty: Type) {
        let text = match operand {
            Operand::Reg(reg) => self.register(reg),
            Operand::Imm(bits) => immediate(bits, ty),
        };
        self.out.push_str(&text);
    }

    fn write(&mut self, reg: Reg, _: Expect) {
        self.out.push_str(&self.register(reg));
    }

    fn declared(&self, reg: Reg) -> Option<Type> {
        self.function.registers.get(reg.0 as usize).copied()
    }

    fn param(&self, param: u32) -> &'static str {
        self.function.params[param as usize].name
    }

    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }
}

/// Whether a conditional block of this instruction alone may be printed as a guarded instruction.
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

fn register_class(ty: Type) -> &'static str {
    match ty {
        Type::Pred => "p",
        Type::U8 | Type::U16 | Type::F16 | Type::Bf16 => "h",
        Type::U32 | Type::S32 => "r",
        Type::F32 => "f",
        Type::U64 | Type::S64 => "d",
        Type::F64 => "e",
    }
}

/// The text of an immediate. Floats are written as bits, so that each value is exact.
fn immediate(bits: u64, ty: Type) -> String {
    match ty {
        Type::Pred | Type::U8 | Type::U16 | Type::U32 | Type::U64 => bits.to_string(),
        Type::F16 | Type::Bf16 => format!("{bits:#06x}"),
        #[expect(clippy::cast_possible_truncation, reason = "the operand's type is 32 bits wide")]
        Type::S32 => (bits as u32).cast_signed().to_string(),
        Type::S64 => bits.cast_signed().to_string(),
        Type::F32 => format!("0f{bits:08X}"),
        Type::F64 => format!("0d{bits:016X}"),
    }
}
