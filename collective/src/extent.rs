//! The output that a piece of work is of.

use ptx::Value;

use crate::record::RecordDevice;

/// The output's extent on the device.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'f> {
    /// Rows.
    pub m: Value<'f, u32>,
    /// Columns.
    pub n: Value<'f, u32>,
    /// Which of several outputs it is; `None` where there is but one.
    pub group: Option<Value<'f, u32>>,
    /// What memory says of the product, where it does.
    pub record: Option<RecordDevice<'f>>,
}
