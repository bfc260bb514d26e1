//! Checks of a call's matrices, for one GEMM and for all GEMMs of a launch.

use collective::{
    Batch, Code, Form, LinearArguments, Matrix, MatrixRef, Output, Plan, Record, sparse, weights,
};
use cute_rs::atom::{Major, unit};

use crate::error::LaunchError;
use crate::problem::{Call, GemmProblem, WorkspaceRef};
use crate::products::GroupedProblem;

/// What a kernel requires of D.
pub(crate) struct OutputRule {
    /// Bits per element.
    pub(crate) bits: u32,
    /// D's address, row length and stride between rows must be multiples of this number of bytes.
    pub(crate) alignment: u64,
    /// D has `N >> halvings` columns.
    pub(crate) halvings: u32,
}

impl OutputRule {
    /// What kernels of a plan require.
    pub(crate) fn of(plan: &Plan) -> Self {
        let epilogue = &plan.epilogue;
        Self {
            bits: epilogue.output.bits(),
            alignment: epilogue.alignment.into(),
            halvings: epilogue.halvings,
        }
    }
}

/// The matrices that [`Call::check`] accepted.
pub(crate) struct Checked {
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) d: Output,
}

/// Alignment of a workspace in bytes.
pub(crate) const WORKSPACE_ALIGNMENT: u64 = 128;

impl<E> Call<E> {
    /// The workspace's address, if it has at least `needed` bytes.
    pub(crate) fn workspace_for(&self, needed: u64) -> Result<u64, LaunchError> {
        let given = self.workspace.unwrap_or(WorkspaceRef { address: 0, bytes: 0 });
        if needed == 0 {
            return Ok(0);
        }
        if given.bytes < needed || given.address == 0 {
            return Err(LaunchError::Workspace { bytes: given.bytes, needed });
        }
        if !given.address.is_multiple_of(WORKSPACE_ALIGNMENT) {
            let (name, alignment) = ("the workspace", WORKSPACE_ALIGNMENT);
            return Err(LaunchError::Address { name, address: given.address, alignment });
        }
        Ok(given.address)
    }

    /// Checks everything that does not depend on the tile.
    pub(crate) fn check(
        &self,
        plan: &Plan,
        output: &OutputRule,
        multiplied: bool,
    ) -> Result<Checked, LaunchError> {
        let spec = &plan.mainloop;
        let [a_major, b_major] = plan.majors();
        let GemmProblem { m, n, k } = self.problem;
        self.problem.limited()?;
        // If nothing is multiplied (alpha = 0), K counts as 0 and A and B are not read.
        let k = if multiplied { k } else { 0 };
        let empty = m == 0 || n == 0 || k == 0;
        let [a_bits, b_bits] = plan.operand_bits();
        let [a_staged, b_staged] = plan.operands_staged();
        let (weights, sparse) = (plan.weights(), plan.sparse());
        let operand = |(name, i): (&'static str, usize), matrix: MatrixRef, mn, major: Major, bits: u32| {
            let empty = empty || ![a_staged, b_staged][i];
            if let Some(weights) = weights[i] {
                if !empty {
                    check_weights(name, matrix, [mn, k], weights.code)?;
                }
                let (address, ld) = if empty { (0, 64) } else { (matrix.address, matrix.ld) };
                return Ok(Matrix { address, mn, k, ld, batch: Batch::ONE });
            }
            let bytes = u64::from(bits / 8);
            let (contiguous, lines) = match major {
                // A sparse operand is always the kernel's A.
                Major::K if sparse[i] => (sparse::kept(spec.operands[0].format, k), mn),
                Major::K => (k, mn),
                Major::Mn => (mn, k),
            };
            if !empty {
                let alignment = spec.producer.alignment(bits).into();
                let rule = MatrixRule { name, contiguous, lines, bytes, alignment };
                rule.check(matrix)?;
            }
            // If nothing is multiplied, nothing is read. The tensor map must still be legal.
            let ld = if empty { 16 / bytes } else { matrix.ld };
            let address = if empty { 0 } else { matrix.address };
            Ok::<_, LaunchError>(Matrix { address, mn, k, ld, batch: Batch::ONE })
        };
        let a = operand(("A", 0), self.a, m, a_major, a_bits)?;
        let b = operand(("B", 1), self.b, n, b_major, b_bits)?;
        let OutputRule { bits, alignment, halvings } = *output;
        let (columns, bytes) = (n >> halvings, u64::from(bits / 8));
        if m > 0 && n > 0 {
            MatrixRule { name: "D", contiguous: columns, lines: m, bytes, alignment }.check(self.d)?;
        }
        let row_bytes = u64::from(columns) * bytes;
        if m > 0 && !row_bytes.is_multiple_of(alignment) {
            return Err(LaunchError::Row { name: "D", bytes: row_bytes, alignment });
        }
        let d = Output { address: self.d.address, m, n: columns, ld: self.d.ld, batch: Batch::ONE };
        Ok(Checked { a, b, d })
    }
}

