//! Block-scaled operands: what the plan checks, and the space of the scales in a stage.

use super::{
    AccumulatorType, Arrivals, EpilogueSpec, MainloopSpec, Plan, PlanError, Producer, Roles, StageSlot,
};
use crate::form::Form;

/// K of a scaled block.
pub(crate) const SCALED_K: u32 = 128;

/// Rows of a block that shares one scale along M or N.
pub(crate) const SCALED_ROWS: u32 = 128;

/// Scales per 16 bytes. A copy begins at a multiple of 16 bytes. If K is contiguous, a copy loads this many
/// scales, one of which is the block's.
pub(crate) const FETCHED_SCALES: u32 = 4;

/// Most runs of a tile's rows with one scale. More would give a thread too many scales to read.
const MOST_RUNS: u32 = 8;

/// Sums of a thread in a block whose scales are held at once where waves leave no room for all: two rows and four
/// columns.
const SUMS_AT_ONCE: u32 = 8;

/// Most rows of a tile of groups of rows, with one scale per row. A copy loads at most 256 scales: four more
/// than the tile has rows, in steps of 8 rows.
const MOST_OF_GROUPS: u32 = 248;

impl Plan {
    /// Whether tiles of the kernel's A, and of its B, may begin at any row: true for groups of rows.
    pub(crate) const fn begins_anywhere(&self) -> [bool; 2] {
        anywhere(&self.epilogue, self.form)
    }
}

const fn anywhere(epilogue: &EpilogueSpec, form: Form) -> [bool; 2] {
    let rows = form.shares_rows();
    [rows && !epilogue.transposed, rows && epilogue.transposed]
}

/// Longest run of a tile's rows that always lies within one block of 128 rows. A tile begins at a multiple of
/// its extent; runs are counted from its first row.
pub(crate) const fn granule(extent: u32) -> u32 {
    let shift = extent.trailing_zeros();
    if shift < SCALED_ROWS.trailing_zeros() { 1 << shift } else { SCALED_ROWS }
}

/// Number of blocks of 128 rows that a tile may touch.
pub(crate) const fn scaled_blocks(extent: u32) -> u32 {
    (SCALED_ROWS - granule(extent) + extent).div_ceil(SCALED_ROWS)
}

/// Number of scales that a copy loads for a tile of `rows` rows with one scale per row. A tile that may begin
/// at any row also needs the scales from the preceding multiple of 16 bytes on.
pub(crate) const fn scales_of_rows(rows: u32, anywhere: bool) -> u32 {
    if anywhere { rows + FETCHED_SCALES } else { rows }
}

impl MainloopSpec {
    /// Whether its operands have block scales.
    pub const fn is_scaled(&self) -> bool {
        self.operands[0].scaled > 0 || self.operands[1].scaled > 0
    }

    /// Number of runs of the tile's columns that share a scale; 0 if blocks of columns have none.
    pub const fn scaled_runs(&self) -> u32 {
        let n = self.tile[1];
        if self.operands[1].scaled > 1 { n / granule(n) } else { 0 }
    }

    /// Number of k-tiles in a turn of the consumers' loop.
    pub const fn unrolled(&self) -> u32 {
        if self.is_scaled() { 8 } else { 1 }
    }

    /// What a stage holds after the tiles of A and B: scales or metadata, then the mainloop's further tiles.
    pub(super) const fn behind(&self, epilogue: &EpilogueSpec, form: Form) -> [StageSlot; Self::MORE] {
        if let Some(weights) = self.weights() {
            let [_, scales, zeros] = self.weight_rooms(weights);
            return [scales, zeros, self.more[0], self.more[1]];
        }
        if self.is_sparse() {
            return [self.metadata_room(), self.more[0], self.more[1], self.more[2]];
        }
        if !self.is_scaled() {
            return self.more;
        }
        let [a, b] = anywhere(epilogue, form);
        [self.scales(0, a), self.scales(1, b), self.more[0], self.more[1]]
    }

    /// Space of the scales of an operand's tile.
    const fn scales(&self, operand: usize, anywhere: bool) -> StageSlot {
        let (rows, tile) = (self.operands[operand].scaled, self.tile[operand]);
        let blocks = FETCHED_SCALES * scaled_blocks(tile);
        StageSlot::line(4 * if rows == 1 { scales_of_rows(tile, anywhere) } else { blocks })
    }

