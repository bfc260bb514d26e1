//! `falchion schedule`: the work of each worker, as a drawing and in numbers.

use std::fs;

use crate::{falchion, folder};

/// The text without the model's predicted time, which changes with every fit. The time must be present and
/// above 0.
fn without_prediction(text: &str) -> String {
    let Some((before, after)) = text.split_once(" to the SMs, ") else { return text.to_owned() };
    let (number, rest) = after.split_once(' ').expect("a number and its unit");
    assert!(number.parse::<f64>().is_ok_and(|bytes| bytes > 0.0), "{number}");
    format!("{before} to the SMs, … {rest}")
}

/// Schedules of whole, split and sliced tiles, as a drawing and in numbers.
#[test]
fn a_schedule_is_drawn() {
    let shape = ["--m", "192", "--n", "192", "--k", "256", "--sms", "2"];
    let run = falchion(
        &[&["schedule", "--kernel", "128x128-direct-bf16-kk"], &shape[..], &["--width", "40"]].concat(),
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(without_prediction(&run.stdout), include_str!("../schedule/medium.txt"));
    // Nine tiles of 128 k-tiles for eight SMs: 144 k-tiles each, and the time of 3 for exchanging partial
    // sums.
    let shape = ["--m", "768", "--n", "576", "--k", "8192", "--sms", "8"];
    let divided = falchion(&[&["schedule", "--kernel", "256x192-stream-k-bf16-kk"], &shape[..]].concat());
    assert_eq!(divided.code, Some(0), "{}", divided.stderr);
    assert_eq!(without_prediction(&divided.stdout), include_str!("../schedule/stream.txt"));
    // Two waves of three tiles, and one tile in two slices: each takes half of a tile's 8 k-tiles.
    let spec = "tile=128x128x64 scheduler=narrow-tail raster=m splits=2";
    let shape = ["--m", "896", "--n", "128", "--k", "512", "--sms", "3"];
    let sliced = falchion(&[&["schedule", "--kernel", spec], &shape[..]].concat());
    assert_eq!(sliced.code, Some(0), "{}", sliced.stderr);
    assert_eq!(without_prediction(&sliced.stdout), include_str!("../schedule/slices.txt"));
}

/// The list, the drawing and the picture show each slice at its columns of the tile, or at its rows with
/// swap-AB. The work units of a tile cover each of its columns once.
#[test]
fn slices_are_shown_as_what_they_are() {
    let file = folder("slices").join("s.svg");
    let svg = file.display().to_string();
    // The number of slices of the last wave's tiles, and the number of boxes of a slice in the map of D.
    for (words, m, n, sms, [slices, strips], along) in [
        ("raster=m splits=2", 896, 128, 3, [2, 1], "columns"),
        ("raster=m splits=4 store=direct", 640, 256, 9, [4, 1], "columns"),
        ("raster=n splits=2 swap=yes", 640, 384, 7, [2, 1], "rows"),
        // Clusters of two CTAs along N, which have a strip each.
        ("raster=m splits=2 cluster=1x2", 640, 256, 4, [2, 2], "columns"),
        ("raster=m splits=2 cluster=1x2 swap=yes", 1280, 128, 8, [2, 2], "rows"),
        // Two tiles are left over for four workers, and would be eight slices.
        ("raster=m splits=4 store=direct", 768, 128, 4, [0, 0], "columns"),
    ] {
        let spec = format!("tile=128x128x64 scheduler=narrow-tail {words}");
        let [m, n, sms] = [m, n, sms].map(|number: u32| number.to_string());
        let arguments =
            ["schedule", "--kernel", &spec, "--m", &m, "--n", &n, "--k", "512", "--sms", &sms, "--svg", &svg];
        let drawn = falchion(&arguments);
        assert_eq!(drawn.code, Some(0), "{words}: {}", drawn.stderr);
        let listed = falchion(&[&arguments[..], &["--list"]].concat());
        assert!(listed.stdout.contains(&format!("  k-tiles     {along}\n")), "{words}: {}", listed.stdout);
        let mut columns = std::collections::BTreeMap::<&str, Vec<[u32; 2]>>::new();
        for line in listed.stdout.lines().filter(|line| line.contains("  multiply ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (first, end) = words[7].split_once("..").expect("a range");
            columns.entry(words[5]).or_default().push([first, end].map(|at| at.parse().expect("a number")));
        }
        let mut sliced = 0;
        for (tile, mut ranges) in columns {
            ranges.sort_unstable();
            let end = ranges.iter().try_fold(0, |reached, [first, end]| (*first == reached).then_some(*end));
            assert_eq!(end, Some(128), "{words}, tile {tile}: {ranges:?}");
            for [first, end] in ranges.iter().filter(|[first, end]| end - first < 128) {
                sliced += 1;
                let cell = format!("[{tile} {first}..{end}:");
                assert!(drawn.stdout.contains(&cell), "{words}: no `{cell}` in {}", drawn.stdout);
            }
        }
        assert_eq!(sliced, slices, "{words}: {}", listed.stdout);
        assert_eq!(drawn.stdout.contains("slices     none: "), slices == 0, "{words}: {}", drawn.stdout);
        // One box per slice in time, and its strips in D.
        let picture = fs::read_to_string(&file).expect("a picture");
        let boxes = picture.matches(" of it, k-tiles 0..8").count();
        assert_eq!(boxes, slices * (1 + strips), "{words}");
        let first = picture.matches(&format!(", {along} 0..{} of it,", 128 / slices.max(1))).count();
        assert_eq!(first, boxes / slices.max(1), "{words}");
    }
}

/// Every kernel has a schedule: its work units cover each k-tile of each tile of D once.
#[test]
fn every_kernel_has_a_schedule() {
    for entry in kernel::catalogue().iter().filter(|entry| entry.name().ends_with("-bf16-kk")) {
        let run = falchion(&[
            "schedule",
            "--kernel",
            entry.name(),
            "--m",
            "600",
            "--n",
            "1040",
            "--k",
            "1000",
            "--sms",
            "12",
            "--list",
        ]);
        assert_eq!(run.code, Some(0), "{}: {}", entry.name(), run.stderr);
        let mut k_tiles = std::collections::BTreeMap::<&str, Vec<[u32; 2]>>::new();
        for line in run.stdout.lines().filter(|line| line.contains("  multiply ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (begin, end) = words[6].split_once("..").expect("a range");
            k_tiles.entry(words[5]).or_default().push([begin, end].map(|k| k.parse().expect("a number")));
        }
        let plan = entry.plan();
        let [m, n, k] = plan.mainloop.tile;
        let [cluster_m, cluster_n] = plan.mainloop.cluster;
        let [rows, columns] = plan.oriented([m * cluster_m, n * cluster_n]);
        assert_eq!(
            k_tiles.len() as u32,
            600u32.div_ceil(rows) * 1040u32.div_ceil(columns),
            "{}",
            entry.name()
        );
        for (tile, mut pieces) in k_tiles {
            pieces.sort_unstable();
            let ends = pieces.iter().try_fold(0, |reached, [begin, end]| (*begin == reached).then_some(*end));
            assert_eq!(ends, Some(1000u32.div_ceil(k)), "{} tile {tile}: {pieces:?}", entry.name());
        }
    }
}

/// Launches of many GEMMs have one too: it has the tiles of all GEMMs, each with its own accumulators.
#[test]
fn schedules_of_several_products() {
    for (arguments, tiles, longest) in [
        // 3, 0, 1 and 2 tiles of 128 rows; 5 of 256 columns; 2 k-tiles.
        (
            &["--kernel", "ragged-128x256-bf16-kk", "--rows", "300,0,17,129", "--n", "1100", "--k", "100"][..],
            30,
            2,
        ),
        // 2, 0, 1 and 1 tiles of 256 rows; 9 of 128 columns.
        (
            &[
                "--kernel",
                "ragged-128x256-step32-bf16-kk",
                "--rows",
                "300,0,17,129",
                "--n",
                "1100",
                "--k",
                "100",
            ],
            36,
            2,
        ),
        (
            &["--kernel", "batched-128x256-bf16-kk", "--batch", "3", "--m", "200", "--n", "300", "--k", "64"],
            12,
            1,
        ),
        // 3 x 2 tiles of one k-tile, and one of 8.
        (&["--kernel", "grouped-128x256-bf16-kk", "--group", "300x512x64,70x40x512"], 7, 8),
    ] {
        let run = falchion(&[&["schedule"], arguments, &["--sms", "8", "--list"]].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        let pieces: Vec<Vec<&str>> = run
            .stdout
            .lines()
            .filter(|line| line.contains("  multiply "))
            .map(|line| line.split_whitespace().collect())
            .collect();
        let mut places: Vec<&str> = pieces.iter().map(|words| words[5]).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!((pieces.len(), places.len()), (tiles, tiles), "{arguments:?}: {}", run.stdout);
        let ends = pieces.iter().filter_map(|words| words[6].split_once("..")?.1.parse::<u32>().ok());
        assert_eq!(ends.max(), Some(longest), "{arguments:?}");
        // Two tiles of 160 columns, one of 32 and one of 160, each nine times.
        let narrowed = "narrowed   to 32 to 160 columns, 0.50 of a tile on average";
        assert_eq!(
            run.stdout.contains(narrowed),
            arguments[1] == "ragged-128x256-step32-bf16-kk",
            "{}",
            run.stdout
        );
    }
    let wrong =
        falchion(&["schedule", "--kernel", "64x64-direct-bf16-kk", "--rows", "3", "--n", "8", "--k", "8"]);
    assert_eq!(wrong.code, Some(2));
    assert!(
        wrong.stderr.contains("64x64-direct-bf16-kk computes one GEMM, and --rows means groups of rows"),
        "{}",
        wrong.stderr
    );
}

#[test]
fn schedules_of_nothing_say_why() {
    let file = folder("schedule").join("s.svg");
    let svg = file.display().to_string();
    let shape = ["--m", "512", "--n", "4096", "--k", "512"];
    let run = falchion(
        &[
            &["schedule", "--kernel", "256x128-dynamic-1x2-f16-kk"],
            &shape[..],
            &["--svg", &svg, "--lines", "3"],
        ]
        .concat(),
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("more slots"), "{}", run.stdout);
    assert!(fs::read_to_string(&file).is_ok_and(|document| document.matches("worker ").count() >= 64));
    for (why, arguments, words) in [
        (
            "no such kernel",
            &["--kernel", "tiny-bf16-kk", "--m", "8", "--n", "8", "--k", "8"][..],
            &["`tiny-bf16-kk`"][..],
        ),
        ("no extents", &["--kernel", "64x64-direct-bf16-kk", "--m", "8"], &["--n was needed"]),
        (
            "an empty product",
            &["--kernel", "64x64-direct-bf16-kk", "--m", "8", "--n", "0", "--k", "8"],
            &["--n", "0"],
        ),
        (
            "no multiprocessor",
            &["--kernel", "64x64-direct-bf16-kk", "--m", "8", "--n", "8", "--k", "8", "--sms", "0"],
            &["--sms", "0"],
        ),
        (
            "rows of 72 B",
            &["--kernel", "128x256-bf16-kk", "--m", "8", "--n", "36", "--k", "8"],
            &["D", "72 B", "16 B"],
        ),
        (
            "too many tiles",
            &["--kernel", "64x64-direct-bf16-kk", "--m", "65536", "--n", "65536", "--k", "8"],
            &["--m 65536", "1048576 tiles", "262144"],
        ),
        (
            "a picture into no folder",
            &[
                "--kernel",
                "64x64-direct-bf16-kk",
                "--m",
                "8",
                "--n",
                "8",
                "--k",
                "8",
                "--svg",
                "/no such folder/a.svg",
            ],
            &["cannot write /no such folder/a.svg"],
        ),
    ] {
        let run = falchion(&[&["schedule"], arguments].concat());
        assert_eq!(run.code, Some(2), "{why}: {}{}", run.stdout, run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{why}: no `{word}` in {}", run.stderr);
        }
        assert!(!run.stderr.contains("panicked"), "{why}: {}", run.stderr);
    }
}
