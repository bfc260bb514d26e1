//! What a launch hands to a kernel: the same bytes for the driver and for the emulator.
//!
//! A tensor map is opaque to programs, so it exists in two forms: the description here, which everybody can
//! read, and 128 bytes that only an engine understands. The driver encodes the description with
//! `cuTensorMapEncodeTiled` or `cuTensorMapEncodeIm2col`; the emulator has an encoding of its own.
//!
//! ```
//! use ptx::abi::{Argument, TensorElement};
//!
//! let arguments: Vec<Argument> = vec![300u32.into(), 0x1000u64.into()];
//! assert_eq!((arguments.len(), TensorElement::Bf16.bytes()), (2, 2));
//! ```

mod im2col;

use core::fmt;

use crate::function::{Function, ParamKind};
use crate::types::{Scalar, Type};

pub use im2col::{Description, Im2colMap};

/// Bytes of an encoded tensor map.
pub const TENSOR_MAP_BYTES: usize = 128;

/// The value of one kernel parameter.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A scalar: its type and its bits, zero-extended.
    Scalar(Type, u64),
    /// A tensor map, still to be encoded by the engine.
    TensorMap(TensorMap),
    /// An im2col tensor map, still to be encoded by the engine.
    Im2colMap(Im2colMap),
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

/// Element types a tensor map can have. A copy moves bits; what counts is the size, and in reductions the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorElement {
    /// Any 8-bit element.
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

    /// Every type.
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

    /// The number that `tensormap.replace` knows the type by, which is not the driver's.
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

/// How 16-byte chunks are permuted in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TensorSwizzle {
    /// Not at all.
    None,
    /// Within 32 bytes.
    B32,
    /// Within 64 bytes.
    B64,
    /// Within 128 bytes.
    B128,
}

impl TensorSwizzle {
    /// The span in bytes that the inner box dimension must fill exactly; `None` without a swizzle.
    pub const fn span(self) -> Option<u32> {
        match self {
            Self::None => None,
            Self::B32 => Some(32),
            Self::B64 => Some(64),
            Self::B128 => Some(128),
        }
    }
}

/// How many bytes around a missing sector L2 fetches from memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Promotion {
    /// The sector alone.
    None,
    /// 64 bytes.
    B64,
    /// 128 bytes, a line.
    #[default]
    B128,
    /// 256 bytes, two lines.
    B256,
}

/// A tiled tensor map: a strided tensor in global memory and the box that one copy moves.
///
/// Everything is innermost first. Source: CUDA driver API, `cuTensorMapEncodeTiled`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorMap {
    /// Element type.
    pub element: TensorElement,
    /// Global address in bytes, a multiple of 16.
    pub address: u64,
    /// Extents in elements, 1 to 5 of them, each 1..=2^32.
    pub dims: Vec<u64>,
    /// Strides in bytes of dimensions 1.., multiples of 16 below 2^40; dimension 0 is packed.
    pub strides: Vec<u64>,
    /// Extents of the box in elements, each 1..=256; the inner one fills the swizzle span exactly.
    pub box_dims: Vec<u32>,
    /// Swizzle of the shared-memory image.
    pub swizzle: TensorSwizzle,
    /// What L2 fetches from memory.
    pub promotion: Promotion,
}

