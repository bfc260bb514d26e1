//! Why a configuration cannot be a kernel, as sentences.

use core::fmt;

use cute_rs::atom::{Major, SwizzleMode};

use super::Atom;
use crate::element::Format;
use crate::sentence::Sentence;

/// The rule that makes a configuration illegal. [`sentence`](Self::sentence) states it with the numbers and a
/// way to fix it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// The number of consumer warpgroups is not 1 to 3.
    Consumers {
        /// Number of consumer warpgroups.
        consumers: u32,
    },
    /// Tile M is not a multiple of 64 rows per consumer.
    TileM {
        /// Tile M.
        m: u32,
        /// Consumer warpgroups.
        consumers: u32,
    },
    /// No instruction has this tile N.
    TileN {
        /// Tile N.
        n: u32,
        /// What the number of columns of a wide instruction is a multiple of: 8, or 16 for integer
        /// accumulators.
        step: u32,
    },
    /// The tile needs several instructions next to each other along N, but only one is possible.
    Across {
        /// Tile N.
        n: u32,
        /// What allows only one.
        what: &'static str,
    },
    /// A tile cannot be narrowed in such steps.
    Narrowed {
        /// Tile N.
        n: u32,
        /// The step.
        step: u32,
        /// What the number of columns of a wide instruction is a multiple of: 8, or 16 for integer
        /// accumulators.
        least: u32,
    },
    /// The scheduler computes tiles in equal slices along N, and the mainloop narrows them in other steps.
    Sliced {
        /// Tile N.
        n: u32,
        /// The step.
        step: u32,
        /// The number of slices.
        slices: u32,
    },
    /// The epilogue stores more columns at a time than a slice of a tile has.
    SlicedStore {
        /// Columns of a slice.
        step: u32,
        /// Columns that the epilogue stores at a time.
        stored: u32,
    },
    /// The tile is to be narrowed, but some role does not support that.
    NotNarrowed {
        /// What does not support it.
        what: &'static str,
    },
    /// Tile N is not a multiple of 16, which an epilogue that joins pairs of columns needs.
    Halved {
        /// Tile N.
        n: u32,
    },
    /// Tile N is not a whole number of blocks of gates and ups.
    Gates {
        /// Tile N.
        n: u32,
        /// Gates and ups per block.
        block: u32,
    },
    /// A tile has columns of both halves of B, and the number of CTAs that load it would cut through a half.
    Split {
        /// CTAs that share B's tile.
        ctas: u32,
    },
    /// A row of an output tile is staged through shared memory, but is not a multiple of 16 bytes.
    StagedRow {
        /// Elements of the row.
        n: u32,
        /// Bits of an element.
        bits: u32,
    },
    /// Tile K is not a multiple of the instruction's K.
    TileK {
        /// Tile K.
        k: u32,
        /// The instruction's K.
        step: u32,
    },
    /// Promotion interval and k-tile do not fit: neither is a multiple of the other.
    Promotion {
        /// Instructions along K between two promotions.
        every: u32,
        /// Instructions along K per k-tile.
        steps: u32,
        /// Whether the mainloop has no producer; it promotes within a k-tile.
        alone: bool,
    },
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
    },
    /// Integer accumulators lose nothing, so there is nothing to promote.
    PromotedIntegers,
    /// The promotion interval is longer than [`Atom::MOST_PROMOTED`](crate::Atom::MOST_PROMOTED).
    RarelyPromoted {
        /// Instructions along K between two promotions.
        every: u32,
    },
    /// A tile is not a whole number of its layout's slabs.
    Layout {
        /// Which operand.
        operand: &'static str,
        /// Its contiguous extent in elements.
        extent: u32,
        /// Width of a slab in elements.
        width: u32,
    },
    /// The layout is not an atom that `wgmma` reads and tensor copies write.
    Atom {
        /// The operand's contiguous direction.
        major: Major,
        /// Bits of an element.
        bits: u32,
    },
    /// A row of an output tile is not a whole number of its layout's slabs.
    StagedLayout {
        /// Elements of the row.
        n: u32,
        /// Width of a slab in elements.
        width: u32,
    },
    /// A row of a staging buffer holds fewer columns than the threads store next to each other.
    NarrowStaging {
        /// Elements of a row.
        width: u32,
        /// Bits of an element.
        bits: u32,
    },
    /// A layout was given for the staging of a transposed store, which has a layout of its own.
    TransposedLayout,
    /// The instruction reads elements of another width than the stage holds.
    Stored {
        /// Which operand.
        operand: &'static str,
        /// Bits of an element in memory.
        stored: u32,
        /// Bits of an element as it is multiplied.
        bits: u32,
    },
    /// The instruction reads this operand only K-major.
    KMajorOnly {
        /// Which operand.
        operand: &'static str,
        /// Bits of an element.
        bits: u32,
    },
    /// A is read from registers but is M-major.
    Fragments,
    /// Threads read the stages, but a single thread per warpgroup releases them.
    EarlyArrival,
    /// The tiles do not match the product's spec, or `wgmma` has no such spec with these accumulators.
    Product {
        /// The spec's tile.
        tile: [u32; 3],
        /// Extents of A's tile.
        a: [u32; 2],
        /// Extents of B's tile.
        b: [u32; 2],
    },
    /// No epilogue stores D in this format.
    Output {
        /// D's format.
        format: Format,
        /// Whether the accumulators are integers.
        integers: bool,
    },
    /// A tile extent is larger than one tensor copy can load.
    Box {
        /// The extent's name.
        extent: &'static str,
        /// Its value in elements.
        elements: u32,
    },
    /// The cluster is empty, or larger than every device supports.
    Cluster {
        /// CTAs along M.
        m: u32,
        /// CTAs along N.
        n: u32,
        /// Largest number of CTAs.
        most: u32,
    },
    /// A feature that does not work in a cluster.
    Alone {
        /// The feature.
        what: &'static str,
        /// CTAs along M.
        m: u32,
        /// CTAs along N.
        n: u32,
    },
    /// The mainloop loads for one CTA ([`MainloopNeeds::alone`](crate::MainloopNeeds::alone)), and the
    /// cluster has several.
    NeedsAlone {
        /// CTAs along M.
        m: u32,
        /// CTAs along N.
        n: u32,
    },
    /// The mainloop multiplies whole tiles ([`MainloopNeeds::whole_n`](crate::MainloopNeeds::whole_n)), and
    /// some tiles have fewer columns.
    NeedsWholeN {
        /// Tile N.
        n: u32,
        /// The step in which tiles are narrowed.
        step: u32,
    },
    /// The producer warpgroup is to copy the operands, but there is no producer.
    NoProducer,
    /// A tile extent cannot be divided among the CTAs of a cluster.
    Slice {
        /// The extent's name.
        extent: &'static str,
        /// Its value in elements.
        elements: u32,
        /// CTAs that share it.
        ctas: u32,
    },
    /// Too few stages were requested.
    Stages {
        /// Number of stages requested.
        stages: u32,
        /// Fewest stages possible.
        least: u32,
    },
    /// The stages do not fit into shared memory.
    Shared {
        /// Number of stages.
        stages: u32,
        /// Bytes needed, everything else included.
        need: u32,
        /// Bytes of shared memory per CTA.
        have: u32,
    },
    /// The accumulators do not fit into the registers.
    Registers {
        /// Registers a consumer thread needs.
        need: u32,
        /// Most registers it can have.
        have: u32,
        /// Consumer warpgroups.
        consumers: u32,
    },
    /// A tile cuts through a block of columns that the epilogue looks at as a whole.
    Blocks {
        /// Tile N.
        n: u32,
        /// Columns per block.
        block: u32,
    },
    /// A number of a block-scaled, quantised or sparse operand is not one of those allowed.
    Scaled {
        /// Name of the quantity.
        what: &'static str,
        /// The value found.
        found: u32,
        /// The values allowed.
        needed: &'static str,
    },
    /// A block-scaled, quantised or sparse operand cannot be combined with something else.
    Rule {
        /// The rule, as a sentence.
        rule: &'static str,
    },
    /// Something cannot be combined with `mma.sync` or `fma`, whose operands threads load.
    ByThreads {
        /// The rule and a way to fix it.
        rule: &'static str,
    },
    /// Something cannot be combined with `f64` accumulators.
    Doubles {
        /// The rule and a way to fix it.
        rule: &'static str,
    },
    /// What a thread copies at a time does not fit into its registers.
    Copies {
        /// Registers a producer thread needs.
        need: u32,
        /// Most registers it can have.
        have: u32,
        /// Consumer warpgroups.
        consumers: u32,
    },
}

