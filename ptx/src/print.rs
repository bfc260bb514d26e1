//! The printer: a verified function as PTX text.
//!
//! The printer relies on the verifier's checks. Scopes become comments, and a conditional block of one plain
//! instruction becomes a guarded instruction instead of a branch.

mod alu;
mod atomic;
mod bulk;
mod im2col;
mod tensor_map;
mod warp;

use core::fmt::Write;

use crate::function::{Function, ParamKind, Statement};
use crate::inst::{
    Address, BinaryOp, CompareOp, Inst, MbarrierOrder, Operand, ProxySpace, Reg, UnaryOp, WgmmaA,
};
use crate::types::{Space, Type};
use crate::verify::Verified;

/// The PTX module of one kernel: `.version`, `.target` and the entry. Pass it to the driver or to an
/// assembler.
pub fn module_text(function: &Verified) -> String {
    let mut printer = Printer { function, out: String::new(), labels: 0, loops: Vec::new() };
    printer.module();
    printer.out
}

struct Printer<'a> {
    function: &'a Function,
    out: String,
    labels: u32,
    /// Exit labels of the open loops, innermost last.
    loops: Vec<u32>,
}

/// Alignment of dynamic shared memory in bytes: the period of the widest swizzle.
const SHARED_ALIGNMENT: u32 = 1024;

