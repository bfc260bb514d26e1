//! One grammar in all commands: what one prints, the others read, and no option is ignored.

use std::fs;

use crate::{falchion, folder, refused};

/// Options that others leave no place for are refused by their names.
#[test]
fn no_option_is_ignored() {
    refused(
        "gemm",
        &[
            (
                "a sparse operand of codes",
                &["--dtype-b", "e4m3", "--sparse", "b"],
                &["--sparse is b", "--dtype-b is e4m3", "leave out one of both"],
            ),
            (
                "directions of a fused kernel",
                &["--kernel", "128x128-pingpong-bias-gelu-bf16-kk", "--layout", "mn"],
                &["--layout cannot be used with", "bias-gelu"],
            ),
            ("a buffer of no groups", &["--m", "64", "--max-rows", "3"], &["--max-rows needs --rows"]),
            (
                "types of a kernel",
                &["--kernel", "128x256-bf16-kk", "--dtype-b", "e4m3"],
                &["--kernel cannot be used with --dtype-b"],
            ),
            ("one kernel twice", &["--kernel", "a", "--kernel", "b"], &["--kernel", "multiple times"]),
            (
                "a result of no kernel",
                &["--out-dtype", "tf32"],
                &[
                    "'tf32' for '--out-dtype",
                    "one of f32, bf16, f16, e4m3, e5m2, s8, u8, s32, f64 was needed",
                ],
            ),
            (
                "codes of 8-bit floats",
                &["--dtype", "e4m3", "--dtype-b", "s4"],
                &["s4 is a code", "--dtype or --dtype-b of bf16 or f16 was needed"],
            ),
            (
                "groups with a fused epilogue",
                &["--group", "64x64x64", "--kernel", "form=grouped epilogue=bias-gelu"],
                &["GEMMs of any shapes share no vectors", "--batch, --rows or --k-groups"],
            ),
            ("no K", &["--k", "0"], &["'0' for '--k <K>'", "from 1 to"]),
        ],
    );
    refused(
        "verify",
        &[
            (
                "verdicts",
                &["--random-specs", "1", "--json", "a"],
                &["--json cannot be used with --random-specs"],
            ),
            (
                "runs",
                &["--random-specs", "1", "--repeat", "2"],
                &["--repeat cannot be used with --random-specs"],
            ),
            (
                "names",
                &["--random-specs", "1", "--filter", "a"],
                &["--filter cannot be used with --random-specs"],
            ),
            ("problems", &["--random-specs", "1", "--problems", "1"], &["--problems needs --kernel"]),
            (
                "schedules of a GPU",
                &["--engine", "gpu", "--schedules", "3"],
                &["--schedules cannot be used with"],
            ),
            (
                "exact fusions",
                &["--suite", "fusions", "--exact"],
                &["--exact cannot be used with --suite fusions"],
            ),
        ],
    );
    refused(
        "trace",
        &[(
            "a seed of no random schedule",
            &["--kernel", "64x64-direct-bf16-kk", "--seed", "3"],
            &["--seed cannot be used with"],
        )],
    );
    refused(
        "plan",
        &[
            (
                "a kernel's types",
                &["--kernel", "", "--sparse", "a"],
                &["--kernel cannot be used with --sparse"],
            ),
            ("a kernel's extents", &["--kernel", "", "--m", "5"], &["--m cannot be used with --kernel"]),
            ("no K", &["--m", "8", "--n", "8", "--k", "0"], &["'0' for '--k <K>'"]),
        ],
    );
}

/// The last words of the first line that begins with `begin`.
fn after(text: &str, begin: &str) -> String {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(begin));
    line.unwrap_or_else(|| panic!("no `{begin}` in {text}")).trim().to_owned()
}

