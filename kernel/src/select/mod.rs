//! Chooses the best kernel for a call: searches the space of specs of the built-in parts, ranked by a model.
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

#[cfg(test)]
mod awkward;
mod calibration;
mod candidates;
mod dealing;
mod known;
mod machine;
mod model;
mod near;
mod reason;
mod request;
mod space;
mod step;
mod table;
mod tile;
mod tiling;

use core::fmt;
use std::collections::HashMap;

pub use calibration::Calibration;
pub use known::Known;
pub use machine::{Card, Machine};
pub use model::Prediction;
pub use request::Request;

use candidates::{Asked, Candidates};
use space::{Class, Entry, Space};

use crate::error::LaunchError;
use crate::gemm::AnyGemm;

/// Largest number of kernels in a [`Selection`] of [`select`].
pub const RANKED: usize = 64;

/// A kernel that can compute a call, and its predicted time.
pub struct Ranked {
    /// The kernel.
    pub gemm: AnyGemm,
    /// The model's times. If kernels were measured at similar shapes, [`Prediction::microseconds`] is
    /// corrected by those measurements: it is the model's time, multiplied by their estimated ratio of
    /// measured to predicted time.
    pub prediction: Prediction,
    /// Measured time in microseconds, if the kernel was measured for this call: see [`Known`].
    pub measured: Option<f64>,
    /// One sentence that says what limits the kernel's time.
    pub reason: String,
}

/// A kernel with the right types and directions that cannot compute a call.
#[derive(Debug)]
pub struct Refused {
    /// The kernel's name.
    pub name: String,
    /// Why it cannot.
    pub error: LaunchError,
}

