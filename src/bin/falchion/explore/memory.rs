//! The shared-memory section: the parts of the plan, the tiles with their swizzles, the mbarriers.

use collective::{OperandTile, Plan, Producer, QueuePlan, Roles};
use cute_rs::atom::{Major, SwizzleMode};
use cute_rs::{ComposedLayout, LayoutError};
use kernel::AnyGemm;
use serde::Serialize;

/// Sizes of an mbarrier and of a word in bytes.
const BARRIER_BYTES: u32 = 8;
const WORD_BYTES: u32 = 4;

/// Size of a chunk in bytes: what one lane of a copy moves, and what a swizzle permutes.
const CHUNK_BYTES: u32 = 16;

/// Shared memory of a CTA.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    bytes: u32,
    /// Bytes that a CTA can have.
    limit: u32,
    stages: u32,
    stage_bytes: u32,
    /// Bytes that a full barrier expects per phase.
    transaction_bytes: u32,
    /// In the order of their offsets.
    parts: Vec<Part>,
    tiles: Vec<Tile>,
    barriers: Vec<Barrier>,
}

/// A contiguous range of shared memory with one purpose.
#[derive(Debug, Serialize)]
struct Part {
    name: String,
    /// The class that determines its colour.
    kind: &'static str,
    offset: u32,
    bytes: u32,
    stage: Option<u32>,
    /// Index of the tile that is stored there.
    tile: Option<usize>,
}

