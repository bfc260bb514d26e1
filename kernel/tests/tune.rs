//! Kernels that are measured at their first use, on a stand-in for CUDA's driver: what is measured, what is
//! found again, and what is reported if nothing can be measured.
#![cfg(target_os = "linux")]

#[path = "support/stand_in.rs"]
mod stand_in;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use collective::functions::MultiplyAdd;
use collective::tree::{Accumulator, Compute, ReduceRow, RowArgument, RowVector, Scalar, Sum};
use collective::{Format, MatrixRef};
use cute_rs::atom::Major;
use kernel::disk::records::{Measurement, Problem};
use kernel::disk::{Cache, Records};
use kernel::driver::{
    Chooser, Chosen, Context, DeviceMemory, DeviceSlice, GemmDesc, Loaded, StreamRef, Tuned, Tuning,
};
use kernel::operands::{Contents, Extents, Memory, Visit};
use kernel::{
    AnyGemm, EngineError, Family, GemmProblem, Kernel, KernelSpec, Known, Launch, LaunchError, Machine,
    Predicted, Program, Request, Tree, Types, cheapest, declare, search,
};
use ptx::abi::Grid;
use ptx::{Entry, Function, Special, Target, VerifyError};

use stand_in::{UNSET, noted, other, run_again, with_stand_in};

const PROBLEM: GemmProblem = GemmProblem { m: 256, n: 512, k: 128 };

/// A small budget, so that tests are quick.
const FEW: Tuning = Tuning::Measured { budget: 3 };

fn again() -> bool {
    std::env::var_os("STAND_IN_LOG").is_some()
}

fn context() -> Arc<Context> {
    Context::primary(0).expect("the stand-in")
}

fn request(problem: GemmProblem) -> Request<'static> {
    Request::packed(Format::Bf16, [Major::K; 2], problem)
}

fn tuned(request: &Request<'_>, tuning: Tuning) -> Tuned {
    Loaded::tuned(&context(), request, tuning).expect("the stand-in does all")
}

fn spec(tuned: &Tuned) -> KernelSpec {
    tuned.loaded.kernel().spec().expect("built in")
}

/// The model's second choice, which the stand-in runs fastest.
fn second(request: &Request<'_>) -> kernel::AnyGemm {
    search(request, &Machine::h200(), 3).ranked.swap_remove(1).gemm
}

/// A folder for this test, empty at first.
fn folder(name: &str) -> String {
    let folder = format!("{}/tuned-{name}", env!("CARGO_TARGET_TMPDIR"));
    if !again() {
        let _ = fs::remove_dir_all(&folder);
    }
    folder
}

/// The fastest kernel is chosen. The second use, in this process and in the next, measures nothing.
#[test]
fn what_was_measured_once_is_found() {
    let test = "what_was_measured_once_is_found";
    let (folder, fast) = (folder(test), second(&request(PROBLEM)).entry_name());
    for process in ["first", "second"] {
        let environment =
            [("FALCHION_CACHE", folder.as_str()), ("STAND_IN_FAST", &fast), ("PROCESS", process)];
        with_stand_in(test, &[], &environment, || {
            let request = request(PROBLEM);
            let want = second(&request).spec();
            if std::env::var("PROCESS").as_deref() == Ok("first") {
                let first = tuned(&request, FEW);
                assert!(matches!(first.chosen, Chosen::Measured { kernels: 3, .. }), "{first:?}");
                assert_eq!((Some(spec(&first)), &first.warnings[..]), (want, &[][..]));
                assert!(noted("launched") > 3 * 9, "{}", noted("launched"));
                assert_eq!((noted("compiled"), noted("freed twice")), (3, 0));
            }
            let launched = noted("launched");
            for tuning in [FEW, Tuning::Records] {
                let again = tuned(&request, tuning);
                assert!(matches!(again.chosen, Chosen::Recorded { .. }), "{again:?}");
                assert_eq!((Some(spec(&again)), &again.warnings[..]), (want, &[][..]));
            }
            let model = tuned(&request, Tuning::Model);
            assert!(matches!(model.chosen, Chosen::Predicted { .. }) && Some(spec(&model)) != want);
            assert_eq!(noted("launched"), launched, "nothing more is measured");
        });
        if again() {
            return;
        }
    }
    let cache = Cache::at(&folder);
    let entries = cache.entries().expect("readable");
    assert_eq!(entries.len(), 1, "{entries:?}");
}

