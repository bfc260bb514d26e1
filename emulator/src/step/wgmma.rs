//! Warpgroup matrix multiplies: issued by four warps, done once for all of them, owned until waited for.
//!
//! A multiply begins when the first warp of the warpgroup issues it: from then on nobody may write the shared
//! memory it reads. It can be done when all four have issued it, and is done when the schedule says so; the first
//! warp's wait gives the shared memory back, as one thread of a warpgroup may speak for it. Registers stay lent
//! until the warp they belong to has waited itself.

use std::collections::VecDeque;

use ptx::WgmmaTypes;
use ptx::inst::{Inst, Reg, WgmmaA};

use super::Flow;
use crate::descriptor::{Descriptor, Tile};
use crate::float::{NAN32, from_bf16, from_f16, to_f16};
use crate::machine::Machine;
use crate::schedule::Schedule;
use crate::shared::Shared;
use crate::trap::{Fault, Stop};
use crate::warp::{ALL, Blocked, Registers};

/// Elements of K in one multiply of 16-bit types.
const K: usize = 16;
/// Every warp of a warpgroup, a bit each.
const WHOLE: u8 = 0xF;

/// A multiply that not every warp has waited for.
#[derive(Clone, Debug)]
struct Multiply {
    /// Its operation in the program.
    pc: usize,
    a: u64,
    b: u64,
    accumulate: bool,
    /// Warps that have issued it and waited for it, a bit each.
    issued: u8,
    retired: u8,
}

/// What the four warps of a warpgroup do together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warpgroup {
    multiplies: VecDeque<Multiply>,
    /// Number of the first of `multiplies`, of the first not done, and of the first whose shared memory is owned.
    first: u64,
    done: u64,
    owned: u64,
    /// Other collective instructions: operation and warps that have executed it.
    collectives: VecDeque<(usize, u8)>,
    first_collective: u64,
}

impl Warpgroup {
    /// How many multiplies are done.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }

    /// The operation of the first multiply that is not done.
    pub(crate) fn next(&self) -> Option<usize> {
        self.multiplies.get((self.done - self.first) as usize).map(|multiply| multiply.pc)
    }
}

/// Operands of a multiply as floats, laid out as the accumulators are.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// For each warp and each half of its rows: an element of A for each k and lane.
    a: Vec<[[f32; 32]; K]>,
    /// For each 8 columns and each parity of the column: an element of B for each k and each of 4 lanes.
    b: Vec<[[f32; 4]; K]>,
}

/// The instruction's fields that its shared operands depend on.
fn tiles(inst: &Inst, multiply: (u64, u64)) -> Result<(Option<Tile>, Option<Tile>), Fault> {
    let Inst::Wgmma { n, a, transpose_a, transpose_b, .. } = inst else { return Ok((None, None)) };
    let a = match a {
        WgmmaA::Shared(_) => {
            let descriptor = Descriptor::decode(multiply.0)?;
            Some(Tile { descriptor, extent: 64, transposed: *transpose_a })
        }
        WgmmaA::Registers(_) => None,
    };
    let b = Tile { descriptor: Descriptor::decode(multiply.1)?, extent: *n, transposed: *transpose_b };
    Ok((a, Some(b)))
}

/// Accumulators and fragments of a multiply.
fn lent(inst: &Inst) -> (&[Reg], &[Reg]) {
    let Inst::Wgmma { d, a, .. } = inst else { return (&[], &[]) };
    match a {
        WgmmaA::Shared(_) => (d, &[]),
        WgmmaA::Registers(fragment) => (d, fragment),
    }
}

