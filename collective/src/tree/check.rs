//! Which arguments a tree refuses, and in what words.

use core::cell::Cell;
use core::fmt;

use crate::element::Format;
use crate::operand::MatrixRef;

/// The extents of a node's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
}

/// Memory that an epilogue may reach, and how much of what it reaches it has told.
pub struct Reach<'a> {
    /// Products of the launch.
    products: u32,
    /// Whether so many bytes from an address on may be reached, and written.
    lent: &'a dyn Fn(u64, u64, bool) -> bool,
    told: Cell<usize>,
}

impl<'a> Reach<'a> {
    /// For a launch of so many products: `lent` says of an address whether so many bytes from there on may be read, or written.
    pub fn new(products: u32, lent: &'a dyn Fn(u64, u64, bool) -> bool) -> Self {
        Self { products, lent, told: Cell::new(0) }
    }

    /// How many addresses have been told.
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

/// The way from the root of a tree to one of its nodes, and what may be reached there.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    up: Option<&'a Path<'a>>,
    name: &'a str,
    reach: Option<&'a Reach<'a>>,
    /// Bytes from what one product of a launch has to what the next has.
    stride: u64,
}

impl Path<'_> {
    /// The root's, where anything may be reached.
    pub const ROOT: Path<'static> = Path { up: None, name: "", reach: None, stride: 0 };

    /// The root's, where some memory may be reached.
    pub fn within<'a>(reach: &'a Reach<'a>) -> Path<'a> {
        Path { reach: Some(reach), ..Path::ROOT }
    }

    /// One step further down.
    pub fn then<'a>(&'a self, name: &'a str) -> Path<'a> {
        Path { up: Some(self), name, ..*self }
    }

    /// A node with a name of its own, wherever it stands.
    pub(super) fn named<'a>(&'a self, name: &'a str) -> Path<'a> {
        Path { up: Some(&Path::ROOT), name, ..*self }
    }

    /// The same, where each product of a launch has its own, so many bytes behind that of the one before.
    pub(super) fn each(&self, stride: u64) -> Path<'_> {
        Path { stride: self.stride.saturating_add(stride), ..*self }
    }

    /// Checks an address from which elements of a format are read.
    ///
    /// # Errors
    /// A null pointer, an address that cuts elements in two, or memory that was not lent.
    pub fn reads(&self, format: Format, address: u64, elements: u64) -> Result<(), NodeError> {
        self.reaches(format, address, elements, false)
    }

    /// Checks an address from which on elements of a format are written.
    ///
    /// # Errors
    /// A null pointer, an address that cuts elements in two, or memory that was not lent to be written.
    pub fn writes(&self, format: Format, address: u64, elements: u64) -> Result<(), NodeError> {
        self.reaches(format, address, elements, true)
    }

    fn reaches(&self, format: Format, address: u64, elements: u64, writes: bool) -> Result<(), NodeError> {
        self.check_address(format, address)?;
        let Some(reach) = self.reach else { return Ok(()) };
        reach.told.set(reach.told.get() + 1);
        let others = self.stride.saturating_mul(reach.products.saturating_sub(1).into());
        let bytes = elements.saturating_mul(format.bytes().into()).saturating_add(others);
        if elements > 0 && !(reach.lent)(address, bytes, writes) {
            return Err(self.error(NodeProblem::NotLent { address, bytes, writes }));
        }
        Ok(())
    }

    /// Checks a row-major matrix that is read.
    ///
    /// # Errors
    /// As [`reads`](Self::reads); rows that overlap, or that lie 2^40 bytes from each other.
    pub fn reads_matrix(&self, format: Format, matrix: MatrixRef, shape: Shape) -> Result<(), NodeError> {
        self.matrix(format, matrix, shape, false)
    }

    /// Checks a row-major matrix that is written.
    ///
    /// # Errors
    /// As [`writes`](Self::writes); rows that overlap, or that lie 2^40 bytes from each other.
    pub fn writes_matrix(&self, format: Format, matrix: MatrixRef, shape: Shape) -> Result<(), NodeError> {
        self.matrix(format, matrix, shape, true)
    }

    fn matrix(&self, format: Format, matrix: MatrixRef, shape: Shape, writes: bool) -> Result<(), NodeError> {
        let MatrixRef { address, pitch, stride } = matrix;
        self.check_address(format, address)?;
        self.check_pitch(format, pitch, shape.n)?;
        let rows = u64::from(shape.m.saturating_sub(1)).saturating_mul(pitch);
        let elements = if shape.m == 0 { 0 } else { rows.saturating_add(shape.n.into()) };
        self.each(stride.saturating_mul(format.bytes().into())).reaches(format, address, elements, writes)
    }

    fn error(&self, problem: NodeProblem) -> NodeError {
        NodeError { node: self.to_string(), problem }
    }

    fn check_address(&self, format: Format, address: u64) -> Result<(), NodeError> {
        let alignment = u64::from(format.bytes());
        if address == 0 {
            return Err(self.error(NodeProblem::Null));
        }
        if !address.is_multiple_of(alignment) {
            return Err(self.error(NodeProblem::Address { address, alignment }));
        }
        Ok(())
    }

    /// Whether as many elements are there as are needed.
    ///
    /// # Errors
    /// Another number of them.
    pub fn check_len(&self, elements: u32, needed: u32) -> Result<(), NodeError> {
        if elements == needed {
            return Ok(());
        }
        Err(self.error(NodeProblem::Length { elements, needed }))
    }

    fn check_pitch(&self, format: Format, pitch: u64, columns: u32) -> Result<(), NodeError> {
        if pitch < u64::from(columns) || pitch.saturating_mul(u64::from(format.bytes())) >= 1 << 40 {
            return Err(self.error(NodeProblem::Pitch { pitch, needed: columns }));
        }
        Ok(())
    }

    /// An error in words of its own.
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

