//! The plan: every number of the three programs, from a spec.

mod legal;
mod rings;

use collective::{Atom, CtaPlan, OperandTile, Peers, Producer, ProductSpec, RingPlan, TileLayout};
use cute_rs::atom::Major;

use self::legal::{among, checked, consumers, is_dq_transposed, is_pair, multiplied, registers, wide};
pub use self::rings::BackwardRings;
use super::spec::BackwardSpec;
use crate::error::AttentionError;
use crate::plan::{AttentionPlan, refused};
use crate::spec::Lengths;

/// Every number of a kernel of the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackwardPlan {
    /// The spec.
    pub spec: BackwardSpec,
    /// Elements of a head of Q and K, and of V and dO, in shared memory: those after the head's are zeros.
    pub wide: [u32; 2],
    /// The same that dK and dV have in registers.
    pub multiplied: [u32; 2],
    /// The CTA of the main program. Each consumer warpgroup has 64 keys; or two have the same ones.
    pub cta: CtaPlan,
    /// Two consumers with the same keys, where the registers of one hold dV or dK alone.
    pub pair: Option<PairPlan>,
    /// How the CTAs that share the queries of a block of keys add up dK and dV, if they do.
    pub exchange: Option<ExchangePlan>,
    /// The tiles.
    pub tiles: BackwardTiles,
    /// The rings, in their places.
    pub rings: BackwardRings,
    /// The products.
    pub products: BackwardProducts,
    /// Whether registers are left to read row sums before they are needed, and to begin the product for dV before the gradients of the
    /// scores are computed.
    pub ahead: bool,
    /// Whether the product for dQ is dQ transposed, `K^T dS^T`; otherwise `dS K`.
    pub dq_transposed: bool,
}

/// Two consumers with the same 64 keys: the first one computes P and keeps dV, the second one computes dS and keeps dK. Each
/// computes some columns of dQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairPlan {
    /// The ring of dO with row sums.
    pub do_ring: RingPlan,
    /// The ring of one stage in which P is passed on, in `f32`, in the order of a thread's accumulators.
    pub p_ring: RingPlan,
    /// Each consumer's part of the product for dQ: its columns of K.
    pub dq: [ProductSpec; 2],
}

impl PairPlan {
    /// Columns of dQ that are added at once.
    pub const COLUMNS: u32 = 64;

    /// The first part of dQ with columns of a consumer.
    pub fn first_part(&self, consumer: usize) -> u32 {
        let before = &self.dq[..consumer];
        before.iter().map(|product| product.spec().tile[1] / Self::COLUMNS).sum()
    }

    /// Each consumer's part of the product for dQ, whose first factor is the tile of dS: the columns of K that it has of the tile `across`.
    fn products(
        spec: &BackwardSpec,
        tiles: &BackwardTiles,
        atom: Atom,
    ) -> Result<[ProductSpec; 2], AttentionError> {
        let BackwardSpec { format, tile: [_, keys], .. } = *spec;
        let layout = TileLayout::Slabs(tiles.keys_across.swizzle());
        let columns = |columns| OperandTile::new(format, Major::Mn, [columns, keys], layout);
        let first = columns(128)?;
        let second = columns(wide(spec)[0] - 128)?.at(first.room().bytes);
        let product = |k| ProductSpec::new(atom, [tiles.differences, k], among(spec));
        Ok([product(first)?, product(second)?])
    }
}

/// The shared memory through which CTAs add up dK and dV, those of a cluster or in device memory, where operands were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangePlan {
    /// First bytes of a CTA's own sums of dK and dV, in `f32`, in the order of a thread's accumulators.
    pub sums: [u32; 2],
    /// First bytes of the slabs of columns of dK and dV that a CTA of a cluster has added up.
    pub staged: [u32; 2],
}

impl ExchangePlan {
    /// Finds room: before the parts of dQ, which may still be read, and where a pair had dO; what does not fit there follows the `shared_bytes`
    /// bytes of the rings. Returns the bytes of all.
    fn of(
        spec: &BackwardSpec,
        tiles: &BackwardTiles,
        rings: &BackwardRings,
        (d_o, shared_bytes): (Option<RingPlan>, u32),
    ) -> Result<(Option<Self>, u32), AttentionError> {
        let BackwardSpec { tile: [_, keys], split, apart, .. } = *spec;
        if split == 1 && apart == 0 {
            return Ok((None, shared_bytes));
        }
        let [of_k, of_v] = multiplied(spec).map(|d| keys * d * 4);
        let [slab, _] = tiles.output_slab(spec);
        let staged = |i| tiles.output_slabs(spec, i).div_ceil(split) * keys * slab;
        let [slabs_k, slabs_v] = if apart > 0 { [0; 2] } else { [0, 1].map(staged) };
        let mut end = shared_bytes;
        let mut room = |bytes: u32, [begin, beyond]: [u32; 2]| {
            if begin + bytes <= beyond {
                return begin;
            }
            let begin = end.next_multiple_of(1024);
            end = begin + bytes;
            begin
        };
        let operands = [rings.kv.start, rings.dq.start];
        let sums = room(of_k + of_v, operands);
        let left = if sums == operands[0] { [sums + of_k + of_v, operands[1]] } else { operands };
        let of_pair = d_o.map(|ring| [ring.start, ring.start + ring.stages * ring.stage_bytes]);
        let staged = room(slabs_k + slabs_v, of_pair.unwrap_or(left));
        if end > AttentionPlan::TARGET.limits().shared_bytes {
            let needed = "a tile of fewer queries or keys";
            let (what, of) = if apart > 0 { ("apart", apart) } else { (SPLIT, split) };
            return Err(refused(what, of, needed));
        }
        Ok((Some(Self { sums: [sums, sums + of_k], staged: [staged, staged + slabs_k] }), end))
    }

