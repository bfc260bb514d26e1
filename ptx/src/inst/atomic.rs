//! Atomic operations, and loads and stores with memory ordering.
//!
//! Source: PTX ISA "atom", "red", "ld", "st" and chapter 8 "Memory Consistency Model".
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! use ptx::{AtomicOp, AtomicSem, Location, Scope};
//!
//! let function = ptx::Function::build(entry, |f| {
//!     let counter = f.param::<u64>("counter");
//!     let (at, order) = (Location::global(counter, 0), (AtomicSem::Relaxed, Scope::Gpu));
//!     let drawn = f.atomic(AtomicOp::Inc, at, f.constant(131u32), order);
//!     f.store_global(counter, 8, [drawn]);
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains(".inc.u32"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use super::spell::{In, Line, bits_spelling, memory_type, width};
use super::{Address, Operand, Reg, Scope};
use crate::types::{Space, Type};

/// An atomic operation: the new value of a word `old` in memory, for an operand `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// `old + b`; integers wrap, floats round to nearest even.
    Add,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// `old >= b ? 0 : old + 1`.
    Inc,
    /// `old == 0 || old > b ? b : old - 1`.
    Dec,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// `b`.
    Exchange,
    /// `old == b ? c : old`, with a second operand c.
    CompareSwap,
}

/// The type of the word in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicType {
    /// `.u32`, or `.b32` for logic, exchange and compare-and-swap.
    U32,
    /// `.s32`.
    S32,
    /// `.u64`, or `.b64` for logic, exchange and compare-and-swap.
    U64,
    /// `.s64`.
    S64,
    /// `.f32`. An addition in global memory flushes subnormal operands and results to zero.
    F32,
    /// `.f64`.
    F64,
    /// `.f16`, subnormals kept (`.noftz`).
    F16,
    /// `.bf16`, subnormals kept (`.noftz`).
    Bf16,
    /// Two `.f16` in a 32-bit register.
    F16x2,
    /// Two `.bf16` in a 32-bit register.
    Bf16x2,
}

impl AtomicType {
    /// Whether it is of floating-point numbers.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::Bf16 | Self::F16x2 | Self::Bf16x2)
    }

    /// All types.
    pub const ALL: [Self; 10] = [
        Self::U32,
        Self::S32,
        Self::U64,
        Self::S64,
        Self::F32,
        Self::F64,
        Self::F16,
        Self::Bf16,
        Self::F16x2,
        Self::Bf16x2,
    ];

    /// The type of a register that holds one element.
    pub const fn register(self) -> Type {
        match self {
            Self::U32 | Self::F16x2 | Self::Bf16x2 => Type::U32,
            Self::S32 => Type::S32,
            Self::U64 => Type::U64,
            Self::S64 => Type::S64,
            Self::F32 => Type::F32,
            Self::F64 => Type::F64,
            Self::F16 => Type::F16,
            Self::Bf16 => Type::Bf16,
        }
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> u32 {
        self.register().bytes()
    }

    const fn is_half(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F16x2 | Self::Bf16x2)
    }

    /// PTX's suffix.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::F16x2 => "f16x2",
            Self::Bf16x2 => "bf16x2",
            Self::U32
            | Self::S32
            | Self::U64
            | Self::S64
            | Self::F32
            | Self::F64
            | Self::F16
            | Self::Bf16 => self.register().suffix(),
        }
    }
}

impl AtomicOp {
    /// All operations.
    pub const ALL: [Self; 10] = [
        Self::Add,
        Self::Min,
        Self::Max,
        Self::Inc,
        Self::Dec,
        Self::And,
        Self::Or,
        Self::Xor,
        Self::Exchange,
        Self::CompareSwap,
    ];

