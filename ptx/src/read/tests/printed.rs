//! What the printer writes is read as the same program: printing that gives the same text.

use crate::inst::{
    Alu, AluOp, ApproxOp, BinaryOp, BitOp, CompareOp, Cvt, FloatOp, HalfType, PairOp, ReduceOp, Rounding,
    Shuffle, UnaryOp, Vote, WarpInst,
};
use crate::read::{Launch, Module, agree};
use crate::{
    AtomicOp, AtomicSem, Builder, Entry, Function, Inst, Location, MapChange, Operand, ProxySpace, Scope,
    Special, Target, TensorLoad, Type, WgmmaOperands, WgmmaSource, WgmmaTypes,
};

/// Reads what the printer writes of a function.
pub(super) fn again(text: &str, shared_bytes: u32) -> Function {
    let module = Module::parse(text, "printed.ptx").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let name = module.entries()[0];
    let launch = Launch { shared_bytes, ..Launch::default() };
    module.entry(name, &launch).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn entry(name: &str) -> Entry {
    Entry { name: name.into(), target: Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [2, 1, 1] }
}

fn survives(name: &str, build: impl FnOnce(&Builder)) {
    let verified = Function::build(entry(name), build).verify().expect("legal");
    if let Err(error) = agree(&verified) {
        panic!("{name}: {error}");
    }
}

#[test]
fn control() {
    survives("control", |f| {
        f.share_registers(3);
        let (out, count) = (f.param::<u64>("out"), f.param::<u32>("count"));
        let thread = f.special(Special::ThreadX);
        f.scope("first", || {
            f.repeat(count, |i| {
                f.if_else(
                    i.less_than(thread),
                    || f.store_global(out, 0, [i]),
                    || f.store_global(out, 8, [i + 1]),
                );
                f.if_(i.equals(7), || f.warp_sync());
                f.break_if(i.more_than(100));
            });
        });
        f.mbarrier_wait(f.shared_base(), 0);
        f.if_(thread.equals(0), || f.mbarrier_wait(f.shared_base() + 8, 1));
        f.if_(thread.equals(1), || f.trap());
    });
}

#[test]
fn memory() {
    survives("memory", |f| {
        let (out, x, half) = (f.param::<u64>("out"), f.param::<f32>("x"), f.param::<half::f16>("h"));
        let map = f.tensor_map("map");
        let shared = f.shared_base();
        f.store_shared(shared, 16, [x; 4]);
        let loaded: [_; 2] = f.load_shared_vector::<u64, 2>(shared, 32);
        f.store_global(out, 0, loaded);
        f.store_global(out, -16, [half]);
        f.store_global(out, 0, [f.constant(half::f16::ONE)]);
        f.store_global(out, 0, [f.constant(7u8), f.constant(8u8)]);
        let peer = f.map_shared(shared, 1);
        let there: [_; 1] = f.load_cluster::<u32, 1>(peer, 4);
        f.store_global(out, 4, there);
        let order = (AtomicSem::AcquireRelease, Scope::Gpu);
        f.atomic(AtomicOp::Add, Location::global(out, 8), f.constant(1u32), order);
        f.fence_proxy_async(ProxySpace::Shared);
        f.fence(Scope::Cluster);
        let load = TensorLoad {
            map,
            dst: shared,
            barrier: shared + 1024,
            multicast: Some(f.constant(3)),
            hint: Some(7),
        };
        f.tensor_load(load, [0, 5].map(|at: i32| f.constant(at)));
        f.replace_tensor_map(out, MapChange::Address(out));
        f.prefetch_tensor_map(map);
        f.cluster_arrive(true);
        f.cluster_wait();
        f.barrier_sync(1, 64);
    });
}

#[test]
fn arithmetic() {
    const NUMBERS: [Type; 7] = [Type::U16, Type::U32, Type::S32, Type::U64, Type::S64, Type::F32, Type::F64];
    survives("arithmetic", |f| {
        let fresh = |ty: Type, bits: u64| {
            let dst = f.register(ty);
            f.emit(Inst::Move { ty, dst, src: Operand::Imm(ty.wrap(bits)) });
            dst
        };
        for ty in NUMBERS {
            let (dst, b, cond) = (fresh(ty, 3), fresh(ty, u64::MAX), fresh(Type::Pred, 1));
            let (a, b) = (Operand::Reg(dst), Operand::Reg(b));
            use BinaryOp::{Add, And, Div, Max, Min, Mul, MulHigh, Or, Rem, Shl, Shr, Sub, Xor};
            for op in [Add, Sub, Mul, Div, Min, Max] {
                f.emit(Inst::Binary { op, ty, dst, a, b });
                f.emit(Inst::Binary { op, ty, dst, a, b: Operand::Imm(1) });
            }
            if ty.is_integer() {
                for op in [MulHigh, Rem, And, Or, Xor] {
                    f.emit(Inst::Binary { op, ty, dst, a, b });
                }
                for op in [Shl, Shr] {
                    f.emit(Inst::Binary { op, ty, dst, a, b: Operand::Imm(3) });
                }
                f.emit(Inst::Unary { op: UnaryOp::Not, ty, dst, a });
            }
            for op in [UnaryOp::Neg, UnaryOp::Abs] {
                f.emit(Inst::Unary { op, ty, dst, a });
            }
            for op in
                [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le, CompareOp::Gt, CompareOp::Ge]
            {
                f.emit(Inst::Compare { op, ty, dst: cond, a, b });
            }
            f.emit(Inst::MulAdd { ty, dst, a, b, c: a });
            f.emit(Inst::Select { ty, dst, a, b, cond: Operand::Reg(cond) });
            for to in NUMBERS.into_iter().chain([Type::U8, Type::F16, Type::Bf16]) {
                let both_half = ty.bits() == 16 && to.bits() == 16;
                if to != ty && !both_half {
                    let dst = f.register(to);
                    f.emit(Inst::Convert { from: ty, to, dst, src: a });
                    if to != Type::U8 || ty != Type::F16 {
                        f.emit(Inst::Convert { from: to, to: ty, dst: fresh(ty, 0), src: Operand::Reg(dst) });
                    }
                }
            }
        }
        let operations = operations();
        assert!(operations.len() > 100);
        for op in operations {
            let (sources, result) = op.types().expect("it exists");
            let src = sources.into_iter().map(|ty| Operand::Reg(fresh(ty, 1))).collect();
            f.emit(Inst::Alu(Alu { op, dst: f.register(result), src }));
        }
        let pair = f.pack::<half::bf16>(f.constant(1.0), f.constant(2.0));
        f.unpack::<half::bf16>(pair);
        f.special(Special::ClusterRank);
    });
}

/// Forms of every operation of an arithmetic unit.
fn operations() -> Vec<AluOp> {
    let mut all = vec![AluOp::Permute, AluOp::FindNth, AluOp::Logic3(0xE8)];
    let flags = [false, true];
    for ty in [Type::U32, Type::S32, Type::U64, Type::S64, Type::F32, Type::F64] {
        all.extend([BitOp::Population, BitOp::LeadingZeros, BitOp::Reverse].map(|op| AluOp::Bits(op, ty)));
        all.extend([
            AluOp::Extract(ty),
            AluOp::Insert(ty),
            AluOp::MulWide(ty),
            AluOp::MadWide(ty),
            AluOp::MadHigh(ty),
            AluOp::CopySign(ty),
        ]);
        for rounding in Rounding::ALL {
            all.extend(flags.map(|reciprocal| AluOp::Exact { reciprocal, ty, rounding }));
            for (op, flush) in FloatOp::ALL.into_iter().flat_map(|op| flags.map(|flush| (op, flush))) {
                all.push(AluOp::Float { op, ty, rounding, flush, saturate: !flush });
                all.push(AluOp::Float { op, ty, rounding, flush, saturate: flush });
            }
        }
    }
    all.extend(flags.map(|left| AluOp::Funnel { left, wrap: !left }));
    all.extend(flags.map(|max| AluOp::NanExtreme { max }));
    all.extend(PairOp::ALL.into_iter().flat_map(|op| flags.map(|signed| AluOp::Pair { op, signed })));
    all.extend(ApproxOp::ALL.map(AluOp::Approx));
    all.extend(ApproxOp::ALL.map(AluOp::ApproxFlush));
    for ty in HalfType::ALL {
        all.extend(ApproxOp::ALL.map(|op| AluOp::ApproxHalf(op, ty)));
        all.extend(flags.map(|negate| AluOp::HalfSign { ty, negate }));
        for op in FloatOp::ALL {
            all.extend(flags.map(|nan| AluOp::Half { op, ty, nan, relu: false }));
            all.push(AluOp::Half { op, ty, nan: false, relu: true });
        }
    }
    for (one, relu) in flags.into_iter().flat_map(|one| flags.map(|relu| (one, relu))) {
        all.extend(
            [
                Cvt::PackFp8 { e5m2: one, relu },
                Cvt::NarrowFp8 { e5m2: one, relu },
                Cvt::WidenFp8 { e5m2: one, relu },
                Cvt::PackHalf { bf16: one, toward_zero: true, relu },
                Cvt::PackHalf { bf16: one, toward_zero: false, relu },
                Cvt::PackInt8 { signed: one },
                Cvt::Tf32,
            ]
            .map(AluOp::Cvt),
        );
    }
    for rounding in Rounding::ALL {
        all.extend(
            [Cvt::Integral(rounding), Cvt::ToSigned(rounding), Cvt::ToUnsigned(rounding)].map(AluOp::Cvt),
        );
    }
    all.retain(|op| op.types().is_some());
    all
}

#[test]
fn warps_and_matrices() {
    survives("warps", |f| {
        let (lane, members) = (f.special(Special::Lane), Operand::Imm(u32::MAX.into()));
        let (src, dst) = (lane.operand(), f.register(Type::U32));
        let yes = lane.equals(3).operand();
        for vote in [Vote::All, Vote::Any, Vote::Uniform] {
            f.emit(Inst::Warp(WarpInst::Vote { vote, dst: f.register(Type::Pred), src: yes, members }));
        }
        f.emit(Inst::Warp(WarpInst::Ballot { dst, src: yes, members }));
        f.emit(Inst::Warp(WarpInst::MatchAny { ty: Type::U32, dst, src, members }));
        f.emit(Inst::Warp(WarpInst::MatchAll {
            ty: Type::U32,
            dst,
            all: f.register(Type::Pred),
            src,
            members,
        }));
        for op in [ReduceOp::Add, ReduceOp::Min, ReduceOp::Max, ReduceOp::And, ReduceOp::Or, ReduceOp::Xor] {
            f.emit(Inst::Warp(WarpInst::Reduce { op, ty: Type::U32, dst, src, members }));
        }
        for mode in [Shuffle::Up, Shuffle::Down, Shuffle::Butterfly, Shuffle::Index] {
            for (width, found) in [(32, None), (8, Some(f.register(Type::Pred)))] {
                let lane = Operand::Imm(1);
                f.emit(Inst::Warp(WarpInst::Shuffle { mode, dst, found, src, lane, width, members }));
            }
        }
        f.emit(Inst::Warp(WarpInst::ActiveMask { dst }));
        f.emit(Inst::Warp(WarpInst::Sleep { nanoseconds: src }));
        f.shuffle(lane, 0);
        f.shuffle_xor(lane, 16);
        f.elect();
        let descriptor = f.constant(0x4000_0000u64);
        let fragment = [0u32; 4].map(|zero| f.variable(zero));
        for types in WgmmaTypes::all() {
            let sums: Vec<_> = (0..types.accumulators(16)).map(|_| f.uninitialised::<u32>()).collect();
            for a in [WgmmaSource::Shared(descriptor), WgmmaSource::Registers(fragment)] {
                let plain = WgmmaOperands::new(types, 16, a, descriptor);
                f.wgmma(plain, &sums);
                if types.allows_transpose() {
                    f.wgmma(WgmmaOperands { transpose_b: true, negate_a: true, ..plain }, &sums);
                }
                if types.sparse_selectors().is_some() {
                    f.wgmma(
                        WgmmaOperands { sparse: Some((fragment[0], 0)), accumulate: lane.equals(1), ..plain },
                        &sums,
                    );
                }
            }
        }
    });
}
