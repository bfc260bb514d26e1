//! Records: device memory that describes each GEMM of a grouped launch.

use ptx::{Builder, Value};

use crate::element::Format;
use crate::plan::Plan;

/// One GEMM of a grouped (pointer-array) launch: its extents and the addresses of its matrices.
///
/// A kernel reads records unchecked. Extents must be below 2^31. Addresses and leading dimensions must meet
/// the alignment that the kernel requires in a call, in every record whose GEMM is not empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Rows of A, C and D.
    pub m: u32,
    /// Columns of B, C and D.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Device addresses of A, B, C and D. C is not read if beta is zero.
    pub addresses: [u64; 4],
    /// Leading dimensions of A, B, C and D, in elements.
    pub lds: [u64; 4],
}

impl Record {
    /// Size of a record in bytes, and what its address must be a multiple of.
    pub const BYTES: [u32; 2] = [80, 16];

    /// The bytes of the record in device memory.
    pub fn to_bytes(&self) -> [u8; Self::BYTES[0] as usize] {
        let Self { m, n, k, addresses, lds } = *self;
        let mut bytes = [0; Self::BYTES[0] as usize];
        let words = [m, n, k, 0].into_iter().flat_map(u32::to_le_bytes);
        let wide = addresses.into_iter().chain(lds).flat_map(u64::to_le_bytes);
        for (byte, value) in bytes.iter_mut().zip(words.chain(wide)) {
            *byte = value;
        }
        bytes
    }
}

/// A record on the device, given by its address.
#[derive(Clone, Copy, Debug)]
pub struct RecordDevice<'f>(Value<'f, u64>);

/// A matrix of a record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Described<'f> {
    pub(crate) address: Value<'f, u64>,
    /// Leading dimension in elements.
    pub(crate) ld: Value<'f, u64>,
}

impl<'f> RecordDevice<'f> {
    /// The record at an address.
    pub fn new(address: Value<'f, u64>) -> Self {
        Self(address)
    }

    /// M, N and K as the kernel computes them: M and N are exchanged under swap-AB.
    pub fn extents(self, f: &'f Builder, plan: &Plan) -> [Value<'f, u32>; 3] {
        let [m, n, k, _] = f.load_global_vector::<u32, 4>(self.0, 0);
        let [m, n] = plan.oriented([m, n]);
        [m, n, k]
    }

    fn matrix(self, f: &'f Builder, index: i32) -> Described<'f> {
        let [address, ld] = [16, 48].map(|first| f.load_global::<u64>(self.0, first + 8 * index));
        Described { address, ld }
    }

    /// The kernel's operands A and B.
    pub(crate) fn operands(self, f: &'f Builder, plan: &Plan) -> [Described<'f>; 2] {
        plan.oriented([0, 1]).map(|index| self.matrix(f, index))
    }

    pub(crate) fn c(self, f: &'f Builder) -> Described<'f> {
        self.matrix(f, 2)
    }

    pub(crate) fn d(self, f: &'f Builder) -> Described<'f> {
        self.matrix(f, 3)
    }
}

impl<'f> Described<'f> {
    /// Whether rows of `columns` elements consist of aligned pairs.
    pub(crate) fn pairs(self, format: Format, columns: Value<'f, u32>) -> Value<'f, bool> {
        let bytes = u64::from(format.bits() / 4);
        (self.address & (bytes - 1)).equals(0) & (self.ld & 1u64).equals(0) & (columns & 1u32).equals(0)
    }
}
