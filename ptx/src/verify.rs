//! The static verifier: it checks the invariants that the printer and the emulator rely on.
//!
//! A [`Verified`] function satisfies:
//! 1. *Names*: the names of the entry and of all parameters are C identifiers; parameter names are distinct.
//! 2. *Limits*: threads, shared memory and cluster fit the target.
//! 3. *Registers*: each register exists, and is read and written as its own type.
//! 4. *Definition*: on each path, a register is written before it is read; in a flat body, on some path to the read, or the read is a
//!    `mov`. Exception: accumulators of `wgmma`. Whether the instruction reads or overwrites them is known only at run time, where the
//!    emulator checks it.
//! 5. *Structure*: a break is inside a loop; conditions are predicates. In a flat body, each branch has its label, each label stands
//!    once, and guards are those of instructions.
//! 6. *Forms*: each instruction exists in PTX: vector widths, ranges of immediates, `wgmma` shapes, types of
//!    operations.
//!
//! All violations are reported, each with the line of the kernel's source that built the statement.

use core::fmt;
use core::ops::Deref;

use crate::function::{Function, Statement};
use crate::inst::barrier::EVERYONE;
use crate::inst::{
    BarrierReduce, BinaryOp, CompareOp, Expect, Inst, LooseBarrier, Operand, OrderedInst, Reg, UnaryOp,
};
use crate::param::ParamKind;
use crate::site::SourceSite;
use crate::types::{Space, Type};

/// A function that has passed [`Function::verify`]. It can be printed and executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified(Function);

impl Deref for Verified {
    type Target = Function;
    fn deref(&self) -> &Function {
        &self.0
    }
}

