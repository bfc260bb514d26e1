//! Roles of your own: what they may leave out, arguments of their own, and how their mistakes are reported.

use collective::pipeline::{ClusterPosition, Position};
use std::sync::Arc;

use collective::{
    Cooperative, DeviceMainloop, KMajor, LinearCombination, Mainloop, MainloopEmitter, MainloopSpec, Matrix,
    Operands, Piece, Plan, Tile, TmaWgmma,
};
use half::bf16;
use kernel::{
    Batched, Call, Composed, Emulator, Engine, EngineError, Gemm, GemmProblem, LaunchError, ScheduleError,
    check_schedule,
};
use ptx::abi::Argument;
use ptx::{Builder, Value};
use scheduler::{
    AlongM, CoverageFault, Facts, OneTile, Persistent, Schedule, TileScheduler, Tiles, Work, WorkLoop,
};
use typenum::{U1, U64};

type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;

/// Multiplies k-tiles beginning with one whose number is in device memory.
struct Later;

/// Address of the first k-tile's number.
#[derive(Default)]
struct First(u64);

/// Its emitter.
#[derive(Debug)]
struct LaterEmitter;

struct LaterDevice<'f> {
    ours: Box<dyn DeviceMainloop<'f> + 'f>,
    first: Value<'f, u64>,
}

impl Mainloop for Later {
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = First;

    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(LaterEmitter)
    }

    fn check(own: &First, _: Matrix, _: Matrix) -> Result<(), String> {
        if own.0 == 0 { Err("first is null, an address was needed: bind it".to_owned()) } else { Ok(()) }
    }

    fn arguments(plan: &Plan, a: Matrix, b: Matrix, own: &First) -> Vec<Argument> {
        let mut arguments = Ours::arguments(plan, a, b, &());
        arguments.push(own.0.into());
        arguments
    }
}

impl MainloopEmitter for LaterEmitter {
    fn name(&self, _: &MainloopSpec) -> String {
        "later".to_owned()
    }

    fn declare<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        Box::new(LaterDevice { ours: Ours::emitter().declare(f, plan), first: f.param("first") })
    }

    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Vec<Argument> {
        Later::arguments(plan, a, b, &First::default())
    }
}

impl<'f> DeviceMainloop<'f> for LaterDevice<'f> {
    fn load(
        &self,
        f: &'f Builder,
        plan: &Plan,
        cluster: ClusterPosition<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    ) {
        // The same number of k-tiles, beginning with the one that memory names.
        let first = f.load_global::<u32>(self.first, 0);
        let piece = Piece { k_begin: piece.k_begin + first, k_end: piece.k_end + first, ..piece };
        self.ours.load(f, plan, cluster, ring, piece);
    }
}

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
        matches!(&error, LaunchError::Mainloop { reason } if reason.contains("first is null")),
        "{error}"
    );
    for (first, want) in [(0u32, 192.0), (1, 192.0), (2, 128.0), (3, 0.0)] {
        let own = First(engine.upload(&first.to_le_bytes()).expect("memory").address);
        let launch = Gemm::<Gathers>::bind(&own).launch(&call, 132);
        let launch = launch.expect("legal").expect("not empty");
        engine.launch(&program, launch.grid, &launch.arguments).expect("runs");
        // K-tiles beyond the last are zeros.
        let got = engine.read(d).expect("allocated");
        assert_eq!(got, bf16::from_f32(want).to_le_bytes().repeat(64 * 64), "from k-tile {first} on");
    }
}

/// A mainloop whose device part implements no method.
#[derive(Debug)]
struct Bare;

impl Mainloop for Bare {
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = ();

    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(Self)
    }
}

impl MainloopEmitter for Bare {
    fn name(&self, _: &MainloopSpec) -> String {
        "bare".to_owned()
    }

    fn declare<'f>(&self, _: &'f Builder, _: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        Box::new(Self)
    }

    fn arguments(&self, _: &Plan, _: Matrix, _: Matrix) -> Vec<Argument> {
        Vec::new()
    }
}

