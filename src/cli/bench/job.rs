//! A problem to measure: one GEMM, a batch, groups of rows or along K, plain or with a fused epilogue.

use collective::{Form, Formula};
use cute_rs::atom::Major;
use kernel::{Known, Request, Selection, Types};

use super::arena;
use crate::cli::call::{Launched, total};
use crate::cli::engine::machine;
use crate::cli::{Failure, memory};

/// A request, and the data that it borrows.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Plain GEMMs of packed matrices, with the extents of all groups together.
    pub(super) one: Request<'static>,
    pub(super) launched: Launched,
}

impl Job {
    /// GEMMs that this machine has enough memory for. If `reproducible` is set, kernels all sum in the same order.
    pub(super) fn new(
        types: Types,
        majors: [Major; 2],
        (fusion, reproducible): (Option<Formula>, bool),
        launched: Launched,
    ) -> Result<Self, Failure> {
        let Launched { form, one: mut problem, ref groups, batch, .. } = launched;
        if form.shares_rows() {
            problem.m = total("--rows", " rows", groups.iter().map(|group| group.m))?;
        } else if form == Form::KGrouped {
            problem.k = total("--k-groups", "", groups.iter().map(|group| group.k))?;
        }
        arena::several(if form == Form::GroupedMasked { launched.whole()? } else { problem }, batch)?;
        if fusion.is_some() {
            memory::drawn(problem)?;
        }
        let [m, n, k, count] = [problem.m, problem.n, problem.k, groups.len() as u32].map(u128::from);
        if form == Form::KGrouped {
            let of = format!("--k-groups of {count} groups");
            memory::enough(&of, 4 * count * m * n, "--k-groups, --m or --n")?;
        } else {
            let weights = count * n * k * u128::from(types.b.bytes());
            memory::enough(&format!("--rows of {count} groups"), weights, "--rows, --n or --k")?;
        }
        let one = Request { fusion, reproducible, ..Request::packed(types, majors, problem) };
        Ok(Self { one, launched })
    }

    /// Whether it is one GEMM, not several.
    pub(super) fn is_one(&self) -> bool {
        self.launched.form == Form::Single
    }

    /// The request, with the tuning records that come with the library.
    pub(super) fn request(&self) -> Request<'_> {
        self.launched.request(self.one)
    }

    /// The `most` kernels that are ranked first.
    pub(super) fn search(&self, most: usize, known: Known<'_>) -> Selection {
        kernel::search(&self.request().known(known), machine(), most)
    }
}
