//! What is chosen for a description is what `falchion plan` ranks first for its problem. Nothing runs.

use super::*;
use crate::family::{Family, Problem};
use crate::select::search;

/// What is multiplied at addresses that are multiples of 256.
fn request(what: &GemmDesc<'_>) -> Request<'static> {
    what.shape.request([8; 3])
}

#[test]
fn what_is_chosen_is_what_is_planned() {
    let (machine, mut random, mut count) = (Machine::h200(), fastrand::Rng::with_seed(30), 0);
    for _ in 0..2000 {
        let mut extent = || {
            let power = random.u32(1..14);
            1 + random.u32(..1 << power)
        };
        let (problem, batch) = (GemmProblem { m: extent(), n: extent(), k: extent() }, 2 + extent() % 30);
        let format = [Format::Bf16, Format::F16][random.usize(..2)];
        let majors = [[Major::K; 2], [Major::K, Major::Mn], [Major::Mn, Major::K]][random.usize(..3)];
        let (one, packed) =
            (GemmDesc::new(format, majors, problem), Request::packed(format, majors, problem));
        let (asked, wanted) = match random.u32(..6) {
            0 => (request(&one.batched(batch)), packed.batched(batch)),
            1 => (request(&one.reproducible()), packed.reproducible()),
            2 => {
                let types = Types::of(Format::E4m3).scaled([1, 128]);
                let problem = GemmProblem { k: problem.k.next_multiple_of(16), ..problem };
                let what = GemmDesc::new(types, [Major::K; 2], problem);
                (request(&what), Request::packed(types, [Major::K; 2], problem))
            }
            3 => {
                let shape = Shape { activation: Some(Activation::Gelu), ..one.shape };
                let fused = packed.fused(Formula::named("bias-gelu").expect("a name"));
                (request(&GemmDesc { shape, ..one }), fused)
            }
            _ => (request(&one), packed),
        };
        let problem = AnyGemm::problem(&wanted);
        assert_eq!(AnyGemm::problem(&asked), problem);
        // As the command line reads it.
        let read = problem.to_string().parse::<Problem>().and_then(|problem| problem.request());
        let read = Request { reproducible: wanted.reproducible, ..read.expect("it is a problem") };
        let found = AnyGemm::first(&asked, &machine).ok().map(|of| of.kernel.spec());
        let planned = search(&read, &machine, 1).ranked.into_iter().next().map(|of| of.gemm.spec());
        assert_eq!(found, planned, "{problem}");
        count += usize::from(found.is_some());
    }
    assert!(count > 1900, "{count}");
}
