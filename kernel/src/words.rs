//! Specs as text: `key=value` words for all that differs from a default, by a table with a row for each key. [`pairs`] is the one
//! function that takes such a text apart.
//!
//! ```
//! use kernel::words::{At, SpecKey, read};
//!
//! /// A kernel with so many warps.
//! #[derive(Clone, Copy, Debug, PartialEq)]
//! struct Spec {
//!     warps: u32,
//! }
//!
//! const USUAL: Spec = Spec { warps: 4 };
//! const KEYS: [SpecKey<Spec>; 1] = [SpecKey::at("warps", "a number of warps", &At(|of| &mut of.warps))];
//!
//! assert_eq!(read(&KEYS, USUAL, "warps=8"), Ok(Spec { warps: 8 }));
//! let refused = read(&KEYS, USUAL, "warps=many").expect_err("no number");
//! assert_eq!(refused.to_string(), "`warps=many`: a number of warps was needed");
//! ```

use core::fmt;
use core::ops::RangeInclusive;
use core::str::FromStr;

use collective::Format;

/// A key of specs, or of problems, `S`: its name, and the value that it names.
#[derive(Clone, Copy)]
pub struct SpecKey<S: 'static> {
    /// Its name.
    pub name: &'static str,
    needed: &'static str,
    value: &'static (dyn Value<S> + Sync),
}

/// A value with a place in `S`.
#[derive(Clone, Copy, Debug)]
pub struct At<S, W>(pub fn(&mut S) -> &mut W);

/// A value that is in several places of `S`, or from which others follow: how it is got and set.
#[derive(Clone, Copy, Debug)]
pub struct As<S, W>(pub fn(&S) -> W, pub fn(&mut S, W));

/// The value of a key.
trait Value<S> {
    /// Reads it; `None` if the text is none of its values.
    fn read(&self, of: &mut S, text: &str) -> Option<()>;

    /// Its text; `None` if it has none.
    fn write(&self, of: &S) -> Option<String>;
}

impl<S: Clone, W: Worded> Value<S> for At<S, W> {
    fn read(&self, of: &mut S, text: &str) -> Option<()> {
        *(self.0)(of) = W::read(text)?;
        Some(())
    }

    fn write(&self, of: &S) -> Option<String> {
        (self.0)(&mut of.clone()).text()
    }
}

impl<S, W: Worded> Value<S> for As<S, W> {
    fn read(&self, of: &mut S, text: &str) -> Option<()> {
        (self.1)(of, W::read(text)?);
        Some(())
    }

    fn write(&self, of: &S) -> Option<String> {
        (self.0)(of).text()
    }
}

impl<S: Clone> SpecKey<S> {
    /// A key of this name, and what its value must be, in words.
    pub const fn at<W: Worded>(name: &'static str, needed: &'static str, value: &'static At<S, W>) -> Self {
        Self { name, needed, value }
    }
}

impl<S> SpecKey<S> {
    /// The same for a value without a place of its own.
    pub const fn by<W: Worded>(name: &'static str, needed: &'static str, value: &'static As<S, W>) -> Self {
        Self { name, needed, value }
    }

    /// The text of its value; `None` if the spec has none.
    pub fn text(&self, of: &S) -> Option<String> {
        self.value.write(of)
    }
}

impl<S> fmt::Debug for SpecKey<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpecKey")
            .field("name", &self.name)
            .field("needed", &self.needed)
            .finish_non_exhaustive()
    }
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

/// Two numbers, for which one stands where they are equal: `128`, or `192x128`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Both(pub [u32; 2]);

impl Worded for Both {
    fn read(text: &str) -> Option<Self> {
        Worded::read(text).or_else(|| Some([text.parse().ok()?; 2])).map(Self)
    }

    fn text(self) -> Option<String> {
        let Self([first, second]) = self;
        if first == second { first.text() } else { self.0.text() }
    }
}

/// A number, or `auto`, which is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Auto(pub Option<u32>);

impl Worded for Auto {
    fn read(text: &str) -> Option<Self> {
        let number = (text != "auto").then(|| text.parse().ok());
        number.map_or(Some(Self(None)), |number| number.map(|number| Self(Some(number))))
    }

