//! Experts of all ranks, compared with each token's own sums.

use super::{Drawn, Failure, GUARD, Multiplied, Numbers, compare};
use crate::error::Error;
use crate::group::Group;
use crate::layer::{Experts, Input, Routes, Weights};

/// Experts of `n` numbers (pairs, if the layer has a bias), and tokens of each rank, maybe none.
pub(super) fn check<A: Multiplied, D: Multiplied>(layer: &Drawn, group: &mut Group) -> Result<u64, Failure> {
    let mut of = fastrand::Rng::with_seed(layer.seed);
    let (size, gated, scaled) = (group.size(), layer.bias, layer.numbers == Numbers::Scaled);
    let count = size * of.u32(1..4);
    let [inner, k] = [layer.n / size, layer.k].map(|extent| extent as usize);
    let rows = if gated { 2 * inner } else { inner };
    let choices = of.usize(1..=count.min(4) as usize);
    let tokens: Vec<usize> = (0..size).map(|_| of.usize(..=layer.tokens as usize / size as usize)).collect();
    let mut some = |count: usize| (0..count).map(|_| A::of(of.f32() * 2.0 - 1.0)).collect::<Vec<_>>();
    let up = some(count as usize * rows * k);
    let down = some(count as usize * k * inner);
    // Each rank draws everybody's, and takes its own.
    let x: Vec<Vec<A>> = tokens.iter().map(|tokens| some(tokens * k)).collect();
    // Of each token, or row of 128 outputs, and 128 inputs.
    let blocks = [k, inner].map(|k| k.div_ceil(128));
    let mut scale = |count: usize| -> Vec<f32> {
        (0..count).map(|_| if scaled { 0.5 + of.f32() } else { 1.0 }).collect()
    };
    let of_x: Vec<Vec<f32>> = tokens.iter().map(|tokens| scale(tokens * blocks[0])).collect();
    let of_up = scale((count as usize * rows).div_ceil(128) * blocks[0]);
    let of_down = scale((count as usize * k).div_ceil(128) * blocks[1]);
    let popular = of.u32(..count);
    let mut expert = |_| if of.bool() { popular } else { of.u32(..count) };
    let routes: Vec<Vec<u32>> =
        tokens.iter().map(|tokens| (0..tokens * choices).map(&mut expert).collect()).collect();
    let weights: Vec<Vec<f32>> =
        routes.iter().map(|routes| routes.iter().map(|_| of.f32() * 2.0 - 1.0).collect()).collect();

    let rank = group.rank() as usize;
    let (x, of_x, experts, weights) = (&x[rank], &of_x[rank], &routes[rank], &weights[rank]);
    let whole = [
        weight(&up, [count * rows as u32, layer.k], scaled.then_some(&of_up))?,
        weight(&down, [count * layer.k, inner as u32], scaled.then_some(&of_down))?,
    ];
    let epilogue = if gated { "gated(relu, acc)" } else { "relu(acc)" };
    let mut layers = Experts::<A, D>::new(group, count, [&whole[0], &whole[1]], Some(epilogue))?;
    let mut y = group.upload(&vec![D::of(f32::NAN); x.len() + GUARD])?;
    let (device_x, own) = (group.upload(x)?, x.len() / k);
    // As kernels want them: tokens contiguous.
    let padded = own.next_multiple_of(4);
    let mut turned = vec![0.0; padded * blocks[0]];
    (0..own * blocks[0]).for_each(|i| turned[i % blocks[0] * padded + i / blocks[0]] = of_x[i]);
    let scales = group.upload(&turned)?;
    let input = if scaled { Input::scaled(device_x.view(), scales.view()) } else { device_x.view().into() };
    layers.forward(group, input, Routes { experts, weights }, y.view_mut().part(..x.len())?)?;

    // Of an expert's inner numbers: the number, and the bound of its error. `wgmma` adds products of 8 bits up in some 14 bits.
    let sums = if scaled { 1.0 / 1024.0 } else { k as f64 / 8e6 };
    let sum = |token: usize, row: usize| {
        let product = |i: usize| {
            let scale = of_x[token * blocks[0] + i / 128] * of_up[row / 128 * blocks[0] + i / 128];
            x[token * k + i].number() * up[row * k + i].number() * f64::from(scale)
        };
        let magnitude: f64 = (0..k).map(|i| product(i).abs()).sum();
        [(0..k).map(product).sum(), magnitude * sums]
    };
    let number = |token: usize, expert: usize, j: usize| {
        let row = |i: usize| sum(token, expert * rows + i);
        let relu = |[of, error]: [f64; 2]| [of.max(0.0), error];
        match gated {
            false => relu(row(j)),
            true => {
                let ([gate, of_gate], [value, of_value]) = (relu(row(2 * j)), row(2 * j + 1));
                [gate * value, gate * of_value + value.abs() * of_gate + of_gate * of_value]
            }
        }
    };
    let inner_numbers: Vec<Vec<[f64; 2]>> = experts
        .iter()
        .enumerate()
        .map(|(i, &expert)| {
            let mut row: Vec<_> = (0..inner).map(|j| number(i / choices, expert as usize, j)).collect();
            for block in row.chunks_mut(128) {
                // The largest of a block becomes 448, so the smallest numbers are 2^-9 of its 448th part apart.
                let largest = block.iter().map(|[value, error]| value.abs() + error).fold(0.0, f64::max);
                let least = if scaled { largest / 448.0 / 512.0 } else { 0.0 };
                block.iter_mut().for_each(|[value, error]| {
                    *error += (value.abs() + *error) * A::UNIT + least;
                });
            }
            row
        })
        .collect();
    let sums = if scaled { 1.0 / 1024.0 } else { inner as f64 / 8e6 };
    compare(layer, group, &group.read(&y)?, |i| {
        let (token, column) = (i / k, i % k);
        let (mut all, mut bound) = (0.0, 1e-6);
        for choice in token * choices..(token + 1) * choices {
            let row = experts[choice] as usize * k + column;
            let (mut result, mut error, mut magnitude) = (0.0, 0.0, 0.0);
            for (j, [value, own]) in inner_numbers[choice].iter().enumerate() {
                let scale = f64::from(of_down[row / 128 * blocks[1] + j / 128]);
                let weight = down[row * inner + j].number() * scale;
                result += value * weight;
                magnitude += (value * weight).abs();
                error += own * weight.abs();
            }
            let weight = f64::from(weights[choice]);
            all += weight * result;
            bound += weight.abs() * ((error + magnitude * sums) * 1.01 + result.abs() * 1.01 * D::UNIT);
        }
        [all, bound * 1.01 + all.abs() * D::UNIT]
    })
}

fn weight<'a, A: Multiplied>(
    data: &'a [A],
    extents: [u32; 2],
    scales: Option<&'a Vec<f32>>,
) -> Result<Weights<'a>, Error> {
    let weight = Weights::new(data, extents)?;
    scales.map_or(Ok(weight.clone()), |scales| weight.scaled(&scales[..]))
}
