//! A rank's machine: a GPU with NCCL, or the emulator with sockets.

mod collectives;
pub(crate) mod nccl;
mod order;
pub(crate) mod queue;

use core::ffi::c_void;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::CudaStream;

use falchion::kernel::driver::{Enqueue, Gpu, Graph, Memories, Stream};
use falchion::kernel::operands::{self, Contents};
use falchion::kernel::{AnyGemm, Buffer, Call, Emulator, Engine, Kernel, Machine, Request};
use falchion_core::{Epilogue, Kept, Picked};

use self::collectives::emulated;
use self::nccl::{Collective, Communicator};
use self::order::Order;
use self::queue::{CardEvent, Mark, Queue};
use crate::control::Control;
use crate::element::Kind;
use crate::error::Error;

/// A rank's machine. Tensors share it.
#[derive(Clone, Debug)]
pub(crate) struct Device(Arc<Mutex<Backend>>);

enum Backend {
    Emulated(Emulator, Order),
    Card(Card),
}

struct Card {
    gpu: Gpu,
    ordinal: usize,
    communicator: Option<Arc<Communicator>>,
    graphs: Vec<Option<Graph>>,
    /// Streams besides the GPU's own; and the one on which work is enqueued now, if it is not the GPU's.
    queues: Vec<Queue>,
    current: Option<Queue>,
}

impl Card {
    /// The stream on which work is enqueued.
    fn raw(&self) -> *mut c_void {
        self.current.as_ref().map_or_else(|| self.gpu.stream().raw(), Queue::raw)
    }

    /// Waits for all streams.
    fn wait(&mut self) -> Result<(), Error> {
        self.gpu.wait()?;
        self.queues.iter().try_for_each(Queue::wait)
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Emulated(..) => "Emulated",
            Self::Card(_) => "Card",
        })
    }
}

impl Backend {
    fn engine(&mut self) -> &mut dyn Engine {
        match self {
            Self::Emulated(emulator, _) => emulator,
            Self::Card(card) => &mut card.gpu,
        }
    }
}

/// Memory of a device. It is freed with its last owner, after the work that was enqueued.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) buffer: Buffer,
    device: Device,
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut device = self.device.lock();
        if let Backend::Emulated(_, order) = &mut *device {
            order.forget(self.buffer.address, self.buffer.bytes as u64);
        }
        // A broken device has freed it.
        let _ = device.engine().free(self.buffer);
    }
}

/// The kernel of a product, ready to run: its workspace belongs to it.
pub(crate) struct Ready {
    pub(crate) gemm: Picked<AnyGemm>,
    workspace: Option<Memory>,
}

impl Ready {
    pub(crate) fn new(gemm: Picked<AnyGemm>) -> Self {
        Self { gemm, workspace: None }
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ready").field("gemm", &self.gemm).finish_non_exhaustive()
    }
}

impl Device {
    pub(crate) fn emulated() -> Self {
        Self(Arc::new(Mutex::new(Backend::Emulated(Emulator::new(), Order::default()))))
    }

    pub(crate) fn card(gpu: Gpu, ordinal: usize) -> Self {
        let (graphs, queues) = (Vec::new(), Vec::new());
        let card = Card { gpu, ordinal, communicator: None, graphs, queues, current: None };
        Self(Arc::new(Mutex::new(Backend::Card(card))))
    }

    fn lock(&self) -> MutexGuard<'_, Backend> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the other ranks' GPUs. In the emulator there is nothing to do.
    pub(crate) fn connect(&self, control: &mut Control) -> Result<(), Error> {
        if let Backend::Emulated(..) = *self.lock() {
            return Ok(());
        }
        let own = if control.rank() == 0 { nccl::unique_id()? } else { Vec::new() };
        let ids = control.exchange("NCCL's id", &own)?;
        let (rank, size) = (control.rank(), control.members().len() as u32);
        let mut device = self.lock();
        let Backend::Card(Card { gpu, communicator, .. }) = &mut *device else { return Ok(()) };
        let context = Arc::clone(gpu.context());
        let (id, within) = (&ids[0], control.limits().timeout);
        let made = Communicator::new(id, (rank, size), context, within, || control.alive());
        let made = Arc::new(made.inspect_err(|error| control.fail(format!("rank {rank}: {error}")))?);
        let aborted = Arc::clone(&made);
        control.when_failed(Box::new(move || aborted.abort()));
        *communicator = Some(made);
        Ok(())
    }

