//! Tests with a stand-in for CUDA's driver. Each test runs again in its own process, whose loader finds the
//! stand-in.

use std::path::PathBuf;
use std::process::Command;

/// The variable that names the stand-in's log. It is set if a test runs with the stand-in.
const LOG: &str = "STAND_IN_LOG";

/// In place of a variable's value: the variable is not set.
#[allow(dead_code, reason = "not every program of tests has a use for it")]
pub(crate) const UNSET: &str = "\u{1}";

/// Whether this process runs a test with the stand-in.
#[allow(dead_code, reason = "not every program of tests has a use for it")]
pub(crate) fn is_stand_in() -> bool {
    std::env::var_os(LOG).is_some()
}

/// Compiles the stand-in, and runs a test again with it, in a new process. In that process, runs the test's
/// body.
#[allow(dead_code, reason = "not every program of tests has a use for it")]
pub(crate) fn with_stand_in(test: &str, cfg: &[&str], environment: &[(&str, &str)], body: fn()) {
    if is_stand_in() {
        return body();
    }
    // A list of folders has colons between them.
    run_again(test, &test.replace("::", "-"), cfg, environment);
}

/// Runs a test in a new process, with a stand-in in a folder named `name`. Processes that run at the same
/// time need one folder each.
pub(crate) fn run_again(test: &str, name: &str, cfg: &[&str], environment: &[(&str, &str)]) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("stand-in-{name}"));
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let source = folder.join("cuda.rs");
    std::fs::write(&source, include_str!("../../src/driver/stand_in/cuda.rs")).expect("a writable folder");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut compile = Command::new(rustc);
    compile.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "--cap-lints=allow"]);
    compile.args(cfg).arg(source).arg("-o").arg(folder.join("libcuda.so.1"));
    assert!(compile.status().expect("rustc runs").success());
    let log = folder.join("log");
    let _ = std::fs::remove_file(&log);
    let own = std::env::current_exe().expect("a program");
    let mut again = Command::new(own);
    again.args([test, "--exact", "--nocapture", "--include-ignored"]);
    again.env("LD_LIBRARY_PATH", &folder).env(LOG, &log);
    // The user's own folder of compiled kernels and assembler are not used.
    again.env("FALCHION_CACHE", "").env_remove("FALCHION_PTXAS");
    for (name, value) in environment {
        match *value {
            UNSET => again.env_remove(name),
            value => again.env(name, value),
        };
    }
    let output = again.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let ran = output.status.success() && text.contains("1 passed");
    assert!(ran, "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// How often the stand-in logged a line.
#[allow(dead_code, reason = "not every program of tests has a use for it")]
pub(crate) fn noted(line: &str) -> usize {
    let log = std::env::var(LOG).expect("set");
    std::fs::read_to_string(log).unwrap_or_default().lines().filter(|&noted| noted == line).count()
}

/// The stand-in, for what a test does in place of another library.
#[allow(dead_code, reason = "not every program of tests has a use for it")]
#[allow(unsafe_code, reason = "calls the stand-in")]
pub(crate) mod other {
    use std::ffi::c_int;

    fn function<F: Copy>(name: &str) -> F {
        // SAFETY: the process runs with the stand-in, whose functions have the types given below.
        unsafe {
            // It stays loaded: what it keeps for each thread must not go before the thread.
            let cuda = libloading::Library::new("libcuda.so.1").expect("the stand-in");
            *Box::leak(Box::new(cuda)).get::<F>(name.as_bytes()).expect("it has the function")
        }
    }

    /// The context that is current in this thread.
    pub(crate) fn current() -> usize {
        let mut context = 0;
        // SAFETY: one number is written.
        unsafe { function::<unsafe extern "C" fn(*mut usize) -> c_int>("cuCtxGetCurrent")(&mut context) };
        context
    }

    /// Makes a context current in this thread.
    pub(crate) fn set_current(context: usize) {
        // SAFETY: the stand-in takes any number.
        unsafe { function::<unsafe extern "C" fn(usize) -> c_int>("cuCtxSetCurrent")(context) };
    }

    /// Captures what is enqueued.
    pub(crate) fn capture(enqueue: impl FnOnce()) -> usize {
        let (before, mut graph) = (current(), 0);
        set_current(0x10);
        // SAFETY: the stand-in takes any stream; one number is written.
        unsafe {
            let begin = function::<unsafe extern "C" fn(usize, c_int) -> c_int>("cuStreamBeginCapture_v2");
            assert_eq!(begin(0, 0), 0);
            enqueue();
            let end = function::<unsafe extern "C" fn(usize, *mut usize) -> c_int>("cuStreamEndCapture");
            assert_eq!(end(0, &mut graph), 0);
        }
        set_current(before);
        graph
    }

    /// Destroys a captured graph.
    #[allow(dead_code, reason = "not every program of tests has a use for it")]
    pub(crate) fn destroy(graph: usize) {
        // SAFETY: the stand-in takes any number.
        assert_eq!(unsafe { function::<unsafe extern "C" fn(usize) -> c_int>("cuGraphDestroy")(graph) }, 0);
    }

    /// Replays a captured graph. Returns the driver's status.
    pub(crate) fn replay(graph: usize) -> c_int {
        let before = current();
        set_current(0x10);
        // SAFETY: the stand-in takes any stream.
        let status =
            unsafe { function::<unsafe extern "C" fn(usize, usize) -> c_int>("cuGraphLaunch")(graph, 0) };
        set_current(before);
        status
    }
}
