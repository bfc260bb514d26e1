//! A warp: up to 32 lanes that execute together, and a register file.

mod registers;
mod strand;

use std::collections::{BTreeMap, VecDeque};

pub(crate) use registers::Registers;
use strand::Strand;

use ptx::inst::{MbarrierOrder, Reg};

use crate::flight::{MapRead, Store, ThreadCopy};
use crate::graph::Rounds;
use crate::lanes::{ALL, Lanes};
use crate::program::Program;
use crate::schedule::Random;
use crate::step::Local;
use crate::trap::Fault;
use crate::views::Views;

/// Why a warp cannot continue.
#[derive(Clone, Debug)]
pub(crate) enum Blocked {
    /// Lanes wait until each of these mbarriers has completed the phase of this parity: offset, parity and
    /// mask of the lanes. The wait has this memory order.
    Mbarrier(Vec<(u32, u32, u32)>, MbarrierOrder),
    /// It waits until a named barrier is no longer in this generation.
    Named { id: usize, generation: u64 },
    /// It waits until the cluster barrier is no longer in this generation.
    Cluster { generation: u64 },
    /// It waits until this number of multiplies of the warpgroup are done. Then the instruction runs again.
    Warpgroup { until: u64 },
    /// It waits until all tensor stores except the newest `pending` groups are done. Then the instruction
    /// runs again.
    Stores { pending: u32 },
    /// It waits until the pool has enough registers for `asked` per thread. Then the instruction runs again.
    Registers { asked: u32 },
    /// It waits until other lanes of the warp reach the same instruction.
    Converge,
    /// It waits at a `bar.warp.sync` until the other lanes reach one, at any place.
    Meet,
}

/// A warp.
#[derive(Debug)]
pub(crate) struct Warp<'p> {
    /// Index of its CTA in the cluster.
    pub(crate) cta: usize,
    /// Index in its CTA.
    pub(crate) index: u32,
    /// Index of the next operation.
    pub(crate) pc: usize,
    /// The rounds of the loops that the current lanes are in.
    pub(crate) rounds: Rounds,
    /// Lanes that are elsewhere in the program.
    pub(crate) strands: Vec<Strand>,
    /// Whether lanes have gone ahead alone instead of waiting for others.
    pub(crate) ahead: bool,
    /// Number of consecutive polls of words that did not find a new value.
    pub(crate) fruitless: u32,
    /// Whether the last access was atomic, to a word that a lane of this warp wrote last. The word may be a
    /// lock.
    pub(crate) own_word: bool,
    pub(crate) registers: Registers<'p>,
    /// The local memory of its lanes.
    pub(crate) local: Local,
    pub(crate) blocked: Option<Blocked>,
    pub(crate) exited: bool,
    /// Number of multiplies issued.
    pub(crate) multiplies: u64,
    /// Number of multiplies waited for.
    pub(crate) retired: u64,
    /// `multiplies` at each commit that has not been waited for.
    pub(crate) commits: VecDeque<u64>,
    /// Number of collective instructions of the warpgroup other than multiplies.
    pub(crate) collectives: u64,
    /// Tensor stores for which the warp has not waited, neither for the read of the source nor for the write.
    pub(crate) stores: Vec<Store>,
    /// Number of bulk copy groups that each lane has committed.
    pub(crate) bulk_groups: Lanes<u64>,
    /// `cp.async` copies that have not been waited for.
    pub(crate) copies: Vec<ThreadCopy>,
    /// Number of `cp.async` groups that each lane has committed.
    pub(crate) copy_groups: Lanes<u64>,
    /// Number of registers that each thread holds.
    pub(crate) held: u32,
    /// Its count at each `setmaxnreg` so far.
    pub(crate) resized: Vec<u32>,
    /// The generation of the cluster barrier in which the warp arrived, until it waits.
    pub(crate) cluster_arrival: Option<u64>,
    /// What its lanes know to have happened.
    pub(crate) views: Views,
    /// Tensor stores for which the warp has waited until the source was read, but not until the result was
    /// written.
    pub(crate) unsettled: Vec<Store>,
    /// Reads of tensor maps in global memory by its loads.
    pub(crate) maps: Vec<MapRead>,
    /// Per lane: the word, and the write of it, that the lane acquired last.
    pub(crate) acquired: Lanes<Option<(u64, u64)>>,
    /// The last poll of words: the operation, and a hash of the values.
    pub(crate) look: Option<(usize, u64)>,
    /// The values that the last poll at each operation found.
    pub(crate) looks: BTreeMap<usize, u64>,
    /// The words that it has polled twice in a row: address, number of bytes and value.
    pub(crate) watched: Vec<(u64, usize, u64)>,
    /// The reduction of the barrier that the warp waits at, and its destination.
    pub(crate) reduces: Option<(ptx::inst::BarrierOp, Reg)>,
    /// The fault of a wait that came too late.
    pub(crate) missed: Option<Fault>,
    /// The mbarrier and parity of the last poll that failed.
    pub(crate) polled: Option<(u32, u32)>,
    /// Number of operations since that poll.
    pub(crate) since_poll: u32,
}

