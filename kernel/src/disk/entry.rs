//! The format of a file: a header of a few lines of text, an empty line, and the payload.
//!
//! ```text
//! falchion cache 1
//! kind kernel
//! card NVIDIA H200
//! driver 580.159.04, CUDA 13.0
//! version 0.1.0
//! digest 9f86d0…
//! bytes 81920
//! sha256 2c26b4…
//!
//! ```
//!
//! The checksum covers the lines before it and the payload, so a change of any byte is detected. Each header
//! has exactly one text: the reader writes the header again and compares.

use core::fmt::Write as _;

use super::key::{Digest, Key, Kind};

/// The first line: the program that owns the file, and the version of the format.
const MAGIC: &str = "falchion cache 1";

/// Longest header, in bytes.
pub(super) const MOST_HEADER: usize = 2048;

/// The lines that the checksum covers.
fn covered(kind: Kind, key: &Key, bytes: u64) -> String {
    let (card, driver, version, digest) = (key.card(), key.driver(), key.version(), key.digest());
    let mut text = String::new();
    // Writing to a `String` never fails.
    let _ = write!(
        text,
        "{MAGIC}\nkind {}\ncard {card}\ndriver {driver}\nversion {version}\ndigest {digest}\nbytes {bytes}\n",
        kind.name()
    );
    text
}

/// The header of an entry.
pub(super) fn header(kind: Kind, key: &Key, payload: &[u8]) -> String {
    let text = covered(kind, key, payload.len() as u64);
    let sum = Digest::of_parts(&[text.as_bytes(), payload]);
    format!("{text}sha256 {sum}\n\n")
}

/// The content of a header.
pub(super) struct Header {
    pub(super) kind: Kind,
    pub(super) key: Key,
    /// Size of the payload in bytes.
    pub(super) bytes: u64,
    sum: Digest,
    /// Size of the header itself in bytes.
    pub(super) length: usize,
}

/// The text after `name` on the next line.
fn line<'f>(rest: &mut &'f [u8], name: &str) -> Option<&'f str> {
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let line = core::str::from_utf8(&rest[..end]).ok()?;
    *rest = &rest[end + 1..];
    line.strip_prefix(name)
}

/// Reads the header at the beginning of a file, or says what is wrong with it.
pub(super) fn parse(file: &[u8]) -> Result<Header, &'static str> {
    let head = &file[..file.len().min(MOST_HEADER)];
    let mut rest = head;
    if line(&mut rest, MAGIC) != Some("") {
        return Err("it does not begin with `falchion cache 1`: it is of another format, or none of ours");
    }
    let mut read = || {
        let kind = line(&mut rest, "kind ")?;
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
        let card = line(&mut rest, "card ")?;
        let driver = line(&mut rest, "driver ")?;
        let version = line(&mut rest, "version ")?;
        let digest = Digest::parse(line(&mut rest, "digest ")?)?;
        let key = Key::of_version(card, driver, version, digest).ok()?;
        let bytes = line(&mut rest, "bytes ")?.parse().ok()?;
        let sum = Digest::parse(line(&mut rest, "sha256 ")?)?;
        let text = format!("{}sha256 {sum}\n\n", covered(kind, &key, bytes));
        head.starts_with(text.as_bytes()).then_some(Header { kind, key, bytes, sum, length: text.len() })
    };
    read().ok_or("its header is not whole")
}

