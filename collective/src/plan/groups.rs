//! The table of groups in shared memory: how many groups it is made for, and where it is.

use crate::form::Form;

/// The table in shared memory that says which tiles belong to which group.
///
/// A table of more than 320 groups has entries for several consecutive groups: a CTA finds the entry of a tile, then reads the
/// sizes of that entry's groups again. So it takes no more memory than one of 320. Kernels that sort their groups
/// ([`Plan::balanced`](crate::Plan::balanced)) also need a word per group: no more memory than for 320 up to 512 groups, 20 KB for 4096.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TablePlan {
    /// Most groups of a launch: one of [`Form::TABLES`].
    pub groups: u32,
    /// Number of consecutive groups per entry, a power of two.
    pub span: u32,
    /// Offset in bytes of dynamic shared memory.
    pub offset: u32,
    /// Bytes, with space for alignment. 0 for forms without a table.
    pub bytes: u32,
}

impl TablePlan {
    /// The table of a form, before it has a place. `sorted` is whether the kernel sorts its groups.
    pub(super) const fn of(form: Form, groups: u32, sorted: bool) -> Self {
        let usual = groups <= Form::TABLES[0];
        let span = match (usual, sorted) {
            (true, _) => 1,
            (false, true) => 4,
            (false, false) => groups.div_ceil(Form::TABLES[0]).next_power_of_two(),
        };
        let entries = groups.div_ceil(span) + 1;
        let words = if sorted { groups + 1 + entries } else { 2 * entries };
        Self { groups, span, offset: 0, bytes: if form.has_table() { words * 4 + 4 } else { 0 } }
    }

    /// The table at an offset.
    pub(super) const fn at(self, offset: u32) -> Self {
        Self { offset, ..self }
    }
}
