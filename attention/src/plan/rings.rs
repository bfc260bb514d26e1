//! The rings of a kernel: how many blocks of Q, K and V shared memory holds.

use collective::{Arrivals, Format, OperandTile, QueuePlan, RingPlan, StageSlot, TileLayout};
use cute_rs::atom::Major;

use super::{AttentionPlan, HalvesPlan, NarrowPlan, Tiles, of_bytes, refused};
use crate::error::AttentionError;
use crate::head;
use crate::spec::{AttentionSpec, Order, Parts};

/// Elements of 8 bits that a thread converts together: 16 bytes.
pub(crate) const CHUNK: u32 = 16;

/// Warps that convert.
pub(crate) const CONVERTERS: u32 = 3;

/// Most blocks of K, and of V, that are loaded and not yet converted, if there are two; and if only V is converted.
const MOST_NARROW: [u32; 2] = [8, 2];

/// Most blocks of K, and of V, that are planned if the spec leaves the number open.
const MOST_STAGES: u32 = 4;

/// Bytes of small blocks of parts of the keys that an SM loads at the same time, and most bytes of such a block: one query reads a long cache
/// once, and if more is asked for, all of it comes late. On an H200, blocks of 64 keys (`1x12/2x1x27824`, `4x64/8x1x3824`, `1x40/8x1x47122`)
/// took 12.6, 20.6 and 49.6 us with 64 KB, 12.8, 20.7 and 49.7 with 96, and 13.1, 21.1 and 50.3 with 144; blocks of 48 with 48 KB 12.9, 21.2
/// and 51.0; and blocks of 96 with 96 KB 12.9, 20.9 and 49.1, with 168 KB 13.3, 21.1 and 50.2.
const IN_FLIGHT: u32 = 64 << 10;
pub(crate) const SMALL: u32 = 48 << 10;

impl NarrowPlan {
    /// The blocks as they are in memory, whose rings have no place yet; `None` if none are converted. `dv` are the columns of V.
    pub(super) fn of(spec: &AttentionSpec, dv: u32) -> Result<Option<Self>, AttentionError> {
        if !spec.is_scaled() {
            return Ok(None);
        }
        let ([d, dv], [_, keys], bytes) = ([spec.head[0], dv].map(head::padded), spec.tile, of_bytes(spec));
        let tile = |d| OperandTile::new(Format::E4m3, Major::K, [keys, d], TileLayout::Widest);
        let (k, v) = (tile(d)?, tile(dv)?);
        let rings =
            [if bytes { RingPlan::of(&[]) } else { RingPlan::of(&[k.room()]) }, RingPlan::of(&[v.room()])];
        Ok(Some(Self { tiles: [if bytes { None } else { Some(k) }, Some(v)], rings }))
    }
}

/// The rings of Q, K and V, and of blocks that are converted, before they have a place.
pub(super) struct Rings<'s> {
    spec: &'s AttentionSpec,
    q: RingPlan,
    k: RingPlan,
    v: RingPlan,
    narrow: Option<[RingPlan; 2]>,
    /// Stages of K that a block takes.
    slabs: u32,
    /// Entries of the queue of tiles.
    entries: u32,
    /// Bytes of what two consumers with the same queries tell each other.
    exchanged: u32,
    /// Bytes of shared memory for the rings.
    have: u32,
}

/// What has its place in shared memory.
pub(super) struct Placed {
    /// The rings of Q, K and V, and of K and V before they are converted.
    pub(super) rings: [RingPlan; 5],
    /// Offset of what consumers tell each other.
    pub(super) exchange: u32,
    pub(super) queue: QueuePlan,
    pub(super) shared_bytes: u32,
}

impl<'s> Rings<'s> {
    pub(super) fn of(
        spec: &'s AttentionSpec,
        tiles: &Tiles,
        narrow: Option<NarrowPlan>,
        consumers: u32,
    ) -> Self {
        let (latent, halved) = (spec.is_latent(), spec.is_halved());
        let entries = if matches!(spec.order, Order::Drawn) { QueuePlan::ENTRIES } else { 0 };
        let (_, of_queue) = QueuePlan::placed(entries, 0);
        let exchanged = if halved { 2 * consumers * HalvesPlan::NUMBERS } else { 0 };
        let (slabs, of_block) = (if halved { HalvesPlan::slabs(spec) } else { 1 }, tiles.k.room());
        Self {
            spec,
            q: RingPlan::of(&[tiles.q.room()]),
            k: RingPlan::of(&[StageSlot { bytes: of_block.bytes / slabs, ..of_block }]),
            v: if latent { RingPlan::of(&[]) } else { RingPlan::of(&[tiles.v.room()]) },
            narrow: narrow.map(|narrow| narrow.rings),
            slabs,
            entries,
            exchanged,
            have: AttentionPlan::TARGET.limits().shared_bytes_of(spec.ctas) - of_queue - exchanged,
        }
    }

