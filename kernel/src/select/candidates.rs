//! The kernels of a space as numbers. What several kernels have in common is there once, and is computed once for
//! each request.

use std::collections::HashMap;
use std::sync::Arc;

use collective::Plan;
use scheduler::SchedulerSpec;

use super::dealing::{Dealing, Dealt};
use super::model::{Kernel, Prediction, norm};
use super::space::{Class, Entry, Space, Subject};
use super::step::Fixed;
use super::table::Table;
use super::tiling::{Counts, Seen, Tiled, Tiling, View};
use super::{Machine, Request};
use crate::gemm::AnyGemm;

/// Kernels as numbers, for one machine.
#[derive(Default)]
pub(super) struct Candidates {
    views: Vec<View>,
    tilings: Vec<(usize, Tiling)>,
    dealings: Vec<(usize, Dealing)>,
    fixed: Vec<Fixed>,
    kernels: Vec<Candidate>,
    groups: Vec<Group>,
    /// The cases that bound the times of each group: no tile is split, or all workers are equally busy.
    cases: Vec<(u32, bool)>,
    /// The classes of kernels, each with its first kernel.
    pub(super) classes: Vec<(Class, usize)>,
    /// The dealings of schedulers, by what else decides them.
    known: HashMap<(usize, u32, SchedulerSpec, bool), usize>,
}

/// A kernel, with the places of what it shares with others.
struct Candidate {
    kernel: Kernel,
    tiling: u32,
    dealing: u32,
    class: u32,
    /// Of its tiles, and of slices of them.
    fixed: [u32; 2],
    /// The plan, if groups decide how wide its tiles are.
    fitted: Option<Box<Plan>>,
}

/// Kernels with the same tiles, roles and clusters that either all split tiles or do not. The numbers of a kernel that is nowhere
/// slower than they are, by the same model, give a bound of their times.
struct Group {
    kernels: Vec<u32>,
    tiling: u32,
    kernel: Kernel,
    fixed: Fixed,
    /// The most workers at once, and whether their requests may be joined.
    slots: f64,
    joins: bool,
    whole: bool,
}

/// Roots take long. Those of several kernels are taken together.
const TOGETHER: usize = 16;

/// The place of a value among others. Values that are added one after the other are mostly equal.
fn place<T: PartialEq>(all: &mut Vec<T>, value: T) -> usize {
    all.iter().rposition(|known| *known == value).unwrap_or_else(|| {
        all.push(value);
        all.len() - 1
    })
}

impl Candidates {
    /// The entries of a space. Their numbers are computed once per process.
    pub(super) fn of(space: Space, entries: &[Entry], machine: &Machine) -> Arc<Self> {
        static KNOWN: Table<(Space, Machine), Arc<Candidates>> = Table::new();
        KNOWN.get(&(space, *machine), || {
            let mut all = Self::default();
            entries.iter().for_each(|entry| all.add(&entry.subject(), machine));
            Arc::new(all)
        })
    }

    pub(super) fn add(&mut self, subject: &Subject<'_>, machine: &Machine) {
        let Subject { plan, traits, scheduler, .. } = subject;
        let view = place(&mut self.views, View::of(plan));
        let tiling = place(&mut self.tilings, (view, Tiling::of(plan)));
        let dealing = Dealing::of(subject, machine);
        let (new, at_once) = (self.dealings.len(), (dealing.slots, dealing.may_join));
        let dealing_of = match scheduler.spec() {
            Some(spec) => *self.known.entry((tiling, dealing.slots, spec, dealing.may_join)).or_insert(new),
            None => new,
        };
        if dealing_of == new {
            self.dealings.push((tiling, dealing));
        }
        let width = f64::from(plan.mainloop.tile[1]);
        let mut fixed = |columns: f64| place(&mut self.fixed, Fixed::new(machine, plan, columns)) as u32;
        let whole = fixed(width);
        let fixed = [whole, if traits.slices > 1 { fixed(width / f64::from(traits.slices)) } else { whole }];
        let fitted = plan.balanced().then(|| Box::new(**plan));
        let class = (plan.mainloop.producer, plan.epilogue.alignment);
        let class = self.classes.iter().position(|(known, _)| *known == class).unwrap_or_else(|| {
            self.classes.push((class, self.kernels.len()));
            self.classes.len() - 1
        });
        let [tiling, dealing, class] = [tiling, dealing_of, class].map(|place| place as u32);
        let kernel = Kernel::new(subject, machine);
        self.group(&kernel, [tiling, whole], at_once);
        self.kernels.push(Candidate { kernel, tiling, dealing, class, fixed, fitted });
    }

