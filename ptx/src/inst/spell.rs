//! The spelling of each instruction: PTX's text, in which every operand stands with its type.
//!
//! It is the one description of an instruction. The printer writes it down, and [`Inst::operands`] and
//! [`Inst::name`] are read from it.

mod arithmetic;
mod copies;
mod memory;
mod synchronise;

pub(crate) use memory::LOCAL;

use core::fmt::{self, Display};

use super::{Address, Expect, Inst, MbarrierOrder, Operand, OperandList, Reg};
use crate::name::Name;
use crate::types::{Space, Type};

/// What is made of a spelling.
pub(crate) trait Sink {
    /// Takes the name of the kind of the instruction.
    fn name(&mut self, name: &'static str);
    /// Takes a piece of text.
    fn text(&mut self, text: fmt::Arguments<'_>);
    /// Takes an operand that is read. As an immediate it is written as a number of type `ty`.
    fn read(&mut self, operand: Operand, expect: Expect, ty: Type);
    /// Takes a register that is written.
    fn write(&mut self, reg: Reg, expect: Expect);
    /// The name of a parameter.
    fn param(&self, param: u32) -> Name;
    /// The name of a byte of shared memory, given its offset from the beginning.
    fn shared(&self, offset: u32) -> Name;
    /// The label of a wait.
    fn label(&mut self) -> Name;
}

/// The line of an instruction: its name with modifiers, then its operands with commas between them.
pub(super) struct Line<'s> {
    sink: &'s mut dyn Sink,
    /// The text before the next operand.
    gap: &'static str,
}

impl<'s> Line<'s> {
    /// Begins with `name` and its modifiers.
    pub(super) fn op(self, name: &'static str, modifiers: impl Display) -> Self {
        self.named(name, format_args!("{name}{modifiers}"))
    }

    /// Begins with a text in which the kind's name does not stand.
    pub(super) fn named(self, name: &'static str, text: impl Display) -> Self {
        self.sink.name(name);
        Self { gap: " ", ..self.raw(text) }
    }

    /// Writes text where the line stands.
    pub(super) fn raw(self, text: impl Display) -> Self {
        self.sink.text(format_args!("{text}"));
        self
    }

    /// Puts `text` before the next operand, in place of a comma.
    pub(super) fn glue(self, text: &'static str) -> Self {
        Self { gap: text, ..self }
    }

    /// Writes an operand that is a text.
    pub(super) fn also(self, text: impl Display) -> Self {
        self.sink.text(format_args!("{}{text}", self.gap));
        self.glue(", ")
    }

    fn takes(self, operand: Operand, expect: Expect, ty: Type) -> Self {
        let line = self.also("");
        line.sink.read(operand, expect, ty);
        line
    }

    fn gives(self, reg: Reg, expect: Expect) -> Self {
        let line = self.also("");
        line.sink.write(reg, expect);
        line
    }

    /// A register of this type that is written.
    pub(super) fn set(self, reg: Reg, ty: Type) -> Self {
        self.gives(reg, Expect::Type(ty))
    }

    /// A register that is written, of any type as wide as `ty`.
    pub(super) fn set_bits(self, reg: Reg, ty: Type) -> Self {
        self.gives(reg, Expect::Type(ty.untyped()))
    }

    /// A register that is written and may be wider than `ty`.
    pub(super) fn set_extended(self, reg: Reg, ty: Type) -> Self {
        self.gives(reg, Expect::Holds(ty))
    }

    /// An operand of this type.
    pub(super) fn read(self, operand: Operand, ty: Type) -> Self {
        self.takes(operand, Expect::Type(ty), ty)
    }

    /// Operands of one type.
    pub(super) fn reads(self, operands: &[Operand], ty: Type) -> Self {
        operands.iter().fold(self, |line, &operand| line.read(operand, ty))
    }

    /// An operand of any type as wide as `ty`.
    pub(super) fn bits(self, operand: Operand, ty: Type) -> Self {
        self.takes(operand, Expect::Type(ty.untyped()), ty)
    }

    /// An operand of this type, which may be the low bits of a register.
    pub(super) fn read_low(self, operand: Operand, ty: Type) -> Self {
        self.takes(operand, Expect::Holds(ty), ty)
    }

    /// An operand in brackets: an address.
    pub(super) fn at(self, operand: Operand, ty: Type) -> Self {
        let line = self.also("[").glue("").read(operand, ty);
        line.raw("]")
    }

