//! Argument checks: which arguments a tree refuses, and the error messages.

use core::cell::Cell;
use core::fmt;

use crate::element::Format;
use crate::operand::MatrixRef;
use crate::operands::Memory;

/// The extents of a node's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
}

/// The memory that an epilogue may access, and the number of addresses it has reported.
pub struct Reach<'a> {
    /// Number of GEMMs of the launch.
    products: u32,
    /// Whether this number of bytes from an address on may be read, or written.
    lent: &'a dyn Fn(u64, u64, bool) -> bool,
    told: Cell<usize>,
}

impl<'a> Reach<'a> {
    /// For a launch of `products` GEMMs. `lent(address, bytes, writes)` says whether the bytes from `address`
    /// on may be read, or written if `writes`.
    pub fn new(products: u32, lent: &'a dyn Fn(u64, u64, bool) -> bool) -> Self {
        Self { products, lent, told: Cell::new(0) }
    }

    /// Number of addresses that have been reported.
    pub fn told(&self) -> usize {
        self.told.get()
    }
}

impl fmt::Debug for Reach<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { products, told, .. } = self;
        f.debug_struct("Reach").field("products", products).field("told", told).finish_non_exhaustive()
    }
}

/// The path from the root of a tree to one of its nodes, and the memory that may be accessed there.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    up: Option<&'a Path<'a>>,
    name: &'a str,
    reach: Option<&'a Reach<'a>>,
    /// Bytes from the data of one GEMM of a launch to that of the next.
    stride: u64,
}

impl Path<'_> {
    /// The path of the root, with access to any memory.
    pub const ROOT: Path<'static> = Path { up: None, name: "", reach: None, stride: 0 };

    /// The path of the root, with access to the memory of `reach` only.
    pub fn within<'a>(reach: &'a Reach<'a>) -> Path<'a> {
        Path { reach: Some(reach), ..Path::ROOT }
    }

    /// The path one step further down, to the child `name`.
    pub fn then<'a>(&'a self, name: &'a str) -> Path<'a> {
        Path { up: Some(self), name, ..*self }
    }

    /// The path of a node with a name of its own, independent of its place in the tree.
    pub(super) fn named<'a>(&'a self, name: &'a str) -> Path<'a> {
        Path { up: Some(&Path::ROOT), name, ..*self }
    }

    /// The same path when each GEMM of a launch has its own data, `stride` bytes after that of the one
    /// before.
    pub(super) fn each(&self, stride: u64) -> Path<'_> {
        Path { stride: self.stride.saturating_add(stride), ..*self }
    }

    /// Checks an address from which `elements` elements of a format are read.
    ///
    /// # Errors
    /// A null pointer, an address that is not a multiple of the element size, or memory that was not lent.
    pub fn reads(&self, format: Format, address: u64, elements: u64) -> Result<(), NodeError> {
        self.reaches(format, address, elements, false)
    }

    /// Checks an address from which on `elements` elements of a format are written.
    ///
    /// # Errors
    /// A null pointer, an address that is not a multiple of the element size, or memory that was not lent for
    /// writing.
    pub fn writes(&self, format: Format, address: u64, elements: u64) -> Result<(), NodeError> {
        self.reaches(format, address, elements, true)
    }

    /// Checks memory that the arguments of a mainloop visit.
    ///
    /// # Errors
    /// Those of [`reads`](Self::reads) and [`writes`](Self::writes).
    pub fn visited(&self, memory: &Memory<'_>) -> Result<(), NodeError> {
        let (address, bytes) = (*memory.address, memory.extents.bytes());
        if bytes > 0 {
            self.reaches_bytes(memory.extents.bits / 8, address, bytes, memory.writes)
        } else {
            Ok(())
        }
    }

    fn reaches(&self, format: Format, address: u64, elements: u64, writes: bool) -> Result<(), NodeError> {
        let products = self.reach.map_or(0, |reach| reach.products);
        let others = self.stride.saturating_mul(products.saturating_sub(1).into());
        let bytes = if elements == 0 {
            0
        } else {
            elements.saturating_mul(format.bytes().into()).saturating_add(others)
        };
        self.reaches_bytes(format.bytes(), address, bytes, writes)
    }

    fn reaches_bytes(&self, element: u32, address: u64, bytes: u64, writes: bool) -> Result<(), NodeError> {
        self.check_address(element, address)?;
        let Some(reach) = self.reach else { return Ok(()) };
        reach.told.set(reach.told.get() + 1);
        if bytes > 0 && !(reach.lent)(address, bytes, writes) {
            return Err(self.error(NodeProblem::NotLent { address, bytes, writes }));
        }
        Ok(())
    }

    /// Checks a row-major matrix that is read.
    ///
    /// # Errors
    /// As [`reads`](Self::reads); also rows that overlap or are 2^40 bytes or more apart.
    pub fn reads_matrix(&self, format: Format, matrix: MatrixRef, shape: Shape) -> Result<(), NodeError> {
        self.matrix(format, matrix, shape, false)
    }

    /// Checks a row-major matrix that is written.
    ///
    /// # Errors
    /// As [`writes`](Self::writes); also rows that overlap or are 2^40 bytes or more apart.
    pub fn writes_matrix(&self, format: Format, matrix: MatrixRef, shape: Shape) -> Result<(), NodeError> {
        self.matrix(format, matrix, shape, true)
    }

    fn matrix(&self, format: Format, matrix: MatrixRef, shape: Shape, writes: bool) -> Result<(), NodeError> {
        let MatrixRef { address, ld, stride } = matrix;
        self.check_address(format.bytes(), address)?;
        self.check_ld(format, ld, shape.n)?;
        let rows = u64::from(shape.m.saturating_sub(1)).saturating_mul(ld);
        let elements = if shape.m == 0 { 0 } else { rows.saturating_add(shape.n.into()) };
        self.each(stride.saturating_mul(format.bytes().into())).reaches(format, address, elements, writes)
    }

    fn error(&self, problem: NodeProblem) -> NodeError {
        NodeError { node: self.to_string(), problem }
    }

    fn check_address(&self, element: u32, address: u64) -> Result<(), NodeError> {
        let alignment = u64::from(element.max(1));
        if address == 0 {
            return Err(self.error(NodeProblem::Null));
        }
        if !address.is_multiple_of(alignment) {
            return Err(self.error(NodeProblem::Address { address, alignment }));
        }
        Ok(())
    }

    /// Checks that the number of elements is the number needed.
    ///
    /// # Errors
    /// A different number of elements.
    pub fn check_len(&self, elements: u32, needed: u32) -> Result<(), NodeError> {
        if elements == needed {
            return Ok(());
        }
        Err(self.error(NodeProblem::Length { elements, needed }))
    }

    fn check_ld(&self, format: Format, ld: u64, columns: u32) -> Result<(), NodeError> {
        if ld < u64::from(columns) || ld.saturating_mul(u64::from(format.bytes())) >= 1 << 40 {
            return Err(self.error(NodeProblem::Pitch { ld, needed: columns }));
        }
        Ok(())
    }

    /// An error with a message of the caller's own.
    pub fn refuse(&self, reason: impl Into<String>) -> NodeError {
        self.error(NodeProblem::Other { reason: reason.into() })
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.up {
            None => f.write_str("epilogue"),
            Some(up) if up.up.is_none() => f.write_str(self.name),
            Some(up) => write!(f, "{up}.{}", self.name),
        }
    }
}

