//! Configurations outside the catalogue: every parameter of the roles, on the emulator and, if there is one, on
//! the GPU. With `cargo xtask test --long` the emulator runs them under several schedules.

mod support;

use collective::{
    AsManyAsFit, Cluster, Cooperative, CopyWgmma, DirectStore, EachThread, EachWarp, EvictFirst, EvictLast,
    KMajor, LinearCombination, MnMajor, Operands, Pingpong, SourcedCombination, Tile, TmaStore, TmaWgmma,
    Transposed, Unspecialised,
};
use emulator::Schedule;
use half::bf16;
use kernel::{Composed, Emulator, Engine, GemmProblem, Gpu};
use scheduler::{
    AlongM, AlongN, Atomic, Dynamic, EveryTile, Grouped, OneTile, Ordered, Persistent, Remainder, Separate,
    StreamK,
};
use typenum::{U1, U2, U3, U4, U8, U16, U24, U32, U48, U64, U96, U128, U192, U256, U264, U288, U320};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;
type Kn = Operands<KMajor<bf16>, MnMajor<bf16>>;
type Mk = Operands<MnMajor<bf16>, KMajor<bf16>>;
type Mn = Operands<MnMajor<bf16>, MnMajor<bf16>>;
type With<O, T, R, S> = Composed<TmaWgmma<O, T, R>, LinearCombination<bf16>, S>;

type Staged<O, T, R, S> = Composed<TmaWgmma<O, T, R>, LinearCombination<bf16, TmaStore>, S>;

/// Runs one configuration on every available engine.
macro_rules! runs {
    (of $problems:expr; $($config:ty),* $(,)?) => {
        on_every_engine(&|engine| {
            for (m, n, k) in $problems {
                $(support::check::<$config>(engine, GemmProblem { m, n, k });)*
            }
        });
    };
    ($($config:ty),* $(,)?) => { runs!(of [(130, 264, 200), (64, 72, 8), (300, 24, 328)]; $($config),*) };
}

/// Whether this is a long run.
fn long() -> bool {
    std::env::var_os("FALCHION_LONG").is_some()
}

fn on_every_engine(run: &dyn Fn(&mut dyn Engine)) {
    let schedules = [(Schedule::Random, 1), (Schedule::Default, 0), (Schedule::Latest, 0)];
    let tried = if long() { schedules.len() } else { 1 };
    for (schedule, seed) in schedules.into_iter().take(tried) {
        // Few SMs, so that persistent workers take several tiles.
        run(&mut Emulator::new().with_multiprocessors(4).with_schedule(schedule, seed));
    }
    if let Ok(mut gpu) = Gpu::new(0) {
        run(&mut gpu);
    }
}

#[test]
fn clusters() {
    type Plain = Tile<U128, U64, U64>;
    runs![
        With<Kk, Plain, Cooperative<U2, Cluster<U2, U1>>, Persistent<AlongM>>,
        With<Kk, Plain, Cooperative<U2, Cluster<U1, U2>>, Persistent<AlongN>>,
        With<Kk, Plain, Cooperative<U2, Cluster<U2, U2>>, Persistent<AlongM>>,
        With<Kk, Tile<U64, U32, U64>, Cooperative<U1, Cluster<U4, U1>>, OneTile<AlongM>>,
        With<Kn, Plain, Cooperative<U2, Cluster<U2, U1>>, OneTile<AlongM>>,
        With<Mk, Plain, Cooperative<U2, Cluster<U1, U2>>, Persistent<Grouped<AlongM, U2>>>,
        With<Mn, Plain, Cooperative<U2, Cluster<U2, U2>>, Persistent<Grouped<AlongN, U2>>>,
    ];
}

#[test]
fn staged_stores() {
    runs![
        Staged<Kk, Tile<U128, U64, U64>, Cooperative<U2>, Persistent<AlongM>>,
        Staged<Kk, Tile<U128, U256, U64>, Cooperative<U2, Cluster<U2, U1>>, Persistent<Grouped<AlongM, U8>>>,
        Staged<Kn, Tile<U64, U96, U64>, Cooperative<U1>, Persistent<AlongN>>,
        Staged<Kk, Tile<U64, U8, U64>, Cooperative<U1>, OneTile<AlongM>>,
        Staged<Mk, Tile<U64, U16, U64>, Cooperative<U1>, Persistent<AlongM>>,
        Staged<Kk, Tile<U64, U24, U64>, Cooperative<U1>, Persistent<AlongM>>,
        Staged<Kk, Tile<U256, U64, U64>, Cooperative<U2>, Persistent<AlongM>>,
        Staged<Kk, Tile<U192, U64, U64>, Cooperative<U3>, OneTile<AlongM>>,
    ];
}

