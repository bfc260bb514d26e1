//! Atomics, ordered accesses and fences, and the order that they make between threads.
//!
//! Source: PTX ISA "atom", "red", "ld", "st", "fence" and chapter 8 "Memory Consistency Model". If an acquire
//! reads the value of a release, its thread learns what the releasing thread knew, within their scopes. With
//! a fence, relaxed reads before it act as acquires, and relaxed writes after it act as releases. Of two
//! `fence.sc`, the thread of the later one learns what the thread of the earlier one knew.

use std::sync::Arc;

use ptx::Space;
use ptx::inst::{AtomicInst, AtomicOp, AtomicType, FenceSem, LoadOrder, OrderedInst, Scope, StoreOrder};

use super::Flow;
use super::barrier::alike;
use super::note::Target;
use crate::clock::View;
use crate::lanes::{Lanes, lanes, mix};
use crate::machine::Machine;
use crate::numerics::changed;
use crate::race::Kind;
use crate::schedule::Schedule;
use crate::trap::{Fault, InLane, Stop};
use crate::word::{Choice, Made, Publishes, Reduce, Releases, Visitor, Word, from_bytes};

/// How an access to one word is ordered.
#[derive(Clone, Copy, Debug)]
struct Order {
    scope: Scope,
    acquires: bool,
    releases: bool,
}

/// The operation on one word.
#[derive(Clone, Copy)]
enum Act<'c> {
    Load,
    Store(u64),
    /// Maps the old value to the new value, if there is a new one.
    Change(&'c dyn Fn(u64) -> Option<u64>),
    /// An atomic operation without a result.
    Reduce(Reduce),
}

