//! The space that is searched: every spec of built-in parts that may be the best at some shape.
//!
//! A spec is in the space if its plan is legal; nothing is listed by shape. To keep ranking fast, some specs
//! are left out because no shape was seen to profit from them: wide tiles with few columns, deep k-tiles of
//! tall tiles, and rings of two stages.

use std::sync::Arc;

use collective::{
    Arrivals, CachePolicy, EpilogueSpec, Form, Formula, MainloopNeeds, MainloopSpec, MmaKind, Plan, Producer,
    Roles, StorePath, StoreSpec, TileLayout,
};
use cute_rs::atom::{Major, SwizzleMode};
use scheduler::{AlongM, Raster, Rule, Schedule, SchedulerSpec, SchedulerTraits};

use super::table::Table;
use super::tile::{RASTERS, Tile, schedulers};
use crate::emit::roles_wait;
use crate::legal;
use crate::products::GroupedProblem;
use crate::spec::{EpilogueKind, KernelSpec};
use crate::summation::Summation;
use crate::types::Types;

/// Columns of tiles: what one instruction multiplies, or two next to each other.
const COLUMNS: [u32; 24] = [
    8, 16, 24, 32, 48, 56, 64, 80, 88, 96, 104, 112, 120, 128, 136, 144, 160, 176, 192, 200, 224, 256, 288,
    320,
];

/// Rows of tiles, the roles that share them, and the number of consumers.
const ROWS: [(u32, Roles, u32); 6] = [
    (64, Roles::Cooperative, 1),
    (128, Roles::Cooperative, 2),
    (192, Roles::Cooperative, 3),
    (256, Roles::Cooperative, 2),
    (64, Roles::Pingpong, 2),
    (128, Roles::Pingpong, 2),
];

/// Bytes per row of a k-tile: whole swizzle lines.
const DEPTHS: [u32; 3] = [128, 256, 512];

/// CTAs per cluster, along M and N.
const CLUSTERS: [[u32; 2]; 8] = [[1, 1], [2, 1], [1, 2], [2, 2], [4, 1], [1, 4], [4, 2], [2, 4]];

/// With fewer stages, the latency of memory is not hidden.
const LEAST_STAGES: u32 = 3;

/// Rows and columns of tiles whose operands are copied by threads.
const COPIED: [[u32; 2]; 3] = [[128, 128], [128, 64], [64, 64]];

/// Rows and columns of tiles of elements that `wgmma` does not multiply, and the number of warpgroups that
/// share them.
const BY_THREADS: [([u32; 2], u32); 3] = [([192, 64], 1), ([128, 128], 2), ([64, 64], 1)];

/// What all specs of a space have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Space {
    pub(super) form: Form,
    /// Groups that the kernels' tables are for.
    pub(super) most_groups: u32,
    pub(super) types: Types,
    /// Contiguous directions of the caller's A and B.
    pub(super) majors: [Major; 2],
    pub(super) fusion: Option<Formula>,
    /// Whether C is read.
    pub(super) sourced: bool,
    /// Whether rows of D begin or end where tensor copies cannot store.
    pub(super) unaligned: bool,
    /// Whether A or B is where tensor copies cannot load, so that threads have to.
    pub(super) copied: bool,
    /// Whether all kernels sum in the same order.
    pub(super) reproducible: bool,
}

/// A kernel for the model.
pub(super) struct Subject<'a> {
    pub(super) plan: &'a Plan,
    pub(super) traits: SchedulerTraits,
    pub(super) scheduler: Arc<dyn Schedule>,
    /// Whether it may begin while the kernel before it still runs.
    pub(super) overlaps: bool,
}

impl Subject<'_> {
    /// Whether each of its roles waits for the kernels before. What that gains was not measured with block scales, and does not count there.
    pub(super) fn roles_wait(&self) -> bool {
        roles_wait(self.plan, self.traits, self.overlaps) && !self.plan.mainloop.is_scaled()
    }
}

