//! The physical limit: a kernel that does nothing but multiply. Measurements are compared with it.
//!
//! Each CTA has two warpgroups, which issue `m64n256` instructions on operands that are already in shared
//! memory. One CTA runs per SM. The loop has no loads and no stores, so no GEMM on the same card in the same
//! state can be faster. The operands are the caller's: with random values, the card draws as much power as in
//! real use. With a 2:4 sparse A each instruction has twice the K.
//!
//! ```
//! use kernel::{Ceiling, Kernel, Rounds};
//! use ptx::inst::WgmmaTypes;
//!
//! let ceiling = Ceiling::dense(WgmmaTypes::Bf16F32);
//! let round = Rounds { ctas: 132, rounds: 1, operands: 1 << 20, sums: 2 << 20 };
//! assert!(ceiling.operations(&round) > 1e8);
//! assert!(ceiling.program()?.text().contains("wgmma"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use collective::{AccumulatorElement, Format, Plan};
use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::atom::{Major, SwizzleMode};
use ptx::inst::WgmmaSum;
use ptx::{Builder, Entry, ProxySpace, Special, Value, VerifyError, WgmmaOperands, WgmmaTypes};

use crate::error::LaunchError;
use crate::filled::Launch;
use crate::kernel::Kernel;
use crate::operands::{Contents, Extents, Memory, Visit};
use crate::program::Program;

const WARPGROUPS: u32 = 2;
const N: u32 = 256;
/// Bytes along K per row of a stage.
const ROW_BYTES: u32 = 128;
const STAGES: u32 = 4;
const THREADS: u32 = WARPGROUPS * 128;

/// The kernel for some element types, with accumulators of `f32` or `s32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// The types that the instruction multiplies.
    pub types: WgmmaTypes,
    /// Whether A is 2:4 sparse. Of A half of the elements are then read, with metadata that names the first of
    /// each chunk; operations count as those of dense operands.
    pub sparse: bool,
}

/// A launch of a [`Ceiling`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    /// Number of CTAs: as many as the card has SMs.
    pub ctas: u32,
    /// Number of times that each CTA multiplies its operands.
    pub rounds: u32,
    /// Device address of the operands, [`Ceiling::OPERAND_BYTES`] bytes.
    pub operands: u64,
    /// Device address of the sums, [`Rounds::sum_bytes`] bytes.
    pub sums: u64,
}

impl Rounds {
    /// Bytes of sums that CTAs write.
    pub const fn sum_bytes(ctas: u32) -> usize {
        (ctas * THREADS * 4) as usize
    }
}

impl Ceiling {
    /// Bytes of operands that a launch reads: they fill shared memory.
    pub const OPERAND_BYTES: usize = (STAGES * Operands::DENSE.stage_bytes()) as usize;

    /// The kernel of dense operands.
    pub const fn dense(types: WgmmaTypes) -> Self {
        Self { types, sparse: false }
    }

    /// Number of floating-point operations of a launch.
    pub fn operations(&self, of: &Rounds) -> f64 {
        let k = ROW_BYTES * 8 / self.types.element_bits();
        2.0 * f64::from(of.ctas * WARPGROUPS * 64) * f64::from(N * k) * f64::from(of.rounds)
    }
}

impl Kernel<Rounds> for Ceiling {
    fn program(&self) -> Result<Program, VerifyError> {
        let Self { types, sparse } = *self;
        let (name, operands) = if sparse {
            ("wgmma_sparse_ceiling", Operands::SPARSE)
        } else {
            ("wgmma_ceiling", Operands::DENSE)
        };
        let entry = Entry {
            name: name.to_owned(),
            target: Plan::TARGET,
            threads: THREADS,
            shared_bytes: STAGES * operands.stage_bytes(),
            cluster: [1, 1, 1],
        };
        Program::of(self, entry, |f| match types.d() {
            WgmmaSum::S32 => emit::<i32>(f, types, operands),
            WgmmaSum::F32 | WgmmaSum::F16 => emit::<f32>(f, types, operands),
        })
    }

    fn launch(&self, of: &Rounds, _resident: u32) -> Result<Option<Launch>, LaunchError> {
        Launch::of(self, of, |_| 4, of.ctas)
    }

    fn visit(&self, of: &mut Rounds, visit: &mut dyn Visit) {
        let Rounds { ctas, rounds, operands, sums } = of;
        let sum_bytes = Rounds::sum_bytes(*ctas) as u64;
        visit.count(ctas);
        let extents = Extents::line(8, Self::OPERAND_BYTES as u64);
        let contents = Contents::Elements(1);
        visit.memory(Memory { name: "the operands", address: operands, extents, contents, writes: false });
        let (extents, contents) = (Extents::line(8, sum_bytes), Contents::Output(Format::F32));
        visit.memory(Memory { name: "the sums", address: sums, extents, contents, writes: true });
        visit.address("operands", "the operands");
        visit.address("sums", "the sums");
        visit.counted("rounds", rounds);
    }
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

/// The matrix descriptor of an operand tile at a shared address.
fn at<'f>(descriptor: &MatrixDescriptor, address: Value<'f, u32>) -> Value<'f, u64> {
    ((address & 0x3_FFFF) >> 4).cast::<u64>() | descriptor.bits(0)
}

/// Metadata of eight chunks of which the first elements are kept.
const FIRST: u32 = 0x4444_4444;

fn emit<T: AccumulatorElement>(f: &Builder, types: WgmmaTypes, of: Operands) {
    let (a_bytes, stage_bytes) = (of.a_bytes(), of.stage_bytes());
    let density = if of.sparse { 2 } else { 1 };
    let depth = ROW_BYTES * 8 / types.element_bits();
    let [operands, sums] = ["operands", "sums"].map(|name| f.parameter::<u64>(name));
    let rounds = f.parameter::<u32>("rounds");
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
            let operands = engine.upload(&one.repeat(Ceiling::OPERAND_BYTES / bytes)).expect("memory");
            let sums = engine.allocate(Rounds::sum_bytes(2)).expect("memory");
            let call = Rounds { ctas: 2, rounds: 5, operands: operands.address, sums: sums.address };
            let ceiling = Ceiling { types, sparse };
            let launch = ceiling.launch(&call, 132).expect("legal").expect("work");
            let program = ceiling.program().expect("legal");
            let run = engine.launch(&program, launch.grid, &launch.arguments);
            run.unwrap_or_else(|error| panic!("{error}"));
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
            assert_eq!(total * each, ceiling.operations(&call), "{format:?} {sparse}");
        }
    }
}
