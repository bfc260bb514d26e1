//! Kernel parameters of a tree: stated while its arguments are visited, and given to its nodes on the device in the same order.

use ptx::abi::Argument;
use ptx::{Builder, Scalar, Type, Value};

use super::early::{EARLY, EarlyRow};
use super::value::Item;
use crate::operands::{Kind, Memory, NodeError, Parameter, Path, Site, Visit};
use crate::real::{Arithmetic, Number};

/// Parameter names, in the order of the tree.
const NAMES: [&str; 64] = [
    "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11", "t12", "t13", "t14", "t15",
    "t16", "t17", "t18", "t19", "t20", "t21", "t22", "t23", "t24", "t25", "t26", "t27", "t28", "t29", "t30",
    "t31", "t32", "t33", "t34", "t35", "t36", "t37", "t38", "t39", "t40", "t41", "t42", "t43", "t44", "t45",
    "t46", "t47", "t48", "t49", "t50", "t51", "t52", "t53", "t54", "t55", "t56", "t57", "t58", "t59", "t60",
    "t61", "t62", "t63",
];

/// Gives the parameters of a tree to its nodes, in the order in which they are [stated](super::Node::visit).
#[derive(Debug)]
pub struct Given<'f> {
    f: &'f Builder,
    /// How many were given.
    count: usize,
    /// Number of pairs of a row vector that are loaded before the tile is multiplied.
    early_pairs: usize,
    early: Option<EarlyRow<'f>>,
    /// The nodes of a tree that is a value, from the next on.
    items: &'static [Item],
    literal: f64,
    arithmetic: Arithmetic,
}

impl<'f> Given<'f> {
    /// The parameters of the kernel that `f` builds, for a tree whose one row vector is loaded before the tile is
    /// multiplied, `pairs` pairs per thread. `items` are the nodes of a tree that is a value.
    pub(crate) fn new(f: &'f Builder, arithmetic: Arithmetic, pairs: usize, items: &'static [Item]) -> Self {
        let early_pairs = pairs.min(EARLY);
        Self { f, count: 0, early_pairs, early: None, items, literal: 0.0, arithmetic }
    }

    /// Takes the next node of a tree that is a value.
    pub(super) fn item(&mut self) -> Option<&'static Item> {
        let (first, rest) = self.items.split_first()?;
        (self.items, self.literal) = (rest, first.number);
        Some(first)
    }

    /// The number of the node that was taken last.
    pub(super) fn literal(&self) -> f64 {
        self.literal
    }

    /// The row vector that is loaded before the tile is multiplied, if there is one.
    pub(crate) fn early(&self) -> Option<EarlyRow<'f>> {
        self.early
    }

    /// Registers for the row vector that begins at `base`, if it is loaded before the tile is multiplied.
    pub(super) fn early_row(&mut self, base: Value<'f, u64>) -> Option<EarlyRow<'f>> {
        self.early = (self.early_pairs > 0).then(|| EarlyRow::new(self.f, base, self.early_pairs));
        self.early
    }

    /// What the tree computes in.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// The builder.
    pub fn builder(&self) -> &'f Builder {
        self.f
    }

    /// The next parameter: an address or a number. If it has another type, the kernel is illegal.
    pub fn parameter<T: Scalar>(&mut self) -> Value<'f, T> {
        let name = name(self.count);
        self.count += 1;
        self.f.parameter(name)
    }

    /// The next parameter, a number of the host with which the tree computes.
    pub fn factor(&mut self) -> Number<'f> {
        match self.arithmetic {
            Arithmetic::F32 => Number::F32(self.parameter()),
            Arithmetic::S32 => Number::S32(self.parameter()),
            Arithmetic::F64 => Number::F64(self.parameter()),
        }
    }
}

/// The name of a tree's parameter. With more than 64, two have the same name, and the verifier refuses the kernel.
fn name(number: usize) -> &'static str {
    NAMES[number.min(NAMES.len() - 1)]
}

impl Site<'_> {
    /// Visits the arguments of a tree that computes in this, and states its parameters. Returns whether every access to two
    /// neighbouring elements, the first in an even column, can be one access.
    pub(crate) fn stating(&mut self, arithmetic: Arithmetic, visit: impl FnOnce(&mut Site<'_>)) -> bool {
        let mut site = self.computing_in(arithmetic);
        site.through(|visit| Stated { visit, arithmetic, count: 0, pairs: true }, visit).pairs
    }
}

/// States the parameters of a tree to a visitor of its arguments: whatever memory, length, count or factor is visited is one.
struct Stated<'a> {
    visit: &'a mut dyn Visit,
    arithmetic: Arithmetic,
    count: usize,
    /// Whether every access to two neighbouring elements, the first in an even column, can be one access.
    pairs: bool,
}

impl Stated<'_> {
    fn state(&mut self, kind: Kind, value: Option<Argument>) {
        let name = name(self.count);
        self.count += 1;
        self.visit.parameter(Parameter { name, kind, value });
    }
}

impl Visit for Stated<'_> {
    fn memory(&mut self, memory: Memory<'_>) {
        let within = memory.name;
        self.visit.memory(memory);
        self.state(Kind::Address { within, beyond: 0 }, None);
    }

    fn node(&mut self, path: &Path<'_>, memory: Memory<'_>) {
        let within = memory.name;
        self.visit.node(path, memory);
        self.state(Kind::Address { within, beyond: 0 }, None);
    }

    fn length(&mut self, length: &mut u64) {
        self.visit.length(length);
        self.state(Kind::Number(Type::U64), Some((*length).into()));
    }

    fn count(&mut self, count: &mut u32) {
        self.visit.count(count);
        self.state(Kind::Number(Type::U32), Some((*count).into()));
    }

    fn factor(&mut self, factor: &mut f64) {
        self.visit.factor(factor);
        self.state(Kind::Number(self.arithmetic.parameter()), Some(self.arithmetic.argument(*factor)));
    }

    fn lines(&mut self, length: u64, repeats: [(u32, u64); 3]) {
        self.visit.lines(length, repeats);
    }

    fn in_place(&mut self) {
        self.visit.in_place();
    }

    fn form(&mut self, form: u32) {
        self.visit.form(form);
    }

    fn in_pairs(&mut self, pairs: bool) {
        self.visit.in_pairs(pairs);
        self.pairs &= pairs;
    }

    fn illegal(&mut self, error: NodeError) {
        self.visit.illegal(error);
    }
}
