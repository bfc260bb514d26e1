//! Which kernel is best for a call: the space of specs that the built-in parts span, ranked by a model.
//!
//! ```
//! use cute_rs::atom::Major;
//! use kernel::{GemmProblem, Machine, Request, select};
//! use collective::Format;
//!
//! let problem = GemmProblem { m: 4096, n: 4096, k: 4096 };
//! let selection = select(&Request::packed(Format::Bf16, [Major::K, Major::K], problem), &Machine::h200());
//! for ranked in &selection.ranked {
//!     println!("{:8.1} us  {}: {}", ranked.prediction.microseconds, ranked.gemm.name(), ranked.reason);
//! }
//! # assert!(selection.ranked.len() > 1);
//! ```

mod known;
mod machine;
mod model;
mod near;
mod reason;
mod space;

use core::fmt;

use collective::{BlockScales, Form, Format, Fusion, MatrixRef};
use cute_rs::atom::Major;

pub use known::Known;
pub use machine::Machine;
pub use model::Prediction;

use space::{Entry, Space};

use crate::arguments::Whatever;
use crate::catalogue::several;
use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::problem::{Call, GemmProblem, WorkspaceRef};
use crate::products::Products;
use crate::spec::KernelSpec;
use crate::types::Types;

/// A call, what its matrices are, and what becomes of the sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    /// Elements of the matrices, and whose blocks have scales. With a fused epilogue D's format is the epilogue's.
    pub types: Types,
    /// Contiguous directions of A and B.
    pub majors: [Major; 2],
    /// The call. Of a fused epilogue's arguments nothing has to be known: those of the call are not looked at then.
    pub call: Call,
    /// The fused epilogue; `None` for `alpha * A * B + beta * C`.
    pub fusion: Option<Fusion>,
    /// The products, as far as the host knows them, where device memory has their extents: the rows of each group, or each
    /// described product. Where it does not know, groups count as equally large.
    pub shapes: &'a [GemmProblem],
    /// What was measured for the call.
    pub known: Known<'a>,
}

impl<'a> Request<'a> {
    /// `D = A * B` with packed matrices that begin at aligned addresses.
    pub fn packed(types: impl Into<Types>, majors: [Major; 2], problem: GemmProblem) -> Self {
        let types = types.into();
        // Nothing is read: the addresses only have to be legal.
        let pitch = |major, mn: u32| u64::from(if major == Major::K { problem.k } else { mn });
        let [a, b] = [pitch(majors[0], problem.m), pitch(majors[1], problem.n)];
        let call = Call::of(problem).a(1 << 20, a).b(1 << 20, b).d(1 << 20, problem.n.into());
        // Nothing is allocated either.
        let workspace = Some(WorkspaceRef { address: 1 << 20, bytes: u64::MAX });
        let call = Call { workspace, scales: packed_scales(types, problem), ..call };
        Self { types, majors, call, fusion: None, shapes: &[], known: Known::Shipped }
    }

    /// The same with what was measured for it.
    #[must_use]
    pub fn known(self, known: Known<'a>) -> Self {
        Self { known, ..self }
    }

    /// The same product with a fused epilogue.
    #[must_use]
    pub fn fused(self, fusion: Fusion) -> Self {
        Self { fusion: Some(fusion), ..self }
    }

    /// So many packed products of this shape in one launch.
    #[must_use]
    pub fn batched(self, count: u32) -> Self {
        Self { call: self.call.batched(count), ..self }
    }

    /// Groups of rows, one for each shape, which have one N and K.
    #[must_use]
    pub fn ragged(self, shapes: &'a [GemmProblem]) -> Self {
        let count = u32::try_from(shapes.len()).unwrap_or(u32::MAX);
        Self { call: self.call.ragged(count, 1 << 20), shapes, ..self }
    }

    /// Groups of rows in buffers of `room` rows each, one shape for each: its M is how many rows the group uses.
    #[must_use]
    pub fn masked(self, room: u32, shapes: &'a [GemmProblem]) -> Self {
        let count = u32::try_from(shapes.len()).unwrap_or(u32::MAX);
        let m = count.saturating_mul(room);
        let problem = GemmProblem { m, ..self.call.problem };
        let scales = packed_scales(self.types, problem);
        Self { call: Call { problem, scales, ..self.call }.masked(count, room, 1 << 20), shapes, ..self }
    }

