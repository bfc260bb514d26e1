//! Kernels that are no GEMM: those that transpose and compress operands, and attention.

use attention::backward::{AttentionBackward, BackwardCall, BackwardSpec, Step};
use attention::{Attention, AttentionCall, AttentionProblem, AttentionRequest, AttentionSpec, Order};
use collective::{Format, MatrixRef, sparse};
use falchion::verify::family::{Checks, Relaunched};
use kernel::operands::{Contents, Fill};
use kernel::{Buffer, Compress, Compression, Family, Kernel, Program, Transpose, Transposition};
use ptx::{Function, VerifyError};

use super::subject::Subject;
use super::trial::Case;

/// A kernel and the calls of its problems, with addresses of no memory.
struct Calls<K, C> {
    name: String,
    kernel: K,
    /// The calls, and the words of their tables.
    calls: Vec<(C, Vec<u32>)>,
    /// Number of calls whose first input is made sparse, and the bytes of its elements: every other element is
    /// zero.
    pruned: (usize, usize),
    /// Number of resident clusters.
    resident: u32,
    /// Whether calls run twice on their workspace.
    again: bool,
    /// Bytes of random floats with which a call's workspace begins; the others are zeros.
    noise: Box<dyn Fn(&C) -> usize + Send + Sync>,
}

impl<K, C> Calls<K, C> {
    fn new(name: String, kernel: K, calls: Vec<(C, Vec<u32>)>) -> Self {
        Self { name, kernel, calls, pruned: (0, 1), resident: 1, again: false, noise: Box::new(|_| 0) }
    }
}

/// Specs of attention, of which the program differs in how warps wait for each other, and problems. Two CTAs have several tiles each:
/// with one block of keys, with more of them than a ring has stages, and whole and partial ones. Or both merge the parts of one tile, in memory or as a cluster.
const ATTENTION: [(&str, &[&str]); 8] = [
    ("d=64 tile=64x64 stages=2", FULL),
    ("d=64 tile=128x64 stages=2 mask=causal", CAUSAL),
    ("d=64 tile=128x64 stages=2 mask=causal overlap=on turns=off", CAUSAL),
    ("d=64 tile=64x64 stages=2 mask=causal order=drawn store=direct", CAUSAL),
    ("d=64 tile=64x64 stages=1 store=direct", FULL),
    ("d=64 tile=64x32 stages=2 pages=16 pack=2 parts=2", PAGES),
    ("d=64 tile=64x32 stages=2 pack=2 cluster=2", CLUSTER),
    ("d=576x512 tile=64x64 pack=16 mask=causal", LATENT),
];
const FULL: &[&str] = &[
    "1x2/1x70x50 d=64",
    "1x8/8x130x40 d=64",
    "1x8/8x130x100 d=64",
    "1x8/8x130x190 d=64",
    "1x2/2x200x470 d=64",
];
const CLUSTER: &[&str] = &["1x2/1x3x390 d=64", "1x4/2x34x20 d=64"];
const CAUSAL: &[&str] = &[
    "1x2/1x70x50 d=64 mask=causal",
    "1x8/8x260x40 d=64 mask=causal",
    "1x8/8x130x130 d=64 mask=causal",
    "1x8/8x100x190 d=64 mask=causal",
    "1x2/2x260x470 d=64 mask=causal",
];
const PAGES: &[&str] = &[
    "1x2/1x1x60 d=64 pages=16",
    "2x4/2x1x60 d=64 pages=16",
    "8x4/2x1x40 d=64 pages=16",
    "8x4/2x1x100 d=64 pages=16",
    "8x4/2x1x190 d=64 pages=16",
    "1x2/1x40x300 d=64 pages=16",
];

/// One block of keys, odd and even numbers of them, more than a ring has stages, and several tiles of a CTA.
const LATENT: &[&str] = &[
    "1x16/1x3x20 d=576x512 mask=causal",
    "2x16/1x9x90 d=576x512 mask=causal",
    "1x16/1x9x160 d=576x512 mask=causal",
    "1x16/1x17x256 d=576x512 mask=causal",
];

