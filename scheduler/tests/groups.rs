//! The GEMM and the place of each tile of a launch. A CTA that finds the places of all tiles agrees with the
//! host, and the host's places cover each GEMM once.

use std::fmt;

use emulator::{Memory, Options, Program};
use ptx::abi::{Argument, Grid};
use ptx::{Builder, Entry, Function, Special, Target, Value};
use scheduler::Tiles;
use scheduler::groups::{Groups, Offsets, Place, SharedTable, TileElements, TileWidths};

/// Elements of a tile along M and N.
const TILE: [u32; 2] = [128, 256];
const CUT: TileWidths = TileWidths { width: 256, step: 32 };
/// Tables: the most groups, and consecutive groups per entry.
const TABLES: [[u32; 2]; 4] = [[320, 1], [512, 2], [2048, 8], [4096, 16]];
const THREADS: u32 = 128;
/// Number of words of a place as the device records it: group, tile, first elements, ends.
const WORDS: usize = 7;

/// Tiles of [`TILE`] elements on the device.
struct Device;

impl<'f> TileElements<Value<'f, u32>> for Device {
    type Record = ();

    fn first(&self, axis: usize, from: Option<Value<'f, u32>>, index: Value<'f, u32>) -> Value<'f, u32> {
        let first = index * TILE[axis];
        from.map_or(first, |from| from + first)
    }

    fn record(&self, _group: Value<'f, u32>) {}
}

/// The inputs that describe the GEMMs to a kernel of one CTA.
struct Given<'f> {
    table: SharedTable<'f>,
    offsets: Offsets<'f>,
    /// Elements along M and N; in the direction of the groups, those of all groups. `k` has the k-tiles.
    extent: [Value<'f, u32>; 2],
    k: Value<'f, u32>,
}

impl<'f> Given<'f> {
    fn tiles(&self) -> Tiles<Value<'f, u32>> {
        let [m, n] = [0, 1].map(|axis| self.extent[axis].div_ceil(TILE[axis]));
        Tiles { m, n, k: self.k }
    }
}

/// A kernel that records the number of tiles, then the place of each tile. Its table is for `most` groups, `span` per entry.
fn lister(table: [u32; 2], groups: impl for<'f> Fn(Given<'f>) -> Groups<'f, Value<'f, u32>>) -> Program {
    Program::new(&function(table, groups).verify().expect("a legal program"))
}

fn function(
    [most, span]: [u32; 2],
    groups: impl for<'f> Fn(Given<'f>) -> Groups<'f, Value<'f, u32>>,
) -> Function {
    let entry = Entry {
        name: "lister".to_owned(),
        target: Target::Sm90a,
        threads: THREADS,
        shared_bytes: SharedTable::bytes(most, span).max(SharedTable::balanced_bytes(most, span)) + 8,
        cluster: [1; 3],
    };
    Function::build(entry, |f: &Builder| {
        let [count, m, n, k] = ["count", "m", "n", "k"].map(|name| f.param::<u32>(name));
        let [address, out] = ["address", "out"].map(|name| f.param::<u64>(name));
        let table = SharedTable { f, at: (f.shared_base() + 4) & !7, most, span, threads: THREADS };
        // The test decides whether the rows of groups are along M or N.
        let offsets = Offsets { address, groups: count, rows: f.param("rows"), room: None };
        let groups = groups(Given { table, offsets, extent: [m, n], k });
        let Tiles { m, n, .. } = groups.tiles();
        let thread = f.special(Special::ThreadX);
        f.if_(thread.equals(0), || f.store_global(out, 0, [m, n]));
        let number = f.variable(thread);
        f.while_(
            || number.get().less_than(m * n),
            || {
                let place = groups.place([number.get() / n, number.get() % n], &Device);
                let at = out + (number.get() + 1).mul_wide(4 * WORDS as u32);
                let none = f.constant(u32::MAX);
                let [end_m, end_n] = place.ends.map(|end| end.unwrap_or(none));
                let Place { tile: [tile_m, tile_n], first: [first_m, first_n], .. } = place;
                let group = place.group.unwrap_or(none);
                let words = [group, tile_m, tile_n, first_m, first_n, end_m, end_n];
                for (i, word) in (0..).zip(words) {
                    f.store_global(at, 4 * i, [word]);
                }
                number.set(number.get() + THREADS);
            },
        );
    })
}

