//! The tensor maps of a launch: the one place where they are made.

use ptx::abi::{Promotion, TensorElement, TensorMap, TensorSwizzle};

use crate::form::Batch;
use crate::operand::{Matrix, MatrixRef};
use crate::operands::Visit;

/// One dimension of a tensor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dimension {
    /// Extent of the tensor, in elements.
    pub extent: u32,
    /// Elements from one index to the next.
    pub stride: u64,
    /// Extent of the box that one copy transfers, in elements.
    pub copied: u32,
}

impl Dimension {
    /// The innermost dimension: its elements follow each other.
    pub(crate) fn contiguous(extent: u32, copied: u32) -> Self {
        Self { extent, stride: 1, copied }
    }
}

/// The tensor map of a tensor without a swizzle, and of a batch of such tensors: then the last dimension is the
/// index in the batch. The innermost dimension is first; its stride is 1.
///
/// Every launch makes some, so this must be fast.
pub(crate) fn tensor_map(
    element: TensorElement,
    address: u64,
    dimensions: &[Dimension],
    batch: Option<Batch>,
) -> TensorMap {
    let last = dimensions.last().map_or(1, |last| last.stride);
    let index = batch.map(|batch| {
        let count = batch.distinct();
        // After the only tensor nothing follows, so any legal distance will do.
        Dimension { extent: count, stride: if count > 1 { batch.stride } else { last }, copied: 1 }
    });
    let all = || dimensions.iter().copied().chain(index);
    TensorMap {
        element,
        address,
        dims: all().map(|of| u64::from(of.extent).max(1)).collect(),
        strides: all().skip(1).map(|of| of.stride * u64::from(element.bytes())).collect(),
        box_dims: all().map(|of| of.copied).collect(),
        swizzle: TensorSwizzle::None,
        promotion: Promotion::default(),
        reach: None,
    }
}

/// States the kernel parameters of a tensor map: the map; and if there is a batch, 1 if each GEMM has a tensor of its own, or 0
/// if all share one.
pub(crate) fn state(
    [map, step]: [&'static str; 2],
    within: &'static str,
    (batched, value): (bool, Option<(TensorMap, Option<Batch>)>),
    visit: &mut dyn Visit,
) {
    let own = value.as_ref().map(|(_, batch)| u32::from(batch.is_some_and(|batch| batch.stride != 0)));
    visit.tensor_map(map, within, value.map(|(map, _)| map));
    if batched {
        visit.number(step, own);
    }
}

/// What a caller passes in addition to an operand: its scales, zero points or metadata.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Companion<const D: usize> {
    /// The memory's name; a plural.
    pub name: &'static str,
    pub element: TensorElement,
    /// Where it is. The leading dimension is the stride of the last dimension.
    pub given: MatrixRef,
    /// The operand.
    pub operand: Matrix,
    /// Whether the operand is a batch.
    pub batched: bool,
    /// The stride of the last one is that of what is given.
    pub dimensions: [Dimension; D],
}

/// Leading dimensions and strides must be less than this, in elements of at most 4 bytes: tensor copies have
/// strides below 2^40 bytes.
const MOST_PITCH: u64 = 1 << 38;

impl<const D: usize> Companion<D> {
    /// Elements that the leading dimension is a multiple of, and the smallest one.
    fn pitch(&self) -> [u64; 2] {
        let inner = &self.dimensions[..D - 1];
        let least = inner.iter().map(|of| u64::from(of.extent)).product();
        [inner.last().map_or(1, |of| of.stride).max(16 / u64::from(self.element.bytes())), least]
    }

    /// Checks what is given. If K is 0, nothing is read, so nothing is checked.
    ///
    /// # Errors
    /// A sentence: which argument, the value found, and what is allowed.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (name, [step, least]) = (self.name, self.pitch());
        let (MatrixRef { address, ld, stride }, aligned) = (self.given, 16 / u64::from(self.element.bytes()));
        if self.operand.k == 0 {
            return Ok(());
        }
        if address == 0 || !address.is_multiple_of(16) {
            return Err(format!("{name} are at {address:#x}, a multiple of 16 above 0 was needed"));
        }
        if ld < least || ld >= MOST_PITCH || !ld.is_multiple_of(step) {
            return Err(format!(
                "the leading dimension of {name} is {ld}, a multiple of {step} from {least} on, below 2^38, was needed"
            ));
        }
        if stride >= MOST_PITCH || !stride.is_multiple_of(aligned) {
            return Err(format!(
                "the stride of {name} is {stride}, a multiple of {aligned} below 2^38 was needed"
            ));
        }
        Ok(())
    }

    /// The tensor map, and its batch.
    pub(crate) fn map(mut self) -> (TensorMap, Option<Batch>) {
        let ([step, _], unread) = (self.pitch(), self.operand.k == 0);
        let given = if unread { MatrixRef::new(0, step) } else { self.given };
        self.dimensions[D - 1].stride = given.ld;
        let batch = self.batched.then_some(Batch { stride: given.stride, ..self.operand.batch });
        (tensor_map(self.element, given.address, &self.dimensions, batch), batch)
    }
}
