//! Entries that are complete, damaged, of another key, or missing.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use super::*;

fn key(text: &str) -> Key {
    Key::new("NVIDIA H200", "580.159.04", Digest::of(text)).expect("legal")
}

/// A folder with entries of the given kinds, names, payload sizes in bytes, and ages in hours.
fn folder(entries: &[(Kind, &str, usize, u64)]) -> (tempfile::TempDir, Cache) {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path().join("falchion"));
    for (kind, name, bytes, hours) in entries {
        cache.put(*kind, &key(name), &vec![7; *bytes]).expect("writable");
        age(&cache.path(*kind, &key(name)), *hours);
    }
    (folder, cache)
}

fn age(path: &Path, hours: u64) {
    let at = SystemTime::now() - Duration::from_secs(hours * 3600);
    File::options().append(true).open(path).and_then(|file| file.set_modified(at)).expect("ours");
}

#[test]
fn entries_are_found_by_their_keys_alone() {
    let (_folder, cache) = folder(&[]);
    assert_eq!(cache.get(Kind::Kernel, &key("a")), Ok(None), "the folder is not there yet");
    assert!(!cache.folder().exists(), "reading makes nothing");
    cache.put(Kind::Kernel, &key("a"), b"one").expect("writable");
    cache.put(Kind::Records, &key("a"), b"two").expect("writable");
    for (why, kind, of, want) in [
        ("the kernel", Kind::Kernel, key("a"), Some("one")),
        ("the records of the same key", Kind::Records, key("a"), Some("two")),
        ("another program", Kind::Kernel, key("b"), None),
        ("another card", Kind::Kernel, Key::new("H100", "580.159.04", Digest::of("a")).expect("legal"), None),
        (
            "another version",
            Kind::Kernel,
            Key::of_version("NVIDIA H200", "580.159.04", "0.0.1", Digest::of("a")).expect("legal"),
            None,
        ),
    ] {
        let got = cache.get(kind, &of).expect("whole");
        assert_eq!(got.as_deref(), want.map(str::as_bytes), "{why}");
    }
    cache.put(Kind::Kernel, &key("a"), b"three").expect("writable");
    assert_eq!(cache.get(Kind::Kernel, &key("a")), Ok(Some(b"three".to_vec())), "the later one");
    assert_eq!(cache.remove(Kind::Kernel, &key("a")), Ok(true));
    assert_eq!(cache.remove(Kind::Kernel, &key("a")), Ok(false));
    assert_eq!(cache.get(Kind::Kernel, &key("a")), Ok(None));
    assert_eq!(fs::read_dir(cache.folder()).expect("there").count(), 1, "nothing else is left");
}

/// A file that is not the entry of its key is an error, counts as missing, and is replaced.
#[test]
fn what_is_damaged_or_foreign_is_replaced() {
    let (_folder, cache) = folder(&[(Kind::Kernel, "other", 9, 0)]);
    let path = cache.path(Kind::Kernel, &key("a"));
    let other = fs::read(cache.path(Kind::Kernel, &key("other"))).expect("written");
    for (why, bytes, words) in [
        ("empty", Vec::new(), "does not begin with"),
        ("an ELF file", b"\x7fELF".to_vec(), "does not begin with"),
        ("truncated", other[..other.len() - 1].to_vec(), ""),
        ("another key's entry under this name", other.clone(), "the entry of another key"),
    ] {
        fs::write(&path, bytes).expect("writable");
        let error = cache.get(Kind::Kernel, &key("a")).expect_err(why).to_string();
        assert!(error.contains(words) && error.contains("was ignored"), "{why}: {error}");
        cache.put(Kind::Kernel, &key("a"), b"whole").expect("writable");
        assert_eq!(cache.get(Kind::Kernel, &key("a")), Ok(Some(b"whole".to_vec())), "{why}");
    }
    fs::remove_file(&path).expect("ours");
    fs::create_dir(&path).expect("ours");
    assert!(cache.get(Kind::Kernel, &key("a")).is_err(), "a folder is no entry");
    assert!(cache.put(Kind::Kernel, &key("a"), b"whole").is_err(), "and stays where it is");
    assert_eq!(cache.entries().expect("readable").len(), 1, "nor is it listed");
}

