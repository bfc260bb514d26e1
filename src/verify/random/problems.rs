//! Random problems for a kernel: the GEMMs of each form of launch.

use collective::Form;
use fastrand::Rng;
use kernel::{AnyGemm, Engine, GemmProblem};

use super::super::matrix::Distribution;
use super::super::product::{GemmCase, Outcome, formats, orders, random_scales};
use super::super::{HostMatrix, Order, SeveralProducts, storage};
use super::{Draw, Ended, digest};

impl Draw {
    /// Draws the GEMMs of one launch and runs them. `problem` has their largest extents; N is a multiple of
    /// `row`. Returns the largest error as a fraction of its bound, and the digest of D.
    pub(super) fn run(
        &mut self,
        gemm: &AnyGemm,
        engine: &mut dyn Engine,
        (problem, row, seed): (GemmProblem, u32, u64),
    ) -> Result<(f64, u64), Ended> {
        let plan = gemm.plan();
        let factors = self.factors(gemm);
        // Tensor copies store rows that begin at multiples of 16 bytes.
        let unit = 128 / plan.epilogue.output.bits();
        let (operand_bytes, d_padding) =
            (16, if row > 1 { unit * self.random.u32(..2) } else { self.random.u32(..3) });
        // Sometimes more groups than the usual table holds.
        let most = plan.table.groups;
        let many = if most > Form::TABLES[0] && self.once_in(3) {
            self.random.u32(Form::TABLES[0] + 1..=most.min(600))
        } else {
            0
        };
        let products = match gemm.form() {
            Form::Single => {
                let in_place = self.once_in(4);
                let product = self.product(gemm, problem, (factors, d_padding, in_place));
                return ended(problem, product.run(gemm, engine)?);
            }
            Form::Batched => self.batch(problem),
            Form::GroupedContiguous => self.groups_of_rows(problem, (many, row)),
            Form::GroupedMasked => self.masked_groups(problem, (many, row)),
            Form::KGrouped => self.groups_along_k(problem, plan.mainloop.tile[2]),
            Form::PointerArray => self.array(problem, (many, row)),
        };
        let products = SeveralProducts { factors, operand_bytes, d_padding, seed, ..products };
        ended(problem, products.run(gemm, engine)?)
    }

    fn batch(&mut self, problem: GemmProblem) -> SeveralProducts {
        let shared = [self.once_in(4), self.once_in(4), self.once_in(4)];
        let count = self.random.u32(1..4);
        let (interleaved, batch) = (self.once_in(3), SeveralProducts::batch(problem, count));
        SeveralProducts { shared, interleaved, ..batch }
    }

    /// Groups of rows: `many`, with N of `row`; or a few, if that is 0.
    fn groups_of_rows(&mut self, problem: GemmProblem, (many, row): (u32, u32)) -> SeveralProducts {
        if many > 0 {
            // Few of them have rows.
            let rows: Vec<u32> =
                (0..many).map(|_| if self.once_in(20) { self.random.u32(..=problem.m) } else { 0 }).collect();
            return SeveralProducts::of_rows(&rows, 0, [row, problem.k]);
        }
        let rows: Vec<u32> = (0..self.random.u32(1..5)).map(|_| self.random.u32(..=problem.m)).collect();
        let spare = self.random.u32(..3);
        SeveralProducts::of_rows(&rows, spare, [problem.n, problem.k])
    }

    /// Groups with room for rows: `many`, with N of `row`; or a few, if that is 0.
    fn masked_groups(&mut self, problem: GemmProblem, (many, row): (u32, u32)) -> SeveralProducts {
        if many > 0 {
            let room = self.random.u32(..=9);
            let rows: Vec<u32> =
                (0..many).map(|_| if self.once_in(20) { self.random.u32(..=room + 2) } else { 0 }).collect();
            return SeveralProducts::masked(&rows, room, [row, problem.k]);
        }
        let room = self.random.u32(..=problem.m);
        // A group may claim more rows than its buffer has.
        let rows: Vec<u32> =
            (0..self.random.u32(1..5)).map(|_| self.random.u32(..=room + room / 4)).collect();
        SeveralProducts::masked(&rows, room, [problem.n, problem.k])
    }