impl Machine<'_> {
    pub(super) fn wgmma_fence(&mut self, warp: usize) -> Result<Flow, Stop> {
        self.warps[warp].converged()?;
        self.warps[warp].registers.fence();
        Ok(Flow::Next)
    }

    pub(super) fn wgmma_commit(&mut self, warp: usize) -> Result<Flow, Stop> {
        let warp = &mut self.warps[warp];
        warp.converged()?;
        warp.commits.push_back(warp.multiplies);
        Ok(Flow::Next)
    }

    /// The warpgroup of a warp, and the warp's bit in it.
    fn warpgroup(&self, warp: usize) -> Result<(usize, u8), Fault> {
        let warps = self.program.function.threads / 32;
        let index = self.warps[warp].index;
        if index / 4 * 4 + 4 > warps {
            return Err(Fault::NoWarpgroup { warps });
        }
        Ok(((index / 4) as usize, 1 << (index % 4)))
    }

    /// Checks that the warps of a warpgroup execute the same collective instructions in the same order.
    pub(super) fn collective(&mut self, index: usize) -> Result<(), Fault> {
        let Ok((group, bit)) = self.warpgroup(index) else { return Ok(()) };
        let warp = &mut self.warps[index];
        let (pc, sequence) = (warp.pc, warp.collectives);
        warp.collectives += 1;
        let group = &mut self.ctas[warp.cta].warpgroups[group];
        let at = (sequence - group.first_collective) as usize;
        match group.collectives.get_mut(at) {
            Some((other, warps)) if *other == pc => *warps |= bit,
            Some((other, _)) => {
                let other = self.program.ops[*other].site;
                return Err(Fault::WarpgroupDisagrees { sequence, other, operand: "instruction" });
            }
            None => group.collectives.push_back((pc, bit)),
        }
        while group.collectives.front().is_some_and(|(_, warps)| *warps == WHOLE) {
            group.collectives.pop_front();
            group.first_collective += 1;
        }
        Ok(())
    }

    pub(super) fn wgmma(&mut self, index: usize, inst: &Inst) -> Result<Flow, Stop> {
        let Inst::Wgmma { n, a, b, accumulate, .. } = inst else { return Ok(Flow::Next) };
        let (group, bit) = self.warpgroup(index)?;
        let warp = &mut self.warps[index];
        warp.converged()?;
        let a = match a {
            WgmmaA::Shared(descriptor) => warp.registers.uniform_wide(*descriptor, "descriptor of A")?,
            WgmmaA::Registers(_) => 0,
        };
        let b = warp.registers.uniform_wide(*b, "descriptor of B")?;
        let accumulate = match warp.registers.predicate(*accumulate)? {
            0 => false,
            ALL => true,
            _ => return Err(Fault::NotUniform { operand: "scale-d" }.into()),
        };
        let (accumulators, fragment) = lent(inst);
        let shape = *n as u16;
        for &reg in accumulators {
            warp.registers.lend(reg, shape, accumulate)?;
        }
        for &reg in fragment {
            warp.registers.lend(reg, shape, true)?;
        }
        let (pc, sequence, cta) = (warp.pc, warp.multiplies, warp.cta);
        warp.multiplies += 1;
        let cta = &mut self.ctas[cta];
        let warpgroup = &mut cta.warpgroups[group];
        let at = (sequence - warpgroup.first) as usize;
        match warpgroup.multiplies.get_mut(at) {
            Some(known) => {
                let operand = match () {
                    () if known.pc != pc => Some("instruction"),
                    () if known.a != a => Some("descriptor of A"),
                    () if known.b != b => Some("descriptor of B"),
                    () if known.accumulate != accumulate => Some("scale-d"),
                    () => None,
                };
                if let Some(operand) = operand {
                    let other = self.program.ops[known.pc].site;
                    return Err(Fault::WarpgroupDisagrees { sequence, other, operand }.into());
                }
                known.issued |= bit;
            }
            None => {
                let (a_tile, b_tile) = tiles(inst, (a, b))?;
                for tile in a_tile.into_iter().chain(b_tile) {
                    take(&mut cta.shared, tile)?;
                }
                let multiply = Multiply { pc, a, b, accumulate, issued: bit, retired: 0 };
                warpgroup.multiplies.push_back(multiply);
            }
        }
        if self.options.schedule == Schedule::Earliest {
            let cta = self.warps[index].cta;
            let until = self.multipliable(cta, group);
            self.multiply_until(cta, group, until)?;
        }
        Ok(Flow::Next)
    }

    /// How many multiplies of a warpgroup every warp has issued.
    pub(crate) fn multipliable(&self, cta: usize, group: usize) -> u64 {
        let warpgroup = &self.ctas[cta].warpgroups[group];
        let whole = warpgroup.multiplies.iter().take_while(|multiply| multiply.issued == WHOLE).count();
        warpgroup.first + whole as u64
    }

    /// How many multiplies of a warpgroup are done.
    pub(crate) fn multiplied(&self, cta: usize, group: usize) -> u64 {
        self.ctas[cta].warpgroups[group].done
    }

    pub(super) fn wgmma_wait(&mut self, index: usize, pending: u32) -> Result<Flow, Stop> {
        let warp = &mut self.warps[index];
        warp.converged()?;
        let Some(newest) = warp.commits.len().checked_sub(1 + pending as usize) else {
            return Ok(Flow::Next);
        };
        let until = warp.commits[newest];
        if until > warp.retired {
            let (cta, retired) = (warp.cta, warp.retired);
            let (group, bit) = self.warpgroup(index)?;
            if self.multiplied(cta, group) < until {
                return Ok(Flow::Retry(Blocked::Warpgroup { until }));
            }
            self.release_operands(cta, group, until)?;
            let program = self.program;
            let warpgroup = &mut self.ctas[cta].warpgroups[group];
            for sequence in retired..until {
                let Some(multiply) = warpgroup.multiplies.get_mut((sequence - warpgroup.first) as usize)
                else {
                    continue;
                };
                multiply.retired |= bit;
                if let crate::program::Action::Inst(inst) = &program.ops[multiply.pc].action {
                    let (accumulators, fragment) = lent(inst);
                    for &reg in accumulators.iter().chain(fragment) {
                        self.warps[index].registers.give_back(reg);
                    }
                }
            }
            while warpgroup.multiplies.front().is_some_and(|multiply| multiply.retired == WHOLE) {
                warpgroup.multiplies.pop_front();
                warpgroup.first += 1;
            }
            self.warps[index].retired = until;
        }
        self.warps[index].commits.drain(..=newest);
        Ok(Flow::Next)
    }

    /// Gives back the shared memory that multiplies before `until` read.
    fn release_operands(&mut self, cta: usize, group: usize, until: u64) -> Result<(), Fault> {
        let program = self.program;
        let cta = &mut self.ctas[cta];
        let warpgroup = &mut cta.warpgroups[group];
        for sequence in warpgroup.owned..until {
            let Some(multiply) = warpgroup.multiplies.get((sequence - warpgroup.first) as usize) else {
                continue;
            };
            if let crate::program::Action::Inst(inst) = &program.ops[multiply.pc].action {
                let (a, b) = tiles(inst, (multiply.a, multiply.b))?;
                for tile in a.into_iter().chain(b) {
                    for index in 0..tile.chunks() {
                        cta.shared.release_read(tile.chunk(index));
                    }
                }
            }
        }
        warpgroup.owned = warpgroup.owned.max(until);
        Ok(())
    }

    /// Does the multiplies before `until`.
    pub(crate) fn multiply_until(&mut self, cta: usize, group: usize, until: u64) -> Result<(), Fault> {
        let program = self.program;
        let warps = (program.function.threads / 32) as usize;
        let first_warp = cta * warps + group * 4;
        while self.ctas[cta].warpgroups[group].done < until {
            let warpgroup = &mut self.ctas[cta].warpgroups[group];
            let at = (warpgroup.done - warpgroup.first) as usize;
            warpgroup.done += 1;
            let Some(multiply) = warpgroup.multiplies.get(at).cloned() else { return Ok(()) };
            let crate::program::Action::Inst(inst) = &program.ops[multiply.pc].action else { continue };
            let Inst::Wgmma { types, n, d, a, negate_a, negate_b, .. } = inst else { continue };
            let (a_tile, b_tile) = tiles(inst, (multiply.a, multiply.b))?;
            let convert = match types {
                WgmmaTypes::Bf16F32 => from_bf16,
                WgmmaTypes::F16F32 | WgmmaTypes::F16F16 => from_f16,
            };
            let shared = &self.ctas[cta].shared;
            let scratch = &mut self.scratch;
            if let Some(tile) = b_tile {
                scratch.fill_b(shared, tile, convert);
            }
            scratch.a.resize(8, [[0.0; 32]; K]);
            if let Some(tile) = a_tile {
                scratch.fill_a(shared, tile, convert);
            }
            for quarter in 0..4 {
                let Some(warp) = self.warps.get_mut(first_warp + quarter) else { continue };
                let registers = &mut warp.registers;
                if let WgmmaA::Registers(fragment) = a {
                    scratch.fill_fragment(registers, quarter, fragment, convert);
                }
                if negate_a != negate_b {
                    scratch.negate(quarter);
                }
                scratch.multiply(registers, quarter, (*types, d), multiply.accumulate);
            }
            self.counts.wgmmas += 1;
            self.counts.multiply_adds += 64 * u64::from(*n) * u64::from(types.k());
        }
        Ok(())
    }

    /// The operation of the first multiply that a warp has issued and not waited for.
    pub(super) fn unfinished_multiply(&self, index: usize) -> Option<usize> {
        let warp = &self.warps[index];
        let group = self.ctas[warp.cta].warpgroups.get((warp.index / 4) as usize)?;
        let at = warp.retired.checked_sub(group.first)?;
        let multiply = group.multiplies.get(usize::try_from(at).ok()?)?;
        (warp.retired < warp.multiplies).then_some(multiply.pc)
    }

    /// Warps of the CTA that have not issued a multiply that this warp waits for, and its number.
    pub(crate) fn missing_multiply(&self, index: usize, until: u64) -> (u64, Vec<u32>) {
        let warp = &self.warps[index];
        let first = warp.index / 4 * 4;
        let peers = self.warps.iter().filter(|peer| peer.cta == warp.cta && peer.index / 4 * 4 == first);
        let fewest = peers.clone().map(|peer| peer.multiplies).min().unwrap_or(0);
        let missing = peers.filter(|peer| peer.multiplies < until).map(|peer| peer.index).collect();
        (fewest.min(until), missing)
    }
}

