//! The matrices of a GEMM's check as numbers, and D of them in f64.

use core::ops::Range;
use std::sync::OnceLock;

use collective::{AccumulatorType, Record, SCALES};
use cute_rs::atom::Major;
use reference::{AccumulatorPrecision, DotProduct, Format};

use super::super::{Allowed, Expected, Inputs};
use super::stored::stored as of_memory;
use crate::gemm::AnyGemm;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::select::Request;
use crate::types::Types;

/// Number of elements along K that share a block scale.
const BLOCK: usize = 128;

/// The matrices of all GEMMs of a launch.
pub(super) struct Matrices<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    request: &'a Request<'a>,
    /// The types, with D's as the epilogue stores it.
    pub(super) stored: Types,
    accumulators: AccumulatorPrecision,
    /// Formats of A, of B and of D.
    pub(super) formats: [Format; 3],
    /// M, N and K of the call.
    pub(super) extents: [usize; 3],
    /// D has `N >> halvings` columns.
    pub(super) halvings: u32,
    pub(super) products: Vec<Product>,
}

/// A GEMM of a launch.
pub(super) struct Product {
    /// M, N and K of its matrices.
    pub(super) extents: [usize; 3],
    /// The numbers of its A and of its B.
    matrices: [usize; 2],
    /// The numbers of the first elements of its A, B and D.
    begins: [usize; 3],
    /// Its rows, among those of its A.
    pub(super) rows: Range<usize>,
    /// Its K, among that of its A and B.
    pub(super) ks: Range<usize>,
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
        let stored = request.stored();
        let formats = [stored.a, stored.b, stored.d].map(|format| Format::named(format.name()));
        let [Some(a), Some(b), Some(d)] = formats else {
            return Err(format!("what GEMMs write of the types {stored} is not known here"));
        };
        let GemmProblem { m, n, k } = request.call.problem;
        let extents = [m, n, k].map(|extent| extent as usize);
        let (plan, formats) = (gemm.plan(), [a, b, d]);
        let in_half = plan.mainloop.atom.sums() == AccumulatorType::F16;
        let accumulators = if in_half { AccumulatorPrecision::Half } else { AccumulatorPrecision::Single };
        let halvings = plan.epilogue.halvings;
        let call = (request.call.products, extents, plan.mainloop.tile[2] as usize);
        let products = products(call, halvings, inputs);
        Ok(Self { inputs, request, stored, accumulators, formats, extents, halvings, products })
    }

    /// Rows of D of a linear epilogue.
    pub(super) fn expected(&self) -> Expected {
        let rows = self.rows();
        let row = |at: usize| {
            let (which, row) = rows[at];
            (self.first_of_row(which, row), self.row(which, row))
        };
        let mut elements = self.inputs.rows(rows.len(), row);
        elements.extend(self.kept());
        Expected { name: "D", elements }
    }

    /// Columns of D.
    pub(super) fn columns(&self) -> usize {
        self.extents[1] >> self.halvings
    }

    /// Every row of a GEMM: the GEMM's number, and that of the row.
    pub(super) fn rows(&self) -> Vec<(usize, usize)> {
        let of = |(which, product): (usize, &Product)| (0..product.rows.len()).map(move |row| (which, row));
        self.products.iter().enumerate().flat_map(of).collect()
    }

    /// The number of the first element of a row of a GEMM's D.
    pub(super) fn first_of_row(&self, which: usize, row: usize) -> usize {
        let Product { begins, extents, .. } = &self.products[which];
        begins[2] + row * (extents[1] >> self.halvings)
    }

    /// The rows of D that belong to no GEMM.
    pub(super) fn kept_rows(&self) -> Vec<usize> {
        if !self.request.call.products.form().shares_rows() {
            return Vec::new();
        }
        let mut all = vec![true; self.extents[0]];
        self.products.iter().for_each(|product| all[product.rows.clone()].fill(false));
        (0..).zip(all).filter_map(|(row, none)| none.then_some(row)).collect()
    }

    /// The same with their elements.
    pub(super) fn kept(&self) -> Vec<(usize, Vec<Allowed>)> {
        let columns = self.columns();
        let of_row = |row| (row * columns, vec![Allowed::Kept; columns]);
        self.kept_rows().into_iter().map(of_row).collect()
    }

    /// The sums of products in a row of a GEMM.
    pub(super) fn sums(&self, which: usize, row: usize) -> Vec<DotProduct> {
        let line = self.line_of_a(which, row);
        (0..self.products[which].extents[1]).map(|column| self.sum(which, row, &line, column)).collect()
    }

    /// The elements along K of a row of a GEMM's A.
    pub(super) fn line_of_a(&self, which: usize, row: usize) -> Vec<f64> {
        let product = &self.products[which];
        let of_a = product.rows.start + row;
        self.lines(0, product, of_a..of_a + 1).pop().unwrap_or_default()
    }

    /// The sum of products in a row of a GEMM, of which the line of A is given, and a column.
    pub(super) fn sum(&self, which: usize, row: usize, line: &[f64], column: usize) -> DotProduct {
        let (product, [a, b, _]) = (&self.products[which], self.formats);
        let columns = product.columns.get_or_init(|| self.lines(1, product, 0..product.extents[1]));
        let (other, of_a) = (columns.get(column).map_or(&[][..], Vec::as_slice), product.rows.start + row);
        if self.stored.scaled.iter().any(|&rows| rows > 0) {
            let scale = |block| self.scale(0, product, of_a, block) * self.scale(1, product, column, block);
            DotProduct::in_blocks([line, other], scale)
        } else {
            DotProduct::of(self.accumulators, [a, b], [line, other])
        }
    }

    /// A row of a GEMM's D.
    fn row(&self, which: usize, row: usize) -> Vec<Allowed> {
        let (product, format, call) = (&self.products[which], self.formats[2], &self.request.call);
        let (factors, n) = (call.epilogue.factors(), product.extents[1]);
        let sourced = factors[1] != 0.0 && (call.epilogue.c.is_some() || call.products.form().described());
        // C may be D.
        let is_d = call.epilogue.c.is_some_and(|c| c.address == call.d.address);
        let name = if is_d && !call.products.form().described() { "D" } else { "C" };
        let first = product.begins[2] + row * n;
        let c = if sourced { self.inputs.elements(name, first, n) } else { Vec::new() };
        let element = |(column, sum): (usize, DotProduct)| {
            let k = product.ks.len() as u32;
            Allowed::Product(
                format,
                reference::Expected::new(format, k, factors, sum, c.get(column).copied()),
            )
        };
        self.sums(which, row).into_iter().enumerate().map(element).collect()
    }

    /// The elements along K of some rows of A (0) or columns of B (1).
    fn lines(&self, i: usize, product: &Product, mn: Range<usize>) -> Vec<Vec<f64>> {
        let Product { extents: [m, n, k], matrices, begins, ks, stored, .. } = product;
        let (extent, name, begin) = ([*m, *n][i], ["A", "B"][i], begins[i]);
        if ks.is_empty() || !self.request.call.epilogue.multiplied() && self.request.fusion.is_none() {
            return vec![Vec::new(); mn.len()];
        }
        let [along_mn, along_k] = [extent, *k].map(|extent| extent as u32);
        let whole = stored[i]
            .get_or_init(|| of_memory(&self.stored, self.inputs, (i, matrices[i]), [along_mn, along_k]));
        if let Some(whole) = whole {
            return mn.map(|line| whole[line * k + ks.start..line * k + ks.end].to_vec()).collect();
        }
        match self.request.majors[i] {
            Major::K => {
                let line = |at| self.inputs.elements(name, begin + at * k + ks.start, ks.len());
                mn.map(line).collect()
            }
            Major::Mn => {
                let mut all = vec![Vec::with_capacity(ks.len()); mn.len()];
                for at in ks.clone() {
                    let elements = self.inputs.elements(name, begin + at * extent + mn.start, mn.len());
                    all.iter_mut().zip(elements).for_each(|(line, element)| line.push(element));
                }
                all
            }
        }
    }

    /// The scale of a row of A (0) or a column of B (1) in a block along the product's K.
    fn scale(&self, i: usize, Product { matrices, ks, .. }: &Product, mn: usize, block: u32) -> f64 {
        let ([m, n, k], rows) = (self.extents, self.stored.scaled[i] as usize);
        let (extent, blocks, block) = ([m, n][i], k.div_ceil(BLOCK), ks.start / BLOCK + block as usize);
        let at = if rows == 1 {
            (matrices[i] * blocks + block) * extent + mn
        } else {
            (matrices[i] * extent.div_ceil(rows) + mn / rows) * blocks + block
        };
        self.inputs.elements(SCALES[i], at, 1)[0]
    }
}

