//! A group of ranks.

use std::sync::Arc;
use std::thread;

use cudarc::driver::CudaStream;
use falchion::kernel::driver::{Context, Gpu};
use falchion::kernel::{AnyGemm, Machine, Request};
use falchion_core::Picked;

use crate::control::frame::Member;
use crate::control::{Control, Limits, coordinator, meeting};
use crate::device::nccl::{self, Collective, Message, Reduction};
use crate::device::{Device, Memory};
use crate::element::{Element, Kind, bytes, numbers};
use crate::error::Error;
use crate::place::{Meeting, Place};
use crate::record::Record;
use crate::stream::{Event, SideStream};
use crate::tensor::{Slice, SliceMut, Tensor};

/// A rank's part in a group of ranks: its machine, and its connection to the others.
///
/// All ranks do the same in the same order. If one of them ends, does not come, or wants something else, then
/// every rank's next call returns [`Error::Lost`] with the same sentence, and what waits on a GPU is ended.
///
/// ```
/// use falchion_parallel::{Error, Group};
///
/// let sums = Group::emulated(3)?.into_iter().map(|mut group| {
///     std::thread::spawn(move || {
///         let own = group.upload(&[group.rank() as f32 + 1.0])?;
///         let mut sum = group.zeros::<f32>(1)?;
///         group.all_reduce(own.view(), sum.view_mut())?;
///         group.read(&sum)
///     })
/// });
/// for sum in sums.collect::<Vec<_>>() {
///     assert_eq!(sum.join().expect("no panic")?, [6.0]);
/// }
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Group {
    device: Device,
    control: Control,
    /// Rank 0's own process waits for the others to leave.
    coordinator: Option<thread::JoinHandle<()>>,
    machine: Machine,
    /// Memory for what is gathered or not reduced yet. The order of the stream protects it.
    scratch: Option<Arc<Memory>>,
    /// Whether what is enqueued becomes part of a record.
    recording: bool,
    /// Kernels to measure per request.
    budget: Option<u32>,
}

/// Who waits for a device to be there.
type Ready = (Device, Member);

impl Group {
    /// The group that the launcher describes ([`Place::from_environment`]): torchrun, Slurm or MPI, one
    /// process per GPU. A rank takes the GPU of its local rank; if its process sees only one, that one.
    ///
    /// # Errors
    /// A variable that is missing or wrong; no GPU; no NCCL; a rank that does not come.
    pub fn from_environment(limits: Limits) -> Result<Self, Error> {
        let place = Place::from_environment()?;
        let device = card(place.local_rank as usize)?;
        Self::join(&place, device, limits)
    }

    /// The same ranks, each with an emulator instead of a GPU.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment), but for GPUs and NCCL.
    pub fn emulated_from_environment(limits: Limits) -> Result<Self, Error> {
        Self::join(&Place::from_environment()?, emulated(), limits)
    }

    /// `size` ranks in this process, each with an emulator. Each rank needs a thread of its own.
    ///
    /// # Errors
    /// A size of 0, or the system has no port or thread left.
    pub fn emulated(size: u32) -> Result<Vec<Self>, Error> {
        Self::emulated_within(size, Limits::default())
    }

    /// The same with other limits.
    ///
    /// # Errors
    /// As [`emulated`](Self::emulated).
    pub fn emulated_within(size: u32, limits: Limits) -> Result<Vec<Self>, Error> {
        Self::threads((0..size).map(|_| Ok(emulated())), limits)
    }

    /// Ranks in this process, one per GPU. Each rank needs a thread of its own.
    ///
    /// # Errors
    /// No ordinals, one that does not exist or is there twice, or no NCCL.
    pub fn gpus(ordinals: &[usize], limits: Limits) -> Result<Vec<Self>, Error> {
        Self::threads(ordinals.iter().map(|&ordinal| card_of(ordinal)), limits)
    }