/// Checks an operand's chunks and takes them.
fn take(shared: &mut Shared, tile: Tile) -> Result<(), Fault> {
    for index in 0..tile.chunks() {
        let chunk = tile.chunk(index);
        shared.bounds(chunk, 16, 16)?;
        shared.take_read(chunk, true)?;
    }
    Ok(())
}

/// A chunk's 8 elements as floats.
fn floats(bytes: [u8; 16], convert: impl Fn(u16) -> f32) -> [f32; 8] {
    core::array::from_fn(|i| convert(u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])))
}

impl Scratch {
    fn fill_b(&mut self, shared: &Shared, tile: Tile, convert: impl Fn(u16) -> f32 + Copy) {
        self.b.resize((tile.extent / 4) as usize, [[0.0; 4]; K]);
        for index in 0..tile.chunks() {
            let values = floats(shared.chunk(tile.chunk(index)), convert);
            if tile.transposed {
                let (k, block) = tile.column(index);
                for (i, value) in values.into_iter().enumerate() {
                    self.b[block as usize * 2 + i % 2][k as usize][i / 2] = value;
                }
            } else {
                let (row, half) = ((index / 2) as usize, (index % 2) as usize);
                let column = &mut self.b[row / 8 * 2 + row % 2][half * 8..half * 8 + 8];
                for (place, value) in column.iter_mut().zip(values) {
                    place[row % 8 / 2] = value;
                }
            }
        }
    }

