//! Files that commands write: whole or not at all, through links, and into pipes.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;

use crate::{falchion, folder};

const SMALL: [&str; 9] = ["gemm", "--engine", "emulator", "--m", "64", "--n", "64", "--k", "64"];

fn names(folder: &Path) -> Vec<String> {
    let entry =
        |entry: Result<fs::DirEntry, _>| entry.expect("ours").file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = fs::read_dir(folder).expect("there").map(entry).collect();
    names.sort();
    names
}

fn empty(name: &str) -> std::path::PathBuf {
    let folder = folder(name);
    fs::remove_dir_all(&folder).expect("ours");
    fs::create_dir_all(&folder).expect("ours");
    folder
}

/// A link stays a link, to a file that was there or was not, and a command that fails leaves everything.
#[test]
fn links_stay() {
    let folder = empty("out-links");
    fs::create_dir(folder.join("far")).expect("ours");
    let link = folder.join("d.npy");
    symlink("far/real.npy", &link).expect("ours");
    let out = link.display().to_string();
    let is_link = || fs::symlink_metadata(&link).is_ok_and(|there| there.is_symlink());
    let failed = falchion(&[&SMALL[..], &["--kernel", "nothing", "--out", &out]].concat());
    assert_eq!(failed.code, Some(2), "{}", failed.stdout);
    assert!(is_link() && names(&folder.join("far")).is_empty(), "{:?}", names(&folder));
    for why in ["to no file yet", "to the file of the first run"] {
        let run = falchion(&[&SMALL[..], &["--out", &out]].concat());
        assert_eq!(run.code, Some(0), "{why}: {}", run.stderr);
        assert!(is_link(), "{why}");
        assert_eq!(
            (names(&folder), names(&folder.join("far"))),
            (vec!["d.npy".into(), "far".into()], vec!["real.npy".into()]),
            "{why}"
        );
    }
    symlink("loop.npy", folder.join("loop.npy")).expect("ours");
    let run = falchion(&[&SMALL[..], &["--out", &folder.join("loop.npy").display().to_string()]].concat());
    assert_eq!(run.code, Some(2), "{}", run.stdout);
    assert!(run.stderr.contains("links lead from one to the next"), "{}", run.stderr);
}

/// A write that fails in the middle leaves the file of before, and nothing beside it.
#[test]
fn a_failed_write_leaves_the_old_file() {
    let folder = empty("out-failed");
    let out = folder.join("d.npy");
    fs::write(&out, "old").expect("ours");
    // Files of at most a block or two; without the signal, longer ones are an error.
    let limited = format!("trap '' XFSZ; ulimit -f 2; exec {} \"$@\"", env!("CARGO_BIN_EXE_falchion"));
    let path = out.display().to_string();
    let arguments = [&SMALL[..], &["--out", &path]].concat();
    let output = Command::new("sh").args(["-c", &limited, "sh"]).args(arguments).output().expect("a shell");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot write") && stderr.contains("d.npy"), "{stderr}");
    assert_eq!(fs::read_to_string(&out).expect("there"), "old");
    assert_eq!(names(&folder), ["d.npy"]);
}

#[test]
fn permissions_stay_and_new_files_have_the_usual_ones() {
    let folder = empty("out-permissions");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    let usual = folder.join("usual");
    fs::write(&usual, "").expect("ours");
    for (name, before, want) in [("new.npy", None, mode(&usual)), ("old.npy", Some(0o640), 0o640)] {
        let out = folder.join(name);
        if let Some(mode) = before {
            fs::write(&out, "old").expect("ours");
            fs::set_permissions(&out, fs::Permissions::from_mode(mode)).expect("ours");
        }
        let run = falchion(&[&SMALL[..], &["--out", &out.display().to_string()]].concat());
        assert_eq!(run.code, Some(0), "{name}: {}", run.stderr);
        assert_eq!(mode(&out), want, "{name}");
        assert!(fs::read(&out).expect("there").starts_with(b"\x93NUMPY"), "{name}");
    }
}

/// A pipe is opened once, when there is something to write, so that its reader gets all of it.
#[test]
fn pipes_are_written() {
    let folder = empty("out-pipes");
    let pipe = folder.join("d.npy");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).expect("a pipe")
    });
    let run = falchion(&[&SMALL[..], &["--out", &pipe.display().to_string()]].concat());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let bytes = reader.join().expect("it reads");
    assert!(bytes.starts_with(b"\x93NUMPY") && bytes.len() == 128 + 64 * 64 * 4, "{} B", bytes.len());
    assert_eq!(names(&folder), ["d.npy"]);
    let emitted = falchion(&["emit", "--kernel", "64x64-direct-bf16-kk"]).stdout;
    let run = falchion(&["emit", "--kernel", "64x64-direct-bf16-kk", "-o", "/dev/stdout"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.contains(emitted.trim()), "{}", run.stdout);
}
