//! What the words of attention's specs have in common.

use kernel::words::{self, WordError, Worded};

/// Two numbers of heads; one stands for two equal ones.
pub(crate) fn heads(text: &str) -> Option<[u32; 2]> {
    Worded::read(text).or_else(|| Some([text.parse().ok()?; 2]))
}

/// The text of two numbers of heads.
pub(crate) fn of_heads(heads: [u32; 2]) -> Option<String> {
    if heads[0] == heads[1] { heads[0].text() } else { heads.text() }
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
