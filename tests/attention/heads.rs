//! Heads of all sizes, also those that do not fill slabs of 64 elements in shared memory.

use falchion::attention::Lengths;
use falchion::attention::backward::BackwardSpec;

use super::*;

/// The cases of a spec: lengths that are multiples of nothing, also of one query and without keys.
fn cases(spec: &AttentionSpec, layout: Layout) -> Vec<Case> {
    let AttentionSpec { head: [d, _], pack, lengths, pages, mask, .. } = *spec;
    let own = lengths == Lengths::Packed || pages.is_some();
    let each = |[queries, keys]: [u32; 2]| Case {
        lengths: own.then(|| vec![[queries, keys], [queries, 1], [queries, 129]]),
        layout,
        counts: if mask == Mask::Window { vec![50, 0] } else { Vec::new() },
        reals: if spec.soft_cap { vec![2.0] } else { Vec::new() },
        ..of_heads(case(queries, keys, d), 2, [2 * pack, 2])
    };
    let lengths = if d == 512 {
        [[70, 90], [65, 33], [1, 333], [3, 0]]
    } else {
        [[150, 210], [70, 130], [1, 333], [3, 0]]
    };
    lengths.map(each).to_vec()
}

fn check(spec: &str, layout: Layout, schedules: &mut Schedules) {
    let kernel = kernel(spec);
    assert_eq!(kernel.plan().spec.to_string().parse(), Ok(kernel.plan().spec), "{spec}");
    // The rows of a table have different cases: as many as there are schedules is no multiple of these.
    let row = schedules.0;
    for case in some(cases(&kernel.plan().spec, layout).into_iter(), row, 4) {
        for schedule in schedules.next() {
            let agreed = run(spec, &kernel, &case, schedule);
            let says = case.problem.keys == 0 || agreed.ratio > 0.005;
            assert!(says, "{spec}: bounds that say nothing: {agreed:?}");
        }
    }
}

#[test]
fn forward() {
    let mut schedules = Schedules::default();
    for (spec, layout) in [
        ("d=80 tile=64x64", Layout::Gaps),
        ("d=80 tile=128x112 mask=causal overlap=on", Layout::LengthFirst),
        ("d=80 tile=192x64 mask=window lazy=on", Layout::HeadsFirst),
        ("d=80 tile=128x80 format=f16 lengths=packed mask=causal order=drawn", Layout::LengthFirst),
        ("d=80 tile=64x64 store=direct output=f32 sinks=on", Layout::Gaps),
        ("d=80 tile=64x64 pages=16 pack=4 parts=3", Layout::LengthFirst),
        ("d=80 tile=64x64 pack=8 parts=20 output=f32", Layout::HeadsFirst),
        ("d=80 tile=64x48 pack=4 cluster=4", Layout::Gaps),
        ("d=80 tile=64x64 ctas=2 pack=2", Layout::LengthFirst),
        ("d=112 tile=128x128", Layout::HeadsFirst),
        ("d=112 tile=64x64 mask=causal stages=1", Layout::Gaps),
        ("d=112 tile=64x64 pages=64 lengths=packed mask=causal pack=2", Layout::LengthFirst),
        ("d=112 tile=64x32 pack=4 part=64 mask=causal softcap=on", Layout::HeadsFirst),
        ("d=112 tile=128x64 cluster=3 output=f32", Layout::LengthFirst),
        ("d=32 tile=128x64 mask=causal", Layout::LengthFirst),
        ("d=32 tile=64x64 pack=4 cluster=2", Layout::Gaps),
        ("d=48 tile=64x64 overlap=on alibi=on", Layout::HeadsFirst),
        ("d=48 tile=64x64 pack=4 parts=3", Layout::LengthFirst),
        ("d=144 tile=128x64 mask=causal", Layout::Gaps),
        ("d=160 tile=64x64 pages=32 pack=2", Layout::LengthFirst),
        ("d=176 tile=64x48 pack=2 cluster=3", Layout::HeadsFirst),
        ("d=208 tile=128x64 lazy=on", Layout::LengthFirst),
        ("d=224 tile=64x64 pack=4 parts=2 mask=causal", Layout::Gaps),
        ("d=240 tile=128x64 mask=causal format=f16", Layout::HeadsFirst),
        ("d=112x80 tile=64x64 mask=causal", Layout::LengthFirst),
        ("d=96x80 tile=128x64", Layout::Gaps),
        ("d=128x96 tile=64x64 pack=2", Layout::HeadsFirst),
        ("d=192x64 tile=64x64 pack=2 cluster=2", Layout::LengthFirst),
        ("d=256x32 tile=64x64 mask=causal", Layout::LengthFirst),
    ] {
        check(spec, layout, &mut schedules);
    }
}

