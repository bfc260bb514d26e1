//! Bulk copies without a tensor map, reductions by copies, and asynchronous stores to another CTA.

use ptx::inst::{Bulk, Operand, Reduction};

use super::Flow;
use super::tma::{Boxed, LINE_ALIGNMENT};
use crate::flight::{Load, Source};
use crate::lanes::lanes;
use crate::machine::Machine;
use crate::meetings::Memory;
use crate::trap::{Fault, InLane, Stop};

/// An asynchronous write from one CTA to one of its cluster.
struct Parcel {
    source: Source,
    reduce: Option<Reduction>,
    target: u32,
    barrier: u32,
    alignment: u32,
}

impl Machine<'_> {
    pub(super) fn bulk(&mut self, warp: usize, bulk: &Bulk) -> Result<Flow, Stop> {
        match bulk {
            Bulk::Load { dst, src, bytes, barrier, multicast, hint: _ } => {
                let registers = &mut self.warps[warp].registers;
                let (targets, barriers) = (registers.read(*dst)?, registers.read(*barrier)?);
                let (sources, sizes) = (registers.read_wide(*src)?, registers.read(*bytes)?);
                let masks = multicast.map(|mask| registers.read(mask)).transpose()?;
                for lane in lanes(registers.active) {
                    let places = (targets[lane], barriers[lane]);
                    let mask = masks.map(|masks| masks[lane]);
                    let line = Boxed::line(lane, sources[lane], sizes[lane]);
                    line.and_then(|line| self.issue_load(warp, mask, line, places)).lane(lane)?;
                }
            }
            Bulk::Store { dst, src, bytes, reduce, hint: _ } => {
                let registers = &mut self.warps[warp].registers;
                let (targets, sources) = (registers.read_wide(*dst)?, registers.read(*src)?);
                let sizes = registers.read(*bytes)?;
                for lane in lanes(registers.active) {
                    let line = Boxed::line(lane, targets[lane], sizes[lane]);
                    line.and_then(|line| self.issue_store(warp, line, sources[lane], *reduce)).lane(lane)?;
                }
            }
            Bulk::Prefetch { src, bytes } => {
                let registers = &mut self.warps[warp].registers;
                let (sources, sizes) = (registers.read_wide(*src)?, registers.read(*bytes)?);
                for lane in lanes(registers.active) {
                    Boxed::line(lane, sources[lane], sizes[lane]).lane(lane)?;
                }
            }
            Bulk::Share { dst, src, bytes, barrier, reduce } => {
                let registers = &mut self.warps[warp].registers;
                let (targets, barriers) = (registers.read(*dst)?, registers.read(*barrier)?);
                let (sources, sizes) = (registers.read(*src)?, registers.read(*bytes)?);
                for lane in lanes(registers.active) {
                    let source = self.share_source((warp, lane), sources[lane], sizes[lane]);
                    let sent = source.and_then(|source| {
                        let (target, barrier, alignment) = (targets[lane], barriers[lane], LINE_ALIGNMENT);
                        let reduce = *reduce;
                        self.send((warp, lane), Parcel { source, reduce, target, barrier, alignment })
                    });
                    sent.lane(lane)?;
                }
            }
            Bulk::AsyncStore { ty, src, dst, barrier } => {
                self.send_registers(warp, (src, ty.bytes()), (*dst, *barrier), None)?;
            }
            Bulk::AsyncReduce { reduce, src, dst, barrier } => {
                self.send_registers(warp, (&[*src], reduce.ty.bytes()), (*dst, *barrier), Some(*reduce))?;
            }
        }
        Ok(Flow::Next)
    }

    /// Takes ownership of the source bytes of a copy to another CTA.
    fn share_source(
        &mut self,
        (warp, lane): (usize, usize),
        source: u32,
        bytes: u32,
    ) -> Result<Source, Fault> {
        if !bytes.is_multiple_of(LINE_ALIGNMENT) {
            return Err(Fault::BulkSize { bytes });
        }
        let cta = self.warps[warp].cta;
        let offset = self.ctas[cta].own(source)?;
        let shared = &mut self.ctas[cta].shared;
        shared.bounds(offset, bytes, LINE_ALIGNMENT)?;
        shared.observed(offset, bytes, &self.warps[warp].views.of(lane).known)?;
        for chunk in (offset..offset + bytes).step_by(16) {
            shared.take_read(chunk, true)?;
        }
        self.order_async((warp, lane), (cta, offset, bytes), (false, true))?;
        Ok(Source::Shared(cta, offset, bytes))
    }

    fn send_registers(
        &mut self,
        warp: usize,
        (src, size): (&[Operand], u32),
        (dst, barrier): (Operand, Operand),
        reduce: Option<Reduction>,
    ) -> Result<(), Stop> {
        let registers = &mut self.warps[warp].registers;
        let (targets, barriers) = (registers.read(dst)?, registers.read(barrier)?);
        let mut values = Vec::new();
        for &operand in src {
            values.push(match size {
                8 => registers.read_wide(operand)?,
                _ => registers.read(operand)?.map(u64::from),
            });
        }
        for lane in lanes(registers.active) {
            let bytes =
                values.iter().flat_map(|value| value[lane].to_le_bytes().into_iter().take(size as usize));
            let source = Source::Registers(bytes.collect());
            let (target, barrier, alignment) = (targets[lane], barriers[lane], size * src.len() as u32);
            let parcel = Parcel { source, reduce, target, barrier, alignment };
            self.send((warp, lane), parcel).lane(lane)?;
        }
        Ok(())
    }

    fn send(&mut self, (warp, lane): (usize, usize), parcel: Parcel) -> Result<(), Fault> {
        let Parcel { source, reduce, target, barrier, alignment } = parcel;
        let own = self.ctas[self.warps[warp].cta].rank;
        let (cta, offset) = self.anywhere(target, own)?;
        let (barrier_cta, at) = self.anywhere(barrier, own)?;
        if cta != barrier_cta {
            let rank = self.ctas[barrier_cta].rank;
            return Err(Fault::SharedOtherCta { address: barrier, rank, own: self.ctas[cta].rank });
        }
        let (group, by) = (self.warps[warp].bulk_groups[lane], (warp, self.warps[warp].pc, lane));
        let registers = matches!(source, Source::Registers(_));
        let until = self.phase_of(cta, at);
        let load = Load { cta, target: offset, barrier: at, source, reduce, group, by };
        let range = (offset.into(), load.bytes().into());
        self.work_begins(by, (Memory::Shared(cta), offset), [range], true);
        if let Source::Shared(from, source, bytes) = load.source {
            self.work_begins(by, (Memory::Shared(from), source), [(source.into(), bytes.into())], false);
        }
        self.reached((warp, lane), cta)?;
        self.uses(self.use_now(warp, 1 << lane), cta, at)?;
        let shared = &mut self.ctas[cta].shared;
        shared.bounds(offset, load.bytes(), alignment)?;
        shared.barrier(at)?;
        self.fenced((warp, 1 << lane), cta, at)?;
        let view = self.warps[warp].views.of(lane);
        self.ctas[cta].shared.reused((offset, load.bytes()), view, reduce.is_some())?;
        self.order_async((warp, lane), (cta, offset, load.bytes()), (true, !registers))?;
        if let Source::Shared(from, source, bytes) = load.source {
            self.note_source((warp, by.1, lane), (from, source, bytes), until)?;
        }
        let shared = &mut self.ctas[cta].shared;
        if registers || reduce.is_some() {
            shared.take_joint(offset, load.bytes(), reduce.is_some())?;
        } else {
            shared.take_write(offset, load.bytes())?;
        }
        self.start(load)
    }
}
