//! Quantised weights, from flags and from files.

use std::fs;
use std::path::Path;

use half::bf16;

use crate::{bytes, falchion, folder, npy, refused, safetensors};

#[test]
fn products_of_weights_are_verified() {
    for (arguments, words) in [
        (&["--dtype-b", "s4g128", "--m", "9", "--k", "300"][..], "bf16 by s4 to bf16"),
        (&["--dtype", "f16", "--dtype-b", "u8", "--n", "72"], "f16 by u8 to f16"),
        (&["--dtype", "e2m1g32", "--dtype-b", "bf16", "--out-dtype", "f32"], "e2m1 by bf16 to f32"),
        (&["--dtype-b", "e4m3", "--batch", "2", "--m", "40", "--n", "64"], "bf16 by e4m3 to bf16"),
        (&["--dtype-b", "e2m1g32", "--rows", "3,0,70", "--n", "136"], "bf16 by e2m1 to bf16"),
        (&["--dtype-b", "s4g64", "--rows", "3,9", "--max-rows", "16"], "bf16 by s4 to bf16"),
        (
            &["--kernel", "weights-b=u4 group=64 zeros=yes swap=yes epilogue=bias-gelu", "--m", "40"],
            "kernel    weights",
        ),
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator"], arguments].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{arguments:?}: {}", run.stdout);
        let words = words.trim_end_matches("kernel    weights");
        assert!(run.stdout.contains(words), "{arguments:?}: {}", run.stdout);
    }
}

/// Every command that takes a spec takes one with quantised weights.
#[test]
fn kernels_of_weights_are_traced_and_scheduled() {
    let spec = "weights-b=s4 group=128 swap=yes tile=128x32x128";
    for arguments in [
        &["trace", "--kernel", spec, "--m", "20", "--n", "136", "--k", "300"][..],
        &["schedule", "--kernel", spec, "--m", "300", "--n", "264", "--k", "640"],
        &["plan", "--kernel", spec],
        &["emit", "--kernel", spec],
    ] {
        let run = falchion(arguments);
        assert_eq!(run.code, Some(0), "{arguments:?}: {}{}", run.stdout, run.stderr);
    }
}

/// The elements of an `.npy` file of `f32`.
fn singles(path: &Path) -> Vec<f32> {
    let file = fs::read(path).expect("a file that was written");
    let header = 10 + usize::from(u16::from_le_bytes([file[8], file[9]]));
    file[header..]
        .chunks_exact(4)
        .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
        .collect()
}

