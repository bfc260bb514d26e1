//! Arithmetic beyond the plain operators, exchanges between lanes, special registers.

use ptx::inst::{
    Alu, AluOp, ApproxOp, BitOp, Cvt, FloatOp, HalfType, PairOp, ReduceOp, Rounding, Shuffle, Vote, WarpInst,
};
use ptx::{Inst, Operand, Special, Type};

use crate::assembled;
use crate::atomics::{addresses, registers, written};

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

fn conversions() -> Vec<Cvt> {
    let mut all = vec![Cvt::Tf32];
    for one in [false, true] {
        all.push(Cvt::PackInt8 { signed: one });
        for relu in [false, true] {
            all.push(Cvt::PackFp8 { e5m2: one, relu });
            all.push(Cvt::NarrowFp8 { e5m2: one, relu });
            all.push(Cvt::WidenFp8 { e5m2: one, relu });
            for toward_zero in [false, true] {
                all.push(Cvt::PackHalf { bf16: one, toward_zero, relu });
            }
        }
    }
    for rounding in Rounding::ALL {
        all.extend([Cvt::Integral(rounding), Cvt::ToSigned(rounding), Cvt::ToUnsigned(rounding)]);
    }
    all
}

/// Every combination of fields, legal or not.
fn operations() -> Vec<AluOp> {
    let mut all = vec![AluOp::Permute, AluOp::Logic3(0), AluOp::Logic3(0xE8), AluOp::Logic3(255)];
    let flags = [false, true];
    for a in flags {
        all.push(AluOp::NanExtreme { max: a });
        all.extend(PairOp::ALL.map(|op| AluOp::Pair { op, signed: a }));
        all.extend(HalfType::ALL.map(|ty| AluOp::HalfSign { ty, negate: a }));
        for b in flags {
            all.push(AluOp::Funnel { left: a, wrap: b });
            for op in FloatOp::ALL {
                all.extend(HalfType::ALL.map(|ty| AluOp::Half { op, ty, nan: a, relu: b }));
                for rounding in Rounding::ALL {
                    all.extend(TYPES.map(|ty| AluOp::Float { op, ty, rounding, flush: a, saturate: b }));
                }
            }
        }
        for rounding in Rounding::ALL {
            all.extend(TYPES.map(|ty| AluOp::Exact { reciprocal: a, ty, rounding }));
        }
    }
    for ty in TYPES {
        all.extend([BitOp::Population, BitOp::LeadingZeros, BitOp::Reverse].map(|op| AluOp::Bits(op, ty)));
        all.extend([AluOp::Extract(ty), AluOp::Insert(ty), AluOp::MulWide(ty), AluOp::MadWide(ty)]);
        all.extend([AluOp::MadHigh(ty), AluOp::CopySign(ty)]);
    }
    for op in ApproxOp::ALL {
        all.extend([AluOp::Approx(op), AluOp::ApproxFlush(op)]);
        all.extend(HalfType::ALL.map(|ty| AluOp::ApproxHalf(op, ty)));
    }
    all.extend(conversions().into_iter().map(AluOp::Cvt));
    all
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn arithmetic() {
    let count = assembled("arithmetic", |forms| {
        for op in operations() {
            let Some((sources, result)) = op.types() else { continue };
            let src: Vec<Operand> = sources.iter().map(|&ty| written(forms.f, ty, 1)[0]).collect();
            let alu = Alu { op, dst: registers(forms.f, result, 1)[0], src };
            let rules = alu.check();
            forms.add(Inst::Alu(alu), rules);
        }
    });
    // Bits 6, permute 1, tables 3, funnels 4, fields 4 + 2, wide 2 + 2, high 4; approximations 8, 7 of them with .ftz too, and of
    // halves 2 x 4;
    // exact 2 x (4 + 1); floats 4 x (4 roundings x 4 flags + 1); extremes 2, signs 2 and of halves 8; halves
    // (4 + 1) x 4 and extremes 2 x 2 x 4; pairs of integers 3 x 2; conversions 1 + 2 + 12 + 8 + 12.
    assert_eq!(count, 6 + 1 + 3 + 4 + 6 + 4 + 4 + 23 + 10 + 68 + 4 + 8 + 20 + 16 + 6 + 35);
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn bytes() {
    let count = assembled("bytes", |forms| {
        let f = forms.f;
        let src = written(f, Type::U8, 1)[0];
        let cond = written(f, Type::Pred, 1)[0];
        let fresh = |ty| registers(f, ty, 1)[0];
        forms.add(Inst::Move { ty: Type::U8, dst: fresh(Type::U8), src }, Ok(()));
        forms.add(
            Inst::Select { ty: Type::U8, dst: fresh(Type::U8), a: src, b: Operand::Imm(7), cond },
            Ok(()),
        );
        for ty in TYPES.into_iter().filter(|ty| !matches!(ty, Type::Pred | Type::Bf16)) {
            forms.add(Inst::Convert { from: Type::U8, to: ty, dst: fresh(ty), src }, Ok(()));
            let src = written(f, ty, 1)[0];
            forms.add(Inst::Convert { from: ty, to: Type::U8, dst: fresh(Type::U8), src }, Ok(()));
        }
        for (space, address) in addresses(f) {
            for count in [1, 2, 4] {
                let (dst, src) = (registers(f, Type::U8, count), written(f, Type::U8, count));
                forms.add(Inst::Load { space, ty: Type::U8, dst, address }, Ok(()));
                forms.add(Inst::Store { space, ty: Type::U8, src, address }, Ok(()));
            }
        }
    });
    assert_eq!(count, 2 + 2 * 8 + 3 * 3 * 2);
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn exchanges() {
    let count = assembled("exchanges", |forms| {
        let f = forms.f;
        let predicate = written(f, Type::Pred, 1)[0];
        for members in [Operand::Imm(0xFFFF_FFFF), written(f, Type::U32, 1)[0]] {
            let mut add = |inst: WarpInst| {
                let rules = inst.check();
                forms.add(Inst::Warp(inst), rules);
            };
            for vote in [Vote::All, Vote::Any, Vote::Uniform] {
                let dst = registers(f, Type::Pred, 1)[0];
                add(WarpInst::Vote { vote, dst, src: predicate, members });
            }
            add(WarpInst::Ballot { dst: registers(f, Type::U32, 1)[0], src: predicate, members });
            for ty in TYPES {
                let (src, dst) = (written(f, ty, 1)[0], registers(f, Type::U32, 1)[0]);
                add(WarpInst::MatchAny { ty, dst, src, members });
                let all = registers(f, Type::Pred, 1)[0];
                add(WarpInst::MatchAll { ty, dst, all, src, members });
                let dst = registers(f, ty, 1)[0];
                use ReduceOp::{Add, And, Max, Min, Or, Xor};
                for op in [Add, Min, Max, And, Or, Xor] {
                    add(WarpInst::Reduce { op, ty, dst, src, members });
                }
            }
            let found = registers(f, Type::Pred, 1)[0];
            for mode in [Shuffle::Up, Shuffle::Down, Shuffle::Butterfly, Shuffle::Index] {
                for width in [1, 2, 3, 4, 8, 16, 32, 64] {
                    for found in [None, Some(found)] {
                        for ty in [Type::U32, Type::F32] {
                            let (src, dst) = (written(f, ty, 1)[0], registers(f, ty, 1)[0]);
                            let lane = Operand::Imm(1);
                            add(WarpInst::Shuffle { mode, dst, found, src, lane, width, members });
                        }
                    }
                }
            }
            add(WarpInst::ActiveMask { dst: registers(f, Type::U32, 1)[0] });
            add(WarpInst::Sleep { nanoseconds: Operand::Imm(100) });
            add(WarpInst::Sleep { nanoseconds: Operand::Imm(1_000_001) });
        }
    });
    assert_eq!(count, 2 * (3 + 1 + 2 + 2 + 9 + 4 * 6 * 2 * 2 + 2));
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn special_registers() {
    let count = assembled("specials", |forms| {
        for special in Special::ALL {
            let dst = registers(forms.f, special.ty(), 1)[0];
            forms.add(Inst::ReadSpecial { dst, special }, Ok(()));
        }
    });
    assert_eq!(count, 40);
}