    /// Puts a kernel, which is about to be added, into a group.
    fn group(&mut self, kernel: &Kernel, [tiling, fixed]: [u32; 2], (slots, joins): (u32, bool)) {
        let (next, fixed) = (self.kernels.len() as u32, self.fixed[fixed as usize]);
        let (whole, slots) = (kernel.is_whole(), f64::from(slots));
        let like = |of: &&mut Group| {
            (of.tiling, of.whole, of.joins) == (tiling, whole, joins) && of.kernel.is_like(kernel)
        };
        // Kernels that are added one after the other mostly have the same tiles.
        if let Some(own) = self.groups.iter_mut().rev().take(8).find(like) {
            own.kernels.push(next);
            (own.kernel, own.fixed) = (own.kernel.least(kernel), own.fixed.least(&fixed));
            own.slots = own.slots.max(slots);
            return;
        }
        let (kernel, fixed) = (kernel.least(kernel), fixed.least(&fixed));
        // Groups of rows decide how wide some tiles are, and slices end earlier than tiles: these kernels have no bound.
        if !self.tilings[tiling as usize].1.is_fitted() && kernel.slices == 1.0 {
            let place = self.groups.len() as u32;
            let cases = [(!kernel.is_clustered()).then_some(false), (!whole).then_some(true)];
            self.cases.extend(cases.into_iter().flatten().map(|splits| (place, splits)));
        }
        self.groups.push(Group { kernels: vec![next], tiling, kernel, fixed, slots, joins, whole });
    }

    /// Looks at a request.
    pub(super) fn asked<'a>(&'a self, request: &Request<'_>, machine: &'a Machine) -> Asked<'a> {
        let groups = request.counted_groups();
        let see = |view: &View| view.see(machine, request, groups.as_deref());
        let seen: Vec<Seen> = self.views.iter().map(see).collect();
        let mut tiled = Vec::with_capacity(self.tilings.len());
        let gemms = groups.as_ref().map_or(1, Vec::len);
        let mut counts = Counts::with_capacity(gemms * self.tilings.len());
        for (view, tiling) in &self.tilings {
            tiled.push(tiling.cut(machine, &seen[*view], &mut counts));
        }
        let (places, dealt) =
            (vec![Asked::LATER; self.dealings.len()], Vec::with_capacity(self.dealings.len()));
        Asked { all: self, machine, seen, tiled, counts, places, dealt }
    }
}

/// The kernels, and what follows for a request.
pub(super) struct Asked<'a> {
    all: &'a Candidates,
    machine: &'a Machine,
    seen: Vec<Seen>,
    tiled: Vec<Tiled>,
    counts: Counts,
    /// The dealings that were needed so far, and the place of each among them.
    places: Vec<u32>,
    dealt: Vec<Dealt>,
}

