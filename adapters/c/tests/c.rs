//! The library as C sees it: the example is compiled and run, what is refused is named, and the header says what is there.

use core::ffi::{CStr, c_char};
use core::ptr::{null, null_mut};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use falchion_c::{
    Arguments, Description, Gemm, INVALID, NO_KERNEL, OK, falchion_gemm_create, falchion_gemm_destroy,
    falchion_gemm_emulate, falchion_gemm_launch, falchion_gemm_load, falchion_gemm_name, falchion_gemm_ptx,
    falchion_gemm_workspace, falchion_last_error,
};

/// Where cargo puts the shared library: beside the tests.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.parent().expect("a folder").to_owned()
}

#[test]
fn the_example_is_verified() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (libraries, program) = (libraries(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("block"));
    let built = Command::new("cc")
        .arg(own.join("examples/block.c"))
        .args(["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(own.join("include"))
        .arg("-L")
        .arg(&libraries)
        .args(["-lfalchion_c", "-lm", "-ldl"])
        .status()
        .expect("the C compiler that links Rust's programs");
    assert!(built.success());
    let output = Command::new(&program).env("LD_LIBRARY_PATH", &libraries).output().expect("it was built");
    let words = String::from_utf8_lossy(&output.stdout);
    println!("{words}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && words.ends_with("verified\n"));
}

#[test]
fn the_header_declares_what_is_exported() {
    let names = |text: &str, before: &str| -> BTreeSet<String> {
        let words = text.lines().filter(|line| line.contains(before) && line.contains('('));
        let name = |line: &str| {
            let start = line.find("falchion_").map(|_| line.split('(').next().unwrap_or(""))?;
            Some(start.rsplit([' ', '*']).next()?.to_owned())
        };
        words.filter_map(name).filter(|name| name.starts_with("falchion_")).collect()
    };
    let exported = names(include_str!("../src/lib.rs"), "extern \"C\" fn");
    let header = include_str!("../include/falchion.h");
    let declared: BTreeSet<String> = ["const char *", "falchion_status ", "void "]
        .iter()
        .flat_map(|start| {
            names(
                &header.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>().join("\n"),
                start,
            )
        })
        .collect();
    assert_eq!(exported, declared);
    assert_eq!(exported.len(), 10, "{exported:?}");
}

const NOTHING: Description =
    Description { types: null(), layout: null(), m: 64, n: 64, k: 64, batch: 0, spec: null() };

fn last() -> String {
    // SAFETY: the text lives until the thread's next failure.
    unsafe { CStr::from_ptr(falchion_last_error()) }.to_string_lossy().into_owned()
}

/// A kernel, which has to be one.
fn create(description: &Description) -> *mut Gemm {
    let mut gemm = null_mut();
    // SAFETY: both are there.
    assert_eq!(unsafe { falchion_gemm_create(description, &mut gemm) }, OK, "{}", last());
    gemm
}

const fn c(text: &'static CStr) -> *const c_char {
    text.as_ptr()
}

#[test]
fn descriptions_that_are_none_are_refused() {
    let bf16 = Description { types: c(c"bf16"), ..NOTHING };
    for (why, description, status, words) in [
        ("no types", NOTHING, INVALID, "types is NULL"),
        (
            "no format",
            Description { types: c(c"bf15"), ..NOTHING },
            INVALID,
            "types is \"bf15\", one to three of f32, bf16",
        ),
        ("scales", Description { types: c(c"e4m3-1x128-128x128"), ..NOTHING }, INVALID, "types is"),
        ("a layout", Description { layout: c(c"rows"), ..bf16 }, INVALID, "layout is \"rows\", one of kk"),
        ("a spec", Description { spec: c(c"tail=1"), ..bf16 }, INVALID, "no key `tail`"),
        ("an illegal spec", Description { spec: c(c"tile=192x163x64"), ..bf16 }, INVALID, "163"),
        (
            "directions",
            Description { types: c(c"e4m3"), layout: c(c"mn"), ..bf16 },
            NO_KERNEL,
            "64 x 64 x 64 e4m3",
        ),
        ("no text", Description { layout: c(c"\xff"), ..bf16 }, INVALID, "UTF-8"),
    ] {
        let mut gemm = null_mut();
        // SAFETY: both are there.
        assert_eq!(unsafe { falchion_gemm_create(&description, &mut gemm) }, status, "{why}");
        assert!(gemm.is_null() && last().contains(words), "{why}: {}", last());
    }
    // SAFETY: null is looked for.
    unsafe {
        assert_eq!(falchion_gemm_create(&bf16, null_mut()), INVALID);
        assert!(last().contains("gemm is NULL"));
        assert_eq!(falchion_gemm_create(null(), &mut null_mut()), INVALID);
        assert!(last().contains("desc is NULL"));
        assert!(falchion_gemm_name(null()).is_null() && falchion_gemm_ptx(null()).is_null());
        falchion_gemm_destroy(null_mut());
    }
}

/// `(beta, batch, padding)`: integers, which are exact.
#[test]
fn kernels_are_emulated_on_the_hosts_memory() {
    for (beta, batch, more, spec) in [
        (0, 1, 0, null()),
        (3, 1, 16, null()),
        (0, 3, 0, null()),
        (2, 2, 32, c(c"tile=64x64x128 scheduler=stream-k divide=split2 min-k-tiles=1")),
    ] {
        let (m, n, k) = (40usize, 48usize, 272usize);
        let description =
            Description { types: c(c"s8"), m: m as u32, n: n as u32, k: k as u32, batch, spec, ..NOTHING };
        let gemm = create(&description);
        // SAFETY: the kernel lives.
        let (name, ptx) =
            unsafe { (CStr::from_ptr(falchion_gemm_name(gemm)), CStr::from_ptr(falchion_gemm_ptx(gemm))) };
        assert!(
            name.to_string_lossy().contains("dtype=s8") && ptx.to_string_lossy().contains(".target sm_90a")
        );
        let (ld, ld_d, batch) = (k + more, n + more, batch as usize);
        let small =
            |count: usize, by: usize| -> Vec<i8> { (0..count).map(|i| (i * by % 15) as i8 - 7).collect() };
        let (a, b) = (small(batch * m * ld, 7), small(batch * n * ld, 11));
        let before: Vec<i32> = (0..batch * m * ld_d).map(|i| i as i32 % 100).collect();
        let mut d = before.clone();
        let arguments = Arguments {
            a: a.as_ptr().cast(),
            b: b.as_ptr().cast(),
            c: d.as_ptr().cast(),
            d: d.as_mut_ptr().cast(),
            pitches: [ld as u64, ld as u64, ld_d as u64, ld_d as u64],
            strides: [0; 4],
            alpha: 1.0,
            beta: beta as f32,
            workspace: null_mut(),
            workspace_bytes: 0,
        };
        // SAFETY: the matrices are as large as was said.
        assert_eq!(unsafe { falchion_gemm_emulate(gemm, &arguments) }, OK, "{}", last());
        for (at, (found, before)) in d.iter().zip(&before).enumerate() {
            let (of, i, j) = (at / (m * ld_d), at / ld_d % m, at % ld_d);
            let product =
                |l: usize| i32::from(a[(of * m + i) * ld + l]) * i32::from(b[(of * n + j) * ld + l]);
            let want = if j < n { (0..k).map(product).sum::<i32>() + beta * before } else { *before };
            assert_eq!(*found, want, "product {of}, row {i}, column {j}");
        }
        for (why, arguments, words) in [
            ("A is nowhere", Arguments { a: null(), ..arguments }, "a is NULL"),
            ("rows are short", Arguments { pitches: [8, 0, 0, 0], ..arguments }, "lda is 8, 272 or more"),
            (
                "rows are odd",
                Arguments {
                    pitches: [k as u64 + 1, 0, 0, 0],
                    a: [0i8; 3 * 41 * 273].as_ptr().cast(),
                    ..arguments
                },
                "16",
            ),
            ("far apart", Arguments { strides: [1 << 47, 0, 0, 0], ..arguments }, "2^48"),
        ] {
            if why == "far apart" && batch < 3 {
                continue;
            }
            // SAFETY: what is refused is not read; what may be is there.
            assert_eq!(unsafe { falchion_gemm_emulate(gemm, &arguments) }, INVALID, "{why}");
            assert!(last().contains(words), "{why}: {}", last());
        }
        // SAFETY: the kernel lives; nothing is launched.
        unsafe {
            assert_eq!(falchion_gemm_launch(gemm, null_mut(), &arguments), INVALID);
            assert!(last().contains("falchion_gemm_load first"));
            assert_eq!(falchion_gemm_workspace(gemm, &mut 0), INVALID);
            assert_eq!(falchion_gemm_load(gemm, -1), INVALID);
            assert!(last().contains("device is -1"));
            assert_eq!(falchion_gemm_emulate(gemm, null()), INVALID);
            assert!(last().contains("args is NULL"));
            falchion_gemm_destroy(gemm);
        }
    }
}
