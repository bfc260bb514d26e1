//! Specs as text: `key=value` words for all that differs from a default, by a table with a row for each key.

use core::fmt;

use collective::Format;

/// A key of specs `S`, what its value must be, and where that is.
pub(crate) struct Key<S: 'static>(&'static str, &'static str, &'static (dyn Value<S> + Sync));

impl<S> Key<S> {
    pub(crate) const fn at<W: Word>(
        name: &'static str,
        needed: &'static str,
        place: &'static At<S, W>,
    ) -> Self {
        Self(name, needed, place)
    }

    pub(crate) const fn switch(name: &'static str, place: &'static At<S, bool>) -> Self {
        Self(name, "on or off", place)
    }

    pub(crate) const fn one_of<W: Copy + PartialEq + Sync>(
        name: &'static str,
        needed: &'static str,
        place: &'static OneOf<S, W>,
    ) -> Self {
        Self(name, needed, place)
    }

    pub(crate) const fn pair(name: &'static str, needed: &'static str, place: &'static Pair<S>) -> Self {
        Self(name, needed, place)
    }

    pub(crate) const fn of(name: &'static str, needed: &'static str, value: &'static As<S>) -> Self {
        Self(name, needed, value)
    }
}

/// The value of a key in a spec.
trait Value<S> {
    /// Reads it; `None` if the key does not accept the text.
    fn read(&self, of: &mut S, text: &str) -> Option<()>;

    /// Its text; `None` if the spec has none.
    fn write(&self, of: S) -> Option<String>;
}

/// A value with a place in the spec.
pub(crate) struct At<S, W>(pub(crate) fn(&mut S) -> &mut W);

impl<S, W: Word> Value<S> for At<S, W> {
    fn read(&self, of: &mut S, text: &str) -> Option<()> {
        *(self.0)(of) = W::read(text)?;
        Some(())
    }

    fn write(&self, mut of: S) -> Option<String> {
        (self.0)(&mut of).text()
    }
}

/// One of some values with names.
pub(crate) struct OneOf<S, W: 'static>(
    pub(crate) fn(&mut S) -> &mut W,
    pub(crate) &'static [(&'static str, W)],
);

impl<S, W: Copy + PartialEq> Value<S> for OneOf<S, W> {
    fn read(&self, of: &mut S, text: &str) -> Option<()> {
        *(self.0)(of) = self.1.iter().find(|(name, _)| *name == text)?.1;
        Some(())
    }

    fn write(&self, mut of: S) -> Option<String> {
        let own = *(self.0)(&mut of);
        self.1.iter().find(|(_, value)| *value == own).map(|(name, _)| (*name).to_owned())
    }
}

/// Two numbers with an `x` between them; one number, if the flag is set, stands for two equal ones.
pub(crate) struct Pair<S>(pub(crate) fn(&mut S) -> &mut [u32; 2], pub(crate) bool);

impl<S> Value<S> for Pair<S> {
    fn read(&self, of: &mut S, text: &str) -> Option<()> {
        let (first, second) = text.split_once('x').or(self.1.then_some((text, text)))?;
        *(self.0)(of) = [first.parse().ok()?, second.parse().ok()?];
        Some(())
    }

    fn write(&self, mut of: S) -> Option<String> {
        let [first, second] = *(self.0)(&mut of);
        Some(if self.1 && first == second { first.to_string() } else { format!("{first}x{second}") })
    }
}

/// A value that is not as its text says it: how it is set and got.
pub(crate) struct As<S>(pub(crate) fn(&mut S, &str) -> Option<()>, pub(crate) fn(&S) -> Option<String>);

impl<S> Value<S> for As<S> {
    fn read(&self, of: &mut S, text: &str) -> Option<()> {
        (self.0)(of, text)
    }

    fn write(&self, of: S) -> Option<String> {
        (self.1)(&of)
    }
}

/// A value with a text.
pub(crate) trait Word: Copy {
    fn read(text: &str) -> Option<Self>;

    fn text(self) -> Option<String>;
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

impl Word for bool {
    fn read(text: &str) -> Option<Self> {
        matches!(text, "on" | "off").then_some(text == "on")
    }

    fn text(self) -> Option<String> {
        Some(if self { "on" } else { "off" }.to_owned())
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

/// A word that is refused: its key, its value, and what was needed.
pub(crate) struct Refused {
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) needed: String,
}

impl Refused {
    pub(crate) fn new(key: &str, value: &str, needed: impl Into<String>) -> Self {
        Self { key: key.to_owned(), value: value.to_owned(), needed: needed.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, needed } = self;
        write!(f, "`{key}={value}`: {needed} was needed")
    }
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
            return Err(Refused::new(key, value, format!("`{other}` is given already, one of them")));
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
    if let Some((key, value)) = words.iter().find(|(key, _)| keys.iter().all(|Key(name, ..)| name != key)) {
        let names: Vec<_> = keys.iter().map(|Key(name, ..)| *name).collect();
        return Err(Refused::new(key, value, format!("one of the keys {}", names.join(", "))));
    }
    for Key(key, needed, place) in keys {
        if let Some((_, value)) = words.iter().find(|(name, _)| name == key) {
            place.read(&mut of, value).ok_or_else(|| Refused::new(key, value, *needed))?;
        }
    }
    Ok(of)
}

/// Writes what differs from a default, in the order of the table.
pub(crate) fn write<S: Copy>(
    keys: &[Key<S>],
    of: S,
    mut default: S,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let mut between = "";
    for Key(name, _, place) in keys {
        let Some(value) = place.write(of).filter(|value| place.write(default).as_ref() != Some(value)) else {
            continue;
        };
        write!(f, "{between}{name}={value}")?;
        // What was written is read, so that values that follow from it are not written too.
        let _ = place.read(&mut default, &value);
        between = " ";
    }
    Ok(())
}
