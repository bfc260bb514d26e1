//! What is measured of a card in a few seconds.

use core::fmt;
use core::str::FromStr;

use crate::words::pairs;

/// Speeds of a card: `Gpu::calibrate` measures them, and [`Machine::calibrated`](super::Machine::calibrated) uses them. Bytes and
/// operations are per microsecond.
///
/// Its text, `copy=2.9e6 l2=.. launch=.. multiply=..`, is what the cache folder keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Bytes read plus bytes written, of a copy from memory to memory.
    pub copy: f64,
    /// Bytes read from L2 by all SMs.
    pub l2: f64,
    /// Microseconds from the start of one kernel that does nearly nothing to that of the next, in a graph.
    pub launch: f64,
    /// Floating-point operations of `wgmma` on `bf16`, without loads, for a few milliseconds after a rest.
    pub multiply: f64,
}

impl Calibration {
    /// Of an H200 (driver 580.159.04): medians of five runs, which differed by 1 % at most.
    pub const H200: Self = Self { copy: 3.861e6, l2: 9.90e6, launch: 1.423, multiply: 9.31e8 };

    /// Of H100s (SXM, driver 580.159.04): medians of five runs.
    pub const H100: Self = Self { copy: 2.79e6, l2: 8.2e6, launch: 1.44, multiply: 9.21e8 };

    /// The numbers with their names in the text.
    fn named(&self) -> [(&'static str, f64); 4] {
        let Self { copy, l2, launch, multiply } = *self;
        [("copy", copy), ("l2", l2), ("launch", launch), ("multiply", multiply)]
    }
}

impl fmt::Display for Calibration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (name, number)) in self.named().into_iter().enumerate() {
            write!(f, "{}{name}={number}", if i > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

/// The error says which number is missing or no positive number.
impl FromStr for Calibration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |name: &str| {
            let word = pairs(text).find(|(key, _)| *key == name).and_then(|(_, value)| value);
            let number = word.and_then(|word| word.parse::<f64>().ok());
            number.filter(|number| number.is_finite() && *number > 0.0).ok_or_else(|| {
                format!(
                    "{name} is {}, a positive number was needed",
                    word.map_or("missing".to_owned(), |word| format!("`{word}`"))
                )
            })
        };
        Ok(Self {
            copy: number("copy")?,
            l2: number("l2")?,
            launch: number("launch")?,
            multiply: number("multiply")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        let some = Calibration { copy: 2.9e6, l2: 5.5e6, launch: 1.25, multiply: 9.1e8 };
        assert_eq!(some.to_string().parse(), Ok(some));
        for (text, words) in [
            ("", "copy is missing"),
            ("copy=1 l2=2 launch=0 multiply=3", "launch is `0`"),
            ("copy=1 l2=x launch=1 multiply=3", "l2 is `x`"),
            ("copy=1 l2=2 launch=1 multiply=inf", "multiply is `inf`"),
        ] {
            let error = text.parse::<Calibration>().expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
