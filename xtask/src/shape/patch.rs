//! Canonical changes as patches, `xtask/patches/*.patch`: what a change has to touch is counted, not guessed.
//!
//! A patch begins with a header of three lines, `measure: <the measure's name>`, `change: <what it does>` and `test: cargo test ..`,
//! and perhaps `own: <folder>`, whose files are the change's own and are not counted. Then follows what `git diff` prints. Its tests
//! are files of their own, under a folder `tests` or named `tests.rs`, so that they can be applied alone. [`Patch::shipped`] is the
//! measure: the shipped files that it touches.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::sources::{is_shipped, is_test, is_under};
use super::taken::Taken;
use crate::error::Error;

/// Where the patches are, from the root of the repository.
pub(crate) const FOLDER: &str = "xtask/patches";

/// A patch.
#[derive(Debug)]
pub(crate) struct Patch {
    /// The name of its file, without the extension.
    pub(crate) name: String,
    /// Its path from the root of the repository.
    pub(crate) path: String,
    /// The name of the measure that it is for.
    pub(crate) measure: String,
    pub(crate) change: String,
    /// The arguments of cargo: a test that fails without the change.
    pub(crate) test: Vec<String>,
    own: Option<String>,
    /// The files that it touches.
    files: Vec<String>,
}

impl Patch {
    /// All patches of a repository, in the order of their names.
    ///
    /// # Errors
    /// One that cannot be read, or has no such header.
    pub(crate) fn all(root: &Path) -> Result<Vec<Self>, Error> {
        let folder = root.join(FOLDER);
        let cannot = |source| Error::CannotRead { path: folder.clone(), source };
        let mut names = Vec::new();
        for entry in fs::read_dir(&folder).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".patch").map(str::to_owned));
        }
        names.sort();
        let read = |name: String| {
            let path = folder.join(format!("{name}.patch"));
            let text = fs::read_to_string(&path).map_err(|source| Error::CannotRead { path, source })?;
            Self::parse(&name, &text)
        };
        names.into_iter().map(read).collect()
    }

    /// Reads the text of a patch.
    ///
    /// # Errors
    /// What its header lacks, or that it has no test or no change.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let path = format!("{FOLDER}/{name}.patch");
        let wrong = |problem: &str| Error::Shape(format!("{path} {problem}"));
        let (header, diff) =
            text.split_at(text.find("diff --git ").ok_or_else(|| wrong("has no `diff --git`"))?);
        let field = |key: &str| {
            let found = header.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
            found.map(str::trim).filter(|value| !value.is_empty()).map(str::to_owned)
        };
        let needed = |key: &str| {
            field(key).ok_or_else(|| wrong(&format!("has no line `{key}: ..` before its first file")))
        };
        let (measure, change, test) = (needed("measure")?, needed("change")?, needed("test")?);
        let test = test.strip_prefix("cargo ").ok_or_else(|| wrong("has a test that is no `cargo ..`"))?;
        let test = test.split_whitespace().map(str::to_owned).collect();
        let mut files: Vec<String> = Vec::new();
        for line in diff.lines() {
            let of = ["--- a/", "+++ b/", "rename from ", "rename to "]
                .iter()
                .find_map(|begin| line.strip_prefix(begin));
            files.extend(of.map(|path| path.trim_end().to_owned()));
        }
        files.sort();
        files.dedup();
        let patch = Self {
            name: name.to_owned(),
            path: path.clone(),
            measure,
            change,
            test,
            own: field("own"),
            files,
        };
        if patch.tests().next().is_none() {
            return Err(wrong("has no test: a file under a folder `tests`, or named `tests.rs`"));
        }
        if patch.files.iter().all(|file| is_test(file)) {
            return Err(wrong("has tests alone"));
        }
        Ok(patch)
    }

    /// The shipped files that it touches, without the change's own.
    pub(crate) fn shipped(&self) -> impl Iterator<Item = &str> {
        let own = |file: &str| self.own.as_ref().is_some_and(|own| is_under(file, own.trim_end_matches('/')));
        self.files.iter().map(String::as_str).filter(move |file| is_shipped(file) && !own(file))
    }

    /// The files of its test.
    pub(crate) fn tests(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str).filter(|file| is_test(file))
    }

    /// Applies it in a folder, or with `check` sees whether it could be: all of it, or the files of its test alone.
    ///
    /// # Errors
    /// It does not apply.
    pub(crate) fn apply(&self, root: &Path, folder: &Path, part: Part) -> Result<(), Error> {
        let mut command = Command::new("git");
        // The copy of a tree is no repository: paths begin in it.
        command.current_dir(folder).env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap_or(folder));
        command.args(["apply", "-C1"]).stdin(Stdio::null());
        match part {
            Part::Check => drop(command.arg("--check")),
            Part::Tests => drop(command.args(self.tests().map(|file| format!("--include={file}")))),
            Part::Rest => drop(command.args(self.tests().map(|file| format!("--exclude={file}")))),
        }
        let shown = format!("git apply {}", self.path);
        let output = command.arg(root.join(&self.path)).output();
        let output = output.map_err(|source| Error::CannotStart { command: shown, source })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Error::Shape(format!(
            "{} does not apply: {}. Apply it by hand (`git apply --3way`), and write the new diff below its header.",
            self.path,
            said.trim()
        )))
    }
}

/// What of a patch is applied.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    /// Nothing: whether it could be.
    Check,
    /// Its test.
    Tests,
    /// All but its test.
    Rest,
}

