//! A kernel's shared memory: what it keeps beside its stages, how many stages fit, and where everything is.

use super::units::{MBARRIER_BYTES, WORD_BYTES, max, round_up};
use super::{
    EpilogueSpec, MainloopSpec, OperandTile, Plan, PlanError, QueuePlan, RingPlan, Roles, StageSlot,
    StagingPlan, TablePlan,
};
use crate::form::Form;

/// What a kernel keeps in shared memory, before anything has a place.
pub(super) struct Memory {
    ring: RingPlan,
    own_ring: RingPlan,
    /// Bytes of the mainloop's own memory.
    own_bytes: u32,
    consumers: u32,
    /// Bytes of the epilogue's buffers.
    epilogue_bytes: u32,
    /// Mbarriers that order pingpong consumers, and those of the epilogue's buffers.
    barriers: u32,
    /// Entries of the queue.
    entries: u32,
    table: TablePlan,
}

/// Where everything is in shared memory, as the fields of a [`Plan`].
pub(super) struct Placed {
    pub(super) ring: RingPlan,
    pub(super) own_ring: RingPlan,
    pub(super) own_offset: u32,
    pub(super) epilogue_offset: u32,
    pub(super) words_offset: u32,
    pub(super) queue: QueuePlan,
    pub(super) table: TablePlan,
    pub(super) shared_bytes: u32,
}

impl Memory {
    /// What these roles keep, with the stages of `ring`.
    pub(super) const fn of(
        mainloop: &MainloopSpec,
        epilogue: &EpilogueSpec,
        ring: RingPlan,
        staging: StagingPlan,
        table: TablePlan,
        entries: u32,
    ) -> Self {
        let consumers = mainloop.consumers;
        let turns = if matches!(mainloop.roles, Roles::Pingpong) { consumers } else { 0 };
        let sources = if epilogue.sourced { consumers * staging.buffers } else { 0 };
        Self {
            ring,
            own_ring: RingPlan::of(&[mainloop.own_stage]),
            own_bytes: mainloop.own_bytes,
            consumers,
            epilogue_bytes: round_up(consumers * staging.buffers * staging.buffer_bytes, 1024),
            barriers: turns + sources,
            entries,
            table,
        }
    }

    /// Bytes of a stage of the mainloop's own ring, with its mbarriers; 0 if there is none.
    const fn own_stage(&self) -> u32 {
        if self.own_ring.stage_bytes == 0 { 0 } else { self.own_ring.need(1) }
    }

    /// The most stages that fit.
    const fn fit(&self) -> u32 {
        let Self { own_bytes, entries, .. } = *self;
        let (have, own_stage) = (Plan::TARGET.limits().shared_bytes, self.own_stage());
        let queue_bytes = entries * (2 * MBARRIER_BYTES + QueuePlan::CHUNK_BYTES)
            + if entries > 0 { QueuePlan::CHUNK_BYTES } else { 0 };
        let words =
            self.barriers * MBARRIER_BYTES + self.consumers * WORD_BYTES + queue_bytes + self.table.bytes;
        // The mainloop's own memory begins at a multiple of 1024, after everything else; its own ring at another.
        let left = match (own_bytes, own_stage) {
            (0, 0) => have,
            (_, 0) => have.saturating_sub(own_bytes) / 1024 * 1024,
            _ => have.saturating_sub(round_up(own_bytes, 1024)).saturating_sub(1024),
        };
        left.saturating_sub(self.epilogue_bytes + words) / self.ring.need(1).saturating_add(own_stage)
    }

    /// The number of stages: what the spec says, or as many as fit.
    pub(super) const fn stages(&self, mainloop: &MainloopSpec) -> Result<u32, PlanError> {
        let fit = self.fit();
        // Without a producer, one stage is enough: it is filled and read alternately.
        let alone = matches!(mainloop.roles, Roles::Unspecialised) && !mainloop.atom.by_threads();
        let least = if alone { 1 } else { 2 };
        let stages = match mainloop.stages {
            Some(stages) if stages < least => return Err(PlanError::Stages { stages, least }),
            Some(stages) => stages,
            None => max(least, fit),
        };
        if stages > fit {
            let need = self.ring.need(stages).saturating_add(self.epilogue_bytes);
            let need = need.saturating_add(self.own_bytes);
            let need = need.saturating_add(stages.saturating_mul(self.own_stage()));
            return Err(PlanError::Shared { stages, need, have: Plan::TARGET.limits().shared_bytes });
        }
        Ok(stages)
    }

    /// Gives everything its place: stages, the epilogue's buffers, mbarriers, words, the queue, the table, and
    /// last what is the mainloop's own.
    pub(super) const fn placed(&self, stages: u32) -> Placed {
        let Self { ring, own_ring, own_bytes, entries, .. } = *self;
        let own_stage = self.own_stage();
        let epilogue_offset = stages * ring.stage_bytes;
        let barrier_offset = epilogue_offset + self.epilogue_bytes;
        let queue_barriers = barrier_offset + (stages * 2 + self.barriers) * MBARRIER_BYTES;
        let words_offset = queue_barriers + 2 * entries * MBARRIER_BYTES;
        let end = words_offset + self.consumers * WORD_BYTES;
        let words = if entries > 0 { round_up(end, QueuePlan::CHUNK_BYTES) } else { end };
        let table_offset = words + entries * QueuePlan::CHUNK_BYTES;
        let end = table_offset + self.table.bytes;
        let own_offset = if own_bytes == 0 && own_stage == 0 { end } else { round_up(end, 1024) };
        let own_stages = if own_stage == 0 { 0 } else { stages };
        let own_end = own_offset + own_bytes;
        let own_start = if own_stage == 0 { own_end } else { round_up(own_end, 1024) };
        let ([own_ring], shared_bytes) = RingPlan::placed_together([own_ring], [own_stages], own_start);
        Placed {
            ring: ring.placed(stages, 0, barrier_offset),
            own_ring,
            own_offset,
            epilogue_offset,
            words_offset,
            queue: QueuePlan { entries, barriers: queue_barriers, words },
            table: self.table.at(table_offset),
            shared_bytes,
        }
    }
}

impl MainloopSpec {
    /// A stage: the tiles of A and B, as far as they are staged, and what stands behind them.
    pub(super) const fn stage(
        &self,
        [a, b]: [OperandTile; 2],
        epilogue: &EpilogueSpec,
        form: Form,
    ) -> RingPlan {
        let [c, d, e, f] = self.behind(epilogue, form);
        let rooms = [
            match self.weights() {
                Some(weights) => self.weight_rooms(weights)[0],
                None if self.operands[0].staged => a.room(),
                None => StageSlot::NONE,
            },
            if self.operands[1].staged { b.room() } else { StageSlot::NONE },
        ];
        RingPlan::of(&[rooms[0], rooms[1], c, d, e, f])
    }
}
