//! The printer: a verified function as PTX text.
//!
//! The printer relies on the verifier's checks. It writes the flat form of the function, line by line; scopes become comments.

use core::fmt::{self, Write};
use std::collections::BTreeSet;

use crate::function::{Function, Guard, Statement};
use crate::inst::spell::{LOCAL, Plus, Sink};
use crate::inst::{Expect, Inst, Operand, Reg};
use crate::name::Name;
use crate::param::ParamKind;
use crate::types::Type;
use crate::verify::Verified;

/// The PTX module of one kernel: `.version`, `.target` and the entry. Pass it to the driver or to an
/// assembler.
pub fn module_text(function: &Verified) -> String {
    let function = function.flattened();
    let targets = Statement::all(&function.body).into_iter().filter_map(Statement::target);
    let targets = targets.map(Name::as_str).collect();
    let mut printer = Printer { function: &function, out: String::new(), targets, wait: None, skipped: 0 };
    printer.module();
    printer.out
}

struct Printer<'a> {
    function: &'a Function,
    out: String,
    /// The labels that branches name.
    targets: BTreeSet<&'a str>,
    /// The label of the next wait.
    wait: Option<Name>,
    /// Number of guarded instructions so far that are several lines.
    skipped: u32,
}

/// Alignment of shared memory in bytes: the period of the widest swizzle.
const SHARED_ALIGNMENT: u32 = 1024;
/// The names of the program's shared memory: its variables, and dynamic shared memory.
const SHARED: [&str; 2] = ["static_shared", "dynamic_shared"];

