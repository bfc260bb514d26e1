//! Tests of pictures: the labels of the cells, and the cost of accesses to shared memory.

use std::collections::{BTreeMap, BTreeSet};

use cute_rs::atom::{Major, SwizzleMode, smem, stmatrix, wgmma};
use cute_rs::draw::{Access, Atom, Conflicts, DrawError, MAX_CELLS, Picture};
use cute_rs::{ComposedLayout, IntTuple, Layout, Swizzle, ThreadValue};
use proptest::prelude::{Strategy, prop_assert_eq, proptest};
use proptest::sample::select;
use proptest::test_runner::{Config, FileFailurePersistence};

fn plain(layout: Layout) -> ComposedLayout {
    ComposedLayout { swizzle: Swizzle::NONE, offset: 0, layout }
}

/// The labels of a table, row by row, without the stars.
fn labels(table: &str) -> Vec<Vec<String>> {
    let rows = table.lines().filter_map(|line| line.split_once(" | "));
    rows.map(|(_, cells)| cells.split_whitespace().map(|cell| cell.replace('*', "")).collect()).collect()
}

/// A line may be longer than the largest width of a format, 65535.
#[test]
fn tables_have_lines_of_any_length() {
    let table = Picture::of_layout(&Layout::flat(&[20_000], &[1]).unwrap()).unwrap().table();
    let widths: Vec<usize> = table.lines().map(|line| line.chars().count()).collect();
    assert_eq!(widths, [120_003; 3]);
}

#[test]
fn tables_of_layouts() {
    for (why, layout, want) in [
        (
            "two modes are rows and columns",
            Layout::flat(&[2, 11], &[11, 1]).unwrap(),
            "     0  1  2  3  4  5  6  7  8  9 10\n  \
               +---------------------------------\n\
             0 |  0  1  2  3  4  5  6  7  8  9 10\n\
             1 | 11 12 13 14 15 16 17 18 19 20 21\n",
        ),
        (
            "one mode is a row",
            Layout::flat(&[3], &[-2]).unwrap(),
            "     0  1  2\n  +---------\n0 |  0 -2 -4\n",
        ),
        (
            "modes from the second on are columns",
            Layout::new(IntTuple::from((2, 2, 2)), IntTuple::from((1, 4, 2))).unwrap(),
            "    0 1 2 3\n  +--------\n0 | 0 4 2 6\n1 | 1 5 3 7\n",
        ),
        (
            "no mode is a point",
            Layout::new(IntTuple::EMPTY, IntTuple::EMPTY).unwrap(),
            "    0\n  +--\n0 | 0\n",
        ),
    ] {
        assert_eq!(Picture::of_layout(&layout).unwrap().table(), want, "{why}");
    }
}

#[test]
fn tables_of_banks_mark_what_is_touched() {
    let layout = Layout::flat(&[2, 4], &[4, 1]).unwrap();
    let picture = Picture::of_banks(&plain(layout), 16, &Access::row(1, 4)).unwrap();
    assert_eq!(
        picture.table(),
        "    0  1  2  3\n  \
           +------------\n\
         0 | 0  0  1  1\n\
         1 | 2* 2* 3* 3*\n\
         2 lanes of 4 bytes along row 1: 1 wavefront, 1 without conflicts, conflict degree 1\n"
    );
}

#[test]
fn fragments_show_their_owners() {
    let picture = Picture::of_thread_value(&wgmma::accumulator(64).unwrap()).unwrap();
    let rows = labels(&picture.table());
    assert_eq!((rows.len(), rows[0].len()), (64, 64));
    for (t, v) in (0..128).flat_map(|t| (0..32).map(move |v| (t, v))) {
        // The position in the figure of the PTX manual.
        let row = 16 * (t / 32) + t % 32 / 4 + 8 * (v / 2 % 2);
        let column = 8 * (v / 4) + 2 * (t % 4) + v % 2;
        assert_eq!(rows[row][column], format!("T{t}V{v}"));
    }
    let shared = ThreadValue::new(Layout::flat(&[4, 1], &[0, 1]).unwrap(), 1, 2).unwrap();
    let picture = Picture::of_thread_value(&shared).unwrap();
    assert_eq!(
        picture.table().lines().last(),
        Some("0 | T0V0+3"),
        "several owners, and an element without any"
    );
}

