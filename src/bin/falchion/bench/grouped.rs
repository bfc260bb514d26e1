//! `falchion bench --suite grouped`: MoE grouped GEMMs. Each of our kernels computes a layer in one launch:
//! as groups of rows, or as a pointer array whose records are in device memory.
//!
//! Our kernels are compared with two others. The first is a CUDA graph with one cuBLASLt call per expert that
//! has rows, each with cuBLASLt's fastest algorithm for that shape. The second is one dense GEMM with the
//! same number of rows, which is what the experts would cost if all had the same weights. Operands are
//! K-major, and far larger than the L2 cache.

use std::io::Write;

use collective::{Form, Format, Record};
use cute_rs::atom::Major;
use kernel::driver::Enqueue;
use kernel::driver::tune::{Candidate, Inputs};
use kernel::{
    AnyGemm, Buffer, Call, Engine, GemmProblem, Gpu, GroupedProblem, Launch, LinearArguments, Request, Types,
    WorkspaceRef,
};
use peers::Matmul;
use peers::cublaslt::CublasLt;

use super::arena;
use super::measure::Protocol;
use super::peer::FastestPlans;
use super::report::{self, Figure};
use crate::engine::machine;
use crate::output::out;
use crate::{Failure, catalogue, memory};

/// The rows of each expert, and the extents of its weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layer {
    rows: Vec<u32>,
    n: u32,
    k: u32,
}

/// Number of kernels of groups of rows, and of pointer arrays, that are timed for types without named
/// kernels.
const RANKED: usize = 4;

/// Largest number of rows of an expert.
const MOST_ROWS: u32 = 512;

/// Two layers of a large MoE model with random rows, for few experts and for many.
pub(super) fn layers() -> Vec<Layer> {
    let mut random = fastrand::Rng::with_seed(3);
    let mut layers = Vec::new();
    for experts in [8, 64] {
        let rows: Vec<u32> = (0..experts).map(|_| random.u32(0..=MOST_ROWS)).collect();
        layers.extend([(4096, 7168), (7168, 2048)].map(|(n, k)| Layer { rows: rows.clone(), n, k }));
    }
    layers
}

impl Layer {
    /// A layer from the command line, whose weights have a number of bytes per element.
    pub(super) fn new(rows: &[u32], n: u32, k: u32, bytes: u32) -> Result<Self, Failure> {
        let all: u64 = rows.iter().copied().map(u64::from).sum();
        if all == 0 || all > i32::MAX as u64 {
            return Err(Failure::usage(format!(
                "--rows has {all} rows in all; 1 to 2147483647 were needed, in groups of any size"
            )));
        }
        let layer = Self { rows: rows.to_vec(), n, k };
        arena::possible(layer.dense())?;
        let weights = u128::from(bytes) * rows.len() as u128 * u128::from(n) * u128::from(k);
        memory::enough(&format!("--rows of {} experts", rows.len()), weights, "--rows, --n or --k")?;
        Ok(layer)
    }

    /// The first row of each expert, and the end of the last expert's rows.
    fn offsets(&self) -> Vec<u32> {
        let mut offsets = vec![0];
        for rows in &self.rows {
            offsets.push(offsets[offsets.len() - 1] + rows);
        }
        offsets
    }

    /// The GEMM of each expert.
    fn groups(&self) -> Vec<GemmProblem> {
        self.rows.iter().map(|&m| GemmProblem { m, ..self.dense() }).collect()
    }

    /// The kernels that the model ranks first: those for groups of rows, then those for pointer arrays.
    pub(super) fn ranked(&self, types: Types) -> Result<Vec<AnyGemm>, Failure> {
        let groups = self.groups();
        let request = Request::packed(types, [Major::K; 2], self.dense());
        let ragged = request.ragged(&groups);
        let selection = kernel::search(&ragged, machine(), RANKED);
        catalogue::first(&selection, &ragged)?;
        let described = kernel::search(&request.grouped(&groups), machine(), RANKED);
        Ok(selection.ranked.into_iter().chain(described.ranked).map(|ranked| ranked.gemm).collect())
    }