#[test]
fn tiles_and_roles() {
    runs![
        With<Kk, Tile<U64, U8, U16>, Cooperative<U1>, OneTile<AlongN>>,
        With<Kn, Tile<U64, U8, U32>, Cooperative<U1, Cluster<U1, U1>, U2>, OneTile<AlongM>>,
        With<Mn, Tile<U64, U96, U128>, Cooperative<U1>, Persistent<AlongM>>,
        With<Kk, Tile<U192, U64, U32>, Cooperative<U3, Cluster<U1, U1>, U3>, Persistent<AlongN>>,
        With<Mk, Tile<U256, U64, U64>, Cooperative<U2>, Persistent<Grouped<AlongM, U8>>>,
        With<Kk, Tile<U128, U256, U64>, Cooperative<U2>, Persistent<Grouped<AlongN, U4>>>,
    ];
}

/// Tiles with more columns than one instruction multiplies. If B is K-major, it is loaded in several boxes.
#[test]
fn instructions_side_by_side() {
    type Wide = Tile<U128, U320, U64>;
    type Alone = Tile<U64, U320, U64>;
    type Drawn = Dynamic<Grouped<AlongM, U8>>;
    type Two = Cluster<U2, U1>;
    type Of<M, X, S> = Composed<M, LinearCombination<bf16, X>, S>;
    let problems = [(130, 648, 72), (64, 168, 8)];
    runs![of problems;
        Staged<Kk, Wide, Cooperative<U2>, Persistent<Grouped<AlongM, U8>>>,
        With<Kk, Wide, Cooperative<U2>, Persistent<AlongM>>,
        Staged<Kn, Wide, Cooperative<U2>, Persistent<AlongN>>,
        With<Mn, Wide, Cooperative<U2>, OneTile<AlongM>>,
        Staged<Mk, Wide, Cooperative<U2, Two>, Persistent<AlongM>>,
        Staged<Kn, Wide, Cooperative<U2, Two>, Persistent<AlongM>>,
        Staged<Kk, Wide, Cooperative<U2, Cluster<U1, U2>>, Drawn>,
        With<Kk, Tile<U64, U320, U128>, Cooperative<U1>, Persistent<AlongM>>,
        With<Kk, Tile<U64, U264, U64>, Cooperative<U1>, Persistent<AlongM>>,
        With<Kn, Tile<U64, U288, U32>, Cooperative<U1>, Persistent<AlongM>>,
        With<Kk, Alone, Pingpong, Persistent<AlongM>>,
        With<Kn, Alone, Unspecialised<U1, U2>, Persistent<AlongM>>,
        Of<CopyWgmma<Kn, Alone, Cooperative<U1>>, DirectStore, Persistent<AlongM>>,
        Of<TmaWgmma<Kk, Wide, Cooperative<U2>>, Transposed<TmaStore>, Persistent<AlongM>>,
        Of<TmaWgmma<Kn, Alone, Cooperative<U1>>, Transposed<DirectStore>, Persistent<AlongM>>,
        Composed<TmaWgmma<Kn, Wide, Cooperative<U2>>, SourcedCombination<bf16>, Persistent<AlongM>>,
        Staged<Kk, Wide, Cooperative<U2>, StreamK<AlongM, Ordered, EveryTile<U3, U1>>>,
        With<Kn, Wide, Cooperative<U2>, StreamK<AlongM, Separate, EveryTile<U2, U1>>>,
    ];
}

#[test]
fn pingpong() {
    runs![
        With<Kk, Tile<U64, U64, U64>, Pingpong, Persistent<AlongM>>,
        With<Kk, Tile<U64, U32, U32>, Pingpong<U3>, Persistent<AlongN>>,
        With<Kk, Tile<U64, U64, U64>, Pingpong<U2, Cluster<U1, U1>, U2>, OneTile<AlongM>>,
        Staged<Kk, Tile<U64, U256, U64>, Pingpong, Persistent<Grouped<AlongM, U8>>>,
        Staged<Kn, Tile<U128, U128, U64>, Pingpong, Persistent<AlongM>>,
        Staged<Kk, Tile<U64, U64, U64>, Pingpong<U2, Cluster<U2, U1>>, Persistent<AlongM>>,
        Staged<Mn, Tile<U64, U64, U64>, Pingpong<U2, Cluster<U1, U2>>, Persistent<AlongM>>,
    ];
}

