//! Fits the numbers of the model that ranks kernels to measured records of a GPU:
//!
//! ```sh
//! falchion tune --shapes shapes.txt --jsonl seen.jsonl --no-records   # on the GPU
//! cargo run --release --example fit -- 20000 seen.jsonl             # on any machine
//! cargo run --release --example fit -- 0 seen.jsonl l2=15e6 seed=3  # other initial numbers, other random steps
//! cargo run --release --example fit -- 20000 seen.jsonl judge=fresh.jsonl
//! cargo run --release --example fit -- 500 scaled_fitted.jsonl only=columns only=alone   # change only these numbers
//! ```
//!
//! Shapes used for the fit cannot judge it. Judge it with the shapes of `judge=`, and with
//! `tests/selection.rs`.
//!
//! The fit is a random walk over the numbers of `kernel::Machine`, from those of an H200. It minimises three
//! costs. The first is the error of predicted times, in which the fastest kernels of a shape count most. The
//! second is what of it differs among the kernels of a shape. The third is the time lost by the choice among
//! nearly equal predictions.

use std::collections::HashMap;
use std::error::Error;

use cute_rs::atom::Major;
use kernel::{AnyGemm, GemmProblem, Machine, Request, Types};
use serde::Deserialize;

/// Selects a number of the machine.
type Number = fn(&mut Machine) -> &mut f64;

const NUMBERS: &[(&str, Number)] = &[
    ("cycles", |machine| &mut machine.cycles),
    ("power", |machine| &mut machine.power),
    ("shared", |machine| &mut machine.shared),
    ("sparse", |machine| &mut machine.sparse),
    ("sliced", |machine| &mut machine.sliced),
    ("promoted", |machine| &mut machine.promoted),
    ("alone", |machine| &mut machine.alone),
    ("added", |machine| &mut machine.added),
    ("runs", |machine| &mut machine.runs),
    ("beside", |machine| &mut machine.beside),
    ("columns", |machine| &mut machine.columns),
    ("latency", |machine| &mut machine.latency),
    ("clustered_latency", |machine| &mut machine.clustered_latency),
    ("drained", |machine| &mut machine.drained),
    ("step", |machine| &mut machine.step),
    ("coupled", |machine| &mut machine.coupled),
    ("ingest", |machine| &mut machine.ingest),
    ("crowded", |machine| &mut machine.crowded),
    ("launch", |machine| &mut machine.launch),
    ("serial_launch", |machine| &mut machine.serial_launch),
    ("clustered_launch", |machine| &mut machine.clustered_launch),
    ("clustered_tile", |machine| &mut machine.clustered_tile),
    ("divided_launch", |machine| &mut machine.divided_launch),
    ("persistent_launch", |machine| &mut machine.persistent_launch),
    ("filling", |machine| &mut machine.filling),
    ("start", |machine| &mut machine.start),
    ("tile", |machine| &mut machine.tile),
    ("odd_rows", |machine| &mut machine.odd_rows),
    ("stored", |machine| &mut machine.stored),
    ("transposed", |machine| &mut machine.transposed),
    ("slabs", |machine| &mut machine.slabs),
    ("narrow", |machine| &mut machine.narrow),
    ("draw", |machine| &mut machine.draw),
    ("exchanged", |machine| &mut machine.exchanged),
    ("meeting", |machine| &mut machine.meeting),
    ("meeting_near", |machine| &mut machine.near[0]),
    ("near", |machine| &mut machine.near[1]),
    ("near_further", |machine| &mut machine.near[2]),
    ("by_threads", |machine| &mut machine.by_threads),
    ("staged", |machine| &mut machine.staged),
    ("evicting", |machine| &mut machine.evicting[0]),
    ("streamed", |machine| &mut machine.streamed),
    ("together", |machine| &mut machine.together),
    ("eight", |machine| &mut machine.eight),
    ("requesting", |machine| &mut machine.requesting),
    ("part_requests", |machine| &mut machine.part_requests[0]),
    ("part_sector_requests", |machine| &mut machine.part_requests[1]),
    ("outside", |machine| &mut machine.outside),
    ("ramp", |machine| &mut machine.ramp),
    ("written", |machine| &mut machine.written),
    ("merged", |machine| &mut machine.merged),
    ("torn", |machine| &mut machine.torn),
    ("wide", |machine| &mut machine.wide),
    ("unaligned", |machine| &mut machine.unaligned),
    ("l2", |machine| &mut machine.l2),
    ("part_sectors", |machine| &mut machine.part_sectors),
    ("part_lines", |machine| &mut machine.part_lines),
    ("l2_bytes", |machine| &mut machine.l2_bytes),
    ("dram", |machine| &mut machine.dram),
    ("paired", |machine| &mut machine.paired),
    ("refetched", |machine| &mut machine.refetched),
    ("echo", |machine| &mut machine.echo),
    ("echoed", |machine| &mut machine.echoed),
    ("gathered_from", |machine| &mut machine.gathered[0]),
    ("gathered", |machine| &mut machine.gathered[1]),
];

