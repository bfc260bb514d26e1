//! Kernels that a process before has compiled, on a stand-in for CUDA's driver: what is loaded, what is compiled, and what is
//! said where the folder is of no use.
#![cfg(target_os = "linux")]

#[path = "support/stand_in.rs"]
mod stand_in;

use std::fs;
use std::sync::Arc;

use kernel::disk::{Cache, CacheError, Digest, Kind};
use kernel::driver::{Context, Kernel, Loaded, Origin};
use kernel::{EngineError, Program};
use ptx::{Builder, Entry, Function, Target};

use stand_in::{UNSET, noted, with_stand_in};

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
fn what_was_compiled_once_is_loaded() {
    with_stand_in("what_was_compiled_once_is_loaded", &[], &[], || {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path().join("falchion"));
        let context = context();
        let load = |name: &str| {
            let kernel = Kernel::load_from(&context, &program(name), Some(&cache)).expect("compiles");
            assert_eq!(kernel.warnings(), [], "{name}");
            kernel.origin()
        };
        for (name, want) in [
            ("first", Origin::Compiled),
            ("first", Origin::Disk),
            ("second", Origin::Compiled),
            ("first", Origin::Disk),
            ("second", Origin::Disk),
        ] {
            assert_eq!(load(name), want, "{name}");
        }
        assert_eq!((noted("linked"), noted("unlinked"), noted("loaded")), (2, 2, 5));
        let [first, again, second, once_more, second_again] = &binaries()[..] else { panic!("five") };
        assert!(first != second, "they are of different texts");
        assert!([again, once_more].iter().all(|digest| *digest == first) && second_again == second);
        // Without a folder nothing is linked, kept or read.
        let kernel = Kernel::load_from(&context, &program("first"), None).expect("compiles");
        assert_eq!((kernel.origin(), noted("linked"), binaries().len()), (Origin::Compiled, 2, 5));
        assert_eq!(cache.entries().expect("readable").len(), 2);
        let entries = cache.entries().expect("readable");
        let key = entries[0].key.as_ref().expect("whole");
        assert_eq!((key.card(), key.version()), ("Stand-in", env!("CARGO_PKG_VERSION")));
        assert!(key.driver().ends_with("CUDA 13.0"), "{}", key.driver());
    });
}

/// A file that is no entry of this kernel, or whose binary the driver refuses, is compiled anew and replaced.
#[test]
fn what_cannot_be_used_is_compiled_anew() {
    with_stand_in("what_cannot_be_used_is_compiled_anew", &[], &[], || {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::at(folder.path());
        let (context, program, other) = (context(), program("kernel"), program("other"));
        let key = context.key(Digest::of(program.text())).expect("legal");
        let path = cache.path(Kind::Kernel, &key);
        let load = |program: &Program| {
            let kernel = Kernel::load_from(&context, program, Some(&cache)).expect("compiles");
            (kernel.origin(), kernel.warnings().to_vec())
        };
        load(&program);
        load(&other);
        let whole = fs::read(&path).expect("kept");
        let binary = cache.get(Kind::Kernel, &key).expect("whole").expect("there");
        let of_other = cache.path(Kind::Kernel, &context.key(Digest::of(other.text())).expect("legal"));
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
            let linked = noted("linked");
            let (origin, warnings) = load(&program);
            assert_eq!((origin, noted("linked")), (Origin::Compiled, linked + 1), "{why}");
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
            Kernel::load_from(&context(), &program("illegal_probe"), Some(&cache)).expect_err("illegal");
        assert!(matches!(error, EngineError::Compile { .. }), "{error}");
        assert!(error.to_string().contains("line 7: no such instruction"), "{error}");
        assert_eq!((noted("unlinked"), noted("loaded")), (1, 0));
        assert_eq!(cache.entries(), Ok(Vec::new()));
    });
}

/// A linker that does not work, or whose binaries the loader refuses: the loader compiles, and nothing is kept.
fn compiles_without_a_linker() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path().join("falchion"));
    for _ in 0..2 {
        let kernel = Kernel::load_from(&context(), &program("kernel"), Some(&cache)).expect("compiles");
        assert_eq!(kernel.origin(), Origin::Compiled);
        let [warning @ CacheError::NotLinked { .. }] = kernel.warnings() else {
            panic!("{:?}", kernel.warnings())
        };
        assert!(warning.to_string().contains("kernel `kernel` was compiled but not kept"), "{warning}");
    }
    assert_eq!((noted("loaded"), binaries().len(), cache.entries()), (2, 0, Ok(Vec::new())));
}

