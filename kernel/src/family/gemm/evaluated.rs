//! What an epilogue that evaluates itself writes: D, and whatever else.

use core::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use collective::tree::{Host, Shape, Written};
use collective::{Arithmetic, Bounded};
use rayon::prelude::*;
use reference::{DotProduct, Format, Wanted};

use super::super::{Allowed, Expected};
use super::matrices::Matrices;

/// The value of an epilogue at a row and a column of D. What else it writes, the host records.
pub(super) type Evaluate<'a> = &'a dyn Fn(&mut Host<'_>, [u32; 2]) -> Bounded;

/// Elements of D, and what else is written, by address.
type Results = (Vec<(usize, Vec<Allowed>)>, BTreeMap<u64, Written>);

/// Columns that are evaluated of a large D whose rows are reduced to one.
const COLUMNS: usize = 16;

/// Which elements are reduced to one number together.
#[derive(Clone, Copy, Default)]
struct Reduced {
    /// Elements of a row.
    rows: bool,
    /// Elements of a column, or of several GEMMs.
    columns: bool,
}

impl Matrices<'_> {
    /// What an epilogue writes. Of a large D with as many rows as are chosen, or, if it reduces elements of several rows to one number, with
    /// all rows and some columns; and with all if it reduces both.
    ///
    /// # Errors
    /// It writes where the call has no memory.
    pub(super) fn evaluated(&self, evaluate: Evaluate<'_>) -> Result<Vec<Expected>, String> {
        let (all, n) = (self.rows(), self.columns());
        let chosen = self.inputs.chosen(all.len());
        let reduced = self.reduces(evaluate);
        let some = self.inputs.chosen(n);
        let some = some.iter().step_by(some.len().div_ceil(COLUMNS).max(1)).copied().collect();
        let whole = chosen.len() == all.len() || reduced.rows && reduced.columns;
        let (of_d, written) = match reduced.columns {
            false => {
                let rows: Vec<_> = chosen.into_iter().map(|at| all[at]).collect();
                self.evaluated_at(&rows, None, evaluate)
            }
            true => self.evaluated_at(&all, if whole { None } else { Some(some) }, evaluate),
        };
        let mut results = BTreeMap::from([("D", of_d)]);
        results.entry("D").or_default().extend(self.kept());
        let kept = self.written_at(&self.kept_rows(), evaluate).into_iter();
        let kept = kept.filter(|address| !written.contains_key(address)).map(|at| (at, Allowed::Kept));
        let allowed = |(address, Written { format, unrounded, value }): (&u64, &Written)| {
            let format = Format::named(format.name()).unwrap_or(Format::F32);
            let wanted = Wanted { format, unrounded: *unrounded, value: value.value, error: value.error };
            (*address, Allowed::Rounded(wanted))
        };
        for (address, allowed) in written.iter().map(allowed).chain(kept) {
            let Some((name, at)) = self.inputs.place(address) else {
                return Err(format!("the epilogue writes to {address:#x}, and nothing is there"));
            };
            let of_name = results.entry(name).or_default();
            match of_name.last_mut().filter(|(first, line)| *first + line.len() == at) {
                Some((_, line)) => line.push(allowed),
                None => of_name.push((at, vec![allowed])),
            }
        }
        Ok(results.into_iter().map(|(name, elements)| Expected { name, elements }).collect())
    }

    /// An accumulator of a GEMM.
    fn accumulator(&self, which: usize, sum: DotProduct) -> Bounded {
        let (value, error) = sum.in_single(self.products[which].ks.len() as u32);
        Bounded { value, error }
    }

    /// Evaluates the epilogue in some rows of GEMMs, in all columns or some: elements of D, and what else is written, by address.
    fn evaluated_at(
        &self,
        rows: &[(usize, usize)],
        columns: Option<Vec<usize>>,
        evaluate: Evaluate<'_>,
    ) -> Results {
        let of_row = |&(which, row): &(usize, usize)| -> Vec<Bounded> {
            self.sums(which, row).into_iter().map(|sum| self.accumulator(which, sum)).collect()
        };
        // Those of all columns are summed at once, others when they are asked for.
        let known: Vec<_> =
            if columns.is_none() { rows.par_iter().map(of_row).collect() } else { Vec::new() };
        let (current, line) = (Cell::new((0, 0)), RefCell::new(((usize::MAX, 0), Vec::new())));
        let numbers: BTreeMap<_, _> = rows.iter().zip(&known).collect();
        let accumulator = |[row, column]: [u32; 2]| {
            let (which, _) = current.get();
            // Epilogues count the rows of groups among those of all.
            let row = (row as usize).wrapping_sub(self.products[which].rows.start);
            if let Some(sums) = numbers.get(&(which, row)) {
                return sums.get(column as usize).copied().unwrap_or(Bounded::exact(f64::NAN));
            }
            let (of, kept) = &mut *line.borrow_mut();
            if *of != (which, row) {
                (*of, *kept) = ((which, row), self.line_of_a(which, row));
            }
            self.accumulator(which, self.sum(which, row, kept, column as usize))
        };
        let format = self.formats[2];
        let mut host = self.host(&accumulator);
        let element = |host: &mut Host<'_>, at| {
            let Bounded { value, error } = evaluate(host, at);
            Allowed::Rounded(Wanted { format, unrounded: false, value, error })
        };
        let mut of_d = Vec::new();
        for &(which, row) in rows {
            let product = &self.products[which];
            let shape = Shape { m: self.shape().m, n: (product.extents[1] >> self.halvings) as u32 };
            current.set((which, row));
            host.enter(which as u32, shape);
            let (at, first) = ((product.rows.start + row) as u32, self.first_of_row(which, row));
            match &columns {
                None => {
                    of_d.push((first, (0..shape.n).map(|column| element(&mut host, [at, column])).collect()));
                }
                Some(columns) => of_d.extend(
                    columns
                        .iter()
                        .map(|&column| (first + column, vec![element(&mut host, [at, column as u32])])),
                ),
            }
        }
        (of_d, host.finish())
    }

    /// Where an epilogue would write in some rows, but for what it reduces.
    fn written_at(&self, rows: &[usize], evaluate: Evaluate<'_>) -> Vec<u64> {
        let one = |_| Bounded::exact(1.0);
        let mut host = self.host(&one);
        for &row in rows {
            (0..self.shape().n).for_each(|column| {
                evaluate(&mut host, [row as u32, column]);
            });
        }
        host.finish().into_iter().filter_map(|(at, of)| (!of.unrounded).then_some(at)).collect()
    }

    fn shape(&self) -> Shape {
        Shape { m: self.extents[0] as u32, n: self.columns() as u32 }
    }

    fn host<'h>(&'h self, accumulator: &'h dyn Fn([u32; 2]) -> Bounded) -> Host<'h> {
        Host::new(self.shape(), self.inputs, accumulator).computing_in(Arithmetic::of(self.stored.d))
    }

    /// Which elements are reduced to one number together. Neighbours and the far ends of the first row and of the first column are compared
    /// with the first element.
    fn reduces(&self, evaluate: Evaluate<'_>) -> Reduced {
        let (Shape { m, n }, one) = (self.shape(), |_| Bounded::exact(1.0));
        if m == 0 || n == 0 {
            return Reduced::default();
        }
        let at = |place: [u32; 2]| -> BTreeSet<u64> {
            let mut host = self.host(&one);
            evaluate(&mut host, place);
            host.finish().into_iter().filter_map(|(at, of)| of.unrounded.then_some(at)).collect()
        };
        let first = at([0, 0]);
        if first.is_empty() {
            return Reduced::default();
        }
        let meets = |places: [[u32; 2]; 2]| {
            places.into_iter().any(|place| place != [0, 0] && !first.is_disjoint(&at(place)))
        };
        Reduced {
            rows: meets([[0, 1.min(n - 1)], [0, n - 1]]),
            columns: self.products.len() > 1 || meets([[1.min(m - 1), 0], [m - 1, 0]]),
        }
    }
}