impl<'a> Printer<'a> {
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
        let [variables, dynamic] = SHARED;
        let mut alignment = SHARED_ALIGNMENT;
        if function.static_shared > 0 {
            let bytes = function.static_shared;
            let _ = writeln!(self.out, ".shared .align {SHARED_ALIGNMENT} .b8 {variables}[{bytes}];");
            // It begins where the variables end.
            alignment = alignment.min(1 << bytes.trailing_zeros());
        }
        let _ = writeln!(self.out, ".extern .shared .align {alignment} .b8 {dynamic}[];\n");
        let _ = writeln!(self.out, ".visible .entry {}(", function.name);
        for (i, param) in function.params.iter().enumerate() {
            let comma = if i + 1 < function.params.len() { "," } else { "" };
            let name = &param.name;
            let _ = match param.kind {
                ParamKind::Scalar(ty) => writeln!(self.out, "\t.param .{ty} {name}{comma}"),
                kind @ (ParamKind::TensorMap | ParamKind::Bytes { .. }) => {
                    let (alignment, bytes) = (kind.alignment(), kind.bytes());
                    writeln!(self.out, "\t.param .align {alignment} .b8 {name}[{bytes}]{comma}")
                }
            };
        }
        let [x, y, z] = function.block;
        let _ = writeln!(self.out, ")\n.maxntid {x}, {y}, {z}\n.minnctapersm {}", function.resident);
        let [x, y, z] = function.cluster;
        if [x, y, z] != [1, 1, 1] {
            let _ = writeln!(self.out, ".reqnctapercluster {x}, {y}, {z}");
        }
        self.out.push_str("{\n");
        self.registers();
        if function.local_bytes > 0 {
            let _ = writeln!(self.out, "\t.local .align 16 .b8 {LOCAL}[{}];", function.local_bytes);
        }
        self.block(&function.body);
        if !matches!(function.body.last(), Some(Statement::Exit { guard: None, .. })) {
            self.line("ret;");
        }
        self.out.push_str("}\n");
    }

    /// Declares the registers, those of equal types in one line. Each register keeps its number or its name.
    fn registers(&mut self) {
        let function = self.function;
        for (class, declared) in
            [("p", "pred"), ("h", "b16"), ("r", "b32"), ("f", "f32"), ("d", "b64"), ("e", "f64")]
        {
            let of_class = |ty: &Type| ty.class() == class;
            let Some(last) = function.registers.iter().rposition(of_class) else { continue };
            if function.names.is_empty() {
                let _ = writeln!(self.out, "\t.reg .{declared} %{class}<{}>;", last + 1);
                continue;
            }
            let registers = (0u32..).zip(&function.registers).filter(|(_, ty)| of_class(ty));
            let names: Vec<String> = registers.map(|(index, _)| self.register(Reg(index))).collect();
            let _ = writeln!(self.out, "\t.reg .{declared} {};", names.join(", "));
        }
    }

    fn block(&mut self, statements: &'a [Statement]) {
        for (at, statement) in statements.iter().enumerate() {
            match statement {
                Statement::Label(name) => {
                    let next = statements.get(at + 1).and_then(Statement::inst);
                    if matches!(next, Some(Inst::MbarrierWait { .. })) && !self.targets.contains(&**name) {
                        self.wait = Some(name.clone());
                    } else {
                        let _ = writeln!(self.out, "{name}:");
                    }
                }
                Statement::Branch { guard, target, .. } => {
                    self.guarded_line(*guard, &format!("bra {target};"));
                }
                Statement::Exit { guard, .. } => self.guarded_line(*guard, "ret;"),
                Statement::Inst { inst, .. } => self.inst(inst),
                Statement::If { cond, then, otherwise, .. } => {
                    for (block, negated) in [(then, false), (otherwise, true)] {
                        let guard = Guard { cond: *cond, negated };
                        block.iter().filter_map(Statement::inst).for_each(|inst| self.guarded(guard, inst));
                    }
                }
                Statement::Scope { name, body } => {
                    let _ = writeln!(self.out, "\t// {name} {{");
                    self.block(body);
                    let _ = writeln!(self.out, "\t// }} {name}");
                }
                // The flat form has none.
                Statement::Loop { .. } | Statement::Break { .. } => {}
            }
        }
    }

    /// `@p ` or `@!p `; empty where every thread is meant. `None` where no thread is.
    fn prefix(&self, guard: Option<Guard>) -> Option<String> {
        let Some(guard) = guard else { return Some(String::new()) };
        match (guard.always(), guard.cond) {
            (Some(false), _) => None,
            (None, Operand::Reg(reg)) => {
                let not = if guard.negated { "!" } else { "" };
                Some(format!("@{not}{} ", self.register(reg)))
            }
            _ => Some(String::new()),
        }
    }

    fn guarded_line(&mut self, guard: Option<Guard>, text: &str) {
        if let Some(prefix) = self.prefix(guard) {
            self.line(&format!("{prefix}{text}"));
        }
    }

    fn guarded(&mut self, guard: Guard, inst: &Inst) {
        let Some(prefix) = self.prefix(Some(guard)) else { return };
        let start = self.out.len() + 1;
        self.inst(inst);
        if prefix.is_empty() || !self.out[start..].starts_with('{') {
            return self.out.insert_str(start, &prefix);
        }
        // Several lines, which the other threads jump over.
        self.skipped += 1;
        let Some(other) = self.prefix(Some(Guard { negated: !guard.negated, ..guard })) else { return };
        self.out.insert_str(start, &format!("{other}bra $over_{};\n\t", self.skipped));
        let _ = writeln!(self.out, "$over_{}:", self.skipped);
    }

    fn register(&self, reg: Reg) -> String {
        self.function.register_name(reg).unwrap_or_default()
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

    fn param(&self, param: u32) -> Name {
        self.function.params.get(param as usize).map_or(Name::new(""), |param| param.name.clone())
    }

    fn shared(&self, offset: u32) -> Name {
        let [variables, dynamic] = SHARED;
        match offset.checked_sub(self.function.static_shared) {
            Some(offset) => format!("{dynamic}{}", Plus(offset)).into(),
            None => format!("{variables}{}", Plus(offset)).into(),
        }
    }

    fn label(&mut self) -> Name {
        self.wait.take().unwrap_or(Name::new("$wait"))
    }
}

/// The text of an immediate. Floats are written as bits, so that each value is exact.
fn immediate(bits: u64, ty: Type) -> String {
    match ty {
        Type::Pred | Type::U8 | Type::U16 | Type::U32 | Type::U64 => bits.to_string(),
        Type::B8 | Type::B16 | Type::B32 | Type::B64 => bits.to_string(),
        Type::F16 | Type::Bf16 => format!("{bits:#06x}"),
        Type::S8 | Type::S16 => ty.extend(bits).to_string(),
        #[expect(clippy::cast_possible_truncation, reason = "the operand's type is 32 bits wide")]
        Type::S32 => (bits as u32).cast_signed().to_string(),
        Type::S64 => bits.cast_signed().to_string(),
        Type::F32 => format!("0f{bits:08X}"),
        Type::F64 => format!("0d{bits:016X}"),
    }
}
