//! Each schedule computes each k-tile of each output tile exactly once, for any number of SMs.

use std::collections::{BTreeMap, HashSet};

use scheduler::{
    AlongM, AlongN, Atomic, ClusterK, Divided, DividedTail, Dynamic, EveryTile, Grouped, Heuristic, Hilbert,
    NarrowTail, OneTile, Ordered, Persistent, Remainder, Separate, StreamK, TileScheduler, Tiles,
};
use typenum::{U1, U2, U3, U4, U8, U28};

/// Counts how often each (m, n, k) is computed over all workers.
fn visits<S: TileScheduler>(tiles: Tiles<u32>, slots: u32) -> Vec<u32> {
    let mut visits = vec![0; (tiles.m * tiles.n * tiles.k) as usize];
    let workers = S::schedule().workers(tiles, slots);
    for worker in 0..workers {
        for work in S::schedule().work(tiles, worker, workers) {
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
                assert!(
                    visits::<S>(tiles, slots).iter().all(|&count| count == 1),
                    "{} {tiles:?}",
                    S::schedule().name()
                );
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
    covers::<Dynamic<AlongM>>();
    covers::<Dynamic<Hilbert<U8>>>();
}

#[test]
fn persistent_workers_fill_the_machine_and_no_more() {
    for (why, tiles, slots, want) in [
        ("more tiles than slots", Tiles { m: 20, n: 20, k: 1 }, 132, 132),
        ("fewer tiles than slots", Tiles { m: 3, n: 4, k: 1 }, 132, 12),
        ("no tiles", Tiles { m: 0, n: 4, k: 1 }, 132, 0),
    ] {
        assert_eq!(Persistent::<AlongM>::schedule().workers(tiles, slots), want, "{why}");
    }
    assert_eq!(OneTile::<AlongM>::schedule().workers(Tiles { m: 20, n: 20, k: 1 }, 132), 400);
}

/// Checks a splitting schedule. Each k-tile is computed once, in work units of at least `least` k-tiles. Each
/// work unit of a split tile names the units of its tile, and those are consecutive. All work units of a unit
/// but the first end at the last k-tile of their tile, so a unit has at most one partial sum that another
/// worker finishes. A unit waits only for units with smaller numbers.
fn divides<S: TileScheduler>(tiles: Tiles<u32>, slots: u32, least: u32) {
    let why = || format!("{} {tiles:?} on {slots}", S::schedule().name());
    let workers = S::schedule().workers(tiles, slots);
    assert!(workers <= slots.max(1), "{}", why());
    let divided = S::schedule().divided(tiles, workers);
    let mut pieces = BTreeMap::<(u32, u32), Vec<_>>::new();
    for worker in 0..workers {
        let mut present = None;
        for work in S::schedule().work(tiles, worker, workers) {
            let whole = work.k_begin == 0 && work.k_end == tiles.k;
            assert!(whole || work.k_end - work.k_begin >= least, "{work:?}: {}", why());
            let split = work.split.filter(|_| !whole);
            if let Some(split) = split {
                assert!(split.unit < divided.units && split.tile < divided.tiles, "{work:?}: {}", why());
                assert!(
                    work.k_end == tiles.k || present != Some(split.unit),
                    "{work:?} is not the unit's first: {}",
                    why()
                );
            }
            // `split` has no meaning for a whole tile.
            present = split.map(|split| split.unit).or(present);
            pieces.entry((work.m, work.n)).or_default().push((work.k_begin, work.k_end, split));
        }
    }
    assert_eq!(pieces.len(), (tiles.m * tiles.n) as usize, "{}", why());
    for ((m, n), mut pieces) in pieces {
        pieces.sort_by_key(|piece| piece.0);
        let mut reached = 0;
        let parts = u32::try_from(pieces.len()).expect("few");
        for (i, (begin, end, split)) in (0..).zip(&pieces) {
            assert_eq!(*begin, reached, "tile {m}, {n}: {pieces:?}: {}", why());
            reached = *end;
            assert_eq!(split.is_some(), parts > 1, "tile {m}, {n}: {pieces:?}: {}", why());
            if let Some(split) = split {
                let (unit, first, last) = (split.first + i, split.first, split.first + parts - 1);
                assert_eq!(
                    (split.unit, split.first, split.last),
                    (unit, first, last),
                    "{pieces:?}: {}",
                    why()
                );
            }
        }
        assert_eq!(reached, tiles.k, "tile {m}, {n}: {}", why());
    }
}

/// CTAs per cluster along M and N.
const CLUSTERS: [[u32; 2]; 8] = [[1, 1], [2, 1], [1, 2], [2, 2], [4, 1], [1, 4], [4, 2], [1, 8]];

/// Runs each number of SMs up to that of an H200, `each` times with other extents, clusters and k-tiles. All
/// combinations would be too many. Returns the number of different configurations.
fn divides_everywhere<S: TileScheduler>(least: u32, each: u32) -> usize {
    let mut configurations = HashSet::new();
    for multiprocessors in 1..=132u32 {
        for i in 0..each {
            let [cluster_m, cluster_n] = CLUSTERS[(multiprocessors + i) as usize % CLUSTERS.len()];
            let seed = multiprocessors.wrapping_mul(2_654_435_761).wrapping_add(i.wrapping_mul(40_503));
            let small = |shift: u32, most: u32| (seed >> shift) % most;
            let most_k = if i % 4 == 0 { 300 } else { 40 };
            let ctas = [1 + small(3, 17), 1 + small(11, 13)];
            let tiles = Tiles {
                m: ctas[0].div_ceil(cluster_m),
                n: ctas[1].div_ceil(cluster_n),
                k: small(19, most_k),
            };
            let slots = (multiprocessors / (cluster_m * cluster_n)).max(1);
            divides::<S>(tiles, slots, least.min(tiles.k));
            configurations.insert((multiprocessors, [cluster_m, cluster_n], ctas, tiles.k));
        }
    }
    configurations.len()
}

/// The smallest number of configurations per scheduler.
const CONFIGURATIONS: usize = 50_000;

#[test]
fn divided_tiles_are_summed_exactly_once() {
    let configurations = divides_everywhere::<StreamK<AlongM>>(4, 40)
        + divides_everywhere::<StreamK<Grouped<AlongM, U8>, Atomic>>(4, 40)
        + divides_everywhere::<StreamK<AlongN, Ordered, Remainder>>(4, 40)
        + divides_everywhere::<StreamK<AlongN, Ordered, Remainder<U1>>>(1, 40)
        + divides_everywhere::<StreamK<Hilbert<U2>, Ordered, Remainder<U8>>>(8, 40)
        + divides_everywhere::<StreamK<AlongM, Atomic, EveryTile<U2>>>(4, 40)
        + divides_everywhere::<StreamK<AlongM, Ordered, EveryTile<U8, U1>>>(1, 40)
        + divides_everywhere::<StreamK<AlongM, Separate, EveryTile<U8, U1>>>(1, 40)
        + divides_everywhere::<StreamK<AlongN, Separate, Heuristic<U28, U2>>>(2, 40)
        + divides_everywhere::<StreamK<AlongN, Ordered, EveryTile<U3, U3>>>(3, 40)
        + divides_everywhere::<StreamK<Grouped<AlongN, U4>, Ordered, Heuristic<U28, U2>>>(2, 40);
    assert!(configurations >= CONFIGURATIONS, "{configurations}");
}

#[test]
fn each_cta_of_a_cluster_has_a_part() {
    fn parts<S: TileScheduler>(parts: u32) {
        let schedule = S::schedule();
        for (m, n, k) in [(1, 1, 1), (3, 5, 40), (4, 4, parts), (2, 1, parts - 1), (7, 2, 1000), (2, 2, 0)] {
            let tiles = Tiles { m, n, k };
            scheduler::covers(&*schedule, tiles, 132).unwrap_or_else(|error| panic!("{error}"));
            for worker in 0..schedule.workers(tiles, 132) {
                let pieces: Vec<_> = schedule.work(tiles, worker, m * n * parts).collect();
                let [work] = pieces[..] else { panic!("{tiles:?}: {pieces:?}") };
                assert!(work.k_end - work.k_begin <= k.div_ceil(parts), "{tiles:?}: {work:?}");
                let of_one = |other| {
                    schedule.work(tiles, other, 0).all(|other| (other.m, other.n) == (work.m, work.n))
                };
                let first = worker / parts * parts;
                assert!((first..first + parts).all(of_one), "{tiles:?}: {work:?}");
            }
        }
        // More workers than can be launched.
        let many = Tiles { m: 1 << 20, n: 1 << 10, k: 1 };
        assert_eq!(schedule.workers(many, 1), (1u32 << 30).saturating_mul(parts));
    }
    parts::<ClusterK<AlongM, U2>>(2);
    parts::<ClusterK<Grouped<AlongN, U4>, U8>>(8);
}

/// Tiles of the last wave are sliced where that saves time, and each slice is computed once.
#[test]
fn last_waves_are_sliced_where_that_saves_time() {
    fn check<S: TileScheduler>() {
        for (m, n, slots) in (1..30)
            .flat_map(|m| (1..6).map(move |n| (m, n)))
            .flat_map(|(m, n)| [1, 2, 7, 33, 132].map(|slots| (m, n, slots)))
        {
            scheduler::covers(&*S::schedule(), Tiles { m, n, k: m % 3 }, slots)
                .unwrap_or_else(|error| panic!("{error}"));
        }
    }
    check::<NarrowTail<AlongM>>();
    check::<NarrowTail<Grouped<AlongN, U4>, U3>>();
    check::<NarrowTail<Hilbert<U2>, U8>>();
    type Tail = NarrowTail<AlongM>;
    for (why, tiles, slots, want) in [
        ("1.3 waves", 132 + 40, 132, 132 + 80),
        ("half of a wave left", 132 + 66, 132, 132 + 132),
        ("more than half left", 132 + 67, 132, 132 + 67),
        ("whole waves", 264, 132, 264),
        ("half of a wave", 66, 132, 132),
        ("less than a wave, more than half", 100, 132, 100),
        ("no tiles", 0, 132, 0),
    ] {
        let tiles = Tiles { m: tiles, n: 1, k: 4 };
        let workers = Tail::schedule().workers(tiles, slots);
        let pieces: usize =
            (0..workers).map(|worker| Tail::schedule().work(tiles, worker, workers).count()).sum();
        assert_eq!(pieces, want, "{why}");
    }
    let many = Tiles { m: 1 << 20, n: 1 << 10, k: 1 };
    assert_eq!(Tail::schedule().workers(many, u32::MAX), 1 << 16);
}

/// A scheduler of whole tiles, given by its name and a raster order.
macro_rules! whole_tiles {
    ($test:ident, $scheduler:ident) => {
        #[test]
        fn $test() {
            let configurations = divides_everywhere::<$scheduler<AlongM>>(0, 80)
                + divides_everywhere::<$scheduler<AlongN>>(0, 80)
                + divides_everywhere::<$scheduler<Grouped<AlongM, U8>>>(0, 80)
                + divides_everywhere::<$scheduler<Grouped<AlongN, U3>>>(0, 80)
                + divides_everywhere::<$scheduler<Hilbert<U2>>>(0, 80)
                + divides_everywhere::<$scheduler<Hilbert<U4>>>(0, 80);
            assert!(configurations >= CONFIGURATIONS, "{configurations}");
        }
    };
}

whole_tiles!(static_tiles_are_computed_exactly_once, Persistent);
whole_tiles!(equally_fast_workers_draw_each_tile_exactly_once, Dynamic);

#[test]
fn tails_are_divided_and_summed_exactly_once() {
    let configurations = divides_everywhere::<DividedTail<AlongM>>(16, 120)
        + divides_everywhere::<DividedTail<AlongN, U3, U1>>(1, 120)
        + divides_everywhere::<DividedTail<Grouped<AlongM, U8>, U2, U4>>(4, 120)
        + divides_everywhere::<DividedTail<Hilbert<U2>, U8, U2>>(2, 120);
    assert!(configurations >= CONFIGURATIONS, "{configurations}");
}

/// Launches of fewer than eight waves end with as many split tiles as there are workers, if K is long.
#[test]
fn tails_are_those_of_few_waves() {
    type Tail = DividedTail<AlongM>;
    for (why, tiles, workers, want) in [
        ("three waves and a bit", Tiles { m: 208, n: 1, k: 112 }, 66, 208 + 2 * 66),
        ("fewer tiles than workers", Tiles { m: 5, n: 2, k: 48 }, 66, 30),
        ("short sums", Tiles { m: 208, n: 1, k: 47 }, 66, 208),
        ("eight waves", Tiles { m: 66, n: 8, k: 112 }, 66, 528),
        ("one less", Tiles { m: 17, n: 31, k: 112 }, 66, 527 + 2 * 66),
        ("more workers than a workspace has room for", Tiles { m: 700, n: 1, k: 48 }, 600, 700 + 2 * 341),
    ] {
        let pieces: usize =
            (0..workers).map(|worker| Tail::schedule().work(tiles, worker, workers).count()).sum();
        assert_eq!(pieces, want, "{why}");
        // The workspace must be enough even if the number of tiles is not known.
        let Divided { units, .. } = Tail::schedule().divided(Tiles { m: 100_000, n: 1, ..tiles }, workers);
        let all = tiles.m * tiles.n;
        assert!(units as usize >= (want - all as usize) / 2 * 3, "{why}: {units}");
    }
}

/// As many workers as tiles, for any number of SMs: the hardware assigns them.
#[test]
fn single_tiles_are_computed_exactly_once() {
    let mut configurations = 0;
    for (m, n) in (1..=132).flat_map(|m| (1..=8).map(move |n| (m, n))) {
        for k in 0..10 {
            let tiles = Tiles { m, n, k };
            let workers = OneTile::<AlongM>::schedule().workers(tiles, 132);
            assert_eq!(workers, m * n);
            for dealt in [
                alone::<OneTile<AlongM>>(tiles, workers),
                alone::<OneTile<AlongN>>(tiles, workers),
                alone::<OneTile<Grouped<AlongM, U8>>>(tiles, workers),
                alone::<OneTile<Grouped<AlongN, U3>>>(tiles, workers),
                alone::<OneTile<Hilbert<U2>>>(tiles, workers),
            ] {
                assert_eq!(dealt.len(), workers as usize, "{tiles:?}");
                configurations += 1;
            }
        }
    }
    assert!(configurations >= CONFIGURATIONS, "{configurations}");
}

/// The tile of each worker's only work unit.
fn alone<S: TileScheduler>(tiles: Tiles<u32>, workers: u32) -> HashSet<(u32, u32)> {
    let only = |worker| {
        let pieces: Vec<_> = S::schedule().work(tiles, worker, workers).collect();
        assert_eq!(pieces.len(), 1, "{} {tiles:?} worker {worker}", S::schedule().name());
        assert!(pieces[0].m < tiles.m && pieces[0].n < tiles.n && pieces[0].k_end == tiles.k);
        (pieces[0].m, pieces[0].n)
    };
    (0..workers).map(only).collect()
}

/// Workers of any speed: each tile is drawn once, in whatever order workers draw. A worker draws once per
/// tile that it computes, so the counter has wrapped exactly once when all workers have ended.
#[test]
fn drawn_tiles_are_computed_once_at_any_speed() {
    let mut random = 1u32;
    let mut below = |limit: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 8) % limit.max(1)
    };
    let mut configurations = 0;
    for slots in 1..=132u32 {
        for _ in 0..380 {
            let tiles = Tiles { m: 1 + below(17), n: 1 + below(13), k: below(40) };
            let all = tiles.m * tiles.n;
            let workers = Dynamic::<AlongM>::schedule().workers(tiles, slots);
            // The tile of a number is the first tile of the worker with that number.
            let tile =
                |id| Dynamic::<AlongM>::schedule().work(tiles, id, all).next().map(|work| (work.m, work.n));
            let (mut counter, mut draws, mut computed) = (0, 0, HashSet::new());
            let mut running: Vec<u32> = (0..workers).collect();
            while !running.is_empty() {
                let next = below(running.len() as u32) as usize;
                let id = running[next];
                if id >= all {
                    running.swap_remove(next);
                    continue;
                }
                assert!(computed.insert(tile(id)), "{tiles:?} on {slots}: number {id} again");
                running[next] = workers + counter;
                counter = if counter == all - 1 { 0 } else { counter + 1 };
                draws += 1;
            }
            assert_eq!((computed.len() as u32, counter, draws), (all, 0, all), "{tiles:?} on {slots}");
            configurations += 1;
        }
    }
    assert!(configurations >= CONFIGURATIONS, "{configurations}");
}

/// The k-tiles of the busiest worker, for a problem whose last wave is nearly empty.
#[test]
fn division_evens_out_the_last_wave() {
    let busiest = |most: &dyn Fn(u32) -> u32| (0..132).map(most).max();
    let tiles = Tiles { m: 64, n: 32, k: 128 };
    let count = |work: Box<dyn Iterator<Item = scheduler::Work<u32>>>| -> u32 {
        work.map(|work| work.k_end - work.k_begin).sum()
    };
    let whole = busiest(&|worker| count(Persistent::<AlongM>::schedule().work(tiles, worker, 132)));
    let even =
        busiest(&|worker| count(StreamK::<AlongM, Ordered, Remainder>::schedule().work(tiles, worker, 132)));
    // 2048 tiles: 16 waves of 128 k-tiles are 2048. Divided evenly: 1985.9, and up to 4 more for a tile edge.
    assert_eq!(whole, Some(2048));
    assert!(even.is_some_and(|even| (1986..=1990).contains(&even)), "{even:?}");
}