impl DeviceMainloop<'_> for Bare {}

#[test]
fn what_a_mainloop_needs_and_lacks_is_said() {
    type Mine = Composed<Bare, LinearCombination<bf16>, OneTile<AlongM>>;
    let error = Gemm::<Mine>::program().expect_err("nothing is loaded").to_string();
    assert!(error.contains("write `DeviceMainloop::load`"), "{error}");
}

/// A scheduler in which one worker computes all tiles, with a mistake.
#[derive(Debug)]
struct Wrong<const MISTAKE: u8>;

/// Assigns nothing on the host.
const IDLE: u8 = 1;
/// Never advances on the device.
const STUCK: u8 = 2;
/// Assigns the tiles on the device in another order.
const TURNED: u8 = 3;
/// Never ends on the host.
const ENDLESS: u8 = 4;

impl<const MISTAKE: u8> Schedule for Wrong<MISTAKE> {
    fn name(&self) -> String {
        format!("wrong_{MISTAKE}")
    }

    fn describe(&self) -> String {
        "one worker has all".to_owned()
    }

    fn facts(&self) -> Facts {
        Facts::WHOLE
    }

    fn workers(&self, tiles: Tiles<u32>, _slots: u32) -> u32 {
        (tiles.m * tiles.n).min(1)
    }

    fn work(&self, tiles: Tiles<u32>, _: u32, _: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        let piece = move |tile| Work {
            m: tile / tiles.n,
            n: tile % tiles.n,
            k_begin: 0,
            k_end: tiles.k,
            split: None,
            slice: None,
        };
        match MISTAKE {
            IDLE => Box::new(core::iter::empty()),
            ENDLESS => Box::new((0..tiles.m * tiles.n).cycle().map(piece)),
            _ => Box::new((0..tiles.m * tiles.n).map(piece)),
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

#[test]
fn mistakes_of_a_scheduler_are_found_and_named() {
    let tiles = Tiles { m: 3, n: 2, k: 4 };
    check_schedule(&Wrong::<0>, tiles, 132).expect("there is no mistake in it");
    check_schedule(&*Persistent::<AlongM>::schedule(), tiles, 4).expect("nor in ours");
    let idle = check_schedule(&Wrong::<IDLE>, tiles, 132).expect_err("idle");
    assert!(
        matches!(&idle, ScheduleError::Host(error) if error.fault == CoverageFault::Missing { tile: [0, 0] }),
        "{idle}"
    );
    let endless = check_schedule(&Wrong::<ENDLESS>, tiles, 132).expect_err("endless");
    assert!(
        matches!(&endless, ScheduleError::Host(error) if matches!(error.fault, CoverageFault::Endless { .. })),
        "{endless}"
    );
    let turned = check_schedule(&Wrong::<TURNED>, tiles, 132).expect_err("turned");
    assert!(matches!(turned, ScheduleError::Disagree { worker: 0, piece: 0, .. }), "{turned}");
    let stuck = check_schedule(&Wrong::<STUCK>, tiles, 132).expect_err("stuck");
    assert!(matches!(stuck, ScheduleError::Device { room: 6, .. }), "{stuck}");
    for (error, name) in [(idle, "wrong_1"), (turned, "wrong_3"), (stuck, "wrong_2"), (endless, "wrong_4")] {
        assert!(error.to_string().contains(name), "{error}");
    }
    let large = check_schedule(&Wrong::<0>, Tiles { m: u32::MAX, n: u32::MAX, k: u32::MAX }, 132);
    assert!(matches!(large, Err(ScheduleError::TooLarge { .. })), "{large:?}");
}

#[test]
fn a_fault_names_its_kernel_once_and_its_scheduler() {
    type Mine = Composed<Ours, LinearCombination<bf16>, OneTile<AlongM>>;
    let mut engine = Emulator::new();
    // No memory is allocated there.
    let call = Call::of(GemmProblem { m: 64, n: 64, k: 64 }).a(1 << 40, 64).b(1 << 40, 64).d(1 << 40, 64);
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
