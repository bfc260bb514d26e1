//! The emulator is the device, with an instruction that computes something else.

use std::time::Duration;

use kernel::{Buffer, Emulator, Engine, EngineError, Program};
use ptx::abi::{Argument, Grid};
use ptx::inst::{Alu, AluOp, ApproxOp, BinaryOp, Inst};
use ptx::{Function, Statement};

use super::{Comparison, against};
use crate::check::Launch;

/// An emulated device that changes programs before it runs them.
struct Broken {
    inner: Emulator,
    change: fn(&mut Inst),
}

impl Broken {
    /// Its addresses are others than those of the emulator that it is compared with.
    fn new(change: fn(&mut Inst)) -> Self {
        let mut inner = Emulator::new().with_numerics(emulator::Numerics::Exact);
        inner.allocate(1 << 12).expect("memory");
        Self { inner, change }
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

impl Engine for Broken {
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
        change(&mut function.body, self.change);
        let changed = Program::new(function).expect("legal");
        self.inner.launch(&changed, grid, arguments)
    }
}

/// Each thread computes, hands its value to another thread, and computes again.
const TEXT: &str = "
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(
    .param .u64 x,
    .param .u64 y,
    .param .u32 n
)
.reqntid 64, 1, 1
{
    .shared .align 4 .b8 words[256];
    .reg .pred %p<3>;
    .reg .b32 %r<16>;
    .reg .f32 %f<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    mad.lo.u32 %r4, %r3, 64, %r2;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f1, [%rd4];
    mul.f32 %f2, %f1, 0f3F000000;
    mov.u32 %r5, words;
    mad.lo.u32 %r6, %r2, 4, %r5;
    st.shared.f32 [%r6], %f2;
    bar.sync 0;
    xor.b32 %r7, %r2, 63;
    mad.lo.u32 %r8, %r7, 4, %r5;
    ld.shared.f32 %f3, [%r8];
    mov.u32 %r9, 0;
$again:
    add.f32 %f3, %f3, %f1;
    add.u32 %r9, %r9, 1;
    setp.lt.u32 %p1, %r9, %r1;
    @%p1 bra $again;
    ex2.approx.f32 %f4, %f1;
    setp.gt.f32 %p2, %f1, 0f00000000;
    @%p2 sub.f32 %f3, %f3, %f4;
    st.global.f32 [%rd5], %f3;
    ret;
}
";

fn compared(change: fn(&mut Inst), launches: u32) -> Comparison {
    let text = format!(
        "
        ptx = \"k.ptx\"
        grid = [2, 1, 1]
        launches = {launches}
        argument = [{{ buffer = \"x\" }}, {{ buffer = \"y\" }}, {{ scalar = \"u32\", value = 5 }}]

        [[buffer]]
        name = \"x\"
        element = \"f32\"
        count = 128
        random = {{ seed = 3, low = -1.0, high = 1.0 }}

        [[buffer]]
        name = \"y\"
        element = \"f32\"
        count = 128
        "
    );
    let mut launch = Launch::read(&text).expect("a description");
    launch.load(&|_| Ok(TEXT.into())).expect("a text");
    against(&launch, &mut Broken::new(change)).expect("both run")
}

#[test]
fn equal_machines_are_equal() {
    let comparison = compared(|_| {}, 2);
    assert!(comparison.after.is_none() && !comparison.is_wrong(), "{comparison}");
    assert!(comparison.to_string().contains("every bit"), "{comparison}");
}

/// A statement that computes something else is named, however many values come from it in this thread and in others.
#[test]
fn the_broken_statement_is_named() {
    let mul = |inst: &mut Inst| {
        if let Inst::Binary { op: op @ BinaryOp::Mul, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Max;
        }
    };
    let comparison = compared(mul, 1);
    let origin = comparison.origin.as_ref().expect("found");
    assert_eq!(origin.spot.text, "mul.f32 %f2, %f1, 0f3F000000;", "{comparison}");
    assert!(!origin.reads && origin.register == "%f2" && comparison.is_wrong(), "{comparison}");
    assert_eq!(comparison.differences[0].buffer, "y");
}

/// A statement in a loop, and a guarded one.
#[test]
fn broken_statements_are_named_where_they_are_executed() {
    let add = |inst: &mut Inst| {
        if let Inst::Binary { op: op @ BinaryOp::Add, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Sub;
        }
    };
    let sub = |inst: &mut Inst| {
        if let Inst::Binary { op: op @ BinaryOp::Sub, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Add;
        }
    };
    for (change, text) in
        [(add as fn(&mut Inst), "add.f32 %f3, %f3, %f1;"), (sub, "@%p2 sub.f32 %f3, %f3, %f4;")]
    {
        let comparison = compared(change, 1);
        let origin = comparison.origin.as_ref().expect("found");
        assert_eq!(origin.spot.text, text, "{comparison}");
    }
}

/// A store that writes something else shows where it is read.
#[test]
fn what_no_register_shows_is_found_where_it_is_read() {
    let store = |inst: &mut Inst| {
        if let Inst::Store { space: ptx::Space::Shared, src, .. } = inst {
            src[0] = ptx::inst::Operand::Imm(0x4000_0000);
        }
    };
    let comparison = compared(store, 1);
    let origin = comparison.origin.as_ref().expect("found");
    assert_eq!(origin.spot.text, "ld.shared.f32 %f3, [%r8];", "{comparison}");
    assert!(origin.reads, "{comparison}");
}

/// An approximation may be another one. What comes from it is no difference of its own.
#[test]
fn approximations_are_excused() {
    let approximate = |inst: &mut Inst| {
        if let Inst::Alu(Alu { op: op @ AluOp::Approx(ApproxOp::Exp2), .. }) = inst {
            *op = AluOp::Approx(ApproxOp::Tanh);
        }
    };
    let comparison = compared(approximate, 1);
    assert!(
        comparison.after.is_some() && comparison.origin.is_none() && !comparison.is_wrong(),
        "{comparison}"
    );
    assert_eq!(comparison.excused.len(), 1, "{comparison}");
    assert_eq!(comparison.excused[0].spot.text, "ex2.approx.f32 %f4, %f1;");
    // Another mistake beside it is found all the same.
    let both = |inst: &mut Inst| {
        if let Inst::Alu(Alu { op: op @ AluOp::Approx(ApproxOp::Exp2), .. }) = inst {
            *op = AluOp::Approx(ApproxOp::Tanh);
        }
        if let Inst::Binary { op: op @ BinaryOp::Mul, ty: ptx::Type::F32, .. } = inst {
            *op = BinaryOp::Max;
        }
    };
    let comparison = compared(both, 1);
    assert!(comparison.is_wrong() && comparison.origin.is_some_and(|origin| origin.register == "%f2"));
}
