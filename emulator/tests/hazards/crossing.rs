//! Hazards: asynchronous accesses of different CTAs to the same bytes, ordered but without a proxy fence; and
//! proxy fences of another CTA's shared memory.

use emulator::Fault;
use ptx::{AtomicOp, AtomicSem, AtomicType, BulkLoad, Location, ProxySpace, Scope, StoreOrder};

use crate::tools::{ACQUIRE, RELEASE, grid, race, unfenced};
use crate::{BOX_BYTES, Case, Kernel};

const CAUSALITY: &str = "Memory Consistency Model, Causality order: proxy-preserved base causality order";

/// How one CTA writes a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Tensor,
    Bulk,
    TensorReduction,
    BulkReduction,
}

/// How another CTA then accesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    TensorLoad,
    BulkLoad,
    TensorStore,
    BulkStore,
}

const SUM: (AtomicOp, AtomicType) = (AtomicOp::Add, AtomicType::Bf16);

impl Write {
    fn name(self) -> &'static str {
        match self {
            Self::Tensor => "a tensor store",
            Self::Bulk => "a bulk store",
            Self::TensorReduction => "a tensor reduction",
            Self::BulkReduction => "a bulk reduction",
        }
    }
}

impl Then {
    fn name(self) -> &'static str {
        match self {
            Self::TensorLoad => "tensor load",
            Self::BulkLoad => "bulk load",
            Self::TensorStore => "tensor store",
            Self::BulkStore => "bulk store",
        }
    }
}

impl Kernel<'_> {
    fn writes_box(self, write: Write) {
        let (f, origin) = (self.f, [self.f.constant(0); 2]);
        match write {
            Write::Tensor => f.tensor_store(self.map, self.base, origin),
            Write::Bulk => f.bulk_store(self.data, self.base, BOX_BYTES),
            Write::TensorReduction => f.tensor_reduce(AtomicOp::Add, self.map, self.base, origin),
            Write::BulkReduction => f.bulk_reduce(SUM, self.data, self.base, BOX_BYTES),
        }
        f.bulk_commit();
        f.bulk_wait(0, false);
    }

    fn uses_box(self, then: Then) {
        let (f, origin) = (self.f, [self.f.constant(0); 2]);
        match then {
            Then::TensorLoad => self.bring(self.stage(2), self.barrier()),
            Then::BulkLoad => {
                f.mbarrier_arrive_expect(self.barrier(), 64);
                let (src, dst, barrier) = (self.data, self.stage(2), self.barrier());
                f.bulk_load(BulkLoad { src, dst, barrier, multicast: None, hint: None }, 64);
            }
            Then::TensorStore => f.tensor_store(self.map, self.base, origin),
            Then::BulkStore => f.bulk_store(self.data, self.base, 64),
        }
        f.bulk_commit();
        f.bulk_wait(0, false);
    }
}

/// One CTA writes and raises a flag, another one sees the flag and uses the box. The proxy fence is before the
/// flag, or after it.
fn between(write: Write, then: Then, before: bool) -> Case {
    let (write_name, then_name) = (write.name(), then.name());
    let why: &'static str =
        format!("{write_name}, a flag, and a {then_name} in another CTA without a proxy fence").leak();
    let body = move |k: Kernel<'_>| {
        let f = k.f;
        k.init();
        k.zero(BOX_BYTES);
        f.warp_sync();
        let fence = |here: bool| {
            if !k.broken && here {
                f.fence_proxy_async(ProxySpace::Global);
            }
        };
        k.once_in(0, || {
            k.writes_box(write);
            fence(before);
            k.set_flag(0, RELEASE);
        });
        k.in_cta(1, || {
            k.once(|| {
                k.poll(k.flag_at(0), ACQUIRE);
                fence(!before);
                k.uses_box(then);
            });
            if matches!(then, Then::TensorLoad | Then::BulkLoad) {
                f.mbarrier_wait(k.barrier(), 0);
            }
        });
    };
    grid(why, 2, unfenced, body).isa(CAUSALITY)
}

/// How a thread writes to the memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remote {
    Store,
    Relaxed,
    Atomic,
}

/// How the peer's copy reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    TensorStore,
    BulkStore,
    Share,
}

