//! Hazards of a ring of stages between a producer and its consumers: each step is left out or changed once.

use emulator::Fault;

use crate::tools::{hang, race, unready};
use crate::{BOX_BYTES, Case, Kernel};

/// What is wrong with the ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    FullPhase,
    EmptyPhase,
    FewBytes,
    ManyBytes,
    NoFullWait,
    NoEmptyWait,
    ReleaseBeforeRead,
    ReleaseOfFirst,
    ReleaseOfOneLane,
    FullOfNeighbour,
    ReadOfNeighbour,
    OneOfTwoConsumersCounts,
    OneConsumerOfTwoWaits,
    WritesInPlace,
}

const STAGES: u32 = 2;
const ROUNDS: u32 = 3;

/// One producer warp, then `consumers` warps that read what it loads.
fn ring(k: Kernel<'_>, consumers: u32, flaw: Flaw) {
    let (f, flawed) = (k.f, |one: Flaw| k.broken && flaw == one);
    let counted = if flawed(Flaw::OneOfTwoConsumersCounts) { 1 } else { consumers };
    k.barriers([1, 1, counted, counted], 32 * (1 + consumers));
    f.if_else((k.thread / 32).equals(0), || k.once(|| produce(k, flaw)), || consume(k, flaw));
}

fn produce(k: Kernel<'_>, flaw: Flaw) {
    let flawed = |one: Flaw| k.broken && flaw == one;
    for step in 0..STAGES * ROUNDS {
        let (stage, round) = (step % STAGES, step / STAGES);
        if !flawed(Flaw::NoEmptyWait) {
            let parity = round & 1 ^ u32::from(!flawed(Flaw::EmptyPhase));
            k.f.mbarrier_wait(k.bar(STAGES + stage), parity);
        }
        let bytes =
            BOX_BYTES + 16 * u32::from(flawed(Flaw::ManyBytes)) - 16 * u32::from(flawed(Flaw::FewBytes));
        let full = if flawed(Flaw::FullOfNeighbour) { stage ^ 1 } else { stage };
        k.f.mbarrier_arrive_expect(k.bar(full), bytes);
        k.copy_box(k.stage(stage), k.bar(full), None);
    }
}

fn consume(k: Kernel<'_>, flaw: Flaw) {
    let (f, flawed) = (k.f, |one: Flaw| k.broken && flaw == one);
    for step in 0..STAGES * ROUNDS {
        let (stage, round) = (step % STAGES, step / STAGES);
        let parity = round & 1 ^ u32::from(flawed(Flaw::FullPhase));
        let full = k.bar(stage);
        if flawed(Flaw::OneConsumerOfTwoWaits) {
            f.if_((k.thread / 32).equals(1), || f.mbarrier_wait(full, parity));
        } else if !(flawed(Flaw::NoFullWait) && step == 1) {
            f.mbarrier_wait(full, parity);
        }
        let release = || {
            if !flawed(Flaw::ReleaseOfOneLane) {
                f.warp_sync();
            }
            let released = if flawed(Flaw::ReleaseOfFirst) { 0 } else { stage };
            k.leader(|| f.mbarrier_arrive(k.bar(STAGES + released)));
        };
        if flawed(Flaw::ReleaseBeforeRead) {
            release();
        }
        let read = if flawed(Flaw::ReadOfNeighbour) { stage ^ 1 } else { stage };
        let value = k.read(k.stage(read) + k.lane() * 4);
        if flaw == Flaw::WritesInPlace {
            k.write(k.stage(stage) + k.lane() * 4, value + 1);
            k.in_twin(|| f.fence_proxy_async(ptx::ProxySpace::Shared));
        }
        if !flawed(Flaw::ReleaseBeforeRead) {
            release();
        }
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let one = |why, program: fn(Kernel<'_>), found: fn(&Fault) -> bool| Case::new(why, 64, found, program);
    let two = |why, program: fn(Kernel<'_>), found: fn(&Fault) -> bool| Case::new(why, 96, found, program);
    vec![
        one(
            "ring: a consumer waits for the phase before",
            |k| ring(k, 1, Flaw::FullPhase),
            |f| unready(f) || hang(f) || matches!(f, Fault::MbarrierMissed { .. }),
        )
        .isa("mbarrier.try_wait: phaseParity"),
        one("ring: a producer waits for the first release", |k| ring(k, 1, Flaw::EmptyPhase), hang)
            .isa("mbarrier.try_wait: phaseParity"),
        one(
            "ring: fewer bytes announced than come",
            |k| ring(k, 1, Flaw::FewBytes),
            |f| hang(f) || unready(f),
        )
        .isa("mbarrier: tracking asynchronous operations, tx-count"),
        one("ring: more bytes announced than come", |k| ring(k, 1, Flaw::ManyBytes), hang)
            .isa("mbarrier: tracking asynchronous operations, tx-count"),
        one("ring: one stage not waited for", |k| ring(k, 1, Flaw::NoFullWait), race)
            .isa("cp.async.bulk.tensor: completion mechanism"),
        one(
            "ring: a stage loaded again without its release",
            |k| ring(k, 1, Flaw::NoEmptyWait),
            |f| {
                race(f)
                    || matches!(
                        f,
                        Fault::MbarrierOverArrival { .. } | Fault::MbarrierMissed { .. } | Fault::Hang { .. }
                    )
            },
        )
        .isa("cp.async.bulk.tensor: weak accesses of the async proxy"),
        one("ring: released before it is read", |k| ring(k, 1, Flaw::ReleaseBeforeRead), race)
            .isa("mbarrier.arrive: .release orders earlier accesses alone"),
        one(
            "ring: the first stage released in place of each",
            |k| ring(k, 1, Flaw::ReleaseOfFirst),
            |f| race(f) || hang(f) || matches!(f, Fault::MbarrierMissed { .. }),
        )
        .isa("mbarrier.test_wait: the current and the immediately preceding phase alone"),
        one("ring: one lane releases what all read", |k| ring(k, 1, Flaw::ReleaseOfOneLane), race)
            .isa("bar.warp.sync: memory ordering among participating threads"),
        one(
            "ring: bytes counted on the neighbour's barrier",
            |k| ring(k, 1, Flaw::FullOfNeighbour),
            |f| race(f) || hang(f) || matches!(f, Fault::MbarrierMissed { .. }),
        )
        .isa("cp.async.bulk.tensor: mbar operand"),
        one("ring: the neighbour's stage read", |k| ring(k, 1, Flaw::ReadOfNeighbour), race)
            .isa("cp.async.bulk.tensor: completion mechanism"),
        two(
            "ring: one of two consumers counts",
            |k| ring(k, 2, Flaw::OneOfTwoConsumersCounts),
            |f| {
                race(f)
                    || matches!(
                        f,
                        Fault::MbarrierOverArrival { .. } | Fault::MbarrierMissed { .. } | Fault::Hang { .. }
                    )
            },
        )
        .isa("mbarrier.init: count"),
        two("ring: one of two consumers waits", |k| ring(k, 2, Flaw::OneConsumerOfTwoWaits), race)
            .isa("mbarrier.try_wait: visibility to the executing thread"),
        one(
            "ring: changed in place, no proxy fence before the next load",
            |k| ring(k, 1, Flaw::WritesInPlace),
            |f| crate::tools::unfenced(f) || race(f),
        )
        .isa("Memory Consistency Model, Proxies: fence.proxy.async"),
    ]
}
