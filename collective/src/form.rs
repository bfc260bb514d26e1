//! The form of a kernel: how many GEMMs a launch computes, and where their matrices are.

use ptx::Value;

/// How many GEMMs a launch computes, and where their matrices are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// One GEMM. The default.
    #[default]
    Single,
    /// Batched: GEMMs of one shape, with matrices at a fixed distance from each other.
    Batched,
    /// Grouped, contiguous rows: GEMMs that share N and K. The rows of A follow each other, group by group, and so do those of
    /// D. Only the device knows where each group begins. Each group has a B of its own: for a mixture of
    /// experts, the tokens sent to each expert.
    GroupedContiguous,
    /// Grouped, masked rows: GEMMs that share N and K, as [`GroupedContiguous`](Self::GroupedContiguous). Each group has a buffer of rows, all
    /// buffers of one size, and uses its first rows. Only the device knows how many rows a group uses.
    GroupedMasked,
    /// Grouped along K: GEMMs that share M, N and the matrices A and B. Each group is a range of K, so it takes
    /// some columns of A and of B. Only the device knows where each range begins. Each group has a D of its
    /// own, at a fixed distance from the one before: for a mixture of experts, the weight gradients.
    KGrouped,
    /// Pointer array (grouped): GEMMs of any shapes, with matrices anywhere. A [`Record`](crate::Record) in
    /// device memory describes each.
    PointerArray,
}

impl Form {
    /// The GEMMs of a launch, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Single => "one GEMM",
            Self::Batched => "a batch of GEMMs",
            Self::GroupedContiguous => "groups of rows",
            Self::GroupedMasked => "groups of rows in buffers of one size",
            Self::KGrouped => "groups along K",
            Self::PointerArray => "a pointer array of GEMMs",
        }
    }

    /// Its part of a kernel's name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Single => "",
            Self::Batched => "_batched",
            Self::GroupedContiguous => "_ragged",
            Self::GroupedMasked => "_masked",
            Self::KGrouped => "_k_grouped",
            Self::PointerArray => "_grouped",
        }
    }

    /// Whether the caller's A, and B, is a batch: one matrix per GEMM, at a fixed distance from the one
    /// before.
    pub const fn operands(self) -> [bool; 2] {
        match self {
            Self::Single | Self::KGrouped | Self::PointerArray => [false, false],
            Self::Batched => [true, true],
            Self::GroupedContiguous | Self::GroupedMasked => [false, true],
        }
    }

    /// Most groups of a launch that reads group sizes from device memory.
    pub const MOST_GROUPS: u32 = 320;

    /// Bytes of the table in shared memory that says where groups begin: 8 per group, 8 more, and space for
    /// alignment.
    pub const fn table_bytes(self) -> u32 {
        match self {
            Self::Single | Self::Batched | Self::KGrouped => 0,
            Self::GroupedContiguous | Self::GroupedMasked | Self::PointerArray => {
                (Self::MOST_GROUPS + 1) * 8 + 4
            }
        }
    }

    /// Whether a tile may end in rows of the next group, which it must not store.
    pub const fn shares_rows(self) -> bool {
        matches!(self, Self::GroupedContiguous | Self::GroupedMasked)
    }

    /// Whether device memory describes the matrices.
    pub const fn described(self) -> bool {
        matches!(self, Self::PointerArray)
    }

    /// Whether C and D are batches: one matrix per GEMM, at a fixed distance from the one before.
    pub const fn outputs(self) -> bool {
        matches!(self, Self::Batched | Self::KGrouped)
    }

    /// Whether each GEMM is a range of K of the same A and B.
    pub const fn divides_k(self) -> bool {
        matches!(self, Self::KGrouped)
    }
}

/// The forms of kernels that a role supports.
///
/// A role that ignores the index of the GEMM would compute the same one for all of them. So each role states
/// which forms it supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forms {
    batched: bool,
    ragged: bool,
    k_grouped: bool,
    grouped: bool,
}

impl Forms {
    /// A single GEMM only.
    pub const SINGLE: Self = Self { batched: false, ragged: false, k_grouped: false, grouped: false };

    /// Every form.
    pub const ALL: Self = Self { batched: true, ragged: true, k_grouped: true, grouped: true };

    /// These forms and one more.
    #[must_use]
    pub const fn and(self, form: Form) -> Self {
        match form {
            Form::Single => self,
            Form::Batched => Self { batched: true, ..self },
            Form::GroupedContiguous | Form::GroupedMasked => Self { ragged: true, ..self },
            Form::KGrouped => Self { k_grouped: true, ..self },
            Form::PointerArray => Self { grouped: true, ..self },
        }
    }

    /// Whether a form is among them. A single GEMM always is.
    pub const fn has(self, form: Form) -> bool {
        match form {
            Form::Single => true,
            Form::Batched => self.batched,
            Form::GroupedContiguous | Form::GroupedMasked => self.ragged,
            Form::KGrouped => self.k_grouped,
            Form::PointerArray => self.grouped,
        }
    }
}

/// Matrices of one shape, each at a fixed distance from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Number of matrices.
    pub count: u32,
    /// Elements from the start of one matrix to that of the next; 0 if all are the same one.
    pub stride: u64,
}

impl Batch {
    /// One matrix.
    pub const ONE: Self = Self { count: 1, stride: 0 };

    /// Number of distinct matrices in memory.
    pub(crate) const fn distinct(self) -> u32 {
        if self.stride == 0 { 1 } else { self.count }
    }
}

/// The address of a group's matrix, with `stride` bytes from one matrix to the next. `None` if there is only
/// one.
pub(crate) fn displaced<'f>(
    address: Value<'f, u64>,
    stride: Option<Value<'f, u64>>,
    group: Option<Value<'f, u32>>,
) -> Value<'f, u64> {
    match (stride, group) {
        (Some(stride), Some(group)) => group.cast::<u64>().mul_add(stride, address),
        _ => address,
    }
}
