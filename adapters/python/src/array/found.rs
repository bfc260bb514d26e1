//! What an object says of itself: an array of numpy, a tensor of torch, or whatever else has `__dlpack__`.
//!
//! Its memory stays closed: [`Found::admit`](super::Found::admit) gives an address, once the argument's rule has been checked.

use falchion::collective::Format;
use pyo3::exceptions::{PyException, PyMemoryError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use pyo3::{PyErr, intern};

use super::names::{Element, TYPES, names};
use super::torch::Torch;
use super::{Library, MOST, Place, invalid, shape_words};
use crate::exchange::Exchange;

/// How an array differs from its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    /// All dimensions but the last are one.
    pub(super) rows: bool,
    /// Then the last two are swapped.
    pub(super) turned: bool,
}

/// An argument that is an array: its type, shape and place.
#[derive(Clone, Debug)]
pub(crate) struct Found<'py> {
    pub(super) object: Bound<'py, PyAny>,
    pub(super) library: Library,
    pub(super) place: Place,
    pub(super) address: u64,
    /// Extents and distances of the dimensions. Distances are in elements; in bytes if they are not [`whole`](Self::whole).
    pub(super) sizes: [[i64; 2]; MOST],
    pub(super) rank: usize,
    /// The type of the elements, if some argument may have it.
    pub(super) element: Option<&'static Element>,
    /// Whether distances are whole numbers of elements.
    pub(super) whole: bool,
    /// Whether it is a copy of what was given, which had numbers with the sign to be changed.
    pub(super) copied: bool,
    pub(super) view: View,
}

impl<'py> Found<'py> {
    /// The array of an argument.
    ///
    /// # Errors
    /// `TypeError` for what is no array; `ValueError` for an array that no argument may be: with big-endian elements, sparse, without memory,
    /// on another device, or with too many dimensions.
    pub(crate) fn of(name: &str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        if let Some(torch) = Torch::imported(py) {
            let class = torch.tensor.bind(py);
            // Subclasses, which may have no memory, have only attributes.
            if let (Some(exchange), true) = (&torch.exchange, object.get_type().is(class))
                && let Some(found) = Self::exchanged(object, exchange)
            {
                return found.resolved(name);
            }
            if object.is_instance(class)? {
                let found = Self::of_tensor(name, object, torch);
                return found.map_err(|error| named(py, name, error))?.resolved(name);
            }
        }
        if object.hasattr(intern!(py, "__array_interface__"))? {
            return Self::of_numpy(name, object).map_err(|error| named(py, name, error))?.there(name);
        }
        if object.hasattr(intern!(py, "__dlpack__"))? {
            let taken = Self::taken(object).map_err(|error| named(py, name, error))?;
            return Self::of(name, &taken);
        }
        Err(PyTypeError::new_err(format!(
            "{name} is of type {}, an array of numpy, a tensor of torch or an object with __dlpack__ was needed",
            object.get_type().name()?
        )))
    }

