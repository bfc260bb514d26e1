//! Linear layers whose weights have few bits: GPTQ's, AWQ's and MXFP4's files as they are.

use candle_core::{DType, Device, Error, Result, Shape, Tensor, bail};
use candle_nn::{Module, VarBuilder};
use falchion::collective::Format;
use falchion::kernel::AnyGemm;
use falchion_core::{
    Activation, AlignedLines, FewBit, FewBitMemory, FewBits, Layer, Refusal, Stored, Tensors, machine,
    missing,
};

use crate::operation::{Of, Operation};
use crate::plain::{KEPT, Kept, Known, Owned, Part, address};

/// A linear layer whose weights have few bits and are scaled per group of inputs, `y = activation(x * wᵀ + b)` in one kernel. Inputs,
/// outputs and the bias have the layer's type, `bf16` or `f16`. Use it for inference: it has no gradient.
#[derive(Clone, Debug)]
pub struct FewBitLinear {
    op: Op,
    /// The order of inputs in the weights, if it is not theirs.
    order: Option<Tensor>,
}

#[derive(Clone, Debug)]
struct Op {
    what: FewBit,
    units: Tensor,
    scales: Option<Tensor>,
    zeros: Option<Tensor>,
    bias: Option<Tensor>,
}

/// The bytes of a tensor of whole numbers or of floats, in the host's memory.
fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let flat = tensor.to_device(&Device::Cpu)?.flatten_all()?;
    Ok(match flat.dtype() {
        DType::U8 => flat.to_vec1::<u8>()?,
        DType::F8E4M3 => flat.to_vec1::<float8::F8E4M3>()?.into_iter().map(|code| code.to_bits()).collect(),
        DType::U32 => flat.to_vec1::<u32>()?.into_iter().flat_map(u32::to_le_bytes).collect(),
        DType::I32 => flat.to_vec1::<i32>()?.into_iter().flat_map(i32::to_le_bytes).collect(),
        DType::I64 => flat.to_vec1::<i64>()?.into_iter().flat_map(|x| (x as i32).to_le_bytes()).collect(),
        DType::F32 => flat.to_vec1::<f32>()?.into_iter().flat_map(f32::to_le_bytes).collect(),
        DType::BF16 => flat.to_vec1::<half::bf16>()?.into_iter().flat_map(half::bf16::to_le_bytes).collect(),
        DType::F16 => flat.to_vec1::<half::f16>()?.into_iter().flat_map(half::f16::to_le_bytes).collect(),
        other => bail!("a tensor of weights is {other:?}, whole numbers or floats were needed"),
    })
}

fn format_of(dtype: DType) -> Result<Format> {
    match dtype {
        DType::BF16 => Ok(Format::Bf16),
        DType::F16 => Ok(Format::F16),
        other => bail!("the layer's type is {other:?}, bf16 or f16 was needed"),
    }
}

/// The type of a format in files.
fn dtype_of(format: Format) -> core::result::Result<DType, Refusal> {
    match format {
        Format::S32 => Ok(DType::I32),
        Format::U8 => Ok(DType::U8),
        Format::E4m3 => Ok(DType::F8E4M3),
        Format::Bf16 => Ok(DType::BF16),
        Format::F16 => Ok(DType::F16),
        Format::F32 => Ok(DType::F32),
        other => Err(Refusal::Internal(format!("candle has no type for {other}"))),
    }
}

fn number(extent: usize) -> Result<u32> {
    u32::try_from(extent).map_err(Error::wrap)
}

/// A file's tensor in the host's memory.
fn stored(name: String, tensor: &Tensor) -> core::result::Result<Stored<'static>, Refusal> {
    let bytes = bytes(tensor).map_err(|error| Refusal::Invalid(format!("{name}: {error}")))?;
    Ok(Stored { name, shape: tensor.dims().to_vec(), bytes: bytes.into() })
}

/// A layer in a file, read by candle, which converts types.
struct File<'a>(&'a VarBuilder<'a>);

impl Tensors for File<'_> {
    fn name(&self, name: &str) -> String {
        match self.0.prefix() {
            prefix if prefix.is_empty() => name.to_owned(),
            prefix => format!("{prefix}.{name}"),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_tensor(name)
    }

    fn read(&self, name: &str, format: Format) -> core::result::Result<Stored<'_>, Refusal> {
        let whole = self.name(name);
        if !self.has(name) {
            return Err(missing(&whole, format));
        }
        let tensor = self.0.get_unchecked_dtype(name, dtype_of(format)?);
        stored(whole, &tensor.map_err(|error| Refusal::Invalid(error.to_string()))?)
    }
}

