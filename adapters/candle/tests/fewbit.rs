//! Layers from files of GPTQ, AWQ, MXFP4 and fp8 blocks, and experts with routing, compared with candle's operations on the weights that
//! the files stand for.

use std::collections::HashMap;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Module, VarBuilder};
use falchion_candle::{
    Activation, FewBitExperts, FewBitLinear, FewBits, Linear, Routing, ScaledLinear, experts, prepare,
};

/// The CPU, and the card where there is one.
fn devices() -> Vec<Device> {
    let card = Device::new_cuda(0).inspect_err(|_| println!("no card: tested in the emulator alone"));
    [Device::Cpu].into_iter().chain(card).collect()
}

fn numbers(seed: &mut u64) -> impl FnMut(u32) -> u32 + '_ {
    move |below| {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 40) as u32 % below
    }
}

/// Words of 32 bits of fields of lines, the first in the lowest bits.
fn packed(fields: &[u32], bits: usize) -> Vec<i32> {
    let word = |of: &[u32]| of.iter().enumerate().fold(0, |word, (i, field)| word | field << (i * bits));
    fields.chunks(32 / bits).map(|of| word(of) as i32).collect()
}

fn transposed<T: Copy>(all: &[T], columns: usize) -> Vec<T> {
    (0..columns).flat_map(|column| all[column..].iter().step_by(columns).copied()).collect()
}

/// Largest difference, over the largest number.
fn apart(found: &Tensor, expected: &Tensor) -> Result<f32> {
    let wide = |x: &Tensor| x.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.flatten_all();
    let (found, expected) = (wide(found)?, wide(expected)?);
    let largest = expected.abs()?.max(0)?.to_scalar::<f32>()?;
    Ok((found - expected)?.abs()?.max(0)?.to_scalar::<f32>()? / largest)
}

/// A file's tensors, read again from its bytes, in the type of a layer.
fn file(tensors: HashMap<&str, Tensor>, dtype: DType, device: &Device) -> Result<VarBuilder<'static>> {
    let named: HashMap<String, Tensor> =
        tensors.into_iter().map(|(name, of)| (format!("layer.{name}"), of)).collect();
    let path = std::env::temp_dir().join(format!(
        "falchion-candle-{}-{:?}.safetensors",
        std::process::id(),
        std::thread::current().id()
    ));
    candle_core::safetensors::save(&named, &path)?;
    let bytes = std::fs::read(&path)?;
    std::fs::remove_file(&path)?;
    Ok(VarBuilder::from_buffered_safetensors(bytes, dtype, device)?.pp("layer"))
}

/// A layer's results beside candle's product with the weight `(n, k)` that it stands for.
fn compare(
    layer: &FewBitLinear,
    weight: &[f32],
    [n, k]: [usize; 2],
    dtype: DType,
    device: &Device,
    bias: Option<&Tensor>,
) -> Result<()> {
    let weight = Tensor::from_slice(weight, (n, k), &Device::Cpu)?;
    for (rows, activation) in [(1, Activation::Identity), (21, Activation::Silu)] {
        let x = Tensor::randn(0f32, 1., (2, rows, k), &Device::Cpu)?.to_dtype(dtype)?;
        let found = layer.clone().with_activation(activation).forward(&x.to_device(device)?)?;
        assert_eq!((found.dims(), found.dtype()), (&[2, rows, n][..], dtype));
        let wide = x.to_dtype(DType::F32)?.reshape((2 * rows, k))?.matmul(&weight.t()?)?;
        let wide = match bias {
            Some(bias) => wide.broadcast_add(&bias.to_dtype(DType::F32)?)?,
            None => wide,
        };
        let wide = if activation == Activation::Silu { wide.silu()? } else { wide };
        let apart = apart(&found, &wide)?;
        assert!(apart < 0.01, "{n} x {k}, {rows} rows: {apart}");
    }
    Ok(())
}

