//! Atomics in execution: each is one step, in any order of the threads.

use emulator::{Memory, Options, Schedule};
use ptx::abi::Grid;
use ptx::{AtomicOp, AtomicSem, AtomicType, LoadOrder, Location, Scope, Special, StoreOrder};

use crate::{kernel, run, words};

const RELAXED: (AtomicSem, Scope) = (AtomicSem::Relaxed, Scope::Gpu);

#[test]
fn a_counter_gives_every_thread_another_number() {
    // Each thread of 4 CTAs of 64 threads adds 1 and stores a mark at the index that it got.
    let program = kernel(64, 1, |f| {
        let (counter, marks) = (f.param::<u64>("counter"), f.param::<u64>("marks"));
        let place = f.atomic(AtomicOp::Add, Location::global(counter, 0), f.constant(1u32), RELAXED);
        let thread = f.special(Special::CtaX) * 64 + f.special(Special::ThreadX);
        f.store_global(marks + place.mul_wide(4), 0, [thread]);
    });
    let mut memory = Memory::new();
    let (counter, marks) = (memory.upload(&[0; 4]), memory.allocate(256 * 4));
    run(&program, 4, &[counter.into(), marks.into()], &memory);
    assert_eq!(words(&memory, counter, 1), [256]);
    let mut all = words(&memory, marks, 256);
    all.sort_unstable();
    assert_eq!(all, (0..256).collect::<Vec<_>>());
}

#[test]
fn every_space_and_vectors() {
    // All lanes change the same words: in their own shared memory, in the other CTA's, and in global memory.
    let program = kernel(32, 2, |f| {
        let out = f.param::<u64>("out");
        let (base, lane) = (f.shared_base(), f.special(Special::Lane));
        let rank = f.special(Special::ClusterRank);
        let zero = f.constant(0u32);
        f.if_(lane.equals(0), || f.store_shared(base, 0, [zero; 4]));
        f.cluster_arrive(false);
        f.cluster_wait();
        let cluster = (AtomicSem::Relaxed, Scope::Cluster);
        f.reduce(AtomicOp::Add, Location::shared(base, 0), [lane], (AtomicSem::Relaxed, Scope::Cta));
        f.reduce(
            AtomicOp::Max,
            Location::cluster(f.map_shared(base, rank ^ 1), 4),
            [lane + rank * 100],
            cluster,
        );
        let inside = Location::shared(base, 8);
        let old = f.atomic(AtomicOp::Exchange, inside, lane, (AtomicSem::AcquireRelease, Scope::Cta));
        f.reduce(AtomicOp::Add, Location::shared(base, 12), [old], (AtomicSem::Relaxed, Scope::Cta));
        f.cluster_arrive(false);
        f.cluster_wait();
        let mine: [_; 4] = f.load_shared_vector::<u32, 4>(base, 0);
        f.if_(lane.equals(0), || f.store_global(out + rank.mul_wide(16), 0, mine));
        let x = lane.cast::<f32>();
        f.reduce(AtomicOp::Add, Location::global(out, 32), [x, x * 2.0, x * 3.0, x * 4.0], RELAXED);
        let pair = f.pack::<half::bf16>(x, -x);
        f.reduce_as(AtomicOp::Add, AtomicType::Bf16x2, Location::global(out, 48), [pair; 2], RELAXED);
    });
    let mut memory = Memory::new();
    let out = memory.upload(&[0; 64]);
    run(&program, 2, &[out.into()], &memory);
    let sum: u32 = (0..32).sum();
    // The exchange passes each lane's number to the next lane. The results are the first zero and all numbers
    // except 31.
    for (rank, other) in [(0, 131), (1, 31)] {
        let words = words(&memory, out + 16 * rank, 4);
        assert_eq!(words, [sum, other, 31, sum - 31], "rank {rank}");
    }
    let floats: Vec<f32> = words(&memory, out + 32, 4).into_iter().map(f32::from_bits).collect();
    assert_eq!(floats, [1.0, 2.0, 3.0, 4.0].map(|factor| factor * (2 * sum) as f32));
    // In bf16, 0 + 1 + ... is exact up to 256. Above it each sum is rounded to even.
    let rounded = (0..2)
        .flat_map(|_| 0..32)
        .fold(half::bf16::ZERO, |sum, lane| half::bf16::from_f32(sum.to_f32() + lane as f32));
    let pair = u32::from(rounded.to_bits()) | u32::from((-rounded).to_bits()) << 16;
    assert_eq!(words(&memory, out + 48, 2), [pair; 2]);
}

