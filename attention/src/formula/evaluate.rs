//! Formulas on the host and on the device, by one function each for whole numbers, real numbers and truths.

use core::fmt;

use collective::{Accuracy, Bounded, Dual, Fast, Real};
use ptx::{Builder, Value};

use super::array::Array;
use super::typed::{Arithmetic, Comparison, Element, Number, Truth, Variable, Whole, is_whole};
use crate::count::{Count, Differentiated};
use crate::scores::Scope;

/// What formulas need of whole numbers, beyond what masks need.
pub(super) trait Computed: Count {
    fn pick(truth: Self::Truth, yes: Self, no: Self) -> Self;
    fn pick_real(truth: Self::Truth, yes: Self::Real, no: Self::Real) -> Self::Real;
    fn less_real(a: Self::Real, b: Self::Real) -> Self::Truth;
    /// The quotient rounded towards zero; 0 of a divisor that is 0.
    fn quotient(self, divisor: Self) -> Self;
}

/// An element of an array, as it was read.
#[derive(Clone, Copy)]
pub(super) enum Loaded<N: Count> {
    Whole(N),
    Real(N::Real),
}

/// Reads an element of an array, by its numbers.
pub(super) type Read<'a, N> = &'a dyn Fn(&Array, &[N]) -> Loaded<N>;

/// What a formula is computed of.
pub(super) struct At<'a, N: Count> {
    pub(super) of: &'a Scope<'a, N>,
    pub(super) row: N,
    pub(super) key: N,
    /// The product; for a mask any number.
    pub(super) x: N::Real,
    pub(super) arrays: &'a [&'static Array],
    pub(super) read: Read<'a, N>,
}

impl<N: Computed> At<'_, N> {
    pub(super) fn whole(&self, of: &Whole) -> N {
        match of {
            Whole::Constant(constant) => self.row.constant(*constant),
            Whole::Variable(variable) => match variable {
                Variable::Query => self.row,
                Variable::Key => self.key,
                Variable::Head => self.of.head,
                Variable::Sequence => self.of.batch,
                Variable::Queries => self.of.queries,
                Variable::Keys => self.of.keys,
            },
            Whole::Element(element) => match self.element(element) {
                Loaded::Whole(whole) => whole,
                // Arrays of whole numbers give no others.
                Loaded::Real(_) => self.row.constant(0),
            },
            Whole::Of(which, both) => {
                let [a, b] = both.each_ref().map(|of| self.whole(of));
                match which {
                    Arithmetic::Add => a + b,
                    Arithmetic::Subtract => a - b,
                    Arithmetic::Multiply => a * b,
                    Arithmetic::Divide => a.quotient(b),
                    Arithmetic::Remainder => a - a.quotient(b) * b,
                    Arithmetic::Least => a.min(b),
                    Arithmetic::Most => a.max(b),
                }
            }
            Whole::Where(truth, both) => {
                let [a, b] = both.each_ref().map(|of| self.whole(of));
                N::pick(self.truth(truth), a, b)
            }
        }
    }

    pub(super) fn number(&self, of: &Number) -> N::Real {
        match of {
            Number::Product => self.x,
            Number::Constant(constant) => self.x.constant(*constant),
            Number::Real(whole) => self.whole(whole).real(),
            Number::Element(element) => match self.element(element) {
                Loaded::Real(real) => real,
                Loaded::Whole(whole) => whole.real(),
            },
            Number::Of(which, both) => {
                let [a, b] = both.each_ref().map(|of| self.number(of));
                match which {
                    Arithmetic::Add => a + b,
                    Arithmetic::Subtract => a - b,
                    Arithmetic::Multiply => a * b,
                    Arithmetic::Divide | Arithmetic::Remainder => Fast::divide(a, b),
                    Arithmetic::Least => a.min(b),
                    Arithmetic::Most => a.max(b),
                }
            }
            Number::Absolute(of) => self.number(of).abs(),
            Number::Function(function, of) => Fast::of(*function, self.number(of)),
            Number::Where(truth, both) => {
                let [a, b] = both.each_ref().map(|of| self.number(of));
                N::pick_real(self.truth(truth), a, b)
            }
        }
    }

    pub(super) fn truth(&self, of: &Truth) -> N::Truth {
        match of {
            Truth::Whole(comparison, both) => {
                let [a, b] = both.each_ref().map(|of| self.whole(of));
                match comparison {
                    Comparison::Less => a.less(b),
                    Comparison::AtMost => a.at_most(b),
                    Comparison::Equal => a.equals(b),
                }
            }
            Truth::Less(both) => {
                let [a, b] = both.each_ref().map(|of| self.number(of));
                N::less_real(a, b)
            }
            Truth::All(both) => {
                let [a, b] = both.each_ref().map(|of| self.truth(of));
                a & b
            }
            Truth::Any(both) => {
                let [a, b] = both.each_ref().map(|of| self.truth(of));
                a | b
            }
            Truth::Not(of) => !self.truth(of),
        }
    }

    fn element(&self, Element { array, index }: &Element) -> Loaded<N> {
        let index: Vec<_> = index.iter().map(|of| self.whole(of)).collect();
        (self.read)(self.arrays[*array], &index)
    }
}

