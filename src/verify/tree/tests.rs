//! Samples of fused products: right ones are found right, and mistakes of every kind are found.

use std::time::Duration;

use collective::Formula;
use kernel::{Buffer, Emulator, Engine, EngineError, GemmProblem, Program};
use ptx::abi::{Argument, Grid};

use super::{Bench, TreeError};
use crate::verify::Format;
use crate::verify::fusions::any_columns;

/// The emulator, or nothing, and then some bytes that change in the buffer that was allocated first.
struct Meddling {
    emulator: Emulator,
    computes: bool,
    first: Option<Buffer>,
    changes: Vec<(usize, u8)>,
}

impl Engine for Meddling {
    fn describe(&self) -> String {
        "one that makes mistakes".to_owned()
    }

    fn multiprocessors(&self) -> u32 {
        self.emulator.multiprocessors()
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError> {
        let buffer = self.emulator.allocate(bytes)?;
        self.first.get_or_insert(buffer);
        Ok(buffer)
    }

    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError> {
        self.emulator.write(buffer, bytes)
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError> {
        self.emulator.read(buffer)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), EngineError> {
        self.emulator.free(buffer)
    }

    fn launch(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Duration, EngineError> {
        let time = match self.computes {
            true => self.emulator.launch(program, grid, arguments)?,
            false => Duration::ZERO,
        };
        if let Some(buffer) = self.first.filter(|_| !self.changes.is_empty()) {
            let mut bytes = self.emulator.read(buffer)?;
            for &(at, byte) in &self.changes {
                bytes[at] = byte;
            }
            self.emulator.write(buffer, &bytes)?;
        }
        Ok(time)
    }
}

/// Rows, pairs and blocks of columns, whole columns and whole matrices: each fusion gets what it needs.
#[test]
fn every_fusion_is_checked_on_a_sample() {
    let problem = GemmProblem { m: 200, n: 512, k: 72 };
    for fusion in Formula::all() {
        let name = fusion.name();
        let mut emulator = Emulator::new();
        let mut bench = Bench::new(&mut emulator, 3).sampled_above(0);
        let kernel = any_columns(fusion, Format::Bf16).expect("a legal kernel");
        let checked = kernel.check(&mut bench, problem).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (all, columns) = (["bias-amax", "bias-fp8"], ["bias-sums", "bias-sums-ordered"]);
        let want = if all.contains(&name) {
            [200, 512]
        } else if columns.contains(&name) {
            [200, 16]
        } else {
            [96, 96]
        };
        assert_eq!(checked.places, want, "{name}");
        assert!(checked.compared >= want[0] * want[1] && checked.ratio > 0.0, "{name}: {checked:?}");
    }
}

#[test]
fn mistakes_are_found_on_a_sample() {
    let problem = GemmProblem { m: 200, n: 256, k: 72 };
    let element = |row: usize, column: usize| (row * 256 + column) * 2;
    let set = |at: usize, bits: u16| {
        let [low, high] = bits.to_le_bytes();
        vec![(at, low), (at + 1, high)]
    };
    for (why, computes, changes, want) in [
        ("nothing", true, vec![], "right"),
        ("a number in the sample", true, set(element(0, 0), 0x4780), "value"),
        ("the last", true, set(element(199, 255), 0x4780), "value"),
        ("a number outside of the sample", true, set(element(1, 1), 0x4780), "right"),
        ("one outside of the sample is not written", true, set(element(1, 1), 0xFFFF), "unwritten"),
        ("behind D", true, set(element(200, 0), 0x4780), "beside"),
        ("nothing is written", false, vec![], "unwritten"),
    ] {
        let mut engine = Meddling { emulator: Emulator::new(), computes, first: None, changes };
        let mut bench = Bench::new(&mut engine, 3).sampled_above(0);
        let kernel =
            any_columns("alpha*acc".parse().expect("a formula"), Format::Bf16).expect("a legal kernel");
        let found = match kernel.check(&mut bench, problem) {
            Ok(_) => "right",
            Err(TreeError::Value { .. }) => "value",
            Err(TreeError::Unwritten { .. }) => "unwritten",
            Err(TreeError::Beside { .. }) => "beside",
            Err(other) => panic!("{why}: {other}"),
        };
        assert_eq!(found, want, "{why}");
    }
}

/// More than 2^33 multiplications, of which only a sample is compared without being asked to.
#[test]
fn large_products_are_sampled() {
    let problem = GemmProblem { m: 2048, n: 2048, k: 2049 };
    let (emulator, changes) = (Emulator::new(), Vec::new());
    let mut engine = Meddling { emulator, computes: false, first: None, changes };
    let kernel = any_columns("rope".parse().expect("a formula"), Format::Bf16).expect("a legal kernel");
    let outcome = kernel.check(&mut Bench::new(&mut engine, 3), problem);
    assert!(matches!(outcome, Err(TreeError::Unwritten { row: 0, column: 0 })), "{outcome:?}");
}
