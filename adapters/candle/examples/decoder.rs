//! A decoder-only model with seeded weights, prompt and decode, with candle's operations and with falchion's: tokens and times.
//!
//! ```sh
//! cargo run --release --features cuda --example decoder             # on a card
//! cargo run --release --example decoder                             # a tiny one, in the emulator
//! ```

use std::time::{Duration, Instant};

use candle_core::{DType, Device, Result};

#[path = "support/decoder.rs"]
mod decoder;

use decoder::{By, Decoder, Size, best};

/// Times of a prompt and of a token after it, the medians of several runs.
fn times(model: &Decoder, by: By, prompt: &[u32], count: usize, runs: usize) -> Result<[Duration; 2]> {
    let mut all: Vec<[Duration; 2]> = Vec::new();
    for _ in 0..runs {
        let mut cache = model.cache()?;
        let begun = Instant::now();
        // The logits are copied to the host, which waits for them.
        model.forward(by, prompt, &mut cache)?.to_vec1::<f32>()?;
        let of_prompt = begun.elapsed();
        let begun = Instant::now();
        for token in 0..count {
            model.forward(by, &[token as u32], &mut cache)?.to_vec1::<f32>()?;
        }
        all.push([of_prompt, begun.elapsed() / count as u32]);
    }
    let median = |i: usize| {
        let mut times: Vec<Duration> = all.iter().map(|both| both[i]).collect();
        times.sort_unstable();
        times[times.len() / 2]
    };
    Ok([median(0), median(1)])
}

fn main() -> Result<()> {
    let device = Device::new_cuda(0).unwrap_or(Device::Cpu);
    let (size, dtype, length, count, runs) = if device.is_cpu() {
        println!("no card, or not built with the feature `cuda`: a tiny model, in the emulator");
        let size =
            Size { words: 96, width: 64, hidden: 128, heads: 2, groups: 1, d: 64, blocks: 2, most: 128 };
        (size, DType::F16, 48, 12, 1)
    } else {
        let size = Size {
            words: 32000,
            width: 4096,
            hidden: 14336,
            heads: 32,
            groups: 8,
            d: 128,
            blocks: 8,
            most: 4096,
        };
        (size, DType::BF16, 2048, 64, 5)
    };
    let mut model = Decoder::new(size, dtype, &device)?;
    let prompt: Vec<u32> = (0..length).map(|i| i * 7919 % size.words as u32).collect();
    beside(&model, &[By::Falchion], &prompt, (count, runs))?;
    println!("the weights of the blocks in 8 bits, from a file; candle has them in {dtype:?}");
    model.in_8_bits()?;
    beside(&model, &[By::Weights8, By::Falchion8], &prompt, (count, runs))
}

/// Tokens and times of a model with candle's operations and with falchion's, in one run.
fn beside(model: &Decoder, ours: &[By], prompt: &[u32], (count, runs): (usize, usize)) -> Result<()> {
    let expected = model.generate(By::Candle, prompt, count, None)?;
    let candle = times(model, By::Candle, prompt, count, runs)?;
    let words = |by: By, [of_prompt, token]: [Duration; 2]| {
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        format!(
            "{by:?}: {} tokens of prompt {:.2} ms, each further token {:.3} ms",
            prompt.len(),
            ms(of_prompt),
            ms(token)
        )
    };
    println!("{}", words(By::Candle, candle));
    for &by in ours {
        // Each step begins with candle's text, so that one token that differs does not decide the others.
        let found = model.generate(by, prompt, count, Some(&expected))?;
        let (mut same, mut doubt, mut error, mut size) = (0, 0f32, 0f64, 0f64);
        for (found, expected) in found.iter().zip(&expected) {
            let [first, second] = best(expected);
            if best(found)[0] == first {
                same += 1;
            } else {
                doubt = doubt.max(expected[first] - expected[second]);
            }
            error += found.iter().zip(expected).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>();
            size += expected.iter().map(|b| f64::from(*b).powi(2)).sum::<f64>();
        }
        let time = times(model, by, prompt, count, runs)?;
        let ratio = |i: usize| candle[i].as_secs_f64() / time[i].as_secs_f64();
        println!("{}: {:.2} and {:.2} times as fast as candle", words(by, time), ratio(0), ratio(1));
        println!(
            "  {same} of {count} tokens are candle's; at the others candle's first two logits are at most {doubt} apart; logits differ by {:.4} of their size",
            (error / size).sqrt()
        );
    }
    Ok(())
}
