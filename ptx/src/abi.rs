//! The arguments of a kernel launch: scalars, tensor maps, and the parameter block made of them.
//!
//! Use it to launch a kernel on any engine. The driver and the emulator get the same parameter block, except
//! for tensor maps. A tensor map has two forms: a readable description in this module, and 128 opaque bytes.
//! The driver encodes the description with `cuTensorMapEncodeTiled` or `cuTensorMapEncodeIm2col`; the
//! emulator has its own encoding.
//!
//! ```
//! use ptx::abi::{Argument, TensorElement};
//!
//! let arguments: Vec<Argument> = vec![300u32.into(), 0x1000u64.into()];
//! assert_eq!((arguments.len(), TensorElement::Bf16.bytes()), (2, 2));
//! ```

mod im2col;
mod structure;

use core::fmt;

use crate::function::Function;
use crate::name::Name;
use crate::param::ParamKind;
use crate::types::{Scalar, Type};

pub use im2col::{Im2colMap, MapDescription};
pub use structure::Structure;

/// Size of an encoded tensor map in bytes.
pub const TENSOR_MAP_BYTES: usize = 128;

/// The value of one kernel parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A scalar: its type and its bits, zero-extended.
    Scalar(Type, u64),
    /// A tiled tensor map, which the engine encodes.
    TensorMap(TensorMap),
    /// An im2col tensor map, which the engine encodes.
    Im2colMap(Im2colMap),
    /// A structure: its bytes, and the tensor maps in it, which the engine encodes.
    Bytes(Structure),
}

impl Argument {
    /// The address that an argument of 64 bits may be, or that of a tensor map; `None` for a structure, which may hold any number of them. [`Param::number`](crate::Param) says whether a scalar is one.
    pub fn address(&mut self) -> Option<&mut u64> {
        match self {
            Self::Scalar(ty, bits) => (*ty == u64::TYPE).then_some(bits),
            Self::TensorMap(map) => Some(&mut map.address),
            Self::Im2colMap(map) => Some(&mut map.address),
            Self::Bytes(_) => None,
        }
    }
}

impl<T: Scalar> From<T> for Argument {
    fn from(value: T) -> Self {
        Self::Scalar(T::TYPE, value.to_bits64())
    }
}

impl From<TensorMap> for Argument {
    fn from(map: TensorMap) -> Self {
        Self::TensorMap(map)
    }
}

impl From<Im2colMap> for Argument {
    fn from(map: Im2colMap) -> Self {
        Self::Im2colMap(map)
    }
}

/// The element type of a tensor map. Copies use only its size; reductions also use the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorElement {
    /// Any 8-bit element type.
    U8,
    /// `u16`.
    U16,
    /// `u32`.
    U32,
    /// `i32`.
    S32,
    /// `u64`.
    U64,
    /// `i64`.
    S64,
    /// `f16`.
    F16,
    /// `bf16`.
    Bf16,
    /// `f32`.
    F32,
    /// `f64`.
    F64,
}

impl TensorElement {
    /// Bytes of one element.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::S32 | Self::F32 => 4,
            Self::U64 | Self::S64 | Self::F64 => 8,
        }
    }

    /// All types.
    pub const ALL: [Self; 10] = [
        Self::U8,
        Self::U16,
        Self::U32,
        Self::S32,
        Self::U64,
        Self::S64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
    ];

    /// The type's code in `tensormap.replace`. The driver API has other codes.
    pub const fn replaced(self) -> u32 {
        match self {
            Self::U8 => 0,
            Self::U16 => 1,
            Self::U32 => 2,
            Self::S32 => 3,
            Self::U64 => 4,
            Self::S64 => 5,
            Self::F16 => 6,
            Self::F32 => 7,
            Self::F64 => 9,
            Self::Bf16 => 10,
        }
    }
}

/// The swizzle mode: how 16-byte chunks are permuted in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorSwizzle {
    /// No swizzle.
    None,
    /// Chunks are permuted within 32 bytes.
    B32,
    /// Chunks are permuted within 64 bytes.
    B64,
    /// Chunks are permuted within 128 bytes.
    B128,
}

impl TensorSwizzle {
    /// The span of the swizzle in bytes: the size that the inner box dimension must have. `None` without a
    /// swizzle.
    pub const fn span(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::B32 => Some(32),
            Self::B64 => Some(64),
            Self::B128 => Some(128),
        }
    }
}