    /// An address of a state space.
    pub(super) fn address(self, address: Address, space: Space) -> Self {
        let line = self.also("[").glue("").read(address.base, space.address_type());
        match address.offset {
            0 => line.raw("]"),
            offset => line.raw(format_args!("+{offset}]")),
        }
    }

    /// A place in a tensor: its map and the coordinates.
    pub(super) fn tensor(self, map: Operand, coords: &[Operand]) -> Self {
        let line = self.also("[").glue("").read(map, Type::U64);
        line.group(coords, Type::S32).raw("]")
    }

    /// Operands in braces.
    pub(super) fn group(self, operands: &[Operand], ty: Type) -> Self {
        let line = self.also("{").glue("").reads(operands, ty).raw("}");
        line.glue(", ")
    }

    /// Operands in braces, but one without.
    pub(super) fn vector(self, operands: &[Operand], ty: Type) -> Self {
        if let [one] = operands { self.read(*one, ty) } else { self.group(operands, ty) }
    }

    /// The same, where the operands may be the low bits of registers.
    pub(super) fn vector_low(self, operands: &[Operand], ty: Type) -> Self {
        if let [one] = operands {
            return self.read_low(*one, ty);
        }
        let line = self.also("{").glue("");
        let line = operands.iter().fold(line, |line, &operand| line.read_low(operand, ty));
        line.raw("}").glue(", ")
    }

    /// Registers in braces that are written.
    pub(super) fn set_group(self, regs: &[Reg], expect: Expect) -> Self {
        let line = self.also("{").glue("");
        let line = regs.iter().fold(line, |line, &reg| line.gives(reg, expect));
        line.raw("}").glue(", ")
    }

    /// Registers in braces that are written, but one without.
    pub(super) fn set_vector(self, regs: &[Reg], ty: Type) -> Self {
        if let [one] = regs { self.set(*one, ty) } else { self.set_group(regs, Expect::Type(ty)) }
    }

    /// The same, where the registers may be wider than `ty`.
    pub(super) fn set_vector_extended(self, regs: &[Reg], ty: Type) -> Self {
        if let [one] = regs { self.set_extended(*one, ty) } else { self.set_group(regs, Expect::Holds(ty)) }
    }

    /// An operand that may be left out.
    pub(super) fn option(self, operand: Option<Operand>, ty: Type) -> Self {
        operand.into_iter().fold(self, |line, operand| line.read(operand, ty))
    }

    /// The policy of a copy with [`hinted`] in its name.
    pub(super) fn policy(self, hint: Option<Operand>) -> Self {
        match hint {
            Some(Operand::Imm(policy)) => self.also(format_args!("{policy:#x}")),
            _ => self.option(hint, Type::U64),
        }
    }
}

/// How copies name the mbarrier that counts their bytes.
pub(super) const BYTES: &str = "mbarrier::complete_tx::bytes";

/// The modifier of a copy with an L2 cache policy.
pub(super) const fn hinted(hint: Option<Operand>) -> &'static str {
    if hint.is_some() { ".L2::cache_hint" } else { "" }
}

/// The modifier of a copy to several CTAs.
pub(super) const fn multicast(mask: Option<Operand>) -> &'static str {
    if mask.is_some() { ".multicast::cluster" } else { "" }
}

/// The modifier of an access to several elements.
pub(super) const fn width(elements: usize) -> &'static str {
    match elements {
        2 => ".v2",
        4 => ".v4",
        8 => ".v8",
        _ => "",
    }
}

/// The name of a register's bits where their type does not matter.
const fn register_bits(ty: Type) -> &'static str {
    match ty.bits() {
        64 => "b64",
        32 => "b32",
        _ => "b16",
    }
}

/// The name of a type whose bits are combined.
pub(super) const fn bits_spelling(ty: Type) -> &'static str {
    match ty.bits() {
        1 => "pred",
        8 => "b8",
        _ => register_bits(ty),
    }
}

/// The type of an access to memory: halves are moved as bits, unless a wider register gets their sign.
#[expect(clippy::wildcard_enum_match_arm, reason = "all others are spelled as they are")]
pub(super) const fn memory_type(ty: Type) -> &'static str {
    match ty {
        Type::U16 | Type::F16 | Type::Bf16 | Type::B16 => "b16",
        _ => ty.suffix(),
    }
}

