//! Equivalent mutants: mutants that behave as the original program, each kind with a reason.
//!
//! A reason says which mutants it covers. If it depends on the program, it checks the program. A mutant with a
//! reason is run all the same, and counts as killed if a schedule finds it.

mod barriers;
mod checks;
mod groups;
mod order;
mod stages;
mod threads;

use ptx::inst::{BinaryOp, Inst};
use ptx::mutate::{Change, Mutation, numbered};
use ptx::{Function, Statement};

use barriers::{
    behind_a_multiply, behind_another, behind_own_copies, first_of_all, in_one_order, in_order_of_consumers,
    next_does_as_well, nothing_staged_yet, of_all_alone, of_one_warpgroup, only_use, orders_nothing,
};
use checks::{
    advances, always_zero, copies_nothing_before, does_nothing, ends_in_a_trap, fenced_already,
    follows_its_load, joins_the_next, next_step, not_read_again, nothing_behind, of_cta_alone,
    of_threads_alone, only, untouched, waits_longer,
};
use groups::{ends_later, waits_for_none, waits_for_nothing};
use order::{
    announces_first, fences_behind, maps_are_own, meets_later, passes_a_turn, turn_or_stage, waits_for_a_turn,
};
use stages::{without_bytes, without_bytes_next};
use threads::{begins_inside, either_way, may_repeat, meets_first, tells_the_same};

/// Why mutants of one kind behave as the original program.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    name: &'static str,
    /// The statements that it is about.
    targets: &'static [&'static str],
    /// Whether the mutant is of this kind and the conditions of the reason hold in the program.
    covers: fn(&Function, &Mutation) -> bool,
    why: &'static str,
}

impl Reason {
    /// The reason why a mutant of a program is equivalent to it, if there is one.
    pub fn of(function: &Function, mutation: &Mutation) -> Option<&'static Self> {
        let covers = |of: &&Self| of.targets.contains(&mutation.target) && (of.covers)(function, mutation);
        REASONS.iter().find(covers)
    }

    /// The reason of a name.
    pub fn named(name: &str) -> Option<&'static Self> {
        REASONS.iter().find(|of| of.name == name)
    }

    /// Its name, in reports and records.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The reason in words.
    pub fn text(&self) -> &'static str {
        self.why
    }

    /// Whether it follows completely from checks of the program. Otherwise it also rests on no schedule having found the mutant.
    pub fn is_proven(&self) -> bool {
        !matches!(
            self.name,
            "last-arrival"
                | "first-stage"
                | "fresh-stage"
                | "last-touch"
                | "either-way"
                | "begins-inside"
                | "nothing-staged-yet"
                | "announces-alone"
                | "last-of-threads"
                | "passes-a-turn"
                | "waits-for-a-turn"
                | "turn-or-stage"
                | "announces-early"
                | "without-bytes"
                | "without-bytes-next"
        )
    }
}

