//! The GPU engine on a stand-in for CUDA's driver: what keeps memory alive, what is refused, and which kernel
//! a fault is attributed to. Each test runs again in its own process, whose loader finds the stand-in.
#![cfg(target_os = "linux")]

#[path = "support/later.rs"]
mod later;
#[path = "driver/lent.rs"]
mod lent;
#[path = "support/stand_in.rs"]
mod stand_in;

use std::sync::Arc;

use collective::functions::MultiplyAdd;
use collective::tree::{Accumulator, Compute, Named, ReduceRow, RowArgument, RowVector, Scalar, Sum};
use collective::{
    Cooperative, DirectStore, Format, KMajor, LinearCombination, MatrixRef, Operands, Record, Tile, TmaWgmma,
    TreeEpilogue,
};
use kernel::driver::{Capture, Context, DeviceRecords, DeviceSlice, Enqueue, Loaded, Stream, StreamRef};
use kernel::{
    AnyGemm, Call, Composed, Engine, EngineError, GemmProblem, Gpu, Kernel, Program, Transpose,
    Transposition, Tree,
};
use scheduler::{AlongM, OneTile};
use typenum::{U1, U64};

use later::{First, Later};
use stand_in::{noted, other, with_stand_in};

fn call(a: u64, b: u64, d: u64) -> Call {
    Call::of(GemmProblem { m: 64, n: 64, k: 64 }).a(a, 64).b(b, 64).d(d, 64)
}

/// A kernel, and its program.
fn small() -> (kernel::AnyGemm, Program) {
    let gemm = kernel::find("64x64-direct-bf16-kk").expect("a name");
    let program = gemm.program().expect("legal");
    (gemm, program)
}

const BYTES: usize = 64 * 64 * 2;

#[test]
fn graphs_keep_their_kernels_and_buffers() {
    with_stand_in("graphs_keep_their_kernels_and_buffers", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let stream = Arc::clone(gpu.stream());
        let buffer = gpu.allocate(2 * BYTES).expect("memory");
        let (gemm, program) = small();
        let call = call(buffer.address, buffer.address, buffer.address + BYTES as u64);
        let launch = gemm.launch(&call, 132).expect("legal").expect("not empty");
        let prepared = gpu.prepare(&program, launch.grid, &launch.arguments).expect("legal");
        let graph = gpu.capture(&[&prepared, &prepared]).expect("captured");
        assert_eq!(noted("launched"), 0);
        gpu.free(buffer).expect("known");
        assert!(gpu.free(buffer).is_err(), "it is no longer the caller's");
        drop((prepared, gpu));
        assert_eq!((noted("unloaded"), noted("freed")), (0, 0), "the graph needs them");
        graph.enqueue(&stream).expect("replayed");
        assert_eq!((noted("replay"), noted("stale replay")), (1, 0));
        drop(graph);
        assert_eq!((noted("unloaded"), noted("freed"), noted("graph destroyed")), (1, 1, 1));
        drop(stream);
        assert_eq!(noted("released"), 1, "nothing is left of the context");
    });
}

/// Enqueues a call with a loaded kernel.
struct Enqueued<'a> {
    loaded: &'a Loaded,
    call: Call,
    lent: &'a [DeviceSlice<'a>],
}

impl Enqueue for Enqueued<'_> {
    fn name(&self) -> &str {
        "a call"
    }

    fn enqueue(&self, stream: &Stream) -> Result<(), EngineError> {
        self.loaded.launch(stream, &self.call, self.lent)
    }
}

