//! Random kernels: draws specs from the whole space, legal and illegal, and runs each on a random problem.
//!
//! A legal spec must compute the reference's result under a random schedule of the emulator. An illegal spec
//! must be refused with a sentence. Nothing may panic. The seed of a trial reproduces it.
//!
//! ```
//! use falchion::verify::random::{Trial, trial};
//!
//! let (spec, verdict) = trial(7);
//! assert!(!matches!(verdict, Trial::Wrong(_)), "{spec}");
//! ```

mod problems;

use core::fmt;
use std::hash::Hasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use collective::{
    Arrivals, Atom, CachePolicy, Code, Form, Format, Formula, MainloopSpec, MmaKind, OperandSpec, Producer,
    Roles, Source, StageSlot, StorePath, StoreSpec, TileLayout, WeightsSpec,
};
use cute_rs::atom::{Major, SwizzleMode};
use emulator::{Numerics, Schedule};
use fastrand::Rng;
use kernel::{
    AnyGemm, Buffer, Emulator, Engine, EngineError, EpilogueKind, GemmProblem, KernelSpec, Program,
};
use ptx::abi::{Argument, Grid};
use scheduler::{
    AlongM, AlongN, DivideSpec, Grouped, Hilbert, Raster, RasterSpec, ReductionKind, Rule, SchedulerSpec,
};
use typenum::U8;

use super::family::FamilyError;
use super::product::RunError;
use super::{Bench, FusedGemm, TreeError};

/// The outcome of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Trial {
    /// A legal spec computed the right result.
    Right {
        /// The largest error as a fraction of its bound.
        ratio: f64,
        /// The digest of D's bits, if they depend neither on the order of the CTAs nor on the engine's
        /// approximations.
        digest: Option<u64>,
    },
    /// An illegal spec was refused, with this message.
    Refused(String),
    /// A legal spec refused the problem, with this message.
    Unfit(String),
    /// The trial failed, for this reason.
    Wrong(String),
}

/// The random spec of a seed, legal or not.
pub fn spec(seed: u64) -> KernelSpec {
    let mut draw = Draw { random: Rng::with_seed(seed) };
    let spec = draw.spec();
    KernelSpec { most_groups: draw.most_groups(spec.form), ..spec }
}

/// Where a trial runs.
pub enum Place<'e> {
    /// The emulator, under a random schedule, with its default numerics.
    Emulator,
    /// The emulator, with accumulation exactly as the hardware does it.
    Exact,
    /// Another engine, limited to the number of SMs that the emulator has.
    On(&'e mut dyn Engine),
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Emulator => f.write_str("Emulator"),
            Self::Exact => f.write_str("Exact"),
            Self::On(engine) => f.debug_tuple("On").field(&engine.describe()).finish(),
        }
    }
}

/// Draws a spec and a problem, and runs it in the emulator.
pub fn trial(seed: u64) -> (KernelSpec, Trial) {
    let spec = spec(seed);
    (spec, trial_of(&spec, seed, Place::Emulator))
}

/// Draws a problem for a spec, and runs it. The problem depends only on spec and seed, not on the place.
pub fn trial_of(spec: &KernelSpec, seed: u64, place: Place<'_>) -> Trial {
    let ended = catch_unwind(AssertUnwindSafe(|| run(spec, seed, place)));
    ended.unwrap_or_else(|_| Trial::Wrong("it panicked".to_owned()))
}

/// An engine that is limited to a number of SMs.
struct Part<'e> {
    engine: &'e mut dyn Engine,
    multiprocessors: u32,
}

impl Engine for Part<'_> {
    fn describe(&self) -> String {
        self.engine.describe()
    }

    fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError> {
        self.engine.allocate(bytes)
    }

    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError> {
        self.engine.write(buffer, bytes)
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError> {
        self.engine.read(buffer)
    }

    fn free(&mut self, buffer: Buffer) -> Result<(), EngineError> {
        self.engine.free(buffer)
    }

    fn launch(
        &mut self,
        program: &Program,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<Duration, EngineError> {
        self.engine.launch(program, grid, arguments)
    }
}

/// The digest of D's bits.
fn digest<T: std::hash::Hash>(d: impl Iterator<Item = T>) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    d.for_each(|element| element.hash(&mut hasher));
    hasher.finish()
}