    /// Products of these shapes, described in device memory.
    #[must_use]
    pub fn grouped(self, shapes: &'a [GemmProblem]) -> Self {
        let count = u32::try_from(shapes.len()).unwrap_or(u32::MAX);
        let products = Products::Grouped { count, records: 1 << 20 };
        Self { call: Call { products, ..self.call }, shapes, ..self }
    }

    /// Floating-point operations of all products.
    pub fn operations(&self) -> f64 {
        match self.groups() {
            Some(groups) => groups.iter().map(GemmProblem::operations).sum(),
            None => self.call.problem.operations() * f64::from(self.call.products.count()),
        }
    }

    /// The products one by one; `None` where all are of the call's shape.
    pub(crate) fn groups(&self) -> Option<Vec<GemmProblem>> {
        let (one, count) = (self.call.problem, self.call.products.count());
        match self.call.products {
            Products::One | Products::Batched { .. } => None,
            Products::Ragged { .. } | Products::Masked { .. } | Products::Grouped { .. }
                if !self.shapes.is_empty() =>
            {
                Some(self.shapes.to_vec())
            }
            Products::Masked { room, .. } => {
                Some(vec![GemmProblem { m: room, ..one }; count.min(Form::MOST_GROUPS) as usize])
            }
            Products::Ragged { .. } => {
                let rows = |group| (one.m / count) + u32::from(group < one.m % count);
                Some(
                    (0..count.min(Form::MOST_GROUPS))
                        .map(|group| GemmProblem { m: rows(group), ..one })
                        .collect(),
                )
            }
            Products::Grouped { .. } => Some(vec![one; count.min(Form::MOST_GROUPS) as usize]),
        }
    }

    /// What is searched for such calls; `None` where the kernels are listed.
    fn space(&self) -> Option<Space> {
        let form = self.call.products.form();
        let sourced = self.fusion.is_none() && self.call.epilogue.beta != 0.0;
        // Kernels for groups of 16-bit elements are listed: they were measured.
        let plain = [Format::Bf16, Format::F16].map(Types::of).contains(&self.types) && self.fusion.is_none();
        let searched = matches!(form, Form::Single | Form::Batched) || !plain;
        let (call, output) = (&self.call, self.output());
        let bytes = u64::from(output.bits() / 8);
        let unaligned = !(call.d.address | call.d.pitch.wrapping_mul(bytes)).is_multiple_of(16)
            || !call.d.stride.wrapping_mul(bytes).is_multiple_of(16);
        searched.then_some(Space {
            form,
            types: self.types.stored(output),
            majors: self.majors,
            fusion: self.fusion,
            sourced,
            unaligned,
        })
    }

    /// Elements of D.
    fn output(&self) -> Format {
        self.fusion.map_or(self.types.d, |fusion| fusion.output(self.types.a))
    }

    /// Whether a kernel is one of the types, the directions, the form and the epilogue that are asked for.
    fn fits(&self, gemm: &AnyGemm) -> bool {
        let plan = gemm.plan();
        let epilogue = match self.fusion {
            None => gemm.epilogue.linear().is_some(),
            Some(fusion) => gemm.spec().is_some_and(|spec| spec.fusion() == Some(fusion)),
        };
        Types::of_kernel(gemm) == self.types.stored(self.output())
            && plan.majors() == self.majors
            && self.call.products.for_form(plan.form).is_ok()
            && epilogue
    }

    /// Whether a kernel can do it.
    fn admitted(&self, gemm: &AnyGemm, slots: u32) -> Result<(), LaunchError> {
        match self.fusion {
            None => gemm.launch(&self.call, slots).map(|_| ()),
            Some(_) => {
                // Rows of D are as long as the epilogue leaves them.
                let columns = self.call.problem.n >> gemm.plan.epilogue.halvings;
                let d = MatrixRef { pitch: self.call.d.pitch.max(columns.into()), ..self.call.d };
                gemm.launch(&Call { d, ..self.call }.with(Whatever), slots).map(|_| ())
            }
        }
    }
}

