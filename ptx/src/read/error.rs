//! What is wrong with a text, and where.

use core::fmt;

/// Why a text is not read: the place, and what was found there and needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The name of the text, as it was given to [`Module::parse`](super::Module::parse).
    pub file: String,
    /// The line, from 1 on.
    pub line: u32,
    /// The column in characters, from 1 on.
    pub column: u32,
    /// What is wrong, as a sentence.
    pub message: String,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message } = self;
        write!(f, "{file}:{line}:{column}: {message}")
    }
}

impl std::error::Error for ReadError {}

/// A place in a text: an offset in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct At(pub(crate) usize);

/// A mistake in a text whose lines have not been counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    pub(crate) at: At,
    pub(crate) message: String,
}

/// A result of a part of the reader.
pub(crate) type Read<T> = Result<T, Mistake>;

impl At {
    /// A mistake at this place.
    pub(crate) fn wrong<T>(self, message: impl Into<String>) -> Read<T> {
        Err(Mistake { at: self, message: message.into() })
    }
}

/// Where the lines of a text begin.
#[derive(Clone, Debug)]
pub(crate) struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        Self { text, starts: core::iter::once(0).chain(ends.map(|(end, _)| end + 1)).collect() }
    }

    /// The line and the column of a place, both from 1 on.
    pub(crate) fn of(&self, At(offset): At) -> (u32, u32) {
        let line = self.starts.partition_point(|&start| start <= offset).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let before = self.text.get(start..offset).map_or(0, |before| before.chars().count());
        (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(before + 1).unwrap_or(u32::MAX))
    }
}
