//! Kernel parameters of a tree, declared and filled in the same order.

use ptx::abi::Argument;
use ptx::{Builder, Scalar, Value};

use super::early::{EARLY, EarlyRow};
use super::value::Item;
use crate::operands::{Memory, Visit};
use crate::real::{Arithmetic, Number};

/// Parameter names, in the order of the tree.
const NAMES: [&str; 64] = [
    "t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9", "t10", "t11", "t12", "t13", "t14", "t15",
    "t16", "t17", "t18", "t19", "t20", "t21", "t22", "t23", "t24", "t25", "t26", "t27", "t28", "t29", "t30",
    "t31", "t32", "t33", "t34", "t35", "t36", "t37", "t38", "t39", "t40", "t41", "t42", "t43", "t44", "t45",
    "t46", "t47", "t48", "t49", "t50", "t51", "t52", "t53", "t54", "t55", "t56", "t57", "t58", "t59", "t60",
    "t61", "t62", "t63",
];

/// Declares the parameters of a tree's nodes, in order.
#[derive(Debug)]
pub struct Declare<'f> {
    f: &'f Builder,
    declared: usize,
    /// Number of pairs of a row vector that are loaded before the tile is multiplied.
    early_pairs: usize,
    early: Option<EarlyRow<'f>>,
    /// The nodes of a tree that is a value, from the next on.
    items: &'static [Item],
    literal: f64,
    arithmetic: Arithmetic,
}

impl<'f> Declare<'f> {
    /// Declares parameters of the kernel that `f` builds, for a tree whose one row vector is loaded before the tile is
    /// multiplied, `pairs` pairs per thread. `items` are the nodes of a tree that is a value.
    pub(crate) fn new(f: &'f Builder, arithmetic: Arithmetic, pairs: usize, items: &'static [Item]) -> Self {
        let early_pairs = pairs.min(EARLY);
        Self { f, declared: 0, early_pairs, early: None, items, literal: 0.0, arithmetic }
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

    /// Declares the next parameter. A `u64` is an address. With more than 64 parameters, two have the same
    /// name, and the verifier refuses the kernel.
    pub fn param<T: Scalar>(&mut self) -> Value<'f, T> {
        let name = self.name();
        self.f.param(name)
    }

    /// As [`param`](Self::param), for a `u64` that is not an address.
    pub fn number<T: Scalar>(&mut self) -> Value<'f, T> {
        let name = self.name();
        self.f.number(name)
    }

    /// Declares a number of the host, with which the tree computes.
    pub fn factor(&mut self) -> Number<'f> {
        match self.arithmetic {
            Arithmetic::F32 => Number::F32(self.param()),
            Arithmetic::S32 => Number::S32(self.param()),
            Arithmetic::F64 => Number::F64(self.param()),
        }
    }

    fn name(&mut self) -> &'static str {
        let name = NAMES[self.declared.min(NAMES.len() - 1)];
        self.declared += 1;
        name
    }
}

/// The values of a tree's parameters: what its nodes visit, in the same order as they declare it.
#[derive(Debug)]
pub(crate) struct Parameters {
    /// The values, in order.
    pub(crate) values: Vec<Argument>,
    /// Whether every access to two neighbouring elements, the first in an even column, can be one access.
    pub(crate) pairs: bool,
    arithmetic: Arithmetic,
}

impl Parameters {
    /// None yet, for a tree that computes in this.
    pub(crate) fn of(arithmetic: Arithmetic) -> Self {
        Self { values: Vec::new(), pairs: true, arithmetic }
    }
}

impl Visit for Parameters {
    fn memory(&mut self, memory: Memory<'_>) {
        self.values.push((*memory.address).into());
    }

    fn length(&mut self, length: &mut u64) {
        self.values.push((*length).into());
    }

    fn count(&mut self, count: &mut u32) {
        self.values.push((*count).into());
    }

    fn factor(&mut self, factor: &mut f64) {
        self.values.push(self.arithmetic.argument(*factor));
    }

    fn in_pairs(&mut self, pairs: bool) {
        self.pairs &= pairs;
    }
}
