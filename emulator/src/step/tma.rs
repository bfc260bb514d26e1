//! Tensor copies: issued by one thread, done by the machine when the schedule says so.

use ptx::inst::Operand;

use super::Flow;
use crate::clock::NEVER;
use crate::machine::Machine;
use crate::race::Kind;
use crate::schedule::Schedule;
use crate::shared::{Shared, reported};
use crate::tensor_map::{Map, swizzled};
use crate::trap::{Fault, Stop};
use crate::warp::{Blocked, Store, lanes};

/// Alignment of a box in shared memory.
const BOX_ALIGNMENT: u32 = 128;

/// A tensor load in flight to one CTA.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// The CTA that receives the box.
    pub(crate) cta: usize,
    pub(crate) target: u32,
    pub(crate) barrier: u32,
    pub(crate) map: Map,
    /// The map's generic address, and whether the issuer has waited until it has been read.
    pub(crate) map_at: u64,
    pub(crate) map_read: bool,
    /// The issuing lane's groups that were closed before.
    pub(crate) group: u64,
    start: [i64; 5],
    /// The warp that issued it, its operation, and the lane.
    pub(crate) by: (usize, usize, usize),
}

/// The box that a lane names.
#[derive(Clone, Debug)]
struct Boxed {
    lane: usize,
    map: Map,
    map_at: u64,
    start: [i64; 5],
}