    pub(crate) fn describe(&self) -> String {
        self.lock().engine().describe()
    }

    pub(crate) fn machine(&self) -> Result<Machine, Error> {
        match &*self.lock() {
            Backend::Emulated(..) => Ok(Machine::h200()),
            Backend::Card(card) => Ok(card.gpu.context().machine()?),
        }
    }

    pub(crate) fn allocate(&self, bytes: usize) -> Result<Memory, Error> {
        let buffer = self.lock().engine().allocate(bytes.max(16))?;
        Ok(Memory { buffer, device: self.clone() })
    }

    /// New memory with this content.
    pub(crate) fn upload(&self, bytes: &[u8]) -> Result<Memory, Error> {
        let memory = self.allocate(bytes.len())?;
        self.write(&memory, bytes)?;
        Ok(memory)
    }

    /// Writes memory, after what was enqueued on the current stream.
    pub(crate) fn write(&self, memory: &Memory, bytes: &[u8]) -> Result<(), Error> {
        let mut device = self.lock();
        match &mut *device {
            Backend::Emulated(_, order) => {
                order.write(memory.buffer.address, bytes.len() as u64)?;
            }
            Backend::Card(card) => card.current.as_ref().map_or(Ok(()), Queue::wait)?,
        }
        Ok(device.engine().write(memory.buffer, bytes)?)
    }

    /// Reads memory, after all that was enqueued.
    pub(crate) fn read(&self, memory: &Memory, control: &Control) -> Result<Vec<u8>, Error> {
        let mut device = self.lock();
        let read = control.timed(|| {
            match &mut *device {
                Backend::Emulated(_, order) => order.waited(),
                Backend::Card(card) => card.queues.iter().try_for_each(Queue::wait)?,
            }
            Ok(device.engine().read(memory.buffer)?)
        });
        control.alive()?;
        read
    }

    /// Waits for everything that was enqueued.
    pub(crate) fn wait(&self, control: &Control) -> Result<(), Error> {
        let waited = match &mut *self.lock() {
            Backend::Emulated(_, order) => {
                order.waited();
                Ok(())
            }
            Backend::Card(card) => {
                let waited = control.timed(|| card.wait());
                waited.and(card.communicator.as_ref().map_or(Ok(()), |communicator| communicator.state()))
            }
        };
        control.alive()?;
        waited
    }

    /// A new stream.
    pub(crate) fn open(&self) -> Result<Queue, Error> {
        match &mut *self.lock() {
            Backend::Emulated(_, order) => Ok(Queue::Emulated(order.open())),
            Backend::Card(card) => {
                let queue = Queue::Own(Stream::new(card.gpu.context())?);
                card.queues.push(queue.clone());
                Ok(queue)
            }
        }
    }

    /// A caller's stream.
    pub(crate) fn lend(&self, stream: Arc<CudaStream>) -> Result<Queue, Error> {
        let device = &mut *self.lock();
        let ordinal = stream.context().ordinal();
        let refused =
            |found: String, needed: String| Err(Error::argument("the GPU of a stream", found, needed));
        match device {
            Backend::Emulated(..) => refused(ordinal.to_string(), "none: ranks are emulated".to_owned()),
            Backend::Card(card) if card.ordinal != ordinal => {
                refused(ordinal.to_string(), format!("{}, the rank's", card.ordinal))
            }
            Backend::Card(card) => {
                let queue = Queue::Lent(stream);
                card.queues.push(queue.clone());
                Ok(queue)
            }
        }
    }

    /// Waits for a stream, and forgets it.
    pub(crate) fn close(&self, queue: &Queue) {
        match &mut *self.lock() {
            Backend::Emulated(_, order) => order.close(queue.number()),
            Backend::Card(card) => {
                // What failed on it fails the next call too.
                let _ = queue.wait();
                card.queues.retain(|of| of.raw() != queue.raw());
            }
        }
    }

    /// Makes a stream the current one, or with `None` the device's own. Returns the one before.
    pub(crate) fn enter(&self, queue: Option<Queue>) -> Option<Queue> {
        match &mut *self.lock() {
            Backend::Emulated(_, order) => {
                let before = order.enter(queue.map_or(0, |queue| queue.number()));
                Some(Queue::Emulated(before))
            }
            Backend::Card(card) => core::mem::replace(&mut card.current, queue),
        }
    }