#[test]
fn without_a_producer() {
    runs![
        With<Kk, Tile<U64, U64, U64>, Unspecialised<U1, U1>, OneTile<AlongM>>,
        With<Mn, Tile<U128, U128, U64>, Unspecialised<U1>, OneTile<AlongM>>,
        With<Kk, Tile<U128, U64, U64>, Unspecialised<U2, U3>, Persistent<AlongM>>,
        Staged<Kk, Tile<U192, U128, U64>, Unspecialised<U3>, Persistent<AlongN>>,
    ];
}

#[test]
fn transposed_tiles() {
    type Swapped<O, T, R, X> =
        Composed<TmaWgmma<O, T, R>, LinearCombination<bf16, Transposed<X>>, Persistent<AlongM>>;
    type Copied<O, T, R, X> =
        Composed<CopyWgmma<O, T, R>, LinearCombination<bf16, Transposed<X>>, OneTile<AlongN>>;
    runs![
        Swapped<Kk, Tile<U64, U8, U128>, Cooperative<U1>, DirectStore>,
        Swapped<Kn, Tile<U128, U24, U64>, Cooperative<U2>, DirectStore>,
        Swapped<Mk, Tile<U64, U64, U64>, Pingpong, DirectStore>,
        Swapped<Kk, Tile<U64, U8, U64>, Cooperative<U1>, TmaStore>,
        Swapped<Kn, Tile<U64, U24, U64>, Cooperative<U1>, TmaStore<U1>>,
        Swapped<Mk, Tile<U128, U128, U64>, Cooperative<U1>, TmaStore>,
        Swapped<Mn, Tile<U128, U32, U256>, Cooperative<U2, Cluster<U1, U2>>, TmaStore>,
        Swapped<Kk, Tile<U256, U192, U64>, Cooperative<U2>, TmaStore<U3>>,
        Copied<Kn, Tile<U64, U16, U64>, Cooperative<U1>, DirectStore>,
        Copied<Mk, Tile<U64, U16, U64>, Cooperative<U1>, TmaStore>,
    ];
}

/// Tiles split along K, with swap-AB and with copied operands.
#[test]
fn shares_of_transposed_and_of_copied_tiles() {
    type Shares = StreamK<AlongM, Ordered, EveryTile<U3, U1>>;
    type Exchanged<O, T, X> =
        Composed<TmaWgmma<O, T, Cooperative<U1>>, LinearCombination<bf16, Transposed<X>>, Shares>;
    type Copying<O, T, R> = Composed<CopyWgmma<O, T, R>, LinearCombination<bf16>, Shares>;
    runs![
        Exchanged<Kk, Tile<U64, U16, U64>, DirectStore>,
        Exchanged<Mn, Tile<U64, U64, U64>, TmaStore>,
        Copying<Kn, Tile<U64, U64, U64>, Cooperative<U1>>,
        Copying<Mk, Tile<U128, U64, U64>, Cooperative<U2>>,
    ];
}

#[test]
fn copied_operands() {
    type Copying<O, T, R, S> = Composed<CopyWgmma<O, T, R>, LinearCombination<bf16>, S>;
    runs![
        Copying<Kk, Tile<U128, U96, U64>, Cooperative<U2>, Persistent<AlongM>>,
        Copying<Kn, Tile<U64, U8, U128>, Cooperative<U1, Cluster<U1, U1>, U2>, OneTile<AlongM>>,
        Copying<Mn, Tile<U192, U24, U16>, Cooperative<U3>, Persistent<AlongN>>,
        Copying<Mk, Tile<U64, U64, U32>, Pingpong, Persistent<AlongM>>,
        Copying<Kk, Tile<U256, U64, U64>, Cooperative<U2, Cluster<U1, U1>, EachWarp<U3>>, Persistent<AlongM>>,
    ];
}

