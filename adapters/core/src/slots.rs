//! What the text of an epilogue takes: its arguments by name, each with the memory or the number that it must
//! be.

use falchion::collective::MatrixRef;
use falchion::collective::tree::{Distance, DropoutArgument, ResidualArgument, Scratch, Shape, Supply};
use falchion::collective::{Format, Formula, Input};

use crate::refusal::aligned;

/// An argument of an epilogue's text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slot {
    /// Its name in the text.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
}

/// What an argument of an epilogue's text is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A number of the host.
    Scalar,
    /// Device memory.
    Memory {
        /// Format of the elements.
        format: Format,
        /// Rows, 1 for a vector; and columns, which are contiguous.
        extents: [u32; 2],
        /// Whether it is a matrix, with a leading dimension.
        matrix: bool,
        /// Whether the kernel writes it.
        writes: bool,
        /// What its elements must be before a launch that combines values with them.
        identity: Option<f32>,
        /// Whether each GEMM of a launch has its own.
        each: bool,
    },
    /// Device memory for partial results, in bytes.
    Scratch(u64),
    /// A mask: probability, seed and offset.
    Mask,
}

impl Slot {
    /// An argument of the right kind, for a call that is never launched.
    pub(crate) fn placeholder(&self) -> Input {
        let address = aligned(256);
        match self.kind {
            Kind::Scalar => Input::Scalar(1.0),
            Kind::Scratch(bytes) => Input::Scratch(Scratch { address, bytes }),
            Kind::Mask => Input::Dropout(DropoutArgument { probability: 0.1, ..DropoutArgument::default() }),
            Kind::Memory { extents: [rows, columns], matrix, format, each, .. } => {
                let ld = u64::from(columns);
                let stride = u64::from(rows) * ld * u64::from(format.bytes());
                match (each, matrix) {
                    (true, _) => Input::Each { address, ld, stride: stride.next_multiple_of(16) },
                    (false, true) => Input::matrix(address, ld),
                    (false, false) => Input::Address(address),
                }
            }
        }
    }
}

/// The arguments of a formula for operands of a format and a D of a shape, sorted by name.
pub fn slots(formula: Formula, operand: Format, shape: Shape) -> Vec<Slot> {
    let mut asked = Asked::default();
    let drawn = formula.draw(operand, shape, &mut asked);
    let kind = |input| match input {
        Input::Address(token) | Input::Matrix(MatrixRef { address: token, .. }) => asked.kind(token),
        Input::Scratch(Scratch { bytes, .. }) => Kind::Scratch(bytes),
        Input::Dropout(_) => Kind::Mask,
        _ => Kind::Scalar,
    };
    drawn.inputs().map(|(name, input)| Slot { name, kind: kind(input) }).collect()
}

/// A source that records what it was asked for. An address is the number of the question.
#[derive(Default)]
struct Asked {
    memories: Vec<Kind>,
    /// Whether the next one is each GEMM's own.
    each: bool,
}

impl Asked {
    fn memory(
        &mut self,
        format: Format,
        (extents, matrix): ([u32; 2], bool),
        writes: bool,
        identity: Option<f32>,
    ) -> u64 {
        let each = core::mem::take(&mut self.each);
        self.memories.push(Kind::Memory { format, extents, matrix, writes, identity, each });
        self.memories.len() as u64
    }

    fn matrix(&mut self, format: Format, Shape { m, n }: Shape, writes: bool) -> MatrixRef {
        MatrixRef::new(self.memory(format, ([m, n], true), writes, None), n.into())
    }

    fn kind(&self, token: u64) -> Kind {
        let index = usize::try_from(token).ok().and_then(|token| token.checked_sub(1));
        index.and_then(|index| self.memories.get(index)).copied().unwrap_or(Kind::Scalar)
    }
}

impl Supply for Asked {
    fn scalars(&mut self, _names: &[&str], _values: &mut [f64]) {}

    fn vector(&mut self, format: Format, len: u32) -> u64 {
        self.memory(format, ([1, len], false), false, None)
    }

    fn matrix(&mut self, format: Format, shape: Shape) -> MatrixRef {
        Self::matrix(self, format, shape, false)
    }

    fn residual(&mut self, format: Format, shape: Shape) -> ResidualArgument {
        ResidualArgument { beta: 1.0, c: Some(Self::matrix(self, format, shape, false)) }
    }

    fn output(&mut self, format: Format, shape: Shape) -> MatrixRef {
        Self::matrix(self, format, shape, true)
    }

    fn reduced(&mut self, identity: f32, len: u32) -> u64 {
        self.memory(Format::F32, ([1, len], false), true, Some(identity))
    }

    fn scratch(&mut self, bytes: u64) -> Scratch {
        Scratch { address: 0, bytes }
    }

    fn dropout(&mut self) -> DropoutArgument {
        DropoutArgument::default()
    }

    fn distance(&mut self) -> Distance {
        self.each = true;
        Distance::default()
    }
}