    /// The CTA that adds up a slab of columns of dK (0) or dV (1), and the slab's number among those of this CTA.
    pub(super) fn owner(&self, plan: &BackwardPlan, i: usize, slab: u32) -> [u32; 2] {
        let (split, before) =
            (plan.spec.split, if i == 0 { 0 } else { plan.tiles.output_slabs(&plan.spec, 0) });
        [(before + slab) % split, slab / split]
    }
}

/// What the number of CTAs that share queries is called.
const SPLIT: &str = "split, the CTAs that share the queries of a block of keys,";

/// Bytes of the counts of a block of keys whose CTAs add up dK and dV in memory: how many have done so, and whether there are zeros for it.
pub(super) const ARRIVED: u32 = 8;

/// Bytes per query of what is one `f32` per query.
pub(super) const LINE: u32 = 4;

impl BackwardPlan {
    /// Checks a spec and computes every number of its programs.
    ///
    /// # Errors
    /// The first field of the spec that is not possible.
    pub fn new(spec: BackwardSpec) -> Result<Self, AttentionError> {
        Self::of(spec, spec.scores().changes())
    }

    /// The same with scores that are changed, whatever the spec says.
    pub(super) fn of(spec: BackwardSpec, changes: bool) -> Result<Self, AttentionError> {
        let types = checked(&spec)?;
        let (registers, ahead) = registers(&spec, changes)?;
        let tiles = BackwardTiles::of(&spec)?;
        let (rings, passed, shared_bytes) = if is_pair(&spec) {
            BackwardRings::of_pair(&spec, &tiles)
        } else {
            BackwardRings::of(&spec, &tiles)
        };
        let of_pair = |[do_ring, p_ring]: [RingPlan; 2]| {
            let dq = PairPlan::products(&spec, &tiles, Atom::shared(types))?;
            Ok::<_, AttentionError>(PairPlan { do_ring, p_ring, dq })
        };
        let placed = (passed.map(|[d_o, _]| d_o), shared_bytes);
        let (exchange, shared_bytes) = ExchangePlan::of(&spec, &tiles, &rings, placed)?;
        if shared_bytes > AttentionPlan::TARGET.limits().shared_bytes {
            let needed = "a number whose tiles fit into shared memory";
            return Err(refused("the number of queries per tile", spec.tile[0], needed));
        }
        Ok(Self {
            spec,
            wide: wide(&spec),
            multiplied: multiplied(&spec),
            cta: CtaPlan {
                cluster: spec.split,
                // It begins while the last queries are prepared, if it need not read lengths to find its block.
                overlaps: spec.lengths == Lengths::Equal,
                peers: if spec.split > 1 { Peers::Exchange } else { Peers::Apart },
                ..CtaPlan::alone(Producer::Warpgroup, consumers(&spec), registers, shared_bytes)
            },
            exchange,
            pair: passed.map(of_pair).transpose()?,
            tiles,
            rings,
            products: BackwardProducts::of(&spec, types, &tiles)?,
            ahead,
            dq_transposed: is_dq_transposed(&spec),
        })
    }

    /// Whether sequences have lengths of their own.
    pub(super) fn is_packed(&self) -> bool {
        self.spec.lengths == Lengths::Packed
    }

    /// Whether a CTA walks over several blocks of keys, which its rings decide.
    pub(super) const fn walks(&self) -> bool {
        self.rings.blocks.is_some()
    }

    /// Bytes of the words of a block of keys that a CTA's roles read: its number, its place, and what belongs to it if lengths differ.
    pub(super) fn block_bytes(&self) -> u32 {
        self.rings.blocks.map_or(0, |ring| ring.transaction_bytes())
    }

    /// Whether CTAs store zeros for the sums of dQ to which later ones add. In a fixed order the first block stores its sums; where some heads are
    /// whole and others apart, sequences are long, and it would take as long as it saves.
    pub(super) const fn zeros_ahead(&self) -> bool {
        !self.spec.deterministic && self.spec.whole == 0
    }

