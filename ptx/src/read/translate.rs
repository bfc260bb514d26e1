//! From the syntax tree to a typed program, one instruction after the other.
//!
//! The program that is made does what the text says. Hints (cache operators, eviction priorities, prefetches, times after which a wait
//! may ask again) change nothing and are left out. Instructions that the program has no form for become several ones that do the same.

mod calls;
mod composed;
mod control;
mod copies;
mod emit;
mod floats;
mod form;
mod integers;
mod launch;
mod layout;
mod maps;
mod matrices;
mod mbarriers;
mod memory;
mod moves;
mod names;
mod operands;
mod plan;
mod synchronise;
mod waits;
mod warp;

use std::collections::HashMap;

use super::error::{At, Lines, Read};
use super::launch::Launch;
use super::syntax::{Function as Kernel, Instruction, Item, Line, Text, Variable};
use crate::function::{Function, Guard, Statement};
use crate::inst::{Operand, Reg};
use crate::name::Name;
use crate::param::{self, Param};

use form::Form;
use layout::Layout;
use names::{Meaning, Names};
use plan::Plan;

/// The program of a kernel for a launch.
pub(super) fn translate<'t>(
    (text, lines, file): (&Text<'t>, &Lines<'t>, &str),
    kernel: &Kernel<'t>,
    launch: &Launch,
) -> Read<Function> {
    let shape = launch::shape(kernel, launch)?;
    let layout = Layout::new(text, kernel)?;
    let first = Translator::new((text, lines, file), &layout, &shape, Plan::default());
    let (names, body) = first.kernel(kernel)?;
    let plan = Plan::new(kernel, &names.names, &waits::folded(body));
    let second = Translator::new((text, lines, file), &layout, &shape, plan);
    let (done, body) = second.kernel(kernel)?;
    Ok(done.finish(kernel, &shape, waits::folded(body)))
}

/// What is translated, and the program so far.
struct Translator<'m, 't> {
    text: &'m Text<'t>,
    lines: &'m Lines<'t>,
    file: Name,
    /// Whether the kernel is launched in clusters.
    in_clusters: bool,
    layout: &'m Layout,
    names: Names<'t>,
    params: Vec<Param>,
    /// The statements of the open block.
    out: Vec<Statement>,
    /// The instruction that is translated.
    at: At,
    /// What it was made from (`.loc`).
    origin: Option<(Name, u32)>,
    /// What the parameters of calls hold, by offset in bytes and width in bits.
    cells: Vec<HashMap<(i64, u32), Reg>>,
    /// The open calls, innermost last: the function, and the label after the call.
    calls: Vec<(&'t str, Name)>,
    /// Number of calls so far.
    inlined: u32,
    /// The carry of the last sum that gives one.
    carry: Option<Reg>,
    /// What is known of the program since it was translated the first time.
    plan: Plan,
}

impl<'m, 't> Translator<'m, 't> {
    fn new(
        (text, lines, file): (&'m Text<'t>, &'m Lines<'t>, &str),
        layout: &'m Layout,
        shape: &launch::Shape,
        plan: Plan,
    ) -> Self {
        Self {
            text,
            lines,
            file: Name::from(file.to_owned()),
            in_clusters: shape.in_clusters,
            layout,
            names: Names::new(&plan),
            params: Vec::new(),
            out: Vec::new(),
            at: At::default(),
            origin: None,
            cells: Vec::new(),
            calls: Vec::new(),
            inlined: 0,
            carry: None,
            plan,
        }
    }

    fn kernel(mut self, kernel: &Kernel<'t>) -> Read<(Self, Vec<Statement>)> {
        self.declare(kernel)?;
        if let Some(body) = &kernel.body {
            self.block(body)?;
        }
        let body = core::mem::take(&mut self.out);
        Ok((self, body))
    }

    /// The finished program.
    fn finish(self, kernel: &Kernel<'t>, shape: &launch::Shape, body: Vec<Statement>) -> Function {
        let Plan { types, names, named, .. } = self.plan;
        let globals = &self.layout.globals;
        let named_so =
            self.params.iter().skip(self.params.len() - globals.len()).map(|param| param.name.clone());
        let variables = globals.iter().zip(named_so);
        let variables =
            variables.map(|((_, variable), name)| param::Variable { name, ..variable.clone() }).collect();
        Function {
            ordered_sums: false,
            resident: shape.resident,
            name: launch::identifier(kernel.name.text),
            target: crate::target::Target::Sm90a,
            params: self.params,
            registers: types,
            names: if named { names } else { Vec::new() },
            block: shape.block,
            static_shared: self.layout.static_shared,
            shared_bytes: shape.shared_bytes,
            local_bytes: self.layout.local,
            cluster: shape.cluster,
            body,
            variables,
            regions: Vec::new(),
            refusals: Vec::new(),
        }
    }