/// K smaller than a chunk, smaller than an instruction's, and over several stages, with odd leading
/// dimensions. No schedule changes D, and none shows a hazard.
#[test]
fn odd_extents_under_many_schedules() {
    type Copying<O> = Composed<
        CopyWgmma<O, Tile<U64, U16, U64>, Cooperative<U1, Cluster<U1, U1>, U3>>,
        LinearCombination<bf16>,
        Persistent<AlongM>,
    >;
    for seed in 0..if long() { 200 } else { 80 } {
        let mut engine = Emulator::new().with_multiprocessors(2).with_schedule(Schedule::Random, seed);
        let k = [1, 3, 7, 101, 301][seed as usize % 5];
        let problem = GemmProblem { m: 67, n: 19, k };
        support::check::<Copying<Kk>>(&mut engine, problem);
        support::check::<Copying<Mn>>(&mut engine, problem);
    }
}

#[test]
fn arrivals_and_cache_policies() {
    type Shape = Tile<U128, U64, U64>;
    runs![
        With<Kk, Shape, Cooperative<U2, Cluster<U1, U1>, EachWarp<U3>>, Persistent<AlongM>>,
        With<Kk, Shape, Cooperative<U2, Cluster<U1, U1>, EachThread<AsManyAsFit>>, Persistent<AlongM>>,
        With<Kk, Shape, Cooperative<U2, Cluster<U2, U1>, EachWarp<U3>>, Persistent<AlongM>>,
        With<Operands<EvictLast<KMajor<bf16>>, EvictFirst<MnMajor<bf16>>>, Shape, Cooperative<U2>, OneTile<AlongM>>,
    ];
}

#[test]
fn staging_buffers() {
    type Stored<T, R, B> =
        Composed<TmaWgmma<Kk, T, R>, LinearCombination<bf16, TmaStore<B>>, Persistent<AlongM>>;
    runs![
        Stored<Tile<U64, U128, U64>, Cooperative<U1>, U1>,
        Stored<Tile<U64, U192, U64>, Cooperative<U1>, U2>,
        Stored<Tile<U128, U192, U64>, Cooperative<U1>, U4>,
        Stored<Tile<U128, U256, U64>, Cooperative<U2>, U4>,
        Stored<Tile<U64, U24, U64>, Cooperative<U1>, U2>,
    ];
}

#[test]
fn sources_by_tensor_copies() {
    type Sourced<O, T, R, S, B = U2> = Composed<TmaWgmma<O, T, R>, SourcedCombination<bf16, B>, S>;
    type Long = Tile<U64, U192, U64>;
    runs![
        // One, two and three parts of a tile per buffer, and odd and even numbers of tiles.
        Sourced<Kk, Tile<U64, U64, U64>, Cooperative<U1>, Persistent<AlongM>>,
        Sourced<Kk, Long, Cooperative<U1>, Persistent<AlongM>, U1>,
        Sourced<Kn, Long, Cooperative<U1>, Persistent<AlongN>, U2>,
        Sourced<Kk, Long, Cooperative<U1>, Persistent<AlongM>, U3>,
        Sourced<Kk, Tile<U256, U128, U64>, Cooperative<U2>, Persistent<AlongM>>,
        Sourced<Mk, Tile<U128, U48, U64>, Cooperative<U2, Cluster<U2, U1>>, OneTile<AlongM>>,
        Sourced<Kk, Tile<U64, U128, U64>, Pingpong, Persistent<Grouped<AlongM, U2>>>,
        Sourced<Mn, Tile<U64, U8, U32>, Pingpong<U3>, Persistent<AlongM>, U1>,
        Sourced<Kk, Tile<U128, U64, U64>, Unspecialised<U2, U3>, Persistent<AlongM>>,
    ];
}

