//! Semantics and scopes of mbarriers. Source: PTX ISA "mbarrier.arrive", "mbarrier.test_wait", "Memory
//! Consistency Model".

use emulator::Fault;
use ptx::{MbarrierOrder, Scope, Special};

use crate::{Case, Kernel};

const RELAXED: MbarrierOrder = MbarrierOrder::Relaxed(Scope::Cluster);

/// How CTA 1 passes a word of global memory to CTA 0 through the mbarrier of CTA 0.
struct HandOver {
    fence: Option<Scope>,
    arrive: MbarrierOrder,
    wait: MbarrierOrder,
    fence_after: Option<Scope>,
}

const SOUND: HandOver =
    HandOver { fence: None, arrive: MbarrierOrder::CLUSTER, wait: MbarrierOrder::CLUSTER, fence_after: None };

impl Kernel<'_> {
    fn hand_over_by_mbarrier(self, how: &HandOver) {
        let f = self.f;
        let rank = f.special(Special::ClusterRank);
        self.init();
        self.meet();
        let word = self.data + self.thread.mul_wide(4);
        f.if_(rank.equals(1), || {
            f.store_global(word, 0, [self.thread]);
            f.warp_sync();
            if let Some(scope) = how.fence {
                f.fence(scope);
            }
            let remote = f.map_shared(self.barrier(), 0);
            self.once(|| f.mbarrier_arrive_as(remote, true, how.arrive));
        });
        f.if_(rank.equals(0), || {
            f.mbarrier_wait_as(self.barrier(), 0, how.wait);
            if let Some(scope) = how.fence_after {
                f.fence(scope);
            }
            let _value = f.load_global::<u32>(word, 0);
        });
        self.meet();
    }
}

fn race(fault: &Fault) -> bool {
    matches!(fault, Fault::GlobalRace { write: false, other_write: true, .. })
}

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::in_cluster("a peer's arrival of the CTA's scope, by default, publishes nothing", race, |k| {
            let arrive = if k.broken { MbarrierOrder::CTA } else { MbarrierOrder::CLUSTER };
            k.hand_over_by_mbarrier(&HandOver { arrive, ..SOUND });
        }),
        Case::in_cluster("a wait of the CTA's scope, by default, acquires nothing of a peer", race, |k| {
            let wait = if k.broken { MbarrierOrder::CTA } else { MbarrierOrder::CLUSTER };
            k.hand_over_by_mbarrier(&HandOver { wait, ..SOUND });
        }),
        Case::in_cluster("a relaxed arrival publishes what a fence stands before", race, |k| {
            let fence = (!k.broken).then_some(Scope::Cluster);
            k.hand_over_by_mbarrier(&HandOver { fence, arrive: RELAXED, ..SOUND });
        }),
        Case::in_cluster("a fence of the CTA before a relaxed arrival", race, |k| {
            let fence = Some(if k.broken { Scope::Cta } else { Scope::Cluster });
            k.hand_over_by_mbarrier(&HandOver { fence, arrive: RELAXED, ..SOUND });
        }),
        Case::in_cluster("a relaxed wait acquires where a fence stands after it", race, |k| {
            let fence_after = (!k.broken).then_some(Scope::Cluster);
            k.hand_over_by_mbarrier(&HandOver { wait: RELAXED, fence_after, ..SOUND });
        }),
        Case::new("a relaxed arrival in the CTA", 64, race, |k| {
            let order = if k.broken { MbarrierOrder::Relaxed(Scope::Cta) } else { MbarrierOrder::CTA };
            k.init();
            k.f.barrier_sync(0, 64);
            let warp = k.f.warp_index();
            k.f.if_(warp.equals(1), || {
                k.f.store_global(k.data + k.thread.mul_wide(4) - 128, 0, [k.thread]);
                k.f.warp_sync();
                k.f.if_(k.thread.equals(32), || k.f.mbarrier_arrive_as(k.barrier(), false, order));
            });
            k.f.if_(warp.equals(0), || {
                k.f.mbarrier_wait(k.barrier(), 0);
                let _value = k.f.load_global::<u32>(k.data + k.thread.mul_wide(4), 0);
            });
        }),
        Case::in_cluster(
            "a place that a peer has read is overwritten after its plain arrival, or before",
            fault!(Fault::GlobalRace { .. }),
            |k| {
                let f = k.f;
                let rank = f.special(Special::ClusterRank);
                k.init();
                k.meet();
                let word = k.data + k.thread.mul_wide(4);
                f.if_(rank.equals(1), || {
                    let _value = f.load_global::<u32>(word, 0);
                    f.warp_sync();
                    let remote = f.map_shared(k.barrier(), 0);
                    k.once(|| f.mbarrier_arrive_cluster(remote));
                });
                f.if_(rank.equals(0), || {
                    k.in_broken(|| f.store_global(word, 0, [k.thread]));
                    f.mbarrier_wait(k.barrier(), 0);
                    f.store_global(word, 0, [k.thread]);
                });
                k.meet();
            },
        ),
        Case::new("bytes completed by hand, which publishes nothing without a fence", 64, race, |k| {
            k.init();
            k.once(|| k.f.mbarrier_arrive_expect(k.barrier(), 16u32));
            k.f.barrier_sync(0, 64);
            k.once(|| {
                k.f.store_global(k.data, 0, [k.thread]);
                k.in_twin(|| k.f.fence(Scope::Cta));
                k.f.mbarrier_transact(true, k.barrier(), 16u32, false);
            });
            k.f.if_(k.thread.equals(32), || {
                k.f.mbarrier_wait(k.barrier(), 0);
                let _value = k.f.load_global::<u32>(k.data, 0);
            });
        })
        .isa("mbarrier.complete_tx: .relaxed"),
    ]
}