/// A loaded kernel is captured, and the graph keeps the kernel and the lent memory.
#[allow(unsafe_code, reason = "a stream of another library")]
#[test]
fn loaded_kernels_are_captured() {
    with_stand_in("loaded_kernels_are_captured", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let (stream, buffer) = (Arc::clone(gpu.stream()), gpu.allocate(2 * BYTES).expect("memory"));
        let (gemm, program) = small();
        let loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let call = call(buffer.address, buffer.address, buffer.address + BYTES as u64);
        let shorter = Call { problem: GemmProblem { m: 32, ..call.problem }, ..call };
        loaded.prepare(&stream, &call).expect("legal");
        let graph = {
            let memory = gpu.memory(buffer).expect("allocated");
            let lent = [DeviceSlice::from(&memory)];
            // A known shape, and a new one.
            let enqueued = [call, shorter].map(|call| Enqueued { loaded: &loaded, call, lent: &lent });
            gpu.capture(&enqueued.each_ref().map(|launch| launch as &dyn Enqueue)).expect("captured")
        };
        gpu.free(buffer).expect("known");
        drop((loaded, gpu));
        assert_eq!((noted("launched"), noted("unloaded"), noted("freed")), (0, 0, 0), "the graph needs them");
        graph.enqueue(&stream).expect("replayed");
        assert_eq!((noted("replay"), noted("stale replay")), (1, 0));
        drop(graph);
        assert_eq!((noted("unloaded"), noted("freed")), (1, 1));

        // Nobody says when another library's graph is replayed for the last time.
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let buffer = gpu.allocate(2 * BYTES).expect("memory");
        let memory = gpu.memory(buffer).expect("allocated");
        let (gemm, program) = small();
        let loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let call = self::call(buffer.address, buffer.address, buffer.address + BYTES as u64);
        let graph = other::capture(|| {
            for _ in 0..2 {
                // SAFETY: the stand-in runs nothing.
                let other = unsafe { StreamRef::from_raw(core::ptr::without_provenance_mut(0x5000)) };
                loaded.launch(other, &call, &[DeviceSlice::from(&memory)]).expect("captured");
            }
        });
        drop((loaded, memory, stream));
        gpu.free(buffer).expect("known");
        drop(gpu);
        assert_eq!((other::replay(graph), noted("stale replay")), (0, 0));
        assert_eq!((noted("unloaded"), noted("freed")), (1, 1), "they are kept");
        assert_eq!(
            noted("in a capture"),
            0,
            "nothing was asked of the driver that waits, allocates or loads"
        );
    });
}

/// Memory of a capture is zero, belongs to its graph, and is used again when the graph is gone.
#[allow(unsafe_code, reason = "a stream of another library")]
#[test]
fn graphs_keep_memory_of_their_capture() {
    with_stand_in("graphs_keep_memory_of_their_capture", &[], &[], || {
        let context = Context::primary(0).expect("the stand-in");
        // SAFETY: the stand-in takes any stream.
        let stream = unsafe { StreamRef::from_raw(core::ptr::without_provenance_mut(0x5000)) };
        assert!(stream.capture(&context).expect("asked").is_none());
        let captured = || {
            let mut got = (0, 0);
            let graph = other::capture(|| {
                let capture = stream.capture(&context).expect("asked").expect("it is");
                let address = capture.zeroed(&context, 512).expect("memory");
                let memory = core::ptr::with_exposed_provenance_mut::<u8>(address as usize);
                // SAFETY: the stand-in's memory is that of the host, and nobody else has it.
                let bytes = unsafe { std::slice::from_raw_parts_mut(memory, 512) };
                assert!(bytes.iter().all(|&byte| byte == 0));
                bytes.fill(7);
                got = (capture.number(), address);
            });
            (graph, got)
        };
        let (first, of_first) = captured();
        let (second, of_second) = captured();
        assert!(of_first.0 != of_second.0 && of_first.1 != of_second.1, "{of_first:?} {of_second:?}");
        assert_eq!(noted("allocated"), 2);
        [first, second].into_iter().for_each(other::destroy);
        let (third, of_third) = captured();
        assert_eq!(noted("allocated"), 2, "it is used again");
        assert!([of_first.1, of_second.1].contains(&of_third.1));
        other::destroy(third);
        assert_eq!((noted("in a capture"), noted("freed")), (0, 0));
        // What a call before has made is there for a capture, which then asks the driver for nothing.
        Capture::spare(&context, 512).expect("memory");
        Capture::spare(&context, 300).expect("there is some");
        let before = ["allocated", "copied", "waited"].map(noted);
        assert_eq!(before[0], 3);
        let (fourth, of_fourth) = captured();
        assert_eq!(["allocated", "copied", "waited"].map(noted), before);
        assert!(![of_first.1, of_second.1].contains(&of_fourth.1));
        // The next capture has none, and makes it itself.
        let (fifth, _) = captured();
        assert!(noted("allocated") + noted("copied") > before[0] + before[1]);
        [fourth, fifth].into_iter().for_each(other::destroy);
    });
}