/// Predictions that differ by at least this fraction of the time count as different.
const APART: f64 = 0.01;

/// Times above this, in microseconds, are used only if the GPU had rested before.
const UNRESTED: f64 = 60.0;

/// A line of a record.
#[derive(Deserialize)]
struct Line {
    m: u32,
    n: u32,
    k: u32,
    dtype: String,
    layout: String,
    state: String,
    kernels: Vec<Timed>,
}

#[derive(Deserialize)]
struct Timed {
    spec: String,
    quick: f64,
    microseconds: Option<f64>,
}

/// Kernels at one shape, with their measured times.
struct Case {
    types: Types,
    majors: [Major; 2],
    problem: GemmProblem,
    /// Index of the kernel, its time in microseconds, and whether that is the median of several turns.
    times: Vec<(usize, f64, bool)>,
}

#[derive(Default)]
struct Records {
    kernels: Vec<AnyGemm>,
    known: HashMap<String, Option<usize>>,
    cases: Vec<Case>,
}

/// How well a machine describes the records.
#[derive(Clone, Copy)]
struct Fit {
    /// Root mean square of the logarithm of predicted over measured time.
    error: f64,
    /// The same, of what differs among the kernels of a shape.
    apart: f64,
    /// Mean time lost by the choice, as a fraction of the best time.
    regret: f64,
    /// Fraction of the shapes whose first choice is within 3 % of the best.
    good: f64,
}

impl Fit {
    fn cost(&self) -> f64 {
        0.3 * self.error + self.apart + 2.0 * self.regret
    }
}

impl Records {
    fn read(&mut self, path: &str) -> Result<(), Box<dyn Error>> {
        for text in std::fs::read_to_string(path)?.lines() {
            let line: Line = serde_json::from_str(text)?;
            if line.state != "burst" {
                continue;
            }
            let major = |letter: Option<char>| if letter == Some('k') { Major::K } else { Major::Mn };
            let types = Types::named(&line.dtype).ok_or_else(|| format!("dtype is {}", line.dtype))?;
            let majors = [major(line.layout.chars().next()), major(line.layout.chars().nth(1))];
            // A few consecutive launches run at another clock than many launches after a rest.
            let mut ratios: Vec<f64> =
                line.kernels.iter().filter_map(|timed| Some(timed.microseconds? / timed.quick)).collect();
            ratios.sort_by(f64::total_cmp);
            let ratio = ratios.get(ratios.len() / 2).copied().unwrap_or(1.0);
            let mut times = Vec::new();
            for Timed { spec, quick, microseconds } in line.kernels {
                let time = microseconds.or_else(|| (quick < UNRESTED).then_some(quick * ratio));
                let spec = format!("{spec} dtype={} layout={}", types.a.name(), line.layout);
                let timed = |(kernel, time)| (kernel, time, microseconds.is_some());
                times.extend(self.kernel(spec).zip(time).map(timed));
            }
            let problem = GemmProblem { m: line.m, n: line.n, k: line.k };
            self.cases.push(Case { types, majors, problem, times });
        }
        Ok(())
    }

    /// The index of a kernel, if its spec is one.
    fn kernel(&mut self, spec: String) -> Option<usize> {
        if let Some(known) = self.known.get(&spec) {
            return *known;
        }
        let index = kernel::find(&spec).ok().map(|gemm| {
            self.kernels.push(gemm);
            self.kernels.len() - 1
        });
        self.known.insert(spec, index);
        index
    }

