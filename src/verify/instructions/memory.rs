//! Forms of atomics in both memories, of `ldmatrix` and `stmatrix`, and of `mma.sync`.

use ptx::inst::{Address, AtomicInst, AtomicOp, AtomicSem, AtomicType, MmaTypes, Operand, Scope, WarpMatrix};
use ptx::{Builder, Inst, Reg, Space, Special, Type, Value};

use super::lanes::{fresh, load, store, value};
use super::{InstructionCase, InstructionForm};

const THREADS: u32 = 32;
/// Number of bytes per thread in each array of an atomic's form.
const PLACE: u32 = 16;

/// Every form.
pub(super) fn forms() -> Vec<InstructionForm> {
    let mut all = Vec::new();
    for space in [Space::Global, Space::Shared] {
        for op in AtomicOp::ALL {
            for ty in AtomicType::ALL {
                for elements in [1, 2, 4, 8] {
                    let single = elements == 1;
                    let exists = if single { op.allows(ty) } else { op.allows_vector(ty, elements) };
                    if exists && (single || space == Space::Global) {
                        all.push(atomic(space, op, ty, elements));
                    }
                }
            }
        }
    }
    for count in [1, 2, 4] {
        for transpose in [false, true] {
            all.push(load_matrix(count, transpose));
            all.push(store_matrix(count, transpose));
        }
    }
    let integers = [false, true].into_iter().flat_map(|signed_a| {
        let types = move |signed_b, saturate| MmaTypes::Int8 { signed_a, signed_b, saturate };
        [types(false, false), types(true, false), types(true, true)]
    });
    let floats = [MmaTypes::Bf16F32, MmaTypes::F16F32, MmaTypes::F16F16, MmaTypes::Tf32F32, MmaTypes::F64];
    for types in floats.into_iter().chain(integers) {
        for exact in [true, false] {
            // The hardware's order of summation for f64 is not documented.
            if exact || !matches!(types, MmaTypes::Int8 { .. } | MmaTypes::F64) {
                all.push(multiply(types, exact));
            }
        }
    }
    all
}

fn thread_at<'f>(f: &'f Builder, base: Value<'f, u64>, bytes: u32) -> Value<'f, u64> {
    base + (f.special(Special::ThreadX) * bytes).cast::<u64>()
}

/// Each thread writes a value to its own place, changes it atomically, and stores the returned value and the
/// new value.
fn atomic(space: Space, op: AtomicOp, ty: AtomicType, elements: usize) -> InstructionForm {
    let (register, size) = (ty.register(), ty.bytes());
    let where_ = if space == Space::Global { "global" } else { "shared" };
    let name = format!("atom.{where_}.{}.{}.v{elements}", op.name(), ty.suffix());
    let swaps = op == AtomicOp::CompareSwap;
    let form = InstructionForm::new(
        (&format!("atom.{where_}"), name),
        THREADS,
        [3 * THREADS * PLACE, 2 * THREADS * PLACE, size],
        move |f, input, output| {
            let (input, output) = (thread_at(f, input, PLACE), thread_at(f, output, PLACE));
            let array = |base: Value<'_, u64>, array: u32, element: usize| {
                (base.operand(), (array * THREADS * PLACE + element as u32 * size) as i32)
            };
            let read = |which: u32, element| {
                let (base, offset) = array(input, which, element);
                load(f, register, base, offset)
            };
            let old: Vec<Operand> = (0..elements).map(|element| read(0, element)).collect();
            let src: Vec<Operand> = (0..elements).map(|element| read(1, element)).collect();
            let swap = swaps.then(|| read(2, 0));
            let shared = f.shared_base() + f.special(Special::ThreadX) * PLACE;
            let base = if space == Space::Global { output.operand() } else { shared.operand() };
            let address = Address { base, offset: 0 };
            for (element, &value) in old.iter().enumerate() {
                let address = Address { base, offset: (element as u32 * size) as i32 };
                f.emit(Inst::Store { space, ty: register, src: vec![value], address });
            }
            let dst: Vec<Reg> = (0..elements).map(|_| fresh(f, register)).collect();
            let (sem, scope) = (AtomicSem::Relaxed, Scope::Gpu);
            let returned = dst.clone();
            f.emit(Inst::Atomic(AtomicInst { op, ty, space, sem, scope, dst, address, src, swap }));
            for (element, reg) in returned.into_iter().enumerate() {
                let (base, offset) = array(output, 1, element);
                store(f, register, base, offset, Operand::Reg(reg));
                if space != Space::Global {
                    let left = fresh(f, register);
                    let at = Address { base: address.base, offset: (element as u32 * size) as i32 };
                    f.emit(Inst::Load { space, ty: register, dst: vec![left], address: at });
                    let (base, offset) = array(output, 0, element);
                    store(f, register, base, offset, Operand::Reg(left));
                }
            }
        },
        move |random| {
            let types = if ty == AtomicType::F16x2 {
                Type::F16
            } else if ty == AtomicType::Bf16x2 {
                Type::Bf16
            } else {
                register
            };
            let mut case = |name, special| {
                let mut input = values(types, (3 * THREADS * PLACE) as usize, special, random);
                if swaps {
                    // Every second thread finds its compare value.
                    let (old, rest) = input.split_at_mut((THREADS * PLACE) as usize);
                    let places = old.chunks_exact(PLACE as usize).zip(rest.chunks_exact_mut(PLACE as usize));
                    for (old, wanted) in places.step_by(2) {
                        wanted.copy_from_slice(old);
                    }
                }
                let bytes = elements as u32 * size;
                let written = (0..2 * THREADS * PLACE / size).map(|element| element * size % PLACE < bytes);
                plain(name, input, Some(written.collect()), size)
            };
            vec![case("random", false), case("special", true)]
        },
    );
    InstructionForm { shared_bytes: THREADS * PLACE, ..form }
}

