//! Equivalent mutants: mutants that behave as the original program, each kind with a reason.
//!
//! An entry says which mutants it covers. If the reason depends on the program, the entry checks the program.
//! A mutant with a reason is still run under the first schedules, and counts as killed if one of them finds
//! it.

mod checks;
mod order;

use ptx::inst::{BinaryOp, Inst};
use ptx::mutate::{Change, Mutation, numbered};
use ptx::{Function, Statement};

use checks::{
    advances, always_zero, behind_a_multiply, behind_own_copies, copies_nothing_before, first_of_all,
    follows_its_load, joins_the_next, next_does_as_well, next_step, of_all_alone, of_one_warpgroup,
    of_threads_alone, only, only_use, orders_nothing, untouched, waits_longer,
};
use order::{announces_first, fences_behind, maps_are_own, passes_a_turn, tells_the_same};

/// One kind of equivalent mutants.
struct Entry {
    /// The name of the reason in the record.
    name: &'static str,
    target: &'static str,
    /// Whether the mutant is of this kind and the conditions of the reason hold in the program.
    covers: fn(&Function, &Mutation) -> bool,
    why: &'static str,
}

const ENTRIES: &[Entry] = &[
    Entry {
        name: "waits-longer",
        target: "wgmma.wait_group",
        covers: |_, mutation| waits_longer(mutation),
        why: "It waits for more groups. Whatever the mutant does, the origin may do too.",
    },
    Entry {
        name: "waits-longer",
        target: "cp.async.bulk.wait_group",
        covers: |_, mutation| waits_longer(mutation),
        why: "It waits for more groups. Whatever the mutant does, the origin may do too.",
    },
    Entry {
        name: "waits-longer",
        target: "cp.async.wait_group",
        covers: |_, mutation| waits_longer(mutation),
        why: "It waits for more groups. Whatever the mutant does, the origin may do too.",
    },
    Entry {
        name: "of-threads-alone",
        target: "fence.mbarrier_init",
        covers: |function, _| of_threads_alone(function),
        why: "No copy and no other CTA touches the mbarriers, and the CTA's barrier behind it orders their \
              initialisation for its threads.",
    },
    Entry {
        name: "untouched",
        target: "wgmma.fence",
        covers: |function, mutation| mutation.change == Change::Delete && untouched(function, mutation),
        why: "Between the multiplies that the fence stands between, nothing but multiplies of the same shape uses \
              their registers; PTX orders these by itself. The first multiply has a fence of its own.",
    },
    Entry {
        name: "grids-and-threads",
        target: "bar.sync",
        covers: |function, mutation| {
            matches!(next_step(function, mutation), Some(Inst::GridDependency { .. }))
        },
        why: GRIDS_AND_THREADS,
    },
    Entry {
        name: "grids-and-threads",
        target: "barrier.cluster.wait",
        covers: |function, mutation| {
            matches!(next_step(function, mutation), Some(Inst::GridDependency { .. }))
        },
        why: GRIDS_AND_THREADS,
    },
    Entry {
        name: "registers-and-phases",
        target: "mbarrier.try_wait",
        covers: |function, mutation| {
            matches!(next_step(function, mutation), Some(Inst::WgmmaFence | Inst::WgmmaWait { .. }))
        },
        why: "A wgmma.fence orders uses of registers, and a wgmma.wait_group waits for multiplies, which wait for nobody. A wait for an \
              mbarrier uses no registers: it and either may come in either order.",
    },
    Entry {
        name: "own-multiplies",
        target: "wgmma.wait_group",
        covers: |function, mutation| {
            function.threads == 128 && matches!(next_step(function, mutation), Some(Inst::BarrierSync { .. }))
        },
        why: "The CTA is one warpgroup: whoever goes on from the two has waited for its multiplies, which are those of all.",
    },
    Entry {
        name: "warp-meets",
        target: "wgmma.wait_group",
        covers: |function, mutation| matches!(next_step(function, mutation), Some(Inst::WarpSync)),
        why: "It is one instruction of all lanes of a warp, and touches no memory: whether the warp meets before it or behind it, \
              all lanes have waited, and have read what they read before, when one goes on from the two.",
    },
    Entry {
        name: "fences-behind",
        target: "fence.proxy.async",
        covers: |function, mutation| fences_behind(function, mutation),
        why: "Who goes on from the barrier executes the fence behind it in place of before it, the thread that starts the copies \
              among them: the fence still stands between what was written and the copies.",
    },
    Entry {
        name: "announces-first",
        target: "cp.async.bulk.wait_group",
        covers: |function, mutation| announces_first(function, mutation),
        why: "The step that comes first instead announces bytes at an mbarrier, and touches nothing that the copies waited for \
              do. The phase does not end before those bytes have come, by copies that are started behind both.",
    },
    Entry {
        name: "passes-a-turn",
        target: "mbarrier.arrive",
        covers: |function, mutation| mutation.change == Change::Relax && passes_a_turn(function, mutation),
        why: "It hands over a turn and no memory: who waits for the turn waits for a stage of the ring next, and touches nothing \
              before. Consumers share nothing but the stages, which they only read.",
    },
    Entry {
        name: "tells-the-same",
        target: "mapa",
        covers: |function, mutation| tells_the_same(function, mutation),
        why: "The threads of a warpgroup that tell other CTAs tell the same ones, each of them another one than before.",
    },
    Entry {
        name: "own-maps",
        target: "fence.proxy.tensormap.release",
        covers: |function, mutation| mutation.change == Change::Narrow && maps_are_own(function),
        why: OWN_MAPS,
    },
    Entry {
        name: "own-maps",
        target: "fence.proxy.tensormap.acquire",
        covers: |function, mutation| mutation.change == Change::Narrow && maps_are_own(function),
        why: OWN_MAPS,
    },
    Entry {
        name: "last-of-threads",
        target: "mbarrier.init",
        covers: |function, mutation| {
            function.cluster == [1, 1, 1]
                && matches!(next_step(function, mutation), Some(Inst::FenceMbarrierInit))
        },
        why: "The cluster is one CTA, and only threads arrive at the mbarrier that is initialised last: the CTA's barrier orders \
              that for them.",
    },
    Entry {
        name: "announces-alone",
        target: "mbarrier.arrive.expect_tx",
        covers: |_, mutation| mutation.change == Change::Relax,
        why: "What those who wait read is brought by copies, whose own completion makes it visible. The thread that announces \
              the bytes has written nothing for them.",
    },
    Entry {
        name: "budget",
        target: "setmaxnreg",
        covers: |_, _| true,
        why: "The warps of the CTA get their registers with these numbers too, or nothing would have run to its \
              end. A budget limits the registers that ptxas may use; it orders nothing.",
    },
    Entry {
        name: "only-use",
        target: "bar.sync",
        covers: |function, mutation| mutation.change == RENAMED && only_use(function, mutation),
        why: "The barrier has this one use, but for some that the whole CTA comes to before, and no other statement uses the number that \
              it gets instead.",
    },
    Entry {
        name: "first-of-all",
        target: "bar.sync",
        covers: |function, mutation| mutation.change == RENAMED && first_of_all(function, mutation),
        why: "Every thread of the CTA comes to it, under no condition, and comes to it before all other barriers of its new \
              number: it is over before they begin.",
    },
    Entry {
        name: "of-all-alone",
        target: "bar.sync",
        covers: |function, mutation| mutation.change == RENAMED && of_all_alone(function, mutation),
        why: "Every thread of the CTA comes to it, under no condition that differs between them, and no other statement uses \
              its new number: it waits for the same threads at the same place.",
    },
    Entry {
        name: "of-one-warpgroup",
        target: "bar.sync",
        covers: |function, mutation| mutation.change == RENAMED && of_one_warpgroup(function, mutation),
        why: "It is one of the barriers of the CTA's only consumer warpgroup, whose warps come to all of them in one order, \
              whatever their numbers. Nobody else uses a number but zero, the whole CTA's.",
    },
    Entry {
        name: "hint",
        target: "griddepcontrol",
        covers: |function, mutation| {
            let all = numbered(function);
            let statement = all.get(mutation.index);
            matches!(statement, Some(Statement::Inst { inst: Inst::GridDependency { wait: false }, .. }))
        },
        why: "It is a hint: grids that depend on this one are launched at the latest when it has ended.",
    },
    Entry {
        name: "no-copies-yet",
        target: "cp.async.bulk.wait_group",
        covers: |function, mutation| copies_nothing_before(function, mutation),
        why: NO_COPIES_YET,
    },
    Entry {
        name: "no-copies-yet",
        target: "if",
        covers: |function, mutation| {
            only(function, mutation, |inst| matches!(inst, Inst::BulkWait { .. }))
                && copies_nothing_before(function, mutation)
        },
        why: NO_COPIES_YET,
    },
    Entry {
        name: "next-group",
        target: "cp.async.bulk.commit_group",
        covers: |function, mutation| mutation.change == Change::Delete && joins_the_next(function, mutation),
        why: "No wait stands between it and the next commit of the same threads, and every wait that may come behind it is \
              for all groups: the next group takes its copies along.",
    },
    Entry {
        name: "nothing-to-order",
        target: "bar.sync",
        covers: |function, mutation| mutation.change == Change::Delete && orders_nothing(function, mutation),
        why: "Between the barrier of the whole CTA before it and this one, on the only way there, its threads wait for \
              copies and multiply: they write no memory and read none that another thread writes behind it.",
    },
    Entry {
        name: "next-does-as-well",
        target: "bar.sync",
        covers: |function, mutation| {
            mutation.change == Change::Delete && next_does_as_well(function, mutation)
        },
        why: "Before it mbarriers are initialised, and nothing else is written. Until the next barrier of the whole CTA, to \
              which all threads come, nobody touches them; what is loaded and stored until then lies elsewhere.",
    },
    Entry {
        name: "one-warpgroup",
        target: "bar.sync",
        covers: |function, mutation| {
            mutation.change == Change::Delete && behind_a_multiply(function, mutation)
        },
        why: "The CTA is one warpgroup, and the statement before it waits for multiplies of all its threads: all have come \
              there when one goes on, and none has touched memory but by copies and multiplies.",
    },
    Entry {
        name: "behind-the-copies",
        target: "bar.sync",
        covers: |function, mutation| mutation.change == RENAMED && behind_own_copies(function, mutation),
        why: "Every thread of the CTA comes to it, and waits before it for copies that a thread of the first warpgroup has \
              started behind that warpgroup's last use of the new number; its next use lies behind the barrier.",
    },
    Entry {
        name: "last-touch",
        target: "st.relaxed",
        covers: |function, mutation| {
            mutation.change == Change::Narrow && follows_its_load(function, mutation)
        },
        why: "An acquiring load of the word has seen what the other CTA stored there, and its next use is the next launch's: \
              within this one, nobody else touches the word any more.",
    },
    Entry {
        name: "one-stage",
        target: "position",
        covers: |function, mutation| mutation.change == Change::Delete && always_zero(function, mutation),
        why: "The ring has one stage: the position is zero, and becomes zero.",
    },
    Entry {
        name: "first-stage",
        target: "position",
        covers: |_, mutation| mutation.within.is_none() && advances(mutation),
        why: "It is executed once, on the first stage, and a ring has more than one: nothing wraps there.",
    },
    Entry {
        name: "last-arrival",
        target: "mbarrier.arrive",
        covers: |_, mutation| mutation.within.is_none(),
        why: LAST_ARRIVAL,
    },
    Entry {
        name: "no-copies",
        target: "if",
        covers: |function, mutation| {
            mutation.change == Change::Force(true)
                && only(function, mutation, |inst| matches!(inst, Inst::BulkWait { .. }))
        },
        why: NO_COPIES,
    },
    Entry {
        name: "last-arrival",
        target: "if",
        covers: |function, mutation| {
            mutation.within.is_none()
                && only(function, mutation, |inst| {
                    matches!(inst, Inst::MbarrierArrive { .. } | Inst::Binary { .. })
                })
        },
        why: LAST_ARRIVAL,
    },
];