/// L2 promotion: the number of bytes that L2 fetches from memory on a miss. The default is 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Promotion {
    /// The missing sector only.
    None,
    /// 64 bytes.
    B64,
    /// 128 bytes, a line.
    #[default]
    B128,
    /// 256 bytes, two lines.
    B256,
    /// One line on cards whose memory moves more than 4 TB/s (H200), two on others: for a tensor that is read once.
    ByCard,
}

/// A tiled tensor map: a strided tensor in global memory, and the box that one copy moves.
///
/// All lists are innermost dimension first. Source: CUDA driver API, `cuTensorMapEncodeTiled`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorMap {
    /// Element type.
    pub element: TensorElement,
    /// Global address in bytes, a multiple of 16.
    pub address: u64,
    /// Extents of the tensor in elements: 1 to 5 dimensions, each 1..=2^32.
    pub dims: Vec<u64>,
    /// Strides in bytes of dimensions 1 and up: multiples of 16, below 2^40. Dimension 0 is contiguous.
    pub strides: Vec<u64>,
    /// Extents of the box in elements, each 1..=256. The inner one is a multiple of 16 bytes; with a swizzle
    /// it is exactly the swizzle's span.
    pub box_dims: Vec<u32>,
    /// Swizzle of the box in shared memory; must be `None` for a tensor of one dimension.
    pub swizzle: TensorSwizzle,
    /// L2 promotion.
    pub promotion: Promotion,
    /// The bytes, from the address on, that a program's copies access: the first, and one past the last. `None` for all
    /// that the extents reach. Not part of the encoded map: for a tensor whose dimensions overlap, it says which
    /// memory has to be there.
    pub reach: Option<[u64; 2]>,
}

/// A description breaks a rule of `cuTensorMapEncodeTiled` or `cuTensorMapEncodeIm2col`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorMapError {
    /// The rank is not 1 to 5, or the lists have different ranks.
    Rank {
        /// Number of extents given.
        dims: usize,
        /// Number of strides given (one fewer needed).
        strides: usize,
        /// Number of box extents given.
        box_dims: usize,
    },
    /// A tensor of one dimension with a swizzle. On an H200 such a copy ends in an illegal-instruction error.
    Line {
        /// The swizzle.
        swizzle: TensorSwizzle,
    },
    /// The rank of an im2col map is not 3 to 5, or its lists have different ranks.
    Im2colRank {
        /// Number of extents given.
        dims: usize,
        /// Number of strides given (one fewer needed).
        strides: usize,
        /// Number of coordinates of the lower corner given (two fewer needed).
        lower: usize,
        /// Number of coordinates of the upper corner given (two fewer needed).
        upper: usize,
        /// Number of steps given (two fewer needed).
        steps: usize,
    },
    /// A corner of the bounding box does not fit in its bits.
    Corner {
        /// The dimension of pixels; 0 is the width.
        dim: usize,
        /// Whether it is the upper corner.
        upper: bool,
        /// The coordinate of the corner.
        corner: i32,
        /// The number of bits of the signed coordinate.
        bits: u32,
    },
    /// The bounding box has no pixel.
    BoundingBox {
        /// The dimension of pixels; 0 is the width.
        dim: usize,
        /// The first coordinate of the box.
        low: i64,
        /// The last coordinate of the box.
        high: i64,
    },
    /// A step is 0 or above 8.
    Step {
        /// The dimension of pixels; 0 is the width.
        dim: usize,
        /// The step in elements.
        step: u32,
    },
    /// The number of channels is 0 or above 256.
    Channels {
        /// Channels per pixel.
        channels: u32,
    },
    /// The number of pixels is 0 or above 1024.
    Pixels {
        /// Pixels per copy.
        pixels: u32,
    },
    /// The address is not a multiple of 16 bytes.
    Address {
        /// The address.
        address: u64,
    },
    /// An extent is 0 or above 2^32.
    Extent {
        /// The dimension; 0 is the innermost.
        dim: usize,
        /// The extent in elements.
        extent: u64,
    },
    /// A stride is not a multiple of 16 bytes, or not below 2^40.
    Stride {
        /// The dimension; 1 is the second innermost.
        dim: usize,
        /// The stride in bytes.
        bytes: u64,
    },
    /// A box extent is 0 or above 256.
    Box {
        /// The dimension; 0 is the innermost.
        dim: usize,
        /// The extent in elements.
        extent: u32,
    },
    /// The inner box extent is not a multiple of 16 bytes, or not exactly the swizzle's span.
    InnerBox {
        /// The inner box extent in bytes.
        bytes: u32,
        /// The swizzle's span in bytes. Without a swizzle 16, for "a multiple of 16".
        needed: u32,
    },
}

