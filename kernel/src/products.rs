//! The number of GEMMs in a launch, and where the matrices of each are.

use collective::Form;

use crate::error::LaunchError;
use crate::problem::GemmProblem;

/// The GEMMs of one launch: one, a batch, groups of rows, or an array of problems.
///
/// A [`Call`](crate::Call) names the matrices of the first GEMM. The `stride` of each matrix
/// ([`MatrixRef::every`](collective::MatrixRef::every)) is the distance in elements to the same matrix of the
/// next GEMM. It is 0 where all GEMMs share one matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum GroupedProblem {
    /// One GEMM.
    #[default]
    One,
    /// A batch: several GEMMs of one shape. The D matrices must not overlap.
    Batched {
        /// Number of GEMMs.
        count: u32,
    },
    /// Groups of consecutive rows, each with its own B (MoE grouped GEMM). The call's M is the number of rows
    /// of A, C and D; it may be more than the groups use.
    GroupedContiguous {
        /// Number of groups, at most [`Form::MOST_GROUPS`] and at most [those of the kernel](collective::Plan::most_groups).
        count: u32,
        /// Device address of `count + 1` offsets (`u32`): group `i` is rows `offsets[i]` up to, but not
        /// including, `offsets[i + 1]`. The kernel reads the offsets, so a kernel before it may compute them.
        /// An offset smaller than one before it counts as that one. An offset beyond the last row counts as
        /// the number of rows.
        offsets: u64,
    },
    /// Groups of rows in buffers of one size, each with its own B. Group `i` is at row `i * room` of A, C and
    /// D, and uses the first rows of its buffer. The call's M is the number of rows of all buffers, at least
    /// `count * room`.
    GroupedMasked {
        /// Number of groups, at most [`Form::MOST_GROUPS`] and at most [those of the kernel](collective::Plan::most_groups).
        count: u32,
        /// Device address of `count` row counts (`u32`), one per group. The kernel reads them, so a kernel
        /// before it may compute them. A count above `room` counts as `room`.
        rows: u64,
        /// Rows per buffer.
        room: u32,
    },
    /// Groups along K: each GEMM is a range of K of the same A and B, with its own D. For example, the weight
    /// gradients of experts. The call's K is that of A and B, which all groups share; M and N are those of
    /// each group. D (and C) is a batch, as for [`Batched`](Self::Batched). An empty group has D = beta * C.
    ///
    /// Block scales are those of one GEMM with the call's K: the blocks of a group follow those of the groups
    /// before it.
    KGrouped {
        /// Number of groups, at most [`Form::MOST_GROUPS`] and at most [those of the kernel](collective::Plan::most_groups).
        count: u32,
        /// Device address of `count + 1` offsets (`u32`): group `i` is K from `offsets[i]` up to, but not
        /// including, `offsets[i + 1]`. The kernel reads the offsets, so a kernel before it may compute them.
        ///
        /// An offset must be a multiple of the kernel's tile K, or K itself. Tile K is 128 with block scales, and
        /// divides [`K_STEP`](Self::K_STEP) for each kernel that a [selection](crate::select) finds.
        /// Any other offset counts as the next multiple of tile K; an offset beyond K counts as K. A group
        /// that ends before it begins counts as empty.
        offsets: u64,
    },
    /// GEMMs of any shapes (pointer array). Records in device memory describe the shape and the matrices of
    /// each; the call's own matrices are ignored. The GEMMs may use parts of the same matrices. For example,
    /// groups along K that begin at any element are records that differ in K and in the addresses of A and B.
    ///
    /// The workspace must be memory of this kernel's own. It has the number of bytes that
    /// [`AnyGemm::workspace`](crate::AnyGemm::workspace) returns, and is zero before the first launch.
    PointerArray {
        /// Number of GEMMs, at most [`Form::MOST_GROUPS`] and at most [those of the kernel](collective::Plan::most_groups).
        count: u32,
        /// Device address of `count` consecutive [`Record`](collective::Record)s, a multiple of 16 bytes.
        records: u64,
    },
}

impl GroupedProblem {
    /// Offsets that are multiples of this are right for all kernels that a [selection](crate::select) finds
    /// for [`KGrouped`](Self::KGrouped).
    pub const K_STEP: u32 = 128;

    /// The name of the memory that says where groups begin.
    pub const OFFSETS: &str = "the groups' offsets";
    /// The name of the memory that says how many rows groups use.
    pub const ROWS: &str = "the groups' numbers of rows";
    /// The name of the memory that has the records.
    pub const RECORDS: &str = "the records";

    /// The form of the kernels that compute these GEMMs.
    pub fn form(&self) -> Form {
        match self {
            Self::One => Form::Single,
            Self::Batched { .. } => Form::Batched,
            Self::GroupedContiguous { .. } => Form::GroupedContiguous,
            Self::GroupedMasked { .. } => Form::GroupedMasked,
            Self::KGrouped { .. } => Form::KGrouped,
            Self::PointerArray { .. } => Form::PointerArray,
        }
    }

    /// Number of GEMMs or groups.
    pub fn count(&self) -> u32 {
        match *self {
            Self::One => 1,
            Self::Batched { count }
            | Self::GroupedContiguous { count, .. }
            | Self::GroupedMasked { count, .. }
            | Self::KGrouped { count, .. }
            | Self::PointerArray { count, .. } => count,
        }
    }

