//! What must not compile is under test here: `tests/layouts` and `tests/kernels` hold programs that the compiler refuses, and
//! the words in which it does.

use std::env;
use std::process::Command;

/// The compiler's flags for cases, as trybuild has them.
const FLAGS: [&str; 6] = ["--cfg", "trybuild", "--verbose", "-A", "dead_code", "--diagnostic-width=140"];

/// Runs a test in a process of its own in which cargo has the flags of cases for all that it builds. trybuild has one flag less for
/// what the cases need, which is then built a second time with the first of them.
///
/// # Panics
/// The test fails.
pub fn built_once(test: &str, run: impl FnOnce()) {
    let (name, flags) = ("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\x1f"));
    if env::var(name).is_ok_and(|given| given == flags) {
        return run();
    }
    let program = env::current_exe().expect("a running program has a path");
    let ran = Command::new(program).args([test, "--exact", "--nocapture"]).env(name, flags).status();
    assert!(ran.expect("it can be started").success(), "{test} failed: its cases are above");
}
