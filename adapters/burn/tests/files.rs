//! Layers from safetensors files that each test writes, compared with sums in `f64` of the weights that the files stand for.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use falchion_burn::{Activation, Error, FewBitLinear, FewBits, Linear, SafeTensors};
use half::{bf16, f16};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, serialize};

/// SplitMix64, by S. Vigna.
struct Random(u64);

impl Random {
    /// Other numbers in each run; a failure prints the seed.
    fn fresh() -> Self {
        let time = std::time::UNIX_EPOCH.elapsed().map_or(7, |time| time.as_nanos() as u64);
        println!("seed {time}");
        Self(time)
    }

    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.bits() % end
    }

    fn codes(&mut self, count: usize, end: u64) -> Vec<u32> {
        (0..count).map(|_| self.below(end) as u32).collect()
    }

    /// Between -1 and 1.
    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }

    /// Between 1/128 and 1/64, exact in 16 bits.
    fn scales(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| (64 + self.below(64)) as f32 / 8192.0).collect()
    }
}

/// A file in the making: names, types, shapes and bytes.
#[derive(Clone, Default)]
struct Written(Vec<(String, Dtype, Vec<usize>, Vec<u8>)>);

impl Written {
    fn with(mut self, name: &str, dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Self {
        let name = format!("model.up_proj.{name}");
        self.0.retain(|(known, ..)| *known != name);
        self.0.push((name, dtype, shape.to_vec(), bytes));
        self
    }

    fn words(self, name: &str, shape: [usize; 2], words: &[u32]) -> Self {
        self.with(name, Dtype::I32, &shape, words.iter().flat_map(|word| word.to_le_bytes()).collect())
    }

    fn halves(self, name: &str, shape: &[usize], values: &[f32], dtype: FloatDType) -> Self {
        let (of, bytes) = match dtype {
            FloatDType::F16 => {
                (Dtype::F16, values.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect())
            }
            _ => (Dtype::BF16, values.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect()),
        };
        self.with(name, of, shape, bytes)
    }

    fn without(mut self, name: &str) -> Self {
        self.0.retain(|(known, ..)| !known.ends_with(name));
        self
    }

    /// The bytes of the file, which were on disk.
    fn file(&self) -> Vec<u8> {
        let views = self.0.iter().map(|(name, dtype, shape, bytes)| {
            (name, TensorView::new(*dtype, shape.clone(), bytes).expect("a tensor"))
        });
        let bytes = serialize(views, None).expect("a file");
        let thread = std::thread::current().id();
        let name = format!("falchion-burn-{}-{thread:?}.safetensors", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, bytes).expect("a file is written");
        let bytes = std::fs::read(&path).expect("a file is read");
        std::fs::remove_file(&path).expect("a file is removed");
        bytes
    }

    fn load(
        &self,
        [n, k]: [usize; 2],
        bits: Option<FewBits>,
        place: (&Device, FloatDType),
    ) -> Result<FewBitLinear, Error> {
        let bytes = self.file();
        let file = SafeTensors::deserialize(&bytes).expect("a file");
        FewBitLinear::load(k, n, bits, (&file, "model.up_proj"), place)
    }
}

/// A layer whose tensors a file has: the weight `(n, k)` and the bias in `f64`.
struct Meant {
    shape: [usize; 2],
    weight: Vec<f64>,
    bias: Option<Vec<f64>>,
}

impl Meant {
    /// Compares results of two and of three dimensions with sums in `f64`.
    fn check(
        &self,
        random: &mut Random,
        place @ (device, dtype): (&Device, FloatDType),
        forward: [Forward<'_>; 2],
    ) {
        let [n, k] = self.shape;
        for (i, activation) in [Activation::Identity, Activation::Silu].into_iter().enumerate() {
            for (lead, rows) in [(vec![1], 1), (vec![2, 9], 18), (vec![0, 3], 0)] {
                let x = rounded(&random.floats(rows * k), dtype);
                let shape = [lead.clone(), vec![k]].concat();
                let found = forward[i](Inputs { values: &x, shape: &shape, device, dtype });
                let found = found.expect("the shapes fit");
                assert_eq!(found.shape().as_slice(), [lead, vec![n]].concat(), "{activation:?}");
                assert_eq!(found.dtype(), DType::from(place.1));
                let found = found.convert::<f32>().try_to_vec::<f32>().expect("numbers");
                let mut worst: f64 = 0.0;
                for (at, &found) in found.iter().enumerate() {
                    let (row, column) = (at / n, at % n);
                    let terms = (0..k).map(|l| f64::from(x[row * k + l]) * self.weight[column * k + l]);
                    let (sum, size) =
                        terms.fold((0.0, 0.0), |(sum, size), term| (sum + term, size + term.abs()));
                    let sum = sum + self.bias.as_ref().map_or(0.0, |bias| bias[column]);
                    let wanted = if i == 1 { sum / (1.0 + (-sum).exp()) } else { sum };
                    // Weights are rounded to 16 bits, the result once more; the rest is the order of sums.
                    let unit = if dtype == FloatDType::F16 { 1.0 / 2048.0 } else { 1.0 / 256.0 };
                    let apart = (f64::from(found) - wanted).abs();
                    let allowed = unit * (wanted.abs() + 1.2 * size) + 1e-6;
                    worst = worst.max(if apart.is_nan() { f64::INFINITY } else { apart / allowed });
                }
                assert!(worst <= 1.0, "{n} x {k}, {rows} rows, {activation:?}: {worst} of the bound");
            }
        }
    }

    fn check_few(&self, random: &mut Random, place: (&Device, FloatDType), layer: &FewBitLinear) {
        let active = layer.clone().with_activation(Activation::Silu);
        self.check(random, place, [&|x| x.to(layer), &|x| x.to(&active)]);
    }
}

/// A layer's results.
type Forward<'a> = &'a dyn Fn(Inputs<'_>) -> Result<TensorData, Error>;

/// Inputs of a layer.
struct Inputs<'a> {
    values: &'a [f32],
    shape: &'a [usize],
    device: &'a Device,
    dtype: FloatDType,
}

impl Inputs<'_> {
    fn tensor<const D: usize>(&self) -> Tensor<D> {
        let data = TensorData::new(self.values.to_vec(), self.shape.to_vec());
        Tensor::from_data(data, (self.device, self.dtype.into()))
    }