/// Packed scales, where blocks have any.
fn packed_scales(types: Types, GemmProblem { m, n, k }: GemmProblem) -> Option<BlockScales> {
    let extents = BlockScales::packed_extents([m, n, k], types.scaled);
    types.is_scaled().then(|| BlockScales::packed([1 << 20; 2], extents))
}

/// How many kernels of a space a [`Selection`] has at most.
pub const RANKED: usize = 64;

/// A kernel that can do a call, and how long it will take.
pub struct Ranked {
    /// The kernel.
    pub gemm: AnyGemm,
    /// The model's times. Where kernels were measured at near shapes, [`Prediction::microseconds`] is the model's time, times what those took
    /// of theirs.
    pub prediction: Prediction,
    /// Microseconds, where it was measured for the call: see [`Known`].
    pub measured: Option<f64>,
    /// One sentence about what decides.
    pub reason: String,
}

/// A kernel of the right type and directions that cannot do a call.
#[derive(Debug)]
pub struct Refused {
    /// Its name.
    pub name: String,
    /// Why.
    pub error: LaunchError,
}

/// Kernels, ordered for one call.
#[derive(Debug)]
pub struct Selection {
    /// Kernels that can do it, the one that is predicted to be fastest first.
    pub ranked: Vec<Ranked>,
    /// Kernels that cannot; of a space, one for each reason.
    pub refused: Vec<Refused>,
}

impl fmt::Debug for Ranked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { gemm, prediction, measured, reason } = self;
        let mut debug = f.debug_struct("Ranked");
        debug.field("gemm", &gemm.name()).field("prediction", prediction);
        debug.field("measured", measured).field("reason", reason).finish()
    }
}

/// Ranks the kernels that can be made for such a call, the first [`RANKED`] of them: of the whole space of built-in parts, but for groups of
/// `bf16` and `f16`, whose kernels are those of [`several`].
pub fn select(request: &Request<'_>, machine: &Machine) -> Selection {
    search(request, machine, RANKED)
}

/// As [`select`], with the first `most` of the space.
pub fn search(request: &Request<'_>, machine: &Machine, most: usize) -> Selection {
    match request.space() {
        Some(space) => of_space(space, request, machine, most),
        None => rank(listed(request.call.products.form()), request, machine),
    }
}

/// The kernels of groups, by their form. For groups in buffers of one size they are those of [`several`] for groups behind each other.
fn listed(form: Form) -> Vec<AnyGemm> {
    if form != Form::Masked {
        return several();
    }
    let masked = |gemm: AnyGemm| {
        let spec = gemm.spec().filter(|spec| spec.form == Form::Ragged)?;
        KernelSpec { form, ..spec }.kernel().ok()
    };
    several().into_iter().filter_map(masked).collect()
}

/// The kernel that is predicted to be fastest.
///
/// # Errors
/// Why the kernel that would be fastest cannot do the call, where none can; none at all for an element type that there is not.
pub fn fastest(request: &Request<'_>, machine: &Machine) -> Result<Ranked, Option<LaunchError>> {
    let mut selection = search(request, machine, 1);
    if selection.ranked.is_empty() {
        return Err(selection.refused.into_iter().next().map(|refused| refused.error));
    }
    Ok(selection.ranked.swap_remove(0))
}

