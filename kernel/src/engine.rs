//! Engines: the machines that run a [`Program`].
//!
//! The emulator and the GPU answer the same calls, so one test case, one command, one example runs on both.

use std::time::Duration;

use ptx::abi::{Argument, Grid};

use crate::buffer::Buffer;
use crate::error::EngineError;
use crate::problem::WorkspaceRef;
use crate::program::Program;

/// A machine with device memory that runs programs.
pub trait Engine {
    /// What runs: for a GPU the card, its driver and compute capability.
    fn describe(&self) -> String;

    /// How many multiprocessors there are.
    fn multiprocessors(&self) -> u32;

    /// How many clusters of a program run at once: what persistent kernels launch.
    ///
    /// # Errors
    /// A program the engine cannot load.
    fn slots(&mut self, program: &Program) -> Result<u32, EngineError> {
        Ok(self.multiprocessors() / program.function().cluster.iter().product::<u32>().max(1))
    }

    /// Reserves memory whose contents are undefined.
    ///
    /// # Errors
    /// The device has not enough memory.
    fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError>;

    /// Copies bytes to the start of a buffer.
    ///
    /// # Errors
    /// More bytes than the buffer holds, or a device error.
    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError>;

    /// Fills a buffer with some data, again and again.
    ///
    /// # Errors
    /// As [`Engine::write`], or there is no data.
    fn repeat(&mut self, buffer: Buffer, data: &[u8]) -> Result<(), EngineError> {
        let all: Vec<u8> = data.iter().copied().cycle().take(buffer.bytes).collect();
        let Buffer { address, bytes } = buffer;
        match all.len() == bytes {
            true => self.write(buffer, &all),
            false => Err(EngineError::Buffer { address, bytes: 0, needed: bytes }),
        }
    }

    /// Copies a whole buffer back, after everything launched has finished.
    ///
    /// # Errors
    /// A fault of a program that was launched before, or a device error.
    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError>;

    /// Gives a buffer back.
    ///
    /// # Errors
    /// The buffer is not one of this engine's.
    fn free(&mut self, buffer: Buffer) -> Result<(), EngineError>;

    /// Runs a program to its end and says how long it took on the device.
    ///
    /// # Errors
    /// Arguments that do not fit, an address that is in no buffer of this engine, a program the engine cannot load, or a fault
    /// while it ran.
    fn launch(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Duration, EngineError>;

    /// Reserves a workspace of so many bytes for calls; `None` for no bytes. Its memory goes when its
    /// [`buffer`](WorkspaceRef::buffer) is given back.
    ///
    /// # Errors
    /// As [`Engine::allocate`] and [`Engine::write`].
    fn workspace(&mut self, bytes: u64) -> Result<Option<WorkspaceRef>, EngineError> {
        if bytes == 0 {
            return Ok(None);
        }
        let buffer = self.upload(&vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)])?;
        Ok(Some(WorkspaceRef { address: buffer.address, bytes }))
    }

    /// Reserves memory for some bytes and copies them there.
    ///
    /// # Errors
    /// As [`Engine::allocate`] and [`Engine::write`].
    fn upload(&mut self, bytes: &[u8]) -> Result<Buffer, EngineError> {
        let buffer = self.allocate(bytes.len())?;
        match self.write(buffer, bytes) {
            Ok(()) => Ok(buffer),
            Err(error) => {
                // The reason is the first error's; a buffer that cannot be given back either goes with the engine.
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

    /// Takes nothing, and knows what was not given back.
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
