//! What a call accesses, as roles state it: each piece of device memory with its extents and its contents, and each
//! number that decides what the call's launch is.

mod parameter;
mod site;

use cute_rs::atom::Major;

use crate::element::{Code, Format};
use crate::operand::{Matrix, MatrixRef};
use crate::plan::Plan;
pub use parameter::{Declares, Kind, Parameter};
pub use site::{Legal, NodeError, NodeProblem, Path, Shape, Site};

/// Sees the parts of a call, one after the other.
pub trait Visit {
    /// A piece of device memory. Its address is 0 if there is none.
    fn memory(&mut self, memory: Memory<'_>);

    /// Of the memory that was visited last, these lines alone are accessed: `length` elements, repeated so often at each
    /// distance in elements. Without it all lines of its extents are.
    fn lines(&mut self, _length: u64, _repeats: [(u32, u64); 3]) {}

    /// The memory that was visited last may be exactly an output of the same extents: each of its elements is read before
    /// the output's in its place is written.
    fn in_place(&mut self) {}

    /// The kernel orders its accesses itself: what it writes may share bytes with what it reads.
    fn ordered(&mut self) {}

    /// A parameter of the kernel's program, after the memory in which it is. The program has them in this order.
    fn parameter(&mut self, _parameter: Parameter) {}

    /// Whether it sees parameters: to others they need not be stated. By default it does not.
    fn sees_parameters(&self) -> bool {
        false
    }

    /// A leading dimension, a stride, or a number of bytes.
    fn length(&mut self, _length: &mut u64) {}

    /// An extent, or a number of GEMMs or of rows.
    fn count(&mut self, _count: &mut u32) {}

    /// A factor.
    fn factor(&mut self, _factor: &mut f64) {}

    /// The same of a kernel that takes it in `f32`.
    fn single(&mut self, factor: &mut f32) {
        let mut wide = f64::from(*factor);
        self.factor(&mut wide);
        *factor = wide as f32;
    }

    /// Which of several forms a part has: for example whether it is given.
    fn form(&mut self, _form: u32) {}

    /// A piece of memory that an epilogue's node accesses, with the path to the node.
    fn node(&mut self, _path: &Path<'_>, memory: Memory<'_>) {
        self.memory(memory);
    }

    /// Whether every access of a node to two neighbouring elements, the first in an even column, can be one access.
    fn in_pairs(&mut self, _pairs: bool) {}

    /// An argument is illegal.
    fn illegal(&mut self, _error: NodeError) {}

    /// A matrix, which is written or not. Its leading dimension and its stride are its own.
    fn matrix(
        &mut self,
        name: &'static str,
        (contents, writes): (Contents, bool),
        matrix: &mut MatrixRef,
        extents: Extents,
    ) {
        let MatrixRef { address, ld, stride } = matrix;
        let extents = Extents { ld: *ld, stride: *stride, ..extents };
        self.memory(Memory { name, address, extents, contents, writes });
        self.length(ld);
        self.length(stride);
    }

    /// An operand of a mainloop of your own, in this format.
    fn operand(
        &mut self,
        name: &'static str,
        (which, format): (usize, Format),
        major: Major,
        operand: &mut Matrix,
    ) {
        let Matrix { address, mn, k, ld, batch } = operand;
        self.count(mn);
        self.count(k);
        self.count(&mut batch.count);
        let [lines, length] = match major {
            Major::K => [*mn, *k],
            Major::Mn => [*k, *mn],
        };
        let count = batch.distinct();
        let extents = Extents {
            bits: format.bits(),
            length: length.into(),
            lines,
            ld: *ld,
            count,
            stride: batch.stride,
        };
        let contents = Contents::Multiplied(which, format);
        self.memory(Memory { name, address, extents, contents, writes: false });
        self.length(ld);
        self.length(&mut batch.stride);
    }
}

/// A function sees each piece of device memory.
impl<F: FnMut(Memory<'_>)> Visit for F {
    fn memory(&mut self, memory: Memory<'_>) {
        self(memory);
    }
}

/// The name of a call's workspace.
pub const WORKSPACE: &str = "the workspace";

/// A piece of device memory that a call accesses.
#[derive(Debug)]
pub struct Memory<'a> {
    /// What it is, in the words of errors.
    pub name: &'static str,
    /// Where it begins.
    pub address: &'a mut u64,
    /// How far it reaches.
    pub extents: Extents,
    /// What is there.
    pub contents: Contents,
    /// Whether the kernel writes it.
    pub writes: bool,
}

