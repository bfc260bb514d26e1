//! How many products a launch has, and where the matrices of the others lie.

use collective::Form;
use ptx::abi::Argument;

use crate::error::LaunchError;

/// The products of a launch.
///
/// A [`Call`](crate::Call) names the matrices of the first; the `stride` of each ([`MatrixRef::every`](collective::MatrixRef::every)) says where the next product
/// has its own, and is 0 where all have the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Products {
    /// One.
    #[default]
    One,
    /// Some of one shape. D's never lie in each other.
    Batched {
        /// How many.
        count: u32,
    },
    /// Groups of rows, each with a B of its own: the call's M is the number of rows of A, C and D, which may be more than all
    /// groups have.
    Ragged {
        /// How many groups there are, [`Form::MOST_GROUPS`] at most.
        count: u32,
        /// Device address of `count + 1` offsets (`u32`): the rows of group `i` are those from `offsets[i]` to
        /// `offsets[i + 1]`. The kernel reads them, so they may be computed by a kernel before it. An offset that is less than
        /// one before it counts as that one, and one beyond the last row as the number of rows.
        offsets: u64,
    },
    /// Groups of rows in buffers of one size, each with a B of its own. Group `i` has the rows of A, C and D from `i * room` on, and uses the
    /// first of them. The call's M is the number of rows of all buffers, `count * room` at least.
    Masked {
        /// How many groups there are, [`Form::MOST_GROUPS`] at most.
        count: u32,
        /// Device address of `count` numbers of rows (`u32`). The kernel reads them, so they may be computed by a kernel before it. One
        /// above `room` counts as that.
        rows: u64,
        /// Rows of a buffer.
        room: u32,
    },
    /// Products of any shapes that device memory describes, all of their matrices too: the call's own are not looked at. They may be
    /// parts of the same matrices: groups of K, for the weight gradients of experts, are records that differ in K and in where A and B
    /// begin. Their
    /// workspace is memory of the kernel's own, of as many bytes as [`AnyGemm::workspace`](crate::AnyGemm::workspace) says, zero
    /// before the first launch.
    Grouped {
        /// How many, [`Form::MOST_GROUPS`] at most.
        count: u32,
        /// Device address of as many [`Record`](collective::Record)s behind each other, a multiple of 16.
        records: u64,
    },
}

impl Products {
    /// The form of kernels that compute them.
    pub fn form(&self) -> Form {
        match self {
            Self::One => Form::Single,
            Self::Batched { .. } => Form::Batched,
            Self::Ragged { .. } => Form::Ragged,
            Self::Masked { .. } => Form::Masked,
            Self::Grouped { .. } => Form::Grouped,
        }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        match *self {
            Self::One => 1,
            Self::Batched { count }
            | Self::Ragged { count, .. }
            | Self::Masked { count, .. }
            | Self::Grouped { count, .. } => count,
        }
    }

    /// The same for a kernel of some form: one product is a batch of one.
    pub(crate) fn for_form(self, form: Form) -> Result<Self, LaunchError> {
        match (self, form) {
            (Self::One, Form::Batched) => Ok(Self::Batched { count: 1 }),
            _ if self.form() == form => Ok(self),
            _ => Err(LaunchError::Form { kernel: form, call: self.form() }),
        }
    }

    /// The kernel's parameters.
    pub(crate) fn arguments(&self) -> Vec<Argument> {
        match *self {
            Self::One => Vec::new(),
            Self::Batched { count } => vec![count.into()],
            Self::Ragged { count, offsets } => vec![count.into(), offsets.into()],
            Self::Masked { count, rows, room } => vec![count.into(), rows.into(), room.into()],
            Self::Grouped { count, records } => vec![count.into(), records.into()],
        }
    }
}
