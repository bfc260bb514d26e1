//! The physical limit: a kernel that does nothing but multiply. Measurements are compared with it.
//!
//! Each CTA has two warpgroups, which issue `m64n256` instructions on operands that are already in shared
//! memory. One CTA runs per SM. The loop has no loads and no stores, so no GEMM on the same card in the same
//! state can be faster. The operands are the caller's: with random values, the card draws as much power as in
//! real use. [`sparse_program`] is the same with a
//! 2:4 sparse A: each instruction has twice the K.
//!
//! ```
//! use kernel::ceiling;
//! use ptx::inst::WgmmaTypes;
//!
//! // Of one round on 132 multiprocessors.
//! assert!(ceiling::operations(WgmmaTypes::Bf16F32, 132, 1) > 1e8);
//! assert!(ceiling::program(WgmmaTypes::Bf16F32)?.text().contains("wgmma"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use collective::{Accumulator, Plan};
use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::atom::{Major, SwizzleMode};
use ptx::abi::{Argument, Grid};
use ptx::inst::WgmmaSum;
use ptx::{Builder, Entry, Function, ProxySpace, Special, Value, VerifyError, WgmmaOperands, WgmmaTypes};

use crate::program::Program;

const WARPGROUPS: u32 = 2;
const N: u32 = 256;
/// Bytes along K per row of a stage.
const ROW_BYTES: u32 = 128;
const STAGES: u32 = 4;
const THREADS: u32 = WARPGROUPS * 128;

/// Bytes of operands that [`launch`] reads: they fill shared memory.
pub const OPERAND_BYTES: usize = (STAGES * Operands::DENSE.stage_bytes()) as usize;

/// The kernel for element types with accumulators of `f32` or `s32`.
///
/// # Errors
/// None: the verifier finds no fault in it.
pub fn program(types: WgmmaTypes) -> Result<Program, VerifyError> {
    written("wgmma_ceiling", types, Operands::DENSE)
}

/// The kernel for a 2:4 sparse A. A launch has the grid, the arguments and the operations of the dense one; of A half of the elements are read,
/// with metadata that names the first of each chunk.
///
/// # Errors
/// What the verifier finds: nothing for types that have a sparse instruction.
pub fn sparse_program(types: WgmmaTypes) -> Result<Program, VerifyError> {
    written("wgmma_sparse_ceiling", types, Operands::SPARSE)
}

/// Where operands lie in a stage.
#[derive(Clone, Copy)]
struct Operands {
    /// Bytes along K of a row of A, and its swizzle: half of those of B where A is sparse.
    row: u32,
    swizzle: SwizzleMode,
    sparse: bool,
}

impl Operands {
    const DENSE: Self = Self { row: ROW_BYTES, swizzle: SwizzleMode::B128, sparse: false };
    const SPARSE: Self = Self { row: ROW_BYTES / 2, swizzle: SwizzleMode::B64, sparse: true };

    const fn a_bytes(self) -> u32 {
        WARPGROUPS * 64 * self.row
    }

    const fn stage_bytes(self) -> u32 {
        self.a_bytes() + N * ROW_BYTES
    }
}

fn written(name: &str, types: WgmmaTypes, operands: Operands) -> Result<Program, VerifyError> {
    let entry = Entry {
        name: name.to_owned(),
        target: Plan::TARGET,
        threads: THREADS,
        shared_bytes: STAGES * operands.stage_bytes(),
        cluster: [1, 1, 1],
    };
    Program::new(Function::build(entry, |f| match types.d() {
        WgmmaSum::S32 => emit::<i32>(f, types, operands),
        WgmmaSum::F32 | WgmmaSum::F16 => emit::<f32>(f, types, operands),
    }))
}

/// The grid and arguments for `rounds` rounds on `multiprocessors` SMs. The kernel reads operands from the
/// device address `operands` ([`OPERAND_BYTES`] bytes) and writes sums to `sums` ([`sum_bytes`] bytes).
pub fn launch(multiprocessors: u32, operands: u64, sums: u64, rounds: u32) -> (Grid, Vec<Argument>) {
    (Grid { ctas: [multiprocessors, 1, 1] }, vec![operands.into(), sums.into(), rounds.into()])
}

/// Bytes of sums that [`launch`] writes.
pub fn sum_bytes(multiprocessors: u32) -> usize {
    (multiprocessors * THREADS * 4) as usize
}

/// Number of floating-point operations of a launch.
pub fn operations(types: WgmmaTypes, multiprocessors: u32, rounds: u32) -> f64 {
    let k = ROW_BYTES * 8 / types.element_bits();
    2.0 * f64::from(multiprocessors * WARPGROUPS * 64) * f64::from(N * k) * f64::from(rounds)
}

