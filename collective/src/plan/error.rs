//! Why a configuration cannot be a kernel: each rule with its sentence.

use core::fmt;

use cute_rs::atom::{Major, SwizzleMode};

use super::Atom;
use crate::element::Format;
use crate::sentence::Sentence;

/// A sentence of its parts: text, `number`, `(a number)` or `[a text]`.
macro_rules! sentence {
    ($s:expr;) => { $s };
    ($s:expr; $text:literal $($rest:tt)*) => { sentence!($s.text($text); $($rest)*) };
    ($s:expr; [$($text:tt)*] $($rest:tt)*) => { sentence!($s.text($($text)*); $($rest)*) };
    ($s:expr; $number:tt $($rest:tt)*) => { sentence!($s.number($number); $($rest)*) };
}

/// Rules, each with the numbers that break it and a sentence that says so.
macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident $({ $($(#[$about:meta])* $number:ident: $type:ty,)* })? => { $($part:tt)* })*) => {
        /// The rule that makes a configuration illegal. [`sentence`](Self::sentence) states it with the numbers and a
        /// way to fix it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum PlanError {
            $($(#[$doc])* $rule $({ $($(#[$about])* $number: $type,)* })?,)*
        }

        impl PlanError {
            /// The error as one sentence, usable in constants.
            pub const fn sentence(self) -> Sentence {
                match self {
                    $(Self::$rule $({ $($number),* })? => sentence!(Sentence::new(); $($part)*),)*
                }
            }
        }
    };
}

/// Elements in the widest row that a swizzle permutes.
const fn widest(bits: u32) -> u32 {
    SwizzleMode::B128.elements(bits)
}

rules! {
    /// The number of consumer warpgroups is not 1 to 3.
    Consumers {
        /// Number of consumer warpgroups.
        consumers: u32,
    } => { "the kernel has " consumers " consumer warpgroups, 1 to 3 are possible: change Cooperative<U2>" }
    /// Tile M is not a multiple of 64 rows per consumer.
    TileM {
        /// Tile M.
        m: u32,
        /// Consumer warpgroups.
        consumers: u32,
    } => {
        "tile M is " m ", not a multiple of " (consumers.saturating_mul(64)) " (64 rows for each of " consumers
        " consumer warpgroups): change tile M or the consumers"
    }
    /// No instruction has this tile N.
    TileN {
        /// Tile N.
        n: u32,
        /// What the number of columns of a wide instruction is a multiple of: 8, or 16 for integer
        /// accumulators.
        step: u32,
    } => {
        "tile N is " n ", wgmma has N from 8 to 256 in steps of " step
        [if step == 8 { ": change tile N" } else { " where it sums integers (of 8 up to 32): change tile N" }]
    }
    /// The tile needs several instructions next to each other along N, but only one is possible.
    Across {
        /// Tile N.
        n: u32,
        /// What allows only one.
        what: &'static str,
    } => { "tile N is " n ", and " [what] " has at most 256 columns, those of one wgmma: lower tile N" }
    /// A tile cannot be narrowed in such steps.
    Narrowed {
        /// Tile N.
        n: u32,
        /// The step.
        step: u32,
        /// What the number of columns of a wide instruction is a multiple of: 8, or 16 for integer
        /// accumulators.
        least: u32,
    } => {
        "tile N is " n ", which is narrowed in steps of " step ": they must divide it, and be multiples of " least
        " columns that wgmma allows: change Fitted<_, U32>"
    }
    /// The scheduler computes tiles in equal slices along N, and the mainloop narrows them in other steps.
    Sliced {
        /// Tile N.
        n: u32,
        /// The step.
        step: u32,
        /// The number of slices.
        slices: u32,
    } => {
        "tile N is " n " and is narrowed in steps of " step ", the scheduler needs " slices
        " slices of one step each: leave the step out, and make tile N a multiple of 8 columns per slice"
    }
    /// The epilogue stores more columns at a time than a slice of a tile has.
    SlicedStore {
        /// Columns of a slice.
        step: u32,
        /// Columns that the epilogue stores at a time.
        stored: u32,
    } => {
        "a slice of a tile has " step " columns, the epilogue stores " stored
        " at a time: take fewer parts, a wider tile, or DirectStore"
    }
    /// The tile is to be narrowed, but some role does not support that.
    NotNarrowed {
        /// What does not support it.
        what: &'static str,
    } => { [what] " multiplies whole tiles: leave Fitted<_, _> out" }
    /// Tile N is not a multiple of 16, which an epilogue that joins pairs of columns needs.
    Halved {
        /// Tile N.
        n: u32,
    } => { "tile N is " n ", an epilogue that joins pairs of columns needs a multiple of 16: change tile N" }
    /// Tile N is not a whole number of blocks of gates and ups.
    Gates {
        /// Tile N.
        n: u32,
        /// Gates and ups per block.
        block: u32,
    } => {
        "tile N is " n ", blocks of gates and ups are " block
        " columns: make tile N a multiple of that, or use Blocks<U8>"
    }
    /// A tile has columns of both halves of B, and the number of CTAs that load it would cut through a half.
    Split {
        /// CTAs that share B's tile.
        ctas: u32,
    } => {
        "a tile has columns of two halves of N, and " ctas " CTAs share it: use a cluster whose M is 1 or even"
    }
    /// A row of an output tile is staged through shared memory, but is not a multiple of 16 bytes.
    StagedRow {
        /// Elements of the row.
        n: u32,
        /// Bits of an element.
        bits: u32,
    } => {
        "a row of an output tile is " n " elements of " bits
        " bits, a tensor store needs a multiple of 16 B: change tile N or store directly"
    }
    /// Tile K is not a multiple of the instruction's K.
    TileK {
        /// Tile K.
        k: u32,
        /// The instruction's K.
        step: u32,
    } => { "tile K is " k ", not a positive multiple of " step ", the K of one wgmma: change tile K" }
    /// Promotion interval and k-tile do not fit: neither is a multiple of the other.
    Promotion {
        /// Instructions along K between two promotions.
        every: u32,
        /// Instructions along K per k-tile.
        steps: u32,
        /// Whether the mainloop has no producer; it promotes within a k-tile.
        alone: bool,
    } => {
        "sums are promoted every " every " instructions, and a tile's K has " steps " of them: "
        [if alone {
            "promote after a divisor of that, or use a mainloop with a producer"
        } else {
            "one must divide the other"
        }]
    }
    /// A consumer's tile does not divide into its waves.
    Waves {
        /// Number of waves.
        waves: u32,
        /// Blocks of 64 rows of a consumer's tile.
        blocks: u32,
        /// Tile N.
        n: u32,
        /// What the columns of a wave must be a multiple of.
        step: u32,
    } => {
        "a consumer's tile has " blocks " blocks of 64 rows and " n " columns, which do not divide into " waves
        " waves: a divisor of the blocks was needed, or a multiple of them that leaves each wave a multiple of "
        step " columns, at most 256, of a tile that is not narrowed"
    }
    /// Integer accumulators lose nothing, so there is nothing to promote.
    PromotedIntegers => { "integer accumulators lose nothing that promotion could keep: leave it out" }
    /// The promotion interval is longer than [`Atom::MOST_PROMOTED`](crate::Atom::MOST_PROMOTED).
    RarelyPromoted {
        /// Instructions along K between two promotions.
        every: u32,
    } => {
        "sums are promoted every " every " instructions, " (Atom::MOST_PROMOTED)
        " at most were needed: promote more often, or never"
    }
    /// A tile is not a whole number of its layout's slabs.
    Layout {
        /// Which operand.
        operand: &'static str,
        /// Its contiguous extent in elements.
        extent: u32,
        /// Width of a slab in elements.
        width: u32,
    } => {
        "the tile of " [operand] " has " extent " contiguous elements, its layout has slabs of " width
        ": make the extent a multiple of that, or choose a narrower swizzle"
    }
    /// The layout is not an atom that `wgmma` reads and tensor copies write.
    Atom {
        /// The operand's contiguous direction.
        major: Major,
        /// Bits of an element.
        bits: u32,
    } => {
        "wgmma and tensor copies read atoms of 8 x W elements, W = " (widest(bits)) ", " (widest(bits) / 2) ", "
        (widest(bits) / 4) " or " (widest(bits) / 8) ", swizzled by 3, 2, 1 or 0 bits: write Swizzled<Sw<U3, U"
        (SwizzleMode::B128.swizzle(bits).base) ", U3>, "
        [if matches!(major, Major::K) { "RowMajor<(U8, U" } else { "ColumnMajor<(U" }] (widest(bits))
        [if matches!(major, Major::K) { ")>>" } else { ", U8)>>" }] " or a narrower one"
    }
    /// A row of an output tile is not a whole number of its layout's slabs.
    StagedLayout {
        /// Elements of the row.
        n: u32,
        /// Width of a slab in elements.
        width: u32,
    } => {
        "a row of an output tile is " n " elements, its layout in shared memory has slabs of " width
        ": make tile N a multiple of that, or choose a narrower swizzle"
    }
    /// A row of a staging buffer holds fewer columns than the threads store next to each other.
    NarrowStaging {
        /// Elements of a row.
        width: u32,
        /// Bits of an element.
        bits: u32,
    } => {
        "rows of the output's layout in shared memory are " width " elements of " bits
        " bits, threads store 8 side by side: choose a wider swizzle"
    }
    /// A layout was given for the staging of a transposed store, which has a layout of its own.
    TransposedLayout => { "a transposed store lays a buffer out along the columns of D: leave its layout out" }
    /// The instruction reads elements of another width than the stage holds.
    Stored {
        /// Which operand.
        operand: &'static str,
        /// Bits of an element in memory.
        stored: u32,
        /// Bits of an element as it is multiplied.
        bits: u32,
    } => {
        [operand] " has elements of " stored " bits in shared memory, and the instruction reads " bits
        " there: store what is multiplied, or take A from registers and convert it"
    }
    /// The instruction reads this operand only K-major.
    KMajorOnly {
        /// Which operand.
        operand: &'static str,
        /// Bits of an element.
        bits: u32,
    } => {
        [operand] " is MN-major with elements of " bits
        " bits, and tensor cores read MN-major operands only of 16 bits: use KMajor (layout=kk)"
    }
    /// A is read from registers but is M-major.
    Fragments => { "A comes from registers, whose elements are neighbours along K: use KMajor for A" }
    /// Threads read the stages, but a single thread per warpgroup releases them.
    EarlyArrival => { "threads load A from a stage, so each warp must release it: use EachWarp<_>" }
    /// The tiles of a product do not match, or the atom is no `wgmma`.
    Product {
        /// Extents of A's tile.
        a: [u32; 2],
        /// Extents of B's tile.
        b: [u32; 2],
    } => {
        "a product has tiles of " (a[0]) " x " (a[1]) " and " (b[0]) " x " (b[1])
        ": (M, K) and (N, K) with one K, multiplied by `wgmma`, were needed; a sparse A has half of K"
    }
    /// No epilogue stores D in this format.
    Output {
        /// D's format.
        format: Format,
        /// Whether the accumulators are integers.
        integers: bool,
    } => {
        "D is " [format.name()] ", and sums of "
        [if integers { "integers are stored as " } else { "floats are stored as " }]
        [if integers { Format::RESULTS[1] } else { "" }] [if integers { ", " } else { "" }] [Format::RESULTS[0]]
        ": choose one of them"
    }
    /// A tile extent is larger than one tensor copy can load.
    Box {
        /// The extent's name.
        extent: &'static str,
        /// Its value in elements.
        elements: u32,
    } => { [extent] " is " elements ", a tensor copy loads at most 256 along it: lower it" }
    /// The cluster is empty, or larger than every device supports.
    Cluster {
        /// CTAs along M.
        m: u32,
        /// CTAs along N.
        n: u32,
        /// Largest number of CTAs.
        most: u32,
    } => {
        "the cluster is " m " x " n " CTAs, 1 to " most " are possible: change it (Cluster<M, N>, cluster=MxN)"
    }
    /// A feature that does not work in a cluster.
    Alone {
        /// The feature.
        what: &'static str,
        /// CTAs along M.
        m: u32,
        /// CTAs along N.
        n: u32,
    } => { "the cluster is " m " x " n " CTAs, but " [what] " needs clusters of one CTA: use Cluster<U1, U1>" }
    /// The mainloop loads for one CTA ([`MainloopNeeds::alone`](crate::MainloopNeeds::alone)), and the
    /// cluster has several.
    NeedsAlone {
        /// CTAs along M.
        m: u32,
        /// CTAs along N.
        n: u32,
    } => {
        "the cluster is " m " x " n
        " CTAs, and the mainloop's NEEDS say that it loads for one CTA: use Cluster<U1, U1>, or load a slice of each tile for all CTAs that share it (`Origin`) and set `alone: false` in NEEDS"
    }
    /// The mainloop multiplies whole tiles ([`MainloopNeeds::whole_n`](crate::MainloopNeeds::whole_n)), and
    /// some tiles have fewer columns.
    NeedsWholeN {
        /// Tile N.
        n: u32,
        /// The step in which tiles are narrowed.
        step: u32,
    } => {
        "tile N is " n " and is narrowed in steps of " step
        ", and the mainloop's NEEDS say that it multiplies whole tiles: leave out Fitted<_, _> and NarrowTail, or load and multiply `WorkUnit::columns` and set `whole_n: false` in NEEDS"
    }
    /// The producer warpgroup is to copy the operands, but there is no producer.
    NoProducer => { "operands are copied by a producer warpgroup, and Unspecialised has none: use Cooperative<U2>" }
    /// A tile extent cannot be divided among the CTAs of a cluster.
    Slice {
        /// The extent's name.
        extent: &'static str,
        /// Its value in elements.
        elements: u32,
        /// CTAs that share it.
        ctas: u32,
    } => {
        [extent] " is " elements ", not a multiple of " (ctas.saturating_mul(8)) " (8 for each of " ctas
        " CTAs that share the operand): change it or the cluster"
    }
    /// Too few stages were requested.
    Stages {
        /// Number of stages requested.
        stages: u32,
        /// Fewest stages possible.
        least: u32,
    } => { "the pipeline has " stages " stages, it needs " least " or more: raise the stages" }
    /// The stages do not fit into shared memory.
    Shared {
        /// Number of stages.
        stages: u32,
        /// Bytes needed, everything else included.
        need: u32,
        /// Bytes of shared memory per CTA.
        have: u32,
    } => {
        stages " stages need " need " B of shared memory, a CTA has " have " B: lower the stages or the tile"
    }
    /// The accumulators do not fit into the registers.
    Registers {
        /// Registers a consumer thread needs.
        need: u32,
        /// Most registers it can have.
        have: u32,
        /// Consumer warpgroups.
        consumers: u32,
    } => {
        "a consumer thread needs " need " registers, with " consumers " consumer warpgroups it has " have
        ": lower tile M or N, or change the consumers"
    }
    /// A tile cuts through a block of columns that the epilogue looks at as a whole.
    Blocks {
        /// Tile N.
        n: u32,
        /// Columns per block.
        block: u32,
    } => {
        "tile N is " n ", and the epilogue looks at blocks of " block
        " columns together: make tile N a multiple of that, and use no Fitted"
    }
    /// A number of a block-scaled, quantised or sparse operand is not one of those allowed.
    Scaled {
        /// Name of the quantity.
        what: &'static str,
        /// The value found.
        found: u32,
        /// The values allowed.
        needed: &'static str,
    } => { [what] " is " found ", " [needed] " was needed" }
    /// A block-scaled, quantised or sparse operand cannot be combined with something else.
    Rule {
        /// The rule, as a sentence.
        rule: &'static str,
    } => { [rule] }
    /// No table of groups is for this number of them, or the form has no table.
    MostGroups {
        /// The number of groups.
        groups: u32,
        /// Whether the form has a table.
        table: bool,
    } => {
        "the table is for " groups " groups, "
        [if table { "not 320, 512, 1024, 2048 or 4096: change `most-groups`, or the second parameter of the form's type" }
         else { "and this form has no table: leave `most-groups` out" }]
    }
    /// Something cannot be combined with `mma.sync` or `fma`, whose operands threads load.
    ByThreads {
        /// The rule and a way to fix it.
        rule: &'static str,
    } => { "threads load the operands of mma.sync and of plain instructions: " [rule] }
    /// Something cannot be combined with `f64` accumulators.
    Doubles {
        /// The rule and a way to fix it.
        rule: &'static str,
    } => { "with f64 operands: " [rule] }
    /// What a thread copies at a time does not fit into its registers.
    Copies {
        /// Registers a producer thread needs.
        need: u32,
        /// Most registers it can have.
        have: u32,
        /// Consumer warpgroups.
        consumers: u32,
    } => {
        "a producer thread that copies elements needs " need " registers, with " consumers
        " consumer warpgroups it has " have ": take fewer consumers"
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence().as_str())
    }
}

impl std::error::Error for PlanError {}
