//! Arrays of numpy, tensors of torch, and whatever else says where its elements are.
//!
//! [`Found`] is an argument as it describes itself. [`Array`] is one that was admitted by its [`Rule`]: it alone has an address, and nothing
//! outside of this module makes one.

mod admit;
mod found;
mod names;
mod torch;

use core::ops::Deref;

use falchion::collective::Format;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{PyTypeInfo, intern};

pub(crate) use admit::{Access, Elements, Rule};
pub(crate) use found::Found;
use found::View;
pub(crate) use names::{format_of, shape_words, short, type_name};
pub(crate) use torch::Torch;

/// Where the elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Host,
    Cuda(usize),
}

impl Place {
    /// The card's number; `None` is the host.
    pub(crate) const fn card(self) -> Option<usize> {
        match self {
            Self::Host => None,
            Self::Cuda(ordinal) => Some(ordinal),
        }
    }

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

/// What is in a new array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// Anything.
    Nothing,
    Zeros,
    /// Minus infinity.
    Least,
}

/// An admitted array: where its elements are, and how far apart, in elements.
#[derive(Clone, Debug)]
pub(crate) struct Array<'py> {
    found: Found<'py>,
    format: Format,
}

impl<'py> Deref for Array<'py> {
    type Target = Found<'py>;

    fn deref(&self) -> &Found<'py> {
        &self.found
    }
}

/// A `ValueError`.
pub(crate) fn invalid<T>(words: impl Into<String>) -> PyResult<T> {
    Err(PyValueError::new_err(words.into()))
}

impl<'py> Array<'py> {
    /// The address of the first element.
    pub(crate) fn address(&self) -> u64 {
        self.found.address
    }

    /// Bytes per element.
    pub(crate) fn bytes(&self) -> u32 {
        self.found.element.map_or(self.format.bytes(), |of| of.bytes)
    }

    /// Another array with elements of the same type: a copy or a view of this one.
    fn again(&self, name: &str, object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Ok(Self { found: Found::of(name, object)?, format: self.format })
    }

    /// A packed array as a matrix with the rows of all leading dimensions.
    pub(crate) fn in_rows(self, name: &str) -> PyResult<Self> {
        Ok(Self { found: self.found.rows(name)?, ..self })
    }

    /// The numbers of a table, if it is in the host's memory.
    pub(crate) fn numbers(&self) -> PyResult<Option<Vec<i64>>> {
        if self.place() != Place::Host {
            return Ok(None);
        }
        let flat = self.object.call_method1("reshape", (-1,))?;
        flat.call_method0("tolist")?.extract().map(Some)
    }

