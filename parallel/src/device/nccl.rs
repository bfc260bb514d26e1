//! NCCL, loaded at run time.
#![allow(unsafe_code, reason = "calls NCCL")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::{fmt, ptr};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::nccl::sys::{
    cudaStream_t, ncclComm, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId,
};
use falchion::collective::Format;
use falchion::kernel::driver::Context;
use libloading::Library;

use crate::element::Kind;
use crate::error::Error;

/// The oldest NCCL that serves: the first whose communicators have the configuration that is given here.
const OLDEST: [u32; 2] = [2, 18];

/// The variable that names NCCL's library.
const PATH: &str = "FALCHION_NCCL";

type Status = ncclResult_t;

/// NCCL's functions.
struct Functions {
    _library: Library,
    version: unsafe extern "C" fn(*mut c_int) -> Status,
    unique_id: unsafe extern "C" fn(*mut ncclUniqueId) -> Status,
    init: unsafe extern "C" fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int, *mut ncclConfig_t) -> Status,
    abort: unsafe extern "C" fn(ncclComm_t) -> Status,
    destroy: unsafe extern "C" fn(ncclComm_t) -> Status,
    state: unsafe extern "C" fn(ncclComm_t, *mut Status) -> Status,
    error: unsafe extern "C" fn(Status) -> *const c_char,
    last_error: unsafe extern "C" fn(ncclComm_t) -> *const c_char,
    group_start: unsafe extern "C" fn() -> Status,
    group_end: unsafe extern "C" fn() -> Status,
    all_gather: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        ncclDataType_t,
        ncclComm_t,
        cudaStream_t,
    ) -> Status,
    all_reduce: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        ncclDataType_t,
        ncclRedOp_t,
        ncclComm_t,
        cudaStream_t,
    ) -> Status,
    reduce_scatter: unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        ncclDataType_t,
        ncclRedOp_t,
        ncclComm_t,
        cudaStream_t,
    ) -> Status,
    send:
        unsafe extern "C" fn(*const c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t) -> Status,
    receive:
        unsafe extern "C" fn(*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, cudaStream_t) -> Status,
}

/// Loads a library and looks its functions up.
fn load() -> Result<Functions, String> {
    let names = match std::env::var(PATH) {
        Ok(path) => vec![path],
        Err(_) => ["libnccl.so.2", "libnccl.so"].map(str::to_owned).to_vec(),
    };
    let mut reasons = Vec::new();
    let library = names.iter().find_map(|name| {
        // SAFETY: NCCL's initialisers have no conditions.
        unsafe { Library::new(name) }.map_err(|error| reasons.push(error.to_string())).ok()
    });
    let library = library.ok_or_else(|| {
        format!("no library was found: {}. Install NCCL, or name its file in {PATH}", reasons.join("; "))
    })?;
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the type is that of NCCL's header; the library is kept as long as its functions.
            *unsafe { library.get($name.as_bytes()) }.map_err(|_| {
                format!("the library has no function {}: it is too old, or another one", $name)
            })?
        };
    }
    // First of all, so that a library that is too old is called that.
    let version: unsafe extern "C" fn(*mut c_int) -> Status = function!("ncclGetVersion");
    let [major, minor, _] = version_of(version)?;
    if [major, minor] < OLDEST {
        let [needed, than] = OLDEST;
        return Err(format!("the library's version is {major}.{minor}, {needed}.{than} or later was needed"));
    }
    Ok(Functions {
        version,
        unique_id: function!("ncclGetUniqueId"),
        init: function!("ncclCommInitRankConfig"),
        abort: function!("ncclCommAbort"),
        destroy: function!("ncclCommDestroy"),
        state: function!("ncclCommGetAsyncError"),
        error: function!("ncclGetErrorString"),
        last_error: function!("ncclGetLastError"),
        group_start: function!("ncclGroupStart"),
        group_end: function!("ncclGroupEnd"),
        all_gather: function!("ncclAllGather"),
        all_reduce: function!("ncclAllReduce"),
        reduce_scatter: function!("ncclReduceScatter"),
        send: function!("ncclSend"),
        receive: function!("ncclRecv"),
        _library: library,
    })
}