impl Printer<'_> {
    fn line(&mut self, text: &str) {
        self.out.push('\t');
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn label(&mut self) -> u32 {
        self.labels += 1;
        self.labels
    }

    fn module(&mut self) {
        let function = self.function;
        let (major, minor) = function.version();
        let name = function.target.name();
        let _ = writeln!(self.out, ".version {major}.{minor}\n.target {name}\n.address_size 64\n");
        let _ = writeln!(self.out, ".extern .shared .align {SHARED_ALIGNMENT} .b8 dynamic_shared[];\n");
        let _ = writeln!(self.out, ".visible .entry {}(", function.name);
        for (i, param) in function.params.iter().enumerate() {
            let comma = if i + 1 < function.params.len() { "," } else { "" };
            let name = param.name;
            let _ = match param.kind {
                ParamKind::Scalar(ty) => writeln!(self.out, "\t.param .{ty} {name}{comma}"),
                ParamKind::TensorMap => writeln!(self.out, "\t.param .align 64 .b8 {name}[128]{comma}"),
            };
        }
        let [x, y, z] = function.cluster;
        let _ = writeln!(self.out, ")\n.maxntid {}, 1, 1\n.minnctapersm 1", function.threads);
        if [x, y, z] != [1, 1, 1] {
            let _ = writeln!(self.out, ".reqnctapercluster {x}, {y}, {z}");
        }
        self.out.push_str("{\n");
        self.registers();
        self.block(&function.body);
        self.line("ret;");
        self.out.push_str("}\n");
    }

    /// Declares the registers, a run of equal types in one line. Each register keeps its number.
    fn registers(&mut self) {
        for (class, declared) in
            [("p", "pred"), ("h", "b16"), ("r", "b32"), ("f", "f32"), ("d", "b64"), ("e", "f64")]
        {
            let of_class = |ty: &Type| register_class(*ty) == class;
            if let Some(last) = self.function.registers.iter().rposition(of_class) {
                let _ = writeln!(self.out, "\t.reg .{declared} %{class}<{}>;", last + 1);
            }
        }
    }

    fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Inst { inst, .. } => self.inst(inst),
            Statement::If { cond, then, otherwise, .. } => self.if_(*cond, then, otherwise),
            Statement::Loop { body, .. } => {
                let exit = self.label();
                let _ = writeln!(self.out, "$loop_{exit}:");
                self.loops.push(exit);
                self.block(body);
                self.loops.pop();
                let _ = writeln!(self.out, "\tbra $loop_{exit};\n$exit_{exit}:");
            }
            Statement::Break { cond, .. } => {
                if let Some(&exit) = self.loops.last() {
                    match *cond {
                        Operand::Imm(0) => {}
                        Operand::Imm(_) => self.line(&format!("bra $exit_{exit};")),
                        Operand::Reg(reg) => {
                            let guard = self.name(reg);
                            self.line(&format!("@{guard} bra $exit_{exit};"));
                        }
                    }
                }
            }
            Statement::Scope { name, body } => {
                let _ = writeln!(self.out, "\t// {name} {{");
                self.block(body);
                let _ = writeln!(self.out, "\t// }} {name}");
            }
        }
    }

    fn if_(&mut self, cond: Operand, then: &[Statement], otherwise: &[Statement]) {
        let Operand::Reg(cond) = cond else {
            let taken = if cond == Operand::Imm(0) { otherwise } else { then };
            return self.block(taken);
        };
        let cond = self.name(cond);
        if let ([Statement::Inst { inst, .. }], []) = (then, otherwise)
            && can_guard(inst)
        {
            let start = self.out.len();
            self.inst(inst);
            self.out.insert_str(start + 1, &format!("@{cond} "));
            return;
        }
        let label = self.label();
        let skip = if otherwise.is_empty() { "endif" } else { "else" };
        self.line(&format!("@!{cond} bra ${skip}_{label};"));
        self.block(then);
        if !otherwise.is_empty() {
            self.line(&format!("bra $endif_{label};"));
            let _ = writeln!(self.out, "$else_{label}:");
            self.block(otherwise);
        }
        let _ = writeln!(self.out, "$endif_{label}:");
    }

    // ---- operands ----

    fn ty(&self, reg: Reg) -> Type {
        self.function.registers[reg.0 as usize]
    }

    fn name(&self, reg: Reg) -> String {
        format!("%{}{}", register_class(self.ty(reg)), reg.0)
    }

    fn op(&self, operand: Operand, ty: Type) -> String {
        match operand {
            Operand::Reg(reg) => self.name(reg),
            Operand::Imm(bits) => immediate(bits, ty),
        }
    }

    fn u32(&self, operand: Operand) -> String {
        self.op(operand, Type::U32)
    }

    fn u64(&self, operand: Operand) -> String {
        self.op(operand, Type::U64)
    }

    fn address(&self, address: Address, space: Space) -> String {
        let base = self.op(address.base, space.address_type());
        match address.offset {
            0 => format!("[{base}]"),
            offset => format!("[{base}+{offset}]"),
        }
    }

    fn list(&self, operands: &[Operand], ty: Type) -> String {
        let names: Vec<_> = operands.iter().map(|&operand| self.op(operand, ty)).collect();
        names.join(", ")
    }

    fn vector(&self, operands: &[Operand], ty: Type) -> (String, String) {
        match operands {
            [one] => (String::new(), self.op(*one, ty)),
            many => (format!(".v{}", many.len()), format!("{{{}}}", self.list(many, ty))),
        }
    }

    fn regs(&self, regs: &[Reg]) -> String {
        let names: Vec<_> = regs.iter().map(|&reg| self.name(reg)).collect();
        names.join(", ")
    }

    // ---- instructions ----

    fn inst(&mut self, inst: &Inst) {
        let text = match inst {
            Inst::Move { dst, src } => {
                let ty = self.ty(*dst);
                match src {
                    Operand::Imm(bits) => {
                        let spelling = if ty == Type::U8 { register_bits(ty) } else { memory_type(ty) };
                        format!("mov.{spelling} {}, {};", self.name(*dst), immediate(*bits, ty))
                    }
                    Operand::Reg(src) if ty == Type::Pred => {
                        format!("mov.pred {}, {};", self.name(*dst), self.name(*src))
                    }
                    Operand::Reg(src) => {
                        format!("mov.{} {}, {};", register_bits(ty), self.name(*dst), self.name(*src))
                    }
                }
            }
            Inst::Binary { op, ty, dst, a, b } => {
                let count = if matches!(op, BinaryOp::Shl | BinaryOp::Shr) { Type::U32 } else { *ty };
                let name = binary_name(*op, *ty);
                format!("{name} {}, {}, {};", self.name(*dst), self.op(*a, *ty), self.op(*b, count))
            }
            Inst::MulAdd { ty, dst, a, b, c } => {
                let name = if ty.is_float() { format!("fma.rn.{ty}") } else { format!("mad.lo.{ty}") };
                let (a, b, c) = (self.op(*a, *ty), self.op(*b, *ty), self.op(*c, *ty));
                format!("{name} {}, {a}, {b}, {c};", self.name(*dst))
            }
            Inst::MulWide { dst, a, b } => {
                format!("mul.wide.u32 {}, {}, {};", self.name(*dst), self.u32(*a), self.u32(*b))
            }
            Inst::Unary { op, ty, dst, a } => {
                let name = match op {
                    UnaryOp::Neg => format!("neg.{}", signed_spelling(*ty)),
                    UnaryOp::Abs => format!("abs.{}", signed_spelling(*ty)),
                    UnaryOp::Not => format!("not.{}", bits_spelling(*ty)),
                };
                format!("{name} {}, {};", self.name(*dst), self.op(*a, *ty))
            }
            Inst::Compare { op, ty, dst, a, b } => {
                let name = compare_name(*op, *ty);
                format!("setp.{name}.{ty} {}, {}, {};", self.name(*dst), self.op(*a, *ty), self.op(*b, *ty))
            }
            Inst::Select { ty, dst, a, b, cond } => {
                let width =
                    if ty.is_float() && ty.bits() >= 32 { ty.to_string() } else { register_bits(*ty) };
                let (a, b, cond) = (self.op(*a, *ty), self.op(*b, *ty), self.op(*cond, Type::Pred));
                format!("selp.{width} {}, {a}, {b}, {cond};", self.name(*dst))
            }
            Inst::Convert { from, dst, src } => {
                let to = self.ty(*dst);
                let rounding = match (from.is_float(), to.is_float()) {
                    (true, true) if to.bits() < from.bits() => ".rn",
                    (false, true) => ".rn",
                    (true, false) => ".rzi",
                    _ => "",
                };
                format!("cvt{rounding}.{to}.{from} {}, {};", self.name(*dst), self.op(*src, *from))
            }
            Inst::Pack { ty, dst, low, high } => {
                let (low, high) = (self.op(*low, Type::F32), self.op(*high, Type::F32));
                format!("cvt.rn.{ty}x2.f32 {}, {high}, {low};", self.name(*dst))
            }
            Inst::Unpack { low, high, src } => {
                format!("mov.b32 {{{}, {}}}, {};", self.name(*low), self.name(*high), self.u32(*src))
            }
            Inst::ReadSpecial { dst, special } => {
                format!("mov.{} {}, {};", special.ty(), self.name(*dst), special.name())
            }
            Inst::ShuffleIndex { dst, src, lane } => {
                let (src, lane) = (self.op(*src, self.ty(*dst)), self.u32(*lane));
                format!("shfl.sync.idx.b32 {}, {src}, {lane}, 31, -1;", self.name(*dst))
            }
            Inst::ShuffleXor { dst, src, mask } => {
                let src = self.op(*src, self.ty(*dst));
                format!("shfl.sync.bfly.b32 {}, {src}, {mask}, 31, -1;", self.name(*dst))
            }
            Inst::Elect { dst } => format!("elect.sync _|{}, -1;", self.name(*dst)),
            Inst::SetMaxRegisters { grow, count } => {
                format!("setmaxnreg.{}.sync.aligned.u32 {count};", if *grow { "inc" } else { "dec" })
            }
            Inst::Trap => "trap;".to_owned(),
            Inst::GridDependency { wait: true } => "griddepcontrol.wait;".to_owned(),
            Inst::GridDependency { wait: false } => "griddepcontrol.launch_dependents;".to_owned(),
            Inst::LoadParam { dst, param } => {
                let name = self.function.params[*param as usize].name;
                format!("ld.param.{} {}, [{name}];", memory_type(self.ty(*dst)), self.name(*dst))
            }
            Inst::ParamAddress { dst, param } => {
                let name = self.function.params[*param as usize].name;
                format!("cvta.param.u64 {}, {name};", self.name(*dst))
            }
            Inst::SharedBase { dst } => format!("mov.u32 {}, dynamic_shared;", self.name(*dst)),
            Inst::Load { space, ty, dst, address } => {
                let dst: Vec<_> = dst.iter().map(|&reg| Operand::Reg(reg)).collect();
                let (width, dst) = self.vector(&dst, *ty);
                let ty = memory_type(*ty);
                format!("ld.{}{width}.{ty} {dst}, {};", space_name(*space), self.address(*address, *space))
            }
            Inst::Store { space, ty, src, address } => {
                let (width, src) = self.vector(src, *ty);
                let ty = memory_type(*ty);
                format!("st.{}{width}.{ty} {}, {src};", space_name(*space), self.address(*address, *space))
            }
            Inst::MapShared { dst, address, rank } => {
                format!(
                    "mapa.shared::cluster.u32 {}, {}, {};",
                    self.name(*dst),
                    self.u32(*address),
                    self.u32(*rank)
                )
            }
            Inst::BarrierSync { id, threads } => format!("bar.sync {}, {threads};", self.u32(*id)),
            Inst::BarrierArrive { id, threads } => format!("bar.arrive {}, {threads};", self.u32(*id)),
            Inst::WarpSync => "bar.warp.sync -1;".to_owned(),
            Inst::ClusterArrive { relaxed } => {
                format!("barrier.cluster.arrive{}.aligned;", if *relaxed { ".relaxed" } else { "" })
            }
            Inst::ClusterWait => "barrier.cluster.wait.acquire.aligned;".to_owned(),
            Inst::MbarrierInit { barrier, count } => {
                format!("mbarrier.init.shared::cta.b64 [{}], {};", self.u32(*barrier), self.u32(*count))
            }
            Inst::MbarrierInvalidate { barrier } => {
                format!("mbarrier.inval.shared::cta.b64 [{}];", self.u32(*barrier))
            }
            Inst::MbarrierArrive { barrier, space, count, order } => {
                let count = match count {
                    Operand::Imm(1) => String::new(),
                    Operand::Imm(_) | Operand::Reg(_) => format!(", {}", self.u32(*count)),
                };
                let (order, space) = (arrival(*order), cta_space(*space));
                format!("mbarrier.arrive{order}.{space}.b64 _, [{}]{count};", self.u32(*barrier))
            }
            Inst::MbarrierArriveExpectTx { barrier, bytes, order } => {
                let (barrier, bytes, order) = (self.u32(*barrier), self.u32(*bytes), arrival(*order));
                format!("mbarrier.arrive.expect_tx{order}.shared::cta.b64 _, [{barrier}], {bytes};")
            }
            Inst::MbarrierExpectTx { barrier, bytes, scope } => {
                let (barrier, bytes, scope) = (self.u32(*barrier), self.u32(*bytes), scope.suffix());
                format!("mbarrier.expect_tx.relaxed.{scope}.shared::cta.b64 [{barrier}], {bytes};")
            }
            Inst::MbarrierTryWait { dst, barrier, parity, order } => {
                let (barrier, parity, order) = (self.u32(*barrier), self.u32(*parity), wait(*order));
                format!(
                    "mbarrier.try_wait.parity{order}.shared::cta.b64 {}, [{barrier}], {parity};",
                    self.name(*dst)
                )
            }
            Inst::MbarrierWait { barrier, parity, order } => {
                let label = self.label();
                let (barrier, parity, order) = (self.u32(*barrier), self.u32(*parity), wait(*order));
                format!(
                    "{{\n\t.reg .pred %done;\n$wait_{label}:\n\tmbarrier.try_wait.parity{order}.shared::cta.b64 %done, \
                     [{barrier}], {parity};\n\t@!%done bra $wait_{label};\n\t}}"
                )
            }
            Inst::FenceMbarrierInit => "fence.mbarrier_init.release.cluster;".to_owned(),
            Inst::FenceProxyAsync { space } => match space {
                ProxySpace::Shared => "fence.proxy.async.shared::cta;".to_owned(),
                ProxySpace::SharedCluster => "fence.proxy.async.shared::cluster;".to_owned(),
                ProxySpace::Global => "fence.proxy.async.global;".to_owned(),
                ProxySpace::All => "fence.proxy.async;".to_owned(),
            },
            Inst::Fence { sem, scope } => format!("fence.{}.{};", sem.suffix(), scope.suffix()),
            Inst::Atomic(atomic) => self.atomic(atomic),
            Inst::Ordered(access) => self.ordered(access),
            Inst::CopyAsync(copy) => self.copy_async(copy),
            Inst::WarpMatrix(matrix) => self.warp_matrix(matrix),
            Inst::Warp(exchange) => self.warp(exchange),
            Inst::Alu(alu) => self.alu(alu),
            Inst::TensorLoad { map, coords, dst, barrier, multicast, hint } => {
                let mut name = format!(
                    "cp.async.bulk.tensor.{}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
                    coords.len()
                );
                let mut tail = String::new();
                if let Some(mask) = multicast {
                    name.push_str(".multicast::cluster");
                    let _ = write!(tail, ", {}", self.op(*mask, Type::U16));
                }
                if let Some(policy) = hint {
                    name.push_str(".L2::cache_hint");
                    let _ = write!(tail, ", {policy:#x}");
                }
                let coords = self.list(coords, Type::S32);
                let (dst, map, barrier) = (self.u32(*dst), self.u64(*map), self.u32(*barrier));
                format!("{name} [{dst}], [{map}, {{{coords}}}], [{barrier}]{tail};")
            }
            Inst::TensorStore { map, coords, src, hint } => {
                let mut name =
                    format!("cp.async.bulk.tensor.{}d.global.shared::cta.tile.bulk_group", coords.len());
                let mut tail = String::new();
                if let Some(policy) = hint {
                    name.push_str(".L2::cache_hint");
                    let _ = write!(tail, ", {policy:#x}");
                }
                let coords = self.list(coords, Type::S32);
                format!("{name} [{}, {{{coords}}}], [{}]{tail};", self.u64(*map), self.u32(*src))
            }
            Inst::BulkCommit => "cp.async.bulk.commit_group;".to_owned(),
            Inst::BulkWait { pending, read } => {
                format!("cp.async.bulk.wait_group{} {pending};", if *read { ".read" } else { "" })
            }
            Inst::PrefetchTensorMap { map } => format!("prefetch.tensormap [{}];", self.u64(*map)),
            Inst::TensorMap(inst) => self.tensor_map(inst),
            Inst::Bulk(bulk) => self.bulk(bulk),
            Inst::MbarrierMore(inst) => self.mbarrier(inst),
            Inst::BarrierReduce(reduce) => self.barrier_reduce(reduce),
            Inst::WgmmaFence => "wgmma.fence.sync.aligned;".to_owned(),
            Inst::WgmmaCommit => "wgmma.commit_group.sync.aligned;".to_owned(),
            Inst::WgmmaWait { pending } => format!("wgmma.wait_group.sync.aligned {pending};"),
            Inst::Wgmma {
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
                let sign = |negate: bool| if negate { -1 } else { 1 };
                let mut tail = String::new();
                if types.allows_negation() {
                    let _ = write!(tail, ", {}, {}", sign(*negate_a), sign(*negate_b));
                }
                let shared_a = matches!(a, WgmmaA::Shared(_));
                if types.allows_transpose() {
                    if shared_a {
                        let _ = write!(tail, ", {}", u8::from(*transpose_a));
                    }
                    let _ = write!(tail, ", {}", u8::from(*transpose_b));
                }
                let a = match a {
                    WgmmaA::Shared(descriptor) => self.u64(*descriptor),
                    WgmmaA::Registers(regs) => format!("{{{}}}", self.regs(regs)),
                };
                let accumulate = match accumulate {
                    Operand::Imm(bit) => bit.to_string(),
                    Operand::Reg(reg) => self.name(*reg),
                };
                let (sp, k, metadata) = match sparse {
                    None => ("", types.k(), String::new()),
                    Some(sparse) => {
                        let metadata = format!("{}, {}, ", self.name(sparse.metadata), sparse.selector);
                        (".sp", 2 * types.k(), metadata)
                    }
                };
                format!(
                    "wgmma.mma_async{sp}.sync.aligned.m64n{n}k{k}.{} {{{}}}, {a}, {}, {metadata}{accumulate}{tail};",
                    types.suffix(),
                    self.regs(d),
                    self.u64(*b),
                )
            }
            Inst::StoreMatrix { address, src, transpose } => {
                let transpose = if *transpose { ".trans" } else { "" };
                let (address, count, src) = (self.u32(*address), src.len(), self.list(src, Type::U32));
                format!(
                    "stmatrix.sync.aligned.m8n8.x{count}{transpose}.shared::cta.b16 [{address}], {{{src}}};"
                )
            }
        };
        self.line(&text);
    }
}

