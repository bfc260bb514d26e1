//! The plan: every number that follows from a kernel's configuration, computed at compile time.
//!
//! [`Plan::new`] is one `const fn` for two callers. A kernel type evaluates it in a constant, so an illegal
//! configuration stops the build with the error's sentence. A tuner calls it at run time and gets the error
//! as a value.

mod atom;
mod checks;
mod cta;
mod error;
mod groups;
mod memory;
mod needs;
mod operand;
mod places;
mod product;
mod queue;
mod registers;
mod ring;
mod scales;
mod sparsity;
mod spec;
mod staging;
mod types;
mod units;
mod waves;
mod weights;

pub use atom::{Atom, Source};
pub use cta::{CtaPlan, Peers};
pub use error::PlanError;
pub use groups::TablePlan;
pub use needs::MainloopNeeds;
pub use operand::{CachePolicy, OperandTile, TileLayout};
pub use places::{element_offset, element_place};
pub use product::{ProductShape, ProductSpec};
pub use queue::QueuePlan;
pub use registers::{RegisterPlan, RoleRegisters};
pub use ring::{RingPlan, StageSlot};
pub use spec::{Arrivals, EpilogueSpec, MainloopSpec, OperandSpec, Producer, Roles, TileNeeds};
pub use staging::StagingPlan;
pub use types::{AccumulatorType, AtomTypes, MmaKind};
pub use weights::WeightsSpec;

use core::ops::Range;

use cute_rs::atom::Major;
use ptx::Target;

use self::memory::Memory;
pub(crate) use self::scales::{
    FETCHED_SCALES, SCALED_K, SCALED_ROWS, granule, scaled_blocks, scales_of_rows,
};
pub(crate) use self::units::{MBARRIER_BYTES, WORD_BYTES};
use self::units::{max, ok, round_up};
use crate::form::Form;

/// Every number of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What the mainloop asks for.
    pub mainloop: MainloopSpec,
    /// What the mainloop needs of the kernel around it.
    pub needs: MainloopNeeds,
    /// What the epilogue asks for.
    pub epilogue: EpilogueSpec,
    /// How many GEMMs a launch computes, and where their matrices are.
    pub form: Form,
    /// A's tile and B's tile, with their offsets in a stage.
    pub operands: [OperandTile; 2],
    /// The ring of stages. After its mbarriers follow those that order pingpong consumers, then those of the
    /// epilogue's buffers if tensor copies load C into them.
    pub ring: RingPlan,
    /// The epilogue's buffers.
    pub staging: StagingPlan,
    /// Offset of the mainloop's own memory in dynamic shared memory, in bytes; a multiple of 1024. It comes
    /// last, so the emulator finds every access beyond its end.
    pub own_offset: u32,
    /// The ring of the mainloop's own ([`MainloopSpec::own_stage`]), after its own memory.
    pub own_ring: RingPlan,
    /// Offset of the epilogue's memory, in bytes.
    pub epilogue_offset: u32,
    /// Offset of the words, one per consumer warpgroup, through which one thread passes a value to the
    /// others; in bytes.
    pub words_offset: u32,
    /// The queue of tile numbers that are drawn while the kernel runs.
    pub queue: QueuePlan,
    /// The table of groups.
    pub table: TablePlan,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: u32,
    /// Threads per CTA.
    pub threads: u32,
    /// Registers per thread, by role.
    pub registers: RegisterPlan,
    /// Whether tiles differ in their number of columns, so that consecutive tiles may use different numbers
    /// of staging buffers.
    pub narrows: bool,
}

impl Plan {
    /// The architecture that all plans are for.
    pub const TARGET: Target = units::TARGET;

    /// The named barriers that are left to a mainloop of your own.
    pub const fn own_barriers(&self) -> Range<u32> {
        self.cta(1, false).own_barriers()
    }

