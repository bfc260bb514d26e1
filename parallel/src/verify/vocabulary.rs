//! Layers whose vocabulary is divided, compared with the whole one.

use super::{Drawn, GUARD, LayerFailure, Multiplied, compare};
use crate::group::Group;
use crate::layer::{CrossEntropy, Embedding, Weights};

/// Words of the vocabulary, and now and then one that is not there.
fn words(layer: &Drawn, of: &mut fastrand::Rng) -> Vec<u32> {
    let strange = layer.n + of.u32(..1000);
    let word = |_| if of.u32(..50) == 0 { strange } else { of.u32(..layer.n) };
    (0..layer.tokens).map(word).collect()
}

/// Vectors of words are those of the table, bit for bit.
pub(super) fn embedding<T: Multiplied>(layer: &Drawn, group: &mut Group) -> Result<u64, LayerFailure> {
    let mut of = fastrand::Rng::with_seed(layer.seed);
    let ids = words(layer, &mut of);
    let k = layer.k as usize;
    let table: Vec<T> = (0..layer.n as usize * k).map(|_| T::of(of.f32() * 2.0 - 1.0)).collect();
    let mut embedding =
        Embedding::<T>::new(group, &Weights::new(&table, [layer.n, layer.k])?, layer.tokens())?;
    let own = if layer.divided { ids.len() / group.size() as usize } else { ids.len() };
    let first = if layer.divided { own * group.rank() as usize } else { 0 };
    let mut y = group.upload(&vec![T::of(f32::NAN); own * k + GUARD])?;
    let device_ids = group.upload(&ids)?;
    embedding.forward(group, device_ids.view(), y.view_mut().part(..own * k)?)?;
    compare(layer, group, &group.read(&y)?, |i| {
        let at = ids[first + i / k] as usize * k + i % k;
        [table.get(at).map_or(f64::NAN, |number| number.number()), 0.0]
    })
}

/// The loss of each token, and the gradient of some multiple of their sum.
pub(super) fn loss<T: Multiplied>(layer: &Drawn, group: &mut Group) -> Result<u64, LayerFailure> {
    let mut of = fastrand::Rng::with_seed(layer.seed);
    let (targets, n) = (words(layer, &mut of), layer.n as usize);
    let scale = [1.0, 8.0, 60.0][of.usize(..3)];
    let logits: Vec<T> = (0..targets.len() * n).map(|_| T::of((of.f32() * 2.0 - 1.0) * scale)).collect();
    let own = n / group.size() as usize;
    let first = own * group.rank() as usize;
    let of_rank: Vec<T> = logits.chunks_exact(n).flat_map(|row| &row[first..first + own]).copied().collect();
    let factor = 1.0 / layer.tokens as f32;
    let mut cross = CrossEntropy::<T>::new(group, layer.n)?;
    let mut losses = group.upload(&vec![f32::NAN; targets.len() + GUARD])?;
    let mut gradient = group.upload(&vec![T::of(f32::NAN); of_rank.len() + GUARD])?;
    let (x, right) = (group.upload(&of_rank)?, group.upload(&targets)?);
    cross.forward(group, x.view(), right.view(), losses.view_mut().part(..targets.len())?)?;
    let to = &mut gradient.view_mut();
    cross.backward(group, x.view(), right.view(), factor, to.part(..of_rank.len())?)?;
    let log_sum_exp = |token: usize| {
        let row = &logits[token * n..(token + 1) * n];
        let most = row.iter().map(|x| x.number()).fold(f64::NEG_INFINITY, f64::max);
        most + row.iter().map(|x| (x.number() - most).exp()).sum::<f64>().ln()
    };
    let sums: Vec<f64> = (0..targets.len()).map(log_sum_exp).collect();
    // Sums in f32, and the device's exponential and logarithm.
    let error = |of: f64| of * (n as f64 / 8e6 + 2e-6) + 1e-5;
    let bits = compare(layer, group, &group.read(&losses)?, |i| {
        let right = if targets[i] < layer.n {
            logits[i * n + targets[i] as usize].number()
        } else {
            f64::NEG_INFINITY
        };
        [sums[i] - right, error(sums[i].abs().max(scale.into()))]
    })?;
    let of_gradient = compare(layer, group, &group.read(&gradient)?, |i| {
        let (token, column) = (i / own, first + i % own);
        let share = (logits[token * n + column].number() - sums[token]).exp();
        let right = if targets[token] as usize == column { 1.0 } else { 0.0 };
        let expected = (share - right) * f64::from(factor);
        let relative = error(sums[token].abs().max(scale.into()));
        // The smallest number of f16 is 6e-8.
        [expected, share * f64::from(factor) * relative + expected.abs() * T::UNIT + 6e-8]
    })?;
    Ok(bits ^ of_gradient.rotate_left(1))
}
