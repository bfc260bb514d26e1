//! Instructions that change tensor maps while a kernel runs, and the fences that make the changes usable.
//!
//! A tensor map is 128 opaque bytes. Threads copy it and replace its fields through the generic proxy. Tensor
//! copies read it through the tensormap proxy. A changed map in global memory may be used only after a
//! release fence by the thread that changed it and an acquire fence by the thread that uses it.
//!
//! Source: PTX ISA "tensormap.replace", "tensormap.cp_fenceproxy", "membar/fence".
//!
//! ```
//! # let entry = ptx::Entry { name: "example".into(), target: ptx::Target::Sm90a, threads: 128, shared_bytes: 4096, cluster: [1, 1, 1] };
//! use ptx::{MapChange, Scope, Special};
//!
//! let function = ptx::Function::build(entry, |f| {
//!     let (map, address) = (f.param::<u64>("map"), f.param::<u64>("address"));
//!     f.if_(f.special(Special::ThreadX).equals(0), || {
//!         f.replace_tensor_map(map, MapChange::Address(address));
//!         f.release_tensor_maps(Scope::Gpu);
//!     });
//! });
//! let text = ptx::module_text(&function.verify()?);
//! assert!(text.contains("tensormap.replace"));
//! assert!(text.contains("fence.proxy.tensormap"));
//! # Ok::<(), ptx::VerifyError>(())
//! ```

use super::spell::Line;
use super::{Operand, Scope};
use crate::abi::{TENSOR_MAP_BYTES, TensorElement, TensorSwizzle};
use crate::types::{Space, Type};

/// A field of a tiled tensor map that `tensormap.replace` writes. Dimensions are numbered from the innermost,
/// 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MapField {
    /// Global address, a `.b64`.
    Address,
    /// The number of dimensions minus one, a `.b32`.
    Rank,
    /// The extent of the box along a dimension in elements, a `.b32`.
    Box(u32),
    /// The extent of the tensor along a dimension in elements, a `.b32`.
    Extent(u32),
    /// The stride of the tensor along a dimension 1 to 4 in bytes, a `.b64`.
    Stride(u32),
    /// The traversal stride along a dimension in elements, a `.b32`.
    ElementStride(u32),
    /// The element type.
    Element(TensorElement),
    /// The swizzle of the box in shared memory.
    Swizzle(TensorSwizzle),
}

/// Instructions that change and publish tensor maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapInst {
    /// `tensormap.replace.tile.<field>.{shared::cta|global}.b1024`. ISA "tensormap.replace".
    Replace {
        /// [`Space::Shared`] or [`Space::Global`].
        space: Space,
        /// Address of the map, a multiple of 128 bytes.
        map: Operand,
        /// The field to replace.
        field: MapField,
        /// The new value. An immediate zero for `Element` and `Swizzle`, where the field states the value.
        value: Operand,
    },
    /// `tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.<scope>.sync.aligned`: the
    /// whole warp copies a map from shared to global memory and releases it. ISA "tensormap.cp_fenceproxy".
    Publish {
        /// Global address, a multiple of 128 bytes.
        dst: Operand,
        /// Shared address, a multiple of 128 bytes.
        src: Operand,
        /// The threads that may use the map after an acquire.
        scope: Scope,
    },
    /// `fence.proxy.tensormap::generic.release.<scope>`: writes to tensor maps that are visible to this
    /// thread may be used through the tensormap proxy. ISA "membar/fence".
    Release {
        /// The threads that may use the maps after an acquire.
        scope: Scope,
    },
    /// `fence.proxy.tensormap::generic.acquire.<scope> [map], 128`: later copies of this thread use the map
    /// as it was released. ISA "membar/fence".
    Acquire {
        /// Generic address of the map in global memory, a multiple of 128 bytes.
        map: Operand,
        /// The threads whose releases are acquired.
        scope: Scope,
    },
}

