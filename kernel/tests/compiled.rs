//! Kernels that an earlier process has assembled, on stand-ins for CUDA's driver and for the assembler: what
//! is loaded, assembled or compiled, and what is reported if the folder or the assembler cannot be used.
#![cfg(target_os = "linux")]

#[path = "support/stand_in.rs"]
mod stand_in;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use kernel::build::{AssemblerError, PTXAS};
use kernel::disk::{Cache, Kind};
use kernel::driver::{Context, Loaded, Origin};
use kernel::{EngineError, Program};
use ptx::{Builder, Entry, Function, Target};

use stand_in::{UNSET, noted, with_stand_in};

/// A stand-in assembler with a version. Its output is an ELF header, the stand-in's mark, and the text's
/// digest. It logs its calls in the log of the driver's stand-in.
const ASSEMBLER: &str = r#"
if test "$*" = --version; then
    echo asked >>"$STAND_IN_LOG"
    echo "Cuda compilation tools, VERSION"
    exit 0
fi
test "$1 $2 $5 $#" = "-arch=sm_90a -o -v 5" || exit 3
echo assembled >>"$STAND_IN_LOG"
echo "ptxas info : VERSION, Used 90 registers"
if grep -q illegal_probe "$4"; then
    echo "line 7: no such instruction" >&2
    exit 255
fi
{
    printf '\177ELF\002\001'
    head -c 58 /dev/zero
    printf stand-in
    sha256sum <"$4" | head -c 16
} >"$3"
"#;

/// A script in place of the assembler.
fn script(name: &str, text: &str) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("assembler-{name}"));
    // If the test runs again, the script is already running.
    if !again() {
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
    }
    path.display().to_string()
}

/// Whether this is a process in which a test runs again.
fn again() -> bool {
    std::env::var_os("STAND_IN_LOG").is_some()
}

/// Runs a test's body with the stand-in and with an assembler.
fn with_assembler(test: &str, environment: &[(&str, &str)], body: fn()) {
    let assembler = script(test, ASSEMBLER);
    with_stand_in(test, &[], &[environment, &[(PTXAS, &assembler)]].concat(), body);
}

fn program(name: &str) -> Program {
    let (name, cluster) = (name.to_owned(), [1; 3]);
    let entry = Entry { name, target: Target::Sm90a, threads: 32, shared_bytes: 0, cluster };
    Program::new(Function::build(entry, |_: &Builder| {})).expect("legal")
}

fn context() -> Arc<Context> {
    Context::primary(0).expect("the stand-in")
}

/// The binaries that the stand-in loaded, by the digests of their texts.
fn binaries() -> Vec<String> {
    let log = fs::read_to_string(std::env::var("STAND_IN_LOG").expect("set")).unwrap_or_default();
    log.lines().filter_map(|line| line.strip_prefix("binary ").map(str::to_owned)).collect()
}

#[test]
fn what_was_assembled_once_is_loaded() {
    with_assembler("what_was_assembled_once_is_loaded", &[], || {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path().join("falchion"));
        let context = context();
        let load = |name: &str| {
            let loaded = Loaded::load_from(&context, (), program(name), Some(&cache)).expect("assembles");
            let kernel = loaded.program();
            assert_eq!(kernel.warnings(), [], "{name}");
            assert_eq!(kernel.compile_log(), "ptxas info : VERSION, Used 90 registers", "{name}");
            kernel.origin()
        };
        for (name, want) in [
            ("first", Origin::Assembled),
            ("first", Origin::Disk),
            ("second", Origin::Assembled),
            ("first", Origin::Disk),
            ("second", Origin::Disk),
        ] {
            assert_eq!(load(name), want, "{name}");
        }
        assert_eq!((noted("asked"), noted("assembled"), noted("compiled")), (1, 2, 0));
        let [first, again, second, once_more, second_again] = &binaries()[..] else { panic!("five") };
        assert!(first != second, "they are of different texts");
        assert!([again, once_more].iter().all(|digest| *digest == first) && second_again == second);
        // Without a folder, nothing is kept or read.
        let loaded = Loaded::load_from(&context, (), program("first"), None).expect("assembles");
        let kernel = loaded.program();
        assert_eq!((kernel.origin(), noted("assembled")), (Origin::Assembled, 3));
        let entries = cache.entries().expect("readable");
        assert_eq!(entries.len(), 2);
        let key = entries[0].key.as_ref().expect("whole");
        assert_eq!((key.card(), key.version()), ("Stand-in", env!("CARGO_PKG_VERSION")));
        assert!(key.driver().ends_with("CUDA 13.0"), "{}", key.driver());
    });
}