/// A kernel that is no GEMM is loaded, kept and checked as one is.
#[test]
fn kernels_of_every_kind_are_loaded() {
    with_stand_in("kernels_of_every_kind_are_loaded", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let stream = Arc::clone(gpu.stream());
        let buffers = [0; 3].map(|_| gpu.allocate(BYTES).expect("memory"));
        let memory = buffers.map(|buffer| gpu.memory(buffer).expect("allocated"));
        let [from, to, other] = memory.each_ref().map(DeviceSlice::from);
        let transpose = Transpose::of(Format::Bf16).expect("16 bits");
        let program = transpose.program().expect("legal");
        let loaded = Loaded::load_in(gpu.context(), transpose, program).expect("compiles");
        let [a, d, e] = buffers.map(|buffer| MatrixRef::new(buffer.address, 16));
        let what = Transposition { rows: 16, columns: 16, count: 1, a, d };
        loaded.launch(&stream, &what, &[from, to]).expect("lent");
        loaded.launch(&stream, &Transposition { d: e, ..what }, &[from, other]).expect("lent");
        assert_eq!(noted("launched"), 2);
        let error = loaded.launch(&stream, &what, &[from, other]).expect_err("D is not lent").to_string();
        assert!(error.contains("D is 512 B"), "{error}");
        let short = Transposition { a: MatrixRef::new(a.address, 15), ..what };
        let error = loaded.launch(&stream, &short, &[from, to]).expect_err("a short row").to_string();
        assert!(error.contains("leading dimension"), "{error}");
        assert_eq!(noted("launched"), 2);
    });
}

/// Whatever is done, and whether it succeeds: the calling thread's context stays what it was.
#[test]
fn the_callers_context_stays_current() {
    with_stand_in("the_callers_context_stays_current", &[], &[], || {
        // None, another one, and the device's own.
        for before in [0, 0x7770, 0x10] {
            other::set_current(before);
            let stays = |what: &str| assert_eq!(other::current(), before, "{what}");
            let mut gpu = Gpu::new(0).expect("the stand-in");
            stays("a GPU");
            let buffer = gpu.upload(&[1; 2 * BYTES]).expect("memory");
            stays("an upload");
            gpu.upload(&[0xee; 4]).expect_err("cannot be copied");
            stays("an upload that fails");
            gpu.read(buffer).expect("copied");
            stays("a copy");
            let stream = Stream::new(gpu.context()).expect("a stream");
            stays("a stream");
            let (gemm, program) = small();
            let loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
            stays("a kernel");
            let memory = gpu.memory(buffer).expect("allocated");
            let lent = [DeviceSlice::from(&memory)];
            let call = call(buffer.address, buffer.address, buffer.address + BYTES as u64);
            for _ in 0..2 {
                loaded.launch(&stream, &call, &lent).expect("legal");
                stays("a launch");
            }
            let wide = Call { d: kernel::MatrixRef { ld: 63, ..call.d }, ..call };
            loaded.launch(&stream, &wide, &lent).expect_err("rows overlap");
            stays("a launch that is refused");
            stream.wait().expect("no fault");
            stays("a wait");
            let (gemm, program) = small();
            let launch = gemm.launch(&call, 132).expect("legal").expect("not empty");
            let prepared = gpu.prepare(&program, launch.grid, &launch.arguments).expect("legal");
            gpu.time_many(&[&prepared], 2).expect("runs");
            stays("timing");
            let graph = gpu.capture(&[&prepared]).expect("captured");
            stays("a capture");
            graph.enqueue(&stream).expect("replayed");
            stays("a replay");
            drop((graph, prepared, stream, loaded));
            stays("drops");
            gpu.free(buffer).expect("known");
            drop((memory, gpu));
            stays("the last drops");
        }
    });
}

