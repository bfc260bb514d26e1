//! Attention compared with candle's operations, and a small decoder that gives the same tokens with both.

use candle_core::{DType, Device, Result, Tensor};
use falchion_candle::{Attention, attention};

#[path = "../examples/support/decoder.rs"]
mod decoder;

use decoder::{By, Decoder, Size};

/// The CPU, and the card where there is one.
fn devices() -> Vec<Device> {
    let card = Device::new_cuda(0).inspect_err(|_| println!("no card: tested in the emulator alone"));
    [Device::Cpu].into_iter().chain(card).collect()
}

fn random(shape: (usize, usize, usize, usize), dtype: DType, device: &Device) -> Result<Tensor> {
    Tensor::randn(0f32, 0.7, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
}

#[test]
fn attention_is_candles() -> Result<()> {
    for device in devices() {
        for dtype in [DType::BF16, DType::F16] {
            for (causal, [heads, groups], [length, keys], d) in [
                (false, [4, 4], [70, 70], 64),
                (true, [4, 2], [70, 90], 64),
                (true, [2, 1], [1, 33], 128),
                (true, [3, 3], [9, 9], 96),
            ] {
                let q = random((2, heads, length, d), dtype, &device)?;
                // A view of a cache, and heads that follow the length.
                let k = random((2, groups, 128, d), dtype, &device)?.narrow(2, 5, keys)?;
                let v = random((2, keys, groups, d), dtype, &device)?.transpose(1, 2)?;
                let what = Attention { causal, scale: Some(0.2) };
                let found = attention(&q, &k, &v, what)?;
                assert_eq!((found.dims(), found.dtype()), (&[2, heads, length, d][..], dtype));
                let [q, k, v] = [&q, &k, &v].map(|x| x.to_device(&Device::Cpu)?.to_dtype(DType::F32));
                let expected = attention(&q?, &k?, &v?, what)?;
                let found = found.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
                let apart = (found - expected)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()?;
                let bound = if dtype == DType::BF16 { 0.03 } else { 0.004 };
                assert!(apart < bound, "{dtype:?} {heads}/{groups} {length} {keys} {d}: {apart}");
            }
        }
    }
    Ok(())
}

#[test]
fn what_is_refused_is_named() -> Result<()> {
    let q = random((1, 2, 3, 64), DType::F16, &Device::Cpu)?;
    for (words, k) in [
        ("the same batch and d", random((1, 2, 3, 128), DType::F16, &Device::Cpu)?),
        ("2 heads of queries and 3 of keys", random((1, 3, 3, 64), DType::F16, &Device::Cpu)?),
        ("of other types", random((1, 2, 3, 64), DType::BF16, &Device::Cpu)?),
    ] {
        let error = attention(&q, &k, &k, Attention::default()).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    Ok(())
}

/// Prompt and decode: the same tokens with candle's operations and with falchion's.
#[test]
fn a_decoder_gives_candles_tokens() -> Result<()> {
    for device in devices() {
        let size =
            Size { words: 96, width: 64, hidden: 128, heads: 2, groups: 1, d: 64, blocks: 2, most: 64 };
        let model = Decoder::new(size, DType::F16, &device)?;
        let prompt: Vec<u32> = (0..21).map(|i| i * 37 % 96).collect();
        let (expected, least) = model.generate(By::Candle, &prompt, 12)?;
        let (found, _) = model.generate(By::Falchion, &prompt, 12)?;
        assert_eq!(found, expected, "the closest two logits differed by {least}");
        assert!(
            expected.iter().any(|token| *token != expected[0]),
            "the model says one word alone: {expected:?}"
        );
    }
    Ok(())
}
