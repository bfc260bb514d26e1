//! Which kernels there are for the arguments of an operation, by the model and by measuring.

use falchion::kernel::driver::stop_measuring;
use falchion::kernel::{Machine, Predicted};
use falchion_core::{Offered, Picked, Watch, choose, machine, ranked};
use pyo3::prelude::*;

use crate::array::{Place, invalid};
use crate::error::of_refusal;
use crate::plan::{of_card, of_this_machine};
use crate::watch::watched;
use crate::whole::Whole;

/// A kernel that was chosen for the arguments of an operation.
#[pyclass(frozen, module = "falchion")]
pub(crate) struct Choice {
    /// The problem, as `falchion plan --family` of the command line takes it.
    #[pyo3(get)]
    problem: String,
    /// The kernel's spec; that of a family's default may be empty.
    #[pyo3(get)]
    spec: String,
    /// Measured or predicted time on the card, in microseconds; `nan` where nothing was predicted.
    #[pyo3(get)]
    microseconds: f64,
    /// Where the time is from, in one sentence; empty for the model's.
    #[pyo3(get)]
    reason: String,
}

#[pymethods]
impl Choice {
    fn __repr__(&self) -> String {
        let Self { problem, spec, microseconds, reason, .. } = self;
        format!("<falchion.Choice for {problem}: {spec}, {microseconds:.1} us {reason}>")
    }
}

/// How a kernel is chosen: by a spec, for a card.
pub(crate) struct How<'a> {
    pub(crate) spec: Option<String>,
    /// The card that was named.
    pub(crate) card: Option<&'a str>,
    /// Where the arrays are.
    pub(crate) place: Place,
}

impl How<'_> {
    /// The card of this machine, if it is one.
    fn ordinal(&self) -> Option<usize> {
        self.card.map_or(self.place.card(), of_this_machine)
    }

    fn machine(&self) -> PyResult<Machine> {
        match self.card {
            Some(card) => of_card(card),
            None => machine(self.ordinal()).map_err(|refusal| of_refusal(&refusal)),
        }
    }
}

/// The kernel that an operation takes for a request, and those that are ranked after it.
pub(crate) fn plan<K: Offered>(
    py: Python<'_>,
    request: &K::Request<'_>,
    how: How<'_>,
    most: &Whole,
) -> PyResult<Vec<Choice>>
where
    for<'r> K::Request<'r>: Sync,
{
    let most: u32 = most.from("most", [1, 1 << 20])?;
    let (machine, ordinal) = (how.machine()?, how.ordinal());
    let rank = |_: &Watch| {
        let first = choose::<K>(request, how.spec.as_deref(), &machine, ordinal)?;
        let others = if most > 1 { ranked::<K>(request, &machine, most as usize + 1)? } else { Vec::new() };
        let spec = first.kernel.spec();
        let others = others.into_iter().filter(|of| of.kernel.spec() != spec);
        Ok([first].into_iter().chain(others).take(most as usize).collect::<Vec<_>>())
    };
    let all = watched(py, "falchion: ranking", rank, || ())?;
    let all = all.map_err(|refusal: falchion_core::Refusal| of_refusal(&refusal))?;
    let problem = K::problem(request).to_string();
    let choice = |Predicted { kernel, microseconds, reason }: Predicted<K>| {
        let spec = kernel.spec().map_or_else(|| kernel.text(), |spec| spec.to_string());
        Choice { problem: problem.clone(), spec, microseconds, reason }
    };
    Ok(all.into_iter().map(choice).collect())
}

/// The kernel that is measured to be the fastest for a request.
pub(crate) fn tune<K: Offered>(
    py: Python<'_>,
    request: &K::Request<'_>,
    how: How<'_>,
    budget: &Whole,
) -> PyResult<Choice>
where
    for<'r> K::Request<'r>: Sync,
{
    let budget = budget.from("budget", [0, u32::MAX])?;
    if let Some(spec) = how.spec {
        return invalid(format!("spec is \"{spec}\", none was needed to tune"));
    }
    let Some(ordinal) = how.ordinal() else {
        let found = how.card.map_or_else(|| how.place.words(), |card| format!("\"{card}\""));
        return invalid(format!("card is {found}, one of this machine was needed: cuda:0"));
    };
    let tune = |_: &Watch| Picked::<K>::tuned(request, ordinal, budget);
    let tuned = watched(py, "falchion: measuring", tune, stop_measuring)?;
    let tuned = tuned.map_err(|refusal| of_refusal(&refusal))?;
    let (spec, reason) = (tuned.name().to_owned(), tuned.reason().to_owned());
    Ok(Choice { problem: K::problem(request).to_string(), spec, microseconds: tuned.microseconds(), reason })
}
