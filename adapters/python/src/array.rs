//! Arrays of numpy, tensors of torch, and whatever else says where its elements are.

use falchion::collective::Format;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{PyTypeInfo, intern};

use crate::exchange::Exchange;

/// Where the elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Host,
    Cuda(usize),
}

impl Place {
    pub(crate) fn words(self) -> String {
        match self {
            Self::Host => "the host's memory".to_owned(),
            Self::Cuda(ordinal) => format!("cuda:{ordinal}"),
        }
    }
}

/// What has elements: an array of numpy, or a tensor of torch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Library {
    Numpy,
    Torch,
}

/// The most dimensions of an array.
pub(crate) const MOST: usize = 4;

/// An array: where its elements are, and how far apart, in elements.
#[derive(Clone, Debug)]
pub(crate) struct Array<'py> {
    pub(crate) object: Bound<'py, PyAny>,
    pub(crate) library: Library,
    pub(crate) place: Place,
    pub(crate) address: u64,
    /// Extents and distances of the dimensions.
    sizes: [[i64; 2]; MOST],
    rank: usize,
    /// The format that its type says.
    pub(crate) format: Option<Format>,
    /// Bytes per element.
    pub(crate) bytes: u32,
    view: View,
}

/// How an array differs from its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct View {
    /// All dimensions but the last are one.
    rows: bool,
    /// Then the last two are swapped.
    turned: bool,
}

/// A `ValueError`.
pub(crate) fn invalid<T>(words: impl Into<String>) -> PyResult<T> {
    Err(PyValueError::new_err(words.into()))
}

/// The types of elements: the names of numpy (with `ml_dtypes`) and of torch.
const TYPES: [(&str, Option<Format>, u32); 13] = [
    ("float32", Some(Format::F32), 4),
    ("float16", Some(Format::F16), 2),
    ("bfloat16", Some(Format::Bf16), 2),
    ("float8_e4m3fn", Some(Format::E4m3), 1),
    ("float8_e5m2", Some(Format::E5m2), 1),
    ("int8", Some(Format::S8), 1),
    ("uint8", Some(Format::U8), 1),
    ("int32", Some(Format::S32), 4),
    ("float64", Some(Format::F64), 8),
    ("uint16", None, 2),
    ("uint32", None, 4),
    ("int16", None, 2),
    ("int64", None, 8),
];

/// The name of the type of a format's elements.
pub(crate) fn type_name(format: Format) -> &'static str {
    let format = if format == Format::Tf32 { Format::F32 } else { format };
    TYPES.iter().find(|(_, of, _)| *of == Some(format)).map_or("float32", |(name, ..)| name)
}

/// The format of a type's name.
pub(crate) fn format_of(name: &str) -> Option<Format> {
    TYPES.iter().find(|(known, ..)| *known == name).and_then(|(_, format, _)| *format)
}

/// torch, its types of elements in the order of [`TYPES`], and its class of tensors, once it is imported.
pub(crate) struct Torch {
    pub(crate) module: Py<PyAny>,
    tensor: Py<PyAny>,
    types: Vec<Option<Py<PyAny>>>,
    stream: Py<PyAny>,
    /// Whether operations are recorded for gradients.
    records: Py<PyAny>,
    exchange: Option<Exchange>,
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
        let types = TYPES.iter().map(|(name, ..)| module.getattr(*name).ok().map(Bound::unbind)).collect();
        // The stream's handle without an object for the stream. An older torch has only the object.
        let inner = module.getattr("_C").and_then(|inner| inner.getattr("_cuda_getCurrentRawStream"));
        let stream = inner.map_or_else(|_| py.None(), Bound::unbind);
        let tensor = module.getattr("Tensor").ok()?;
        let records = module.getattr("is_grad_enabled").ok()?.unbind();
        let exchange = Exchange::of(&tensor);
        let tensor = tensor.unbind();
        let all = Self { module: module.unbind(), tensor, types, stream, records, exchange };
        Some(TORCH.get_or_init(py, || all))
    }

    /// Whether operations are recorded now.
    fn records(&self, py: Python<'_>) -> PyResult<bool> {
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
}

