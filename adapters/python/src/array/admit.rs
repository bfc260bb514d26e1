//! The one way from an argument to an address: its elements, place, order in memory and use are checked here.

use falchion::collective::Format;
use pyo3::intern;
use pyo3::prelude::*;

use super::found::Found;
use super::torch::Torch;
use super::{Array, Library, Place, invalid, type_name};

/// What the elements of an argument must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elements {
    /// Numbers of a format.
    Of(Format),
    /// Numbers of a format, or unsigned integers of their size that hold their bits: somebody said that they do.
    OrBits(Format),
    /// Unsigned integers that hold whatever their owner put there.
    Bits,
    /// Whole numbers of 32 or of 64 bits.
    Whole,
}

/// What a call does with an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads it, or a copy of it.
    Copied,
    /// Reads it where it is.
    Read,
    /// Writes it where it is.
    Written,
}

/// What an argument must be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule<'a> {
    elements: Elements,
    access: Access,
    /// Where it must be, and why.
    place: Option<(Place, &'a str)>,
    /// What has a gradient in place of this function; `None` where the caller records one.
    recorded: Option<&'a str>,
}

impl<'a> Rule<'a> {
    /// An argument of these elements, for this use.
    pub(crate) const fn new(elements: Elements, access: Access) -> Self {
        Self { elements, access, place: None, recorded: None }
    }

    /// It must be in this place, as something else.
    pub(crate) const fn at(self, place: Place, like: &'a str) -> Self {
        Self { place: Some((place, like)), ..self }
    }

    /// torch must not record it for a gradient; `instead` has one.
    pub(crate) const fn without_gradient(self, instead: Option<&'a str>) -> Self {
        Self { recorded: instead, ..self }
    }
}

impl Elements {
    fn words(self) -> &'static str {
        match self {
            Self::Of(format) | Self::OrBits(format) => type_name(format),
            Self::Bits => "unsigned integers",
            Self::Whole => "int32 or int64",
        }
    }

    fn are(self, found: &Found<'_>) -> bool {
        found.element.is_some_and(|element| match self {
            Self::Of(format) => element.is_of(format, false),
            Self::OrBits(format) => element.is_of(format, true),
            Self::Bits => element.is_unsigned(),
            Self::Whole => ["int32", "int64"].contains(&element.name),
        })
    }
}

impl<'py> Found<'py> {
    /// The argument, if it is what a rule says. `name` is its name.
    ///
    /// # Errors
    /// `ValueError` with the name, what was given and what was needed.
    pub(crate) fn admit(self, name: &str, rule: &Rule<'_>) -> PyResult<Array<'py>> {
        let Rule { elements, access, place, recorded } = *rule;
        if !elements.are(&self) {
            return invalid(format!(
                "{name} has elements of {}, {} was needed",
                self.type_words(),
                elements.words()
            ));
        }
        if let Some((place, like)) = place.filter(|(place, _)| *place != self.place) {
            let (found, needed) = (self.place.words(), place.words());
            return invalid(format!("{name} is in {found}, {needed} was needed, as {like}"));
        }
        if let Some(instead) = recorded
            && self.is_recorded()?
        {
            return invalid(format!(
                "{name} requires a gradient, which this function does not have: {instead} or torch.no_grad() was needed"
            ));
        }
        let format = match elements {
            Elements::Of(format) | Elements::OrBits(format) => format,
            Elements::Bits => Format::U8,
            Elements::Whole => Format::S32,
        };
        let bytes = self.element.map_or(1, |of| of.bytes);
        if access == Access::Written {
            self.writable(name)?;
        }
        let misaligned = !self.is_empty() && !self.address.is_multiple_of(bytes.into());
        if self.whole && !misaligned {
            return Ok(Array { found: self, format });
        }
        if access == Access::Copied {
            return Array { found: self, format }.copied(name, false);
        }
        invalid(format!(
            "{name} does not begin at a multiple of the {bytes} bytes of its elements, or its strides are none: an aligned array was needed"
        ))
    }

    /// Checks that what is written there is seen, and once.
    fn writable(&self, name: &str) -> PyResult<()> {
        let py = self.object.py();
        if self.copied {
            return invalid(format!(
                "{name} is a view with torch's negative bit, one without it was needed: {name}.resolve_neg() has none"
            ));
        }
        let flags = intern!(py, "flags");
        if self.library == Library::Numpy
            && !self.object.getattr(flags)?.getattr(intern!(py, "writeable"))?.is_truthy()?
        {
            return invalid(format!("{name} is read-only, a writable array was needed"));
        }
        let mut sizes: Vec<[i64; 2]> = (0..self.rank).map(|i| self.last(i)).collect();
        sizes.retain(|[extent, _]| *extent > 1);
        sizes.sort_by_key(|[_, stride]| stride.unsigned_abs());
        let mut end = 0u128;
        for [extent, stride] in sizes {
            let stride = u128::from(stride.unsigned_abs());
            if stride <= end && !self.is_empty() {
                return invalid(format!(
                    "{name} has strides with which elements share memory, one that writes each once was needed"
                ));
            }
            end += stride * u128::from(extent.unsigned_abs() - 1);
        }
        Ok(())
    }

    /// Whether torch records what becomes of it, for a gradient.
    fn is_recorded(&self) -> PyResult<bool> {
        let py = self.object.py();
        match (self.library, Torch::imported(py)) {
            (Library::Torch, Some(torch)) => {
                Ok(self.object.getattr(intern!(py, "requires_grad"))?.is_truthy()? && torch.records(py)?)
            }
            _ => Ok(false),
        }
    }

    /// A table of whole numbers of 32 bits in a place. torch's and numpy's own integers have 64: in the host's memory they are converted, if
    /// they fit. On a card the caller has to do it, because it takes memory and a launch, which nobody expects in a captured graph.
    ///
    /// # Errors
    /// As [`admit`](Self::admit); a number that does not fit.
    pub(crate) fn table(self, name: &str, place: Place, like: &str) -> PyResult<Array<'py>> {
        let rule = Rule::new(Elements::Of(Format::S32), Access::Copied).at(place, like);
        if self.element.is_none_or(|of| of.name != "int64") {
            return self.admit(name, &rule);
        }
        let py = self.object.py();
        if let Place::Cuda(ordinal) = self.place {
            return invalid(format!(
                "{name} has elements of int64 on cuda:{ordinal}, int32 was needed: pass {name}.to(torch.int32)"
            ));
        }
        if !self.is_empty() {
            for end in [intern!(py, "min"), intern!(py, "max")] {
                let number: i64 =
                    self.object.call_method0(end)?.call_method0(intern!(py, "item"))?.extract()?;
                if i32::try_from(number).is_err() {
                    return invalid(format!(
                        "{name} has the number {number}, numbers that int32 holds were needed"
                    ));
                }
            }
        }
        let converted = match self.library {
            Library::Numpy => self.object.call_method1(intern!(py, "astype"), (intern!(py, "int32"),)),
            Library::Torch => {
                let dtype = py.import(intern!(py, "torch"))?.getattr(intern!(py, "int32"))?;
                self.object.call_method1(intern!(py, "to"), (dtype,))
            }
        };
        Self::of(name, &converted?)?.admit(name, &rule)
    }
}
