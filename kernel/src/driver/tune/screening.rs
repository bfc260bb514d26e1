//! Compares kernels of one request: a few launches of each, then several rounds for those near the best.

use std::thread;
use std::time::Duration;

use super::inputs::Inputs;
use super::stop::go_on;
use super::turns::{Candidate, time};
use crate::driver::gpu::Gpu;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::gemm::AnyGemm;
use crate::kernel::{Kernel, written};

/// A kernel that is slower than the best by this factor in its few launches gets no rounds.
const SLOWER: f64 = 1.12;

/// Rest before the next kernel, as a multiple of the time that a few launches took.
const REST: f64 = 12.0;

/// A kernel that was timed.
#[derive(Clone, Debug)]
pub struct Timed<K = AnyGemm> {
    /// The kernel.
    pub kernel: K,
    /// Number of its clusters that are resident at once.
    pub resident: u32,
    /// Time per launch in microseconds, from a few launches only.
    pub quick: f64,
}

/// Kernels that had a few launches each, and those that are worth measuring in rounds.
#[derive(Debug)]
pub struct Screening<K = AnyGemm> {
    /// All kernels, in the order in which they were given.
    pub kernels: Vec<Timed<K>>,
    /// Indices of the kernels near the best, and of the first kernel.
    pub near: Vec<usize>,
    /// The kernels of [`near`](Self::near), ready to be measured in rounds.
    pub candidates: Vec<Candidate<'static>>,
}

impl<K: Clone> Screening<K> {
    /// Compiles kernels, and times a few launches of each on some sets of memory after a rest. `operations` is what a launch counts as.
    ///
    /// # Errors
    /// A kernel that rejects the call, or a driver error.
    pub fn run<C: Clone>(
        gpu: &mut Gpu,
        inputs: &Inputs<C>,
        operations: f64,
        kernels: Vec<K>,
    ) -> Result<Self, EngineError>
    where
        K: Kernel<C>,
    {
        let programs = kernels.iter().map(written).collect::<Result<Vec<_>, _>>()?;
        gpu.compile(&programs.iter().collect::<Vec<_>>())?;
        let (mut timed, mut candidates) = (Vec::new(), Vec::new());
        let mut rest = Duration::from_millis(60);
        for (kernel, program) in kernels.into_iter().zip(&programs) {
            go_on()?;
            let resident = gpu.resident_clusters(program)?;
            let candidate = Candidate::written(gpu, (&kernel, program), inputs.sets(), operations)?;
            let own = &candidate.launches;
            // The card's clock falls under load. Without a rest, later kernels would be slower.
            thread::sleep(rest);
            time(gpu, own, 1)?;
            let quick = time(gpu, own, 4)?.min(time(gpu, own, 4)?) * 1e6;
            rest = Duration::from_secs_f64((quick * 9e-6 * REST).clamp(0.002, 0.06));
            timed.push(Timed { kernel, resident, quick });
            candidates.push(candidate);
        }
        let best = timed.iter().map(|timed| timed.quick).fold(f64::INFINITY, f64::min);
        let is_near = |i: usize| i == 0 || timed[i].quick <= SLOWER * best + 1.0;
        let near: Vec<usize> = (0..timed.len()).filter(|&i| is_near(i)).collect();
        let candidates = candidates.into_iter().enumerate();
        let candidates = candidates.filter(|(i, _)| is_near(*i)).map(|(_, candidate)| candidate).collect();
        Ok(Self { kernels: timed, near, candidates })
    }
}

#[cfg(test)]
mod tests {
    use collective::functions::MultiplyAdd;
    use collective::tree::{Accumulator, Compute, ReduceRow, RowArgument, RowVector, Scalar, Sum};
    use collective::{Format, MatrixRef};
    use cute_rs::atom::Major;

    use super::*;
    use crate::{
        Arguments, Call, Emulator, GemmProblem, GroupedProblem, Machine, Request, Tree, Types, search,
    };

    const ONE: GemmProblem = GemmProblem { m: 72, n: 136, k: 160 };