/// Random bytes of values of a type.
pub(super) fn values(ty: Type, bytes: usize, special: bool, random: &mut fastrand::Rng) -> Vec<u8> {
    let size = ty.bytes() as usize;
    (0..bytes / size).flat_map(|_| value(ty, random, special).to_le_bytes().into_iter().take(size)).collect()
}

/// A case without expected outputs: only engines are compared.
pub(super) fn plain(
    name: &'static str,
    input: Vec<u8>,
    defined: Option<Vec<bool>>,
    size: u32,
) -> InstructionCase {
    let explain = move |element: usize| format!("byte {} of the outputs", element * size as usize);
    InstructionCase { name, input, expected: None, defined, explain: Box::new(explain) }
}

/// Copies the case's first bytes to shared memory, 16 per thread.
fn to_shared<'f>(f: &'f Builder, input: Value<'f, u64>) -> Value<'f, u32> {
    let words = f.load_global_vector::<u32, 4>(thread_at(f, input, 16), 0);
    let shared = f.shared_base();
    f.store_shared(shared + f.special(Special::ThreadX) * 16, 0, words);
    f.barrier_sync(0, THREADS);
    shared
}

/// Row addresses of a warp's matrices: a permutation, so that rows are not in order.
fn rows<'f>(f: &'f Builder, shared: Value<'f, u32>) -> Value<'f, u32> {
    shared + ((f.special(Special::ThreadX) * 5) & 31) * 16
}

/// A form of one of the instructions that copy matrices of a warp, with random bytes.
fn of_matrices(
    named: (&str, String),
    [input, output]: [u32; 2],
    emit: impl for<'f> Fn(&'f Builder, Value<'f, u64>, Value<'f, u64>) + Send + Sync + 'static,
) -> InstructionForm {
    let form = InstructionForm::new(named, THREADS, [input, output, 4], emit, move |random| {
        vec![plain("random", (0..input).map(|_| random.u8(..)).collect(), None, 4)]
    });
    InstructionForm { shared_bytes: THREADS * 16, ..form }
}

fn load_matrix(count: u32, transpose: bool) -> InstructionForm {
    let name = format!("ldmatrix.x{count}{}", if transpose { ".trans" } else { "" });
    of_matrices(("ldmatrix", name), [THREADS * 16, THREADS * 4 * count], move |f, input, output| {
        let shared = to_shared(f, input);
        let dst: Vec<Reg> = (0..count).map(|_| fresh(f, Type::U32)).collect();
        let address = rows(f, shared).operand();
        f.emit(Inst::WarpMatrix(WarpMatrix::Load { dst: dst.clone(), address, transpose }));
        let output = thread_at(f, output, 4 * count);
        for (offset, reg) in (0..).step_by(4).zip(dst) {
            store(f, Type::U32, output.operand(), offset, Operand::Reg(reg));
        }
    })
}

