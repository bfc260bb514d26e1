//! A kernel that compresses 2:4 sparse operands on the device, bit for bit as
//! [`collective::sparse::compress`] does on the host.

mod emit;

use collective::sparse::{self, SparseError};
use collective::{Format, MatrixRef};
use ptx::VerifyError;

use crate::error::LaunchError;
use crate::filled::Launch;
use crate::kernel::{Kernel, declare};
use crate::operands::{Contents, Extents, Memory, Visit};
use crate::problem::GemmProblem;
use crate::program::Program;

/// A kernel that compresses a 2:4 sparse operand. It writes the kept elements of each row, the metadata that
/// says where they were, and whether a chunk has too many non-zero elements (more than half).
///
/// Kept elements, metadata and the first such chunk are bit for bit those of [`sparse::compress`]. Among
/// zeros, `-0.0` is kept first. NaN is not a zero. The last chunk, unit and block are padded with zeros.
///
/// ```
/// use collective::{Format, MatrixRef, sparse};
/// use kernel::{Compress, Compression, Emulator, Engine, Kernel};
///
/// let (format, rows, k) = (Format::E4m3, 1_u32, 8);
/// let compress = Compress::of(format)?;
/// let mut engine = Emulator::new();
/// let dense = engine.upload(&[0, 0x38, 0, 0x40, 0, 0, 0x80, 0])?; // 0 1 0 2, 0 0 -0 0
/// let values = engine.allocate(sparse::kept(format, k) as usize)?;
/// let words = u64::from(rows.div_ceil(sparse::ROWS)) * sparse::metadata_ld(format, k);
/// let metadata = engine.allocate(words as usize * 4)?;
/// let found = engine.upload(&Compress::NOTHING)?;
/// let what = Compression {
///     rows,
///     k,
///     dense: MatrixRef::new(dense.address, k.into()),
///     values: MatrixRef::new(values.address, sparse::kept(format, k).into()),
///     metadata: MatrixRef::new(metadata.address, sparse::metadata_ld(format, k)),
///     found: found.address,
/// };
/// if let Some(launch) = compress.launch(&what, 132)? {
///     engine.launch(&compress.program()?, launch.grid, &launch.arguments)?;
/// }
/// compress.check(k, &engine.read(found)?)?;
/// assert_eq!(engine.read(values)?, [0x38, 0x40, 0, 0x80]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Compress {
    format: Format,
}

/// The operand to compress, and where the results go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// Rows: the operand's extent along M or N; below 2^31.
    pub rows: u32,
    /// The operand's extent along K; below 2^31.
    pub k: u32,
    /// The dense operand, row-major. Its leading dimension is at least `k` elements.
    pub dense: MatrixRef,
    /// The kept elements, row-major. The leading dimension is at least [`sparse::kept`] elements. GEMM
    /// kernels need rows of multiples of 16 B.
    pub values: MatrixRef,
    /// The metadata: words in blocks of 64 rows. The leading dimension, from one block to the next, is at
    /// least [`sparse::metadata_ld`] words. GEMM kernels need blocks that begin at multiples of 16 B.
    pub metadata: MatrixRef,
    /// Device address of 8 bytes, a multiple of 8. They must hold [`Compress::NOTHING`] before the launch.
    /// After it, [`Compress::check`] reads them.
    pub found: u64,
}

impl Compress {
    /// The bytes at [`Compression::found`] before the launch.
    pub const NOTHING: [u8; 8] = [0xff; 8];

    /// The kernel for a format.
    ///
    /// # Errors
    /// [`SparseError::Format`] for a format that no sparse instruction multiplies.
    pub fn of(format: Format) -> Result<Self, SparseError> {
        let operand = Format::operands().any(|of| of == format);
        if operand { Ok(Self { format }) } else { Err(SparseError::Format { format }) }
    }

