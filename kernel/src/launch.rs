//! From a call to a launch: numbers the tiles, checks the arguments and fills in the kernel's parameters.

use collective::tree::Shape;
use collective::{BlockScales, GroupScales, Matrix, MatrixRef, Record, StagedOperands, check_metadata};
use ptx::VerifyError;
use scheduler::Tiles;
use scheduler::groups::Groups;

use crate::arguments::Arguments;
use crate::buffer::Buffer;
use crate::call::Call;
use crate::check::Checked;
use crate::error::{EngineError, LaunchError};
use crate::filled::Launch;
use crate::gemm::AnyGemm;
use crate::interface::{Filled, Stated};
use crate::kernel::{Kernel, check_lent};
use crate::lent::Lent;
use crate::operands::{Layouts, Overlaps, Visit};
use crate::overlap::check_apart;
use crate::problem::{EXTENT_LIMIT, GemmProblem};
use crate::products::GroupedProblem;
use crate::program::Program;

impl AnyGemm {
    /// The tiles of all GEMMs of a launch as the scheduler numbers them. Where only the device knows their
    /// number, the most that there can be.
    pub(crate) fn all_tiles(
        &self,
        problem: GemmProblem,
        products: &GroupedProblem,
    ) -> Result<Tiles<u32>, LaunchError> {
        let (Tiles { m, n, k }, count) = (self.tiles(problem), u128::from(products.count()));
        let mut all = [m, n].map(u128::from);
        let along = &mut all[self.axis()];
        match products {
            GroupedProblem::One => {}
            GroupedProblem::Batched { .. } | GroupedProblem::KGrouped { .. } => *along *= count,
            // A group may begin or end inside a tile that it shares with a neighbour.
            GroupedProblem::GroupedContiguous { .. } | GroupedProblem::GroupedMasked { .. } => {
                *along += count;
            }
            // Only the device knows the number of tiles.
            GroupedProblem::PointerArray { .. } => all = [Tiles::MOST.into(), 1],
        }
        let most =
            if self.plan.balanced() { Groups::most_balanced(self.plan.table.groups) } else { Tiles::MOST };
        self.banded(Tiles::counted(all, k, most)?)
    }

    /// The tiles, if the scheduler can number them in its raster order.
    pub(crate) fn banded(&self, tiles: Tiles<u32>) -> Result<Tiles<u32>, LaunchError> {
        let (band, along) = (self.traits.band, if self.traits.rows_last { tiles.n } else { tiles.m });
        match band.checked_mul(along) {
            Some(_) => Ok(tiles),
            None => Err(LaunchError::Band { band, tiles: along }),
        }
    }

    /// Bytes of workspace that a call needs ([`Call::workspace`]) on a GPU that holds `resident` of the kernel's
    /// clusters at once. Zero for schedulers that assign only whole tiles, and assign them
    /// before the launch. Also zero if a launch cannot number the call's tiles. For [`GroupedProblem::PointerArray`],
    /// kernels that load by tensor copies also keep their tensor maps in it.
    pub fn workspace<E>(&self, call: &Call<E>, resident: u32) -> u64 {
        let products = call.products.for_form(self.plan.form).unwrap_or(call.products);
        if products.form().described() {
            let ctas = u64::from(resident.max(1)) * u64::from(self.plan.cluster_size());
            return self.counter_bytes() + ctas * u64::from(self.plan.map_bytes());
        }
        if !self.works_in_memory() {
            return 0;
        }
        self.all_tiles(call.problem, &products).map_or(0, |tiles| {
            // The device may count more tiles than one GEMM of this shape has.
            let counted = products != GroupedProblem::One && self.traits.tiles_on_device;
            let workers = if counted { resident.max(1) } else { self.scheduler.workers(tiles, resident) };
            self.workspace_bytes(tiles, workers)
        })
    }

    /// Checks a call and returns its grid and arguments, for a GPU that holds `resident` of the kernel's clusters
    /// at once ([`Engine::resident_clusters`](crate::Engine::resident_clusters)). `None` if there is nothing to compute: M =
    /// 0, N = 0, or no GEMMs.
    ///
    /// # Errors
    /// The first illegal argument, with its value and what is allowed; the kernel has another form or
    /// another epilogue than the call; or what is written shares memory with something else
    /// ([`check_apart`](crate::check_apart)).
    pub fn launch<E: Arguments + Clone>(
        &self,
        call: &Call<E>,
        resident: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let launch = self.made(call, resident)?;
        if launch.is_some() {
            check_apart(self, call)?;
        }
        Ok(launch)
    }

    /// The same, wherever the call's memory is.
    pub(crate) fn made<E: Arguments + Clone>(
        &self,
        call: &Call<E>,
        resident: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let products = call.products.for_form(self.plan.form)?;
        if let GroupedProblem::PointerArray { .. } = products {
            return self.fill(call, (&self.templates(call, resident)?, products), resident);
        }
        self.fill(call, (call, products), resident)
    }