#[test]
fn a_lock_of_compare_and_swap_keeps_a_section_to_one() {
    // One thread of each of 8 CTAs adds to a plain word inside a lock.
    let program = kernel(32, 1, |f| {
        let (lock, word) = (f.param::<u64>("lock"), f.param::<u64>("word"));
        let at = Location::global(lock, 0);
        f.if_(f.special(Special::Lane).equals(0), || {
            let (free, taken) = (f.constant(0u32), f.constant(1u32));
            f.loop_(|| {
                let old = f.compare_swap(at, free, taken, (AtomicSem::Acquire, Scope::Gpu));
                f.break_if(old.equals(0));
            });
            f.store_global(word, 0, [f.load_global::<u32>(word, 0) * 2 + 1]);
            f.store_ordered(StoreOrder::Release(Scope::Gpu), at, [free]);
        });
    });
    let mut memory = Memory::new();
    let (lock, word) = (memory.upload(&[0; 4]), memory.upload(&[0; 4]));
    run(&program, 8, &[lock.into(), word.into()], &memory);
    assert_eq!(words(&memory, word, 1), [255]);
}

#[test]
fn clusters_wait_for_later_ones_on_any_number_of_threads() {
    // CTA c waits until the words of all later CTAs are set, then sets its own.
    let program = kernel(32, 1, |f| {
        let (words, ctas) = (f.param::<u64>("words"), f.param::<u32>("ctas"));
        let cta = f.special(Special::CtaX);
        f.if_(f.special(Special::Lane).equals(0), || {
            f.repeat_from(cta + 1, ctas, |other| {
                f.loop_(|| {
                    let at = Location::global(words + other.mul_wide(4), 0);
                    let [seen] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(Scope::Gpu), at);
                    f.break_if(seen.equals(1));
                });
            });
            let own = Location::global(words + cta.mul_wide(4), 0);
            f.store_ordered(StoreOrder::Release(Scope::Gpu), own, [f.constant(1u32)]);
        });
    });
    for (threads, (schedule, seed)) in
        [0, 1, 3].into_iter().zip(Schedule::sweep(4)).chain([(1, (Schedule::Random, 9))])
    {
        let mut memory = Memory::new();
        let raised = memory.upload(&[0; 40]);
        let options = Options { threads, schedule, seed, ..Options::default() };
        let arguments = [raised.into(), 10u32.into()];
        program.launch(Grid { ctas: [10, 1, 1] }, &arguments, &memory, &options).unwrap();
        assert_eq!(words(&memory, raised, 10), [1; 10], "{options:?}");
    }
}

#[test]
fn partial_sums_handed_over_by_flags() {
    // CTA c adds its numbers to the sum of CTA c - 1, as Stream-K does. The last CTA has the total.
    for (why, look) in [
        ("acquire", LoadOrder::Acquire(Scope::Gpu)),
        ("relaxed and a fence", LoadOrder::Relaxed(Scope::Gpu)),
        ("volatile and a fence", LoadOrder::Volatile),
    ] {
        let program = kernel(64, 1, |f| {
            let (sums, flag) = (f.param::<u64>("sums"), f.param::<u64>("flag"));
            let (thread, cta) = (f.special(Special::ThreadX), f.special(Special::CtaX));
            f.if_(thread.equals(0), || {
                f.loop_(|| {
                    let [done] = f.load_ordered::<u32, 1>(look, Location::global(flag, 0));
                    f.break_if(done.equals(cta));
                });
                if !matches!(look, LoadOrder::Acquire(_)) {
                    f.fence(Scope::Gpu);
                }
            });
            f.barrier_sync(0, 64);
            let word = sums + thread.mul_wide(4);
            f.store_global(word, 0, [f.load_global::<u32>(word, 0) + thread * cta]);
            f.barrier_sync(0, 64);
            f.if_(thread.equals(0), || {
                f.fence(Scope::Gpu);
                f.reduce(AtomicOp::Add, Location::global(flag, 0), [f.constant(1u32)], RELAXED);
            });
        });
        let mut memory = Memory::new();
        let (sums, flag) = (memory.upload(&[0; 256]), memory.upload(&[0; 4]));
        run(&program, 6, &[sums.into(), flag.into()], &memory);
        assert_eq!(words(&memory, sums, 64), (0..64).map(|thread| thread * 15).collect::<Vec<_>>(), "{why}");
    }
}
