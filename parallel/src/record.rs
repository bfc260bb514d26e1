//! Layers that are recorded once and replayed.

use core::fmt;
use std::sync::Arc;

use falchion::kernel::driver::Graph;

use crate::device::{Device, Memory};
use crate::error::Error;
use crate::group::Group;

/// What is replayed.
type Work<'w> = Box<dyn FnMut(&mut Group) -> Result<(), Error> + 'w>;

/// Layers and collectives that are replayed with one call of the driver: a CUDA graph. [`Group::record`] makes it. In the emulator
/// they are run again.
///
/// Every replay reads and writes the same tensors. The record keeps what its work owns or borrows.
pub struct Record<'w> {
    /// Where the device keeps the graph; `None` in the emulator.
    graph: Option<usize>,
    work: Work<'w>,
    device: Device,
    /// The addresses of scratch memory are part of the graph.
    _scratch: Option<Arc<Memory>>,
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").field("graph", &self.graph).finish_non_exhaustive()
    }
}

impl<'w> Record<'w> {
    pub(crate) fn new(
        group: &mut Group,
        mut work: impl FnMut(&mut Group) -> Result<(), Error> + 'w,
    ) -> Result<Self, Error> {
        // What is done at a first call cannot be recorded: kernels are chosen and loaded, and memory is allocated.
        work(group)?;
        group.wait()?;
        let stream = group.with_gpu(|gpu| Arc::clone(gpu.stream()));
        let graph =
            stream.map(|stream| group.recording(|group| Graph::of(&stream, "layers", |_| work(group))));
        let graph = graph.transpose()?;
        let (device, scratch) = (group.device().clone(), group.scratch_memory());
        let graph = graph.map(|graph| device.keep(graph));
        Ok(Self { graph, work: Box::new(work), device, _scratch: scratch })
    }

    /// Enqueues all of it again. Every rank does.
    ///
    /// # Errors
    /// The group or the device has failed; another group than the one that recorded it.
    pub fn replay(&mut self, group: &mut Group) -> Result<(), Error> {
        group.alive()?;
        if !group.device().is(&self.device) {
            return Err(Error::argument("the group of a record", "another", "the one that recorded it"));
        }
        match self.graph {
            Some(graph) => self.device.replay(graph),
            None => group.recording(|group| (self.work)(group)),
        }
    }
}

impl Drop for Record<'_> {
    fn drop(&mut self) {
        if let Some(graph) = self.graph {
            self.device.forget(graph);
        }
    }
}
