//! Builds programs from strings of bytes: every byte decides something, and every string gives a program.
//!
//! Operands mostly have the right type, and addresses are mostly inside memory. Forms of instructions are
//! drawn whether they exist or not; the verifier refuses those that do not.

mod asynchronous;

use ptx::inst::{
    Address, Alu, AluOp, ApproxOp, AtomicInst, AtomicOp, AtomicSem, AtomicType, BinaryOp, BitOp, CompareOp,
    Cvt, Division, FloatOp, FloatRelation, HalfType, LoadOrder, OrderedInst, ProxySpace, ReduceOp, Rounding,
    Scope, Shuffle, StoreOrder, UnaryOp, Vote, WarpInst,
};
use ptx::{Builder, Entry, Function, Inst, Operand, Reg, Space, Special, Target, Type, Value};

/// Number of bytes of each of the two buffers.
pub(crate) const DATA_BYTES: usize = 4096;
const SHARED_BYTES: u32 = 16384;
/// Maximum number of statements of a program, including nested ones.
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
            f.emit(Inst::Move { ty, dst, src: Operand::Imm(ty.wrap(choice.into())) });
            generator.keep(ty, dst);
        }
        for value in [number, f.special(Special::ThreadX), f.special(Special::Lane)] {
            generator.pool[2].push(value.operand());
        }
        if choice & 8 != 0 {
            // Most programs need initialised memory and mbarriers.
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
        self.f.register(ty)
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
                self.f.emit(Inst::Move { ty, dst: reg, src: Operand::Imm(1) });
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

    /// The address of an mbarrier.
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
        // Registers defined inside a block are not defined after it.
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

    /// Emits an instruction. Later instructions may use its result.
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
                self.result(to, |dst| Inst::Convert { from: ty, to, dst, src });
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
        let (from, to) = (self.pick(&TYPES), self.pick(&TYPES));
        let [flush, saturate, relu] = [0; 3].map(|_| self.below(4) == 0);
        let relation = self.pick(&[
            FloatRelation::Ordered(CompareOp::Ne),
            FloatRelation::Unordered(CompareOp::Lt),
            FloatRelation::Numbers,
            FloatRelation::Nan,
        ]);
        let division = self.pick(&[Division::Approximate, Division::Full, Division::Exact(rounding)]);
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
            Cvt::Scalar { from, to, rounding: one.then_some(rounding), integral: two, flush, saturate, relu },
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
            AluOp::ExactFlush { reciprocal: one, rounding },
            AluOp::FlushExtreme { max: one, nan: two },
            AluOp::Divide { division, ty, flush: one },
            AluOp::FloatCompare { relation, ty, flush: one },
            AluOp::Half { op: float, ty: half, nan: one, relu: two },
            AluOp::HalfSign { ty: half, negate: one },
            AluOp::Cvt(cvt),
        ]);
        // The verifier refuses a whole program for one form that does not exist, and most combinations do not
        // exist.
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
                Inst::Ordered(OrderedInst::Store { order, space, ty, src, address })
            }
            choice => {
                let dst: Vec<Reg> = (0..count).map(|_| self.fresh(ty)).collect();
                for &reg in &dst {
                    self.keep(ty, reg);
                }
                let order =
                    self.pick(&[LoadOrder::Volatile, LoadOrder::Relaxed(scope), LoadOrder::Acquire(scope)]);
                if choice == 4 {
                    Inst::Ordered(OrderedInst::Load { order, space, ty, dst, address })
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
        let atomic = AtomicInst { op, ty, space, sem, scope, dst, address, src, swap };
        if atomic.check().is_ok() {
            for &reg in &atomic.dst {
                self.keep(register, reg);
            }
            self.f.emit(Inst::Atomic(atomic));
        }
    }
}
