//! Forms of `wgmma.mma_async`: every type, with a variety of N, layouts and modifiers.
//!
//! Operands are stored to shared memory in the layouts of `cute_rs::atom`, surrounded by bytes that no
//! instruction may read. D is written in the order of the registers.

mod problem;
mod values;

use std::sync::Arc;

use cute_rs::LayoutError;
use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::atom::{Major, SwizzleMode};
use ptx::inst::{WgmmaElement, WgmmaSum};
use ptx::{Builder, ProxySpace, Special, Value, Var, WgmmaOperands, WgmmaSource, WgmmaTypes};

use self::problem::Problem;
use self::values::Kind;
use super::{InstructionCase, InstructionForm};

/// Number of slices along K in an operand's tile.
const SLICES: u32 = 4;
/// Number of threads per warpgroup.
const THREADS: u32 = 128;

/// The parameters of a form.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    types: WgmmaTypes,
    n: u32,
    /// Whether A comes from registers.
    registers: bool,
    mode: SwizzleMode,
    /// Whether A, and B, are MN-major.
    transpose: [bool; 2],
    negate: [bool; 2],
    accumulate: bool,
    /// The sparsity selector, for a sparse form.
    sparse: Option<u32>,
    /// The first slice along K that is multiplied, and the number of consecutive slices.
    slices: (u32, u32),
    /// Number of 128-byte lines between the swizzle's period and the tiles, and the descriptors' base offset.
    base: u32,
}

/// The layout of a case's inputs, and of the operands in shared memory.
#[derive(Clone, Copy, Debug)]
struct Places {
    a: u32,
    a_bytes: u32,
    b: u32,
    image: u32,
    old: u32,
    metadata: u32,
    fragments: u32,
    end: u32,
}

impl Shape {
    fn new(types: WgmmaTypes, n: u32) -> Self {
        Self {
            types,
            n,
            registers: false,
            mode: SwizzleMode::B128,
            transpose: [false; 2],
            negate: [false; 2],
            accumulate: true,
            sparse: None,
            slices: (0, 1),
            base: 0,
        }
    }

    /// Bits of an element in the layouts. At least 8: single-bit elements are grouped into bytes.
    fn bits(&self) -> u32 {
        self.types.element_bits().max(8)
    }

    /// Number of elements of A along K per instruction.
    fn k_a(&self) -> u32 {
        256 / self.bits()
    }

    /// Number of elements of B along K per instruction.
    fn k_b(&self) -> u32 {
        if self.sparse.is_some() { 2 * self.k_a() } else { self.k_a() }
    }

    fn major(&self, operand: usize) -> Major {
        if self.transpose[operand] { Major::Mn } else { Major::K }
    }

    /// Extents of an operand's tile: enough atoms for its rows and all slices.
    fn tile(&self, operand: usize) -> (u32, u32) {
        let (rows, k) = if operand == 0 { (64, self.k_a()) } else { (self.n, self.k_b()) };
        let whole = if self.transpose[operand] { self.mode.elements(self.bits()) } else { 8 };
        (rows.next_multiple_of(whole), SLICES * k)
    }

    fn descriptor(&self, operand: usize) -> Result<MatrixDescriptor, LayoutError> {
        let (mn, k) = self.tile(operand);
        MatrixDescriptor::new(self.major(operand), self.mode, self.bits(), mn, k)
    }

    fn sums(&self) -> u32 {
        self.types.accumulators(self.n)
    }

    fn places(&self) -> Places {
        let bytes = |operand: usize| {
            let (mn, k) = self.tile(operand);
            mn * k * self.bits() / 8
        };
        let shift = self.base * 128;
        let a_bytes = if self.registers { 0 } else { bytes(0) };
        let b = (shift + a_bytes).next_multiple_of(1024) + shift;
        // Every thread copies the same number of chunks.
        let image = (b + bytes(1)).next_multiple_of(THREADS * 16);
        let metadata = image + THREADS * self.sums() * 4;
        let fragments = metadata + if self.sparse.is_some() { self.slices.1 * THREADS * 4 } else { 0 };
        let end = fragments + if self.registers { self.slices.1 * THREADS * 16 } else { 0 };
        Places { a: shift, a_bytes, b, image, old: image, metadata, fragments, end }
    }

