//! How many products a launch has, and where the matrices of the others lie.

use collective::{Batch, Form, Matrix, MatrixRef, Output, Plan, Record};
use ptx::abi::Argument;

use crate::error::LaunchError;
use crate::problem::{Checked, OutputRule, within};

/// The products of a launch.
///
/// A [`Call`](crate::Call) names the matrices of the first; the `stride` of each ([`MatrixRef::every`]) says where the next product
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
    /// Products of any shapes that device memory describes, all of their matrices too: the call's own are not looked at. Their
    /// workspace is memory of the kernel's own, of as many bytes as [`AnyGemm::workspace`](crate::AnyGemm::workspace) says, zero
    /// before the first launch.
    Grouped {
        /// How many, [`Form::MOST_GROUPS`] at most.
        count: u32,
        /// Device address of as many [`Record`]s behind each other, a multiple of 16.
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
            Self::Grouped { .. } => Form::Grouped,
        }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        match *self {
            Self::One => 1,
            Self::Batched { count } | Self::Ragged { count, .. } | Self::Grouped { count, .. } => count,
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

    /// The matrices of all of them, checked: those of the first are, and `strides` are A's, B's and D's.
    pub(crate) fn checked(
        &self,
        plan: &Plan,
        first: Checked,
        output: &OutputRule,
        [a_ref, b_ref, d_ref]: [MatrixRef; 3],
    ) -> Result<Checked, LaunchError> {
        let Checked { a, b, d } = first;
        let [a_bits, b_bits] = plan.operand_bits();
        let rule = |name, bits: u32| {
            let alignment = plan.mainloop.producer.alignment(bits).into();
            Distance { name, bytes: u64::from(bits / 8), alignment }
        };
        // Where nothing is multiplied, nothing is read.
        let operand = |(name, bits), matrix: Matrix, count, of: MatrixRef| match matrix.k {
            0 => Ok(matrix),
            _ => {
                let batch = rule(name, bits).check(count, of.stride, matrix.address)?;
                Ok::<_, LaunchError>(Matrix { batch, ..matrix })
            }
        };
        match *self {
            Self::One => Ok(Checked { a, b, d }),
            Self::Batched { count } => {
                let rule =
                    Distance { name: "D", bytes: u64::from(output.bits / 8), alignment: output.alignment };
                let batch = rule.check(count, d_ref.stride, d.address)?;
                let d = Output { batch, ..d };
                if !apart(d) {
                    let (stride, Output { m, n, pitch, .. }) = (d_ref.stride, d);
                    return Err(LaunchError::Overlap { stride, m, n, pitch });
                }
                Ok(Checked {
                    a: operand(("A", a_bits), a, count, a_ref)?,
                    b: operand(("B", b_bits), b, count, b_ref)?,
                    d,
                })
            }
            Self::Ragged { count, offsets } => {
                table(count, ("the groups' offsets", offsets, 4))?;
                Ok(Checked { a, b: operand(("B", b_bits), b, count, b_ref)?, d })
            }
            Self::Grouped { count, records } => {
                table(count, ("the records", records, Record::BYTES[1].into()))?;
                Ok(Checked { a, b, d })
            }
        }
    }

    /// The kernel's parameters.
    pub(crate) fn arguments(&self) -> Vec<Argument> {
        match *self {
            Self::One => Vec::new(),
            Self::Batched { count } => vec![count.into()],
            Self::Ragged { count, offsets } => vec![count.into(), offsets.into()],
            Self::Grouped { count, records } => vec![count.into(), records.into()],
        }
    }
}

/// Whether a kernel can find so many groups by what lies at an address.
fn table(groups: u32, (name, address, alignment): (&'static str, u64, u64)) -> Result<(), LaunchError> {
    if groups > Form::MOST_GROUPS {
        return Err(LaunchError::Groups { groups, most: Form::MOST_GROUPS });
    }
    if address == 0 {
        return Err(LaunchError::Null { name });
    }
    if !address.is_multiple_of(alignment) {
        return Err(LaunchError::Address { name, address, alignment });
    }
    Ok(())
}

/// What the distance between matrices must be.
struct Distance {
    name: &'static str,
    bytes: u64,
    alignment: u64,
}

impl Distance {
    fn check(&self, count: u32, stride: u64, address: u64) -> Result<Batch, LaunchError> {
        let Self { name, bytes, alignment } = *self;
        let stride_bytes = u128::from(stride) * u128::from(bytes);
        if count > 1 && (!stride_bytes.is_multiple_of(alignment.into()) || stride_bytes >= 1 << 40) {
            return Err(LaunchError::Distance { name, bytes: stride_bytes, alignment });
        }
        if count > 1 {
            within(name, address, u128::from(count - 1) * stride_bytes + u128::from(bytes))?;
        }
        Ok(Batch { count, stride: if count > 1 { stride } else { 0 } })
    }
}

/// Whether no two outputs have an element in common: each ends before the next begins, or rows of all of them lie side by
/// side.
fn apart(Output { m, n, pitch, batch: Batch { count, stride }, .. }: Output) -> bool {
    let [m, n, count] = [m, n, count].map(u128::from);
    let [pitch, stride] = [pitch, stride].map(u128::from);
    count <= 1
        || stride >= m.saturating_sub(1) * pitch + n
        || stride >= n && pitch >= (count - 1) * stride + n
}
