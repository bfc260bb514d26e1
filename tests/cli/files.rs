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
