//! Fits the numbers of the model that chooses kernels to records of a card:
//!
//! ```sh
//! falchion bench --suite selection --all-configs --json kk.json   # on the card
//! cargo run --release --example fit -- 3000 kk.json               # anywhere
//! cargo run --release --example fit -- 0 kk.json moved=11 seed=3  # from other numbers, or by other steps
//! ```
//!
//! Half of a record's shapes are fitted to (`half.rs` says which); the others say how good the result is, and
//! `tests/selection.rs` judges by them, too.
//!
//! A random walk over `kernel::Machine`'s numbers, from those of an H200. It lowers the error of predicted times, in
//! which the fastest kernels of a shape count three times, and what the choice among nearly equal predictions costs.

mod half;

use std::error::Error;

use cute_rs::atom::Major;
use kernel::{AnyGemm, GemmProblem, Machine, Request};
use serde_json::Value;

/// A number of the machine.
type Number = fn(&mut Machine) -> &mut f64;

const NUMBERS: &[(&str, Number)] = &[
    ("cycles", |machine| &mut machine.cycles),
    ("moved", |machine| &mut machine.moved),
    ("step_alone", |machine| &mut machine.step_alone),
    ("step_shared", |machine| &mut machine.step_shared),
    ("coupled", |machine| &mut machine.coupled),
    ("latency", |machine| &mut machine.latency),
    ("clustered_latency", |machine| &mut machine.clustered_latency),
    ("launch", |machine| &mut machine.launch),
    ("clustered_launch", |machine| &mut machine.clustered_launch),
    ("divided_launch", |machine| &mut machine.divided_launch),
    ("start", |machine| &mut machine.start),
    ("l2", |machine| &mut machine.l2),
    ("part_sectors", |machine| &mut machine.part_sectors),
    ("part_lines", |machine| &mut machine.part_lines),
    ("l2_bytes", |machine| &mut machine.l2_bytes),
    ("dram", |machine| &mut machine.dram),
    ("echo", |machine| &mut machine.echo),
    ("direct", |machine| &mut machine.direct),
    ("direct_bytes", |machine| &mut machine.direct_bytes),
    ("odd_rows", |machine| &mut machine.odd_rows),
    ("staged", |machine| &mut machine.staged),
    ("transposed", |machine| &mut machine.transposed),
    ("draw", |machine| &mut machine.draw),
    ("exchanged", |machine| &mut machine.exchanged),
    ("meeting", |machine| &mut machine.meeting),
    ("sharpness", |machine| &mut machine.sharpness),
];

/// Beyond this, the softened maximum is the maximum.
const SHARPEST: f64 = 12.0;

/// Predictions this far apart, as a part of the time, are told apart.
const APART: f64 = 0.02;

/// Kernels at one shape, with their measured times.
struct Case {
    request: Request<'static>,
    /// Index of the kernel, microseconds.
    times: Vec<(usize, f64)>,
}

#[derive(Default)]
struct Records {
    /// Whether these are the shapes that judge.
    judges: bool,
    kernels: Vec<AnyGemm>,
    cases: Vec<Case>,
}

/// How well a machine describes the records.
#[derive(Clone, Copy)]
struct Fit {
    /// Root mean square of the logarithms of predicted over measured.
    error: f64,
    /// What a choice costs, as a part of the best time, on average.
    regret: f64,
    /// The part of the shapes whose first choice is within 3 % of the best.
    good: f64,
}

impl Fit {
    fn cost(&self) -> f64 {
        self.error + 1.5 * self.regret
    }
}

impl Records {
    fn read(&mut self, path: &str) -> Result<(), Box<dyn Error>> {
        let record: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
        let word = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
        let layout = word(&record, "layout");
        let major = |letter: Option<char>| if letter == Some('k') { Major::K } else { Major::Mn };
        let majors = [major(layout.chars().next()), major(layout.chars().nth(1))];
        let element = if word(&record, "dtype") == "f16" { "f16" } else { "bf16" };
        let first = self.cases.len();
        for figure in record["figures"].as_array().ok_or("a record has figures")? {
            let number = |name: &str| figure[name].as_u64().and_then(|number| u32::try_from(number).ok());
            let (Some(m), Some(n), Some(k), Some(_)) =
                (number("m"), number("n"), number("k"), number("slots"))
            else {
                continue;
            };
            let (name, time) = (word(figure, "candidate"), figure["microseconds"].as_f64());
            let (Some(kernel), Some(time)) = (self.kernel(&name), time) else { continue };
            let problem = GemmProblem { m, n, k };
            if half::fitted([m, n, k]) == self.judges {
                continue;
            }
            let place = self.cases[first..].iter().position(|case| case.request.call.problem == problem);
            match place {
                Some(i) => self.cases[first + i].times.push((kernel, time)),
                None => {
                    let request = Request::packed(element, majors, problem);
                    self.cases.push(Case { request, times: vec![(kernel, time)] });
                }
            }
        }
        Ok(())
    }