/// Kernels ordered for one call. [`select`], [`search`] and [`rank`] make one.
#[derive(Debug, Default)]
pub struct Selection {
    /// Kernels that can compute the call, the one with the shortest predicted time first.
    pub ranked: Vec<Ranked>,
    /// Kernels that cannot. For a search of the space, one kernel per reason.
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

/// Searches the whole space of built-in parts. Returns the best [`RANKED`] kernels for a call.
pub fn select(request: &Request<'_>, machine: &Machine) -> Selection {
    search(request, machine, RANKED)
}

/// As [`select`], with the best `most` kernels.
pub fn search(request: &Request<'_>, machine: &Machine, most: usize) -> Selection {
    of_space(request.space(), request, machine, most)
}

/// The kernel with the shortest predicted time.
///
/// # Errors
/// If no kernel can compute the call: why one of them cannot. `None` if no kernel has the element types at all.
pub fn fastest(request: &Request<'_>, machine: &Machine) -> Result<Ranked, Option<LaunchError>> {
    let mut selection = search(request, machine, 1);
    if selection.ranked.is_empty() {
        return Err(selection.refused.into_iter().next().map(|refused| refused.error));
    }
    Ok(selection.ranked.swap_remove(0))
}

/// The fastest of the kernels measured for a call that can compute it.
pub(crate) fn measured(request: &Request<'_>, machine: &Machine) -> Option<Ranked> {
    known::of(request, machine).into_iter().find_map(|(spec, measured)| {
        let gemm = spec.plan().ok().map(|plan| spec.unnamed(plan)).filter(|gemm| request.fits(gemm))?;
        request.admitted(&gemm, machine.resident_clusters(&gemm.plan)).ok()?;
        let prediction = machine.predict(&gemm, request);
        let sentence = reason::sentence(&gemm, machine, &prediction);
        let reason = format!("{}; {sentence}", measured_words(measured));
        Some(Ranked { gemm: spec.with_texts(gemm), prediction, measured: Some(measured), reason })
    })
}

/// What is said of a kernel that was measured for a call.
pub(crate) fn measured_words(microseconds: f64) -> String {
    format!("measured, {microseconds:.1} us")
}

/// Ranks a space for a call. Returns at most `most` kernels that can compute it, the fastest first.
fn of_space(space: Space, request: &Request<'_>, machine: &Machine, most: usize) -> Selection {
    let entries = space.entries();
    if let Err(error) = request.limited() {
        let refused = entries.first().and_then(|entry| refusal(entry, Err(error)));
        return Selection { ranked: Vec::new(), refused: refused.into_iter().collect() };
    }
    let candidates = Candidates::of(space, &entries, machine);
    let (open, mut refused) = open(&candidates, &entries, request);
    let mut selection = ranked(&candidates, &entries, &open, request, machine, most);
    if selection.ranked.len() < most {
        refused.extend(space.left_out().and_then(|entry| refusal(&entry, request.reached(&entry.plan))));
    }
    refused.append(&mut selection.refused);
    selection.refused = refused;
    selection
}

/// Which classes of candidates can access a call's matrices, and why the others cannot.
fn open(candidates: &Candidates, entries: &[Entry], request: &Request<'_>) -> (Vec<bool>, Vec<Refused>) {
    let mut refused = Vec::<Refused>::new();
    let open = |&(_, first): &(Class, usize)| {
        let entry = &entries[first];
        let Some(refusal) = refusal(entry, request.reached(&entry.plan)) else { return true };
        if refused.iter().all(|known| known.error != refusal.error) {
            refused.push(refusal);
        }
        false
    };
    (candidates.classes.iter().map(open).collect(), refused)
}

fn refusal(entry: &Entry, result: Result<(), LaunchError>) -> Option<Refused> {
    result.err().map(|error| Refused { name: entry.spec.to_string(), error })
}

/// Ranks the entries of a space whose classes are `open`.
fn ranked(
    candidates: &Candidates,
    entries: &[Entry],
    open: &[bool],
    request: &Request<'_>,
    machine: &Machine,
    most: usize,
) -> Selection {
    let mut asked = candidates.asked(request, machine);
    // Look at few entries; at all of them if most cannot compute the call.
    let part = most.saturating_add(most / 4 + 8);
    let mut count = part.saturating_add(near::CORRECTED);
    loop {
        let mut times = asked.times(open, count);
        let all = times.len() < count;
        let earlier =
            near::correct(request, machine, &mut times, |i| Some((entries[i].spec, asked.predict(i))));
        let selection = first(&asked, entries, (times, part), &earlier, request, machine, most);
        if all || selection.ranked.len() == most {
            return selection;
        }
        count = usize::MAX;
    }
}

/// The first `most` of these entries that can compute a call; `part` of them are looked at first.
fn first(
    asked: &Asked<'_>,
    entries: &[Entry],
    (mut times, mut part): (Vec<(f64, usize)>, usize),
    earlier: &HashMap<usize, f64>,
    request: &Request<'_>,
    machine: &Machine,
    most: usize,
) -> Selection {
    let order = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    let mut selection = Selection::default();
    let first = measured(request, machine);
    let known = first.as_ref().and_then(|ranked| ranked.gemm.spec());
    selection.ranked.extend(first);
    let mut rest = &mut times[..];
    while !rest.is_empty() && selection.ranked.len() < most {
        let count = part.min(rest.len());
        if count < rest.len() {
            rest.select_nth_unstable_by(count, order);
        }
        let (next, after) = rest.split_at_mut(count);
        next.sort_unstable_by(order);
        for &mut (microseconds, i) in next {
            let entry = &entries[i];
            if selection.ranked.len() == most {
                break;
            }
            if known == Some(entry.spec) || asked.slices_nothing(i) {
                continue;
            }
            let gemm = entry.spec.unnamed(*entry.plan);
            match request.admitted(&gemm, machine.resident_clusters(&entry.plan)) {
                Ok(()) => {
                    let prediction = Prediction { microseconds, ..asked.predict(i) };
                    let reason = reason::corrected(&gemm, machine, &prediction, earlier.get(&i));
                    let gemm = entry.spec.with_texts(gemm);
                    selection.ranked.push(Ranked { gemm, prediction, measured: None, reason });
                }
                Err(error) if selection.refused.iter().any(|refused| refused.error == error) => {}
                Err(error) => selection.refused.extend(refusal(entry, Err(error))),
            }
        }
        (rest, part) = (after, part * 4);
    }
    selection
}

/// Ranks given kernels for a call. Kernels with other types, directions, form or epilogue are left out.
pub fn rank(kernels: Vec<AnyGemm>, request: &Request<'_>, machine: &Machine) -> Selection {
    let mut selection = Selection { ranked: Vec::new(), refused: Vec::new() };
    for gemm in kernels.into_iter().filter(|gemm| request.fits(gemm)) {
        if let Err(error) = request.admitted(&gemm, machine.resident_clusters(&gemm.plan)) {
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
    use collective::{Form, Format};
    use cute_rs::atom::Major;

    use super::*;
    use crate::problem::GemmProblem;
    use crate::types::Types;

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

    /// Rows of D are 2046 B. No tensor store can write such rows, so none is tried.
    #[test]
    fn kernels_that_cannot_do_a_call_say_why() {
        let problem = GemmProblem { m: 1024, n: 1023, k: 1024 };
        let selection = select(&Request::packed(Format::Bf16, [Major::K, Major::K], problem), &H200);
        let direct = |ranked: &Ranked| ranked.gemm.plan().epilogue.staged_bits == 0;
        assert!(!selection.ranked.is_empty() && selection.ranked.iter().all(direct), "{selection:?}");
        // Rows of A are 2 * 1023 B. No tensor copy can load such rows.
        let problem = GemmProblem { m: 1024, n: 1024, k: 1023 };
        let selection = select(&Request::packed(Format::Bf16, [Major::K, Major::K], problem), &H200);
        assert!(!selection.ranked.is_empty() && selection.ranked.iter().all(|ranked| copies(&ranked.gemm)));
        assert!(selection.refused.iter().all(|refused| {
            let words = refused.error.to_string();
            words.contains("2046 B") && words.contains("use a kernel without tensor copies")
        }));
    }

    /// Operands that tensor copies can load are loaded by tensor copies.
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

    /// With swap-AB, few rows fill a narrow tile; without it they would fill few of an instruction's 64 rows.
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

    /// Kernels that load C by tensor copies are used for calls that read C, if they are predicted to be
    /// faster.
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

    /// The limiting resource is named. The times are tested against measurements in `tests/selection.rs` of
    /// the workspace.
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

    /// Between measured shapes the order of kernels is corrected, and the reason says so. Without
    /// measurements of the type, the model's order stays.
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

    /// Groups of rows of every format have kernels in the space.
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
                if form == Form::PointerArray && types.is_scaled() {
                    assert!(selection.ranked.is_empty(), "records say nothing of scales");
                    continue;
                }
                assert!(!selection.ranked.is_empty(), "{types} {form:?}: {:?}", selection.refused);
                let best = first(&selection);
                assert_eq!((best.form(), Types::of_plan(&best.plan)), (form, types), "{best:?}");
                let times = selection.ranked.iter().map(|ranked| ranked.prediction.microseconds);
                assert!(times.is_sorted(), "{types} {form:?}");
            }
        }
    }

