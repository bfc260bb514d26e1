//! What the arguments say of a sparse operand.

use kernel::Types;

use super::GemmArgs;
use crate::{Failure, catalogue, types};

impl GemmArgs {
    /// The types with the operand sparse that `--sparse` names, if it does.
    pub(super) fn sparse(&self, of: Types) -> Result<Types, Failure> {
        let Some(side) = &self.sparse else { return Ok(of) };
        types::can_be_sparse(side, [self.dtype.as_deref(), self.dtype_b.as_deref()])?;
        let of = of.sparse(types::sparse(Some(side)));
        types::sparse_as_it_lies(of, "kk", self.rows.is_some())?;
        catalogue::possible(of)?;
        Ok(of)
    }
}
