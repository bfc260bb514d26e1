//! `cargo xtask shape --patches`: whether each patch does what it says.
//!
//! A copy of the working tree in the target folder gets the patch's test alone, which must fail, and then the rest, with which the
//! test must pass. The copy has a target folder of its own, which all patches share.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::patch::{Part, Patch};
use crate::cargo;
use crate::error::Error;

/// Which patches are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// One, drawn by the commit.
    Drawn,
    /// Those with these names.
    Named(Vec<String>),
}

/// Tries patches. All are tried, even if an early one fails.
pub(crate) fn run(root: &Path, patches: &[Patch], which: &Which) -> Result<(), Error> {
    let folder = cargo::target_directory()?.join("shape");
    let commit = if *which == Which::Drawn { commit(root)? } else { String::new() };
    let chosen = chosen(patches, which, &commit)?;
    let mut failed = Vec::new();
    for patch in chosen {
        eprintln!("\nxtask: {}: {}", patch.path, patch.change);
        match one(root, &folder, patch) {
            Ok(()) => eprintln!("xtask: {} touches {} shipped files", patch.path, patch.shipped().count()),
            Err(error) => failed.push(error.to_string()),
        }
    }
    Error::if_any(failed, "patches do not do what they say")
}

/// The patches that are tried.
fn chosen<'p>(patches: &'p [Patch], which: &Which, commit: &str) -> Result<Vec<&'p Patch>, Error> {
    match which {
        Which::All => Ok(patches.iter().collect()),
        Which::Drawn => {
            // The first digits of a hash are as good as a die.
            let number = commit.get(..8).and_then(|digits| u64::from_str_radix(digits, 16).ok());
            let number = number.ok_or_else(|| Error::Shape(format!("`{commit}` is no hash of a commit")))?;
            let number = number.checked_rem(patches.len() as u64).unwrap_or(0) as usize;
            Ok(patches.get(number).into_iter().collect())
        }
        Which::Named(names) => {
            let find = |name: &String| {
                let known = || patches.iter().map(|patch| patch.name.as_str()).collect::<Vec<_>>().join(", ");
                let found = patches.iter().find(|patch| patch.name == *name);
                found
                    .ok_or_else(|| Error::Shape(format!("there is no patch `{name}`; there are {}", known())))
            };
            names.iter().map(find).collect()
        }
    }
}

fn one(root: &Path, folder: &Path, patch: &Patch) -> Result<(), Error> {
    let tree = folder.join("tree");
    copy(root, &tree)?;
    patch.apply(root, &tree, Part::Tests)?;
    if test(&tree, folder, patch).is_ok() {
        return Err(Error::Shape(format!(
            "the test of {} passes without its change: it tests nothing",
            patch.path
        )));
    }
    patch.apply(root, &tree, Part::Rest)?;
    let with = test(&tree, folder, patch);
    with.map_err(|error| Error::Shape(format!("the test of {} fails with its change: {error}", patch.path)))
}

fn test(tree: &Path, folder: &Path, patch: &Patch) -> Result<(), Error> {
    let arguments: Vec<&str> = patch.test.iter().map(String::as_str).collect();
    cargo::run(&arguments, |command| {
        command
            .current_dir(tree)
            .env("CARGO_TARGET_DIR", folder.join("target"))
            .env_remove("CARGO_MANIFEST_DIR");
    })
}

/// Makes a folder the same as the working tree: what is committed or could be. Files that are equal are not written, so that cargo
/// builds again only what differs.
fn copy(root: &Path, tree: &Path) -> Result<(), Error> {
    let listed = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    let mut wanted = BTreeSet::new();
    for name in listed.split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), tree.join(name));
        // A deleted file is still listed.
        let Ok(bytes) = fs::read(&from) else { continue };
        wanted.insert(to.clone());
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        let made = to.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&to, bytes));
        let made = made.and_then(|()| fs::set_permissions(&to, fs::metadata(&from)?.permissions()));
        made.map_err(|source| Error::CannotWrite { path: to, source })?;
    }
    remove_others(tree, &wanted)
}

/// Removes the files of a folder that are not wanted there.
fn remove_others(folder: &Path, wanted: &BTreeSet<PathBuf>) -> Result<(), Error> {
    let cannot = |source| Error::CannotRead { path: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.is_dir() && !path.is_symlink() {
            remove_others(&path, wanted)?;
        } else if !wanted.contains(&path) {
            fs::remove_file(&path).map_err(|source| Error::CannotWrite { path, source })?;
        }
    }
    Ok(())
}

fn commit(root: &Path) -> Result<String, Error> {
    Ok(git(root, &["rev-parse", "HEAD"])?.trim().to_owned())
}

/// What a git command prints.
fn git(root: &Path, arguments: &[&str]) -> Result<String, Error> {
    let shown = format!("git {}", arguments.join(" "));
    let mut command = Command::new("git");
    let output =
        command.current_dir(root).args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    match output {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(Error::CommandFailed { command: shown, status: output.status }),
        Err(source) => Err(Error::CannotStart { command: shown, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_chosen() {
        let text = "measure: m\nchange: c\ntest: cargo test\n\ndiff --git a/src/a.rs b/src/a.rs\n--- a/src/a.rs\n+++ b/src/a.rs\n\
                    diff --git a/tests/a.rs b/tests/a.rs\n--- a/tests/a.rs\n+++ b/tests/a.rs\n";
        let patches = ["a", "b", "c"].map(|name| Patch::parse(name, text).expect("a patch"));
        let named = |names: &[&str]| Which::Named(names.iter().map(|name| name.to_string()).collect());
        for (which, commit, want) in [
            (Which::All, "", Some(vec!["a", "b", "c"])),
            (Which::Drawn, "00000004ffff", Some(vec!["b"])),
            (Which::Drawn, "00000005ffff", Some(vec!["c"])),
            (Which::Drawn, "no hash", None),
            (named(&["c", "a"]), "", Some(vec!["c", "a"])),
            (named(&["d"]), "", None),
        ] {
            let found = chosen(&patches, &which, commit).ok();
            let names = found.map(|found| found.iter().map(|patch| patch.name.clone()).collect::<Vec<_>>());
            assert_eq!(
                names,
                want.map(|want| want.iter().map(|name| name.to_string()).collect()),
                "{which:?}"
            );
        }
        assert!(chosen(&[], &Which::Drawn, "00000004ffff").expect("none").is_empty());
    }
}
