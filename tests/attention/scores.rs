//! Masks and scores of one's own, and those that specs name.

use super::*;

/// Keys at most `before` before a query and `after` after it; scores fall with the distance, by heads.
struct Near;

impl Scores for Near {
    const MASKS: bool = true;
    const CHANGES: bool = true;
    const COUNTS: &'static [&'static str] = &["before", "after"];
    const REALS: &'static [&'static str] = &["slope"];

    fn name() -> String {
        "near".into()
    }

    fn seen<N: Count>(of: &Scope<'_, N>, [first, last]: [N; 2]) -> [N; 2] {
        [of.diagonal(first) - of.counts[0], of.diagonal(last).plus(1) + of.counts[1]]
    }

    fn seen_by_all<N: Count>(of: &Scope<'_, N>, [first, last]: [N; 2]) -> [N; 2] {
        [of.diagonal(last) - of.counts[0], of.diagonal(first).plus(1) + of.counts[1]]
    }

    fn sees<N: Count>(of: &Scope<'_, N>, row: N, key: N) -> N::Truth {
        let own = of.diagonal(row);
        (own - of.counts[0]).at_most(key) & key.at_most(own + of.counts[1])
    }

    fn score<N: Count>(of: &Scope<'_, N>, row: N, key: N, x: N::Real) -> N::Real {
        let distance = (of.diagonal(row) - key).real().abs();
        x - distance * of.reals[0] * (of.head.plus(1)).real()
    }
}

/// Chunks of 32 keys; the mask says nothing of blocks.
struct Chunks;

impl Scores for Chunks {
    const MASKS: bool = true;

    fn name() -> String {
        "chunks".into()
    }

    fn sees<N: Count>(_of: &Scope<'_, N>, row: N, key: N) -> N::Truth {
        let chunk = row.constant(32);
        (row / chunk).equals(key / chunk)
    }
}

/// A mask whose range leaves out a key that is seen.
struct Wrong;

impl Scores for Wrong {
    const MASKS: bool = true;

    fn name() -> String {
        "wrong".into()
    }

    fn seen<N: Count>(of: &Scope<'_, N>, [_, last]: [N; 2]) -> [N; 2] {
        [last.constant(0), of.diagonal(last)]
    }

    fn sees<N: Count>(of: &Scope<'_, N>, row: N, key: N) -> N::Truth {
        key.at_most(of.diagonal(row))
    }
}

#[test]
fn masks_and_scores_of_ones_own() {
    let mut schedules = Schedules::default();
    let spec: AttentionSpec = "d=64 tile=128x64".parse().expect("a spec");
    let near = Attention::with::<Near>(spec).expect("legal");
    for [before, after] in [[0, 0], [70, 3], [1, 200], [1000, 1000]] {
        for (queries, keys) in [(300, 270), (130, 400), (65, 1)] {
            let case = of_heads(case(queries, keys, 64), 1, [4, 2]);
            let case = Case { counts: vec![before, after], reals: vec![0.25], ..case };
            for schedule in schedules.next() {
                run("near", &near, &case, schedule);
            }
        }
    }
    let chunks = Attention::with::<Chunks>(spec).expect("legal");
    run("chunks", &chunks, &case(200, 150, 64), DEFAULT);
    assert_eq!(consistent::<Near>(&[3, 1], &[1.0]), Ok(()));
    assert_eq!(consistent::<Chunks>(&[], &[]), Ok(()));
    let words = consistent::<Wrong>(&[], &[]).expect_err("a key is left out");
    assert!(words.contains("query 0 of 1 sees key 0 of 1, but `seen`"), "{words}");
}

/// The masks and scores that specs name, alone and together: numbers, and what is left out.
#[test]
fn masks_and_scores_of_specs() {
    let mut rows = Vec::new();
    for (mask, counts) in [
        ("full", vec![]),
        ("causal", vec![]),
        ("window", vec![40, 0]),
        ("window", vec![0, 90]),
        ("window", vec![1 << 30, 5]),
        ("chunked", vec![48]),
        ("chunked", vec![1000]),
    ] {
        for (scores, reals) in [
            ("", vec![]),
            ("softcap=on", vec![3.0]),
            ("alibi=on", vec![]),
            ("softcap=on alibi=on sinks=on", vec![5.0]),
            ("sinks=on", vec![]),
        ] {
            rows.push((format!("d=64 tile=64x64 mask={mask} {scores}"), counts.clone(), reals));
        }
    }
    for (row, (spec, counts, reals)) in rows.into_iter().enumerate() {
        let kernel = kernel(&spec);
        // There are five kinds of scores: the lengths change from mask to mask.
        for lengths in some([[200, 150], [70, 260]].into_iter(), row, 2) {
            let case = of_heads(case(lengths[0], lengths[1], 64), 1, [4, 2]);
            let values = Values::Normal(4.0);
            let per_sequence = row % 2 == 0;
            let case = Case { counts: counts.clone(), reals: reals.clone(), values, per_sequence, ..case };
            run(&spec, &kernel, &case, DEFAULT);
        }
    }
    assert_eq!(consistent::<Causal>(&[], &[]), Ok(()));
    for window in [[0, 0], [3, 1], [0, 20], [1 << 30, 2]] {
        assert_eq!(consistent::<Window>(&window, &[]), Ok(()));
    }
    for chunk in [1, 7, 100] {
        assert_eq!(consistent::<Chunked>(&[chunk], &[]), Ok(()));
        assert_eq!(consistent::<((Chunked, SoftCap), Window)>(&[chunk, 4, 0], &[1.0]), Ok(()));
        assert_eq!(consistent::<(Causal, (Near, Chunks))>(&[9, chunk], &[1.0]), Ok(()));
    }
    let pair =
        Attention::with::<((Chunked, Alibi), (Near, SoftCap))>("d=64 tile=64x64".parse().expect("a spec"));
    let case =
        Case { counts: vec![64, 30, 3], reals: vec![0.25, 4.0], ..of_heads(case(150, 200, 64), 1, [2, 2]) };
    run("a pair of pairs", &pair.expect("legal"), &case, DEFAULT);
}