    /// Of `sums` sums of a thread in a block, the number whose scales it holds at once. In waves there is no room for a
    /// scale of each column.
    pub(crate) const fn scales_at_once(&self, sums: u32) -> u32 {
        if self.waves > 1 && self.operands[1].scaled == 1 && sums.is_multiple_of(SUMS_AT_ONCE) {
            SUMS_AT_ONCE
        } else {
            sums
        }
    }

    /// Registers of a consumer thread for the scales it has read.
    pub(super) const fn scale_registers(&self) -> u32 {
        if !self.is_scaled() {
            return 0;
        }
        let ([a, b], sums) = (self.operands, self.tile[1] / self.product().wave_ranges() / 2);
        let rows = if a.scaled == 1 { 2 * self.product().blocks() } else { self.product().blocks() };
        let columns = match (b.scaled, self.scales_at_once(sums)) {
            // A thread holds two sums of a column. The next scales are loaded before these are multiplied.
            (1, at_once) if at_once < sums => at_once,
            (1, _) => self.tile[1] / 4,
            (_, _) => self.tile[1] / granule(self.tile[1]),
        };
        rows + columns
    }

    /// Checks that these operands and tiles can have block scales, if they have any.
    pub(super) const fn scaling(&self, epilogue: &EpilogueSpec, form: Form) -> Result<(), PlanError> {
        if !self.is_scaled() {
            return Ok(());
        }
        let [a, b] = self.operands;
        if a.format.bits() != 8 || !matches!(self.atom.sums(), AccumulatorType::F32) {
            return Err(PlanError::Rule {
                rule: "blocks with scales are of 8-bit floats and summed in f32: use operands of e4m3 or e5m2, and no sums in f16",
            });
        }
        if a.scaled == 0 || b.scaled == 0 {
            return Err(PlanError::Rule { rule: "only one operand has block scales: scale A and B" });
        }
        let mut i = 0;
        while i < 2 {
            let (rows, extent) = (self.operands[i].scaled, self.tile[i]);
            if rows != 1 && rows != SCALED_ROWS {
                return Err(PlanError::Scaled {
                    what: "rows that share a scale",
                    found: rows,
                    needed: "1 or 128",
                });
            }
            if anywhere(epilogue, form)[i] && extent > MOST_OF_GROUPS {
                let what = if i == 0 { "tile M" } else { "tile N" };
                let needed = "for scales of groups of rows at most 248";
                return Err(PlanError::Scaled { what, found: extent, needed });
            }
            if rows > 1 && extent > MOST_RUNS * granule(extent) {
                let what =
                    if i == 0 { "tile M of blocks of 128 rows" } else { "tile N of blocks of 128 columns" };
                return Err(PlanError::Scaled {
                    what,
                    found: extent,
                    needed: "at most eight times the largest power of two that divides it",
                });
            }
            i += 1;
        }
        let [_, n, k] = self.tile;
        if k != SCALED_K {
            return Err(PlanError::Scaled { what: "tile K of blocks with scales", found: k, needed: "128" });
        }
        if n > 256 {
            return Err(PlanError::Scaled {
                what: "tile N of blocks with scales",
                found: n,
                needed: "at most 256",
            });
        }
        let of_rows = self.operands[if epilogue.transposed { 1 } else { 0 }].scaled;
        let rule = if self.more[2].bytes > 0 || self.more[3].bytes > 0 {
            "scales take two of the four tiles that a stage can have after A and B: leave the last two of `more` empty"
        } else if self.atom.promote > 0 {
            "sums of blocks with scales are promoted after each: leave the promotion out"
        } else if self.step > 0 {
            "tiles of blocks with scales are not narrowed: use Tile, not Fitted"
        } else if matches!(self.producer, Producer::Warpgroup) {
            "blocks with scales need tensor copies: use TmaWgmma"
        } else if matches!(self.roles, Roles::Unspecialised) {
            "blocks with scales need a producer: use Cooperative or Pingpong"
        } else if matches!(self.arrivals, Arrivals::Warpgroup) {
            "threads read scales from the stage, so each warp releases it: write EachWarp<AsManyAsFit> as the roles' stages"
        } else if epilogue.split {
            "tiles of blocks with scales have consecutive columns: let gates and ups alternate"
        } else if form.described() {
            "records describe matrices, not scales: use one product, a batch or groups of rows"
        } else if form.shares_rows() && of_rows > 1 {
            "groups begin at any row, so each row has a scale of its own"
        } else {
            return Ok(());
        };
        Err(PlanError::Rule { rule })
    }
}
