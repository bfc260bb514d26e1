//! Which words of memory hold what depends on time: what threads with a lock, atomics and polls have written there.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use ptx::inst::{Address, AtomicInst, AtomicOp, Bulk, Inst, Operand, OrderedInst, Reduction, WarpMatrix};
use ptx::{Space, Type};

use super::flow::Flow;
use super::instrument::{Point, Window};
use super::kinds::Kind;
use super::{ENTRY, Recorded, entry};

/// Bytes of memory that are looked at together.
const WORD: u64 = 4;
const SUMS: &str = "the order of sums is that of the threads";

/// The memory that a statement reads or writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    space: Space,
    pub(super) address: Address,
    bytes: u64,
    pub(super) writes: bool,
    /// Why other bits may be there afterwards.
    pub(super) varies: Option<&'static str>,
}

/// The memory that an instruction reads or writes. That of copies is not known.
#[expect(clippy::wildcard_enum_match_arm, reason = "the others access none")]
pub(super) fn access(inst: &Inst) -> Option<Access> {
    let of = |space: Space, address, ty: Type, count: usize, writes| {
        let bytes = u64::from(ty.bytes()) * count as u64;
        let known = !matches!(space, Space::Local | Space::Param);
        known.then_some(Access { space, address, bytes, writes, varies: None })
    };
    let at = |base: &Operand| Address { base: *base, offset: 0 };
    match inst {
        Inst::Load { space, ty, dst, address }
        | Inst::Ordered(OrderedInst::Load { space, ty, dst, address, .. }) => {
            of(*space, *address, *ty, dst.len(), false)
        }
        Inst::Store { space, ty, src, address }
        | Inst::Ordered(OrderedInst::Store { space, ty, src, address, .. }) => {
            of(*space, *address, *ty, src.len(), true)
        }
        Inst::WarpMatrix(WarpMatrix::Load { address, .. }) => {
            of(Space::Shared, at(address), Type::U64, 2, false)
        }
        Inst::Bulk(Bulk::AsyncStore { ty, src, dst, .. }) => {
            of(Space::SharedCluster, at(dst), *ty, src.len(), true)
        }
        Inst::Atomic(atomic) => {
            let AtomicInst { op, ty, space, address, .. } = atomic;
            let varies = match op {
                AtomicOp::Exchange | AtomicOp::CompareSwap => {
                    Some("the order of threads decides what it writes")
                }
                op => sums(Reduction { op: *op, ty: *ty }),
            };
            let made = of(*space, *address, Type::U8, atomic.bytes() as usize, true)?;
            Some(Access { varies, ..made })
        }
        _ => None,
    }
}

/// Why a reduction's result may vary.
fn sums(Reduction { op, ty }: Reduction) -> Option<&'static str> {
    (op == AtomicOp::Add && ty.is_float()).then_some(SUMS)
}

/// The memory that a launch has accessed on both machines.
#[derive(Debug, Default)]
pub(super) struct Words {
    device: Accessed,
    emulated: Accessed,
}

/// Whether it is shared memory, and the number of the word. That of all CTAs is one.
type Word = (bool, u64);

#[derive(Debug, Default)]
struct Accessed {
    written: HashMap<Word, Written>,
    /// By the loads, which are statements.
    loaded: BTreeMap<usize, HashSet<Word>>,
    /// By the stores: the threads that have executed them.
    stored: BTreeMap<usize, (Point, HashSet<u64>)>,
}

#[derive(Debug)]
struct Written {
    by: BTreeSet<usize>,
    cta: u64,
    varies: Option<&'static str>,
}

impl Words {
    /// Adds the records of a window; a CTA has that many threads.
    pub(super) fn add(&mut self, points: &[Point], window: &Window, recorded: &Recorded, threads: u32) {
        for (accessed, record) in
            [(&mut self.device, &recorded.device), (&mut self.emulated, &recorded.emulated)]
        {
            for (number, part) in (0..window.count).zip(record.chunks_exact(window.stride())) {
                let thread = window.first + number;
                accessed.thread(points, (thread, thread / u64::from(threads.max(1))), part);
            }
        }
    }

    /// The statements that load what depends on time.
    pub(super) fn timed(&self) -> BTreeSet<usize> {
        let both = [&self.device, &self.emulated].into_iter();
        both.flat_map(|accessed| {
            let varies = |word: &Word| accessed.written.get(word).is_some_and(|word| word.varies.is_some());
            accessed.loaded.iter().filter(move |(_, words)| words.iter().any(varies)).map(|(node, _)| *node)
        })
        .collect()
    }

