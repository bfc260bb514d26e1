//! From a spec to the mainloop it describes.

use std::sync::Arc;

use super::{MainloopEmitter, QuantizedCopies, ScaledCopies, SparseCopies, TensorCopies, ThreadCopies};
use crate::plan::{MainloopSpec, Producer};

impl MainloopSpec {
    /// The emitter of the mainloop of this crate that the spec describes.
    pub fn emitter(&self) -> Arc<dyn MainloopEmitter> {
        match self.producer {
            Producer::Thread if self.weights().is_some() => Arc::new(QuantizedCopies),
            Producer::Thread if self.is_sparse() => Arc::new(SparseCopies),
            Producer::Thread if self.is_scaled() => Arc::new(ScaledCopies),
            Producer::Thread => Arc::new(TensorCopies),
            Producer::Warpgroup => Arc::new(ThreadCopies),
        }
    }
}