    /// The library that knows the place of the elements takes them over.
    fn taken(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let place: (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
        let library = if place.0 == 1 { "numpy" } else { "torch" };
        object.py().import(library)?.getattr("from_dlpack")?.call1((object,))
    }

    /// The tensor of an exchange; `None` for a type, a place or a rank that is refused with its attributes.
    fn exchanged(object: &Bound<'py, PyAny>, exchange: &Exchange) -> Option<Self> {
        let tensor = exchange.tensor(object)?;
        let place = match tensor.device {
            [1, _] => Place::Host,
            [2, ordinal] => Place::Cuda(usize::try_from(ordinal).ok()?),
            _ => return None,
        };
        let element = Some(Element::named(tensor.dtype()?)?);
        let (sizes, rank) = tensor.sizes::<MOST>()?;
        let (library, address) = (Library::Torch, tensor.address());
        let (object, view, sizes) = (object.clone(), View::default(), settled(sizes, rank));
        Some(Self { object, library, place, address, sizes, rank, element, whole: true, copied: false, view })
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
        let layout = object.getattr(intern!(py, "layout"))?;
        if !layout.is(torch.strided.bind(py)) || object.getattr("is_nested")?.is_truthy()? {
            return invalid(format!(
                "{name} is sparse or nested ({layout}), a dense tensor was needed: {name}.to_dense() is one"
            ));
        }
        let dtype = object.getattr(intern!(py, "dtype"))?;
        let known = torch.types.iter().position(|of| of.as_ref().is_some_and(|of| of.is(&dtype)));
        let shape = object.getattr(intern!(py, "shape"))?.cast_into::<PyTuple>()?;
        let strides = object.call_method0(intern!(py, "stride"))?.cast_into::<PyTuple>()?;
        let address = match known {
            Some(_) => object.call_method0(intern!(py, "data_ptr"))?.extract()?,
            None => 0,
        };
        let element = known.map(|index| &TYPES[index]);
        Self::sized(name, (object.clone(), Library::Torch, place), (address, element), [&shape, &strides], 1)
    }

    fn of_numpy(name: &str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let numpy = py.import(intern!(py, "numpy"))?;
        // What is no plain array may be a masked one, whose mask would be lost.
        if !object.get_type().is(&numpy.getattr(intern!(py, "ndarray"))?)
            && object.is_instance(&numpy.getattr("ma")?.getattr("MaskedArray")?)?
        {
            return invalid(format!(
                "{name} is a masked array, one without a mask was needed: {name}.filled(0) is one"
            ));
        }
        let array = numpy.call_method1(intern!(py, "asarray"), (object,))?;
        let dtype = array.getattr(intern!(py, "dtype"))?;
        let size: u32 = dtype.getattr(intern!(py, "itemsize"))?.extract()?;
        let known = Element::named(&dtype.getattr(intern!(py, "name"))?.extract::<String>()?);
        let element = known.filter(|of| of.bytes == size);
        if let Some(of) = element
            && !dtype.getattr(intern!(py, "isnative"))?.is_truthy()?
        {
            let order = dtype.getattr("str")?;
            return invalid(format!(
                "{name} has elements of {order}, the machine's own order of bytes was needed: {name}.astype(\"{}\") has it",
                of.name
            ));
        }
        let address = array.getattr(intern!(py, "ctypes"))?.getattr(intern!(py, "data"))?.extract()?;
        let shape = array.getattr(intern!(py, "shape"))?.cast_into::<PyTuple>()?;
        let strides = array.getattr(intern!(py, "strides"))?.cast_into::<PyTuple>()?;
        let of = (array, Library::Numpy, Place::Host);
        Self::sized(name, of, (address, element), [&shape, &strides], size.max(1).into())
    }

    fn sized(
        name: &str,
        (object, library, place): (Bound<'py, PyAny>, Library, Place),
        (address, element): (u64, Option<&'static Element>),
        [shape, strides]: [&Bound<'py, PyTuple>; 2],
        unit: i64,
    ) -> PyResult<Self> {
        let rank = shape.len();
        if rank > MOST {
            return invalid(format!("{name} has {rank} dimensions, {MOST} or fewer were needed"));
        }
        let mut sizes = [[1, 0]; MOST];
        for (i, size) in sizes.iter_mut().take(rank).enumerate() {
            *size = [shape.get_item(i)?.extract()?, strides.get_item(i)?.extract()?];
        }
        let unmeasured = sizes[..rank].iter().any(|[extent, _]| *extent == 0);
        let whole = unmeasured || sizes.iter().all(|[extent, stride]| *extent < 2 || stride % unit == 0);
        if whole {
            sizes.iter_mut().for_each(|[_, stride]| *stride /= unit);
        }
        let (view, sizes) = (View::default(), settled(sizes, rank));
        Ok(Self { object, library, place, address, sizes, rank, element, whole, copied: false, view })
    }

    /// The tensor with the numbers that it stands for.
    fn resolved(self, name: &str) -> PyResult<Self> {
        let py = self.object.py();
        match Torch::resolved(&self.object).map_err(|error| named(py, name, error))? {
            None => self.there(name),
            Some(copy) => Ok(Self { copied: true, ..Self::of(name, &copy)? }),
        }
    }

    /// The array, if it has memory.
    fn there(self, name: &str) -> PyResult<Self> {
        if self.address == 0 && self.element.is_some() && !self.is_empty() {
            return invalid(format!("{name} has shape {} and no memory", self.shape_words()));
        }
        Ok(self)
    }

    /// The object that was given, or the copy that is read in its place.
    pub(crate) fn object(&self) -> &Bound<'py, PyAny> {
        &self.object
    }

    /// What it is an array of.
    pub(crate) fn library(&self) -> Library {
        self.library
    }

    /// Where its elements are.
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    /// The format that its type says.
    pub(crate) fn format(&self) -> Option<Format> {
        self.element.and_then(|of| of.format)
    }

    /// Number of dimensions.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// Whether it has no elements.
    pub(crate) fn is_empty(&self) -> bool {
        self.sizes[..self.rank].iter().any(|[extent, _]| *extent == 0)
    }

    /// Whether the elements follow each other without gaps.
    pub(crate) fn is_packed(&self) -> bool {
        let stride = (0..self.rank).try_fold(1, |stride, i| {
            let [extent, found] = self.last(i);
            (extent <= 1 || found == stride).then_some(stride * extent.max(1))
        });
        stride.is_some()
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

    /// The name of the type of the elements, as their library has it.
    pub(crate) fn type_words(&self) -> String {
        let name = self.object.getattr("dtype").map(|dtype| dtype.to_string());
        name.map_or_else(|_| "another type".to_owned(), |name| name.trim_start_matches("torch.").to_owned())
    }

    /// Checks that the elements have one of these types; any of those that some argument may have, if there are none.
    pub(crate) fn one_of(&self, name: &str, types: &[String]) -> PyResult<()> {
        let known = |of: &&Element| types.is_empty() || types.iter().any(|name| name == of.name);
        if self.element.as_ref().is_some_and(known) {
            return Ok(());
        }
        let needed = if types.is_empty() { names() } else { types.join(" or ") };
        invalid(format!("{name} has elements of {}, {needed} was needed", self.type_words()))
    }

    /// The format of elements that are multiplied.
    pub(crate) fn multiplied(&self, name: &str) -> PyResult<Format> {
        match self.format() {
            Some(format) => Ok(format),
            None => invalid(format!(
                "{name} has elements of {}, {} was needed, or types= for unsigned integers of the same size, for example \"bf16\"",
                self.type_words(),
                names()
            )),
        }
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
            fits &= whole[0] == 1 || Some(stride) == i64::checked_mul(whole[0], whole[1]);
            whole = [whole[0].saturating_mul(extent), if whole[0] == 1 { stride } else { whole[1] }];
        }
        // Rows that are not there lie anywhere.
        if self.rank > 0 && lead.iter().any(|[extent, _]| *extent == 0) {
            (fits, whole) = (true, [0, self.last(0)[0]]);
        }
        if !fits {
            let shape = (-1, self.last(0)[0]);
            let object = self.object.call_method1(intern!(self.object.py(), "reshape"), (shape,))?;
            // A copy, if it is no view: nobody sees what is written there.
            return Ok(Self { copied: true, ..Self::of(name, &object)? });
        }
        let mut sizes = [[1, 0]; MOST];
        [sizes[0], sizes[1]] = [whole, self.last(0)];
        Ok(Self { sizes, rank: 2, view: View { rows: true, ..self.view }, ..self })
    }

    /// A matrix with its dimensions swapped.
    pub(crate) fn turned(mut self) -> Self {
        self.sizes.swap(0, 1);
        self.view.turned = !self.view.turned;
        self
    }
}

/// Extents and distances, those of an array without elements as if it was packed: any are right, and libraries differ in them.
fn settled(mut sizes: [[i64; 2]; MOST], rank: usize) -> [[i64; 2]; MOST] {
    if sizes[..rank].iter().any(|[extent, _]| *extent == 0) {
        let mut next = 1;
        for [extent, stride] in sizes[..rank].iter_mut().rev() {
            (*stride, next) = (next, i64::saturating_mul(next, (*extent).max(1)));
        }
    }
    sizes
}

/// An error of an array's own library, as one of the argument. What is no error of the array stays.
fn named(py: Python<'_>, name: &str, error: PyErr) -> PyErr {
    let words = error.value(py).to_string();
    let own = error.is_instance_of::<PyValueError>(py) && words.starts_with(name);
    if own || error.is_instance_of::<PyMemoryError>(py) || !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let first = words.lines().next().unwrap_or_default();
    PyValueError::new_err(format!("{name} cannot be read: {first}"))
}