    /// Why bytes at addresses of the emulator may differ: the statements that have written them, why, and in how many threads. `None` if one
    /// of them may not.
    pub(super) fn excuses(
        &self,
        flow: &Flow<'_>,
        differing: &[(u64, u64)],
    ) -> Option<Vec<(Point, &'static str, u64)>> {
        let accessed = &self.emulated;
        let mut found = BTreeMap::new();
        let mut all = true;
        for &(address, bytes) in differing {
            for word in address / WORD..(address + bytes).div_ceil(WORD) {
                let written = accessed.written.get(&(false, word));
                let Some((written, why)) = written.and_then(|written| Some((written, written.varies?)))
                else {
                    all = false;
                    continue;
                };
                for node in &written.by {
                    if let Some((point, threads)) = accessed.stored.get(node) {
                        found.entry(*node).or_insert((point.clone(), why, threads.len() as u64));
                    }
                }
            }
        }
        // Where copies write is not known.
        let copies = if all { None } else { self.copies(flow) };
        (all || copies.is_some()).then(|| found.into_values().chain(copies).collect())
    }

    /// A copy that may write what depends on time.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the others are no copies to global memory")]
    fn copies(&self, flow: &Flow<'_>) -> Option<(Point, &'static str, u64)> {
        let shared =
            || self.emulated.written.iter().any(|((shared, _), word)| *shared && word.varies.is_some());
        flow.nodes.iter().enumerate().find_map(|(node, inner)| {
            let ptx::Statement::Inst { inst, site } = inner.statement else { return None };
            let why = match inst {
                Inst::TensorStore { reduce: Some(AtomicOp::Add), .. } => Some(SUMS),
                Inst::Bulk(Bulk::Store { reduce: Some(reduce), .. }) => sums(*reduce),
                Inst::TensorStore { reduce: None, .. } | Inst::Bulk(Bulk::Store { reduce: None, .. }) => {
                    shared().then_some("what it copies depends on time")
                }
                _ => None,
            }?;
            let (value, kind, name) = (Operand::Imm(0), Kind::Writes, inst.name().to_owned());
            let (site, reads) = (site.clone(), Vec::new());
            Some((Point { node, value, site, name, kind, reads, access: None, timed: false }, why, 0))
        })
    }
}

impl Accessed {
    fn thread(&mut self, points: &[Point], (thread, cta): (u64, u64), part: &[u8]) {
        let mut values = HashMap::new();
        // The last entry is written again and again.
        for step in 0..part.len() / ENTRY - 1 {
            let (number, bits) = entry(part, step);
            let Some(point) = (number as usize).checked_sub(1).and_then(|number| points.get(number)) else {
                return;
            };
            if let Some(access) = &point.access {
                let base = match (access.writes, access.address.base) {
                    (true, _) => Some(bits),
                    (false, Operand::Imm(base)) => Some(base),
                    (false, Operand::Reg(reg)) => values.get(&reg).copied(),
                };
                base.into_iter().for_each(|base| self.access(point, *access, base, (thread, cta)));
            }
            if let Some(reg) = point.written() {
                values.insert(reg, bits);
            }
        }
    }

    fn access(&mut self, point: &Point, access: Access, base: u64, (thread, cta): (u64, u64)) {
        let start = base.wrapping_add_signed(access.address.offset.into());
        // Without the CTA's rank.
        let is_shared = access.space.is_shared();
        let start = if is_shared { start & 0xff_ffff } else { start };
        let words = (start / WORD..(start + access.bytes).div_ceil(WORD)).map(|word| (is_shared, word));
        if !access.writes {
            self.loaded.entry(point.node).or_default().extend(words);
            return;
        }
        let (_, threads) = self.stored.entry(point.node).or_insert_with(|| (point.clone(), HashSet::new()));
        threads.insert(thread);
        let is_atomic = point.name.starts_with("atom") || point.name.starts_with("red");
        for word in words {
            let written =
                self.written.entry(word).or_insert(Written { by: BTreeSet::new(), cta, varies: None });
            written.by.insert(point.node);
            written.varies = written.varies.or(access.varies);
            if access.space == Space::Global && written.cta != cta && !is_atomic {
                written.varies.get_or_insert("several CTAs write there, one after the other");
            }
        }
    }
}
