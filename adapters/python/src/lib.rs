//! falchion for Python: the native part of the package. `falchion/__init__.py` documents it for callers.

mod array;
mod attention;
mod call;
mod epilogue;
mod error;
mod exchange;
mod gradient;
mod heads;
mod linear;
mod many;
mod named;
mod operand;
mod place;
mod plan;
mod ptx;
mod rows;
mod scales;
mod sequences;
mod stored;
mod tuned;
mod vectors;
mod watch;
mod whole;

use falchion::collective::process::Once;
use falchion::emulator::Schedule;
use falchion_core::{GEMM, Run};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::call::{Arguments, Prepared, Views};
use crate::named::{Named, Names};
use crate::plan::Kernel;
use crate::whole::Whole;

/// The names of the arguments of `matmul`.
static NAMES: Once<Names> = Once::new();

pyo3::create_exception!(_native, Fault, pyo3::exceptions::PyRuntimeError);

/// Multiplies matrices, or batches of matrices: `epilogue(a @ b)`. Returns `out`.
///
/// `a` is (M, K) and `b` (K, N), or (L, M, K) and (L, K, N); a matrix is shared by all of a batch. Arrays of numpy, and
/// tensors of torch on the CPU, are multiplied in the emulator; CUDA tensors on their card, on torch's current stream.
/// Anything else with `__dlpack__` is taken over by numpy or torch.
///
/// Elements: float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2, int8 and uint8 (numpy has some of these
/// from `ml_dtypes`). `types` says it otherwise: "tf32" multiplies float32 by tensor cores; "bf16-bf16-f32" also says
/// the result's; with unsigned integers of the same size, "bf16" and "e4m3" need no `ml_dtypes`. By default the result
/// has the type of `out`, or that of the operands: bfloat16 for 8-bit floats, int32 for integers, float32 for integers with
/// an epilogue.
///
/// Strides: 16-bit elements and float32 are multiplied as they lie if rows or columns are contiguous; the others if K is
/// contiguous, as in a transposed view of a row-major weight. Other operands are copied first. `out` is never copied.
///
/// `epilogue` is the text of a formula, for example "gelu(acc + bias[n])" or "alpha*acc + beta*c". Its arguments are given
/// by name; numbers are numbers, and arrays have the types of their elements. What it writes is written into the
/// arguments' arrays: "gelu(store(pre[m,n], acc))" with `pre` (M, N), "reduce_sum(sums[n], acc)". Without it, the result is `alpha * (a @ b) + beta * c`,
/// where `c` needs `beta`. What is given and not used is refused.
///
/// `scale_a` and `scale_b` multiply operands: two numbers; arrays of one float32; vectors of (M,) and (N,); or blocks of
/// (M, K/128) or (M/128, K/128) and (K/128, N) or (K/128, N/128), rounded up.
///
/// `groups` are the offsets of groups of rows (int32, one more than there are groups): rows `groups[i]` up to
/// `groups[i + 1]` of `a` are multiplied by `b[i]`, as experts do. int64 is converted in the host's memory, and refused on a card.
/// Rows of no group are zeros in a new result, which on a card is set to zero first; those of `out` stay as they are.
///
/// `reproducible`: the bits of a row of the result depend on nothing but that row, `b` and the epilogue. `spec` names the kernel.
///
/// Raises `ValueError` with the argument, its value and what was needed, `TypeError` for what is no array, and `Fault` if the emulator finds one.
/// Refused are big-endian elements, masked, sparse and nested arrays, and an `out` that is read-only or whose elements share memory.
#[pyfunction]
#[pyo3(signature = (*given, **keywords), text_signature = "(a, b, *, out=None, epilogue=None, types=None, c=None, alpha=None, beta=None, scale_a=None, scale_b=None, groups=None, reproducible=False, spec=None, **inputs)")]
fn matmul<'py>(
    py: Python<'py>,
    given: &Bound<'py, PyTuple>,
    keywords: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let named = Named::of(NAMES.get_or_init(|| Names::of(&GEMM)), (given, keywords), true)?;
    call::prepare(py, &Arguments { named, views: Views::default() })?.run()
}

/// Runs the kernel of a call in the emulator, on arrays in the host's memory, once per schedule: other orders of warps
/// and of asynchronous operations. Takes the arguments of `matmul`. Raises `Fault` with the emulator's report if a run
/// finds a race, a bad access or a hang. Returns the kernel.
#[pyfunction]
#[pyo3(signature = (a, b, *, schedules=Whole::Small(8), **keywords), text_signature = "(a, b, *, schedules=8, **keywords)")]
fn check<'py>(
    py: Python<'py>,
    a: Bound<'py, PyAny>,
    b: Bound<'py, PyAny>,
    schedules: Whole,
    keywords: Option<Bound<'py, PyDict>>,
) -> PyResult<Kernel> {
    let names = NAMES.get_or_init(|| Names::of(&GEMM));
    let named = Named::of(names, (&PyTuple::new(py, [a, b])?, keywords.as_ref()), true)?;
    let prepared = call::prepare(py, &Arguments { named, views: Views::default() })?;
    let schedules = schedules.from("schedules", [1, u32::MAX])?;
    let each = Schedule::sweep(schedules.into()).take(schedules as usize);
    prepared.emulate(each.enumerate().map(|(i, (schedule, seed))| Run {
        schedule,
        seed,
        part: [i, schedules as usize],
        ..Run::default()
    }))?;
    Ok(kernel_of(&prepared))
}

/// The kernel that `matmul` takes for these arguments. Nothing is multiplied.
#[pyfunction]
#[pyo3(signature = (a, b, **keywords), text_signature = "(a, b, **keywords)")]
fn plan_matmul<'py>(
    py: Python<'py>,
    a: Bound<'py, PyAny>,
    b: Bound<'py, PyAny>,
    keywords: Option<Bound<'py, PyDict>>,
) -> PyResult<Kernel> {
    let names = NAMES.get_or_init(|| Names::of(&GEMM));
    let named = Named::of(names, (&PyTuple::new(py, [a, b])?, keywords.as_ref()), true)?;
    Ok(kernel_of(&call::prepare(py, &Arguments { named, views: Views::default() })?))
}

/// The kernel of a call.
fn kernel_of(prepared: &Prepared<'_>) -> Kernel {
    let gemm = &prepared.chosen.kernel;
    Kernel::new(gemm.kernel().gemm().clone(), gemm.microseconds(), gemm.reason().to_owned())
}

#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    #[pymodule_export]
    use super::Fault;
    #[pymodule_export]
    use super::attention::{attention, plan_attention, tune_attention};
    #[pymodule_export]
    use super::check;
    #[pymodule_export]
    use super::gradient::{attention_backward, plan_attention_backward, tune_attention_backward};
    #[pymodule_export]
    use super::linear::{linear, linear_backward};
    #[pymodule_export]
    use super::plan::{Kernel, page, plan, result, tune};
    #[pymodule_export]
    use super::ptx::{checked, compiled};
    #[pymodule_export]
    use super::rows::{append_pages, merge_attention};
    #[pymodule_export]
    use super::stored::{Operand, admitted, awq, compress, fp8, gptq, mxfp4, pack};
    #[pymodule_export]
    use super::tuned::Choice;
    #[pymodule_export]
    use super::{matmul, plan_matmul};
}
