//! The tour's last stop: GEMMs that the GPUs of a node share, predicted, and layers that were measured on two GPUs.

use kernel::{GemmProblem, Machine};
use serde_json::{Value, json};

use super::tour::best;
use crate::cli::Failure;

/// Bytes per second in each direction of a GPU's NVLink, as NVIDIA states it for an H100 or H200 (SXM): 18 links of 25 GB/s.
const LINK: f64 = 450e9;

/// GEMMs that GPUs of a node share, and the ways to share them: per number of GPUs, the part of each.
pub(super) fn of() -> Result<Value, Failure> {
    let machine = Machine::h200();
    let shared = |[m, n, k]: [u32; 3]| {
        let output = 2.0 * f64::from(m) * f64::from(n);
        let part = |gpus: u32, [m, n, k]: [u32; 3], sent: f64| {
            let (microseconds, spec) = best(&machine, GemmProblem { m, n, k });
            // Each GPU sends so many bytes, and receives as many.
            json!({ "gpus": gpus, "problem": [m, n, k], "microseconds": microseconds, "spec": spec, "sent": sent })
        };
        let others = |gpus: u32| f64::from(gpus - 1) / f64::from(gpus);
        let each = |of: &dyn Fn(u32) -> Value| [1, 2, 4, 8].map(of);
        let ways = [
            json!({
                "name": "Divide N",
                "says": "Each GPU has columns of B and computes those of D. Every GPU then gets the others' columns (all-gather).",
                "parts": each(&|gpus| part(gpus, [m, n / gpus, k], output * others(gpus))),
            }),
            json!({
                "name": "Divide K",
                "says": "Each GPU has a part of K and computes partial sums of all of D, which are added up (reduce-scatter and all-gather, in 16 bits).",
                "parts": each(&|gpus| part(gpus, [m, n, k / gpus], 2.0 * output * others(gpus))),
            }),
            json!({
                "name": "Divide M",
                "says": "Each GPU has all of B and its own rows of A and D. Nothing is exchanged.",
                "parts": each(&|gpus| part(gpus, [m.div_ceil(gpus), n, k], 0.0)),
            }),
        ];
        json!({ "problem": [m, n, k], "ways": ways })
    };
    // Bytes per second that a GPU sends to the others, and receives at the same time.
    let shapes = [[8192, 8192, 8192], [4096, 28672, 8192], [64, 28672, 8192]].map(shared);
    Ok(json!({ "link": LINK, "shapes": shapes, "measured": measured(RECORD)? }))
}

/// What `falchion-parallel bench` measured of layers that are divided among two GPUs, and of the same layers on one: a line of
/// JSON for each layer and number of tokens, with the command, the card and the version of NCCL.
const RECORD: &str = include_str!("node.jsonl");

/// The lines of a record, which have all that the page shows.
fn measured(record: &str) -> Result<Vec<Value>, Failure> {
    let texts = ["command", "card", "nccl", "layer", "dtype"];
    let numbers = ["ranks", "n", "k", "tokens", "ours", "recorded", "first", "fastest", "collective"];
    let read = |(i, text): (usize, &str)| {
        let refused = |reason: String| Failure::environment(format!("node.jsonl, line {}: {reason}", i + 1));
        let line: Value = serde_json::from_str(text).map_err(|error| refused(error.to_string()))?;
        let missing = |kind: &str, names: &[&str], is: fn(&Value) -> bool| {
            let name = names.iter().find(|name| !is(&line[**name]));
            name.map(|name| refused(format!("{name} is {}, {kind} was needed", line[*name])))
        };
        let missing = missing("a text", &texts, Value::is_string)
            .or_else(|| missing("a number", &numbers, Value::is_number))
            .or_else(|| missing("true or false", &["column"], Value::is_boolean));
        missing.map_or(Ok(line.clone()), Err)
    };
    record.lines().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::measured;
    use crate::cli::Failure;

    #[test]
    fn records_are_whole() {
        let line = json!({
            "command": "bench --gpus 0,1", "card": "a card", "nccl": "2.27", "ranks": 2, "layer": "up", "column": true, "n": 8, "k": 8,
            "tokens": 512, "dtype": "bf16", "ours": 3.0, "recorded": 2.0, "first": 4.0, "fastest": 3.5, "collective": 1.0,
        });
        let whole = measured(&format!("{line}\n{line}\n"));
        assert_eq!(whole.map(|lines| lines.len()).ok(), Some(2));
        for (name, value, words) in [
            ("ours", json!("3"), "node.jsonl, line 1: ours is \"3\", a number was needed"),
            ("card", json!(null), "card is null, a text was needed"),
            ("column", json!(1), "column is 1, true or false was needed"),
        ] {
            let mut other = line.clone();
            other[name] = value;
            match measured(&other.to_string()) {
                Err(Failure::Environment(why)) => assert!(why.contains(words), "{why}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
