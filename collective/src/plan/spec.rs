//! What mainloops and epilogues ask of a plan.

use cute_rs::atom::{Major, SwizzleMode, tma};
use ptx::abi::Promotion;

use super::{
    AccumulatorType, Atom, CachePolicy, MmaKind, OperandTile, PlanError, ProductShape, StageSlot, TileLayout,
    WeightsSpec,
};
use crate::element::Format;
use crate::form::Form;

/// How the warpgroups of a CTA divide the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Roles {
    /// Cooperative: one producer warpgroup; the consumers share each tile, with an equal number of its rows
    /// each.
    Cooperative,
    /// Pingpong: one producer warpgroup; the consumers alternate, with a whole tile each.
    Pingpong,
    /// No producer: every warpgroup multiplies its rows of the tile, and one thread starts the loads.
    Unspecialised,
}

/// Which threads arrive on a stage's empty barrier when a consumer warpgroup has finished with the stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrivals {
    /// One thread per warpgroup. `wgmma` is one operation of the whole warpgroup: when it is complete for one
    /// warp, it is for all.
    Warpgroup,
    /// One thread per warp.
    Warp,
    /// Every thread.
    Thread,
}

impl Arrivals {
    /// Arrivals per warpgroup.
    pub const fn count(self) -> u32 {
        match self {
            Self::Warpgroup => 1,
            Self::Warp => 4,
            Self::Thread => 128,
        }
    }
}

/// Which threads load operands into the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Producer {
    /// One thread starts tensor copies, which fill the stages asynchronously.
    Thread,
    /// Every thread of the producer warpgroup copies a part of each stage. Without a producer warpgroup,
    /// every thread of the CTA does.
    Warpgroup,
}

impl Producer {
    /// Arrivals that mark a stage as full.
    pub const fn arrivals(self) -> u32 {
        match self {
            Self::Thread => 1,
            Self::Warpgroup => 128,
        }
    }

    /// What addresses and leading dimensions of operands of this element width must be a multiple of, in
    /// bytes.
    pub const fn alignment(self, element_bits: u32) -> u32 {
        match self {
            Self::Thread => 16,
            Self::Warpgroup => element_bits / 8,
        }
    }

    /// Number of 16-byte chunks that a copying thread loads, element by element, before it stores the first.
    /// Registers limit it.
    pub const fn chunks(element_bits: u32) -> u32 {
        if element_bits < 16 { 4 } else { 8 }
    }
}

/// What an operand's type states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandSpec {
    /// Format of the elements in memory and in a stage. The [`Atom`] states the format that is multiplied.
    pub format: Format,
    /// The contiguous direction.
    pub major: Major,
    /// Layout of a tile in shared memory.
    pub layout: TileLayout,
    /// L2 policy for the lines of the matrix.
    pub cache: CachePolicy,
    /// Whether a stage holds its tile. False, for example, if A is the result of another product.
    pub staged: bool,
    /// Number of rows (columns of B) that share a scale per 128 of K; 0 without block scales.
    pub scaled: u32,
    /// How it is stored, in memory and in a stage, in fewer bits than [`format`](Self::format) has; `None` if
    /// it is not.
    pub weights: Option<WeightsSpec>,
    /// Whether half of each chunk of K is stored, with metadata that says which half
    /// ([`sparse`](crate::sparse)).
    pub sparse: bool,
}

impl OperandSpec {
    /// A K-major operand with the defaults: widest layout, no L2 hint, staged, dense, without scales.
    pub const fn k_major(format: Format) -> Self {
        let (layout, cache) = (TileLayout::Widest, CachePolicy::Normal);
        Self { format, major: Major::K, layout, cache, staged: true, scaled: 0, weights: None, sparse: false }
    }

    /// Bits per element in memory.
    pub const fn bits(&self) -> u32 {
        match self.weights {
            Some(weights) => weights.code.bits(),
            None => self.format.bits(),
        }
    }

