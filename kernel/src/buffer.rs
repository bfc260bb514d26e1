//! Device memory, by its address.

use collective::operands::{Contents, Extents, Memory, Visit, WORKSPACE};

use crate::error::LaunchError;

/// A range of an engine's device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Buffer {
    /// Device address. Engines give multiples of 256 bytes.
    pub address: u64,
    /// Size in bytes.
    pub bytes: usize,
}

impl Buffer {
    /// What a workspace's address must be a multiple of, in bytes.
    pub const WORKSPACE_ALIGNMENT: u64 = 128;

    /// The memory at an address, of this number of bytes.
    pub fn new(address: u64, bytes: u64) -> Self {
        Self { address, bytes: usize::try_from(bytes).unwrap_or(usize::MAX) }
    }

    /// The address of a call's workspace, if it has at least `needed` bytes; 0 if none are needed.
    ///
    /// # Errors
    /// It is too small, or its address is not a multiple of [`WORKSPACE_ALIGNMENT`](Self::WORKSPACE_ALIGNMENT).
    pub fn workspace_address(lent: Option<Self>, needed: u64) -> Result<u64, LaunchError> {
        let Self { address, bytes } = lent.unwrap_or(Self::new(0, 0));
        let (bytes, alignment) = (bytes as u64, Self::WORKSPACE_ALIGNMENT);
        if needed == 0 {
            return Ok(0);
        }
        if bytes < needed || address == 0 {
            return Err(LaunchError::Workspace { bytes, needed });
        }
        if !address.is_multiple_of(alignment) {
            return Err(LaunchError::Address { name: WORKSPACE, address, alignment });
        }
        Ok(address)
    }

    /// Visits a call's workspace; its address is 0 if there is none. It is accessed if the call is `launched`.
    pub fn visit_workspace(lent: &mut Option<Self>, launched: bool, visit: &mut dyn Visit) {
        visit.form(lent.is_some().into());
        let mut none = Self::new(0, 0);
        let Self { address, bytes } = lent.as_mut().unwrap_or(&mut none);
        let mut length = *bytes as u64;
        let (extents, contents) = (Extents::line(8, if launched { length } else { 0 }), Contents::Workspace);
        visit.memory(Memory { name: WORKSPACE, address, extents, contents, writes: true });
        visit.length(&mut length);
        *bytes = Self::new(0, length).bytes;
    }
}
