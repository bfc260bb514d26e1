//! GEMMs for which the library chooses the kernel: [`Chooser`], and [`matmul`] on cudarc's slices.

use core::fmt;
use core::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use collective::functions::{MultiplyAdd, MultiplyAddGelu, Relu, Silu};
use collective::tree::{Accumulator, Compute, Named, RowArgument, RowVector, Scalar};
use collective::{BlockScales, Element, Fast, Fastest, Form, Format, Formula};
use cute_rs::atom::Major;
use half::{bf16, f16};
use lru::LruCache;

use super::context::{Context, lock};
use super::loaded::Loaded;
use super::slice::DeviceSlice;
use super::stream::StreamRef;
use super::typed::InContext;
#[cfg(feature = "cudarc")]
use super::typed::{DeviceElement, enough};
use crate::arguments::{Arguments, Tree};
use crate::call::Call;
use crate::error::EngineError;
#[cfg(not(feature = "tune"))]
use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::kernel::written;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
#[cfg(not(feature = "tune"))]
use crate::select::fastest;
use crate::select::{Machine, Request};
use crate::types::Types;

/// One or several GEMMs of packed matrices, for a [`Chooser`].
#[derive(Clone, Copy, Debug)]
pub struct GemmDesc<'a> {
    shape: Shape,
    offsets: Option<DeviceSlice<'a>>,
    bias: Option<DeviceSlice<'a>>,
    scales: Option<[DeviceSlice<'a>; 2]>,
}

/// What a choice depends on, except the alignment of the matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    types: Types,
    majors: [Major; 2],
    problem: GemmProblem,
    /// Their table, if they have one, is [`NOWHERE`].
    products: GroupedProblem,
    /// If there is a bias.
    activation: Option<Activation>,
    reproducible: bool,
}

/// An address that stands for a table of offsets.
const NOWHERE: u64 = 1 << 20;

/// An activation function, applied to the sum of a GEMM and its bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Activation {
    /// No activation: `x`.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))`.
    Gelu,
    /// `x / (1 + exp(-x))`.
    Silu,
}

impl<'a> GemmDesc<'a> {
    /// One GEMM. `majors` holds the contiguous directions of A and B: `[Major::K, Major::Mn]` for row-major
    /// matrices, and `[Major::K, Major::K]` if B is given as its transpose, as weights usually are.
    pub fn new(types: impl Into<Types>, majors: [Major; 2], problem: GemmProblem) -> Self {
        let (types, products, activation) = (types.into(), GroupedProblem::One, None);
        let shape = Shape { types, majors, problem, products, activation, reproducible: false };
        Self { shape, offsets: None, bias: None, scales: None }
    }

    /// A batch of `count` GEMMs of this shape. The matrices of the batch are packed, one after the other.
    #[must_use]
    pub fn batched(self, count: u32) -> Self {
        let products = GroupedProblem::Batched { count };
        Self { shape: Shape { products, ..self.shape }, offsets: None, ..self }
    }

    /// Splits the rows of A and D into `count` groups, each with its own B (MoE grouped GEMM). Group `i` is
    /// rows `offsets[i]` up to, but not including, `offsets[i + 1]`. `offsets` holds `count + 1` numbers
    /// (`u32`) in device memory. The problem's M is the number of rows of all groups.
    #[must_use]
    pub fn ragged(self, count: u32, offsets: DeviceSlice<'a>) -> Self {
        let products = GroupedProblem::GroupedContiguous { count, offsets: NOWHERE };
        Self { shape: Shape { products, ..self.shape }, offsets: Some(offsets), ..self }
    }

