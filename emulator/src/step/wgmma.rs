//! Warpgroup matrix multiplies (`wgmma`): issued by four warps, executed once for all of them.
//!
//! A multiply owns the shared memory that it reads from the moment when the first warp of the warpgroup
//! issues it. It can be executed when all four warps have issued it, and is executed when the schedule
//! decides. The first wait by a warp releases the shared memory. Each warp's registers stay owned until that
//! warp itself has waited.

use ptx::Operand;
use ptx::inst::{Inst, WgmmaA};

use super::Flow;
use crate::banks::lent;
use crate::descriptor::Tile;
use crate::lanes::ALL;
use crate::machine::Machine;
use crate::multiply::{Halves, Multiply, Scratch, WHOLE};
use crate::numerics::Numerics;
use crate::schedule::Schedule;
use crate::trap::{Fault, Stop};
use crate::warp::Blocked;

/// The operands in shared memory.
fn tiles(inst: &Inst, descriptors: (u64, u64)) -> Result<[Option<Tile>; 2], Fault> {
    let Inst::Wgmma { n, sparse, a, transpose_a, transpose_b, .. } = inst else { return Ok([None, None]) };
    let a = match a {
        WgmmaA::Shared(_) => Some(Tile::new(descriptors.0, 64, 2, *transpose_a)?),
        WgmmaA::Registers(_) => None,
    };
    let units = if sparse.is_some() { 4 } else { 2 };
    Ok([a, Some(Tile::new(descriptors.1, *n, units, *transpose_b)?)])
}