    /// The numbers of the CTA. `parts` CTAs share the K of a tile as a cluster; 1 if none do.
    pub const fn cta(&self, parts: u32, overlaps: bool) -> CtaPlan {
        let MainloopSpec { consumers, producer, roles, .. } = self.mainloop;
        CtaPlan {
            producer: if matches!(roles, Roles::Unspecialised) { None } else { Some(producer) },
            consumers,
            registers: self.registers.roles(),
            shared_bytes: self.shared_bytes,
            cluster: self.cluster_size() * parts,
            resident: 1,
            peers: match (self.cluster_size(), parts) {
                (1, 1) => Peers::Apart,
                (1, _) => Peers::Exchange,
                // Only a mainloop of one's own knows until when its own memory is used.
                (_, 1) if self.own_ring.stages == 0 && self.mainloop.own_bytes == 0 => Peers::Drain,
                _ => Peers::Fill,
            },
            overlaps,
            turns: false,
        }
    }

    /// Works out every number of a kernel for a single GEMM, with a mainloop of this crate.
    ///
    /// # Errors
    /// The first hardware rule that the configuration breaks.
    pub const fn new(mainloop: MainloopSpec, epilogue: EpilogueSpec) -> Result<Self, PlanError> {
        Self::of_form((Form::Single, Form::TABLES[0]), (mainloop, MainloopNeeds::NONE), epilogue, 0)
    }

    /// Works out every number of a kernel of some form, whose table is for this number of groups (one of
    /// [`Form::TABLES`]), with a queue of this number of entries; 0 for no queue. The mainloop's needs are those of its type
    /// ([`Mainloop::NEEDS`](crate::Mainloop::NEEDS)).
    ///
    /// # Errors
    /// The first hardware rule that the configuration breaks.
    pub const fn of_form(
        (form, groups): (Form, u32),
        (mainloop, needs): (MainloopSpec, MainloopNeeds),
        epilogue: EpilogueSpec,
        entries: u32,
    ) -> Result<Self, PlanError> {
        if !form.has_table_of(groups) {
            return Err(PlanError::MostGroups { groups, table: form.has_table() });
        }
        ok!(Self::rows(&mainloop));
        ok!(Self::columns(&mainloop, &epilogue));
        ok!(Self::narrowing(&mainloop, &epilogue));
        ok!(Self::together(&mainloop, needs, &epilogue));
        ok!(mainloop.product().depth());
        // What the operands are comes first: it decides more than the roles.
        ok!(mainloop.weighing(&epilogue, form));
        ok!(mainloop.sparsity(&epilogue, form));
        ok!(mainloop.by_threads());
        ok!(mainloop.promotes());
        ok!(mainloop.waving());
        ok!(mainloop.scaling(&epilogue, form));
        ok!(Self::boxes(&mainloop));
        ok!(Self::cluster(&mainloop));
        ok!(Self::shared_loads(&mainloop, needs, &epilogue));
        let registers = ok!(RegisterPlan::of(&mainloop, needs, &epilogue, form));
        ok!(Self::formats(&mainloop, &epilogue));
        let [a, b] = ok!(mainloop.tiles(epilogue.split, form));
        let ring = mainloop.stage([a, b], &epilogue, form);
        let staging = ok!(StagingPlan::of(&mainloop, &epilogue));
        let table = TablePlan::of(form, groups, Self::sorts(form, &mainloop, &epilogue));
        let memory = Memory::of(&mainloop, &epilogue, ring, staging, table, entries);
        let stages = ok!(memory.stages(&mainloop));
        let placed = memory.placed(stages);
        let (filling, emptying) = (mainloop.filling(), mainloop.emptying());
        Ok(Self {
            mainloop,
            needs,
            epilogue,
            form,
            operands: [a.at(ring.offset(0)), b.at(ring.offset(1))],
            ring: placed.ring.arrivals(filling, emptying),
            staging,
            own_offset: placed.own_offset,
            own_ring: placed.own_ring.arrivals(filling, emptying),
            epilogue_offset: placed.epilogue_offset,
            words_offset: placed.words_offset,
            queue: placed.queue,
            table: placed.table,
            shared_bytes: placed.shared_bytes,
            threads: 128 * mainloop.warpgroups(),
            registers,
            narrows: mainloop.step > 0,
        })
    }