/// Two consumers with half of O's columns each, and blocks of keys in turns: an odd and an even number of them.
#[test]
fn of_512_elements() {
    let mut schedules = Schedules::default();
    for (spec, layout) in [
        ("d=512 tile=64x32", Layout::Gaps),
        ("d=512 tile=64x32 mask=causal lazy=on", Layout::LengthFirst),
        ("d=512 tile=64x32 mask=window format=f16 sinks=on", Layout::HeadsFirst),
        ("d=512 tile=64x32 mask=causal lengths=packed order=drawn", Layout::LengthFirst),
        ("d=512 tile=64x32 pack=2 pages=16 store=direct output=f32", Layout::HeadsFirst),
        ("d=512 tile=64x32 pack=4 pages=64 parts=3 mask=causal", Layout::LengthFirst),
        ("d=512 tile=64x32 pack=2 part=64 softcap=on alibi=on", Layout::Gaps),
        ("d=512 tile=64x32 lengths=packed pages=32 pack=2 parts=20 lazy=on", Layout::HeadsFirst),
    ] {
        check(spec, layout, &mut schedules);
    }
    for spec in ["d=512 tile=64x32 pack=8", "d=512 tile=64x32 pack=8 parts=2 mask=causal"] {
        let kernel = kernel(spec);
        for (schedule, keys) in some(Schedule::sweep(6).zip([31, 64, 95, 129, 160].into_iter().cycle()), 0, 2)
        {
            run(spec, &kernel, &of_heads(case(7, keys, 512), 2, [8, 1]), schedule);
        }
    }
}

/// Operands in 8 bits, of which a slab has 128 elements, and caches of them.
#[test]
fn of_8_bits() {
    let mut schedules = Schedules::default();
    for (spec, layout) in [
        ("d=80 cache=e4m3 tile=64x64", Layout::HeadsFirst),
        ("d=80 cache=e4m3 tile=128x48 mask=causal lengths=packed pages=16", Layout::LengthFirst),
        ("d=112 cache=e4m3 tile=64x64 pack=4 parts=3", Layout::LengthFirst),
        ("d=112x48 cache=e4m3 tile=64x32 format=f16 pack=2 cluster=2", Layout::HeadsFirst),
        ("d=32 cache=e4m3 tile=64x64", Layout::LengthFirst),
        ("d=160 cache=e4m3 tile=64x32 mask=window", Layout::HeadsFirst),
        ("format=e4m3 d=80 tile=128x64 mask=causal store=direct", Layout::LengthFirst),
        ("format=e4m3 d=80 tile=64x96 pack=4 parts=3 output=f16", Layout::HeadsFirst),
        ("format=e4m3 d=112 tile=64x64 pages=32 store=direct overlap=on", Layout::LengthFirst),
        ("format=e4m3 d=112x80 tile=64x64 pack=2 cluster=2 output=f32", Layout::HeadsFirst),
        ("format=e4m3 d=48 tile=64x64 store=direct", Layout::HeadsFirst),
        ("format=e4m3 d=32 tile=64x64 store=direct", Layout::LengthFirst),
        ("format=e4m3 d=208 tile=64x64 store=direct mask=causal", Layout::LengthFirst),
    ] {
        check(spec, layout, &mut schedules);
    }
}

