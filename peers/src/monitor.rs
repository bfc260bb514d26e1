//! The card's clock and power while something runs, read from NVML.
//!
//! NVML is loaded when a [`Monitor`] is made. Nothing else needs it.

use core::fmt;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_POWER_INSTANT;
use nvml_wrapper::{Device, Nvml};

use kernel::EngineError;
use kernel::driver::Gpu;

/// File names of NVML. The system's loader finds them if a driver is installed.
const LIBRARIES: &[&str] = if cfg!(windows) {
    &["nvml.dll", "C:\\Program Files\\NVIDIA Corporation\\NVSMI\\nvml.dll"]
} else {
    &["libnvidia-ml.so.1", "libnvidia-ml.so"]
};

/// Time between two readings.
const PAUSE: Duration = Duration::from_millis(10);

/// Reads one card's clock and power.
pub struct Monitor {
    nvml: Nvml,
    uuid: String,
}

/// Means over the readings of a time span.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Readings {
    /// SM clock in MHz.
    pub megahertz: f64,
    /// Power of the whole card in watts.
    pub watts: f64,
    /// Number of readings.
    pub count: usize,
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("uuid", &self.uuid).finish_non_exhaustive()
    }
}

impl Monitor {
    /// Loads NVML and reads the card once.
    ///
    /// # Errors
    /// NVML is not installed, or does not report this card's clock or power.
    pub fn new(gpu: &Gpu) -> Result<Self, EngineError> {
        let monitor = Self { nvml: load()?, uuid: spelled(gpu.context().uuid()?) };
        monitor.read().map_err(|error| EngineError::Library {
            library: "NVML",
            call: "nvmlDeviceGetClockInfo",
            status: error.to_string(),
        })?;
        Ok(monitor)
    }

    fn read(&self) -> Result<[f64; 2], NvmlError> {
        reading(&self.nvml.device_by_uuid(self.uuid.as_str())?)
    }

    /// Runs `work`, and reads the card every 10 ms meanwhile. The readings are `None` if the work ends at once.
    pub fn watch<T>(&self, work: impl FnOnce() -> T) -> (T, Option<Readings>) {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut readings = Vec::new();
                let Ok(device) = self.nvml.device_by_uuid(self.uuid.as_str()) else { return readings };
                while !over.load(Ordering::Relaxed) {
                    thread::sleep(PAUSE);
                    readings.extend(reading(&device));
                }
                readings
            });
            let done = {
                // Stops the reader thread however the work ends.
                let _end = End(&over);
                work()
            };
            (done, mean(&reader.join().unwrap_or_default()))
        })
    }
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn load() -> Result<Nvml, EngineError> {
    let mut reason = String::new();
    for name in LIBRARIES {
        match Nvml::builder().lib_path(OsStr::new(name)).init() {
            Ok(nvml) => return Ok(nvml),
            Err(error) if reason.is_empty() => reason = error.to_string(),
            Err(_) => {}
        }
    }
    Err(EngineError::NoLibrary { library: "NVML", reason })
}

/// Current SM clock in MHz and power in watts.
fn reading(device: &Device<'_>) -> Result<[f64; 2], NvmlError> {
    let megahertz = device.clock_info(Clock::SM)?;
    // The other power reading is a mean over the last second, which is longer than a measurement.
    let instant = device.field_values_for(&[FieldId(NVML_FI_DEV_POWER_INSTANT)])?.into_iter().next();
    let milliwatts = match instant {
        Some(Ok(sample)) => match sample.value {
            Ok(SampleValue::U32(value)) if value > 0 => value,
            _ => device.power_usage()?,
        },
        _ => device.power_usage()?,
    };
    Ok([f64::from(megahertz), f64::from(milliwatts) / 1e3])
}

fn mean(readings: &[[f64; 2]]) -> Option<Readings> {
    let count = readings.len();
    let mean = |i: usize| readings.iter().map(|reading| reading[i]).sum::<f64>() / count as f64;
    (count > 0).then(|| Readings { megahertz: mean(0), watts: mean(1), count })
}

/// A card's UUID as NVML writes it: `GPU-` and the bytes in groups of 4, 2, 2, 2 and 6.
fn spelled(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::{Readings, mean, spelled};

    #[test]
    fn cards_are_named_as_nvml_names_them() {
        let bytes =
            [0xe2, 0x1b, 0xed, 0x33, 0x07, 0xcb, 0x6b, 0xf3, 0x69, 0x6a, 0x1c, 0x0e, 0xa2, 0xfb, 0x20, 0x09];
        assert_eq!(spelled(bytes), "GPU-e21bed33-07cb-6bf3-696a-1c0ea2fb2009");
    }

    #[test]
    fn readings_are_averaged() {
        assert_eq!(mean(&[]), None);
        let want = Readings { megahertz: 1500.0, watts: 650.0, count: 2 };
        assert_eq!(mean(&[[1400.0, 600.0], [1600.0, 700.0]]), Some(want));
    }
}