    /// The error for a tile that is not a whole number of layout atoms.
    const fn misfit(&self, operand: &'static str, mn: u32, k: u32) -> PlanError {
        let width = self.mode(mn, k).elements(self.format.bits());
        let extent = match self.major {
            Major::K => k,
            Major::Mn => mn,
        };
        PlanError::Layout { operand, extent, width }
    }

    /// The swizzle of a tile of `(mn, k)` elements. For 64-bit elements each thread loads 16 bytes of a row;
    /// two rows of 64 bytes then cover all banks, so 64 bytes is the widest default.
    pub(crate) const fn mode(&self, mn: u32, k: u32) -> SwizzleMode {
        let mode = self.layout.mode(self.major, self.format.bits(), mn, k);
        match (self.layout, self.format, mode) {
            (TileLayout::Widest, Format::F64, SwizzleMode::B128) => SwizzleMode::B64,
            _ => mode,
        }
    }

    /// Bytes of one row of a slab of a tile of `(mn, k)` elements: what one line of a copy's box moves.
    pub const fn slab_bytes(&self, mn: u32, k: u32) -> u32 {
        let bits = self.format.bits();
        self.mode(mn, k).elements(bits) * bits / 8
    }

    /// Number of swizzle widths in the contiguous extent of a tile of `(mn, k)` elements. One copy loads
    /// each.
    pub(super) const fn slabs(&self, mn: u32, k: u32) -> u32 {
        let extent = match self.major {
            Major::K => k,
            Major::Mn => mn,
        };
        extent.div_ceil(self.mode(mn, k).elements(self.format.bits()))
    }
}

/// What a mainloop asks of the plan.
///
/// A mainloop of your own changes what differs from one of this crate: `MainloopSpec { more, registers,
/// ..<Ours as Mainloop>::SPEC }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MainloopSpec {
    /// A and B: the first two tiles of a stage.
    pub operands: [OperandSpec; 2],
    /// Further tiles of a stage, after those of A and B: another operand, metadata. The plan puts block
    /// scales before these. With scales, the last two must be empty.
    pub more: [StageSlot; Self::MORE],
    /// The instruction that multiplies.
    pub atom: Atom,
    /// Bytes of dynamic shared memory for the mainloop alone, mbarriers included, for tiles that are not part
    /// of a stage. They begin at [`Plan::own_offset`](super::Plan::own_offset); only stages of the mainloop's own ring
    /// follow them.
    pub own_bytes: u32,
    /// A stage of a second ring, of the mainloop's own: tiles that consumers give back earlier or later than those of A
    /// and B. [`Plan::own_ring`](super::Plan::own_ring) has as many stages as the kernel's ring.
    /// [`StageSlot::NONE`]: there is none.
    pub own_stage: StageSlot,
    /// Registers that a consumer thread needs while it multiplies, in addition to the accumulators of one
    /// product and to what every mainloop needs: those of a second product, fragments of A. When `finish` is
    /// called they are free for the epilogue. For those of a producer thread see
    /// [`MainloopNeeds::producer`](super::MainloopNeeds::producer).
    pub registers: u32,
    /// Tile extents (M, N, K) in elements.
    pub tile: [u32; 3],
    /// Step in columns by which a tile is narrowed along N if the output ends inside it; 0 if it never is.
    pub step: u32,
    /// How warpgroups divide the work.
    pub roles: Roles,
    /// Which threads load operands into the stages.
    pub producer: Producer,
    /// Number of warpgroups that multiply.
    pub consumers: u32,
    /// Which threads tell the producer that a stage is free.
    pub arrivals: Arrivals,
    /// CTAs per cluster, along M and N.
    pub cluster: [u32; 2],
    /// Number of pipeline stages; `None` for as many as fit.
    pub stages: Option<u32>,
    /// Number of parts of a consumer's tile that are multiplied one after the other, into one set of
    /// accumulators: blocks of rows or, if there are more waves than blocks, ranges of a block's columns. 1
    /// for all at once. More need accumulators that are added to sums ([`InWaves`](crate::InWaves)).
    pub waves: u32,
}

