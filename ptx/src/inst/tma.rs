//! Cache policies of the tensor copies.

/// L2 evict-first for every access, as `createpolicy.fractional.L2::evict_first` builds it.
pub const EVICT_FIRST: u64 = 0x12F0_0000_0000_0000;
/// L2 evict-last for every access.
pub const EVICT_LAST: u64 = 0x14F0_0000_0000_0000;
/// L2 default.
pub const EVICT_NORMAL: u64 = 0x1000_0000_0000_0000;