    /// Its numbers as reals, if the host can read them.
    pub(crate) fn reals(&self) -> PyResult<Option<Vec<f64>>> {
        if self.place() != Place::Host {
            return Ok(None);
        }
        let flat = self.object.call_method1("reshape", (-1,))?;
        flat.call_method0("tolist")?.extract().map(Some)
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
            Library::Numpy => {
                let options = PyDict::new(py);
                options.set_item(intern!(py, "order"), intern!(py, "C"))?;
                py.import("numpy")?.call_method("array", (object,), Some(&options))?
            }
            Library::Torch => match object.call_method0(intern!(py, "contiguous"))? {
                same if same.is(&object) => same.call_method0(intern!(py, "clone"))?,
                copy => copy,
            },
        };
        self.again(name, &turned(&packed)?)
    }

    /// An array of one dimension with the same elements.
    pub(crate) fn flat(&self, name: &str) -> PyResult<Self> {
        let packed = if self.is_packed() { self.clone() } else { self.copied(name, false)? };
        self.again(name, &packed.object.call_method1(intern!(self.object.py(), "reshape"), (-1,))?)
    }

    /// The same elements in another array of this shape, whose last dimension is padded to a multiple: rows, or with `turned` columns, are
    /// its lines. Returns the array, and the view of it that has this one's shape.
    pub(crate) fn in_lines(
        &self,
        name: &str,
        (multiple, fill): (i64, Fill),
        turned: bool,
    ) -> PyResult<[Self; 2]> {
        let py = self.object.py();
        let mut shape = self.shape();
        let rank = shape.len();
        if turned {
            shape.swap(rank - 1, rank - 2);
        }
        let extent = shape[rank - 1];
        shape[rank - 1] = (extent + multiple - 1) / multiple * multiple;
        let whole = self.alike(name, &shape, self.format, fill)?;
        let columns = pyo3::types::PySlice::new(py, 0, extent as isize, 1);
        let mut view = whole.object.get_item((pyo3::types::PyEllipsis::get(py), columns))?;
        if turned {
            view = view.call_method1(intern!(py, "swapaxes"), (-1, -2))?;
        }
        view.set_item(pyo3::types::PyEllipsis::get(py), self.viewed()?)?;
        let view = self.again(name, &view)?;
        Ok([whole, view])
    }

    /// A new array of a shape in the same place, whose elements have this format, with a type of this array's library.
    pub(crate) fn alike(&self, name: &str, shape: &[i64], format: Format, fill: Fill) -> PyResult<Self> {
        let py = self.object.py();
        let shape = PyTuple::new(py, shape)?;
        // The same type needs no name, also where integers are its bits.
        let same = self.format == format;
        let object = match self.library {
            Library::Numpy => {
                let dtype = match same {
                    true => self.object.getattr(intern!(py, "dtype"))?,
                    false => names::numpy_type(py, format)?,
                };
                let name = if fill == Fill::Zeros { intern!(py, "zeros") } else { intern!(py, "empty") };
                py.import(intern!(py, "numpy"))?.call_method1(name, (shape, dtype))?
            }
            Library::Torch => {
                let name: &Bound<'py, PyString> =
                    if fill == Fill::Zeros { intern!(py, "new_zeros") } else { intern!(py, "new_empty") };
                let options = PyDict::new(py);
                if !same {
                    let index = names::TYPES.iter().position(|of| of.name == type_name(format));
                    let types = Torch::imported(py).map(|torch| &torch.types);
                    let dtype = index.zip(types).and_then(|(index, types)| types[index].as_ref());
                    options.set_item(intern!(py, "dtype"), dtype)?;
                }
                self.object.call_method(name, (shape,), Some(&options))?
            }
        };
        let made =
            Found::of(name, &object)?.admit(name, &Rule::new(Elements::OrBits(format), Access::Written))?;
        if fill == Fill::Least {
            made.fill(f64::NEG_INFINITY)?;
        }
        Ok(made)
    }

    fn fill(&self, number: f64) -> PyResult<()> {
        let py = self.object.py();
        let name = match self.library {
            Library::Numpy => intern!(py, "fill"),
            Library::Torch => intern!(py, "fill_"),
        };
        self.object.call_method1(name, (number,)).map(drop)
    }

    /// Sets rows to zero, those from `first` on and in front of `end`.
    pub(crate) fn clear_rows(&self, first: i64, end: i64) -> PyResult<()> {
        if first >= end {
            return Ok(());
        }
        let rows = pyo3::types::PySlice::new(self.object.py(), first as isize, end as isize, 1);
        self.object.set_item(rows, 0)
    }
}

/// Whether an object is a number.
pub(crate) fn number(object: &Bound<'_, PyAny>) -> Option<f64> {
    let is = pyo3::types::PyFloat::is_type_of(object) || pyo3::types::PyInt::is_type_of(object);
    is.then(|| object.extract().ok()).flatten()
}

/// An extent of an array, for a kernel.
pub(crate) fn extent(name: &str, array: &Found<'_>, extent: i64) -> PyResult<u32> {
    u32::try_from(extent).map_err(|_| {
        PyValueError::new_err(format!(
            "{name} has shape {}, extents below 2^31 were needed",
            array.shape_words()
        ))
    })
}
