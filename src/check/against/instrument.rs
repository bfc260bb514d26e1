//! Changes a program so that its threads store what their statements have written.
//!
//! A record has [`ENTRY`](super::ENTRY) bytes for each statement that a thread has executed: the number of the [`Point`], and the register's
//! bits. A thread has its own part of the record; its last entry is written again and again when the part is full. Threads outside of
//! the window have one entry each, which nobody reads. No branches are added, and no thread waits for another one.

use std::collections::{BTreeMap, BTreeSet};

use ptx::inst::{Address, BinaryOp, CompareOp, Inst, Operand, Reg, Special};
use ptx::{Function, Name, SourceSite, Space, Statement, Type};

use super::ENTRY;
use super::flow::Flow;
use super::kinds::{Kind, kind, register as of};
use super::memory::{Access, access};
use super::sums::first_reads;
use super::timed::Timed;

/// A register that a statement has written, or the address that it writes to.
#[derive(Clone, Debug)]
pub(super) struct Point {
    /// The number of the statement.
    pub(super) node: usize,
    /// What is recorded.
    pub(super) value: Operand,
    pub(super) site: SourceSite,
    pub(super) name: String,
    pub(super) kind: Kind,
    /// The registers that the statement read, the guard's included.
    pub(super) reads: Vec<Reg>,
    /// The memory that the statement reads or writes; it belongs to the first of its points.
    pub(super) access: Option<Access>,
    /// Whether it depends on time that the statement is executed.
    pub(super) timed: bool,
}

impl Point {
    /// The register that was written.
    pub(super) fn written(&self) -> Option<Reg> {
        of(self.value).filter(|_| self.kind != Kind::Writes)
    }
}

/// Which threads are recorded, and how much of each.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    /// The first thread: threads count through the CTAs of the grid.
    pub(super) first: u64,
    pub(super) count: u64,
    /// Entries of a thread.
    pub(super) capacity: usize,
    pub(super) grid: [u32; 3],
    /// The number of all threads.
    pub(super) all: u64,
}

impl Window {
    /// Bytes of the record.
    pub(super) fn bytes(&self) -> usize {
        self.count as usize * self.stride() + self.all as usize * ENTRY
    }

    /// Bytes of a thread's part.
    pub(super) fn stride(&self) -> usize {
        self.capacity * ENTRY
    }
}

/// How a program is changed.
pub(super) struct Plan<'f> {
    function: &'f Function,
    pub(super) flow: Flow<'f>,
    timed: Timed,
    /// Accumulators that are recorded before a statement, each with the multiply that has written it.
    sums: BTreeMap<usize, Vec<(Reg, usize)>>,
}

impl<'f> Plan<'f> {
    /// What these statements load depends on time.
    pub(super) fn new(function: &'f Function, loads: &BTreeSet<usize>) -> Self {
        let flow = Flow::new(&function.body);
        let timed = Timed::new(&flow, loads);
        let sums = first_reads(&flow, &timed);
        Self { function, flow, timed, sums }
    }

    /// The points of the program, in the order of their numbers, from 1 on.
    pub(super) fn points(&self) -> Vec<Point> {
        let mut changer = Changer::new(self);
        changer.block(self.function.body.clone(), &[]);
        changer.points
    }

    /// The program, with a record at an address.
    pub(super) fn instrumented(&self, record: u64, window: &Window) -> Function {
        let mut changer = Changer::new(self);
        let mut changed = changer.begin(record, window);
        changed.extend(changer.block(self.function.body.clone(), &[]));
        let mut function = changer.function;
        function.body = changed;
        function
    }
}

struct Changer<'p, 'f> {
    plan: &'p Plan<'f>,
    function: Function,
    points: Vec<Point>,
    /// Where the thread stores its next entry, and its last one.
    next: Reg,
    last: Reg,
    word: Reg,
    /// The number of the next statement.
    node: usize,
    /// Points after the blocks whose conditions their own statements change.
    late: Vec<Point>,
}

impl<'p, 'f> Changer<'p, 'f> {
    fn new(plan: &'p Plan<'f>) -> Self {
        let mut function = plan.function.clone();
        function.body = Vec::new();
        let [next, last, word] = [Type::U64, Type::U64, Type::U32].map(|ty| register(&mut function, ty));
        Self { plan, function, points: Vec::new(), next, last, word, node: 0, late: Vec::new() }
    }

