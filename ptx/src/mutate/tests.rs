//! Tests: which mutants are listed, and that each mutant differs from the original in the statement that it
//! names.

use super::*;
use crate::{Builder, Entry, Special, Target};

/// One role's loop over a ring: it announces bytes, waits, and advances stage and parity.
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
            // The initial values of stage and parity.
            "position deleted",
            "position src ^ 1",
            "position deleted",
            "position src ^ 1",
            "mbarrier.arrive.expect_tx deleted in producer",
            "mbarrier.arrive.expect_tx bytes + 16 in producer",
            "mbarrier.arrive.expect_tx bytes - 16 in producer",
            "mbarrier.arrive.expect_tx bytes * 2 in producer",
            "mbarrier.arrive.expect_tx relaxed in producer",
            "mbarrier.arrive.expect_tx barrier + 8 in producer",
            "mbarrier.arrive.expect_tx after the next step in producer",
            "mbarrier.try_wait deleted in producer",
            "mbarrier.try_wait parity ^ 1 in producer",
            "mbarrier.try_wait relaxed in producer",
            "mbarrier.try_wait barrier + 8 in producer",
            "mbarrier.try_wait in one lane in producer",
            "position end + 1 in producer",
            "position end - 1 in producer",
            // The updates of stage and parity.
            "position deleted in producer",
            "position src ^ 1 in producer",
            "position deleted in producer",
            "position src ^ 1 in producer",
            // The condition on the CTA does not select threads, and the store after the barrier has no
            // ordering.
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

/// A hand-over to the other CTA of a pair, with instructions that have a rank, a mask, an ordering or a
/// scope.
fn pair(f: &Builder) {
    let (base, map) = (f.shared_base(), f.tensor_map("map"));
    f.fence_proxy_async(crate::ProxySpace::Shared);
    let remote = f.map_shared(base, 1);
    f.mbarrier_arrive_as(remote, true, crate::inst::MbarrierOrder::CLUSTER);
    let multicast = Some(f.constant(3u16));
    let load = crate::TensorLoad { map, dst: base, barrier: base + 256, multicast, hint: None };
    f.tensor_load(load, [f.constant(0); 2]);
    f.mbarrier_wait_as(base, 0, crate::inst::MbarrierOrder::CLUSTER);
    f.warp_sync();
    f.warp_sync();
}

#[test]
fn barriers_ranks_masks_orders_and_neighbours_are_changed() {
    let function = Function::build(Entry { cluster: [2, 1, 1], ..entry() }, pair);
    let found = mutations(&function);
    let origin = crate::module_text(&function.clone().verify().unwrap());
    for (why, words, gone, come) in [
        ("the order of an arrival", "mbarrier.arrive relaxed", ".release.cluster", ".relaxed.cluster"),
        (
            "its scope, which is the default then",
            "mbarrier.arrive for the CTA",
            ".release.cluster",
            "arrive.shared::cluster",
        ),
        ("the order of a wait", "mbarrier.try_wait relaxed", ".acquire.cluster", ".relaxed.cluster"),
        ("the receivers", "mask ^ 1", "], 3;", "], 2;"),
    ] {
        let mutation = found.iter().find(|mutation| mutation.to_string().contains(words));
        let mutation = mutation.unwrap_or_else(|| panic!("{why}: {words}"));
        let text = crate::module_text(&mutation.apply(&function).verify().unwrap());
        assert!(origin.contains(gone), "{why}: {origin}");
        assert_ne!(origin, text, "{why}");
        assert!(text.contains(come), "{why}: {text}");
    }
    let named = |words: &str| found.iter().filter(|mutation| mutation.to_string().contains(words)).count();
    for (why, words, count) in [
        ("one address is mapped", "mapa rank ^ 1", 1),
        ("arrival, copy and wait name a barrier", "barrier + 8", 3),
        // The fence with the arrival, and after the copy the wait with the first `bar.warp.sync`. The two
        // `bar.warp.sync` are not swapped: they are equal.
        ("steps next to each other", "after the next step", 2),
    ] {
        assert_eq!(named(words), count, "{why}: {found:#?}");
    }
}

