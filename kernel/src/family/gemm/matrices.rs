//! The matrices of a GEMM's check as numbers, and D of them in f64.

use core::ops::Range;
use std::sync::OnceLock;

use collective::{AccumulatorType, SCALES};
use cute_rs::atom::Major;
use reference::{AccumulatorPrecision, DotProduct, Format};

use super::stored::{are_numbers, stored as of_memory};
use super::{Expected, Inputs};
use crate::gemm::AnyGemm;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::select::Request;

/// Number of elements along K that share a block scale.
const BLOCK: usize = 128;

/// The matrices of all GEMMs of a launch.
pub(super) struct Matrices<'a> {
    inputs: &'a Inputs<'a>,
    request: &'a Request<'a>,
    accumulators: AccumulatorPrecision,
    /// Formats of A, of B and of D.
    formats: [Format; 3],
    extents: [usize; 3],
    products: Vec<Product>,
}

/// A GEMM of a launch.
struct Product {
    /// The numbers of its A and of its B.
    matrices: [usize; 2],
    /// Its rows, among those of its A.
    rows: Range<usize>,
    /// Its first row among those of all D.
    d: usize,
    /// Its K, among that of its A and B.
    ks: Range<usize>,
    /// The columns of its B, if they were asked for.
    columns: OnceLock<Vec<Vec<f64>>>,
    /// Its A and B, if they were asked for and memory has them in another form.
    stored: [OnceLock<Option<Vec<f64>>>; 2],
}

impl<'a> Matrices<'a> {
    /// The matrices of a request's launch.
    ///
    /// # Errors
    /// What of its results is not known, in a sentence.
    pub(super) fn new(
        gemm: &AnyGemm,
        request: &'a Request<'a>,
        inputs: &'a Inputs<'a>,
    ) -> Result<Self, String> {
        let types = request.stored();
        let unknown = |what: &str| Err(format!("what GEMMs write of {what} is not known here"));
        if let Some(formula) = request.fusion {
            return unknown(&format!("the epilogue `{}`", formula.name()));
        }
        for (i, name) in ["A", "B"].into_iter().enumerate() {
            if let Some(weights) = types.weights[i].filter(|spec| !are_numbers(*spec)) {
                return unknown(&format!(
                    "{name} in {}, of which some bits are no number",
                    weights.code.name()
                ));
            }
        }
        let [a, b, d] = [types.a, types.b, types.d].map(|format| Format::named(format.name()));
        let (Some(a), Some(b), Some(d)) = (a, b, d) else {
            return unknown(&format!("the types {types}"));
        };
        let GemmProblem { m, n, k } = request.call.problem;
        let extents = [m, n, k].map(|extent| extent as usize);
        let in_half = gemm.plan().mainloop.atom.sums() == AccumulatorType::F16;
        let accumulators = if in_half { AccumulatorPrecision::Half } else { AccumulatorPrecision::Single };
        let products = products(request.call.products, extents, inputs)?;
        Ok(Self { inputs, request, accumulators, formats: [a, b, d], extents, products })
    }

    /// Rows of D: the number of the first element of each, and its elements with their bounds.
    ///
    /// # Errors
    /// Some rows of D belong to no GEMM.
    pub(super) fn expected(&self) -> Result<Expected, String> {
        let [m, n, _] = self.extents;
        let of_groups = self.products.iter().map(|product| product.rows.len()).sum::<usize>();
        let all = m * self.request.call.products.matrices()[2] as usize;
        if of_groups != all {
            return Err(format!(
                "{of_groups} rows belong to GEMMs, all {all} of D were needed: others stay as they are"
            ));
        }
        let mut ends = 0;
        let ends: Vec<usize> = self
            .products
            .iter()
            .map(|product| {
                ends += product.rows.len();
                ends
            })
            .collect();
        let row = |at: usize| {
            let which = ends.partition_point(|&end| end <= at);
            let product = &self.products[which];
            let row = at + product.rows.len() - ends[which];
            ((product.d + row) * n, self.row(product, row))
        };
        Ok(Expected { name: "D", elements: self.inputs.rows(all, row) })
    }

