//! Linear layers from files: which tensors a layer has under which names, with which extents.

use falchion::collective::Format;

use crate::file::{Stored, Tensors};
use crate::refusal::Refusal;
use crate::weights::{WeightGroups, Weights};

/// A file's way of storing weights in few bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FewBits {
    /// GPTQ: `qweight` `(in * bits / 32, out)`, `qzeros` `(groups, out * bits / 32)`, `scales` `(groups, out)` and, where groups are mixed
    /// (`desc_act`), `g_idx` `(in)`. Codes have 4 or 8 bits.
    Gptq {
        /// Whether zero points are stored as they are (`checkpoint_format` is `gptq_v2`), not less one.
        v2: bool,
    },
    /// AWQ: `qweight` `(in, out / 8)`, `qzeros` `(groups, out / 8)` and `scales` `(groups, out)`.
    Awq,
    /// DeepSeek's and Qwen's fp8: `weight` `(out, in)` in `F8E4M3`, and `weight_scale_inv` with a scale per 128 x 128. Inputs stay in 16
    /// bits.
    Fp8,
    /// MXFP4: `blocks`, or `weight`, of bytes of two codes each, `(out, in / 2)` or `(out, in / 32, 16)`, and `scales`, or `weight_scale`,
    /// `(out, in / 32)` bytes that mean `2^(e - 127)`. Inputs and outputs are `bf16`.
    Mxfp4,
}

/// A layer's tensors, prepared for kernels.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The weights.
    pub weights: Weights,
    /// The bias, one element per output in the layer's format.
    pub bias: Option<Vec<u8>>,
}

impl FewBits {
    /// The way in which a layer's tensors are stored, by their names, and AWQ's and GPTQ's by their extents. What no tensor says, whether
    /// GPTQ's zero points are stored less one, is assumed: they are.
    ///
    /// # Errors
    /// There are no such tensors.
    pub fn found(tensors: &impl Tensors) -> Result<Self, Refusal> {
        if tensors.has("qweight") && tensors.has("scales") {
            let columns = |stored: &Stored<'_>| stored.shape.last().copied();
            let [codes, scales] =
                [tensors.read("qweight", Format::S32)?, tensors.read("scales", Format::F32)?];
            let awq = columns(&codes) != columns(&scales);
            return Ok(if awq { Self::Awq } else { Self::Gptq { v2: false } });
        }
        if tensors.has("weight_scale_inv") {
            return Ok(Self::Fp8);
        }
        if tensors.has("blocks") || tensors.has("weight_scale") {
            return Ok(Self::Mxfp4);
        }
        Err(Refusal::Invalid(format!(
            "there are no tensors {}, {} or {}: those of GPTQ or AWQ, of fp8 with a scale per 128 x 128, or of MXFP4 were needed",
            tensors.name("qweight"),
            tensors.name("weight_scale_inv"),
            tensors.name("blocks")
        )))
    }
}

impl Layer {
    /// Reads a layer of `[outputs, inputs]` whose inputs and outputs have a format.
    ///
    /// # Errors
    /// A tensor that is missing, has another type or other extents; weights that kernels do not support.
    pub fn read(
        bits: FewBits,
        format: Format,
        shape: [usize; 2],
        tensors: &impl Tensors,
    ) -> Result<Self, Refusal> {
        let weights = match bits {
            FewBits::Gptq { v2 } => gptq(v2, format, shape, tensors),
            FewBits::Awq => awq(format, shape, tensors),
            FewBits::Fp8 => fp8(format, shape, tensors),
            FewBits::Mxfp4 => mxfp4(format, shape, tensors),
        }?;
        Ok(Self { weights, bias: bias(format, shape[0], tensors)?.map(|bias| bias.bytes.into_owned()) })
    }
}

/// The bias of a layer, if it has one.
///
/// # Errors
/// It has another type or other extents.
pub fn bias(format: Format, outputs: usize, tensors: &impl Tensors) -> Result<Option<Stored<'_>>, Refusal> {
    let bias = tensors.has("bias").then(|| tensors.read("bias", format)?.of(&[outputs]));
    bias.transpose()
}

