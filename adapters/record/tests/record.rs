//! A program is recorded on a stand-in for the driver, and what was recorded is checked.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use falchion::check::{Element, Expect, Launch, Options, Report, check};

/// A folder with the stand-in and the program.
fn built(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("record-{name}"));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a writable folder");
    let rustc = |source: &str, to: &str, more: &[&str]| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/driver").join(source);
        let mut compile = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        compile.arg("--edition=2024").args(more).arg("-o").arg(folder.join(to)).arg(source);
        assert!(compile.status().expect("rustc runs").success());
    };
    // Its calls of its own functions find them, as the driver's do.
    rustc("cuda.rs", "libcuda.so.1", &["--crate-type=cdylib", "-Clink-arg=-Wl,-Bsymbolic"]);
    rustc("program.rs", "program", &[]);
    folder
}

/// The library that is tested.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("a program");
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("libfalchion_record.so")).find(|path| path.exists());
    found.expect("the library was built with its tests")
}

/// The kernels' texts.
fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernels")
}

fn run(folder: &Path, how: &str, environment: &[(&str, &str)]) -> Output {
    run_with(folder, &kernels(), how, environment)
}

fn run_with(folder: &Path, kernels: &Path, how: &str, environment: &[(&str, &str)]) -> Output {
    let mut program = Command::new(folder.join("program"));
    program.args([how, kernels.to_str().expect("a path")]).env("LD_LIBRARY_PATH", folder).current_dir(folder);
    if !environment.is_empty() {
        program.env("LD_PRELOAD", library()).envs(environment.iter().copied());
    }
    let output = program.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn read(folder: &Path, name: &str) -> Launch {
    let path = folder.join(format!("out/{name}.launch.toml"));
    let text = std::fs::read_to_string(path).expect("it was recorded");
    let mut launch = Launch::read(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let fetch = |file: &str| std::fs::read(folder.join("out").join(file)).map_err(|error| error.to_string());
    launch.load(&fetch).unwrap_or_else(|error| panic!("{error}\n{text}"));
    launch
}

fn checked(launch: &Launch) -> Report {
    check(launch, &Options { schedules: 2, ..Options::default() }).expect("it is run")
}

/// All launches are recorded however the program finds the driver's functions, and the program writes what it writes without it.
#[test]
fn a_recording_is_a_launch() {
    for how in ["found", "asked"] {
        let folder = built(how);
        let alone = run(&folder, how, &[]);
        let all =
            [("FALCHION_RECORD", "out"), ("FALCHION_RECORD_AFTER", "1"), ("FALCHION_RECORD_POINTERS", "1")];
        let recorded = run(&folder, how, &all);
        let said = String::from_utf8_lossy(&recorded.stderr);
        assert_eq!(alone.stdout, recorded.stdout, "{said}");
        assert!(said.contains("captured into a graph"), "{said}");
        for name in ["add-0", "scale-0", "tile-0", "indirect-0"] {
            let launch = read(&folder, name);
            let report = checked(&launch);
            assert!(report.findings.is_empty(), "{how}: {name}: {report}");
            let wanted = launch.buffers.iter().filter(|buffer| matches!(buffer.expect, Expect::Values(_)));
            assert_eq!(wanted.count(), 1, "{name}");
        }
        assert!(!folder.join("out/add-1.launch.toml").exists(), "one launch of each kernel");
        let scale = read(&folder, "scale-0");
        let kernel = &scale.kernels[0];
        assert_eq!((kernel.grid, kernel.cluster, kernel.shared), ([2, 1, 1], Some([2, 1, 1]), 1024));
        assert!(!kernel.dependent);
    }
}

/// What the launch has written is wanted: a kernel that computes something else is found.
#[test]
fn another_result_is_found() {
    let folder = built("wrong");
    run(&folder, "found", &[("FALCHION_RECORD", "out"), ("FALCHION_RECORD_AFTER", "1")]);
    for (name, right, wrong) in [
        ("add-0", "fma.rn.f32 %f4, %f3, %f1, %f2", "fma.rn.f32 %f4, %f2, %f1, %f3"),
        ("scale-0", "mul.f32 %f3, %f2, %f1", "add.f32 %f3, %f2, %f1"),
        ("tile-0", "mov.u32 %r4, 4", "mov.u32 %r4, 8"),
    ] {
        let mut launch = read(&folder, name);
        assert!(launch.kernels[0].text.contains(right));
        launch.kernels[0].text = launch.kernels[0].text.replace(right, wrong);
        let report = checked(&launch);
        assert!(
            report.findings.iter().any(|finding| finding.rule.name == "wrong-result"),
            "{name}: {report}"
        );
    }
}

/// Kernels are chosen by their names and by the number of their launches, and memory is cut.
#[test]
fn what_is_recorded_is_chosen() {
    let folder = built("chosen");
    let nothing = run(&folder, "asked", &[("FALCHION_RECORD_KERNEL", "add")]);
    assert!(nothing.stderr.is_empty() && !folder.join("out").exists());
    let other = run(&folder, "asked", &[("FALCHION_RECORD", "out"), ("FALCHION_RECORD_KERNEL", "other")]);
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(
        said.contains(
            "none of 4 kernels has `other` in its name and enough launches: add, indirect, scale, tile"
        ),
        "{said}"
    );
    let few = [
        ("FALCHION_RECORD", "out"),
        ("FALCHION_RECORD_KERNEL", "dd"),
        ("FALCHION_RECORD_LAUNCHES", "5"),
        ("FALCHION_RECORD_SKIP", "1"),
        ("FALCHION_RECORD_BYTES", "1K"),
    ];
    let said = run(&folder, "asked", &few);
    let said = String::from_utf8_lossy(&said.stderr);
    let mut names: Vec<_> = std::fs::read_dir(folder.join("out")).expect("a folder").flatten().collect();
    names.retain(|entry| entry.path().extension().is_some_and(|extension| extension == "toml"));
    // One that was captured went by as the first.
    assert_eq!(names.len(), 2, "{said}");
    assert!(said.contains("m0 has 512 B of an allocation of 1024 B"), "{said}");
    let report = checked(&read(&folder, "add-0"));
    assert_eq!(report.findings[0].rule.name, "global-out-of-bounds", "{report}");
}

/// A binary for a card, as far as its size is concerned.
fn binary(mark: u8) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..4].copy_from_slice(b"\x7fELF");
    bytes[8] = mark;
    bytes
}

