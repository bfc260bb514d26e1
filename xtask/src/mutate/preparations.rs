//! Kernels that are no GEMM: those that transpose and compress operands, and attention.

use attention::{Attention, AttentionProblem, AttentionRequest};
use collective::{Format, MatrixRef, sparse};
use emulator::Memory;
use kernel::operands::{Fill, Places};
use kernel::{Compress, Compression, Family, Kernel, Program, Transpose, Transposition};
use ptx::{Function, VerifyError};

use super::subject::Subject;
use super::trial::Case;

/// A kernel and the calls of its problems, with addresses of no memory.
struct Calls<K, C> {
    name: String,
    kernel: K,
    calls: Vec<C>,
    /// Number of calls whose first input is made sparse, and the bytes of its elements: every other element is
    /// zero.
    pruned: (usize, usize),
    /// Number of resident clusters.
    slots: u32,
}

/// Specs of attention, of which the program differs in how warps wait for each other.
const ATTENTION: [&str; 4] = [
    "d=64 tile=64x64",
    "d=64 tile=128x64 mask=causal",
    "d=64 tile=128x64 mask=causal overlap=on turns=off",
    "d=64 tile=64x64 store=direct stages=1",
];

/// Kernels of attention. Two CTAs have several tiles each: with one block of keys, with more of them than a ring has stages, and whole and
/// partial ones.
fn attention() -> impl Iterator<Item = Box<dyn Subject>> {
    ATTENTION.into_iter().filter_map(|text| {
        let kernel = Attention::of_spec(&text.parse().ok()?).ok()?;
        let spec = kernel.plan().spec;
        let call = |(heads, lengths): ([u32; 2], [u32; 2])| {
            let problem =
                AttentionProblem { heads, ..AttentionProblem::new(1, heads[0], lengths, spec.head[0]) };
            let request = AttentionRequest::new(problem, spec.head[0]);
            let request = AttentionRequest { mask: spec.mask, log_sum_exp: true, ..request };
            Attention::call(&request)
        };
        let calls = [([2, 1], [70, 50]), ([4, 2], [130, 64]), ([2, 2], [200, 470])].map(call).to_vec();
        let name = format!("attention {text}");
        Some(Box::new(Calls { name, kernel, calls, pruned: (0, 1), slots: 2 }) as Box<dyn Subject>)
    })
}

/// The kernels: those that prepare operands are one of each element size.
pub(super) fn kernels() -> Vec<Box<dyn Subject>> {
    let of_sizes = [Format::E4m3, Format::Bf16, Format::Tf32, Format::F64];
    let transposes = of_sizes.into_iter().filter_map(|format| {
        let (name, kernel) = (format!("transpose-{}", format.name()), Transpose::of(format)?);
        let (calls, pruned) = (transpositions(), (0, 1));
        Some(Box::new(Calls { name, kernel, calls, pruned, slots: 1 }) as Box<dyn Subject>)
    });
    let compresses = of_sizes.into_iter().filter_map(|format| {
        let (name, kernel) = (format!("compress-{}", format.name()), Compress::of(format).ok()?);
        let (calls, pruned) = (compressions(format), (2, format.bytes() as usize));
        Some(Box::new(Calls { name, kernel, calls, pruned, slots: 1 }) as Box<dyn Subject>)
    });
    transposes.chain(compresses).chain(attention()).collect()
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
        metadata: MatrixRef::new(0, sparse::metadata_ld(format, k).into()),
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
        let case = |(i, call): (usize, &C)| {
            let (mut call, mut memory) = (call.clone(), Memory::new());
            let mut allocate = |bytes| memory.allocate(bytes);
            let mut places = Places::new(&mut allocate);
            self.kernel.visit(&mut call, &mut places);
            let mut random = Fill::new(0x5EED);
            let mut contents: Vec<Vec<u8>> = places.pieces.iter().map(|piece| random.bytes(piece)).collect();
            let (pruned, bytes) = self.pruned;
            if i < pruned {
                contents[0].chunks_exact_mut(2 * bytes).for_each(|pair| pair[..bytes].fill(0));
            }
            let launch = self.kernel.launch(&call, self.slots).map_err(|error| error.to_string())?;
            let mut launch = launch.ok_or("the problem has no elements")?;
            // As for more matrices than a grid's largest third dimension: the CTAs go on to other matrices.
            launch.grid.ctas[2] = launch.grid.ctas[2].div_ceil(2);
            Ok(Case { launch, contents, outputs: places.outputs(), again: None, long: false })
        };
        self.calls.iter().enumerate().map(case).collect()
    }
}
