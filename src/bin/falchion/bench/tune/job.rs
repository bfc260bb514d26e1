//! A problem to tune: one GEMM, a batch, or groups of rows, plain or with a fused epilogue.

use collective::Formula;
use cute_rs::atom::Major;
use kernel::{GemmProblem, Known, Request, Selection, Types};

use crate::bench::arena;
use crate::engine::machine;
use crate::{Failure, memory};

/// A request, and the data that it borrows.
#[derive(Clone, Debug)]
pub(super) struct Job {
    types: Types,
    majors: [Major; 2],
    fusion: Option<Formula>,
    /// The extents of one GEMM. For groups of rows, M is the sum of all rows.
    problem: GemmProblem,
    batch: Option<u32>,
    groups: Vec<GemmProblem>,
    /// Rows of the buffer of each group, if each has one.
    max_rows: Option<u32>,
    reproducible: bool,
}

impl Job {
    /// One GEMM, or a batch of this shape.
    pub(super) fn new(
        types: Types,
        majors: [Major; 2],
        fusion: Option<Formula>,
        (problem, batch): (GemmProblem, Option<u32>),
    ) -> Result<Self, Failure> {
        Self {
            types,
            majors,
            fusion,
            problem,
            batch,
            groups: Vec::new(),
            max_rows: None,
            reproducible: false,
        }
        .possible()
    }

    /// Groups of rows with the same N and K.
    pub(super) fn of_rows(
        types: Types,
        majors: [Major; 2],
        fusion: Option<Formula>,
        (rows, n, k): (&[u32], u32, u32),
    ) -> Result<Self, Failure> {
        let all: u64 = rows.iter().copied().map(u64::from).sum();
        let m = u32::try_from(all).ok().filter(|&m| m > 0 && m <= i32::MAX as u32);
        let needed = "1 to 2147483647 were needed, in groups of any size";
        let m = m.ok_or_else(|| Failure::usage(format!("--rows has {all} rows in all; {needed}")))?;
        let groups = rows.iter().map(|&m| GemmProblem { m, n, k }).collect();
        let problem = GemmProblem { m, n, k };
        Self { types, majors, fusion, problem, batch: None, groups, max_rows: None, reproducible: false }
            .possible()
    }

    /// The same groups, each at the start of a buffer of its own of this number of rows.
    pub(super) fn in_buffers(self, max_rows: Option<u32>) -> Result<Self, Failure> {
        if let Some(rows) = max_rows {
            let count = self.groups.len() as u64;
            let m = u32::try_from(u64::from(rows) * count).ok().filter(|&m| m <= i32::MAX as u32);
            let most = "at most 2147483647 rows in all were needed";
            let m =
                m.ok_or_else(|| Failure::usage(format!("--max-rows is {rows} for {count} groups; {most}")))?;
            arena::several(GemmProblem { m, ..self.problem }, 1)?;
        }
        Ok(Self { max_rows, ..self })
    }

    /// The same, for kernels that all sum in the same order.
    pub(super) fn reproducible(self, reproducible: bool) -> Self {
        Self { reproducible, ..self }
    }

    /// Fails if this machine has not enough memory.
    fn possible(self) -> Result<Self, Failure> {
        arena::several(self.problem, self.batch.unwrap_or(1))?;
        if self.fusion.is_some() {
            memory::drawn(self.problem)?;
        }
        let weights = |problem: &GemmProblem| u128::from(problem.n) * u128::from(problem.k);
        let weights: u128 = self.groups.iter().map(weights).sum();
        let bytes = weights * u128::from(self.types.b.bytes());
        memory::enough(&format!("--rows of {} groups", self.groups.len()), bytes, "--rows, --n or --k")?;
        Ok(self)
    }

    /// Whether it is one GEMM, not several.
    pub(super) fn is_one(&self) -> bool {
        self.batch.is_none() && self.groups.is_empty()
    }

    /// The request, without tuning records.
    pub(super) fn request(&self) -> Request<'_> {
        let request = Request::packed(self.types, self.majors, self.problem).known(Known::Nothing);
        let request = match (self.batch, &self.groups[..]) {
            (Some(count), _) => request.batched(count),
            (None, []) => request,
            (None, groups) => match self.max_rows {
                Some(rows) => request.masked(rows, groups),
                None => request.ragged(groups),
            },
        };
        Request { fusion: self.fusion, reproducible: self.reproducible, ..request }
    }

    /// The `most` kernels that are ranked first.
    pub(super) fn search(&self, most: usize, known: Known<'_>) -> Selection {
        kernel::search(&self.request().known(known), machine(), most)
    }
}