    fn text(self) -> Option<String> {
        self.0.text()
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

/// The words of a text without `=`, and the text of all others.
pub fn divided(text: &str) -> (Vec<&str>, String) {
    let (mut plain, mut others) = (Vec::new(), Vec::new());
    for (key, value) in pairs(text) {
        match value {
            None => plain.push(key),
            Some(value) => others.push(format!("{key}={value}")),
        }
    }
    (plain, others.join(" "))
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
    for SpecKey { name, needed, value: own } in keys {
        if let Some((_, value)) = words.iter().find(|(key, _)| key == name)
            && own.read(&mut of, value).is_none()
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
    for key in keys {
        let Some(value) = key.text(of).filter(|value| key.text(&usual).as_ref() != Some(value)) else {
            continue;
        };
        write!(f, "{between}{}={value}", key.name)?;
        // What was written is read, so that values that follow from it are not written too.
        let _ = key.value.read(&mut usual, &value);
        between = " ";
    }
    Ok(())
}

/// Numbers with names, as a spec of a kernel that needs no more: `warps=4 stages=2`.
///
/// ```
/// use kernel::words::Numbers;
///
/// let spec: Numbers = "stages=2 warps=4".parse()?;
/// assert_eq!(spec.get(["warps", "stages"])?, [4, 2]);
/// assert_eq!(spec, Numbers::new([("stages", 2), ("warps", 4)]));
/// assert_eq!(spec.get(["warps"]).unwrap_err(), "`stages=2`: one of the keys warps was needed");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Numbers(Vec<(String, u32)>);

impl Numbers {
    /// Numbers with these names.
    pub fn new<const N: usize>(numbers: [(&str, u32); N]) -> Self {
        Self(numbers.map(|(name, number)| (name.to_owned(), number)).to_vec())
    }

    /// The numbers with these names.
    ///
    /// # Errors
    /// One that is missing, or one with another name.
    pub fn get<const N: usize>(&self, names: [&str; N]) -> Result<[u32; N], String> {
        if let Some((name, number)) = self.0.iter().find(|(name, _)| !names.contains(&name.as_str())) {
            let error =
                refused::<()>(name, &number.to_string(), format!("one of the keys {}", names.join(", ")));
            return Err(error.map_or_else(|error| error.to_string(), |()| String::new()));
        }
        let mut numbers = [0; N];
        for (number, wanted) in numbers.iter_mut().zip(names) {
            let found = self.0.iter().find(|(name, _)| name == wanted);
            *number = found.ok_or_else(|| format!("`{self}` was found, {wanted}=NUMBER was needed, too"))?.1;
        }
        Ok(numbers)
    }

    /// The numbers with these names, each in its range.
    ///
    /// # Errors
    /// One that is missing or outside of its range, or one with another name.
    pub fn within<const N: usize>(
        &self,
        ranges: [(&str, RangeInclusive<u32>); N],
    ) -> Result<[u32; N], String> {
        let numbers = self.get(ranges.each_ref().map(|(name, _)| *name))?;
        match ranges.iter().zip(numbers).find(|((_, range), number)| !range.contains(number)) {
            None => Ok(numbers),
            Some(((name, range), number)) => {
                Err(format!("{name} is {number}, {} to {} was needed", range.start(), range.end()))
            }
        }
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, number)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={number}", if i > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = words(text).map_err(|error| error.to_string())?;
        let number = |(name, value): (&str, &str)| match u32::read(value) {
            Some(number) => Ok((name.to_owned(), number)),
            None => Err(format!("`{}`: a number was needed", said(name, value))),
        };
        words.into_iter().map(number).collect::<Result<_, _>>().map(Self)
    }
}

/// Extents as a problem that needs no more: `7x264`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sizes<const N: usize>(pub [u32; N]);

/// 0 of each.
impl<const N: usize> Default for Sizes<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> fmt::Display for Sizes<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, size) in self.0.iter().enumerate() {
            write!(f, "{}{size}", if i > 0 { "x" } else { "" })?;
        }
        Ok(())
    }
}

impl<const N: usize> FromStr for Sizes<N> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // One text for each value.
        let read = <[u32; N]>::read(text).map(Self).filter(|sizes| sizes.to_string() == text);
        read.ok_or_else(|| format!("`{text}` was found, {N} numbers with `x` between them were needed"))
    }
}