fn version_of(version: unsafe extern "C" fn(*mut c_int) -> Status) -> Result<[u32; 3], String> {
    let mut number = 0;
    // SAFETY: one number is written.
    let status = unsafe { version(&mut number) };
    if status != ncclResult_t::ncclSuccess {
        return Err(format!("the library does not say its version: {status:?}"));
    }
    let number = u32::try_from(number).unwrap_or(0);
    // Since 2.9 the major version counts 10000, before that 1000.
    let major = if number >= 10_000 { 10_000 } else { 1000 };
    Ok([number / major, number % major / 100, number % 100])
}

fn functions() -> Result<&'static Functions, Error> {
    static LOADED: OnceLock<Result<Functions, String>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(|reason| Error::Nccl(reason.clone()))
}

/// The library's version.
pub(crate) fn version() -> Result<String, Error> {
    let [major, minor, patch] = version_of(functions()?.version).map_err(Error::Nccl)?;
    Ok(format!("{major}.{minor}.{patch}"))
}

/// The bytes of a new id, by which ranks find each other.
pub(crate) fn unique_id() -> Result<Vec<u8>, Error> {
    let functions = functions()?;
    let mut id = ncclUniqueId { internal: [0; 128] };
    // SAFETY: one id is written.
    check(functions, None, "ncclGetUniqueId", unsafe { (functions.unique_id)(&mut id) })?;
    Ok(id.internal.iter().map(|&byte| byte.cast_unsigned()).collect())
}

fn check(functions: &Functions, comm: Option<ncclComm_t>, call: &str, status: Status) -> Result<(), Error> {
    if status == ncclResult_t::ncclSuccess {
        return Ok(());
    }
    // SAFETY: NCCL returns texts that live as long as the library, or as the thread's next call.
    let text = |text: *const c_char| {
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    // SAFETY: any status has a text.
    let name = text(unsafe { (functions.error)(status) }).unwrap_or_default();
    // SAFETY: the communicator is alive; null is allowed.
    let last = text(unsafe { (functions.last_error)(comm.unwrap_or(ptr::null_mut())) })
        .filter(|last| !last.is_empty());
    Err(Error::Nccl(format!("{call}: {name}{}", last.map_or(String::new(), |last| format!(" ({last})")))))
}

/// A rank's communicator.
///
/// Its calls block: those that do not start a thread each time, which costs a hundred microseconds. What
/// could wait for a lost rank is ended by [`abort`](Self::abort), from another thread.
pub(crate) struct Communicator {
    /// Null once it was aborted or has ended.
    raw: AtomicPtr<ncclComm>,
    /// Held during a call.
    calling: Mutex<()>,
    functions: &'static Functions,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator").finish_non_exhaustive()
    }
}

/// A collective operation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Collective {
    /// Every rank's `count` numbers, one after the other.
    AllGather { from: u64, to: u64, count: usize },
    /// The sums of every rank's `count` numbers.
    AllReduce { from: u64, to: u64, count: usize, by: Reduction },
    /// The rank's `count` of the sums of all numbers.
    ReduceScatter { from: u64, to: u64, count: usize },
    /// What a rank sends and receives. Between two ranks, messages arrive in the order in which they are sent.
    AllToAll { from: u64, to: u64, sent: Vec<Message>, received: Vec<Message> },
}

impl Collective {
    /// The memory that it reads and writes, of `size` ranks and numbers of `width` bytes.
    pub(crate) fn touched(&self, width: usize, size: usize) -> Vec<(&'static str, u64, u64, bool)> {
        let of = |address: u64, first: usize, count: usize, writes: bool| {
            let name = if writes { "what a collective writes" } else { "what a collective reads" };
            (name, address + (first * width) as u64, (count * width) as u64, writes)
        };
        match *self {
            Self::AllGather { from, to, count } => {
                vec![of(from, 0, count, false), of(to, 0, count * size, true)]
            }
            Self::AllReduce { from, to, count, .. } => {
                vec![of(from, 0, count, false), of(to, 0, count, true)]
            }
            Self::ReduceScatter { from, to, count } => {
                vec![of(from, 0, count * size, false), of(to, 0, count, true)]
            }
            Self::AllToAll { from, to, ref sent, ref received } => {
                let sent = sent.iter().map(|own| of(from, own.first, own.count, false));
                sent.chain(received.iter().map(|own| of(to, own.first, own.count, true))).collect()
            }
        }
    }
}

/// Numbers of a buffer that go to a rank, or come from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Message {
    pub(crate) peer: u32,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl Message {
    /// The same of rows of `width` numbers.
    pub(crate) fn times(&self, width: usize) -> Self {
        Self { peer: self.peer, first: self.first * width, count: self.count * width }
    }
}

