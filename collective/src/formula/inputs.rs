//! The arguments of a formula: by name, from a caller or from another source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Formula, Lowered};
use crate::element::Format;
use crate::operand::MatrixRef;
use crate::process::Locked;
use crate::tree::{
    AnyNode, AnyNodeArguments, Argument, Distance, DropoutArgument, Item, NodeError, NodeProblem,
    ResidualArgument, Scratch, Shape, Supplied, Supply,
};

/// A name that is kept for the life of the process.
pub(super) fn kept(name: &str) -> &'static str {
    static NAMES: Locked<BTreeSet<&'static str>> = Locked::new(BTreeSet::new());
    let mut names = NAMES.lock();
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    name
}

/// An argument of a formula.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Input {
    /// A number of the host.
    Scalar(f64),
    /// The device address of a packed vector, or of a number.
    Address(u64),
    /// A row-major matrix, or the scales of a quantiser.
    Matrix(MatrixRef),
    /// Memory for an ordered reduction's partial results.
    Scratch(Scratch),
    /// The arguments of a mask.
    Dropout(DropoutArgument),
    /// The same for each GEMM of a launch (`bias[l,n]`): address or matrix of the first, and bytes from the
    /// data of one GEMM to that of the next.
    Each {
        /// The first GEMM's address.
        address: u64,
        /// Elements from one row to the next, for a matrix.
        ld: u64,
        /// Bytes from one GEMM's data to the next's, a multiple of 4.
        stride: u64,
    },
}

impl Input {
    /// A row-major matrix: its device address, and elements from one row to the next.
    pub const fn matrix(address: u64, ld: u64) -> Self {
        Self::Matrix(MatrixRef::new(address, ld))
    }
}

/// A formula with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct FormulaArguments {
    tree: Lowered,
    arguments: AnyNodeArguments,
    inputs: Arc<BTreeMap<&'static str, Input>>,
}

impl FormulaArguments {
    /// The formula.
    pub fn tree(&self) -> Lowered {
        self.tree
    }

    /// The arguments, as nodes take them.
    pub fn nodes(&self) -> &AnyNodeArguments {
        &self.arguments
    }

    /// The same, for visitors.
    pub fn nodes_mut(&mut self) -> &mut AnyNodeArguments {
        &mut self.arguments
    }

    /// The arguments by name, as they were given.
    pub fn inputs(&self) -> impl Iterator<Item = (&'static str, Input)> {
        self.inputs.iter().map(|(name, input)| (*name, *input))
    }
}

impl Formula {
    /// The names of its arguments, in the order of the text.
    pub fn inputs(self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for item in self.lowered(Format::Bf16).items() {
            for input in &item.inputs {
                if let Argument::Named(name) = input
                    && !names.contains(name)
                {
                    names.push(*name);
                }
            }
        }
        names
    }

    /// The formula with arguments by name, for operands of a format and a D of this shape. Vectors are as
    /// long as D has columns, or rows; twice as long inside of a gate. `alpha` is 1 where it is not given. C and its factor are not needed
    /// together; C alone is not needed where its factor is 0.
    ///
    /// # Errors
    /// An argument that the formula does not have, one that is missing, or one of another kind.
    pub fn bind(
        self,
        operand: Format,
        shape: Shape,
        given: &[(&str, Input)],
    ) -> Result<FormulaArguments, NodeError> {
        let names = self.inputs();
        let mut known = BTreeMap::new();
        for (name, input) in given {
            let Some(name) = names.iter().find(|known| *known == name) else {
                return Err(problem(
                    name,
                    format!("no argument of {self}: its arguments are {}", names.join(", ")),
                ));
            };
            if known.insert(*name, *input).is_some() {
                return Err(problem(name, "given twice"));
            }
        }
        let (arguments, error) = self.lowered(operand).supplied(shape, known, None);
        error.map_or(Ok(arguments), Err)
    }

    /// The formula with arguments from a source, which is asked once for each name.
    pub fn draw(self, operand: Format, shape: Shape, from: &mut dyn Supply) -> FormulaArguments {
        // Whatever the source gives is of the kind that was asked for.
        self.lowered(operand).supplied(shape, BTreeMap::new(), Some(from)).0
    }
}

fn problem(name: &str, reason: impl Into<String>) -> NodeError {
    NodeError { node: name.to_owned(), problem: NodeProblem::Other { reason: reason.into() } }
}

