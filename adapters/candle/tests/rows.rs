//! Two results of attention as one, compared with attention of all keys; and pages of a cache that grows, compared with candle's operations.

use candle_core::{DType, Device, Result, Tensor};
use falchion_candle::{
    Attention, append_pages, attention, attention_paged, attention_with_sums, merge_attention,
};

/// The CPU, and the card where there is one.
fn devices() -> Vec<Device> {
    let card = Device::new_cuda(0).inspect_err(|_| println!("no card: tested in the emulator alone"));
    [Device::Cpu].into_iter().chain(card).collect()
}

fn random(shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    Tensor::randn(0f32, 0.7, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
}

/// Largest difference of two tensors.
fn apart(a: &Tensor, b: &Tensor) -> Result<f32> {
    let wide = |x: &Tensor| x.to_device(&Device::Cpu)?.to_dtype(DType::F32);
    (wide(a)? - wide(b)?)?.abs()?.flatten_all()?.max(0)?.to_scalar::<f32>()
}

#[test]
fn attention_of_two_parts_is_attention_of_all() -> Result<()> {
    for device in devices() {
        for (dtype, bound) in [(DType::BF16, 0.03), (DType::F16, 0.004)] {
            let q = random(&[2, 4, 9, 64], dtype, &device)?;
            let [k, v] = [0, 1].map(|_| random(&[2, 2, 80, 64], dtype, &device));
            let (k, v) = (k?, v?);
            let what = Attention { scale: Some(0.2), ..Attention::default() };
            let part = |begin, count| {
                attention_with_sums(
                    &q,
                    [&k.narrow(2, begin, count)?, &v.narrow(2, begin, count)?],
                    None,
                    what.clone(),
                )
            };
            let (whole, sums) = attention_with_sums(&q, [&k, &v], None, what.clone())?;
            // Heads that follow the length are merged as they lie.
            let (first, of_first) = part(0, 50)?;
            let first = first.transpose(1, 2)?.contiguous()?.transpose(1, 2)?;
            let (merged, of_both) = merge_attention((first, of_first), part(50, 30)?)?;
            assert_eq!((merged.dims(), merged.dtype()), (q.dims(), dtype));
            assert!(apart(&whole, &attention(&q, &k, &v, what.clone())?)? == 0.0);
            assert!(apart(&merged, &whole)? < bound && apart(&of_both, &sums)? < 1e-3);
        }
    }
    Ok(())
}

/// What has no keys is not seen, also in `f32`.
#[test]
fn rows_without_keys_become_the_others() -> Result<()> {
    for device in devices() {
        let (a, b) =
            (random(&[1, 2, 2, 8], DType::F32, &device)?, random(&[1, 2, 2, 8], DType::F32, &device)?);
        let none = f32::NEG_INFINITY;
        let [of_a, of_b] = [[none, 1.0, 2.0, none], [1.0, none, 2.0, none]]
            .map(|sums| Tensor::from_slice(&sums, (1, 2, 2), &device));
        let (merged, sums) = merge_attention((a.clone(), of_a?), (b.clone(), of_b?))?;
        let rows = |x: &Tensor| x.reshape((4, 8))?.to_device(&Device::Cpu)?.to_vec2::<f32>();
        let (merged, a, b) = (rows(&merged)?, rows(&a)?, rows(&b)?);
        assert_eq!([&merged[0], &merged[1], &merged[3]], [&b[0], &a[1], &vec![0.0; 8]]);
        assert!((0..8).all(|i| (merged[2][i] - (a[2][i] + b[2][i]) / 2.0).abs() < 1e-6));
        let sums = sums.flatten_all()?.to_vec1::<f32>()?;
        assert_eq!([sums[0], sums[1], sums[3]], [1.0, 1.0, none]);
        assert!((sums[2] - 2.0 - 2f32.ln()).abs() < 1e-6);
    }
    Ok(())
}

#[test]
fn a_cache_grows_as_attention_reads_it() -> Result<()> {
    for device in devices() {
        for (kind, wide) in [(DType::U32, false), (DType::I64, true)] {
            let dtype = DType::F16;
            // Keys of a page follow each other in one cache, and heads of a key in the other one.
            let k_cache = Tensor::zeros((5, 2, 16, 64), dtype, &device)?;
            let v_cache = Tensor::zeros((5, 16, 2, 64), dtype, &device)?.transpose(1, 2)?;
            let qkv = random(&[20, 6, 64], dtype, &device)?;
            let [k, v] = [2, 4].map(|begin| qkv.narrow(1, begin, 2));
            let (k, v) = (k?, v?);
            // Page 3, and then page 1; a row that is left out.
            let slots: Vec<i64> = (0..20).map(|i| if i < 16 { 48 + i } else { i }).collect();
            let slots: Vec<i64> = slots.into_iter().map(|slot| if slot == 19 { -1 } else { slot }).collect();
            let slots = match wide {
                true => Tensor::from_vec(slots, 20, &device)?,
                false => Tensor::from_vec(slots.iter().map(|&slot| slot as u32).collect(), 20, &device)?,
            };
            assert_eq!(slots.dtype(), kind);
            append_pages([&k, &v], [&k_cache, &v_cache], &slots)?;
            let q = random(&[1, 2, 1, 64], dtype, &device)?;
            let table = Tensor::new(&[[3u32, 1]], &device)?;
            let lengths = Tensor::new(&[19u32], &device)?;
            let what = Attention::default();
            let found = attention_paged(&q, [&k_cache, &v_cache.contiguous()?], (&table, &lengths), what.clone())?;
            let [k, v] = [k, v].map(|x| x.narrow(0, 0, 19)?.transpose(0, 1)?.unsqueeze(0));
            assert!(apart(&found, &attention(&q, &k?, &v?, what)?)? < 2e-3);
            assert_eq!(k_cache.get(0)?.to_dtype(DType::F32)?.abs()?.sum_all()?.to_scalar::<f32>()?, 0.0);
        }
    }
    Ok(())
}

#[test]
fn what_is_refused_is_named() -> Result<()> {
    let cpu = Device::Cpu;
    let (rows, cache) =
        (Tensor::zeros((2, 2, 64), DType::F16, &cpu)?, Tensor::zeros((3, 2, 16, 64), DType::F16, &cpu)?);
    let slots = |slots: &[i64]| Tensor::new(slots, &cpu);
    let short = cache.narrow(1, 0, 1)?;
    for (words, result) in [
        ("the same groups, d and type were needed", append_pages([&rows], [&short], &slots(&[0, 1])?)),
        (
            "slots has shape [3] of I64, [2] of I32, I64 or U32 was needed",
            append_pages([&rows], [&cache], &slots(&[0, 1, 2])?),
        ),
        (
            "slot 48 of row 1 is not in the cache of 48 keys",
            append_pages([&rows], [&cache], &slots(&[0, 48])?),
        ),
        ("rows 0 and 1 both have slot 5", append_pages([&rows], [&cache], &slots(&[5, 5])?)),
        (
            "(tokens, groups, d) and (pages, groups, keys of a page, d) were needed",
            append_pages([&cache], [&cache], &slots(&[5, 5])?),
        ),
    ] {
        let error = result.expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    let (o, sums) =
        (Tensor::zeros((1, 2, 3, 8), DType::F16, &cpu)?, Tensor::zeros((1, 2, 3), DType::F32, &cpu)?);
    let other = Tensor::zeros((1, 2, 3, 16), DType::F16, &cpu)?;
    for (words, result) in [
        (
            "b has shape [1, 2, 3, 16] of F16, [1, 2, 3, 8] of F16 was needed",
            merge_attention((o.clone(), sums.clone()), (other, sums.clone())),
        ),
        (
            "a's log-sum-exp has shape [2, 3] of F32, [1, 2, 3] of F32 was needed",
            merge_attention((o.clone(), sums.squeeze(0)?), (o.clone(), sums.clone())),
        ),
        (
            "a is F64, bf16 or f16 was needed",
            merge_attention((o.to_dtype(DType::F64)?, sums.clone()), (o.to_dtype(DType::F64)?, sums.clone())),
        ),
    ] {
        let error = result.expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    Ok(())
}