#[test]
fn a_linker_that_fails_is_a_warning() {
    let environment = [("STAND_IN_LINKER", "fails")];
    with_stand_in("a_linker_that_fails_is_a_warning", &[], &environment, compiles_without_a_linker);
}

#[test]
fn a_binary_that_is_refused_at_once_is_a_warning() {
    let environment = [("STAND_IN_BINARIES", "refused")];
    with_stand_in(
        "a_binary_that_is_refused_at_once_is_a_warning",
        &[],
        &environment,
        compiles_without_a_linker,
    );
}

/// Loads a kernel as everybody does: the warnings' words, or the error's.
fn loaded() -> Result<(Origin, Vec<String>), String> {
    let gemm = kernel::find("small-bf16-kk").expect("a name");
    let program = gemm.program().expect("legal");
    let loaded = Loaded::load_in(&context(), gemm, program).map_err(|error| error.to_string())?;
    let kernel = loaded.kernel();
    Ok((kernel.origin(), kernel.warnings().iter().map(ToString::to_string).collect()))
}

#[test]
fn the_environment_names_the_folder() {
    let folder = concat!(env!("CARGO_TARGET_TMPDIR"), "/compiled-named");
    if std::env::var_os("STAND_IN_LOG").is_none() {
        let _ = fs::remove_dir_all(folder);
    }
    with_stand_in("the_environment_names_the_folder", &[], &[("FALCHION_CACHE", folder)], || {
        assert_eq!(loaded(), Ok((Origin::Compiled, Vec::new())));
        assert_eq!(loaded(), Ok((Origin::Disk, Vec::new())));
        let cache = Cache::of_environment().expect("set").expect("not empty");
        assert_eq!(cache.entries().expect("readable").len(), 1);
    });
    if std::env::var_os("STAND_IN_LOG").is_none() {
        assert!(fs::read_dir(folder).expect("it was made").count() == 1);
    }
}

#[test]
fn an_empty_variable_keeps_nothing() {
    with_stand_in("an_empty_variable_keeps_nothing", &[], &[("FALCHION_CACHE", ""), ("HOME", "/")], || {
        assert_eq!(loaded(), Ok((Origin::Compiled, Vec::new())));
        assert_eq!((noted("linked"), noted("loaded")), (0, 1));
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
    with_stand_in("a_folder_that_is_read_only_is_a_warning", &[], &environment, || {
        let (origin, warnings) = loaded().expect("it compiles");
        assert_eq!(origin, Origin::Compiled);
        assert!(matches!(&warnings[..], [one] if one.contains("cannot write /sys/kernel/")), "{warnings:?}");
    });
}

#[test]
fn no_home_is_a_warning() {
    let environment = [("FALCHION_CACHE", UNSET), ("XDG_CACHE_HOME", UNSET), ("HOME", "relative")];
    with_stand_in("no_home_is_a_warning", &[], &environment, || {
        for _ in 0..2 {
            let (origin, warnings) = loaded().expect("it compiles");
            assert_eq!(origin, Origin::Compiled);
            assert!(matches!(&warnings[..], [one] if one.contains("no home folder")), "{warnings:?}");
        }
        assert_eq!(noted("linked"), 0);
    });
}

#[test]
fn a_platforms_folder_that_cannot_be_made_is_a_warning() {
    let environment = [("FALCHION_CACHE", UNSET), ("XDG_CACHE_HOME", "/sys/kernel")];
    with_stand_in("a_platforms_folder_that_cannot_be_made_is_a_warning", &[], &environment, || {
        let (origin, warnings) = loaded().expect("it compiles");
        assert_eq!(origin, Origin::Compiled);
        assert!(matches!(&warnings[..], [one] if one.contains("/sys/kernel/falchion")), "{warnings:?}");
    });
}

/// A binary in the program that was made together with its text.
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
            let kernel = unsafe { Kernel::load_ahead(&context(), &program, text, binary) };
            assert_eq!(kernel.expect("compiles").origin(), want, "{why}");
        }
    });
}