#[test]
fn one_lane_waits_where_the_whole_warp_does() {
    let (function, found) = listed(|f| {
        let (base, warp) = (f.shared_base(), f.warp_index());
        f.if_(warp.equals(0), || f.mbarrier_wait(base, 0));
        f.if_((f.special(Special::ThreadX) / 128).equals(0), || {
            f.loop_(|| f.break_if(f.mbarrier_test_parity(base, 0)));
        });
        f.store_shared(base, 64, [warp]);
        // One lane is alone already, or all lanes meet after it.
        f.if_(f.special(Special::Lane).equals(0), || f.mbarrier_wait(base, 1));
        f.if_(f.elect(), || f.mbarrier_wait(base, 1));
        f.mbarrier_wait(base, 0);
        f.barrier_sync(0, 128);
    });
    let alone: Vec<&Mutation> = found.iter().filter(|one| one.change == Change::OneLane).collect();
    assert_eq!(alone.len(), 2, "{alone:#?}");
    for mutation in alone {
        let mutant = mutation.apply(&function).verify().unwrap();
        let text = crate::module_text(&mutant);
        assert_eq!(text.matches("%laneid").count(), 2, "{text}");
    }
}

#[test]
fn a_step_that_comes_after_the_next_is_moved_whole() {
    let function = Function::build(entry(), pair);
    let swap = mutations(&function).into_iter().find(|one| one.change == Change::Swap).unwrap();
    let names = |function: &Function| {
        let steps = function
            .body
            .iter()
            .filter_map(Statement::inst)
            .filter(|inst| changes::is_step(inst))
            .map(Inst::name);
        steps.collect::<Vec<_>>()
    };
    let (before, after) = (names(&function), names(&swap.apply(&function)));
    assert_eq!(before[..2], ["fence.proxy.async", "mbarrier.arrive"]);
    assert_eq!(after[..2], ["mbarrier.arrive", "fence.proxy.async"]);
    assert_eq!(before[2..], after[2..]);
}

#[test]
fn what_no_path_writes_any_more_is_refused() {
    let (function, found) = listed(ring);
    let first = found.iter().find(|mutation| mutation.target == "position").unwrap();
    assert_eq!(first.change, Change::Delete);
    assert!(first.apply(&function).verify().is_err(), "the stage has no first value");
}

/// The trap stands before the statement that each mutation changes, in the same block, and nothing else differs.
#[test]
fn a_trap_stands_where_the_mutation_is() {
    let (function, found) = listed(ring);
    let before = numbered(&function);
    for mutation in &found {
        let trapping = mutation.trap(&function);
        let after = numbered(&trapping);
        let at = mutation.index;
        assert!(matches!(after[at], Statement::Inst { inst: Inst::Trap, .. }), "{mutation}");
        assert_eq!(format!("{:?}", after[at + 1]), format!("{:?}", before[at]), "{mutation}");
        assert_eq!(after.len(), before.len() + 1, "{mutation}");
        assert!(trapping.verify().is_ok(), "{mutation}");
    }
}

/// A flat program has the mutants of the structured one, but those of conditions of blocks; each can be printed, and is another program.
#[test]
fn flat_programs_have_the_same_mutants() {
    let (function, found) = listed(|f| {
        ring(f);
        pair(f);
        f.if_(f.elect(), || {
            f.mbarrier_wait(f.shared_base(), 0);
            f.mbarrier_arrive(f.shared_base());
        });
    });
    let flat = function.flattened();
    let text = |mutation: &Mutation| mutation.to_string();
    let of_blocks: Vec<String> = found.iter().filter(|one| one.target != "if").map(text).collect();
    let of_flat = mutations(&flat);
    assert_eq!(of_flat.iter().map(text).collect::<Vec<_>>(), of_blocks);
    let whole = crate::module_text(&flat.clone().verify().unwrap());
    for mutation in of_flat {
        // A deleted arrival may leave a register without a write.
        let Ok(mutant) = mutation.apply(&flat).verify() else { continue };
        assert_ne!(crate::module_text(&mutant), whole, "{mutation}");
    }
}
