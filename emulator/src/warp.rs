//! A warp: 32 lanes in lockstep, a stack of lane masks and a register file.

use std::collections::{BTreeMap, VecDeque};

use ptx::inst::{MbarrierOrder, Operand, Reg};

use crate::program::Program;
use crate::step::{MapRead, ThreadCopy};
use crate::strand::Strand;
use crate::trap::Fault;
use crate::views::Views;

/// Every lane.
pub(crate) const ALL: u32 = u32::MAX;

/// One value for each lane.
pub(crate) type Lanes<T> = [T; 32];

/// An open block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Frame {
    /// The lanes that entered, those that take the second branch, and where that begins.
    If { id: u64, entered: u32, other: u32, otherwise: usize },
    /// The lanes that entered, the first operation, and how often they have come back to it.
    Loop { id: u64, entered: u32, start: usize, round: u64 },
}

impl Frame {
    /// The number of the block, and of this execution of it.
    pub(crate) fn id(&self) -> u64 {
        let (Self::If { id, .. } | Self::Loop { id, .. }) = self;
        *id
    }

    pub(crate) fn entered(&mut self) -> &mut u32 {
        let (Self::If { entered, .. } | Self::Loop { entered, .. }) = self;
        entered
    }
}

/// Why a warp cannot go on.
#[derive(Clone, Debug)]
pub(crate) enum Blocked {
    /// Until the phases of these parities of these barriers have completed, for a wait of this order.
    Mbarrier(Vec<(u32, u32)>, MbarrierOrder),
    /// Until a named barrier is in another generation than this.
    Named { id: usize, generation: u64 },
    /// Until the cluster barrier is in another generation than this.
    Cluster { generation: u64 },
    /// Until this many multiplies of the warpgroup are done; then the instruction runs again.
    Warpgroup { until: u64 },
    /// Until the tensor stores that leave this many groups pending are done; then the instruction runs again.
    Stores { pending: u32 },
    /// Until the pool has this many registers a thread more; then the instruction runs again.
    Registers { asked: u32 },
    /// Until other lanes of the warp come to the same instruction.
    Converge,
}

/// The shape of a register that multiplies only read.
const INPUT: u16 = 0;

/// Who may touch a register.
#[derive(Clone, Copy, Debug, Default)]
struct Access {
    /// Lanes in which it has been written.
    written: u32,
    /// Multiplies in flight that use it.
    in_flight: u16,
    /// N of the last multiply that summed there, with K; [`INPUT`] where the last one read it.
    shape: u16,
    /// Count of fences at that multiply.
    shape_epoch: u32,
    /// Count of fences at the last access of another instruction, plus one.
    touched: u32,
}

/// The registers of a warp, and which lanes are active.
#[derive(Debug)]
pub(crate) struct Registers<'p> {
    program: &'p Program,
    predicates: Vec<u32>,
    narrow: Vec<Lanes<u32>>,
    wide: Vec<Lanes<u64>>,
    access: Vec<Access>,
    /// Lanes in which a register holds bytes of memory that nobody had written, and what its use is refused with.
    undefined: BTreeMap<u32, (u32, Fault)>,
    /// Lanes that execute the current instruction.
    pub(crate) active: u32,
    /// How many `wgmma.fence`s have been executed.
    fences: u32,
}

impl<'p> Registers<'p> {
    fn new(program: &'p Program) -> Self {
        let [predicates, narrow, wide] = program.files;
        Self {
            program,
            predicates: vec![0; predicates],
            narrow: vec![[0; 32]; narrow],
            wide: vec![[0; 32]; wide],
            access: vec![Access::default(); program.slots.len()],
            undefined: BTreeMap::new(),
            active: ALL,
            fences: 0,
        }
    }

    fn slot(&self, reg: Reg) -> usize {
        self.program.slots[reg.0 as usize] as usize
    }

    fn may_read(&mut self, reg: Reg) -> Result<usize, Fault> {
        let access = &mut self.access[reg.0 as usize];
        let missing = self.active & !access.written;
        if missing != 0 {
            let undefined = self.undefined.get(&reg.0).filter(|(lanes, _)| lanes & missing != 0);
            let unwritten = Fault::RegisterUninitialised { register: reg.0 };
            return Err(undefined.map_or(unwritten, |(_, fault)| fault.clone()));
        }
        if access.in_flight > 0 {
            return Err(Fault::RegisterInFlight { register: reg.0, write: false });
        }
        access.touched = self.fences + 1;
        Ok(self.slot(reg))
    }

