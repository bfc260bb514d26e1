//! Kernels that are no layer, on a rank's device.

use falchion::kernel::Kernel;
use falchion::kernel::driver::Loaded;

use crate::error::Error;
use crate::group::Group;

/// A kernel of your own on a rank's device, or one of falchion's that no layer has: attention, a norm of rows. It is
/// compiled at its first call.
///
/// ```
/// use falchion::collective::{Format, MatrixRef};
/// use falchion::kernel::{Transpose, Transposition};
/// use falchion_parallel::{Error, Group, Own};
///
/// let mut group = Group::emulated(1)?.remove(0);
/// let (a, mut d) = (group.upload(&[1u32, 2, 3, 4, 5, 6])?, group.zeros::<u32>(6)?);
/// let (a, d_ref) = (MatrixRef::new(a.view().address(), 3), MatrixRef::new(d.view_mut().address(), 2));
/// let mut transpose = Own::new(Transpose::of(Format::F32).expect("32 bits"));
/// transpose.enqueue(&mut group, &Transposition { rows: 2, columns: 3, count: 1, a, d: d_ref })?;
/// assert_eq!(group.read(&d)?, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), Error>(())
/// ```
pub struct Own<K> {
    kernel: K,
    loaded: Option<Loaded<K>>,
}

impl<K: core::fmt::Debug> core::fmt::Debug for Own<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Own").field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

impl<K: Clone> Own<K> {
    /// A kernel that is not loaded yet.
    pub const fn new(kernel: K) -> Self {
        Self { kernel, loaded: None }
    }

    /// The kernel.
    pub const fn kernel(&self) -> &K {
        &self.kernel
    }

    /// Enqueues a call, behind what was enqueued before. All memory that it touches is that of the group's tensors
    /// ([`Slice::address`](crate::Slice::address)).
    ///
    /// # Errors
    /// Memory that is no tensor's; the first illegal argument; a kernel of several programs; the device or the
    /// group has failed.
    pub fn enqueue<C: Clone>(&mut self, group: &mut Group, call: &C) -> Result<(), Error>
    where
        K: Kernel<C>,
    {
        group.alive()?;
        group.device().run(&self.kernel, &mut self.loaded, call, false)
    }

    /// The same for a layer, which has checked its memory: it may be of other owners.
    pub(crate) fn enqueue_checked<C: Clone>(&mut self, group: &mut Group, call: &C) -> Result<(), Error>
    where
        K: Kernel<C>,
    {
        group.alive()?;
        group.device().run(&self.kernel, &mut self.loaded, call, true)
    }
}
