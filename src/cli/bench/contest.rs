//! What takes turns at one problem: our kernels, the ceiling, and the libraries that they are compared with.

use std::io::{self, Write};

use kernel::driver::Enqueue;
use kernel::driver::tune::{Candidate, Inputs};
use kernel::{Call, EngineError, GemmProblem, Gpu, Kernel, LinearArguments, Request, Types};
use peers::cublaslt::{CublasLt, Plan, Run};
use peers::{Matmul, Monitor};

use super::ceiling::Ceiling;
use super::report::{self, Figure, Of};
use super::sparse::Rivals;
use super::{arena, fused};
use crate::bench::{PowerState, Protocol};
use crate::cli::Failure;
use crate::cli::output::out;

/// Candidates of one problem. Their launches keep the memory that they need.
pub(super) struct Contest<'p> {
    of: Of,
    /// Operations that a launch counts as.
    operations: f64,
    pub(super) candidates: Vec<Candidate<'p>>,
}

/// What is done while candidates take turns.
pub(super) struct View<'v> {
    pub(super) monitor: Option<&'v Monitor>,
    /// Called after each measurement.
    pub(super) step: &'v dyn Fn(),
    /// Prints the figures of a state.
    pub(super) table: &'v dyn Fn(PowerState, &[Figure]) -> io::Result<()>,
}

impl Default for View<'_> {
    fn default() -> Self {
        Self { monitor: None, step: &|| (), table: &report::plain_table }
    }
}

impl<'p> Contest<'p> {
    pub(super) fn new(of: impl Into<Of>, operations: f64) -> Self {
        Self { of: of.into(), operations, candidates: Vec::new() }
    }

    /// For a GEMM, or for several that have its extents together.
    pub(super) fn of(whole: GemmProblem) -> Self {
        Self::new(whole, whole.operations())
    }

    /// Adds a kernel with a launch of each call.
    ///
    /// # Errors
    /// The kernel refuses a call; all calls are empty.
    pub(super) fn kernel<C: Clone>(
        &mut self,
        gpu: &mut Gpu,
        name: impl Into<String>,
        kernel: &impl Kernel<C>,
        calls: &[C],
    ) -> Result<(), Failure> {
        let refused = |error: EngineError| {
            if let EngineError::Call { source, .. } = &error { Failure::usage(source) } else { error.into() }
        };
        let candidate = Candidate::of(gpu, kernel, calls, self.operations).map_err(refused)?;
        if candidate.launches.is_empty() {
            refuse!("an empty product takes no time");
        }
        self.candidates.push(Candidate { name: name.into(), ..candidate });
        Ok(())
    }

    /// Adds what is no kernel of ours.
    pub(super) fn add(&mut self, name: impl Into<String>, launches: Vec<Box<dyn Enqueue + 'p>>) {
        let operations = self.operations;
        self.candidates.push(Candidate { name: name.into(), launches, operations, resident: None });
    }

    pub(super) fn ceiling(&mut self, Ceiling { prepared, operations, .. }: &'p Ceiling) {
        self.add(report::CEILING, vec![Box::new(prepared)]);
        self.candidates.iter_mut().last().into_iter().for_each(|last| last.operations = *operations);
    }

    /// Measures every candidate in every state, and prints a table of each.
    pub(super) fn run(
        &self,
        gpu: &mut Gpu,
        protocol: &Protocol,
        view: &View<'_>,
    ) -> Result<Vec<Figure>, Failure> {
        let mut figures = Vec::new();
        for &state in &protocol.states {
            let turns = protocol.measure(gpu, view.monitor, &self.candidates, state, view.step)?;
            let first = figures.len();
            let of_state = self.candidates.iter().zip(&turns);
            let figure = |(of, turns): (&Candidate<'_>, _)| {
                Figure::new((&self.of, self.operations), state, (of.name.clone(), of.resident), turns)
            };
            figures.extend(of_state.map(figure));
            (view.table)(state, &figures[first..])?;
        }
        Ok(figures)
    }
}

/// Calls of sets of matrices: `D = A * B`.
pub(super) fn plain(sets: &[Call<()>]) -> Vec<Call> {
    sets.iter().map(|set| set.with(LinearArguments::default())).collect()
}

/// The libraries that kernels of one GEMM are compared with.
#[derive(Default)]
pub(super) struct Peers {
    pub(super) cublaslt: Option<CublasLt>,
    /// For types of which an operand is sparse.
    pub(super) rivals: Option<Rivals>,
}

/// cuBLASLt's plan of a GEMM, and its fastest algorithm on some sets of matrices.
pub(super) struct Planned {
    plan: Plan,
    fastest: usize,
    sets: Vec<Call<()>>,
    fused: Option<fused::Peer>,
    /// The matrices, if they are not those of our kernels.
    dense: Option<Inputs>,
}

/// Looks for cuBLASLt, and says whether it is there.
pub(super) fn cublaslt(gpu: &Gpu) -> io::Result<Option<CublasLt>> {
    match CublasLt::new(gpu) {
        Ok(peer) => writeln!(out(), "cuBLASLt {}", peer.version()).map(|()| Some(peer)),
        Err(error) => writeln!(out(), "without cuBLASLt: {error}").map(|()| None),
    }
}

