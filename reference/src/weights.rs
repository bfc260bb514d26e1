//! Low-bit weights on the host: codes with scales and zero points, and the matrix that they represent.
//!
//! ```
//! use reference::weights::WeightFormat;
//!
//! assert_eq!(WeightFormat::named("s4").map(|code| code.decode(0xf)), Some(-1.0));
//! ```

use float8::{F8E4M3, F8E5M2};

use crate::{Format, HostMatrix, Order};

/// The format of a weight in 4 or 8 bits, which represents a 16-bit element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WeightFormat {
    /// Signed 4-bit integer.
    S4,
    /// Unsigned 4-bit integer.
    U4,
    /// Signed 8-bit integer.
    S8,
    /// Unsigned 8-bit integer.
    U8,
    /// 8-bit float with 4 bits of exponent.
    E4m3,
    /// 8-bit float with 5 bits of exponent.
    E5m2,
    /// 4-bit float with 2 bits of exponent (MXFP4); its scales are powers of two.
    E2m1,
}

impl WeightFormat {
    /// All formats.
    pub const ALL: [Self; 7] = [Self::S4, Self::U4, Self::S8, Self::U8, Self::E4m3, Self::E5m2, Self::E2m1];

    /// The name of the format, for example `s4`.
    pub fn name(self) -> &'static str {
        match self {
            Self::S4 => "s4",
            Self::U4 => "u4",
            Self::S8 => "s8",
            Self::U8 => "u8",
            Self::E4m3 => "e4m3",
            Self::E5m2 => "e5m2",
            Self::E2m1 => "e2m1",
        }
    }

    /// The format with a [`name`](Self::name), or `None`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.name() == name)
    }

    /// Whether it is a format of integers.
    pub fn is_integer(self) -> bool {
        matches!(self, Self::S4 | Self::U4 | Self::S8 | Self::U8)
    }

    /// The number of codes: 16 or 256.
    fn count(self) -> u16 {
        if matches!(self, Self::S4 | Self::U4 | Self::E2m1) { 16 } else { 256 }
    }

    /// The value of a code.
    pub fn decode(self, code: u8) -> f64 {
        match self {
            Self::S4 if code > 7 => f64::from(code) - 16.0,
            Self::S4 | Self::U4 | Self::U8 => f64::from(code),
            Self::S8 => Format::S8.decode(code.into()),
            Self::E4m3 => F8E4M3::from_bits(code).to_f64(),
            Self::E5m2 => F8E5M2::from_bits(code).to_f64(),
            Self::E2m1 => {
                let (exponent, odd) = (i32::from(code >> 1 & 3), f64::from(code & 1));
                let size =
                    if exponent == 0 { odd / 2.0 } else { (1.0 + odd / 2.0) * f64::powi(2.0, exponent - 1) };
                if code > 7 { -size } else { size }
            }
        }
    }
}

/// An operand of low-bit weights, `(rows, K)`: rows of A, or columns of B.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights {
    /// The format of `codes`.
    pub code: WeightFormat,
    /// The number of rows, and K.
    pub extents: [u32; 2],
    /// The codes, one per byte, row by row.
    pub codes: Vec<u8>,
    /// The number of consecutive K that share a scale; 0 without scales.
    pub group: u32,
    /// The scales, `(groups along K, rows)`, if there are any. In the format of the elements; for
    /// [`WeightFormat::E2m1`] a byte `e` that means `2^(e - 127)`.
    pub scales: Option<HostMatrix>,
    /// The zero points, `(groups along K, rows)`, in the format of the elements, if there are any.
    pub zeros: Option<HostMatrix>,
}

impl Weights {
    /// Random weights that represent elements of `format`, with scales per `group` of K (0 for none) and with
    /// or without zero points.
    pub fn random(
        code: WeightFormat,
        extents: [u32; 2],
        (group, zeros): (u32, bool),
        format: Format,
        random: &mut fastrand::Rng,
    ) -> Self {
        let [rows, k] = extents;
        let codes = (0..u64::from(rows) * u64::from(k)).map(|_| {
            loop {
                let drawn = random.u16(..code.count()) as u8;
                if code.decode(drawn).is_finite() {
                    break drawn;
                }
            }
        });
        let codes = codes.collect();
        let lines = if group == 0 { 0 } else { k.div_ceil(group) };
        let ld = rows.next_multiple_of(16).max(16);
        let powers = code == WeightFormat::E2m1;
        let of_scales = if powers { Format::U8 } else { format };
        let mut scale = || {
            if powers { f64::from(random.u32(121..129)) } else { (random.f64() * 4.0 - 6.0).exp2() }
        };
        let scales = (group > 0)
            .then(|| HostMatrix::from_fn(of_scales, [lines, rows], Order::RowMajor, ld, |_, _| scale()));
        let most = code.count() / 2;
        let zero = |_, _| f64::from(random.u16(..most));
        let zeros = zeros.then(|| HostMatrix::from_fn(format, [lines, rows], Order::RowMajor, ld, zero));
        Self { code, extents, codes, group, scales, zeros }
    }

    /// The element at a row and a position along K: `s * (q - z)`, with the difference and the product each
    /// rounded to `format`.
    pub fn get(&self, format: Format, row: u32, k: u32) -> f64 {
        let at = u64::from(row) * u64::from(self.extents[1]) + u64::from(k);
        let number = self.code.decode(self.codes[at as usize]);
        let rounded = |value: f64| format.decode(format.round(value));
        let of_group = |matrix: &HostMatrix| matrix.get(k / self.group, row);
        let number = self.zeros.as_ref().map_or(number, |zeros| rounded(number - of_group(zeros)));
        self.scales.as_ref().map_or(number, |scales| {
            let scale = of_group(scales);
            rounded(number * if self.code == WeightFormat::E2m1 { power(scale) } else { scale })
        })
    }

    /// The matrix that the weights represent, in elements of `format`: A `(rows, K)`, row-major, or with
    /// `is_b` B `(K, rows)`, column-major.
    pub fn matrix(&self, format: Format, is_b: bool) -> HostMatrix {
        let [rows, k] = self.extents;
        if is_b {
            HostMatrix::from_fn(format, [k, rows], Order::ColumnMajor, k, |k, row| self.get(format, row, k))
        } else {
            HostMatrix::from_fn(format, [rows, k], Order::RowMajor, k, |row, k| self.get(format, row, k))
        }
    }
}

/// The scale that a byte represents: `2^(byte - 127)`, NaN for 255.
fn power(byte: f64) -> f64 {
    if byte == 255.0 { f64::NAN } else { (byte - 127.0).exp2() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_scaled_differences() {
        let of = |values: [f64; 2], format| {
            HostMatrix::from_fn(format, [2, 1], Order::RowMajor, 16, |group, _| values[group as usize])
        };
        let weights = Weights {
            code: WeightFormat::U4,
            extents: [1, 64],
            codes: (0..64).map(|i| i % 16).collect(),
            group: 32,
            scales: Some(of([0.5, 3.0], Format::Bf16)),
            zeros: Some(of([8.0, 2.0], Format::Bf16)),
        };
        let b = weights.matrix(Format::Bf16, true);
        assert_eq!([0, 15, 32, 47].map(|k| b.get(k, 0)), [-4.0, 3.5, -6.0, 39.0]);
        let powers = Weights {
            code: WeightFormat::E2m1,
            scales: Some(of([126.0, 130.0], Format::U8)),
            zeros: None,
            ..weights
        };
        assert_eq!([1, 15, 34, 45].map(|k| powers.get(Format::Bf16, 0, k)), [0.25, -3.0, 8.0, -24.0]);
    }
}
