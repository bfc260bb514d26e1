//! What the driver says of a card, for the model that chooses kernels.

use std::path::PathBuf;

use super::context::Context;
use super::load;
use super::sys::device;
use crate::disk::{Digest, Key, Kind};
use crate::error::EngineError;
use crate::select::{Calibration, Card, Machine};

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

    /// The numbers from which kernels are chosen for this card: [`Machine::of`] its facts, [calibrated](Machine::calibrated) if
    /// the cache folder has a calibration of it.
    ///
    /// # Errors
    /// A driver error, or `FALCHION_CACHE` names a folder that cannot be made.
    pub fn machine(&self) -> Result<Machine, EngineError> {
        let machine = Machine::of(&self.card()?);
        Ok(self.calibration()?.map_or(machine, |measured| machine.calibrated(&measured)))
    }

    /// What was measured of this card and kept in the cache folder; `None` if there is no folder, or no whole entry in it.
    fn calibration(&self) -> Result<Option<Calibration>, EngineError> {
        let (Some(cache), _) = load::of_process()? else { return Ok(None) };
        let entry = cache.get(Kind::Records, &self.calibration_key()?).ok().flatten();
        Ok(entry.and_then(|bytes| String::from_utf8(bytes).ok()?.parse().ok()))
    }

    /// Keeps a calibration of this card in the cache folder, for later processes. Returns the file; `None` if there is no folder.
    ///
    /// # Errors
    /// The file cannot be written, or a driver error.
    pub fn keep_calibration(&self, measured: &Calibration) -> Result<Option<PathBuf>, EngineError> {
        let (Some(cache), _) = load::of_process()? else { return Ok(None) };
        let key = self.calibration_key()?;
        let put = cache.put(Kind::Records, &key, measured.to_string().as_bytes());
        put.map_err(|source| EngineError::Cache { source })?;
        Ok(Some(cache.path(Kind::Records, &key)))
    }

    fn calibration_key(&self) -> Result<Key, EngineError> {
        self.key(Digest::of("calibration"))
    }
}
