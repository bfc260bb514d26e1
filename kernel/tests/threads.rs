//! What may be moved to another thread, and shared between threads.

use std::sync::{Mutex, OnceLock};

use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
use half::bf16;
use kernel::driver::{Context, DeviceMemory, DeviceSlice, Graph, Loaded, Prepared, Stream};
use kernel::{AnyGemm, Batched, Buffer, Composed, Emulator, EngineError, Gemm, Gpu, Launch, Program};
use scheduler::{AlongM, Persistent};
use typenum::{U1, U64};

/// A kernel that a whole program shares, as an operation of a framework does.
static LOADED: OnceLock<Loaded> = OnceLock::new();

/// An engine that a whole program shares.
static EMULATOR: OnceLock<Mutex<Emulator>> = OnceLock::new();

/// An operation of a framework, which must be `Send` and `Sync`.
struct Operation {
    _loaded: Loaded,
    _gemm: AnyGemm,
}

type Simple = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
    LinearCombination<bf16>,
    Persistent<AlongM>,
>;

const fn sends<T: Send>() {}
const fn shares<T: Send + Sync>() {}

const _: () = {
    sends::<Graph>(); // two threads must not replay one graph at a time
    sends::<AnyGemm>();
    shares::<AnyGemm>();
    shares::<Loaded>();
    shares::<Emulator>();
    shares::<Gpu>();
    shares::<Prepared>();
    shares::<Loaded<Gemm<Simple>>>();
    shares::<Context>();
    shares::<Stream>();
    shares::<DeviceMemory>();
    shares::<DeviceSlice<'_>>();
    shares::<Operation>();
    shares::<Program>();
    shares::<Launch>();
    shares::<Buffer>();
    shares::<EngineError>();
    shares::<Gemm<Batched<Simple>>>();
};

#[test]
fn an_engine_is_used_by_two_threads() {
    let engine = EMULATOR.get_or_init(|| Mutex::new(Emulator::new()));
    let buffer = std::thread::spawn(|| {
        use kernel::Engine;
        let engine = EMULATOR.get().expect("made above");
        engine.lock().expect("nobody panics").upload(&[1, 2, 3]).expect("memory")
    });
    let buffer = buffer.join().expect("no panic");
    let read = kernel::Engine::read(&mut *engine.lock().expect("nobody panics"), buffer);
    assert_eq!(read.expect("allocated"), [1, 2, 3]);
    assert!(LOADED.get().is_none());
}
