//! Roles of your own: what they may leave out, arguments of their own, and how their mistakes are reported.

#[path = "support/later.rs"]
mod later;

use collective::{DeviceMainloop, LinearCombination, Mainloop, MainloopSpec, Plan};
use half::bf16;
use kernel::{
    AnyGemm, Batched, Call, Composed, Emulator, Engine, EngineError, Gemm, GemmProblem, Kernel, KernelSpec,
    LaunchError, ScheduleError, check_schedule,
};
use later::{First, Later, Ours};
use ptx::{Builder, Value};
use scheduler::{
    AlongM, ClusterK, CoverageFault, DividedTail, Dynamic, Index, NarrowTail, OneTile, Persistent, Raster,
    SchedulerTraits, StreamK, TileScheduler, Tiles, Work, WorkLoop,
};

use typenum::U4;

type Gathers = Composed<Later, LinearCombination<bf16>, OneTile<AlongM>>;

#[test]
fn a_mainloop_has_arguments_of_its_own() {
    let mut engine = Emulator::new();
    let k = 192u32;
    // Each element of A is the number of its k-tile; those of B are 1.
    let a: Vec<u8> = (0..64 * k).flat_map(|i| bf16::from_f32(((i % k) / 64) as f32).to_le_bytes()).collect();
    let a = engine.upload(&a).expect("memory").address;
    let b = engine.upload(&bf16::ONE.to_le_bytes().repeat(64 * k as usize)).expect("memory").address;
    let d = engine.allocate(64 * 64 * 2).expect("memory");
    // One k-tile of three.
    let problem = GemmProblem { m: 64, n: 64, k };
    let call = Call::of(problem).a(a, k.into()).b(b, k.into()).d(d.address, 64);
    let program = Gemm::<Gathers>::program().expect("legal");
    let error = Gemm::<Gathers>::launch(&call, 132).expect_err("nothing is bound");
    assert!(
        matches!(&error, LaunchError::Mainloop { reason, .. } if reason.contains("first is a null pointer")),
        "{error}"
    );
    // As a value too.
    let any = AnyGemm::of::<Gathers>("later");
    let error = any.launch(&call, 132).expect_err("nothing is bound").to_string();
    for words in [
        "mainloop `later_64x64x64` refuses its arguments",
        "First: first is a null pointer",
        "Call::with_mainloop",
    ] {
        assert!(error.contains(words), "{error}");
    }
    for (why, gemm, words) in [
        (
            "another mainloop",
            AnyGemm::of::<Composed<Ours, LinearCombination<bf16>, OneTile<AlongM>>>("ours"),
            "First",
        ),
        (
            "one of a spec",
            kernel::find("64x64-direct-bf16-kk").expect("a name"),
            "a kernel made from a spec takes none",
        ),
    ] {
        let error = gemm.launch(&call.with_mainloop(First(16)), 132).expect_err(why);
        assert!(matches!(error, LaunchError::OtherMainloop { .. }), "{why}: {error}");
        assert!(error.to_string().contains(words), "{why}: {error}");
    }
    for (first, want) in [(0u32, 192.0), (1, 192.0), (2, 128.0), (3, 0.0)] {
        let own = First(engine.upload(&first.to_le_bytes()).expect("memory").address);
        let launch = Gemm::<Gathers>::kernel().launch(&call.with_mainloop(own.clone()), 132);
        let launch = launch.expect("legal").expect("not empty");
        let same = any.launch(&call.with_mainloop(own.clone()), 132);
        assert_eq!(same.expect("legal"), Some(launch.clone()));
        engine.launch(&program, launch.grid, &launch.arguments).expect("runs");
        // K-tiles beyond the last are zeros.
        let got = engine.read(d).expect("allocated");
        assert_eq!(got, bf16::from_f32(want).to_le_bytes().repeat(64 * 64), "from k-tile {first} on");
    }
}

/// States the operands' parameters alone, and declares another.
#[derive(Debug)]
struct Forgets;

impl Mainloop for Forgets {
    const NAME: &'static str = "forgets";
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = ();

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        let _: Value<'_, u64> = f.param("forgotten");
        Ours::device(f, plan)
    }
}

/// A launch has an argument for every parameter, or there is no launch.
#[test]
fn a_parameter_that_is_not_stated_is_an_error() {
    type Forgetful = Composed<Forgets, LinearCombination<bf16>, OneTile<AlongM>>;
    let mut engine = Emulator::new();
    let [a, b, d] = [(); 3].map(|()| engine.allocate(64 * 64 * 2).expect("memory").address);
    let call = Call::of(GemmProblem { m: 64, n: 64, k: 64 }).a(a, 64).b(b, 64).d(d, 64);
    let error =
        Kernel::run(&AnyGemm::of::<Forgetful>("forgets"), &mut engine, &call).expect_err("one too few");
    let EngineError::Parameters { declared, given, .. } = &error else { panic!("{error}") };
    let stated: Vec<_> = declared.iter().filter(|name| **name != "forgotten").cloned().collect();
    assert!(stated == *given && declared.len() == given.len() + 1, "{error}");
}

