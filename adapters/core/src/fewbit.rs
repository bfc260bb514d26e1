//! The product of a layer with few-bit weights, or of experts with them: its kernel and its calls.

use std::sync::Arc;

use falchion::collective::{
    Format, Formula, GroupScales, Input, LinearArguments, MatrixRef, WeightsSpec, weights,
};
use falchion::cute_rs::atom::Major;
use falchion::kernel::driver::Activation;
use falchion::kernel::{AnyGemm, Call, GemmProblem, GroupedProblem, Machine, Request, Types};

use crate::described::Epilogue;
use crate::picked::Picked;
use crate::refusal::{Refusal, aligned};
use crate::weights::Weights;
use crate::words::formula;

/// What a product with few-bit weights is, apart from its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FewBit {
    /// Code, group, and whether there are zero points.
    pub spec: WeightsSpec,
    /// Format of inputs, outputs and the bias.
    pub format: Format,
    /// Outputs and inputs.
    pub shape: [u32; 2],
    /// Number of experts; 0 is a layer.
    pub experts: u32,
    /// Elements from one line of scales, and of zero points, to the next.
    pub lds: [u64; 2],
    /// Whether there is a bias.
    pub biased: bool,
    /// What follows the bias.
    pub activation: Activation,
}

/// Addresses of a call. Those of experts follow each other; what a product does not have is 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct FewBitMemory {
    /// Inputs, rows without gaps.
    pub x: u64,
    /// [`Weights::units`].
    pub units: u64,
    /// Lines of [`Weights::scales`] and of [`Weights::zeros`].
    pub lines: [u64; 2],
    /// The bias.
    pub bias: u64,
    /// Where each expert's rows begin and where the last one's end, `u32`.
    pub offsets: u64,
    /// Outputs, rows without gaps.
    pub d: u64,
}

impl FewBit {
    /// The product of a layer, without an activation.
    pub fn of(weights: &Weights, biased: bool) -> Self {
        let &Weights { spec, format, shape, .. } = weights;
        let ld = |pitch: usize, size: u32| pitch as u64 / u64::from(size);
        let lds = [ld(weights.scales.pitch, spec.scale_bytes().max(1)), ld(weights.zeros.pitch, 2)];
        Self { spec, format, shape, experts: 0, lds, biased, activation: Activation::Identity }
    }

    /// The kernel for a number of rows, on a card of this machine or by a machine's facts: as [`Picked::new`].
    ///
    /// # Errors
    /// No kernel supports the product; the driver's.
    pub fn kernel(
        &self,
        rows: u32,
        machine: &Machine,
        card: Option<usize>,
    ) -> Result<Picked<AnyGemm>, Refusal> {
        let somewhere = aligned(16);
        let [x, units, bias, offsets, d] = [somewhere; 5];
        let call = self.call(rows, FewBitMemory { x, units, lines: [somewhere; 2], bias, offsets, d });
        let types = Types::of(self.format).weights([None, Some(self.spec)]);
        let packed = Request::packed(types, [Major::K; 2], call.problem);
        Picked::new(&Request { fusion: self.formula()?, call, ..packed }, None, machine, card)
    }

    /// The call of a number of rows by the [`kernel`](Self::kernel) for them.
    pub fn call_of(&self, kernel: &Picked<AnyGemm>, rows: u32, memory: FewBitMemory) -> Call<Epilogue> {
        let slots = Arc::clone(kernel.kernel().slots());
        let n = u64::from(self.shape[0]);
        // A text without a bias takes nothing.
        let bias = match self.experts {
            _ if !self.biased => None,
            0 => Some(Input::Address(memory.bias)),
            _ => Some(Input::Each { address: memory.bias, ld: n, stride: 2 * n }),
        };
        let epilogue = if self.is_linear() {
            Epilogue::Linear(LinearArguments::default())
        } else {
            let inputs = slots.iter().map(|_| bias).collect();
            Epilogue::Fused(slots, inputs, self.experts.max(1))
        };
        self.call(rows, memory).with(epilogue)
    }

    fn call(&self, rows: u32, memory: FewBitMemory) -> Call<LinearArguments> {
        let [n, k] = self.shape;
        let FewBitMemory { x, units, lines, offsets, d, .. } = memory;
        let every = |matrix: MatrixRef, lines: u32| match self.experts {
            0 | 1 => matrix,
            _ => matrix.every(u64::from(lines) * matrix.ld),
        };
        let held = |i: usize| match self.lds[i] {
            0 => MatrixRef::NONE,
            ld => every(MatrixRef::new(lines[i], ld), k.div_ceil(self.spec.group.max(1))),
        };
        Call {
            a: MatrixRef::new(x, k.into()),
            b: every(MatrixRef::new(units, weights::ld(self.spec.code, k)), n.next_multiple_of(64)),
            d: MatrixRef::new(d, n.into()),
            products: match self.experts {
                0 => GroupedProblem::One,
                count => GroupedProblem::GroupedContiguous { count, offsets },
            },
            group_scales: (self.lds[0] > 0).then(|| GroupScales { scales: held(0), zeros: held(1) }),
            ..Call::of(GemmProblem { m: rows, n, k })
        }
    }

    /// Whether nothing follows the sums.
    fn is_linear(&self) -> bool {
        !self.biased && self.activation == Activation::Identity
    }

    /// What follows the sums; `None` if nothing does.
    fn formula(&self) -> Result<Option<Formula>, Refusal> {
        if self.is_linear() {
            return Ok(None);
        }
        let sum = match (self.biased, self.experts) {
            (false, _) => "acc",
            (true, 0) => "acc + bias[n]",
            (true, _) => "acc + bias[l,n]",
        };
        let text = match self.activation {
            Activation::Identity => sum.to_owned(),
            Activation::Relu => format!("relu({sum})"),
            Activation::Gelu => format!("gelu({sum})"),
            Activation::Silu => format!("silu({sum})"),
        };
        formula(&text, self.format, Some(self.format)).map(Some)
    }
}
