//! Latent attention: heads of 576 elements of Q and K, of which V is the first 512.

use super::*;

/// One query and several, of heads that are rows of a tile, of several tiles or of none; no keys, one block, odd and even numbers of blocks, and
/// lengths that end anywhere; masks, scores, parts, pages, and lengths that differ. What is around K, in a cache and in no sequence is NaN.
#[test]
fn latent() {
    let lengths = [[1, 0], [1, 1], [2, 64], [2, 95], [5, 130], [3, 250], [37, 70], [1, 300]];
    let differ = vec![[1, 1], [0, 90], [70, 0], [3, 200], [0, 0], [64, 64], [2, 129]];
    for (spec, layout, [heads, shared]) in [
        ("d=576x512 tile=64x64", Layout::HeadsFirst, [2, 1]),
        ("d=576x512 tile=64x64 pack=16 mask=causal", Layout::LengthFirst, [16, 1]),
        ("d=576x512 tile=64x64 pack=64 store=direct output=f32", Layout::Gaps, [128, 1]),
        ("d=576x512 tile=64x64 pack=32 lazy=on format=f16 mask=causal", Layout::LengthFirst, [128, 2]),
        ("d=576x512 tile=64x64 pack=8 mask=window softcap=on alibi=on sinks=on", Layout::HeadsFirst, [14, 2]),
        ("d=576x512 tile=64x64 pack=64 parts=3", Layout::LengthFirst, [128, 1]),
        ("d=576x512 tile=64x64 pack=16 part=64 mask=causal sinks=on order=drawn", Layout::Gaps, [16, 1]),
        ("d=576x512 tile=64x64 pack=64 pages=64 mask=causal", Layout::LengthFirst, [64, 1]),
        ("d=576x512 tile=64x64 pack=16 pages=16 parts=4 output=f32", Layout::HeadsFirst, [32, 1]),
        ("d=576x512 tile=64x64 pack=16 pages=32 lengths=packed part=128 mask=causal", Layout::Gaps, [16, 1]),
        ("d=576x512 tile=64x64 pack=4 lengths=packed mask=causal order=drawn", Layout::LengthFirst, [4, 1]),
        ("d=576x512 tile=64x64 loaders=4", Layout::LengthFirst, [2, 1]),
        ("d=576x512 tile=64x64 pack=64 mask=causal lazy=on loaders=4", Layout::Gaps, [128, 1]),
        (
            "d=576x512 tile=64x64 pack=16 parts=3 store=direct output=f32 loaders=4",
            Layout::HeadsFirst,
            [16, 1],
        ),
        ("d=576x512 tile=64x64 pack=16 part=64 mask=causal order=drawn loaders=4", Layout::Gaps, [32, 2]),
        ("d=576x512 tile=64x64 pack=64 pages=64 mask=causal loaders=4", Layout::LengthFirst, [64, 1]),
        ("d=576x512 tile=64x64 pack=16 pages=16 parts=4 loaders=4", Layout::HeadsFirst, [32, 1]),
        (
            "d=576x512 tile=64x64 pack=16 pages=256 lengths=packed order=drawn loaders=4",
            Layout::Gaps,
            [16, 1],
        ),
        (
            "d=576x512 tile=64x64 pack=4 lengths=packed mask=causal order=drawn loaders=4",
            Layout::LengthFirst,
            [4, 1],
        ),
        (
            "d=576x512 tile=64x64 pack=8 mask=window softcap=on sinks=on loaders=3",
            Layout::HeadsFirst,
            [14, 2],
        ),
        (
            "d=576x512 tile=64x64 pack=16 pages=32 part=128 mask=causal order=drawn loaders=2",
            Layout::Gaps,
            [16, 1],
        ),
    ] {
        let kernel = kernel(spec);
        assert_eq!(kernel.plan().spec.to_string().parse(), Ok(kernel.plan().spec), "{spec}");
        let of = |[queries, keys]: [u32; 2], lengths| Case {
            lengths,
            layout,
            counts: if spec.contains("window") { vec![50, 0] } else { Vec::new() },
            reals: if spec.contains("softcap") { vec![5.0] } else { Vec::new() },
            ..of_heads(case(queries, keys, 576), if heads > 32 { 1 } else { 2 }, [heads, shared])
        };
        let packed = spec.contains("packed");
        let cases: Vec<_> = if packed {
            [differ.clone(), vec![[5, 0]], vec![[0, 9]; 2]].map(|lengths| of([0; 2], Some(lengths))).into()
        } else if spec.contains("pages") {
            let ragged = |queries, keys: &[u32]| keys.iter().map(|&keys| [queries, keys]).collect();
            let [one, five] = [ragged(1, &[300, 31]), ragged(5, &[0, 1, 200, 64, 63, 129, 16])];
            vec![of([1, 0], Some(one)), of([5, 0], Some(five))]
        } else {
            lengths.map(|lengths| of(lengths, None)).into()
        };
        // Each case under another schedule.
        let cases = some(cases.iter().zip(Schedule::sweep(1).cycle()), spec.len(), 4);
        for (case, schedule) in cases {
            let checked = run(spec, &kernel, case, schedule);
            let some = !packed && case.problem.keys > 60;
            assert!(!some || checked.ratio > 0.005, "{spec}: bounds that say nothing: {checked:?}");
        }
    }
}