fn run(spec: &KernelSpec, seed: u64, place: Place<'_>) -> Trial {
    let text = spec.to_string();
    if KernelSpec::parse(&text).as_ref() != Ok(spec) {
        return Trial::Wrong("its text is another spec's".to_owned());
    }
    let gemm = match spec.kernel() {
        Ok(gemm) => gemm,
        Err(error) if error.to_string().len() < 20 => {
            return Trial::Wrong(format!("it is refused without a reason: `{error}`"));
        }
        Err(error) => return Trial::Refused(error.to_string()),
    };
    let mut draw = Draw { random: Rng::with_seed(seed ^ 0x5eed) };
    match draw.check(&gemm, spec, place) {
        Ok((ratio, digest)) => {
            let ordered = gemm.reduction() != Some(ReductionKind::Atomic);
            let exact = gemm.program().is_ok_and(|program| !program.text().contains(".approx"));
            Trial::Right { ratio, digest: (ordered && exact).then_some(digest) }
        }
        Err(Ended::Unfit(words)) => Trial::Unfit(words),
        Err(Ended::Wrong(words)) => Trial::Wrong(words),
    }
}

/// Why a legal spec gave no result.
enum Ended {
    Unfit(String),
    Wrong(String),
}

impl From<RunError> for Ended {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Launch(error) => Self::Unfit(error.to_string()),
            error @ (RunError::Engine(_)
            | RunError::Program(_)
            | RunError::Direction { .. }
            | RunError::Transposed { .. }
            | RunError::Check(_)) => Self::Wrong(error.to_string()),
        }
    }
}

impl From<TreeError> for Ended {
    fn from(error: TreeError) -> Self {
        match error {
            TreeError::Check(FamilyError::Call(error)) => Self::Unfit(error.to_string()),
            TreeError::Check(_) | TreeError::Schedule(_) | TreeError::Unknown(_) => {
                Self::Wrong(error.to_string())
            }
        }
    }
}

struct Draw {
    random: Rng,
}

