//! For each reason: a program in which it holds, and one in which the same change is a mistake.

use collective::pipeline::Ring;
use collective::{RingPlan, StageSlot};
use ptx::inst::{AtomicOp, AtomicSem, Scope};
use ptx::mutate::{Change, mutations};
use ptx::{Builder, Entry, Function, Location, ProxySpace, Target};

use super::Reason;

fn built(emit: impl FnOnce(&Builder)) -> Function {
    let entry = Entry {
        name: "example".to_owned(),
        target: Target::Sm90a,
        threads: 384,
        shared_bytes: 8192,
        cluster: [1, 1, 1],
    };
    Function::build(entry, emit)
}

/// The reason for the first mutant of this kind.
fn reason(target: &str, change: Change, emit: impl FnOnce(&Builder)) -> Option<&'static str> {
    let function = built(emit);
    let all = mutations(&function);
    let mutation = all.iter().find(|mutation| mutation.target == target && mutation.change == change);
    Reason::of(&function, mutation.expect("such a mutant")).map(Reason::name)
}

fn swapped(target: &str, emit: impl FnOnce(&Builder)) -> Option<&'static str> {
    reason(target, Change::Swap, emit)
}

#[test]
fn a_group_may_end_after_what_is_no_multiply() {
    let commits = |then: &dyn Fn(&Builder)| {
        swapped("wgmma.commit_group", |f| {
            f.wgmma_commit();
            then(f);
        })
    };
    assert_eq!(commits(&|f| f.barrier_arrive(f.constant(3), 256)), Some("same-group"));
    assert_eq!(commits(&|f| f.wgmma_wait(0)), None);
}

#[test]
fn a_group_may_end_after_a_wait_for_none() {
    let repeated = |last: u32| {
        swapped("wgmma.commit_group", |f| {
            f.repeat(f.constant(4), |_| {
                f.wgmma_commit();
                f.wgmma_wait(1);
                f.warp_sync();
                f.wgmma_wait(last);
            });
        })
    };
    assert_eq!(repeated(0), Some("waits-for-none"));
    // The group of the iteration before is still in flight.
    assert_eq!(repeated(1), None);
}

#[test]
fn a_wait_for_no_group_may_be_left_out() {
    let between = |pending: u32, then: u32| {
        reason("wgmma.wait_group", Change::Delete, |f| {
            f.repeat(f.constant(4), |_| {
                f.wgmma_commit();
                f.wgmma_wait(pending);
                f.warp_sync();
                f.wgmma_wait(then);
            });
        })
    };
    assert_eq!(between(1, 0), Some("waits-for-nothing"));
    assert_eq!(between(0, 0), None);
    // One group of the iteration before is still in flight.
    assert_eq!(between(1, 1), None);
}

#[test]
fn an_arrival_may_come_after_a_wait_for_no_thread() {
    let arrives = |then: &dyn Fn(&Builder)| {
        swapped("bar.arrive", |f| {
            f.barrier_arrive(f.constant(3), 256);
            then(f);
        })
    };
    assert_eq!(arrives(&|f| f.wgmma_wait(0)), Some("releases-later"));
    assert_eq!(arrives(&|f| f.mbarrier_wait(f.shared_base(), 0)), None);
}

#[test]
fn two_waits_may_come_in_either_order() {
    let waits = |then: &dyn Fn(&Builder)| {
        swapped("mbarrier.try_wait", |f| {
            f.mbarrier_wait(f.shared_base(), 0);
            then(f);
        })
    };
    assert_eq!(waits(&|f| f.bulk_wait(0, true)), Some("two-waits"));
    assert_eq!(waits(&|f| f.mbarrier_arrive(f.shared_base() + 8)), None);
    let copies = swapped("cp.async.bulk.wait_group", |f| {
        f.bulk_wait(0, true);
        f.mbarrier_wait(f.shared_base(), 0);
    });
    assert_eq!(copies, Some("two-waits"));
    // What was copied is released before it is there.
    let released = swapped("cp.async.bulk.wait_group", |f| {
        f.bulk_commit();
        f.bulk_wait(0, true);
        f.mbarrier_arrive(f.shared_base());
    });
    assert_eq!(released, None);
}

#[test]
fn a_proxy_fence_may_come_later_and_not_earlier() {
    let later = swapped("fence.proxy.async", |f| {
        f.fence_proxy_async(ProxySpace::Shared);
        f.mbarrier_wait(f.shared_base(), 0);
    });
    assert_eq!(later, Some("fences-later"));
    let earlier = swapped("mbarrier.try_wait", |f| {
        f.mbarrier_wait(f.shared_base(), 0);
        f.fence_proxy_async(ProxySpace::Shared);
    });
    assert_eq!(earlier, None);
}

