//! User-written parts outside the library: an epilogue, layouts, a scheduler, mainloops, each in kernels
//! that the emulator runs.

mod epilogue;
mod factor;
mod layout;
mod rms_norm;
// The manual shows these two files.
#[path = "../../../src/manual/own_mainloop.rs"]
mod mainloop;
#[path = "../../../src/manual/own_scheduler.rs"]
mod scheduler;

use std::error::Error;

use falchion::collective::{Batch, Mainloop, Matrix};
use falchion::emulator::Schedule;
use falchion::kernel::disk::records::{Measurement, RecordsOf};
use falchion::kernel::disk::{Cache, Key};
use falchion::kernel::{Family, Machine, Predicted};
use falchion::prelude::*;
use falchion::verify::family;
use falchion::verify::{Bench, Format, HostMatrix, Order};

use epilogue::HillOfSums;
use factor::{Factor, Factored};
use layout::{Row, Slab};
use rms_norm::{RmsNorm, Rows};
use mainloop::{Second, TwoB};
use scheduler::Runs;

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Tma<O> = TmaWgmma<O, Tile<U128, U64, U64>, Cooperative<U2>>;

/// The epilogue of this crate, and a scheduler of the library.
type Epilogue = Composed<Tma<Kk>, HillOfSums<TmaStore>, OneTile<AlongM>>;
/// This crate's layouts of A's and D's tiles, and its scheduler.
type Layouts = Composed<Tma<Operands<KMajor<bf16, Slab>, KMajor<bf16>>>, HillOfSums<TmaStore<U2, Row>>, Runs>;
/// This crate's mainloop and scheduler.
type Accumulators = Composed<TwoB, LinearCombination<f32>, Runs>;
/// The same mainloop in a batch.
type BatchOfSums = Batched<Composed<TwoB, LinearCombination<f32>, OneTile<AlongM>>>;
/// A mainloop around one of the library's.
type Times = Composed<Factored, LinearCombination<f32>, Persistent<AlongM>>;

fn main() -> Result<(), Box<dyn Error>> {
    let mut engine = Emulator::new().with_multiprocessors(3);
    let problem = GemmProblem { m: 270, n: 136, k: 200 };
    for checked in [
        Bench::new(&mut engine, 1).check::<Epilogue>(problem, &(4.0, ((),)))?,
        Bench::new(&mut engine, 2).check::<Layouts>(problem, &(0.5, ((),)))?,
    ] {
        println!("{} elements, error at most {:.2} of the bound", checked.compared, checked.ratio);
    }
    println!("{} sums of two products", sums::<Accumulators>(&mut engine, problem, 1)?);
    println!("{} sums of two products in a batch", sums::<BatchOfSums>(&mut engine, problem, 2)?);
    let factor = engine.upload(&0.5f32.to_le_bytes())?;
    let [a, b] = [(problem.m, 4), (problem.n, 5)]
        .map(|(rows, seed)| Matrices::random(&mut engine, rows, problem.k, (1, seed)));
    let (a, b) = (a?, b?);
    let want = |i, j| 0.5 * dot(&a.all[0], &b.all[0], i, j);
    let compared = compare::<Times>(&mut engine, &Factor(factor.address), [&a, &b], &|_, i, j| want(i, j))?;
    println!("{compared} products times a factor");
    norms(&mut engine)
}

/// A family of this crate: chosen, checked, traced, kept on disk, and proven.
fn norms(engine: &mut Emulator) -> Result<(), Box<dyn Error>> {
    let machine = Machine::h200();
    for request in [Rows { rows: 7, columns: 264 }, Rows { rows: 40, columns: 1000 }, Rows { rows: 0, columns: 8 }] {
        let ranked = RmsNorm::ranked(&request, &machine, 6)?;
        assert_eq!(ranked.len(), 6);
        for Predicted { kernel, .. } in &ranked {
            let agreed = family::check(engine, kernel, &request, (1, usize::MAX))?;
            assert_eq!(agreed.compared, (request.rows * request.columns) as usize);
        }
    }
    let (request, kernel) = (Rows { rows: 5, columns: 264 }, "warps=2".parse::<RmsNorm>()?);
    let proof = family::prove(&kernel, &RmsNorm::call(&request), 4)?;
    // Another number for one of its two barriers is as good.
    assert!(proof.survivors.iter().all(|of| of.to_string().starts_with("bar.sync id + 1")), "{proof:?}");
    println!("{} mutants of a norm are noticed", proof.killed + proof.refused);
    let traced = family::trace(&kernel, &RmsNorm::call(&request), (2, Schedule::Paced, 0))?;
    let (trace, outcome) = traced.ok_or("there are rows")?;
    outcome?;
    assert!(!trace.events.is_empty());
    // Its records on disk.
    let folder = std::env::temp_dir().join(format!("outside-{}", std::process::id()));
    let (cache, key) = (Cache::at(&folder), Key::new("a card", "a driver", RecordsOf::<RmsNorm>::digest())?);
    let mut records = RecordsOf::<RmsNorm>::default();
    records.insert(RmsNorm::problem(&request), Measurement::now(kernel, 2.5))?;
    records.save(&cache, &key)?;
    let (kept, warnings) = RecordsOf::<RmsNorm>::load(&cache, &key);
    std::fs::remove_dir_all(&folder)?;
    assert_eq!((&kept, warnings.len()), (&records, 0));
    let times: Vec<_> = kept.lookup(&request).iter().map(|of| (of.spec, of.microseconds)).collect();
    let best = RmsNorm::measured(&request, &machine, &times).ok_or("it was kept")?;
    assert_eq!((best.kernel, best.microseconds), (kernel, 2.5));
    Ok(())
}