/// Where the kernel's context is current, a launch changes nothing about that.
#[test]
fn a_launch_in_the_current_context_sets_no_context() {
    with_stand_in("a_launch_in_the_current_context_sets_no_context", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let buffer = gpu.allocate(2 * BYTES).expect("memory");
        let memory = gpu.memory(buffer).expect("allocated");
        let (gemm, program) = small();
        let loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let (stream, call) =
            (Arc::clone(gpu.stream()), call(buffer.address, buffer.address, buffer.address + BYTES as u64));
        for (current, sets) in [(0x10, 0), (0x7770, 2)] {
            other::set_current(current);
            let before = noted("context set");
            loaded.launch(&stream, &call, &[DeviceSlice::from(&memory)]).expect("legal");
            assert_eq!(noted("context set") - before, sets, "{current:#x} is current");
        }
    });
}

#[test]
fn memory_of_others_is_refused() {
    with_stand_in("memory_of_others_is_refused", &[], &[], || {
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let [a, b, d] = [(); 3].map(|()| gpu.allocate(BYTES).expect("memory"));
        let error = gpu.upload(&[0xee; 4]).expect_err("cannot be copied").to_string();
        assert!(error.contains("cuMemcpyHtoD"), "{error}");
        assert_eq!((noted("allocated"), noted("freed")), (4, 1), "it leaks nothing");
        let (gemm, program) = small();
        let host = vec![0u16; 64 * 64 + 128];
        let foreign = (host.as_ptr() as u64).next_multiple_of(256);
        // The engine accepts only its own buffers, as a whole.
        for (why, a, d) in [
            ("D of the host", a.address, foreign),
            ("A of the host", foreign, d.address),
            ("A's end beyond its buffer", a.address + 256, d.address),
        ] {
            let launch = gemm.launch(&call(a, b.address, d), 132).expect("legal").expect("not empty");
            let error = gpu.launch(&program, launch.grid, &launch.arguments).expect_err(why);
            assert!(matches!(error, EngineError::Foreign { .. }), "{why}: {error}");
        }
        // A loaded kernel accepts only lent memory.
        let loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let stream = Stream::new(gpu.context()).expect("a stream");
        let lent = [a, b, d].map(|buffer| gpu.memory(buffer).expect("allocated"));
        let all = lent.each_ref().map(DeviceSlice::from);
        let good = call(a.address, b.address, d.address);
        for (why, call, lent, name) in [
            ("memory of the host", call(a.address, b.address, foreign), &all[..], "D"),
            ("D is not lent", good, &all[..2], "D"),
            ("a row too many", call(a.address, b.address + 256, d.address), &all[..], "B"),
        ] {
            let error = loaded.launch(&stream, &call, lent).expect_err(why);
            assert!(
                matches!(&error, EngineError::NotLent { name: found, .. } if *found == name),
                "{why}: {error}"
            );
        }
        assert_eq!(noted("launched"), 0);
        loaded.launch(&stream, &good, &all).expect("all is lent");
        assert_eq!(noted("launched"), 1);
        // Lent memory stays allocated, whatever its owner does.
        gpu.free(d).expect("known");
        loaded.launch(&stream, &good, &all).expect("all is lent");
        assert_eq!(noted("freed"), 1);
    });
}

