//! Requests that are refused, and the error sentences.

use std::fs;

use crate::{bytes, f32s, falchion, folder, npy, safetensors};

#[test]
fn bad_input_is_one_paragraph_and_exit_code_2() {
    let folder = folder("bad");
    let data = bytes(&f32s(64 * 64), f32::to_le_bytes);
    let square = npy(&folder.join("square.npy"), "<f4", false, "(64, 64)", &data);
    let wide = npy(&folder.join("wide.npy"), "<f4", false, "(32, 128)", &data);
    let short = npy(&folder.join("short.npy"), "<f4", false, "(64, 64)", &data[..1000]);
    let integers = npy(&folder.join("integers.npy"), "<i4", false, "(64, 64)", &data);
    let cube = npy(&folder.join("cube.npy"), "<f4", false, "(16, 16, 16)", &data);
    let thin = npy(&folder.join("thin.npy"), "<f4", false, "(3, 7)", &data[..84]);
    let thinner = npy(&folder.join("thinner.npy"), "<f4", false, "(7, 5)", &data[..140]);
    let endless = npy(&folder.join("endless.npy"), "<f8", false, "(2147483648, 1073741824)", &[]);
    let text = folder.join("text.npy");
    fs::write(&text, "no array").expect("a writable folder");
    let text = text.display().to_string();
    let tensors = safetensors(
        &folder.join("two.safetensors"),
        &[("up", "F32", [1, 1], vec![0; 4]), ("down", "I64", [1, 1], vec![0; 8])],
    );
    let (no_tensor, integer_tensor) = (format!("{tensors}:left"), format!("{tensors}:down"));
    let missing = folder.join("missing.npy").display().to_string();
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "K of 24 bytes",
            &["--kernel", "64x64-direct-bf16-kk", "--k", "12"],
            &["A's leading dimension is 24 B", "multiple of 16 B"],
        ),
        ("no rows", &["--m", "0"], &["'0' for '--m <M>'", "from 1 to"]),
        ("no products", &["--k", "0"], &["'0' for '--k <K>'"]),
        ("unknown kernel", &["--kernel", "tiny"], &["`tiny`", "falchion configs"]),
        (
            "kernel of another type",
            &["--kernel", "64x64-direct-f16-kk", "--dtype", "bf16"],
            &["--kernel cannot be used with --dtype"],
        ),
        ("unknown type", &["--dtype", "f9"], &["'f9'", "bf16, f16, e4m3"]),
        ("no operand", &["--dtype", "s32"], &["'s32'", "tf32"]),
        (
            "a fused epilogue of doubles",
            &["--dtype", "f64", "--epilogue", "bias-gelu"],
            &["exponentials, roots and their like are computed in f32 alone", "^"],
        ),
        (
            "a column-major D of a formula",
            &["--layout", "kkm", "--epilogue", "bias"],
            &["--layout is kkm, so D is column-major, and --epilogue is given"],
        ),
        (
            "half a factor of integers",
            &["--dtype", "s8", "--alpha", "0.5"],
            &["alpha", "0.5", "whole number"],
        ),
        ("A without B", &["--a", &square], &["--b"]),
        ("files that do not fit", &["--a", &square, "--b", &wide], &["A is 64 x 64", "B is 32 x 128"]),
        ("extents that do not fit", &["--a", &square, "--b", &square, "--m", "5"], &["--m is 5", "64"]),
        ("a truncated file", &["--a", &short, "--b", &square], &["truncated", "16384 B", "1000 B"]),
        (
            "a shape of 2^64 bytes",
            &["--a", &endless, "--b", &endless],
            &["truncated", "18446744073709551616 B"],
        ),
        ("more than any machine has", &["--m", "4294967295", "--n", "4294967295"], &["GB of memory", "--m"]),
        ("integers", &["--a", &integers, "--b", &square], &["<i4", "f32"]),
        ("three dimensions", &["--a", &cube, "--b", &square], &["[16, 16, 16]", "matrix"]),
        ("no array", &["--a", &text, "--b", &square], &["no .npy file"]),
        ("no such file", &["--a", &missing, "--b", &square], &["cannot read", "missing.npy"]),
        ("another kind of file", &["--a", "a.txt", "--b", &square], &["a.txt", ".npy", ".safetensors"]),
        ("tensor unnamed", &["--a", &tensors, "--b", &square], &["2 tensors", "up", "down"]),
        ("no such tensor", &["--a", &no_tensor, "--b", &square], &["`left`", "down, up"]),
        ("tensor of integers", &["--a", &integer_tensor, "--b", &square], &["I64", "BF16"]),
        (
            "rows of 14 bytes",
            &["--kernel", "64x64-direct-bf16-kk", "--a", &thin, "--b", &thinner],
            &["14 B", "multiple of 16 B"],
        ),
        ("beta without C", &["--a", &square, "--b", &square, "--beta", "1"], &["--beta is 1", "--c"]),
        (
            "C of another shape",
            &["--a", &square, "--b", &square, "--c", &wide],
            &["C is 32 x 128", "D is 64 x 64"],
        ),
        ("no number", &["--m", "many"], &["invalid value", "many"]),
    ];
    for (why, arguments, words) in cases {
        let run = falchion(&[&["gemm", "--engine", "emulator"], *arguments].concat());
        assert_eq!(run.code, Some(2), "{why}: {}{}", run.stdout, run.stderr);
        for word in *words {
            assert!(run.stderr.contains(word), "{why}: no `{word}` in {}", run.stderr);
        }
        assert!(
            !run.stderr.contains("panicked") && !run.stderr.contains("backtrace"),
            "{why}: {}",
            run.stderr
        );
        assert!(!run.stdout.contains("verified"), "{why}: {}", run.stdout);
    }
}