    fn fit(&self, machine: &Machine, print: bool) -> Fit {
        let (mut squares, mut within, mut weights, mut regret, mut good) = (0.0, 0.0, 0.0, 0.0, 0);
        for Case { types, majors, problem, times } in &self.cases {
            let request = Request::packed(*types, *majors, *problem);
            let best = times
                .iter()
                .filter(|(.., timed)| *timed)
                .map(|&(_, time, _)| time)
                .fold(f64::INFINITY, f64::min);
            let predict = |&(kernel, ..): &(usize, f64, bool)| {
                machine.predict(&self.kernels[kernel], &request).microseconds
            };
            let predicted: Vec<f64> = times.iter().map(predict).collect();
            let tried = predicted.iter().zip(times).filter(|(_, (.., timed))| *timed);
            let least = tried.map(|(predicted, _)| *predicted).fold(f64::INFINITY, f64::min);
            let (mut shares, mut lost, mut chosen) = (0.0, 0.0, (f64::INFINITY, 0));
            // The sums of weights, of weighted errors and of weighted squares of this shape.
            let mut sums = [0.0; 3];
            for (&predicted, &(kernel, time, timed)) in predicted.iter().zip(times) {
                // One short run of a few microseconds says little.
                let weight = match time / best {
                    _ if !timed => 0.3,
                    ratio if ratio < 1.12 => 4.0,
                    ratio if ratio < 1.35 => 1.5,
                    _ => 0.3,
                };
                let error = (predicted / time).ln().clamp(-0.3, 0.3);
                sums = [sums[0] + weight, sums[1] + weight * error, sums[2] + weight * error * error];
                if !timed {
                    continue;
                }
                let share = (-(predicted / least - 1.0) / APART).exp();
                shares += share;
                lost += share * (time / best - 1.0).min(0.3);
                if predicted <= least {
                    chosen = (time, kernel);
                }
            }
            let [weight, first, second] = sums;
            weights += weight;
            squares += second;
            within += second - first * first / weight.max(1.0);
            regret += lost / shares;
            good += usize::from(chosen.0 <= 1.03 * best);
            if print && chosen.0 > 1.03 * best {
                let GemmProblem { m, n, k } = problem;
                let fastest =
                    times.iter().find(|(_, time, _)| *time == best).map_or(0, |(kernel, ..)| *kernel);
                let [taken, fastest] = [chosen.1, fastest].map(|kernel| {
                    let gemm = &self.kernels[kernel];
                    format!("{} ({:.1})", gemm.name(), machine.predict(gemm, &request).microseconds)
                });
                let ratio = chosen.0 / best;
                println!(
                    "{m}x{n}x{k} {ratio:.3}\n    took {taken} {:.1}\n    best {fastest} {best:.1}",
                    chosen.0
                );
            }
        }
        let count = self.cases.len().max(1) as f64;
        let [error, apart] = [squares, within].map(|sum| (sum / weights.max(1.0)).sqrt());
        Fit { error, apart, regret: regret / count, good: good as f64 / count }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: fit STEPS RECORD.jsonl... [judge=RECORD.jsonl] [NUMBER=VALUE...] [only=NUMBER...] [seed=SEED]";
    let steps: usize = arguments.next().ok_or(usage)?.parse()?;
    let (mut records, mut others) = (Records::default(), Records::default());
    let (mut machine, mut seed, mut only) = (Machine::h200(), 7, Vec::new());
    for argument in arguments {
        match argument.split_once('=') {
            Some(("seed", value)) => seed = value.parse()?,
            Some(("judge", value)) => others.read(value)?,
            Some(("only", value)) => only.push(value.to_owned()),
            Some((name, value)) => {
                let (_, number) = NUMBERS.iter().find(|(known, _)| *known == name).ok_or(usage)?;
                *number(&mut machine) = value.parse()?;
            }
            None => records.read(&argument)?,
        }
    }
    if records.cases.is_empty() {
        return Err(usage.into());
    }
    let chosen = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    let numbers: Vec<Number> = NUMBERS.iter().filter(|(name, _)| chosen(name)).map(|(_, of)| *of).collect();
    if numbers.is_empty() {
        return Err(usage.into());
    }
    let mut fit = records.fit(&machine, false);
    let mut random = fastrand::Rng::with_seed(seed);
    for step in 0..steps {
        let mut trial = machine;
        let reach = if step % 3 == 0 { 0.4 } else { 0.08 };
        for _ in 0..=random.usize(0..3) {
            *numbers[random.usize(0..numbers.len())](&mut trial) *= 1.0 + (random.f64() - 0.5) * reach;
        }
        // A ring has at least two stages, and L2 is no faster than what all SMs together can load.
        trial.drained = trial.drained.min(1.5);
        trial.l2 = trial.l2.min(f64::from(trial.multiprocessors) * trial.ingest);
        let tried = records.fit(&trial, false);
        if tried.cost() < fit.cost() {
            (machine, fit) = (trial, tried);
        }
    }
    println!("choices that cost more than 3 %, predicted and measured microseconds:\n");
    records.fit(&machine, true);
    println!("\nshapes that were not used for the fit:\n");
    let judged = others.fit(&machine, true);
    println!("\n{machine:#?}\n");
    for (what, Fit { error, apart, regret, good }) in [("fitted", fit), ("judged", judged)] {
        println!(
            "{what}: error {error:.3}, within a shape {apart:.4}, regret {regret:.4}, {:.1} % of the choices good",
            100.0 * good
        );
    }
    Ok(())
}
