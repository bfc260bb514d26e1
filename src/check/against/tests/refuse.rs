//! Devices that refuse a program.

use std::time::Duration;

use kernel::{Buffer, Emulator, Engine, EngineError, Program};
use ptx::abi::{Argument, Grid};
use ptx::inst::{BinaryOp, Inst};

use super::super::against;
use super::{TEXT, described, other};
use crate::check::broken::Broken;

/// A device that refuses some launches, which it counts.
struct Refusing {
    inner: Broken<Emulator>,
    launches: u32,
    why: fn(u32, &Program) -> Option<&'static str>,
}

impl Engine for Refusing {
    fn describe(&self) -> String {
        self.inner.describe()
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
        match (self.why)(self.launches, program) {
            Some(log) => Err(EngineError::Compile { kernel: "k".to_owned(), log: log.to_owned() }),
            None => self.inner.launch(program, grid, arguments),
        }
    }
}

/// The text is compiled as of the version that the device reads, and the report says so.
#[test]
fn a_newer_version_is_lowered() {
    let mut launch = described(2);
    launch.kernels[0].text = TEXT.replace(".version 8.0", ".version 9.4");
    let why = |_, program: &Program| {
        program
            .text()
            .contains(".version 9.4")
            .then_some("Unsupported .version 9.4; current version is '9.0'")
    };
    let inner = Broken { inner: other(), change: |_| {} };
    let mut device = Refusing { inner, launches: 0, why };
    let comparison = against(&launch, &mut device).expect("both run");
    assert!(comparison.after.is_none() && !comparison.is_wrong(), "{comparison}");
    assert_eq!(comparison.notes.len(), 1, "{comparison}");
    assert!(comparison.to_string().contains("of PTX 9.4") && comparison.notes[0].ends_with("PTX 9.0"));
    // What is refused for another reason stays refused.
    device.why = |_, _| Some("no");
    assert!(against(&launch, &mut device).is_err());
}

/// Where the program that records fails, the buffers are compared all the same.
#[test]
fn a_program_that_does_not_record_says_so() {
    let change = |inst: &mut Inst| {
        if let Inst::Binary { op: op @ BinaryOp::Mul, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Max;
        }
    };
    let why = |launch, _: &Program| (launch > 1).then_some("misaligned address");
    let mut device = Refusing { inner: Broken { inner: other(), change }, launches: 0, why };
    let comparison = against(&described(1), &mut device).expect("the first launch runs");
    assert!(comparison.is_wrong() && comparison.origin.is_none(), "{comparison}");
    assert_eq!(comparison.differences[0].buffer, "y", "{comparison}");
    assert!(comparison.to_string().contains("registers cannot be compared"), "{comparison}");
}
