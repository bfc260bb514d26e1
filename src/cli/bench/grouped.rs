//! `falchion bench --suite grouped`, `--rows` and `--k-groups`: several GEMMs in one launch. Groups of rows are the experts of an MoE layer;
//! groups along K are, for example, the gradients of their weights.
//!
//! Our kernels are compared with three others. The first is our kernel for one GEMM of the same matrices, the second is cuBLASLt's. The
//! third is a CUDA graph with one cuBLASLt call per group that is not empty, each with cuBLASLt's fastest algorithm for that shape. cuBLASLt's
//! operands are packed group by group.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write;

use collective::{Form, Record};
use cute_rs::atom::Major;
use kernel::driver::Enqueue;
use kernel::driver::tune::Inputs;
use kernel::{AnyGemm, Buffer, Call, Engine, GemmProblem, Gpu, GroupedProblem, KernelSpec, Request, Types};
use peers::Matmul;
use peers::cublaslt::CublasLt;

use super::contest::{Contest, Planned, View, plain};
use super::job::Job;
use super::report::Figure;
use crate::bench::Protocol;
use crate::cli::call::Launched;
use crate::cli::engine::machine;
use crate::cli::output::out;
use crate::cli::{Failure, catalogue};

/// Number of kernels of each form that are timed if none is named.
const RANKED: usize = 4;

/// Largest number of rows of an expert.
const MOST_ROWS: u32 = 512;

/// Two layers of a large MoE model with random rows, for few experts and for many.
pub(super) fn layers(types: Types) -> Result<Vec<Job>, Failure> {
    let mut random = fastrand::Rng::with_seed(3);
    let mut layers = Vec::new();
    for experts in [8, 64] {
        let rows: Vec<u32> = (0..experts).map(|_| random.u32(0..=MOST_ROWS)).collect();
        for (n, k) in [(4096, 7168), (7168, 2048)] {
            layers.push(Job::new(types, [Major::K; 2], (None, false), Launched::of_rows(&rows, [n, k]))?);
        }
    }
    Ok(layers)
}

impl Job {
    fn along_k(&self) -> bool {
        self.launched.form == Form::KGrouped
    }

    /// The kernels that the model ranks first; for groups of rows, then those for pointer arrays.
    pub(super) fn ranked(&self) -> Result<Vec<AnyGemm>, Failure> {
        let selection = kernel::search(&self.request(), machine(), RANKED);
        catalogue::first(&selection, &self.request())?;
        let array = self.one.grouped(&self.launched.groups);
        let arrays = (!self.along_k()).then(|| kernel::search(&array, machine(), RANKED));
        let arrays = arrays.into_iter().flat_map(|selection| selection.ranked);
        Ok(selection.ranked.into_iter().chain(arrays).map(|ranked| ranked.gemm).collect())
    }

    /// The groups that are not empty, and the addresses of their A, B and D in a set, with packed operands.
    fn products(&self, set: &Call<()>) -> Vec<(GemmProblem, [u64; 3])> {
        let [of_a, of_b, of_d] = self.one.types.bytes().map(u64::from);
        let mut begin = 0;
        let product = |(group, &size): (u64, &GemmProblem)| {
            let GemmProblem { m, n, k } = size;
            let [m, n, k] = [m, n, k].map(u64::from);
            let (offsets, length) = if self.along_k() {
                ([begin * m, begin * n, group * m * n], k)
            } else {
                ([begin * k, group * n * k, begin * n], m)
            };
            begin += length;
            let [a, b, d] = [set.a, set.b, set.d].map(|matrix| matrix.address);
            (size, [a + offsets[0] * of_a, b + offsets[1] * of_b, d + offsets[2] * of_d])
        };
        let products = (0u64..).zip(&self.launched.groups).map(product);
        products.filter(|(size, _)| size.m > 0 && size.k > 0).collect()
    }

