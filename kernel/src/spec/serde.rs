//! Specs in files, as their text. So a file stays readable, and a name or a `--kernel` can be copied from it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::KernelSpec;

impl Serialize for KernelSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A text that is not a legal spec is rejected with the rule that it breaks.
impl<'de> Deserialize<'de> for KernelSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}
