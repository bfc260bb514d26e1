//! The values of a spec's keys, as text.

use collective::{
    AccumulatorType, Arrivals, CachePolicy, Code, Form, Format, MmaKind, Producer, Roles, StorePath,
    TileLayout, WeightsSpec,
};
use cute_rs::atom::{Major, SwizzleMode};
use scheduler::{DivideSpec, RasterSpec, ReductionKind, Rule};

use super::error::{SpecError, shortened};
use super::{EpilogueKind, KernelSpec};
use crate::named::{Named, one_of};

/// Largest number in a spec. Products of a few of them do not overflow.
const MOST: u32 = 4096;

/// A value of a key.
pub(super) trait Word: Sized {
    /// The value of a text.
    ///
    /// # Errors
    /// The key does not accept it.
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError>;

    /// Its text.
    fn text(&self) -> String;
}

impl<T: Named> Word for T {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        Self::named(text).ok_or_else(|| refused(key, text, Self::needed(text)))
    }

    fn text(&self) -> String {
        self.word().to_owned()
    }
}

/// Weights in few bits, without groups; `none` without.
impl Word for Option<WeightsSpec> {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        let code = Code::named(text);
        if code.is_none() && text != "none" {
            let names = || format!("one of none, {}", Code::ALL.map(Code::name).join(", "));
            let needed = Format::ambiguous(text).map_or_else(names, str::to_owned);
            return Err(refused(key, text, needed));
        }
        Ok(code.map(|code| WeightsSpec { code, group: 0, zeros: false }))
    }

    fn text(&self) -> String {
        self.map_or("none", |weights| weights.code.name()).to_owned()
    }
}

/// How D is stored, with the usual number of buffers.
impl Word for StorePath {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        match text {
            "tma" => Ok(Self::Tma { buffers: 2 }),
            "direct" => Ok(Self::Direct),
            _ => Err(refused(key, text, "one of tma, direct")),
        }
    }

    fn text(&self) -> String {
        if *self == Self::Direct { "direct" } else { "tma" }.to_owned()
    }
}

/// The kind of a scheduler, with its usual parameters.
impl Word for Rule {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        let found = RULES.iter().find(|(name, _)| *name == text);
        let names = || RULES.map(|(name, _)| name).join(", ");
        found.map(|(_, rule)| *rule).ok_or_else(|| refused(key, text, format!("one of {}", names())))
    }

    fn text(&self) -> String {
        let kind = |of: &Self| core::mem::discriminant(of);
        RULES.iter().find(|(_, of)| kind(of) == kind(self)).map_or("", |(name, _)| name).to_owned()
    }
}

const RULES: [(&str, Rule); 7] = [
    ("persistent", Rule::Persistent),
    ("one-tile", Rule::OneTile),
    ("dynamic", Rule::Dynamic),
    ("dynamic-tail", Rule::DividedTail { parts: 3, least: 16 }),
    (
        "stream-k",
        Rule::StreamK { reduction: ReductionKind::Ordered, divide: DivideSpec::HEURISTIC, least: 4 },
    ),
    ("cluster-k", Rule::ClusterK { parts: 4 }),
    ("narrow-tail", Rule::NarrowTail { parts: 2 }),
];

/// A format of operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Operand(pub(super) Format);

macro_rules! named {
    ($($of:ty: $all:expr;)+) => {$(
        impl Named for $of {
            fn all() -> Vec<(&'static str, Self)> {
                Vec::from($all)
            }
        }
    )+};
}

named! {
    Form: [
        ("single", Form::Single),
        ("batched", Form::Batched),
        ("ragged", Form::GroupedContiguous),
        ("masked", Form::GroupedMasked),
        ("k-grouped", Form::KGrouped),
        ("grouped", Form::PointerArray),
    ];
    [Major; 2]: [
        ("kk", [Major::K, Major::K]),
        ("kn", [Major::K, Major::Mn]),
        ("mk", [Major::Mn, Major::K]),
        ("mn", [Major::Mn, Major::Mn]),
    ];
    MmaKind: MmaKind::ALL.map(|by| (by.name(), by));
    [bool; 2]: [("none", [false, false]), ("a", [true, false]), ("b", [false, true]), ("both", [true, true])];
    bool: [("no", false), ("yes", true)];
    AccumulatorType: [AccumulatorType::F16, AccumulatorType::F32, AccumulatorType::S32, AccumulatorType::F64]
        .map(|sums| (sums.suffix(), sums));
    Roles: [
        ("cooperative", Roles::Cooperative),
        ("pingpong", Roles::Pingpong),
        ("unspecialised", Roles::Unspecialised),
    ];
    Arrivals: [("warpgroup", Arrivals::Warpgroup), ("warp", Arrivals::Warp), ("thread", Arrivals::Thread)];
    Producer: [("tma", Producer::Thread), ("copy", Producer::Warpgroup)];
    CachePolicy: [
        ("normal", CachePolicy::Normal),
        ("evict-first", CachePolicy::EvictFirst),
        ("evict-last", CachePolicy::EvictLast),
    ];
    TileLayout: [
        ("widest", TileLayout::Widest),
        ("128", TileLayout::Slabs(SwizzleMode::B128)),
        ("64", TileLayout::Slabs(SwizzleMode::B64)),
        ("32", TileLayout::Slabs(SwizzleMode::B32)),
        ("none", TileLayout::Slabs(SwizzleMode::None)),
    ];
    ReductionKind: [
        ("ordered", ReductionKind::Ordered),
        ("atomic", ReductionKind::Atomic),
        ("separate", ReductionKind::Separate),
    ];
}