    /// Translates a block, whose names end with it.
    fn block(&mut self, items: &[Item<'t>]) -> Read<()> {
        if let Some(reduction) = synchronise::known_reduction(items) {
            return self.guarded(&reduction);
        }
        self.names.open();
        self.items(items)?;
        self.names.close();
        Ok(())
    }

    fn items(&mut self, items: &[Item<'t>]) -> Read<()> {
        // Branches may name labels that stand after them.
        for item in items {
            match item {
                Item::Label(name) => {
                    let label = self.names.unique(name.text);
                    self.names.define(*name, Meaning::Label(label))?;
                }
                Item::Targets { name, labels } => {
                    self.names.define(*name, Meaning::Targets(labels.clone()))?;
                }
                Item::Block(_)
                | Item::Registers(_)
                | Item::Variable(_)
                | Item::Line(_)
                | Item::Instruction(_)
                | Item::Prototype => {}
            }
        }
        items.iter().try_for_each(|item| self.item(item))
    }

    fn item(&mut self, item: &Item<'t>) -> Read<()> {
        match item {
            Item::Block(items) => self.block(items),
            Item::Registers(registers) => self.names.declare(registers),
            Item::Variable(variable) => self.variable(variable),
            Item::Label(name) => {
                if let Some(Meaning::Label(label)) = self.names.find(name.text)? {
                    self.out.push(Statement::Label(label));
                }
                Ok(())
            }
            Item::Line(Line { file, line, .. }) => {
                let name = self.text.files.iter().find(|(number, _)| number == file).map(|(_, name)| *name);
                let line = u32::try_from(*line).unwrap_or(u32::MAX);
                self.origin = name.filter(|_| line > 0).map(|name| (Name::from(name.to_owned()), line));
                Ok(())
            }
            Item::Instruction(instruction) => self.guarded(instruction),
            Item::Targets { .. } | Item::Prototype => Ok(()),
        }
    }

    /// A variable of a body.
    fn variable(&mut self, variable: &Variable<'t>) -> Read<()> {
        use super::syntax::Space;
        let meaning = match variable.space {
            Space::Shared => Meaning::Shared(self.layout.offset(variable)),
            Space::Local => Meaning::Local(self.layout.offset(variable)),
            Space::Param => {
                self.cells.push(HashMap::new());
                Meaning::Cells(self.cells.len() - 1)
            }
            Space::Global | Space::Constant => match self.global(variable.name.at) {
                Some(param) => Meaning::Global(param),
                None => return Ok(()),
            },
            Space::Register => return Ok(()),
        };
        self.names.define(variable.name, meaning)
    }

    /// Translates an instruction and its guard.
    fn guarded(&mut self, instruction: &Instruction<'t>) -> Read<()> {
        self.at = instruction.at;
        let Some((name, negated)) = instruction.guard else { return self.instruction(instruction, None) };
        let reg = self.register(name.text, name.at)?;
        self.fits(reg, crate::types::Type::Pred, name.at)?;
        let guard = Guard { cond: Operand::Reg(reg), negated };
        if control::ends_or_branches(instruction.name) {
            return self.instruction(instruction, Some(guard));
        }
        let outer = core::mem::take(&mut self.out);
        let read = self.instruction(instruction, None);
        let body = core::mem::replace(&mut self.out, outer);
        read?;
        self.push_guarded(guard, body)
    }

    /// Translates an instruction. Only branches and ends get their guard here.
    fn instruction(&mut self, instruction: &Instruction<'t>, guard: Option<Guard>) -> Read<()> {
        let mut form = Form::new(instruction);
        let form = &mut form;
        match instruction.name {
            "bra" => self.bra(form, guard),
            "brx" => self.brx(form, guard),
            "ret" | "exit" => self.leave(form, guard),
            "call" => self.call(form),
            "mov" => self.mov(form),
            "cvta" => self.cvta(form),
            "isspacep" => self.isspacep(form),
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "rem" | "min" | "max" | "neg" | "abs" => {
                self.arithmetic(instruction.name, form)
            }
            "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "lop3" | "shf" | "prmt" | "bfe"
            | "bfi" | "bfind" | "popc" | "clz" | "brev" | "fns" | "sad" | "mul24" | "mad24" | "bmsk"
            | "szext" | "addc" | "subc" | "madc" | "dp4a" => self.bits(instruction.name, form),
            "setp" => self.setp(form),
            "set" => self.set(form),
            "selp" => self.selp(form),
            "slct" => self.slct(form),
            "ex2" | "lg2" | "rcp" | "rsqrt" | "sqrt" | "sin" | "cos" | "tanh" | "copysign" | "testp" => {
                self.function(instruction.name, form)
            }
            "cvt" => self.cvt(form),
            "ld" | "ldu" => self.ld(form),
            "st" => self.st(form),
            "atom" | "red" => self.atomic(instruction.name, form),
            "prefetch" | "prefetchu" | "discard" | "applypriority" | "createpolicy" => {
                self.hints(instruction.name, form)
            }
            "mapa" => self.mapa(form),
            "getctarank" => self.getctarank(form),
            "ldmatrix" | "stmatrix" | "movmatrix" => self.move_matrix(instruction.name, form),
            "mma" => self.mma(form),
            "wgmma" => self.wgmma(form),
            "bar" | "barrier" => self.barrier(instruction.name, form),
            "mbarrier" => self.mbarrier(form),
            "fence" | "membar" => self.fence(instruction.name, form),
            "griddepcontrol" | "setmaxnreg" | "trap" | "brkpt" | "nanosleep" | "pmevent" => {
                self.thread(instruction.name, form)
            }
            "cp" => self.copy(form),
            "tensormap" => self.tensormap(form),
            "shfl" | "vote" | "match" | "redux" | "elect" | "activemask" => self.warp(instruction.name, form),
            _ => form.wrong("this instruction is not read"),
        }?;
        form.done()
    }
}