    /// A call that stands in for GEMMs described in device memory. The host encodes tensor maps as templates;
    /// their matrices are where the kernel keeps its own maps.
    fn templates<E: Arguments + Clone>(&self, call: &Call<E>, resident: u32) -> Result<Call<E>, LaunchError> {
        let mut nowhere = MatrixRef::new(Buffer::WORKSPACE_ALIGNMENT, 1 << 31);
        let d = nowhere;
        if call.products.count() > 0 {
            let maps = Buffer::workspace_address(call.workspace, self.workspace(call, resident))?
                + self.counter_bytes();
            nowhere.address = maps.max(Buffer::WORKSPACE_ALIGNMENT);
        }
        let problem = GemmProblem { m: 64, n: 64, k: EXTENT_LIMIT - 256 };
        // The records hold C's address. This C is only a legal one to check.
        let epilogue = call.epilogue.clone().with_c(MatrixRef::new(16, 64));
        Ok(Call { problem, a: nowhere, b: nowhere, d, epilogue, ..call.clone() })
    }

    /// The matrices of the call's first GEMM, if they and the epilogue's arguments are legal for this kernel.
    /// `None` if there is nothing to compute.
    pub(crate) fn checked<E: Arguments>(
        &self,
        call: &Call<E>,
        multiplied: bool,
    ) -> Result<Option<Checked>, LaunchError> {
        let (plan, epilogue, GemmProblem { m, n, .. }) = (&self.plan, &call.epilogue, call.problem);
        let checked = call.check(plan, multiplied)?;
        let shape = Shape { m, n };
        if m == 0 || n == 0 || call.products.count() == 0 {
            epilogue.admits(self, shape)?;
            return Ok(None);
        }
        epilogue.check(self, shape)?;
        let step = plan.split_step();
        if plan.epilogue.split && !n.is_multiple_of(step) {
            return Err(LaunchError::Halves { n, step });
        }
        let tile_n = plan.mainloop.tile[1];
        if plan.epilogue.needs.rows && n > tile_n {
            return Err(LaunchError::WholeRows { n, tile_n });
        }
        Ok(Some(checked))
    }

    /// The launch of a call with matrices and extents that stand for it: its own, or those of the [templates](Self::templates).
    fn fill<E: Arguments + Clone>(
        &self,
        call: &Call<E>,
        (stands, products): (&Call<E>, GroupedProblem),
        resident: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let (plan, problem, epilogue) = (&self.plan, stands.problem, &stands.epilogue);
        // The records hold each GEMM's K.
        let described = products.form().described();
        let Some(checked) = self.checked(stands, described || epilogue.multiplied())? else {
            return Ok(None);
        };
        let multiplied = GemmProblem { k: checked.operands[0].k, ..problem };
        let tiles = self.all_tiles(multiplied, &products)?;
        let seen = self.seen(problem);
        epilogue.check_mainloop(self, checked.operands)?;
        epilogue.check_scheduler(self, tiles)?;
        let operands = self.staged(checked.operands, stands)?;
        let k_tiles = if described && !epilogue.multiplied() { 0 } else { tiles.k };
        let workers = self.scheduler.workers(tiles, resident);
        if self.works_in_memory() {
            Buffer::workspace_address(call.workspace, self.workspace_bytes(tiles, workers))?;
        }
        let filled = &Filled { operands, extents: [seen.m, seen.n, k_tiles], d: checked.d, tiles, workers };
        let grid = Launch::grid(u64::from(workers) * u64::from(plan.cluster_size()))?;
        let mut call = Call { products, ..call.clone() };
        Launch::new(grid, |visit| self.state(&mut call, Some(filled), visit)).map(Some)
    }

    /// Visits every part of a call and states the kernel's parameters, with their values if a launch is made.
    fn state<E: Arguments>(&self, call: &mut Call<E>, filled: Option<&Filled>, visit: &mut dyn Visit) {
        let multiplied = call.epilogue.multiplied();
        let layouts = Layouts { multiplied, ..Layouts::of(self) };
        if self.traits.feeds {
            visit.ordered();
        }
        call.state(&layouts, Some(Stated { gemm: self, filled }), visit);
    }

