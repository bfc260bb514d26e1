//! The plan: every number of the three programs, from a spec.

use collective::{
    Arrivals, Atom, CtaPlan, Format, MainloopSpec, OperandSpec, OperandTile, Peers, Producer, RegisterPlan,
    RingPlan, StageSlot, TileLayout,
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
    /// The tiles do not fit into shared memory.
    #[error(
        "tiles of {queries} queries x {keys} keys need {need} B of shared memory, a CTA has {have} B: take fewer queries per tile"
    )]
    SharedMemory {
        /// Queries per tile.
        queries: u32,
        /// Keys per block.
        keys: u32,
        /// Bytes needed.
        need: u32,
        /// Bytes of a CTA.
        have: u32,
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
    /// Whether dV has a program of its own, so that a consumer keeps dV or dK, and never both.
    pub divided: bool,
    /// The CTA of the main program. Each consumer warpgroup has 64 keys.
    pub cta: CtaPlan,
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
    /// The ring of Q with exponents and dO with row sums.
    pub q_ring: RingPlan,
    /// The ring of one stage in which dQ of a tile waits to be added.
    pub dq_ring: RingPlan,
    /// The buffers of dS. Named barriers order their accesses.
    pub ds_ring: RingPlan,
    /// The products `K Q^T` and `V dO^T`.
    pub scores: [MainloopSpec; 2],
    /// The products `dS^T Q` and `P^T dO`.
    pub sums: [MainloopSpec; 2],
    /// Whether registers are left to read numbers of queries before they are needed, and to begin the product for dV before the
    /// gradients of the scores are computed.
    pub ahead: bool,
    /// The product for dQ.
    pub dq: MainloopSpec,
    /// Whether that is dQ transposed, `K^T dS^T`; otherwise `dS K`.
    pub dq_transposed: bool,
}

/// Registers of a consumer apart from accumulators and operands.
const WORKING: u32 = 13;

/// Bytes per query of what is one `f32` per query.
pub(super) const LINE: u32 = 4;

/// Elements of a head in shared memory. Consumers share more than 128 evenly.
const fn padded(d: u32) -> u32 {
    d.next_multiple_of(if d > 128 { 128 } else { 64 })
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
        let limits = AttentionPlan::TARGET.limits();
        let Some(types) = sixteen_bits(format) else { return Err(BackwardError::Format { format }) };
        if !matches!(d, 64 | 96 | 128 | 192 | 256) {
            return Err(number("d, the elements of a head of Q and K,", d, "64, 96, 128, 192 or 256"));
        }
        if dv != d && !(d == 192 && dv == 128) {
            let needed = "the number of Q and K, or 128 with their 192,";
            return Err(number("d of V and O", dv, needed));
        }
        if d == 192 && matches!(spec.lengths, Lengths::Packed) {
            // A box of padding alone is outside of the tensor, and reads at the tensor map's beginning.
            return Err(number("d of Q and K, with lengths=packed,", d, "64, 96, 128 or 256"));
        }
        if rows < 16 || rows > 128 || !rows.is_multiple_of(16) {
            return Err(number("the number of queries per tile", rows, "a multiple of 16 from 16 to 128"));
        }
        if !matches!(keys, 64 | 128) {
            return Err(number("the number of keys per block", keys, "64 or 128"));
        }
        let consumers = keys / 64;
        // Every consumer computes 64 rows of dQ's product, or a multiple of these.
        let wide = [padded(d), padded(dv)];
        let divided = wide[0] > 128;
        let dq_transposed = wide[0].is_multiple_of(keys);
        if !dq_transposed && !rows.is_multiple_of(keys) {
            return Err(number("the number of queries per tile", rows, "128 for 128 keys with d=64"));
        }
        let producer = 24;
        let [_, consumer] = RegisterPlan::divided(consumers, Some(producer));
        // dK and dV, or one of them. With them scores, their gradients, and P or dS in 16 bits; or dQ with those of P and dS that there are. With more, the
        // assembler serialises the products.
        let kept = if divided { wide[0] / 2 } else { (wide[0] + wide[1]) / 2 };
        let of_dq = wide[0] * rows / (consumers * 128) + if divided { rows / 4 } else { rows / 2 } + 8;
        let need = kept + if of_dq > rows + rows / 4 { of_dq } else { rows + rows / 4 } + WORKING;
        let ahead = !divided && kept + rows + rows / 2 + WORKING <= consumer;
        if need > consumer {
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
        let kv = RingPlan::of(&[k.room(), v.room()]);
        let line = StageSlot::line(rows * LINE);
        let q_ring = RingPlan::of(&[q.room(), line, d_o.room(), line]);
        let dq = RingPlan::of(&[StageSlot::line(rows * wide_k * 4)]);
        let ds = RingPlan::of(&[differences.room()]);
        // Two stages of Q and dO, and two buffers of dS, as far as they fit.
        let fixed = kv.need(1) + dq.need(1);
        let each = q_ring.need(1);
        let have = limits.shared_bytes;
        let [stages, buffers] = if fixed + 2 * each + ds.need(2) <= have {
            [2, 2]
        } else if fixed + 2 * each + ds.need(1) <= have {
            [2, 1]
        } else {
            [1, 1]
        };
        let need = fixed + stages * each + ds.need(buffers);
        if need > have {
            return Err(BackwardError::SharedMemory { queries: rows, keys, need, have });
        }
        let arrivals = consumers * Arrivals::Warpgroup.count();
        let q_ring = q_ring.arrivals(1, arrivals);
        let adds = dq.arrivals(consumers * Arrivals::Warp.count(), 1);
        let rings = [kv.arrivals(1, 0), q_ring, ds.arrivals(0, 0), adds];
        let (rings, shared_bytes) = RingPlan::placed_together(rings, [1, stages, buffers, 1], 0);
        let [kv_ring, q_ring, ds_ring, dq_ring] = rings;

        let base = MainloopSpec { consumers, ..KernelSpec::DEFAULT.mainloop };
        let operand = OperandSpec::k_major(format);
        let across = OperandSpec { major: Major::Mn, ..operand };
        let (shared, registers) = (Atom::shared(types), Atom::registers(types));
        let scores =
            MainloopSpec { operands: [operand; 2], atom: shared, tile: [keys, rows, wide_k], ..base };
        let gradients = MainloopSpec { tile: [keys, rows, wide_v], ..scores };
        let of_k =
            MainloopSpec { operands: [operand, across], atom: registers, tile: [keys, wide_k, rows], ..base };
        let of_v = MainloopSpec { tile: [keys, wide_v, rows], ..of_k };
        let tile = if dq_transposed { [wide_k, rows, keys] } else { [rows, wide_k, keys] };
        Ok(Self {
            spec,
            wide,
            divided,
            cta: CtaPlan {
                producer: Some(Producer::Warpgroup),
                consumers,
                registers: [producer, consumer],
                shared_bytes,
                cluster: 1,
                peers: Peers::Apart,
                overlaps: false,
                turns: false,
            },
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
            scores: [scores, gradients],
            sums: [of_k, of_v],
            ahead,
            dq: MainloopSpec { operands: [across; 2], atom: shared, tile, ..base },
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