    fn may_write(&mut self, reg: Reg) -> Result<usize, Fault> {
        let access = &mut self.access[reg.0 as usize];
        if access.in_flight > 0 {
            return Err(Fault::RegisterInFlight { register: reg.0, write: true });
        }
        access.written |= self.active;
        access.touched = self.fences + 1;
        Ok(self.slot(reg))
    }

    /// A predicate, a bit for each lane.
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

    /// A value of up to 32 bits.
    pub(crate) fn read(&mut self, operand: Operand) -> Result<Lanes<u32>, Fault> {
        Ok(match operand {
            Operand::Imm(bits) => [bits as u32; 32],
            Operand::Reg(reg) => {
                let slot = self.may_read(reg)?;
                self.narrow[slot]
            }
        })
    }

    /// A value of 64 bits.
    pub(crate) fn read_wide(&mut self, operand: Operand) -> Result<Lanes<u64>, Fault> {
        Ok(match operand {
            Operand::Imm(bits) => [bits; 32],
            Operand::Reg(reg) => {
                let slot = self.may_read(reg)?;
                self.wide[slot]
            }
        })
    }

    /// Looks at a value of up to 32 bits without reading it.
    pub(crate) fn peek(&self, operand: Operand) -> Lanes<u32> {
        match operand {
            Operand::Imm(bits) => [bits as u32; 32],
            Operand::Reg(reg) => self.narrow.get(self.slot(reg)).copied().unwrap_or([0; 32]),
        }
    }

    /// Looks at a value of 64 bits without reading it.
    pub(crate) fn peek_wide(&self, operand: Operand) -> Lanes<u64> {
        match operand {
            Operand::Imm(bits) => [bits; 32],
            Operand::Reg(reg) => self.wide.get(self.slot(reg)).copied().unwrap_or([0; 32]),
        }
    }

    /// A value that has to be the same in every active lane.
    pub(crate) fn uniform(&mut self, operand: Operand, name: &'static str) -> Result<u32, Fault> {
        let values = self.read(operand)?;
        same(&values, self.active).ok_or(Fault::NotUniform { operand: name })
    }

    /// A 64-bit value that has to be the same in every active lane.
    pub(crate) fn uniform_wide(&mut self, operand: Operand, name: &'static str) -> Result<u64, Fault> {
        let values = self.read_wide(operand)?;
        same(&values, self.active).ok_or(Fault::NotUniform { operand: name })
    }

    pub(crate) fn write_predicate(&mut self, reg: Reg, values: u32) -> Result<(), Fault> {
        let (slot, active) = (self.may_write(reg)?, self.active);
        self.predicates[slot] = (self.predicates[slot] & !active) | (values & active);
        Ok(())
    }

    pub(crate) fn write(&mut self, reg: Reg, values: &Lanes<u32>) -> Result<(), Fault> {
        let (slot, active) = (self.may_write(reg)?, self.active);
        merge(&mut self.narrow[slot], values, active);
        Ok(())
    }

    pub(crate) fn write_wide(&mut self, reg: Reg, values: &Lanes<u64>) -> Result<(), Fault> {
        let (slot, active) = (self.may_write(reg)?, self.active);
        merge(&mut self.wide[slot], values, active);
        Ok(())
    }

    /// A lane's register holds what nobody has written: whoever uses it is refused with a fault. ISA "ld" allows to load and
    /// drop it.
    pub(crate) fn undefine(&mut self, reg: Reg, lane: usize, fault: Fault) {
        self.access[reg.0 as usize].written &= !(1 << lane);
        let (lanes, why) = self.undefined.entry(reg.0).or_insert((0, fault.clone()));
        (*lanes, *why) = (*lanes | 1 << lane, fault);
    }

    // ---- matrix multiplies ----

    /// Executes `wgmma.fence`.
    pub(crate) fn fence(&mut self) {
        self.fences += 1;
    }

