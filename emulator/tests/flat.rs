//! Programs with labels and branches: any graph of blocks, ends of threads, spaces and types that only programs from elsewhere have.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

#[path = "flat/graphs.rs"]
mod graphs;
#[path = "flat/machine.rs"]
mod machine;
#[path = "flat/spaces.rs"]
mod spaces;

use std::cell::Cell;

use emulator::{Failure, Memory, Options, Program, Schedule};
use ptx::abi::{Argument, Grid};
use ptx::inst::{Address, BinaryOp, CompareOp, WarpInst};
use ptx::{
    Builder, Entry, Function, Guard, Inst, Operand, Reg, SourceSite, Space, Special, Statement, Target, Type,
};

/// The line of the caller.
#[track_caller]
fn here() -> SourceSite {
    SourceSite::caller()
}

/// A flat body under construction, with registers that every program needs.
struct Flat {
    function: Function,
    /// The address of this lane's word of the result.
    out: Reg,
    lane: Reg,
}

impl Flat {
    /// A program of one warp, or of more threads. Its parameter is the address of the results, one word per thread.
    fn new(threads: u32) -> Self {
        let entry = Entry {
            name: "flat".into(),
            target: Target::Sm90a,
            threads,
            shared_bytes: 4096,
            cluster: [1; 3],
        };
        let registers = Cell::new((Reg(0), Reg(0)));
        let function = Function::build(entry, |f: &Builder| {
            let out = f.param::<u64>("out");
            let thread = f.special(Special::ThreadX);
            let lane = f.special(Special::Lane);
            let address = f.variable(out + thread.mul_wide(4));
            let lane = f.variable(lane);
            registers.set((address.reg(), lane.reg()));
        });
        let (out, lane) = registers.get();
        Self { function, out, lane }
    }

    fn register(&mut self, ty: Type) -> Reg {
        self.function.registers.push(ty);
        Reg(u32::try_from(self.function.registers.len() - 1).unwrap())
    }

    #[track_caller]
    fn inst(&mut self, inst: Inst) {
        self.function.body.push(Statement::Inst { inst, site: here() });
    }

    /// A new register that holds a number.
    #[track_caller]
    fn number(&mut self, value: u32) -> Reg {
        let dst = self.register(Type::U32);
        self.set(dst, Operand::Imm(value.into()));
        dst
    }

    #[track_caller]
    fn set(&mut self, dst: Reg, src: Operand) {
        self.inst(Inst::Move { ty: Type::U32, dst, src });
    }

    /// `dst = a op b`.
    #[track_caller]
    fn binary(&mut self, op: BinaryOp, dst: Reg, a: Reg, b: impl Into<Number>) {
        let (a, b) = (Operand::Reg(a), b.into().0);
        self.inst(Inst::Binary { op, ty: Type::U32, dst, a, b });
    }

    /// A new predicate: `a op b`.
    #[track_caller]
    fn compare(&mut self, op: CompareOp, a: Reg, b: impl Into<Number>) -> Reg {
        let dst = self.register(Type::Pred);
        self.inst(Inst::Compare { op, ty: Type::U32, dst, a: Operand::Reg(a), b: b.into().0 });
        dst
    }

    fn label(&mut self, name: &str) {
        self.function.body.push(Statement::Label(name.to_owned().into()));
    }

    #[track_caller]
    fn branch(&mut self, guard: Option<(Reg, bool)>, target: &str) {
        let guard = guard.map(|(cond, negated)| Guard { cond: Operand::Reg(cond), negated });
        let target = target.to_owned().into();
        self.function.body.push(Statement::Branch { guard, target, site: here() });
    }

    #[track_caller]
    fn exit(&mut self, guard: Option<(Reg, bool)>) {
        let guard = guard.map(|(cond, negated)| Guard { cond: Operand::Reg(cond), negated });
        self.function.body.push(Statement::Exit { guard, site: here() });
    }

    /// Stores this lane's result.
    #[track_caller]
    fn store(&mut self, value: Reg) {
        let address = Address { base: Operand::Reg(self.out), offset: 0 };
        self.inst(Inst::Store {
            space: Space::Global,
            ty: Type::U32,
            src: vec![Operand::Reg(value)],
            address,
        });
    }

    /// A new register that holds the lanes that execute now.
    #[track_caller]
    fn active(&mut self) -> Reg {
        let dst = self.register(Type::U32);
        self.inst(Inst::Warp(WarpInst::ActiveMask { dst }));
        dst
    }

    fn program(&self) -> Program {
        let verified = self.function.clone().verify().unwrap_or_else(|error| panic!("{error}"));
        // What can be verified can be printed.
        assert!(ptx::module_text(&verified).contains(".entry flat("));
        Program::new(&verified)
    }

    /// The results; what was never written is 0.
    fn run(&self, options: &Options<'_>) -> Result<Vec<u32>, Failure> {
        let threads = self.function.threads() as usize;
        let mut memory = Memory::new();
        let out = memory.upload(&vec![0; threads * 4]);
        self.launch(&[out.into()], &memory, options)?;
        let bytes = memory.read(out, threads * 4).unwrap();
        Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
    }

    fn launch(&self, arguments: &[Argument], memory: &Memory, options: &Options<'_>) -> Result<(), Failure> {
        self.program().launch(Grid { ctas: [1; 3] }, arguments, memory, options).map(drop)
    }

    fn results(&self) -> Vec<u32> {
        self.run(&Options::default()).unwrap_or_else(|failure| panic!("{failure}"))
    }
}

/// The second operand of an operation.
struct Number(Operand);

impl From<Reg> for Number {
    fn from(reg: Reg) -> Self {
        Self(Operand::Reg(reg))
    }
}

impl From<u32> for Number {
    fn from(value: u32) -> Self {
        Self(Operand::Imm(value.into()))
    }
}

/// Whether `activemask` names all lanes that are there. Under other schedules some seem to execute it apart.
fn tells_who_is_there(options: &Options<'_>) -> bool {
    matches!(options.schedule, Schedule::Default | Schedule::Earliest | Schedule::Paced)
}

/// The schedules of each test.
fn schedules() -> impl Iterator<Item = Options<'static>> {
    let fixed = [Schedule::Default, Schedule::Latest].map(|schedule| (schedule, 0));
    let all = fixed.into_iter().chain((0..6).map(|seed| (Schedule::Random, seed)));
    all.map(|(schedule, seed)| Options { schedule, seed, ..Options::default() })
}