impl<'py> Array<'py> {
    /// The array of an argument.
    pub(crate) fn of(name: &str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if let Some(torch) = Torch::imported(py) {
            let class = torch.tensor.bind(py);
            // Subclasses, which may have no memory, have only attributes.
            if let (Some(exchange), true) = (&torch.exchange, object.get_type().is(class))
                && let Some(array) = Self::exchanged(object, exchange)
            {
                return Ok(array);
            }
            if object.is_instance(class)? {
                return Self::of_tensor(name, object, torch);
            }
        }
        if object.hasattr(intern!(py, "__array_interface__"))? {
            return Self::of_numpy(name, object);
        }
        if object.hasattr(intern!(py, "__dlpack__"))? {
            // The library that knows the place of the elements takes them over.
            let place: (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
            let library = if place.0 == 1 { "numpy" } else { "torch" };
            let taken = py.import(library)?.getattr("from_dlpack")?.call1((object,))?;
            return Self::of(name, &taken);
        }
        invalid(format!(
            "{name} is of type {}, an array of numpy, a tensor of torch or an object with __dlpack__ was needed",
            object.get_type().name()?
        ))
    }

    /// A table of whole numbers of 32 bits. torch's and numpy's own integers have 64: in the host's memory they are converted, if they fit.
    /// On a card the caller has to do it, because it takes memory and a launch, which nobody expects in a captured graph.
    pub(crate) fn table(name: &str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let (table, py) = (Self::of(name, object)?, object.py());
        if table.format.is_some() || table.bytes != 8 {
            return Ok(table);
        }
        if let Place::Cuda(ordinal) = table.place {
            return invalid(format!(
                "{name} has elements of int64 on cuda:{ordinal}, int32 was needed: pass {name}.to(torch.int32)"
            ));
        }
        if table.shape().iter().all(|&extent| extent > 0) {
            for end in [intern!(py, "min"), intern!(py, "max")] {
                let number: i64 =
                    table.object.call_method0(end)?.call_method0(intern!(py, "item"))?.extract()?;
                if i32::try_from(number).is_err() {
                    return invalid(format!(
                        "{name} has the number {number}, numbers that int32 holds were needed"
                    ));
                }
            }
        }
        let converted = match table.library {
            Library::Numpy => table.object.call_method1(intern!(py, "astype"), (intern!(py, "int32"),)),
            Library::Torch => {
                let dtype = py.import(intern!(py, "torch"))?.getattr(intern!(py, "int32"))?;
                table.object.call_method1(intern!(py, "to"), (dtype,))
            }
        };
        Self::of(name, &converted?)
    }

    /// Whether its elements are whole numbers of 32 bits.
    pub(crate) fn is_whole(&self) -> bool {
        self.bytes == 4 && self.format != Some(Format::F32)
    }

    /// The numbers of a table, if it is in the host's memory.
    pub(crate) fn numbers(&self) -> PyResult<Option<Vec<i64>>> {
        if self.place != Place::Host {
            return Ok(None);
        }
        let flat = self.object.call_method1("reshape", (-1,))?;
        flat.call_method0("tolist")?.extract().map(Some)
    }

    /// The tensor of an exchange; `None` for a type, a place or a rank that is refused with its attributes.
    fn exchanged(object: &Bound<'py, PyAny>, exchange: &Exchange) -> Option<Self> {
        let tensor = exchange.tensor(object)?;
        let place = match tensor.device {
            [1, _] => Place::Host,
            [2, ordinal] => Place::Cuda(usize::try_from(ordinal).ok()?),
            _ => return None,
        };
        let dtype = tensor.dtype()?;
        let (_, format, bytes) = TYPES.iter().find(|(name, ..)| *name == dtype)?;
        let (sizes, rank) = tensor.sizes::<MOST>()?;
        let (library, address) = (Library::Torch, tensor.address());
        let (format, bytes) = (*format, *bytes);
        let view = View::default();
        Some(Self { object: object.clone(), library, place, address, sizes, rank, format, bytes, view })
    }

    /// Whether torch records what becomes of the array, for a gradient.
    pub(crate) fn recorded(&self) -> PyResult<bool> {
        let py = self.object.py();
        match (self.library, Torch::imported(py)) {
            (Library::Torch, Some(torch)) if torch.records(py)? => {
                self.object.getattr(intern!(py, "requires_grad"))?.is_truthy()
            }
            _ => Ok(false),
        }
    }

    fn of_tensor(name: &str, object: &Bound<'py, PyAny>, torch: &Torch) -> PyResult<Self> {
        let py = object.py();
        let place = if object.getattr(intern!(py, "is_cuda"))?.is_truthy()? {
            Place::Cuda(object.call_method0(intern!(py, "get_device"))?.extract()?)
        } else if object.getattr(intern!(py, "is_cpu"))?.is_truthy()? {
            Place::Host
        } else {
            let device = object.getattr("device")?;
            return invalid(format!("{name} is on {device}, cpu or cuda was needed"));
        };
        let dtype = object.getattr(intern!(py, "dtype"))?;
        let known = torch.types.iter().position(|of| of.as_ref().is_some_and(|of| of.is(&dtype)));
        let Some(index) = known else {
            return invalid(format!("{name} has elements of {dtype}, {} was needed", names()));
        };
        let shape = object.getattr(intern!(py, "shape"))?;
        let strides = object.call_method0(intern!(py, "stride"))?;
        let address = object.call_method0(intern!(py, "data_ptr"))?.extract()?;
        let (shape, strides) = (shape.cast_into::<PyTuple>()?, strides.cast_into::<PyTuple>()?);
        let all = Self {
            object: object.clone(),
            library: Library::Torch,
            place,
            address,
            sizes: [[1, 0]; MOST],
            rank: 0,
            format: TYPES[index].1,
            bytes: TYPES[index].2,
            view: View::default(),
        };
        all.sized(name, &shape, &strides, 1)
    }

    fn of_numpy(name: &str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let array = py.import("numpy")?.call_method1("asarray", (object,))?;
        let dtype: String = array.getattr("dtype")?.getattr("name")?.extract()?;
        let Some(&(_, format, bytes)) = TYPES.iter().find(|(name, ..)| *name == dtype) else {
            return invalid(format!("{name} has elements of {dtype}, {} was needed", names()));
        };
        let address = array.getattr("ctypes")?.getattr("data")?.extract()?;
        let (shape, strides) = (array.getattr("shape")?, array.getattr("strides")?);
        let (shape, strides) = (shape.cast_into::<PyTuple>()?, strides.cast_into::<PyTuple>()?);
        let all = Self {
            object: array,
            library: Library::Numpy,
            place: Place::Host,
            address,
            sizes: [[1, 0]; MOST],
            rank: 0,
            format,
            bytes,
            view: View::default(),
        };
        all.sized(name, &shape, &strides, bytes.into())
    }

    fn sized(
        mut self,
        name: &str,
        shape: &Bound<'py, PyTuple>,
        strides: &Bound<'py, PyTuple>,
        unit: i64,
    ) -> PyResult<Self> {
        if shape.len() > MOST {
            return invalid(format!("{name} has {} dimensions, {MOST} or fewer were needed", shape.len()));
        }
        self.rank = shape.len();
        for (i, size) in self.sizes.iter_mut().take(self.rank).enumerate() {
            let stride: i64 = strides.get_item(i)?.extract()?;
            // A distance that is no whole number of elements is refused where it is asked for.
            let elements = if stride % unit == 0 { stride / unit } else { i64::MIN };
            *size = [shape.get_item(i)?.extract()?, elements];
        }
        Ok(self)
    }

    /// Number of dimensions.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Extent and distance of a dimension, counted from the last one. Dimensions in front of the first are 1.
    pub(crate) fn last(&self, i: usize) -> [i64; 2] {
        if i < self.rank { self.sizes[self.rank - 1 - i] } else { [1, 0] }
    }

    pub(crate) fn shape(&self) -> Vec<i64> {
        self.sizes[..self.rank].iter().map(|[extent, _]| *extent).collect()
    }

    /// The shape, for errors: `(3, 4)`.
    pub(crate) fn shape_words(&self) -> String {
        shape_words(&self.shape())
    }

    /// The array as a matrix, whose columns are the last dimension: as it lies, or a copy.
    pub(crate) fn rows(self, name: &str) -> PyResult<Self> {
        if self.rank == 2 {
            return Ok(self);
        }
        let lead = &self.sizes[..self.rank.saturating_sub(1)];
        let mut whole = [1, self.last(1)[1]];
        let mut fits = self.rank > 0;
        for &[extent, stride] in lead.iter().rev().filter(|[extent, _]| *extent != 1) {
            fits &= whole[0] == 1 || stride == whole[0] * whole[1];
            whole = [whole[0] * extent, if whole[0] == 1 { stride } else { whole[1] }];
        }
        // Rows that are not there lie anywhere.
        if self.rank > 0 && lead.iter().any(|[extent, _]| *extent == 0) {
            (fits, whole) = (true, [0, self.last(0)[0]]);
        }
        if !fits {
            let shape = (-1, self.last(0)[0]);
            return Self::of(
                name,
                &self.object.call_method1(intern!(self.object.py(), "reshape"), (shape,))?,
            );
        }
        let mut sizes = [[1, 0]; MOST];
        [sizes[0], sizes[1]] = [whole, self.last(0)];
        Ok(Self { sizes, rank: 2, view: View { rows: true, ..self.view }, ..self })
    }

    /// The array as it is, or as a matrix.
    pub(crate) fn rows_of(self, rows: bool) -> PyResult<Self> {
        if rows { self.rows("out") } else { Ok(self) }
    }

    /// A matrix with its dimensions swapped.
    pub(crate) fn turned(mut self) -> Self {
        self.sizes.swap(0, 1);
        self.view.turned = !self.view.turned;
        self
    }

    /// The object as the array is.
    fn viewed(&self) -> PyResult<Bound<'py, PyAny>> {
        let View { rows, turned } = self.view;
        let columns = self.last(usize::from(turned))[0];
        let object = match rows {
            true => self.object.call_method1("reshape", (-1, columns))?,
            false => self.object.clone(),
        };
        if turned { object.getattr("T") } else { Ok(object) }
    }

