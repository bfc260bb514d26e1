//! What mainloops and epilogues ask of a plan.

use cute_rs::atom::{Major, SwizzleMode};
use ptx::abi::Promotion;

use super::{Atom, CachePolicy, Multiply, OperandTile, PlanError, Room, SumType, TileLayout, WeightsSpec};
use crate::element::Format;
use crate::epilogue::StoreSpec;

/// How the warpgroups of a CTA divide the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Roles {
    /// One producer warpgroup; the consumers share each tile, an equal part of its rows each.
    Cooperative,
    /// One producer warpgroup; the consumers take turns, a whole tile each.
    Pingpong,
    /// No producer: every warpgroup multiplies its part of the tile's rows, and one of their threads loads.
    Unspecialised,
}

/// Who arrives on a stage's empty barrier when a consumer warpgroup has finished with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrivals {
    /// One thread. A `wgmma` is one operation of the warpgroup: where it is complete for one warp, it is for all.
    Warpgroup,
    /// One thread of each warp.
    Warp,
    /// Every thread.
    Thread,
}

impl Arrivals {
    /// Arrivals of a warpgroup.
    pub const fn count(self) -> u32 {
        match self {
            Self::Warpgroup => 1,
            Self::Warp => 4,
            Self::Thread => 128,
        }
    }
}

/// Who brings operands into the stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Producer {
    /// One thread starts tensor copies, which fill the stages by themselves.
    Thread,
    /// Every thread of the producer warpgroup copies a part of each stage; where there is none, every thread of the CTA.
    Warpgroup,
}

impl Producer {
    /// Arrivals that say that a stage is full.
    pub const fn arrivals(self) -> u32 {
        match self {
            Self::Thread => 1,
            Self::Warpgroup => 128,
        }
    }

    /// What addresses and leading dimensions of operands of this element width must be a multiple of, in bytes.
    pub const fn alignment(self, element_bits: u32) -> u32 {
        match self {
            Self::Thread => 16,
            Self::Warpgroup => element_bits / 8,
        }
    }

    /// Chunks of 16 B of elements of this width that a copying thread loads, element by element, before it stores the first: as
    /// many elements as registers hold.
    pub const fn chunks(element_bits: u32) -> u32 {
        if element_bits < 16 { 4 } else { 8 }
    }
}

/// What an operand's type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OperandSpec {
    /// Elements in memory and in a stage. What is multiplied has the format that the [`Atom`] says.
    pub format: Format,
    /// The contiguous direction.
    pub major: Major,
    /// How a tile lies in shared memory.
    pub layout: TileLayout,
    /// What L2 does with the matrix' lines.
    pub cache: CachePolicy,
    /// Whether a stage holds its tile. A mainloop whose A comes of another product has none of it in memory.
    pub staged: bool,
    /// How many rows (columns of B) share a scale for each 128 of K; 0 where blocks have no scales.
    pub scaled: u32,
    /// How it lies in memory, and in a stage, in fewer bits than [`format`](Self::format) has; `None` where it does not.
    pub weights: Option<WeightsSpec>,
    /// Whether half of each chunk of K is kept in memory, and metadata says which ([`sparse`](crate::sparse)).
    pub sparse: bool,
}

impl OperandSpec {
    /// A K-major operand as most are.
    pub const fn k_major(format: Format) -> Self {
        let (layout, cache) = (TileLayout::Widest, CachePolicy::Normal);
        Self { format, major: Major::K, layout, cache, staged: true, scaled: 0, weights: None, sparse: false }
    }

    /// Bits of an element in memory.
    pub const fn bits(&self) -> u32 {
        match self.weights {
            Some(weights) => weights.code.bits(),
            None => self.format.bits(),
        }
    }

    /// A tile that is no whole number of atoms.
    const fn misfit(&self, operand: &'static str, mn: u32, k: u32) -> PlanError {
        let width = self.mode(mn, k).elements(self.format.bits());
        let extent = match self.major {
            Major::K => k,
            Major::Mn => mn,
        };
        PlanError::Layout { operand, extent, width }
    }

    /// The swizzle of a tile `(mn, k)`. Of elements of 64 bits threads load 16 bytes of a row each, and find two rows of 64 bytes in all
    /// banks: these are the widest by default.
    pub(crate) const fn mode(&self, mn: u32, k: u32) -> SwizzleMode {
        let mode = self.layout.mode(self.major, self.format.bits(), mn, k);
        match (self.layout, self.format, mode) {
            (TileLayout::Widest, Format::F64, SwizzleMode::B128) => SwizzleMode::B64,
            _ => mode,
        }
    }

    /// How many swizzle widths a tile `(mn, k)` is wide in the contiguous direction: each comes by a copy of its own.
    pub(super) const fn slabs(&self, mn: u32, k: u32) -> u32 {
        let extent = match self.major {
            Major::K => k,
            Major::Mn => mn,
        };
        extent.div_ceil(self.mode(mn, k).elements(self.format.bits()))
    }
}

