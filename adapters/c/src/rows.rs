//! What surrounds attention in the C interface: two of its results as one, and new keys and values in pages of a cache. A kernel is loaded by its
//! first launch, and kept.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use falchion::rows::{RowCall, RowProblem, Rows};
use falchion_core::{APPEND_PAGES, MERGE_ATTENTION, MergedHeads, NewKeys, Picked, Picks, Placed, Run, bind};

use crate::fields::Values;
use crate::object::failed;
use crate::{Failure, Status, given, guard, invalid};

static CHOSEN: Picks<Rows, Picked<Rows>> = Picks::new(16);

/// What a structure asks for: the kernel's problem, the call, and the addresses of its memory.
type Asked = (RowProblem, RowCall, Vec<Placed>);

/// What runs a call: the emulator, or a stream of a card.
#[derive(Clone, Copy)]
enum Engine {
    Emulator,
    Card(c_int, *mut c_void),
}

/// # Safety
/// As [`falchion_merge_attention`].
unsafe fn merged(arguments: *const c_void) -> Result<Asked, Failure> {
    // SAFETY: the caller guarantees it.
    let values = unsafe { Values::sized(MERGE_ATTENTION.given, arguments) }?;
    let mut merged = MergedHeads::default();
    let memory = MERGE_ATTENTION.given.say(&mut merged, &values.all, MERGE_ATTENTION.without)?;
    Ok((merged.request(), merged.call(), memory))
}

/// # Safety
/// As [`falchion_append_pages`].
unsafe fn appended(arguments: *const c_void) -> Result<Asked, Failure> {
    // SAFETY: the caller guarantees it.
    let values = unsafe { Values::sized(APPEND_PAGES.given, arguments) }?;
    let mut new = NewKeys::default();
    let memory = APPEND_PAGES.given.say(&mut new, &values.all, APPEND_PAGES.without)?;
    Ok((new.request(), new.call(&memory)?, memory))
}

/// Runs what a structure asks for.
///
/// # Safety
/// The arguments are null or a structure that `read` reads, whose memory is valid for the engine; a stream is alive and of the card's primary
/// context.
unsafe fn run(
    arguments: *const c_void,
    read: unsafe fn(*const c_void) -> Result<Asked, Failure>,
    engine: Engine,
) -> Status {
    guard(|| {
        // SAFETY: the caller guarantees it.
        let (request, mut call, memory) = unsafe {
            given(arguments, "args")?;
            read(arguments)
        }?;
        let card = match engine {
            Engine::Emulator => None,
            Engine::Card(device, _) => match usize::try_from(device) {
                Ok(ordinal) => Some(ordinal),
                Err(_) => return invalid(format!("device is {device}, 0 or more was needed")),
            },
        };
        let kernel: Arc<Picked<Rows>> = CHOSEN.get(&request, None, card, |picked| picked)?;
        bind(kernel.kernel(), &mut call, &memory)?;
        // SAFETY: the caller guarantees all of it.
        let ran = unsafe {
            match (engine, card) {
                (Engine::Card(_, stream), Some(ordinal)) => kernel.launch(ordinal, stream, &call),
                _ => kernel.emulate(&call, Run::default()),
            }
        };
        ran.map_err(|error| failed(&error))
    })
}

/// Enqueues the merge of two results of attention on a stream.
///
/// # Safety
/// The arguments are null or have as many bytes as their size says, and their text is null or ends in a zero. The stream is alive and belongs to
/// the card's primary context. The tensors have the given extents and strides, and are in memory that the device can access until the launch has
/// ended. No other work uses what is written meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_merge_attention(
    device: c_int,
    stream: *mut c_void,
    arguments: *const c_void,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { run(arguments, merged, Engine::Card(device, stream)) }
}

/// Merges two results of attention in the emulator, on the host's memory.
///
/// # Safety
/// As [`falchion_merge_attention`], with tensors in the host's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_merge_attention_emulate(arguments: *const c_void) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { run(arguments, merged, Engine::Emulator) }
}

/// Enqueues new keys and values for pages of a cache on a stream.
///
/// # Safety
/// As [`falchion_merge_attention`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_append_pages(
    device: c_int,
    stream: *mut c_void,
    arguments: *const c_void,
) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { run(arguments, appended, Engine::Card(device, stream)) }
}

/// Writes new keys and values to pages of a cache in the emulator, on the host's memory.
///
/// # Safety
/// As [`falchion_merge_attention`], with tensors in the host's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn falchion_append_pages_emulate(arguments: *const c_void) -> Status {
    // SAFETY: the caller guarantees it.
    unsafe { run(arguments, appended, Engine::Emulator) }
}