#[test]
fn pictures_that_cannot_be() {
    let side = MAX_CELLS / 16;
    let huge = Layout::flat(&[side, 17], &[1, side]).unwrap();
    let too_large = DrawError::TooLarge { rows: side, columns: 17 };
    assert_eq!(Picture::of_layout(&huge).unwrap_err(), too_large);
    assert_eq!(Picture::of_banks(&plain(huge), 16, &Access::row(0, 2)).unwrap_err(), too_large);
    let outside = ThreadValue::new(Layout::flat(&[4, 2], &[1, 4]).unwrap(), 4, 1).unwrap();
    assert_eq!(
        Picture::of_thread_value(&outside).unwrap_err(),
        DrawError::OutsideTile { thread: 0, value: 1 }
    );
    let backwards = ThreadValue::new(Layout::flat(&[4, 2], &[-1, 4]).unwrap(), 4, 2).unwrap();
    assert_eq!(
        Picture::of_thread_value(&backwards).unwrap_err(),
        DrawError::OutsideTile { thread: 1, value: 0 }
    );
}

/// Whether every element of an XML text is closed and no text contains an unescaped special character.
fn is_well_formed(xml: &str) -> bool {
    let mut open = Vec::new();
    for part in xml.split('<').skip(1) {
        let Some((tag, text)) = part.split_once('>') else { return false };
        if text.contains('>') || tag.matches('"').count() % 2 != 0 {
            return false;
        }
        let name = tag.trim_start_matches('/').split([' ', '/']).next();
        if tag.starts_with('/') {
            if open.pop() != name {
                return false;
            }
        } else if !tag.ends_with('/') {
            open.extend(name);
        }
    }
    open.is_empty()
}

fn is_balanced(latex: &str) -> bool {
    let mut depth = 0i64;
    latex.replace("\\{", "").replace("\\}", "").chars().all(|c| {
        depth += i64::from(c == '{') - i64::from(c == '}');
        depth >= 0
    }) && depth == 0
}

#[test]
fn documents_hold_every_cell() {
    let tile = smem::tile(Major::K, SwizzleMode::B64, 16, 16, 32).unwrap();
    let banks = Picture::of_banks(&tile, 16, &Access::column(0, 16)).unwrap().titled("<tile> & 100 % {x}");
    let fragment: Picture = "wgmma-m64n8k8-tf32-a".parse::<Atom>().unwrap().picture().unwrap();
    for (why, picture, cells, frames) in [
        ("offsets", Picture::of_composed(&tile).unwrap(), 512, 0),
        ("banks, with a frame around what each lane touches", banks, 512, 32),
        ("owners", fragment, 512, 0),
    ] {
        let (svg, latex) = (picture.svg(), picture.latex());
        assert!(is_well_formed(&svg), "{why}");
        assert_eq!(svg.matches("<rect class=\"c").count(), cells, "{why}");
        assert_eq!(svg.matches("<rect class=\"frame").count(), frames, "{why}");
        assert!(is_balanced(&latex), "{why}");
        assert_eq!(latex.matches("\\node[cell").count(), cells, "{why}");
        assert_eq!(latex.matches("\\draw").count(), frames, "{why}");
        for label in labels(&picture.table()).concat() {
            assert!(svg.contains(&format!(">{label}</text>")), "{why}: {label}");
            assert!(latex.contains(&format!("{{{label}}};")), "{why}: {label}");
        }
    }
}

