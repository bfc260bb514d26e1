//! What is accepted has an effect: with an option, a command prints or writes something else than without it, or it refuses the
//! option by name. The options are those of `docs/options.md`, which a test of the program holds to its table.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{check, folder, npy, refused};

/// Options that say what must be so, or how much may be used: where it is so, nothing else is printed.
const CONDITIONS: [(&str, &str); 13] = [
    ("gemm", "reproducible"),
    ("plan", "reproducible"),
    ("schedule", "reproducible"),
    ("trace", "reproducible"),
    // As many clusters as there are tiles, lines of a drawing as there are slots.
    ("trace", "clusters"),
    ("schedule", "lines"),
    ("schedule", "width"),
    // Where no GPU is, the emulator runs anyway.
    ("gemm", "engine"),
    ("verify", "engine"),
    // A kernel that is right has no findings to be left out, and warnings least of all.
    ("check", "suppress"),
    ("check", "baseline"),
    ("check", "deny-warnings"),
    ("check", "seed"),
];

/// Options of random inputs, of more runs, and of exact sums: verdicts are the same.
const VERDICTS: [&str; 3] = ["seed", "repeat", "exact"];

/// Options that are accepted in no line: one word is the subject, and a GPU is needed.
const NOWHERE: [&str; 7] = [
    "layout expr",
    "verify record",
    "verify replay",
    "check against-device",
    "check compiler",
    "check ptxas",
    "check rules",
];

/// Commands that need a GPU, that list, or that delete.
const ELSEWHERE: [&str; 7] = ["bench", "tune", "calibrate", "chart", "trim", "clear", "configs"];

