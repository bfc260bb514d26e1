//! Tensor copies: issued by one thread, completed by the machine when the schedule decides.

mod repeated;

use ptx::abi::{Im2colMap, TENSOR_MAP_BYTES, TensorElement};
use ptx::inst::{AtomicOp, AtomicType, Operand, Reduction, Scope};

use super::Flow;
use super::tensor_map::Held;
use crate::clock::NEVER;
use crate::flight::{Load, MapRead, Source, Store};
use crate::lanes::lanes;
use crate::machine::Machine;
use crate::mbarrier::Landed;
use crate::meetings::Memory;
use crate::numerics::changed;
use crate::race::{By, Kind};
use crate::schedule::Schedule;
use crate::shared::{Shared, reported};
use crate::tensor_map::{Map, Row, Span, swizzled};
use crate::trap::{Fault, InLane, Stop, TensorFault};
use crate::warp::Blocked;
use crate::word::from_bytes;

/// Number of rows of a box that the host fetches at the same time.
const AHEAD: u32 = 32;
/// Alignment of a box in shared memory, in bytes.
const BOX_ALIGNMENT: u32 = 128;

/// A box of a tensor, as one lane names it in a copy.
#[derive(Clone, Debug)]
pub(super) struct Boxed {
    pub(super) lane: usize,
    pub(super) map: Map,
    /// The map's generic address; `None` for a copy without a tensor map.
    pub(super) map_at: Option<u64>,
    pub(super) start: [i64; 5],
}

impl Boxed {
    /// Contiguous bytes of global memory, as a box of one row.
    pub(super) fn line(lane: usize, address: u64, bytes: u32) -> Result<Self, Fault> {
        if !address.is_multiple_of(LINE_ALIGNMENT.into()) {
            return Err(Fault::GlobalMisaligned { address, alignment: LINE_ALIGNMENT });
        }
        if !bytes.is_multiple_of(LINE_ALIGNMENT) {
            return Err(Fault::BulkSize { bytes });
        }
        Ok(Self { lane, map: Map::line(address, bytes), map_at: None, start: [0; 5] })
    }

    /// The alignment of its bytes in shared memory.
    fn alignment(&self) -> u32 {
        if self.map_at.is_none() { LINE_ALIGNMENT } else { BOX_ALIGNMENT }
    }
}

/// Alignment of addresses and sizes of bulk copies, in bytes.
pub(super) const LINE_ALIGNMENT: u32 = 16;

/// A place in a tensor: the map, the coordinates, and in im2col mode the filter offsets.
pub(super) type Tensor<'a> = (Operand, &'a [Operand], Option<&'a [Operand]>);

/// The type of a reduction on the elements of a map; `None` if the element type has no reduction.
fn reduced(element: TensorElement) -> Option<AtomicType> {
    match element {
        TensorElement::U8 | TensorElement::U16 | TensorElement::F64 => None,
        TensorElement::U32 => Some(AtomicType::U32),
        TensorElement::S32 => Some(AtomicType::S32),
        TensorElement::U64 => Some(AtomicType::U64),
        TensorElement::S64 => Some(AtomicType::S64),
        TensorElement::F16 => Some(AtomicType::F16),
        TensorElement::Bf16 => Some(AtomicType::Bf16),
        TensorElement::F32 => Some(AtomicType::F32),
    }
}

/// The reduction that a tensor copy does on a map's elements.
fn tensor_reduction(op: AtomicOp, element: TensorElement) -> Result<Reduction, Fault> {
    let whole = |ty: &AtomicType| !op.is_untyped() || ty.register().is_integer();
    let reduce = reduced(element).filter(whole).and_then(|ty| {
        // Bitwise operations use unsigned types.
        let ty = match (op.is_untyped(), ty.bytes()) {
            (true, 4) => AtomicType::U32,
            (true, 8) => AtomicType::U64,
            _ => ty,
        };
        Some(Reduction { op, ty }).filter(|reduce| reduce.in_global())
    });
    reduce.ok_or(Fault::Tensor(TensorFault::Reduction { op: op.name(), element }))
}