/// Many schedules: an odd and an even number of blocks, and several tiles of a CTA.
#[test]
fn latent_schedules() {
    for spec in [
        "d=576x512 tile=64x64 pack=16",
        "d=576x512 tile=64x64 pack=16 parts=2 mask=causal",
        "d=576x512 tile=64x64 pack=16 loaders=4",
        "d=576x512 tile=64x64 pack=16 mask=causal order=drawn loaders=4",
    ] {
        let kernel = kernel(spec);
        for (schedule, keys) in some(Schedule::sweep(4).zip([310, 250].into_iter().cycle()), spec.len(), 3) {
            run(spec, &kernel, &of_heads(case(7, keys, 576), 2, [16, 1]), schedule);
        }
    }
}

/// What latent attention has only one value of, and what a call may not have.
#[test]
fn latent_refusals() {
    for (text, words) in [
        (
            "d=576 tile=64x64",
            "d of V and O is 576, 512 with 576 of Q and K, of which V is the first ones, was needed",
        ),
        ("d=544x512 tile=64x64", "d, the elements of a head of Q and K, is 544"),
        ("d=576x512", "the number of queries per tile is 128, 64 with 512 elements of V was needed"),
        ("d=576x512 tile=64x32", "the number of keys per block is 32, 64 with d=576x512 was needed"),
        ("d=576x512 tile=64x64 stages=4", "stages is 4, 2 or auto with 512 elements of V was needed"),
        ("d=576x512 tile=64x64 overlap=on", "overlap is 1, off with 512 elements of V"),
        (
            "d=576x512 tile=64x64 loaders=5",
            "loaders, the warps that load slabs side by side, is 5, 1 to 4 with d=576x512 was needed",
        ),
        ("d=576x512 tile=64x64 loaders=0", "is 0, 1 to 4 with d=576x512 was needed"),
        ("tile=64x64 loaders=4", "is 4, 1 without d=576x512 was needed"),
        (
            "d=576x512 tile=64x64 cache=e4m3",
            "cache is e4m3, Q's format alone with 512 elements of V was needed",
        ),
        (
            "d=576x512 tile=64x64 format=e4m3 store=direct",
            "format is e4m3, bf16 or f16 with 512 elements of V was needed",
        ),
    ] {
        let refused = text.parse::<AttentionSpec>().and_then(Attention::new);
        let error = refused.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let kernel = kernel("d=576x512 tile=64x64 pack=64");
    let at = |address, heads, d| HeadsRef::heads_first(address, [heads, 70, d]);
    let problem = AttentionProblem { heads: [128, 1], ..AttentionProblem::new(1, 128, [70, 70], 576) };
    let [q, k, o] = [at(1 << 24, 128, 576), at(2 << 24, 1, 576), at(3 << 24, 128, 512)];
    let call = AttentionCall::latent(problem, [q, k], o);
    assert!(kernel.launch(&call, 132).is_ok());
    let with_v = AttentionCall { v: k, ..call.clone() };
    let of_heads = AttentionProblem { heads: [96, 1], ..problem };
    for (words, call) in [
        ("V is at 0x2000000, no V was needed: with d=576x512 it is the first 512 columns of K", with_v),
        (
            "at most 64 times as many of queries, or a multiple of that, were",
            AttentionCall { problem: of_heads, ..call },
        ),
    ] {
        let error = kernel.launch(&call, 132).map(|_| ()).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    let request = Attention::request("1x2x70 d=576x512").expect("a problem");
    AttentionBackward::ranked(&request, &Machine::h200(), 1).expect_err("no gradient of it");
}