    fn threads(
        devices: impl Iterator<Item = Result<Ready, Error>>,
        limits: Limits,
    ) -> Result<Vec<Self>, Error> {
        let (limits, devices) = (limits.check()?, devices.collect::<Result<Vec<_>, _>>()?);
        let size = u32::try_from(devices.len()).unwrap_or(u32::MAX);
        if size == 0 {
            return Err(Error::argument("the number of ranks", 0, "at least 1"));
        }
        let listener = meeting::listen(0)?;
        let port = listener.local_addr().map_err(|error| Error::system("the meeting's port", &error))?.port();
        // Not joined: a thread of this process may hold all ranks, and drops one after the other.
        coordinator::serve(listener, size, "threads".to_owned(), limits)
            .map_err(|error| Error::system("the coordinator's thread", &error))?;
        let address = || Ok(vec![format!("127.0.0.1:{port}")]);
        let join = |rank: u32, (device, member): Ready| {
            let control = Control::join(address, "threads", (rank, size), member, limits)?;
            Self::new(device, control, None)
        };
        thread::scope(|scope| {
            let ranks: Vec<_> = devices
                .into_iter()
                .zip(0..)
                .map(|(device, rank)| scope.spawn(move || join(rank, device)))
                .collect();
            let ranks = ranks.into_iter().map(|rank| {
                rank.join().unwrap_or_else(|_| Err(Error::Meeting("a rank's thread panicked".to_owned())))
            });
            ranks.collect()
        })
    }

    fn join(place: &Place, (device, member): Ready, limits: Limits) -> Result<Self, Error> {
        let Place { rank, size, meeting, key, .. } = place;
        let (limits, mut coordinator) = (limits.check()?, None);
        if *rank == 0 {
            let port = match meeting {
                Meeting::Tcp { port, .. } => *port,
                Meeting::File(_) => 0,
            };
            let listener = meeting::listen(port)?;
            let own = listener.local_addr().map_err(|error| Error::system("the meeting's port", &error))?;
            let serving = coordinator::serve(listener, *size, key.clone(), limits);
            coordinator = Some(serving.map_err(|error| Error::system("the coordinator's thread", &error))?);
            if let Meeting::File(path) = meeting {
                meeting::publish(path, own.port())?;
            }
        }
        let addresses = || match meeting {
            Meeting::Tcp { host, port } => Ok(vec![format!("{host}:{port}")]),
            Meeting::File(path) => meeting::published(path),
        };
        let control = Control::join(addresses, key, (*rank, *size), member, limits);
        if let Some(coordinator) = coordinator.take_if(|_| control.is_err()) {
            // It tells those who come late.
            let _ = coordinator.join();
        }
        if let (0, Meeting::File(path)) = (rank, meeting) {
            // Everybody has come, or never will.
            let _ = std::fs::remove_file(path);
        }
        Self::new(device, control?, coordinator)
    }

    fn new(
        device: Device,
        mut control: Control,
        coordinator: Option<thread::JoinHandle<()>>,
    ) -> Result<Self, Error> {
        let machine = device.machine()?;
        device.connect(&mut control)?;
        Ok(Self { device, control, coordinator, machine, scratch: None, recording: false, budget: None })
    }

    /// The rank, from 0.
    pub fn rank(&self) -> u32 {
        self.control.rank()
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.control.members().len() as u32
    }

    /// Who the ranks are.
    pub fn members(&self) -> &[Member] {
        self.control.members()
    }

    /// The rank's machine, in words.
    pub fn describe(&self) -> String {
        self.device.describe()
    }

    /// Copies numbers to the rank's device.
    ///
    /// # Errors
    /// The device has not enough memory, or failed.
    pub fn upload<T: Element>(&self, data: &[T]) -> Result<Tensor<T>, Error> {
        Ok(Tensor::new(self.device.upload(&bytes(data))?, data.len()))
    }

    /// Zeros on the rank's device.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
    pub fn zeros<T: Element>(&self, len: usize) -> Result<Tensor<T>, Error> {
        self.upload(&vec![T::default(); len])
    }

    /// Waits for what was enqueued, and copies numbers to the host.
    ///
    /// # Errors
    /// The group or the device has failed.
    pub fn read<T: Element>(&self, tensor: &Tensor<T>) -> Result<Vec<T>, Error> {
        let bytes = self.device.read(&tensor.memory, &self.control)?;
        Ok(numbers(&bytes[..tensor.len() * T::KIND.bytes()]))
    }

    /// Waits for what was enqueued.
    ///
    /// # Errors
    /// The group or the device has failed.
    pub fn wait(&self) -> Result<(), Error> {
        self.device.wait(&self.control)
    }