/// A legal spec, with what the model needs of it.
pub(super) struct Entry {
    pub(super) spec: KernelSpec,
    pub(super) plan: Arc<Plan>,
}

/// What decides whether a kernel of a space may access a call's matrices: how its operands are loaded, and the
/// alignment in bytes that it needs of D.
pub(super) type Class = (Producer, u32);

impl Entry {
    /// `None` if the spec is illegal.
    pub(super) fn of(spec: KernelSpec) -> Option<Self> {
        spec.plan().ok().map(|plan| Self { spec, plan: Arc::new(plan) })
    }

    pub(super) fn subject(&self) -> Subject<'_> {
        let scheduler = self.spec.scheduler.schedule();
        Subject { plan: &self.plan, traits: scheduler.traits(), scheduler, overlaps: self.spec.overlaps }
    }

    pub(super) fn summation(&self) -> Option<Summation> {
        Summation::of(&self.plan, self.spec.scheduler)
    }
}

/// Sums of a thread of the tiles that are multiplied in two waves.
const WAVED_SUMS: u32 = 128;

/// What a plan is made of, with the number of entries of its queue, and the plan, if there is a legal one.
type Made = (MainloopSpec, EpilogueSpec, u32, Option<Arc<Plan>>);

/// The entries of a space while they are collected.
#[derive(Default)]
struct Entries {
    all: Vec<Entry>,
    /// The last plans. Most schedulers of a tile have the same.
    plans: [Option<Made>; 4],
    /// Number of plans that were made.
    made: usize,
}

impl Entries {
    /// The plan of a spec; `None` if the spec is illegal.
    fn plan(&mut self, spec: &KernelSpec) -> Option<Arc<Plan>> {
        let (epilogue, traits) = (spec.roles().ok()?, spec.scheduler.traits());
        let (mainloop, entries) =
            legal::asked(spec.form, (spec.mainloop, MainloopNeeds::NONE), epilogue, traits).ok()?;
        let known = self
            .plans
            .iter()
            .flatten()
            .find(|known| (known.0, known.1, known.2) == (mainloop, epilogue, entries));
        let plan = match known {
            Some((.., plan)) => plan.clone(),
            None => {
                let plan = Plan::of_form(
                    (spec.form, spec.most_groups),
                    (mainloop, MainloopNeeds::NONE),
                    epilogue,
                    entries,
                )
                .ok()
                .map(Arc::new);
                self.plans[self.made % self.plans.len()] = Some((mainloop, epilogue, entries, plan.clone()));
                self.made += 1;
                plan
            }
        };
        plan.filter(|plan| legal::scheduled(plan, traits).is_ok())
    }

    /// Adds a spec if it is legal, and if `admits` says so of its plan.
    fn add(&mut self, spec: KernelSpec, admits: impl FnOnce(&Plan) -> bool) {
        let plan = self.plan(&spec).filter(|plan| admits(plan));
        self.all.extend(plan.map(|plan| Entry { spec, plan }));
    }
}

impl Space {
    /// All entries of the space. They are computed once per process.
    pub(super) fn entries(self) -> Arc<Vec<Entry>> {
        static KNOWN: Table<Space, Arc<Vec<Entry>>> = Table::new();
        KNOWN.get(&self, || Arc::new(self.every().all))
    }

    /// For a space that leaves tensor copies out: a kernel with tensor copies, which says why.
    pub(super) fn left_out(self) -> Option<Entry> {
        Entry::of(self.smallest().filter(|_| self.copied)?)
    }

    /// Why no kernel has the types, directions, form and epilogue; `None` if some do.
    pub(super) fn impossible(self) -> Option<String> {
        match self.smallest() {
            None => Some(collective::Format::NO_PRODUCT.to_owned()),
            Some(spec) => spec.plan().err().map(|error| error.to_string()),
        }
    }