    /// Whether something is counted from zero: CTAs that add to a block of keys, tiles whose sums are zero, or blocks that are drawn.
    pub(super) const fn counts(&self) -> bool {
        self.spec.apart > 0 || self.zeros_ahead() || self.walks()
    }

    /// Bytes of the sums of dK and dV of a block of keys.
    pub fn block_sum_bytes(&self) -> u32 {
        let [of_k, of_v] = self.multiplied;
        self.spec.tile[1] * (of_k + of_v) * 4
    }

    /// Bytes of the sums of dQ of a tile of queries.
    pub fn sum_bytes(&self) -> u32 {
        self.spec.tile[0] * self.wide[0] * 4
    }
}

/// The tiles of a CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackwardTiles {
    /// K and V.
    pub keys: [OperandTile; 2],
    /// Q and dO.
    pub queries: [OperandTile; 2],
    /// K, as dQ's product reads it.
    pub keys_across: OperandTile,
    /// Q and dO, as the products of dK and dV read them.
    pub queries_across: [OperandTile; 2],
    /// P^T and dS^T in registers.
    pub weights: OperandTile,
    /// dS in shared memory, as dQ's product reads it.
    pub differences: OperandTile,
    /// A consumer's part of dK and of dV in shared memory.
    pub outputs: [OperandTile; 2],
}

impl BackwardTiles {
    /// Bytes of a row of a slab of dK or dV, which have the same ones, and its columns.
    pub(super) fn output_slab(&self, spec: &BackwardSpec) -> [u32; 2] {
        let columns = self.outputs[0].swizzle().elements(spec.format.bits());
        [columns * spec.format.bits() / 8, columns]
    }

    /// Bytes of a slab of dK or dV of all keys of a block.
    pub(super) fn output_slab_bytes(&self, spec: &BackwardSpec) -> u32 {
        let [row_bytes, _] = self.output_slab(spec);
        spec.tile[1] * row_bytes
    }

    /// Slabs of dK (0) or dV (1).
    pub(super) fn output_slabs(&self, spec: &BackwardSpec, i: usize) -> u32 {
        let [_, columns] = self.output_slab(spec);
        spec.head[i].div_ceil(columns)
    }

    fn of(spec: &BackwardSpec) -> Result<Self, AttentionError> {
        let BackwardSpec { format, tile: [rows, keys], .. } = *spec;
        let widest = TileLayout::Widest;
        let [wide_k, wide_v] = wide(spec);
        let tile = |major, extents| OperandTile::new(format, major, extents, widest);
        let [k, v] = [tile(Major::K, [keys, wide_k])?, tile(Major::K, [keys, wide_v])?];
        let output = |of: OperandTile, wide| {
            OperandTile::new(format, Major::K, [64, wide], TileLayout::Slabs(of.swizzle()))
        };
        Ok(Self {
            keys: [k, v],
            queries: [tile(Major::K, [rows, wide_k])?, tile(Major::K, [rows, wide_v])?],
            keys_across: tile(Major::Mn, [wide_k, keys])?,
            queries_across: [tile(Major::Mn, [wide_k, rows])?, tile(Major::Mn, [wide_v, rows])?],
            weights: tile(Major::K, [keys, rows])?,
            differences: tile(Major::Mn, [rows, keys])?,
            outputs: [output(k, wide_k)?, output(v, wide_v)?],
        })
    }
}

/// The products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackwardProducts {
    /// `K Q^T` and `V dO^T`.
    pub scores: [ProductSpec; 2],
    /// `dS^T Q` and `P^T dO`.
    pub sums: [ProductSpec; 2],
    /// The product for dQ.
    pub dq: ProductSpec,
}

impl BackwardProducts {
    fn of(
        spec: &BackwardSpec,
        types: ptx::WgmmaTypes,
        tiles: &BackwardTiles,
    ) -> Result<Self, AttentionError> {
        let BackwardTiles { keys: [k, v], queries: [q, d_o], queries_across: [q_across, d_o_across], .. } =
            *tiles;
        let (shared, fragments) = (Atom::shared(types), Atom::registers(types));
        let of_dq = if is_dq_transposed(spec) {
            [tiles.keys_across, tiles.differences]
        } else {
            [tiles.differences, tiles.keys_across]
        };
        let product = |atom, tiles| ProductSpec::new(atom, tiles, among(spec));
        let ([of_k, of_v], rows) = (multiplied(spec), spec.tile[0]);
        Ok(Self {
            scores: [
                product(shared, [k, q])?.of_first([rows, of_k])?,
                product(shared, [v, d_o])?.of_first([rows, of_v])?,
            ],
            sums: [
                product(fragments, [tiles.weights, q_across])?.of_first([of_k, rows])?,
                product(fragments, [tiles.weights, d_o_across])?.of_first([of_v, rows])?,
            ],
            dq: product(shared, of_dq)?,
        })
    }
}