    /// The plan of a constant configuration with a mainloop of this crate. An illegal one stops the build with
    /// its sentence.
    ///
    /// # Panics
    /// At compile time, with the error's sentence.
    pub const fn checked(mainloop: MainloopSpec, epilogue: EpilogueSpec) -> Self {
        Self::checked_of(Form::Single, mainloop, epilogue, 0)
    }

    /// As [`checked`](Self::checked) for a kernel of some form, with a queue of this number of entries; 0 for no
    /// queue.
    ///
    /// # Panics
    /// At compile time, with the error's sentence.
    pub const fn checked_of(
        form: Form,
        mainloop: MainloopSpec,
        epilogue: EpilogueSpec,
        entries: u32,
    ) -> Self {
        match Self::of_form((form, Form::TABLES[0]), (mainloop, MainloopNeeds::NONE), epilogue, entries) {
            Ok(plan) => plan,
            Err(error) => panic!("{}", error.sentence().as_str()),
        }
    }

    /// The plan of what a warpgroup stores at a time when it stores a tile in parts: 64 rows per warpgroup
    /// that shares the tile, and `columns` columns. If the epilogue stages its output, the number of columns
    /// is that of one buffer.
    pub(crate) const fn narrowed(&self, columns: u32) -> Self {
        let Self { mut mainloop, epilogue, staging, .. } = *self;
        let staged = epilogue.staged_bits > 0;
        let stored = if staged { staging.columns } else { columns };
        // Columns that the epilogue joins stay in one part.
        let least = max(8 << epilogue.halvings, epilogue.needs.columns);
        let columns = max(if staged { stored << epilogue.halvings } else { stored }, least);
        let divides = mainloop.tile[1].is_multiple_of(columns);
        mainloop.tile[0] = mainloop.atom.rows() * mainloop.sharing();
        mainloop.tile[1] = if divides { columns } else { least };
        mainloop.step = 0;
        Self { mainloop, ..*self }
    }

    /// Number of columns that the epilogue stores at a time: the columns that a store writes are a multiple of
    /// this, up to the edge of D.
    pub const fn stored_columns(&self) -> u32 {
        let Self { epilogue, staging, .. } = *self;
        max(staging.columns << epilogue.halvings, epilogue.needs.columns)
    }

    /// The plan of a tile of which only the first `columns` are computed. Its width is `columns` rounded up
    /// to what the epilogue stores at a time.
    pub(crate) const fn as_wide_as(&self, columns: u32) -> Self {
        let mut mainloop = self.mainloop;
        let wide = round_up(columns, self.stored_columns());
        if wide < mainloop.tile[1] {
            mainloop.tile[1] = wide;
        }
        mainloop.step = 0;
        Self { mainloop, ..*self }
    }

    /// The product of A's tile and B's.
    pub const fn product(&self) -> ProductSpec {
        ProductSpec::planned(self.mainloop.product(), self.operands)
    }

    /// Number of CTAs per cluster.
    pub const fn cluster_size(&self) -> u32 {
        self.mainloop.cluster[0] * self.mainloop.cluster[1]
    }

    /// Number of CTAs that load operands into this CTA's shared memory: those of its row and its column,
    /// including itself.
    pub const fn suppliers(&self) -> u32 {
        self.mainloop.suppliers()
    }

    /// Number of pingpong consumers, which alternate; 0 if the consumers share each tile.
    pub const fn turns(&self) -> u32 {
        if matches!(self.mainloop.roles, Roles::Pingpong) { self.mainloop.consumers } else { 0 }
    }

    /// Offset of the mbarriers that order pingpong consumers, in bytes of dynamic shared memory.
    pub const fn turns_offset(&self) -> u32 {
        self.ring.barriers + self.ring.barrier_bytes()
    }

    /// Offset of the mbarriers of the epilogue's buffers, in bytes, consumer warpgroup by consumer warpgroup.
    pub const fn source_barriers_offset(&self) -> u32 {
        self.turns_offset() + self.turns() * MBARRIER_BYTES
    }

    /// Number of mbarriers of the epilogue's buffers.
    pub const fn source_barriers(&self) -> u32 {
        if self.epilogue.sourced { self.mainloop.consumers * self.staging.buffers } else { 0 }
    }