impl Machine<'_> {
    /// What the active lanes know, including what they did so far, for threads that synchronise with them.
    pub(crate) fn publish(&mut self, warp: usize) -> View {
        let active = self.warps[warp].registers.active;
        self.warps[warp].views.publish(active)
    }

    /// The warp's number in the grid.
    pub(crate) fn number(&self, warp: usize) -> u32 {
        self.team.first.wrapping_add(warp as u32)
    }

    /// Which of the allowed values a read returns. `element` is the index of the element in a vector.
    fn choice(&mut self, element: usize) -> Choice {
        match self.options.schedule {
            Schedule::Default | Schedule::Earliest | Schedule::Paced => Choice::Newest,
            // The elements of a vector are not read in one step.
            Schedule::Latest if element % 2 == 1 => Choice::Newest,
            Schedule::Latest => Choice::Oldest,
            Schedule::Random => Choice::Any(self.random()),
        }
    }

    /// One atomic or ordered access to one word, under the lock of the word. Returns the value read.
    fn word(
        &mut self,
        (warp, mask): (usize, u32),
        target: Target,
        (bytes, element, count): (u32, usize, u32),
        order: Order,
        act: Act<'_>,
    ) -> Result<u64, Fault> {
        let (team, number, lane) = (self.team, self.number(warp), mask.trailing_zeros() as usize);
        let choice = self.choice(element);
        let history = self.options.schedule.remembers();
        let acquires = order.acquires;
        let publishes = self.publishes((warp, lane), order, act);
        let size = bytes as usize;
        let view = self.warps[warp].views.of(lane);
        let who = Visitor { warp: number, lanes: mask, count, view, team };
        let (mut own, mut known, mut observed) = (false, None, None);
        let acquired = self.warps[warp].acquired;
        let again = |write: u64| lanes(mask).all(|lane| acquired[lane] == Some((target.key(), write)));
        let step =
            |word: &mut Word, old: Result<u64, Fault>| -> Result<(u64, Option<u64>, Releases), Fault> {
                let made = match act {
                    Act::Store(new) => {
                        // A store may be the first write of a word.
                        word.holds(old.unwrap_or(0), bytes);
                        let done = word.write(Made::Stored(new), who, publishes, (choice, history));
                        return Ok((0, done.new, Releases::default()));
                    }
                    Act::Load => None,
                    Act::Change(change) => Some(Made::Changed(change)),
                    Act::Reduce(reduce) => Some(Made::Reduced(reduce)),
                };
                word.holds(old?, bytes);
                let (write, value, seen, new) = match made {
                    None => {
                        let (write, value, releases, seen) = word.read(who, (order.scope, acquires), choice);
                        observed = seen;
                        (write, value, releases.clone(), None)
                    }
                    Some(made) => {
                        own = word.writer() == Some(number);
                        let done = word.write(made, who, publishes, (choice, history));
                        observed = done.observed;
                        (done.before, done.old, done.releases, done.new)
                    }
                };
                // The lanes may have acquired this write already.
                let seen = if acquires && again(write) { Releases::default() } else { seen };
                known = acquires.then_some((target.key(), write));
                Ok((value, new, seen))
            };
        let mut buffer = [0u8; 8];
        let (value, seen) = match target {
            Target::Global(address) => {
                let memory = self.memory;
                self.launch.common.races.word(address, |word| {
                    let old = memory.load(address, &mut buffer[..size]).map(|()| from_bytes(&buffer));
                    let (value, new, seen) = step(word, old)?;
                    if let Some(new) = new {
                        memory.store(address, &new.to_le_bytes()[..size])?;
                    }
                    Ok::<_, Fault>((value, seen))
                })?
            }
            Target::Shared(cta, offset) => {
                let cta_state = &mut self.ctas[cta];
                let old = cta_state.shared.load(offset, bytes).map(from_bytes);
                if matches!(act, Act::Store(_)) {
                    // A store may be the first write: what was there is not read.
                    let _unwritten = cta_state.shared.noticed();
                }
                let (value, new, seen) = step(cta_state.races.word(offset), old)?;
                if let Some(new) = new {
                    cta_state.shared.store(offset, &new.to_le_bytes()[..size])?;
                }
                self.order_shared((warp, lane), cta, (offset, bytes), act)?;
                (value, seen)
            }
        };
        if let Some(link) = observed {
            let views = &mut self.warps[warp].views;
            let has = |(_, view): (u32, &View)| view.observed.has(target.key(), link);
            if !views.groups(mask).all(has) {
                views.change(mask, |_, view| view.observed.add(target.key(), link));
            }
        }
        self.warps[warp].own_word = own;
        lanes(mask).for_each(|lane| self.warps[warp].acquired[lane] = known);
        self.learn((warp, mask), target, order, seen);
        Ok(value)
    }

    /// What an access publishes: nothing if it only reads.
    fn publishes(&mut self, (warp, lane): (usize, usize), order: Order, act: Act<'_>) -> Publishes {
        let team = self.team;
        let mut publishes =
            Publishes { scope: order.scope, acquires: order.acquires, release: None, fences: Vec::new() };
        if !matches!(act, Act::Load) {
            let views = &mut self.warps[warp].views;
            if order.releases {
                publishes.release = Some(Arc::new(views.publish(1 << lane).write(team)));
            } else {
                let fences = views.fenced(lane).map(|(by, view)| (by, Arc::new(view.write(team))));
                publishes.fences = fences.collect();
            }
        }
        publishes
    }

    /// Checks that the asynchronous accesses to a word of shared memory have been waited for.
    fn order_shared(
        &mut self,
        (warp, lane): (usize, usize),
        cta: usize,
        (offset, bytes): (u32, u32),
        act: Act<'_>,
    ) -> Result<(), Fault> {
        let (view, group) = (self.warps[warp].views.of(lane), self.warps[warp].group_in(cta));
        let shared = &mut self.ctas[cta].shared;
        match act {
            Act::Load => shared.observed(offset, bytes, &view.known)?,
            Act::Store(_) | Act::Change(_) | Act::Reduce(_) => {
                shared.may_write((offset, bytes), view, group)?;
            }
        }
        self.touch((warp, lane), cta)
    }

    /// What the lanes learn from the releases that they have seen: now, or at a later fence.
    fn learn(&mut self, (warp, mask): (usize, u32), target: Target, order: Order, seen: Releases) {
        let (team, number) = (self.team, self.number(warp));
        let views = &mut self.warps[warp].views;
        if order.acquires {
            // ISA 8.8: a strong read and then an acquire of the same word is an acquire pattern too.
            views.acquire_seen(mask, (number, team), order.scope, Some(target.key()));
        }
        if !order.acquires {
            views.see(mask, target.key(), (order.scope, seen));
        } else if !seen.is_empty() {
            views.change(mask, |_, view| {
                seen.visible(order.scope, number, team).for_each(|letter| view.read(letter, team));
            });
        }
    }

    /// Whether an operation adds to a sum that the program promises to make in order.
    pub(super) fn sums(&self, op: AtomicOp, ty: AtomicType) -> bool {
        self.program.function.ordered_sums && op == AtomicOp::Add && ty.is_float()
    }

    pub(super) fn atomic(&mut self, warp: usize, atomic: &AtomicInst) -> Result<Flow, Stop> {
        let AtomicInst { op, ty, space, sem, scope, dst, address, src, swap } = atomic;
        let addresses = self.addresses(warp, *space, *address)?;
        let registers = &mut self.warps[warp].registers;
        let mut read = |operand| registers.read_as(ty.register(), operand);
        let operands = src.iter().map(|&operand| read(operand)).collect::<Result<Vec<_>, _>>()?;
        let swaps = swap.map(read).transpose()?;
        let bytes = ty.bytes();
        let order = Order { scope: *scope, acquires: sem.acquires(), releases: sem.releases() };
        let active = self.warps[warp].registers.active;
        if *space == Space::Global {
            super::memory::aligned_lanes(&addresses, atomic.bytes(), active)?;
        }
        let sums = *space == Space::Global && self.sums(*op, *ty);
        let kind = Kind::WRITE.atomic(*scope, bytes).sums(sums);
        let count = self.warps[warp].views.begin();
        if *space == Space::Global {
            self.note_at(count, (warp, *space), (&addresses, atomic.bytes()), &|_| kind)?;
        }
        if sums
            && let Some((mask, lane)) =
                alike(&addresses, &addresses, active).iter().find(|(mask, _)| !mask.is_power_of_two())
        {
            let pc = u32::try_from(self.warps[warp].pc).unwrap_or(u32::MAX);
            let other = Box::new(self.place_of(self.number(warp), Some(mask.trailing_zeros()), pc));
            return Err(Fault::SumsUnordered { address: addresses[*lane], other }.lane(*lane));
        }
        let mut old = vec![[0u64; 32]; operands.len()];
        for lane in lanes(active) {
            for (element, values) in operands.iter().enumerate() {
                let b = values[lane];
                let flush = *space == Space::Global;
                let change = |old: u64| match swaps {
                    Some(swaps) => (old == b).then_some(swaps[lane]),
                    None => Some(changed(*op, *ty, flush, old, b)),
                };
                let act = if dst.is_empty() && swaps.is_none() {
                    Act::Reduce((*op, *ty, flush, b))
                } else {
                    Act::Change(&change)
                };
                let at = addresses[lane].wrapping_add(element as u64 * u64::from(bytes));
                let word = self.target(warp, *space, at).and_then(|target| {
                    self.word((warp, 1 << lane), target, (bytes, element, count), order, act)
                });
                old[element][lane] = word.lane(lane)?;
            }
        }
        if *space != Space::Global {
            self.note_at(count, (warp, *space), (&addresses, atomic.bytes()), &|_| kind)?;
        }
        if matches!(op, AtomicOp::CompareSwap | AtomicOp::Exchange) || sem.acquires() {
            let at = (*space == Space::Global).then_some((&addresses, bytes));
            self.looked(warp, at, &old);
        }
        let registers = &mut self.warps[warp].registers;
        for (&reg, values) in dst.iter().zip(&old) {
            registers.write_as(ty.register(), reg, values)?;
        }
        Ok(Flow::Next)
    }

    pub(super) fn ordered(&mut self, warp: usize, access: &OrderedInst) -> Result<Flow, Stop> {
        match access {
            OrderedInst::Load { order, space, ty, dst, address } => {
                let acquires = matches!(order, LoadOrder::Acquire(_));
                let order = Order { scope: order.scope(), acquires, releases: false };
                let addresses = self.addresses(warp, *space, *address)?;
                let (bytes, active) = (ty.bytes(), self.warps[warp].registers.active);
                let all = bytes * dst.len() as u32;
                let kind = Kind::READ.atomic(order.scope, bytes);
                let count = self.warps[warp].views.begin();
                if *space == Space::Global {
                    super::memory::aligned_lanes(&addresses, all, active)?;
                    self.note_at(count, (warp, *space), (&addresses, all), &|_| kind)?;
                }
                let mut values = vec![[0u64; 32]; dst.len()];
                for (mask, first) in alike(&addresses, &addresses, active) {
                    for (element, values) in values.iter_mut().enumerate() {
                        let at = addresses[first].wrapping_add(element as u64 * u64::from(bytes));
                        let word = self.target(warp, *space, at).and_then(|target| {
                            self.word((warp, mask), target, (bytes, element, count), order, Act::Load)
                        });
                        let word = word.lane(first)?;
                        lanes(mask).for_each(|lane| values[lane] = word);
                    }
                }
                if *space != Space::Global {
                    self.note_at(count, (warp, *space), (&addresses, all), &|_| kind)?;
                }
                let registers = &mut self.warps[warp].registers;
                for (&reg, values) in dst.iter().zip(&values) {
                    registers.write_extended(*ty, reg, values)?;
                }
                self.looked(warp, Some((&addresses, bytes)), &values);
                Ok(Flow::Next)
            }
            OrderedInst::Store { order, space, ty, src, address } => {
                let releases = matches!(order, StoreOrder::Release(_));
                let order = Order { scope: order.scope(), acquires: false, releases };
                let addresses = self.addresses(warp, *space, *address)?;
                let (bytes, active) = (ty.bytes(), self.warps[warp].registers.active);
                let all = bytes * src.len() as u32;
                let kind = Kind::WRITE.atomic(order.scope, bytes);
                if *space == Space::Global {
                    super::memory::aligned_lanes(&addresses, all, active)?;
                }
                let values = self.stored_values(warp, *ty, src)?;
                let count = self.warps[warp].views.begin();
                if *space == Space::Global {
                    self.note_at(count, (warp, *space), (&addresses, all), &|_| kind)?;
                }
                let mask = u64::MAX >> (64 - 8 * bytes.clamp(1, 8));
                for lane in lanes(active) {
                    for (element, values) in values.iter().enumerate().take(src.len()) {
                        let at = addresses[lane].wrapping_add(element as u64 * u64::from(bytes));
                        let act = Act::Store(values[lane] & mask);
                        let stored = self.target(warp, *space, at).and_then(|target| {
                            self.word((warp, 1 << lane), target, (bytes, element, count), order, act)
                        });
                        stored.lane(lane)?;
                    }
                }
                if *space != Space::Global {
                    self.note_at(count, (warp, *space), (&addresses, all), &|_| kind)?;
                }
                Ok(Flow::Next)
            }
        }
    }

    /// `fence.acq_rel` and `fence.sc`.
    pub(super) fn fence(&mut self, warp: usize, sem: FenceSem, scope: Scope) -> Flow {
        let (team, number) = (self.team, self.number(warp));
        let active = self.warps[warp].registers.active;
        let views = &mut self.warps[warp].views;
        views.acquire_seen(active, (number, team), scope, None);
        views.acquire_waits(active, scope);
        if sem == FenceSem::SequentiallyConsistent {
            self.launch.common.races.in_fence_order(|earlier| {
                views.change(active, |_, view| {
                    earlier.visible(scope, number, team).for_each(|letter| view.read(letter, team));
                });
                let letter = Arc::new(views.publish(active).write(team));
                earlier.add(&(scope, number, letter));
            });
        }
        views.fence(active, scope);
        Flow::Next
    }

    /// Counts a poll of words that other threads may change. Detects whether it found a new value.
    fn looked(&mut self, warp: usize, at: Option<(&Lanes<u64>, u32)>, values: &[Lanes<u64>]) {
        let state = &mut self.warps[warp];
        let active = state.registers.active;
        let found = values.iter().fold(u64::from(active), |all, values| {
            lanes(active).fold(all, |all, lane| mix(all, values[lane]))
        });
        let known = state.looks.insert(state.pc, found) == Some(found);
        self.vain = if known { self.vain + 1 } else { 0 };
        // Equal values of other words are another look.
        let found = at
            .map_or(found, |(addresses, _)| lanes(active).fold(found, |all, lane| mix(all, addresses[lane])));
        let look = Some((state.pc, found));
        if state.look != look {
            state.watched.clear();
        } else if let (true, Some((addresses, bytes))) = (state.watched.is_empty(), at) {
            for (values, element) in values.iter().zip((0..).step_by(bytes as usize)) {
                let words =
                    lanes(active).map(|lane| (addresses[lane] + element, bytes as usize, values[lane]));
                state.watched.extend(words);
            }
        }
        self.fruitless = if state.look == look { self.fruitless + 1 } else { 0 };
        state.fruitless = if state.look == look { state.fruitless + 1 } else { 0 };
        state.look = look;
    }
}
