//! Problems that are too large are refused at once, with the flag and the number.

#[cfg(target_os = "linux")]
use std::process::Command;

use crate::{falchion, folder, quickly, refused};

const LARGE: &str = "4294967295";

/// Each command that allocates for a problem, or runs it in the emulator.
#[test]
fn what_no_machine_holds_is_refused_before_anything_is_allocated() {
    refused(
        "trace",
        &[
            (
                "an extent of 32 bits",
                &["--kernel", "64x64-direct-bf16-kk", "--m", LARGE],
                &["M is 4294967295", "below 2147483648"],
            ),
            (
                "gigabytes, and events without end",
                &["--kernel", "64x64-direct-bf16-kk", "--m", "60000", "--n", "60000", "--k", "64"],
                &["--m 60000, --n 60000, --k 64", "1759688 blocks", "at most 65536"],
            ),
            (
                "a long sum",
                &["--kernel", "64x64-direct-bf16-kk", "--m", "64", "--n", "64", "--k", "2000000000"],
                &["--k 2000000000", "31250001 blocks"],
            ),
            (
                "no rows",
                &["--kernel", "64x64-direct-bf16-kk", "--m", "0"],
                &["'0' for '--m <M>'", "from 1 to"],
            ),
            (
                "no columns",
                &["--kernel", "64x64-direct-bf16-kk", "--n", "0"],
                &["'0' for '--n <N>'", "from 1 to"],
            ),
        ],
    );
    refused(
        "gemm",
        &[
            (
                "both extents",
                &["--m", LARGE, "--n", LARGE],
                &["4294967295 x 4294967295 x 256", "GB of memory", "--m"],
            ),
            (
                "a fused epilogue",
                &["--epilogue", "bias", "--m", LARGE, "--n", LARGE],
                &["GB of memory", "--n"],
            ),
            (
                "a kernel with one",
                &["--kernel", "128x256-bias-bf16-kk", "--m", LARGE, "--n", LARGE],
                &["GB of memory"],
            ),
            ("a group", &["--group", "4294967295x8x8"], &["--group", "M is 4294967295", "below 2147483648"]),
            (
                "groups",
                &["--group", "2147483000x8x8", "--group", "2147483000x16x8"],
                &["--group of 2 GEMMs", "GB of memory", "lower --group"],
            ),
            ("rows", &["--rows", "2000000000", "--n", "8", "--k", "1000000"], &["--rows", "GB of memory"]),
            (
                "a batch",
                &["--batch", "2000000000", "--m", "1", "--n", "2", "--k", "1"],
                &["--batch 2000000000", "GB"],
            ),
            (
                "a batch of empty ones",
                &["--batch", LARGE, "--m", "0", "--n", "1", "--k", "1"],
                &["'0' for '--m <M>'"],
            ),
            ("an extent of B's", &["--group", "1x4294967295x4294967295"], &["elements of B"]),
            (
                "two of them, whose elements are more than 2^64",
                &["--group", "1x4294967295x4294967295", "--group", "1x4294967295x4294967295"],
                &["36893488130239234050 elements of B"],
            ),
        ],
    );
    refused(
        "bench",
        &[
            (
                "more elements of C than are drawn",
                &["--epilogue", "residual", "--shape", "65536x65536x8"],
                &["65536 x 65536 = 4294967296 elements", "at most 4294967295"],
            ),
            ("an extent of 32 bits", &["--m", LARGE], &["M is 4294967295", "at most 2147483647"]),
            (
                "more than a machine holds",
                &["--shape", "2147483647x2147483647x2147483647"],
                &["2147483647 x 2147483647 x 2147483647", "GB of memory", "lower"],
            ),
            ("experts", &["--rows", "2147483647", "--n", "2147483647", "--k", "64"], &["GB of memory"]),
            (
                "weights of experts",
                &["--rows", "1,1", "--n", "2147483647", "--k", "2000000"],
                &["GB of memory"],
            ),
        ],
    );
    refused(
        "plan",
        &[("an extent of 32 bits", &["--m", LARGE, "--n", "8", "--k", "8"], &["M is 4294967295"])],
    );
    refused(
        "layout",
        &[("a picture", &["(100000,100000)", "--table"], &["100000 x 100000 cells", "at most 65536"])],
    );
}

