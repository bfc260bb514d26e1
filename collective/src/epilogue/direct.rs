//! Direct stores: from registers straight to global memory.

use ptx::{Builder, Value};

use super::parts::Held;
use super::store::{Access, Combine, Output, Store, StorePath, Stored, row_address};
use crate::element::{Format, Packed};
use crate::extent::Extent;
use crate::form::displaced;
use crate::mainloop::{Fragment, FragmentRow};
use crate::operands::Visit;
use crate::plan::Plan;
use crate::record::Described;

/// A row of D, as a thread stores it.
struct OutputRow<'f> {
    /// The address of the thread's first element.
    base: Value<'f, u64>,
    /// Number of columns from there to the edge of D; zero if the row is outside.
    columns: Value<'f, u32>,
}

impl<'f> OutputRow<'f> {
    fn new<T: Copy>(
        format: Format,
        device: DirectDevice<'f>,
        extent: Extent<'f>,
        fragment: &Fragment<'f, T>,
        row: &FragmentRow<'f, T>,
        halvings: u32,
    ) -> Self {
        let mut row = row.part(0, 0);
        if halvings > 0 {
            let first = fragment.first[1];
            row.column = (first >> halvings) + (row.column - first);
        }
        let base = row_address(format, device.address, device.ld, &row);
        Self { base, columns: row.columns_inside(Extent { n: extent.n >> halvings, ..extent }) }
    }

    /// Stores two neighbouring columns; `column` is relative to the thread's first.
    fn store(&self, format: Format, f: &'f Builder, access: Access, column: u32, packed: Packed<'f>) {
        let inside = |column: u32| self.columns.more_than(column);
        let offset = |column: u32| (column * format.bytes()).cast_signed();
        if access.pairs && access.whole {
            packed.store_global(self.base, offset(column));
        } else if access.pairs {
            f.if_(inside(column), || packed.store_global(self.base, offset(column)));
        } else {
            for (column, element) in (column..).zip(format.unpack(f, packed)) {
                f.if_(inside(column), || element.store_global(self.base, offset(column)));
            }
        }
    }
}

/// Stores from registers to global memory: each thread stores its own elements. Works for any address and
/// leading dimension.
#[derive(Clone, Copy, Debug)]
pub struct DirectStore;

/// The names of the kernel parameters: where D is, its leading dimension, and bytes from one D to the next.
const D: &str = "d";
const D_PITCH: &str = "d_pitch";
const D_BATCH: &str = "d_batch";

/// The output of [`DirectStore`] on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectDevice<'f> {
    address: Value<'f, u64>,
    ld: Value<'f, u64>,
    /// Bytes from one output of a batch to the next; `None` if there is only one.
    batch: Option<Value<'f, u64>>,
}

impl<'f> DirectDevice<'f> {
    /// Finds the kernel parameters.
    pub(super) fn of_kernel(f: &'f Builder, plan: &Plan) -> Self {
        if plan.form.described() {
            return Self { address: f.constant(0), ld: f.constant(0), batch: None };
        }
        let (address, ld) = (f.parameter(D), f.parameter(D_PITCH));
        Self { address, ld, batch: plan.form.outputs().then(|| f.parameter(D_BATCH)) }
    }

    /// The output of a group.
    fn of(self, extent: Extent<'f>) -> Self {
        match extent.record {
            Some(record) => {
                let Described { address, ld } = record.d(self.address.builder());
                Self { address, ld, batch: None }
            }
            None => Self { address: displaced(self.address, self.batch, extent.group), ..self },
        }
    }

    /// D's address and leading dimension.
    pub(super) fn place(self, extent: Extent<'f>) -> [Value<'f, u64>; 2] {
        let Self { address, ld, .. } = self.of(extent);
        [address, ld]
    }
}

impl Store for DirectStore {
    const WAY: StorePath = StorePath::Direct;
}

/// States the kernel parameters.
pub(super) fn state(format: Format, plan: &Plan, output: Option<Output>, visit: &mut dyn Visit) {
    if plan.form.described() {
        return;
    }
    visit.address(D, "D");
    visit.number(D_PITCH, output.map(|output| output.ld));
    if plan.form.outputs() {
        visit.number(D_BATCH, output.map(|output| output.batch.stride * u64::from(format.bytes())));
    }
}

/// Emitted for a consumer warpgroup: stores its fragment of a tile.
pub(super) fn store<'f, T: Held<'f>>(
    format: Format,
    f: &'f Builder,
    plan: &Plan,
    device: DirectDevice<'f>,
    &Stored { extent, fragment, access }: &Stored<'_, 'f, T>,
    combine: Combine<'_, 'f, T>,
) {
    let device = device.of(extent);
    let start = fragment.start();
    let halvings = plan.epilogue.halvings;
    let output = |row: &FragmentRow<'f, T>| OutputRow::new(format, device, extent, fragment, row, halvings);
    for (block, _) in (0u32..).zip(&fragment.blocks) {
        let rows = fragment.rows(start, block);
        if let Some(pairs_at_once) = combine.pairs_at_once {
            let outputs: Vec<_> = rows.iter().map(output).collect();
            let parts = rows.first().map_or(0, |row| row.pairs.len()) >> halvings;
            for first in (0..parts).step_by(pairs_at_once) {
                let part: Vec<_> =
                    rows.iter().map(|row| row.part(first << halvings, pairs_at_once << halvings)).collect();
                for (output, pairs) in outputs.iter().zip((combine.values)(block, &part)) {
                    for (column, pair) in (first as u32 * 8..).step_by(8).zip(pairs) {
                        output.store(format, f, access, column, T::pack(format, f, pair));
                    }
                }
            }
            continue;
        }
        for row in rows {
            let output = output(&row);
            let values = (combine.values)(block, core::slice::from_ref(&row));
            for (pair, values) in row.pairs.iter().zip(values.into_iter().flatten()) {
                output.store(format, f, access, pair.column, T::pack(format, f, values));
            }
        }
    }
}
