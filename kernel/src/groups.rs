//! The GEMMs of a launch as the scheduler's [`Groups`], on the host. [`Outputs`](crate::outputs::Outputs) is
//! the same on the device.

use collective::{Form, Plan};
use scheduler::Tiles;
use scheduler::groups::{Groups, TileWidths};

use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::problem::{EXTENT_LIMIT, GemmProblem};

/// Elements along M and N that a cluster computes at once.
pub(crate) fn tile(plan: &Plan) -> [u32; 2] {
    let ([m, n, _], [across, along]) = (plan.mainloop.tile, plan.mainloop.cluster);
    [m * across, n * along]
}

/// How groups of rows are cut into tiles of nearly equal width, for kernels that do so.
pub(crate) fn cut(plan: &Plan) -> TileWidths {
    TileWidths { width: plan.mainloop.tile[1], step: plan.mainloop.step }
}

impl AnyGemm {
    /// The direction in which the scheduler places the GEMMs one after the other: 0 is M, 1 is N.
    pub(crate) fn axis(&self) -> usize {
        match self.plan.form {
            Form::Single | Form::Batched | Form::KGrouped => usize::from(!self.traits.rows_last),
            Form::GroupedContiguous | Form::GroupedMasked | Form::PointerArray => {
                self.plan.oriented([0, 1])[0]
            }
        }
    }

    /// The GEMMs of a launch on the host. There are `count`; `products` lists their problems in order, or
    /// only the one that all of them have. `workers` returns the number of workers for a number of tiles.
    ///
    /// # Errors
    /// An extent, the number of groups or the number of tiles is larger than a launch can have.
    pub(crate) fn groups(
        &self,
        products: &[GemmProblem],
        count: usize,
        workers: &dyn Fn(Tiles<u32>) -> u32,
    ) -> Result<Groups<'static, u32>, LaunchError> {
        let plan = &self.plan;
        products.iter().try_for_each(GemmProblem::limited)?;
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        let listed = !matches!(plan.form, Form::Single | Form::Batched);
        if listed && count > plan.most_groups() {
            return Err(LaunchError::Groups { groups: count, most: plan.most_groups() });
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
                Tiles::counted([one.m.into(), one.n.into()], one.k, Tiles::MOST).map(Groups::single)
            }
            Form::Batched | Form::KGrouped => {
                let k = each().map(|tiles| tiles.k).max().unwrap_or(0);
                Groups::batched(Tiles { k, ..one }, count, axis)
            }
            Form::GroupedContiguous | Form::GroupedMasked if plan.balanced() => {
                Groups::balanced(&rows, (cut(plan), plan.table.groups), [one.m, one.k], workers)
            }
            // Groups in buffers of one size have as many tiles, of the same widths, as consecutive groups.
            Form::GroupedContiguous | Form::GroupedMasked => {
                Groups::contiguous(&rows, tile(plan)[axis], axis, one)
            }
            Form::PointerArray => {
                let longest = each().map(|tiles| tiles.k).max().unwrap_or(0);
                Groups::described(each().map(|tiles| [tiles.m, tiles.n]), longest)
            }
        }?;
        self.banded(groups.tiles())?;
        Ok(groups)
    }

    /// The tiles of some GEMMs of one launch, as the scheduler numbers them. For a kernel of groups of rows,
    /// the GEMMs must have one N and K; for a batched kernel, one shape; for groups along K, one M and N. `k` counts the K-tiles of the
    /// largest K.
    ///
    /// # Errors
    /// An extent, the number of groups or the number of tiles is larger than a launch can have.
    pub fn tiles_of(&self, products: &[GemmProblem]) -> Result<Tiles<u32>, LaunchError> {
        Ok(self.groups(products, products.len(), &|_| 1)?.tiles())
    }

    /// Columns that each tile of [`tiles_of`](Self::tiles_of) multiplies, in the order of tile numbers. Only
    /// for kernels that cut groups into tiles of nearly equal width; `None` if all tiles have one width, or
    /// if there are more tiles than a launch can have.
    pub fn widths_of(&self, products: &[GemmProblem], workers: u32) -> Option<Vec<u32>> {
        let groups = self.groups(products, products.len(), &|_| workers).ok()?;
        let columns = |number| {
            let place = groups.place([number, 0], &tile(&self.plan));
            place.ends[1].map_or(0, |end| (end - place.first[1]).next_multiple_of(self.plan.mainloop.step))
        };
        self.plan.balanced().then(|| (0..groups.tiles().m).map(columns).collect())
    }
}