/// The matrix descriptor of an operand tile at a shared address.
fn at<'f>(descriptor: &MatrixDescriptor, address: Value<'f, u32>) -> Value<'f, u64> {
    ((address & 0x3_FFFF) >> 4).cast::<u64>() | descriptor.bits(0)
}

/// Metadata of eight chunks of which the first elements are kept.
const FIRST: u32 = 0x4444_4444;

fn emit<T: Accumulator>(f: &Builder, types: WgmmaTypes, of: Operands) {
    let (a_bytes, stage_bytes) = (of.a_bytes(), of.stage_bytes());
    let density = if of.sparse { 2 } else { 1 };
    let depth = ROW_BYTES * 8 / types.element_bits();
    let (operands, sums, rounds) =
        (f.param::<u64>("operands"), f.param::<u64>("sums"), f.param::<u32>("rounds"));
    let (shared, thread) = (f.shared_base(), f.special(Special::ThreadX));
    f.repeat(f.constant(STAGES * stage_bytes / (THREADS * 16)), |i| {
        let offset = (i * THREADS + thread) * 16;
        let words: [_; 4] = f.load_global_vector::<u32, 4>(operands + offset.cast::<u64>(), 0);
        f.store_shared(shared + offset, 0, words);
    });
    f.fence_proxy_async(ProxySpace::Shared);
    f.barrier_sync(0, THREADS);

    let descriptor = |swizzle, rows: u32, depth| {
        MatrixDescriptor::new(Major::K, swizzle, types.element_bits(), rows, depth)
            .expect("rows fill the swizzle")
    };
    let a = descriptor(of.swizzle, WARPGROUPS * 64, depth / density);
    let b = descriptor(SwizzleMode::B128, N, depth);
    let metadata = of.sparse.then(|| (f.variable(FIRST), 0));
    let accumulators: Vec<_> = (0..types.accumulators(N)).map(|_| f.variable(T::default())).collect();
    let own_rows = f.warp_index() / 4 * a.mn_offset_bytes(64);
    f.repeat(rounds, |round| {
        let stage = shared + round % STAGES * stage_bytes;
        let (a_start, b_start) = (at(&a, stage + own_rows), at(&b, stage + a_bytes));
        f.wgmma_fence();
        for step in 0..depth / (types.k() * density) {
            let a = a_start + u64::from(a.k_offset_bytes(step) / 16);
            let b = b_start + u64::from(b.k_offset_bytes(step * density) / 16);
            let operands = WgmmaOperands { sparse: metadata, ..WgmmaOperands::new(types, N, a, b) };
            f.wgmma(operands, &accumulators);
        }
        f.wgmma_commit();
        f.wgmma_wait(1);
    });
    f.wgmma_wait(0);
    let sum = accumulators.iter().map(|accumulator| accumulator.get()).reduce(|a, b| a + b);
    if let Some(sum) = sum {
        let index = f.special(Special::CtaX) * THREADS + thread;
        f.store_global(sums + index.mul_wide(4), 0, [sum]);
    }
}

#[cfg(test)]
mod tests {
    use collective::Format;

    use super::*;
    use crate::{Emulator, Engine};

    /// With operands of ones, every accumulator counts its multiplications.
    #[test]
    fn it_multiplies_what_it_says() {
        let formats = [Format::Bf16, Format::E4m3, Format::Tf32, Format::S8];
        for (format, sparse) in formats.into_iter().flat_map(|format| [(format, false), (format, true)]) {
            let types = format.multiplies(format).expect("wgmma does");
            let mut engine = Emulator::new();
            let bytes = format.bytes() as usize;
            let one = &format.encode(1.0).to_le_bytes()[..bytes];
            let operands = engine.upload(&one.repeat(OPERAND_BYTES / bytes)).expect("memory");
            let sums = engine.allocate(sum_bytes(2)).expect("memory");
            let rounds = 5;
            let (grid, arguments) = launch(2, operands.address, sums.address, rounds);
            let program = if sparse { sparse_program(types) } else { program(types) }.expect("legal");
            engine.launch(&program, grid, &arguments).unwrap_or_else(|error| panic!("{error}"));
            let sum = |bytes: &[u8]| {
                let bits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                format.multiplies(format).map(|types| match types.d() {
                    WgmmaSum::S32 => f64::from(bits),
                    WgmmaSum::F32 | WgmmaSum::F16 => f64::from(f32::from_bits(bits)),
                })
            };
            let total: f64 = engine.read(sums).expect("no fault").chunks_exact(4).filter_map(sum).sum();
            // Half of a sparse A's elements are zero.
            let each = if sparse { 4.0 } else { 2.0 };
            assert_eq!(total * each, operations(types, 2, rounds), "{format:?} {sparse}");
        }
    }
}