/// Refuses a base outside the bounding box and an offset with too many bits. Stores the offset in the map.
pub(super) fn placed(map: &mut Map, start: &[i64; 5], offsets: [u32; 3]) -> Result<(), Fault> {
    let (bits, spatial) = (Im2colMap::corner_bits(map.rank), map.rank - 2);
    let Some(walk) = &mut map.walk else { return Err(Fault::Tensor(TensorFault::Mode { im2col: false })) };
    for dim in 0..spatial {
        let ((low, high), base) = (walk.bounds[dim], start[dim + 1]);
        if !(low..=high).contains(&base) {
            return Err(Fault::Tensor(TensorFault::Im2colBase { dim: dim as u32, base, low, high }));
        }
        let offset = offsets[dim];
        if offset >> bits != 0 {
            return Err(Fault::Tensor(TensorFault::Im2colOffset { dim: dim as u32, offset, bits }));
        }
        walk.offsets[dim] = offset.into();
    }
    Ok(())
}

impl Machine<'_> {
    /// A prefetch moves nothing, but its map and its coordinates are checked.
    pub(super) fn tensor_prefetch(&mut self, warp: usize, tensor: Tensor<'_>) -> Result<Flow, Stop> {
        drop(self.boxes(warp, tensor)?);
        Ok(Flow::Next)
    }

    /// The map and the start coordinates that each active lane names.
    fn boxes(&mut self, warp: usize, (map, coords, im2col): Tensor<'_>) -> Result<Vec<Boxed>, Stop> {
        let registers = &mut self.warps[warp].registers;
        let maps = registers.read_wide(map)?;
        let mut starts = [[0i64; 5]; 32];
        for (dim, &coord) in coords.iter().enumerate().take(5) {
            let values = registers.read(coord)?;
            for (start, value) in starts.iter_mut().zip(values) {
                start[dim] = value.cast_signed().into();
            }
        }
        let mut offsets = [[0; 3]; 32];
        if let Some(operands) = im2col {
            for (dim, &operand) in operands.iter().enumerate().take(3) {
                for (offset, value) in offsets.iter_mut().zip(registers.read(operand)?) {
                    offset[dim] = value & 0xFFFF;
                }
            }
        }
        let mut boxes = Vec::new();
        for lane in lanes(self.warps[warp].registers.active) {
            let map_at = maps[lane];
            let mut map = self.tensor_map((warp, lane), map_at).lane(lane)?;
            if map.walk.is_some() != im2col.is_some() {
                return Err(Fault::Tensor(TensorFault::Mode { im2col: map.walk.is_some() }).lane(lane));
            }
            if map.rank != coords.len() {
                let (map, coordinates) = (map.rank as u32, coords.len() as u32);
                return Err(Fault::Tensor(TensorFault::Rank { map, coordinates }).lane(lane));
            }
            let (at, bytes) = (starts[lane][0], map.element.bytes());
            if at * i64::from(bytes) % i64::from(LINE_ALIGNMENT) != 0 {
                return Err(Fault::Tensor(TensorFault::Alignment { at, bytes }).lane(lane));
            }
            if im2col.is_some() {
                placed(&mut map, &starts[lane], offsets[lane]).lane(lane)?;
            }
            boxes.push(Boxed { lane, map, map_at: Some(map_at), start: starts[lane] });
        }
        Ok(boxes)
    }

    pub(super) fn prefetch_tensor_map(&mut self, warp: usize, map: Operand) -> Result<Flow, Stop> {
        let maps = self.warps[warp].registers.read_wide(map)?;
        for lane in lanes(self.warps[warp].registers.active) {
            self.tensor_map((warp, lane), maps[lane]).lane(lane)?;
        }
        Ok(Flow::Next)
    }

    pub(super) fn tensor_load(
        &mut self,
        warp: usize,
        tensor: Tensor<'_>,
        (target, barrier): (Operand, Operand),
        multicast: Option<Operand>,
    ) -> Result<Flow, Stop> {
        let boxes = self.boxes(warp, tensor)?;
        let registers = &mut self.warps[warp].registers;
        let (targets, barriers) = (registers.read(target)?, registers.read(barrier)?);
        let masks = multicast.map(|mask| registers.read(mask)).transpose()?;
        for boxed in boxes {
            let lane = boxed.lane;
            let mask = masks.map(|masks| masks[lane]);
            self.issue_load(warp, mask, boxed, (targets[lane], barriers[lane])).lane(lane)?;
        }
        Ok(Flow::Next)
    }

    pub(super) fn issue_load(
        &mut self,
        warp: usize,
        mask: Option<u32>,
        boxed: Boxed,
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
        let alignment = boxed.alignment();
        let Boxed { lane, map, map_at, start } = boxed;
        let bytes = map.box_bytes();
        let by = (warp, self.warps[warp].pc, lane);
        for cta in receivers {
            let memory = Memory::Shared(cta);
            self.work_begins(by, (memory, target), [(target.into(), bytes.into())], true);
            let receiver = &mut self.ctas[cta];
            if receiver.exited {
                return Err(Fault::PeerExited { rank: receiver.rank });
            }
            receiver.shared.bounds(target, bytes, alignment)?;
            self.reached((warp, lane), cta)?;
            self.uses(self.use_now(warp, 1 << lane), cta, barrier_offset)?;
            self.ctas[cta].shared.barrier(barrier_offset)?;
            self.fenced((warp, 1 << lane), cta, barrier_offset)?;
            let receiver = &mut self.ctas[cta];
            receiver.shared.take_write(target, bytes)?;
            let view = self.warps[warp].views.of(lane);
            self.ctas[cta].shared.reused((target, bytes), view, false)?;
            self.order_async((warp, lane), (cta, target, bytes), (true, true))?;
            self.counts.tensor_loads += u64::from(map_at.is_some());
            let until = self.phase_of(cta, barrier_offset);
            if map_at.is_some() && map.spans(&start).next().is_none() {
                // One byte says it: a card knows whole pages, and a tensor may be shorter than what the copy reads.
                let address = map.address;
                let found = self.memory.load(address, &mut [0]);
                found.map_err(|_| Fault::Tensor(TensorFault::Base { address }))?;
            }
            let rows = map.spans(&start).flat_map(Span::rows);
            let rows = rows.map(|row| (row.address, (row.end - row.start) as u64));
            self.note_copy((warp, lane), rows, until)?;
            if let Some(at) = map_at.filter(|at| self.may_change(*at)) {
                self.map_is_used((warp, lane), at, Some(Held::Until(until)))?;
                let state = &mut self.warps[warp];
                let read = MapRead { at, pc: by.1, lane, group: state.bulk_groups[lane], until };
                state.maps.retain(|old| !old.is_before(&read));
                state.maps.push(read);
            }
            let group = self.warps[warp].bulk_groups[lane];
            let source = Source::Global { map: map.clone(), start, map_at, map_read: false };
            let load = Load { cta, target, barrier: barrier_offset, source, reduce: None, group, by };
            self.start(load)?;
        }
        Ok(())
    }

    /// Puts a load in flight, or completes it at once under [`Schedule::Earliest`].
    pub(super) fn start(&mut self, load: Load) -> Result<(), Fault> {
        match self.options.schedule {
            Schedule::Earliest => self.land(load)?,
            Schedule::Default | Schedule::Latest | Schedule::Paced | Schedule::Random => {
                self.loads.push_back(load);
            }
        }
        Ok(())
    }

    /// Completes a load: writes its data and credits its mbarrier.
    pub(crate) fn land(&mut self, load: Load) -> Result<(), Fault> {
        let bytes = load.bytes();
        let Load { cta, target, barrier, source, reduce, by, .. } = load;
        self.work_arrives(by, (cta, target), (cta, barrier));
        if let Source::Shared(from, offset, _) = source {
            self.work_arrives(by, (from, offset), (cta, barrier));
        }
        let issuer = self.ctas[self.warps[by.0].cta].rank;
        let adds = reduce.is_some();
        let joint = adds || matches!(source, Source::Registers(_));
        match source {
            Source::Global { map, start, .. } => self.bring_box(cta, target, &map, &start)?,
            Source::Shared(from, offset, _) => {
                let data = self.ctas[from].shared.bytes(offset, bytes).to_vec();
                for chunk in (offset..offset + bytes).step_by(16) {
                    self.ctas[from].shared.release_read(chunk);
                }
                self.bring(cta, target, data, reduce);
            }
            Source::Registers(data) => self.bring(cta, target, data, reduce),
        }
        let shared = &mut self.ctas[cta].shared;
        let credited = shared.barrier(barrier)?;
        credited.started(issuer);
        credited.landed.push(Landed { offset: target, bytes, joint, adds });
        if credited.complete(reported(barrier), bytes)? {
            shared.phase_completed(barrier);
        }
        Ok(())
    }

    /// Writes or combines bytes in shared memory.
    fn bring(&mut self, cta: usize, target: u32, mut data: Vec<u8>, reduce: Option<Reduction>) {
        let shared = &mut self.ctas[cta].shared;
        if let Some(Reduction { op, ty }) = reduce {
            let old = shared.bytes(target, data.len() as u32);
            let size = ty.bytes() as usize;
            for (new, old) in data.chunks_exact_mut(size).zip(old.chunks_exact(size)) {
                let value = changed(op, ty, false, from_bytes(old), from_bytes(new));
                new.copy_from_slice(&value.to_le_bytes()[..size]);
            }
        }
        shared.put(target, &data);
    }

    /// Reads a box of global memory into shared memory. What is outside the tensor is zero.
    fn bring_box(&mut self, cta: usize, target: u32, map: &Map, start: &[i64; 5]) -> Result<(), Fault> {
        let row_bytes = map.row_bytes();
        let whole = |span: &Span| span.inside() == (0..row_bytes as usize);
        if map.spans(start).filter(whole).map(|span| span.rows).sum::<u32>() < map.rows() {
            self.ctas[cta].shared.clear(target, map.box_bytes());
        }
        for span in map.spans(start) {
            let (first, bytes) = span.extent();
            let words = whole(&span) && first.is_multiple_of(16) && row_bytes.is_multiple_of(16);
            let part = self.memory.part(first, bytes).filter(|_| words && self.options.warnings.is_none());
            for (index, row) in (span.first..).zip(span.rows()) {
                let at = target + index * row_bytes;
                let Some(part) = part else {
                    self.bring_row((cta, at), map, row)?;
                    continue;
                };
                if (index - span.first).is_multiple_of(AHEAD) {
                    let next = span.rows().skip((index - span.first) as usize).take(AHEAD as usize);
                    part.look(next.map(|row| (row.address, row.end - row.start)));
                }
                let words = part.load(row.address, row.end - row.start)?;
                self.ctas[cta].shared.put_row(at, map.swizzle, words);
            }
        }
        Ok(())
    }

    /// The same for a row that is inside the tensor in part, or of which bytes may be unwritten or out of bounds.
    fn bring_row(&mut self, (cta, at): (usize, u32), map: &Map, row: Row) -> Result<(), Fault> {
        let mut buffer = core::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.resize(map.row_bytes() as usize, 0);
        let read = self.read_global(row.address, &mut buffer[row.start..row.end]);
        let shared = &mut self.ctas[cta].shared;
        for (chunk, bytes) in (at..).step_by(16).zip(buffer.as_chunks::<16>().0) {
            shared.put(swizzled(chunk, map.swizzle), bytes);
        }
        self.buffer = buffer;
        read
    }

    pub(super) fn tensor_store(
        &mut self,
        warp: usize,
        tensor: Tensor<'_>,
        source: Operand,
        reduce: Option<AtomicOp>,
    ) -> Result<Flow, Stop> {
        let boxes = self.boxes(warp, tensor)?;
        let sources = self.warps[warp].registers.read(source)?;
        for boxed in boxes {
            let (lane, element) = (boxed.lane, boxed.map.element);
            let reduce = reduce.map(|op| tensor_reduction(op, element)).transpose();
            reduce.and_then(|reduce| self.issue_store(warp, boxed, sources[lane], reduce)).lane(lane)?;
        }
        Ok(Flow::Next)
    }

    pub(super) fn issue_store(
        &mut self,
        warp: usize,
        boxed: Boxed,
        source: u32,
        reduce: Option<Reduction>,
    ) -> Result<(), Fault> {
        let alignment = boxed.alignment();
        let Boxed { lane, map, map_at, start } = boxed;
        begins_inside(&map, &start)?;
        let cta = self.warps[warp].cta;
        let source = self.ctas[cta].own(source)?;
        let (by, memory) = ((warp, self.warps[warp].pc, lane), Memory::Shared(cta));
        self.work_begins(by, (memory, source), [(source.into(), map.box_bytes().into())], false);
        let shared = &mut self.ctas[cta].shared;
        shared.bounds(source, map.box_bytes(), alignment)?;
        take_box(shared, source, &map, &start)?;
        shared.observed(source, map.box_bytes(), &self.warps[warp].views.of(lane).known)?;
        self.order_async((warp, lane), (cta, source, map.box_bytes()), (false, true))?;
        self.counts.tensor_stores += u64::from(map_at.is_some());
        let (group, pc) = (self.warps[warp].bulk_groups[lane], self.warps[warp].pc);
        let kind = match reduce {
            // Each element is changed in one step with respect to the whole device.
            Some(reduce) => {
                let kind = Kind::WRITE.atomic(Scope::Gpu, reduce.ty.bytes()).asynchronous();
                kind.sums(self.sums(reduce.op, reduce.ty))
            }
            None => Kind::WRITE.asynchronous(),
        };
        let mut store = Store { lane, pc, group, source, map, map_at, start, reduce, done: false };
        self.work_begins(by, (Memory::Global, source), store.rows(), true);
        self.note_store((warp, lane), pc, &store.rows(), (kind, &|| self.repeated(cta, &store)))?;
        if let Some(at) = map_at.filter(|at| self.may_change(*at)) {
            self.map_is_used((warp, lane), at, Some(Held::Going))?;
        }
        if self.options.schedule == Schedule::Earliest {
            self.write_box(cta, &store)?;
            store.done = true;
        }
        self.warps[warp].stores.push(store);
        Ok(())
    }

    /// Completes a store: writes its data to global memory.
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
            let data = &self.buffer[row.start..row.end];
            let Some(Reduction { op, ty }) = store.reduce else {
                self.memory.store(row.address, data)?;
                continue;
            };
            let size = ty.bytes() as usize;
            for (address, new) in (row.address..).step_by(size).zip(data.chunks_exact(size)) {
                self.launch.common.races.word(address, |_| {
                    let mut old = [0; 8];
                    self.memory.load(address, &mut old[..size])?;
                    let value = changed(op, ty, true, from_bytes(&old[..size]), from_bytes(new));
                    self.memory.store(address, &value.to_le_bytes()[..size])
                })?;
            }
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

    /// `cp.async.bulk.wait_group`: waits for the stores that the wait covers, and ends the ownership of their
    /// sources.
    pub(super) fn bulk_wait(&mut self, index: usize, pending: u32, read: bool) -> Result<Flow, Stop> {
        let warp = &mut self.warps[index];
        if !warp.stores_done(pending) {
            return Ok(Flow::Retry(Blocked::Stores { pending }));
        }
        self.maps_waited(index, pending);
        let warp = &mut self.warps[index];
        let cta = warp.cta;
        let stores = core::mem::take(&mut warp.stores);
        let (waited, going) = stores.into_iter().partition::<Vec<_>, _>(|store| warp.covers(pending, store));
        warp.stores = going;
        for store in waited {
            self.work_ends((index, store.pc, store.lane), (Memory::Shared(cta), store.source));
            let bytes = store.map.box_bytes();
            for chunk in (store.source..store.source + bytes).step_by(16) {
                self.ctas[cta].shared.release_read(chunk);
            }
            // A write to the source must come after this wait.
            self.note_source((index, store.pc, store.lane), (cta, store.source, bytes), None)?;
            self.warps[index].unsettled.push(store);
        }
        let warp = &mut self.warps[index];
        if !read {
            let (done, going) = core::mem::take(&mut warp.unsettled)
                .into_iter()
                .partition::<Vec<_>, _>(|store| warp.covers(pending, store));
            warp.unsettled = going;
            let (count, number) = (warp.views.count, self.number(index));
            for store in done {
                self.work_ends((index, store.pc, store.lane), (Memory::Global, store.source));
                let pc = u32::try_from(store.pc).unwrap_or(u32::MAX);
                let by = By::lane(store.lane);
                for row in (0..store.map.rows()).filter_map(|row| store.map.stored_row(&store.start, row)) {
                    let bytes = (row.end - row.start) as u64;
                    let (from, to) = ((number, by, NEVER), (number, by, count));
                    self.launch.common.races.settle((row.address, bytes), pc, from, to);
                }
            }
        }
        Ok(Flow::Next)
    }
}