/// How numbers of ranks become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// Their maximum.
    Max,
}

fn data_type(kind: Kind) -> Result<ncclDataType_t, Error> {
    Ok(match kind {
        Kind::Float(Format::Bf16) => ncclDataType_t::ncclBfloat16,
        Kind::Float(Format::F16) => ncclDataType_t::ncclFloat16,
        Kind::Float(Format::F32) => ncclDataType_t::ncclFloat32,
        // Moved as bytes; nothing adds them up.
        Kind::Float(Format::E4m3) => ncclDataType_t::ncclUint8,
        Kind::U32 => ncclDataType_t::ncclUint32,
        Kind::Float(other) => {
            return Err(Error::argument(
                "a collective's numbers",
                other.name(),
                "bf16, f16, f32, e4m3 or u32",
            ));
        }
    })
}

fn pointer(address: u64) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}

impl Communicator {
    /// Joins the ranks of an id, in the rank's context.
    pub(crate) fn new(
        id: &[u8],
        (rank, size): (u32, u32),
        context: Arc<Context>,
        within: Duration,
        alive: impl Fn() -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let functions = functions()?;
        let mut unique = ncclUniqueId { internal: [0; 128] };
        if id.len() != unique.internal.len() {
            let needed = unique.internal.len();
            return Err(Error::Nccl(format!("an id has {} bytes, {needed} were needed", id.len())));
        }
        unique.internal.iter_mut().zip(id).for_each(|(own, byte)| *own = byte.cast_signed());
        let (made, result) = channel();
        // If a rank is lost now, the call may never return; then only its thread waits.
        let init = move || {
            let work = || {
                let _current = context.bind()?;
                let undefined = c_int::MIN;
                let mut config = ncclConfig_t {
                    size: size_of::<ncclConfig_t>(),
                    magic: 0xcafe_beef,
                    version: 22_600,
                    blocking: 1,
                    cgaClusterSize: undefined,
                    minCTAs: undefined,
                    maxCTAs: undefined,
                    netName: ptr::null(),
                    splitShare: undefined,
                    trafficClass: undefined,
                };
                let mut comm = ptr::null_mut();
                let (size, rank) = (size.cast_signed(), rank.cast_signed());
                // SAFETY: one handle is written, and the configuration is read before the call returns.
                let status = unsafe { (functions.init)(&mut comm, size, unique, rank, &mut config) };
                check(functions, None, "ncclCommInitRankConfig", status)?;
                Ok(Self { raw: AtomicPtr::new(comm), calling: Mutex::default(), functions })
            };
            let _ = made.send(work());
        };
        let thread = thread::Builder::new().name("falchion-nccl".to_owned()).spawn(init);
        thread.map_err(|error| Error::system("a thread", &error))?;
        let began = Instant::now();
        loop {
            match result.recv_timeout(Duration::from_millis(20)) {
                Ok(made) => return made,
                Err(_) => alive()?,
            }
            if began.elapsed() > within {
                let seconds = within.as_secs_f64();
                return Err(Error::Nccl(format!("ncclCommInitRankConfig did not end within {seconds} s")));
            }
        }
    }

    /// Enqueues collectives on a stream, as one.
    ///
    /// # Safety
    /// The memory is allocated as far as the operations reach, and nobody else uses it meanwhile. The stream
    /// is alive, and its context is current.
    pub(crate) unsafe fn enqueue(
        &self,
        operations: &[(Kind, Collective)],
        stream: *mut c_void,
    ) -> Result<(), Error> {
        let _calling = self.calling.lock().unwrap_or_else(PoisonError::into_inner);
        let comm = self.raw.load(Ordering::Acquire);
        if comm.is_null() {
            return Err(Error::Nccl("the communicator was aborted".to_owned()));
        }
        let of = self.functions;
        let grouped = operations.len() > 1 || matches!(operations, [(_, Collective::AllToAll { .. })]);
        let succeeded = |status: Status| status == ncclResult_t::ncclSuccess;
        // SAFETY: a group begins and ends here.
        let mut status = if grouped { unsafe { (of.group_start)() } } else { ncclResult_t::ncclSuccess };
        let mut call = "ncclGroupStart";
        for (kind, operation) in operations {
            if succeeded(status) {
                // SAFETY: the caller guarantees memory and stream; the communicator is alive.
                (call, status) = unsafe { self.one(comm, *kind, operation, stream.cast())? };
            }
        }
        if grouped {
            // SAFETY: as above. It ends also if a call failed.
            let ended = unsafe { (of.group_end)() };
            if succeeded(status) {
                (call, status) = ("ncclGroupEnd", ended);
            }
        }
        check(of, Some(comm), call, status)
    }

