//! User-written parts outside the library: an epilogue, layouts, a scheduler, mainloops, each in kernels
//! that the emulator runs; and families, of kernels with these mainloops and of kernels that are no GEMM.

mod dual;
mod epilogue;
mod factor;
mod gather;
mod layout;
mod linear;
mod mlp;
mod nf4;
mod rms_gemm;
mod rms_norm;
// The manual shows these files.
#[path = "../../../src/manual/own_family.rs"]
mod conv;
#[path = "../../../src/manual/own_mainloop.rs"]
mod mainloop;
#[path = "../../../src/manual/own_scheduler.rs"]
mod scheduler;

use std::error::Error;
use std::process::{Command, ExitCode};

use falchion::cli::{self, AnyFamily};
use falchion::collective::{Batch, Mainloop, Matrix};
use falchion::emulator::Schedule;
use falchion::kernel::disk::records::RecordsOf;
use falchion::kernel::disk::{Cache, Key};
use falchion::kernel::driver::{Context, Tuning, tuned};
use falchion::kernel::operands::Contents;
use falchion::kernel::words::Sizes;
use falchion::kernel::{Family, Inputs, Machine, OwnGemm, Predicted};
use falchion::prelude::*;
use falchion::verify::family;
use falchion::verify::{Bench, Format, HostMatrix, Order};

use conv::ConvGemm;
use dual::DualGemm;
use epilogue::{HillOfSums, Squared};
use factor::{Factor, Factored};
use gather::GatherGemm;
use layout::{Row, Slab};
use linear::Linear;
use mainloop::{Second, TwoB};
use mlp::Mlp;
use nf4::Nf4Gemm;
use rms_gemm::RmsGemm;
use rms_norm::RmsNorm;
use scheduler::Runs;

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Tma<O> = TmaWgmma<O, Tile<U128, U64, U64>, Cooperative<U2>>;

/// The epilogue of this crate, and a scheduler of the library.
type Epilogue = Composed<Tma<Kk>, HillOfSums<TmaStore>, OneTile<AlongM>>;
/// A whole epilogue of this crate.
type Squares = Composed<Tma<Kk>, Squared<TmaStore>, OneTile<AlongM>>;
/// This crate's layouts of A's and D's tiles, and its scheduler.
type Layouts = Composed<Tma<Operands<KMajor<bf16, Slab>, KMajor<bf16>>>, HillOfSums<TmaStore<U2, Row>>, Runs>;
/// This crate's mainloop and scheduler.
type Accumulators = Composed<TwoB, LinearCombination<f32>, Runs>;
/// The same mainloop in a batch.
type BatchOfSums = Batched<Composed<TwoB, LinearCombination<f32>, OneTile<AlongM>>>;
/// A mainloop around one of the library's.
type Times = Composed<Factored, LinearCombination<f32>, Persistent<AlongM>>;

/// The families of this crate.
const FAMILIES: [AnyFamily; 8] = [
    AnyFamily::of::<RmsNorm>(),
    AnyFamily::of::<OwnGemm<DualGemm>>(),
    AnyFamily::of::<OwnGemm<GatherGemm>>(),
    AnyFamily::of::<Mlp>(),
    AnyFamily::of::<OwnGemm<ConvGemm>>(),
    AnyFamily::of::<Linear>(),
    AnyFamily::of::<OwnGemm<Nf4Gemm>>(),
    AnyFamily::of::<OwnGemm<RmsGemm>>(),
];