/// Without an assembler the driver compiles, and nothing is kept. A binary that something else has put there
/// is still loaded.
#[test]
fn what_the_driver_compiles_is_not_kept() {
    with_stand_in("what_the_driver_compiles_is_not_kept", &[], &[(PTXAS, "")], || {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path().join("falchion"));
        let (context, program) = (context(), program("kernel"));
        let load = || {
            let loaded = Loaded::load_from(&context, (), program.clone(), Some(&cache)).expect("compiles");
            let kernel = loaded.program();
            assert_eq!(kernel.warnings(), []);
            kernel.origin()
        };
        assert_eq!([load(), load()], [Origin::Compiled; 2]);
        assert_eq!((noted("compiled"), noted("loaded")), (2, 2));
        assert!(!cache.folder().exists(), "nothing is made");
        let mut binary = b"\x7fELF\x02\x01".to_vec();
        binary.resize(64, 0);
        binary.extend(b"stand-in0123456789abcdef");
        let payload = [&4u64.to_le_bytes()[..], b"said", &binary].concat();
        let key = context.kernel_key(&program).expect("legal");
        cache.put(Kind::Kernel, &key, &payload).expect("writable");
        let loaded = Loaded::load_from(&context, (), program.clone(), Some(&cache)).expect("loads");
        let kernel = loaded.program();
        assert_eq!((kernel.origin(), kernel.compile_log()), (Origin::Disk, "said"));
        assert_eq!((noted("compiled"), binaries().len()), (2, 1));
    });
}

/// Processes with assemblers of two versions, and one without an assembler, share one folder.
#[test]
fn two_assemblers_share_no_entry() {
    let test = "two_assemblers_share_no_entry";
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/compiled-versions");
    let [first, second] = ["V1", "V2"].map(|version| script(version, &ASSEMBLER.replace("VERSION", version)));
    if !again() {
        let _ = fs::remove_dir_all(folder);
    }
    for (assembler, origin, log) in [
        (first.as_str(), "Assembled", "V1"),
        (&second, "Assembled", "V2"),
        ("", "Compiled", ""),
        (&first, "Disk", "V1"),
        (&second, "Disk", "V2"),
    ] {
        let environment =
            [(PTXAS, assembler), ("FALCHION_CACHE", folder), ("WANT", origin), ("WANT_LOG", log)];
        with_stand_in(test, &[], &environment, || {
            let cache = Cache::of_environment().expect("set");
            let loaded = Loaded::load_from(&context(), (), program("kernel"), cache.as_ref()).expect("loads");
            let kernel = loaded.program();
            assert_eq!(Ok(format!("{:?}", kernel.origin())), std::env::var("WANT"));
            assert!(kernel.compile_log().contains(&std::env::var("WANT_LOG").expect("set")));
        });
        if again() {
            return;
        }
    }
}

