//! Every hazard: a minimal program that has it, and a twin that differs in one step and passes.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

/// Whether a fault is one of a pattern.
macro_rules! fault {
    ($($pattern:tt)+) => {
        |fault: &emulator::Fault| matches!(fault, $($pattern)+)
    };
}

mod agreed;
mod asynchronous;
mod barriers;
mod bulk;
mod claims;
mod cluster;
mod coherence;
mod collectives;
mod copies;
mod crossing;
mod flags;
mod global;
mod grid;
mod im2col;
mod impatient;
mod issuers;
mod joint;
mod kept;
mod known;
mod lanes;
mod legal;
mod lifetimes;
mod locks;
mod lockstep;
mod matrix;
mod mbarriers;
mod memory;
mod met;
mod named;
mod observed;
mod partial;
mod paths;
mod phases;
mod pipeline;
mod proxies;
mod remote;
mod reused;
mod sources;
mod staging;
mod steps;
mod sums;
mod table;
mod tensor_maps;
mod tools;
mod unusual;
mod weak;

use emulator::{Failure, Fault, Memory, Options, Program, Schedule};
use ptx::abi::{Argument, Grid, Im2colMap, Promotion, TensorElement, TensorMap, TensorSwizzle};
use ptx::inst::ProxySpace;
use ptx::{
    Builder, Entry, Function, Special, Target, TensorLoad, Value, Var, Verified, WgmmaOperands, WgmmaTypes,
};

/// What a hazard program works with.
#[derive(Clone, Copy)]
struct Kernel<'f> {
    f: &'f Builder,
    /// 8 rows of 64 bf16, initialised.
    data: Value<'f, u64>,
    /// The same size, not initialised.
    out: Value<'f, u64>,
    /// 16 words that are zero.
    flag: Value<'f, u64>,
    /// The tensor map of `data`, with one box.
    map: Value<'f, u64>,
    /// The tensor map of `out`, with one box.
    out_map: Value<'f, u64>,
    /// The tensor map of two boxes, of which `data` is the second one. There is no memory where it begins.
    early_map: Value<'f, u64>,
    /// The tensor map of one number, which is all of its memory.
    short_map: Value<'f, u64>,
    /// The im2col map of `data`: two images of 2 x 2 pixels with 64 channels, for a filter of 3 x 3.
    pixels: Value<'f, u64>,
    /// The same for `out`.
    out_pixels: Value<'f, u64>,
    /// 8 KiB of shared memory.
    base: Value<'f, u32>,
    thread: Value<'f, u32>,
    /// Whether this is the program that traps.
    broken: bool,
}