    /// Sets the block scales of A and of B ([`Types::scaled`]): `f32`, laid out as [`BlockScales::packed`]
    /// says. Only for one GEMM.
    #[must_use]
    pub fn scaled(self, scales: [DeviceSlice<'a>; 2]) -> Self {
        Self { scales: Some(scales), ..self }
    }

    /// Adds a bias, then applies the activation. The bias is `N` elements in D's format, added to each row.
    #[must_use]
    pub fn biased(self, activation: Activation, bias: DeviceSlice<'a>) -> Self {
        Self { shape: Shape { activation: Some(activation), ..self.shape }, bias: Some(bias), ..self }
    }

    /// Asks for a kernel that sums in the same order whatever M, N and the groups are: see [`Request::reproducible`].
    #[must_use]
    pub fn reproducible(self) -> Self {
        Self { shape: Shape { reproducible: true, ..self.shape }, ..self }
    }
}

impl Shape {
    fn fusion(&self) -> Option<Formula> {
        Formula::named(match self.activation? {
            Activation::Identity => "bias",
            Activation::Relu => "bias-relu",
            Activation::Gelu => "bias-gelu",
            Activation::Silu => "bias-silu",
        })
    }

    /// What is asked for, at addresses that are multiples of these powers of two.
    fn request(&self, aligned: [u32; 3]) -> Request<'static> {
        let Self { types, majors, problem, products, reproducible, .. } = *self;
        // The sizes of groups are not known on the host; a request without shapes assumes equal ones.
        let request = Request::packed(types, majors, problem).several(products);
        let mut request = Request { fusion: self.fusion(), reproducible, ..request };
        let [a, b, d] = aligned.map(|zeros| (1 << 20) | (1u64 << zeros));
        (request.call.a.address, request.call.b.address, request.call.d.address) = (a, b, d);
        request
    }

    /// A description for errors.
    fn described(&self) -> String {
        let GemmProblem { m, n, k } = self.problem;
        let many = match (self.products.form(), self.products.count()) {
            (Form::Batched, count) => format!(", {count} of them"),
            (Form::GroupedContiguous, count) => format!(" in {count} groups of rows"),
            _ => String::new(),
        };
        let fused = self.fusion().map_or(String::new(), |fusion| format!(" with {}", fusion.name()));
        format!("{m} x {n} x {k} {}{many}{fused}", self.types)
    }
}

/// Chooses a kernel for each GEMM without measuring: the fastest of those that were measured on the card, by this process or an earlier one
/// (feature `tune`), or else by the model of the card ([`Context::machine`]) and the records that come with the library.
/// It keeps what it chose and loaded: the first GEMM of a shape takes milliseconds, later ones microseconds.
///
/// Several threads may use one chooser. A thread waits for another one's choice or compilation only if it needs
/// the same kernel.
pub struct Chooser {
    context: Arc<Context>,
    machine: Machine,
    chosen: Mutex<Chosen>,
}

/// The kernel chosen for each shape, and the kernels that are loaded. It is locked only for look-ups.
struct Chosen {
    /// By shape, and by the powers of two that divide the addresses of A, B and D.
    /// With how often measured times had been kept when it was chosen.
    by_shape: LruCache<(Shape, [u32; 3]), (u64, Arc<Once>)>,
    by_name: LruCache<String, Arc<Once>>,
}

/// How far a call goes.
#[derive(Clone, Copy)]
enum Step {
    /// Everything that cannot be done while a stream is captured: memory is allocated, nothing is enqueued.
    Prepare,
    /// It is enqueued.
    Launch,
}

/// A kernel that the first thread makes. Threads that need it meanwhile wait for that thread.
#[derive(Default)]
struct Once(Mutex<Option<Arc<Loaded>>>);

impl Once {
    /// The kernel. `make` is called if there is none yet; after an error, the next thread tries again.
    fn get(
        &self,
        make: impl FnOnce() -> Result<Arc<Loaded>, EngineError>,
    ) -> Result<Arc<Loaded>, EngineError> {
        let mut made = lock(&self.0);
        if let Some(loaded) = &*made {
            return Ok(Arc::clone(loaded));
        }
        let loaded = make()?;
        *made = Some(Arc::clone(&loaded));
        Ok(loaded)
    }
}

/// Numbers of shapes and of kernels that are remembered.
const SHAPES: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");
const KERNELS: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");

impl fmt::Debug for Chooser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let loaded = lock(&self.chosen).by_name.len();
        f.debug_struct("Chooser").field("context", &self.context).field("loaded", &loaded).finish()
    }
}