/// Runs a lister and compares its result with the host's groups. Returns the host's places.
fn agree(
    program: &Program,
    groups: &Groups<'static, u32>,
    given: [u32; 4],
    (rows, table): (u32, &[u32]),
    why: &dyn fmt::Debug,
) -> Vec<Place<u32, ()>> {
    let Tiles { m, n, .. } = groups.tiles();
    let places: Vec<_> = (0..m * n).map(|number| groups.place([number / n, number % n], &TILE)).collect();
    let mut memory = Memory::new();
    let bytes: Vec<u8> = table.iter().flat_map(|word| word.to_le_bytes()).collect();
    let address = memory.upload(if bytes.is_empty() { &[0; 4] } else { &bytes });
    let room = 4 * WORDS * (places.len() + 2);
    let out = memory.upload(&vec![0xee; room]);
    let mut arguments: Vec<Argument> = given.into_iter().map(Argument::from).collect();
    arguments.extend([address.into(), out.into(), rows.into()]);
    program
        .launch(Grid { ctas: [1, 1, 1] }, &arguments, &memory, &Options::default())
        .unwrap_or_else(|failure| panic!("{why:?}: {failure}"));
    let bytes = memory.read(out, room).expect("inside");
    let words: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    assert_eq!(words[..2], [m, n], "{why:?}");
    for (number, (place, device)) in places.iter().zip(words.chunks_exact(WORDS).skip(1)).enumerate() {
        let [end_m, end_n] = place.ends.map(|end| end.unwrap_or(u32::MAX));
        let [[tile_m, tile_n], [first_m, first_n]] = [place.tile, place.first];
        let host = [place.group.unwrap_or(u32::MAX), tile_m, tile_n, first_m, first_n, end_m, end_n];
        assert_eq!(device, host, "tile {number} of {why:?}");
    }
    assert!(words[WORDS * (places.len() + 1)..].iter().all(|&word| word == 0xeeee_eeee), "one too many");
    places
}

/// Random numbers, the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as u32 % limit
    }
}

/// Numbers of rows per group for a table of `most` groups: chosen and random ones.
fn rows_of_groups(random: &mut Random, most: u32) -> Vec<Vec<u32>> {
    if most > 320 {
        let mut cases = vec![vec![0; most as usize], vec![3]];
        for groups in [384, most - 1, most] {
            // Many are empty, some have several tiles.
            cases.push((0..groups).map(|_| random.below(4) / 3 * random.below(700)).collect());
            cases.push((0..groups).map(|group| if group + 2 < groups { 0 } else { 300 }).collect());
        }
        return cases;
    }
    let mut cases: Vec<Vec<u32>> = vec![
        vec![0],
        vec![0, 0, 0],
        vec![1; 5],
        vec![0, 5000, 0],
        vec![170, 400],
        vec![400, 170, 90],
        vec![256, 257, 512, 513, 31, 32, 33],
        vec![1; 320],
        (0..320).map(|i| i * 7 % 600).collect(),
    ];
    for _ in 0..20 {
        let most = [1, 40, 300, 2000][random.below(4) as usize];
        let groups = 1 + random.below(89);
        cases.push((0..groups).map(|_| random.below(most + 1)).collect());
    }
    cases
}

/// The first row of each group, and one past the last row of all groups.
fn offsets(rows: &[u32]) -> Vec<u32> {
    let mut offsets = vec![0];
    offsets.extend(rows.iter().scan(0, |end, rows| {
        *end += rows;
        Some(*end)
    }));
    offsets
}