/// A command with its first options, to which one more is added.
const LINES: &[(&str, &str)] = &[
    ("gemm", "--m 16 --n 16 --k 32"),
    ("gemm", "--m 16 --n 16 --k 32 --beta 1"),
    ("gemm", "--a A.npy --b B.npy"),
    ("gemm", "--a A.npy --b B.npy --c C.npy --beta 1"),
    ("gemm", "--batch 2 --m 16 --n 16 --k 32"),
    ("gemm", "--rows 3,0,20 --n 64 --k 64"),
    ("gemm", "--k-groups 64,0,128 --m 64 --n 64"),
    ("gemm", "--group 64x64x64"),
    ("gemm", "--epilogue gelu(alpha*acc+bias[n]) --m 24 --n 40 --k 64"),
    ("gemm", "--kernel 64x64-direct-bf16-kk --m 16 --n 16 --k 32"),
    ("gemm", "--kernel 64x64-direct-bf16-kk --a A.npy --b B.npy"),
    ("gemm", "--dtype-b s4 --a A.npy --b B.npy --scale-b row.npy"),
    ("gemm", "--dtype-b s4g64 --a A.npy --b B.npy --scale-b row.npy"),
    ("gemm", "--dtype s4g64 --dtype-b bf16 --a A.npy --b B.npy --scale-a column.npy"),
    ("gemm", "--dtype e4m3 --scale-block-a 1x128 --scale-block-b 1x128 --m 64 --n 64 --k 128"),
    ("gemm", "--dtype e4m3 --a A.npy --b B.npy --scale-a column.npy --scale-b row.npy"),
    ("gemm", "--sparse a --m 64 --n 64 --k 64"),
    ("gemm", "--layout kkm --a A.npy --b B.npy"),
    ("plan", "--m 200 --n 264 --k 256"),
    ("plan", "--kernel tile=64x64x64"),
    ("plan", "--rows 3,0,20 --max-rows 32 --n 64 --k 64"),
    ("plan", "--group 64x64x64"),
    ("plan", "--k-groups 64,0,128 --m 64 --n 64"),
    ("plan", "--dtype e4m3 --scale-block-a 1x128 --scale-block-b 1x128 --m 64 --n 64 --k 128"),
    ("plan", "--family attention --problem 1x2x256"),
    ("plan", "--family attention-backward --problem 1x2x256"),
    ("emit", "--kernel tile=64x64x64"),
    ("emit", "--family attention --kernel d=64"),
    ("verify", "--filter alpha-zero"),
    ("verify", "--kernel tile=64x64x64 --problems 1"),
    ("verify", "--random-specs 2"),
    ("verify", "--suite fusions --filter 128x128-pingpong-bias-gelu-bf16-kk"),
    ("verify", "--suite instructions --filter shfl"),
    ("verify", "--family attention --problem 1x1x64"),
    ("check", "right.ptx"),
    ("check", "--rules"),
    ("trace", "--m 64 --n 64 --k 64"),
    ("trace", "--dtype e4m3 --scale-block-a 1x128 --scale-block-b 1x128 --m 64 --n 64 --k 128"),
    ("trace", "--kernel 64x64-direct-bf16-kk --m 64 --n 64 --k 64"),
    ("trace", "--kernel 64x64-direct-bf16-kk --m 64 --n 64 --k 64 --schedule random"),
    ("trace", "--family attention --problem 1x1x64"),
    ("layout", "(4,8)"),
    ("layout", "(4,8) --table"),
    ("layout", "(32,32) --banks 32"),
    ("layout", "((2,2),1):((1,4),0) --tile 2x3 --table"),
    ("layout", "--atom smem-k-128B-bf16-64x64"),
    ("layout", "--atom wgmma-m64n64k16-bf16-c"),
    ("layout", "size((4,8))"),
    ("schedule", "--m 512 --n 768 --k 512"),
    ("schedule", "--kernel 128x256-bf16-kk --m 512 --n 768 --k 512"),
    ("schedule", "--kernel 128x256-bf16-kk --m 512 --n 768 --k 512 --list"),
    ("schedule", "--rows 300,0,17 --n 512 --k 512"),
    ("schedule", "--rows 3,0,20 --max-rows 32 --n 512 --k 512"),
    ("schedule", "--dtype e4m3 --scale-block-a 1x128 --scale-block-b 1x128 --m 512 --n 512 --k 128"),
    ("schedule", "--k-groups 64,0,128 --m 512 --n 512"),
    ("schedule", "--group 300x512x64"),
    ("explore", "--out out"),
    ("explore", "--kernel 64x64-direct-bf16-kk --run 64x64x64 --out out"),
    ("explore", "--kernel ragged-128x256-step32-bf16-kk --out out"),
    ("explore", "--family attention --problem 1x1x64 --out out"),
];

/// A value of an option that is not its default.
fn value(name: &str) -> Option<&'static str> {
    Some(match name {
        "kernel" => "tile=64x64x64 store=direct",
        "family" => "attention",
        "problem" => "1x2x100 d=64",
        "m" | "n" => "48",
        "k" => "96",
        "rows" => "3,0,20",
        "k-groups" => "64,0,128",
        "group" | "run" => "64x64x128",
        "dtype" => "f16",
        "dtype-b" => "s4g32",
        "out-dtype" => "f32",
        "scale-block-a" | "scale-block-b" => "1x128",
        "sparse" => "b",
        "layout" => "mn",
        "epilogue" => "relu(acc)",
        "a" | "b" | "c" => "C.npy",
        "scale-a" | "zero-a" => "column.npy",
        "scale-b" | "zero-b" => "row.npy",
        "engine" => "emulator",
        "suite" => "instructions",
        "filter" => "alpha",
        "card" => "h100",
        "schedule" => "latest",
        "expr" => "(4,9)",
        "atom" => "smem-k-128B-bf16-64x64",
        "tile" => "4x8",
        "banks" => "16",
        "access" => "(4,8):(128,1)",
        "lane-bytes" => "8",
        "lines" | "width" => "9",
        "out" | "svg" | "latex" | "json" | "record" | "sarif" | "trace" | "write-baseline" => "out",
        "file" => "other.launch.toml",
        "launch" => "other.launch.toml",
        "suppress" => "hang",
        "baseline" => "known.json",
        "replay" => "A.npy",
        "max-rows" => "32",
        "schedules" => "1",
        "batch" | "alpha" | "beta" | "seed" | "repeat" | "compare" | "problems" | "random-specs"
        | "clusters" | "sms" => "3",
        _ => return None,
    })
}

