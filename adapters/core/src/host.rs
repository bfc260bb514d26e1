//! A call in the emulator, on the host's memory.
#![allow(unsafe_code, reason = "reads and writes the caller's memory")]

use falchion::collective::Record;
use falchion::emulator::{Numerics, Schedule};
use falchion::kernel::operands::{Memory, Visit};
use falchion::kernel::{Buffer, Demand, Emulator, Engine, EngineError, Kernel, LaunchError, Program};

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

/// A kernel whose calls run on the host's memory.
pub trait Hosted<C>: Kernel<C> {
    /// Checks the tables that a call names, whose numbers of 32 bits `read` returns: an address, and how many.
    ///
    /// # Errors
    /// The first number that is wrong.
    fn check_tables(&self, _call: &C, _read: &dyn Fn(u64, u64) -> Vec<u32>) -> Result<(), LaunchError> {
        Ok(())
    }

    /// The records that a call names.
    ///
    /// # Safety
    /// As [`run`].
    unsafe fn records(&self, _call: &C) -> Vec<Record> {
        Vec::new()
    }

    /// Visits the memory that records name.
    fn visit_records(&self, _call: &C, _records: &mut [Record], _visit: &mut dyn Visit) {}

    /// Changes the address of a call's records.
    fn move_records(&self, _call: &mut C, _address: u64) {}
}

/// The caller's memory, in pieces that do not overlap.
#[derive(Default)]
struct Pieces(Vec<Piece>);

struct Piece {
    /// The caller's address, and that of the first byte after it.
    host: u64,
    end: u64,
    writes: bool,
    /// The copy, and its bytes before the caller's.
    copy: Option<(Buffer, usize)>,
}

impl Pieces {
    /// Joins pieces that overlap: what one writes, another may read, and no copy may overwrite another one's results.
    fn join(&mut self) {
        let mut all = core::mem::take(&mut self.0);
        all.sort_by_key(|piece| piece.host);
        for piece in all {
            match self.0.last_mut().filter(|last| piece.host < last.end) {
                Some(last) => {
                    last.end = last.end.max(piece.end);
                    last.writes |= piece.writes;
                }
                None => self.0.push(piece),
            }
        }
    }

    /// Copies the pieces into an emulator.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn upload(&mut self, engine: &mut Emulator) -> Result<(), EngineError> {
        for piece in &mut self.0 {
            // As far after a multiple of 256 as the caller's.
            let before = (piece.host % 256) as usize;
            let mut copy = vec![0; before];
            let start = core::ptr::with_exposed_provenance::<u8>(piece.host as usize);
            let bytes = usize::try_from(piece.end - piece.host).unwrap_or(usize::MAX);
            // SAFETY: the caller guarantees that these bytes can be read.
            copy.extend_from_slice(unsafe { core::slice::from_raw_parts(start, bytes) });
            piece.copy = Some((engine.upload(&copy)?, before));
        }
        Ok(())
    }

    /// Copies what was written back to the caller's memory.
    ///
    /// # Safety
    /// It may be written, and nobody else uses it.
    unsafe fn download(&self, engine: &mut Emulator) -> Result<(), EngineError> {
        for Piece { host, end, copy, .. } in self.0.iter().filter(|piece| piece.writes) {
            let Some((buffer, before)) = copy else { continue };
            let result = engine.read(*buffer)?;
            let to = core::ptr::with_exposed_provenance_mut::<u8>(*host as usize);
            let bytes = usize::try_from(end - host).unwrap_or(usize::MAX);
            // SAFETY: the caller guarantees that these bytes may be written, and that nobody else uses them.
            unsafe { core::ptr::copy_nonoverlapping(result[*before..].as_ptr(), to, bytes) };
        }
        Ok(())
    }
}

/// The address of a workspace that is not there yet.
pub(crate) const NOWHERE: u64 = 1 << 60;

/// The numbers at an address.
///
/// # Safety
/// They can be read.
unsafe fn numbers(address: u64, count: u64) -> Vec<u32> {
    let first = core::ptr::with_exposed_provenance::<u32>(address as usize);
    // SAFETY: the caller guarantees it.
    (0..count as usize).map(|i| unsafe { first.add(i).read_unaligned() }).collect()
}

/// Runs a call whose addresses are the host's.
///
/// # Safety
/// Every piece of memory that the call names can be read as far as its extents reach; what the kernel writes
/// can be written, and nobody else uses it meanwhile.
pub(crate) unsafe fn run<C: Clone>(
    kernel: &impl Hosted<C>,
    program: &Program,
    call: &C,
    run: Run,
) -> Result<(), EngineError> {
    let numerics = if run.exact { Numerics::Exact } else { Numerics::Fast };
    let mut engine = Emulator::new().with_schedule(run.schedule, run.seed).with_numerics(numerics);
    let resident = engine.resident_clusters(program)?;
    let refused = |source: LaunchError| EngineError::Call { kernel: program.name().to_owned(), source };
    // The caller's own addresses are checked, as a launch checks them. The workspace is the emulator's.
    let (mut call, bytes) = (call.clone(), kernel.workspace(call, resident));
    kernel.lend_workspace(&mut call, (bytes > 0).then_some(Buffer::new(NOWHERE, bytes)));
    if kernel.launch(&call, resident).map_err(refused)?.is_none() {
        return Ok(());
    }
    // Nothing is allocated before it is known to fit.
    engine.admit(&Demand::of(kernel, &call, resident).map_err(refused)?, 1)?;
    // SAFETY: the launch has checked the tables' addresses, and the caller guarantees that they can be read.
    kernel.check_tables(&call, &|address, count| unsafe { numbers(address, count) }).map_err(refused)?;
    let workspace = engine.workspace(bytes)?;
    kernel.lend_workspace(&mut call, None);
    let mut pieces = Pieces::default();
    // SAFETY: the caller guarantees all of it.
    let mut records = unsafe { kernel.records(&call) };
    let mut see = |Memory { address, extents, writes, .. }: Memory<'_>| {
        let bytes = extents.bytes();
        if bytes > 0 && *address != 0 {
            let end = address.saturating_add(bytes);
            pieces.0.push(Piece { host: *address, end, writes, copy: None });
        }
    };
    kernel.visit(&mut call, &mut see);
    kernel.visit_records(&call, &mut records, &mut see);
    pieces.join();
    // SAFETY: the same.
    unsafe { pieces.upload(&mut engine) }?;
    // The caller's addresses become those of the copies.
    let mut moves = |Memory { address, extents, .. }: Memory<'_>| {
        let of = |piece: &&Piece| (piece.host..piece.end).contains(address) && extents.bytes() > 0;
        if let Some(Piece { host, copy: Some((buffer, before)), .. }) = pieces.0.iter().find(of) {
            *address = buffer.address + *before as u64 + (*address - host);
        }
    };
    kernel.visit_records(&call, &mut records, &mut moves);
    kernel.visit(&mut call, &mut moves);
    if !records.is_empty() {
        let bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
        kernel.move_records(&mut call, engine.upload(&bytes)?.address);
    }
    kernel.lend_workspace(&mut call, workspace);
    let Some(launch) = kernel.launch(&call, resident).map_err(refused)? else { return Ok(()) };
    engine.launch(program, launch.grid, &launch.arguments)?;
    // SAFETY: the same.
    unsafe { pieces.download(&mut engine) }
}
