//! Schedulers that get words from a call: an order of tiles in device memory, and flags of operands that CTAs of the same launch make.

use collective::{
    Cooperative, DirectStore, KMajor, LinearArguments, LinearCombination, Operands, Tile, TmaWgmma,
};
use emulator::Schedule;
use half::bf16;
use kernel::operands::Memory;
use kernel::{
    Call, Composed, Emulator, Engine, Gemm, GemmProblem, Kernel, LaunchError, ScheduleError, check_schedule,
};
use ptx::mutate::{Mutation, mutations};
use ptx::{Builder, Function, LoadOrder, Location, ProxySpace, Scope, Special, StoreOrder, Value};
use scheduler::{
    CoverageFault, ScheduleVisit, SchedulerTraits, TileScheduler, Tiles, WordContents, Words, Work, WorkLoop,
    await_flag, raise_flag,
};
use typenum::{U1, U64};

type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;
type Stored = LinearCombination<f32, DirectStore>;

const PROBLEM: GemmProblem = GemmProblem { m: 320, n: 128, k: 128 };
/// Words of a block of 64 rows of A: two elements each.
const BLOCK: u32 = 64 * PROBLEM.k / 2;
const BLOCKS: u32 = PROBLEM.m / 64;
/// Clusters that run at once.
const RESIDENT: u32 = 3;

/// Emits a loop of persistent workers, row by row or as `place` says of a tile's number.
fn persistent<'f>(
    f: &'f Builder,
    WorkLoop { tiles, worker, workers, body, .. }: &mut WorkLoop<'_, 'f>,
    place: impl Fn(Value<'f, u32>) -> [Value<'f, u32>; 2],
) {
    let (id, all) = (f.variable(*worker), tiles.m * tiles.n);
    f.while_(
        || id.get().less_than(all),
        || {
            let [m, n] = place(id.get());
            body(Work { m, n, k_begin: f.constant(0), k_end: tiles.k, split: None, slice: None });
            id.set(id.get() + *workers);
        },
    );
}

/// The same on the host, row by row.
fn rows(tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
    let unit = move |id| Work {
        m: id / tiles.n,
        n: id % tiles.n,
        k_begin: 0,
        k_end: tiles.k,
        split: None,
        slice: None,
    };
    Box::new((worker..tiles.count().unwrap_or(0)).step_by(workers.max(1) as usize).map(unit))
}

/// Workers take the tiles in the order of a table in device memory.
#[derive(Clone, Debug, Default)]
struct ByTable<const HALF: bool> {
    order: u64,
}

impl<const HALF: bool> TileScheduler for ByTable<HALF> {
    const TRAITS: SchedulerTraits = SchedulerTraits::WHOLE;

    fn name(&self) -> String {
        "by_table".to_owned()
    }

    fn describe(&self) -> String {
        "in the order of a table".to_owned()
    }

    fn workers(&self, tiles: Tiles<u32>, resident: u32) -> u32 {
        tiles.count().unwrap_or(0).min(resident.max(1))
    }

    fn visit(&mut self, tiles: Tiles<u32>, visit: &mut dyn ScheduleVisit) {
        let (count, contents) = (tiles.count().unwrap_or(0).into(), WordContents::Order);
        visit.words(Words { name: "order", address: &mut self.order, count, contents, writes: false });
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        rows(tiles, worker, workers)
    }

    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>) {
        let (order, n) = (f.parameter::<u64>("order"), loop_.tiles.n);
        persistent(f, loop_, |id| {
            let place: Value<'f, u32> = f.load_global(order + id.mul_wide(4), 0);
            [place / n, if HALF { id } else { place } % n]
        });
    }
}

#[test]
fn an_order_in_memory_is_checked_with_another_order() {
    for (tiles, resident) in
        [(Tiles { m: 3, n: 4, k: 2 }, 5), (Tiles { m: 1, n: 1, k: 1 }, 132), (Tiles { m: 9, n: 7, k: 3 }, 4)]
    {
        check_schedule(&*ByTable::<false>::schedule(), tiles, resident).expect("device and host agree");
    }
    // Half of the table is ignored, which an order of 0, 1, 2, .. does not show.
    let half = check_schedule(&*ByTable::<true>::schedule(), Tiles { m: 9, n: 7, k: 3 }, 4);
    let half = half.expect_err("tiles are computed twice");
    assert!(
        matches!(&half, ScheduleError::Ordered(error) if matches!(error.fault, CoverageFault::Missing { .. } | CoverageFault::Twice { .. })),
        "{half}"
    );
}

/// An element of A, of those that the launch makes: 1 or 2.
fn element(row: u32, column: u32) -> u32 {
    ((row * PROBLEM.k + column) / 2 / 5) % 2 + 1
}

