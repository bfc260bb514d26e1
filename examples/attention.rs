//! Attention with a mask and scores of your own: a sliding window over causal attention, with a soft cap. The same
//! Rust functions on the host check the result.
//!
//! `cargo run --release --example attention`

use falchion::attention::{Attention, AttentionProblem, AttentionRequest, Count, Scope, Scores, consistent};
use falchion::collective::Real;
use falchion::kernel::Family;
use falchion::prelude::*;
use falchion::verify::family::Checks;

/// A query sees `window` keys, up to its own. Scores are `cap * tanh(score / cap)`.
struct Window;

impl Scores for Window {
    const MASKS: bool = true;
    const CHANGES: bool = true;
    const COUNTS: &'static [&'static str] = &["window"];
    const REALS: &'static [&'static str] = &["cap"];

    fn name() -> String {
        "window_softcap".into()
    }

    /// The keys that a query sees: blocks that no query of a tile sees are left out, blocks that all see are not masked.
    fn range<N: Count>(of: &Scope<'_, N>, row: N) -> Option<[N; 2]> {
        let end = of.diagonal(row).plus(1);
        Some([end - of.counts[0], end])
    }

    fn score<N: Count>(of: &Scope<'_, N>, _row: N, _key: N, x: N::Real) -> N::Real {
        (x / of.reals[0]).tanh() * of.reals[0]
    }
}

fn main() -> Result<(), Report> {
    consistent::<Window>(&[5], &[20.0])?; // the range does not go back
    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    let kernel = Attention::with::<Window>("d=64 tile=64x64".parse()?)?;
    let problem = AttentionProblem { heads: [4, 2], ..AttentionProblem::new(1, 4, [300, 300], 64) };
    let request = AttentionRequest::new(problem, 64);
    let mut call = Attention::call(&request);
    (call.counts, call.reals) = (vec![100], vec![20.0]);
    let checks = Checks::given(engine.as_mut(), &kernel, &request, (call, &|_, _| ()), (1, usize::MAX))?;
    let checked = checks.check(engine.as_mut(), &kernel, &request)?;
    println!("{} elements, error at most {:.2} of the bound", checked.compared, checked.ratio);
    Ok(())
}