impl fmt::Display for TensorMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rank { dims, strides, box_dims } => write!(
                f,
                "a tensor map needs 1 to 5 extents, one stride fewer and as many box extents, but has {dims}, \
                 {strides} and {box_dims}"
            ),
            Self::Line { swizzle } => {
                write!(f, "a tensor map of one dimension with the swizzle {swizzle:?}, not None")
            }
            Self::Im2colRank { dims, strides, lower, upper, steps } => write!(
                f,
                "an im2col tensor map needs 3 to 5 extents, one stride fewer, and two fewer of lower, upper and steps, but \
                 has {dims} extents, {strides} strides, lower {lower}, upper {upper}, steps {steps}"
            ),
            Self::Corner { dim, upper, corner, bits } => write!(
                f,
                "the {} corner {corner} of pixel dimension {dim} does not fit into {bits} bits",
                if *upper { "upper" } else { "lower" }
            ),
            Self::BoundingBox { dim, low, high } => {
                write!(
                    f,
                    "the bounding box goes from {low} to {high} in pixel dimension {dim}: it holds no pixel"
                )
            }
            Self::Step { dim, step } => write!(f, "step {step} of pixel dimension {dim} is outside 1..=8"),
            Self::Channels { channels } => write!(f, "{channels} channels of a pixel are outside 1..=256"),
            Self::Pixels { pixels } => write!(f, "{pixels} pixels of a copy are outside 1..=1024"),
            Self::Address { address } => {
                write!(f, "the tensor's address {address:#x} is not a multiple of 16 bytes")
            }
            Self::Extent { dim, extent } => {
                write!(f, "extent {extent} of dimension {dim} is outside 1..=2^32 elements")
            }
            Self::Stride { dim, bytes } => {
                write!(f, "stride of dimension {dim} is {bytes} B, not a multiple of 16 B below 2^40")
            }
            Self::Box { dim, extent } => {
                write!(f, "box extent {extent} of dimension {dim} is outside 1..=256 elements")
            }
            Self::InnerBox { bytes, needed } => {
                write!(
                    f,
                    "the inner box extent is {bytes} B where {needed} B (or, unswizzled, a multiple) is needed"
                )
            }
        }
    }
}

impl std::error::Error for TensorMapError {}

impl TensorMap {
    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Size of the box in shared memory in bytes, including out-of-bounds elements.
    pub fn box_bytes(&self) -> u64 {
        self.box_dims.iter().map(|&extent| u64::from(extent)).product::<u64>()
            * u64::from(self.element.bytes())
    }

    /// Checks the driver's rules, so that both engines refuse the same descriptions.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check(&self) -> Result<(), TensorMapError> {
        let rank = self.dims.len();
        if rank == 0 || rank > 5 || self.strides.len() + 1 != rank || self.box_dims.len() != rank {
            return Err(TensorMapError::Rank {
                dims: rank,
                strides: self.strides.len(),
                box_dims: self.box_dims.len(),
            });
        }
        if rank == 1 && self.swizzle != TensorSwizzle::None {
            return Err(TensorMapError::Line { swizzle: self.swizzle });
        }
        check_tensor(self.address, &self.dims, &self.strides)?;
        for (dim, &extent) in self.box_dims.iter().enumerate() {
            if extent == 0 || extent > 256 {
                return Err(TensorMapError::Box { dim, extent });
            }
        }
        check_inner(self.box_dims[0] * self.element.bytes(), self.swizzle)
    }
}

/// Checks the rules of a tensor in global memory.
fn check_tensor(address: u64, dims: &[u64], strides: &[u64]) -> Result<(), TensorMapError> {
    if !address.is_multiple_of(16) {
        return Err(TensorMapError::Address { address });
    }
    for (dim, &extent) in dims.iter().enumerate() {
        if extent == 0 || extent > 1 << 32 {
            return Err(TensorMapError::Extent { dim, extent });
        }
    }
    for (i, &bytes) in strides.iter().enumerate() {
        if !bytes.is_multiple_of(16) || bytes >= 1 << 40 {
            return Err(TensorMapError::Stride { dim: i + 1, bytes });
        }
    }
    Ok(())
}

/// Checks the rules of the inner box dimension in shared memory.
fn check_inner(bytes: u32, swizzle: TensorSwizzle) -> Result<(), TensorMapError> {
    match swizzle.span() {
        Some(needed) if bytes != needed => Err(TensorMapError::InnerBox { bytes, needed }),
        None if !bytes.is_multiple_of(16) => Err(TensorMapError::InnerBox { bytes, needed: 16 }),
        _ => Ok(()),
    }
}

/// The grid of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// The number of CTAs along x, y and z; multiples of the function's cluster.
    pub ctas: [u32; 3],
}