impl Machine<'_> {
    pub(super) fn wgmma_fence(&mut self, warp: usize) -> Result<Flow, Stop> {
        self.warps[warp].converged()?;
        self.collective(warp)?;
        self.warps[warp].registers.fence();
        Ok(Flow::Next)
    }

    pub(super) fn wgmma_commit(&mut self, warp: usize) -> Result<Flow, Stop> {
        self.warps[warp].converged()?;
        self.collective(warp)?;
        let warp = &mut self.warps[warp];
        warp.commits.push_back(warp.multiplies);
        Ok(Flow::Next)
    }

    /// The warpgroup of a warp, and the warp's bit in it.
    pub(super) fn warpgroup(&self, warp: usize) -> Result<(usize, u8), Fault> {
        let warps = self.program.function.threads().div_ceil(32);
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
                let other = self.program.ops[*other].site.clone();
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
        let Inst::Wgmma { types, n, sparse, a, b, accumulate, .. } = inst else { return Ok(Flow::Next) };
        let (group, bit) = self.warpgroup(index)?;
        let warp = &mut self.warps[index];
        warp.converged()?;
        let a = match a {
            WgmmaA::Shared(descriptor) => warp.registers.uniform_wide(*descriptor, "descriptor of A")?,
            WgmmaA::Registers(_) => 0,
        };
        let b = warp.registers.uniform_wide(*b, "descriptor of B")?;
        let alive = warp.registers.alive;
        let accumulate = match warp.registers.predicate(*accumulate)? & alive {
            0 => false,
            all if all == alive => true,
            _ => return Err(Fault::NotUniform { operand: "scale-d" }.into()),
        };
        let (accumulators, inputs) = lent(inst);
        let k = types.k().ilog2() as u16 + u16::from(sparse.is_some());
        let shape = *n as u16 | k << 9;
        warp.registers.lend((warp.pc, accumulators), shape, accumulate)?;
        for &reg in inputs.into_iter().flatten() {
            warp.registers.lend_input(reg)?;
        }
        let metadata = sparse.map(|sparse| warp.registers.peek(Operand::Reg(sparse.metadata)));
        let (pc, sequence, cta, quarter) = (warp.pc, warp.multiplies, warp.cta, (warp.index % 4) as usize);
        warp.multiplies += 1;
        let warpgroup = &mut self.ctas[cta].warpgroups[group];
        let at = (sequence - warpgroup.first) as usize;
        let begun = at < warpgroup.multiplies.len();
        match warpgroup.multiplies.get_mut(at) {
            Some(known) => {
                if let Some(operand) = disagreement(known, pc, (a, b), accumulate) {
                    let other = self.program.ops[known.pc].site.clone();
                    return Err(Fault::WarpgroupDisagrees { sequence, other, operand }.into());
                }
                known.issued |= bit;
                if let (Some(known), Some(metadata)) = (&mut known.metadata, metadata) {
                    known[quarter] = metadata;
                }
            }
            None => {
                let metadata = metadata.map(|own| {
                    let mut all = Box::new([[0; 32]; 4]);
                    all[quarter] = own;
                    all
                });
                let (issued, retired) = (bit, 0);
                let (operands, landed, touched) = ([None, None], Vec::new(), Vec::new());
                let multiply =
                    Multiply { pc, a, b, accumulate, metadata, issued, retired, operands, landed, touched };
                self.begin_multiply((index, group), sequence, inst, multiply)?;
            }
        }
        if let (true, Some(multiply)) = (begun, self.ctas[cta].warpgroups[group].multiplies.get(at)) {
            self.watch_operands(index, sequence, multiply);
        }
        self.order_operands(index, group, at)?;
        if self.options.schedule == Schedule::Earliest {
            let cta = self.warps[index].cta;
            let until = self.multipliable(cta, group);
            self.multiply_until(cta, group, until)?;
        }
        Ok(Flow::Next)
    }

    /// Adds a multiply that no other warp has issued: it takes ownership of the shared memory that it reads.
    fn begin_multiply(
        &mut self,
        (index, group): (usize, usize),
        sequence: u64,
        inst: &Inst,
        mut multiply: Multiply,
    ) -> Result<(), Fault> {
        let tiles = tiles(inst, (multiply.a, multiply.b))?;
        multiply.operands = tiles.map(|tile| Some(self.scratch.chunks(tile?, &self.launch.common.layouts)));
        self.watch_operands(index, sequence, &multiply);
        let cta = &mut self.ctas[self.warps[index].cta];
        for (is_a, chunks) in [true, false].into_iter().zip(&multiply.operands) {
            let Some(chunks) = chunks else { continue };
            let marks = &mut multiply.landed;
            let readers = if is_a { None } else { Some(WHOLE) };
            cta.shared.lend((group, sequence), chunks, readers, marks)?;
            if !chunks.pieces.iter().all(|piece| cta.races.untouched(piece.first, 1)) {
                let accessed = |chunk: &u32| !cta.races.untouched(*chunk, 16);
                multiply.touched.extend(chunks.chunks.iter().copied().filter(accessed));
            }
        }
        cta.warpgroups[group].multiplies.push_back(multiply);
        Ok(())
    }

    /// Checks that a warp has observed what was written to the operands of the multiply at this place.
    fn order_operands(&mut self, index: usize, group: usize, at: usize) -> Result<(), Fault> {
        let view = self.warps[index].views.common();
        let warpgroup = &self.ctas[self.warps[index].cta].warpgroups[group];
        if let Some(multiply) = warpgroup.multiplies.get(at) {
            multiply.landed.iter().try_for_each(|mark| mark.observed(&view.known))?;
            for chunk in multiply.touched.clone() {
                self.order_collective(index, chunk)?;
            }
        }
        Ok(())
    }

    /// Notes what a warp's part of a multiply reads.
    fn watch_operands(&self, index: usize, sequence: u64, multiply: &Multiply) {
        let (warp, quarter) = (&self.warps[index], self.warps[index].index % 4);
        let [a, b] = &multiply.operands;
        let rows = a.iter().flat_map(|chunks| {
            let of = (0..).zip(&chunks.chunks).filter(|(index, _)| chunks.tile.row(*index) / 16 == quarter);
            of.map(|(_, &chunk)| chunk)
        });
        let columns = b.iter().flat_map(|chunks| chunks.chunks.iter().copied());
        self.multiply_begins((index, warp.pc), sequence, rows.chain(columns));
    }

    /// Number of multiplies that every warp of a warpgroup has issued.
    pub(crate) fn multipliable(&self, cta: usize, group: usize) -> u64 {
        let warpgroup = &self.ctas[cta].warpgroups[group];
        let whole = warpgroup.multiplies.iter().take_while(|multiply| multiply.issued == WHOLE).count();
        warpgroup.first + whole as u64
    }

    /// Number of multiplies of a warpgroup that are done.
    pub(crate) fn multiplied(&self, cta: usize, group: usize) -> u64 {
        self.ctas[cta].warpgroups[group].done
    }

    pub(super) fn wgmma_wait(&mut self, index: usize, pending: u32) -> Result<Flow, Stop> {
        let warp = &mut self.warps[index];
        warp.converged()?;
        let Some(newest) = warp.commits.len().checked_sub(1 + pending as usize) else {
            self.collective(index)?;
            return Ok(Flow::Next);
        };
        let until = warp.commits[newest];
        if until > warp.retired {
            let (cta, retired) = (warp.cta, warp.retired);
            let (group, bit) = self.warpgroup(index)?;
            if self.multiplied(cta, group) < until {
                return Ok(Flow::Retry(Blocked::Warpgroup { until }));
            }
            self.release_operands(cta, group, until);
            self.multiplies_end(index, until);
            let shared = &self.ctas[cta].shared;
            let own = self.warps[index].index as usize;
            for place in [shared.multiplies(group), shared.waited(own)].into_iter().flatten() {
                self.warps[index].views.change(ALL, |_, view| view.known.raise(place, until as u32));
            }
            let program = self.program;
            let warpgroup = &mut self.ctas[cta].warpgroups[group];
            for sequence in retired..until {
                let Some(multiply) = warpgroup.multiplies.get_mut((sequence - warpgroup.first) as usize)
                else {
                    continue;
                };
                multiply.retired |= bit;
                if let Some(inst) = program.ops[multiply.pc].action.inst() {
                    self.warps[index].registers.give_back(multiply.pc, lent(inst).1);
                }
            }
            while warpgroup.multiplies.front().is_some_and(|multiply| multiply.retired == WHOLE) {
                warpgroup.multiplies.pop_front();
                warpgroup.first += 1;
            }
            self.warps[index].retired = until;
        }
        self.warps[index].commits.drain(..=newest);
        self.collective(index)?;
        Ok(Flow::Next)
    }

    /// Ends the ownership of the shared memory that multiplies before `until` read.
    fn release_operands(&mut self, cta: usize, group: usize, until: u64) {
        let cta = &mut self.ctas[cta];
        let warpgroup = &mut cta.warpgroups[group];
        for sequence in warpgroup.owned..until {
            let Some(multiply) = warpgroup.multiplies.get((sequence - warpgroup.first) as usize) else {
                continue;
            };
            for chunks in multiply.operands.iter().flatten() {
                cta.shared.give_back(chunks);
            }
        }
        warpgroup.owned = warpgroup.owned.max(until);
    }

    /// Executes the multiplies before `until`.
    pub(crate) fn multiply_until(&mut self, cta: usize, group: usize, until: u64) -> Result<(), Fault> {
        let program = self.program;
        let warps = (program.function.threads().div_ceil(32)) as usize;
        let first_warp = cta * warps + group * 4;
        while self.ctas[cta].warpgroups[group].done < until {
            let warpgroup = &mut self.ctas[cta].warpgroups[group];
            let at = (warpgroup.done - warpgroup.first) as usize;
            warpgroup.done += 1;
            let Some(multiply) = warpgroup.multiplies.get(at) else { return Ok(()) };
            let Some(inst) = program.ops[multiply.pc].action.inst() else { continue };
            let Inst::Wgmma { types, n, sparse, d, a, negate_a, negate_b, .. } = inst else { continue };
            let (operands, accumulate) = (multiply.operands.clone(), multiply.accumulate);
            let metadata = multiply.metadata.clone();
            let shared = &self.ctas[cta].shared;
            let Scratch { chunks: _, matrices, fast, exact } = &mut self.scratch;
            matrices.begin(*types, *n, sparse.is_some());
            let direct =
                self.options.numerics == Numerics::Fast && sparse.is_none() && types.element_bits() == 16;
            let halves =
                operands.each_ref().map(|chunks| Halves::of(shared, chunks.as_deref()?).filter(|_| direct));
            let [a_chunks, b_chunks] = &operands;
            if let (None, Some(chunks)) = (&halves[0], a_chunks) {
                matrices.fill_a(shared, chunks);
            }
            if let (None, Some(chunks)) = (&halves[1], b_chunks) {
                matrices.fill_b(shared, chunks);
            }
            let Some(warps) = self.warps.get_mut(first_warp..first_warp + 4) else { continue };
            if let WgmmaA::Registers(fragment) = a {
                for (quarter, warp) in warps.iter_mut().enumerate() {
                    let fragment = fragment.map(|reg| *warp.registers.lent(reg));
                    matrices.fill_fragment(quarter, &fragment);
                }
            }
            if let (Some(sparse), Some(metadata)) = (sparse, &metadata) {
                matrices.select(sparse.selector, metadata)?;
            }
            let negate = negate_a != negate_b;
            match self.options.numerics {
                _ if !types.allows_negation() => {
                    for (quarter, warp) in warps.iter_mut().enumerate() {
                        matrices.each_sum(&mut warp.registers, quarter, d, |row, column, old| {
                            let old = if accumulate { old } else { 0 };
                            matrices.integer(row, column, old.cast_signed()).cast_unsigned()
                        });
                    }
                }
                Numerics::Fast => {
                    fast.begin(matrices, negate, halves);
                    for (quarter, warp) in warps.iter_mut().enumerate() {
                        fast.multiply(matrices, &mut warp.registers, quarter, d, accumulate);
                    }
                }
                Numerics::Exact => {
                    exact.begin(matrices.types, negate, &matrices.a, &matrices.b);
                    for (quarter, warp) in warps.iter_mut().enumerate() {
                        matrices.each_sum(&mut warp.registers, quarter, d, |row, column, old| {
                            let old = accumulate.then_some(old);
                            let columns = (column * matrices.k_b)..((column + 1) * matrices.k_b);
                            exact.sum(row * matrices.k_a, columns, matrices.places(row), old)
                        });
                    }
                }
            }
            self.counts.wgmmas += 1;
            self.counts.multiply_adds += 64 * u64::from(*n) * u64::from(types.k());
        }
        Ok(())
    }

    /// The operation of the first multiply that a warp has issued but not waited for.
    pub(super) fn unfinished_multiply(&self, index: usize) -> Option<usize> {
        let warp = &self.warps[index];
        let group = self.ctas[warp.cta].warpgroups.get((warp.index / 4) as usize)?;
        let at = warp.retired.checked_sub(group.first)?;
        let multiply = group.multiplies.get(usize::try_from(at).ok()?)?;
        (warp.retired < warp.multiplies).then_some(multiply.pc)
    }

    /// The number of a multiply that this warp waits for, and the warps of the CTA that have not issued it.
    pub(crate) fn missing_multiply(&self, index: usize, until: u64) -> (u64, Vec<u32>) {
        let warp = &self.warps[index];
        let first = warp.index / 4 * 4;
        let peers = self.warps.iter().filter(|peer| peer.cta == warp.cta && peer.index / 4 * 4 == first);
        let fewest = peers.clone().map(|peer| peer.multiplies).min().unwrap_or(0);
        let missing = peers.filter(|peer| peer.multiplies < until).map(|peer| peer.index).collect();
        (fewest.min(until), missing)
    }
}

/// The operand in which a warp's multiply differs from that of another warp.
fn disagreement(known: &Multiply, pc: usize, (a, b): (u64, u64), accumulate: bool) -> Option<&'static str> {
    match () {
        () if known.pc != pc => Some("instruction"),
        () if known.a != a => Some("descriptor of A"),
        () if known.b != b => Some("descriptor of B"),
        () if known.accumulate != accumulate => Some("scale-d"),
        () => None,
    }
}
