//! Reads PTX: anybody's text becomes a typed program, which can be verified, executed and printed again.
//!
//! Source: PTX ISA.

mod error;
mod launch;
mod lex;
mod parse;
mod syntax;
#[cfg(test)]
mod tests;
mod translate;

pub use error::ReadError;
pub use launch::Launch;

use error::{At, Lines, Mistake};
use syntax::Text;

use crate::function::Function;

/// A text of PTX: kernels, and the functions and variables that they use.
#[derive(Clone, Debug)]
pub struct Module<'t> {
    file: String,
    lines: Lines<'t>,
    text: Text<'t>,
}

impl<'t> Module<'t> {
    /// Reads a text. `file` names it in errors and reports.
    ///
    /// # Errors
    /// The first place where the text is not PTX. Instructions are looked at later, by [`entry`](Self::entry).
    pub fn parse(text: &'t str, file: &str) -> Result<Self, ReadError> {
        let lines = Lines::new(text);
        match parse::parse(text) {
            Ok(text) => Ok(Self { file: file.to_owned(), lines, text }),
            Err(mistake) => Err(placed(file, &lines, mistake)),
        }
    }

    /// The names of the kernels, in the order of the text.
    pub fn entries(&self) -> Vec<&'t str> {
        let entries = self.text.functions.iter().filter(|function| function.entry && function.body.is_some());
        entries.map(|entry| entry.name.text).collect()
    }

    /// The program of a kernel, for a launch. Its name is one of [`entries`](Self::entries).
    ///
    /// # Errors
    /// There is no such kernel, the launch is not what its text requires, or the first instruction that is not read.
    pub fn entry(&self, name: &str, launch: &Launch) -> Result<Function, ReadError> {
        let entry = self.text.functions.iter().find(|function| function.entry && function.name.text == name);
        let Some(entry) = entry.filter(|entry| entry.body.is_some()) else {
            let message = format!("there is no kernel `{name}`, only {:?}", self.entries());
            return Err(placed(&self.file, &self.lines, Mistake { at: At(0), message }));
        };
        let read = translate::translate((&self.text, &self.lines, &self.file), entry, launch);
        read.map_err(|mistake| placed(&self.file, &self.lines, mistake))
    }
}

fn placed(file: &str, lines: &Lines<'_>, Mistake { at, message }: Mistake) -> ReadError {
    let (line, column) = lines.of(at);
    ReadError { file: file.to_owned(), line, column, message }
}
