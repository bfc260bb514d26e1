//! The table: every option of every command.

mod check;
mod pictures;
mod problem;
mod run;

use std::sync::LazyLock;

use clap::builder::ValueParser;
use clap::value_parser;

use super::Many::Once;
use super::{Many, Preset, Row, Verb};

/// A parser of names.
macro_rules! names {
    ($names:expr) => {
        || clap::builder::PossibleValuesParser::new($names).into()
    };
}

/// A number from `$least` to `$most`.
macro_rules! count {
    ($type:ty, $range:expr) => {
        || value_parser!($type).range($range).into()
    };
}

/// Commands that take an option with the same preset.
macro_rules! each {
    ($preset:expr => $($verb:expr),+) => { &[$(($verb, $preset)),+] };
}

use {count, each, names};

/// A row without short name, unit and relations.
const fn row(
    name: &'static str,
    (value, parser): (&'static str, fn() -> ValueParser),
    takes: &'static [(Verb, Preset)],
    help: &'static str,
) -> Row {
    Row {
        name,
        short: Option::None,
        value,
        parser,
        signed: false,
        many: Once,
        unit: "",
        help,
        takes,
        needs: &[],
        excludes: &[],
    }
}

impl Row {
    const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    const fn signed(self) -> Self {
        Self { signed: true, ..self }
    }

    const fn many(self, many: Many) -> Self {
        Self { many, ..self }
    }

    const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    const fn excludes(self, excludes: &'static [&'static str]) -> Self {
        Self { excludes, ..self }
    }
}

type Value = (&'static str, fn() -> ValueParser);

const SWITCH: Value = ("", || value_parser!(bool));
const FILE: Value = ("FILE", || value_parser!(std::path::PathBuf));
const MATRIX: Value = ("FILE", || value_parser!(String));
const SEED: Value = ("SEED", || value_parser!(u64).into());

const KERNEL: Value = ("KERNEL", || value_parser!(String));

/// Help of a kernel.
const OF_KERNEL: &str = "Kernel: a name from `falchion configs`, or the `key=value` words of a spec. Words that are left \
     out have the defaults that `falchion plan --kernel \"\"` prints.";

/// What a kernel says itself.
const SAYS_KERNEL: &[&str] =
    &["dtype", "dtype-b", "out-dtype", "scale-block-a", "scale-block-b", "sparse", "epilogue"];

/// Every option.
pub(super) static ROWS: LazyLock<Vec<Row>> =
    LazyLock::new(|| [problem::ROWS, run::ROWS, check::ROWS, pictures::ROWS].concat());
