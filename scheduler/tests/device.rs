//! Device emission and host model agree: the emitted loop runs on the emulator and writes down what it computes.

use emulator::{Memory, Options, Program};
use ptx::abi::Grid;
use ptx::{Builder, Entry, Function, Special, Target};
use scheduler::{AlongM, AlongN, Grouped, Hilbert, OneTile, Persistent, TileScheduler, Tiles};
use typenum::{U2, U8};

/// A kernel of one warp a CTA whose lane 0 records every piece of work as four numbers.
fn recorder<S: TileScheduler>() -> Program {
    let entry = Entry {
        name: "record".into(),
        target: Target::Sm90a,
        threads: 32,
        shared_bytes: 0,
        cluster: [1, 1, 1],
    };
    let function = Function::build(entry, |f: &Builder| {
        let tiles = Tiles { m: f.param("m"), n: f.param("n"), k: f.param("k") };
        let (records, room) = (f.param::<u64>("records"), f.param::<u32>("room"));
        let (worker, workers) = (f.special(Special::CtaX), f.special(Special::GridX));
        f.if_(f.elect(), || {
            let count = f.variable(0);
            S::emit(f, tiles, worker, workers, |work| {
                let slot = worker * room + count.get();
                f.store_global(records + slot.mul_wide(16), 0, [work.m, work.n, work.k_begin, work.k_end]);
                count.set(count.get() + 1);
            });
        });
    });
    Program::new(&function.verify().expect("a legal program"))
}

fn agrees<S: TileScheduler>() {
    let program = recorder::<S>();
    for (m, n, slots) in [(1, 1, 132), (3, 5, 4), (8, 8, 7), (17, 9, 132), (33, 4, 10), (1, 40, 3)] {
        let tiles = Tiles { m, n, k: 6 };
        let workers = S::workers(tiles, slots);
        let host: Vec<Vec<_>> =
            (0..workers).map(|worker| S::work(tiles, worker, workers).collect()).collect();
        let room = host.iter().map(Vec::len).max().unwrap_or(0) + 1;
        let mut memory = Memory::new();
        let unwritten = [0xff; 16];
        let records = memory.upload(&unwritten.repeat(workers as usize * room));
        let room_argument = u32::try_from(room).expect("small");
        let arguments = [m.into(), n.into(), tiles.k.into(), records.into(), room_argument.into()];
        program
            .launch(Grid { ctas: [workers, 1, 1] }, &arguments, &memory, &Options::default())
            .unwrap_or_else(|failure| panic!("{}: {failure}", S::name()));
        for (worker, host) in host.iter().enumerate() {
            let at = |i: usize| memory.read(records + ((worker * room + i) * 16) as u64, 16).expect("inside");
            for (i, work) in host.iter().enumerate() {
                let want = [work.m, work.n, work.k_begin, work.k_end].map(u32::to_le_bytes).concat();
                assert_eq!(at(i), want, "{} {tiles:?} worker {worker} piece {i}", S::name());
            }
            assert_eq!(
                at(host.len()),
                unwritten,
                "{} {tiles:?} worker {worker}: one piece too many",
                S::name()
            );
        }
    }
}

#[test]
fn the_device_computes_what_the_host_says() {
    agrees::<OneTile<AlongM>>();
    agrees::<OneTile<AlongN>>();
    agrees::<Persistent<AlongM>>();
    agrees::<Persistent<AlongN>>();
    agrees::<Persistent<Grouped<AlongM, U8>>>();
    agrees::<Persistent<Grouped<AlongN, U2>>>();
    agrees::<Persistent<Hilbert<U2>>>();
    agrees::<Persistent<Hilbert<U8>>>();
}