/// Codes, scales and zero points from files give the results of plain loops.
#[test]
fn files_of_weights_are_multiplied() {
    let folder = folder("weights");
    let (m, n, k) = (9_usize, 72_usize, 192_usize);
    let a: Vec<f32> = (0..m * k).map(|i| ((i * 7 % 23) as f32 - 11.0) / 8.0).collect();
    let codes: Vec<i8> = (0..k * n).map(|i| (i * 11 % 16) as i8).collect();
    let zeros: Vec<f32> = (0..k / 64 * n).map(|i| (i * 5 % 16) as f32).collect();
    let scales: Vec<f32> = (0..k / 64 * n).map(|i| [0.25, 0.5, 1.0, 2.0][i * 3 % 4]).collect();
    let channels: Vec<f32> = (0..n).map(|i| [0.25, 1.0, 2.0][i % 3]).collect();
    let path = |name: &str| folder.join(name);
    let single = |values: &[f32]| bytes(values, |value| value.to_le_bytes());
    let a_file = npy(&path("a.npy"), "<f4", false, "(9, 192)", &single(&a));
    let b_file = npy(
        &path("b.npy"),
        "|i1",
        false,
        "(192, 72)",
        &codes.iter().map(|code| code.cast_unsigned()).collect::<Vec<_>>(),
    );
    let scale_file = npy(&path("scales.npy"), "<f4", false, "(3, 72)", &single(&scales));
    let zero_file = npy(&path("zeros.npy"), "<f4", false, "(3, 72)", &single(&zeros));
    let channel_file = npy(&path("channels.npy"), "<f4", false, "(72,)", &single(&channels));
    let number_file = npy(&path("number.npy"), "<f4", false, "()", &single(&[0.5]));
    let out = path("d.npy").display().to_string();
    let all =
        ["gemm", "--engine", "emulator", "--a", &a_file, "--b", &b_file, "--out-dtype", "f32", "--out", &out];
    let weight = |place: usize, column: usize| f32::from(codes[place * n + column]);
    let of_group = |values: &[f32], place: usize, column: usize| values[place / 64 * n + column];
    type Element<'a> = &'a dyn Fn(usize, usize) -> f32;
    let cases: [(&[&str], Element<'_>); 4] = [
        (&["--dtype-b", "u4"], &|place, column| weight(place, column)),
        (&["--dtype-b", "u4", "--scale-b", &number_file], &|place, column| weight(place, column) * 0.5),
        (&["--dtype-b", "u4", "--scale-b", &channel_file], &|place, column| {
            weight(place, column) * channels[column]
        }),
        (&["--dtype-b", "u4g64z", "--scale-b", &scale_file, "--zero-b", &zero_file], &|place, column| {
            (weight(place, column) - of_group(&zeros, place, column)) * of_group(&scales, place, column)
        }),
    ];
    for (arguments, element) in cases {
        let run = falchion(&[&all[..], arguments].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}{}", run.stdout, run.stderr);
        let d = singles(&path("d.npy"));
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            // Every number is exact in bf16, and every sum in f32.
            let want: f32 = (0..k)
                .map(|place| bf16::from_f32(a[row * k + place]).to_f32() * element(place, column))
                .sum();
            assert_eq!(d[row * n + column], want, "{arguments:?}: D({row}, {column})");
        }
    }
    let wrong = npy(&path("wrong.npy"), "<f4", false, "(5, 72)", &single(&[1.0; 360]));
    let far = npy(&path("far.npy"), "<f4", false, "(192, 72)", &single(&vec![16.0; k * n]));
    let with = |b: &'static str, more: &[&str]| -> Vec<String> {
        let b = if b == "far" { &far } else { &b_file };
        let code = if more.contains(&"--dtype-b") { &[][..] } else { &["--dtype-b", "u4"] };
        ["--a", &a_file, "--b", b].iter().chain(code).chain(more).map(ToString::to_string).collect()
    };
    for (why, arguments, words) in [
        (
            "scales of other groups",
            with("b", &["--scale-b", &wrong]),
            &["--scale-b is 5 x 72 of an operand of 192 x 72", "3 x 72 (groups of 64)"][..],
        ),
        (
            "scales of another group",
            with("b", &["--scale-b", &scale_file, "--dtype-b", "u4g32"]),
            &["--scale-b is 3 x 72 of an operand of 192 x 72; 6 x 72 (groups of 32) was needed"],
        ),
        ("no scales", with("b", &["--dtype-b", "u4g64"]), &["--scale-b was needed"]),
        (
            "no zero points",
            with("b", &["--scale-b", &scale_file, "--dtype-b", "u4g64z"]),
            &["zero points (z): --zero-b was needed"],
        ),
        (
            "zero points alone",
            with("b", &["--zero-b", &zero_file]),
            &["--zero-b is given and --scale-b is not"],
        ),
        ("zero points of A", with("b", &["--zero-a", &zero_file]), &["give --zero-b"]),
        ("no code", with("far", &[]), &["--b has 16 in row 0, column 0: a value of u4 was needed"]),
        (
            "channels and groups",
            with("b", &["--scale-b", &channel_file, "--dtype-b", "u4g64"]),
            &[
                "--scale-b is 1 x 72 of an operand of 192 x 72; 3 x 72 (groups of 64) was needed",
                "3 x 72 (groups of 64) was needed",
            ],
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        refused("gemm", &[(why, &arguments, words)]);
    }
}

