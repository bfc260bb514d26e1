//! The code that is shipped: what the crates' roots reach by `mod`, without tests.
//!
//! A crate is a folder with a `Cargo.toml`. Those in `tests`, and this one, are not shipped. Of a crate, `src/lib.rs`,
//! `src/main.rs` and the programs in `src/bin` are roots; examples, benchmarks, tests and build scripts are not shipped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

use super::code::Code;
use crate::error::Error;

/// Folders without shipped crates.
const OTHERS: [&str; 7] = ["tests", "examples", "benches", "docs", "target", "xtask", "src"];

/// Folders of shipped files that are no Rust: C's header and the modules of Python.
const FOREIGN: [&str; 2] = ["adapters/c/include/", "adapters/python/python/"];

/// The shipped code, by path.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    files: BTreeMap<String, Code>,
}

impl Sources {
    /// Reads the shipped code of a repository.
    ///
    /// # Errors
    /// A file that cannot be read, or is no Rust.
    pub(crate) fn shipped(root: &Path) -> Result<Self, Error> {
        let mut folders = Vec::new();
        crates(root, &mut folders)?;
        let mut roots = Vec::new();
        for folder in folders {
            let src = folder.join("src");
            roots.extend(
                ["lib.rs", "main.rs"].map(|name| src.join(name)).into_iter().filter(|path| path.is_file()),
            );
            for path in entries(&src.join("bin"))? {
                let main = path.join("main.rs");
                roots.extend(if path.is_dir() {
                    main.is_file().then_some(main)
                } else {
                    is_rust(&path).then_some(path)
                });
            }
        }
        let left = Mutex::new(roots);
        let next = || left.lock().ok()?.pop();
        let read = || -> Result<Vec<Code>, Error> {
            let mut files = Vec::new();
            while let Some(path) = next() {
                tree(root, path, true, &mut files)?;
            }
            Ok(files)
        };
        let count = thread::available_parallelism().map_or(1, usize::from).min(8);
        let files = thread::scope(|scope| {
            let readers: Vec<_> = (0..count).map(|_| scope.spawn(read)).collect();
            readers.into_iter().map(|reader| reader.join()).collect::<Vec<_>>()
        });
        let mut sources = Self::default();
        for of in files {
            let of = of.map_err(|_| Error::Shape("a thread that reads sources has panicked".to_owned()))?;
            sources.files.extend(of?.into_iter().map(|code| (code.path.clone(), code)));
        }
        Ok(sources)
    }

    /// Of texts, for tests.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let read = |(path, text): &(&str, &str)| (path.to_string(), Code::read(path, text).expect("Rust"));
        Self { files: files.iter().map(read).collect() }
    }

    /// All files.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Code> {
        self.files.values()
    }

    /// The files whose paths begin so.
    pub(crate) fn under<'a>(&'a self, folders: &'a [String]) -> impl Iterator<Item = &'a Code> {
        self.files().filter(|code| folders.iter().any(|folder| is_under(&code.path, folder)))
    }

    /// A file of the shipped code.
    pub(crate) fn file(&self, path: &str) -> Option<&Code> {
        self.files.get(path)
    }
}

/// A file that need not be shipped.
///
/// # Errors
/// It cannot be read, or is no Rust.
pub(crate) fn single(root: &Path, path: &str) -> Result<Code, Error> {
    let file = root.join(path);
    let text = fs::read_to_string(&file).map_err(|source| Error::CannotRead { path: file, source })?;
    Code::read(path, &text).map_err(Error::Shape)
}

/// Whether a path is a folder or a file, or is in it.
pub(crate) fn is_under(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || folder.ends_with('/'))
}

/// Whether a file with this path would be shipped: in a crate's `src`, and no file of tests; or a header, or a module of Python.
pub(crate) fn is_shipped(path: &str) -> bool {
    if FOREIGN.iter().any(|folder| path.starts_with(folder)) {
        return true;
    }
    let parts: Vec<&str> = path.split('/').collect();
    let Some(src) = parts.iter().position(|part| *part == "src") else { return false };
    let outside = parts[..src].iter().any(|part| OTHERS.contains(part));
    let tests = parts[src..].iter().any(|part| ["tests", "tests.rs"].contains(part));
    path.ends_with(".rs") && !outside && !tests
}

