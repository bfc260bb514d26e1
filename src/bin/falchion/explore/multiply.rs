//! The section of the multiplying instruction: how it divides the tile, where its operands are, which thread
//! holds which accumulator.

use collective::{Atom, AtomTypes, OperandTile, Roles, Source};
use cute_rs::LayoutError;
use cute_rs::atom::descriptor::MatrixDescriptor;
use cute_rs::{Operand, atom::wgmma};
use kernel::AnyGemm;
use serde::Serialize;

/// The multiplying instruction, as a kernel uses it.
#[derive(Debug, Serialize)]
pub(super) struct Multiply {
    /// The instruction's name: `wgmma`, `mma.sync` or `fma`.
    name: &'static str,
    /// The instruction in PTX, for each range of columns.
    instructions: Vec<String>,
    /// Rows, the columns of each of the adjacent instructions as `[first, columns]`, and K.
    rows: u32,
    columns: Vec<[u32; 2]>,
    k: u32,
    tile: [u32; 3],
    /// The number of warpgroups that multiply, and the number of them that share a tile.
    consumers: u32,
    sharing: u32,
    /// Number of blocks of `rows` rows that each warpgroup has in a tile.
    blocks: u32,
    /// Number of instructions along K per stage.
    steps: u32,
    takes_turns: bool,
    /// Whether A comes from registers; otherwise from shared memory.
    a_in_registers: bool,
    element_bits: u32,
    /// Accumulators per thread, in 32-bit registers.
    accumulators: u32,
    /// `(thread, value)` to `m + 64 n`.
    sums: String,
    /// `(thread, value)` to `m + 64 k`; `None` where several threads hold the same element.
    fragment_a: Option<String>,
    descriptors: Vec<Descriptor>,
}

/// The descriptor by which instructions find a tile in shared memory.
#[derive(Debug, Serialize)]
struct Descriptor {
    operand: &'static str,
    leading_bytes: u32,
    stride_bytes: u32,
    swizzle_bytes: u32,
    /// The 64 bits of the descriptor of the first stage's tile, if dynamic shared memory begins at byte 1024.
    bits: String,
    /// What each step along K adds to the start address, in bytes.
    steps: Vec<u32>,
    /// What each block of rows adds in bytes, or each of the adjacent instructions.
    blocks: Vec<u32>,
}

impl Multiply {
    pub(super) fn of(entry: &AnyGemm) -> Result<Self, LayoutError> {
        let plan = entry.plan();
        let (spec, atom) = (plan.mainloop, plan.mainloop.atom);
        let columns: Vec<[u32; 2]> = (0..spec.across()).map(|i| spec.columns_of(i)).collect();
        let steps = spec.tile[2] / atom.k();
        let [a, b] = plan.operands;
        let blocks = (0..spec.tile[0] / atom.rows()).map(|block| block * atom.rows()).collect();
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
        Ok(Self {
            name: name(atom),
            instructions: columns.iter().map(|&[_, n]| spelt(atom, n)).collect(),
            rows: atom.rows(),
            k: atom.k(),
            tile: spec.tile,
            consumers: spec.consumers,
            sharing: spec.sharing(),
            blocks: spec.blocks(),
            steps,
            takes_turns: spec.roles == Roles::Pingpong,
            a_in_registers: atom.a == Source::Registers,
            element_bits: atom.element_bits(),
            accumulators: spec.accumulators(),
            sums: wgmma::accumulator(spec.widest())?.layout().to_string(),
            fragment_a: fragment_a(atom)?,
            columns,
            descriptors,
        })
    }
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

fn descriptor(
    (operand, offset): (&'static str, u32),
    tile: &OperandTile,
    steps: u32,
    rows: Vec<u32>,
) -> Result<Descriptor, LayoutError> {
    let [mn, k] = tile.extents();
    let found = MatrixDescriptor::new(tile.major(), tile.swizzle(), tile.bits(), mn, k)?;
    Ok(Descriptor {
        operand,
        leading_bytes: found.leading_bytes,
        stride_bytes: found.stride_bytes,
        swizzle_bytes: tile.swizzle().bytes(),
        bits: format!("0x{:016x}", found.bits(1024 + offset)),
        steps: (0..steps).map(|step| found.k_offset_bytes(step)).collect(),
        blocks: rows.into_iter().map(|row| found.mn_offset_bytes(row)).collect(),
    })
}