/// Compares `D = A * (B1 + B2)`, for each GEMM of a batch, with sums in f64; returns the number of compared
/// elements.
fn sums<C>(
    engine: &mut Emulator,
    GemmProblem { m, n, k }: GemmProblem,
    count: u32,
) -> Result<usize, Box<dyn Error>>
where
    C: GemmConfig<Mainloop = TwoB, Epilogue = LinearCombination<f32>>,
{
    let mut random = |rows, seed| Matrices::random(engine, rows, k, (count, seed));
    let (a, b, more) = (random(m, 1)?, random(n, 2)?, random(n, 3)?);
    let batch = Batch { count, stride: u64::from(n * k) };
    let second = Second(Some(Matrix { address: more.at, mn: n, k, ld: k.into(), batch }));
    compare::<C>(engine, &second, [&a, &b], &|g, i, j| {
        dot(&a.all[g], &b.all[g], i, j) + dot(&a.all[g], &more.all[g], i, j)
    })
}

/// Compares every element `(i, j)` of GEMM `g` with `want(g, i, j)`; returns their number.
fn compare<C>(
    engine: &mut Emulator,
    own: &<C::Mainloop as Mainloop>::Arguments,
    [a, b]: [&Matrices; 2],
    want: &dyn Fn(usize, u32, u32) -> f64,
) -> Result<usize, Box<dyn Error>>
where
    C: GemmConfig<Epilogue = LinearCombination<f32>>,
{
    let ([first, second], count) = ([&a.all[0], &b.all[0]], a.all.len() as u32);
    let (m, n, k) = (first.rows, second.rows, first.columns);
    let d = engine.upload(&f32::NAN.to_le_bytes().repeat((count * m * n) as usize))?;
    let call = Call::of(GemmProblem { m, n, k }).a(a.at, k.into()).b(b.at, k.into()).d(d.address, n.into());
    let call = if count > 1 { call.batched(count) } else { call };
    let program = Gemm::<C>::program()?;
    let launch = Gemm::<C>::bind(own).launch(&call, engine.slots(&program)?)?.ok_or("an empty product")?;
    engine.launch(&program, launch.grid, &launch.arguments)?;
    let got = engine.read(d)?;
    for (place, word) in got.chunks_exact(4).enumerate() {
        let (row, j) = (place as u32 / n, place as u32 % n);
        let want = want((row / m) as usize, row % m, j);
        let got = f64::from(f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        if (got - want).abs() > 1e-3 || got.is_nan() {
            return Err(format!("D({row}, {j}) is {got}, not {want}").into());
        }
    }
    Ok(got.len() / 4)
}

/// Matrices of `bf16` that follow each other in device memory, with K contiguous.
struct Matrices {
    all: Vec<HostMatrix>,
    at: u64,
}

impl Matrices {
    fn random(
        engine: &mut Emulator,
        rows: u32,
        k: u32,
        (count, mut seed): (u32, u32),
    ) -> Result<Self, Box<dyn Error>> {
        let mut next = |_, _| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            f64::from(seed >> 8) / 8_388_608.0 - 1.0
        };
        let all: Vec<_> = (0..count)
            .map(|_| HostMatrix::from_fn(Format::Bf16, [rows, k], Order::RowMajor, k, &mut next))
            .collect();
        let bytes: Vec<u8> = all.iter().flat_map(|matrix| matrix.bytes()).collect();
        Ok(Self { all, at: engine.upload(&bytes)?.address })
    }
}

/// Row `i` of `a` times row `j` of `b`.
fn dot(a: &HostMatrix, b: &HostMatrix, i: u32, j: u32) -> f64 {
    (0..a.columns).map(|k| a.get(i, k) * b.get(j, k)).sum()
}