    /// The same with the table of offsets, rows or records at a device address, if there is one.
    #[must_use]
    pub const fn at(self, table: u64) -> Self {
        match self {
            Self::One | Self::Batched { .. } => self,
            Self::GroupedContiguous { count, .. } => Self::GroupedContiguous { count, offsets: table },
            Self::GroupedMasked { count, room, .. } => Self::GroupedMasked { count, room, rows: table },
            Self::KGrouped { count, .. } => Self::KGrouped { count, offsets: table },
            Self::PointerArray { count, .. } => Self::PointerArray { count, records: table },
        }
    }

    /// Numbers of different matrices A, B and D, as far as the call says where they are.
    pub(crate) fn matrices(&self) -> [u32; 3] {
        match *self {
            Self::One | Self::PointerArray { .. } => [1; 3],
            Self::Batched { count } => [count; 3],
            Self::GroupedContiguous { count, .. } | Self::GroupedMasked { count, .. } => [1, count, 1],
            Self::KGrouped { count, .. } => [1, 1, count],
        }
    }

    /// The same GEMMs for a kernel of a given form: one GEMM is also a batch of one.
    pub(crate) fn for_form(self, form: Form) -> Result<Self, LaunchError> {
        match (self, form) {
            (Self::One, Form::Batched) => Ok(Self::Batched { count: 1 }),
            _ if self.form() == form => Ok(self),
            _ => Err(LaunchError::Form { kernel: form, call: self.form() }),
        }
    }

    /// Checks the numbers that divide the rows or K of a problem among groups, if the host knows them: that they do not fall, and none is
    /// beyond the last row, or K. Offsets along K are multiples of `step`, or K itself.
    ///
    /// # Errors
    /// The first number that is wrong. A kernel takes it for the nearest that is right.
    pub fn check_table(&self, problem: GemmProblem, step: u32, table: &[u32]) -> Result<(), LaunchError> {
        let GemmProblem { m, k, .. } = problem;
        let (what, most, step) = match *self {
            Self::One | Self::Batched { .. } | Self::PointerArray { .. } => return Ok(()),
            Self::GroupedContiguous { .. } => ("offset", m, 1),
            Self::GroupedMasked { room, .. } => ("number of rows", room, 1),
            Self::KGrouped { .. } => ("offset", k, step.max(1)),
        };
        let mut least = 0;
        for (i, &found) in table.iter().enumerate() {
            if found < least || found > most || !(found.is_multiple_of(step) || found == most) {
                let multiple = if step > 1 { format!(", a multiple of {step} or K,") } else { String::new() };
                return Err(LaunchError::Problem {
                    reason: format!(
                        "{what} {i} of the groups is {found}, a number from {least} to {most}{multiple} was needed"
                    ),
                });
            }
            least = if matches!(self, Self::GroupedMasked { .. }) { 0 } else { found };
        }
        Ok(())
    }

    /// The numbers that divide the rows or K among groups of these extents, as a kernel reads them from device
    /// memory: offsets, or numbers of rows. Empty for GEMMs that need no table.
    pub fn table(&self, groups: &[GemmProblem]) -> Vec<u32> {
        let ends = |of: fn(&GemmProblem) -> u32| {
            let ends = groups.iter().scan(0u32, |end, group| {
                *end = end.saturating_add(of(group));
                Some(*end)
            });
            core::iter::once(0).chain(ends).collect()
        };
        match self {
            Self::GroupedContiguous { .. } => ends(|group| group.m),
            Self::KGrouped { .. } => ends(|group| group.k),
            Self::GroupedMasked { .. } => groups.iter().map(|group| group.m).collect(),
            Self::One | Self::Batched { .. } | Self::PointerArray { .. } => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::GroupedProblem::{GroupedContiguous, GroupedMasked, KGrouped, One};
    use super::*;

    #[test]
    fn tables_that_the_host_knows_are_checked() {
        let problem = GemmProblem { m: 40, n: 8, k: 300 };
        let rows = GroupedContiguous { count: 3, offsets: 16 };
        let masked = GroupedMasked { count: 3, rows: 16, room: 10 };
        let along_k = KGrouped { count: 3, offsets: 16 };
        for (products, table, wanted) in [
            (One, &[9, 1][..], ""),
            (rows, &[0, 17, 17, 40], ""),
            (rows, &[3, 17, 17, 39], ""),
            (rows, &[0, 17, 16, 40], "offset 2 of the groups is 16, a number from 17 to 40 was needed"),
            (rows, &[0, 17, 17, 41], "offset 3 of the groups is 41, a number from 17 to 40"),
            (masked, &[10, 0, 3], ""),
            (masked, &[10, 11, 3], "number of rows 1 of the groups is 11, a number from 0 to 10"),
            (along_k, &[0, 128, 256, 300], ""),
            (
                along_k,
                &[0, 128, 250, 300],
                "offset 2 of the groups is 250, a number from 128 to 300, a multiple of 64 or K,",
            ),
            (along_k, &[0, 128, 256, 301], "offset 3 of the groups is 301"),
        ] {
            let found = products.check_table(problem, 64, table).map_err(|error| error.to_string());
            match wanted {
                "" => assert_eq!(found, Ok(()), "{table:?}"),
                words => assert!(found.clone().is_err_and(|of| of.contains(words)), "{words}: {found:?}"),
            }
        }
    }
}
