//! Several GEMMs of one launch whose epilogue is a formula: everything that they write is compared.

use std::cell::Cell;

use collective::tree::{AnyNode, Node, Shape};
use collective::{Arithmetic, Bounded, Formula, FormulaArguments};
use kernel::{AnyGemm, Call, MatrixRef};

use super::super::product::accumulators;
use super::super::storage;
use super::super::tree::{Bench, Checked, TreeError};
use super::{GAP, SeveralProducts};

impl SeveralProducts {
    /// The shape of all values of D: the rows of all groups, or of one GEMM of a batch.
    pub fn shape(&self, formula: Formula) -> Shape {
        Shape { m: self.problem.m, n: self.problem.n >> formula.halvings() }
    }
}

impl Bench<'_> {
    /// As [`check_formula`](Self::check_formula), for several GEMMs in one launch. Groups of rows share the
    /// rows of vectors and matrices: they count among those of all groups, as D's do.
    ///
    /// # Errors
    /// The first mismatch, or why the kernel could not be run.
    pub fn check_several(
        &mut self,
        gemm: &AnyGemm,
        several: &SeveralProducts,
        arguments: &FormulaArguments,
    ) -> Result<Checked, TreeError> {
        let problem = several.problem;
        let matrices = several.matrices(gemm);
        let mut call = several.call(self, &matrices)?;
        let (rows, ranges) = (several.rows(), several.ranges(gemm.plan().mainloop.tile[2]));
        let spec = gemm.plan().epilogue;
        let columns = (problem.n >> spec.halvings) as usize;
        let between = if several.ragged() { 0 } else { problem.m as usize * columns + GAP };
        let first = |i: usize| match several.ragged() {
            true => rows[i][0] as usize * columns,
            false => i * between,
        };
        let elements = match several.ragged() {
            true => problem.m as usize * columns,
            false => first(rows.len().saturating_sub(1)) + problem.m as usize * columns,
        };
        let bytes = spec.output.bytes() as usize;
        let address = self.output(elements * bytes)?;
        let d = MatrixRef::new(address, columns as u64).every(between as u64);

        let operands = [&matrices.a[..], &matrices.b];
        storage::bring(gemm, &mut call, operands, &matrices.weights, self)?;
        let call = Call { d, ..call.with(arguments.clone()) };
        let program = gemm.program()?;
        let resident = self.engine().resident_clusters(&program)?;
        let workspace = self.engine().workspace(gemm.workspace(&call, resident))?;
        let time = match gemm.launch(&Call { workspace, ..call }, resident)? {
            Some(launch) => Some(self.engine().launch(&program, launch.grid, &launch.arguments)?),
            None => None,
        };

        let products = rows.iter().zip(&ranges).enumerate();
        let products = products.map(|(i, (&rows, &range))| matrices.product(several, i, (rows, range)));
        let sums: Vec<_> = products.map(|product| product.sums(accumulators(gemm), &|_| ())).collect();
        let (current, n) = (Cell::new(0), problem.n as usize);
        // The first row of a GEMM, as its tree numbers them.
        let base = |i: usize| if several.ragged() { rows[i][0] } else { 0 };
        let accumulator = |[row, column]: [u32; 2]| {
            let (i, [begin, end]) = (current.get(), ranges[current.get()]);
            let element = (row - base(i)) as usize * n + column as usize;
            let (value, error) = sums[i].sums[element].in_single(end - begin);
            Bounded { value, error }
        };
        let arithmetic = Arithmetic::of(spec.output);
        self.check_memory(time, (&accumulator, arithmetic), |host, places| {
            for (i, &[_, m]) in rows.iter().enumerate() {
                current.set(i);
                host.enter(i as u32, Shape { m: problem.m, n: columns as u32 });
                for (row, column) in
                    (0..m).flat_map(|row| (0..columns as u32).map(move |column| (row, column)))
                {
                    let value = AnyNode::evaluate(host, arguments.nodes(), [base(i) + row, column]);
                    let element = first(i) + row as usize * columns + column as usize;
                    let at = address + (element * bytes) as u64;
                    host.write(spec.output, at, value);
                    places.insert(at, [row, column]);
                }
            }
        })
    }
}
