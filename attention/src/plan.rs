//! The plan: every number of a kernel, from its spec.

mod legal;
mod rings;

use collective::heads::Pages;
use collective::{
    Atom, CachePolicy, CtaPlan, Format, OperandTile, Peers, Producer, ProductSpec, QueuePlan, RingPlan,
    TileLayout,
};
use cute_rs::atom::Major;
use ptx::Target;
use ptx::abi::Promotion;

pub(crate) use self::legal::formulas;
use self::legal::{checked, registers};
#[cfg(feature = "records")]
pub(crate) use self::rings::SMALL;
pub(crate) use self::rings::{CHUNK, CONVERTERS};
use self::rings::{Placed, Rings};
use crate::error::AttentionError;
pub(crate) use crate::error::refused;
use crate::head;
use crate::spec::{AttentionSpec, OutputStore, Parts};

/// Every number of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionPlan {
    /// The spec.
    pub spec: AttentionSpec,
    /// The CTA. Each consumer warpgroup has 64 queries; two with halves of O's columns have the same ones.
    pub cta: CtaPlan,
    /// Tiles of Q, K and V: in latent attention, a consumer's part of V.
    pub tiles: [OperandTile; 3],
    /// The tile of weights in registers; of two consumers with the same queries also in a stage of K, for the other one.
    pub weights: OperandTile,
    /// A consumer's part of O's tile in shared memory; `None` if O is stored directly.
    pub output: Option<OperandTile>,
    /// The rings of Q, K and V. Of two consumers with the same queries, a stage of K has a slab of a block; in latent attention V has no stages.
    pub rings: [RingPlan; 3],
    /// What is loaded of K and V, if these are converted on the way.
    pub narrow: Option<NarrowPlan>,
    /// The queue of tiles; without entries unless they are drawn.
    pub queue: QueuePlan,
    /// The product of queries and keys.
    pub scores: ProductSpec,
    /// The product of weights and values.
    pub values: ProductSpec,
    /// Whether the end of a tile overlaps with the beginning of the next one.
    pub overlaps: bool,
    /// Whether a block's weights are all computed before O is rescaled. That needs registers.
    pub rescales_last: bool,
    /// What two consumers with the same queries have in addition.
    pub halves: Option<HalvesPlan>,
    /// Where the CTAs of a cluster leave their parts of a tile for each other, if they have such parts.
    pub cluster: Option<ClusterPlan>,
}

/// The part of a tile that a CTA of a cluster has computed, in its shared memory, where operands were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterPlan {
    /// Offset of the log-sum-exps of its rows.
    pub sums: u32,
    /// Offset of the rows of its O, in `f32`.
    pub outputs: u32,
    /// Bytes from a row of O to the next one: eight more words than a row has, so that rows begin in four different places of the banks.
    pub pitch: u32,
}

/// What the number of CTAs that have the parts of a tile is called.
const CLUSTER: &str = "cluster, the CTAs that share the keys of a tile,";

impl ClusterPlan {
    /// Bytes at whose multiples O begins.
    const ALIGNED: u32 = 16;

    /// Its place in shared memory whose first `operands` bytes have operands, of `all`; and the bytes of all then.
    fn placed(
        spec: &AttentionSpec,
        [operands, all]: [u32; 2],
    ) -> Result<(Option<Self>, u32), AttentionError> {
        let AttentionSpec { parts, tile: [rows, _], head: [_, dv], .. } = *spec;
        let Parts::Cluster(count) = parts else { return Ok((None, all)) };
        let pitch = (dv + 8) * 4;
        let bytes = rows * (4 + pitch);
        let sums = if bytes <= operands { 0 } else { all.next_multiple_of(Self::ALIGNED) };
        let end = all.max(sums + bytes);
        if end > AttentionPlan::TARGET.limits().shared_bytes {
            return Err(refused(
                CLUSTER,
                count,
                "a tile of fewer queries, or fewer stages, with these heads",
            ));
        }
        Ok((Some(Self { sums, outputs: sums + rows * 4, pitch }), end))
    }
}

/// The plan of two consumers with the same queries, and half of O's columns each: of heads of 512 elements of V, also those of latent
/// attention. They compute the scores of every second block of keys, and exchange weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalvesPlan {
    /// The product of the other consumer's weights and values: they are in the stage of K's last columns, which V does not have and which they
    /// replace when the block's scores are computed.
    pub given: ProductSpec,
    /// Slabs of a block of K, which are loaded and given back one by one.
    pub slabs: u32,
    /// Offset in shared memory of what consumers tell each other: two numbers of each thread, what its weights are relative to, and then as
    /// many sums.
    pub exchange: u32,
}