/// A layer's tensors by name.
struct Named<'a>(&'a [(&'static str, &'a Tensor)]);

impl Tensors for Named<'_> {
    fn name(&self, name: &str) -> String {
        name.to_owned()
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == name)
    }

    fn read(&self, name: &str, format: Format) -> core::result::Result<Stored<'_>, Refusal> {
        let Some((_, tensor)) = self.0.iter().find(|(known, _)| *known == name) else {
            return Err(missing(name, format));
        };
        let (found, needed) = (tensor.dtype(), dtype_of(format)?);
        let wide = |dtype: DType| dtype.is_float() && dtype.size_in_bytes() > 1;
        let tensor = match needed {
            _ if wide(found) && wide(needed) => tensor.to_dtype(needed),
            DType::I32 if matches!(found, DType::I32 | DType::U32 | DType::I64) => Ok((*tensor).clone()),
            _ if found == needed => Ok((*tensor).clone()),
            _ => {
                let words = format!("{name} has elements of {found:?}, {needed:?} was needed");
                return Err(Refusal::Invalid(words));
            }
        };
        stored(name.to_owned(), &tensor.map_err(|error| Refusal::Invalid(error.to_string()))?)
    }
}

impl FewBitLinear {
    fn of(layer: Layer, bias: Option<Tensor>, device: &Device) -> Result<Self> {
        let Layer { weights, .. } = layer;
        let (what, dtype) =
            (FewBit::of(&weights, bias.is_some()), dtype_of(weights.format).map_err(Error::wrap)?);
        let on = |bytes: Vec<u8>| {
            let count = bytes.len();
            Tensor::from_vec(bytes, count, device)
        };
        let held =
            |AlignedLines { bytes, .. }: AlignedLines| (!bytes.is_empty()).then(|| on(bytes)).transpose();
        let order = weights.order.map(|order| {
            let count = order.len();
            Tensor::from_vec(order, count, device)
        });
        let bias = bias.map(|bias| bias.to_dtype(dtype)?.to_device(device)?.contiguous());
        let (scales, zeros) = (held(weights.scales)?, held(weights.zeros)?);
        let op = Op { what, units: on(weights.units)?, scales, zeros, bias: bias.transpose()? };
        Ok(Self { op, order: order.transpose()? })
    }

