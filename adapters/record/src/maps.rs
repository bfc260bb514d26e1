//! Tensor maps that the program has encoded, by their bytes.
#![allow(unsafe_code, reason = "reads lists that the program has given to the driver")]

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The bytes of a tensor map.
pub(crate) type Encoded = [u8; 128];

/// What a tensor map was encoded from. Lists are innermost dimension first.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) address: u64,
    pub(crate) dims: Vec<u64>,
    /// Of all dimensions but the first, in bytes.
    pub(crate) strides: Vec<u64>,
    pub(crate) steps: Vec<u32>,
    /// The driver's numbers of element, interleave, swizzle, promotion and fill.
    pub(crate) words: [u32; 5],
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Tiled { extents: Vec<u32> },
    Im2col { lower: Vec<i32>, upper: Vec<i32>, channels: u32, pixels: u32 },
}

/// All tensor maps of the process.
pub(crate) fn maps() -> MutexGuard<'static, HashMap<Encoded, Map>> {
    static MAPS: LazyLock<Mutex<HashMap<Encoded, Map>>> = LazyLock::new(Mutex::default);
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A list of C.
///
/// # Safety
/// It must have `count` elements, or be null.
pub(crate) unsafe fn list<T: Copy>(from: *const T, count: usize) -> Vec<T> {
    if from.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller guarantees it.
    unsafe { core::slice::from_raw_parts(from, count) }.to_vec()
}

/// `CUtensorMapDataType`.
const ELEMENTS: [&str; 13] =
    ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32", "tf32", "tf32"];

impl Map {
    /// The keys of a description of a launch, without braces; what no description has is a remark.
    pub(crate) fn keys(&self) -> Result<String, String> {
        let [element, interleave, swizzle, promotion, fill] = self.words;
        let word = |words: &[&'static str], number: u32, what: &str| {
            words.get(number as usize).copied().ok_or_else(|| format!("{what} {number}"))
        };
        let element = word(&ELEMENTS, element, "element")?;
        let interleave = word(&["none", "16B", "32B"], interleave, "interleave")?;
        let swizzle = word(&["none", "32B", "64B", "128B"], swizzle, "swizzle")?;
        let promotion = word(&["none", "64B", "128B", "256B"], promotion, "promotion")?;
        let fill = word(&["zero", "nan"], fill, "fill")?;
        let mut keys =
            format!("element = \"{element}\", dims = {:?}, strides = {:?}", self.dims, self.strides);
        match &self.kind {
            Kind::Tiled { extents } => keys += &format!(", box = {extents:?}"),
            Kind::Im2col { lower, upper, channels, pixels } => {
                keys += &format!(
                    ", lower = {lower:?}, upper = {upper:?}, channels = {channels}, pixels = {pixels}"
                );
            }
        }
        if self.steps.iter().any(|&step| step != 1) {
            keys += &format!(", steps = {:?}", self.steps);
        }
        keys += &format!(", swizzle = \"{swizzle}\", promotion = \"{promotion}\"");
        for (key, word, otherwise) in [("interleave", interleave, "none"), ("fill", fill, "zero")] {
            if word != otherwise {
                keys += &format!(", {key} = \"{word}\"");
            }
        }
        Ok(keys)
    }

    /// Whether it is an im2col map.
    pub(crate) fn is_im2col(&self) -> bool {
        matches!(self.kind, Kind::Im2col { .. })
    }
}
