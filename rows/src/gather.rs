//! Rows of a table, by their numbers.

use collective::Format;
use half::{bf16, f16};
use kernel::operands::{Contents, Extents, Visit};
use kernel::{Kernel, Launch, LaunchError, MatrixRef, Program};
use ptx::{Builder, Scalar, VerifyError};

use crate::common::{
    THREADS, VECTOR, each_of, each_row, each_vector, launch, load, matrix, program, steps, store,
    visit_matrix,
};

/// `D[i] = sum over j of weights[i, j] * table[index[i, j] - first]`, in the order of `j`. An index that is not the
/// table's adds nothing; one from `limit` on makes the row not a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowGather {
    /// `bf16` or `f16`; for copies, what has as many bits.
    pub format: Format,
    /// What becomes of the rows.
    pub how: Gathering,
}

/// What becomes of the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gathering {
    /// Each is copied, bit for bit: one index per row of D, which is the table's.
    Copied,
    /// The same in words of 4 bytes: rows of any number of pairs of 16-bit numbers.
    Words,
    /// They are added up.
    Summed,
    /// They are multiplied by weights, and added up.
    Weighted,
}

/// What is gathered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gathered {
    /// Rows of D.
    pub rows: u32,
    /// Columns of D and of the table: a multiple of 8; of 2 for [`Gathering::Words`].
    pub columns: u32,
    /// Indices of a row of D.
    pub choices: u32,
    /// The table and its number of rows.
    pub table: (MatrixRef, u32),
    /// The index of the table's first row.
    pub first: u32,
    /// All indices are below it.
    pub limit: u32,
    /// Indices, `u32`.
    pub index: u64,
    /// Weights, `f32`; 0 without.
    pub weights: u64,
    /// The result.
    pub d: MatrixRef,
}

impl Kernel<Gathered> for RowGather {
    fn program(&self) -> Result<Program, VerifyError> {
        let Self { format, how } = *self;
        let name = format!("gather_{}_{how:?}", format.name()).to_lowercase();
        let emit = if format == Format::F16 { emit::<f16> } else { emit::<bf16> };
        program(self, name, 0, |f| emit(f, how))
    }

    fn launch(&self, call: &Gathered, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Gathered { rows, columns, .. } = *call;
        if rows == 0 || columns == 0 {
            return Ok(None);
        }
        let vector = if self.how == Gathering::Words { 2 } else { VECTOR };
        launch(self, call, (columns, vector), [rows, resident])
    }

    fn total_work(&self, call: &Gathered) -> u128 {
        let Gathered { rows, columns, choices, .. } = *call;
        match self.how {
            Gathering::Words => u128::from(rows) * u128::from(columns.div_ceil(2 * THREADS)),
            Gathering::Copied => steps(rows, columns),
            Gathering::Summed | Gathering::Weighted => steps(rows, columns) * u128::from(choices.max(1)),
        }
    }

    fn visit(&self, call: &mut Gathered, visit: &mut dyn Visit) {
        let Gathered { rows, columns, choices, table, first, limit, index, weights, d } = call;
        let (length, count) = (u64::from(*columns), u64::from(*rows) * u64::from(*choices));
        let all = |lines| Extents { lines, ..Extents::line(16, length) };
        let (table, table_rows) = table;
        let contents = Contents::Source(self.format);
        visit_matrix(visit, ["table", "table_ld"], ("the table", contents, false), table, all(*table_rows));
        visit.counted("table_rows", table_rows);
        visit.counted("first", first);
        visit.counted("limit", limit);
        let line = Extents::line(32, count);
        // What is copied is in the table; of others, rows that are not add nothing.
        let below =
            if matches!(self.how, Gathering::Copied | Gathering::Words) { *table_rows } else { *limit };
        visit.input("index", ("the indices", index), line, Contents::Indices(below));
        if self.how == Gathering::Weighted {
            visit.input("weights", ("the weights", weights), line, Contents::Source(Format::F32));
        }
        visit_matrix(visit, ["d", "d_ld"], ("D", Contents::Output(self.format), true), d, all(*rows));
        visit.counted("rows", rows);
        visit.counted("columns", columns);
        visit.counted("choices", choices);
    }
}

fn emit<T: Scalar>(f: &Builder, how: Gathering) {
    let [table, d] = [["table", "table_ld"], ["d", "d_ld"]].map(|names| matrix(f, names));
    let [table_rows, first, limit] = ["table_rows", "first", "limit"].map(|name| f.parameter::<u32>(name));
    let index = f.parameter::<u64>("index");
    let weights = (how == Gathering::Weighted).then(|| f.parameter::<u64>("weights"));
    let [rows, columns, choices] = ["rows", "columns", "choices"].map(|name| f.parameter::<u32>(name));
    each_row(f, rows, |row| {
        let choice = row.cast::<u64>() * choices.cast::<u64>();
        let to = d(row);
        if matches!(how, Gathering::Copied | Gathering::Words) {
            let own = f.load_global::<u32>(index + choice * 4, 0);
            let from = table(own);
            if how == Gathering::Words {
                each_of(f, columns / 2, |word| {
                    let at = word.mul_wide(4);
                    f.store_global(to + at, 0, [f.load_global::<u32>(from + at, 0)]);
                });
            } else {
                each_vector(f, columns, |vector| {
                    let at = vector.mul_wide(16);
                    f.store_global(to + at, 0, f.load_global_vector::<u32, 4>(from + at, 0));
                });
            }
            return;
        }
        each_vector(f, columns, |vector| {
            let at = vector.mul_wide(16);
            // Minus zero adds nothing to any number, not even to its sign.
            let sums: [_; 8] = core::array::from_fn(|_| f.variable(-0.0f32));
            f.repeat(choices, |j| {
                let word = (choice + j.cast::<u64>()) * 4;
                let number = f.load_global::<u32>(index + word, 0);
                let own = number - first;
                f.if_(own.less_than(table_rows), || {
                    let weight = weights.map(|weights| f.load_global::<f32>(weights + word, 0));
                    let from = table(own) + at;
                    for (sum, x) in sums.iter().zip(load::<T>(f, from)) {
                        sum.set(weight.map_or_else(|| sum.get() + x, |weight| x.mul_add(weight, sum.get())));
                    }
                });
                f.if_(number.at_least(limit), || sums.iter().for_each(|sum| sum.set(f32::NAN)));
            });
            store::<T>(f, to + at, &sums.map(|sum| sum.get()));
        });
    });
}
