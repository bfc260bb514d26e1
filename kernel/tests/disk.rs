//! The folder of entries with many processes at once, on a full disk, and without a home folder. Each test
//! runs again in processes of its own.
#![cfg(unix)]

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use kernel::disk::{Cache, CacheError, Digest, Key, Kind, Limit, VARIABLE};

/// Number of processes at once.
const PROCESSES: u64 = 16;

/// The variable that holds the number of a process. It is set if a test runs again.
const NUMBER: &str = "DISK_TEST_NUMBER";

fn key(text: &str) -> Key {
    Key::new("NVIDIA H200", "580.159.04, CUDA 13.0", Digest::of(text)).expect("legal")
}

/// Starts this program again, with one of its tests.
fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args([test, "--exact", "--nocapture"]).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a body in many processes at once on one folder, and checks that all of them succeed. In the first
/// process it returns the folder.
fn at_once(test: &str, body: fn(&Cache, u64)) -> Option<(tempfile::TempDir, Cache)> {
    if let Ok(number) = std::env::var(NUMBER) {
        let cache = Cache::of_environment().expect("set").expect("not empty");
        body(&cache, number.parse().expect("a number"));
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("falchion");
    let start = |number: u64| again(test).env(NUMBER, number.to_string()).env(VARIABLE, &path).spawn();
    let children: Vec<_> = (0..PROCESSES).map(|number| start(number).expect("it runs")).collect();
    for child in children {
        let output = child.wait_with_output().expect("its output");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Some((folder, Cache::at(path)))
}

/// The payload of an entry as a process wrote it: its name, and bytes that depend on the writer.
fn payload(name: u64, writer: u64) -> Vec<u8> {
    let bytes = 100 + (name * 7919 + writer * 104_729) as usize % 20_000;
    let mut payload = [name.to_le_bytes(), writer.to_le_bytes()].concat();
    payload.resize(bytes, (name * 31 + writer) as u8);
    payload
}

/// Readers see everything that one writer wrote, from the first byte to the last, or nothing.
#[test]
fn no_reader_sees_a_wrong_payload() {
    let done = at_once("no_reader_sees_a_wrong_payload", |cache, number| {
        let mut random = fastrand(number);
        let (mut hits, mut misses) = (0, 0);
        for _ in 0..300 {
            let name = random() % 6;
            let of = key(&format!("program {name}"));
            match random() % 16 {
                0..6 => match cache.put(Kind::Kernel, &of, &payload(name, number)) {
                    Ok(()) => {}
                    Err(error) => panic!("{error}"),
                },
                6..13 => match cache.get(Kind::Kernel, &of) {
                    Ok(Some(read)) => {
                        let writer = u64::from_le_bytes(read[8..16].try_into().expect("8 bytes"));
                        assert!(writer < PROCESSES && read == payload(name, writer), "{name} of {writer}");
                        hits += 1;
                    }
                    Ok(None) => misses += 1,
                    Err(error) => panic!("{error}"),
                },
                13 => drop(cache.trim(Limit::Bytes(random() % 60_000)).expect("removable")),
                14 => drop(cache.entries().expect("readable")),
                _ => drop(cache.clear().expect("removable")),
            }
        }
        assert!(hits > 0, "{hits} hits, {misses} misses");
    });
    let Some((_folder, cache)) = done else { return };
    let left = std::fs::read_dir(cache.folder()).expect("there");
    let names: Vec<String> =
        left.map(|file| file.expect("there").file_name().display().to_string()).collect();
    assert!(names.iter().all(|name| name.ends_with(".kernel")), "nothing unfinished stays: {names:?}");
    for entry in cache.entries().expect("readable") {
        assert!(entry.key.is_some(), "{entry:?}");
    }
}

/// A small random number generator, with other numbers in each process.
fn fastrand(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 8
    }
}

/// Every process saves its own measurements. In the end all of them are there.
#[cfg(feature = "records")]
#[test]
fn no_measurement_is_lost() {
    use cute_rs::atom::Major;
    use kernel::KernelSpec;
    use kernel::disk::records::{Measurement, Problem, Records};
    let problem = |writer: u64, round: u64| {
        Problem::single("bf16", [Major::K; 2], [64 + writer as u32, 64 + round as u32, 64])
    };
    const ROUNDS: u64 = 4;
    let done = at_once("no_measurement_is_lost", |cache, number| {
        let key = Key::new("NVIDIA H200", "580.159.04", Records::digest()).expect("legal");
        for round in 0..ROUNDS {
            let (mut records, warnings) = Records::load(cache, &key);
            assert_eq!(warnings, []);
            let own = Problem::single("bf16", [Major::K; 2], [64 + number as u32, 64 + round as u32, 64]);
            records.insert(own, Measurement::now(KernelSpec::DEFAULT, 1.0 + round as f64)).expect("legal");
            let warnings = records.save(cache, &key).expect("saved");
            assert_eq!(warnings, []);
        }
    });
    let Some((_folder, cache)) = done else { return };
    let key = Key::new("NVIDIA H200", "580.159.04", Records::digest()).expect("legal");
    let (records, warnings) = Records::load(&cache, &key);
    assert_eq!((records.len() as u64, warnings), (PROCESSES * ROUNDS, Vec::new()));
    for (writer, round) in (0..PROCESSES).flat_map(|writer| (0..ROUNDS).map(move |round| (writer, round))) {
        let measured = records.lookup(&problem(writer, round));
        assert!(matches!(measured, [one] if one.microseconds == 1.0 + round as f64), "{writer} {round}");
    }
}

/// The disk becomes full in the middle of a file: an error; the old entry stays, and nothing else is left.
#[test]
fn a_full_disk_leaves_the_folder_as_it_was() {
    let test = "a_full_disk_leaves_the_folder_as_it_was";
    if std::env::var_os(NUMBER).is_some() {
        let cache = Cache::of_environment().expect("set").expect("not empty");
        let error = cache.put(Kind::Kernel, &key("a"), &vec![1; 100_000]).expect_err("no room");
        assert!(matches!(error, CacheError::File { action: "write", .. }), "{error}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path());
    cache.put(Kind::Kernel, &key("a"), b"before").expect("room");
    // No file of the process may be longer than 8 blocks; a longer write is an error.
    let own = std::env::current_exe().expect("a program");
    let script = format!("trap '' XFSZ; ulimit -f 8; exec '{}' {test} --exact --nocapture", own.display());
    let output =
        Command::new("sh").args(["-c", &script]).env(NUMBER, "0").env(VARIABLE, folder.path()).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(cache.get(Kind::Kernel, &key("a")), Ok(Some(b"before".to_vec())));
    assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 1, "nothing unfinished");
}

/// What a process sees of its environment.
#[test]
fn the_environment_is_read() {
    let test = "the_environment_is_read";
    if let Ok(want) = std::env::var("DISK_TEST_WANT") {
        let got = match Cache::of_environment() {
            Ok(Some(cache)) => cache.folder().display().to_string(),
            Ok(None) => "none".to_owned(),
            Err(error) => error.to_string(),
        };
        assert!(got.contains(&want), "{got}");
        return;
    }
    for (why, variables, want) in [
        ("a folder", &[(VARIABLE, "/x/y")][..], "/x/y"),
        ("nothing", &[(VARIABLE, ""), ("HOME", "/h")], "none"),
        (
            "a home",
            &[("HOME", "/h")],
            if cfg!(target_os = "macos") { "/h/Library/Caches/falchion" } else { "/h/.cache/falchion" },
        ),
        // Without the variable, the system may know the home folder.
        ("a relative home", &[("HOME", "h")], "FALCHION_CACHE is not set and the user has no home folder"),
    ] {
        let mut command = again(test);
        command.env_remove(VARIABLE).env_remove("XDG_CACHE_HOME").env_remove("HOME");
        command.env("DISK_TEST_WANT", want).envs(variables.iter().copied());
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{why}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

/// Entries in a read-only folder are used.
#[test]
fn a_read_only_folder_is_read() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a folder");
    let path: PathBuf = folder.path().join("falchion");
    let cache = Cache::at(&path);
    cache.put(Kind::Kernel, &key("a"), b"made before").expect("writable");
    let mode = std::fs::metadata(&path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, 0o700, "it is its user's alone");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o500)).expect("ours");
    assert_eq!(cache.create(), Ok(()));
    assert_eq!(cache.get(Kind::Kernel, &key("a")), Ok(Some(b"made before".to_vec())));
    // An administrator can write anyway.
    if std::fs::write(path.join("probe"), "").is_err() {
        let error = cache.put(Kind::Kernel, &key("b"), b"x").expect_err("read-only");
        assert!(matches!(error, CacheError::File { action: "write", .. }), "{error}");
        let error = cache.trim(Limit::Age(Duration::ZERO)).expect_err("read-only");
        assert!(matches!(error, CacheError::File { action: "remove", .. }), "{error}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("ours");
}
