//! The register file of a warp, and which accesses to it are allowed.

mod loans;

use core::cell::RefCell;
use std::collections::BTreeMap;

use ptx::Type;
use ptx::inst::{Operand, Reg};

use loans::Bank;

use crate::lanes::{ALL, Lanes, lanes, map, merge};
use crate::program::{Program, class};
use crate::schedule::Random;
use crate::trap::Fault;

/// The state of a register: which accesses are allowed.
#[derive(Clone, Copy, Debug, Default)]
struct Access {
    /// The lanes in which it has been written.
    written: u32,
    /// Number of fences executed before the last access of another instruction than a multiply, plus one.
    touched: u32,
    /// Its index in the register file of its class, and its bank.
    slot: u32,
    bank: u32,
}

/// Where the value of an operand is: in the register file, or in the instruction.
#[derive(Clone, Copy)]
enum Source {
    Register(usize),
    Immediate(u64),
}

/// The registers of a warp, and which lanes are active.
#[derive(Debug)]
pub(crate) struct Registers<'p> {
    program: &'p Program,
    predicates: Vec<u32>,
    narrow: Vec<Lanes<u32>>,
    wide: Vec<Lanes<u64>>,
    access: Vec<Access>,
    banks: Vec<Bank>,
    /// Registers loaded from memory that was never written: the lanes, and the fault of a use.
    undefined: BTreeMap<u32, (u32, Fault)>,
    /// The lanes that execute the current instruction.
    pub(crate) active: u32,
    /// The lanes that are there and have not ended.
    pub(crate) alive: u32,
    /// Number of `wgmma.fence` instructions executed.
    fences: u32,
    /// Whether values that nobody has written may be read, and the fault of the last such read since somebody asked.
    lenient: bool,
    noticed: RefCell<Option<Fault>>,
}

impl<'p> Registers<'p> {
    pub(super) fn new(program: &'p Program, alive: u32) -> Self {
        let [predicates, narrow, wide] = program.files;
        let places = program.slots.iter().zip(&program.banks.of);
        let access = places.map(|(&slot, &bank)| Access { slot, bank, ..Access::default() }).collect();
        Self {
            program,
            predicates: vec![0; predicates],
            narrow: vec![[0; 32]; narrow],
            wide: vec![[0; 32]; wide],
            access,
            banks: vec![Bank::default(); program.banks.count],
            undefined: BTreeMap::new(),
            active: alive,
            alive,
            fences: 0,
            lenient: false,
            noticed: RefCell::new(None),
        }
    }

