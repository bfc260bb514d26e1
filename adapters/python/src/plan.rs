//! Which kernels there are for a GEMM, and what is known of each.

use falchion::cute_rs::atom::{Major, smem};
use falchion::cute_rs::draw::{Access, Picture};
use falchion::explore;
use falchion::kernel::driver::stop_measuring;
use falchion::kernel::{AnyGemm, Card, Machine, Predicted, Request, Types};
use falchion_core::{Gemms, Picked, Watch, machine};
use pyo3::prelude::*;

use crate::array::{format_of, invalid, short, type_name};
use crate::error::of_refusal;
use crate::watch::watched;
use crate::whole::Whole;

/// A kernel that was chosen, with its predicted time.
#[pyclass(frozen, module = "falchion")]
pub(crate) struct Kernel {
    gemm: AnyGemm,
    /// The kernel's spec, which `spec=` takes.
    #[pyo3(get)]
    spec: String,
    /// Predicted time on the card, in microseconds; `nan` where nothing was predicted.
    #[pyo3(get)]
    microseconds: f64,
    /// What limits the time, in one sentence.
    #[pyo3(get)]
    reason: String,
}

impl Kernel {
    pub(crate) fn new(gemm: AnyGemm, microseconds: f64, reason: String) -> Self {
        let spec = gemm.spec().map_or_else(|| gemm.entry_name(), |spec| spec.to_string());
        Self { gemm, spec, microseconds, reason }
    }
}

impl Kernel {
    /// Eight rows of A's tile, or columns where these are contiguous, as a picture of banks.
    fn banks(&self) -> Option<String> {
        let a = &self.gemm.plan().operands[0];
        let width = a.swizzle().elements(a.bits());
        let (mn, k) = if a.major() == Major::K { (8, width) } else { (width, 8) };
        let tile = smem::tile(a.major(), a.swizzle(), a.bits(), mn, k).ok()?;
        Picture::of_banks(&tile, a.bits(), &Access::column(0, 16))
            .ok()
            .map(|picture| picture.svg().replacen("<svg", "<svg style=\"max-width:100%;height:auto\"", 1))
    }
}

/// Text between tags.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[pymethods]
impl Kernel {
    /// Extents of a tile along M, N and K, in elements.
    #[getter]
    fn tile(&self) -> (u32, u32, u32) {
        let [m, n, k] = self.gemm.plan().mainloop.tile;
        (m, n, k)
    }

    /// Stages of the pipeline in shared memory.
    #[getter]
    fn stages(&self) -> u32 {
        self.gemm.plan().ring.stages
    }

    /// Threads per CTA.
    #[getter]
    fn threads(&self) -> u32 {
        self.gemm.plan().threads
    }

    /// Shared memory per CTA, in bytes.
    #[getter]
    fn shared_bytes(&self) -> u32 {
        self.gemm.plan().shared_bytes
    }

    /// The kernel as a Rust type.
    #[getter]
    fn rust_type(&self) -> String {
        self.gemm.rust_type()
    }

    /// The kernel's program as PTX.
    fn ptx(&self) -> PyResult<String> {
        let program = self.gemm.program();
        let program =
            program.map_err(|error| pyo3::exceptions::PyRuntimeError::new_err(error.to_string()))?;
        Ok(program.text().to_owned())
    }

    /// The kernel in a notebook: its numbers, how a tile of A lies in the banks of shared memory, its type and its program.
    fn _repr_html_(&self) -> PyResult<String> {
        let (plan, (m, n, k)) = (self.gemm.plan(), self.tile());
        let registers = plan.registers;
        let rows = [
            ("spec", self.spec.clone()),
            ("predicted or measured", format!("{:.1} us: {}", self.microseconds, self.reason)),
            ("tile", format!("{m} x {n} x {k} elements of M, N and K per CTA")),
            ("cluster", format!("{} x {} CTAs", plan.mainloop.cluster[0], plan.mainloop.cluster[1])),
            ("ring", format!("{} stages of {} bytes", plan.ring.stages, plan.ring.stage_bytes)),
            ("threads", format!("{} per CTA, {} bytes of shared memory", plan.threads, plan.shared_bytes)),
            (
                "registers",
                format!(
                    "{} of a producer's thread, {} of a consumer's",
                    registers.producer, registers.consumer
                ),
            ),
            ("tiles", self.gemm.schedule()),
        ];
        let row = |(name, value): (&str, String)| {
            format!(
                "<tr><th style=\"text-align:left\">{name}</th><td style=\"text-align:left\">{}</td></tr>",
                escaped(&value)
            )
        };
        let picture = self
            .banks()
            .map(|svg| format!("<p>Eight rows of A in shared memory, coloured by bank:</p>{svg}"));
        Ok(format!(
            "<table>{}</table>{}<details><summary>Rust type</summary><code>{}</code></details><details><summary>PTX</summary><pre>{}</pre></details>",
            rows.map(row).concat(),
            picture.unwrap_or_default(),
            escaped(&self.gemm.rust_type()),
            escaped(&self.ptx()?)
        ))
    }

