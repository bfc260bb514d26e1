//! NVIDIA's assembler accepts every combination of an instruction's fields that the verifier accepts, and
//! each family has the number of forms that the ISA's tables give.
//!
//! `cargo xtask test` downloads `ptxas`, names it in `FALCHION_PTXAS`, and runs these tests with the others.

mod arithmetic;
#[path = "../assembler/mod.rs"]
mod assembler;
mod atomics;
mod matrices;

use ptx::{Builder, Entry, Function, Inst, Target};

/// The sources of operands for the instructions of a family.
struct Forms<'f> {
    f: &'f Builder,
    /// Number of forms that the verifier accepts.
    legal: Vec<Inst>,
}

/// Whether the verifier accepts a function with this instruction, its operands taken from `build`'s builder.
fn entry(name: &str) -> Entry {
    Entry { name: name.into(), target: Target::Sm90a, threads: 256, shared_bytes: 65536, cluster: [2, 1, 1] }
}

impl Forms<'_> {
    /// Adds an instruction if its own rules allow it.
    fn add(&mut self, inst: Inst, rules: Result<(), String>) {
        if rules.is_ok() {
            self.f.emit(inst.clone());
            self.legal.push(inst);
        }
    }
}

/// Lets `build` add a family's forms, assembles them all, and returns how many there are.
fn assembled(name: &str, build: impl FnOnce(&mut Forms<'_>)) -> usize {
    let mut count = 0;
    let function = Function::build(entry(name), |f| {
        let mut forms = Forms { f, legal: Vec::new() };
        build(&mut forms);
        count = forms.legal.len();
    });
    let verified = function.verify().unwrap_or_else(|error| panic!("{error}"));
    let report = assembler::assemble(name, &ptx::module_text(&verified));
    assert!(report.accepted, "{}", report.log);
    count
}
