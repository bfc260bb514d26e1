//! Registers per thread: how each role's share follows from the number a CTA is launched with.

use cute_rs::atom::Major;

use super::units::{TARGET, max, round_up};
use super::{AtomTypes, EpilogueSpec, MainloopNeeds, MainloopSpec, PlanError, Producer, Roles};
use crate::form::Form;

/// Registers per thread: at launch, then by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterPlan {
    /// Registers every thread is launched with.
    pub launch: u32,
    /// Registers a producer thread keeps.
    pub producer: u32,
    /// Registers a consumer thread raises itself to (`setmaxnreg`).
    pub consumer: u32,
    /// Accumulator registers of a consumer thread.
    pub accumulators: u32,
}

/// Registers per thread of each role of a CTA, and at launch.
///
/// ```
/// use collective::RoleRegisters;
///
/// let registers = RoleRegisters::divided(2, Some(24));
/// assert_eq!(registers, RoleRegisters { launch: 168, producer: 24, consumer: 240 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleRegisters {
    /// Registers every thread is launched with.
    pub launch: u32,
    /// Registers a thread of the producer warpgroup keeps; 0 without one.
    pub producer: u32,
    /// Registers a consumer thread raises itself to (`setmaxnreg`).
    pub consumer: u32,
}

/// Registers that a consumer needs for addresses and loop state. Measured with ptxas: the largest accumulator
/// tiles that assemble without a spill leave about this many.
const WORKING: u32 = 32;

/// As `WORKING`, if threads store elements themselves: always, or in tiles that end inside a group.
const STORES: u32 = 64;

/// As `WORKING`, for a transposed store: the rows of a tile are D's columns.
const STORES_TRANSPOSED: u32 = 80;

/// Registers that a `wgmma` needs in addition to its accumulators, as ptxas 13.0 reports for instructions
/// that are too wide (C7602).
const INSTRUCTION: u32 = 26;

/// Registers of a thread that starts copies: the fewest that `setmaxnreg` allows.
const STARTS_COPIES: u32 = 24;

/// As `STARTS_COPIES`, where 24 may not suffice. Measured with ptxas, on random kernels.
const STARTS_MANY_COPIES: u32 = 48;

/// Additional registers of a consumer that starts the copies itself. Measured with ptxas.
const STARTS_OWN_COPIES: u32 = 16;

/// Additional registers of a thread that multiplies by `fma`, for the columns of B that it has loaded.
/// Measured with ptxas.
const COLUMNS_LOADED: u32 = 24;

/// Additional registers of the same thread for the rows of A, per block.
const ROWS_LOADED: u32 = 12;

/// Additional registers of a consumer if a stage has several slabs along K, for their addresses. Measured
/// with ptxas.
const SLABS: u32 = 16;

/// Registers of a thread that copies: it holds some chunks, element by element, between loads and stores.
const COPIES: u32 = 104;

/// As `COPIES`, for 8-bit elements, which take more steps to join into words, and for tiles of several slabs
/// along K.
const COPIES_MORE: u32 = 144;

/// Spare registers that a consumer must have beyond its need before the producer may keep more than the
/// fewest.
const SPARE: u32 = 8;

/// Most registers that a consumer raises itself to.
const MOST: u32 = 240;

impl RoleRegisters {
    /// The registers of a CTA with `consumers` consumer warpgroups: each consumer raises itself to the most that is left if
    /// the threads of a producer warpgroup keep `producer`. `None`: there is no producer.
    pub const fn divided(consumers: u32, producer: Option<u32>) -> Self {
        Self::divided_among(1, consumers, producer)
    }

    /// The same of one of `ctas` such CTAs that an SM has at the same time.
    ///
    /// ```
    /// use collective::RoleRegisters;
    ///
    /// let registers = RoleRegisters::divided_among(2, 1, Some(24));
    /// assert_eq!(registers, RoleRegisters { launch: 128, producer: 24, consumer: 232 });
    /// ```
    pub const fn divided_among(ctas: u32, consumers: u32, producer: Option<u32>) -> Self {
        let warpgroups = consumers + producer.is_some() as u32;
        let ctas = if ctas == 0 { 1 } else { ctas };
        let per_thread = TARGET.limits().registers / (ctas * warpgroups * 128) / 8 * 8;
        let launch = if per_thread > 248 { 248 } else { per_thread };
        let (producer, consumer) = match producer {
            None => (0, launch),
            Some(producer) => (producer, (launch * warpgroups).saturating_sub(producer) / consumers / 8 * 8),
        };
        Self { launch, producer, consumer: if consumer > MOST { MOST } else { consumer } }
    }
}

impl RegisterPlan {
    /// The same by role, without the accumulators.
    pub const fn roles(&self) -> RoleRegisters {
        let Self { launch, producer, consumer, .. } = *self;
        RoleRegisters { launch, producer, consumer }
    }

