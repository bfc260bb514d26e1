//! The linear layer and its gradients: one call from Python each, whatever the dimensions of the inputs.

use pyo3::intern;
use pyo3::prelude::*;

use crate::call::{Arguments, Views, prepare};
use crate::named::Named;

/// One product.
fn multiply<'py>(
    [a, b]: [&Bound<'py, PyAny>; 2],
    bias: Option<&Bound<'py, PyAny>>,
    views: Views,
) -> PyResult<Bound<'py, PyAny>> {
    let py = a.py();
    let mut named = Named::new([("a", a.clone()), ("b", b.clone())]);
    if let Some(bias) = bias {
        let text = intern!(py, "acc + bias[n]").clone().into_any();
        named =
            Named::new([("a", a.clone()), ("b", b.clone()), ("epilogue", text)]).with("bias", bias.clone());
    }
    prepare(py, &Arguments { named, views: Views { plain: true, ..views } })?.run()
}

/// `x @ weight.T + bias` of x (..., in), weight (out, in) and bias (out). It records nothing for a gradient.
#[pyfunction]
pub(crate) fn linear<'py>(
    x: Bound<'py, PyAny>,
    weight: Bound<'py, PyAny>,
    bias: Option<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let views =
        Views { names: ["x", "weight"], rows: [true, false], turned: [false, true], ..Views::default() };
    multiply([&x, &weight], bias.as_ref(), views)
}

/// A gradient, if it is needed.
type Gradient<'py> = Option<Bound<'py, PyAny>>;

/// The gradients of `linear` of x, the weight and the bias, as far as they are needed.
#[pyfunction]
pub(crate) fn linear_backward<'py>(
    gradient: Bound<'py, PyAny>,
    x: Bound<'py, PyAny>,
    weight: Bound<'py, PyAny>,
    needed: (bool, bool, bool),
) -> PyResult<(Gradient<'py>, Gradient<'py>, Gradient<'py>)> {
    let py = gradient.py();
    let of_x = || {
        let views = Views { names: ["gradient", "weight"], rows: [true, false], ..Views::default() };
        multiply([&gradient, &weight], None, views)
    };
    let of_weight = || {
        let views =
            Views { names: ["gradient", "x"], rows: [true; 2], turned: [true, false], ..Views::default() };
        multiply([&gradient, &x], None, views)
    };
    let of_bias = || {
        let rank: usize = gradient.getattr(intern!(py, "ndim"))?.extract()?;
        let rows: Vec<usize> = (0..rank.saturating_sub(1)).collect();
        // Nothing to add up: torch sums over all dimensions then.
        if rows.is_empty() {
            Ok(gradient.clone())
        } else {
            gradient.call_method1(intern!(py, "sum"), (rows,))
        }
    };
    let (for_x, for_weight, for_bias) = needed;
    Ok((
        for_x.then(of_x).transpose()?,
        for_weight.then(of_weight).transpose()?,
        for_bias.then(of_bias).transpose()?,
    ))
}
