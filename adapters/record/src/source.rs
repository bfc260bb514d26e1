//! Finds the PTX of a kernel: in what was loaded, in folders, in Triton's cache, in the files of the program.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::image::{Image, digest};
use crate::settings::Settings;
use crate::{elf, entry, say};

/// A kernel's PTX, and where it is from.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) origin: String,
}

/// Finds the PTX of a kernel.
pub(crate) fn find(kernel: &str, image: Option<&Image>, settings: &Settings) -> Option<Source> {
    let loaded = image.and_then(|image| best(kernel, image));
    let loaded = loaded.map(|text| Source { text, origin: "the module that was loaded".to_owned() });
    let binaries = image.map_or(&[][..], |image| &image.binaries);
    let found = loaded
        .or_else(|| of_folders(kernel, &settings.ptx, binaries))
        .or_else(|| of_folders(kernel, &triton(), binaries));
    if found.is_some() || image.is_some() {
        return found;
    }
    // The program has loaded it by a way that was not seen.
    say(&format!("`{kernel}` was loaded unseen, the program's files are searched for its PTX"));
    elf::loaded().iter().find_map(|path| {
        let mut text = None;
        elf::fat_binaries(path, &mut |image| {
            text = best(kernel, &image);
            text.is_some()
        });
        Some(Source { text: text?, origin: path.display().to_string() })
    })
}

/// The text of an image that suits Hopper best: the newest one up to `sm_90`, or the oldest one after that.
fn best(kernel: &str, image: &Image) -> Option<String> {
    let mut texts: Vec<_> = image.texts.iter().collect();
    texts.sort_by_key(|text| if text.target <= 90 { 90 - text.target } else { text.target });
    texts.iter().filter_map(|text| text.text()).find(|text| entry::has(text, kernel))
}

/// Where Triton keeps what it has compiled.
fn triton() -> Vec<PathBuf> {
    let named = std::env::var_os("TRITON_CACHE_DIR").map(PathBuf::from);
    let home = || std::env::var_os("TRITON_HOME").or_else(|| std::env::var_os("HOME")).map(PathBuf::from);
    named.or_else(|| home().map(|home| home.join(".triton/cache"))).into_iter().collect()
}

/// A PTX file that has a kernel.
struct File {
    path: PathBuf,
    text: String,
    changed: Option<SystemTime>,
    /// Whether the binary beside it is the one that was loaded.
    is_loaded: bool,
}

fn of_folders(kernel: &str, folders: &[PathBuf], binaries: &[(usize, u64)]) -> Option<Source> {
    let mut paths = Vec::new();
    folders.iter().for_each(|folder| walk(folder, DEPTH, &mut paths));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).ok().filter(|text| entry::has(text, kernel))?;
        let changed = path.metadata().and_then(|about| about.modified()).ok();
        let is_loaded = std::fs::read(path.with_extension("cubin"))
            .is_ok_and(|binary| binaries.contains(&(binary.len(), digest(&binary))));
        Some(File { path, text, changed, is_loaded })
    };
    let mut files: Vec<File> = paths.into_iter().filter_map(read).collect();
    files.sort_by_key(|file| (file.is_loaded, file.changed));
    let others = files.len().saturating_sub(1);
    let File { path, text, is_loaded, .. } = files.pop()?;
    if others > 0 && !is_loaded {
        say(&format!(
            "{} files have a kernel `{kernel}`, and none is known to be the loaded one: the newest is taken, {}",
            others + 1,
            path.display()
        ));
    }
    Some(Source { text, origin: path.display().to_string() })
}

/// How deep folders are searched.
const DEPTH: u32 = 4;

fn walk(folder: &Path, depth: u32, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "ptx") {
            paths.push(path);
        } else if depth > 0 && path.is_dir() {
            walk(&path, depth - 1, paths);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::best;
    use crate::image::{Image, Packed, Packing};

    #[test]
    fn the_text_for_hopper_is_taken() {
        let text = |target: u32| Packed {
            target,
            bytes: format!(".target sm_{target}\n.entry k() {{}}").into_bytes(),
            packing: Packing::Plain,
        };
        for (targets, want) in [(&[80, 90, 120][..], "sm_90"), (&[100, 120], "sm_100"), (&[52, 75], "sm_75")]
        {
            let image =
                Image { texts: targets.iter().map(|&target| text(target)).collect(), binaries: Vec::new() };
            assert!(best("k", &image).expect("one").contains(want));
            assert!(best("other", &image).is_none());
        }
    }
}
