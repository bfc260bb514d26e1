//! Programs from strings of bytes: every byte decides something, and any string is a program.
//!
//! Operands are mostly of the right type, addresses mostly inside memory; forms are drawn without a look at whether
//! they exist, which is the verifier's part.

use ptx::abi::{TensorElement, TensorSwizzle};
use ptx::inst::{
    Address, Alu, AluOp, ApproxOp, Atomic, AtomicOp, AtomicSem, AtomicType, BarrierOp, BarrierReduce,
    BinaryOp, BitOp, Bulk, CompareOp, CopyAsync, Cvt, FenceSem, FloatOp, Fp8, HalfType, Im2col, Int8,
    LoadOrder, MapField, MapInst, MbarrierInst, MmaTypes, Ordered, ProxySpace, ReduceOp, Reduction, Rounding,
    Scope, Shuffle, StoreOrder, UnaryOp, Vote, WarpInst, WarpMatrix, WgmmaA,
};
use ptx::{Builder, Entry, Function, Inst, Operand, Reg, Space, Special, Target, Type, Value, WgmmaTypes};

/// Bytes of each of the two buffers.
pub(crate) const DATA_BYTES: usize = 4096;
const SHARED_BYTES: u32 = 16384;
/// Statements of a program, those inside others included.
const STATEMENTS: u32 = 120;

const TYPES: [Type; 10] = [
    Type::Pred,
    Type::U16,
    Type::U32,
    Type::S32,
    Type::U64,
    Type::S64,
    Type::F16,
    Type::Bf16,
    Type::F32,
    Type::F64,
];

/// Types of plain arithmetic, integers first.
const NUMBERS: [Type; 7] = [Type::U16, Type::U32, Type::S32, Type::U64, Type::S64, Type::F32, Type::F64];

struct Generator<'b, 'f> {
    bytes: &'b [u8],
    at: usize,
    f: &'f Builder,
    /// Operands to choose from, by type.
    pool: [Vec<Operand>; 10],
    base: Value<'f, u32>,
    data: Value<'f, u64>,
    out: Value<'f, u64>,
    map: Value<'f, u64>,
    pixels: Value<'f, u64>,
    left: u32,
    threads: u32,
}

/// The program of a string of bytes.
pub(crate) fn generated(bytes: &[u8]) -> Function {
    let choice = bytes.get(3).copied().unwrap_or(0);
    let entry = Entry {
        name: "fuzz".into(),
        target: Target::Sm90a,
        threads: [32, 64, 128, 256][usize::from(choice) % 4],
        shared_bytes: SHARED_BYTES,
        cluster: [1 + u32::from(choice) / 4 % 2, 1, 1],
    };
    Function::build(entry, |f| {
        let (data, out) = (f.param("data"), f.param("out"));
        let number = f.param::<u32>("number");
        let (map, pixels, base) = (f.tensor_map("map"), f.tensor_map("pixels"), f.shared_base());
        let pool = core::array::from_fn(|_| Vec::new());
        let mut generator = Generator {
            bytes,
            at: 4,
            f,
            pool,
            base,
            data,
            out,
            map,
            pixels,
            left: STATEMENTS,
            threads: entry_threads(choice),
        };
        for ty in TYPES {
            let dst = generator.fresh(ty);
            f.emit(Inst::Move { dst, src: Operand::Imm(u64::from(choice)) });
            generator.keep(ty, dst);
        }
        for value in [number, f.special(Special::ThreadX), f.special(Special::Lane)] {
            generator.pool[2].push(value.operand());
        }
        if choice & 8 != 0 {
            // A start that most programs need: memory that holds something, and barriers.
            f.repeat(f.constant(SHARED_BYTES / 64), |i| {
                f.store_shared(base + i * 64 + (f.special(Special::ThreadX) & 3) * 16, 0, [number; 4]);
            });
            f.fence_proxy_async(ProxySpace::All);
            f.barrier_sync(0, entry_threads(choice));
        }
        generator.block(0);
    })
}

fn entry_threads(choice: u8) -> u32 {
    [32, 64, 128, 256][usize::from(choice) % 4]
}

fn index(ty: Type) -> usize {
    TYPES.iter().position(|&other| other == ty).unwrap_or(0)
}

