//! What mainloops and epilogues ask of a plan.

use cute_rs::atom::{Major, smem};
use ptx::WgmmaTypes;
use ptx::abi::Promotion;

use crate::element::{Element, Format};
use crate::epilogue::StoreSpec;
use crate::operand::{CachePolicy, Operand, OperandPair};
use crate::tile::{TileShape, WarpRoles};

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
    /// Every thread of the producer warpgroup copies a part of each stage.
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

    /// What a producer thread keeps of its registers. One that starts copies keeps the fewest that `setmaxnreg` allows;
    /// one that copies holds up to [`CHUNKS`](Self::CHUNKS) chunks, element by element, between loads and stores.
    pub(super) const fn registers(self) -> u32 {
        match self {
            Self::Thread => 24,
            Self::Warpgroup => 104,
        }
    }

    /// Chunks of 16 B that a copying thread loads before it stores the first.
    pub const CHUNKS: u32 = 8;
}

/// What a mainloop asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MainloopSpec {
    /// Elements of A and of B in memory.
    pub formats: [Format; 2],
    /// The matrix instruction's types.
    pub types: WgmmaTypes,
    /// A's contiguous direction.
    pub a_major: Major,
    /// B's contiguous direction.
    pub b_major: Major,
    /// What L2 does with the lines of A and of B.
    pub cache: [CachePolicy; 2],
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
}

impl TileNeeds {
    /// Nothing.
    pub const NONE: Self = Self { columns: 1, whole: false, single: false, rows: false };
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
    /// Most buffers of a consumer warpgroup, each of 64 rows of one swizzle width.
    pub buffers: u32,
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
    /// The spec that types say.
    pub(crate) const fn of<O: OperandPair, T: TileShape, R: WarpRoles>(producer: Producer) -> Self {
        Self {
            formats: [<O::A as Operand>::Element::FORMAT, <O::B as Operand>::Element::FORMAT],
            types: O::TYPES,
            a_major: O::A::MAJOR,
            b_major: O::B::MAJOR,
            cache: [O::A::CACHE, O::B::CACHE],
            tile: [T::M, T::N, T::K],
            step: T::STEP,
            roles: R::ROLES,
            producer,
            consumers: R::CONSUMERS,
            arrivals: R::ARRIVALS,
            cluster: R::CLUSTER,
            stages: R::STAGES,
        }
    }

    /// An identifier of its numbers, for kernel names.
    pub(crate) fn name(&self) -> String {
        let letter = |major| match major {
            Major::K => 'k',
            Major::Mn => 'm',
        };
        let [a_cache, b_cache] = self.cache.map(CachePolicy::suffix);
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
        let ([m, n, k], format) = (self.tile, self.formats[0]);
        let (a, b) = (letter(self.a_major), letter(self.b_major));
        format!(
            "{format}_{a}{a_cache}{b}{b_cache}_{m}x{n}x{k}{step}_{roles}{}{cluster}{stages}{arrivals}",
            self.consumers
        )
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
        let part = match (self.step, self.b_major) {
            (0, _) => n,
            (step, Major::K) => step,
            (_, Major::Mn) => {
                let bits = self.types.element_bits();
                smem::widest_mode(self.b_major, bits, n, k).elements(bits)
            }
        };
        [part, n / part]
    }

    /// In which steps a tile's columns are divided among instructions: where B is N-major, they begin where its swizzle does.
    const fn column_step(&self) -> u32 {
        let ([_, n, k], bits) = (self.tile, self.types.element_bits());
        match self.b_major {
            Major::K => 8,
            Major::Mn => smem::widest_mode(self.b_major, bits, n, k).elements(bits),
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

    /// 64-row blocks of a tile that one warpgroup computes.
    pub const fn blocks(&self) -> u32 {
        self.tile[0] / self.sharing() / 64
    }
}