#[test]
fn a_batch() {
    let single = lister(TABLES[0], |given| Groups::single(given.tiles()));
    let batches = [0, 1].map(|axis| {
        lister(TABLES[0], move |given| Groups::batched_on_device(given.tiles(), given.offsets.groups, axis))
    });
    for (count, extent) in [(1, [1u32, 1]), (3, [200, 700]), (7, [128, 256]), (0, [300, 300]), (4, [0, 9])] {
        let [m, n] = [0, 1].map(|axis: usize| extent[axis].div_ceil(TILE[axis]));
        let (one, given) = (Tiles { m, n, k: 3 }, [count, extent[0], extent[1], 3]);
        agree(&single, &Groups::single(one), given, (0, &[]), &(count, extent));
        for (axis, program) in batches.iter().enumerate() {
            let groups = Groups::batched(one, count, axis).expect("few");
            let places = agree(program, &groups, given, (0, &[]), &(count, extent, axis));
            let mut own: Vec<_> = places.iter().map(|place| (place.group, place.tile)).collect();
            own.sort_unstable();
            let tiles = |group| (0..m).flat_map(move |m| (0..n).map(move |n| (Some(group), [m, n])));
            assert!(own.into_iter().eq((0..count).flat_map(tiles)), "{count} along {axis}");
        }
    }
    let large = Tiles { m: 1 << 17, n: 1, k: 1 };
    assert_eq!(Groups::batched(large, 1 << 16, 0).expect_err("too many").m, 1 << 33);
}

#[test]
fn groups_of_rows() {
    for table in TABLES {
        groups_of_rows_in(table);
    }
}

fn groups_of_rows_in(table: [u32; 2]) {
    let programs = [0, 1].map(|axis| {
        lister(table, move |given| {
            let others = [given.extent[1 - axis], given.k];
            Groups::contiguous_on_device(given.table, given.offsets, (axis, TILE), others)
        })
    });
    let mut random = Random(7);
    for rows in rows_of_groups(&mut random, table[0]) {
        let (offsets, other) = (offsets(&rows), 1 + random.below(600));
        let (count, all) = (rows.len() as u32, offsets[rows.len()]);
        for (axis, program) in programs.iter().enumerate() {
            let tile = TILE[1 - axis];
            let one = Tiles { m: other.div_ceil(tile), n: other.div_ceil(tile), k: 3 };
            let groups = Groups::contiguous(&rows, TILE[axis], axis, one).expect("few");
            let mut extent = [other; 2];
            extent[axis] = all;
            let given = [count, extent[0], extent[1], 3];
            let places = agree(program, &groups, given, (all, &offsets), &rows);
            for (group, range) in (0..).zip(offsets.windows(2)) {
                let own = places.iter().filter(|place| place.group == Some(group));
                let mut firsts: Vec<_> = own
                    .inspect(|place| {
                        assert_eq!(place.ends[axis], Some(range[1]), "group {group} of {rows:?}");
                    })
                    .map(|place| place.first)
                    .collect();
                firsts.sort_unstable();
                let [m, n] = [0, 1].map(|i| if i == axis { (range[0], range[1]) } else { (0, other) });
                let along = |(first, end), tile: u32| (first..end).step_by(tile as usize);
                let tiles = along(m, TILE[0]).flat_map(|m| along(n, TILE[1]).map(move |n| [m, n]));
                assert!(firsts.into_iter().eq(tiles), "group {group} of {rows:?}");
            }
        }
    }
}

