//! `falchion gemm`: GEMMs that are run and checked.

use crate::{bytes, falchion, folder, npy, refused};

#[test]
fn a_product_of_random_matrices_is_verified() {
    for arguments in [
        &["gemm", "--engine", "emulator"][..],
        &["gemm", "--m", "130", "--n", "70", "--k", "72", "--dtype", "f16", "--alpha", "0.5", "--beta", "-2"],
        &["gemm", "--n", "264", "--kernel", "128x256-bf16-mn", "--seed", "5"],
        &["gemm", "--m", "40", "--kernel", "256x192-stream-k-bf16-kk", "--k", "2048", "--repeat", "3"],
    ] {
        let run = falchion(arguments);
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{arguments:?}: {}", run.stdout);
        for part in ["engine ", "kernel ", "plan ", "time ", "error ", "bound"] {
            assert!(run.stdout.contains(part), "{arguments:?}: no `{part}` in {}", run.stdout);
        }
    }
}

/// Every operand format, also with unaligned rows, and with many GEMMs in one launch.
#[test]
fn products_of_every_format_are_verified() {
    let more: [(&[&str], &str); 24] = [
        (&["--dtype", "e4m3", "--alpha", "0.5", "--beta", "2"], "e4m3 by e4m3 to bf16"),
        (&["--kernel", "dtype=e4m3 dtype-b=e5m2 out=e5m2", "--alpha", "0.1"], "e4m3 by e5m2 to e5m2"),
        (&["--kernel", "dtype=u8 dtype-b=s8 swap=yes", "--beta", "-3"], "u8 by s8 to s32"),
        (&["--kernel", "dtype=s8 out=f16", "--alpha", "0.001"], "s8 by s8 to f16"),
        (&["--kernel", "dtype=bf16 out=f32 tile=128x128x64", "--beta", "1"], "bf16 by bf16 to f32"),
        (&["--dtype", "s8", "--batch", "2", "--beta", "1"], "s8 by s8 to s32"),
        (&["--dtype", "e4m3", "--rows", "3,0,70"], "e4m3 by e4m3 to bf16"),
        (&["--dtype", "tf32", "--group", "70x9x40", "--group", "3x24x8"], "tf32 by tf32 to f32"),
        (&["--dtype", "s8", "--repeat", "2"], "the same bits in all 2 runs"),
        (
            &["--dtype", "e4m3", "--epilogue", "bias-gelu", "--m", "70", "--n", "136"],
            "D = gelu_tanh_fastest(alpha*acc+bias[n])",
        ),
        (
            &["--dtype", "e5m2", "--epilogue", "row-column-scaled", "--k", "72"],
            "acc*rows[m]:f32*columns[n]:f32",
        ),
        (&["--dtype", "s8", "--epilogue", "row-column-scaled", "--n", "40"], "s8 by s8 to f32"),
        (&["--dtype", "tf32", "--epilogue", "relu(acc) + bias[n]", "--n", "72"], "tf32 by tf32 to f32"),
        (
            &["--epilogue", "gelu(alpha*acc + beta*c + bias[n])", "--m", "70", "--n", "40"],
            "D = gelu(alpha*acc+beta*c+bias[n])",
        ),
        (
            &["--epilogue", "y = silu(acc); store(gate[m,n], y) * up[m,n]", "--m", "70", "--n", "33"],
            "D = y=silu(acc);store(gate[m,n],y)*up[m,n]",
        ),
        (&["--epilogue", "relu(acc + bias[n])*rows[m]", "--batch", "3"], "D = relu(acc+bias[n])*rows[m]"),
        (
            &["--dtype", "e4m3", "--epilogue", "silu(acc) + x[m,n]", "--rows", "3,0,70"],
            "D = silu(acc)+x[m,n]",
        ),
        (&["--epilogue", "-abs(acc) + 1", "--n", "40"], "D = (-abs(acc))+1"),
        (&["--epilogue", "swiglu", "--k-groups", "64,0,128", "--m", "40"], "D = gated(silu_fast,alpha*acc)"),
        (&["--epilogue", "quantized", "--m", "70", "--n", "304"], "quantize_e4m3(scales,alpha*acc)"),
        (
            &["--dtype", "e4m3", "--epilogue", "quantized", "--m", "3", "--n", "30"],
            "quantize_e4m3(scales,alpha*acc)",
        ),
        (
            &[
                "--kernel",
                "dtype=e4m3 epilogue=quantized tile=128x128x128 scale-a=1x128 scale-b=128x128",
                "--k",
                "200",
            ],
            "verified",
        ),
        (&["--kernel", "dtype=e4m3 out=e4m3 epilogue=bias-fp8 tile=128x128x128", "--m", "72"], "verified"),
        (
            &["--kernel", "dtype=e4m3 epilogue=swiglu scale-a=1x128 scale-b=128x128", "--k", "300"],
            "gated(silu_fast,alpha*acc)",
        ),
    ];
    let formats = ["bf16", "f16", "tf32", "f32", "f64", "e4m3", "e5m2", "s8", "u8"];
    let of_format = |dtype| vec!["--dtype", dtype, "--m", "70", "--n", "33", "--k", "200", "--beta", "1"];
    let of_formats = formats.map(|dtype| (of_format(dtype), dtype));
    let more = more.map(|(arguments, words)| (arguments.to_vec(), words));
    for (arguments, words) in of_formats.into_iter().chain(more) {
        let run = falchion(&[&["gemm", "--engine", "emulator"], &arguments[..]].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{arguments:?}: {}", run.stdout);
        assert!(run.stdout.contains(words), "{arguments:?}: no `{words}` in {}", run.stdout);
    }
}

/// Operands in every direction. They are transposed first where no instruction, or not the named kernel,
/// reads their direction.
#[test]
fn products_of_every_direction_are_verified() {
    for dtype in ["e4m3", "s8", "tf32", "bf16"] {
        for (layout, transposed) in [("kk", ""), ("mk", "A"), ("kn", "B"), ("mn", "AB")] {
            // Rows of the transposes begin at multiples of 16 B; rows of the matrices do not.
            for [m, n, k] in [["130", "96", "264"], ["67", "35", "101"]] {
                let shape =
                    ["--m", m, "--n", n, "--k", k, "--layout", layout, "--dtype", dtype, "--beta", "1"];
                let run = falchion(&[&["gemm", "--engine", "emulator"], &shape[..]].concat());
                assert_eq!(run.code, Some(0), "{shape:?}: {}", run.stderr);
                assert_eq!(run.stdout.lines().last(), Some("verified"), "{shape:?}: {}", run.stdout);
                for (name, line) in [
                    ("A", "transpose A from M-major to K-major: "),
                    ("B", "transpose B from N-major to K-major: "),
                ] {
                    let there = dtype != "bf16" && transposed.contains(name);
                    assert_eq!(run.stdout.contains(line), there, "{shape:?}: {}", run.stdout);
                }
            }
        }
    }
    for (arguments, words) in [
        (
            &["--kernel", "64x64-direct-bf16-kk", "--layout", "mn"][..],
            "transpose A from M-major to K-major: 262.1 kB",
        ),
        (
            &["--kernel", "64x64-direct-bf16-mn", "--layout", "kn"],
            "transpose A from K-major to M-major: 262.1 kB",
        ),
        (
            &["--kernel", "dtype=e4m3 scale-a=1x128 scale-b=128x128", "--layout", "mn", "--k", "200"],
            "transpose B",
        ),
        (&["--dtype", "e4m3", "--dtype-b", "e5m2", "--layout", "mk"], "transpose A"),
        (&["--kernel", "dtype=f64", "--layout", "mk", "--m", "70"], "transpose A from M-major to K-major"),
        (&["--dtype", "f64", "--layout", "kn", "--n", "70"], "transpose B from N-major to K-major"),
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator"], arguments].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        assert!(run.stdout.contains(words), "{arguments:?}: no `{words}` in {}", run.stdout);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{arguments:?}: {}", run.stdout);
    }
    refused(
        "gemm",
        &[
            (
                "a batch of bytes",
                &["--batch", "2", "--layout", "mk", "--dtype", "s8"],
                &["8 bits", "--layout kk"],
            ),
            (
                "half an operand",
                &["--kernel", "sparse=a", "--layout", "mk"],
                &["contiguous along K", "--layout"],
            ),
        ],
    );
}