/// What an epilogue requires of tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileNeeds {
    /// Tile N must be a multiple of this many columns.
    pub columns: u32,
    /// Each tile must be finished as a whole, by one CTA.
    pub whole: bool,
    /// A launch may have only one GEMM, because the epilogue counts the tiles of one output.
    pub single: bool,
    /// The output must be no wider than one tile.
    pub rows: bool,
    /// D's columns per tile must be a multiple of this; the epilogue looks at such a block as a whole. 0 for
    /// any number.
    pub block: u32,
    /// It stores a matrix in addition to D, which no GEMM of a batch may share with another.
    pub stores: bool,
}

impl TileNeeds {
    /// No requirements.
    pub const NONE: Self =
        Self { columns: 1, whole: false, single: false, rows: false, block: 0, stores: false };
}

/// What an epilogue asks of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpilogueSpec {
    /// Format of D's elements.
    pub output: Format,
    /// What D's address, row length and leading dimension must be a multiple of, in bytes.
    pub alignment: u32,
    /// Bits of an output element that is staged through shared memory; 0 if none is.
    pub staged_bits: u32,
    /// Most staging buffers per consumer warpgroup. A buffer has the rows of a block and one swizzle width.
    pub buffers: u32,
    /// Layout of a staging buffer in shared memory.
    pub staging: TileLayout,
    /// Registers a thread needs in addition to the accumulators.
    pub registers: u32,
    /// How many times it halves the columns: D has `N >> halvings` columns.
    pub halvings: u32,
    /// Whether half of a tile's columns come from the left half of N, and the other half from the same place
    /// in the right half.
    pub split: bool,
    /// What it requires of tiles.
    pub needs: TileNeeds,
    /// Whether it stores the transpose of what the mainloop computes (swap-AB): the kernel's A is the
    /// caller's B, and the other way round.
    pub transposed: bool,
    /// Whether tensor copies load C into the staging buffers, from which D is then stored.
    pub sourced: bool,
}

impl MainloopSpec {
    /// Most tiles of a stage in addition to A's and B's.
    pub const MORE: usize = 4;

    /// An identifier of its numbers, for kernel names.
    pub(crate) fn name(&self) -> String {
        let letter = |major| match major {
            Major::K => 'k',
            Major::Mn => 'm',
        };
        let [a_format, b_format] = self.operands.map(|operand| operand.format);
        let weights = self.weights().map_or_else(String::new, |weights| weights.suffix());
        let weights = if self.is_sparse() { format!("{weights}_sparse") } else { weights };
        let multiply = self.atom.types.multiply();
        let usual = multiply.atom(a_format, b_format).map(|atom| atom.taking(self.operands[0]));
        let usual = multiply != MmaKind::MmaSync && usual == Some(self.atom.promoted(0));
        let atom = if usual { self.atom.promotion() } else { self.atom.suffix() };
        let [a_layout, b_layout] = self.operands.map(|operand| operand.layout.suffix());
        let [a_cache, b_cache] = self.operands.map(|operand| operand.cache.suffix());
        let cluster = match self.cluster {
            [1, 1] => String::new(),
            [m, n] => format!("_{m}x{n}"),
        };
        let roles = match self.roles {
            Roles::Cooperative => "coop",
            Roles::Pingpong => "pingpong",
            Roles::Unspecialised => "plain",
        };
        let step = if self.step == 0 { String::new() } else { format!("_by_{}", self.step) };
        let waves = if self.waves == 1 { String::new() } else { format!("_waves_{}", self.waves) };
        let stages = self.stages.map_or_else(String::new, |stages| format!("_s{stages}"));
        let arrivals = match self.arrivals {
            Arrivals::Warpgroup => "",
            Arrivals::Warp => "_by_warp",
            Arrivals::Thread => "_by_thread",
        };
        let [m, n, k] = self.tile;
        let scales = match self.operands.map(|operand| operand.scaled) {
            [0, 0] => String::new(),
            [a, b] => format!("_scaled_{a}_{b}"),
        };
        let format =
            if a_format == b_format { a_format.to_string() } else { format!("{a_format}_{b_format}") };
        let [a, b] = self.operands.map(|operand| letter(operand.major));
        format!(
            "{format}_{a}{a_cache}{a_layout}{b}{b_cache}{b_layout}_{m}x{n}x{k}{atom}{scales}{weights}{step}{waves}_{roles}{}{cluster}{stages}{arrivals}",
            self.consumers
        )
    }