impl Asked<'_> {
    /// The place of a dealing that was not needed so far.
    const LATER: u32 = u32::MAX;

    /// The predicted times of kernels whose class `open` says, with their numbers: at least of the fastest `most`.
    pub(super) fn times(&mut self, open: &[bool], most: usize) -> Vec<(f64, usize)> {
        let all = self.all;
        let mut groups: Vec<(f64, &Group)> = self.bounds().into_iter().zip(&all.groups).collect();
        groups.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut times: Vec<(f64, usize)> = Vec::with_capacity(all.kernels.len().min(most.saturating_mul(8)));
        let [mut own, mut busy, mut l2, mut dram] = [[0.0; TOGETHER]; 4];
        // No kernel above the limit is among the fastest. The limit falls as more are known.
        let (mut limit, mut looked) = (f64::INFINITY, most);
        for (bound, group) in groups {
            if bound > limit {
                break;
            }
            for kernels in group.kernels.chunks(TOGETHER) {
                for (i, &kernel) in kernels.iter().enumerate() {
                    self.deal(kernel as usize);
                    let prediction;
                    (prediction, busy[i]) = self.parts(kernel as usize);
                    (own[i], l2[i], dram[i]) = (prediction.microseconds, prediction.l2, prediction.dram);
                }
                for i in 0..kernels.len() {
                    own[i] += norm(busy[i], l2[i], dram[i]);
                }
                for (i, &kernel) in kernels.iter().enumerate() {
                    if open[all.kernels[kernel as usize].class as usize] {
                        times.push((own[i], kernel as usize));
                    }
                }
            }
            if times.len() > looked {
                let (_, last, _) = times.select_nth_unstable_by(most, |a, b| a.0.total_cmp(&b.0));
                (limit, looked) = (last.0, times.len() + times.len() / 4);
            }
        }
        times
    }

    /// Of each group, a time that no kernel of it is predicted to go below.
    fn bounds(&self) -> Vec<f64> {
        let mut bounds = vec![f64::INFINITY; self.all.groups.len()];
        let [mut own, mut busy, mut l2, mut dram] = [[0.0; TOGETHER]; 4];
        for cases in self.all.cases.chunks(TOGETHER) {
            for (i, &(place, splits)) in cases.iter().enumerate() {
                let group = &self.all.groups[place as usize];
                let tiling = group.tiling as usize;
                let about = (&self.seen[self.all.tilings[tiling].0], &self.tiled[tiling]);
                let dealt = Dealt::least(self.machine, about, (group.slots, group.joins), splits);
                let prediction;
                (prediction, busy[i]) =
                    group.kernel.parts(self.machine, (about.0, about.1, &dealt), [&group.fixed; 2]);
                (own[i], l2[i], dram[i]) = (prediction.microseconds, prediction.l2, prediction.dram);
            }
            for i in 0..cases.len() {
                own[i] += norm(busy[i], l2[i], dram[i]);
            }
            for (i, &(place, _)) in cases.iter().enumerate() {
                let bound = &mut bounds[place as usize];
                *bound = own[i].min(*bound);
            }
        }
        // Groups that have no case are always looked at.
        bounds.iter_mut().filter(|bound| bound.is_infinite()).for_each(|bound| *bound = 0.0);
        bounds
    }

    /// Deals the tiles of a kernel, which its prediction needs. [`times`](Self::times) does this for the kernels that it gives.
    pub(super) fn deal(&mut self, i: usize) {
        let dealing = self.all.kernels[i].dealing as usize;
        if self.places[dealing] == Self::LATER {
            let (tiling, of) = &self.all.dealings[dealing];
            let seen = &self.seen[self.all.tilings[*tiling].0];
            self.places[dealing] = self.dealt.len() as u32;
            self.dealt.push(of.deal(self.machine, seen, &self.tiled[*tiling], &self.counts));
        }
    }

    fn dealt(&self, dealing: u32) -> &Dealt {
        &self.dealt[self.places[dealing as usize] as usize]
    }

    /// The prediction of a kernel.
    pub(super) fn predict(&self, i: usize) -> Prediction {
        let (mut prediction, busy) = self.parts(i);
        prediction.microseconds += norm(busy, prediction.l2, prediction.dram);
        prediction
    }

    #[inline(always)]
    fn parts(&self, i: usize) -> (Prediction, f64) {
        let Candidate { kernel, tiling, dealing, fixed, fitted, .. } = &self.all.kernels[i];
        let (tiled, dealt) = (&self.tiled[*tiling as usize], self.dealt(*dealing));
        let about = (&self.seen[self.all.tilings[*tiling as usize].0], tiled, dealt);
        let narrow;
        let fixed = match fitted {
            None => [&self.all.fixed[fixed[0] as usize], &self.all.fixed[fixed[1] as usize]],
            Some(plan) => {
                let width = tiled.fitted * f64::from(plan.mainloop.tile[1]);
                narrow = Fixed::new(self.machine, plan, width);
                [&narrow; 2]
            }
        };
        kernel.parts(self.machine, about, fixed)
    }

    /// Whether a kernel that may slice tiles slices none here. It then does as one with `Persistent`.
    pub(super) fn slices_nothing(&self, i: usize) -> bool {
        let Candidate { kernel, dealing, .. } = &self.all.kernels[i];
        kernel.slices > 1.0 && self.dealt(*dealing).slices == 0.0
    }
}

impl Machine {
    /// Predicts the time of a kernel for a legal call whose matrices are not in L2.
    pub fn predict(&self, gemm: &AnyGemm, request: &Request<'_>) -> Prediction {
        let AnyGemm { plan, traits, scheduler, overlaps, .. } = gemm;
        let scheduler = Arc::clone(scheduler);
        self.predict_subject(&Subject { plan, traits: *traits, scheduler, overlaps: *overlaps }, request)
    }

    pub(super) fn predict_subject(&self, subject: &Subject<'_>, request: &Request<'_>) -> Prediction {
        let mut one = Candidates::default();
        one.add(subject, self);
        let mut asked = one.asked(request, self);
        asked.deal(0);
        asked.predict(0)
    }
}

#[cfg(test)]
mod tests {
    use collective::{Code, Format, WeightsSpec};
    use cute_rs::atom::Major;