/// What a mainloop asks for.
///
/// A mainloop of your own changes what differs from one of ours: `MainloopSpec { more, registers, ..<Ours as Mainloop>::SPEC }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MainloopSpec {
    /// A and B: the first two tiles of a stage.
    pub operands: [OperandSpec; 2],
    /// What else a stage holds behind the tiles of A and B: another operand, metadata. The plan puts scales of blocks in front of
    /// these. With scales, the last two have to be empty.
    pub more: [Room; Self::MORE],
    /// The instruction that multiplies.
    pub atom: Atom,
    /// Bytes of dynamic shared memory of the mainloop's own, mbarriers included, for tiles that are no part of a stage: from
    /// [`Plan::own_offset`](super::Plan::own_offset) on.
    pub own_bytes: u32,
    /// Registers that a consumer thread needs beside the accumulators of one product and what every mainloop needs: those of
    /// another product, fragments of A.
    pub registers: u32,
    /// Tile extents (M, N, K) in elements.
    pub tile: [u32; 3],
    /// In which steps a tile is narrowed along N where the output ends inside of it; 0 where it never is.
    pub step: u32,
    /// How warpgroups divide the work.
    pub roles: Roles,
    /// Who brings operands into the stages.
    pub producer: Producer,
    /// Warpgroups that multiply.
    pub consumers: u32,
    /// Who tells the producer that a stage is free.
    pub arrivals: Arrivals,
    /// CTAs of a cluster along M and N.
    pub cluster: [u32; 2],
    /// Pipeline stages, or `None` for as many as fit.
    pub stages: Option<u32>,
}

/// What an epilogue needs tiles to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TileNeeds {
    /// Tile N is a multiple of so many columns.
    pub columns: u32,
    /// Tiles are finished whole, by one CTA each.
    pub whole: bool,
    /// It counts the tiles of one output, so a launch has but one.
    pub single: bool,
    /// The output is no wider than a tile.
    pub rows: bool,
    /// Columns of D in a tile are a multiple of so many, which it looks at together; 0 for any.
    pub block: u32,
}

impl TileNeeds {
    /// Nothing.
    pub const NONE: Self = Self { columns: 1, whole: false, single: false, rows: false, block: 0 };
}

/// What an epilogue asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpilogueSpec {
    /// D's elements.
    pub output: Format,
    /// What D's address, row length and row pitch must be a multiple of, in bytes.
    pub alignment: u32,
    /// Bits of an output element that goes through shared memory; 0 where none does.
    pub staged_bits: u32,
    /// Most buffers of a consumer warpgroup, each of the rows of a block and of one swizzle width.
    pub buffers: u32,
    /// How a buffer lies in shared memory.
    pub staging: TileLayout,
    /// Registers a thread needs beside the accumulators.
    pub registers: u32,
    /// How often it halves the columns: D has `N >> halvings` of them.
    pub halvings: u32,
    /// Half of a tile's columns are from the left half of the product's, the other half from the same place in the right
    /// half.
    pub split: bool,
    /// What it needs tiles to be.
    pub needs: TileNeeds,
    /// It stores the transpose of what the mainloop computes: the kernel's A is the caller's B, and the other way round.
    pub transposed: bool,
    /// Tensor copies bring C into the buffers that D leaves from.
    pub sourced: bool,
}

impl EpilogueSpec {
    /// That of an epilogue that does nothing but store.
    pub const fn of(store: StoreSpec) -> Self {
        Self {
            output: store.format,
            alignment: store.alignment(),
            staged_bits: store.staged_bits(),
            buffers: store.buffers(),
            staging: store.layout,
            registers: 0,
            halvings: 0,
            split: false,
            needs: TileNeeds::NONE,
            transposed: store.transposed,
            sourced: false,
        }
    }
}

/// The most columns of one instruction.
const MOST_COLUMNS: u32 = 256;

/// Elements of a tile that is multiplied about as long as memory takes to bring it.
const LARGE_TILE: u32 = 128 * 256;

