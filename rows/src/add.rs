//! Adds a matrix to another one.

use collective::Format;
use half::{bf16, f16};
use kernel::operands::{Contents, Extents, Visit};
use kernel::{Kernel, Launch, LaunchError, MatrixRef, Program};
use ptx::{Builder, Scalar, VerifyError};

use crate::common::{
    VECTOR, each_row, each_vector, launch, load, matrix, program, steps, store, visit_matrix,
};

/// `D = D + X`, in `bf16` or `f16`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowAdd {
    /// `bf16` or `f16`.
    pub format: Format,
}

/// What is added.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    /// Rows of both matrices.
    pub rows: u32,
    /// Columns of both, a multiple of 8.
    pub columns: u32,
    /// What is added.
    pub x: MatrixRef,
    /// What it is added to.
    pub d: MatrixRef,
}

impl Kernel<Added> for RowAdd {
    fn program(&self) -> Result<Program, VerifyError> {
        let name = format!("add_{}", self.format.name());
        program(self, name, 0, |f| if self.format == Format::F16 { emit::<f16>(f) } else { emit::<bf16>(f) })
    }

    fn launch(&self, call: &Added, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Added { rows, columns, .. } = *call;
        if rows == 0 || columns == 0 {
            return Ok(None);
        }
        launch(self, call, (columns, VECTOR), [rows, resident])
    }

    fn total_work(&self, call: &Added) -> u128 {
        steps(call.rows, call.columns)
    }

    fn visit(&self, call: &mut Added, visit: &mut dyn Visit) {
        let Added { rows, columns, x, d } = call;
        let all = Extents { lines: *rows, ..Extents::line(16, u64::from(*columns)) };
        // D is read, too.
        let contents = Contents::Source(self.format);
        visit_matrix(visit, ["x", "x_ld"], ("the residual", contents, false), x, all);
        visit_matrix(visit, ["d", "d_ld"], ("D", contents, true), d, all);
        visit.counted("rows", rows);
        visit.counted("columns", columns);
    }
}

fn emit<T: Scalar>(f: &Builder) {
    let [x, d] = [["x", "x_ld"], ["d", "d_ld"]].map(|names| matrix(f, names));
    let [rows, columns] = ["rows", "columns"].map(|name| f.parameter::<u32>(name));
    each_row(f, rows, |row| {
        each_vector(f, columns, |vector| {
            let at = vector.mul_wide(16);
            let to = d(row) + at;
            let x = load::<T>(f, x(row) + at);
            let sums: Vec<_> = load::<T>(f, to).into_iter().zip(x).map(|(d, x)| d + x).collect();
            store::<T>(f, to, &sums);
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum may not be over the residual, or over a part of it.
    #[test]
    fn the_sum_is_apart_from_what_is_added() {
        let add = RowAdd { format: Format::Bf16 };
        for (x, apart) in [(0x2000, true), (0x1000, false), (0x1000 + 16, false), (0x1000 - 16, false)] {
            let [x, d] = [x, 0x1000].map(|address| MatrixRef::new(address, 64));
            let launch = add.launch(&Added { rows: 3, columns: 64, x, d }, 132);
            assert_eq!(launch.is_ok(), apart, "{launch:?}");
            if let Err(error) = launch {
                assert!(matches!(error, LaunchError::Shared { .. }), "{error}");
            }
        }
    }
}
