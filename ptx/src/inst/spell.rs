//! The spelling of each instruction: PTX's text, in which every operand stands with its type.
//!
//! It is the one description of an instruction. The printer writes it down, and [`Inst::operands`] and
//! [`Inst::name`] are read from it.

use core::fmt::{self, Display};

use super::{
    Address, BinaryOp, CompareOp, Expect, Inst, MbarrierOrder, Operand, Operands, ProxySpace, Reg, UnaryOp,
    WgmmaA,
};
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
    /// The type of a register. `None` if there is no such register.
    fn declared(&self, reg: Reg) -> Option<Type>;
    /// The name of a parameter.
    fn param(&self, param: u32) -> &'static str;
    /// A label of its own.
    fn label(&mut self) -> u32;
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

    /// A register that is written, of any type of this width in bits.
    pub(super) fn set_bits(self, reg: Reg, bits: u32) -> Self {
        self.gives(reg, Expect::Bits(bits))
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
        self.takes(operand, Expect::Bits(ty.bits()), ty)
    }

    /// An operand of any type of 32 bits; as an immediate it is a `ty`.
    pub(super) fn word(self, operand: Operand, ty: Type) -> Self {
        self.takes(operand, Expect::Bits(32), ty)
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

    /// An operand that may be left out.
    pub(super) fn option(self, operand: Option<Operand>, ty: Type) -> Self {
        operand.into_iter().fold(self, |line, operand| line.read(operand, ty))
    }

    /// The policy of a copy with [`hinted`] in its name.
    pub(super) fn policy(self, hint: Option<u64>) -> Self {
        hint.into_iter().fold(self, |line, policy| line.also(format_args!("{policy:#x}")))
    }

    /// The type of a register.
    pub(super) fn declared(&self, reg: Reg) -> Type {
        self.sink.declared(reg).unwrap_or(Type::Pred)
    }
}

/// How copies name the mbarrier that counts their bytes.
pub(super) const BYTES: &str = "mbarrier::complete_tx::bytes";

/// The modifier of a copy with an L2 cache policy.
pub(super) const fn hinted(hint: Option<u64>) -> &'static str {
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

const fn signed_spelling(ty: Type) -> &'static str {
    match ty.bits() {
        16 if ty.is_integer() => "s16",
        32 if ty.is_integer() => "s32",
        64 if ty.is_integer() => "s64",
        _ => ty.suffix(),
    }
}

/// The type of an access to memory: halves are moved as bits.
pub(super) const fn memory_type(ty: Type) -> &'static str {
    if ty.bits() == 16 { "b16" } else { ty.suffix() }
}

/// The name of an access, of global or of shared memory, and the rest of the space's name.
const fn in_space(space: Space, [global, shared]: [&'static str; 2]) -> (&'static str, &'static str) {
    match space {
        Space::Global => (global, ""),
        Space::Shared => (shared, "::cta"),
        Space::SharedCluster => (shared, "::cluster"),
    }
}

const fn binary_name(op: BinaryOp, ty: Type) -> (&'static str, &'static str) {
    let (float, own, bits) = (ty.is_float(), ty.suffix(), bits_spelling(ty));
    match op {
        BinaryOp::Add => (if float { "add.rn" } else { "add" }, own),
        BinaryOp::Sub => (if float { "sub.rn" } else { "sub" }, own),
        BinaryOp::Mul => (if float { "mul.rn" } else { "mul.lo" }, own),
        BinaryOp::MulHigh => ("mul.hi", own),
        BinaryOp::Div => (if float { "div.rn" } else { "div" }, own),
        BinaryOp::Rem => ("rem", own),
        BinaryOp::Min => ("min", own),
        BinaryOp::Max => ("max", own),
        BinaryOp::And => ("and", bits),
        BinaryOp::Or => ("or", bits),
        BinaryOp::Xor => ("xor", bits),
        BinaryOp::Shl => ("shl", bits),
        BinaryOp::Shr => ("shr", own),
    }
}

const fn compare_name(op: CompareOp, ty: Type) -> &'static str {
    match op {
        CompareOp::Eq => "eq",
        CompareOp::Ne if ty.is_float() => "neu",
        CompareOp::Ne => "ne",
        CompareOp::Lt => "lt",
        CompareOp::Le => "le",
        CompareOp::Gt => "gt",
        CompareOp::Ge => "ge",
    }
}

