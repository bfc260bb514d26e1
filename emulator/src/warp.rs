//! A warp: up to 32 lanes that execute together, and a register file.

mod strand;

use core::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use strand::Strand;

use ptx::Type;
use ptx::inst::{MbarrierOrder, Operand, Reg};

use crate::flight::{MapRead, Store, ThreadCopy};
use crate::graph::Rounds;
use crate::lanes::{ALL, Lanes, lanes, map, merge};
use crate::program::{Program, class};
use crate::schedule::Random;
use crate::step::Local;
use crate::trap::Fault;
use crate::views::Views;

/// Why a warp cannot continue.
#[derive(Clone, Debug)]
pub(crate) enum Blocked {
    /// Lanes wait until each of these mbarriers has completed the phase of this parity: offset, parity and
    /// mask of the lanes. The wait has this memory order.
    Mbarrier(Vec<(u32, u32, u32)>, MbarrierOrder),
    /// It waits until a named barrier is no longer in this generation.
    Named { id: usize, generation: u64 },
    /// It waits until the cluster barrier is no longer in this generation.
    Cluster { generation: u64 },
    /// It waits until this number of multiplies of the warpgroup are done. Then the instruction runs again.
    Warpgroup { until: u64 },
    /// It waits until all tensor stores except the newest `pending` groups are done. Then the instruction
    /// runs again.
    Stores { pending: u32 },
    /// It waits until the pool has enough registers for `asked` per thread. Then the instruction runs again.
    Registers { asked: u32 },
    /// It waits until other lanes of the warp reach the same instruction.
    Converge,
    /// It waits at a `bar.warp.sync` until the other lanes reach one, at any place.
    Meet,
}

/// The shape of a register that multiplies only read.
const INPUT: u16 = 0;

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

/// The state that the registers of a bank have in common.
#[derive(Clone, Copy, Debug, Default)]
struct Bank {
    /// Number of multiplies in flight that use it.
    in_flight: u32,
    /// N and K of the last multiply that accumulates in it; [`INPUT`] if the last multiply only reads it.
    shape: u16,
    /// Number of fences executed before that multiply.
    shape_epoch: u32,
    /// Number of fences executed before the last access of another instruction to any of it, plus one.
    touched: u32,
    /// Whether all of it is known to have been written, in every lane.
    whole: bool,
}