    pub(super) const fn of(
        mainloop: &MainloopSpec,
        needs: MainloopNeeds,
        epilogue: &EpilogueSpec,
        form: Form,
    ) -> Result<Self, PlanError> {
        let launch = mainloop.divided(0).launch;
        // Before ptxas knows which role raises its number of registers, each instruction must fit into the
        // registers of the launch.
        let instruction = mainloop.atom.accumulators(mainloop.product().widest()) + INSTRUCTION;
        if instruction > launch {
            let consumers = mainloop.consumers;
            return Err(PlanError::Registers { need: instruction, have: launch, consumers });
        }
        // Registers of what the epilogue receives. Packed `f16` accumulators are unpacked when all is
        // multiplied; others are passed on as they are.
        let accumulators =
            mainloop.product().blocks() * mainloop.product().block_sums() * mainloop.atom.sums().registers();
        let added = mainloop.atom.promote > 0 || mainloop.is_scaled();
        let promoted = if added { mainloop.product().accumulators() } else { 0 } + mainloop.scale_registers();
        let beside = mainloop.beside_sums() + mainloop.weight_registers() + mainloop.metadata_registers();
        let both = accumulators + promoted + beside;
        // What a mainloop of one's own holds while it multiplies is dead when the epilogue stores, and so are the
        // accumulators that waves share.
        let multiplying = both + mainloop.registers + WORKING;
        let dead = if mainloop.waves > 1 { promoted } else { 0 };
        let storing = both - dead + max(epilogue.working(form), epilogue.registers);
        let need = max(multiplying, storing);
        let producer = match mainloop.producer {
            Producer::Thread if mainloop.shares_groups(form) => STARTS_MANY_COPIES,
            Producer::Thread
                if mainloop.starts_many_copies()
                    && mainloop.divided(STARTS_MANY_COPIES).consumer >= need + SPARE =>
            {
                STARTS_MANY_COPIES
            }
            Producer::Thread => STARTS_COPIES,
            Producer::Warpgroup if mainloop.copies_piecemeal() => COPIES_MORE,
            Producer::Warpgroup => COPIES,
        };
        let producer = max(producer, round_up(needs.producer, 8));
        let consumer = mainloop.divided(producer).consumer;
        if producer > launch {
            // A producer can give up registers, not get more.
            let consumers = mainloop.consumers;
            return Err(PlanError::Copies { need: producer, have: launch, consumers });
        }
        if need > consumer {
            return Err(PlanError::Registers { need, have: consumer, consumers: mainloop.consumers });
        }
        Ok(Self { launch, producer, consumer, accumulators })
    }
}

impl EpilogueSpec {
    /// Registers that a consumer needs in addition to its accumulators, before what the epilogue computes.
    const fn working(&self, form: Form) -> u32 {
        match (self.staged_bits, form) {
            (0, _) if self.transposed => STORES_TRANSPOSED,
            (0, _) | (_, Form::GroupedContiguous | Form::GroupedMasked | Form::PointerArray) => STORES,
            (_, Form::Single | Form::Batched | Form::KGrouped) => WORKING,
        }
    }
}

impl MainloopSpec {
    /// As [`RoleRegisters::divided`].
    const fn divided(&self, producer: u32) -> RoleRegisters {
        let specialised = !matches!(self.roles, Roles::Unspecialised);
        RoleRegisters::divided(self.consumers, if specialised { Some(producer) } else { None })
    }

    /// Registers of a consumer for the addresses of a stage's slabs, and for the copies if it starts them
    /// itself.
    const fn beside_sums(&self) -> u32 {
        let slabs = if self.slabs_along_k() > 1 { SLABS } else { 0 };
        match self.roles {
            Roles::Unspecialised if matches!(self.atom.types, AtomTypes::Simt) => {
                STARTS_OWN_COPIES + COLUMNS_LOADED + ROWS_LOADED * self.product().blocks()
            }
            Roles::Unspecialised if self.atom.by_threads() => STARTS_OWN_COPIES,
            Roles::Unspecialised => slabs + STARTS_OWN_COPIES,
            Roles::Cooperative | Roles::Pingpong => slabs,
        }
    }

    /// Largest number of slabs along K of an operand's tile. Each slab has its own coordinates and addresses.
    const fn slabs_along_k(&self) -> u32 {
        let [m, n, k] = self.tile;
        let [a, b] = self.operands;
        max(
            if matches!(a.major, Major::K) { a.slabs(m, k) } else { 1 },
            if matches!(b.major, Major::K) { b.slabs(n, k) } else { 1 },
        )
    }

    /// Whether threads that copy have to join bytes, or have several slabs along K.
    const fn copies_piecemeal(&self) -> bool {
        self.operands[0].format.bits() < 16 || self.slabs_along_k() > 1
    }

    /// Whether the addresses and coordinates of a stage's copies may need more than the fewest registers.
    const fn starts_many_copies(&self) -> bool {
        let [m, n, k] = self.tile;
        let [a, b] = self.operands;
        self.slabs_along_k() > 2 || a.slabs(m, k) + b.slabs(n, k) > 8
    }

    /// Whether the CTAs of a cluster share operands through tensor maps that the kernel modifies.
    const fn shares_groups(&self, form: Form) -> bool {
        matches!(form, Form::PointerArray) && self.cluster[0] * self.cluster[1] > 1
    }
}