    /// All rows with one expert's weights.
    fn dense(&self) -> GemmProblem {
        GemmProblem { m: self.rows.iter().sum(), n: self.n, k: self.k }
    }
}

/// A layer's matrices on a device.
struct Placed<'l> {
    layer: &'l Layer,
    types: Types,
    inputs: Inputs,
    /// All rows, with each expert's own weights.
    ragged: Call,
    /// A record for each expert.
    records: Buffer,
}

impl<'l> Placed<'l> {
    fn new(engine: &mut dyn Engine, types: Types, layer: &'l Layer) -> Result<Self, Failure> {
        let groups = layer.groups();
        let inputs =
            Inputs::new(engine, &Request::packed(types, [Major::K; 2], layer.dense()).ragged(&groups))?;
        // A layer is larger than the L2 cache.
        let ragged = inputs.sets().first().map(|set| set.with(LinearArguments::default()));
        let ragged = ragged.ok_or_else(|| Failure::usage("a layer has no matrices"))?;
        let records = engine.allocate(groups.len() * Record::BYTES[0] as usize)?;
        let placed = Self { layer, types, inputs, ragged, records };
        engine.write(records, &placed.records())?;
        Ok(placed)
    }

    /// A record per expert, as device memory holds them.
    fn records(&self) -> Vec<u8> {
        let Layer { n, k, .. } = *self.layer;
        let lds = [k.into(), k.into(), n.into(), n.into()];
        let record = |(GemmProblem { m, n, k }, [a, b, d]): (GemmProblem, [u64; 3])| {
            Record { m, n, k, addresses: [a, b, d, d], lds }.to_bytes()
        };
        self.products().into_iter().flat_map(record).collect()
    }

    /// All rows with one expert's weights.
    fn dense(&self) -> Call {
        Call { products: GroupedProblem::One, ..self.ragged }
    }

    /// All rows, with each expert's own weights, for a kernel of a given form.
    fn experts(&self, form: Form) -> Call {
        match form.described() {
            true => Call::grouped(self.products().len() as u32, self.records.address),
            false => self.ragged,
        }
    }

    /// The kernel's launch, and its workspace.
    fn launch(
        &self,
        engine: &mut dyn Engine,
        entry: &AnyGemm,
        slots: u32,
    ) -> Result<(Option<Launch>, Option<WorkspaceRef>), Failure> {
        let call = self.experts(entry.form());
        let workspace = engine.workspace(entry.workspace(&call, slots))?;
        Ok((entry.launch(&Call { workspace, ..call }, slots)?, workspace))
    }

    /// The GEMMs one by one: extents, and the addresses of A, B and D. Experts without rows are left out.
    fn products(&self) -> Vec<(GemmProblem, [u64; 3])> {
        let (Layer { rows, n, k }, [of_a, of_b, of_d]) = (self.layer, self.types.bytes());
        let bytes =
            |rows: u32, columns: u32, bytes: u32| u64::from(rows) * u64::from(columns) * u64::from(bytes);
        let Call { a, b, d, .. } = self.ragged;
        let product = |((expert, &m), first): ((u64, &u32), u32)| {
            let addresses = [
                a.address + bytes(first, *k, of_a),
                b.address + expert * bytes(*n, *k, of_b),
                d.address + bytes(first, *n, of_d),
            ];
            (GemmProblem { m, n: *n, k: *k }, addresses)
        };
        (0u64..)
            .zip(rows)
            .zip(self.layer.offsets())
            .map(product)
            .filter(|(problem, _)| problem.m > 0)
            .collect()
    }

    fn free(self, engine: &mut dyn Engine) -> Result<(), Failure> {
        engine.free(self.records)?;
        Ok(self.inputs.free(engine)?)
    }
}

/// The setup that all layers share.
pub(super) struct Timed<'t> {
    pub(super) peer: Option<&'t CublasLt>,
    /// The kernels to time: the named ones, or all of the catalogue. For types without named kernels, those
    /// that the model ranks first.
    pub(super) kernels: Vec<AnyGemm>,
    pub(super) types: Types,
    pub(super) protocol: Protocol,
}

