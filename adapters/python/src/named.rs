//! The arguments of a function, by the names that its operation's table has for them.

use falchion_core::{FieldKind, Goes, Operation, Python as Name, Structure, Value};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::error::of_refusal;
use crate::whole::{Whole, window_of};

/// The arguments that a function was given.
#[derive(Default)]
pub(crate) struct Named<'py> {
    given: Vec<(&'static str, Bound<'py, PyAny>)>,
    /// Arguments of other names, if the function takes them.
    rest: Vec<(String, Bound<'py, PyAny>)>,
}

/// The names of the arguments that are given by position, how many of them are needed, and those of the others.
pub(crate) struct Names {
    function: &'static str,
    positional: Vec<&'static str>,
    needed: usize,
    others: Vec<&'static str>,
}

impl Names {
    /// Those of an operation's function.
    pub(crate) fn of<D, G>(operation: &Operation<D, G>) -> Self {
        let function = operation.name;
        let mut names = Self { function, positional: Vec::new(), needed: 0, others: Vec::new() };
        for of in operation.python() {
            match of {
                Name::Needed(name) => {
                    names.positional.push(name);
                    names.needed += 1;
                }
                Name::Positional(name) => names.positional.push(name),
                Name::Keyword(name) => names.others.push(name),
                Name::No => {}
            }
        }
        names
    }

    fn known(&self, name: &str) -> Option<&'static str> {
        self.positional.iter().chain(&self.others).find(|known| **known == name).copied()
    }
}

fn wrong<T>(words: String) -> PyResult<T> {
    Err(PyTypeError::new_err(words))
}

impl<'py> Named<'py> {
    /// The arguments of a function, checked as Python checks those of its own functions. With `more`, others are taken too.
    pub(crate) fn of(
        names: &Names,
        (positional, keywords): (&Bound<'py, PyTuple>, Option<&Bound<'py, PyDict>>),
        more: bool,
    ) -> PyResult<Self> {
        let function = names.function;
        let (most, given) = (names.positional.len(), positional.len());
        if given > most {
            let least = names.needed;
            let takes = if least == most { most.to_string() } else { format!("from {least} to {most}") };
            return wrong(format!("{function}() takes {takes} positional arguments but {given} were given"));
        }
        let mut all = Self::default();
        all.given.extend(names.positional.iter().copied().zip(positional.iter()));
        for (name, value) in keywords.into_iter().flatten() {
            let name = name.cast_into::<PyString>()?;
            let name = name.to_str()?;
            match names.known(name) {
                Some(known) if all.get(known).is_some() => {
                    return wrong(format!("{function}() got multiple values for argument '{name}'"));
                }
                Some(known) => all.given.push((known, value)),
                None if more => all.rest.push((name.to_owned(), value)),
                None => return wrong(format!("{function}() got an unexpected keyword argument '{name}'")),
            }
        }
        let missing = names.positional.iter().take(names.needed).filter(|name| all.get(name).is_none());
        let missing: Vec<String> = missing.map(|name| format!("'{name}'")).collect();
        match missing.as_slice() {
            [] => {}
            [one] => return wrong(format!("{function}() missing 1 required positional argument: {one}")),
            [before @ .., last] => {
                let (count, before) = (missing.len(), before.join(", "));
                return wrong(format!(
                    "{function}() missing {count} required positional arguments: {before} and {last}"
                ));
            }
        }
        // None says nothing, but where something is needed.
        let needed = &names.positional[..names.needed];
        all.given.retain(|(name, value)| needed.contains(name) || !value.is_none());
        Ok(all)
    }

    /// Arguments that a function of this package gives.
    pub(crate) fn new(given: impl IntoIterator<Item = (&'static str, Bound<'py, PyAny>)>) -> Self {
        Self { given: given.into_iter().collect(), rest: Vec::new() }
    }

    /// The same with an argument of another name.
    pub(crate) fn with(mut self, name: &str, value: Bound<'py, PyAny>) -> Self {
        self.rest.push((name.to_owned(), value));
        self
    }

    /// The argument of a name, if it is given.
    pub(crate) fn get(&self, name: &str) -> Option<&Bound<'py, PyAny>> {
        self.given.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// An argument that is needed, and therefore given.
    pub(crate) fn needed(&self, name: &str) -> PyResult<&Bound<'py, PyAny>> {
        self.get(name).ok_or_else(|| PyTypeError::new_err(format!("{name} is missing, it was needed")))
    }

    /// Arguments of other names.
    pub(crate) fn rest(&self) -> &[(String, Bound<'py, PyAny>)] {
        &self.rest
    }

    /// The value of an argument, if it is given.
    pub(crate) fn value<'a, T>(&'a self, name: &str) -> PyResult<Option<T>>
    where
        T: FromPyObject<'a, 'py, Error: Into<PyErr>>,
    {
        let value = self.get(name).map(|value| value.extract::<T>().map_err(Into::into)).transpose();
        value.map_err(|error: PyErr| {
            let py = self.given[0].1.py();
            match error.is_instance_of::<PyTypeError>(py) {
                true => PyTypeError::new_err(format!("argument '{name}': {}", error.value(py))),
                false => error,
            }
        })
    }

    /// A text, if it is given.
    pub(crate) fn text(&self, name: &str) -> PyResult<Option<String>> {
        self.value(name)
    }

    /// A whole number of up to 31 bits, if it is given.
    pub(crate) fn whole(&self, name: &str) -> PyResult<Option<u32>> {
        let whole = self.value::<Whole>(name)?;
        whole.map(|whole| whole.from(name, [0, i32::MAX as u32])).transpose()
    }

    /// Says the numbers, switches and texts of a structure.
    pub(crate) fn say<T>(&self, structure: &Structure<T>, of: &mut T) -> PyResult<()> {
        for field in structure.fields {
            if let Goes::Switches(all) = field.goes {
                for switch in all {
                    let name = switch.python.name().filter(|name| self.get(name).is_some());
                    if let Some(name) = name
                        && self.value::<bool>(name)? == Some(true)
                    {
                        (switch.set)(of);
                    }
                }
            }
            let (Goes::Said(set), Some(name)) = (&field.goes, field.python.name()) else { continue };
            let text;
            let value = match field.kind {
                FieldKind::Single | FieldKind::Double => self.value::<f64>(name)?.map(Value::Real),
                FieldKind::Whole => self.whole(name)?.map(|whole| Value::Whole(whole.into())),
                FieldKind::Text => {
                    text = self.text(name)?;
                    text.as_deref().map(Value::Text)
                }
                FieldKind::Signed => {
                    // Elements of a pair.
                    let second = usize::from(field.c.ends_with("[1]"));
                    window_of(self.get(name))?.map(|pair| Value::Signed(pair[second]))
                }
                FieldKind::Long | FieldKind::Address => None,
            };
            if let Some(value) = value {
                set(of, value).map_err(|refusal| of_refusal(&refusal))?;
            }
        }
        Ok(())
    }
}