impl MapField {
    /// PTX's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Address => "global_address",
            Self::Rank => "rank",
            Self::Box(_) => "box_dim",
            Self::Extent(_) => "global_dim",
            Self::Stride(_) => "global_stride",
            Self::ElementStride(_) => "element_stride",
            Self::Element(_) => "elemtype",
            Self::Swizzle(_) => "swizzle_mode",
        }
    }

    /// The type of the new value.
    pub const fn ty(self) -> Type {
        match self {
            Self::Address | Self::Stride(_) => Type::U64,
            Self::Rank
            | Self::Box(_)
            | Self::Extent(_)
            | Self::ElementStride(_)
            | Self::Element(_)
            | Self::Swizzle(_) => Type::U32,
        }
    }

    /// The ordinal operand of the instruction: the dimension, for strides the dimension minus 1. `None` for
    /// other fields.
    pub const fn ordinal(self) -> Option<u32> {
        match self {
            Self::Box(dim) | Self::Extent(dim) | Self::ElementStride(dim) => Some(dim),
            Self::Stride(dim) => Some(dim.wrapping_sub(1)),
            Self::Address | Self::Rank | Self::Element(_) | Self::Swizzle(_) => None,
        }
    }

    /// PTX's code for the element type or the swizzle. `None` for fields whose value is an operand.
    pub const fn named(self) -> Option<u32> {
        match self {
            Self::Element(element) => Some(element.replaced()),
            Self::Swizzle(TensorSwizzle::None) => Some(0),
            Self::Swizzle(TensorSwizzle::B32) => Some(1),
            Self::Swizzle(TensorSwizzle::B64) => Some(2),
            Self::Swizzle(TensorSwizzle::B128) => Some(3),
            Self::Address
            | Self::Rank
            | Self::Box(_)
            | Self::Extent(_)
            | Self::Stride(_)
            | Self::ElementStride(_) => None,
        }
    }
}

impl MapInst {
    pub(super) fn spell<'l>(&self, line: Line<'l>) -> Line<'l> {
        match self {
            Self::Replace { space, map, field, value } => {
                let (name, space_name, bits) = (field.name(), space.name(), field.ty().bits());
                let line =
                    line.op("tensormap.replace", format_args!(".tile.{name}.{space_name}.b1024.b{bits}"));
                let line = line.at(*map, space.address_type());
                let line = field.ordinal().iter().fold(line, |line, ordinal| line.also(ordinal));
                match field.named() {
                    Some(number) => line.also(number),
                    None => line.read(*value, field.ty()),
                }
            }
            Self::Publish { dst, src, scope } => {
                let line = line.op("tensormap.cp_fenceproxy", ".global.shared::cta.tensormap::generic");
                let line = line.raw(format_args!(".release.{}.sync.aligned", scope.suffix()));
                line.at(*dst, Type::U64).at(*src, Type::U32).also(TENSOR_MAP_BYTES)
            }
            Self::Release { scope } => {
                let line = line.named("fence.proxy.tensormap.release", "fence.proxy.tensormap::generic");
                line.raw(format_args!(".release.{}", scope.suffix()))
            }
            Self::Acquire { map, scope } => {
                let line = line.named("fence.proxy.tensormap.acquire", "fence.proxy.tensormap::generic");
                let line = line.raw(format_args!(".acquire.{}", scope.suffix()));
                line.at(*map, Type::U64).also(TENSOR_MAP_BYTES)
            }
        }
    }

    /// Checks the state space, the ordinal and the value of a `tensormap.replace`.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    pub fn check(&self) -> Result<(), String> {
        let Self::Replace { space, field, value, .. } = self else { return Ok(()) };
        let name = field.name();
        if !matches!(space, Space::Shared | Space::Global) {
            return Err(format!(
                "tensormap.replace.{name} in .{}: in the own shared memory, or in global memory",
                space.name()
            ));
        }
        let last = if matches!(field, MapField::Stride(_)) { 3 } else { 4 };
        match field.ordinal() {
            Some(ordinal) if ordinal > last => {
                Err(format!("tensormap.replace.{name} with ordinal {ordinal}, not 0..={last}"))
            }
            None if field.named().is_some() && *value != Operand::Imm(0) => {
                Err(format!("tensormap.replace.{name} takes no operand: the field names its value"))
            }
            _ => Ok(()),
        }
    }
}