impl<'p> Warp<'p> {
    /// Its registers hold what `draw` gives before they are written.
    pub(crate) fn filled(mut self, mut draw: Random) -> Self {
        self.registers.fill(&mut draw);
        self
    }

    pub(crate) fn new(program: &'p Program, (cta, index): (usize, u32), place: usize, held: u32) -> Self {
        // The last warp of a CTA may have fewer threads.
        let threads = program.function.threads().saturating_sub(index * 32);
        let alive = if threads < 32 { (1 << threads) - 1 } else { ALL };
        let mut views = Views::new(place, cta as u32);
        views.end(!alive);
        Self {
            cta,
            index,
            pc: 0,
            rounds: Rounds::new(),
            strands: Vec::new(),
            ahead: false,
            fruitless: 0,
            own_word: false,
            registers: Registers::new(program, alive),
            local: Local::new(program.function.local_bytes),
            blocked: None,
            exited: false,
            multiplies: 0,
            retired: 0,
            commits: VecDeque::new(),
            collectives: 0,
            stores: Vec::new(),
            bulk_groups: [0; 32],
            copies: Vec::new(),
            copy_groups: [0; 32],
            held,
            resized: Vec::new(),
            cluster_arrival: None,
            views,
            unsettled: Vec::new(),
            maps: Vec::new(),
            acquired: [None; 32],
            look: None,
            looks: BTreeMap::new(),
            watched: Vec::new(),
            reduces: None,
            missed: None,
            polled: None,
            since_poll: u32::MAX,
        }
    }

    pub(crate) fn program(&self) -> &'p Program {
        self.registers.program()
    }

    /// The index of a lane's thread in the CTA.
    pub(crate) fn thread(&self, lane: usize) -> u16 {
        self.index.wrapping_mul(32).wrapping_add(lane as u32) as u16
    }

    /// Its warpgroup, if it is in the CTA with this index in the cluster.
    pub(crate) fn group_in(&self, cta: usize) -> Option<usize> {
        (self.cta == cta).then_some((self.index / 4) as usize)
    }

    /// Whether a wait of the active lanes for all except the newest `pending` groups covers a store.
    pub(crate) fn covers(&self, pending: u32, store: &Store) -> bool {
        self.waits_for(pending, store.lane, store.group)
    }

    /// The same for work that a lane issued after it had committed `group` groups.
    pub(crate) fn waits_for(&self, pending: u32, lane: usize, group: u64) -> bool {
        self.registers.active >> lane & 1 == 1 && group + u64::from(pending) < self.bulk_groups[lane]
    }

    /// Whether all stores that such a wait covers are done.
    pub(crate) fn stores_done(&self, pending: u32) -> bool {
        self.stores.iter().all(|store| store.done || !self.covers(pending, store))
    }

    /// Refuses an instruction that the whole warp must execute together, if some lanes do not. Lanes that have ended do not count:
    /// the instructions wait for the threads that have not exited (ISA "shfl.sync", "barrier", "exit").
    pub(crate) fn converged(&self) -> Result<(), Fault> {
        match self.registers.active {
            active if active == self.registers.alive => Ok(()),
            active => Err(Fault::Divergence { active }),
        }
    }
}
