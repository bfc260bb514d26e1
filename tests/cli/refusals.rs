//! What cannot be done, and the sentence that says so.

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
        &[("up", "F32", [1, 1], vec![0; 4]), ("down", "I32", [1, 1], vec![0; 4])],
    );
    let (no_tensor, integer_tensor) = (format!("{tensors}:left"), format!("{tensors}:down"));
    let missing = folder.join("missing.npy").display().to_string();
    let cases: &[(&str, &[&str], &[&str])] = &[
        (
            "K of 24 bytes",
            &["--config", "small-bf16-kk", "--k", "12"],
            &["A's leading dimension is 24 B", "multiple of 16 B"],
        ),
        ("no rows", &["--m", "0"], &["--m is 0", "at least 1"]),
        ("no products", &["--k", "0"], &["--k is 0"]),
        ("unknown kernel", &["--config", "tiny"], &["`tiny`", "falchion configs"]),
        (
            "kernel of another type",
            &["--config", "small-f16-kk", "--dtype", "bf16"],
            &["is for f16", "--dtype is bf16"],
        ),
        ("unknown type", &["--dtype", "f8"], &["`f8`", "bf16, f16, e4m3"]),
        ("no operand", &["--dtype", "s32"], &["`s32`", "tf32"]),
        (
            "a fused epilogue of integers",
            &["--dtype", "s8", "--epilogue", "bias"],
            &["bf16, f16 and 8-bit floats"],
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
        ("tensor of integers", &["--a", &integer_tensor, "--b", &square], &["I32", "BF16"]),
        (
            "rows of 14 bytes",
            &["--config", "small-bf16-kk", "--a", &thin, "--b", &thinner],
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

/// What `bench` cannot do is said before a GPU is looked for.
#[test]
fn bench_checks_its_arguments_first() {
    let nowhere = folder("bench").join("no-folder").join("out");
    let nowhere = nowhere.display().to_string();
    for (why, arguments, words) in [
        ("JSON into no folder", &["--json", &nowhere][..], &["cannot write", "no-folder"][..]),
        ("CSV into no folder", &["--csv", &nowhere], &["cannot write", "no-folder"]),
        ("a picture into no folder", &["--plot", &nowhere], &["cannot write", "no-folder"]),
        ("no shape", &["--shape", "12x13"], &["`12x13` is no shape", "MxNxK"]),
        ("no suite", &["--suite", "secret"], &["secret", "public", "selection"]),
        ("no type", &["--dtype", "f8"], &["'f8'", "bf16, f16, e4m3"]),
        ("scales of one operand", &["--dtype", "e4m3", "--scale-a", "1x128"], &["--scale-b"]),
        (
            "operands that nothing multiplies",
            &["--dtype", "e4m3", "--dtype-b", "bf16"],
            &["Hopper has no `wgmma`"],
        ),
        ("results of no kernel", &["--dtype", "e4m3", "--out-dtype", "s32"], &["s32"]),
        (
            "scales of other operands",
            &["--scale-a", "1x128", "--scale-b", "1x128"],
            &["blocks with scales are of 8-bit floats"],
        ),
        ("launches of other formats", &["--launch", "--dtype", "s8"], &["bf16 and f16", "s8 is asked for"]),
        (
            "experts by a dense kernel",
            &["--suite", "grouped", "--config", "small-bf16-kk"],
            &["--config small-bf16-kk", "ragged-fitted2-bf16-kk"],
        ),
        ("experts without rows", &["--rows", "0,0"], &["--rows has 0 rows"]),
        ("experts and shapes", &["--rows", "3", "--shape", "1x1x8"], &["--rows", "--shape"]),
        ("experts with a fused epilogue", &["--rows", "3", "--epilogue", "bias"], &["plain", "--epilogue"]),
        ("experts of other directions", &["--rows", "3", "--layout", "kn"], &["K-major", "--layout"]),
        ("no layout", &["--layout", "xy"], &["xy", "kn"]),
        ("no kernel", &["--config", "tiny"], &["`tiny`", "falchion configs"]),
        (
            "a kernel of another type",
            &["--config", "small-f16-kk", "--dtype", "bf16"],
            &["for f16", "bf16 was needed"],
        ),
        (
            "kernels of two types",
            &["--config", "small-f16-kk", "--config", "small-bf16-kk"],
            &["for bf16", "f16 was needed"],
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