/// A and B as bytes, and D.
fn numbers() -> [Vec<u8>; 3] {
    let GemmProblem { m, n, k } = PROBLEM;
    let of_b = |column: u32, k: u32| (column * 3 + k * 5) % 4;
    let bytes = |lines: u32, of: &dyn Fn(u32, u32) -> u32| -> Vec<u8> {
        let all = (0..lines).flat_map(|line| (0..k).map(move |i| (line, i)));
        all.flat_map(|(line, i)| bf16::from_f32(of(line, i) as f32).to_le_bytes()).collect()
    };
    let d = (0..m).flat_map(|row| (0..n).map(move |column| (row, column)));
    let d = d.flat_map(|(row, column)| {
        let sum: u32 = (0..k).map(|i| element(row, i) * of_b(column, i)).sum();
        (sum as f32).to_le_bytes()
    });
    [bytes(m, &element), bytes(n, &of_b), d.collect()]
}

/// Nothing is wrong.
const RIGHT: u8 = 0;
/// Units are loaded without a wait.
const NO_WAIT: u8 = 1;
/// The flag is read without acquiring what was done before it was raised.
const NO_ACQUIRE: u8 = 2;
/// No proxy fence between stores of threads and tensor copies.
const NO_FENCE: u8 = 3;
/// The flag is raised without a release.
const NO_RELEASE: u8 = 4;
/// The flag is raised before the stores.
const EARLY: u8 = 5;
/// The flag of another block.
const OTHER: u8 = 6;
/// It is not said that the launch writes what it reads.
const UNSAID: u8 = 7;

/// Each worker first makes blocks of rows of A, by stores of one thread, and raises a flag for each; the loads of a unit wait for the flag of its
/// block. Most units wait for another CTA.
#[derive(Clone, Debug, Default)]
struct Fed<const MISTAKE: u8> {
    flags: u64,
    rows: u64,
    /// The value of a raised flag.
    raised: u32,
}

impl<const MISTAKE: u8> TileScheduler for Fed<MISTAKE> {
    const TRAITS: SchedulerTraits = SchedulerTraits { feeds: MISTAKE != UNSAID, ..SchedulerTraits::WHOLE };

    fn name(&self) -> String {
        format!("fed_{MISTAKE}")
    }

    fn describe(&self) -> String {
        "persistent CTAs that make what they read".to_owned()
    }

    fn workers(&self, tiles: Tiles<u32>, resident: u32) -> u32 {
        tiles.count().unwrap_or(0).min(resident.max(1))
    }

    fn visit(&mut self, tiles: Tiles<u32>, visit: &mut dyn ScheduleVisit) {
        let [flags, rows] = [&mut self.flags, &mut self.rows];
        let (count, contents) = (u64::from(tiles.m), WordContents::Flags);
        visit.words(Words { name: "flags", address: flags, count, contents, writes: true });
        let count = count * u64::from(BLOCK);
        visit.words(Words { name: "rows", address: rows, count, contents, writes: true });
        visit.word("raised", &mut self.raised);
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        rows(tiles, worker, workers)
    }

    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>) {
        let WorkLoop { tiles, worker, workers, .. } = *loop_;
        let loads = f.special(Special::ThreadX).less_than(32);
        f.if_(loads, || {
            let (flags, rows, raised) =
                (f.parameter::<u64>("flags"), f.parameter::<u64>("rows"), f.parameter("raised"));
            let block = f.variable(worker);
            f.while_(
                || block.get().less_than(tiles.m),
                || {
                    let flag = flags + block.get().mul_wide(4);
                    if MISTAKE == EARLY {
                        raise_flag(f, flag, raised, Scope::Gpu);
                    }
                    f.repeat(f.constant(BLOCK), |i| {
                        let word = block.get() * BLOCK + i;
                        // Two elements of 1, or two of 2.
                        let elements = (word / 5 % 2) * 0x0080_0080 + 0x3F80_3F80;
                        f.store_global(rows + word.mul_wide(4), 0, [elements]);
                    });
                    match MISTAKE {
                        EARLY => {}
                        NO_RELEASE => {
                            let order = StoreOrder::Relaxed(Scope::Gpu);
                            f.store_ordered(order, Location::global(flag, 0), [raised]);
                        }
                        _ => raise_flag(f, flag, raised, Scope::Gpu),
                    }
                    block.set(block.get() + workers);
                },
            );
        });
        persistent(f, loop_, |id| [id / tiles.n, id % tiles.n]);
    }

    fn ready<'f>(&self, f: &'f Builder, tiles: Tiles<Value<'f, u32>>, work: Work<Value<'f, u32>>) {
        let block = if MISTAKE == OTHER { (work.m + 1) % tiles.m } else { work.m };
        let (flag, raised) = (f.parameter::<u64>("flags") + block.mul_wide(4), f.parameter::<u32>("raised"));
        let wait = |order| {
            f.loop_(|| {
                let [now] = f.load_ordered::<u32, 1>(order, Location::global(flag, 0));
                f.break_if(now.at_least(raised));
            });
        };
        match MISTAKE {
            NO_WAIT => {}
            NO_ACQUIRE => {
                wait(LoadOrder::Relaxed(Scope::Gpu));
                f.fence_proxy_async(ProxySpace::Global);
            }
            NO_FENCE => wait(LoadOrder::Acquire(Scope::Gpu)),
            _ => await_flag(f, flag, raised, Scope::Gpu),
        }
    }
}