/// The elements of arrays on the host, by their numbers: the array's name, and where.
#[derive(Clone, Copy)]
pub struct HostArrays<'a>(pub &'a (dyn Fn(&'static str, &[i64]) -> f64 + Sync));

impl fmt::Debug for HostArrays<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostArrays")
    }
}

impl HostArrays<'_> {
    /// Of scores that have no arrays.
    pub const NONE: HostArrays<'static> = HostArrays(&|_, _| 0.0);

    pub(super) fn load(&self, array: &Array, index: &[i64]) -> Loaded<i64> {
        let value = (self.0)(array.name, index);
        if is_whole(array.format) { Loaded::Whole(value as i64) } else { Loaded::Real(Bounded::exact(value)) }
    }
}

/// Reads an element in device memory. What is beyond an array is its nearest element.
pub(super) fn load<'f>(f: &'f Builder, array: &Array, index: &[Value<'f, i32>]) -> Loaded<Value<'f, i32>> {
    let mut address = f.parameter::<u64>(array.address);
    for ((&at, size), stride) in index.iter().zip(&array.sizes).zip(&array.strides) {
        let at = at.max(0).cast::<u32>().min(f.parameter::<u32>(size));
        address = address + at.cast::<u64>() * f.parameter::<u64>(stride);
    }
    let element = array.format.load(f, address, 0);
    match array.format.widen_whole(element).filter(|_| is_whole(array.format)) {
        Some(whole) => Loaded::Whole(whole),
        None => Loaded::Real(array.format.widen(element)),
    }
}

impl Computed for i64 {
    fn pick(truth: bool, yes: Self, no: Self) -> Self {
        if truth { yes } else { no }
    }

    fn pick_real(truth: bool, yes: Bounded, no: Bounded) -> Bounded {
        if truth { yes } else { no }
    }

    fn less_real(a: Bounded, b: Bounded) -> bool {
        a.value < b.value
    }

    fn quotient(self, divisor: Self) -> Self {
        self.checked_div(divisor).unwrap_or(0)
    }
}

impl<'f> Computed for Value<'f, i32> {
    fn pick(truth: Value<'f, bool>, yes: Self, no: Self) -> Self {
        yes.where_or(truth, no)
    }

    fn pick_real(truth: Value<'f, bool>, yes: Value<'f, f32>, no: Value<'f, f32>) -> Value<'f, f32> {
        yes.where_or(truth, no)
    }

    fn less_real(a: Value<'f, f32>, b: Value<'f, f32>) -> Value<'f, bool> {
        a.less_than(b)
    }

    fn quotient(self, divisor: Self) -> Self {
        if divisor.known_bits().is_some_and(|bits| bits != 0) {
            return self / divisor;
        }
        let none = divisor.equals(0);
        let (zero, one) = (Count::constant(self, 0), Count::constant(self, 1));
        zero.where_or(none, self / one.where_or(none, divisor))
    }
}

impl<N: Computed> Computed for Differentiated<N> {
    fn pick(truth: N::Truth, yes: Self, no: Self) -> Self {
        Self(N::pick(truth, yes.0, no.0))
    }

    fn pick_real(truth: N::Truth, yes: Dual<N::Real>, no: Dual<N::Real>) -> Dual<N::Real> {
        Dual::pick(yes, no, |yes, no| N::pick_real(truth, yes, no))
    }

    fn less_real(a: Dual<N::Real>, b: Dual<N::Real>) -> N::Truth {
        N::less_real(a.value, b.value)
    }

    fn quotient(self, divisor: Self) -> Self {
        Self(self.0.quotient(divisor.0))
    }
}
