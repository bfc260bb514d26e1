//! Calls whose matrices are packed.

use collective::{BlockScales, GroupScales, MatrixRef, sparse};

use super::{Contents, Extents, Layouts, Memory, Visit, Visited};
use crate::buffer::Buffer;
use crate::call::Call;
use crate::problem::GemmProblem;

/// The first of the addresses that are legal, and of no memory.
const NOWHERE: u64 = 1 << 20;

/// Scales of blocks, and of groups, whose rows begin at multiples of 16 B.
const SCALES: u64 = 4;
const GROUPS: u64 = 16;

/// Gives matrices leading dimensions and strides.
struct Packs {
    /// Rows of A, B and D begin at multiples of this number of bytes. `None`: leading dimensions stay.
    row_bytes: Option<u32>,
    /// Where the next piece begins.
    address: u64,
    /// The lengths of the matrix that was visited last, the next one last.
    next: Vec<u64>,
}

impl Visit for Packs {
    fn memory(&mut self, Memory { address, extents, contents, .. }: Memory<'_>) {
        let Extents { bits, length, lines, count, ld, .. } = extents;
        let packed = |row_bytes: u32| match contents {
            Contents::Multiplied(..) | Contents::Source(_) | Contents::Output(_) => {
                length.next_multiple_of((row_bytes * 8 / bits).max(1).into())
            }
            Contents::Scales => length.next_multiple_of(SCALES),
            Contents::GroupScales(_) | Contents::Exponents => length.next_multiple_of(GROUPS),
            Contents::Metadata(_) => length.max(sparse::WORDS.into()),
            Contents::Codes(..)
            | Contents::Elements(_)
            | Contents::Table
            | Contents::Indices(_)
            | Contents::Order(_)
            | Contents::Slots { .. }
            | Contents::Logarithms
            | Contents::Records
            | Contents::Report
            | Contents::Workspace => length,
        };
        let ld = self.row_bytes.map_or(ld, packed);
        let stride = if count > 1 { u64::from(lines) * ld } else { 0 };
        if self.row_bytes.is_some() {
            *address = self.address;
            // The next piece begins behind this one, as far as there are addresses.
            let bytes = Extents { ld, stride, ..extents }.bytes().saturating_add(255) & !255;
            self.address = self.address.checked_add(bytes).filter(|end| *end < 1 << 62).unwrap_or(NOWHERE);
        }
        self.next = if contents == Contents::Workspace { Vec::new() } else { vec![stride, ld] };
    }

    fn length(&mut self, length: &mut u64) {
        *length = self.next.pop().unwrap_or(*length);
    }
}

impl Layouts {
    /// A call of one GEMM whose matrices are packed, with rows of A, B and D that begin at multiples of
    /// `row_bytes` bytes. Its addresses are legal, but no memory is there, and neither is its workspace.
    pub fn packed(&self, problem: GemmProblem, row_bytes: u32) -> Call {
        let types = &self.types;
        let grouped = types.weights.iter().flatten().any(|weights| weights.group > 0);
        let groups = GroupScales { scales: MatrixRef::NONE, zeros: MatrixRef::NONE };
        let mut call = Call {
            scales: types.is_scaled().then_some(BlockScales::NONE),
            group_scales: grouped.then_some(groups),
            metadata: types.has_sparse().then_some(MatrixRef::NONE),
            workspace: Some(Buffer { address: NOWHERE, bytes: usize::MAX }),
            ..Call::of(problem)
        };
        call.visit(self, &mut Packs { row_bytes: Some(row_bytes), address: NOWHERE, next: Vec::new() });
        call
    }

    /// The same call with new strides: where it has several matrices of a kind, they follow each other.
    #[must_use]
    pub fn apart<E: Visited>(&self, mut call: Call<E>) -> Call<E> {
        call.visit(self, &mut Packs { row_bytes: None, address: NOWHERE, next: Vec::new() });
        call
    }
}