impl<'f> Generator<'_, 'f> {
    // ---- choices ----

    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.bytes.get(self.at - 1).copied().unwrap_or(0)
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::from(self.byte()) % bound
    }

    fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::from(self.byte()) % all.len()]
    }

    // ---- operands ----

    fn fresh(&mut self, ty: Type) -> Reg {
        let f = self.f;
        match ty {
            Type::Pred => f.uninitialised::<bool>().reg(),
            Type::U8 => f.uninitialised::<u8>().reg(),
            Type::U16 => f.uninitialised::<u16>().reg(),
            Type::U32 => f.uninitialised::<u32>().reg(),
            Type::S32 => f.uninitialised::<i32>().reg(),
            Type::U64 => f.uninitialised::<u64>().reg(),
            Type::S64 => f.uninitialised::<i64>().reg(),
            Type::F16 => f.uninitialised::<half::f16>().reg(),
            Type::Bf16 => f.uninitialised::<half::bf16>().reg(),
            Type::F32 => f.uninitialised::<f32>().reg(),
            Type::F64 => f.uninitialised::<f64>().reg(),
        }
    }

    fn keep(&mut self, ty: Type, reg: Reg) {
        self.pool[index(ty)].push(Operand::Reg(reg));
    }

    fn operand(&mut self, ty: Type) -> Operand {
        let choice = usize::from(self.byte());
        let pool = &self.pool[index(ty)];
        if choice % 8 == 0 || pool.is_empty() {
            let bits = [0, 1, 2, 7, 31, 32, 0x7F80_0000, u64::MAX][usize::from(self.byte()) % 8];
            return Operand::Imm(if ty.bits() == 64 { bits } else { bits & ((1 << ty.bits()) - 1) });
        }
        pool[choice % pool.len()]
    }

    fn operands(&mut self, ty: Type, count: usize) -> Vec<Operand> {
        (0..count).map(|_| self.operand(ty)).collect()
    }

    fn register(&mut self, ty: Type) -> Reg {
        match self.operand(ty) {
            Operand::Reg(reg) => reg,
            Operand::Imm(_) => {
                let reg = self.fresh(ty);
                self.f.emit(Inst::Move { dst: reg, src: Operand::Imm(1) });
                reg
            }
        }
    }

    /// A shared address, mostly aligned and inside.
    fn shared(&mut self) -> Operand {
        let offset = self.below(64) * [4, 8, 16, 128, 256][self.below(5) as usize];
        match self.below(12) {
            0 => self.operand(Type::U32),
            1 => self.f.map_shared(self.base + offset, 1).operand(),
            2 | 3 => (self.base + offset + (self.f.special(Special::ThreadX) & 31) * 16).operand(),
            _ => (self.base + offset).operand(),
        }
    }

    /// A place for an mbarrier.
    fn barrier(&mut self) -> Operand {
        let slot = self.below(4) * 8;
        if self.below(8) == 0 { self.shared() } else { (self.base + (8192 + slot)).operand() }
    }

    fn global(&mut self) -> Operand {
        match self.below(8) {
            0 => self.operand(Type::U64),
            1 => self.out.operand(),
            2 | 3 => (self.out + (self.f.special(Special::ThreadX) * 16).cast::<u64>()).operand(),
            _ => (self.data + (self.f.special(Special::ThreadX) & 31).mul_wide(16)).operand(),
        }
    }

    fn place(&mut self) -> (Space, Address) {
        let space = self.pick(&[Space::Global, Space::Shared, Space::Shared, Space::SharedCluster]);
        let base = if space == Space::Global { self.global() } else { self.shared() };
        (space, Address { base, offset: self.pick(&[0, 0, 16, -16, 3]) })
    }

    fn members(&mut self) -> Operand {
        if self.below(6) == 0 { self.f.active_mask().operand() } else { Operand::Imm(0xFFFF_FFFF) }
    }

    // ---- statements ----

    fn block(&mut self, depth: u32) {
        for _ in 0..1 + self.below(24) {
            if self.left == 0 || self.at > self.bytes.len() {
                return;
            }
            self.left -= 1;
            self.statement(depth);
        }
    }

    fn statement(&mut self, depth: u32) {
        let f = self.f;
        // What is defined inside a block is not defined behind it.
        let pool = self.pool.clone();
        match self.byte() % 16 {
            0 if depth < 3 => {
                let cond = self.condition();
                let (then, otherwise) = (self.flag(), self.flag());
                let this = core::cell::RefCell::new(&mut *self);
                f.if_else(
                    cond,
                    || {
                        if then {
                            this.borrow_mut().block(depth + 1);
                        }
                    },
                    || {
                        if otherwise {
                            this.borrow_mut().block(depth + 1);
                        }
                    },
                );
                self.pool = pool;
            }
            1 if depth < 3 => {
                let count = self.below(4);
                let early = self.flag().then(|| self.condition());
                let this = core::cell::RefCell::new(&mut *self);
                f.repeat(f.constant(count) + (f.special(Special::Lane) & 1), |i| {
                    this.borrow_mut().pool[2].push(i.operand());
                    this.borrow_mut().block(depth + 1);
                    if let Some(cond) = early {
                        f.break_if(cond);
                    }
                });
                self.pool = pool;
            }
            2 => {
                let this = core::cell::RefCell::new(&mut *self);
                f.scope("part", || this.borrow_mut().block(depth + 1));
            }
            _ => self.instruction(),
        }
    }

    fn condition(&mut self) -> Value<'f, bool> {
        let thread = self.f.special(Special::ThreadX);
        let bound = [0, 1, 7, 32, 64, 1000][self.below(6) as usize];
        thread.less_than(bound)
    }

    fn instruction(&mut self) {
        match self.byte() % 12 {
            0..=2 => self.scalar(),
            3 => self.extended(),
            4 => self.exchange(),
            5 => self.memory(),
            6 => self.atomic(),
            7 => self.copy(),
            8 | 9 => self.synchronise(),
            10 => self.tensor(),
            _ => self.matrix(),
        }
    }

    /// Emits an instruction whose result others may use.
    fn result(&mut self, ty: Type, inst: impl FnOnce(Reg) -> Inst) {
        let dst = if self.below(4) == 0 { self.register(ty) } else { self.fresh(ty) };
        self.f.emit(inst(dst));
        self.keep(ty, dst);
    }

    fn scalar(&mut self) {
        use BinaryOp::{Add, And, Div, Max, Min, Mul, MulHigh, Or, Rem, Shl, Shr, Sub, Xor};
        // One form in 32 is drawn from all types, as most programs should be legal.
        let any = self.below(32) == 0;
        let ty = if any { self.pick(&TYPES) } else { self.pick(&NUMBERS) };
        match self.below(8) {
            0 | 1 => {
                let op = self.pick(&[Add, Sub, Mul, MulHigh, Div, Rem, Min, Max, And, Or, Xor, Shl, Shr]);
                let whole = matches!(op, MulHigh | Rem) || op.is_bitwise();
                let ty = if whole && !any { self.pick(&NUMBERS[..5]) } else { ty };
                let count = if matches!(op, Shl | Shr) { Type::U32 } else { ty };
                let (a, b) = (self.operand(ty), self.operand(count));
                self.result(ty, |dst| Inst::Binary { op, ty, dst, a, b });
            }
            2 => {
                let [a, b, c] = [0; 3].map(|_| self.operand(ty));
                self.result(ty, |dst| Inst::MulAdd { ty, dst, a, b, c });
            }
            3 => {
                let op = self.pick(&[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Not]);
                let ty = if op == UnaryOp::Not && !any { self.pick(&NUMBERS[..5]) } else { ty };
                let a = self.operand(ty);
                self.result(ty, |dst| Inst::Unary { op, ty, dst, a });
            }
            4 => {
                use CompareOp::{Eq, Ge, Gt, Le, Lt, Ne};
                let (op, a, b) = (self.pick(&[Eq, Ne, Lt, Le, Gt, Ge]), self.operand(ty), self.operand(ty));
                self.result(Type::Pred, |dst| Inst::Compare { op, ty, dst, a, b });
            }
            5 => {
                let (a, b, cond) = (self.operand(ty), self.operand(ty), self.operand(Type::Pred));
                self.result(ty, |dst| Inst::Select { ty, dst, a, b, cond });
            }
            6 => {
                let to = self.pick(&TYPES);
                if !any && (to == ty || to == Type::Pred || (to.bits() == 16 && ty.bits() == 16)) {
                    return;
                }
                let src = self.operand(ty);
                self.result(to, |dst| Inst::Convert { from: ty, dst, src });
            }
            _ => {
                let special = self.pick(&Special::ALL);
                self.result(special.ty(), |dst| Inst::ReadSpecial { dst, special });
            }
        }
    }

    fn extended(&mut self) {
        let (ty, rounding, half) = (self.pick(&TYPES), self.pick(&Rounding::ALL), self.pick(&HalfType::ALL));
        let [one, two, three] = [0; 3].map(|_| self.flag());
        let float = self.pick(&FloatOp::ALL);
        let bits = self.pick(&[BitOp::Population, BitOp::LeadingZeros, BitOp::Reverse]);
        let approximation: ApproxOp = self.pick(&ApproxOp::ALL);
        let table = self.byte();
        let cvt = self.pick(&[
            Cvt::PackFp8 { e5m2: one, relu: two },
            Cvt::NarrowFp8 { e5m2: one, relu: two },
            Cvt::WidenFp8 { e5m2: one, relu: two },
            Cvt::PackHalf { bf16: one, toward_zero: two, relu: three },
            Cvt::Tf32,
            Cvt::Integral(rounding),
            Cvt::ToSigned(rounding),
            Cvt::ToUnsigned(rounding),
            Cvt::PackInt8 { signed: one },
        ]);
        let op = self.pick(&[
            AluOp::Bits(bits, ty),
            AluOp::Permute,
            AluOp::FindNth,
            AluOp::Logic3(table),
            AluOp::Funnel { left: one, wrap: two },
            AluOp::Extract(ty),
            AluOp::Insert(ty),
            AluOp::MulWide(ty),
            AluOp::MadWide(ty),
            AluOp::MadHigh(ty),
            AluOp::Approx(approximation),
            AluOp::ApproxFlush(approximation),
            AluOp::ApproxHalf(approximation, half),
            AluOp::Exact { reciprocal: one, ty, rounding },
            AluOp::Float { op: float, ty, rounding, flush: one, saturate: two },
            AluOp::NanExtreme { max: one },
            AluOp::CopySign(ty),
            AluOp::Half { op: float, ty: half, nan: one, relu: two },
            AluOp::HalfSign { ty: half, negate: one },
            AluOp::Cvt(cvt),
        ]);
        // Forms that do not exist would refuse the whole program, and most combinations do not.
        let Some((sources, result)) = op.types() else { return };
        let src = sources.into_iter().map(|ty| self.operand(ty)).collect();
        self.result(result, |dst| Inst::Alu(Alu { op, dst, src }));
    }

    fn exchange(&mut self) {
        let members = self.members();
        let ty = self.pick(&[Type::U32, Type::U64]);
        match self.below(9) {
            0 => {
                let (vote, src) =
                    (self.pick(&[Vote::All, Vote::Any, Vote::Uniform]), self.operand(Type::Pred));
                self.result(Type::Pred, |dst| Inst::Warp(WarpInst::Vote { vote, dst, src, members }));
            }
            1 => {
                let src = self.operand(Type::Pred);
                self.result(Type::U32, |dst| Inst::Warp(WarpInst::Ballot { dst, src, members }));
            }
            2 => {
                let src = self.operand(ty);
                self.result(Type::U32, |dst| Inst::Warp(WarpInst::MatchAny { ty, dst, src, members }));
            }
            3 => {
                let (src, all) = (self.operand(ty), self.fresh(Type::Pred));
                self.result(Type::U32, |dst| Inst::Warp(WarpInst::MatchAll { ty, dst, all, src, members }));
                self.keep(Type::Pred, all);
            }
            4 => {
                let op =
                    self.pick(&[ReduceOp::Add, ReduceOp::Min, ReduceOp::Max, ReduceOp::And, ReduceOp::Xor]);
                let src = self.operand(Type::U32);
                let ty = Type::U32;
                self.result(ty, |dst| Inst::Warp(WarpInst::Reduce { op, ty, dst, src, members }));
            }
            5 | 6 => {
                let mode = self.pick(&[Shuffle::Up, Shuffle::Down, Shuffle::Butterfly, Shuffle::Index]);
                let (src, lane) = (self.operand(Type::F32), self.operand(Type::U32));
                let (width, found) = (1 << self.below(6), self.fresh(Type::Pred));
                let found = self.flag().then_some(found);
                self.result(Type::F32, |dst| {
                    Inst::Warp(WarpInst::Shuffle { mode, dst, found, src, lane, width, members })
                });
                if let Some(found) = found {
                    self.keep(Type::Pred, found);
                }
            }
            7 => self.result(Type::U32, |dst| Inst::Warp(WarpInst::ActiveMask { dst })),
            _ => self.result(Type::Pred, |dst| Inst::Elect { dst }),
        }
    }

    fn memory(&mut self) {
        let ty = self.pick(&TYPES[1..]);
        let count = self.pick(&[1, 1, 2, 4]);
        let (space, address) = self.place();
        let scope = self.pick(&Scope::ALL);
        let inst = match self.below(8) {
            0..=2 => {
                let src = self.operands(ty, count);
                Inst::Store { space, ty, src, address }
            }
            3 => {
                let order = self.pick(&[
                    StoreOrder::Volatile,
                    StoreOrder::Relaxed(scope),
                    StoreOrder::Release(scope),
                ]);
                let src = self.operands(ty, count);
                Inst::Ordered(Ordered::Store { order, space, ty, src, address })
            }
            choice => {
                let dst: Vec<Reg> = (0..count).map(|_| self.fresh(ty)).collect();
                for &reg in &dst {
                    self.keep(ty, reg);
                }
                let order =
                    self.pick(&[LoadOrder::Volatile, LoadOrder::Relaxed(scope), LoadOrder::Acquire(scope)]);
                if choice == 4 {
                    Inst::Ordered(Ordered::Load { order, space, ty, dst, address })
                } else {
                    Inst::Load { space, ty, dst, address }
                }
            }
        };
        if count * ty.bytes() as usize <= 16 {
            self.f.emit(inst);
        }
    }

    fn atomic(&mut self) {
        let (op, ty): (AtomicOp, AtomicType) = (self.pick(&AtomicOp::ALL), self.pick(&AtomicType::ALL));
        let ((space, address), scope) = (self.place(), self.pick(&Scope::ALL));
        let count = self.pick(&[1, 1, 1, 2, 4, 8]);
        let register = ty.register();
        let returns = self.flag();
        let dst: Vec<Reg> =
            if returns { (0..count).map(|_| self.fresh(register)).collect() } else { Vec::new() };
        let src = self.operands(register, count);
        let swap = (op == AtomicOp::CompareSwap).then(|| self.operand(register));
        let sem = self.pick(&AtomicSem::ALL);
        let atomic = Atomic { op, ty, space, sem, scope, dst, address, src, swap };
        if atomic.check().is_ok() {
            for &reg in &atomic.dst {
                self.keep(register, reg);
            }
            self.f.emit(Inst::Atomic(atomic));
        }
    }

    fn copy(&mut self) {
        let copy = match self.below(6) {
            0 | 1 => {
                let bytes = self.pick(&[4, 8, 16]);
                let (dst, base) = (self.shared(), self.global());
                let src = Address { base, offset: 0 };
                let size = (self.below(4) == 0)
                    .then(|| self.operand(Type::U32))
                    .filter(|size| *size != Operand::Imm(31));
                CopyAsync::Copy { bytes, past_l1: bytes == 16, dst, src, size }
            }
            2 => CopyAsync::Commit,
            3 => CopyAsync::Wait { pending: self.below(2) },
            4 => CopyAsync::WaitAll,
            _ => CopyAsync::Arrive { barrier: self.barrier(), counted: self.flag() },
        };
        if copy.check().is_ok() {
            self.f.emit(Inst::CopyAsync(copy));
        }
    }

    fn synchronise(&mut self) {
        let scope = self.pick(&Scope::ALL);
        let barrier = self.barrier();
        let (parity, threads) =
            (Operand::Imm(self.below(2).into()), 32 * (1 + self.below(self.threads / 32)));
        let id =
            if self.below(8) == 0 { self.operand(Type::U32) } else { Operand::Imm(self.below(3).into()) };
        let id = if matches!(id, Operand::Imm(id) if id > 15) { Operand::Imm(1) } else { id };
        let inst = match self.below(28) {
            24..=27 => return self.count(id, threads),
            0..=2 => Inst::MbarrierInit { barrier, count: Operand::Imm(self.below(4).into()) },
            3 => Inst::MbarrierInvalidate { barrier },
            4 => {
                let space = self.pick(&[Space::Shared, Space::SharedCluster]);
                Inst::MbarrierArrive { barrier, space, count: self.operand(Type::U32) }
            }
            5 => Inst::MbarrierArriveExpectTx { barrier, bytes: Operand::Imm(1024) },
            6 => Inst::MbarrierExpectTx { barrier, bytes: self.operand(Type::U32) },
            7 => {
                return self.result(Type::Pred, |dst| Inst::MbarrierTryWait { dst, barrier, parity });
            }
            8 => Inst::MbarrierWait { barrier, parity },
            9 => Inst::FenceMbarrierInit,
            10 => {
                use ProxySpace::{All, Global, Shared, SharedCluster};
                Inst::FenceProxyAsync { space: self.pick(&[All, Global, Shared, SharedCluster]) }
            }
            11 => {
                let sem = self.pick(&[FenceSem::AcquireRelease, FenceSem::SequentiallyConsistent]);
                Inst::Fence { sem, scope }
            }
            12 => Inst::BarrierArrive { id, threads },
            13 => Inst::ClusterArrive { relaxed: self.flag() },
            14 => Inst::ClusterWait,
            15 => Inst::WarpSync,
            16 => Inst::SetMaxRegisters { grow: self.flag(), count: 24 + 8 * self.below(26) },
            17 => Inst::Trap,
            18 => Inst::GridDependency { wait: self.flag() },
            _ => Inst::BarrierSync { id, threads },
        };
        self.f.emit(inst);
    }

    fn tensor(&mut self) {
        let map = match self.below(8) {
            0 if self.flag() => self.operand(Type::U64),
            0 => self.pixels.operand(),
            1 => (self.out + 1024).operand(),
            _ => self.map.operand(),
        };
        let coords = self.starts();
        let (shared, barrier) = (self.shared(), self.barrier());
        let inst = match self.below(14) {
            12 | 13 => return self.pixels(),
            8 | 9 => return self.change_map(),
            10 | 11 => return self.bulk(),
            0..=2 => {
                let multicast = (self.below(4) == 0).then(|| self.operand(Type::U16));
                Inst::TensorLoad { map, coords, dst: shared, barrier, multicast, hint: None }
            }
            3 | 4 => Inst::TensorStore { map, coords, src: shared, hint: None },
            5 => Inst::BulkCommit,
            6 => Inst::BulkWait { pending: self.below(2), read: self.flag() },
            _ => Inst::PrefetchTensorMap { map },
        };
        self.f.emit(inst);
    }

    /// Where a box of two dimensions begins, mostly at a multiple of 16 bytes.
    fn starts(&mut self) -> Vec<Operand> {
        let start = |of: &mut Self| match of.below(8) {
            0 => of.operand(Type::S32),
            1 => Operand::Imm((-8i64).cast_unsigned() & 0xFFFF_FFFF),
            _ => Operand::Imm((8 * of.below(3)).into()),
        };
        vec![start(self), start(self)]
    }

    fn bulk(&mut self) {
        let (dst, src, barrier, line) = (self.shared(), self.shared(), self.barrier(), self.global());
        let bytes = if self.below(6) == 0 { self.operand(Type::U32) } else { Operand::Imm(64) };
        let (op, ty): (AtomicOp, AtomicType) = (self.pick(&AtomicOp::ALL), self.pick(&AtomicType::ALL));
        let reduce = self.flag().then_some(Reduction { op, ty });
        let (map, coords) = (self.map.operand(), self.starts());
        let word = self.pick(&[Type::U32, Type::F32, Type::U64]);
        let bulk = match self.below(8) {
            0 | 1 => {
                let multicast = (self.below(4) == 0).then(|| self.operand(Type::U16));
                Bulk::Load { dst, src: line, bytes, barrier, multicast, hint: None }
            }
            2 => Bulk::Store { dst: line, src, bytes, reduce, hint: None },
            3 => Bulk::Share { dst, src, bytes, barrier, reduce },
            4 => Bulk::TensorReduce { op, map, coords, src, hint: None },
            5 if self.flag() => Bulk::Prefetch { src: line, bytes },
            5 => Bulk::TensorPrefetch { map, coords },
            6 => {
                let count = self.pick(&[1, 2, 4]);
                Bulk::AsyncStore { ty: word, src: self.operands(word, count), dst, barrier }
            }
            _ => {
                let src = self.operand(ty.register());
                Bulk::AsyncReduce { reduce: Reduction { op, ty }, src, dst, barrier }
            }
        };
        if bulk.check().is_ok() {
            self.f.emit(Inst::Bulk(bulk));
        }
    }

    /// A copy in im2col mode, mostly of the rank of its map and from a base of its bounding box.
    fn pixels(&mut self) {
        let map = if self.below(8) == 0 { self.map } else { self.pixels }.operand();
        let rank = if self.below(8) == 0 { 2 + self.below(4) as usize } else { 4 };
        let coords: Vec<Operand> = (0..rank)
            .map(|_| match self.below(12) {
                0 => self.operand(Type::S32),
                1 => Operand::Imm((-1i64).cast_unsigned() & 0xFFFF_FFFF),
                _ => Operand::Imm(0),
            })
            .collect();
        let offsets: Vec<Operand> = (2..rank)
            .map(|_| {
                if self.below(8) == 0 { self.operand(Type::U16) } else { Operand::Imm(self.below(3).into()) }
            })
            .collect();
        let (dst, barrier) = (self.shared(), self.barrier());
        let inst = match self.below(4) {
            0 | 1 => {
                let multicast = (self.below(4) == 0).then(|| self.operand(Type::U16));
                Im2col::Load { map, coords, offsets, dst, barrier, multicast, hint: None }
            }
            2 => {
                let reduce = self.flag().then(|| self.pick(&AtomicOp::ALL));
                Im2col::Store { reduce, map, coords, src: dst, hint: None }
            }
            _ => Im2col::Prefetch { map, coords, offsets },
        };
        if inst.check().is_ok() {
            self.f.emit(Inst::Bulk(Bulk::Im2col(inst)));
        }
    }

    /// An operation on mbarriers beyond the plain ones, or a barrier that reduces.
    fn count(&mut self, id: Operand, threads: u32) {
        let (barrier, parity) = (self.barrier(), Operand::Imm(self.below(2).into()));
        let number = if self.below(3) == 0 { self.operand(Type::U32) } else { Operand::Imm(1) };
        let space = self.pick(&[Space::Shared, Space::SharedCluster]);
        let more = |inst: MbarrierInst| Inst::MbarrierMore(inst);
        match self.below(12) {
            0 | 1 => self.result(Type::U64, |dst| more(MbarrierInst::Arrive { dst, barrier, count: number })),
            2 => {
                self.result(Type::U64, |dst| {
                    more(MbarrierInst::ArriveExpect { dst, barrier, bytes: number })
                });
            }
            8 => {
                let drop = self.flag();
                self.result(Type::U64, |dst| {
                    more(MbarrierInst::ArriveNoComplete { dst, barrier, count: number, drop })
                });
            }
            9 => {
                self.result(Type::U64, |dst| more(MbarrierInst::DropState { dst, barrier, count: number }));
            }
            10 if self.flag() => {
                self.f.emit(more(MbarrierInst::DropExpectCluster { barrier, bytes: number }));
            }
            10 => {
                self.result(Type::U64, |dst| more(MbarrierInst::DropExpect { dst, barrier, bytes: number }));
            }
            3 => self.f.emit(more(MbarrierInst::Drop { barrier, space, count: number })),
            4 => {
                let arrive = self.flag();
                self.f.emit(more(MbarrierInst::ExpectCluster { arrive, barrier, bytes: number }));
            }
            5 => self.f.emit(more(MbarrierInst::Complete { barrier, space, bytes: number })),
            6 => {
                let (state, patient) = (self.operand(Type::U64), self.flag());
                self.result(Type::Pred, |dst| more(MbarrierInst::Test { dst, barrier, state, patient }));
            }
            7 if self.flag() => {
                self.result(Type::Pred, |dst| more(MbarrierInst::TestParity { dst, barrier, parity }));
            }
            7 => {
                let state = self.operand(Type::U64);
                self.result(Type::U32, |dst| more(MbarrierInst::PendingCount { dst, state }));
            }
            _ => {
                let op = self.pick(&[BarrierOp::Population, BarrierOp::And, BarrierOp::Or]);
                let src = self.operand(Type::Pred);
                let ty = if op == BarrierOp::Population { Type::U32 } else { Type::Pred };
                self.result(ty, |dst| Inst::BarrierReduce(BarrierReduce { op, id, threads, dst, src }));
            }
        }
    }

    fn change_map(&mut self) {
        let dim = self.below(6);
        let element = self.pick(&TensorElement::ALL);
        let swizzle = self.pick(&[TensorSwizzle::None, TensorSwizzle::B32, TensorSwizzle::B128]);
        let field = self.pick(&[
            MapField::Address,
            MapField::Rank,
            MapField::Box(dim),
            MapField::Extent(dim),
            MapField::Stride(dim),
            MapField::ElementStride(dim),
            MapField::Element(element),
            MapField::Swizzle(swizzle),
        ]);
        let (scope, src) = (self.pick(&Scope::ALL), (self.base + 4096).operand());
        let dst = if self.below(8) == 0 { self.global() } else { (self.out + 1024).operand() };
        let map = match self.below(8) {
            0..=2 => return self.f.copy_tensor_map(self.map, self.base + 4096),
            3 => {
                let value = if field.named().is_some() { Operand::Imm(0) } else { self.operand(field.ty()) };
                MapInst::Replace { space: Space::Shared, map: src, field, value }
            }
            4 => {
                let value = if field.named().is_some() { Operand::Imm(0) } else { self.operand(field.ty()) };
                MapInst::Replace { space: Space::Global, map: dst, field, value }
            }
            5 => MapInst::Publish { dst, src, scope },
            6 => MapInst::Release { scope },
            _ => MapInst::Acquire { map: dst, scope },
        };
        if map.check().is_ok() {
            self.f.emit(Inst::TensorMap(map));
        }
    }

    fn matrix(&mut self) {
        let address = self.shared();
        let matrices = self.pick(&[1, 2, 4]);
        let transpose = self.flag();
        match self.below(10) {
            0 => {
                let src = self.operands(Type::U32, matrices);
                self.f.emit(Inst::StoreMatrix { address, src, transpose });
            }
            1 => {
                let dst: Vec<Reg> = (0..matrices).map(|_| self.fresh(Type::U32)).collect();
                for &reg in &dst {
                    self.keep(Type::U32, reg);
                }
                self.f.emit(Inst::WarpMatrix(WarpMatrix::Load { dst, address, transpose }));
            }
            2 | 3 => {
                let [signed_a, signed_b, saturate] = [0; 3].map(|_| self.flag());
                let types = self.pick(&[
                    MmaTypes::Bf16F32,
                    MmaTypes::F16F32,
                    MmaTypes::F16F16,
                    MmaTypes::Tf32F32,
                    MmaTypes::Int8 { signed_a, signed_b, saturate },
                ]);
                let (ty, count) = types.accumulators();
                let (a, b) = (self.operands(Type::U32, 4), self.operands(Type::U32, 2));
                let (c, d) =
                    (self.operands(ty, count), (0..count).map(|_| self.fresh(ty)).collect::<Vec<_>>());
                for &reg in &d {
                    self.keep(ty, reg);
                }
                let (a, b) = ([a[0], a[1], a[2], a[3]], [b[0], b[1]]);
                self.f.emit(Inst::WarpMatrix(WarpMatrix::Multiply { types, d, a, b, c }));
            }
            4 => self.f.wgmma_fence(),
            5 => self.f.wgmma_commit(),
            6 => self.f.wgmma_wait(self.below(2)),
            _ => self.warpgroup(),
        }
    }

    fn warpgroup(&mut self) {
        let (a_format, b_format) = (self.pick(&[Fp8::E4m3, Fp8::E5m2]), self.pick(&[Fp8::E4m3, Fp8::E5m2]));
        let (a, b) = (self.pick(&[Int8::S8, Int8::U8]), self.pick(&[Int8::S8, Int8::U8]));
        let saturate = self.flag();
        let types = self.pick(&[
            WgmmaTypes::Bf16F32,
            WgmmaTypes::F16F32,
            WgmmaTypes::F16F16,
            WgmmaTypes::Tf32F32,
            WgmmaTypes::Fp8F32(a_format, b_format),
            WgmmaTypes::Fp8F16(a_format, b_format),
            WgmmaTypes::Int8 { a, b, saturate },
            WgmmaTypes::B1,
        ]);
        let n = self.pick(&[8, 16, 32]);
        let d: Vec<Reg> = (0..types.accumulators(n)).map(|_| self.fresh(Type::U32)).collect();
        let descriptor = |this: &mut Self| {
            if this.below(6) == 0 {
                return this.operand(Type::U64);
            }
            let offset = this.below(16) * 256;
            let start = (((this.base + offset) & 0x3_FFFF) >> 4).cast::<u64>();
            let strides = this.pick(&[
                64u64 << 16 | 8 << 32,
                64 << 32 | 1 << 62,
                64 << 32 | 2 << 62,
                32 << 32 | 3 << 62,
            ]);
            (start | strides).operand()
        };
        let a = if self.below(4) == 0 {
            WgmmaA::Registers([0; 4].map(|_| self.register(Type::U32)))
        } else {
            WgmmaA::Shared(descriptor(self))
        };
        let b = descriptor(self);
        let inst = Inst::Wgmma {
            types,
            n,
            sparse: None,
            d,
            a,
            b,
            accumulate: Operand::Imm(self.below(2).into()),
            negate_a: false,
            negate_b: false,
            transpose_a: false,
            transpose_b: false,
        };
        self.f.emit(inst);
    }
}