    /// The point that the current stream has reached.
    pub(crate) fn mark(&self) -> Result<Mark, Error> {
        Ok(match &*self.lock() {
            Backend::Emulated(_, order) => Mark::Emulated(order.mark()),
            Backend::Card(card) => Mark::Card(CardEvent::record(card.gpu.context(), card.raw())?),
        })
    }

    /// The current stream waits for a mark.
    pub(crate) fn after(&self, mark: &Mark) -> Result<(), Error> {
        match (&mut *self.lock(), mark) {
            (Backend::Emulated(_, order), Mark::Emulated(clock)) => order.after(clock),
            (Backend::Card(card), Mark::Card(event)) => event.before(card.raw())?,
            _ => {}
        }
        Ok(())
    }

    /// The kernel for a request: the model's choice, or with a budget the fastest that was measured on the card.
    pub(crate) fn choose(
        &self,
        request: &Request<'_>,
        machine: &Machine,
        budget: Option<u32>,
    ) -> Result<Picked<AnyGemm>, Error> {
        let ordinal = match &*self.lock() {
            Backend::Emulated(..) => None,
            Backend::Card(card) => Some(card.ordinal),
        };
        Ok(match (ordinal, budget) {
            (Some(ordinal), Some(budget)) => Picked::tuned(request, ordinal, budget)?,
            _ => Picked::new(request, None, machine, None)?,
        })
    }

    /// Loads a kernel, with a workspace for a call.
    pub(crate) fn prepare(&self, gemm: Picked<AnyGemm>, call: &Call<Epilogue>) -> Result<Ready, Error> {
        let mut ready = Ready::new(gemm);
        self.fit(&mut ready, call)?;
        Ok(ready)
    }