/// With NVIDIA's assembler: the binary is complete, and its log says how many registers a kernel uses.
#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn nvidias_assembler_makes_binaries() {
    // It is also set if the test runs again.
    let assembler = std::env::var(PTXAS).expect("FALCHION_PTXAS names ptxas: run `cargo xtask test`");
    let environment = [(PTXAS, assembler.as_str()), ("STAND_IN_BINARIES", "any")];
    with_stand_in("nvidias_assembler_makes_binaries", &[], &environment, || {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let spec: kernel::KernelSpec = "tile=256x192x64".parse().expect("legal");
        let program = spec.kernel().expect("legal").program().expect("legal");
        for want in [Origin::Assembled, Origin::Disk] {
            let loaded = Loaded::load_from(&context(), (), program.clone(), Some(&cache)).expect("assembles");
            let kernel = loaded.program();
            assert_eq!((kernel.origin(), kernel.warnings()), (want, &[][..]));
            assert_eq!(kernel.advisories(), [""; 0], "{}", kernel.compile_log());
            assert!(kernel.compile_log().contains("0 bytes spill stores"), "{}", kernel.compile_log());
            assert!(kernel.compile_log().contains("registers"), "{}", kernel.compile_log());
        }
    });
}

/// A file that is not an entry of this kernel, or whose binary the driver rejects, is assembled again and
/// replaced.
#[test]
fn what_cannot_be_used_is_assembled_anew() {
    with_assembler("what_cannot_be_used_is_assembled_anew", &[], || {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let (context, program, other) = (context(), program("kernel"), program("other"));
        let key = context.kernel_key(&program).expect("legal");
        let path = cache.path(Kind::Kernel, &key);
        let load = |program: &Program| {
            let loaded = Loaded::load_from(&context, (), program.clone(), Some(&cache)).expect("assembles");
            let kernel = loaded.program();
            (kernel.origin(), kernel.warnings().to_vec())
        };
        load(&program);
        load(&other);
        let whole = fs::read(&path).expect("kept");
        let binary = cache.get(Kind::Kernel, &key).expect("whole").expect("there");
        let of_other = cache.path(Kind::Kernel, &context.kernel_key(&other).expect("legal"));
        let mut refused = binary.clone();
        let at = refused.len() - 20;
        refused[at] ^= 1; // In the stand-in's mark.
        let put = |payload: &[u8]| cache.put(Kind::Kernel, &key, payload).expect("writable");
        let spoilt: [(&str, &dyn Fn(), &str); 6] = [
            (
                "a truncated file",
                &|| fs::write(&path, &whole[..whole.len() - 1]).expect("ours"),
                "was ignored",
            ),
            ("another kernel's file", &|| assert!(fs::copy(&of_other, &path).is_ok()), "of another key"),
            ("nothing of ours", &|| fs::write(&path, "ELF").expect("ours"), "does not begin with"),
            ("an entry without a binary", &|| put(&[0; 8]), "it holds no binary"),
            ("a binary that breaks off", &|| put(&binary[..40]), "it holds no binary"),
            ("a binary that the driver refuses", &|| put(&refused), "the driver refused it"),
        ];
        for (why, spoil, words) in spoilt {
            spoil();
            let assembled = noted("assembled");
            let (origin, warnings) = load(&program);
            assert_eq!((origin, noted("assembled")), (Origin::Assembled, assembled + 1), "{why}");
            let [warning] = &warnings[..] else { panic!("{why}: {warnings:?}") };
            assert!(warning.to_string().contains(words), "{why}: {warning}");
            assert_eq!(fs::read(&path).expect("kept"), whole, "{why}: it is made anew");
            assert_eq!(load(&program), (Origin::Disk, Vec::new()), "{why}");
        }
        assert_eq!(noted("refused"), 1);
        let loaded = binaries();
        let (right, wrong) = (&loaded[0], &loaded[1]);
        assert!(loaded[2..].iter().all(|digest| digest == right && digest != wrong), "{loaded:?}");
    });
}

#[test]
fn a_text_that_the_compiler_refuses_is_an_error_with_its_log() {
    with_stand_in("a_text_that_the_compiler_refuses_is_an_error_with_its_log", &[], &[], || {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path().join("falchion"));
        let error =
            Loaded::load_from(&context(), (), program("illegal_probe"), Some(&cache)).expect_err("illegal");
        assert!(matches!(error, EngineError::Compile { .. }), "{error}");
        assert!(error.to_string().contains("line 7: no such instruction"), "{error}");
        assert_eq!((noted("loaded"), cache.entries()), (0, Ok(Vec::new())));
    });
}