/// A chooser takes what was measured, also where it had chosen before; in a capture it takes what was prepared.
#[allow(unsafe_code, reason = "a stream of another library")]
#[test]
fn choosers_take_what_was_measured() {
    let (test, fast) = ("choosers_take_what_was_measured", second(&request(PROBLEM)).entry_name());
    with_stand_in(test, &[], &[("STAND_IN_FAST", &fast)], || {
        let context = context();
        let bytes = (PROBLEM.m * PROBLEM.n * 4) as usize;
        let memory = [0, 1, 2].map(|_| DeviceMemory::new(&context, bytes).expect("memory"));
        let all = memory.each_ref().map(DeviceSlice::from);
        let chooser = Chooser::new(&context).expect("a context");
        let what = GemmDesc::new(Format::Bf16, [Major::K; 2], PROBLEM);
        // SAFETY: the stand-in runs nothing.
        let stream = unsafe { StreamRef::from_raw(core::ptr::without_provenance_mut(0x5000)) };
        let fast = second(&request(PROBLEM)).entry_name();
        let loads = || noted(&format!("function {fast}"));
        chooser.enqueue(stream, &what, all).expect("legal");
        assert_eq!(loads(), 0, "the model's first");
        tuned(&request(PROBLEM), FEW);
        let measured = loads();
        assert!(measured > 0);
        other::capture(|| chooser.enqueue(stream, &what, all).expect("prepared"));
        assert_eq!((loads(), noted("in a capture")), (measured, 0), "nothing is loaded in a capture");
        chooser.enqueue(stream, &what, all).expect("legal");
        assert_eq!(loads(), measured + 1, "what was measured");
        chooser.enqueue(stream, &what, all).expect("legal");
        assert_eq!(loads(), measured + 1);
    });
}

/// Without a folder, a process measures once, and the next process measures again.
#[test]
fn without_a_folder_a_process_remembers() {
    with_stand_in("without_a_folder_a_process_remembers", &[], &[], || {
        let request = request(PROBLEM);
        assert!(matches!(tuned(&request, FEW).chosen, Chosen::Measured { .. }));
        let launched = noted("launched");
        let again = tuned(&request, FEW);
        assert!(matches!(again.chosen, Chosen::Recorded { .. }) && again.warnings.is_empty(), "{again:?}");
        assert_eq!(noted("launched"), launched);
        // Another shape is another problem.
        let other = self::request(GemmProblem { m: 264, ..PROBLEM });
        assert!(matches!(tuned(&other, FEW).chosen, Chosen::Measured { .. }));
    });
}

/// The memory used for measuring is freed, and the caller's D is not accessed: the stand-in would not find
/// it.
#[test]
fn the_callers_memory_is_not_reached() {
    with_stand_in("the_callers_memory_is_not_reached", &[], &[], || {
        // Addresses where no memory is.
        let mut own = request(PROBLEM);
        (own.call.a.address, own.call.b.address, own.call.d.address) = (1 << 20, 2 << 20, 3 << 20);
        (own.call.epilogue.beta, own.call.epilogue.c) = (1.0, Some(MatrixRef::new(4 << 20, 512)));
        let tuned = tuned(&own, FEW);
        assert!(matches!(tuned.chosen, Chosen::Measured { .. }), "{tuned:?}");
        assert_eq!((noted("allocated"), noted("freed twice")), (noted("freed"), 0));
        assert!(noted("allocated") >= 4, "A, B, C and D");
    });
}

