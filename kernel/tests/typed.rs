//! Kernels that are called with only a problem and its matrices, on a stand-in for CUDA's driver.
#![cfg(target_os = "linux")]

#[path = "support/counting.rs"]
mod counting;
#[path = "support/stand_in.rs"]
mod stand_in;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use collective::{Cooperative, Format, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
use cute_rs::atom::Major;
use half::bf16;
use kernel::driver::{
    Activation, Chooser, Context, DeviceMemory, DeviceSlice, GemmDesc, Loaded, Stream, StreamRef,
};
use kernel::{
    Composed, Engine, EngineError, Gemm, GemmConfig, GemmProblem, Gpu, LinearArguments, Machine, MatrixRef,
    Request, Types, fastest,
};
use scheduler::{AlongM, EveryTile, OneTile, Ordered, StreamK};
use typenum::{U1, U2, U64};

use counting::allocations;
use stand_in::{noted, other, with_stand_in};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Mainloop = TmaWgmma<Kk, Tile<U64, U64, U64>, Cooperative<U1>>;
type Whole = Composed<Mainloop, LinearCombination<bf16>, OneTile<AlongM>>;
type Divided = Composed<Mainloop, LinearCombination<bf16>, StreamK<AlongM, Ordered, EveryTile<U2>>>;

const PROBLEM: GemmProblem = GemmProblem { m: 100, n: 64, k: 512 };
const BYTES: [usize; 3] = [100 * 512 * 2, 64 * 512 * 2, 100 * 64 * 2];

/// Memory for A, B and D.
fn memory(gpu: &mut Gpu) -> [DeviceMemory; 3] {
    BYTES.map(|bytes| {
        let buffer = gpu.allocate(bytes).expect("memory");
        gpu.memory(buffer).expect("allocated")
    })
}

#[test]
fn kernels_of_types_are_launched() {
    with_stand_in("kernels_of_types_are_launched", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let memory = memory(&mut gpu);
        let all = memory.each_ref().map(DeviceSlice::from);
        let stream = Stream::new(gpu.context()).expect("a stream");
        let gemm = Gemm::<Whole>::load(&stream).expect("compiles");
        gemm.multiply_slices(&stream, PROBLEM, all).expect("legal");
        assert_eq!(noted("launched"), 1);
        // The matrix of a wrong slice is named, and nothing runs.
        let [a, b, d] = all;
        let larger = GemmProblem { k: 520, ..PROBLEM };
        for (why, problem, slices, words) in [
            ("A is short", larger, all, "A is 104000 B"),
            ("A and D are exchanged", PROBLEM, [d, b, a], "A is 102400 B"),
            ("K is odd", GemmProblem { k: 511, ..PROBLEM }, all, "16"),
        ] {
            let error = gemm.multiply_slices(&stream, problem, slices).expect_err(why).to_string();
            assert!(error.contains(words), "{why}: {error}");
        }
        for (m, n) in [(0, 64), (100, 0)] {
            gemm.multiply_slices(&stream, GemmProblem { m, n, k: 512 }, all).expect("nothing to do");
        }
        assert_eq!(noted("launched"), 1);
        // C is D, C is lent separately, and C is not lent.
        let c = |address| LinearArguments { alpha: 1.0, beta: 1.0, c: Some(MatrixRef::new(address, 64)) };
        let buffer = gpu.allocate(BYTES[2]).expect("memory");
        let own = gpu.memory(buffer).expect("allocated");
        let of_c = DeviceSlice::from(&own);
        let packed = Gemm::<Whole>::packed(PROBLEM, all.map(|slice| slice.address()));
        gemm.launch(&stream, &packed.with(c(d.address())), &all).expect("legal");
        gemm.launch(&stream, &packed.with(c(of_c.address())), &[a, b, d, of_c]).expect("legal");
        for (foreign, lent) in [(1 << 40, &[a, b, d, of_c][..]), (of_c.address(), &all)] {
            let error = gemm.launch(&stream, &packed.with(c(foreign)), lent).expect_err("foreign");
            assert!(error.to_string().contains("C is 12800 B"), "{error}");
        }
        assert_eq!(noted("launched"), 3);
        // From several threads.
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| gemm.multiply_slices(&stream, PROBLEM, all).expect("legal"));
            }
        });
        assert_eq!(noted("launched"), 7);
    });
}

