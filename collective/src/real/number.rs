//! Device values whose type is known when a kernel is built, and what a tree computes in.

use core::ops::{Add, Div, Mul, Neg, Sub};

use ptx::abi::Argument;
use ptx::{Builder, Type, Value, Var};

use super::{Elementary, Level, Needs, Real};
use crate::element::{Format, Narrow, Packed};

/// What a tree computes in. D's format determines it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Single precision: for every D but those of the others.
    #[default]
    F32,
    /// Integers modulo 2^32: for a D of `s32`, of integer accumulators.
    S32,
    /// Double precision: for a D of `f64`.
    F64,
}

impl Arithmetic {
    /// What a tree computes in if D has this format.
    pub const fn of(d: Format) -> Self {
        if matches!(d, Format::S32) {
            Self::S32
        } else if matches!(d, Format::F64) {
            Self::F64
        } else {
            Self::F32
        }
    }

    /// The bit of a set.
    pub(crate) const fn bit(self) -> u8 {
        1 << self as u8
    }

    /// Those in which elements of this format are read without a loss; in `f32` they are rounded.
    pub(crate) const fn reading(format: Format) -> u8 {
        let others = if format.is_float() { Self::F64.bit() } else { Self::F64.bit() | Self::S32.bit() };
        Self::F32.bit() | others
    }

    /// Those from which elements of this format are rounded once.
    pub(crate) const fn writing(format: Format) -> u8 {
        if matches!(format, Format::F64) {
            Self::F64.bit()
        } else if matches!(format, Format::F32) {
            Self::F32.bit() | Self::F64.bit()
        } else if format.is_float() {
            Self::F32.bit()
        } else {
            Self::F32.bit() | Self::S32.bit()
        }
    }

    /// Whether it has what a function needs.
    ///
    /// # Errors
    /// A sentence, if it has not.
    pub const fn has(self, needs: Needs) -> Result<(), &'static str> {
        match self {
            Self::S32 if needs.fractions => Err(
                "D is s32, computed in integers: functions with fractions or quotients need a D of another format",
            ),
            Self::S32 | Self::F64 if needs.elementary => {
                Err("exponentials, roots and their like are computed in f32 alone: not for a D of s32 or f64")
            }
            Self::F32 | Self::S32 | Self::F64 => Ok(()),
        }
    }

    /// Whether it can hold a number of the host. Where that is `f32`, the number is [rounded](Self::held).
    ///
    /// # Errors
    /// A sentence, if it can not.
    pub fn takes(self, number: f64) -> Result<(), &'static str> {
        match self {
            Self::S32 if number.fract() != 0.0 || number.abs() >= 2f64.powi(31) => Err(
                "D is s32, computed in integers: a whole number below 2^31 was needed, or D in a float format",
            ),
            Self::F32 if number.is_finite() && (number as f32).is_infinite() => Err(
                "it is taken in f32, which holds 3.4028235e38 at most: a smaller one was needed, or a D of f64",
            ),
            Self::F32 if number != 0.0 && number as f32 == 0.0 => Err(
                "it is taken in f32, which holds 1e-45 at least: 0 or a larger one was needed, or a D of f64",
            ),
            Self::F32 | Self::S32 | Self::F64 => Ok(()),
        }
    }

    /// What it holds of a number of the host that it [takes](Self::takes).
    pub fn held(self, number: f64) -> f64 {
        if self == Self::F32 { f64::from(number as f32) } else { number }
    }

    /// The type of a kernel's parameter with which it computes.
    pub(crate) const fn parameter(self) -> Type {
        match self {
            Self::F32 => Type::F32,
            Self::S32 => Type::S32,
            Self::F64 => Type::F64,
        }
    }

    /// A number of the host that it [takes](Self::takes), as the value of a kernel's parameter.
    pub(crate) fn argument(self, number: f64) -> Argument {
        match self {
            Self::F32 => (number as f32).into(),
            Self::S32 => (number as i32).into(),
            Self::F64 => number.into(),
        }
    }

    /// A constant.
    pub fn constant(self, f: &Builder, value: f64) -> Number<'_> {
        match self {
            Self::F32 => Number::F32(f.constant(value as f32)),
            Self::S32 => Number::S32(f.constant(value as i32)),
            Self::F64 => Number::F64(f.constant(value)),
        }
    }

    /// A variable that is zero.
    pub(crate) fn variable(self, f: &Builder) -> NumberVar<'_> {
        match self {
            Self::F32 => NumberVar::F32(f.variable(0.0)),
            Self::S32 => NumberVar::S32(f.variable(0)),
            Self::F64 => NumberVar::F64(f.variable(0.0)),
        }
    }

    /// An element that was loaded.
    #[track_caller]
    pub fn widen(self, format: Format, element: Narrow<'_>) -> Number<'_> {
        match (self, element) {
            (Self::F64, Narrow::F64(value)) => Number::F64(value),
            (Self::F64, Narrow::S32(value)) => Number::F64(value.cast()),
            (Self::F64, _) => Number::F64(format.widen(element).cast()),
            // What is read in integers has integer elements: `reading`.
            (Self::S32, _) => {
                let whole = format.widen_whole(element).map(Number::S32);
                whole.unwrap_or_else(|| Number::F32(format.widen(element)))
            }
            (Self::F32, _) => Number::F32(format.widen(element)),
        }
    }
}

