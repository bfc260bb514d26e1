//! Operands whose form in memory is not the multiplied matrix, weights in few bits and sparse operands: draws
//! and uploads them.
//!
//! ```
//! use falchion::kernel::{GemmProblem, KernelSpec};
//! use falchion::verify::storage::{of_few_bits, random_weights};
//!
//! let gemm = "weights-b=s4 group=128 swap=yes tile=128x16x128".parse::<KernelSpec>()?.kernel()?;
//! let (spec, is_b) = of_few_bits(&gemm).expect("B is in few bits");
//! assert!(is_b && spec.group == 128);
//! let problem = GemmProblem { m: 16, n: 256, k: 512 };
//! assert!(random_weights(&gemm, problem, &mut fastrand::Rng::new()).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use collective::sparse::{self, SparseError};
use collective::{GroupScales, WeightsSpec};
use kernel::{AnyGemm, Call, EngineError, GemmProblem, MatrixRef};

use super::product::{formats, of_kernels};
use super::session::Upload;
use super::{HostMatrix, Weights, weights::WeightFormat};

/// The weights in few bits of a kernel, and whether they are the caller's B; `None` if no operand is in few
/// bits.
pub fn of_few_bits(entry: &AnyGemm) -> Option<(WeightsSpec, bool)> {
    let [a, b] = entry.plan().call_operands();
    a.weights.map(|weights| (weights, false)).or(b.weights.map(|weights| (weights, true)))
}

/// Random weights for a kernel with an operand in few bits; `None` for other kernels.
///
/// # Panics
/// If the reference lacks a code that kernels have.
pub fn random_weights(entry: &AnyGemm, problem: GemmProblem, random: &mut fastrand::Rng) -> Option<Weights> {
    let (WeightsSpec { code, group, zeros }, is_b) = of_few_bits(entry)?;
    let GemmProblem { m, n, k } = problem;
    let code = WeightFormat::named(code.name()).expect("the oracle has every code");
    let [a, b, _] = formats(entry);
    let (rows, format) = if is_b { (n, b) } else { (m, a) };
    Some(Weights::random(code, [rows, k], (group, zeros), format, random))
}

/// Makes operands that a kernel can multiply from random ones. Weights in few bits are replaced by what
/// random weights represent; a sparse operand is pruned.
///
/// # Panics
/// Never: a kernel's formats are those of operands.
pub fn fitted(
    entry: &AnyGemm,
    problem: GemmProblem,
    [mut a, mut b]: [HostMatrix; 2],
    random: &mut fastrand::Rng,
) -> ([HostMatrix; 2], Option<Weights>) {
    let weights = fit(entry, problem, if is_b(entry) { &mut b } else { &mut a }, random);
    ([a, b], weights)
}

/// Whether the operand in few bits or the sparse operand is B; false if there is none.
pub fn is_b(entry: &AnyGemm) -> bool {
    let [_, b] = entry.plan().call_operands();
    b.weights.is_some() || b.sparse
}

/// That operand as the kernel multiplies it. Other operands are unchanged.
///
/// # Panics
/// Never: a kernel's formats are those of operands.
pub fn fit(
    entry: &AnyGemm,
    problem: GemmProblem,
    operand: &mut HostMatrix,
    random: &mut fastrand::Rng,
) -> Option<Weights> {
    let (weights, is_b) = (random_weights(entry, problem, random), is_b(entry));
    if let Some(weights) = &weights {
        *operand = weights.matrix(operand.format, is_b);
    }
    if entry.plan().mainloop.is_sparse() {
        let (extents, mut elements) = lines(operand, is_b);
        sparse::prune(of_kernels(operand.format), extents, &mut elements).expect("a format of operands");
        let all = (0..operand.rows).flat_map(|row| (0..operand.columns).map(move |column| (row, column)));
        for (row, column) in all {
            let [line, place] = if is_b { [column, row] } else { [row, column] };
            let at = operand.index(row, column);
            operand.bits[at] = u64::from(elements[line as usize * extents[1] as usize + place as usize]);
        }
    }
    weights
}

/// Checks that the operand that a kernel multiplies as sparse is 2:4 sparse. Succeeds for kernels without a
/// sparse operand.
///
/// # Errors
/// The first chunk with too many nonzero elements.
pub fn pruned(entry: &AnyGemm, operands: [&HostMatrix; 2]) -> Result<(), SparseError> {
    if !entry.plan().mainloop.is_sparse() {
        return Ok(());
    }
    let is_b = is_b(entry);
    let operand = operands[usize::from(is_b)];
    let (extents, elements) = lines(operand, is_b);
    sparse::compress(of_kernels(operand.format), extents, &elements).map(|_| ())
}