    fn __repr__(&self) -> String {
        let (m, n, k) = self.tile();
        format!("<falchion.Kernel of {m} x {n} x {k} tiles: {:.1} us, {}>", self.microseconds, self.reason)
    }
}

/// What `plan` and `tune` are asked.
struct Asked<'a> {
    extents: [Whole; 3],
    types: &'a str,
    layout: &'a str,
    batch: Whole,
    epilogue: Option<&'a str>,
    reproducible: bool,
}

impl Asked<'_> {
    fn request(&self) -> PyResult<Request<'static>> {
        let Self { extents: [m, n, k], types, layout, batch, epilogue, reproducible } = self;
        let most = i32::MAX as u32;
        let extent = |name: &str, number: &Whole| number.from(name, [0, most]);
        let described = Gemms {
            types: short(types),
            layout: (*layout).to_owned(),
            extents: [extent("m", m)?, extent("n", n)?, extent("k", k)?],
            batch: batch.from("batch", [1, most])?,
            epilogue: epilogue.map(str::to_owned),
            reproducible: *reproducible,
            ..Gemms::default()
        };
        described.asked().map(|asked| asked.request).map_err(|refusal| of_refusal(&refusal))
    }
}

/// The kernels for a GEMM of M x N x K, the one with the shortest predicted time first.
///
/// `types` are the formats of A, B and D, `layout` the contiguous directions of A and B: "kn" for row-major
/// matrices, "kk" for a B that is a transposed view. `card` is the name of a Hopper card; no card is needed.
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
#[pyfunction]
#[pyo3(signature = (m, n, k, *, types="bf16", layout="kn", batch=Whole::Small(1), epilogue=None, reproducible=false, card="h200", most=Whole::Small(1)),
    text_signature = "(m, n, k, *, types='bf16', layout='kn', batch=1, epilogue=None, reproducible=False, card='h200', most=1)")]
pub(crate) fn plan(
    py: Python<'_>,
    m: Whole,
    n: Whole,
    k: Whole,
    types: &str,
    layout: &str,
    batch: Whole,
    epilogue: Option<&str>,
    reproducible: bool,
    card: &str,
    most: Whole,
) -> PyResult<Vec<Kernel>> {
    let request = Asked { extents: [m, n, k], types, layout, batch, epilogue, reproducible }.request()?;
    let machine = of_card(card)?;
    let most: u32 = most.from("most", [1, 1 << 20])?;
    let rank = |_: &Watch| falchion_core::ranked::<AnyGemm>(&request, &machine, most as usize);
    let ranked = watched(py, "falchion: ranking", rank, || ())?.map_err(|refusal| of_refusal(&refusal))?;
    let kernel = |Predicted { kernel, microseconds, reason }| Kernel::new(kernel, microseconds, reason);
    Ok(ranked.into_iter().map(kernel).collect())
}

/// Measures up to `budget` kernels for a GEMM of M x N x K on a card of this machine, and returns the fastest. Its
/// `microseconds` are measured.
///
/// The times are kept on disk (`FALCHION_CACHE`, or the user's folder for caches). `matmul` of the same extents, types,
/// layout and epilogue on this card takes that kernel from then on, in this process and in later ones. What was measured
/// before is not measured again. It takes seconds and memory for another copy of the matrices; other work on the card
/// makes it less exact.
#[expect(clippy::too_many_arguments, reason = "keywords of Python")]
#[pyfunction]
#[pyo3(signature = (m, n, k, *, types="bf16", layout="kn", batch=Whole::Small(1), epilogue=None, reproducible=false, card="cuda:0", budget=Whole::Small(24)),
    text_signature = "(m, n, k, *, types='bf16', layout='kn', batch=1, epilogue=None, reproducible=False, card='cuda:0', budget=24)")]
