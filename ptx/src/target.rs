//! The target architectures of programs, and their hardware limits.

/// A target architecture: an instruction set with its device limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// Hopper with its architecture-specific instructions, compute capability 9.0.
    Sm90a,
}

/// Hardware limits of an SM, a CTA and a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetLimits {
    /// The largest dynamic shared memory of one CTA, in bytes.
    pub shared_bytes: u32,
    /// The number of 32-bit registers of an SM.
    pub registers: u32,
    /// The largest number of registers per thread.
    pub registers_per_thread: u32,
    /// The largest number of threads per CTA.
    pub threads: u32,
    /// The number of named barriers per CTA.
    pub barriers: u32,
    /// The largest portable cluster, in CTAs: every device of the architecture can run it.
    pub cluster: u32,
}

impl TargetLimits {
    /// Bytes of an SM's shared memory that it keeps for each CTA.
    const KEPT: u32 = 1024;

    /// The largest dynamic shared memory of each of several CTAs that an SM has at the same time, in bytes.
    pub const fn shared_bytes_of(&self, ctas: u32) -> u32 {
        let ctas = if ctas == 0 { 1 } else { ctas };
        ((self.shared_bytes + Self::KEPT) / ctas).saturating_sub(Self::KEPT)
    }
}

impl Target {
    /// The name in PTX's `.target`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm90a => "sm_90a",
        }
    }

    /// The PTX version that a printed module has at least, as (major, minor): the oldest that knows the target. A module has
    /// the version that its instructions need: [`Function::version`](crate::Function::version).
    pub const fn version(self) -> (u32, u32) {
        match self {
            Self::Sm90a => (8, 0),
        }
    }

    /// The compute capability (major, minor). Architecture-specific code runs only on devices of exactly this
    /// capability.
    pub const fn compute_capability(self) -> (u32, u32) {
        match self {
            Self::Sm90a => (9, 0),
        }
    }

    /// The device's limits. Source: CUDA programming guide, technical specifications of 9.0.
    pub const fn limits(self) -> TargetLimits {
        match self {
            Self::Sm90a => TargetLimits {
                shared_bytes: 232_448,
                registers: 65_536,
                registers_per_thread: 255,
                threads: 1024,
                barriers: 16,
                cluster: 8,
            },
        }
    }
}