impl PlanError {
    /// The error as one sentence, usable in constants.
    pub const fn sentence(self) -> Sentence {
        let s = Sentence::new();
        match self {
            Self::Consumers { consumers } => s
                .text("the kernel has ")
                .number(consumers)
                .text(" consumer warpgroups, 1 to 3 are possible: change Cooperative<U2>"),
            Self::TileM { m, consumers } => s
                .text("tile M is ")
                .number(m)
                .text(", not a multiple of ")
                .number(consumers.saturating_mul(64))
                .text(" (64 rows for each of ")
                .number(consumers)
                .text(" consumer warpgroups): change tile M or the consumers"),
            Self::TileN { n, step } => {
                let s = s.text("tile N is ").number(n).text(", wgmma has N from 8 to 256 in steps of ").number(step);
                if step == 8 {
                    s.text(": change tile N")
                } else {
                    s.text(" where it sums integers (of 8 up to 32): change tile N")
                }
            }
            Self::Across { n, what } => s
                .text("tile N is ")
                .number(n)
                .text(", and ")
                .text(what)
                .text(" has at most 256 columns, those of one wgmma: lower tile N"),
            Self::Narrowed { n, step, least } => s
                .text("tile N is ")
                .number(n)
                .text(", which is narrowed in steps of ")
                .number(step)
                .text(": they must divide it, and be multiples of ")
                .number(least)
                .text(" columns that wgmma allows: change Fitted<_, U32>"),
            Self::Sliced { n, step, slices } => s
                .text("tile N is ")
                .number(n)
                .text(" and is narrowed in steps of ")
                .number(step)
                .text(", the scheduler needs ")
                .number(slices)
                .text(" slices of one step each: leave the step out, and make tile N a multiple of 8 columns per slice"),
            Self::SlicedStore { step, stored } => s
                .text("a slice of a tile has ")
                .number(step)
                .text(" columns, the epilogue stores ")
                .number(stored)
                .text(" at a time: take fewer parts, a wider tile, or DirectStore"),
            Self::NotNarrowed { what } => s
                .text(what)
                .text(" multiplies whole tiles: leave Fitted<_, _> out"),
            Self::Halved { n } => s
                .text("tile N is ")
                .number(n)
                .text(", an epilogue that joins pairs of columns needs a multiple of 16: change tile N"),
            Self::Gates { n, block } => s
                .text("tile N is ")
                .number(n)
                .text(", blocks of gates and ups are ")
                .number(block)
                .text(" columns: make tile N a multiple of that, or use Blocks<U8>"),
            Self::Split { ctas } => s
                .text("a tile has columns of two halves of N, and ")
                .number(ctas)
                .text(" CTAs share it: use a cluster whose M is 1 or even"),
            Self::StagedRow { n, bits } => s
                .text("a row of an output tile is ")
                .number(n)
                .text(" elements of ")
                .number(bits)
                .text(" bits, a tensor store needs a multiple of 16 B: change tile N or store directly"),
            Self::TileK { k, step } => s
                .text("tile K is ")
                .number(k)
                .text(", not a positive multiple of ")
                .number(step)
                .text(", the K of one wgmma: change tile K"),
            Self::Promotion { every, steps, alone } => {
                let s = s.text("sums are promoted every ").number(every).text(" instructions, and a tile's K has ");
                let s = s.number(steps).text(" of them: ");
                s.text(if alone {
                    "promote after a divisor of that, or use a mainloop with a producer"
                } else {
                    "one must divide the other"
                })
            }
            Self::RarelyPromoted { every } => s
                .text("sums are promoted every ")
                .number(every)
                .text(" instructions, ")
                .number(Atom::MOST_PROMOTED)
                .text(" at most were needed: promote more often, or never"),
            Self::Waves { waves, blocks, n, step } => s
                .text("a consumer's tile has ")
                .number(blocks)
                .text(" blocks of 64 rows and ")
                .number(n)
                .text(" columns, which do not divide into ")
                .number(waves)
                .text(" waves: a divisor of the blocks was needed, or a multiple of them that leaves each wave a multiple of ")
                .number(step)
                .text(" columns, at most 256, of a tile that is not narrowed"),
            Self::PromotedIntegers => {
                s.text("integer accumulators lose nothing that promotion could keep: leave it out")
            }
            Self::Layout { operand, extent, width } => s
                .text("the tile of ")
                .text(operand)
                .text(" has ")
                .number(extent)
                .text(" contiguous elements, its layout has slabs of ")
                .number(width)
                .text(": make the extent a multiple of that, or choose a narrower swizzle"),
            Self::Atom { major, bits } => {
                let width = SwizzleMode::B128.elements(bits);
                let base = SwizzleMode::B128.swizzle(bits).base;
                let s = s
                    .text("wgmma and tensor copies read atoms of 8 x W elements, W = ")
                    .number(width)
                    .text(", ")
                    .number(width / 2)
                    .text(", ")
                    .number(width / 4)
                    .text(" or ")
                    .number(width / 8)
                    .text(", swizzled by 3, 2, 1 or 0 bits: write Swizzled<Sw<U3, U")
                    .number(base)
                    .text(", U3>, ");
                match major {
                    Major::K => s.text("RowMajor<(U8, U").number(width).text(")>> or a narrower one"),
                    Major::Mn => s.text("ColumnMajor<(U").number(width).text(", U8)>> or a narrower one"),
                }
            }
            Self::StagedLayout { n, width } => s
                .text("a row of an output tile is ")
                .number(n)
                .text(" elements, its layout in shared memory has slabs of ")
                .number(width)
                .text(": make tile N a multiple of that, or choose a narrower swizzle"),
            Self::NarrowStaging { width, bits } => s
                .text("rows of the output's layout in shared memory are ")
                .number(width)
                .text(" elements of ")
                .number(bits)
                .text(" bits, threads store 8 side by side: choose a wider swizzle"),
            Self::TransposedLayout => s.text(
                "a transposed store lays a buffer out along the columns of D: leave its layout out",
            ),
            Self::Stored { operand, stored, bits } => s
                .text(operand)
                .text(" has elements of ")
                .number(stored)
                .text(" bits in shared memory, and the instruction reads ")
                .number(bits)
                .text(" there: store what is multiplied, or take A from registers and convert it"),
            Self::KMajorOnly { operand, bits } => s
                .text(operand)
                .text(" is MN-major with elements of ")
                .number(bits)
                .text(" bits, and tensor cores read MN-major operands only of 16 bits: use KMajor (layout=kk)"),
            Self::Fragments => s.text(
                "A comes from registers, whose elements are neighbours along K: use KMajor for A",
            ),
            Self::Product { tile: [m, n, k], a, b } => s
                .text("a product is one of tiles ")
                .number(a[0]).text(" x ").number(a[1]).text(" and ").number(b[0]).text(" x ").number(b[1])
                .text(", its spec says M x N x K = ")
                .number(m).text(" x ").number(n).text(" x ").number(k)
                .text(": the tiles must be (M, K) and (N, K), and the accumulators of the atom's type"),
            Self::EarlyArrival => s.text(
                "threads load A from a stage, so each warp must release it: use EachWarp<_>",
            ),
            Self::Output { format, integers } => {
                let [floats, whole] = Format::RESULTS;
                let s = s.text("D is ").text(format.name());
                if integers {
                    s.text(", and sums of integers are stored as ").text(whole).text(", ").text(floats)
                } else {
                    s.text(", and sums of floats are stored as ").text(floats)
                }
                .text(": choose one of them")
            }
            Self::Box { extent, elements } => s
                .text(extent)
                .text(" is ")
                .number(elements)
                .text(", a tensor copy loads at most 256 along it: lower it"),
            Self::Cluster { m, n, most } => s
                .text("the cluster is ")
                .number(m)
                .text(" x ")
                .number(n)
                .text(" CTAs, 1 to ")
                .number(most)
                .text(" are possible: change it (Cluster<M, N>, cluster=MxN)"),
            Self::Alone { what, m, n } => s
                .text("the cluster is ")
                .number(m)
                .text(" x ")
                .number(n)
                .text(" CTAs, but ")
                .text(what)
                .text(" needs clusters of one CTA: use Cluster<U1, U1>"),
            Self::NeedsAlone { m, n } => s
                .text("the cluster is ")
                .number(m)
                .text(" x ")
                .number(n)
                .text(" CTAs, and the mainloop's NEEDS say that it loads for one CTA: use Cluster<U1, U1>, or load a slice of \
                       each tile for all CTAs that share it (`Origin`) and set `alone: false` in NEEDS"),
            Self::NeedsWholeN { n, step } => s
                .text("tile N is ")
                .number(n)
                .text(" and is narrowed in steps of ")
                .number(step)
                .text(", and the mainloop's NEEDS say that it multiplies whole tiles: leave out Fitted<_, _> and \
                       NarrowTail, or load and multiply `WorkUnit::columns` and set `whole_n: false` in NEEDS"),
            Self::Doubles { rule } => s.text("with f64 operands: ").text(rule),
            Self::ByThreads { rule } => s.text("threads load the operands of mma.sync and of plain instructions: ").text(rule),
            Self::NoProducer => s.text(
                "operands are copied by a producer warpgroup, and Unspecialised has none: use Cooperative<U2>",
            ),
            Self::Slice { extent, elements, ctas } => s
                .text(extent)
                .text(" is ")
                .number(elements)
                .text(", not a multiple of ")
                .number(ctas.saturating_mul(8))
                .text(" (8 for each of ")
                .number(ctas)
                .text(" CTAs that share the operand): change it or the cluster"),
            Self::Stages { stages, least } => s
                .text("the pipeline has ")
                .number(stages)
                .text(" stages, it needs ")
                .number(least)
                .text(" or more: raise the stages"),
            Self::Shared { stages, need, have } => s
                .text("")
                .number(stages)
                .text(" stages need ")
                .number(need)
                .text(" B of shared memory, a CTA has ")
                .number(have)
                .text(" B: lower the stages or the tile"),
            Self::Registers { need, have, consumers } => s
                .text("a consumer thread needs ")
                .number(need)
                .text(" registers, with ")
                .number(consumers)
                .text(" consumer warpgroups it has ")
                .number(have)
                .text(": lower tile M or N, or change the consumers"),
            Self::Blocks { n, block } => s
                .text("tile N is ")
                .number(n)
                .text(", and the epilogue looks at blocks of ")
                .number(block)
                .text(" columns together: make tile N a multiple of that, and use no Fitted"),
            Self::Scaled { what, found, needed } => {
                s.text(what).text(" is ").number(found).text(", ").text(needed).text(" was needed")
            }
            Self::Rule { rule } => s.text(rule),
            Self::Copies { need, have, consumers } => s
                .text("a producer thread that copies elements needs ")
                .number(need)
                .text(" registers, with ")
                .number(consumers)
                .text(" consumer warpgroups it has ")
                .number(have)
                .text(": take fewer consumers"),
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.sentence().as_str())
    }
}

impl std::error::Error for PlanError {}
