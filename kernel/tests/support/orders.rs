//! Random kernels that claim to sum in the same order, and their bits for the same rows of A and columns of B.

use collective::sparse::{self, compress};
use collective::{
    AccumulatorType, Atom, BlockScales, Form, GroupScales, MatrixRef, OperandSpec, Roles, weights,
};
use fastrand::Rng;
use kernel::{
    AnyGemm, Buffer, Engine, EngineError, GemmProblem, KernelSpec, LinearArguments, Request, Types,
};
use scheduler::{AlongM, AlongN, Grouped, Raster, Rule, SchedulerSpec};
use typenum::U3;

/// One kernel of each class, as text, and the step of K that its operands allow.
pub(crate) const CLASSES: [(&str, u32); 19] = [
    ("dtype=bf16 tile=128x128x64", 8),
    ("dtype=f16 tile=128x64x64 sums=f16", 8),
    ("dtype=tf32 tile=128x64x32", 4),
    ("dtype=e4m3 tile=128x128x128", 16),
    ("dtype=e5m2 dtype-b=e4m3 tile=128x64x128 promote=4", 16),
    ("dtype=e4m3 tile=128x64x128 promote=1", 16),
    // An interval of two k-tiles, and one of four.
    ("dtype=e4m3 tile=128x64x64 promote=4", 16),
    ("dtype=e4m3 tile=128x64x32 promote=4", 16),
    ("dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=128x128x128", 16),
    ("dtype=e4m3 scale-a=1x128 scale-b=1x128 tile=128x64x128", 16),
    ("weights-b=s4 group=128 swap=yes tile=128x64x128", 8),
    ("sparse=a tile=128x128x64", 64),
    ("dtype=s8 tile=128x64x128", 16),
    ("dtype=bf16 tile=128x64x64 store=direct scheduler=cluster-k splits=2", 8),
    ("dtype=f16 tile=64x64x64 consumers=1 store=direct scheduler=cluster-k splits=5", 8),
    (
        "dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=64x64x128 consumers=1 store=direct scheduler=cluster-k splits=3",
        16,
    ),
    ("dtype=bf16 multiply=mma.sync roles=unspecialised tile=64x64x32 consumers=1 stages=3", 8),
    ("dtype=f32 multiply=simt roles=unspecialised tile=64x64x16 consumers=1 stages=3", 4),
    ("dtype=f64 multiply=mma.sync roles=unspecialised tile=64x64x8 consumers=1 stages=3 store=direct", 2),
];

/// A class's kernel.
pub(crate) fn kernel(text: &str) -> KernelSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn of<T: Copy>(random: &mut Rng, values: &[T]) -> T {
    values[random.usize(..values.len())]
}

/// Another kernel of the same types that claims the same order: of any tile, roles, cluster, schedule and form.
pub(crate) fn member(base: &KernelSpec, random: &mut Rng) -> KernelSpec {
    let order = base.summation().expect("an order that depends on the kernel and K alone");
    loop {
        let spec = varied(base, random);
        if spec.summation() == Some(order) && spec != *base {
            return spec;
        }
    }
}

