//! Products of cust's buffers on the card, held against exact integers. Without a card each test says so and passes.

use std::error::Error;

use cust::context::Context;
use cust::error::CudaError;
use cust::memory::{CopyDestination, DeviceBuffer};
use cust::stream::{Stream, StreamFlags};
use falchion::prelude as f;
use falchion_cust::{Activation, GemmProblem, Products, Weight};
use half::{bf16, f16};

type Outcome = Result<(), Box<dyn Error>>;

type Card = (Context, Products, Stream);

fn card() -> Result<Option<Card>, Box<dyn Error>> {
    let context = match cust::quick_init() {
        Ok(context) => context,
        Err(CudaError::NoDevice) => {
            println!("no card: skipped");
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let products = Products::new(&context)?;
    Ok(Some((context, products, Stream::new(StreamFlags::NON_BLOCKING, None)?)))
}

/// Small whole numbers: their sums are exact, and so is what becomes of them in 16 bits.
fn whole(random: &mut fastrand::Rng, count: u32) -> Vec<f32> {
    (0..count).map(|_| f32::from(random.i8(-1..=1))).collect()
}

/// Row-major A by B, or by the transpose of an `N x K` B.
fn expected(GemmProblem { m, n, k }: GemmProblem, [a, b]: [&[f32]; 2], transposed: bool) -> Vec<f32> {
    let of_b = |l, j| if transposed { j * k + l } else { l * n + j };
    let at = |i, j| (0..k).map(|l| a[(i * k + l) as usize] * b[of_b(l, j) as usize]).sum();
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| at(i, j)).collect()
}

const SHAPES: [[u32; 3]; 4] = [[64, 64, 64], [33, 40, 72], [1, 200, 130], [300, 7, 250]];

#[test]
fn a_card_multiplies_row_major_matrices() -> Outcome {
    let Some((_context, products, stream)) = card()? else { return Ok(()) };
    let mut random = fastrand::Rng::new();
    for [m, n, k] in SHAPES {
        let problem = GemmProblem { m, n, k };
        let [a, b] = [m * k, k * n].map(|count| whole(&mut random, count));
        let wanted = expected(problem, [&a, &b], false);
        let rounded = |values: &[f32]| values.iter().map(|&value| bf16::from_f32(value)).collect::<Vec<_>>();
        let [a, b] = [DeviceBuffer::from_slice(&rounded(&a))?, DeviceBuffer::from_slice(&rounded(&b))?];
        let mut d = DeviceBuffer::from_slice(&vec![bf16::NAN; wanted.len()])?;
        products.matmul(&stream, problem, &a, &b, &mut d)?;
        let mut found = vec![bf16::ZERO; wanted.len()];
        d.copy_to(&mut found)?;
        assert_eq!(found, rounded(&wanted), "{m} x {n} x {k}");
    }
    Ok(())
}

#[test]
fn a_card_runs_a_linear_layer() -> Outcome {
    let Some((_context, products, stream)) = card()? else { return Ok(()) };
    let mut random = fastrand::Rng::new();
    for [m, n, k] in SHAPES {
        let problem = GemmProblem { m, n, k };
        let [x, w, bias] = [m * k, n * k, n].map(|count| whole(&mut random, count));
        let mut wanted = expected(problem, [&x, &w], true);
        for row in wanted.chunks_mut(n as usize) {
            row.iter_mut().zip(&bias).for_each(|(value, bias)| *value = (*value + bias).max(0.0));
        }
        let rounded = |values: &[f32]| values.iter().map(|&value| f16::from_f32(value)).collect::<Vec<_>>();
        let [x, w, bias] = [x, w, bias].map(|values| DeviceBuffer::from_slice(&rounded(&values)));
        let (x, w, bias) = (x?, w?, bias?);
        let weight = Weight { matrix: &w, bias: Some(&bias), activation: Activation::Relu };
        let mut y = DeviceBuffer::from_slice(&vec![f16::NAN; wanted.len()])?;
        products.linear(&stream, problem, &x, &weight, &mut y)?;
        let mut found = vec![f16::ZERO; wanted.len()];
        y.copy_to(&mut found)?;
        assert_eq!(found, rounded(&wanted), "{m} x {n} x {k}");
    }
    Ok(())
}

#[test]
fn a_card_runs_a_kernel_of_ones_own() -> Outcome {
    type Own = f::Composed<
        f::TmaWgmma<
            f::Operands<f::KMajor<f::f16>, f::KMajor<f::f16>>,
            f::Tile<f::U64, f::U64, f::U64>,
            f::Cooperative<f::U1>,
        >,
        f::LinearCombination<f32>,
        f::OneTile<f::AlongM>,
    >;
    let Some((_context, products, stream)) = card()? else { return Ok(()) };
    let problem = GemmProblem { m: 100, n: 72, k: 136 };
    let mut random = fastrand::Rng::new();
    let [a, b] = [100 * 136, 72 * 136].map(|count| whole(&mut random, count));
    let wanted = expected(problem, [&a, &b], true);
    let rounded = |values: &[f32]| values.iter().map(|&value| f16::from_f32(value)).collect::<Vec<_>>();
    let [a, b] = [DeviceBuffer::from_slice(&rounded(&a))?, DeviceBuffer::from_slice(&rounded(&b))?];
    let mut d = DeviceBuffer::from_slice(&vec![f32::NAN; wanted.len()])?;
    let gemm = products.load::<Own>()?;
    products.multiply(&gemm, &stream, problem, &a, &b, &mut d)?;
    let mut found = vec![0.0; wanted.len()];
    d.copy_to(&mut found)?;
    assert_eq!(found, wanted);
    Ok(())
}

#[test]
fn a_card_refuses_what_does_not_fit() -> Outcome {
    let Some((_context, products, stream)) = card()? else { return Ok(()) };
    let short = DeviceBuffer::from_slice(&[bf16::ONE; 63])?;
    let whole = DeviceBuffer::from_slice(&[bf16::ONE; 64])?;
    let mut d = DeviceBuffer::from_slice(&[bf16::ONE; 64])?;
    let problem = GemmProblem { m: 8, n: 8, k: 8 };
    for (a, b, words) in [(&short, &whole, "A is 128 B"), (&whole, &short, "B is 128 B")] {
        let error = products.matmul(&stream, problem, a, b, &mut d).expect_err("a slice is short");
        assert!(error.to_string().contains(words), "{error}");
    }
    let weight = Weight { matrix: &whole, bias: Some(&whole), activation: Activation::Gelu };
    let short_bias = DeviceBuffer::from_slice(&[bf16::ONE; 7])?;
    let error =
        products.linear(&stream, problem, &whole, &Weight { bias: Some(&short_bias), ..weight }, &mut d);
    let words = error.expect_err("the bias is short").to_string();
    assert!(words.contains("16 B"), "{words}");
    let error = products.linear(&stream, problem, &whole, &Weight { bias: None, ..weight }, &mut d);
    assert!(error.expect_err("there is no bias").to_string().contains("Gelu"));
    Ok(())
}
