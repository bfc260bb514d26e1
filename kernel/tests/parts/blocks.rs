//! 8-bit floats with scales of blocks of 128 along K, in both layouts of B's scales.

use collective::{
    AsManyAsFit, BlockScaled, BlockScales, Cluster, Cooperative, DirectStore, EachWarp, F8E4M3, F8E5M2,
    Format, KMajor, LinearCombination, MatrixRef, Operands, Pingpong, Tile, TmaWgmma,
};
use emulator::Numerics;
use kernel::{Call, Composed, Emulator, Engine, Gemm, GemmConfig, GemmProblem};
use scheduler::{AlongM, Persistent, StreamK};
use typenum::{U1, U2, U3, U32, U64, U128};

use crate::support::{Elements, compare, on_every_engine, run, sum};

type Alone = Cluster<U1, U1>;
type Warps = EachWarp<AsManyAsFit>;
type Mixed = Operands<KMajor<F8E4M3>, KMajor<F8E5M2>>;
type Same = Operands<KMajor<F8E4M3>, KMajor<F8E4M3>>;
type Kernel<O, T, R, N, S = Persistent<AlongM>> =
    Composed<BlockScaled<TmaWgmma<O, T, R>, N>, LinearCombination<f32, DirectStore>, S>;

type Large = Kernel<Same, Tile<U128, U128, U128>, Cooperative<U2, Alone, Warps>, U128>;
type Rows = Kernel<Same, Tile<U128, U64, U128>, Cooperative<U2, Alone, Warps>, U1>;
type Turns = Kernel<Mixed, Tile<U64, U128, U128>, Pingpong<U2, Alone, EachWarp<U3>>, U128>;
type Clustered = Kernel<Same, Tile<U64, U32, U128>, Cooperative<U1, Cluster<U2, U1>, Warps>, U1>;
type Divided = Kernel<Same, Tile<U64, U64, U128>, Cooperative<U1, Alone, Warps>, U128, StreamK<AlongM>>;

/// Scales as a mainloop takes them: rows of whole 16 bytes.
fn scales(rows: u32, length: u32, seed: u32) -> Elements {
    Elements::random(Format::F32, [rows, length.next_multiple_of(4)], seed)
}

fn check<C>(name: &str, engine: &mut dyn Engine, formats: [Format; 2], columns: u32)
where
    C: GemmConfig,
    C::Mainloop: collective::Mainloop<Arguments = BlockScales>,
    C::Epilogue: collective::Epilogue<Arguments = collective::LinearArguments>,
{
    for (m, n, k) in [(128, 128, 128), (200, 136, 336), (70, 264, 16), (1, 8, 640), (64, 64, 0)] {
        let [a, b] = [(m, formats[0], 1), (n, formats[1], 2)]
            .map(|(rows, format, seed)| Elements::random(format, [rows, k], seed));
        let blocks = k.div_ceil(128);
        let of_a = scales(blocks, m, 3);
        let of_b = if columns == 1 { scales(blocks, n, 4) } else { scales(n.div_ceil(128), blocks, 4) };
        let own = BlockScales { a: of_a.upload(engine), b: of_b.upload(engine) };
        let operands = [a.upload(engine), b.upload(engine)];
        let got = run::<C>(engine, GemmProblem { m, n, k }, operands, &own);
        compare(name, [m, n], &got, |i, j| {
            let of_b = |block| if columns == 1 { of_b.at(block, j) } else { of_b.at(j / 128, block) };
            let [want, all] = sum(k, |k| of_a.at(k / 128, i) * of_b(k / 128) * a.at(i, k) * b.at(j, k));
            // Where a card multiplies: four instructions of 33 terms below 1 for each block, each cut off behind 13 digits.
            let cut = f64::from(blocks) * 4.0 * (33.0 + 8.0) / 8192.0;
            [want, f64::from(k) * f64::from(f32::EPSILON) * all + cut]
        });
    }
}

#[test]
fn blocks_are_scaled() {
    let [e4m3, e5m2] = [Format::E4m3, Format::E5m2];
    on_every_engine(&|engine| {
        check::<Large>("large", engine, [e4m3, e4m3], 128);
        check::<Rows>("a scale for each column", engine, [e4m3, e4m3], 1);
        check::<Turns>("pingpong", engine, [e4m3, e5m2], 128);
        check::<Clustered>("cluster", engine, [e4m3, e4m3], 1);
        check::<Divided>("stream-k", engine, [e4m3, e4m3], 128);
    });
}

/// Scales that span 30 powers of two cost no digits: each block's sum is exact enough alone.
#[test]
fn scales_of_any_size_lose_nothing() {
    let (m, n, k) = (64, 64, 1024);
    let engine = &mut Emulator::new().with_numerics(Numerics::Exact);
    let [a, b] = [1, 2].map(|seed| Elements::random(Format::E4m3, [64, k], seed));
    let power = |block: u32| f64::powi(2.0, 4 * block.cast_signed() - 16);
    let mut of_a = scales(k / 128, m, 3);
    of_a.values = (0..k / 128).flat_map(|block| (0..m).map(move |_| power(block))).collect();
    of_a.bytes = of_a.values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect();
    let mut of_b = scales(1, k / 128, 4);
    of_b.values = (0..k / 128).map(|block| 1.0 / power(block)).collect();
    of_b.bytes = of_b.values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect();
    let own = BlockScales { a: of_a.upload(engine), b: of_b.upload(engine) };
    let operands = [a.upload(engine), b.upload(engine)];
    let got = run::<Divided>(engine, GemmProblem { m, n, k }, operands, &own);
    compare("powers", [m, n], &got, |i, j| {
        let [want, all] = sum(k, |k| a.at(i, k) * b.at(j, k));
        [want, 8.0 * 4.0 * 41.0 / 8192.0 + f64::from(f32::EPSILON) * all]
    });
}

#[test]
fn scales_that_do_not_fit_are_refused() {
    let call = Call::of(GemmProblem { m: 200, n: 136, k: 336 }).a(4096, 336).b(4096, 336).d(4096, 136);
    let good = BlockScales { a: MatrixRef::new(4096, 200), b: MatrixRef::new(4096, 4) };
    for (why, own, words) in [
        ("good", good, ""),
        ("none", BlockScales::default(), "A's scales are at 0x0"),
        ("A's address", BlockScales { a: MatrixRef::new(4104, 200), ..good }, "A's scales are at 0x1008"),
        (
            "A's rows",
            BlockScales { a: MatrixRef::new(4096, 196), ..good },
            "A's scales is 196, a multiple of 4 from 200",
        ),
        (
            "B's rows",
            BlockScales { b: MatrixRef::new(4096, 0), ..good },
            "B's scales is 0, a multiple of 4 from 3",
        ),
        (
            "no number of bytes",
            BlockScales { a: MatrixRef::new(4096, u64::MAX - 3), ..good },
            "below 274877906944",
        ),
        ("B's steps", BlockScales { b: MatrixRef::new(4096, 6), ..good }, "B's scales is 6, a multiple of 4"),
    ] {
        match Gemm::<Large>::bind(&own).launch(&call, 4) {
            Ok(_) => assert_eq!(words, "", "{why}"),
            Err(error) => {
                let text = error.to_string();
                assert!(!words.is_empty() && text.contains(words), "{why}: {text}");
            }
        }
    }
}
