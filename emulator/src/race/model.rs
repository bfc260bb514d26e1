//! Random accesses, judged by the definition of a race. The judge keeps a list of all accesses, and never removes or merges one.

use super::{By, Conflict, Kind, Races, SharedRaces, Who, runs};
use crate::clock::{Clock, NEVER, Team, View};
use ptx::Scope;

/// Numbers that a seed draws (splitmix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ word >> 31) % end
    }

    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// An access, and what counts it.
#[derive(Clone, Copy, Debug)]
struct Access {
    start: u64,
    end: u64,
    kind: Kind,
    warp: u32,
    /// The lanes that access each byte. With a width, the first so many bytes are this lane's, the next are the next lane's.
    lanes: u32,
    width: Option<u64>,
    pc: u32,
    /// The number in the grid that counts it, and the count.
    counted: (u32, u32),
}

impl Access {
    fn lanes_of(&self, byte: u64) -> u32 {
        self.lanes << self.width.map_or(0, |width| (byte - self.start) / width)
    }

    /// Whether each lane that accesses the byte later does so after an access of its own, in the order of its program. If lanes
    /// stored one value together, each reads it as its own.
    fn is_of_the_same(&self, later: &Self, byte: u64) -> bool {
        let [old, new] = [self, later].map(|access| access.lanes_of(byte));
        let together = !later.kind.write && self.kind.write && self.kind.atomic.is_none();
        let alone = if together { new & !old == 0 } else { new == old && new.is_power_of_two() };
        self.counted.0 == later.warp && self.counted.1 != NEVER && alone
    }

    /// The first byte at which the later access races with this one.
    fn races(&self, later: &Self, view: &View, team: Team) -> Option<u64> {
        let atomic = match (self.kind.atomic, later.kind.atomic) {
            (Some(a), Some(b)) => {
                self.kind.size == later.kind.size && team.together(a, b, (self.warp, later.warp))
            }
            _ => false,
        };
        if atomic || !(self.kind.write || later.kind.write) {
            return None;
        }
        (self.start.max(later.start)..self.end.min(later.end)).find(|&byte| {
            let (number, count) = self.counted;
            let known = |clock: &Clock| clock.covers(number, self.lanes_of(byte), count, team);
            let own = self.is_of_the_same(later, byte);
            let fenced = !later.kind.asynchronous || !self.kind.write || known(&view.fenced);
            !((own || known(&view.known)) && fenced)
        })
    }
}

/// What remembers accesses, and where its pages meet.
enum Memory {
    Global(Races),
    Shared(SharedRaces),
}

impl Memory {
    const fn middle(&self) -> u64 {
        match self {
            Self::Global(_) => 0x7f00_0000_2000,
            Self::Shared(_) => 0x400,
        }
    }

    fn access(&mut self, new: &Access, who: Who<'_>) -> Result<(), Conflict> {
        let bytes = new.end - new.start;
        match self {
            Self::Global(races) => races.access(new.start, bytes, new.kind, who),
            Self::Shared(races) => races.access(new.start as u32, bytes as u32, new.kind, who),
        }
    }
}

/// The warps of a cluster. Each publishes what it did, and learns what others did.
struct Cluster {
    team: Team,
    /// What each warp knows.
    views: Vec<View>,
    counts: Vec<u32>,
    /// The phase that each mbarrier is in.
    phases: [u32; 2],
    done: Vec<Access>,
}

impl Cluster {
    fn new(warps: u32) -> Self {
        let team = Team { first: 0, warps, per_cta: 2, gpus: None };
        let (views, counts) = (vec![View::default(); warps as usize], vec![1; warps as usize]);
        Self { team, views, counts, phases: [1; 2], done: Vec::new() }
    }

    /// A warp learns what another has done, or that a phase is complete.
    fn learn(&mut self, draw: &mut Draw) {
        let [from, to] = [(); 2].map(|()| draw.below(self.counts.len() as u64) as usize);
        if draw.one_in(4) {
            let barrier = draw.below(2) as usize;
            let phase = self.phases[barrier];
            self.phases[barrier] += 1;
            self.views[to].known.raise(self.counts.len() + barrier, phase);
        }
        let view = self.views[from].clone();
        self.views[to].join(&view);
        self.views[to].known.raise(from, self.counts[from]);
        self.counts[from] += 1;
        if draw.one_in(2) {
            self.views[to].fence_proxy();
        }
    }

