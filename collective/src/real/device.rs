//! Device values as real numbers.

use ptx::Value;
use ptx::inst::{AluOp, ApproxOp, Cvt, Rounding};

use super::single::{self, Single};
use super::{Elementary, Level, Real};

#[track_caller]
fn unary<'f>(value: Value<'f, f32>, op: AluOp) -> Value<'f, f32> {
    value.builder().alu(op, &[value.operand()])
}

#[track_caller]
fn exact<'f>(value: Value<'f, f32>, reciprocal: bool) -> Value<'f, f32> {
    unary(value, AluOp::Exact { reciprocal, ty: ptx::Type::F32, rounding: Rounding::Nearest })
}

impl Real for Value<'_, f32> {
    #[track_caller]
    fn constant(self, value: f64) -> Self {
        self.builder().constant(value as f32)
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
    fn copysign(self, sign: Self) -> Self {
        // PTX takes the sign from the first operand.
        self.builder().alu(AluOp::CopySign(ptx::Type::F32), &[sign.operand(), self.operand()])
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
    fn min_nan(self, other: Self) -> Self {
        self.builder().alu(AluOp::NanExtreme { max: false }, &[self.operand(), other.operand()])
    }

    #[track_caller]
    fn max_nan(self, other: Self) -> Self {
        self.builder().alu(AluOp::NanExtreme { max: true }, &[self.operand(), other.operand()])
    }

    #[track_caller]
    fn less(self, limit: Self, yes: Self, no: Self) -> Self {
        yes.where_or(self.less_than(limit), no)
    }

    #[track_caller]
    fn elementary(self, function: Elementary, level: Level) -> Self {
        self.builder().for_caller(|| single::elementary(self, function, level))
    }
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
