//! Specs as text: `key=value` words for all that differs from a default, by a table with a row for each key. [`pairs`] is the one
//! function that takes such a text apart.
//!
//! ```
//! use kernel::words::{SpecKey, Worded, read, write};
//!
//! /// A kernel with so many warps.
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! struct Spec {
//!     warps: u32,
//! }
//!
//! const USUAL: Spec = Spec { warps: 4 };
//! const KEYS: [SpecKey<Spec>; 1] = [SpecKey {
//!     name: "warps",
//!     needed: "a number of warps",
//!     read: |of, text| u32::read(text).map(|warps| of.warps = warps),
//!     write: |of| of.warps.text(),
//! }];
//!
//! assert_eq!(read(&KEYS, USUAL, "warps=8"), Ok(Spec { warps: 8 }));
//! let refused = read(&KEYS, USUAL, "warps=many").expect_err("no number");
//! assert_eq!(refused.to_string(), "`warps=many`: a number of warps was needed");
//! ```

use core::fmt;

use collective::Format;

/// A key of specs `S`.
#[derive(Clone, Copy, Debug)]
pub struct SpecKey<S> {
    /// Its name.
    pub name: &'static str,
    /// What its value must be, in words.
    pub needed: &'static str,
    /// Reads a value; `None` if the key does not accept the text.
    pub read: fn(&mut S, &str) -> Option<()>,
    /// The text of its value; `None` if the spec has none.
    pub write: fn(&S) -> Option<String>,
}

/// A value with a text.
pub trait Worded: Copy {
    /// The value of a text; `None` if it is none.
    fn read(text: &str) -> Option<Self>;

    /// The text; `None` if the value has none.
    fn text(self) -> Option<String>;
}

/// One of some values with names.
pub trait OneOf: Copy + PartialEq + 'static {
    /// The names and the values.
    const NAMES: &'static [(&'static str, Self)];
}

impl<T: OneOf> Worded for T {
    fn read(text: &str) -> Option<Self> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
    }

    fn text(self) -> Option<String> {
        Self::NAMES.iter().find(|(_, value)| *value == self).map(|(name, _)| (*name).to_owned())
    }
}

impl OneOf for bool {
    const NAMES: &'static [(&'static str, Self)] = &[("on", true), ("off", false)];
}

impl Worded for u32 {
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn text(self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Worded for Format {
    fn read(text: &str) -> Option<Self> {
        Self::named(text)
    }

    fn text(self) -> Option<String> {
        Some(self.to_string())
    }
}

/// A value that a spec may have.
impl<W: Worded> Worded for Option<W> {
    fn read(text: &str) -> Option<Self> {
        W::read(text).map(Some)
    }

    fn text(self) -> Option<String> {
        self?.text()
    }
}

/// Numbers with `x` between them.
impl<const N: usize> Worded for [u32; N] {
    fn read(text: &str) -> Option<Self> {
        let numbers: Option<Vec<u32>> = text.split('x').map(|number| number.parse().ok()).collect();
        numbers?.try_into().ok()
    }

    fn text(self) -> Option<String> {
        Some(self.map(|number| number.to_string()).join("x"))
    }
}

/// A word that was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}`: {needed} was needed", said(key, value))]
pub struct WordError {
    /// Its key.
    pub key: String,
    /// Its value; empty if it has none.
    pub value: String,
    /// What was needed.
    pub needed: String,
}

/// A word as it was given.
fn said(key: &str, value: &str) -> String {
    if value.is_empty() { key.to_owned() } else { format!("{key}={value}") }
}

fn refused<T>(key: &str, value: &str, needed: impl Into<String>) -> Result<T, WordError> {
    Err(WordError { key: key.to_owned(), value: value.to_owned(), needed: needed.into() })
}

/// The words of a text, between blanks or commas: keys, and what is after `=` without the quotes around it. Neither a blank nor a comma
/// ends a word inside of quotes or brackets, as in `epilogue=clamp(acc,0,1)`.
pub fn pairs(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = text;
    core::iter::from_fn(move || {
        rest = rest.trim_start_matches([' ', ',', '\t', '\n']);
        let (mut quote, mut depth) = (None, 0u32);
        let ends = |(_, c): &(usize, char)| {
            match (quote, c) {
                (Some(open), c) if open == *c => quote = None,
                (Some(_), _) => return false,
                (None, '"' | '\'') => quote = Some(*c),
                (None, '(' | '[') => depth += 1,
                (None, ')' | ']') => depth = depth.saturating_sub(1),
                (None, ' ' | ',' | '\t' | '\n') => return depth == 0,
                _ => {}
            }
            false
        };
        let end = rest.char_indices().find(ends).map_or(rest.len(), |(at, _)| at);
        let (word, after) = rest.split_at(end);
        rest = after;
        let unquoted = |value: &'_ str| -> Option<usize> {
            let inner =
                ['"', '\''].iter().find_map(|&quote| value.strip_prefix(quote)?.strip_suffix(quote))?;
            Some(inner.len())
        };
        let pair = match word.split_once('=') {
            None => (word, None),
            Some((key, value)) => match unquoted(value) {
                Some(length) => (key, value.get(1..1 + length)),
                None => (key, Some(value)),
            },
        };
        (!word.is_empty()).then_some(pair)
    })
}

/// The same, where each key stands once; a word without `=` has an empty value.
///
/// # Errors
/// A key that stands twice.
pub fn words(text: &str) -> Result<Vec<(&str, &str)>, WordError> {
    let mut words: Vec<(&str, &str)> = Vec::new();
    for (key, value) in pairs(text) {
        let value = value.unwrap_or("");
        if words.iter().any(|(other, _)| *other == key) {
            return refused(key, value, format!("`{key}` is given already, one of them"));
        }
        words.push((key, value));
    }
    Ok(words)
}

/// Reads a text. Keys are read in the order of their table, so that a value may follow from one before it.
///
/// # Errors
/// The first word that does not belong to a spec, or whose value its key does not accept.
pub fn read<S>(keys: &[SpecKey<S>], mut of: S, text: &str) -> Result<S, WordError> {
    let words = words(text)?;
    if let Some((key, value)) = words.iter().find(|(key, _)| keys.iter().all(|known| known.name != *key)) {
        let names: Vec<_> = keys.iter().map(|key| key.name).collect();
        return refused(key, value, format!("one of the keys {}", names.join(", ")));
    }
    for SpecKey { name, needed, read, .. } in keys {
        if let Some((_, value)) = words.iter().find(|(key, _)| key == name)
            && read(&mut of, value).is_none()
        {
            return refused(name, value, *needed);
        }
    }
    Ok(of)
}

/// Writes what differs from a default, in the order of the table.
///
/// # Errors
/// The formatter's.
pub fn write<S>(keys: &[SpecKey<S>], of: &S, mut usual: S, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut between = "";
    for SpecKey { name, read, write, .. } in keys {
        let Some(value) = write(of).filter(|value| write(&usual).as_ref() != Some(value)) else { continue };
        write!(f, "{between}{name}={value}")?;
        // What was written is read, so that values that follow from it are not written too.
        let _ = read(&mut usual, &value);
        between = " ";
    }
    Ok(())
}
