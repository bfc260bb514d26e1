//! The numbers of a CTA that every warp-specialised kernel has.

use core::ops::Range;

use ptx::{Entry, Value};

use super::Producer;
use super::registers::RoleRegisters;
use super::units::TARGET;

/// What the CTAs of a cluster do with each other's shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Peers {
    /// Nothing; or the cluster is one CTA.
    Apart,
    /// They copy into it and arrive on its mbarriers, from beginning to end. They wait for each other at the end.
    Fill,
    /// They copy into it and arrive on its mbarriers. Each producer waits at its end until all that it has loaded or
    /// passed on was given back ([`Position::drain`](crate::pipeline::Position::drain)), so the others need not wait.
    Drain,
    /// Consumers exchange partial results through it ([`exchange_in_cluster`](crate::exchange_in_cluster)) when they
    /// have multiplied.
    Exchange,
}

/// The numbers of a CTA: what [`Cta`](crate::skeleton::Cta) emits roles from.
///
/// ```
/// use collective::{CtaPlan, Producer, RoleRegisters};
///
/// let registers = RoleRegisters::divided(2, Some(24));
/// let plan = CtaPlan { overlaps: true, turns: true, ..CtaPlan::alone(Producer::Thread, 2, registers, 96 << 10) };
/// assert_eq!((plan.threads(), plan.registers.launch, plan.registers.consumer), (384, 168, 240));
/// assert_eq!((plan.turn_barriers(), plan.own_barriers()), (3..5, 5..16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CtaPlan {
    /// Which threads of the first warpgroup produce; `None` if every warpgroup is a consumer.
    pub producer: Option<Producer>,
    /// Number of warpgroups that multiply.
    pub consumers: u32,
    /// Registers per thread of the producer warpgroup, and of a consumer.
    pub registers: RoleRegisters,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// CTAs per cluster.
    pub cluster: u32,
    /// CTAs that an SM has at the same time. Registers and shared memory are those of one of them.
    pub resident: u32,
    /// What they do with each other's shared memory.
    pub peers: Peers,
    /// Whether the kernel may start while the previous kernel in its stream still runs.
    pub overlaps: bool,
    /// Whether consumers take turns in loops, by named barriers: see [`Turns::in_loop`](crate::pipeline::Turns::in_loop).
    pub turns: bool,
}

impl CtaPlan {
    /// The named barrier of all threads of a CTA, or of all its consumers.
    pub const CTA_BARRIER: u32 = 0;

    /// The named barrier of the first consumer warpgroup; those of the others follow.
    const CONSUMER_BARRIER: u32 = Self::CTA_BARRIER + 1;

    /// A CTA without a cluster, which starts after the previous kernel and whose consumers take no turns.
    pub const fn alone(
        producer: Producer,
        consumers: u32,
        registers: RoleRegisters,
        shared_bytes: u32,
    ) -> Self {
        Self {
            producer: Some(producer),
            consumers,
            registers,
            shared_bytes,
            cluster: 1,
            resident: 1,
            peers: Peers::Apart,
            overlaps: false,
            turns: false,
        }
    }

    /// Threads per CTA.
    pub const fn threads(&self) -> u32 {
        128 * (self.consumers + self.producer.is_some() as u32)
    }

    /// The named barrier of the 128 threads of consumer `warpgroup`.
    #[track_caller]
    pub fn consumer_barrier(warpgroup: Value<'_, u32>) -> Value<'_, u32> {
        warpgroup + Self::CONSUMER_BARRIER
    }

    /// The named barriers of the consumers' turns.
    pub const fn turn_barriers(&self) -> Range<u32> {
        let first = Self::CONSUMER_BARRIER + self.consumers;
        first..first + if self.turns { self.consumers } else { 0 }
    }

    /// The named barriers that are left to a kernel or a mainloop of your own.
    pub const fn own_barriers(&self) -> Range<u32> {
        self.turn_barriers().end..TARGET.limits().barriers
    }

    /// The entry of a kernel of this name.
    pub fn entry(&self, name: impl Into<String>) -> Entry {
        Entry {
            name: name.into(),
            target: TARGET,
            threads: self.threads(),
            shared_bytes: self.shared_bytes,
            cluster: [self.cluster, 1, 1],
        }
    }
}
