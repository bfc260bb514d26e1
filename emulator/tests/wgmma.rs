//! Tensor loads and `wgmma` together, in every swizzle, both majors and from registers, compared with plain
//! sums.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use emulator::{Memory, Options, Program, Schedule};
use half::{bf16, f16};
use ptx::abi::{Grid, Promotion, TensorElement, TensorMap, TensorSwizzle};
use ptx::inst::{Reg, WgmmaA};
use ptx::{Builder, Entry, Function, Inst, Special, Target, TensorLoad, Value, Var, WgmmaTypes};

/// K of the whole multiply, which takes four instructions.
const K: u32 = 64;
const M: u32 = 64;

/// The source of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Major {
    K,
    Mn,
    Registers,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    types: WgmmaTypes,
    n: u32,
    a: Major,
    b: Major,
    swizzle: TensorSwizzle,
    /// Negates A and starts from an accumulator of ones.
    negate: bool,
}

/// Number of elements in a swizzle span, or in a row of a core matrix.
fn span(swizzle: TensorSwizzle) -> u32 {
    swizzle.span().unwrap_or(16) / 2
}

/// The box of an operand with `extent` rows or columns.
fn box_dims(major: Major, extent: u32, swizzle: TensorSwizzle) -> Vec<u32> {
    match major {
        Major::K | Major::Registers => vec![span(swizzle), extent],
        Major::Mn => vec![span(swizzle), K],
    }
}

/// The descriptor of K step `step` of an operand at `base`.
fn descriptor<'f>(case: Case, major: Major, extent: u32, base: Value<'f, u32>, step: u32) -> Value<'f, u64> {
    let width = span(case.swizzle);
    let none = case.swizzle == TensorSwizzle::None;
    let box_bytes = if major == Major::K { extent } else { K } * width * 2;
    let (offset, leading, stride) = match (major, none) {
        (Major::K | Major::Registers, true) => (2 * step * box_bytes, box_bytes, 128),
        (Major::K | Major::Registers, false) => {
            (step * 16 / width * box_bytes + step * 16 % width * 2, 16, 8 * width * 2)
        }
        (Major::Mn, true) => (step * 256, 128, box_bytes),
        (Major::Mn, false) => (step * 16 * width * 2, box_bytes, 8 * width * 2),
    };
    let mode = match case.swizzle {
        TensorSwizzle::None => 0u64,
        TensorSwizzle::B128 => 1,
        TensorSwizzle::B64 => 2,
        TensorSwizzle::B32 => 3,
    };
    let start = (((base + offset) & 0x3_FFFF) >> 4).cast::<u64>();
    start | (mode << 62 | u64::from(stride >> 4) << 32 | u64::from(leading >> 4) << 16)
}

fn program(case: Case) -> Program {
    let Case { types, n, .. } = case;
    let b_at = M * K * 2;
    let barrier_at = b_at + n * K * 2;
    let entry = Entry {
        name: "multiply".into(),
        target: Target::Sm90a,
        threads: 128,
        shared_bytes: barrier_at + 8,
        cluster: [1, 1, 1],
    };
    let function = Function::build(entry, |f: &Builder| {
        let (map_a, map_b) = (f.tensor_map("a"), f.tensor_map("b"));
        let (rows, out) = (f.param::<u64>("rows_of_a"), f.param::<u64>("out"));
        let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
        let barrier = base + barrier_at;
        f.if_(thread.equals(0), || {
            f.mbarrier_init(barrier, 1);
            f.fence_mbarrier_init();
            f.mbarrier_arrive_expect(barrier, (M + n) * K * 2);
            for (map, major, extent, at) in [(map_a, case.a, M, base), (map_b, case.b, n, base + b_at)] {
                let dims = box_dims(major, extent, case.swizzle);
                let across = if major == Major::Mn { extent } else { K };
                for i in 0..across / dims[0] {
                    let dst = at + i * dims[0] * dims[1] * 2;
                    let load = TensorLoad { map, dst, barrier, multicast: None, hint: None };
                    f.tensor_load(load, [f.constant((i * dims[0]).cast_signed()), f.constant(0)]);
                }
            }
        });
        f.barrier_sync(0, 128);
        f.mbarrier_wait(barrier, 0);
        let (warp, lane) = (thread / 32, thread % 32);
        let row = warp * 16 + lane / 4;
        // Fragments of A: a register holds two neighbours along K.
        let fragment = |step: u32| -> [Reg; 4] {
            core::array::from_fn(|r| {
                let r = r as u32;
                let k = (lane % 4) * 2 + (r / 2 * 8 + step * 16);
                let element = (row + r % 2 * 8) * K + k;
                let register = f.uninitialised::<u32>();
                register.set(f.load_global::<u32>(rows + element.mul_wide(2), 0));
                register.reg()
            })
        };
        let fragments: Vec<[Reg; 4]> =
            if case.a == Major::Registers { (0..4).map(fragment).collect() } else { Vec::new() };
        let packed = types == WgmmaTypes::F16F16;
        let ones = if packed { 0x3C00_3C00 } else { 1.0f32.to_bits() };
        let d: Vec<Var<'_, u32>> = (0..types.accumulators(n)).map(|_| f.variable(ones)).collect();
        f.wgmma_fence();
        for step in 0..4 {
            let a = match case.a {
                Major::Registers => WgmmaA::Registers(fragments[step as usize]),
                Major::K | Major::Mn => WgmmaA::Shared(descriptor(case, case.a, M, base, step).operand()),
            };
            f.emit(Inst::Wgmma {
                sparse: None,
                types,
                n,
                d: d.iter().map(|one| one.reg()).collect(),
                a,
                b: descriptor(case, case.b, n, base + b_at, step).operand(),
                accumulate: f.constant(case.negate || step > 0).operand(),
                negate_a: case.negate,
                negate_b: false,
                transpose_a: case.a == Major::Mn,
                transpose_b: case.b == Major::Mn,
            });
        }
        f.wgmma_commit();
        f.wgmma_wait(0);
        for (i, one) in d.iter().enumerate() {
            let v = if packed { 2 * i as u32 } else { i as u32 };
            let column = (lane % 4) * 2 + (v / 4 * 8 + v % 2);
            let element = (row + v / 2 % 2 * 8) * n + column;
            f.store_global(out + element.mul_wide(if packed { 2 } else { 4 }), 0, [one.get()]);
        }
    });
    Program::new(&function.verify().unwrap())
}

