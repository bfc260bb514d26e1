//! What a launch says that a text leaves open.

/// What a launch says of a kernel that its text leaves open.
///
/// ```
/// use ptx::read::Launch;
///
/// let launch = Launch { threads: Some([128, 1, 1]), shared_bytes: 49_152, ..Launch::default() };
/// assert_eq!(launch.cluster, None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Threads per CTA along x, y and z. `None` for those that the text requires (`.reqntid`), or else the most that it allows
    /// (`.maxntid`).
    pub threads: Option<[u32; 3]>,
    /// Bytes of dynamic shared memory per CTA.
    pub shared_bytes: u32,
    /// CTAs per cluster along x, y and z. `None` for those that the text requires (`.reqnctapercluster`), or else 1.
    pub cluster: Option<[u32; 3]>,
}