    /// Puts an element of A where the four lanes of its row find it.
    fn put_a(&mut self, row: usize, k: usize, value: f32) {
        self.a[row / 8][k][row % 8 * 4..row % 8 * 4 + 4].fill(value);
    }

    fn fill_a(&mut self, shared: &Shared, tile: Tile, convert: impl Fn(u16) -> f32 + Copy) {
        for index in 0..tile.chunks() {
            let values = floats(shared.chunk(tile.chunk(index)), convert);
            for (i, value) in values.into_iter().enumerate() {
                if tile.transposed {
                    let (k, block) = tile.column(index);
                    self.put_a(block as usize * 8 + i, k as usize, value);
                } else {
                    self.put_a((index / 2) as usize, (index % 2) as usize * 8 + i, value);
                }
            }
        }
    }

    /// Register r of lane 4g + c holds row g + 8 (r % 2), elements 2c and 2c + 1 of K half r / 2.
    fn fill_fragment(
        &mut self,
        registers: &mut Registers<'_>,
        quarter: usize,
        fragment: &[Reg; 4],
        convert: impl Fn(u16) -> f32,
    ) {
        for (r, &reg) in fragment.iter().enumerate() {
            let values = *registers.lent(reg);
            for (lane, bits) in values.into_iter().enumerate() {
                let row = quarter * 16 + r % 2 * 8 + lane / 4;
                let k = r / 2 * 8 + lane % 4 * 2;
                self.put_a(row, k, convert(bits as u16));
                self.put_a(row, k + 1, convert((bits >> 16) as u16));
            }
        }
    }

