//! Accumulators by type: what a mainloop hands on.

use ptx::inst::WgmmaSum;
use ptx::{Builder, Number, Value, Var};

use super::Fragment;

/// A type of accumulators that registers hold one by one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of accumulators",
    note = "`wgmma` sums in `f32`, or in `i32` for integers"
)]
pub trait Accumulator: Number + Default {
    /// What the instruction calls it.
    const SUMS: WgmmaSum;

    /// The sums of this type.
    fn sums(fragment: Fragment<'_, Self>) -> Sums<'_>;
}

impl Accumulator for f32 {
    const SUMS: WgmmaSum = WgmmaSum::F32;

    fn sums(fragment: Fragment<'_, Self>) -> Sums<'_> {
        Sums::F32(fragment)
    }
}

impl Accumulator for i32 {
    const SUMS: WgmmaSum = WgmmaSum::S32;

    fn sums(fragment: Fragment<'_, Self>) -> Sums<'_> {
        Sums::S32(fragment)
    }
}

/// The sums of a consumer warpgroup, as the instruction has them. Pieces of one tile are added up as they are; an epilogue computes in
/// `f32`, or stores integers as such.
#[derive(Debug)]
pub enum Sums<'f> {
    /// In single precision.
    F32(Fragment<'f, f32>),
    /// Integers.
    S32(Fragment<'f, i32>),
}

impl<'f, T: Accumulator> From<Fragment<'f, T>> for Sums<'f> {
    fn from(fragment: Fragment<'f, T>) -> Self {
        T::sums(fragment)
    }
}

impl<'f> Fragment<'f, i32> {
    /// The numbers nearest to the sums.
    pub fn to_f32(self, f: &'f Builder) -> Fragment<'f, f32> {
        self.each(f, |sum| sum.cast())
    }

    /// The sums' bits in registers of `f32`: for stores that move them as they are.
    pub(crate) fn bits(self, f: &'f Builder) -> Fragment<'f, f32> {
        self.each(f, |sum| sum.bits_as())
    }

    fn each(self, f: &'f Builder, of: impl Fn(Value<'f, i32>) -> Value<'f, f32>) -> Fragment<'f, f32> {
        let new = |sum: &Var<'f, i32>| f.variable(of(sum.get()));
        let blocks = self.blocks.iter().map(|block| block.iter().map(new).collect()).collect();
        let Self { elements, shared, warpgroup, first, columns, thread, .. } = self;
        Fragment { blocks, elements, shared, warpgroup, first, columns, thread }
    }
}
