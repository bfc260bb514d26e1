//! Keys and values in pages of a cache, and in parts.

use super::*;

/// Keys and values in pages: every page size, several pages per block and several blocks per page, lengths that end anywhere,
/// masks, packed heads, parts, and queries of different lengths. All else in the cache is NaN, and tables have numbers of no page after
/// those of a sequence.
#[test]
fn pages_of_keys() {
    let mut schedules = Schedules::default();
    let ragged = vec![[5, 0], [5, 1], [5, 200], [5, 64], [5, 63], [5, 129], [5, 16]];
    let differ = vec![[1, 1], [0, 90], [70, 0], [3, 200], [0, 0], [64, 64], [2, 129]];
    for (spec, layout) in [
        ("d=64 tile=64x64 pages=16", Layout::LengthFirst),
        ("d=64 tile=64x64 pages=32 mask=causal", Layout::HeadsFirst),
        ("d=64 tile=64x64 pages=64 pack=4 mask=causal", Layout::LengthFirst),
        ("d=64 tile=128x32 pages=128 overlap=on", Layout::Gaps),
        ("d=64 tile=64x64 pages=256 mask=window sinks=on", Layout::HeadsFirst),
        ("d=128 tile=64x128 pages=16 pack=4", Layout::LengthFirst),
        ("d=128 tile=128x128 pages=64 format=f16", Layout::HeadsFirst),
        ("d=96 tile=64x48 pages=16 store=direct mask=causal", Layout::Gaps),
        ("d=192x128 tile=64x64 pages=32 pack=2", Layout::LengthFirst),
        ("d=64 tile=64x64 pages=32 pack=4 parts=3", Layout::LengthFirst),
        ("d=64 tile=64x64 pages=16 pack=4 cluster=4", Layout::Gaps),
        ("d=64 tile=64x32 pages=64 lengths=packed pack=2 cluster=5", Layout::LengthFirst),
        ("d=64 tile=64x32 pages=32 pack=4 part=64 mask=causal", Layout::HeadsFirst),
        ("d=64 tile=64x64 pages=64 lengths=packed mask=causal", Layout::LengthFirst),
        ("d=64 tile=64x32 pages=64 lengths=packed pack=2 parts=5 output=f32", Layout::Gaps),
    ] {
        let kernel = kernel(spec);
        let AttentionSpec { head: [d, _], pack, .. } = kernel.plan().spec;
        let counts = if spec.contains("window") { vec![50, 0] } else { Vec::new() };
        let of = |lengths: Vec<[u32; 2]>, queries, keys, spare| Case {
            lengths: Some(lengths),
            layout,
            spare,
            counts: counts.clone(),
            ..of_heads(case(queries, keys, d), 1, [2 * pack, 2])
        };
        let cases = if spec.contains("packed") {
            vec![of(differ.clone(), 0, 0, 3), of(vec![[5, 0]], 0, 0, 0), of(vec![[0, 9]; 2], 0, 0, 1)]
        } else {
            vec![of(ragged.clone(), 5, 0, 3), of(vec![[1, 300]], 1, 0, 0), of(vec![[2, 0]], 2, 0, 0)]
        };
        for case in cases {
            for schedule in schedules.next() {
                run(spec, &kernel, &case, schedule);
            }
        }
    }
    for (text, words) in [
        ("pages=48", "pages, the number of keys in a page, is 48, 16, 32, 64, 128 or 256"),
        ("tile=64x48 pages=32", "a divisor or a multiple of the number of keys per block"),
        ("pages=few", "`pages=few`: a number of keys"),
    ] {
        let refused = text.parse::<AttentionSpec>().and_then(Attention::new);
        let error = refused.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// A page that is not in the cache: refused where the host knows the table, a trap with a name where it does not.
#[test]
fn pages_that_are_not_there() {
    let kernel = kernel("d=64 tile=64x64 pages=32");
    let case = Case { lengths: Some(vec![[1, 100]; 3]), ..case(1, 0, 64) };
    let mut engine = Emulator::new();
    let given = case.given(&mut engine, &kernel).expect("memory");
    let call = given.checks.call();
    kernel.run(&mut engine, call).expect("all pages are there");
    let fewer = AttentionCall { pages: Pages { count: call.pages.count - 4, ..call.pages }, ..call.clone() };
    let trapped = kernel.run(&mut engine, &fewer).expect_err("a page is not there").to_string();
    assert!(trapped.contains("a page that is not in the cache"), "{trapped}");
    let with = |change: &dyn Fn(&mut Pages)| {
        let mut call = call.clone();
        change(&mut call.pages);
        kernel.launch(&call, 132).map(|_| ()).expect_err("illegal").to_string()
    };
    for (words, error) in [
        ("the table has 3 pages per sequence, 4 of 32 keys", with(&|pages| pages.each = 3)),
        ("the table of pages is a null pointer", with(&|pages| pages.table = 0)),
        ("the numbers of keys begins at", with(&|pages| pages.lengths += 2)),
        ("the number of pages is", with(&|pages| pages.count = 1 << 31)),
        ("the cache has no page, 4 were needed", with(&|pages| pages.count = 0)),
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let pages = Pages { each: 2, count: 9, ..Pages::default() };
    assert_eq!(pages.check(32, &[33, 0, 32], &[8, 0, 99, 99, 3, 99]), Ok(()));
    for (lengths, table, words) in [
        (&[64][..], &[8, 9][..], "page 1 of sequence 0 is page 9 of a cache of 9 pages"),
        (&[65], &[0, 1], "sequence 0 has 65 keys, which need 3 pages; the table has 2 per sequence"),
        (&[1, 1], &[0, 1], "the table has 2 per sequence, and 2 in all"),
    ] {
        let refused = pages.check(32, lengths, table).expect_err(words).to_string();
        assert!(refused.contains(words), "{words}: {refused}");
    }
}

/// Keys in parts, which all CTAs merge, or those of a cluster: also more parts than blocks, parts at fixed keys, masks, sinks, lengths that differ and
/// rows without keys. The workspace is as it was after each launch.
#[test]
fn parts_of_keys() {
    let mut schedules = Schedules::default();
    let specs = [
        ("d=64 tile=64x64 pack=4 parts=5", Layout::HeadsFirst),
        ("d=64 tile=128x64 parts=3 mask=causal sinks=on overlap=on", Layout::Gaps),
        ("d=96 tile=64x32 format=f16 output=f32 parts=7 mask=window", Layout::LengthFirst),
        ("d=64 tile=64x64 pack=4 parts=2 lengths=packed mask=causal", Layout::LengthFirst),
        ("d=64 tile=64x32 pack=4 part=64 lengths=packed mask=causal", Layout::LengthFirst),
        ("d=128 tile=128x64 part=128", Layout::Gaps),
        ("d=64 tile=64x32 part=96 mask=window sinks=on", Layout::HeadsFirst),
        ("d=64 tile=64x64 pack=4 cluster=5", Layout::HeadsFirst),
        ("d=64 tile=128x64 cluster=3 mask=causal sinks=on", Layout::Gaps),
        ("d=96 tile=192x32 format=f16 output=f32 cluster=8 mask=window", Layout::LengthFirst),
        ("d=64 tile=64x64 pack=4 cluster=2 lengths=packed mask=causal", Layout::LengthFirst),
        ("d=128 tile=64x32 pack=16 cluster=7", Layout::Gaps),
        ("d=256 tile=64x48 cluster=2 stages=1", Layout::HeadsFirst),
        ("d=64 tile=64x32 pack=4 parts=3 ctas=2", Layout::HeadsFirst),
    ];
    for (row, (spec, layout)) in specs.into_iter().enumerate() {
        let kernel = kernel(spec);
        let counts = if spec.contains("window") { vec![90, 0] } else { Vec::new() };
        for lengths in some([[1, 600], [70, 130], [5, 0]].into_iter(), row, 2) {
            let d = kernel.plan().spec.head[0];
            let case = of_heads(case(lengths[0], lengths[1], d), 2, [8, 2]);
            let differ = vec![lengths, [0, 9], [2, 200], [lengths[0], 1]];
            let lengths = spec.contains("packed").then_some(differ);
            let case = Case { lengths, layout, counts: counts.clone(), ..case };
            for schedule in schedules.next() {
                run(spec, &kernel, &case, schedule);
            }
        }
    }
    // Two of these fit on an SM.
    for text in
        ["d=64 tile=64x192 ctas=2", "d=128 tile=64x64 ctas=2 parts=2", "d=64 tile=64x64 ctas=2 order=drawn"]
    {
        let (cta, limits) = (kernel(text).plan().cta, AttentionPlan::TARGET.limits());
        assert!(2 * cta.registers.launch * cta.threads() <= limits.registers, "{text}");
        assert!(cta.shared_bytes <= limits.shared_bytes_of(2), "{text}: {}", cta.shared_bytes);
        let all = cta.registers.producer + cta.registers.consumer;
        assert!(2 * 128 * all <= limits.registers, "{text}: {all}");
    }
    for (text, words) in [
        ("parts=0", "the number of parts is 0"),
        ("parts=2000", "the number of parts is 2000"),
        ("part=100", "the number of keys of a part is 100, a multiple of the number of keys per block"),
        ("parts=some", "`parts=some`: a number of parts"),
        ("cluster=9", "cluster, the CTAs that share the keys of a tile, is 9, 2 to 8"),
        ("cluster=1", "cluster, the CTAs that share the keys of a tile, is 1, 2 to 8"),
        ("cluster=2 order=drawn", "order is drawn, dealt with cluster"),
        ("cluster=2 overlap=on", "overlap is on, off with cluster"),
        ("format=e4m3 d=256 tile=128x64 cluster=2", "is 2, a tile of fewer queries, or fewer stages,"),
        ("parts=2 cluster=2", "`parts` is given already"),
        ("ctas=0", "ctas, the CTAs of an SM, is 0, 1 or 2"),
        ("ctas=3", "ctas, the CTAs of an SM, is 3, 1 or 2"),
        ("ctas=2", "is 2, 1 with more than 64 queries per tile"),
        ("tile=64x64 ctas=2 cluster=2", "is 2, 1 with cluster"),
        ("d=256 tile=64x48 ctas=2", "a CTA has 115712 B"),
        ("d=576x512 tile=64x64 cluster=2", "is 2, parts, or none, with 512 elements of V"),
    ] {
        let refused = text.parse::<AttentionSpec>().and_then(Attention::new);
        let error = refused.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// CTAs that share the tiles they merge: all of them one tile, some CTAs more than there are shares, and several consumers. If one does not
/// wait for all parts, there is a race.
#[test]
fn ctas_that_share_tiles_of_parts() {
    for (spec, sms, batch, heads) in [
        ("d=64 tile=64x32 pack=8 parts=7", 12, 1, [8, 1]),
        ("d=128 tile=64x32 pack=4 parts=20", 17, 5, [3, 1]),
        ("d=192x128 tile=128x32 parts=3", 7, 1, [2, 1]),
        ("d=256 tile=64x32 pack=2 part=64 lengths=packed order=drawn", 9, 1, [2, 1]),
        ("d=96 tile=192x32 parts=5 output=f32", 5, 1, [1, 1]),
        ("d=576x512 tile=64x64 pack=64 parts=7", 12, 1, [64, 1]),
        ("d=576x512 tile=64x64 pack=8 pages=32 parts=18 lazy=on", 11, 2, [8, 1]),
    ] {
        let kernel = kernel(spec);
        let own = spec.contains("packed") || spec.contains("pages");
        for (schedule, keys) in some(Schedule::sweep(2).zip([230, 600].into_iter().cycle()), spec.len(), 3) {
            let case = of_heads(case(3, keys, kernel.plan().spec.head[0]), batch, heads);
            let lengths = own.then(|| vec![[3, keys], [3, 0], [3, 40]]);
            run_on(sms, spec, &kernel, &Case { lengths, ..case }, schedule);
        }
    }
}

/// Fewer heads than rows of a query, in several tiles: of rows that are no query, nothing is read that another tile's parts may still write.
#[test]
fn parts_of_tiles_with_fewer_heads_than_rows() {
    for (spec, heads) in
        [("d=64 tile=64x32 pack=8 parts=4", 5), ("d=64 tile=64x32 pack=4 parts=18 mask=causal", 3)]
    {
        let kernel = kernel(spec);
        for schedule in Schedule::sweep(2) {
            run_on(7, spec, &kernel, &of_heads(case(40, 300, 64), 1, [heads, 1]), schedule);
        }
    }
}

/// A sequence that is a little longer than the call says: it has wrong results, but no CTA waits for parts that nobody computes, and the
/// workspace is as launches need it.
#[test]
fn a_sequence_longer_than_the_call_says() {
    let (kernel, mut engine) =
        (kernel("d=64 tile=64x32 pack=4 part=64 lengths=packed"), Emulator::new().with_multiprocessors(3));
    let case = Case { lengths: Some(vec![[1, 70], [9, 60]]), ..of_heads(case(0, 0, 64), 1, [8, 2]) };
    let given = case.given(&mut engine, &kernel).expect("memory");
    let whole = given.lent(&mut engine, &kernel);
    let shorter = AttentionProblem { keys: 64, ..whole.problem };
    let call = AttentionCall { problem: shorter, ..whole.clone() };
    for call in [&call, &call, &whole] {
        kernel.run(&mut engine, call).expect("it ends");
    }
    given.checks.compare(&mut engine, &kernel, &given.request).expect("right");
}

/// A sequence has the same bits in any batch, if its keys are divided at fixed ones: alone, or among others, whatever their lengths are.
#[test]
fn parts_at_fixed_keys_have_the_same_bits_in_every_batch() {
    let mut engine = Emulator::new().with_multiprocessors(3);
    let mut random = fastrand::Rng::with_seed(7);
    // (tokens, heads, d) in bf16: numbers from 1 to 2, of both signs.
    let mut tensor = |tokens: usize, heads: usize| {
        let bits = (0..tokens * heads * 64).map(|_| 0x3f80 | random.u16(..) & 0x807f);
        engine.upload(&bits.flat_map(u16::to_le_bytes).collect::<Vec<_>>()).expect("memory")
    };
    let [q, k, v] = [tensor(3, 8), tensor(900, 2), tensor(900, 2)];
    let mut run = |spec: &str, keys: &[u32]| {
        let kernel = kernel(spec);
        let sums = |counts: &[u32]| {
            let sum = |sum: &mut u32, count: &u32| Some(core::mem::replace(sum, *sum + count));
            counts.iter().chain([&0]).scan(0, sum).collect::<Vec<_>>()
        };
        let begins = [sums(&vec![1; keys.len()]), sums(keys)];
        let tables = begins.clone().map(|table| {
            engine.upload(&table.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>()).expect("memory")
        });
        let rows = begins.map(|table| table[keys.len()]);
        let most = keys.iter().copied().max().unwrap_or(0);
        let problem =
            AttentionProblem { heads: [8, 2], ..AttentionProblem::new(keys.len() as u32, 8, [1, most], 64) };
        let at = |of: falchion::kernel::Buffer, heads| HeadsRef::length_first(of.address, [heads, 0, 64]);
        let o = engine.allocate(3 * 8 * 64 * 2).expect("memory");
        let packed = Packed { begins: tables.map(|table| table.address), rows };
        let mut call =
            AttentionCall { packed, ..AttentionCall::new(problem, [at(q, 8), at(k, 2), at(v, 2)], at(o, 8)) };
        call.workspace = engine.workspace(kernel.workspace(&call)).expect("memory");
        kernel.run(&mut engine, &call).expect("a launch");
        engine.read(o).expect("O")[..8 * 64 * 2].to_vec()
    };
    let spec = "d=64 tile=64x32 pack=4 part=64 lengths=packed";
    let alone = run(spec, &[250]);
    assert!(alone == run(spec, &[250, 500, 3]), "other bits in a batch");
    assert!(alone != run("d=64 tile=64x32 pack=4 part=96 lengths=packed", &[250]), "bits that cannot differ");
}

/// Queries in 16 bits on a cache in 8, with a factor per head or one for all: every head dimension, masks, pages, parts, packed heads,
/// lengths that differ, and both formats of queries.
#[test]
fn caches_of_8_bits() {
    let mut schedules = Schedules::default();
    for (row, (spec, layout, per_head)) in [
        ("d=64 cache=e4m3 tile=64x64", Layout::HeadsFirst, true),
        ("d=64 cache=e4m3 format=f16 tile=128x32 mask=causal", Layout::LengthFirst, false),
        ("d=128 cache=e4m3 tile=64x64 pages=32 pack=4 parts=3", Layout::LengthFirst, true),
        (
            "d=128 cache=e4m3 tile=64x128 mask=causal lengths=packed pages=16 pack=2",
            Layout::LengthFirst,
            false,
        ),
        ("d=96 cache=e4m3 tile=64x48 alibi=on store=direct", Layout::HeadsFirst, true),
        ("d=192x128 cache=e4m3 tile=64x32 sinks=on overlap=on", Layout::HeadsFirst, true),
        ("d=256 cache=e4m3 tile=64x32 stages=1 mask=window", Layout::LengthFirst, true),
        ("d=64 cache=e4m3 tile=128x64 softcap=on lengths=packed part=128", Layout::LengthFirst, true),
        ("d=128 cache=e4m3 tile=64x64 pages=32 pack=4 cluster=3", Layout::HeadsFirst, true),
    ]
    .into_iter()
    .enumerate()
    {
        let kernel = kernel(spec);
        assert_eq!(kernel.plan().spec.to_string().parse(), Ok(kernel.plan().spec), "{spec}");
        let AttentionSpec { head: [d, _], pack, .. } = kernel.plan().spec;
        let counts = if spec.contains("window") { vec![50, 0] } else { Vec::new() };
        let reals = if spec.contains("softcap") { vec![2.0] } else { Vec::new() };
        let own = spec.contains("packed") || spec.contains("pages");
        for lengths in some([[70, 130], [3, 200], [2, 0]].into_iter(), row, 2) {
            let all = vec![lengths, [lengths[0], 1], [lengths[0], 129]];
            let case = of_heads(case(lengths[0], lengths[1], d), 2, [2 * pack, 2]);
            let (counts, reals) = (counts.clone(), reals.clone());
            let case = Case { lengths: own.then_some(all), layout, counts, reals, per_head, ..case };
            for schedule in schedules.next() {
                let checked = run(spec, &kernel, &case, schedule);
                assert!(lengths[1] == 0 || checked.ratio > 0.005, "{spec}: bounds that say nothing");
            }
        }
    }
    refused(&[
        ("cache=e5m2", "cache is e5m2, e4m3 was needed"),
        ("cache=bf16", "cache is bf16, e4m3 was needed"),
        ("d=64 tile=192x64 cache=e4m3", "the number of queries per tile is 192, 64 or 128 with a cache"),
        ("d=256 tile=64x80 cache=e4m3 stages=4", "shared memory"),
    ]);
}

/// Specs that are refused, each with words of why.
fn refused(table: &[(&str, &str)]) {
    for (text, words) in table {
        let refused = text.parse::<AttentionSpec>().and_then(Attention::new);
        let error = refused.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// Q, K and V in 8 bits: every head dimension, masks, lengths, pages, parts, packed heads, sinks, and all formats of O.
#[test]
fn operands_of_8_bits() {
    let mut schedules = Schedules::default();
    for (spec, layout, per_head) in [
        ("format=e4m3 d=64 tile=64x64 store=direct", Layout::HeadsFirst, true),
        ("format=e4m3 tile=128x128 mask=causal store=direct", Layout::LengthFirst, false),
        ("format=e4m3 output=f16 tile=64x96 pack=4 parts=3 sinks=on", Layout::LengthFirst, true),
        ("format=e4m3 tile=64x64 pack=4 cluster=2", Layout::HeadsFirst, false),
        ("format=e4m3 output=f32 d=96 tile=64x32 alibi=on store=direct", Layout::HeadsFirst, true),
        (
            "format=e4m3 d=192x128 tile=64x64 pages=32 sinks=on store=direct overlap=on",
            Layout::HeadsFirst,
            true,
        ),
        (
            "format=e4m3 d=256 tile=64x64 stages=1 mask=window lengths=packed store=direct",
            Layout::LengthFirst,
            true,
        ),
        ("format=e4m3 tile=128x224 store=direct", Layout::LengthFirst, true),
    ] {
        let kernel = kernel(spec);
        assert_eq!(kernel.plan().spec.to_string().parse(), Ok(kernel.plan().spec), "{spec}");
        let AttentionSpec { head: [d, _], pack, .. } = kernel.plan().spec;
        let counts = if spec.contains("window") { vec![50, 0] } else { Vec::new() };
        let own = spec.contains("packed") || spec.contains("pages");
        for (lengths, values) in
            [([70, 130], Values::Normal(1.0)), ([3, 200], Values::Large(30.0)), ([2, 0], Values::Normal(1.0))]
        {
            let all = vec![lengths, [lengths[0], 1], [lengths[0], 129]];
            let case = of_heads(case(lengths[0], lengths[1], d), 2, [2 * pack, 2]);
            let counts = counts.clone();
            let case = Case { lengths: own.then_some(all), layout, values, counts, per_head, ..case };
            for schedule in schedules.next() {
                let checked = run(spec, &kernel, &case, schedule);
                assert!(lengths != [70, 130] || checked.ratio > 0.005, "{spec}: bounds that say nothing");
            }
        }
    }
    refused(&[
        ("format=e4m3", "output is bf16, bf16, f16 or f32 with store=direct, parts or a cluster was needed"),
        ("format=e4m3 store=direct tile=128x112", "a multiple of 32 with 8-bit operands"),
        ("format=e4m3 store=direct lazy=on", "with 8-bit operands"),
        ("format=e4m3 cache=e4m3 store=direct", "cache is e4m3, Q's format alone was needed"),
        ("format=e4m3 output=e4m3 store=direct", "output is e4m3"),
        ("format=e5m2 store=direct", "format is e5m2, bf16, f16 or e4m3 was needed"),
    ]);
}

/// One query sees all keys, so its kernels have no causal mask. The text of a spec may have one all the same, and what was measured with it counts.
#[test]
fn one_query_with_a_causal_mask() {
    let with = |queries| {
        let problem = AttentionProblem::new(2, 4, [queries, 300], 64);
        AttentionRequest { mask: Mask::Causal, ..AttentionRequest::new(problem, 64) }
    };
    let masks = |queries, text: &str| {
        ::kernel::asked::<Attention>(text, &with(queries)).map(|kernel| kernel.plan().spec.mask)
    };
    assert_eq!(masks(1, "tile=64x64"), Ok(Mask::Full));
    assert_eq!(masks(1, "tile=64x64 mask=full"), Ok(Mask::Full));
    assert_eq!(masks(1, "tile=64x64 mask=causal"), Ok(Mask::Causal));
    assert_eq!(masks(2, "tile=64x64"), Ok(Mask::Causal));
    for (queries, mask) in [(1, "window"), (2, "full")] {
        let wrong = masks(queries, &format!("tile=64x64 mask={mask}"));
        assert_eq!(wrong, Err(format!("mask is `{mask}`, `causal` was needed, as the call says")));
    }
    let first = Attention::first(&with(1), &Machine::h200()).expect("a kernel").kernel;
    assert_eq!(first.plan().spec.mask, Mask::Full);
    let masked = AttentionSpec { mask: Mask::Causal, ..first.plan().spec };
    let measured = Attention::measured(&with(1), &Machine::h200(), &[(masked, 1.0)]).expect("it is able to");
    assert_eq!(measured.kernel.plan().spec, masked);
    assert!(Attention::measured(&with(2), &Machine::h200(), &[(first.plan().spec, 1.0)]).is_none());
}
