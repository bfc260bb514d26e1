//! The plan: every number of the three programs, from a spec.

mod rings;

use collective::{Atom, CtaPlan, OperandTile, Producer, ProductSpec, RingPlan, RoleRegisters, TileLayout};
use cute_rs::atom::Major;

use self::rings::Rings;
use super::spec::BackwardSpec;
use crate::error::AttentionError;
use crate::plan::{head_of_values, refused, sixteen_bits};
use crate::spec::Lengths;

/// Every number of a kernel of the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackwardPlan {
    /// The spec.
    pub spec: BackwardSpec,
    /// Elements of a head of Q and K, and of V and dO, in shared memory: those after the head's are zeros.
    pub wide: [u32; 2],
    /// The CTA of the main program. Each consumer warpgroup has 64 keys; or two have the same ones.
    pub cta: CtaPlan,
    /// What two consumers with the same keys need, where the registers of one hold dV or dK alone.
    pub pair: Option<PairPlan>,
    /// The tiles of K and V.
    pub keys: [OperandTile; 2],
    /// The tiles of Q and dO.
    pub queries: [OperandTile; 2],
    /// dS in shared memory, as dQ's product reads it.
    pub differences: OperandTile,
    /// A consumer's part of dK and of dV in shared memory.
    pub outputs: [OperandTile; 2],
    /// The ring of one stage with K and V.
    pub kv_ring: RingPlan,
    /// The ring of Q with exponents and dO with row sums; that of Q with exponents, if dO has one of its own.
    pub q_ring: RingPlan,
    /// The ring in which dQ of a tile waits to be added: one stage; or some that have columns of it.
    pub dq_ring: RingPlan,
    /// If blocks add in a fixed order: the rings, without any bytes, of turns to add to a tile, and of tiles that were added to.
    pub order: Option<[RingPlan; 2]>,
    /// The buffers of dS. Named barriers order their accesses, or mbarriers those of a pair.
    pub ds_ring: RingPlan,
    /// The products `K Q^T` and `V dO^T`.
    pub scores: [ProductSpec; 2],
    /// The products `dS^T Q` and `P^T dO`.
    pub sums: [ProductSpec; 2],
    /// Whether registers are left to read row sums before they are needed, and to begin the product for dV before the gradients of the
    /// scores are computed.
    pub ahead: bool,
    /// The product for dQ.
    pub dq: ProductSpec,
    /// Whether that is dQ transposed, `K^T dS^T`; otherwise `dS K`.
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

    /// Stages of the ring of dQ that a consumer's columns need.
    pub fn parts(&self, consumer: usize) -> u32 {
        self.dq[consumer].spec().tile[1] / Self::COLUMNS
    }

    /// Each consumer's part of the product for dQ, whose first factor is the tile of dS: the columns of K that it has of the tile `across`.
    fn products(spec: &BackwardSpec, tiles: &Tiles, atom: Atom) -> Result<[ProductSpec; 2], AttentionError> {
        let BackwardSpec { format, tile: [_, keys], .. } = *spec;
        let layout = TileLayout::Slabs(tiles.keys_across.swizzle());
        let columns = |columns| OperandTile::new(format, Major::Mn, [columns, keys], layout);
        let first = columns(128)?;
        let second = columns(wide(spec)[0] - 128)?.at(first.room().bytes);
        let product = |k| ProductSpec::new(atom, [tiles.differences, k], among(spec));
        Ok([product(first)?, product(second)?])
    }
}

/// Registers of a consumer apart from accumulators and operands.
const WORKING: u32 = 13;

/// Bytes per query of what is one `f32` per query.
pub(super) const LINE: u32 = 4;

/// Elements of a head in shared memory.
fn padded(d: u32) -> u32 {
    d.next_multiple_of(64)
}

impl BackwardPlan {
    /// Checks a spec and computes every number of its programs.
    ///
    /// # Errors
    /// The first field of the spec that is not possible.
    pub fn new(spec: BackwardSpec) -> Result<Self, AttentionError> {
        let types = checked(&spec)?;
        let (registers, ahead) = registers(&spec)?;
        let tiles = Tiles::of(&spec)?;
        let Rings { kv_ring, q_ring, ds_ring, dq_ring, turns, done, passed, shared_bytes } =
            if is_pair(&spec) { Rings::of_pair(&spec, &tiles) } else { Rings::of(&spec, &tiles) };
        let Products { scores, sums, dq } = Products::of(&spec, types, &tiles)?;
        let of_pair = |[do_ring, p_ring]: [RingPlan; 2]| {
            let dq = PairPlan::products(&spec, &tiles, Atom::shared(types))?;
            Ok::<_, AttentionError>(PairPlan { do_ring, p_ring, dq })
        };
        let pair = passed.map(of_pair).transpose()?;
        Ok(Self {
            spec,
            wide: wide(&spec),
            cta: CtaPlan::alone(Producer::Warpgroup, consumers(&spec), registers, shared_bytes),
            pair,
            keys: tiles.keys,
            queries: tiles.queries,
            differences: tiles.differences,
            outputs: tiles.outputs,
            kv_ring,
            q_ring,
            ds_ring,
            dq_ring,
            order: spec.deterministic.then_some([turns, done]),
            scores,
            sums,
            ahead,
            dq,
            dq_transposed: is_dq_transposed(&spec),
        })
    }

    /// Whether sequences have lengths of their own.
    pub(super) fn is_packed(&self) -> bool {
        self.spec.lengths == Lengths::Packed
    }