#[test]
fn conflicts_of_known_accesses() {
    let words = plain(Layout::flat(&[32, 32], &[32, 1]).unwrap());
    let padded = plain(Layout::flat(&[32, 32], &[33, 1]).unwrap());
    let rows = plain(Layout::flat(&[64, 64], &[64, 1]).unwrap());
    let swizzled = smem::tile(Major::K, SwizzleMode::B128, 16, 64, 64).unwrap();
    let half = smem::tile(Major::K, SwizzleMode::B64, 16, 64, 32).unwrap();
    let transposed = smem::tile(Major::Mn, SwizzleMode::B128, 16, 64, 64).unwrap();
    let broadcast = plain(Layout::flat(&[32, 32], &[0, 1]).unwrap());
    let quads = Layout::new(IntTuple::from((4, 8)), IntTuple::from((128, 1))).unwrap();
    for (why, tile, bits, access, want) in [
        ("a row of words", words, 32, Access::row(0, 4), (1, 1, 1)),
        ("a column of words", words, 32, Access::column(3, 4), (32, 1, 32)),
        ("a padded column", padded, 32, Access::column(0, 4), (1, 1, 1)),
        ("one word for all", broadcast, 32, Access::column(0, 4), (1, 1, 1)),
        ("16-bit elements along a row", rows, 16, Access::row(0, 2), (1, 1, 1)),
        ("16-bit elements down a column", rows, 16, Access::column(0, 2), (32, 1, 32)),
        ("the swizzle spreads them over 8 chunks", swizzled, 16, Access::column(0, 2), (4, 1, 4)),
        ("rows of 16 bytes, as matrices are loaded", rows, 16, Access::column(0, 16), (32, 4, 8)),
        ("with the swizzle", swizzled, 16, Access::column(0, 16), (4, 4, 1)),
        ("with the 64-byte swizzle", half, 16, Access::column(0, 16), (4, 4, 1)),
        ("MN-major", transposed, 16, Access::row(0, 16), (4, 4, 1)),
        ("8 bytes are served in halves", rows, 16, Access::row(0, 8), (2, 2, 1)),
        ("the registers of an accumulator", swizzled, 16, Access::threads(quads, 4), (1, 1, 1)),
        ("without the swizzle", rows, 16, Access::threads(quads, 4), (8, 1, 8)),
        (
            "elements of 16 bytes",
            plain(Layout::flat(&[64], &[1]).unwrap()),
            128,
            Access::row(0, 16),
            (4, 4, 1),
        ),
        (
            "elements of half a byte",
            plain(Layout::flat(&[512], &[1]).unwrap()),
            4,
            Access::row(0, 4),
            (1, 1, 1),
        ),
    ] {
        let got = Conflicts::of(&tile, bits, &access).unwrap();
        assert_eq!((got.wavefronts, got.ideal, got.degree), want, "{why}: {got}");
    }
}

#[test]
fn accesses_that_no_warp_makes() {
    let rows = plain(Layout::flat(&[8, 8], &[8, 1]).unwrap());
    let shifted = ComposedLayout { offset: 1, ..rows };
    for (why, tile, bits, access, message) in [
        ("a width", rows, 12, Access::row(0, 4), "elements of 12 bits"),
        ("too wide an element", rows, 32, Access::row(0, 2), "lanes of 2 bytes and elements of 32 bits"),
        ("too much a lane", rows, 16, Access::row(0, 32), "lanes of 32 bytes"),
        ("a row that is not there", rows, 16, Access::row(8, 2), "row 8 is not one of the 8"),
        ("a negative column", rows, 16, Access::column(-1, 2), "column -1 is not one of the 8"),
        (
            "a coordinate",
            rows,
            16,
            Access::threads(Layout::flat(&[32], &[3]).unwrap(), 2),
            "coordinate 66 is not",
        ),
        (
            "neighbours",
            plain(Layout::flat(&[8, 8], &[2, 16]).unwrap()),
            16,
            Access::row(0, 4),
            "no neighbours",
        ),
        ("alignment", shifted, 16, Access::row(0, 4), "begins at element 1, which is not aligned"),
        (
            "a small tile",
            plain(Layout::flat(&[1, 4], &[0, 1]).unwrap()),
            16,
            Access::row(0, 16),
            "has not the 8",
        ),
    ] {
        let error = Conflicts::of(&tile, bits, &access).unwrap_err().to_string();
        assert!(error.contains(message), "{why}: {error}");
    }
}

