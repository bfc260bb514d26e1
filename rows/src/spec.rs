//! A kernel over rows as plain data and as text: [`RowSpec`].

use core::fmt;
use core::str::FromStr;

use collective::Format;
use kernel::words::{self, As, At, OneOf, SpecKey, WordError};

/// What a kernel over rows computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowKind {
    /// `D = D + X`: [`RowAdd`](crate::RowAdd).
    Add,
    /// Copies rows of a table: [`RowGather`](crate::RowGather).
    Gather,
    /// Adds up rows of a table.
    GatherSum,
    /// Adds up rows of a table, multiplied by weights.
    GatherWeighted,
    /// The statistics of a rank's logits: [`RowPeak`](crate::RowPeak).
    Peak,
    /// The cross entropy of all ranks' statistics: [`RowMerge`](crate::RowMerge).
    Merge,
    /// The gradient of the cross entropy: [`RowGradient`](crate::RowGradient).
    Gradient,
    /// Two results of attention as one: [`RowMergeAttention`](crate::RowMergeAttention).
    MergeAttention,
    /// New keys and values in pages of a cache: [`RowAppendPages`](crate::RowAppendPages).
    AppendPages,
}

/// A kernel over rows as plain data. Its text ([`Display`](fmt::Display), [`FromStr`]) names the kernel, and what differs from
/// [`RowSpec::new`].
///
/// ```
/// use rows::{RowKind, RowSpec};
///
/// let spec: RowSpec = "kernel=gather-sum format=f16".parse()?;
/// assert_eq!(spec.kind, RowKind::GatherSum);
/// assert_eq!(spec.to_string(), "kernel=gather-sum format=f16");
/// # Ok::<(), kernel::words::WordError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowSpec {
    /// What it computes.
    pub kind: RowKind,
    /// Format of matrices, `bf16` or `f16`; `f32` for [`RowKind::Merge`], which has none; any of the three for [`RowKind::MergeAttention`].
    pub format: Format,
    /// Whether rows are copied in words of 4 bytes, for [`RowKind::Gather`]: they may then be as long as any pairs of elements.
    pub words: bool,
}

impl RowKind {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::NAMES.iter().map(|(_, kind)| *kind)
    }

    /// Its name in texts.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// Whether it takes rows of a table.
    pub(crate) const fn gathers(self) -> bool {
        matches!(self, Self::Gather | Self::GatherSum | Self::GatherWeighted)
    }
}

impl OneOf for RowKind {
    const NAMES: &'static [(&'static str, Self)] = &[
        ("add", Self::Add),
        ("gather", Self::Gather),
        ("gather-sum", Self::GatherSum),
        ("gather-weighted", Self::GatherWeighted),
        ("peak", Self::Peak),
        ("merge", Self::Merge),
        ("gradient", Self::Gradient),
        ("merge-attention", Self::MergeAttention),
        ("append-pages", Self::AppendPages),
    ];
}

/// What a kernel's name must be.
pub(crate) const NAME: &str =
    "add, gather, gather-sum, gather-weighted, peak, merge, gradient, merge-attention or append-pages";

impl RowSpec {
    /// The kernel that computes this in `bf16`, with loads of 16 bytes.
    pub const fn new(kind: RowKind) -> Self {
        let format = if matches!(kind, RowKind::Merge) { Format::F32 } else { Format::Bf16 };
        Self { kind, format, words: false }
    }

    /// The formats of its matrices, in words.
    pub(crate) const fn formats(kind: RowKind) -> &'static str {
        if matches!(kind, RowKind::Merge) {
            "f32, as statistics have,"
        } else if matches!(kind, RowKind::MergeAttention) {
            "bf16, f16 or f32"
        } else {
            "bf16 or f16"
        }
    }

    /// Checks that there is such a kernel.
    ///
    /// # Errors
    /// The first field that is illegal.
    pub fn check(&self) -> Result<(), WordError> {
        let Self { kind, format, words } = *self;
        let half = matches!(format, Format::Bf16 | Format::F16) && kind != RowKind::Merge;
        let wide = format == Format::F32 && matches!(kind, RowKind::Merge | RowKind::MergeAttention);
        if !half && !wide {
            return Err(refused("format", format, Self::formats(kind)));
        }
        if words && kind != RowKind::Gather {
            return Err(refused("words", "on", "off, or kernel=gather,"));
        }
        Ok(())
    }
}