impl Lowered {
    /// Arguments with addresses of 0.
    pub(crate) fn none(self) -> AnyNodeArguments {
        self.supplied(Shape { m: 0, n: 0 }, BTreeMap::new(), Some(&mut Nothing)).0.arguments
    }

    /// The arguments, and what is wrong with them.
    fn supplied(
        self,
        shape: Shape,
        known: BTreeMap<&'static str, Input>,
        from: Option<&mut dyn Supply>,
    ) -> (FormulaArguments, Option<NodeError>) {
        let mut by_name = ByName { items: self.items(), own: &[], known, from, error: None };
        let arguments = AnyNode::supply(&mut by_name, shape);
        (FormulaArguments { tree: self, arguments, inputs: Arc::new(by_name.known) }, by_name.error)
    }
}

/// Supplies zeros.
struct Nothing;

impl Supply for Nothing {
    fn scalars(&mut self, _names: &[&str], values: &mut [f64]) {
        values.fill(0.0);
    }

    fn vector(&mut self, _format: Format, _len: u32) -> u64 {
        0
    }

    fn matrix(&mut self, _format: Format, _shape: Shape) -> MatrixRef {
        MatrixRef::NONE
    }

    fn residual(&mut self, _format: Format, _shape: Shape) -> ResidualArgument {
        ResidualArgument::default()
    }

    fn output(&mut self, _format: Format, _shape: Shape) -> MatrixRef {
        MatrixRef::NONE
    }

    fn reduced(&mut self, _identity: f32, _len: u32) -> u64 {
        0
    }

    fn scratch(&mut self, _bytes: u64) -> Scratch {
        Scratch::default()
    }

    fn dropout(&mut self) -> DropoutArgument {
        DropoutArgument::default()
    }

    fn distance(&mut self) -> Distance {
        Distance::default()
    }
}

/// Arguments by name; those that are not known yet come from another source, if there is one.
struct ByName<'a> {
    items: &'static [Item],
    /// What the last node has not asked for yet.
    own: &'static [Argument],
    known: BTreeMap<&'static str, Input>,
    from: Option<&'a mut dyn Supply>,
    error: Option<NodeError>,
}

impl ByName<'_> {
    fn refuse(&mut self, name: &str, reason: impl Into<String>) {
        self.error.get_or_insert_with(|| problem(name, reason));
    }

    /// The next argument of the node.
    fn next(&mut self) -> Argument {
        match self.own.split_first() {
            Some((first, rest)) => {
                self.own = rest;
                *first
            }
            None => Argument::Number(0.0),
        }
    }

    /// The next argument, of a kind that `get` takes out of an input; `draw` asks the source for it.
    fn get<T: Default>(
        &mut self,
        needed: &str,
        get: impl Fn(Input) -> Option<T>,
        draw: impl FnOnce(&mut dyn Supply) -> Input,
    ) -> T {
        let Argument::Named(name) = self.next() else { return T::default() };
        self.of(name, needed, get, draw)
    }

    fn of<T: Default>(
        &mut self,
        name: &'static str,
        needed: &str,
        get: impl Fn(Input) -> Option<T>,
        draw: impl FnOnce(&mut dyn Supply) -> Input,
    ) -> T {
        let input = match (self.known.get(name), &mut self.from) {
            (Some(input), _) => *input,
            (None, None) => {
                self.refuse(name, format!("not given: {needed} was needed"));
                return T::default();
            }
            (None, Some(from)) => {
                let input = draw(*from);
                self.known.insert(name, input);
                input
            }
        };
        get(input).unwrap_or_else(|| {
            self.refuse(name, format!("{input:?}, {needed} was needed"));
            T::default()
        })
    }

    /// A number of the host; `alpha` has a default.
    fn scalar(&mut self, name: &'static str, draw: impl FnOnce(&mut dyn Supply) -> f64) -> f64 {
        if let (None, None, "alpha") = (&self.from, self.known.get(name), name) {
            return 1.0;
        }
        let number = |input| if let Input::Scalar(number) = input { Some(number) } else { None };
        self.of(name, "Input::Scalar", number, |from| Input::Scalar(draw(from)))
    }

    fn address(&mut self, draw: impl FnOnce(&mut dyn Supply) -> u64) -> u64 {
        let address = |input| {
            if let Input::Address(address) | Input::Each { address, .. } = input {
                Some(address)
            } else {
                None
            }
        };
        self.get("Input::Address", address, |from| Input::Address(draw(from)))
    }
}