/// The GEMMs of a launch of a kernel with this tile K, from the table that describes them.
fn products(
    (products, [m, n, k], tile): (GroupedProblem, [usize; 3], usize),
    halvings: u32,
    inputs: &Inputs<'_>,
) -> Vec<Product> {
    let of = |extents, matrices, begins, rows, ks| Product {
        extents,
        matrices,
        begins,
        rows,
        ks,
        columns: OnceLock::new(),
        stored: [const { OnceLock::new() }; 2],
    };
    let (count, of_d) = (products.count() as usize, n >> halvings);
    // A, B and D of these numbers, with rows of D from this one on.
    let product = |[a, b]: [usize; 2], d: usize, rows, ks| {
        of([m, n, k], [a, b], [a * m * k, b * n * k, d * of_d], rows, ks)
    };
    let table = |name, words| inputs.numbers(name, 0, words).into_iter().map(|word| word as usize);
    match products {
        GroupedProblem::One => vec![product([0, 0], 0, 0..m, 0..k)],
        GroupedProblem::Batched { .. } => (0..count).map(|i| product([i, i], i * m, 0..m, 0..k)).collect(),
        // An offset counts as at least the one before it, and at most the number of rows.
        GroupedProblem::GroupedContiguous { .. } => {
            let mut most = 0;
            let counted = table(GroupedProblem::OFFSETS, count + 1).map(|offset| {
                most = offset.min(m).max(most);
                most
            });
            let all = counted.collect::<Vec<_>>();
            let group = |(i, pair): (usize, &[usize])| product([0, i], pair[0], pair[0]..pair[1], 0..k);
            all.windows(2).enumerate().map(group).collect()
        }
        GroupedProblem::GroupedMasked { room, .. } => {
            let (all, room) = (table(GroupedProblem::ROWS, count).enumerate(), room as usize);
            all.map(|(i, rows)| product([0, i], i * room, i * room..i * room + rows.min(room), 0..k))
                .collect()
        }
        // An offset counts as the next multiple of tile K, and as at most K.
        GroupedProblem::KGrouped { .. } => {
            let counted = |offset: usize| offset.min(k).next_multiple_of(tile).min(k);
            let all: Vec<_> = table(GroupedProblem::OFFSETS, count + 1).map(counted).collect();
            let group =
                |(i, pair): (usize, &[usize])| product([0, 0], i * m, 0..m, pair[0]..pair[1].max(pair[0]));
            all.windows(2).enumerate().map(group).collect()
        }
        GroupedProblem::PointerArray { .. } => {
            let words = Record::BYTES[0] as usize / 4;
            let all = inputs.numbers(GroupedProblem::RECORDS, 0, count * words);
            let mut begins = [0; 3];
            let record = |record: &[u32]| {
                let [m, n, k] = [record[0], record[1], record[2]].map(|extent| extent as usize);
                let own = of([m, n, k], [0, 0], begins, 0..m, 0..k);
                begins = [begins[0] + m * k, begins[1] + n * k, begins[2] + m * n];
                own
            };
            all.chunks_exact(words).map(record).collect()
        }
    }
}