/// An engine with the inputs, and a call: A has no numbers yet, and no flag is raised.
fn fed<const MISTAKE: u8>(by: (Schedule, u64)) -> (Emulator, FedCall<MISTAKE>) {
    let GemmProblem { m, n, k } = PROBLEM;
    let [_, b, d] = numbers();
    let mut engine = Emulator::new().with_multiprocessors(RESIDENT).with_schedule(by.0, by.1);
    let mut place = |bytes: &[u8]| engine.memory().upload(bytes);
    let (a, flags) = (place(&vec![0xFF; m as usize * k as usize * 2]), place(&[0; 4 * BLOCKS as usize]));
    let call =
        Call::of(PROBLEM).a(a, k.into()).b(place(&b), k.into()).d(place(&vec![0xFF; d.len()]), n.into());
    (engine, call.with_scheduler(Fed { flags, rows: a, raised: 7 }))
}

type FedCall<const MISTAKE: u8> = Call<kernel::WithScheduler<Fed<MISTAKE>, LinearArguments>>;

/// What a program does with them: D, or what stopped it.
fn run<const MISTAKE: u8>(function: &Function, by: (Schedule, u64)) -> Result<Vec<u8>, String> {
    let (mut engine, call) = fed::<MISTAKE>(by);
    let kernel = Gemm::<Composed<Ours, Stored, Fed<MISTAKE>>>::kernel();
    let launch = kernel.launch(&call, RESIDENT).map_err(|error| error.to_string())?.expect("not empty");
    let program = kernel::Program::new(function.clone()).map_err(|error| error.to_string())?;
    engine.launch(&program, launch.grid, &launch.arguments).map_err(|error| error.to_string())?;
    let bytes = PROBLEM.m as usize * PROBLEM.n as usize * 4;
    engine.memory().read(call.d.address, bytes).map_err(|error| format!("{error:?}"))
}

fn function<const MISTAKE: u8>() -> Function {
    let program = Gemm::<Composed<Ours, Stored, Fed<MISTAKE>>>::program().expect("legal");
    Function::clone(program.function())
}

/// The outcome of a mistake under the first schedule that shows it.
fn shown<const MISTAKE: u8>() -> String {
    let [.., d] = numbers();
    let function = function::<MISTAKE>();
    let outcome = |by| match run::<MISTAKE>(&function, by) {
        Ok(found) if found == d => None,
        Ok(_) => Some("D is wrong".to_owned()),
        Err(error) => Some(error),
    };
    Schedule::sweep(4).find_map(outcome).unwrap_or_default()
}

#[test]
fn units_wait_for_flags_that_other_ctas_raise() {
    assert_eq!(shown::<RIGHT>(), "", "there is no mistake in it");
    for (what, outcome, words) in [
        ("no wait", shown::<NO_WAIT>(), "no fence.proxy.async separates"),
        ("no acquire", shown::<NO_ACQUIRE>(), "race"),
        ("no proxy fence", shown::<NO_FENCE>(), "no fence.proxy.async separates"),
        ("no release", shown::<NO_RELEASE>(), "race"),
        ("raised early", shown::<EARLY>(), "race"),
        ("another flag", shown::<OTHER>(), "race"),
        ("overlapping", shown::<UNSAID>(), "shares memory with"),
    ] {
        assert!(outcome.contains(words), "{what}: {outcome:?}");
    }
}

/// Mutants of the flags' code that do the same as it, and why.
const EQUIVALENT: [(&str, &str); 3] = [
    ("if in every thread in producer", "the producer is one thread, of the first warp"),
    ("st.release value + 1 in producer", "a flag may be more than what is waited for"),
    ("in consumer", "no consumer is in the first warp, so none executes it"),
];

