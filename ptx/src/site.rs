//! Places in sources: where a statement was written.
//!
//! ```
//! use ptx::SourceSite;
//!
//! let read = SourceSite::new("kernel.ptx".into(), 120, 2).with_origin("kernel.cu".into(), 31);
//! assert_eq!(read.to_string(), "kernel.ptx:120 (kernel.cu:31)");
//! assert_eq!(SourceSite::caller().file(), file!());
//! ```

use core::fmt;
use core::panic::Location;
use std::sync::Arc;

use crate::name::Name;

/// Where a statement was written: a line of the Rust source that built it, or of the PTX text that it was read from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceSite {
    file: Name,
    line: u32,
    column: u32,
    /// The line that a compiler made the PTX from, where the PTX states it (`.loc`).
    origin: Option<Arc<(Name, u32)>>,
}

impl SourceSite {
    /// A place in a file; lines and columns count from 1.
    pub const fn new(file: Name, line: u32, column: u32) -> Self {
        Self { file, line, column, origin: None }
    }

    /// The line of the caller of the function that calls this one, if that one is marked `#[track_caller]`.
    #[track_caller]
    pub fn caller() -> Self {
        Location::caller().into()
    }

    /// The same place, which a compiler made from a line of another file (`.loc`, ISA "Debugging Directives").
    #[must_use]
    pub fn with_origin(self, file: Name, line: u32) -> Self {
        Self { origin: Some(Arc::new((file, line))), ..self }
    }

    /// The file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The line, counted from 1.
    pub const fn line(&self) -> u32 {
        self.line
    }

    /// The column, counted from 1.
    pub const fn column(&self) -> u32 {
        self.column
    }

    /// The file and the line that a compiler made this place from, if that is known.
    pub fn origin(&self) -> Option<(&str, u32)> {
        self.origin.as_deref().map(|(file, line)| (&**file, *line))
    }
}

impl From<&'static Location<'static>> for SourceSite {
    fn from(location: &'static Location<'static>) -> Self {
        Self::new(Name::new(location.file()), location.line(), location.column())
    }
}

/// `file:line`, followed by ` (file:line)` of what it was made from.
impl fmt::Display for SourceSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        match self.origin() {
            Some((file, line)) => write!(f, " ({file}:{line})"),
            None => Ok(()),
        }
    }
}
