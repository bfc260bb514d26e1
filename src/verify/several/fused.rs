//! Several GEMMs of one launch whose epilogue is a formula: everything that they write is compared.

use collective::tree::Shape;
use collective::{Formula, FormulaArguments};
use kernel::AnyGemm;

use super::super::tree::{Bench, Checked, TreeError, evaluated};
use super::SeveralProducts;

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
        let call = several.call(gemm).with(arguments.clone());
        self.run(gemm, (call, &several.offsets), &evaluated)
    }
}

#[cfg(test)]
mod tests {
    use kernel::{GemmProblem, KernelSpec};

    use super::super::GAP;
    use super::*;
    use crate::verify::Format;
    use crate::verify::family::FamilyError;
    use crate::verify::tampered::{Mistake, Tampered, edge};

    /// What the check of a kernel finds if D has mistakes: it follows A and B, and the table that some have.
    fn check(form: &str, several: &SeveralProducts, mistakes: Vec<Mistake>) -> Result<Checked, TreeError> {
        let spec = format!("tile=64x16x64 consumers=1 store=direct form={form}");
        let gemm = spec.parse::<KernelSpec>().expect("a spec").kernel().expect("legal");
        let formula: Formula = gemm.spec().and_then(|spec| spec.fusion()).expect("a formula");
        let arguments =
            formula.bind(collective::Format::Bf16, several.shape(formula), &[]).expect("no arguments");
        let mut engine = Tampered::new(if several.offsets.is_empty() { 2 } else { 3 }, mistakes);
        Bench::new(&mut engine, 9).check_several(&gemm, several, &arguments)
    }

    fn found(form: &str, several: &SeveralProducts, mistakes: Vec<Mistake>) -> String {
        match check(form, several, mistakes) {
            Ok(checked) => format!("{} right", checked.compared),
            Err(TreeError::Check(FamilyError::Element { name: "D", index, .. })) => format!("D {index}"),
            Err(TreeError::Check(FamilyError::Outside { .. })) => "beside".to_owned(),
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
                // Elements between GEMMs have no number.
                let at = begin + row * 16 + column;
                let place =
                    format!("D {}", at - begin / (20 * 16 + GAP) * if several.ragged() { 0 } else { GAP });
                let wrong = check(form, &several, set(at, 0x4780));
                let Err(TreeError::Check(FamilyError::Element { expected, bound, .. })) = wrong else {
                    panic!("{form}: {place} is wrong: {wrong:?}");
                };
                let [within, beyond] = edge(Format::Bf16, expected, bound);
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
        for (bits, want) in [(0, "960 right"), (1, "D 320")] {
            assert_eq!(found(form, &several, set(bits)), want, "{bits}");
        }
    }
}