impl GroupedProblem {
    /// The matrices of all GEMMs, checked. `first` holds those of the first GEMM, which have been checked;
    /// the references are A, B and D with their strides.
    pub(crate) fn checked(
        &self,
        plan: &Plan,
        first: Checked,
        output: &OutputRule,
        [a_ref, b_ref, d_ref]: [MatrixRef; 3],
    ) -> Result<Checked, LaunchError> {
        let Checked { a, b, d } = first;
        let [a_bits, b_bits] = plan.operand_bits();
        let rule = |name, bits: u32| {
            let alignment = plan.mainloop.producer.alignment(bits).into();
            StrideRule { name, bits: bits.into(), alignment }
        };
        // If nothing is multiplied, nothing is read.
        let operand = |(name, bits), matrix: Matrix, count, of: MatrixRef| match matrix.k {
            0 => Ok(matrix),
            _ => {
                let batch = rule(name, bits).check(count, of.stride, matrix.address)?;
                Ok::<_, LaunchError>(Matrix { batch, ..matrix })
            }
        };
        let outputs = |count| {
            let rule = StrideRule { name: "D", bits: output.bits.into(), alignment: output.alignment };
            let batch = rule.check(count, d_ref.stride, d.address)?;
            let d = Output { batch, ..d };
            if !apart(d) {
                let (stride, Output { m, n, ld, .. }) = (d_ref.stride, d);
                return Err(LaunchError::Overlap { stride, m, n, ld });
            }
            Ok(d)
        };
        match *self {
            Self::One => Ok(Checked { a, b, d }),
            Self::Batched { count } => {
                let d = outputs(count)?;
                Ok(Checked {
                    a: operand(("A", a_bits), a, count, a_ref)?,
                    b: operand(("B", b_bits), b, count, b_ref)?,
                    d,
                })
            }
            Self::GroupedContiguous { count, offsets } => {
                table(count, ("the groups' offsets", offsets, 4))?;
                Ok(Checked { a, b: operand(("B", b_bits), b, count, b_ref)?, d })
            }
            Self::GroupedMasked { count, rows, room } => {
                table(count, ("the groups' numbers of rows", rows, 4))?;
                if u64::from(count) * u64::from(room) > d.m.into() {
                    return Err(LaunchError::StageSlot { count, room, rows: d.m });
                }
                Ok(Checked { a, b: operand(("B", b_bits), b, count, b_ref)?, d })
            }
            Self::KGrouped { count, offsets } => {
                table(count, ("the groups' offsets", offsets, 4))?;
                Ok(Checked { a, b, d: outputs(count)? })
            }
            Self::PointerArray { count, records } => {
                table(count, ("the records", records, Record::BYTES[1].into()))?;
                Ok(Checked { a, b, d })
            }
        }
    }
}

/// Checks C.
pub(crate) fn check_c(arguments: &LinearArguments, c_bits: u32, [m, n]: [u32; 2]) -> Result<(), LaunchError> {
    match arguments.c {
        _ if arguments.beta == 0.0 => Ok(()),
        None => Err(LaunchError::MissingC { beta: arguments.beta }),
        Some(_) if m == 0 || n == 0 => Ok(()),
        Some(c) => {
            let bytes = u64::from(c_bits / 8);
            MatrixRule { name: "C", contiguous: n, lines: m, bytes, alignment: bytes }.check(c)
        }
    }
}

/// What a matrix must satisfy. A [`Kernel`](crate::Kernel) of your own checks its calls with it.
#[derive(Clone, Copy, Debug)]
pub struct MatrixRule {
    /// The matrix's name in errors.
    pub name: &'static str,
    /// Number of contiguous elements per row (or column).
    pub contiguous: u32,
    /// Number of such rows or columns.
    pub lines: u32,
    /// Bytes per element.
    pub bytes: u64,
    /// The matrix's address and leading dimension must be multiples of this number of bytes.
    pub alignment: u64,
}