impl Chooser {
    /// The chooser that the whole process shares for the GPU with an index, in its primary context.
    ///
    /// # Errors
    /// As [`Context::primary`].
    pub fn shared(ordinal: usize) -> Result<Arc<Self>, EngineError> {
        static SHARED: Mutex<Vec<Arc<Chooser>>> = Mutex::new(Vec::new());
        let mut known = lock(&SHARED);
        if let Some(chooser) = known.iter().find(|chooser| chooser.context.ordinal() == ordinal) {
            return Ok(Arc::clone(chooser));
        }
        let chooser = Arc::new(Self::new(&Context::primary(ordinal)?)?);
        known.push(Arc::clone(&chooser));
        Ok(chooser)
    }

    /// A chooser that has not chosen anything yet.
    ///
    /// # Errors
    /// A driver error.
    pub fn new(on: &impl InContext) -> Result<Self, EngineError> {
        let chosen = Chosen { by_shape: LruCache::new(SHAPES), by_name: LruCache::new(KERNELS) };
        let context = on.context()?;
        Ok(Self { machine: context.machine()?, context, chosen: Mutex::new(chosen) })
    }

    /// Enqueues `D = A * B` of packed matrices. Types and directions are as in [`GemmDesc::new`];
    /// `slices` are lent memory of A, B and D.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn multiply<'s>(
        &self,
        stream: impl Into<StreamRef<'s>>,
        (types, majors): (impl Into<Types>, [Major; 2]),
        problem: GemmProblem,
        slices: [DeviceSlice<'_>; 3],
    ) -> Result<(), EngineError> {
        self.enqueue(stream, &GemmDesc::new(types, majors, problem), slices)
    }

    /// Enqueues one or several GEMMs of A and B into D, and returns at once. `slices` are lent memory of A, B
    /// and D.
    ///
    /// If the stream is being captured, the launch becomes part of the graph. The shape must have been
    /// enqueued or [prepared](Self::prepare) on this stream before.
    ///
    /// # Errors
    /// No kernel can compute them (with the reason), a slice has fewer bytes than its matrices, the stream is
    /// being captured and the shape was not prepared, or the driver rejects the launch.
    pub fn enqueue<'s>(
        &self,
        stream: impl Into<StreamRef<'s>>,
        what: &GemmDesc<'_>,
        slices: [DeviceSlice<'_>; 3],
    ) -> Result<(), EngineError> {
        self.take((Step::Launch, stream.into()), what, slices)
    }

    /// Chooses and loads the kernel for what [`enqueue`](Self::enqueue) enqueues, and allocates its workspace
    /// for this stream. It enqueues nothing. Call it before the stream is captured into a graph: nothing can
    /// be loaded or allocated during a capture.
    ///
    /// The workspace belongs to the stream. Replay the graph on the stream that captured it, or while nothing
    /// else is enqueued there.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn prepare<'s>(
        &self,
        stream: impl Into<StreamRef<'s>>,
        what: &GemmDesc<'_>,
        slices: [DeviceSlice<'_>; 3],
    ) -> Result<(), EngineError> {
        self.take((Step::Prepare, stream.into()), what, slices)
    }

