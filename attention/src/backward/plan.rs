//! The plan: every number of the three programs, from a spec.

use collective::{
    Arrivals, Atom, CtaPlan, Format, MainloopSpec, OperandSpec, OperandTile, Peers, Producer, RingPlan,
    RoleRegisters, StageSlot, TileLayout,
};
use cute_rs::atom::Major;
use kernel::KernelSpec;

use super::spec::BackwardSpec;
use crate::plan::{AttentionPlan, sixteen_bits};
use crate::spec::Lengths;

/// Why a spec is no kernel. Each error names the field, its value and what was needed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BackwardError {
    /// A word of a spec's text.
    #[error("`{key}={value}`: {needed} was needed")]
    Word {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What was needed.
        needed: String,
    },
    /// A format that is not supported.
    #[error("format is {format}, bf16 or f16 was needed")]
    Format {
        /// The format given.
        format: Format,
    },
    /// A number that is not possible.
    #[error("{field} is {value}, {needed} was needed")]
    Number {
        /// Which number.
        field: &'static str,
        /// Its value.
        value: u32,
        /// What is allowed.
        needed: &'static str,
    },
    /// A thread has too few registers.
    #[error(
        "a consumer thread needs about {need} registers for {queries} queries per tile, it has {have}: take fewer queries per tile"
    )]
    Registers {
        /// Registers needed.
        need: u32,
        /// Registers of a thread.
        have: u32,
        /// Queries per tile.
        queries: u32,
    },
    /// The derivative of a score function is not known.
    #[error(
        "the scores `{scores}` are changed by a function whose derivative is not known: only masks have a backward pass"
    )]
    Scores {
        /// Their name.
        scores: String,
    },
}

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
    /// K as dQ's product reads it: keys along K.
    pub keys_across: OperandTile,
    /// Q and dO as the products for dK and dV read them: queries along K.
    pub queries_across: [OperandTile; 2],
    /// P and dS in registers.
    pub weights: OperandTile,
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
    pub scores: [MainloopSpec; 2],
    /// The products `dS^T Q` and `P^T dO`.
    pub sums: [MainloopSpec; 2],
    /// Whether registers are left to read row sums before they are needed, and to begin the product for dV before the gradients of the
    /// scores are computed.
    pub ahead: bool,
    /// The product for dQ.
    pub dq: MainloopSpec,
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
    /// Each consumer's part of the product for dQ, and its columns of K.
    pub dq: [(MainloopSpec, OperandTile); 2],
}

impl PairPlan {
    /// Columns of dQ that are added at once.
    pub const COLUMNS: u32 = 64;

    /// Stages of the ring of dQ that a consumer's columns need.
    pub const fn parts(&self, consumer: usize) -> u32 {
        self.dq[consumer].0.tile[1] / Self::COLUMNS
    }
}

/// Registers of a consumer apart from accumulators and operands.
const WORKING: u32 = 13;

/// Bytes per query of what is one `f32` per query.
pub(super) const LINE: u32 = 4;

/// Elements of a head in shared memory.
const fn padded(d: u32) -> u32 {
    d.next_multiple_of(64)
}

const fn number(field: &'static str, value: u32, needed: &'static str) -> BackwardError {
    BackwardError::Number { field, value, needed }
}

