//! Experts of all ranks, compared with each token's own sums.

use super::{Drawn, Failure, GUARD, Multiplied, compare};
use crate::group::Group;
use crate::layer::{Experts, Routes, Weights};

/// Experts of `n` numbers (pairs, if the layer has a bias), and tokens of each rank, maybe none.
pub(super) fn check<T: Multiplied>(layer: &Drawn, group: &mut Group) -> Result<(), Failure> {
    let mut of = fastrand::Rng::with_seed(layer.seed);
    let (size, gated) = (group.size(), layer.bias);
    let count = size * of.u32(1..4);
    let [inner, k] = [layer.n / size, layer.k].map(|extent| extent as usize);
    let rows = if gated { 2 * inner } else { inner };
    let choices = of.usize(1..=count.min(4) as usize);
    let tokens: Vec<usize> = (0..size).map(|_| of.usize(..=layer.tokens as usize / size as usize)).collect();
    let mut some = |count: usize| (0..count).map(|_| T::of(of.f32() * 2.0 - 1.0)).collect::<Vec<_>>();
    let up = some(count as usize * rows * k);
    let down = some(count as usize * k * inner);
    // Each rank draws everybody's, and takes its own.
    let x: Vec<Vec<T>> = tokens.iter().map(|tokens| some(tokens * k)).collect();
    let popular = of.u32(..count);
    let mut expert = |_| if of.bool() { popular } else { of.u32(..count) };
    let routes: Vec<Vec<u32>> =
        tokens.iter().map(|tokens| (0..tokens * choices).map(&mut expert).collect()).collect();
    let weights: Vec<Vec<f32>> =
        routes.iter().map(|routes| routes.iter().map(|_| of.f32() * 2.0 - 1.0).collect()).collect();

    let rank = group.rank() as usize;
    let (x, experts, weights) = (&x[rank], &routes[rank], &weights[rank]);
    let of_up = Weights::new(&up, [count * rows as u32, layer.k])?;
    let of_down = Weights::new(&down, [count * layer.k, inner as u32])?;
    let epilogue = if gated { "gated(relu, acc)" } else { "relu(acc)" };
    let mut layers = Experts::<T>::new(group, count, [&of_up, &of_down], Some(epilogue))?;
    let mut y = group.upload(&vec![T::of(f32::NAN); x.len() + GUARD])?;
    let device_x = group.upload(x)?;
    layers.forward(group, device_x.view(), Routes { experts, weights }, y.view_mut().part(..x.len())?)?;

    // Of an expert's inner numbers: the number, and the bound of its error.
    let sum = |a: &[T], b: &[T]| {
        let products = || a.iter().zip(b).map(|(a, b)| a.number() * b.number());
        let magnitude: f64 = products().map(f64::abs).sum();
        [products().sum(), magnitude * k as f64 / 8e6]
    };
    let number = |token: usize, expert: usize, j: usize| {
        let row = |i: usize| {
            sum(&x[token * k..(token + 1) * k], &up[(expert * rows + i) * k..(expert * rows + i + 1) * k])
        };
        let relu = |[of, error]: [f64; 2]| [of.max(0.0), error];
        let [value, error] = match gated {
            false => relu(row(j)),
            true => {
                let ([gate, of_gate], [value, of_value]) = (relu(row(2 * j)), row(2 * j + 1));
                [gate * value, gate * of_value + value.abs() * of_gate]
            }
        };
        [value, error + value.abs() * T::UNIT]
    };
    let inner_numbers: Vec<Vec<[f64; 2]>> = experts
        .iter()
        .enumerate()
        .map(|(i, &expert)| (0..inner).map(|j| number(i / choices, expert as usize, j)).collect())
        .collect();
    compare(layer, group, &group.read(&y)?, |i| {
        let (token, column) = (i / k, i % k);
        let (mut all, mut bound) = (0.0, 1e-6);
        for choice in token * choices..(token + 1) * choices {
            let row = (experts[choice] as usize * k + column) * inner;
            let (mut result, mut error, mut magnitude) = (0.0, 0.0, 0.0);
            for ([value, own], weight) in inner_numbers[choice].iter().zip(&down[row..row + inner]) {
                result += value * weight.number();
                magnitude += (value * weight.number()).abs();
                error += own * weight.number().abs();
            }
            let weight = f64::from(weights[choice]);
            all += weight * result;
            bound += weight.abs() * (error + magnitude * inner as f64 / 8e6 + result.abs() * 1.01 * T::UNIT);
        }
        [all, bound * 1.01 + all.abs() * T::UNIT]
    })
}
