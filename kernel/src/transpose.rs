//! Kernels that transpose matrices of 8, 16, 32 and 64-bit elements. Use them for operands in a direction that
//! `wgmma` does not read.
//!
//! `wgmma` reads 16-bit operands in both directions, and all other operands only K-major. Other operands are
//! transposed first. [`Request::k_major`](crate::Request::k_major) says which operands these are, where their
//! transposes go, and what that costs.

mod emit;
mod operands;

use collective::{Batch, Format, MatrixRef, Output};
use ptx::VerifyError;
use ptx::abi::Grid;

pub use operands::KMajorRequest;

use crate::accessed::check_accessed;
use crate::check::apart;
use crate::error::LaunchError;
use crate::filled::Launch;
use crate::kernel::{Kernel, declare};
use crate::operands::{Contents, Extents, Visit};
use crate::problem::GemmProblem;
use crate::program::Program;
use crate::select::Machine;

/// The largest grid along x and along z, in CTAs.
const MOST: [u32; 2] = [i32::MAX as u32, 65535];

/// A kernel that transposes matrices: `D (columns, rows)` from `A (rows, columns)`. Both are row-major, with
/// any extents, leading dimensions and addresses.
///
/// Elements go through shared memory in tiles of 16 KB, swizzled so that there are no bank conflicts. Rows
/// that begin at multiples of 16 B are read or written 16 B at a time. Other rows, and elements of partial
/// tiles, are read or written one at a time; elements of 64 bits are read one at a time.
///
/// ```
/// use collective::{Format, MatrixRef};
/// use kernel::{Emulator, Engine, Kernel, Transpose, Transposition};
///
/// let transpose = Transpose::of(Format::E4m3).expect("8 bits");
/// let mut engine = Emulator::new();
/// let a = engine.upload(&[1, 2, 3, 4, 5, 6])?; // 2 rows of 3
/// let d = engine.allocate(6)?;
/// let (a_ref, d_ref) = (MatrixRef::new(a.address, 3), MatrixRef::new(d.address, 2));
/// let what = Transposition { rows: 2, columns: 3, count: 1, a: a_ref, d: d_ref };
/// if let Some(launch) = transpose.launch(&what, 132)? {
///     engine.launch(&transpose.program()?, launch.grid, &launch.arguments)?;
/// }
/// assert_eq!(engine.read(d)?, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Transpose {
    /// Bytes per element: 1, 2, 4 or 8.
    bytes: u32,
}

/// The matrices to transpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transposition {
    /// Rows of A, columns of D; below 2^31.
    pub rows: u32,
    /// Columns of A, rows of D; below 2^31.
    pub columns: u32,
    /// Number of matrices. If there are several, the `stride` of A and of D is the distance from one to the
    /// next, in elements.
    pub count: u32,
    /// A, row-major. Its leading dimension is at least `columns` elements.
    pub a: MatrixRef,
    /// D, row-major. Its leading dimension is at least `rows` elements. It must not overlap A.
    pub d: MatrixRef,
}

impl Transpose {
    /// The kernel for elements of a format; `None` unless they have 8, 16, 32 or 64 bits.
    pub const fn of(format: Format) -> Option<Self> {
        match format.bytes() {
            bytes @ (1 | 2 | 4 | 8) => Some(Self { bytes }),
            _ => None,
        }
    }

    /// Bytes per element.
    pub const fn bytes(self) -> u32 {
        self.bytes
    }

    /// Bytes that are read and written in total.
    pub fn traffic(self, what: &Transposition) -> u64 {
        let elements = u64::from(what.rows) * u64::from(what.columns) * u64::from(what.count);
        2 * u64::from(self.bytes) * elements
    }

