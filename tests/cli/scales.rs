//! Operands with block scales, from specs and from files.

use std::fs;

use half::bf16;

use crate::{bytes, f32s, falchion, folder, npy, refused, safetensors};

const FP8: &str = "dtype=e4m3 scale-a=1x128 scale-b=128x128";

#[test]
fn products_of_scaled_blocks_are_verified() {
    let spec = |more: &str| format!("{FP8} {more}");
    for (text, arguments) in [
        (spec(""), &["--m", "70", "--n", "200", "--k", "300"][..]),
        (spec("dtype-b=e5m2 out=f32 swap=yes tile=128x32x128"), &["--m", "5", "--k", "128", "--beta", "1"]),
        (spec("scale-b=1x128").replace("scale-b=128x128 ", ""), &["--alpha", "0.5", "--repeat", "2"]),
        (spec("form=batched"), &["--batch", "2", "--m", "40"]),
        (spec("form=ragged"), &["--rows", "3,0,70", "--n", "136"]),
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator", "--kernel", &text], arguments].concat());
        assert_eq!(run.code, Some(0), "{text}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{text}: {}", run.stdout);
        assert!(run.stdout.contains("_scaled_"), "{text}: {}", run.stdout);
    }
}

/// Every command that takes a spec takes one with scales.
#[test]
fn scaled_kernels_are_traced_and_scheduled() {
    for arguments in [
        &["trace", "--kernel", FP8, "--m", "70", "--n", "136", "--k", "300"][..],
        &["trace", "--kernel", &format!("{FP8} swap=yes tile=128x32x128"), "--m", "5"],
        &["schedule", "--kernel", FP8, "--m", "300", "--n", "264", "--k", "640"],
        &["plan", "--kernel", FP8],
    ] {
        let run = falchion(arguments);
        assert_eq!(run.code, Some(0), "{arguments:?}: {}{}", run.stdout, run.stderr);
    }
}

/// The value of `e4m3` bits by definition: an exponent bias of 7, and subnormal numbers in steps of 2^-9.
fn e4m3(bits: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(bits >> 3 & 15), f32::from(bits & 7));
    let magnitude = match exponent {
        0 => mantissa * f32::powi(2.0, -9),
        _ => (1.0 + mantissa / 8.0) * f32::powi(2.0, exponent - 7),
    };
    if bits & 128 == 0 { magnitude } else { -magnitude }
}

