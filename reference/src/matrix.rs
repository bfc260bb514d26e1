//! Matrices on the host.
//!
//! ```
//! use reference::{Format, HostMatrix, Order};
//!
//! let a = HostMatrix::from_fn(Format::F16, [2, 3], Order::RowMajor, 4, |row, column| f64::from(row * 3 + column));
//! assert_eq!((a.get(1, 2), a.index(1, 2), a.bytes().len()), (5.0, 6, 16));
//! ```

use crate::Format;

/// The contiguous direction of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Rows are contiguous (C order).
    RowMajor,
    /// Columns are contiguous (Fortran order).
    ColumnMajor,
}

/// A dense matrix on the host, with padded rows or columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostMatrix {
    /// Element format.
    pub format: Format,
    /// Number of rows.
    pub rows: u32,
    /// Number of columns.
    pub columns: u32,
    /// Contiguous direction.
    pub order: Order,
    /// Leading dimension in elements: the distance from one row (or column) to the next.
    pub ld: u32,
    /// The bits of the elements, including padding, one word per element.
    pub bits: Vec<u64>,
}

/// The distribution of random elements. For integer formats it is ignored: each integer of the format is
/// equally likely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Normally distributed values with mean 0 and standard deviation 1.
    Normal,
    /// As `Normal`, with NaN and both infinities at 1 of 200 places each.
    Special,
    /// NaN everywhere.
    Nan,
    /// Multiples of the smallest subnormal of the format, from -100 to 100.
    Subnormal,
}

impl HostMatrix {
    /// A matrix of `value(row, column)`, rounded to `format`. `ld` is the leading dimension in elements.
    /// Padding is NaN, or for integers the largest value.
    pub fn from_fn(
        format: Format,
        [rows, columns]: [u32; 2],
        order: Order,
        ld: u32,
        mut value: impl FnMut(u32, u32) -> f64,
    ) -> Self {
        let lines = if order == Order::RowMajor { rows } else { columns };
        let padding = format.round(if format.is_integer() { f64::INFINITY } else { f64::NAN });
        let bits = vec![padding; ld as usize * lines as usize];
        let mut matrix = Self { format, rows, columns, order, ld, bits };
        for row in 0..rows {
            for column in 0..columns {
                let at = matrix.index(row, column);
                matrix.bits[at] = format.round(value(row, column));
            }
        }
        matrix
    }

    /// A random matrix. Its leading dimension is the contiguous extent, rounded up to a multiple of `pad`
    /// elements.
    pub fn random(
        format: Format,
        [rows, columns]: [u32; 2],
        order: Order,
        pad: u32,
        fill: Distribution,
        random: &mut fastrand::Rng,
    ) -> Self {
        let contiguous = if order == Order::RowMajor { columns } else { rows };
        let ld = contiguous.next_multiple_of(pad.max(1)).max(pad);
        Self::from_fn(format, [rows, columns], order, ld, |_, _| match fill {
            _ if format.is_integer() => format.decode(random.u32(..).into()),
            Distribution::Normal => normal(random),
            Distribution::Special => match random.u32(0..200) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => f64::NEG_INFINITY,
                _ => normal(random),
            },
            Distribution::Nan => f64::NAN,
            Distribution::Subnormal => f64::from(random.i32(-100..=100)) * format.tiniest(),
        })
    }

    /// The index of an element in [`bits`](Self::bits).
    pub fn index(&self, row: u32, column: u32) -> usize {
        let (line, place) = match self.order {
            Order::RowMajor => (row, column),
            Order::ColumnMajor => (column, row),
        };
        line as usize * self.ld as usize + place as usize
    }

    /// The value of an element.
    pub fn get(&self, row: u32, column: u32) -> f64 {
        self.format.decode(self.bits[self.index(row, column)])
    }

    /// The bytes of the matrix in device memory, including padding.
    pub fn bytes(&self) -> Vec<u8> {
        self.format.memory(&self.bits)
    }
}

/// A normally distributed value, by the Box-Muller transform.
fn normal(random: &mut fastrand::Rng) -> f64 {
    let (radius, angle) = (1.0 - random.f64(), random.f64() * core::f64::consts::TAU);
    (-2.0 * radius.ln()).sqrt() * angle.cos()
}
