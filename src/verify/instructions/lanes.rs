//! Forms of instructions that compute in registers, per lane or per warp: arithmetic, conversions, votes,
//! matches, reductions, shuffles.
//!
//! A thread loads its operands, executes one instruction and stores the result. Approximate functions are
//! left out, because the ISA bounds their errors but does not define their bits. Operands for which the ISA
//! defines no result are left out too: divisors of zero, and quotients that do not fit.

use ptx::inst::{
    Address, Alu, AluOp, BarrierOp, BarrierReduce, BinaryOp, BitOp, CompareOp, Cvt, FloatOp, HalfType,
    PairOp, ReduceOp, Rounding, Shuffle, UnaryOp, Vote, WarpInst,
};
use ptx::{Builder, Entry, Function, Inst, Operand, Reg, Space, Special, Target, Type};

use super::{InstructionCase, InstructionForm};

/// Number of threads per form.
const THREADS: u32 = 64;
/// Stride between the operands of adjacent threads in bytes.
const SLOT: u32 = 8;

const WHOLE: [Type; 5] = [Type::U16, Type::U32, Type::S32, Type::U64, Type::S64];
const NUMBERS: [Type; 7] = [Type::U16, Type::U32, Type::S32, Type::U64, Type::S64, Type::F32, Type::F64];

/// Changes a lane's operands to ones for which the instruction is defined.
type Mend = fn(&mut [u64]);

/// A register of a type.
pub(super) fn fresh(f: &Builder, ty: Type) -> Reg {
    // Bytes are in 16-bit registers, and no form here has a byte operand.
    f.register(if ty == Type::U8 { Type::U16 } else { ty })
}

/// Loads a value from global memory.
pub(super) fn load(f: &Builder, ty: Type, base: Operand, offset: i32) -> Operand {
    let (dst, address) = (fresh(f, ty), Address { base, offset });
    f.emit(Inst::Load { space: Space::Global, ty, dst: vec![dst], address });
    Operand::Reg(dst)
}

/// Stores it.
pub(super) fn store(f: &Builder, ty: Type, base: Operand, offset: i32, value: Operand) {
    let address = Address { base, offset };
    f.emit(Inst::Store { space: Space::Global, ty, src: vec![value], address });
}

/// Draws the bits of a value: a special value, a moderate value, or any bits.
pub(super) fn value(ty: Type, random: &mut fastrand::Rng, special: bool) -> u64 {
    let bits = ty.bits();
    let mask = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let all = random.u64(..) & mask;
    let (fraction, exponents) = match ty {
        Type::F16 => (10, 31),
        Type::Bf16 => (7, 255),
        Type::F32 => (23, 255),
        Type::F64 => (52, 2047),
        Type::Pred
        | Type::U8
        | Type::S8
        | Type::U16
        | Type::S16
        | Type::U32
        | Type::S32
        | Type::U64
        | Type::S64
        | Type::B8
        | Type::B16
        | Type::B32
        | Type::B64 => {
            let some = [0, 1, 2, 7, 16, 31, 32, 33, 64, mask, mask >> 1, (mask >> 1) + 1, mask - 1];
            return if special { some[random.usize(..some.len())] & mask } else { all };
        }
    };
    let (one, infinity) = ((exponents / 2) << fraction, exponents << fraction);
    let half = 1u64 << (fraction - 1);
    let sign = all & 1 << (bits - 1);
    let some = [
        0,
        1,
        half,
        (1 << fraction) - 1,
        1 << fraction,
        one,
        one + half,
        one + (1 << fraction) + half / 2,
        one - (1 << fraction),
        infinity - 1,
        infinity,
        infinity | half,
        one + (30 << fraction),
        one + (5 << fraction) + half,
    ];
    match random.u32(..4) {
        _ if special => sign | some[random.usize(..some.len())],
        0 => all,
        // Similar exponents, so that sums cancel and products stay finite.
        _ => sign | (one - (3 << fraction) + (random.u64(..6) << fraction)) | all & ((1 << fraction) - 1),
    }
}

