//! What a program can do wrong with tensor maps and tensor copies.

use ptx::abi::TensorElement;

use super::Place;
use super::display::unfenced;

/// What is wrong with a tensor copy or its map.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFault {
    /// No tensor map at the address.
    #[error("there is no tensor map at generic address {address:#x}")]
    Map {
        /// The generic address.
        address: u64,
    },
    /// A tensor map with fields that are not valid, after `tensormap.replace`.
    #[error("the tensor map at {address:#x} is not valid: {reason}")]
    MapFields {
        /// The generic address.
        address: u64,
        /// What is wrong.
        reason: &'static str,
    },
    /// A copy uses a tensor map that was written in global memory, without both fences of the tensormap
    /// proxy.
    #[error(
        "the tensor map at {address:#x} was written and {}\n  it was written by {other}",
        unfenced(*.released)
    )]
    MapUnfenced {
        /// Address of the map.
        address: u64,
        /// Whether the write was released. If so, the acquire is missing.
        released: bool,
        /// The write.
        other: Box<Place>,
    },
    /// A tensor map is changed while a copy that has not been waited for uses it.
    #[error(
        "the tensor map at {address:#x} is changed while a copy still uses it: wait for the copy first, by \
         its mbarrier or with cp.async.bulk.wait_group.read"
    )]
    MapInFlight {
        /// Address of the map.
        address: u64,
    },
    /// A reduction that does not exist for the element type of its tensor map.
    #[error("a tensor reduction .{op} of {element:?} elements does not exist")]
    Reduction {
        /// The operation.
        op: &'static str,
        /// The map's element type.
        element: TensorElement,
    },
    /// The number of coordinates is not the number of dimensions of the map.
    #[error("{coordinates} coordinates for a tensor map of {map} dimensions")]
    Rank {
        /// Number of dimensions of the map.
        map: u32,
        /// Number of coordinates given.
        coordinates: u32,
    },
    /// A copy in tile mode through an im2col tensor map, or a copy in im2col mode through a tiled one.
    #[error(
        "a tensor copy in {}",
        if *.im2col { "tile mode through an im2col tensor map" } else { "im2col mode through a tiled tensor map" }
    )]
    Mode {
        /// Whether the map is an im2col map.
        im2col: bool,
    },
    /// A tensor copy that begins at an innermost coordinate which is not a multiple of 16 bytes.
    #[error(
        "a tensor copy begins at element {at} of {bytes} B in the innermost dimension, which is not a \
         multiple of 16 B"
    )]
    Alignment {
        /// The coordinate in elements.
        at: i64,
        /// Size of an element in bytes.
        bytes: u32,
    },
    /// A load of a box that is wholly outside of its tensor, through a map whose address is no memory. The card reads there.
    #[error(
        "a tensor copy of a box that is wholly outside of the tensor reads the map's address {address:#x}, where no memory is"
    )]
    Base {
        /// The address in the tensor map.
        address: u64,
    },
    /// A tensor store or reduction that begins before the tensor.
    #[error("a tensor store begins at {at} in dimension {dim}, before the tensor")]
    Before {
        /// The dimension; 0 is the innermost.
        dim: u32,
        /// The coordinate.
        at: i64,
    },
    /// An im2col store through a map with a bounding box that is not inside the tensor.
    #[error(
        "an im2col store through a map with a bounding box that is not inside the tensor: {low} to {high} \
         in pixel dimension {dim}, where the tensor has {extent}"
    )]
    Im2colBounds {
        /// The dimension of pixels; 0 is the width.
        dim: u32,
        /// First coordinate of the bounding box.
        low: i64,
        /// Last coordinate of the bounding box.
        high: i64,
        /// Extent of the tensor.
        extent: u64,
    },
    /// A copy in im2col mode with a base outside the bounding box of its map.
    #[error(
        "the base {base} of an im2col copy is outside the bounding box, which is {low} to {high} in pixel \
         dimension {dim}"
    )]
    Im2colBase {
        /// The dimension of pixels; 0 is the width.
        dim: u32,
        /// Coordinate of the base.
        base: i64,
        /// First coordinate of the bounding box.
        low: i64,
        /// Last coordinate of the bounding box.
        high: i64,
    },
    /// A filter offset with more bits than the rank of the map allows.
    #[error("the filter offset {offset} in pixel dimension {dim} has more than {bits} bits")]
    Im2colOffset {
        /// The dimension of pixels; 0 is the width.
        dim: u32,
        /// The offset.
        offset: u32,
        /// Number of bits that the rank allows.
        bits: u32,
    },
}
