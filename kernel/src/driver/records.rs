//! Products of shapes and places of their own, described in device memory by somebody who is known.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::sync::Arc;

use collective::Record;

use super::context::Context;
use super::memory::Allocation;
use super::stream::Stream;
use crate::error::EngineError;
use crate::problem::Call;

/// Records in device memory that nobody changes, so that a launch of the products that they describe can be checked.
///
/// [`Loaded::launch`](super::Loaded::launch) takes them among what is lent: it holds every record to what the kernel asks of
/// matrices, and looks for the memory of each in the other slices.
///
/// ```no_run
/// use collective::Record;
/// use kernel::driver::{DeviceSlice, Loaded, Records, Stream};
/// use kernel::{EngineError, WorkspaceRef};
///
/// fn experts(
///     loaded: &mut Loaded,
///     stream: &Stream,
///     products: &[Record],
///     (weights, sums, workspace): (DeviceSlice<'_>, DeviceSlice<'_>, DeviceSlice<'_>),
/// ) -> Result<(), EngineError> {
///     let records = Records::upload(stream.context(), products)?; // waits; keep it
///     let mut call = records.call();
///     call.workspace = Some(WorkspaceRef { address: workspace.address(), bytes: workspace.bytes() });
///     loaded.launch(stream, &call, &[weights, sums, workspace, DeviceSlice::from(&records)])
/// }
/// ```
#[derive(Debug)]
pub struct Records {
    records: Vec<Record>,
    memory: Arc<Allocation>,
}

impl Records {
    /// Copies records into new memory of a context, and waits until they are there.
    ///
    /// # Errors
    /// A driver error.
    pub fn upload(context: &Arc<Context>, records: &[Record]) -> Result<Self, EngineError> {
        let bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
        let memory = Allocation::new(context, bytes.len())?;
        if !bytes.is_empty() {
            let stream = Stream::new(context)?;
            let copy = context.functions().copy_to_device;
            // SAFETY: so many bytes are allocated there; `bytes` stays until the copy is over.
            let status = unsafe { copy(memory.address(), bytes.as_ptr().cast(), bytes.len(), stream.raw()) };
            let copied = context.check("cuMemcpyHtoDAsync", status);
            stream.wait().and(copied)?;
        }
        Ok(Self { records: records.to_vec(), memory })
    }

    /// The products, without a workspace.
    pub fn call(&self) -> Call {
        // More than a launch can have is refused there.
        let count = u32::try_from(self.records.len()).unwrap_or(u32::MAX);
        Call::grouped(count, self.memory.address())
    }

    /// What they say.
    pub fn as_slice(&self) -> &[Record] {
        &self.records
    }

    /// Device address of the first.
    pub fn address(&self) -> u64 {
        self.memory.address()
    }
}
