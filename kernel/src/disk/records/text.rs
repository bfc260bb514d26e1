//! A problem and its measurements as a line of JSON.

use core::fmt::Display;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Measurement;

/// The content of a line. It holds texts, so that an unknown spec costs only its own measurement.
#[derive(Deserialize, Serialize)]
struct Line {
    problem: String,
    measured: Vec<Measurement<String>>,
}

/// The line of a problem, with its line break.
pub(super) fn line<S: Display>(problem: &impl Display, measured: &[Measurement<S>]) -> String {
    let measured = measured.iter().map(|measured| measured.with(measured.spec.to_string())).collect();
    let line = Line { problem: problem.to_string(), measured };
    // Texts and finite numbers can always be written as JSON.
    serde_json::to_string(&line).map(|text| text + "\n").unwrap_or_default()
}

/// Measurements of a line, each of which may be illegal in this version.
type Read<S> = Vec<Result<Measurement<S>, String>>;

/// The problem of a line and its measurements; or what is wrong with the line.
pub(super) fn read<P, S>(line: &str) -> Result<(P, Read<S>), String>
where
    P: FromStr<Err: Display>,
    S: FromStr<Err: Display>,
{
    let Line { problem, measured } = serde_json::from_str(line).map_err(|error| error.to_string())?;
    let problem = problem.parse().map_err(|error: P::Err| error.to_string())?;
    let measured = measured.iter().map(|measured| match measured.spec.parse() {
        Ok(spec) => Ok(measured.with(spec)),
        Err(error) => Err(format!("spec `{}`: {error}", measured.spec)),
    });
    Ok((problem, measured.collect()))
}