/// A tile and its layout in shared memory.
#[derive(Debug, Serialize)]
struct Tile {
    name: String,
    /// Names of its two directions: the contiguous one, then the other.
    directions: [&'static str; 2],
    format: String,
    bits: u32,
    /// Extents of the contiguous direction and of the other.
    extents: [u32; 2],
    /// Offset in its stage in bytes.
    offset: u32,
    bytes: u32,
    /// Bytes of a swizzled row.
    swizzle_bytes: u32,
    /// The layout in CuTe's notation, in elements: `(mn, k)` to an offset.
    layout: String,
    /// Whether the first mode of the layout is the contiguous one.
    first_contiguous: bool,
    /// Offsets of the 16-byte chunks in bytes: by line of the non-contiguous direction, then by chunk.
    chunks: Vec<Vec<u32>>,
}

/// An mbarrier.
#[derive(Debug, Serialize)]
struct Barrier {
    name: String,
    kind: &'static str,
    offset: u32,
    /// When a phase completes.
    meaning: &'static str,
}

impl Memory {
    pub(super) fn of(entry: &AnyGemm) -> Result<Self, LayoutError> {
        let plan = entry.plan();
        let mut tiles = Vec::new();
        for (i, (name, mn)) in [("A", "M"), ("B", "N")].into_iter().enumerate() {
            let offset = plan.ring.offset(i);
            let tile = Tile { offset, ..operand(&plan.operands[i], name, mn)? };
            // Weights in few bits are packed in shared memory: the operand's layout describes the fragments
            // that they become.
            if tile.bytes <= plan.ring.tile_bytes(i) {
                tiles.push(tile);
            }
        }
        tiles.extend(staged(&plan));
        Ok(Self {
            bytes: plan.shared_bytes,
            limit: Plan::TARGET.limits().shared_bytes,
            stages: plan.ring.stages,
            stage_bytes: plan.ring.stage_bytes,
            transaction_bytes: plan.ring.transaction_bytes(),
            parts: parts(&plan, &tiles),
            tiles,
            barriers: barriers(&plan),
        })
    }
}

fn parts(plan: &Plan, tiles: &[Tile]) -> Vec<Part> {
    let ring = plan.ring;
    let mut parts = Vec::new();
    let scaled = plan.mainloop.is_scaled();
    let named = |i: usize| match i {
        0 => ("A".to_owned(), "a"),
        1 => ("B".to_owned(), "b"),
        2 if scaled => ("scales of A".to_owned(), "scales"),
        3 if scaled => ("scales of B".to_owned(), "scales"),
        _ => (format!("tile {i}"), "scales"),
    };
    let tile_of = |name: &str| tiles.iter().position(|tile| tile.name == name);
    for stage in 0..ring.stages {
        for i in (0..collective::RingPlan::MOST).filter(|&i| ring.tile_bytes(i) > 0) {
            let (name, kind) = named(i);
            let offset = ring.start + stage * ring.stage_bytes + ring.offset(i);
            let (bytes, tile) = (ring.tile_bytes(i), tile_of(&name));
            parts.push(Part { name, kind, offset, bytes, stage: Some(stage), tile });
        }
    }
    let mut part = |name: &str, kind, offset, bytes, tile| {
        if bytes > 0 {
            parts.push(Part { name: name.to_owned(), kind, offset, bytes, stage: None, tile });
        }
    };
    part("mainloop's own", "own", plan.own_offset, plan.mainloop.own_bytes, None);
    let buffer = plan.staging.buffer_bytes;
    for consumer in 0..plan.mainloop.consumers {
        for i in 0..plan.staging.buffers {
            let offset = plan.epilogue_offset + (consumer * plan.staging.buffers + i) * buffer;
            let name = format!("D of consumer {consumer}, buffer {i}");
            part(&name, "d", offset, buffer, tile_of("D"));
        }
    }
    let own = plan.ring.barrier_bytes() + (plan.turns() + plan.source_barriers()) * BARRIER_BYTES;
    part("mbarriers", "barriers", ring.barriers, own, None);
    part(
        "mbarriers of the queue",
        "barriers",
        plan.queue.barriers,
        2 * plan.queue.slots * BARRIER_BYTES,
        None,
    );
    part("words", "words", plan.words_offset, plan.mainloop.consumers * WORD_BYTES, None);
    part("queue of tile numbers", "words", plan.queue.words, plan.queue.slots * QueuePlan::CHUNK_BYTES, None);
    part("table of groups", "words", plan.table_offset, plan.form.table_bytes(), None);
    parts.sort_by_key(|part| part.offset);
    parts
}

fn operand(tile: &OperandTile, name: &str, mn: &'static str) -> Result<Tile, LayoutError> {
    let (directions, [rows, k]) =
        (if tile.major() == Major::K { ["K", mn] } else { [mn, "K"] }, tile.extents());
    let extents = if tile.major() == Major::K { [k, rows] } else { [rows, k] };
    let (major, swizzle, bits) = (tile.major(), tile.swizzle(), tile.bits());
    Ok(Tile {
        name: name.to_owned(),
        directions,
        format: tile.format().name().to_owned(),
        ..lying(&tile.layout(), (major, swizzle, bits), extents)
    })
}

/// A staging buffer for D of the epilogue, if it has one.
fn staged(plan: &Plan) -> Option<Tile> {
    let (swizzle, bits, rows) = (plan.staging.swizzle, plan.epilogue.staged_bits, plan.block_rows());
    let columns = plan.staging.columns;
    let (major, directions, extents) = match plan.swapped() {
        false => (Major::K, ["N", "M"], [columns, rows]),
        true => (Major::Mn, ["M", "N"], [rows, columns]),
    };
    let layout = plan.staged_layout()?;
    Some(Tile {
        name: "D".to_owned(),
        directions,
        format: plan.epilogue.output.name().to_owned(),
        offset: 0,
        ..lying(&layout, (major, swizzle, bits), extents)
    })
}

fn lying(
    layout: &ComposedLayout,
    (major, swizzle, bits): (Major, SwizzleMode, u32),
    extents: [u32; 2],
) -> Tile {
    let [contiguous, other] = extents;
    let elements = CHUNK_BYTES * 8 / bits;
    let place = |line: u32, chunk: u32| {
        let (first, second) = (i64::from(chunk * elements), i64::from(line));
        let coords = if major == Major::K { [second, first] } else { [first, second] };
        u32::try_from(layout.at_modes(&coords) * i64::from(bits) / 8).unwrap_or(u32::MAX)
    };
    let chunks = (0..other).map(|line| (0..contiguous / elements).map(|chunk| place(line, chunk)).collect());
    Tile {
        name: String::new(),
        directions: ["", ""],
        format: String::new(),
        bits,
        extents,
        offset: 0,
        bytes: contiguous * other * bits / 8,
        swizzle_bytes: swizzle.bytes(),
        layout: layout.to_string(),
        first_contiguous: major == Major::Mn,
        chunks: chunks.collect(),
    }
}

fn barriers(plan: &Plan) -> Vec<Barrier> {
    let ring = plan.ring;
    let mut all = Vec::new();
    let mut row = |count: u32, first: u32, name: &str, kind, meaning| {
        for i in 0..count {
            let name = format!("{name} {i}");
            all.push(Barrier { name, kind, offset: first + i * BARRIER_BYTES, meaning });
        }
    };
    let filled = match plan.mainloop.producer {
        Producer::Thread => "the producer has set the stage's expected bytes, and all have arrived",
        Producer::Warpgroup => "every thread of the producer has copied its part of the stage",
    };
    row(ring.stages, ring.barriers, "full", "full", filled);
    if plan.mainloop.roles != Roles::Unspecialised {
        let empty = ring.barriers + ring.stages * BARRIER_BYTES;
        row(ring.stages, empty, "empty", "empty", "every consumer that reads the stage has finished reading");
    }
    row(plan.turns(), plan.turns_offset(), "turn", "turn", "the other consumer has multiplied its tile");
    let sources = plan.source_barriers_offset();
    row(plan.source_barriers(), sources, "C", "full", "the part of C for this buffer of D has arrived");
    let (slots, queue) = (plan.queue.slots, plan.queue.barriers);
    row(slots, queue, "drawn", "full", "the number of the next tile has been drawn");
    let read = queue + slots * BARRIER_BYTES;
    row(slots, read, "read", "empty", "every warp has read the number of its tile");
    all
}
