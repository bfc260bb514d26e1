//! Files that commands write. A file appears whole or stays as it was: it is written beside its place and then
//! renamed. Devices and pipes are written as they are.

use std::fs::{self, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::verify::Format;
use tempfile::NamedTempFile;

use super::npy;
use crate::cli::Failure;
use crate::cli::output::is_stdout;

/// Where a path leads.
enum Target {
    /// To a file, or to a place for one, through any links.
    File(PathBuf),
    /// To a device, a pipe, or an open file of this process.
    Stream,
}

/// Largest number of links from one to the next, as on Linux.
const MOST_LINKS: u32 = 40;

impl Target {
    fn of(path: &Path) -> io::Result<Self> {
        let mut at = path.to_owned();
        for _ in 0..MOST_LINKS {
            let there = match fs::symlink_metadata(&at) {
                Ok(there) => there,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::File(at)),
                Err(error) => return Err(error),
            };
            // The links in /proc lead to what a process has opened, which may have no path.
            if there.is_symlink() && at.starts_with("/proc") {
                return Ok(Self::Stream);
            }
            if there.is_symlink() {
                let to = fs::read_link(&at)?;
                at = at.parent().map_or(to.clone(), |folder| folder.join(to));
                continue;
            }
            if there.is_dir() {
                return Err(io::Error::from(io::ErrorKind::IsADirectory));
            }
            if !there.is_file() {
                return Ok(Self::Stream);
            }
            // A file that must not be written is not replaced, either.
            OpenOptions::new().append(true).open(&at)?;
            return Ok(Self::File(at));
        }
        Err(io::Error::other(format!("more than {MOST_LINKS} links lead from one to the next")))
    }
}

/// A new file in the folder of `at`, with the permissions that `at` has or would get. It is removed unless it is
/// renamed.
fn beside(at: &Path) -> io::Result<NamedTempFile> {
    let folder = at.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".falchion-");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.tempfile_in(folder)?;
    if let Ok(there) = fs::metadata(at) {
        file.as_file().set_permissions(there.permissions())?;
    }
    Ok(file)
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::environment(format!("cannot write {}: {error}", path.display()))
}

/// Fails unless a file can be written at that path. Nothing changes there, and a pipe is not opened.
pub(crate) fn writable(path: &Path) -> Result<(), Failure> {
    if is_stdout(path) {
        return Ok(());
    }
    let possible = || match Target::of(path)? {
        Target::File(at) => beside(&at).map(drop),
        Target::Stream => Ok(()),
    };
    possible().map_err(|error| unwritten(path, &error))
}

/// Writes a file: whole, or not at all; or standard output, for `-`.
fn replace(path: &Path, contents: impl Fn(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    if is_stdout(path) {
        return Ok(contents(&mut io::stdout().lock())?);
    }
    let written = || match Target::of(path)? {
        Target::Stream => {
            let mut stream = BufWriter::new(OpenOptions::new().append(true).open(path)?);
            contents(&mut stream)?;
            stream.flush()
        }
        Target::File(at) => {
            let mut file = BufWriter::new(beside(&at)?);
            contents(&mut file)?;
            let file = file.into_inner()?;
            file.as_file().sync_all()?;
            file.persist(&at)?;
            Ok(())
        }
    };
    written().map_err(|error| unwritten(path, &error))
}

/// Writes a text file.
pub(crate) fn write_text(path: &Path, text: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Failure> {
    replace(path, |file| file.write_all(text.as_ref()))
}

/// Writes a row-major matrix as .npy: f16 and f64 unchanged, s32 as 32-bit integers, every other format as
/// f32, which represents all of its values.
pub(crate) fn write(
    path: &Path,
    format: Format,
    (extents, transposed): ([u32; 2], bool),
    bits: &[u64],
) -> Result<(), Failure> {
    let (kind, exact) = match (format.is_integer(), format.bytes()) {
        (true, 4) => ("<i4", true),
        _ if format == Format::F16 => ("<f2", true),
        _ if format == Format::F64 => ("<f8", true),
        _ => ("<f4", false),
    };
    replace(path, |file| {
        file.write_all(&npy::Header::of_matrix(kind, extents, transposed))?;
        if exact {
            return file.write_all(&format.memory(bits));
        }
        let single = |&bits: &u64| (format.decode(bits) as f32).to_le_bytes();
        bits.iter().map(single).try_for_each(|bytes| file.write_all(&bytes))
    })
}
