//! Random layers, compared with the whole product in `f64`: on any group, each rank compares its own output.

mod experts;
mod vocabulary;

use core::fmt;
use core::hash::{Hash, Hasher};
use core::ops::Range;
use std::hash::DefaultHasher;

use falchion::collective::F8E4M3;
use half::{bf16, f16};

use crate::element::Element;
use crate::error::Error;
use crate::group::Group;
use crate::layer::{Argument, ColumnParallel, Cut, Input, RowParallel, Tokens, Weights};

/// A layer that was drawn. All ranks draw the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Drawn {
    /// What it is.
    pub kind: Kind,
    /// What is multiplied.
    pub numbers: Numbers,
    /// Tokens of all ranks.
    pub tokens: u32,
    /// Outputs of all ranks.
    pub n: u32,
    /// Inputs of all ranks.
    pub k: u32,
    /// Whether a bias is added.
    pub bias: bool,
    /// Whether a matrix is added.
    pub residual: bool,
    /// Whether it runs on a stream besides the group's own.
    pub side: bool,
    /// Whether each rank holds a part of the tokens, before a column-parallel layer and after a row-parallel
    /// one.
    pub divided: bool,
    /// The seed of its numbers.
    pub seed: u64,
}

/// Which outputs or inputs a rank has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Neighbouring outputs.
    Column,
    /// Neighbouring outputs of each of three parts.
    Parts,
    /// Neighbouring outputs, of which a gate joins pairs.
    Gated,
    /// Neighbouring inputs.
    Row,
    /// Neighbouring experts, of `n` numbers between `k` inputs and `k` outputs.
    Experts,
    /// Neighbouring words, `n` in all, of `k` numbers each.
    Embedding,
    /// The loss of `n` words, and its gradient.
    CrossEntropy,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Column,
        Self::Parts,
        Self::Gated,
        Self::Row,
        Self::Experts,
        Self::Embedding,
        Self::CrossEntropy,
    ];
}

/// What is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// `bf16`.
    Bf16,
    /// `f16`.
    F16,
    /// `e4m3` with block scales; the output is `bf16`.
    Scaled,
}

impl fmt::Display for Drawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, numbers, tokens, n, k, bias, divided, .. } = self;
        let words = [
            (*bias, ", bias"),
            (self.residual, ", residual"),
            (*divided, ", tokens divided"),
            (self.side, ", on a side stream"),
        ];
        let words: String = words.into_iter().filter_map(|(is, word)| is.then_some(word)).collect();
        write!(f, "{kind:?} {numbers:?} {tokens} x {n} x {k}{words}")
    }
}

impl Drawn {
    /// Draws a layer for a number of ranks.
    pub fn new(of: &mut fastrand::Rng, ranks: u32) -> Self {
        let kind = Kind::ALL[of.usize(..Kind::ALL.len())];
        let product = !matches!(kind, Kind::Experts | Kind::Embedding | Kind::CrossEntropy);
        let numbers = [Numbers::Bf16, Numbers::F16, Numbers::Bf16, Numbers::Scaled];
        let numbers = numbers[of.usize(..if product || kind == Kind::Experts { 4 } else { 2 })];
        let scaled = numbers == Numbers::Scaled;
        // Rows are whole 16 bytes; blocks of scales are whole.
        let step = if scaled { 128 } else { 8 };
        let (n, k) = match kind {
            Kind::Row => (8 * of.u32(1..20), ranks * step * of.u32(1..=if scaled { 2 } else { 12 })),
            Kind::Column | Kind::Parts | Kind::Gated => {
                let n = 4 * ranks * step * of.u32(1..=if scaled { 1 } else { 4 });
                (n, step * of.u32(1..=if scaled { 2 } else { 20 }))
            }
            Kind::Experts if scaled => (128 * ranks * of.u32(1..=2), 128 * of.u32(1..=2)),
            Kind::Experts | Kind::Embedding | Kind::CrossEntropy => {
                (8 * ranks * of.u32(1..20), 8 * of.u32(1..20))
            }
        };
        let divided = of.bool();
        let tokens = if divided { ranks * of.u32(1..20) } else { of.u32(1..90) };
        let [bias, residual, side] = [of.bool(), product && of.u32(..3) == 0, of.u32(..3) == 0];
        Self { kind, numbers, tokens, n, k, bias, residual, divided, side, seed: of.u64(..) }
    }

