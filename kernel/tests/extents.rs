//! Extents whose products do not fit into 32 or 64 bits are errors that state the numbers, wherever they
//! occur.

use collective::{Cluster, Cooperative, Form, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
use half::bf16;
use kernel::{Call, Composed, Gemm, GemmProblem, LaunchError, MatrixRef, find};
use scheduler::{AlongM, AlongN, Grouped, Hilbert, OneTile, Persistent, StreamK, TileScheduler, Tiles};
use typenum::{U1, U2, U8, U32, U64, U128};

/// A cluster of four CTAs per tile of the output.
type Four = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1, Cluster<U2, U2>>>,
    LinearCombination<bf16>,
    OneTile<AlongM>,
>;

fn packed(problem: GemmProblem) -> Call {
    let at = |address, matrix: MatrixRef| MatrixRef { address, ..matrix };
    let Call { a, b, d, .. } = Call::of(problem);
    Call { a: at(1 << 62, a), b: at(1 << 62, b), d: at(1 << 20, d), ..Call::of(problem) }
}

/// The tiles of some GEMMs of one launch.
#[test]
fn tiles_of_many_products() {
    let shape = |m, n, k| GemmProblem { m, n, k };
    let tiles = |m, n, k| Ok(Tiles { m, n, k });
    let most = (1 << 31) - 1;
    let large = |name, extent| Err(LaunchError::Extent { name, extent, limit: 1 << 31 });
    for (why, kernel, products, want) in [
        (
            "an extent of 32 bits",
            "grouped-128x256-bf16-kk",
            vec![shape(u32::MAX, 256, 64)],
            large("M", u32::MAX.into()),
        ),
        (
            "another",
            "grouped-128x256-bf16-kk",
            vec![shape(1, 1, 64), shape(1, u32::MAX, 64)],
            large("N", u32::MAX.into()),
        ),
        ("a batch", "batched-128x256-bf16-kk", vec![shape(1 << 24, 256, 64); 3], tiles(3 << 17, 1, 1)),
        (
            "a batch of 2^33 tiles",
            "batched-128x256-bf16-kk",
            vec![shape(1 << 24, 256, 64); 1 << 16],
            Err(LaunchError::TooManyTiles { m: 1 << 33, n: 1, most }),
        ),
        (
            "products of 2^32 tiles each",
            "grouped-128x256-bf16-kk",
            vec![shape(1 << 23, 1 << 24, 64); 2],
            Err(LaunchError::TooManyTiles { m: 1 << 33, n: 1, most }),
        ),
        (
            "groups of 2^32 rows in all",
            "ragged-128x256-bf16-kk",
            vec![shape(1 << 30, 8, 8); 4],
            large("M", 1 << 32),
        ),
        (
            "more tiles than the order of drawn ones has numbers for",
            "ragged-128x256-step32-bf16-kk",
            vec![shape(1 << 24, 1 << 24, 8)],
            Err(LaunchError::TooManyTiles { m: 1 << 33, n: 1, most: (1 << 23) - 1 }),
        ),
        (
            "too many groups",
            "ragged-128x256-bf16-kk",
            vec![shape(1, 8, 8); 321],
            Err(LaunchError::Groups { groups: 321, most: Form::TABLES[0] }),
        ),
    ] {
        let kernel = find(kernel).expect("a name");
        assert_eq!(kernel.tiles_of(&products), want, "{why}");
    }
}

/// Tiles of 8 columns in bands of 32 tiles.
type Bands<R> = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U8, U64>, Cooperative<U1>>,
    LinearCombination<bf16>,
    Persistent<R>,
>;

/// The tiles of a band are counted in 32 bits, those of a launch in 31 bits.
#[test]
fn bands_are_counted_in_32_bits() {
    let wide = GemmProblem { m: 8, n: (1 << 31) - 8, k: 8 };
    let high = GemmProblem { m: (1 << 31) - 8, n: 8, k: 8 };
    let error = |band, tiles| Some(LaunchError::Band { band, tiles });
    let launch = |launched: Result<_, LaunchError>| launched.map(|_: Option<kernel::Launch>| ()).err();
    for (why, seen, want) in [
        (
            "bands along N",
            launch(Gemm::<Bands<Grouped<AlongM, U32>>>::launch(&packed(wide), 132)),
            error(32, (1 << 28) - 1),
        ),
        (
            "many tiles across them",
            launch(Gemm::<Bands<Grouped<AlongM, U32>>>::launch(&packed(high), 132)),
            None,
        ),
        (
            "a curve's",
            launch(Gemm::<Bands<Hilbert<U32>>>::launch(&packed(wide), 132)),
            error(32, (1 << 28) - 1),
        ),
        ("no bands", launch(Gemm::<Bands<AlongM>>::launch(&packed(wide), 132)), None),
        (
            "bands along M",
            launch(Gemm::<Bands<Grouped<AlongN, U128>>>::launch(&packed(high), 132)),
            error(128, 1 << 25),
        ),
    ] {
        assert_eq!(seen, want, "{why}");
    }
}

#[test]
fn a_grid_has_at_most_31_bits() {
    // 2^15 x 2^14 clusters of four CTAs are 2^31.
    let call = packed(GemmProblem { m: 1 << 22, n: 1 << 21, k: 8 });
    let error = Gemm::<Four>::launch(&call, 132).expect_err("one more than a grid has");
    assert_eq!(error, LaunchError::Grid { ctas: 1 << 31, most: (1 << 31) - 1 });
    assert!(error.to_string().contains("2147483648 CTAs, a grid has at most 2147483647"), "{error}");
    let fewer = packed(GemmProblem { m: 1 << 22, n: (1 << 21) - 128, k: 8 });
    assert!(Gemm::<Four>::launch(&fewer, 132).expect("legal").is_some());
}

#[test]
fn matrices_end_where_addresses_do() {
    let gemm = find("64x64-direct-bf16-kk").expect("a name");
    let call = packed(GemmProblem { m: 1 << 16, n: 8, k: 8 });
    let wide = |address| MatrixRef::new(address, 1 << 38);
    // 2^16 rows with a stride of 2^39 B.
    let last: u64 = ((1 << 16) - 1) << 39;
    let bytes = u128::from(last) + 16;
    for (why, address, want) in [
        ("just inside", 0u64.wrapping_sub(last + 16), Ok(())),
        (
            "16 B beyond",
            0u64.wrapping_sub(last),
            Err(LaunchError::End { name: "A", address: 0u64.wrapping_sub(last), bytes }),
        ),
    ] {
        let launched = gemm.launch(&Call { a: wide(address), ..call }, 132).map(|_| ());
        assert_eq!(launched, want, "{why}");
    }
    let batched = find("batched-128x256-bf16-kk").expect("a name");
    let first = packed(GemmProblem { m: 8, n: 8, k: 8 });
    let of = |count, stride| {
        let call = first.batched(count);
        Call { a: call.a.every(stride), b: first.b, ..call }
    };
    let far = of(1 << 26, 1 << 38);
    let error = batched.launch(&far, 132).expect_err("2^26 matrices, 2^39 B from each other");
    assert!(matches!(error, LaunchError::End { name: "A", .. }), "{error}");
    let error = batched.launch(&of(2, u64::MAX), 132).expect_err("2^65 B");
    let bytes = u128::from(u64::MAX) * 2;
    assert_eq!(error, LaunchError::Distance { name: "A", bytes, alignment: 16 });
}

/// Schedulers have no work if there are more tiles than a launch can number, and nothing overflows.
#[test]
fn schedulers_count_no_further_than_launches() {
    fn check<S: TileScheduler>() {
        for (m, n, counted) in [
            (1 << 16, 1 << 16, false),
            (u32::MAX, u32::MAX, false),
            (u32::MAX, 1, false),
            (1 << 15, 1 << 15, true),
        ] {
            let tiles = Tiles { m, n, k: 1 };
            assert_eq!(tiles.count().is_some(), counted, "{m} x {n}");
            assert_eq!(
                S::schedule().workers(tiles, 132) > 0,
                counted,
                "{} at {m} x {n}",
                S::schedule().name()
            );
            assert_eq!(
                S::schedule().work(tiles, 0, 132).next().is_some(),
                counted,
                "{} at {m} x {n}",
                S::schedule().name()
            );
        }
    }
    check::<OneTile<AlongM>>();
    check::<Persistent<AlongM>>();
    check::<scheduler::Dynamic<AlongM>>();
    check::<scheduler::DividedTail<AlongM>>();
    check::<StreamK<AlongM>>();
}