/// Kernels that exchange partial sums have a workspace per stream, which they keep.
#[allow(unsafe_code, reason = "a stream that nobody made")]
#[test]
fn workspaces_are_kept_by_stream() {
    with_stand_in("workspaces_are_kept_by_stream", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let memory = memory(&mut gpu);
        let all = memory.each_ref().map(DeviceSlice::from);
        let streams = [(); 2].map(|()| Stream::new(gpu.context()).expect("a stream"));
        let gemm = Gemm::<Divided>::load(gpu.context()).expect("compiles");
        let small = GemmProblem { m: 64, ..PROBLEM };
        let mut counts = Vec::new();
        for (stream, problem) in [(0, small), (0, small), (1, small), (0, PROBLEM), (0, small), (1, small)] {
            let before = noted("allocated");
            gemm.multiply_slices(&streams[stream], problem, all).expect("legal");
            counts.push(noted("allocated") - before);
        }
        assert_eq!((counts, noted("freed")), (vec![1, 0, 1, 1, 0, 0], 1), "the smaller one goes");
        // The per-thread stream has the same handle in every thread.
        let before = noted("allocated");
        let launch = || {
            // SAFETY: the driver has such a stream for each thread.
            let own = unsafe { StreamRef::from_raw(core::ptr::without_provenance_mut(2)) };
            gemm.multiply_slices(own, small, all).expect("legal");
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| [(); 3].map(|()| launch()));
            }
        });
        assert_eq!(noted("allocated") - before, 2, "one for each thread");
    });
}

/// A way to launch a kernel of a type.
type Way<'a, C> = dyn Fn(&Loaded<Gemm<C>>, &Stream) -> Result<(), EngineError> + 'a;

/// The second of two equal calls allocates nothing, in a workspace that is kept too, whichever way it is launched.
#[allow(unsafe_code, reason = "launches at plain addresses")]
#[test]
fn equal_calls_of_types_are_launched_without_allocations() {
    fn counted<C: GemmConfig<Epilogue = LinearCombination<bf16>>>(gpu: &mut Gpu, name: &str) {
        let memory = memory(gpu);
        let all = memory.each_ref().map(DeviceSlice::from);
        let call = Gemm::<C>::packed(PROBLEM, all.map(|slice| slice.address()));
        let ways: [(&str, &Way<'_, C>); 3] = [
            ("slices", &|gemm, stream| gemm.multiply_slices(stream, PROBLEM, all)),
            ("a call", &|gemm, stream| gemm.launch(stream, &call, &all)),
            // SAFETY: the stand-in runs nothing.
            ("addresses", &|gemm, stream| unsafe { gemm.launch_raw(stream.raw(), &call) }),
        ];
        for (way, launch) in ways {
            let stream = Stream::new(gpu.context()).expect("a stream");
            let gemm = Gemm::<C>::load(&stream).expect("compiles");
            let [first, second] = [(); 2].map(|()| allocations(|| launch(&gemm, &stream).expect("legal")));
            assert!(first > 0, "{name}, {way}");
            assert_eq!(second, 0, "{name}, {way}");
        }
    }
    with_stand_in("equal_calls_of_types_are_launched_without_allocations", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        counted::<Whole>(&mut gpu, "whole tiles");
        counted::<Divided>(&mut gpu, "divided tiles");
        assert_eq!(noted("launched"), 12);
    });
}

/// Under capture, a shape is enqueued that was prepared or enqueued on the stream before. For any other the
/// error says what to do, and the capture goes on.
#[allow(unsafe_code, reason = "a stream of another library")]
#[test]
fn prepared_shapes_are_captured() {
    with_stand_in("prepared_shapes_are_captured", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let memory = memory(&mut gpu);
        let all = memory.each_ref().map(DeviceSlice::from);
        // SAFETY: the stand-in runs nothing.
        let stream =
            |handle: usize| unsafe { StreamRef::from_raw(core::ptr::without_provenance_mut(handle)) };
        let [first, second] = [0x5000, 0x6000].map(stream);
        let chooser = Chooser::new(gpu.context()).expect("a context");
        let divided = Gemm::<Divided>::load(gpu.context()).expect("compiles");
        let [known, prepared, cold] =
            [PROBLEM, GemmProblem { m: 64, ..PROBLEM }, GemmProblem { m: 32, ..PROBLEM }]
                .map(|problem| GemmDesc::new(Format::Bf16, [Major::K; 2], problem));
        chooser.enqueue(first, &known, all).expect("legal");
        chooser.prepare(first, &prepared, all).expect("legal");
        let packed = Gemm::<Divided>::packed(PROBLEM, all.map(|slice| slice.address()));
        divided.prepare(first, &packed).expect("legal");
        assert_eq!(noted("launched"), 1, "nothing is enqueued that is only prepared");
        let loaded = noted("loaded");
        let graph = other::capture(|| {
            chooser.enqueue(first, &known, all).expect("known");
            chooser.enqueue(first, &prepared, all).expect("prepared");
            divided.multiply_slices(first, PROBLEM, all).expect("prepared");
            for (why, error, words) in [
                (
                    "a kernel",
                    chooser.enqueue(first, &cold, all),
                    "a kernel for 32 x 64 x 512 bf16 is not there yet",
                ),
                ("a workspace", divided.multiply_slices(second, PROBLEM, all), "the workspace of"),
            ] {
                let error = error.expect_err(why).to_string();
                assert!(error.contains(words) && error.contains("call `prepare`"), "{why}: {error}");
            }
        });
        assert_eq!((noted("launched"), noted("loaded")), (1, loaded), "all others are captured");
        assert_eq!(
            noted("in a capture"),
            0,
            "nothing was asked of the driver that waits, allocates or loads"
        );
        // The graph keeps the kernels and the workspace. The larger workspace, which it does not use, goes.
        let freed = noted("freed");
        divided.multiply_slices(first, GemmProblem { m: 1024, ..PROBLEM }, all).expect_err("A is short");
        drop((chooser, divided));
        assert_eq!((other::replay(graph), noted("stale replay"), noted("freed") - freed), (0, 0, 1));
    });
}