    /// The kernel that needs the least, legal or not; `None` if nothing multiplies the operands.
    fn smallest(self) -> Option<KernelSpec> {
        let mut spec = self.base()?;
        swap(&mut spec, self.types.weights[1].is_some() || self.types.sparse[1]);
        (spec.mainloop.tile, spec.mainloop.consumers) = ([64, 64, DEPTHS[0] / self.types.a.bytes()], 1);
        spec.store.way = StorePath::Direct;
        Some(spec)
    }

    fn every(self) -> Entries {
        let mut entries = self.all();
        // Groups along K begin at multiples of tile K.
        let fits = |entry: &Entry| GroupedProblem::K_STEP.is_multiple_of(entry.spec.mainloop.tile[2]);
        let ordered = |entry: &Entry| entry.summation().is_some_and(Summation::is_whole);
        entries.all.retain(|entry| {
            (!self.form.divides_k() || fits(entry)) && (!self.reproducible || ordered(entry))
        });
        entries
    }

    fn all(self) -> Entries {
        let mut entries = Entries::default();
        let Some(base) = self.base() else { return entries };
        if base.mainloop.atom.by_threads() {
            for (tile, consumers) in BY_THREADS {
                by_threads(base, tile, consumers, &mut entries);
            }
            return entries;
        }
        if !self.copied {
            self.by_tensor_copies(base, &mut entries);
        }
        for [m, n] in COPIED {
            copied(base, [m, n, DEPTHS[0] / self.types.a.bytes()], &mut entries);
        }
        if self.sourced {
            let persistent = |entry: &&Entry| entry.spec.scheduler.rule == Rule::Persistent;
            let sourced = |entry: &Entry| KernelSpec { epilogue: EpilogueKind::Sourced, ..entry.spec };
            let more: Vec<KernelSpec> = entries.all.iter().filter(persistent).map(sourced).collect();
            more.into_iter().for_each(|spec| entries.add(spec, |_| true));
        }
        entries
    }

    fn by_tensor_copies(self, base: KernelSpec, entries: &mut Entries) {
        let little = self.types.has_weights() || self.types.has_sparse();
        for (m, roles, consumers) in ROWS {
            for n in COLUMNS {
                for depth in DEPTHS {
                    let k = depth / self.types.a.bytes();
                    for cluster in CLUSTERS {
                        for swapped in [false, true] {
                            let tile = Tile { extents: [m, n, k], roles, consumers, cluster, swapped };
                            if tile.is_worth_trying(depth, little, self.types.is_scaled()) {
                                of_tile(base, tile, self.unaligned, entries);
                            }
                        }
                    }
                }
            }
        }
        if matches!(self.form, Form::GroupedContiguous | Form::GroupedMasked) {
            for cluster in [[1, 1], [2, 1]] {
                fitted(base, cluster, DEPTHS[0] / self.types.a.bytes(), self.unaligned, entries);
            }
        }
    }

    fn base(self) -> Option<KernelSpec> {
        let mut spec = KernelSpec { form: self.form, most_groups: self.most_groups, ..KernelSpec::DEFAULT };
        let Types { a, b, d, scaled, weights, sparse } = self.types;
        for (i, operand) in spec.mainloop.operands.iter_mut().enumerate() {
            (operand.format, operand.major) = ([a, b][i], self.majors[i]);
            (operand.scaled, operand.weights, operand.sparse) = (scaled[i], weights[i], sparse[i]);
        }
        spec.mainloop.atom = MmaKind::fastest(a, b)?.atom(a, b)?.taking(spec.mainloop.operands[0]);
        if self.types.is_scaled() || self.types.has_weights() || self.types.has_sparse() {
            spec.mainloop.arrivals = Arrivals::Warp;
        }
        spec.store.format = d;
        if let Some(fusion) = self.fusion {
            spec.epilogue = EpilogueKind::Fused(fusion);
        }
        Some(spec)
    }
}