    fn take(
        &self,
        to: (Step, StreamRef<'_>),
        what: &GemmDesc<'_>,
        slices: [DeviceSlice<'_>; 3],
    ) -> Result<(), EngineError> {
        let Shape { types, majors, problem, products, activation, .. } = what.shape;
        let one = products == GroupedProblem::One;
        let refusal = match (types.is_scaled(), what.scales.is_some()) {
            _ if matches!(products, GroupedProblem::GroupedContiguous { count: 0, .. }) => {
                Some("there are no groups, one was needed")
            }
            _ if types.has_sparse() => {
                Some("an operand is sparse, and its metadata is not lent here: take `Loaded`")
            }
            (true, false) => Some("its types have scales, and none were given"),
            (false, true) => Some("there are scales, and its types have none"),
            (true, true) if !one => Some("there are scales: one product was needed"),
            (_, _) => None,
        };
        if let Some(reason) = refusal {
            return Err(EngineError::NoKernel { call: what.shape.described(), reason: reason.to_owned() });
        }
        let GemmProblem { m, n, k } = problem;
        if m == 0 || n == 0 || products.count() == 0 {
            return Ok(());
        }
        let addresses = slices.map(|slice| slice.address());
        let loaded = self.loaded(to.1, &what.shape, addresses)?;
        let mut lent = slices.to_vec();
        lent.extend(what.offsets.into_iter().chain(what.bias).chain(what.scales.into_iter().flatten()));
        let mut call = Call::packed(majors, problem);
        [call.a.address, call.b.address, call.d.address] = addresses;
        if let Some(scales) = what.scales {
            let extents = BlockScales::packed_extents([m, n, k], types.scaled);
            call = call.scaled(BlockScales::packed(scales.map(|slice| slice.address()), extents));
        }
        call = match what.offsets {
            Some(offsets) => call.ragged(products.count(), offsets.address()),
            None if one => call,
            None => call.batched(products.count()),
        };
        let Some((activation, bias)) = activation.zip(what.bias) else {
            return stepped(&loaded, to, &call, &lent);
        };
        let bias = RowArgument { address: bias.address(), len: n };
        if types.d == Format::F16 {
            return biased::<f16>(&loaded, to, call, (activation, bias), &lent);
        }
        biased::<bf16>(&loaded, to, call, (activation, bias), &lent)
    }

    /// The kernel for a multiplication.
    fn loaded(
        &self,
        stream: StreamRef<'_>,
        shape: &Shape,
        addresses: [u64; 3],
    ) -> Result<Arc<Loaded>, EngineError> {
        let aligned = addresses.map(|address| address.trailing_zeros().min(8));
        let (of, now) = ((*shape, aligned), times());
        let (then, known) = lock(&self.chosen).by_shape.get_or_insert(of, || (now, Arc::default())).clone();
        // What was prepared for a capture is taken there, whatever was measured since.
        let stale = then != now && !stream.is_captured(&self.context.bind()?)?;
        let once = if stale { Arc::default() } else { known };
        if stale {
            lock(&self.chosen).by_shape.put(of, (now, Arc::clone(&once)));
        }
        once.get(|| {
            // Nothing can be loaded while a stream is captured.
            let current = self.context.bind()?;
            if stream.is_captured(&current)? {
                return Err(EngineError::Captured { what: format!("a kernel for {}", shape.described()) });
            }
            let gemm = self.choose(shape, aligned)?;
            let name = gemm.entry_name();
            let once = Arc::clone(lock(&self.chosen).by_name.get_or_insert(name, Arc::default));
            once.get(|| {
                let program = written::<Call>(&gemm)?;
                Loaded::load_in(&self.context, gemm, program).map(Arc::new)
            })
        })
    }

    /// Chooses a kernel for a multiplication whose addresses are multiples of these powers of two.
    fn choose(&self, shape: &Shape, aligned: [u32; 3]) -> Result<AnyGemm, EngineError> {
        let first = first(&self.context, &shape.request(aligned), &self.machine)?;
        first.map_err(|reason| EngineError::NoKernel { call: shape.described(), reason })
    }
}

/// The kernel for a request: the fastest that was measured on the card, or else the model's first.
#[cfg(feature = "tune")]
fn first(
    context: &Context,
    request: &Request<'_>,
    machine: &Machine,
) -> Result<Result<AnyGemm, String>, EngineError> {
    Ok(super::tune::chosen::<AnyGemm>(context, request, machine)?.map(|of| of.kernel))
}

/// The same without records: the model's first.
#[cfg(not(feature = "tune"))]
fn first(
    _context: &Context,
    request: &Request<'_>,
    machine: &Machine,
) -> Result<Result<AnyGemm, String>, EngineError> {
    let none = |refused: Option<LaunchError>| {
        refused.map_or_else(|| "no kernel of the space fits".to_owned(), |error| error.to_string())
    };
    Ok(fastest(request, machine).map(|ranked| ranked.gemm).map_err(none))
}

/// How often this process has kept measured times: choices that were made before are made again.
fn times() -> u64 {
    #[cfg(feature = "tune")]
    return super::tune::times_kept();
    #[cfg(not(feature = "tune"))]
    0
}

collective::labels! {
    /// Of arguments, in errors.
    Bias = "bias";
}

/// `alpha * acc + bias`.
type Biased<T, F = MultiplyAdd> = Compute<F, (Accumulator, Scalar, Named<Bias, RowVector<T>>)>;

/// Launches a call with a bias of this type and an activation.
fn biased<T: Element>(
    loaded: &Loaded,
    to: (Step, StreamRef<'_>),
    call: Call,
    (activation, bias): (Activation, RowArgument),
    lent: &[DeviceSlice<'_>],
) -> Result<(), EngineError> {
    let sum = ((), ((), 1.0, bias));
    match activation {
        Activation::Identity => stepped(loaded, to, &call.with(Tree::<Biased<T>>(sum)), lent),
        Activation::Gelu => {
            stepped(loaded, to, &call.with(Tree::<Biased<T, MultiplyAddGelu<Fastest>>>(sum)), lent)
        }
        Activation::Relu => {
            stepped(loaded, to, &call.with(Tree::<Compute<Relu, (Biased<T>,)>>(((), (sum,)))), lent)
        }
        Activation::Silu => {
            stepped(loaded, to, &call.with(Tree::<Compute<Silu<Fast>, (Biased<T>,)>>(((), (sum,)))), lent)
        }
    }
}

/// Enqueues a call, or only prepares it.
fn stepped<E: Arguments + Clone>(
    loaded: &Loaded,
    (step, stream): (Step, StreamRef<'_>),
    call: &Call<E>,
    lent: &[DeviceSlice<'_>],
) -> Result<(), EngineError> {
    match step {
        Step::Prepare => loaded.prepare(stream, call),
        Step::Launch => loaded.launch(stream, call, lent),
    }
}

/// Element types that have kernels for row-major A and B: `bf16` and `f16`.
#[cfg(feature = "cudarc")]
pub trait RowMajorProducts: DeviceElement {}

#[cfg(feature = "cudarc")]
impl RowMajorProducts for bf16 {}
#[cfg(feature = "cudarc")]
impl RowMajorProducts for f16 {}

/// Enqueues `D = A * B` of row-major matrices on cudarc's slices, and returns at once. A is `M x K`, B `K x
/// N` and D `M x N`. This is [`Chooser::multiply`] by the [chooser](Chooser::shared) that the process has for the stream's GPU.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use cudarc::driver::{CudaSlice, CudaStream};
/// use half::bf16;
/// use kernel::driver::matmul;
/// use kernel::{EngineError, GemmProblem};
///
/// type Slice = CudaSlice<bf16>;
///
/// fn layer(stream: &Arc<CudaStream>, x: &Slice, w: &Slice, y: &mut Slice) -> Result<(), EngineError> {
///     matmul(stream, GemmProblem { m: 300, n: 200, k: 136 }, x, w, y)
/// }
/// ```
///
/// # Errors
/// A slice is too short for the problem, no kernel can compute it, or a driver error.
#[cfg(feature = "cudarc")]
pub fn matmul<T: RowMajorProducts>(
    stream: &Arc<cudarc::driver::CudaStream>,
    problem: GemmProblem,
    a: &impl cudarc::driver::DevicePtr<T>,
    b: &impl cudarc::driver::DevicePtr<T>,
    d: &mut impl cudarc::driver::DevicePtrMut<T>,
) -> Result<(), EngineError> {
    enough(problem, [a.len(), b.len(), d.len()])?;
    let chooser = Chooser::shared(cudarc::driver::CudaStream::context(stream).ordinal())?;
    let (a, b, d) = super::cudarc::lent(stream, a, b, d);
    let slices = [a.slice(), b.slice(), d.slice()];
    chooser.multiply(&**stream, (T::FORMATS[0], [Major::K, Major::Mn]), problem, slices)
}

#[cfg(all(test, feature = "records"))]
mod tests;
