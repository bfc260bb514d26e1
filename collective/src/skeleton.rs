//! The skeleton of a warp-specialised kernel: what every CTA does before, between and after the work of its roles.
//!
//! A kernel emits [`Cta::begin`], then what all threads compute, then [`Cta::roles`]. GEMM, attention and kernels of
//! your own have the same skeleton; they differ in their rings ([`RingPlan::placed_together`](crate::RingPlan::placed_together))
//! and in what producer and consumers do.

use ptx::{Builder, Value};

use crate::plan::{CtaPlan, Peers, Producer};

/// A CTA whose beginning was emitted.
///
/// ```
/// use collective::pipeline::{ClusterPosition, Release, Ring, Stage};
/// use collective::skeleton::Cta;
/// use collective::{Arrivals, CtaPlan, Producer, RingPlan, RoleRegisters, StageSlot};
/// use ptx::{BulkLoad, Function, Special};
///
/// // Two stages of 1 KB, which one thread fills and a warpgroup gives back.
/// const RING: RingPlan = RingPlan::of(&[StageSlot::line(1024)]).placed(2, 0, 2048).arrivals(1, 1);
/// let (registers, shared_bytes) = (RoleRegisters::divided(1, Some(24)), RING.barriers + RING.barrier_bytes());
/// let plan = CtaPlan::alone(Producer::Thread, 1, registers, shared_bytes);
/// let function = Function::build(plan.entry("eight_stages"), |f| {
///     let (src, shared) = (f.param::<u64>("source"), f.shared_base());
///     let ring = Ring::new(f, RING, shared);
///     let produce = || {
///         let (position, bytes) = (ring.producer(), f.constant(RING.transaction_bytes()));
///         f.repeat(f.constant(8), |_| {
///             position.produce(bytes, |Stage { address: dst, full: barrier, .. }| {
///                 f.bulk_load(BulkLoad { src, dst, barrier, multicast: None, hint: None }, bytes);
///             });
///         });
///     };
///     let consume = |_| {
///         let (position, thread) = (ring.consumer(), f.special(Special::ThreadX) % 128);
///         let release = Release::new(f, Arrivals::Warpgroup, ClusterPosition::new(f, [1, 1]), shared, thread);
///         f.repeat(f.constant(8), |_| release.arrive(position.acquire().empty));
///     };
///     Cta::begin(f, plan, || ring.initialise()).roles(produce, consume);
/// });
/// function.verify()?;
/// # Ok::<(), ptx::VerifyError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Cta<'f> {
    f: &'f Builder,
    plan: CtaPlan,
    warp: Value<'f, u32>,
}

impl<'f> Cta<'f> {
    /// Emits the beginning. One thread runs `initialise`, which prefetches tensor maps and initialises the mbarriers
    /// of all rings. Then all threads see these mbarriers. Global memory is accessed only after this.
    #[track_caller]
    pub fn begin(f: &'f Builder, plan: CtaPlan, initialise: impl FnOnce()) -> Self {
        let cta = Self::begin_unawaited(f, plan, initialise);
        if plan.overlaps {
            f.for_caller(|| f.grid_wait());
        }
        cta
    }

    /// As [`begin`](Self::begin), but without the wait for the kernels before. Each role waits for them ([`Builder::grid_wait`]) before it
    /// accesses global memory. What it computes or prefetches before that takes no time after them.
    #[track_caller]
    pub fn begin_unawaited(f: &'f Builder, plan: CtaPlan, initialise: impl FnOnce()) -> Self {
        f.share_registers(plan.resident);
        f.for_caller(|| {
            let warp = f.warp_index();
            f.if_(warp.equals(0), || {
                f.if_(f.elect(), || {
                    f.of_caller(initialise);
                    f.fence_mbarrier_init();
                });
            });
            match plan.peers {
                Peers::Fill | Peers::Drain => meet(f, true),
                Peers::Apart | Peers::Exchange => f.barrier_sync(CtaPlan::CTA_BARRIER, plan.threads()),
            }
            if plan.overlaps {
                f.grid_launch_dependents();
            }
            Self { f, plan, warp }
        })
    }

    /// Emits something for the lanes of the first warp.
    #[track_caller]
    pub fn first_warp(&self, body: impl FnOnce()) {
        self.f.if_(self.warp.equals(0), body);
    }

    /// Emits the roles, and the end. `produce` is run by the threads that [`CtaPlan::producer`] names, `consume` by
    /// each consumer warpgroup, which gets its number.
    #[track_caller]
    pub fn roles(self, produce: impl FnOnce(), consume: impl FnOnce(Value<'f, u32>)) {
        let f = self.f;
        let produce = || f.of_caller(produce);
        let consume = |warpgroup| f.of_caller(|| consume(warpgroup));
        f.for_caller(|| self.branches(produce, consume));
    }

    fn branches(self, produce: impl FnOnce(), consume: impl FnOnce(Value<'f, u32>)) {
        let Self { f, plan: CtaPlan { producer, registers, peers, .. }, warp } = self;
        match producer {
            None => f.scope("consumer", || consume(warp / 4)),
            Some(producer) => f.if_else(
                warp.less_than(4),
                || {
                    f.scope("producer", || {
                        f.set_max_registers(false, registers.producer);
                        match producer {
                            Producer::Thread => f.if_(warp.equals(0), || f.if_(f.elect(), produce)),
                            Producer::Warpgroup => produce(),
                        }
                        // The consumers' exchange has a barrier of all threads.
                        if peers == Peers::Exchange {
                            meet(f, false);
                        }
                    });
                },
                || {
                    f.scope("consumer", || {
                        f.set_max_registers(true, registers.consumer);
                        consume(warp / 4 - 1);
                    });
                },
            ),
        }
        if matches!(peers, Peers::Fill | Peers::Exchange) {
            // No CTA may exit while other CTAs still access its shared memory or arrive on its barriers.
            meet(f, false);
        }
    }
}

/// A barrier for all consumers of the CTA: the first one of its [own](CtaPlan::own_barriers).
#[track_caller]
pub fn meet_consumers(f: &Builder, plan: CtaPlan) {
    f.barrier_sync(plan.own_barriers().start, plan.consumers * 128);
}

/// A barrier for all threads of the cluster. With `relaxed`, it orders no memory accesses; the caller has
/// fenced them already. Otherwise what threads wrote to shared memory is there for each other.
pub fn meet(f: &Builder, relaxed: bool) {
    f.cluster_arrive(relaxed);
    f.cluster_wait();
}