/// Small multiples of 1/4. Every sum here is exact in f32. In f16 too, as sums stay below 512 quarters.
fn element(index: u32, seed: u32) -> f32 {
    let mixed = (index * 2 + seed).wrapping_mul(2_654_435_761) >> 27;
    (mixed as f32 - 15.0) / 16.0
}

fn check(case: Case, options: &Options<'_>) {
    let brain = case.types == WgmmaTypes::Bf16F32;
    let bits =
        |value: f32| if brain { bf16::from_f32(value).to_bits() } else { f16::from_f32(value).to_bits() };
    let mut memory = Memory::new();
    let (a, b) = (|m: u32, k: u32| element(m * K + k, 1), |n: u32, k: u32| element(n * K + k, 777));
    let mut upload = |extent: u32, major: Major, value: &dyn Fn(u32, u32) -> f32| {
        let bytes: Vec<u8> = (0..extent * K)
            .flat_map(|i| match major {
                Major::K | Major::Registers => bits(value(i / K, i % K)).to_le_bytes(),
                Major::Mn => bits(value(i % extent, i / extent)).to_le_bytes(),
            })
            .collect();
        let address = memory.upload(&bytes);
        let (inner, outer) = if major == Major::Mn { (extent, K) } else { (K, extent) };
        let map = TensorMap {
            element: TensorElement::Bf16,
            address,
            dims: vec![inner.into(), outer.into()],
            strides: vec![u64::from(inner) * 2],
            box_dims: box_dims(major, extent, case.swizzle),
            swizzle: case.swizzle,
            promotion: Promotion::default(),
            reach: None,
        };
        (address, map)
    };
    let (rows, map_a) = upload(M, case.a, &a);
    let (_, map_b) = upload(case.n, case.b, &b);
    let packed = case.types == WgmmaTypes::F16F16;
    let size = if packed { 2 } else { 4 };
    let out = memory.allocate((M * case.n * size) as usize);
    let arguments = [map_a.into(), map_b.into(), rows.into(), out.into()];
    let launched = program(case).launch(Grid { ctas: [1, 1, 1] }, &arguments, &memory, options);
    let report = launched.unwrap_or_else(|failure| panic!("{case:?}: {failure}"));
    assert_eq!((report.wgmmas, report.multiply_adds), (4, u64::from(M * case.n * K)));
    let bytes = memory.read(out, (M * case.n * size) as usize).unwrap();
    for m in 0..M {
        for n in 0..case.n {
            let sum: f32 = (0..K).map(|k| a(m, k) * b(n, k)).sum();
            let want = if case.negate { 1.0 - sum } else { sum };
            let at = ((m * case.n + n) * size) as usize;
            let got = if packed {
                f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
            } else {
                f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
            };
            let tolerance = if packed { 4.0 * 2f32.powi(-11) * want.abs().max(16.0) } else { 0.0 };
            assert!((got - want).abs() <= tolerance, "{case:?} ({m}, {n}): {got} and not {want}");
        }
    }
}

#[test]
fn every_swizzle_and_major_multiplies_right() {
    let swizzles = [TensorSwizzle::None, TensorSwizzle::B32, TensorSwizzle::B64, TensorSwizzle::B128];
    for swizzle in swizzles {
        for a in [Major::K, Major::Mn, Major::Registers] {
            for b in [Major::K, Major::Mn] {
                for types in [WgmmaTypes::Bf16F32, WgmmaTypes::F16F32, WgmmaTypes::F16F16] {
                    let negate = types == WgmmaTypes::F16F32;
                    check(Case { types, n: 128, a, b, swizzle, negate }, &Options::default());
                }
            }
        }
    }
}

#[test]
fn every_n_and_schedule() {
    for n in [8, 16, 24, 72, 192, 256] {
        for schedule in [Schedule::Default, Schedule::Earliest, Schedule::Latest, Schedule::Random] {
            let case = Case {
                types: WgmmaTypes::Bf16F32,
                n,
                a: Major::K,
                b: Major::K,
                swizzle: TensorSwizzle::B128,
                negate: false,
            };
            check(case, &Options { schedule, ..Options::default() });
        }
    }
}