/// What a piece of memory contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Contents {
    /// Elements of A (0) or B (1). Those of a sparse operand are the kept ones.
    Multiplied(usize, Format),
    /// Elements of A (0) or B (1) in fewer bits than are multiplied, in the order of
    /// [`weights::reorder`](crate::weights::reorder).
    Codes(usize, Code),
    /// Elements of C. Where they are written too, they are read before.
    Source(Format),
    /// Elements of D.
    Output(Format),
    /// Factors of blocks, in `f32`.
    Scales,
    /// Factors, or zero points, of groups of weights, in the format that is multiplied.
    GroupScales(Format),
    /// Factors of groups of weights that are powers of two: exponents of 8 bits.
    Exponents,
    /// Where the kept elements of a sparse operand of this format were.
    Metadata(Format),
    /// Numbers of 32 bits that divide the call's GEMMs.
    Table,
    /// Numbers of 32 bits below this one.
    Indices(u32),
    /// So many numbers of 32 bits, from 0 on, each once.
    Order(u32),
    /// Whole numbers of 32 or 64 bits below this one, none twice; one whose bits are all set is none.
    Slots {
        /// Bits of a number.
        bits: u32,
        /// What all numbers are below.
        below: u32,
    },
    /// Logarithms of sums in `f32`, of which some are minus infinity: sums of nothing.
    Logarithms,
    /// [`Record`](crate::Record)s.
    Records,
    /// The workspace, zero at first.
    Workspace,
    /// Elements that are only moved; their size in bytes.
    Elements(u32),
    /// A report. All its bits are set before the launch.
    Report,
}

/// The extents of a piece of memory: `count` matrices of `lines` lines of `length` elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    /// Bits per element.
    pub bits: u32,
    /// Consecutive elements of a line.
    pub length: u64,
    /// Lines of a matrix.
    pub lines: u32,
    /// Elements from one line to the next.
    pub ld: u64,
    /// Number of matrices.
    pub count: u32,
    /// Elements from one matrix to the next.
    pub stride: u64,
}

impl Extents {
    /// A line of `length` consecutive elements.
    pub const fn line(bits: u32, length: u64) -> Self {
        Self { bits, length, lines: 1, ld: length, count: 1, stride: 0 }
    }

    /// Bytes from the first element to the end of the last one; 0 if there are no elements.
    pub fn bytes(&self) -> u64 {
        let Self { bits, length, lines, ld, count, stride } = *self;
        if length == 0 || lines == 0 || count == 0 {
            return 0;
        }
        let [lines, count] = [lines, count].map(|extent| u128::from(extent) - 1);
        let last = lines * u128::from(ld) + count * u128::from(stride);
        let all = (last + u128::from(length)) * u128::from(bits);
        u64::try_from(all.div_ceil(8)).unwrap_or(u64::MAX)
    }
}

/// For what arguments of a mainloop of your own are visited ([`Mainloop::visit`](crate::Mainloop::visit)).
#[derive(Clone, Copy, Debug)]
pub struct OwnSite<'a> {
    /// The extents `[m, n, k]` of the GEMM; k is 0 if A and B are not read.
    pub problem: [u32; 3],
    /// The kernel's plan; `None` if no kernel is chosen yet, and no parameters are stated.
    pub plan: Option<&'a Plan>,
    /// Whether a launch is made: then parameters have their values.
    pub launched: bool,
}
