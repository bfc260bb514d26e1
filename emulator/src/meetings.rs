//! Which statements meet: they access the same bytes, one of them writes, and no barrier, mbarrier or group of copies or multiplies keeps
//! them apart.
//!
//! This is a second reading of a run, without the clocks and the records of [`crate::race`], and a coarser one. It knows barriers, mbarriers,
//! `bar.warp.sync` and the waits for asynchronous work. It knows nothing of flags, fences and proxies, so statements that a kernel orders
//! by these meet, in a right kernel too. It is there to compare runs of two programs: if a program without some barrier has no meeting
//! that the program with it does not have, then the barrier orders nothing that is not ordered without it.

mod order;

use core::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use ptx::SourceSite;

use crate::hash::Numbered;
use crate::machine::Machine;
use crate::race::{By, Kind};
use crate::shared::BASE;

pub(crate) use order::Point;
use order::{Knows, Member, Told};

/// Bytes of memory whose accesses are looked at together.
const GRANULE: u64 = 16;

/// Pairs of statements that met, each with the places where they did: the offset in a CTA's shared memory or the address in global memory
/// of the 16 bytes, and whether it is global.
pub type Met = BTreeMap<(SourceSite, SourceSite), BTreeSet<(bool, u64)>>;

/// Collects the meetings of launches.
#[derive(Debug, Default)]
pub struct Meetings(Mutex<Met>);

impl Meetings {
    /// Nothing has met yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What has met.
    pub fn into_met(self) -> Met {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An access to a granule.
#[derive(Clone, Copy, Debug)]
struct Access {
    pc: u32,
    warp: u32,
    lanes: u32,
    /// Its bytes in the granule.
    bytes: u16,
    /// What the warp had reached.
    epoch: u32,
    /// The asynchronous work that makes it.
    work: Option<u32>,
    write: bool,
    atomic: bool,
}

/// The kinds of memory: that of a CTA of the cluster, or global.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    Shared(usize),
    Global,
}

/// What is known of asynchronous work when it ends: who issued it (warp, operation, lane), the memory that it accesses, and the offset in
/// shared memory of what it reads or writes there.
pub(crate) type Issue = ((usize, usize, usize), Memory, u32);

/// The meetings in one cluster.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    members: Vec<Member>,
    points: HashMap<Point, Knows>,
    /// By CTA and offset: what the arrivals at each mbarrier have told.
    mbarriers: HashMap<(usize, u32), Told>,
    shared: Vec<Vec<Vec<Access>>>,
    global: Numbered<Vec<Access>>,
    /// Asynchronous work in flight.
    flying: HashMap<Issue, VecDeque<u32>>,
    /// Multiplies that each warp has not waited for: the number of each, and the work.
    multiplies: Vec<VecDeque<(u64, u32)>>,
    works: u32,
    /// By the two operations: the places, with a bit for global memory.
    met: Numbered<Numbered<()>>,
}

impl Watch {
    pub(crate) fn new(ctas: usize, warps: usize, shared_bytes: u32) -> Self {
        let granules = u64::from(BASE + shared_bytes).div_ceil(GRANULE) as usize;
        Self {
            members: (0..warps).map(|warp| Member::new(warp, warps)).collect(),
            shared: vec![vec![Vec::new(); granules]; ctas],
            multiplies: vec![VecDeque::new(); warps],
            ..Self::default()
        }
    }

    /// Begins asynchronous work.
    fn begin(&mut self, issue: Issue) -> u32 {
        let work = self.works;
        self.works += 1;
        self.flying.entry(issue).or_default().push_back(work);
        work
    }

    /// Ends the oldest asynchronous work that was issued so.
    fn end(&mut self, issue: &Issue) -> Option<u32> {
        self.flying.get_mut(issue).and_then(VecDeque::pop_front)
    }

    fn granule(&mut self, memory: Memory, number: u64) -> Option<&mut Vec<Access>> {
        match memory {
            Memory::Shared(cta) => self.shared.get_mut(cta)?.get_mut(number as usize),
            Memory::Global => Some(self.global.entry(number).or_default()),
        }
    }

    /// Adds an access of lanes that take part in it together.
    fn access(&mut self, memory: Memory, (start, bytes): (u64, u64), of: Access) {
        for number in start / GRANULE..(start + bytes).div_ceil(GRANULE) {
            let from = start.max(number * GRANULE) - number * GRANULE;
            let to = (start + bytes).min((number + 1) * GRANULE) - number * GRANULE;
            let mask = ((1_u32 << to) - (1 << from)) as u16;
            self.meet(memory, number, Access { bytes: mask, ..of });
        }
    }

