//! `falchion bench --k-groups`: groups along K, such as the weight gradients of experts. Each of our kernels
//! computes all groups in one launch, which reads from device memory where each group begins.
//!
//! Our kernels are compared with two others. The first is a CUDA graph with one cuBLASLt call per group that
//! is not empty, each with cuBLASLt's fastest algorithm for that shape. Its operands are packed group by
//! group. The second is one GEMM of the same matrices with the K of all groups, which has one D.

use std::io::Write;

use collective::Form;
use cute_rs::atom::Major;
use kernel::driver::Enqueue;
use kernel::driver::tune::{Candidate, Inputs};
use kernel::{
    AnyGemm, Call, Engine, GemmProblem, Gpu, GroupedProblem, LinearArguments, Request, Types, WorkspaceRef,
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

/// Number of kernels that are timed if none is named.
const RANKED: usize = 4;

/// The groups of a launch.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    types: Types,
    majors: [Major; 2],
    /// M, N, and the K of all groups.
    whole: GemmProblem,
    each: Vec<GemmProblem>,
}

impl Groups {
    /// Groups of these lengths along K.
    pub(super) fn new(
        types: Types,
        majors: [Major; 2],
        (lengths, m, n): (&[u32], u32, u32),
    ) -> Result<Self, Failure> {
        let all: u64 = lengths.iter().copied().map(u64::from).sum();
        let k = u32::try_from(all).ok().filter(|&k| k > 0 && k <= i32::MAX as u32);
        let needed = "1 to 2147483647 were needed, in groups of any size";
        let k = k.ok_or_else(|| Failure::usage(format!("--k-groups has {all} in all; {needed}")))?;
        let whole = GemmProblem { m, n, k };
        arena::possible(whole)?;
        let count = lengths.len() as u128;
        let bytes = 4 * count * u128::from(m) * u128::from(n);
        memory::enough(&format!("--k-groups of {count} groups"), bytes, "--k-groups, --m or --n")?;
        let each = lengths.iter().map(|&k| GemmProblem { k, ..whole }).collect();
        Ok(Self { types, majors, whole, each })
    }

    pub(super) fn request(&self) -> Request<'_> {
        Request::packed(self.types, self.majors, self.whole).k_grouped(&self.each)
    }

    /// The named kernels, or those that the model ranks first.
    pub(super) fn kernels(&self, named: Vec<AnyGemm>) -> Result<Vec<AnyGemm>, Failure> {
        if let Some(other) = named.iter().find(|entry| entry.form() != Form::KGrouped) {
            return Err(Failure::usage(format!(
                "kernel {} computes {}, one for groups along K was needed: form=k-grouped",
                other.name(),
                other.form().words()
            )));
        }
        let begins = self.each.iter().scan(0, |end, group| {
            *end += group.k;
            Some(*end)
        });
        for (begin, entry) in begins.flat_map(|begin| named.iter().map(move |entry| (begin, entry))) {
            let tile = entry.plan().mainloop.tile[2];
            if begin < self.whole.k && !begin.is_multiple_of(tile) {
                return Err(Failure::usage(format!(
                    "--k-groups: a group begins at K = {begin}, a multiple of tile K = {tile} was needed for kernel {}",
                    entry.name()
                )));
            }
        }
        if !named.is_empty() {
            return Ok(named);
        }
        let selection = kernel::search(&self.request(), machine(), RANKED);
        catalogue::first(&selection, &self.request())?;
        Ok(selection.ranked.into_iter().map(|ranked| ranked.gemm).collect())
    }

    /// The groups that are not empty, and the addresses of their A, B and D in a set, with packed operands.
    fn products(&self, set: &Call<()>) -> Vec<(GemmProblem, [u64; 3])> {
        let [of_a, of_b, of_d] = self.types.bytes().map(u64::from);
        let mut begin = 0;
        let product = |(group, &size): (u64, &GemmProblem)| {
            let GemmProblem { m, n, k } = size;
            let [m, n] = [m, n].map(u64::from);
            let addresses = [
                set.a.address + begin * m * of_a,
                set.b.address + begin * n * of_b,
                set.d.address + group * m * n * of_d,
            ];
            begin += u64::from(k);
            (size, addresses)
        };
        (0u64..).zip(&self.each).map(product).filter(|(size, _)| size.k > 0).collect()
    }
}