/// Batches, groups, scales, integers, other directions, and rows that tensor copies cannot access.
#[test]
fn every_kind_of_call_is_measured() {
    with_stand_in("every_kind_of_call_is_measured", &[], &[], || {
        let rows = [100, 0, 28].map(|m| GemmProblem { m, ..PROBLEM });
        let one = GemmProblem { m: 128, ..PROBLEM };
        let e4m3 = Types::of(Format::E4m3).scaled([1, 128]);
        let any = [PROBLEM, GemmProblem { m: 8, n: 24, k: 40 }];
        for (why, request) in [
            ("a batch", request(PROBLEM).batched(3)),
            ("groups of rows", request(one).ragged(&rows)),
            (
                "groups whose rows nobody knows",
                request(GemmProblem { m: 136, ..one }).ragged(&rows).unknown(),
            ),
            ("groups in buffers", request(one).masked(128, &rows)),
            ("described products", request(PROBLEM).grouped(&any)),
            ("scaled blocks", Request::packed(e4m3, [Major::K; 2], PROBLEM)),
            ("groups of scaled blocks", Request::packed(e4m3, [Major::K; 2], one).ragged(&rows)),
            ("integers", Request::packed(Format::S8, [Major::K; 2], PROBLEM)),
            ("tf32", Request::packed(Format::Tf32, [Major::K; 2], PROBLEM)),
            ("other directions", Request::packed(Format::F16, [Major::Mn; 2], PROBLEM)),
            ("odd rows", request(GemmProblem { m: 33, n: 35, k: 37 })),
        ] {
            let budget = Tuning::Measured { budget: 1 };
            let first = tuned(&request, budget);
            assert!(matches!(first.chosen, Chosen::Measured { kernels: 1, .. }), "{why}: {first:?}");
            let again = tuned(&request, budget);
            assert!(matches!(again.chosen, Chosen::Recorded { .. }), "{why}: {again:?}");
            assert_eq!(again.loaded.kernel().form(), request.call.products.form(), "{why}");
        }
        assert_eq!((noted("freed twice"), noted("stale launch")), (0, 0));
    });
}

/// What every family uses, with GEMM as one: memory from the visited parts of a call, and kernels called as any others.
#[test]
fn a_family_is_measured() {
    with_stand_in("a_family_is_measured", &[], &[], || {
        let rows = [100, 0, 28].map(|m| GemmProblem { m, ..PROBLEM });
        let mut read = request(PROBLEM).batched(3);
        (read.call.epilogue.beta, read.call.epilogue.c) = (0.5, Some(read.call.d));
        let groups = request(GemmProblem { m: 128, ..PROBLEM }).ragged(&rows);
        for (why, request) in
            [("one", request(PROBLEM)), ("a batch with C", read), ("groups of rows", groups)]
        {
            let of_family = || kernel::driver::tuned::<AnyGemm>(&context(), &request, FEW).expect(why);
            let (first, again) = (of_family(), of_family());
            assert!(
                matches!(first.chosen, Chosen::Measured { .. }) && first.warnings.is_empty(),
                "{why}: {first:?}"
            );
            assert!(matches!(again.chosen, Chosen::Recorded { .. }), "{why}: {again:?}");
        }
        assert_eq!((noted("allocated"), noted("freed twice")), (noted("freed"), 0));
    });
}

/// A family from outside: a copy of 32-bit numbers by some warps. [`ADDED`] changes its program, and no spec.
#[derive(Clone, Debug)]
struct Copies(u32);

static ADDED: AtomicU32 = AtomicU32::new(0);

#[derive(Clone, Copy, Default)]
struct Copied {
    count: u32,
    x: u64,
    d: u64,
}

impl Kernel<Copied> for Copies {
    fn program(&self) -> Result<Program, VerifyError> {
        let (name, threads) = (format!("copies_{}", self.0), 32 * self.0);
        let entry = Entry { name, target: Target::Sm90a, threads, shared_bytes: 0, cluster: [1; 3] };
        Program::new(Function::build(entry, |f| {
            declare(self, f);
            let [x, d] = ["x", "d"].map(|name| f.parameter::<u64>(name));
            let (count, at) = (f.parameter::<u32>("count"), f.special(Special::ThreadX));
            f.if_(at.less_than(count), || {
                let value = f.load_global::<u32>(x + at.mul_wide(4), 0) + ADDED.load(Relaxed);
                f.store_global(d + at.mul_wide(4), 0, [value]);
            });
        }))
    }

    fn launch(&self, call: &Copied, _resident: u32) -> Result<Option<Launch>, LaunchError> {
        Launch::new(Grid { ctas: [1; 3] }, |visit| self.visit(&mut call.clone(), visit)).map(Some)
    }

