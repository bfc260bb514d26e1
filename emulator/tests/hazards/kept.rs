//! Hazards: several copies read the same source, and the thread that overwrites it has waited for all but one.

use emulator::Fault;
use ptx::{AtomicOp, AtomicType, BulkLoad};

use crate::tools::{RELAXED, race};
use crate::{BOX_BYTES, Case, Kernel};

const SOURCE: &str = "cp.async.bulk: completion mechanism";

/// A copy that reads the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    Tensor,
    Bulk,
    Thread,
}

/// What overwrites the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Store,
    Reduction,
    BulkStore,
    TensorStore,
}

impl Kernel<'_> {
    /// Thread 0 of the warp with this number, or for copies of threads each lane, starts a copy.
    fn starts(self, copy: Copy, number: u32) {
        let (f, dst, barrier) = (self.f, self.stage(number), self.bar(number));
        match copy {
            Copy::Tensor => self.leader(|| self.bring(dst, barrier)),
            Copy::Bulk => self.leader(|| {
                f.mbarrier_arrive_expect(barrier, 256);
                f.bulk_load(BulkLoad { src: self.data, dst, barrier, multicast: None, hint: None }, 256);
            }),
            Copy::Thread => {
                let lane = self.lane();
                f.copy_async(16, dst + lane * 16, (self.data + lane.mul_wide(16), 0), None);
                f.copy_arrive(barrier);
            }
        }
    }

    fn overwrites(self, by: Over) {
        let f = self.f;
        match by {
            Over::Store => f.store_global(self.data, 0, [self.thread]),
            Over::Reduction => {
                let one = [f.constant(1u32)];
                f.reduce(AtomicOp::Add, ptx::Location::global(self.data, 0), one, RELAXED);
            }
            Over::BulkStore => f.bulk_store(self.data, self.stage(4), 64),
            Over::TensorStore => f.tensor_store(self.map, self.stage(4), [f.constant(0); 2]),
        }
        f.bulk_commit();
        f.bulk_wait(0, false);
    }
}

/// Three warps copy. The fourth waits for all copies but the one with this number.
fn all_but(copy: Copy, missed: u32, by: Over) -> Case {
    let name = match copy {
        Copy::Tensor => "tensor loads",
        Copy::Bulk => "bulk loads",
        Copy::Thread => "cp.async of three warps",
    };
    let by_name = match by {
        Over::Store => "st",
        Over::Reduction => "red",
        Over::BulkStore => "a bulk store",
        Over::TensorStore => "a tensor store",
    };
    let which = ["first", "second", "third"][missed as usize];
    let why: &'static str =
        format!("the source of three {name} overwritten by {by_name}, the {which} not waited for").leak();
    let body = move |k: Kernel<'_>| {
        let f = k.f;
        k.zero(6144);
        let count = if copy == Copy::Thread { 32 } else { 1 };
        k.barriers([count; 3], 128);
        for number in 0..3 {
            k.in_warp(number, || k.starts(copy, number));
            f.barrier_sync(1, 128);
        }
        k.in_warp(3, || {
            for number in 0..3 {
                if !(k.broken && number == missed) {
                    f.mbarrier_wait(k.bar(number), 0);
                }
            }
            k.leader(|| k.overwrites(by));
        });
        for number in 0..3 {
            f.mbarrier_wait(k.bar(number), 0);
        }
    };
    Case::new(why, 128, race, body).isa(SOURCE)
}