    use super::*;
    use crate::problem::GemmProblem;
    use crate::types::Types;

    const H200: Machine = Machine::h200();

    /// Requests of many kinds, with pseudo-random extents between 1 and 2^14.
    fn drawn(mut each: impl FnMut(&str, &Request<'_>)) {
        let mut state = 20_260_401_u64;
        let mut draw = move |most: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let size = (state >> 33) as u32 % most;
            let odd = (state >> 20) as u32 % 3;
            // Mostly round numbers, and some others.
            match (1u32 << size, odd) {
                (extent, 0) => extent,
                (extent, 1) => extent + (extent / 2).next_multiple_of(8),
                (extent, _) => extent + (state >> 8) as u32 % extent,
            }
        };
        let e4m3 = Types::of(Format::E4m3);
        let weights = WeightsSpec { group: 128, ..WeightsSpec::of(Code::S4) };
        for _ in 0..12 {
            let problem = GemmProblem { m: draw(14), n: draw(14), k: draw(15) };
            let packed = |types: Types, majors| Request::packed(types, majors, problem);
            let bf16 = packed(Types::of(Format::Bf16), [Major::K; 2]);
            let groups = [1, 0, 3, 1].map(|part| GemmProblem { m: problem.m.div_ceil(2) * part, ..problem });
            let rows = GemmProblem { m: groups.iter().map(|group| group.m).sum(), ..problem };
            let grouped = Request::packed(Format::Bf16, [Major::K; 2], rows).ragged(&groups);
            let mut read = bf16;
            (read.call.epilogue.beta, read.call.epilogue.c) = (0.5, Some(read.call.d));
            let mut padded = bf16;
            (padded.call.a.ld, padded.call.b.ld) =
                (u64::from(problem.k).next_multiple_of(64), u64::from(problem.k).next_multiple_of(8));
            for (why, request) in [
                ("plain", bf16),
                ("with C", read),
                ("padded", padded),
                ("other directions", packed(Types::of(Format::F16), [Major::Mn, Major::K])),
                ("a batch", bf16.batched(1 + problem.k % 7)),
                ("groups of rows", grouped),
                ("fused", bf16.fused("bias-gelu".parse().expect("a formula"))),
                ("halves of columns", bf16.fused("swiglu".parse().expect("a formula"))),
                ("bytes", packed(e4m3, [Major::K; 2])),
                ("scaled", packed(e4m3.scaled([1, 128]), [Major::K; 2])),
                ("integers", packed(Types::of(Format::S8), [Major::K; 2])),
                ("weights", packed(Types::of(Format::Bf16).weights([None, Some(weights)]), [Major::K; 2])),
                ("a sparse A", packed(Types::of(Format::Bf16).sparse([true, false]), [Major::K; 2])),
                ("a sparse B", packed(e4m3.sparse([false, true]), [Major::K; 2])),
                ("a sparse A of tf32", packed(Types::of(Format::Tf32).sparse([true, false]), [Major::K; 2])),
            ] {
                each(why, &request);
            }
        }
    }

    /// What kernels have in common changes no prediction.
    #[test]
    fn kernels_are_predicted_as_if_they_were_alone() {
        let mut shared = 0;
        drawn(|why, request| {
            let entries = request.space().entries();
            let all = Candidates::of(request.space(), &entries, &H200);
            let mut asked = all.asked(request, &H200);
            let open = vec![true; all.classes.len()];
            let every = asked.times(&open, usize::MAX);
            assert_eq!(every.len(), entries.len(), "{why}");
            shared += entries.len() - all.dealings.len();
            for (i, entry) in entries.iter().enumerate() {
                let alone = H200.predict_subject(&entry.subject(), request);
                assert_eq!(asked.predict(i), alone, "{why} {:?}: {}", request.call.problem, entry.spec);
            }
            for (group, bound) in all.groups.iter().zip(asked.bounds()) {
                for &i in &group.kernels {
                    let time = asked.predict(i as usize).microseconds;
                    let text = entries[i as usize].spec;
                    assert!(
                        bound <= time * (1.0 + 1e-9),
                        "{why} {:?}: {text}: {bound} {time}",
                        request.call.problem
                    );
                }
            }
            // The fastest are the same whether all kernels are predicted or few.
            let fastest = |mut times: Vec<(f64, usize)>| {
                times.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                times.truncate(48);
                times
            };
            let few = all.asked(request, &H200).times(&open, 48);
            assert_eq!(fastest(few), fastest(every), "{why} {:?}", request.call.problem);
        });
        assert!(shared > 1000, "{shared}");
    }
}
