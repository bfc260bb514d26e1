//! Accumulators by type: what a mainloop hands on.

use half::f16;
use ptx::inst::WgmmaSum;
use ptx::{Builder, Number, Scalar, Value, Var};

use super::Fragment;

/// What a register of accumulators holds: an `f32`, an `i32`, or as `u32` two `f16`, the even column in the low half.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of accumulators",
    note = "`wgmma` sums in `f32`, in `i32` for integers, or in `f16`, of which a `u32` holds two"
)]
pub trait Accumulator: Number + Default {
    /// What the instruction calls it.
    const SUMS: WgmmaSum;

    /// What the sums are handed on as.
    type Sum: Scalar + Number + Default;

    /// The sums that a register holds.
    fn values<'f>(f: &'f Builder, register: &Var<'f, Self>) -> Vec<Value<'f, Self::Sum>>;

    /// The sums of some registers one by one; the registers themselves where they hold one each.
    fn single<'f>(f: &'f Builder, registers: &[Var<'f, Self>]) -> Vec<Var<'f, Self::Sum>>;

    /// The sums of this type.
    fn sums(fragment: Fragment<'_, Self::Sum>) -> Sums<'_>;
}

impl Accumulator for f32 {
    const SUMS: WgmmaSum = WgmmaSum::F32;

    type Sum = Self;

    fn values<'f>(_: &'f Builder, register: &Var<'f, Self>) -> Vec<Value<'f, Self>> {
        vec![register.get()]
    }

    fn single<'f>(_: &'f Builder, registers: &[Var<'f, Self>]) -> Vec<Var<'f, Self>> {
        registers.to_vec()
    }

    fn sums(fragment: Fragment<'_, Self>) -> Sums<'_> {
        Sums::F32(fragment)
    }
}

impl Accumulator for i32 {
    const SUMS: WgmmaSum = WgmmaSum::S32;

    type Sum = Self;

    fn values<'f>(_: &'f Builder, register: &Var<'f, Self>) -> Vec<Value<'f, Self>> {
        vec![register.get()]
    }

    fn single<'f>(_: &'f Builder, registers: &[Var<'f, Self>]) -> Vec<Var<'f, Self>> {
        registers.to_vec()
    }

    fn sums(fragment: Fragment<'_, Self>) -> Sums<'_> {
        Sums::S32(fragment)
    }
}

impl Accumulator for u32 {
    const SUMS: WgmmaSum = WgmmaSum::F16;

    type Sum = f32;

    fn values<'f>(f: &'f Builder, register: &Var<'f, Self>) -> Vec<Value<'f, f32>> {
        f.unpack::<f16>(register.get()).map(|half| half.cast()).to_vec()
    }

    fn single<'f>(f: &'f Builder, registers: &[Var<'f, Self>]) -> Vec<Var<'f, f32>> {
        registers
            .iter()
            .flat_map(|register| Self::values(f, register))
            .map(|value| f.variable(value))
            .collect()
    }

    fn sums(fragment: Fragment<'_, f32>) -> Sums<'_> {
        Sums::F32(fragment)
    }
}

/// The sums of a consumer warpgroup. Pieces of one tile are added up as they are; an epilogue computes in `f32`, or stores integers as
/// such.
#[derive(Debug)]
pub enum Sums<'f> {
    /// In single precision, also where the instruction sums in `f16`.
    F32(Fragment<'f, f32>),
    /// Integers.
    S32(Fragment<'f, i32>),
    /// In double precision.
    F64(Fragment<'f, f64>),
}

/// Sums that a thread adds products to one by one: what is in a register is what is handed on.
pub(super) trait PlainSum: Number + Default {
    /// The sums of this type.
    fn handed_on(fragment: Fragment<'_, Self>) -> Sums<'_>;
}

impl PlainSum for f32 {
    fn handed_on(fragment: Fragment<'_, Self>) -> Sums<'_> {
        Sums::F32(fragment)
    }
}

impl PlainSum for i32 {
    fn handed_on(fragment: Fragment<'_, Self>) -> Sums<'_> {
        Sums::S32(fragment)
    }
}

impl PlainSum for f64 {
    fn handed_on(fragment: Fragment<'_, Self>) -> Sums<'_> {
        Sums::F64(fragment)
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