    /// The model's time for a launch, in microseconds: one launch, plus the traffic at the machine's memory
    /// bandwidth. Rows of A or D that do not begin at multiples of 16 bytes are read and written one element
    /// at a time, which takes longer.
    pub fn microseconds(self, what: &Transposition, machine: &Machine) -> f64 {
        // Elements per SM and cycle, measured on an H200: about the same for 1, 2 and 4 bytes.
        const ONE_BY_ONE: f64 = 0.68;
        let traffic = self.traffic(what);
        let elements = traffic as f64 / f64::from(2 * self.bytes);
        let in_lines = |matrix: MatrixRef| {
            let stride = if what.count > 1 { matrix.stride } else { 0 };
            [matrix.ld, stride].iter().all(|of| (of * u64::from(self.bytes)).is_multiple_of(16))
        };
        let moved = if in_lines(what.a) && in_lines(what.d) {
            0.0
        } else {
            elements / (ONE_BY_ONE * machine.cycles * f64::from(machine.multiprocessors))
        };
        machine.launch + moved.max(traffic as f64 / machine.dram)
    }
}

impl Kernel<Transposition> for Transpose {
    fn program(&self) -> Result<Program, VerifyError> {
        Program::new(emit::function(self.bytes, |f| declare(self, f)))
    }

    /// The grid and the arguments of a launch; `None` if there are no elements.
    ///
    /// # Errors
    /// [`LaunchError::Extent`] for rows or columns. For A and D: [`LaunchError::Null`],
    /// [`LaunchError::Address`] (not a multiple of an element's bytes), [`LaunchError::ShortLd`],
    /// [`LaunchError::Pitch`] and [`LaunchError::Distance`] (2^40 B or more), [`LaunchError::End`].
    /// [`LaunchError::Overlap`] if two D matrices share an element. [`LaunchError::TooManyTiles`].
    fn launch(&self, what: &Transposition, _resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Transposition { rows, columns, count, d, .. } = *what;
        GemmProblem { m: rows, n: columns, k: 0 }.limited()?;
        if rows == 0 || columns == 0 || count == 0 {
            return Ok(None);
        }
        let bytes = u64::from(self.bytes);
        check_accessed(self, what, |_| bytes)?;
        let batch = Batch { count, stride: d.stride };
        if !apart(Output { address: d.address, m: columns, n: rows, ld: d.ld, batch }) {
            let (stride, ld) = (d.stride, d.ld);
            return Err(LaunchError::Overlap { stride, m: columns, n: rows, ld });
        }
        let [down, across] = [rows.div_ceil(emit::ROWS), columns.div_ceil(emit::columns(self.bytes))];
        let tiles = u64::from(down) * u64::from(across);
        let Some(tiles) = u32::try_from(tiles).ok().filter(|&tiles| tiles <= MOST[0]) else {
            return Err(LaunchError::TooManyTiles { m: down.into(), n: across.into(), most: MOST[0] });
        };
        let grid = Grid { ctas: [tiles, 1, count.min(MOST[1])] };
        Launch::new(grid, |visit| self.visit(&mut what.clone(), visit)).map(Some)
    }

    fn visit(&self, what: &mut Transposition, visit: &mut dyn Visit) {
        let Transposition { rows, columns, count, a, d } = what;
        let ([lines, length], several) = ([*rows, *columns], *count > 1);
        let contents = Contents::Elements(self.bytes);
        let all = Extents { bits: 8 * self.bytes, count: *count, ..Extents::default() };
        visit.matrix("A", (contents, false), a, Extents { lines, length: length.into(), ..all });
        visit.matrix("D", (contents, true), d, Extents { lines: length, length: lines.into(), ..all });
        visit.address("a", "A");
        visit.address("d", "D");
        visit.counted("rows", rows);
        visit.counted("columns", columns);
        visit.counted("count", count);
        let bytes = |elements: u64| elements.saturating_mul(self.bytes.into());
        let stride = |of: &MatrixRef| bytes(if several { of.stride } else { 0 });
        visit.number("a_pitch", Some(bytes(a.ld)));
        visit.number("d_pitch", Some(bytes(d.ld)));
        visit.number("a_stride", Some(stride(a)));
        visit.number("d_stride", Some(stride(d)));
        let whole = |of: &MatrixRef| (of.address | bytes(of.ld) | stride(of)).is_multiple_of(16);
        visit.flag("a_whole", Some(whole(a)));
        visit.flag("d_whole", Some(whole(d)));
    }
}
