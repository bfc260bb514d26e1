//! Your own layouts for tiles in shared memory: A in slabs of 64 bytes, D staged in rows of 32 bytes.
//!
//! The default layout is the widest swizzle that fits the tile. A narrower one needs more copies per tile;
//! use it if other code that reads the stage needs it. A layout that `wgmma` or tensor copies cannot read
//! does not compile, and the error says which layouts they can read.
//!
//! `cargo run --release --example own_layout`

use falchion::collective::functions::Multiply;
use falchion::collective::tree::{Accumulator, Compute, Scalar};
use falchion::collective::{RowMajor, Sw, Swizzled};
use falchion::prelude::*;
use falchion::verify::Bench;

/// 8 rows of 32 elements (64 bytes), whose 16-byte chunks are permuted by 2 bits.
type Half = Swizzled<Sw<U2, U3, U3>, RowMajor<(U8, U32)>>;
/// 8 rows of 16 elements (32 bytes), whose 16-byte chunks are permuted by 1 bit.
type Quarter = Swizzled<Sw<U1, U3, U3>, RowMajor<(U8, U16)>>;

/// Illegal layouts stop the build here: try `RowMajor<(U16, U32)>`, or a tile with K = 48.
type MyGemm = Composed<
    TmaWgmma<Operands<KMajor<bf16, Half>, KMajor<bf16>>, Tile<U128, U96, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, TmaStore<U2, Quarter>, Compute<Multiply, (Accumulator, Scalar)>>,
    Persistent<Grouped<AlongM, U8>>,
>;
const PLAN: Plan = Gemm::<MyGemm>::PLAN;

fn main() -> Result<(), Report> {
    let [a, b] = PLAN.operands;
    println!("A's tile: {}", a.layout());
    println!("B's tile: {}", b.layout());
    println!("D's buffers: rows of {} bytes", PLAN.staging.swizzle.bytes());
    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    let mut bench = Bench::new(engine.as_mut(), 1);
    let checked = bench.check::<MyGemm>(GemmProblem { m: 300, n: 200, k: 96 }, &((), ((), 1.0)))?;
    println!("{} elements, error at most {:.2} of the bound", checked.compared, checked.ratio);
    Ok(())
}
