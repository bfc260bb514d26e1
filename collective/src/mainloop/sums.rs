//! Accumulators by type, as a mainloop hands them to the epilogue.

use half::f16;
use ptx::inst::WgmmaSum;
use ptx::{Builder, Number, Scalar, Value, Var};

use super::Fragment;

/// The type of an accumulator register: an `f32`, an `i32`, or a `u32` that holds two `f16`, the even column
/// in the low half.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no type of accumulators",
    note = "`wgmma` sums in `f32`, in `i32` for integers, or in `f16`, of which a `u32` holds two"
)]
pub trait AccumulatorElement: Number + Default {
    /// The accumulator type in the instruction's name.
    const SUMS: WgmmaSum;

    /// The type in which accumulators are handed to the epilogue.
    type Sum: Scalar + Number + Default;

    /// The accumulators in a register.
    #[track_caller]
    fn values<'f>(f: &'f Builder, register: &Var<'f, Self>) -> Vec<Value<'f, Self::Sum>>;

    /// The accumulators of some registers, one per variable. If a register holds one, these are the registers
    /// themselves.
    #[track_caller]
    fn single<'f>(f: &'f Builder, registers: &[Var<'f, Self>]) -> Vec<Var<'f, Self::Sum>>;

    /// The fragment as [`Accumulators`].
    fn sums(fragment: Fragment<'_, Self::Sum>) -> Accumulators<'_>;
}

/// Registers that each hold one accumulator.
macro_rules! one_per_register {
    ($($of:ty: $name:ident;)+) => {$(
        impl AccumulatorElement for $of {
            const SUMS: WgmmaSum = WgmmaSum::$name;

            type Sum = Self;

            #[track_caller]
            fn values<'f>(_: &'f Builder, register: &Var<'f, Self>) -> Vec<Value<'f, Self>> {
                vec![register.get()]
            }

            #[track_caller]
            fn single<'f>(_: &'f Builder, registers: &[Var<'f, Self>]) -> Vec<Var<'f, Self>> {
                registers.to_vec()
            }

            fn sums(fragment: Fragment<'_, Self>) -> Accumulators<'_> {
                Accumulators::$name(fragment)
            }
        }
    )+};
}

one_per_register! {
    f32: F32;
    i32: S32;
}

impl AccumulatorElement for u32 {
    const SUMS: WgmmaSum = WgmmaSum::F16;

    type Sum = f32;

    #[track_caller]
    fn values<'f>(f: &'f Builder, register: &Var<'f, Self>) -> Vec<Value<'f, f32>> {
        f.for_caller(|| f.unpack::<f16>(register.get()).map(|half| half.cast()).to_vec())
    }

    #[track_caller]
    fn single<'f>(f: &'f Builder, registers: &[Var<'f, Self>]) -> Vec<Var<'f, f32>> {
        let values = registers.iter().flat_map(|register| Self::values(f, register));
        f.for_caller(|| values.map(|value| f.variable(value)).collect())
    }

    fn sums(fragment: Fragment<'_, f32>) -> Accumulators<'_> {
        Accumulators::F32(fragment)
    }
}

/// The accumulators of a consumer warpgroup, as the mainloop hands them on. Fix-up adds partial sums of a
/// tile in this type. An epilogue computes in `f32`, or stores integers as integers.
#[derive(Debug)]
pub enum Accumulators<'f> {
    /// Single precision; also for instructions that accumulate in `f16`.
    F32(Fragment<'f, f32>),
    /// 32-bit integers.
    S32(Fragment<'f, i32>),
    /// Double precision.
    F64(Fragment<'f, f64>),
}

/// Accumulators of which a register holds exactly one, in the type that is handed to the epilogue.
pub(super) trait PlainSum: Number + Default {
    /// The fragment as [`Accumulators`].
    fn handed_on(fragment: Fragment<'_, Self>) -> Accumulators<'_>;
}

impl PlainSum for f32 {
    fn handed_on(fragment: Fragment<'_, Self>) -> Accumulators<'_> {
        Accumulators::F32(fragment)
    }
}

impl PlainSum for i32 {
    fn handed_on(fragment: Fragment<'_, Self>) -> Accumulators<'_> {
        Accumulators::S32(fragment)
    }
}

impl PlainSum for f64 {
    fn handed_on(fragment: Fragment<'_, Self>) -> Accumulators<'_> {
        Accumulators::F64(fragment)
    }
}

impl<'f> Fragment<'f, i32> {
    /// The accumulators converted to the nearest `f32`.
    #[track_caller]
    pub fn to_f32(self, f: &'f Builder) -> Fragment<'f, f32> {
        f.for_caller(|| self.each(f, |sum| sum.cast()))
    }

    /// The accumulators' bits in registers of `f32`, for stores that move them unchanged.
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