    /// # Safety
    /// As [`enqueue`](Self::enqueue).
    unsafe fn one(
        &self,
        comm: ncclComm_t,
        kind: Kind,
        operation: &Collective,
        stream: cudaStream_t,
    ) -> Result<(&'static str, Status), Error> {
        let (of, numbers, bytes) = (self.functions, data_type(kind)?, kind.bytes() as u64);
        // SAFETY: the caller guarantees memory, stream and communicator.
        Ok(unsafe {
            match *operation {
                Collective::AllGather { from, to, count } => (
                    "ncclAllGather",
                    (of.all_gather)(pointer(from), pointer(to), count, numbers, comm, stream),
                ),
                Collective::AllReduce { from, to, count, by } => {
                    let by = match by {
                        Reduction::Sum => ncclRedOp_t::ncclSum,
                        Reduction::Max => ncclRedOp_t::ncclMax,
                    };
                    let status =
                        (of.all_reduce)(pointer(from), pointer(to), count, numbers, by, comm, stream);
                    ("ncclAllReduce", status)
                }
                Collective::ReduceScatter { from, to, count } => {
                    let (from, to, sum) = (pointer(from), pointer(to), ncclRedOp_t::ncclSum);
                    ("ncclReduceScatter", (of.reduce_scatter)(from, to, count, numbers, sum, comm, stream))
                }
                Collective::AllToAll { from, to, ref sent, ref received } => {
                    let mut status = ncclResult_t::ncclSuccess;
                    let all = sent.iter().map(|of| (true, of)).chain(received.iter().map(|of| (false, of)));
                    for (sends, &Message { peer, first, count }) in all {
                        if status != ncclResult_t::ncclSuccess || count == 0 {
                            continue;
                        }
                        let (peer, at) = (peer.cast_signed(), first as u64 * bytes);
                        status = if sends {
                            (of.send)(pointer(from + at), count, numbers, peer, comm, stream)
                        } else {
                            (of.receive)(pointer(to + at), count, numbers, peer, comm, stream)
                        };
                    }
                    ("ncclSend and ncclRecv", status)
                }
            }
        })
    }

    /// What went wrong since the last call, if something did.
    pub(crate) fn state(&self) -> Result<(), Error> {
        let _calling = self.calling.lock().unwrap_or_else(PoisonError::into_inner);
        let comm = self.raw.load(Ordering::Acquire);
        if comm.is_null() {
            return Ok(());
        }
        let mut state = ncclResult_t::ncclSuccess;
        // SAFETY: the communicator is alive, and one status is written.
        let status = unsafe { (self.functions.state)(comm, &mut state) };
        check(self.functions, Some(comm), "ncclCommGetAsyncError", status)?;
        check(self.functions, Some(comm), "a collective", state)
    }

    /// Gives up: what runs on the GPU ends at once, and nothing more can be enqueued.
    pub(crate) fn abort(&self) {
        let comm = self.raw.swap(ptr::null_mut(), Ordering::AcqRel);
        if comm.is_null() {
            return;
        }
        // A call that goes on for long waits for the rank that was lost: NCCL ends it when it is aborted.
        let began = Instant::now();
        let _calling = loop {
            match self.calling.try_lock() {
                Ok(guard) => break Some(guard),
                Err(TryLockError::Poisoned(guard)) => break Some(guard.into_inner()),
                Err(TryLockError::WouldBlock) if began.elapsed() > PATIENCE => break None,
                Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(5)),
            }
        };
        // SAFETY: the communicator is alive, and nobody can take it any more.
        let _ = unsafe { (self.functions.abort)(comm) };
    }

    /// Ends the communicator when its work is done; every rank does.
    pub(crate) fn end(&self) {
        let _calling = self.calling.lock().unwrap_or_else(PoisonError::into_inner);
        let comm = self.raw.swap(ptr::null_mut(), Ordering::AcqRel);
        if !comm.is_null() {
            // SAFETY: the communicator is alive, and nobody can take it any more.
            let _ = unsafe { (self.functions.destroy)(comm) };
        }
    }
}

/// How long a call may go on before a communicator is aborted under it.
const PATIENCE: Duration = Duration::from_secs(1);

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort();
    }
}
