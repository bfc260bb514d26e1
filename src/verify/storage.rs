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
use collective::{FACTORS, METADATA, WeightsSpec};
use kernel::{AnyGemm, Filled, GemmProblem};

use super::family::FamilyError;
use super::product::{GemmCase, formats, of_kernels};
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

/// The bytes of an operand in few bits, or of a sparse one, and of what belongs to it, by the names of the memory.
pub(super) struct Stored(Vec<(&'static str, Vec<u8>)>);

impl Stored {
    /// The operand of a GEMM in the form that the kernel reads; nothing for other kernels.
    ///
    /// # Errors
    /// A code that is no number, or a sparse operand with too many nonzero elements.
    pub(super) fn of(entry: &AnyGemm, case: &GemmCase) -> Result<Self, FamilyError> {
        let mut stored = Vec::new();
        let name = if is_b(entry) { "B" } else { "A" };
        if let (Some((spec, _)), Some(weights)) = (of_few_bits(entry), &case.weights) {
            let units = collective::weights::reorder(spec.code, weights.extents, &weights.codes);
            stored.push((name, units.map_err(|error| FamilyError::Other(format!("{name}: {error}")))?));
            let factors = [&weights.scales, &weights.zeros];
            let factors =
                FACTORS.into_iter().zip(factors).filter_map(|(name, of)| Some((name, of.as_ref()?)));
            stored.extend(factors.map(|(name, of)| (name, dense(of))));
        }
        if entry.plan().mainloop.is_sparse() {
            let operand = if is_b(entry) { &case.b } else { &case.a };
            let (extents, elements) = lines(operand, is_b(entry));
            let compressed = sparse::compress(of_kernels(operand.format), extents, &elements);
            let compressed = compressed.map_err(|error| FamilyError::Other(format!("{name}: {error}")))?;
            let values: Vec<u64> = compressed.values.into_iter().map(u64::from).collect();
            stored.push((name, operand.format.memory(&values)));
            stored.push((METADATA, compressed.metadata.into_iter().flat_map(u32::to_le_bytes).collect()));
        }
        Ok(Self(stored))
    }

    /// Puts what it has of a name into memory. Returns whether it has something.
    pub(super) fn put(&self, name: &str, of: &mut Filled) -> bool {
        let Some((_, bytes)) = self.0.iter().find(|(own, _)| *own == name) else { return false };
        let mut bytes = bytes.iter();
        for span in of.spans(0, of.count()) {
            for (place, byte) in of.bytes[span].iter_mut().zip(&mut bytes) {
                *place = *byte;
            }
        }
        true
    }
}

/// The bytes of a matrix, line by line without padding.
fn dense(matrix: &HostMatrix) -> Vec<u8> {
    matrix.format.memory(&super::product::lines(matrix).collect::<Vec<_>>())
}
