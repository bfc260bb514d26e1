//! The page of a kernel: one HTML file that needs no network. `falchion explore` writes it, and Python shows it.
//!
//! It has the kernel's numbers, shared memory with its swizzles and banks, the operands of `wgmma`, the order of the
//! output's tiles, the cluster, and the timeline of a small run in the emulator.
//!
//! ```
//! use kernel::Machine;
//!
//! let kernel = kernel::find("64x64-direct-bf16-kk")?;
//! let page = falchion::explore::page("A kernel", &kernel, [Some(256); 3], 1, Machine::h200())?;
//! assert!(page.starts_with("<!doctype html>"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod cluster;
mod document;
pub mod memory;
pub mod multiply;
pub mod order;
pub mod overview;
pub mod run;
mod schedule;
mod traits;
mod usual;

use cute_rs::LayoutError;
use kernel::{AnyGemm, GemmProblem, UnknownConfig};
use serde_json::{Value, json};

pub use document::document;
pub use schedule::{Launched, Schedule, ScheduleError, does};
pub use traits::{direction, tile, traits};
pub use usual::{MOST_BATCHED, PageError, Usual, page, request};

use crate::verify::FusedGemm;

/// The kernel that is drawn and run: the same one without its fused epilogue, if it has one.
///
/// # Errors
/// There is none.
pub fn plain(entry: &AnyGemm) -> Result<AnyGemm, UnknownConfig> {
    match FusedGemm::of(entry.clone()) {
        None => Ok(entry.clone()),
        Some(fused) => kernel::find(&fused.plain_name()),
    }
}

/// Everything that a kernel's page shows. The schedule is that of its [`plain`] kernel, which ran; `run` is null if it did not.
///
/// # Errors
/// A tile has a layout that cannot be drawn.
pub fn kernel(
    entry: &AnyGemm,
    schedule: &Schedule,
    products: &[GemmProblem],
    run: Value,
) -> Result<Value, LayoutError> {
    // Why there is no run, or which kernel ran instead.
    let note = if run.is_null() {
        Some(
            "The timeline of this kernel is not recorded: it computes several GEMMs in one launch, and only launches of one GEMM \
             are recorded. The other sections are complete."
                .to_owned(),
        )
    } else {
        let plain = schedule.entry.name();
        let other = plain != entry.name();
        other.then(|| format!("The recorded kernel is {plain}: the same kernel without its fused epilogue."))
    };
    Ok(json!({
        "overview": overview::of(entry),
        "memory": memory::of(entry)?,
        "multiply": multiply::of(entry)?,
        "order": order::of(schedule, products),
        "cluster": cluster::of(entry),
        "run": run,
        "run_note": note,
    }))
}