impl Bank {
    /// Whether a multiply in flight that accumulates in it, without a fence since then, forbids one of this shape.
    fn other_shape(&self, shape: u16, fences: u32) -> bool {
        self.in_flight > 0 && self.shape != shape && self.shape_epoch == fences
    }
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
    fn new(program: &'p Program, alive: u32) -> Self {
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

    /// Values that nobody has written are what `draw` gives, and a read of them is noticed, not refused.
    fn fill(&mut self, draw: &mut Random) {
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

    // ---- matrix multiplies ----

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

fn same<T: Copy + PartialEq>(values: &Lanes<T>, active: u32) -> Option<T> {
    let first = values[active.trailing_zeros().min(31) as usize];
    let alike = if active == ALL {
        values.iter().fold(true, |all, value| all & (*value == first))
    } else {
        lanes(active).all(|lane| values[lane] == first)
    };
    alike.then_some(first)
}

/// A warp.
#[derive(Debug)]
pub(crate) struct Warp<'p> {
    /// Index of its CTA in the cluster.
    pub(crate) cta: usize,
    /// Index in its CTA.
    pub(crate) index: u32,
    /// Index of the next operation.
    pub(crate) pc: usize,
    /// The rounds of the loops that the current lanes are in.
    pub(crate) rounds: Rounds,
    /// Lanes that are elsewhere in the program.
    pub(crate) strands: Vec<Strand>,
    /// Whether lanes have gone ahead alone instead of waiting for others.
    pub(crate) ahead: bool,
    /// Number of consecutive polls of words that did not find a new value.
    pub(crate) fruitless: u32,
    /// Whether the last access was atomic, to a word that a lane of this warp wrote last. The word may be a
    /// lock.
    pub(crate) own_word: bool,
    pub(crate) registers: Registers<'p>,
    /// The local memory of its lanes.
    pub(crate) local: Local,
    pub(crate) blocked: Option<Blocked>,
    pub(crate) exited: bool,
    /// Number of multiplies issued.
    pub(crate) multiplies: u64,
    /// Number of multiplies waited for.
    pub(crate) retired: u64,
    /// `multiplies` at each commit that has not been waited for.
    pub(crate) commits: VecDeque<u64>,
    /// Number of collective instructions of the warpgroup other than multiplies.
    pub(crate) collectives: u64,
    /// Tensor stores for which the warp has not waited, neither for the read of the source nor for the write.
    pub(crate) stores: Vec<Store>,
    /// Number of bulk copy groups that each lane has committed.
    pub(crate) bulk_groups: Lanes<u64>,
    /// `cp.async` copies that have not been waited for.
    pub(crate) copies: Vec<ThreadCopy>,
    /// Number of `cp.async` groups that each lane has committed.
    pub(crate) copy_groups: Lanes<u64>,
    /// Number of registers that each thread holds.
    pub(crate) held: u32,
    /// Its count at each `setmaxnreg` so far.
    pub(crate) resized: Vec<u32>,
    /// The generation of the cluster barrier in which the warp arrived, until it waits.
    pub(crate) cluster_arrival: Option<u64>,
    /// What its lanes know to have happened.
    pub(crate) views: Views,
    /// Tensor stores for which the warp has waited until the source was read, but not until the result was
    /// written.
    pub(crate) unsettled: Vec<Store>,
    /// Reads of tensor maps in global memory by its loads.
    pub(crate) maps: Vec<MapRead>,
    /// Per lane: the word, and the write of it, that the lane acquired last.
    pub(crate) acquired: Lanes<Option<(u64, u64)>>,
    /// The last poll of words: the operation, and a hash of the values.
    pub(crate) look: Option<(usize, u64)>,
    /// The values that the last poll at each operation found.
    pub(crate) looks: BTreeMap<usize, u64>,
    /// The words that it has polled twice in a row: address, number of bytes and value.
    pub(crate) watched: Vec<(u64, usize, u64)>,
    /// The reduction of the barrier that the warp waits at, and its destination.
    pub(crate) reduces: Option<(ptx::inst::BarrierOp, Reg)>,
    /// The fault of a wait that came too late.
    pub(crate) missed: Option<Fault>,
    /// The mbarrier and parity of the last poll that failed.
    pub(crate) polled: Option<(u32, u32)>,
    /// Number of operations since that poll.
    pub(crate) since_poll: u32,
}

impl<'p> Warp<'p> {
    /// Its registers hold what `draw` gives before they are written.
    pub(crate) fn filled(mut self, mut draw: Random) -> Self {
        self.registers.fill(&mut draw);
        self
    }

    pub(crate) fn new(program: &'p Program, (cta, index): (usize, u32), place: usize, held: u32) -> Self {
        // The last warp of a CTA may have fewer threads.
        let threads = program.function.threads().saturating_sub(index * 32);
        let alive = if threads < 32 { (1 << threads) - 1 } else { ALL };
        let mut views = Views::new(place, cta as u32);
        views.end(!alive);
        Self {
            cta,
            index,
            pc: 0,
            rounds: Rounds::new(),
            strands: Vec::new(),
            ahead: false,
            fruitless: 0,
            own_word: false,
            registers: Registers::new(program, alive),
            local: Local::new(program.function.local_bytes),
            blocked: None,
            exited: false,
            multiplies: 0,
            retired: 0,
            commits: VecDeque::new(),
            collectives: 0,
            stores: Vec::new(),
            bulk_groups: [0; 32],
            copies: Vec::new(),
            copy_groups: [0; 32],
            held,
            resized: Vec::new(),
            cluster_arrival: None,
            views,
            unsettled: Vec::new(),
            maps: Vec::new(),
            acquired: [None; 32],
            look: None,
            looks: BTreeMap::new(),
            watched: Vec::new(),
            reduces: None,
            missed: None,
            polled: None,
            since_poll: u32::MAX,
        }
    }

    pub(crate) fn program(&self) -> &'p Program {
        self.registers.program
    }

    /// The index of a lane's thread in the CTA.
    pub(crate) fn thread(&self, lane: usize) -> u16 {
        self.index.wrapping_mul(32).wrapping_add(lane as u32) as u16
    }

    /// Its warpgroup, if it is in the CTA with this index in the cluster.
    pub(crate) fn group_in(&self, cta: usize) -> Option<usize> {
        (self.cta == cta).then_some((self.index / 4) as usize)
    }

    /// Whether a wait of the active lanes for all except the newest `pending` groups covers a store.
    pub(crate) fn covers(&self, pending: u32, store: &Store) -> bool {
        self.waits_for(pending, store.lane, store.group)
    }

    /// The same for work that a lane issued after it had committed `group` groups.
    pub(crate) fn waits_for(&self, pending: u32, lane: usize, group: u64) -> bool {
        self.registers.active >> lane & 1 == 1 && group + u64::from(pending) < self.bulk_groups[lane]
    }

    /// Whether all stores that such a wait covers are done.
    pub(crate) fn stores_done(&self, pending: u32) -> bool {
        self.stores.iter().all(|store| store.done || !self.covers(pending, store))
    }

    /// Refuses an instruction that the whole warp must execute together, if some lanes do not. Lanes that have ended do not count:
    /// the instructions wait for the threads that have not exited (ISA "shfl.sync", "barrier", "exit").
    pub(crate) fn converged(&self) -> Result<(), Fault> {
        match self.registers.active {
            active if active == self.registers.alive => Ok(()),
            active => Err(Fault::Divergence { active }),
        }
    }
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
