//! Loads and stores of global and shared memory, `stmatrix`.

use ptx::inst::{Address, Operand, Reg};
use ptx::{Space, Type};

use super::Flow;
use crate::clock::View;
use crate::lanes::{Lanes, lanes, map};
use crate::machine::{Cta, Machine};
use crate::race::Kind;
use crate::shared::{BASE, RANK_SHIFT, Shared, split};
use crate::trap::{Fault, InLane, Stop};
use crate::word::from_bytes;

impl Cta {
    /// The offset of an address in the CTA's own shared memory. Refuses addresses of other CTAs.
    pub(super) fn own(&self, address: u32) -> Result<u32, Fault> {
        match split(address) {
            (rank, offset) if rank == self.rank => Ok(offset),
            (rank, _) => Err(Fault::SharedOtherCta { address, rank, own: self.rank }),
        }
    }
}

impl Machine<'_> {
    /// The CTA that an address in the cluster's shared memory names, and the offset there.
    pub(super) fn anywhere(&self, address: u32, own: u32) -> Result<(usize, u32), Fault> {
        let (rank, offset) = split(address);
        match self.ctas.get(rank as usize) {
            Some(cta) if cta.exited => Err(Fault::PeerExited { rank }),
            Some(_) => Ok((rank as usize, offset)),
            None => Err(Fault::SharedOtherCta { address, rank, own }),
        }
    }

    pub(super) fn shared_base(&mut self, warp: usize, dst: Reg, offset: u32) -> Result<Flow, Stop> {
        let warp = &mut self.warps[warp];
        let address = (self.ctas[warp.cta].rank << RANK_SHIFT | BASE).wrapping_add(offset);
        warp.registers.write(dst, &[address; 32])?;
        Ok(Flow::Next)
    }

    /// `getctarank`: the rank of the CTA whose shared memory an address names.
    pub(super) fn cta_rank(&mut self, warp: usize, dst: Reg, address: Operand) -> Result<Flow, Stop> {
        let registers = &mut self.warps[warp].registers;
        let addresses = registers.read(address)?;
        registers.write(dst, &addresses.map(|address| split(address).0))?;
        Ok(Flow::Next)
    }

    pub(super) fn map_shared(
        &mut self,
        warp: usize,
        dst: Reg,
        address: Operand,
        rank: Operand,
    ) -> Result<Flow, Stop> {
        let registers = &mut self.warps[warp].registers;
        let (address, rank) = (registers.read(address)?, registers.read(rank)?);
        // The address of a CTA that does not exist is one that nobody may use.
        let rank = rank.map(|rank| rank.min(u32::MAX >> RANK_SHIFT));
        registers.write(dst, &core::array::from_fn(|i| split(address[i]).1 | rank[i] << RANK_SHIFT))?;
        Ok(Flow::Next)
    }

    /// Reads global memory for a program. Where warnings are collected, bytes that nobody has written are a warning.
    pub(super) fn read_global(&self, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        if self.options.warnings.is_none() {
            return self.memory.load(address, out);
        }
        if !self.memory.load_any(address, out, self.options.garbage)? {
            let bytes = u32::try_from(out.len()).unwrap_or(u32::MAX);
            self.unwritten.set(Some((address, bytes)));
        }
        Ok(())
    }

    /// A fault that is a warning where warnings are collected.
    pub(super) fn debatable(&self, warp: usize, stop: Stop) -> Result<(), Stop> {
        let Some(warnings) = self.options.warnings else { return Err(stop) };
        let pc = stop.by.map_or(self.warps[warp].pc, |(_, pc)| pc);
        // What is not awaited is another matter in each piece of memory.
        let which =
            if let Fault::GridNotAwaited { address } = *stop.fault { self.memory.base(address) } else { 0 };
        warnings.add((pc, stop.fault.rule().name, which), || *self.trap(warp, stop));
        Ok(())
    }

    /// Warns of what an operation of a warp has read now, in global memory or the shared memory of a CTA, and nobody has written.
    pub(crate) fn warn_of_unwritten(&self, cta: usize, (warp, pc, lane): (usize, usize, Option<usize>)) {
        // Elsewhere such a read is refused.
        if self.options.warnings.is_none() {
            return;
        }
        let global =
            self.unwritten.take().map(|(address, bytes)| Fault::GlobalUninitialised { address, bytes });
        let read = [global, self.ctas[cta].shared.noticed(), self.warps[warp].registers.noticed()];
        for fault in read.into_iter().flatten() {
            // It is one where warnings are collected.
            let _warned = self.debatable(warp, fault.by(warp, pc, lane));
        }
    }

    /// The address that each lane accesses.
    pub(super) fn addresses(
        &mut self,
        warp: usize,
        space: Space,
        address: Address,
    ) -> Result<Lanes<u64>, Fault> {
        let registers = &mut self.warps[warp].registers;
        Ok(match space {
            Space::Global | Space::Local | Space::Param | Space::Generic => {
                let offset = i64::from(address.offset).cast_unsigned();
                map(&registers.read_wide(address.base)?, |base| base.wrapping_add(offset))
            }
            // The address is a generic one in the shared window.
            Space::Shared | Space::SharedCluster if registers.is_wide(address.base) => {
                let offset = address.offset.cast_unsigned();
                map(&registers.read_wide(address.base)?, |base| (base as u32).wrapping_add(offset).into())
            }
            Space::Shared | Space::SharedCluster => {
                let offset = address.offset.cast_unsigned();
                map(&registers.read(address.base)?, |base| base.wrapping_add(offset).into())
            }
        })
    }

    /// Refuses to use the shared memory of another CTA, unless the lane knows that the CTA has started.
    pub(super) fn reached(&self, (warp, lane): (usize, usize), target: usize) -> Result<(), Fault> {
        let (state, rank) = (&self.warps[warp], self.ctas[target].rank);
        if state.cta != target && state.views.of(lane).started >> rank & 1 == 0 {
            return Err(Fault::PeerNotStarted { rank });
        }
        Ok(())
    }

    /// Remembers that a lane has used the shared memory of another CTA.
    pub(super) fn touch(&mut self, (warp, lane): (usize, usize), target: usize) -> Result<(), Fault> {
        self.reached((warp, lane), target)?;
        let state = &self.warps[warp];
        if state.cta != target {
            let last = (state.views.count, state.pc);
            self.ctas[target].touched.insert((warp, 1 << lane), last);
        }
        Ok(())
    }

    /// The CTA and the offset of a lane's shared access.
    pub(super) fn shared_place(&self, cta: usize, space: Space, address: u64) -> Result<(usize, u32), Fault> {
        let address = address as u32;
        match space {
            Space::Global | Space::Shared | Space::Local | Space::Param | Space::Generic => {
                Ok((cta, self.ctas[cta].own(address)?))
            }
            Space::SharedCluster => self.anywhere(address, self.ctas[cta].rank),
        }
    }

    pub(super) fn load(
        &mut self,
        warp: usize,
        space: Space,
        ty: Type,
        dst: &[Reg],
        address: Address,
    ) -> Result<Flow, Stop> {
        let addresses = self.addresses(warp, space, address)?;
        if matches!(space, Space::Local | Space::Param) {
            return self.load_own(warp, space, (ty, dst), &addresses);
        }
        let (cta, active) = (self.warps[warp].cta, self.warps[warp].registers.active);
        let size = ty.bytes() as usize;
        let bytes = (size * dst.len()) as u32;
        self.lanes_access((warp, space), (&addresses, bytes), Kind::READ);
        let mut values = [[0u64; 32]; 4];
        let mut undefined: Vec<(usize, usize, Fault)> = Vec::new();
        if space == Space::Global {
            aligned_lanes(&addresses, bytes, active)?;
            self.note_lanes(warp, space, (&addresses, bytes), Kind::READ)?;
        }
        for lane in lanes(active) {
            let mut buffer = [0u8; 16];
            let buffer = &mut buffer[..bytes as usize];
            match space {
                Space::Global | Space::Local | Space::Param | Space::Generic => {
                    let loaded = in_parts(buffer, size, |at, part| {
                        self.read_global(addresses[lane].wrapping_add(at as u64), part)
                    });
                    let missing = loaded.lane(lane)?;
                    undefined.extend(missing.into_iter().map(|(element, fault)| (element, lane, fault)));
                }
                Space::Shared | Space::SharedCluster => {
                    let (cta, offset) = self.shared_place(cta, space, addresses[lane]).lane(lane)?;
                    let shared = &self.ctas[cta].shared;
                    shared.bounds(offset, bytes, bytes).lane(lane)?;
                    let loaded = in_parts(buffer, size, |at, part| {
                        let data = shared.load(offset + at as u32, part.len() as u32)?;
                        part.copy_from_slice(data);
                        Ok(())
                    });
                    let missing = loaded.lane(lane)?;
                    undefined.extend(missing.into_iter().map(|(element, fault)| (element, lane, fault)));
                    self.warn_of_unwritten(cta, (warp, self.warps[warp].pc, Some(lane)));
                    let known = &self.warps[warp].views.of(lane).known;
                    shared.observed(offset, bytes, known).lane(lane)?;
                    self.touch((warp, lane), cta).lane(lane)?;
                }
            }
            for (values, element) in values.iter_mut().zip(buffer.chunks_exact(size.max(1))) {
                values[lane] = from_bytes(element);
            }
        }
        if space != Space::Global {
            self.note_lanes(warp, space, (&addresses, bytes), Kind::READ)?;
        }
        let registers = &mut self.warps[warp].registers;
        for (&reg, values) in dst.iter().zip(&values) {
            registers.write_extended(ty, reg, values)?;
        }
        for (element, lane, fault) in undefined {
            if let Some(&reg) = dst.get(element) {
                registers.undefine(reg, lane, fault);
            }
        }
        Ok(Flow::Next)
    }

    /// `ld.global.nc`: a load of memory that nobody writes while the kernel runs.
    pub(super) fn load_constant(
        &mut self,
        warp: usize,
        ty: Type,
        dst: &[Reg],
        address: Address,
    ) -> Result<Flow, Stop> {
        let addresses = self.addresses(warp, Space::Global, address)?;
        let bytes = ty.bytes() * dst.len() as u32;
        aligned_lanes(&addresses, bytes, self.warps[warp].registers.active)?;
        self.note_lanes(warp, Space::Global, (&addresses, bytes), Kind::CONSTANT)?;
        self.load(warp, Space::Global, ty, dst, address)
    }

    pub(super) fn store(
        &mut self,
        warp: usize,
        space: Space,
        ty: Type,
        src: &[Operand],
        address: Address,
    ) -> Result<Flow, Stop> {
        let addresses = self.addresses(warp, space, address)?;
        if matches!(space, Space::Local | Space::Param) {
            return self.store_own(warp, space, (ty, src), &addresses);
        }
        let values = self.stored_values(warp, ty, src)?;
        let size = ty.bytes() as usize;
        let bytes = (size * src.len()) as u32;
        self.lanes_access((warp, space), (&addresses, bytes), Kind::WRITE);
        let repeats = self.options.warnings.is_some()
            && self.repeats((warp, space), &addresses, (&values, size, src.len()));
        if space == Space::Global {
            aligned_lanes(&addresses, bytes, self.warps[warp].registers.active)?;
            self.note_stores(warp, space, (&addresses, bytes), (&values, size, repeats))?;
        }
        let order = self.store_order(warp, &addresses);
        let cta = self.warps[warp].cta;
        for lane in order {
            let mut buffer = [0u8; 16];
            let buffer = &mut buffer[..bytes as usize];
            for (element, values) in buffer.chunks_exact_mut(size.max(1)).zip(&values) {
                element.copy_from_slice(&values[lane].to_le_bytes()[..size]);
            }
            match space {
                Space::Global | Space::Local | Space::Param | Space::Generic => {
                    self.memory.store(addresses[lane], buffer).lane(lane)?;
                }
                Space::Shared | Space::SharedCluster => {
                    let (target, offset) = self.shared_place(cta, space, addresses[lane]).lane(lane)?;
                    self.ctas[target].shared.store(offset, buffer).lane(lane)?;
                    let view = self.warps[warp].views.of(lane);
                    let shared = &self.ctas[target].shared;
                    let group = self.warps[warp].group_in(target);
                    shared.may_write((offset, bytes), view, group).lane(lane)?;
                    self.touch((warp, lane), target).lane(lane)?;
                }
            }
        }
        if space != Space::Global {
            self.note_stores(warp, space, (&addresses, bytes), (&values, size, repeats))?;
        }
        Ok(Flow::Next)
    }

    /// Whether a store leaves memory as it is.
    fn repeats(
        &self,
        (warp, space): (usize, Space),
        addresses: &Lanes<u64>,
        (values, size, elements): (&[Lanes<u64>], usize, usize),
    ) -> bool {
        let state = &self.warps[warp];
        lanes(state.registers.active).all(|lane| {
            let bytes =
                values[..elements].iter().flat_map(|value| value[lane].to_le_bytes().into_iter().take(size));
            let bytes: Vec<u8> = bytes.collect();
            if space == Space::Global {
                let mut held = [0; 16];
                let held = &mut held[..bytes.len()];
                return self.memory.load(addresses[lane], held).is_ok() && *held == *bytes;
            }
            let place = self.shared_place(state.cta, space, addresses[lane]);
            place.is_ok_and(|(cta, offset)| self.ctas[cta].shared.holds(offset, &bytes))
        })
    }

    /// The values of each lane for a store of up to four elements.
    pub(super) fn stored_values(
        &mut self,
        warp: usize,
        ty: Type,
        src: &[Operand],
    ) -> Result<[Lanes<u64>; 4], Fault> {
        let registers = &mut self.warps[warp].registers;
        let mut values = [[0u64; 32]; 4];
        for (values, &operand) in values.iter_mut().zip(src) {
            *values = registers.read_low(ty, operand)?;
        }
        Ok(values)
    }

    /// `stmatrix`. Lane 8j + r has the address of row r of matrix j. Register j of lane l holds the element
    /// (l / 4, 2 (l % 4)) of matrix j, or of its transpose, and the next one.
    pub(super) fn store_matrix(
        &mut self,
        warp: usize,
        address: Operand,
        src: &[Operand],
        transpose: bool,
    ) -> Result<Flow, Stop> {
        self.warps[warp].converged()?;
        let index = warp;
        let addresses = self.warps[index].registers.read(address)?;
        self.rows_access(index, &addresses, src.len(), Kind::WRITE);
        let warp = &mut self.warps[index];
        let group = warp.group_in(warp.cta);
        let cta = &mut self.ctas[warp.cta];
        let view = warp.views.common();
        for (matrix, &operand) in src.iter().enumerate() {
            let values = warp.registers.read(operand)?;
            for row in 0..8 {
                let lane = 8 * matrix + row;
                let mut bytes = [0u8; 16];
                if transpose {
                    let (first, shift) = (row / 2, 16 * (row % 2));
                    for (to, from) in
                        bytes.as_chunks_mut::<2>().0.iter_mut().zip(values[first..].iter().step_by(4))
                    {
                        *to = ((from >> shift) as u16).to_le_bytes();
                    }
                } else {
                    for (to, from) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(&values[4 * row..]) {
                        *to = from.to_le_bytes();
                    }
                }
                put_row(&mut cta.shared, (cta.rank, group), addresses[lane], &bytes, &view).lane(lane)?;
            }
        }
        self.note_rows(index, &addresses, src.len(), Kind::WRITE)?;
        Ok(Flow::Next)
    }
}