    fn visit(&self, Copied { count, x, d }: &mut Copied, visit: &mut dyn Visit) {
        let extents = Extents::line(32, (*count).into());
        for (parameter, name, address, contents, writes) in [
            ("x", "X", x, Contents::Source(Format::F32), false),
            ("d", "D", d, Contents::Output(Format::F32), true),
        ] {
            visit.memory(Memory { name, address, extents, contents, writes });
            visit.address(parameter, name);
        }
        visit.counted("count", count);
    }
}

impl Family for Copies {
    const NAME: &'static str = "copies";
    type Request<'r> = u32;
    type Problem = u32;
    type Spec = u32;
    type Call = Copied;

    fn of_spec(warps: &u32) -> Result<Self, String> {
        Ok(Self(*warps))
    }

    fn spec(&self) -> Option<u32> {
        Some(self.0)
    }

    fn request(text: &str) -> Result<u32, String> {
        text.parse().map_err(|_| format!("`{text}` was found, a number was needed"))
    }

    fn call(&count: &u32) -> Copied {
        Copied { count, x: 0, d: 0 }
    }

    fn ranked(_: &u32, _: &Machine, most: usize) -> Result<Vec<Predicted<Self>>, String> {
        cheapest([1, 2, 4], most, |of: &Self| of.0.into())
    }

    fn operations(count: &u32) -> f64 {
        (*count).into()
    }
}

/// The time of a program counts for that program, in the process that measured it and in others. `process` says which
/// program it has, and whether it finds a time.
#[test]
fn another_program_of_the_same_spec_is_measured_again() {
    let test = "another_program_of_the_same_spec_is_measured_again";
    let folder = folder(test);
    for process in ["0 measures", "0 finds", "1 measures", "1 finds"] {
        let environment = [("FALCHION_CACHE", folder.as_str()), ("PROCESS", process)];
        with_stand_in(test, &[], &environment, || {
            let choose =
                |count: u32| kernel::driver::tuned::<Copies>(&context(), &count, FEW).expect("kernels");
            let measured = |of: &Tuned<Copies>| matches!(of.chosen, Chosen::Measured { .. });
            let process = std::env::var("PROCESS").expect("set");
            let (added, does) = process.split_once(' ').expect("two words");
            ADDED.store(added.parse().expect("a number"), Relaxed);
            assert_eq!(measured(&choose(64)), does == "measures", "{process}");
            assert!(!measured(&choose(64)), "{process}: found by the same process");
            ADDED.store(7, Relaxed);
            assert_eq!(measured(&choose(32)), does == "measures" && added == "0", "{process}");
            ADDED.store(8, Relaxed);
            if process == "1 finds" {
                assert!(measured(&choose(32)), "changed while the process ran");
            }
        });
        if again() {
            return;
        }
    }
}

trait Unknown {
    fn unknown(self) -> Self;
}

impl Unknown for Request<'_> {
    fn unknown(self) -> Self {
        Self { shapes: &[], ..self }
    }
}

/// A fused epilogue is measured with its arguments. The memory that they point to is not accessed.
#[test]
fn a_fused_epilogue_is_measured_with_its_arguments() {
    with_stand_in("a_fused_epilogue_is_measured_with_its_arguments", &[], &[], || {
        // Column sums are written and the bias is read, at addresses where no memory is.
        type Summed = ReduceRow<Sum, Compute<MultiplyAdd, (Accumulator, Scalar, RowVector<half::bf16>)>>;
        let row = |address| RowArgument { address, len: PROBLEM.n };
        let arguments = (row(5 << 20), ((), ((), 1.0, row(6 << 20))));
        let request = request(PROBLEM).fused("bias-sums".parse().expect("a formula"));
        let given = Tree::<Summed>(arguments);
        let error = Loaded::tuned(&context(), &request, FEW).expect_err("no arguments");
        assert!(error.to_string().contains("has arguments of its own"), "{error}");
        assert_eq!(noted("launched"), 0);
        assert!(matches!(tuned(&request, Tuning::Model).chosen, Chosen::Predicted { .. }));
        let with = |given: Tree<Summed>| Loaded::tuned_with(&context(), &request, &given, FEW);
        let first = with(given).expect("arguments");
        assert!(matches!(first.chosen, Chosen::Measured { kernels: 3, .. }), "{first:?}");
        assert_eq!((noted("allocated"), noted("freed twice")), (noted("freed"), 0));
        // Found again, also by a caller that has no arguments yet.
        assert!(matches!(tuned(&request, FEW).chosen, Chosen::Recorded { .. }));
        // Illegal arguments are refused, not measured.
        let other =
            self::request(GemmProblem { m: 264, ..PROBLEM }).fused("bias-sums".parse().expect("a formula"));
        let null = (row(0), arguments.1);
        let error = Loaded::tuned_with(&context(), &other, &Tree::<Summed>(null), FEW).expect_err("null");
        assert!(error.to_string().contains("sum is a null pointer"), "{error}");
    });
}

