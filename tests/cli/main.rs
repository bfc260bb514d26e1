//! The command line as its users meet it: output, errors and exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use half::{bf16, f16};

/// What a run of the binary said.
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn falchion(arguments: &[&str]) -> Run {
    let output =
        Command::new(env!("CARGO_BIN_EXE_falchion")).args(arguments).output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).expect("a writable folder");
    folder
}

fn npy(path: &Path, kind: &str, fortran: bool, shape: &str, data: &[u8]) -> String {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while (header.len() + 11) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend(u16::try_from(header.len()).expect("short").to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).expect("a writable folder");
    path.display().to_string()
}

fn safetensors(path: &Path, tensors: &[(&str, &str, [usize; 2], Vec<u8>)]) -> String {
    let mut entries = Vec::new();
    let mut data: Vec<u8> = Vec::new();
    for (name, kind, [rows, columns], bytes) in tensors {
        let (begin, end) = (data.len(), data.len() + bytes.len());
        entries.push(format!(
            r#""{name}":{{"dtype":"{kind}","shape":[{rows},{columns}],"data_offsets":[{begin},{end}]}}"#
        ));
        data.extend(bytes);
    }
    let header = format!("{{{}}}", entries.join(","));
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).expect("a writable folder");
    path.display().to_string()
}

fn f32s(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i % 17) as f32 / 4.0 - 2.0).collect()
}

fn bytes<const N: usize>(values: &[f32], narrow: impl Fn(f32) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| narrow(value)).collect()
}

#[test]
fn a_product_of_random_matrices_is_verified() {
    for arguments in [
        &["gemm", "--engine", "emulator"][..],
        &["gemm", "--m", "130", "--n", "70", "--k", "72", "--dtype", "f16", "--alpha", "0.5", "--beta", "-2"],
        &["gemm", "--n", "264", "--config", "staged-bf16-mn", "--seed", "5"],
        &["gemm", "--m", "40", "--config", "stream-bf16-kk", "--k", "2048", "--repeat", "3"],
    ] {
        let run = falchion(arguments);
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{arguments:?}: {}", run.stdout);
        for part in ["engine ", "kernel ", "plan ", "time ", "error ", "bound"] {
            assert!(run.stdout.contains(part), "{arguments:?}: no `{part}` in {}", run.stdout);
        }
    }
}

/// Batches and groups of rows; what they cannot be is said before anything runs.
#[test]
fn several_products_are_verified() {
    for (arguments, words) in [
        (
            &["--batch", "3", "--m", "70", "--n", "40"][..],
            &["products  3 of 70 x 40 x 256", "batched-bf16-kk"][..],
        ),
        (&["--batch", "2", "--m", "9", "--n", "7", "--beta", "2"], &["batched-swap16-bf16-kk"]),
        (&["--rows", "3,0,70", "--n", "24", "--k", "40"], &["3 groups, 73 rows in all", "ragged-bf16-kk"]),
        (&["--rows", "1,16", "--dtype", "f16", "--n", "9"], &["ragged-swap16-f16-kk"]),
        (&["--rows", "0,0", "--n", "8"], &["nothing to launch"]),
        (&["--group", "70x9x40", "--group", "3x24x8"], &["2 of any shapes", "grouped-bf16-kk"]),
        (&["--group", "0x9x40", "--group", "17x24x8", "--group", "0x8x8"], &["3 of any shapes"]),
        (&["--group", "0x9x40"], &["1 of any shapes"]),
        (&["--batch", "2", "--m", "9", "--repeat", "2"], &["the same bits in all 2 runs"]),
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator"], arguments].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{arguments:?}: {}", run.stdout);
        for word in words {
            assert!(run.stdout.contains(word), "{arguments:?}: no `{word}` in {}", run.stdout);
        }
    }
    for (arguments, words) in [
        (&["--group", "1x2"][..], &["`1x2` is no shape"][..]),
        (&["--group", "1x0x8"], &["`1x0x8` is no shape", "M alone may be 0"]),
        (&["--repeat", "0"], &["--repeat", "0 is not in 1.."]),
        (&["--batch", "2", "--rows", "3"], &["--batch", "--rows"]),
        (&["--batch", "0"], &["--batch", "0 is not in 1.."]),
        (&["--batch", "2", "--config", "ragged-bf16-kk"], &["ragged-bf16-kk is Ragged", "Batched"]),
        (&["--rows", "2", "--config", "small-bf16-kk"], &["small-bf16-kk is Single", "Ragged"]),
        (&["--batch", "2", "--config", "batched-f16-kk"], &["for f16"]),
        (&["--batch", "4000000000", "--m", "4000000000"], &["rows in all are too many"]),
        (&["--config", "ragged-bf16-kk"], &["Ragged", "launch_ragged"]),
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator"], arguments].concat());
        assert_eq!(run.code, Some(2), "{arguments:?}: {}{}", run.stdout, run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{arguments:?}: no `{word}` in {}", run.stderr);
        }
    }
}

