//! Attention compared with candle's operations, and a small decoder that gives the same tokens with both.

use candle_core::{DType, Device, Result, Tensor, Var};
use falchion_candle::{
    Attention, Lines, attention, attention_paged, attention_varlen, attention_with_sums,
};

#[path = "../examples/support/decoder.rs"]
mod decoder;

use decoder::{By, Decoder, Size, best};

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
                let what = Attention { causal, scale: Some(0.2), ..Attention::default() };
                let found = attention(&q, &k, &v, what.clone())?;
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

/// Largest difference of two tensors.
fn apart(a: &Tensor, b: &Tensor) -> Result<f32> {
    let wide = |x: &Tensor| x.to_device(&Device::Cpu)?.to_dtype(DType::F32);
    (wide(a)? - wide(b)?)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()
}

/// By candle's operations in `f32`, of tensors with the heads in front.
fn expected([q, k, v]: [&Tensor; 3], what: Attention) -> Result<Tensor> {
    let [q, k, v] = [q, k, v].map(|x| x.to_device(&Device::Cpu)?.to_dtype(DType::F32));
    attention(&q?, &k?, &v?, what)
}

#[test]
fn sequences_and_pages_are_equal_ones() -> Result<()> {
    for device in devices() {
        for what in [
            Attention { causal: true, ..Attention::default() },
            Attention { window: Some([7, 2]), ..Attention::default() },
        ] {
            let lengths = [[20usize, 33], [1, 50], [70, 70]];
            let lines = |i: usize| -> Result<Lines> {
                let begins: Vec<u32> =
                    (0..=3).map(|n| lengths[..n].iter().map(|of| of[i] as u32).sum()).collect();
                Ok(Lines { begins: Tensor::new(begins, &device)?, longest: 70 })
            };
            let rows =
                |rows: usize, heads: usize| random((1, rows, heads, 64), DType::BF16, &device)?.squeeze(0);
            let (q, k, v) = (rows(91, 4)?, rows(153, 2)?, rows(153, 2)?);
            let found = attention_varlen((&q, &lines(0)?), [&k, &v], &lines(1)?, what.clone())?;
            assert_eq!(found.dims(), [91, 4, 64]);
            let mut begin = [0, 0];
            for [queries, keys] in lengths {
                let part =
                    |x: &Tensor, begin, count| x.narrow(0, begin, count)?.transpose(0, 1)?.unsqueeze(0);
                let all =
                    [part(&q, begin[0], queries)?, part(&k, begin[1], keys)?, part(&v, begin[1], keys)?];
                let apart =
                    apart(&part(&found, begin[0], queries)?, &expected(all.each_ref(), what.clone())?)?;
                assert!(apart < 0.03, "{queries} {keys}: {apart}");
                begin = [begin[0] + queries, begin[1] + keys];
            }
            // Pages in no order, and entries that are none.
            let cache = || random((50, 2, 16, 64), DType::BF16, &device);
            let (q, k, v) = (random((2, 4, 3, 64), DType::BF16, &device)?, cache()?, cache()?);
            let pages: [Vec<u32>; 2] =
                [(0..5).map(|i| i * 7 % 50).collect(), (0..20).map(|i| (i * 11 + 3) % 50).collect()];
            let mut table = vec![99u32; 40];
            pages
                .iter()
                .enumerate()
                .for_each(|(i, pages)| table[20 * i..][..pages.len()].copy_from_slice(pages));
            let (table, lengths) = (Tensor::from_vec(table, (2, 20), &device)?, [70u32, 320]);
            let found =
                attention_paged(&q, [&k, &v], (&table, &Tensor::new(&lengths, &device)?), what.clone())?;
            for (i, pages) in pages.into_iter().enumerate() {
                let pages = Tensor::new(pages, &device)?;
                let own = |x: &Tensor| -> Result<Tensor> {
                    let x = x.index_select(&pages, 0)?.transpose(1, 2)?.flatten(0, 1)?;
                    x.narrow(0, 0, lengths[i] as usize)?.transpose(0, 1)?.unsqueeze(0)
                };
                let q = q.narrow(0, i, 1)?;
                let apart =
                    apart(&found.narrow(0, i, 1)?, &expected([&q, &own(&k)?, &own(&v)?], what.clone())?)?;
                assert!(apart < 0.03, "sequence {i}: {apart}");
            }
        }
    }
    Ok(())
}