/// The modifier of an access that says its state space.
pub(super) struct In(pub(super) Space);

impl Display for In {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(space) = self;
        if *space == Space::Generic { Ok(()) } else { write!(f, ".{}", space.name()) }
    }
}

/// An offset after a name.
pub(crate) struct Plus(pub(crate) u32);

impl Display for Plus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            offset => write!(f, "+{offset}"),
        }
    }
}

impl Inst {
    /// Spells the instruction.
    pub(crate) fn spell(&self, sink: &mut dyn Sink) {
        let line = Line { sink, gap: "" };
        let line = match self {
            Self::Move { ty, dst, src } => line.copy(*ty, *dst, *src),
            Self::Binary { op, ty, dst, a, b } => line.binary((*op, *ty), *dst, [*a, *b]),
            Self::MulAdd { ty, dst, a, b, c } => line.mul_add(*ty, *dst, [*a, *b, *c]),
            Self::MulWide { dst, a, b } => line.mul_wide(*dst, [*a, *b]),
            Self::Unary { op, ty, dst, a } => line.unary((*op, *ty), *dst, *a),
            Self::Compare { op, ty, dst, a, b } => line.compare((*op, *ty), *dst, [*a, *b]),
            Self::Select { ty, dst, a, b, cond } => line.select(*ty, *dst, [*a, *b], *cond),
            Self::Convert { from, to, dst, src } => line.convert((*from, *to), *dst, *src),
            Self::Pack { ty, dst, low, high } => line.pack(*ty, *dst, [*low, *high]),
            Self::Unpack { low, high, src } => line.unpack([*low, *high], *src),
            Self::Split { ty, dst, src } => line.split(*ty, dst, *src),
            Self::Join { ty, dst, src } => line.join(*ty, *dst, src),
            Self::ReadSpecial { dst, special } => line.read_special(*dst, *special),
            Self::ShuffleIndex { dst, src, lane } => line.shuffle_index(*dst, *src, *lane),
            Self::ShuffleXor { dst, src, mask } => line.shuffle_xor(*dst, *src, *mask),
            Self::Elect { dst } => line.op("elect.sync", "").glue(" _|").set(*dst, Type::Pred).also(-1),
            Self::SetMaxRegisters { grow, count } => line.set_max_registers(*grow, *count),
            Self::Trap => line.op("trap", ""),
            Self::GridDependency { wait } => line.grid_dependency(*wait),
            Self::LoadParam { ty, dst, param, offset } => line.load_param(*ty, dst, (*param, *offset)),
            Self::ParamAddress { generic, dst, param, offset } => {
                line.param_address(*generic, *dst, (*param, *offset))
            }
            Self::SharedBase { dst, offset } => line.shared_base(*dst, *offset),
            Self::LocalBase { dst, offset } => line.local_base(*dst, *offset),
            Self::ConvertAddress { space, to, dst, src } => line.convert_address((*space, *to), *dst, *src),
            Self::IsSpace { space, dst, src } => line.in_space(*space, *dst, *src),
            Self::LoadConstant { ty, dst, address } => line.load_constant(*ty, dst, *address),
            Self::Load { space, ty, dst, address } => line.load((*space, *ty), dst, *address),
            Self::Store { space, ty, src, address } => line.store((*space, *ty), src, *address),
            Self::MapShared { dst, address, rank } => line.map_shared(*dst, [*address, *rank]),
            Self::CtaRank { dst, address } => line.cta_rank(*dst, *address),
            Self::Loose(barrier) => barrier.spell(line),
            Self::BarrierSync { id, threads } => line.named_barrier("bar.sync", *id, *threads),
            Self::BarrierArrive { id, threads } => line.named_barrier("bar.arrive", *id, *threads),
            Self::WarpSync => line.op("bar.warp.sync", "").also(-1),
            Self::ClusterArrive { relaxed } => line.cluster_arrive(*relaxed),
            Self::ClusterWait => line.op("barrier.cluster.wait", ".acquire.aligned"),
            Self::MbarrierInit { barrier, count } => line.mbarrier_init(*barrier, *count),
            Self::MbarrierInvalidate { barrier } => line.mbarrier_invalidate(*barrier),
            Self::MbarrierArrive(arrival) => arrival.spell(line),
            Self::MbarrierTransact { complete, barrier, space, bytes, scope } => {
                line.mbarrier_transact((*barrier, *space, *bytes), (*complete, *scope))
            }
            Self::MbarrierTest(test) => test.spell(line),
            Self::MbarrierPending { dst, state } => line.mbarrier_pending(*dst, *state),
            Self::MbarrierWait { barrier, parity, order } => {
                return line.mbarrier_wait(*barrier, *parity, *order);
            }
            Self::FenceMbarrierInit => line.op("fence.mbarrier_init", ".release.cluster"),
            Self::FenceProxyAsync { space } => line.fence_proxy_async(*space),
            Self::Fence { sem, scope } => line.fence(*sem, *scope),
            Self::Atomic(atomic) => atomic.spell(line),
            Self::Ordered(access) => access.spell(line),
            Self::CopyAsync(copy) => copy.spell(line),
            Self::WarpMatrix(matrix) => matrix.spell(line),
            Self::Warp(exchange) => exchange.spell(line),
            Self::Alu(alu) => alu.spell(line),
            Self::TensorLoad { map, coords, im2col, dst, barrier, multicast, hint } => {
                line.tensor_load((*map, coords, im2col.as_deref()), (*dst, *barrier), *multicast, *hint)
            }
            Self::TensorStore { reduce, map, coords, im2col, src, hint } => {
                line.tensor_store(*reduce, (*map, coords, *im2col), *src, *hint)
            }
            Self::TensorPrefetch { map, coords, im2col } => {
                line.tensor_prefetch((*map, coords, im2col.as_deref()))
            }
            Self::BulkCommit => line.op("cp.async.bulk.commit_group", ""),
            Self::BulkWait { pending, read } => {
                line.op("cp.async.bulk.wait_group", if *read { ".read" } else { "" }).also(pending)
            }
            Self::PrefetchTensorMap { map } => line.op("prefetch.tensormap", "").at(*map, Type::U64),
            Self::TensorMap(inst) => inst.spell(line),
            Self::Bulk(bulk) => bulk.spell(line),
            Self::BarrierReduce(reduce) => match reduce.spell(line) {
                Some(line) => line,
                None => return,
            },
            Self::WgmmaFence => line.op("wgmma.fence", ".sync.aligned"),
            Self::WgmmaCommit => line.op("wgmma.commit_group", ".sync.aligned"),
            Self::WgmmaWait { pending } => line.op("wgmma.wait_group", ".sync.aligned").also(pending),
            Self::Wgmma { .. } => line.wgmma(self),
            Self::StoreMatrix { address, src, transpose } => line.store_matrix(*address, src, *transpose),
        };
        line.raw(";");
    }

