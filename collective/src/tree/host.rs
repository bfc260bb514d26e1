//! A tree on the host: what it reads, and what it leaves behind.

use std::collections::BTreeMap;

use half::{bf16, f16};
use ptx::Type;

use super::{Shape, Span};
use crate::element::Element;

/// Device memory as the host sees it.
pub trait Memory {
    /// `bytes` bytes (8 at most) as a little-endian number; `None` where there is no memory.
    fn read(&self, address: u64, bytes: u32) -> Option<u64>;
}

/// An element that a tree writes: to D, or beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Written {
    ty: Type,
    roundoff: f64,
    tiniest: f64,
    /// What it is before it is rounded to its type.
    pub value: Span,
}

impl Written {
    /// An element of type `T`.
    pub fn new<T: Element>(value: Span) -> Self {
        Self { ty: T::TYPE, roundoff: T::UNIT_ROUNDOFF, tiniest: T::TINIEST, value }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> u32 {
        self.ty.bytes()
    }

    /// The value of an element's bits.
    pub fn decode(&self, bits: u64) -> f64 {
        decode(self.ty, bits)
    }

    /// The largest distance of a correct element from the value.
    pub fn bound(&self) -> f64 {
        let Span { value, error } = self.value;
        error + self.roundoff * (value.abs() + error) + self.tiniest / 2.0
    }

    /// Whether an element with these bits is correct. Where the value is NaN it must be NaN; where it may be beyond the
    /// type's largest, infinity will do.
    pub fn admits(&self, bits: u64) -> bool {
        let (got, value) = (self.decode(bits), self.value.value);
        if value.is_nan() {
            return got.is_nan();
        }
        // The largest finite value of a type is a little less than the power of two above it.
        let beyond = |largest: f64| value.abs() + self.value.error >= largest * (1.0 - self.roundoff);
        let largest = match self.ty {
            Type::F16 => 65536.0,
            Type::Bf16 | Type::F32 => f64::from(f32::MAX),
            Type::Pred | Type::U16 | Type::U32 | Type::S32 | Type::U64 | Type::S64 | Type::F64 => {
                f64::INFINITY
            }
        };
        if got.is_infinite() {
            return beyond(largest) && got.signum() == value.signum();
        }
        got == value || (got - value).abs() <= self.bound()
    }
}

/// What a tree is evaluated in.
pub struct Host<'a> {
    /// Extents of the product.
    pub shape: Shape,
    memory: &'a dyn Memory,
    accumulator: &'a dyn Fn([u32; 2]) -> Span,
    /// Elements written beside D, by address.
    pub written: BTreeMap<u64, Written>,
}

impl core::fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Host").field("shape", &self.shape).field("written", &self.written.len()).finish()
    }
}

impl<'a> Host<'a> {
    /// A product of this shape with these accumulators, and the memory that arguments point to.
    pub fn new(shape: Shape, memory: &'a dyn Memory, accumulator: &'a dyn Fn([u32; 2]) -> Span) -> Self {
        Self { shape, memory, accumulator, written: BTreeMap::new() }
    }

    /// The accumulator at (row, column).
    pub fn accumulator(&self, at: [u32; 2]) -> Span {
        (self.accumulator)(at)
    }

    /// An element in device memory; NaN where there is none.
    pub fn read<T: Element>(&self, address: u64) -> Span {
        let bits = self.memory.read(address, T::BITS / 8);
        Span::exact(bits.map_or(f64::NAN, |bits| decode(T::TYPE, bits)))
    }

    /// Remembers an element that the tree writes.
    pub fn write<T: Element>(&mut self, address: u64, value: Span) {
        self.written.insert(address, Written::new::<T>(value));
    }
}

/// The value of an element's bits.
fn decode(ty: Type, bits: u64) -> f64 {
    match ty {
        Type::F16 => f16::from_bits(bits as u16).to_f64(),
        Type::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        Type::F32 => f32::from_bits(bits as u32).into(),
        Type::F64 => f64::from_bits(bits),
        Type::Pred | Type::U16 | Type::U32 | Type::U64 => bits as f64,
        Type::S32 => f64::from(bits as i32),
        Type::S64 => bits as i64 as f64,
    }
}
