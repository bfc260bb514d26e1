//! Alpha and beta, and the arithmetic of `alpha * acc + beta * C`.

use ptx::{Builder, Value};

use super::parts::Held;
use crate::element::Format;
use crate::mainloop::Fragment;
use crate::operands::{Kind, Parameter, Visit};
use crate::real::{Arithmetic, Number, Real};
use crate::tree::Site;

/// The names of the kernel parameters.
const NAMES: [&str; 2] = ["alpha", "beta"];

/// Alpha and beta on the device. If D is `s32` they are integers, and everything is computed modulo 2^32; then the
/// accumulators and C are held as the bits of an `f32`, which stores move unchanged. If D is `f64`, all is computed in
/// `f64`, else in `f32`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Factors<'f> {
    alpha: Number<'f>,
    beta: Number<'f>,
    arithmetic: Arithmetic,
}

impl<'f> Factors<'f> {
    /// Finds the kernel parameters.
    pub(super) fn of_kernel(f: &'f Builder, d: Format) -> Self {
        let arithmetic = Arithmetic::of(d);
        let [alpha, beta] = NAMES.map(|name| match arithmetic {
            Arithmetic::F32 => Number::F32(f.parameter(name)),
            Arithmetic::S32 => Number::S32(f.parameter(name)),
            Arithmetic::F64 => Number::F64(f.parameter(name)),
        });
        Self { alpha, beta, arithmetic }
    }

    /// Integer accumulators in the registers in which everything is computed.
    pub(super) fn registers(self, f: &'f Builder, sums: Fragment<'f, i32>) -> Fragment<'f, f32> {
        if self.arithmetic == Arithmetic::S32 { sums.bits(f) } else { sums.to_f32(f) }
    }

    /// Alpha and beta in double precision, in which they are if D is `f64`.
    pub(super) fn doubles(self) -> [Value<'f, f64>; 2] {
        [self.alpha, self.beta].map(Number::double)
    }

    /// Whether C is read.
    pub(super) fn reads_c(self) -> Value<'f, bool> {
        self.beta.is_not_zero()
    }

    /// Whether C is not read.
    pub(super) fn leaves_c(self) -> Value<'f, bool> {
        self.beta.is_zero()
    }

    /// `alpha * sum`.
    pub(super) fn scaled(self, sum: Value<'f, f32>) -> Value<'f, f32> {
        (f32::number(sum, self.arithmetic) * self.alpha).register()
    }

    /// `beta * c + scaled`.
    pub(super) fn with(self, c: Value<'f, f32>, scaled: Value<'f, f32>) -> Value<'f, f32> {
        let [c, scaled] = [c, scaled].map(|value| f32::number(value, self.arithmetic));
        c.mul_add(self.beta, scaled).register()
    }
}

/// States the kernel parameters.
pub(super) fn state(d: Format, factors: [f64; 2], visit: &mut dyn Visit) {
    let arithmetic = Arithmetic::of(d);
    for (name, factor) in NAMES.into_iter().zip(factors) {
        let kind = Kind::Number(arithmetic.parameter());
        visit.parameter(Parameter { name, kind, value: Some(arithmetic.argument(factor)) });
    }
}

/// Refuses factors that D's arithmetic does not [take](Arithmetic::takes).
pub(super) fn check(d: Format, factors: [f64; 2], site: &mut Site<'_>) {
    let mut site = site.computing_in(Arithmetic::of(d));
    for (name, factor) in NAMES.into_iter().zip(factors) {
        site.then(name).check_factor(factor);
    }
}