struct Case {
    why: &'static str,
    threads: u32,
    cluster: u32,
    /// Number of CTAs in the grid.
    ctas: u32,
    /// The section of the ISA that forbids it, if it is not that of the fault's rule.
    isa: Option<&'static str>,
    /// Whether earlier grids may still run.
    dependent: bool,
    /// How many times the program is launched, one after the other on the same memory.
    launches: u32,
    program: Box<dyn Fn(Kernel<'_>) + Send + Sync>,
    found: fn(&Fault) -> bool,
}

/// Instructions of a cluster after which a program counts as one that never ends.
const FUEL: u64 = 400_000;

const BOX_BYTES: u32 = 8 * 64 * 2;
/// Offset of the programs' mbarrier, after their data.
const BARRIER: u32 = 7168;

fn launch(case: &Case, broken: bool, options: &Options<'_>) -> Result<(), Failure> {
    let entry = Entry {
        name: "hazard".into(),
        target: Target::Sm90a,
        threads: case.threads,
        shared_bytes: 8192,
        cluster: [case.cluster, 1, 1],
    };
    let function = Function::build(entry, |f| {
        let (data, out, flag) = (f.param("data"), f.param("out"), f.param("flag"));
        let [map, out_map, early_map, short_map] =
            ["map", "out_map", "early_map", "short_map"].map(|name| f.tensor_map(name));
        let (pixels, out_pixels) = (f.tensor_map("pixels"), f.tensor_map("out_pixels"));
        let (base, thread) = (f.shared_base(), f.special(Special::ThreadX));
        (case.program)(Kernel {
            f,
            data,
            out,
            flag,
            map,
            out_map,
            early_map,
            short_map,
            pixels,
            out_pixels,
            base,
            thread,
            broken,
        });
    });
    let verified = function.verify().unwrap();
    let result = execute(case, &verified, options);
    if options.schedule == Schedule::Default {
        // A program with labels and branches has the same fault, or none.
        let flat = verified.flattened().verify().unwrap();
        assert_eq!(ptx::module_text(&flat), ptx::module_text(&verified), "{}", case.why);
        // On one host thread, CTAs run in one order.
        let alone = Options { threads: 1, ..*options };
        let run = |program| execute(case, program, &alone).map_err(|failure| failure.to_string());
        assert_eq!(run(&flat), run(&verified));
    }
    result
}

fn execute(case: &Case, function: &Verified, options: &Options<'_>) -> Result<(), Failure> {
    let program = Program::new(function);
    let mut memory = Memory::new();
    let data = memory.upload(&[0x3F; BOX_BYTES as usize]);
    let out = memory.allocate(BOX_BYTES as usize);
    let flag = memory.upload(&[0; 64]);
    let map = |address| TensorMap {
        element: TensorElement::Bf16,
        address,
        dims: vec![64, 8],
        strides: vec![128],
        box_dims: vec![64, 8],
        swizzle: TensorSwizzle::B128,
        promotion: Promotion::default(),
        reach: None,
    };
    let pixels = |address| Im2colMap {
        element: TensorElement::Bf16,
        address,
        dims: vec![64, 2, 2, 2],
        strides: vec![128, 256, 512],
        lower: vec![-1, -1],
        upper: vec![-1, -1],
        channels: 64,
        pixels: 8,
        steps: vec![1, 1],
        swizzle: TensorSwizzle::B128,
    };
    // The bounding box of a store must be inside the tensor.
    let stored = Im2colMap { lower: vec![0, 0], upper: vec![0, 0], ..pixels(out) };
    let bytes = u64::from(BOX_BYTES);
    let early =
        TensorMap { dims: vec![64, 16], reach: Some([bytes, 2 * bytes]), ..map(data.wrapping_sub(bytes)) };
    let short = TensorMap {
        element: TensorElement::U32,
        dims: vec![1, 1],
        box_dims: vec![32, 8],
        ..map(memory.upload(&[0; 4]))
    };
    let (tiled, walked) = ([map(data), map(out), early, short], [pixels(data), stored]);
    let mut arguments: Vec<Argument> = vec![data.into(), out.into(), flag.into()];
    arguments.extend(tiled.into_iter().map(Argument::from));
    arguments.extend(walked.into_iter().map(Argument::from));
    let options = Options { dependent: case.dependent || options.dependent, ..*options };
    let grid = Grid { ctas: [case.ctas, 1, 1] };
    (0..case.launches).try_for_each(|_| program.launch(grid, &arguments, &memory, &options).map(drop))
}

impl<'f> Kernel<'f> {
    /// Runs in one thread.
    fn once(self, body: impl FnOnce()) {
        self.f.if_(self.thread.equals(0), body);
    }

    /// Emitted only in the correct twin.
    fn in_twin(self, body: impl FnOnce()) {
        if !self.broken {
            body();
        }
    }

    /// Emitted only in the program with the hazard.
    fn in_broken(self, body: impl FnOnce()) {
        if self.broken {
            body();
        }
    }

    fn barrier(self) -> Value<'f, u32> {
        self.base + BARRIER
    }

    /// Initialises an mbarrier of one arrival that a tensor load may use, for the lanes of the first warp.
    fn init(self) {
        self.once(|| {
            self.f.mbarrier_init(self.barrier(), 1);
            self.f.fence_mbarrier_init();
        });
        self.f.warp_sync();
    }

