//! The report of a check: as text, and as data.

use core::fmt;

use emulator::Schedule;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::finding::{Finding, Severity, Spot, Status};
use super::{Baseline, Suppression};

/// What a check found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The kernels, in the order in which they ran.
    pub kernels: Vec<Ran>,
    /// How often they were launched on the same memory.
    pub launches: u32,
    /// The number of schedules.
    pub schedules: u64,
    /// Warp instructions that ended under the first schedule.
    pub instructions: u64,
    /// What was found: errors first.
    pub findings: Vec<Finding>,
}

/// A kernel that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ran {
    /// The PTX file.
    pub file: String,
    /// The kernel's name.
    pub kernel: String,
}

impl Report {
    /// The findings that are news.
    pub fn news(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.status == Status::New)
    }

    /// The number of new findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.news().filter(|finding| finding.severity == severity).count()
    }

    /// Marks the findings that suppressions cover.
    pub fn suppress(&mut self, suppressions: &[Suppression]) {
        for finding in &mut self.findings {
            let covers = |one: &Suppression| one.covers(finding.rule.name, finding.line());
            if suppressions.iter().any(covers) {
                finding.status = Status::Suppressed;
            }
        }
    }

    /// Marks the findings that are in a baseline.
    pub fn compare(&mut self, baseline: &Baseline) {
        for finding in self.findings.iter_mut().filter(|finding| finding.status == Status::New) {
            if baseline.has(&finding.fingerprint) {
                finding.status = Status::Known;
            }
        }
    }
}

/// Lines with a word in front, as other commands print them. Only news are listed.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Ran { file, kernel } in &self.kernels {
            writeln!(f, "kernel    {kernel} of {file}")?;
        }
        let plural =
            |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
        let launches = plural(self.launches as usize, "launch").replace("launchs", "launches");
        write!(f, "ran       {launches} under {} schedules", self.schedules)?;
        if self.instructions > 0 {
            write!(f, ", {} warp instructions", self.instructions)?;
        }
        writeln!(f)?;
        for finding in self.news() {
            self.finding(f, finding)?;
        }
        let [errors, warnings] = [Severity::Error, Severity::Warning].map(|severity| self.count(severity));
        write!(f, "found     {}, {}", plural(errors, "error"), plural(warnings, "warning"))?;
        for (status, word) in [(Status::Known, "in the baseline"), (Status::Suppressed, "suppressed")] {
            let count = self.findings.iter().filter(|finding| finding.status == status).count();
            if count > 0 {
                write!(f, ", {count} {word}")?;
            }
        }
        Ok(())
    }
}

impl Report {
    fn finding(&self, f: &mut fmt::Formatter<'_>, finding: &Finding) -> fmt::Result {
        let word = match finding.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let Finding { rule, schedules, first, launch, .. } = finding;
        writeln!(
            f,
            "{word:9} {} in {schedules} of {} schedules, first under {}, in launch {launch}",
            rule.name,
            self.schedules,
            told(*first)
        )?;
        for line in finding.message.lines() {
            writeln!(f, "          {line}")?;
        }
        if let Some(spot) = &finding.spot {
            writeln!(f, "          at {spot}")?;
        }
        if let Some(thread) = &finding.thread {
            writeln!(f, "          by {thread}")?;
        }
        // A hang lists them itself.
        let related = finding.related.iter().filter(|_| finding.thread.is_some());
        for (what, spot) in related {
            writeln!(f, "          {what}\n          at {spot}")?;
        }
        Ok(())
    }
}

/// A schedule in words.
pub(super) fn told((schedule, seed): (Schedule, u64)) -> String {
    let name = format!("{schedule:?}").to_lowercase();
    if schedule == Schedule::Random { format!("{name} seed {seed}") } else { name }
}

/// `kernel.ptx:120:2: bar.sync 0; (kernel.py:31)`.
impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, text, origin } = self;
        write!(f, "{file}:{line}:{column}: {text}")?;
        match origin {
            Some((file, line)) => write!(f, " ({file}:{line})"),
            None => Ok(()),
        }
    }
}

/// The fields by name; the rule with its name, meaning and section.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let related: Vec<Related<'_>> =
            self.related.iter().map(|(what, spot)| Related { what, spot }).collect();
        let mut fields = to.serialize_struct("Finding", 15)?;
        fields.serialize_field("rule", self.rule.name)?;
        fields.serialize_field("meaning", self.rule.meaning)?;
        fields.serialize_field("section", self.rule.section)?;
        fields.serialize_field("severity", &self.severity)?;
        fields.serialize_field("status", &self.status)?;
        fields.serialize_field("kernel", &self.kernel)?;
        fields.serialize_field("message", &self.message)?;
        fields.serialize_field("spot", &self.spot)?;
        fields.serialize_field("thread", &self.thread)?;
        fields.serialize_field("related", &related)?;
        fields.serialize_field("launch", &self.launch)?;
        fields.serialize_field("schedule", &format!("{:?}", self.first.0).to_lowercase())?;
        fields.serialize_field("seed", &self.first.1)?;
        fields.serialize_field("schedules", &self.schedules)?;
        fields.serialize_field("fingerprint", &self.fingerprint)?;
        fields.end()
    }
}

#[derive(Serialize)]
struct Related<'a> {
    what: &'a str,
    #[serde(flatten)]
    spot: &'a Spot,
}
