//! The number formats of matrices.

/// A number format of the matrices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Bf16,
    F16,
    F32,
    F64,
    S8,
    S32,
    E4m3,
}

impl Number {
    pub(crate) fn size(self) -> usize {
        match self {
            Self::S8 | Self::E4m3 => 1,
            Self::Bf16 | Self::F16 => 2,
            Self::F32 | Self::S32 => 4,
            Self::F64 => 8,
        }
    }

    /// The bytes of a number that the format has.
    pub(crate) fn encode(self, value: f64) -> Vec<u8> {
        let single = value as f32;
        match self {
            Self::S8 => vec![value as i8 as u8],
            Self::S32 => (value as i32).to_le_bytes().into(),
            Self::E4m3 => {
                vec![[0, 0x38][usize::from(value != 0.0)] | if value < 0.0 { 0x80 } else { 0 }]
            }
            Self::Bf16 => single.to_le_bytes()[2..].into(),
            Self::F16 => {
                let (bits, exponent) = (single.to_bits(), (single.to_bits() >> 23 & 0xff) as u16);
                let half =
                    if value == 0.0 { 0 } else { (exponent - 112) << 10 | (bits >> 13 & 0x3ff) as u16 };
                (half | (bits >> 16 & 0x8000) as u16).to_le_bytes().into()
            }
            Self::F32 => single.to_le_bytes().into(),
            Self::F64 => value.to_le_bytes().into(),
        }
    }
}