    /// Waits until every rank has come here.
    ///
    /// # Errors
    /// The group has failed.
    pub fn barrier(&mut self) -> Result<(), Error> {
        self.control.exchange("a barrier", &[]).map(|_| ())
    }

    /// Every rank's bytes, over the network of hosts: for small things.
    ///
    /// # Errors
    /// The group has failed; another rank says something else at this point than `what`.
    pub fn exchange(&mut self, what: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        if self.recording {
            return Err(Error::argument(what, "part of a record", "outside: it needs the host"));
        }
        self.control.exchange(what, bytes)
    }

    /// Every rank's numbers, one after the other.
    ///
    /// # Errors
    /// `to` has not as many elements as all ranks' `from`; the group has failed.
    pub fn all_gather<T: Element>(&mut self, from: Slice<'_, T>, to: SliceMut<'_, T>) -> Result<(), Error> {
        exactly("to", to.len(), from.len() * self.size() as usize)?;
        let operation = Collective::AllGather { from: from.address(), to: to.address(), count: from.len() };
        self.collective::<T>(operation)
    }

    /// The sums of every rank's numbers.
    ///
    /// # Errors
    /// `to` has another length than `from`; numbers that cannot be added up; the group has failed.
    pub fn all_reduce<T: Element>(&mut self, from: Slice<'_, T>, to: SliceMut<'_, T>) -> Result<(), Error> {
        exactly("to", to.len(), from.len())?;
        let (from, to, count) = (from.address(), to.address(), from.len());
        self.collective::<T>(Collective::AllReduce { from, to, count, by: Reduction::Sum })
    }

    /// The largest of every rank's numbers.
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub fn all_max(&mut self, from: Slice<'_, f32>, to: SliceMut<'_, f32>) -> Result<(), Error> {
        exactly("to", to.len(), from.len())?;
        let (from, to, count) = (from.address(), to.address(), from.len());
        self.collective::<f32>(Collective::AllReduce { from, to, count, by: Reduction::Max })
    }

    /// The rank's part of the sums of every rank's numbers.
    ///
    /// # Errors
    /// `from` has not as many elements as all ranks' `to`; the group has failed.
    pub fn reduce_scatter<T: Element>(
        &mut self,
        from: Slice<'_, T>,
        to: SliceMut<'_, T>,
    ) -> Result<(), Error> {
        exactly("from", from.len(), to.len() * self.size() as usize)?;
        let operation = Collective::ReduceScatter { from: from.address(), to: to.address(), count: to.len() };
        self.collective::<T>(operation)
    }

