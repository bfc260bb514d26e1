//! The check that all memory of a call is lent.

use collective::{MatrixRef, Record};

use super::slice::DeviceSlice;
use crate::arguments::Arguments;
use crate::call::Call;
use crate::error::EngineError;
use crate::gemm::AnyGemm;
use crate::kernel::Kernel;
use crate::operands::{Memory, Path, Visit};
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;

/// The first memory that is not inside a slice.
struct Lent<'a> {
    kernel: &'a str,
    lent: &'a [DeviceSlice<'a>],
    result: Result<(), EngineError>,
}

impl Lent<'_> {
    /// Whether memory is the first that is not lent.
    fn misses(&self, Memory { address, extents, writes, .. }: &Memory<'_>) -> bool {
        let bytes = extents.bytes();
        let lent = || self.lent.iter().any(|slice| slice.covers(**address, bytes, *writes));
        self.result.is_ok() && bytes > 0 && !lent()
    }
}

impl Visit for Lent<'_> {
    fn memory(&mut self, memory: Memory<'_>) {
        if self.misses(&memory) {
            let (kernel, Memory { name, address, extents, writes, .. }) = (self.kernel.to_owned(), memory);
            let (address, bytes) = (*address, extents.bytes());
            self.result = Err(EngineError::NotLent { kernel, name, address, bytes, writes });
        }
    }

    fn node(&mut self, path: &Path<'_>, memory: Memory<'_>) {
        if self.misses(&memory) {
            let error = path.not_lent(*memory.address, memory.extents.bytes(), memory.writes);
            self.result = Err(EngineError::Call { kernel: self.kernel.to_owned(), source: error.into() });
        }
    }
}

/// Checks that all memory that a call's kernel visits is inside slices.
///
/// # Errors
/// The first memory that is not.
pub(super) fn check<C: Clone>(
    kernel: &impl Kernel<C>,
    name: &str,
    call: &C,
    lent: &[DeviceSlice<'_>],
) -> Result<(), EngineError> {
    let mut visit = Lent { kernel: name, lent, result: Ok(()) };
    kernel.visit(&mut call.clone(), &mut visit);
    visit.result
}

/// Checks each GEMM that a call's records describe, and that its memory is lent.
///
/// # Errors
/// As [`Kernel::check_records`](crate::Kernel::check_records).
pub(crate) fn check_records<E: Arguments + Clone>(
    gemm: &AnyGemm,
    call: &Call<E>,
    lent: &[DeviceSlice<'_>],
) -> Result<(), EngineError> {
    let GroupedProblem::PointerArray { count: count @ 1.., records } = call.products else { return Ok(()) };
    let name = gemm.entry_name();
    let known = lent.iter().find_map(|slice| slice.records(records));
    let known = known.and_then(|known| known.as_slice().get(..count as usize));
    let known = known.ok_or_else(|| EngineError::Described { kernel: name.clone() })?;
    for (index, record) in known.iter().enumerate() {
        let Record { m, n, k, addresses, lds } = *record;
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| MatrixRef::new(addresses[i], lds[i]));
        let (problem, epilogue) = (GemmProblem { m, n, k }, call.epilogue.clone().with_c(c));
        let product = Call { products: GroupedProblem::One, a, b, d, workspace: None, ..Call::of(problem) }
            .with(epilogue);
        let refused = |source| EngineError::Call { kernel: name.clone(), source };
        gemm.checked(&product, product.epilogue.multiplied())
            .map_err(refused)
            .and_then(|_| check(gemm, &name, &product, lent))
            .map_err(|source| EngineError::Record { index, source: Box::new(source) })?;
    }
    Ok(())
}