impl BackwardPlan {
    /// Checks a spec and computes every number of its programs.
    ///
    /// # Errors
    /// The first field of the spec that is not possible.
    pub const fn new(spec: BackwardSpec) -> Result<Self, BackwardError> {
        let BackwardSpec { format, head: [d, dv], tile: [rows, keys], .. } = spec;
        let Some(types) = sixteen_bits(format) else { return Err(BackwardError::Format { format }) };
        if !matches!(d, 64 | 96 | 128 | 192 | 256) {
            return Err(number("d, the elements of a head of Q and K,", d, "64, 96, 128, 192 or 256"));
        }
        if dv != d && !(d == 192 && dv == 128) {
            let needed = "the number of Q and K, or 128 with their 192,";
            return Err(number("d of V and O", dv, needed));
        }
        let wide = [padded(d), padded(dv)];
        let is_pair = wide[0] > 128;
        let [queries_of_pair, keys_of_pair] = [
            "the number of queries per tile, with heads of more than 128 elements,",
            "the number of keys per block, with heads of more than 128 elements,",
        ];
        if is_pair && rows != 64 {
            return Err(number(queries_of_pair, rows, "64"));
        }
        if is_pair && keys != 64 {
            return Err(number(keys_of_pair, keys, "64"));
        }
        if rows < 16 || rows > 128 || !rows.is_multiple_of(16) {
            return Err(number("the number of queries per tile", rows, "a multiple of 16 from 16 to 128"));
        }
        if !matches!(keys, 64 | 128) {
            return Err(number("the number of keys per block", keys, "64 or 128"));
        }
        // Consumers among which the rows of products are divided.
        let among = keys / 64;
        let consumers = if is_pair { 2 } else { among };
        // Every consumer computes 64 rows of dQ's product, or a multiple of these.
        let dq_transposed = !is_pair && wide[0].is_multiple_of(keys);
        if !dq_transposed && !rows.is_multiple_of(keys) {
            return Err(number("the number of queries per tile", rows, "128 for 128 keys with d=64"));
        }
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
            return Err(BackwardError::Registers { need, have: consumer, queries: rows });
        }

        let widest = TileLayout::Widest;
        let [wide_k, wide_v] = wide;
        let (Ok(k), Ok(k_across), Ok(v), Ok(q), Ok(q_across), Ok(d_o), Ok(d_o_across)) = (
            OperandTile::new(format, Major::K, [keys, wide_k], widest),
            OperandTile::new(format, Major::Mn, [wide_k, keys], widest),
            OperandTile::new(format, Major::K, [keys, wide_v], widest),
            OperandTile::new(format, Major::K, [rows, wide_k], widest),
            OperandTile::new(format, Major::Mn, [wide_k, rows], widest),
            OperandTile::new(format, Major::K, [rows, wide_v], widest),
            OperandTile::new(format, Major::Mn, [wide_v, rows], widest),
        ) else {
            return Err(number("the number of queries per tile", rows, "a number whose tiles fit"));
        };
        let (Ok(weights), Ok(differences)) = (
            OperandTile::new(format, Major::K, [keys, rows], widest),
            OperandTile::new(format, Major::Mn, [rows, keys], widest),
        ) else {
            return Err(number("the number of queries per tile", rows, "a number whose tiles fit"));
        };
        let (Ok(d_k), Ok(d_v)) = (
            OperandTile::new(format, Major::K, [64, wide_k], TileLayout::Slabs(k.swizzle())),
            OperandTile::new(format, Major::K, [64, wide_v], TileLayout::Slabs(v.swizzle())),
        ) else {
            return Err(number("d, the elements of a head,", d, "a multiple of K's swizzle"));
        };
        let kv = RingPlan::of(&[k.room(), v.room()]).arrivals(1, 0);
        let line = StageSlot::line(rows * LINE);
        let ds = RingPlan::of(&[differences.room()]);
        let (of_warps, of_warpgroup) = (Arrivals::Warp.count(), Arrivals::Warpgroup.count());
        let (order, in_order) = (RingPlan::of(&[]), if spec.deterministic { 2 } else { 0 });
        let (rings, passed, shared_bytes) = if is_pair {
            // One consumer reads a line by its threads, and both read the tile by products.
            let released = of_warps + of_warpgroup;
            let q_ring = RingPlan::of(&[q.room(), line]).arrivals(1, released);
            let do_ring = RingPlan::of(&[d_o.room(), line]).arrivals(1, released);
            let ds = ds.arrivals(of_warps, 2 * of_warpgroup);
            let p = RingPlan::of(&[StageSlot::line(rows * keys * 4)]).arrivals(of_warps, of_warps);
            let dq = RingPlan::of(&[StageSlot::line(rows * PairPlan::COLUMNS * 4)]).arrivals(of_warps, 1);
            // Two stages of Q and, if they fit, of dO; the rest is for what is added.
            let have = AttentionPlan::TARGET.limits().shared_bytes;
            let fixed = kv.need(1) + q_ring.need(2) + ds.need(1) + p.need(1) + 2 * order.need(in_order);
            let stages = if fixed + do_ring.need(2) + dq.need(2) <= have { 2 } else { 1 };
            let parts = dq.fit(have - fixed - do_ring.need(stages));
            let placed = RingPlan::placed_together(
                [kv, q_ring, ds, dq, do_ring, p, order, order],
                [1, 2, 1, parts, stages, 1, in_order, in_order],
                0,
            );
            let ([kv, q_ring, ds, dq, do_ring, p, turns, done], end) = placed;
            ([kv, q_ring, ds, dq, turns, done], Some([do_ring, p]), end)
        } else {
            let q_ring =
                RingPlan::of(&[q.room(), line, d_o.room(), line]).arrivals(1, consumers * of_warpgroup);
            let dq = RingPlan::of(&[StageSlot::line(rows * wide_k * 4)]).arrivals(consumers * of_warps, 1);
            // A tile whose accumulators fit into registers leaves room for two stages of Q and dO, and for two buffers of dS.
            let placed = RingPlan::placed_together(
                [kv, q_ring, ds.arrivals(0, 0), dq, order, order],
                [1, 2, 2, 1, in_order, in_order],
                0,
            );
            (placed.0, None, placed.1)
        };
        let [kv_ring, q_ring, ds_ring, dq_ring, turns, done] = rings;