fn varied(base: &KernelSpec, random: &mut Rng) -> KernelSpec {
    let mut spec = *base;
    let mainloop = &mut spec.mainloop;
    let k = of(random, &[mainloop.tile[2], mainloop.tile[2], mainloop.tile[2] * 2, mainloop.tile[2] / 2]);
    mainloop.tile = [of(random, &[64, 128, 192, 256]), 8 * random.u32(1..=24), k];
    mainloop.consumers = random.u32(1..=3);
    if !mainloop.atom.by_threads() {
        mainloop.roles = of(random, &[Roles::Cooperative, Roles::Pingpong, Roles::Unspecialised]);
        mainloop.cluster = of(random, &[[1, 1], [1, 1], [2, 1], [1, 2]]);
        mainloop.waves = of(random, &[1, 1, 2]);
        mainloop.stages = of(random, &[None, Some(2), Some(3)]);
    }
    let spread = |atom: Atom| {
        if base.mainloop.atom.sums() == AccumulatorType::F16 { atom.in_half() } else { Some(atom) }
    };
    if random.bool() {
        mainloop.operands.swap(0, 1);
        spec.store.transposed = !spec.store.transposed;
        let [a, b] = mainloop.operands;
        let atom = base.mainloop.atom.types.multiply().atom(a.format, b.format).and_then(spread);
        if let Some(atom) = atom {
            mainloop.atom = atom.promoted(base.mainloop.atom.promote).taking(a);
        }
    }
    let raster = of(random, &[AlongM::RASTER, AlongN::RASTER, Grouped::<AlongM, U3>::RASTER]);
    let rules = [Rule::OneTile, Rule::Persistent, Rule::Dynamic, Rule::NarrowTail { parts: 2 }];
    let parts = matches!(base.scheduler.rule, Rule::ClusterK { .. });
    let rule = if parts { base.scheduler.rule } else { of(random, &rules) };
    spec.scheduler = SchedulerSpec { raster, rule };
    spec.store.way = of(random, &[base.store.way, collective::StorePath::Direct]);
    let plain = |of: &OperandSpec| of.scaled == 0 && of.weights.is_none() && !of.sparse;
    if spec.mainloop.operands.iter().all(plain) {
        spec.form = of(random, &[Form::Single, Form::Single, Form::Batched, Form::GroupedContiguous]);
    }
    spec
}

/// Matrices of a class: `A`, `B` and `C`, as the bits of their elements, and scales.
pub(crate) struct Matrices {
    types: Types,
    problem: GemmProblem,
    operands: [Vec<u32>; 2],
    wide: [Vec<u64>; 2],
    scales: [Vec<f32>; 2],
    c: Vec<u64>,
    beta: f64,
}

/// A part of D: first row and column, numbers of rows and columns.
pub(crate) type Part = [u32; 4];

impl Matrices {
    /// Random normal numbers of different magnitudes, so that the order of their sums matters.
    pub(crate) fn new(types: Types, problem: GemmProblem, beta: f64, random: &mut Rng) -> Self {
        let GemmProblem { m, n, k } = problem;
        let normal = |random: &mut Rng| {
            let sum: f64 = (0..6).map(|_| random.f64() - 0.5).sum();
            sum * f64::from(random.i32(-2..=2)).exp2()
        };
        let mut matrix = |rows: u32, format: collective::Format, sparse: bool| -> Vec<u64> {
            let scale = if format.is_float() { 1.0 } else { 40.0 };
            let element = |i: u32| {
                if sparse && i % 4 > 1 { 0.0 } else { (normal(random) * scale).clamp(-100.0, 100.0) }
            };
            (0..rows * k).map(element).map(|value| format.encode(value)).collect()
        };
        let wide = [matrix(m, types.a, types.sparse[0]), matrix(n, types.b, types.sparse[1])];
        let c = (0..m * n).map(|_| types.d.encode((normal(random) * 8.0).round())).collect();
        let scales = [m, n].map(|rows| (0..rows * k.div_ceil(128)).map(|_| 0.5 + random.f32()).collect());
        let operands = wide.each_ref().map(|wide| wide.iter().map(|&bits| bits as u32).collect());
        Self { types, problem, operands, wide, scales, c, beta }
    }

    /// Some rows of an operand, as they lie in memory, and their metadata.
    fn operand(&self, side: usize, [first, count]: [u32; 2]) -> [Vec<u8>; 2] {
        let (k, format) = (self.problem.k, [self.types.a, self.types.b][side]);
        let elements = (first * k) as usize..((first + count) * k) as usize;
        let bytes = |all: &mut dyn Iterator<Item = u64>| -> Vec<u8> {
            all.flat_map(|bits| bits.to_le_bytes().into_iter().take(format.bytes() as usize)).collect()
        };
        if let Some(weights) = self.types.weights[side] {
            // Codes of all rows: a part of them begins at the first.
            assert_eq!(first, 0);
            let length = weights::bytes(weights.code, [count, k]).expect("few") as usize;
            let codes = elements.cycle().take(length).map(|i| (self.operands[side][i] >> 3) as u8 ^ i as u8);
            return [codes.collect(), Vec::new()];
        }
        if self.types.sparse[side] {
            let kept = compress(format, [count, k], &self.operands[side][elements]).expect("half are zero");
            let metadata = kept.metadata.iter().flat_map(|word| word.to_le_bytes()).collect();
            return [bytes(&mut kept.values.iter().map(|&bits| bits.into())), metadata];
        }
        [bytes(&mut self.wide[side][elements].iter().copied()), Vec::new()]
    }

