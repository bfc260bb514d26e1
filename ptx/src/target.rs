//! The machines that programs are written for, and their hard limits.

/// An instruction set and the device limits that go with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// Hopper with its architecture-specific instructions, compute capability 9.0.
    Sm90a,
}

/// Hard limits of one multiprocessor and one CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of shared memory that one CTA may ask for.
    pub shared_bytes: u32,
    /// 32-bit registers of a multiprocessor.
    pub registers: u32,
    /// Most registers of one thread.
    pub registers_per_thread: u32,
    /// Most threads of a CTA.
    pub threads: u32,
    /// Named barriers of a CTA.
    pub barriers: u32,
    /// Most CTAs of a cluster that every device runs.
    pub cluster: u32,
}

impl Target {
    /// The name in PTX's `.target`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sm90a => "sm_90a",
        }
    }

    /// The PTX version the printer writes: the oldest that has every instruction of the set.
    pub const fn version(self) -> (u32, u32) {
        match self {
            Self::Sm90a => (8, 4),
        }
    }

    /// The compute capability that runs it; architecture-specific code runs on no other.
    pub const fn compute_capability(self) -> (u32, u32) {
        match self {
            Self::Sm90a => (9, 0),
        }
    }

    /// The device's limits. Source: CUDA programming guide, technical specifications of 9.0.
    pub const fn limits(self) -> Limits {
        match self {
            Self::Sm90a => Limits {
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