impl Named for Format {
    fn all() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|format| (format.name(), format)).into()
    }

    fn named(name: &str) -> Option<Self> {
        Self::named(name)
    }

    fn needed(text: &str) -> String {
        Self::ambiguous(text).map_or_else(one_of::<Self>, str::to_owned)
    }
}

impl Named for Operand {
    fn all() -> Vec<(&'static str, Self)> {
        KernelSpec::operands().map(|format| (format.name(), Self(format))).collect()
    }

    fn named(name: &str) -> Option<Self> {
        let format = Format::named(name)?;
        KernelSpec::operands().any(|of| of == format).then_some(Self(format))
    }

    fn needed(text: &str) -> String {
        Format::ambiguous(text).map_or_else(one_of::<Self>, str::to_owned)
    }
}

/// A number up to [`MOST`].
fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?.filter(|&number| number <= MOST)
}

/// The error for a value that a key does not accept.
pub(super) fn refused(key: &'static str, value: &str, needed: impl Into<String>) -> SpecError {
    SpecError::Value { key, value: shortened(value), needed: needed.into() }
}

impl Word for u32 {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        number(text).ok_or_else(|| refused(key, text, format!("a number up to {MOST}")))
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl<const N: usize> Word for [u32; N] {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        let numbers: Option<Vec<u32>> = text.split('x').map(number).collect();
        let needed = || format!("{N} numbers up to {MOST} with an `x` between them");
        numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| refused(key, text, needed()))
    }

    fn text(&self) -> String {
        self.map(|number| number.to_string()).join("x")
    }
}

/// A number of stages, or `auto`.
impl Word for Option<u32> {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        match (text, number(text)) {
            ("auto", _) => Ok(None),
            (_, Some(stages)) => Ok(Some(stages)),
            (_, None) => Err(refused(key, text, format!("auto, or a number up to {MOST}"))),
        }
    }

    fn text(&self) -> String {
        self.map_or_else(|| "auto".to_owned(), |stages| stages.to_string())
    }
}

/// Number of rows that share a scale; 0 without scales.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scales(pub(super) u32);

impl Word for Scales {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        let rows = || text.strip_suffix("x128").and_then(number).filter(|&rows| rows > 0);
        let rows = if text == "none" { Some(0) } else { rows() };
        rows.map(Self).ok_or_else(|| refused(key, text, "none, 1x128 or 128x128"))
    }

    fn text(&self) -> String {
        if self.0 == 0 { "none".to_owned() } else { format!("{}x128", self.0) }
    }
}

/// Number of weights along K that share a scale; 0 without scales.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Group(pub(super) u32);

impl Word for Group {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        let group = if text == "none" { Some(0) } else { number(text).filter(|&group| group > 0) };
        group.map(Self).ok_or_else(|| refused(key, text, "none, 32, 64 or 128"))
    }

    fn text(&self) -> String {
        if self.0 == 0 { "none".to_owned() } else { self.0.to_string() }
    }
}

/// An order of tiles, with its size.
impl Word for RasterSpec {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        let (word, digits) = text.split_at(text.find(|c: char| c.is_ascii_digit()).unwrap_or(text.len()));
        let raster = match number(digits) {
            None if !digits.is_empty() => None,
            size => Self::named(word, size),
        };
        raster.ok_or_else(|| {
            let words = Self::words().collect::<Vec<_>>().join(", ");
            refused(key, text, format!("one of {words}, with any number in place of 8,"))
        })
    }

    fn text(&self) -> String {
        self.word().unwrap_or_else(|| self.name())
    }
}

/// Which tiles are split.
impl Word for DivideSpec {
    fn read(key: &'static str, text: &str) -> Result<Self, SpecError> {
        let after = |name: &str| number(text.strip_prefix(name)?);
        let divide = match text {
            "remainder" => Some(Self::Remainder),
            "heuristic" => Some(Self::HEURISTIC),
            _ => (after("split").map(Self::EveryTile))
                .or_else(|| after("heuristic").map(|gain| Self::Heuristic { gain })),
        };
        divide.ok_or_else(|| refused(key, text, "heuristic, heuristic4, remainder or split3"))
    }

    fn text(&self) -> String {
        match *self {
            Self::Remainder => "remainder".to_owned(),
            Self::EveryTile(parts) => format!("split{parts}"),
            Self::HEURISTIC => "heuristic".to_owned(),
            Self::Heuristic { gain } => format!("heuristic{gain}"),
        }
    }
}

impl Word for EpilogueKind {
    fn read(_key: &'static str, text: &str) -> Result<Self, SpecError> {
        text.parse()
    }

    fn text(&self) -> String {
        self.name().to_owned()
    }
}