/// The first so many of a space that can do a call.
fn of_space(space: Space, request: &Request<'_>, machine: &Machine, most: usize) -> Selection {
    let (entries, groups) = (space.entries(), request.groups());
    let predict = |entry: &Entry| machine.predict_subject(&entry.subject(), request, groups.as_deref());
    let mut times: Vec<(f64, usize)> =
        entries.iter().enumerate().map(|(i, entry)| (predict(entry).microseconds, i)).collect();
    let look = |i: usize| Some((entries[i].spec, predict(&entries[i])));
    let earlier = near::correct(request, machine, &mut times, look);
    let order = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    let mut selection = Selection { ranked: Vec::new(), refused: Vec::new() };
    let first = known::of(request, machine).into_iter().find_map(|(spec, measured)| {
        let gemm = spec.kernel().ok().filter(|gemm| request.fits(gemm))?;
        request.admitted(&gemm, machine.slots(&gemm.plan)).ok()?;
        let prediction = machine.predict(&gemm, request);
        let reason = format!("measured, {measured:.1} us; {}", reason::sentence(&gemm, machine, &prediction));
        Some(Ranked { gemm, prediction, measured: Some(measured), reason })
    });
    let known = first.as_ref().and_then(|ranked| ranked.gemm.spec());
    selection.ranked.extend(first);
    // Few are looked at; where most cannot do the call, more.
    let (mut from, mut part) = (0, most.saturating_add(most / 4 + 8));
    while from < times.len() && selection.ranked.len() < most {
        let rest = &mut times[from..];
        let count = part.min(rest.len());
        if count < rest.len() {
            rest.select_nth_unstable_by(count, order);
        }
        rest[..count].sort_unstable_by(order);
        for &(microseconds, i) in &rest[..count] {
            let entry = &entries[i];
            if selection.ranked.len() == most {
                break;
            }
            if known == Some(entry.spec) {
                continue;
            }
            let Ok(gemm) = entry.spec.kernel() else { continue };
            match request.admitted(&gemm, machine.slots(entry.plan())) {
                Ok(()) => {
                    let prediction = Prediction { microseconds, ..predict(entry) };
                    let reason = reason::corrected(&gemm, machine, &prediction, earlier.get(&i));
                    selection.ranked.push(Ranked { gemm, prediction, measured: None, reason });
                }
                Err(error) if selection.refused.iter().any(|refused| refused.error == error) => {}
                Err(error) => selection.refused.push(Refused { name: gemm.name().to_owned(), error }),
            }
        }
        (from, part) = (from + count, part * 4);
    }
    selection
}