    fn name(&self) -> String {
        let k = self.types.k() * if self.sparse.is_some() { 2 } else { 1 };
        let sp = if self.sparse.is_some() { ".sp" } else { "" };
        let mut name = format!("wgmma.mma_async{sp}.m64n{}k{k}.{}", self.n, self.types.suffix());
        let bytes = if self.mode == SwizzleMode::None { 0 } else { self.mode.bytes() };
        name += &format!(" {} swizzle {bytes}", if self.registers { "rs" } else { "ss" });
        let (first, count) = self.slices;
        for (said, words) in [
            (first > 0 || count > 1, format!(" slices {first}..{}", first + count)),
            (self.transpose[0], " trans-a".to_owned()),
            (self.transpose[1], " trans-b".to_owned()),
            (self.negate[0], " -a".to_owned()),
            (self.negate[1], " -b".to_owned()),
            (self.base > 0, format!(" base offset {}", self.base)),
            (!self.accumulate, " scale-d 0".to_owned()),
            (self.sparse == Some(1), " selector 1".to_owned()),
        ] {
            if said {
                name += &words;
            }
        }
        name
    }

    fn form(self) -> InstructionForm {
        let places = self.places();
        let halves = self.types.d() == WgmmaSum::F16;
        let name = self.name();
        let kinds = Kind::of(self.types);
        let sp = if self.sparse.is_some() { ".sp" } else { "" };
        let form = InstructionForm::new(
            (&format!("wgmma.mma_async{sp}.{}", self.types.suffix()), name),
            THREADS,
            [places.end, THREADS * self.sums() * 4, if halves { 2 } else { 4 }],
            move |f, input, output| self.emit(f, input, output),
            move |random| kinds.iter().map(|&kind| case(self, kind, random)).collect(),
        );
        InstructionForm { shared_bytes: places.image, ..form }
    }

    fn emit<'f>(self, f: &'f Builder, input: Value<'f, u64>, output: Value<'f, u64>) {
        let places = self.places();
        let (shared, thread) = (f.shared_base(), f.special(Special::ThreadX));
        f.repeat(f.constant(places.image / (THREADS * 16)), |i| {
            let offset = (i * THREADS + thread) * 16;
            let chunk: [_; 4] = f.load_global_vector::<u32, 4>(input + offset.cast::<u64>(), 0);
            f.store_shared(shared + offset, 0, chunk);
        });
        let word = |at: u32, words: u32, i: u32| -> Value<'f, u32> {
            f.load_global(input + thread.mul_wide(words * 4) + u64::from(at + i * 4), 0)
        };
        let sums: Vec<Var<'f, u32>> =
            (0..self.sums()).map(|i| f.variable(word(places.old, self.sums(), i))).collect();
        let (first, count) = self.slices;
        let steps: Vec<_> = (0..count)
            .map(|step| {
                let a: WgmmaSource<'f> = if self.registers {
                    let fragments = places.fragments + step * THREADS * 16;
                    [0, 1, 2, 3].map(|i| f.variable(word(fragments, 4, i))).into()
                } else {
                    self.at(f, shared, 0, first + step).into()
                };
                let metadata = places.metadata + step * THREADS * 4;
                (a, self.sparse.map(|selector| (f.variable(word(metadata, 1, 0)), selector)))
            })
            .collect();
        f.fence_proxy_async(ProxySpace::Shared);
        f.barrier_sync(0, THREADS);
        f.wgmma_fence();
        for (step, (a, sparse)) in (0..).zip(steps) {
            let b = self.at(f, shared, 1, first + step);
            let [transpose_a, transpose_b] = self.transpose;
            let [negate_a, negate_b] = self.negate;
            let operands = WgmmaOperands {
                accumulate: f.constant(self.accumulate || step > 0),
                transpose_a,
                transpose_b,
                negate_a,
                negate_b,
                sparse,
                ..WgmmaOperands::new(self.types, self.n, a, b)
            };
            f.wgmma(operands, &sums);
        }
        f.wgmma_commit();
        f.wgmma_wait(0);
        let own = output + thread.mul_wide(self.sums() * 4);
        for (i, sum) in (0i32..).zip(&sums) {
            f.store_global(own, 4 * i, [sum.get()]);
        }
    }

    /// The descriptor of a slice of an operand.
    fn at<'f>(&self, f: &'f Builder, shared: Value<'f, u32>, operand: usize, slice: u32) -> Value<'f, u64> {
        // Every shape in `forms` has a descriptor.
        let Ok(descriptor) = self.descriptor(operand) else { return f.constant(0) };
        let places = self.places();
        let slice = if operand == 1 && self.sparse.is_some() { 2 * slice } else { slice };
        let offset = if operand == 0 { places.a } else { places.b } + descriptor.k_offset_bytes(slice);
        let fields = descriptor.bits(0) | u64::from(self.base) << 49;
        (((shared + offset) & 0x3_FFFF) >> 4).cast::<u64>() | fields
    }
}

