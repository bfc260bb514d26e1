//! Linear layers whose weights have few bits: GPTQ's, AWQ's and MXFP4's files as they are.

use std::sync::{Arc, Mutex};

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, DType, Device, Error, Layout, Result, Shape, Tensor, bail,
};
use candle_nn::{Module, VarBuilder};
use falchion::collective::{
    Format, Formula, GroupScales, Input, LinearArguments, MatrixRef, WeightsSpec, weights,
};
use falchion::cute_rs::atom::Major;
use falchion::kernel::{Call, GemmProblem, GroupedProblem, Request, Types};
use falchion_core::{Epilogue, Gemm, Groups, Lines, Weights, aligned, formula};

use crate::Activation;
use crate::plain::{Kept, Known, Owned, Stored, address, known};

/// A file's way of storing weights in few bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FewBits {
    /// GPTQ: `qweight`, `qzeros`, `scales` and, where groups are mixed (`desc_act`), `g_idx`. Codes have 4 or 8 bits.
    Gptq {
        /// Bits per code.
        bits: usize,
        /// Inputs of a group; 0 is all of them.
        group: usize,
        /// Whether zero points are stored as they are (`checkpoint_format` is `gptq_v2`), not less one.
        v2: bool,
    },
    /// AWQ: `qweight`, `qzeros` and `scales`.
    Awq {
        /// Inputs of a group; 0 is all of them.
        group: usize,
    },
    /// DeepSeek's and Qwen's fp8: `weight` in `F8E4M3`, and `weight_scale_inv` with a scale per 128 x 128. Inputs stay in 16 bits;
    /// [`ScaledLinear`](crate::ScaledLinear) rounds them.
    Fp8,
}

/// A linear layer whose weights have few bits and are scaled per group of inputs, `y = activation(x * wᵀ + b)` in one kernel. Inputs,
/// outputs and the bias have the layer's type, `bf16` or `f16`. Use it for inference: it has no gradient.
#[derive(Clone, Debug)]
pub struct FewBitLinear {
    op: Op,
    /// The order of inputs in the weights, if it is not theirs.
    order: Option<Tensor>,
}

/// A line's elements from one line to the next, and all lines.
type Held = Option<(u64, Tensor)>;

#[derive(Clone, Debug)]
struct Op {
    spec: WeightsSpec,
    format: Format,
    /// Outputs and inputs.
    shape: [u32; 2],
    /// Number of experts; 0 is a layer.
    experts: u32,
    units: Tensor,
    scales: Held,
    zeros: Held,
    bias: Option<Tensor>,
    activation: Activation,
}

/// The bytes of a tensor of whole numbers, or of 16-bit floats, in the host's memory.
fn bytes(tensor: &Tensor) -> Result<Vec<u8>> {
    let flat = tensor.to_device(&Device::Cpu)?.flatten_all()?;
    Ok(match flat.dtype() {
        DType::U8 => flat.to_vec1::<u8>()?,
        DType::F8E4M3 => flat.to_vec1::<float8::F8E4M3>()?.into_iter().map(|code| code.to_bits()).collect(),
        DType::U32 => flat.to_vec1::<u32>()?.into_iter().flat_map(u32::to_le_bytes).collect(),
        DType::I32 => flat.to_vec1::<i32>()?.into_iter().flat_map(i32::to_le_bytes).collect(),
        DType::I64 => flat.to_vec1::<i64>()?.into_iter().flat_map(|x| (x as i32).to_le_bytes()).collect(),
        DType::BF16 => flat.to_vec1::<half::bf16>()?.into_iter().flat_map(half::bf16::to_le_bytes).collect(),
        DType::F16 => flat.to_vec1::<half::f16>()?.into_iter().flat_map(half::f16::to_le_bytes).collect(),
        other => bail!("a tensor of weights is {other:?}, whole numbers, bf16 or f16 were needed"),
    })
}