/// A cap, slopes of this shape, and sinks.
fn scored(shape: [usize; 2]) -> Result<Attention> {
    let slopes: Vec<f32> = (0..shape[0] * shape[1]).map(|i| 0.03 + i as f32 / 20.0).collect();
    Ok(Attention {
        causal: true,
        soft_cap: Some(1.5),
        alibi_slopes: Some(Tensor::from_vec(slopes, (shape[0], shape[1]), &Device::Cpu)?),
        sinks: Some(Tensor::from_vec(
            (0..shape[1]).map(|i| i as f32 - 1.0).collect(),
            shape[1],
            &Device::Cpu,
        )?),
        ..Attention::default()
    })
}

/// The same with its numbers on a device.
fn on(what: &Attention, device: &Device) -> Result<Attention> {
    let there = |of: &Option<Tensor>| of.as_ref().map(|of| of.to_device(device)).transpose();
    Ok(Attention { alibi_slopes: there(&what.alibi_slopes)?, sinks: there(&what.sinks)?, ..what.clone() })
}

/// Slopes and sinks that do not fit are refused, and those whose gradient is asked for.
#[test]
fn numbers_of_heads_are_checked() -> Result<()> {
    let q = random((2, 4, 5, 64), DType::F16, &Device::Cpu)?;
    let what = scored([2, 4])?;
    let short = Some(Tensor::zeros(3, DType::F32, &Device::Cpu)?);
    let narrow = Some(Tensor::zeros(4, DType::F16, &Device::Cpu)?);
    let recorded = Some(Var::zeros(4, DType::F32, &Device::Cpu)?.as_tensor().clone());
    for (wrong, words) in [
        (
            Attention { sinks: short.clone(), ..what.clone() },
            "sinks has shape [3] of F32, f32 of (4) was needed",
        ),
        (Attention { sinks: narrow, ..what.clone() }, "sinks has shape [4] of F16, f32 of (4) was needed"),
        (Attention { alibi_slopes: short, ..what.clone() }, "f32 of (4) or (2, 4) was needed"),
        (Attention { sinks: recorded, ..what.clone() }, "sinks requires a gradient, which it has none here"),
        (Attention { soft_cap: Some(-1.0), ..what.clone() }, "softcap is -1, a number from"),
    ] {
        for error in [
            attention(&q, &q, &q, wrong.clone()).map(|_| ()),
            attention_with_sums(&q, [&q; 2], None, wrong).map(|_| ()),
        ] {
            let error = error.expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
    // One number for all heads, and slopes that lie by columns.
    let shared = Tensor::new(&[1.5f32], &Device::Cpu)?.broadcast_as(4)?;
    let turned = Tensor::from_vec((0..8).map(|i| i as f32 / 9.0).collect(), (4, 2), &Device::Cpu)?.t()?;
    let views = Attention { sinks: Some(shared.clone()), alibi_slopes: Some(turned.clone()), ..what.clone() };
    let packed = Attention { sinks: Some(shared.copy()?), alibi_slopes: Some(turned.contiguous()?), ..what };
    let [(_, found), (_, wanted)] =
        [attention_with_sums(&q, [&q; 2], None, views)?, attention_with_sums(&q, [&q; 2], None, packed)?];
    assert_eq!(apart(&found, &wanted)?, 0.0);
    Ok(())
}

#[test]
fn attention_has_candles_gradients() -> Result<()> {
    for device in devices() {
        for (what, [heads, groups], [length, keys], d) in [
            (Attention::default(), [2, 2], [33, 33], 64),
            (Attention { causal: true, ..Attention::default() }, [4, 2], [40, 70], 64),
            (Attention { window: Some([9, -1]), ..Attention::default() }, [2, 1], [65, 65], 128),
            (scored([2, 4])?, [4, 2], [30, 70], 64),
        ] {
            let make = |heads, length| -> Result<[Var; 2]> {
                let x = random((2, heads, length, d), DType::F16, &Device::Cpu)?;
                Ok([Var::from_tensor(&x.to_device(&device)?)?, Var::from_tensor(&x.to_dtype(DType::F32)?)?])
            };
            let all = [make(heads, length)?, make(groups, keys)?, make(groups, keys)?];
            let grad = random((2, heads, length, d), DType::F16, &Device::Cpu)?;
            // The gradient of a sum with factors is the factors.
            let y = attention(&all[0][0], &all[1][0], &all[2][0], on(&what, &device)?)?;
            let found = (y * grad.to_device(&device)?)?.sum_all()?.backward()?;
            let y = attention(&all[0][1], &all[1][1], &all[2][1], what.clone())?;
            let wide = (y * grad.to_dtype(DType::F32)?)?.sum_all()?.backward()?;
            for (name, [own, other]) in ["q", "k", "v"].into_iter().zip(&all) {
                let (found, wide) = (found.get(own).expect(name), wide.get(other).expect(name));
                let apart = apart(found, wide)?;
                assert!(apart < 0.02, "{what:?}, the gradient of {name}: {apart}");
            }
        }
    }
    Ok(())
}

/// The gradient of sequences of different lengths is that of each sequence.
#[test]
fn sequences_have_gradients() -> Result<()> {
    for device in devices() {
        let what = Attention { causal: true, ..Attention::default() };
        let lengths = [[20usize, 33], [1, 50], [70, 70]];
        let lines = |i: usize| -> Result<Lines> {
            let begins: Vec<u32> =
                (0..=3).map(|n| lengths[..n].iter().map(|of| of[i] as u32).sum()).collect();
            Ok(Lines { begins: Tensor::new(begins, &device)?, longest: 70 })
        };
        let rows = |rows: usize, heads: usize| {
            Var::from_tensor(&random((1, rows, heads, 64), DType::F16, &device)?.squeeze(0)?)
        };
        let all = [rows(91, 4)?, rows(153, 2)?, rows(153, 2)?];
        let grad = random((1, 91, 4, 64), DType::F16, &device)?.squeeze(0)?;
        let y = attention_varlen((&all[0], &lines(0)?), [&all[1], &all[2]], &lines(1)?, what.clone())?;
        let found = (y * &grad)?.sum_all()?.backward()?;
        let mut begin = [0, 0];
        for of in lengths {
            let part =
                |x: &Tensor, side: usize| x.narrow(0, begin[side], of[side])?.transpose(0, 1)?.unsqueeze(0);
            let var = |i: usize| Var::from_tensor(&part(&all[i], i.min(1))?);
            let own = [var(0)?, var(1)?, var(2)?];
            let y = attention(&own[0], &own[1], &own[2], what.clone())?;
            let alone = (y * part(&grad, 0)?)?.sum_all()?.backward()?;
            for (i, (name, own)) in ["q", "k", "v"].into_iter().zip(&own).enumerate() {
                let (found, alone) = (found.get(&all[i]).expect(name), alone.get(own).expect(name));
                let apart = apart(&part(found, i.min(1))?, alone)?;
                assert!(apart < 0.005, "{of:?}, the gradient of {name}: {apart}");
            }
            begin = [begin[0] + of[0], begin[1] + of[1]];
        }
    }
    Ok(())
}

#[test]
fn what_is_refused_is_named() -> Result<()> {
    let q = random((1, 2, 3, 64), DType::F16, &Device::Cpu)?;
    for (words, k) in [
        ("the same d", random((1, 2, 3, 128), DType::F16, &Device::Cpu)?),
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
        let mut model = Decoder::new(size, DType::F16, &device)?;
        let prompt: Vec<u32> = (0..21).map(|i| i * 37 % 96).collect();
        let tokens = |logits: &[Vec<f32>]| logits.iter().map(|of| best(of)[0]).collect::<Vec<_>>();
        let expected = tokens(&model.generate(By::Candle, &prompt, 12, None)?);
        assert_eq!(tokens(&model.generate(By::Falchion, &prompt, 12, None)?), expected);
        assert!(
            expected.iter().any(|token| *token != expected[0]),
            "the model says one word alone: {expected:?}"
        );
        // The weights of a file in 8 bits: inputs are rounded too.
        model = Decoder::new(size, DType::BF16, &device)?;
        model.in_8_bits()?;
        let logits = |by| model.forward(by, &prompt, &mut model.cache()?);
        let expected = logits(By::Candle)?;
        let size = expected.sqr()?.sum_all()?.to_scalar::<f32>()?;
        for (by, bound) in [(By::Weights8, 0.001), (By::Falchion8, 0.02)] {
            let error = (logits(by)? - &expected)?.sqr()?.sum_all()?.to_scalar::<f32>()?;
            assert!(error < bound * size, "{by:?}: the logits' error is {error}, of {size}");
        }
    }
    Ok(())
}
