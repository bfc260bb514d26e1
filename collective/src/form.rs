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

    /// Most groups of any launch that reads their sizes from device memory.
    pub const MOST_GROUPS: u32 = Self::TABLES[Self::TABLES.len() - 1];

    /// Numbers of groups that a kernel's table can be made for. The first is the default.
    pub const TABLES: [u32; 5] = [320, 512, 1024, 2048, 4096];

    /// The smallest of [`TABLES`](Self::TABLES) for a number of groups; the largest if there are more groups than any
    /// table holds. The default for a form without a table.
    pub const fn table_for(self, groups: u32) -> u32 {
        let mut i = 0;
        while self.has_table() && Self::TABLES[i] < groups && i + 1 < Self::TABLES.len() {
            i += 1;
        }
        Self::TABLES[i]
    }

    /// Whether a kernel keeps a table in shared memory of where its groups begin. Other forms need none: a CTA under
    /// [`KGrouped`](Self::KGrouped) reads the range of its group.
    pub const fn has_table(self) -> bool {
        match self {
            Self::Single | Self::Batched | Self::KGrouped => false,
            Self::GroupedContiguous | Self::GroupedMasked | Self::PointerArray => true,
        }
    }

    /// Whether a kernel of the form may have a table of this number of groups.
    pub(crate) const fn has_table_of(self, groups: u32) -> bool {
        let mut i = 0;
        while i < Self::TABLES.len() {
            if Self::TABLES[i] == groups && (i == 0 || self.has_table()) {
                return true;
            }
            i += 1;
        }
        false
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
