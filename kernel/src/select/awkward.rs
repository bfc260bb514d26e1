//! Calls that few kernels can compute are chosen for as quickly as others: what cannot access the matrices is ruled
//! out before anything is planned or predicted.

use std::time::{Duration, Instant};

use collective::{Code, Format, Formula, WeightsSpec};
use cute_rs::atom::Major;

use super::candidates::Candidates;
use super::{Machine, Request, fastest, open};
use crate::problem::GemmProblem;
use crate::types::Types;

const H200: Machine = Machine::h200();

/// A choice takes less than 1 ms once its space is known. Tests run less optimised, on machines that others use.
const WARM: Duration = Duration::from_millis(20);

/// A request, with what makes it awkward and how many kernels may be predicted.
struct Row<'a> {
    why: String,
    request: Request<'a>,
    most: usize,
}

/// Number of kernels that are open to a request: no more are predicted.
fn count(request: &Request<'_>) -> usize {
    let (space, entries) = (request.space(), request.space().entries());
    let candidates = Candidates::of(space, &entries, &H200);
    let (open, _) = open(&candidates, &entries, request);
    candidates.asked(request, &H200).times(&open, usize::MAX).len()
}

/// Kernels whose operands threads copy: three tiles, two schedulers.
const COPIED: usize = 6;

fn rows() -> Vec<Row<'static>> {
    let (k, mn) = (Major::K, Major::Mn);
    let weights = WeightsSpec { group: 128, ..WeightsSpec::of(Code::S4) };
    let [bf16, f16, e4m3] = [Format::Bf16, Format::F16, Format::E4m3].map(Types::of);
    let mut rows = Vec::new();
    for (types, majors, extents, most) in [
        (bf16, [k, k], [4096, 4096, 261], COPIED),
        (bf16, [k, k], [1024, 1024, 1001], COPIED),
        (bf16, [k, k], [64, 64, 4099], COPIED),
        (bf16, [k, k], [1, 1, 1], COPIED),
        (bf16, [k, mn], [300, 301, 4096], COPIED),
        (bf16, [mn, k], [301, 300, 4096], COPIED),
        (f16, [mn, mn], [261, 300, 4099], COPIED),
        (bf16.stored(Format::F32), [k, k], [512, 512, 1001], COPIED),
        (e4m3, [k, k], [512, 512, 1001], COPIED),
        (Types::of(Format::S8), [k, k], [512, 512, 4099], COPIED),
        (Types::of(Format::Tf32), [k, k], [512, 512, 1001], COPIED),
        (e4m3.scaled([1, 128]), [k, k], [512, 512, 261], 0),
        (bf16.sparse([true, false]), [k, k], [512, 512, 261], 0),
        (bf16.weights([None, Some(weights)]), [k, k], [512, 512, 4097], 0),
        (Types::of(Format::F32), [k, k], [1001, 1001, 1001], 12),
        (Types::of(Format::F64), [k, k], [1001, 1001, 1001], 12),
        // Larger than any kernel can number.
        (bf16, [k, k], [1 << 31, 64, 64], 0),
        (bf16, [k, k], [64, 64, u32::MAX - 15], 0),
    ] {
        let [m, n, k] = extents;
        let request = Request::packed(types, majors, GemmProblem { m, n, k });
        rows.push(Row { why: format!("{types} {majors:?} {extents:?}"), request, most });
    }
    let problem = GemmProblem { m: 512, n: 512, k: 1024 };
    let packed = Request::packed(bf16, [Major::K; 2], problem);
    let mut case = |why: &str, most, change: fn(&mut Request<'_>)| {
        let mut request = packed;
        change(&mut request);
        rows.push(Row { why: why.to_owned(), request, most });
    };
    case("A begins at an odd element", COPIED, |of| of.call.a.address += 2);
    case("rows of B are padded by an odd number", COPIED, |of| of.call.b.ld += 5);
    case("a batch at odd distances", COPIED, |of| {
        *of = of.batched(3);
        of.call.a.stride += 1;
    });
    case("groups whose weights are at odd distances", COPIED, |of| {
        *of = of.ragged(&[]);
        of.call = of.call.ragged(3, 1 << 20);
        of.call.b.stride += 1;
    });
    case("A is nowhere", 0, |of| of.call.a.address = 0);
    case("rows of B are shorter than K", 0, |of| of.call.b.ld = 64);
    case("D of a batch overlaps", 0, |of| {
        *of = of.batched(3);
        of.call.d.stride = 8;
    });
    for fusion in Formula::all() {
        let problem = GemmProblem { k: 1001, ..problem };
        let request = Request::packed(bf16, [Major::K; 2], problem).fused(fusion);
        rows.push(Row { why: format!("{} with an odd K", fusion.name()), request, most: COPIED });
    }
    rows
}

#[test]
fn awkward_calls_are_chosen_for_quickly() {
    for Row { why, request, most } in rows() {
        let count = count(&request);
        let first = fastest(&request, &H200);
        let time = (0..5)
            .map(|_| {
                let begun = Instant::now();
                let _ = fastest(&request, &H200);
                begun.elapsed()
            })
            .min()
            .unwrap_or_default();
        let said = match &first {
            Ok(ranked) => ranked.gemm.name().to_owned(),
            Err(error) => format!("{error:?}"),
        };
        println!("{time:9.1?} {count:4} open; {why}: {said}");
        assert!(count <= most, "{why}: {count} kernels may be predicted, {most} at most were needed");
        assert!(time < WARM, "{why}: {time:?}");
        assert!(!matches!(first, Err(None)), "{why}: no kernel, and no reason");
        assert_eq!(most == 0, first.is_err(), "{why}: {said}");
    }
}