    /// Loads the box to `dst`.
    fn load(self, dst: Value<'f, u32>) {
        let load = TensorLoad { map: self.map, dst, barrier: self.barrier(), multicast: None, hint: None };
        self.once(|| {
            self.f.mbarrier_arrive_expect(self.barrier(), BOX_BYTES);
            self.f.tensor_load(load, [self.f.constant(0); 2]);
        });
    }

    /// Fills shared memory with zeros by thread 0, and fences.
    fn zero(self, bytes: u32) {
        self.once(|| {
            let zero = self.f.constant(0u32);
            self.f.repeat(self.f.constant(bytes / 16), |index| {
                self.f.store_shared(self.base + index * 16, 0, [zero; 4]);
            });
            self.f.fence_proxy_async(ProxySpace::All);
        });
    }

    fn store(self, src: Value<'f, u32>) {
        self.once(|| {
            self.f.tensor_store(self.out_map, src, [self.f.constant(0); 2]);
            self.f.bulk_commit();
        });
    }

    fn accumulators(self) -> Vec<Var<'f, f32>> {
        (0..4).map(|_| self.f.uninitialised()).collect()
    }

    /// A multiply of unswizzled operands at the beginning of shared memory: 2 KiB of A, 256 B of B.
    fn wgmma(self, accumulators: &[Var<'f, f32>], accumulate: bool, flaw: impl Into<Option<Value<'f, u64>>>) {
        let start = self.start();
        let a = flaw.into().map_or(start, |flaw| start ^ flaw).into();
        let accumulate = self.f.constant(accumulate);
        self.f.wgmma(WgmmaOperands { a, accumulate, ..self.operands() }, accumulators);
    }

    /// The descriptor of an unswizzled operand at the beginning of shared memory.
    fn start(self) -> Value<'f, u64> {
        ((self.base & 0x3_FFFF) >> 4).cast::<u64>() | (64u64 << 16 | 8 << 32)
    }

    /// The operands of a multiply that overwrites its accumulators.
    fn operands(self) -> WgmmaOperands<'f> {
        let accumulate = self.f.constant(false);
        WgmmaOperands { accumulate, ..WgmmaOperands::new(WgmmaTypes::Bf16F32, 8, self.start(), self.start()) }
    }

    /// Fills the operands with zeros, and fences.
    fn ready_to_multiply(self) {
        self.zero(4096);
        self.f.barrier_sync(0, 128);
        self.f.wgmma_fence();
    }

    fn finish(self) {
        self.f.wgmma_commit();
        self.f.wgmma_wait(0);
    }
}

