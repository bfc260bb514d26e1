//! The library as C sees it: the example is compiled and run, what is refused is named, and the header says what is there.

#[cfg(target_os = "linux")]
#[path = "../../../kernel/tests/support/stand_in.rs"]
mod stand_in;
mod structures;

use core::ffi::{CStr, c_char, c_void};
use core::ptr::{null, null_mut};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use falchion_core::{APPEND_PAGES, ATTENTION, GEMM, GRADIENT, INPUT, MERGE_ATTENTION, Structure};
use structures::{
    Arguments, Description, Gemm, INVALID, NO_KERNEL, OK, falchion_gemm_create, falchion_gemm_destroy,
    falchion_gemm_emulate, falchion_gemm_launch, falchion_gemm_load, falchion_gemm_microseconds,
    falchion_gemm_name, falchion_gemm_ptx, falchion_gemm_tune, falchion_gemm_workspace, falchion_last_error,
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
        .args(["-std=c99", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-o"])
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

/// Where the C compiler puts each field of the header's structures, the tables do.
#[test]
fn structures_are_laid_out_as_in_c() {
    fn lines<T>(of: &Structure<T>) -> (String, Vec<String>) {
        let (fields, size) = of.laid_out();
        let name = of.name;
        let (mut source, mut wanted) = (String::new(), Vec::new());
        for (offset, field) in fields {
            let field = field.c;
            source += &format!("printf(\"{name}.{field} %zu\\n\", offsetof({name}, {field}));\n");
            wanted.push(format!("{name}.{field} {offset}"));
        }
        wanted.push(format!("{name} {size}"));
        (source + &format!("printf(\"{name} %zu\\n\", sizeof({name}));\n"), wanted)
    }
    let all = [
        lines(GEMM.described),
        lines(GEMM.given),
        lines(INPUT),
        lines(ATTENTION.described),
        lines(ATTENTION.given),
        lines(GRADIENT.given),
        lines(MERGE_ATTENTION.given),
        lines(APPEND_PAGES.given),
    ];
    let (sources, wanted): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let body = sources.concat();
    let source =
        format!("#include <falchion.h>\n#include <stdio.h>\nint main(void) {{\n{body}return 0;\n}}\n");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (path, program) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&path, source).expect("a folder of tests");
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let built = Command::new("cc").arg(&path).arg("-I").arg(include).arg("-o").arg(&program).status();
    assert!(built.expect("the C compiler that links Rust's programs").success());
    let output = Command::new(&program).output().expect("it was built");
    let found = String::from_utf8_lossy(&output.stdout);
    assert_eq!(found.lines().collect::<Vec<_>>(), wanted.concat());
}

/// The structures as another language lays them out.
#[test]
fn the_example_in_python_is_verified() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = libraries().join("libfalchion_c.so");
    let Ok(output) = Command::new("python3").arg(own.join("examples/multiply.py")).arg(library).output()
    else {
        eprintln!("skipped: this machine has no python3");
        return;
    };
    let words = String::from_utf8_lossy(&output.stdout);
    println!("{words}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && words.contains("load=copy") && words.ends_with("verified\n"));
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
    let sources = concat!(
        include_str!("../src/lib.rs"),
        include_str!("../src/prepare.rs"),
        include_str!("../src/attention.rs"),
        include_str!("../src/backward.rs"),
        include_str!("../src/rows.rs")
    );
    let exported = names(sources, "extern \"C\" fn");
    let header = include_str!("../include/falchion.h");
    let declared: BTreeSet<String> = ["const char *", "falchion_status ", "void ", "double "]
        .iter()
        .flat_map(|start| {
            names(
                &header.lines().filter(|line| line.starts_with(start)).collect::<Vec<_>>().join("\n"),
                start,
            )
        })
        .collect();
    assert_eq!(exported, declared);
    assert_eq!(exported.len(), 39, "{exported:?}");
}

const NOTHING: Description = Description {
    size: size_of::<Description>(),
    types: null(),
    layout: null(),
    m: 64,
    n: 64,
    k: 64,
    batch: 0,
    spec: null(),
    lds: [0; 4],
    strides: [0; 4],
    alignment: 0,
    card: 0,
    args_size: size_of::<Arguments>(),
    epilogue: null(),
    flags: 0,
    form: 0,
    room: 0,
    reserved: 0,
    scale_lds: [0; 3],
};

const NO_ARGUMENTS: Arguments = Arguments {
    a: null(),
    b: null(),
    c: null(),
    d: null_mut(),
    alpha: 1.0,
    beta: 0.0,
    workspace: null_mut(),
    workspace_bytes: 0,
    scale_a: null(),
    scale_b: null(),
    group_scales: null(),
    group_zeros: null(),
    metadata: null(),
    groups: null(),
    inputs: null(),
    input_count: 0,
    input_size: 0,
    alpha_f64: 0.0,
    beta_f64: 0.0,
};

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
        ("no form", Description { form: 5, ..bf16 }, INVALID, "form is 5"),
        ("no flag", Description { flags: 2, ..bf16 }, INVALID, "flags is 0x2"),
        ("no formula", Description { epilogue: c(c"gelu(acc"), ..bf16 }, INVALID, "epilogue: `)` was needed"),
        (
            "arguments beyond the first fields",
            Description { epilogue: c(c"relu(store(pre[m,n], acc))"), args_size: 0, ..bf16 },
            INVALID,
            "args_size is 0, sizeof(falchion_gemm_args), 144, was needed, which covers inputs",
        ),
        (
            "weights without a place for scales",
            Description { types: c(c"bf16-e2m1g32"), args_size: 0, ..NOTHING },
            INVALID,
            "which covers group_scales",
        ),
        (
            "weights in a type that does not hold their scales",
            Description { types: c(c"f16-e2m1g32"), ..NOTHING },
            NO_KERNEL,
            "use operands of bf16",
        ),
        (
            "sums in a fixed order",
            Description { epilogue: c(c"ordered_sum(sums[n], acc)"), ..bf16 },
            INVALID,
            "use reduce_sum",
        ),
        (
            "scales that cannot be loaded",
            Description { types: c(c"e4m3-1x128-128x128"), scale_lds: [66, 0, 0], ..NOTHING },
            NO_KERNEL,
            "scales",
        ),
        (
            "few bits that are nowhere",
            Description { types: c(c"bf16-s4g128"), lds: [0, 32, 0, 0], ..NOTHING },
            INVALID,
            "ldb is 32, 64 or more",
        ),
        ("a layout", Description { layout: c(c"rows"), ..bf16 }, INVALID, "layout is \"rows\", one of kk"),
        ("a spec", Description { spec: c(c"tail=1"), ..bf16 }, INVALID, "no key `tail`"),
        ("an illegal spec", Description { spec: c(c"tile=192x163x64"), ..bf16 }, INVALID, "163"),
        (
            "directions",
            Description { types: c(c"e4m3"), layout: c(c"mn"), ..bf16 },
            NO_KERNEL,
            "gemm single 64x64x64 e4m3 mn epilogue=linear: A is MN-major",
        ),
        ("no text", Description { layout: c(c"\xff"), ..bf16 }, INVALID, "UTF-8"),
        ("no size", Description { size: 0, ..bf16 }, INVALID, "size is 0, sizeof(falchion_gemm_desc)"),
        ("an older structure", Description { size: 48, ..bf16 }, INVALID, "size is 48"),
        ("rows are short", Description { lds: [8, 0, 0, 0], ..bf16 }, INVALID, "lda is 8, 64 or more"),
        ("far apart", Description { batch: 3, strides: [1 << 47, 0, 0, 0], ..bf16 }, INVALID, "2^48"),
        ("no power of two", Description { alignment: 24, ..bf16 }, INVALID, "alignment is 24"),
        ("other types", Description { spec: c(c"dtype=f16"), ..bf16 }, INVALID, "dtype is `f16`, `bf16` was"),
        (
            "another layout",
            Description { spec: c(c"layout=kn"), ..bf16 },
            INVALID,
            "layout is `kn`, `kk` was",
        ),
        (
            "no batch",
            Description { spec: c(c"form=batched"), ..bf16 },
            INVALID,
            "form is `batched`, `single` was",
        ),
        (
            "an epilogue with arguments",
            Description { spec: c(c"epilogue=bias-gelu"), ..bf16 },
            INVALID,
            "`epilogue=linear`",
        ),
        (
            "a spec that cannot load such rows",
            Description { spec: c(c"tile=64x64x64"), lds: [69, 0, 0, 0], ..bf16 },
            INVALID,
            "spec: A's leading dimension",
        ),
        (
            "a spec that cannot load from such addresses",
            Description { spec: c(c"tile=64x64x64"), alignment: 2, ..bf16 },
            INVALID,
            "spec: A",
        ),
        (
            "D of a batch overlaps",
            Description { batch: 2, strides: [0, 0, 0, 8], ..bf16 },
            NO_KERNEL,
            "overlap",
        ),
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

/// A later structure is taken if it says nothing that this library does not know.
#[test]
fn longer_descriptions_are_taken_where_they_end_in_zeros() {
    #[repr(C)]
    struct Later(Description, u64);
    let size = size_of::<Later>();
    for (more, status) in [(0, OK), (7, INVALID)] {
        let later = Later(Description { size, types: c(c"bf16"), ..NOTHING }, more);
        let mut gemm = null_mut();
        // SAFETY: the description has as many bytes as it says.
        unsafe {
            assert_eq!(falchion_gemm_create((&raw const later).cast(), &mut gemm), status, "{}", last());
            falchion_gemm_destroy(gemm);
        }
    }
}

/// The kernel serves the described leading dimensions and addresses, and its name is the spec of the same kernel.
#[test]
fn kernels_serve_what_is_described() {
    let bf16 = Description { types: c(c"bf16"), m: 64, n: 72, k: 128, ..NOTHING };
    for (why, description, copied) in [
        ("packed", bf16, false),
        ("padded rows", Description { lds: [136, 128, 0, 80], ..bf16 }, false),
        ("rows at odd elements", Description { lds: [133, 0, 0, 0], ..bf16 }, true),
        ("rows of B at odd elements", Description { layout: c(c"kn"), lds: [0, 77, 0, 0], ..bf16 }, true),
        ("addresses of elements", Description { alignment: 2, ..bf16 }, true),
        ("addresses of 16 B", Description { alignment: 16, ..bf16 }, false),
        (
            "matrices of a batch at odd distances",
            Description { batch: 2, strides: [8193, 0, 0, 0], ..bf16 },
            true,
        ),
        ("a batch", Description { batch: 3, ..bf16 }, false),
        ("another D", Description { types: c(c"e4m3-e5m2-f32"), ..bf16 }, false),
        ("K is odd", Description { types: c(c"s8"), k: 37, ..bf16 }, true),
    ] {
        let gemm = create(&description);
        // SAFETY: the kernel lives.
        let name = unsafe { CStr::from_ptr(falchion_gemm_name(gemm)) };
        assert_eq!(name.to_string_lossy().contains("load=copy"), copied, "{why}: {name:?}");
        let again = create(&Description { spec: name.as_ptr(), ..description });
        // SAFETY: both kernels live.
        unsafe {
            assert_eq!(CStr::from_ptr(falchion_gemm_name(again)), name, "{why}");
            assert_eq!(
                CStr::from_ptr(falchion_gemm_ptx(again)),
                CStr::from_ptr(falchion_gemm_ptx(gemm)),
                "{why}"
            );
            falchion_gemm_destroy(again);
            falchion_gemm_destroy(gemm);
        }
    }
}

/// With a stand-in for the driver: what a launch refuses, `emulate` refuses with the same words, and what a launch
/// takes, `emulate` runs.
#[cfg(target_os = "linux")]
#[test]
fn emulate_checks_what_a_launch_checks() {
    stand_in::with_stand_in("emulate_checks_what_a_launch_checks", &[], &[], || {
        let bf16 = Description { types: c(c"bf16"), m: 64, n: 64, k: 64, ..NOTHING };
        // 256 bytes more than a matrix needs, at a multiple of 256.
        let memory = vec![[0u8; 256]; 4 * 34];
        let base = memory.as_ptr().cast::<u8>();
        let start = base.wrapping_add(base.align_offset(256));
        let at =
            |matrix: usize, offset: usize| start.wrapping_add(matrix * 33 * 256 + offset).cast::<c_void>();
        let good = Arguments { a: at(0, 0), b: at(1, 0), d: at(2, 0).cast_mut(), ..NO_ARGUMENTS };
        for (why, alignment, arguments, legal) in [
            ("aligned", 0, good, true),
            ("A one element off", 0, Arguments { a: at(0, 2), ..good }, false),
            ("B one element off", 0, Arguments { b: at(1, 2), ..good }, false),
            ("A one element off, as described", 2, Arguments { a: at(0, 2), ..good }, true),
            ("half an element off", 2, Arguments { a: at(0, 1), ..good }, false),
            ("A is nowhere", 0, Arguments { a: null(), ..good }, false),
            ("D is nowhere", 2, Arguments { d: null_mut(), ..good }, false),
            ("C is nowhere", 0, Arguments { beta: 1.0, ..good }, false),
            ("C between elements", 0, Arguments { beta: 1.0, c: at(2, 1), ..good }, false),
            ("A is not read", 0, Arguments { alpha: 0.0, a: null(), b: at(1, 2), ..good }, true),
        ] {
            let gemm = create(&Description { alignment, spec: null(), ..bf16 });
            let workspace = vec![0u128; 1 << 16];
            let arguments = Arguments {
                workspace: workspace.as_ptr().cast_mut().cast(),
                workspace_bytes: 16 << 16,
                ..arguments
            };
            // SAFETY: the matrices are there; the stand-in runs nothing.
            let said = unsafe {
                assert_eq!(falchion_gemm_load(gemm, 0), OK, "{}", last());
                let launched = (falchion_gemm_launch(gemm, null_mut(), &arguments), last());
                let emulated = (falchion_gemm_emulate(gemm, &arguments), last());
                falchion_gemm_destroy(gemm);
                [launched, emulated]
            };
            let [(launched, words), (emulated, same)] = said;
            assert_eq!((launched, launched == OK), (emulated, legal), "{why}: {words} / {same}");
            assert!(legal || words == same, "{why}: {words} / {same}");
        }
    });
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
        let (ld, ld_d) = (k + more, n + more);
        let description = Description {
            types: c(c"s8"),
            m: m as u32,
            n: n as u32,
            k: k as u32,
            batch,
            spec,
            lds: [ld as u64, ld as u64, ld_d as u64, ld_d as u64],
            alignment: 16,
            ..NOTHING
        };
        let gemm = create(&description);
        // SAFETY: the kernel lives.
        let (name, ptx) =
            unsafe { (CStr::from_ptr(falchion_gemm_name(gemm)), CStr::from_ptr(falchion_gemm_ptx(gemm))) };
        assert!(
            name.to_string_lossy().contains("dtype=s8") && ptx.to_string_lossy().contains(".target sm_90a")
        );
        let batch = batch as usize;
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
            beta: beta as f32,
            ..NO_ARGUMENTS
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

/// With a stand-in for the driver: what is tuned is kept, and found when a kernel is made for the card.
#[test]
#[cfg(target_os = "linux")]
fn what_was_measured_is_found() {
    stand_in::with_stand_in("what_was_measured_is_found", &[], &[], || {
        let description = Description { types: c(c"bf16"), m: 512, n: 384, k: 256, card: 1, ..NOTHING };
        let mut tuned: *mut Gemm = null_mut();
        // SAFETY: the description is valid.
        assert_eq!(unsafe { falchion_gemm_tune(&description, 3, &mut tuned) }, OK, "{}", last());
        let made = create(&description);
        // SAFETY: both kernels live.
        unsafe {
            assert_eq!(CStr::from_ptr(falchion_gemm_name(made)), CStr::from_ptr(falchion_gemm_name(tuned)));
            assert_eq!(falchion_gemm_microseconds(made), falchion_gemm_microseconds(tuned));
            falchion_gemm_destroy(tuned);
            falchion_gemm_destroy(made);
        }
    });
    let description = Description { types: c(c"bf16"), ..NOTHING };
    let mut gemm: *mut Gemm = null_mut();
    // SAFETY: the description is valid.
    assert_eq!(unsafe { falchion_gemm_tune(&description, 3, &mut gemm) }, INVALID);
    assert!(last().contains("card is 0, 1 or more was needed"), "{}", last());
}