/// Batches and groups of rows. Illegal ones are refused before anything runs.
#[test]
fn several_products_are_verified() {
    for (arguments, words) in [
        (
            &["--batch", "3", "--m", "70", "--n", "40"][..],
            &["products  3 of 70 x 40 x 256", "kernel    form=batched "][..],
        ),
        (&["--batch", "2", "--m", "9", "--n", "7", "--beta", "2"], &["kernel    form=batched "]),
        (
            &["--rows", "3,0,70", "--n", "24", "--k", "40"],
            &["3 groups, 73 rows in all", "kernel    form=ragged "],
        ),
        (&["--rows", "1,16", "--dtype", "f16", "--n", "9"], &["kernel    form=ragged "]),
        (&["--rows", "0,0", "--n", "8"], &["nothing to launch"]),
        (&["--group", "70x9x40", "--group", "3x24x8"], &["2 of any shapes", "kernel    form=grouped "]),
        (&["--group", "0x9x40", "--group", "17x24x8", "--group", "0x8x8"], &["3 of any shapes"]),
        (&["--group", "0x9x40"], &["1 of any shapes"]),
        // Empty in each direction: without K, D is beta times C.
        (
            &["--group", "40x0x8", "--group", "8x24x0", "--group", "17x24x8", "--beta", "2"],
            &["3 of any shapes"],
        ),
        (&["--batch", "2", "--m", "9", "--repeat", "2"], &["the same bits in all 2 runs"]),
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator"], arguments].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{arguments:?}: {}", run.stdout);
        for word in words {
            assert!(run.stdout.contains(word), "{arguments:?}: no `{word}` in {}", run.stdout);
        }
    }
    // As many experts as models have, and one more group than a launch can have.
    let rows = |count: usize| -> String {
        (0..count).map(|i| if i % 40 == 3 { "5," } else { "0," }).collect::<String>() + "2"
    };
    for (count, code, words) in [
        (384, 0, "kernel    form=ragged most-groups=512 "),
        (4097, 2, "there are 4097 groups, at most 4096 are possible"),
    ] {
        let run =
            falchion(&["gemm", "--engine", "emulator", "--rows", &rows(count - 1), "--n", "16", "--k", "16"]);
        assert_eq!(run.code, Some(code), "{count} groups: {}", run.stderr);
        assert!(
            run.stdout.contains(words) || run.stderr.contains(words),
            "{count}: {}{}",
            run.stdout,
            run.stderr
        );
    }
    for (arguments, words) in [
        (&["--group", "1x2"][..], &["`1x2` is no shape"][..]),
        (&["--repeat", "0"], &["--repeat", "0 is not in 1.."]),
        (&["--batch", "2", "--rows", "3"], &["--batch", "--rows"]),
        (&["--batch", "0"], &["--batch", "0 is not in 1.."]),
        (
            &["--batch", "2", "--kernel", "ragged-128x256-bf16-kk"],
            &["ragged-128x256-bf16-kk computes groups of rows, and --batch means a batch"],
        ),
        (
            &["--rows", "2", "--kernel", "64x64-direct-bf16-kk"],
            &["64x64-direct-bf16-kk computes one GEMM, and --rows means groups of rows"],
        ),
        (
            &["--batch", "2", "--kernel", "batched-128x256-f16-kk", "--dtype", "bf16"],
            &["--kernel cannot be used with --dtype"],
        ),
        (&["--batch", "4000000000", "--m", "4000000000"], &["rows in all are too many"]),
        (&["--kernel", "ragged-128x256-bf16-kk"], &["computes groups of rows", "--rows"]),
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator"], arguments].concat());
        assert_eq!(run.code, Some(2), "{arguments:?}: {}{}", run.stdout, run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{arguments:?}: no `{word}` in {}", run.stderr);
        }
    }
}