/// Layers of GPTQ and AWQ files give the results of plain loops; groups of GPTQ may be scattered.
#[test]
fn layers_of_other_tools_are_multiplied() {
    let folder = folder("layers");
    let (m, n, k, group) = (5_usize, 16_usize, 128_usize, 64_usize);
    let a: Vec<f32> = (0..m * k).map(|i| ((i * 7 % 23) as f32 - 11.0) / 8.0).collect();
    let code = |place: usize, column: usize| ((place * 5 + column * 11) % 16) as u32;
    let zero = |of: usize, column: usize| (1 + (of * 3 + column * 5) % 15) as u32;
    let scale = |of: usize, column: usize| [0.25_f32, 0.5, 1.0, 2.0][(of + column) % 4];
    let words = |count: usize, word: &dyn Fn(usize) -> u32| -> Vec<u8> {
        (0..count).flat_map(|i| word(i).to_le_bytes()).collect()
    };
    let eight = |of: &dyn Fn(usize) -> u32| (0..8).fold(0, |word, i| word | of(i) << (4 * i));
    let scales: Vec<u8> =
        (0..2 * n).flat_map(|i| half::f16::from_f32(scale(i / n, i % n)).to_le_bytes()).collect();
    let gptq_weights = words(k / 8 * n, &|i| eight(&|j| code(i / n * 8 + j, i % n)));
    let gptq_zeros = words(2 * n / 8, &|i| eight(&|j| zero(i / (n / 8), i % (n / 8) * 8 + j) - 1));
    let awq = [0, 2, 4, 6, 1, 3, 5, 7];
    let awq_weights = words(k * n / 8, &|i| eight(&|j| code(i / (n / 8), i % (n / 8) * 8 + awq[j])));
    let awq_zeros = words(2 * n / 8, &|i| eight(&|j| zero(i / (n / 8), i % (n / 8) * 8 + awq[j])));
    let scattered = words(k, &|place| place as u32 % 2);
    let layer = |name: &str, weights: ([usize; 2], &Vec<u8>), zeros: &Vec<u8>, g_idx: Option<&Vec<u8>>| {
        let mut tensors = vec![
            ("up.qweight", "I32", weights.0, weights.1.clone()),
            ("up.qzeros", "I32", [2, n / 8], zeros.clone()),
            ("up.scales", "F16", [2, n], scales.clone()),
        ];
        tensors.extend(g_idx.map(|g_idx| ("up.g_idx", "I32", [1, k], g_idx.clone())));
        safetensors(&folder.join(name), &tensors)
    };
    let a_file =
        npy(&folder.join("a.npy"), "<f4", false, "(5, 128)", &bytes(&a, |value| value.to_le_bytes()));
    let out = folder.join("d.npy").display().to_string();
    let gptq = ([k / 8, n], &gptq_weights);
    let files = [
        ("gptq", layer("gptq.safetensors", gptq, &gptq_zeros, None), false),
        ("gptq", layer("scattered.safetensors", gptq, &gptq_zeros, Some(&scattered)), true),
        ("awq", layer("awq.safetensors", ([k, n / 8], &awq_weights), &awq_zeros, None), false),
    ];
    for (packing, file, scattered) in &files {
        let b = format!("{file}:up");
        let run = falchion(&[
            "gemm",
            "--engine",
            "emulator",
            "--a",
            &a_file,
            "--b",
            &b,
            "--dtype-b",
            packing,
            "--out-dtype",
            "f32",
            "--out",
            &out,
        ]);
        assert_eq!(run.code, Some(0), "{file}: {}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains("f16 by u4 to f32"), "{file}: {}", run.stdout);
        let d = singles(&folder.join("d.npy"));
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let element = |place: usize| {
                let of = if *scattered { place % 2 } else { place / group };
                (code(place, column) as f32 - zero(of, column) as f32) * scale(of, column)
            };
            let want: f32 = (0..k).map(|place| a[row * k + place] * element(place)).sum();
            assert_eq!(d[row * n + column], want, "{file}: D({row}, {column})");
        }
    }
    let (b, plain) = (format!("{}:up", files[0].1), files[0].1.as_str());
    let other = format!("{}:down", files[0].1);
    let with = |b: &str, more: &[&str]| -> Vec<String> {
        ["--a", &a_file, "--b", b, "--dtype-b", "gptq"].iter().chain(more).map(ToString::to_string).collect()
    };
    for (why, arguments, words) in [
        ("no layer", with(plain, &[]), &["FILE.safetensors:LAYER was needed"][..]),
        ("another layer", with(&other, &[]), &["no tensor `down.qweight`", "up.qweight"]),
        ("scales of one's own", with(&b, &["--scale-b", plain]), &["--scale-b cannot be used with"]),
        ("another format", with(&b, &["--dtype", "e4m3"]), &["bf16 or f16 was needed"]),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        refused("gemm", &[(why, &arguments, words)]);
    }
    refused("gemm", &[("no file", &["--dtype-b", "awq"], &["--a and --b were needed"])]);
}

