//! Rules across roles: checks that mainloop, epilogue, scheduler and form fit together. Each role checks the
//! rest itself.
//!
//! ```
//! use kernel::KernelSpec;
//!
//! let error = "form=ragged scheduler=one-tile".parse::<KernelSpec>().expect_err("illegal");
//! assert!(error.to_string().contains("Persistent"));
//! ```

use core::fmt;

use collective::{
    EpilogueSpec, Form, Forms, MainloopNeeds, MainloopSpec, Plan, PlanError, Producer, QueuePlan, Roles,
    Sentence, sums_bytes,
};
use cute_rs::atom::Major;
use scheduler::{ReductionKind, ScheduleError, SchedulerTraits};

/// Why a kernel is illegal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IllegalKernel {
    /// The mainloop or the epilogue breaks a rule of the hardware.
    Plan(PlanError),
    /// The scheduler's parameters break a rule.
    Scheduler(ScheduleError),
    /// Two roles, or a role and the form, do not fit together. The text says what does not fit, and what
    /// would.
    Roles(&'static str),
}

impl IllegalKernel {
    /// A sentence that says what is wrong and how to mend it.
    pub const fn sentence(&self) -> Sentence {
        match self {
            Self::Plan(error) => error.sentence(),
            Self::Scheduler(error) => Sentence::new().text(error.sentence()),
            Self::Roles(words) => Sentence::new().text(words),
        }
    }
}

impl From<PlanError> for IllegalKernel {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

impl fmt::Display for IllegalKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::Scheduler(error) => error.fmt(f),
            Self::Roles(words) => f.write_str(words),
        }
    }
}

impl core::error::Error for IllegalKernel {}

/// Every number of a kernel, from its form with the groups that its table is for (one of [`Form::TABLES`]), the specs of its
/// roles, and what the mainloop needs ([`MainloopNeeds::NONE`] for those of the library).
///
/// # Errors
/// The first rule that the roles break.
pub const fn plan(
    (form, most_groups): (Form, u32),
    (mainloop, needs): (MainloopSpec, MainloopNeeds),
    epilogue: EpilogueSpec,
    scheduler: SchedulerTraits,
) -> Result<Plan, IllegalKernel> {
    let (mainloop, entries) = match asked(form, (mainloop, needs), epilogue, scheduler) {
        Ok(asked) => asked,
        Err(error) => return Err(error),
    };
    match Plan::of_form((form, most_groups), (mainloop, needs), epilogue, entries) {
        Ok(plan) => match scheduled(&plan, scheduler) {
            Ok(()) => Ok(plan),
            Err(error) => Err(error),
        },
        Err(error) => Err(IllegalKernel::Plan(error)),
    }
}

/// The rules that need no plan. Returns what the plan is made of: the mainloop with the step of a scheduler that
/// slices tiles, and the number of entries of the queue. Schedulers for which these are equal have one plan.
pub(crate) const fn asked(
    form: Form,
    (mut mainloop, needs): (MainloopSpec, MainloopNeeds),
    epilogue: EpilogueSpec,
    scheduler: SchedulerTraits,
) -> Result<(MainloopSpec, u32), IllegalKernel> {
    if scheduler.slices > 1 {
        let [_, n, _] = mainloop.tile;
        if mainloop.step == 0 {
            mainloop.step = n / scheduler.slices;
        }
        if mainloop.step == 0 || mainloop.step as u64 * scheduler.slices as u64 != n as u64 {
            let (step, slices) = (mainloop.step, scheduler.slices);
            return Err(IllegalKernel::Plan(PlanError::Sliced { n, step, slices }));
        }
    }
    if matches!(form, Form::Batched | Form::KGrouped) && !scheduler.batches {
        return Err(IllegalKernel::Roles(
            "the scheduler supports one GEMM per launch, and this kernel has several: use Persistent, or set `batches` in the \
             scheduler's TRAITS if it numbers the tiles of all GEMMs",
        ));
    }
    if let Some(words) = misfit(form, (&mainloop, needs), &epilogue, scheduler) {
        return Err(IllegalKernel::Roles(words));
    }
    Ok((mainloop, if scheduler.draws { QueuePlan::ENTRIES } else { 0 }))
}