    /// Scales of some rows, with this leading dimension.
    fn scales(&self, side: usize, [first, count]: [u32; 2], ld: u64) -> Vec<u8> {
        let (rows, blocks) = (self.types.scaled[side], self.problem.k.div_ceil(128));
        let [lines, contiguous] = BlockScales::extents(count, self.problem.k, rows);
        let mut all = vec![0.0f32; lines as usize * ld as usize];
        for line in 0..lines {
            for place in 0..contiguous {
                let (row, block) =
                    if rows == 1 { (first + place, line) } else { (first + line * rows, place) };
                all[line as usize * ld as usize + place as usize] =
                    self.scales[side][(row * blocks + block) as usize];
            }
        }
        all.into_iter().flat_map(f32::to_le_bytes).collect()
    }

    /// The bits of a part of D, from one GEMM, or as the second of two groups of rows; `None` if the kernel does not take the extents.
    pub(crate) fn part(
        &self,
        gemm: &AnyGemm,
        engine: &mut dyn Engine,
        [row, column, rows, columns]: Part,
    ) -> Result<Option<Vec<u64>>, EngineError> {
        let bytes = self.types.d.bytes();
        // Other rows of the launch, before those that count.
        let others = if gemm.form() == Form::GroupedContiguous { self.problem.m.min(50) } else { 0 };
        let problem = GemmProblem { m: rows, n: columns, k: self.problem.k };
        let mut call = Request::packed(self.types, gemm.plan().majors(), problem).call;
        let mut buffers = Vec::new();
        let mut upload = |engine: &mut dyn Engine, data: Vec<u8>| {
            let buffer = engine.upload(&data)?;
            buffers.push(buffer);
            Ok::<u64, EngineError>(buffer.address)
        };
        let [a, a_metadata] = self.operand(0, [row, rows]);
        let [b, b_metadata] = self.operand(1, [column, columns]);
        let c: Vec<u8> = (row..row + rows)
            .flat_map(|row| {
                (column..column + columns).map(move |column| (row * self.problem.n + column) as usize)
            })
            .flat_map(|i| self.c[i].to_le_bytes().into_iter().take(bytes as usize))
            .collect();
        let before = if others > 0 { self.operand(0, [0, others])[0].clone() } else { Vec::new() };
        let copies = if others > 0 { 2 } else { 1 };
        call.a.address = upload(engine, [before, a].concat())?;
        call.b.address = upload(engine, b.repeat(copies))?;
        let d = engine.upload(&[vec![0x55; (others * columns * bytes) as usize], c].concat())?;
        call.d.address = d.address;
        if let Some(scales) = &mut call.scales {
            scales.a.address = upload(engine, self.scales(0, [row, rows], scales.a.ld))?;
            scales.b.address = upload(engine, self.scales(1, [column, columns], scales.b.ld))?;
        }
        if let Some(GroupScales { scales, .. }) = &mut call.group_scales {
            let lines = u64::from(self.problem.k.div_ceil(64));
            let one =
                (0..scales.ld * lines).map(|i| self.types.a.encode(0.25 + (i % scales.ld) as f64 / 64.0));
            scales.address =
                upload(engine, one.flat_map(|bits| bits.to_le_bytes().into_iter().take(2)).collect())?;
        }
        if let Some(metadata) = &mut call.metadata {
            metadata.address = upload(engine, [a_metadata, b_metadata].concat())?;
            metadata.ld = sparse::metadata_ld(self.types.a, self.problem.k);
        }
        if others > 0 {
            let offsets: Vec<u8> =
                [0, others, others + rows].iter().flat_map(|row: &u32| row.to_le_bytes()).collect();
            call.problem.m += others;
            call = call.ragged(2, upload(engine, offsets)?);
        }
        let program = gemm.program().expect("a legal kernel");
        let resident = engine.resident_clusters(&program)?;
        let bytes_needed = gemm.workspace(&call, resident) as usize;
        call.workspace = match bytes_needed {
            0 => None,
            _ => Some(Buffer { address: upload(engine, vec![0; bytes_needed])?, bytes: bytes_needed }),
        };
        let c = MatrixRef::new(d.address, columns.into());
        call.epilogue = LinearArguments { alpha: 1.0, beta: self.beta, c: Some(c) };
        let ran = match gemm.launch(&call, resident) {
            Ok(launch) => {
                let launch = launch.expect("not empty");
                engine.launch(&program, launch.grid, &launch.arguments)?;
                Some(engine.read(d)?)
            }
            Err(_) => None,
        };
        buffers.push(d);
        buffers.into_iter().try_for_each(|buffer| engine.free(buffer))?;
        let bits = |memory: Vec<u8>| {
            let elements = memory.chunks_exact(bytes as usize).skip((others * columns) as usize);
            elements
                .map(|element| element.iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte)))
                .collect()
        };
        Ok(ran.map(bits))
    }
}

