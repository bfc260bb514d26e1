//! What a scheduler gets from a call: words in device memory, numbers, and flags to wait for.

use ptx::{Builder, LoadOrder, Location, ProxySpace, Scope, StoreOrder, Value};

/// Sees what a scheduler gets from a call ([`TileScheduler::visit`](crate::TileScheduler::visit)). Each is a parameter of the kernel's
/// program, which [`emit`](crate::TileScheduler::emit) and [`ready`](crate::TileScheduler::ready) get by its name
/// ([`Builder::parameter`]): an address (`u64`), or a number (`u32`).
pub trait ScheduleVisit {
    /// Words in device memory.
    fn words(&mut self, words: Words<'_>);

    /// A number.
    fn word(&mut self, name: &'static str, word: &mut u32);
}

/// Words of 32 bits in device memory.
#[derive(Debug)]
pub struct Words<'a> {
    /// What they are called in errors, and the name of the kernel's parameter.
    pub name: &'static str,
    /// Where they begin: a multiple of 4.
    pub address: &'a mut u64,
    /// Number of words.
    pub count: u64,
    /// What they are.
    pub contents: WordContents,
    /// Whether the kernel writes them.
    pub writes: bool,
}

/// What words in device memory are. Checks and tests fill memory accordingly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordContents {
    /// An order: the numbers from 0 on, each once.
    Order,
    /// Flags. A flag with all bits set is one that nobody has to wait for.
    Flags,
}

/// Emits a wait of a thread until the word at `flag` is at least `least`. What was done before the flag was
/// [raised](raise_flag), in memory and by whom it may be, is then done for this thread, and for the tensor copies that it starts.
///
/// `scope` says who may raise it: CTAs of this GPU ([`Scope::Gpu`]), or copies and other GPUs too ([`Scope::System`]).
#[track_caller]
pub fn await_flag<'f>(f: &'f Builder, flag: Value<'f, u64>, least: Value<'f, u32>, scope: Scope) {
    f.for_caller(|| {
        f.loop_(|| {
            let [now] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(scope), Location::global(flag, 0));
            f.break_if(now.at_least(least));
            f.sleep(BACKOFF);
        });
        // The flag is of the generic proxy; tensor copies read through the async proxy.
        f.fence_proxy_async(ProxySpace::Global);
    });
}

/// Emits that a thread raises a flag: whatever it has stored, and whatever it knows to be stored, comes before.
#[track_caller]
pub fn raise_flag<'f>(f: &'f Builder, flag: Value<'f, u64>, value: Value<'f, u32>, scope: Scope) {
    f.store_ordered(StoreOrder::Release(scope), Location::global(flag, 0), [value]);
}

/// Nanoseconds between two looks at a flag.
const BACKOFF: u32 = 64;
