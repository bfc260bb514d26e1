//! Device code and host model agree: the emitted loop runs on the emulator and records its work units.

use emulator::Schedule;
use emulator::{Memory, Options, Program};
use ptx::abi::{Argument, Grid};
use ptx::{AtomicOp, AtomicSem, Builder, Entry, Function, Location, Scope, Special, Target, Value, Var};
use scheduler::{
    AlongM, AlongN, Atomic, ClusterK, DividedTail, Draw, Dynamic, EveryTile, Grouped, Heuristic, Hilbert,
    NarrowTail, OneTile, Ordered, Persistent, Remainder, Separate, StreamK, TileScheduler, Tiles, Work,
    WorkLoop,
};
use typenum::{U1, U2, U3, U8, U28};

/// A counter in global memory, drawn from by one thread.
struct Counter<'f> {
    f: &'f Builder,
    at: Value<'f, u64>,
    drawn: Var<'f, u32>,
}

impl<'f> Draw<'f> for Counter<'f> {
    fn ask(&self, numbers: Value<'f, u32>) {
        let (at, order) = (Location::global(self.at, 0), (AtomicSem::Relaxed, Scope::Gpu));
        self.drawn.set(self.f.atomic(AtomicOp::Inc, at, numbers - 1, order));
    }

    fn answer(&self) -> Value<'f, u32> {
        self.drawn.get()
    }
}

/// A kernel with one warp per CTA. One lane records each work unit as twelve numbers: tile, k-tiles, slice and split.
fn recorder<S: TileScheduler>(draws: bool) -> Program {
    let entry = Entry {
        name: "record".into(),
        target: Target::Sm90a,
        threads: 32,
        shared_bytes: 0,
        cluster: [1, 1, 1],
    };
    let function = Function::build(entry, |f: &Builder| {
        let tiles = Tiles { m: f.param("m"), n: f.param("n"), k: f.param("k") };
        let rule = S::schedule();
        for (name, _) in rule.parameters(Tiles { m: 1, n: 1, k: 1 }, 1) {
            let _: Value<'_, u32> = f.param(name);
        }
        let (records, room) = (f.param::<u64>("records"), f.param::<u32>("room"));
        let counter = draws.then(|| Counter { f, at: f.param("counter"), drawn: f.variable(0) });
        let draw = counter.as_ref().map(|counter| counter as &dyn Draw<'_>);
        let (worker, workers) = (f.special(Special::CtaX), f.special(Special::GridX));
        f.if_(f.elect(), || {
            let count = f.variable(0);
            let mut body = |work: Work<Value<'_, u32>>| {
                let record = records + (worker * room + count.get()).mul_wide(48);
                f.store_global(record, 0, [work.m, work.n, work.k_begin, work.k_end]);
                let none = f.constant(u32::MAX);
                let split = work.split.map_or([none; 4], |s| [s.unit, s.first, s.last, s.tile]);
                let slice = work.slice.map_or([none; 4], |s| [s.first, s.count, f.constant(s.of), none]);
                f.store_global(record, 16, slice);
                f.store_global(record, 32, split);
                count.set(count.get() + 1);
            };
            rule.emit(f, &mut WorkLoop { tiles, worker, workers, draw, body: &mut body });
        });
    });
    Program::new(&function.verify().expect("a legal program"))
}

