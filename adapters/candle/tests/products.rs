//! Products and gradients beside candle's own, on a CPU and on the card.

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::Module;
use falchion_candle::{
    Activation, Linear, ScaledLinear, experts, matmul, quantize_rows, quantize_weight, scaled_matmul,
};

/// The CPU, and the card where there is one.
fn devices() -> Vec<Device> {
    let mut all = vec![Device::Cpu];
    match Device::new_cuda(0) {
        Ok(card) => all.push(card),
        Err(_) => println!("no card, or not built with the feature `cuda`: tested on the CPU alone"),
    }
    all
}

/// Normal numbers that the type holds.
fn random(shape: &[usize], dtype: DType, device: &Device) -> Result<Tensor> {
    Tensor::randn(0f32, 1., shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
}

/// The largest difference of two tensors, as a part of the largest element.
fn apart(a: &Tensor, b: &Tensor) -> Result<f32> {
    assert_eq!(a.dims(), b.dims());
    let [a, b] = [a, b].map(|of| of.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.flatten_all());
    let (a, b) = (a?, b?);
    let largest = b.abs()?.max(0)?.to_scalar::<f32>()?.max(1e-3);
    let apart = (a - b)?.abs()?.max(0)?.to_scalar::<f32>()? / largest;
    Ok(if apart.is_nan() { f32::INFINITY } else { apart })
}

/// Twice what rounding to the type loses.
fn bound(dtype: DType) -> f32 {
    if dtype == DType::BF16 { 1.0 / 64.0 } else { 1.0 / 512.0 }
}

/// In `f32` on the CPU, by candle.
fn wide(tensor: &Tensor) -> Result<Tensor> {
    tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32)
}

fn types(device: &Device) -> &'static [DType] {
    if device.is_cpu() { &[DType::BF16, DType::F16, DType::F32] } else { &[DType::BF16, DType::F16] }
}

#[test]
fn products_are_candles() -> Result<()> {
    for device in devices() {
        for &dtype in types(&device) {
            for (a, b) in [
                (&[5, 24][..], &[24, 7][..]),
                (&[128, 64], &[64, 96]),
                (&[3, 17, 40], &[3, 40, 9]),
                (&[2, 3, 16, 32], &[2, 3, 32, 48]),
                (&[2, 3, 16, 32], &[32, 48]),
                (&[1, 1], &[1, 1]),
            ] {
                let [x, y] = [random(a, dtype, &device)?, random(b, dtype, &device)?];
                let want = wide(&x)?.broadcast_matmul(&wide(&y)?)?;
                let far = apart(&matmul(&x, &y)?, &want)?;
                assert!(far < bound(dtype), "{a:?} {b:?} {dtype:?}: {far}");
                // Transposed views of either.
                let [x_t, y_t] = [x.t()?.contiguous()?, y.t()?.contiguous()?];
                for (x, y) in [(&x_t.t()?, &y), (&x, &y_t.t()?), (&x_t.t()?, &y_t.t()?)] {
                    let far = apart(&matmul(x, y)?, &want)?;
                    assert!(far < bound(dtype), "{a:?} {b:?} {dtype:?}, transposed: {far}");
                }
            }
        }
    }
    Ok(())
}

/// The same layer by candle, in `f32`.
fn layer(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>, activation: Activation) -> Result<Tensor> {
    let y = candle_nn::Linear::new(weight.clone(), bias.cloned()).forward(x)?;
    match activation {
        Activation::Identity => Ok(y),
        Activation::Relu => y.relu(),
        Activation::Gelu => y.gelu(),
        Activation::Silu => y.silu(),
    }
}

