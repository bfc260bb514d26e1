//! The products of a launch as the scheduler's [`Groups`], on the host: what [`Outputs`](crate::outputs::Outputs) is on the device.

use collective::{Form, Plan};
use scheduler::Tiles;
use scheduler::groups::{Balanced, Batched, Cut, Described, Groups, Ragged};

use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::problem::{EXTENT_LIMIT, GemmProblem};

/// Elements along M and N of what a cluster computes at a time.
pub(crate) fn tile(plan: &Plan) -> [u32; 2] {
    let ([m, n, _], [across, along]) = (plan.mainloop.tile, plan.mainloop.cluster);
    [m * across, n * along]
}

/// How groups of rows are cut into tiles, where they are.
pub(crate) fn cut(plan: &Plan) -> Cut {
    Cut { width: plan.mainloop.tile[1], step: plan.mainloop.step }
}

impl AnyGemm {
    /// The direction in which products lie one after the other in the scheduler's eyes: 0 for M, 1 for N.
    pub(crate) fn axis(&self) -> usize {
        let rows = match self.plan.form {
            Form::Single | Form::Batched => self.facts.rows_last,
            Form::Ragged | Form::Masked | Form::Grouped => !self.plan.swapped(),
        };
        usize::from(!rows)
    }

    /// The products of a launch on the host: `count` of them, one after the other as `products` says, or all like the first one.
    /// `workers` says how many workers compute so many tiles.
    ///
    /// # Errors
    /// Extents, groups or tiles that are more than a launch can have.
    pub(crate) fn groups(
        &self,
        products: &[GemmProblem],
        count: usize,
        workers: &dyn Fn(Tiles<u32>) -> u32,
    ) -> Result<Groups<'static, u32>, LaunchError> {
        let plan = &self.plan;
        products.iter().try_for_each(GemmProblem::limited)?;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if matches!(plan.form, Form::Ragged | Form::Masked | Form::Grouped) && count > Form::MOST_GROUPS {
            return Err(LaunchError::Groups { groups: count, most: Form::MOST_GROUPS });
        }
        let extent: u64 = products.iter().map(|problem| u64::from(problem.m)).sum();
        if plan.form.shares_rows() && extent >= EXTENT_LIMIT.into() {
            return Err(LaunchError::Extent { name: "M", extent, limit: EXTENT_LIMIT });
        }
        let one = products.first().map_or(Tiles { m: 0, n: 0, k: 0 }, |&first| self.tiles(first));
        let each = || products.iter().map(|&problem| self.tiles(problem));
        let rows: Vec<u32> = products.iter().map(|problem| problem.m).collect();
        let axis = self.axis();
        let groups = match plan.form {
            Form::Single => {
                Tiles::counted([one.m.into(), one.n.into()], one.k, Tiles::MOST).map(Groups::Single)
            }
            Form::Batched => Batched::counted(one, count, axis).map(Groups::Batched),
            Form::Ragged | Form::Masked if plan.balanced() => {
                Balanced::listed(&rows, cut(plan), [one.m, one.k], workers).map(Groups::Balanced)
            }
            // In buffers of one size groups have as many tiles, of the same widths, as if they lay behind each other.
            Form::Ragged | Form::Masked => {
                Ragged::listed(&rows, tile(plan)[axis], axis, one).map(Groups::Ragged)
            }
            Form::Grouped => {
                let longest = each().map(|tiles| tiles.k).max().unwrap_or(0);
                Described::listed(each().map(|tiles| [tiles.m, tiles.n]), longest).map(Groups::Described)
            }
        }?;
        self.banded(groups.tiles())?;
        Ok(groups)
    }

    /// The tiles of some products of one launch, as the scheduler numbers them: for a kernel of groups of rows, products of one
    /// N and K; for one of a batch, of one shape. K-tiles are those of the longest sums.
    ///
    /// # Errors
    /// Extents, groups or tiles that are more than a launch can have.
    pub fn tiles_of(&self, products: &[GemmProblem]) -> Result<Tiles<u32>, LaunchError> {
        Ok(self.groups(products, products.len(), &|_| 1)?.tiles())
    }

    /// The columns that each tile of [`tiles_of`](Self::tiles_of) multiplies, by its number, where groups are cut into tiles of
    /// nearly equal width; `None` where all tiles are alike, or are more than a launch can have.
    pub fn widths_of(&self, products: &[GemmProblem], workers: u32) -> Option<Vec<u32>> {
        let groups = self.groups(products, products.len(), &|_| workers).ok()?;
        let columns = |number| {
            let place = groups.place([number, 0], &tile(&self.plan));
            place.ends[1].map_or(0, |end| (end - place.first[1]).next_multiple_of(self.plan.mainloop.step))
        };
        self.plan.balanced().then(|| (0..groups.tiles().m).map(columns).collect())
    }
}
