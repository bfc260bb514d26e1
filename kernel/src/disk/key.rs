//! What an entry belongs to: a card, a driver, a version of this library, and a program.

use core::fmt;

use sha2::{Digest as _, Sha256};

use super::error::CacheError;

/// Longest part of a key, in bytes.
const MOST: usize = 256;

/// SHA-256 of the text of a program, or of any other bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of some bytes, for example of [`Program::text`](crate::Program::text).
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self::of_parts(&[bytes.as_ref()])
    }

    /// The digest of a program for the binary that one version of an assembler makes. The version is empty
    /// for binaries whose assembler is not known.
    #[cfg(feature = "driver")]
    pub(crate) fn of_kernel(version: &str, text: &str) -> Self {
        // The version's length separates it from the text. A text alone has another digest.
        Self::of_parts(&[&(version.len() as u64).to_le_bytes(), version.as_bytes(), text.as_bytes()])
    }

    /// The digest of several byte strings, one after the other.
    pub(super) fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// Parses a digest that [`Display`](fmt::Display) wrote: 64 hexadecimal digits in lower case.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        (digits.len() == 64).then_some(Self(bytes))
    }
}

#[cfg(feature = "records")]
impl serde::Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "records")]
impl<'de> serde::Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <String as serde::Deserialize>::deserialize(deserializer)?;
        let needed = || serde::de::Error::custom(format!("`{text}` is no digest: 64 digits were needed"));
        Self::parse(&text).ok_or_else(needed)
    }
}

/// 64 hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What an entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A kernel's binary: the length of its assembler's log as 8 bytes (little-endian), the log, and a cubin.
    Kernel,
    /// What was measured on a card (`Records`, feature `records`).
    Records,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Kernel, Self::Records];

    /// Its name, which is also the extension of its files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Records => "records",
        }
    }
}

/// What an entry belongs to. An entry is used only for exactly its own key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    card: String,
    driver: String,
    version: String,
    digest: Digest,
}

impl Key {
    /// The key of a program, for this version of the library. `card` and `driver` are the names that the
    /// driver reports.
    ///
    /// # Errors
    /// [`CacheError::Key`] if a name is empty, longer than 256 bytes, or holds a control character.
    pub fn new(
        card: impl Into<String>,
        driver: impl Into<String>,
        digest: Digest,
    ) -> Result<Self, CacheError> {
        Self::of_version(card, driver, env!("CARGO_PKG_VERSION"), digest)
    }

    /// The same for another version of the library.
    ///
    /// # Errors
    /// As [`Key::new`].
    pub fn of_version(
        card: impl Into<String>,
        driver: impl Into<String>,
        version: impl Into<String>,
        digest: Digest,
    ) -> Result<Self, CacheError> {
        Ok(Self {
            card: legal("card", card.into())?,
            driver: legal("driver", driver.into())?,
            version: legal("version", version.into())?,
            digest,
        })
    }

    /// The card's name.
    pub fn card(&self) -> &str {
        &self.card
    }

    /// The driver's version.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// The library's version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The program's digest.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The file name of the entry of a kind: a digest of everything in the key.
    pub(super) fn file_name(&self, kind: Kind) -> String {
        let Self { card, driver, version, digest } = self;
        // No part contains a line break, so no two keys have the same text.
        let all = format!("{}\n{card}\n{driver}\n{version}\n{digest}", kind.name());
        format!("{}.{}", Digest::of(all), kind.name())
    }
}

/// Checks a part of a key: it must fill one line of a file's header, so that it can be read back.
fn legal(field: &'static str, value: String) -> Result<String, CacheError> {
    let needed = if value.is_empty() {
        "a name"
    } else if value.len() > MOST {
        "at most 256 bytes"
    } else if value.chars().any(char::is_control) {
        "text without control characters"
    } else {
        return Ok(value);
    };
    let value = value.chars().take(MOST).collect();
    Err(CacheError::Key { field, value, needed })
}

#[cfg(test)]
mod tests {
    use super::{Digest, Key, Kind};

    fn key(card: &str, driver: &str, version: &str, text: &str) -> Key {
        Key::of_version(card, driver, version, Digest::of(text)).expect("legal")
    }

    #[test]
    fn digests_are_those_of_sha256() {
        for (text, want) in [
            ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            ("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            assert_eq!(Digest::of(text).to_string(), want);
            assert_eq!(Digest::parse(want), Some(Digest::of(text)));
            assert_eq!(Digest::parse(&want.to_uppercase()).is_some(), want.to_uppercase() == want);
            assert_eq!(Digest::parse(&want[1..]), None, "a digit is missing");
            assert_eq!(Digest::parse(&format!("{want}0")), None, "a digit too many");
        }
    }

    /// Each assembler gives another digest, and so does the text alone.
    #[cfg(feature = "driver")]
    #[test]
    fn each_assembler_has_digests_of_its_own() {
        let digests = [
            Digest::of("text"),
            Digest::of_kernel("", "text"),
            Digest::of_kernel("V13.0.88", "text"),
            Digest::of_kernel("V13.0.89", "text"),
            Digest::of_kernel("V13.0.88", "texts"),
            // The same letters, split in another place.
            Digest::of_kernel("V13.0.88t", "ext"),
        ];
        let all: std::collections::BTreeSet<_> = digests.into_iter().collect();
        assert_eq!(all.len(), digests.len());
    }

    /// Two keys that differ in anything have different files.
    #[test]
    fn each_key_has_a_file_of_its_own() {
        let keys = [
            key("H200", "580.1", "0.1.0", "a"),
            key("H100", "580.1", "0.1.0", "a"),
            key("H200", "580.2", "0.1.0", "a"),
            key("H200", "580.1", "0.2.0", "a"),
            key("H200", "580.1", "0.1.0", "b"),
            // The same letters, split in another place.
            key("H2005", "80.1", "0.1.0", "a"),
            key("H200", "580.10", ".1.0", "a"),
        ];
        let files: std::collections::BTreeSet<String> =
            keys.iter().flat_map(|key| Kind::ALL.map(|kind| key.file_name(kind))).collect();
        assert_eq!(files.len(), 2 * keys.len(), "{files:?}");
    }

    #[test]
    fn parts_that_no_header_can_hold_are_refused() {
        for (why, card, driver, words) in [
            ("no card", "", "580", "card `` cannot be part of a key: a name was needed"),
            ("a line's end in a name", "H200\ndriver 1", "580", "card `H200\\ndriver 1`"),
            ("a NUL", "H200", "58\0", "driver `58\\0` cannot be part of a key: text without control"),
            ("a long name", "H200", &"9".repeat(257), "at most 256 bytes"),
        ] {
            let error = Key::new(card, driver, Digest::of("")).expect_err(why).to_string();
            assert!(error.contains(words), "{why}: {error}");
        }
        assert!(Key::new("Карта", "580", Digest::of("")).is_ok(), "any language");
    }
}
