//! Calls of several products, and their launches.

use collective::tree::{Node, NodeError, Shape};
use collective::{
    Batch, Epilogue, Form, LinearArguments, LinearHost, Mainloop, Matrix, Output, Plan, Record, Treed,
};
use ptx::abi::{Argument, Grid};
use scheduler::Tiles;

use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::order::{MOST_TILES, widths};
use crate::problem::{
    Call, Checked, EXTENT_LIMIT, GemmProblem, Launch, Matrices, MatrixRef, OutputRule, WORKSPACE_ALIGNMENT,
    WorkspaceRef, within,
};

/// Most CTAs of a grid along x.
const MOST_CTAS: u32 = i32::MAX as u32;

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
    /// Where the kernel keeps tensor maps: memory of its own, of as many bytes as [`AnyGemm::workspace_grouped`] says, zero before
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
            _ => {
                let batch = rule(name).check(count, stride, matrix.address)?;
                Ok::<_, LaunchError>(Matrix { batch, ..matrix })
            }
        };
        match *self {
            Self::One => Ok(Checked { a, b, d }),
            Self::Batch { count, strides } => {
                let rule =
                    Distance { name: "D", bytes: u64::from(output.bits / 8), alignment: output.alignment };
                let batch = rule.check(count, strides.d, d.address)?;
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
    fn check(&self, count: u32, stride: u64, address: u64) -> Result<Batch, LaunchError> {
        let Self { name, bytes, alignment } = *self;
        let stride_bytes = u128::from(stride) * u128::from(bytes);
        if count > 1 && (!stride_bytes.is_multiple_of(alignment.into()) || stride_bytes >= 1 << 40) {
            return Err(LaunchError::Distance { name, bytes: stride_bytes, alignment });
        }
        if count > 1 {
            within(name, address, u128::from(count - 1) * stride_bytes + u128::from(bytes))?;
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

impl AnyGemm {
    /// The tiles of all products as the scheduler numbers them, or the most that there may be.
    fn all_tiles(&self, problem: GemmProblem, several: &Several) -> Result<Tiles<u32>, LaunchError> {
        let tiles = self.tiles(problem);
        let [m, n] = [tiles.m, tiles.n].map(u128::from);
        let [m, n] = match *several {
            Several::One => [m, n],
            Several::Batch { count, .. } if self.facts.rows_last => [m * u128::from(count), n],
            Several::Batch { count, .. } => [m, n * u128::from(count)],
            // Each group may begin inside of a tile that the one before has as well.
            Several::Rows(Experts { count, .. }) if self.plan.swapped() => [m, n + u128::from(count)],
            Several::Rows(Experts { count, .. }) => [m + u128::from(count), n],
            // Nobody knows.
            Several::Records { .. } => [Tiles::MOST.into(), 1],
        };
        self.numbered([m, n], tiles.k)
    }

    /// So many tiles along M and N, and k-tiles, if a launch numbers them.
    fn numbered(&self, [m, n]: [u128; 2], k: u32) -> Result<Tiles<u32>, LaunchError> {
        let most = if self.plan.balanced() { MOST_TILES - 1 } else { Tiles::MOST };
        let fits = m.checked_mul(n).is_some_and(|all| all <= most.into());
        let (Ok(rows), Ok(columns), true) = (u32::try_from(m), u32::try_from(n), fits) else {
            return Err(LaunchError::TooManyTiles { m, n, most });
        };
        let (band, along) = (self.facts.band, if self.facts.rows_last { columns } else { rows });
        match band.checked_mul(along) {
            Some(_) => Ok(Tiles { m: rows, n: columns, k }),
            None => Err(LaunchError::Band { band, tiles: along }),
        }
    }

    /// The tiles of some products of one launch, as the scheduler numbers them: for a kernel of groups of rows, products of one
    /// N and K; for one of a batch, of one shape. K-tiles are those of the longest sums.
    ///
    /// # Errors
    /// Extents, groups or tiles that are more than a launch can have.
    pub fn tiles_of(&self, products: &[GemmProblem]) -> Result<Tiles<u32>, LaunchError> {
        let plan = &self.plan;
        products.iter().try_for_each(GemmProblem::limited)?;
        let groups = u32::try_from(products.len()).unwrap_or(u32::MAX);
        if matches!(plan.form, Form::Ragged | Form::Grouped) && groups > Form::MOST_GROUPS {
            return Err(LaunchError::Groups { groups, most: Form::MOST_GROUPS });
        }
        let rows: u64 = products.iter().map(|problem| u64::from(problem.m)).sum();
        if plan.form == Form::Ragged && rows >= EXTENT_LIMIT.into() {
            return Err(LaunchError::Extent { name: "M", extent: rows, limit: EXTENT_LIMIT });
        }
        let each = || products.iter().map(|&problem| self.tiles(problem));
        let sum = |part: &dyn Fn(Tiles<u32>) -> u128| each().map(part).sum::<u128>();
        let first = each().next().unwrap_or(Tiles { m: 0, n: 0, k: 0 });
        let [of_m, of_n] = [first.m, first.n].map(u128::from);
        let [m, n] = [sum(&|tiles| tiles.m.into()), sum(&|tiles| tiles.n.into())];
        let all = sum(&|tiles| u128::from(tiles.m) * u128::from(tiles.n));
        let longest = each().map(|tiles| tiles.k).max().unwrap_or(0);
        let (tiles, k) = match plan.form {
            Form::Single => ([of_m, of_n], first.k),
            Form::Batched if self.facts.rows_last => ([m, of_n], first.k),
            Form::Batched => ([of_m, n], first.k),
            Form::Ragged if plan.balanced() => ([all, 1], first.k),
            Form::Ragged if plan.swapped() => ([of_m, n], first.k),
            Form::Ragged => ([m, of_n], first.k),
            Form::Grouped => ([all, 1], longest),
        };
        self.numbered(tiles, k)
    }

    /// The columns that each tile of [`tiles_of`](Self::tiles_of) multiplies, by its number, where groups are cut into tiles of
    /// nearly equal width; `None` where all tiles are alike.
    pub fn widths_of(&self, products: &[GemmProblem], workers: u32) -> Option<Vec<u32>> {
        let plan = &self.plan;
        let rows: Vec<u32> = products.iter().map(|problem| problem.m).collect();
        let height = products.first().map_or(0, |&problem| self.tiles(problem).m);
        plan.balanced().then(|| widths(plan, &rows, height, workers))
    }

    /// The workspace of several products; 0 where a launch cannot number their tiles.
    pub(crate) fn workspace_of(&self, problem: GemmProblem, several: &Several, slots: u32) -> u64 {
        self.all_tiles(problem, several).map_or(0, |tiles| {
            // Where the device counts the tiles, there may be more of them than of the one product.
            let counted = self.facts.tiles_on_device;
            let workers = if counted { slots.max(1) } else { self.scheduler.workers(tiles, slots) };
            self.workspace_bytes(tiles, workers)
        })
    }

    /// [`workspace`](Self::workspace) of `count` products of one shape.
    pub fn workspace_batched(&self, problem: GemmProblem, count: u32, slots: u32) -> u64 {
        let several = Several::Batch { count, strides: Strides { a: 0, b: 0, c: 0, d: 0 } };
        self.workspace_of(problem, &several, slots)
    }

    /// Checks everything, and works out grid and arguments.
    pub(crate) fn launch_several(
        &self,
        matrices: &Matrices,
        several: &Several,
        (operands, epilogue): (&dyn Operands, &dyn Given),
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let several = several.for_form(self.plan.form)?;
        let output = OutputRule {
            bits: self.plan.epilogue.output.bits(),
            alignment: self.plan.epilogue.alignment.into(),
            halvings: self.plan.epilogue.halvings,
        };
        let plan = &self.plan;
        let problem = matrices.problem;
        let checked = matrices.check(plan, &output)?;
        if problem.m == 0 || problem.n == 0 || several.is_empty() {
            return Ok(None);
        }
        let checked = several.checked(plan, checked, &output)?;
        epilogue.check(Shape { m: problem.m, n: problem.n })?;
        let (n, step) = (problem.n, plan.split_step());
        if plan.epilogue.split && !n.is_multiple_of(step) {
            return Err(LaunchError::Halves { n, step });
        }
        let tile_n = plan.mainloop.tile[1];
        if plan.epilogue.needs.rows && problem.n > tile_n {
            return Err(LaunchError::WholeRows { n: problem.n, tile_n });
        }
        let tiles = self.all_tiles(problem, &several)?;
        let seen = self.seen(problem);
        let [a, b] = if plan.swapped() { [checked.b, checked.a] } else { [checked.a, checked.b] };
        let mut arguments = operands.arguments(plan, a, b)?;
        let unread = matches!(several, Several::Records { multiplied: false, .. });
        let k_tiles = if unread { 0 } else { tiles.k };
        arguments.extend([seen.m.into(), seen.n.into(), k_tiles.into()]);
        arguments.extend(several.arguments());
        arguments.extend(epilogue.parameters(plan, checked.d));
        let workers = self.scheduler.workers(tiles, slots);
        arguments.extend(self.scheduler.parameters(tiles, workers).into_iter().map(Argument::from));
        if self.works_in_memory() {
            arguments.push(matrices.workspace(self.workspace_bytes(tiles, workers))?.into());
        }
        let ctas = u64::from(workers) * u64::from(plan.cluster_size());
        match u32::try_from(ctas) {
            Ok(ctas) if ctas <= MOST_CTAS => {
                Ok(Some(Launch { grid: Grid { ctas: [ctas, 1, 1] }, arguments }))
            }
            _ => Err(LaunchError::Grid { ctas, most: MOST_CTAS }),
        }
    }

    /// A call's factors and C for the epilogue, if it takes them.
    pub(crate) fn linear(&self, call: &Call) -> Result<LinearBound<'_>, LaunchError> {
        let arguments = call.linear(self.plan.epilogue.output.bits())?;
        self.bound(arguments)
    }

    fn bound(&self, arguments: LinearArguments) -> Result<LinearBound<'_>, LaunchError> {
        let host = self.epilogue.linear();
        let host = host.ok_or_else(|| LaunchError::NotLinear { epilogue: self.epilogue.name() })?;
        Ok(LinearBound { host, arguments })
    }

    /// As [`launch`](Self::launch) for several products of one shape.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_batched(&self, call: &BatchedCall, slots: u32) -> Result<Option<Launch>, LaunchError> {
        let BatchedCall { first, count, strides } = *call;
        let bound = self.linear(&first)?;
        let bound =
            LinearBound { arguments: LinearArguments { c_batch: strides.c, ..bound.arguments }, ..bound };
        self.launch_several(&first.matrices(), &Several::Batch { count, strides }, (self, &bound), slots)
    }

    /// As [`launch`](Self::launch) for groups of rows.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_ragged(&self, call: &RaggedCall, slots: u32) -> Result<Option<Launch>, LaunchError> {
        let RaggedCall { rows, experts } = *call;
        self.launch_several(&rows.matrices(), &Several::Rows(experts), (self, &self.linear(&rows)?), slots)
    }

    /// As [`launch`](Self::launch) for products that device memory describes.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_grouped(&self, call: &GroupedCall, slots: u32) -> Result<Option<Launch>, LaunchError> {
        let GroupedCall { alpha, beta, .. } = *call;
        // Records say where C lies; the host checks a C that could be.
        let arguments = LinearArguments { alpha, beta, c: 16, c_pitch: 64, c_batch: 0 };
        self.launch_records(call, (self, &self.bound(arguments)?), slots)
    }

    /// Bytes of device memory that a kernel for products described by device memory needs, on a machine that runs `slots` of
    /// its clusters at once.
    pub fn workspace_grouped(&self, slots: u32) -> u64 {
        let ctas = u64::from(slots.max(1)) * u64::from(self.plan.cluster_size());
        self.counter_bytes() + ctas * u64::from(self.plan.map_bytes())
    }

    /// The same with arguments of any epilogue. Of the call's factors only an `alpha` of zero is looked at.
    pub(crate) fn launch_records(
        &self,
        call: &GroupedCall,
        roles: (&dyn Operands, &dyn Given),
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let GroupedCall { count, records, alpha, workspace, .. } = *call;
        let several = Several::Records { count, records, multiplied: alpha != 0.0 };
        // What the host encodes are templates, of matrices that lie where the kernel keeps its maps.
        let nowhere = MatrixRef { address: WORKSPACE_ALIGNMENT, pitch: 1 << 31 };
        let problem = GemmProblem { m: 64, n: 64, k: EXTENT_LIMIT - 256 };
        let mut matrices = Matrices { problem, a: nowhere, b: nowhere, d: nowhere, workspace };
        if count > 0 && self.plan.form.described() {
            let maps = matrices.workspace(self.workspace_grouped(slots))? + self.counter_bytes();
            matrices.a.address = maps.max(WORKSPACE_ALIGNMENT);
            matrices.b = matrices.a;
        }
        self.launch_several(&matrices, &several, roles, slots)
    }
}