    /// The groups of a set as a pointer array, whose records are device memory.
    fn described(&self, engine: &mut dyn Engine, set: &Call<()>) -> Result<(Call, Buffer), Failure> {
        let record = |(GemmProblem { m, n, k }, [a, b, d]): (GemmProblem, [u64; 3])| {
            let lds = [k.into(), k.into(), n.into(), n.into()];
            Record { m, n, k, addresses: [a, b, d, d], lds }.to_bytes()
        };
        let records: Vec<_> = self.products(set).into_iter().map(record).collect();
        let buffer = engine.upload(&records.concat())?;
        Ok((Call::grouped(records.len() as u32, buffer.address), buffer))
    }

    /// Times the kernels, or those that the model ranks first.
    pub(super) fn measure(
        &self,
        gpu: &mut Gpu,
        peer: Option<&CublasLt>,
        kernels: &[AnyGemm],
        protocol: &Protocol,
    ) -> Result<Vec<Figure>, Failure> {
        let Request { types, majors: [a, b], call: Call { problem: whole, .. }, .. } = self.one;
        writeln!(out(), "\n{} {types}", self.launched.described())?;
        let inputs = Inputs::new(gpu, &self.request())?;
        let sets = inputs.sets();
        let (first, grouped) = (&sets[..sets.len().min(1)], plain(sets));
        let ranked = if kernels.is_empty() { self.ranked()? } else { Vec::new() };
        let (of_one, plans);
        let mut contest = Contest::of(whole);
        for kernel in kernels.iter().chain(&ranked) {
            if !kernel.form().described() {
                contest.kernel(gpu, kernel.name(), kernel, &grouped)?;
                continue;
            }
            let mut calls = Vec::new();
            for set in sets {
                calls.push(self.described(gpu, set)?);
            }
            let (calls, buffers): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
            contest.kernel(gpu, kernel.name(), kernel, &calls)?;
            buffers.into_iter().try_for_each(|buffer| gpu.free(buffer))?;
        }
        let selection = kernel::select(&self.one, machine());
        let dense = &catalogue::first(&selection, &self.one)?.gemm;
        let one: Vec<_> =
            grouped.iter().map(|call| Call { products: GroupedProblem::One, ..*call }).collect();
        contest.kernel(gpu, format!("one product, {}", dense.name()), dense, &one)?;

        // cuBLASLt's plans are of one product's scales.
        let peer = peer.filter(|_| !types.is_scaled());
        let product = |size| Matmul { a, b, ..Matmul::new(types, size) };
        of_one = Planned::new(gpu, peer, &product(whole), None, sets.to_vec())?;
        if let Some(of_one) = &of_one {
            plans = self.plans(gpu, peer, product, first)?;
            if let Some(plans) = &plans {
                let calls = first.iter().map(|set| self.products(set).len()).sum::<usize>();
                contest.add(format!("cuBLASLt, graph of {calls}"), self.graphs(gpu, plans, sets)?);
            }
            of_one.fastest(&mut contest, "cuBLASLt, one product")?;
        }
        let figures = contest.run(gpu, protocol, &View::default())?;
        drop(contest);
        inputs.free(gpu)?;
        Ok(figures)
    }

    /// cuBLASLt's plans of the groups, one for each shape; `None` if it has no algorithm for one.
    fn plans(
        &self,
        gpu: &mut Gpu,
        peer: Option<&CublasLt>,
        of: impl Fn(GemmProblem) -> Matmul,
        sets: &[Call<()>],
    ) -> Result<Option<Plans>, Failure> {
        let mut plans = Plans::new();
        for (size, [a, b, d]) in sets.iter().flat_map(|set| self.products(set)) {
            let set = Call::of(size).a(a, 0).b(b, 0).d(d, 0).with(());
            let Entry::Vacant(entry) = plans.entry([size.m, size.n, size.k]) else { continue };
            let Some(plan) = Planned::new(gpu, peer, &of(size), None, vec![set])? else { return Ok(None) };
            entry.insert(plan);
        }
        Ok(Some(plans))
    }

