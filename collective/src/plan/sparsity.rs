//! A 2:4 sparse operand A: what the plan checks, and the space of its metadata.

use cute_rs::atom::Major;

use super::{Arrivals, EpilogueSpec, MainloopSpec, PlanError, Producer, Roles, Source, StageSlot};
use crate::form::Form;
use crate::sparse;

impl MainloopSpec {
    /// Whether A is 2:4 sparse: half of it is stored, with metadata that says which half.
    pub const fn is_sparse(&self) -> bool {
        self.operands[0].sparse
    }

    /// Whether the atom has a sparse form.
    const fn multiplies_sparse(&self) -> bool {
        match self.atom.wgmma() {
            Some(types) => types.sparse_selectors().is_some(),
            None => false,
        }
    }

    /// Words of metadata per thread for a block of a k-tile.
    pub(crate) const fn metadata_words(&self) -> u32 {
        self.tile[2] / sparse::unit_k(self.operands[0].format)
    }

    /// Space of the metadata of a tile.
    pub(super) const fn metadata_room(&self) -> StageSlot {
        StageSlot::line(self.tile[0] / sparse::ROWS * self.metadata_words() * sparse::WORDS * 4)
    }

    /// Registers of a consumer thread for metadata.
    pub(super) const fn metadata_registers(&self) -> u32 {
        if self.is_sparse() { self.product().blocks() * self.metadata_words() + 4 } else { 0 }
    }

    /// Checks that a sparse operand, if there is one, can be multiplied by this mainloop.
    pub(super) const fn sparsity(&self, epilogue: &EpilogueSpec, form: Form) -> Result<(), PlanError> {
        let [a, b] = self.operands;
        if b.sparse {
            let rule = if a.sparse {
                "both operands are sparse, and the instruction multiplies a sparse operand by a dense one: leave one dense"
            } else {
                "the sparse operand is the kernel's A, and B is sparse: swap A and B (swap=yes)"
            };
            return Err(PlanError::Rule { rule });
        }
        if !a.sparse {
            return if self.atom.sparse {
                Err(PlanError::Rule {
                    rule: "the instruction takes a sparse A, and operand A is dense: write Sparse<…>",
                })
            } else {
                Ok(())
            };
        }
        if !self.multiplies_sparse() || !self.atom.sparse {
            return Err(PlanError::Rule {
                rule: "a sparse operand is multiplied by sparse instructions, of 16 bits, 8 bits or tf32",
            });
        }
        let (k, unit_k) = (self.tile[2], sparse::unit_k(a.format));
        if !k.is_multiple_of(unit_k) {
            let needed = if unit_k == 64 { "a multiple of 64" } else { "a multiple of 32" };
            return Err(PlanError::Scaled { what: "tile K of a sparse operand", found: k, needed });
        }
        // A sparse instruction reads 64 bytes of K of B.
        let width = b.mode(self.tile[1], k).bytes();
        let rule = if !matches!(self.atom.a, Source::Shared) || a.weights.is_some() {
            "a sparse operand is multiplied from shared memory, without conversion"
        } else if !matches!(a.major, Major::K) {
            "a sparse operand is contiguous along K"
        } else if matches!(b.major, Major::K) && width < 64 {
            "a sparse instruction reads 64 bytes of K of B: use a swizzle of 64 or 128 bytes"
        } else if self.more[1].bytes > 0 || self.more[2].bytes > 0 || self.more[3].bytes > 0 {
            "metadata takes one of the four tiles that a stage can have after A and B: leave the last three of `more` empty"
        } else if self.is_scaled() {
            "blocks with scales are multiplied dense: leave the scales out"
        } else if self.atom.promote > k / self.atom.k() {
            "sums of sparse operands are promoted within a k-tile: promote after at most the instructions of a tile's K"
        } else if self.step > 0 {
            "tiles of sparse operands are not narrowed: use Tile, not Fitted"
        } else if matches!(self.producer, Producer::Warpgroup) {
            "sparse operands need tensor copies: use TmaWgmma"
        } else if matches!(self.roles, Roles::Unspecialised) {
            "sparse operands need a producer: use Cooperative or Pingpong"
        } else if matches!(self.arrivals, Arrivals::Warpgroup) {
            "threads read metadata from the stage, so each warp releases it: write EachWarp<AsManyAsFit> as the roles' stages"
        } else if epilogue.split {
            "an epilogue of split weights reads them from both halves of N: let gates and ups alternate"
        } else if form.described() {
            "records describe matrices, not metadata: use one product, a batch or groups of rows"
        } else if form.divides_k() {
            "groups along K are of dense operands, with or without block scales: use one product, a batch or groups of rows"
        } else if form.shares_rows() && !epilogue.transposed {
            "with groups of rows, the sparse operand is the caller's B: swap A and B (swap=yes)"
        } else {
            return Ok(());
        };
        Err(PlanError::Rule { rule })
    }
}