/// An argument of an epilogue's node that is not legal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeError {
    /// The node, as the path to it.
    pub node: String,
    /// What is wrong with it.
    pub problem: NodeProblem,
}

/// What is wrong with an argument of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeProblem {
    /// No address.
    Null,
    /// It begins at the wrong place.
    Address {
        /// Its device address.
        address: u64,
        /// Bytes it must be aligned to.
        alignment: u64,
    },
    /// A vector of another length.
    Length {
        /// Elements it has.
        elements: u32,
        /// Elements needed.
        needed: u32,
    },
    /// Rows of a matrix that overlap, or are too far apart.
    Pitch {
        /// Elements from row to row.
        pitch: u64,
        /// Columns.
        needed: u32,
    },
    /// Memory that nobody lent, or not to be written.
    NotLent {
        /// Its device address.
        address: u64,
        /// Bytes from there on.
        bytes: u64,
        /// Whether they are written.
        writes: bool,
    },
    /// Something of the node's own.
    Other {
        /// In its words.
        reason: String,
    },
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, problem } = self;
        match problem {
            NodeProblem::Null => write!(f, "{node} is a null pointer, a device address was needed"),
            NodeProblem::Address { address, alignment } => {
                write!(f, "{node} begins at {address:#x}, a multiple of {alignment} B was needed")
            }
            NodeProblem::Length { elements, needed } => {
                write!(f, "{node} has {elements} elements, {needed} were needed")
            }
            NodeProblem::Pitch { pitch, needed } => write!(
                f,
                "{node}'s leading dimension is {pitch} elements, at least {needed} and less than 2^40 B were needed"
            ),
            NodeProblem::NotLent { address, bytes, writes } => {
                let needed = if *writes { "lent to be written" } else { "lent" };
                write!(
                    f,
                    "{node} is {bytes} B at {address:#x}, which are not {needed}: pass the slice that they lie in"
                )
            }
            NodeProblem::Other { reason } => write!(f, "{node}: {reason}"),
        }
    }
}

impl core::error::Error for NodeError {}
