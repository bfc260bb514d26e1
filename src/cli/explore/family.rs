//! The page of a kernel of another family: its numbers, the blocks that it computes, and the timeline of a run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::explore::run;
use emulator::{Activity, Schedule, Trace};
use kernel::{Blocks, Family, Needed};
use serde_json::{Value, json};

use super::written;
use crate::cli::family::{name, one, recorded};
use crate::cli::options::Given;
use crate::cli::{Failure, files};

/// Number of clusters that run at the same time.
const CLUSTERS: u32 = 2;

/// Writes the page of a family's kernel.
pub(crate) fn family<K: Family>(given: &Given) -> Result<(), Failure> {
    let (problem, kernel) = one::<K>(given, CLUSTERS)?;
    let file = given.get("out").unwrap_or_else(|| PathBuf::from(format!("{}.html", K::NAME)));
    files::writable(&file)?;
    given.finish(&format!("--family {}", K::NAME))?;
    let program = kernel.program()?;
    let (trace, outcome) = recorded((&problem, &kernel), (CLUSTERS, Schedule::Default, 0))?;
    let mut run = run::recorded(&trace, None);
    let (text, request) = problem;
    run["problem"] = json!(text);
    run["trap"] = json!(outcome.err().map(|error| error.to_string()));
    let function = program.function();
    let page = json!({
        "family": K::NAME,
        "name": name(&kernel),
        "entry": program.name(),
        "threads": function.threads(),
        "shared_bytes": function.shared_bytes,
        "cluster": function.cluster,
        // Name, value and note.
        "numbers": kernel.numbers(),
        "blocks": kernel.blocks(&request).map(|blocks| drawn(&blocks)),
        // What the consumers' statements do, as often as in the run.
        "statements": statements(&trace),
        "run": run,
    });
    written(&file, K::NAME, ("family", page))
}

/// Blocks as numbers: 0 left out, 1 masked, 2 whole.
fn drawn(Blocks { of, axes, block, needed, products, turns }: &Blocks) -> Value {
    let number = |needed: &Needed| match needed {
        Needed::Nothing => 0,
        Needed::Some => 1,
        Needed::All => 2,
    };
    let needed: Vec<Vec<u32>> = needed.iter().map(|row| row.iter().map(number).collect()).collect();
    json!({ "of": of, "axes": axes, "block": block, "needed": needed, "products": products, "turns": turns })
}

/// The products of the run by their extents, and the waits of warps for named barriers by statement: a name, a number, and
/// where.
fn statements(trace: &Trace) -> Vec<Value> {
    let mut counts = BTreeMap::<(String, String), u64>::new();
    for event in &trace.events {
        let site = event.site.as_ref().map_or_else(String::new, ToString::to_string);
        let what = if let Activity::Multiply { n } = &event.activity {
            format!("wgmma, 64 x {n} sums")
        } else if let Activity::Wait(on) = &event.activity
            && event.label() == "wait for barrier"
        {
            format!("wait for {on}")
        } else {
            continue;
        };
        *counts.entry((what, site)).or_default() += 1;
    }
    counts.into_iter().map(|((what, site), count)| json!([what, count, site])).collect()
}