/// A form whose instruction has a result of type `result`.
fn form(
    named: (&str, String),
    sources: Vec<Type>,
    result: Type,
    mend: Mend,
    emit: impl Fn(&Builder, &[Operand]) -> Operand + Send + Sync + 'static,
) -> InstructionForm {
    let stored = if result == Type::Pred { Type::U32 } else { result };
    let (types, count) = (sources.clone(), (sources.len() as u32).max(1));
    InstructionForm::new(
        named,
        THREADS,
        [count * THREADS * SLOT, THREADS * stored.bytes(), stored.bytes()],
        move |f, input, output| {
            let thread = f.special(Special::ThreadX);
            let operands: Vec<Operand> = (0..)
                .zip(&sources)
                .map(|(i, &ty)| {
                    let at = input + (thread * SLOT).cast::<u64>() + u64::from(i * THREADS * SLOT);
                    if ty == Type::Pred {
                        return f.load_global::<u32>(at, 0).more_than(0x7FFF_FFFF).operand();
                    }
                    load(f, ty, at.operand(), 0)
                })
                .collect();
            let mut given = emit(f, &operands);
            if result == Type::Pred {
                let dst = fresh(f, stored);
                let (a, b, cond) = (Operand::Imm(1), Operand::Imm(0), given);
                f.emit(Inst::Select { ty: stored, dst, a, b, cond });
                given = Operand::Reg(dst);
            }
            let at = output + (thread * stored.bytes()).cast::<u64>();
            store(f, stored, at.operand(), 0, given);
        },
        move |random| {
            [("random", false), ("special", true), ("both", false)]
                .map(|(name, special)| case(name, special, &types, mend, random))
                .into()
        },
    )
}

fn case(
    name: &'static str,
    special: bool,
    types: &[Type],
    mend: Mend,
    random: &mut fastrand::Rng,
) -> InstructionCase {
    let threads = THREADS as usize;
    let lanes: Vec<Vec<u64>> = (0..threads)
        .map(|_| {
            let special = special || (name == "both" && random.bool());
            let mut values: Vec<u64> = types.iter().map(|&ty| value(ty, random, special)).collect();
            // A predicate is the top bit of a word.
            for (value, _) in values.iter_mut().zip(types).filter(|(_, ty)| **ty == Type::Pred) {
                *value = u64::from(random.u32(..));
            }
            mend(&mut values);
            values
        })
        .collect();
    let mut input = vec![0; types.len().max(1) * threads * SLOT as usize];
    for (place, bytes) in input.chunks_exact_mut(SLOT as usize).enumerate() {
        if let Some(value) = lanes[place % threads].get(place / threads) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }
    let explain = move |element: usize| {
        let values: Vec<String> = lanes[element].iter().map(|value| format!("{value:#x}")).collect();
        format!("thread {element}: {}", values.join(", "))
    };
    InstructionCase { name, input, expected: None, defined: None, explain: Box::new(explain) }
}

/// Whether the verifier accepts the form.
fn exists(form: &InstructionForm) -> bool {
    let entry = Entry {
        name: "form".into(),
        target: Target::Sm90a,
        threads: THREADS,
        shared_bytes: 0,
        cluster: [1; 3],
    };
    let function = Function::build(entry, |f| (form.emit)(f, f.param("inputs"), f.param("outputs")));
    function.verify().is_ok()
}

/// A form of one instruction that writes a new register.
fn simple<const N: usize>(
    named: (&str, String),
    sources: [Type; N],
    result: Type,
    inst: impl Fn(Reg, [Operand; N]) -> Inst + Send + Sync + 'static,
) -> InstructionForm {
    mended(named, sources, result, |_| (), inst)
}

fn mended<const N: usize>(
    named: (&str, String),
    sources: [Type; N],
    result: Type,
    mend: Mend,
    inst: impl Fn(Reg, [Operand; N]) -> Inst + Send + Sync + 'static,
) -> InstructionForm {
    form(named, sources.to_vec(), result, mend, move |f, operands| {
        let dst = fresh(f, result);
        f.emit(inst(dst, core::array::from_fn(|i| operands[i])));
        Operand::Reg(dst)
    })
}

/// Every form.
pub(super) fn forms() -> Vec<InstructionForm> {
    let mut all = plain();
    all.retain(exists);
    all.extend(extended());
    all.extend(exchanges());
    all.extend(barriers());
    all
}