    /// A layer of given tensors.
    fn named(
        bits: FewBits,
        dtype: DType,
        shape: [usize; 2],
        tensors: &[(&'static str, &Tensor)],
        bias: Option<Tensor>,
    ) -> Result<Self> {
        let all: Vec<_> = tensors.iter().copied().chain(bias.as_ref().map(|bias| ("bias", bias))).collect();
        let layer = Layer::read(bits, format_of(dtype)?, shape, &Named(&all)).map_err(Error::wrap)?;
        Self::of(layer, bias, tensors[0].1.device())
    }

    /// A layer of the tensors of a GPTQ file: `qweight` `(in * bits / 32, out)`, `scales` `(groups, out)`, `qzeros` `(groups, out * bits /
    /// 32)`, and `g_idx` `(in)` if it has one. `v2` says that zero points are stored as they are. The layer has the type of `scales`.
    ///
    /// # Errors
    /// A shape or a type that does not fit; groups of unequal size; an error of candle.
    pub fn gptq(
        [qweight, scales, qzeros]: [&Tensor; 3],
        g_idx: Option<&Tensor>,
        (bits, v2): (usize, bool),
        bias: Option<Tensor>,
    ) -> Result<Self> {
        let (lines, n) = qweight.dims2()?;
        let shape = [n, lines * 32 / bits.max(1)];
        let all = [("qweight", qweight), ("scales", scales), ("qzeros", qzeros)];
        let all: Vec<_> = all.into_iter().chain(g_idx.map(|index| ("g_idx", index))).collect();
        Self::named(FewBits::Gptq { v2 }, scales.dtype(), shape, &all, bias)
    }

    /// A layer of the tensors of an AWQ file: `qweight` `(in, out / 8)`, `scales` `(groups, out)`, `qzeros` `(groups, out / 8)`. The layer
    /// has the type of `scales`.
    ///
    /// # Errors
    /// A shape or a type that does not fit; an error of candle.
    pub fn awq([qweight, scales, qzeros]: [&Tensor; 3], bias: Option<Tensor>) -> Result<Self> {
        let (k, columns) = qweight.dims2()?;
        let all = [("qweight", qweight), ("scales", scales), ("qzeros", qzeros)];
        Self::named(FewBits::Awq, scales.dtype(), [columns * 8, k], &all, bias)
    }

    /// A layer in MXFP4: `blocks`, `(out, in / 2)` or `(out, in / 32, 16)` bytes of two codes each, and `scales`, `(out, in / 32)` bytes
    /// that mean `2^(e - 127)`. `dtype` is the layer's type, `BF16`.
    ///
    /// # Errors
    /// A shape or a type that does not fit; an error of candle.
    pub fn mxfp4([blocks, scales]: [&Tensor; 2], dtype: DType, bias: Option<Tensor>) -> Result<Self> {
        let (n, pairs) = blocks.flatten_from(1)?.dims2()?;
        Self::named(FewBits::Mxfp4, dtype, [n, pairs * 2], &[("blocks", blocks), ("scales", scales)], bias)
    }

    /// A layer of codes `(out, in)` in `F8E4M3` and their scales `(ceil(out / 128), ceil(in / 128))`. `dtype` is the layer's type, to which
    /// the scales are rounded.
    ///
    /// # Errors
    /// A shape or a type that does not fit; an error of candle.
    pub fn fp8([weight, scales]: [&Tensor; 2], dtype: DType, bias: Option<Tensor>) -> Result<Self> {
        let all = [("weight", weight), ("weight_scale_inv", scales)];
        Self::named(FewBits::Fp8, dtype, weight.dims2()?.into(), &all, bias)
    }

    /// Reads a layer from a file, by the names that the file's tool gives its tensors, in the type and on the device of `vb`. `bits` says
    /// how they are stored; with `None` their names and extents say it ([`FewBits::found`]).
    ///
    /// # Errors
    /// A tensor that is missing or does not fit; an error of candle.
    pub fn load(
        inputs: usize,
        outputs: usize,
        bits: impl Into<Option<FewBits>>,
        vb: &VarBuilder<'_>,
    ) -> Result<Self> {
        let file = File(vb);
        let bits = bits.into().map_or_else(|| FewBits::found(&file), Ok).map_err(Error::wrap)?;
        let layer =
            Layer::read(bits, format_of(vb.dtype())?, [outputs, inputs], &file).map_err(Error::wrap)?;
        let bias = vb.contains_tensor("bias").then(|| vb.get(outputs, "bias")).transpose()?;
        Self::of(layer, bias, vb.device())
    }

    /// Sets the activation.
    #[must_use]
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { op: Op { what: FewBit { activation, ..self.op.what }, ..self.op }, ..self }
    }
}

impl Module for FewBitLinear {
    /// Maps `x` of shape `(.., in)` to `(.., out)`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [n, k] = self.op.what.shape.map(|extent| extent as usize);
        let Some((_, lead)) = x.dims().split_last().filter(|(last, _)| **last == k) else {
            bail!("x has shape {:?}, a layer of {k} inputs takes (.., {k})", x.dims());
        };
        let x = x.reshape((lead.iter().product::<usize>(), k))?;
        let x = match &self.order {
            Some(order) => x.index_select(order, 1)?,
            // A view at an odd place is copied.
            None if x.layout().start_offset() % 8 == 0 => x.contiguous()?,
            None => x.copy()?,
        };
        x.apply_op1_no_bwd(&Of(self.op.clone()))?.reshape([lead, &[n]].concat())
    }
}

impl Op {
    /// `offsets` is the address of where each expert's rows begin.
    fn multiply(&self, (x, of_x): Part<'_>, offsets: u64) -> Result<(Owned, Shape)> {
        let what = &self.what;
        if x.format("x")? != what.format {
            bail!("x is {:?}, the layer's type {} was needed", x.dtype(), what.format);
        }
        let (m, _) = of_x.shape().dims2()?;
        let n = what.shape[0] as usize;
        // Experts may not have all rows.
        let mut d = if what.experts > 0 { x.zeros(x.dtype(), m * n) } else { x.room(x.dtype(), m * n) }?;
        if m == 0 {
            return Ok((d, (m, n).into()));
        }
        static ALL: Known<(Option<usize>, u32, FewBit), AnyGemm> = Known::new(KEPT);
        let rows = number(m)?;
        let made = |_: &_| -> Result<_> {
            let machine = machine(x.card()).map_err(Error::wrap)?;
            what.kernel(rows, &machine, x.card()).map(Kept::new).map_err(Error::wrap)
        };
        let kernel = ALL.get((x.card(), rows, *what), made)?;
        let at =
            |tensor: &Option<Tensor>| tensor.as_ref().map_or(Ok(0), |tensor| address("the layer", tensor, x));
        let memory = FewBitMemory {
            x: x.address(of_x),
            units: address("the layer", &self.units, x)?,
            lines: [at(&self.scales)?, at(&self.zeros)?],
            bias: at(&self.bias)?,
            offsets,
            d: d.address(),
        };
        let call = what.call_of(kernel.kernel(), rows, memory);
        #[allow(unsafe_code, reason = "the kernel reads and writes the tensors' memory")]
        // SAFETY: the layer's tensors have the sizes that kernels need, and the result has the elements of its shape.
        unsafe { kernel.run(x, call) }?;
        Ok((d, (m, n).into()))
    }
}