impl Timed<'_> {
    /// Measures every layer.
    pub(super) fn layers(&self, gpu: &mut Gpu, layers: &[Layer]) -> Result<Vec<Figure>, Failure> {
        let mut figures = Vec::new();
        for layer in layers {
            let placed = Placed::new(gpu, self.types, layer)?;
            let GemmProblem { m, n, k } = layer.dense();
            writeln!(out(), "\n{} experts, {m} rows in all, N {n}, K {k} {}", layer.rows.len(), self.types)?;
            let result = self.one(gpu, &placed);
            placed.free(gpu)?;
            figures.extend(result?);
        }
        Ok(figures)
    }

    fn one(&self, gpu: &mut Gpu, placed: &Placed<'_>) -> Result<Vec<Figure>, Failure> {
        let Self { peer, ref kernels, types, ref protocol } = *self;
        let dense = placed.layer.dense();
        // Its plans are of one product's scales.
        let peer = peer.filter(|_| !types.is_scaled());
        let of_all = super::peer::planned(peer, &Matmul::new(types, dense), None)?;
        let peer = peer.filter(|_| of_all.is_some());
        let candidate = |name: String, launch: Box<dyn Enqueue>, slots| Candidate {
            name,
            launches: vec![launch],
            operations: dense.operations(),
            slots,
        };
        let mut candidates: Vec<Candidate<'_>> = Vec::new();
        let mut workspaces = Vec::new();
        let ranked = if kernels.is_empty() { placed.layer.ranked(types)? } else { Vec::new() };
        for entry in kernels.iter().chain(&ranked) {
            let program = entry.program()?;
            let slots = gpu.slots(&program)?;
            let (launch, workspace) = placed.launch(gpu, entry, slots)?;
            workspaces.extend(workspace);
            let Some(launch) = launch else { continue };
            let prepared = gpu.prepare(&program, launch.grid, &launch.arguments)?;
            candidates.push(candidate(entry.name().to_owned(), Box::new(prepared), Some(slots)));
        }
        let request = Request::packed(types, [Major::K; 2], dense);
        let selection = kernel::select(&request, machine());
        let entry = &catalogue::first(&selection, &request)?.gemm;
        let program = entry.program()?;
        let slots = gpu.slots(&program)?;
        let call = placed.dense();
        let workspace = gpu.workspace(entry.workspace(&call, slots))?;
        workspaces.extend(workspace);
        if let Some(launch) = entry.launch(&Call { workspace, ..call }, slots)? {
            let prepared = gpu.prepare(&program, launch.grid, &launch.arguments)?;
            candidates.push(candidate(format!("dense {}", entry.name()), Box::new(prepared), Some(slots)));
        }

        let products = placed.products();
        if let Some(peer) = peer {
            let plans = FastestPlans::new(gpu, peer, &products, |size| Matmul::new(types, size))?;
            if let Some(plans) = plans {
                let graph = plans.graph(gpu, &products)?;
                let name = format!("cuBLASLt, graph of {}", graph.launches());
                candidates.push(candidate(name, Box::new(graph), None));
            }
        }
        let [a, b, d] = [placed.ragged.a, placed.ragged.b, placed.ragged.d];
        if let Some(plan) = &of_all {
            let fastest = plan.fastest(gpu, a.address, b.address, d.address)?;
            let run = plan.with(fastest, a.address, b.address, d.address)?;
            candidates.push(Candidate {
                name: "cuBLASLt, dense".to_owned(),
                launches: vec![Box::new(run)],
                operations: dense.operations(),
                slots: None,
            });
        }

        let figures = report::measured(gpu, protocol, dense, &candidates)?;
        drop(candidates);
        for workspace in workspaces {
            gpu.free(workspace.buffer())?;
        }
        Ok(figures)
    }
}

/// Our kernels for experts, K-major.
fn ours(format: Format) -> Vec<AnyGemm> {
    let fits = |entry: &AnyGemm| {
        let (plan, unaligned) = (entry.plan(), entry.name().contains("unaligned"));
        matches!(entry.form(), Form::GroupedContiguous | Form::PointerArray)
            && entry.element() == format.name()
            && plan.majors() == [Major::K; 2]
            && !unaligned
    };
    kernel::several().into_iter().filter(|entry| fits(entry)).collect()
}