#[test]
fn a_gpu_that_is_not_there_is_an_error() {
    if kernel::Gpu::new(0).is_ok() {
        return;
    }
    for arguments in [&["gemm", "--engine", "gpu"][..], &["verify", "--engine", "gpu"], &["bench"]] {
        let run = falchion(arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}");
        assert!(run.stderr.starts_with("falchion: error: "), "{arguments:?}: {}", run.stderr);
        assert!(!run.stderr.contains("panicked"), "{arguments:?}: {}", run.stderr);
    }
}

/// `bench` refuses impossible requests before it looks for a GPU.
#[test]
fn bench_checks_its_arguments_first() {
    let nowhere = folder("bench").join("no-folder").join("out");
    let nowhere = nowhere.display().to_string();
    for (why, arguments, words) in [
        ("JSON into no folder", &["--json", &nowhere][..], &["cannot write", "no-folder"][..]),
        ("CSV into no folder", &["--csv", &nowhere], &["cannot write", "no-folder"]),
        ("a picture into no folder", &["--svg", &nowhere], &["cannot write", "no-folder"]),
        ("no shape", &["--shape", "12x13"], &["`12x13` is no shape", "MxNxK"]),
        ("no suite", &["--suite", "secret"], &["secret", "public", "selection"]),
        ("no type", &["--dtype", "f9"], &["'f9'", "bf16, f16, e4m3"]),
        (
            "scales of one operand",
            &["--dtype", "e4m3", "--scale-block-a", "1x128"],
            &["needs --scale-block-b"],
        ),
        (
            "operands that nothing multiplies",
            &["--dtype", "e4m3", "--dtype-b", "s8"],
            &["Hopper has no instruction that multiplies"],
        ),
        ("results of no kernel", &["--dtype", "e4m3", "--out-dtype", "s32"], &["s32"]),
        (
            "scales of other operands",
            &["--scale-block-a", "1x128", "--scale-block-b", "1x128"],
            &["blocks with scales are of 8-bit floats"],
        ),
        (
            "launches in directions of no kernel",
            &["--launch", "--dtype", "s8", "--layout", "mk"],
            &["elements of 8 bits", "KMajor"],
        ),
        (
            "a fused epilogue of doubles",
            &["--epilogue", "bias-gelu", "--dtype", "f64"],
            &["exponentials, roots and their like are computed in f32 alone", "^"],
        ),
        (
            "a fused epilogue of scaled blocks",
            &[
                "--epilogue",
                "bias",
                "--dtype",
                "e4m3",
                "--scale-block-a",
                "1x128",
                "--scale-block-b",
                "1x128",
            ],
            &["operands are e4m3-1x128-1x128", "falchion tune --epilogue bias"],
        ),
        (
            "experts by a kernel of another type",
            &["--rows", "3", "--dtype", "e4m3", "--kernel", "ragged-128x256-bf16-kk"],
            &["--kernel cannot be used with --dtype"],
        ),
        (
            "experts by a dense kernel",
            &["--suite", "grouped", "--kernel", "64x64-direct-bf16-kk"],
            &["--kernel 64x64-direct-bf16-kk", "ragged-128x256-step32-2x1-bf16-kk"],
        ),
        ("experts without rows", &["--rows", "0,0"], &["--rows has 0 rows"]),
        ("experts and shapes", &["--rows", "3", "--shape", "1x1x8"], &["--rows", "--shape"]),
        (
            "experts with a fused epilogue",
            &["--rows", "3", "--epilogue", "bias"],
            &["--epilogue cannot be used with --rows", "plain"],
        ),
        ("experts of other directions", &["--rows", "3", "--layout", "kn"], &["K-major", "--layout"]),
        ("no layout", &["--layout", "xy"], &["xy", "kn"]),
        ("no kernel", &["--kernel", "tiny"], &["`tiny`", "falchion configs"]),
        (
            "a kernel of another type",
            &["--kernel", "64x64-direct-f16-kk", "--dtype", "bf16"],
            &["--kernel cannot be used with --dtype"],
        ),
        (
            "kernels of two types",
            &["--kernel", "64x64-direct-f16-kk", "--kernel", "64x64-direct-bf16-kk"],
            &["is for bf16", "the first is for f16"],
        ),
        ("an empty product", &["--m", "0"], &["--m", "0"]),
        ("launches of a suite", &["--launch", "--suite", "public"], &["--launch", "--suite"]),
        ("a shape twice", &["--shape", "1x1x8", "--m", "5"], &["--shape", "--m"]),
    ] {
        let run = falchion(&[&["bench"], arguments].concat());
        assert_eq!(run.code, Some(2), "{why}: {}{}", run.stdout, run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{why}: no `{word}` in {}", run.stderr);
        }
        assert!(!run.stderr.contains("panicked"), "{why}: {}", run.stderr);
    }
}