const GRIDS_AND_THREADS: &str = "The step that comes first instead waits for other grids and touches no memory. Nothing lies \
                                 between the two, and whatever comes after them comes after both.";
const OWN_MAPS: &str = "Every map that is changed lies where the CTA's own number says: who changes it uses it, and nobody in another CTA.";
const NO_COPIES: &str = "The threads that it adds have started no copies, so they have nothing to wait for.";
const NO_COPIES_YET: &str =
    "No copy has been started before it, on the only way there: there is nothing to wait for.";
const RENAMED: Change = Change::Operand { name: "id", op: BinaryOp::Add, by: 1 };
const LAST_ARRIVAL: &str = "It gives back the last stage of the only tile. The producer has nothing left to put there, \
                            so nobody waits for that phase.";

/// The name of the reason why a mutant is equivalent, if there is one.
pub(super) fn reason(function: &Function, mutation: &Mutation) -> Option<&'static str> {
    let covers = |entry: &&Entry| entry.target == mutation.target && (entry.covers)(function, mutation);
    ENTRIES.iter().find(covers).map(|entry| entry.name)
}

/// Whether the reason follows completely from checks of the program. Otherwise it also rests on no schedule
/// having found the mutant.
pub(super) fn whatever_the_schedule(name: &str) -> bool {
    !matches!(
        name,
        "last-arrival"
            | "first-stage"
            | "last-touch"
            | "announces-alone"
            | "last-of-threads"
            | "passes-a-turn"
    )
}

/// The text of a reason.
pub(super) fn text(name: &str) -> Option<&'static str> {
    ENTRIES.iter().find(|entry| entry.name == name).map(|entry| entry.why)
}