/// Where nothing can be written, an error names the path, and no partial file remains.
#[cfg(target_os = "linux")]
#[test]
fn places_that_cannot_be_written_are_errors() {
    let (_folder, cache) = folder(&[(Kind::Kernel, "a", 1, 0)]);
    let file = cache.path(Kind::Kernel, &key("a"));
    for (why, cache, words) in [
        ("a file in place of the folder", Cache::at(&file), "cannot be used"),
        ("a folder in a file", Cache::at(file.join("falchion")), "cannot be used"),
        // No user can make files or folders there.
        ("a folder that is read-only", Cache::at("/sys/kernel"), "cannot write /sys/kernel/"),
        ("a folder in a read-only one", Cache::at("/sys/kernel/falchion"), "/sys/kernel/falchion"),
    ] {
        let error = cache.put(Kind::Kernel, &key("a"), b"x").expect_err(why).to_string();
        assert!(error.contains(words), "{why}: {error}");
        let read = cache.get(Kind::Kernel, &key("a"));
        assert!(!matches!(read, Ok(Some(_))), "{why}: {read:?}");
    }
    let error = Cache::at(&file).create().expect_err("it is a file").to_string();
    assert!(error.contains("FALCHION_CACHE"), "{error}");
}

#[test]
fn trimming_leaves_what_the_limit_admits() {
    use Kind::{Kernel, Records};
    let entries = [
        (Kernel, "old", 1000, 50),
        (Kernel, "older", 1000, 60),
        (Kernel, "new", 1000, 2),
        (Records, "first", 1000, 70),
        (Records, "second", 1000, 5),
    ];
    let all = ["old", "older", "new", "first", "second"];
    let file = {
        let (_folder, cache) = folder(&entries[..1]);
        fs::metadata(cache.path(Kernel, &key("old"))).expect("there").len()
    };
    for (why, limit, want) in [
        ("room for all", Limit::Bytes(u64::MAX), &all[..]),
        ("just enough", Limit::Bytes(5 * file + 10), &all[..]),
        (
            "the kernel that was not used for longest goes first",
            Limit::Bytes(5 * file - 10),
            &["old", "new", "first", "second"],
        ),
        ("then the next", Limit::Bytes(3 * file + 10), &["new", "first", "second"]),
        ("then records, the oldest first", Limit::Bytes(file + 10), &["second"]),
        ("nothing", Limit::Bytes(0), &[]),
        ("a long time", Limit::Age(Duration::from_secs(80 * 3600)), &all[..]),
        ("two days", Limit::Age(Duration::from_secs(48 * 3600)), &["new", "second"]),
        ("no time", Limit::Age(Duration::ZERO), &[]),
    ] {
        let (_folder, cache) = folder(&entries);
        let before: u128 =
            cache.entries().expect("readable").iter().map(|entry| u128::from(entry.bytes)).sum();
        let removed = cache.trim(limit).expect("removable");
        let left: u128 = cache.entries().expect("readable").iter().map(|entry| u128::from(entry.bytes)).sum();
        assert_eq!((removed.entries, removed.bytes), (5 - want.len(), before - left), "{why}");
        for (kind, name, ..) in entries {
            let there = cache.get(kind, &key(name)).expect("whole").is_some();
            assert_eq!(there, want.contains(&name), "{why}: {name}");
        }
    }
}

/// Reading an entry updates its time of use, so trimming keeps it.
#[test]
fn use_is_noted() {
    let (_folder, cache) = folder(&[(Kind::Kernel, "a", 1, 100), (Kind::Kernel, "b", 1, 90)]);
    cache.get(Kind::Kernel, &key("a")).expect("whole");
    let removed = cache.trim(Limit::Age(Duration::from_secs(3600))).expect("removable");
    assert_eq!(removed.entries, 1);
    assert!(cache.get(Kind::Kernel, &key("a")).expect("whole").is_some());
}

/// Files that are not entries stay, and so do files that another process is writing.
#[test]
fn clearing_removes_entries_alone() {
    let (_folder, cache) = folder(&[(Kind::Kernel, "a", 5, 0), (Kind::Records, "b", 5, 0)]);
    let place = |name: &str| cache.folder().join(name);
    let stays = ["notes.txt", "0.kernel", "aa.records", ".falchion-young", "lock", "sub/0.kernel"];
    fs::create_dir(place("sub")).expect("writable");
    for name in stays.into_iter().chain([".falchion-old"]) {
        fs::write(place(name), "x").expect("writable");
    }
    age(&place(".falchion-old"), 2);
    age(&place("notes.txt"), 2);
    // A damaged entry still counts as an entry.
    fs::write(cache.path(Kind::Kernel, &key("c")), "damaged").expect("writable");
    let entries = cache.entries().expect("readable");
    assert_eq!(entries.iter().filter(|entry| entry.key.is_none()).count(), 1);
    assert_eq!(entries.iter().filter_map(|entry| entry.key.clone()).collect::<Vec<_>>().len(), 2);
    assert_eq!(cache.clear().expect("removable").entries, 3);
    assert_eq!(cache.entries(), Ok(Vec::new()));
    for name in stays {
        assert!(place(name).exists(), "{name}");
    }
    assert!(!place(".falchion-old").exists(), "it was never finished");
    assert_eq!(Cache::at("no/such/folder").clear(), Ok(Removed::default()));
}