/// `tune` refuses impossible requests before it looks for a GPU.
#[test]
fn tune_checks_its_arguments_first() {
    let nowhere = folder("tune").join("no-folder").join("out").display().to_string();
    let (rows, shape) = (["--rows", "3,0,5", "--n", "64", "--k", "64"], ["--shape", "64x64x64"]);
    for (why, arguments, words) in [
        ("nothing", &[][..], &["--shape, --shapes or --rows was needed"][..]),
        ("no shape", &["--shape", "12x13"], &["`12x13` is no shape", "MxNxK"]),
        (
            "a record into no folder",
            &[&shape[..], &["--jsonl", &nowhere]].concat(),
            &["cannot write", "no-folder"],
        ),
        ("rows alone", &["--rows", "3"], &["--n", "--k"]),
        ("N without rows", &[&shape[..], &["--n", "64"]].concat(), &["--rows"]),
        ("groups without rows", &["--rows", "0,0", "--n", "64", "--k", "64"], &["--rows has 0 rows"]),
        (
            "more rows than are numbered",
            &["--rows", "4000000000,4000000000", "--n", "8", "--k", "8"],
            &["8000000000"],
        ),
        ("groups and shapes", &[&rows[..], &shape].concat(), &["--rows", "--shape"]),
        ("groups in a batch", &[&rows[..], &["--batch", "2"]].concat(), &["--rows", "--batch"]),
        ("a batch of none", &[&shape[..], &["--batch", "0"]].concat(), &["0", "--batch"]),
        (
            "a batch that is too large",
            &["--batch", "4000000000", "--shape", "4096x4096x64"],
            &["GB of memory"],
        ),
        ("no epilogue", &[&shape[..], &["--epilogue", "tangent"]].concat(), &["'tangent'", "bias-gelu"]),
        (
            "D's format twice",
            &[&shape[..], &["--epilogue", "bias", "--out-dtype", "f32"]].concat(),
            &["--epilogue", "--out-dtype"],
        ),
        (
            "scales of other operands",
            &[&shape[..], &["--scale-block-a", "1x128", "--scale-block-b", "1x128"]].concat(),
            &["blocks with scales are of 8-bit floats"],
        ),
        (
            "directions of no kernel",
            &[&shape[..], &["--dtype", "e4m3", "--layout", "mk"]].concat(),
            &["no kernel"],
        ),
        ("no kernel to measure", &[&shape[..], &["--budget", "0"]].concat(), &["0", "--budget"]),
    ] {
        let run = falchion(&[&["tune"], arguments].concat());
        assert_eq!(run.code, Some(2), "{why}: {}{}", run.stdout, run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{why}: no `{word}` in {}", run.stderr);
        }
        assert!(!run.stderr.contains("panicked"), "{why}: {}", run.stderr);
    }
}