fn format_of(dtype: DType) -> Result<Format> {
    match dtype {
        DType::BF16 => Ok(Format::Bf16),
        DType::F16 => Ok(Format::F16),
        other => bail!("the layer's type is {other:?}, bf16 or f16 was needed"),
    }
}

fn number(extent: usize) -> Result<u32> {
    u32::try_from(extent).map_err(Error::wrap)
}

impl FewBitLinear {
    fn of(weights: Weights, bias: Option<Tensor>, device: &Device) -> Result<Self> {
        let Weights { spec, format, shape, units, scales, zeros, order } = weights;
        let on = |bytes: Vec<u8>| {
            let count = bytes.len();
            Tensor::from_vec(bytes, count, device)
        };
        let held = |Lines { pitch, bytes }: Lines, size: u32| -> Result<Held> {
            let ld = pitch as u64 / u64::from(size);
            if pitch == 0 { Ok(None) } else { Ok(Some((ld, on(bytes)?))) }
        };
        let order = order.map(|order| {
            let count = order.len();
            Tensor::from_vec(order, count, device)
        });
        if let Some(bias) = &bias
            && bias.dims() != [shape[0] as usize]
        {
            bail!("the bias has shape {:?}, ({}) was needed", bias.dims(), shape[0]);
        }
        let (scales, zeros) = (held(scales, spec.scale_bytes())?, held(zeros, 2)?);
        let activation = Activation::Identity;
        let op = Op { spec, format, shape, experts: 0, units: on(units)?, scales, zeros, bias, activation };
        Ok(Self { op, order: order.transpose()? })
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
        let shape = [number(n)?, number(lines * 32 / bits.max(1))?];
        let index = g_idx.map(bytes).transpose()?;
        let groups = Groups { count: number(scales.dim(0)?)?, index: index.as_deref() };
        let all = [bytes(qweight)?, bytes(scales)?, bytes(qzeros)?];
        let format = format_of(scales.dtype())?;
        let how = (number(bits)?, u16::from(!v2));
        let weights = Weights::gptq(how, format, shape, groups, all.each_ref().map(Vec::as_slice));
        Self::of(weights.map_err(Error::wrap)?, bias, qweight.device())
    }

    /// A layer of the tensors of an AWQ file: `qweight` `(in, out / 8)`, `scales` `(groups, out)`, `qzeros` `(groups, out / 8)`. The layer
    /// has the type of `scales`.
    ///
    /// # Errors
    /// A shape or a type that does not fit; an error of candle.
    pub fn awq([qweight, scales, qzeros]: [&Tensor; 3], bias: Option<Tensor>) -> Result<Self> {
        let (k, columns) = qweight.dims2()?;
        let all = [bytes(qweight)?, bytes(scales)?, bytes(qzeros)?];
        let shape = [number(columns * 8)?, number(k)?];
        let (format, groups) = (format_of(scales.dtype())?, number(scales.dim(0)?)?);
        let weights = Weights::awq(format, shape, groups, all.each_ref().map(Vec::as_slice));
        Self::of(weights.map_err(Error::wrap)?, bias, qweight.device())
    }

    /// A layer in MXFP4: `blocks`, `(out, in / 2)` or `(out, in / 32, 16)` bytes of two codes each, and `scales`, `(out, in / 32)` bytes
    /// that mean `2^(e - 127)`. `dtype` is the layer's type.
    ///
    /// # Errors
    /// A shape or a type that does not fit; an error of candle.
    pub fn mxfp4([blocks, scales]: [&Tensor; 2], dtype: DType, bias: Option<Tensor>) -> Result<Self> {
        let blocks = blocks.flatten_from(1)?;
        let (n, pairs) = blocks.dims2()?;
        let all = [bytes(&blocks)?, bytes(scales)?];
        let shape = [number(n)?, number(pairs * 2)?];
        let weights = Weights::mxfp4(format_of(dtype)?, shape, all.each_ref().map(Vec::as_slice));
        Self::of(weights.map_err(Error::wrap)?, bias, blocks.device())
    }