/// Without a record the model decides, and the result says so.
#[test]
fn without_records_the_model_decides() {
    with_stand_in("without_records_the_model_decides", &[], &[], || {
        let request = request(PROBLEM);
        let want = kernel::fastest(&request, &Machine::h200()).expect("a kernel").gemm.spec();
        for tuning in [Tuning::Records, Tuning::Model] {
            let tuned = tuned(&request, tuning);
            assert!(matches!(tuned.chosen, Chosen::Predicted { .. }), "{tuned:?}");
            assert_eq!((Some(spec(&tuned)), tuned.warnings.len()), (want, 0));
        }
        assert_eq!((noted("launched"), noted("allocated")), (0, 0));
    });
}

/// A record of a kernel that cannot compute the call is skipped; a record of one that can is used, whoever
/// wrote it.
#[test]
fn records_of_others_are_taken_where_they_are_legal() {
    let test = "records_of_others_are_taken_where_they_are_legal";
    let folder = folder(test);
    with_stand_in(test, &[], &[("FALCHION_CACHE", &folder)], || {
        let request = request(PROBLEM);
        let cache = Cache::of_environment().expect("set").expect("not empty");
        let key = context().key(Records::digest()).expect("legal");
        let mut records = Records::default();
        for (text, microseconds) in
            [("dtype=f16", 1.0), ("tile=64x64x64 form=ragged", 2.0), ("tile=192x160x64", 3.0), ("", 4.0)]
        {
            let measurement = Measurement::now(text.parse().expect("legal"), microseconds);
            records.insert(Problem::of(&request), measurement).expect("legal");
        }
        records.save(&cache, &key).expect("writable");
        for tuning in [Tuning::Records, FEW] {
            let tuned = tuned(&request, tuning);
            assert_eq!(tuned.chosen, Chosen::Recorded { microseconds: 3.0 });
            assert_eq!(spec(&tuned), "tile=192x160x64".parse().expect("legal"));
        }
        assert_eq!(noted("launched"), 0);
    });
}

/// Records that are damaged or cannot be kept are warnings.
#[test]
fn a_folder_that_is_of_no_use_is_a_warning() {
    let test = "a_folder_that_is_of_no_use_is_a_warning";
    let folder = folder(test);
    with_stand_in(test, &[], &[("FALCHION_CACHE", &folder)], || {
        let request = request(PROBLEM);
        let cache = Cache::of_environment().expect("set").expect("not empty");
        let key = context().key(Records::digest()).expect("legal");
        cache.put(kernel::disk::Kind::Records, &key, b"{}\n").expect("writable");
        let first = tuned(&request, FEW);
        assert!(matches!(first.chosen, Chosen::Measured { .. }), "{first:?}");
        assert!(matches!(&first.warnings[..], [one] if one.to_string().contains("line 1")), "{first:?}");
        let again = tuned(&request, Tuning::Records);
        assert!(matches!(again.chosen, Chosen::Recorded { .. }) && again.warnings.is_empty(), "{again:?}");
        let (kept, warnings) = Records::load(&cache, &key);
        assert_eq!((kept.len(), warnings.len()), (1, 0), "what was damaged is written anew");
    });
    if again() {
        return;
    }
    for (environment, words) in [
        ([("FALCHION_CACHE", "/sys/kernel"), ("HOME", "/")], "cannot write /sys/kernel/"),
        ([("FALCHION_CACHE", UNSET), ("XDG_CACHE_HOME", "/sys/kernel")], "/sys/kernel/falchion"),
    ] {
        let environment = [&environment[..], &[("WANT", words)]].concat();
        with_stand_in("read_only_folders_are_warnings", &[], &environment, read_only_folders_are_warnings);
    }
}