#[test]
fn layers_and_their_gradients_are_candles() -> Result<()> {
    for device in devices() {
        for &dtype in types(&device) {
            for activation in [Activation::Identity, Activation::Relu, Activation::Gelu, Activation::Silu] {
                for (biased, shape) in [(true, &[6, 40][..]), (false, &[6, 40]), (true, &[2, 3, 40])] {
                    let why = format!("{device:?} {dtype:?} {activation:?} {biased} {shape:?}");
                    let [x, weight, bias] = [shape, &[24, 40], &[24]]
                        .map(|shape| random(shape, dtype, &device).and_then(|t| Var::from_tensor(&t)));
                    let (x, weight, bias) = (x?, weight?, bias?);
                    let own = biased.then(|| bias.as_tensor().clone());
                    let y = Linear::new(weight.as_tensor().clone(), own)
                        .with_activation(activation)
                        .forward(&x)?;
                    let grads = y.to_dtype(DType::F32)?.sqr()?.sum_all()?.backward()?;

                    let [x_w, weight_w, bias_w] =
                        [&x, &weight, &bias].map(|of| wide(of).and_then(|t| Var::from_tensor(&t)));
                    let (x_w, weight_w, bias_w) = (x_w?, weight_w?, bias_w?);
                    let y_w = layer(&x_w, &weight_w, biased.then(|| bias_w.as_tensor()), activation)?;
                    let grads_w = y_w.sqr()?.sum_all()?.backward()?;

                    let far = apart(&y, &y_w)?;
                    assert!(far < bound(dtype), "{why}: {far}");
                    for (what, own, other) in
                        [("x", &x, &x_w), ("weight", &weight, &weight_w), ("bias", &bias, &bias_w)]
                    {
                        if what == "bias" && !biased {
                            continue;
                        }
                        let [own, other] =
                            [grads.get(own), grads_w.get(other)].map(|grad| grad.expect("there is one"));
                        let far = apart(own, other)?;
                        // Several roundings on the way.
                        assert!(far < 4.0 * bound(dtype), "{why}, gradient of {what}: {far}");
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn batches_have_gradients() -> Result<()> {
    for device in devices() {
        for transposed in [false, true] {
            let a = Var::from_tensor(&random(&[3, 8, 16], DType::BF16, &device)?)?;
            let b = Var::from_tensor(&random(
                if transposed { &[3, 24, 16] } else { &[3, 16, 24] },
                DType::BF16,
                &device,
            )?)?;
            let turned = if transposed { b.t()? } else { b.as_tensor().clone() };
            let grads = matmul(&a, &turned)?.to_dtype(DType::F32)?.sqr()?.sum_all()?.backward()?;
            let [a_w, b_w] = [Var::from_tensor(&wide(&a)?)?, Var::from_tensor(&wide(&b)?)?];
            let turned = if transposed { b_w.t()? } else { b_w.as_tensor().clone() };
            let grads_w = a_w.matmul(&turned.contiguous()?)?.sqr()?.sum_all()?.backward()?;
            for (own, other) in [(&a, &a_w), (&b, &b_w)] {
                let [own, other] =
                    [grads.get(own), grads_w.get(other)].map(|grad| grad.expect("there is one"));
                let far = apart(own, other)?;
                assert!(far < 4.0 * bound(DType::BF16), "{device:?} {transposed}: {far}");
            }
        }
    }
    Ok(())
}

#[test]
fn experts_are_products_of_their_rows() -> Result<()> {
    // Few experts, and as many as models have.
    let many = (0..=384u32).map(|i| if i < 200 { i / 50 } else { 71 }).collect();
    for (device, ends) in devices().into_iter().flat_map(|device| {
        [vec![0, 5, 5, 70, 71], Vec::clone(&many)].map(|ends: Vec<u32>| (device.clone(), ends))
    }) {
        let count = ends.len() - 1;
        for &dtype in types(&device) {
            let offsets = Tensor::from_slice(&ends, count + 1, &device)?;
            let (x, weights) =
                (random(&[71, 32], dtype, &device)?, random(&[count, 48, 32], dtype, &device)?);
            let y = experts(&x, &weights, &offsets)?;
            let groups = (0..count).filter(|&i| ends[i + 1] > ends[i]).map(|i| {
                let rows = (ends[i + 1] - ends[i]) as usize;
                wide(&x)?.narrow(0, ends[i] as usize, rows)?.matmul(&wide(&weights.get(i)?)?.t()?)
            });
            let want = Tensor::cat(&groups.collect::<Result<Vec<_>>>()?, 0)?;
            let far = apart(&y, &want)?;
            assert!(far < bound(dtype), "{device:?} {dtype:?}, {count} experts: {far}");
        }
    }
    Ok(())
}

#[test]
fn experts_have_gradients() -> Result<()> {
    for device in devices() {
        let ends = [0u32, 8, 8, 72, 80];
        let offsets = Tensor::new(&ends, &device)?;
        let x = Var::from_tensor(&random(&[80, 32], DType::BF16, &device)?)?;
        let weights = Var::from_tensor(&random(&[4, 48, 32], DType::BF16, &device)?)?;
        let grads = experts(&x, &weights, &offsets)?.to_dtype(DType::F32)?.sqr()?.sum_all()?.backward()?;
        let [x_w, weights_w] = [Var::from_tensor(&wide(&x)?)?, Var::from_tensor(&wide(&weights)?)?];
        let groups = (0..4).filter(|&i| ends[i + 1] > ends[i]).map(|i| {
            let rows = (ends[i + 1] - ends[i]) as usize;
            x_w.narrow(0, ends[i] as usize, rows)?.matmul(&weights_w.get(i)?.t()?)
        });
        let y = Tensor::cat(&groups.collect::<Result<Vec<_>>>()?, 0)?;
        let grads_w = y.sqr()?.sum_all()?.backward()?;
        for (what, own, other) in [("x", &x, &x_w), ("weights", &weights, &weights_w)] {
            let [own, other] = [grads.get(own), grads_w.get(other)].map(|grad| grad.expect("there is one"));
            let far = apart(own, other)?;
            assert!(far < 4.0 * bound(DType::BF16), "{device:?}, {what}: {far}");
        }
    }
    Ok(())
}

/// Codes times their scales.
fn restored((codes, scales): (&Tensor, &Tensor), rows: usize) -> Result<Tensor> {
    let (m, k) = codes.dims2()?;
    let (of_m, of_k) = scales.dims2()?;
    let scales = wide(scales)?.reshape((of_m, 1, of_k, 1))?.broadcast_as((of_m, rows, of_k, 128))?;
    let scales = scales.reshape((of_m * rows, of_k * 128))?.narrow(0, 0, m)?.narrow(1, 0, k)?;
    wide(codes)? * scales
}

#[test]
fn blocks_of_8_bits_are_scaled() -> Result<()> {
    for device in devices() {
        for (m, n, k) in [(5, 24, 128), (130, 256, 384), (64, 200, 208), (1, 128, 16)] {
            // Sizes differ from block to block.
            let sizes = Tensor::arange(0f32, k as f32, &device)?.affine(0.01, 0.1)?.to_dtype(DType::BF16)?;
            let [x, w] = [random(&[m, k], DType::BF16, &device)?, random(&[n, k], DType::BF16, &device)?];
            let (x, w) = (x.broadcast_mul(&sizes)?, w.broadcast_mul(&sizes)?);
            let ((a, of_a), (b, of_b)) = (quantize_rows(&x)?, quantize_weight(&w)?);
            let [near_x, near_w] = [restored((&a, &of_a), 1)?, restored((&b, &of_b), 128)?];
            // Half a unit of 3 bits.
            assert!(apart(&near_x, &x)? < 0.04 && apart(&near_w, &w)? < 0.04, "{m} x {n} x {k}");
            let want = near_x.matmul(&near_w.t()?)?;
            let far = apart(&scaled_matmul((&a, &of_a), (&b, &of_b))?, &want)?;
            assert!(far < bound(DType::BF16), "{device:?} {m} x {n} x {k}: {far}");

            let bias = random(&[n], DType::BF16, &device)?;
            let plain = ScaledLinear::new(b, of_b, Some(bias.clone()));
            for activation in [Activation::Identity, Activation::Relu, Activation::Gelu, Activation::Silu] {
                let y = plain.clone().with_activation(activation).forward(&x)?;
                let sum = want.broadcast_add(&wide(&bias)?)?;
                let want = match activation {
                    Activation::Identity => sum,
                    Activation::Relu => sum.relu()?,
                    Activation::Gelu => sum.gelu()?,
                    Activation::Silu => sum.silu()?,
                };
                let far = apart(&y, &want)?;
                assert!(far < bound(DType::BF16), "{device:?} {activation:?} {m} x {n} x {k}: {far}");
            }
        }
        let (w, x) = (random(&[64, 128], DType::BF16, &device)?, random(&[2, 3, 128], DType::BF16, &device)?);
        let y = ScaledLinear::quantized(&w, None)?.with_activation(Activation::Silu).forward(&x)?;
        let want = wide(&x)?.broadcast_matmul(&wide(&w)?.t()?)?.silu()?;
        assert_eq!(y.dims(), [2, 3, 64]);
        let far = apart(&y, &want)?;
        // Each product is up to an eighth off, their sums as a random walk.
        assert!(far < 0.1, "{device:?}: {far}");
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Result<()> {
    let cpu = Device::Cpu;
    let bf16 = |shape: &[usize]| Tensor::zeros(shape, DType::BF16, &cpu);
    let offsets = Tensor::new(&[0u32, 1], &cpu)?;
    let layer = Linear::new(bf16(&[4, 8])?, Some(bf16(&[3])?));
    for (why, result, words) in [
        ("K differs", matmul(&bf16(&[2, 3])?, &bf16(&[4, 5])?), "[2, 3] and [4, 5] cannot be multiplied"),
        ("batches differ", matmul(&bf16(&[2, 2, 3])?, &bf16(&[3, 3, 5])?), "cannot be multiplied"),
        ("a vector", matmul(&bf16(&[3])?, &bf16(&[3, 5])?), "two dimensions or more"),
        (
            "integers",
            matmul(&Tensor::zeros((2, 2), DType::U8, &cpu)?, &Tensor::zeros((2, 2), DType::U8, &cpu)?),
            "U8",
        ),
        ("types differ", matmul(&bf16(&[2, 3])?, &Tensor::zeros((3, 5), DType::F16, &cpu)?), "F16"),
        ("inputs", layer.forward(&bf16(&[2, 9])?), "takes (.., 8)"),
        ("a short bias", layer.forward(&bf16(&[2, 8])?), "the bias has 3 elements, 4 were needed"),
        (
            "scales",
            scaled_matmul(
                (&bf16(&[2, 128])?.to_dtype(DType::F8E4M3)?, &Tensor::zeros((2, 2), DType::F32, &cpu)?),
                (&bf16(&[4, 128])?.to_dtype(DType::F8E4M3)?, &Tensor::zeros((1, 1), DType::F32, &cpu)?),
            ),
            "scales of a have shape [2, 2], [2, 1] was needed",
        ),
        ("few offsets", experts(&bf16(&[2, 8])?, &bf16(&[3, 4, 8])?, &offsets), "(experts + 1)"),
        (
            "offsets of i64",
            experts(&bf16(&[2, 8])?, &bf16(&[1, 4, 8])?, &offsets.to_dtype(DType::I64)?),
            "u32 was needed",
        ),
    ] {
        let error = result.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.to_lowercase().contains(&words.to_lowercase()), "{why}: `{error}`");
    }
    Ok(())
}