    /// Products with a sparse operand of every format are chosen from the space, from either side, and are predicted to be faster than
    /// dense ones where the tensor cores decide.
    #[test]
    fn sparse_operands_of_every_format_have_kernels() {
        let e5m2 = Types::of(Format::E4m3).with_b(Format::E5m2);
        let all = [Format::Bf16, Format::F16, Format::E4m3, Format::S8, Format::U8, Format::Tf32];
        for types in all.map(Types::of).into_iter().chain([e5m2]) {
            for sparse in [[true, false], [false, true]] {
                let types = types.sparse(sparse);
                let packed = |types: Types, problem| Request::packed(types, [Major::K; 2], problem);
                for problem in [cube(8192), GemmProblem { m: 24, n: 4096, k: 8192 }, cube(320)] {
                    let request = packed(types, problem);
                    let selection = select(&request, &H200);
                    assert!(selection.ranked.len() > 8, "{types} {problem:?}: {:?}", selection.refused);
                    for Ranked { gemm, prediction, .. } in &selection.ranked {
                        assert!(request.fits(gemm) && prediction.microseconds > 0.0, "{types}: {gemm:?}");
                        assert_eq!(gemm.plan().swapped(), sparse[1], "{types}: {gemm:?}");
                    }
                }
                let time = |types| fastest(&packed(types, cube(8192)), &H200).expect("a kernel").prediction;
                let [own, dense] = [types, types.dense()].map(|types| time(types).microseconds);
                let gain = dense / own;
                println!("{types}: {own:.1} us, {gain:.2} x dense");
                assert!((1.2..1.9).contains(&gain), "{types}: {gain}");
            }
        }
    }

    /// The stored elements of a batch's sparse operands are packed, and so is their metadata. Groups of rows have sparse weights.
    #[test]
    fn sparse_operands_of_several_products_lie_apart() {
        let problem = GemmProblem { m: 200, n: 96, k: 640 };
        let [a, b] = [[true, false], [false, true]]
            .map(|sparse| Request::packed(Types::of(Format::Bf16).sparse(sparse), [Major::K; 2], problem));
        let batch = a.batched(3).call;
        assert_eq!((batch.a.ld, batch.a.stride, batch.b.stride), (320, 200 * 320, 96 * 640));
        assert_eq!(batch.metadata.map(|of| (of.ld, of.stride)), Some((1280, 4 * 1280)));
        let shapes = [150, 0, 50].map(|m| GemmProblem { m, ..problem });
        let groups = b.ragged(&shapes);
        assert_eq!((groups.call.a.stride, groups.call.b.stride), (0, 96 * 320));
        assert_eq!(groups.call.metadata.map(|of| of.stride), Some(2 * 1280));
        for (request, some) in [
            (groups, true),
            (b.masked(200, &shapes), true),
            (a.ragged(&shapes), false),
            (b.grouped(&shapes), false),
        ] {
            let form = request.call.products.form();
            assert_eq!(!select(&request, &H200).ranked.is_empty(), some, "{form:?}");
        }
        // A sparse operand lies along K.
        let along_m = Request { majors: [Major::Mn, Major::K], ..a };
        assert!(select(&along_m, &H200).ranked.is_empty() && along_m.k_major(1 << 20).is_empty());
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
