//! The table of groups in shared memory: how many groups it is made for, and where it is.

use crate::form::Form;

/// The table in shared memory that says which tiles belong to which group.
///
/// A table of more than 320 groups takes no more memory than one of 320, since an entry stands for several consecutive
/// groups: a CTA finds the entry of a tile, then reads the sizes of that entry's groups again. Kernels that sort their
/// groups ([`Plan::balanced`](crate::Plan::balanced)) need an entry per group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePlan {
    /// Most groups of a launch: one of [`Form::TABLES`].
    pub groups: u32,
    /// Number of consecutive groups per entry, a power of two.
    pub span: u32,
    /// Offset in bytes of dynamic shared memory.
    pub offset: u32,
    /// Bytes: 8 per entry, 8 more, and space for alignment. 0 for forms without a table.
    pub bytes: u32,
}

impl TablePlan {
    /// The table of a form, before it has a place. `sorted` is whether the kernel sorts its groups.
    pub(super) const fn of(form: Form, groups: u32, sorted: bool) -> Self {
        let span = if sorted { 1 } else { groups.div_ceil(Form::TABLES[0]).next_power_of_two() };
        let bytes = if form.has_table() { (groups.div_ceil(span) + 1) * 8 + 4 } else { 0 };
        Self { groups, span, offset: 0, bytes }
    }

    /// The table at an offset.
    pub(super) const fn at(self, offset: u32) -> Self {
        Self { offset, ..self }
    }
}