    /// CTAs that load operands into a CTA's shared memory: those of its row and its column, including itself.
    pub const fn suppliers(&self) -> u32 {
        self.cluster[0] + self.cluster[1] - 1
    }

    /// Warpgroups per CTA.
    pub const fn warpgroups(&self) -> u32 {
        match self.roles {
            Roles::Cooperative | Roles::Pingpong => 1 + self.consumers,
            Roles::Unspecialised => self.consumers,
        }
    }

    /// Consumer warpgroups that share a tile.
    pub const fn sharing(&self) -> u32 {
        match self.roles {
            Roles::Cooperative | Roles::Unspecialised => self.consumers,
            Roles::Pingpong => 1,
        }
    }

    /// How much L2 fetches per access of a tensor copy: one line. An H200 then loads small tiles 3 % faster than by two, and large
    /// ones 8 %, if rows begin inside of lines: two lines would be those of a neighbour's k-tile. What is read once, and so evicted
    /// first, an H100 loads by two lines 1 % faster, and groups of rows, which read their weights once, 2 to 5 %.
    pub const fn promotion(form: Form, cache: CachePolicy) -> Promotion {
        match (form, cache) {
            (Form::GroupedContiguous | Form::GroupedMasked, _) => Promotion::B256,
            (_, CachePolicy::EvictFirst) => Promotion::ByCard,
            (_, CachePolicy::Normal | CachePolicy::EvictLast) => Promotion::B128,
        }
    }

    /// Number of columns that B's copies load at a time, and number of such parts per tile. Tiles that are
    /// not narrowed have one part, which is the whole tile.
    pub const fn parts(&self) -> [u32; 2] {
        let [_, n, k] = self.tile;
        let b = self.operands[1];
        let part = match (self.step, b.major) {
            (0, _) => n,
            (step, Major::K) => step,
            (_, Major::Mn) => b.mode(n, k).elements(b.format.bits()),
        };
        [part, n / part]
    }

    /// Step in which a tile's columns are divided among instructions: that of the instruction's widths, or,
    /// for an N-major B, that of its swizzle.
    const fn column_step(&self) -> u32 {
        let ([_, n, k], b) = (self.tile, self.operands[1]);
        match b.major {
            Major::K => self.atom.column_step(),
            Major::Mn => b.mode(n, k).elements(b.format.bits()),
        }
    }

    /// The product of A's tile and B's.
    pub const fn product(&self) -> ProductShape {
        let Self { atom, tile, waves, .. } = *self;
        ProductShape { atom, tile, warpgroups: self.sharing(), column_step: self.column_step(), waves }
    }

    /// Arrivals that mark a stage as full; 0 if threads wait for their own copies and then for each other at
    /// a barrier.
    pub(super) const fn filling(&self) -> u32 {
        if self.atom.by_threads() { 0 } else { self.producer.arrivals() }
    }

    /// Arrivals that mark a stage as empty. Without a producer, the warpgroups that multiply also fill the
    /// stages. They wait for each other instead.
    pub(super) const fn emptying(&self) -> u32 {
        match self.roles {
            Roles::Unspecialised => 0,
            Roles::Cooperative | Roles::Pingpong => self.sharing() * self.arrivals.count() * self.suppliers(),
        }
    }