impl Case {
    fn new(
        why: &'static str,
        threads: u32,
        found: fn(&Fault) -> bool,
        program: impl Fn(Kernel<'_>) + Send + Sync + 'static,
    ) -> Self {
        let program = Box::new(program);
        Self { why, threads, cluster: 1, ctas: 1, isa: None, dependent: false, launches: 1, program, found }
    }

    /// Two CTAs of one warp each.
    fn in_cluster(
        why: &'static str,
        found: fn(&Fault) -> bool,
        program: impl Fn(Kernel<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self { cluster: 2, ctas: 2, ..Self::new(why, 32, found, program) }
    }

    /// Sets the section of the ISA that forbids it.
    fn isa(self, isa: &'static str) -> Self {
        Self { isa: Some(isa), ..self }
    }

    fn ctas(self, ctas: u32) -> Self {
        Self { ctas, ..self }
    }

    fn launches(self, launches: u32) -> Self {
        Self { launches, ..self }
    }

    /// Makes the grid one cluster of this many CTAs.
    fn cluster(self, ctas: u32) -> Self {
        Self { ctas, cluster: ctas, ..self }
    }
}

fn cases() -> Vec<Case> {
    [
        memory::cases(),
        asynchronous::cases(),
        barriers::cases(),
        global::cases(),
        tensor_maps::cases(),
        im2col::cases(),
        bulk::cases(),
        mbarriers::cases(),
        collectives::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn each_hazard_is_found_and_its_twin_passes() {
    let options = Options { fuel: FUEL, ..Options::default() };
    let mut wrong = Vec::new();
    for case in cases() {
        // Of several faults, it depends on the host's threads which comes first.
        match launch(&case, true, &Options { threads: 1, ..options }) {
            Err(Failure::Trap(trap)) => {
                let text = trap.to_string();
                if !(case.found)(&trap.fault) {
                    wrong.push(format!("{}: another fault: {text}", case.why));
                }
                assert!(text.starts_with("kernel `hazard`: ") && text.contains("tests/hazards/"), "{text}");
            }
            other => wrong.push(format!("{}: {other:?}", case.why)),
        }
        for schedule in [Schedule::Default, Schedule::Earliest, Schedule::Latest, Schedule::Random] {
            let options = Options { schedule, ..options };
            if let Err(failure) = launch(&case, false, &options) {
                wrong.push(format!("{}: the twin traps under {schedule:?}: {failure}", case.why));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn a_dependent_grid_waits_for_those_before_it() {
    let case = Case::new(
        "a dependent grid",
        64,
        |fault| matches!(fault, Fault::GridNotAwaited { .. }),
        |k| {
            // The first warp waits for both.
            k.f.if_(k.thread.less_than(32), || {
                k.in_twin(|| k.f.grid_wait());
            });
            k.f.barrier_sync(0, 64);
            let _value = k.f.load_global::<u32>(k.data, 0);
        },
    );
    let options = Options { dependent: true, ..Options::default() };
    assert!(launch(&case, false, &options).is_ok());
    match launch(&case, true, &options) {
        Err(Failure::Trap(trap)) => assert!((case.found)(&trap.fault), "{trap}"),
        other => panic!("{other:?}"),
    }
    assert!(launch(&case, true, &Options::default()).is_ok(), "a grid of its own has nothing to wait for");
}

/// Hazards that show only when one warp falls far behind another.
#[test]
fn random_schedules_find_what_the_others_do_not() {
    let case = barriers::numbers_mixed_up();
    let run = |broken, (schedule, seed)| {
        launch(&case, broken, &Options { schedule, seed, fuel: FUEL, threads: 1, ..Options::default() })
    };
    let mut found = 0;
    for schedule in Schedule::sweep(512) {
        if let Err(failure) = run(false, schedule) {
            panic!("{}: the twin traps under {schedule:?}: {failure}", case.why);
        }
        let failure = run(true, schedule);
        found += usize::from(matches!(failure, Err(Failure::Trap(trap)) if (case.found)(&trap.fault)));
    }
    assert!(found > 0, "{}: no schedule finds it", case.why);
}

#[test]
fn a_seed_repeats_the_same_failure() {
    let all = cases();
    let case = all.iter().find(|case| case.why == "a wait that leaves the newest group").unwrap();
    for seed in 0..16 {
        let options = Options { schedule: Schedule::Random, seed, ..Options::default() };
        let text = || launch(case, true, &options).unwrap_err().to_string();
        assert_eq!(text(), text());
    }
}

#[test]
fn who_takes_lane_0_for_the_elected_one_is_found() {
    for case in collectives::elected() {
        let run = |broken, (schedule, seed)| {
            launch(&case, broken, &Options { schedule, seed, fuel: FUEL, threads: 1, ..Options::default() })
        };
        let mut found = 0;
        for schedule in Schedule::sweep(50) {
            if let Err(failure) = run(false, schedule) {
                panic!("{}: the twin traps under {schedule:?}: {failure}", case.why);
            }
            let failure = run(true, schedule);
            found += usize::from(matches!(failure, Err(Failure::Trap(trap)) if (case.found)(&trap.fault)));
        }
        assert!(found > 40, "{}: {found} of 54 schedules find it", case.why);
    }
}