    /// A layer of codes `(out, in)` in `F8E4M3` and their scales `(ceil(out / 128), ceil(in / 128))`. `dtype` is the layer's type, to which
    /// the scales are rounded.
    ///
    /// # Errors
    /// A shape or a type that does not fit; an error of candle.
    pub fn fp8([weight, scales]: [&Tensor; 2], dtype: DType, bias: Option<Tensor>) -> Result<Self> {
        let (n, k) = weight.dims2()?;
        let scales = scales.to_device(&Device::Cpu)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        let weights = Weights::fp8(format_of(dtype)?, [number(n)?, number(k)?], &bytes(weight)?, &scales);
        Self::of(weights.map_err(Error::wrap)?, bias, weight.device())
    }

    /// Reads a layer from a file, by the names that the file's tool gives its tensors, in the type and on the device of `vb`.
    ///
    /// # Errors
    /// A tensor that is missing or does not fit; an error of candle.
    pub fn load(inputs: usize, outputs: usize, bits: FewBits, vb: &VarBuilder<'_>) -> Result<Self> {
        let get = |shape: &[usize], name: &str, dtype: DType| {
            vb.get_with_hints_dtype(shape, name, candle_nn::Init::default(), dtype)
        };
        let bias = vb.contains_tensor("bias").then(|| vb.get(outputs, "bias")).transpose()?;
        let group = match bits {
            FewBits::Gptq { group, .. } | FewBits::Awq { group } => group,
            FewBits::Fp8 => {
                let weight = get(&[outputs, inputs], "weight", DType::F8E4M3)?;
                let blocks = [outputs, inputs].map(|extent| extent.div_ceil(128));
                let scales = get(&blocks, "weight_scale_inv", DType::F32)?;
                return Self::fp8([&weight, &scales], vb.dtype(), bias);
            }
        };
        let groups = inputs.div_ceil(if group == 0 { inputs.max(1) } else { group });
        let scales = get(&[groups, outputs], "scales", vb.dtype())?;
        match bits {
            FewBits::Gptq { bits, v2, .. } => {
                let of_word = 32 / bits.max(1);
                let qweight = get(&[inputs / of_word, outputs], "qweight", DType::I32)?;
                let qzeros = get(&[groups, outputs / of_word], "qzeros", DType::I32)?;
                let known = vb.contains_tensor("g_idx");
                let g_idx = known.then(|| get(&[inputs], "g_idx", DType::I32)).transpose()?;
                Self::gptq([&qweight, &scales, &qzeros], g_idx.as_ref(), (bits, v2), bias)
            }
            FewBits::Awq { .. } | FewBits::Fp8 => {
                let qweight = get(&[inputs, outputs / 8], "qweight", DType::I32)?;
                let qzeros = get(&[groups, outputs / 8], "qzeros", DType::I32)?;
                Self::awq([&qweight, &scales, &qzeros], bias)
            }
        }
    }

    /// Sets the activation.
    #[must_use]
    pub fn with_activation(self, activation: Activation) -> Self {
        Self { op: Op { activation, ..self.op }, ..self }
    }
}

impl Module for FewBitLinear {
    /// Maps `x` of shape `(.., in)` to `(.., out)`.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let [n, k] = self.op.shape.map(|extent| extent as usize);
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
        x.apply_op1_no_bwd(&self.op)?.reshape([lead, &[n]].concat())
    }
}

impl Op {
    /// What follows the sums; `None` if nothing does.
    fn formula(&self) -> Result<Option<Formula>> {
        let sum = match (&self.bias, self.experts) {
            (None, _) => "acc",
            (Some(_), 0) => "acc + bias[n]",
            (Some(_), _) => "acc + bias[l,n]",
        };
        let text = match self.activation {
            Activation::Identity if self.bias.is_none() => return Ok(None),
            Activation::Identity => sum.to_owned(),
            Activation::Relu => format!("relu({sum})"),
            Activation::Gelu => format!("gelu({sum})"),
            Activation::Silu => format!("silu({sum})"),
        };
        formula(&text, self.format, Some(self.format)).map(Some).map_err(Error::wrap)
    }

