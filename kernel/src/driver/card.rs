//! What the driver says of a card, for the model that chooses kernels.

use super::context::Context;
use super::sys::device;
use crate::error::EngineError;
use crate::select::{Card, Machine};

impl Context {
    /// The card's number of SMs, clock, memory bandwidth and L2, as the driver reports them.
    ///
    /// # Errors
    /// A driver error.
    pub fn card(&self) -> Result<Card, EngineError> {
        let kilohertz = f64::from(self.attribute(device::MEMORY_KILOHERTZ)?);
        let bits = f64::from(self.attribute(device::MEMORY_BUS_BITS)?);
        Ok(Card {
            multiprocessors: self.attribute(device::MULTIPROCESSORS)?,
            kilohertz: self.attribute(device::KILOHERTZ)?,
            // Two transfers per cycle.
            memory_bandwidth: 2.0 * kilohertz * 1e3 * bits / 8.0,
            l2_bytes: self.attribute(device::L2_BYTES)?,
            tensor: Card::tensor_of(&self.name()?),
        })
    }

    /// The numbers from which kernels are chosen for this card: [`Machine::of`] its facts.
    ///
    /// # Errors
    /// A driver error.
    pub fn machine(&self) -> Result<Machine, EngineError> {
        Ok(Machine::of(&self.card()?))
    }
}