/// Ranks kernels for a call; those of another element type, direction, form or epilogue are left out.
pub fn rank(kernels: Vec<AnyGemm>, request: &Request<'_>, machine: &Machine) -> Selection {
    let mut selection = Selection { ranked: Vec::new(), refused: Vec::new() };
    for gemm in kernels.into_iter().filter(|gemm| request.fits(gemm)) {
        if let Err(error) = request.admitted(&gemm, machine.slots(&gemm.plan)) {
            selection.refused.push(Refused { name: gemm.name().to_owned(), error });
            continue;
        }
        let prediction = machine.predict(&gemm, request);
        selection.ranked.push(Ranked { gemm, prediction, measured: None, reason: String::new() });
    }
    let ranked = &mut selection.ranked;
    let mut times: Vec<(f64, usize)> =
        ranked.iter().enumerate().map(|(i, ranked)| (ranked.prediction.microseconds, i)).collect();
    let look = |i: usize| ranked[i].gemm.spec().map(|spec| (spec, ranked[i].prediction));
    let earlier = near::correct(request, machine, &mut times, look);
    for (microseconds, i) in times {
        let Ranked { gemm, prediction, reason, .. } = &mut ranked[i];
        prediction.microseconds = microseconds;
        *reason = reason::corrected(gemm, machine, prediction, earlier.get(&i));
    }
    ranked.sort_by(|a, b| a.prediction.microseconds.total_cmp(&b.prediction.microseconds));
    selection
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Machine = Machine::h200();

    fn cube(extent: u32) -> GemmProblem {
        GemmProblem { m: extent, n: extent, k: extent }
    }

    fn first(selection: &Selection) -> &AnyGemm {
        &selection.ranked.first().expect("a kernel").gemm
    }

    fn copies(gemm: &AnyGemm) -> bool {
        gemm.plan().mainloop.producer == collective::Producer::Warpgroup
    }

    #[test]
    fn only_kernels_that_fit_are_ranked() {
        for (element, majors) in [
            (Format::Bf16, [Major::K, Major::K]),
            (Format::F16, [Major::K, Major::Mn]),
            (Format::Bf16, [Major::Mn, Major::K]),
        ] {
            let request = Request::packed(element, majors, cube(1024)).known(Known::Nothing);
            let selection = select(&request, &H200);
            assert_eq!(selection.ranked.len(), RANKED, "{element} {majors:?}");
            assert!(selection.ranked.iter().all(|ranked| request.fits(&ranked.gemm)), "{element} {majors:?}");
            let times: Vec<f64> =
                selection.ranked.iter().map(|ranked| ranked.prediction.microseconds).collect();
            assert!(times.is_sorted(), "{times:?}");
            let best = fastest(&request, &H200).expect("a kernel");
            assert_eq!(best.gemm.spec(), first(&selection).spec(), "{element} {majors:?}");
        }
        let none = select(&Request::packed(Format::S32, [Major::K, Major::K], cube(1024)), &H200);
        assert!(none.ranked.is_empty() && none.refused.is_empty());
    }

    /// Rows of D of 2046 B: no tensor store can end there, so nobody tries.
    #[test]
    fn kernels_that_cannot_do_a_call_say_why() {
        let problem = GemmProblem { m: 1024, n: 1023, k: 1024 };
        let selection = select(&Request::packed(Format::Bf16, [Major::K, Major::K], problem), &H200);
        let direct = |ranked: &Ranked| ranked.gemm.plan().epilogue.staged_bits == 0;
        assert!(!selection.ranked.is_empty() && selection.ranked.iter().all(direct), "{selection:?}");
        // Rows of A of 2 * 1023 B: no tensor copy can load them.
        let problem = GemmProblem { m: 1024, n: 1024, k: 1023 };
        let selection = select(&Request::packed(Format::Bf16, [Major::K, Major::K], problem), &H200);
        assert!(!selection.ranked.is_empty() && selection.ranked.iter().all(|ranked| copies(&ranked.gemm)));
        assert!(selection.refused.iter().all(|refused| {
            let words = refused.error.to_string();
            words.contains("2046 B") && words.contains("take a kernel that copies elements")
        }));
    }

    /// Operands that tensor copies can bring are brought by them.
    #[test]
    fn elements_are_copied_only_where_they_must_be() {
        for (m, n, k) in [(1, 8, 8), (64, 64, 64), (128, 4096, 4096), (1000, 1000, 1000), (8192, 8192, 8192)]
        {
            for majors in [[Major::K, Major::K], [Major::K, Major::Mn], [Major::Mn, Major::Mn]] {
                let m = if majors[0] == Major::Mn { m.max(8) } else { m };
                let selection =
                    select(&Request::packed(Format::Bf16, majors, GemmProblem { m, n, k }), &H200);
                let first = first(&selection);
                assert!(!copies(first), "{m} x {n} x {k}, {majors:?}: {first:?}");
            }
        }
    }

    /// Few rows fill a narrow tile and not 64 rows of an instruction.
    #[test]
    fn operands_are_exchanged_for_few_rows() {
        for (m, n, k) in [(1, 8192, 8192), (16, 28672, 8192), (16, 4096, 14336)] {
            for majors in [[Major::K, Major::K], [Major::K, Major::Mn]] {
                let selection =
                    select(&Request::packed(Format::Bf16, majors, GemmProblem { m, n, k }), &H200);
                let first = first(&selection);
                assert!(first.plan().swapped(), "{m} x {n} x {k}, {majors:?}: {first:?}");
            }
        }
    }

    /// C is brought by copies where it is read, if that is predicted to be faster.
    #[test]
    fn kernels_that_bring_c_are_there_for_calls_that_read_it() {
        let mut request = Request::packed(Format::Bf16, [Major::K; 2], cube(4096));
        let sourced = |request: &Request<'_>| {
            let selection = select(request, &H200);
            selection.ranked.iter().filter(|ranked| ranked.gemm.plan().epilogue.sourced).count()
        };
        assert_eq!(sourced(&request), 0);
        (request.call.epilogue.beta, request.call.epilogue.c) = (1.0, Some(request.call.d));
        assert!(sourced(&request) > 0);
    }

    /// Times that the model must be near, of kernels that one resource decides; the rest is measured in
    /// `tests/selection.rs` of the workspace.
    #[test]
    fn what_decides_is_named() {
        let first = |problem| {
            let selection = select(&Request::packed(Format::Bf16, [Major::K, Major::K], problem), &H200);
            selection.ranked.into_iter().next().map(|ranked| ranked.reason).unwrap_or_default()
        };
        for (problem, words) in [
            (cube(256), "launching"),
            (cube(8192), "the tensor cores decide"),
            (GemmProblem { m: 8, n: 32768, k: 32768 }, "memory decides"),
        ] {
            let reason = first(problem);
            assert!(reason.contains(words), "{problem:?}: {reason}");
        }
    }

    /// Between shapes that were measured, kernels change places, and say why; what was not measured stays as the model has it.
    #[test]
    fn near_shapes_correct_what_they_are_like() {
        let problem = GemmProblem { m: 640, n: 896, k: 12288 };
        let reasons = |element, known| {
            let request = Request::packed(element, [Major::K; 2], problem).known(known);
            let selection = select(&request, &H200);
            let times = selection.ranked.iter().map(|ranked| ranked.prediction.microseconds);
            assert!(times.is_sorted(), "{selection:?}");
            let near = |ranked: &&Ranked| ranked.reason.starts_with("measured at near shapes: ");
            selection.ranked.iter().filter(near).count()
        };
        assert!(reasons(Format::Bf16, Known::Shipped) > 0);
        assert_eq!([reasons(Format::Bf16, Known::Nothing), reasons(Format::F16, Known::Shipped)], [0, 0]);
    }

    /// Experts of 8-bit floats, with scales and without, are chosen from the space; those of 16 bits from the list.
    #[test]
    fn groups_of_every_format_have_kernels() {
        let rows = [300, 0, 17, 2048];
        let shapes: Vec<GemmProblem> =
            rows.into_iter().map(|m| GemmProblem { m, n: 4096, k: 7168 }).collect();
        let all = GemmProblem { m: rows.iter().sum(), n: 4096, k: 7168 };
        let e4m3 = Types::of(Format::E4m3);
        for types in [e4m3, e4m3.scaled([1, 128]), Types::of(Format::S8), Types::of(Format::Bf16)] {
            let request = Request::packed(types, [Major::K; 2], all);
            for request in [request.ragged(&shapes), request.masked(2048, &shapes), request.grouped(&shapes)]
            {
                let (form, selection) = (request.call.products.form(), select(&request, &H200));
                if form == Form::Grouped && types.is_scaled() {
                    assert!(selection.ranked.is_empty(), "records say nothing of scales");
                    continue;
                }
                assert!(!selection.ranked.is_empty(), "{types} {form:?}: {:?}", selection.refused);
                let best = first(&selection);
                assert_eq!((best.form(), Types::of_kernel(best)), (form, types), "{best:?}");
                let times = selection.ranked.iter().map(|ranked| ranked.prediction.microseconds);
                assert!(times.is_sorted(), "{types} {form:?}");
            }
        }
    }

    /// Twice the rows are twice the waves and about twice the time; no extents are too large to be looked at.
    #[test]
    fn times_grow_with_the_problem() {
        for gemm in crate::catalogue().iter().filter(|gemm| gemm.name().ends_with("bf16-kk")) {
            let time = |m| {
                let problem = GemmProblem { m, n: 16384, k: 4096 };
                let request = Request::packed(Format::Bf16, [Major::K, Major::K], problem);
                H200.predict(gemm, &request)
            };
            let (once, twice) = (time(16384), time(32768));
            let (waves, times) = (twice.waves / once.waves, twice.microseconds / once.microseconds);
            assert!((waves - 2.0).abs() < 1e-9, "{}: {waves}", gemm.name());
            assert!((1.9..2.1).contains(&times), "{}: {times}", gemm.name());
        }
        let huge = GemmProblem { m: 1 << 21, n: 1 << 21, k: 1 << 20 };
        let selection = select(&Request::packed(Format::Bf16, [Major::K, Major::K], huge), &H200);
        assert!(selection.ranked.iter().all(|ranked| ranked.prediction.microseconds.is_finite()));
    }
}
