//! Parameters of kernels, and the variables that a kernel's module declares in global memory.
//!
//! ```
//! use ptx::{Param, ParamKind, Scalar};
//!
//! // `.param .u64 out`, `.param .align 64 .b8 params[320]`
//! let out = Param { name: "out".into(), kind: ParamKind::Scalar(u64::TYPE), number: false };
//! let params = Param { name: "params".into(), kind: ParamKind::Bytes { bytes: 320, alignment: 64 }, number: false };
//! assert_eq!((out.kind.bytes(), params.kind.bytes()), (8, 320));
//! ```

use crate::name::Name;
use crate::types::Type;

/// A kernel parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// The parameter's name in PTX.
    pub name: Name,
    /// The kind of its value.
    pub kind: ParamKind,
    /// Whether a 64-bit scalar is a plain number. Otherwise it is an address in global memory, and an engine
    /// that shares its memory with other programs accepts only addresses of memory that it owns.
    pub number: bool,
}

/// The kind of a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ParamKind {
    /// A scalar.
    Scalar(Type),
    /// A `CUtensorMap`: 128 opaque bytes, aligned to 64 bytes.
    TensorMap,
    /// A structure, which may hold scalars and tensor maps anywhere.
    Bytes {
        /// Its size in bytes.
        bytes: u32,
        /// Its alignment in bytes.
        alignment: u32,
    },
}

impl ParamKind {
    /// Size in the parameter block, in bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Scalar(ty) => ty.bytes() as usize,
            Self::TensorMap => 128,
            Self::Bytes { bytes, .. } => bytes as usize,
        }
    }

    /// Alignment in the parameter block, in bytes.
    pub const fn alignment(self) -> usize {
        match self {
            Self::Scalar(ty) => ty.bytes() as usize,
            Self::TensorMap => 64,
            Self::Bytes { alignment, .. } => alignment as usize,
        }
    }
}

/// A variable of a module in global or constant memory, as in PTX ISA 5.1.3 "Constant State Space" and 5.1.4 "Global State Space".
/// The kernel has its address as its last parameters, one for each variable in order; whoever launches it allocates the variables and
/// writes what they begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The variable's name, which is the parameter's name too.
    pub name: Name,
    /// What it holds at first.
    pub content: Vec<u8>,
    /// Alignment in bytes.
    pub alignment: u32,
    /// Whether it is constant (`.const`).
    pub constant: bool,
}