    /// Runs the layer on a rank and compares each of its numbers, `runs` times from the start. All ranks do.
    ///
    /// # Errors
    /// The first number that is wrong; a run whose outputs have other bits than the first one's; or what the layer could not do.
    pub fn check(&self, group: &mut Group, runs: u32) -> Result<(), LayerFailure> {
        if self.side {
            let own = Self { side: false, ..self.clone() };
            let mut side = group.stream()?;
            return group.on(&mut side, |group| own.check(group, runs));
        }
        let first = self.digest(group)?;
        for run in 1..runs {
            if self.digest(group)? != first {
                let rank = group.rank();
                return Err(LayerFailure::Wrong(format!(
                    "{self}: rank {rank}, run {run} has other bits than run 0"
                )));
            }
        }
        Ok(())
    }

    /// Runs the layer and compares its numbers. Returns a digest of their bits.
    fn digest(&self, group: &mut Group) -> Result<u64, LayerFailure> {
        let f16 = self.numbers == Numbers::F16;
        match self.kind {
            Kind::Experts if f16 => return experts::check::<f16, f16>(self, group),
            Kind::Experts if self.numbers == Numbers::Scaled => {
                return experts::check::<F8E4M3, bf16>(self, group);
            }
            Kind::Experts => return experts::check::<bf16, bf16>(self, group),
            Kind::Embedding if f16 => return vocabulary::embedding::<f16>(self, group),
            Kind::Embedding => return vocabulary::embedding::<bf16>(self, group),
            Kind::CrossEntropy if f16 => return vocabulary::loss::<f16>(self, group),
            Kind::CrossEntropy => return vocabulary::loss::<bf16>(self, group),
            Kind::Column | Kind::Parts | Kind::Gated | Kind::Row => {}
        }
        match self.numbers {
            Numbers::Bf16 => Whole::<bf16>::new(self).check::<bf16>(self, group),
            Numbers::F16 => Whole::<f16>::new(self).check::<f16>(self, group),
            Numbers::Scaled => Whole::<F8E4M3>::new(self).check::<bf16>(self, group),
        }
    }

    /// Columns that a rank of a column-parallel layer has, or all.
    fn columns(&self, (rank, size): (u32, u32)) -> Vec<usize> {
        match self.kind {
            Kind::Column | Kind::Parts | Kind::Gated => {
                let outputs = if self.kind == Kind::Gated { self.n / 2 } else { self.n };
                let ranges = self.cut().ranges(outputs, (rank, size)).unwrap_or_default();
                ranges
                    .into_iter()
                    .flat_map(|[first, count]| first as usize..(first + count) as usize)
                    .collect()
            }
            _ => (0..self.n as usize).collect(),
        }
    }

    fn cut(&self) -> Cut {
        match self.kind {
            Kind::Parts => Cut::Parts(vec![self.n / 2, self.n / 4, self.n / 4]),
            _ => Cut::Rows,
        }
    }

    fn tokens(&self) -> Tokens {
        if self.divided { Tokens::Divided } else { Tokens::Whole }
    }
}

/// Why a layer failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LayerFailure {
    /// It did not run.
    #[error("{0}")]
    Error(#[from] Error),
    /// It computed something else.
    #[error("{0}")]
    Wrong(String),
}

/// A number type of layers.
trait Multiplied: Element {
    /// Half of the distance from 1 to the next number.
    const UNIT: f64;

    fn of(number: f32) -> Self;
    fn number(self) -> f64;
}

macro_rules! multiplied {
    ($($host:ty: $unit:expr;)+) => {$(
        impl Multiplied for $host {
            const UNIT: f64 = $unit;

            fn of(number: f32) -> Self {
                Self::from_f32(number)
            }

            fn number(self) -> f64 {
                self.to_f32().into()
            }
        }
    )+};
}

multiplied! {
    bf16: 1.0 / 256.0;
    f16: 1.0 / 2048.0;
    F8E4M3: 1.0 / 16.0;
}

impl Multiplied for f32 {
    const UNIT: f64 = 1.0 / 16_777_216.0;

    fn of(number: f32) -> Self {
        number
    }

    fn number(self) -> f64 {
        self.into()
    }
}

/// The numbers of a layer.
struct Whole<T> {
    x: Vec<T>,
    w: Vec<T>,
    /// Of each token and 128 inputs; of each 128 outputs and 128 inputs.
    scales: Option<[Vec<f32>; 2]>,
    bias: Vec<f32>,
}

