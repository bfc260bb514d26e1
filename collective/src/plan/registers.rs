//! Registers of a thread: what each role has of those that a CTA is launched with.

use cute_rs::atom::Major;

use super::units::{TARGET, max};
use super::{AtomTypes, EpilogueSpec, MainloopSpec, PlanError, Producer, Roles};
use crate::form::Form;

/// Registers of a thread: at the launch, then by role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterPlan {
    /// What every thread is launched with.
    pub launch: u32,
    /// What a producer thread keeps.
    pub producer: u32,
    /// What a consumer thread raises itself to.
    pub consumer: u32,
    /// Accumulators of a consumer thread.
    pub accumulators: u32,
}

/// Registers that a consumer needs for addresses and loop state. Measured with ptxas: the largest accumulator
/// tiles that assemble without a spill leave about this many.
const WORKING: u32 = 32;

/// The same where threads store elements themselves, always or in tiles that end inside of a group.
const STORES: u32 = 64;

/// The same where rows of a tile are D's columns.
const STORES_TRANSPOSED: u32 = 80;

/// Registers that a `wgmma` needs beside its accumulators: what ptxas 13.0 says of too wide ones (C7602).
const INSTRUCTION: u32 = 26;

/// What a thread keeps that starts copies: the fewest that `setmaxnreg` allows.
const STARTS_COPIES: u32 = 24;

/// What it keeps where 24 may not suffice. Measured with ptxas, on random kernels.
const STARTS_MANY_COPIES: u32 = 48;

/// What a consumer needs more where it starts the copies itself. Measured with ptxas.
const STARTS_OWN_COPIES: u32 = 16;

/// What a thread needs more that multiplies by plain instructions: the columns of B that it has loaded. Measured with ptxas.
const COLUMNS_LOADED: u32 = 24;

/// The same of A, in each block.
const ROWS_LOADED: u32 = 12;

/// What a consumer needs more where a stage has several slabs along K: where each begins. Measured with ptxas.
const SLABS: u32 = 16;

/// What a thread keeps that copies itself: it holds some chunks, element by element, between loads and stores.
const COPIES: u32 = 104;

/// The same for bytes, which are joined to words in more steps, and for tiles of several slabs along K.
const COPIES_MORE: u32 = 144;

/// What a consumer would rather have beyond its need than have the producer keep more than the fewest.
const SPARE: u32 = 8;

/// The most that a consumer raises itself to.
const MOST: u32 = 240;

impl RegisterPlan {
    pub(super) const fn of(
        mainloop: &MainloopSpec,
        epilogue: &EpilogueSpec,
        form: Form,
    ) -> Result<Self, PlanError> {
        let warpgroups = mainloop.warpgroups();
        let per_thread = TARGET.limits().registers / (warpgroups * 128) / 8 * 8;
        let launch = if per_thread > 248 { 248 } else { per_thread };
        // Before it knows who raises its share, ptxas wants each instruction to fit into the registers of the launch.
        let instruction = mainloop.atom.accumulators(mainloop.widest()) + INSTRUCTION;
        if instruction > launch {
            let consumers = mainloop.consumers;
            return Err(PlanError::Registers { need: instruction, have: launch, consumers });
        }
        // What is handed on: registers that hold two sums are taken apart when all is multiplied, others are these sums.
        let accumulators = mainloop.blocks() * mainloop.block_sums() * mainloop.atom.sums().registers();
        let promoted =
            if mainloop.atom.promote > 0 { mainloop.accumulators() } else { mainloop.scale_registers() };
        let working = max(epilogue.working(form), epilogue.registers);
        let beside = mainloop.beside_sums() + mainloop.weight_registers() + mainloop.metadata_registers();
        let need = accumulators + promoted + mainloop.registers + working + beside;
        let producer = match mainloop.producer {
            Producer::Thread if mainloop.shares_groups(form) => STARTS_MANY_COPIES,
            Producer::Thread
                if mainloop.starts_many_copies()
                    && mainloop.left(launch, STARTS_MANY_COPIES) >= need + SPARE =>
            {
                STARTS_MANY_COPIES
            }
            Producer::Thread => STARTS_COPIES,
            Producer::Warpgroup if mainloop.copies_piecemeal() => COPIES_MORE,
            Producer::Warpgroup => COPIES,
        };
        let consumer = mainloop.left(launch, producer);
        if producer > launch {
            // Producers give registers away, they are given none.
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
    /// Registers that a consumer needs beside its accumulators, whatever it computes.
    const fn working(&self, form: Form) -> u32 {
        match (self.staged_bits, form) {
            (0, _) if self.transposed => STORES_TRANSPOSED,
            (0, _) | (_, Form::Ragged | Form::Masked | Form::Grouped) => STORES,
            (_, Form::Single | Form::Batched) => WORKING,
        }
    }
}

impl MainloopSpec {
    /// What a consumer thread can have where a thread of the producer keeps so many.
    const fn left(&self, launch: u32, producer: u32) -> u32 {
        let consumer = match self.roles {
            Roles::Unspecialised => launch,
            Roles::Cooperative | Roles::Pingpong => {
                (launch * self.warpgroups() - producer) / self.consumers / 8 * 8
            }
        };
        if consumer > MOST { MOST } else { consumer }
    }

    /// What a consumer needs for where a stage's slabs begin, and for the copies where it starts them itself.
    const fn beside_sums(&self) -> u32 {
        let slabs = if self.slabs_along_k() > 1 { SLABS } else { 0 };
        match self.roles {
            Roles::Unspecialised if matches!(self.atom.types, AtomTypes::Simt) => {
                STARTS_OWN_COPIES + COLUMNS_LOADED + ROWS_LOADED * self.blocks()
            }
            Roles::Unspecialised if self.atom.by_threads() => STARTS_OWN_COPIES,
            Roles::Unspecialised => slabs + STARTS_OWN_COPIES,
            Roles::Cooperative | Roles::Pingpong => slabs,
        }
    }

    /// Most slabs along K of an operand's tile: each has coordinates and addresses of its own.
    const fn slabs_along_k(&self) -> u32 {
        let [m, n, k] = self.tile;
        let [a, b] = self.operands;
        max(
            if matches!(a.major, Major::K) { a.slabs(m, k) } else { 1 },
            if matches!(b.major, Major::K) { b.slabs(n, k) } else { 1 },
        )
    }

    /// Whether threads that copy join bytes, or have several slabs along K.
    const fn copies_piecemeal(&self) -> bool {
        self.operands[0].format.bits() < 16 || self.slabs_along_k() > 1
    }

    /// Whether the addresses and coordinates of a stage's copies may be more than the fewest registers hold.
    const fn starts_many_copies(&self) -> bool {
        let [m, n, k] = self.tile;
        let [a, b] = self.operands;
        self.slabs_along_k() > 2 || a.slabs(m, k) + b.slabs(n, k) > 8
    }

    /// Whether a cluster shares what it copies by tensor maps that the kernel changes.
    const fn shares_groups(&self, form: Form) -> bool {
        matches!(form, Form::Grouped) && self.cluster[0] * self.cluster[1] > 1
    }
}
