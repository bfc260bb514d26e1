//! What the words of attention's specs have in common.

use kernel::words::{self, WordError, Worded};

/// Two numbers of elements of heads; one stands for two equal ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads(pub(crate) [u32; 2]);

impl Worded for Heads {
    fn read(text: &str) -> Option<Self> {
        Worded::read(text).or_else(|| Some([text.parse().ok()?; 2])).map(Self)
    }

    fn text(self) -> Option<String> {
        let Self([first, second]) = self;
        if first == second { first.text() } else { self.0.text() }
    }
}

/// A number, or `auto`, which is not written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Auto(pub(crate) Option<u32>);

impl Worded for Auto {
    fn read(text: &str) -> Option<Self> {
        let number = (text != "auto").then(|| text.parse().ok());
        number.map_or(Some(Self(None)), |number| number.map(|number| Self(Some(number))))
    }

    fn text(self) -> Option<String> {
        self.0.text()
    }
}

/// The words of a text. Two that say how keys are divided are one too many.
pub(crate) fn words(text: &str) -> Result<Vec<(&str, &str)>, WordError> {
    let words = words::words(text)?;
    let mut divide = words.iter().filter(|(key, _)| matches!(*key, "part" | "parts"));
    match (divide.next(), divide.next()) {
        (Some((first, _)), Some((key, value))) => Err(WordError {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            needed: format!("`{first}` is given already, one of them"),
        }),
        _ => Ok(words),
    }
}
