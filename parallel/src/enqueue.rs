//! Kernels that are no layer, on a rank's device.

use falchion::kernel::Kernel;
use falchion_core::Kept;

use crate::error::Error;
use crate::group::Group;

impl Group {
    /// Enqueues a call of any kernel, behind what was enqueued before: one of your own, or one of falchion's that no layer has, as attention
    /// or a norm of rows. All memory that it touches is that of the group's tensors
    /// ([`Slice::address`](crate::Slice::address)).
    ///
    /// ```
    /// use falchion::collective::{Format, MatrixRef};
    /// use falchion::kernel::{Transpose, Transposition};
    /// use falchion_parallel::{Error, Group, Kept};
    ///
    /// let mut group = Group::emulated(1)?.remove(0);
    /// let (a, mut d) = (group.upload(&[1u32, 2, 3, 4, 5, 6])?, group.zeros::<u32>(6)?);
    /// let (a, d_ref) = (MatrixRef::new(a.view().address(), 3), MatrixRef::new(d.view_mut().address(), 2));
    /// let transpose = Kept::of(Transpose::of(Format::F32).expect("32 bits"));
    /// group.enqueue(&transpose, &Transposition { rows: 2, columns: 3, count: 1, a, d: d_ref })?;
    /// assert_eq!(group.read(&d)?, [1, 4, 2, 5, 3, 6]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Memory that is no tensor's; the first illegal argument; the device or the group has failed.
    pub fn enqueue<K, C: Clone>(&mut self, kernel: &Kept<K>, call: &C) -> Result<(), Error>
    where
        K: Kernel<C> + Clone + Send + Sync + 'static,
    {
        self.alive()?;
        self.device().launch(kernel, call, None, false)
    }

    /// The same for a layer, which has checked its memory: it may be of other owners.
    pub(crate) fn enqueue_checked<K, C: Clone>(&mut self, kernel: &Kept<K>, call: &C) -> Result<(), Error>
    where
        K: Kernel<C> + Clone + Send + Sync + 'static,
    {
        self.alive()?;
        self.device().launch(kernel, call, None, true)
    }
}