    /// Runs the launches of the first kernels of a request in the emulator, which finds accesses outside the
    /// memory made for them and reads of memory that was never written.
    fn runs<E: Arguments + Clone>(why: &str, request: &Request<'_>, epilogue: &E) {
        let engine = &mut Emulator::new();
        let inputs = Inputs::with_epilogue(engine, request, epilogue).expect("memory");
        assert!(inputs.sets().len() > 1, "{why}");
        let ranked = search(request, &Machine::h200(), 2).ranked;
        assert!(!ranked.is_empty(), "{why}");
        for gemm in ranked.into_iter().map(|ranked| ranked.gemm) {
            let program = gemm.program().expect("legal");
            let resident = engine.resident_clusters(&program).expect("legal");
            let needed = gemm.workspace(&inputs.sets()[0], resident);
            let workspace = engine.workspace(needed).expect("memory");
            // The first set and the last.
            for set in [&inputs.sets()[0], &inputs.sets()[inputs.sets().len() - 1]] {
                let ran = gemm.run(engine, &Call { workspace, ..set.clone() });
                ran.unwrap_or_else(|error| panic!("{why}, {}: {error}", gemm.name()));
            }
        }
    }

    #[test]
    fn launches_reach_the_memory_that_was_made_for_them() {
        let groups = [40, 0, 32].map(|m| GemmProblem { m, ..ONE });
        let any = [ONE, GemmProblem { m: 9, n: 24, k: 48 }, GemmProblem { m: 0, ..ONE }];
        let packed = |types: Types| Request::packed(types, [Major::K; 2], ONE);
        let bf16 = packed(Types::of(Format::Bf16));
        let scaled = [1, 128].map(|rows| packed(Types::of(Format::E4m3).scaled([1, rows])));
        let [sparse_a, sparse_b] =
            [[true, false], [false, true]].map(|sparse| packed(Types::of(Format::Bf16).sparse(sparse)));
        let mut odd =
            Request::packed(Format::F16, [Major::Mn, Major::K], GemmProblem { m: 33, n: 35, k: 37 });
        odd.call.a.address += 2;
        let mut pitched = bf16;
        (pitched.call.a.ld, pitched.call.b.ld, pitched.call.d.ld) = (176, 192, 200);
        let mut read = bf16.batched(3);
        let c = MatrixRef::new(1 << 20, u64::from(ONE.n)).every(u64::from(ONE.m * ONE.n));
        (read.call.epilogue.beta, read.call.epilogue.c) = (0.5, Some(c));
        let mut described = bf16.grouped(&any);
        (described.call.epilogue.beta, described.call.epilogue.c) = (0.5, Some(c));
        assert!(matches!(described.call.products, GroupedProblem::PointerArray { count: 3, .. }));
        for (why, request) in [
            ("a product", bf16),
            ("rows that are apart", pitched),
            ("rows of odd lengths", odd),
            ("a batch with C", read),
            ("groups of rows", bf16.ragged(&groups)),
            ("groups in buffers", bf16.masked(40, &groups)),
            ("described products with C", described),
            ("bytes", packed(Types::of(Format::E4m3).with_b(Format::E5m2))),
            ("integers", packed(Types::of(Format::S8))),
            ("a sparse A", sparse_a),
            ("a sparse B", packed(Types::of(Format::E4m3).sparse([false, true]))),
            ("a sparse A of tf32", packed(Types::of(Format::Tf32).sparse([true, false]))),
            ("a batch with a sparse A", sparse_a.batched(3)),
            ("groups of rows with a sparse B each", sparse_b.ragged(&groups)),
            ("buffers of rows with a sparse B each", sparse_b.masked(40, &groups)),
            ("blocks with scales", scaled[0]),
            ("blocks of 128", scaled[1]),
            ("groups of blocks with scales", scaled[1].ragged(&groups)),
            ("buffers of blocks with scales", scaled[1].masked(40, &groups)),
        ] {
            runs(why, &request, &request.call.epilogue);
        }
        // Column sums are written and a bias is read, at addresses where no memory is.
        type Summed = ReduceRow<Sum, Compute<MultiplyAdd, (Accumulator, Scalar, RowVector<half::bf16>)>>;
        let row = |address| RowArgument { address, len: ONE.n };
        let arguments = (row(5 << 20), ((), ((), 1.0, row(6 << 20))));
        let fused = bf16.fused("bias-sums".parse().expect("a formula"));
        runs("a fused epilogue", &fused, &Tree::<Summed>(arguments));
        runs("of groups", &fused.ragged(&groups), &Tree::<Summed>(arguments));
    }
}