/// Makes the caller's B the kernel's A, if `swapped` is set.
fn swap(spec: &mut KernelSpec, swapped: bool) {
    spec.store.transposed = swapped;
    if swapped {
        let mainloop = &mut spec.mainloop;
        mainloop.operands.swap(0, 1);
        let [a, b] = mainloop.operands.map(|operand| operand.format);
        mainloop.atom = MmaKind::Wgmma.atom(a, b).unwrap_or(mainloop.atom).taking(mainloop.operands[0]);
    }
}

/// The specs of a tile: both ways to store it, and all schedulers.
fn of_tile(base: KernelSpec, tile: Tile, unaligned: bool, entries: &mut Entries) {
    let mut spec = base;
    let Tile { extents: [_, n, _], roles, consumers, cluster, swapped } = tile;
    let mainloop = &mut spec.mainloop;
    (mainloop.tile, mainloop.roles, mainloop.consumers) = (tile.extents, roles, consumers);
    mainloop.cluster = cluster;
    mainloop.waves = waves(mainloop);
    swap(&mut spec, swapped);
    // If no other tile reads the weights, L2 should evict them first.
    const FIRST: CachePolicy = CachePolicy::EvictFirst;
    const NORMAL: CachePolicy = CachePolicy::Normal;
    let policies: &[[CachePolicy; 2]] = match (swapped, cluster[1]) {
        (true, 1) if n < 64 => &[[FIRST, NORMAL]],
        (true, 1) if n <= 128 => &[[FIRST, NORMAL], [NORMAL, NORMAL]],
        (false, 1) if n <= 128 && consumers == 1 => &[[NORMAL, FIRST], [NORMAL, NORMAL]],
        _ if tile.reads_alone(base.mainloop.is_scaled()) => &[[NORMAL, FIRST], [NORMAL, NORMAL]],
        (_, _) => &[[NORMAL, NORMAL]],
    };
    // Small tiles may gain if they are stored directly from registers. Where tensor copies cannot store, all
    // tiles are.
    let direct = tile.elements() <= 64 * 128 || (swapped && n <= 32);
    // Parts of tiles store few columns each, so that a stage is worth more than store buffers.
    let direct_parts = tile.elements() <= 128 * 160;
    let ways = match unaligned {
        true => [None, Some(StorePath::Direct)],
        // What a stage does not fill is left for store buffers.
        false if spec.mainloop.waves > 1 => [Some(StorePath::Tma { buffers: 4 }), None],
        false => [Some(StorePath::Tma { buffers: 2 }), (direct || direct_parts).then_some(StorePath::Direct)],
    };
    for &[a, b] in policies {
        (spec.mainloop.operands[0].cache, spec.mainloop.operands[1].cache) = (a, b);
        for way in ways.into_iter().flatten() {
            spec.store.way = way;
            for (scheduler, overlaps) in schedulers(tile) {
                // A store buffer is too wide for each CTA of the cluster to finish some of its columns.
                let clustered = matches!(scheduler.rule, Rule::ClusterK { .. });
                let way = if clustered { StorePath::Direct } else { way };
                if clustered && spec.store.way != StorePath::Direct && ways.contains(&Some(StorePath::Direct))
                {
                    continue;
                }
                if way == StorePath::Direct
                    && !(direct || unaligned || clustered || !overlaps && direct_parts)
                {
                    continue;
                }
                // Groups of rows have tiles of other widths.
                let sliced = matches!(scheduler.rule, Rule::NarrowTail { .. });
                if sliced && !matches!(spec.form, Form::Single | Form::Batched) {
                    continue;
                }
                // Half of 192 columns are no multiple of 128 bytes.
                let layout = match sliced && way != StorePath::Direct && !tile.extents[1].is_multiple_of(128)
                {
                    true => TileLayout::Slabs(SwizzleMode::B64),
                    false => spec.store.layout,
                };
                let store = StoreSpec { way, layout, ..spec.store };
                let spec = KernelSpec { scheduler, store, overlaps, ..spec };
                entries.add(spec, |plan| plan.ring.stages >= LEAST_STAGES && !spills(plan));
            }
        }
    }
}

