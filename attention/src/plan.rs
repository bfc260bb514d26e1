//! The plan: every number of a kernel, from its spec.

use collective::{
    Arrivals, Atom, CtaPlan, Format, MainloopSpec, OperandSpec, OperandTile, Peers, Producer, QueuePlan,
    RingPlan, RoleRegisters, TileLayout,
};
use cute_rs::atom::Major;
use kernel::KernelSpec;
use ptx::Target;
use ptx::abi::Promotion;

use crate::error::AttentionError;
use crate::spec::{AttentionSpec, Order, OutputStore, Parts};

/// Every number of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionPlan {
    /// The spec.
    pub spec: AttentionSpec,
    /// The CTA. Each consumer warpgroup has 64 queries; those of latent attention have the same ones.
    pub cta: CtaPlan,
    /// Tiles of Q, K and V: in latent attention, a consumer's part of V.
    pub tiles: [OperandTile; 3],
    /// The tile of weights in registers; in latent attention, in a stage of K.
    pub weights: OperandTile,
    /// A consumer's part of O's tile in shared memory; `None` if O is stored directly.
    pub output: Option<OperandTile>,
    /// The rings of Q, K and V; that of V has no stages in latent attention.
    pub rings: [RingPlan; 3],
    /// What is loaded of K and V, if these are converted on the way.
    pub narrow: Option<NarrowPlan>,
    /// The queue of tiles; without entries unless they are drawn.
    pub queue: QueuePlan,
    /// The product of queries and keys.
    pub scores: MainloopSpec,
    /// The product of weights and values.
    pub values: MainloopSpec,
    /// Whether the end of a tile overlaps with the beginning of the next one.
    pub overlaps: bool,
    /// Whether a block's weights are all computed before O is rescaled. That needs registers.
    pub rescales_last: bool,
    /// What latent attention has in addition.
    pub latent: Option<LatentPlan>,
}

/// The plan of latent attention. Its two consumers have the same queries, and half of O's columns each. They compute the scores of
/// every second block of keys, and exchange weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentPlan {
    /// Offset in a stage of K of the columns that V does not have, in bytes. A block's weights replace them when its scores are
    /// computed.
    pub weights: u32,
    /// Offset in shared memory of what consumers tell each other: two numbers of each thread, the largest scores, and then as many
    /// sums.
    pub exchange: u32,
}

impl LatentPlan {
    /// Bytes of the numbers of a consumer's threads.
    pub(crate) const NUMBERS: u32 = 128 * 8;
    /// Consumers.
    const CONSUMERS: u32 = 2;
    /// Blocks of keys in shared memory: two pairs, one of which is loaded while the other is multiplied.
    const STAGES: u32 = 4;
    /// Queries per tile, and keys per block.
    pub(crate) const TILE: [u32; 2] = [64, 32];

    /// The first number of which latent attention has another one, and what it has.
    const fn refused(spec: &AttentionSpec) -> Option<(&'static str, u32, &'static str)> {
        let AttentionSpec { tile: [rows, keys], stages, overlap, .. } = *spec;
        if rows != Self::TILE[0] {
            return Some(("the number of queries per tile", rows, "64 with d=576x512"));
        }
        if keys != Self::TILE[1] {
            return Some(("the number of keys per block", keys, "32 with d=576x512"));
        }
        if let Some(stages) = stages
            && stages != Self::STAGES
        {
            return Some(("stages", stages, "4 or auto with d=576x512"));
        }
        if overlap {
            return Some(("overlap", 1, "off with d=576x512, since shared memory has one tile of queries,"));
        }
        None
    }
}

/// Blocks of K and V as they are in memory: in another format, or, of 8-bit V, with elements of a key next to each other, where
/// products need those of a column. The producer's first warp loads them; the others convert them into the stages of
/// [`AttentionPlan::rings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NarrowPlan {
    /// Tiles of K and of V, rows of keys; `None` if they are loaded as they are multiplied.
    pub tiles: [Option<OperandTile>; 2],
    /// Their rings.
    pub rings: [RingPlan; 2],
}

/// Warps that convert.
pub(crate) const CONVERTERS: u32 = 3;

/// Most blocks of K, and of V, that are loaded and not yet converted, if there are two; and if only V is converted.
const MOST_NARROW: [u32; 2] = [8, 2];

/// Registers of a consumer apart from accumulators, weights and scores: addresses, statistics, loop state.
const WORKING: u32 = 28;
/// Registers with which all weights of a block are computed before O is rescaled: 1 to 2 % faster then, and 2 % slower with fewer.
const SPARE: u32 = 16;

/// Most blocks of K, and of V, that are planned if the spec leaves the number open.
const MOST_STAGES: u32 = 4;