        let base = MainloopSpec { consumers: among, ..KernelSpec::DEFAULT.mainloop };
        let operand = OperandSpec::k_major(format);
        let across = OperandSpec { major: Major::Mn, ..operand };
        let (shared, fragments) = (Atom::shared(types), Atom::registers(types));
        let scores =
            MainloopSpec { operands: [operand; 2], atom: shared, tile: [keys, rows, wide_k], ..base };
        let gradients = MainloopSpec { tile: [keys, rows, wide_v], ..scores };
        let of_k =
            MainloopSpec { operands: [operand, across], atom: fragments, tile: [keys, wide_k, rows], ..base };
        let of_v = MainloopSpec { tile: [keys, wide_v, rows], ..of_k };
        let tile = if dq_transposed { [wide_k, rows, keys] } else { [rows, wide_k, keys] };
        let dq = MainloopSpec { operands: [across; 2], atom: shared, tile, ..base };
        let pair = match passed {
            None => None,
            Some([do_ring, p_ring]) => {
                let columns = [128, wide_k - 128];
                let layout = TileLayout::Slabs(k_across.swizzle());
                let (Ok(first), Ok(second)) = (
                    OperandTile::new(format, Major::Mn, [columns[0], keys], layout),
                    OperandTile::new(format, Major::Mn, [columns[1], keys], layout),
                ) else {
                    return Err(number("d, the elements of a head,", d, "a multiple of 64"));
                };
                let of_first = MainloopSpec { tile: [rows, columns[0], keys], ..dq };
                let of_second = MainloopSpec { tile: [rows, columns[1], keys], ..dq };
                let dq = [(of_first, first), (of_second, second.at(first.room().bytes))];
                Some(PairPlan { do_ring, p_ring, dq })
            }
        };
        Ok(Self {
            spec,
            wide,
            cta: CtaPlan {
                producer: Some(Producer::Warpgroup),
                consumers,
                registers,
                shared_bytes,
                cluster: 1,
                peers: Peers::Apart,
                overlaps: false,
                turns: false,
            },
            pair,
            keys: [k, v],
            queries: [q, d_o],
            keys_across: k_across,
            queries_across: [q_across, d_o_across],
            weights,
            differences,
            outputs: [d_k, d_v],
            kv_ring,
            q_ring,
            ds_ring,
            dq_ring,
            order: if spec.deterministic { Some([turns, done]) } else { None },
            scores: [scores, gradients],
            sums: [of_k, of_v],
            ahead,
            dq,
            dq_transposed,
        })
    }

    /// Whether sequences have lengths of their own.
    pub(super) fn is_packed(&self) -> bool {
        self.spec.lengths == Lengths::Packed
    }

    /// Bytes of the sums of dQ of a tile of queries.
    pub const fn sum_bytes(&self) -> u32 {
        self.spec.tile[0] * self.wide[0] * 4
    }
}
