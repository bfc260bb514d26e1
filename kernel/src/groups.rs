//! Calls of several products, and their launches.

use collective::tree::Shape;
use collective::{Batch, Element, Epilogue, Form, LinearArguments, Mainloop, Matrix, Output, Plan};
use ptx::abi::{Argument, Grid};
use scheduler::{TileScheduler, Tiles};

use crate::config::{Gemm, GemmConfig};
use crate::error::LaunchError;
use crate::problem::{Call, Checked, GemmProblem, Launch, Matrices, OutputRule};

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

/// The products of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Several {
    One,
    Batch { count: u32, strides: Strides },
    Rows(Experts),
}

impl Several {
    fn form(&self) -> Form {
        match self {
            Self::One => Form::Single,
            Self::Batch { .. } => Form::Batched,
            Self::Rows(_) => Form::Ragged,
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
            Self::Batch { count, .. } | Self::Rows(Experts { count, .. }) => count == 0,
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
                if count > Form::MOST_GROUPS {
                    return Err(LaunchError::Groups { groups: count, most: Form::MOST_GROUPS });
                }
                if offsets == 0 {
                    return Err(LaunchError::Null { name: "the groups' offsets" });
                }
                if !offsets.is_multiple_of(4) {
                    let name = "the groups' offsets";
                    return Err(LaunchError::Address { name, address: offsets, alignment: 4 });
                }
                Ok(Checked { a, b: operand("B", b, count, b_stride)?, d })
            }
        }
    }

    /// The kernel's parameters.
    fn arguments(&self) -> Vec<Argument> {
        match *self {
            Self::One => Vec::new(),
            Self::Batch { count, .. } => vec![count.into()],
            Self::Rows(Experts { count, offsets, .. }) => vec![count.into(), offsets.into()],
        }
    }
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

impl<C: GemmConfig> Gemm<C> {
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
        };
        let fits = u128::from(m) * u128::from(n) <= i32::MAX as u128;
        fits.then_some(Tiles { m: m as u32, n: n as u32, ..tiles })
    }

    /// The workspace of several products; 0 where a launch cannot number their tiles.
    pub(crate) fn workspace_of(problem: GemmProblem, several: &Several, slots: u32) -> u64 {
        Self::all_tiles(problem, several)
            .map_or(0, |tiles| Self::workspace_bytes(tiles, C::Scheduler::workers(tiles, slots)))
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
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
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
        let mut arguments = C::Mainloop::arguments(plan, a, b);
        arguments.extend([seen.m.into(), seen.n.into(), tiles.k.into()]);
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
        Self::launch_several(matrices, &Several::Batch { count, strides }, epilogue, slots)
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
        Self::launch_several(matrices, &Several::Rows(experts), epilogue, slots)
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
