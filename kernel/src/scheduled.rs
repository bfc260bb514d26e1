//! What a kernel's scheduler gets from a call, visited like everything else that the call accesses.

use collective::operands::{Contents, Extents, Memory, Visit};
use scheduler::{ScheduleVisit, WordContents, Words};

use crate::error::LaunchError;
use crate::gemm::AnyGemm;

/// Visits what a scheduler states: memory and parameters of the kernel.
pub(crate) struct Given<'v>(pub(crate) &'v mut dyn Visit);

impl ScheduleVisit for Given<'_> {
    fn words(&mut self, Words { name, address, count, contents, writes }: Words<'_>) {
        let contents = match contents {
            WordContents::Order => Contents::Order(u32::try_from(count).unwrap_or(u32::MAX)),
            WordContents::Flags => Contents::Report,
        };
        self.0.memory(Memory { name, address, extents: Extents::line(32, count), contents, writes });
        self.0.address(name, name);
    }

    fn word(&mut self, name: &'static str, word: &mut u32) {
        self.0.counted(name, word);
    }
}

impl AnyGemm {
    /// Checks where the words are that a scheduler gets, as `visit` visits them.
    ///
    /// # Errors
    /// They are nowhere, or not at a multiple of 4.
    pub(crate) fn check_words(&self, visit: impl FnOnce(&mut dyn ScheduleVisit)) -> Result<(), LaunchError> {
        let mut misplaced = Misplaced(None);
        visit(&mut misplaced);
        match misplaced.0 {
            Some(reason) => Err(LaunchError::Scheduler { scheduler: self.scheduler.name(), reason }),
            None => Ok(()),
        }
    }
}

/// What is wrong with the first words that are at no legal address.
struct Misplaced(Option<String>);

impl ScheduleVisit for Misplaced {
    fn words(&mut self, Words { name, address, count, .. }: Words<'_>) {
        if count > 0 && (*address == 0 || !address.is_multiple_of(4)) {
            self.0.get_or_insert(format!(
                "`{name}`, {count} words, is at {address:#x}, a multiple of 4 above 0 was needed: pass the scheduler with its addresses by \
                 `Call::with_scheduler`"
            ));
        }
    }

    fn word(&mut self, _name: &'static str, _word: &mut u32) {}
}