/// Numbers after an output that nobody may write.
const GUARD: usize = 64;

/// Compares an output with what is expected and the bound of its error; nothing may be written behind it. Returns a digest of its
/// bits.
fn compare<D: Multiplied>(
    layer: &Drawn,
    group: &Group,
    found: &[D],
    expect: impl Fn(usize) -> [f64; 2],
) -> Result<u64, LayerFailure> {
    let (rank, (output, guard)) = (group.rank(), found.split_at(found.len() - GUARD));
    if guard.iter().any(|number| !number.number().is_nan()) {
        return Err(LayerFailure::Wrong(format!("{layer}: rank {rank} wrote behind its output")));
    }
    for (i, found) in output.iter().enumerate() {
        let ([expected, bound], found) = (expect(i), found.number());
        let equal = found == expected || (found.is_nan() && expected.is_nan());
        let apart = (found - expected).abs();
        if !equal && (apart.is_nan() || apart > bound) {
            let words = format!("{layer}: rank {rank}, number {i}: {found} for {expected}, within {bound}");
            return Err(LayerFailure::Wrong(words));
        }
    }
    let mut bits = DefaultHasher::new();
    output.iter().for_each(|number| number.number().to_bits().hash(&mut bits));
    Ok(bits.finish())
}

/// A number of the matrix that is added, which every format has.
fn residual(token: usize, column: usize) -> f64 {
    ((token * 7 + column * 3) % 31) as f64 / 8.0 - 2.0
}

impl<T: Multiplied> Whole<T> {
    fn new(layer: &Drawn) -> Self {
        let mut of = fastrand::Rng::with_seed(layer.seed);
        let [tokens, n, k] = [layer.tokens, layer.n, layer.k].map(|extent| extent as usize);
        let mut some = |count: usize| (0..count).map(|_| T::of(of.f32() * 2.0 - 1.0)).collect::<Vec<_>>();
        let (x, w) = (some(tokens * k), some(n * k));
        let blocks = k.div_ceil(128);
        let mut scale = |count: usize| (0..count).map(|_| 0.5 + of.f32()).collect::<Vec<_>>();
        let scaled = layer.numbers == Numbers::Scaled;
        let scales = scaled.then(|| [scale(tokens * blocks), scale(n.div_ceil(128) * blocks)]);
        // Numbers that every format has.
        let bias = (0..n).map(|i| (i % 15) as f32 / 8.0 - 0.75).collect();
        Self { x, w, scales, bias }
    }

    /// An output before rounding, and the sum of its magnitudes.
    fn expect(&self, layer: &Drawn, token: usize, column: usize) -> [f64; 2] {
        let (k, blocks) = (layer.k as usize, layer.k.div_ceil(128) as usize);
        let mut sums = [0.0; 2];
        for i in 0..k {
            let scale = self.scales.as_ref().map_or(1.0, |[x, w]| {
                f64::from(x[token * blocks + i / 128]) * f64::from(w[column / 128 * blocks + i / 128])
            });
            let product = self.x[token * k + i].number() * self.w[column * k + i].number() * scale;
            sums = [sums[0] + product, sums[1] + product.abs()];
        }
        let bias = if layer.bias { f64::from(self.bias[column]) } else { 0.0 };
        [sums[0] + bias, sums[1] + bias.abs()]
    }

    /// Scales of some rows and blocks, as kernels want them.
    fn scales_of(&self, rows: Range<usize>, blocks: Range<usize>, all: usize) -> Vec<f32> {
        let Some([x, _]) = &self.scales else { return Vec::new() };
        let padded = rows.len().next_multiple_of(4);
        let mut scales = vec![0.0; padded * blocks.len()];
        for (i, row) in rows.enumerate() {
            for (j, block) in blocks.clone().enumerate() {
                scales[j * padded + i] = x[row * all + block];
            }
        }
        scales
    }