    /// To each rank some numbers of `from`, and from each some numbers to `to`, one after the other.
    ///
    /// # Errors
    /// Not one count per rank, or counts that do not add up to the lengths; the group has failed.
    pub fn all_to_all<T: Element>(
        &mut self,
        from: (Slice<'_, T>, &[usize]),
        to: (SliceMut<'_, T>, &[usize]),
    ) -> Result<(), Error> {
        let size = self.size() as usize;
        let messages = |name: &str, len: usize, counts: &[usize]| {
            exactly(&format!("the counts of {name}"), counts.len(), size)?;
            exactly(name, len, counts.iter().sum())?;
            let mut first = 0;
            let message = |(peer, &count): (u32, &usize)| {
                first += count;
                Message { peer, first: first - count, count }
            };
            Ok::<Vec<_>, Error>((0..).zip(counts).map(message).collect())
        };
        let (sent, received) = (messages("from", from.0.len(), from.1)?, messages("to", to.0.len(), to.1)?);
        self.collective::<T>(Collective::AllToAll {
            from: from.0.address(),
            to: to.0.address(),
            sent,
            received,
        })
    }

    fn collective<T: Element>(&mut self, operation: Collective) -> Result<(), Error> {
        self.collectives(&[(T::KIND, operation)])
    }

    /// Enqueues collectives as one.
    pub(crate) fn collectives(&mut self, operations: &[(Kind, Collective)]) -> Result<(), Error> {
        self.control.alive()?;
        self.device.collectives(&mut self.control, operations)
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The machine for which kernels are chosen.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// From now on, layers that meet a new number of tokens measure up to `budget` kernels on the card, keep the times on disk,
    /// and take the fastest; with 0, they take the model's choice again, as in the emulator. What was measured earlier is not
    /// measured again.
    pub fn tune(&mut self, budget: u32) {
        self.budget = Some(budget).filter(|&budget| budget > 0);
    }

    pub(crate) fn gemm(&self, request: &Request<'_>) -> Result<Picked<AnyGemm>, Error> {
        self.device.choose(request, &self.machine, self.budget)
    }

    /// The address of scratch memory that an operation uses until the next one begins.
    pub(crate) fn scratch(&mut self, bytes: usize) -> Result<u64, Error> {
        self.scratch_of(bytes, &[])
    }

    /// The same with these bytes at its beginning.
    pub(crate) fn scratch_of(&mut self, bytes: usize, front: &[u8]) -> Result<u64, Error> {
        let memory = match self.scratch.take().filter(|memory| memory.buffer.bytes >= bytes) {
            Some(memory) => memory,
            None => Arc::new(self.device.allocate(bytes)?),
        };
        let memory = self.scratch.insert(memory);
        if !front.is_empty() {
            self.device.write(memory, front)?;
        }
        Ok(memory.buffer.address)
    }

    /// A new stream of the rank's device, for work that overlaps with other work.
    ///
    /// ```
    /// use falchion_parallel::{ColumnParallel, Cut, Error, Group, Tokens, Weights};
    /// use half::bf16;
    ///
    /// let mut group = Group::emulated(1)?.remove(0);
    /// let ones = vec![bf16::ONE; 64 * 64];
    /// let weights = Weights::new(&ones, [64, 64])?;
    /// let mut layer = || ColumnParallel::<bf16>::new(&group, &weights, &Cut::Rows, Tokens::Whole);
    /// let (mut first, mut second, mut third) = (layer()?, layer()?, layer()?);
    /// let x = group.upload(&[bf16::ONE; 4 * 64])?;
    /// let [mut a, mut b, mut c] = [group.zeros(4 * 64)?, group.zeros(4 * 64)?, group.zeros(4 * 64)?];
    ///
    /// let mut side = group.stream()?;
    /// let done = group.on(&mut side, |group| {
    ///     second.forward(group, x.view(), b.view_mut())?; // at the same time as `first`
    ///     group.event()
    /// })?;
    /// first.forward(&mut group, x.view(), a.view_mut())?;
    /// group.after(&done)?; // without it, the emulator refuses the next line
    /// third.forward(&mut group, b.view(), c.view_mut())?;
    /// assert_eq!(group.read(&c)?[0], bf16::from_f32(64.0 * 64.0));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The driver's.
    pub fn stream(&mut self) -> Result<SideStream, Error> {
        Ok(SideStream::new(self.device.open()?, self.device.clone()))
    }

    /// A stream of cudarc, to use layers between other work on it, on slices that were lent on it:
    /// [`Slice::of_loan`](crate::Slice::of_loan).
    ///
    /// ```no_run
    /// use cudarc::driver::{CudaContext, CudaSlice};
    /// use falchion::kernel::driver::cudarc::{read, write};
    /// use falchion_parallel::{ColumnParallel, Group, Slice, SliceMut};
    /// use half::bf16;
    ///
    /// fn forward(
    ///     group: &mut Group,
    ///     layer: &mut ColumnParallel<bf16>,
    ///     (x, y): (&CudaSlice<u16>, &mut CudaSlice<u16>),
    /// ) -> Result<(), Box<dyn std::error::Error>> {
    ///     let stream = x.stream().clone();
    ///     let mut side = group.lend(stream.clone())?;
    ///     let (x, mut y) = (read(x, &stream), write(y, &stream));
    ///     let (x, y) = (Slice::of_loan(&x)?, SliceMut::of_loan(&mut y)?);
    ///     Ok(group.on(&mut side, |group| layer.forward(group, x, y))?)
    /// }
    /// ```
    ///
    /// # Errors
    /// A stream of another GPU, or emulated ranks.
    pub fn lend(&mut self, stream: Arc<CudaStream>) -> Result<SideStream, Error> {
        Ok(SideStream::new(self.device.lend(stream)?, self.device.clone()))
    }

    /// Does work whose layers and collectives are enqueued on a stream. All ranks enqueue collectives in the same order,
    /// whatever their streams.
    ///
    /// Work on different streams is ordered by [events](Self::event) alone. [`read`](Self::read), [`wait`](Self::wait)
    /// and memory that is freed wait for all streams. In the emulator, work that touches what another stream's work writes,
    /// and does not wait for an event after it, is an error.
    ///
    /// # Errors
    /// Those of the work; another rank's stream.
    pub fn on<T, E: From<Error>>(
        &mut self,
        stream: &mut SideStream,
        work: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        stream.of(&self.device)?;
        let before = self.device.enter(Some(stream.queue.clone()));
        core::mem::swap(&mut self.scratch, &mut stream.scratch);
        let done = work(self);
        core::mem::swap(&mut self.scratch, &mut stream.scratch);
        self.device.enter(before);
        done
    }

    /// An event after all that was enqueued on the current stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn event(&mut self) -> Result<Event, Error> {
        Event::of(self)
    }

    /// What is enqueued next on the current stream waits for an event.
    ///
    /// # Errors
    /// Another rank's event; the driver's.
    pub fn after(&mut self, event: &Event) -> Result<(), Error> {
        event.before(&self.device)
    }

    /// Records layers and collectives, to replay them with one call: see [`Record`]. They run once before that; all ranks
    /// record the same.
    ///
    /// # Errors
    /// Those of `work`; what needs the host, such as routes of [`Experts`](crate::Experts), cannot be recorded; the
    /// group has failed.
    ///
    /// ```
    /// use falchion_parallel::{Error, Group};
    ///
    /// let mut group = Group::emulated(1)?.remove(0);
    /// let (ones, mut sums) = (group.upload(&[1.0f32; 4])?, group.zeros::<f32>(4)?);
    /// let mut record = group.record(|group| group.all_reduce(ones.view(), sums.view_mut()))?;
    /// record.replay(&mut group)?;
    /// drop(record);
    /// assert_eq!(group.read(&sums)?, [1.0; 4]);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn record<'w>(
        &mut self,
        work: impl FnMut(&mut Group) -> Result<(), Error> + 'w,
    ) -> Result<Record<'w>, Error> {
        Record::new(self, work)
    }

