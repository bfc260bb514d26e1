//! Records a launch: what it is made of before it is made, and what it has written.
#![allow(unsafe_code, reason = "reads the values that the program gives to a launch")]

use core::ffi::c_void;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use crate::arguments::{self, Value, inside};
use crate::counts::is_next;
use crate::describe::{self, Buffer, Text, quoted};
use crate::entry;
use crate::files::{DESCRIPTION, Files};
use crate::known::{Function, known};
use crate::memory::{Memory, of_driver};
use crate::settings::{Settings, Want, settings};
use crate::source::{self, Source};
use crate::{driver, say};

/// A launch that the program makes.
#[derive(Debug)]
pub(crate) struct Launch {
    function: usize,
    grid: [u32; 3],
    threads: [u32; 3],
    shared: u32,
    stream: usize,
    values: *const *mut c_void,
    extra: *const *mut c_void,
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) dependent: bool,
}

impl Launch {
    pub(crate) fn new(
        function: usize,
        grid: [u32; 3],
        threads: [u32; 3],
        shared: u32,
        stream: usize,
    ) -> Self {
        let (values, extra) = (core::ptr::null(), core::ptr::null());
        Self { function, grid, threads, shared, stream, values, extra, cluster: None, dependent: false }
    }

    /// The same with arguments: a list of pointers, or one of keys and values.
    pub(crate) fn with(self, values: *const *mut c_void, extra: *const *mut c_void) -> Self {
        Self { values, extra, ..self }
    }
}

/// A launch that was recorded before it was made.
#[derive(Debug)]
pub(crate) struct Recording {
    name: Arc<str>,
    files: Files,
    text: Text,
    /// What each buffer held, where it is compared with what it holds afterwards.
    before: Vec<Vec<u8>>,
}

/// One recording at a time.
static BUSY: Mutex<()> = Mutex::new(());

/// Records a launch that is about to be made, if it is chosen.
pub(crate) fn before(launch: &Launch) -> Option<Recording> {
    let settings = settings()?;
    let function = known().find(launch.function)?;
    if !is_next(&function.name, launch.stream, settings) {
        return None;
    }
    let _one = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    driver::relaxed(|| {
        let made = recording(launch, &function, settings);
        made.map_err(|why| say(&format!("`{}` is not recorded: {why}", function.name))).ok()
    })
}

fn recording(launch: &Launch, function: &Function, settings: &Settings) -> Result<Recording, String> {
    driver::synchronize().ok_or("the device does not come to rest")?;
    let source = source::find(&function.name, function.image.as_deref(), settings);
    let listed = source.as_ref().and_then(|source| entry::parameters(&source.text, &function.name));
    let layout = arguments::layout(launch.function, function, listed.as_deref());
    let layout = layout.ok_or("neither the driver nor a PTX text says what parameters it has")?;
    // SAFETY: the program launches this kernel with them.
    let bytes = unsafe { arguments::values(&layout, launch.values, launch.extra) };
    let bytes = bytes.ok_or("its arguments are not understood")?;
    let listed = listed.filter(|all| all.len() == bytes.len()).unwrap_or_default();
    let mut memory = of_driver();
    let value = |(number, bytes): (usize, Vec<u8>)| {
        let inside = inside(&bytes, &mut memory);
        Value { inside, parameter: listed.get(number).cloned(), bytes }
    };
    let values: Vec<Value> = bytes.into_iter().enumerate().map(value).collect();
    if settings.pointers {
        follow(&mut memory);
    }
    let pieces = memory.pieces(settings.bytes);
    let error = |error: std::io::Error| format!("{}: {error}", settings.folder.display());
    let files = Files::new(&settings.folder, &function.name).map_err(error)?;
    let mut remarks = Vec::new();
    if let Some(Source { text, .. }) = &source {
        files.write("ptx", text.as_bytes()).map_err(error)?;
    }
    let mut text =
        Text { head: head(launch, function, source.as_ref(), &files, &mut remarks), ..Text::default() };
    for value in &values {
        text.arguments += &describe::argument(&pieces, value, &mut remarks);
    }
    let mut before = Vec::new();
    for (number, piece) in pieces.iter().enumerate() {
        let size = usize::try_from(piece.bytes).unwrap_or(usize::MAX);
        let bytes = driver::read(piece.start, size);
        let bytes = bytes.ok_or_else(|| format!("{size} B at {:#x} are not read", piece.start))?;
        let file = files.write(&format!("{}.bin", describe::name(number)), &bytes).map_err(error)?;
        if piece.bytes != piece.whole {
            remarks.push(format!(
                "{} has {} B of an allocation of {} B (FALCHION_RECORD_BYTES is {}): an access beyond them is found as one out of bounds",
                describe::name(number), piece.bytes, piece.whole, settings.bytes
            ));
        }
        let mut held = String::new();
        if settings.pointers && !bytes.is_empty() {
            let inside = inside(&bytes[..bytes.len().min(FOLLOWED)], &mut memory);
            held = describe::inside(&pieces, &inside, &mut remarks);
        }
        let (element, after) = (settings.want.element, String::new());
        text.buffers.push(Buffer { piece: piece.clone(), element, file, inside: held, after });
        if settings.after {
            before.push(bytes);
        }
    }
    for remark in &remarks {
        say(&format!("{}: {remark}", files.name(DESCRIPTION)));
        text.head = format!("# {remark}\n{}", text.head);
    }
    files.write(DESCRIPTION, text.toml().as_bytes()).map_err(error)?;
    say(&format!("`{}` is recorded: {}", function.name, files.path(DESCRIPTION).display()));
    Ok(Recording { name: Arc::clone(&function.name), files, text, before })
}