#[test]
fn divided_tiles() {
    type Shape = Tile<U128, U64, U64>;
    type Roles = Cooperative<U2>;
    type Short = Tile<U64, U32, U16>;
    runs![
        With<Kk, Shape, Roles, StreamK<AlongM, Ordered, Remainder<U1>>>,
        Staged<Kk, Shape, Roles, StreamK<AlongM, Ordered, EveryTile<U2, U1>>>,
        Staged<Kn, Short, Cooperative<U1>, StreamK<Grouped<AlongM, U2>, Ordered, Remainder<U2>>>,
        With<Mk, Short, Pingpong, StreamK<AlongN, Ordered, Remainder<U1>>>,
        Staged<Kk, Short, Pingpong<U2, Cluster<U2, U1>>, StreamK<AlongM, Ordered, EveryTile<U4, U1>>>,
        Staged<Kk, Shape, Cooperative<U2, Cluster<U2, U1>>, StreamK<AlongM, Ordered, Remainder<U1>>>,
        With<Kk, Short, Unspecialised<U1>, StreamK<AlongM, Ordered, EveryTile<U3, U1>>>,
        With<Kk, Shape, Roles, StreamK<AlongM, Separate, EveryTile<U3, U1>>>,
        Staged<Kk, Tile<U128, U128, U64>, Roles, StreamK<AlongM, Separate, EveryTile<U2, U1>>>,
        Staged<Kn, Short, Cooperative<U1>, StreamK<AlongM, Separate, EveryTile<U4, U1>>>,
        With<Mk, Short, Pingpong, StreamK<AlongN, Separate, EveryTile<U2, U1>>>,
        With<Kk, Tile<U128, U48, U32>, Cooperative<U2, Cluster<U2, U1>>, StreamK<AlongM, Separate, EveryTile<U3, U1>>>,
        With<Kk, Shape, Roles, StreamK<AlongM, Atomic, Remainder<U1>>>,
        Staged<Mn, Short, Pingpong, StreamK<AlongM, Atomic, EveryTile<U4, U1>>>,
        Staged<Kk, Short, Cooperative<U1, Cluster<U1, U2>>, StreamK<AlongM, Atomic, EveryTile<U2, U1>>>,
    ];
}

/// Dynamic scheduling with every role, with more and with fewer tiles than workers.
#[test]
fn drawn_tiles() {
    type Shape = Tile<U128, U64, U64>;
    type Short = Tile<U64, U32, U16>;
    type Copying<O, T, R> = Composed<CopyWgmma<O, T, R>, LinearCombination<bf16>, Dynamic<AlongM>>;
    type Exchanged<O, T, R, X> =
        Composed<TmaWgmma<O, T, R>, LinearCombination<bf16, Transposed<X>>, Dynamic<AlongM>>;
    runs![
        Staged<Kk, Shape, Cooperative<U2>, Dynamic<Grouped<AlongM, U8>>>,
        With<Kn, Short, Cooperative<U1, Cluster<U1, U1>, U2>, Dynamic<AlongN>>,
        Staged<Kk, Short, Pingpong, Dynamic<AlongM>>,
        With<Mk, Short, Pingpong<U3>, Dynamic<AlongN>>,
        Staged<Kk, Shape, Cooperative<U2, Cluster<U2, U1>>, Dynamic<AlongM>>,
        With<Mn, Short, Cooperative<U1, Cluster<U2, U2>>, Dynamic<Grouped<AlongN, U2>>>,
        Staged<Kk, Short, Pingpong<U2, Cluster<U1, U2>>, Dynamic<AlongM>>,
        With<Kk, Shape, Unspecialised<U2, U3>, Dynamic<AlongM>>,
        Copying<Mk, Short, Cooperative<U1>>,
        Copying<Kk, Shape, Pingpong>,
        Exchanged<Kk, Tile<U64, U16, U64>, Cooperative<U1>, DirectStore>,
        Exchanged<Mk, Short, Cooperative<U1, Cluster<U2, U1>>, TmaStore>,
    ];
}

/// K = 0, a single tile, and many tiles of one k-tile. No schedule changes D, and none shows a hazard.
#[test]
fn drawn_tiles_under_many_schedules() {
    type Short<R> = With<Kk, Tile<U64, U16, U16>, R, Dynamic<AlongM>>;
    for seed in 0..if long() { 24 } else { 15 } {
        let resident = 1 + seed as u32 % 3;
        let mut engine =
            Emulator::new().with_multiprocessors(2 * resident).with_schedule(Schedule::Random, seed);
        for (m, n, k) in [(64, 8, 40), (200, 33, 16), (130, 17, 0)] {
            let problem = GemmProblem { m, n, k };
            support::check::<Short<Cooperative<U1>>>(&mut engine, problem);
            support::check::<Short<Pingpong>>(&mut engine, problem);
            support::check::<Short<Cooperative<U1, Cluster<U2, U1>>>>(&mut engine, problem);
        }
    }
}