    /// Bytes of the sums of dQ of a tile of queries.
    pub fn sum_bytes(&self) -> u32 {
        self.spec.tile[0] * self.wide[0] * 4
    }
}

/// Elements of a head of Q and K, and of V and dO, in shared memory.
fn wide(spec: &BackwardSpec) -> [u32; 2] {
    let [d, dv] = spec.head;
    [padded(d), padded(dv)]
}

/// Whether two consumers have the same keys.
fn is_pair(spec: &BackwardSpec) -> bool {
    wide(spec)[0] > 128
}

/// Consumers among which the rows of products are divided.
fn among(spec: &BackwardSpec) -> u32 {
    spec.tile[1] / 64
}

fn consumers(spec: &BackwardSpec) -> u32 {
    if is_pair(spec) { 2 } else { among(spec) }
}

/// Whether dQ is computed transposed. Every consumer computes 64 rows of dQ's product, or a multiple of these.
fn is_dq_transposed(spec: &BackwardSpec) -> bool {
    !is_pair(spec) && wide(spec)[0].is_multiple_of(spec.tile[1])
}

/// Checks a spec. Returns the instruction types of its products.
fn checked(spec: &BackwardSpec) -> Result<ptx::WgmmaTypes, AttentionError> {
    let BackwardSpec { format, head: [d, _], tile: [rows, keys], .. } = *spec;
    let Some(types) = sixteen_bits(format) else {
        return Err(refused("format", format, "bf16 or f16"));
    };
    if !matches!(d, 64 | 96 | 128 | 192 | 256) {
        return Err(refused("d, the elements of a head of Q and K,", d, "64, 96, 128, 192 or 256"));
    }
    head_of_values(spec.head)?;
    let is_pair = is_pair(spec);
    let [queries_of_pair, keys_of_pair] = [
        "the number of queries per tile, with heads of more than 128 elements,",
        "the number of keys per block, with heads of more than 128 elements,",
    ];
    if is_pair && rows != 64 {
        return Err(refused(queries_of_pair, rows, "64"));
    }
    if is_pair && keys != 64 {
        return Err(refused(keys_of_pair, keys, "64"));
    }
    if !(16..=128).contains(&rows) || !rows.is_multiple_of(16) {
        return Err(refused("the number of queries per tile", rows, "a multiple of 16 from 16 to 128"));
    }
    if !matches!(keys, 64 | 128) {
        return Err(refused("the number of keys per block", keys, "64 or 128"));
    }
    if !is_dq_transposed(spec) && !rows.is_multiple_of(keys) {
        return Err(refused("the number of queries per tile", rows, "128 for 128 keys with d=64"));
    }
    Ok(types)
}

/// The registers of the roles, and whether some are left to work ahead.
fn registers(spec: &BackwardSpec) -> Result<(RoleRegisters, bool), AttentionError> {
    let (wide, [rows, _]) = (wide(spec), spec.tile);
    let (is_pair, consumers) = (is_pair(spec), consumers(spec));
    let producer = 24;
    let registers = RoleRegisters::divided(consumers, Some(producer));
    let consumer = registers.consumer;
    // dK and dV. With them scores, their gradients, and P or dS in 16 bits; or dQ with P and dS. With more, the assembler serialises the
    // products. A pair has enough for its tile.
    let kept = (wide[0] + wide[1]) / 2;
    let of_dq = wide[0] * rows / (consumers * 128) + rows / 2 + 8;
    let need = kept + if of_dq > rows + rows / 4 { of_dq } else { rows + rows / 4 } + WORKING;
    let ahead = !is_pair && kept + rows + rows / 2 + WORKING <= consumer;
    if !is_pair && need > consumer {
        return Err(AttentionError::Registers {
            need,
            have: consumer,
            rows,
            keys: spec.tile[1],
            fewer: "queries per tile",
        });
    }
    Ok((registers, ahead))
}

/// The tiles of a CTA.
struct Tiles {
    keys: [OperandTile; 2],
    queries: [OperandTile; 2],
    keys_across: OperandTile,
    queries_across: [OperandTile; 2],
    weights: OperandTile,
    differences: OperandTile,
    outputs: [OperandTile; 2],
}

impl Tiles {
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

/// The products: `K Q^T` and `V dO^T`; `dS^T Q` and `P^T dO`; and the one for dQ.
struct Products {
    scores: [ProductSpec; 2],
    sums: [ProductSpec; 2],
    dq: ProductSpec,
}

impl Products {
    fn of(spec: &BackwardSpec, types: ptx::WgmmaTypes, tiles: &Tiles) -> Result<Self, AttentionError> {
        let Tiles { keys: [k, v], queries: [q, d_o], queries_across: [q_across, d_o_across], .. } = *tiles;
        let (shared, fragments) = (Atom::shared(types), Atom::registers(types));
        let of_dq = if is_dq_transposed(spec) {
            [tiles.keys_across, tiles.differences]
        } else {
            [tiles.differences, tiles.keys_across]
        };
        let product = |atom, tiles| ProductSpec::new(atom, tiles, among(spec));
        Ok(Self {
            scores: [product(shared, [k, q])?, product(shared, [v, d_o])?],
            sums: [
                product(fragments, [tiles.weights, q_across])?,
                product(fragments, [tiles.weights, d_o_across])?,
            ],
            dq: product(shared, of_dq)?,
        })
    }
}