/// Whether a conditional block of this instruction alone may be printed as a guarded instruction.
fn can_guard(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Move { .. }
            | Inst::Binary { .. }
            | Inst::Load { .. }
            | Inst::Store { .. }
            | Inst::MbarrierArrive { .. }
            | Inst::MbarrierArriveExpectTx { .. }
            | Inst::Trap
    )
}

fn register_class(ty: Type) -> &'static str {
    match ty {
        Type::Pred => "p",
        Type::U8 | Type::U16 | Type::F16 | Type::Bf16 => "h",
        Type::U32 | Type::S32 => "r",
        Type::F32 => "f",
        Type::U64 | Type::S64 => "d",
        Type::F64 => "e",
    }
}

/// The text of an immediate. Floats are written as bits, so that each value is exact.
fn immediate(bits: u64, ty: Type) -> String {
    match ty {
        Type::Pred | Type::U8 | Type::U16 | Type::U32 | Type::U64 => bits.to_string(),
        Type::F16 | Type::Bf16 => format!("{bits:#06x}"),
        #[expect(clippy::cast_possible_truncation, reason = "the operand's type is 32 bits wide")]
        Type::S32 => (bits as u32).cast_signed().to_string(),
        Type::S64 => bits.cast_signed().to_string(),
        Type::F32 => format!("0f{bits:08X}"),
        Type::F64 => format!("0d{bits:016X}"),
    }
}