/// A mainloop whose device part has no code.
#[derive(Debug)]
struct Bare;

impl Mainloop for Bare {
    const NAME: &'static str = "bare";
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = ();

    fn device<'f>(_: &'f Builder, _: &Plan) -> DeviceMainloop<'f> {
        DeviceMainloop::new()
    }
}

#[test]
fn what_a_mainloop_needs_and_lacks_is_said() {
    type Mine = Composed<Bare, LinearCombination<bf16>, OneTile<AlongM>>;
    let error = Gemm::<Mine>::program().expect_err("nothing is loaded").to_string();
    assert!(error.contains("give its `DeviceMainloop` a load"), "{error}");
}

/// A scheduler in which one worker computes all tiles, with a mistake.
#[derive(Clone, Debug, Default)]
struct Wrong<const MISTAKE: u8>;

/// Assigns nothing on the host.
const IDLE: u8 = 1;
/// Never advances on the device.
const STUCK: u8 = 2;
/// Assigns the tiles on the device in another order.
const TURNED: u8 = 3;
/// Never ends on the host.
const ENDLESS: u8 = 4;

impl<const MISTAKE: u8> TileScheduler for Wrong<MISTAKE> {
    const TRAITS: SchedulerTraits = SchedulerTraits::WHOLE;

    fn name(&self) -> String {
        format!("wrong_{MISTAKE}")
    }

    fn describe(&self) -> String {
        "one worker has all".to_owned()
    }

    fn workers(&self, tiles: Tiles<u32>, _resident: u32) -> u32 {
        (tiles.m * tiles.n).min(1)
    }

    fn work(&self, tiles: Tiles<u32>, _: u32, _: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let unit = move |tile| Work {
            m: tile / tiles.n,
            n: tile % tiles.n,
            k_begin: 0,
            k_end: tiles.k,
            split: None,
            slice: None,
        };
        match MISTAKE {
            IDLE => Box::new(core::iter::empty()),
            ENDLESS => Box::new((0..tiles.m * tiles.n).cycle().map(unit)),
            _ => Box::new((0..tiles.m * tiles.n).map(unit)),
        }
    }

    fn emit<'f>(&self, f: &'f Builder, WorkLoop { tiles, body, .. }: &mut WorkLoop<'_, 'f>) {
        let tile = f.variable(0u32);
        let all = tiles.m * tiles.n;
        f.while_(
            || tile.get().less_than(all),
            || {
                let now = tile.get();
                let place = if MISTAKE == TURNED { all - now - 1 } else { now };
                let (m, n) = (place / tiles.n, place % tiles.n);
                body(Work { m, n, k_begin: f.constant(0), k_end: tiles.k, split: None, slice: None });
                if MISTAKE != STUCK {
                    tile.set(now + 1);
                }
            },
        );
    }
}

/// Row by row, every second one from right to left.
#[derive(Clone, Copy, Debug, Default)]
struct Snake;

impl Raster for Snake {
    const NAME: &'static str = "snake";
    const ROWS_LAST: bool = true;

    fn describe(_size: u32) -> String {
        "row by row, to and fro".to_owned()
    }

    fn tile<I: Index>(id: I, tiles: Tiles<I>, _size: u32) -> (I, I) {
        let (m, n) = (id / tiles.n, id % tiles.n);
        (m, (m % 2).less(1, n, tiles.n - 1 - n))
    }
}

/// Every scheduler of the library takes an order that it does not know, on the host and on the device.
#[test]
fn an_order_of_your_own_goes_into_every_scheduler() {
    type Mine = Composed<Ours, LinearCombination<bf16>, Persistent<Snake>>;
    let tiles = Tiles { m: 3, n: 4, k: 40 };
    let order: Vec<_> =
        Persistent::<Snake>::schedule().work(tiles, 0, 1).map(|work| [work.m, work.n]).collect();
    let rows = [
        [[0, 0], [0, 1], [0, 2], [0, 3]],
        [[1, 3], [1, 2], [1, 1], [1, 0]],
        [[2, 0], [2, 1], [2, 2], [2, 3]],
    ];
    assert_eq!(order, rows.as_flattened());
    for schedule in [
        OneTile::<Snake>::schedule(),
        Persistent::<Snake>::schedule(),
        Dynamic::<Snake>::schedule(),
        DividedTail::<Snake>::schedule(),
        StreamK::<Snake>::schedule(),
        ClusterK::<Snake, U4>::schedule(),
        NarrowTail::<Snake>::schedule(),
    ] {
        for (tiles, resident) in [(tiles, 5), (tiles, 132), (Tiles { m: 7, n: 1, k: 3 }, 4)] {
            check_schedule(&*schedule, tiles, resident).expect("device and host agree");
        }
        assert!(schedule.name().ends_with("_snake") && schedule.spec().is_none(), "{}", schedule.name());
    }
    let kernel = Gemm::<Mine>::kernel();
    assert!(kernel.rust_type().ends_with("Persistent<Snake>>"), "{}", kernel.rust_type());
    assert!(kernel.spec().is_none() && kernel.entry_name().ends_with("persistent_snake"));
    kernel.program().expect("legal");
}

