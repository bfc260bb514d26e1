//! From a spec to the mainloop it describes.

use std::sync::Arc;

use super::{MainloopEmitter, TensorCopies, ThreadCopies};
use crate::plan::{MainloopSpec, Producer};

impl MainloopSpec {
    /// The emitter of the mainloop of this crate that the spec describes.
    pub fn emitter(&self) -> Arc<dyn MainloopEmitter> {
        match self.producer {
            Producer::Thread => Arc::new(TensorCopies),
            Producer::Warpgroup => Arc::new(ThreadCopies),
        }
    }
}