/// Rank 0 writes to rank 1 and executes a proxy fence. The broken program's fence is for its own CTA alone.
fn remote(write: Remote, reader: Reader) -> Case {
    let write_name = match write {
        Remote::Store => "st",
        Remote::Relaxed => "st.relaxed",
        Remote::Atomic => "atom",
    };
    let reader_name = match reader {
        Reader::TensorStore => "tensor store",
        Reader::BulkStore => "bulk store",
        Reader::Share => "copy to a peer",
    };
    let why: &'static str =
        format!("fence.proxy.async.shared::cta after a {write_name} to a peer, then its {reader_name}")
            .leak();
    let body = move |k: Kernel<'_>| {
        let f = k.f;
        k.ready();
        k.once_in_rank(0, || {
            let peer = f.map_shared(k.base, 1);
            let at = Location::cluster(peer, 0);
            match write {
                Remote::Store => k.write_peer(peer, k.thread),
                Remote::Relaxed => {
                    f.store_ordered(StoreOrder::Relaxed(Scope::Cluster), at, [k.thread]);
                }
                Remote::Atomic => {
                    f.reduce(AtomicOp::Add, at, [k.thread], (AtomicSem::Relaxed, Scope::Cluster));
                }
            }
            f.fence_proxy_async(if k.broken { ProxySpace::Shared } else { ProxySpace::SharedCluster });
        });
        k.meet();
        k.in_rank(0, || {
            if reader == Reader::Share {
                k.once(|| f.mbarrier_arrive_expect(k.barrier(), 64));
            }
        });
        k.in_rank(1, || {
            k.once(|| match reader {
                Reader::TensorStore => f.tensor_store(k.out_map, k.base, [f.constant(0); 2]),
                Reader::BulkStore => f.bulk_store(k.out, k.base, 64),
                Reader::Share => {
                    let to = (f.map_shared(k.stage(2), 0), f.map_shared(k.barrier(), 0));
                    f.bulk_share(to, k.base, 64, None);
                }
            });
            k.once(|| {
                f.bulk_commit();
                f.bulk_wait(0, false);
            });
        });
        k.in_rank(0, || {
            if reader == Reader::Share {
                f.mbarrier_wait(k.barrier(), 0);
            }
        });
        k.meet();
    };
    Case::in_cluster(why, unfenced, body).isa("fence.proxy.async: .shared::cta")
}

/// Atomics of the generic proxy and reductions by copies are not morally strong to each other.
fn sums(write: Write) -> Case {
    let why: &'static str = format!("{} and an atomic to the same word", write.name()).leak();
    let body = move |k: Kernel<'_>| {
        let f = k.f;
        k.zero(BOX_BYTES);
        f.warp_sync();
        k.once_in(0, || {
            k.writes_box(write);
            if !k.broken {
                f.fence_proxy_async(ProxySpace::Global);
                k.set_flag(0, RELEASE);
            }
        });
        k.once_in(1, || {
            k.in_twin(|| k.poll(k.flag_at(0), ACQUIRE));
            let (at, one) = (Location::global(k.data, 0), f.constant(0u16));
            f.reduce_as(AtomicOp::Add, AtomicType::Bf16, at, [one], crate::tools::RELAXED);
        });
    };
    grid(why, 2, |fault: &Fault| race(fault), body)
        .isa("Memory Consistency Model, Morally strong operations: the same proxy")
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (write, before) in [
        (Write::Tensor, true),
        (Write::Bulk, false),
        (Write::TensorReduction, false),
        (Write::BulkReduction, true),
    ] {
        all.extend([Then::TensorLoad, Then::BulkLoad].map(|then| between(write, then, before)));
    }
    all.extend([Then::TensorStore, Then::BulkStore].map(|then| between(Write::Tensor, then, true)));
    for reader in [Reader::TensorStore, Reader::BulkStore, Reader::Share] {
        all.push(remote(Remote::Store, reader));
    }
    all.extend([Remote::Relaxed, Remote::Atomic].map(|write| remote(write, Reader::TensorStore)));
    all.extend([Write::TensorReduction, Write::BulkReduction].map(sums));
    all
}
