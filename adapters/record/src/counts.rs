//! Counts launches by kernel: which are recorded, and what is said at the end if none was.
#![allow(unsafe_code, reason = "has itself called at the program's end")]

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, Once, PoisonError};

use crate::settings::{Settings, settings};
use crate::{driver, guard, say};

/// What has become of a kernel's launches.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    launches: u64,
    recorded: u64,
}

fn counts() -> MutexGuard<'static, HashMap<Arc<str>, Count>> {
    static COUNTS: LazyLock<Mutex<HashMap<Arc<str>, Count>>> = LazyLock::new(Mutex::default);
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a launch of a kernel, and says whether it is to be recorded.
pub(crate) fn is_next(name: &Arc<str>, stream: usize, settings: &Settings) -> bool {
    let mut counts = counts();
    let count = counts.entry(Arc::clone(name)).or_default();
    count.launches += 1;
    let is_chosen = name.contains(&settings.kernel);
    if !is_chosen || count.launches <= settings.skip || count.recorded >= settings.launches {
        return false;
    }
    if driver::is_captured(stream) {
        let words = "is captured into a graph, where nothing is recorded: the next launch is waited for";
        say(&format!("`{name}` {words}"));
        return false;
    }
    count.recorded += 1;
    true
}

/// Has the program's end say what was seen, if nothing was recorded.
pub(crate) fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: it is a function without arguments, which does not unwind.
        unsafe { libc::atexit(end) };
    });
}

/// Most names that are listed.
const LISTED: usize = 12;

extern "C" fn end() {
    guard(|| {
        let (counts, Some(settings)) = (counts(), settings()) else { return };
        if counts.values().any(|count| count.recorded > 0) {
            return;
        }
        let mut names: Vec<&str> = counts.keys().map(|name| &**name).collect();
        names.sort_unstable();
        let (all, more) = (names.len(), names.len().saturating_sub(LISTED));
        names.truncate(LISTED);
        let text = match all {
            0 => "the driver was looked up, but no launch was seen".to_owned(),
            _ => format!(
                "no launch was recorded: none of {all} kernels has `{}` in its name and enough launches: {}{}",
                settings.kernel,
                names.join(", "),
                if more > 0 { format!(" and {more} more") } else { String::new() }
            ),
        };
        say(&text);
    });
}
