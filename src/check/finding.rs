//! What a check found: a rule that a kernel broke, where, and under which schedules.

use std::collections::BTreeMap;

use emulator::{Fault, Place, Rule, Schedule, TensorFault, Trap, Wait};
use ptx::SourceSite;
use serde::Serialize;

use super::launch::{Kernel, Launch};
use super::place::Placed;
use super::run::{Fact, Outcome};
use super::{rules, source};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The kernel is wrong.
    Error,
    /// It may be wrong, or breaks a rule that cards have been seen to bear.
    Warning,
}

/// Whether a finding is news.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is.
    #[default]
    New,
    /// It is in the baseline.
    Known,
    /// A [`Suppression`](super::Suppression) covers it.
    Suppressed,
}

/// A place in PTX, and in the source that a compiler made it from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Spot {
    /// The PTX file.
    pub file: String,
    /// The line, from 1 on.
    pub line: u32,
    /// The column in characters, from 1 on.
    pub column: u32,
    /// The statement's text, or the instruction's name.
    pub text: String,
    /// File and line of the source, where the PTX states it (`.loc`).
    pub origin: Option<(String, u32)>,
}

/// A rule that a kernel broke.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The rule.
    pub rule: &'static Rule,
    /// How bad it is.
    pub severity: Severity,
    /// Whether it is news.
    pub status: Status,
    /// The kernel's name.
    pub kernel: String,
    /// What happened, the first time, in one or more lines.
    pub message: String,
    /// The statement at fault; of a hang, the first one that waits. `None` for a wrong result.
    pub spot: Option<Spot>,
    /// Which thread executed it; `None` if it is not a single warp's.
    pub thread: Option<String>,
    /// Other places: the other access, or other statements that wait; each with what it is.
    pub related: Vec<(String, Spot)>,
    /// The launch in which it happened the first time, from 1 on.
    pub launch: u32,
    /// The first schedule that found it, with its seed.
    pub first: (Schedule, u64),
    /// How many schedules found it.
    pub schedules: u64,
    /// The same for the same finding in PTX whose lines and neighbours are others: made of rule, kernel, text of the statement (of a
    /// race, of both), and its number among equal ones.
    pub fingerprint: String,
}

impl Finding {
    /// The line of the PTX.
    pub fn line(&self) -> Option<u32> {
        self.spot.as_ref().map(|spot| spot.line)
    }
}

