//! Calls of several products, and their launches.

use core::fmt;

use collective::queue::QueuePlan;
use collective::tree::Shape;
use collective::{Batch, Element, Epilogue, Form, LinearArguments, Mainloop, Matrix, Output, Plan, Record};
use ptx::abi::{Argument, Grid};
use scheduler::{TileScheduler, Tiles};

use crate::config::{Gemm, GemmConfig};
use crate::error::LaunchError;
use crate::order::{MOST_TILES, widths};
use crate::problem::{
    Call, Checked, EXTENT_LIMIT, GemmProblem, Launch, Matrices, MatrixRef, OutputRule, WORKSPACE_ALIGNMENT,
    WorkspaceRef,
};

/// Elements from each matrix of a batch to the next; 0 where all products have the same one, which D's never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strides {
    /// A's.
    pub a: u64,
    /// B's.
    pub b: u64,
    /// C's.
    pub c: u64,
    /// D's.
    pub d: u64,
}

impl Strides {
    /// Those of packed matrices behind each other.
    pub fn packed(GemmProblem { m, n, k }: GemmProblem) -> Self {
        let [m, n, k] = [m, n, k].map(u64::from);
        Self { a: m * k, b: k * n, c: m * n, d: m * n }
    }
}

/// Products of one shape in one launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchedCall {
    /// The first.
    pub first: Call,
    /// How many there are.
    pub count: u32,
    /// Where the others' matrices lie.
    pub strides: Strides,
}

/// Groups of rows, each with a B of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    /// How many groups there are, [`Form::MOST_GROUPS`] at most.
    pub count: u32,
    /// Device address of `count + 1` offsets (`u32`): the rows of group `i` are those from `offsets[i]` to
    /// `offsets[i + 1]`. The kernel reads them, so they may be computed by a kernel before it. An offset that is less than
    /// one before it counts as that one, and one beyond the last row as the number of rows.
    pub offsets: u64,
    /// Elements from each B to the next; 0 where all are the same one.
    pub b_stride: u64,
}

/// Products of groups of rows in one launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RaggedCall {
    /// The product of all rows with one B, the first: M is the number of rows of A, C and D, which may be more than all groups
    /// have.
    pub rows: Call,
    /// The groups.
    pub experts: Experts,
}

/// Products that device memory describes, in one launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupedCall {
    /// How many there are, [`Form::MOST_GROUPS`] at most.
    pub count: u32,
    /// Device address of as many [`Record`]s behind each other, a multiple of 16.
    pub records: u64,
    /// Factor of the products. Zero leaves A and B unread.
    pub alpha: f32,
    /// Factor of C. Zero leaves C unread.
    pub beta: f32,
    /// Where the kernel keeps tensor maps: memory of its own, of as many bytes as [`Gemm::workspace_grouped`] says, zero before
    /// the first launch.
    pub workspace: Option<WorkspaceRef>,
}

/// The products of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Several {
    One,
    Batch { count: u32, strides: Strides },
    Rows(Experts),
    Records { count: u32, records: u64, multiplied: bool },
}

impl Several {
    fn form(&self) -> Form {
        match self {
            Self::One => Form::Single,
            Self::Batch { .. } => Form::Batched,
            Self::Rows(_) => Form::Ragged,
            Self::Records { .. } => Form::Grouped,
        }
    }

    /// The same for a kernel of some form: one product is a batch of one.
    fn for_form(self, form: Form) -> Result<Self, LaunchError> {
        match (self, form) {
            (Self::One, Form::Batched) => {
                Ok(Self::Batch { count: 1, strides: Strides { a: 0, b: 0, c: 0, d: 0 } })
            }
            _ if self.form() == form => Ok(self),
            _ => Err(LaunchError::Form { kernel: form, call: self.form() }),
        }
    }

    fn is_empty(&self) -> bool {
        match *self {
            Self::One => false,
            Self::Batch { count, .. } | Self::Rows(Experts { count, .. }) | Self::Records { count, .. } => {
                count == 0
            }
        }
    }

