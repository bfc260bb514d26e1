//! The interface of a GEMM kernel: which parameters its program has, and their values in a launch.

use collective::operands::Visit;
use collective::{MainloopSite, Output, StagedOperands};
use ptx::Builder;
use scheduler::Tiles;

use crate::arguments::{UnknownArguments, Visited};
use crate::call::Call;
use crate::gemm::AnyGemm;
use crate::operands::{Declares, Layouts};
use crate::outputs::GroupParameters;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;

/// The name of the parameter that has the workspace's address.
pub(crate) const WORKSPACE_PARAMETER: &str = "workspace";

/// What a launch fills in that the call does not say itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filled {
    /// The kernel's A and B, and what belongs to them.
    pub(crate) operands: StagedOperands,
    /// The extents of the kernel's output, and the number of k-tiles.
    pub(crate) extents: [u32; 3],
    pub(crate) d: Output,
    /// All tiles, and the workers that compute them.
    pub(crate) tiles: Tiles<u32>,
    pub(crate) workers: u32,
}

/// The kernel whose parameters are stated where the parts of a call are visited, and what a launch of the call fills in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stated<'a> {
    pub(crate) gemm: &'a AnyGemm,
    pub(crate) filled: Option<&'a Filled>,
}

impl Stated<'_> {
    /// The parameters of A and B, and of what belongs to them.
    pub(crate) fn operands(&self, visit: &mut dyn Visit) {
        let Self { gemm, filled } = self;
        let operands = filled.map(|filled| filled.operands);
        gemm.mainloop.state(&MainloopSite { plan: &gemm.plan, operands, maps: gemm.counter_bytes() }, visit);
    }

    /// The parameters that say which GEMMs a launch computes.
    pub(crate) fn products(&self, products: GroupedProblem, visit: &mut dyn Visit) {
        GroupParameters::state(
            self.gemm.plan.form,
            products,
            self.filled.map(|filled| filled.extents),
            visit,
        );
    }

    /// The scheduler's parameters, and what it gets from the call.
    pub(crate) fn schedule<E: Visited>(
        &self,
        given: &mut E,
        (problem, products): (GemmProblem, &GroupedProblem),
        visit: &mut dyn Visit,
    ) {
        let Self { gemm, filled } = self;
        if visit.sees_parameters() {
            let (tiles, workers) =
                filled.map_or((Tiles { m: 1, n: 1, k: 1 }, 1), |filled| (filled.tiles, filled.workers));
            for (name, number) in gemm.scheduler.parameters(tiles, workers) {
                visit.number(name, filled.map(|_| number));
            }
        }
        if !gemm.scheduler.is_given() {
            return;
        }
        let tiles =
            filled.map_or_else(|| gemm.all_tiles(problem, products).ok(), |filled| Some(filled.tiles));
        // A call with too many tiles is refused before anything is launched.
        if let Some(tiles) = tiles {
            given.visit_scheduler(gemm, tiles, visit);
        }
    }
}

impl AnyGemm {
    /// Declares the parameters of the kernel's program: those that its interface states of any call.
    pub(crate) fn declare(&self, f: &Builder) {
        let mut call = Call::of(GemmProblem { m: 0, n: 0, k: 0 }).with(UnknownArguments);
        let stated = Some(Stated { gemm: self, filled: None });
        call.state(&Layouts::of(self), stated, &mut Declares(f));
    }
}
