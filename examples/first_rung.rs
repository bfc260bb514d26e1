//! The first rung of the ladder, written by hand: a whole tensor-core kernel on one page, instruction by
//! instruction. Only the layouts are computed by the library.
//!
//! `D (M, N) = A (M, K) * B (K, N)`, A row-major and B column-major in bf16, D row-major in f32. A CTA of one
//! warpgroup computes 64 x 64 of D. In each step it copies a tile of A and a tile of B, with K = 64, and
//! multiplies them. Copies and multiplications do not overlap. The higher rungs (`examples/ladder.rs`)
//! overlap them, with code that the types of `falchion::collective` generate.
//!
//! `cargo run --release --example first_rung` checks the kernel against f64, on the GPU if there is one, else
//! in the emulator. With `-- --ptx` it prints the kernel as PTX.

use std::error::Error;

use falchion::cute_rs::atom::boxes::{BoxPlan, tma_box};
use falchion::cute_rs::atom::descriptor::MatrixDescriptor;
use falchion::cute_rs::atom::{Major, SwizzleMode, smem, wgmma};
use falchion::cute_rs::{CoordLayout, IntTuple, Layout, LayoutError, Operand, Tensor, TiledMma, Tiler};
use falchion::kernel::Program;
use falchion::prelude::*;
use falchion::ptx::abi::{Grid, Promotion, TensorElement, TensorMap, TensorSwizzle};
use falchion::ptx::{Builder, Entry, Function, Special, Target, TensorLoad, WgmmaOperands, WgmmaTypes};

/// The instruction: `m64n64k16`, products of bf16 accumulated in f32.
const TYPES: WgmmaTypes = WgmmaTypes::Bf16F32;
/// M, N and K of a tile: one instruction along M and N, four along K. A row of a tile is 128 bytes along K.
const TILE: u32 = 64;
const THREADS: u32 = 128;
/// Shared memory has A's tile, B's tile, and a barrier that counts arriving bytes.
const TILE_BYTES: u32 = TILE * TILE * 2;
const BARRIER: u32 = 2 * TILE_BYTES;

fn emit(f: &Builder) -> Result<(), LayoutError> {
    // The kernel's parameters. A tensor map describes a whole matrix to the copy engine.
    let (a_map, b_map) = (f.tensor_map("a_map"), f.tensor_map("b_map"));
    let (d, m, n, k) = (f.param::<u64>("d"), f.param::<u32>("m"), f.param("n"), f.param("k"));
    let shared = f.shared_base();
    let (thread, zero) = (f.special(Special::ThreadX), f.constant(0));
    let (a_tile, b_tile, barrier) = (shared, shared + TILE_BYTES, shared + BARRIER);

    // Which elements of D does this CTA compute? Divide the coordinates of D into tiles, and take the tile
    // with the CTA's number. The device computes only where the tile begins; the layout of the tile,
    // `(64,64):(1@0,1@1)`, is known here. The extents of D are not, so use the coordinates of a large matrix.
    let coordinates = CoordLayout::identity(IntTuple::from((1 << 20, 1 << 20)))?;
    let tile_shape = IntTuple::from((i64::from(TILE), i64::from(TILE)));
    let cta = [Special::CtaX, Special::CtaY].map(|axis| Some(f.special(axis)));
    let d_tile = Tensor::new(coordinates, [zero, zero]).local_tile(&Tiler::Shape(&tile_shape), &cta)?;
    let [first_row, first_column] = d_tile.start;

    // One thread initialises the barrier. A phase completes with one arrival and the bytes that this arrival
    // expects.
    let first = thread.equals(0);
    f.if_(first, || {
        f.mbarrier_init(barrier, 1);
        f.fence_mbarrier_init();
    });
    f.barrier_sync(0, THREADS);

    // `wgmma` finds its operands by a descriptor, which says where a tile begins and how its rows are stored.
    // The part of the tile that an instruction reads is a partition of the tile's layout by the instruction:
    // `(_, _, step along K)`.
    let descriptor = MatrixDescriptor::new(Major::K, SwizzleMode::B128, 16, TILE, TILE)?;
    let mma = TiledMma::new(wgmma::atom(TILE, 16)?, [1, 1, 1])?;
    let steps = mma.partition(Operand::A, descriptor.layout())?.part(); // B's tile has the same layout.
    let [a_start, b_start] = [a_tile, b_tile].map(|tile| (tile >> 4).cast::<u64>() | descriptor.bits(0));

    // The 64 x 64 accumulators are in registers, 32 per thread.
    let sums: Vec<_> = (0..TYPES.accumulators(TILE)).map(|_| f.variable(0.0_f32)).collect();

    f.repeat(k.div_ceil(TILE), |k_tile| {
        // One thread sets the expected bytes and starts both copies. Elements outside the matrix arrive as
        // zeros.
        f.if_(first, || {
            f.mbarrier_arrive_expect(barrier, 2 * TILE_BYTES);
            let along_k = k_tile * TILE;
            for (map, dst, row) in [(a_map, a_tile, first_row), (b_map, b_tile, first_column)] {
                let load = TensorLoad { map, dst, barrier, multicast: None, hint: None };
                f.tensor_load(load, [along_k.cast(), row.cast()]);
            }
        });
        // All threads wait until phase `k_tile` has completed. Its parity distinguishes it from the phase
        // before.
        f.mbarrier_wait(barrier, k_tile % 2);
        // Four instructions, each with K = 16. They run asynchronously: commit makes them a group, wait waits
        // for all groups.
        f.wgmma_fence();
        for step in 0..TILE / TYPES.k() {
            // Descriptors count in units of 16 bytes, which are eight elements.
            let further = steps.at_modes(&[0, 0, step.into()]).unsigned_abs() / 8;
            f.wgmma(WgmmaOperands::new(TYPES, TILE, a_start + further, b_start + further), &sums);
        }
        f.wgmma_commit();
        f.wgmma_wait(0);
        // All threads have waited for their reads, so the tiles may be overwritten.
        f.barrier_sync(0, THREADS);
    });

    // Which elements are in this thread's registers? The instruction's layout of C says so, again as a
    // partition. Registers `v` and `v + 1` are adjacent in a row for even `v`. N is even, so both are inside
    // D or neither is.
    let own = mma.partition(Operand::C, &d_tile.layout)?.tensor(d_tile.start, &[Some(thread)])?;
    for (value, pair) in (0..).step_by(2).zip(sums.chunks_exact(2)) {
        let [row, column] = own.at(value)?;
        let element = row.cast::<u64>().mul_add(n.cast::<u64>(), column.cast::<u64>());
        let inside = row.less_than(m) & column.less_than(n);
        f.if_(inside, || f.store_global(d + element * 4, 0, [pair[0].get(), pair[1].get()]));
    }
    Ok(())
}

