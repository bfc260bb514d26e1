//! Specs as text: `key=value` words for everything that differs from the default.

use core::fmt;
use core::str::FromStr;

use collective::{
    Arrivals, CachePolicy, Format, FormulaError, MmaKind, Producer, Roles, StorePath, StoreSpec, TileLayout,
    WeightsSpec,
};
use cute_rs::atom::Major;
use scheduler::{
    Clustered, DivideSpec, Drawn, Narrowed, ReductionKind, SchedulerSpec, Streamed, Tailed, Walk, Whole,
};

use super::names::{ARRIVALS, CACHES, FORMS, LAYOUTS, LOADS, REDUCTIONS, ROLES, SWITCH, SWIZZLES, name_of};
use super::values::{
    SPARSE, divide, divide_text, raster, raster_text, scales, scales_text, weights, weights_text,
};
use super::{EpilogueKind, KernelSpec};
use crate::legal::IllegalKernel;

/// Every key, in the order in which a spec is printed.
const KEYS: [&str; 40] = [
    "form",
    "dtype",
    "dtype-b",
    "layout",
    "multiply",
    "out",
    "epilogue",
    "scale-a",
    "scale-b",
    "sparse",
    "weights-a",
    "weights-b",
    "group",
    "zeros",
    "tile",
    "step",
    "sums",
    "promote",
    "waves",
    "cluster",
    "roles",
    "consumers",
    "stages",
    "arrivals",
    "load",
    "l2-a",
    "l2-b",
    "swizzle-a",
    "swizzle-b",
    "store",
    "swizzle-d",
    "swap",
    "scheduler",
    "raster",
    "reduction",
    "divide",
    "min-k-tiles",
    "splits",
    "pdl",
    "buffers",
];

/// Why a text is not a legal spec of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// A word without `=`.
    #[error("`{word}` is not a `key=value` of a spec")]
    Word {
        /// The word.
        word: String,
    },
    /// A key that does not exist.
    #[error("a spec has no key `{key}`; the keys are {}", KEYS.join(", "))]
    Key {
        /// The key.
        key: String,
    },
    /// A key that is given twice.
    #[error("`{key}` is given twice")]
    Twice {
        /// The key.
        key: String,
    },
    /// A value that the key does not accept.
    #[error("{key} is `{value}`, {needed} was needed")]
    Value {
        /// The key.
        key: &'static str,
        /// The value that was given.
        value: String,
        /// The values that the key accepts.
        needed: String,
    },
    /// A key that the chosen scheduler or store does not have.
    #[error("{key}={value} belongs to {of}")]
    Unused {
        /// The key.
        key: &'static str,
        /// The value that was given.
        value: String,
        /// What the key belongs to.
        of: &'static str,
    },
    /// An epilogue that is no formula.
    #[error("epilogue is neither linear nor sourced: {0}")]
    Formula(#[from] FormulaError),
    /// A legal text of an illegal kernel.
    #[error("{error}{}", nearest.as_ref().map_or_else(String::new, |nearest| format!("; the nearest legal spec has {nearest}")))]
    Illegal {
        /// The rule that the kernel breaks.
        error: IllegalKernel,
        /// The change that gives the nearest legal spec, as `key=value`.
        nearest: Option<String>,
    },
}

/// Largest number in a spec: above every limit of the hardware, and small enough that no sum or product
/// overflows.
const MOST: u32 = 4096;

/// The words of a text, between blanks or commas. Neither ends a word inside of quotes or brackets, as in
/// `epilogue=clamp(acc,0,1)`.
fn split(text: &str) -> impl Iterator<Item = &str> {
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
        (!word.is_empty()).then_some(word)
    })
}

