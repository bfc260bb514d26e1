//! The memory of a check on an engine, and the launches on it.

use std::time::Duration;

use collective::BlockScales;
use kernel::{
    AnyGemm, Arguments, Buffer, Call, Demand, Engine, EngineError, Kernel, Launch, MatrixRef, Program,
};

use super::product::RunError;
use super::repeat::chunks;
use super::{Format, HostMatrix, Scales};

/// Where matrices are copied to.
pub(super) trait Upload {
    /// Copies bytes, and returns their address.
    fn upload(&mut self, bytes: &[u8]) -> Result<u64, EngineError>;

    /// Copies matrices of the same extents, one after the other.
    fn matrices<'m>(
        &mut self,
        all: impl IntoIterator<Item = &'m HostMatrix>,
    ) -> Result<MatrixRef, EngineError> {
        let all: Vec<&HostMatrix> = all.into_iter().collect();
        let bytes: Vec<u8> = all.iter().flat_map(|matrix| matrix.bytes()).collect();
        let stride = if let [first, _, ..] = all[..] { first.bits.len() as u64 } else { 0 };
        let ld = all.first().map_or(16, |matrix| matrix.ld);
        Ok(MatrixRef::new(self.upload(&bytes)?, ld.into()).every(stride))
    }

    /// Copies the block scales of A and B.
    fn scales(&mut self, [a, b]: [&[Scales]; 2]) -> Result<BlockScales, EngineError> {
        let values = |scales: &'_ Scales| scales.values.clone();
        let [a, b] = [a, b].map(|of| of.iter().map(values).collect::<Vec<_>>());
        Ok(BlockScales { a: self.matrices(&a)?, b: self.matrices(&b)? })
    }

    /// Copies numbers.
    fn words(&mut self, words: &[u32]) -> Result<u64, EngineError> {
        self.upload(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>())
    }
}

/// An engine, and the memory of a check, which is freed in the end, also after an error.
pub(super) struct Session<'e> {
    pub(super) engine: &'e mut dyn Engine,
    buffers: Vec<Buffer>,
}

/// D's memory: a whole number of chunks that can be compared on the device.
pub(super) struct Output {
    pub(super) format: Format,
    pub(super) buffer: Buffer,
    /// Its contents before the launch, one word per element.
    pub(super) before: Vec<u64>,
}

/// A launch that has ended.
pub(super) struct Ran<'p> {
    pub(super) program: &'p Program,
    /// `None` if there was nothing to compute.
    pub(super) launch: Option<Launch>,
    pub(super) time: Option<Duration>,
}

impl<'e> Session<'e> {
    pub(super) fn new(engine: &'e mut dyn Engine) -> Self {
        Self { engine, buffers: Vec::new() }
    }

    pub(super) fn buffer(&mut self, bytes: &[u8]) -> Result<Buffer, EngineError> {
        let buffer = self.engine.upload(bytes)?;
        self.buffers.push(buffer);
        Ok(buffer)
    }

    /// D's memory with at least these elements; the rest is poison.
    pub(super) fn output(&mut self, format: Format, mut before: Vec<u64>) -> Result<Output, EngineError> {
        before.resize(chunks(format, before.len()), format.poison());
        Ok(Output { format, buffer: self.buffer(&format.memory(&before))?, before })
    }

    /// D's elements.
    pub(super) fn read(&mut self, d: &Output) -> Result<Vec<u64>, EngineError> {
        Ok(d.format.elements(&self.engine.read(d.buffer)?))
    }

    /// Launches a kernel, with the workspace that it needs.
    pub(super) fn launch<'p, E: Arguments + Clone>(
        &mut self,
        (entry, program): (&AnyGemm, &'p Program),
        call: Call<E>,
    ) -> Result<Ran<'p>, RunError> {
        let resident = self.engine.resident_clusters(program)?;
        self.engine.admit(&Demand { bytes: 0, work: entry.total_work(&call) }, 0)?;
        let workspace = self.engine.workspace(entry.workspace(&call, resident))?;
        self.buffers.extend(workspace);
        let launch = entry.launch(&Call { workspace, ..call }, resident)?;
        let run = |Launch { grid, arguments, .. }: &Launch| self.engine.launch(program, *grid, arguments);
        let time = launch.as_ref().map(run).transpose()?;
        Ok(Ran { program, launch, time })
    }
}

impl Upload for Session<'_> {
    fn upload(&mut self, bytes: &[u8]) -> Result<u64, EngineError> {
        Ok(self.buffer(bytes)?.address)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        for buffer in self.buffers.drain(..) {
            // After a fault the device and its memory are lost. The fault is reported, not the failure to free.
            let _ = self.engine.free(buffer);
        }
    }
}
