//! Tensor maps.

use ptx::abi::{Im2colMap, Promotion, TensorElement, TensorMap, TensorSwizzle};
use serde::Deserialize;

use crate::check::launch::{Map, MapKind, Pointer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTiled {
    #[serde(default)]
    at: u64,
    buffer: Option<String>,
    #[serde(default)]
    offset: u64,
    element: String,
    dims: Vec<u64>,
    #[serde(default)]
    strides: Vec<u64>,
    r#box: Vec<u32>,
    steps: Option<Vec<u32>>,
    #[serde(default)]
    interleave: RawInterleave,
    #[serde(default)]
    swizzle: RawSwizzle,
    #[serde(default)]
    promotion: RawPromotion,
    #[serde(default)]
    fill: RawFill,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawIm2col {
    #[serde(default)]
    at: u64,
    buffer: Option<String>,
    #[serde(default)]
    offset: u64,
    element: String,
    dims: Vec<u64>,
    strides: Vec<u64>,
    lower: Vec<i32>,
    upper: Vec<i32>,
    channels: u32,
    pixels: u32,
    steps: Option<Vec<u32>>,
    #[serde(default)]
    interleave: RawInterleave,
    #[serde(default)]
    swizzle: RawSwizzle,
    #[serde(default, rename = "promotion")]
    _promotion: RawPromotion,
    #[serde(default)]
    fill: RawFill,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum RawSwizzle {
    #[default]
    #[serde(rename = "none")]
    None,
    #[serde(rename = "32B")]
    B32,
    #[serde(rename = "64B")]
    B64,
    #[serde(rename = "128B")]
    B128,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum RawPromotion {
    #[serde(rename = "none")]
    None,
    #[serde(rename = "64B")]
    B64,
    #[default]
    #[serde(rename = "128B")]
    B128,
    #[serde(rename = "256B")]
    B256,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
enum RawInterleave {
    #[default]
    #[serde(rename = "none")]
    None,
    #[serde(rename = "16B")]
    B16,
    #[serde(rename = "32B")]
    B32,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RawFill {
    #[default]
    Zero,
    Nan,
}

/// Fails for what tensor maps of the emulator do not have.
fn modelled(interleave: RawInterleave, fill: RawFill) -> Result<(), String> {
    match (interleave, fill) {
        (RawInterleave::None, RawFill::Zero) => Ok(()),
        (RawInterleave::B16 | RawInterleave::B32, _) => {
            Err("interleaved tensor maps are not modelled".into())
        }
        (RawInterleave::None, RawFill::Nan) => Err("tensor maps that fill with NaN are not modelled".into()),
    }
}

impl RawSwizzle {
    fn swizzle(self) -> TensorSwizzle {
        match self {
            Self::None => TensorSwizzle::None,
            Self::B32 => TensorSwizzle::B32,
            Self::B64 => TensorSwizzle::B64,
            Self::B128 => TensorSwizzle::B128,
        }
    }
}

/// The element type of a tensor map of a name: `tf32` is an `f32` to copies.
fn tensor_element(name: &str) -> Result<TensorElement, String> {
    let known = |element: &&TensorElement| format!("{element:?}").to_lowercase() == name;
    let element = TensorElement::ALL.iter().find(known).copied();
    let element = element.or((name == "tf32").then_some(TensorElement::F32));
    element.ok_or_else(|| {
        let names: Vec<String> =
            TensorElement::ALL.iter().map(|one| format!("{one:?}").to_lowercase()).collect();
        format!("`{name}` is no element of a tensor map, these are: {}, tf32", names.join(", "))
    })
}

fn tensor(buffer: Option<String>, offset: u64) -> Pointer {
    Pointer { buffer, offset }
}

impl RawTiled {
    pub(super) fn map(self) -> Result<Map, String> {
        modelled(self.interleave, self.fill)?;
        if self.steps.is_some_and(|steps| steps.iter().any(|&step| step != 1)) {
            return Err("tiled tensor maps with steps other than 1 are not modelled".into());
        }
        let promotion = match self.promotion {
            RawPromotion::None => Promotion::None,
            RawPromotion::B64 => Promotion::B64,
            RawPromotion::B128 => Promotion::B128,
            RawPromotion::B256 => Promotion::B256,
        };
        let map = TensorMap {
            element: tensor_element(&self.element)?,
            address: 0,
            dims: self.dims,
            strides: self.strides,
            box_dims: self.r#box,
            swizzle: self.swizzle.swizzle(),
            promotion,
            reach: None,
        };
        map.check().map_err(|why| why.to_string())?;
        Ok(Map { at: self.at, tensor: tensor(self.buffer, self.offset), kind: MapKind::Tiled(map) })
    }
}

impl RawIm2col {
    pub(super) fn map(self) -> Result<Map, String> {
        modelled(self.interleave, self.fill)?;
        let steps = self.steps.unwrap_or_else(|| vec![1; self.lower.len()]);
        let map = Im2colMap {
            element: tensor_element(&self.element)?,
            address: 0,
            dims: self.dims,
            strides: self.strides,
            lower: self.lower,
            upper: self.upper,
            channels: self.channels,
            pixels: self.pixels,
            steps,
            swizzle: self.swizzle.swizzle(),
        };
        map.check().map_err(|why| why.to_string())?;
        Ok(Map { at: self.at, tensor: tensor(self.buffer, self.offset), kind: MapKind::Im2col(map) })
    }
}
