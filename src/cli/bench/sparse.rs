//! What kernels with a sparse operand are compared with: our dense kernel, and cuSPARSELt.

use std::io::{self, Write};

use cute_rs::atom::Major;
use kernel::driver::Enqueue;
use kernel::{Call, EngineError, GemmProblem, Gpu, Request, Types, fastest};
use peers::Matmul;
use peers::cusparselt::{Choice, CusparseLt};

use super::contest::{Contest, plain};
use super::report;
use crate::cli::engine::machine;
use crate::cli::output::out;
use crate::cli::{Failure, catalogue};

/// Who takes turns with kernels of a sparse operand.
pub(super) struct Rivals {
    library: Option<CusparseLt>,
}

impl Rivals {
    /// Looks for the library, and says whether it is there, for types of which an operand is sparse.
    pub(super) fn new(gpu: &Gpu, types: Types) -> io::Result<Option<Self>> {
        if !types.has_sparse() {
            return Ok(None);
        }
        let library = match CusparseLt::new(gpu) {
            Ok(library) => writeln!(out(), "cuSPARSELt {}", library.version()).map(|()| Some(library)),
            Err(error) => writeln!(out(), "without cuSPARSELt: {error}").map(|()| None),
        };
        Ok(Some(Self { library: library? }))
    }

    /// The library's version.
    pub(super) fn version(&self) -> Option<String> {
        self.library.as_ref().map(CusparseLt::version)
    }

    /// Adds the library's first and fastest algorithm, and the dense kernel that the model ranks first, on matrices with a zero for each
    /// element that is not kept.
    pub(super) fn join(
        &self,
        gpu: &mut Gpu,
        (types, majors): (Types, [Major; 2]),
        size: GemmProblem,
        sets: &[Call<()>],
        contest: &mut Contest<'_>,
    ) -> Result<(), Failure> {
        if let Some(library) = &self.library {
            let product = Matmul { a: majors[0], b: majors[1], ..Matmul::new(types, size) };
            match of_library(gpu, library, &product, sets, contest) {
                Err(error @ EngineError::Library { .. }) => {
                    let GemmProblem { m, n, k } = size;
                    writeln!(out(), "{m} x {n} x {k} {types} without cuSPARSELt: {error}")?;
                }
                other => other?,
            }
        }
        let refused = |error: Option<kernel::LaunchError>| match error {
            Some(error) => Failure::usage(error),
            None => usage!("there is no dense kernel of this element type and these directions"),
        };
        let request = Request::packed(types.dense(), majors, size);
        let gemm = fastest(&request, machine()).map_err(refused)?.gemm;
        writeln!(out(), "dense      {}", catalogue::own_words(gemm.name()))?;
        contest.kernel(gpu, report::DENSE, &gemm, &plain(sets))?;
        // It is compared with, as the library is.
        contest.candidates.iter_mut().last().into_iter().for_each(|dense| dense.resident = None);
        Ok(())
    }
}

/// The library's first and its fastest algorithm.
fn of_library(
    gpu: &mut Gpu,
    library: &CusparseLt,
    product: &Matmul,
    sets: &[Call<()>],
    contest: &mut Contest<'_>,
) -> Result<(), EngineError> {
    let plan = library.plan(product)?;
    let of_b = product.types.sparse[1];
    let mut compressed = Vec::new();
    for set in sets {
        let [sparse, dense] = if of_b { [set.b, set.a] } else { [set.a, set.b] };
        compressed.push((plan.compress(gpu, sparse.address)?, dense.address, set.d.address));
    }
    let Some((sparse, dense, d)) = compressed.first() else { return Ok(()) };
    let fastest = plan.fastest(gpu, sparse, *dense, *d)?;
    for (name, choice) in [(report::FIRST_SPARSE, Choice::FIRST), (report::FASTEST_SPARSE, fastest)] {
        let algorithm = plan.algorithm(choice)?;
        let run = |(sparse, dense, d): &(_, u64, u64)| -> Result<Box<dyn Enqueue>, EngineError> {
            Ok(Box::new(algorithm.with(sparse, *dense, *d)?))
        };
        contest.add(name, compressed.iter().map(run).collect::<Result<_, _>>()?);
    }
    Ok(())
}
