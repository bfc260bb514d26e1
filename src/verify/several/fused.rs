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

#[cfg(test)]
mod tests {
    use kernel::{GemmProblem, KernelSpec};

    use super::*;
    use crate::verify::Format;
    use crate::verify::tampered::{Mistake, Tampered, edge};

    /// What the check of a kernel finds if D, the fourth buffer, has mistakes.
    fn check(form: &str, several: &SeveralProducts, mistakes: Vec<Mistake>) -> Result<Checked, TreeError> {
        let spec = format!("tile=64x16x64 consumers=1 store=direct form={form}");
        let gemm = spec.parse::<KernelSpec>().expect("a spec").kernel().expect("legal");
        let formula: Formula = gemm.spec().and_then(|spec| spec.fusion()).expect("a formula");
        let arguments =
            formula.bind(collective::Format::Bf16, several.shape(formula), &[]).expect("no arguments");
        let mut engine = Tampered::new(3, mistakes);
        Bench::new(&mut engine, 9).check_several(&gemm, several, &arguments)
    }

    fn found(form: &str, several: &SeveralProducts, mistakes: Vec<Mistake>) -> String {
        match check(form, several, mistakes) {
            Ok(checked) => format!("{} right", checked.compared),
            Err(TreeError::Value { place, .. }) => place,
            Err(TreeError::Beside { .. }) => "beside".to_owned(),
            Err(other) => other.to_string(),
        }
    }

    /// An element of a GEMM is right up to its bound and not beyond; and nothing changes between and behind them.
    #[test]
    fn mistakes_in_products_are_found() {
        let problem = GemmProblem { m: 20, n: 16, k: 72 };
        let gap = |i: usize| i * (20 * 16 + GAP);
        // Of some GEMMs where their D begins, and their number of rows.
        for (form, several, products, beside) in [
            ("batched", SeveralProducts::batch(problem, 1), vec![(0, 20)], 20 * 16),
            ("batched", SeveralProducts::batch(problem, 3), vec![(0, 20), (gap(2), 20)], gap(1) - 1),
            (
                "k-grouped",
                SeveralProducts::of_lengths(&[64, 64, 8], [20, 16]),
                vec![(0, 20), (gap(2), 20)],
                gap(2) - GAP,
            ),
            ("ragged", SeveralProducts::of_rows(&[5, 0, 9], 4, [16, 72]), vec![(0, 5), (5 * 16, 9)], 14 * 16),
            ("masked", SeveralProducts::masked(&[5, 0, 9], 12, [16, 72]), vec![(0, 5), (24 * 16, 9)], 5 * 16),
        ] {
            let form = &format!("{form} epilogue=acc*acc");
            let set = |at: usize, bits| Mistake::element(Format::Bf16, at * 2, bits);
            let rows: u32 = several.rows().iter().map(|[_, m]| m).sum();
            let right = format!("{} right", rows * 16);
            assert_eq!(found(form, &several, vec![]), right, "{form}");
            assert_eq!(found(form, &several, set(beside, 0x4780)), "beside", "{form}");
            for (i, (begin, m)) in products.into_iter().enumerate() {
                let (row, column) = if i % 2 == 0 { (m - 1, 15) } else { (0, 7) };
                let (at, place) = (begin + row * 16 + column, format!("D({row}, {column})"));
                let Err(TreeError::Value { expected, .. }) = check(form, &several, set(at, 0x4780)) else {
                    panic!("{form}: {place} is wrong");
                };
                let [within, beyond] = edge(Format::Bf16, expected.value, expected.bound());
                assert_eq!(found(form, &several, set(at, within)), right, "{form}, {place}");
                assert_eq!(found(form, &several, set(at, beyond)), place, "{form}");
            }
        }
    }

    /// A group without K is zero, and the smallest number is not: its bound is that of no products.
    #[test]
    fn groups_without_k_are_exact() {
        let several = SeveralProducts::of_lengths(&[64, 0, 64], [20, 16]);
        let set = |bits| Mistake::element(Format::F32, (20 * 16 + GAP) * 4, bits);
        let form = "k-grouped out=f32 epilogue=relu(acc)";
        for (bits, want) in [(0, "960 right"), (1, "D(0, 0)")] {
            assert_eq!(found(form, &several, set(bits)), want, "{bits}");
        }
    }
}