impl Peers {
    /// Looks for the libraries, and says which there are.
    pub(super) fn new(gpu: &Gpu, types: Types) -> io::Result<Self> {
        let rivals = Rivals::new(gpu, types)?;
        let cublaslt = if rivals.is_some() { None } else { cublaslt(gpu)? };
        Ok(Self { cublaslt, rivals })
    }

    /// Adds what a sparse operand's kernels are compared with, and returns cuBLASLt's plan of a request, to be [added](Planned::join).
    pub(super) fn invite(
        &self,
        gpu: &mut Gpu,
        request: &Request<'_>,
        inputs: &Inputs,
        contest: &mut Contest<'_>,
    ) -> Result<Option<Planned>, Failure> {
        let (size, majors, types) = (request.call.problem, request.majors, request.types);
        let (library, rivals) = (self.cublaslt.as_ref(), self.rivals.as_ref());
        let rivals = rivals.filter(|_| request.fusion.is_none());
        let fused = match (library, request.fusion) {
            (Some(_), Some(fusion)) => fused::Peer::new(gpu, fusion, types, size, inputs.sets().len())?,
            _ => None,
        };
        // An epilogue that the library does not have is not compared.
        let library = library.filter(|_| request.fusion.is_none() || fused.is_some());
        if library.is_none() && rivals.is_none() {
            return Ok(None);
        }
        let dense = arena::dense(gpu, types, majors, size)?;
        let sets = dense.as_ref().map_or(inputs.sets(), Inputs::sets).to_vec();
        if let Some(rivals) = rivals {
            rivals.join(gpu, (types, majors), size, &sets, contest)?;
        }
        let types = request.fusion.map_or(types, |of| types.stored(of.output(types.a)));
        let product = arena::product(types, majors, size, sets.first());
        let planned = Planned::new(gpu, library, &product, fused, sets)?;
        match (planned, dense) {
            (Some(planned), dense) => Ok(Some(Planned { dense, ..planned })),
            (None, Some(dense)) => Ok(dense.free(gpu).map(|()| None)?),
            (None, None) => Ok(None),
        }
    }
}

impl Planned {
    /// cuBLASLt's plan of a product, maybe with one of its own fusions; it may have no algorithm for it.
    pub(super) fn new(
        gpu: &mut Gpu,
        peer: Option<&CublasLt>,
        product: &Matmul,
        fused: Option<fused::Peer>,
        sets: Vec<Call<()>>,
    ) -> Result<Option<Self>, Failure> {
        let (Some(peer), Some(first)) = (peer, sets.first()) else { return Ok(None) };
        let plan = match &fused {
            Some(fused) => peer.plan_fused(product, fused.fused),
            None => peer.plan(product),
        };
        match plan {
            Ok(plan) => {
                let fastest = plan.fastest(gpu, first.a.address, first.b.address, first.d.address)?;
                Ok(Some(Self { plan, fastest, sets, fused, dense: None }))
            }
            Err(error @ EngineError::Library { .. }) => {
                let GemmProblem { m, n, k } = product.size;
                writeln!(out(), "{m} x {n} x {k} {} without cuBLASLt: {error}", product.types)?;
                Ok(fused.map_or(Ok(()), |fused| fused.free(gpu)).map(|()| None)?)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// The fastest algorithm on other matrices.
    pub(super) fn run(&self, [a, b, d]: [u64; 3]) -> Result<Run<'_>, EngineError> {
        self.plan.with(self.fastest, a, b, d)
    }

    /// Adds its first and its fastest algorithm.
    pub(super) fn join<'p>(&'p self, contest: &mut Contest<'p>) -> Result<(), EngineError> {
        self.add(contest, report::FIRST, 0)?;
        self.fastest(contest, report::FASTEST)
    }

    /// Adds its fastest algorithm.
    pub(super) fn fastest<'p>(
        &'p self,
        contest: &mut Contest<'p>,
        name: impl Into<String>,
    ) -> Result<(), EngineError> {
        self.add(contest, name, self.fastest)
    }

    fn add<'p>(
        &'p self,
        contest: &mut Contest<'p>,
        name: impl Into<String>,
        algorithm: usize,
    ) -> Result<(), EngineError> {
        let mut launches: Vec<Box<dyn Enqueue + 'p>> = Vec::new();
        let cs = self.fused.as_ref().map_or(&[][..], |fused| &fused.cs);
        for (i, set) in self.sets.iter().enumerate() {
            let run = self.plan.with(algorithm, set.a.address, set.b.address, set.d.address)?;
            launches.push(Box::new(match cs.get(i) {
                Some(&c) => run.with_c(c)?,
                None => run,
            }));
        }
        contest.add(name, launches);
        Ok(())
    }

    /// Frees its memory.
    pub(super) fn free(self, gpu: &mut Gpu) -> Result<(), EngineError> {
        self.fused.map_or(Ok(()), |fused| fused.free(gpu))?;
        self.dense.map_or(Ok(()), |dense| dense.free(gpu))
    }
}
