//! The backward pass.

use emulator::Schedule;
use falchion::attention::backward::{AttentionBackward, BackwardCall, BackwardSpec, Step};
use falchion::attention::{Causal, Count, Lengths, Scope, Scores};
use falchion::collective::Real;
use falchion::kernel::{Family, Kernel};
use falchion::prelude::Emulator;
use falchion::verify::family::Agreed;

use super::{Case, DEFAULT, Layout, Schedules, Values, case, of_heads, some};

pub(crate) fn kernel(spec: &str) -> AttentionBackward {
    let spec = spec.parse().unwrap_or_else(|error| panic!("{spec}: {error}"));
    AttentionBackward::new(spec).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

pub(crate) fn run(name: &str, kernel: &AttentionBackward, case: &Case, schedule: (Schedule, u64)) -> Agreed {
    run_on(3, name, kernel, case, schedule)
}

fn run_on(
    multiprocessors: u32,
    name: &str,
    kernel: &AttentionBackward,
    case: &Case,
    (schedule, seed): (Schedule, u64),
) -> Agreed {
    let mut engine = Emulator::new().with_multiprocessors(multiprocessors).with_schedule(schedule, seed);
    let checked = case.check_backward(&mut engine, kernel);
    checked.unwrap_or_else(|error| panic!("{name}, {case:?}, {schedule:?} {seed}: {error}"))
}

#[test]
fn kernels() {
    for spec in [
        "d=64 tile=64x64",
        "d=64 tile=64x64 mask=causal",
        "d=64 tile=128x128 format=f16",
        "d=64 tile=16x64 mask=causal deterministic=on",
        "",
        "mask=causal",
        "tile=48x128 mask=causal deterministic=on",
        "tile=80x128",
        "tile=80x128 mask=causal",
        "d=96 tile=64x128 mask=causal",
        "tile=32x64",
        "d=192x128 tile=64x64",
        "d=192x128 tile=64x64 mask=causal format=f16 deterministic=on",
        "d=192 tile=64x64 mask=causal",
        "d=256 tile=64x64",
        "d=256 tile=64x64 mask=causal deterministic=on",
    ] {
        let kernel = kernel(spec);
        let case = of_heads(case(150, 210, kernel.plan().spec.head[0]), 1, [2, 1]);
        let checked = run(spec, &kernel, &case, DEFAULT);
        assert!(checked.least > 0.01, "{spec}: bounds that say nothing: {checked:?}");
    }
}

#[test]
fn lengths() {
    for (row, spec) in ["d=64 tile=64x64", "d=64 tile=32x64 mask=causal"].into_iter().enumerate() {
        let kernel = kernel(spec);
        let keys = [0, 1, 64, 65, 200];
        let all = [1, 63, 65, 130].into_iter().flat_map(|queries| keys.map(|keys| (queries, keys)));
        for (queries, keys) in some(all, row, 2) {
            run(spec, &kernel, &case(queries, keys, 64), DEFAULT);
        }
        let nothing = run(spec, &kernel, &case(0, 5, 64), DEFAULT);
        assert_eq!(nothing.compared, 2 * 5 * 64, "dK and dV are zeros");
    }
}

/// Sequences of lengths of their own in one launch: without queries, without keys, of one row, of whole tiles and not.
#[test]
fn lengths_that_differ() {
    let all = [
        vec![[70, 70], [0, 50], [1, 1], [64, 64], [130, 0], [0, 0], [63, 129]],
        vec![[200, 300]],
        vec![[0, 0], [5, 7]],
        vec![[0, 40], [0, 30]],
        vec![[40, 0]],
    ];
    for (row, spec) in [
        "d=64 tile=64x64 lengths=packed",
        "d=64 tile=32x64 mask=causal lengths=packed deterministic=on mixed=0",
        "d=256 tile=64x64 lengths=packed",
        "d=192 tile=64x64 mask=causal lengths=packed deterministic=on",
        "tile=64x128 mask=causal lengths=packed",
        "d=64 tile=32x64 mask=causal lengths=packed split=2 deterministic=on",
        "d=64 tile=32x64 mask=causal lengths=packed apart=2",
        "d=64 tile=64x64 lengths=packed apart=1 whole=1",
    ]
    .into_iter()
    .enumerate()
    {
        let kernel = kernel(spec);
        // Ten, so that in steps of seven the rows have both layouts in turns.
        let cases = all
            .iter()
            .flat_map(|lengths| [Layout::LengthFirst, Layout::Gaps].map(|layout| (lengths, layout)));
        for (lengths, layout) in some(cases, row, 7) {
            let case = of_heads(case(0, 0, kernel.plan().spec.head[0]), 0, [4, 2]);
            run(spec, &kernel, &Case { layout, lengths: Some(lengths.clone()), ..case }, DEFAULT);
        }
    }
    let spec = "d=64 tile=128x128 lengths=packed deterministic=on";
    for schedule in some(Schedule::sweep(3), 1, 3) {
        let lengths = Some(vec![[150, 200], [129, 260]]);
        run(spec, &kernel(spec), &Case { lengths, ..of_heads(case(0, 0, 64), 0, [2, 1]) }, schedule);
    }
}

/// The masks of specs that take numbers, with equal lengths and with others.
#[test]
fn windows_and_chunks() {
    for (mask, all) in [
        ("window", vec![vec![0, 0], vec![70, 0], vec![20, 33], vec![1000, 1000]]),
        ("chunked", vec![vec![1], vec![50], vec![1000]]),
    ] {
        for (row, counts) in all.into_iter().enumerate() {
            let of = |case| Case { counts: counts.clone(), ..of_heads(case, 1, [2, 1]) };
            for packed in some([false, true].into_iter(), row, 2) {
                let (spec, case, schedule) = if packed {
                    let lengths = Some(vec![[150, 210], [90, 70], [3, 0]]);
                    let spec = format!("d=64 tile=32x64 mask={mask} lengths=packed deterministic=on");
                    (spec, Case { lengths, ..of(case(0, 0, 64)) }, (Schedule::Random, 1))
                } else {
                    (format!("d=64 tile=64x64 mask={mask}"), of(case(150, 210, 64)), DEFAULT)
                };
                run(&spec, &kernel(&spec), &case, schedule);
            }
        }
    }
}

#[test]
fn heads_and_layouts() {
    for (row, layout) in [Layout::HeadsFirst, Layout::LengthFirst, Layout::Gaps].into_iter().enumerate() {
        // With mixed=0 blocks of keys are mixed with those of no other head.
        let split =
            ["d=64 tile=64x64 mask=causal split=4", "d=64 tile=64x64 split=8 mixed=4 deterministic=on"];
        let whole = ["d=64 tile=64x64 mask=causal", "d=64 tile=64x64 mixed=0 deterministic=on"];
        for spec in some(whole.into_iter().chain(split), row, 2) {
            run(spec, &kernel(spec), &Case { layout, ..of_heads(case(70, 100, 64), 2, [6, 2]) }, DEFAULT);
        }
    }
}

/// CTAs of earlier heads store zeros for the sums of later ones, whose CTAs wait for them.
#[test]
fn zeros_of_later_heads() {
    for (row, spec) in [
        "d=64 tile=64x64 mixed=0",
        "d=64 tile=32x64 mask=causal mixed=0 split=2",
        "d=64 tile=128x128 mixed=0 apart=2",
        "d=256 tile=64x64 mask=causal mixed=0 apart=1",
        "d=64 tile=64x64 lengths=packed mixed=0",
    ]
    .into_iter()
    .enumerate()
    {
        let kernel = kernel(spec);
        let all = [(150, 210), (70, 400), (400, 70)].into_iter().zip([[6, 2], [4, 4], [5, 1]]);
        for ((queries, keys), heads) in some(all, row, 3) {
            let case = of_heads(case(queries, keys, kernel.plan().spec.head[0]), 0, heads);
            let lengths = kernel.plan().spec.lengths == Lengths::Packed;
            let lengths = lengths.then(|| vec![[queries, keys], [0, 3], [keys, queries]]);
            for schedule in some(Schedule::sweep(4), row, 7) {
                run(spec, &kernel, &Case { lengths: lengths.clone(), ..case.clone() }, schedule);
            }
        }
    }
}

/// One CTA, or a few, walk over all blocks of keys: also over those that no query sees, and that do not exist.
#[test]
fn ctas_walk_over_blocks() {
    for (row, spec) in [
        "d=64 tile=64x64 mixed=0",
        "d=64 tile=32x64 mask=causal",
        "d=64 tile=128x128 mask=causal format=f16",
        "mask=causal mixed=4",
        "d=96 tile=48x128 mask=causal",
        "tile=32x128 mask=causal mixed=3",
        "d=64 tile=64x64 mask=causal lengths=packed",
        "tile=64x128 mask=causal lengths=packed",
    ]
    .into_iter()
    .enumerate()
    {
        let kernel = kernel(spec);
        assert!(kernel.plan().rings.blocks.is_some(), "{spec}: it walks");
        let all =
            [(150, 410), (0, 300), (300, 70), (1, 200)].into_iter().zip([[2, 1], [2, 2], [4, 2], [3, 1]]);
        for ((queries, keys), heads) in some(all, row, 4) {
            let case = of_heads(case(queries, keys, kernel.plan().spec.head[0]), 1, heads);
            let packed = kernel.plan().spec.lengths == Lengths::Packed;
            let lengths = packed.then(|| vec![[queries, keys], [0, 3], [40, 0], [keys, queries]]);
            for (schedule, multiprocessors) in
                some(Schedule::sweep(4).zip([1, 2, 3].into_iter().cycle()), row, 7)
            {
                run_on(
                    multiprocessors,
                    spec,
                    &kernel,
                    &Case { lengths: lengths.clone(), ..case.clone() },
                    schedule,
                );
            }
        }
    }
    for mask in ["window", "chunked"] {
        let spec = format!("d=64 tile=64x64 mask={mask}");
        let counts = if mask == "window" { vec![20, 33] } else { vec![50] };
        let case = Case { counts, ..of_heads(case(200, 410, 64), 1, [4, 2]) };
        run_on(2, &spec, &kernel(&spec), &case, DEFAULT);
    }
}

/// CTAs of a cluster take the tiles of all heads in turns, and CTAs that add up in memory those of one head, also where there are fewer tiles than
/// CTAs, and no queries or keys.
#[test]
fn ctas_that_share_queries() {
    for (row, spec) in [
        "d=64 tile=64x64 mask=causal split=2",
        "d=64 tile=128x128 split=4 deterministic=on",
        "d=64 tile=32x64 mask=causal split=8 mixed=3 deterministic=on",
        "tile=64x128 mask=causal split=2",
        "d=96 tile=48x128 split=4",
        "d=256 tile=64x64 mask=causal split=2",
        "d=192x128 tile=64x64 split=8 deterministic=on",
        "d=64 tile=64x64 mask=causal apart=1",
        "d=64 tile=128x128 apart=2 mixed=3",
        "tile=64x128 mask=causal apart=3",
        "d=96 tile=48x128 apart=1",
        "d=256 tile=64x64 mask=causal apart=2",
        "d=192x128 tile=64x64 apart=1",
        "d=64 tile=32x64 mask=causal apart=1 whole=1",
        "d=64 tile=64x64 apart=2 whole=1 mixed=0",
    ]
    .into_iter()
    .enumerate()
    {
        let kernel = kernel(spec);
        let d = kernel.plan().spec.head[0];
        let extents = [[150, 210], [130, 64], [1, 200], [70, 1], [300, 40]];
        let all =
            extents.into_iter().flat_map(|extents| [[3, 1], [4, 2], [2, 2]].map(|heads| (extents, heads)));
        for ((queries, keys), heads) in some(all.map(|([q, k], heads)| ((q, k), heads)), row, 7) {
            run(spec, &kernel, &of_heads(case(queries, keys, d), 0, heads), DEFAULT);
        }
        for schedule in some(Schedule::sweep(4), row, 4) {
            run(spec, &kernel, &of_heads(case(150, 210, d), 0, [3, 1]), schedule);
        }
        for (queries, keys) in [(0, 100), (100, 0)] {
            run(spec, &kernel, &of_heads(case(queries, keys, d), 0, [2, 1]), DEFAULT);
        }
    }
}

#[test]
fn values() {
    for values in [Values::Normal(1e-4), Values::Normal(20.0), Values::Large(1e4), Values::Large(1e-4)] {
        for format in ["bf16", "f16"] {
            let spec = format!("d=64 tile=64x64 mask=causal format={format}");
            run(&spec, &kernel(&spec), &Case { values, ..case(130, 200, 64) }, DEFAULT);
        }
    }
}

#[test]
fn schedules() {
    for (row, spec) in [
        "d=64 tile=128x128 mask=causal",
        "d=64 tile=64x64 deterministic=on",
        "tile=48x128 mask=causal",
        "d=256 tile=64x64",
        "d=192x128 tile=64x64 mask=causal deterministic=on",
    ]
    .into_iter()
    .enumerate()
    {
        let kernel = kernel(spec);
        for schedule in some(Schedule::sweep(4), row, 7) {
            let case = of_heads(case(200, 150, kernel.plan().spec.head[0]), 1, [4, 2]);
            run(spec, &kernel, &case, schedule);
        }
    }
}

/// In a fixed order, dQ has the same bits under every schedule.
#[test]
fn a_fixed_order_has_the_same_bits() {
    for (spec, case) in [
        ("d=64 tile=64x64 mask=causal deterministic=on", case(200, 300, 64)),
        ("d=192 tile=64x64 deterministic=on", case(70, 130, 192)),
    ] {
        let kernel = kernel(spec);
        let bits = |(schedule, seed)| {
            let mut engine = Emulator::new().with_schedule(schedule, seed);
            let given = case.given_backward(&mut engine, &kernel).expect("memory");
            let call = given.lent(&mut engine, &kernel);
            kernel.run(&mut engine, &call).expect("it runs");
            ["dQ", "dK", "dV"].map(|name| given.checks.read(&mut engine, name).expect("memory"))
        };
        let first = bits(DEFAULT);
        for schedule in some(Schedule::sweep(6), 1, 4) {
            assert!(bits(schedule) == first, "{spec}: {schedule:?}");
        }
    }
}

#[test]
fn specs() {
    for text in ["", "format=f16 d=64 tile=128x64 mask=causal lengths=packed deterministic=on mixed=8"] {
        let spec: BackwardSpec = text.parse().expect("a spec");
        assert_eq!(spec.to_string(), text);
    }
    for (text, words) in [
        ("d=72", "d, the elements of a head of Q and K, is 72, a multiple of 16 from 32 to 256 was needed"),
        ("d=64x128", "d of V and O is 128, a multiple of 16 from 32 to that of Q and K was needed"),
        ("d=many", "`d=many`: elements of a head, for example 128 or 192x128 was needed"),
        (
            "d=256",
            "the number of keys per block, with heads of more than 128 elements, is 128, 64 was needed",
        ),
        (
            "d=192x128 tile=32x64",
            "the number of queries per tile, with heads of more than 128 elements, is 32, 64 was needed",
        ),
        ("tile=100x64", "the number of queries per tile is 100"),
        ("tile=64x96", "the number of keys per block is 96, 64 or 128 was needed"),
        ("d=64", "the number of queries per tile is 64, 128 for 128 keys with d=64 was needed"),
        (
            "tile=128x128",
            "needs about 300 registers for a tile of 128 x 128, it has 240: take fewer queries per tile",
        ),
        ("tile=96x128", "needs about 260 registers for a tile of 96 x 128, it has 240"),
        (
            "split=3",
            "split, the CTAs that share the queries of a block of keys, is 3, 1, 2, 4 or 8 was needed",
        ),
        (
            "apart=65",
            "apart, the CTAs that add up dK and dV of a head in memory, is 65, a number up to 64 was needed",
        ),
        ("apart=many", "`apart=many`: 0, or a number of CTAs was needed"),
        ("whole=most", "`whole=most`: a number of heads of keys was needed"),
        (
            "split=2 apart=1",
            "apart, the CTAs that add up dK and dV of a head in memory, beside clusters that share queries, is 1, 0 was needed",
        ),
        (
            "apart=1 deterministic=on",
            "apart, the CTAs that add up dK and dV of a head in memory, in a fixed order, is 1, 0 was needed",
        ),
        (
            "whole=3",
            "whole, the heads of keys before those of which heads of queries are apart, is 3, 0 was needed",
        ),
        ("split=many", "`split=many`: 1, 2, 4 or 8 was needed"),
        ("mixed=few", "`mixed=few`: a number of blocks of keys was needed"),
        ("format=e4m3", "format is e4m3, bf16 or f16 was needed"),
        ("mask=none", "`mask=none`: full, causal, window or chunked was needed"),
        ("lengths=many", "`lengths=many`: equal or packed was needed"),
        ("deterministic=yes", "`deterministic=yes`: on or off was needed"),
        ("colour=red", "one of the keys"),
    ] {
        let refused = text.parse::<BackwardSpec>().and_then(AttentionBackward::new);
        let error = refused.map(|_| ()).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// What fits into registers fits into shared memory.
#[test]
fn every_plan_fits_into_shared_memory() {
    let mut count = 0;
    let heads = (32..=256).step_by(16).flat_map(|d| [(d, 32), (d, d / 32 * 16), (d, d)]);
    for (d, dv) in heads.filter(|of| of.1 >= 32) {
        for (queries, keys) in (16..=128).step_by(16).flat_map(|queries| [(queries, 64), (queries, 128)]) {
            let text = format!("d={d}x{dv} tile={queries}x{keys}");
            let Ok(kernel) = AttentionBackward::new(text.parse().expect("a spec")) else { continue };
            let bytes = kernel.plan().cta.shared_bytes;
            assert!(bytes <= 232_448, "{text}: {bytes} B");
            count += 1;
        }
    }
    assert!(count > 20, "{count}");
}

#[test]
fn calls_that_are_refused() {
    let kernel = kernel("d=64 tile=64x64");
    let case = case(70, 70, 64);
    let mut engine = Emulator::new();
    let given = case.given_backward(&mut engine, &kernel).expect("memory");
    let lent = given.lent(&mut engine, &kernel);
    let main = kernel.step(Step::Main);
    assert!(main.launch(&lent, 132).is_ok());
    assert!(
        Family::serves(&main, &given.request).is_err_and(|error| error.contains("one of three programs"))
    );
    let with = |change: &dyn Fn(&mut BackwardCall)| {
        let mut call = lent.clone();
        change(&mut call);
        main.launch(&call, 132).map(|_| ()).expect_err("illegal").to_string()
    };
    for (words, error) in [
        ("there are 1 heads of queries and 3 of keys", with(&|call| call.forward.problem.heads[1] = 3)),
        ("the scale is 0", with(&|call| call.forward.problem.scale = 0.0)),
        ("dO is a null pointer", with(&|call| call.d_o.address = 0)),
        ("dQ begins at 0x", with(&|call| call.d_q.address += 2)),
        ("dV's leading dimension is 63 elements", with(&|call| call.d_v.row = 63)),
        ("the log-sum-exp begins at 0x0", with(&|call| call.forward.log_sum_exp = 0)),
        ("the forward call has pages or factors", with(&|call| call.forward.pages.count = 1)),
        ("the workspace has 0 B, 33936 B were needed", with(&|call| call.workspace = None)),
        ("full takes 0 whole and 0 real arguments, 1 and 0", with(&|call| call.forward.counts.push(1))),
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
}

/// Keys at most `before` before a query; the mask says which blocks are seen.
struct Window;

impl Scores for Window {
    const MASKS: bool = true;
    const COUNTS: &'static [&'static str] = &["before"];

    fn name() -> String {
        "window".into()
    }

    fn seen<N: Count>(of: &Scope<'_, N>, [first, last]: [N; 2]) -> [N; 2] {
        [of.diagonal(first) - of.counts[0], of.diagonal(last).plus(1)]
    }

    fn sees<N: Count>(of: &Scope<'_, N>, row: N, key: N) -> N::Truth {
        let own = of.diagonal(row);
        (own - of.counts[0]).at_most(key) & key.at_most(own)
    }
}

/// Chunks of 32 keys, by heads; the mask says nothing of blocks.
struct Chunks;

impl Scores for Chunks {
    const MASKS: bool = true;

    fn name() -> String {
        "chunks".into()
    }

    fn sees<N: Count>(of: &Scope<'_, N>, row: N, key: N) -> N::Truth {
        let chunk = row.constant(32) * of.head.plus(1);
        (row / chunk).equals(key / chunk)
    }
}

/// Scores of a polynomial of the products, that fall with the distance.
struct Fading;

impl Scores for Fading {
    const CHANGES: bool = true;
    const REALS: &'static [&'static str] = &["pace"];

    fn name() -> String {
        "fading".into()
    }

    fn score<N: Count>(of: &Scope<'_, N>, row: N, key: N, x: N::Real) -> N::Real {
        x.times(0.5) + (x * x).times(0.1) - (of.diagonal(row) - key).real().abs() * of.reals[0]
    }
}

/// Scores that are changed: caps, slopes of heads, with masks, in every kind of kernel; and a function of one's own, whose derivative is that
/// of the same function.
#[test]
fn scores_that_are_changed() {
    let mut schedules = Schedules::default();
    for (row, (spec, reals, counts)) in [
        ("d=64 tile=64x64 softcap=on", vec![1.5], vec![]),
        ("d=64 tile=64x64 alibi=on mask=causal", vec![], vec![]),
        ("d=128 softcap=on alibi=on mask=window", vec![2.0], vec![90, 20]),
        ("d=96 tile=64x128 softcap=on", vec![2.0], vec![]),
        ("d=192 tile=64x64 softcap=on alibi=on mask=causal", vec![2.5], vec![]),
        ("d=256 tile=64x64 softcap=on", vec![3.0], vec![]),
        ("d=192x128 tile=64x64 alibi=on deterministic=on", vec![], vec![]),
        ("d=64 tile=64x64 softcap=on alibi=on lengths=packed split=2", vec![1.0], vec![]),
        ("d=64 tile=64x64 softcap=on alibi=on lengths=packed apart=2 mask=causal", vec![4.0], vec![]),
    ]
    .into_iter()
    .enumerate()
    {
        let kernel = kernel(spec);
        assert_eq!(kernel.plan().spec.to_string().parse(), Ok(kernel.plan().spec), "{spec}");
        let lengths = spec.contains("packed").then(|| vec![[70, 150], [3, 90], [0, 4]]);
        // Long heads are slow to check.
        let ([d, _], values) = (kernel.plan().spec.head, Values::Normal(2.0));
        let case = match d {
            64 => of_heads(case(90, 140, d), 2, [4, 2]),
            _ => of_heads(case(70, 130, d), 1, [2, 1]),
        };
        let case = Case { lengths, counts, reals, values, per_sequence: row % 2 == 1, ..case };
        for schedule in schedules.next() {
            run(spec, &kernel, &case, schedule);
        }
    }
    let wide: BackwardSpec = "d=64 tile=128x128".parse().expect("a spec");
    let refused = AttentionBackward::with::<Fading>(wide).map(|_| ()).expect_err("too few registers");
    assert!(refused.to_string().contains("it has 240: take fewer queries per tile"), "{refused}");
    let spec: BackwardSpec = "d=64 tile=64x64 mask=causal".parse().expect("a spec");
    let own = AttentionBackward::with::<(Causal, Fading)>(spec).expect("legal");
    let case = Case { reals: vec![0.25], ..of_heads(case(90, 130, 64), 1, [2, 1]) };
    run("a function of one's own", &own, &case, DEFAULT);
}

#[test]
fn masks_of_ones_own() {
    for text in ["d=64 tile=64x64", "d=64 tile=32x64 deterministic=on mixed=0"] {
        let spec: BackwardSpec = text.parse().expect("a spec");
        let window = AttentionBackward::with::<Window>(spec).expect("legal");
        let lengths = [(200, 170), (130, 300), (65, 1)];
        let all = [0, 70, 1000].into_iter().flat_map(|before| lengths.map(|of| (before, of)));
        for (before, (queries, keys)) in some(all, text.len(), 2) {
            let case = Case { counts: vec![before], ..of_heads(case(queries, keys, 64), 1, [2, 1]) };
            run(text, &window, &case, (Schedule::Random, 1));
        }
        let chunks = AttentionBackward::with::<Chunks>(spec).expect("legal");
        run(text, &chunks, &of_heads(case(200, 150, 64), 1, [2, 1]), DEFAULT);
    }
}