/// The rules of a scheduler that need the finished plan.
pub(crate) const fn scheduled(plan: &Plan, scheduler: SchedulerTraits) -> Result<(), IllegalKernel> {
    if scheduler.parts > 1 && sums_bytes(plan) > plan.epilogue_offset as u64 {
        return Err(IllegalKernel::Roles(
            "ClusterK stores a tile's sums in the memory of its stages, and they are larger: use a smaller tile or more stages",
        ));
    }
    if scheduler.slices > 1 && !plan.mainloop.step.is_multiple_of(plan.stored_columns()) {
        let (step, stored) = (plan.mainloop.step, plan.stored_columns());
        return Err(IllegalKernel::Plan(PlanError::SlicedStore { step, stored }));
    }
    Ok(())
}

/// The plan of roles that are known at compile time. If they are illegal, the build stops with the sentence.
pub(crate) const fn checked(
    (form, most_groups): (Form, u32),
    (mainloop, needs, mainloop_forms): (MainloopSpec, MainloopNeeds, Forms),
    (epilogue, epilogue_forms): (EpilogueSpec, Forms),
    scheduler: SchedulerTraits,
) -> Plan {
    assert!(
        mainloop_forms.has(form),
        "the mainloop supports one GEMM per launch, and this kernel has several: use TmaWgmma or CopyWgmma, or add the form to the \
         mainloop's FORMS if it loads the operands of `WorkUnit::group`"
    );
    assert!(
        epilogue_forms.has(form),
        "the epilogue supports one GEMM per launch, and this kernel has several: use LinearCombination or TreeEpilogue, or add the \
         form to the epilogue's FORMS if it stores the output of `Extent::group`"
    );
    match plan((form, most_groups), (mainloop, needs), epilogue, scheduler) {
        Ok(plan) => plan,
        Err(error) => panic!("{}", error.sentence().as_str()),
    }
}

/// What does not fit together if the first is true, and the sentence that says so.
type Rule = (bool, &'static str);

/// The sentence that says which two things do not fit together, if any.
const fn misfit(
    form: Form,
    (mainloop, needs): (&MainloopSpec, MainloopNeeds),
    epilogue: &EpilogueSpec,
    scheduler: SchedulerTraits,
) -> Option<&'static str> {
    if let Some(words) = first(&of_schedulers(form, (mainloop, needs), epilogue, scheduler)) {
        return Some(words);
    }
    if let Some(words) = first(&of_operands(form, mainloop, epilogue)) {
        return Some(words);
    }
    if let Some(words) = first(&of_divided_tiles(mainloop, epilogue, scheduler)) {
        return Some(words);
    }
    first(&of_outputs(form, epilogue))
}

/// The sentence of the first rule that is broken.
const fn first(rules: &[Rule]) -> Option<&'static str> {
    let mut i = 0;
    while i < rules.len() {
        if rules[i].0 {
            return Some(rules[i].1);
        }
        i += 1;
    }
    None
}

/// Rules of schedulers that split K, or that are told the number of tiles by the host.
const fn of_schedulers(
    form: Form,
    (mainloop, needs): (&MainloopSpec, MainloopNeeds),
    epilogue: &EpilogueSpec,
    scheduler: SchedulerTraits,
) -> [Rule; 7] {
    let divides = scheduler.reduction.is_some();
    [
        (
            needs.whole_k && divides,
            "this scheduler splits K, and the mainloop's NEEDS say that a work unit has all of a tile's K: use OneTile<..>, \
             Persistent<..> or Dynamic<..>, or set `whole_k: false` in NEEDS if the results of ranges of K may be added",
        ),
        (
            matches!(form, Form::PointerArray) && !scheduler.tiles_on_device,
            "only the device knows the number of tiles of a pointer array: use Persistent<..>",
        ),
        (
            matches!(form, Form::PointerArray) && divides,
            "the GEMMs of a pointer array differ in K, so no scheduler can split K: use Persistent<..>",
        ),
        (
            form.divides_k() && divides,
            "only the device knows the K of each group, and this scheduler splits K: use OneTile<..>, Persistent<..>, Dynamic<..> \
             or NarrowTail<..>",
        ),
        (
            form.shares_rows() && !scheduler.tiles_on_device,
            "only the device knows the number of tiles of groups of rows: use Persistent<..>",
        ),
        (
            epilogue.sourced && divides,
            "SourcedCombination loads C for whole tiles, and this scheduler splits tiles: use LinearCombination, or a scheduler \
             that does not split tiles",
        ),
        (
            mainloop.step > 0 && divides && !matches!(scheduler.reduction, Some(ReductionKind::Ordered)),
            "narrowed tiles can add their partial sums only in order: use Ordered, or leave out Fitted<_, _>",
        ),
    ]
}

