//! Hazards: one lane knows, and its warp relies on it. Each way in which a lane gets to know is combined with
//! each access that a warp makes as a whole, and each kind of arrival with each kind of access after the wait.

use emulator::Fault;
use ptx::inst::MbarrierPhase;
use ptx::{LoadOrder, Location, MbarrierOrder, ProxySpace, Scope, StoreOrder, Value};

use crate::tensor_maps::MAP;
use crate::tools::{race, unfenced, unready};
use crate::{BARRIER, BOX_BYTES, Case, Kernel};

const WAITS: &str = "mbarrier.try_wait: visibility to the executing thread";
const ARRIVES: &str = "mbarrier.arrive: release of the executing thread, at the mbarrier that it names";

/// How the consumers get to know what the producer has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// They wait for the mbarrier of a tensor load.
    Load,
    /// They poll that mbarrier.
    Poll,
    /// They wait for an mbarrier at which the producer's threads have arrived.
    Arrival,
    /// They acquire a flag.
    Flag,
    /// They know, but have to execute the proxy fence themselves.
    Fence,
}

/// An access of a whole warp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// A multiply whose A, or only whose B, the producer has written.
    OperandA,
    OperandB,
    LoadMatrix,
    StoreMatrix,
    PublishMap,
}

impl<'f> Kernel<'f> {
    fn reads_rows(self, row: Value<'f, u32>) {
        let _fragment = self.f.load_matrix::<4>(row, false);
    }

    fn flag_word(self) -> Location {
        Location::shared(self.base, BARRIER as i32 + 512)
    }

    /// The last of five warps writes.
    fn writes(self, way: Way, access: Access) {
        let f = self.f;
        let place = self.base + if access == Access::OperandA { 2048 } else { 0 };
        match (way, access) {
            (Way::Load | Way::Poll, _) => self.in_thread(128, || self.bring(place, self.bar(0))),
            (_, Access::PublishMap) => {
                f.copy_tensor_map(self.map, self.base + MAP);
            }
            _ => {
                self.write(place + (self.thread - 128) * 4, 0u32);
                if way != Way::Fence {
                    f.fence_proxy_async(ProxySpace::Shared);
                }
            }
        }
        if matches!(way, Way::Arrival | Way::Fence) {
            f.mbarrier_arrive(self.bar(0));
        } else if way == Way::Flag {
            f.warp_sync();
            let order = StoreOrder::Release(Scope::Cta);
            self.in_thread(128, || f.store_ordered(order, self.flag_word(), [f.constant(1u32)]));
        }
    }

    /// What one lane of each other warp does in the broken program, and every lane in the twin.
    fn learns(self, way: Way) {
        let f = self.f;
        match way {
            Way::Load | Way::Arrival => f.mbarrier_wait(self.bar(0), 0),
            Way::Poll => f.loop_(|| f.break_if(f.mbarrier_test_parity(self.bar(0), 0))),
            Way::Flag => self.poll(self.flag_word(), LoadOrder::Acquire(Scope::Cta)),
            Way::Fence => f.fence_proxy_async(ProxySpace::Shared),
        }
    }

    fn accesses(self, access: Access) {
        let f = self.f;
        let row = self.base + self.lane() * 16;
        match access {
            Access::OperandA | Access::OperandB => {
                let d = self.accumulators();
                f.wgmma_fence();
                if access == Access::OperandA {
                    self.multiply_at(1, &d);
                } else {
                    self.multiply_at(2, &d);
                }
                self.finish();
            }
            Access::LoadMatrix => self.in_warp(0, || self.reads_rows(row)),
            Access::StoreMatrix => self.in_warp(0, || f.store_matrix(row, [self.thread; 4], false)),
            Access::PublishMap => {
                self.in_warp(0, || f.publish_tensor_map(self.out, self.base + MAP, Scope::Gpu));
            }
        }
    }
}

