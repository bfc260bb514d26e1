//! Every schedule computes every k-tile of every output tile exactly once, whatever the machine.

use scheduler::{AlongM, AlongN, Grouped, Hilbert, OneTile, Persistent, TileScheduler, Tiles};
use typenum::{U2, U8};

/// Counts how often each (m, n, k) is computed over all workers.
fn visits<S: TileScheduler>(tiles: Tiles<u32>, slots: u32) -> Vec<u32> {
    let mut visits = vec![0; (tiles.m * tiles.n * tiles.k) as usize];
    let workers = S::workers(tiles, slots);
    for worker in 0..workers {
        for work in S::work(tiles, worker, workers) {
            assert!(work.m < tiles.m && work.n < tiles.n && work.k_end <= tiles.k, "{work:?} of {tiles:?}");
            for k in work.k_begin..work.k_end {
                visits[((work.m * tiles.n + work.n) * tiles.k + k) as usize] += 1;
            }
        }
    }
    visits
}

fn covers<S: TileScheduler>() {
    for m in 1..=12 {
        for n in 1..=12 {
            for slots in [1, 2, 7, 132] {
                let tiles = Tiles { m, n, k: 3 };
                assert!(visits::<S>(tiles, slots).iter().all(|&count| count == 1), "{} {tiles:?}", S::name());
            }
        }
    }
}

#[test]
fn each_tile_exactly_once() {
    covers::<OneTile<AlongM>>();
    covers::<OneTile<AlongN>>();
    covers::<Persistent<AlongM>>();
    covers::<Persistent<AlongN>>();
    covers::<Persistent<Grouped<AlongM, U8>>>();
    covers::<Persistent<Grouped<AlongN, U2>>>();
    covers::<Persistent<Hilbert<U2>>>();
    covers::<Persistent<Hilbert<U8>>>();
    covers::<OneTile<Grouped<AlongM, U2>>>();
}

#[test]
fn persistent_workers_fill_the_machine_and_no_more() {
    for (why, tiles, slots, want) in [
        ("more tiles than slots", Tiles { m: 20, n: 20, k: 1 }, 132, 132),
        ("fewer tiles than slots", Tiles { m: 3, n: 4, k: 1 }, 132, 12),
        ("no tiles", Tiles { m: 0, n: 4, k: 1 }, 132, 0),
    ] {
        assert_eq!(Persistent::<AlongM>::workers(tiles, slots), want, "{why}");
    }
    assert_eq!(OneTile::<AlongM>::workers(Tiles { m: 20, n: 20, k: 1 }, 132), 400);
}
