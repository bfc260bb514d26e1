//! Atoms: layouts of instructions, found by name.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use super::{Access, DrawError, Picture};
use crate::atom::{Major, SwizzleMode, smem, stmatrix, wgmma};
use crate::composed::ComposedLayout;
use crate::thread_value::ThreadValue;

/// The layout of an instruction's operand, parsed from a name.
///
/// | name | picture |
/// |---|---|
/// | `wgmma-m64n64k16-bf16-c` | the accumulator: which thread holds which element |
/// | `wgmma-m64n64k16-bf16-a` | operand A in registers |
/// | `stmatrix-x4-source`, `stmatrix-x4-destination` | the lane that has each element in a register, and the lane that addresses its row |
/// | `stmatrix-x2-trans-source` | the same with rows and columns of each matrix swapped; `ldmatrix` is the reverse |
/// | `smem-k-128B-bf16-64x64` | a K-major operand tile `MN x K` in shared memory, swizzled in rows of 128 bytes |
/// | `smem-mn-64B-bf16-32x16` | an MN-major operand tile, swizzled in rows of 64 bytes |
///
/// N of `wgmma` is 8 to 256; its K is 256 bits of the element type. Types are `f16`, `bf16`, `tf32`, `e4m3`, `e5m2`,
/// `fp8` for either of these, `s8` and `u8`. Swizzles are `128B`, `64B`, `32B` and `none`.
///
/// ```
/// use cute_rs::draw::Atom;
///
/// let atom: Atom = "wgmma-m64n16k16-bf16-c".parse()?;
/// assert_eq!(atom.to_string(), "((4,8,4),(2,2,2)):((128,1,16),(64,8,512))");
/// assert!(atom.picture()?.svg().contains(">T127V7<"));
///
/// let atom: Atom = "smem-k-128B-bf16-64x64".parse()?;
/// assert_eq!(atom.to_string(), "Sw<3,3,3> o 0 o ((8,8),(64,1)):((64,512),(1,0))");
/// # Ok::<(), cute_rs::draw::DrawError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "both hold layouts")]
#[non_exhaustive]
pub enum Atom {
    /// Registers of a group of threads.
    Fragment(ThreadValue),
    /// A tile in shared memory.
    Shared {
        /// Offsets in elements.
        tile: ComposedLayout,
        /// Width of an element in bits.
        element_bits: u32,
        /// An access that reads its rows of 16 bytes, across the contiguous direction.
        access: Access,
    },
}

impl Atom {
    /// Draws the owners of a fragment, or the banks of a tile in shared memory.
    ///
    /// # Errors
    /// [`DrawError::TooLarge`].
    pub fn picture(&self) -> Result<Picture, DrawError> {
        match self {
            Self::Fragment(fragment) => Picture::of_thread_value(fragment),
            Self::Shared { tile, element_bits, access } => Picture::of_banks(tile, *element_bits, access),
        }
    }
}

impl fmt::Display for Atom {
    /// The layout in CuTe's notation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fragment(fragment) => fragment.layout().fmt(f),
            Self::Shared { tile, .. } => tile.fmt(f),
        }
    }
}

impl FromStr for Atom {
    type Err = DrawError;

    fn from_str(name: &str) -> Result<Self, DrawError> {
        let mut parts = name.split('-');
        let parts = (parts.next(), parts.next(), parts.next(), parts.next(), parts.next(), parts.next());
        let atom = match parts {
            (Some("wgmma"), Some(shape), Some(element), Some(operand), None, _) => {
                registers(shape, element, operand)
            }
            (Some("stmatrix" | "ldmatrix"), Some(count), Some("trans"), Some(side), None, _) => {
                matrices(name.starts_with("st"), count, true, side)
            }
            (Some("stmatrix" | "ldmatrix"), Some(count), Some(side), None, ..) => {
                matrices(name.starts_with("st"), count, false, side)
            }
            (Some("smem"), Some(major), Some(mode), Some(element), Some(extents), None) => {
                shared(major, mode, element, extents)
            }
            _ => Err("names read `wgmma-m64n64k16-bf16-c`, `wgmma-m64n64k16-bf16-a`, `stmatrix-x4-source`, \
                 `ldmatrix-x4-trans-destination` or `smem-k-128B-bf16-64x64`"
                .into()),
        };
        atom.map_err(|reason| DrawError::Atom { name: name.into(), reason })
    }
}