    /// The kind of the instruction in reports: PTX's name without modifiers, or `arithmetic`.
    pub fn name(&self) -> &'static str {
        let mut list = List::default();
        self.spell(&mut list);
        list.name
    }

    /// The instruction's operands.
    pub fn operands(&self) -> OperandList {
        let mut list = List::default();
        self.spell(&mut list);
        list.operands
    }
}

/// Collects the operands of a spelling, and the name.
#[derive(Default)]
struct List {
    operands: OperandList,
    name: &'static str,
}

impl Sink for List {
    fn name(&mut self, name: &'static str) {
        self.name = name;
    }

    fn text(&mut self, _: fmt::Arguments<'_>) {}

    fn read(&mut self, operand: Operand, expect: Expect, _: Type) {
        self.operands.reads.push((operand, expect));
    }

    fn write(&mut self, reg: Reg, expect: Expect) {
        self.operands.writes.push((reg, expect));
    }

    fn param(&self, _: u32) -> Name {
        Name::new("")
    }

    fn shared(&self, _: u32) -> Name {
        Name::new("")
    }

    fn label(&mut self) -> Name {
        Name::new("")
    }
}

/// The spelling of an mbarrier's ordering; PTX's default has none.
pub(super) struct Order(MbarrierOrder, &'static str);

impl Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            MbarrierOrder::CTA => Ok(()),
            MbarrierOrder::Sync(scope) => write!(f, ".{}.{}", self.1, scope.suffix()),
            MbarrierOrder::Relaxed(scope) => write!(f, ".relaxed.{}", scope.suffix()),
        }
    }
}

impl MbarrierOrder {
    /// The modifiers of an operation that is `sync` unless it is relaxed.
    pub(super) const fn spelled(self, sync: &'static str) -> Order {
        Order(self, sync)
    }
}
