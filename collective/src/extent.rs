//! The extent of the output that a work unit belongs to.

use ptx::Value;

use crate::record::RecordDevice;

/// The output's extent on the device.
#[derive(Clone, Copy, Debug)]
pub struct Extent<'f> {
    /// Rows.
    pub m: Value<'f, u32>,
    /// Columns.
    pub n: Value<'f, u32>,
    /// Index of the output in a launch of several GEMMs; `None` if there is only one.
    pub group: Option<Value<'f, u32>>,
    /// The GEMM's [`Record`](crate::Record) in device memory, if it has one.
    pub record: Option<RecordDevice<'f>>,
}