    /// For each set, a graph of one call per group.
    fn graphs<'p>(
        &self,
        gpu: &mut Gpu,
        plans: &Plans,
        sets: &[Call<()>],
    ) -> Result<Vec<Box<dyn Enqueue + 'p>>, Failure> {
        let mut graphs: Vec<Box<dyn Enqueue>> = Vec::new();
        for set in sets {
            let products = self.products(set);
            let of =
                |(size, at): &(GemmProblem, [u64; 3])| Some(plans.get(&[size.m, size.n, size.k])?.run(*at));
            let runs = products.iter().filter_map(of).collect::<Result<Vec<_>, _>>()?;
            let runs: Vec<&dyn Enqueue> = runs.iter().map(|run| run as &dyn Enqueue).collect();
            graphs.push(Box::new(gpu.capture(&runs)?));
        }
        Ok(graphs)
    }
}

/// cuBLASLt's plans of GEMMs of several shapes.
type Plans = BTreeMap<[u32; 3], Planned>;

/// Whether a kernel is for experts, K-major.
fn fits(entry: &AnyGemm, types: Types) -> bool {
    matches!(entry.form(), Form::GroupedContiguous | Form::PointerArray)
        && Types::of_plan(&entry.plan()) == types
        && entry.plan().majors() == [Major::K; 2]
}

/// Our named kernels for experts, K-major.
fn ours(types: Types) -> Vec<AnyGemm> {
    let all = kernel::several().into_iter();
    all.filter(|entry| fits(entry, types) && !entry.name().contains("unaligned")).collect()
}

/// The named kernels for experts, or all of the catalogue; empty for types without named kernels. Each has a table for `groups` groups.
pub(super) fn kernels(names: &[String], types: Types, groups: usize) -> Result<Vec<AnyGemm>, Failure> {
    let all = ours(types);
    let named = |name: &String| {
        if let Some(known) = all.iter().find(|entry| entry.name() == name) {
            return Ok(known.clone());
        }
        if name.contains('=') {
            let other = super::timed(name)?;
            if fits(&other, types) {
                return Ok(other);
            }
        }
        let names: Vec<&str> = all.iter().map(|entry| entry.name()).collect();
        let named = format!("these are: {}, and specs", names.join(", "));
        refuse!(
            "--kernel {name} is no K-major kernel of {types} for experts; {}",
            if names.is_empty() { "these have no names" } else { &named }
        );
    };
    let kernels = if names.is_empty() { Ok(all.clone()) } else { names.iter().map(named).collect() };
    let groups = u32::try_from(groups).unwrap_or(u32::MAX);
    kernels?.into_iter().map(|entry| with_room(entry, groups)).collect()
}

/// A kernel, or if its table holds fewer groups the same with a larger table.
fn with_room(entry: AnyGemm, groups: u32) -> Result<AnyGemm, Failure> {
    match entry.spec().filter(|spec| spec.most_groups < spec.form.table_for(groups)) {
        Some(spec) => {
            let larger = KernelSpec { most_groups: spec.form.table_for(groups), ..spec };
            larger.kernel().map_err(|error| usage!("{larger}: {error}"))
        }
        None => Ok(entry),
    }
}

#[cfg(test)]
mod tests {
    use collective::Format;
    use kernel::{Emulator, Kernel};

    use super::*;

    #[test]
    fn layers_are_as_documented() {
        let layers = layers(Types::of(Format::Bf16)).expect("possible");
        let shape = |of: &Job| (of.launched.groups.len(), of.one.call.problem.n, of.one.call.problem.k);
        let shapes: Vec<_> = layers.iter().map(shape).collect();
        assert_eq!(shapes, [(8, 4096, 7168), (8, 7168, 2048), (64, 4096, 7168), (64, 7168, 2048)]);
        assert!(layers.iter().flat_map(|layer| &layer.launched.groups).all(|group| group.m <= MOST_ROWS));
        assert!(layers.iter().all(|layer| layer.one.call.problem.m > 0));
        let count = |format| ours(Types::of(format)).len();
        assert!(count(Format::Bf16) >= 9 && count(Format::F16) >= 9 && count(Format::E4m3) == 0);
    }