/// A field that is illegal.
pub(crate) fn refused(key: &str, value: impl fmt::Display, needed: impl Into<String>) -> WordError {
    WordError { key: key.to_owned(), value: value.to_string(), needed: needed.into() }
}

/// Every key, in the order in which a spec is printed.
static KEYS: [SpecKey<RowSpec>; 3] = [
    SpecKey::by("kernel", NAME, &As(|of| of.kind, |of, kind| *of = RowSpec::new(kind))),
    SpecKey::at("format", "bf16, f16 or f32", &At(|of| &mut of.format)),
    SpecKey::at("words", "on or off", &At(|of| &mut of.words)),
];

impl fmt::Display for RowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usual = Self::new(self.kind);
        write!(f, "kernel={}{}", self.kind.name(), if *self == usual { "" } else { " " })?;
        words::write(&KEYS, self, usual, f)
    }
}

impl FromStr for RowSpec {
    type Err = WordError;

    /// Reads `key=value` words, between blanks or commas. The spec is checked by [`check`](Self::check).
    fn from_str(text: &str) -> Result<Self, WordError> {
        let spec = words::read(&KEYS, Self::new(RowKind::Add), text)?;
        let named = words::words(text)?.iter().any(|(key, _)| *key == "kernel");
        if named { Ok(spec) } else { Err(refused("kernel", "", NAME)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_read_back() {
        for kind in RowKind::all() {
            for format in [Format::Bf16, Format::F16, Format::F32] {
                for words in [false, true] {
                    let spec = RowSpec { kind, format, words };
                    assert_eq!(spec.to_string().parse(), Ok(spec), "{spec}");
                }
            }
        }
    }

    #[test]
    fn specs_have_short_texts() {
        for (text, want) in [
            ("kernel=add", "kernel=add"),
            ("format=bf16 kernel=add words=off", "kernel=add"),
            ("kernel=gather,words=on,format=f16", "kernel=gather format=f16 words=on"),
            ("kernel=merge", "kernel=merge"),
            ("format=f32 kernel=merge", "kernel=merge"),
            ("kernel=merge-attention format=f32", "kernel=merge-attention format=f32"),
            ("kernel=append-pages,format=f16", "kernel=append-pages format=f16"),
        ] {
            let spec: RowSpec = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((spec.to_string().as_str(), spec.check()), (want, Ok(())));
        }
    }

    #[test]
    fn what_is_no_spec_is_refused() {
        for (text, words) in [
            (
                "",
                "`kernel`: add, gather, gather-sum, gather-weighted, peak, merge, gradient, merge-attention or append-pages was needed",
            ),
            ("format=f16", "`kernel`: add,"),
            ("kernel=norm", "`kernel=norm`: add,"),
            ("kernel=add kernel=peak", "`kernel=peak`: `kernel` is given already"),
            ("kernel=add tile=64", "`tile=64`: one of the keys kernel, format, words was needed"),
            ("kernel=add format=quarter", "`format=quarter`: bf16, f16 or f32 was needed"),
            ("kernel=add format=f32", "`format=f32`: bf16 or f16 was needed"),
            ("kernel=merge format=bf16", "`format=bf16`: f32, as statistics have, was needed"),
            ("kernel=append-pages format=f32", "`format=f32`: bf16 or f16 was needed"),
            ("kernel=merge-attention format=e4m3", "`format=e4m3`: bf16, f16 or f32 was needed"),
            ("kernel=add words=on", "`words=on`: off, or kernel=gather, was needed"),
            ("kernel=gather words=yes", "`words=yes`: on or off was needed"),
        ] {
            let found = text.parse::<RowSpec>().and_then(|spec| spec.check());
            let error = found.expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