#[test]
fn a_proxy_fence_may_come_after_a_barrier_of_those_who_fence() {
    let beside = |number: u32| {
        swapped("fence.proxy.async", |f| {
            f.fence_proxy_async(ProxySpace::Shared);
            f.barrier_sync(1, 128);
            f.barrier_arrive(f.constant(number), 256);
        })
    };
    assert_eq!(beside(2), Some("fences-behind"));
    assert_eq!(beside(1), None);
}

#[test]
fn a_turn_may_begin_before_a_stage_is_there() {
    let turns = |of_all: bool| {
        swapped("mbarrier.try_wait", |f| {
            let warp = f.warp_index();
            let consume = || {
                let warpgroup = warp / 4 - 1;
                f.mbarrier_wait(f.shared_base(), 0);
                let own = if of_all { f.constant(3) } else { warpgroup + 3 };
                f.barrier_sync(own, 256);
                f.wgmma_fence();
                f.wgmma_commit();
                f.barrier_arrive(f.constant(4) - warpgroup, 256);
            };
            f.if_else(warp.less_than(4), || f.warp_sync(), || f.scope("consumer", consume));
        })
    };
    assert_eq!(turns(false), Some("turn-or-stage"));
    // Both warpgroups wait at one barrier: one may have waited for the other's stage.
    assert_eq!(turns(true), None);
}

#[test]
fn one_lane_may_wait_before_a_barrier_of_the_warp() {
    let between = |reads: bool| {
        reason("mbarrier.try_wait", Change::OneLane, |f| {
            f.mbarrier_wait(f.shared_base(), 0);
            if reads {
                let [read] = f.load_shared_vector::<u32, 1>(f.shared_base(), 1024);
                f.store_shared(f.shared_base(), 2048, [read]);
            }
            f.mbarrier_wait(f.shared_base() + 8, 0);
            f.barrier_sync(1, 128);
        })
    };
    assert_eq!(between(false), Some("meets-later"));
    assert_eq!(between(true), None);
}

#[test]
fn bytes_may_be_announced_before_a_stage_is_empty() {
    let announces = |bytes: u32| {
        swapped("mbarrier.try_wait", |f| {
            f.repeat(f.constant(4), |_| {
                f.mbarrier_wait(f.shared_base(), 0);
                f.mbarrier_arrive_expect(f.shared_base() + 8, bytes);
            });
        })
    };
    assert_eq!(announces(1024), Some("announces-early"));
    // The phase ends with the arrival.
    assert_eq!(announces(0), None);
}

#[test]
fn stages_without_bytes_order_no_memory() {
    let plan = |bytes: u32| {
        let tiles = [StageSlot::line(bytes)];
        RingPlan::of(&tiles[..usize::from(bytes > 0)]).placed(2, 0, 4096).arrivals(1, 1)
    };
    let released = |target, change, bytes| {
        reason(target, change, |f| {
            let ring = Ring::named(f, "the ring", plan(bytes), f.shared_base());
            let (filler, reader, word) = (ring.producer(), ring.consumer(), f.param::<u64>("word"));
            f.repeat(f.constant(4), |_| {
                if target == "mbarrier.try_wait" {
                    let stage = filler.claim();
                    return f.store_shared(stage.address, 0, [f.constant(1u32)]);
                }
                let stage = reader.acquire();
                let order = (AtomicSem::Release, Scope::Gpu);
                f.reduce(AtomicOp::Add, Location::global(word, 0), [f.constant(1u32)], order);
                f.mbarrier_arrive(stage.empty);
            });
        })
    };
    for (target, change, name) in [
        ("mbarrier.try_wait", Change::Relax, "without-bytes"),
        ("mbarrier.arrive", Change::Relax, "without-bytes"),
        ("red", Change::Swap, "without-bytes-next"),
    ] {
        assert_eq!(released(target, change, 0), Some(name));
        assert_eq!(released(target, change, 1024), None, "{target}");
    }
    let full = reason("mbarrier.try_wait", Change::Relax, |f| {
        let ring = Ring::named(f, "the ring", plan(0), f.shared_base());
        let reader = ring.consumer();
        f.repeat(f.constant(4), |_| {
            let stage = reader.acquire();
            f.store_shared(stage.address, 0, [f.constant(1u32)]);
        });
    });
    assert_eq!(full, None);
}