fn put_row(
    shared: &mut Shared,
    (own, group): (u32, Option<usize>),
    address: u32,
    bytes: &[u8],
    view: &View,
) -> Result<(), Fault> {
    match split(address) {
        (rank, offset) if rank == own => {
            shared.store(offset, bytes)?;
            shared.may_write((offset, 16), view, group)
        }
        (rank, _) => Err(Fault::SharedOtherCta { address, rank, own }),
    }
}

/// Loads several elements: all at once, or one by one if some bytes were never written. Returns the elements
/// that were never written. Fails if none was written.
fn in_parts(
    buffer: &mut [u8],
    size: usize,
    mut load: impl FnMut(usize, &mut [u8]) -> Result<(), Fault>,
) -> Result<Vec<(usize, Fault)>, Fault> {
    let unwritten = |fault: &Fault| {
        matches!(fault, Fault::SharedUninitialised { .. } | Fault::GlobalUninitialised { .. })
    };
    let whole = load(0, buffer);
    let elements = buffer.len() / size.max(1);
    let Err(fault) = whole else { return Ok(Vec::new()) };
    if elements < 2 || !unwritten(&fault) {
        return Err(fault);
    }
    let mut missing = Vec::new();
    for (element, part) in buffer.chunks_exact_mut(size.max(1)).enumerate() {
        match load(element * size, part) {
            Ok(()) => {}
            Err(fault) if unwritten(&fault) => missing.push((element, fault)),
            Err(fault) => return Err(fault),
        }
    }
    if missing.len() == elements { Err(fault) } else { Ok(missing) }
}

/// Refuses an address of an active lane that is not a multiple of `alignment`.
pub(super) fn aligned_lanes(addresses: &Lanes<u64>, alignment: u32, active: u32) -> Result<(), Stop> {
    for lane in lanes(active) {
        aligned(addresses[lane], alignment).lane(lane)?;
    }
    Ok(())
}

fn aligned(address: u64, alignment: u32) -> Result<(), Fault> {
    if address.is_multiple_of(u64::from(alignment.max(1))) {
        Ok(())
    } else {
        Err(Fault::GlobalMisaligned { address, alignment })
    }
}
