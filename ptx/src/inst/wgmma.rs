//! The legal forms of `wgmma.mma_async`: one table instead of one item per shape.
//!
//! Source: PTX ISA "Asynchronous warpgroup-level matrix multiply-accumulate", shapes and types.

use super::{Operand, Reg};

/// Element types of a dense `wgmma`: A and B, then D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WgmmaTypes {
    /// `.f32.bf16.bf16`, K = 16.
    Bf16F32,
    /// `.f32.f16.f16`, K = 16.
    F16F32,
    /// `.f16.f16.f16`, K = 16.
    F16F16,
}

impl WgmmaTypes {
    /// K of one instruction: as many elements as fill 32 bytes.
    pub const fn k(self) -> u32 {
        256 / self.element_bits()
    }

    /// Width of an element of A and B.
    pub const fn element_bits(self) -> u32 {
        match self {
            Self::Bf16F32 | Self::F16F32 | Self::F16F16 => 16,
        }
    }

    /// 32-bit accumulator registers of a thread for a given N.
    pub const fn accumulators(self, n: u32) -> u32 {
        match self {
            Self::Bf16F32 | Self::F16F32 => n / 2,
            Self::F16F16 => n / 4,
        }
    }

    /// Whether the instruction exists for this N.
    pub const fn allows(self, n: u32) -> bool {
        match self {
            Self::Bf16F32 | Self::F16F32 | Self::F16F16 => n >= 8 && n <= 256 && n.is_multiple_of(8),
        }
    }

    /// Whether shared operands may be MN-major.
    pub const fn allows_transpose(self) -> bool {
        self.element_bits() == 16
    }

    /// D's type suffix, then A's and B's.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Bf16F32 => "f32.bf16.bf16",
            Self::F16F32 => "f32.f16.f16",
            Self::F16F16 => "f16.f16.f16",
        }
    }
}

/// Where A comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WgmmaA {
    /// Shared memory through a `.u64` matrix descriptor.
    Shared(Operand),
    /// This thread's fragment: four 32-bit registers.
    Registers([Reg; 4]),
}
