//! Specs as text: `key=value` words for everything that differs from the default.

use core::fmt;
use core::str::FromStr;

use collective::{Format, MmaKind};

use super::error::{SpecError, shortened};
use super::keys::{Draft, KEYS};
use super::{EpilogueKind, KernelSpec};
use crate::words::pairs;

impl FromStr for EpilogueKind {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let kind = match text {
            "linear" => Some(Self::Linear),
            "sourced" => Some(Self::Sourced),
            _ => None,
        };
        kind.map_or_else(|| Ok(Self::Fused(text.parse()?)), Ok)
    }
}

impl KernelSpec {
    /// The formats that operands can have: those that some instruction multiplies.
    pub fn operands() -> impl Iterator<Item = Format> {
        Format::ALL.into_iter().filter(|&format| MmaKind::fastest(format, format).is_some())
    }

    /// Parses a spec, legal or not.
    ///
    /// # Errors
    /// A word that does not belong to a spec, or a value that its key does not accept.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let mut words: Vec<(&str, &str)> = Vec::new();
        for (key, value) in pairs(text) {
            let Some(value) = value else { return Err(SpecError::Word { word: shortened(key) }) };
            if KEYS.iter().all(|known| known.name != key) {
                return Err(SpecError::Key {
                    key: shortened(key),
                    known: KEYS.each_ref().map(|key| key.name).to_vec(),
                });
            }
            if words.iter().any(|(known, _)| *known == key) {
                return Err(SpecError::Twice { key: key.to_owned() });
            }
            words.push((key, value));
        }
        let mut draft = Draft::empty();
        for key in &KEYS {
            draft.usual(key.name);
            if let Some((_, value)) = words.iter().find(|(name, _)| *name == key.name)
                && !key.read(&mut draft, value)?
            {
                return Err(SpecError::Unused { key: key.name, value: shortened(value), of: key.of });
            }
        }
        draft.spec()
    }
}

impl FromStr for KernelSpec {
    type Err = SpecError;

    /// Parses a spec, which must be legal.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let spec = Self::parse(text)?;
        match spec.plan() {
            Ok(_) => Ok(spec),
            Err(error) => Err(SpecError::Illegal { error, nearest: spec.nearest_legal() }),
        }
    }
}

impl KernelSpec {
    /// Every key with its value, also where that is the default.
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let draft = Draft::of(*self);
        KEYS.iter().filter_map(|key| Some((key.name, key.write(draft)?))).collect()
    }
}

/// The tile, and what differs from the default. The text parses back to the same spec.
impl fmt::Display for KernelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (draft, mut follows, mut text) = (Draft::of(*self), Draft::empty(), String::new());
        for key in &KEYS {
            follows.usual(key.name);
            let Some(value) = key.write(draft) else { continue };
            if key.write(follows).as_ref() != Some(&value) || matches!(key.name, "dtype" | "layout" | "tile")
            {
                let between = if text.is_empty() { "" } else { " " };
                text.push_str(&format!("{between}{}={value}", key.name));
            }
            // What a spec has is read.
            let _ = key.read(&mut follows, &value);
        }
        f.write_str(&text)
    }
}
