//! What a program states of itself: names of its memory, promises, and how many of its CTAs share an SM.

use super::{Builder, Region};
use crate::value::Value;

impl Builder {
    /// Names parts of dynamic shared memory for reports. The region's offset counts from `address`. No effect
    /// if that is not [`shared_base`](Self::shared_base) or a constant number of bytes after it.
    pub fn name_shared(&self, address: Value<'_, u32>, region: Region) {
        if let Some(base) = self.shared_offset(address.operand()) {
            let region = Region { offset: base.wrapping_add(region.offset), ..region };
            self.state.borrow_mut().regions.push(region);
        }
    }

    /// Promises that the floating-point numbers added to a word of global memory, by whichever threads and copies, are added
    /// in a fixed order, so that a sum has the same bits in each run. The emulator refuses a program that breaks the
    /// promise. It does not change the text.
    pub fn order_sums(&self) {
        self.state.borrow_mut().ordered_sums = true;
    }

    /// States that the registers of an SM are to suffice for so many CTAs of this function at the same time, in place of what was stated before.
    pub fn share_registers(&self, ctas: u32) {
        self.state.borrow_mut().resident = ctas;
    }
}