    fn meet(&mut self, memory: Memory, number: u64, new: Access) {
        let Some(mut known) = self.granule(memory, number).map(core::mem::take) else { return };
        let member = &self.members[new.warp as usize];
        known.retain(|old| {
            if old.bytes & new.bytes == 0 {
                return true;
            }
            let conflict = (old.write || new.write) && !(old.atomic && new.atomic);
            let before = match old.work {
                Some(work) => member.is_done(new.lanes, work),
                None if old.warp == new.warp && old.lanes == new.lanes && new.lanes.is_power_of_two() => true,
                None => member.follows(new.lanes, (old.warp as usize, old.lanes), old.epoch),
            };
            if conflict && !before {
                let pair = self.met.entry(u64::from(old.pc) << 32 | u64::from(new.pc)).or_default();
                pair.insert(number << 1 | u64::from(memory == Memory::Global), ());
            }
            let covered = old.bytes & !new.bytes == 0;
            let again = (old.pc, old.warp, old.lanes) == (new.pc, new.warp, new.lanes)
                && old.work.is_some() == new.work.is_some();
            !(covered && (again || before && new.write))
        });
        known.push(new);
        if let Some(granule) = self.granule(memory, number) {
            *granule = known;
        }
    }
}

/// What is watched of a run. Each of these functions does nothing if nobody asked for meetings.
impl Machine<'_> {
    fn watch(&self) -> Option<core::cell::RefMut<'_, Watch>> {
        self.watch.as_deref().map(RefCell::borrow_mut)
    }

    /// An access of lanes of a warp by the operation `pc`.
    pub(crate) fn accessed(
        &self,
        (warp, by, pc): (usize, By, u32),
        memory: Memory,
        (start, bytes): (u64, u64),
        kind: Kind,
    ) {
        let Some(mut watch) = self.watch() else { return };
        let epoch = watch.members[warp].epoch();
        let atomic = kind.atomic.is_some();
        let one = |lanes| Access {
            pc,
            warp: warp as u32,
            lanes,
            bytes: 0,
            epoch,
            work: None,
            write: kind.write,
            atomic,
        };
        match by {
            By::All(mask) => watch.access(memory, (start, bytes), one(mask)),
            By::Copy { lane, .. } => watch.access(memory, (start, bytes), one(1 << lane)),
            By::Each { first, shift } => {
                let size = 1 << shift;
                for (number, at) in (start..start + bytes).step_by(size).enumerate() {
                    let lane = (first + number as u32) & 31;
                    watch.access(memory, (at, (size as u64).min(start + bytes - at)), one(1 << lane));
                }
            }
        }
    }

    /// An access of asynchronous work that a lane has issued. It lasts until [`Machine::work_ends`] or [`Machine::work_arrives`].
    pub(crate) fn work_begins(
        &self,
        by: (usize, usize, usize),
        (memory, offset): (Memory, u32),
        ranges: impl IntoIterator<Item = (u64, u64)>,
        write: bool,
    ) {
        let Some(mut watch) = self.watch() else { return };
        let work = Some(watch.begin((by, memory, offset)));
        let (warp, pc, lane) = by;
        let (pc, lanes, epoch) = (pc as u32, 1 << lane, watch.members[warp].epoch());
        let of = Access { pc, warp: warp as u32, lanes, bytes: 0, epoch, work, write, atomic: false };
        ranges.into_iter().for_each(|range| watch.access(memory, range, of));
    }

    /// The lane that issued some work has waited for it.
    pub(crate) fn work_ends(&self, by: (usize, usize, usize), (memory, offset): (Memory, u32)) {
        let Some(mut watch) = self.watch() else { return };
        if let Some(work) = watch.end(&(by, memory, offset)) {
            watch.members[by.0].done(1 << by.2, work);
        }
    }

    /// Some work has ended, and counts at the mbarrier at `barrier` of a CTA.
    pub(crate) fn work_arrives(
        &self,
        by: (usize, usize, usize),
        (cta, offset): (usize, u32),
        barrier: (usize, u32),
    ) {
        let Some(mut watch) = self.watch() else { return };
        if let Some(work) = watch.end(&(by, Memory::Shared(cta), offset)) {
            let phase = self.phase(barrier);
            watch.mbarriers.entry(barrier).or_default().in_phase(phase).finish(work);
        }
    }

    /// The number of phases that an mbarrier has completed.
    fn phase(&self, (cta, offset): (usize, u32)) -> u64 {
        self.ctas[cta].shared.barriers.get(&offset).map_or(0, |barrier| barrier.phase)
    }

    /// Whether some lanes are all of a warp.
    fn is_whole(&self, warp: usize, lanes: u32) -> bool {
        let alive = self.warps[warp].registers.alive;
        lanes & alive == alive
    }

    /// A multiply that a warp has issued reads chunks of shared memory.
    pub(crate) fn multiply_begins(
        &self,
        (warp, pc): (usize, usize),
        number: u64,
        chunks: impl Iterator<Item = u32>,
    ) {
        let Some(mut watch) = self.watch() else { return };
        let work = watch.works;
        watch.works += 1;
        watch.multiplies[warp].push_back((number, work));
        let epoch = watch.members[warp].epoch();
        let (pc, warp, work, memory) =
            (pc as u32, warp as u32, Some(work), Memory::Shared(self.warps[warp].cta));
        let of = Access { pc, warp, lanes: u32::MAX, bytes: 0, epoch, work, write: false, atomic: false };
        chunks.for_each(|chunk| watch.access(memory, (chunk.into(), GRANULE), of));
    }

    /// A warp has waited for its multiplies before the number `until`.
    pub(crate) fn multiplies_end(&self, warp: usize, until: u64) {
        let Some(mut watch) = self.watch() else { return };
        while let Some(&(number, work)) = watch.multiplies[warp].front()
            && number < until
        {
            watch.multiplies[warp].pop_front();
            watch.members[warp].done(u32::MAX, work);
        }
    }

    /// Lanes of a warp arrive somewhere: those who wait there come after what they did before.
    pub(crate) fn arrives(&self, warp: usize, lanes: u32, point: Point) {
        let Some(mut watch) = self.watch() else { return };
        let told = watch.members[warp].tells(lanes, self.is_whole(warp, lanes));
        watch.points.entry(point).or_default().join(&told);
    }

    /// The same for lanes that arrive at an mbarrier.
    pub(crate) fn arrives_at(&self, warp: usize, lanes: u32, barrier: (usize, u32)) {
        let Some(mut watch) = self.watch() else { return };
        let told = watch.members[warp].tells(lanes, self.is_whole(warp, lanes));
        watch.mbarriers.entry(barrier).or_default().in_phase(self.phase(barrier)).join(&told);
    }

    /// Lanes of a warp have waited at a point.
    pub(crate) fn passes(&self, warp: usize, lanes: u32, point: Point) {
        let Some(mut watch) = self.watch() else { return };
        let Some(knows) = watch.points.get(&point).cloned() else { return };
        watch.members[warp].learns(lanes, self.is_whole(warp, lanes), &knows);
    }

    /// The same for lanes that have waited for the last phase of an mbarrier of their CTA.
    pub(crate) fn passes_at(&self, warp: usize, lanes: u32, offset: u32) {
        let Some(mut watch) = self.watch() else { return };
        let barrier = (self.warps[warp].cta, offset);
        let Some(told) = watch.mbarriers.get_mut(&barrier) else { return };
        let knows = told.before(self.phase(barrier)).clone();
        watch.members[warp].learns(lanes, self.is_whole(warp, lanes), &knows);
    }

    /// An mbarrier begins anew.
    pub(crate) fn begins_anew(&self, barrier: (usize, u32)) {
        let Some(mut watch) = self.watch() else { return };
        watch.mbarriers.remove(&barrier);
    }

    /// The lanes of a warp have met.
    pub(crate) fn lanes_meet(&self, warp: usize, members: u32) {
        let Some(mut watch) = self.watch() else { return };
        if self.is_whole(warp, members) {
            watch.members[warp].meets();
        }
    }

    /// Adds the meetings of the cluster to what is collected.
    pub(crate) fn hand_over(&self, to: &Meetings) {
        let Some(watch) = self.watch() else { return };
        let mut all = to.0.lock().unwrap_or_else(PoisonError::into_inner);
        let site = |pc: u64| self.program.ops[pc as usize].site.clone();
        for (&pair, places) in &watch.met {
            if let (Some(old), Some(new)) = (site(pair >> 32), site(pair & u64::from(u32::MAX))) {
                let places = places.keys().map(|place| (place & 1 == 1, (place >> 1) * GRANULE));
                all.entry((old, new)).or_default().extend(places);
            }
        }
    }
}
