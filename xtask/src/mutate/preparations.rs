//! Kernels that are no GEMM: those that transpose and compress operands.

use collective::{Format, MatrixRef, sparse};
use emulator::Memory;
use kernel::{Compress, Compression, Launch, LaunchError, Program, Transpose, Transposition};
use ptx::{Function, VerifyError};

use super::subject::Subject;
use super::trial::{Case, Random};

/// The kernels: one of each element size.
pub(super) fn kernels() -> Vec<Box<dyn Subject>> {
    let of_sizes = [Format::E4m3, Format::Bf16, Format::Tf32, Format::F64];
    let transposes = of_sizes.into_iter().filter_map(|format| {
        let name = format!("transpose-{}", format.name());
        let transpose = Transpose::of(format)?;
        Some(Box::new(Transposes { name, format, transpose }) as Box<dyn Subject>)
    });
    let compresses = of_sizes.into_iter().filter_map(|format| {
        let name = format!("compress-{}", format.name());
        let compress = Compress::of(format).ok()?;
        Some(Box::new(Compresses { name, format, compress }) as Box<dyn Subject>)
    });
    transposes.chain(compresses).collect()
}

struct Transposes {
    name: String,
    format: Format,
    transpose: Transpose,
}

struct Compresses {
    name: String,
    format: Format,
    compress: Compress,
}

impl Subject for Transposes {
    fn name(&self) -> &str {
        &self.name
    }

    fn program(&self) -> Result<Program, VerifyError> {
        self.transpose.program()
    }

    /// Whole and partial tiles, one and several matrices, rows at multiples of 16 bytes and others.
    fn cases(&self, _: &Function) -> Result<Vec<Case>, String> {
        let bytes = self.format.bytes() as usize;
        let case = |(rows, columns, padding, count): (u32, u32, u32, u32)| {
            let [a_pitch, d_pitch] = [columns, rows].map(|extent| extent + padding);
            let each = [rows * a_pitch, columns * d_pitch].map(|elements| elements as usize);
            let [a, mut d] = each.map(|each| Random(0x5EED).matrix(self.format, each * count as usize));
            d.fill(0xA5);
            let launch = |at: &[u64]| {
                let a = MatrixRef::new(at[0], a_pitch.into()).every(each[0] as u64);
                let d = MatrixRef::new(at[1], d_pitch.into()).every(each[1] as u64);
                self.transpose.launch(&Transposition { rows, columns, count, a, d })
            };
            debug_assert_eq!(a.len(), each[0] * count as usize * bytes);
            of(vec![a, d], vec![1], launch)
        };
        let shapes = [(128, 256, 0, 1), (70, 130, 2, 2), (33, 61, 0, 1), (16, 48, 16, 3)];
        shapes.into_iter().map(case).collect()
    }
}

impl Subject for Compresses {
    fn name(&self) -> &str {
        &self.name
    }

    fn program(&self) -> Result<Program, VerifyError> {
        self.compress.program()
    }

    /// Whole and partial blocks, rows at multiples of 16 bytes and others, and operands that are not sparse.
    fn cases(&self, _: &Function) -> Result<Vec<Case>, String> {
        let bytes = self.format.bytes() as usize;
        let case = |(rows, k, padding, is_sparse): (u32, u32, u32, bool)| {
            let kept = sparse::kept(self.format, k);
            let [pitch, kept_pitch] = [k, kept].map(|extent| extent + padding);
            let mut dense = Random(0x5EED).matrix(self.format, (rows * pitch) as usize);
            if is_sparse {
                // Of two neighbours, one is zero.
                for pair in dense.chunks_exact_mut(2 * bytes) {
                    pair[..bytes].fill(0);
                }
            }
            let words = rows.div_ceil(sparse::ROWS) * sparse::metadata_pitch(self.format, k);
            let values = vec![0xA5; (rows * kept_pitch) as usize * bytes];
            let metadata = vec![0xA5; words as usize * 4];
            let launch = |at: &[u64]| {
                self.compress.launch(&Compression {
                    rows,
                    k,
                    dense: MatrixRef::new(at[0], pitch.into()),
                    values: MatrixRef::new(at[1], kept_pitch.into()),
                    metadata: MatrixRef::new(at[2], sparse::metadata_pitch(self.format, k).into()),
                    found: at[3],
                })
            };
            of(vec![dense, values, metadata, Compress::NOTHING.to_vec()], vec![1, 2, 3], launch)
        };
        let shapes = [(128, 256, 0, true), (70, 100, 2, true), (70, 200, 8, false), (5, 36, 0, false)];
        shapes.into_iter().map(case).collect()
    }
}

/// A case with these contents of memory. `launch` makes the launch from their addresses.
fn of(
    contents: Vec<Vec<u8>>,
    outputs: Vec<usize>,
    launch: impl Fn(&[u64]) -> Result<Option<Launch>, LaunchError>,
) -> Result<Case, String> {
    // The emulator's memory returns the same addresses for the same sizes in the same order.
    let mut memory = Memory::new();
    let addresses: Vec<u64> = contents.iter().map(|bytes| memory.allocate(bytes.len())).collect();
    let launch = launch(&addresses).map_err(|error| error.to_string())?;
    let launch = launch.ok_or("the problem has no elements")?;
    Ok(Case { launch, contents, outputs, again: None, long: false })
}
