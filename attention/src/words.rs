//! Specs as text: `key=value` words for all that differs from a default, by a table with a row for each key.

use core::fmt;

use collective::Format;

/// A key of specs `S`.
pub(crate) struct Key<S> {
    pub(crate) name: &'static str,
    /// What its value must be.
    pub(crate) needed: &'static str,
    /// Reads a value; `None` if the key does not accept the text.
    pub(crate) read: fn(&mut S, &str) -> Option<()>,
    /// The text of its value; `None` if the spec has none.
    pub(crate) write: fn(&S) -> Option<String>,
}

/// The key of a field, whose value has a text of its own or is read and written by functions.
macro_rules! at {
    ($name:literal, $needed:literal, $field:ident) => {
        $crate::words::at!($name, $needed, $field, $crate::words::Word::read, $crate::words::Word::text)
    };
    ($name:literal, $needed:literal, $field:ident, $read:expr, $write:expr) => {
        $crate::words::Key {
            name: $name,
            needed: $needed,
            read: |of, text| {
                of.$field = $read(text)?;
                Some(())
            },
            write: |of| $write(of.$field),
        }
    };
}
pub(crate) use at;

/// A value with a text.
pub(crate) trait Word: Copy {
    fn read(text: &str) -> Option<Self>;
    fn text(self) -> Option<String>;
}

/// One of some values with names.
pub(crate) trait Named: Copy + PartialEq + 'static {
    const NAMES: &'static [(&'static str, Self)];
}

impl<T: Named> Word for T {
    fn read(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
    }

    fn text(self) -> Option<String> {
        Self::NAMES.iter().find(|(_, value)| *value == self).map(|(name, _)| (*name).to_owned())
    }
}

impl Named for bool {
    const NAMES: &'static [(&'static str, Self)] = &[("on", true), ("off", false)];
}

impl Word for u32 {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn text(self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Word for Format {
    fn read(text: &str) -> Option<Self> {
        Self::named(text)
    }

    fn text(self) -> Option<String> {
        Some(self.to_string())
    }
}

/// A value that a spec may have.
impl<W: Word> Word for Option<W> {
    fn read(text: &str) -> Option<Self> {
        W::read(text).map(Some)
    }

    fn text(self) -> Option<String> {
        self?.text()
    }
}

/// Two numbers with an `x` between them.
impl Word for [u32; 2] {
    fn read(text: &str) -> Option<Self> {
        let (first, second) = text.split_once('x')?;
        Some([first.parse().ok()?, second.parse().ok()?])
    }

    fn text(self) -> Option<String> {
        Some(format!("{}x{}", self[0], self[1]))
    }
}

/// Two numbers of heads; one stands for two equal ones.
pub(crate) fn heads(text: &str) -> Option<[u32; 2]> {
    Word::read(text).or_else(|| Some([text.parse().ok()?; 2]))
}

/// The text of two numbers of heads.
pub(crate) fn of_heads(heads: [u32; 2]) -> Option<String> {
    if heads[0] == heads[1] { heads[0].text() } else { heads.text() }
}

/// A word that is refused: its key, its value, and what was needed.
pub(crate) type Refused = [String; 3];

fn refused<T>(key: &str, value: &str, needed: String) -> Result<T, Refused> {
    Err([key.to_owned(), value.to_owned(), needed])
}

/// The `key=value` words of a text, between blanks or commas, as in specs of GEMMs. Each key stands once.
///
/// # Errors
/// A key that stands twice.
pub(crate) fn words(text: &str) -> Result<Vec<(&str, &str)>, Refused> {
    let mut words: Vec<(&str, &str)> = Vec::new();
    for word in text.split([' ', ',', '\t', '\n']).filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        // Both say how keys are divided.
        let same =
            |other: &str| other == key || matches!((other, key), ("part", "parts") | ("parts", "part"));
        if let Some((other, _)) = words.iter().find(|(other, _)| same(other)) {
            return refused(key, value, format!("`{other}` is given already, one of them"));
        }
        words.push((key, value));
    }
    Ok(words)
}

/// Reads a text. Keys are read in the order of their table, so that a value may follow from one before it.
///
/// # Errors
/// The first word that does not belong to a spec, or whose value its key does not accept.
pub(crate) fn read<S>(keys: &[Key<S>], mut of: S, text: &str) -> Result<S, Refused> {
    let words = words(text)?;
    if let Some((key, value)) = words.iter().find(|(key, _)| keys.iter().all(|known| known.name != *key)) {
        let names: Vec<_> = keys.iter().map(|key| key.name).collect();
        return refused(key, value, format!("one of the keys {}", names.join(", ")));
    }
    for Key { name, needed, read, .. } in keys {
        if let Some((_, value)) = words.iter().find(|(key, _)| key == name)
            && read(&mut of, value).is_none()
        {
            return refused(name, value, (*needed).to_owned());
        }
    }
    Ok(of)
}

/// Writes what differs from a default, in the order of the table.
pub(crate) fn write<S>(keys: &[Key<S>], of: &S, mut usual: S, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut between = "";
    for Key { name, read, write, .. } in keys {
        let Some(value) = write(of).filter(|value| write(&usual).as_ref() != Some(value)) else { continue };
        write!(f, "{between}{name}={value}")?;
        // What was written is read, so that values that follow from it are not written too.
        let _ = read(&mut usual, &value);
        between = " ";
    }
    Ok(())
}
