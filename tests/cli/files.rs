//! Matrices that are read from files and written to files.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::process::Command;

use half::{bf16, f16};

use crate::{bytes, f32s, falchion, folder, npy, refused, safetensors};

/// Files of every type and order give the results of plain loops.
#[test]
fn files_are_read_as_users_have_them() {
    let folder = folder("files");
    let (m, n, k) = (24, 16, 40);
    let (a, b) = (f32s(m * k), f32s(k * n));
    let columns: Vec<f32> = (0..m * k).map(|i| a[i % m * k + i / m]).collect();
    let single = |values: &[f32]| bytes(values, f32::to_le_bytes);
    let b_name = npy(&folder.join("b.npy"), "<f4", false, "(40, 16)", &single(&b));
    let b_tensors = [
        ("other", "F32", [1, 1], vec![0; 4]),
        ("weight", "BF16", [k, n], bytes(&b, |value| bf16::from_f32(value).to_le_bytes())),
    ];
    let b_safe = safetensors(&folder.join("b.safetensors"), &b_tensors);
    let double = bytes(&a, |value| f64::from(value).to_le_bytes());
    let half_a = bytes(&a, |value| f16::from_f32(value).to_le_bytes());
    let brain_a = bytes(&a, |value| bf16::from_f32(value).to_le_bytes());
    let shape = "(24, 40)";
    let big = bytes(&a, f32::to_be_bytes);
    let files = [
        ("f32 rows", npy(&folder.join("a1.npy"), "<f4", false, shape, &single(&a)), b_name.clone()),
        ("f32 columns", npy(&folder.join("a2.npy"), "<f4", true, shape, &single(&columns)), b_name.clone()),
        ("f64", npy(&folder.join("a3.npy"), "<f8", false, shape, &double), b_name.clone()),
        ("f16", npy(&folder.join("a4.npy"), "<f2", false, shape, &half_a), b_name.clone()),
        ("bf16 as raw bytes", npy(&folder.join("a5.npy"), "|V2", false, shape, &brain_a), b_name.clone()),
        ("bf16 by name", npy(&folder.join("a7.npy"), "bfloat16", false, shape, &brain_a), b_name.clone()),
        ("big-endian", npy(&folder.join("a6.npy"), ">f4", false, shape, &big), b_name),
        ("a tensor by name", folder.join("a1.npy").display().to_string(), format!("{b_safe}:weight")),
    ];
    let out = folder.join("d.npy");
    let out_name = out.display().to_string();
    for (why, a_name, b_name) in files {
        let run =
            falchion(&["gemm", "--engine", "emulator", "--a", &a_name, "--b", &b_name, "--out", &out_name]);
        assert_eq!(run.code, Some(0), "{why}: {}{}", run.stdout, run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{why}");
        let file = fs::read(&out).expect("the file was written");
        let data = &file[file.len() - m * n * 4..];
        for (i, chunk) in data.chunks_exact(4).enumerate() {
            let exact: f32 = (0..k).map(|kk| a[i / n * k + kk] * b[kk * n + i % n]).sum();
            let got = f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
            assert!(
                (got - exact).abs() <= exact.abs() / 256.0 + 1e-4,
                "{why}: element {i} is {got}, not {exact}"
            );
        }
    }
}

/// A column-major D, with a C: the product of the transposed files, written in Fortran's order.
#[test]
fn column_major_results_are_those_of_plain_loops() {
    let folder = folder("column-major");
    let (m, n, k) = (24, 16, 40);
    let (a, b, c) = (f32s(m * k), f32s(k * n), f32s(m * n));
    let single = |values: &[f32]| bytes(values, f32::to_le_bytes);
    let named = |name: &str, shape: &str, values: &[f32]| {
        npy(&folder.join(name), "<f4", false, shape, &single(values))
    };
    let (a_name, b_name) = (named("a.npy", "(24, 40)", &a), named("b.npy", "(40, 16)", &b));
    let c_name = named("c.npy", "(24, 16)", &c);
    let out = folder.join("d.npy");
    for layout in ["kkm", "knm", "mkm", "mnm"] {
        let line =
            ["gemm", "--engine", "emulator", "--a", &a_name, "--b", &b_name, "--c", &c_name, "--beta", "2"];
        let out_name = out.display().to_string();
        let run = falchion(&[&line[..], &["--layout", layout, "--out", &out_name]].concat());
        assert_eq!(run.code, Some(0), "{layout}: {}{}", run.stdout, run.stderr);
        assert!(
            run.stdout.contains("D is column-major") && run.stdout.contains("verified"),
            "{}",
            run.stdout
        );
        let file = fs::read(&out).expect("the file was written");
        let (head, data) = file.split_at(file.len() - m * n * 4);
        let head = String::from_utf8_lossy(head).into_owned();
        assert!(head.contains("'fortran_order': True, 'shape': (24, 16)"), "{head}");
        for (i, chunk) in data.chunks_exact(4).enumerate() {
            let (row, column) = (i % m, i / m);
            let exact: f32 = (0..k).map(|kk| a[row * k + kk] * b[kk * n + column]).sum();
            let exact = exact + 2.0 * c[row * n + column];
            let got = f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
            assert!(
                (got - exact).abs() <= exact.abs() / 128.0 + 1e-3,
                "{layout}: {row}, {column}: {got}, not {exact}"
            );
        }
    }
}

/// Values of files are rounded once, to nearest: a value just above the middle between two elements is
/// rounded up.
#[test]
fn files_are_rounded_to_nearest() {
    let folder = folder("rounding");
    let identity: Vec<f32> = (0..64).map(|i| if i % 9 == 0 { 1.0 } else { 0.0 }).collect();
    let b = npy(&folder.join("b.npy"), "<f4", false, "(8, 8)", &bytes(&identity, f32::to_le_bytes));
    let out = folder.join("d.npy").display().to_string();
    let middle = 1.0 + 1.0 / 256.0;
    let double = |value: f64| value.to_le_bytes().repeat(64);
    let single = |value: f64| (value as f32).to_le_bytes().repeat(64);
    for (why, kind, data, want) in [
        ("a tie goes to the even element", "<f4", single(middle), 1.0_f32),
        ("an f32 above it", "<f4", single(middle + f64::powi(2.0, -22)), 1.0 + 1.0 / 128.0),
        ("an f64 above it", "<f8", double(middle + f64::powi(2.0, -40)), 1.0 + 1.0 / 128.0),
        ("an f64 below it", "<f8", double(middle - f64::powi(2.0, -40)), 1.0),
    ] {
        let a = npy(&folder.join("a.npy"), kind, false, "(8, 8)", &data);
        let run = falchion(&["gemm", "--engine", "emulator", "--a", &a, "--b", &b, "--out", &out]);
        assert_eq!(run.code, Some(0), "{why}: {}{}", run.stdout, run.stderr);
        let file = fs::read(&out).expect("the file was written");
        assert_eq!(file[file.len() - 4..], want.to_le_bytes(), "{why}");
    }
}

/// Only the header and the one matrix of a file are read, for any length of the file.
#[test]
#[cfg(target_os = "linux")]
fn large_files_are_not_read_whole() {
    let folder = folder("large");
    let values = f32s(20 * 24);
    // Before the tensor there are 6 GiB of another tensor, as a sparse file without blocks on disk.
    let before: u64 = 6 << 30;
    let end = before + 20 * 24 * 4;
    let header = format!(
        r#"{{"other":{{"dtype":"U8","shape":[{before}],"data_offsets":[0,{before}]}},"weight":{{"dtype":"F32","shape":[20,24],"data_offsets":[{before},{end}]}}}}"#
    );
    let path = folder.join("sparse.safetensors");
    let mut file = fs::File::create(&path).expect("a writable folder");
    let start = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes()].concat();
    file.write_all(&start).expect("a writable folder");
    file.seek(SeekFrom::Start(start.len() as u64 + before)).expect("a sparse file");
    file.write_all(&bytes(&values, f32::to_le_bytes)).expect("a writable folder");
    let b = npy(&folder.join("b.npy"), "<f4", false, "(24, 8)", &bytes(&f32s(24 * 8), f32::to_le_bytes));
    // After the matrix, the file has other content.
    let a = folder.join("a.npy");
    npy(&a, "<f4", false, "(20, 24)", &bytes(&values, f32::to_le_bytes));
    fs::OpenOptions::new().write(true).open(&a).and_then(|file| file.set_len(before)).expect("a sparse file");
    for a in [format!("{}:weight", path.display()), a.display().to_string()] {
        // The address space is smaller than the file.
        let limited = format!("ulimit -v 5000000; exec {} \"$@\"", env!("CARGO_BIN_EXE_falchion"));
        let arguments = ["-c", &limited, "sh", "gemm", "--engine", "emulator", "--a", &a, "--b", &b];
        let output = Command::new("sh").args(arguments).output().expect("a shell");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            stdout.lines().last(),
            Some("verified"),
            "{a}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(stdout.contains("20 x 8 x 24"), "{stdout}");
    }
    fs::remove_file(path).expect("it is there");
}

