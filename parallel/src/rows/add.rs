//! Adds a matrix to another one.

use falchion::collective::Format;
use falchion::kernel::operands::{Contents, Extents, Visit};
use falchion::kernel::{Kernel, Launch, LaunchError, MatrixRef, Program};
use falchion::ptx::{Builder, Scalar, VerifyError};
use half::{bf16, f16};

use super::{check, each_row, each_vector, function, grid, load, store};

/// `D = D + X`, in `bf16` or `f16`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Add {
    pub(crate) format: Format,
}

/// What is added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Added {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) x: MatrixRef,
    pub(crate) d: MatrixRef,
}

impl Kernel<Added> for Add {
    fn program(&self) -> Result<Program, VerifyError> {
        let name = format!("add_{}", self.format.name());
        Program::new(function(name, 0, |f| match self.format {
            Format::F16 => emit::<f16>(f),
            _ => emit::<bf16>(f),
        }))
    }

    fn launch(&self, call: &Added, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Added { rows, columns, x, d } = *call;
        if rows == 0 || columns == 0 {
            return Ok(None);
        }
        check(self, call, columns)?;
        let arguments = vec![
            x.address.into(),
            (2 * x.ld).into(),
            d.address.into(),
            (2 * d.ld).into(),
            rows.into(),
            columns.into(),
        ];
        Ok(Some(Launch { grid: grid(rows, resident), arguments }))
    }

    fn visit(&self, call: &mut Added, visit: &mut dyn Visit) {
        let Added { rows, columns, x, d } = call;
        let all = Extents { lines: *rows, ..Extents::line(16, u64::from(*columns)) };
        visit.matrix("the residual", (Contents::Source(self.format), false), x, all);
        visit.matrix("D", (Contents::Output(self.format), true), d, all);
        [rows, columns].into_iter().for_each(|number| visit.count(number));
    }
}

fn emit<T: Scalar>(f: &Builder) {
    let (x, x_ld) = (f.param::<u64>("x"), f.number::<u64>("x_ld"));
    let (d, d_ld) = (f.param::<u64>("d"), f.number::<u64>("d_ld"));
    let [rows, columns] = ["rows", "columns"].map(|name| f.param::<u32>(name));
    each_row(f, rows, |row| {
        each_vector(f, columns, |vector| {
            let at = vector.mul_wide(16);
            let to = d + row.cast::<u64>() * d_ld + at;
            let x = load::<T>(f, x + row.cast::<u64>() * x_ld + at);
            let sums: Vec<_> = load::<T>(f, to).into_iter().zip(x).map(|(d, x)| d + x).collect();
            store::<T>(f, to, &sums);
        });
    });
}