/// What a run prints, but for times, and the file that it writes.
#[derive(PartialEq)]
struct Effect {
    code: Option<i32>,
    printed: String,
    complained: String,
    written: Option<Vec<u8>>,
}

fn run(folder: &Path, arguments: &[&str]) -> Effect {
    let out = folder.join("out");
    let _ = fs::remove_file(&out);
    let output = Command::new(env!("CARGO_BIN_EXE_falchion")).args(arguments).current_dir(folder).output();
    let output = output.expect("the binary runs");
    let [printed, complained] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let timed = |line: &&str| !line.starts_with("time") && !line.contains(" forms in ");
    let printed = printed.lines().filter(timed).collect::<Vec<_>>().join("\n");
    Effect { code: output.status.code(), printed, complained, written: fs::read(out).ok() }
}

/// The options of each command, from the page.
fn options() -> BTreeMap<String, BTreeSet<String>> {
    let page = include_str!("../../docs/options.md");
    let mut options = BTreeMap::<String, BTreeSet<String>>::new();
    for row in page.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let name = cells[0].trim_start_matches("| ").rsplit("--").next().unwrap_or("").trim_matches('`');
        for taken in cells[4].split("; ") {
            // Words about a default may have a semicolon.
            let (verb, rest) = taken.split_once(' ').unwrap_or((taken, "("));
            if rest.starts_with('(') {
                options.entry(verb.to_owned()).or_default().insert(name.to_lowercase());
            }
        }
    }
    options
}

/// A folder of matrices of 64 x 64, and scales of them.
fn matrices(name: &str) -> PathBuf {
    let folder = folder(name);
    let file = |name: &str, [rows, columns]: [usize; 2], of: fn(usize) -> f32| {
        let numbers: Vec<u8> = (0..rows * columns).flat_map(|i| of(i).to_le_bytes()).collect();
        npy(&folder.join(name), "<f4", false, &format!("({rows}, {columns})"), &numbers)
    };
    file("A.npy", [64, 64], |i| (i * 7 % 5) as f32 - 2.0);
    file("B.npy", [64, 64], |i| (i * 11 % 7) as f32 - 3.0);
    file("C.npy", [64, 64], |i| (i % 3) as f32);
    file("row.npy", [1, 64], |i| 1.0 + (i % 3) as f32);
    file("column.npy", [64, 1], |i| 1.0 + (i % 2) as f32);
    let launched = |launches: &str| format!("{launches}{}", check::LAUNCH);
    for (name, text) in [
        ("right.ptx", check::PTX),
        ("right.launch.toml", check::LAUNCH),
        ("other.launch.toml", &launched("ptx = \"right.ptx\"\nlaunches = 1\n")),
        ("known.json", "{ \"findings\": [] }"),
    ] {
        fs::write(folder.join(name), text).expect("ours");
    }
    folder
}