    /// Groups along K, of a kernel whose tiles have K of `tile`.
    fn groups_along_k(&mut self, problem: GemmProblem, tile: u32) -> SeveralProducts {
        let most = problem.k.div_ceil(tile);
        // Mostly multiples of tile K, in order; now and then any number.
        let mut offsets: Vec<u32> = (0..self.random.u32(2..7))
            .map(|_| {
                if self.once_in(12) {
                    return self.random.u32(..);
                }
                tile * self.random.u32(..=most)
            })
            .collect();
        if !self.once_in(8) {
            offsets.sort_unstable();
        }
        let products = SeveralProducts::along_k(problem, offsets);
        let shared = [false, false, self.once_in(4)];
        SeveralProducts { shared, interleaved: self.once_in(3), ..products }
    }

    /// Matrices with extents of their own: `many`, with N of `row`; or a few, if that is 0.
    fn array(&mut self, problem: GemmProblem, (many, row): (u32, u32)) -> SeveralProducts {
        if many > 0 {
            let shapes = (0..many).map(|_| {
                let m = if self.once_in(20) { self.random.u32(..=problem.m) } else { 0 };
                GemmProblem { m, n: row, k: problem.k }
            });
            return SeveralProducts::array(shapes.collect());
        }
        let shapes = (0..self.random.u32(1..4)).map(|_| {
            let part = |random: &mut Rng, extent: u32, step: u32| random.u32(..=extent / step) * step;
            let random = &mut self.random;
            GemmProblem {
                m: part(random, problem.m, 1),
                n: part(random, problem.n, row.min(problem.n)),
                k: part(random, problem.k, 1),
            }
        });
        SeveralProducts::array(shapes.collect())
    }

    /// One GEMM of random matrices.
    fn product(
        &mut self,
        gemm: &AnyGemm,
        problem: GemmProblem,
        ([alpha, beta], d_padding, in_place): ([f64; 2], u32, bool),
    ) -> GemmCase {
        let mut random = self.random.fork();
        let GemmProblem { m, n, k } = problem;
        let [a_format, b_format, d_format] = formats(gemm);
        let [a_order, b_order] = orders(gemm);
        let mut matrix = |format, extents, order, multiple| {
            HostMatrix::random(format, extents, order, multiple, Distribution::Normal, &mut random)
        };
        let [of_a, of_b] = [a_format, b_format].map(|format| 16 / format.bytes());
        let a = matrix(a_format, [m, k], a_order, of_a);
        let b = matrix(b_format, [k, n], b_order, of_b);
        // Tensor copies load rows that begin at multiples of 16 bytes.
        let of_c = if gemm.plan().epilogue.sourced { 16 / d_format.bytes() } else { 1 };
        let c = (beta != 0.0).then(|| matrix(d_format, [m, n], Order::RowMajor, of_c));
        let scales = random_scales(gemm, problem, &mut random);
        let ([a, b], weights) = storage::fitted(gemm, problem, [a, b], &mut random);
        let in_place = in_place && c.is_some();
        let d_ld = if in_place { n } else { n + d_padding };
        GemmCase { scales, weights, c, alpha, beta, d_ld, in_place, ..GemmCase::new(a, b) }
    }
}

/// The largest error as a fraction of its bound, and the digest of D.
fn ended(problem: GemmProblem, outcome: Outcome) -> Result<(f64, u64), Ended> {
    match outcome.mismatch {
        None => Ok((outcome.ratio, digest(outcome.d.into_iter()))),
        Some(wrong) => Err(Ended::Wrong(format!("{problem:?}: {wrong}"))),
    }
}
