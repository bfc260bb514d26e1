//! The numbers that layers hold.

use falchion::collective::{F8E4M3, Format};
use half::{bf16, f16};

use sealed::Sealed;

mod sealed {
    /// A number as bytes. Formats are the library's, so only the library implements it.
    pub trait Sealed: Sized {
        /// Appends the number's bytes.
        fn append(self, to: &mut Vec<u8>);

        /// The number of as many bytes as it has.
        fn read(bytes: &[u8]) -> Self;
    }
}

/// A number type of tensors: `bf16`, `f16`, `f32`, `e4m3` and `u32`.
pub trait Element:
    sealed::Sealed + Copy + Default + Send + Sync + PartialEq + core::fmt::Debug + 'static
{
    /// What it is to a kernel.
    const KIND: Kind;
}

/// What a number is to kernels and collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A number of a kernel's operand.
    Float(Format),
    /// An index.
    U32,
}

impl Kind {
    /// Bytes of a number.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Float(format) => format.bits() as usize / 8,
            Self::U32 => 4,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Float(format) => format.name(),
            Self::U32 => "u32",
        }
    }
}

macro_rules! elements {
    ($($host:ty: $kind:expr;)+) => {$(
        impl Element for $host {
            const KIND: Kind = $kind;
        }

        impl Sealed for $host {
            fn append(self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<Self>()];
                own.copy_from_slice(bytes);
                Self::from_le_bytes(own)
            }
        }
    )+};
}

elements! {
    bf16: Kind::Float(Format::Bf16);
    f16: Kind::Float(Format::F16);
    f32: Kind::Float(Format::F32);
    u32: Kind::U32;
}

impl Element for F8E4M3 {
    const KIND: Kind = Kind::Float(Format::E4m3);
}

impl Sealed for F8E4M3 {
    fn append(self, to: &mut Vec<u8>) {
        to.push(self.to_bits());
    }

    fn read(bytes: &[u8]) -> Self {
        Self::from_bits(bytes[0])
    }
}

/// The bytes of numbers.
pub(crate) fn bytes<T: Element>(numbers: &[T]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(numbers.len() * T::KIND.bytes());
    numbers.iter().for_each(|number| number.append(&mut bytes));
    bytes
}

/// The numbers of bytes.
pub(crate) fn numbers<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(T::KIND.bytes()).map(T::read).collect()
}