/// The elements of an operand along K, row by row of A or column by column of B.
fn lines(operand: &HostMatrix, is_b: bool) -> ([u32; 2], Vec<u32>) {
    let [mn, k] = if is_b { [operand.columns, operand.rows] } else { [operand.rows, operand.columns] };
    let at = |line, place| if is_b { operand.index(place, line) } else { operand.index(line, place) };
    let all = (0..mn).flat_map(|line| (0..k).map(move |place| (line, place)));
    ([mn, k], all.map(|(line, place)| operand.bits[at(line, place)] as u32).collect())
}

/// The compressed sparse operands of several GEMMs, one after the other: kept elements, and metadata.
fn place_sparse(all: &[HostMatrix], is_b: bool, to: &mut impl Upload) -> Result<[MatrixRef; 2], EngineError> {
    let (mut values, mut metadata) = (Vec::new(), Vec::new());
    let (mut lds, mut strides) = ([16; 2], [0; 2]);
    for operand in all {
        let ([mn, k], elements) = lines(operand, is_b);
        let format = of_kernels(operand.format);
        let compressed = sparse::compress(format, [mn, k], &elements).expect("a pruned operand");
        let (kept, of_line) = (sparse::kept(format, k), 16 / operand.format.bytes());
        let ld = kept.next_multiple_of(of_line).max(of_line);
        for line in compressed.values.chunks(kept.max(1) as usize) {
            let mut line: Vec<u64> = line.iter().map(|&bits| bits.into()).collect();
            line.resize(ld as usize, operand.format.poison());
            values.extend(operand.format.memory(&line));
        }
        lds = [ld.into(), sparse::metadata_ld(format, k).max(sparse::WORDS.into())];
        strides = [u64::from(mn) * u64::from(ld), compressed.metadata.len() as u64];
        metadata.extend(compressed.metadata);
    }
    let stride = |i: usize| if all.len() > 1 { strides[i] } else { 0 };
    Ok([
        MatrixRef::new(to.upload(&values)?, lds[0]).every(stride(0)),
        MatrixRef::new(to.words(&metadata)?, lds[1]).every(stride(1)),
    ])
}

/// Uploads the operand in few bits or the sparse operand in the form that the kernel reads, and writes its
/// address to the call. With several GEMMs, uploads the operands of all. Does nothing for other kernels.
///
/// # Errors
/// The engine fails.
pub(super) fn bring<F>(
    entry: &AnyGemm,
    call: &mut Call<F>,
    [a, b]: [&[HostMatrix]; 2],
    weights: &[Weights],
    to: &mut impl Upload,
) -> Result<(), EngineError> {
    if let Some((spec, is_b)) = of_few_bits(entry) {
        let (codes, scales) = place(weights, spec, to)?;
        *if is_b { &mut call.b } else { &mut call.a } = codes;
        call.group_scales = (spec.group > 0).then_some(scales);
    }
    let [of_a, of_b] = entry.plan().call_operands().map(|operand| operand.sparse);
    if of_a || of_b {
        let [values, metadata] = place_sparse(if of_b { b } else { a }, of_b, to)?;
        *if of_b { &mut call.b } else { &mut call.a } = values;
        call.metadata = Some(metadata);
    }
    Ok(())
}

/// Uploads the weights of several GEMMs, one after the other: returns the addresses of codes, scales and zero
/// points.
fn place(
    all: &[Weights],
    spec: WeightsSpec,
    to: &mut impl Upload,
) -> Result<(MatrixRef, GroupScales), EngineError> {
    let code = spec.code;
    let of_one = |weights: &Weights| {
        collective::weights::reorder(code, weights.extents, &weights.codes)
            .expect("codes that were drawn are numbers")
    };
    let units: Vec<Vec<u8>> = all.iter().map(of_one).collect();
    let first = units.first().map_or(0, |units| units.len() * 8 / code.bits() as usize);
    let stride = if all.len() > 1 { first as u64 } else { 0 };
    let ld = all.first().map_or(0, |weights| collective::weights::ld(code, weights.extents[1]));
    let codes = MatrixRef::new(to.upload(&units.concat())?, ld).every(stride);
    let mut matrices = |of: fn(&Weights) -> Option<&HostMatrix>| {
        let found: Vec<&HostMatrix> = all.iter().filter_map(of).collect();
        if found.is_empty() { Ok(MatrixRef::NONE) } else { to.matrices(found) }
    };
    let scales = matrices(|weights| weights.scales.as_ref())?;
    Ok((codes, GroupScales { scales, zeros: matrices(|weights| weights.zeros.as_ref())? }))
}