const fn number(field: &'static str, value: u32, needed: &'static str) -> AttentionError {
    AttentionError::Number { field, value, needed }
}

impl AttentionPlan {
    /// The architecture that kernels are made for.
    pub const TARGET: Target = Target::Sm90a;

    /// Checks a spec and computes every number of its kernel.
    ///
    /// # Errors
    /// The first field of the spec that is not possible.
    pub const fn new(spec: AttentionSpec) -> Result<Self, AttentionError> {
        let AttentionSpec { format, output, head: [d, dv], tile: [rows, keys], .. } = spec;
        let limits = Self::TARGET.limits();
        let Some(types) = multiplied(format) else {
            return Err(AttentionError::Format { field: "format", format, needed: "bf16, f16 or e4m3" });
        };
        let (bytes, latent) = (format.bits() == 8, spec.is_latent());
        if let Some(cache) = spec.cache
            && (bytes || !same(cache, Format::E4m3))
        {
            let needed = if bytes { "Q's format alone" } else { "e4m3" };
            return Err(AttentionError::Format { field: "cache", format: cache, needed });
        }
        if latent && bytes {
            return Err(AttentionError::Format {
                field: "format",
                format,
                needed: "bf16 or f16 with d=576x512",
            });
        }
        if latent && let Some(format) = spec.cache {
            let needed = "Q's format alone with d=576x512";
            return Err(AttentionError::Format { field: "cache", format, needed });
        }
        let divided = !matches!(spec.parts, Parts::One);
        let direct = divided || matches!(spec.store, OutputStore::Direct);
        let sixteen = if bytes { sixteen_bits(output).is_some() && direct } else { same(output, format) };
        if !(sixteen || same(output, Format::F32) && direct) {
            let needed = if bytes {
                "bf16, f16 or f32 with store=direct or parts"
            } else {
                "the format of Q, K and V, or f32 with store=direct or parts,"
            };
            return Err(AttentionError::Format { field: "output", format: output, needed });
        }
        if !matches!(d, 64 | 96 | 128 | 192 | 256 | 576) {
            return Err(number("d, the elements of a head of Q and K,", d, "64, 96, 128, 192, 256 or 576"));
        }
        if d == 576 && dv != 512 {
            let needed = "512 with 576 of Q and K, of which V is the first ones,";
            return Err(number("d of V and O", dv, needed));
        }
        if dv != d && !(d == 192 && dv == 128) && !latent {
            let needed = "the number of Q and K, or 128 with their 192,";
            return Err(number("d of V and O", dv, needed));
        }
        if latent && let Some((field, value, needed)) = LatentPlan::refused(&spec) {
            return Err(number(field, value, needed));
        }
        if !matches!(rows, 64 | 128 | 192) {
            return Err(number("the number of queries per tile", rows, "64, 128 or 192"));
        }
        if keys < 16 || keys > 256 || !keys.is_multiple_of(16) {
            return Err(number("the number of keys per block", keys, "a multiple of 16 from 16 to 256"));
        }
        if bytes && !keys.is_multiple_of(32) {
            return Err(number("the number of keys per block", keys, "a multiple of 32 with 8-bit operands"));
        }
        if bytes && spec.lazy {
            // Weights are up to 2^8 already.
            return Err(number("lazy", 1, "off with 8-bit operands"));
        }
        match spec.parts {
            Parts::Count(count) if count < 2 || count > 1024 => {
                return Err(number("the number of parts", count, "1 to 1024"));
            }
            Parts::Keys(part) if part == 0 || !part.is_multiple_of(keys) => {
                return Err(number(
                    "the number of keys of a part",
                    part,
                    "a multiple of the number of keys per block",
                ));
            }
            Parts::One | Parts::Count(_) | Parts::Keys(_) => {}
        }
        if let Some(page) = spec.pages {
            if !matches!(page, 16 | 32 | 64 | 128 | 256) {
                return Err(number("pages, the number of keys in a page,", page, "16, 32, 64, 128 or 256"));
            }
            if !keys.is_multiple_of(page) && !page.is_multiple_of(keys) {
                return Err(number(
                    "pages, the number of keys in a page,",
                    page,
                    "a divisor or a multiple of the number of keys per block",
                ));
            }
        }
        if !spec.pack.is_power_of_two() || spec.pack > 64 {
            return Err(number(
                "pack, the heads that are rows of a tile,",
                spec.pack,
                "a power of two up to 64",
            ));
        }
        // Each consumer of latent attention has all rows of a tile, and a part of O's columns.
        let [consumers, sharing] = if latent { [LatentPlan::CONSUMERS; 2] } else { [rows / 64, 1] };
        let dv = dv / sharing;
        let (Ok(q), Ok(k), Ok(v), Ok(weights)) = (
            OperandTile::new(format, Major::K, [rows, d], TileLayout::Widest),
            OperandTile::new(format, Major::K, [keys, d], TileLayout::Widest),
            OperandTile::new(
                format,
                if bytes { Major::K } else { Major::Mn },
                [dv, keys],
                TileLayout::Widest,
            ),
            OperandTile::new(format, Major::K, [rows, keys], TileLayout::Widest),
        ) else {
            return Err(number(
                "the number of keys per block",
                keys,
                "a number whose blocks fit into shared memory",
            ));
        };
        let output_tile = if direct {
            None
        } else {
            match OperandTile::new(format, Major::K, [64, dv], TileLayout::Slabs(q.swizzle())) {
                Ok(tile) => Some(tile),
                Err(_) => return Err(number("d of V and O", dv, "a multiple of Q's swizzle")),
            }
        };

        // The pages of a block are looked up together. One consumer leaves registers for that.
        let producer = match (consumers, spec.pages) {
            // A thread converts 64 elements at the same time, or 32.
            (1, _) if spec.is_scaled() => 128,
            (2, _) if bytes => 40,
            (_, _) if bytes => 56,
            (2, _) if spec.cache.is_some() => 64,
            (_, _) if spec.cache.is_some() => {
                return Err(number("the number of queries per tile", rows, "64 or 128 with a cache"));
            }
            (3, _) => 32,
            (1, Some(_)) => 96,
            // More would be taken from consumers.
            (2, Some(page)) if page < 64 => 40,
            (2, _) if latent => 40,
            _ => 24,
        };
        let registers = RoleRegisters::divided(consumers, Some(producer));
        let consumer = registers.consumer;
        let need = dv / 2 + keys / 2 + keys * format.bits() / 64 + WORKING;
        let rescales_last = need + SPARE <= consumer;
        if need > consumer {
            return Err(AttentionError::Registers { need, have: consumer, rows, keys });
        }

        let v_ring = if latent { RingPlan::of(&[]) } else { RingPlan::of(&[v.room()]) };
        let [q_ring, k_ring] = [RingPlan::of(&[q.room()]), RingPlan::of(&[k.room()])];
        let (one_q, two_q) = (q_ring.need(1), q_ring.need(2));
        let each = k_ring.need(1) + v_ring.need(1);
        let entries = if matches!(spec.order, Order::Drawn) { QueuePlan::ENTRIES } else { 0 };
        let (_, of_queue) = QueuePlan::placed(entries, 0);
        let exchanged = if latent { 2 * consumers * LatentPlan::NUMBERS } else { 0 };
        let have = limits.shared_bytes - of_queue - exchanged;
        let narrow = if spec.is_scaled() {
            let (Ok(k), Ok(v)) = (
                OperandTile::new(Format::E4m3, Major::K, [keys, d], TileLayout::Widest),
                OperandTile::new(Format::E4m3, Major::K, [keys, dv], TileLayout::Widest),
            ) else {
                let needed = "a number whose blocks fit into shared memory";
                return Err(number("the number of keys per block", keys, needed));
            };
            let rings = [
                if bytes { RingPlan::of(&[]) } else { RingPlan::of(&[k.room()]) },
                RingPlan::of(&[v.room()]),
            ];
            Some(NarrowPlan { tiles: [if bytes { None } else { Some(k) }, Some(v)], rings })
        } else {
            None
        };
        let stages = match spec.stages {
            Some(stages) => stages,
            // Converted blocks are multiplied at once; those that are loaded hide the latency.
            None if narrow.is_some() => 2,
            None if latent => LatentPlan::STAGES,
            // Two tiles of Q, so that the next one is loaded in time, if that leaves two stages.
            None if two_q + 2 * each <= have => min((have - two_q) / each, MOST_STAGES),
            None => 2,
        };
        if stages == 0 || stages > 16 {
            return Err(number("stages", stages, "1 to 16"));
        }
        let need = one_q + stages * each;
        if need > have {
            return Err(AttentionError::SharedMemory { stages, need, have });
        }
        let narrow_rings = match narrow {
            Some(narrow) => narrow.rings,
            None => [RingPlan::of(&[]); 2],
        };
        let one = if narrow.is_some() { narrow_rings[0].need(1) + narrow_rings[1].need(1) } else { 0 };
        if need + one > have {
            return Err(AttentionError::SharedMemory { stages, need: need + one, have });
        }
        let queries = if two_q + stages * each + 2 * one <= have { 2 } else { 1 };
        let in_flight = match narrow {
            Some(_) => min((have - q_ring.need(queries) - stages * each) / one, MOST_NARROW[bytes as usize]),
            None => 0,
        };
        // One block of K more, if that fits: it is needed before the values of the block before it.
        let need = q_ring.need(queries) + stages * each + in_flight * one + k_ring.need(1);
        let more = spec.stages.is_none() && spec.cache.is_none() && need <= have;
        let k_stages = if more { stages + 1 } else { stages };
        let arrivals = consumers * Arrivals::Warpgroup.count();
        let filling = [
            if spec.cache.is_some() { CONVERTERS } else { 1 },
            if narrow.is_some() { CONVERTERS } else { 1 },
        ];
        let rings = [
            q_ring.arrivals(1, arrivals),
            k_ring.arrivals(filling[0], arrivals),
            v_ring.arrivals(filling[1], arrivals),
            narrow_rings[0].arrivals(1, CONVERTERS),
            narrow_rings[1].arrivals(1, CONVERTERS),
        ];
        let v_stages = if latent { 0 } else { stages };
        let counts = [queries, k_stages, v_stages, if bytes { 0 } else { in_flight }, in_flight];
        let ([q_ring, k_ring, v_ring, narrow_k, narrow_v], shared_bytes) =
            RingPlan::placed_together(rings, counts, 0);
        let (exchange, shared_bytes) = (shared_bytes, shared_bytes + exchanged);
        let (queue, shared_bytes) = QueuePlan::placed(entries, shared_bytes);
        let of_values = v.room().bytes * sharing;
        let (weights, latent) = if latent {
            (weights.at(of_values), Some(LatentPlan { weights: of_values, exchange }))
        } else {
            (weights, None)
        };
        let narrow = match narrow {
            Some(NarrowPlan { tiles, .. }) => Some(NarrowPlan { tiles, rings: [narrow_k, narrow_v] }),
            None => None,
        };

        let base = MainloopSpec { consumers: consumers / sharing, ..KernelSpec::DEFAULT.mainloop };
        let operand = OperandSpec::k_major(format);
        let scores =
            MainloopSpec { operands: [operand; 2], atom: Atom::shared(types), tile: [rows, keys, d], ..base };
        let values = MainloopSpec {
            operands: [operand, OperandSpec { major: v.major(), ..operand }],
            atom: if latent.is_some() { Atom::shared(types) } else { Atom::registers(types) },
            tile: [rows, dv, keys],
            ..base
        };
        Ok(Self {
            spec,
            cta: CtaPlan {
                producer: Some(if narrow.is_some() { Producer::Warpgroup } else { Producer::Thread }),
                consumers,
                registers,
                shared_bytes,
                cluster: 1,
                peers: Peers::Apart,
                overlaps: divided,
                turns: spec.turns && consumers > sharing,
            },
            tiles: [q, k, v],
            weights,
            rescales_last,
            output: output_tile,
            rings: [q_ring, k_ring, v_ring],
            narrow,
            queue,
            scores,
            values,
            overlaps: spec.overlap && queries > 1,
            latent,
        })
    }
}