/// One violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where the statement was built. `None` if the violation is one of the whole function.
    pub site: Option<SourceSite>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.site {
            Some(site) => write!(f, "{site}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// The violations of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The entry's name.
    pub function: String,
    /// All violations, at least one.
    pub violations: Vec<Violation>,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}` is not a legal program:", self.function)?;
        self.violations.iter().try_for_each(|violation| write!(f, "\n  {violation}"))
    }
}

impl std::error::Error for VerifyError {}

impl Function {
    /// Checks the function: names, limits of the target, types and definition of registers, structure, and
    /// the form of each instruction.
    ///
    /// # Errors
    /// All violations that were found.
    pub fn verify(self) -> Result<Verified, VerifyError> {
        let is_flat = self.is_flat();
        let mut checker = Checker { function: &self, is_flat, violations: self.refusals.clone(), site: None };
        checker.function_as_a_whole();
        let mut defined = vec![false; self.registers.len()];
        accumulators(&self.body, &mut defined);
        if is_flat {
            checker.flat(defined);
        } else {
            checker.block(&self.body, &mut defined, &mut None);
        }
        let violations = checker.violations;
        if violations.is_empty() {
            Ok(Verified(self))
        } else {
            Err(VerifyError { function: self.name, violations })
        }
    }
}

struct Checker<'a> {
    function: &'a Function,
    is_flat: bool,
    violations: Vec<Violation>,
    site: Option<SourceSite>,
}

/// The registers that are defined at the exit of the innermost loop. The outer `Option` is `None` outside of
/// loops, the inner one before the first break.
type Exit = Option<Option<Vec<bool>>>;

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Whether arithmetic and comparisons of a whole register exist for a type.
fn is_number(ty: Type) -> bool {
    ty.is_integer() || matches!(ty, Type::F32 | Type::F64)
}

/// Whether a type is bits that can be combined and compared.
fn is_bits(ty: Type) -> bool {
    ty.is_untyped() && ty != Type::B8
}

fn meet(into: &mut [bool], other: &[bool]) {
    for (a, b) in into.iter_mut().zip(other) {
        *a &= b;
    }
}

/// Marks each register that is an accumulator of a `wgmma`.
fn accumulators(statements: &[Statement], marked: &mut [bool]) {
    for statement in statements {
        match statement {
            Statement::Inst { inst: Inst::Wgmma { d, .. }, .. } => {
                for reg in d {
                    if let Some(mark) = marked.get_mut(reg.0 as usize) {
                        *mark = true;
                    }
                }
            }
            Statement::If { then, otherwise, .. } => {
                accumulators(then, marked);
                accumulators(otherwise, marked);
            }
            Statement::Loop { body, .. } | Statement::Scope { body, .. } => accumulators(body, marked),
            Statement::Inst { .. }
            | Statement::Break { .. }
            | Statement::Label(_)
            | Statement::Branch { .. }
            | Statement::Exit { .. } => {}
        }
    }
}

impl Checker<'_> {
    fn fail(&mut self, message: String) {
        self.violations.push(Violation { site: self.site.clone(), message });
    }

    fn require(&mut self, holds: bool, message: impl FnOnce() -> String) {
        if !holds {
            self.fail(message());
        }
    }

    fn function_as_a_whole(&mut self) {
        let function = self.function;
        let limits = function.target.limits();
        self.require(is_identifier(&function.name), || {
            format!("the entry's name `{}` is not an identifier", function.name)
        });
        for (i, param) in function.params.iter().enumerate() {
            self.require(is_identifier(&param.name), || {
                format!("parameter name `{}` is not an identifier", param.name)
            });
            let repeated = function.params[..i].iter().any(|other| other.name == param.name);
            self.require(!repeated, || format!("parameter `{}` is declared twice", param.name));
            let storable = !matches!(param.kind, ParamKind::Scalar(Type::Pred));
            self.require(storable, || format!("parameter `{}` is a predicate", param.name));
        }
        let (threads, [x, y, z]) = (function.threads(), function.block);
        let (least, step) = if self.is_flat { (1, 1) } else { (32, 32) };
        let legal = threads.is_multiple_of(step) && (least..=limits.threads).contains(&threads) && z <= 64;
        self.require(legal, || {
            let multiple = if step == 1 { "" } else { "a multiple of 32 in " };
            let block = if [y, z] == [1, 1] {
                String::new()
            } else {
                format!(" ({x} x {y} x {z}, 64 at most along z)")
            };
            format!("{threads} threads per CTA{block}, not {multiple}{least}..={}", limits.threads)
        });
        let (names, registers) = (function.names.len(), function.registers.len());
        self.require(names == 0 || names == registers, || format!("{names} names of {registers} registers"));
        let addresses = function.params.iter().rev().map(|param| &param.name);
        let named =
            addresses.zip(function.variables.iter().rev()).all(|(name, variable)| *name == variable.name);
        self.require(named && function.variables.len() <= function.params.len(), || {
            "the last parameters are not the addresses of the variables".to_owned()
        });
        let bytes = function.all_shared();
        self.require(bytes <= limits.shared_bytes, || {
            format!("{bytes} B of shared memory, a CTA has {} B", limits.shared_bytes)
        });
        let ctas = function.cluster.iter().product::<u32>();
        self.require((1..=limits.cluster).contains(&ctas), || {
            format!("a cluster of {ctas} CTAs, not 1..={}", limits.cluster)
        });
    }

    fn block(&mut self, statements: &[Statement], defined: &mut Vec<bool>, exit: &mut Exit) {
        for statement in statements {
            match statement {
                Statement::Inst { inst, site } => {
                    self.site = Some(site.clone());
                    self.inst(inst, defined);
                }
                Statement::If { cond, then, otherwise, site } => {
                    self.site = Some(site.clone());
                    self.read(*cond, Expect::Type(Type::Pred), defined);
                    let mut other = defined.clone();
                    self.block(then, defined, exit);
                    self.block(otherwise, &mut other, exit);
                    meet(defined, &other);
                }
                Statement::Loop { body, site } => {
                    self.site = Some(site.clone());
                    let mut inner: Exit = Some(None);
                    self.block(body, defined, &mut inner);
                    if let Some(Some(left)) = inner {
                        *defined = left;
                    }
                }
                Statement::Break { cond, site } => {
                    self.site = Some(site.clone());
                    self.read(*cond, Expect::Type(Type::Pred), defined);
                    match exit {
                        None => self.fail("a break outside every loop".to_owned()),
                        Some(None) => *exit = Some(Some(defined.clone())),
                        Some(Some(left)) => meet(left, defined),
                    }
                }
                Statement::Scope { body, .. } => self.block(body, defined, exit),
                // Bodies with one of these are flat.
                Statement::Label(_) | Statement::Branch { .. } | Statement::Exit { .. } => {}
            }
        }
    }

    fn ty(&self, reg: Reg) -> Option<Type> {
        self.function.registers.get(reg.0 as usize).copied()
    }

    fn fits(&mut self, reg: Reg, expect: Expect) {
        let Some(ty) = self.ty(reg) else { return self.fail(format!("register {} does not exist", reg.0)) };
        let (fits, wanted) = match expect {
            Expect::Type(wanted) => (ty.fits(wanted), wanted),
            Expect::Holds(wanted) => (ty.holds(wanted), wanted),
            Expect::Accumulator => (ty.bits() == 32, Type::B32),
        };
        if !fits {
            let register = self.function.register_name(reg).unwrap_or_default();
            self.fail(format!("register {register} is .{ty} where .{wanted} is needed"));
        }
    }

    fn read(&mut self, operand: Operand, expect: Expect, defined: &[bool]) {
        if let Operand::Reg(reg) = operand {
            self.fits(reg, expect);
            let known = defined.get(reg.0 as usize).copied().unwrap_or(true);
            if !known {
                let register = self.function.register_name(reg).unwrap_or_default();
                let paths = if self.is_flat { "no path has" } else { "a path has not" };
                self.fail(format!("register {register} is read where {paths} written it"));
            }
        }
    }

    fn inst(&mut self, inst: &Inst, defined: &mut [bool]) {
        let operands = inst.operands();
        for (operand, expect) in operands.reads {
            self.read(operand, expect, defined);
        }
        for (reg, expect) in operands.writes {
            self.fits(reg, expect);
            if let Some(flag) = defined.get_mut(reg.0 as usize) {
                *flag = true;
            }
        }
        self.form(inst);
    }

    /// Checks the form of an instruction: invariant 6.
    fn form(&mut self, inst: &Inst) {
        match inst {
            Inst::Binary { op, ty, .. } => self.binary(*op, *ty),
            Inst::MulAdd { ty, .. } => self.number(*ty, |ty| format!("mad does not exist for .{ty}")),
            Inst::Unary { op, ty, .. } => self.unary(*op, *ty),
            Inst::Compare { op: CompareOp::Eq | CompareOp::Ne, ty, .. } if is_bits(*ty) => {}
            Inst::Compare { ty, .. } => self.number(*ty, |ty| format!("setp is not offered for .{ty}")),
            Inst::Select { ty, .. } => {
                self.require(*ty != Type::Pred, || "selp does not exist for .pred".to_owned());
            }
            Inst::Convert { from, to, .. } => self.convert(*from, *to),
            Inst::Pack { ty, .. } => {
                let legal = matches!(ty, Type::F16 | Type::Bf16);
                self.require(legal, || format!("two floats do not pack as .{ty}"));
            }
            Inst::ShuffleXor { mask, .. } => {
                self.require(*mask < 32, || format!("shuffle mask {mask} is not below 32"));
            }
            Inst::SetMaxRegisters { count, .. } => {
                let legal = (24..=256).contains(count) && count.is_multiple_of(8);
                self.require(legal, || format!("setmaxnreg {count} is not a multiple of 8 in 24..=256"));
            }
            Inst::LoadParam { ty, dst, param, offset } => self.load_param((*ty, dst.len()), *param, *offset),
            Inst::ParamAddress { param, .. } => self.param_address(*param),
            Inst::ConvertAddress { space, .. } => {
                self.require(*space != Space::Generic, || "cvta of a generic address to itself".to_owned());
            }
            Inst::Store { space: Space::Param, .. } => self.fail("a store to parameters".to_owned()),
            Inst::IsSpace { space, .. } => {
                self.require(*space != Space::Generic, || "isspacep of no state space".to_owned());
            }
            Inst::Split { ty, dst: parts, .. } => self.parts(*ty, parts.len()),
            Inst::Join { ty, src: parts, .. } => self.parts(*ty, parts.len()),
            Inst::Load { ty, dst, .. } | Inst::LoadConstant { ty, dst, .. } => self.vector(dst.len(), *ty),
            Inst::Store { ty, src, .. } => self.vector(src.len(), *ty),
            Inst::BarrierSync { id, threads: EVERYONE }
            | Inst::Loose(LooseBarrier::Sync { id, threads: EVERYONE })
            | Inst::BarrierReduce(BarrierReduce { id, threads: EVERYONE, .. }) => self.barrier(*id, 32),
            Inst::BarrierSync { id, threads }
            | Inst::Loose(LooseBarrier::Sync { id, threads } | LooseBarrier::Arrive { id, threads })
            | Inst::BarrierArrive { id, threads }
            | Inst::BarrierReduce(BarrierReduce { id, threads, .. }) => self.barrier(*id, *threads),
            Inst::Atomic(_)
            | Inst::CopyAsync(_)
            | Inst::WarpMatrix(_)
            | Inst::Warp(_)
            | Inst::Alu(_)
            | Inst::TensorMap(_)
            | Inst::Bulk(_)
            | Inst::MbarrierArrive(_)
            | Inst::MbarrierTest(_)
            | Inst::MbarrierWait { .. }
            | Inst::MbarrierTransact { .. }
            | Inst::TensorLoad { .. }
            | Inst::TensorPrefetch { .. }
            | Inst::TensorStore { .. } => {
                if let Err(message) = inst.check() {
                    self.fail(message);
                }
            }
            Inst::Ordered(OrderedInst::Load { ty, dst, .. }) => self.vector(dst.len(), *ty),
            Inst::Ordered(OrderedInst::Store { ty, src, .. }) => self.vector(src.len(), *ty),
            Inst::WgmmaWait { pending } => {
                self.require(*pending <= 7, || format!("wgmma.wait_group {pending} is above 7"));
            }
            Inst::Wgmma { .. } => self.wgmma(inst),
            Inst::StoreMatrix { src, .. } => self.store_matrix(src.len()),
            Inst::Move { .. }
            | Inst::MulWide { .. }
            | Inst::Unpack { .. }
            | Inst::ReadSpecial { .. }
            | Inst::ShuffleIndex { .. }
            | Inst::Elect { .. }
            | Inst::Trap
            | Inst::GridDependency { .. }
            | Inst::SharedBase { .. }
            | Inst::LocalBase { .. }
            | Inst::MapShared { .. }
            | Inst::CtaRank { .. }
            | Inst::WarpSync
            | Inst::Loose(LooseBarrier::ClusterArrive { .. } | LooseBarrier::ClusterWait)
            | Inst::ClusterArrive { .. }
            | Inst::ClusterWait
            | Inst::MbarrierInit { .. }
            | Inst::MbarrierInvalidate { .. }
            | Inst::MbarrierPending { .. }
            | Inst::FenceMbarrierInit
            | Inst::FenceProxyAsync { .. }
            | Inst::Fence { .. }
            | Inst::BulkCommit
            | Inst::BulkWait { .. }
            | Inst::PrefetchTensorMap { .. }
            | Inst::WgmmaFence
            | Inst::WgmmaCommit => {}
        }
    }

    fn binary(&mut self, op: BinaryOp, ty: Type) {
        let legal = match op {
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => {
                ty.is_integer() || is_bits(ty) || ty == Type::Pred
            }
            BinaryOp::Shl | BinaryOp::Shr => ty.is_integer() || is_bits(ty),
            BinaryOp::Rem | BinaryOp::MulHigh => ty.is_integer(),
            BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div | BinaryOp::Min | BinaryOp::Max => {
                is_number(ty)
            }
        };
        self.require(legal, || format!("{op:?} does not exist for .{ty}"));
    }

    fn number(&mut self, ty: Type, message: impl FnOnce(Type) -> String) {
        self.require(is_number(ty), || message(ty));
    }

    fn unary(&mut self, op: UnaryOp, ty: Type) {
        let legal = match op {
            UnaryOp::Not => ty.is_integer() || is_bits(ty) || ty == Type::Pred,
            UnaryOp::Neg | UnaryOp::Abs => ty.is_integer() || ty.is_float(),
        };
        self.require(legal, || format!("{op:?} does not exist for .{ty}"));
    }

    fn convert(&mut self, from: Type, to: Type) {
        let typed = |ty: Type| ty != Type::Pred && !ty.is_untyped();
        let legal = typed(from) && typed(to) && from != to;
        let both_half = from.is_float() && to.is_float() && from.bits() == 16 && to.bits() == 16;
        let half_and_integer =
            |half: Type, integer: Type| half.bits() == 16 && half.is_float() && integer.bits() == 16;
        let both_half = both_half || half_and_integer(from, to) || half_and_integer(to, from);
        let byte_and_brain = |a: Type, b: Type| a.bits() == 8 && b == Type::Bf16;
        let byte_and_brain = byte_and_brain(from, to) || byte_and_brain(to, from);
        self.require(legal && !both_half && !byte_and_brain, || {
            format!("cvt from .{from} to .{to} does not exist")
        });
    }

    fn load_param(&mut self, (ty, count): (Type, usize), param: u32, offset: u32) {
        self.vector(count, ty);
        let kind = self.kind(param);
        let whole =
            matches!(kind, Some(ParamKind::Scalar(held)) if ty.fits(held) && count == 1 && offset == 0);
        // A program that is read may load any part of a parameter, of any type.
        let part = self.is_flat || matches!(kind, Some(ParamKind::Bytes { .. }));
        let end = offset as usize + count * ty.bytes() as usize;
        let inside = kind.is_some_and(|kind| end <= kind.bytes());
        self.require(whole || part && inside, || {
            format!("parameter {param} is {kind:?}, not what is loaded: {count} x .{ty} at byte {offset}")
        });
    }

    fn param_address(&mut self, param: u32) {
        let kind = self.kind(param);
        let structured = matches!(kind, Some(ParamKind::TensorMap | ParamKind::Bytes { .. }));
        self.require(structured || self.is_flat && kind.is_some(), || {
            format!("parameter {param} is {kind:?}, not a tensor map")
        });
    }

    /// The kind of a parameter. `None` if there is no such parameter.
    fn kind(&self, param: u32) -> Option<ParamKind> {
        self.function.params.get(param as usize).map(|param| param.kind)
    }

    fn barrier(&mut self, id: Operand, threads: u32) {
        if let Operand::Imm(id) = id {
            let barriers = self.function.target.limits().barriers;
            self.require(id < barriers.into(), || format!("barrier {id} is not below {barriers}"));
        }
        let all = self.function.threads().next_multiple_of(32);
        self.require(threads.is_multiple_of(32) && (32..=all).contains(&threads), || {
            format!("{threads} threads at a barrier, not a multiple of 32 in 32..={all}")
        });
    }

    /// Checks that a register has so many parts.
    fn parts(&mut self, ty: Type, count: usize) {
        let legal = matches!(
            (ty, count),
            (Type::B16 | Type::B32 | Type::B64, 2) | (Type::B32 | Type::B64, 4) | (Type::B64, 8)
        );
        self.require(legal, || format!("{count} parts of a .{ty}"));
    }

    fn store_matrix(&mut self, count: usize) {
        let legal = matches!(count, 1 | 2 | 4);
        self.require(legal, || format!("stmatrix of {count} matrices, not 1, 2 or 4"));
    }

    fn vector(&mut self, count: usize, ty: Type) {
        let bytes = count * ty.bytes() as usize;
        let legal = matches!(count, 1 | 2 | 4) && ty != Type::Pred && bytes <= 16;
        self.require(legal, || format!("an access of {count} x .{ty}: 1, 2 or 4 elements in at most 16 B"));
    }
}

mod flat;
mod wgmma;

#[cfg(test)]
mod tests;