    /// `offsets` is the address of where each expert's rows begin.
    fn run(&self, (x, of_x): (Stored<'_>, &Layout), offsets: u64) -> Result<(Owned, Shape)> {
        if x.format("x")? != self.format {
            bail!("x is {:?}, the layer's type {} was needed", x.dtype(), self.format);
        }
        let (m, _) = of_x.shape().dims2()?;
        let [n, k] = self.shape;
        let problem = GemmProblem { m: number(m)?, n, k };
        let types = Types::of(self.format).weights([None, Some(self.spec)]);
        let fusion = self.formula()?;
        // Those of experts follow each other.
        let every = |matrix: MatrixRef, lines: u32| match self.experts {
            0 | 1 => matrix,
            _ => matrix.every(u64::from(lines) * matrix.ld),
        };
        let lines = |held: &Held, at: &dyn Fn(&Tensor) -> Result<u64>| -> Result<MatrixRef> {
            let Some((ld, tensor)) = held else { return Ok(MatrixRef::NONE) };
            Ok(every(MatrixRef::new(at(tensor)?, *ld), k.div_ceil(self.spec.group.max(1))))
        };
        let products = |offsets| match self.experts {
            0 => GroupedProblem::One,
            count => GroupedProblem::GroupedContiguous { count, offsets },
        };
        let call = |[a, b, d, offsets]: [u64; 4],
                    at: &dyn Fn(&Tensor) -> Result<u64>|
         -> Result<Call<LinearArguments>> {
            let group_scales = self.scales.is_some().then(|| -> Result<GroupScales> {
                Ok(GroupScales { scales: lines(&self.scales, at)?, zeros: lines(&self.zeros, at)? })
            });
            Ok(Call {
                a: MatrixRef::new(a, k.into()),
                b: every(MatrixRef::new(b, weights::ld(self.spec.code, k)), n.next_multiple_of(64)),
                d: MatrixRef::new(d, n.into()),
                products: products(offsets),
                group_scales: group_scales.transpose()?,
                ..Call::of(problem)
            })
        };
        let somewhere = aligned(16);
        let request = Request {
            fusion,
            call: call([somewhere; 4], &|_| Ok(somewhere))?,
            ..Request::packed(types, [Major::K; 2], problem)
        };
        let kernel = kernel(&request, x)?;
        let count = m * n as usize;
        // Experts may not have all rows.
        let mut d = if self.experts > 0 { x.zeros(x.dtype(), count) } else { x.room(x.dtype(), count) }?;
        if m == 0 {
            return Ok((d, (m, n as usize).into()));
        }
        let at = |tensor: &Tensor| address("the layer", tensor, x);
        let addresses = [x.address(of_x), at(&self.units)?, d.address(), offsets];
        let epilogue = match fusion {
            None => Epilogue::Linear(LinearArguments::default()),
            Some(_) => {
                let bias = self.bias.as_ref().map(&at).transpose()?;
                let slots = Arc::clone(kernel.kernel().slots());
                let bias = bias.map(|address| match self.experts {
                    0 => Input::Address(address),
                    _ => Input::Each { address, ld: n.into(), stride: 2 * u64::from(n) },
                });
                let inputs = slots.iter().map(|_| bias).collect();
                Epilogue::Fused(slots, inputs, self.experts.max(1))
            }
        };
        let call = call(addresses, &at)?.with(epilogue);
        #[allow(unsafe_code, reason = "the kernel reads and writes the tensors' memory")]
        // SAFETY: the layer's tensors have the sizes that kernels need, and the result has the elements of its shape.
        unsafe { kernel.run(x, call) }?;
        Ok((d, (m, n as usize).into()))
    }
}

/// What a kernel is chosen for: the card, the extents, the number of experts, the types and the epilogue.
type Asked = (Option<usize>, GemmProblem, u32, Types, Option<Formula>);

/// The kernel for a request in a place.
fn kernel(request: &Request<'_>, place: Stored<'_>) -> Result<Arc<Kept<Gemm>>> {
    static ALL: Known<Asked, Gemm> = Mutex::new(None);
    let call = &request.call;
    let key = (place.card(), call.problem, call.products.count(), request.types, request.fusion);
    known(&ALL, key, |_| Gemm::new(request, None, &place.machine()?).map_err(Error::wrap))
}

impl CustomOp1 for Op {
    fn name(&self) -> &'static str {
        "falchion-few-bit-linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, of_x: &Layout) -> Result<(CpuStorage, Shape)> {
        let (d, shape) = self.run((Stored::Host(x), of_x), 0)?;
        Ok((d.host()?, shape))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, x: &CudaStorage, of_x: &Layout) -> Result<(CudaStorage, Shape)> {
        let (d, shape) = self.run((Stored::Card(x), of_x), 0)?;
        Ok((d.card()?, shape))
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
        let same = |layer: &FewBitLinear| {
            let Op { spec, format, shape, ref bias, activation, .. } = layer.op;
            let kind = (spec, format, shape, bias.is_some(), activation);
            layer.order.is_none()
                && kind == (first.spec, first.format, first.shape, first.bias.is_some(), first.activation)
        };
        if let Some(i) = layers.iter().position(|layer| !same(layer)) {
            bail!(
                "layer {i} has another shape, type, code, group, bias or activation than the first, or mixed groups: the same was needed"
            );
        }
        let all = |part: fn(&Op) -> Option<&Tensor>| {
            let parts: Vec<&Tensor> = layers.iter().filter_map(|layer| part(&layer.op)).collect();
            if parts.is_empty() { Ok(None) } else { Tensor::cat(&parts, 0).map(Some) }
        };
        let held = |lines: &Held, part| {
            Ok::<_, Error>(all(part)?.zip(lines.as_ref()).map(|(of, (ld, _))| (*ld, of)))
        };
        let scales = held(&first.scales, |op| op.scales.as_ref().map(|(_, lines)| lines))?;
        let zeros = held(&first.zeros, |op| op.zeros.as_ref().map(|(_, lines)| lines))?;
        let bias = all(|op| op.bias.as_ref())?;
        let Some(units) = all(|op| Some(&op.units))? else {
            bail!("there is no layer, one per expert was needed")
        };
        Ok(Self(Op { experts: number(layers.len())?, units, scales, zeros, bias, ..first.clone() }))
    }

