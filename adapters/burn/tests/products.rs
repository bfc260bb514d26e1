//! Products, layers and gradients beside burn's own: on a CPU, and with the feature `cuda` on the card.

use burn::tensor::{Device, Distribution, FloatDType, Tensor, TensorData, activation};
use falchion_burn::{Activation, Error, Linear, Product, linear, matmul, product};

/// The same values on a device.
fn at<const D: usize>(shape: [usize; D], seed: u64, (device, dtype): (&Device, FloatDType)) -> Tensor<D> {
    let count = shape.iter().product::<usize>() as u64;
    // Whole numbers between -2 and 2, whose sums are exact in 16 bits, by a generator of 64 bits.
    let value = |i: u64| {
        let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ seed.wrapping_mul(0xBF58_476D_1CE4_E5B9));
        ((mixed >> 33) % 5) as f32 - 2.0
    };
    let values: Vec<f32> = (0..count).map(value).collect();
    Tensor::from_data(TensorData::new(values, shape), (device, dtype.into()))
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_to_vec().expect("numbers of 32 bits")
}

fn near(found: &[f32], wanted: &[f32], part: f32, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    let largest = wanted.iter().fold(1.0, |most: f32, value| most.max(value.abs()));
    for (found, wanted) in found.iter().zip(wanted) {
        assert!((found - wanted).abs() <= part * largest, "{what}: {found} for {wanted}");
    }
}

/// Products, each with its gradients, held against burn's own on a CPU.
fn products(device: &Device, dtype: FloatDType, part: f32) {
    let (device, cpu) = (device.clone().autodiff(), Device::flex().autodiff());
    let (place, cpu) = ((&device, dtype), (&cpu, FloatDType::F32));
    for ([batch, m, n, k], views) in [
        ([1, 64, 64, 64], false),
        ([3, 33, 40, 72], false),
        ([2, 1, 200, 130], true),
        ([5, 100, 7, 50], true),
    ] {
        let what = format!("{batch} x {m} x {n} x {k}, views: {views}");
        // B as a transposed view of what is stored.
        let of_b = if views { [batch, n, k] } else { [batch, k, n] };
        let ours = {
            let (a, stored) = (at([batch, m, k], 1, place), at(of_b, 2, place));
            let (a, stored) = (a.require_grad(), stored.require_grad());
            let b = if views { stored.clone().swap_dims(1, 2) } else { stored.clone() };
            let d = matmul(a.clone(), b).expect("the shapes fit");
            let grads = (d.clone() * at([batch, m, n], 3, place)).sum().backward();
            [values(d), values(a.grad(&grads).expect("of a")), values(stored.grad(&grads).expect("of b"))]
        };
        let theirs = {
            let (a, stored) = (at([batch, m, k], 1, cpu), at(of_b, 2, cpu));
            let (a, stored) = (a.require_grad(), stored.require_grad());
            let b = if views { stored.clone().swap_dims(1, 2) } else { stored.clone() };
            let d = a.clone().matmul(b);
            let grads = (d.clone() * at([batch, m, n], 3, cpu)).sum().backward();
            [values(d), values(a.grad(&grads).expect("of a")), values(stored.grad(&grads).expect("of b"))]
        };
        for ((ours, theirs), name) in ours.iter().zip(&theirs).zip(["d", "a's gradient", "b's gradient"]) {
            near(ours, theirs, part, &format!("{what}, {name}"));
        }
    }
}

fn layers(device: &Device, dtype: FloatDType, part: f32) {
    let (device, cpu) = (device.clone().autodiff(), Device::flex().autodiff());
    let (place, cpu) = ((&device, dtype), (&cpu, FloatDType::F32));
    for (i, activation) in
        [Activation::Identity, Activation::Relu, Activation::Gelu, Activation::Silu].into_iter().enumerate()
    {
        let (seed, [rows, inputs, outputs]) = (10 * i as u64, [17 + i, 64, 40 + 8 * i]);
        let ours = {
            let x = at([2, rows, inputs], seed, place).require_grad();
            let (w, bias) = (at([inputs, outputs], seed + 1, place), at([outputs], seed + 2, place));
            let (w, bias) = ((w / 16.0).require_grad(), bias.require_grad());
            // Nobody asks for a gradient here, so it is one kernel.
            let inner = linear(x.clone().inner(), w.clone().inner(), Some(bias.clone().inner()), activation);
            let y = linear(x.clone(), w.clone(), Some(bias.clone()), activation).expect("the shapes fit");
            let grads = y.clone().sum().backward();
            let of = [values(x.grad(&grads).expect("x")), values(w.grad(&grads).expect("w"))];
            let [of_x, of_w] = of;
            [
                values(y),
                values(inner.expect("the shapes fit")),
                of_x,
                of_w,
                values(bias.grad(&grads).expect("bias")),
            ]
        };
        let theirs = {
            let x = at([2, rows, inputs], seed, cpu).require_grad();
            let (w, bias) = (at([inputs, outputs], seed + 1, cpu), at([outputs], seed + 2, cpu));
            let (w, bias) = ((w / 16.0).require_grad(), bias.require_grad());
            let y = x.clone().matmul(w.clone().unsqueeze()) + bias.clone().unsqueeze();
            let y = match activation {
                Activation::Identity => y,
                Activation::Relu => activation::relu(y),
                Activation::Silu => activation::silu(y),
                Activation::Gelu => activation::gelu_approximate(y),
            };
            let grads = y.clone().sum().backward();
            let of = [values(x.grad(&grads).expect("x")), values(w.grad(&grads).expect("w"))];
            let [of_x, of_w] = of;
            [values(y.clone()), values(y), of_x, of_w, values(bias.grad(&grads).expect("bias"))]
        };
        for ((ours, theirs), name) in ours.iter().zip(&theirs).zip(["y", "y in one kernel", "x", "w", "bias"])
        {
            near(ours, theirs, part, &format!("{activation:?}, {name}"));
        }
    }
}