/// Rules of operands whose places only the device knows.
const fn of_operands(form: Form, mainloop: &MainloopSpec, epilogue: &EpilogueSpec) -> [Rule; 2] {
    let rows = mainloop.operands[if epilogue.transposed { 1 } else { 0 }].major;
    [
        (
            epilogue.split && form.described(),
            "weights split into halves need tensor maps from the host, and the matrices of a pointer array are known only to the \
             device: let gates and ups alternate",
        ),
        (
            form.shares_rows() && matches!(rows, Major::Mn) && matches!(mainloop.producer, Producer::Thread),
            "a group begins at any row, and a tensor copy of an M-major A at multiples of 16 bytes: use KMajor for A, or CopyWgmma",
        ),
    ]
}

/// Rules of schedulers that divide a tile among CTAs, or into slices.
const fn of_divided_tiles(
    mainloop: &MainloopSpec,
    epilogue: &EpilogueSpec,
    scheduler: SchedulerTraits,
) -> [Rule; 5] {
    let by_columns = matches!(scheduler.reduction, Some(ReductionKind::Separate | ReductionKind::Clustered));
    [
        (
            epilogue.needs.whole && by_columns,
            "the epilogue needs whole tiles, and Separate and ClusterK divide a tile among CTAs: use Ordered or Atomic",
        ),
        (
            scheduler.parts > 1 && mainloop.cluster[0] * mainloop.cluster[1] > 1,
            "ClusterK makes a cluster of the CTAs that share a tile's K: leave out the mainloop's cluster, or use StreamK",
        ),
        (
            scheduler.parts > 1 && matches!(mainloop.roles, Roles::Pingpong),
            "a CTA under ClusterK computes one tile, and Pingpong needs several: use Cooperative, or StreamK",
        ),
        (
            scheduler.slices > 1 && (epilogue.needs.whole || epilogue.needs.rows || epilogue.needs.single),
            "the epilogue needs whole tiles, and NarrowTail computes tiles of the last wave in slices: use Persistent",
        ),
        (
            scheduler.slices > 1 && mainloop.atom.by_threads(),
            "NarrowTail needs a mainloop of wgmma, and this one multiplies otherwise: use Persistent",
        ),
    ]
}

/// Rules of epilogues that write to one output, of kernels that may have several.
const fn of_outputs(form: Form, epilogue: &EpilogueSpec) -> [Rule; 3] {
    [
        (
            epilogue.sourced && (form.shares_rows() || form.described()),
            "SourcedCombination stores whole tiles by tensor maps from the host, and a tile of this kernel may also have rows of the \
             next group: use LinearCombination<T, TmaStore>, which stores such tiles directly",
        ),
        (
            epilogue.needs.single && !matches!(form, Form::Single),
            "the epilogue counts the tiles of one output, and this kernel has several outputs: reduce with ReduceRow, \
             ReduceColumn or ReduceScalar",
        ),
        (
            epilogue.needs.stores && matches!(form, Form::Batched | Form::KGrouped | Form::PointerArray),
            "the epilogue stores a matrix in addition to D, and every GEMM of the launch would store to the same one: reduce, \
             or launch the GEMMs one by one, or as groups of rows",
        ),
    ]
}
