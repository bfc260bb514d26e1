//! Records in device memory that describe GEMMs, in a form that launches can check.

use std::sync::Arc;

use collective::{MatrixRef, Record};

use super::context::Context;
use super::footprint;
use super::memory::{DeviceMemory, DeviceSlice};
use super::stream::Stream;
use crate::arguments::Arguments;
use crate::error::EngineError;
use crate::gemm::AnyGemm;
use crate::problem::{Call, GemmProblem};
use crate::products::GroupedProblem;

/// Records in device memory that nothing changes, so that a launch of the GEMMs they describe can be checked.
///
/// Lend them to [`Loaded::launch`](super::Loaded::launch) together with the matrices. It checks each record
/// against the kernel's rules, and looks for the memory of each matrix in the other slices.
///
/// ```no_run
/// use collective::{MatrixRef, Record};
/// use kernel::driver::{DeviceSlice, Loaded, DeviceRecords, Stream};
/// use kernel::{Buffer, EngineError};
///
/// fn experts(
///     loaded: &mut Loaded,
///     stream: &Stream,
///     products: &[Record],
///     (weights, sums, workspace): (DeviceSlice<'_>, DeviceSlice<'_>, DeviceSlice<'_>),
/// ) -> Result<(), EngineError> {
///     let records = DeviceRecords::upload(stream.context(), products)?; // waits; keep it
///     let mut call = records.call();
///     call.workspace = Some(Buffer::new(workspace.address(), workspace.bytes()));
///     loaded.launch(stream, &call, &[weights, sums, workspace, DeviceSlice::from(&records)])
/// }
/// ```
#[derive(Debug)]
pub struct DeviceRecords {
    records: Vec<Record>,
    memory: DeviceMemory,
}

impl DeviceRecords {
    /// Copies records to new device memory of a context, and waits for the copy.
    ///
    /// # Errors
    /// A driver error.
    pub fn upload(context: &Arc<Context>, records: &[Record]) -> Result<Self, EngineError> {
        let bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
        let memory = DeviceMemory::new(context, bytes.len())?;
        Stream::new(context)?.copy_in(memory.address(), &bytes)?;
        Ok(Self { records: records.to_vec(), memory })
    }

    /// A call of the GEMMs that the records describe, without a workspace.
    pub fn call(&self) -> Call {
        // The launch refuses more records than it can have.
        let count = u32::try_from(self.records.len()).unwrap_or(u32::MAX);
        Call::grouped(count, self.memory.address())
    }

    /// The records.
    pub fn as_slice(&self) -> &[Record] {
        &self.records
    }

    pub(super) fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// Device address of the first record.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }
}

/// Checks each GEMM that a call's records describe, and that its memory is lent.
///
/// # Errors
/// As [`Kernel::check_records`](crate::Kernel::check_records).
pub(crate) fn check<E: Arguments + Clone>(
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
            .and_then(|_| footprint::check(gemm, &name, &product, lent))
            .map_err(|source| EngineError::Record { index, source: Box::new(source) })?;
    }
    Ok(())
}