/// A device value of one of the types that trees compute in.
#[derive(Clone, Copy, Debug)]
pub enum Number<'f> {
    /// Of [`Arithmetic::F32`].
    F32(Value<'f, f32>),
    /// Of [`Arithmetic::S32`].
    S32(Value<'f, i32>),
    /// Of [`Arithmetic::F64`].
    F64(Value<'f, f64>),
}

/// A variable of one of these types.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NumberVar<'f> {
    F32(Var<'f, f32>),
    S32(Var<'f, i32>),
    F64(Var<'f, f64>),
}

impl<'f> NumberVar<'f> {
    #[track_caller]
    pub(crate) fn get(self) -> Number<'f> {
        match self {
            Self::F32(variable) => Number::F32(variable.get()),
            Self::S32(variable) => Number::S32(variable.get()),
            Self::F64(variable) => Number::F64(variable.get()),
        }
    }

    #[track_caller]
    pub(crate) fn set(self, value: Number<'f>) {
        match (self, value) {
            (Self::F32(variable), Number::F32(value)) => variable.set(value),
            (Self::S32(variable), Number::S32(value)) => variable.set(value),
            (Self::F64(variable), Number::F64(value)) => variable.set(value),
            _ => value.builder().refuse(MIXED),
        }
    }
}

const MIXED: &str = "a tree computes in one of f32, s32 and f64, and a value of another meets it";

impl<'f> From<Value<'f, f32>> for Number<'f> {
    fn from(value: Value<'f, f32>) -> Self {
        Self::F32(value)
    }
}

impl<'f> Number<'f> {
    /// The builder that the value belongs to.
    pub fn builder(self) -> &'f Builder {
        match self {
            Self::F32(value) => value.builder(),
            Self::S32(value) => value.builder(),
            Self::F64(value) => value.builder(),
        }
    }

    /// The value in `f32`, for nodes that compute in nothing else. It makes a program that computes in something else
    /// illegal.
    #[track_caller]
    pub fn single(self) -> Value<'f, f32> {
        match self {
            Self::F32(value) => value,
            Self::S32(_) | Self::F64(_) => {
                self.builder().refuse("a node computes in f32 alone, and D is of s32 or f64");
                self.builder().constant(0.0)
            }
        }
    }

    /// The value in `f64`, of what is computed in that. It makes any other program illegal.
    #[track_caller]
    pub(crate) fn double(self) -> Value<'f, f64> {
        match self {
            Self::F64(value) => value,
            Self::F32(_) | Self::S32(_) => {
                self.builder().refuse("f64 accumulators are stored by an epilogue whose D is f64");
                self.builder().constant(0.0)
            }
        }
    }

    /// The 32-bit register that stores move: integers are held as the bits of an `f32`.
    #[track_caller]
    pub(crate) fn register(self) -> Value<'f, f32> {
        match self {
            Self::S32(value) => value.bits_as(),
            Self::F32(_) | Self::F64(_) => self.single(),
        }
    }

    /// Whether it is not zero.
    #[track_caller]
    pub(crate) fn is_not_zero(self) -> Value<'f, bool> {
        match self {
            Self::F32(value) => value.differs_from(0.0),
            Self::S32(value) => value.differs_from(0),
            Self::F64(value) => value.differs_from(0.0),
        }
    }

    /// Whether it is zero.
    #[track_caller]
    pub(crate) fn is_zero(self) -> Value<'f, bool> {
        match self {
            Self::F32(value) => value.equals(0.0),
            Self::S32(value) => value.equals(0),
            Self::F64(value) => value.equals(0.0),
        }
    }

    /// Two neighbours in a format of memory, the first in the low half. Integers are saturated.
    #[track_caller]
    pub(crate) fn pack(format: Format, f: &'f Builder, pair: [Self; 2]) -> Packed<'f> {
        match (pair, format) {
            ([Self::S32(low), Self::S32(high)], _) => format.pack_whole(f, [low, high]),
            ([Self::F64(low), Self::F64(high)], Format::F64) => Packed::Doubles([low, high]),
            ([Self::F64(low), Self::F64(high)], _) => format.pack(f, [low, high].map(Value::cast)),
            _ => format.pack(f, pair.map(Self::single)),
        }
    }
}