/// Rank 0 sends to four ranks. The last rank overwrites the source when all but one have told.
fn multicast(missed: u32) -> Case {
    let why: &'static str =
        format!("the source of a multicast to four ranks overwritten, rank {missed} not waited for").leak();
    let body = move |k: Kernel<'_>| {
        let f = k.f;
        k.once(|| {
            f.mbarrier_init(k.bar(0), 1);
            f.mbarrier_init(k.bar(1), 3);
            f.fence_mbarrier_init();
        });
        k.meet();
        k.once(|| f.mbarrier_arrive_expect(k.bar(0), BOX_BYTES));
        k.once_in_rank(0, || k.copy_box(k.base, k.bar(0), Some(f.constant(0xFu16))));
        f.mbarrier_wait(k.bar(0), 0);
        // In the broken program rank `missed` is told in its place.
        let rank = k.rank();
        let tells = if k.broken { rank.differs_from(missed) } else { rank.differs_from(4) };
        let other = f.map_shared(k.bar(1), 3);
        k.once(|| {
            f.if_(tells & rank.less_than(3), || f.mbarrier_arrive_cluster(other));
            k.in_broken(|| k.in_rank(3, || f.mbarrier_arrive(k.bar(1))));
        });
        k.in_rank(3, || {
            f.mbarrier_wait(k.bar(1), 0);
            k.once(|| f.store_global(k.data, 0, [k.thread]));
        });
        k.meet();
    };
    let case = Case::new(why, 32, |fault: &Fault| race(fault), body);
    Case { cluster: 4, ctas: 4, ..case }
        .isa("cp.async.bulk.tensor: .multicast::cluster, completion on each CTA's mbarrier")
}

/// Many threads read or add to a word in turn; another thread overwrites it when it knows of all but one.
fn crowd(reduces: bool) -> Case {
    let why = if reduces {
        "a word overwritten to which a hundred CTAs add, one of them not waited for"
    } else {
        "a word overwritten that a hundred CTAs read, one of them not waited for"
    };
    let body = move |k: Kernel<'_>| {
        let (f, cta) = (k.f, k.f.special(ptx::Special::CtaX));
        let last = cta.equals(100);
        k.once(|| {
            f.if_else(
                last,
                || {
                    let all = f.constant(if k.broken { 99u32 } else { 100 });
                    f.loop_(|| {
                        let [seen] = f.load_ordered::<u32, 1>(crate::tools::ACQUIRE, k.flag_at(0));
                        f.break_if(!seen.less_than(all));
                    });
                    f.store_global(k.data, 0, [k.thread]);
                },
                || {
                    if reduces {
                        f.reduce(AtomicOp::Add, ptx::Location::global(k.data, 0), [k.thread], RELAXED);
                    } else {
                        k.touch(k.data);
                    }
                    let _old = k.add(k.flag_at(0), ptx::AtomicSem::Release);
                },
            );
        });
    };
    Case::new(why, 32, race, body).ctas(101).isa("Memory Consistency Model, Conflict and data-races")
}

/// Three CTAs reduce into a box. The fourth knows that all but one have ended.
fn reductions() -> Case {
    let body = |k: Kernel<'_>| {
        let (f, cta) = (k.f, k.f.special(ptx::Special::CtaX));
        k.zero(BOX_BYTES);
        k.once(|| {
            f.if_else(
                cta.less_than(3),
                || {
                    f.bulk_reduce((AtomicOp::Add, AtomicType::U32), k.data, k.base, 64);
                    f.bulk_commit();
                    f.bulk_wait(0, false);
                    let _old = k.add(k.flag_at(0), ptx::AtomicSem::Release);
                },
                || {
                    let all = f.constant(if k.broken { 2u32 } else { 3 });
                    f.loop_(|| {
                        let [seen] = f.load_ordered::<u32, 1>(crate::tools::ACQUIRE, k.flag_at(0));
                        f.break_if(!seen.less_than(all));
                    });
                    k.touch(k.data);
                },
            );
        });
    };
    Case::new("sums of three bulk reductions read when two have ended", 32, race, body)
        .ctas(4)
        .isa("cp.reduce.async.bulk: completion mechanism")
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for copy in [Copy::Tensor, Copy::Bulk, Copy::Thread] {
        all.extend((0..3).map(|missed| all_but(copy, missed, Over::Store)));
    }
    for by in [Over::Reduction, Over::BulkStore, Over::TensorStore] {
        all.push(all_but(Copy::Tensor, 1, by));
    }
    all.extend((0..3).map(multicast));
    all.extend([crowd(false), crowd(true), reductions()]);
    all
}