    /// The index of a kernel, if the catalogue has it.
    fn kernel(&mut self, name: &str) -> Option<usize> {
        let there = self.kernels.iter().position(|kernel| kernel.name() == name);
        there.or_else(|| {
            self.kernels.push(kernel::find(name).ok()?);
            Some(self.kernels.len() - 1)
        })
    }

    fn fit(&self, machine: &Machine, print: bool) -> Fit {
        let (mut squares, mut weights, mut regret, mut good) = (0.0, 0.0, 0.0, 0);
        for Case { request, times } in &self.cases {
            let best = times.iter().map(|&(_, time)| time).fold(f64::INFINITY, f64::min);
            let predict =
                |&(kernel, _): &(usize, f64)| machine.predict(&self.kernels[kernel], request).microseconds;
            let predicted: Vec<f64> = times.iter().map(predict).collect();
            let least = predicted.iter().copied().fold(f64::INFINITY, f64::min);
            let (mut shares, mut lost, mut chosen) = (0.0, 0.0, f64::INFINITY);
            for (&predicted, &(_, time)) in predicted.iter().zip(times) {
                let weight = if time < 1.3 * best { 3.0 } else { 1.0 };
                squares += weight * (predicted / time).ln().powi(2);
                weights += weight;
                let share = (-(predicted / least - 1.0) / APART).exp();
                shares += share;
                lost += share * (time / best - 1.0).min(0.5);
                if predicted <= least {
                    chosen = time;
                }
            }
            regret += lost / shares;
            good += usize::from(chosen <= 1.03 * best);
            if print {
                let GemmProblem { m, n, k } = request.call.problem;
                print!("{:>20} {:5.3}", format!("{m}x{n}x{k}"), chosen / best);
                for (predicted, &(kernel, time)) in predicted.iter().zip(times) {
                    let name = self.kernels[kernel].name();
                    let kind = name.rsplitn(3, '-').last().unwrap_or(name);
                    print!("  {kind} {time:.1}/{predicted:.1}");
                }
                println!();
            }
        }
        let count = self.cases.len() as f64;
        Fit { error: (squares / weights).sqrt(), regret: regret / count, good: good as f64 / count }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: fit STEPS RECORD.json... [NUMBER=VALUE...] [seed=SEED]";
    let steps: usize = arguments.next().ok_or(usage)?.parse()?;
    let (mut records, mut machine, mut seed) = (Records::default(), Machine::h200(), 7);
    let mut others = Records { judges: true, ..Records::default() };
    for argument in arguments {
        match argument.split_once('=') {
            Some(("seed", value)) => seed = value.parse()?,
            Some((name, value)) => {
                let (_, number) = NUMBERS.iter().find(|(known, _)| *known == name).ok_or(usage)?;
                *number(&mut machine) = value.parse()?;
            }
            None => {
                records.read(&argument)?;
                others.read(&argument)?;
            }
        }
    }
    if records.cases.is_empty() {
        return Err(usage.into());
    }
    let mut fit = records.fit(&machine, false);
    let mut random = fastrand::Rng::with_seed(seed);
    for step in 0..steps {
        let mut trial = machine;
        let reach = if step % 3 == 0 { 0.5 } else { 0.1 };
        for _ in 0..=random.usize(0..3) {
            let number = random.usize(0..NUMBERS.len());
            *NUMBERS[number].1(&mut trial) *= 1.0 + (random.f64() - 0.5) * reach;
        }
        trial.sharpness = trial.sharpness.min(SHARPEST);
        let tried = records.fit(&trial, false);
        if tried.cost() < fit.cost() {
            (machine, fit) = (trial, tried);
        }
    }
    println!("shape, the choice's time over the best, and measured/predicted microseconds of each kernel:\n");
    records.fit(&machine, true);
    println!("\nshapes that were not fitted to:\n");
    let judged = others.fit(&machine, true);
    println!("\n{machine:#?}\n");
    for (what, Fit { error, regret, good }) in [("fitted", fit), ("judged", judged)] {
        println!("{what}: error {error:.3}, regret {regret:.4}, {:.1} % of the choices good", 100.0 * good);
    }
    Ok(())
}