/// A fat binary with a text that is stored as one run of literals.
fn fat(text: &[u8]) -> Vec<u8> {
    let mut block = vec![0xf0];
    let mut left = text.len() - 15;
    while left >= 255 {
        block.push(255);
        left -= 255;
    }
    block.push(left as u8);
    block.extend(text);
    let stored = block.len();
    block.resize(stored.next_multiple_of(8), 0);
    let word = |bytes: &mut Vec<u8>, at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
    let mut all = vec![0; 16 + 64];
    word(&mut all, 0, &0xba55_ed50_u32.to_le_bytes());
    word(&mut all, 4, &[1, 0, 16, 0]);
    word(&mut all, 8, &(64 + block.len() as u64).to_le_bytes());
    word(&mut all, 16, &[1, 0, 1, 1, 64, 0, 0, 0]);
    word(&mut all, 24, &(block.len() as u64).to_le_bytes());
    word(&mut all, 32, &(stored as u32).to_le_bytes());
    word(&mut all, 44, &90u32.to_le_bytes());
    word(&mut all, 56, &0x2011u64.to_le_bytes());
    word(&mut all, 72, &(text.len() as u64).to_le_bytes());
    all.extend(block);
    all
}

/// PTX is found in a fat binary, in a folder, and in Triton's cache beside the binary that was loaded; where there is none, that is said.
#[test]
fn ptx_is_found_where_it_is() {
    let folder = built("images");
    let (images, more, cache) = (folder.join("images"), folder.join("more"), folder.join("cache"));
    let of = |name: &str| std::fs::read(kernels().join(format!("{name}.ptx"))).expect("a text");
    let write = |path: PathBuf, bytes: &[u8]| {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a writable folder");
        std::fs::write(path, bytes).expect("a writable folder");
    };
    write(images.join("scale.image"), &fat(&of("scale")));
    write(images.join("indirect.ptx"), &of("indirect"));
    write(images.join("add.image"), &binary(1));
    write(images.join("tile.image"), &binary(2));
    write(more.join("add.ptx"), &of("add"));
    write(cache.join("old/tile.ptx"), &of("tile"));
    write(cache.join("old/tile.cubin"), &binary(2));
    let other = String::from_utf8(of("tile")).expect("a text").replace("mov.u32 %r4, 4", "mov.u32 %r4, 8");
    write(cache.join("new/tile.ptx"), other.as_bytes());
    write(cache.join("new/tile.cubin"), &binary(3));
    let path = |path: &Path| path.to_str().expect("a path").to_owned();
    let (more, cache) = (path(&more), path(&cache));
    let all = [
        ("FALCHION_RECORD", "out"),
        ("FALCHION_RECORD_AFTER", "1"),
        ("FALCHION_RECORD_PTX", &more),
        ("FALCHION_RECORD_WANT", "f32,1e-6,0"),
        ("TRITON_CACHE_DIR", &cache),
    ];
    let said = run_with(&folder, &images, "asked", &all);
    for name in ["add-0", "scale-0", "tile-0"] {
        let report = checked(&read(&folder, name));
        assert!(report.findings.is_empty(), "{name}: {report}\n{}", String::from_utf8_lossy(&said.stderr));
    }
    let elements: Vec<_> = read(&folder, "add-0").buffers.iter().map(|buffer| buffer.element).collect();
    assert_eq!(elements, [Element::F32, Element::F32]);
    let none = [("FALCHION_RECORD", "none"), ("TRITON_CACHE_DIR", "nowhere")];
    let said = run_with(&folder, &images, "asked", &none);
    let said = String::from_utf8_lossy(&said.stderr);
    assert!(said.contains("`add` is not recorded: neither the driver nor a PTX text says"), "{said}");
    assert!(said.contains("no PTX of this kernel was found, only a binary for a card"), "{said}");
    let text = std::fs::read_to_string(folder.join("none/tile-0.launch.toml")).expect("it is recorded");
    assert!(text.contains("tensor_map = {") && text.starts_with("# no PTX of this kernel"), "{text}");
}
