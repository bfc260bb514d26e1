//! How many products a launch computes, and where their matrices lie.

use ptx::Value;

/// How many products a kernel computes, and where their matrices lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// One product.
    #[default]
    Single,
    /// Products of one shape, whose matrices have a fixed distance from each other.
    Batched,
    /// Products of one N and K. The rows of A lie behind each other, group by group, and so do those of D; where a group
    /// begins is known on the device alone. Each group has a B of its own: experts, and the tokens sent to them.
    Ragged,
    /// Products of one N and K, as [`Ragged`](Self::Ragged). Each group has a buffer of rows of its own, all of one size, and uses the first
    /// rows of it. How many it uses is known on the device alone.
    Masked,
    /// Products of any shapes with matrices anywhere, which device memory describes: a [`Record`](crate::Record) each.
    Grouped,
}

impl Form {
    /// What it adds to a kernel's name.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Single => "",
            Self::Batched => "_batched",
            Self::Ragged => "_ragged",
            Self::Masked => "_masked",
            Self::Grouped => "_grouped",
        }
    }

    /// Whether there are several of the caller's A, and several B, each at a fixed distance from the one before.
    pub const fn operands(self) -> [bool; 2] {
        match self {
            Self::Single | Self::Grouped => [false, false],
            Self::Batched => [true, true],
            Self::Ragged | Self::Masked => [false, true],
        }
    }

    /// Most groups of a launch that reads from memory how large they are.
    pub const MOST_GROUPS: u32 = 320;

    /// Bytes of the table in shared memory that says where groups begin: 8 for each and 8 more, and room to align them.
    pub const fn table_bytes(self) -> u32 {
        match self {
            Self::Single | Self::Batched => 0,
            Self::Ragged | Self::Masked | Self::Grouped => (Self::MOST_GROUPS + 1) * 8 + 4,
        }
    }

    /// Whether tiles may have rows of another group behind their own, which must not be stored to.
    pub const fn shares_rows(self) -> bool {
        matches!(self, Self::Ragged | Self::Masked)
    }

    /// Whether device memory says where matrices lie.
    pub const fn described(self) -> bool {
        matches!(self, Self::Grouped)
    }

    /// Whether there are several C and D, each at a fixed distance from the one before.
    pub const fn outputs(self) -> bool {
        matches!(self, Self::Batched)
    }
}

/// The forms of kernels that a role can be part of.
///
/// A role that looks at one product alone computes that one for all of them, so what it can do beyond is said by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forms {
    batched: bool,
    ragged: bool,
    grouped: bool,
}

impl Forms {
    /// One product alone.
    pub const SINGLE: Self = Self { batched: false, ragged: false, grouped: false };

    /// Every form.
    pub const ALL: Self = Self { batched: true, ragged: true, grouped: true };

    /// These and one more.
    #[must_use]
    pub const fn and(self, form: Form) -> Self {
        match form {
            Form::Single => self,
            Form::Batched => Self { batched: true, ..self },
            Form::Ragged | Form::Masked => Self { ragged: true, ..self },
            Form::Grouped => Self { grouped: true, ..self },
        }
    }

    /// Whether a form is one of them. One product always is.
    pub const fn has(self, form: Form) -> bool {
        match form {
            Form::Single => true,
            Form::Batched => self.batched,
            Form::Ragged | Form::Masked => self.ragged,
            Form::Grouped => self.grouped,
        }
    }
}

/// Matrices of one shape, each at a fixed distance from the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// How many.
    pub count: u32,
    /// Elements from the first element of one to that of the next; 0 where all are the same one.
    pub stride: u64,
}

impl Batch {
    /// One matrix.
    pub const ONE: Self = Self { count: 1, stride: 0 };

    /// How many there are in memory.
    pub(crate) const fn distinct(self) -> u32 {
        if self.stride == 0 { 1 } else { self.count }
    }
}

/// The address of a group's matrix: `stride` bytes from each to the next. `None` where there is but one.
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