/// The specs of tiles as wide as their group, with swap-AB: the caller's B fills their rows, and rows of
/// groups fill their columns, in steps of 32. Tiles are taken from a counter, the widest first.
fn fitted(base: KernelSpec, cluster: [u32; 2], k: u32, unaligned: bool, entries: &mut Entries) {
    let tile =
        Tile { extents: [128, 256, k], roles: Roles::Cooperative, consumers: 2, cluster, swapped: true };
    let (mut own, mut narrowed) = (Entries::default(), base);
    narrowed.mainloop.step = 32;
    of_tile(narrowed, tile, unaligned, &mut own);
    if let Some(Entry { spec, .. }) = own.all.first() {
        let drawn = SchedulerSpec { raster: AlongM::RASTER, rule: Rule::Dynamic };
        entries.add(KernelSpec { scheduler: drawn, ..*spec }, |_| true);
    }
}

/// Whether too few registers are left for an epilogue that stores directly from registers and needs addresses
/// of all rows and columns. Of 490 assembled specs of the space, those with fewer registers left spilled 8 to
/// 376 B, and hardly any other did.
///
/// The metadata of a sparse operand needs registers too: of 276 such specs, 11 of the 30 with 192 accumulators
/// spilled 8 to 52 B, and no other did.
const fn spills(plan: &Plan) -> bool {
    let needed = match (plan.epilogue.staged_bits, plan.mainloop.tile[1] > 256) {
        (0, false) => 72,
        (0, true) => 104,
        (_, _) if plan.mainloop.is_sparse() => 52,
        (_, _) => 0,
    };
    plan.registers.accumulators + needed > plan.registers.consumer
}

/// Two waves for block-scaled tiles of which each wave has 128 columns, if another consumer multiplies during the
/// additions: as many accumulators as sums would not fit into registers. On an H200 these tiles need 0.88 to 0.96 of
/// the time of the largest that fit; at 8192 cubed, waves of 112 columns take longer than those.
const fn waves(spec: &MainloopSpec) -> u32 {
    let sums = spec.tile[0] / spec.sharing() * spec.tile[1] / 128;
    if spec.is_scaled() && spec.sharing() > 1 && sums == WAVED_SUMS { 2 } else { 1 }
}

/// The specs of a tile of elements that `wgmma` does not multiply. There are few, because the model is not
/// accurate for them.
fn by_threads(base: KernelSpec, [m, n]: [u32; 2], consumers: u32, entries: &mut Entries) {
    let mut spec = base;
    let mainloop = &mut spec.mainloop;
    // 64 bytes along K, so that several CTAs fit on an SM.
    mainloop.tile = [m, n, 512 / mainloop.atom.element_bits()];
    (mainloop.roles, mainloop.producer) = (Roles::Unspecialised, Producer::Warpgroup);
    (mainloop.consumers, mainloop.stages) = (consumers, Some(4));
    let one = SchedulerSpec { raster: AlongM::RASTER, rule: Rule::OneTile };
    for way in [StorePath::Tma { buffers: 2 }, StorePath::Direct] {
        spec.store.way = way;
        for scheduler in [SchedulerSpec { raster: RASTERS[0], rule: Rule::Persistent }, one] {
            let spec = KernelSpec { scheduler, ..spec };
            entries.add(spec, |_| true);
        }
    }
}

