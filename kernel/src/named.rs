//! Values with names.

/// One of some values, each with a name.
pub(crate) trait Named: Copy + PartialEq + 'static {
    /// All values.
    fn all() -> Vec<(&'static str, Self)>;

    /// The value of a name.
    fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// What was needed in place of a text that is no name.
    fn needed(_: &str) -> String {
        one_of::<Self>()
    }

    /// Its name; empty if it has none.
    fn word(self) -> &'static str {
        Self::all().into_iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}

/// All names, in words.
pub(crate) fn one_of<N: Named>() -> String {
    let names: Vec<_> = N::all().into_iter().map(|(name, _)| name).collect();
    format!("one of {}", names.join(", "))
}
