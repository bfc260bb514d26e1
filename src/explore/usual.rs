//! The GEMMs that a page shows where nobody says them, and the whole page of a kernel.

use collective::Form;
use kernel::{AnyGemm, GemmProblem, Machine, Request, UnknownConfig};
use serde_json::Value;

use super::run::{small, traced};
use super::schedule::{Launched, Schedule, ScheduleError};
use crate::verify::family::FamilyError;

/// The extent of GEMMs of which nobody says more.
const EXTENT: u32 = 4096;

/// Largest number of GEMMs of a batch in a picture.
pub const MOST_BATCHED: u32 = 65_536;

/// The GEMMs of a launch.
#[derive(Clone, Debug)]
pub struct Usual {
    /// The extents of one; M is 0 for groups of rows.
    pub one: GemmProblem,
    /// The GEMMs one by one; none for one GEMM, or a batch.
    pub groups: Vec<GemmProblem>,
    /// Rows of the buffer of each group; 0 without buffers of one size.
    pub max_rows: u32,
}

impl Usual {
    /// GEMMs that a kernel computes, of the extents M, N and K, and groups of rows, that were asked for.
    pub fn of(entry: &AnyGemm, [m, n, k]: [Option<u32>; 3], rows: Vec<u32>) -> Self {
        let (plan, form) = (entry.plan(), entry.form());
        // A swap-AB kernel is made for few rows: use those of one cluster tile.
        let few = plan.mainloop.tile[1] * plan.mainloop.cluster[1];
        let m = match form {
            Form::GroupedContiguous | Form::GroupedMasked => 0,
            Form::Single | Form::Batched | Form::KGrouped | Form::PointerArray => {
                m.unwrap_or(if plan.swapped() { few } else { EXTENT })
            }
        };
        let [n, k] = [n, k].map(|extent| extent.unwrap_or(EXTENT));
        let of = |[m, n, k]: [u32; 3]| GemmProblem { m, n, k };
        let groups = match form {
            Form::Single | Form::Batched => Vec::new(),
            Form::GroupedContiguous | Form::GroupedMasked => {
                let rows = if rows.is_empty() { vec![300, 0, 17, 129] } else { rows };
                rows.into_iter().map(|m| of([m, n, k])).collect()
            }
            Form::KGrouped => {
                // Half of K, nothing, a quarter, and the rest.
                let steps = |part: u32| (k / part).next_multiple_of(plan.mainloop.tile[2]).min(k);
                let [half, quarter] = [steps(2), steps(4).min(k - steps(2))];
                [half, 0, quarter, k - half - quarter].map(|k| of([m, n, k])).to_vec()
            }
            Form::PointerArray => {
                // Four GEMMs of different shapes, with the same K.
                let shapes = [[m, n, k], [m / 2, n, k], [m / 4, n / 2, k], [m / 8, n / 8, k]];
                shapes.map(|[m, n, k]| of([m.max(1), n.max(1), k])).to_vec()
            }
        };
        let most = groups.iter().map(|group| group.m).max().unwrap_or(0);
        let max_rows = if form == Form::GroupedMasked { most } else { 0 };
        Self { one: of([m, n, k]), groups, max_rows }
    }
}

/// The request for the GEMMs of a launch: `batch` of one shape, or groups.
pub fn request<'a>(
    form: Form,
    (batch, max_rows): (u32, u32),
    groups: &'a [GemmProblem],
    one: Request<'a>,
) -> Request<'a> {
    match form {
        Form::Single => one,
        Form::Batched => one.batched(batch),
        Form::GroupedContiguous => one.ragged(groups),
        Form::GroupedMasked => one.masked(max_rows, groups),
        Form::KGrouped => one.k_grouped(groups),
        Form::PointerArray => one.grouped(groups),
    }
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(clippy::large_enum_variant, reason = "there is one per page, and it is shown at once")]
pub enum PageError {
    /// The kernel does not take the GEMMs, or they cannot be drawn.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// The kernel's run was not recorded.
    #[error(transparent)]
    Run(#[from] FamilyError),
    /// A layout cannot be drawn.
    #[error(transparent)]
    Layout(#[from] cute_rs::LayoutError),
    /// The kernel has no twin without its epilogue.
    #[error(transparent)]
    Kernel(#[from] UnknownConfig),
    /// A batch of more GEMMs than are drawn.
    #[error("batch is {batch}, at most {MOST_BATCHED} are drawn")]
    Batch {
        /// Number of GEMMs.
        batch: u32,
    },
}

/// The page of a kernel for `batch` GEMMs of the extents that were asked for, on a card: an HTML document.
///
/// # Errors
/// The kernel does not take such GEMMs, or this machine cannot run the small one that is recorded.
pub fn page(
    title: &str,
    entry: &AnyGemm,
    asked: [Option<u32>; 3],
    batch: u32,
    machine: Machine,
) -> Result<String, PageError> {
    if batch > MOST_BATCHED {
        return Err(PageError::Batch { batch });
    }
    let plain = super::plain(entry)?;
    let Usual { one, groups, max_rows } = Usual::of(entry, asked, Vec::new());
    let alone = groups.is_empty();
    let form = entry.form();
    let products = if alone { vec![one; batch.max(1) as usize] } else { groups };
    let GemmProblem { m, n, k } = one;
    let described = match (alone, products.len()) {
        (true, 1) => format!("{m} x {n} x {k}"),
        (true, count) => format!("{count} of {m} x {n} x {k}"),
        (false, count) => format!("{count} groups"),
    };
    let of = |one| request(form, (batch.max(1), max_rows), &products, one);
    let launched = Launched { products: &products, described, request: &of };
    let schedule = Schedule::new(plain.clone(), launched, machine)?;
    let run = if alone { traced(&plain, small(&plain, one))? } else { Value::Null };
    let shown = super::kernel(entry, &schedule, &products, run)?;
    Ok(super::document(title, ("kernel", shown)))
}