#[test]
fn a_fault_is_that_of_the_kernel_that_was_launched() {
    with_stand_in(
        "a_fault_is_that_of_the_kernel_that_was_launched",
        &[],
        &[("STAND_IN_FAULTS", "1")],
        || {
            let mut gpu = Gpu::new(0).expect("the stand-in");
            let buffer = gpu.allocate(2 * BYTES).expect("memory");
            let memory = [gpu.memory(buffer).expect("allocated")];
            let lent = memory.each_ref().map(DeviceSlice::from);
            let (gemm, program) = small();
            let guilty = program.name().to_owned();
            let stream = Arc::clone(gpu.stream());
            let loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
            let other = kernel::find("128x128-direct-bf16-kk").expect("a name");
            let program = other.program().expect("legal");
            let innocent = Loaded::load_in(gpu.context(), other, program).expect("compiles");
            let call = call(buffer.address, buffer.address, buffer.address + BYTES as u64);
            loaded.launch(&stream, &call, &lent).expect("the fault comes later");
            // Every later call, in any order, names the kernel and reports that the context is lost.
            let errors = [
                innocent.launch(&stream, &call, &lent).expect_err("lost"),
                loaded.launch(&stream, &call, &lent).expect_err("lost"),
                gpu.wait().expect_err("lost"),
                gpu.allocate(1).expect_err("lost"),
            ];
            for error in errors {
                let EngineError::Fault { kernel, code, .. } = &error else { panic!("{error}") };
                assert_eq!((kernel, code.as_str()), (&guilty, "CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
            }
            assert!(Context::primary(0).is_ok_and(|context| Gpu::from_context(context).is_err()));
        },
    );
}

#[test]
fn a_driver_that_lacks_a_function_is_an_error() {
    with_stand_in("a_driver_that_lacks_a_function_is_an_error", &["--cfg=lacks_graphs"], &[], || {
        let error = Gpu::new(0).expect_err("a function is missing");
        assert!(matches!(error, EngineError::MissingFunction { function: "cuGraphLaunch" }), "{error}");
    });
}

#[test]
fn an_old_driver_is_an_error() {
    with_stand_in("an_old_driver_is_an_error", &[], &[("STAND_IN_VERSION", "11080")], || {
        let error = Gpu::new(0).expect_err("too old");
        assert!(matches!(error, EngineError::OldDriver { version: (11, 8), needed: (12, 0) }), "{error}");
    });
}

/// A driver of CUDA 12.0 loads what needs no more, and nothing else.
#[test]
fn a_driver_loads_the_programs_that_it_knows() {
    with_stand_in("a_driver_loads_the_programs_that_it_knows", &[], &[("STAND_IN_VERSION", "12000")], || {
        let gpu = Gpu::new(0).expect("new enough");
        let program = |spec: &str| kernel::find(spec).expect("legal").program().expect("legal");
        for (spec, needed) in [
            ("tile=128x128x64", None),
            ("dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=128x64x128", None),
            ("sparse=a tile=128x32x128", Some((12, 2))),
            ("form=grouped tile=128x128x64", Some((12, 3))),
            ("dtype=s8 dtype-b=s8 tile=128x128x128", None),
            ("dtype=s8 dtype-b=u8 tile=128x128x128", Some((12, 4))),
        ] {
            match (Loaded::load_in(gpu.context(), (), program(spec)), needed) {
                (Ok(_), None) => {}
                (Err(EngineError::OldDriver { version: (12, 0), needed }), Some(wanted)) => {
                    assert_eq!(needed, wanted, "{spec}");
                }
                (other, _) => panic!("{spec}: {other:?}"),
            }
        }
    });
}

#[test]
fn kernels_are_compiled_once_and_not_all_are_kept() {
    with_stand_in("kernels_are_compiled_once_and_not_all_are_kept", &[], &[], || {
        use ptx::{Builder, Entry, Function, Target};
        let program = |i: u32| {
            let (name, cluster) = (format!("probe_{i}"), [1; 3]);
            let entry = Entry { name, target: Target::Sm90a, threads: 32, shared_bytes: 0, cluster };
            Program::new(Function::build(entry, |_: &Builder| {})).expect("legal")
        };
        let mut gpu = Gpu::new(0).expect("the stand-in");
        let first = program(0);
        for _ in 0..3 {
            gpu.kernel(&first).expect("compiles");
            gpu.kernel(&first.clone()).expect("compiles");
            gpu.kernel(&program(0)).expect("compiles");
        }
        assert_eq!(noted("loaded"), 1, "equal programs are one kernel");
        for i in 1..1000 {
            gpu.kernel(&program(i)).expect("compiles");
            gpu.kernel(&first).expect("compiles");
        }
        assert_eq!(noted("loaded"), 1000, "what is used stays");
        assert_eq!(noted("unloaded"), 1000 - 512, "of the others, as many go as come");
    });
}
