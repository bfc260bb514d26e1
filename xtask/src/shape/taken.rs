//! What a measure gives.

/// A value, and what it is made of.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// None if there is nothing to take it with.
    pub(crate) value: Option<u32>,
    /// What was counted.
    pub(crate) details: Vec<String>,
    /// Why the table is not true: items that do not exist, files that are in no list.
    pub(crate) wrong: Vec<String>,
}

impl Taken {
    /// The number of these.
    pub(crate) fn each(details: impl Iterator<Item = String>) -> Self {
        let details: Vec<String> = details.collect();
        Self { value: Some(details.len() as u32), details, wrong: Vec::new() }
    }
}
