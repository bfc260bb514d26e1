//! What kernels with a sparse operand are compared with: our dense kernel, and cuSPARSELt.

use std::io::{self, Write};

use cute_rs::atom::Major;
use kernel::driver::Enqueue;
use kernel::driver::tune::Candidate;
use kernel::{Call, Engine, EngineError, GemmProblem, Gpu, LinearArguments, Request, Types, fastest};
use peers::Matmul;
use peers::cusparselt::{Choice, CusparseLt};

use super::report;
use crate::engine::machine;
use crate::output::out;
use crate::{Failure, catalogue};

/// Who takes turns with kernels of a sparse operand.
pub(super) struct Rivals {
    library: Option<CusparseLt>,
}

impl Rivals {
    /// Looks for the library, and says which there is, for types of which an operand is sparse.
    pub(super) fn new(gpu: &Gpu, types: Types) -> io::Result<Option<Self>> {
        if !types.has_sparse() {
            return Ok(None);
        }
        let library = match CusparseLt::new(gpu) {
            Ok(library) => {
                writeln!(out(), "cuSPARSELt {}", library.version())?;
                Some(library)
            }
            Err(error) => {
                writeln!(out(), "without cuSPARSELt: {error}")?;
                None
            }
        };
        Ok(Some(Self { library }))
    }

    /// The library's version.
    pub(super) fn version(&self) -> Option<String> {
        self.library.as_ref().map(CusparseLt::version)
    }

    /// Launches of the library's first and fastest algorithm, and of the dense kernel that the model ranks first, on matrices with a zero for
    /// each element that is not kept.
    pub(super) fn candidates(
        &self,
        gpu: &mut Gpu,
        (types, majors): (Types, [Major; 2]),
        problem: GemmProblem,
        sets: &[Call<()>],
    ) -> Result<Vec<Candidate<'static>>, Failure> {
        let mut all = Vec::new();
        if let Some(library) = &self.library {
            let product = Matmul { a: majors[0], b: majors[1], ..Matmul::new(types, problem) };
            match of_library(gpu, library, &product, sets) {
                Ok(both) => all.extend(both),
                Err(error @ EngineError::Library { .. }) => {
                    let GemmProblem { m, n, k } = problem;
                    writeln!(out(), "{m} x {n} x {k} {types} without cuSPARSELt: {error}")?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        all.push(dense(gpu, (types.dense(), majors), problem, sets)?);
        Ok(all)
    }
}

fn candidate(name: &str, launches: Vec<Box<dyn Enqueue>>, problem: GemmProblem) -> Candidate<'static> {
    Candidate { name: name.to_owned(), launches, operations: problem.operations(), slots: None }
}

/// The library's first and its fastest algorithm.
fn of_library(
    gpu: &mut Gpu,
    library: &CusparseLt,
    product: &Matmul,
    sets: &[Call<()>],
) -> Result<Vec<Candidate<'static>>, EngineError> {
    let plan = library.plan(product)?;
    let of_b = product.types.sparse[1];
    let mut compressed = Vec::new();
    for set in sets {
        let [sparse, dense] = if of_b { [set.b, set.a] } else { [set.a, set.b] };
        compressed.push((plan.compress(gpu, sparse.address)?, dense.address, set.d.address));
    }
    let Some((sparse, dense, d)) = compressed.first() else { return Ok(Vec::new()) };
    let fastest = plan.fastest(gpu, sparse, *dense, *d)?;
    let mut all = Vec::new();
    for (name, choice) in [(report::FIRST_SPARSE, Choice::FIRST), (report::FASTEST_SPARSE, fastest)] {
        let algorithm = plan.algorithm(choice)?;
        let run = |(sparse, dense, d): &(_, u64, u64)| -> Result<Box<dyn Enqueue>, EngineError> {
            Ok(Box::new(algorithm.with(sparse, *dense, *d)?))
        };
        let launches = compressed.iter().map(run).collect::<Result<Vec<_>, _>>()?;
        all.push(candidate(name, launches, product.size));
    }
    Ok(all)
}

/// The dense kernel that the model ranks first.
fn dense(
    gpu: &mut Gpu,
    (types, majors): (Types, [Major; 2]),
    problem: GemmProblem,
    sets: &[Call<()>],
) -> Result<Candidate<'static>, Failure> {
    let request = Request::packed(types, majors, problem);
    let refused = |error: Option<kernel::LaunchError>| match error {
        Some(error) => Failure::usage(error),
        None => Failure::usage("there is no dense kernel of this element type and these directions"),
    };
    let gemm = fastest(&request, machine()).map_err(refused)?.gemm;
    let program = gemm.program()?;
    let slots = gpu.slots(&program)?;
    let needed = sets.first().map_or(0, |set| gemm.workspace(&set.with(LinearArguments::default()), slots));
    let workspace = gpu.workspace(needed)?;
    let mut launches: Vec<Box<dyn Enqueue>> = Vec::new();
    for set in sets {
        let call = Call { workspace, ..set.with(LinearArguments::default()) };
        let launch = gemm.launch(&call, slots)?;
        let launch = launch.ok_or_else(|| Failure::usage("an empty product takes no time"))?;
        launches.push(Box::new(gpu.prepare(&program, launch.grid, &launch.arguments)?));
    }
    // Launches keep what they need.
    if let Some(workspace) = workspace {
        gpu.free(workspace.buffer())?;
    }
    writeln!(out(), "dense      {}", catalogue::own_words(gemm.name()))?;
    Ok(candidate(report::DENSE, launches, problem))
}