    /// Whether groups of rows are cut into tiles of nearly equal width, and the largest are assigned first.
    /// True if the kernel narrows its tiles along the direction in which groups follow each other, and its
    /// cluster has one CTA along N.
    pub const fn balanced(&self) -> bool {
        Self::sorts(self.form, &self.mainloop, &self.epilogue)
    }

    /// Most groups of a launch: those of the table, and [`Form::MOST_GROUPS`] for forms without one.
    pub const fn most_groups(&self) -> u32 {
        if self.form.has_table() { self.table.groups } else { Form::MOST_GROUPS }
    }

    /// As [`balanced`](Self::balanced), before there is a plan.
    const fn sorts(form: Form, mainloop: &MainloopSpec, epilogue: &EpilogueSpec) -> bool {
        mainloop.step > 0 && epilogue.transposed && form.shares_rows() && mainloop.cluster[1] == 1
    }

    /// Whether the kernel uses swap-AB, that is, computes the transpose of D. Its operand A is the caller's
    /// B, and its rows are the caller's columns.
    pub const fn swapped(&self) -> bool {
        self.epilogue.transposed
    }

    /// A pair of what belongs to A and B, or to M and N, from the kernel's order to the caller's, and the other
    /// way round: exchanged under swap-AB.
    pub const fn oriented<T: Copy>(&self, [first, second]: [T; 2]) -> [T; 2] {
        if self.swapped() { [second, first] } else { [first, second] }
    }

    /// The caller's A and B.
    pub const fn call_operands(&self) -> [OperandSpec; 2] {
        self.oriented(self.mainloop.operands)
    }

    /// Whether a call gives the caller's A and its B as matrices.
    pub const fn given(&self) -> [bool; 2] {
        let ([a, b], [of_a, of_b]) = (self.mainloop.operands, self.needs.matrices);
        self.oriented([a.staged && of_a, b.staged && of_b])
    }

    /// The contiguous directions of the caller's A and B.
    pub const fn majors(&self) -> [Major; 2] {
        let [a, b] = self.call_operands();
        [a.major, b.major]
    }

    /// Whether the kernel's operand A, and its operand B, is a batch: one matrix per GEMM, at a fixed
    /// distance from the one before.
    pub const fn operand_batches(&self) -> [bool; 2] {
        self.oriented(self.form.operands())
    }

    /// Whether the rows of the kernel's operand A, and of B, are consecutive groups (ragged or masked).
    pub const fn shares_rows(&self) -> [bool; 2] {
        self.oriented([self.form.shares_rows(), false])
    }

    /// What N must be a multiple of if a tile has columns of both halves of N. Pairs of columns must stay
    /// together in each half; if B is N-major, both halves must begin at an address that copies accept.
    pub const fn split_step(&self) -> u32 {
        let MainloopSpec { operands: [_, b], producer, .. } = self.mainloop;
        let bits = b.format.bits();
        match b.major {
            Major::Mn => 2 * max(2, producer.alignment(bits) * 8 / bits),
            Major::K => 4,
        }
    }

    /// Bytes of one pair of tensor maps, A's and B's.
    pub(crate) const MAP_PAIR_BYTES: u32 = 256;

    /// Number of pairs of tensor maps per CTA in a kernel that modifies them: see `mainloop/maps.rs`.
    pub(crate) const fn map_pairs(&self) -> u32 {
        self.ring.stages + 1
    }

    /// Bytes of the tensor maps that each CTA keeps in global memory; 0 if the host makes all maps.
    pub const fn map_bytes(&self) -> u32 {
        let by_copies = matches!(self.mainloop.producer, Producer::Thread);
        if self.form.described() && by_copies { self.map_pairs() * Self::MAP_PAIR_BYTES } else { 0 }
    }

    /// Number of blocks of the tile that one consumer warpgroup computes. A block is the rows of one
    /// instruction.
    pub const fn blocks(&self) -> u32 {
        self.mainloop.product().blocks()
    }

    /// Rows per block.
    pub const fn block_rows(&self) -> u32 {
        self.mainloop.atom.rows()
    }

    /// Columns of D per tile.
    pub const fn output_tile_n(&self) -> u32 {
        self.mainloop.tile[1] >> self.epilogue.halvings
    }
}