    /// PTX's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Min => "min",
            Self::Max => "max",
            Self::Inc => "inc",
            Self::Dec => "dec",
            Self::And => "and",
            Self::Or => "or",
            Self::Xor => "xor",
            Self::Exchange => "exch",
            Self::CompareSwap => "cas",
        }
    }

    /// Whether PTX writes the operation with an untyped `.b32` or `.b64`.
    pub const fn is_untyped(self) -> bool {
        matches!(self, Self::And | Self::Or | Self::Xor | Self::Exchange | Self::CompareSwap)
    }

    /// The type of an element as PTX writes it for this operation.
    pub(super) const fn element(self, ty: AtomicType) -> &'static str {
        if self.is_untyped() { bits_spelling(ty.register()) } else { ty.suffix() }
    }

    /// Whether the operation exists for a single element of this type.
    pub const fn allows(self, ty: AtomicType) -> bool {
        use AtomicType::{S32, S64, U32, U64};
        match self {
            Self::Add => !matches!(ty, S64),
            Self::Min | Self::Max => matches!(ty, U32 | S32 | U64 | S64),
            Self::Inc | Self::Dec => matches!(ty, U32),
            Self::And | Self::Or | Self::Xor | Self::Exchange | Self::CompareSwap => matches!(ty, U32 | U64),
        }
    }

    /// Whether the operation exists for a vector of `elements` elements. Vectors exist in global memory only.
    pub const fn allows_vector(self, ty: AtomicType, elements: usize) -> bool {
        let add = matches!(self, Self::Add);
        let extreme = matches!(self, Self::Min | Self::Max);
        match ty {
            AtomicType::F32 => add && matches!(elements, 2 | 4),
            AtomicType::F16x2 | AtomicType::Bf16x2 => (add || extreme) && matches!(elements, 2 | 4),
            AtomicType::F16 | AtomicType::Bf16 => (add || extreme) && matches!(elements, 2 | 4 | 8),
            AtomicType::U32 | AtomicType::S32 | AtomicType::U64 | AtomicType::S64 | AtomicType::F64 => false,
        }
    }
}

/// The memory ordering of an atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicSem {
    /// No ordering of other accesses.
    Relaxed,
    /// Later accesses are ordered after the operation.
    Acquire,
    /// Earlier accesses are ordered before the operation.
    Release,
    /// Acquire and release.
    AcquireRelease,
}

impl AtomicSem {
    /// All orderings.
    pub const ALL: [Self; 4] = [Self::Relaxed, Self::Acquire, Self::Release, Self::AcquireRelease];

    /// PTX's suffix.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Relaxed => "relaxed",
            Self::Acquire => "acquire",
            Self::Release => "release",
            Self::AcquireRelease => "acq_rel",
        }
    }

    /// Whether the ordering includes acquire.
    pub const fn acquires(self) -> bool {
        matches!(self, Self::Acquire | Self::AcquireRelease)
    }

    /// Whether the ordering includes release.
    pub const fn releases(self) -> bool {
        matches!(self, Self::Release | Self::AcquireRelease)
    }
}

/// `atom` and `red`: an atomic read-modify-write of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtomicInst {
    /// The operation.
    pub op: AtomicOp,
    /// The type of each element.
    pub ty: AtomicType,
    /// State space: global memory, or shared memory of this CTA or of any CTA of the cluster.
    pub space: Space,
    /// Memory ordering.
    pub sem: AtomicSem,
    /// The threads for which the operation is atomic and ordered.
    pub scope: Scope,
    /// Registers that receive the old elements (`atom`), or none (`red`).
    pub dst: Vec<Reg>,
    /// Address, aligned to the total number of bytes accessed.
    pub address: Address,
    /// One operand per element: 1, or 2 to 8 for a vector.
    pub src: Vec<Operand>,
    /// The second operand of [`AtomicOp::CompareSwap`]: the new value if memory equals `src`.
    pub swap: Option<Operand>,
}

impl AtomicInst {
    /// The number of bytes accessed.
    pub fn bytes(&self) -> u32 {
        self.ty.bytes() * u32::try_from(self.src.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn spell<'l>(&self, line: Line<'l>) -> Line<'l> {
        let Self { op, ty, space, sem, scope, dst, address, src, swap } = self;
        let (register, noftz) = (ty.register(), if ty.is_half() { ".noftz" } else { "" });
        let (sem, scope, wide) = (sem.suffix(), scope.suffix(), width(src.len()));
        let of = op.element(*ty);
        let (name, op) = (self.name(), op.name());
        let line = line.op(name, format_args!(".{sem}.{scope}{}.{op}{noftz}{wide}.{of}", In(*space)));
        let line = if dst.is_empty() { line } else { line.set_vector(dst, register) };
        line.address(*address, *space).vector(src, register).option(*swap, register)
    }