impl AttentionPlan {
    /// Tensors that are read: Q, K and V, or Q and K.
    pub(crate) fn operands(&self) -> usize {
        if self.latent.is_some() { 2 } else { 3 }
    }

    /// Whether consumers divide the rows of a tile.
    pub(crate) fn rows_are_divided(&self) -> bool {
        self.cta.consumers > 1 && self.latent.is_none()
    }

    /// The tiles of K and V as copies load them: in the format of memory, whole, or page by page. One query reads a long cache once: if L2
    /// fetches two lines at a time, an H200 moves 6 to 8 % less.
    pub(crate) fn copied(&self) -> [OperandTile; 2] {
        let [_, k, v] = self.tiles;
        let [of_k, of_v] = self.narrow.map_or([None; 2], |narrow| narrow.tiles);
        [of_k.unwrap_or(k), of_v.unwrap_or(v)]
            .map(|tile| tile.in_slices(self.pages_of_block()).fetching(Promotion::ByCard))
    }

    /// Number of pages of a block; 1 if a page has several blocks.
    pub(crate) fn pages_of_block(&self) -> u32 {
        self.spec.pages.map_or(1, |page| (self.spec.tile[1] / page).max(1))
    }
}

/// The instruction types of a format that products take.
const fn multiplied(format: Format) -> Option<ptx::WgmmaTypes> {
    if same(format, Format::E4m3) { format.multiplies(format) } else { sixteen_bits(format) }
}

/// The instruction types of a 16-bit format.
pub(crate) const fn sixteen_bits(format: Format) -> Option<ptx::WgmmaTypes> {
    if same(format, Format::Bf16) || same(format, Format::F16) { format.multiplies(format) } else { None }
}

const fn same(a: Format, b: Format) -> bool {
    a as u32 == b as u32
}

const fn min(a: u32, b: u32) -> u32 {
    if a < b { a } else { b }
}