/// Collects the findings of all schedules: equal ones become one.
pub(super) fn collect(
    (launch, placed, names): (&Launch, &Placed<'_>, &[String]),
    outcomes: &[((Schedule, u64), Outcome)],
) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut known = BTreeMap::new();
    for (by, outcome) in outcomes {
        let mut seen = Vec::new();
        for fact in &outcome.facts {
            let finding = made(launch, placed, names, fact, *by);
            let number = *known.entry(finding.fingerprint.clone()).or_insert_with(|| {
                findings.push(finding.clone());
                findings.len() - 1
            });
            // What is borne at one place, or in one round, may be an error at another.
            let held = &mut findings[number];
            if (finding.severity, held.severity) == (Severity::Error, Severity::Warning) {
                *held = Finding { schedules: held.schedules, ..finding };
            }
            if !seen.contains(&number) {
                findings[number].schedules += 1;
                seen.push(number);
            }
        }
    }
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// The finding that a fact is.
fn made(
    launch: &Launch,
    placed: &Placed<'_>,
    names: &[String],
    fact: &Fact,
    first: (Schedule, u64),
) -> Finding {
    let (kernel, name) = (&launch.kernels[fact.kernel()], names[fact.kernel()].clone());
    match fact {
        Fact::Trap { launch: number, trap, warning, .. } => {
            let rule = trap.fault.rule();
            let severity = if *warning { Severity::Warning } else { Severity::Error };
            let places = places(&launch.kernels, trap);
            // A race is the same one whichever access comes first; a hang at one place is one, whoever else waits.
            let is_race = other(&trap.fault).is_some_and(|(what, _)| what == ACCESS);
            let same = places.iter().take(if is_race { 2 } else { 1 });
            let mut texts: Vec<String> = same.map(|(_, spot)| identity(kernel, spot)).collect();
            texts.sort_unstable();
            let mut places = places.into_iter();
            let spot = places.next().map(|(_, spot)| spot);
            Finding {
                rule,
                severity,
                status: Status::New,
                fingerprint: fingerprint(rule, &name, &texts.join("\n")),
                kernel: name,
                message: message(trap, placed),
                spot,
                thread: trap.place.as_ref().map(thread),
                related: places.collect(),
                launch: *number,
                first,
                schedules: 0,
            }
        }
        Fact::Buffer { launch: number, rule, buffer, message, .. } => Finding {
            rule,
            severity: if rule.name == rules::VARIES.name { Severity::Warning } else { Severity::Error },
            status: Status::New,
            fingerprint: fingerprint(rule, &name, buffer),
            kernel: name,
            message: message.clone(),
            spot: None,
            thread: None,
            related: Vec::new(),
            launch: *number,
            first,
            schedules: 0,
        },
    }
}

/// What went wrong, in words: without the places, which a finding has apart from it, and with the names of buffers.
fn message(trap: &Trap, placed: &Placed<'_>) -> String {
    let mut text = trap.fault.to_string();
    if other(&trap.fault).is_some() {
        text.truncate(text.find("\n  ").unwrap_or(text.len()));
    }
    if let Some(region) = &trap.region {
        text += &format!("\nthe byte belongs to: {region}");
    }
    if let Some(register) = &trap.register {
        text += &format!("\nthe register is {register}");
    }
    if let Some((name, offset)) = address(&trap.fault).and_then(|address| placed.owner(address)) {
        text += &format!("\nthe address is byte {offset} of buffer `{name}`");
    }
    if let Fault::GlobalOutOfBounds { address, .. } = trap.fault
        && let Some((name, offset)) = placed.nearest(address).filter(|(_, offset)| *offset < NEAR)
    {
        text += &format!("\nit would be byte {offset} of buffer `{name}`, the nearest before it");
    }
    text
}

/// Bytes after a buffer at which an access may have been meant for it.
const NEAR: u64 = 1 << 24;

/// The global address that a fault is about.
fn address(fault: &Fault) -> Option<u64> {
    let (Fault::GlobalMisaligned { address, .. }
    | Fault::GlobalUninitialised { address, .. }
    | Fault::GlobalRace { address, .. }
    | Fault::ConstantWritten { address, .. }
    | Fault::SumsUnordered { address, .. }
    | Fault::GridNotAwaited { address }
    | Fault::GlobalUnfenced { address, .. }
    | Fault::Tensor(TensorFault::MapUnfenced { address, .. } | TensorFault::MapInFlight { address })) = fault
    else {
        return None;
    };
    Some(*address)
}

/// What the other access of a race is called: either may come first.
const ACCESS: &str = "the other access";

/// The other access of a fault, and what it is.
fn other(fault: &Fault) -> Option<(&'static str, &Place)> {
    if let Fault::GlobalRace { other, .. }
    | Fault::SharedRace { other, .. }
    | Fault::ConstantWritten { other, .. }
    | Fault::SumsUnordered { other, .. } = fault
    {
        return Some((ACCESS, other));
    }
    if let Fault::GlobalUnfenced { other, .. }
    | Fault::Tensor(TensorFault::MapUnfenced { other, .. })
    | Fault::MissingProxyFence { other, .. } = fault
    {
        return Some(("written by", other));
    }
    None
}

/// The places of a fault, that of the fault first.
fn places(kernels: &[Kernel], trap: &Trap) -> Vec<(String, Spot)> {
    let mut places = Vec::new();
    let mut add = |what: String, site: Option<&SourceSite>, instruction: &str| {
        let spot = site.map(|site| spot(kernels, site, instruction));
        if let Some(spot) = spot.filter(|spot| !places.iter().any(|(_, other)| other == spot)) {
            places.push((what, spot));
        }
    };
    if let Some(place) = &trap.place {
        add(String::new(), place.site.as_ref(), place.instruction);
    }
    if let Some((what, place)) = other(&trap.fault) {
        let what = format!("{what}, {}", thread(place));
        places.extend(place.site.as_ref().map(|site| (what, spot(kernels, site, place.instruction))));
        return places;
    }
    if let Fault::WarpgroupDisagrees { other, .. } = &trap.fault {
        add("another warp executed".to_owned(), other.as_ref(), "");
    }
    if let Fault::Hang { waiting, .. } | Fault::Fuel { warps: waiting, .. } = &trap.fault {
        // What waits for an mbarrier or a word says more than the barriers of those that wait for these.
        let mut all: Vec<_> = waiting.iter().collect();
        all.sort_by_key(|one| !matches!(one.on, Wait::Mbarrier { .. } | Wait::Polling));
        for one in all {
            let what = format!("{} waits for {}", thread(&one.place), one.on);
            add(what, one.place.site.as_ref(), one.place.instruction);
        }
    }
    places
}

/// A place in a text.
pub(super) fn spot(kernels: &[Kernel], site: &SourceSite, instruction: &str) -> Spot {
    let (line, column) = (site.line(), site.column());
    let kernel = source::kernel(kernels, site);
    let text = kernel.and_then(|kernel| source::statement(&kernel.text, line, column));
    Spot {
        file: site.file().to_owned(),
        line,
        column,
        text: text.unwrap_or_else(|| instruction.to_owned()),
        origin: site.origin().map(|(file, stated)| {
            let line = kernel.map_or(stated, |kernel| source::origin(&kernel.text, line, stated));
            (file.to_owned(), line)
        }),
    }
}

/// Which thread a place is of.
fn thread(place: &Place) -> String {
    let [x, y, z] = place.cta;
    let lane = place.lane.map_or(String::new(), |lane| format!(", lane {lane}"));
    format!("CTA ({x}, {y}, {z}), warp {}{lane}", place.warp)
}

/// What stays the same of a place when lines are renumbered.
fn identity(kernel: &Kernel, spot: &Spot) -> String {
    match source::ordinal(&kernel.text, spot.line, spot.column) {
        Some(ordinal) => format!("{} {ordinal}", spot.text),
        None => format!("{} {} {}", spot.text, spot.file, spot.line),
    }
}

/// 64 bits of what stays the same when lines are renumbered.
fn fingerprint(rule: &Rule, kernel: &str, what: &str) -> String {
    let text = [rule.name, kernel, what].join("\n");
    format!("{:016x}", crate::verify::fnv(text.as_bytes()))
}