    const fn name(&self) -> &'static str {
        if self.dst.is_empty() { "red" } else { "atom" }
    }

    /// Checks that the form exists: operation, type, number of elements, space, ordering.
    ///
    /// # Errors
    /// The first rule that is broken, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let (name, op, ty) = (self.name(), self.op.name(), self.ty.suffix());
        let elements = self.src.len();
        let exists =
            if elements == 1 { self.op.allows(self.ty) } else { self.op.allows_vector(self.ty, elements) };
        if !exists {
            return Err(format!("{name}.{op} of {elements} x .{ty} does not exist"));
        }
        if matches!(self.space, Space::Local | Space::Param) {
            return Err(format!("{name}.{op} in .{} memory does not exist", self.space.name()));
        }
        if elements > 1 && self.space != Space::Global {
            return Err(format!("{name}.{op} of {elements} elements exists in global memory only"));
        }
        if !matches!(self.dst.len(), 0) && self.dst.len() != elements {
            return Err(format!(
                "{name}.{op} of {elements} elements returns as many, not {}",
                self.dst.len()
            ));
        }
        if self.dst.is_empty() && matches!(self.op, AtomicOp::Exchange | AtomicOp::CompareSwap) {
            return Err(format!("{op} without a result: red has no {op}"));
        }
        if self.dst.is_empty() && self.sem.acquires() {
            return Err(format!("red.{}: what returns nothing acquires nothing", self.sem.suffix()));
        }
        if self.swap.is_some() != matches!(self.op, AtomicOp::CompareSwap) {
            return Err(format!("{op} with a second operand: cas has one, no other operation has"));
        }
        Ok(())
    }
}

/// The memory ordering of a load that synchronises with stores of other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoadOrder {
    /// `.volatile`: as `.relaxed.sys`, and the compiler never removes or repeats it.
    Volatile,
    /// `.relaxed.<scope>`.
    Relaxed(Scope),
    /// `.acquire.<scope>`.
    Acquire(Scope),
}

impl LoadOrder {
    /// The threads for which the access is ordered.
    pub const fn scope(self) -> Scope {
        match self {
            Self::Volatile => Scope::System,
            Self::Relaxed(scope) | Self::Acquire(scope) => scope,
        }
    }
}

/// The memory ordering of a store that synchronises with loads of other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreOrder {
    /// `.volatile`: as `.relaxed.sys`, and the compiler never removes or repeats it.
    Volatile,
    /// `.relaxed.<scope>`.
    Relaxed(Scope),
    /// `.release.<scope>`.
    Release(Scope),
}

impl StoreOrder {
    /// The threads for which the access is ordered.
    pub const fn scope(self) -> Scope {
        match self {
            Self::Volatile => Scope::System,
            Self::Relaxed(scope) | Self::Release(scope) => scope,
        }
    }
}

/// A load or a store with memory ordering.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderedInst {
    /// `ld.{volatile|relaxed|acquire}`. ISA "ld".
    Load {
        /// Memory ordering.
        order: LoadOrder,
        /// State space of the address.
        space: Space,
        /// Element type.
        ty: Type,
        /// 1, 2 or 4 registers.
        dst: Vec<Reg>,
        /// Source address, aligned to the total number of bytes loaded.
        address: Address,
    },
    /// `st.{volatile|relaxed|release}`. ISA "st".
    Store {
        /// Memory ordering.
        order: StoreOrder,
        /// State space of the address.
        space: Space,
        /// Element type.
        ty: Type,
        /// 1, 2 or 4 operands.
        src: Vec<Operand>,
        /// Destination address, aligned to the total number of bytes stored.
        address: Address,
    },
}

impl OrderedInst {
    pub(super) fn spell<'l>(&self, line: Line<'l>) -> Line<'l> {
        let named = |line: Line<'l>, name, scope: Option<Scope>, space: Space, elements, ty| {
            let (dot, scope) = scope.map_or(("", ""), |scope| (".", scope.suffix()));
            let (wide, ty) = (width(elements), memory_type(ty));
            line.op(name, format_args!("{dot}{scope}{}{wide}.{ty}", In(space)))
        };
        match self {
            Self::Load { order, space, ty, dst, address } => {
                let (name, scope) = match order {
                    LoadOrder::Volatile => ("ld.volatile", None),
                    LoadOrder::Relaxed(scope) => ("ld.relaxed", Some(*scope)),
                    LoadOrder::Acquire(scope) => ("ld.acquire", Some(*scope)),
                };
                named(line, name, scope, *space, dst.len(), *ty)
                    .set_vector_extended(dst, *ty)
                    .address(*address, *space)
            }
            Self::Store { order, space, ty, src, address } => {
                let (name, scope) = match order {
                    StoreOrder::Volatile => ("st.volatile", None),
                    StoreOrder::Relaxed(scope) => ("st.relaxed", Some(*scope)),
                    StoreOrder::Release(scope) => ("st.release", Some(*scope)),
                };
                named(line, name, scope, *space, src.len(), *ty)
                    .address(*address, *space)
                    .vector_low(src, *ty)
            }
        }
    }
}