    /// Checks that the rest of the spec fits an atom whose operands threads load.
    pub(super) const fn by_threads(&self) -> Result<(), PlanError> {
        let Self { atom, roles, producer, arrivals, operands: [a, b], .. } = *self;
        if !atom.by_threads() {
            return Ok(());
        }
        if !matches!((roles, producer), (Roles::Unspecialised, Producer::Warpgroup)) {
            return Err(PlanError::ByThreads {
                rule: "every warp copies and multiplies: use Unspecialised<U2>, or roles=unspecialised load=copy",
            });
        }
        if !matches!(arrivals, Arrivals::Warpgroup) {
            return Err(PlanError::ByThreads {
                rule: "threads meet at a barrier and release no stage: leave EachWarp and EachThread out",
            });
        }
        if matches!(atom.sums(), AccumulatorType::F16) {
            return Err(PlanError::ByThreads { rule: "no sums are kept in f16: use MmaTypes::F16F32" });
        }
        if atom.promote > 0 {
            return Err(PlanError::ByThreads {
                rule: "sums are in full single precision: leave Promoted out",
            });
        }
        if a.scaled > 0 || b.scaled > 0 {
            return Err(PlanError::ByThreads { rule: "blocks of operands have no scales: use TmaWgmma" });
        }
        Ok(())
    }

    /// Checks that accumulators can be promoted as often as the atom says, if they are.
    pub(super) const fn promotes(&self) -> Result<(), PlanError> {
        let (every, steps) = (self.atom.promote, self.product().steps());
        if every == 0 {
            return Ok(());
        }
        if matches!(self.atom.sums(), AccumulatorType::S32) {
            return Err(PlanError::PromotedIntegers);
        }
        if every > Atom::MOST_PROMOTED {
            return Err(PlanError::RarelyPromoted { every });
        }
        let alone = matches!(self.roles, Roles::Unspecialised);
        if !steps.is_multiple_of(every) && (alone || !every.is_multiple_of(steps)) {
            return Err(PlanError::Promotion { every, steps, alone });
        }
        Ok(())
    }

    /// Rows of a copy of B if K is contiguous: a tile with more rows than one copy can load takes several.
    const fn rows_of_copy(b: OperandSpec, n: u32, k: u32) -> u32 {
        let [_, rows] = tma::box_dims(Major::K, b.mode(n, k), b.format.bits(), n, k);
        rows
    }

    /// A's tile and B's tile, each at offset 0 of a stage. With `split`, half of B's columns come from each
    /// half of the matrix.
    ///
    /// # Errors
    /// The first tile that is not a whole number of layout atoms.
    pub(super) const fn tiles(&self, split: bool, form: Form) -> Result<[OperandTile; 2], PlanError> {
        let ([m, n, k], [a, b]) = (self.tile, self.operands);
        // A box has columns of only one half.
        let b_mode = b.mode(if split { n / 2 } else { n }, k);
        let a_k = k / self.atom.density();
        let a_tile = match OperandTile::new(a.format, a.major, [m, a_k], TileLayout::Slabs(a.mode(m, a_k))) {
            Ok(tile) => OperandTile { slices: self.cluster[1], ..tile.cached(a.cache) },
            Err(_) => {
                return Err(a.misfit("A", m, a_k));
            }
        };
        // A tile that may be narrowed is loaded in parts, which the CTAs that share it load alternately; one whose rows they cannot divide, in turn.
        let [slices, turns] = match b.major {
            Major::K if self.step > 0 => [n / self.step, 1],
            Major::K if !Self::rows_of_copy(b, n, k).is_multiple_of(8 * self.cluster[0]) => {
                [1, self.cluster[0]]
            }
            Major::K | Major::Mn => [self.cluster[0], 1],
        };
        if split && OperandTile::new(b.format, b.major, [n / 2, k], TileLayout::Slabs(b_mode)).is_err() {
            return Err(b.misfit("half of B", n / 2, k));
        }
        let b_tile = match OperandTile::new(b.format, b.major, [n, k], TileLayout::Slabs(b_mode)) {
            Ok(tile) => OperandTile { split, ..tile.cached(b.cache).in_slices(slices).in_turns(turns) },
            Err(_) => {
                return Err(b.misfit("B", n, k));
            }
        };
        let promotions = [Self::promotion(form, a.cache), Self::promotion(form, b.cache)];
        Ok([a_tile.fetching(promotions[0]), b_tile.fetching(promotions[1])])
    }
}
