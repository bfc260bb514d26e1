//! The rules that findings name: those of the emulator, and those about results.

use emulator::Rule;

/// A buffer does not hold what was wanted.
pub(super) const WRONG_RESULT: Rule = Rule {
    name: "wrong-result",
    meaning: "A buffer does not hold what was wanted.",
    section: "the launch's description: want",
};

/// A buffer changed that must not.
pub(super) const CHANGED: Rule = Rule {
    name: "changed",
    meaning: "A buffer was written that must not change.",
    section: "the launch's description: unchanged",
};

/// Memory between the buffers was written.
pub(super) const OUTSIDE: Rule = Rule {
    name: "outside-buffer",
    meaning: "Bytes next to a buffer were written.",
    section: "the launch's description: align",
};

/// A buffer depends on the schedule.
pub(super) const VARIES: Rule = Rule {
    name: "result-varies",
    meaning: "What a buffer holds depends on the schedule: the sums are made in another order, or the kernel is wrong.",
    section: "the launch's description: a buffer without want",
};

/// All rules.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    const OWN: [Rule; 4] = [WRONG_RESULT, CHANGED, OUTSIDE, VARIES];
    Rule::ALL.iter().chain(const { &OWN })
}
