//! The section of the multiplying instruction: how it divides the tile, where its operands are, which thread
//! holds which accumulator.

use collective::{Atom, AtomTypes, OperandTile, Roles, Source};
use cute_rs::LayoutError;
use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::{Operand, atom::wgmma};
use kernel::AnyGemm;
use serde_json::{Value, json};

/// The multiplying instruction, as a kernel uses it.
pub fn of(entry: &AnyGemm) -> Result<Value, LayoutError> {
    let plan = entry.plan();
    let (product, atom) = (plan.mainloop.product(), plan.mainloop.atom);
    let columns: Vec<[u32; 2]> = (0..product.across()).map(|i| product.columns_of(i)).collect();
    let steps = product.steps();
    let [a, b] = plan.operands;
    let blocks = (0..product.tile[0] / atom.rows()).map(|block| block * atom.rows()).collect();
    let mut descriptors = Vec::new();
    let with_descriptors = matches!(atom.types, AtomTypes::Wgmma(_));
    let in_shared = with_descriptors && atom.a == Source::Shared;
    if in_shared && plan.ring.tile_bytes(0) > 0 {
        descriptors.push(descriptor(("A", plan.ring.offset(0)), &a, steps, blocks)?);
    }
    if with_descriptors && plan.ring.tile_bytes(1) > 0 {
        let sides = columns.iter().map(|[first, _]| *first).collect();
        descriptors.push(descriptor(("B", plan.ring.offset(1)), &b, steps, sides)?);
    }
    Ok(json!({
        // `wgmma`, `mma.sync` or `fma`.
        "name": name(atom),
        // The instruction in PTX, for each range of columns.
        "instructions": columns.iter().map(|&[_, n]| spelt(atom, n)).collect::<Vec<_>>(),
        // Rows, the columns of each of the adjacent instructions as `[first, columns]`, and K.
        "rows": atom.rows(),
        "columns": columns,
        "k": atom.k(),
        "tile": product.tile,
        // The number of warpgroups that multiply, and the number of them that share a tile.
        "consumers": plan.mainloop.consumers,
        "sharing": product.warpgroups,
        // Number of blocks of `rows` rows that each warpgroup has in a tile.
        "blocks": product.blocks(),
        // Number of instructions along K per stage.
        "steps": steps,
        "takes_turns": plan.mainloop.roles == Roles::Pingpong,
        // Whether A comes from registers; otherwise from shared memory.
        "a_in_registers": atom.a == Source::Registers,
        "element_bits": atom.element_bits(),
        // Accumulators per thread, in 32-bit registers.
        "accumulators": product.accumulators(),
        // `(thread, value)` to `m + 64 n`.
        "sums": wgmma::accumulator(product.widest())?.layout().to_string(),
        // `(thread, value)` to `m + 64 k`; null where several threads hold the same element.
        "fragment_a": fragment_a(atom)?,
        "descriptors": descriptors,
    }))
}

fn name(atom: Atom) -> &'static str {
    match atom.types {
        AtomTypes::Wgmma(_) => "wgmma",
        AtomTypes::MmaSync(_) => "mma.sync",
        AtomTypes::Simt => "fma",
    }
}

/// The instruction for this number of columns, in PTX.
fn spelt(atom: Atom, columns: u32) -> String {
    let k = atom.k();
    match atom.types {
        AtomTypes::Wgmma(types) => {
            let sparse = if atom.sparse { ".sp" } else { "" };
            format!("wgmma.mma_async{sparse}.sync.aligned.m{}n{columns}k{k}.{}", atom.rows(), types.suffix())
        }
        AtomTypes::MmaSync(types) => {
            format!("mma.sync.aligned.m16n8k{}.row.col.{}", types.k(), types.suffix())
        }
        AtomTypes::Simt => "fma.rn.f32".to_owned(),
    }
}

fn fragment_a(atom: Atom) -> Result<Option<String>, LayoutError> {
    Ok(match atom.types {
        AtomTypes::Wgmma(_) => Some(wgmma::operand_a(atom.element_bits())?.layout().to_string()),
        AtomTypes::MmaSync(_) => Some(atom.layout(8)?.operand(Operand::A).layout().to_string()),
        AtomTypes::Simt => None,
    })
}

/// The descriptor by which instructions find a tile in shared memory.
fn descriptor(
    (operand, offset): (&'static str, u32),
    tile: &OperandTile,
    steps: u32,
    rows: Vec<u32>,
) -> Result<Value, LayoutError> {
    let [mn, k] = tile.extents();
    let found = MatrixDescriptor::new(tile.major(), tile.swizzle(), tile.bits(), mn, k)?;
    Ok(json!({
        "operand": operand,
        "leading_bytes": found.leading_bytes,
        "stride_bytes": found.stride_bytes,
        "swizzle_bytes": tile.swizzle().bytes(),
        // The 64 bits of the descriptor of the first stage's tile, if dynamic shared memory begins at byte 1024.
        "bits": format!("0x{:016x}", found.bits(1024 + offset)),
        // What each step along K adds to the start address, in bytes.
        "steps": (0..steps).map(|step| found.k_offset_bytes(step)).collect::<Vec<_>>(),
        // What each block of rows adds in bytes, or each of the adjacent instructions.
        "blocks": rows.into_iter().map(|row| found.mn_offset_bytes(row)).collect::<Vec<_>>(),
    }))
}
