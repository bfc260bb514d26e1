//! What copies have read of lines of global memory that nothing else has accessed.
//!
//! A tile is read by every CTA of its row or column, each with an mbarrier of its own, and none of these reads
//! implies another. But all lines of a tile have the same reads. So a *history* is a list that lines share: a
//! number, which stands for the last read and the history before it.

use std::collections::HashMap;

use super::chunk::{Claim, Record};

/// The history without reads.
pub(super) const NONE: u32 = 0;

/// All histories of a launch.
#[derive(Debug, Default)]
pub(super) struct Histories {
    /// By number, from 1: the last read, and the history before it.
    reads: Vec<(Record, u32)>,
    numbers: HashMap<(Record, u32), u32>,
    /// The histories after a read.
    after: HashMap<(Record, u32), u32>,
}

/// A read, the history before it and the history after it: the last step that was asked for.
pub(super) type Step = Option<(Record, u32, u32)>;

impl Histories {
    /// The reads of a history, latest first.
    pub(super) fn reads(&self, mut number: u32) -> impl Iterator<Item = Record> + '_ {
        core::iter::from_fn(move || {
            let (read, before) = *self.reads.get((number as usize).checked_sub(1)?)?;
            number = before;
            Some(read)
        })
    }

    /// The history with one more read, without the reads that the new one implies.
    pub(super) fn after(&mut self, read: Record, history: u32) -> u32 {
        if let Some(&number) = self.after.get(&(read, history)) {
            return number;
        }
        let mut kept: Vec<Record> = self.reads(history).filter(|old| !old.is_before(&read)).collect();
        let all = self.reads(history).count();
        let before = if kept.len() == all { history } else { self.of(&mut kept) };
        let number = self.number(read, before);
        self.after.insert((read, history), number);
        number
    }

    /// The history in which the reads of an operation with one claim have another claim.
    pub(super) fn settled(&mut self, history: u32, pc: u32, (from, to): (Claim, Claim)) -> u32 {
        let mut changed = false;
        let mut reads: Vec<Record> = self.reads(history).collect();
        for read in reads.iter_mut().filter(|read| (read.pc, read.claim()) == (pc, from)) {
            (read.warp, read.by, read.count) = to;
            changed = true;
        }
        if changed { self.of(&mut reads) } else { history }
    }

    /// The history with these reads, latest first.
    fn of(&mut self, reads: &mut Vec<Record>) -> u32 {
        reads.drain(..).rev().fold(NONE, |before, read| self.number(read, before))
    }

    fn number(&mut self, read: Record, before: u32) -> u32 {
        *self.numbers.entry((read, before)).or_insert_with(|| {
            self.reads.push((read, before));
            u32::try_from(self.reads.len()).unwrap_or(u32::MAX)
        })
    }
}