/// The files that the patch of a measure touches; no value if there is no patch.
pub(crate) fn files(patches: &[Patch], measure: &str) -> Taken {
    let mut of = patches.iter().filter(|patch| patch.measure == measure);
    let Some(patch) = of.next() else { return Taken::default() };
    let mut taken = Taken::each(patch.shipped().map(str::to_owned));
    taken
        .wrong
        .extend(of.map(|other| format!("{} is another patch for the measure of {}", other.path, patch.path)));
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "measure: files for a verb\nchange: a verb\ntest: cargo test --test cli verb\n\n";

    fn diff(files: &[&str]) -> String {
        files
            .iter()
            .map(|file| {
                format!("diff --git a/{file} b/{file}\n--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-a\n+b\n")
            })
            .collect()
    }

    #[test]
    fn shipped_files_are_counted() {
        for (why, files, own, want) in [
            ("two files", vec!["src/lib.rs", "kernel/src/a.rs", "tests/cli/main.rs"], None, 2),
            (
                "tests beside the code",
                vec!["src/lib.rs", "kernel/src/a/tests.rs", "kernel/src/a/tests/b.rs"],
                None,
                1,
            ),
            ("pages and tables", vec!["src/lib.rs", "docs/a.md", "README.md", "tests/digests.txt"], None, 1),
            (
                "headers and Python",
                vec!["adapters/c/include/f.h", "adapters/python/python/f/a.py", "tests/a.rs"],
                None,
                2,
            ),
            ("manifests", vec!["Cargo.toml", "src/lib.rs", "tests/a.rs"], None, 1),
            (
                "examples and tasks",
                vec!["src/lib.rs", "examples/src/a.rs", "xtask/src/main.rs", "tests/outside/src/a.rs"],
                None,
                1,
            ),
            (
                "its own",
                vec!["src/lib.rs", "conv/src/lib.rs", "conv/src/a.rs", "tests/a.rs"],
                Some("conv/"),
                1,
            ),
        ] {
            let own = own.map(|own| format!("own: {own}\n")).unwrap_or_default();
            let patch = Patch::parse("p", &format!("{own}{HEADER}{}", diff(&files))).expect("a patch");
            assert_eq!(patch.shipped().count(), want, "{why}");
            let taken = super::files(&[patch], "files for a verb");
            assert_eq!(taken.value, Some(want as u32), "{why}");
        }
        assert_eq!(files(&[], "files for a verb").value, None);
        let twice = ["p", "q"].map(|name| {
            Patch::parse(name, &format!("{HEADER}{}", diff(&["src/a.rs", "tests/a.rs"]))).expect("a patch")
        });
        assert_eq!(files(&twice, "files for a verb").wrong.len(), 1);
    }

    #[test]
    fn new_deleted_and_renamed_files_are_touched() {
        let text = "diff --git a/src/new.rs b/src/new.rs\nnew file mode 100644\n--- /dev/null\n+++ b/src/new.rs\n@@ -0,0 +1 @@\n+a\n\
                    diff --git a/src/old.rs b/src/old.rs\ndeleted file mode 100644\n--- a/src/old.rs\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n\
                    diff --git a/src/a.rs b/src/b.rs\nrename from src/a.rs\nrename to src/b.rs\n";
        let patch = Patch::parse("p", &format!("{HEADER}{text}{}", diff(&["tests/a.rs"]))).expect("a patch");
        assert_eq!(patch.shipped().collect::<Vec<_>>(), ["src/a.rs", "src/b.rs", "src/new.rs", "src/old.rs"]);
        assert_eq!(patch.tests().collect::<Vec<_>>(), ["tests/a.rs"]);
        assert_eq!(patch.test, ["test", "--test", "cli", "verb"]);
    }

    #[test]
    fn a_patch_is_applied_in_parts() {
        let root = std::env::temp_dir().join(format!("falchion-shape-patch-{}", std::process::id()));
        let (tree, folder) = (root.join("tree"), root.join(FOLDER));
        let text = format!("{HEADER}{}", diff(&["src/a.rs", "tests/a.rs"]));
        for (path, text) in [
            (tree.join("src/a.rs"), "a\n"),
            (tree.join("tests/a.rs"), "a\n"),
            (folder.join("p.patch"), text.as_str()),
        ] {
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let patches = Patch::all(&root).expect("a patch");
        let read =
            || ["src/a.rs", "tests/a.rs"].map(|path| fs::read_to_string(tree.join(path)).expect("a file"));
        let applied =
            |part| patches[0].apply(&root, &tree, part).map(|()| read().map(|text| text.trim().to_owned()));
        let of = [Part::Check, Part::Tests, Part::Rest, Part::Check].map(applied);
        fs::remove_dir_all(&root).expect("removed");
        for (found, want) in of.iter().zip([["a", "a"], ["a", "b"], ["b", "b"]]) {
            assert_eq!(found.as_ref().expect("applied"), &want);
        }
        let error = of[3].as_ref().expect_err("it is there already").to_string();
        assert!(error.contains("p.patch does not apply"), "{error}");
    }

    #[test]
    fn a_patch_says_what_it_is() {
        let good = format!("{HEADER}{}", diff(&["src/a.rs", "tests/a.rs"]));
        for (text, words) in [
            (good.replace("measure:", "for:"), "no line `measure: ..`"),
            (good.replace("change: a verb\n", ""), "no line `change: ..`"),
            (good.replace("test: cargo", "test: make"), "no `cargo ..`"),
            (good.replace("tests/a.rs", "src/b.rs"), "has no test"),
            (good.replace("src/a.rs", "tests/b.rs"), "has tests alone"),
            (HEADER.to_owned(), "no `diff --git`"),
        ] {
            let error = Patch::parse("p", &text).expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