impl HalvesPlan {
    /// The plan for these tiles of weights and of V. A consumer has `dv` columns of V.
    fn of(
        spec: &AttentionSpec,
        (types, given, dv): (ptx::WgmmaTypes, [OperandTile; 2], u32),
        exchange: u32,
    ) -> Result<Self, AttentionError> {
        let given = ProductSpec::new(Atom::shared(types), given, 1)?.of_first([dv, spec.tile[1]])?;
        Ok(Self { given, slabs: Self::slabs(spec), exchange })
    }

    /// Slabs of a block of K.
    const fn slabs(spec: &AttentionSpec) -> u32 {
        spec.head[0] / 64
    }

    /// Queries per tile, and keys per block: 32, where shared memory holds V beside K.
    pub(crate) const fn tile(spec: &AttentionSpec) -> [u32; 2] {
        [64, if spec.is_latent() { 64 } else { 32 }]
    }

    /// Bytes of the numbers of a consumer's threads.
    pub(crate) const NUMBERS: u32 = 128 * 8;
    /// Consumers.
    const CONSUMERS: u32 = 2;
    /// Blocks of keys in shared memory: one of each consumer.
    const BLOCKS: u32 = 2;
    /// Slabs of a consumer's columns of V.
    pub(crate) const OF_VALUES: u32 = 4;
    /// Most warps that load slabs: those of the producer warpgroup.
    pub(crate) const MOST_LOADERS: u32 = 4;
}

/// Blocks of K and V as they are in memory: in another format, or, of 8-bit V, with elements of a key next to each other, where
/// products need those of a column. The producer's first warp loads them; the others convert them into the stages of
/// [`AttentionPlan::rings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NarrowPlan {
    /// Tiles of K and of V, rows of keys; `None` if they are loaded as they are multiplied.
    pub tiles: [Option<OperandTile>; 2],
    /// Their rings.
    pub rings: [RingPlan; 2],
}

impl AttentionPlan {
    /// The architecture that kernels are made for.
    pub const TARGET: Target = Target::Sm90a;

    /// Checks a spec and computes every number of its kernel.
    ///
    /// # Errors
    /// The first field of the spec that is not possible.
    pub fn new(spec: AttentionSpec) -> Result<Self, AttentionError> {
        let types = checked(&spec)?;
        let halved = spec.is_halved();
        // Each of two consumers with the same queries has all rows of a tile, and a part of O's columns.
        let [consumers, sharing] = if halved { [HalvesPlan::CONSUMERS; 2] } else { [spec.tile[0] / 64, 1] };
        let dv = spec.head[1] / sharing;
        let tiles = Tiles::of(&spec, dv)?;
        let (registers, rescales_last) = registers(&spec, consumers, dv)?;
        let narrow = NarrowPlan::of(&spec, dv)?;
        let rings = Rings::of(&spec, &tiles, narrow, consumers);
        let counts = rings.counts(rings.stages()?);
        let Placed { rings: [q_ring, k_ring, v_ring, narrow_k, narrow_v], exchange, queue, shared_bytes } =
            rings.placed(counts, consumers);
        let operands = v_ring.start + v_ring.stages * v_ring.stage_bytes;
        let (cluster, shared_bytes) = ClusterPlan::placed(&spec, [operands, shared_bytes])?;
        let Tiles { q, k, v, weights, output } = tiles;
        let of_rows = consumers / sharing;
        let (shared, [d, keys]) = (Atom::shared(types), [spec.head[0], spec.tile[1]]);
        // Steps along K end with the elements of a head, or with zeros.
        let scores = ProductSpec::new(shared, [q, k], of_rows)?;
        let values = ProductSpec::new(Atom::registers(types), [weights, v], of_rows)?;
        let halves =
            if halved { Some(HalvesPlan::of(&spec, (types, [weights, v], dv), exchange)?) } else { None };
        let narrow = narrow.map(|of| NarrowPlan { rings: [narrow_k, narrow_v], ..of });
        let several = narrow.is_some() || spec.loaders > 1;
        let producer = if several { Producer::Warpgroup } else { Producer::Thread };
        Ok(Self {
            spec,
            cta: CtaPlan {
                overlaps: true,
                resident: spec.ctas,
                turns: spec.turns && consumers > sharing,
                cluster: spec.parts.of_cluster(),
                peers: if cluster.is_some() { Peers::Exchange } else { Peers::Apart },
                ..CtaPlan::alone(producer, consumers, registers, shared_bytes)
            },
            tiles: [q, k, v],
            weights,
            rescales_last,
            output,
            rings: [q_ring, k_ring, v_ring],
            narrow,
            queue,
            scores: scores.of_first([keys, d.next_multiple_of(shared.k())])?,
            values: values.of_first([dv, keys])?,
            overlaps: spec.overlap && counts[0] > 1,
            halves,
            cluster,
        })
    }
}