fn plain() -> Vec<InstructionForm> {
    use BinaryOp::{Add, And, Div, Max, Min, Mul, MulHigh, Or, Rem, Shl, Shr, Sub, Xor};
    let mut all = Vec::new();
    for ty in NUMBERS.into_iter().chain([Type::Pred]) {
        for op in [Add, Sub, Mul, MulHigh, Div, Rem, Min, Max, And, Or, Xor, Shl, Shr] {
            let count = if matches!(op, Shl | Shr) { Type::U32 } else { ty };
            // A small positive divisor, never zero and never -1.
            let divides = matches!(op, Div | Rem) && ty.is_integer();
            let mend: Mend = if divides { |lane| lane[1] = lane[1] >> 1 & 0x3FFF | 1 } else { |_| () };
            let named = ("arithmetic", format!("{op:?}.{ty}").to_lowercase());
            let inst = move |dst, [a, b]: [_; 2]| Inst::Binary { op, ty, dst, a, b };
            all.push(mended(named, [ty, count], ty, mend, inst));
        }
        let named = ("arithmetic", format!("mad.{ty}"));
        all.push(simple(named, [ty; 3], ty, move |dst, [a, b, c]| Inst::MulAdd { ty, dst, a, b, c }));
        for op in [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Not] {
            let named = ("arithmetic", format!("{op:?}.{ty}").to_lowercase());
            all.push(simple(named, [ty], ty, move |dst, [a]| Inst::Unary { op, ty, dst, a }));
        }
        for op in [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge] {
            let named = ("setp", format!("setp.{op:?}.{ty}").to_lowercase());
            let inst = move |dst, [a, b]: [_; 2]| Inst::Compare { op, ty, dst, a, b };
            all.push(simple(named, [ty; 2], Type::Pred, inst));
        }
        let named = ("selp", format!("selp.{ty}"));
        let inst = move |dst, [a, b, cond]: [_; 3]| Inst::Select { ty, dst, a, b, cond };
        all.push(simple(named, [ty, ty, Type::Pred], ty, inst));
    }
    let floats = [Type::F16, Type::Bf16];
    for from in NUMBERS.into_iter().chain(floats) {
        for to in NUMBERS.into_iter().chain(floats) {
            let named = ("cvt", format!("cvt.{to}.{from}"));
            all.push(simple(named, [from], to, move |dst, [src]| Inst::Convert { from, to, dst, src }));
        }
    }
    for ty in floats {
        let named = ("cvt", format!("cvt.{ty}x2.f32"));
        let inst = move |dst, [low, high]: [_; 2]| Inst::Pack { ty, dst, low, high };
        all.push(simple(named, [Type::F32; 2], Type::U32, inst));
    }
    all
}

fn extended() -> Vec<InstructionForm> {
    let mut ops = vec![AluOp::Permute, AluOp::FindNth];
    ops.extend([0x00, 0x1B, 0x96, 0xCA, 0xE8, 0xFF].map(AluOp::Logic3));
    let flags = [false, true];
    for left in flags {
        ops.extend(flags.map(|wrap| AluOp::Funnel { left, wrap }));
    }
    for ty in WHOLE {
        ops.extend([BitOp::Population, BitOp::LeadingZeros, BitOp::Reverse].map(|op| AluOp::Bits(op, ty)));
        ops.extend([AluOp::Extract(ty), AluOp::Insert(ty), AluOp::MulWide(ty), AluOp::MadWide(ty)]);
        ops.push(AluOp::MadHigh(ty));
    }
    for ty in [Type::F32, Type::F64] {
        ops.push(AluOp::CopySign(ty));
        for rounding in Rounding::ALL {
            ops.extend(flags.map(|reciprocal| AluOp::Exact { reciprocal, ty, rounding }));
            for op in FloatOp::ALL {
                for (flush, saturate) in [(false, false), (true, false), (false, true), (true, true)] {
                    ops.push(AluOp::Float { op, ty, rounding, flush, saturate });
                }
            }
        }
    }
    ops.extend(flags.map(|max| AluOp::NanExtreme { max }));
    ops.extend(PairOp::ALL.into_iter().flat_map(|op| flags.map(|signed| AluOp::Pair { op, signed })));
    for ty in HalfType::ALL {
        ops.extend(flags.map(|negate| AluOp::HalfSign { ty, negate }));
        for op in FloatOp::ALL {
            for (nan, relu) in [(false, false), (true, false), (false, true)] {
                ops.push(AluOp::Half { op, ty, nan, relu });
            }
        }
    }
    let mut conversions = vec![Cvt::Tf32];
    for one in flags {
        conversions.push(Cvt::PackInt8 { signed: one });
        for relu in flags {
            conversions.push(Cvt::PackFp8 { e5m2: one, relu });
            conversions.push(Cvt::NarrowFp8 { e5m2: one, relu });
            conversions.push(Cvt::WidenFp8 { e5m2: one, relu });
            conversions.extend(flags.map(|toward_zero| Cvt::PackHalf { bf16: one, toward_zero, relu }));
        }
    }
    for rounding in Rounding::ALL {
        conversions.extend([Cvt::Integral(rounding), Cvt::ToSigned(rounding), Cvt::ToUnsigned(rounding)]);
    }
    ops.extend(conversions.into_iter().map(AluOp::Cvt));
    let forms = ops.into_iter().filter_map(|op| {
        let (sources, result) = op.types()?;
        let mend: Mend = if op == AluOp::FindNth { |lane| lane[1] &= 31 } else { |_| () };
        let named = (op.name(), format!("{op:?}").to_lowercase());
        Some(form(named, sources, result, mend, move |f, operands| {
            let dst = fresh(f, result);
            f.emit(Inst::Alu(Alu { op, dst, src: operands.to_vec() }));
            Operand::Reg(dst)
        }))
    });
    forms.collect()
}

