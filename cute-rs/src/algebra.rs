//! The algebra: operations that make new layouts from old ones. Each documents the equation that it
//! satisfies.

mod coalesce;
mod common;
mod complement;
mod composition;
mod divide;
mod inverse;
mod product;
mod recast;
mod tiler;

use crate::error::LayoutError;
use crate::int_tuple::{IntTuple, MAX_LEAVES};
use crate::layout::Layout;

pub(crate) use composition::walk_components;
pub use tiler::Tiler;

/// A flat list of modes in which an operation collects its result.
#[derive(Clone, Copy)]
struct Modes {
    shape: [i64; MAX_LEAVES],
    stride: [i64; MAX_LEAVES],
    /// The component that each stride counts along; see [`IntTuple::axis`].
    axis: [u8; MAX_LEAVES],
    len: usize,
}

impl Modes {
    const fn new() -> Self {
        Self { shape: [1; MAX_LEAVES], stride: [0; MAX_LEAVES], axis: [0; MAX_LEAVES], len: 0 }
    }

    /// Adds a mode, or lengthens the last mode if this one continues it.
    const fn push(&mut self, shape: i64, stride: i64, axis: u8) -> Result<(), LayoutError> {
        if self.len > 0 {
            let last = self.len - 1;
            let next = self.shape[last].wrapping_mul(self.stride[last]);
            if next == stride && (stride == 0 || self.axis[last] == axis) {
                self.shape[last] = self.shape[last].saturating_mul(shape);
                return Ok(());
            }
        }
        if self.len == MAX_LEAVES {
            return Err(LayoutError::Capacity { leaves: self.len + 1 });
        }
        self.shape[self.len] = shape;
        self.stride[self.len] = stride;
        self.axis[self.len] = axis;
        self.len += 1;
        Ok(())
    }

    /// The layout: `1:0`, `s:d`, or a flat tuple of modes.
    const fn layout(&self) -> Result<Layout, LayoutError> {
        if self.len == 0 {
            return Ok(Layout::leaf(1, 0));
        }
        let (mut shape, mut stride) = (IntTuple::EMPTY, IntTuple::EMPTY);
        each!(i, 0..self.len, {
            ok!(shape.push(self.shape[i], 0));
            ok!(stride.push(self.stride[i], self.axis[i]));
        });
        if self.len == 1 {
            return Layout::bounded(shape, stride);
        }
        Layout::bounded(ok!(shape.close()), ok!(stride.close()))
    }
}

/// `(a, b)`.
pub(crate) const fn pair(a: IntTuple, b: IntTuple) -> Result<IntTuple, LayoutError> {
    IntTuple::tuple(&[a, b])
}