    /// Does something that becomes part of a record.
    pub(crate) fn recording<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.recording = true;
        let done = work(self);
        self.recording = false;
        done
    }

    pub(crate) fn scratch_memory(&self) -> Option<Arc<Memory>> {
        self.scratch.clone()
    }

    /// Whether all ranks are there, as far as is known.
    ///
    /// # Errors
    /// The group has failed.
    pub fn alive(&self) -> Result<(), Error> {
        self.control.alive()
    }

    /// Works with the rank's GPU: its stream, graphs, other kernels. `None` in the emulator.
    pub fn with_gpu<T>(&self, work: impl FnOnce(&mut Gpu) -> T) -> Option<T> {
        self.device.with_gpu(work)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.device.end(&self.control);
        self.control.leave();
        if let Some(coordinator) = self.coordinator.take() {
            // The others may not be done yet: without rank 0's process they would be lost.
            let _ = coordinator.join();
        }
    }
}

/// Checks a length.
pub(crate) fn exactly(field: &str, found: usize, needed: usize) -> Result<(), Error> {
    if found == needed {
        Ok(())
    } else {
        Err(Error::argument(format!("the length of {field}"), found, needed.to_string()))
    }
}

fn emulated() -> Ready {
    (Device::emulated(), Member::here())
}

/// The GPU of a local rank.
fn card(local_rank: usize) -> Result<Ready, Error> {
    match card_of(local_rank) {
        // A launcher may show each process its own GPU alone.
        Err(error) if local_rank > 0 && Context::primary(1).is_err() => card_of(0).map_err(|_| error),
        other => other,
    }
}

fn card_of(ordinal: usize) -> Result<Ready, Error> {
    // First, since it is quick.
    let nccl = nccl::version()?;
    let gpu = Gpu::new(ordinal)?;
    let uuid = gpu.context().uuid()?.iter().map(|byte| format!("{byte:02x}")).collect();
    let member = Member { gpu: Some(uuid), nccl: Some(nccl), ..Member::here() };
    Ok((Device::card(gpu, ordinal), member))
}