    /// Gives a register to a multiply of this N that begins; `needs_value` where the multiply reads it.
    pub(crate) fn lend(&mut self, reg: Reg, n: u16, needs_value: bool) -> Result<(), Fault> {
        let fences = self.fences;
        let access = &mut self.access[reg.0 as usize];
        let other_shape = access.in_flight > 0 && access.shape != n && access.shape_epoch == fences;
        if fences == 0 || access.touched == fences + 1 || other_shape {
            return Err(Fault::MissingWgmmaFence { register: reg.0 });
        }
        if needs_value && access.written != ALL {
            return Err(Fault::RegisterUninitialised { register: reg.0 });
        }
        access.in_flight += 1;
        (access.written, access.shape, access.shape_epoch) = (ALL, n, fences);
        Ok(())
    }

    /// Lends a register that a multiply only reads: several of any shapes may at once, unless one of them sums there.
    pub(crate) fn lend_input(&mut self, reg: Reg) -> Result<(), Fault> {
        let fences = self.fences;
        let access = &mut self.access[reg.0 as usize];
        if access.in_flight > 0 && access.shape != INPUT {
            return Err(Fault::RegisterInFlight { register: reg.0, write: false });
        }
        if fences == 0 || access.touched == fences + 1 {
            return Err(Fault::MissingWgmmaFence { register: reg.0 });
        }
        if access.written != ALL {
            return Err(Fault::RegisterUninitialised { register: reg.0 });
        }
        access.in_flight += 1;
        (access.shape, access.shape_epoch) = (INPUT, fences);
        Ok(())
    }

    /// Takes a register back from a multiply that has been waited for.
    pub(crate) fn give_back(&mut self, reg: Reg) {
        let access = &mut self.access[reg.0 as usize];
        access.in_flight = access.in_flight.saturating_sub(1);
    }

    /// A lent register's content, for the multiply itself.
    pub(crate) fn lent(&mut self, reg: Reg) -> &mut Lanes<u32> {
        let slot = self.slot(reg);
        &mut self.narrow[slot]
    }
}

fn same<T: Copy + PartialEq>(values: &Lanes<T>, active: u32) -> Option<T> {
    let first = values[active.trailing_zeros().min(31) as usize];
    lanes(active).all(|lane| values[lane] == first).then_some(first)
}

fn merge<T: Copy>(into: &mut Lanes<T>, values: &Lanes<T>, active: u32) {
    if active == ALL {
        *into = *values;
    } else {
        for lane in lanes(active) {
            into[lane] = values[lane];
        }
    }
}