pub(crate) fn tune(
    py: Python<'_>,
    m: Whole,
    n: Whole,
    k: Whole,
    types: &str,
    layout: &str,
    batch: Whole,
    epilogue: Option<&str>,
    reproducible: bool,
    card: &str,
    budget: Whole,
) -> PyResult<Kernel> {
    let request = Asked { extents: [m, n, k], types, layout, batch, epilogue, reproducible }.request()?;
    let budget = budget.from("budget", [0, u32::MAX])?;
    let Some(ordinal) = of_this_machine(card) else {
        return invalid(format!("card is \"{card}\", one of this machine was needed: cuda:0"));
    };
    let tune = |_: &Watch| Picked::<AnyGemm>::tuned(&request, ordinal, budget);
    let tuned = watched(py, "falchion: measuring", tune, stop_measuring)?;
    let tuned = tuned.map_err(|refusal| of_refusal(&refusal))?;
    Ok(Kernel::new(tuned.kernel().gemm().clone(), tuned.microseconds(), tuned.reason().to_owned()))
}

/// The number of a card of this machine.
pub(crate) fn of_this_machine(name: &str) -> Option<usize> {
    name.strip_prefix("cuda:")?.parse().ok()
}

/// The numbers of a card by name, or of one of this machine: `cuda:0`.
pub(crate) fn of_card(name: &str) -> PyResult<Machine> {
    if let Some(ordinal) = of_this_machine(name) {
        return machine(Some(ordinal)).map_err(|refusal| of_refusal(&refusal));
    }
    match Card::NAMED.iter().find(|(known, _)| *known == name) {
        Some((_, card)) => Ok(Machine::of(card)),
        None => {
            let names: Vec<&str> = Card::NAMED.iter().map(|(name, _)| *name).collect();
            invalid(format!("card is \"{name}\", cuda:0 or one of {} was needed", names.join(", ")))
        }
    }
}

/// How often the columns of a result are halved, and the name of the type of its elements.
#[pyfunction]
#[pyo3(signature = (dtype, epilogue, types))]
pub(crate) fn result(
    dtype: &str,
    epilogue: Option<&str>,
    types: Option<&str>,
) -> PyResult<(u32, &'static str)> {
    let operand = types.and_then(Types::named).map(|types| types.a).or_else(|| format_of(dtype));
    let Some(operand) = operand else {
        return invalid(format!("a has elements of {dtype}, a type of a kernel was needed"));
    };
    let said = types
        .map(|types| falchion_core::types(&short(types)))
        .transpose()
        .map_err(|refusal| of_refusal(&refusal))?;
    let said = said.and_then(|(_, said)| said);
    let Some(text) = epilogue.filter(|text| *text != "acc") else {
        return Ok((0, type_name(said.unwrap_or(operand.output()))));
    };
    let formula = falchion_core::formula(text, operand, said).map_err(|refusal| of_refusal(&refusal))?;
    Ok((formula.halvings(), type_name(formula.output(operand))))
}

/// The page of a kernel for a batch of GEMMs of M x N x K, where these are given: an HTML document. It runs a small GEMM.
#[pyfunction]
#[pyo3(signature = (kernel, title, extents, batch))]
pub(crate) fn page(
    py: Python<'_>,
    kernel: &Bound<'_, Kernel>,
    title: &str,
    extents: Option<[u32; 3]>,
    batch: u32,
) -> PyResult<String> {
    let (gemm, asked) = (&kernel.get().gemm, extents.map_or([None; 3], |extents| extents.map(Some)));
    let draw = |_: &Watch| explore::page(title, gemm, asked, batch, Machine::h200());
    watched(py, "falchion: recording a run", draw, || ())?.or_else(|error| invalid(error.to_string()))
}