    /// Finds the thread's part of the record.
    fn begin(&mut self, record: u64, window: &Window) -> Vec<Statement> {
        let site = SourceSite::new("record".into(), 1, 1);
        let mut made = Vec::new();
        let mut add = |inst: Inst| made.push(Statement::Inst { inst, site: site.clone() });
        let function = &mut self.function;
        let [bx, by, _] = function.block;
        let threads = function.threads();
        let [gx, gy, _] = window.grid;
        let mut special = |special: Special, add: &mut dyn FnMut(Inst)| {
            let dst = register(function, Type::U32);
            add(Inst::ReadSpecial { dst, special });
            dst
        };
        let places = [
            Special::CtaZ,
            Special::CtaY,
            Special::CtaX,
            Special::ThreadZ,
            Special::ThreadY,
            Special::ThreadX,
        ];
        let [cz, cy, cx, tz, ty, tx] = places.map(|place| special(place, &mut add));
        // z, y and x of the CTA, then of the thread: one number.
        let mut index = cz;
        for (extent, part) in [(gy, cy), (gx, cx)] {
            index = mad(function, &mut add, (index, extent), part);
        }
        let mut inner = tz;
        for (extent, part) in [(by, ty), (bx, tx)] {
            inner = mad(function, &mut add, (inner, extent), part);
        }
        let thread = mad(function, &mut add, (index, threads), inner);
        let [from, inside] = [Type::U32, Type::Pred].map(|ty| register(function, ty));
        let [own, end, idle] = [Type::U64; 3].map(|ty| register(function, ty));
        let sub = |dst, a, b| Inst::Binary {
            op: BinaryOp::Sub,
            ty: Type::U32,
            dst,
            a: Operand::Reg(a),
            b: Operand::Imm(b),
        };
        add(sub(from, thread, window.first));
        let count = Operand::Imm(window.count);
        add(Inst::Compare { op: CompareOp::Lt, ty: Type::U32, dst: inside, a: Operand::Reg(from), b: count });
        let mut at = |dst, number, stride: usize, base: u64| {
            add(Inst::MulWide { dst, a: Operand::Reg(number), b: Operand::Imm(stride as u64) });
            add(sum(dst, dst, base));
        };
        at(own, from, window.stride(), record);
        at(idle, thread, ENTRY, record + window.count * window.stride() as u64);
        add(sum(end, own, (window.stride() - ENTRY) as u64));
        for (dst, yes) in [(self.next, own), (self.last, end)] {
            let (a, b, cond) = (Operand::Reg(yes), Operand::Reg(idle), Operand::Reg(inside));
            add(Inst::Select { ty: Type::U64, dst, a, b, cond });
        }
        made
    }

    fn block(&mut self, block: Vec<Statement>, guards: &[Reg]) -> Vec<Statement> {
        let mut made = Vec::new();
        for statement in block {
            let node = self.node;
            self.node += 1;
            match statement {
                // The kernel runs alone, and stores before it would wait for others.
                Statement::Inst { inst: Inst::GridDependency { .. }, .. } => {}
                Statement::Inst { inst, site } => {
                    let (before, after) = self.around(node, &inst, &site, guards);
                    made.extend(before);
                    made.push(Statement::Inst { inst, site });
                    made.extend(after);
                }
                Statement::If { cond, then, otherwise, site } => {
                    let inner: Vec<Reg> = guards.iter().copied().chain(of(cond)).collect();
                    let [then, otherwise] = [then, otherwise].map(|block| self.block(block, &inner));
                    made.push(Statement::If { cond, then, otherwise, site });
                    let is_guard =
                        |point: &mut Point| of(point.value).is_some_and(|reg| !guards.contains(&reg));
                    let late: Vec<Point> = self.late.extract_if(.., is_guard).collect();
                    made.extend(late.into_iter().flat_map(|point| self.store(point)));
                }
                Statement::Loop { body, site } => {
                    made.push(Statement::Loop { body: self.block(body, guards), site });
                }
                Statement::Scope { name, body } => {
                    made.push(Statement::Scope { name, body: self.block(body, guards) });
                }
                other @ (Statement::Break { .. }
                | Statement::Label(_)
                | Statement::Branch { .. }
                | Statement::Exit { .. }) => {
                    made.push(other);
                }
            }
        }
        made
    }