/// Every command reads the specs that `plan` prints, as they stand.
#[test]
fn printed_specs_are_read_by_every_command() {
    let shape = ["--m", "64", "--n", "128", "--k", "256"];
    let mut specs = Vec::new();
    for of in [
        &[][..],
        &["--dtype", "f16", "--layout", "kn"],
        &["--dtype", "e4m3", "--dtype-b", "e5m2", "--out-dtype", "f32"],
        &["--dtype", "s8"],
        &["--dtype", "f64"],
        &["--dtype", "e4m3", "--scale-block-a", "1x128", "--scale-block-b", "128x128"],
        &["--dtype-b", "s4g128"],
        &["--dtype-b", "u4g64z"],
        &["--sparse", "a"],
        &["--sparse", "b", "--dtype", "e4m3"],
    ] {
        let ranking = falchion(&[&["plan"], &shape[..], of].concat());
        assert_eq!(ranking.code, Some(0), "{of:?}: {}", ranking.stderr);
        let row = ranking.stdout.lines().nth(3).expect("a first kernel");
        specs.push(row[row.find("dtype=").expect("a spec")..].to_owned());
    }
    // What it prints of a name, and of the spec without any word.
    for kernel in ["256x192-stream-k-bf16-kk", ""] {
        let printed = falchion(&["plan", "--kernel", kernel]).stdout;
        specs.extend([after(&printed, "spec: "), after(&printed, "in full: ")]);
    }
    let file = folder("specs").join("file").display().to_string();
    for spec in &specs {
        for (command, more) in [
            ("plan", &[][..]),
            ("emit", &["-o", &file]),
            ("gemm", &[&shape[..], &["--engine", "emulator"]].concat()),
            ("trace", &shape),
            ("schedule", &shape),
            ("explore", &[&shape[..], &["-o", &file]].concat()),
            ("verify", &["--problems", "1"]),
        ] {
            let run = falchion(&[&[command, "--kernel", spec], more].concat());
            assert_eq!(run.code, Some(0), "{command} {spec}: {}{}", run.stdout, run.stderr);
        }
        let run = falchion(&[&["bench", "--kernel", spec, "--burst-only"], &shape[..]].concat());
        assert!(
            run.code == Some(0) || run.stderr.contains("GPU") || run.stderr.contains("driver"),
            "{spec}: {}",
            run.stderr
        );
    }
}

/// `gemm` runs what `plan` ranks, and both refuse the rest.
#[test]
fn what_is_ranked_runs() {
    let shape = ["--m", "70", "--n", "144", "--k", "128"];
    for options in [
        &["--epilogue", "bias", "--sparse", "a"][..],
        &["--epilogue", "bias", "--dtype", "e4m3", "--dtype-b", "e5m2"],
        &["--epilogue", "bias-gelu", "--dtype-b", "s4g128"],
        &["--epilogue", "bias-gelu", "--layout", "kn"],
        &["--epilogue", "bias", "--out-dtype", "f32"],
        &["--sparse", "a", "--layout", "kn"],
        &["--sparse", "a", "--layout", "mk"],
        &["--dtype", "e4m3", "--scale-block-a", "1x128", "--scale-block-b", "1x128"],
        &["--batch", "2", "--layout", "mn"],
        &["--batch", "2", "--dtype", "e4m3", "--dtype-b", "e5m2", "--out-dtype", "f32"],
        &["--batch", "2", "--epilogue", "bias"],
        &["--dtype", "e4m3", "--dtype-b", "s8"],
    ] {
        let [plan, gemm] =
            ["plan", "gemm"].map(|command| falchion(&[&[command], &shape[..], options].concat()));
        assert_eq!(plan.code, gemm.code, "{options:?}: {} {}", plan.stderr, gemm.stderr);
        if gemm.code == Some(0) {
            assert_eq!(gemm.stdout.lines().last(), Some("verified"), "{options:?}");
        } else {
            assert_eq!(plan.stderr, gemm.stderr, "{options:?}");
        }
    }
    let several: [&[&str]; 4] = [
        &["--rows", "3,0,70", "--n", "144", "--k", "128"],
        &["--rows", "3,0,70", "--max-rows", "80", "--n", "144", "--k", "128"],
        &["--k-groups", "128,0,256", "--m", "70", "--n", "144"],
        &["--group", "64x64x64,3x8x8", "--group", "0x8x8"],
    ];
    for options in several {
        for command in ["plan", "gemm"] {
            let run = falchion(&[&[command], options].concat());
            assert_eq!(run.code, Some(0), "{command} {options:?}: {}", run.stderr);
        }
    }
}

