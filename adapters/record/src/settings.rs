//! What is recorded: environment variables, read once.

use std::path::PathBuf;
use std::sync::OnceLock;

use crate::say;

/// The settings.
#[derive(Debug)]
pub(crate) struct Settings {
    /// The folder that recordings are written to.
    pub(crate) folder: PathBuf,
    /// Text in the names of the kernels that are recorded.
    pub(crate) kernel: String,
    /// How many launches of each kernel are recorded.
    pub(crate) launches: u64,
    /// How many launches of each kernel go by before that.
    pub(crate) skip: u64,
    /// Most bytes of memory of a launch.
    pub(crate) bytes: u64,
    /// Whether memory after the launch is wanted.
    pub(crate) after: bool,
    /// Whether addresses in memory are followed.
    pub(crate) pointers: bool,
    /// What memory after the launch is compared as.
    pub(crate) want: Want,
    /// Folders with PTX.
    pub(crate) ptx: Vec<PathBuf>,
}

/// Elements, and within which tolerance they are right.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Want {
    /// The elements' name in a description, and their bytes.
    pub(crate) element: (&'static str, u64),
    pub(crate) rtol: f64,
    pub(crate) atol: f64,
}

/// The names of elements in a description of a launch, and their bytes.
const ELEMENTS: [(&str, u64); 14] = [
    ("f16", 2),
    ("bf16", 2),
    ("f32", 4),
    ("f64", 8),
    ("e4m3", 1),
    ("e5m2", 1),
    ("s8", 1),
    ("u8", 1),
    ("s16", 2),
    ("u16", 2),
    ("s32", 4),
    ("u32", 4),
    ("s64", 8),
    ("u64", 8),
];

impl Default for Want {
    /// Bytes, which are equal.
    fn default() -> Self {
        Self { element: ("u8", 1), rtol: 0.0, atol: 0.0 }
    }
}

impl Want {
    /// `ELEMENT`, `ELEMENT,RTOL` or `ELEMENT,RTOL,ATOL`.
    fn of(text: &str) -> Option<Self> {
        let mut words = text.split(',');
        let name = words.next()?;
        let element = *ELEMENTS.iter().find(|(known, _)| *known == name)?;
        let mut number =
            || words.next().map_or(Some(0.0), |word| word.parse().ok().filter(|&number| number >= 0.0));
        let (rtol, atol) = (number()?, number()?);
        words.next().is_none().then_some(Self { element, rtol, atol })
    }
}

/// Bytes of a launch, if nothing is set.
const BYTES: u64 = 1 << 30;

/// The settings; `None` if nothing is recorded.
pub(crate) fn settings() -> Option<&'static Settings> {
    static READ: OnceLock<Option<Settings>> = OnceLock::new();
    READ.get_or_init(|| Settings::of(&|name| std::env::var(name).ok())).as_ref()
}

impl Settings {
    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let get = |name: &str| variable(&format!("FALCHION_RECORD{name}")).filter(|value| !value.is_empty());
        let folder = PathBuf::from(get("")?);
        let number = |name: &str, otherwise: u64| match get(name).map(|text| (sized(&text), text)) {
            Some((Some(number), _)) => number,
            Some((None, text)) => {
                say(&format!("FALCHION_RECORD{name} is `{text}`, which is no number: {otherwise} is used"));
                otherwise
            }
            None => otherwise,
        };
        let want = get("_WANT").and_then(|text| {
            let want = Want::of(&text);
            if want.is_none() {
                say(&format!(
                    "FALCHION_RECORD_WANT is `{text}`, and not such as `f16,1e-3,1e-3`: bytes are compared"
                ));
            }
            want
        });
        let flag = |name: &str| get(name).is_some_and(|value| value != "0");
        let ptx = get("_PTX").map(|list| std::env::split_paths(&list).collect()).unwrap_or_default();
        Some(Self {
            folder,
            kernel: get("_KERNEL").unwrap_or_default(),
            launches: number("_LAUNCHES", 1),
            skip: number("_SKIP", 0),
            bytes: number("_BYTES", BYTES),
            after: flag("_AFTER"),
            pointers: flag("_POINTERS"),
            want: want.unwrap_or_default(),
            ptx,
        })
    }
}

/// A number, which may end with K, M or G for powers of 1024.
fn sized(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::{Settings, Want, sized};

    #[test]
    fn tolerances_are_read() {
        let want = |element, rtol, atol| Some(Want { element, rtol, atol });
        assert_eq!(Want::of("f16,1e-3,0.5"), want(("f16", 2), 1e-3, 0.5));
        assert_eq!(Want::of("u8"), want(("u8", 1), 0.0, 0.0));
        for wrong in ["f17", "f16,-1", "f16,1,1,1", "f16,x"] {
            assert_eq!(Want::of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn numbers_may_have_a_unit() {
        let cases =
            [("7", Some(7)), ("64M", Some(64 << 20)), ("2g", Some(2 << 30)), ("M", None), ("1.5", None)];
        for (text, want) in cases {
            assert_eq!(sized(text), want, "{text}");
        }
    }

    #[test]
    fn nothing_is_recorded_without_a_folder() {
        assert!(Settings::of(&|name| (name == "FALCHION_RECORD_KERNEL").then(|| "add".into())).is_none());
        let all = Settings::of(&|name| match name {
            "FALCHION_RECORD" => Some("out".into()),
            "FALCHION_RECORD_PTX" => Some("a:b".into()),
            "FALCHION_RECORD_AFTER" => Some("0".into()),
            _ => None,
        });
        let all = all.expect("a folder");
        assert_eq!((all.launches, all.skip, all.after, all.ptx.len()), (1, 0, false, 2));
    }
}