/// Whatever offsets are in memory, groups do not overlap and do not exceed the matrix.
#[test]
fn offsets_that_fall_or_leave_the_rows() {
    let falling = [
        (vec![0, 500, 200, 700], vec![500, 0, 200]),
        (vec![0, 100, 5000, 900], vec![100, 800, 0]),
        (vec![0, u32::MAX, 0, 1], vec![900, 0, 0]),
    ];
    for table in TABLES {
        let program = lister(table, |given| {
            let others = [given.extent[1], given.k];
            Groups::contiguous_on_device(given.table, given.offsets, (0, TILE), others)
        });
        // Repeated, they fall between entries too, and what follows the first ones is empty.
        let many = falling.clone().map(|(offsets, rows)| {
            let times = table[0] as usize / 4;
            let rows = [rows, vec![0; 4 * times - 4]].concat();
            (offsets.repeat(times), rows)
        });
        for (offsets, rows) in falling.iter().chain(&many[..2]) {
            let one = Tiles { m: 0, n: 1, k: 1 };
            let (count, all) = (rows.len() as u32, rows.iter().sum());
            let groups = Groups::contiguous(rows, TILE[0], 0, one).expect("few");
            agree(&program, &groups, [count, all, 8, 1], (all, offsets), offsets);
        }
    }
}

/// The order as documented: each kind of group is sorted by the width of its tiles and spread evenly over all
/// places.
fn order(rows: &[u32], many: bool) -> Vec<u32> {
    let few_rows = if many { 192 } else { 0 };
    let width = |rows: u32| rows.div_ceil(CUT.step).div_ceil(rows.div_ceil(CUT.width).max(1));
    let kind = |few: bool| {
        let mut groups: Vec<u32> =
            (0..rows.len() as u32).filter(|&i| (rows[i as usize] < few_rows) == few).collect();
        groups.sort_by_key(|&i| core::cmp::Reverse(width(rows[i as usize])));
        let count = groups.len() as u32;
        let place = move |(rank, group): (u32, u32)| {
            // The place as a fraction of all places, rounded so that equal fractions compare equal.
            let place = f64::from(2 * rank + 1) / f64::from(count);
            ((place * 1e9).round() as u64, few, rank, group)
        };
        (0..).zip(groups).map(place).collect::<Vec<_>>()
    };
    let mut all = [kind(false), kind(true)].concat();
    all.sort_unstable();
    all.into_iter().map(|(.., group)| group).collect()
}

fn balanced(given: Given<'_>) -> Groups<'_, Value<'_, u32>> {
    let f = given.table.f;
    let height = given.extent[0].div_ceil(TILE[0]);
    let numbers = [height, f.special(Special::GridX), given.k];
    Groups::balanced_on_device(given.table, given.offsets, CUT, numbers)
}

#[test]
fn groups_cut_into_tiles_of_nearly_equal_width() {
    for table in [[320, 1], [512, 4], [1024, 1], [4096, 4]] {
        groups_of_nearly_equal_width(table);
    }
}

fn groups_of_nearly_equal_width(table: [u32; 2]) {
    let [most, _] = table;
    let program = lister(table, balanced);
    let mut random = Random(7);
    for rows in rows_of_groups(&mut random, most) {
        let (offsets, height) = (offsets(&rows), 1 + random.below(3));
        let (count, all) = (rows.len() as u32, offsets[rows.len()]);
        let groups = Groups::balanced(&rows, (CUT, most), [height, 3], |_| 1).expect("few");
        let given = [count, height * TILE[0], all, 3];
        let places = agree(&program, &groups, given, (all, &offsets), &rows);
        let mut order_of_places: Vec<u32> = places.iter().filter_map(|place| place.group).collect();
        order_of_places.dedup();
        let filled = |&group: &u32| rows[group as usize] > 0;
        let expected: Vec<u32> = order(&rows, count * height >= 4).into_iter().filter(filled).collect();
        assert_eq!(order_of_places, expected, "{rows:?}");
        for (group, range) in (0..).zip(offsets.windows(2)) {
            let own: Vec<_> = places.iter().filter(|place| place.group == Some(group)).collect();
            for m in 0..height {
                let (mut next, mut widths) = (range[0], Vec::new());
                for place in own.iter().filter(|place| place.tile[0] == m) {
                    let [first, end] = [place.first[1], place.ends[1].expect("narrowed")];
                    assert_eq!(first, next, "group {group} of {rows:?}");
                    assert!(first < end && end - first <= CUT.width, "group {group} of {rows:?}");
                    widths.push((end - first).div_ceil(CUT.step));
                    next = end;
                }
                assert_eq!(next, range[1], "group {group} of {rows:?}");
                let (least, most) = (widths.iter().min(), widths.iter().max());
                assert!(most.zip(least).is_none_or(|(most, least)| most - least <= 1), "{widths:?}");
            }
            // Tiles that multiply the same weights are consecutive.
            assert!(own.is_sorted_by_key(|place| place.tile[0]), "group {group} of {rows:?}");
        }
    }
}

