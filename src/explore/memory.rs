//! The shared-memory section: the parts of the plan, the tiles with their swizzles, the mbarriers.

use collective::{Format, OperandTile, Plan, Producer, QueuePlan, Roles};
use cute_rs::atom::{Major, SwizzleMode};
use cute_rs::{ComposedLayout, LayoutError};
use kernel::AnyGemm;
use serde_json::{Value, json};

/// Sizes of an mbarrier and of a word in bytes.
const BARRIER_BYTES: u32 = 8;
const WORD_BYTES: u32 = 4;

/// Size of a chunk in bytes: what one lane of a copy moves, and what a swizzle permutes.
const CHUNK_BYTES: u32 = 16;

/// Shared memory of a CTA.
pub fn of(entry: &AnyGemm) -> Result<Value, LayoutError> {
    let plan = entry.plan();
    let mut tiles = Vec::new();
    for (i, (name, mn)) in [("A", "M"), ("B", "N")].into_iter().enumerate() {
        let tile = operand(&plan.operands[i], (name, plan.ring.offset(i)), mn)?;
        // Weights in few bits are packed in shared memory: the operand's layout describes the fragments
        // that they become.
        if tile.bytes() <= plan.ring.tile_bytes(i) {
            tiles.push(tile);
        }
    }
    tiles.extend(staged(&plan));
    Ok(json!({
        "bytes": plan.shared_bytes,
        // Bytes that a CTA can have.
        "limit": Plan::TARGET.limits().shared_bytes,
        "stages": plan.ring.stages,
        "stage_bytes": plan.ring.stage_bytes,
        // Bytes that a full barrier expects per phase.
        "transaction_bytes": plan.ring.transaction_bytes(),
        "parts": parts(&plan, &tiles),
        "tiles": tiles.iter().map(Tile::json).collect::<Vec<_>>(),
        "barriers": barriers(&plan),
    }))
}

/// A tile in shared memory.
struct Tile {
    name: &'static str,
    /// Names of its two directions: the contiguous one, then the other; and their extents.
    directions: [&'static str; 2],
    extents: [u32; 2],
    format: Format,
    bits: u32,
    /// Offset in its stage in bytes.
    offset: u32,
    major: Major,
    swizzle: SwizzleMode,
    layout: ComposedLayout,
}

impl Tile {
    fn bytes(&self) -> u32 {
        self.extents[0] * self.extents[1] * self.bits / 8
    }

    fn json(&self) -> Value {
        let Self { bits, major, extents: [contiguous, other], ref layout, .. } = *self;
        let elements = CHUNK_BYTES * 8 / bits;
        let place = |line: u32, chunk: u32| {
            let (first, second) = (i64::from(chunk * elements), i64::from(line));
            let coords = if major == Major::K { [second, first] } else { [first, second] };
            u32::try_from(layout.at_modes(&coords) * i64::from(bits) / 8).unwrap_or(u32::MAX)
        };
        let line = |line| (0..contiguous / elements).map(|chunk| place(line, chunk)).collect();
        let chunks: Vec<Vec<u32>> = (0..other).map(line).collect();
        json!({
            "name": self.name,
            "directions": self.directions,
            "format": self.format.name(),
            "bits": bits,
            "extents": self.extents,
            "offset": self.offset,
            "bytes": self.bytes(),
            // Bytes of a swizzled row.
            "swizzle_bytes": self.swizzle.bytes(),
            // The layout in CuTe's notation, in elements: `(mn, k)` to an offset.
            "layout": layout.to_string(),
            // Whether the first mode of the layout is the contiguous one.
            "first_contiguous": major == Major::Mn,
            // Offsets of the 16-byte chunks in bytes: by line of the non-contiguous direction, then by chunk.
            "chunks": chunks,
        })
    }
}

/// The contiguous ranges of shared memory with one purpose each, in the order of their offsets: a name, the class that
/// determines its colour, the stage, and the index of the tile that is stored there.
fn parts(plan: &Plan, tiles: &[Tile]) -> Vec<Value> {
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
            parts.push((offset, json!({ "name": name, "kind": kind, "offset": offset, "bytes": bytes, "stage": stage, "tile": tile })));
        }
    }
    let mut part = |name: &str, kind: &str, offset: u32, bytes: u32, tile: Option<usize>| {
        if bytes > 0 {
            let stage = Value::Null;
            parts.push((offset, json!({ "name": name, "kind": kind, "offset": offset, "bytes": bytes, "stage": stage, "tile": tile })));
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
        2 * plan.queue.entries * BARRIER_BYTES,
        None,
    );
    part("words", "words", plan.words_offset, plan.mainloop.consumers * WORD_BYTES, None);
    part(
        "queue of tile numbers",
        "words",
        plan.queue.words,
        plan.queue.entries * QueuePlan::CHUNK_BYTES,
        None,
    );
    part("table of groups", "words", plan.table.offset, plan.table.bytes, None);
    parts.sort_by_key(|(offset, _)| *offset);
    parts.into_iter().map(|(_, part)| part).collect()
}

fn operand(
    tile: &OperandTile,
    (name, offset): (&'static str, u32),
    mn: &'static str,
) -> Result<Tile, LayoutError> {
    let ([rows, k], major) = (tile.extents(), tile.major());
    let (directions, extents) =
        if major == Major::K { (["K", mn], [k, rows]) } else { ([mn, "K"], [rows, k]) };
    let (format, bits, swizzle) = (tile.format(), tile.bits(), tile.swizzle());
    Ok(Tile { name, directions, extents, format, bits, offset, major, swizzle, layout: tile.layout() })
}

/// A staging buffer for D of the epilogue, if it has one.
fn staged(plan: &Plan) -> Option<Tile> {
    let (rows, columns) = (plan.block_rows(), plan.staging.columns);
    let (major, directions, extents) = match plan.swapped() {
        false => (Major::K, ["N", "M"], [columns, rows]),
        true => (Major::Mn, ["M", "N"], [rows, columns]),
    };
    let (format, bits) = (plan.epilogue.output, plan.epilogue.staged_bits);
    let (swizzle, layout) = (plan.staging.swizzle, plan.staged_layout()?);
    Some(Tile { name: "D", directions, extents, format, bits, offset: 0, major, swizzle, layout })
}

/// The mbarriers: a name, a kind, an offset, and when a phase completes.
fn barriers(plan: &Plan) -> Vec<Value> {
    let ring = plan.ring;
    let mut all = Vec::new();
    let mut row = |count: u32, first: u32, name: &str, kind: &str, meaning: &str| {
        for i in 0..count {
            let (name, offset) = (format!("{name} {i}"), first + i * BARRIER_BYTES);
            all.push(json!({ "name": name, "kind": kind, "offset": offset, "meaning": meaning }));
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
    let (entries, queue) = (plan.queue.entries, plan.queue.barriers);
    row(entries, queue, "drawn", "full", "the number of the next tile has been drawn");
    let read = queue + entries * BARRIER_BYTES;
    row(entries, read, "read", "empty", "every warp has read the number of its tile");
    all
}