impl MainloopSpec {
    /// Most tiles of a stage behind A's and B's.
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
        let usual = multiply != Multiply::MmaSync && usual == Some(self.atom.promoted(0));
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
            "{format}_{a}{a_cache}{a_layout}{b}{b_cache}{b_layout}_{m}x{n}x{k}{atom}{scales}{weights}{step}_{roles}{}{cluster}{stages}{arrivals}",
            self.consumers
        )
    }

    /// CTAs, one among them, that bring operands into a CTA's shared memory: its row and its column.
    pub const fn suppliers(&self) -> u32 {
        self.cluster[0] + self.cluster[1] - 1
    }

    /// Warpgroups of a CTA.
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

    /// How much tensor copies of operands make L2 fetch: two lines, of which the second is often the next k-tile's, unless tiles
    /// are so small that memory decides. Those have enough copies under way, and an H200 then brings single lines 3 % faster.
    pub const fn promotion(&self) -> Promotion {
        let [m, n, _] = self.tile;
        if m * n < LARGE_TILE { Promotion::B128 } else { Promotion::B256 }
    }

    /// Columns that B's copies bring at a time, and how many such parts a tile has: all of them at once where tiles are not
    /// narrowed.
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

    /// In which steps a tile's columns are divided among instructions: those of the instruction's widths, or where B is N-major
    /// those of its swizzle.
    pub(super) const fn column_step(&self) -> u32 {
        let ([_, n, k], b) = (self.tile, self.operands[1]);
        match b.major {
            Major::K => self.atom.column_step(),
            Major::Mn => b.mode(n, k).elements(b.format.bits()),
        }
    }

    /// Instructions side by side that multiply a block's rows with all columns of a tile: the fewest of at most 256 columns
    /// each.
    pub const fn across(&self) -> u32 {
        let steps = self.tile[1].div_ceil(self.column_step());
        // What is left of 256 columns below a step is no instruction's.
        steps.div_ceil(MOST_COLUMNS / self.column_step())
    }

    /// The first column of the `i`-th of them, and how many columns it multiplies: as equal as can be.
    pub const fn columns_of(&self, i: u32) -> [u32; 2] {
        let across = self.across();
        if across <= 1 {
            return [0, self.tile[1]];
        }
        let (step, steps) = (self.column_step(), self.tile[1] / self.column_step());
        let (first, end) = (steps * i / across * step, steps * (i + 1) / across * step);
        [first, end - first]
    }

    /// The columns of the widest of them.
    pub const fn widest(&self) -> u32 {
        let (mut widest, mut i) = (0, 0);
        while i < self.across() {
            let [_, columns] = self.columns_of(i);
            widest = if columns > widest { columns } else { widest };
            i += 1;
        }
        widest
    }

    /// The most columns that all of them are multiples of.
    pub(crate) const fn column_unit(&self) -> u32 {
        let ([_, mut unit], mut i) = (self.columns_of(0), 1);
        while i < self.across() {
            let [_, mut rest] = self.columns_of(i);
            while rest > 0 {
                (unit, rest) = (rest, unit % rest);
            }
            i += 1;
        }
        unit
    }

    /// Blocks of a tile, each the rows of one instruction, that one warpgroup computes.
    pub const fn blocks(&self) -> u32 {
        self.tile[0] / self.sharing() / self.atom.rows()
    }

    /// Accumulators of a consumer thread, in 32-bit registers, for one product.
    pub const fn accumulators(&self) -> u32 {
        self.blocks() * self.atom.accumulators(self.tile[1])
    }

    /// Sums of a consumer thread in a block: as many as registers, unless those hold two.
    pub(crate) const fn block_sums(&self) -> u32 {
        self.tile[1] / 2
    }

    /// Arrivals that say that a stage is full; 0 where threads wait for their copies and then for each other.
    pub(super) const fn filling(&self) -> u32 {
        if self.atom.by_threads() { 0 } else { self.producer.arrivals() }
    }

    /// Whether the rest fits an atom whose operands threads load.
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
                rule: "threads meet at a barrier and give no stage back: leave EachWarp and EachThread out",
            });
        }
        if matches!(atom.sums(), SumType::F16) {
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

    /// Whether sums can be promoted as often as the atom says, if they are.
    pub(super) const fn promotes(&self) -> Result<(), PlanError> {
        let (every, steps) = (self.atom.promote, self.tile[2] / self.atom.k());
        if every == 0 {
            return Ok(());
        }
        if matches!(self.atom.sums(), SumType::S32) {
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

    /// A's tile and B's, at the start of a stage each; half of B's columns from either half of the matrix if `split`.
    ///
    /// # Errors
    /// The first that is no whole number of layout atoms.
    pub(super) const fn tiles(&self, split: bool) -> Result<[OperandTile; 2], PlanError> {
        let ([m, n, k], [a, b]) = (self.tile, self.operands);
        // A box has columns of one half.
        let b_mode = b.mode(if split { n / 2 } else { n }, k);
        let a_k = k / self.atom.density();
        let a_tile = match OperandTile::new(a.format, a.major, [m, a_k], TileLayout::Slabs(a.mode(m, a_k))) {
            Ok(tile) => OperandTile { slices: self.cluster[1], ..tile.cached(a.cache) },
            Err(_) => {
                return Err(a.misfit("A", m, a_k));
            }
        };
        // A tile that may be narrowed comes in parts; CTAs that share it take turns with those.
        let slices = match b.major {
            Major::K if self.step > 0 => n / self.step,
            Major::K | Major::Mn => self.cluster[0],
        };
        if split && OperandTile::new(b.format, b.major, [n / 2, k], TileLayout::Slabs(b_mode)).is_err() {
            return Err(b.misfit("half of B", n / 2, k));
        }
        let b_tile = match OperandTile::new(b.format, b.major, [n, k], TileLayout::Slabs(b_mode)) {
            Ok(tile) => OperandTile { slices, split, ..tile.cached(b.cache) },
            Err(_) => {
                return Err(b.misfit("B", n, k));
            }
        };
        let promotion = self.promotion();
        Ok([OperandTile { promotion, ..a_tile }, OperandTile { promotion, ..b_tile }])
    }
}