    /// The name of the type of the elements, as their library has it.
    pub(crate) fn type_words(&self) -> String {
        let name = self.object.getattr("dtype").map(|dtype| dtype.to_string());
        name.unwrap_or_else(|_| "another type".to_owned())
    }

    /// A packed copy; with `transposed` it is packed along its last dimension but one.
    pub(crate) fn copied(&self, name: &str, transposed: bool) -> PyResult<Self> {
        let py = self.object.py();
        let turned = |object: &Bound<'py, PyAny>| -> PyResult<Bound<'py, PyAny>> {
            if !transposed {
                return Ok(object.clone());
            }
            match self.library {
                Library::Numpy => object.call_method1(intern!(py, "swapaxes"), (-1, -2)),
                Library::Torch => object.getattr(intern!(py, "mT")),
            }
        };
        let object = turned(&self.viewed()?)?;
        let packed = match self.library {
            Library::Numpy => py.import("numpy")?.call_method1("ascontiguousarray", (object,))?,
            Library::Torch => object.call_method0(intern!(py, "contiguous"))?,
        };
        Self::of(name, &turned(&packed)?)
    }

    /// A new array of a shape with elements of the same type, in the same place.
    pub(crate) fn room(&self, shape: &[i64]) -> PyResult<Bound<'py, PyAny>> {
        let py = self.object.py();
        let shape = PyTuple::new(py, shape)?;
        match self.library {
            Library::Numpy => {
                let dtype = self.object.getattr(intern!(py, "dtype"))?;
                py.import("numpy")?.call_method1("empty", (shape, dtype))
            }
            Library::Torch => self.object.call_method1(intern!(py, "new_empty"), (shape,)),
        }
    }

    /// A new array of a shape in the same place, whose elements have this format. The same type needs no name.
    pub(crate) fn alike(&self, shape: &[i64], format: Format) -> PyResult<Bound<'py, PyAny>> {
        if self.format == Some(format) { self.room(shape) } else { self.empty(shape, format, false) }
    }

    /// A new array of a shape, in the same place. Its elements have this format, with a type of this array's library.
    pub(crate) fn empty(&self, shape: &[i64], format: Format, zeros: bool) -> PyResult<Bound<'py, PyAny>> {
        let py = self.object.py();
        let shape = PyTuple::new(py, shape)?;
        match self.library {
            Library::Numpy => {
                let numpy = py.import("numpy")?;
                let dtype = if self.format == Some(format) {
                    self.object.getattr("dtype")?
                } else {
                    numpy_type(py, format)?
                };
                numpy.call_method1(if zeros { "zeros" } else { "empty" }, (shape, dtype))
            }
            Library::Torch => {
                let index = TYPES.iter().position(|(name, ..)| *name == type_name(format));
                let types = Torch::imported(py).map(|torch| &torch.types);
                let dtype = index.zip(types).and_then(|(index, types)| types[index].as_ref());
                let options = PyDict::new(py);
                options.set_item(intern!(py, "dtype"), dtype)?;
                let name: &Bound<'py, PyString> =
                    if zeros { intern!(py, "new_zeros") } else { intern!(py, "new_empty") };
                self.object.call_method(name, (shape,), Some(&options))
            }
        }
    }
}

