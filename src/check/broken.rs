//! A device that is broken: another machine, with instructions that do something else.

use std::time::Duration;

use kernel::{Buffer, Engine, EngineError, Program};
use ptx::abi::{Argument, Grid};
use ptx::inst::Inst;
use ptx::{Function, Statement};

/// A device that changes programs before it runs them, or refuses them.
pub(super) struct Broken<E> {
    pub(super) inner: E,
    pub(super) change: fn(&mut Inst),
    /// Why it refuses a program at a launch, which has a number from 1 on.
    pub(super) refuses: fn(u32, &Program) -> Option<&'static str>,
    pub(super) launches: u32,
}

impl<E> Broken<E> {
    /// It refuses none.
    pub(super) fn new(inner: E, change: fn(&mut Inst)) -> Self {
        Self { inner, change, refuses: |_, _| None, launches: 0 }
    }
}

fn change(block: &mut [Statement], change: fn(&mut Inst)) {
    for statement in block {
        match statement {
            Statement::Inst { inst, .. } => change(inst),
            Statement::If { then, otherwise, .. } => {
                self::change(then, change);
                self::change(otherwise, change);
            }
            Statement::Loop { body, .. } | Statement::Scope { body, .. } => self::change(body, change),
            Statement::Break { .. }
            | Statement::Label(_)
            | Statement::Branch { .. }
            | Statement::Exit { .. } => {}
        }
    }
}

impl<E: Engine> Engine for Broken<E> {
    fn describe(&self) -> String {
        "a broken device".to_owned()
    }

    fn multiprocessors(&self) -> u32 {
        self.inner.multiprocessors()
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError> {
        self.inner.allocate(bytes)
    }

    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError> {
        self.inner.write(buffer, bytes)
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError> {
        self.inner.read(buffer)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), EngineError> {
        self.inner.free(buffer)
    }

    fn launch(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Duration, EngineError> {
        self.launches += 1;
        if let Some(log) = (self.refuses)(self.launches, program) {
            return Err(EngineError::Compile { kernel: "k".to_owned(), log: log.to_owned() });
        }
        let mut function: Function = (**program.function()).clone();
        let before = function.body.clone();
        change(&mut function.body, self.change);
        if function.body == before {
            return self.inner.launch(program, grid, arguments);
        }
        let changed = Program::new(function).expect("legal");
        self.inner.launch(&changed, grid, arguments)
    }
}
