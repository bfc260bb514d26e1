//! A device that is broken: another machine, with instructions that do something else.

use std::time::Duration;

use kernel::{Buffer, Engine, EngineError, Program};
use ptx::abi::{Argument, Grid};
use ptx::inst::Inst;
use ptx::{Function, Statement};

/// A device that changes programs before it runs them.
pub(super) struct Broken<E> {
    pub(super) inner: E,
    pub(super) change: fn(&mut Inst),
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
