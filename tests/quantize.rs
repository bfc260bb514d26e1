//! Results in 8-bit floats with one scale per 128 columns of a row, compared with the tree on the host and
//! with the definition.

use falchion::collective::functions::*;
use falchion::collective::tree::*;
use falchion::collective::{F8E4M3, F8E5M2};
use falchion::kernel::GroupedContiguous;
use falchion::prelude::*;
use falchion::verify::{Bench, Sample, TreeError};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Once<T, S, X> =
    Composed<TmaWgmma<Kk, Tile<U64, U128, U64>, Cooperative<U1>>, TreeEpilogue<T, S, X>, OneTile<AlongN>>;
type Turns<T, S, X> =
    Composed<TmaWgmma<Kk, Tile<U64, U256, U64>, Pingpong>, TreeEpilogue<T, S, X>, Persistent<AlongM>>;
type Divided<T, S, X> =
    Composed<TmaWgmma<Kk, Tile<U128, U128, U64>, Cooperative<U2>>, TreeEpilogue<T, S, X>, StreamK<AlongM>>;
type Plain = Quantize<F8E4M3, Accumulator>;
type Gates = Gated<Glu<Silu>, Accumulator>;
type Kept = AuxStore<f32, Quantize<F8E5M2, Compute<Add, (Accumulator, RowVector<bf16>)>>>;

fn check<C, X>(problem: GemmProblem, seed: u64) -> Result<(), TreeError>
where
    C: GemmConfig,
    C::Epilogue: falchion::collective::Epilogue<Arguments = X::Arguments>,
    X: Sample,
{
    let mut engine = Emulator::new().with_multiprocessors(3);
    let mut bench = Bench::new(&mut engine, seed);
    let n = problem.n >> X::TRAITS.halvings.unwrap_or(0);
    let arguments = X::sample(&mut bench, Shape { m: problem.m, n })?;
    bench.check::<C>(problem, &arguments).map(|_| ())
}

#[test]
fn blocks_of_rows_are_quantised() {
    type Check = fn(GemmProblem, u64) -> Result<(), TreeError>;
    let kernels: [(&str, Check); 6] = [
        ("direct", check::<Once<F8E4M3, DirectStore, Plain>, Plain>),
        ("copies", check::<Once<F8E4M3, TmaStore, Plain>, Plain>),
        ("two blocks a tile", check::<Turns<F8E4M3, TmaStore, Plain>, Plain>),
        ("gates", check::<Turns<F8E4M3, DirectStore, Quantize<F8E4M3, Gates>>, Quantize<F8E4M3, Gates>>),
        ("divided", check::<Divided<F8E4M3, TmaStore, Plain>, Plain>),
        ("kept and biased", check::<Divided<F8E5M2, DirectStore, Kept>, Kept>),
    ];
    for (seed, (why, check)) in (0..).zip(kernels) {
        for (m, n, k) in [(128, 256, 128), (70, 304, 72), (1, 32, 600)] {
            let ended = check(GemmProblem { m, n, k }, seed);
            assert!(ended.is_ok(), "{why}: {m} x {n} x {k}: {}", ended.expect_err("it failed"));
        }
    }
}

/// Groups of rows, compared with the accumulators: the scale is the largest magnitude over 448, and code
/// times scale is within half a step of `e4m3` of the accumulator.
#[test]
fn groups_of_rows_are_quantised() {
    type Tiles = TmaWgmma<Kk, Tile<U64, U128, U64>, Cooperative<U1>>;
    type Sums = GroupedContiguous<Composed<Tiles, LinearCombination<f32, DirectStore>, Persistent<AlongM>>>;
    type Bytes =
        GroupedContiguous<Composed<Tiles, TreeEpilogue<F8E4M3, TmaStore, Plain>, Persistent<AlongM>>>;
    let (m, n, k, groups) = (170u32, 304u32, 72u32, [0u32, 3, 3, 100, 170]);
    let mut engine = Emulator::new().with_multiprocessors(3);
    let mut random = fastrand::Rng::with_seed(4);
    let mut matrix = |count: u32| -> Vec<u8> {
        // Some rows are a thousand times larger than others.
        let mut value =
            |i: u32| (random.f32() - 0.5) * if (i / 720).is_multiple_of(2) { 1.0 } else { 1024.0 };
        (0..count).flat_map(|i| bf16::from_f32(value(i)).to_le_bytes()).collect()
    };
    let [a, b] =
        [matrix(m * k), matrix(4 * n * k)].map(|bytes| engine.upload(&bytes).expect("memory").address);
    let offsets: Vec<u8> = groups.iter().flat_map(|row| row.to_le_bytes()).collect();
    let offsets = engine.upload(&offsets).expect("memory").address;
    let [sums, bytes, scales] = [m * n * 4, m * n, n.div_ceil(128) * m * 4]
        .map(|bytes| engine.allocate(bytes as usize).expect("memory"));
    let call = |d: u64| {
        let call = Call::of(GemmProblem { m, n, k }).a(a, k.into()).b(b, k.into()).d(d, n.into());
        let call = call.ragged(4, offsets);
        assert!(matches!(call.products, GroupedProblem::GroupedContiguous { count: 4, .. }));
        call
    };
    let mut run = |program: falchion::kernel::Program, launch: &dyn Fn(u32) -> falchion::kernel::Launch| {
        let resident = engine.resident_clusters(&program).expect("loads");
        let launch = launch(resident);
        engine.launch(&program, launch.grid, &launch.arguments).unwrap_or_else(|error| panic!("{error}"));
    };
    run(Gemm::<Sums>::program().expect("legal"), &|resident| {
        Gemm::<Sums>::launch(&call(sums.address), resident).expect("legal").expect("not empty")
    });
    let arguments = (MatrixRef::new(scales.address, m.into()), ());
    run(Gemm::<Bytes>::program().expect("legal"), &|resident| {
        let call = call(bytes.address).with(&arguments);
        Gemm::<Bytes>::launch(&call, resident).expect("legal").expect("not empty")
    });
    let floats = |bytes: Vec<u8>| -> Vec<f64> {
        let word = |word: &[u8]| f32::from_le_bytes([word[0], word[1], word[2], word[3]]).into();
        bytes.chunks_exact(4).map(word).collect()
    };
    let [sums, scales] = [sums, scales].map(|buffer| floats(engine.read(buffer).expect("no fault")));
    let bytes = engine.read(bytes).expect("no fault");
    let n = n as usize;
    for (row, sums) in sums.chunks(n).enumerate() {
        for (block, sums) in sums.chunks(128).enumerate() {
            let largest = sums.iter().fold(0.0f64, |most, sum| most.max(sum.abs()));
            let scale = scales[block * m as usize + row];
            assert!((scale * 448.0 - largest).abs() <= 1e-6 * largest, "row {row}: {scale} of {largest}");
            for (column, sum) in sums.iter().enumerate() {
                let byte = bytes[row * n + block * 128 + column];
                let back = F8E4M3::from_bits(byte).to_f64() * scale;
                // Half of the last of four digits, or half of the smallest subnormal number.
                let step = (sum.abs() / 16.0).max(scale * f64::powi(2.0, -10)) * (1.0 + 1e-5);
                assert!((back - sum).abs() <= step, "({row}, {column}) of block {block}: {back}, not {sum}");
            }
        }
    }
}
