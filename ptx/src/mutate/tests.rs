//! What is listed, what is not, and that each mutant differs from its origin in the statement that it names.

use super::*;
use crate::{Builder, Entry, Special, Target};

/// A ring of one role: waits, announces, goes on, with everything around it that decides who does.
fn ring(f: &Builder) {
    let base = f.shared_base();
    let warp = f.warp_index();
    f.if_(warp.equals(0), || f.mbarrier_init(base, 1));
    f.barrier_sync(0, 128);
    let stage = f.variable(0);
    let parity = f.variable(0);
    f.scope("producer", || {
        f.repeat(f.param::<u32>("count"), |_| {
            let barrier = base + stage.get() * 8;
            f.mbarrier_arrive_expect(barrier, 256);
            f.mbarrier_wait(barrier, parity.get());
            let next = stage.get() + 1;
            let wraps = next.equals(4);
            let zero = f.constant(0u32);
            parity.set((parity.get() ^ 1).where_or(wraps, parity.get()));
            stage.set(zero.where_or(wraps, next));
        });
    });
    f.if_(f.special(Special::CtaX).equals(0), || f.barrier_sync(1, 128));
    f.if_(f.special(Special::Lane).equals(0), || f.store_shared(base, 64, [warp]));
}

fn entry() -> Entry {
    Entry {
        name: "probe".into(),
        target: Target::Sm90a,
        threads: 128,
        shared_bytes: 1024,
        cluster: [1, 1, 1],
    }
}

fn listed(build: impl FnOnce(&Builder)) -> (Function, Vec<Mutation>) {
    let function = Function::build(entry(), build);
    let found = mutations(&function);
    (function, found)
}

#[test]
fn every_synchronising_statement_is_listed_and_no_other() {
    let (_, found) = listed(ring);
    let mut lines: Vec<String> = found
        .iter()
        .map(|mutation| {
            let text = mutation.to_string();
            text[..text.find(" (").unwrap_or(text.len())].to_owned()
        })
        .collect();
    lines.dedup();
    assert_eq!(
        lines,
        [
            "if in every thread",
            "if in no thread",
            "mbarrier.init deleted",
            "mbarrier.init count + 1",
            "mbarrier.init count - 1",
            "bar.sync deleted",
            "bar.sync id + 1",
            "bar.sync threads + 32",
            "bar.sync threads - 32",
            // The first values of stage and parity.
            "position deleted",
            "position src ^ 1",
            "position deleted",
            "position src ^ 1",
            "mbarrier.arrive.expect_tx deleted in producer",
            "mbarrier.arrive.expect_tx bytes + 16 in producer",
            "mbarrier.arrive.expect_tx bytes - 16 in producer",
            "mbarrier.arrive.expect_tx bytes * 2 in producer",
            "mbarrier.try_wait deleted in producer",
            "mbarrier.try_wait parity ^ 1 in producer",
            "position end + 1 in producer",
            "position end - 1 in producer",
            // Their updates.
            "position deleted in producer",
            "position src ^ 1 in producer",
            "position deleted in producer",
            "position src ^ 1 in producer",
            // The condition on the CTA around it chooses no threads, and the store behind it orders nothing.
            "bar.sync deleted",
            "bar.sync id + 1",
            "bar.sync threads + 32",
            "bar.sync threads - 32",
        ]
    );
}

#[test]
fn a_mutant_differs_in_the_statement_that_it_names() {
    let (function, found) = listed(ring);
    for mutation in &found {
        let mutant = mutation.apply(&function);
        assert_ne!(mutant.body, function.body, "{mutation}");
        assert_eq!(mutant.params, function.params, "{mutation}");
    }
    let named = |words: &str| found.iter().find(|mutation| mutation.to_string().contains(words)).unwrap();
    let text = |mutation: &Mutation| crate::module_text(&mutation.apply(&function).verify().unwrap());
    let origin = crate::module_text(&function.clone().verify().unwrap());
    for (why, words, gone, come) in [
        ("an immediate folds", "bytes - 16", ", 256;", ", 240;"),
        ("a number of the instruction", "threads - 32", "bar.sync 0, 128;", "bar.sync 0, 96;"),
        ("the end of the ring", "end + 1", ", 4;", ", 5;"),
    ] {
        let text = text(named(words));
        assert!(origin.contains(gone) && text.contains(come), "{why}: {text}");
        assert_eq!(origin.lines().count(), text.lines().count(), "{why}");
    }
    let flipped = text(named("parity ^ 1"));
    assert_eq!(flipped.matches("xor.b32").count(), origin.matches("xor.b32").count() + 1, "{flipped}");
}

#[test]
fn what_no_path_writes_any_more_is_refused() {
    let (function, found) = listed(ring);
    let first = found.iter().find(|mutation| mutation.target == "position").unwrap();
    assert_eq!(first.change, Change::Delete);
    assert!(first.apply(&function).verify().is_err(), "the stage has no first value");
}
