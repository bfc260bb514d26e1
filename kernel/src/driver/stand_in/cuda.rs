//! A stand-in for CUDA's driver, for tests without a GPU. Device memory is host memory. Launches are counted
//! and run nothing. Uses of a handle after it was released are logged. Functions that work in the current
//! context fail if there is none; what cannot be done during a capture fails then. A binary is an ELF header, a
//! mark, and a digest. Tests compile this file (`tests/support/stand_in.rs`).
#![allow(non_snake_case, reason = "the driver's names")]

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Write;
use std::sync::Mutex;

/// The stand-in's state.
struct State {
    memory: BTreeMap<u64, Box<[u128]>>,
    modules: BTreeSet<usize>,
    /// Functions that each graph launches, by the graph's handle.
    graphs: BTreeMap<usize, Vec<usize>>,
    captured: Option<Vec<usize>>,
    /// Captures that have begun.
    captures: u64,
    /// Handles of user objects, with what is called when they are gone.
    objects: Vec<(usize, usize, unsafe extern "C" fn(usize))>,
    handles: usize,
    fault: c_int,
    /// Names of functions by handle, and the function that was launched last.
    names: BTreeMap<usize, String>,
    last: usize,
}

static STATE: Mutex<State> = Mutex::new(State {
    memory: BTreeMap::new(),
    modules: BTreeSet::new(),
    graphs: BTreeMap::new(),
    captured: None,
    captures: 0,
    objects: Vec::new(),
    handles: 0x1000,
    fault: 0,
    names: BTreeMap::new(),
    last: 0,
});

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static MODE: Cell<c_int> = const { Cell::new(0) };
}

const INVALID: c_int = 1;
const NO_CONTEXT: c_int = 201;
const STALE: c_int = 400;
const CAPTURED: c_int = 900;

/// Writes a line to the log that the test reads.
fn note(line: &str) {
    if let Ok(path) = std::env::var("STAND_IN_LOG") {
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        // In one write: threads and processes share the file.
        let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    }
}

/// Runs with the state, unless no context is current, or a kernel has made the context unusable.
fn alive(run: impl FnOnce(&mut State) -> c_int) -> c_int {
    let mut state = STATE.lock().unwrap();
    match (CURRENT.get(), state.fault) {
        (0, _) => NO_CONTEXT,
        (_, 0) => run(&mut state),
        (_, fault) => fault,
    }
}

/// The same for what cannot be done while a stream is captured.
fn uncaptured(run: impl FnOnce(&mut State) -> c_int) -> c_int {
    alive(|state| {
        // In the relaxed mode, a thread may do so.
        if state.captured.is_none() || MODE.get() == 2 {
            return run(state);
        }
        note("in a capture");
        CAPTURED
    })
}

fn handle(state: &mut State) -> usize {
    state.handles += 16;
    state.handles
}

