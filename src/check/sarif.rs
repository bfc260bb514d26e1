//! Reports as SARIF 2.1.0, which services read that show findings next to the code.
//!
//! Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.

use serde::Serialize;

use super::finding::{Finding, Severity, Spot, Status};
use super::report::told;
use super::{Report, rules};

/// A SARIF log of one run. It is written by any serialiser of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Sarif {
    #[serde(rename = "$schema")]
    schema: &'static str,
    version: &'static str,
    runs: [Run; 1],
}

const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";
const HOME: &str = env!("CARGO_PKG_REPOSITORY");

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    tool: Tool,
    column_kind: &'static str,
    results: Vec<Outcome>,
}

#[derive(Clone, Debug, Serialize)]
struct Tool {
    driver: Driver,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Driver {
    name: &'static str,
    version: &'static str,
    information_uri: &'static str,
    rules: Vec<Described>,
}

/// `reportingDescriptor`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Described {
    id: &'static str,
    short_description: Text,
    full_description: Text,
    help: Text,
}

#[derive(Clone, Debug, Serialize)]
struct Text {
    text: String,
}

/// `result`
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Outcome {
    rule_id: &'static str,
    rule_index: usize,
    level: &'static str,
    message: Text,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    locations: Vec<Location>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    related_locations: Vec<Location>,
    partial_fingerprints: Fingerprints,
    occurrence_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline_state: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suppressions: Vec<Suppressed>,
    properties: Properties,
}

#[derive(Clone, Debug, Serialize)]
struct Fingerprints {
    #[serde(rename = "falchion/v1")]
    own: String,
}

#[derive(Clone, Debug, Serialize)]
struct Suppressed {
    kind: &'static str,
}

#[derive(Clone, Debug, Serialize)]
struct Properties {
    kernel: String,
    launch: u32,
    schedule: String,
    schedules: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    thread: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Location {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    physical_location: Physical,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    logical_locations: Vec<Logical>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Text>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Physical {
    artifact_location: Artifact,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<Region>,
}

#[derive(Clone, Debug, Serialize)]
struct Artifact {
    uri: String,
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Region {
    start_line: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_column: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snippet: Option<Text>,
}

#[derive(Clone, Debug, Serialize)]
struct Logical {
    name: String,
    kind: &'static str,
}

impl Sarif {
    /// The log of some reports. A finding is at its line of the source where the PTX states it (`.loc`), and at its line of the PTX
    /// otherwise.
    pub fn new(reports: &[Report]) -> Self {
        let described = rules::all().map(|rule| Described {
            id: rule.name,
            short_description: Text { text: rule.meaning.to_owned() },
            full_description: Text { text: format!("{} PTX ISA: {}.", rule.meaning, rule.section) },
            help: Text { text: format!("{} Source: PTX ISA, {}.", rule.meaning, rule.section) },
        });
        let driver = Driver {
            name: "falchion",
            version: env!("CARGO_PKG_VERSION"),
            information_uri: HOME,
            rules: described.collect(),
        };
        let results =
            reports.iter().flat_map(|report| report.findings.iter().map(|finding| result(report, finding)));
        let run = Run { tool: Tool { driver }, column_kind: "unicodeCodePoints", results: results.collect() };
        Self { schema: SCHEMA, version: "2.1.0", runs: [run] }
    }
}

fn result(report: &Report, finding: &Finding) -> Outcome {
    let file = report.kernels.iter().find(|ran| ran.kernel == finding.kernel).map(|ran| ran.file.clone());
    let (main, ptx) = match &finding.spot {
        Some(spot) => located(spot),
        None => (
            file.map(|file| Physical { artifact_location: Artifact { uri: uri(&file) }, region: None }),
            None,
        ),
    };
    let locations = main.map(|physical_location| Location {
        id: None,
        physical_location,
        logical_locations: vec![Logical { name: finding.kernel.clone(), kind: "function" }],
        message: None,
    });
    let ptx = ptx.map(|physical| ("the PTX".to_owned(), physical));
    let others = finding.related.iter().flat_map(|(what, spot)| {
        let (main, ptx) = located(spot);
        let ptx = ptx.map(|physical| (format!("{what}, in the PTX"), physical));
        main.map(|physical| (what.clone(), physical)).into_iter().chain(ptx)
    });
    let related = ptx.into_iter().chain(others).enumerate();
    let related = related.map(|(id, (what, physical_location))| Location {
        id: Some(id),
        physical_location,
        logical_locations: Vec::new(),
        message: Some(Text { text: what }),
    });
    Outcome {
        rule_id: finding.rule.name,
        rule_index: rules::all().position(|rule| rule.name == finding.rule.name).unwrap_or(0),
        level: match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        },
        message: Text { text: finding.message.clone() },
        locations: locations.into_iter().collect(),
        related_locations: related.collect(),
        partial_fingerprints: Fingerprints { own: finding.fingerprint.clone() },
        occurrence_count: finding.schedules.max(1),
        baseline_state: (finding.status == Status::Known).then_some("unchanged"),
        suppressions: (finding.status == Status::Suppressed)
            .then_some(Suppressed { kind: "external" })
            .into_iter()
            .collect(),
        properties: Properties {
            kernel: finding.kernel.clone(),
            launch: finding.launch,
            schedule: told(finding.first),
            schedules: format!("{} of {}", finding.schedules, report.schedules),
            thread: finding.thread.clone(),
        },
    }
}

/// Where a spot is: in the source if that is known, and then also in the PTX.
fn located(spot: &Spot) -> (Option<Physical>, Option<Physical>) {
    let ptx = Physical {
        artifact_location: Artifact { uri: uri(&spot.file) },
        region: Some(Region {
            start_line: spot.line.max(1),
            start_column: Some(spot.column.max(1)),
            snippet: Some(Text { text: spot.text.clone() }),
        }),
    };
    match &spot.origin {
        None => (Some(ptx), None),
        Some((file, line)) => {
            let region = Region { start_line: (*line).max(1), start_column: None, snippet: None };
            let source = Physical { artifact_location: Artifact { uri: uri(file) }, region: Some(region) };
            (Some(source), Some(ptx))
        }
    }
}

/// A path as a reference: relative paths stay relative.
fn uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let escaped = path
        .bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") });
    let prefix = if path.starts_with('/') { "file://" } else { "" };
    format!("{prefix}{}", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn paths_become_references() {
        assert_eq!(uri("a b/k.ptx"), "a%20b/k.ptx");
        assert_eq!(uri("/tmp/ü.py"), "file:///tmp/%C3%BC.py");
    }
}
