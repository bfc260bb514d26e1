//! `falchion attention`: runs attention on random inputs, checks it, and times it.

use std::io::Write;
use std::time::Duration;

use falchion::attention::{Attention, AttentionProblem, AttentionSpec};
use falchion::verify::attention::{AttentionFault, Case, Checked};
use kernel::driver::tune::{Candidate, Turns};
use kernel::{Engine, Gpu};

use crate::engine::{Choice, Chosen};
use crate::options::{Given, Verb};
use crate::output::out;
use crate::{Command, Failure};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::Attention,
    about: "Run attention on random Q, K and V, and check O and the log-sum-exp with an f64 reference.

O = softmax(Q * K^T / sqrt(d)) * V, per head. A spec reads `format=bf16 d=128 tile=128x128 mask=causal`; words that are left out have the defaults of \
this line, without a mask. With --time the kernels of all specs are timed on the GPU, in turns.",
    examples: "Examples:
  falchion attention --kernel \"d=64 tile=64x64 mask=causal\" --shape 1x2x100x300
  falchion attention --kernel \"\" --kernel tile=128x176 --shape 4x16x4096 --time",
    run: attention,
};

/// Extents on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extents {
    batch: u32,
    heads: u32,
    lengths: [u32; 2],
}

/// Reads `BxHxQ` or `BxHxQxK`.
pub(crate) fn extents(text: &str) -> Result<Extents, String> {
    let numbers: Option<Vec<u32>> = text.split('x').map(|number| number.parse().ok()).collect();
    match numbers.as_deref() {
        Some(&[batch, heads, queries]) => Ok(Extents { batch, heads, lengths: [queries; 2] }),
        Some(&[batch, heads, queries, keys]) => Ok(Extents { batch, heads, lengths: [queries, keys] }),
        _ => Err("sequences x heads x queries, or these x keys, was needed, as 4x16x4096".to_owned()),
    }
}

/// Rest before a burst, and the time of a burst in seconds: as in the measurements of other libraries.
const REST: Duration = Duration::from_millis(120);
const BURST: f64 = 0.012;

fn attention(given: &Given) -> Result<(), Failure> {
    let texts: Vec<String> = given.list("kernel");
    let texts = if texts.is_empty() { vec![String::new()] } else { texts };
    let shapes: Vec<Extents> = given.list("shape");
    let shapes =
        if shapes.is_empty() { vec![Extents { batch: 1, heads: 2, lengths: [256; 2] }] } else { shapes };
    let shared: Option<u32> = given.get("kv-heads");
    let (choice, seed): (Choice, u64) = (given.value("engine"), given.value("seed"));
    let rows: usize = given.get::<u32>("rows").unwrap_or(256) as usize;
    let (time, turns) = (given.flag("time"), given.get::<u32>("turns").unwrap_or(7) as usize);
    given.finish("`falchion attention`")?;
    let mut kernels = Vec::new();
    for text in &texts {
        let kernel = text.parse::<AttentionSpec>().and_then(Attention::new);
        let name = if text.is_empty() { "the default" } else { text };
        kernels.push((name, kernel.map_err(|error| Failure::usage(format!("--kernel {text}: {error}")))?));
    }
    let cases = shapes.iter().map(|&Extents { batch, heads, lengths }| {
        move |kernel: &Attention| {
            let problem = AttentionProblem::new(batch, heads, lengths, kernel.plan().spec.head[0]);
            let problem = AttentionProblem { heads: [heads, shared.unwrap_or(heads)], ..problem };
            Case { seed, rows, ..Case::new(problem) }
        }
    });
    if time {
        let mut gpu = Gpu::new(0)?;
        writeln!(out(), "{}", gpu.describe())?;
        for case in cases {
            self::time(&mut gpu, &kernels, &case, turns)?;
        }
        return Ok(());
    }
    let Chosen { mut engine, why, .. } = choice.open()?;
    writeln!(out(), "{} ({why})", engine.describe())?;
    for case in cases {
        for (name, kernel) in &kernels {
            check(&mut *engine, name, kernel, &case(kernel))?;
        }
    }
    Ok(())
}

/// The problem and the kernel, in words.
fn titled(name: &str, case: &Case) -> String {
    let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = case.problem;
    format!("{batch} x {heads} ({shared}) x {queries} x {keys}, {name}")
}

fn check(engine: &mut dyn Engine, name: &str, kernel: &Attention, case: &Case) -> Result<(), Failure> {
    match case.check(engine, kernel) {
        Ok(checked) => report(&titled(name, case), &checked),
        Err(AttentionFault::Engine(error)) => Err(error.into()),
        Err(fault) => {
            writeln!(out(), "{}: WRONG: {fault}", titled(name, case))?;
            Err(Failure::Wrong)
        }
    }
}

fn report(title: &str, checked: &Checked) -> Result<(), Failure> {
    let Checked { o, log_sum_exp, rows, .. } = checked;
    writeln!(
        out(),
        "{title}: {rows} queries right; largest error of O {:.2e} (bound {:.2e}), of the log-sum-exp {:.2e} (bound {:.2e})",
        o.error,
        o.bound,
        log_sum_exp.error,
        log_sum_exp.bound
    )?;
    Ok(())
}

/// Checks and times kernels on one shape, in turns.
fn time(
    gpu: &mut Gpu,
    kernels: &[(&str, Attention)],
    case: &dyn Fn(&Attention) -> Case,
    turns: usize,
) -> Result<(), Failure> {
    let mut candidates = Vec::new();
    for (name, kernel) in kernels {
        let case = case(kernel);
        let uploaded = case.upload(gpu, kernel)?;
        let Some(prepared) = gpu.prepare_call(kernel, &uploaded.call)? else {
            return Err(Failure::usage(format!("{}: there is nothing to compute", titled(name, &case))));
        };
        gpu.time_many(&[&prepared], 1)?;
        match uploaded.compare(gpu) {
            Ok(checked) => report(&titled(name, &case), &checked)?,
            Err(fault) => {
                writeln!(out(), "{}: WRONG: {fault}", titled(name, &case))?;
                return Err(Failure::Wrong);
            }
        }
        let operations = kernel.plan().spec.operations(&case.problem);
        candidates.push(Candidate {
            name: titled(name, &case),
            launches: vec![Box::new(prepared)],
            operations,
            slots: None,
        });
    }
    let turns = Turns { count: turns, near: None };
    let seconds = turns.take(gpu, &candidates, &mut |gpu, turn| turn.burst(gpu, REST, BURST))?;
    for (candidate, mut seconds) in candidates.iter().zip(seconds) {
        seconds.sort_by(f64::total_cmp);
        let tflops = |at: usize| seconds.get(at).map_or(0.0, |each| candidate.operations / each / 1e12);
        let (median, last) = (seconds.len() / 2, seconds.len().saturating_sub(1));
        let [most, middle, least] = [0, median, last].map(tflops);
        let microseconds = seconds.get(median).copied().unwrap_or(0.0) * 1e6;
        writeln!(
            out(),
            "{}: {middle:.0} TFLOP/s ({least:.0} to {most:.0}), {microseconds:.1} us",
            candidate.name
        )?;
    }
    Ok(())
}