    fn to(&self, layer: &FewBitLinear) -> Result<TensorData, Error> {
        match self.shape.len() {
            2 => layer.forward(self.tensor::<2>()).map(Tensor::into_data),
            _ => layer.forward(self.tensor::<3>()).map(Tensor::into_data),
        }
    }

    fn to_plain(&self, layer: &Linear) -> Result<TensorData, Error> {
        match self.shape.len() {
            2 => layer.forward(self.tensor::<2>()).map(Tensor::into_data),
            _ => layer.forward(self.tensor::<3>()).map(Tensor::into_data),
        }
    }
}

fn rounded(values: &[f32], dtype: FloatDType) -> Vec<f32> {
    let half = |&x: &f32| {
        if dtype == FloatDType::F16 { f16::from_f32(x).to_f32() } else { bf16::from_f32(x).to_f32() }
    };
    values.iter().map(half).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// Words of 32 bits of fields of lines, the first in the lowest bits.
fn packed(fields: &[u32], bits: usize) -> Vec<u32> {
    let word = |of: &[u32]| of.iter().enumerate().fold(0, |word, (i, field)| word | field << (i * bits));
    fields.chunks(32 / bits).map(word).collect()
}

/// GPTQ's tensors, and what they mean.
fn gptq(
    random: &mut Random,
    (bits, v2, mixed, size): (usize, bool, bool, usize),
    [n, k]: [usize; 2],
    dtype: FloatDType,
) -> (Written, Meant) {
    let groups = k / size;
    let (codes, scales) = (random.codes(n * k, 1 << bits), random.scales(groups * n));
    let zeros: Vec<u32> = random.codes(groups * n, (1 << bits) - 1).iter().map(|zero| zero + 1).collect();
    let index: Vec<u32> = (0..k).map(|i| (if mixed { i * 7 % k / size } else { i / size }) as u32).collect();
    let bias = rounded(&random.floats(n), dtype);
    // (k * bits / 32, n) words, each of fields along K.
    let lines = k * bits / 32;
    let rows = packed(&codes, bits);
    let qweight: Vec<u32> =
        (0..lines).flat_map(|line| (0..n).map(move |row| row * lines + line)).map(|at| rows[at]).collect();
    let stored: Vec<u32> = zeros.iter().map(|zero| zero - u32::from(!v2)).collect();
    let written = Written::default()
        .words("qweight", [lines, n], &qweight)
        .words("qzeros", [groups, n * bits / 32], &packed(&stored, bits))
        .halves("scales", &[groups, n], &scales, dtype)
        .with("g_idx", Dtype::I32, &[k], index.iter().flat_map(|i| i.to_le_bytes()).collect())
        .halves("bias", &[n], &bias, dtype);
    let weight = (0..n * k).map(|i| {
        let at = index[i % k] as usize * n + i / k;
        (f64::from(codes[i]) - f64::from(zeros[at])) * f64::from(scales[at])
    });
    (written, Meant { shape: [n, k], weight: weight.collect(), bias: Some(wide(&bias)) })
}

/// AWQ's tensors.
fn awq(random: &mut Random, size: usize, [n, k]: [usize; 2], dtype: FloatDType) -> (Written, Meant) {
    let groups = k / size;
    let (codes, zeros) = (random.codes(k * n, 16), random.codes(groups * n, 16));
    let scales = random.scales(groups * n);
    // The column of each field of a word.
    let mixed = |all: &[u32]| -> Vec<u32> {
        all.chunks(8).flat_map(|of| [0, 2, 4, 6, 1, 3, 5, 7].map(|i| of[i])).collect()
    };
    let written = Written::default()
        .words("qweight", [k, n / 8], &packed(&mixed(&codes), 4))
        .words("qzeros", [groups, n / 8], &packed(&mixed(&zeros), 4))
        .halves("scales", &[groups, n], &scales, dtype);
    let weight = (0..n * k).map(|i| {
        let (row, place) = (i / k, i % k);
        let at = place / size * n + row;
        (f64::from(codes[place * n + row]) - f64::from(zeros[at])) * f64::from(scales[at])
    });
    (written, Meant { shape: [n, k], weight: weight.collect(), bias: None })
}

/// The number of a code of `e4m3`.
fn e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let size =
        if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
    if code < 128 { size } else { -size }
}

/// The tensors of fp8 with a scale per 128 x 128.
fn fp8(random: &mut Random, [n, k]: [usize; 2], dtype: FloatDType) -> (Written, Meant) {
    let codes: Vec<u8> = (0..n * k).map(|_| (random.below(2) * 128 + random.below(112)) as u8).collect();
    let blocks = [n, k].map(|extent| extent.div_ceil(128));
    let scales = random.scales(blocks[0] * blocks[1]);
    let bias = rounded(&random.floats(n), dtype);
    let bytes = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
    let written = Written::default()
        .with("weight", Dtype::F8_E4M3, &[n, k], codes.clone())
        .with("weight_scale_inv", Dtype::F32, &blocks, bytes)
        .halves("bias", &[n], &bias, dtype);
    let weight =
        (0..n * k).map(|i| e4m3(codes[i]) * f64::from(scales[i / k / 128 * blocks[1] + i % k / 128]));
    (written, Meant { shape: [n, k], weight: weight.collect(), bias: Some(wide(&bias)) })
}

/// The tensors of MXFP4, by one of the names and shapes that files have.
fn mxfp4(random: &mut Random, own: bool, [n, k]: [usize; 2]) -> (Written, Meant) {
    let table = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let (codes, groups) = (random.codes(n * k, 16), k.div_ceil(32));
    let exponents: Vec<u8> = (0..n * groups).map(|_| 120 + random.below(6) as u8).collect();
    let bytes: Vec<u8> = codes.chunks(2).map(|pair| (pair[0] | pair[1] << 4) as u8).collect();
    let written = if own {
        Written::default().with("blocks", Dtype::U8, &[n, groups, 16], bytes).with(
            "scales",
            Dtype::U8,
            &[n, groups],
            exponents.clone(),
        )
    } else {
        Written::default().with("weight", Dtype::U8, &[n, k / 2], bytes).with(
            "weight_scale",
            Dtype::F8_E8M0,
            &[n, groups],
            exponents.clone(),
        )
    };
    let weight = (0..n * k).map(|i| {
        let size =
            table[codes[i] as usize % 8] * 2f64.powi(i32::from(exponents[i / k * groups + i % k / 32]) - 127);
        if codes[i] < 8 { size } else { -size }
    });
    (written, Meant { shape: [n, k], weight: weight.collect(), bias: None })
}

/// Every format on a device, with and without its name.
fn formats(device: &Device) {
    let random = &mut Random::fresh();
    for dtype in [FloatDType::BF16, FloatDType::F16] {
        let place = (device, dtype);
        for (how, shape) in [
            ((4, false, false, 64), [48, 128]),
            ((4, true, true, 128), [72, 256]),
            ((8, false, true, 32), [64, 96]),
            ((4, false, false, 256), [40, 256]),
        ] {
            let (written, meant) = gptq(random, how, shape, dtype);
            let bits = how.1.then_some(FewBits::Gptq { v2: true });
            meant.check_few(random, place, &written.load(shape, bits, place).expect("GPTQ"));
        }
        let shape = [64, 192];
        let (written, meant) = awq(random, 64, shape, dtype);
        meant.check_few(random, place, &written.load(shape, None, place).expect("AWQ"));
        meant.check_few(random, place, &written.load(shape, Some(FewBits::Awq), place).expect("AWQ"));
        for shape in [[144, 256], [40, 96]] {
            let (written, meant) = fp8(random, shape, dtype);
            meant.check_few(random, place, &written.load(shape, None, place).expect("fp8"));
        }
        for own in [true, false] {
            let shape = [40, 96];
            let (written, meant) = mxfp4(random, own, shape);
            if dtype == FloatDType::BF16 {
                meant.check_few(random, place, &written.load(shape, None, place).expect("MXFP4"));
            } else {
                let error = written.load(shape, None, place).expect_err("MXFP4").to_string();
                assert!(error.contains("MXFP4 is multiplied in f16, bf16 was needed"), "{error}");
            }
        }
        // A layer in 16 bits, read in its own type and rounded from the other.
        for of in [FloatDType::BF16, FloatDType::F16] {
            let ([n, k], bias) = ([24, 40], rounded(&random.floats(24), of));
            let weight = rounded(&random.floats(n * k), of);
            let written =
                Written::default().halves("weight", &[n, k], &weight, of).halves("bias", &[n], &bias, of);
            let bytes = written.file();
            let file = SafeTensors::deserialize(&bytes).expect("a file");
            let layer = Linear::load(k, n, (&file, "model.up_proj"), place).expect("a layer");
            let active = layer.clone().with_activation(Activation::Silu);
            let meant = Meant { shape: [n, k], weight: wide(&weight), bias: Some(wide(&bias)) };
            meant.check(random, place, [&|x| x.to_plain(&layer), &|x| x.to_plain(&active)]);
        }
    }
}

#[test]
fn layers_of_files_are_what_the_files_mean() {
    formats(&Device::flex());
}

#[test]
fn what_does_not_fit_is_named() {
    let (random, device, dtype) = (&mut Random::fresh(), Device::flex(), FloatDType::BF16);
    let (place, shape) = ((&device, dtype), [64, 128]);
    let gptq = gptq(random, (4, false, false, 64), shape, dtype).0;
    let awq = awq(random, 64, shape, dtype).0;
    let (fp8, mxfp4) = (fp8(random, shape, dtype).0, mxfp4(random, true, shape).0);
    let four = |shape: &[usize]| vec![0; 4 * shape.iter().product::<usize>()];
    let bytes = |count: usize| vec![0; count];
    for (needed, written, bits) in [
        (
            "there is no tensor model.up_proj.qzeros, one of s32 was needed",
            gptq.clone().without("qzeros"),
            None,
        ),
        ("there are no tensors model.up_proj.qweight", gptq.clone().without("qweight"), None),
        ("there is no tensor model.up_proj.qweight, one of s32", fp8.clone(), Some(FewBits::Awq)),
        (
            "model.up_proj.qweight has shape [8, 64], [16, 64] with 4 bits per code, or [32, 64] with 8, was needed",
            gptq.clone().with("qweight", Dtype::I32, &[8, 64], four(&[8, 64])),
            None,
        ),
        (
            "model.up_proj.qweight has elements of F32, s32 was needed",
            gptq.clone().with("qweight", Dtype::F32, &[16, 64], four(&[16, 64])),
            None,
        ),
        (
            "model.up_proj.scales has shape [2, 65], (groups, 64) was needed",
            gptq.clone().with("scales", Dtype::F32, &[2, 65], four(&[2, 65])),
            Some(FewBits::Gptq { v2: false }),
        ),
        (
            "model.up_proj.qzeros has shape [1, 8], [2, 8] was needed",
            gptq.clone().with("qzeros", Dtype::I32, &[1, 8], four(&[1, 8])),
            None,
        ),
        (
            "model.up_proj.g_idx has shape [5], [128] was needed",
            gptq.clone().with("g_idx", Dtype::I32, &[5], four(&[5])),
            None,
        ),
        (
            "model.up_proj.bias has shape [3], [64] was needed",
            gptq.clone().with("bias", Dtype::F32, &[3], four(&[3])),
            None,
        ),
        (
            "model.up_proj.qweight has shape [128, 7], [128, 8] was needed",
            awq.clone().with("qweight", Dtype::I32, &[128, 7], four(&[128, 7])),
            None,
        ),
        (
            "model.up_proj.qzeros has elements of I64, s32 was needed",
            awq.clone().with("qzeros", Dtype::I64, &[2, 8], bytes(128)),
            None,
        ),
        (
            "model.up_proj.weight has elements of BF16, e4m3 was needed",
            fp8.clone().with("weight", Dtype::BF16, &shape, bytes(2 * 64 * 128)),
            None,
        ),
        (
            "model.up_proj.weight_scale_inv has shape [2, 1], [1, 1] was needed",
            fp8.clone().with("weight_scale_inv", Dtype::F32, &[2, 1], four(&[2])),
            None,
        ),
        (
            "model.up_proj.blocks has shape [64, 4, 8], [64, 64] or [64, 4, 16] was needed",
            mxfp4.clone().with("blocks", Dtype::U8, &[64, 4, 8], bytes(2048)),
            None,
        ),
        ("there is no tensor model.up_proj.scales, one of u8", mxfp4.clone().without("scales"), None),
    ] {
        let error = written.load(shape, bits, place).expect_err(needed).to_string();
        assert!(error.contains(needed), "{error}\n{needed}");
    }

    let layer = gptq.load(shape, None, place).expect("GPTQ");
    for (needed, found) in [
        (
            "x has shape [2, 64], (..., 128) was needed",
            layer.forward(Tensor::<2>::zeros([2, 64], (&device, DType::BF16))),
        ),
        (
            "x has elements of F16, BF16, the layer's type, was needed",
            layer.forward(Tensor::<2>::zeros([2, 128], (&device, DType::F16))),
        ),
        ("x is on", layer.forward(Tensor::<2>::zeros([2, 128], (&device.clone().autodiff(), DType::BF16)))),
    ] {
        let error = found.expect_err(needed).to_string();
        assert!(error.contains(needed), "{error}");
    }
    let error =
        gptq.load(shape, None, (&device.clone().autodiff(), dtype)).expect_err("gradients").to_string();
    assert!(error.contains("a device without gradients was needed"), "{error}");
    let error = gptq.load(shape, None, (&device, FloatDType::F32)).expect_err("32 bits").to_string();
    assert!(error.contains("f32") && error.contains("bf16 or f16 was needed"), "{error}");

    let large = Written::default().halves("weight", &[1, 1], &[1e6], FloatDType::BF16).file();
    let file = SafeTensors::deserialize(&large).expect("a file");
    let place = (&device, FloatDType::F16);
    let error = Linear::load(1, 1, (&file, "model.up_proj"), place).expect_err("too large").to_string();
    assert!(error.contains("model.up_proj.weight has an element 999424, a number that f16 holds"), "{error}");
    let error = Linear::load(2, 1, (&file, "model.up_proj"), (&device, dtype)).expect_err("two").to_string();
    assert!(error.contains("model.up_proj.weight has shape [1, 1], [1, 2] was needed"), "{error}");
}

#[cfg(feature = "cuda")]
#[test]
fn layers_of_files_run_on_the_card() {
    if std::path::Path::new("/dev/nvidiactl").exists() {
        formats(&Device::cuda(0));
    } else {
        println!("no card: skipped");
    }
}