/// A file that is shorter than its header says, or that has no end, is refused with its name and its real
/// content.
#[test]
fn what_is_read_is_bounded_by_header_and_file() {
    let folder = folder("bounds");
    let data = bytes(&f32s(64), f32::to_le_bytes);
    let square = npy(&folder.join("square.npy"), "<f4", false, "(8, 8)", &data);
    let written = |name: &str, bytes: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, bytes).expect("a writable folder");
        path.display().to_string()
    };
    let whole = fs::read(&square).expect("it was written");
    let header = |length: u64, text: &str| [&length.to_le_bytes()[..], text.as_bytes()].concat();
    let tensor = r#"{"up":{"dtype":"F32","shape":[8,8],"data_offsets":[0,256]}}"#;
    let short = [header(tensor.len() as u64, tensor), data[..100].to_vec()].concat();
    let overflow =
        r#"{"up":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,256]}}"#;
    let nested = folder.join("folder.npy");
    fs::create_dir_all(&nested).expect("a writable folder");
    let files = [
        (
            "a header beyond the file",
            written("far.npy", &[&whole[..8], &[0xff, 0xff], &whole[10..]].concat()),
            "far.npy",
            "65535 B",
        ),
        ("nothing", written("empty.npy", &[]), "empty.npy", "no .npy file"),
        ("half a header", written("half.npy", &whole[..40]), "half.npy", "the file 40 B"),
        ("a folder", nested.display().to_string(), "folder.npy", "a folder"),
        ("no length", written("short.safetensors", &[1, 2]), "short.safetensors", "2 B"),
        (
            "a header of 2^64 B",
            written("long.safetensors", &header(u64::MAX, "{}")),
            "long.safetensors",
            "18446744073709551615 B",
        ),
        (
            "a header longer than the file",
            written("longer.safetensors", &header(100, "{}")),
            "longer.safetensors",
            "100 B, the file 10 B",
        ),
        (
            "no JSON",
            written("text.safetensors", &header(4, "text")),
            "text.safetensors",
            "no .safetensors file",
        ),
        (
            "fewer bytes than the tensor",
            written("cut.safetensors", &short),
            "cut.safetensors",
            "256 B, 100 B are after",
        ),
        (
            "extents of 2^96",
            written("overflow.safetensors", &header(overflow.len() as u64, overflow)),
            "overflow.safetensors",
            "no .safetensors file",
        ),
    ];
    for (why, file, name, words) in &files {
        refused("gemm", &[(why, &["--a", file, "--b", &square], &[name, words])]);
    }
}

