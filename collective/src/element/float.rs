//! Floating-point formats by their parameters: decoding, and rounding to nearest in one step.

/// How infinity and NaN are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Specials {
    /// The highest exponent encodes infinity, and NaN if the mantissa is not zero.
    Ieee,
    /// As IEEE, but rounding saturates to the largest number.
    Saturating,
    /// NaN has all bits except the sign set; the other codes of the highest exponent are numbers. Rounding
    /// saturates.
    OneNan,
}

/// A format with a sign, an exponent and a mantissa.
#[derive(Clone, Copy, Debug)]
pub(super) struct Float {
    exponent: u32,
    mantissa: u32,
    specials: Specials,
}

/// `2^power`, for the exponents of normal numbers.
const fn two_to(power: i32) -> f64 {
    f64::from_bits(((1023 + power) as u64) << 52)
}

impl Float {
    pub(super) const F32: Self = Self { exponent: 8, mantissa: 23, specials: Specials::Ieee };
    pub(super) const BF16: Self = Self { exponent: 8, mantissa: 7, specials: Specials::Ieee };
    pub(super) const F16: Self = Self { exponent: 5, mantissa: 10, specials: Specials::Ieee };
    pub(super) const E5M2: Self = Self { exponent: 5, mantissa: 2, specials: Specials::Saturating };
    pub(super) const E4M3: Self = Self { exponent: 4, mantissa: 3, specials: Specials::OneNan };

    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// Exponent of the last place of subnormal numbers.
    const fn last_place(self) -> i32 {
        1 - self.bias() - self.mantissa as i32
    }

    pub(super) const fn unit_roundoff(self) -> f64 {
        two_to(-(self.mantissa as i32) - 1)
    }

    pub(super) const fn saturates(self) -> bool {
        !matches!(self.specials, Specials::Ieee)
    }

    pub(super) const fn tiniest(self) -> f64 {
        two_to(self.last_place())
    }

    /// The bits of the largest finite value.
    const fn largest_bits(self) -> u64 {
        match self.specials {
            Specials::Ieee | Specials::Saturating => (((1 << self.exponent) - 1) << self.mantissa) - 1,
            Specials::OneNan => (1 << (self.exponent + self.mantissa)) - 2,
        }
    }

    pub(super) const fn largest(self) -> f64 {
        self.magnitude(self.largest_bits())
    }

    /// The value of bits without a sign, ignoring infinity and NaN.
    const fn magnitude(self, bits: u64) -> f64 {
        let (exponent, mantissa) = ((bits >> self.mantissa) as i32, bits & ((1 << self.mantissa) - 1));
        if exponent == 0 {
            return mantissa as f64 * self.tiniest();
        }
        (mantissa | 1 << self.mantissa) as f64 * two_to(exponent - 1 + self.last_place())
    }

    pub(super) const fn decode(self, bits: u64) -> f64 {
        let width = self.exponent + self.mantissa;
        let (negative, rest) = (bits >> width & 1 == 1, bits & ((1 << width) - 1));
        let value = match self.specials {
            _ if rest <= self.largest_bits() => self.magnitude(rest),
            Specials::Ieee | Specials::Saturating if rest == self.largest_bits() + 1 => f64::INFINITY,
            Specials::Ieee | Specials::Saturating | Specials::OneNan => f64::NAN,
        };
        if negative { -value } else { value }
    }

    pub(super) fn encode(self, value: f64) -> u64 {
        let width = self.exponent + self.mantissa;
        if value.is_nan() {
            return (1 << width) - 1;
        }
        let sign = u64::from(value.is_sign_negative()) << width;
        let magnitude = value.abs();
        // Exponent of the value's last place in this format, at least that of subnormal numbers.
        let exponent = (magnitude.to_bits() >> 52) as i32 - 1023 - self.mantissa as i32;
        let places = exponent.max(self.last_place());
        // Beyond the format's largest exponent there is nothing to round.
        let most = self.largest_bits() + 1;
        let rounded = if places > self.last_place() + (1 << self.exponent) {
            most
        } else {
            // Whole places are exact in f64. A carry moves into the exponent by itself.
            let whole = (magnitude / two_to(places)).round_ties_even() as u64;
            whole + (((places - self.last_place()) as u64) << self.mantissa)
        };
        let limit = if self.specials == Specials::Ieee { most } else { most - 1 };
        sign | rounded.min(limit)
    }
}

