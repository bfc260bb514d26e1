//! A problem and its measurements as a line of JSON.

use serde::{Deserialize, Serialize};

use super::{Measurement, Problem};
use crate::spec::{form_name, form_named, layout_name, layout_named};

/// The content of a line. It holds names instead of values, so that an unknown name costs only its own line.
#[derive(Deserialize, Serialize)]
struct Line {
    form: String,
    element: String,
    layout: String,
    m: u32,
    n: u32,
    k: u32,
    groups: u32,
    epilogue: String,
    /// Older lines do not have it; they are for packed matrices.
    #[serde(skip_serializing_if = "Option::is_none")]
    aligned: Option<[bool; 3]>,
    measured: Vec<Measured>,
}

#[derive(Deserialize, Serialize)]
struct Measured {
    spec: String,
    us: f64,
    at: u64,
    version: String,
}

/// The line of a problem, with its line break.
pub(super) fn line(problem: &Problem, measured: &[Measurement]) -> String {
    let packed = problem.is_packed();
    let Problem { form, element, majors, m, n, k, groups, epilogue, aligned } = problem.clone();
    let line = Line {
        form: form_name(form).to_owned(),
        element,
        layout: layout_name(majors).to_owned(),
        m,
        n,
        k,
        groups,
        epilogue,
        aligned: (!packed).then_some(aligned),
        measured: measured.iter().map(write).collect(),
    };
    // Texts and finite numbers can always be written as JSON.
    serde_json::to_string(&line).map(|text| text + "\n").unwrap_or_default()
}

fn write(measurement: &Measurement) -> Measured {
    let Measurement { spec, microseconds, at, version } = measurement;
    Measured { spec: spec.to_string(), us: *microseconds, at: *at, version: version.clone() }
}

/// The problem of a line and its measurements, each of which may be illegal in this version; or what is wrong
/// with the line.
pub(super) fn read(line: &str) -> Result<(Problem, Vec<Result<Measurement, String>>), String> {
    let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let Line { form, element, layout, m, n, k, groups, epilogue, aligned, measured } = line;
    let form = form_named(&form)
        .ok_or_else(|| format!("form is `{form}`, single, batched, ragged, masked or grouped was needed"))?;
    let majors =
        layout_named(&layout).ok_or_else(|| format!("layout is `{layout}`, kk, kn, mk or mn was needed"))?;
    let mut problem = Problem { form, groups, epilogue, ..Problem::single(element, majors, [m, n, k]) };
    problem.aligned = aligned.unwrap_or(problem.aligned);
    let measured = measured.into_iter().map(|Measured { spec, us, at, version }| match spec.parse() {
        Ok(spec) => Ok(Measurement { spec, microseconds: us, at, version }),
        Err(error) => Err(format!("spec `{spec}`: {error}")),
    });
    Ok((problem, measured.collect()))
}