    /// Where the other matrices lie, checked.
    fn checked(&self, plan: &Plan, checked: Checked, output: &OutputRule) -> Result<Checked, LaunchError> {
        let Checked { a, b, d } = checked;
        let bits = plan.mainloop.types.element_bits();
        let rule = |name| Distance {
            name,
            bytes: u64::from(bits / 8),
            alignment: plan.mainloop.producer.alignment(bits).into(),
        };
        // Where nothing is multiplied, nothing is read.
        let operand = |name, matrix: Matrix, count, stride| match a.k {
            0 => Ok(matrix),
            _ => Ok::<_, LaunchError>(Matrix { batch: rule(name).check(count, stride)?, ..matrix }),
        };
        match *self {
            Self::One => Ok(Checked { a, b, d }),
            Self::Batch { count, strides } => {
                let rule =
                    Distance { name: "D", bytes: u64::from(output.bits / 8), alignment: output.alignment };
                let batch = rule.check(count, strides.d)?;
                let d = Output { batch, ..d };
                if !apart(d) {
                    return Err(LaunchError::Overlap { stride: strides.d, m: d.m, n: d.n, pitch: d.pitch });
                }
                let (a, b) = (operand("A", a, count, strides.a)?, operand("B", b, count, strides.b)?);
                Ok(Checked { a, b, d })
            }
            Self::Rows(Experts { count, offsets, b_stride }) => {
                table(count, ("the groups' offsets", offsets, 4))?;
                Ok(Checked { a, b: operand("B", b, count, b_stride)?, d })
            }
            Self::Records { count, records, .. } => {
                table(count, ("the records", records, Record::BYTES[1].into()))?;
                Ok(Checked { a, b, d })
            }
        }
    }

    /// The kernel's parameters.
    fn arguments(&self) -> Vec<Argument> {
        match *self {
            Self::One => Vec::new(),
            Self::Batch { count, .. } => vec![count.into()],
            Self::Rows(Experts { count, offsets, .. }) => vec![count.into(), offsets.into()],
            Self::Records { count, records, .. } => vec![count.into(), records.into()],
        }
    }
}

/// Whether a kernel can find so many groups by what lies at an address.
fn table(groups: u32, (name, address, alignment): (&'static str, u64, u64)) -> Result<(), LaunchError> {
    if groups > Form::MOST_GROUPS {
        return Err(LaunchError::Groups { groups, most: Form::MOST_GROUPS });
    }
    if address == 0 {
        return Err(LaunchError::Null { name });
    }
    if !address.is_multiple_of(alignment) {
        return Err(LaunchError::Address { name, address, alignment });
    }
    Ok(())
}

/// What the distance between matrices must be.
struct Distance {
    name: &'static str,
    bytes: u64,
    alignment: u64,
}

impl Distance {
    fn check(&self, count: u32, stride: u64) -> Result<Batch, LaunchError> {
        let Self { name, bytes, alignment } = *self;
        let stride_bytes = stride.saturating_mul(bytes);
        if count > 1 && (!stride_bytes.is_multiple_of(alignment) || stride_bytes >= 1 << 40) {
            return Err(LaunchError::Distance { name, bytes: stride_bytes, alignment });
        }
        Ok(Batch { count, stride: if count > 1 { stride } else { 0 } })
    }
}

/// Whether no two outputs have an element in common: each ends before the next begins, or rows of all of them lie side by
/// side.
fn apart(Output { m, n, pitch, batch: Batch { count, stride }, .. }: Output) -> bool {
    let [m, n, count] = [m, n, count].map(u128::from);
    let [pitch, stride] = [pitch, stride].map(u128::from);
    count <= 1
        || stride >= m.saturating_sub(1) * pitch + n
        || stride >= n && pitch >= (count - 1) * stride + n
}

/// The arguments of a kernel's mainloop and of its epilogue.
type Roles<'a, C> = (
    &'a <<C as GemmConfig>::Mainloop as Mainloop>::Arguments,
    &'a <<C as GemmConfig>::Epilogue as Epilogue>::Arguments,
);

/// A kernel whose mainloop has been given its own arguments: see [`Gemm::bind`].
pub struct Bound<'a, C: GemmConfig> {
    mainloop: &'a <C::Mainloop as Mainloop>::Arguments,
}

