//! `falchion configs`, `plan` and `emit`: the list of kernels.

use std::fs;

use crate::{falchion, folder};

#[test]
fn the_catalogue_is_printed() {
    let list = falchion(&["configs"]);
    assert_eq!(list.code, Some(0));
    for entry in kernel::catalogue() {
        assert!(list.stdout.contains(entry.name()), "{} is not listed", entry.name());
    }
    let plan = falchion(&["plan", "--kernel", "128x256-direct-bf16-kk"]);
    assert_eq!(plan.code, Some(0));
    assert!(plan.stdout.contains("128x256x64") && plan.stdout.contains("196680"), "{}", plan.stdout);
    let ptx = falchion(&["emit", "--kernel", "64x64-direct-f16-kk"]);
    assert!(ptx.stdout.starts_with(".version 8.0\n.target sm_90a"), "{}", &ptx.stdout[..80]);
    let file = folder("emit").join("kernel.ptx");
    let written = falchion(&["emit", "--kernel", "64x64-direct-f16-kk", "-o", &file.display().to_string()]);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    assert_eq!(fs::read_to_string(&file).expect("written"), ptx.stdout);
    let unknown = falchion(&["plan", "--kernel", "nothing"]);
    assert_eq!(unknown.code, Some(2));
}

/// Without the option, kernels that split K are ranked first at this shape.
#[test]
fn reproducible_kernels_split_no_tile() {
    let shape = ["plan", "--m", "64", "--n", "2112", "--k", "7168"];
    let splits = |ranking: &str| ranking.contains("stream-k") || ranking.contains("cluster-k");
    for (option, want) in [(&[][..], true), (&["--reproducible"], false)] {
        let ranking = falchion(&[&shape, option].concat());
        assert_eq!(
            (ranking.code, splits(&ranking.stdout)),
            (Some(0), want),
            "{option:?}: {}",
            ranking.stdout
        );
    }
    let run = ["gemm", "--m", "32", "--n", "64", "--k", "2048", "--reproducible"];
    let run = falchion(&run);
    assert!(run.code == Some(0) && !splits(&run.stdout), "{}{}", run.stdout, run.stderr);
    let named = falchion(&["gemm", "--kernel", "128x256-direct-bf16-kk", "--reproducible"]);
    assert_eq!(named.code, Some(2), "{}", named.stdout);
}

#[test]
fn kernels_are_ranked_for_a_shape() {
    let shape = ["--m", "4096", "--n", "4096", "--k", "512"];
    let ranking = falchion(&[&["plan"], &shape[..], &["--dtype", "f16", "--layout", "kn"]].concat());
    assert_eq!(ranking.code, Some(0), "{}", ranking.stderr);
    let first =
        ranking.stdout.lines().nth(3).and_then(|line| Some(&line[line.find("dtype=")?..])).unwrap_or("");
    let spec = kernel::KernelSpec::parse(first).expect("the first row is a spec");
    assert!(ranking.stdout.contains(&format!("type Kernel = Gemm<{}>;", spec.rust_type())), "{first}");
    // A row says where its time is from; what was measured goes before what is predicted.
    let measured = falchion(&["plan", "--m", "8192", "--n", "8192", "--k", "8192"]);
    let rows: Vec<[&str; 2]> = measured
        .stdout
        .lines()
        .skip(3)
        .filter_map(|line| line.split_once("dtype="))
        .filter_map(|(numbers, _)| {
            let words: Vec<&str> = numbers.split_whitespace().collect();
            Some([*words.first()?, *words.get(3)?])
        })
        .collect();
    assert_eq!(rows.len(), 12, "{}", measured.stdout);
    assert!(
        measured.stdout.lines().nth(4).is_some_and(|reason| reason.contains("measured, ")),
        "{}",
        measured.stdout
    );
    assert_eq!(rows[0][1], "measured", "{rows:?}");
    assert!(measured.stdout.contains(&format!("measured, {} us", rows[0][0])), "{rows:?}");
    assert!(rows[1..].iter().all(|[_, from]| *from == "predicted"), "{rows:?}");
    let times = rows[1..].iter().map(|[time, _]| time.parse::<f64>().expect("a time"));
    assert!(times.is_sorted(), "{rows:?}");
    // Rows of 10 bytes: kernels with TMA copies are refused with the reason.
    let packed = falchion(&["plan", "--m", "8", "--n", "8", "--k", "5"]);
    assert_eq!(packed.code, Some(0), "{}", packed.stderr);
    for word in ["10 B, a multiple of 16 B", "CopyWgmma<"] {
        assert!(packed.stdout.contains(word), "{}", packed.stdout);
    }
    // Operands that are transposed first, and the cost: two operands of 4096 x 512 one-byte elements are read
    // and written.
    let turned = falchion(&[&["plan"], &shape[..], &["--dtype", "e4m3", "--layout", "mn"]].concat());
    for words in [
        "A is M-major",
        "B is N-major",
        "4.2 MB read and written",
        "us in all; workspace of 4.2 MB",
        "directions mn",
    ] {
        assert!(turned.stdout.contains(words), "no `{words}`: {}{}", turned.stdout, turned.stderr);
    }
    for (why, arguments, words) in [
        ("nothing to plan", &[][..], &["--m was needed", "--kernel explains one"][..]),
        ("half a shape", &["--m", "5"], &["--n was needed", "--k"]),
        (
            "a name and a shape",
            &["--kernel", "128x256-direct-bf16-kk", "--m", "5", "--n", "5", "--k", "8"],
            &["--m"],
        ),
        ("an empty product", &["--m", "0", "--n", "8", "--k", "8"], &["--m", "0"]),
    ] {
        let run = falchion(&[&["plan"], arguments].concat());
        assert_eq!(run.code, Some(2), "{why}: {}", run.stdout);
        for word in words {
            assert!(run.stderr.contains(word), "{why}: no `{word}` in {}", run.stderr);
        }
    }
}

/// Every command knows the kernels that `configs` lists, and prints the same numbers for them.
#[test]
fn one_list_of_kernels() {
    let list = falchion(&["configs"]).stdout;
    let names: Vec<&str> = list.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    let lists = format!("`falchion configs` lists all {}", names.len());
    let shape = ["--m", "64", "--n", "64", "--k", "64"];
    for arguments in [
        &["plan", "--kernel", "no-kernel"][..],
        &["emit", "--kernel", "no-kernel"],
        &["gemm", "--kernel", "no-kernel"],
        &["gemm", "--batch", "2", "--kernel", "no-kernel"],
        &["trace", "--kernel", "no-kernel"],
        &[&["schedule", "--kernel", "no-kernel"], &shape[..]].concat(),
        &["bench", "--kernel", "no-kernel"],
    ] {
        let run = falchion(arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(&lists), "{arguments:?}: no `{lists}` in {}", run.stderr);
    }
    let fused = "256x192-bias-relu-bf16-kk";
    assert!(names.contains(&fused), "{list}");
    for (arguments, words) in [
        (&["plan", "--kernel", fused][..], ""),
        (&["emit", "--kernel", fused], ""),
        (
            &["trace", "--kernel", fused],
            "fused epilogue bias-relu: a trace has no arguments for it; trace 256x192-bf16-kk",
        ),
        (&[&["schedule", "--kernel", fused], &shape[..]].concat(), "like those of 256x192-bf16-kk"),
        (&["bench", "--kernel", fused], "time it with --epilogue bias-relu"),
    ] {
        let run = falchion(arguments);
        let code = if words.is_empty() { 0 } else { 2 };
        assert_eq!(run.code, Some(code), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(words), "{arguments:?}: no `{words}` in {}", run.stderr);
    }
}
