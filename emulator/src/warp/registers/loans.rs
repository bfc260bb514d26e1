//! Registers that are lent to multiplies: what forbids to lend them, and to use them meanwhile.
//!
//! Registers that multiplies use together ([`crate::banks`]) have one state.

use ptx::inst::Reg;

use super::Registers;
use crate::lanes::{ALL, Lanes};
use crate::trap::Fault;

/// The shape of a register that multiplies only read.
const INPUT: u16 = 0;

/// The state that the registers of a bank have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bank {
    /// Number of multiplies in flight that use it.
    pub(super) in_flight: u32,
    /// N and K of the last multiply that accumulates in it; [`INPUT`] if the last multiply only reads it.
    shape: u16,
    /// Number of fences executed before that multiply.
    shape_epoch: u32,
    /// Number of fences executed before the last access of another instruction to any of it, plus one.
    pub(super) touched: u32,
    /// Whether all of it is known to have been written, in every lane.
    pub(super) whole: bool,
}

impl Bank {
    /// Whether a multiply in flight that accumulates in it, without a fence since then, forbids one of this shape.
    fn other_shape(&self, shape: u16, fences: u32) -> bool {
        self.in_flight > 0 && self.shape != shape && self.shape_epoch == fences
    }
}

impl Registers<'_> {
    /// Executes `wgmma.fence`.
    pub(crate) fn fence(&mut self) {
        self.fences += 1;
    }

    /// Lends registers to the multiply at an operation, which accumulates in them. `shape`: its N and K. `needs_value`: the
    /// multiply reads the old values.
    pub(crate) fn lend(
        &mut self,
        (pc, regs): (usize, &[Reg]),
        shape: u16,
        needs_value: bool,
    ) -> Result<(), Fault> {
        let (fences, program) = (self.fences, self.program);
        let banks = &program.banks.accumulators[pc];
        let mut each = banks.iter().map(|&bank| &self.banks[bank as usize]);
        let whole = each.clone().all(|bank| bank.whole);
        let touched = |bank: &Bank| bank.touched == fences + 1 || bank.other_shape(shape, fences);
        if fences == 0 || each.any(touched) || needs_value && !whole {
            self.refuse(regs, shape, needs_value)?;
        }
        if !whole {
            regs.iter().for_each(|reg| self.access[reg.0 as usize].written = ALL);
        }
        for &bank in banks {
            let bank = &mut self.banks[bank as usize];
            bank.in_flight += 1;
            (bank.whole, bank.shape, bank.shape_epoch) = (true, shape, fences);
        }
        Ok(())
    }

    /// Refuses the first of some registers in which a multiply may not accumulate.
    fn refuse(&self, regs: &[Reg], shape: u16, needs_value: bool) -> Result<(), Fault> {
        let fences = self.fences;
        for &reg in regs {
            let access = &self.access[reg.0 as usize];
            let other_shape = self.banks[access.bank as usize].other_shape(shape, fences);
            if fences == 0 || access.touched == fences + 1 || other_shape {
                return Err(Fault::MissingWgmmaFence { register: reg.0 });
            }
            let missing = self.alive & !access.written;
            if needs_value && missing != 0 {
                self.missing(reg, missing)?;
            }
        }
        Ok(())
    }

    /// Lends a register to a multiply that only reads it. Several multiplies of any shape may read it at
    /// once, unless one of them accumulates in it.
    pub(crate) fn lend_input(&mut self, reg: Reg) -> Result<(), Fault> {
        let fences = self.fences;
        let access = self.access[reg.0 as usize];
        let bank = &self.banks[access.bank as usize];
        if bank.in_flight > 0 && bank.shape != INPUT {
            return Err(Fault::RegisterInFlight { register: reg.0, write: false });
        }
        if fences == 0 || access.touched == fences + 1 {
            return Err(Fault::MissingWgmmaFence { register: reg.0 });
        }
        let missing = self.alive & !access.written;
        if missing != 0 {
            self.missing(reg, missing)?;
        }
        let bank = &mut self.banks[access.bank as usize];
        bank.in_flight += 1;
        (bank.shape, bank.shape_epoch) = (INPUT, fences);
        Ok(())
    }

    /// Takes the accumulators and the inputs of the multiply at an operation back. It has been waited for.
    pub(crate) fn give_back(&mut self, pc: usize, inputs: [&[Reg]; 2]) {
        let program = self.program;
        let inputs = inputs.into_iter().flatten().map(|reg| program.banks.of[reg.0 as usize]);
        for bank in program.banks.accumulators[pc].iter().copied().chain(inputs) {
            let bank = &mut self.banks[bank as usize];
            bank.in_flight = bank.in_flight.saturating_sub(1);
        }
    }

    /// The content of a lent register, for the multiply itself.
    #[inline]
    pub(crate) fn lent(&mut self, reg: Reg) -> &mut Lanes<u32> {
        let slot = self.slot(reg);
        &mut self.narrow[slot]
    }
}