    fn negate(&mut self, quarter: usize) {
        for half in &mut self.a[quarter * 2..quarter * 2 + 2] {
            for value in half.iter_mut().flatten() {
                *value = -*value;
            }
        }
    }

    /// Adds one warp's products to its accumulators: value v of lane 4g + c is row g + 8 (v / 2 % 2), column
    /// 8 (v / 4) + 2c + v % 2.
    fn multiply(
        &self,
        registers: &mut Registers<'_>,
        quarter: usize,
        (types, d): (WgmmaTypes, &[Reg]),
        accumulate: bool,
    ) {
        match types {
            WgmmaTypes::Bf16F32 | WgmmaTypes::F16F32 => {
                for (v, &reg) in d.iter().enumerate() {
                    let lanes = registers.lent(reg);
                    let mut sums = if accumulate { lanes.map(f32::from_bits) } else { [0.0; 32] };
                    add_products(&mut sums, &self.a[quarter * 2 + v / 2 % 2], &self.b[v / 4 * 2 + v % 2]);
                    *lanes = sums.map(|sum| if sum.is_nan() { NAN32 } else { sum.to_bits() });
                }
            }
            WgmmaTypes::F16F16 => {
                for (r, &reg) in d.iter().enumerate() {
                    let lanes = registers.lent(reg);
                    let mut packed = [0u32; 32];
                    for parity in 0..2 {
                        let old = lanes.map(|bits| from_f16((bits >> (16 * parity)) as u16));
                        let mut sums = if accumulate { old } else { [0.0; 32] };
                        add_products(&mut sums, &self.a[quarter * 2 + r % 2], &self.b[r / 2 * 2 + parity]);
                        for (packed, sum) in packed.iter_mut().zip(sums) {
                            *packed |= u32::from(to_f16(sum)) << (16 * parity);
                        }
                    }
                    *lanes = packed;
                }
            }
        }
    }
}

/// `sums[lane] += a[k][lane] * b[k][lane % 4]` for every k in order: the one loop that costs time.
#[inline(never)]
fn add_products(sums: &mut [f32; 32], a: &[[f32; 32]; K], b: &[[f32; 4]; K]) {
    let mut total = *sums;
    for (a, b) in a.iter().zip(b) {
        for row in 0..8 {
            for c in 0..4 {
                total[row * 4 + c] += a[row * 4 + c] * b[c];
            }
        }
    }
    *sums = total;
}