    /// Makes the workspace large enough for a call.
    pub(crate) fn fit(&self, ready: &mut Ready, call: &Call<Epilogue>) -> Result<(), Error> {
        let gemm = &ready.gemm;
        let bytes = match &mut *self.lock() {
            Backend::Emulated(emulator, _) => {
                let resident = emulator.resident_clusters(&*gemm.program()?)?;
                gemm.kernel().workspace(call, resident)
            }
            Backend::Card(card) => {
                gemm.load(card.ordinal)?;
                gemm.workspace(call).unwrap_or(0)
            }
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if bytes > ready.workspace.as_ref().map_or(0, |memory| memory.buffer.bytes) {
            let memory = self.allocate(bytes)?;
            self.write(&memory, &vec![0; bytes])?;
            ready.workspace = Some(memory);
        }
        Ok(())
    }

    /// Enqueues a call of a product, in its workspace.
    pub(crate) fn multiply(&self, ready: &Ready, call: Call<Epilogue>) -> Result<(), Error> {
        let workspace = ready.workspace.as_ref().map(|memory| memory.buffer);
        self.launch(&ready.gemm, &Call { workspace, ..call }, workspace, true)
    }

    /// Enqueues a call of any kernel, in a workspace of its own. Its memory is that of tensors, unless a layer has checked it.
    #[allow(
        unsafe_code,
        reason = "the memory of the call was found among the device's, or a layer has checked it"
    )]
    pub(crate) fn launch<K: Kernel<C> + Clone + Send + Sync + 'static, C: Clone>(
        &self,
        kernel: &Kept<K>,
        call: &C,
        workspace: Option<Buffer>,
        checked: bool,
    ) -> Result<(), Error> {
        match &mut *self.lock() {
            Backend::Emulated(emulator, order) => {
                let mut touched = Touched::of(kernel.kernel(), call);
                let own = workspace.map(|own| ("the workspace", own.address, own.bytes as u64, true));
                touched.all.extend(own);
                order.work(&touched.all)?;
                kernel.kernel().run(emulator, call)?;
            }
            Backend::Card(card) => {
                if !checked {
                    Touched::of(kernel.kernel(), call).among(card.gpu.memories())?;
                }
                // SAFETY: all memory that the call names is allocated. Memory that is freed waits for what was
                // enqueued.
                unsafe { kernel.launch(card.ordinal, card.raw(), call)? };
            }
        }
        Ok(())
    }

    /// Enqueues collectives of all ranks, as one.
    #[allow(unsafe_code, reason = "layers check the memory of their collectives")]
    pub(crate) fn collectives(
        &self,
        control: &mut Control,
        operations: &[(Kind, Collective)],
    ) -> Result<(), Error> {
        match &mut *self.lock() {
            Backend::Emulated(emulator, order) => operations.iter().try_for_each(|(kind, operation)| {
                order.work(&operation.touched(kind.bytes(), control.members().len()))?;
                emulated(emulator, control, *kind, operation)
            }),
            Backend::Card(card) => {
                let Some(communicator) = &card.communicator else {
                    return Err(Error::Nccl("no communicator".to_owned()));
                };
                let _current = card.gpu.context().bind()?;
                // SAFETY: as in `multiply`; the stream is one of the GPU's.
                let enqueued = unsafe { communicator.enqueue(operations, card.raw()) };
                // The group's failure says more than what followed from it.
                enqueued.map_err(|error| control.alive().err().unwrap_or(error))
            }
        }
    }

    /// Whether it is the same device.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Keeps a graph, whose collectives need the communicator. Returns its place.
    pub(crate) fn keep(&self, graph: Graph) -> usize {
        let Backend::Card(Card { graphs, .. }) = &mut *self.lock() else { return usize::MAX };
        graphs.push(Some(graph));
        graphs.len() - 1
    }

    /// Enqueues a graph that is kept.
    pub(crate) fn replay(&self, place: usize) -> Result<(), Error> {
        if let Backend::Card(card) = &*self.lock()
            && let Some(Some(graph)) = card.graphs.get(place)
        {
            if card.current.is_some() {
                let needed = "the group's own stream";
                return Err(Error::argument("the stream of a record", "another", needed));
            }
            graph.enqueue(card.gpu.stream())?;
        }
        Ok(())
    }

    /// Ends a graph.
    pub(crate) fn forget(&self, place: usize) {
        if let Backend::Card(Card { graphs, .. }) = &mut *self.lock()
            && let Some(graph) = graphs.get_mut(place)
        {
            *graph = None;
        }
    }

    /// Ends the communicator, with the other ranks.
    pub(crate) fn end(&self, control: &Control) {
        if let Backend::Card(card) = &mut *self.lock()
            && let Some(communicator) = card.communicator.clone()
        {
            let whole = control.alive().is_ok() && !std::thread::panicking();
            let waited = whole && control.timed(|| card.wait()).is_ok();
            match card.gpu.context().bind() {
                Ok(_current) if waited => {
                    card.graphs.clear();
                    control.going();
                    communicator.end();
                }
                _ => communicator.abort(),
            }
        }
    }

    /// The GPU, to enqueue what layers do not; `None` in the emulator.
    pub(crate) fn with_gpu<T>(&self, work: impl FnOnce(&mut Gpu) -> T) -> Option<T> {
        match &mut *self.lock() {
            Backend::Emulated(..) => None,
            Backend::Card(card) => Some(work(&mut card.gpu)),
        }
    }
}

/// The memory of a call: name, address, bytes, and whether it is written.
#[derive(Default)]
struct Touched {
    all: Vec<(&'static str, u64, u64, bool)>,
    strange: Option<Error>,
}

impl Touched {
    fn of<C: Clone>(kernel: &impl Kernel<C>, call: &C) -> Self {
        let mut touched = Self::default();
        kernel.visit(&mut call.clone(), &mut |memory: operands::Memory<'_>| {
            let operands::Memory { name, address, extents, contents, writes } = memory;
            touched.all.push((name, *address, extents.bytes(), writes));
            if contents == Contents::Records {
                let needed = "none: nobody can see what they name";
                touched.strange.get_or_insert_with(|| Error::argument(name, "records", needed));
            }
        });
        touched
    }

    /// Checks that all of it is memory of a device.
    fn among(self, memories: &Memories) -> Result<(), Error> {
        self.strange.map_or(Ok(()), Err)?;
        let strange = |(_, address, bytes, _): &&(_, u64, u64, _)| {
            *bytes > 0 && memories.containing(*address, *bytes).is_none()
        };
        self.all.iter().find(strange).map_or(Ok(()), |(name, address, bytes, _)| {
            let found = format!("{bytes} B at {address:#x}");
            Err(Error::argument(*name, found, "memory of one of the group's tensors"))
        })
    }
}
