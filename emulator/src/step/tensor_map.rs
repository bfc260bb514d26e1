//! Tensor maps in memory: how copies find them, how they are changed, and how the generic proxy passes them
//! to the tensormap proxy.
//!
//! Source: PTX ISA "tensormap.replace", "tensormap.cp_fenceproxy", "membar/fence" and 8.6 "Proxies". A copy
//! that uses a map in global memory reads its 128 bytes through the tensormap proxy. A write of these bytes
//! through the generic proxy must come before the copy. A thread that knows the write must release it, and a
//! thread that knows the release must acquire it for the CTA of the copy.

use ptx::Space;
use ptx::abi::TENSOR_MAP_BYTES;
use ptx::inst::{Address, MapField, MapInst, Operand, Scope};

use super::Flow;
use super::barrier::alike;
use super::memory::aligned_lanes;
use crate::clock::{Clock, NEVER, View};
use crate::lanes::{ALL, lanes};
use crate::machine::Machine;
use crate::meetings::Memory;
use crate::race::{By, Conflict, Kind, Who};
use crate::shared::{reported, split};
use crate::tensor_map::{Map, decode, replaced};
use crate::trap::{Fault, InLane, Stop, TensorFault};

/// Alignment in bytes of a map in global or shared memory.
const ALIGNMENT: u32 = 128;

/// How long a copy reads its map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// Until the phase of an mbarrier completes.
    Until(Option<(u32, u32)>),
    /// Until its thread has waited for it.
    Going,
}

