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
mod needs;
mod operand;
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
        let [m, n, k] = mainloop.tile;
        let consumers = mainloop.consumers;
        if consumers == 0 || consumers > 3 {
            return Err(PlanError::Consumers { consumers });
        }
        let sharing = mainloop.sharing();
        if m == 0 || !m.is_multiple_of(mainloop.atom.rows() * sharing) {
            return Err(PlanError::TileM { m, consumers: sharing });
        }
        ok!(Self::columns(&mainloop, &epilogue));
        ok!(Self::narrowing(&mainloop, &epilogue));
        if needs.consecutive && epilogue.split {
            return Err(PlanError::Rule {
                rule: "the epilogue takes a tile's columns from both halves of N (Split), and the mainloop's NEEDS say that they \
                       follow each other: use Alternating or Blocks<U8>, or load them from `unit.n / 2` on and set \
                       `consecutive: false` in NEEDS",
            });
        }
        if needs.whole_n && mainloop.step > 0 {
            return Err(PlanError::NeedsWholeN { n, step: mainloop.step });
        }
        if !n.is_multiple_of(8 << epilogue.halvings) {
            return Err(PlanError::Halved { n });
        }
        if !n.is_multiple_of(epilogue.needs.columns) {
            return Err(PlanError::Gates { n, block: epilogue.needs.columns });
        }
        let block = epilogue.needs.block;
        if block > 0
            && (!(n >> epilogue.halvings).is_multiple_of(block) || !mainloop.step.is_multiple_of(block))
        {
            return Err(PlanError::Blocks { n, block: block << epilogue.halvings });
        }
        let (columns, bits) = (n >> epilogue.halvings, epilogue.staged_bits);
        if !(columns * bits).is_multiple_of(128) {
            return Err(PlanError::StagedRow { n: columns, bits });
        }
        let step = mainloop.atom.k();
        if k == 0 || !k.is_multiple_of(step) {
            return Err(PlanError::TileK { k, step });
        }
        // What the operands are comes first: it decides more than the roles.
        ok!(mainloop.weighing(&epilogue, form));
        ok!(mainloop.sparsity(&epilogue, form));
        ok!(mainloop.by_threads());
        ok!(mainloop.promotes());
        ok!(mainloop.waving());
        ok!(mainloop.scaling(&epilogue, form));
        if m > 256 {
            return Err(PlanError::Box { extent: "tile M", elements: m });
        }
        if k > 256 {
            return Err(PlanError::Box { extent: "tile K", elements: k });
        }
        ok!(Self::cluster(&mainloop));
        let [rows, columns] = mainloop.cluster;
        if needs.alone && rows * columns > 1 {
            return Err(PlanError::NeedsAlone { m: rows, n: columns });
        }
        let sharers = mainloop.cluster[0];
        if epilogue.split
            && sharers > 1
            && matches!(mainloop.operands[1].major, Major::K)
            && !sharers.is_multiple_of(2)
        {
            return Err(PlanError::Split { ctas: sharers });
        }
        let registers = ok!(RegisterPlan::of(&mainloop, needs, &epilogue, form));
        ok!(Self::formats(&mainloop, &epilogue));
        let [a, b] = ok!(mainloop.tiles(epilogue.split, form));
        let [c, d, e, f] = mainloop.behind(&epilogue, form);
        let rooms = [
            match mainloop.weights() {
                Some(weights) => mainloop.weight_rooms(weights)[0],
                None if mainloop.operands[0].staged => a.room(),
                None => StageSlot::NONE,
            },
            if mainloop.operands[1].staged { b.room() } else { StageSlot::NONE },
        ];
        let ring = RingPlan::of(&[rooms[0], rooms[1], c, d, e, f]);
        let own_bytes = mainloop.own_bytes;
        let own_ring = RingPlan::of(&[mainloop.own_stage]);
        let own_stage = if own_ring.stage_bytes == 0 { 0 } else { own_ring.need(1) };
        let have = Self::TARGET.limits().shared_bytes;
        let staging = ok!(StagingPlan::of(&mainloop, &epilogue));
        let epilogue_bytes = round_up(consumers * staging.buffers * staging.buffer_bytes, 1024);
        let turns = if matches!(mainloop.roles, Roles::Pingpong) { consumers } else { 0 };
        let sources = if epilogue.sourced { consumers * staging.buffers } else { 0 };
        let queue_bytes = entries * (2 * MBARRIER_BYTES + QueuePlan::CHUNK_BYTES)
            + if entries > 0 { QueuePlan::CHUNK_BYTES } else { 0 };
        let table = TablePlan::of(form, groups, Self::sorts(form, &mainloop, &epilogue));
        let words = (turns + sources) * MBARRIER_BYTES + consumers * WORD_BYTES + queue_bytes + table.bytes;
        // The mainloop's own memory begins at a multiple of 1024, after everything else; its own ring at another.
        let left = match (own_bytes, own_stage) {
            (0, 0) => have,
            (_, 0) => have.saturating_sub(own_bytes) / 1024 * 1024,
            _ => have.saturating_sub(round_up(own_bytes, 1024)).saturating_sub(1024),
        };
        let fit = left.saturating_sub(epilogue_bytes + words) / ring.need(1).saturating_add(own_stage);
        // Without a producer, one stage is enough: it is filled and read alternately.
        let alone = matches!(mainloop.roles, Roles::Unspecialised) && !mainloop.atom.by_threads();
        let least = if alone { 1 } else { 2 };
        let stages = match mainloop.stages {
            Some(stages) if stages < least => return Err(PlanError::Stages { stages, least }),
            Some(stages) => stages,
            None => max(least, fit),
        };
        if stages > fit {
            let need = ring.need(stages).saturating_add(epilogue_bytes).saturating_add(own_bytes);
            let need = need.saturating_add(stages.saturating_mul(own_stage));
            return Err(PlanError::Shared { stages, need, have });
        }
        let epilogue_offset = stages * ring.stage_bytes;
        let barrier_offset = epilogue_offset + epilogue_bytes;
        let queue_barriers = barrier_offset + (stages * 2 + turns + sources) * MBARRIER_BYTES;
        let words_offset = queue_barriers + 2 * entries * MBARRIER_BYTES;
        let end = words_offset + consumers * WORD_BYTES;
        let words = if entries > 0 { round_up(end, QueuePlan::CHUNK_BYTES) } else { end };
        let queue = QueuePlan { entries, barriers: queue_barriers, words };
        let table_offset = words + entries * QueuePlan::CHUNK_BYTES;
        let end = table_offset + table.bytes;
        let own_offset = if own_bytes == 0 && own_stage == 0 { end } else { round_up(end, 1024) };
        let own_stages = if own_stage == 0 { 0 } else { stages };
        let own_end = own_offset + own_bytes;
        let own_start = if own_stage == 0 { own_end } else { round_up(own_end, 1024) };
        // Without a producer, the warpgroups that multiply also fill the stages. They wait for each other
        // instead.
        let emptying = match mainloop.roles {
            Roles::Unspecialised => 0,
            Roles::Cooperative | Roles::Pingpong => {
                sharing * mainloop.arrivals.count() * mainloop.suppliers()
            }
        };
        let ([own_ring], shared_bytes) = RingPlan::placed_together([own_ring], [own_stages], own_start);
        let own_ring = own_ring.arrivals(mainloop.filling(), emptying);
        Ok(Self {
            mainloop,
            needs,
            epilogue,
            form,
            operands: [a.at(ring.offset(0)), b.at(ring.offset(1))],
            ring: ring.placed(stages, 0, barrier_offset).arrivals(mainloop.filling(), emptying),
            staging,
            own_offset,
            own_ring,
            epilogue_offset,
            words_offset,
            queue,
            table: table.at(table_offset),
            shared_bytes,
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
        self.mainloop.blocks()
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