/// The same operation of values of one type.
macro_rules! alike {
    (|$a:ident| $result:expr) => {
        match $a {
            Number::F32($a) => Number::F32($result),
            Number::S32($a) => Number::S32($result),
            Number::F64($a) => Number::F64($result),
        }
    };
    (|$a:ident, $($b:ident),+| $result:expr) => {
        match ($a, $($b),+) {
            (Number::F32($a), $(Number::F32($b)),+) => Number::F32($result),
            (Number::S32($a), $(Number::S32($b)),+) => Number::S32($result),
            (Number::F64($a), $(Number::F64($b)),+) => Number::F64($result),
            (first, ..) => {
                first.builder().refuse(MIXED);
                first
            }
        }
    };
}

macro_rules! operators {
    ($($trait:ident $method:ident;)*) => {$(
        impl $trait for Number<'_> {
            type Output = Self;
            #[track_caller]
            fn $method(self, other: Self) -> Self {
                let a = self;
                alike!(|a, other| $trait::$method(a, other))
            }
        }
    )*};
}

operators! {
    Add add;
    Sub sub;
    Mul mul;
    Div div;
}

impl Neg for Number<'_> {
    type Output = Self;
    #[track_caller]
    fn neg(self) -> Self {
        let a = self;
        alike!(|a| -a)
    }
}

/// Methods of numbers that the three types have.
macro_rules! each {
    ($($name:ident($($x:ident),*);)*) => {$(
        #[track_caller]
        fn $name(self $(, $x: Self)*) -> Self {
            let a = self;
            alike!(|a $(, $x)*| Real::$name(a $(, $x)*))
        }
    )*};
}

impl Real for Number<'_> {
    #[track_caller]
    fn constant(self, value: f64) -> Self {
        let a = self;
        alike!(|a| Real::constant(a, value))
    }

    each! {
        abs();
        mul_add(factor, addend);
        copysign(sign);
        min(other);
        max(other);
        min_nan(other);
        max_nan(other);
        less(limit, yes, no);
    }

    #[track_caller]
    fn elementary(self, function: Elementary, level: Level) -> Self {
        let a = self;
        alike!(|a| Real::elementary(a, function, level))
    }
}
