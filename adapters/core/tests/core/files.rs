//! Layers from tensors by name.

use std::borrow::Cow;
use std::collections::BTreeMap;

use falchion::collective::{Code, Format};
use falchion_core::{FewBits, Layer, Refusal, Stored, Tensors, bias, missing};

use crate::{bytes, refused, values};

/// Tensors of zeros, by name: format and extents.
#[derive(Clone)]
struct Zeros(BTreeMap<&'static str, (Format, Vec<usize>)>);

impl Zeros {
    fn new(all: &[(&'static str, Format, &[usize])]) -> Self {
        Self(all.iter().map(|&(name, format, shape)| (name, (format, shape.to_vec()))).collect())
    }
}

impl Tensors for Zeros {
    fn name(&self, name: &str) -> String {
        format!("layer.{name}")
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Scales may be asked for in any format.
    fn read(&self, name: &str, format: Format) -> Result<Stored<'_>, Refusal> {
        let (of, shape) = self.0.get(name).ok_or_else(|| missing(&self.name(name), format))?;
        if *of != format && name != "scales" {
            return Err(Refusal::Invalid(format!("{name} has elements of {of}, {format} was needed")));
        }
        let count = shape.iter().product::<usize>() * format.bytes() as usize;
        Ok(Stored { name: self.name(name), shape: shape.clone(), bytes: Cow::Owned(vec![0; count]) })
    }
}

const N: usize = 64;
const K: usize = 256;

/// Each way of storing 64 rows of 256, and how it is found.
fn ways() -> Vec<(FewBits, Code, u32, Zeros)> {
    use Format::{Bf16, E4m3, F32, S32, U8};
    vec![
        (
            FewBits::Gptq { v2: false },
            Code::U4,
            128,
            Zeros::new(&[("qweight", S32, &[32, 64]), ("scales", Bf16, &[2, 64]), ("qzeros", S32, &[2, 8])]),
        ),
        (
            FewBits::Gptq { v2: false },
            Code::U8,
            64,
            Zeros::new(&[("qweight", S32, &[64, 64]), ("scales", Bf16, &[4, 64]), ("qzeros", S32, &[4, 16])]),
        ),
        (
            FewBits::Awq,
            Code::U4,
            128,
            Zeros::new(&[("qweight", S32, &[256, 8]), ("scales", Bf16, &[2, 64]), ("qzeros", S32, &[2, 8])]),
        ),
        (
            FewBits::Fp8,
            Code::E4m3,
            128,
            Zeros::new(&[("weight", E4m3, &[64, 256]), ("weight_scale_inv", F32, &[1, 2])]),
        ),
        (FewBits::Mxfp4, Code::E2m1, 32, Zeros::new(&[("blocks", U8, &[64, 128]), ("scales", U8, &[64, 8])])),
        (
            FewBits::Mxfp4,
            Code::E2m1,
            32,
            Zeros::new(&[("weight", U8, &[64, 8, 16]), ("weight_scale", U8, &[64, 8])]),
        ),
    ]
}

#[test]
fn layers_are_found_and_read() {
    for (bits, code, group, tensors) in ways() {
        assert_eq!(FewBits::found(&tensors).ok(), Some(bits));
        let read = |tensors: &Zeros| Layer::read(bits, Format::Bf16, [N, K], tensors);
        let layer = read(&tensors).unwrap_or_else(|error| panic!("{bits:?}: {error}"));
        let weights = &layer.weights;
        assert_eq!(
            (weights.spec.code, weights.spec.group, weights.shape),
            (code, group, [64, 256]),
            "{bits:?}"
        );
        assert!(layer.bias.is_none(), "{bits:?}");
        // Each tensor is needed, with its extents.
        for name in tensors.0.keys() {
            let mut without = tensors.clone();
            without.0.remove(name);
            let error = refused(read(&without));
            assert!(error.contains("there is no tensor layer."), "{bits:?} without {name}: {error}");
            let mut other = tensors.clone();
            other.0.entry(name).and_modify(|(_, shape)| shape[0] += 1);
            let error = refused(read(&other));
            assert!(error.contains("layer.") && error.contains("was needed"), "{bits:?}, {name}: {error}");
        }
        let mut biased = tensors.clone();
        biased.0.insert("bias", (Format::Bf16, vec![N]));
        assert_eq!(read(&biased).expect("a layer").bias, Some(vec![0; 2 * N]), "{bits:?}");
        biased.0.insert("bias", (Format::Bf16, vec![N + 1]));
        assert_eq!(refused(read(&biased)), "layer.bias has shape [65], [64] was needed");
    }
    let none = Zeros::new(&[("weight", Format::Bf16, &[N, K])]);
    let error = refused(FewBits::found(&none));
    assert!(
        error.starts_with("there are no tensors layer.qweight, layer.weight_scale_inv or layer.blocks"),
        "{error}"
    );
    assert!(matches!(bias(Format::Bf16, N, &none), Ok(None)));
    // Codes without scales are none of GPTQ.
    FewBits::found(&Zeros::new(&[("qweight", Format::S32, &[32, 64])])).expect_err("no scales");
}

/// GPTQ's groups by place, and zero points as they are.
#[test]
fn gptq_says_more() {
    let (bits, _, _, mut tensors) = ways().swap_remove(0);
    tensors.0.insert("g_idx", (Format::S32, vec![K]));
    // All places are in group 0: the two groups are not of equal size.
    Layer::read(bits, Format::Bf16, [N, K], &tensors).expect("an order that is sorted");
    tensors.0.insert("g_idx", (Format::S32, vec![K + 1]));
    let error = refused(Layer::read(bits, Format::Bf16, [N, K], &tensors));
    assert_eq!(error, "layer.g_idx has shape [257], [256] was needed");
    tensors.0.remove("g_idx");
    for (v2, zero) in [(false, 1.0), (true, 0.0)] {
        let layer = Layer::read(FewBits::Gptq { v2 }, Format::Bf16, [N, K], &tensors).expect("a layer");
        assert!(
            values(Format::Bf16, &layer.weights.zeros.bytes).iter().all(|&found| found == zero),
            "v2 {v2}"
        );
    }
}

/// A file's names begin with a prefix and a dot or an underscore; floats are rounded to the format that is asked for.
#[cfg(feature = "safetensors")]
#[test]
fn safetensors_by_prefix() {
    use falchion_core::Prefixed;
    use safetensors::SafeTensors;
    use safetensors::tensor::{Dtype, TensorView, serialize};

    let floats = [1.0, -2.5, 3.0e38, f64::INFINITY];
    let [wide, half] = [bytes(Format::F32, &floats), bytes(Format::F16, &floats[..2])];
    let view =
        |of: Dtype, shape: &[usize], bytes| TensorView::new(of, shape.to_vec(), bytes).expect("a tensor");
    let file = serialize(
        [
            ("a.b.weight", view(Dtype::F32, &[2, 2], &wide)),
            ("a.b_scales", view(Dtype::F16, &[2], &half)),
            ("top", view(Dtype::U8, &[2], &[7, 9])),
            ("a.b.words", view(Dtype::I32, &[1], &[1, 2, 3, 4])),
        ],
        None,
    )
    .expect("a file");
    let file = SafeTensors::deserialize(&file).expect("a file");
    let of = |prefix| Prefixed { file: &file, prefix };
    for (prefix, name, whole, has) in [
        ("a.b", "weight", "a.b.weight", true),
        ("a.b.", "weight", "a.b.weight", true),
        ("a.b", "scales", "a.b_scales", true),
        ("", "top", "top", true),
        ("a.b", "top", "a.b.top", false),
        ("", "weight", "weight", false),
    ] {
        assert_eq!((of(prefix).name(name), of(prefix).has(name)), (whole.to_owned(), has), "{prefix} {name}");
    }
    let layer = of("a.b");
    let same = layer.read("weight", Format::F32).expect("as it is");
    assert_eq!((&*same.name, &*same.shape, &*same.bytes), ("a.b.weight", &[2, 2][..], &*wide));
    let rounded = layer.read("weight", Format::Bf16).expect("rounded");
    assert_eq!(values(Format::Bf16, &rounded.bytes)[..2], floats[..2]);
    assert_eq!(values(Format::Bf16, &rounded.bytes)[3], f64::INFINITY);
    let longer = layer.read("scales", Format::F32).expect("rounded");
    assert_eq!(values(Format::F32, &longer.bytes), floats[..2]);
    assert_eq!(&*of("").read("top", Format::U8).expect("bytes").bytes, [7, 9]);
    assert_eq!(&*layer.read("words", Format::S32).expect("words").bytes, [1, 2, 3, 4]);
    for (found, words) in [
        (layer.read("bias", Format::F32), "there is no tensor a.b.bias, one of f32 was needed"),
        (layer.read("weight", Format::E4m3), "a.b.weight has elements of F32, e4m3 was needed"),
        (layer.read("weight", Format::S32), "a.b.weight has elements of F32, s32 was needed"),
        (layer.read("words", Format::F32), "a.b.words has elements of I32, f32 was needed"),
        (of("").read("top", Format::F16), "top has elements of U8, f16 was needed"),
        (layer.read("scales", Format::E4m3), "a.b_scales has elements of F16, e4m3 was needed"),
    ] {
        assert_eq!(refused(found), words);
    }
    let large = refused(layer.read("weight", Format::F16));
    assert!(
        large.starts_with("a.b.weight has an element 3000")
            && large.ends_with("a number that f16 holds was needed"),
        "{large}"
    );
}