/// Times the groups.
pub(super) fn measure(
    gpu: &mut Gpu,
    peer: Option<&CublasLt>,
    groups: &Groups,
    kernels: &[AnyGemm],
    protocol: &Protocol,
) -> Result<Vec<Figure>, Failure> {
    let GemmProblem { m, n, k } = groups.whole;
    writeln!(
        out(),
        "\n{} groups along K, K {k} in all, {m} x {n} each, {}",
        groups.each.len(),
        groups.types
    )?;
    let inputs = Inputs::new(gpu, &groups.request())?;
    let mut workspaces = Vec::new();
    let measured = of_inputs(gpu, peer, (groups, &inputs), kernels, protocol, &mut workspaces);
    for workspace in workspaces {
        gpu.free(workspace.buffer())?;
    }
    inputs.free(gpu)?;
    measured
}

fn of_inputs(
    gpu: &mut Gpu,
    peer: Option<&CublasLt>,
    (groups, inputs): (&Groups, &Inputs),
    kernels: &[AnyGemm],
    protocol: &Protocol,
    workspaces: &mut Vec<WorkspaceRef>,
) -> Result<Vec<Figure>, Failure> {
    let (types, whole) = (groups.types, groups.whole);
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    let mut ours = |gpu: &mut Gpu, entry: &AnyGemm, name: String, products: Option<GroupedProblem>| {
        let program = entry.program()?;
        let slots = gpu.slots(&program)?;
        let mut launches: Vec<Box<dyn Enqueue>> = Vec::new();
        let mut workspace = None;
        for set in inputs.sets() {
            let call = set.with(LinearArguments::default());
            let call = Call { products: products.unwrap_or(call.products), ..call };
            if workspace.is_none() {
                workspace = gpu.workspace(entry.workspace(&call, slots))?;
                workspaces.extend(workspace);
            }
            if let Some(launch) = entry.launch(&Call { workspace, ..call }, slots)? {
                launches.push(Box::new(gpu.prepare(&program, launch.grid, &launch.arguments)?));
            }
        }
        if !launches.is_empty() {
            let operations = whole.operations();
            candidates.push(Candidate { name, launches, operations, slots: Some(slots) });
        }
        Ok::<(), Failure>(())
    };
    for entry in kernels {
        ours(gpu, entry, entry.name().to_owned(), None)?;
    }
    let request = Request::packed(types, groups.majors, whole);
    let dense = kernel::select(&request, machine());
    let dense = &catalogue::first(&dense, &request)?.gemm;
    ours(gpu, dense, format!("one product, {}", dense.name()), Some(GroupedProblem::One))?;

    // cuBLASLt's plans are of one product's scales.
    if let Some(peer) = peer.filter(|_| !types.is_scaled()) {
        let of_sets: Vec<_> = inputs.sets().iter().map(|set| groups.products(set)).collect();
        let [a, b] = groups.majors;
        let product = |size| Matmul { a, b, ..Matmul::new(types, size) };
        let first = of_sets.first().map_or(&[][..], Vec::as_slice);
        if let Some(plans) = FastestPlans::new(gpu, peer, first, product)?.filter(|_| !first.is_empty()) {
            let mut launches: Vec<Box<dyn Enqueue>> = Vec::new();
            for products in &of_sets {
                launches.push(Box::new(plans.graph(gpu, products)?));
            }
            let name = format!("cuBLASLt, graph of {}", first.len());
            candidates.push(Candidate { name, launches, operations: whole.operations(), slots: None });
        }
    }
    report::measured(gpu, protocol, whole, &candidates)
}
