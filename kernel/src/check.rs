//! Checks of a call's matrices, for one GEMM and for all GEMMs of a launch.

use collective::{Batch, Matrix, MatrixRef, OperandSpec, Output, Plan, Record, WeightsSpec};
use cute_rs::atom::unit;

use crate::call::Call;
use crate::error::LaunchError;
use crate::matrix_rule::MatrixRule;
use crate::operands::Layouts;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::types::Types;

/// The matrices that [`Call::check`] accepted.
pub(crate) struct Checked {
    /// The kernel's A and B.
    pub(crate) operands: [Matrix; 2],
    pub(crate) d: Output,
}

impl<E> Call<E> {
    /// Checks everything that does not depend on the tile, for all GEMMs of the launch.
    pub(crate) fn check(&self, plan: &Plan, multiplied: bool) -> Result<Checked, LaunchError> {
        self.problem.limited()?;
        let GemmProblem { m, n, k } = self.problem;
        // If nothing is multiplied (alpha = 0), K counts as 0 and A and B are not read.
        let k = if multiplied { k } else { 0 };
        let written = m > 0 && n > 0 && self.products.count() > 0;
        let read = written && k > 0;
        let [a_count, b_count, d_count] = self.products.matrices().map(|count| count.max(1));
        let layouts = Layouts::new(Types::of_plan(plan), plan.majors());
        let operand = |i: usize, matrix: MatrixRef, mn: u32, count: u32| {
            let (of, (_, extents)) = (plan.call_operands()[i], layouts.operand(i, [mn, k]));
            let alignment =
                if of.weights.is_some() { 16 } else { plan.mainloop.producer.alignment(of.bits()) };
            let rule = MatrixRule::of(["A", "B"][i], &extents, alignment.into());
            // Of what is not read, the tensor map must still be legal.
            let ld = if of.weights.is_some() { 64 } else { 128 / rule.bits };
            let unread = MatrixRef { address: 0, ld, ..matrix };
            let matrix = if read && plan.given()[i] { matrix } else { unread };
            if read && plan.given()[i] {
                let checked = rule.check(matrix);
                // Units of weights are longer than what copies need.
                if matches!(checked, Ok(()) | Err(LaunchError::Pitch { .. })) {
                    check_units(of, &rule, matrix)?;
                }
                checked?;
            }
            let batch = if read { rule.batch(count, matrix)? } else { Batch::ONE };
            Ok::<_, LaunchError>(Matrix { address: matrix.address, mn, k, ld: matrix.ld, batch })
        };
        let (a, b) = (operand(0, self.a, m, a_count)?, operand(1, self.b, n, b_count)?);
        let (columns, alignment) = (n >> plan.epilogue.halvings, plan.epilogue.alignment.into());
        let bits = plan.epilogue.output.bits().into();
        let rule = MatrixRule { name: "D", contiguous: columns, lines: m, bits, alignment };
        let row_bytes = u64::from(columns) * bits / 8;
        if written {
            rule.check(self.d)?;
        }
        if m > 0 && !row_bytes.is_multiple_of(alignment) {
            return Err(LaunchError::Row { name: "D", bytes: row_bytes, alignment });
        }
        let mut d = Output { address: self.d.address, m, n: columns, ld: self.d.ld, batch: Batch::ONE };
        if written {
            d.batch = rule.batch(d_count, self.d)?;
            self.products.check(m, plan.most_groups())?;
        }
        if !apart(d) {
            let Output { m, n, ld, batch: Batch { stride, .. }, .. } = d;
            return Err(LaunchError::Overlap { stride, m, n, ld });
        }
        Ok(Checked { operands: plan.oriented([a, b]), d })
    }
}

impl GroupedProblem {
    /// Checks the table that describes the GEMMs, of which a launch of the kernel has at most `most`, and that M rows are enough.
    fn check(&self, m: u32, most: u32) -> Result<(), LaunchError> {
        let (name, address, bytes) = match *self {
            Self::One | Self::Batched { .. } => return Ok(()),
            Self::GroupedContiguous { offsets, .. } | Self::KGrouped { offsets, .. } => {
                (Self::OFFSETS, offsets, 4)
            }
            Self::GroupedMasked { rows, .. } => (Self::ROWS, rows, 4),
            Self::PointerArray { records, .. } => (Self::RECORDS, records, Record::BYTES[1].into()),
        };
        let groups = self.count();
        if groups > most {
            return Err(LaunchError::Groups { groups, most });
        }
        let rule = MatrixRule { name, contiguous: 1, lines: 1, bits: 8 * bytes, alignment: bytes };
        rule.check(MatrixRef::new(address, 1))?;
        if let Self::GroupedMasked { count, room, .. } = *self
            && u64::from(count) * u64::from(room) > m.into()
        {
            return Err(LaunchError::Room { count, room, rows: m });
        }
        Ok(())
    }
}

/// Checks that a line of weights in few bits has whole units along K.
fn check_units(
    of: OperandSpec,
    rule: &MatrixRule,
    MatrixRef { ld, .. }: MatrixRef,
) -> Result<(), LaunchError> {
    let Some(WeightsSpec { code, .. }) = of.weights else { return Ok(()) };
    let unit_k = u64::from(unit::k(code.bits()));
    if ld.is_multiple_of(unit_k) && ld < 1 << 34 {
        return Ok(());
    }
    let bytes = u128::from(ld) * u128::from(rule.bits) / 8;
    Err(LaunchError::Pitch { name: rule.name, bytes, alignment: unit_k * rule.bits / 8 })
}

/// Whether no two outputs share an element. Either each output ends before the next begins, or the rows of
/// all outputs are next to each other.
pub(crate) fn apart(Output { m, n, ld, batch: Batch { count, stride }, .. }: Output) -> bool {
    let [m, n, count] = [m, n, count].map(u128::from);
    let [ld, stride] = [ld, stride].map(u128::from);
    count <= 1 || stride >= m.saturating_sub(1) * ld + n || stride >= n && ld >= (count - 1) * stride + n
}

#[cfg(test)]
mod tests;