/// Kernels of attention.
fn attention() -> impl Iterator<Item = Box<dyn Subject>> {
    ATTENTION.into_iter().filter_map(|(text, problems)| {
        let kernel = Attention::of_spec(&text.parse().ok()?).ok()?;
        let call = |problem: &&str| -> Option<(AttentionCall, Vec<u32>)> {
            let request = AttentionRequest { log_sum_exp: true, ..problem.parse().ok()? };
            Some((Attention::call(&request), Attention::words(&request, Contents::Table)))
        };
        let calls = problems.iter().map(call).collect::<Option<_>>()?;
        let AttentionSpec { parts, order, .. } = kernel.plan().spec;
        let again = parts.are_in_memory() || order == Order::Drawn;
        let name = format!("attention {text}");
        Some(Box::new(Calls { again, resident: 2, ..Calls::new(name, kernel, calls) }) as Box<dyn Subject>)
    })
}

/// Specs of attention's backward pass.
const BACKWARD: [(&str, &[Step]); 5] = [
    ("tile=64x128 mask=causal mixed=0", &[Step::Main, Step::Finish]),
    ("d=64 tile=128x128 deterministic=on", &[Step::Main]),
    ("d=256 tile=64x64 mixed=0", &[Step::Main]),
    ("d=64 tile=128x128 mask=causal mixed=0 split=2", &[Step::Main]),
    ("d=64 tile=128x128 mixed=0 apart=1", &[Step::Main]),
];

/// Programs of attention's backward pass. A tile of queries sees two blocks of keys at most: more have sums of dQ that depend on the
/// order of adds. Two CTAs run at the same time: those of one head store zeros for the next one, or blocks add in a fixed order.
fn backward() -> impl Iterator<Item = Box<dyn Subject>> {
    let programs = BACKWARD.into_iter().flat_map(|(text, steps)| steps.iter().map(move |step| (text, *step)));
    programs.filter_map(|(text, step)| {
        let kernel = AttentionBackward::of_spec(&text.parse().ok()?).ok()?;
        let BackwardSpec { tile: [rows, block], head: [d, dv], mask, deterministic, split, apart, .. } =
            kernel.plan().spec;
        let call = |[heads, shared, queries, keys]: [u32; 4]| -> Option<(BackwardCall, Vec<u32>)> {
            let problem = format!("1x{heads}/{shared}x{queries}x{keys} d={d}x{dv} mask={}", mask.name());
            let mut call = AttentionBackward::call(&problem.parse().ok()?);
            // A program has no memory for what it does not access.
            let BackwardCall { forward, d_o, d_q, d_k, d_v, .. } = &mut call;
            let AttentionCall { q, k, v, o, log_sum_exp, .. } = forward;
            [q, k, v, o, d_o, d_q, d_k, d_v].into_iter().for_each(|of| of.address = 256);
            *log_sum_exp = 256;
            // All programs have one workspace, which is the caller's.
            call.workspace = Some(Buffer::new(0, kernel.workspace(&forward.problem, &forward.packed)));
            Some((call, Vec::new()))
        };
        // Of two heads for each CTA, or of one, more tiles than any ring has stages.
        let of_two = match (deterministic, apart) {
            (true, _) => 3,
            (false, 0) => 2,
            (false, _) => 4,
        };
        // Heads of keys, which follow each other.
        let shared = if deterministic || apart > 0 { 1 } else { 2 };
        let problems = [
            [1, 1, rows - 8, 40],
            [2 * split * shared, shared, of_two * rows - 8, 2 * block - 8],
            [1, 1, 5 * rows, block],
        ];
        let calls = problems.into_iter().map(call).collect::<Option<_>>()?;
        // Exponents and row sums of queries.
        let noise = move |call: &BackwardCall| {
            let AttentionProblem { heads: [heads, _], queries, .. } = call.forward.problem;
            (heads * queries.next_multiple_of(rows) * 8) as usize
        };
        let name = match step {
            Step::Main => format!("attention-backward {text}"),
            Step::Prepare | Step::Finish => format!("attention-backward {text}, {step:?}"),
        };
        let of = Calls { resident: 2, ..Calls::new(name, kernel.step(step), calls) };
        Some(Box::new(Calls { noise: Box::new(noise), ..of }) as Box<dyn Subject>)
    })
}

