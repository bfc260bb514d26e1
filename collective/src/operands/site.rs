//! The arguments of an epilogue's nodes: where each is in the tree, and which of them are refused.

use core::fmt;

use super::{Contents, Extents, Memory, Visit};
use crate::element::Format;
use crate::operand::MatrixRef;
use crate::real::Arithmetic;

/// The extents of a node's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Rows.
    pub m: u32,
    /// Columns.
    pub n: u32,
}

/// The path from the root of a tree to one of its nodes.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    up: Option<&'a Path<'a>>,
    name: &'a str,
}

impl Path<'_> {
    /// The path of the root.
    pub const ROOT: Path<'static> = Path { up: None, name: "" };

    /// The path one step further down, to the child `name`.
    pub fn then<'a>(&'a self, name: &'a str) -> Path<'a> {
        Path { up: Some(self), name }
    }

    /// An error with a message of the caller's own.
    pub fn refuse(&self, reason: impl Into<String>) -> NodeError {
        self.error(NodeProblem::Other { reason: reason.into() })
    }

    fn error(&self, problem: NodeProblem) -> NodeError {
        NodeError { node: self.to_string(), problem }
    }

    /// Checks an address, and the distance of the lines that begin there. Whether the memory is lent is for others
    /// to say.
    ///
    /// # Errors
    /// A null pointer, an address that is not a multiple of the element size, lines that overlap or are 2^40 bytes
    /// or more apart.
    pub fn check(&self, memory: &Memory<'_>) -> Result<(), NodeError> {
        let (address, Extents { bits, length, lines, ld, .. }) = (*memory.address, memory.extents);
        let alignment = u64::from((bits / 8).max(1));
        if memory.extents.bytes() == 0 {
            return Ok(());
        }
        if address == 0 {
            return Err(self.error(NodeProblem::Null));
        }
        if !address.is_multiple_of(alignment) {
            return Err(self.error(NodeProblem::Address { address, alignment }));
        }
        if lines > 1 && (ld < length || ld.saturating_mul(alignment) >= 1 << 40) {
            return Err(self.error(NodeProblem::Pitch { ld, needed: length }));
        }
        Ok(())
    }

    /// The error for memory that is not lent.
    pub fn not_lent(&self, address: u64, bytes: u64, writes: bool) -> NodeError {
        self.error(NodeProblem::NotLent { address, bytes, writes })
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

/// A node while its arguments are visited: who visits them, and the node's place in the tree.
pub struct Site<'a> {
    /// Who visits the arguments.
    pub visit: &'a mut dyn Visit,
    path: Path<'a>,
    /// The names of the node's memory, and of a second piece of it.
    names: [&'static str; 2],
    /// Number of GEMMs of the launch.
    products: u32,
    /// Bytes from the data of one GEMM of the launch to that of the next.
    stride: u64,
    /// What the tree computes in.
    arithmetic: Arithmetic,
}

impl fmt::Debug for Site<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, products, stride, .. } = self;
        let mut debug = f.debug_struct("Site");
        debug.field("path", path).field("products", products).field("stride", stride).finish_non_exhaustive()
    }
}

impl<'a> Site<'a> {
    /// The root of a tree, in a launch of this number of GEMMs.
    pub fn root(products: u32, visit: &'a mut dyn Visit) -> Self {
        let names = ["an argument of the epilogue"; 2];
        Self { visit, path: Path::ROOT, names, products, stride: 0, arithmetic: Arithmetic::F32 }
    }

    /// The child `name`.
    pub fn then<'b>(&'b mut self, name: &'b str) -> Site<'b> {
        let Self { visit, path, names, products, stride, arithmetic } = self;
        let (names, products, stride, arithmetic) = (*names, *products, *stride, *arithmetic);
        Site { visit: &mut **visit, path: path.then(name), names, products, stride, arithmetic }
    }

    /// The same node with a name of its own, independent of its place in the tree, and one for the second piece of its memory.
    pub(crate) fn named(&mut self, names: [&'static str; 2]) -> Site<'_> {
        Site { path: Path { up: Some(&Path::ROOT), name: names[0] }, names, ..self.each(0) }
    }

    /// The same node, for the second piece of its memory.
    pub(crate) fn second(&mut self) -> Site<'_> {
        Site { names: [self.names[1]; 2], ..self.each(0) }
    }

    /// The same node when each GEMM of a launch has its own data, `stride` bytes after that of the one before.
    pub(crate) fn each(&mut self, stride: u64) -> Site<'_> {
        let Self { visit, path, names, products, stride: outer, arithmetic } = self;
        let (stride, arithmetic) = (outer.saturating_add(stride), *arithmetic);
        Site { visit: &mut **visit, path: *path, names: *names, products: *products, stride, arithmetic }
    }