/// Run by the test before it, with its environment.
#[test]
fn read_only_folders_are_warnings() {
    let Ok(want) = std::env::var("WANT") else { return };
    let first = tuned(&request(PROBLEM), FEW);
    assert!(matches!(first.chosen, Chosen::Measured { .. }), "{first:?}");
    assert!(matches!(&first.warnings[..], [one] if one.to_string().contains(&want)), "{first:?}");
    let again = tuned(&request(PROBLEM), FEW);
    assert!(matches!(again.chosen, Chosen::Recorded { .. }), "{again:?}");
}

/// Processes that tune one shape each at the same time lose no records.
#[test]
fn processes_at_once_lose_nothing() {
    let test = "processes_at_once_lose_nothing";
    let folder = folder(test);
    if again() {
        let shape: u32 = std::env::var("SHAPE").expect("set").parse().expect("a number");
        let request = request(GemmProblem { m: 64 * shape, ..PROBLEM });
        let tuned = tuned(&request, FEW);
        assert!(matches!(tuned.chosen, Chosen::Measured { .. }) && tuned.warnings.is_empty(), "{tuned:?}");
        return;
    }
    std::thread::scope(|scope| {
        for shape in ["1", "2", "3", "4"] {
            let folder = &folder;
            scope.spawn(move || {
                let environment = [("FALCHION_CACHE", folder.as_str()), ("SHAPE", shape)];
                run_again(test, &format!("{test}-{shape}"), &[], &environment);
            });
        }
    });
    let cache = Cache::at(&folder);
    let entries = cache.entries().expect("readable");
    assert_eq!(entries.len(), 1, "{entries:?}");
    let text = fs::read_to_string(&entries[0].path).expect("readable");
    for shape in 1..=4 {
        assert!(text.contains(&format!("\"single {}x", 64 * shape)), "{text}");
    }
}

/// A call that no kernel can compute is refused with the plan's sentence, before the device is used.
#[test]
fn impossible_calls_are_refused_with_the_rule() {
    with_stand_in("impossible_calls_are_refused_with_the_rule", &[], &[], || {
        let packed = |types: Types, majors| Request::packed(types, majors, PROBLEM);
        let huge = request(GemmProblem { m: 1 << 31, ..PROBLEM });
        for (request, words) in [
            (packed(Types::of(Format::S32), [Major::K; 2]), Format::NO_PRODUCT),
            (packed(Types::of(Format::E4m3), [Major::Mn, Major::K]), "K"),
            (huge, "M is 2147483648, it must be below 2147483648"),
            (packed(Types::of(Format::Bf16).with_b(Format::E4m3), [Major::K; 2]), Format::NO_PRODUCT),
        ] {
            for tuning in [FEW, Tuning::Records, Tuning::Model] {
                let error = Loaded::tuned(&context(), &request, tuning).expect_err("nobody can");
                assert!(matches!(error, EngineError::NoKernel { .. }), "{error}");
                let said = error.to_string();
                assert!(said.starts_with("no kernel for single ") && said.contains(words), "{said}");
            }
        }
        assert_eq!((noted("launched"), noted("compiled")), (0, 0));
    });
}

/// An empty problem takes no time, and gets the model's kernel.
#[test]
fn nothing_is_measured_of_an_empty_product() {
    with_stand_in("nothing_is_measured_of_an_empty_product", &[], &[], || {
        let request = request(GemmProblem { m: 0, ..PROBLEM }).known(Known::Nothing);
        assert!(matches!(tuned(&request, FEW).chosen, Chosen::Predicted { .. }));
        assert_eq!((noted("launched"), noted("allocated")), (0, 0));
    });
}

/// If the card faults while measuring, the error names the kernel.
#[test]
fn a_fault_is_an_error() {
    with_stand_in("a_fault_is_an_error", &[], &[("STAND_IN_FAULTS", "1")], || {
        let error = Loaded::tuned(&context(), &request(PROBLEM), FEW).expect_err("it faults");
        assert!(matches!(error, EngineError::Fault { .. }), "{error}");
    });
}

/// Without a driver there is no context to tune in, and the error says so.
#[test]
fn no_driver_is_an_error() {
    match Context::primary(0) {
        Err(EngineError::NoDriver { .. }) => {}
        Ok(_) | Err(_) => eprintln!("skipped: this machine has a driver"),
    }
}