/// Sorting by counting needs each of its barriers: without any one of them there is a race, or a place is wrong.
#[test]
fn many_groups_are_sorted_behind_barriers() {
    let mut random = Random(9);
    let rows: Vec<u32> = (0..400).map(|_| random.below(3) * random.below(300)).collect();
    let offsets = offsets(&rows);
    let table: Vec<u8> = offsets.iter().flat_map(|word| word.to_le_bytes()).collect();
    let listed = |function: &Function| {
        let program = Program::new(&function.clone().verify().ok()?);
        let mut memory = Memory::new();
        let (address, room) = (memory.upload(&table), 4 * WORDS * 2000);
        let out = memory.upload(&vec![0xee; room]);
        let mut arguments: Vec<Argument> = [400, TILE[0], offsets[400], 3].map(Argument::from).to_vec();
        arguments.extend([address.into(), out.into(), offsets[400].into()]);
        program.launch(Grid { ctas: [1, 1, 1] }, &arguments, &memory, &Options::default()).ok()?;
        memory.read(out, room).ok()
    };
    let whole = function([512, 4], balanced);
    let want = listed(&whole);
    assert!(want.is_some());
    let deleted = ptx::mutate::mutations(&whole).into_iter().map(|mutant| (mutant.to_string(), mutant));
    let deleted: Vec<_> = deleted.filter(|(words, _)| words.contains("deleted")).collect();
    assert!(deleted.len() >= 12, "{}", deleted.len());
    let missed = deleted.iter().filter(|(_, mutant)| listed(&mutant.apply(&whole)) == want);
    assert_eq!(missed.map(|(words, _)| words).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn described_products() {
    for table in TABLES {
        described_products_in(table);
    }
}

fn described_products_in(table: [u32; 2]) {
    let program = lister(table, |given| {
        let (f, Offsets { address, groups, .. }) = (given.table.f, given.offsets);
        let extents = move |group| f.load_global_vector::<u32, 2>(address + Value::mul_wide(group, 8), 0);
        Groups::described_on_device(given.table, [groups, given.k], TILE, extents)
    });
    let mut random = Random(7);
    let most = if table[0] > 320 { table[0] } else { 80 };
    for count in [1, 2, 31, 32, 33, most] {
        // Some are empty.
        let mut extents = |limit| random.below(2) * random.below(limit);
        let shapes: Vec<[u32; 2]> = (0..count).map(|_| [extents(700), extents(900)]).collect();
        let tiles = |[m, n]: [u32; 2]| [m.div_ceil(TILE[0]), n.div_ceil(TILE[1])];
        let groups = Groups::described(shapes.iter().copied().map(tiles), 3);
        let given = [count, 0, 0, 3];
        let places = agree(&program, &groups.expect("few"), given, (0, &shapes.concat()), &shapes);
        let own = places.iter().map(|place| (place.group, place.tile));
        let expected = (0..).zip(&shapes).flat_map(|(group, &shape)| {
            let [m, n] = tiles(shape);
            (0..n).flat_map(move |n| (0..m).map(move |m| (Some(group), [m, n])))
        });
        assert!(own.eq(expected), "{shapes:?}");
    }
}