/// 8-bit files with scales of each kind give the results of plain loops. So does one scale per operand.
#[test]
fn the_kind_of_scaling_follows_from_the_shapes() {
    let folder = folder("scales");
    let (m, n, k) = (70, 136, 300);
    // Any bits except NaN.
    let fp8 = |count: usize, seed: usize| -> Vec<u8> {
        (0..count).map(|i| ((i * 37 + seed) * 11 % 120) as u8 | ((i * 5 + seed) as u8 & 128)).collect()
    };
    let (a, b) = (fp8(m * k, 3), fp8(k * n, 8));
    let a_name = safetensors(&folder.join("a.safetensors"), &[("x", "F8_E4M3", [m, k], a.clone())]);
    let b_name = safetensors(&folder.join("b.safetensors"), &[("x", "F8_E4M3", [k, n], b.clone())]);
    let scale = |name: &str, rows: usize, columns: usize| {
        let values: Vec<f32> = f32s(rows * columns).into_iter().map(|value| value.abs() + 0.5).collect();
        let shape = format!("({rows}, {columns})");
        let name = npy(&folder.join(name), "<f4", false, &shape, &bytes(&values, f32::to_le_bytes));
        (name, values, columns)
    };
    let out = folder.join("d.npy").display().to_string();
    for (why, a_rows, a_blocks, b_blocks, b_columns, words) in [
        ("1 x 128 by 128 x 128", m, 3, 3, 2, "scale-a=1x128 scale-b=128x128"),
        ("1 x 128 by 1 x 128", m, 3, 3, n, "scale-a=1x128 scale-b=1x128"),
        ("128 x 128 by 1 x 128", 1, 3, 3, n, "scale-a=128x128 scale-b=1x128"),
        ("one each", 1, 1, 1, 1, "dtype=e4m3 layout=kk out=f32 tile="),
        ("one each row and column", m, 1, 1, n, "cf32_rf32"),
        ("one each row, and a number", 1, m, 1, 1, "cf32_rf32"),
        ("a number, and one each column", 1, 1, n, 1, "cf32_rf32"),
    ] {
        let (a_scale, a_values, a_ld) = scale("sa.npy", a_rows, a_blocks);
        let (b_scale, b_values, b_ld) = scale("sb.npy", b_blocks, b_columns);
        let files = ["--a", &a_name, "--b", &b_name, "--scale-a", &a_scale, "--scale-b", &b_scale];
        let others = ["gemm", "--engine", "emulator", "--dtype", "e4m3", "--out-dtype", "f32", "--out", &out];
        let run = falchion(&[&others[..], &files].concat());
        assert_eq!(run.code, Some(0), "{why}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{why}");
        assert!(run.stdout.contains(words), "{why}: {}", run.stdout);
        let file = fs::read(&out).expect("the file was written");
        let data = &file[file.len() - m * n * 4..];
        for (i, chunk) in data.chunks_exact(4).enumerate() {
            let (row, column) = (i / n, i % n);
            let place =
                |index: usize, extent: usize, count: usize| if count == extent { index } else { index / 128 };
            let [mut exact, mut all] = [0.0f64; 2];
            for kk in 0..k {
                let block = kk / 128;
                let a_block = if a_blocks == m { row } else { block.min(a_blocks - 1) };
                let b_block = if b_blocks == n { column } else { block.min(b_blocks - 1) };
                let b_column = place(column, n, b_columns).min(b_columns - 1);
                let of_a = a_values[place(row, m, a_rows).min(a_rows - 1) * a_ld + a_block];
                let of_b = b_values[b_block * b_ld + b_column];
                let term =
                    f64::from(of_a * of_b) * f64::from(e4m3(a[row * k + kk]) * e4m3(b[kk * n + column]));
                exact += term;
                all += term.abs();
            }
            let got = f64::from(f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]));
            assert!((got - exact).abs() <= all / 256.0, "{why}: element {i} is {got}, not {exact}");
        }
    }
}

