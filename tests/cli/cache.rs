//! `falchion cache`: the cache folder as a user sees it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use falchion::kernel::disk::{Cache, Digest, Key, Kind};

use crate::{Run, folder};

/// Runs `falchion cache` with a folder or other environment variables.
fn cache(variables: &[(&str, &str)], arguments: &[&str]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_falchion"));
    command.arg("cache").args(arguments).env_remove("FALCHION_CACHE").envs(variables.iter().copied());
    let output = command.output().expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Run { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A folder with two kernels of one card, one of another, a record, and a damaged file.
fn filled(name: &str) -> (PathBuf, String) {
    let path = folder("cache").join(name);
    let _ = fs::remove_dir_all(&path);
    let cache = Cache::at(&path);
    for (kind, card, text, bytes, days) in [
        (Kind::Kernel, "NVIDIA H200", "one", 100_000, 0),
        (Kind::Kernel, "NVIDIA H200", "two", 50_000, 40),
        (Kind::Kernel, "NVIDIA H100 80GB HBM3", "one", 10_000, 3),
        (Kind::Records, "NVIDIA H200", "records", 1000, 90),
    ] {
        let key = Key::new(card, "580.159.04, CUDA 13.0", Digest::of(text)).expect("legal");
        cache.put(kind, &key, &vec![b'x'; bytes]).expect("writable");
        let at = SystemTime::now() - Duration::from_secs(days * 86_400 + 60);
        let file = fs::File::options().append(true).open(cache.path(kind, &key)).expect("there");
        file.set_modified(at).expect("ours");
    }
    fs::write(path.join(format!("{}.kernel", Digest::of("damaged"))), "damaged").expect("writable");
    fs::write(path.join("notes.txt"), "mine").expect("writable");
    let text = path.display().to_string();
    (path, text)
}

fn names(path: &Path) -> usize {
    fs::read_dir(path).expect("there").count()
}

#[test]
fn entries_are_listed_by_kind_and_card() {
    let (_, path) = filled("listed");
    let run = cache(&[("FALCHION_CACHE", &path)], &[]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let mut lines = run.stdout.lines();
    let first = lines.next().expect("a line");
    assert!(first.starts_with(&format!("{path} (from FALCHION_CACHE): 5 entries of 16")), "{first}");
    let rows: Vec<Vec<&str>> =
        lines.map(|line| line.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect()).collect();
    let version = env!("CARGO_PKG_VERSION");
    for (row, want) in rows.iter().zip([
        &["kind", "card", "driver", "falchion", "entries"][..],
        &["kernel", "(damaged)"],
        &["kernel", "NVIDIA H100 80GB HBM3", "580.159.04, CUDA 13.0", version],
        &["kernel", "NVIDIA H200", "580.159.04, CUDA 13.0", version],
        &["records", "NVIDIA H200", "580.159.04, CUDA 13.0", version],
    ]) {
        assert!(row.len() > want.len() || row.len() == want.len(), "{row:?}");
        assert!(row[..want.len()].iter().zip(want).all(|(a, b)| a.starts_with(b)), "{row:?} {want:?}");
    }
    assert_eq!(rows.len(), 5, "{}", run.stdout);
    let of_h200 = run.stdout.lines().find(|line| line.starts_with("kernel   NVIDIA H200")).expect("a row");
    assert!(of_h200.contains(" 2   150.") && of_h200.ends_with("40 days"), "{of_h200}");
}

#[test]
fn trimming_and_clearing_say_what_they_did() {
    for (why, arguments, words, left) in [
        ("room for all", &["trim", "--keep", "1GB"][..], "removed 0 entries of 0 B, 5 entries of", 6),
        ("a few bytes fewer", &["trim", "--keep", "160kB"], "removed 1 entry of 50.", 5),
        ("old ones", &["trim", "--older-than", "30"], "removed 2 entries of 5", 4),
        ("nothing may stay", &["trim", "--keep", "0"], "removed 5 entries of 16", 1),
        ("all", &["clear"], "removed 5 entries of 16", 1),
    ] {
        let (path, text) = filled("trimmed");
        let run = cache(&[("FALCHION_CACHE", &text)], arguments);
        assert_eq!(run.code, Some(0), "{why}: {}", run.stderr);
        assert!(run.stdout.contains(words), "{why}: {}", run.stdout);
        assert_eq!(names(&path), left, "{why}");
        assert!(path.join("notes.txt").exists(), "{why}: it is the user's");
    }
}

#[test]
fn folders_of_all_kinds() {
    let (path, text) = filled("kinds");
    let file = path.join("notes.txt").display().to_string();
    let missing = path.join("missing").display().to_string();
    for (why, variables, arguments, code, words) in [
        ("not there yet", &[("FALCHION_CACHE", missing.as_str())][..], &[][..], 0, "0 entries of 0 B"),
        (
            "clearing one that is not there",
            &[("FALCHION_CACHE", &missing)],
            &["clear"],
            0,
            "removed 0 entries",
        ),
        ("a file", &[("FALCHION_CACHE", &file)], &[], 2, "notes.txt"),
        ("clearing a file", &[("FALCHION_CACHE", &file)], &["clear"], 2, "cannot read"),
        ("none", &[("FALCHION_CACHE", "")], &[], 0, "FALCHION_CACHE is empty: no kernels"),
        ("clearing none", &[("FALCHION_CACHE", "")], &["clear"], 2, "set it to the folder"),
        ("no home", &[("HOME", "h"), ("XDG_CACHE_HOME", "")], &[], 2, "set FALCHION_CACHE to a folder"),
        (
            "the platform's",
            &[("XDG_CACHE_HOME", text.as_str()), ("HOME", &text), ("LOCALAPPDATA", &text)],
            &[],
            0,
            "falchion (the platform's): 0 entries",
        ),
    ] {
        let run = cache(variables, arguments);
        let said = run.stdout + &run.stderr;
        assert_eq!(run.code, Some(code), "{why}: {said}");
        assert!(said.contains(words), "{why}: {said}");
        assert!(!said.contains("panicked"), "{why}: {said}");
    }
    assert!(!path.join("missing").exists(), "looking makes nothing");
}

#[test]
fn limits_are_judged_as_values() {
    let (path, text) = filled("refused");
    for (why, arguments, words) in [
        ("no limit", &["trim"][..], &["--keep or --older-than was needed"][..]),
        ("two", &["trim", "--keep", "1", "--older-than", "1"], &["cannot be used with"]),
        ("a unit of nobody's", &["trim", "--keep", "5MiB"], &["'5MiB' for '--keep <BYTES>'", "20kB"]),
        ("a negative size", &["trim", "--keep", "-1"], &["'-1' for '--keep <BYTES>'", "a number of bytes"]),
        ("negative days", &["trim", "--older-than", "-1"], &["'-1' for '--older-than <DAYS>'"]),
        ("another word", &["drop"], &["drop"]),
    ] {
        let run = cache(&[("FALCHION_CACHE", &text)], arguments);
        assert_eq!(run.code, Some(2), "{why}: {}{}", run.stdout, run.stderr);
        for word in words {
            assert!(run.stderr.contains(word), "{why}: no `{word}` in {}", run.stderr);
        }
    }
    assert_eq!(names(&path), 6, "nothing was removed");
}
