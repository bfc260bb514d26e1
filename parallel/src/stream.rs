//! Streams of a rank, and events between them.

use core::fmt;
use std::sync::Arc;

use crate::device::queue::{Mark, Queue};
use crate::device::{Device, Memory};
use crate::error::Error;
use crate::group::Group;

/// A stream of a rank's device besides the group's own: what is enqueued on it ([`Group::on`]) overlaps with other work.
/// It has scratch memory of its own, so two layers can run at once. It is waited for
/// when it is dropped.
#[derive(Debug)]
pub struct SideStream {
    pub(crate) queue: Queue,
    pub(crate) scratch: Option<Arc<Memory>>,
    device: Device,
}

/// A point in a stream's order of work, which work on other streams can wait for ([`Group::after`]).
pub struct Event {
    mark: Mark,
    device: Device,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").finish_non_exhaustive()
    }
}

impl SideStream {
    pub(crate) fn new(queue: Queue, device: Device) -> Self {
        Self { queue, scratch: None, device }
    }

    pub(crate) fn of(&self, device: &Device) -> Result<(), Error> {
        mine("a stream", &self.device, device)
    }
}

impl Drop for SideStream {
    fn drop(&mut self) {
        self.device.close(&self.queue);
    }
}

impl Event {
    pub(crate) fn of(group: &Group) -> Result<Self, Error> {
        let device = group.device().clone();
        Ok(Self { mark: device.mark()?, device })
    }

    pub(crate) fn before(&self, device: &Device) -> Result<(), Error> {
        mine("an event", &self.device, device)?;
        device.after(&self.mark)
    }
}

fn mine(field: &str, own: &Device, device: &Device) -> Result<(), Error> {
    match own.is(device) {
        true => Ok(()),
        false => Err(Error::argument(field, "another rank's", "one of this group")),
    }
}