    /// A row of a GEMM's D.
    fn row(&self, product: &Product, row: usize) -> Vec<(f64, f64)> {
        let ([_, n, _], [a, b, format]) = (self.extents, self.formats);
        let factors = self.request.call.epilogue.factors();
        let (of_a, first) = (product.rows.start + row, (product.d + row) * n);
        let line = self.lines(0, product, of_a..of_a + 1).pop().unwrap_or_default();
        let columns = product.columns.get_or_init(|| self.lines(1, product, 0..n));
        let sourced = factors[1] != 0.0 && self.request.call.epilogue.c.is_some();
        let c = if sourced { self.inputs.elements("C", first, n) } else { Vec::new() };
        let scales = [0, 1].map(|i| self.request.stored().scaled[i] > 0).contains(&true);
        let element = |(column, other): (usize, &Vec<f64>)| {
            let sum = if scales {
                let scale =
                    |block| self.scale(0, product, of_a, block) * self.scale(1, product, column, block);
                DotProduct::in_blocks([&line, other], scale)
            } else {
                DotProduct::of(self.accumulators, [a, b], [&line, other])
            };
            let source = c.get(column).copied();
            let expected = reference::Expected::new(format, product.ks.len() as u32, factors, sum, source);
            let [least, most] = format.range();
            let value = if format.saturates() { expected.value.clamp(least, most) } else { expected.value };
            (value, expected.bound)
        };
        columns.iter().enumerate().map(element).collect()
    }

    /// The elements along K of some rows of A (0) or columns of B (1).
    fn lines(
        &self,
        i: usize,
        Product { matrices, ks, stored, .. }: &Product,
        mn: Range<usize>,
    ) -> Vec<Vec<f64>> {
        let ([m, n, k], name) = (self.extents, ["A", "B"][i]);
        let (extent, matrix) = ([m, n][i], matrices[i]);
        if ks.is_empty() || !self.request.call.epilogue.multiplied() {
            return vec![Vec::new(); mn.len()];
        }
        let [along_mn, along_k] = [extent, k].map(|extent| extent as u32);
        let whole = stored[i]
            .get_or_init(|| of_memory(&self.request.stored(), self.inputs, (i, matrix), [along_mn, along_k]));
        if let Some(whole) = whole {
            return mn.map(|line| whole[line * k + ks.start..line * k + ks.end].to_vec()).collect();
        }
        match self.request.majors[i] {
            Major::K => {
                let line = |at| self.inputs.elements(name, (matrix * extent + at) * k + ks.start, ks.len());
                mn.map(line).collect()
            }
            Major::Mn => {
                let mut all = vec![Vec::with_capacity(ks.len()); mn.len()];
                for at in ks.clone() {
                    let elements =
                        self.inputs.elements(name, (matrix * k + at) * extent + mn.start, mn.len());
                    all.iter_mut().zip(elements).for_each(|(line, element)| line.push(element));
                }
                all
            }
        }
    }

    /// The scale of a row of A (0) or a column of B (1) in a block along the product's K.
    fn scale(&self, i: usize, Product { matrices, ks, .. }: &Product, mn: usize, block: u32) -> f64 {
        let ([m, n, k], rows) = (self.extents, self.request.stored().scaled[i] as usize);
        let (extent, blocks, block) = ([m, n][i], k.div_ceil(BLOCK), ks.start / BLOCK + block as usize);
        let at = if rows == 1 {
            (matrices[i] * blocks + block) * extent + mn
        } else {
            (matrices[i] * extent.div_ceil(rows) + mn / rows) * blocks + block
        };
        self.inputs.elements(SCALES[i], at, 1)[0]
    }
}

/// The GEMMs of a launch, from the table that describes them.
fn products(
    products: GroupedProblem,
    [m, _, k]: [usize; 3],
    inputs: &Inputs<'_>,
) -> Result<Vec<Product>, String> {
    let product = |matrices, rows, d, ks| Product {
        matrices,
        rows,
        d,
        ks,
        columns: OnceLock::new(),
        stored: [const { OnceLock::new() }; 2],
    };
    let count = products.count() as usize;
    let table = |name, words| inputs.numbers(name, 0, words).into_iter().map(|word| word as usize);
    let ranges = |of: Vec<usize>| of.windows(2).map(|pair| pair[0]..pair[1]).collect::<Vec<_>>();
    Ok(match products {
        GroupedProblem::One => vec![product([0, 0], 0..m, 0, 0..k)],
        GroupedProblem::Batched { .. } => (0..count).map(|i| product([i, i], 0..m, i * m, 0..k)).collect(),
        GroupedProblem::GroupedContiguous { .. } => {
            let all = ranges(table(GroupedProblem::OFFSETS, count + 1).collect());
            (0..).zip(all).map(|(i, rows)| product([0, i], rows.clone(), rows.start, 0..k)).collect()
        }
        GroupedProblem::GroupedMasked { room, .. } => {
            let all = (0..).zip(table(GroupedProblem::ROWS, count));
            let first = |i: usize| i * room as usize;
            all.map(|(i, rows)| product([0, i], first(i)..first(i) + rows, first(i), 0..k)).collect()
        }
        GroupedProblem::KGrouped { .. } => {
            let all = ranges(table(GroupedProblem::OFFSETS, count + 1).collect());
            (0..).zip(all).map(|(i, ks)| product([0, 0], 0..m, i * m, ks)).collect()
        }
        GroupedProblem::PointerArray { .. } => {
            return Err("where records describe GEMMs, their results are not known here".to_owned());
        }
    })
}
