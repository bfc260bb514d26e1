//! `falchion bench --epilogue`: measures the cost of a fused epilogue, in our kernels and in cuBLASLt.
//!
//! Kernels with the epilogue alternate with the same kernels without it, in one process. The kernels are
//! those with the shortest predicted times, or all. cuBLASLt is timed with its fastest algorithm, plain and
//! fused.

use std::io::Write;

use crate::verify::{Bench as Inputs, Format, Formula, fusions};
use cute_rs::atom::Major;
use kernel::driver::tune;
use kernel::{Engine, GemmProblem, Gpu, Request, Types};
use peers::Matmul;
use peers::cublaslt::CublasLt;

use super::contest::{Contest, Planned, View, plain};
use super::fused;
use super::report::{self, Figure};
use crate::bench::Protocol;
use crate::cli::output::out;
use crate::cli::{Failure, catalogue};

/// Number of kernels that are timed per shape, unless all are.
const TIMED: usize = 4;

/// cuBLASLt without an epilogue.
const PEER: &str = "cuBLASLt";

/// Checks that a fused epilogue can be timed with operands of such types.
///
/// # Errors
/// No kernel with it: then the rule that such a kernel breaks.
pub(super) fn can_be_timed(fusion: Formula, types: Types) -> Result<(), Failure> {
    let name = fusion.name();
    if types != Types::of(types.a) {
        refuse!(
            "operands are {types}; bench compares a kernel with a fused epilogue with the same kernel without it, for \
             operands of one format without scales: use `falchion tune --epilogue {name}`, which times it alone"
        );
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

/// Measures one shape; all kernels, if `all` is set.
pub(super) fn measure(
    gpu: &mut Gpu,
    peer: Option<&CublasLt>,
    protocol: &Protocol,
    (fusion, types, all): (Formula, Types, bool),
    problem: GemmProblem,
) -> Result<Vec<Figure>, Failure> {
    let format = Format::named(types.a.name()).ok_or_else(|| usage!("no format {types}"))?;
    let (kernels, name) = (fusions::ranked(fusion, format, problem), fusion.name());
    if kernels.is_empty() {
        refuse!("no fused kernel takes {} columns: tensor copies store rows of whole 16 bytes", problem.n);
    }
    let memory = tune::Inputs::new(gpu, &Request::packed(types, [Major::K; 2], problem))?;
    let sets = memory.sets();
    let product = Matmul::new(types.stored(fusion.output(types.a)), problem);
    let of_peer = fused::Peer::new(gpu, fusion, types, problem, sets.len())?;
    let with_fusion = match of_peer {
        Some(fused) => Planned::new(gpu, peer, &product, Some(fused), sets.to_vec())?,
        None => None,
    };
    let without = Planned::new(gpu, peer, &product, None, sets.to_vec())?;
    let mut contest = Contest::of(problem);
    for kernel in kernels.iter().take(if all { usize::MAX } else { TIMED }) {
        contest.kernel(gpu, kernel.kind(), &catalogue::find(&kernel.plain_name())?, &plain(sets))?;
        let mut inputs = Inputs::aligned(gpu, 0);
        let calls = sets.iter().map(|set| kernel.call(&mut inputs, set)).collect::<Result<Vec<_>, _>>();
        let given = inputs.buffers();
        contest.kernel(gpu, with(kernel.kind(), name), &kernel.gemm, &calls?)?;
        given.into_iter().try_for_each(|buffer| gpu.free(buffer))?;
    }
    if let Some(plan) = &without {
        plan.fastest(&mut contest, PEER)?;
    }
    if let Some(plan) = &with_fusion {
        plan.fastest(&mut contest, with(PEER, name))?;
    }
    let GemmProblem { m, n, k } = problem;
    writeln!(out(), "\n{m} x {n} x {k} {}", format.name())?;
    let table = |state, figures: &[Figure]| report::fused_table(state, figures, name, PEER);
    let figures = contest.run(gpu, protocol, &View { table: &table, ..View::default() })?;
    drop(contest);
    for plan in [with_fusion, without].into_iter().flatten() {
        plan.free(gpu)?;
    }
    memory.free(gpu)?;
    Ok(figures)
}