impl AttentionPlan {
    /// Tensors that are read: Q, K and V, or Q and K.
    pub(crate) fn operands(&self) -> usize {
        if self.spec.is_latent() { 2 } else { 3 }
    }

    /// Whether consumers divide the rows of a tile.
    pub(crate) fn rows_are_divided(&self) -> bool {
        self.cta.consumers > 1 && self.halves.is_none()
    }

    /// The tiles of K and V as copies load them: in the format of memory, whole, or page by page. One query reads a long cache once: if L2
    /// fetches two lines at a time, an H200 moves 6 to 8 % less. What one tile of few queries reads L2 evicts first: 0.5 to 3 % less time, mostly 1 %.
    pub(crate) fn copied(&self) -> [OperandTile; 2] {
        let [_, k, v] = self.tiles;
        let [of_k, of_v] = self.narrow.map_or([None; 2], |narrow| narrow.tiles);
        // Tiles of 64 queries of the largest heads may share keys.
        let AttentionSpec { tile: [rows, _], pack, ctas, .. } = self.spec;
        let few = rows == 64 && (pack > 1 || ctas > 1 || is_divided(&self.spec));
        let once = few && self.halves.is_none();
        let kept = if once { CachePolicy::EvictFirst } else { CachePolicy::Normal };
        [of_k.unwrap_or(k), of_v.unwrap_or(v)]
            .map(|tile| tile.in_slices(self.pages_of_block()).fetching(Promotion::ByCard).cached(kept))
    }

    /// Stages of K that a block takes: one, or one for each slab.
    pub(crate) fn stages_of_block(&self) -> u32 {
        self.halves.map_or(1, |halves| halves.slabs)
    }

    /// Warps that load slabs side by side; `None` if one thread loads all.
    pub(crate) fn loaders(&self) -> Option<u32> {
        (self.spec.loaders > 1).then_some(self.spec.loaders)
    }

    /// Number of pages of a block; 1 if a page has several blocks.
    pub(crate) fn pages_of_block(&self) -> u32 {
        self.spec.pages.map_or(1, |page| Pages::per_block(page, self.spec.tile[1]))
    }
}

/// The tiles of a CTA.
struct Tiles {
    q: OperandTile,
    k: OperandTile,
    v: OperandTile,
    weights: OperandTile,
    output: Option<OperandTile>,
}

impl Tiles {
    /// The tiles of a spec, as wide as heads are in shared memory. `dv` are the columns of V and O that a consumer has.
    fn of(spec: &AttentionSpec, dv: u32) -> Result<Self, AttentionError> {
        let AttentionSpec { format, head: [d, _], tile: [rows, keys], .. } = *spec;
        let d = head::padded(d);
        // What is transposed has a row for each column, of which a step has two chunks.
        let (v_major, columns) = match of_bytes(spec) {
            true => (Major::K, dv.next_multiple_of(2 * CHUNK)),
            // Latent attention reads those of each consumer from slabs of K.
            false if spec.is_latent() => (Major::Mn, dv),
            false => (Major::Mn, head::padded(spec.head[1])),
        };
        let tile = |major, extents| OperandTile::new(format, major, extents, TileLayout::Widest);
        let q = tile(Major::K, [rows, d])?;
        // It is stored through Q's slabs.
        let of_slabs = dv.next_multiple_of(q.swizzle().elements(format.bits()));
        let output = || OperandTile::new(format, Major::K, [64, of_slabs], TileLayout::Slabs(q.swizzle()));
        Ok(Self {
            q,
            k: tile(Major::K, [keys, d])?,
            v: tile(v_major, [columns, keys])?,
            weights: tile(Major::K, [rows, keys])?,
            output: if is_direct(spec) { None } else { Some(output()?) },
        })
    }
}

/// Whether the keys of a tile may be divided into parts.
fn is_divided(spec: &AttentionSpec) -> bool {
    !matches!(spec.parts, Parts::One)
}

/// Whether O is stored from registers.
fn is_direct(spec: &AttentionSpec) -> bool {
    is_divided(spec) || matches!(spec.store, OutputStore::Direct)
}

/// Whether Q has 8 bits.
fn of_bytes(spec: &AttentionSpec) -> bool {
    spec.format.bits() == 8
}

/// The instruction types of a format that products take.
fn multiplied(format: Format) -> Option<ptx::WgmmaTypes> {
    if format == Format::E4m3 { format.multiplies(format) } else { sixteen_bits(format) }
}

/// The instruction types of a 16-bit format.
pub(crate) fn sixteen_bits(format: Format) -> Option<ptx::WgmmaTypes> {
    if format == Format::Bf16 || format == Format::F16 { format.multiplies(format) } else { None }
}