#[test]
#[cfg(unix)]
fn devices_are_no_files() {
    let folder = folder("devices");
    for name in ["endless.npy", "endless.safetensors"] {
        let link = folder.join(name);
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink("/dev/zero", &link).expect("a writable folder");
        let link = link.display().to_string();
        refused(
            "gemm",
            &[(
                "a device",
                &["--a", &link, "--b", &link],
                &[name, "a device or a pipe", "a file was needed"],
            )],
        );
    }
}

/// Reading a file's header must not compile C.
#[test]
fn the_command_line_is_built_without_a_c_compiler() {
    let arguments = ["tree", "-p", "falchion", "-e", "normal,build", "--prefix", "none", "--offline"];
    let output = Command::new(env!("CARGO")).args(arguments).output().expect("cargo runs the tests");
    let tree = String::from_utf8_lossy(&output.stdout);
    assert!(tree.contains("safetensors v"), "{}", String::from_utf8_lossy(&output.stderr));
    for package in ["cc v", "cmake v", "bindgen v"] {
        assert!(!tree.lines().any(|line| line.starts_with(package)), "{package} in {tree}");
    }
}

/// A value is rounded to the format, or refused with its place: none becomes another one without a word.
#[test]
fn what_a_format_does_not_hold_is_refused() {
    let folder = folder("held");
    let ones = npy(&folder.join("ones.npy"), "<f4", false, "(16, 16)", &bytes(&[1.0; 256], f32::to_le_bytes));
    let with = |value: f32| {
        let mut values = [1.0; 256];
        values[3 * 16 + 5] = value;
        npy(&folder.join(format!("{value}.npy")), "<f4", false, "(16, 16)", &bytes(&values, f32::to_le_bytes))
    };
    for (value, dtype, words) in [
        (f32::INFINITY, "s8", "inf in row 3, column 5: s8 holds numbers from -128 to 127"),
        (f32::NAN, "u8", "NaN in row 3, column 5: u8 holds numbers from 0 to 255"),
        (-1.0, "u8", "-1 in row 3, column 5: u8"),
        (300.0, "s8", "300 in row 3, column 5: s8"),
        (f32::NEG_INFINITY, "e4m3", "-inf in row 3, column 5: e4m3 holds numbers from -448 to 448"),
        (1000.0, "e4m3", "1000 in row 3, column 5: e4m3"),
        (61440.0, "e5m2", "61440 in row 3, column 5: e5m2 holds numbers from -57344 to 57344"),
        (70000.0, "f16", "70000 in row 3, column 5: f16"),
        (f32::MAX, "tf32", "row 3, column 5: tf32"),
    ] {
        let file = with(value);
        refused("gemm", &[(words, &["--dtype", dtype, "--a", &file, "--b", &ones], &["--a has", words])]);
    }
    let file = with(3e9);
    let run = ["--dtype", "s8", "--a", &ones, "--b", &ones, "--c", &file, "--beta", "1"];
    refused("gemm", &[("C", &run, &["--c has 3000000000 in row 3, column 5: s32"])]);
}