/// The kernel, verified.
fn kernel() -> Result<Program, Box<dyn Error>> {
    let entry = Entry {
        name: "first_rung".to_owned(),
        target: Target::Sm90a,
        threads: THREADS,
        shared_bytes: BARRIER + 8,
        cluster: [1, 1, 1],
    };
    let mut emitted = Ok(());
    let function = Function::build(entry, |f| emitted = emit(f));
    emitted?;
    Ok(Program::new(function)?)
}

/// The tensor map of an operand `(rows, K)`: its extents and leading dimension, the size of the box that a
/// copy reads, and the swizzle of the box in shared memory, with which `wgmma` reads eight rows without a
/// bank conflict.
fn tensor_map(address: u64, rows: u32, k: u32) -> Result<TensorMap, LayoutError> {
    let global = Layout::row_major(IntTuple::from((i64::from(rows), i64::from(k))))?;
    let shared = smem::tile(Major::K, SwizzleMode::B128, 16, TILE, TILE)?;
    let tile = IntTuple::from((i64::from(TILE), i64::from(TILE)));
    // The box follows from the layouts in both memories. Here it is the whole tile, with dimension 0 along K.
    let boxes: BoxPlan = tma_box(&global, &shared, &Tiler::Shape(&tile), 16)?;
    Ok(TensorMap {
        element: TensorElement::Bf16,
        address,
        dims: vec![k.into(), rows.into()],
        strides: vec![u64::from(k) * 2],
        box_dims: boxes.extents().to_vec(),
        swizzle: TensorSwizzle::B128,
        promotion: Promotion::default(),
        reach: None,
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let program = kernel()?;
    if std::env::args().any(|argument| argument == "--ptx") {
        print!("{}", program.text());
        return Ok(());
    }
    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    println!("on {}", engine.describe());

    // Tiles extend beyond every edge. Rows of A and B are multiples of 16 bytes, as tensor copies require.
    let (m, n, k) = (200_u32, 136_u32, 72_u32);
    let mut random = fastrand::Rng::with_seed(1);
    let mut matrix =
        |count: u32| -> Vec<bf16> { (0..count).map(|_| bf16::from_f32(random.f32() * 2.0 - 1.0)).collect() };
    let (a, b) = (matrix(m * k), matrix(n * k));
    let bytes = |matrix: &[bf16]| matrix.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let (a_buffer, b_buffer) = (engine.upload(&bytes(&a))?, engine.upload(&bytes(&b))?);
    let d_buffer = engine.upload(&f32::NAN.to_le_bytes().repeat((m * n) as usize))?;

    let arguments = [
        tensor_map(a_buffer.address, m, k)?.into(),
        tensor_map(b_buffer.address, n, k)?.into(),
        d_buffer.address.into(),
        m.into(),
        n.into(),
        k.into(),
    ];
    let grid = Grid { ctas: [m.div_ceil(TILE), n.div_ceil(TILE), 1] };
    engine.launch(&program, grid, &arguments)?;

    let d: Vec<_> = engine.read(d_buffer)?.chunks_exact(4).map(read_f32).collect();
    // Products of bf16 are exact in f32. Each of the K partial sums is at most K, and rounds by at most 2^-23
    // of that.
    let bound = f64::from(k).powi(2) * 2_f64.powi(-23);
    let mut largest = 0.0_f64;
    for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
        let product = |i: u32| a[(row * k + i) as usize].to_f64() * b[(column * k + i) as usize].to_f64();
        let exact: f64 = (0..k).map(product).sum();
        let error = (f64::from(d[(row * n + column) as usize]) - exact).abs();
        // An element that was not written is still NaN.
        if error.is_nan() || error > bound {
            return Err(format!("element ({row},{column}) is wrong by {error:.2e}").into());
        }
        largest = largest.max(error);
    }
    println!("{m} x {n} x {k}: the largest error is {largest:.2e}, and {bound:.2e} is allowed");
    Ok(())
}

fn read_f32(bytes: &[u8]) -> f32 {
    f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}
