//! The static verifier: it checks the invariants that the printer and the emulator rely on.
//!
//! A [`Verified`] function satisfies:
//! 1. *Names*: the names of the entry and of all parameters are C identifiers; parameter names are distinct.
//! 2. *Limits*: threads, shared memory and cluster fit the target.
//! 3. *Registers*: each register exists, and is read and written as its own type.
//! 4. *Definition*: on each path, a register is written before it is read. Exception: accumulators of
//!    `wgmma`. Whether the instruction reads or overwrites them is known only at run time, where the
//!    emulator checks it.
//! 5. *Structure*: a break is inside a loop; conditions are predicates.
//! 6. *Forms*: each instruction exists in PTX: vector widths, ranges of immediates, `wgmma` shapes, types of
//!    operations.
//!
//! All violations are reported, each with the line of the kernel's source that built the statement.

use core::fmt;
use core::ops::Deref;

use crate::function::{Function, ParamKind, SourceSite, Statement};
use crate::inst::{BarrierReduce, BinaryOp, Expect, Inst, Operand, OrderedInst, Reg, UnaryOp};
use crate::types::Type;

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
        match self.site {
            Some(site) => write!(f, "{}:{}: {}", site.file(), site.line(), self.message),
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
        let mut checker = Checker { function: &self, violations: self.refusals.clone(), site: None };
        checker.function_as_a_whole();
        let mut defined = vec![false; self.registers.len()];
        accumulators(&self.body, &mut defined);
        checker.block(&self.body, &mut defined, &mut None);
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
            Statement::Inst { .. } | Statement::Break { .. } => {}
        }
    }
}

impl Checker<'_> {
    fn fail(&mut self, message: String) {
        self.violations.push(Violation { site: self.site, message });
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
            self.require(is_identifier(param.name), || {
                format!("parameter name `{}` is not an identifier", param.name)
            });
            let repeated = function.params[..i].iter().any(|other| other.name == param.name);
            self.require(!repeated, || format!("parameter `{}` is declared twice", param.name));
            let storable = !matches!(param.kind, ParamKind::Scalar(Type::Pred));
            self.require(storable, || format!("parameter `{}` is a predicate", param.name));
        }
        let threads = function.threads;
        self.require(threads.is_multiple_of(32) && (32..=limits.threads).contains(&threads), || {
            format!("{threads} threads per CTA, not a multiple of 32 in 32..={}", limits.threads)
        });
        let bytes = function.shared_bytes;
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
                    self.site = Some(site);
                    self.inst(inst, defined);
                }
                Statement::If { cond, then, otherwise, site } => {
                    self.site = Some(site);
                    self.read(*cond, Expect::Type(Type::Pred), defined);
                    let mut other = defined.clone();
                    self.block(then, defined, exit);
                    self.block(otherwise, &mut other, exit);
                    meet(defined, &other);
                }
                Statement::Loop { body, site } => {
                    self.site = Some(site);
                    let mut inner: Exit = Some(None);
                    self.block(body, defined, &mut inner);
                    if let Some(Some(left)) = inner {
                        *defined = left;
                    }
                }
                Statement::Break { cond, site } => {
                    self.site = Some(site);
                    self.read(*cond, Expect::Type(Type::Pred), defined);
                    match exit {
                        None => self.fail("a break outside every loop".to_owned()),
                        Some(None) => *exit = Some(Some(defined.clone())),
                        Some(Some(left)) => meet(left, defined),
                    }
                }
                Statement::Scope { body, .. } => self.block(body, defined, exit),
            }
        }
    }

    fn ty(&self, reg: Reg) -> Option<Type> {
        self.function.registers.get(reg.0 as usize).copied()
    }

    fn fits(&mut self, reg: Reg, expect: Expect) {
        let Some(ty) = self.ty(reg) else { return self.fail(format!("register {} does not exist", reg.0)) };
        match expect {
            Expect::Type(wanted) => {
                self.require(ty == wanted, || {
                    format!("register {} is .{ty} where .{wanted} is needed", reg.0)
                });
            }
            Expect::Bits(bits) => self.require(ty.bits() == bits, || {
                format!("register {} is .{ty} where {bits} bits are needed", reg.0)
            }),
            Expect::Accumulator => self.require(ty.bits() == 32, || {
                format!("accumulator {} is .{ty} where 32 bits are needed", reg.0)
            }),
        }
    }

    fn read(&mut self, operand: Operand, expect: Expect, defined: &[bool]) {
        if let Operand::Reg(reg) = operand {
            self.fits(reg, expect);
            let known = defined.get(reg.0 as usize).copied().unwrap_or(true);
            self.require(known, || format!("register {} is read where a path has not written it", reg.0));
        }
    }

    fn inst(&mut self, inst: &Inst, defined: &mut [bool]) {
        let operands = inst.operands(|reg| self.ty(reg));
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
            Inst::Compare { ty, .. } => self.number(*ty, |ty| format!("setp is not offered for .{ty}")),
            Inst::Select { ty, .. } => {
                self.require(*ty != Type::Pred, || "selp does not exist for .pred".to_owned());
            }
            Inst::Convert { from, dst, .. } => self.convert(*from, *dst),
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
            Inst::LoadParam { dst, param } => self.load_param(*dst, *param),
            Inst::ParamAddress { param, .. } => self.param_address(*param),
            Inst::Load { ty, dst, .. } => self.vector(dst.len(), *ty),
            Inst::Store { ty, src, .. } => self.vector(src.len(), *ty),
            Inst::BarrierSync { id, threads }
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
            | Inst::MapShared { .. }
            | Inst::WarpSync
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
            BinaryOp::And | BinaryOp::Or | BinaryOp::Xor => ty.is_integer() || ty == Type::Pred,
            BinaryOp::Rem | BinaryOp::MulHigh | BinaryOp::Shl | BinaryOp::Shr => ty.is_integer(),
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
            UnaryOp::Not => ty.is_integer() || ty == Type::Pred,
            UnaryOp::Neg | UnaryOp::Abs => ty.is_integer() || ty.is_float(),
        };
        self.require(legal, || format!("{op:?} does not exist for .{ty}"));
    }

    fn convert(&mut self, from: Type, dst: Reg) {
        let to = self.ty(dst).unwrap_or(Type::Pred);
        let legal = from != Type::Pred && to != Type::Pred && from != to;
        let both_half = from.bits() == 16 && to.bits() == 16;
        let byte_and_brain = matches!((from, to), (Type::U8, Type::Bf16) | (Type::Bf16, Type::U8));
        self.require(legal && !both_half && !byte_and_brain, || {
            format!("cvt from .{from} to .{to} does not exist")
        });
    }

    fn load_param(&mut self, dst: Reg, param: u32) {
        let kind = self.kind(param);
        let legal = self.ty(dst).is_some_and(|ty| kind == Some(ParamKind::Scalar(ty)));
        self.require(legal, || format!("parameter {param} is {kind:?}, not what is loaded"));
    }

    fn param_address(&mut self, param: u32) {
        let kind = self.kind(param);
        let legal = kind == Some(ParamKind::TensorMap);
        self.require(legal, || format!("parameter {param} is {kind:?}, not a tensor map"));
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
        let all = self.function.threads;
        self.require(threads.is_multiple_of(32) && (32..=all).contains(&threads), || {
            format!("{threads} threads at a barrier, not a multiple of 32 in 32..={all}")
        });
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

mod wgmma;

#[cfg(test)]
mod tests;
