//! Device memory: allocations, and slices that owners lend to launches.
#![allow(unsafe_code, reason = "calls the CUDA driver")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::context::{Context, lock};
use super::stream::Held;
use crate::error::EngineError;

/// Device memory of a context, for example a buffer of a [`Gpu`](super::Gpu). It stays allocated until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct DeviceMemory(Arc<Allocation>);

#[derive(Debug)]
struct Allocation {
    context: Arc<Context>,
    address: u64,
    bytes: usize,
}

impl DeviceMemory {
    /// Allocates device memory; it is not initialised.
    ///
    /// # Errors
    /// A driver error, for example that the memory is full.
    pub fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, EngineError> {
        let current = context.bind()?;
        let bytes = bytes.max(1);
        let mut address = 0;
        // SAFETY: the context is current, and one address is written.
        let status = unsafe { (current.functions().allocate)(&mut address, bytes) };
        context.check("cuMemAlloc", status)?;
        Ok(Self(Arc::new(Allocation { context: Arc::clone(context), address, bytes })))
    }

    /// Device address.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Whether it is memory of a context.
    pub(super) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.0.context, context)
    }

    /// What a graph keeps of it.
    pub(super) fn held(&self) -> Held {
        Arc::clone(&self.0) as Held
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if let Ok(current) = self.context.bind() {
            // SAFETY: it was allocated by this value, and nothing needs it any more. The call waits for work
            // in flight. After a fault it returns that fault, and the memory is freed with the context.
            let _ = unsafe { (current.functions().free)(self.address) };
        }
    }
}

/// The buffers of one [`Gpu`](super::Gpu), by address.
#[derive(Debug, Default)]
pub struct Memories(Mutex<BTreeMap<u64, DeviceMemory>>);

impl Memories {
    pub(super) fn insert(&self, memory: DeviceMemory) {
        lock(&self.0).insert(memory.address(), memory);
    }

    pub(super) fn remove(&self, address: u64) -> Option<DeviceMemory> {
        lock(&self.0).remove(&address)
    }

    /// The buffer that begins at an address.
    pub(super) fn get(&self, address: u64) -> Option<DeviceMemory> {
        lock(&self.0).get(&address).cloned()
    }

    /// The buffer that contains `bytes` bytes at an address; `None` if there is none.
    pub fn containing(&self, address: u64, bytes: u64) -> Option<DeviceMemory> {
        let all = lock(&self.0);
        let (_, memory) = all.range(..=address).next_back()?;
        let end = address.checked_add(bytes)?;
        (end <= memory.address() + memory.bytes() as u64).then(|| memory.clone())
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}
