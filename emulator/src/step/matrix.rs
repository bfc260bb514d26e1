//! Matrix instructions of one warp: `ldmatrix`, `mma.sync`.
//!
//! The position of element v of the fragments of lane 4g + c, from the figures of the PTX ISA:
//!
//! * D and C: row g + 8 (v / 2), column 2c + v % 2;
//! * 16-bit A: row g + 8 (v / 2 % 2), k = 2c + v % 2 + 8 (v / 4); B: k = 2c + v % 2 + 8 (v / 2), column g;
//! * 32-bit A: row g + 8 (v % 2), k = c + 4 (v / 2); B: k = c + 4v, column g;
//! * 64-bit A and B: as those of 32 bits;
//! * 8-bit A: row g + 8 (v / 4 % 2), k = 4c + v % 4 + 16 (v / 8); B: k = 4c + v % 4 + 16 (v / 4), column g.
//!
//! `f64` results are computed by one `fma` after the other in the order of K. PTX does not define the order.
//!
//! Other floating-point results follow the rule of `Numerics::Exact` for `wgmma`: terms are aligned to the
//! largest one and truncated, and an `.f32` result is truncated.

use ptx::Type;
use ptx::WgmmaTypes;
use ptx::inst::{MmaTypes, Operand, Reg, WarpMatrix};

use super::Flow;
use crate::lanes::Lanes;
use crate::machine::Machine;
use crate::numerics::Exact;
use crate::race::Kind;
use crate::trap::{Fault, InLane, Stop};
use crate::warp::Registers;

const ROWS: usize = 16;
const COLUMNS: usize = 8;

/// Number of bits of an element of A and B.
fn width(types: MmaTypes) -> usize {
    match types {
        MmaTypes::Bf16F32 | MmaTypes::F16F32 | MmaTypes::F16F16 => 16,
        MmaTypes::Tf32F32 => 32,
        MmaTypes::Int8 { .. } => 8,
        MmaTypes::F64 => 64,
    }
}

/// Row and k of element v of A.
fn place_a(width: usize, lane: usize, v: usize) -> (usize, usize) {
    let (g, c) = (lane / 4, lane % 4);
    match width {
        16 => (g + 8 * (v / 2 % 2), 2 * c + v % 2 + 8 * (v / 4)),
        32 | 64 => (g + 8 * (v % 2), c + 4 * (v / 2)),
        _ => (g + 8 * (v / 4 % 2), 4 * c + v % 4 + 16 * (v / 8)),
    }
}

/// k and column of element v of B.
fn place_b(width: usize, lane: usize, v: usize) -> (usize, usize) {
    let (g, c) = (lane / 4, lane % 4);
    match width {
        16 => (2 * c + v % 2 + 8 * (v / 2), g),
        32 | 64 => (c + 4 * v, g),
        _ => (4 * c + v % 4 + 16 * (v / 4), g),
    }
}

/// The types of the `wgmma` with the same rounding; `None` for integers.
fn summed_as(types: MmaTypes) -> Option<WgmmaTypes> {
    match types {
        MmaTypes::Bf16F32 => Some(WgmmaTypes::Bf16F32),
        MmaTypes::F16F32 => Some(WgmmaTypes::F16F32),
        MmaTypes::F16F16 => Some(WgmmaTypes::F16F16),
        MmaTypes::Tf32F32 => Some(WgmmaTypes::Tf32F32),
        MmaTypes::Int8 { .. } | MmaTypes::F64 => None,
    }
}

/// The value of an 8-bit element.
fn number(signed: bool, bits: u32) -> i64 {
    if signed { (bits as u8).cast_signed().into() } else { (bits as u8).into() }
}

/// The elements in the registers of a fragment, each with its lane and index.
fn elements(registers: &[Lanes<u32>], width: usize) -> impl Iterator<Item = (usize, usize, u32)> + '_ {
    let each = 32 / width;
    let mask = u32::MAX >> (32 - width);
    (0..32).flat_map(move |lane| {
        (0..registers.len() * each)
            .map(move |v| (lane, v, registers[v / each][lane] >> (v % each * width) & mask))
    })
}

fn read_all(registers: &mut Registers<'_>, operands: &[Operand]) -> Result<Vec<Lanes<u32>>, Fault> {
    operands.iter().map(|&operand| registers.read(operand)).collect()
}

/// `m16n8k8` of `f64`.
fn multiply_doubles(
    registers: &mut Registers<'_>,
    d: &[Reg],
    [a, b, c]: [&[Operand]; 3],
) -> Result<(), Fault> {
    const K: usize = 8;
    let mut all = |operands: &[Operand]| -> Result<Vec<Lanes<u64>>, Fault> {
        operands.iter().map(|&operand| registers.read_wide(operand)).collect()
    };
    let [a, b, c] = [all(a)?, all(b)?, all(c)?];
    let (mut left, mut right) = ([[0.0; K]; ROWS], [[0.0; K]; COLUMNS]);
    for lane in 0..32 {
        for (v, values) in a.iter().enumerate() {
            let (row, k) = place_a(64, lane, v);
            left[row][k] = f64::from_bits(values[lane]);
        }
        for (v, values) in b.iter().enumerate() {
            let (k, column) = place_b(64, lane, v);
            right[column][k] = f64::from_bits(values[lane]);
        }
    }
    for (v, (&reg, old)) in d.iter().zip(&c).enumerate() {
        let result = core::array::from_fn(|lane| {
            let (row, column) = (lane / 4 + 8 * (v / 2), lane % 4 * 2 + v % 2);
            let products = left[row].iter().zip(&right[column]);
            products.fold(f64::from_bits(old[lane]), |sum, (&a, &b)| a.mul_add(b, sum)).to_bits()
        });
        registers.write_wide(reg, &result)?;
    }
    Ok(())
}

