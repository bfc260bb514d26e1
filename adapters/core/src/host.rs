//! A call in the emulator, on the host's memory.
#![allow(unsafe_code, reason = "reads and writes the caller's memory")]

use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use falchion::collective::Record;
use falchion::emulator::{Numerics, Schedule};
use falchion::kernel::operands::{Memory, Overlaps, Visit};
use falchion::kernel::{
    Buffer, Demand, Emulator, Engine, EngineError, Kernel, LaunchError, Program, check_apart,
};

/// A run of calls in the emulator that another thread watches and may end.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    stop: Arc<AtomicBool>,
    done: Arc<Done>,
}

/// How much of a run is done.
#[derive(Debug, Default)]
struct Done {
    /// The launch that runs, and number of launches.
    launch: [AtomicUsize; 2],
    /// CTAs of that launch that have ended, and of its grid.
    ctas: [AtomicU64; 2],
}

impl Watch {
    /// Ends the run soon, with [`EngineError::Stopped`]. What it writes is then not copied back.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// Says that a number of `of` equal parts is done, in whatever units: in a run that is no launch.
    pub fn show(&self, done: u64, of: u64) {
        self.done.ctas[0].store(done, Relaxed);
        self.done.ctas[1].store(of, Relaxed);
    }

    /// The part of the run that is done, from 0 to 1.
    pub fn done(&self) -> f64 {
        let [launch, launches] = [0, 1].map(|i| self.done.launch[i].load(Relaxed) as f64);
        let [done, of] = [0, 1].map(|i| self.done.ctas[i].load(Relaxed) as f64);
        (launch + done / of.max(1.0)) / launches.max(1.0)
    }

    /// Begins a launch.
    fn begin(&self, [launch, of]: [usize; 2]) {
        self.show(0, 1);
        self.done.launch[0].store(launch, Relaxed);
        self.done.launch[1].store(of, Relaxed);
    }
}

/// How the emulator runs a call.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// In which order warps run and asynchronous operations complete.
    pub schedule: Schedule,
    /// Which of the random orders.
    pub seed: u64,
    /// Whether `wgmma` sums as the hardware does, bit for bit.
    pub exact: bool,
    /// Who watches the run, if somebody does.
    pub watch: Option<&'a Watch>,
    /// Which launch of the run it is, and number of launches.
    pub part: [usize; 2],
}

impl Run<'_> {
    /// One of the launches of this one.
    pub(crate) fn part(self, [launch, of]: [usize; 2]) -> Self {
        let [first, launches] = self.part;
        Self { part: [first * of + launch, launches * of], ..self }
    }
}

impl Default for Run<'_> {
    fn default() -> Self {
        Self { schedule: Schedule::Default, seed: 0, exact: false, watch: None, part: [0, 1] }
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
    /// As [`Picked::emulate`](crate::Picked::emulate).
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

/// Runs all programs of a kernel for a call whose addresses are the host's.
///
/// # Safety
/// As [`run`].
pub(crate) unsafe fn run_all<C: Clone>(
    kernel: &impl Hosted<C>,
    programs: &[Arc<Program>],
    call: &C,
    how: Run<'_>,
) -> Result<(), EngineError> {
    let (steps, given) = (kernel.steps(), programs.len());
    let [first, ..] = programs else {
        let kernel = core::any::type_name_of_val(kernel).to_owned();
        return Err(EngineError::Programs { kernel, given, needed: steps.len().max(1) });
    };
    if steps.is_empty() {
        // SAFETY: the caller guarantees it.
        return unsafe { run((kernel, kernel), first, call, how) };
    }
    let refused = |source| EngineError::Call { kernel: first.name().to_owned(), source };
    let engine = Emulator::new();
    let resident = engine.multiprocessors();
    let (mut call, bytes) = (call.clone(), kernel.workspace(call, resident));
    kernel.lend_workspace(&mut call, (bytes > 0).then_some(Buffer::new(NOWHERE, bytes)));
    steps.iter().try_for_each(|step| step.launch(&call, resident).map(drop)).map_err(refused)?;
    // What one program writes, a later one may read, or write too.
    check_apart(kernel, &call).map_err(refused)?;
    // Nothing is allocated before it is known to fit.
    engine.admit(&Demand::of(kernel, &call, resident).map_err(refused)?, 1)?;
    // The steps pass things on in a workspace, which is the host's as the rest of the call.
    let mut room = vec![0u8; usize::try_from(bytes).unwrap_or(0) + 256];
    let address = (room.as_mut_ptr().expose_provenance() as u64).next_multiple_of(256);
    kernel.lend_workspace(&mut call, (bytes > 0).then_some(Buffer::new(address, bytes)));
    steps.iter().zip(programs).enumerate().try_for_each(|(i, (step, program))| {
        // SAFETY: the caller guarantees it; the workspace is alive and large enough.
        unsafe { run((&**step, kernel), program, &call, how.part([i, steps.len()])) }
    })
}

/// Runs a program of a kernel, for a call whose addresses are the host's. `hosted` is the kernel, `kernel` that or one of its
/// [steps](Kernel::steps).
///
/// # Safety
/// Every piece of memory that the call names can be read as far as its extents reach; what the kernel writes
/// can be written, and nobody else uses it meanwhile.
unsafe fn run<C: Clone>(
    (kernel, hosted): (&dyn Kernel<C>, &dyn Hosted<C>),
    program: &Program,
    call: &C,
    run: Run<'_>,
) -> Result<(), EngineError> {
    let numerics = if run.exact { Numerics::Exact } else { Numerics::Fast };
    let mut engine = Emulator::new().with_schedule(run.schedule, run.seed).with_numerics(numerics);
    if let Some(watch) = run.watch {
        watch.begin(run.part);
        let shown = watch.clone();
        engine = engine
            .with_stop(Arc::clone(&watch.stop))
            .with_progress(Box::new(move |done, of| shown.show(done, of)));
    }
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
    hosted.check_tables(&call, &|address, count| unsafe { numbers(address, count) }).map_err(refused)?;
    let workspace = engine.workspace(bytes)?;
    kernel.lend_workspace(&mut call, None);
    let mut pieces = Pieces::default();
    // SAFETY: the caller guarantees all of it.
    let mut records = unsafe { hosted.records(&call) };
    let mut see = |Memory { address, extents, writes, .. }: Memory<'_>| {
        let bytes = extents.bytes();
        if bytes > 0 && *address != 0 {
            let end = address.saturating_add(bytes);
            pieces.0.push(Piece { host: *address, end, writes, copy: None });
        }
    };
    kernel.visit(&mut call, &mut see);
    hosted.visit_records(&call, &mut records, &mut see);
    let mut all = |visit: &mut dyn Visit| {
        kernel.visit(&mut call, visit);
        hosted.visit_records(&call, &mut records, visit);
    };
    let mut overlaps = Overlaps::default();
    all(&mut overlaps);
    overlaps.check(all).map_err(refused)?;
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
    hosted.visit_records(&call, &mut records, &mut moves);
    kernel.visit(&mut call, &mut moves);
    if !records.is_empty() {
        let bytes: Vec<u8> = records.iter().flat_map(Record::to_bytes).collect();
        hosted.move_records(&mut call, engine.upload(&bytes)?.address);
    }
    kernel.lend_workspace(&mut call, workspace);
    let Some(launch) = kernel.launch(&call, resident).map_err(refused)? else { return Ok(()) };
    engine.launch(program, launch.grid, &launch.arguments)?;
    // SAFETY: the same.
    unsafe { pieces.download(&mut engine) }
}