/// An illegal argument of an epilogue's node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{node}{problem}")]
pub struct NodeError {
    /// The node, given as the path to it.
    pub node: String,
    /// What is wrong with it.
    pub problem: NodeProblem,
}

/// What is wrong with an argument of a node: its text follows the node's path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeProblem {
    /// A null pointer.
    #[error(" is a null pointer, a device address was needed")]
    Null,
    /// A misaligned address.
    #[error(" begins at {address:#x}, a multiple of {alignment} B was needed")]
    Address {
        /// Its device address.
        address: u64,
        /// Alignment needed, in bytes.
        alignment: u64,
    },
    /// A vector of the wrong length.
    #[error(" has {elements} elements, {needed} were needed")]
    Length {
        /// Elements it has.
        elements: u32,
        /// Elements needed.
        needed: u32,
    },
    /// Rows of a matrix that overlap, or are too far apart.
    #[error("'s leading dimension is {ld} elements, at least {needed} and less than 2^40 B were needed")]
    Pitch {
        /// Leading dimension in elements.
        ld: u64,
        /// Number of columns, the smallest legal leading dimension.
        needed: u32,
    },
    /// Memory that was not lent, or not lent for writing.
    #[error(
        " is {bytes} B at {address:#x}, which are not lent{}: pass the slice that contains them",
        if *.writes { " to be written" } else { "" }
    )]
    NotLent {
        /// Its device address.
        address: u64,
        /// Number of bytes from there on.
        bytes: u64,
        /// Whether they are written.
        writes: bool,
    },
    /// A problem specific to the node.
    #[error(": {reason}")]
    Other {
        /// The message.
        reason: String,
    },
}
