//! Alpha and beta, and the arithmetic of `alpha * acc + beta * C`.

use ptx::abi::Argument;
use ptx::{Builder, Value};

use super::linear::LinearArguments;
use super::store::StoreSpec;
use crate::element::Format;
use crate::mainloop::Fragment;
use crate::tree::Site;

/// Alpha and beta on the device.
#[derive(Clone, Copy, Debug)]
pub(super) enum Factors<'f> {
    /// In `f32`, in which everything is computed.
    Single([Value<'f, f32>; 2]),
    /// Integers, if D is `s32`: everything is computed modulo 2^32. The bits of accumulators and of C are
    /// held in registers of `f32`, which stores move unchanged.
    Whole([Value<'f, i32>; 2]),
}

/// Whether D of this format is computed in integers.
const fn whole(format: Format) -> bool {
    matches!(format, Format::S32)
}

impl StoreSpec {
    /// The same store with the format of the registers it moves: 32-bit integers are moved as `f32`.
    pub(super) const fn moved(self) -> Self {
        Self { format: if whole(self.format) { Format::F32 } else { self.format }, ..self }
    }
}

impl<'f> Factors<'f> {
    /// Declares the kernel parameters.
    pub(super) fn declare(f: &'f Builder, d: Format) -> Self {
        let names = ["alpha", "beta"];
        if whole(d) {
            Self::Whole(names.map(|name| f.param(name)))
        } else {
            Self::Single(names.map(|name| f.param(name)))
        }
    }

    /// Integer accumulators in the registers in which everything is computed.
    pub(super) fn registers(self, f: &'f Builder, sums: Fragment<'f, i32>) -> Fragment<'f, f32> {
        match self {
            Self::Single(_) => sums.to_f32(f),
            Self::Whole(_) => sums.bits(f),
        }
    }

    /// Alpha and beta in double precision.
    pub(super) fn doubles(self) -> [Value<'f, f64>; 2] {
        match self {
            Self::Single(factors) => factors.map(Value::cast),
            Self::Whole(factors) => factors.map(Value::cast),
        }
    }

    /// Whether C is read.
    pub(super) fn reads_c(self) -> Value<'f, bool> {
        match self {
            Self::Single([_, beta]) => beta.differs_from(0.0),
            Self::Whole([_, beta]) => beta.differs_from(0),
        }
    }

    /// Whether C is not read.
    pub(super) fn leaves_c(self) -> Value<'f, bool> {
        match self {
            Self::Single([_, beta]) => beta.equals(0.0),
            Self::Whole([_, beta]) => beta.equals(0),
        }
    }

    /// `alpha * sum`.
    pub(super) fn scaled(self, sum: Value<'f, f32>) -> Value<'f, f32> {
        match self {
            Self::Single([alpha, _]) => sum * alpha,
            Self::Whole([alpha, _]) => (sum.bits_as::<i32>() * alpha).bits_as(),
        }
    }

    /// `beta * c + scaled`.
    pub(super) fn with(self, c: Value<'f, f32>, scaled: Value<'f, f32>) -> Value<'f, f32> {
        match self {
            Self::Single([_, beta]) => c.mul_add(beta, scaled),
            Self::Whole([_, beta]) => c.bits_as::<i32>().mul_add(beta, scaled.bits_as::<i32>()).bits_as(),
        }
    }
}

/// The values of the kernel parameters.
pub(super) fn parameters(d: Format, LinearArguments { alpha, beta, .. }: LinearArguments) -> Vec<Argument> {
    // The check has made sure that these are integers.
    if whole(d) { vec![(alpha as i32).into(), (beta as i32).into()] } else { vec![alpha.into(), beta.into()] }
}

/// Refuses factors that D's arithmetic cannot represent: for D in `s32`, what is not an integer below 2^31 in magnitude.
pub(super) fn check(d: Format, LinearArguments { alpha, beta, .. }: LinearArguments, site: &mut Site<'_>) {
    for (name, factor) in [("alpha", alpha), ("beta", beta)] {
        if whole(d) && (factor.fract() != 0.0 || factor.abs() >= 2f32.powi(31)) {
            site.then(name).refuse(format!(
                "it is {factor}, and D is s32, computed in integers: a whole number below 2^31 was needed, or D in a float format"
            ));
        }
    }
}