/// Without arguments, all of this; with arguments, the command line of the library with this crate's families.
fn main() -> ExitCode {
    if std::env::args().len() > 1 {
        return cli::run(&FAMILIES);
    }
    match all().and_then(|()| commands()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Every command that works without a card, for each family.
fn commands() -> Result<(), Box<dyn Error>> {
    let mut count = 0;
    for (family, kernel, problem) in [
        (RmsNorm::NAME, "warps=2", "7x264"),
        (OwnGemm::<DualGemm>::NAME, "64x64-pingpong", "70x64x136"),
        (OwnGemm::<GatherGemm>::NAME, "64x64-stream-k", "60x16x520"),
        (Mlp::NAME, "consumers=1 stages=2", "64x136"),
        (OwnGemm::<ConvGemm>::NAME, "128x64-2x2", "1x9x10x64 24x3x3 padding=1x1"),
        (Linear::NAME, "stages=2", "2x150"),
        (OwnGemm::<Nf4Gemm>::NAME, "64x64-stream-k", "64x40x256"),
        (OwnGemm::<RmsGemm>::NAME, "64x64-pingpong", "70x64x136"),
    ] {
        let page = std::env::temp_dir().join(format!("outside-{}.html", std::process::id()));
        let page = page.to_string_lossy();
        for (line, words) in [
            (vec!["plan", "--problem", problem], "TFLOP/s"),
            (vec!["plan", "--kernel", kernel], "shared bytes"),
            (vec!["emit", "--kernel", kernel], ".visible .entry"),
            (vec!["verify", "--problem", problem, "--engine", "emulator"], "0 failed"),
            (vec!["trace", "--problem", problem, "--kernel", kernel], "steps"),
            (vec!["explore", "--problem", problem, "--kernel", kernel, "--out", &page], ""),
        ] {
            let line = [&line[..], &["--family", family]].concat();
            let ran = Command::new(std::env::current_exe()?).args(&line).output()?;
            let [out, complained] =
                [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            if !ran.status.success() || !out.contains(words) {
                return Err(format!("{line:?}: {}, {out}{complained}", ran.status).into());
            }
            count += 1;
        }
        std::fs::remove_file(&*page)?;
    }
    let conv = OwnGemm::<ConvGemm>::NAME;
    for (family, problem, words) in [
        (conv, "1x9x10", "FILTERSxTAPSxTAPS and words such as padding= were needed"),
        (conv, "1x9x10x64 24x3x3 padding=1", "`padding=1`: a number of pixels for each dimension was needed"),
        (conv, "1x9x10x64 24x3x3 stride=0x1 padding=1x1", "has no results: strides from 1 on"),
        (conv, "1x2x2x64 24x5x5", "has no results: strides from 1 on"),
        (
            conv,
            "1x9x10x64 24x3x3 stride=9x1 padding=1x1",
            "the stride along the height is 9, 1 to 8 was needed",
        ),
    ] {
        let line = ["verify", "--family", family, "--problem", problem, "--engine", "emulator"];
        let ran = Command::new(std::env::current_exe()?).args(line).output()?;
        let said = [ran.stdout, ran.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        if ran.status.success() || !said.contains(words) {
            return Err(format!("{line:?}: {}, {said}", ran.status).into());
        }
    }
    println!("{count} commands");
    Ok(())
}

fn all() -> Result<(), Box<dyn Error>> {
    let mut engine = Emulator::new().with_multiprocessors(3);
    let problem = GemmProblem { m: 270, n: 136, k: 200 };
    for checked in [
        Bench::new(&mut engine, 1).check::<Epilogue>(problem, &(4.0, ((),)))?,
        Bench::new(&mut engine, 2).check::<Layouts>(problem, &(0.5, ((),)))?,
        Bench::new(&mut engine, 3).check::<Squares>(problem, &())?,
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

    let rows = |rows, columns| Sizes([rows, columns]);
    family::<RmsNorm>(&mut engine, &[rows(7, 264), rows(40, 1000), rows(0, 8)], ("warps=2", rows(5, 264)))?;
    measured::<RmsNorm>(&[rows(32768, 1024), rows(4096, 16384)])?;
    let of = |m, n, k| GemmProblem { m, n, k };
    let problems = [of(130, 72, 200), of(64, 64, 64), of(0, 8, 8), of(8, 8, 0)];
    family::<OwnGemm<DualGemm>>(&mut engine, &problems, ("64x64-pingpong", of(200, 64, 136)))?;
    family::<OwnGemm<GatherGemm>>(&mut engine, &problems, ("64x64-stream-k", of(60, 16, 520)))?;
    let layers = [rows(200, 136), rows(1, 8), rows(9, 0), rows(0, 64)];
    family::<Mlp>(&mut engine, &layers, ("consumers=1 stages=2", rows(264, 136)))?;
    let heads = [rows(3, 200), rows(1, 64), rows(2, 1), rows(0, 8)];
    family::<Linear>(&mut engine, &heads, ("stages=2", rows(1, 130)))?;
    let conv = |texts: &[&str]| texts.iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>();
    let convs = conv(&[
        "2x9x10x64 24x3x3 padding=1x1",
        "1x17x13x64 72x5x3 stride=2x3 padding=2x0",
        "3x8x8x128 64x1x1",
        "0x8x8x64 64x3x3 padding=1x1",
    ])?;
    let small = "1x9x10x64 24x3x3 padding=1x1".parse()?;
    family::<OwnGemm<ConvGemm>>(&mut engine, &convs, ("64x64-stream-k", small))?;
    let problems = [of(136, 72, 256), of(64, 64, 128), of(0, 8, 128)];
    family::<OwnGemm<Nf4Gemm>>(&mut engine, &problems, ("64x64-stream-k", of(64, 40, 256)))?;
    let problems = [of(130, 72, 200), of(64, 64, 64), of(0, 8, 8)];
    family::<OwnGemm<RmsGemm>>(&mut engine, &problems, ("64x64-pingpong", of(200, 64, 136)))
}

/// What each kernel of a family reaches: chosen, checked on any engine, proven, traced, kept on disk.
fn family<K: Family>(
    engine: &mut Emulator,
    requests: &[K::Request<'static>],
    (spec, small): (&str, K::Request<'static>),
) -> Result<(), Box<dyn Error>> {
    let machine = Machine::h200();
    let mut compared = 0;
    for request in requests {
        for Predicted { kernel, .. } in K::ranked(request, &machine, usize::MAX)? {
            compared += family::check(engine, &kernel, request, (1, usize::MAX))?.compared;
        }
    }
    let spec: K::Spec = spec.parse().map_err(|error| format!("{error}"))?;
    let (kernel, call, words) = (K::of_spec(&spec)?, K::call(&small), K::words(&small, Contents::Table));
    let proof = family::prove(&kernel, (&call, &words), 4)?;
    println!("{}: {compared} elements; {proof}", K::NAME);
    for mutant in proof.missed.iter().map(ToString::to_string) {
        // Of the waits of producers, those for a ring that another ring holds back can be left out.
        assert!(!mutant.starts_with("mbarrier.try_wait deleted in consumer"), "{mutant}");
    }
    let traced = family::trace(&kernel, (&call, &words), (2, Schedule::Paced, 0))?;
    let (trace, outcome) = traced.ok_or("there is something to compute")?;
    outcome?;
    assert!(!trace.events.is_empty());
    // Its records on disk.
    let folder = std::env::temp_dir().join(format!("outside-{}", std::process::id()));
    let (cache, key) = (Cache::at(&folder), Key::new("a card", "a driver", RecordsOf::<K>::digest())?);
    let mut records = RecordsOf::<K>::default();
    records.keep(K::problem(&small), &kernel, 2.5)?;
    records.save(&cache, &key)?;
    let (kept, warnings) = RecordsOf::<K>::load(&cache, &key);
    std::fs::remove_dir_all(&folder)?;
    assert_eq!(warnings.len(), 0);
    let best = kept.best(&small, &machine).ok_or("it was kept")?;
    assert_eq!((best.kernel.spec(), best.microseconds), (Some(spec), 2.5));
    Ok(())
}

/// On a card, if there is one, the tuner measures a family as it measures GEMMs.
fn measured<K: Family>(requests: &[K::Request<'static>]) -> Result<(), Box<dyn Error>> {
    let Ok(context) = Context::primary(0) else { return Ok(()) };
    for request in requests {
        let tuned = tuned::<K>(&context, request, Tuning::default())?;
        family::check(&mut Gpu::new(0)?, tuned.loaded.kernel(), request, (1, 64))?;
        println!("{}: {:?}, {:?}", K::problem(request), tuned.loaded.kernel().spec(), tuned.chosen);
    }
    Ok(())
}

/// Row `row` of A times a matrix, with bounds of the errors.
pub fn products(
    GemmProblem { n, k, .. }: GemmProblem,
    row: usize,
    b: &str,
    inputs: &Inputs<'_>,
) -> Vec<(f64, f64)> {
    let [n, k] = [n, k].map(|extent| extent as usize);
    let (a, b) = (inputs.elements("A", row * k, k), inputs.elements(b, 0, n * k));
    let element = |column: usize| {
        let terms = a.iter().zip(&b[column * k..]).map(|(a, b)| a * b);
        let [sum, all] = terms.fold([0.0; 2], |[sum, all], term| [sum + term, all + term.abs()]);
        (sum, all * k as f64 * 2f64.powi(-23) + 1e-6)
    };
    (0..n).map(element).collect()
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
    let (call, resident) = (call.with_mainloop(own.clone()), engine.resident_clusters(&program)?);
    let launch = Gemm::<C>::kernel().launch(&call, resident)?.ok_or("an empty product")?;
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