/// Factors and elements at the limits of f32 give infinities, and the oracle knows which are right.
#[test]
fn what_overflows_is_no_mistake() {
    for arguments in [
        &["--alpha", "1e38", "--beta", "1e38"][..],
        &["--alpha", "-1e38", "--beta", "1e38"],
        &["--alpha", "1e38", "--beta", "1e38", "--dtype", "f16"],
        &["--alpha", "3e38"],
        &["--beta", "-3e38", "--dtype", "f16"],
        &["--alpha", "1e38", "--beta", "-1e38", "--kernel", "128x256-sourced-bf16-kk"],
        &["--alpha", "1e38", "--beta", "1e38", "--kernel", "128x128-stream-k-2x2-bf16-kk", "--k", "1024"],
        &["--alpha", "1e38", "--beta", "1e38", "--batch", "2", "--m", "100"],
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator"], arguments].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{arguments:?}: {}", run.stdout);
    }
    // Intermediate sums that overflow: large elements of both signs.
    let folder = folder("overflow");
    let large: Vec<f32> = (0..64 * 64).map(|i| if i % 3 == 0 { -2e38 } else { 2e38 }).collect();
    let ones: Vec<f32> = (0..64 * 64).map(|i| if i % 7 < 3 { -1.0 } else { 1.0 }).collect();
    let a = npy(&folder.join("a.npy"), "<f4", false, "(64, 64)", &bytes(&large, f32::to_le_bytes));
    let b = npy(&folder.join("b.npy"), "<f4", false, "(64, 64)", &bytes(&ones, f32::to_le_bytes));
    for factor in ["1", "1e-10", "-1"] {
        let run = falchion(&["gemm", "--engine", "emulator", "--a", &a, "--b", &b, "--alpha", factor]);
        assert_eq!(run.code, Some(0), "{factor}: {}{}", run.stdout, run.stderr);
    }
}