impl MatrixRule {
    /// Checks a matrix.
    ///
    /// # Errors
    /// [`LaunchError::Null`], [`LaunchError::Address`], [`LaunchError::ShortLd`], [`LaunchError::Pitch`] (also
    /// 2^40 B or more) or [`LaunchError::End`].
    pub fn check(&self, matrix: MatrixRef) -> Result<(), LaunchError> {
        let Self { name, contiguous, lines, bytes, alignment } = *self;
        if matrix.address == 0 {
            return Err(LaunchError::Null { name });
        }
        if !matrix.address.is_multiple_of(alignment) {
            return Err(LaunchError::Address { name, address: matrix.address, alignment });
        }
        if matrix.ld < u64::from(contiguous) {
            return Err(LaunchError::ShortLd { name, ld: matrix.ld, needed: contiguous });
        }
        let pitch_bytes = u128::from(matrix.ld) * u128::from(bytes);
        if !pitch_bytes.is_multiple_of(alignment.into()) || pitch_bytes >= 1 << 40 {
            return Err(LaunchError::Pitch { name, bytes: pitch_bytes, alignment });
        }
        let last = u128::from(lines.saturating_sub(1)) * pitch_bytes;
        within(name, matrix.address, last + u128::from(contiguous) * u128::from(bytes))
    }
}

/// Checks weights that are stored in units: blocks of 64 rows, with whole units along K.
fn check_weights(
    name: &'static str,
    matrix: MatrixRef,
    [rows, k]: [u32; 2],
    code: Code,
) -> Result<(), LaunchError> {
    let MatrixRef { address, ld, .. } = matrix;
    let (unit_k, alignment) = (u64::from(unit::k(code.bits())), 16);
    if address == 0 {
        return Err(LaunchError::Null { name });
    }
    if !address.is_multiple_of(alignment) {
        return Err(LaunchError::Address { name, address, alignment });
    }
    if ld < weights::ld(code, k) {
        let needed = u32::try_from(weights::ld(code, k)).unwrap_or(u32::MAX);
        return Err(LaunchError::ShortLd { name, ld, needed });
    }
    if !ld.is_multiple_of(unit_k) || ld >= 1 << 34 {
        let bytes = u128::from(ld) * u128::from(code.bits()) / 8;
        return Err(LaunchError::Pitch { name, bytes, alignment: unit_k * u64::from(code.bits()) / 8 });
    }
    let rows = u128::from(rows.next_multiple_of(unit::ROWS));
    within(name, address, rows * u128::from(ld) * u128::from(code.bits()) / 8)
}

/// Checks that an address plus a number of bytes does not pass the end of the address space.
pub(crate) fn within(name: &'static str, address: u64, bytes: u128) -> Result<(), LaunchError> {
    if u128::from(address) + bytes > 1 << 64 {
        return Err(LaunchError::End { name, address, bytes });
    }
    Ok(())
}

/// Checks the number of groups and the address of the table that describes them.
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

/// What the distance between the matrices of a batch must satisfy.
#[derive(Clone, Copy, Debug)]
pub struct StrideRule {
    /// The matrices' name in errors.
    pub name: &'static str,
    /// Bits per element.
    pub bits: u64,
    /// The distance must be a multiple of this number of bytes.
    pub alignment: u64,
}

impl StrideRule {
    /// Checks the distance, in elements, between `count` matrices of which the first is at `address`.
    ///
    /// # Errors
    /// [`LaunchError::Distance`] or [`LaunchError::End`].
    pub fn check(&self, count: u32, stride: u64, address: u64) -> Result<Batch, LaunchError> {
        let Self { name, bits, alignment } = *self;
        let stride_bytes = u128::from(stride) * u128::from(bits) / 8;
        if count > 1 && (!stride_bytes.is_multiple_of(alignment.into()) || stride_bytes >= 1 << 40) {
            return Err(LaunchError::Distance { name, bytes: stride_bytes, alignment });
        }
        if count > 1 {
            within(name, address, u128::from(count - 1) * stride_bytes + u128::from(bits / 8))?;
        }
        Ok(Batch { count, stride: if count > 1 { stride } else { 0 } })
    }
}

/// Whether no two outputs share an element. Either each output ends before the next begins, or the rows of
/// all outputs are next to each other.
pub(crate) fn apart(Output { m, n, ld, batch: Batch { count, stride }, .. }: Output) -> bool {
    let [m, n, count] = [m, n, count].map(u128::from);
    let [ld, stride] = [ld, stride].map(u128::from);
    count <= 1 || stride >= m.saturating_sub(1) * ld + n || stride >= n && ld >= (count - 1) * stride + n
}