/// Without a GPU, the missing GPU is the only error of experts, fused epilogues and launches of every type.
#[test]
fn bench_takes_every_kind_and_type() {
    if kernel::Gpu::new(0).is_ok() {
        return;
    }
    let rows = ["--rows", "3,0,5", "--n", "64", "--k", "128"];
    for arguments in [
        &["--launch", "--dtype", "s8"][..],
        &["--launch", "--dtype", "e4m3", "--scale-block-a", "1x128", "--scale-block-b", "128x128"],
        &["--launch", "--dtype", "f16", "--layout", "mn"],
        &["--epilogue", "bias-gelu", "--dtype", "e4m3"],
        &["--epilogue", "row-column-scaled", "--dtype", "e5m2"],
        &[&rows[..], &["--dtype", "e4m3", "--scale-block-a", "1x128", "--scale-block-b", "128x128"]].concat(),
        &[&rows[..], &["--dtype", "tf32"]].concat(),
        &[&rows[..], &["--dtype", "e4m3", "--dtype-b", "e5m2", "--out-dtype", "f32"]].concat(),
        &["--suite", "grouped", "--dtype", "s8"],
        &["--sparse", "a"],
        &["--sparse", "b", "--dtype", "e4m3", "--shape", "256x512x1024"],
        &["--kernel", "sparse=b swap=yes"],
    ] {
        let run = falchion(&[&["bench"], arguments].concat());
        assert_eq!(run.code, Some(2), "{arguments:?}");
        assert!(
            run.stderr.contains("no CUDA driver") || run.stderr.contains("GPU"),
            "{arguments:?}: {}",
            run.stderr
        );
    }
}

/// The same for `tune`.
#[test]
fn tune_takes_every_kind_and_type() {
    if kernel::Gpu::new(0).is_ok() {
        return;
    }
    let rows = ["--rows", "3,0,5", "--n", "64", "--k", "128"];
    for arguments in [
        &["--shape", "64x64x64", "--batch", "3", "--layout", "mn"][..],
        &["--shape", "64x64x64", "--epilogue", "swiglu"],
        &["--shape", "64x64x64", "--epilogue", "bias-gelu", "--dtype", "e4m3"],
        &[&rows[..], &["--dtype", "f16"]].concat(),
        &[&rows[..], &["--dtype", "e4m3", "--scale-block-a", "1x128", "--scale-block-b", "128x128"]].concat(),
        &[&rows[..], &["--dtype", "s8"]].concat(),
        &[&rows[..], &["--sparse", "b"]].concat(),
        &["--shape", "64x64x64", "--sparse", "a", "--batch", "3"],
        &["--shape", "64x64x128", "--sparse", "b", "--dtype", "e4m3", "--epilogue", "bias-gelu"],
    ] {
        let run = falchion(&[&["tune"], arguments].concat());
        assert_eq!(run.code, Some(2), "{arguments:?}");
        assert!(
            run.stderr.contains("no CUDA driver") || run.stderr.contains("GPU"),
            "{arguments:?}: {}",
            run.stderr
        );
    }
}