    /// A warp's copies have read what they read.
    fn wait(&mut self, draw: &mut Draw, memory: &Memory) {
        let warp = draw.below(self.counts.len() as u64) as u32;
        let count = self.counts[warp as usize];
        for access in self.done.iter_mut().filter(|access| access.counted == (warp, NEVER)) {
            let by = By::All(access.lanes);
            access.counted = (warp, count);
            if let Memory::Global(races) = memory {
                let range = (access.start, access.end - access.start);
                races.settle(range, access.pc, (warp, by, NEVER), (warp, by, count));
            }
        }
    }

    fn draw(&self, draw: &mut Draw, memory: &Memory, writes: u64) -> Access {
        let warp = draw.below(self.counts.len() as u64) as u32;
        let (pc, count) = (self.done.len() as u32, self.counts[warp as usize]);
        let start = memory.middle() - 128 + 4 * draw.below(56);
        let lanes = 1 << draw.below(3);
        let plain = if draw.one_in(writes) { Kind::WRITE } else { Kind::READ };
        let access = Access {
            start,
            end: start + 4,
            kind: plain,
            warp,
            lanes,
            width: None,
            pc,
            counted: (warp, count),
        };
        match draw.below(8) {
            0 => {
                let scope = [Scope::Cta, Scope::Cluster, Scope::Gpu][draw.below(3) as usize];
                Access { kind: plain.atomic(scope, 4), lanes: 1 + draw.below(7) as u32, ..access }
            }
            1 => Access { start: start + draw.below(2), end: start + 2 + draw.below(3), ..access },
            2 => {
                // Lanes access what is aligned to its size.
                let width = 1 << draw.below(4);
                let start = start - start % width;
                Access { start, end: start + width * (2 + draw.below(14)), width: Some(width), ..access }
            }
            3 | 4 if matches!(memory, Memory::Global(_)) => {
                let (start, end) = if draw.one_in(3) {
                    (start, start + 4 * (1 + draw.below(20)))
                } else {
                    (start & !15, (start & !15) + 16 * (1 + draw.below(9)))
                };
                let barrier = draw.below(3) as usize;
                let counted = match self.phases.get(barrier) {
                    Some(&phase) => (self.team.number(self.counts.len() + barrier).unwrap(), phase),
                    None => (warp, NEVER),
                };
                Access { start, end, kind: Kind::READ.asynchronous(), counted, ..access }
            }
            5 => Access { end: start + 4 * (1 + draw.below(24)), ..access },
            6 => Access { lanes: 1 + draw.below(7) as u32, ..access },
            _ => access,
        }
    }

    /// Makes an access. Whether it was refused.
    fn access(&mut self, new: Access, memory: &mut Memory) -> bool {
        let view = &self.views[new.warp as usize];
        let by = match new.width {
            Some(width) => By::Each { first: new.lanes.trailing_zeros(), shift: width.ilog2() as u8 },
            None => By::All(new.lanes),
        };
        let (number, count) = new.counted;
        let until = (number != new.warp).then_some(new.counted);
        let who = Who { warp: new.warp, by, pc: new.pc, count, view, team: self.team, until, repeats: false };
        let outcome = memory.access(&new, who);
        let races: Vec<(u64, &Access)> =
            self.done.iter().filter_map(|old| Some((old.races(&new, view, self.team)?, old))).collect();
        match outcome {
            Ok(()) => assert!(races.is_empty(), "accepted: {new:?}, which races with {races:?}"),
            Err(found) => {
                let first = races.iter().map(|(byte, _)| (byte & !15).max(new.start)).min();
                assert_eq!(first, Some(found.address), "{new:?}: {found:?}, and these race: {races:?}");
                let named = races.iter().any(|(_, old)| {
                    let lanes = (old.start..old.end).fold(0, |all, byte| all | old.lanes_of(byte));
                    (old.warp, old.pc, old.kind.write) == (found.warp, found.pc, found.wrote)
                        && lanes >> found.lane & 1 == 1
                });
                assert!(named, "{new:?}: {found:?}, and these race: {races:?}");
                return true;
            }
        }
        self.done.push(new);
        false
    }
}

