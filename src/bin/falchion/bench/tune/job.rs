//! A problem to tune: one GEMM, a batch, or groups of rows, plain or with a fused epilogue.

use collective::{Form, Formula};
use cute_rs::atom::Major;
use kernel::{GemmProblem, Known, Request, Selection, Types};

use crate::bench::arena;
use crate::call::{Launched, total};
use crate::engine::machine;
use crate::{Failure, memory};

/// A request, and the data that it borrows.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// Plain GEMMs of packed matrices.
    one: Request<'static>,
    launched: Launched,
}

impl Job {
    /// GEMMs that this machine has enough memory for. If `reproducible` is set, kernels all sum in the same order.
    pub(super) fn new(
        types: Types,
        majors: [Major; 2],
        (fusion, reproducible): (Option<Formula>, bool),
        launched: Launched,
    ) -> Result<Self, Failure> {
        let Launched { form, one: problem, ref groups, batch, .. } = launched;
        let problem = if groups.is_empty() {
            problem
        } else {
            GemmProblem { m: total("--rows", " rows", groups.iter().map(|group| group.m))?, ..problem }
        };
        arena::several(if form == Form::GroupedMasked { launched.whole()? } else { problem }, batch)?;
        if fusion.is_some() {
            memory::drawn(problem)?;
        }
        let GemmProblem { n, k, .. } = problem;
        let weights = groups.len() as u128 * u128::from(n) * u128::from(k) * u128::from(types.b.bytes());
        memory::enough(&format!("--rows of {} groups", groups.len()), weights, "--rows, --n or --k")?;
        let one = Request::packed(types, majors, problem).known(Known::Nothing);
        Ok(Self { one: Request { fusion, reproducible, ..one }, launched })
    }

    /// Whether it is one GEMM, not several.
    pub(super) fn is_one(&self) -> bool {
        self.launched.form == Form::Single
    }

    /// The request, without tuning records.
    pub(super) fn request(&self) -> Request<'_> {
        self.launched.request(self.one)
    }

    /// The `most` kernels that are ranked first.
    pub(super) fn search(&self, most: usize, known: Known<'_>) -> Selection {
        kernel::search(&self.request().known(known), machine(), most)
    }
}
