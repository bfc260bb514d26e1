//! Integer formats by their parameters.

/// An integer format.
#[derive(Clone, Copy, Debug)]
pub(super) struct Integer {
    bits: u32,
    signed: bool,
}

impl Integer {
    pub(super) const S8: Self = Self { bits: 8, signed: true };
    pub(super) const U8: Self = Self { bits: 8, signed: false };
    pub(super) const S32: Self = Self { bits: 32, signed: true };

    pub(super) const fn largest(self) -> f64 {
        let values = 1u64 << self.bits;
        (if self.signed { values / 2 - 1 } else { values - 1 }) as f64
    }

    const fn least(self) -> f64 {
        if self.signed { -((1u64 << (self.bits - 1)) as f64) } else { 0.0 }
    }

    pub(super) const fn decode(self, bits: u64) -> f64 {
        let above = 64 - self.bits;
        if self.signed {
            (bits << above).cast_signed().wrapping_shr(above) as f64
        } else {
            (bits << above).wrapping_shr(above) as f64
        }
    }

    /// Rounds to nearest even and saturates. NaN becomes 0, as in `cvt`.
    pub(super) fn encode(self, value: f64) -> u64 {
        let near = value.round_ties_even().clamp(self.least(), self.largest()) as i64;
        near.cast_unsigned() & ((1 << self.bits) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::Integer;

    #[test]
    fn numbers_are_decoded_and_encoded() {
        for (name, format, bits, value) in [
            ("s8", Integer::S8, 0x7F, 127.0),
            ("s8", Integer::S8, 0x80, -128.0),
            ("s8", Integer::S8, 0xFF, -1.0),
            ("u8", Integer::U8, 0xFF, 255.0),
            ("s32", Integer::S32, 0x8000_0000, -2_147_483_648.0),
            ("s32", Integer::S32, 0x7FFF_FFFF, 2_147_483_647.0),
        ] {
            assert_eq!(format.decode(bits), value, "{name} {bits:#x}");
            assert_eq!(format.encode(value), bits, "{name} {value}");
        }
    }

    #[test]
    fn what_is_between_or_beyond_goes_to_the_nearest() {
        for (value, s8, u8) in [
            (2.5, 2, 2),
            (3.5, 4, 4),
            (-0.5, 0, 0),
            (-1.5, 0xFE, 0),
            (1e9, 0x7F, 0xFF),
            (f64::NEG_INFINITY, 0x80, 0),
            (f64::NAN, 0, 0),
        ] {
            assert_eq!([Integer::S8.encode(value), Integer::U8.encode(value)], [s8, u8], "{value}");
        }
    }
}
