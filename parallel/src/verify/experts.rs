//! Experts of all ranks, compared with each token's own sums.

use super::{Drawn, GUARD, LayerFailure, Multiplied, Numbers, compare};
use crate::error::Error;
use crate::group::Group;
use crate::layer::{Experts, Input, Routes, Weights};

/// Experts of `n` numbers (pairs, if the layer has a bias), and tokens of each rank, maybe none.
pub(super) fn check<A: Multiplied, D: Multiplied>(
    layer: &Drawn,
    group: &mut Group,
) -> Result<u64, LayerFailure> {
    let case = Case::<A>::drawn(layer, group);
    let y = case.computed::<D>(layer, group)?;
    let inner_numbers = case.inner_numbers();
    compare(layer, group, &y, |i| case.wanted::<D>(&inner_numbers, i))
}

/// The numbers of experts, and the tokens of this rank.
struct Case<A> {
    /// Experts of all ranks, and those of each token.
    count: u32,
    choices: usize,
    /// Outputs of an expert's first layer, before and after its gates, and numbers of a token.
    rows: usize,
    inner: usize,
    k: usize,
    gated: bool,
    scaled: bool,
    up: Vec<A>,
    down: Vec<A>,
    x: Vec<A>,
    /// Blocks of scales along the inputs of both layers.
    blocks: [usize; 2],
    /// Of each token, or row of 128 outputs, and 128 inputs.
    of_x: Vec<f32>,
    of_up: Vec<f32>,
    of_down: Vec<f32>,
    experts: Vec<u32>,
    weights: Vec<f32>,
}

impl<A: Multiplied> Case<A> {
    /// Draws the numbers. Each rank draws everybody's, and takes its own.
    fn drawn(layer: &Drawn, group: &Group) -> Self {
        let mut of = fastrand::Rng::with_seed(layer.seed);
        let (size, gated, scaled) = (group.size(), layer.bias, layer.numbers == Numbers::Scaled);
        let count = size * of.u32(1..4);
        let [inner, k] = [layer.n / size, layer.k].map(|extent| extent as usize);
        let rows = if gated { 2 * inner } else { inner };
        let choices = of.usize(1..=count.min(4) as usize);
        let tokens: Vec<usize> =
            (0..size).map(|_| of.usize(..=layer.tokens as usize / size as usize)).collect();
        let mut some = |count: usize| (0..count).map(|_| A::of(of.f32() * 2.0 - 1.0)).collect::<Vec<_>>();
        let up = some(count as usize * rows * k);
        let down = some(count as usize * k * inner);
        let mut x: Vec<Vec<A>> = tokens.iter().map(|tokens| some(tokens * k)).collect();
        let blocks = [k, inner].map(|k| k.div_ceil(128));
        let mut scale = |count: usize| -> Vec<f32> {
            (0..count).map(|_| if scaled { 0.5 + of.f32() } else { 1.0 }).collect()
        };
        let mut of_x: Vec<Vec<f32>> = tokens.iter().map(|tokens| scale(tokens * blocks[0])).collect();
        let of_up = scale((count as usize * rows).div_ceil(128) * blocks[0]);
        let of_down = scale((count as usize * k).div_ceil(128) * blocks[1]);
        let popular = of.u32(..count);
        let mut expert = |_| if of.bool() { popular } else { of.u32(..count) };
        let mut routes: Vec<Vec<u32>> =
            tokens.iter().map(|tokens| (0..tokens * choices).map(&mut expert).collect()).collect();
        let mut weights: Vec<Vec<f32>> =
            routes.iter().map(|routes| routes.iter().map(|_| of.f32() * 2.0 - 1.0).collect()).collect();
        let rank = group.rank() as usize;
        let (x, of_x) = (x.swap_remove(rank), of_x.swap_remove(rank));
        let (experts, weights) = (routes.swap_remove(rank), weights.swap_remove(rank));
        Self {
            count,
            choices,
            rows,
            inner,
            k,
            gated,
            scaled,
            up,
            down,
            x,
            blocks,
            of_x,
            of_up,
            of_down,
            experts,
            weights,
        }
    }