impl Operation<1> for Op {
    const NAME: &'static str = "falchion-few-bit-linear";

    fn run(&self, [x]: [Part<'_>; 1]) -> Result<(Owned, Shape)> {
        self.multiply(x, 0)
    }
}

impl Operation<2> for Op {
    const NAME: &'static str = "falchion-few-bit-experts";

    fn run(&self, [x, (offsets, of_offsets)]: [Part<'_>; 2]) -> Result<(Owned, Shape)> {
        self.multiply(x, offsets.address(of_offsets))
    }
}

/// Experts with weights of few bits, all in one launch: rows sorted by expert, as [`experts`](crate::experts) takes them.
///
/// ```
/// use candle_core::{DType, Device, Tensor};
/// use falchion_candle::{FewBitExperts, FewBitLinear};
///
/// let blocks = Tensor::zeros((2, 48, 32), DType::U8, &Device::Cpu)?; // two experts of 64 inputs and 48 outputs, in MXFP4
/// let scales = Tensor::full(127u8, (2, 48, 2), &Device::Cpu)?;
/// let layers = (0..2).map(|i| FewBitLinear::mxfp4([&blocks.get(i)?, &scales.get(i)?], DType::BF16, None));
/// let experts = FewBitExperts::new(&layers.collect::<candle_core::Result<Vec<_>>>()?)?;
///
/// let offsets = Tensor::new(&[0u32, 3, 5], &Device::Cpu)?;
/// let y = experts.forward(&Tensor::zeros((5, 64), DType::BF16, &Device::Cpu)?, &offsets)?;
/// assert_eq!(y.dims(), [5, 48]);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FewBitExperts(Op);

impl FewBitExperts {
    /// Experts of layers with the same shape, type and bits, with a bias or all without, and whose groups of inputs follow each other.
    ///
    /// # Errors
    /// No layer, or one that is not as the first; an error of candle.
    pub fn new(layers: &[FewBitLinear]) -> Result<Self> {
        let Some(first) = layers.first().map(|layer| &layer.op) else {
            bail!("there is no layer, one per expert was needed");
        };
        let same = |layer: &FewBitLinear| layer.order.is_none() && layer.op.what == first.what;
        if let Some(i) = layers.iter().position(|layer| !same(layer)) {
            bail!(
                "layer {i} has another shape, type, code, group, bias or activation than the first, or mixed groups: the same was needed"
            );
        }
        let all = |part: fn(&Op) -> Option<&Tensor>| {
            let parts: Vec<&Tensor> = layers.iter().filter_map(|layer| part(&layer.op)).collect();
            if parts.is_empty() { Ok(None) } else { Tensor::cat(&parts, 0).map(Some) }
        };
        let scales = all(|op| op.scales.as_ref())?;
        let zeros = all(|op| op.zeros.as_ref())?;
        let bias = all(|op| op.bias.as_ref())?;
        let Some(units) = all(|op| Some(&op.units))? else {
            bail!("there is no layer, one per expert was needed")
        };
        let what = FewBit { experts: number(layers.len())?, ..first.what };
        Ok(Self(Op { what, units, scales, zeros, bias }))
    }

    /// Maps `x` of shape `(rows, in)` to `(rows, out)`. Expert `i` has the rows from `offsets[i]` to `offsets[i + 1]`, `u32`. Rows that
    /// are in no group are zero.
    ///
    /// # Errors
    /// A shape or a type that does not fit; an error of candle.
    pub fn forward(&self, x: &Tensor, offsets: &Tensor) -> Result<Tensor> {
        let (k, needed) = (self.0.what.shape[1] as usize, self.0.what.experts as usize + 1);
        if x.rank() != 2 || x.dim(1)? != k || offsets.dtype() != DType::U32 || offsets.dims() != [needed] {
            bail!(
                "x has shape {:?} and offsets {:?} of {:?}: (rows, {k}) and ({needed}) of u32 were needed",
                x.dims(),
                offsets.dims(),
                offsets.dtype()
            );
        }
        let x = if x.layout().start_offset().is_multiple_of(8) { x.contiguous()? } else { x.copy()? };
        x.apply_op2_no_bwd(&offsets.contiguous()?, &Of(self.0.clone()))
    }
}