#[test]
fn gptqs_files_are_layers() -> Result<()> {
    let seed = &mut 1;
    for device in devices() {
        for (bits, v2, mixed, group, [n, k]) in [
            (4, false, false, 64, [48, 128]),
            (4, true, true, 128, [72, 256]),
            (8, false, true, 32, [64, 96]),
            (4, false, false, 0, [40, 256]),
        ] {
            let mut of = numbers(seed);
            let size = if group == 0 { k } else { group };
            let groups = k / size;
            let codes: Vec<u32> = (0..n * k).map(|_| of(1 << bits)).collect();
            let zeros: Vec<u32> = (0..groups * n).map(|_| 1 + of((1 << bits) - 1)).collect();
            let scales: Vec<f32> = (0..groups * n).map(|_| (of(64) + 64) as f32 / 8192.0).collect();
            // Every group has `size` places.
            let index: Vec<i32> =
                (0..k).map(|i| if mixed { i * 7 % k / size } else { i / size } as i32).collect();
            let weight: Vec<f32> = (0..n * k)
                .map(|i| {
                    let at = index[i % k] as usize * n + i / k;
                    (codes[i] as f32 - zeros[at] as f32) * scales[at]
                })
                .collect();
            let stored: Vec<u32> = zeros.iter().map(|zero| zero - u32::from(!v2)).collect();
            let lines = k * bits / 32;
            let qweight = transposed(&packed(&codes, bits), lines);
            let bias = Tensor::randn(0f32, 1., n, &Device::Cpu)?.to_dtype(DType::F16)?;
            let tensors = HashMap::from([
                ("qweight", Tensor::from_vec(qweight, (lines, n), &Device::Cpu)?),
                ("qzeros", Tensor::from_vec(packed(&stored, bits), (groups, n * bits / 32), &Device::Cpu)?),
                ("scales", Tensor::from_vec(scales, (groups, n), &Device::Cpu)?.to_dtype(DType::F16)?),
                ("g_idx", Tensor::from_vec(index, k, &Device::Cpu)?),
                ("bias", bias.clone()),
            ]);
            let vb = file(tensors, DType::F16, &device)?;
            let layer = FewBitLinear::load(k, n, FewBits::Gptq { v2 }, &vb)?;
            compare(&layer, &weight, [n, k], DType::F16, &device, Some(&bias))?;
            prepare(&layer, (&[1, 16], k), (DType::F16, &device))?;
        }
    }
    Ok(())
}

#[test]
fn awqs_files_are_layers() -> Result<()> {
    let seed = &mut 2;
    for device in devices() {
        let ([n, k], group, mut of) = ([64, 192], 64, numbers(seed));
        let codes: Vec<u32> = (0..k * n).map(|_| of(16)).collect();
        let zeros: Vec<u32> = (0..k / group * n).map(|_| of(16)).collect();
        let scales: Vec<f32> = (0..k / group * n).map(|_| (of(64) + 64) as f32 / 4096.0).collect();
        // The column of each field of a word.
        let mixed = |all: &[u32]| {
            all.chunks(8).flat_map(|of| [0, 2, 4, 6, 1, 3, 5, 7].map(|i| of[i])).collect::<Vec<_>>()
        };
        let weight: Vec<f32> = (0..n * k)
            .map(|i| {
                let (row, place) = (i / k, i % k);
                let at = place / group * n + row;
                (codes[place * n + row] as f32 - zeros[at] as f32) * scales[at]
            })
            .collect();
        let tensors = HashMap::from([
            ("qweight", Tensor::from_vec(packed(&mixed(&codes), 4), (k, n / 8), &Device::Cpu)?),
            ("qzeros", Tensor::from_vec(packed(&mixed(&zeros), 4), (k / group, n / 8), &Device::Cpu)?),
            ("scales", Tensor::from_vec(scales, (k / group, n), &Device::Cpu)?.to_dtype(DType::BF16)?),
        ]);
        let layer = FewBitLinear::load(k, n, None, &file(tensors, DType::BF16, &device)?)?;
        compare(&layer, &weight, [n, k], DType::BF16, &device, None)?;
    }
    Ok(())
}

#[test]
fn mxfp4_is_a_layer() -> Result<()> {
    let seed = &mut 3;
    let table = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    for device in devices() {
        let ([n, k], mut of) = ([40, 96], numbers(seed));
        let codes: Vec<u32> = (0..n * k).map(|_| of(16)).collect();
        let exponents: Vec<u8> = (0..n * k / 32).map(|_| 120 + of(6) as u8).collect();
        let value = |code: u32| if code < 8 { table[code as usize] } else { -table[code as usize - 8] };
        let weight: Vec<f32> =
            (0..n * k).map(|i| value(codes[i]) * 2f32.powi(i32::from(exponents[i / 32]) - 127)).collect();
        let blocks: Vec<u8> = codes.chunks(2).map(|pair| (pair[0] | pair[1] << 4) as u8).collect();
        let blocks = Tensor::from_vec(blocks, (n, k / 32, 16), &device)?;
        let scales = Tensor::from_vec(exponents, (n, k / 32), &device)?;
        let layer = FewBitLinear::mxfp4([&blocks, &scales], DType::BF16, None)?;
        compare(&layer, &weight, [n, k], DType::BF16, &device, None)?;
    }
    Ok(())
}