/// numpy's type for a format: of `ml_dtypes` where numpy has none, or else unsigned integers of its size.
fn numpy_type<'py>(py: Python<'py>, format: Format) -> PyResult<Bound<'py, PyAny>> {
    let (numpy, name) = (py.import("numpy")?, type_name(format));
    if let Ok(found) = numpy.getattr(name) {
        return numpy.call_method1("dtype", (found,));
    }
    match py.import("ml_dtypes").and_then(|types| types.getattr(name)) {
        Ok(found) => numpy.call_method1("dtype", (found,)),
        Err(_) => numpy.call_method1("dtype", (if format.bytes() == 1 { "uint8" } else { "uint16" },)),
    }
}

/// The names of the types that are multiplied.
pub(crate) fn names() -> String {
    let names: Vec<&str> = TYPES.iter().filter(|(_, of, _)| of.is_some()).map(|(name, ..)| *name).collect();
    names.join(", ")
}

/// A shape as Python writes it.
pub(crate) fn shape_words(shape: &[i64]) -> String {
    let words: Vec<String> = shape.iter().map(i64::to_string).collect();
    if let [one] = words.as_slice() { format!("({one},)") } else { format!("({})", words.join(", ")) }
}

/// Whether an object is a number.
pub(crate) fn number(object: &Bound<'_, PyAny>) -> Option<f64> {
    let is = pyo3::types::PyFloat::is_type_of(object) || pyo3::types::PyInt::is_type_of(object);
    is.then(|| object.extract().ok()).flatten()
}

/// An extent of an array, for a kernel.
pub(crate) fn extent(name: &str, array: &Array<'_>, extent: i64) -> PyResult<u32> {
    u32::try_from(extent).map_err(|_| {
        PyValueError::new_err(format!(
            "{name} has shape {}, extents below 2^31 were needed",
            array.shape_words()
        ))
    })
}

/// The names of formats in place of those of numpy and torch.
pub(crate) fn short(types: &str) -> String {
    let word =
        |word: &str| format_of(word).map_or_else(|| word.to_owned(), |format| format.name().to_owned());
    types.split('-').map(word).collect::<Vec<_>>().join("-")
}
