//! Memory that is a thread's own: parameters, which it only reads, and local memory. Generic addresses, which name the other
//! spaces by windows: an address of such a space has 32 bits, and its generic address is beside the window.

use ptx::inst::{Address, AtomicInst, Inst, Operand, OrderedInst, Reg};
use ptx::{Space, Type};

use super::Flow;
use crate::lanes::{Lanes, lanes};
use crate::launch::{LOCAL, PARAMETERS, SHARED};
use crate::machine::Machine;
use crate::shared::split;
use crate::trap::{Fault, InLane, OwnFault, Stop};
use crate::warp::Registers;
use crate::word::from_bytes;

/// The local memory of the lanes of a warp.
#[derive(Debug)]
pub(crate) struct Local {
    /// Bytes of each lane.
    size: usize,
    /// The bytes of the lanes one after the other, and which of them were written. Empty until the first access.
    bytes: Vec<u8>,
    written: Vec<bool>,
}

impl Local {
    pub(crate) fn new(size: u32) -> Self {
        Self { size: size as usize, bytes: Vec::new(), written: Vec::new() }
    }

    /// Where an access is in the bytes of all lanes.
    fn place(&mut self, lane: usize, address: u64, bytes: usize) -> Result<usize, Fault> {
        let offset = inside(Space::Local, address, bytes, self.size)?;
        self.bytes.resize(self.size * 32, 0);
        self.written.resize(self.size * 32, false);
        Ok(lane * self.size + offset)
    }

    fn store(&mut self, lane: usize, address: u64, values: &[u8]) -> Result<(), Fault> {
        let at = self.place(lane, address, values.len())?;
        self.bytes[at..at + values.len()].copy_from_slice(values);
        self.written[at..at + values.len()].fill(true);
        Ok(())
    }

    /// Loads bytes. The second result is the fault of a use, if some bytes were never written.
    fn load(&mut self, lane: usize, address: u64, bytes: usize) -> Result<(u64, Option<Fault>), Fault> {
        let at = self.place(lane, address, bytes)?;
        let written = self.written[at..at + bytes].iter().all(|&written| written);
        let fault = OwnFault::Uninitialised { offset: address, bytes: bytes as u32 };
        Ok((from_bytes(&self.bytes[at..at + bytes]), (!written).then_some(fault.into())))
    }
}

/// The offset of an access in the memory of `size` bytes of a state space.
fn inside(space: Space, offset: u64, bytes: usize, size: usize) -> Result<usize, Fault> {
    let whole = offset.checked_add(bytes as u64).is_some_and(|end| end <= size as u64);
    let (space, size) = (space.name(), size as u64);
    if whole {
        Ok(offset as usize)
    } else {
        Err(OwnFault::OutOfBounds { space, offset: offset.cast_signed(), bytes: bytes as u32, size }.into())
    }
}

/// The state space that a generic address names. ISA "Generic Addressing".
fn space_of(address: u64) -> Space {
    match address & 0xF000_0000_0000_0000 {
        PARAMETERS => Space::Param,
        LOCAL => Space::Local,
        SHARED => Space::SharedCluster,
        _ => Space::Global,
    }
}

/// The window of a state space among generic addresses. Global addresses are generic ones.
const fn window(space: Space) -> Option<u64> {
    match space {
        Space::Param => Some(PARAMETERS),
        Space::Local => Some(LOCAL),
        Space::Shared | Space::SharedCluster => Some(SHARED),
        Space::Global | Space::Generic => None,
    }
}

/// The address of a byte of a state space that a generic address names.
const fn beside_window(address: u64) -> u64 {
    address & 0xFFFF_FFFF
}

/// `cvta`.
pub(super) fn convert_address(
    registers: &mut Registers<'_>,
    (space, to): (Space, bool),
    dst: Reg,
    src: Operand,
) -> Result<(), Fault> {
    let addresses = registers.read_wide(src)?;
    let converted = addresses.map(|address| match (window(space), to) {
        (Some(window), false) => window | beside_window(address),
        (Some(_), true) => beside_window(address),
        (None, _) => address,
    });
    registers.write_wide(dst, &converted)
}

