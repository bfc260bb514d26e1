//! A call in the emulator, on the host's memory.
#![allow(unsafe_code, reason = "reads and writes the caller's memory")]

use std::time::Duration;

use falchion::emulator::{Numerics, Schedule};
use falchion::kernel::operands::{Memory, Visit};
use falchion::kernel::{Buffer, Emulator, Engine, EngineError, Kernel, LaunchError, Program};

/// How the emulator runs a call.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// In which order warps run and asynchronous operations complete.
    pub schedule: Schedule,
    /// Which of the random orders.
    pub seed: u64,
    /// Whether `wgmma` sums as the hardware does, bit for bit.
    pub exact: bool,
}

impl Default for Run {
    fn default() -> Self {
        Self { schedule: Schedule::Default, seed: 0, exact: false }
    }
}

/// A copy of the caller's memory in the emulator.
struct Copied {
    /// The caller's address.
    host: u64,
    bytes: usize,
    buffer: Buffer,
    /// Bytes of the buffer before the copy.
    before: usize,
    writes: bool,
}

/// Copies the memory of a call into an emulator, and changes the call's addresses to those of the copies.
struct Upload<'a> {
    engine: &'a mut Emulator,
    copied: Vec<Copied>,
    failed: Option<EngineError>,
}

impl Upload<'_> {
    /// The emulator's address for `bytes` bytes at the caller's.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn copy(&mut self, host: u64, bytes: usize, writes: bool) -> Result<u64, EngineError> {
        let whole = |copied: &&mut Copied| copied.host == host && copied.bytes >= bytes;
        if let Some(known) = self.copied.iter_mut().find(whole) {
            known.writes |= writes;
            return Ok(known.buffer.address + known.before as u64);
        }
        // As far after a multiple of 256 as the caller's.
        let before = (host % 256) as usize;
        let mut copy = vec![0; before];
        let start = core::ptr::with_exposed_provenance::<u8>(host as usize);
        // SAFETY: the caller guarantees that these bytes can be read.
        copy.extend_from_slice(unsafe { core::slice::from_raw_parts(start, bytes) });
        let buffer = self.engine.upload(&copy)?;
        self.copied.push(Copied { host, bytes, buffer, before, writes });
        Ok(buffer.address + before as u64)
    }
}

impl Visit for Upload<'_> {
    fn memory(&mut self, Memory { address, extents, writes, .. }: Memory<'_>) {
        let bytes = usize::try_from(extents.bytes()).unwrap_or(usize::MAX);
        if bytes == 0 || *address == 0 || self.failed.is_some() {
            return;
        }
        // SAFETY: whoever emulates a call guarantees the memory that it names; the call has been checked.
        match unsafe { self.copy(*address, bytes, writes) } {
            Ok(own) => *address = own,
            Err(error) => self.failed = Some(error),
        }
    }
}

/// Runs a call whose addresses are the host's.
///
/// # Safety
/// Every piece of memory that the call names can be read as far as its extents reach; what the kernel writes
/// can be written, and nobody else uses it meanwhile.
pub(crate) unsafe fn run<C: Clone>(
    kernel: &impl Kernel<C>,
    program: &Program,
    call: &C,
    run: Run,
) -> Result<Option<Duration>, EngineError> {
    let numerics = if run.exact { Numerics::Exact } else { Numerics::Fast };
    let mut engine = Emulator::new().with_schedule(run.schedule, run.seed).with_numerics(numerics);
    let slots = engine.slots(program)?;
    let refused = |source: LaunchError| EngineError::Call { kernel: program.name().to_owned(), source };
    // The caller's own addresses are checked, as a launch checks them. The workspace is the emulator's.
    let workspace = engine.workspace(kernel.workspace(call, slots))?;
    let mut call = call.clone();
    kernel.lend_workspace(&mut call, workspace);
    if kernel.launch(&call, slots).map_err(refused)?.is_none() {
        return Ok(None);
    }
    kernel.lend_workspace(&mut call, None);
    let mut upload = Upload { engine: &mut engine, copied: Vec::new(), failed: None };
    kernel.visit(&mut call, &mut upload);
    let Upload { copied, failed, .. } = upload;
    failed.map_or(Ok(()), Err)?;
    kernel.lend_workspace(&mut call, workspace);
    let Some(launch) = kernel.launch(&call, slots).map_err(refused)? else { return Ok(None) };
    let time = engine.launch(program, launch.grid, &launch.arguments)?;
    for Copied { host, bytes, buffer, before, .. } in copied.into_iter().filter(|copied| copied.writes) {
        let result = engine.read(buffer)?;
        let end = core::ptr::with_exposed_provenance_mut::<u8>(host as usize);
        // SAFETY: the caller guarantees that these bytes may be written, and that nobody else uses them.
        unsafe { core::ptr::copy_nonoverlapping(result[before..].as_ptr(), end, bytes) };
    }
    Ok(Some(time))
}