/// A spec's word for an order is its type with the same size.
#[test]
fn words_of_orders_are_their_types() {
    for (word, ty) in [
        ("m", "AlongM"),
        ("n", "AlongN"),
        ("m8", "Grouped<AlongM, U8>"),
        ("m3", "Grouped<AlongM, U3>"),
        ("n88", "Grouped<AlongN, U88>"),
        ("hilbert16", "Hilbert<U16>"),
    ] {
        let spec: KernelSpec = format!("raster={word}").parse().expect(word);
        assert!(spec.to_string().contains(&format!("raster={word}")) || word == "m8", "{spec}");
        assert!(spec.rust_type().ends_with(&format!("Persistent<{ty}>>")), "{word}: {}", spec.rust_type());
    }
    for word in ["", "8", "k", "hilbert", "m8n", "m99999", "snake", "mm8"] {
        let error = format!("raster={word}").parse::<KernelSpec>().expect_err(word).to_string();
        assert!(error.contains("raster is") && error.contains("m, n, m8, n8, hilbert8"), "{error}");
    }
}

#[test]
fn mistakes_of_a_scheduler_are_found_and_named() {
    let tiles = Tiles { m: 3, n: 2, k: 4 };
    check_schedule(&*Wrong::<0>::schedule(), tiles, 132).expect("there is no mistake in it");
    check_schedule(&*Persistent::<AlongM>::schedule(), tiles, 4).expect("nor in ours");
    let idle = check_schedule(&*Wrong::<IDLE>::schedule(), tiles, 132).expect_err("idle");
    assert!(
        matches!(&idle, ScheduleError::Host(error) if error.fault == CoverageFault::Missing { tile: [0, 0] }),
        "{idle}"
    );
    let endless = check_schedule(&*Wrong::<ENDLESS>::schedule(), tiles, 132).expect_err("endless");
    assert!(
        matches!(&endless, ScheduleError::Host(error) if matches!(error.fault, CoverageFault::Endless { .. })),
        "{endless}"
    );
    let turned = check_schedule(&*Wrong::<TURNED>::schedule(), tiles, 132).expect_err("turned");
    assert!(matches!(turned, ScheduleError::Disagree { worker: 0, unit: 0, .. }), "{turned}");
    let stuck = check_schedule(&*Wrong::<STUCK>::schedule(), tiles, 132).expect_err("stuck");
    assert!(matches!(stuck, ScheduleError::Device { room: 6, .. }), "{stuck}");
    for (error, name) in [(idle, "wrong_1"), (turned, "wrong_3"), (stuck, "wrong_2"), (endless, "wrong_4")] {
        assert!(error.to_string().contains(name), "{error}");
    }
    let large =
        check_schedule(&*Wrong::<0>::schedule(), Tiles { m: u32::MAX, n: u32::MAX, k: u32::MAX }, 132);
    assert!(matches!(large, Err(ScheduleError::TooLarge { .. })), "{large:?}");
}

#[test]
fn a_fault_names_its_kernel_once_and_its_scheduler() {
    type Mine = Composed<Ours, LinearCombination<bf16>, OneTile<AlongM>>;
    let mut engine = Emulator::new();
    // No memory is allocated there.
    let call = Call::of(GemmProblem { m: 64, n: 64, k: 64 }).a(1 << 40, 64).b(1 << 40, 64).d(1 << 41, 64);
    let program = Gemm::<Mine>::program().expect("legal");
    let launch = Gemm::<Mine>::launch(&call, 132);
    let launch = launch.expect("legal").expect("not empty");
    let error = engine.launch(&program, launch.grid, &launch.arguments).expect_err("no memory");
    assert!(matches!(error, EngineError::Trap { .. }), "{error}");
    let text = error.to_string();
    assert_eq!(text.matches(program.name()).count(), 1, "{text}");
    assert!(text.contains("scheduled by `one_tile"), "{text}");
}

#[test]
fn our_roles_are_part_of_every_form() {
    type Mine = Batched<Composed<Ours, LinearCombination<bf16>, OneTile<AlongM>>>;
    assert!(Gemm::<Mine>::name().contains("batched"));
}