fn exchanges() -> Vec<InstructionForm> {
    let members = Operand::Imm(0xFFFF_FFFF);
    let mut all = Vec::new();
    for vote in [Vote::All, Vote::Any, Vote::Uniform] {
        let named = ("vote.sync", format!("vote.sync.{vote:?}").to_lowercase());
        let inst = move |dst, [src]: [_; 1]| Inst::Warp(WarpInst::Vote { vote, dst, src, members });
        all.push(simple(named, [Type::Pred], Type::Pred, inst));
    }
    let named = ("vote.sync", "vote.sync.ballot".to_owned());
    let inst = move |dst, [src]: [_; 1]| Inst::Warp(WarpInst::Ballot { dst, src, members });
    all.push(simple(named, [Type::Pred], Type::U32, inst));
    let few: Mend = |lane| lane[0] &= 0x8000_0003;
    for ty in [Type::U32, Type::U64] {
        let named = ("match.sync", format!("match.any.sync.b{}", ty.bits()));
        let inst = move |dst, [src]: [_; 1]| Inst::Warp(WarpInst::MatchAny { ty, dst, src, members });
        all.push(mended(named, [ty], Type::U32, few, inst));
        for (what, mend) in [("differing", few), ("equal", |lane: &mut [u64]| lane[0] = 5)] {
            let named = ("match.sync", format!("match.all.sync.b{} {what}", ty.bits()));
            all.push(form(named, vec![ty], Type::U32, mend, move |f, o| {
                let (dst, all) = (fresh(f, Type::U32), fresh(f, Type::Pred));
                f.emit(Inst::Warp(WarpInst::MatchAll { ty, dst, all, src: o[0], members }));
                let sum = fresh(f, Type::U32);
                let (a, b, cond) = (Operand::Reg(dst), Operand::Imm(77), Operand::Reg(all));
                f.emit(Inst::Select { ty: Type::U32, dst: sum, a, b, cond });
                Operand::Reg(sum)
            }));
        }
    }
    for ty in [Type::U32, Type::S32] {
        use ReduceOp::{Add, And, Max, Min, Or, Xor};
        for op in [Add, Min, Max, And, Or, Xor] {
            if ty == Type::S32 && matches!(op, And | Or | Xor) {
                continue;
            }
            let named = ("redux.sync", format!("redux.sync.{op:?}.{ty}").to_lowercase());
            let inst = move |dst, [src]: [_; 1]| Inst::Warp(WarpInst::Reduce { op, ty, dst, src, members });
            all.push(simple(named, [ty], ty, inst));
        }
    }
    for mode in [Shuffle::Up, Shuffle::Down, Shuffle::Butterfly, Shuffle::Index] {
        for width in [1, 4, 16, 32] {
            for predicate in [false, true] {
                let what = if predicate { " found" } else { "" };
                let named = ("shfl.sync", format!("shfl.sync.{mode:?} width {width}{what}").to_lowercase());
                let result = if predicate { Type::Pred } else { Type::U32 };
                all.push(form(
                    named,
                    vec![Type::U32; 2],
                    result,
                    |_| (),
                    move |f, o| {
                        let (dst, reg) = (fresh(f, Type::U32), fresh(f, Type::Pred));
                        let (src, lane, found) = (o[0], o[1], Some(reg));
                        f.emit(Inst::Warp(WarpInst::Shuffle { mode, dst, found, src, lane, width, members }));
                        Operand::Reg(if predicate { reg } else { dst })
                    },
                ));
            }
        }
    }
    all
}

fn barriers() -> Vec<InstructionForm> {
    let reduce = |op, name: &str, result| {
        let named = ("bar.red", format!("bar.red.{name}"));
        simple(named, [Type::Pred], result, move |dst, [src]| {
            Inst::BarrierReduce(BarrierReduce { op, id: Operand::Imm(1), threads: THREADS, dst, src })
        })
    };
    vec![
        reduce(BarrierOp::Population, "popc", Type::U32),
        reduce(BarrierOp::And, "and", Type::Pred),
        reduce(BarrierOp::Or, "or", Type::Pred),
    ]
}
