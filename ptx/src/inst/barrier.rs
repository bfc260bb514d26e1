//! Scopes and proxies of the fences.

/// The memory whose generic accesses `fence.proxy.async` orders before asynchronous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxySpace {
    /// `.shared::cta`.
    Shared,
    /// `.global`.
    Global,
    /// Every space (no qualifier).
    All,
}

/// The threads that a memory fence synchronises with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceScope {
    /// `.cta`.
    Cta,
    /// `.cluster`.
    Cluster,
    /// `.gpu`.
    Gpu,
}