#[test]
fn scales_of_other_shapes_are_refused() {
    let folder = folder("scales-refused");
    let scale = |name: &str, shape: &str, count: usize| {
        npy(&folder.join(name), "<f4", false, shape, &bytes(&vec![1.0; count], f32::to_le_bytes))
    };
    let [rows, blocks] = [scale("rows.npy", "(256, 2)", 512), scale("blocks.npy", "(2, 2)", 4)];
    let [one, wrong] = [scale("one.npy", "()", 1), scale("wrong.npy", "(3,)", 3)];
    let vector = scale("vector.npy", "(256,)", 256);
    let infinite = bytes(&[1.0, f32::INFINITY, 1.0, 1.0], f32::to_le_bytes);
    let infinite = npy(&folder.join("infinite.npy"), "<f4", false, "(2, 2)", &infinite);
    let brain = bytes(&[1.0; 4], |value| bf16::from_f32(value).to_le_bytes());
    let v1 = npy(&folder.join("v1.npy"), "|V1", false, "(2, 4)", &brain);
    let both = ["--scale-a", &rows, "--scale-b", &blocks];
    for (arguments, words) in [
        (
            &["--scale-a", &wrong][..],
            "--scale-a is 1 x 3 scales of an operand of 256 x 256; one number, 256 of them, 256 x 2 or 2 x 2 was needed",
        ),
        (
            &["--scale-b", &wrong],
            "--scale-b is 1 x 3 scales of an operand of 256 x 256; one number, 256 of them, 2 x 256 or 2 x 2 was needed",
        ),
        (
            &["--scale-a", &rows],
            "--scale-a has a scale per block and --scale-b has one number or is left out: if the blocks of one operand",
        ),
        (&["--scale-a", &one, "--scale-b", &blocks], "--scale-a has one number"),
        (
            &["--scale-a", &vector, "--scale-b", &one, "--kernel", "dtype=e4m3"],
            "has no scales of rows and columns, and --scale-a and --scale-b are some",
        ),
        (&["--scale-a", &vector, "--dtype", "e4m3", "--beta", "1"], "cannot be used with --beta and --c"),
        (&[&both[..], &["--dtype", "bf16"]].concat(), "blocks with scales are of 8-bit floats"),
        (&[&both[..], &["--kernel", "dtype=e4m3"]].concat(), "has no block scales, and --scale-a"),
        (
            &[&both[..], &["--kernel", "dtype=e4m3 scale-a=1x128 scale-b=1x128"]].concat(),
            "has scales of blocks of 1 and 1 by 128, and --scale-a and --scale-b are scales of blocks of 1 and 128 by 128",
        ),
        (&[&both[..], &["--batch", "2"]].concat(), "--scale-a"),
        (
            &["--scale-a", &infinite],
            "--scale-a has inf in row 0, column 1: a finite number in f32 was needed",
        ),
        (
            &["--a", &v1, "--b", &v1, "--dtype", "e4m3"],
            "type V1, which may be any 8-bit float: a .safetensors file says which",
        ),
        (
            &["--dtype", "e4m3", "--dtype-b", "tf32"],
            "Hopper has no instruction that multiplies these operands",
        ),
        (&["--dtype", "e4m3", "--out-dtype", "s32"], "s32"),
        (&["--out-dtype", "fp4"], "'fp4' for '--out-dtype"),
        (&["--dtype-b", "s32"], "'s32' for '--dtype-b <FORMAT>'"),
    ] {
        refused("gemm", &[(words, arguments, &[words])]);
    }
}

/// Where K is at most 128, a scale per row or column is also one per block: neither reading is refused.
#[test]
fn a_line_of_scales_is_read_for_any_k() {
    let folder = folder("scales-short");
    let scale = |name: &str, shape: &str, count: usize| {
        let values: Vec<f32> = f32s(count).into_iter().map(|value| value.abs() + 0.5).collect();
        npy(&folder.join(name), "<f4", false, shape, &bytes(&values, f32::to_le_bytes))
    };
    let (rows, columns) = (scale("rows.npy", "(70, 1)", 70), scale("columns.npy", "(1, 48)", 48));
    let (line, one) = (scale("line.npy", "(48,)", 48), scale("one.npy", "(1, 1)", 1));
    for k in ["32", "100", "128", "136"] {
        for (why, dtype, scales) in [
            ("per column", "bf16", &["--scale-b", &columns][..]),
            ("per column of 8 bits", "e4m3", &["--scale-b", &columns]),
            ("a line per column", "e4m3", &["--scale-b", &line]),
            ("both", "e4m3", &["--scale-a", &rows, "--scale-b", &columns]),
            ("per row and a number", "f16", &["--scale-a", &rows, "--scale-b", &one]),
        ] {
            let shape = ["--m", "70", "--n", "48", "--k", k, "--dtype", dtype];
            let run = falchion(&[&["gemm", "--engine", "emulator"][..], &shape, scales].concat());
            assert_eq!(run.stdout.lines().last(), Some("verified"), "{why}, K {k}: {}", run.stderr);
            assert!(run.stdout.contains("row-column-scaled"), "{why}, K {k}: {}", run.stdout);
        }
    }
    // A kernel of block scales reads the same files as block scales.
    let scales = ["--scale-a", &rows, "--scale-b", &columns];
    let spec = ["--kernel", "dtype=e4m3 scale-a=1x128 scale-b=1x128", "--m", "70", "--n", "48", "--k", "128"];
    let run = falchion(&[&["gemm", "--engine", "emulator"][..], &spec, &scales].concat());
    assert_eq!(run.stdout.lines().last(), Some("verified"), "{}", run.stderr);
}