impl<C: GemmConfig> fmt::Debug for Bound<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("kernel", &Gemm::<C>::name()).finish_non_exhaustive()
    }
}

impl<C: GemmConfig> Bound<'_, C> {
    /// As [`Gemm::launch_with`].
    ///
    /// # Errors
    /// The first argument that is illegal, with its value and what was needed.
    pub fn launch_with(
        &self,
        matrices: &Matrices,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Gemm::<C>::launch_several(matrices, &Several::One, (self.mainloop, epilogue), slots)
    }

    /// As [`Gemm::launch_batched_with`].
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_batched_with(
        &self,
        matrices: &Matrices,
        count: u32,
        strides: Strides,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let several = Several::Batch { count, strides };
        Gemm::<C>::launch_several(matrices, &several, (self.mainloop, epilogue), slots)
    }

    /// As [`Gemm::launch_ragged_with`].
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_ragged_with(
        &self,
        matrices: &Matrices,
        experts: Experts,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Gemm::<C>::launch_several(matrices, &Several::Rows(experts), (self.mainloop, epilogue), slots)
    }

    /// As [`Gemm::launch_grouped_with`].
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_grouped_with(
        &self,
        call: &GroupedCall,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Gemm::<C>::launch_records(call, (self.mainloop, epilogue), slots)
    }
}