    pub(super) fn program(&self) -> &'p Program {
        self.program
    }

    /// Values that nobody has written are what `draw` gives, and a read of them is noticed, not refused.
    pub(super) fn fill(&mut self, draw: &mut Random) {
        self.lenient = true;
        self.predicates.iter_mut().for_each(|lanes| *lanes = draw.next() as u32);
        self.narrow.iter_mut().flatten().for_each(|value| *value = draw.next() as u32);
        self.wide.iter_mut().flatten().for_each(|value| *value = draw.next());
    }

    /// The fault of a read of an unwritten value since this was last asked, if such reads are not refused.
    pub(crate) fn noticed(&self) -> Option<Fault> {
        self.noticed.take()
    }

    /// Some lanes read a value that was never written.
    fn missing(&self, reg: Reg, missing: u32) -> Result<(), Fault> {
        let undefined = self.undefined.get(&reg.0).filter(|(lanes, _)| lanes & missing != 0);
        let fault =
            undefined.map_or(Fault::RegisterUninitialised { register: reg.0 }, |(_, fault)| fault.clone());
        if self.lenient {
            self.noticed.replace(Some(fault));
            return Ok(());
        }
        Err(fault)
    }

    fn slot(&self, reg: Reg) -> usize {
        self.program.slots[reg.0 as usize] as usize
    }

    fn may_read(&mut self, reg: Reg) -> Result<usize, Fault> {
        let missing = self.active & !self.access[reg.0 as usize].written;
        if missing != 0 {
            self.missing(reg, missing)?;
            // It is said once.
            self.access[reg.0 as usize].written |= missing;
        }
        let access = &mut self.access[reg.0 as usize];
        let bank = &mut self.banks[access.bank as usize];
        if bank.in_flight > 0 {
            return Err(Fault::RegisterInFlight { register: reg.0, write: false });
        }
        (access.touched, bank.touched) = (self.fences + 1, self.fences + 1);
        Ok(access.slot as usize)
    }

    /// The active lanes in which a register was never written and that may copy it nevertheless, and the fault of a use.
    pub(crate) fn unwritten(&self, operand: Operand) -> Option<(u32, Fault)> {
        let Operand::Reg(reg) = operand else { return None };
        let missing = self.active & !self.access[reg.0 as usize].written;
        if missing == 0 || !self.program.leaves_unwritten {
            return None;
        }
        let undefined = self.undefined.get(&reg.0).filter(|(lanes, _)| lanes & missing != 0);
        let unwritten = Fault::RegisterUninitialised { register: reg.0 };
        Some((missing, undefined.map_or(unwritten, |(_, fault)| fault.clone())))
    }

    fn may_write(&mut self, reg: Reg) -> Result<usize, Fault> {
        let access = &mut self.access[reg.0 as usize];
        let bank = &mut self.banks[access.bank as usize];
        if bank.in_flight > 0 {
            return Err(Fault::RegisterInFlight { register: reg.0, write: true });
        }
        access.written |= self.active;
        (access.touched, bank.touched) = (self.fences + 1, self.fences + 1);
        Ok(access.slot as usize)
    }

    /// Reads a predicate: one bit per lane.
    pub(crate) fn predicate(&mut self, operand: Operand) -> Result<u32, Fault> {
        Ok(match operand {
            Operand::Imm(0) => 0,
            Operand::Imm(_) => ALL,
            Operand::Reg(reg) => {
                let slot = self.may_read(reg)?;
                self.predicates[slot]
            }
        })
    }

    /// Reads a value of up to 32 bits.
    #[inline(always)]
    pub(crate) fn read(&mut self, operand: Operand) -> Result<Lanes<u32>, Fault> {
        Ok(match operand {
            Operand::Imm(bits) => [bits as u32; 32],
            Operand::Reg(reg) => {
                let slot = self.may_read(reg)?;
                self.narrow[slot]
            }
        })
    }

    /// Reads a value of 64 bits.
    #[inline(always)]
    pub(crate) fn read_wide(&mut self, operand: Operand) -> Result<Lanes<u64>, Fault> {
        Ok(match operand {
            Operand::Imm(bits) => [bits; 32],
            Operand::Reg(reg) => {
                let slot = self.may_read(reg)?;
                self.wide[slot]
            }
        })
    }

    /// A function of two values of up to 32 bits.
    #[inline(always)]
    pub(crate) fn with<R>(
        &mut self,
        [a, b]: [Operand; 2],
        f: impl FnOnce(&Lanes<u32>, &Lanes<u32>) -> R,
    ) -> Result<R, Fault> {
        let (a, b) = (self.source(a)?, self.source(b)?);
        let (first, second);
        let a = match a {
            Source::Register(slot) => &self.narrow[slot],
            Source::Immediate(bits) => {
                first = [bits as u32; 32];
                &first
            }
        };
        let b = match b {
            Source::Register(slot) => &self.narrow[slot],
            Source::Immediate(bits) => {
                second = [bits as u32; 32];
                &second
            }
        };
        Ok(f(a, b))
    }

    /// A function of two values of 64 bits.
    #[inline(always)]
    pub(crate) fn with_wide<R>(
        &mut self,
        [a, b]: [Operand; 2],
        f: impl FnOnce(&Lanes<u64>, &Lanes<u64>) -> R,
    ) -> Result<R, Fault> {
        let (a, b) = (self.source(a)?, self.source(b)?);
        let (first, second);
        let a = match a {
            Source::Register(slot) => &self.wide[slot],
            Source::Immediate(bits) => {
                first = [bits; 32];
                &first
            }
        };
        let b = match b {
            Source::Register(slot) => &self.wide[slot],
            Source::Immediate(bits) => {
                second = [bits; 32];
                &second
            }
        };
        Ok(f(a, b))
    }

    /// Where the value of an operand is that may be read.
    #[inline]
    fn source(&mut self, operand: Operand) -> Result<Source, Fault> {
        Ok(match operand {
            Operand::Imm(bits) => Source::Immediate(bits),
            Operand::Reg(reg) => Source::Register(self.may_read(reg)?),
        })
    }

    /// Reads a value of any type, zero-extended.
    pub(crate) fn read_as(&mut self, ty: Type, operand: Operand) -> Result<Lanes<u64>, Fault> {
        Ok(match class(ty) {
            0 => {
                let mask = self.predicate(operand)?;
                core::array::from_fn(|lane| u64::from(mask >> lane & 1))
            }
            1 => map(&self.read(operand)?, u64::from),
            _ => self.read_wide(operand)?,
        })
    }

    fn ty(&self, reg: Reg) -> Type {
        self.program.function.registers[reg.0 as usize]
    }

    /// Whether an operand is a register of 64 bits.
    pub(crate) fn is_wide(&self, operand: Operand) -> bool {
        matches!(operand, Operand::Reg(reg) if class(self.ty(reg)) == 2)
    }

    /// Reads the bits of a value of this type from a register that may be wider.
    pub(crate) fn read_low(&mut self, ty: Type, operand: Operand) -> Result<Lanes<u64>, Fault> {
        if class(ty) == 1 && self.is_wide(operand) {
            return self.read_wide(operand);
        }
        self.read_as(ty, operand)
    }

    /// A value of up to 32 bits, without the checks and effects of a read.
    pub(crate) fn peek(&self, operand: Operand) -> Lanes<u32> {
        match operand {
            Operand::Imm(bits) => [bits as u32; 32],
            Operand::Reg(reg) => self.narrow.get(self.slot(reg)).copied().unwrap_or([0; 32]),
        }
    }

    /// A predicate, without the checks and effects of a read.
    pub(crate) fn peek_predicate(&self, operand: Operand) -> u32 {
        match operand {
            Operand::Imm(bits) => {
                if bits == 0 {
                    0
                } else {
                    ALL
                }
            }
            Operand::Reg(reg) => self.predicates.get(self.slot(reg)).copied().unwrap_or(0),
        }
    }

    /// A value of 64 bits, without the checks and effects of a read.
    pub(crate) fn peek_wide(&self, operand: Operand) -> Lanes<u64> {
        match operand {
            Operand::Imm(bits) => [bits; 32],
            Operand::Reg(reg) => self.wide.get(self.slot(reg)).copied().unwrap_or([0; 32]),
        }
    }

    /// Reads a value that must be the same in every active lane.
    pub(crate) fn uniform(&mut self, operand: Operand, name: &'static str) -> Result<u32, Fault> {
        let uniform = match operand {
            Operand::Imm(bits) => Some(bits as u32),
            Operand::Reg(reg) => {
                let slot = self.may_read(reg)?;
                same(&self.narrow[slot], self.active)
            }
        };
        uniform.ok_or(Fault::NotUniform { operand: name })
    }

    /// Reads a 64-bit value that must be the same in every active lane.
    pub(crate) fn uniform_wide(&mut self, operand: Operand, name: &'static str) -> Result<u64, Fault> {
        let uniform = match operand {
            Operand::Imm(bits) => Some(bits),
            Operand::Reg(reg) => {
                let slot = self.may_read(reg)?;
                same(&self.wide[slot], self.active)
            }
        };
        uniform.ok_or(Fault::NotUniform { operand: name })
    }

    pub(crate) fn write_predicate(&mut self, reg: Reg, values: u32) -> Result<(), Fault> {
        let (slot, active) = (self.may_write(reg)?, self.active);
        self.predicates[slot] = (self.predicates[slot] & !active) | (values & active);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn write(&mut self, reg: Reg, values: &Lanes<u32>) -> Result<(), Fault> {
        let (slot, active) = (self.may_write(reg)?, self.active);
        merge(&mut self.narrow[slot], values, active);
        Ok(())
    }

    #[inline(always)]
    pub(crate) fn write_wide(&mut self, reg: Reg, values: &Lanes<u64>) -> Result<(), Fault> {
        let (slot, active) = (self.may_write(reg)?, self.active);
        merge(&mut self.wide[slot], values, active);
        Ok(())
    }

    /// Writes a value of any type; a predicate is true where it is not zero.
    pub(crate) fn write_as(&mut self, ty: Type, reg: Reg, values: &Lanes<u64>) -> Result<(), Fault> {
        match class(ty) {
            0 => {
                let set = lanes(ALL).filter(|&lane| values[lane] != 0);
                self.write_predicate(reg, set.fold(0, |mask, lane| mask | 1 << lane))
            }
            1 => self.write(reg, &map(values, |value| value as u32)),
            _ => self.write_wide(reg, values),
        }
    }

    /// Writes a value of this type to a register that may be wider: it is extended, with its sign if the type has one.
    pub(crate) fn write_extended(&mut self, ty: Type, reg: Reg, values: &Lanes<u64>) -> Result<(), Fault> {
        let own = self.ty(reg);
        if own.bits() <= ty.bits() || ty == Type::Pred {
            return self.write_as(ty, reg, values);
        }
        let extended =
            |value| if ty.is_signed() { own.wrap(ty.extend(value).cast_unsigned()) } else { value };
        self.write_as(own, reg, &map(values, extended))
    }

    /// Marks a lane's register as undefined, as it was loaded from memory that was never written. A use of
    /// the register is refused with `fault`. The load itself is legal (ISA "ld").
    pub(crate) fn undefine(&mut self, reg: Reg, lane: usize, fault: Fault) {
        let access = &mut self.access[reg.0 as usize];
        access.written &= !(1 << lane);
        self.banks[access.bank as usize].whole = false;
        let (lanes, why) = self.undefined.entry(reg.0).or_insert((0, fault.clone()));
        (*lanes, *why) = (*lanes | 1 << lane, fault);
    }
}

fn same<T: Copy + PartialEq>(values: &Lanes<T>, active: u32) -> Option<T> {
    let first = values[active.trailing_zeros().min(31) as usize];
    let alike = if active == ALL {
        values.iter().fold(true, |all, value| all & (*value == first))
    } else {
        lanes(active).all(|lane| values[lane] == first)
    };
    alike.then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        let mut values = [7; 32];
        values[3] = 8;
        assert_eq!(same(&values, !8), Some(7), "an inactive lane does not count");
        assert_eq!(same(&values, ALL), None);
        let mut into = [0; 32];
        merge(&mut into, &values, 8);
        assert_eq!((into[2], into[3]), (0, 8));
    }
}