/// Extents as kernels take them.
fn extents(shape: [usize; 2]) -> Result<[u32; 2], Refusal> {
    match shape.map(u32::try_from) {
        [Ok(outputs), Ok(inputs)] => Ok([outputs, inputs]),
        _ => {
            let words = format!("the layer has shape {shape:?}, extents below 2^32 were needed");
            Err(Refusal::Invalid(words))
        }
    }
}

/// Scales of groups, and their number.
fn scales(format: Format, outputs: usize, tensors: &impl Tensors) -> Result<(Stored<'_>, usize), Refusal> {
    let scales = tensors.read("scales", format)?;
    match *scales.shape {
        [groups, n] if n == outputs && groups > 0 => Ok((scales, groups)),
        _ => Err(scales.wrong(&format!("(groups, {outputs})"))),
    }
}

fn gptq(v2: bool, format: Format, [n, k]: [usize; 2], tensors: &impl Tensors) -> Result<Weights, Refusal> {
    let qweight = tensors.read("qweight", Format::S32)?;
    let lines = |bits: usize| [k * bits / 32, n];
    let Some(bits) = [4, 8].into_iter().find(|&bits| qweight.shape == lines(bits)) else {
        let words = format!("{:?} with 4 bits per code, or {:?} with 8,", lines(4), lines(8));
        return Err(qweight.wrong(&words));
    };
    let (scales, groups) = scales(format, n, tensors)?;
    let qzeros = tensors.read("qzeros", Format::S32)?.of(&[groups, n * bits / 32])?;
    let index = tensors.has("g_idx").then(|| tensors.read("g_idx", Format::S32)?.of(&[k])).transpose()?;
    let shape = extents([n, k])?;
    let groups = WeightGroups { count: groups as u32, index: index.as_ref().map(|index| &*index.bytes) };
    let how = (bits as u32, u16::from(!v2));
    Weights::gptq(how, format, shape, groups, [&qweight.bytes, &scales.bytes, &qzeros.bytes])
}

fn awq(format: Format, [n, k]: [usize; 2], tensors: &impl Tensors) -> Result<Weights, Refusal> {
    let qweight = tensors.read("qweight", Format::S32)?.of(&[k, n / 8])?;
    let (scales, groups) = scales(format, n, tensors)?;
    let qzeros = tensors.read("qzeros", Format::S32)?.of(&[groups, n / 8])?;
    Weights::awq(format, extents([n, k])?, groups as u32, [&qweight.bytes, &scales.bytes, &qzeros.bytes])
}

fn fp8(format: Format, [n, k]: [usize; 2], tensors: &impl Tensors) -> Result<Weights, Refusal> {
    let weight = tensors.read("weight", Format::E4m3)?.of(&[n, k])?;
    let blocks = [n, k].map(|extent| extent.div_ceil(128));
    let scales = tensors.read("weight_scale_inv", Format::F32)?.of(&blocks)?;
    let scales: Vec<f32> =
        scales.bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    Weights::fp8(format, extents([n, k])?, &weight.bytes, &scales)
}

fn mxfp4(format: Format, [n, k]: [usize; 2], tensors: &impl Tensors) -> Result<Weights, Refusal> {
    let known =
        |names: [&'static str; 2]| names[usize::from(!tensors.has(names[0]) && tensors.has(names[1]))];
    let blocks = tensors.read(known(["blocks", "weight"]), Format::U8)?;
    if blocks.shape != [n, k / 2] && blocks.shape != [n, k / 32, 16] {
        return Err(blocks.wrong(&format!("{:?} or {:?}", [n, k / 2], [n, k / 32, 16])));
    }
    let scales = tensors.read(known(["scales", "weight_scale"]), Format::U8)?.of(&[n, k.div_ceil(32)])?;
    Weights::mxfp4(format, extents([n, k])?, [&blocks.bytes, &scales.bytes])
}
