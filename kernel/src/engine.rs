//! Engines: the machines that run a [`Program`].
//!
//! The emulator and the GPU implement the same trait, so a test, a command or an example runs on both.

use std::time::Duration;

use ptx::abi::{Argument, Grid};

use crate::buffer::Buffer;
use crate::demand::Demand;
use crate::error::EngineError;
use crate::host::check_memory;
use crate::program::Program;

/// A machine with device memory that runs programs: the GPU, or the emulator.
pub trait Engine {
    /// A description of the machine: for a GPU, the card's name, its driver and its compute capability.
    fn describe(&self) -> String;

    /// Number of SMs.
    fn multiprocessors(&self) -> u32;

    /// What makes machine code of programs, with its version. `None`: they are run as they are.
    fn compiler(&self) -> Option<String> {
        None
    }

    /// Whether a program that accesses one byte beside a buffer fails. Where it need not, whoever checks a program puts
    /// bytes around buffers that must not change.
    fn traps_outside(&self) -> bool {
        false
    }

    /// Number of a program's clusters that are resident at once. Persistent kernels launch this number.
    ///
    /// # Errors
    /// The engine cannot load the program.
    fn resident_clusters(&mut self, program: &Program) -> Result<u32, EngineError> {
        Ok(self.multiprocessors() / program.function().cluster.iter().product::<u32>().max(1))
    }

    /// Checks that the engine can run a call, next to `copies` copies of the call's memory on the host. Whoever allocates the memory of a
    /// call asks before.
    ///
    /// # Errors
    /// [`EngineError::Memory`] if the host has too little memory. A card says when it allocates whether it has enough.
    /// [`EngineError::Work`] if it would take an emulator days.
    fn admit(&self, demand: &Demand, copies: u32) -> Result<(), EngineError> {
        check_memory(u128::from(copies) * demand.bytes)
    }

    /// Allocates a buffer, in bytes. Its contents are undefined.
    ///
    /// # Errors
    /// The device has not enough memory.
    fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError>;

    /// Copies bytes to the start of a buffer.
    ///
    /// # Errors
    /// There are more bytes than the buffer holds, or the device failed.
    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError>;

    /// Fills a buffer by repeating `data`.
    ///
    /// # Errors
    /// As [`Engine::write`]; or `data` is empty.
    fn repeat(&mut self, buffer: Buffer, data: &[u8]) -> Result<(), EngineError> {
        let all: Vec<u8> = data.iter().copied().cycle().take(buffer.bytes).collect();
        let Buffer { address, bytes } = buffer;
        match all.len() == bytes {
            true => self.write(buffer, &all),
            false => Err(EngineError::Buffer { address, bytes: 0, needed: bytes }),
        }
    }

    /// Waits for all launches and copies a whole buffer to the host.
    ///
    /// # Errors
    /// An earlier program faulted, or the device failed.
    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError>;

    /// Frees a buffer.
    ///
    /// # Errors
    /// The buffer is not one of this engine's.
    fn free(&mut self, buffer: Buffer) -> Result<(), EngineError>;

    /// Runs a program to its end and returns the time that it took on the device.
    ///
    /// # Errors
    /// Arguments that do not match the program's parameters, an address outside this engine's buffers, a
    /// program the engine cannot load, or a fault while the program ran.
    fn launch(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Duration, EngineError>;

    /// Allocates a workspace of `bytes` bytes, filled with zeros; `None` for 0 bytes.
    ///
    /// # Errors
    /// As [`Engine::allocate`] and [`Engine::write`].
    fn workspace(&mut self, bytes: u64) -> Result<Option<Buffer>, EngineError> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes == 0 { Ok(None) } else { self.upload(&vec![0; bytes]).map(Some) }
    }

    /// Allocates a buffer for some bytes and copies them to it.
    ///
    /// # Errors
    /// As [`Engine::allocate`] and [`Engine::write`].
    fn upload(&mut self, bytes: &[u8]) -> Result<Buffer, EngineError> {
        let buffer = self.allocate(bytes.len())?;
        match self.write(buffer, bytes) {
            Ok(()) => Ok(buffer),
            Err(error) => {
                // Report the first error. If the buffer cannot be freed either, it is freed with the engine.
                let _ = self.free(buffer);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Buffer, Engine};
    use crate::error::EngineError;
    use crate::program::Program;

    /// An engine whose writes fail, and that counts the buffers not freed.
    #[derive(Default)]
    struct Full {
        allocated: Vec<u64>,
    }

    impl Engine for Full {
        fn describe(&self) -> String {
            "full".to_owned()
        }

        fn multiprocessors(&self) -> u32 {
            1
        }

        fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError> {
            self.allocated.push(256);
            Ok(Buffer { address: 256, bytes })
        }

        fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError> {
            Err(EngineError::Buffer { address: buffer.address, bytes: 0, needed: bytes.len() })
        }

        fn read(&mut self, _: Buffer) -> Result<Vec<u8>, EngineError> {
            Ok(Vec::new())
        }

        fn free(&mut self, buffer: Buffer) -> Result<(), EngineError> {
            self.allocated.retain(|&address| address != buffer.address);
            Ok(())
        }

        fn launch(
            &mut self,
            _: &Program,
            _: ptx::abi::Grid,
            _: &[ptx::abi::Argument],
        ) -> Result<core::time::Duration, EngineError> {
            Ok(core::time::Duration::ZERO)
        }
    }

    #[test]
    fn what_cannot_be_written_is_given_back() {
        let mut engine = Full::default();
        assert!(engine.upload(&[1, 2, 3]).is_err());
        assert!(engine.workspace(16).is_err());
        assert!(engine.allocated.is_empty(), "buffers that nobody can free");
    }
}