    /// What the layers of the library compute.
    fn computed<D: Multiplied>(&self, layer: &Drawn, group: &mut Group) -> Result<Vec<D>, LayerFailure> {
        let Self { count, inner, scaled, ref x, blocks, .. } = *self;
        let whole = [
            weight(&self.up, [count * self.rows as u32, layer.k], scaled.then_some(&self.of_up))?,
            weight(&self.down, [count * layer.k, inner as u32], scaled.then_some(&self.of_down))?,
        ];
        let epilogue = if self.gated { "gated(relu, acc)" } else { "relu(acc)" };
        let mut layers = Experts::<A, D>::new(group, count, [&whole[0], &whole[1]], Some(epilogue))?;
        let mut y = group.upload(&vec![D::of(f32::NAN); x.len() + GUARD])?;
        let (device_x, own) = (group.upload(x)?, x.len() / self.k);
        // As kernels want them: tokens contiguous.
        let padded = own.next_multiple_of(4);
        let mut turned = vec![0.0; padded * blocks[0]];
        (0..own * blocks[0]).for_each(|i| turned[i % blocks[0] * padded + i / blocks[0]] = self.of_x[i]);
        let scales = group.upload(&turned)?;
        let input =
            if scaled { Input::scaled(device_x.view(), scales.view()) } else { device_x.view().into() };
        let routes = Routes { experts: &self.experts, weights: &self.weights };
        layers.forward(group, input, routes, y.view_mut().part(..x.len())?)?;
        Ok(group.read(&y)?)
    }

    /// Of an output of the first layer, before its epilogue: the number, and the bound of its error.
    fn sum(&self, token: usize, row: usize) -> [f64; 2] {
        let Self { k, ref x, ref up, blocks, .. } = *self;
        let product = |i: usize| {
            let scale = self.of_x[token * blocks[0] + i / 128] * self.of_up[row / 128 * blocks[0] + i / 128];
            x[token * k + i].number() * up[row * k + i].number() * f64::from(scale)
        };
        let magnitude: f64 = (0..k).map(|i| product(i).abs()).sum();
        [(0..k).map(product).sum(), magnitude * self.rounding(k)]
    }

    /// The error of a sum of `k` products, per their magnitudes. `wgmma` adds products of 8 bits up in some 14 bits.
    fn rounding(&self, k: usize) -> f64 {
        if self.scaled { 1.0 / 1024.0 } else { k as f64 / 8e6 }
    }

    /// Of an expert's inner number `j`: the number, and the bound of its error.
    fn inner_number(&self, token: usize, expert: usize, j: usize) -> [f64; 2] {
        let row = |i: usize| self.sum(token, expert * self.rows + i);
        let relu = |[of, error]: [f64; 2]| [of.max(0.0), error];
        match self.gated {
            false => relu(row(j)),
            true => {
                let ([gate, of_gate], [value, of_value]) = (relu(row(2 * j)), row(2 * j + 1));
                [gate * value, gate * of_value + value.abs() * of_gate + of_gate * of_value]
            }
        }
    }

    /// The inner numbers of each choice of each token, as the second layer reads them.
    fn inner_numbers(&self) -> Vec<Vec<[f64; 2]>> {
        let of_choice = |(i, &expert): (usize, &u32)| {
            let number = |j| self.inner_number(i / self.choices, expert as usize, j);
            let mut row: Vec<_> = (0..self.inner).map(number).collect();
            for block in row.chunks_mut(128) {
                // The largest of a block becomes 448, so the smallest numbers are 2^-9 of its 448th part apart.
                let largest = block.iter().map(|[value, error]| value.abs() + error).fold(0.0, f64::max);
                let least = if self.scaled { largest / 448.0 / 512.0 } else { 0.0 };
                block.iter_mut().for_each(|[value, error]| {
                    *error += (value.abs() + *error) * A::UNIT + least;
                });
            }
            row
        };
        self.experts.iter().enumerate().map(of_choice).collect()
    }

    /// The result at place `i`, and the bound of its error.
    fn wanted<D: Multiplied>(&self, inner_numbers: &[Vec<[f64; 2]>], i: usize) -> [f64; 2] {
        let Self { choices, inner, k, blocks, ref down, .. } = *self;
        let sums = self.rounding(inner);
        let (token, column) = (i / k, i % k);
        let (mut all, mut bound) = (0.0, 1e-6);
        let of_token = token * choices..(token + 1) * choices;
        for (choice, numbers) in of_token.clone().zip(&inner_numbers[of_token]) {
            let row = self.experts[choice] as usize * k + column;
            let (mut result, mut error, mut magnitude) = (0.0, 0.0, 0.0);
            for (j, [value, own]) in numbers.iter().enumerate() {
                let scale = f64::from(self.of_down[row / 128 * blocks[1] + j / 128]);
                let weight = down[row * inner + j].number() * scale;
                result += value * weight;
                magnitude += (value * weight).abs();
                error += own * weight.abs();
            }
            let weight = f64::from(self.weights[choice]);
            all += weight * result;
            bound += weight.abs() * ((error + magnitude * sums) * 1.01 + result.abs() * 1.01 * D::UNIT);
        }
        [all, bound * 1.01 + all.abs() * D::UNIT]
    }
}

fn weight<'a, A: Multiplied>(
    data: &'a [A],
    extents: [u32; 2],
    scales: Option<&'a Vec<f32>>,
) -> Result<Weights<'a>, Error> {
    let weight = Weights::new(data, extents)?;
    scales.map_or(Ok(weight.clone()), |scales| weight.scaled(&scales[..]))
}
