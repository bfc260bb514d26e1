//! A tree on the host: what it reads, and what it writes.

use core::num::Wrapping;
use std::collections::BTreeMap;

use super::{Arithmetic, Bounded, Shape};
use crate::element::Format;
use crate::functions::{Pointwise, evaluate_bounded, evaluate_in};
use crate::real::Needs;

/// Device memory, as the host sees it.
pub trait HostMemory {
    /// `bytes` bytes (at most 8) as a little-endian number; `None` if there is no memory at `address`.
    fn read(&self, address: u64, bytes: u32) -> Option<u64>;
}

/// An element that a tree writes: to D, or elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written {
    /// Its format.
    pub format: Format,
    /// Whether the element is stored without a further rounding, so that the bound is that of the value
    /// alone.
    pub unrounded: bool,
    /// The value before it is rounded to the format.
    pub value: Bounded,
}

/// Values by GEMM and element.
type Elements = BTreeMap<(u32, [u32; 2]), Bounded>;

/// Reduces an old value and all new ones to one value.
type Combine = fn(f64, &[Bounded]) -> Bounded;

/// The environment in which a tree is evaluated.
pub struct Host<'a> {
    /// Extents of the value under evaluation: D's; inside a gated pair, twice the columns.
    pub shape: Shape,
    /// Index of the GEMM in a launch of several.
    pub(super) group: u32,
    /// Bytes from the first group's vectors and matrices to those of this group.
    pub(super) displacement: u64,
    arithmetic: Arithmetic,
    memory: &'a dyn HostMemory,
    accumulator: &'a dyn Fn([u32; 2]) -> Bounded,
    /// Elements written, by address.
    written: BTreeMap<u64, Written>,
    /// Values to reduce, by address, with the function that reduces them.
    reduced: BTreeMap<u64, (Combine, Elements)>,
    /// The innermost enclosing binding.
    bound: Option<&'a Link<'a>>,
}

/// The value of an enclosing `Let`.
struct Link<'a> {
    outer: Option<&'a Link<'a>>,
    /// An element and its value.
    known: ([u32; 2], Bounded),
    /// The value of any element.
    value: Evaluate<'a>,
    /// The shape and the displacement that hold for it.
    shape: Shape,
    displacement: u64,
}

/// A node's value at (row, column).
type Evaluate<'a> = &'a dyn Fn(&mut Host<'_>, [u32; 2]) -> Bounded;

impl core::fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Host").field("shape", &self.shape).field("written", &self.written.len()).finish()
    }
}

impl<'a> Host<'a> {
    /// An environment for a D of this shape, with the accumulators of its GEMM, and the memory to which the
    /// arguments point.
    pub fn new(
        shape: Shape,
        memory: &'a dyn HostMemory,
        accumulator: &'a dyn Fn([u32; 2]) -> Bounded,
    ) -> Self {
        Self {
            shape,
            group: 0,
            displacement: 0,
            arithmetic: Arithmetic::F32,
            memory,
            accumulator,
            written: BTreeMap::new(),
            reduced: BTreeMap::new(),
            bound: None,
        }
    }

    /// The same environment for a tree that computes in this.
    #[must_use]
    pub fn computing_in(self, arithmetic: Arithmetic) -> Self {
        Self { arithmetic, ..self }
    }

    /// Goes on with GEMM `group` of a launch of several, whose D has this shape.
    pub fn enter(&mut self, group: u32, shape: Shape) {
        (self.group, self.shape) = (group, shape);
    }