    /// What stands before and after an instruction.
    fn around(
        &mut self,
        node: usize,
        inst: &Inst,
        site: &SourceSite,
        guards: &[Reg],
    ) -> (Vec<Statement>, Vec<Statement>) {
        let plan = self.plan;
        let mut before = Vec::new();
        for &(reg, by) in plan.sums.get(&node).map_or(&[][..], Vec::as_slice) {
            let Some(Statement::Inst { inst, site }) = plan.flow.nodes.get(by).map(|node| node.statement)
            else {
                continue;
            };
            if !plan.timed.regs.contains(&reg) {
                let (kind, name) = (kind(inst), inst.name().to_owned());
                let (node, site, reads) = (by, site.clone(), Vec::new());
                let value = Operand::Reg(reg);
                let point = Point { node, value, site, name, kind, reads, access: None, timed: false };
                before.extend(self.store(point));
            }
        }
        if matches!(inst, Inst::Wgmma { .. }) {
            return (before, Vec::new());
        }
        let operands = inst.operands();
        let reads: Vec<Reg> = operands
            .reads
            .iter()
            .filter_map(|(operand, _)| of(*operand))
            .chain(guards.iter().copied())
            .collect();
        let timed = plan.timed.nodes.contains(&node);
        let is_loose = timed || reads.iter().any(|reg| plan.timed.regs.contains(reg));
        let mut access = access(inst);
        let point = |value, kind, access| {
            let (site, name, reads) = (site.clone(), inst.name().to_owned(), reads.clone());
            Point { node, value, site, name, kind, reads, access, timed }
        };
        if let Some(mut access) = access.take_if(|access| access.writes) {
            // The rounds of a poll are not counted.
            let is_poll = timed && !operands.writes.is_empty() && plan.flow.repeats(node, &plan.timed.nodes);
            if is_loose {
                access.varies.get_or_insert("what it writes depends on time");
            }
            if !is_poll {
                before.extend(self.store(point(access.address.base, Kind::Writes, Some(access))));
            }
        }
        let mut after = Vec::new();
        for (reg, _) in operands.writes {
            if is_loose || plan.timed.regs.contains(&reg) {
                continue;
            }
            let point = point(Operand::Reg(reg), kind(inst), access.take());
            // A guard that its own instruction changes no longer says which threads have executed it.
            if guards.contains(&reg) {
                self.late.push(point);
            } else {
                after.extend(self.store(point));
            }
        }
        (before, after)
    }

    /// Stores a register or a number.
    fn store(&mut self, point: Point) -> Vec<Statement> {
        let (value, site) = (point.value, point.site.clone());
        self.points.push(point);
        let number = self.points.len() as u64;
        let base = Operand::Reg(self.next);
        let at = |offset: i32, ty, src| Inst::Store {
            space: Space::Global,
            ty,
            src: vec![src],
            address: Address { base, offset },
        };
        let mut insts = vec![at(0, Type::U32, Operand::Imm(number))];
        let ty = of(value).map_or(Type::U64, |reg| self.function.registers[reg.0 as usize]);
        if ty == Type::Pred {
            let (a, b, cond) = (Operand::Imm(1), Operand::Imm(0), value);
            insts.push(Inst::Select { ty: Type::U32, dst: self.word, a, b, cond });
            insts.push(at(8, Type::U32, Operand::Reg(self.word)));
        } else {
            insts.push(at(8, ty.untyped(), value));
        }
        insts.push(sum(self.next, self.next, ENTRY as u64));
        let (a, b) = (Operand::Reg(self.next), Operand::Reg(self.last));
        insts.push(Inst::Binary { op: BinaryOp::Min, ty: Type::U64, dst: self.next, a, b });
        insts.into_iter().map(|inst| Statement::Inst { inst, site: site.clone() }).collect()
    }
}

/// A new register.
fn register(function: &mut Function, ty: Type) -> Reg {
    let number = function.registers.len() as u32;
    function.registers.push(ty);
    if !function.names.is_empty() {
        function.names.push(Name::from(format!("%record_{number}")));
    }
    Reg(number)
}

fn sum(dst: Reg, a: Reg, b: u64) -> Inst {
    Inst::Binary { op: BinaryOp::Add, ty: Type::U64, dst, a: Operand::Reg(a), b: Operand::Imm(b) }
}

/// `a * extent + part`.
fn mad(function: &mut Function, add: &mut dyn FnMut(Inst), (a, extent): (Reg, u32), part: Reg) -> Reg {
    let dst = register(function, Type::U32);
    let (b, c) = (Operand::Imm(extent.into()), Operand::Reg(part));
    add(Inst::MulAdd { ty: Type::U32, dst, a: Operand::Reg(a), b, c });
    dst
}
