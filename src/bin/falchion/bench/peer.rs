//! cuBLASLt's side of a measurement: its plans, and the launches of its algorithms.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::{self, Write};

use kernel::driver::tune::Candidate;
use kernel::driver::{Enqueue, Graph};
use kernel::{Call, EngineError, GemmProblem, Gpu};
use peers::Matmul;
use peers::cublaslt::{CublasLt, Fused, Plan};

use super::ceiling::Ceiling;
use super::report;
use crate::Failure;
use crate::output::out;

pub(super) fn peer(gpu: &Gpu) -> io::Result<Option<CublasLt>> {
    match CublasLt::new(gpu) {
        Ok(peer) => {
            writeln!(out(), "cuBLASLt {}", peer.version())?;
            Ok(Some(peer))
        }
        Err(error) => {
            writeln!(out(), "without cuBLASLt: {error}")?;
            Ok(None)
        }
    }
}

/// The peer's plan of a product, maybe with one of its own fusions; it may have no algorithm for it.
pub(super) fn planned(
    peer: Option<&CublasLt>,
    product: &Matmul,
    fused: Option<Fused>,
) -> Result<Option<Plan>, Failure> {
    let Some(peer) = peer else { return Ok(None) };
    match fused.map_or_else(|| peer.plan(product), |fused| peer.plan_fused(product, fused)) {
        Ok(plan) => Ok(Some(plan)),
        Err(error @ EngineError::Library { .. }) => {
            let GemmProblem { m, n, k } = product.size;
            writeln!(out(), "{m} x {n} x {k} {} without cuBLASLt: {error}", product.types)?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The fastest plans of the products of a launch, one for each shape.
#[derive(Default)]
pub(super) struct FastestPlans(BTreeMap<[u32; 3], (Plan, usize)>);

impl FastestPlans {
    /// Plans of products with these addresses of A, B and D; `None` if the peer has no algorithm for one.
    pub(super) fn new(
        gpu: &mut Gpu,
        peer: &CublasLt,
        products: &[(GemmProblem, [u64; 3])],
        of: impl Fn(GemmProblem) -> Matmul,
    ) -> Result<Option<Self>, Failure> {
        let mut plans = BTreeMap::new();
        for &(size, [a, b, d]) in products {
            let Entry::Vacant(entry) = plans.entry([size.m, size.n, size.k]) else { continue };
            let Some(plan) = planned(Some(peer), &of(size), None)? else { return Ok(None) };
            let fastest = plan.fastest(gpu, a, b, d)?;
            entry.insert((plan, fastest));
        }
        Ok(Some(Self(plans)))
    }

    /// A graph of one call per product.
    pub(super) fn graph(
        &self,
        gpu: &mut Gpu,
        products: &[(GemmProblem, [u64; 3])],
    ) -> Result<Graph, Failure> {
        let runs = products
            .iter()
            .filter_map(|(GemmProblem { m, n, k }, [a, b, d])| {
                self.0.get(&[*m, *n, *k]).map(|(plan, fastest)| plan.with(*fastest, *a, *b, *d))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let runs: Vec<&dyn Enqueue> = runs.iter().map(|run| run as &dyn Enqueue).collect();
        Ok(gpu.capture(&runs)?)
    }
}

/// Which of the peer's algorithms is the fastest.
pub(super) fn fastest(
    gpu: &mut Gpu,
    plan: Option<&Plan>,
    sets: &[Call<()>],
) -> Result<Option<usize>, Failure> {
    let Some((plan, set)) = plan.zip(sets.first()) else { return Ok(None) };
    Ok(Some(plan.fastest(gpu, set.a.address, set.b.address, set.d.address)?))
}

/// Everything that takes turns at a shape: the ceiling, ours, the peer with its first and its fastest algorithm.
pub(super) fn candidates<'a>(
    ours: Vec<Candidate<'a>>,
    peer: Option<(&'a Plan, usize)>,
    (sets, cs): (&[Call<()>], &[u64]),
    problem: GemmProblem,
    limit: Option<&'a Ceiling>,
) -> Result<Vec<Candidate<'a>>, Failure> {
    let mut candidates = Vec::new();
    candidates.extend(limit.map(|limit| Candidate {
        name: report::CEILING.to_owned(),
        launches: vec![Box::new(&limit.prepared)],
        operations: limit.operations,
        slots: None,
    }));
    candidates.extend(ours);
    if let Some((plan, fastest)) = peer {
        for (name, algorithm) in [(report::FIRST, 0), (report::FASTEST, fastest)] {
            let launches = launches(plan, algorithm, sets, cs)?;
            let operations = problem.operations();
            candidates.push(Candidate { name: name.to_owned(), launches, operations, slots: None });
        }
    }
    Ok(candidates)
}

/// Launches of one of the peer's algorithms, one for each set of matrices, each with its C where there are some.
pub(super) fn launches<'a>(
    plan: &'a Plan,
    algorithm: usize,
    sets: &[Call<()>],
    cs: &[u64],
) -> Result<Vec<Box<dyn Enqueue + 'a>>, Failure> {
    let cs = cs.iter().copied().map(Some).chain(std::iter::repeat(None));
    let run = |(set, c): (&Call<()>, Option<u64>)| -> Result<Box<dyn Enqueue + 'a>, Failure> {
        let run = plan.with(algorithm, set.a.address, set.b.address, set.d.address)?;
        Ok(Box::new(match c {
            Some(c) => run.with_c(c)?,
            None => run,
        }))
    };
    sets.iter().zip(cs).map(run).collect()
}