/// The elements of a D that was written, as f32.
fn written(out: &str, count: usize) -> Vec<f32> {
    let file = fs::read(out).expect("the file was written");
    file[file.len() - count * 4..]
        .chunks_exact(4)
        .map(|chunk| f32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]))
        .collect()
}

/// Infinities of e5m2 are infinities, so that their difference is NaN.
#[test]
fn infinities_stay() {
    let folder = folder("infinities");
    let ones = npy(&folder.join("ones.npy"), "<f4", false, "(16, 16)", &bytes(&[1.0; 256], f32::to_le_bytes));
    let mut values = [1.0; 256];
    (values[2], values[3], values[17]) = (f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY);
    let a = npy(&folder.join("a.npy"), "<f4", false, "(16, 16)", &bytes(&values, f32::to_le_bytes));
    let out = folder.join("d.npy").display().to_string();
    for dtype in ["e5m2", "f16"] {
        let files = ["--dtype", dtype, "--out-dtype", "f32", "--a", &a, "--b", &ones, "--out", &out];
        let run = falchion(&[&["gemm", "--engine", "emulator"][..], &files].concat());
        assert_eq!(run.code, Some(0), "{dtype}: {}{}", run.stdout, run.stderr);
        let d = written(&out, 256);
        assert!(d[..16].iter().all(|x| x.is_nan()), "{dtype}: {:?}", &d[..16]);
        assert_eq!((&d[16..32], &d[32..48]), (&[f32::INFINITY; 16][..], &[16.0; 16][..]), "{dtype}");
    }
}