/// Whether a file with this path is a test, or what one compares with.
pub(crate) fn is_test(path: &str) -> bool {
    path.split('/').any(|part| ["tests", "tests.rs"].contains(&part))
}

/// The shipped crates in a folder, and in the folders in it.
fn crates(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), Error> {
    if folder.join("Cargo.toml").is_file() {
        found.push(folder.to_owned());
    }
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() && !name.starts_with('.') && !OTHERS.contains(&&*name) {
            crates(&path, found)?;
        }
    }
    Ok(())
}

/// What is in a folder, in order; nothing if there is none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let cannot = |source| Error::CannotRead { path: folder.to_owned(), source };
    let entries = fs::read_dir(folder).map_err(cannot)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>().map_err(cannot)?;
    paths.sort();
    Ok(paths)
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

/// Reads a file and the modules that it names. `owns` says whether these are beside it, as those of a root are.
fn tree(root: &Path, path: PathBuf, owns: bool, files: &mut Vec<Code>) -> Result<(), Error> {
    let text =
        fs::read_to_string(&path).map_err(|source| Error::CannotRead { path: path.clone(), source })?;
    let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().replace('\\', "/");
    let code = Code::read(&name, &text).map_err(Error::Shape)?;
    let beside = path.parent().unwrap_or(root);
    let stem = path.file_stem().unwrap_or_default();
    let folder = if owns || stem == "mod" { beside.to_owned() } else { beside.join(stem) };
    let modules = code.modules.clone();
    files.push(code);
    for module in modules {
        let inner = module.within.iter().fold(folder.clone(), |folder, name| folder.join(name));
        let (own, nested) =
            (inner.join(format!("{}.rs", module.name)), inner.join(&module.name).join("mod.rs"));
        // Without inline modules around it, an attribute's path begins beside the file.
        let (path, owns) = match &module.path {
            Some(path) if module.within.is_empty() => (beside.join(path), true),
            Some(path) => (inner.join(path), true),
            None if own.is_file() => (own, false),
            None => (nested, false),
        };
        tree(root, path, owns, files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_reached_from_their_crates() {
        let root = std::env::temp_dir().join(format!("falchion-shape-sources-{}", std::process::id()));
        for (path, text) in [
            ("Cargo.toml", ""),
            ("src/lib.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod tests;"),
            ("src/a.rs", "mod inner;"),
            ("src/a/inner.rs", ""),
            ("src/b/mod.rs", "mod deep;\n#[path = \"moved/c.rs\"]\nmod c;"),
            ("src/b/deep.rs", ""),
            ("src/b/moved/c.rs", ""),
            ("src/tests.rs", ""),
            ("src/unreached.rs", "no Rust"),
            ("src/bin/one.rs", ""),
            ("src/bin/two/main.rs", "mod of_two;"),
            ("src/bin/two/of_two.rs", ""),
            ("adapters/c/Cargo.toml", ""),
            ("adapters/c/src/lib.rs", ""),
            ("tests/outside/Cargo.toml", ""),
            ("tests/outside/src/lib.rs", "no Rust"),
            ("xtask/Cargo.toml", ""),
            ("xtask/src/main.rs", "no Rust"),
        ] {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let sources = Sources::shipped(&root);
        fs::remove_dir_all(&root).expect("removed");
        let sources = sources.expect("Rust");
        let found: Vec<&str> = sources.files().map(|code| code.path.as_str()).collect();
        let want = [
            "adapters/c/src/lib.rs",
            "src/a.rs",
            "src/a/inner.rs",
            "src/b/deep.rs",
            "src/b/mod.rs",
            "src/b/moved/c.rs",
            "src/bin/one.rs",
            "src/bin/two/main.rs",
            "src/bin/two/of_two.rs",
            "src/lib.rs",
        ];
        assert_eq!(found, want);
        assert!(sources.files().all(|code| is_shipped(&code.path)));
        for (folder, count) in [("src", 9), ("src/b", 3), ("src/a", 1), ("src/a.rs", 1), ("sr", 0)] {
            assert_eq!(sources.under(&[folder.to_owned()]).count(), count, "{folder}");
        }
    }
}
