//! Records in device memory that describe GEMMs, in a form that launches can check.

use std::sync::Arc;

use collective::Record;

use super::context::Context;
use super::memory::DeviceMemory;
use super::stream::Stream;
use crate::call::Call;
use crate::error::EngineError;

/// Records in device memory that nothing changes, so that a launch of the GEMMs they describe can be checked.
///
/// Lend them to [`Loaded::launch`](super::Loaded::launch) together with the matrices. It checks each record
/// against the kernel's rules, and looks for the memory of each matrix in the other slices.
///
/// ```no_run
/// use collective::Record;
/// use kernel::driver::{DeviceSlice, Loaded, DeviceRecords, Stream};
/// use kernel::{Buffer, EngineError};
///
/// fn experts(
///     loaded: &Loaded,
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
