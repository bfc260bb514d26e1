//! The router of an MoE layer: `D = softmax of the 2 largest of (A * B + bias) in each row, zero elsewhere`.
//! The kernel also adds up the load of each expert, in a fixed order.
//!
//! `cargo run --release --example router`

use falchion::collective::functions::Add;
use falchion::collective::tree::{
    Accumulator, Compute, OrderedRow, RowArgument, RowVector, Shape, Sum, TopKSoftmax,
};
use falchion::prelude::*;
use falchion::verify::{Bench, Format};

/// The load of an expert is the sum of its column.
type Logits = Compute<Add, (Accumulator, RowVector<bf16>)>;
type Router = OrderedRow<Sum, TopKSoftmax<U2, Logits>>;

/// At most 64 experts, so that a whole row is in one tile.
type MyGemm = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U64, U64>, Cooperative<U2>>,
    TreeEpilogue<f32, TmaStore, Router>,
    Persistent<Grouped<AlongM, U8>>,
>;

fn main() -> Result<(), Report> {
    let mut engine: Box<dyn Engine> = match Gpu::new(0) {
        Ok(gpu) => Box::new(gpu),
        Err(_) => Box::new(Emulator::new()),
    };
    let (tokens, experts) = (300, 64);
    let mut bench = Bench::new(engine.as_mut(), 1);
    let bias = RowArgument { address: bench.random(Format::Bf16, experts, 0)?, len: experts };
    let load = RowArgument { address: bench.upload(&vec![0; 4 * experts as usize])?, len: experts };
    let scratch = bench.scratch(Router::scratch_bytes(Shape { m: tokens, n: experts }))?;
    let problem = GemmProblem { m: tokens, n: experts, k: 96 };
    let checked = bench.check::<MyGemm>(problem, &((load, scratch), ((), ((), bias))))?;
    println!(
        "{} elements as the tree says, error at most {:.2} of the bound",
        checked.compared, checked.ratio
    );
    let chosen = checked.d.iter().filter(|&&weight| weight > 0.0).count();
    println!("{chosen} weights for {tokens} tokens");
    let bytes = bench.read(load.address)?;
    let loads =
        bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    println!("the largest load of an expert is {:.1} tokens", loads.fold(0.0, f32::max));
    Ok(())
}