    /// Operands `[A, B]` of this kernel with what a call gives in addition to them, checked: block scales, group scales, metadata.
    fn staged<E>(&self, matrices: [Matrix; 2], call: &Call<E>) -> Result<StagedOperands, LaunchError> {
        use LaunchError::{NoGroupScales, NoMetadata, NoScales, NotGroupScaled, NotScaled, NotSparse};
        let (plan, [a, _]) = (&self.plan, matrices);
        // If K is 0 or alpha is 0, nothing is multiplied, and none of it is read.
        let read = a.k > 0;
        let scaled = plan.mainloop.is_scaled();
        let scales = companion((call.scales, BlockScales::NONE), (scaled, NotScaled), (read, NoScales))?;
        let grouped = plan.mainloop.weights().is_some_and(|weights| weights.group > 0);
        let given = (call.group_scales, GroupScales::NONE);
        let groups = companion(given, (grouped, NotGroupScaled), (read, NoGroupScales))?;
        let sparse = plan.mainloop.is_sparse();
        let metadata = companion((call.metadata, MatrixRef::NONE), (sparse, NotSparse), (read, NoMetadata))?;
        let all = [
            scales.map(|of| of.check(plan, matrices)),
            groups.map(|of| of.check(plan, a)),
            metadata.map(|of| check_metadata(plan, of, a)),
        ];
        let legal: Result<(), _> = all.into_iter().flatten().collect();
        legal.map_err(|reason| LaunchError::Problem { reason })?;
        Ok(StagedOperands {
            matrices,
            scales: scales.unwrap_or(BlockScales::NONE),
            group_scales: groups.unwrap_or(GroupScales::NONE),
            metadata: metadata.unwrap_or(MatrixRef::NONE),
        })
    }
}

/// What a call gives in addition to an operand, or `none` if it is not read. `None` if the kernel does not take
/// it.
fn companion<T>(
    (given, none): (Option<T>, T),
    (taken, not_taken): (bool, LaunchError),
    (read, missing): (bool, LaunchError),
) -> Result<Option<T>, LaunchError> {
    match given {
        Some(_) if !taken => Err(not_taken),
        None if taken && read => Err(missing),
        given => Ok(taken.then(|| given.unwrap_or(none))),
    }
}

impl AsRef<Self> for AnyGemm {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl<E: Arguments + Clone, K: AsRef<AnyGemm>> Kernel<Call<E>> for K {
    fn program(&self) -> Result<Program, VerifyError> {
        self.as_ref().program()
    }

    fn workspace(&self, call: &Call<E>, resident: u32) -> u64 {
        self.as_ref().workspace(call, resident)
    }

    fn lend_workspace(&self, call: &mut Call<E>, workspace: Option<Buffer>) {
        call.workspace = workspace;
    }

    fn missing_workspace(&self, call: &Call<E>, resident: u32) -> u64 {
        if call.workspace.is_some() { 0 } else { self.as_ref().workspace(call, resident) }
    }

    fn total_work(&self, call: &Call<E>) -> u128 {
        let gemm = self.as_ref();
        let (Tiles { m, n, k }, count) = (gemm.tiles(call.problem), u128::from(call.products.count()));
        let [mut m, mut n] = [m, n].map(u128::from);
        // Each epilogue counts as a k-tile; each group may have a partial tile.
        let mut steps = if call.epilogue.multiplied() { u128::from(k) + 1 } else { 1 };
        match call.products {
            GroupedProblem::One => {}
            GroupedProblem::Batched { .. } => steps *= count,
            GroupedProblem::GroupedContiguous { .. } | GroupedProblem::GroupedMasked { .. } => {
                *(if gemm.axis() == 0 { &mut m } else { &mut n }) += count;
            }
            GroupedProblem::KGrouped { .. } => steps += 2 * count,
            GroupedProblem::PointerArray { .. } => return 0,
        }
        m * n * steps * u128::from(gemm.plan.cluster_size())
    }

    fn launch(&self, call: &Call<E>, resident: u32) -> Result<Option<Launch>, LaunchError> {
        self.as_ref().launch(call, resident)
    }

    fn visit(&self, call: &mut Call<E>, visit: &mut dyn Visit) {
        self.as_ref().state(call, None, visit);
    }

    fn check_records(&self, call: &Call<E>, lent: &dyn Lent) -> Result<(), EngineError> {
        let GroupedProblem::PointerArray { count: count @ 1.., records } = call.products else {
            return Ok(());
        };
        let (gemm, name) = (self.as_ref(), self.as_ref().entry_name());
        let known = lent.records(records).and_then(|known| known.get(..count as usize));
        let known = known.ok_or_else(|| EngineError::Described { kernel: name.clone() })?;
        let product = |record: &Record| {
            let Record { m, n, k, addresses, lds } = *record;
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| MatrixRef::new(addresses[i], lds[i]));
            let (problem, epilogue) = (GemmProblem { m, n, k }, call.epilogue.clone().with_c(c));
            Call { products: GroupedProblem::One, a, b, d, workspace: None, ..Call::of(problem) }
                .with(epilogue)
        };
        let refused = |source| EngineError::Call { kernel: name.clone(), source };
        for (index, record) in known.iter().enumerate() {
            let product = product(record);
            gemm.checked(&product, product.epilogue.multiplied())
                .map_err(refused)
                .and_then(|_| check_lent(gemm, &name, &product, lent))
                .map_err(|source| EngineError::Record { index, source: Box::new(source) })?;
        }
        let visit = |visit: &mut dyn Visit| {
            known.iter().for_each(|record| gemm.state(&mut product(record), None, visit));
        };
        let mut overlaps = Overlaps::default();
        visit(&mut overlaps);
        overlaps.check(visit).map_err(refused)
    }
}