/// The kernels: those that prepare operands are one of each element size.
pub(super) fn kernels() -> Vec<Box<dyn Subject>> {
    let of_sizes = [Format::E4m3, Format::Bf16, Format::Tf32, Format::F64];
    let transposes = of_sizes.into_iter().filter_map(|format| {
        let (name, kernel) = (format!("transpose-{}", format.name()), Transpose::of(format)?);
        Some(Box::new(Calls::new(name, kernel, without_tables(transpositions()))) as Box<dyn Subject>)
    });
    let compresses = of_sizes.into_iter().filter_map(|format| {
        let (name, kernel) = (format!("compress-{}", format.name()), Compress::of(format).ok()?);
        let (calls, pruned) = (without_tables(compressions(format)), (2, format.bytes() as usize));
        Some(Box::new(Calls { pruned, ..Calls::new(name, kernel, calls) }) as Box<dyn Subject>)
    });
    transposes.chain(compresses).chain(attention()).chain(backward()).collect()
}

fn without_tables<C>(calls: Vec<C>) -> Vec<(C, Vec<u32>)> {
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

/// Whole and partial tiles, one and several matrices, rows at multiples of 16 bytes and others.
fn transpositions() -> Vec<Transposition> {
    let matrix = |lines: u32, ld: u32| MatrixRef::new(0, ld.into()).every((lines * ld).into());
    let of = |(rows, columns, padding, count): (u32, u32, u32, u32)| Transposition {
        rows,
        columns,
        count,
        a: matrix(rows, columns + padding),
        d: matrix(columns, rows + padding),
    };
    [(128, 256, 0, 1), (70, 130, 2, 2), (33, 61, 0, 1), (16, 48, 16, 3)].map(of).to_vec()
}

/// Whole and partial blocks, rows at multiples of 16 bytes and others; the last two operands are not sparse.
fn compressions(format: Format) -> Vec<Compression> {
    let of = |(rows, k, padding): (u32, u32, u32)| Compression {
        rows,
        k,
        dense: MatrixRef::new(0, (k + padding).into()),
        values: MatrixRef::new(0, (sparse::kept(format, k) + padding).into()),
        metadata: MatrixRef::new(0, sparse::metadata_ld(format, k)),
        found: 0,
    };
    [(128, 256, 0), (70, 100, 2), (70, 200, 8), (5, 36, 0)].map(of).to_vec()
}

impl<K, C> Subject for Calls<K, C>
where
    K: Kernel<C> + Send + Sync,
    C: Clone + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn program(&self) -> Result<Program, VerifyError> {
        self.kernel.program()
    }

    fn cases(&self, _: &Function) -> Result<Vec<Case>, String> {
        let case = |(i, (call, words)): (usize, &(C, Vec<u32>))| {
            let checks = Checks::<Relaunched>::emulated(&self.kernel, (call, words), self.resident);
            let checks = checks.map_err(|error| error.to_string())?.ok_or("the problem has no elements")?;
            let checks = checks.with_workspace().changed(|Relaunched { launch, times }, memory| {
                let (pruned, bytes) = self.pruned;
                if i < pruned {
                    memory[0].chunks_exact_mut(2 * bytes).for_each(|pair| pair[..bytes].fill(0));
                }
                let noise = (self.noise)(call);
                if let Some(workspace) = memory.last_mut().filter(|_| noise > 0) {
                    workspace[..noise].copy_from_slice(&Fill::new(0x5EED).matrix(Format::F32, noise));
                }
                // As for more matrices than a grid's largest third dimension: the CTAs go on to other matrices.
                launch.grid.ctas[2] = launch.grid.ctas[2].div_ceil(2);
                *times = if self.again { 2 } else { 1 };
            });
            Ok(Case { checks, long: false })
        };
        self.calls.iter().enumerate().map(case).collect()
    }
}