/// A tf32 of a file is rounded to nearest, as every other format.
#[test]
fn tf32_files_are_rounded() {
    let folder = folder("tf32");
    let identity: Vec<f32> = (0..64).map(|i| if i % 9 == 0 { 1.0 } else { 0.0 }).collect();
    let b = npy(&folder.join("b.npy"), "<f4", false, "(8, 8)", &bytes(&identity, f32::to_le_bytes));
    let out = folder.join("d.npy").display().to_string();
    let unit = f32::powi(2.0, -10);
    for (value, want) in [
        (1.0 + 0.75 * unit, 1.0 + unit),
        (1.0 + 0.25 * unit, 1.0),
        (1.0 + 0.5 * unit, 1.0),
        (-(1.0 + 1.5 * unit), -(1.0 + 2.0 * unit)),
    ] {
        let a = npy(&folder.join("a.npy"), "<f4", false, "(8, 8)", &value.to_le_bytes().repeat(64));
        let files = ["--dtype", "tf32", "--a", &a, "--b", &b, "--out", &out];
        let run = falchion(&[&["gemm", "--engine", "emulator"][..], &files].concat());
        assert_eq!(run.code, Some(0), "{value}: {}{}", run.stdout, run.stderr);
        assert_eq!(written(&out, 64), [want; 64], "{value}");
    }
}

/// Sums of integers that leave s32 are not those of A and B, whatever D's format.
#[test]
fn integers_that_wrap_are_told() {
    let folder = folder("wrapped");
    let full = |name: &str, shape: &str, count: usize| {
        npy(&folder.join(name), "|u1", false, shape, &vec![255; count])
    };
    let out = folder.join("d.npy");
    let _ = fs::remove_file(&out);
    for (k, words) in
        [(33_025, None), (33_026, Some("D(0, 0) is 2147515650, and integers are summed in s32"))]
    {
        let a = full("a.npy", &format!("(2, {k})"), 2 * k);
        let b = full("b.npy", &format!("({k}, 4)"), 4 * k);
        for out_dtype in ["s32", "f32"] {
            let files = ["--dtype", "u8", "--out-dtype", out_dtype, "--a", &a, "--b", &b];
            let write = ["--out", &out.display().to_string()];
            let write = if words.is_some() { &write[..] } else { &[] };
            let run = falchion(&[&["gemm", "--engine", "emulator"][..], &files, write].concat());
            match words {
                None => assert_eq!(run.stdout.lines().last(), Some("verified"), "{k}: {}", run.stderr),
                Some(words) => {
                    assert_eq!(run.code, Some(2), "{k} {out_dtype}: {}", run.stdout);
                    assert!(run.stderr.contains(words), "{}", run.stderr);
                    assert!(!run.stdout.contains("verified") && !out.exists(), "{}", run.stdout);
                }
            }
        }
    }
    // Random matrices say it, too.
    for more in [&[][..], &["--batch", "2"]] {
        let run =
            ["gemm", "--engine", "emulator", "--dtype", "s8", "--alpha", "100000", "--m", "64", "--n", "64"];
        let run = falchion(&[&run[..], more].concat());
        assert!(run.stdout.contains("\nwrapped   D(0, "), "{}{}", run.stdout, run.stderr);
    }
}

