//! Values with names.

/// One of some values, each with a name.
pub(crate) trait Named: Copy + PartialEq + 'static {
    /// All values.
    fn all() -> Vec<(&'static str, Self)>;

    /// The value of a name.
    fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Its name; empty if it has none.
    fn word(self) -> &'static str {
        Self::all().into_iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }
}