/// The untyped suffix of a register. 8-bit values are in 16-bit registers.
fn register_bits(ty: Type) -> String {
    format!("b{}", ty.bits().max(16))
}

fn bits_spelling(ty: Type) -> String {
    if ty == Type::Pred { "pred".to_owned() } else { format!("b{}", ty.bits()) }
}

/// The type suffix of `neg` and `abs`, which exist for signed types only. The result has the same bits.
fn signed_spelling(ty: Type) -> String {
    if ty.is_float() { ty.to_string() } else { format!("s{}", ty.bits()) }
}

/// The type suffix of moves, loads and stores: `.b16` for all 16-bit types.
fn memory_type(ty: Type) -> String {
    if ty.bits() == 16 { "b16".to_owned() } else { ty.to_string() }
}

fn binary_name(op: BinaryOp, ty: Type) -> String {
    match op {
        BinaryOp::Add if ty.is_float() => format!("add.rn.{ty}"),
        BinaryOp::Add => format!("add.{ty}"),
        BinaryOp::Sub if ty.is_float() => format!("sub.rn.{ty}"),
        BinaryOp::Sub => format!("sub.{ty}"),
        BinaryOp::Mul if ty.is_float() => format!("mul.rn.{ty}"),
        BinaryOp::Mul => format!("mul.lo.{ty}"),
        BinaryOp::MulHigh => format!("mul.hi.{ty}"),
        BinaryOp::Div if ty.is_float() => format!("div.rn.{ty}"),
        BinaryOp::Div => format!("div.{ty}"),
        BinaryOp::Rem => format!("rem.{ty}"),
        BinaryOp::Min => format!("min.{ty}"),
        BinaryOp::Max => format!("max.{ty}"),
        BinaryOp::And => format!("and.{}", bits_spelling(ty)),
        BinaryOp::Or => format!("or.{}", bits_spelling(ty)),
        BinaryOp::Xor => format!("xor.{}", bits_spelling(ty)),
        BinaryOp::Shl => format!("shl.b{}", ty.bits()),
        BinaryOp::Shr => format!("shr.{ty}"),
    }
}

fn compare_name(op: CompareOp, ty: Type) -> &'static str {
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

fn space_name(space: Space) -> &'static str {
    match space {
        Space::Global => "global",
        Space::Shared => "shared::cta",
        Space::SharedCluster => "shared::cluster",
    }
}

/// The qualifiers of an arrival; empty for PTX's default.
fn arrival(order: MbarrierOrder) -> String {
    ordered(order, "release")
}

/// The qualifiers of a wait; empty for PTX's default.
fn wait(order: MbarrierOrder) -> String {
    ordered(order, "acquire")
}

fn ordered(order: MbarrierOrder, sync: &str) -> String {
    match order {
        MbarrierOrder::CTA => String::new(),
        MbarrierOrder::Sync(scope) => format!(".{sync}.{}", scope.suffix()),
        MbarrierOrder::Relaxed(scope) => format!(".relaxed.{}", scope.suffix()),
    }
}

fn cta_space(space: Space) -> &'static str {
    match space {
        Space::SharedCluster => "shared::cluster",
        Space::Shared | Space::Global => "shared::cta",
    }
}