/// Arguments of an epilogue, whatever their type.
pub(crate) trait Given {
    /// Whether they are legal for a product of this shape.
    fn check(&self, product: Shape) -> Result<(), NodeError>;

    /// The values of the epilogue's parameters.
    fn parameters(&self, plan: &Plan, d: Output) -> Vec<Argument>;
}

/// Those of an epilogue's type.
pub(crate) struct Typed<'a, E: Epilogue>(pub(crate) &'a E::Arguments);

impl<E: Epilogue> Given for Typed<'_, E> {
    fn check(&self, product: Shape) -> Result<(), NodeError> {
        E::check(self.0, product)
    }

    fn parameters(&self, plan: &Plan, d: Output) -> Vec<Argument> {
        E::parameters(plan, self.0, d)
    }
}

/// Factors and C.
pub(crate) struct LinearBound<'a> {
    host: &'a dyn LinearHost,
    arguments: LinearArguments,
}

impl Given for LinearBound<'_> {
    fn check(&self, product: Shape) -> Result<(), NodeError> {
        self.host.check(&self.arguments, product)
    }

    fn parameters(&self, plan: &Plan, d: Output) -> Vec<Argument> {
        self.host.parameters(plan, &self.arguments, d)
    }
}

/// Those of a tree.
pub(crate) struct TreeBound<'a, X: Node> {
    pub(crate) tree: Treed<X>,
    pub(crate) arguments: &'a X::Arguments,
}

impl<X: Node> Given for TreeBound<'_, X> {
    fn check(&self, product: Shape) -> Result<(), NodeError> {
        Treed::<X>::check(self.arguments, product)
    }

    fn parameters(&self, plan: &Plan, d: Output) -> Vec<Argument> {
        self.tree.parameters(plan, self.arguments, d)
    }
}

/// A mainloop's side of a launch.
pub(crate) trait Operands {
    /// The values of the mainloop's parameters for these operands, checked.
    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Result<Vec<Argument>, LaunchError>;
}

/// With the default arguments of the mainloop's own.
impl Operands for AnyGemm {
    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Result<Vec<Argument>, LaunchError> {
        Ok(self.mainloop.arguments(plan, a, b))
    }
}

/// With arguments of a mainloop's type.
pub(crate) struct TypedOperands<'a, M: Mainloop>(pub(crate) &'a M::Arguments);

impl<M: Mainloop> Operands for TypedOperands<'_, M> {
    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Result<Vec<Argument>, LaunchError> {
        M::check(self.0, a, b).map_err(|reason| LaunchError::Mainloop { reason })?;
        Ok(M::arguments(plan, a, b, self.0))
    }
}