impl Machine<'_> {
    /// The map and the start coordinates that each active lane names.
    fn boxes(&mut self, warp: usize, map: Operand, coords: &[Operand]) -> Result<Vec<Boxed>, Stop> {
        let registers = &mut self.warps[warp].registers;
        let maps = registers.read_wide(map)?;
        let mut starts = [[0i64; 5]; 32];
        for (dim, &coord) in coords.iter().enumerate().take(5) {
            let values = registers.read(coord)?;
            for (start, value) in starts.iter_mut().zip(values) {
                start[dim] = value.cast_signed().into();
            }
        }
        let mut boxes = Vec::new();
        for lane in lanes(self.warps[warp].registers.active) {
            let map_at = maps[lane];
            let map = self.tensor_map(warp, map_at).map_err(|fault| fault.lane(lane))?;
            if map.rank != coords.len() {
                let (map, coordinates) = (map.rank as u32, coords.len() as u32);
                return Err(Fault::TensorRank { map, coordinates }.lane(lane));
            }
            boxes.push(Boxed { lane, map, map_at, start: starts[lane] });
        }
        Ok(boxes)
    }

    pub(super) fn prefetch_tensor_map(&mut self, warp: usize, map: Operand) -> Result<Flow, Stop> {
        let maps = self.warps[warp].registers.read_wide(map)?;
        for lane in lanes(self.warps[warp].registers.active) {
            self.tensor_map(warp, maps[lane]).map_err(|fault| fault.lane(lane))?;
        }
        Ok(Flow::Next)
    }

    pub(super) fn tensor_load(
        &mut self,
        warp: usize,
        map: Operand,
        coords: &[Operand],
        (target, barrier): (Operand, Operand),
        multicast: Option<Operand>,
    ) -> Result<Flow, Stop> {
        let boxes = self.boxes(warp, map, coords)?;
        let registers = &mut self.warps[warp].registers;
        let (targets, barriers) = (registers.read(target)?, registers.read(barrier)?);
        let masks = multicast.map(|mask| registers.read(mask)).transpose()?;
        for boxed in boxes {
            let lane = boxed.lane;
            let mask = masks.map(|masks| masks[lane]);
            let issued = self.issue_load(warp, mask, boxed, (targets[lane], barriers[lane]));
            issued.map_err(|fault| fault.lane(lane))?;
        }
        Ok(Flow::Next)
    }

    fn issue_load(
        &mut self,
        warp: usize,
        mask: Option<u32>,
        Boxed { lane, map, map_at, start }: Boxed,
        (target, barrier): (u32, u32),
    ) -> Result<(), Fault> {
        let own = self.ctas[self.warps[warp].cta].rank;
        let (cta, target) = self.anywhere(target, own)?;
        let (barrier_cta, barrier_offset) = self.anywhere(barrier, own)?;
        let ctas = u32::try_from(self.ctas.len()).unwrap_or(u32::MAX);
        let receivers: Vec<usize> = match mask {
            None if cta == barrier_cta => vec![cta],
            None => {
                let rank = u32::try_from(barrier_cta).unwrap_or(u32::MAX);
                return Err(Fault::SharedOtherCta { address: barrier, rank, own: self.ctas[cta].rank });
            }
            Some(mask) if mask == 0 || mask >> ctas != 0 => return Err(Fault::Multicast { mask, ctas }),
            Some(mask) => lanes(mask).collect(),
        };
        let bytes = map.box_bytes();
        let by = (warp, self.warps[warp].pc, lane);
        for cta in receivers {
            let receiver = &mut self.ctas[cta];
            if receiver.exited {
                return Err(Fault::PeerExited { rank: receiver.rank });
            }
            receiver.shared.bounds(target, bytes, BOX_ALIGNMENT)?;
            receiver.shared.fenced_barrier(barrier_offset)?;
            receiver.shared.take_write(target, bytes)?;
            self.counts.tensor_loads += 1;
            for index in 0..map.rows() {
                if let Some(row) = map.row(&start, index) {
                    let bytes = (row.end - row.start) as u64;
                    self.note(warp, row.address, bytes, Kind::READ.asynchronous())?;
                }
            }
            let group = self.warps[warp].bulk_groups[lane];
            let (map, barrier) = (map.clone(), barrier_offset);
            let load = Load { cta, target, barrier, map, map_at, map_read: false, group, start, by };
            match self.options.schedule {
                Schedule::Earliest => self.land(load)?,
                Schedule::Default | Schedule::Latest | Schedule::Paced | Schedule::Random => {
                    self.loads.push_back(load);
                }
            }
        }
        Ok(())
    }

    /// A load's data arrive, and its barrier is credited.
    pub(crate) fn land(&mut self, load: Load) -> Result<(), Fault> {
        let Load { cta, target, barrier, map, start, .. } = load;
        let shared = &mut self.ctas[cta].shared;
        let row_bytes = map.row_bytes();
        self.buffer.resize(row_bytes as usize, 0);
        for index in 0..map.rows() {
            self.buffer.fill(0);
            if let Some(row) = map.row(&start, index) {
                self.memory.load(row.address, &mut self.buffer[row.start..row.end])?;
            }
            let at = target + index * row_bytes;
            for (chunk, bytes) in (at..).step_by(16).zip(self.buffer.chunks_exact(16)) {
                shared.put(swizzled(chunk, map.swizzle), bytes);
            }
        }
        let bytes = map.box_bytes();
        let credited = shared.barrier(barrier)?;
        credited.landed.push((target, bytes));
        if credited.complete(reported(barrier), bytes)? {
            shared.phase_completed(barrier);
        }
        Ok(())
    }

    pub(super) fn tensor_store(
        &mut self,
        warp: usize,
        map: Operand,
        coords: &[Operand],
        source: Operand,
    ) -> Result<Flow, Stop> {
        let boxes = self.boxes(warp, map, coords)?;
        let sources = self.warps[warp].registers.read(source)?;
        let cta = self.warps[warp].cta;
        for Boxed { lane, map, map_at, start } in boxes {
            let source = self.ctas[cta].own(sources[lane]).map_err(|fault| fault.lane(lane))?;
            let shared = &mut self.ctas[cta].shared;
            shared.bounds(source, map.box_bytes(), BOX_ALIGNMENT).map_err(|fault| fault.lane(lane))?;
            take_box(shared, source, &map, &start).map_err(|fault| fault.lane(lane))?;
            let known = &self.warps[warp].view.known;
            shared.observed(source, map.box_bytes(), known).map_err(|fault| fault.lane(lane))?;
            self.counts.tensor_stores += 1;
            let (group, pc) = (self.warps[warp].bulk_groups[lane], self.warps[warp].pc);
            for index in 0..map.rows() {
                if let Some(row) = map.stored_row(&start, index) {
                    let range = (row.address, (row.end - row.start) as u64);
                    let noted = self.note_in(warp, pc, range, Kind::WRITE.asynchronous(), NEVER);
                    noted.map_err(|fault| fault.lane(lane))?;
                }
            }
            let mut store = Store { lane, pc, group, source, map, map_at, start, done: false };
            if self.options.schedule == Schedule::Earliest {
                self.write_box(cta, &store).map_err(|fault| fault.lane(lane))?;
                store.done = true;
            }
            self.warps[warp].stores.push(store);
        }
        Ok(Flow::Next)
    }

    /// A store's data go to global memory.
    pub(crate) fn write_box(&mut self, cta: usize, store: &Store) -> Result<(), Fault> {
        let Store { source, map, start, .. } = store;
        let shared = &self.ctas[cta].shared;
        let row_bytes = map.row_bytes();
        self.buffer.resize(row_bytes as usize, 0);
        for index in 0..map.rows() {
            let Some(row) = map.stored_row(start, index) else { continue };
            let at = source + index * row_bytes;
            for (chunk, bytes) in (at..).step_by(16).zip(self.buffer.chunks_exact_mut(16)) {
                bytes.copy_from_slice(&shared.chunk(swizzled(chunk, map.swizzle)));
            }
            self.memory.store(row.address, &self.buffer[row.start..row.end])?;
        }
        Ok(())
    }

    pub(super) fn bulk_commit(&mut self, warp: usize) -> Result<Flow, Stop> {
        let warp = &mut self.warps[warp];
        for lane in lanes(warp.registers.active) {
            warp.bulk_groups[lane] += 1;
        }
        Ok(Flow::Next)
    }

    /// Waits for the stores that the wait covers and gives their sources back.
    pub(super) fn bulk_wait(&mut self, index: usize, pending: u32, read: bool) -> Result<Flow, Stop> {
        let warp = &mut self.warps[index];
        if !warp.stores_done(pending) {
            return Ok(Flow::Retry(Blocked::Stores { pending }));
        }
        for load in self.loads.iter_mut().filter(|load| load.by.0 == index) {
            load.map_read |= warp.waits_for(pending, load.by.2, load.group);
        }
        let stores = core::mem::take(&mut warp.stores);
        for store in stores {
            if !warp.covers(pending, &store) {
                warp.stores.push(store);
                continue;
            }
            let shared = &mut self.ctas[warp.cta].shared;
            for chunk in (store.source..store.source + store.map.box_bytes()).step_by(16) {
                shared.release_read(chunk);
            }
            warp.unsettled.push(store);
        }
        if !read {
            let (done, going) = core::mem::take(&mut warp.unsettled)
                .into_iter()
                .partition::<Vec<_>, _>(|store| warp.covers(pending, store));
            warp.unsettled = going;
            let (count, number) = (warp.view.known.local(index), self.number(index));
            for store in done {
                let pc = u32::try_from(store.pc).unwrap_or(u32::MAX);
                for row in (0..store.map.rows()).filter_map(|row| store.map.stored_row(&store.start, row)) {
                    let bytes = (row.end - row.start) as u64;
                    self.launch.races.settle(row.address, bytes, (number, pc), count);
                }
            }
        }
        Ok(Flow::Next)
    }
}

/// Takes a store's source for reading; what lies outside of the tensor is not written anywhere and may hold
/// anything.
fn take_box(shared: &mut Shared, source: u32, map: &Map, start: &[i64; 5]) -> Result<(), Fault> {
    let row_bytes = map.row_bytes();
    for index in 0..map.rows() {
        let inside = map.row(start, index).map_or(0..0, |row| row.start..row.end);
        let row = source + index * row_bytes;
        for at in (0..row_bytes).step_by(16) {
            let wanted = inside.start < at as usize + 16 && (at as usize) < inside.end;
            shared.take_read(swizzled(row + at, map.swizzle), wanted)?;
        }
    }
    Ok(())
}
