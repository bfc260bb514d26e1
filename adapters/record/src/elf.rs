//! ELF files: how long a binary for a card is, and which fat binaries a program has.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::fatbin;
use crate::image::Image;

/// What an ELF file begins with.
pub(crate) const MAGIC: [u8; 4] = *b"\x7fELF";

/// Bytes of the header, and of the header of a section.
const HEADER: usize = 64;
const SECTION: usize = 64;

fn u16_at(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&word| u16::from_le_bytes(word).into())
}

fn u64_at(bytes: &[u8], at: usize) -> usize {
    let word =
        bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |&word| u64::from_le_bytes(word));
    usize::try_from(word).unwrap_or(0)
}

/// The table of sections: where it begins, and how many there are.
fn table(header: &[u8]) -> (usize, usize) {
    (u64_at(header, 40), u16_at(header, 60))
}

/// The bytes of a file in memory, of which the first ones are read.
pub(crate) fn size(read: &dyn Fn(usize) -> Vec<u8>) -> usize {
    let header = read(HEADER);
    let (at, count) = table(&header);
    let segments = u64_at(&header, 32) + u16_at(&header, 54) * u16_at(&header, 56);
    let end = (at + count * SECTION).max(segments).max(HEADER);
    let all = read(end);
    let ends = all.get(at..at + count * SECTION).unwrap_or_default().chunks_exact(SECTION).map(|section| {
        // A section without bytes in the file.
        let is_empty = section[4] == 8;
        u64_at(section, 24) + if is_empty { 0 } else { u64_at(section, 32) }
    });
    ends.max().unwrap_or(0).max(end)
}

/// The fat binaries in a program or a library, one after the other, until one is the wanted one.
pub(crate) fn fat_binaries(path: &Path, wanted: &mut dyn FnMut(Image) -> bool) -> Option<()> {
    let file = File::open(path).ok()?;
    let read = |at: usize, bytes: usize| {
        let mut all = vec![0; bytes];
        file.read_exact_at(&mut all, at as u64).ok().map(|()| all)
    };
    let header = read(0, HEADER)?;
    if header[..4] != MAGIC {
        return None;
    }
    let (at, count) = table(&header);
    let sections = read(at, count * SECTION)?;
    let sections: Vec<&[u8]> = sections.chunks_exact(SECTION).collect();
    let names = sections.get(u16_at(&header, 62))?;
    let names = read(u64_at(names, 24), u64_at(names, 32))?;
    for section in sections {
        let name = u16_at(section, 0) | u16_at(section, 2) << 16;
        if !names.get(name..).is_some_and(|name| name.starts_with(b".nv_fatbin\0")) {
            continue;
        }
        let (start, length) = (u64_at(section, 24), u64_at(section, 32));
        let mut at = 0;
        while at < length {
            let part = |offset: usize, bytes: usize| {
                let end = at.checked_add(offset)?.checked_add(bytes)?;
                if end > length { None } else { read(start + at + offset, bytes) }
            };
            match fatbin::size(&part) {
                Some(bytes) => {
                    if wanted(fatbin::image(&part)) {
                        return Some(());
                    }
                    at += bytes.next_multiple_of(8);
                }
                // What is between two.
                None => at += 8,
            }
        }
    }
    None
}

/// The files that are loaded into this process.
pub(crate) fn loaded() -> Vec<std::path::PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut paths: Vec<_> = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .filter(|path| !path.starts_with("/dev/") && !path.contains("libcuda.so"))
        .map(std::path::PathBuf::from)
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn the_size_of_this_program_is_found() {
        let own = std::fs::read(std::env::current_exe().expect("a program")).expect("it is read");
        assert_eq!(size(&|bytes| own[..bytes].to_vec()), own.len());
    }
}