fn matrix(input: Input) -> Option<MatrixRef> {
    if let Input::Each { address, ld, .. } = input {
        return Some(MatrixRef::new(address, ld));
    }
    if let Input::Matrix(matrix) = input { Some(matrix) } else { None }
}

impl Supply for ByName<'_> {
    fn scalars(&mut self, names: &[&str], values: &mut [f64]) {
        // The source gives them together, for some functions in ascending order.
        let mut drawn: Option<Vec<f64>> = None;
        let count = values.len();
        for (i, value) in values.iter_mut().enumerate() {
            *value = match self.next() {
                Argument::Number(number) => number,
                Argument::Named(name) => self.scalar(name, |from| {
                    let all = drawn.get_or_insert_with(|| {
                        let mut all = vec![0.0; count];
                        from.scalars(names, &mut all);
                        all
                    });
                    all[i]
                }),
            };
        }
    }

    fn vector(&mut self, format: Format, len: u32) -> u64 {
        self.address(|from| from.vector(format, len))
    }

    fn matrix(&mut self, format: Format, shape: Shape) -> MatrixRef {
        self.get("Input::Matrix", matrix, |from| Input::Matrix(from.matrix(format, shape)))
    }

    fn residual(&mut self, format: Format, shape: Shape) -> ResidualArgument {
        let (Argument::Named(beta), Argument::Named(c)) = (self.next(), self.next()) else {
            return ResidualArgument::default();
        };
        let drawn = match (&mut self.from, self.known.get(beta), self.known.get(c)) {
            (Some(_), Some(Input::Scalar(beta)), Some(Input::Matrix(c))) => {
                return ResidualArgument { beta: *beta, c: Some(*c) };
            }
            (Some(from), ..) => from.residual(format, shape),
            (None, _, given) => {
                let given = given.is_some();
                let factor = self.known.contains_key(beta);
                let beta = if factor || given { self.scalar(beta, |_| 0.0) } else { 0.0 };
                if beta == 0.0 && !given {
                    return ResidualArgument::default();
                }
                let c = self.of(c, "Input::Matrix", matrix, |_| Input::Scalar(0.0));
                return ResidualArgument { beta, c: Some(c) };
            }
        };
        let number = *self.known.entry(beta).or_insert(Input::Scalar(drawn.beta));
        if let Some(matrix) = drawn.c {
            self.known.entry(c).or_insert(Input::Matrix(matrix));
        }
        if let (Input::Scalar(beta), Some(_)) = (number, drawn.c) {
            return ResidualArgument { beta, ..drawn };
        }
        drawn
    }

    fn output(&mut self, format: Format, shape: Shape) -> MatrixRef {
        self.get("Input::Matrix", matrix, |from| Input::Matrix(from.output(format, shape)))
    }

    fn reduced(&mut self, identity: f32, len: u32) -> u64 {
        self.address(|from| from.reduced(identity, len))
    }

    fn scratch(&mut self, bytes: u64) -> Scratch {
        let scratch = |input| if let Input::Scratch(scratch) = input { Some(scratch) } else { None };
        self.get("Input::Scratch", scratch, |from| Input::Scratch(from.scratch(bytes)))
    }

    fn dropout(&mut self) -> DropoutArgument {
        let mask = |input| if let Input::Dropout(mask) = input { Some(mask) } else { None };
        self.get("Input::Dropout", mask, |from| Input::Dropout(from.dropout()))
    }

    fn distance(&mut self) -> Distance {
        let Argument::Named(name) = self.next() else { return Distance::default() };
        let reason = match (self.known.get(name), &mut self.from) {
            (Some(Input::Each { stride, .. }), _) => return Distance(*stride),
            (None, Some(from)) => return from.distance(),
            (Some(_), Some(_)) => return Distance::default(),
            (Some(other), None) => format!("{other:?}, Input::Each was needed: each GEMM has its own"),
            (None, None) => "not given: Input::Each was needed".to_owned(),
        };
        self.refuse(name, reason);
        Distance::default()
    }

    fn literal(&mut self) -> f64 {
        if let Argument::Number(number) = self.next() { number } else { f64::NAN }
    }

    fn item(&mut self) -> Option<&'static Item> {
        let (first, rest) = self.items.split_first()?;
        self.items = rest;
        self.own = &first.inputs;
        Some(first)
    }
}