fn warps(way: Way, access: Access) -> Case {
    let why: &'static str = format!("{}: {}", way.name(), access.name()).leak();
    let body = move |k: Kernel<'_>| {
        let (f, alone) = (k.f, k.broken);
        k.zero(6400);
        k.once(|| f.store_ordered(StoreOrder::Relaxed(Scope::Cta), k.flag_word(), [f.constant(0u32)]));
        k.barriers([if matches!(way, Way::Arrival | Way::Fence) { 32 } else { 1 }], 160);
        f.if_else(
            f.warp_index().equals(4),
            || k.writes(way, access),
            || {
                if way == Way::Fence {
                    f.mbarrier_wait(k.bar(0), 0);
                }
                if alone {
                    k.leader(|| k.learns(way));
                } else {
                    k.learns(way);
                }
                k.accesses(access);
            },
        );
    };
    Case::new(why, 160, |f| race(f) || unready(f) || unfenced(f), body).isa(WAITS)
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Load => "one lane waits for a load",
            Self::Poll => "one lane polls the mbarrier of a load",
            Self::Arrival => "one lane waits for other threads",
            Self::Flag => "one lane acquires a flag",
            Self::Fence => "one lane executes the proxy fence",
        }
    }
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Self::OperandA => "wgmma of A",
            Self::OperandB => "wgmma of B",
            Self::LoadMatrix => "ldmatrix",
            Self::StoreMatrix => "stmatrix",
            Self::PublishMap => "tensormap.cp_fenceproxy",
        }
    }
}

fn knowledge() -> Vec<Case> {
    use Access::{LoadMatrix, OperandA, OperandB, PublishMap, StoreMatrix};
    let mut all = Vec::new();
    for way in [Way::Load, Way::Poll, Way::Arrival, Way::Flag] {
        all.extend([OperandA, OperandB, LoadMatrix, StoreMatrix].map(|access| warps(way, access)));
    }
    all.extend([Way::Arrival, Way::Flag].map(|way| warps(way, PublishMap)));
    all.extend([OperandA, OperandB].map(|access| warps(Way::Fence, access)));
    all
}

/// How a lane arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    Plain,
    Relaxed,
    State,
    Dropped,
    Copies,
    Peer,
}

impl Arrival {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "mbarrier.arrive",
            Self::Relaxed => "mbarrier.arrive.relaxed after a fence",
            Self::State => "mbarrier.arrive with a state",
            Self::Dropped => "mbarrier.arrive_drop",
            Self::Copies => "cp.async.mbarrier.arrive",
            Self::Peer => "mbarrier.arrive at a peer",
        }
    }
}

/// The halves of a warp write, and arrive at two mbarriers in one instruction. Another warp waits for one of
/// them, and reads what the other half has written.
fn halves(arrival: Arrival) -> Case {
    let why: &'static str = format!("two mbarriers in one instruction: {}", arrival.name()).leak();
    let peer = arrival == Arrival::Peer;
    let body = move |k: Kernel<'_>| {
        let f = k.f;
        k.zero(1024);
        k.barriers([16, 16], 64);
        if peer {
            k.meet();
        }
        let own = k.data + k.lane().mul_wide(16);
        let half = k.bar(0) + k.lane() / 16 * 8;
        let writer = (k.thread / 32).equals(0);
        let writer = if peer { writer & k.rank().equals(0) } else { writer };
        let reader = (k.thread / 32).equals(1);
        let reader = if peer { reader & k.rank().equals(1) } else { reader };
        f.if_(writer, || {
            match arrival {
                Arrival::Copies => f.copy_async(16, k.base + k.lane() * 16, (own, 0), None),
                Arrival::Plain | Arrival::Relaxed | Arrival::State | Arrival::Dropped | Arrival::Peer => {
                    f.store_global(own, 0, [k.lane()]);
                }
            }
            let one = ptx::inst::Arrival::count(1);
            match arrival {
                Arrival::Plain => f.mbarrier_arrive(half),
                Arrival::Relaxed => {
                    f.fence(Scope::Cta);
                    f.mbarrier_arrive_as(half, false, MbarrierOrder::Relaxed(Scope::Cta));
                }
                Arrival::State => {
                    let _state = f.mbarrier_arrive_state(half, one, false, MbarrierOrder::CTA);
                }
                Arrival::Dropped => f.mbarrier_arrival(half, one, true, false, MbarrierOrder::CTA),
                Arrival::Copies => f.copy_arrive(half),
                Arrival::Peer => f.mbarrier_arrive_as(f.map_shared(half, 1), true, MbarrierOrder::CLUSTER),
            }
        });
        f.if_(reader, || {
            f.mbarrier_wait_as(k.bar(0), 0, if peer { MbarrierOrder::CLUSTER } else { MbarrierOrder::CTA });
            let lane = if k.broken { 17 } else { 3 };
            match arrival {
                Arrival::Copies => k.peek(k.base + lane * 16),
                Arrival::Plain | Arrival::Relaxed | Arrival::State | Arrival::Dropped | Arrival::Peer => {
                    k.touch(k.data + u64::from(lane) * 16);
                }
            }
        });
        f.if_(reader, || f.mbarrier_wait(k.bar(1), 0));
        if peer {
            k.meet();
        }
    };
    let case = Case::new(why, 64, |f| race(f) || unready(f), body).isa(ARRIVES);
    if peer { Case { cluster: 2, ctas: 2, ..case } } else { case }
}