/// A kernel with a fused epilogue runs by its name, or the error says what is missing.
#[test]
fn fused_kernels_run_by_name() {
    for (name, more) in [
        ("128x128-pingpong-bias-gelu-bf16-kk", &[][..]),
        ("128x256-swiglu-f16-kk", &["--m", "100", "--n", "128", "--k", "72"]),
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator", "--kernel", name], more].concat());
        assert_eq!(run.code, Some(0), "{name}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{name}: {}", run.stdout);
        assert!(run.stdout.contains(&format!("kernel    {name}")), "{}", run.stdout);
    }
    let name = "128x128-pingpong-bias-gelu-bf16-kk";
    refused(
        "gemm",
        &[
            ("factors", &["--kernel", name, "--alpha", "2"], &["bias-gelu", "--alpha cannot be used with"]),
            ("another factor", &["--kernel", name, "--beta", "2"], &["--beta cannot be used with"]),
            (
                "files",
                &["--kernel", name, "--a", "a.npy", "--b", "b.npy"],
                &["--a, --b cannot be used with", "random matrices"],
            ),
            ("a file of D", &["--kernel", name, "--out", "d.npy"], &["--out cannot be used with"]),
            (
                "repetitions",
                &["--kernel", name, "--repeat", "2"],
                &["runs once", "--repeat cannot be used with"],
            ),
            (
                "another type",
                &["--kernel", name, "--dtype", "f16"],
                &["--kernel cannot be used with --dtype"],
            ),
            (
                "several products",
                &["--kernel", name, "--batch", "2"],
                &["computes one GEMM, and --batch means"],
            ),
            ("columns that it cannot store", &["--kernel", name, "--n", "3"], &["6 B, a multiple of 16 B"]),
        ],
    );
}

/// The error that is printed of a right result is a number, and within its bound.
#[test]
fn the_error_of_a_right_result_is_within_its_bound() {
    let folder = folder("error-line");
    let mut values = [1.0; 256];
    (values[2], values[3], values[17], values[40]) =
        (f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY, f32::NAN);
    let a = npy(&folder.join("a.npy"), "<f4", false, "(16, 16)", &bytes(&values, f32::to_le_bytes));
    let ones = npy(&folder.join("b.npy"), "<f4", false, "(16, 16)", &bytes(&[1.0; 256], f32::to_le_bytes));
    for arguments in [
        &["--dtype", "e4m3", "--out-dtype", "e4m3", "--alpha", "1000"][..],
        &["--dtype", "e5m2", "--out-dtype", "e5m2", "--alpha", "1e6"],
        &["--dtype", "e5m2", "--a", &a, "--b", &ones],
        &["--dtype", "f16", "--a", &a, "--b", &ones],
        &["--dtype", "f16", "--alpha", "1e6"],
        &["--dtype", "bf16", "--alpha", "3e38", "--beta", "-3e38"],
        &["--dtype", "f16", "--alpha", "1e6", "--batch", "2", "--m", "64"],
        &["--epilogue", "bias-fp8", "--n", "64"],
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator"][..], arguments].concat());
        assert_eq!(
            run.stdout.lines().last(),
            Some("verified"),
            "{arguments:?}: {}{}",
            run.stdout,
            run.stderr
        );
        let line = run.stdout.lines().find(|line| line.starts_with("error")).expect("a line");
        assert!(!line.contains("inf") && !line.contains("NaN"), "{arguments:?}: {line}");
        let before = line.split_once(" of it").or(line.split_once(" of the bound")).expect("a fraction").0;
        let fraction: f64 =
            before.rsplit([' ', '(']).next().and_then(|text| text.parse().ok()).expect("a number");
        assert!(fraction <= 1.0, "{arguments:?}: {line}");
    }
}