/// Arguments do not fit a function's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentError {
    /// Wrong number of arguments.
    Count {
        /// Number of parameters of the function.
        needed: usize,
        /// Number of arguments given.
        given: usize,
    },
    /// An argument of the wrong kind or type.
    Kind {
        /// The parameter's name.
        name: Name,
        /// The kind that the parameter needs.
        needed: ParamKind,
    },
    /// A tensor map breaks a rule.
    TensorMap {
        /// The parameter's name.
        name: Name,
        /// The rule that is broken.
        source: TensorMapError,
    },
    /// A tensor map in a structure is not aligned to 64 bytes, or reaches beyond the structure.
    Place {
        /// The parameter's name.
        name: Name,
        /// The map's offset in the structure, in bytes.
        offset: usize,
    },
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { needed, given } => {
                write!(f, "the kernel takes {needed} arguments, {given} were given")
            }
            Self::Kind { name, needed } => {
                write!(f, "parameter `{name}` takes {needed:?}, not what was given")
            }
            Self::TensorMap { name, source } => write!(f, "tensor map `{name}`: {source}"),
            Self::Place { name, offset } => write!(
                f,
                "tensor map at byte {offset} of `{name}`: not a multiple of 64 B, or beyond the parameter"
            ),
        }
    }
}

impl std::error::Error for ArgumentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TensorMap { source, .. } => Some(source),
            Self::Count { .. } | Self::Kind { .. } | Self::Place { .. } => None,
        }
    }
}

/// The offsets of tensor maps in the parameter block that [`parameter_bytes`] makes of the arguments.
pub fn tensor_map_offsets(function: &Function, arguments: &[Argument]) -> Vec<usize> {
    let mut maps = Vec::new();
    for (argument, offset) in arguments.iter().zip(function.param_offsets().0) {
        match argument {
            Argument::TensorMap(_) | Argument::Im2colMap(_) => maps.push(offset),
            Argument::Bytes(structure) => maps.extend(structure.maps().map(|(at, _)| offset + at)),
            Argument::Scalar(..) => {}
        }
    }
    maps
}

/// Makes the function's parameter block from the arguments. `encode` encodes a checked tensor map as the
/// engine's 128 bytes.
///
/// # Errors
/// An argument that does not fit its parameter, or what `encode` returns.
pub fn parameter_bytes<E: From<ArgumentError>>(
    function: &Function,
    arguments: &[Argument],
    mut encode: impl FnMut(MapDescription<'_>) -> Result<[u8; TENSOR_MAP_BYTES], E>,
) -> Result<Vec<u8>, E> {
    let needed = function.params.len();
    if arguments.len() != needed {
        return Err(ArgumentError::Count { needed, given: arguments.len() }.into());
    }
    let (offsets, size) = function.param_offsets();
    let mut block = vec![0; size];
    for ((param, offset), argument) in function.params.iter().zip(offsets).zip(arguments) {
        let name = || param.name.clone();
        let maps: Vec<(usize, MapDescription<'_>)> = match (param.kind, argument) {
            (ParamKind::Scalar(needed), Argument::Scalar(given, bits)) if given.fits(needed) => {
                let bytes = needed.bytes() as usize;
                block[offset..offset + bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
                Vec::new()
            }
            (ParamKind::TensorMap, Argument::TensorMap(map)) => vec![(0, MapDescription::Tiled(map))],
            (ParamKind::TensorMap, Argument::Im2colMap(map)) => vec![(0, MapDescription::Im2col(map))],
            (ParamKind::Bytes { bytes, .. }, Argument::Bytes(given))
                if given.bytes.len() == bytes as usize =>
            {
                block[offset..offset + given.bytes.len()].copy_from_slice(&given.bytes);
                given.maps().collect()
            }
            (needed, _) => return Err(ArgumentError::Kind { name: name(), needed }.into()),
        };
        for (at, map) in maps {
            let checked = match map {
                MapDescription::Tiled(map) => map.check(),
                MapDescription::Im2col(map) => map.check(),
            };
            checked.map_err(|source| ArgumentError::TensorMap { name: name(), source })?;
            let inside = at.checked_add(TENSOR_MAP_BYTES).is_some_and(|end| end <= param.kind.bytes());
            if !inside || !(offset + at).is_multiple_of(64) {
                return Err(ArgumentError::Place { name: name(), offset: at }.into());
            }
            let place = offset + at..offset + at + TENSOR_MAP_BYTES;
            block[place].copy_from_slice(&encode(map)?);
        }
    }
    Ok(block)
}