/// The payload of an entry of a kind and key, from the bytes of its file; or what is wrong with them.
pub(super) fn open(mut file: Vec<u8>, kind: Kind, key: &Key) -> Result<Vec<u8>, &'static str> {
    let header = parse(&file)?;
    if header.kind != kind || header.key != *key {
        return Err("it is the entry of another key");
    }
    let payload = &file[header.length..];
    if payload.len() as u64 != header.bytes {
        return Err("it is shorter or longer than its header says");
    }
    let text = covered(kind, key, header.bytes);
    if Digest::of_parts(&[text.as_bytes(), payload]) != header.sum {
        return Err("its checksum is that of other bytes");
    }
    Ok(file.split_off(header.length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("NVIDIA H200", "580.159.04, CUDA 13.0", Digest::of("a program")).expect("legal")
    }

    fn file(payload: &[u8]) -> Vec<u8> {
        [header(Kind::Kernel, &key(), payload).as_bytes(), payload].concat()
    }

    #[test]
    fn what_was_written_is_read() {
        for payload in [&b""[..], b"\n", b"\x7fELF and so on", &[0; 5000]] {
            assert_eq!(open(file(payload), Kind::Kernel, &key()).as_deref(), Ok(payload));
        }
    }

    /// For every shorter length.
    #[test]
    fn truncated_files_are_refused() {
        let whole = file(b"a small payload");
        for length in 0..whole.len() {
            let read = open(whole[..length].to_vec(), Kind::Kernel, &key());
            assert!(read.is_err(), "the first {length} of {} bytes", whole.len());
        }
        let longer = [&whole[..], b"\0"].concat();
        assert!(open(longer, Kind::Kernel, &key()).is_err(), "a byte too many");
    }

    /// Flips every bit of every byte, and replaces every byte by some that occur in headers.
    #[test]
    fn changed_files_are_refused() {
        let whole = file(b"a small payload");
        for at in 0..whole.len() {
            let flips = (0..8).map(|bit| whole[at] ^ 1 << bit).chain(*b"\n\0 0aA");
            for byte in flips.filter(|&byte| byte != whole[at]) {
                let mut changed = whole.clone();
                changed[at] = byte;
                assert!(open(changed, Kind::Kernel, &key()).is_err(), "byte {at} is {byte}");
            }
        }
    }

    /// Leaves out every byte, and writes every byte twice.
    #[test]
    fn shifted_files_are_refused() {
        let whole = file(b"a small payload");
        for at in 0..whole.len() {
            let mut without = whole.clone();
            let byte = without.remove(at);
            // Of two equal neighbours it does not matter which is missing: the file is too short in either
            // case.
            assert!(open(without, Kind::Kernel, &key()).is_err(), "without byte {at}");
            let mut twice = whole.clone();
            twice.insert(at, byte);
            assert!(open(twice, Kind::Kernel, &key()).is_err(), "byte {at} twice");
        }
    }

    #[test]
    fn whole_files_of_others_are_refused() {
        let of = |card: &str, driver: &str, version: &str, text: &str| {
            let key = Key::of_version(card, driver, version, Digest::of(text)).expect("legal");
            [header(Kind::Kernel, &key, b"payload").as_bytes(), b"payload"].concat()
        };
        let (card, driver, version) = ("NVIDIA H200", "580.159.04, CUDA 13.0", env!("CARGO_PKG_VERSION"));
        let mut records = header(Kind::Records, &key(), b"payload").into_bytes();
        records.extend(b"payload");
        for (why, bytes, words) in [
            ("another card", of("NVIDIA H100", driver, version, "a program"), "another key"),
            ("another driver", of(card, "535, CUDA 12.4", version, "a program"), "another key"),
            ("another version", of(card, driver, "0.0.9", "a program"), "another key"),
            ("another program", of(card, driver, version, "another program"), "another key"),
            ("another kind", records, "another key"),
            (
                "a later format",
                file(b"p").iter().map(|&b| if b == b'1' { b'2' } else { b }).collect(),
                "begin",
            ),
            ("nothing", Vec::new(), "begin"),
            ("an ELF", b"\x7fELF\x02\x01\x01".to_vec(), "begin"),
            ("a header without end", format!("{MAGIC}\nkind {}", "k".repeat(9000)).into_bytes(), "whole"),
            (
                "a number with a sign",
                String::from_utf8(file(b"p")).expect("text").replace("bytes 1", "bytes +1").into_bytes(),
                "whole",
            ),
        ] {
            let error = open(bytes, Kind::Kernel, &key()).expect_err(why);
            assert!(error.contains(words), "{why}: {error}");
        }
        assert!(open(of(card, driver, version, "a program"), Kind::Kernel, &key()).is_ok());
    }
}
