//! The epilogue's staging buffers.

use cute_rs::atom::{Major, SwizzleMode, smem};
use cute_rs::{ComposedLayout, Layout};

use super::{EpilogueSpec, MainloopSpec, Plan, PlanError, TileLayout};

/// The epilogue's staging buffers: shared memory that a consumer warpgroup writes its output to before it is
/// copied to global memory. A buffer has the rows of a block and some of a tile's columns. If the store is
/// transposed, these columns are rows of D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StagingPlan {
    /// Columns of a buffer. They divide the tile's columns.
    pub columns: u32,
    /// Swizzle of a buffer's rows, or of its columns if the store is transposed. Rows that are not as long as
    /// a swizzle is wide follow each other without one.
    pub swizzle: SwizzleMode,
    /// Bytes of one buffer, which holds the rows of one block.
    pub buffer_bytes: u32,
    /// Number of buffers per consumer warpgroup; 0 if nothing is staged.
    pub buffers: u32,
}

/// Rows that have no swizzle have at most this number of bytes.
const LONGEST_ROW: u32 = 224;

/// A swizzle of this number of bytes is narrow.
const NARROW: u32 = 32;

impl StagingPlan {
    const NONE: Self = Self { columns: 8, swizzle: SwizzleMode::None, buffer_bytes: 0, buffers: 0 };

    pub(super) const fn of(mainloop: &MainloopSpec, epilogue: &EpilogueSpec) -> Result<Self, PlanError> {
        let (n, bits) = (mainloop.tile[1] >> epilogue.halvings, epilogue.staged_bits);
        if bits == 0 {
            return Ok(Self::NONE);
        }
        let rows = mainloop.atom.rows();
        let widest = matches!(epilogue.staging, TileLayout::Widest);
        if epilogue.transposed && !widest {
            return Err(PlanError::TransposedLayout);
        }
        let swizzle = epilogue.staging.mode(Major::K, bits, rows, n);
        let width = swizzle.elements(bits);
        if !n.is_multiple_of(width) {
            return Err(PlanError::StagedLayout { n, width });
        }
        if width < 8 {
            return Err(PlanError::NarrowStaging { width, bits });
        }
        // Parts of few columns cost more barriers than wider ones cost memory.
        let narrow = swizzle.bytes() <= NARROW;
        let (swizzle, columns) = if epilogue.transposed {
            (
                lines(bits),
                if narrow { widest_part(n, 8, SwizzleMode::B128.elements(bits), width) } else { width },
            )
        } else if widest && narrow {
            // Rows of whole sectors, unless a tile's rows are none.
            match widest_part(n, width, 8 * LONGEST_ROW / bits, width) {
                columns if columns > width => (SwizzleMode::None, columns),
                _ => (swizzle, width),
            }
        } else {
            (swizzle, width)
        };
        let parts = mainloop.product().blocks() * n / columns;
        let buffers = if parts < epilogue.buffers { parts } else { epilogue.buffers };
        Ok(Self { columns, swizzle, buffer_bytes: rows * columns * bits / 8, buffers })
    }
}

/// The largest number of columns up to `most` that is a multiple of `unit` and divides `n`; `least` if there
/// is none above it.
const fn widest_part(n: u32, unit: u32, most: u32, least: u32) -> u32 {
    let mut columns = most - most % unit;
    while columns > least {
        if n.is_multiple_of(columns) {
            return columns;
        }
        columns -= unit;
    }
    least
}

/// The swizzle of a transposed store. Its lines are 64 elements of a row of D, or one swizzle width if that is
/// less.
const fn lines(bits: u32) -> SwizzleMode {
    if bits < 16 { SwizzleMode::B64 } else { SwizzleMode::B128 }
}

impl Plan {
    /// The layout `(row, column) -> element` of a staging buffer; `None` if nothing is staged.
    pub fn staged_layout(&self) -> Option<ComposedLayout> {
        let (StagingPlan { columns, swizzle, .. }, bits) = (self.staging, self.epilogue.staged_bits);
        let rows = self.block_rows();
        if self.staging.buffers == 0 {
            return None;
        }
        if self.epilogue.transposed {
            return smem::tile(Major::Mn, swizzle, bits, rows, columns).ok();
        }
        if swizzle != SwizzleMode::None {
            return smem::tile(Major::K, swizzle, bits, rows, columns).ok();
        }
        let layout = Layout::flat(&[rows.into(), columns.into()], &[columns.into(), 1]).ok()?;
        Some(ComposedLayout { swizzle: swizzle.swizzle(bits), offset: 0, layout })
    }

    /// Extents of the boxes of D that tensor copies store, the contiguous direction first.
    pub(crate) const fn stored_box(&self) -> [u32; 2] {
        let StagingPlan { columns, swizzle, .. } = self.staging;
        if self.epilogue.transposed {
            [swizzle.elements(self.epilogue.staged_bits), columns]
        } else {
            [columns, self.block_rows()]
        }
    }
}