#[cfg(test)]
mod tests {
    use float8::{F8E4M3, F8E5M2};
    use half::{bf16, f16};

    use super::Float;

    type Oracle = fn(u64) -> f32;

    /// Every 8-bit and 16-bit pattern has the value that the crates of these formats give it, and is its own
    /// nearest.
    #[test]
    fn every_number_is_decoded_and_encoded() {
        let formats: [(&str, Float, u64, Oracle); 4] = [
            ("bf16", Float::BF16, 1 << 16, |bits| bf16::from_bits(bits as u16).to_f32()),
            ("f16", Float::F16, 1 << 16, |bits| f16::from_bits(bits as u16).to_f32()),
            ("e4m3", Float::E4M3, 1 << 8, |bits| F8E4M3::from_bits(bits as u8).to_f32()),
            ("e5m2", Float::E5M2, 1 << 8, |bits| F8E5M2::from_bits(bits as u8).to_f32()),
        ];
        for (name, format, count, value) in formats {
            for bits in 0..count {
                let (got, want) = (format.decode(bits), f64::from(value(bits)));
                assert!(
                    got == want || (got.is_nan() && want.is_nan()),
                    "{name} {bits:#x}: {got}, not {want}"
                );
                if got.is_finite() {
                    assert_eq!(format.encode(got), bits, "{name} {got}");
                }
            }
        }
    }

    /// A value between two neighbours rounds to the nearer one, and to the even one on a tie.
    #[test]
    fn values_between_two_numbers_go_to_the_nearer() {
        for (name, format, largest) in [
            ("bf16", Float::BF16, 0x7F7F_u64),
            ("f16", Float::F16, 0x7BFF),
            ("e4m3", Float::E4M3, 0x7E),
            ("e5m2", Float::E5M2, 0x7B),
        ] {
            assert_eq!(format.largest(), format.decode(largest), "{name}");
            for low in 0..largest {
                let tie = f64::midpoint(format.decode(low), format.decode(low + 1));
                for (value, want) in [(tie.next_down(), low), (tie, low + low % 2), (tie.next_up(), low + 1)]
                {
                    assert_eq!(format.encode(value), want, "{name} {value:e}");
                    let sign = format.encode(-0.0);
                    assert_eq!(format.encode(-value), want | sign, "{name} -{value:e}");
                }
            }
        }
    }

    #[test]
    fn what_is_too_large_is_infinite_or_the_largest() {
        for (name, format, infinite, nan) in [
            ("f32", Float::F32, 0x7F80_0000, 0x7FFF_FFFF),
            ("bf16", Float::BF16, 0x7F80, 0x7FFF),
            ("f16", Float::F16, 0x7C00, 0x7FFF),
            ("e4m3", Float::E4M3, 0x7E, 0x7F),
            ("e5m2", Float::E5M2, 0x7B, 0x7F),
        ] {
            for value in [f64::INFINITY, f64::MAX, 1e39] {
                assert_eq!(format.encode(value), infinite, "{name} {value:e}");
            }
            assert_eq!(format.encode(f64::NAN), nan, "{name}");
            assert!(format.decode(nan).is_nan(), "{name}");
            assert_eq!(format.encode(f64::MIN_POSITIVE), 0, "{name}");
        }
    }

    /// Single precision agrees with the host's.
    #[test]
    fn single_precision_rounds_as_the_host_does() {
        let mut bits = 0x1234_5678_9ABC_DEF1_u64;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Exponents in and around the range of single precision.
            let exponent = 1023 - 160 + (bits >> 52) % 300;
            let value = f64::from_bits(bits << 12 >> 12 | exponent << 52);
            assert_eq!(Float::F32.encode(value), u64::from((value as f32).to_bits()), "{value:e}");
            assert_eq!(
                Float::F32.decode((value as f32).to_bits().into()),
                f64::from(value as f32),
                "{value:e}"
            );
        }
    }
}