/// Files of every type and order give the product that plain loops give.
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

/// Values of files are rounded once, to nearest: one just above the middle of two elements goes up.
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

/// A reader who leaves early ends a listing well, but is never told that a product was right.
#[test]
fn output_that_nobody_reads_is_no_panic() {
    for (arguments, code) in [
        (&["configs"][..], 0),
        (&["emit", "large-bf16-kk"], 0),
        (&["plan", "large-bf16-kk"], 0),
        (&["gemm", "--engine", "emulator"], 2),
        (&["verify", "--engine", "emulator", "--filter", "alpha-zero"], 2),
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_falchion"));
        let output = command.args(arguments).stdout(writer).stderr(Stdio::piped()).output().expect("runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
}

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
        ("kernel of another type", &["--config", "small-f16-kk"], &["is for f16", "--dtype is bf16"]),
        ("unknown type", &["--dtype", "f8"], &["`f8`", "bf16 and f16"]),
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
        ("no type", &["--dtype", "f8"], &["`f8`", "bf16 and f16"]),
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
        ("a kernel of another type", &["--config", "small-f16-kk"], &["for f16", "--dtype is bf16"]),
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

#[test]
fn the_catalogue_is_printed() {
    let list = falchion(&["configs"]);
    assert_eq!(list.code, Some(0));
    for entry in kernel::catalogue() {
        assert!(list.stdout.contains(entry.name()), "{} is not listed", entry.name());
    }
    let plan = falchion(&["plan", "large-bf16-kk"]);
    assert_eq!(plan.code, Some(0));
    assert!(plan.stdout.contains("128x256x64") && plan.stdout.contains("196680"), "{}", plan.stdout);
    let ptx = falchion(&["emit", "small-f16-kk"]);
    assert!(ptx.stdout.starts_with(".version 8.4\n.target sm_90a"), "{}", &ptx.stdout[..80]);
    let file = folder("emit").join("kernel.ptx");
    let written = falchion(&["emit", "small-f16-kk", "-o", &file.display().to_string()]);
    assert_eq!(written.code, Some(0), "{}", written.stderr);
    assert_eq!(fs::read_to_string(&file).expect("written"), ptx.stdout);
    let unknown = falchion(&["plan", "nothing"]);
    assert_eq!(unknown.code, Some(2));
}

#[test]
fn kernels_are_ranked_for_a_shape() {
    let shape = ["--m", "4096", "--n", "4096", "--k", "512"];
    let ranking = falchion(&[&["plan"], &shape[..], &["--dtype", "f16", "--layout", "kn"]].concat());
    assert_eq!(ranking.code, Some(0), "{}", ranking.stderr);
    for entry in kernel::catalogue() {
        let fits = entry.name().ends_with("-f16-kn");
        assert_eq!(ranking.stdout.contains(entry.name()), fits, "{}", entry.name());
    }
    let first = ranking.stdout.lines().nth(3).and_then(|line| line.split_whitespace().next()).unwrap_or("");
    let named = kernel::find(first).expect("the first row is a kernel");
    assert!(ranking.stdout.contains(&format!("type Kernel = Gemm<{}>;", named.rust_type())), "{first}");
    // Rows of 10 bytes: kernels with tensor copies say why they cannot.
    let packed = falchion(&["plan", "--m", "8", "--n", "8", "--k", "5"]);
    assert_eq!(packed.code, Some(0), "{}", packed.stderr);
    for word in ["10 B, a multiple of 16 B", "CopyWgmma<"] {
        assert!(packed.stdout.contains(word), "{}", packed.stdout);
    }
    for (why, arguments, words) in [
        ("nothing to plan", &[][..], &["required", "NAME"][..]),
        ("half a shape", &["--m", "5"], &["--n", "--k"]),
        ("a name and a shape", &["large-bf16-kk", "--m", "5", "--n", "5", "--k", "8"], &["--m"]),
        ("an empty product", &["--m", "0", "--n", "8", "--k", "8"], &["--m", "0"]),
    ] {
        let run = falchion(&[&["plan"], arguments].concat());
        assert_eq!(run.code, Some(2), "{why}: {}", run.stdout);
        for word in words {
            assert!(run.stderr.contains(word), "{why}: no `{word}` in {}", run.stderr);
        }
    }
}

#[test]
fn verify_closes_with_its_count() {
    let run = falchion(&["verify", "--engine", "emulator", "--filter", "alpha-zero"]);
    assert_eq!(run.code, Some(0), "{}", run.stdout);
    assert_eq!(run.stdout.lines().last(), Some("16 passed, 0 failed, 0 skipped"));
    let nothing = falchion(&["verify", "--filter", "no such case"]);
    assert_eq!(nothing.code, Some(2));
    for suite in ["instructions", "fusions"] {
        let refused = falchion(&["verify", "--suite", suite, "--repeat", "2"]);
        assert!(
            refused.code == Some(2) && refused.stderr.contains("--repeat 2"),
            "{suite}: {}",
            refused.stderr
        );
    }
    let nothing = falchion(&["verify", "--suite", "slow"]);
    assert_eq!(nothing.code, Some(2));
}

/// Schedules of whole tiles and of parts, drawn and in numbers.
#[test]
fn a_schedule_is_drawn() {
    let shape = ["--m", "192", "--n", "192", "--k", "256", "--sms", "2"];
    let run = falchion(&[&["schedule", "medium-bf16-kk"], &shape[..], &["--columns", "40"]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stdout, include_str!("schedule/medium.txt"));
    // Nine tiles of 128 k-tiles for eight multiprocessors: 144 k-tiles each, and 3 for a sum.
    let shape = ["--m", "768", "--n", "576", "--k", "8192", "--sms", "8"];
    let divided = falchion(&[&["schedule", "stream-bf16-kk"], &shape[..]].concat());
    assert_eq!(divided.code, Some(0), "{}", divided.stderr);
    assert_eq!(divided.stdout, include_str!("schedule/stream.txt"));
}

/// Every kernel has a schedule: its pieces cover each k-tile of each tile of D once.
#[test]
fn every_kernel_has_a_schedule() {
    for entry in kernel::catalogue().iter().filter(|entry| entry.name().ends_with("-bf16-kk")) {
        let run = falchion(&[
            "schedule",
            entry.name(),
            "--m",
            "600",
            "--n",
            "1040",
            "--k",
            "1000",
            "--sms",
            "12",
            "--list",
        ]);
        assert_eq!(run.code, Some(0), "{}: {}", entry.name(), run.stderr);
        let mut k_tiles = std::collections::BTreeMap::<&str, Vec<[u32; 2]>>::new();
        for line in run.stdout.lines().filter(|line| line.contains("  multiply ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (begin, end) = words[6].split_once("..").expect("a range");
            k_tiles.entry(words[5]).or_default().push([begin, end].map(|k| k.parse().expect("a number")));
        }
        let plan = entry.plan();
        let [m, n, k] = plan.mainloop.tile;
        let [cluster_m, cluster_n] = plan.mainloop.cluster;
        let [rows, columns] =
            if plan.swapped() { [n * cluster_n, m * cluster_m] } else { [m * cluster_m, n * cluster_n] };
        assert_eq!(
            k_tiles.len() as u32,
            600u32.div_ceil(rows) * 1040u32.div_ceil(columns),
            "{}",
            entry.name()
        );
        for (tile, mut pieces) in k_tiles {
            pieces.sort_unstable();
            let ends = pieces.iter().try_fold(0, |reached, [begin, end]| (*begin == reached).then_some(*end));
            assert_eq!(ends, Some(1000u32.div_ceil(k)), "{} tile {tile}: {pieces:?}", entry.name());
        }
    }
}

/// So have those of several products: as many tiles as all of them have, each with its own sum.
#[test]
fn schedules_of_several_products() {
    for (arguments, tiles, longest) in [
        // 3, 0, 1 and 2 tiles of 128 rows; 5 of 256 columns; 2 k-tiles.
        (&["ragged-bf16-kk", "--experts", "300,0,17,129", "--n", "1100", "--k", "100"][..], 30, 2),
        // 2, 0, 1 and 1 tiles of 256 rows; 9 of 128 columns.
        (&["ragged-fitted-bf16-kk", "--experts", "300,0,17,129", "--n", "1100", "--k", "100"], 36, 2),
        (&["batched-bf16-kk", "--batch", "3", "--m", "200", "--n", "300", "--k", "64"], 12, 1),
        // 3 x 2 tiles of one k-tile, and one of 8.
        (&["grouped-bf16-kk", "--group", "300x512x64,70x40x512"], 7, 8),
    ] {
        let run = falchion(&[&["schedule"], arguments, &["--sms", "8", "--list"]].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        let pieces: Vec<Vec<&str>> = run
            .stdout
            .lines()
            .filter(|line| line.contains("  multiply "))
            .map(|line| line.split_whitespace().collect())
            .collect();
        let mut places: Vec<&str> = pieces.iter().map(|words| words[5]).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!((pieces.len(), places.len()), (tiles, tiles), "{arguments:?}: {}", run.stdout);
        let ends = pieces.iter().filter_map(|words| words[6].split_once("..")?.1.parse::<u32>().ok());
        assert_eq!(ends.max(), Some(longest), "{arguments:?}");
        // Two tiles of 160 columns, one of 32 and one of 160, each nine times.
        let narrowed = "narrowed   to 32 to 160 columns, 0.50 of a tile on average";
        assert_eq!(run.stdout.contains(narrowed), arguments[0] == "ragged-fitted-bf16-kk", "{}", run.stdout);
    }
    let wrong = falchion(&["schedule", "small-bf16-kk", "--experts", "3", "--n", "8", "--k", "8"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("small-bf16-kk is Single, one that is Ragged"), "{}", wrong.stderr);
}

#[test]
fn schedules_of_nothing_say_why() {
    let file = folder("schedule").join("s.svg");
    let svg = file.display().to_string();
    let shape = ["--m", "512", "--n", "4096", "--k", "512"];
    let run =
        falchion(&[&["schedule", "dynamicduo-f16-kk"], &shape[..], &["--svg", &svg, "--rows", "3"]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains("more slots"), "{}", run.stdout);
    assert!(fs::read_to_string(&file).is_ok_and(|document| document.matches("worker ").count() >= 64));
    for (why, arguments, words) in [
        (
            "no such kernel",
            &["tiny-bf16-kk", "--m", "8", "--n", "8", "--k", "8"][..],
            &["`tiny-bf16-kk`"][..],
        ),
        ("no extents", &["small-bf16-kk", "--m", "8"], &["--n", "--k"]),
        ("an empty product", &["small-bf16-kk", "--m", "8", "--n", "0", "--k", "8"], &["--n", "0"]),
        (
            "no multiprocessor",
            &["small-bf16-kk", "--m", "8", "--n", "8", "--k", "8", "--sms", "0"],
            &["--sms", "0"],
        ),
        ("rows of 72 B", &["staged-bf16-kk", "--m", "8", "--n", "36", "--k", "8"], &["D", "72 B", "16 B"]),
        (
            "too many tiles",
            &["small-bf16-kk", "--m", "65536", "--n", "65536", "--k", "8"],
            &["--m 65536", "1048576 tiles", "262144"],
        ),
        (
            "a picture into no folder",
            &["small-bf16-kk", "--m", "8", "--n", "8", "--k", "8", "--svg", "/no such folder/a.svg"],
            &["cannot write /no such folder/a.svg"],
        ),
    ] {
        let run = falchion(&[&["schedule"], arguments].concat());
        assert_eq!(run.code, Some(2), "{why}: {}{}", run.stdout, run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{why}: no `{word}` in {}", run.stderr);
        }
        assert!(!run.stderr.contains("panicked"), "{why}: {}", run.stderr);
    }
}