#[test]
fn atoms_have_names() {
    for n in (8..=256).step_by(8) {
        let Ok(Atom::Fragment(fragment)) = format!("wgmma-m64n{n}k16-bf16-c").parse() else {
            panic!("N = {n}")
        };
        assert_eq!(Ok(fragment), wgmma::accumulator(n));
    }
    for (element, k, bits) in
        [("f16", 16, 16), ("bf16", 16, 16), ("tf32", 8, 32), ("e4m3", 32, 8), ("fp8", 32, 8), ("s8", 32, 8)]
    {
        let Ok(Atom::Fragment(fragment)) = format!("wgmma-m64n64k{k}-{element}-a").parse() else {
            panic!("{element}")
        };
        assert_eq!(Ok(fragment), wgmma::operand_a(bits));
    }
    for (name, count, transposed, tile) in [
        ("stmatrix-x1-source", 1, false, (8, 8)),
        ("stmatrix-x2-trans-source", 2, true, (16, 8)),
        ("ldmatrix-x4-destination", 4, false, (16, 16)),
    ] {
        let Ok(Atom::Fragment(fragment)) = name.parse() else { panic!("{name}") };
        let registers = stmatrix::stmatrix(count, transposed).unwrap().source();
        assert_eq!((fragment.layout(), fragment.tile()), (registers, tile), "{name}");
    }
    let Ok(Atom::Fragment(rows)) = "stmatrix-x4-destination".parse() else { panic!("rows of lanes") };
    assert_eq!(rows.coord(21, 3), (5, 11));
    for (name, major, mode, bits, mn, k) in [
        ("smem-k-128B-bf16-64x64", Major::K, SwizzleMode::B128, 16, 64, 64),
        ("smem-mn-64B-f16-32x16", Major::Mn, SwizzleMode::B64, 16, 32, 16),
        ("smem-k-32B-tf32-64x32", Major::K, SwizzleMode::B32, 32, 64, 32),
        ("smem-mn-none-bf16-64x16", Major::Mn, SwizzleMode::None, 16, 64, 16),
    ] {
        let Ok(Atom::Shared { tile, element_bits, .. }) = name.parse() else { panic!("{name}") };
        assert_eq!((Ok(tile), element_bits), (smem::tile(major, mode, bits, mn, k), bits), "{name}");
        let atom: Atom = name.parse().unwrap();
        let note = atom.picture().unwrap().notes().next().map(String::from);
        assert!(
            note.is_some_and(|note| note.ends_with("conflict degree 1")),
            "{name} is read without conflicts"
        );
    }
}

#[test]
fn other_names_are_refused_with_a_reason() {
    for (name, message) in [
        ("wgmma", "names read"),
        ("mma-m16n8k16-bf16-c", "names read"),
        ("wgmma-m64n12k16-bf16-c", "N of wgmma is 12, not a positive multiple of 8"),
        ("wgmma-m64n264k16-bf16-c", "not in 8..=256"),
        ("wgmma-m64n40k32-s8-c", "multiple of 16 above 32 for s8"),
        ("wgmma-m64n64k32-bf16-c", "K of wgmma is 16 for bf16, not 32"),
        ("wgmma-m32n64k16-bf16-c", "no shape"),
        ("wgmma-m64n64k16-f64-c", "none of the element types"),
        ("wgmma-m64n64k16-bf16-b", "read from shared memory"),
        ("wgmma-m64n64k16-bf16-x", "none of the operands"),
        ("stmatrix-x3-source", "3"),
        ("stmatrix-4-source", "none of `x1`"),
        ("ldmatrix-x4-left", "neither `source` nor `destination`"),
        ("ldmatrix-x4-trans", "neither `source` nor `destination`"),
        ("smem-x-128B-bf16-64x64", "neither `k` nor `mn`"),
        ("smem-k-256B-bf16-64x64", "none of the swizzles"),
        ("smem-k-128B-bf16-64", "no extents"),
        ("smem-k-128B-bf16-64x32", "K extent is 32, not a positive multiple of 64"),
        ("smem-k-128B-bf16-4000000000x64", "does not fit"),
        ("smem-k-128B-bf16-64x64-more", "names read"),
    ] {
        let error = name.parse::<Atom>().unwrap_err().to_string();
        assert!(error.contains(message) && error.contains(name), "{error}");
    }
}

