//! What a choice costs, in time of the CPU: of lengths that were seen, and of a cache that grows with each token. The true figures are in
//! `docs/evidence/performance.md`; the bounds here hold for a build that is not optimised, on a slow machine.
#![cfg(target_os = "linux")]

use std::cell::Cell;
use std::hint::black_box;

use falchion::attention::backward::AttentionBackward;
use falchion::attention::{Attention, AttentionProblem, AttentionRequest, Mask};
use falchion::kernel::Machine;
use falchion_core::{Picks, choose};

/// Microseconds of the CPU that this thread has had. The system counts them every few milliseconds.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux has it");
    text.split(' ').next().and_then(|first| first.parse::<f64>().ok()).expect("a number") / 1e3
}

/// A token of a sequence with that many keys, of one of several models.
fn token(keys: u32, model: u32) -> AttentionRequest {
    let (shared, batch) = (1 << (model % 4), 1 + model / 4);
    let problem =
        AttentionProblem { heads: [shared * 4, shared], ..AttentionProblem::new(batch, 8, [1, keys], 128) };
    AttentionRequest { workspace: true, mask: Mask::Causal, ..AttentionRequest::new(problem, 128) }
}

#[test]
fn lengths_that_were_seen() {
    static FORWARD: Picks<Attention> = Picks::new(64);
    static BACKWARD: Picks<AttentionBackward> = Picks::new(64);
    let forward = |i: u32| FORWARD.get(&token(1000 + i % 4, 0), None, None, |of| of).expect("a kernel");
    let backward = |i: u32| BACKWARD.get(&token(1000 + i % 4, 0), None, None, |of| of).expect("kernels");
    let (first, first_back) = (forward(0), backward(0));
    (1..4).for_each(|i| drop((forward(i), backward(i))));
    let (count, begin) = (20_000, cpu());
    for i in 0..count {
        black_box((forward(i), backward(i)));
    }
    let each = (cpu() - begin) / f64::from(2 * count);
    assert!(each < 40.0, "{each:.1} us");
    println!("a choice of lengths that were seen: {each:.2} us");
    assert_eq!((first.name(), first_back.name()), (forward(0).name(), backward(0).name()));
}

/// Of 256 tokens, each with a key more than the one before. Kernels are emitted for few of them.
#[test]
fn a_cache_that_grows() {
    const TOKENS: u32 = 256;
    const MODELS: u32 = 12;
    for first in [1, 100, 1000, 4000, 30_000] {
        let begin = cpu();
        for (model, i) in (0..MODELS).flat_map(|model| (0..TOKENS).map(move |i| (model, i))) {
            let chosen = choose::<Attention>(&token(first + i, model), None, &Machine::h200(), None);
            black_box(chosen.expect("a kernel"));
        }
        let each = (cpu() - begin) / f64::from(MODELS * TOKENS);
        assert!(each < 50.0, "from {first}: {each:.1} us");
        let (picks, made) = (Picks::<Attention, ()>::new(1024), Cell::new(0));
        for i in 0..TOKENS {
            let kernel = picks.get(&token(first + i, 4), None, None, |_| made.set(made.get() + 1));
            kernel.expect("a kernel");
        }
        println!("from {first} keys: {each:.2} us for each choice, {} kernels", made.get());
        assert!(made.get() <= 16, "from {first}: {} kernels", made.get());
    }
}