fn case(shape: Shape, kind: Kind, random: &mut fastrand::Rng) -> InstructionCase {
    let problem = Arc::new(Problem::new(shape, kind, random));
    InstructionCase {
        name: kind.name(),
        input: problem.input(random),
        expected: Some(problem.expected()),
        defined: None,
        explain: Box::new(move |element| problem.explain(element)),
    }
}

/// Every form.
pub(super) fn forms() -> Vec<InstructionForm> {
    let mut shapes = Vec::new();
    for types in WgmmaTypes::all() {
        let base = Shape::new(types, 16);
        let selectors = (0..=types.sparse_selectors().unwrap_or(0)).map(Some);
        let sparse = selectors.filter(|_| types.sparse_selectors().is_some());
        for sparse in core::iter::once(None).chain(sparse) {
            let base = Shape { sparse, ..base };
            for (i, mode) in (0..).zip(SwizzleMode::ALL) {
                let shape = Shape { mode, slices: (i, 1), ..base };
                shapes.extend([shape, Shape { registers: true, n: 8, ..shape }]);
                if types.allows_transpose() {
                    for transpose in [[true, false], [false, true], [true, true]] {
                        shapes.push(Shape { transpose, n: 24, ..shape });
                    }
                    shapes.push(Shape { transpose: [false, true], registers: true, ..shape });
                }
            }
            if types == WgmmaTypes::Bf16F32 {
                for (offset, mode) in (1..8).zip(SwizzleMode::ALL.into_iter().cycle()) {
                    let shape = Shape { base: offset, mode, n: 24, slices: (2, 1), ..base };
                    shapes.extend([shape, Shape { transpose: [true, true], ..shape }]);
                }
            }
            let widths = [8, 24, 32, 64, 96, 128, 192, 256];
            shapes.extend(widths.map(|n| Shape { n, ..base }));
            shapes.extend([64, 256].map(|n| Shape { n, registers: true, ..base }));
            for registers in [false, true] {
                let base = Shape { registers, ..base };
                shapes.push(Shape { accumulate: false, ..base });
                shapes.push(Shape { slices: (1, 2), n: 8, ..base });
                if types.allows_negation() {
                    for negate in [[true, false], [false, true], [true, true]] {
                        shapes.push(Shape { negate, n: 8, ..base });
                    }
                }
            }
        }
    }
    shapes.into_iter().filter(exists).map(Shape::form).collect()
}

/// Whether descriptors for the operands exist, and whether the types allow this N.
fn exists(shape: &Shape) -> bool {
    let shared_a = shape.registers || shape.descriptor(0).is_ok();
    shared_a && shape.descriptor(1).is_ok() && shape.types.allows(shape.n)
}

/// The format of D's elements as an operand format: the old D is drawn like operands.
fn of_sum(sum: WgmmaSum) -> WgmmaElement {
    match sum {
        WgmmaSum::F16 => WgmmaElement::F16,
        // All 32 bits of a `.tf32` are drawn.
        WgmmaSum::F32 | WgmmaSum::S32 => WgmmaElement::Tf32,
    }
}