    /// Maps `x` of shape `(rows, in)` to `(rows, out)`. Expert `i` has the rows from `offsets[i]` to `offsets[i + 1]`, `u32`. Rows that
    /// are in no group are zero.
    ///
    /// # Errors
    /// A shape or a type that does not fit; an error of candle.
    pub fn forward(&self, x: &Tensor, offsets: &Tensor) -> Result<Tensor> {
        let (k, needed) = (self.0.shape[1] as usize, self.0.experts as usize + 1);
        if x.rank() != 2 || x.dim(1)? != k || offsets.dtype() != DType::U32 || offsets.dims() != [needed] {
            bail!(
                "x has shape {:?} and offsets {:?} of {:?}: (rows, {k}) and ({needed}) of u32 were needed",
                x.dims(),
                offsets.dims(),
                offsets.dtype()
            );
        }
        let x = if x.layout().start_offset().is_multiple_of(8) { x.contiguous()? } else { x.copy()? };
        x.apply_op2_no_bwd(&offsets.contiguous()?, &self.0)
    }
}

impl CustomOp2 for Op {
    fn name(&self) -> &'static str {
        "falchion-few-bit-experts"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        of_x: &Layout,
        offsets: &CpuStorage,
        of_offsets: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (d, shape) = self.run((Stored::Host(x), of_x), Stored::Host(offsets).address(of_offsets))?;
        Ok((d.host()?, shape))
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        of_x: &Layout,
        offsets: &CudaStorage,
        of_offsets: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        let (d, shape) = self.run((Stored::Card(x), of_x), Stored::Card(offsets).address(of_offsets))?;
        Ok((d.card()?, shape))
    }
}