/// Without --kernel, every command takes the kernel that `gemm` takes.
#[test]
fn commands_choose_the_same_kernel() {
    let cube = ["--m", "70", "--n", "136", "--k", "128"];
    for options in [
        &cube[..],
        &[&cube[..], &["--dtype", "fp16", "--layout", "kn"]].concat(),
        &[&cube[..], &["--dtype", "e4m3", "--dtype-b", "e5m2", "--out-dtype", "f32"]].concat(),
        &[&cube[..], &["--dtype", "e4m3", "--scale-block-a", "1x128", "--scale-block-b", "1x128"]].concat(),
        &[&cube[..], &["--dtype-b", "s4g128"]].concat(),
        &[&cube[..], &["--sparse", "a"]].concat(),
        &["--m", "70", "--n", "135", "--k", "121"],
        &["--m", "70", "--n", "136", "--k", "4096", "--reproducible"],
    ] {
        let printed = |command: &str| {
            let run = falchion(&[&[command], options].concat());
            assert_eq!(run.code, Some(0), "{command} {options:?}: {}", run.stderr);
            run.stdout
        };
        let kernel = after(&printed("gemm"), "kernel    ");
        let kernel = kernel.rsplit_once(" (").expect("an entry").0;
        assert_eq!(after(&printed("trace"), "chosen    "), kernel, "{options:?}");
        assert!(printed("schedule").starts_with(&format!("{kernel} at ")), "{options:?}: {kernel}");
    }
    let rows = ["--rows", "3,0,70", "--n", "144", "--k", "128"];
    let run = falchion(&[&["schedule"], &rows[..]].concat());
    assert!(run.stdout.starts_with("form=ragged "), "{}{}", run.stdout, run.stderr);
    refused(
        "trace",
        &[(
            "directions that are transposed first",
            &["--dtype", "e4m3", "--layout", "mn"],
            &["no kernel multiplies elements of 8 bits in directions mn", "see `falchion plan --layout mn`"],
        )],
    );
}

/// `-` is standard output in every command; the report goes to standard error.
#[test]
fn a_dash_is_standard_output() {
    let spec = ["--kernel", "64x64-direct-bf16-kk"];
    let shape = ["--m", "64", "--n", "64", "--k", "64"];
    for (arguments, begin, report) in [
        (&[&["emit"], &spec[..], &["-o", "-"]].concat(), ".version", ""),
        (&[&["trace"], &spec[..], &shape, &["--out", "-"]].concat(), "{", "events "),
        (&[&["trace"], &spec[..], &shape, &["--svg", "-"]].concat(), "<svg", "events "),
        (&[&["schedule"], &spec[..], &shape, &["--svg", "-"]].concat(), "<svg", "slots"),
        (&[&["explore"], &spec[..], &["-o", "-"]].concat(), "<!doctype html>", "written"),
        (&vec!["layout", "(4,8)", "--svg", "-"], "<svg", "(4,8):(1,4)"),
        (&vec!["layout", "(4,8)", "--latex", "-"], "", "(4,8):(1,4)"),
        (&vec!["gemm", "--m", "64", "--out", "-"], "\u{fffd}NUMPY", "verified"),
        (&vec!["verify", "--suite", "instructions", "--filter", "shfl", "--json", "-"], "{", "passed"),
    ] {
        let run = falchion(arguments);
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        let start: String = run.stdout.chars().take(20).collect();
        assert!(run.stdout.starts_with(begin), "{arguments:?}: {start}");
        assert!(run.stderr.contains(report), "{arguments:?}: {}", run.stderr);
        assert!(fs::metadata("-").is_err(), "{arguments:?}: a file is called `-`");
    }
    refused(
        "trace",
        &[(
            "two files",
            &[&spec[..], &["-o", "-", "--svg", "-"]].concat(),
            &["--out and --svg are both `-`"],
        )],
    );
}