#[test]
fn kernels_are_chosen_and_kept() {
    with_stand_in("kernels_are_chosen_and_kept", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let memory = memory(&mut gpu);
        let all = memory.each_ref().map(DeviceSlice::from);
        let stream = Stream::new(gpu.context()).expect("a stream");
        let chooser = Chooser::new(&stream).expect("a context");
        let few = gpu.allocate(100).expect("memory");
        let few = gpu.memory(few).expect("allocated");
        let short = DeviceSlice::from(&few);
        let rows = (Format::Bf16, [Major::K, Major::Mn]);
        for _ in 0..3 {
            chooser.multiply(&stream, rows, PROBLEM, all).expect("legal");
        }
        assert_eq!((noted("loaded"), noted("launched")), (1, 3));
        chooser.multiply(&stream, (Format::Bf16, [Major::K; 2]), PROBLEM, all).expect("legal");
        assert_eq!((noted("loaded"), noted("launched")), (2, 4), "other directions are another kernel");
        chooser.multiply(&stream, rows, GemmProblem { m: 0, ..PROBLEM }, all).expect("nothing to do");
        assert_eq!(noted("launched"), 4);
        let error = chooser.multiply(&stream, (Format::S8, [Major::Mn; 2]), PROBLEM, all).expect_err("none");
        assert!(matches!(&error, EngineError::NoKernel { .. }), "{error}");
        assert!(error.to_string().contains("100 x 64 x 512 s8"), "{error}");
        // A batch, groups of rows and a bias need another kernel each.
        let [a, b, d] = all;
        let weights = GemmDesc::new(Format::Bf16, [Major::K; 2], PROBLEM);
        let half = GemmDesc::new(Format::Bf16, [Major::K; 2], GemmProblem { m: 50, n: 32, k: 512 });
        let before = noted("launched");
        for what in [half.batched(2), half.ragged(2, a), weights.biased(Activation::Gelu, b), half.batched(0)]
        {
            chooser.enqueue(&stream, &what, all).expect("legal");
        }
        assert_eq!(noted("launched") - before, 3);
        // Block scales: 4 along K for each row of A, and for the only 128 columns of B.
        let scaled = GemmDesc::new(Types::of(Format::E4m3).scaled([1, 128]), [Major::K; 2], PROBLEM);
        chooser.enqueue(&stream, &scaled.scaled([a, b]), all).expect("legal");
        assert_eq!(noted("launched") - before, 4);
        for (why, what, words) in [
            ("a batch that is too large", half.batched(3), "A is"),
            ("no groups", half.ragged(0, a), "50 x 32 x 512 bf16 in 0 groups of rows"),
            ("no scales", scaled, "e4m3-1x128-128x128: its types have scales, and none were given"),
            ("scales of others", half.scaled([a, b]), "its types have none"),
            ("scales of a batch", scaled.scaled([a, b]).batched(2), "one product was needed"),
            ("scales that are short", scaled.scaled([short, b]), "scales"),
            ("a bias that is short", weights.biased(Activation::Identity, short), "bias"),
        ] {
            let error = chooser.enqueue(&stream, &what, all).expect_err(why).to_string();
            assert!(error.contains(words), "{why}: {error}");
        }
        let error = chooser.multiply(&stream, rows, PROBLEM, [a, d, b]).expect_err("short").to_string();
        assert!(error.contains("B is 65536 B"), "{error}");
    });
}