const REASONS: &[Reason] = &[
    Reason {
        name: "ends-in-a-trap",
        targets: &["if", "wgmma.wait_group"],
        covers: ends_in_a_trap,
        why: "It is executed only on the way to a trap, where the original program would fail. No run of it does.",
    },
    Reason {
        name: "waits-longer",
        targets: &["wgmma.wait_group", "cp.async.bulk.wait_group", "cp.async.wait_group"],
        covers: |_, mutation| waits_longer(mutation),
        why: "It waits for more groups. Everything that the mutant can do, the original can do too.",
    },
    Reason {
        name: "of-threads-alone",
        targets: &["fence.mbarrier_init"],
        covers: |function, _| of_threads_alone(function),
        why: "No copy and no other CTA uses the mbarriers, and the CTA's barrier after it orders their \
              initialisation for the CTA's threads.",
    },
    Reason {
        name: "untouched",
        targets: &["wgmma.fence"],
        covers: |function, mutation| mutation.change == Change::Delete && untouched(function, mutation),
        why: "Between the two multiplies around the fence, only multiplies of the same shape use their \
              registers, and PTX orders these without a fence. The first multiply has a fence of its own.",
    },
    Reason {
        name: "fenced-already",
        targets: &["wgmma.fence"],
        covers: |function, mutation| mutation.change == Change::Delete && fenced_already(function, mutation),
        why: "Since the fence before it, only multiplies use the accumulators and fragments of the multiplies \
              that follow it.",
    },
    Reason {
        name: "grids-and-threads",
        targets: &["bar.sync", "barrier.cluster.wait"],
        covers: |function, mutation| {
            matches!(next_step(function, mutation), Some(Inst::GridDependency { .. }))
        },
        why: "The step that now comes first waits for other grids and accesses no memory. There is nothing between the two, and \
              everything after them comes after both.",
    },
    Reason {
        name: "registers-and-phases",
        targets: &["mbarrier.try_wait"],
        covers: |function, mutation| {
            matches!(next_step(function, mutation), Some(Inst::WgmmaFence | Inst::WgmmaWait { .. }))
        },
        why: REGISTERS_AND_PHASES,
    },
    Reason {
        name: "registers-and-phases",
        targets: &["wgmma.wait_group", "wgmma.fence"],
        covers: |function, mutation| matches!(next_step(function, mutation), Some(Inst::MbarrierWait { .. })),
        why: REGISTERS_AND_PHASES,
    },
    Reason {
        name: "same-group",
        targets: &["wgmma.commit_group"],
        covers: ends_later,
        why: "The step that now comes first starts no multiply and waits for no group: the group has the same \
              multiplies, and is complete before the next one begins.",
    },
    Reason {
        name: "waits-for-none",
        targets: &["wgmma.commit_group"],
        covers: waits_for_none,
        why: "The step that now comes first waits until fewer groups are in flight than there can be, on any path, with this one: before \
              and after it, it waits for nothing.",
    },
    Reason {
        name: "waits-for-nothing",
        targets: &["wgmma.wait_group"],
        covers: |function, mutation| {
            matches!(mutation.change, Change::Delete | Change::Field { name: "pending", .. })
                && waits_for_nothing(function, mutation)
        },
        why: "On no path are more groups in flight than it lets run: it waits for nothing, and says so to the assembler alone.",
    },
    Reason {
        name: "registers-and-memory",
        targets: &["fence.proxy.async", "bar.sync"],
        covers: |function, mutation| matches!(next_step(function, mutation), Some(Inst::WgmmaFence)),
        why: REGISTERS_AND_MEMORY,
    },
    Reason {
        name: "registers-and-memory",
        targets: &["wgmma.fence"],
        covers: |function, mutation| matches!(next_step(function, mutation), Some(Inst::BarrierSync { .. })),
        why: REGISTERS_AND_MEMORY,
    },
    Reason {
        name: "fresh-stage",
        targets: &["mbarrier.try_wait"],
        covers: |_, mutation| {
            mutation.within.is_none() && mutation.scopes.iter().any(|scope| scope == "producer")
        },
        why: "It is executed once, before the producer has filled a stage of the ring: nothing is in the stage, \
              and the wait does not wait.",
    },
    Reason {
        name: "releases-later",
        targets: &["mbarrier.arrive", "bar.arrive"],
        covers: |function, mutation| {
            matches!(next_step(function, mutation), Some(Inst::BulkWait { .. } | Inst::WgmmaWait { .. }))
        },
        why: "The step that now comes first waits for copies or multiplies that are under way, and for no thread: what the \
              arrival releases is released later.",
    },
    Reason {
        name: "two-waits",
        targets: &["mbarrier.try_wait"],
        covers: |function, mutation| matches!(next_step(function, mutation), Some(Inst::BulkWait { .. })),
        why: TWO_WAITS,
    },
    Reason {
        name: "two-waits",
        targets: &["cp.async.bulk.wait_group"],
        covers: |function, mutation| matches!(next_step(function, mutation), Some(Inst::MbarrierWait { .. })),
        why: TWO_WAITS,
    },
    Reason {
        name: "fences-later",
        targets: &["fence.proxy.async"],
        covers: |function, mutation| matches!(next_step(function, mutation), Some(Inst::MbarrierWait { .. })),
        why: "A wait for an mbarrier tells other threads nothing, and accesses nothing that a proxy fence is about: the fence is \
              still behind everything that was before the two, and before everything behind them.",
    },
    Reason {
        name: "without-bytes",
        targets: &["mbarrier.arrive", "mbarrier.try_wait"],
        covers: |function, mutation| mutation.change == Change::Relax && without_bytes(function, mutation),
        why: "It is about the empty barrier of a stage without any bytes: that the stage may be filled again orders no memory.",
    },
    Reason {
        name: "without-bytes-next",
        targets: &["red"],
        covers: without_bytes_next,
        why: "The step that now comes first says that a stage without any bytes is empty, which orders no memory: the next one may count, \
              and this count is taken before the next one.",
    },
    Reason {
        name: "turn-or-stage",
        targets: &["mbarrier.try_wait"],
        covers: turn_or_stage,
        why: "The step that now comes first is the beginning of a turn, which other warpgroups only pass on: every thread that waits there \
              also waits for the stage, before it multiplies.",
    },
    Reason {
        name: "meets-later",
        targets: &["mbarrier.try_wait"],
        covers: |function, mutation| mutation.change == Change::OneLane && meets_later(function, mutation),
        why: "Next, all lanes of the warp wait for other phases and meet at a barrier, before one of them accesses memory: what the lane \
              that waits knows, all know then.",
    },
    Reason {
        name: "announces-early",
        targets: &["mbarrier.try_wait"],
        covers: |function, mutation| announces_first(function, mutation),
        why: "The step that now comes first announces the bytes of copies that start after both. The stage's phase before has ended: \
              otherwise there would be an arrival too many in it, which the emulator reports.",
    },
    Reason {
        name: "not-read-again",
        targets: &["position"],
        covers: not_read_again,
        why: "It is executed once, and no later instruction reads the variable: the ring is used once.",
    },
    Reason {
        name: "own-multiplies",
        targets: &["wgmma.wait_group"],
        covers: |function, mutation| {
            function.threads() == 128
                && matches!(next_step(function, mutation), Some(Inst::BarrierSync { .. }))
        },
        why: "The CTA is one warpgroup: every thread that has passed both statements has waited for the \
              multiplies of the whole CTA.",
    },
    Reason {
        name: "warp-meets",
        targets: &["wgmma.wait_group"],
        covers: |function, mutation| matches!(next_step(function, mutation), Some(Inst::WarpSync)),
        why: "It is one instruction of all lanes of a warp, and accesses no memory. Whether the warp's \
              barrier is before or after it, when one lane has passed both, all lanes have waited and have \
              finished their earlier reads.",
    },
    Reason {
        name: "fences-behind",
        targets: &["fence.proxy.async"],
        covers: |function, mutation| fences_behind(function, mutation),
        why: "Every thread executes the fence after the barrier and not before it, the thread that starts \
              the copies included: the fence is still between the writes and the copies.",
    },
    Reason {
        name: "announces-first",
        targets: &["cp.async.bulk.wait_group"],
        covers: |function, mutation| announces_first(function, mutation),
        why: "The step that now comes first announces bytes at an mbarrier, and accesses nothing that the \
              copies being waited for access. The phase does not end before those bytes have arrived, \
              through copies that are started after both.",
    },
    Reason {
        name: "nothing-behind",
        targets: &["mbarrier.try_wait"],
        covers: |function, mutation| mutation.change == Change::Relax && nothing_behind(function, mutation),
        why: "Nothing that the thread does after it accesses memory: it only waits until other CTAs have signalled, and ends.",
    },
    Reason {
        name: "passes-a-turn",
        targets: &["mbarrier.arrive"],
        covers: |function, mutation| mutation.change == Change::Relax && passes_a_turn(function, mutation),
        why: "It releases the next consumer in order and publishes no memory: that consumer waits for a \
              stage of the ring next, and accesses no memory before. Consumers share only the stages, and \
              only read them.",
    },
    Reason {
        name: "waits-for-a-turn",
        targets: &["mbarrier.try_wait"],
        covers: |function, mutation| {
            mutation.change == Change::OneLane && waits_for_a_turn(function, mutation)
        },
        why: "It waits for the turn of this consumer, which publishes no memory. Next each lane itself waits \
              for a stage of the ring, and the multiplies after that need the whole warp: the lane that \
              waits holds back the others.",
    },
    Reason {
        name: "tells-the-same",
        targets: &["mapa"],
        covers: |function, mutation| tells_the_same(function, mutation),
        why: "The threads of a warpgroup that signal other CTAs still signal the same set of CTAs; each \
              thread only signals another one than before.",
    },
    Reason {
        name: "own-maps",
        targets: &["fence.proxy.tensormap.release", "fence.proxy.tensormap.acquire"],
        covers: |function, mutation| mutation.change == Change::Narrow && maps_are_own(function),
        why: "The CTA's own number gives the address of every changed map: only threads of the CTA that changes it use it.",
    },
    Reason {
        name: "last-of-threads",
        targets: &["mbarrier.init"],
        covers: |function, mutation| {
            of_cta_alone(function) && matches!(next_step(function, mutation), Some(Inst::FenceMbarrierInit))
        },
        why: "No other CTA uses the mbarriers, and only threads arrive at the one that is initialised last: the \
              CTA's barrier orders the initialisation for them.",
    },
    Reason {
        name: "announces-alone",
        targets: &["mbarrier.arrive.expect_tx"],
        covers: |_, mutation| mutation.change == Change::Relax,
        why: "The waiting threads read data that copies have written, and the completion of the copies makes \
              it visible. The thread that announces the bytes has written nothing for them.",
    },
    Reason {
        name: "budget",
        targets: &["setmaxnreg"],
        covers: |_, _| true,
        why: "The warps of the CTA get their registers with these numbers too; otherwise the run would not \
              have ended. A register count limits the registers that ptxas may use; it orders nothing.",
    },
    Reason {
        name: "only-use",
        targets: &["bar.sync"],
        covers: |function, mutation| mutation.change == RENAMED && only_use(function, mutation),
        why: "The barrier has this one use, except for uses that the whole CTA executes before, and no other \
              statement uses its new number.",
    },
    Reason {
        name: "first-of-all",
        targets: &["bar.sync"],
        covers: |function, mutation| mutation.change == RENAMED && first_of_all(function, mutation),
        why: "Every thread of the CTA executes it, unconditionally, and before all other barriers with its \
              new number: it is complete before they begin.",
    },
    Reason {
        name: "of-all-alone",
        targets: &["bar.sync"],
        covers: |function, mutation| mutation.change == RENAMED && of_all_alone(function, mutation),
        why: "Every thread of the CTA executes it, under the same conditions, and no other statement uses \
              its new number: it waits for the same threads at the same place.",
    },
    Reason {
        name: "in-one-order",
        targets: &["bar.sync"],
        covers: |function, mutation| mutation.change == RENAMED && in_one_order(function),
        why: "Every thread of the CTA executes all its barriers, under the same conditions: they come in one \
              order, whatever their numbers are.",
    },
    Reason {
        name: "in-order-of-consumers",
        targets: &["bar.sync"],
        covers: |function, mutation| mutation.change == RENAMED && in_order_of_consumers(function, mutation),
        why: "All consumer threads execute it, as all barriers but the whole CTA's number zero, under the same \
              conditions: they come in one order, whatever their numbers are.",
    },
    Reason {
        name: "behind-another",
        targets: &["bar.sync"],
        covers: |function, mutation| mutation.change == RENAMED && behind_another(function, mutation),
        why: "Every thread of the CTA executes it, and after each use of its new number it meets all others at \
              another barrier before: no thread waits at both at the same time.",
    },
    Reason {
        name: "either-way",
        targets: &["if"],
        covers: |function, mutation| {
            mutation.change == Change::Force(false) && either_way(function, mutation)
        },
        why: "It chooses a faster way to store tiles that end inside of D. The other way compares rows or \
              columns with the same limit, and stores such tiles too, to the same bits.",
    },
    Reason {
        name: "once-is-enough",
        targets: &["if"],
        covers: |function, mutation| mutation.change == Change::Force(true) && may_repeat(function, mutation),
        why: "Every lane of the warp has the same value, and one of them takes the maximum or minimum with the \
              word in memory, or stores it. It does not change if the others do the same.",
    },
    Reason {
        name: "begins-inside",
        targets: &["if"],
        covers: |function, mutation| {
            mutation.change == Change::Force(true) && begins_inside(function, mutation)
        },
        why: "It asks whether the tile begins inside of D. Only in a cluster of several CTAs some tiles do not.",
    },
    Reason {
        name: "does-nothing",
        targets: &["if"],
        covers: does_nothing,
        why: "There is nothing in it but computations in registers, and a fence of mbarriers that do not exist.",
    },
    Reason {
        name: "all-meet-first",
        targets: &["griddepcontrol"],
        covers: |function, mutation| mutation.change == Change::OneLane && meets_first(function, mutation),
        why: "Only the first lanes of warps, which wait, access global memory before their warps' next \
              barrier: what one thread knows of the grids before, all threads know after a barrier with it.",
    },
    Reason {
        name: "of-one-warpgroup",
        targets: &["bar.sync"],
        covers: |function, mutation| mutation.change == RENAMED && of_one_warpgroup(function, mutation),
        why: "It is one of the barriers of the CTA's only consumer warpgroup, whose warps execute all of \
              them in one order, whatever their numbers. Other threads use only number zero, the whole \
              CTA's.",
    },
    Reason {
        name: "hint",
        targets: &["griddepcontrol"],
        covers: |function, mutation| {
            let all = numbered(function);
            let statement = all.get(mutation.index);
            matches!(statement, Some(Statement::Inst { inst: Inst::GridDependency { wait: false }, .. }))
        },
        why: "It is a hint: dependent grids are launched at the latest when this grid has ended.",
    },
    Reason {
        name: "no-copies-yet",
        targets: &["cp.async.bulk.wait_group"],
        covers: |function, mutation| copies_nothing_before(function, mutation),
        why: NO_COPIES_YET,
    },
    Reason {
        name: "no-copies-yet",
        targets: &["if"],
        covers: |function, mutation| {
            only(function, mutation, |inst| matches!(inst, Inst::BulkWait { .. }))
                && copies_nothing_before(function, mutation)
        },
        why: NO_COPIES_YET,
    },
    Reason {
        name: "next-group",
        targets: &["cp.async.bulk.commit_group"],
        covers: |function, mutation| mutation.change == Change::Delete && joins_the_next(function, mutation),
        why: "There is no wait between it and the next commit of the same threads, and every later wait is \
              for all groups: its copies join the next group.",
    },
    Reason {
        name: "nothing-to-order",
        targets: &["bar.sync"],
        covers: |function, mutation| mutation.change == Change::Delete && orders_nothing(function, mutation),
        why: "Between the previous barrier of the whole CTA or of the same threads, or the kernel's begin, and \
              this one, on every path, the threads only start copies or wait for some, and multiply: they write no \
              memory, and read none that another thread writes after this barrier.",
    },
    Reason {
        name: "nothing-staged-yet",
        targets: &["bar.sync"],
        covers: |function, mutation| {
            mutation.change == Change::Delete && nothing_staged_yet(function, mutation)
        },
        why: "Before it the threads only access global memory and mbarriers, and multiply. Until the next barrier of \
              the same threads, which orders those accesses as well, they only write shared memory.",
    },
    Reason {
        name: "next-does-as-well",
        targets: &["bar.sync"],
        covers: |function, mutation| {
            mutation.change == Change::Delete && next_does_as_well(function, mutation)
        },
        why: "Before it only mbarriers are initialised, and nothing else is written. Until the next barrier \
              of the whole CTA, which all threads execute, no thread uses them; all loads and stores until \
              then are to other addresses.",
    },
    Reason {
        name: "one-warpgroup",
        targets: &["bar.sync"],
        covers: |function, mutation| {
            mutation.change == Change::Delete && behind_a_multiply(function, mutation)
        },
        why: "The CTA is one warpgroup, and the statement before it waits for multiplies of all its threads: \
              when one thread continues, all have arrived there, and none has accessed memory except by \
              copies and multiplies.",
    },
    Reason {
        name: "behind-the-copies",
        targets: &["bar.sync"],
        covers: |function, mutation| mutation.change == RENAMED && behind_own_copies(function, mutation),
        why: "Every thread of the CTA executes it, and before it waits for copies that a thread of the first \
              warpgroup has started after that warpgroup's last use of the new number; the next use of the \
              number is after the barrier.",
    },
    Reason {
        name: "last-touch",
        targets: &["st.relaxed"],
        covers: |function, mutation| {
            mutation.change == Change::Narrow && follows_its_load(function, mutation)
        },
        why: "An acquiring load or atomic of the word has seen what the other CTAs stored there, and the next use \
              is in the next launch: in this launch, no other thread accesses the word any more.",
    },
    Reason {
        name: "one-stage",
        targets: &["position"],
        covers: |function, mutation| mutation.change == Change::Delete && always_zero(function, mutation),
        why: "The ring has one stage: the position is zero and stays zero.",
    },
    Reason {
        name: "first-stage",
        targets: &["position"],
        covers: |_, mutation| mutation.within.is_none() && advances(mutation),
        why: "It is executed once, on the first stage, and the ring has more than one stage: nothing wraps \
              there.",
    },
    Reason {
        name: "last-arrival",
        targets: &["mbarrier.arrive"],
        covers: |_, mutation| mutation.within.is_none(),
        why: LAST_ARRIVAL,
    },
    Reason {
        name: "no-copies",
        targets: &["if"],
        covers: |function, mutation| {
            mutation.change == Change::Force(true)
                && only(function, mutation, |inst| matches!(inst, Inst::BulkWait { .. }))
        },
        why: NO_COPIES,
    },
    Reason {
        name: "last-arrival",
        targets: &["if"],
        covers: |function, mutation| {
            mutation.within.is_none()
                && only(function, mutation, |inst| {
                    checks::arrives(inst) || matches!(inst, Inst::Binary { .. })
                })
        },
        why: LAST_ARRIVAL,
    },
];

const REGISTERS_AND_PHASES: &str = "A wgmma.fence orders uses of registers, and a wgmma.wait_group waits for \
    multiplies, which wait for no thread. A wait for an mbarrier uses no registers, so it can come before or \
    after either of them.";
const TWO_WAITS: &str = "Both wait, one for copies of the thread that are under way, and tell other threads nothing: either may come \
    first, and everything behind them comes after both.";
const REGISTERS_AND_MEMORY: &str = "A proxy fence and a barrier order accesses to memory, a wgmma.fence uses of \
    registers: either may come first.";
const NO_COPIES: &str = "The added threads have started no copies, so they have nothing to wait for.";
const NO_COPIES_YET: &str = "On the only path to it no copy has been started: there is nothing to wait for.";
const RENAMED: Change = Change::Operand { name: "id", op: BinaryOp::Add, by: 1 };
const LAST_ARRIVAL: &str = "It releases the last stage of the only tile. The producer has nothing left to \
    load into the stage, so no thread waits for that phase.";

#[cfg(test)]
mod tests;