    /// Checks that the operand could be compressed. `found` is what the 8 bytes at [`Compression::found`]
    /// hold after the launch.
    ///
    /// # Errors
    /// [`SparseError::Dense`] with the first chunk, in row-major order, in which more than half is not zero.
    /// What was written is then not a valid operand. [`SparseError::Elements`] if `found` is not 8 bytes.
    pub fn check(self, k: u32, found: &[u8]) -> Result<(), SparseError> {
        let Ok(bytes) = <[u8; 8]>::try_from(found) else {
            let (what, found) = ("bytes of the report", found.len());
            return Err(SparseError::Elements { what, rows: 1, k, found, needed: 8 });
        };
        if bytes == Self::NOTHING {
            return Ok(());
        }
        let chunk = sparse::chunk(self.format);
        let (place, chunks) = (u64::from_le_bytes(bytes), u64::from(k.div_ceil(chunk)).max(1));
        let row = u32::try_from(place / chunks).unwrap_or(u32::MAX);
        Err(SparseError::Dense { row, column: (place % chunks) as u32 * chunk, chunk })
    }
}

impl Kernel<Compression> for Compress {
    fn program(&self) -> Result<Program, VerifyError> {
        Program::new(emit::function(self.format, |f| declare(self, f)))
    }

    /// The grid and the arguments of a launch; `None` if there are no elements.
    ///
    /// # Errors
    /// [`LaunchError::Extent`]. For each matrix: [`LaunchError::Null`], [`LaunchError::Address`] (not a
    /// multiple of an element's or a word's bytes), [`LaunchError::ShortLd`], [`LaunchError::Pitch`] (2^40
    /// B or more) and [`LaunchError::End`]. [`LaunchError::Grid`].
    fn launch(&self, what: &Compression, _resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Compression { rows, k, .. } = *what;
        GemmProblem { m: rows, n: 0, k }.limited()?;
        if rows == 0 || k == 0 {
            return Ok(None);
        }
        let blocks = rows.div_ceil(sparse::ROWS);
        let units = k.div_ceil(sparse::unit_k(self.format));
        let ctas = u64::from(units) * u64::from(blocks);
        Launch::of(self, what, |of| u64::from(of.bits / 8), ctas)
    }

    fn visit(&self, what: &mut Compression, visit: &mut dyn Visit) {
        let (Self { format }, Compression { rows, k, dense, values, metadata, found }) = (*self, what);
        let (lines, extent) = (if *k == 0 { 0 } else { *rows }, *k);
        let one = Extents { count: 1, lines, ..Extents::default() };
        let elements = |length: u32| Extents { bits: format.bits(), length: length.into(), ..one };
        visit.matrix("the dense operand", (Contents::Multiplied(0, format), false), dense, elements(extent));
        let kept = elements(sparse::kept(format, extent));
        visit.matrix("the values matrix", (Contents::Output(format), true), values, kept);
        let (lines, length) = (lines.div_ceil(sparse::ROWS), sparse::metadata_ld(format, extent));
        let words = Extents { bits: 32, lines, length, ..one };
        visit.matrix("the metadata", (Contents::Metadata(format), true), metadata, words);
        let extents = Extents { lines: lines.min(1), ..Extents::line(64, 1) };
        let (name, contents) = ("the report", Contents::Report);
        visit.memory(Memory { name, address: found, extents, contents, writes: true });
        visit.address("dense", "the dense operand");
        visit.address("values", "the values matrix");
        visit.address("metadata", "the metadata");
        visit.address("found", "the report");
        visit.counted("rows", rows);
        visit.counted("k", k);
        let bytes = u64::from(format.bytes());
        visit.number("dense_pitch", Some(dense.ld.saturating_mul(bytes)));
        visit.number("values_pitch", Some(values.ld.saturating_mul(bytes)));
        visit.number("metadata_pitch", Some(metadata.ld.saturating_mul(4)));
        let whole = |of: &MatrixRef| (of.address | of.ld.saturating_mul(bytes)).is_multiple_of(16);
        visit.flag("dense_whole", Some(whole(dense)));
        visit.flag("values_whole", Some(whole(values)));
    }
}
