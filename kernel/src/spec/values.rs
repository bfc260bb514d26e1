//! Values of a spec's words as text: scales, weights, rasters and split rules.

use collective::{Code, WeightsSpec};
use scheduler::{DivideSpec, RasterSpec};

use super::names::SWITCH;
use super::text::{SpecError, Words, number, numbered, refused};

/// Number of rows that share a scale: `none`, `1x128` or `128x128`.
pub(super) fn scales(words: &mut Words<'_>, key: &'static str) -> Result<u32, SpecError> {
    match words.take(key) {
        None | Some("none") => Ok(0),
        Some(text) => text
            .strip_suffix("x128")
            .and_then(number)
            .filter(|&rows| rows > 0)
            .ok_or_else(|| refused(key, text, "none, 1x128 or 128x128")),
    }
}

/// Which operands are sparse.
pub(super) const SPARSE: [(&str, [bool; 2]); 4] =
    [("none", [false, false]), ("a", [true, false]), ("b", [false, true]), ("both", [true, true])];

/// The codes of A and B, the group size, and whether there are zero points.
pub(super) fn weights(words: &mut Words<'_>) -> Result<[Option<WeightsSpec>; 2], SpecError> {
    let codes = Code::ALL.map(|code| (code.name(), Some(code)));
    let names: Vec<_> = [("none", None)].into_iter().chain(codes).collect();
    let codes = [words.one_of("weights-a", None, &names)?, words.one_of("weights-b", None, &names)?];
    if codes == [None; 2] {
        return Ok([None; 2]);
    }
    let group = match words.take("group") {
        None | Some("none") => 0,
        Some(text) => number(text)
            .filter(|&group| group > 0)
            .ok_or_else(|| refused("group", text, "none, 32, 64 or 128"))?,
    };
    let zeros = words.one_of("zeros", false, &SWITCH)?;
    Ok(codes.map(|code| code.map(|code| WeightsSpec { code, group, zeros })))
}

pub(super) fn weights_text(weights: Option<WeightsSpec>) -> String {
    weights.map_or("none", |weights| weights.code.name()).to_owned()
}

pub(super) fn scales_text(rows: u32) -> String {
    if rows == 0 { "none".to_owned() } else { format!("{rows}x128") }
}

/// A raster order: `m`, `n`, `m8`, `n8` or `hilbert8`.
pub(super) fn raster(text: &str) -> Result<RasterSpec, SpecError> {
    let raster = match text {
        "m" => Some(RasterSpec::AlongM),
        "n" => Some(RasterSpec::AlongN),
        _ => numbered(text, "m")
            .map(RasterSpec::BandsOfM)
            .or_else(|| numbered(text, "n").map(RasterSpec::BandsOfN))
            .or_else(|| numbered(text, "hilbert").map(RasterSpec::Hilbert)),
    };
    raster.ok_or_else(|| refused("raster", text, "m, n, a band such as m8 or n8, or hilbert8"))
}

pub(super) fn raster_text(raster: RasterSpec) -> String {
    match raster {
        RasterSpec::AlongM => "m".to_owned(),
        RasterSpec::AlongN => "n".to_owned(),
        RasterSpec::BandsOfM(group) => format!("m{group}"),
        RasterSpec::BandsOfN(group) => format!("n{group}"),
        RasterSpec::Hilbert(side) => format!("hilbert{side}"),
    }
}

/// Which tiles are split: `remainder`, `split3`, `heuristic` or `heuristic4`.
pub(super) fn divide(text: &str) -> Result<DivideSpec, SpecError> {
    let divide = match text {
        "remainder" => Some(DivideSpec::Remainder),
        "heuristic" => Some(DivideSpec::HEURISTIC),
        _ => numbered(text, "split")
            .map(DivideSpec::EveryTile)
            .or_else(|| numbered(text, "heuristic").map(|gain| DivideSpec::Heuristic { gain })),
    };
    divide.ok_or_else(|| refused("divide", text, "heuristic, heuristic4, remainder or split3"))
}

pub(super) fn divide_text(divide: DivideSpec) -> String {
    match divide {
        DivideSpec::Remainder => "remainder".to_owned(),
        DivideSpec::EveryTile(parts) => format!("split{parts}"),
        DivideSpec::HEURISTIC => "heuristic".to_owned(),
        DivideSpec::Heuristic { gain } => format!("heuristic{gain}"),
    }
}