impl<C: GemmConfig> Gemm<C> {
    /// The kernel with arguments of its mainloop's own ([`Mainloop::Arguments`]); launches without them use the default ones.
    pub fn bind(mainloop: &<C::Mainloop as Mainloop>::Arguments) -> Bound<'_, C> {
        Bound { mainloop }
    }

    /// The tiles of all products as the scheduler numbers them, or the most that there may be; `None` if a launch cannot
    /// number them.
    fn all_tiles(problem: GemmProblem, several: &Several) -> Option<Tiles<u32>> {
        let tiles = Self::tiles(problem);
        let [m, n] = [tiles.m, tiles.n].map(u64::from);
        let [m, n] = match *several {
            Several::One => [m, n],
            Several::Batch { count, .. } if C::Scheduler::ROWS_LAST => [m * u64::from(count), n],
            Several::Batch { count, .. } => [m, n * u64::from(count)],
            // Each group may begin inside of a tile that the one before has as well.
            Several::Rows(Experts { count, .. }) if Self::PLAN.swapped() => [m, n + u64::from(count)],
            Several::Rows(Experts { count, .. }) => [m + u64::from(count), n],
            // Nobody knows.
            Several::Records { .. } => [i32::MAX as u64, 1],
        };
        let most = if Self::PLAN.balanced() { MOST_TILES - 1 } else { i32::MAX as u32 };
        let fits = u128::from(m) * u128::from(n) <= most.into();
        fits.then_some(Tiles { m: m as u32, n: n as u32, ..tiles })
    }

    /// The tiles of some products of one launch, as the scheduler numbers them: for a kernel of groups of rows, products of one
    /// N and K; for one of a batch, of one shape. K-tiles are those of the longest sums.
    pub fn tiles_of(products: &[GemmProblem]) -> Tiles<u32> {
        let each = || products.iter().map(|&problem| Self::tiles(problem));
        let first = each().next().unwrap_or(Tiles { m: 0, n: 0, k: 0 });
        let [m, n] = [each().map(|tiles| tiles.m).sum(), each().map(|tiles| tiles.n).sum()];
        let plan = &const { Self::PLAN };
        match C::FORM {
            Form::Single => first,
            Form::Batched if C::Scheduler::ROWS_LAST => Tiles { m, ..first },
            Form::Batched => Tiles { n, ..first },
            Form::Ragged if plan.balanced() => {
                Tiles { m: each().map(|tiles| tiles.m * tiles.n).sum(), n: 1, ..first }
            }
            Form::Ragged if plan.swapped() => Tiles { n, ..first },
            Form::Ragged => Tiles { m, ..first },
            Form::Grouped => {
                let k = each().map(|tiles| tiles.k).max().unwrap_or(0);
                Tiles { m: each().map(|tiles| tiles.m * tiles.n).sum(), n: 1, k }
            }
        }
    }

    /// The columns that each tile of [`tiles_of`](Self::tiles_of) multiplies, by its number, where groups are cut into tiles of
    /// nearly equal width; `None` where all tiles are alike.
    pub fn widths_of(products: &[GemmProblem], workers: u32) -> Option<Vec<u32>> {
        let plan = &const { Self::PLAN };
        let rows: Vec<u32> = products.iter().map(|problem| problem.m).collect();
        let height = products.first().map_or(0, |&problem| Self::tiles(problem).m);
        plan.balanced().then(|| widths(plan, &rows, height, workers))
    }

    /// The workspace of several products; 0 where a launch cannot number their tiles.
    pub(crate) fn workspace_of(problem: GemmProblem, several: &Several, slots: u32) -> u64 {
        Self::all_tiles(problem, several).map_or(0, |tiles| {
            // Where the device counts the tiles, there may be more of them than of the one product.
            let counted = C::Scheduler::TILES_ON_DEVICE;
            let workers = if counted { slots.max(1) } else { C::Scheduler::workers(tiles, slots) };
            Self::workspace_bytes(tiles, workers)
        })
    }

    /// [`workspace`](Self::workspace) of `count` products of one shape.
    pub fn workspace_batched(problem: GemmProblem, count: u32, slots: u32) -> u64 {
        let several = Several::Batch { count, strides: Strides { a: 0, b: 0, c: 0, d: 0 } };
        Self::workspace_of(problem, &several, slots)
    }

    /// Checks everything, and works out grid and arguments.
    pub(crate) fn launch_several(
        matrices: &Matrices,
        several: &Several,
        (mainloop, epilogue): Roles<'_, C>,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let several = several.for_form(C::FORM)?;
        let output = OutputRule {
            bits: <<C::Epilogue as Epilogue>::Output as Element>::BITS,
            alignment: C::Epilogue::OUTPUT_ALIGNMENT,
            halvings: Self::PLAN.epilogue.halvings,
        };
        let plan = &const { Self::PLAN };
        let problem = matrices.problem;
        let checked = matrices.check(plan, &output)?;
        if problem.m == 0 || problem.n == 0 || several.is_empty() {
            return Ok(None);
        }
        let checked = several.checked(plan, checked, &output)?;
        C::Epilogue::check(epilogue, Shape { m: problem.m, n: problem.n })?;
        let (n, step) = (problem.n, plan.split_step());
        if plan.epilogue.split && !n.is_multiple_of(step) {
            return Err(LaunchError::Halves { n, step });
        }
        let tile_n = plan.mainloop.tile[1];
        if plan.epilogue.needs.rows && problem.n > tile_n {
            return Err(LaunchError::WholeRows { n: problem.n, tile_n });
        }
        let tiles = Self::all_tiles(problem, &several).ok_or_else(|| {
            let Tiles { m, n, .. } = Self::tiles(problem);
            LaunchError::TooManyTiles { m, n }
        })?;
        let seen = Self::seen(problem);
        let [a, b] = if plan.swapped() { [checked.b, checked.a] } else { [checked.a, checked.b] };
        C::Mainloop::check(mainloop, a, b).map_err(|reason| LaunchError::Mainloop { reason })?;
        let mut arguments = C::Mainloop::arguments(plan, a, b, mainloop);
        let unread = matches!(several, Several::Records { multiplied: false, .. });
        let k_tiles = if unread { 0 } else { tiles.k };
        arguments.extend([seen.m.into(), seen.n.into(), k_tiles.into()]);
        arguments.extend(several.arguments());
        arguments.extend(C::Epilogue::parameters(plan, epilogue, checked.d));
        let workers = C::Scheduler::workers(tiles, slots);
        arguments.extend(C::Scheduler::parameters(tiles, workers));
        if Self::WORKS_IN_MEMORY {
            arguments.push(matrices.workspace(Self::workspace_bytes(tiles, workers))?.into());
        }
        let ctas = [workers * plan.cluster_size(), 1, 1];
        Ok(Some(Launch { grid: Grid { ctas }, arguments }))
    }

    /// As [`launch_with`](Self::launch_with) for `count` products: `matrices` are those of the first, and where the others'
    /// lie `strides` says, but for C's, which the epilogue's arguments say.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_batched_with(
        matrices: &Matrices,
        count: u32,
        strides: Strides,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Self::bind(&Default::default()).launch_batched_with(matrices, count, strides, epilogue, slots)
    }

    /// As [`launch_batched_with`](Self::launch_batched_with) for `D = alpha * A * B + beta * C`.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_batched(call: &BatchedCall, slots: u32) -> Result<Option<Launch>, LaunchError>
    where
        C::Epilogue: Epilogue<Arguments = LinearArguments>,
    {
        let BatchedCall { first, count, strides } = *call;
        let bits = <<C::Epilogue as Epilogue>::Output as Element>::BITS;
        let epilogue = LinearArguments { c_batch: strides.c, ..first.linear(bits)? };
        Self::launch_batched_with(&first.matrices(), count, strides, &epilogue, slots)
    }

    /// Bytes of device memory that a kernel for products described by device memory needs, on a machine that runs `slots` of
    /// its clusters at once.
    pub fn workspace_grouped(slots: u32) -> u64 {
        let ctas = u64::from(slots.max(1)) * u64::from(Self::PLAN.cluster_size());
        Self::drawing_bytes() + ctas * u64::from(Self::PLAN.map_bytes())
    }

    /// What of it comes before the maps.
    fn drawing_bytes() -> u64 {
        if C::Scheduler::DRAWS { QueuePlan::WORKSPACE_BYTES } else { 0 }
    }

    /// As [`launch_with`](Self::launch_with) for products that device memory describes. Of the call's factors only an `alpha`
    /// of zero is looked at: the epilogue's arguments say what becomes of the sums.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_grouped_with(
        call: &GroupedCall,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Self::bind(&Default::default()).launch_grouped_with(call, epilogue, slots)
    }

    fn launch_records(
        call: &GroupedCall,
        roles: Roles<'_, C>,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let GroupedCall { count, records, alpha, workspace, .. } = *call;
        let several = Several::Records { count, records, multiplied: alpha != 0.0 };
        // What the host encodes are templates, of matrices that lie where the kernel keeps its maps.
        let nowhere = MatrixRef { address: WORKSPACE_ALIGNMENT, pitch: 1 << 31 };
        let problem = GemmProblem { m: 64, n: 64, k: EXTENT_LIMIT - 256 };
        let mut matrices = Matrices { problem, a: nowhere, b: nowhere, d: nowhere, workspace };
        if count > 0 && C::FORM.described() {
            let maps = matrices.workspace(Self::workspace_grouped(slots))? + Self::drawing_bytes();
            matrices.a.address = maps.max(WORKSPACE_ALIGNMENT);
            matrices.b = matrices.a;
        }
        Self::launch_several(&matrices, &several, roles, slots)
    }

    /// As [`launch_grouped_with`](Self::launch_grouped_with) for `D = alpha * A * B + beta * C`.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_grouped(call: &GroupedCall, slots: u32) -> Result<Option<Launch>, LaunchError>
    where
        C::Epilogue: Epilogue<Arguments = LinearArguments>,
    {
        let GroupedCall { alpha, beta, .. } = *call;
        // Records say where C lies; the host checks a C that could be.
        let epilogue = LinearArguments { alpha, beta, c: 16, c_pitch: 64, c_batch: 0 };
        Self::launch_grouped_with(call, &epilogue, slots)
    }

    /// As [`launch_with`](Self::launch_with) for groups of rows: `matrices` are those of all rows and of the first B.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_ragged_with(
        matrices: &Matrices,
        experts: Experts,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Self::bind(&Default::default()).launch_ragged_with(matrices, experts, epilogue, slots)
    }

    /// As [`launch_ragged_with`](Self::launch_ragged_with) for `D = alpha * A * B + beta * C`.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_ragged(call: &RaggedCall, slots: u32) -> Result<Option<Launch>, LaunchError>
    where
        C::Epilogue: Epilogue<Arguments = LinearArguments>,
    {
        let RaggedCall { rows, experts } = *call;
        let bits = <<C::Epilogue as Epilogue>::Output as Element>::BITS;
        Self::launch_ragged_with(&rows.matrices(), experts, &rows.linear(bits)?, slots)
    }
}