/// Few warps, and many warps, whose accesses are kept by warp. In some sequences most accesses are ordered, in others most are reads.
#[test]
fn accesses_are_refused_as_the_definition_says() {
    let (mut refused, mut long) = (0, 0);
    for seed in 0..6000 {
        let mut draw = Draw(seed);
        let mut memory =
            if draw.one_in(3) { Memory::Shared(SharedRaces::new(0)) } else { Memory::Global(Races::new()) };
        let mut cluster = Cluster::new([2, 4, 40][draw.below(3) as usize]);
        let (writes, learns) = ([2, 8, 40][draw.below(3) as usize], 1 + draw.below(6));
        for _ in 0..160 {
            for _ in 0..draw.below(learns) {
                cluster.learn(&mut draw);
            }
            if draw.one_in(12) {
                cluster.wait(&mut draw, &memory);
            }
            let new = cluster.draw(&mut draw, &memory, writes);
            if cluster.access(new, &mut memory) {
                refused += 1;
                break;
            }
        }
        long += usize::from(cluster.done.len() > 20);
    }
    assert!(refused > 3000 && long > 1000, "{refused} were refused, {long} were long");
}

/// The lanes that a range is of access its bytes, and no other active lane does.
#[test]
fn ranges_have_the_bytes_of_their_lanes() {
    for seed in 0..3000 {
        let mut draw = Draw(seed);
        let bytes = [1, 2, 4, 8, 12, 16][draw.below(6) as usize];
        let (active, places) = (draw.below(1 << 32) as u32, 1 + draw.below(40));
        let near = draw.one_in(2);
        let addresses: [u64; 32] = core::array::from_fn(|lane| {
            let at = if near { lane as u64 + draw.below(2) * draw.below(3) } else { draw.below(places) };
            0x1000 + u64::from(bytes) * at
        });
        let found = runs(&addresses, bytes, active);
        for byte in 0x1000..0x1000 + u64::from(bytes) * 48 {
            let accesses = |lane: &u32| {
                let start = addresses[*lane as usize];
                active >> lane & 1 == 1 && (start..start + u64::from(bytes)).contains(&byte)
            };
            let expected = (0..32).filter(accesses).fold(0, |all, lane| all | 1u32 << lane);
            let of = found.iter().filter(|run| (run.start..run.start + run.bytes).contains(&byte));
            let lanes = of.fold(0, |all, run| {
                let lanes = match run.by {
                    By::Each { first, shift } => 1 << (u64::from(first) + ((byte - run.start) >> shift)),
                    by @ (By::All(_) | By::Copy { .. }) => by.lanes(1),
                };
                all | lanes
            });
            assert_eq!(
                lanes, expected,
                "{bytes} B, {active:#x}, {addresses:x?}: byte {byte:#x} of {found:?}"
            );
        }
    }
}

#[test]
fn pages_of_shared_memory_are_touched_by_threads() {
    let (mut races, view) = (SharedRaces::new(0), View::default());
    let team = Team { first: 0, warps: 2, per_cta: 2, gpus: None };
    let who =
        Who { warp: 0, by: By::lane(0), pc: 0, count: 1, view: &view, team, until: None, repeats: false };
    assert!(races.untouched(0, 1 << 16));
    races.access(0x7fc, 8, Kind::WRITE, who).unwrap();
    let cases =
        [(0, 0x400, true), (0, 0x401, false), (0x800, 4, false), (0xbff, 1, false), (0xc00, 64, true)];
    for (offset, bytes, untouched) in cases {
        assert_eq!(races.untouched(offset, bytes), untouched, "{offset:#x}, {bytes} B");
    }
}