/// A rule of `cuTensorMapEncodeTiled` or `cuTensorMapEncodeIm2col` that a description breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TensorMapError {
    /// The rank is not 1 to 5, or the lists disagree about it.
    Rank {
        /// Extents given.
        dims: usize,
        /// Strides given (one fewer needed).
        strides: usize,
        /// Box extents given.
        box_dims: usize,
    },
    /// A swizzle of one dimension, to which an H200 answered with an illegal instruction.
    Line {
        /// The swizzle.
        swizzle: TensorSwizzle,
    },
    /// An im2col map's rank is not 3 to 5, or its lists disagree about it.
    Im2colRank {
        /// Extents given.
        dims: usize,
        /// Strides given (one fewer needed).
        strides: usize,
        /// Coordinates of the lower corner given (two fewer needed).
        lower: usize,
        /// Coordinates of the upper corner given (two fewer needed).
        upper: usize,
        /// Steps given (two fewer needed).
        steps: usize,
    },
    /// A corner of the bounding box outside of its bits.
    Corner {
        /// Which dimension of pixels, 0 the width.
        dim: usize,
        /// The upper corner, or the lower.
        upper: bool,
        /// Its coordinate.
        corner: i32,
        /// Bits of a signed coordinate.
        bits: u32,
    },
    /// A bounding box without a pixel.
    BoundingBox {
        /// Which dimension of pixels, 0 the width.
        dim: usize,
        /// Its first coordinate.
        low: i64,
        /// Its last coordinate.
        high: i64,
    },
    /// A step that is zero or above 8.
    Step {
        /// Which dimension of pixels, 0 the width.
        dim: usize,
        /// The step in elements.
        step: u32,
    },
    /// A number of channels that is zero or above 256.
    Channels {
        /// Channels of a pixel.
        channels: u32,
    },
    /// A number of pixels that is zero or above 1024.
    Pixels {
        /// Pixels of a copy.
        pixels: u32,
    },
    /// The address is not a multiple of 16 bytes.
    Address {
        /// The address.
        address: u64,
    },
    /// An extent is zero or above 2^32.
    Extent {
        /// Which dimension, 0 the innermost.
        dim: usize,
        /// Its extent in elements.
        extent: u64,
    },
    /// A stride is not a multiple of 16 bytes, or not below 2^40.
    Stride {
        /// Which dimension, 1 the second innermost.
        dim: usize,
        /// Its stride in bytes.
        bytes: u64,
    },
    /// A box extent is zero or above 256.
    Box {
        /// Which dimension.
        dim: usize,
        /// Its extent in elements.
        extent: u32,
    },
    /// The inner box extent is not a multiple of 16 bytes, or not exactly the swizzle's span.
    InnerBox {
        /// Bytes of the inner box extent.
        bytes: u32,
        /// Bytes that the swizzle needs; 16 stands for "a multiple of 16".
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

    /// Bytes that one box occupies in shared memory, out-of-bounds elements included.
    pub fn box_bytes(&self) -> u64 {
        self.box_dims.iter().map(|&extent| u64::from(extent)).product::<u64>()
            * u64::from(self.element.bytes())
    }

    /// Checks the driver's rules, so that both engines refuse the same descriptions.
    ///
    /// # Errors
    /// The first rule broken.
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

/// The rules of a tensor in global memory.
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

/// The rules of a row of the image in shared memory.
fn check_inner(bytes: u32, swizzle: TensorSwizzle) -> Result<(), TensorMapError> {
    match swizzle.span() {
        Some(needed) if bytes != needed => Err(TensorMapError::InnerBox { bytes, needed }),
        None if !bytes.is_multiple_of(16) => Err(TensorMapError::InnerBox { bytes, needed: 16 }),
        _ => Ok(()),
    }
}

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// CTAs along x, y, z; multiples of the function's cluster.
    pub ctas: [u32; 3],
}

/// Why arguments do not fit a function's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentError {
    /// Another number of arguments.
    Count {
        /// Parameters of the function.
        needed: usize,
        /// Arguments given.
        given: usize,
    },
    /// An argument of another kind.
    Kind {
        /// The parameter's name.
        name: &'static str,
        /// What it takes.
        needed: ParamKind,
    },
    /// A tensor map that breaks a rule.
    TensorMap {
        /// The parameter's name.
        name: &'static str,
        /// The rule.
        source: TensorMapError,
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
        }
    }
}

impl std::error::Error for ArgumentError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::TensorMap { source, .. } => Some(source),
            Self::Count { .. } | Self::Kind { .. } => None,
        }
    }
}

/// Lays the arguments out as the function's parameter block; `encode` turns a checked tensor map into the
/// engine's 128 bytes.
///
/// # Errors
/// An argument that does not fit its parameter, or what `encode` returns.
pub fn parameter_bytes<E: From<ArgumentError>>(
    function: &Function,
    arguments: &[Argument],
    mut encode: impl FnMut(Description<'_>) -> Result<[u8; TENSOR_MAP_BYTES], E>,
) -> Result<Vec<u8>, E> {
    let needed = function.params.len();
    if arguments.len() != needed {
        return Err(ArgumentError::Count { needed, given: arguments.len() }.into());
    }
    let (offsets, size) = function.param_offsets();
    let mut block = vec![0; size];
    for ((param, offset), argument) in function.params.iter().zip(offsets).zip(arguments) {
        match (param.kind, argument) {
            (ParamKind::Scalar(needed), Argument::Scalar(given, bits)) if needed == *given => {
                let bytes = needed.bytes() as usize;
                block[offset..offset + bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
            }
            (ParamKind::TensorMap, Argument::TensorMap(map)) => {
                map.check().map_err(|source| ArgumentError::TensorMap { name: param.name, source })?;
                block[offset..offset + TENSOR_MAP_BYTES].copy_from_slice(&encode(Description::Tiled(map))?);
            }
            (ParamKind::TensorMap, Argument::Im2colMap(map)) => {
                map.check().map_err(|source| ArgumentError::TensorMap { name: param.name, source })?;
                block[offset..offset + TENSOR_MAP_BYTES].copy_from_slice(&encode(Description::Im2col(map))?);
            }
            (needed, _) => return Err(ArgumentError::Kind { name: param.name, needed }.into()),
        }
    }
    Ok(block)
}