#[test]
fn what_is_accepted_has_an_effect() {
    let (options, folder) = (options(), matrices("effects"));
    let mut seen = BTreeSet::new();
    let mut silent = Vec::new();
    for (command, words) in LINES {
        let first: Vec<&str> = [*command].into_iter().chain(words.split(' ')).collect();
        let without = run(&folder, &first);
        assert_eq!(without.code, Some(0), "{first:?}: {}", without.complained);
        for name in options[*command].iter().filter(|name| !words.contains(&format!("--{name} "))) {
            let flag = format!("--{name}");
            if first.contains(&flag.as_str()) {
                continue;
            }
            let more: Vec<&str> = match (name.as_str(), value(name)) {
                ("expr" | "file", Some(value)) => vec![value],
                (_, Some(value)) => vec![&flag, value],
                (_, None) => vec![&flag],
            };
            let line = [&first[..], &more].concat();
            let with = run(&folder, &line);
            assert!(matches!(with.code, Some(0..=2)), "{line:?}: {}", with.complained);
            if with.code == Some(0) {
                seen.insert(format!("{command} {name}"));
            }
            let excused = CONDITIONS.contains(&(*command, name))
                || *command == "verify" && VERDICTS.contains(&name.as_str());
            // The extents of files are compared with what is given.
            let checked = words.contains("--a ") && ["m", "n", "k"].contains(&name.as_str());
            if with == without && !excused && !checked {
                silent.push(line.join(" "));
            }
        }
    }
    assert!(
        silent.is_empty(),
        "{} lines do the same without their last option:\n{}",
        silent.len(),
        silent.join("\n")
    );
    // Each option of each command is accepted in one of the lines, but those that name files which are not there.
    let all = options.iter().filter(|(verb, _)| !ELSEWHERE.contains(&verb.as_str()));
    let all = all.flat_map(|(verb, names)| names.iter().map(move |name| format!("{verb} {name}")));
    let unseen: Vec<String> = all.filter(|option| !seen.contains(option)).collect();
    let given = |option: &&String| {
        let (verb, name) = option.split_once(' ').expect("two words");
        LINES.iter().any(|(command, words)| *command == verb && words.contains(&format!("--{name} ")))
    };
    let unseen: Vec<&String> =
        unseen.iter().filter(|option| !given(option) && !NOWHERE.contains(&option.as_str())).collect();
    assert!(unseen.is_empty(), "never accepted: {unseen:?}");
}

/// What an option cannot be used with, and why.
#[test]
fn what_has_no_effect_is_refused() {
    let folder = matrices("no-effects");
    let path = |name: &str| folder.join(name).display().to_string();
    let [a, b, row] = ["A.npy", "B.npy", "row.npy"].map(path);
    let files = ["--a", &a, "--b", &b];
    let nothing =
        "--seed cannot be used with --a and --b: the matrices are those of the files, and nothing is random";
    refused(
        "gemm",
        &[
            ("a seed of nothing", &[&files[..], &["--seed", "7"]].concat(), &[nothing]),
            (
                "a seed, of a kernel too",
                &[&files[..], &["--kernel", "64x64-direct-bf16-kk", "--seed", "7"]].concat(),
                &[nothing],
            ),
            (
                "whole numbers of scales that are none",
                &[&files[..], &["--dtype", "s8", "--scale-b", &row, "--out-dtype", "s32"]].concat(),
                &["--out-dtype is s32, and scales of rows or columns give floats: f32 was needed"],
            ),
        ],
    );
    refused(
        "layout",
        &[(
            "a tile of no picture",
            &["(4,8)", "--tile", "4x8"],
            &["--tile needs --table or --svg or --latex"],
        )],
    );
    let family = ["--family", "attention", "--problem", "1x1x64"];
    let of = |words: &[&'static str]| [&family[..], words].concat();
    for (command, words) in [
        ("plan", ["--m", "64"]),
        ("plan", ["--dtype", "f16"]),
        ("plan", ["--epilogue", "bias"]),
        ("trace", ["--beta", "2"]),
        ("trace", ["--dtype", "f16"]),
        ("verify", ["--suite", "full"]),
        ("verify", ["--schedules", "3"]),
        ("explore", ["--sms", "4"]),
        ("bench", ["--shape", "64x64x64"]),
        ("tune", ["--seconds", "4"]),
    ] {
        let why = format!("{} cannot be used with --family attention", words[0]);
        refused(command, &[("an option of GEMMs", &of(&words), &[&why])]);
    }
}