/// Operands of `wgmma` in registers.
fn registers(shape: &str, element: &str, operand: &str) -> Result<Atom, String> {
    let bits = element_bits(element)?;
    let numbers = shape.strip_prefix("m64n").and_then(|rest| rest.split_once('k'));
    let numbers = numbers.and_then(|(n, k)| Some((n.parse::<u32>().ok()?, k.parse::<u32>().ok()?)));
    let (n, k) = numbers.ok_or_else(|| format!("`{shape}` is no shape `m64n…k…`"))?;
    if k != 256 / bits {
        return Err(format!("K of wgmma is {} for {element}, not {k}", 256 / bits));
    }
    if matches!(element, "s8" | "u8") && n > 32 && !n.is_multiple_of(16) {
        return Err(format!("N of wgmma is a multiple of 16 above 32 for {element}, not {n}"));
    }
    let accumulator = wgmma::accumulator(n).map_err(|error| format!("{error}"))?;
    match operand {
        "c" | "d" => Ok(Atom::Fragment(accumulator)),
        "a" => wgmma::operand_a(bits).map(Atom::Fragment).map_err(|error| format!("{error}")),
        "b" => Err("B of wgmma is read from shared memory; draw a tile `smem-…`".into()),
        other => Err(format!("`{other}` is none of the operands `a` and `c`")),
    }
}

/// The elements that the lanes of `stmatrix` or `ldmatrix` read or write.
fn matrices(stores: bool, count: &str, transposed: bool, side: &str) -> Result<Atom, String> {
    let number = count.strip_prefix('x').and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| format!("`{count}` is none of `x1`, `x2` and `x4`"))?;
    let copy = if stores { stmatrix::stmatrix } else { stmatrix::ldmatrix };
    let copy = copy(number, transposed).map_err(|error| format!("{error}"))?;
    let layout = match side {
        "source" => copy.source(),
        "destination" => copy.destination(),
        other => return Err(format!("`{other}` is neither `source` nor `destination`")),
    };
    let [rows, columns] = [0, 1].map(|mode| copy.tile().leaf(mode));
    ThreadValue::new(layout, rows, columns).map(Atom::Fragment).map_err(|error| format!("{error}"))
}

/// Operands of `wgmma` in shared memory.
fn shared(major: &str, mode: &str, element: &str, extents: &str) -> Result<Atom, String> {
    let element_bits = element_bits(element)?;
    let (major, access) = match major {
        "k" => (Major::K, Access::column(0, 16)),
        "mn" => (Major::Mn, Access::row(0, 16)),
        other => return Err(format!("`{other}` is neither `k` nor `mn`")),
    };
    let mode = match mode {
        "128B" => SwizzleMode::B128,
        "64B" => SwizzleMode::B64,
        "32B" => SwizzleMode::B32,
        "none" => SwizzleMode::None,
        other => return Err(format!("`{other}` is none of the swizzles `128B`, `64B`, `32B` and `none`")),
    };
    let numbers = extents.split_once('x');
    let numbers = numbers.and_then(|(mn, k)| Some((mn.parse::<u32>().ok()?, k.parse::<u32>().ok()?)));
    let (mn, k) = numbers.ok_or_else(|| format!("`{extents}` are no extents `64x64`"))?;
    // Larger tiles do not fit into shared memory.
    if mn > 1 << 16 || k > 1 << 16 {
        return Err(format!("a tile of {extents} elements does not fit into shared memory"));
    }
    let tile = smem::tile(major, mode, element_bits, mn, k).map_err(|error| format!("{error}"))?;
    Ok(Atom::Shared { tile, element_bits, access })
}

fn element_bits(element: &str) -> Result<u32, String> {
    match element {
        "f16" | "bf16" => Ok(16),
        "tf32" => Ok(32),
        "e4m3" | "e5m2" | "fp8" | "s8" | "u8" => Ok(8),
        other => {
            Err(format!("`{other}` is none of the element types f16, bf16, tf32, e4m3, e5m2, fp8, s8 and u8"))
        }
    }
}
