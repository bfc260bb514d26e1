//! Weights in few bits of a kernel's operand: drawn, and brought into memory.

use collective::{GroupScales, WeightsSpec};
use kernel::{AnyGemm, Call, GemmProblem, MatrixRef};

use super::product::formats;
use super::{HostMatrix, Weights, weights::Code};

/// How an operand of a kernel lies in memory in few bits, and whether it is B; `None` where both lie as they are multiplied.
pub fn of_few_bits(entry: &AnyGemm) -> Option<(WeightsSpec, bool)> {
    let [a, b] = entry.plan().weights();
    a.map(|weights| (weights, false)).or(b.map(|weights| (weights, true)))
}

/// Random weights for a kernel of which an operand lies in memory in few bits.
///
/// # Panics
/// Where the oracle lacks a code that kernels have.
pub fn random_weights(entry: &AnyGemm, problem: GemmProblem, random: &mut fastrand::Rng) -> Option<Weights> {
    let (WeightsSpec { code, group, zeros }, is_b) = of_few_bits(entry)?;
    let GemmProblem { m, n, k } = problem;
    let code = Code::named(code.name()).expect("the oracle has every code");
    let [a, b, _] = formats(entry);
    let (rows, format) = if is_b { (n, b) } else { (m, a) };
    Some(Weights::random(code, [rows, k], (group, zeros), format, random))
}

/// Random weights for a call of such a kernel, in memory; the matrix that they stand for. Nothing happens for other kernels.
///
/// # Errors
/// Those of `upload`, which says where bytes lie.
pub fn bring<E>(
    entry: &AnyGemm,
    call: &mut Call,
    random: &mut fastrand::Rng,
    upload: &mut dyn FnMut(&[u8]) -> Result<u64, E>,
) -> Result<Option<HostMatrix>, E> {
    let drawn = random_weights(entry, call.problem, random);
    let Some((weights, (spec, is_b))) = drawn.zip(of_few_bits(entry)) else { return Ok(None) };
    let [of_a, of_b, _] = formats(entry);
    let matrix = weights.matrix(if is_b { of_b } else { of_a }, is_b);
    let (codes, scales) = place(&[weights], spec, upload)?;
    *if is_b { &mut call.b } else { &mut call.a } = codes;
    call.group_scales = (spec.group > 0).then_some(scales);
    Ok(Some(matrix))
}

/// Weights of several products as memory holds them, each behind the one before: where codes lie, and scales and zero points.
pub(super) fn place<E>(
    all: &[Weights],
    spec: WeightsSpec,
    upload: &mut dyn FnMut(&[u8]) -> Result<u64, E>,
) -> Result<(MatrixRef, GroupScales), E> {
    let code = spec.code;
    let of_one = |weights: &Weights| {
        collective::weights::reorder(code, weights.extents, &weights.codes)
            .expect("codes that were drawn are numbers")
    };
    let units: Vec<Vec<u8>> = all.iter().map(of_one).collect();
    let stride = |length: usize| if all.len() > 1 { length as u64 } else { 0 };
    let first = units.first().map_or(0, |units| units.len() * 8 / code.bits() as usize);
    let pitch = all.first().map_or(0, |weights| collective::weights::pitch(code, weights.extents[1]));
    let codes = MatrixRef::new(upload(&units.concat())?, pitch).every(stride(first));
    let mut matrices = |of: fn(&Weights) -> Option<&HostMatrix>| -> Result<MatrixRef, E> {
        let found: Vec<&HostMatrix> = all.iter().filter_map(of).collect();
        let Some(first) = found.first() else { return Ok(MatrixRef::NONE) };
        let bytes: Vec<u8> = found.iter().flat_map(|matrix| matrix.bytes()).collect();
        Ok(MatrixRef::new(upload(&bytes)?, first.pitch.into()).every(stride(first.bits.len())))
    };
    let scales = matrices(|weights| weights.scales.as_ref())?;
    Ok((codes, GroupScales { scales, zeros: matrices(|weights| weights.zeros.as_ref())? }))
}