#[test]
fn backward() {
    let mut schedules = Schedules::default();
    for (spec, layout) in [
        ("d=80 tile=64x128", Layout::Gaps),
        ("d=80 tile=48x128 mask=causal", Layout::LengthFirst),
        ("d=80 tile=64x64 mask=window deterministic=on", Layout::HeadsFirst),
        ("d=80 tile=64x128 mask=causal lengths=packed", Layout::LengthFirst),
        ("d=80 tile=48x128 split=4 format=f16", Layout::HeadsFirst),
        ("d=80 tile=48x128 mask=causal apart=2", Layout::Gaps),
        ("d=112 tile=64x128 mask=causal deterministic=on", Layout::LengthFirst),
        ("d=112 tile=64x128 softcap=on", Layout::HeadsFirst),
        ("d=112 tile=48x128 split=2 mask=causal deterministic=on", Layout::Gaps),
        ("d=32 tile=64x64 mask=causal", Layout::HeadsFirst),
        ("d=48 tile=128x128", Layout::LengthFirst),
        ("d=48 tile=64x64 apart=1 mask=causal", Layout::HeadsFirst),
        ("d=144 tile=64x64 mask=causal", Layout::Gaps),
        ("d=176 tile=64x64 split=2 deterministic=on", Layout::LengthFirst),
        ("d=208 tile=64x64 apart=1", Layout::HeadsFirst),
        ("d=240 tile=64x64 mask=causal lengths=packed", Layout::LengthFirst),
        ("d=112x80 tile=64x128 mask=causal", Layout::HeadsFirst),
        ("d=128x64 tile=64x128 split=2", Layout::LengthFirst),
        ("d=96x48 tile=48x128 apart=1", Layout::Gaps),
        ("d=192x80 tile=64x64 mask=causal", Layout::HeadsFirst),
        ("d=256x128 tile=64x64 split=4 deterministic=on", Layout::LengthFirst),
    ] {
        let kernel = super::backward::kernel(spec);
        let BackwardSpec { head: [d, _], lengths, mask, soft_cap, .. } = kernel.plan().spec;
        let (row, all) = (schedules.0, [([150, 210], [3, 1]), ([70, 130], [4, 2]), ([1, 200], [2, 2])]);
        for ([queries, keys], heads) in some(all.into_iter(), row, 3) {
            let case = Case {
                lengths: (lengths == Lengths::Packed)
                    .then(|| vec![[queries, keys], [0, 3], [40, 0], [keys, queries]]),
                layout,
                counts: if mask == Mask::Window { vec![50, 10] } else { Vec::new() },
                reals: if soft_cap { vec![2.0] } else { Vec::new() },
                ..of_heads(case(queries, keys, d), 1, heads)
            };
            for schedule in schedules.next() {
                super::backward::run(spec, &kernel, &case, schedule);
            }
        }
    }
}

#[test]
fn refusals() {
    for (text, words) in [
        ("d=512", "the number of queries per tile is 128, 64 with 512 elements of V was needed"),
        ("d=512 tile=64x64", "the number of keys per block is 64, 32 with d=512 was needed"),
        ("d=512 tile=64x32 cache=e4m3", "Q's format alone with 512 elements of V"),
        ("d=512 tile=64x32 cluster=2", "parts, or none, with 512 elements of V"),
        ("d=512 tile=64x32 ctas=2", "1 with more than 64 queries per tile, or 512 elements of V"),
        ("d=576x256", "512 with 576 of Q and K"),
    ] {
        let refused = text.parse::<AttentionSpec>().and_then(Attention::new);
        let error = refused.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let gradient = "d=512 tile=64x64".parse::<BackwardSpec>().and_then(AttentionBackward::new);
    let error = gradient.map(|_| ()).expect_err("no gradient").to_string();
    assert!(error.contains("is 512, a multiple of 16 from 32 to 256 was needed"), "{error}");
    for (text, words) in [
        ("d=72", "d, the elements of a head of Q and K, is 72, a multiple of 16 from 32 to 256"),
        ("d=16", "d, the elements of a head of Q and K, is 16"),
        ("d=272", "d, the elements of a head of Q and K, is 272"),
        ("d=512x256", "d, the elements of a head of Q and K, is 512"),
        ("d=80x40", "d of V and O is 40, a multiple of 16 from 32 to that of Q and K"),
        ("d=80x96", "d of V and O is 96"),
    ] {
        let refused = text.parse::<AttentionSpec>().and_then(Attention::new);
        let error = refused.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
        let refused = text.parse::<BackwardSpec>().and_then(AttentionBackward::new);
        let error = refused.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}
