//! Reports the accesses of lanes and copies to global and shared memory to [`crate::race`].
//!
//! `ldmatrix` and `stmatrix` access memory for the whole warp: any lane may read any row, and four lanes
//! write each row. They are `.sync.aligned`, but do not order memory (PTX ISA "ldmatrix", "stmatrix").

use std::borrow::Cow;

use ptx::Space;

use crate::clock::{EARLIER, NEVER, View};
use crate::lanes::{ALL, Lanes, lanes};
use crate::machine::Machine;
use crate::meetings::Memory;
use crate::race::{By, Conflict, Kind, Run, SharedRaces, Who, key, runs};
use crate::schedule::Schedule;
use crate::shared::{reported, split};
use crate::trap::{Fault, InLane, Place, Stop};
use crate::views::Views;

/// The target of an access.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// Address in global memory.
    Global(u64),
    /// Index of the CTA and offset in its shared memory.
    Shared(usize, u32),
}

impl Target {
    /// A number that identifies the word.
    pub(super) fn key(self) -> u64 {
        match self {
            Self::Global(address) => address,
            Self::Shared(cta, offset) => key(cta, offset),
        }
    }
}

/// A range of shared memory: index of the CTA, offset and number of bytes.
pub(super) type Range = (usize, u32, u32);

fn one(range: (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    core::iter::once(range)
}

impl Machine<'_> {
    /// The target of a lane's address.
    pub(super) fn target(&self, warp: usize, space: Space, address: u64) -> Result<Target, Fault> {
        Ok(match space {
            Space::Global | Space::Local | Space::Param | Space::Generic => Target::Global(address),
            Space::Shared | Space::SharedCluster => {
                let (cta, offset) = self.shared_place(self.warps[warp].cta, space, address)?;
                Target::Shared(cta, offset)
            }
        })
    }

    fn who<'a>(&'a self, warp: usize, by: By, view: &'a View) -> Who<'a> {
        let state = &self.warps[warp];
        let pc = u32::try_from(state.pc).unwrap_or(u32::MAX);
        Who {
            warp: self.number(warp),
            by,
            pc,
            count: state.views.count,
            view,
            team: self.team,
            until: None,
            repeats: false,
        }
    }

    /// For copies that last until the current phase of an mbarrier completes: the number in the grid of its
    /// phases, and the count once the phase has completed. `None` if there is no such mbarrier.
    pub(super) fn phase_of(&self, cta: usize, barrier: u32) -> Option<(u32, u32)> {
        let (place, count) = self.ctas[cta].shared.barriers.get(&barrier)?.count();
        Some((self.team.number(place)?, count + 1))
    }

    /// As [`Machine::note`], for a copy that reads some ranges until the phase `until`.
    pub(super) fn note_copy(
        &self,
        (warp, lane): (usize, usize),
        ranges: impl Iterator<Item = (u64, u64)>,
        until: Option<(u32, u32)>,
    ) -> Result<(), Fault> {
        let who = self.who(warp, By::lane(lane), self.warps[warp].views.of(lane));
        self.note_who(Who { until, ..who }, ranges, Kind::READ.asynchronous())
    }

    /// Records an access of the lanes in `by` to global memory. Refuses it if it races with an earlier access.
    pub(crate) fn note_by(
        &self,
        warp: usize,
        by: By,
        (address, bytes): (u64, u64),
        kind: Kind,
    ) -> Result<(), Fault> {
        let lane = by.first();
        self.note_who(self.who(warp, by, self.warps[warp].views.of(lane)), one((address, bytes)), kind)
    }

    /// As [`Machine::note`], with another operation and count than the warp's current ones.
    pub(crate) fn note_in(
        &self,
        (warp, lane): (usize, usize),
        pc: usize,
        range: (u64, u64),
        kind: Kind,
        count: u32,
    ) -> Result<(), Fault> {
        let who = self.who(warp, By::lane(lane), self.warps[warp].views.of(lane));
        self.note_who(Who { pc: u32::try_from(pc).unwrap_or(u32::MAX), count, ..who }, one(range), kind)
    }

    /// The write of a copy that is not waited for. If other copies of the cluster store the same bytes there, a race with them is a warning
    /// where warnings are collected.
    pub(super) fn note_store(
        &self,
        (warp, lane): (usize, usize),
        pc: usize,
        ranges: &[(u64, u64)],
        (kind, repeats): (Kind, &dyn Fn() -> bool),
    ) -> Result<(), Fault> {
        let who = self.who(warp, By::lane(lane), self.warps[warp].views.of(lane));
        let strict = Who { pc: u32::try_from(pc).unwrap_or(u32::MAX), count: NEVER, ..who };
        let mut known = None;
        for &range in ranges {
            let Err(fault) = self.note_who(strict, one(range), kind) else { continue };
            if self.options.warnings.is_none() || !*known.get_or_insert_with(repeats) {
                return Err(fault);
            }
            self.note_who(Who { repeats: true, ..strict }, one(range), kind)?;
            // A card issues a copy once for lanes with the same operands.
            let own = self.place_of(who.warp, None, strict.pc);
            let once = |other: &Place| Place { lane: None, ..other.clone() } == own;
            if !matches!(&fault, Fault::GlobalRace { other, .. } if once(other)) {
                self.debatable(warp, fault.lane(lane)).map_err(|stop| *stop.fault)?;
            }
        }
        Ok(())
    }

    fn note_who(
        &self,
        who: Who<'_>,
        ranges: impl Iterator<Item = (u64, u64)>,
        kind: Kind,
    ) -> Result<(), Fault> {
        let mut ranges = ranges.inspect(|&range| {
            self.accessed((self.local(who), who.by, who.pc), Memory::Global, range, kind);
        });
        let mut ranges = (&mut ranges).peekable();
        if let Some(&(address, _)) = ranges.peek()
            && self.options.dependent
            && who.view.known.of(EARLIER, self.team) == 0
        {
            let warp = self.local(who);
            let stop = Fault::GridNotAwaited { address }.lane(who.by.first());
            self.debatable(warp, stop).map_err(|stop| *stop.fault)?;
        }
        if let (true, Some(&(address, _))) = (self.launch.common.is_several(), ranges.peek()) {
            self.reaches(address)?;
        }
        self.launch.common.races.access_all(ranges, kind, who).map_err(|conflict| self.race(conflict, kind))
    }

    /// The warp in this cluster.
    fn local(&self, who: Who<'_>) -> usize {
        who.warp.wrapping_sub(self.team.first) as usize
    }

    /// Refuses an access to the memory of another GPU that does not share it, or that has left.
    fn reaches(&self, address: u64) -> Result<(), Fault> {
        let (own, common) = (self.launch.gpu, self.launch.common);
        match self.memory.owner(address) {
            Some((gpu, false)) if gpu != own => Err(Fault::NotShared { address, gpu }),
            Some((gpu, _)) if gpu != own && common.has_left(gpu) => Err(Fault::PeerLeft { address, gpu }),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn race(&self, conflict: Conflict, kind: Kind) -> Fault {
        let Conflict { address, warp, lane, pc, wrote, unfenced, sums, constant } = conflict;
        let other = Box::new(self.place_of(warp, Some(lane), pc));
        if sums {
            Fault::SumsUnordered { address, other }
        } else if constant {
            Fault::ConstantWritten { address, write: kind.write, other }
        } else if unfenced {
            Fault::GlobalUnfenced { address, other }
        } else {
            Fault::GlobalRace { address, write: kind.write, other_write: wrote, other }
        }
    }

    fn shared_race(&self, cta: usize, conflict: Conflict, write: bool) -> Fault {
        let Conflict { address, warp, lane, pc, wrote, unfenced, sums: _, constant: _ } = conflict;
        let other = Box::new(self.place_of(warp, Some(lane), pc));
        if unfenced {
            let writer = warp % self.team.per_cta.max(1) * 32 + lane;
            return Fault::MissingProxyFence { offset: reported(address as u32), writer, other };
        }
        let (rank, offset) = (self.ctas[cta].rank, reported(address as u32));
        Fault::SharedRace { rank, offset, write, other_write: wrote, other }
    }

    /// Records the accesses of the active lanes, `bytes` bytes per lane, with neighbours merged.
    pub(super) fn note_lanes(
        &mut self,
        warp: usize,
        space: Space,
        accesses: (&Lanes<u64>, u32),
        kind: Kind,
    ) -> Result<(), Stop> {
        let count = self.warps[warp].views.begin();
        self.note_at(count, (warp, space), accesses, &|_| kind)
    }

    /// The same for plain stores of these values, of `size` bytes each. If they leave memory as it is, a race with another store is a
    /// warning where warnings are collected.
    pub(super) fn note_stores(
        &mut self,
        warp: usize,
        space: Space,
        accesses: (&Lanes<u64>, u32),
        (values, size, repeats): (&[Lanes<u64>], usize, bool),
    ) -> Result<(), Stop> {
        let shift = 64 - 8 * size.clamp(1, 8);
        let differ = |mask: u32| {
            let first = Views::first(mask);
            values.iter().any(|all| lanes(mask).any(|lane| (all[lane] ^ all[first]) << shift != 0))
        };
        let kind = |by: By| Kind::WRITE.disputed(matches!(by, By::All(mask) if differ(mask)));
        let count = self.warps[warp].views.begin();
        let noted = self.note_as((count, false), (warp, space), accesses, &kind);
        let stop = match noted {
            Err(stop) if repeats => stop,
            noted => return noted,
        };
        self.note_as((count, true), (warp, space), accesses, &kind)?;
        self.debatable(warp, stop)
    }

    /// The same for an instruction that began at this count of the warp.
    pub(super) fn note_at(
        &mut self,
        count: u32,
        target: (usize, Space),
        accesses: (&Lanes<u64>, u32),
        kind: &dyn Fn(By) -> Kind,
    ) -> Result<(), Stop> {
        self.note_as((count, false), target, accesses, kind)
    }

    /// `repeats`: whether the instruction stores what is there already.
    fn note_as(
        &mut self,
        (count, repeats): (u32, bool),
        (warp, space): (usize, Space),
        (addresses, bytes): (&Lanes<u64>, u32),
        kind: &dyn Fn(By) -> Kind,
    ) -> Result<(), Stop> {
        let active = self.warps[warp].registers.active;
        if space == Space::Global {
            for (mask, run) in self.all_runs(warp, addresses, bytes, active) {
                let view = self.warps[warp].views.common_of(mask);
                let who = Who { count, repeats, ..self.who(warp, run.by, &view) };
                self.note_who(who, one((run.start, run.bytes)), kind(run.by)).lane(run.by.first())?;
            }
            return Ok(());
        }
        let own = self.warps[warp].cta;
        let place = |address: u64| match (space, split(address as u32)) {
            (Space::SharedCluster, (rank, offset)) => (rank as usize, offset),
            (_, (_, offset)) => (own, offset),
        };
        let runs = self.all_runs(warp, addresses, bytes, active);
        self.note_runs((warp, count, repeats), &runs, kind, place)
    }

    /// The ranges that the active lanes access, each with the lanes that must know what the access follows.
    /// Lanes that know different things access the same bytes together: otherwise the record of one who
    /// knows an earlier access would hide that access from the others.
    fn all_runs(&self, warp: usize, addresses: &Lanes<u64>, bytes: u32, active: u32) -> Vec<(u32, Run)> {
        let groups: Vec<u32> = self.warps[warp].views.groups(active).map(|(mask, _)| mask).collect();
        let meets = |one: usize, other: usize| addresses[one].abs_diff(addresses[other]) < bytes.into();
        let mut joint = 0;
        for &mask in groups.iter().filter(|&&mask| mask != active) {
            let shares = |&lane: &usize| lanes(active & !mask).any(|other| meets(lane, other));
            joint |= lanes(mask).filter(shares).fold(0, |all, lane| all | 1 << lane);
        }
        let together = |run: Run| (if let By::All(mask) = run.by { mask } else { joint }, run);
        let mut all: Vec<(u32, Run)> = runs(addresses, bytes, joint).into_iter().map(together).collect();
        for mask in groups.into_iter().map(|mask| mask & !joint) {
            all.extend(runs(addresses, bytes, mask).into_iter().map(|run| (mask, run)));
        }
        all
    }

    fn note_runs(
        &mut self,
        (warp, count, repeats): (usize, u32, bool),
        runs: &[(u32, Run)],
        kind: &dyn Fn(By) -> Kind,
        place: impl Fn(u64) -> (usize, u32),
    ) -> Result<(), Stop> {
        let (number, team) = (self.number(warp), self.team);
        let state = &self.warps[warp];
        let pc = u32::try_from(state.pc).unwrap_or(u32::MAX);
        for (mask, run) in runs {
            let (by, until) = (run.by, None);
            let (cta, offset) = place(run.start);
            let kind = kind(run.by);
            self.accessed((warp, by, pc), Memory::Shared(cta), (offset.into(), run.bytes), kind);
            let state = &self.warps[warp];
            let view = state.views.common_of(*mask);
            let who = Who { warp: number, by, pc, count, view: &view, team, until, repeats };
            let Some(target) = self.ctas.get_mut(cta) else { continue };
            if let Err(conflict) = target.races.access(offset, run.bytes as u32, kind, who) {
                let fault = self.shared_race(cta, conflict, kind.write);
                return Err(fault.lane(run.by.first()));
            }
        }
        Ok(())
    }

    /// Lanes are about to access shared memory.
    pub(super) fn lanes_access(
        &self,
        (warp, space): (usize, Space),
        (addresses, bytes): (&Lanes<u64>, u32),
        kind: Kind,
    ) {
        if self.watch.is_none() || space == Space::Global {
            return;
        }
        let state = &self.warps[warp];
        for lane in lanes(state.registers.active) {
            let Ok((cta, offset)) = self.shared_place(state.cta, space, addresses[lane]) else { continue };
            let by = (warp, By::lane(lane), state.pc as u32);
            self.accessed(by, Memory::Shared(cta), (offset.into(), bytes.into()), kind);
        }
    }

    /// A warp is about to access rows of 16 bytes.
    pub(super) fn rows_access(&self, warp: usize, addresses: &Lanes<u32>, matrices: usize, kind: Kind) {
        if self.watch.is_none() {
            return;
        }
        let state = &self.warps[warp];
        for &address in addresses.iter().take(8 * matrices) {
            let (by, range) = ((warp, By::All(ALL), state.pc as u32), (split(address).1.into(), 16));
            self.accessed(by, Memory::Shared(state.cta), range, kind);
        }
    }

    /// Records the rows of 16 bytes that a warp reads or writes together, 8 rows per matrix.
    pub(super) fn note_rows(
        &mut self,
        warp: usize,
        addresses: &Lanes<u32>,
        matrices: usize,
        kind: Kind,
    ) -> Result<(), Stop> {
        self.warps[warp].views.count += 1;
        let (number, team, state) = (self.number(warp), self.team, &self.warps[warp]);
        let (pc, count) = (u32::try_from(state.pc).unwrap_or(u32::MAX), state.views.count);
        // A row is accessed by the warp as a whole.
        let view = state.views.common();
        let who =
            Who { warp: number, by: By::All(ALL), pc, count, view: &view, team, until: None, repeats: false };
        for (row, &address) in addresses.iter().enumerate().take(8 * matrices) {
            let by =
                if kind.write { By::Each { first: 4 * (row as u32 % 8), shift: 2 } } else { By::All(ALL) };
            let races = &mut self.ctas[state.cta].races;
            if let Err(conflict) = races.access(split(address).1, 16, kind, Who { by, ..who }) {
                return Err(self.shared_race(state.cta, conflict, kind.write).lane(row));
            }
        }
        Ok(())
    }

    /// Records an access to shared memory. Refuses it if it races with an earlier access.
    pub(super) fn note_shared(
        &mut self,
        (warp, by): (usize, By),
        (cta, offset, bytes): Range,
        kind: Kind,
    ) -> Result<(), Fault> {
        self.with_view((warp, by), cta, |races, who| races.access(offset, bytes, kind, who), kind.write)
    }

    /// Refuses asynchronous work on shared memory that is not ordered after earlier accesses of threads.
    pub(super) fn order_async(
        &mut self,
        (warp, lane): (usize, usize),
        (cta, offset, bytes): Range,
        (write, proxy): (bool, bool),
    ) -> Result<(), Fault> {
        if self.ctas[cta].races.untouched(offset, bytes) {
            return Ok(());
        }
        let who = (warp, By::lane(lane));
        self.with_view(who, cta, |races, who| races.order(offset, bytes, (write, proxy), who), write)
    }

    /// The same for bytes that a warp reads together through the generic proxy.
    pub(super) fn order_warp(&mut self, warp: usize, (cta, offset, bytes): Range) -> Result<(), Fault> {
        let body = |races: &mut SharedRaces, who: Who<'_>| races.order(offset, bytes, (false, false), who);
        self.with_view((warp, By::All(ALL)), cta, body, false)
    }

    /// The same for 16 bytes of shared memory that a warp's collective instruction reads.
    pub(super) fn order_collective(&mut self, warp: usize, chunk: u32) -> Result<(), Fault> {
        let cta = self.warps[warp].cta;
        if self.ctas[cta].races.untouched(chunk, 16) {
            return Ok(());
        }
        let who = (warp, By::All(ALL));
        self.with_view(who, cta, |races, who| races.order(chunk, 16, (false, true), who), false)
    }

    /// Records that a copy of a lane reads shared memory, until the phase `until`. `None`: the copy has been
    /// waited for, so the read ends now.
    pub(super) fn note_source(
        &mut self,
        (warp, pc, lane): (usize, usize, usize),
        (cta, offset, bytes): Range,
        until: Option<(u32, u32)>,
    ) -> Result<(), Fault> {
        let pc = u32::try_from(pc).unwrap_or(u32::MAX);
        let body = |races: &mut SharedRaces, who: Who<'_>| {
            races.access(offset, bytes, Kind::READ.asynchronous(), Who { pc, until, ..who })
        };
        self.with_view((warp, By::lane(lane)), cta, body, false)
    }

    fn with_view(
        &mut self,
        (warp, by): (usize, By),
        cta: usize,
        body: impl FnOnce(&mut SharedRaces, Who<'_>) -> Result<(), Conflict>,
        write: bool,
    ) -> Result<(), Fault> {
        let (number, team) = (self.number(warp), self.team);
        let state = &self.warps[warp];
        let (pc, count) = (u32::try_from(state.pc).unwrap_or(u32::MAX), state.views.count);
        // A row of a matrix, or an operand of a multiply, is accessed by the warp as a whole.
        let collective = by == By::All(ALL) || matches!(by, By::Each { .. });
        let view = if collective { state.views.common() } else { Cow::Borrowed(state.views.of(by.first())) };
        let who = Who { warp: number, by, pc, count, view: &view, team, until: None, repeats: false };
        let done = body(&mut self.ctas[cta].races, who);
        done.map_err(|conflict| self.shared_race(cta, conflict, write))
    }

    /// The order in which the active lanes store. If several lanes store to one address, one of them wins;
    /// which one is undefined (CUDA programming guide, "SIMT Architecture").
    pub(super) fn store_order(&mut self, warp: usize, addresses: &Lanes<u64>) -> Vec<usize> {
        let active = self.warps[warp].registers.active;
        let mut order: Vec<usize> = lanes(active).collect();
        let grows = order.windows(2).all(|pair| addresses[pair[0]] < addresses[pair[1]]);
        let backwards = match self.options.schedule {
            Schedule::Default | Schedule::Earliest | Schedule::Paced => false,
            Schedule::Latest => true,
            Schedule::Random => !grows && self.random() % 2 == 1,
        };
        if !grows && backwards {
            order.reverse();
        }
        order
    }
}