    /// Visits the same node through another visitor, which is made of this one and returned.
    pub(crate) fn through<'b, V: Visit + 'b>(
        &'b mut self,
        make: impl FnOnce(&'b mut dyn Visit) -> V,
        body: impl FnOnce(&mut Site<'_>),
    ) -> V {
        let Self { visit, path, names, products, stride, arithmetic } = self;
        let (path, names, products, stride, arithmetic) = (*path, *names, *products, *stride, *arithmetic);
        let mut through = make(&mut **visit);
        body(&mut Site { visit: &mut through, path, names, products, stride, arithmetic });
        through
    }

    /// The same node of a tree that computes in this.
    pub(crate) fn computing_in(&mut self, arithmetic: Arithmetic) -> Site<'_> {
        Site { arithmetic, ..self.each(0) }
    }

    /// Visits a number with which the tree computes. If D is `s32`, it must be an integer below 2^31 in magnitude;
    /// if D is not `f64` either, it is rounded to `f32`, and must not be beyond the range of that.
    pub fn factor(&mut self, factor: &mut f64) {
        self.check_factor(*factor);
        self.visit.factor(factor);
    }

    /// The check of [`factor`](Self::factor).
    pub(crate) fn check_factor(&mut self, factor: f64) {
        if let Err(reason) = self.arithmetic.takes(factor) {
            self.refuse(format!("it is {factor}, and {reason}"));
        }
    }

    /// Visits the address from which on `elements` elements of a format are read.
    pub fn reads(&mut self, format: Format, address: &mut u64, elements: u64) {
        let extents = Extents::line(format.bits(), elements);
        self.memory(address, extents, (Contents::Source(format), false));
    }

    /// Visits the address from which on `elements` elements of `f32` are combined with others.
    pub fn reduces(&mut self, address: &mut u64, elements: u64) {
        self.memory(address, Extents::line(Format::F32.bits(), elements), (Contents::Workspace, true));
    }

    /// Visits a row-major matrix that is read, or written if `writes`. It is the same for all GEMMs, or in an
    /// [`Each`](crate::tree::Each).
    pub fn matrix(
        &mut self,
        format: Format,
        MatrixRef { address, ld, stride }: &mut MatrixRef,
        shape: Shape,
        writes: bool,
    ) {
        let contents = if writes { Contents::Output(format) } else { Contents::Source(format) };
        let (length, line) = (shape.n.into(), Extents::line(format.bits(), 0));
        self.memory(address, Extents { length, lines: shape.m, ld: *ld, ..line }, (contents, writes));
        if !writes && self.products == 1 {
            // A thread reads what it will write; of several GEMMs, a tile reads rows that the next one's writes.
            self.visit.in_place();
        }
        self.visit.length(ld);
        self.visit.form((*stride != 0).into());
        if *stride != 0 {
            self.refuse(format!("its stride is {stride}, 0 was needed: `Each` has a matrix for each GEMM"));
        }
    }

    /// Visits memory of one GEMM.
    pub fn memory(&mut self, address: &mut u64, extents: Extents, (contents, writes): (Contents, bool)) {
        let stride = self.stride.saturating_mul(8) / u64::from(extents.bits.max(1));
        let extents = Extents { count: if self.stride == 0 { 1 } else { self.products }, stride, ..extents };
        let name = self.names[0];
        self.visit.node(&self.path, Memory { name, address, extents, contents, writes });
    }

    /// Says that an argument is illegal.
    pub fn refuse(&mut self, reason: impl Into<String>) {
        self.visit.illegal(self.path.refuse(reason));
    }

    /// Visits the number of elements of a vector, which must be the number needed.
    pub fn len(&mut self, elements: u32, needed: u32) {
        self.visit.form(elements);
        if elements != needed {
            self.visit.illegal(self.path.error(NodeProblem::Length { elements, needed }));
        }
    }
}

/// Finds the first illegal argument.
#[derive(Debug)]
pub struct Legal(Result<(), NodeError>);

impl Legal {
    /// Whether what `visit` visits is legal.
    ///
    /// # Errors
    /// The first illegal argument.
    pub fn check(visit: impl FnOnce(&mut dyn Visit)) -> Result<(), NodeError> {
        let mut legal = Self(Ok(()));
        visit(&mut legal);
        legal.0
    }
}

impl Visit for Legal {
    fn memory(&mut self, memory: Memory<'_>) {
        let name = memory.name;
        self.node(&Path::ROOT.then(name), memory);
    }

    fn node(&mut self, path: &Path<'_>, memory: Memory<'_>) {
        if self.0.is_ok() {
            self.0 = path.check(&memory);
        }
    }

    fn illegal(&mut self, error: NodeError) {
        if self.0.is_ok() {
            self.0 = Err(error);
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
        needed: u64,
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
