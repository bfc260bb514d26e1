//! Launches as text: TOML, or any format that serde reads.

mod argument;
mod maps;

use serde::Deserialize;

use super::launch::{Argument, Buffer, Content, Data, Expect, Kernel, Launch, Map, Pointer, Want, wrong};
use super::{Element, Suppression};

use argument::{RawArgument, RawPointer};
use maps::{RawIm2col, RawTiled};

/// What is wrong with the description of a launch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct DescriptionError {
    pub(super) message: String,
}

impl Launch {
    /// Reads a description in TOML. The module's documentation lists the keys.
    ///
    /// # Errors
    /// The place of the first mistake: a key that does not exist, a value of another type, a buffer that does not exist.
    pub fn read(text: &str) -> Result<Self, DescriptionError> {
        toml::from_str(text)
            .map_err(|error| DescriptionError { message: error.to_string().trim_end().to_owned() })
    }
}

/// A description, key by key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLaunch {
    ptx: Option<String>,
    entry: Option<String>,
    grid: Option<[u32; 3]>,
    threads: Option<[u32; 3]>,
    cluster: Option<[u32; 3]>,
    shared: Option<u32>,
    dependent: Option<bool>,
    argument: Option<Vec<RawArgument>>,
    #[serde(default)]
    kernel: Vec<RawKernel>,
    #[serde(default)]
    buffer: Vec<RawBuffer>,
    launches: Option<u32>,
    any_elected: Option<bool>,
    #[serde(default)]
    suppress: Vec<String>,
}