impl Inst {
    /// Spells the instruction.
    pub(crate) fn spell(&self, sink: &mut dyn Sink) {
        let line = Line { sink, gap: "" };
        let line = match self {
            Self::Move { dst, src } => {
                let ty = line.declared(*dst);
                let number = matches!(src, Operand::Imm(_)) && ty != Type::U8;
                let spelling = if number || ty == Type::Pred { memory_type(ty) } else { register_bits(ty) };
                line.op("mov", format_args!(".{spelling}")).set_bits(*dst, ty.bits()).bits(*src, ty)
            }
            Self::Binary { op, ty, dst, a, b } => {
                let count = if matches!(op, BinaryOp::Shl | BinaryOp::Shr) { Type::U32 } else { *ty };
                let (name, of) = binary_name(*op, *ty);
                let line = line.named("arithmetic", format_args!("{name}.{of}"));
                line.set(*dst, *ty).read(*a, *ty).read(*b, count)
            }
            Self::MulAdd { ty, dst, a, b, c } => {
                let name = if ty.is_float() { "fma.rn" } else { "mad.lo" };
                line.named("mad", format_args!("{name}.{ty}")).set(*dst, *ty).reads(&[*a, *b, *c], *ty)
            }
            Self::MulWide { dst, a, b } => {
                line.op("mul.wide", ".u32").set(*dst, Type::U64).reads(&[*a, *b], Type::U32)
            }
            Self::Unary { op, ty, dst, a } => {
                let (name, of) = match op {
                    UnaryOp::Neg => ("neg", signed_spelling(*ty)),
                    UnaryOp::Abs => ("abs", signed_spelling(*ty)),
                    UnaryOp::Not => ("not", bits_spelling(*ty)),
                };
                line.named("arithmetic", format_args!("{name}.{of}")).set(*dst, *ty).read(*a, *ty)
            }
            Self::Compare { op, ty, dst, a, b } => {
                let line = line.op("setp", format_args!(".{}.{ty}", compare_name(*op, *ty)));
                line.set(*dst, Type::Pred).reads(&[*a, *b], *ty)
            }
            Self::Select { ty, dst, a, b, cond } => {
                let of = if ty.is_float() && ty.bits() >= 32 { ty.suffix() } else { register_bits(*ty) };
                let line = line.op("selp", format_args!(".{of}")).set(*dst, *ty);
                line.reads(&[*a, *b], *ty).read(*cond, Type::Pred)
            }
            Self::Convert { from, dst, src } => {
                let to = line.declared(*dst);
                let rounding = match (from.is_float(), to.is_float()) {
                    (true, true) if to.bits() < from.bits() => ".rn",
                    (false, true) => ".rn",
                    (true, false) => ".rzi",
                    _ => "",
                };
                let line = line.op("cvt", format_args!("{rounding}.{to}.{from}"));
                line.set_bits(*dst, to.bits()).read(*src, *from)
            }
            Self::Pack { ty, dst, low, high } => {
                let line = line.op("cvt", format_args!(".rn.{ty}x2.f32"));
                line.set(*dst, Type::U32).reads(&[*high, *low], Type::F32)
            }
            Self::Unpack { low, high, src } => {
                line.op("mov", ".b32").set_group(&[*low, *high], Expect::Bits(16)).bits(*src, Type::U32)
            }
            Self::ReadSpecial { dst, special } => {
                let ty = special.ty();
                line.op("mov", format_args!(".{ty}")).set(*dst, ty).also(special.name())
            }
            Self::ShuffleIndex { dst, src, lane } => {
                let ty = line.declared(*dst);
                let line = line.op("shfl.sync", ".idx.b32").set_bits(*dst, 32);
                line.word(*src, ty).read(*lane, Type::U32).also("31, -1")
            }
            Self::ShuffleXor { dst, src, mask } => {
                let ty = line.declared(*dst);
                let line = line.op("shfl.sync", ".bfly.b32").set_bits(*dst, 32);
                line.word(*src, ty).also(mask).also("31, -1")
            }
            Self::Elect { dst } => line.op("elect.sync", "").glue(" _|").set(*dst, Type::Pred).also(-1),
            Self::SetMaxRegisters { grow, count } => {
                let way = if *grow { "inc" } else { "dec" };
                line.op("setmaxnreg", format_args!(".{way}.sync.aligned.u32")).also(count)
            }
            Self::Trap => line.op("trap", ""),
            Self::GridDependency { wait } => {
                line.op("griddepcontrol", if *wait { ".wait" } else { ".launch_dependents" })
            }
            Self::LoadParam { dst, param } => {
                let (ty, name) = (line.declared(*dst), line.sink.param(*param));
                let line = line.op("ld.param", format_args!(".{}", memory_type(ty)));
                line.set_bits(*dst, ty.bits()).also(format_args!("[{name}]"))
            }
            Self::ParamAddress { dst, param } => {
                let name = line.sink.param(*param);
                line.op("cvta.param", ".u64").set(*dst, Type::U64).also(name)
            }
            Self::SharedBase { dst } => line.op("mov", ".u32").set(*dst, Type::U32).also("dynamic_shared"),
            Self::Load { space, ty, dst, address } => {
                let ((name, cta), wide) = (in_space(*space, ["ld.global", "ld.shared"]), width(dst.len()));
                let line = line.op(name, format_args!("{cta}{wide}.{}", memory_type(*ty)));
                line.set_vector(dst, *ty).address(*address, *space)
            }
            Self::Store { space, ty, src, address } => {
                let ((name, cta), wide) = (in_space(*space, ["st.global", "st.shared"]), width(src.len()));
                let line = line.op(name, format_args!("{cta}{wide}.{}", memory_type(*ty)));
                line.address(*address, *space).vector(src, *ty)
            }
            Self::MapShared { dst, address, rank } => {
                let line = line.op("mapa", ".shared::cluster.u32").set(*dst, Type::U32);
                line.reads(&[*address, *rank], Type::U32)
            }
            Self::BarrierSync { id, threads } => line.op("bar.sync", "").read(*id, Type::U32).also(threads),
            Self::BarrierArrive { id, threads } => {
                line.op("bar.arrive", "").read(*id, Type::U32).also(threads)
            }
            Self::WarpSync => line.op("bar.warp.sync", "").also(-1),
            Self::ClusterArrive { relaxed } => {
                line.op("barrier.cluster.arrive", if *relaxed { ".relaxed.aligned" } else { ".aligned" })
            }
            Self::ClusterWait => line.op("barrier.cluster.wait", ".acquire.aligned"),
            Self::MbarrierInit { barrier, count } => {
                let line = line.op("mbarrier.init", ".shared::cta.b64");
                line.at(*barrier, Type::U32).read(*count, Type::U32)
            }
            Self::MbarrierInvalidate { barrier } => {
                line.op("mbarrier.inval", ".shared::cta.b64").at(*barrier, Type::U32)
            }
            Self::MbarrierArrive(arrival) => arrival.spell(line),
            Self::MbarrierTransact { complete, barrier, space, bytes, scope } => {
                let name = if *complete { "mbarrier.complete_tx" } else { "mbarrier.expect_tx" };
                let line = line.op(name, format_args!(".relaxed.{}.{}.b64", scope.suffix(), space.name()));
                line.at(*barrier, Type::U32).read(*bytes, Type::U32)
            }
            Self::MbarrierTest(test) => test.spell(line),
            Self::MbarrierPending { dst, state } => {
                line.op("mbarrier.pending_count", ".b64").set(*dst, Type::U32).read(*state, Type::U64)
            }
            Self::MbarrierWait { barrier, parity, order } => {
                let (label, order) = (line.sink.label(), order.spelled("acquire"));
                let line = line.named("mbarrier.try_wait", "{\n\t.reg .pred %done;\n$wait_");
                let line = line.raw(format_args!("{label}:\n\tmbarrier.try_wait.parity{order}"));
                let line = line.raw(".shared::cta.b64 %done").glue(", ");
                let line = line.at(*barrier, Type::U32).read(*parity, Type::U32);
                line.raw(format_args!(";\n\t@!%done bra $wait_{label};\n\t}}"));
                return;
            }
            Self::FenceMbarrierInit => line.op("fence.mbarrier_init", ".release.cluster"),
            Self::FenceProxyAsync { space } => line.op(
                "fence.proxy.async",
                match space {
                    ProxySpace::Shared => ".shared::cta",
                    ProxySpace::SharedCluster => ".shared::cluster",
                    ProxySpace::Global => ".global",
                    ProxySpace::All => "",
                },
            ),
            Self::Fence { sem, scope } => {
                line.op("fence", format_args!(".{}.{}", sem.suffix(), scope.suffix()))
            }
            Self::Atomic(atomic) => atomic.spell(line),
            Self::Ordered(access) => access.spell(line),
            Self::CopyAsync(copy) => copy.spell(line),
            Self::WarpMatrix(matrix) => matrix.spell(line),
            Self::Warp(exchange) => exchange.spell(line),
            Self::Alu(alu) => alu.spell(line),
            Self::TensorLoad { map, coords, im2col, dst, barrier, multicast: mask, hint } => {
                let (rank, mode) = (coords.len(), if im2col.is_some() { "im2col" } else { "tile" });
                let line = line.op("cp.async.bulk.tensor", format_args!(".{rank}d.shared::cluster.global"));
                let line = line.raw(format_args!(".{mode}.{BYTES}"));
                let line = line.raw(multicast(*mask)).raw(hinted(*hint)).at(*dst, Type::U32);
                let line = line.tensor(*map, coords).at(*barrier, Type::U32);
                let offsets = im2col.iter().fold(line, |line, offsets| line.group(offsets, Type::U16));
                offsets.option(*mask, Type::U16).policy(*hint)
            }
            Self::TensorStore { reduce, map, coords, im2col, src, hint } => {
                let (rank, mode) = (coords.len(), if *im2col { "im2col_no_offs" } else { "tile" });
                let (name, dot, op) = match reduce {
                    Some(op) => ("cp.reduce.async.bulk.tensor", ".", op.name()),
                    None => ("cp.async.bulk.tensor", "", ""),
                };
                let line = line.op(name, format_args!(".{rank}d.global.shared::cta{dot}{op}.{mode}"));
                let line = line.raw(".bulk_group").raw(hinted(*hint)).tensor(*map, coords);
                line.at(*src, Type::U32).policy(*hint)
            }
            Self::TensorPrefetch { map, coords, im2col } => {
                let (rank, mode) = (coords.len(), if im2col.is_some() { "im2col" } else { "tile" });
                let line =
                    line.op("cp.async.bulk.prefetch.tensor", format_args!(".{rank}d.L2.global.{mode}"));
                let line = line.tensor(*map, coords);
                im2col.iter().fold(line, |line, offsets| line.group(offsets, Type::U16))
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
            Self::Wgmma {
                types,
                n,
                sparse,
                d,
                a,
                b,
                accumulate,
                negate_a,
                negate_b,
                transpose_a,
                transpose_b,
            } => {
                let (sp, k) = if sparse.is_some() { (".sp", 2 * types.k()) } else { ("", types.k()) };
                let line = line.op("wgmma.mma_async", sp);
                let line = line.raw(format_args!(".sync.aligned.m64n{n}k{k}.{}", types.suffix()));
                let line = line.set_group(d, Expect::Accumulator);
                let line = match a {
                    WgmmaA::Shared(descriptor) => line.read(*descriptor, Type::U64),
                    WgmmaA::Registers(regs) => {
                        let line = line.also("{").glue("");
                        let regs = regs.iter().map(|&reg| Operand::Reg(reg));
                        regs.fold(line, |line, reg| line.bits(reg, Type::U32)).raw("}").glue(", ")
                    }
                };
                let line = line.read(*b, Type::U64);
                let line = sparse.iter().fold(line, |line, sparse| {
                    line.read(Operand::Reg(sparse.metadata), Type::U32).also(sparse.selector)
                });
                let mut line = line.read(*accumulate, Type::Pred);
                let sign = |negate: bool| if negate { -1 } else { 1 };
                if types.allows_negation() {
                    line = line.also(sign(*negate_a)).also(sign(*negate_b));
                }
                if types.allows_transpose() && matches!(a, WgmmaA::Shared(_)) {
                    line = line.also(u8::from(*transpose_a));
                }
                if types.allows_transpose() { line.also(u8::from(*transpose_b)) } else { line }
            }
            Self::StoreMatrix { address, src, transpose } => {
                let (count, transpose) = (src.len(), if *transpose { ".trans" } else { "" });
                let line = line.op("stmatrix", format_args!(".sync.aligned.m8n8.x{count}{transpose}"));
                line.raw(".shared::cta.b16").at(*address, Type::U32).group(src, Type::U32)
            }
        };
        line.raw(";");
    }

    /// The kind of the instruction in reports: PTX's name without modifiers, or `arithmetic`.
    pub fn name(&self) -> &'static str {
        let mut list = List { types: &|_| None, operands: Operands::default(), name: "" };
        self.spell(&mut list);
        list.name
    }

    /// The instruction's operands; `types` gives the type of a register.
    pub fn operands(&self, types: impl Fn(Reg) -> Option<Type>) -> Operands {
        let mut list = List { types: &types, operands: Operands::default(), name: "" };
        self.spell(&mut list);
        list.operands
    }
}

/// Collects the operands of a spelling, and the name.
struct List<'a> {
    types: &'a dyn Fn(Reg) -> Option<Type>,
    operands: Operands,
    name: &'static str,
}

impl Sink for List<'_> {
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

    fn declared(&self, reg: Reg) -> Option<Type> {
        (self.types)(reg)
    }

    fn param(&self, _: u32) -> &'static str {
        ""
    }

    fn label(&mut self) -> u32 {
        0
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