/// Every other mutant of what waits and raises is found.
#[test]
fn mutants_of_flags_are_found() {
    let [.., d] = numbers();
    let function = function::<RIGHT>();
    let of_flags = |mutation: &Mutation| mutation.to_string().contains("given.rs");
    let all = mutations(&function).into_iter().filter(of_flags);
    let lives = |mutation: &Mutation| {
        let mutant = mutation.apply(&function);
        Schedule::sweep(4).all(|by| run::<RIGHT>(&mutant, by).is_ok_and(|found| found == d))
    };
    let (living, killed): (Vec<_>, Vec<_>) = all.partition(lives);
    for mutation in &living {
        let words = mutation.to_string();
        assert!(EQUIVALENT.iter().any(|(known, _)| words.contains(known)), "{words} is not found");
    }
    let killed: Vec<_> = killed.iter().map(ToString::to_string).collect();
    for words in [
        "st.release deleted in producer",
        "st.release relaxed in producer",
        "st.release for the CTA alone in producer",
        "ld.acquire relaxed in producer",
        "ld.acquire for the CTA alone in producer",
        "fence.proxy.async deleted in producer",
        "if in every thread in consumer",
    ] {
        assert!(killed.iter().any(|mutation| mutation.contains(words)), "{words}: {killed:?}");
    }
}

/// Tiles come from the call's table, whatever schedule the emulator has.
#[test]
fn a_table_of_the_call_says_which_tiles() {
    type Mine = Composed<Ours, Stored, ByTable<false>>;
    let (kernel, [a, b, d]) = (Gemm::<Mine>::kernel(), numbers());
    let GemmProblem { n, k, .. } = PROBLEM;
    let with = |table: &[u32], resident| {
        let mut engine = Emulator::new().with_multiprocessors(resident);
        let mut place = |bytes: &[u8]| engine.memory().upload(bytes);
        let call = Call::of(PROBLEM).a(place(&a), k.into()).b(place(&b), k.into());
        let call = call.d(place(&vec![0xFF; d.len()]), n.into());
        let order = table.iter().flat_map(|tile| tile.to_le_bytes()).collect::<Vec<u8>>();
        let call = call.with_scheduler(ByTable::<false> { order: place(&order) });
        let launch = kernel.launch(&call, resident).expect("legal").expect("not empty");
        let program =
            Kernel::<Call<_>>::program(&kernel as &dyn Kernel<Call<LinearArguments>>).expect("legal");
        engine.launch(&program, launch.grid, &launch.arguments).expect("no fault");
        engine.memory().read(call.d.address, d.len()).expect("D")
    };
    assert!(with(&[7, 2, 9, 0, 4, 1, 8, 3, 5, 6], 3) == d);
    // Tile 3, rows from 64 on and columns from 64 on, is in no entry.
    let found = with(&[7, 2, 9, 0, 4, 1, 8, 8, 5, 6], 1);
    let element = |row: usize, column: usize| (row * n as usize + column) * 4;
    let (inside, before) = (element(64, 64), element(64, 63));
    assert_eq!(found[inside..inside + 4], [0xFF; 4]);
    assert_eq!(found[before..before + 4], d[before..before + 4]);
}

#[test]
fn what_a_scheduler_needs_is_checked_and_visited() {
    let kernel = Gemm::<Composed<Ours, Stored, ByTable<false>>>::kernel();
    let call = Call::of(PROBLEM).a(0x10000, 128).b(0x80000, 128).d(0x100000, 128);
    let refused =
        |error: Result<_, LaunchError>| error.map(|_: Option<_>| ()).expect_err("refused").to_string();
    let nothing = refused(kernel.launch(&call, RESIDENT));
    assert!(
        nothing.contains("`order`, 10 words, is at 0x0") && nothing.contains("with_scheduler"),
        "{nothing}"
    );
    let odd = refused(kernel.launch(&call.with_scheduler(ByTable::<false> { order: 0x20002 }), RESIDENT));
    assert!(odd.contains("is at 0x20002, a multiple of 4"), "{odd}");
    let other = refused(kernel.launch(&call.with_scheduler(Fed::<RIGHT>::default()), RESIDENT));
    assert!(other.contains("`by_table`") && other.contains("`fed_0`"), "{other}");
    let inside =
        refused(kernel.launch(&call.with_scheduler(ByTable::<false> { order: 0x100000 - 4 }), RESIDENT));
    assert!(inside.contains("D at 0x100000 is written and shares memory with order"), "{inside}");

    let mut given = call.with_scheduler(ByTable::<false> { order: 0x20000 });
    let mut seen = Vec::new();
    Kernel::visit(&kernel, &mut given, &mut |memory: Memory<'_>| {
        seen.push((memory.name, *memory.address, memory.extents.bytes()));
        *memory.address += 0x1000;
    });
    assert!(seen.contains(&("order", 0x20000, 40)), "{seen:?}");
    assert_eq!(given.epilogue.role.0.order, 0x21000, "whoever moves memory moves the scheduler's");
}
