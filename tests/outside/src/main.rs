//! User-written parts outside the library: an epilogue, layouts, a scheduler, a mainloop, each in kernels
//! that the emulator runs.

mod epilogue;
mod layout;
// The manual shows these two files.
#[path = "../../../src/manual/own_mainloop.rs"]
mod mainloop;
#[path = "../../../src/manual/own_scheduler.rs"]
mod scheduler;

use std::error::Error;

use falchion::collective::{Batch, Matrix};
use falchion::prelude::*;
use falchion::verify::{Bench, Format, HostMatrix, Order};

use epilogue::HillOfSums;
use layout::{Row, Slab};
use mainloop::{Second, TwoB};
use scheduler::Runs;

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Tma<O> = TmaWgmma<O, Tile<U128, U64, U64>, Cooperative<U2>>;

/// The epilogue of this crate, and a scheduler of the library.
type Epilogue = Composed<Tma<Kk>, HillOfSums<TmaStore>, OneTile<AlongM>>;
/// This crate's layouts of A's and D's tiles, and its scheduler.
type Layouts = Composed<Tma<Operands<KMajor<bf16, Slab>, KMajor<bf16>>>, HillOfSums<TmaStore<U2, Row>>, Runs>;
/// This crate's mainloop and scheduler.
type Sums = Composed<TwoB, LinearCombination<f32>, Runs>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut engine = Emulator::new().with_multiprocessors(3);
    let problem = GemmProblem { m: 270, n: 136, k: 200 };
    for checked in [
        Bench::new(&mut engine, 1).check::<Epilogue>(problem, &(4.0, ((),)))?,
        Bench::new(&mut engine, 2).check::<Layouts>(problem, &(0.5, ((),)))?,
    ] {
        println!("{} elements, error at most {:.2} of the bound", checked.compared, checked.ratio);
    }
    println!("{} sums of two products", two_products(&mut engine, problem)?);
    Ok(())
}

/// Compares `D = A * (B1 + B2)` with sums in f64; returns the number of compared elements.
fn two_products(engine: &mut Emulator, problem: GemmProblem) -> Result<usize, Box<dyn Error>> {
    let GemmProblem { m, n, k } = problem;
    let mut seed = 1u32;
    let mut random = |rows| {
        HostMatrix::from_fn(Format::Bf16, [rows, k], Order::RowMajor, k, |_, _| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(seed >> 8) / 8_388_608.0 - 1.0
        })
    };
    let (a, b, more) = (random(m), random(n), random(n));
    let [a_at, b_at, more_at] = [&a, &b, &more].map(|matrix| engine.upload(&matrix.bytes()));
    let d = engine.upload(&f32::NAN.to_le_bytes().repeat((m * n) as usize))?;
    let second =
        Second(Some(Matrix { address: more_at?.address, mn: n, k, pitch: k.into(), batch: Batch::ONE }));
    let call = Call::of(problem).a(a_at?.address, k.into()).b(b_at?.address, k.into()).d(d.address, n.into());
    let program = Gemm::<Sums>::program()?;
    let launch =
        Gemm::<Sums>::bind(&second).launch(&call, engine.slots(&program)?)?.ok_or("an empty product")?;
    engine.launch(&program, launch.grid, &launch.arguments)?;
    let got = engine.read(d)?;
    for (place, word) in got.chunks_exact(4).enumerate() {
        let (i, j) = (place as u32 / n, place as u32 % n);
        let want: f64 = (0..k).map(|k| a.get(i, k) * (b.get(j, k) + more.get(j, k))).sum();
        let got = f64::from(f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        if (got - want).abs() > 1e-3 {
            return Err(format!("D({i}, {j}) is {got}, not {want}").into());
        }
    }
    Ok(got.len() / 4)
}