/// One limit of memory and of work for every family.
#[test]
fn a_family_is_refused_before_anything_is_allocated() {
    const FAMILY: &str = "--family";
    let text = |problem: &'static str| ["--problem", problem];
    let verify: [(&str, [&str; 2], &[&str]); 3] = [
        (
            "heads of 32 bits",
            text("1x4294967295x1000003"),
            &["the number of heads is 4294967295", "2147483648"],
        ),
        ("few blocks", text("1x1x64x900000000"), &["1x1/1x64x900000000", "GB of memory are needed"]),
        ("days of work", text("1x1073741824x1x0"), &["blocks are multiplied or stored, at most 16777216"]),
    ];
    let drawn: [(&str, [&str; 2], &[&str]); 4] = [
        ("many small tiles", text("65536x3x7"), &["65536x3/3x7x7", "blocks", "at most 65536"]),
        ("no operation", text("2x4294967295x1x0"), &["the number of heads is 4294967295"]),
        ("no keys", text("1x1073741824x1x0"), &["blocks", "at most 65536"]),
        ("a window", text("1x1x8000000 mask=window left=100 right=0"), &["blocks", "at most 65536"]),
    ];
    for family in ["attention", "attention-backward"] {
        for (command, cases) in [("verify", &verify[..]), ("explore", &drawn), ("trace", &drawn)] {
            for (why, problem, words) in cases {
                let engine = if command == "verify" { &["--engine", "emulator"][..] } else { &[] };
                let line = [&[FAMILY, family], &problem[..], engine].concat();
                refused(command, &[(why, &line, words)]);
            }
        }
    }
}

/// A fused epilogue that reduces all of D to one number is evaluated at all elements, which needs memory.
#[test]
#[cfg(target_os = "linux")]
fn the_memory_of_a_fused_epilogue_is_counted() {
    let limited = format!("ulimit -v 4000000; exec {} \"$@\"", env!("CARGO_BIN_EXE_falchion"));
    let arguments =
        ["gemm", "--engine", "emulator", "--epilogue", "bias-amax", "--m", "4096", "--n", "4096", "--k", "8"];
    let output = Command::new("sh").args(["-c", &limited, "sh"]).args(arguments).output().expect("a shell");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("4096 x 4096 x 8 with epilogue bias-amax needs 7"), "{stderr}");
}

/// What takes as long as an argument is large has a largest argument, or takes no longer.
#[test]
fn no_argument_asks_for_a_life() {
    let page = folder("limits").join("page.html").display().to_string();
    let run = quickly(&["explore", "--kernel", "64x64-direct-bf16-kk", "--k", "2147483647", "-o", &page]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    refused("gemm", &[("runs", &["--repeat", LARGE], &["--repeat", "1000000"])]);
    #[cfg(unix)]
    refused(
        "tune",
        &[("no end of shapes", &["--shapes", "/dev/zero"], &["--shapes /dev/zero", "more than 1048576 B"])],
    );
}

/// Extents, groups, batches and tiles whose product exceeds 32 bits.
#[test]
fn schedules_count_in_enough_bits() {
    refused(
        "schedule",
        &[
            (
                "a group of 32 bits",
                &["--kernel", "grouped-128x256-bf16-kk", "--group", "4294967295x4294967295x64"],
                &["--group 4294967295x4294967295x64", "M is 4294967295", "below 2147483648"],
            ),
            (
                "a batch of 2^33 tiles",
                &[
                    "--kernel",
                    "batched-128x256-bf16-kk",
                    "--batch",
                    "65536",
                    "--m",
                    "16777216",
                    "--n",
                    "256",
                    "--k",
                    "64",
                ],
                &["--batch 65536", "--m 16777216", "8589934592 x 1 tiles", "at most 2147483647"],
            ),
            (
                "groups of 2^36 tiles",
                &["--kernel", "grouped-128x256-bf16-kk", "--group", "2147483647x2147483647x64,8x8x8"],
                &["--group", "tiles", "at most 2147483647"],
            ),
            (
                "rows of 32 bits in all",
                &[
                    "--kernel",
                    "ragged-128x256-bf16-kk",
                    "--rows",
                    "2147483647,2147483647",
                    "--n",
                    "8",
                    "--k",
                    "8",
                ],
                &["--rows 2147483647,2147483647", "M is 4294967294", "below 2147483648"],
            ),
            (
                "more tiles than a picture shows, of groups",
                &["--kernel", "grouped-128x256-bf16-kk", "--group", "1000000x1000000x64"],
                &["--group 1000000x1000000x64 make", "at most 262144"],
            ),
            (
                "the same of experts",
                &["--kernel", "ragged-128x256-bf16-kk", "--rows", "2000000,1", "--n", "8000", "--k", "8"],
                &["--rows 2000000,1, --n 8000, --k 8 make", "at most 262144"],
            ),
        ],
    );
    for (arguments, other) in [
        (&["--kernel", "grouped-128x256-bf16-kk", "--group", "1000000x1000000x64"][..], "--m"),
        (&["--kernel", "ragged-128x256-bf16-kk", "--rows", "2000000,1", "--n", "8000", "--k", "8"], "--m"),
    ] {
        let run = falchion(&[&["schedule"], arguments].concat());
        assert!(!run.stderr.contains(other), "{arguments:?}: {other} was not given: {}", run.stderr);
    }
}