/// A launch of experts gives each row what its expert's own layer gives it.
#[test]
fn experts_have_few_bits() -> Result<()> {
    for device in devices() {
        let seed = &mut 4;
        let ([n, k], groups, mut of) = ([48, 128], 2, numbers(seed));
        let mut layer = |bias: bool| {
            let words: Vec<i32> = (0..k / 8 * n).map(|_| (of(1 << 16) << 16 | of(1 << 16)) as i32).collect();
            let zeros: Vec<i32> =
                (0..groups * n / 8).map(|_| (of(1 << 16) << 16 | of(1 << 16)) as i32).collect();
            let scales: Vec<f32> = (0..groups * n).map(|_| (of(64) + 64) as f32 / 8192.0).collect();
            let bias: Vec<f32> =
                if bias { (0..n).map(|_| of(64) as f32 / 16.0).collect() } else { Vec::new() };
            let scales = Tensor::from_vec(scales, (groups, n), &device)?.to_dtype(DType::BF16)?;
            let all = [
                Tensor::from_vec(words, (k / 8, n), &device)?,
                scales,
                Tensor::from_vec(zeros, (groups, n / 8), &device)?,
            ];
            let bias = (!bias.is_empty())
                .then(|| Tensor::from_vec(bias, n, &device)?.to_dtype(DType::BF16))
                .transpose()?;
            FewBitLinear::gptq(all.each_ref(), None, (4, true), bias)
        };
        for bias in [false, true] {
            let layers = (0..3).map(|_| layer(bias)).collect::<Result<Vec<_>>>()?;
            let layers: Vec<_> =
                layers.into_iter().map(|layer| layer.with_activation(Activation::Relu)).collect();
            let experts = FewBitExperts::new(&layers)?;
            let x =
                Tensor::randn(0f32, 1., (50, k), &Device::Cpu)?.to_dtype(DType::BF16)?.to_device(&device)?;
            let ends = [0u32, 17, 17, 45];
            let found = experts.forward(&x, &Tensor::new(&ends, &device)?)?;
            for (i, layer) in layers.iter().enumerate() {
                let (begin, count) = (ends[i] as usize, (ends[i + 1] - ends[i]) as usize);
                if count > 0 {
                    let own = layer.forward(&x.narrow(0, begin, count)?)?;
                    let apart = apart(&found.narrow(0, begin, count)?, &own)?;
                    assert!(apart < 0.01, "expert {i}, bias {bias}: {apart}");
                }
            }
            let rest = found.narrow(0, 45, 5)?.to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
            assert_eq!(rest.abs()?.max_all()?.to_scalar::<f32>()?, 0.0);
        }
        let error =
            FewBitExperts::new(&[layer(true)?, layer(false)?]).expect_err("a bias and none").to_string();
        assert!(error.contains("layer 1 has another"), "{error}");
    }
    Ok(())
}

#[test]
fn files_with_scales_of_blocks_are_layers() -> Result<()> {
    for device in devices() {
        let [n, k] = [144, 256];
        let weight = Tensor::randn(0f32, 1., (n, k), &Device::Cpu)?;
        let (codes, scales) = falchion_candle::quantize_weight(&weight)?;
        let tensors = HashMap::from([("weight", codes.clone()), ("weight_scale_inv", scales.clone())]);
        let vb = file(tensors, DType::BF16, &device)?;
        let spread = |x: &Tensor, dim| {
            let index: Vec<u32> = (0..[n, k][dim] as u32).map(|at| at / 128).collect();
            x.index_select(&Tensor::new(index, &Device::Cpu)?, dim)
        };
        let wide = (codes.to_dtype(DType::F32)? * spread(&spread(&scales, 0)?, 1)?)?.flatten_all()?;
        let layer = FewBitLinear::load(k, n, FewBits::Fp8, &vb)?;
        compare(&layer, &wide.to_vec1::<f32>()?, [n, k], DType::BF16, &device, None)?;
        let layer = ScaledLinear::load(k, n, &vb)?;
        let x = Tensor::randn(0f32, 1., (3, k), &Device::Cpu)?.to_dtype(DType::BF16)?;
        let expected = x.to_dtype(DType::F32)?.matmul(&weight.t()?)?;
        assert!(apart(&layer.forward(&x.to_device(&device)?)?, &expected)? < 0.06);
        let plain = HashMap::from([("weight", weight.to_dtype(DType::BF16)?)]);
        let layer = Linear::load(k, n, &file(plain, DType::BF16, &device)?)?;
        assert!(apart(&layer.forward(&x.to_device(&device)?)?, &expected)? < 0.01);
    }
    Ok(())
}