fn multiply(
    registers: &mut Registers<'_>,
    types: MmaTypes,
    d: &[Reg],
    [a, b, c]: [&[Operand]; 3],
) -> Result<(), Fault> {
    if types == MmaTypes::F64 {
        return multiply_doubles(registers, d, [a, b, c]);
    }
    let (width, k) = (width(types), types.k() as usize);
    let [a, b, c] = [read_all(registers, a)?, read_all(registers, b)?, read_all(registers, c)?];
    // Rows of A and columns of B, each along k.
    let (mut left, mut right) = (vec![0; ROWS * k], vec![0; COLUMNS * k]);
    for (lane, v, bits) in elements(&a, width) {
        let (row, at) = place_a(width, lane, v);
        left[row * k + at] = bits;
    }
    for (lane, v, bits) in elements(&b, width) {
        let (at, column) = place_b(width, lane, v);
        right[column * k + at] = bits;
    }
    let mut exact = Exact::default();
    let floats = summed_as(types);
    if let Some(types) = floats {
        exact.begin(types, false, &left, &right);
    }
    let packed = types.accumulators().0 == Type::U32;
    let (each, mask) = if packed { (2, 0xFFFF) } else { (1, u32::MAX) };
    for (register, (&reg, old)) in d.iter().zip(&c).enumerate() {
        let result = core::array::from_fn(|lane| {
            let mut word = 0;
            for half in 0..each {
                let v = register * each + half;
                let (row, column) = (lane / 4 + 8 * (v / 2), lane % 4 * 2 + v % 2);
                let old = old[lane] >> (16 * half) & mask;
                let sum = match floats {
                    Some(_) => exact.sum(row * k, column * k..(column + 1) * k, None, Some(old)),
                    None => whole(types, &left[row * k..][..k], &right[column * k..][..k], old),
                };
                word |= sum << (16 * half);
            }
            word
        });
        registers.write(reg, &result)?;
    }
    Ok(())
}

/// An element of D of integer types.
fn whole(types: MmaTypes, a: &[u32], b: &[u32], old: u32) -> u32 {
    let MmaTypes::Int8 { signed_a, signed_b, saturate } = types else { return old };
    let products = a.iter().zip(b).map(|(&a, &b)| number(signed_a, a) * number(signed_b, b));
    let sum = i64::from(old.cast_signed()) + products.sum::<i64>();
    let bounded = sum.clamp(i32::MIN.into(), i32::MAX.into());
    if saturate { bounded as u32 } else { sum as u32 }
}

impl Machine<'_> {
    pub(super) fn warp_matrix(&mut self, index: usize, matrix: &WarpMatrix) -> Result<Flow, Stop> {
        self.warps[index].converged()?;
        match matrix {
            WarpMatrix::Load { dst, address, transpose } => {
                self.load_matrix(index, dst, *address, *transpose)?;
            }
            WarpMatrix::Multiply { types, d, a, b, c } => {
                multiply(&mut self.warps[index].registers, *types, d, [a, b, c])?;
            }
        }
        Ok(Flow::Next)
    }

    /// `ldmatrix`. Lane 8j + r has the address of row r of matrix j. Register j of lane l receives the
    /// element (l / 4, 2 (l % 4)) of matrix j, or of its transpose, and the next one.
    fn load_matrix(
        &mut self,
        index: usize,
        dst: &[Reg],
        address: Operand,
        transpose: bool,
    ) -> Result<(), Stop> {
        let addresses = self.warps[index].registers.read(address)?;
        self.rows_access(index, &addresses, dst.len(), Kind::READ);
        let warp = &mut self.warps[index];
        let cta = &mut self.ctas[warp.cta];
        let view = warp.views.common();
        for (matrix, &reg) in dst.iter().enumerate() {
            let mut halves = [[0u16; 8]; 8];
            for (row, halves) in halves.iter_mut().enumerate() {
                let lane = 8 * matrix + row;
                let offset = cta.own(addresses[lane]).lane(lane)?;
                let bytes = cta.shared.load(offset, 16).lane(lane)?;
                let observed = cta.shared.observed(offset, 16, &view.known);
                observed.lane(lane)?;
                for (half, bytes) in halves.iter_mut().zip(bytes.chunks_exact(2)) {
                    *half = u16::from_le_bytes([bytes[0], bytes[1]]);
                }
            }
            let element = |row: usize, column: usize| {
                u32::from(if transpose { halves[column][row] } else { halves[row][column] })
            };
            let values = core::array::from_fn(|lane| {
                let (row, column) = (lane / 4, lane % 4 * 2);
                element(row, column) | element(row, column + 1) << 16
            });
            warp.registers.write(reg, &values)?;
        }
        self.note_rows(index, &addresses, dst.len(), Kind::READ)?;
        Ok(())
    }
}