    /// Bytes of a block of K and of V.
    fn each(&self) -> u32 {
        self.k.need(self.slabs) + self.v.need(1)
    }

    /// Bytes of a block of K and of V without mbarriers.
    fn block_bytes(&self) -> u32 {
        self.slabs * self.k.stage_bytes + self.v.stage_bytes
    }

    /// Whether blocks are small, and those of 64 queries, or of one with the heads that share keys, and of parts of keys, or of CTAs that share an SM.
    fn reads_once(&self) -> bool {
        let AttentionSpec { parts, pages, ctas, tile: [rows, _], .. } = *self.spec;
        let small = rows == 64 && self.block_bytes() <= SMALL;
        let divided = parts != Parts::One || ctas > 1;
        small && divided && pages.is_none() && self.narrow.is_none() && !self.spec.is_halved()
    }

    /// Bytes of a block of K and of V before they are converted; 0 if none are.
    fn one_narrow(&self) -> u32 {
        self.narrow.map_or(0, |[k, v]| k.need(1) + v.need(1))
    }

    /// The number of blocks of K and V: what the spec says, or as many as are of use.
    pub(super) fn stages(&self) -> Result<u32, AttentionError> {
        let (have, each, one_q, two_q) = (self.have, self.each(), self.q.need(1), self.q.need(2));
        let stages = match self.spec.stages {
            Some(stages) => stages,
            // Converted blocks are multiplied at once; those that are loaded hide the latency.
            None if self.narrow.is_some() => 2,
            None if self.spec.is_halved() => HalvesPlan::BLOCKS,
            None if self.reads_once() => {
                (IN_FLIGHT / self.spec.ctas).div_ceil(self.block_bytes()).clamp(2, MOST_STAGES)
            }
            // Two tiles of Q, so that the next one is loaded in time, if that leaves two stages.
            None if two_q + 2 * each <= have => ((have - two_q) / each).min(MOST_STAGES),
            None => 2,
        };
        if stages == 0 || stages > 16 {
            return Err(refused("stages", stages, "1 to 16"));
        }
        let need = one_q + stages * each;
        if need > have {
            return Err(AttentionError::SharedMemory { stages, need, have });
        }
        let need = need + self.one_narrow();
        if need > have {
            return Err(AttentionError::SharedMemory { stages, need, have });
        }
        Ok(stages)
    }

    /// The number of stages of each ring, if there are this many blocks of K and V.
    pub(super) fn counts(&self, stages: u32) -> [u32; 5] {
        let Self { spec, have, .. } = *self;
        let (bytes, each, one) = (of_bytes(spec), self.each(), self.one_narrow());
        // A cluster has one tile of queries.
        let next = spec.parts.of_cluster() == 1 && self.q.need(2) + stages * each + 2 * one <= have;
        let queries = if next { 2 } else { 1 };
        let in_flight = match self.narrow {
            Some(_) => {
                ((have - self.q.need(queries) - stages * each) / one).min(MOST_NARROW[usize::from(bytes)])
            }
            None => 0,
        };
        // One block of K more, if that fits: it is needed before the values of the block before it.
        let need = self.q.need(queries) + stages * each + in_flight * one + self.k.need(1);
        let more = spec.stages.is_none() && spec.cache.is_none() && !self.reads_once() && need <= have;
        let [k_stages, v_stages] = match more {
            _ if spec.is_latent() => [stages * self.slabs, 0],
            _ if spec.is_halved() => [stages * self.slabs, stages],
            true => [stages + 1, stages],
            false => [stages; 2],
        };
        [queries, k_stages, v_stages, if bytes { 0 } else { in_flight }, in_flight]
    }

    /// Gives the rings with these numbers of stages their place, and what follows them.
    pub(super) fn placed(&self, counts: [u32; 5], consumers: u32) -> Placed {
        let arrivals = consumers * Arrivals::Warpgroup.count();
        let narrow = self.narrow.unwrap_or([RingPlan::of(&[]); 2]);
        let filling = [
            if self.spec.cache.is_some() { CONVERTERS } else { 1 },
            if self.narrow.is_some() { CONVERTERS } else { 1 },
        ];
        // Of a slab of K, one of two consumers with the same queries knows when both have read it.
        let of_keys = if self.spec.is_halved() { Arrivals::Warpgroup.count() } else { arrivals };
        let rings = [
            self.q.arrivals(self.spec.loaders, arrivals),
            self.k.arrivals(filling[0], of_keys),
            self.v.arrivals(filling[1], arrivals),
            narrow[0].arrivals(1, CONVERTERS),
            narrow[1].arrivals(1, CONVERTERS),
        ];
        let (rings, exchange) = RingPlan::placed_together(rings, counts, 0);
        let (queue, shared_bytes) = QueuePlan::placed(self.entries, exchange + self.exchanged);
        Placed { rings, exchange, queue, shared_bytes }
    }
}