#[test]
fn experts_are_routed() -> Result<()> {
    for device in devices() {
        let (tokens, count, k, [n, inputs]) = (37, 6, 3, [32, 64]);
        let dtype = DType::BF16;
        let random = |shape: &[usize]| Tensor::randn(0f32, 1., shape, &Device::Cpu);
        let (x, logits) = (random(&[tokens, inputs])?.to_dtype(dtype)?, random(&[tokens, count])?);
        let weights = random(&[count, n, inputs])?.to_dtype(dtype)?;
        for normalized in [false, true] {
            let routing = Routing::top_k(&logits.to_device(&device)?, k, normalized)?;
            let rows = routing.rows(&x.to_device(&device)?)?;
            let y = experts(&rows, &weights.to_device(&device)?, routing.offsets())?;
            let found = routing.sum(&y)?.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.to_vec2::<f32>()?;
            let all = candle_nn::ops::softmax(&logits, 1)?.to_vec2::<f32>()?;
            for (token, probabilities) in all.iter().enumerate() {
                let mut order: Vec<usize> = (0..count).collect();
                order.sort_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
                let chosen = &order[..k];
                let sum: f32 = if normalized { chosen.iter().map(|&i| probabilities[i]).sum() } else { 1.0 };
                let mut want = Tensor::zeros((1, n), DType::F32, &Device::Cpu)?;
                for &i in chosen {
                    let weight = weights.get(i)?.to_dtype(DType::F32)?.t()?;
                    let y = x.narrow(0, token, 1)?.to_dtype(DType::F32)?.matmul(&weight)?;
                    want = (want + (y * f64::from(probabilities[i] / sum))?)?;
                }
                for (found, want) in found[token].iter().zip(&want.to_vec2::<f32>()?[0]) {
                    assert!((found - want).abs() < 0.15, "{token}: {found} {want}");
                }
            }
        }
        // More choices than candle sorts on a card.
        let many = Routing::top_k(&random(&[3000, count])?.to_device(&device)?, k, true)?;
        let offsets = many.offsets().to_device(&Device::Cpu)?.to_vec1::<u32>()?;
        assert!(offsets[0] == 0 && offsets[count] == 9000 && offsets.is_sorted(), "{offsets:?}");
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let (device, of) = (&Device::Cpu, DType::F16);
    let words = |lines, columns| Tensor::zeros((lines, columns), DType::I32, device);
    let scales = Tensor::ones((1, 16), of, device)?;
    let layer = FewBitLinear::gptq([&words(8, 16)?, &scales, &words(1, 2)?], None, (4, false), None)?;
    for (needed, found) in [
        ("of 64 inputs takes", layer.forward(&Tensor::zeros((1, 32), of, device)?)),
        ("the layer's type f16", layer.forward(&Tensor::zeros((1, 64), DType::BF16, device)?)),
    ] {
        let error = found.expect_err(needed).to_string();
        assert!(error.contains(needed), "{error}");
    }
    let index = Tensor::zeros(64, DType::I32, device)?;
    let two = Tensor::ones((2, 16), of, device)?;
    for (needed, found) in [
        (
            "qweight has shape [6, 16], [8, 16] with 4 bits",
            FewBitLinear::gptq([&words(6, 16)?, &scales, &words(1, 2)?], None, (3, false), None),
        ),
        ("groups of 32 were needed", {
            let mixed = Tensor::from_vec((0..64).map(|i| i32::from(i < 3)).collect::<Vec<_>>(), 64, device)?;
            FewBitLinear::gptq([&words(8, 16)?, &two, &words(2, 2)?], Some(&mixed), (4, false), None)
        }),
        ("bias has shape [3], [16] was needed", {
            let bias = Tensor::zeros(3, of, device)?;
            FewBitLinear::gptq([&words(8, 16)?, &scales, &words(1, 2)?], Some(&index), (4, false), Some(bias))
        }),
        (
            "the layer's type is F32",
            FewBitLinear::mxfp4(
                [&words(8, 16)?.to_dtype(DType::U8)?, &words(8, 1)?.to_dtype(DType::U8)?],
                DType::F32,
                None,
            ),
        ),
    ] {
        let error = found.expect_err(needed).to_string();
        assert!(error.contains(needed), "{error}");
    }
    let logits = Tensor::zeros((2, 4), DType::F32, device)?;
    let error = Routing::top_k(&logits, 5, false).expect_err("five of four").to_string();
    assert!(error.contains("k is 5, 1 to 4"), "{error}");
    Ok(())
}