/// One of several kernels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKernel {
    #[serde(default)]
    ptx: String,
    entry: Option<String>,
    grid: [u32; 3],
    threads: Option<[u32; 3]>,
    cluster: Option<[u32; 3]>,
    #[serde(default)]
    shared: u32,
    #[serde(default)]
    dependent: bool,
    #[serde(default)]
    argument: Vec<RawArgument>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBuffer {
    name: String,
    element: Option<Element>,
    count: Option<u64>,
    shape: Option<Vec<u64>>,
    bytes: Option<u64>,
    align: Option<u64>,
    zeros: Option<bool>,
    random: Option<RawRandom>,
    range: Option<RawRange>,
    file: Option<String>,
    at: Option<u64>,
    hex: Option<String>,
    #[serde(default)]
    pointers: Vec<RawPointer>,
    #[serde(default)]
    tensor_maps: Vec<RawTiled>,
    #[serde(default)]
    im2col_maps: Vec<RawIm2col>,
    #[serde(default)]
    restore: bool,
    #[serde(default)]
    unchanged: bool,
    #[serde(default)]
    scratch: bool,
    want: Option<RawWant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRandom {
    #[serde(default)]
    seed: u64,
    #[serde(default = "minus_one")]
    low: f64,
    #[serde(default = "one")]
    high: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRange {
    #[serde(default)]
    from: f64,
    #[serde(default = "one")]
    step: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawWant {
    file: Option<String>,
    at: Option<u64>,
    hex: Option<String>,
    element: Option<Element>,
    #[serde(default)]
    rtol: f64,
    #[serde(default)]
    atol: f64,
}

fn one() -> f64 {
    1.0
}

fn minus_one() -> f64 {
    -1.0
}

impl<'de> Deserialize<'de> for Launch {
    fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        RawLaunch::deserialize(source)?.launch().map_err(serde::de::Error::custom)
    }
}

impl RawLaunch {
    fn launch(self) -> Result<Launch, DescriptionError> {
        let suppressions =
            self.suppress.iter().map(|text| text.parse::<Suppression>()).collect::<Result<_, _>>();
        let suppressions = suppressions.map_err(|why| wrong("suppress", why))?;
        let buffers = self.buffer.into_iter().map(RawBuffer::buffer).collect::<Result<Vec<_>, _>>()?;
        let alone = [
            ("ptx", self.ptx.is_some()),
            ("entry", self.entry.is_some()),
            ("grid", self.grid.is_some()),
            ("threads", self.threads.is_some()),
            ("cluster", self.cluster.is_some()),
            ("shared", self.shared.is_some()),
            ("dependent", self.dependent.is_some()),
            ("argument", self.argument.is_some()),
        ];
        let given = alone.iter().find(|(_, given)| *given);
        let mut raw = self.kernel;
        match given {
            Some((key, _)) if !raw.is_empty() => {
                let why = format!("there are [[kernel]]s, so `{key}` must be in one of them");
                return Err(DescriptionError { message: why });
            }
            _ if !raw.is_empty() => {}
            _ => raw.push(RawKernel {
                ptx: self.ptx.unwrap_or_default(),
                entry: self.entry,
                grid: self.grid.ok_or_else(|| wrong("grid", "it is missing".into()))?,
                threads: self.threads,
                cluster: self.cluster,
                shared: self.shared.unwrap_or(0),
                dependent: self.dependent.unwrap_or(false),
                argument: self.argument.unwrap_or_default(),
            }),
        }
        let kernels = raw.into_iter().map(RawKernel::kernel).collect::<Result<_, _>>()?;
        let launches = self.launches.unwrap_or(2);
        if launches == 0 {
            return Err(wrong("launches", "it is 0, at least 1 was needed".into()));
        }
        let any_elected = self.any_elected.unwrap_or_default();
        let launch = Launch { kernels, buffers, launches, any_elected, suppressions };
        launch.check_names()?;
        Ok(launch)
    }
}

impl Launch {
    /// Fails where a name is that of no buffer, or of two.
    fn check_names(&self) -> Result<(), DescriptionError> {
        let names: Vec<&str> = self.buffers.iter().map(|buffer| buffer.name.as_str()).collect();
        if let Some(name) =
            names.iter().enumerate().find_map(|(i, name)| names[..i].contains(name).then_some(name))
        {
            return Err(wrong("buffer", format!("two are named `{name}`")));
        }
        let exists = |pointer: &Pointer| match &pointer.buffer {
            Some(name) if !names.contains(&name.as_str()) => {
                Err(wrong("buffer", format!("`{name}` is named, but there are only: {}", names.join(", "))))
            }
            _ => Ok(()),
        };
        let all = |pointers: &[(u64, Pointer)], maps: &[Map]| {
            pointers.iter().try_for_each(|(_, pointer)| exists(pointer))?;
            maps.iter().try_for_each(|map| exists(&map.tensor))
        };
        self.buffers.iter().try_for_each(|buffer| all(&buffer.pointers, &buffer.maps))?;
        self.kernels.iter().flat_map(|kernel| &kernel.arguments).try_for_each(|argument| match argument {
            Argument::Pointer(pointer) => exists(pointer),
            Argument::Map(map) => exists(&map.tensor),
            Argument::Structure { pointers, maps, .. } => all(pointers, maps),
            Argument::Scalar(_) => Ok(()),
        })
    }
}

impl RawKernel {
    fn kernel(self) -> Result<Kernel, DescriptionError> {
        let number = |(i, argument): (usize, RawArgument)| {
            argument.argument().map_err(|why| wrong(&format!("argument {i}"), why))
        };
        for (key, given, most, together) in [
            ("grid", Some(self.grid), [u32::MAX >> 1, 65535, 65535], u64::MAX),
            ("threads", self.threads, [1024, 1024, 64], 1024),
            ("cluster", self.cluster, [8, 8, 8], 8),
        ] {
            let Some(given) = given else { continue };
            let all = given.iter().fold(1_u64, |all, &one| all.saturating_mul(one.into()));
            if all == 0 || all > together || given.iter().zip(most).any(|(&one, most)| one > most) {
                let [x, y, z] = most;
                let whole =
                    if together == u64::MAX { String::new() } else { format!(", {together} together,") };
                let why = format!("is {given:?}; x from 1 to {x}, y to {y} and z to {z}{whole} were needed");
                return Err(wrong(key, why));
            }
        }
        Ok(Kernel {
            file: self.ptx,
            text: String::new(),
            entry: self.entry,
            grid: self.grid,
            threads: self.threads,
            cluster: self.cluster,
            shared: self.shared,
            dependent: self.dependent,
            arguments: self.argument.into_iter().enumerate().map(number).collect::<Result<_, _>>()?,
        })
    }
}

impl RawBuffer {
    fn buffer(self) -> Result<Buffer, DescriptionError> {
        let name = self.name.clone();
        self.made().map_err(|why| wrong(&format!("buffer `{name}`"), why))
    }

    fn made(self) -> Result<Buffer, String> {
        let sizes = [self.count.is_some(), self.shape.is_some(), self.bytes.is_some()];
        if sizes.iter().filter(|given| **given).count() != 1 {
            return Err("one of `count`, `shape` and `bytes` was needed".into());
        }
        if self.bytes.is_some() && self.element.is_some() {
            return Err("`bytes` is its size without an `element`".into());
        }
        let element = match (self.element, self.bytes) {
            (Some(element), _) => element,
            (None, Some(_)) => Element::U8,
            (None, None) => return Err("`element` was needed".into()),
        };
        let shape = self.shape.unwrap_or_else(|| vec![self.count.or(self.bytes).unwrap_or(0)]);
        let align = self.align.unwrap_or(256);
        if !align.is_power_of_two() || align > 1 << 20 {
            return Err(format!("align is {align}, a power of two up to 2^20 was needed"));
        }
        let data = data(self.file, self.at, self.hex)?;
        let contents = [
            self.zeros.filter(|zeros| *zeros).map(|_| Content::Zeros),
            self.random.map(|RawRandom { seed, low, high }| Content::Random { seed, low, high }),
            self.range.map(|RawRange { from, step }| Content::Range { from, step }),
            data.map(Content::Data),
        ];
        let content =
            only(contents, "`zeros`, `random`, `range`, `file` and `hex`")?.unwrap_or(Content::Unwritten);
        let holds = content != Content::Unwritten || !self.pointers.is_empty();
        if self.unchanged && !holds && self.tensor_maps.is_empty() && self.im2col_maps.is_empty() {
            return Err(
                "`unchanged` is of what it holds: `zeros`, `random`, `range`, `file` or `hex` was needed"
                    .into(),
            );
        }
        if let Content::Random { low, high, .. } = content
            && !(low <= high && low.is_finite() && high.is_finite())
        {
            return Err(format!("random numbers from {low} to {high}"));
        }
        let want = self.want.map(|want| want.want(element)).transpose()?;
        let expectations = [
            want.map(Expect::Values),
            self.unchanged.then_some(Expect::Unchanged),
            self.scratch.then_some(Expect::Anything),
        ];
        let expect = only(expectations, "`want`, `unchanged` and `scratch`")?.unwrap_or_default();
        let mut maps = self.tensor_maps.into_iter().map(RawTiled::map).collect::<Result<Vec<_>, _>>()?;
        maps.extend(self.im2col_maps.into_iter().map(RawIm2col::map).collect::<Result<Vec<_>, _>>()?);
        let pointers = self.pointers.into_iter().map(RawPointer::pointer).collect();
        let Self { name, restore, .. } = self;
        Ok(Buffer { name, element, shape, align, content, pointers, maps, restore, expect })
    }
}

/// The one that is given, if there is one.
fn only<T, const N: usize>(given: [Option<T>; N], names: &str) -> Result<Option<T>, String> {
    let mut given = given.into_iter().flatten();
    let first = given.next();
    if given.next().is_some() { Err(format!("only one of {names} can be given")) } else { Ok(first) }
}

/// The bytes of `file` and `at`, or of `hex`.
fn data(file: Option<String>, at: Option<u64>, hex: Option<String>) -> Result<Option<Data>, String> {
    if at.is_some() && file.is_none() {
        return Err("`at` is an offset in a `file`".into());
    }
    let file = file.map(|file| Data::File { file, at: at.unwrap_or(0) });
    let hex = hex.map(|hex| bytes_of(&hex).map(Data::Bytes)).transpose()?;
    only([file, hex], "`file` and `hex`")
}

/// The bytes of hexadecimal digits; blanks between them are left out.
fn bytes_of(hex: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let pair = |pair: &[u8]| {
        let text = core::str::from_utf8(pair).ok().filter(|text| text.len() == 2)?;
        text.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u8::from_str_radix(text, 16).ok())?
    };
    digits
        .chunks(2)
        .map(pair)
        .collect::<Option<_>>()
        .ok_or_else(|| format!("`{hex}` is not bytes in hexadecimal"))
}

impl RawWant {
    fn want(self, element: Element) -> Result<Want, String> {
        let Self { file, at, hex, element: own, rtol, atol } = self;
        if !(rtol >= 0.0 && atol >= 0.0) {
            return Err(format!("want: rtol is {rtol} and atol {atol}, numbers from 0 on were needed"));
        }
        let data = data(file, at, hex).map_err(|why| format!("want: {why}"))?;
        let data = data.ok_or("want: one of `file` and `hex` was needed")?;
        Ok(Want { data, element: own.unwrap_or(element), rtol, atol })
    }
}

#[cfg(test)]
mod tests;