    /// Evaluates `body` with one more binding: to `value`, which is known at one element.
    pub(super) fn with(
        &mut self,
        known: ([u32; 2], Bounded),
        value: Evaluate<'_>,
        body: impl FnOnce(&mut Host<'_>) -> Bounded,
    ) -> Bounded {
        let Self { bound: outer, shape, displacement, .. } = *self;
        self.within(Some(&Link { outer, known, value, shape, displacement }), (shape, displacement), body)
    }

    /// The value at (row, column) of the enclosing binding number `depth`, the innermost first; `None` if
    /// there is none.
    pub(super) fn bound(&mut self, depth: usize, at: [u32; 2]) -> Option<Bounded> {
        let link = core::iter::successors(self.bound, |link| link.outer).nth(depth)?;
        match link.known {
            (place, value) if place == at => Some(value),
            _ => {
                let place = (link.shape, link.displacement);
                Some(self.within(link.outer, place, |host| (link.value)(host, at)))
            }
        }
    }

    /// Evaluates `body` where only these bindings are visible.
    fn within(
        &mut self,
        bound: Option<&Link<'_>>,
        (shape, displacement): (Shape, u64),
        body: impl FnOnce(&mut Host<'_>) -> Bounded,
    ) -> Bounded {
        let mut host = Host {
            bound,
            shape,
            group: self.group,
            displacement,
            arithmetic: self.arithmetic,
            memory: self.memory,
            accumulator: self.accumulator,
            written: core::mem::take(&mut self.written),
            reduced: core::mem::take(&mut self.reduced),
        };
        let value = body(&mut host);
        (self.written, self.reduced) = (host.written, host.reduced);
        value
    }

    /// The accumulator at (row, column).
    pub fn accumulator(&self, at: [u32; 2]) -> Bounded {
        let accumulator = (self.accumulator)(at);
        // Integers are not rounded to f32.
        let whole = self.arithmetic == Arithmetic::S32;
        if whole { Bounded::exact(accumulator.value) } else { accumulator }
    }

    /// An element in device memory; NaN if there is no memory at the address.
    pub fn read(&self, format: Format, address: u64) -> Bounded {
        let bits = self.memory.read(address + self.displacement, format.bytes());
        let value = bits.map_or(f64::NAN, |bits| format.decode(bits));
        // Elements with more digits than f32 has are rounded.
        let rounded = self.arithmetic == Arithmetic::F32 && matches!(format, Format::S32 | Format::F64);
        Bounded { value, error: if rounded { (value - f64::from(value as f32)).abs() } else { 0.0 } }
    }

    /// A number of the host, as the tree takes it.
    pub(super) fn number(&self, number: f64) -> Bounded {
        Bounded::exact(self.arithmetic.held(number))
    }

    /// The value of a function, in what the tree computes in.
    pub(super) fn apply<F: Pointwise<N>, const N: usize>(
        &self,
        arguments: F::Arguments,
        x: [Bounded; N],
    ) -> Bounded {
        match self.arithmetic {
            Arithmetic::F32 => evaluate_bounded::<F, N>(arguments, x),
            // Such a program is illegal.
            other if other.has(Needs::of::<F, N>()).is_err() => Bounded::exact(f64::NAN),
            Arithmetic::S32 => {
                let whole = x.map(|x| Wrapping(x.value as i64 as i32));
                let lift = |scalar: f64| Wrapping(scalar as i32);
                Bounded::exact(evaluate_in::<F, Wrapping<i32>, N>(arguments, whole, lift).0.into())
            }
            Arithmetic::F64 => {
                // The errors of f32 in two parts: what the function's own roundings add is 2^-29 of that in f64.
                let evaluate = |x| evaluate_in::<F, Bounded, N>(arguments, x, Bounded::exact);
                let (all, own) = (evaluate(x), evaluate(x.map(|x| Bounded::exact(x.value))));
                Bounded { error: (all.error - own.error).max(0.0) + own.error / f64::from(1 << 29), ..all }
            }
        }
    }

    /// All elements that have been written, including the results of reductions.
    pub fn finish(mut self) -> BTreeMap<u64, Written> {
        for (address, (combine, elements)) in core::mem::take(&mut self.reduced) {
            let before = self.memory.read(address, 4).map_or(f64::NAN, |bits| Format::F32.decode(bits));
            let elements: Vec<Bounded> = elements.into_values().collect();
            let value = combine(before, &elements);
            self.written.insert(address, Written { format: Format::F32, unrounded: true, value });
        }
        self.written
    }

    /// Records an element that the tree writes.
    pub fn write(&mut self, format: Format, address: u64, value: Bounded) {
        self.note_written(address, Written { format, unrounded: false, value });
    }

    // The following functions do not depend on the tree's type, so they are compiled once, here, and not per
    // tree.

    fn note_written(&mut self, address: u64, element: Written) {
        self.written.insert(address + self.displacement, element);
    }

    /// Records an element whose value is reduced to the `f32` at an address.
    pub(super) fn note_reduced(&mut self, combine: Combine, address: u64, at: [u32; 2], value: Bounded) {
        let (_, elements) =
            self.reduced.entry(address + self.displacement).or_insert((combine, BTreeMap::new()));
        elements.insert((self.group, at), value);
    }
}
