//! Two linear layers of 8-bit floats with block scales. The first layer quantises its own result for the
//! second.
//!
//! Activations have one scale per 128 elements of a row along K, weights one scale per 128 x 128 elements.
//! The epilogue of the first layer applies ReLU, and divides every 128 columns of a row by a scale. Its
//! matrix and scales are the second layer's A.
//!
//! `cargo run --release --example fp8_layers`

use falchion::collective::functions::Relu;
use falchion::collective::tree::{Accumulator, Compute, Quantize};
use falchion::collective::{BlockScaled, BlockScales, F8E4M3, MatrixRef};
use falchion::prelude::*;
use typenum::{U1, U2, U128};

type X = BlockScaled<KMajor<F8E4M3>, U1>;
type W = BlockScaled<KMajor<F8E4M3>, U128>;
type Multiply =
    TmaWgmma<Operands<X, W>, Tile<U128, U128, U128>, Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>>;
/// `quantize(relu(x * w))`.
type Epilogue = TreeEpilogue<F8E4M3, TmaStore, Quantize<F8E4M3, Compute<Relu, (Accumulator,)>>>;
type First = Composed<Multiply, Epilogue, Persistent<AlongM>>;
type Second = Composed<Multiply, LinearCombination<f32, TmaStore>, Persistent<AlongM>>;

/// Rows of the activations.
const M: usize = 200;
/// The layers are K x N and N x OUT.
const K: usize = 512;
const N: usize = 256;
const OUT: usize = 128;

/// A matrix `rows x columns` in `e4m3`, with one scale per block of some rows by 128 columns.
struct Quantised {
    bytes: Vec<u8>,
    /// If each row has its own scales: one block of columns after the other. Otherwise: one block of rows
    /// after the other, with a leading dimension that is a multiple of four.
    scales: Vec<u8>,
}

fn quantised(matrix: &[f64], columns: usize, block: usize) -> Quantised {
    let (groups, blocks) = ((matrix.len() / columns).div_ceil(block), columns / 128);
    let mut scales = vec![1e-30_f32; groups * blocks];
    let place = |i: usize| i / columns / block * blocks + i % columns / 128;
    for (i, value) in matrix.iter().enumerate() {
        let scale = &mut scales[place(i)];
        *scale = scale.max((value.abs() / 448.0) as f32);
    }
    let byte = |(i, value): (usize, &f64)| F8E4M3::from_f64(value / f64::from(scales[place(i)])).to_bits();
    let bytes = matrix.iter().enumerate().map(byte).collect();
    let at = |group: usize, along: usize| if along < blocks { scales[group * blocks + along] } else { 0.0 };
    let (outer, inner) = if block == 1 { (blocks, groups) } else { (groups, blocks.next_multiple_of(4)) };
    let turned = |i: usize| if block == 1 { at(i % inner, i / inner) } else { at(i / inner, i % inner) };
    Quantised { bytes, scales: (0..outer * inner).flat_map(|i| turned(i).to_le_bytes()).collect() }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut random = fastrand::Rng::with_seed(3);
    let mut matrix = |elements: usize| (0..elements).map(|_| random.f64() * 2.0 - 1.0).collect::<Vec<f64>>();
    // Weights are stored as (N, K).
    let (x, w1, w2) = (matrix(M * K), matrix(N * K), matrix(OUT * N));

    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    let mut place = |bytes: &[u8]| engine.upload(bytes).map(|buffer| buffer.address);
    let of_x = quantised(&x, K, 1);
    let (of_w1, of_w2) = (quantised(&w1, K, 128), quantised(&w2, N, 128));
    let [x_at, x_scales] = [place(&of_x.bytes)?, place(&of_x.scales)?];
    let [w1_at, w1_scales, w2_at, w2_scales] =
        [place(&of_w1.bytes)?, place(&of_w1.scales)?, place(&of_w2.bytes)?, place(&of_w2.scales)?];
    let [hidden, hidden_scales, y] =
        [place(&vec![0; M * N])?, place(&vec![0; N / 128 * M * 4])?, place(&vec![0; M * OUT * 4])?];
    let at = |address, ld: usize| MatrixRef::new(address, ld as u64);

    let program = Gemm::<First>::program()?;
    let problem = GemmProblem { m: M as u32, n: N as u32, k: K as u32 };
    let call = Call { a: at(x_at, K), b: at(w1_at, K), d: at(hidden, N), ..Call::of(problem) };
    let call = call.scaled(BlockScales { a: at(x_scales, M), b: at(w1_scales, K / 128) });
    let scales = MatrixRef::new(hidden_scales, M as u64);
    let arguments = (scales, ((), ((),)));
    let launch = Gemm::<First>::launch(&call.with(&arguments), engine.resident_clusters(&program)?)?
        .ok_or("nothing to do")?;
    engine.launch(&program, launch.grid, &launch.arguments)?;

    let program = Gemm::<Second>::program()?;
    let problem = GemmProblem { m: M as u32, n: OUT as u32, k: N as u32 };
    let call = Call { a: at(hidden, N), b: at(w2_at, N), d: at(y, OUT), ..Call::of(problem) };
    let call = call.scaled(BlockScales { a: at(hidden_scales, M), b: at(w2_scales, 4) });
    let launch =
        Gemm::<Second>::launch(&call, engine.resident_clusters(&program)?)?.ok_or("nothing to do")?;
    engine.launch(&program, launch.grid, &launch.arguments)?;

    let bytes = engine.read(falchion::kernel::Buffer { address: y, bytes: M * OUT * 4 })?;
    let got: Vec<f64> = bytes
        .chunks_exact(4)
        .map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]]).into())
        .collect();
    // The reference: the same layers on the matrices before quantisation.
    let product = |a: &[f64], b: &[f64], k: usize| -> Vec<f64> {
        let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(x, w)| x * w).sum();
        a.chunks(k).flat_map(|row| b.chunks(k).map(move |column| dot(row, column))).collect()
    };
    let relu: Vec<f64> = product(&x, &w1, K).into_iter().map(|value| value.max(0.0)).collect();
    let want = product(&relu, &w2, N);
    let squares =
        |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let error = squares(&mut got.iter().zip(&want).map(|(got, want)| got - want))
        / squares(&mut want.iter().copied());
    println!("error against the layers without quantisation: {:.2} % root mean square", error * 100.0);
    if error < 0.06 { Ok(()) } else { Err("the layers lose more than e4m3 does".into()) }
}