// Random pictures.

fn layouts() -> impl Strategy<Value = Layout> {
    proptest::collection::vec((1i64..9, -8i64..70), 1..4).prop_map(|leaves| {
        let (shape, stride): (Vec<_>, Vec<_>) = leaves.into_iter().unzip();
        Layout::flat(&shape, &stride).expect("at most three modes")
    })
}

proptest! {
    #![proptest_config(Config { cases: 1000, failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("proptest-regressions"))), ..Config::default() })]

    #[test]
    fn tables_show_the_offsets(layout in layouts(), offset in 0i64..600, bits in 0u32..4) {
        let tile = ComposedLayout { swizzle: Swizzle { bits, base: 1, ..SwizzleMode::B128.byte_swizzle() }, offset, layout };
        let picture = Picture::of_composed(&tile).unwrap();
        let rows = labels(&picture.table());
        let mode_0 = layout.shape().leaf(0);
        let mut shown = BTreeSet::new();
        for (row, cells) in rows.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate() {
                let coord = if layout.rank() == 1 { column as i64 } else { row as i64 + mode_0 * column as i64 };
                prop_assert_eq!(cell, &tile.at(coord).to_string());
                shown.insert(coord);
            }
        }
        prop_assert_eq!(shown.len() as i64, layout.size());
        assert!(is_well_formed(&picture.svg()) && is_balanced(&picture.latex()));
    }

    #[test]
    fn wavefronts_serve_a_word_of_each_bank(
        strides in select(vec![(64, 1), (72, 1), (1, 64), (8, 128), (1, 3), (0, 1)]),
        element_bits in select(vec![8u32, 16, 32]),
        lane_bytes in select(vec![1u32, 2, 4, 8, 16]),
        down in proptest::bool::ANY,
        swizzled in proptest::bool::ANY,
    ) {
        let swizzle = if swizzled { SwizzleMode::B128.swizzle(element_bits) } else { Swizzle::NONE };
        let layout = Layout::flat(&[64, 64], &[strides.0, strides.1]).unwrap();
        let tile = ComposedLayout { swizzle, offset: 0, layout };
        let access = if down { Access::column(0, lane_bytes) } else { Access::row(0, lane_bytes) };
        let Ok(conflicts) = Conflicts::of(&tile, element_bits, &access) else { return Ok(()) };
        let lanes_at_once = match lane_bytes { 16 => 8, 8 => 16, _ => 32 };
        let mut wavefronts = 0;
        for part in conflicts.lanes.chunks(lanes_at_once) {
            let mut banks: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
            for &(row, column) in part.iter().flat_map(|lane| &lane.elements) {
                let byte = tile.at_modes(&[row as i64, column as i64]) * i64::from(element_bits) / 8;
                banks.entry(byte / 4 % 32).or_default().insert(byte / 128);
            }
            wavefronts += banks.values().map(BTreeSet::len).max().unwrap_or(0);
        }
        prop_assert_eq!(conflicts.wavefronts, wavefronts);
        prop_assert_eq!(conflicts.lanes.len(), 32);
        assert!(conflicts.ideal <= wavefronts && wavefronts <= conflicts.degree * 4);
        let expected = lane_bytes * 8 / element_bits;
        assert!(conflicts.lanes.iter().all(|lane| lane.elements.len() == expected as usize));
    }
}
