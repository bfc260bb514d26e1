//! The rules that a spec of the backward pass must keep, and the numbers that follow from it alone.

use collective::RoleRegisters;

use crate::backward::spec::BackwardSpec;
use crate::error::AttentionError;
use crate::head;
use crate::plan::{formulas, refused, sixteen_bits};

/// Registers of a consumer apart from accumulators and operands. With 80 queries and a causal mask the assembler moves some 15 more to local memory, where
/// a tile is masked; with long sequences that is faster than 64 queries are.
const WORKING: u32 = 12;

/// Most CTAs that share a head of queries.
const MOST_APART: u32 = 64;

/// Elements of a head in shared memory.
fn padded(d: u32) -> u32 {
    d.next_multiple_of(64)
}

/// Elements of a head of Q and K, and of V and dO, in shared memory.
pub(super) fn wide(spec: &BackwardSpec) -> [u32; 2] {
    let [d, dv] = spec.head;
    [padded(d), padded(dv)]
}

/// Elements of a head of Q and K, and of V and dO, that products multiply, apart from that for dQ. Of 96, those in shared memory: no other kernel
/// was measured.
pub(super) fn multiplied(spec: &BackwardSpec) -> [u32; 2] {
    spec.head.map(|d| if d == 96 { padded(d) } else { d })
}

/// Whether two consumers have the same keys.
pub(super) fn is_pair(spec: &BackwardSpec) -> bool {
    wide(spec)[0] > 128
}

/// Consumers among which the rows of products are divided.
pub(super) fn among(spec: &BackwardSpec) -> u32 {
    spec.tile[1] / 64
}

pub(super) fn consumers(spec: &BackwardSpec) -> u32 {
    if is_pair(spec) { 2 } else { among(spec) }
}

/// Whether dQ is computed transposed. Every consumer computes 64 rows of dQ's product, or a multiple of these.
pub(super) fn is_dq_transposed(spec: &BackwardSpec) -> bool {
    !is_pair(spec) && wide(spec)[0].is_multiple_of(spec.tile[1])
}

/// Checks a spec. Returns the instruction types of its products.
pub(super) fn checked(spec: &BackwardSpec) -> Result<ptx::WgmmaTypes, AttentionError> {
    let BackwardSpec { format, tile: [rows, keys], .. } = *spec;
    let Some(types) = sixteen_bits(format) else {
        return Err(refused("format", format, "bf16 or f16"));
    };
    head::checked(spec.head, head::NEEDED)?;
    formulas(&spec.of_forward())?;
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
    if !matches!(spec.split, 1 | 2 | 4 | 8) {
        return Err(refused(super::SPLIT, spec.split, "1, 2, 4 or 8"));
    }
    if spec.apart > MOST_APART {
        let what = "apart, the CTAs that add up dK and dV of a head in memory,";
        return Err(refused(what, spec.apart, "a number up to 64"));
    }
    if spec.apart > 0 && spec.split > 1 {
        let what =
            "apart, the CTAs that add up dK and dV of a head in memory, beside clusters that share queries,";
        return Err(refused(what, spec.apart, "0"));
    }
    if spec.apart == 0 && spec.whole > 0 {
        return Err(refused(
            "whole, the heads of keys before those of which heads of queries are apart,",
            spec.whole,
            "0",
        ));
    }
    if spec.apart > 0 && spec.deterministic {
        let what = "apart, the CTAs that add up dK and dV of a head in memory, in a fixed order,";
        return Err(refused(what, spec.apart, "0"));
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

/// Registers that the slopes of changed scores need in addition.
const CHANGED: u32 = 8;

/// The registers of the roles, and whether some are left to work ahead.
pub(super) fn registers(spec: &BackwardSpec, changes: bool) -> Result<(RoleRegisters, bool), AttentionError> {
    let ([wide, _], [of_k, of_v], [rows, _]) = (wide(spec), multiplied(spec), spec.tile);
    let (is_pair, consumers) = (is_pair(spec), consumers(spec));
    let producer = 24;
    let registers = RoleRegisters::divided(consumers, Some(producer));
    let consumer = registers.consumer;
    // dK and dV. With them scores, their gradients, and P or dS in 16 bits; or dQ with P and dS. With more, the assembler serialises the
    // products. A pair has enough for its tile.
    let kept = (of_k + of_v) / 2;
    let of_dq = wide * rows / (consumers * 128) + rows / 2 + 8;
    let need = kept + if of_dq > rows + rows / 4 { of_dq } else { rows + rows / 4 } + WORKING;
    let need = need + if changes { CHANGED } else { 0 };
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
