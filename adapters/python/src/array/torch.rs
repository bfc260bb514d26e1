//! torch, once somebody has imported it.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::names::TYPES;
use crate::exchange::Exchange;

/// torch, its types of elements in the order of [`TYPES`], and its class of tensors, once it is imported.
pub(crate) struct Torch {
    pub(crate) module: Py<PyAny>,
    pub(super) tensor: Py<PyAny>,
    pub(super) types: Vec<Option<Py<PyAny>>>,
    /// The layout of tensors that are not sparse.
    pub(super) strided: Py<PyAny>,
    stream: Py<PyAny>,
    /// Whether operations are recorded for gradients.
    records: Py<PyAny>,
    pub(super) exchange: Option<Exchange>,
}

impl Torch {
    /// torch, if somebody has imported it: there are no tensors before.
    pub(crate) fn imported(py: Python<'_>) -> Option<&Self> {
        static TORCH: PyOnceLock<Torch> = PyOnceLock::new();
        if let Some(torch) = TORCH.get(py) {
            return Some(torch);
        }
        let modules = py.import("sys").ok()?.getattr("modules").ok()?;
        let module = modules.call_method1("get", ("torch",)).ok().filter(|module| !module.is_none())?;
        let types = TYPES.iter().map(|of| module.getattr(of.name).ok().map(Bound::unbind)).collect();
        // The stream's handle without an object for the stream. An older torch has only the object.
        let inner = module.getattr("_C").and_then(|inner| inner.getattr("_cuda_getCurrentRawStream"));
        let stream = inner.map_or_else(|_| py.None(), Bound::unbind);
        let tensor = module.getattr("Tensor").ok()?;
        let records = module.getattr("is_grad_enabled").ok()?.unbind();
        let strided = module.getattr("strided").ok()?.unbind();
        let exchange = Exchange::of(&tensor);
        let tensor = tensor.unbind();
        let all = Self { module: module.unbind(), tensor, types, strided, stream, records, exchange };
        Some(TORCH.get_or_init(py, || all))
    }

    /// Whether operations are recorded now.
    pub(super) fn records(&self, py: Python<'_>) -> PyResult<bool> {
        self.records.bind(py).call0()?.is_truthy()
    }

    /// The handle of a card's current stream.
    pub(crate) fn stream(&self, py: Python<'_>, ordinal: usize) -> PyResult<usize> {
        if let Some(exchange) = &self.exchange {
            return exchange.stream(py, ordinal);
        }
        if self.stream.is_none(py) {
            let cuda = self.module.bind(py).getattr("cuda")?;
            return cuda.call_method1("current_stream", (ordinal,))?.getattr("cuda_stream")?.extract();
        }
        self.stream.bind(py).call1((ordinal,))?.extract()
    }

    /// The tensor without its negative bit, where somebody set it: a copy then. Complex numbers, which may have the other such bit, are no
    /// elements of a kernel.
    pub(super) fn resolved<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = object.py();
        let negative = object.call_method0(intern!(py, "is_neg"))?.is_truthy()?;
        negative.then(|| object.call_method0(intern!(py, "resolve_neg"))).transpose()
    }
}