fn agrees<S: TileScheduler>() {
    let program = recorder::<S>(false);
    for (m, n, k, slots) in [
        (1, 1, 6, 132),
        (3, 5, 6, 4),
        (8, 8, 0, 7),
        (17, 9, 16, 132),
        (33, 4, 20, 10),
        (1, 40, 9, 3),
        (2, 2, 64, 132),
        (1, 2, 33, 20),
        (7, 1, 13, 5),
    ] {
        let tiles = Tiles { m, n, k };
        let workers = S::schedule().workers(tiles, slots);
        let host: Vec<Vec<_>> =
            (0..workers).map(|worker| S::schedule().work(tiles, worker, workers).collect()).collect();
        let room = host.iter().map(Vec::len).max().unwrap_or(0) + 1;
        let mut memory = Memory::new();
        let unwritten = [0xff; 48];
        let records = memory.upload(&unwritten.repeat(workers as usize * room));
        let room_argument = u32::try_from(room).expect("small");
        let mut arguments = vec![m.into(), n.into(), k.into()];
        arguments.extend(
            S::schedule().parameters(tiles, workers).into_iter().map(|(_, value)| Argument::from(value)),
        );
        arguments.extend([records.into(), room_argument.into()]);
        program
            .launch(Grid { ctas: [workers, 1, 1] }, &arguments, &memory, &Options::default())
            .unwrap_or_else(|failure| panic!("{}: {failure}", S::schedule().name()));
        for (worker, host) in host.iter().enumerate() {
            let at = |i: usize| memory.read(records + ((worker * room + i) * 48) as u64, 48).expect("inside");
            for (i, work) in host.iter().enumerate() {
                let record = at(i);
                let split = work.split.map_or([u32::MAX; 4], |s| [s.unit, s.first, s.last, s.tile]);
                let slice = work.slice.map_or([u32::MAX; 4], |s| [s.first, s.count, s.of, u32::MAX]);
                let want = [[work.m, work.n, work.k_begin, work.k_end], slice, split].concat();
                let want: Vec<u8> = want.into_iter().flat_map(u32::to_le_bytes).collect();
                // The split that the device reports has no meaning for a whole tile.
                let whole = work.k_begin == 0 && work.k_end == tiles.k;
                let bytes = if whole { 32 } else { 48 };
                assert_eq!(
                    record[..bytes],
                    want[..bytes],
                    "{} {tiles:?} worker {worker} piece {i}",
                    S::schedule().name()
                );
            }
            assert_eq!(
                at(host.len()),
                unwritten,
                "{} {tiles:?} worker {worker}: one piece too many",
                S::schedule().name()
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
    agrees::<Dynamic<Grouped<AlongM, U2>>>();
    agrees::<DividedTail<AlongM>>();
    agrees::<DividedTail<AlongM, U3, U1>>();
    agrees::<DividedTail<Grouped<AlongN, U2>, U2, U2>>();
    agrees::<StreamK<AlongM>>();
    agrees::<StreamK<Grouped<AlongM, U2>, Ordered, Remainder>>();
    agrees::<StreamK<AlongN, Atomic, EveryTile<U3>>>();
    agrees::<StreamK<Hilbert<U2>, Ordered, Remainder<U1>>>();
    agrees::<StreamK<AlongM, Separate, Heuristic<U28, U2>>>();
    agrees::<ClusterK<AlongM, U2>>();
    agrees::<ClusterK<Grouped<AlongN, U2>, U8>>();
    agrees::<NarrowTail<AlongM>>();
    agrees::<NarrowTail<Grouped<AlongN, U2>, U3>>();
    agrees::<NarrowTail<Hilbert<U2>, U8>>();
}

/// Each tile is computed once, in whatever order workers draw, and the counter is zero afterwards. The same
/// holds for a second launch with the same counter, and for a launch of another problem.
fn draws_each_tile_once<S: TileScheduler>() {
    let program = recorder::<S>(true);
    let mut uneven = 0;
    for seed in 0..24 {
        let schedule = if seed == 0 { Schedule::Latest } else { Schedule::Random };
        let mut memory = Memory::new();
        let counter = memory.upload(&[0; 4]);
        for (m, n, k, slots) in [(9, 7, 5, 4), (9, 7, 5, 4), (1, 1, 3, 132), (3, 2, 0, 132), (5, 8, 1, 7)] {
            let why = format!("{} {m} x {n} x {k} on {slots}, seed {seed}", S::schedule().name());
            let tiles = Tiles { m, n, k };
            let workers = S::schedule().workers(tiles, slots);
            let room = m * n * 4 + 1;
            let records = memory.upload(&[0xff; 48].repeat((workers * room) as usize));
            let mut arguments = vec![m.into(), n.into(), k.into()];
            arguments.extend(
                S::schedule().parameters(tiles, workers).into_iter().map(|(_, value)| Argument::from(value)),
            );
            arguments.extend([records.into(), room.into(), counter.into()]);
            let options = Options { schedule, seed, ..Options::default() };
            program
                .launch(Grid { ctas: [workers, 1, 1] }, &arguments, &memory, &options)
                .unwrap_or_else(|failure| panic!("{why}: {failure}"));
            // The work units, and how often each k-tile is computed.
            let mut computed = vec![(0, vec![0; k as usize]); (m * n) as usize];
            for worker in 0..workers {
                let count = (0..room).take_while(|i| {
                    let at = records + u64::from(worker * room + i) * 48;
                    let bytes = memory.read(at, 16).expect("inside");
                    let [tile_m, tile_n, k_begin, k_end] = [0, 4, 8, 12].map(|at| {
                        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
                    });
                    let exists = tile_m != u32::MAX;
                    if exists {
                        let (pieces, sums) = &mut computed[(tile_m * n + tile_n) as usize];
                        *pieces += 1;
                        sums[k_begin as usize..k_end as usize].iter_mut().for_each(|count| *count += 1);
                    }
                    exists
                });
                uneven += usize::from(count.count() != S::schedule().work(tiles, worker, workers).count());
            }
            let once = |(pieces, sums): &(u32, Vec<u32>)| {
                sums.iter().all(|&count| count == 1)
                    && (*pieces == 1 || S::TRAITS.reduction.is_some() && (1..=k).contains(pieces))
            };
            assert!(computed.iter().all(once), "{why}: {computed:?}");
            assert_eq!(memory.read(counter, 4).expect("inside"), [0; 4], "{why}: the counter");
        }
    }
    assert!(uneven > 0, "{}: no worker ever took another one's turn", S::schedule().name());
}

#[test]
fn drawn_tiles_are_computed_once_whoever_comes_first() {
    draws_each_tile_once::<Dynamic<AlongM>>();
    draws_each_tile_once::<Dynamic<AlongN>>();
    draws_each_tile_once::<Dynamic<Grouped<AlongM, U3>>>();
    draws_each_tile_once::<Dynamic<Hilbert<U2>>>();
    draws_each_tile_once::<DividedTail<AlongM, U3, U1>>();
    draws_each_tile_once::<DividedTail<Grouped<AlongN, U2>, U2, U2>>();
}