/// Factors of an exact D are exact; those of f64 have all of their digits.
#[test]
fn factors_are_not_rounded_where_d_is_not() {
    refused(
        "gemm",
        &[
            ("integers", &["--dtype", "s8", "--alpha", "2147483648"], &["alpha", "2147483648"]),
            ("of C", &["--dtype", "s8", "--beta", "0.5"], &["beta", "0.5"]),
        ],
    );
    let exact =
        ["gemm", "--engine", "emulator", "--dtype", "f64", "--alpha", "0.1", "--m", "64", "--n", "64"];
    let exact = falchion(&exact);
    assert!(exact.stdout.ends_with("verified\n"), "{}{}", exact.stdout, exact.stderr);
}

/// Shapes are compared by the headers alone.
#[test]
#[cfg(target_os = "linux")]
fn shapes_are_compared_before_elements_are_read() {
    let folder = folder("headers");
    let large = folder.join("large.npy");
    npy(&large, "<f4", false, "(32768, 32768)", &[]);
    let length = fs::metadata(&large).expect("there").len() + (4 << 30);
    fs::OpenOptions::new()
        .write(true)
        .open(&large)
        .and_then(|file| file.set_len(length))
        .expect("a sparse file");
    let large = large.display().to_string();
    let small = npy(&folder.join("small.npy"), "<f4", false, "(8, 8)", &[0; 256]);
    for (arguments, words) in [
        (&["--a", &large, "--b", &small][..], "A is 32768 x 32768 and B is 8 x 8"),
        (&["--a", &small, "--b", &small, "--c", &large, "--beta", "1"], "C is 32768 x 32768, D is 8 x 8"),
        (&["--a", &small, "--b", &small, "--m", "9"], "--m is 9, the files have 8"),
        (&["--a", &small, "--b", &small, "--scale-a", &large], "--scale-a is 32768 x 32768 scales"),
    ] {
        let limited = format!("ulimit -v 3000000; exec {} \"$@\"", env!("CARGO_BIN_EXE_falchion"));
        let shell = ["-c", &limited, "sh", "gemm", "--engine", "emulator"];
        let output = Command::new("sh").args(shell).args(arguments).output().expect("a shell");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    fs::remove_file(large).expect("it is there");
}

/// A header's text in memory is many times as large as in the file.
#[test]
fn long_headers_are_refused() {
    let folder = folder("long-header");
    let tensor = r#"{"up":{"dtype":"F32","shape":[8,8],"data_offsets":[0,256]}}"#;
    let header = format!("{tensor}{}", " ".repeat(16_000_001 - tensor.len()));
    let path = folder.join("long.safetensors");
    fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[0; 256]].concat())
        .expect("ours");
    let path = path.display().to_string();
    refused(
        "gemm",
        &[("long", &["--a", &path, "--b", &path], &["has 16000001 B", "at most 16000000 B of a header"])],
    );
}

/// A terminal does not obey what files hold.
#[test]
fn control_characters_of_files_are_written_out() {
    let folder = folder("control");
    let descr = npy(&folder.join("descr.npy"), "\u{1b}[2J\u{1b}]0;x\u{7}", false, "(8, 8)", &[0; 256]);
    let broken = npy(&folder.join("broken.npy"), "<f4', '\u{1b}[31m", false, "(8, 8)", &[0; 256]);
    let name = r"\u001b[2J\u009b31m";
    let tensors = safetensors(
        &folder.join("t.safetensors"),
        &[(name, "F32", [8, 8], vec![0; 256]), ("b", "F32", [8, 8], vec![0; 256])],
    );
    for file in [descr, broken, tensors.clone(), format!("{tensors}:none")] {
        let run = falchion(&["gemm", "--a", &file, "--b", &file]);
        assert_eq!(run.code, Some(2), "{}", run.stdout);
        let obeyed = |c: char| c.is_control() && c != '\n';
        assert!(!run.stderr.contains(obeyed), "{file}: {:?}", run.stderr);
        assert!(run.stderr.contains("\\u{1b}["), "{file}: {:?}", run.stderr);
    }
}