/// Most bytes of memory in which addresses are looked for.
const FOLLOWED: usize = 1 << 16;

/// Notes the memory that addresses in memory point to.
fn follow(memory: &mut Memory<'_>) {
    let mut seen = 0;
    loop {
        let starts = memory.starts();
        if starts.len() == seen {
            return;
        }
        seen = starts.len();
        for (start, bytes) in starts {
            let bytes = usize::try_from(bytes).unwrap_or(FOLLOWED).min(FOLLOWED);
            let start = start.next_multiple_of(8);
            if let Some(words) = driver::read(start, bytes.saturating_sub(8)) {
                inside(&words, memory);
            }
        }
    }
}

/// The keys before the arguments.
fn head(
    launch: &Launch,
    function: &Function,
    source: Option<&Source>,
    files: &Files,
    remarks: &mut Vec<String>,
) -> String {
    let Launch { grid, threads, shared, cluster, dependent, .. } = launch;
    let ptx = files.name("ptx");
    let mut head = match source {
        Some(Source { origin, .. }) => format!("# PTX of {origin}\n"),
        None => {
            let binaries = function.image.as_ref().map_or(0, |image| image.binaries.len());
            let has = if binaries > 0 { ", only a binary for a card" } else { "" };
            remarks.push(format!(
                "no PTX of this kernel was found{has}: keep it (nvcc -arch=sm_90a does, Triton's cache, FALCHION_RECORD_PTX), or put it into {ptx}"
            ));
            String::new()
        }
    };
    if source.is_some_and(|source| entry::has_variables(&source.text)) {
        remarks.push(
            "the module has variables: they begin as the PTX says, and not as the program has set them"
                .into(),
        );
    }
    if let Some(target) = source.and_then(|source| entry::target(&source.text)).filter(|&target| target > 90)
    {
        remarks.push(format!("the PTX is for sm_{target}; the emulator is one of sm_90a"));
    }
    let _ = writeln!(head, "ptx = {}\nentry = {}", quoted(&ptx), quoted(&function.name));
    let _ = writeln!(head, "grid = {grid:?}\nthreads = {threads:?}");
    if let Some(cluster) = cluster {
        let _ = writeln!(head, "cluster = {cluster:?}");
    }
    if *shared > 0 {
        let _ = writeln!(head, "shared = {shared}");
    }
    if *dependent {
        head += "dependent = true\n";
    }
    head + "# One launch was recorded. With 2, the second one finds what the first one has left.\nlaunches = 1\n"
}

/// Adds what the launch has written, if that is wanted.
pub(crate) fn after(recording: Recording, status: driver::Status) {
    let Recording { name, files, mut text, before } = recording;
    if status != 0 {
        return say(&format!("the driver has refused the launch of `{name}` with error {status}"));
    }
    if before.is_empty() {
        return;
    }
    let want = settings().map(|settings| settings.want.clone()).unwrap_or_default();
    let _one = BUSY.lock().unwrap_or_else(PoisonError::into_inner);
    let added = driver::relaxed(|| {
        driver::synchronize().ok_or("the kernel has failed".to_owned())?;
        for (number, (buffer, before)) in text.buffers.iter_mut().zip(&before).enumerate() {
            let now =
                driver::read(buffer.piece.start, before.len()).ok_or("memory is not read".to_owned())?;
            buffer.after = if now == *before {
                "unchanged = true\n".to_owned()
            } else {
                let file = files.write(&format!("{}.after.bin", describe::name(number)), &now);
                let file = file.map_err(|error| error.to_string())?;
                let Want { rtol, atol, .. } = &want;
                format!("want = {{ file = {}, rtol = {rtol:?}, atol = {atol:?} }}\n", quoted(&file))
            };
        }
        files.write(DESCRIPTION, text.toml().as_bytes()).map_err(|error| error.to_string())
    });
    if let Err(why) = added {
        say(&format!("memory after `{name}` is not recorded: {why}"));
    }
}
