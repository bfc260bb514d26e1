//! Device values as real numbers.

use ptx::Value;
use ptx::inst::{AluOp, ApproxOp, Cvt, Rounding};

use super::single::{self, Single};
use super::{Arithmetic, Elementary, Level, Needs, Real};

#[track_caller]
fn unary<'f>(value: Value<'f, f32>, op: AluOp) -> Value<'f, f32> {
    value.builder().alu(op, &[value.operand()])
}

#[track_caller]
fn exact<'f>(value: Value<'f, f32>, reciprocal: bool) -> Value<'f, f32> {
    unary(value, AluOp::Exact { reciprocal, ty: ptx::Type::F32, rounding: Rounding::Nearest })
}

/// What the three types share, and what each has of its own.
macro_rules! device {
    ($($ty:ty { $($own:item)* })*) => {$(
        impl Real for Value<'_, $ty> {
            #[track_caller]
            fn constant(self, value: f64) -> Self {
                self.builder().constant(value as $ty)
            }

            #[track_caller]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                self.mul_add(factor, addend)
            }

            #[track_caller]
            fn abs(self) -> Self {
                self.abs()
            }

            #[track_caller]
            fn min(self, other: Self) -> Self {
                self.min(other)
            }

            #[track_caller]
            fn max(self, other: Self) -> Self {
                self.max(other)
            }

            #[track_caller]
            fn less(self, limit: Self, yes: Self, no: Self) -> Self {
                yes.where_or(self.less_than(limit), no)
            }

            $(#[track_caller] $own)*
        }
    )*};
}

device! {
    f32 {
        fn copysign(self, sign: Self) -> Self {
            // PTX takes the sign from the first operand.
            self.builder().alu(AluOp::CopySign(ptx::Type::F32), &[sign.operand(), self.operand()])
        }

        fn min_nan(self, other: Self) -> Self {
            self.builder().alu(AluOp::NanExtreme { max: false }, &[self.operand(), other.operand()])
        }

        fn max_nan(self, other: Self) -> Self {
            self.builder().alu(AluOp::NanExtreme { max: true }, &[self.operand(), other.operand()])
        }

        fn elementary(self, function: Elementary, level: Level) -> Self {
            self.builder().for_caller(|| single::elementary(self, function, level))
        }
    }
    i32 {
        fn copysign(self, sign: Self) -> Self {
            let magnitude = self.abs();
            (-magnitude).where_or(sign.less_than(0), magnitude)
        }

        fn min_nan(self, other: Self) -> Self {
            self.min(other)
        }

        fn max_nan(self, other: Self) -> Self {
            self.max(other)
        }

        fn elementary(self, _function: Elementary, _level: Level) -> Self {
            no_elementary(self)
        }
    }
    f64 {
        fn copysign(self, sign: Self) -> Self {
            self.builder().alu(AluOp::CopySign(ptx::Type::F64), &[sign.operand(), self.operand()])
        }

        fn min_nan(self, other: Self) -> Self {
            self.min(other).where_or(self.equals(self) & other.equals(other), self + other)
        }

        fn max_nan(self, other: Self) -> Self {
            self.max(other).where_or(self.equals(self) & other.equals(other), self + other)
        }

        fn elementary(self, _function: Elementary, _level: Level) -> Self {
            no_elementary(self)
        }
    }
}

fn no_elementary<T: ptx::Scalar>(value: Value<'_, T>) -> Value<'_, T> {
    if let Err(reason) = Arithmetic::F64.has(Needs { elementary: true, fractions: false }) {
        value.builder().refuse(reason);
    }
    value
}

impl<'f> Single for Value<'f, f32> {
    fn round(self) -> Self {
        unary(self, AluOp::Cvt(Cvt::Integral(Rounding::Nearest)))
    }

    fn scale(self, power: Self) -> Self {
        let power: Value<'f, i32> =
            self.builder().alu(AluOp::Cvt(Cvt::ToSigned(Rounding::Nearest)), &[power.operand()]);
        (self.bits_as::<i32>() + (power << 23)).bits_as()
    }

    fn split(self) -> (Self, Self) {
        let bits = self.bits_as::<i32>();
        let power = (bits - single::ROOT_HALF.cast_signed()) >> 23;
        ((bits - (power << 23)).bits_as(), power.cast())
    }

    fn square_root(self) -> Self {
        exact(self, false)
    }

    fn reciprocal(self) -> Self {
        exact(self, true)
    }

    fn approximate(self, op: ApproxOp) -> Self {
        unary(self, AluOp::Approx(op))
    }

    fn approximate_flushed(self, op: ApproxOp) -> Self {
        unary(self, AluOp::ApproxFlush(op))
    }
}