impl Machine<'_> {
    /// `isspacep`: whether generic addresses are those of a state space.
    pub(super) fn is_space(
        &mut self,
        warp: usize,
        space: Space,
        dst: Reg,
        src: Operand,
    ) -> Result<Flow, Stop> {
        let own = self.ctas[self.warps[warp].cta].rank;
        let registers = &mut self.warps[warp].registers;
        let is = |address: u64| match (space, space_of(address)) {
            (Space::Shared, Space::SharedCluster) => split(address as u32).0 == own,
            (space, named) => space == named,
        };
        let flags = registers.read_wide(src)?.map(is);
        registers
            .write_predicate(dst, (0..32).fold(0, |mask, lane| mask | u32::from(flags[lane]) << lane))?;
        Ok(Flow::Next)
    }
}

/// An access by generic address.
#[derive(Clone, Copy)]
pub(super) enum Access<'a> {
    Load(Type, &'a [Reg]),
    Store(Type, &'a [Operand]),
    Atomic(&'a AtomicInst),
    Ordered(&'a OrderedInst),
}

/// The access of an instruction whose addresses are generic.
#[expect(clippy::wildcard_enum_match_arm, reason = "no other instruction has generic addresses")]
pub(super) fn generic(inst: &Inst) -> Option<(Access<'_>, Address)> {
    match inst {
        Inst::Load { space: Space::Generic, ty, dst, address } => Some((Access::Load(*ty, dst), *address)),
        Inst::Store { space: Space::Generic, ty, src, address } => Some((Access::Store(*ty, src), *address)),
        Inst::Atomic(inst @ AtomicInst { space: Space::Generic, address, .. }) => {
            Some((Access::Atomic(inst), *address))
        }
        Inst::Ordered(
            inst @ (OrderedInst::Load { space: Space::Generic, address, .. }
            | OrderedInst::Store { space: Space::Generic, address, .. }),
        ) => Some((Access::Ordered(inst), *address)),
        _ => None,
    }
}

impl Machine<'_> {
    /// Executes an access by generic address: for the lanes whose addresses are in one state space together.
    pub(super) fn by_generic(
        &mut self,
        warp: usize,
        access: Access<'_>,
        address: Address,
    ) -> Result<Flow, Stop> {
        let addresses = self.addresses(warp, Space::Generic, address)?;
        let all = self.warps[warp].registers.active;
        for space in [Space::Global, Space::SharedCluster, Space::Local, Space::Param] {
            let there = lanes(all).filter(|&lane| space_of(addresses[lane]) == space);
            let mask = there.fold(0, |mask, lane| mask | 1 << lane);
            if mask != 0 {
                self.warps[warp].registers.active = mask;
                let done = self.in_space(warp, access, space, (address, &addresses));
                self.warps[warp].registers.active = all;
                done?;
            }
        }
        Ok(Flow::Next)
    }

    fn in_space(
        &mut self,
        warp: usize,
        access: Access<'_>,
        own: Space,
        (address, addresses): (Address, &Lanes<u64>),
    ) -> Result<Flow, Stop> {
        let inside = addresses.map(beside_window);
        let unordered = own.is_shared() || own == Space::Global;
        match access {
            Access::Load(ty, dst) if unordered => self.load(warp, own, ty, dst, address),
            Access::Store(ty, src) if unordered => self.store(warp, own, ty, src, address),
            Access::Load(ty, dst) => self.load_own(warp, own, (ty, dst), &inside),
            Access::Store(ty, src) => self.store_own(warp, own, (ty, src), &inside),
            Access::Atomic(inst) if unordered => {
                self.atomic(warp, &AtomicInst { space: own, ..inst.clone() })
            }
            Access::Atomic(_) => Err(Fault::from(OwnFault::Atomic { space: own.name() }).into()),
            // No other thread can see the order of accesses to a thread's own memory.
            Access::Ordered(OrderedInst::Load { ty, dst, .. }) if !unordered => {
                self.load_own(warp, own, (*ty, dst), &inside)
            }
            Access::Ordered(OrderedInst::Store { ty, src, .. }) if !unordered => {
                self.store_own(warp, own, (*ty, src), &inside)
            }
            Access::Ordered(inst) => {
                let mut inst = inst.clone();
                let (OrderedInst::Load { space, .. } | OrderedInst::Store { space, .. }) = &mut inst;
                *space = own;
                self.ordered(warp, &inst)
            }
        }
    }

    /// A load from a thread's own memory.
    pub(super) fn load_own(
        &mut self,
        warp: usize,
        space: Space,
        (ty, dst): (Type, &[Reg]),
        addresses: &Lanes<u64>,
    ) -> Result<Flow, Stop> {
        let size = ty.bytes() as usize;
        let active = self.warps[warp].registers.active;
        let mut values = [[0u64; 32]; 4];
        let mut undefined: Vec<(Reg, usize, Fault)> = Vec::new();
        for lane in lanes(active) {
            aligned(space, addresses[lane], size * dst.len()).lane(lane)?;
            for (element, (&reg, values)) in dst.iter().zip(&mut values).enumerate() {
                let address = addresses[lane].wrapping_add((element * size) as u64);
                let (value, missing) = if space == Space::Param {
                    (self.parameter(address, size).lane(lane)?, None)
                } else {
                    self.warps[warp].local.load(lane, address, size).lane(lane)?
                };
                values[lane] = value;
                undefined.extend(missing.map(|fault| (reg, lane, fault)));
            }
        }
        let registers = &mut self.warps[warp].registers;
        for (&reg, values) in dst.iter().zip(&values) {
            registers.write_extended(ty, reg, values)?;
        }
        undefined.into_iter().for_each(|(reg, lane, fault)| registers.undefine(reg, lane, fault));
        Ok(Flow::Next)
    }

    /// A store to a thread's own memory.
    pub(super) fn store_own(
        &mut self,
        warp: usize,
        space: Space,
        (ty, src): (Type, &[Operand]),
        addresses: &Lanes<u64>,
    ) -> Result<Flow, Stop> {
        let values = self.stored_values(warp, ty, src)?;
        let size = ty.bytes() as usize;
        for lane in lanes(self.warps[warp].registers.active) {
            let address = addresses[lane];
            if space == Space::Param {
                return Err(Fault::from(OwnFault::ReadOnly { offset: address }).lane(lane));
            }
            aligned(space, address, size * src.len()).lane(lane)?;
            for (element, values) in values.iter().enumerate().take(src.len()) {
                let bytes = values[lane].to_le_bytes();
                let address = address.wrapping_add((element * size) as u64);
                self.warps[warp].local.store(lane, address, &bytes[..size]).lane(lane)?;
            }
        }
        Ok(Flow::Next)
    }

    /// The value of some bytes of the parameter block.
    fn parameter(&self, address: u64, bytes: usize) -> Result<u64, Fault> {
        let block = &self.launch.block;
        let offset = inside(Space::Param, address, bytes, block.len())?;
        Ok(from_bytes(&block[offset..offset + bytes]))
    }

    pub(super) fn load_param(
        &mut self,
        warp: usize,
        ty: Type,
        dst: &[Reg],
        (param, offset): (u32, u32),
    ) -> Result<Flow, Stop> {
        let (address, size) = (self.parameter_at((param, offset)), ty.bytes() as usize);
        let lane = lanes(self.warps[warp].registers.active).next().unwrap_or(0);
        aligned(Space::Param, address, size * dst.len()).lane(lane)?;
        // All lanes load the same, and nothing is written if a part of it is out of bounds.
        let mut values = [0; 4];
        for (element, value) in values.iter_mut().enumerate().take(dst.len()) {
            *value = self.parameter(address.wrapping_add((element * size) as u64), size).lane(lane)?;
        }
        let registers = &mut self.warps[warp].registers;
        for (&reg, &value) in dst.iter().zip(&values) {
            registers.write_extended(ty, reg, &[value; 32])?;
        }
        Ok(Flow::Next)
    }

    /// The address of a byte of a parameter, in its state space or as a generic one.
    pub(super) fn param_address(
        &mut self,
        warp: usize,
        dst: Reg,
        place: (u32, u32),
        generic: bool,
    ) -> Result<Flow, Stop> {
        let window = if generic { PARAMETERS } else { 0 };
        let address = window | self.parameter_at(place);
        self.warps[warp].registers.write_wide(dst, &[address; 32])?;
        Ok(Flow::Next)
    }

    fn parameter_at(&self, (param, offset): (u32, u32)) -> u64 {
        self.program.params.0[param as usize] as u64 + u64::from(offset)
    }
}

fn aligned(space: Space, address: u64, bytes: usize) -> Result<(), Fault> {
    let (offset, alignment) = (address.cast_signed(), bytes as u32);
    if address.is_multiple_of(bytes.max(1) as u64) {
        Ok(())
    } else {
        Err(OwnFault::Misaligned { space: space.name(), offset, alignment }.into())
    }
}