    fn check<D: Multiplied>(&self, layer: &Drawn, group: &mut Group) -> Result<u64, LayerFailure> {
        let (found, first) = self.run::<D>(layer, group)?;
        let (rank, size) = (group.rank(), group.size());
        let columns = layer.columns((rank, size));
        compare(layer, group, &found, |i| {
            let of = |column| self.expect(layer, first + i / columns.len(), column);
            // `wgmma` adds products of 8 bits up in some 14 bits.
            let of_eight_bits = if layer.numbers == Numbers::Scaled { 1.0 / 1024.0 } else { 0.0 };
            let (column, sums) = (columns[i % columns.len()], f64::from(layer.k) / 8e6 + of_eight_bits);
            let added = if layer.residual { residual(first + i / columns.len(), column) } else { 0.0 };
            if layer.kind == Kind::Gated {
                let [[gate, of_gate], [up, of_up]] = [of(2 * column), of(2 * column + 1)];
                let gate = gate.max(0.0);
                let error = (gate * of_up + up.abs() * of_gate) * sums;
                let magnitude = gate * up.abs() + added.abs();
                return [gate * up + added, error * 1.01 + magnitude * D::UNIT + 1e-5];
            }
            let [expected, magnitude] = of(column);
            // Each rank's product is rounded, and so is each sum of two; products are added up in f32.
            let roundings = if layer.kind == Kind::Row { 2.0 * f64::from(size) } else { 1.0 };
            let error = magnitude * (roundings * D::UNIT + sums);
            [expected + added, error + (magnitude + added.abs()) * D::UNIT + 1e-5]
        })
    }

    /// A rank's output with its guard, and its first token.
    fn run<D: Multiplied>(&self, layer: &Drawn, group: &mut Group) -> Result<(Vec<D>, usize), Error> {
        let [tokens, k] = [layer.tokens, layer.k].map(|extent| extent as usize);
        let (rank, size) = (group.rank() as usize, group.size() as usize);
        let weights = Weights::new(&self.w, [layer.n, layer.k])?;
        let weights = match &self.scales {
            Some([_, scales]) => weights.scaled(&scales[..])?,
            None => weights,
        };
        let (blocks, part) = (k.div_ceil(128), tokens / size);
        let own = if layer.divided { rank * part..(rank + 1) * part } else { 0..tokens };
        let (x, scales) = match layer.kind {
            Kind::Row => {
                let own = k / size;
                let columns = |row: usize| &self.x[row * k + rank * own..row * k + (rank + 1) * own];
                let x = (0..tokens).flat_map(columns).copied().collect();
                (x, self.scales_of(0..tokens, rank * own / 128..((rank + 1) * own).div_ceil(128), blocks))
            }
            _ => {
                (self.x[own.start * k..own.end * k].to_vec(), self.scales_of(own.clone(), 0..blocks, blocks))
            }
        };
        let outputs = match layer.kind {
            Kind::Row => own.len(),
            _ => tokens,
        } * layer.columns((group.rank(), group.size())).len();
        let mut y = group.upload(&vec![D::of(f32::NAN); outputs + GUARD])?;
        let (x, scales) = (group.upload::<T>(&x)?, group.upload(&scales)?);
        let input = match self.scales {
            Some(_) => Input::scaled(x.view(), scales.view()),
            None => Input::from(x.view()),
        };
        let columns = layer.columns((group.rank(), group.size()));
        let first = if layer.kind == Kind::Row { own.start } else { 0 };
        let of_output =
            |i: usize| D::of(residual(first + i / columns.len(), columns[i % columns.len()]) as f32);
        let added = group.upload(&(0..outputs).map(of_output).collect::<Vec<_>>())?;
        let mut all = y.view_mut();
        let to = all.part(..outputs)?;
        match layer.kind {
            Kind::Row => {
                let mut row = RowParallel::<T, D>::new(group, &weights, layer.tokens())?;
                if layer.bias {
                    row = row.with_bias(group, &self.bias)?;
                }
                match layer.residual {
                    true => row.forward_plus(group, input, added.view(), to)?,
                    false => row.forward(group, input, to)?,
                }
            }
            _ => {
                let mut column = ColumnParallel::<T, D>::new(group, &weights, &layer.cut(), layer.tokens())?;
                let bias = [("bias", Argument::Columns(self.bias.clone()))];
                let mut text = if layer.bias { "acc + bias[n]:f32" } else { "acc" }.to_owned();
                if layer.kind == Kind::Gated {
                    text = format!("gated(relu, {text})");
                }
                if layer.residual {
                    text += " + residual[m,n]";
                }
                if text != "acc" {
                    column = column.with_epilogue(group, &text, if layer.bias { &bias } else { &[] })?;
                }
                let operands = [("residual", added.view().into())];
                column.forward_with(group, input, if layer.residual { &operands } else { &[] }, to)?;
            }
        }
        Ok((group.read(&y)?, first))
    }
}
