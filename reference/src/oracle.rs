//! The oracle: products in f64, all of them or a sample.

use rayon::prelude::*;

use crate::HostMatrix;

/// Sums of products, and of their magnitudes, for some rows and columns of D.
#[derive(Clone, Debug)]
pub struct Sums {
    /// Rows that were computed.
    pub rows: Vec<u32>,
    /// Columns that were computed.
    pub columns: Vec<u32>,
    /// `sum A(i,k) * B(k,j)` and `sum |A(i,k) * B(k,j)|`, row by row.
    pub sums: Vec<(f64, f64)>,
    /// Whether these are all of D.
    pub complete: bool,
}

/// Products beyond which only a sample is computed.
const COMPLETE: u64 = 1 << 33;

/// Rows and columns of a sample, edges among them.
const SAMPLE: u32 = 96;

impl Sums {
    /// How many rows of a product (M, N, K) are computed.
    pub fn rows_of(product: [u128; 3]) -> u128 {
        if complete(product) { product[0] } else { product[0].min(SAMPLE.into()) }
    }

    /// How many columns of a product (M, N, K) are computed.
    pub fn columns_of(product: [u128; 3]) -> u128 {
        if complete(product) { product[1] } else { product[1].min(SAMPLE.into()) }
    }

    /// Computes the sums of `A (M, K) * B (K, N)`; `step` is told after each row how many there are.
    ///
    /// Above 2^33 products a sample of 96 rows and 96 columns is computed, the first and the last among them.
    pub fn of(a: &HostMatrix, b: &HostMatrix, step: &(dyn Fn(u64) + Sync)) -> Self {
        let (m, n, k) = (a.rows, b.columns, a.columns);
        let complete = complete([m, n, k].map(u128::from));
        let pick = |extent: u32| -> Vec<u32> {
            if complete || extent <= SAMPLE {
                return (0..extent).collect();
            }
            // Evenly spread with the ends; the odd stride visits every position inside a tile.
            (0..SAMPLE)
                .map(|i| (u64::from(i) * u64::from(extent - 1) / u64::from(SAMPLE - 1)) as u32)
                .collect()
        };
        let (rows, columns) = (pick(m), pick(n));
        let lines: Vec<Vec<f64>> =
            columns.par_iter().map(|&column| (0..k).map(|i| b.get(i, column)).collect()).collect();
        let total = rows.len() as u64;
        let sums = rows
            .par_iter()
            .flat_map_iter(|&row| {
                let line: Vec<f64> = (0..k).map(|i| a.get(row, i)).collect();
                let sums: Vec<_> = lines.iter().map(|column| dot(&line, column)).collect();
                step(total);
                sums
            })
            .collect();
        Self { rows, columns, sums, complete }
    }

    /// The sum at a place of the list, of `k` products, and how far its computation in `f32` may be from it: each of `k` and a
    /// few more roundings moves it by half of a unit of the magnitudes, and may lose a subnormal number.
    pub fn in_single(&self, place: usize, k: u32) -> (f64, f64) {
        let (sum, magnitude) = self.sums[place];
        let error = (f64::from(k) + 16.0) * magnitude / 16_777_216.0;
        (sum, error + f64::from(k) * f64::powi(2.0, -149))
    }
}

/// Whether so few products are computed all.
fn complete([m, n, k]: [u128; 3]) -> bool {
    m * n * k <= u128::from(COMPLETE)
}

/// The sum of products and of their magnitudes, in four independent chains.
fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    let mut sums = [0.0; 4];
    let mut magnitudes = [0.0; 4];
    let (a_chunks, b_chunks) = (a.chunks_exact(4), b.chunks_exact(4));
    for (x, y) in a_chunks.remainder().iter().zip(b_chunks.remainder()) {
        sums[0] += x * y;
        magnitudes[0] += (x * y).abs();
    }
    for (x, y) in a_chunks.zip(b_chunks) {
        for i in 0..4 {
            let product = x[i] * y[i];
            sums[i] += product;
            magnitudes[i] += product.abs();
        }
    }
    (sums.iter().sum(), magnitudes.iter().sum())
}