/// Weight types in plans: a code and its group.
#[test]
fn kernels_of_weights_are_planned() {
    let shape = ["plan", "--m", "16", "--n", "4096", "--k", "4096"];
    for types in [
        &["--dtype-b", "s4"][..],
        &["--dtype-b", "s4g128"],
        &["--dtype-b", "u4g64z"],
        &["--dtype", "e2m1g32", "--dtype-b", "bf16"],
    ] {
        let run = falchion(&[&shape[..], types].concat());
        assert_eq!(run.code, Some(0), "{types:?}: {}{}", run.stdout, run.stderr);
        assert!(run.stdout.contains("weights-"), "{types:?}: {}", run.stdout);
    }
    refused(
        "plan",
        &[(
            "a code alone",
            &["--m", "8", "--n", "8", "--k", "8", "--dtype", "s4g128"],
            &["of bf16 or f16 was needed"],
        )],
    );
}

#[test]
fn what_is_no_weight_is_refused() {
    refused(
        "gemm",
        &[
            ("a group that is no GEMM", &["--group", "64"], &["`64` is no shape"]),
            ("an unknown code", &["--dtype-b", "int3"], &["'int3' for '--dtype-b", "s4", "e2m1"]),
            ("another group", &["--dtype-b", "s4g96"], &["with g32, g64 or g128"]),
            ("zero points without weights", &["--zero-b", "z.npy"], &["--zero-b cannot be used with"]),
            ("extents of a product", &["--group", "8x8x8", "--m", "5"], &["--m cannot be used with --group"]),
            (
                "MXFP4 in half precision",
                &["--dtype", "f16", "--dtype-b", "e2m1g32"],
                &["use operands of bf16"],
            ),
        ],
    );
}

/// One line of scales is a scale per row or column for any K, and with --group the scales of one group.
#[test]
fn one_line_of_scales_is_enough() {
    let folder = folder("weights-line");
    let scale = |name: &str, shape: &str, count: usize| {
        npy(&folder.join(name), "<f4", false, shape, &bytes(&vec![0.5; count], f32::to_le_bytes))
    };
    let (columns, one) = (scale("columns.npy", "(1, 48)", 48), scale("one.npy", "(1, 1)", 1));
    for (why, arguments) in [
        ("per column, K 32", &["--n", "48", "--k", "32", "--dtype-b", "s4", "--scale-b", &columns][..]),
        ("per column, K 128", &["--n", "48", "--k", "128", "--dtype-b", "s4", "--scale-b", &columns]),
        ("a number", &["--n", "48", "--k", "64", "--dtype-b", "s4", "--scale-b", &one]),
        ("one group", &["--n", "48", "--k", "128", "--dtype-b", "s4g128", "--scale-b", &columns]),
        (
            "one group of one row",
            &["--m", "1", "--k", "128", "--dtype", "s4g128", "--dtype-b", "bf16", "--scale-a", &one],
        ),
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator"][..], arguments].concat());
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{why}: {}{}", run.stdout, run.stderr);
    }
    let wrong = ["--m", "5", "--k", "128", "--dtype", "s4g128", "--dtype-b", "bf16", "--scale-a", &one];
    refused(
        "gemm",
        &[("one number for a group", &wrong, &["--scale-a is 1 x 1", "5 x 1 (groups of 128) was needed"])],
    );
}
