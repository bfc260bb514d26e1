//! Rotary position embeddings, fused into the projection that computes queries: heads of 64 columns, and one
//! row of cosines and sines per position.
//!
//! `cargo run --release --example rope`

use falchion::collective::tree::{Accumulator, Cyclic, Rotate};
use falchion::prelude::*;
use falchion::verify::Bench;

/// Number of columns per head.
const HEAD: u32 = 64;

type Queries = Rotate<Accumulator, Cyclic<bf16, U64>>;

type MyGemm = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U128, U64>, Cooperative<U2>>,
    TreeEpilogue<bf16, TmaStore, Queries>,
    Persistent<Grouped<AlongM, U8>>,
>;

fn main() -> Result<(), Report> {
    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    let (positions, heads) = (200, 4);
    // Cosine and sine of each pair of columns are adjacent.
    let table: Vec<u8> = (0..positions * HEAD)
        .flat_map(|i| {
            let (position, column) = (i / HEAD, i % HEAD);
            let angle = position as f32 / 10_000f32.powf((column / 2 * 2) as f32 / HEAD as f32);
            bf16::from_f32(if column % 2 == 0 { angle.cos() } else { angle.sin() }).to_le_bytes()
        })
        .collect();
    let mut bench = Bench::new(engine.as_mut(), 1);
    let angles = MatrixRef::new(bench.upload(&table)?, HEAD.into());
    let problem = GemmProblem { m: positions, n: heads * HEAD, k: 128 };
    let checked = bench.check::<MyGemm>(problem, &((), angles))?;
    println!(
        "{} elements as the tree says, error at most {:.2} of the bound",
        checked.compared, checked.ratio
    );
    Ok(())
}