    #[test]
    fn kernels_have_tables_for_the_groups() {
        let bf16 = Types::of(Format::Bf16);
        let most = |names: &[String], groups| {
            let kernels = kernels(names, bf16, groups).expect("kernels");
            kernels.iter().map(|entry| entry.plan().table.groups).collect::<Vec<_>>()
        };
        assert!(most(&[], 320).iter().all(|&most| most == 320));
        assert!(most(&[], 384).iter().all(|&most| most == 512));
        let names = ["ragged-128x256-bf16-kk", "form=ragged most-groups=2048"].map(str::to_owned);
        assert_eq!(most(&names, 4096), [4096, 4096]);
        assert_eq!(most(&names, 1), [320, 2048]);
        assert!(kernels(&["form=masked".to_owned()], bf16, 1).is_err());
    }

    /// The GEMMs one by one with a dense kernel, and the kernels of the whole on the same memory, give the same bits.
    #[test]
    fn the_products_one_by_one_are_those_of_the_grouped_call() {
        let bf16 = Types::of(Format::Bf16);
        let job =
            |types, major, launched| Job::new(types, [major; 2], (None, false), launched).expect("possible");
        let rows = |types| job(types, Major::K, Launched::of_rows(&[3, 0, 130, 64], [144, 80]));
        for (layer, sizes, dense) in [
            (rows(bf16), vec![3, 130, 64], "64x64-direct-bf16-kk"),
            (rows(Types::of(Format::S8)), vec![3, 130, 64], "tile=64x64x128 dtype=s8"),
            (
                rows(Types::of(Format::E4m3).with_b(Format::E5m2)),
                vec![3, 130, 64],
                "tile=64x64x128 dtype=e4m3 dtype-b=e5m2",
            ),
            (
                job(bf16, Major::Mn, Launched::of_lengths(&[128, 0, 256], [96, 144])),
                vec![96, 96],
                "64x64-direct-bf16-mn",
            ),
        ] {
            let engine = &mut Emulator::new();
            let inputs = Inputs::new(engine, &layer.request()).expect("memory");
            let set = &inputs.sets()[0];
            let (GemmProblem { m, n, .. }, types) = (layer.one.call.problem, layer.one.types);
            let count = if layer.along_k() { layer.launched.groups.len() } else { 1 };
            let bytes = count * (m * n * types.d.bytes()) as usize;
            let d = Buffer { address: set.d.address, bytes };
            let products = layer.products(set);
            assert_eq!(products.iter().map(|(size, _)| size.m).collect::<Vec<_>>(), sizes);
            let dense = kernel::find(dense).expect("legal");
            engine.write(d, &vec![0; d.bytes]).expect("memory");
            for (size, [a, b, d]) in products {
                let GemmProblem { m, n, k } = size;
                let [a_ld, b_ld] = if layer.along_k() { [m, n] } else { [k; 2] }.map(u64::from);
                let call: Call = Call::of(size).a(a, a_ld).b(b, b_ld).d(d, n.into());
                dense.run(engine, &call).expect("runs").expect("rows");
            }
            let one_by_one = engine.read(d).expect("memory");
            let named = ours(types);
            let ranked = layer.ranked().expect("some");
            for kernel in if named.is_empty() || layer.along_k() { ranked } else { named } {
                engine.write(d, &vec![0; d.bytes]).expect("memory");
                let described =
                    kernel.form().described().then(|| layer.described(engine, set).expect("memory").0);
                let mut call = described.unwrap_or_else(|| plain(inputs.sets())[0]);
                let program = kernel.program().expect("legal");
                let resident = engine.resident_clusters(&program).expect("legal");
                call.workspace = engine.workspace(kernel.workspace(&call, resident)).expect("memory");
                Kernel::run(&kernel, engine, &call).expect("runs").expect("rows");
                assert_eq!(engine.read(d).expect("memory"), one_by_one, "{}", kernel.name());
            }
        }
    }
}
