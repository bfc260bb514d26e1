//! `--layout`: the directions of A, B and D. A column-major D is undone here, once: its transpose is the product of B and A
//! transposed, so each command is given the options of A for B, and those of M for N.

use super::{Given, Verb};
use crate::cli::Failure;

/// The directions of A and B, and of D if it is column-major.
pub(super) const ALL: [&str; 8] = ["kk", "kn", "mk", "mn", "kkm", "knm", "mkm", "mnm"];

/// What is not exchanged.
const REFUSED: [&str; 13] = [
    "kernel",
    "epilogue",
    "sparse",
    "scale-block-a",
    "scale-block-b",
    "scale-a",
    "scale-b",
    "zero-a",
    "zero-b",
    "rows",
    "max-rows",
    "k-groups",
    "group",
];

/// The option that stands for another one if D is column-major.
pub(super) fn exchanged(name: &str) -> &str {
    match name {
        "m" => "n",
        "n" => "m",
        "a" => "b",
        "b" => "a",
        "dtype" => "dtype-b",
        "dtype-b" => "dtype",
        other => other,
    }
}

impl Given {
    /// Whether D is column-major, so that the options are those of its transpose.
    ///
    /// # Errors
    /// An option that is not exchanged.
    pub(super) fn turns(&self) -> Result<bool, Failure> {
        let layout = if self.has("layout") { self.matches.get_one::<String>("layout") } else { None };
        let Some(layout) = layout.filter(|layout| layout.len() == 3) else { return Ok(false) };
        if matches!(self.verb, Verb::BENCH | Verb::TUNE | Verb::TRACE | Verb::SCHEDULE) {
            refuse!(
                "--layout is {layout}, so D is column-major: its transpose is computed, the row-major product of B and A \
                 transposed. Give the shape of that, NxMxK, and --layout kk, kn, mk or mn"
            );
        }
        match self.first(&REFUSED) {
            Some(name) => {
                let as_rows = "a row-major D was needed, or the options of its transpose";
                Err(usage!("--layout is {layout}, so D is column-major, and --{name} is given: {as_rows}"))
            }
            None => Ok(true),
        }
    }

    /// Whether D is column-major: the matrices of files are then transposed, and so is what is written.
    pub(crate) fn turned(&self) -> bool {
        self.turned
    }

    /// Takes --layout: the directions of A and B, as `kn`, of which D is the row-major product.
    pub(crate) fn layout(&self) -> Option<String> {
        let layout: String = self.get("layout")?;
        let ([a, b, ..], true) = (layout.as_bytes(), self.turned) else { return Some(layout) };
        let of = |contiguous: &u8, other| if *contiguous == b'k' { 'k' } else { other };
        Some([of(b, 'm'), of(a, 'n')].into_iter().collect())
    }

    /// Takes the formats of A and B, where they are given.
    pub(crate) fn formats(&self) -> [Option<String>; 2] {
        let [a, b] = ["dtype", "dtype-b"].map(|name| self.get::<String>(name));
        match (a, b) {
            // The format of B is that of A unless it is given, and that of A is bf16.
            (None, Some(b)) if self.turned => [Some(b.clone()), Some(b)],
            (Some(a), None) if self.turned => [Some(a), Some("bf16".to_owned())],
            both => both.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Given, Verb};
    use crate::cli::Failure;

    fn given(line: &[&str]) -> Result<Given, String> {
        let matches = clap::Command::new("plan").args(super::super::args(Verb::PLAN));
        let matches = matches.try_get_matches_from([&["plan"], line].concat()).expect("legal options");
        Given::new(Verb::PLAN, matches).map_err(|failure| match failure {
            Failure::Usage(words) => words,
            other @ (Failure::Wrong | Failure::Environment(_) | Failure::Closed) => panic!("{other:?}"),
        })
    }

    #[test]
    fn a_column_major_d_exchanges_a_and_b() {
        for (line, extents, formats, layout) in [
            (&["--m", "3", "--n", "5", "--layout", "kn"][..], [3, 5], [None, None], "kn"),
            (&["--m", "3", "--n", "5", "--layout", "knm"], [5, 3], [None, None], "mk"),
            (&["--m", "3", "--n", "5", "--layout", "mnm", "--dtype", "f16"], [5, 3], [Some("f16"); 2], "mn"),
            (
                &["--m", "3", "--n", "5", "--layout", "mkm", "--dtype", "e4m3", "--dtype-b", "e5m2"],
                [5, 3],
                [Some("e5m2"), Some("e4m3")],
                "kn",
            ),
        ] {
            let given = given(line).expect("legal");
            assert_eq!(["m", "n"].map(|name| given.get::<u32>(name)), extents.map(Some), "{line:?}");
            assert_eq!(given.formats(), formats.map(|format| format.map(str::to_owned)), "{line:?}");
            assert_eq!(given.layout().as_deref(), Some(layout), "{line:?}");
        }
        let refused = given(&["--layout", "kkm", "--epilogue", "bias"]).expect_err("D is column-major");
        assert!(refused.contains("--layout is kkm") && refused.contains("--epilogue"), "{refused}");
    }
}
