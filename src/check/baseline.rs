//! Findings that are known, so that only new ones are reported.

use serde::{Deserialize, Serialize};

use super::Report;

/// The findings of earlier checks, by their [fingerprints](super::Finding::fingerprint).
///
/// ```
/// use falchion::check::Baseline;
///
/// let none = Baseline::default();
/// assert!(!none.has("0123456789abcdef"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    /// The findings.
    pub findings: Vec<Known>,
}

/// A known finding: its fingerprint, and for readers what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The fingerprint.
    pub fingerprint: String,
    /// The rule's name.
    pub rule: String,
    /// The kernel's name.
    pub kernel: String,
    /// The text of the statement; empty for a wrong result.
    pub text: String,
}

impl Baseline {
    /// Whether a finding is known.
    pub fn has(&self, fingerprint: &str) -> bool {
        self.findings.iter().any(|known| known.fingerprint == fingerprint)
    }

    /// Adds the findings of a report that no suppression covers.
    pub fn add(&mut self, report: &Report) {
        let findings = report.findings.iter().filter(|finding| finding.status != super::Status::Suppressed);
        for finding in findings {
            if !self.has(&finding.fingerprint) {
                self.findings.push(Known {
                    fingerprint: finding.fingerprint.clone(),
                    rule: finding.rule.name.to_owned(),
                    kernel: finding.kernel.clone(),
                    text: finding.spot.as_ref().map_or_else(String::new, |spot| spot.text.clone()),
                });
            }
        }
    }
}