/// While a kernel compiles, threads launch what is loaded, choose and compile other kernels, and wait only for a
/// kernel that they need themselves.
#[test]
fn a_launch_waits_for_no_other_kernel() {
    let test = "a_launch_waits_for_no_other_kernel";
    let hold = format!("{}/{test}", env!("CARGO_TARGET_TMPDIR"));
    with_stand_in(test, &[], &[("STAND_IN_HOLD", &hold)], || {
        let hold = std::env::var("STAND_IN_HOLD").expect("set");
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let memory = memory(&mut gpu);
        let all = memory.each_ref().map(DeviceSlice::from);
        let chooser = Chooser::new(gpu.context()).expect("a context");
        let [warm, cold] = [[Major::K, Major::Mn], [Major::K; 2]].map(|majors| (Format::Bf16, majors));
        let launch = |of, problem| {
            let stream = Stream::new(gpu.context()).expect("a stream");
            chooser.multiply(&stream, of, problem, all).expect("legal");
        };
        // The same kernel, as far as it is chosen by the shape, for two shapes.
        let other = GemmProblem { m: 96, ..PROBLEM };
        launch(warm, PROBLEM);
        std::fs::write(&hold, "").expect("a folder of the tests");
        let limit = Duration::from_secs(30);
        thread::scope(|scope| {
            let (ended, ends) = mpsc::channel();
            let run = |name, of, problem| {
                let ended = ended.clone();
                let launch = &launch;
                scope.spawn(move || {
                    launch(of, problem);
                    let _ = ended.send(name);
                });
            };
            run("cold", cold, PROBLEM);
            let begun = Instant::now();
            while noted("held") == 0 && begun.elapsed() < limit {
                thread::sleep(Duration::from_millis(1));
            }
            run("also cold", cold, PROBLEM);
            run("warm", warm, PROBLEM);
            let first = ends.recv_timeout(limit);
            run("a new shape of a loaded kernel", warm, other);
            let second = ends.recv_timeout(limit);
            // Nothing may wait for ever if an assertion fails.
            std::fs::remove_file(&hold).expect("it is there");
            assert_eq!(first, Ok("warm"), "a loaded kernel waits for one that compiles");
            assert_eq!(second, Ok("a new shape of a loaded kernel"));
        });
        assert_eq!((noted("held"), noted("loaded"), noted("launched")), (1, 2, 5), "each is compiled once");
    });
}

/// `(SMs, clock and memory clock in kHz, bits of the memory bus, bytes of L2)`, as drivers report them.
const CARDS: [(&str, &str); 4] = [
    ("H200", "132 1980000 3201000 6016 62914560"),
    ("H100 SXM, 3.35 TB/s", "132 1980000 2619000 5120 52428800"),
    ("H100 PCIe, 2.0 TB/s", "114 1755000 1593000 5120 52428800"),
    ("H20, 4.0 TB/s", "78 1980000 2619000 6144 62914560"),
];

/// A chooser takes the kernel that the model of its own card ranks first, and kernels differ between cards.
#[test]
fn a_chooser_asks_its_card() {
    let test = "a_chooser_asks_its_card";
    if stand_in::is_stand_in() {
        let (context, problem) = (Context::primary(0).expect("the stand-in"), PROBLEM);
        let machine = context.machine().expect("traits");
        let request = |problem| Request::packed(Format::Bf16, [Major::K; 2], problem);
        let chosen = |problem, machine: &Machine| {
            fastest(&request(problem), machine).expect("a kernel").gemm.entry_name()
        };
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let memory = memory(&mut gpu);
        let chooser = Chooser::new(&context).expect("a context");
        let stream = Stream::new(&context).expect("a stream");
        let all = memory.each_ref().map(DeviceSlice::from);
        chooser.multiply(&stream, (Format::Bf16, [Major::K; 2]), problem, all).expect("legal");
        assert_eq!(noted(&format!("function {}", chosen(problem, &machine))), 1, "the card's first");
        let differ = (1..=32)
            .map(|tiles| GemmProblem { m: 256 * tiles, n: 2048, k: 2048 })
            .filter(|&problem| chosen(problem, &machine) != chosen(problem, &Machine::h200()))
            .count();
        println!("{machine:?}: another choice at {differ} of 32 shapes");
        assert_eq!(machine == Machine::h200(), std::env::var("CARD").as_deref() == Ok("H200"));
        assert_eq!(differ == 0, machine == Machine::h200());
        return;
    }
    for (name, traits) in CARDS {
        stand_in::run_again(test, test, &[], &[("STAND_IN_CARD", traits), ("CARD", name)]);
    }
}