/// Loads a kernel, which must fail because of the assembler: the driver does not compile in its place.
fn not_assembled(name: &str) -> (AssemblerError, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path().join("falchion"));
    let error = Loaded::load_from(&context(), (), program(name), Some(&cache)).expect_err("it fails");
    let words = error.to_string();
    let EngineError::Assembler { source } = error else { panic!("{words}") };
    let named = std::env::var(PTXAS).expect("set");
    assert!(words.contains(&named) && words.contains("FALCHION_PTXAS"), "{words}");
    assert_eq!((noted("compiled"), noted("loaded"), cache.entries()), (0, 0, Ok(Vec::new())));
    (source, words)
}

#[test]
fn a_text_that_the_assembler_refuses_is_an_error_with_its_log() {
    with_assembler("a_text_that_the_assembler_refuses_is_an_error_with_its_log", &[], || {
        let (error, words) = not_assembled("illegal_probe");
        assert!(matches!(error, AssemblerError::Failed { .. }), "{words}");
        assert!(
            words.contains("`illegal_probe`") && words.contains("line 7: no such instruction"),
            "{words}"
        );
    });
}

#[test]
fn a_binary_that_the_driver_refuses_is_an_error() {
    let environment = [("STAND_IN_BINARIES", "refused")];
    with_assembler("a_binary_that_the_driver_refuses_is_an_error", &environment, || {
        let (error, words) = not_assembled("kernel");
        assert!(matches!(error, AssemblerError::NotLoaded { .. }), "{words}");
        assert!(words.contains("the driver refused what") && words.contains("kernel `kernel`"), "{words}");
    });
}

/// Programs that are not assemblers, and the error for each.
#[test]
fn what_is_no_assembler_is_an_error() {
    let test = "what_is_no_assembler_is_an_error";
    let version = "if test \"$1\" = --version; then echo V1; exit 0; fi";
    for (words, assembler) in [
        ("cannot be started", "/no/such/ptxas".to_owned()),
        ("gave no version (exit status: 1)", script("fails", "exit 1")),
        ("gave no version (it said nothing)", script("silent", "exit 0")),
        ("failed for kernel `kernel` with no binary", script("makes-nothing", version)),
        ("no whole ELF file", script("makes-a-part", &format!("{version}; printf '\\177ELF' >\"$3\""))),
    ] {
        with_stand_in(test, &[], &[(PTXAS, &assembler), ("WANT", words)], || {
            let want = std::env::var("WANT").expect("set");
            for _ in 0..2 {
                let (_, words) = not_assembled("kernel");
                assert!(words.contains(&want), "{words}");
            }
        });
        if again() {
            return;
        }
    }
}

/// Loads a kernel in the usual way. Returns the warnings' texts, or the error's.
fn loaded() -> Result<(Origin, Vec<String>), String> {
    let gemm = kernel::find("64x64-direct-bf16-kk").expect("a name");
    let program = gemm.program().expect("legal");
    let loaded = Loaded::load_in(&context(), gemm, program).map_err(|error| error.to_string())?;
    let kernel = loaded.program();
    Ok((kernel.origin(), kernel.warnings().iter().map(ToString::to_string).collect()))
}

#[test]
fn the_environment_names_the_folder() {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/compiled-named");
    if !again() {
        let _ = fs::remove_dir_all(folder);
    }
    with_assembler("the_environment_names_the_folder", &[("FALCHION_CACHE", folder)], || {
        assert_eq!(loaded(), Ok((Origin::Assembled, Vec::new())));
        assert_eq!(loaded(), Ok((Origin::Disk, Vec::new())));
        let cache = Cache::of_environment().expect("set").expect("not empty");
        assert_eq!(cache.entries().expect("readable").len(), 1);
    });
    if !again() {
        assert!(fs::read_dir(folder).expect("it was made").count() == 1);
    }
}