/// The words of a spec by key. Each must be taken once.
pub(super) struct Words<'a> {
    words: Vec<(&'a str, &'a str, bool)>,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Result<Self, SpecError> {
        let mut words: Vec<(&str, &str, bool)> = Vec::new();
        for word in split(text) {
            let Some((key, value)) = word.split_once('=') else {
                return Err(SpecError::Word { word: shortened(word) });
            };
            if !KEYS.contains(&key) {
                return Err(SpecError::Key { key: shortened(key) });
            }
            if words.iter().any(|(known, ..)| *known == key) {
                return Err(SpecError::Twice { key: key.to_owned() });
            }
            let quoted = ['"', '\''].iter().find_map(|&quote| value.strip_prefix(quote)?.strip_suffix(quote));
            words.push((key, quoted.unwrap_or(value), false));
        }
        Ok(Self { words })
    }

    /// Takes the value of a key, if the key is given.
    pub(super) fn take(&mut self, key: &str) -> Option<&'a str> {
        let word = self.words.iter_mut().find(|(known, ..)| *known == key)?;
        word.2 = true;
        Some(word.1)
    }

    /// The value of a key that accepts some names.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        key: &'static str,
        default: T,
        names: &[(&str, T)],
    ) -> Result<T, SpecError> {
        let Some(value) = self.take(key) else { return Ok(default) };
        let found = names.iter().find(|(name, _)| *name == value);
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| refused(key, value, format!("one of {}", names.join(", "))))
    }

    /// The value of a key that accepts a number.
    fn number(&mut self, key: &'static str, default: u32) -> Result<u32, SpecError> {
        match self.take(key) {
            Some(value) => number(value).ok_or_else(|| refused(key, value, format!("a number up to {MOST}"))),
            None => Ok(default),
        }
    }

    /// The value of a key that accepts `N` numbers with `x` between them.
    fn extents<const N: usize>(
        &mut self,
        key: &'static str,
        default: [u32; N],
    ) -> Result<[u32; N], SpecError> {
        let Some(value) = self.take(key) else { return Ok(default) };
        let numbers: Option<Vec<u32>> = value.split('x').map(number).collect();
        let needed = || format!("{N} numbers up to {MOST} with an `x` between them");
        numbers.and_then(|numbers| numbers.try_into().ok()).ok_or_else(|| refused(key, value, needed()))
    }

    /// An error if the key is given and was not taken.
    fn rest(self, key: &'static str, of: &'static str) -> Result<Self, SpecError> {
        match self.words.iter().find(|(known, _, taken)| *known == key && !taken) {
            Some((_, value, _)) => Err(SpecError::Unused { key, value: shortened(value), of }),
            None => Ok(self),
        }
    }
}

pub(super) fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?.filter(|&number| number <= MOST)
}

/// The number after a name, for example 8 in `m8`.
pub(super) fn numbered(text: &str, name: &str) -> Option<u32> {
    number(text.strip_prefix(name)?)
}

pub(super) fn refused(key: &'static str, value: &str, needed: impl Into<String>) -> SpecError {
    SpecError::Value { key, value: shortened(value), needed: needed.into() }
}

/// The beginning of a user's text, to quote in an error.
fn shortened(text: &str) -> String {
    const MOST: usize = 40;
    if text.chars().count() <= MOST {
        text.to_owned()
    } else {
        text.chars().take(MOST).chain(['…']).collect()
    }
}

/// The formats of operands by name.
fn operand_names() -> Vec<(&'static str, Format)> {
    KernelSpec::operands().map(|format| (format.name(), format)).collect()
}

/// Default tile, roles and loads of kernels in which all threads load and multiply.
const MULTISTAGE: ([u32; 3], Roles, Producer) = ([128, 128, 64], Roles::Unspecialised, Producer::Warpgroup);

/// Default number of consumers for a tile of `m` rows.
const fn consumers(roles: Roles, m: u32) -> u32 {
    match roles {
        Roles::Pingpong => 2,
        Roles::Cooperative | Roles::Unspecialised if m.is_multiple_of(128) => 2,
        Roles::Cooperative | Roles::Unspecialised if m.is_multiple_of(192) => 3,
        Roles::Cooperative | Roles::Unspecialised => 1,
    }
}

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

/// The values of `scheduler=`.
#[derive(Clone, Copy)]
enum Scheduler {
    OneTile,
    Persistent,
    Dynamic,
    DynamicTail,
    StreamK,
    ClusterK,
    NarrowTail,
}