impl Draw {
    /// Draws one of some values.
    fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.random.usize(..values.len())]
    }

    /// Draws true once in `times` times on average.
    fn once_in(&mut self, times: u32) -> bool {
        self.random.u32(..times) == 0
    }

    /// Draws a multiple of a step, up to a limit; now and then any number.
    fn extent(&mut self, step: u32, most: u32) -> u32 {
        if self.once_in(24) {
            return self.random.u32(..most * 2);
        }
        step * self.random.u32(1..=most / step)
    }

    fn raster(&mut self) -> RasterSpec {
        // Now and then an illegal value: a band of no tiles, or a square that no curve fills.
        let band = if self.once_in(40) { 0 } else { self.random.u32(1..13) };
        match self.random.u32(..6) {
            0 => AlongM::RASTER,
            1 => AlongN::RASTER,
            2 | 3 => Grouped::<AlongM, U8>::RASTER.sized(band),
            4 => Grouped::<AlongN, U8>::RASTER.sized(band),
            _ => Hilbert::<U8>::RASTER.sized(if band == 0 { 3 } else { self.of(&[2, 4, 8, 16]) }),
        }
    }

    fn scheduler(&mut self, form: Form) -> SchedulerSpec {
        let raster = self.raster();
        let wild = self.once_in(20);
        let persistent = [1, 1, 2, 3];
        let on_device = matches!(form, Form::GroupedContiguous | Form::GroupedMasked | Form::PointerArray)
            && !self.once_in(6);
        let whole = form == Form::KGrouped && !self.once_in(6);
        let drawn = match (on_device, whole) {
            (true, _) => self.of(&persistent),
            (_, true) => self.of(&[0, 1, 1, 2, 5]),
            _ => self.random.u32(..8),
        };
        let rule = match drawn {
            0 => Rule::OneTile,
            1 => Rule::Persistent,
            2 => Rule::Dynamic,
            3 => Rule::DividedTail {
                parts: if wild { self.of(&[0, 17]) } else { self.random.u32(1..6) },
                least: if wild { 0 } else { self.random.u32(1..4) },
            },
            4 => Rule::ClusterK { parts: if wild { self.of(&[0, 1, 9]) } else { self.random.u32(2..9) } },
            5 => Rule::NarrowTail { parts: if wild { self.of(&[0, 1, 9]) } else { self.of(&[2, 2, 4, 3]) } },
            _ => Rule::StreamK {
                reduction: self.of(&[ReductionKind::Ordered, ReductionKind::Atomic, ReductionKind::Separate]),
                divide: match self.random.u32(..3) {
                    0 => DivideSpec::Remainder,
                    1 => DivideSpec::EveryTile(if wild { 0 } else { self.random.u32(1..5) }),
                    _ => DivideSpec::Heuristic { gain: self.random.u32(..8) },
                },
                least: self.random.u32(1..4),
            },
        };
        SchedulerSpec { raster, rule }
    }

    /// Groups that a kernel's table is for: mostly the usual number. Now and then one that there is no table for.
    fn most_groups(&mut self, form: Form) -> u32 {
        match self.random.u32(..40) {
            0 if form.has_table() => self.of(&[0, 1, 384, 4095]),
            1..16 if form.has_table() => self.of(&Form::TABLES),
            _ => Form::TABLES[0],
        }
    }

    fn spec(&mut self) -> KernelSpec {
        let [a, b] = self.operands();
        let roles = self.of(&[Roles::Cooperative, Roles::Cooperative, Roles::Pingpong, Roles::Unspecialised]);
        let epilogue = self.epilogue(a);
        let form = self.form(epilogue);
        let producer = if self.once_in(5) { Producer::Warpgroup } else { Producer::Thread };
        let cluster = self.cluster(producer, roles);
        let cache = [CachePolicy::Normal, CachePolicy::EvictFirst, CachePolicy::EvictLast];
        let consumers = if self.once_in(30) { self.random.u32(..6) } else { self.of(&[1, 2, 2, 3]) };
        // Mostly rows that the consumers can share evenly.
        let rows = if roles == Roles::Pingpong { 64 } else { 64 * consumers.clamp(1, 4) };
        let others = [Major::K, if a.bits() == 16 || self.once_in(12) { Major::Mn } else { Major::K }];
        let majors = [Major::K, others[0], others[1]];
        let columns = self.of(&[64, 128, 192, 256, 320]);
        let majors = [self.of(&majors), self.of(&majors)];
        let cache = [self.of(&cache), self.of(&cache)];
        let layouts = [self.layout(), self.layout()];
        // With a transposed store (swap-AB), the kernel's A is the caller's B.
        let transposed = self.once_in(if epilogue == EpilogueKind::Sourced { 30 } else { 4 });
        let of_kernel = if transposed { [b, a] } else { [a, b] };
        let of_scales = self.block_scales(a);
        let scaled = of_scales != [0; 2] && !self.once_in(8);
        let operand = |i: usize| OperandSpec {
            format: of_kernel[i],
            major: majors[i],
            layout: layouts[i],
            cache: cache[i],
            staged: true,
            scaled: of_scales[i],
            weights: None,
            sparse: false,
        };
        let types = of_kernel[0].multiplies(of_kernel[1]);
        // Integer instructions have other widths.
        let n_step = if a.is_float() || self.once_in(8) { 8 } else { 16 };
        // A third of the specs of 8-bit floats, and few of other formats.
        let promoted = self.once_in(if a.is_float() && a.bits() == 8 { 3 } else { 30 });
        let half = types.and_then(|types| types.in_half()).filter(|_| !scaled && self.once_in(8));
        let types = half.or(types);
        let promote = if promoted && !scaled { self.of(&[1, 2, 4, 4, 8, 3]) } else { 0 };
        let waves = if promote > 0 || scaled { self.of(&[1, 1, 2, 2, 4, 3]) } else { 1 };
        let mainloop = MainloopSpec {
            operands: [operand(0), operand(1)],
            atom: types.map_or(KernelSpec::DEFAULT.mainloop.atom, Atom::shared).promoted(promote),
            more: KernelSpec::DEFAULT.mainloop.more,
            own_bytes: 0,
            own_stage: StageSlot::NONE,
            registers: 0,
            tile: [
                self.extent(rows, 256.max(rows)),
                self.extent(if scaled { 64 } else { n_step }, if scaled { 128 } else { columns }),
                if scaled { 128 } else { self.extent(256 / a.bits(), 2048 / a.bits()) },
            ],
            step: if !scaled && self.once_in(8) { self.of(&[8, 16, 32, 64]) } else { 0 },
            roles,
            producer,
            consumers,
            arrivals: match scaled {
                true => self.of(&[Arrivals::Warp, Arrivals::Thread]),
                false => {
                    self.of(&[Arrivals::Warpgroup, Arrivals::Warpgroup, Arrivals::Warp, Arrivals::Thread])
                }
            },
            cluster,
            stages: if self.once_in(3) { Some(self.random.u32(..7)) } else { None },
            waves,
        };
        let store = self.store(epilogue, a, transposed);
        let scheduler = self.scheduler(form);
        let (most_groups, overlaps) = (Form::TABLES[0], !self.once_in(4));
        let spec = KernelSpec { form, most_groups, mainloop, epilogue, store, scheduler, overlaps };
        if self.once_in(10) {
            return self.without_wgmma(spec);
        }
        let spec = self.in_few_bits(spec);
        self.sparse(spec)
    }

    fn epilogue(&mut self, a: Format) -> EpilogueKind {
        match self.random.u32(..8) {
            0 => EpilogueKind::Sourced,
            1 | 2 if (a.is_float() && a.bits() <= 16) || self.once_in(10) => {
                EpilogueKind::Fused(self.of(&Formula::all().collect::<Vec<_>>()))
            }
            _ => EpilogueKind::Linear,
        }
    }

    fn cluster(&mut self, producer: Producer, roles: Roles) -> [u32; 2] {
        let alone = producer == Producer::Warpgroup || roles == Roles::Unspecialised;
        if self.once_in(if alone { 20 } else { 3 }) {
            [self.of(&[1, 2, 4]), self.of(&[1, 2])]
        } else {
            [1, 1]
        }
    }

    fn form(&mut self, epilogue: EpilogueKind) -> Form {
        match epilogue {
            EpilogueKind::Linear => self.of(&[
                Form::Single,
                Form::Single,
                Form::Batched,
                Form::GroupedContiguous,
                Form::GroupedMasked,
                Form::KGrouped,
                Form::PointerArray,
            ]),
            EpilogueKind::Sourced => self.of(&[Form::Single, Form::Batched, Form::KGrouped]),
            EpilogueKind::Fused(_) => Form::Single,
        }
    }

    /// Rows per block scale of A, and columns of B: in a quarter of the specs of 8-bit floats; few others have such scales.
    fn block_scales(&mut self, a: Format) -> [u32; 2] {
        let of_fp8 = a.is_float() && a.bits() == 8;
        if self.once_in(if of_fp8 { 4 } else { 100 }) {
            let rows = if self.once_in(20) { [0, 2] } else { [1, 128] };
            [self.of(&rows), self.of(&rows)]
        } else {
            [0; 2]
        }
    }

    fn store(&mut self, epilogue: EpilogueKind, a: Format, transposed: bool) -> StoreSpec {
        let output = match epilogue {
            _ if self.once_in(5) => self.of(&Format::ALL),
            EpilogueKind::Fused(fusion) => fusion.output(a),
            EpilogueKind::Linear | EpilogueKind::Sourced => a.output(),
        };
        let direct = if epilogue == EpilogueKind::Sourced { 30 } else { 3 };
        let way = if self.once_in(direct) {
            StorePath::Direct
        } else if self.once_in(40) {
            StorePath::Tma { buffers: 0 }
        } else {
            StorePath::Tma { buffers: self.of(&[1, 2, 2, 2, 3, 4, 8]) }
        };
        let layout = if way == StorePath::Direct { TileLayout::Widest } else { self.layout() };
        StoreSpec { format: output, way, layout, transposed }
    }

    /// Makes A sparse in an eighth of the specs that allow it.
    fn sparse(&mut self, spec: KernelSpec) -> KernelSpec {
        let MainloopSpec { operands: [a, b], mut tile, atom, .. } = spec.mainloop;
        let wild = self.once_in(12);
        let fits = !matches!(spec.form, Form::PointerArray) && a.weights.is_none() && a.scaled == 0;
        if !(fits || self.once_in(60)) || !self.once_in(8) {
            return spec;
        }
        let k = if a.format.bits() == 32 { [32, 64] } else { [64, 128] };
        tile[2] = if wild { tile[2] } else { self.of(&k) };
        let layout = if wild { b.layout } else { TileLayout::Widest };
        // An instruction multiplies twice the K of a dense one.
        let steps = tile[2] / (2 * atom.k());
        let within = atom.promote > 0 && steps.is_multiple_of(atom.promote);
        let mainloop = MainloopSpec {
            operands: [
                OperandSpec { sparse: true, major: if wild { a.major } else { Major::K }, ..a },
                OperandSpec { layout, sparse: wild && self.once_in(3), ..b },
            ],
            atom: Atom { promote: if wild || within { atom.promote } else { 0 }, sparse: true, ..atom },
            waves: if wild || within { spec.mainloop.waves } else { 1 },
            tile,
            ..if wild { spec.mainloop } else { self.read_by_threads(spec.mainloop) }
        };
        KernelSpec { mainloop, ..spec }
    }

    /// A mainloop whose threads read more from the stage than the multiply does.
    fn read_by_threads(&mut self, mainloop: MainloopSpec) -> MainloopSpec {
        let arrivals = self.of(&[Arrivals::Warp, Arrivals::Thread]);
        MainloopSpec { step: 0, arrivals, producer: Producer::Thread, ..mainloop }
    }

    /// Makes the kernel's A weights in few bits in a sixth of the specs that allow it.
    fn in_few_bits(&mut self, spec: KernelSpec) -> KernelSpec {
        let MainloopSpec { operands: [a, b], mut tile, atom, .. } = spec.mainloop;
        let wild = self.once_in(12);
        let fits = a.format.bits() == 16 && a.format == b.format && !matches!(spec.form, Form::PointerArray);
        if !(fits || self.once_in(60)) || !self.once_in(6) {
            return spec;
        }
        let code = self.of(&Code::ALL);
        let zeros = code.is_integer() && self.once_in(2) || wild;
        let group = if zeros { self.of(&[32, 64, 128]) } else { self.of(&[0, 32, 64, 128, 128]) };
        let weights =
            Some(WeightsSpec { code, group: if wild { self.of(&[16, 96, group]) } else { group }, zeros });
        tile[2] = if wild { tile[2] } else { self.of(&[64, 128]) };
        let mainloop = MainloopSpec {
            operands: [OperandSpec { weights, major: if wild { a.major } else { Major::K }, ..a }, b],
            atom: Atom { promote: 0, a: Source::Registers, ..atom },
            tile,
            ..if wild { spec.mainloop } else { self.read_by_threads(spec.mainloop) }
        };
        KernelSpec { mainloop, ..spec }
    }

    /// Replaces `wgmma` by `mma.sync` or plain instructions, in these formats or in formats that `wgmma` does
    /// not have.
    fn without_wgmma(&mut self, mut spec: KernelSpec) -> KernelSpec {
        let mainloop = &mut spec.mainloop;
        if let Some(other) = self.of(&[None, None, Some(Format::F32), Some(Format::F64)]) {
            (mainloop.operands[0].format, mainloop.operands[1].format) = (other, other);
            (spec.epilogue, spec.store.format) = (EpilogueKind::Linear, other);
            if other == Format::F64 && !self.once_in(8) {
                (spec.store.way, spec.store.transposed) = (StorePath::Direct, false);
                spec.store.layout = TileLayout::Widest;
            }
        }
        let [a, b] = mainloop.operands.map(|operand| operand.format);
        let by = if a == Format::F32 { MmaKind::Simt } else { MmaKind::MmaSync };
        let Some(atom) = by.atom(a, b) else { return spec };
        mainloop.atom = atom;
        mainloop.tile[2] = self.extent(atom.k(), 1024 / a.bits());
        for operand in &mut mainloop.operands {
            operand.scaled = 0;
            if !atom.types.allows_transpose() && !self.once_in(12) {
                operand.major = Major::K;
            }
        }
        if !self.once_in(12) {
            (mainloop.roles, mainloop.producer) = (Roles::Unspecialised, Producer::Warpgroup);
            (mainloop.step, mainloop.cluster, mainloop.arrivals) = (0, [1, 1], Arrivals::Warpgroup);
        }
        spec
    }

    /// Draws formats of A and B, mostly ones that an instruction multiplies.
    fn operands(&mut self) -> [Format; 2] {
        let all: Vec<Format> = Format::operands().collect();
        // Formats of 16 bits have the most variants to try.
        let a = if self.once_in(2) { self.of(&[Format::Bf16, Format::F16]) } else { self.of(&all) };
        let fitting: Vec<Format> = all.iter().copied().filter(|&b| a.multiplies(b).is_some()).collect();
        [a, if self.once_in(25) { self.of(&all) } else { self.of(&fitting) }]
    }

    /// Draws alpha and beta: small for integer operands with a D of 8- or 16-bit floats, mostly whole numbers
    /// for an integer D, and none that `f32` has for a D of `f64`.
    fn factors(&mut self, gemm: &AnyGemm) -> [f64; 2] {
        let [a, _, d] = gemm.formats();
        let factors = [self.of(&[1.0, -0.5, 0.0]), self.of(&[0.0, 0.0, 1.0, 2.5])];
        match (a.is_float(), d.is_float()) {
            (false, true) if d != Format::F32 => [factors[0] / 1024.0, factors[1]],
            (_, false) if !self.once_in(12) => factors.map(|factor| factor * 2.0),
            _ if d == Format::F64 => factors.map(|factor| factor / 3.0),
            _ => factors,
        }
    }

    /// Draws a tile's layout in shared memory, mostly the default.
    fn layout(&mut self) -> TileLayout {
        if self.once_in(5) { TileLayout::Slabs(self.of(&SwizzleMode::ALL)) } else { TileLayout::Widest }
    }

    /// Draws an extent of a few tiles; the last tile may be partial.
    fn covered(&mut self, tile: u32, tiles: u32, step: u32) -> u32 {
        let whole = tile * self.random.u32(1..=tiles);
        if self.once_in(3) { whole } else { self.random.u32(1..=whole) }.next_multiple_of(step)
    }

    /// The largest error as a fraction of its bound, and the digest of D.
    fn check(&mut self, gemm: &AnyGemm, spec: &KernelSpec, place: Place<'_>) -> Result<(f64, u64), Ended> {
        let plan = gemm.plan();
        let [m, n, k] = plan.mainloop.tile;
        let [across, along] = plan.mainloop.cluster;
        // Rows of D that tensor copies can store, also if a gated epilogue halves them.
        let row = if plan.epilogue.staged_bits > 0 || spec.fusion().is_some() { 64 } else { 1 };
        let [m_step, n_step] = plan.oriented([1, row]);
        // Enough K that some splits are longer than others, or few k-tiles.
        let deep = 2 * (gemm.cluster_size() / plan.cluster_size()).max(2);
        let extents = [
            self.covered(m * across, 2, m_step),
            self.covered(n * along, 2, n_step),
            self.covered(k, deep, 1),
        ];
        let [m, n] = plan.oriented([extents[0], extents[1]]);
        let n = if plan.epilogue.needs.rows { n.min(plan.mainloop.tile[1]) } else { n };
        let problem = GemmProblem { m, n, k: extents[2] };
        let schedule = self.of(&[Schedule::Default, Schedule::Latest, Schedule::Random, Schedule::Random]);
        let slots = self.of(&[1, 2, 3, 5]) * gemm.cluster_size();
        let numerics = self.of(&[Numerics::Fast, Numerics::Exact]);
        let numerics = if matches!(place, Place::Exact) { Numerics::Exact } else { numerics };
        let mut emulator = Emulator::new()
            .with_multiprocessors(slots)
            .with_numerics(numerics)
            .with_schedule(schedule, self.random.u64(..));
        let mut part;
        let engine: &mut dyn Engine = match place {
            Place::Emulator | Place::Exact => &mut emulator,
            Place::On(engine) => {
                part = Part { engine, multiprocessors: slots };
                &mut part
            }
        };
        let seed = self.random.u64(..);
        if let Some(fused) = FusedGemm::of(gemm.clone()) {
            if spec.form != Form::Single {
                return Err(Ended::Unfit("fusions are tried with one product".to_owned()));
            }
            let checked = fused.check(&mut Bench::new(engine, seed), problem);
            let checked = checked.map_err(|error| match error.into() {
                Ended::Wrong(wrong) => Ended::Wrong(format!("{problem:?}: {wrong}")),
                unfit @ Ended::Unfit(_) => unfit,
            })?;
            return Ok((checked.ratio, digest(checked.d.into_iter().map(f64::to_bits))));
        }
        self.run(gemm, engine, (problem, row, seed))
    }
}