#[test]
fn products_and_gradients_are_burns_on_a_cpu() {
    products(&Device::flex(), FloatDType::F32, 1e-5);
    layers(&Device::flex(), FloatDType::F32, 1e-5);
}

#[test]
fn operands_without_gradients_are_constants() {
    for with_gradients in [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()] {
        let x = at([4, 6], 1, (&Device::flex(), FloatDType::F32));
        let weight = at([6, 5], 2, (&with_gradients, FloatDType::F32)).require_grad();
        let y = linear(x.clone(), weight.clone(), None, Activation::Identity).expect("the shapes fit");
        let found = weight.grad(&y.sum().backward()).expect("of the weight");
        let wanted = x.transpose().matmul(Tensor::ones([4, 5], &Device::flex()));
        near(&values(found), &values(wanted), 1e-5, "a weight's gradient");
    }
}

#[test]
fn a_layer_of_burns_becomes_one_of_ours() {
    let device = Device::flex();
    let theirs = burn::nn::LinearConfig::new(24, 10).init(&device);
    let x = Tensor::<4>::random([2, 3, 5, 24], Distribution::Default, &device);
    let wanted = values(theirs.forward(x.clone()));
    let found = Linear::from(theirs).forward(x).expect("the shapes fit");
    near(&values(found), &wanted, 1e-5, "a layer");
}

#[test]
fn what_does_not_fit_is_named() {
    let device = Device::flex();
    let of = |shape: [usize; 2]| Tensor::<2>::zeros(shape, &device);
    let words = |error: Result<Tensor<2>, Error>| error.expect_err("it does not fit").to_string();
    assert_eq!(
        words(matmul(of([3, 4]), of([5, 6]))),
        "b has shape [5, 6], 4 rows, as a of shape [3, 4] has it, was needed"
    );
    let bias = Tensor::<1>::zeros([5], &device);
    let error = linear(of([3, 4]), of([4, 6]), Some(bias), Activation::Relu);
    assert_eq!(words(error), "bias has shape [5], [6] was needed");
    assert_eq!(
        words(linear(of([3, 4]), of([5, 6]), None, Activation::Relu)),
        "x has shape [3, 4], (..., 5) was needed"
    );
    let transposed = Product { transposed: [false, true], ..Product::default() };
    let error = words(product(transposed, of([1, 4]), of([1, 5]), None));
    assert!(error.contains("4 columns"), "{error}");
    let with_gradients = Device::flex().autodiff();
    let [a, b] = [with_gradients.clone(), with_gradients.gradient_checkpointing()]
        .map(|device| Tensor::<2>::zeros([3, 3], &device));
    let error = words(matmul(a, b));
    assert!(error.starts_with("b is on Autodiff") && error.contains("checkpointing: Disabled"), "{error}");
}

#[cfg(feature = "cuda")]
mod card {
    use burn::tensor::{Device, FloatDType};

    use super::{layers, products};

    /// Whether there is one; cubecl panics where there is none.
    fn found() -> bool {
        let found = std::path::Path::new("/dev/nvidiactl").exists();
        if !found {
            println!("no card: skipped");
        }
        found
    }

    #[test]
    fn products_and_gradients_are_burns_on_the_card() {
        if found() {
            products(&Device::cuda(0), FloatDType::BF16, 8e-3);
            products(&Device::cuda(0), FloatDType::F16, 1e-3);
        }
    }

    #[test]
    fn layers_are_burns_on_the_card() {
        if found() {
            layers(&Device::cuda(0), FloatDType::BF16, 2e-2);
            layers(&Device::cuda(0), FloatDType::F16, 3e-3);
        }
    }

    /// Launches of ours and of cubecl's, one after the other: each reads what the one before wrote.
    #[test]
    fn ours_and_theirs_keep_their_order() {
        if !found() {
            return;
        }
        use burn::tensor::Tensor;
        let device = Device::cuda(0);
        let mut x = Tensor::<2>::ones([512, 512], &device).cast(FloatDType::BF16);
        let identity = Tensor::<2>::eye(512, &device).cast(FloatDType::BF16);
        for _ in 0..200 {
            x = falchion_burn::matmul(x + 1.0, identity.clone()).expect("the shapes fit");
            x = x - 1.0;
            x = falchion_burn::matmul(x, identity.clone()).expect("the shapes fit") + 0.0;
        }
        assert!(super::values(x).iter().all(|&value| value == 1.0));
    }
}