/// A number for a sequence of numbers: for that of all before the last, and the last.
pub(crate) fn mix(all: u64, value: u64) -> u64 {
    (all ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

/// The lanes of a mask, lowest first.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}

/// A tensor store in flight.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    /// The lane that issued it, and its operation.
    pub(crate) lane: usize,
    pub(crate) pc: usize,
    /// The lane's groups that were closed before.
    pub(crate) group: u64,
    pub(crate) source: u32,
    pub(crate) map: crate::tensor_map::Map,
    /// The map's generic address.
    pub(crate) map_at: u64,
    pub(crate) start: [i64; 5],
    /// How elements are combined with those in global memory; `None` where they are stored.
    pub(crate) reduce: Option<ptx::inst::Reduction>,
    /// Whether it has been done already.
    pub(crate) done: bool,
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
    pub(crate) frames: Vec<Frame>,
    /// Lanes that are elsewhere in the program.
    pub(crate) strands: Vec<Strand>,
    /// The block at whose end the lanes that are being executed wait for others.
    pub(crate) joins: Option<u64>,
    /// Lanes have gone ahead alone from where they waited for others.
    pub(crate) ahead: bool,
    /// Looks in a row that found nothing new.
    pub(crate) fruitless: u32,
    /// Whether the last one was an atomic access to a word that a lane of this warp wrote last: perhaps a lock.
    pub(crate) own_word: bool,
    pub(crate) registers: Registers<'p>,
    pub(crate) blocked: Option<Blocked>,
    pub(crate) exited: bool,
    /// Multiplies issued.
    pub(crate) multiplies: u64,
    /// Multiplies waited for.
    pub(crate) retired: u64,
    /// `multiplies` at each commit that has not been waited for.
    pub(crate) commits: VecDeque<u64>,
    /// Warpgroup-wide instructions other than multiplies.
    pub(crate) collectives: u64,
    /// Tensor stores whose sources nobody has waited for.
    pub(crate) stores: Vec<Store>,
    /// Groups of bulk copies that each lane has closed.
    pub(crate) bulk_groups: Lanes<u64>,
    /// Copies that a thread started itself and has not waited for.
    pub(crate) copies: Vec<ThreadCopy>,
    /// Groups of such copies that each lane has closed.
    pub(crate) copy_groups: Lanes<u64>,
    /// Registers a thread holds.
    pub(crate) held: u32,
    /// The cluster barrier's generation in which the warp arrived and has not waited.
    pub(crate) cluster_arrival: Option<u64>,
    /// What its lanes know to have happened.
    pub(crate) views: Views,
    /// Tensor stores whose sources have been waited for, and whose results have not.
    pub(crate) unsettled: Vec<Store>,
    /// Tensor maps in global memory that its loads read.
    pub(crate) maps: Vec<MapRead>,
    /// The word and the write of it that each lane has acquired last.
    pub(crate) acquired: Lanes<Option<(u64, u64)>>,
    /// Its last look at a word that others change: the operation and what it found.
    pub(crate) look: Option<(usize, u64)>,
    /// The words that it has looked at twice in a row: address, bytes and value.
    pub(crate) watched: Vec<(u64, usize, u64)>,
    /// What a barrier that it waits at reduces to, and where to.
    pub(crate) reduces: Option<(ptx::inst::BarrierOp, Reg)>,
    /// A wait that has turned out to come too late.
    pub(crate) missed: Option<Fault>,
    /// The barrier and parity of the last poll that failed.
    pub(crate) polled: Option<(u32, u32)>,
}

impl<'p> Warp<'p> {
    pub(crate) fn new(program: &'p Program, (cta, index): (usize, u32), place: usize, held: u32) -> Self {
        Self {
            cta,
            index,
            pc: 0,
            frames: Vec::new(),
            strands: Vec::new(),
            joins: None,
            ahead: false,
            fruitless: 0,
            own_word: false,
            registers: Registers::new(program),
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
            cluster_arrival: None,
            views: Views::new(place, cta as u32),
            unsettled: Vec::new(),
            maps: Vec::new(),
            acquired: [None; 32],
            look: None,
            watched: Vec::new(),
            reduces: None,
            missed: None,
            polled: None,
        }
    }

    /// The lane's index in the CTA.
    pub(crate) fn thread(&self, lane: usize) -> u16 {
        self.index.wrapping_mul(32).wrapping_add(lane as u32) as u16
    }

    /// Whether the active lanes' wait for all but the newest `pending` groups covers a store.
    pub(crate) fn covers(&self, pending: u32, store: &Store) -> bool {
        self.waits_for(pending, store.lane, store.group)
    }

    /// The same for whatever a lane issued when it had closed `group` groups.
    pub(crate) fn waits_for(&self, pending: u32, lane: usize, group: u64) -> bool {
        self.registers.active >> lane & 1 == 1 && group + u64::from(pending) < self.bulk_groups[lane]
    }

    /// Whether all stores that such a wait covers are done.
    pub(crate) fn stores_done(&self, pending: u32) -> bool {
        self.stores.iter().all(|store| store.done || !self.covers(pending, store))
    }

    /// Refuses an instruction that the whole warp has to execute together.
    pub(crate) fn converged(&self) -> Result<(), Fault> {
        match self.registers.active {
            ALL => Ok(()),
            active => Err(Fault::Divergence { active }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        assert_eq!(lanes(0b1010).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(lanes(ALL).count(), 32);
        let mut values = [7; 32];
        values[3] = 8;
        assert_eq!(same(&values, !8), Some(7), "an inactive lane does not count");
        assert_eq!(same(&values, ALL), None);
        let mut into = [0; 32];
        merge(&mut into, &values, 8);
        assert_eq!((into[2], into[3]), (0, 8));
    }
}