#[test]
fn an_empty_variable_keeps_nothing() {
    with_assembler("an_empty_variable_keeps_nothing", &[("FALCHION_CACHE", ""), ("HOME", "/")], || {
        for loads in 1..3 {
            assert_eq!(loaded(), Ok((Origin::Assembled, Vec::new())));
            assert_eq!(noted("assembled"), loads);
        }
    });
}

#[test]
fn a_named_folder_that_cannot_be_made_is_an_error() {
    let environment = [("FALCHION_CACHE", "/sys/kernel/falchion")];
    with_stand_in("a_named_folder_that_cannot_be_made_is_an_error", &[], &environment, || {
        let error = loaded().expect_err("it cannot be made");
        assert!(
            error.contains("/sys/kernel/falchion of compiled kernels (from FALCHION_CACHE) cannot be used"),
            "{error}"
        );
    });
}

#[test]
fn a_folder_that_is_read_only_is_a_warning() {
    let environment = [("FALCHION_CACHE", "/sys/kernel")];
    with_assembler("a_folder_that_is_read_only_is_a_warning", &environment, || {
        let (origin, warnings) = loaded().expect("it assembles");
        assert_eq!(origin, Origin::Assembled);
        assert!(matches!(&warnings[..], [one] if one.contains("cannot write /sys/kernel/")), "{warnings:?}");
    });
}

#[test]
fn no_home_is_a_warning() {
    let environment = [("FALCHION_CACHE", UNSET), ("XDG_CACHE_HOME", UNSET), ("HOME", "relative")];
    with_assembler("no_home_is_a_warning", &environment, || {
        for _ in 0..2 {
            let (origin, warnings) = loaded().expect("it assembles");
            assert_eq!(origin, Origin::Assembled);
            assert!(matches!(&warnings[..], [one] if one.contains("no home folder")), "{warnings:?}");
        }
    });
}

#[test]
fn a_platforms_folder_that_cannot_be_made_is_a_warning() {
    let environment = [("FALCHION_CACHE", UNSET), ("XDG_CACHE_HOME", "/sys/kernel")];
    with_assembler("a_platforms_folder_that_cannot_be_made_is_a_warning", &environment, || {
        let (origin, warnings) = loaded().expect("it assembles");
        assert_eq!(origin, Origin::Assembled);
        assert!(matches!(&warnings[..], [one] if one.contains("/sys/kernel/falchion")), "{warnings:?}");
    });
}

/// If the driver compiles, nothing is kept, so no home folder is needed.
#[test]
fn without_an_assembler_no_home_is_no_matter() {
    let environment = [("FALCHION_CACHE", UNSET), ("XDG_CACHE_HOME", UNSET), ("HOME", "relative")];
    with_stand_in("without_an_assembler_no_home_is_no_matter", &[], &environment, || {
        assert_eq!(loaded(), Ok((Origin::Compiled, Vec::new())));
    });
}

/// A binary in the program that was built together with its text.
#[test]
#[allow(unsafe_code, reason = "vouches for a binary")]
fn binaries_made_ahead_are_loaded_for_their_own_text_alone() {
    with_stand_in("binaries_made_ahead_are_loaded_for_their_own_text_alone", &[], &[], || {
        let mut binary = vec![0; 64];
        binary[..6].copy_from_slice(b"\x7fELF\x02\x01");
        binary.extend(b"stand-in0123456789abcdef");
        let (program, other) = (program("kernel"), program("other"));
        let mut broken = binary.clone();
        broken[64] ^= 1;
        for (why, text, binary, want) in [
            ("its own", program.text(), &binary[..], Origin::Ahead),
            ("of another text", other.text(), &binary, Origin::Compiled),
            ("refused by the driver", program.text(), &broken, Origin::Compiled),
            ("half of it", program.text(), &binary[..32], Origin::Compiled),
            ("none", program.text(), &[], Origin::Compiled),
        ] {
            // SAFETY: the stand-in runs nothing.
            let loaded = unsafe { Loaded::load_ahead(&context(), (), program.clone(), &[(text, binary)]) };
            assert_eq!(loaded.expect("compiles").program().origin(), want, "{why}");
        }
    });
}