/// The named kernels, or all of the catalogue; empty for types without named kernels.
pub(super) fn kernels(names: &[String], types: Types) -> Result<Vec<AnyGemm>, Failure> {
    let mut all = if types == Types::of(types.a) { ours(types.a) } else { Vec::new() };
    if let Some(other) = names.iter().find(|&name| all.iter().all(|entry| entry.name() != name)) {
        let names: Vec<&str> = all.iter().map(|entry| entry.name()).collect();
        return Err(Failure::usage(format!(
            "--kernel {other} is no K-major kernel of {types} for experts; {}",
            if names.is_empty() {
                "these have no names".to_owned()
            } else {
                format!("these are: {}", names.join(", "))
            }
        )));
    }
    all.retain(|entry| names.is_empty() || names.iter().any(|name| name == entry.name()));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use collective::Format;
    use kernel::{Buffer, Call, Emulator, Engine, Types};

    use super::{Layer, MOST_ROWS, Placed, layers, ours};

    #[test]
    fn layers_are_as_documented() {
        let layers = layers();
        let shapes: Vec<_> = layers.iter().map(|layer| (layer.rows.len(), layer.n, layer.k)).collect();
        assert_eq!(shapes, [(8, 4096, 7168), (8, 7168, 2048), (64, 4096, 7168), (64, 7168, 2048)]);
        assert!(layers.iter().flat_map(|layer| &layer.rows).all(|&rows| rows <= MOST_ROWS));
        assert!(layers.iter().all(|layer| layer.dense().m > 0));
        assert!(
            ours(Format::Bf16).len() >= 9 && ours(Format::F16).len() >= 9 && ours(Format::E4m3).is_empty()
        );
    }

    /// The GEMMs one by one with a dense kernel, and the ragged call on the same memory, give the same bits.
    #[test]
    fn the_products_one_by_one_are_those_of_the_ragged_call() {
        let layer = Layer { rows: vec![3, 0, 130, 64], n: 144, k: 80 };
        assert_eq!(layer.offsets(), [0, 3, 3, 133, 197]);
        for (types, dense) in [
            (Types::of(Format::Bf16), "64x64-direct-bf16-kk"),
            (Types::of(Format::S8), "tile=64x64x128 dtype=s8"),
            (Types::of(Format::E4m3).with_b(Format::E5m2), "tile=64x64x128 dtype=e4m3 dtype-b=e5m2"),
        ] {
            let mut engine = Emulator::new();
            let placed = Placed::new(&mut engine, types, &layer).expect("memory");
            let d = Buffer { address: placed.ragged.d.address, bytes: 197 * 144 * types.d.bytes() as usize };
            let products = placed.products();
            assert_eq!(products.iter().map(|(problem, _)| problem.m).collect::<Vec<_>>(), [3, 130, 64]);
            let dense = kernel::find(dense).expect("legal");
            let program = dense.program().expect("legal");
            for (problem, [a, b, d]) in products {
                let call = Call::of(problem).a(a, 80).b(b, 80).d(d, 144);
                let launch = dense.launch(&call, 132).expect("legal").expect("rows");
                engine.launch(&program, launch.grid, &launch.arguments).expect("runs");
            }
            let one_by_one = engine.read(d).expect("memory");
            let named = ours(types.a);
            let ranked = layer.ranked(types).expect("some");
            for entry in if named.is_empty() { ranked } else { named } {
                engine.write(d, &vec![0; d.bytes]).expect("memory");
                let program = entry.program().expect("legal");
                let (launch, _) = placed.launch(&mut engine, &entry, 132).expect("legal");
                let launch = launch.expect("rows");
                engine.launch(&program, launch.grid, &launch.arguments).expect("runs");
                assert_eq!(engine.read(d).expect("memory"), one_by_one, "{}", entry.name());
            }
            placed.free(&mut engine).expect("its own");
        }
    }
}