impl Machine<'_> {
    /// Marks the tensor maps of copies that the active lanes have waited for as read.
    fn maps_waited(&mut self, index: usize, pending: u32) {
        let (number, warp) = (self.number(index), &self.warps[index]);
        let settle = |at: u64, (pc, lane): (usize, usize), (from, by, since): (u32, By, u32)| {
            let pc = u32::try_from(pc).unwrap_or(u32::MAX);
            let to = (number, By::lane(lane), warp.views.count);
            self.launch.common.races.settle((at, TENSOR_MAP_BYTES as u64), pc, (from, by, since), to);
        };
        for load in self.loads.iter_mut().filter(|load| load.by.0 == index) {
            if let Source::Global { map_read, .. } = &mut load.source {
                *map_read |= warp.waits_for(pending, load.by.2, load.group);
            }
        }
        for read in warp.maps.iter().filter(|read| warp.waits_for(pending, read.lane, read.group)) {
            if let Some((from, since)) = read.until {
                let by = By::Copy { warp: number, lane: read.lane as u8 };
                settle(read.at, (read.pc, read.lane), (from, by, since));
            }
        }
        for store in warp.stores.iter().filter(|store| warp.covers(pending, store)) {
            let Some(at) = store.map_at else { continue };
            settle(at, (store.pc, store.lane), (number, By::lane(store.lane), NEVER));
        }
        let mut maps = core::mem::take(&mut self.warps[index].maps);
        maps.retain(|read| !self.warps[index].waits_for(pending, read.lane, read.group));
        self.warps[index].maps = maps;
    }
}

/// Refuses a store that begins before the tensor, or that may have bases outside it, as the hardware does. A
/// box may end after the end of the tensor.
fn begins_inside(map: &Map, start: &[i64; 5]) -> Result<(), Fault> {
    if let Some(dim) = start.iter().position(|&at| at < 0) {
        return Err(Fault::Tensor(TensorFault::Before { dim: dim as u32, at: start[dim] }));
    }
    let Some(walk) = &map.walk else { return Ok(()) };
    for dim in 0..map.rank - 2 {
        let ((low, high), extent) = (walk.bounds[dim], map.dims[dim + 1]);
        if low < 0 || high >= extent as i64 {
            return Err(Fault::Tensor(TensorFault::Im2colBounds { dim: dim as u32, low, high, extent }));
        }
    }
    Ok(())
}

/// Takes ownership of a store's source for reading. Bytes outside the tensor are not stored, so they may be
/// uninitialised.
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
