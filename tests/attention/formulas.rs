//! Scores and masks as text, forward and backward.

use super::*;
use falchion::attention::backward::AttentionBackward;

/// A spec's formulas: with arrays of every kind, ranges and none.
const FORMULAS: [&str; 12] = [
    "score=x-slope[h]*abs(q-k)",
    "score=x+bias[b,h,q,k]:bf16",
    "score=x+bias[h,q,k] sees=q>=k",
    "sees=q+keys-queries>=k&q+keys-queries-k<40",
    "sees=document[b,q]:s32==document[b,k]:s32",
    "sees=keep[b,q,k]:u8%3!=0",
    "score=softcap(x,3)+table[h,clamp(k-q+20,0,40)]:f16",
    "sees=q>=k|k<9",
    "score=where(q>k&h!=1,x/2,-x) sees=(q+k)%7!=3",
    "sees=k<8*(length[b]:s32+2)",
    "score=x*scale[b,k]+real(document[k]:s32) sees=document[k]:s32>0",
    "score=sigmoid(x)+exp(-abs(x))*0.5-q/16%2",
];

#[test]
fn formulas() {
    let mut schedules = Schedules::default();
    let shapes = ["d=64 tile=64x64", "d=128 tile=128x80 lazy=on", "d=64 tile=192x48 overlap=on"];
    for (row, formulas) in FORMULAS.into_iter().enumerate() {
        for of in some(shapes.into_iter(), row, 3) {
            let spec = format!("{of} {formulas}");
            let kernel = kernel(&spec);
            let d = kernel.plan().spec.head[0];
            for [queries, keys] in some([[150, 150], [70, 260], [200, 90]].into_iter(), row, 3) {
                let case = of_heads(case(queries, keys, d), 2, [4, 2]);
                for schedule in schedules.next() {
                    run(&spec, &kernel, &case, schedule);
                }
            }
        }
    }
}

#[test]
fn formulas_of_caches_and_packed_sequences() {
    for (row, formulas) in FORMULAS.into_iter().enumerate() {
        let of = [
            "d=64 tile=64x64 lengths=packed",
            "d=64 tile=64x32 pages=32 pack=2 parts=2",
            "d=64 tile=64x64 pack=2 cluster=2",
            "d=64 tile=64x64 lengths=packed order=drawn",
        ];
        let spec = format!("{} {formulas}", of[row % of.len()]);
        let kernel = kernel(&spec);
        let case = of_heads(case(40, 90, 64), 2, [4, 2]);
        let case = Case { lengths: Some(vec![[40, 90], [3, 7], [0, 60], [21, 21]]), ..case };
        run(&spec, &kernel, &case, DEFAULT);
    }
}

#[test]
fn gradients_of_formulas() {
    let of = [
        "d=64 tile=64x64",
        "d=64 tile=64x64 deterministic=on",
        "d=128 tile=64x128 lengths=packed",
        "d=96 tile=80x128",
        "d=64 tile=64x64 split=2",
        "d=192x128 tile=64x64",
    ];
    for (row, formulas) in FORMULAS.into_iter().enumerate() {
        let spec = format!("{} {formulas}", of[row % of.len()]);
        let kernel = AttentionBackward::new(spec.parse().expect("a spec")).expect("legal");
        let case = of_heads(case(70, 140, kernel.plan().spec.head[0]), 2, [2, 1]);
        let case = Case { lengths: Some(vec![[70, 140], [3, 7], [33, 60]]), ..case };
        let mut engine = Emulator::new().with_multiprocessors(3);
        let checked = case.check_backward(&mut engine, &kernel);
        checked.unwrap_or_else(|error| panic!("{spec}: {error}"));
    }
}

#[test]
fn formulas_that_are_refused() {
    for (spec, words) in [
        (
            "d=64 mask=causal sees=q>=k",
            "mask is causal, full with score or sees, which say the mask, was needed",
        ),
        ("d=64 softcap=on score=x", "softcap is on, off with score or sees"),
        ("d=64 alibi=on score=x", "alibi is on, off with score or sees"),
        (
            "d=64 score=x+a[q] sees=a[k]:s32>0",
            "the array is a, the same format and dimensions in score and sees",
        ),
        ("d=64 pack=2 sees=h>2", "pack is 2, 1 with sees that depends on the head"),
    ] {
        let refused = Attention::new(spec.parse().expect("a spec")).expect_err(spec);
        assert!(refused.to_string().contains(words), "{spec}: {refused}");
    }
    let refused = "d=64 score=y".parse::<AttentionSpec>().expect_err("no name");
    assert!(refused.to_string().contains("`score=y`: a formula of x, q, k, h and b"), "{refused}");
    let refused = AttentionRequest::try_from("1x2x64 d=64 score=x+y".to_owned()).expect_err("no name");
    assert!(refused.contains("`y` is no name of scores"), "{refused}");

    let spec = "d=64 score=x+bias[h,q,k]";
    let request: AttentionRequest = format!("1x4x64x80 {spec}").parse().expect("a problem");
    let kernel = kernel(spec);
    let mut call = Attention::call(&request);
    for (of, at) in [(&mut call.q, 1), (&mut call.k, 2), (&mut call.v, 3), (&mut call.o, 4)] {
        of.address = at << 20;
    }
    assert!(kernel.launch(&call, 132).is_ok());
    for (change, words) in [
        (
            (|call: &mut AttentionCall| call.arrays.clear()) as fn(&mut AttentionCall),
            "the formulas have 1 arrays (bias), 0 were given",
        ),
        (
            |call| call.arrays[0].shape = vec![4, 64],
            "the array bias has 2 dimensions and 3 strides, 3 were needed",
        ),
        (
            |call| call.arrays[0].shape = vec![4, 64, 79],
            "the array bias has 79 elements along dimension 2, 80 keys at least",
        ),
        (|call| call.arrays[0].address = 0, "the array bias"),
        (|call| call.arrays[0].address = 258, "the array bias"),
    ] {
        let mut call = call.clone();
        change(&mut call);
        let refused = kernel.launch(&call, 132).map(|_| ()).expect_err(words);
        assert!(refused.to_string().contains(words), "{refused}");
    }
}