/// What a lane does with memory that the other half of its warp has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Load,
    Matrix,
    Store,
    TensorStore,
}

/// The halves of a warp wait for two loads in one instruction.
fn waits_apart(after: Use) -> Case {
    let why: &'static str = match after {
        Use::Load => "halves wait for two loads: each lane reads the other half's",
        Use::Matrix => "halves wait for two loads: ldmatrix of both",
        Use::Store => "halves wait for two loads: each lane overwrites the other half's",
        Use::TensorStore => "halves wait for two loads: one lane stores both",
    };
    let body = move |k: Kernel<'_>| {
        let f = k.f;
        k.barriers([1, 1], 64);
        k.in_thread(32, || {
            for stage in 0..2 {
                k.bring(k.stage(stage), k.bar(stage));
            }
        });
        k.in_warp(0, || {
            let half = k.lane() / 16;
            f.mbarrier_wait(k.bar(0) + half * 8, 0);
            k.in_twin(|| f.warp_sync());
            match after {
                Use::Load => k.peek(k.base + (half ^ 1) * 1024),
                Use::Store => k.write(k.base + (half ^ 1) * 1024 + k.lane() * 4, 0u32),
                Use::Matrix => k.reads_rows(k.base + 768 + k.lane() * 16),
                Use::TensorStore => {
                    k.store(k.stage(1));
                    k.once(|| f.bulk_wait(0, true));
                }
            }
        });
        for stage in 0..2 {
            f.mbarrier_wait(k.bar(stage), 0);
        }
    };
    Case::new(why, 64, |f| race(f) || unready(f), body).isa(WAITS)
}

/// One lane of a warp waits for the first phase, and all lanes for the second.
fn phases(poll: bool, order: MbarrierOrder) -> Case {
    let how = if poll { "polls" } else { "waits for" };
    let relaxed = if matches!(order, MbarrierOrder::Relaxed(_)) { ", relaxed" } else { "" };
    let why: &'static str =
        format!("one lane {how} a phase, and its warp waits for the next one{relaxed}").leak();
    let body = move |k: Kernel<'_>| {
        let f = k.f;
        k.barriers([1, 1], 64);
        let test = |parity| f.mbarrier_test(k.bar(0), MbarrierPhase::parity(parity), false, order);
        let wait = |parity: u32| match poll {
            true => f.loop_(|| f.break_if(test(parity))),
            false => f.mbarrier_wait_as(k.bar(0), parity, order),
        };
        k.in_thread(32, || {
            f.mbarrier_arrive(k.bar(0));
            f.mbarrier_wait(k.bar(1), 0);
            f.mbarrier_arrive(k.bar(0));
        });
        k.in_warp(0, || {
            k.leader(|| {
                wait(0);
                f.mbarrier_arrive(k.bar(1));
            });
            k.in_twin(|| f.warp_sync());
            wait(1);
        });
    };
    Case::new(why, 64, fault!(Fault::MbarrierMissed { .. }), body).isa(WAITS)
}

pub(crate) fn cases() -> Vec<Case> {
    use Arrival::{Copies, Dropped, Peer, Plain, Relaxed, State};
    const _: () = assert!(BOX_BYTES == 1024, "the stages are next to each other");
    let mut all = knowledge();
    all.extend([Plain, Relaxed, State, Dropped, Copies, Peer].map(halves));
    all.extend([Use::Load, Use::Matrix, Use::Store, Use::TensorStore].map(waits_apart));
    let orders = [MbarrierOrder::CTA, MbarrierOrder::Relaxed(Scope::Cta)];
    all.extend(orders.into_iter().flat_map(|order| [false, true].map(|poll| phases(poll, order))));
    all
}