/// The specs of a tile whose operands tensor copies cannot load.
fn copied(base: KernelSpec, tile: [u32; 3], entries: &mut Entries) {
    let mut spec = base;
    spec.mainloop.tile = tile;
    spec.mainloop.producer = Producer::Warpgroup;
    spec.mainloop.consumers = tile[0] / 64;
    spec.store.way = StorePath::Direct;
    let one = SchedulerSpec { raster: AlongM::RASTER, rule: Rule::OneTile };
    for scheduler in [SchedulerSpec { raster: RASTERS[0], rule: Rule::Persistent }, one] {
        let spec = KernelSpec { scheduler, ..spec };
        entries.add(spec, |_| true);
    }
}

#[cfg(test)]
mod tests {
    use collective::{Code, Format, WeightsSpec};

    use super::*;

    fn space(types: Types, fusion: Option<Formula>, unaligned: bool) -> Space {
        let (form, types) =
            (Form::Single, fusion.map_or(types, |fusion| types.stored(fusion.output(types.a))));
        Space {
            form,
            most_groups: Form::TABLES[0],
            types,
            majors: [Major::K; 2],
            fusion,
            sourced: false,
            unaligned,
            copied: false,
            reproducible: false,
        }
    }

    #[test]
    fn specs_are_legal_and_there_once() {
        let [bf16, e4m3, s8, tf32] = [Format::Bf16, Format::E4m3, Format::S8, Format::Tf32].map(Types::of);
        let weights = Some(WeightsSpec { code: Code::S4, group: 128, zeros: false });
        for (types, fusion, unaligned, least) in [
            (bf16, None, false, 500),
            (bf16, None, true, 500),
            (bf16, Some("bias-gelu".parse().expect("a formula")), false, 500),
            (e4m3, None, false, 500),
            (e4m3.with_b(Format::E5m2).stored(Format::F32), None, false, 500),
            (e4m3.scaled([1, 128]), None, false, 100),
            (e4m3.scaled([1, 1]), None, false, 100),
            (bf16.weights([None, weights]), None, false, 200),
            (bf16.weights([weights, None]), None, false, 200),
            (bf16.weights([None, weights]), Some("bias-gelu".parse().expect("a formula")), false, 200),
            (bf16.sparse([true, false]), None, false, 200),
            (bf16.sparse([false, true]), None, false, 200),
            (bf16.sparse([true, false]), Some("bias-gelu".parse().expect("a formula")), false, 200),
            (bf16.sparse([false, true]), None, true, 200),
            (e4m3.sparse([true, false]), None, false, 200),
            (s8.sparse([false, true]), None, false, 200),
            (tf32.sparse([true, false]), None, false, 200),
            (s8, None, false, 500),
            (tf32, None, false, 500),
            (Types::of(Format::F32), None, false, 10),
            (Types::of(Format::F64), None, false, 4),
        ] {
            let entries = space(types, fusion, unaligned).entries();
            println!("{types} {fusion:?} {unaligned}: {}", entries.len());
            let same = Space { reproducible: true, ..space(types, fusion, unaligned) }.entries();
            let order = same.first().and_then(Entry::summation);
            assert!(
                order.is_some() && same.iter().all(|entry| entry.summation() == order),
                "{types}: {order:?}"
            );
            // Integers have no order, and instructions of single threads no splits.
            let any = order == Some(Summation::Exact) || matches!(types.a, Format::F32 | Format::F64);
            assert_eq!(same.len() == entries.len(), any, "{types}");
            assert!((least..6600).contains(&entries.len()), "{types} {fusion:?}: {}", entries.len());
            let mut seen = std::collections::HashSet::new();
            for entry in entries.iter() {
                assert!(seen.insert(entry.spec), "{}", entry.spec);
                assert_eq!(entry.spec.plan().as_ref(), Ok(&*entry.plan), "{}", entry.spec);
                if matches!(entry.spec.scheduler.rule, Rule::NarrowTail { .. }) {
                    let kernel = entry.spec.kernel().expect("a legal spec");
                    assert_eq!(kernel.spec(), Some(entry.spec), "{}", entry.spec);
                }
            }
        }
    }
}
