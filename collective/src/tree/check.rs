//! Which arguments a tree refuses, and in what words.

use core::fmt;

use crate::element::Format;

/// The extents of a node's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
}

/// The way from the root of a tree to one of its nodes.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    up: Option<&'a Path<'a>>,
    name: &'a str,
}

impl Path<'_> {
    /// The root's.
    pub const ROOT: Path<'static> = Path { up: None, name: "" };

    /// One step further down.
    pub fn then<'a>(&'a self, name: &'a str) -> Path<'a> {
        Path { up: Some(self), name }
    }

    fn error(&self, problem: NodeProblem) -> NodeError {
        NodeError { node: self.to_string(), problem }
    }

    /// Whether an address can be a device address of elements of a format.
    ///
    /// # Errors
    /// A null pointer, or an address that cuts elements in two.
    pub fn check_address(&self, format: Format, address: u64) -> Result<(), NodeError> {
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

    /// Whether rows of a row-major matrix lie beside each other.
    ///
    /// # Errors
    /// Rows that overlap, or that lie 2^40 bytes from each other.
    pub fn check_pitch(&self, format: Format, pitch: u64, columns: u32) -> Result<(), NodeError> {
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
            NodeProblem::Other { reason } => write!(f, "{node}: {reason}"),
        }
    }
}

impl core::error::Error for NodeError {}