/// What a trial compared.
#[derive(Debug, PartialEq)]
pub(crate) enum Trial {
    /// The bits were equal.
    Equal(Box<KernelSpec>),
    /// A kernel does not take the extents.
    Unfit,
}

/// Compares a part of D by one kernel of a class with the same part by another, from a launch of that part alone.
pub(crate) fn trial(
    engine: &mut dyn Engine,
    (text, step): (&str, u32),
    seed: u64,
) -> Result<Trial, EngineError> {
    let (base, random) = (kernel(text), &mut Rng::with_seed(seed));
    let other = member(&base, random);
    let gemms = [base, other].map(|spec| spec.kernel().expect("a legal spec"));
    let types = Types::of_plan(&gemms[0].plan());
    let problem = GemmProblem {
        m: 16 * random.u32(1..=12),
        n: 16 * random.u32(1..=12),
        k: step * random.u32(1..=(640 / step)),
    };
    let beta = if types.d.is_float() { of(random, &[0.0, -1.5]) } else { 0.0 };
    let matrices = Matrices::new(types, problem, beta, random);
    // Where rows share a scale, or are stored in units, a part begins where they do.
    let begin = |random: &mut Rng, side: usize, extent: u32| {
        let anywhere = types.scaled[side] <= 1 && types.weights[side].is_none() && !types.sparse[side];
        if anywhere { 8 * random.u32(0..extent / 8) } else { 0 }
    };
    let (row, column) = (begin(random, 0, problem.m), begin(random, 1, problem.n));
    let rows = random.u32(1..=problem.m - row);
    let columns = if types.weights[1].is_some() || types.sparse[1] {
        problem.n
    } else {
        16.min(problem.n - column) * random.u32(1..=((problem.n - column) / 16).max(1))
    };
    let rows = if types.sparse[0] || types.weights[0].is_some() { problem.m } else { rows };
    let whole = matrices.part(&gemms[0], engine, [0, 0, problem.m, problem.n])?;
    let part = matrices.part(&gemms[1], engine, [row, column, rows, columns])?;
    let Some((whole, part)) = whole.zip(part) else { return Ok(Trial::Unfit) };
    for i in 0..rows * columns {
        let place = [row + i / columns, column + i % columns];
        let (want, got) = (whole[(place[0] * problem.n + place[1]) as usize], part[i as usize]);
        let says = format!("seed {seed}, {problem:?}, D{place:?}\n{base}\n{other} of {rows} x {columns}");
        assert_eq!(want, got, "{says}");
    }
    Ok(Trial::Equal(Box::new(other)))
}