fn scheduler(words: &mut Words<'_>) -> Result<SchedulerSpec, SpecError> {
    let names = [
        ("persistent", Scheduler::Persistent),
        ("one-tile", Scheduler::OneTile),
        ("dynamic", Scheduler::Dynamic),
        ("dynamic-tail", Scheduler::DynamicTail),
        ("stream-k", Scheduler::StreamK),
        ("cluster-k", Scheduler::ClusterK),
        ("narrow-tail", Scheduler::NarrowTail),
    ];
    let kind = words.one_of("scheduler", Scheduler::Persistent, &names)?;
    let raster = match words.take("raster") {
        Some(text) => raster(text)?,
        None => KernelSpec::DEFAULT.scheduler.raster(),
    };
    Ok(match kind {
        Scheduler::OneTile => SchedulerSpec::OneTile(Whole { raster }),
        Scheduler::Persistent => SchedulerSpec::Persistent(Walk { raster }),
        Scheduler::Dynamic => SchedulerSpec::Dynamic(Drawn { raster }),
        Scheduler::DynamicTail => SchedulerSpec::DividedTail(Tailed {
            raster,
            parts: words.number("splits", 3)?,
            least: words.number("min-k-tiles", 16)?,
        }),
        Scheduler::StreamK => SchedulerSpec::StreamK(Streamed {
            raster,
            reduction: words.one_of("reduction", ReductionKind::Ordered, &REDUCTIONS)?,
            divide: words.take("divide").map_or(Ok(DivideSpec::HEURISTIC), divide)?,
            least: words.number("min-k-tiles", 4)?,
        }),
        Scheduler::ClusterK => {
            SchedulerSpec::ClusterK(Clustered { raster, parts: words.number("splits", 4)? })
        }
        Scheduler::NarrowTail => {
            SchedulerSpec::NarrowTail(Narrowed { raster, parts: words.number("splits", 2)? })
        }
    })
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
        let mut words = Words::new(text)?;
        let mut spec = Self::DEFAULT;
        spec.form = words.one_of("form", spec.form, &FORMS)?;
        let formats = Format::ALL.map(|format| (format.name(), format));
        let a = words.one_of("dtype", Format::Bf16, &operand_names())?;
        let operands = [a, words.one_of("dtype-b", a, &operand_names())?];
        let layout = words.one_of("layout", [Major::K; 2], &LAYOUTS)?;
        let fastest = MmaKind::fastest(operands[0], operands[1]).unwrap_or(MmaKind::Wgmma);
        let multiply = words.one_of("multiply", fastest, &MmaKind::ALL.map(|by| (by.name(), by)))?;
        let by_threads = multiply != MmaKind::Wgmma;
        spec.epilogue = words.take("epilogue").map_or(Ok(EpilogueKind::Linear), str::parse)?;
        let output = match spec.epilogue {
            EpilogueKind::Fused(formula) => formula.output(a),
            EpilogueKind::Linear | EpilogueKind::Sourced => a.output(),
        };
        let output = words.one_of("out", output, &formats)?;
        let scales = [scales(&mut words, "scale-a")?, scales(&mut words, "scale-b")?];
        let weights = weights(&mut words)?;
        let sparse = words.one_of("sparse", [false; 2], &SPARSE)?;
        let mainloop = &mut spec.mainloop;
        if scales != [0; 2] || weights.iter().any(Option::is_some) || sparse != [false; 2] {
            // These kernels hold a second set of accumulators, or fragments of A, in registers, and threads
            // read the stage. So the default tile is narrower, and each warp arrives on its own.
            (mainloop.tile[1], mainloop.arrivals) = (128, Arrivals::Warp);
        }
        if by_threads {
            (mainloop.tile, mainloop.roles, mainloop.producer) = MULTISTAGE;
        }
        // 128 bytes along K, the width of one swizzle.
        mainloop.tile[2] = 1024 / a.bits();
        if sparse != [false; 2] {
            // The same number of bytes of A, and twice as many of B.
            mainloop.tile[2] *= 2;
        }
        mainloop.roles = words.one_of("roles", mainloop.roles, &ROLES)?;
        if mainloop.roles == Roles::Pingpong {
            // Each consumer has the accumulators of a whole tile.
            mainloop.tile[1] = 128;
        }
        mainloop.tile = words.extents("tile", mainloop.tile)?;
        mainloop.step = words.number("step", 0)?;
        let sums = words.take("sums");
        let promote = words.number("promote", 0)?;
        mainloop.waves = words.number("waves", 1)?;
        mainloop.cluster = words.extents("cluster", mainloop.cluster)?;
        mainloop.consumers = words.number("consumers", consumers(mainloop.roles, mainloop.tile[0]))?;
        mainloop.stages = match words.take("stages") {
            None | Some("auto") => None,
            Some(text) => Some(
                number(text)
                    .ok_or_else(|| refused("stages", text, format!("auto, or a number up to {MOST}")))?,
            ),
        };
        mainloop.arrivals = words.one_of("arrivals", mainloop.arrivals, &ARRIVALS)?;
        mainloop.producer = words.one_of("load", mainloop.producer, &LOADS)?;
        let cache = [
            words.one_of("l2-a", CachePolicy::Normal, &CACHES)?,
            words.one_of("l2-b", CachePolicy::Normal, &CACHES)?,
        ];
        let swizzles = [
            words.one_of("swizzle-a", TileLayout::Widest, &SWIZZLES)?,
            words.one_of("swizzle-b", TileLayout::Widest, &SWIZZLES)?,
        ];
        let staged = words.one_of("store", output != Format::F64, &[("tma", true), ("direct", false)])?;
        let way =
            if staged { StorePath::Tma { buffers: words.number("buffers", 2)? } } else { StorePath::Direct };
        let transposed = words.one_of("swap", false, &SWITCH)?;
        let staging = match way {
            StorePath::Tma { .. } => words.one_of("swizzle-d", TileLayout::Widest, &SWIZZLES)?,
            StorePath::Direct => TileLayout::Widest,
        };
        spec.store = StoreSpec { format: output, way, layout: staging, transposed };
        let [a, b] = if transposed { [1, 0] } else { [0, 1] };
        for (of, to) in [a, b].into_iter().zip(&mut mainloop.operands) {
            (to.format, to.major, to.layout, to.cache) = (operands[of], layout[of], swizzles[of], cache[of]);
            (to.scaled, to.weights, to.sparse) = (scales[of], weights[of], sparse[of]);
        }
        let [a, b] = mainloop.operands.map(|operand| operand.format);
        if let Some(atom) = multiply.atom(a, b) {
            mainloop.atom = atom;
        } else if by_threads {
            let needed = "an instruction that multiplies the formats of A and B";
            return Err(refused("multiply", multiply.name(), format!("{needed}, {a} and {b},")));
        }
        mainloop.atom = mainloop.atom.taking(mainloop.operands[0]);
        let usual = mainloop.atom.sums().suffix();
        if let Some(sums) = sums.filter(|sums| *sums != usual) {
            let half = mainloop.atom.in_half().filter(|half| half.sums().suffix() == sums);
            let others = mainloop.atom.in_half().map_or("", |_| " or f16");
            mainloop.atom = half.ok_or_else(|| {
                refused("sums", sums, format!("{usual}{others} for products of {a} and {b}"))
            })?;
        }
        mainloop.atom = mainloop.atom.promoted(promote);
        spec.scheduler = scheduler(&mut words)?;
        spec.overlaps = words.one_of("pdl", true, &SWITCH)?;
        let words = words
            .rest("buffers", "store=tma")?
            .rest("swizzle-d", "store=tma")?
            .rest("splits", "scheduler=dynamic-tail, scheduler=cluster-k and scheduler=narrow-tail")?
            .rest("group", "weights-a and weights-b")?
            .rest("zeros", "weights-a and weights-b")?;
        let words = words.rest("reduction", "scheduler=stream-k")?.rest("divide", "scheduler=stream-k")?;
        words.rest("min-k-tiles", "scheduler=stream-k and scheduler=dynamic-tail")?;
        Ok(spec)
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
        let Self { form, mainloop, epilogue, store, scheduler, overlaps } = *self;
        let extents = |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
        let [a, b] = if store.transposed { [1, 0] } else { [0, 1] };
        let layouts = mainloop.operands.map(|of| of.layout);
        let (majors, cache) = (mainloop.operands.map(|of| of.major), mainloop.operands.map(|of| of.cache));
        let mut words = vec![
            ("form", name_of(&FORMS, form).to_owned()),
            ("dtype", mainloop.operands[a].format.name().to_owned()),
            ("dtype-b", mainloop.operands[b].format.name().to_owned()),
            ("layout", name_of(&LAYOUTS, [majors[a], majors[b]]).to_owned()),
            ("multiply", mainloop.atom.types.multiply().name().to_owned()),
            ("epilogue", epilogue.name().to_owned()),
            ("out", store.format.name().to_owned()),
            ("scale-a", scales_text(mainloop.operands[a].scaled)),
            ("scale-b", scales_text(mainloop.operands[b].scaled)),
            ("sparse", name_of(&SPARSE, [a, b].map(|of| mainloop.operands[of].sparse)).to_owned()),
            ("weights-a", weights_text(mainloop.operands[a].weights)),
            ("weights-b", weights_text(mainloop.operands[b].weights)),
            ("tile", extents(&mainloop.tile)),
            ("step", mainloop.step.to_string()),
            ("sums", mainloop.atom.sums().suffix().to_owned()),
            ("promote", mainloop.atom.promote.to_string()),
            ("waves", mainloop.waves.to_string()),
            ("cluster", extents(&mainloop.cluster)),
            ("roles", name_of(&ROLES, mainloop.roles).to_owned()),
            ("consumers", mainloop.consumers.to_string()),
            ("stages", mainloop.stages.map_or_else(|| "auto".to_owned(), |stages| stages.to_string())),
            ("arrivals", name_of(&ARRIVALS, mainloop.arrivals).to_owned()),
            ("load", name_of(&LOADS, mainloop.producer).to_owned()),
            ("l2-a", name_of(&CACHES, cache[a]).to_owned()),
            ("l2-b", name_of(&CACHES, cache[b]).to_owned()),
            ("swizzle-a", name_of(&SWIZZLES, layouts[a]).to_owned()),
            ("swizzle-b", name_of(&SWIZZLES, layouts[b]).to_owned()),
        ];
        if let Some(WeightsSpec { group, zeros, .. }) =
            mainloop.operands[a].weights.or(mainloop.operands[b].weights)
        {
            let group = if group == 0 { "none".to_owned() } else { group.to_string() };
            words.extend([("group", group), ("zeros", name_of(&SWITCH, zeros).to_owned())]);
        }
        match store.way {
            StorePath::Direct => words.push(("store", "direct".to_owned())),
            StorePath::Tma { buffers } => {
                let layout = name_of(&SWIZZLES, store.layout).to_owned();
                words.extend([
                    ("store", "tma".to_owned()),
                    ("buffers", buffers.to_string()),
                    ("swizzle-d", layout),
                ]);
            }
        }
        words.push(("swap", name_of(&SWITCH, store.transposed).to_owned()));
        let kind = match scheduler {
            SchedulerSpec::OneTile(_) => "one-tile",
            SchedulerSpec::Persistent(_) => "persistent",
            SchedulerSpec::Dynamic(_) => "dynamic",
            SchedulerSpec::DividedTail(_) => "dynamic-tail",
            SchedulerSpec::StreamK(_) => "stream-k",
            SchedulerSpec::ClusterK(_) => "cluster-k",
            SchedulerSpec::NarrowTail(_) => "narrow-tail",
        };
        words.extend([("scheduler", kind.to_owned()), ("raster", raster_text(scheduler.raster()))]);
        match scheduler {
            SchedulerSpec::DividedTail(Tailed { parts, least, .. }) => {
                words.extend([("splits", parts.to_string()), ("min-k-tiles", least.to_string())]);
            }
            SchedulerSpec::StreamK(Streamed { reduction, divide, least, .. }) => words.extend([
                ("reduction", name_of(&REDUCTIONS, reduction).to_owned()),
                ("divide", divide_text(divide)),
                ("min-k-tiles", least.to_string()),
            ]),
            SchedulerSpec::ClusterK(Clustered { parts, .. })
            | SchedulerSpec::NarrowTail(Narrowed { parts, .. }) => {
                words.push(("splits", parts.to_string()));
            }
            SchedulerSpec::OneTile(_) | SchedulerSpec::Persistent(_) | SchedulerSpec::Dynamic(_) => {}
        }
        words.push(("pdl", name_of(&SWITCH, overlaps).to_owned()));
        words
    }
}

/// The tile, and what differs from the default. The text parses back to the same spec.
impl fmt::Display for KernelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        // Every key with the value that follows from the words so far and the defaults.
        let following = |text: &str| Self::parse(text).map_or_else(|_| Vec::new(), |spec| spec.words());
        let mut follows = following(&text);
        for (key, value) in self.words() {
            let said = follows.iter().any(|(known, follows)| (*known, follows) == (key, &value));
            if !said || matches!(key, "dtype" | "layout" | "tile") {
                let between = if text.is_empty() { "" } else { " " };
                text.push_str(&format!("{between}{key}={value}"));
            }
            if !said {
                follows = following(&text);
            }
        }
        f.write_str(&text)
    }
}