impl Machine<'_> {
    /// The tensor map at a generic address, for a copy of a warp: a parameter, or a map in global memory.
    pub(super) fn tensor_map(&self, (warp, lane): (usize, usize), address: u64) -> Result<Map, Fault> {
        if let Some((_, map)) = self.launch.maps.iter().find(|(at, _)| *at == address) {
            return Ok(map.clone());
        }
        let mut bytes = [0; TENSOR_MAP_BYTES];
        let known = self.memory.load(address, &mut bytes).is_ok();
        let map = decode(&bytes).filter(|_| known).ok_or(Fault::Tensor(TensorFault::Map { address }))?;
        if !address.is_multiple_of(ALIGNMENT.into()) {
            return Err(Fault::GlobalMisaligned { address, alignment: ALIGNMENT });
        }
        self.map_is_used((warp, lane), address, None)?;
        map.map_err(|reason| Fault::Tensor(TensorFault::MapFields { address, reason }))
    }

    /// Whether the map at an address is in global memory, so that it may change.
    pub(super) fn may_change(&self, address: u64) -> bool {
        !self.launch.maps.iter().any(|(at, _)| *at == address)
    }

    /// Records that a copy of a warp reads a map in global memory, for as long as `held` says.
    pub(super) fn map_is_used(
        &self,
        (warp, lane): (usize, usize),
        address: u64,
        held: Option<Held>,
    ) -> Result<(), Fault> {
        let View { known, maps, .. } = self.warps[warp].views.of(lane);
        let released = self.released_for((warp, lane), Scope::System);
        let acquired = maps.acquired((self.cta_number(warp), address)).cloned().unwrap_or_default();
        for (released, fenced) in [(false, released), (true, acquired)] {
            let view = View { known: known.clone(), fenced, ..View::default() };
            let who = Who {
                warp: self.number(warp),
                pc: u32::try_from(self.warps[warp].pc).unwrap_or(u32::MAX),
                by: By::lane(lane),
                count: if held == Some(Held::Going) { NEVER } else { self.warps[warp].views.count },
                view: &view,
                team: self.team,
                repeats: false,
                until: if let Some(Held::Until(phase)) = held { phase } else { None },
            };
            let kind = Kind::READ.asynchronous();
            let noted = self.launch.common.races.access(address, TENSOR_MAP_BYTES as u64, kind, who);
            noted.map_err(|conflict| match conflict {
                Conflict { unfenced: true, warp, pc, .. } => {
                    let other = Box::new(self.place_of(warp, Some(conflict.lane), pc));
                    Fault::Tensor(TensorFault::MapUnfenced { address, released, other })
                }
                conflict @ Conflict { unfenced: false, .. } => self.race(conflict, kind),
            })?;
        }
        Ok(())
    }

    /// The writes that the lane knows to be released through the tensormap proxy, in scopes that include the
    /// warp.
    fn released_for(&self, (warp, lane): (usize, usize), scope: Scope) -> Clock {
        let (number, team) = (self.number(warp), self.team);
        let mut all = Clock::default();
        for (&by, clock) in &self.warps[warp].views.of(lane).maps.released {
            let seen = clock.export(team).filtered(|writer| team.together(by, scope, (writer, number)));
            all.import(&seen, team);
        }
        all
    }

    /// The number of the warp's CTA in the grid.
    fn cta_number(&self, warp: usize) -> u32 {
        self.team.cta(self.number(warp))
    }

    pub(super) fn map_instruction(&mut self, warp: usize, inst: &MapInst) -> Result<Flow, Stop> {
        match inst {
            MapInst::Replace { space, map, field, value } => {
                let base = *map;
                let places = self.addresses(warp, *space, Address { base, offset: 0 })?;
                let values = self.field_values(warp, *field, *value)?;
                // The instruction gets a count of its own, so that the next one in a loop is another.
                self.warps[warp].views.count += 1;
                let active = self.warps[warp].registers.active;
                for (mask, lane) in alike(&places, &places, active) {
                    if lanes(mask).any(|other| values[other] != values[lane]) {
                        return Err(self.replaced_apart(warp, *space, places[lane]).lane(lane));
                    }
                }
                for lane in lanes(active) {
                    let replaced = match space {
                        Space::Global | Space::Local | Space::Param | Space::Generic => {
                            self.replace_global((warp, lane), places[lane], *field, values[lane])
                        }
                        Space::Shared | Space::SharedCluster => {
                            self.replace_shared((warp, lane), places[lane] as u32, *field, values[lane])
                        }
                    };
                    replaced.lane(lane)?;
                }
            }
            MapInst::Publish { dst, src, scope } => {
                self.warps[warp].converged()?;
                let registers = &mut self.warps[warp].registers;
                let dst = registers.uniform_wide(*dst, "destination")?;
                let src = registers.uniform(*src, "source")?;
                self.publish_map(warp, dst, src)?;
                // One lane writes the map for the warp, and all lanes know the write.
                let count = self.warps[warp].views.count;
                self.warps[warp].views.change(ALL, |_, view| view.known.raise_lanes(warp, 1, count));
                self.release_maps(warp, *scope);
            }
            MapInst::Release { scope } => self.release_maps(warp, *scope),
            MapInst::Acquire { map, scope } => {
                let maps = self.warps[warp].registers.read_wide(*map)?;
                let active = self.warps[warp].registers.active;
                aligned_lanes(&maps, ALIGNMENT, active)?;
                let cta = self.cta_number(warp);
                for (mask, lane) in alike(&maps, &maps, active) {
                    let released = self.released_for((warp, lane), *scope);
                    self.warps[warp].views.change(mask, |_, view| {
                        view.maps.acquire((cta, maps[lane]), released.clone());
                    });
                }
            }
        }
        Ok(Flow::Next)
    }

    /// The fault of lanes that replace a field of one map together, each with a value of its own.
    fn replaced_apart(&self, warp: usize, space: Space, address: u64) -> Fault {
        let pc = u32::try_from(self.warps[warp].pc).unwrap_or(u32::MAX);
        let other = Box::new(self.place_of(self.number(warp), None, pc));
        match space {
            Space::Global | Space::Local | Space::Param | Space::Generic => {
                Fault::GlobalRace { address, write: true, other_write: true, other }
            }
            Space::Shared | Space::SharedCluster => {
                let (rank, offset) = split(address as u32);
                Fault::SharedRace { rank, offset: reported(offset), write: true, other_write: true, other }
            }
        }
    }

    fn field_values(&mut self, warp: usize, field: MapField, value: Operand) -> Result<[u64; 32], Fault> {
        let registers = &mut self.warps[warp].registers;
        Ok(match field.ty().bits() {
            64 => registers.read_wide(value)?,
            _ => registers.read(value)?.map(u64::from),
        })
    }

    fn replace_global(
        &self,
        (warp, lane): (usize, usize),
        address: u64,
        field: MapField,
        value: u64,
    ) -> Result<(), Fault> {
        self.map_is_written((warp, By::lane(lane)), address)?;
        let mut bytes = [0; TENSOR_MAP_BYTES];
        self.memory.load(address, &mut bytes)?;
        let bytes = replaced(&bytes, field, value).ok_or(Fault::Tensor(TensorFault::Map { address }))?;
        self.memory.store(address, &bytes)
    }

    /// Records a write of a map in global memory. Refuses it if a copy in flight uses the map.
    fn map_is_written(&self, (warp, by): (usize, By), address: u64) -> Result<(), Fault> {
        if !address.is_multiple_of(ALIGNMENT.into()) {
            return Err(Fault::GlobalMisaligned { address, alignment: ALIGNMENT });
        }
        let loading = self.loads.iter().any(|load| load.uses_map(address));
        let storing =
            self.warps.iter().any(|warp| warp.stores.iter().any(|store| store.map_at == Some(address)));
        if loading || storing {
            return Err(Fault::Tensor(TensorFault::MapInFlight { address }));
        }
        self.note_by(warp, by, (address, TENSOR_MAP_BYTES as u64), Kind::WRITE)
    }

    /// A map in the warp's own shared memory, and its offset, for threads that know this much.
    fn shared_map(
        &self,
        warp: usize,
        address: u32,
        view: &View,
    ) -> Result<(u32, [u8; TENSOR_MAP_BYTES]), Fault> {
        let cta = &self.ctas[self.warps[warp].cta];
        let offset = cta.own(address)?;
        cta.shared.bounds(offset, TENSOR_MAP_BYTES as u32, ALIGNMENT)?;
        cta.shared.observed(offset, TENSOR_MAP_BYTES as u32, &view.known)?;
        let mut bytes = [0; TENSOR_MAP_BYTES];
        for (at, chunk) in (offset..).step_by(16).zip(bytes.chunks_exact_mut(16)) {
            chunk.copy_from_slice(cta.shared.load(at, 16)?);
        }
        Ok((offset, bytes))
    }

    fn replace_shared(
        &mut self,
        (warp, lane): (usize, usize),
        address: u32,
        field: MapField,
        value: u64,
    ) -> Result<(), Fault> {
        let (offset, bytes) = self.shared_map(warp, address, self.warps[warp].views.of(lane))?;
        self.accesses_map((warp, By::lane(lane)), offset, Kind::WRITE);
        let range = (self.warps[warp].cta, offset, TENSOR_MAP_BYTES as u32);
        self.note_shared((warp, By::lane(lane)), range, Kind::WRITE)?;
        let bytes = replaced(&bytes, field, value)
            .ok_or(Fault::Tensor(TensorFault::Map { address: address.into() }))?;
        let cta = self.warps[warp].cta;
        for (at, chunk) in (offset..).step_by(16).zip(bytes.chunks_exact(16)) {
            self.ctas[cta].shared.store(at, chunk)?;
        }
        Ok(())
    }

    /// Notes that lanes access a map in the shared memory of their CTA.
    fn accesses_map(&self, (warp, by): (usize, By), offset: u32, kind: Kind) {
        let state = &self.warps[warp];
        let range = (offset.into(), TENSOR_MAP_BYTES as u64);
        self.accessed((warp, by, state.pc as u32), Memory::Shared(state.cta), range, kind);
    }

    fn publish_map(&mut self, warp: usize, dst: u64, src: u32) -> Result<(), Fault> {
        let (offset, bytes) = self.shared_map(warp, src, &self.warps[warp].views.common())?;
        let range = (self.warps[warp].cta, offset, TENSOR_MAP_BYTES as u32);
        self.accesses_map((warp, By::All(ALL)), offset, Kind::READ);
        // Any lane may read it. The read is over when lane 0 continues.
        self.order_warp(warp, range)?;
        self.note_shared((warp, By::lane(0)), range, Kind::READ)?;
        self.map_is_written((warp, By::lane(0)), dst)?;
        self.memory.store(dst, &bytes)
    }

    /// Each active lane releases what it knows and has done, through the tensormap proxy.
    fn release_maps(&mut self, warp: usize, scope: Scope) {
        let active = self.warps[warp].registers.active;
        let views = &mut self.warps[warp].views;
        for lane in lanes(active) {
            let released = views.publish(1 << lane);
            views.change(1 << lane, |_, mine| {
                mine.maps.released.entry(scope).or_default().join(&released.known);
            });
        }
    }
}