fn store_matrix(count: u32, transpose: bool) -> InstructionForm {
    let name = format!("stmatrix.x{count}{}", if transpose { ".trans" } else { "" });
    of_matrices(("stmatrix", name), [2 * THREADS * 16, THREADS * 16], move |f, input, output| {
        let shared = to_shared(f, input);
        let words = f.load_global_vector::<u32, 4>(thread_at(f, input, 16), 512);
        let src = words.iter().take(count as usize).map(|word| word.operand()).collect();
        f.emit(Inst::StoreMatrix { address: rows(f, shared).operand(), src, transpose });
        f.barrier_sync(0, THREADS);
        let image = f.load_shared_vector::<u32, 4>(shared + f.special(Special::ThreadX) * 16, 0);
        f.store_global(thread_at(f, output, 16), 0, image);
    })
}

/// One multiplication. With `exact`, of small integers, whose sums no format rounds.
fn multiply(types: MmaTypes, exact: bool) -> InstructionForm {
    let (ty, count) = types.accumulators();
    let saturate = matches!(types, MmaTypes::Int8 { saturate: true, .. });
    let what = if exact && !matches!(types, MmaTypes::Int8 { .. }) { " of integers" } else { "" };
    let name = format!(
        "mma.sync.k{}.{}{}{what}",
        types.k(),
        types.suffix(),
        if saturate { ".satfinite" } else { "" }
    );
    let element = if types == MmaTypes::F16F16 { 2 } else { ty.bytes() };
    InstructionForm::new(
        (&format!("mma.sync{what}"), name),
        THREADS,
        [THREADS * 10 * ty.bytes(), THREADS * ty.bytes() * count as u32, element],
        move |f, input, output| {
            let bytes = ty.bytes();
            let input = thread_at(f, input, 10 * bytes).operand();
            let word = |place: i32, ty| load(f, ty, input, place * bytes.cast_signed());
            let a = [0, 1, 2, 3].map(|i| word(i, types.operand()));
            let b = [4, 5].map(|i| word(i, types.operand()));
            let c = (0..count as i32).map(|i| word(6 + i, ty)).collect();
            let d: Vec<Reg> = (0..count).map(|_| fresh(f, ty)).collect();
            f.emit(Inst::WarpMatrix(WarpMatrix::Multiply { types, d: d.clone(), a, b, c }));
            let output = thread_at(f, output, bytes * count as u32);
            for (offset, reg) in (0..).step_by(bytes as usize).zip(d) {
                store(f, ty, output.operand(), offset, Operand::Reg(reg));
            }
        },
        move |random| {
            let mut operand = |integer: bool, accumulator: bool| -> u32 {
                let small = f32::from(random.i8(-4..=4));
                let element = match types {
                    MmaTypes::Int8 { .. } => return random.u32(..),
                    MmaTypes::Bf16F32 if !accumulator => Type::Bf16,
                    MmaTypes::F16F32 if !accumulator => Type::F16,
                    MmaTypes::F16F16 => Type::F16,
                    MmaTypes::Bf16F32 | MmaTypes::F16F32 | MmaTypes::Tf32F32 | MmaTypes::F64 => Type::F32,
                };
                let mut one = || {
                    if !integer {
                        return value(element, random, false) as u32;
                    }
                    if element == Type::F16 {
                        half::f16::from_f32(small).to_bits().into()
                    } else if element == Type::Bf16 {
                        half::bf16::from_f32(small).to_bits().into()
                    } else {
                        small.to_bits()
                    }
                };
                if element.bytes() == 2 { one() & 0xFFFF | one() << 16 } else { one() }
            };
            let words = (0..THREADS * 10).map(|word| operand(exact, word % 10 >= 6));
            let input = if types == MmaTypes::F64 {
                words.flat_map(|word| f64::from(f32::from_bits(word)).to_le_bytes()).collect()
            } else {
                words.flat_map(u32::to_le_bytes).collect()
            };
            vec![plain(if exact { "integers" } else { "random" }, input, None, ty.bytes())]
        },
    )
}
