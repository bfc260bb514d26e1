//! Device time between two events.

use std::sync::Arc;

use super::context::Context;
use super::stream::{Event, Stream};
use crate::error::EngineError;

/// Two events, before and after some work.
#[derive(Debug)]
pub(super) struct Stopwatch {
    start: Event,
    stop: Event,
}

impl Stopwatch {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, EngineError> {
        Ok(Self { start: Event::new(context)?, stop: Event::new(context)? })
    }

    pub(super) fn start(&self, stream: &Stream) -> Result<(), EngineError> {
        self.start.record(stream)
    }

    pub(super) fn stop(&self, stream: &Stream) -> Result<(), EngineError> {
        self.stop.record(stream)
    }

    pub(super) fn milliseconds(&self) -> Result<f32, EngineError> {
        self.stop.since(&self.start)
    }
}
