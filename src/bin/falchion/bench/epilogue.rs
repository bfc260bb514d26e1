//! `falchion bench --epilogue`: measures the cost of a fused epilogue, in our kernels and in cuBLASLt.
//!
//! Kernels with the epilogue alternate with the same kernels without it, in one process. The kernels are
//! those with the shortest predicted times, or all. cuBLASLt is timed with its fastest algorithm, plain and
//! fused.

use std::io::Write;

use cute_rs::atom::Major;
use falchion::verify::{Bench as Inputs, Format, Formula, Fused, Ready, fusions};
use kernel::driver::Enqueue;
use kernel::driver::tune::{self, Candidate};
use kernel::{Buffer, Call, Engine, GemmProblem, Gpu, Request, Types};
use peers::Matmul;
use peers::cublaslt::{CublasLt, Plan};

use super::fused;
use super::measure::Protocol;
use super::report::{self, Figure};
use crate::output::out;
use crate::{Failure, catalogue};

/// Number of kernels that are timed per shape, unless all are.
const TIMED: usize = 4;

/// cuBLASLt without an epilogue.
const PEER: &str = "cuBLASLt";

/// The setup that all shapes share.
pub(super) struct Bench<'g> {
    pub(super) gpu: &'g mut Gpu,
    peer: Option<CublasLt>,
    protocol: Protocol,
    fusion: Formula,
    format: Format,
    types: Types,
    /// Whether all kernels are timed.
    all: bool,
}

/// Checks that a fused epilogue can be timed with operands of such types.
///
/// # Errors
/// No kernel with it: then the rule that such a kernel breaks.
pub(super) fn can_be_timed(fusion: Formula, types: Types) -> Result<(), Failure> {
    let name = fusion.name();
    if types != Types::of(types.a) {
        return Err(Failure::usage(format!(
            "operands are {types}; bench compares a kernel with a fused epilogue with the same kernel without it, for \
             operands of one format without scales: use `falchion tune --epilogue {name}`, which times it alone"
        )));
    }
    let (dtype, d) = (types.a.name(), fusion.output(types.a).name());
    let tile = format!("tile=128x128x{} store=direct", 128 / types.a.bytes());
    catalogue::find(&format!("dtype={dtype} out={d} {tile} epilogue={name}"))?;
    Ok(())
}

/// The name of a candidate with the fusion, from its name without it.
fn with(plain: &str, fusion: &str) -> String {
    format!("{plain} {fusion}")
}

impl<'g> Bench<'g> {
    pub(super) fn new(
        gpu: &'g mut Gpu,
        peer: Option<CublasLt>,
        protocol: Protocol,
        (fusion, all): (Formula, bool),
        types: Types,
    ) -> Result<Self, Failure> {
        writeln!(out(), "epilogue  D = {}", fusion.text())?;
        let format =
            Format::named(types.a.name()).ok_or_else(|| Failure::usage(format!("no format {types}")))?;
        Ok(Self { gpu, peer, protocol, fusion, format, types, all })
    }

    /// Measures one shape.
    pub(super) fn shape(&mut self, problem: GemmProblem) -> Result<Vec<Figure>, Failure> {
        let memory = tune::Inputs::new(self.gpu, &Request::packed(self.types, [Major::K; 2], problem))?;
        let sets = memory.sets().to_vec();
        let mut given = Vec::new();
        let ours = self.ours(problem, &sets, &mut given)?;
        let peer = fused::Peer::new(self.gpu, self.fusion, self.types, problem, sets.len())?;
        let plans = self.plans(problem, peer.as_ref())?;
        let mut candidates = ours;
        for (name, plan) in &plans {
            let Some(set) = sets.first() else { continue };
            let fastest = plan.fastest(self.gpu, set.a.address, set.b.address, set.d.address)?;
            let cs = peer.as_ref().filter(|_| *name != PEER).map_or(&[][..], |peer| &peer.cs);
            let launches = super::peer::launches(plan, fastest, &sets, cs)?;
            let operations = problem.operations();
            candidates.push(Candidate { name: name.clone(), launches, operations, slots: None });
        }
        let GemmProblem { m, n, k } = problem;
        writeln!(out(), "\n{m} x {n} x {k} {}", self.format.name())?;
        let mut figures = Vec::new();
        for &state in &self.protocol.states {
            let turns = self.protocol.measure(self.gpu, None, &candidates, state, &|| ())?;
            let of_state: Vec<Figure> = candidates
                .iter()
                .zip(&turns)
                .map(|(candidate, turns)| Figure::new(problem, state, candidate, turns))
                .collect();
            report::fused_table(state, &of_state, self.fusion.name(), PEER)?;
            figures.extend(of_state);
        }
        drop(candidates);
        drop(plans);
        for buffer in given {
            self.gpu.free(buffer)?;
        }
        peer.map_or(Ok(()), |peer| peer.free(self.gpu))?;
        memory.free(self.gpu)?;
        Ok(figures)
    }

    /// Our kernels without and with the epilogue, with one launch per set of matrices.
    fn ours(
        &mut self,
        problem: GemmProblem,
        sets: &[Call<()>],
        given: &mut Vec<Buffer>,
    ) -> Result<Vec<Candidate<'static>>, Failure> {
        let addresses: Vec<[u64; 3]> =
            sets.iter().map(|set| [set.a, set.b, set.d].map(|matrix| matrix.address)).collect();
        let timed = if self.all { usize::MAX } else { TIMED };
        let kernels = fusions::ranked(self.fusion, self.format, problem);
        if kernels.is_empty() {
            return Err(Failure::usage(format!(
                "no fused kernel takes {} columns: tensor copies store rows of whole 16 bytes",
                problem.n
            )));
        }
        let mut candidates = Vec::new();
        for kernel in kernels.iter().take(timed) {
            let mut inputs = Inputs::aligned(self.gpu, 0);
            let both = kernel.prepare(&mut inputs, problem, &addresses);
            given.extend(inputs.buffers());
            let Fused { kind, plain, fused } = both.map_err(|error| Failure::usage(error.to_string()))?;
            candidates.push(self.candidate(kind.clone(), problem, &plain)?);
            candidates.push(self.candidate(with(&kind, self.fusion.name()), problem, &fused)?);
        }
        Ok(candidates)
    }

    /// The launches of a kernel.
    fn candidate(
        &mut self,
        name: String,
        problem: GemmProblem,
        Ready { program, launches, slots }: &Ready,
    ) -> Result<Candidate<'static>, Failure> {
        let launches: Result<Vec<_>, Failure> = launches
            .iter()
            .map(|launch| {
                let prepared = self.gpu.prepare(program, launch.grid, &launch.arguments)?;
                Ok(Box::new(prepared) as Box<dyn Enqueue>)
            })
            .collect();
        Ok(Candidate { name, launches: launches?, operations: problem.operations(), slots: Some(*slots) })
    }

    /// cuBLASLt's plans by name: plain, and with the fusion if it has it.
    fn plans(&self, size: GemmProblem, fused: Option<&fused::Peer>) -> Result<Vec<(String, Plan)>, Failure> {
        let product = Matmul::new(self.types.stored(self.fusion.output(self.types.a)), size);
        let plain = super::peer::planned(self.peer.as_ref(), &product, None)?;
        let fused = match fused {
            Some(fused) => super::peer::planned(self.peer.as_ref(), &product, Some(fused.fused))?,
            None => None,
        };
        let named = [(PEER.to_owned(), plain), (with(PEER, self.fusion.name()), fused)];
        Ok(named.into_iter().filter_map(|(name, plan)| Some((name, plan?))).collect())
    }
}