unsafe fn put<T>(place: *mut T, value: T) -> c_int {
    unsafe { place.write(value) };
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_: c_uint) -> c_int {
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    let asked = std::env::var("STAND_IN_VERSION").ok().and_then(|text| text.parse().ok());
    unsafe { put(version, asked.unwrap_or(13_000)) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(status: c_int, text: *mut *const c_char) -> c_int {
    let name = match status {
        700 => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        _ => return INVALID,
    };
    unsafe { put(text, name.as_ptr()) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(_: c_int, text: *mut *const c_char) -> c_int {
    unsafe { put(text, c"the stand-in's words".as_ptr()) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    unsafe { put(count, 1) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    unsafe { put(device, ordinal) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, _: c_int, _: c_int) -> c_int {
    unsafe { c"Stand-in".as_ptr().copy_to(name, 9) };
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], _: c_int) -> c_int {
    unsafe { put(uuid, [7; 16]) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _: c_int) -> c_int {
    // The test may name a card: SMs, clock and memory clock in kHz, bits of the memory bus, bytes of L2. By default it
    // is an H200.
    let card = std::env::var("STAND_IN_CARD").unwrap_or_else(|_| "132 1980000 3201000 6016 62914560".to_owned());
    let of_card = |index: usize| card.split(' ').nth(index).and_then(|word| word.parse().ok()).unwrap_or(0);
    let answer = match attribute {
        16 => of_card(0),
        13 => of_card(1),
        36 => of_card(2),
        37 => of_card(3),
        38 => of_card(4),
        75 => 9,
        76 => 0,
        _ => 1000,
    };
    unsafe { put(value, answer) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, _: c_int) -> c_int {
    unsafe { put(context, 0x10) }
}
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(_: c_int) -> c_int {
    note("released");
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxGetCurrent(context: *mut usize) -> c_int {
    unsafe { put(context, CURRENT.get()) }
}
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: usize) -> c_int {
    note("context set");
    CURRENT.set(context);
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> c_int {
    alive(|_| 0)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut usize, _: c_uint) -> c_int {
    alive(|state| unsafe { put(stream, handle(state)) })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(_: usize) -> c_int {
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(_: usize) -> c_int {
    uncaptured(|_| {
        note("waited");
        0
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamGetCaptureInfo_v2(
    _: usize,
    status: *mut c_int,
    number: *mut u64,
    graph: *mut usize,
    _: usize,
    _: usize,
) -> c_int {
    alive(|state| unsafe {
        put(number, state.captures);
        put(graph, 0x7000);
        put(status, state.captured.is_some().into())
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuThreadExchangeStreamCaptureMode(mode: *mut c_int) -> c_int {
    unsafe { put(mode, MODE.replace(*mode)) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuUserObjectCreate(
    object: *mut usize,
    of: usize,
    gone: unsafe extern "C" fn(usize),
    _: c_uint,
    _: c_uint,
) -> c_int {
    alive(|state| {
        let made = handle(state);
        state.objects.push((made, of, gone));
        unsafe { put(object, made) }
    })
}
/// There is one graph whose objects are kept: the one that is destroyed next.
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphRetainUserObject(graph: usize, object: usize, _: c_uint, _: c_uint) -> c_int {
    let known = |state: &State| state.objects.iter().any(|(made, ..)| *made == object);
    alive(|state| if graph == 0x7000 && known(state) { 0 } else { INVALID })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(_: usize, _: c_int) -> c_int {
    alive(|state| {
        state.captured = Some(Vec::new());
        state.captures += 1;
        0
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(_: usize, graph: *mut usize) -> c_int {
    alive(|state| {
        let launches = state.captured.take().unwrap_or_default();
        let made = handle(state);
        state.graphs.insert(made, launches);
        unsafe { put(graph, made) }
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(exec: *mut usize, graph: usize, _: u64) -> c_int {
    alive(|_| unsafe { put(exec, graph) })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphDestroy(graph: usize) -> c_int {
    note("graph destroyed");
    let objects = {
        let mut state = STATE.lock().unwrap();
        state.graphs.remove(&graph);
        std::mem::take(&mut state.objects)
    };
    objects.into_iter().for_each(|(_, of, gone)| unsafe { gone(of) });
    0
}
#[cfg(not(lacks_graphs))]
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphLaunch(graph: usize, _: usize) -> c_int {
    alive(|state| {
        let known = state.graphs.get(&graph).cloned().unwrap_or_default();
        let stale = known.is_empty() || known.iter().any(|function| !state.modules.contains(function));
        note(if stale { "stale replay" } else { "replay" });
        if stale { STALE } else { 0 }
    })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuGraphExecDestroy(_: usize) -> c_int {
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut usize, _: c_uint) -> c_int {
    alive(|state| unsafe { put(event, handle(state)) })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(_: usize, _: usize) -> c_int {
    alive(|_| 0)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, _: usize, _: usize) -> c_int {
    // The test may name one function that is faster than all others.
    let fast = std::env::var("STAND_IN_FAST").unwrap_or_default();
    let state = STATE.lock().unwrap();
    let is_fast = state.names.get(&state.last).is_some_and(|name| *name == fast);
    unsafe { put(milliseconds, if is_fast { 0.5 } else { 1.0 }) }
}
#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(_: usize) -> c_int {
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, bytes: usize) -> c_int {
    uncaptured(|state| {
        // Extra room, to begin at a multiple of 256.
        let memory = vec![0u128; bytes.div_ceil(16) + 16].into_boxed_slice();
        let start = (memory.as_ptr() as u64).next_multiple_of(256);
        state.memory.insert(start, memory);
        note("allocated");
        unsafe { put(address, start) }
    })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    if CURRENT.get() == 0 {
        return NO_CONTEXT;
    }
    let known = STATE.lock().unwrap().memory.remove(&address).is_some();
    note(if known { "freed" } else { "freed twice" });
    if known { 0 } else { INVALID }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const u8, bytes: usize, _: usize) -> c_int {
    // Data that begins with this byte cannot be copied.
    if unsafe { *from } == 0xee {
        return INVALID;
    }
    alive(|_| unsafe {
        note("copied");
        from.copy_to(to as *mut u8, bytes);
        0
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut u8, from: u64, bytes: usize, _: usize) -> c_int {
    alive(|_| unsafe {
        (from as *const u8).copy_to(to, bytes);
        0
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut usize,
    image: *const u8,
    count: c_uint,
    options: *const c_int,
    values: *const usize,
) -> c_int {
    // The test may hold what compiles for as long as a file exists.
    let held = std::env::var("STAND_IN_HOLD").map(std::path::PathBuf::from);
    if let Some(file) = held.ok().filter(|file| file.exists()) {
        note("held");
        while file.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }
    if unsafe { std::slice::from_raw_parts(image, 4) } == ELF {
        let bytes = unsafe { std::slice::from_raw_parts(image, BINARY) };
        // The test may have binaries rejected, or accepted whatever they contain.
        let choice = std::env::var("STAND_IN_BINARIES").unwrap_or_default();
        if choice == "refused" || choice != "any" && bytes[64..72] != *MARK {
            note("refused");
            return BAD_IMAGE;
        }
        note(&format!("binary {}", String::from_utf8_lossy(&bytes[72..]).escape_debug()));
    } else if unsafe { CStr::from_ptr(image.cast()) }.to_string_lossy().contains("illegal_probe") {
        let errors = (0..count as usize).find(|&i| unsafe { *options.add(i) } == ERROR_LOG);
        let errors = errors.map_or(std::ptr::null_mut(), |i| unsafe { *values.add(i) } as *mut c_char);
        unsafe { c"line 7: no such instruction".as_ptr().copy_to(errors, 28) };
        return BAD_TEXT;
    } else {
        note("compiled");
    }
    uncaptured(|state| {
        let made = handle(state);
        state.modules.insert(made);
        note("loaded");
        unsafe { put(module, made) }
    })
}

const ELF: &[u8] = b"\x7fELF";
const MARK: &[u8; 8] = b"stand-in";
const BINARY: usize = 64 + 8 + 16;
const BAD_IMAGE: c_int = 200;
const BAD_TEXT: c_int = 218;
const ERROR_LOG: c_int = 5;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut usize,
    module: usize,
    name: *const c_char,
) -> c_int {
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    note(&format!("function {name}"));
    alive(|state| {
        state.names.insert(module, name);
        unsafe { put(function, module) }
    })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(module: usize) -> c_int {
    note("unloaded");
    STATE.lock().unwrap().modules.remove(&module);
    0
}
#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(_: usize, _: c_int, _: c_int) -> c_int {
    alive(|_| 0)
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFuncGetAttribute(value: *mut c_int, _: c_int, _: usize) -> c_int {
    alive(|_| unsafe { put(value, 0) })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    _: usize,
    _: *const c_void,
) -> c_int {
    alive(|_| unsafe { put(clusters, 132) })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernelEx(
    _: *const c_void,
    function: usize,
    _: *mut *mut c_void,
    _: *mut *mut c_void,
) -> c_int {
    alive(|state| {
        if !state.modules.contains(&function) {
            note("stale launch");
            return STALE;
        }
        state.last = function;
        match &mut state.captured {
            Some(launches) => launches.push(function),
            None => note("launched"),
        }
        if std::env::var("STAND_IN_FAULTS").is_ok() {
            state.fault = 700;
        }
        0
    })
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTensorMapEncodeTiled(
    map: *mut [u64; 16],
    _: c_uint,
    _: c_uint,
    address: u64,
    _: *const u64,
    _: *const u64,
    _: *const u32,
    _: *const u32,
    _: c_uint,
    _: c_uint,
    _: c_uint,
    _: c_uint,
) -> c_int {
    alive(|_| unsafe { put(map, [address; 16]) })
}
#[unsafe(no_mangle)]
pub extern "C" fn cuTensorMapEncodeIm2col() -> c_int {
    INVALID
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuTensorMapReplaceAddress(map: *mut [u64; 16], address: u64) -> c_int {
    alive(|_| unsafe { put(map, [address; 16]) })
}
