//! Texts of scores and masks: what they are, what they say of ranges, and what is refused.

use super::*;
use crate::scores::{AnyScores as _, Scope};

/// A mask's text, and whether the keys of a query are a range.
const MASKS: [(&str, bool); 18] = [
    ("q>=k", true),
    ("k<=q", true),
    ("!(k>q)", true),
    ("q+keys-queries>=k", true),
    ("q>=k&q-k<16", true),
    ("k-q<3&q-k<=2*b+4", true),
    ("k==q", true),
    ("k<5|q>=k", true),
    ("k<keys-3", true),
    ("k<length[b]:s32&q>=k", true),
    ("3*q>=k&k>=q-1", true),
    ("q<=k|k<4", false),
    ("q/8==k/8", false),
    ("2*k<q", false),
    ("q>=k&(k%3!=0|q-k<9)", false),
    ("document[b,q]:s32==document[b,k]:s32&q>=k", false),
    ("keep[q,k]:u8!=0", false),
    ("q+k>4", false),
];

#[test]
fn ranges_have_every_key_that_is_seen_and_exact_ones_no_other() {
    let read = |name: &'static str, at: &[i64]| match name {
        "length" => 17.0,
        "document" => (at[1] / 7) as f64,
        _ => ((at[0] * 5 + at[1] * 3) % 4) as f64,
    };
    let arrays = HostArrays(&read);
    for (text, is_exact) in MASKS {
        let mask: MaskFormula = text.parse().expect(text);
        let scores = FormulaScores::new(None, Some(mask));
        assert_eq!(scores.is_ranged(), is_exact, "{text}");
        for (queries, keys) in [(1, 1), (1, 9), (9, 1), (12, 30), (30, 12), (33, 33)] {
            let of = Scope { queries, keys, head: 1, batch: 1, counts: &[], reals: &[] };
            let mut before = [i64::MIN; 2];
            for row in 0..queries {
                let range = scores.host_range(&of, arrays, row);
                assert!(before[0] <= range[0] && before[1] <= range[1], "{text}: an end decreases at {row}");
                before = range;
                for key in 0..keys {
                    let (sees, within) =
                        (scores.host_sees(&of, arrays, row, key), (range[0]..range[1]).contains(&key));
                    assert!(!sees || within, "{text}: query {row} sees key {key}, not in {range:?}");
                    assert!(!is_exact || sees == within, "{text}: query {row}, key {key}, {range:?}");
                }
            }
        }
    }
}

#[test]
fn scores_have_values_and_derivatives() {
    let read = |name: &'static str, at: &[i64]| match name {
        "slope" => 0.5,
        _ => (at[0] * 10 + at[1]) as f64,
    };
    let of = Scope { queries: 9, keys: 12, head: 2, batch: 1, counts: &[], reals: &[] };
    for (text, value, slope) in [
        ("x", 3.0, 1.0),
        ("2*x+1", 7.0, 2.0),
        ("x-slope[h]*abs(q-k)", 2.0, 1.0),
        ("x*bias[q,k]", 3.0 * 57.0, 57.0),
        ("where(q>k,x,-x)", -3.0, -1.0),
        ("softcap(x,2)", 2.0 * 1.5f64.tanh(), 1.0 - 1.5f64.tanh().powi(2)),
        ("d=x*x; d*d", 81.0, 4.0 * 27.0),
        ("min(max(x,1),2.5)", 2.5, 0.0),
        ("clamp(x,-1,5)/2", 1.5, 0.5),
        ("x+real(7/2)+real(q)/2+(q-k)%4", 3.0 + 3.0 + 2.5 - 2.0, 1.0),
        ("where(x<3.5,exp(x-3),x)", 1.0, 1.0),
        ("queries*x+keys+h+b", 27.0 + 15.0, 9.0),
    ] {
        let scores = FormulaScores::new(Some(text.parse().expect(text)), None);
        let x = collective::Bounded::exact(3.0);
        let [score, derivative] = scores.host_slope(&of, HostArrays(&read), [5, 7], x);
        assert!((score.value - value).abs() < 1e-12, "{text}: {score:?}");
        assert!((derivative.value - slope).abs() < 1e-12, "{text}: {derivative:?}");
        assert_eq!(scores.host_score(&of, HostArrays(&read), [5, 7], x).value, score.value, "{text}");
    }
}

#[test]
fn what_is_no_formula_is_refused_by_its_place() {
    for (text, column, words) in [
        ("x+y", 2, "`y` is no name of scores: there are x, q, k, h, b, queries, keys and inf"),
        ("x+bias[0.5]", 7, "elements are found by whole numbers"),
        ("x+bias[q]:s16", 10, "`s16` is no format"),
        ("x+bias[q]:f64", 2, "arrays of f64 are not read"),
        ("x+(q>=k)", 3, "this is a truth, a number was needed"),
        ("where(q,x,0)", 6, "this is a number, a truth was needed"),
        ("x%2", 0, "`%` of real numbers"),
        ("q/0", 2, "a whole number is divided by 0"),
        ("x==1", 0, "real numbers are compared by"),
        ("tan(x)", 0, "`tan` is no function of scores"),
        ("min(x)", 0, "`min` has 1 arguments, 2 were needed"),
        ("a[q]+a[q,k]", 5, "`a` has 1 dimensions of f32 where it stands first"),
        ("q>=k", 0, "the text is a truth, a number was needed"),
        ("x=3;x", 0, "`x` has a meaning of its own"),
        ("x+q[k]", 2, "`q` has a meaning of its own, and no index"),
        ("x $ 2", 2, "`$` has no meaning"),
        ("a[b,b,b,b,b]", 0, "`a` has 5 dimensions, 4 are legal"),
    ] {
        let error = text.parse::<ScoreFormula>().expect_err(text);
        assert_eq!(error.column, column, "{text}: {error}");
        assert!(error.reason.contains(words), "{text}: {error}");
    }
    let error = "x>0".parse::<MaskFormula>().expect_err("x");
    assert!(error.reason.contains("a mask does not depend on `x`"), "{error}");
    let error = "q-k".parse::<MaskFormula>().expect_err("a number");
    assert!(error.reason.contains("a truth, such as q>=k, was needed"), "{error}");
    // Values with names double the formula each time.
    let doubled: String = (0..40).map(|i| format!("v{}=v{i}*v{i};", i + 1)).collect();
    let error = format!("v0=x;{doubled}v40").parse::<ScoreFormula>().expect_err("too long");
    assert!(error.reason.contains("more than 10000 parts"), "{error}");
}

/// What is beyond an array is its nearest element, also of one that a launch refuses.
#[test]
fn elements_beyond_an_array_are_the_nearest() {
    let array = crate::ArrayRef::packed(0, [3, 5]);
    assert_eq!([[-2, 1], [1, 7], [9, 9]].map(|numbers| array.index(&numbers)), [1, 9, 14]);
    assert_eq!(crate::ArrayRef::packed(0, [0, 5]).index(&[2, 2]), 2);
}

#[test]
fn equal_texts_are_one_value() {
    let [a, b] =
        ["x + bias[q, k]:bf16", "x+bias[q,k]:bf16"].map(|text| text.parse::<ScoreFormula>().expect(text));
    assert!(core::ptr::eq(a.0, b.0));
    assert_eq!(a.text(), "x+bias[q,k]:bf16");
    assert_eq!(a.arrays().collect::<Vec<_>>(), [("bias", Format::Bf16, 2)]);
    let text = "where(!(q>=k)|k==0&h!=2,x/(q-k+0.5),-(x-1))";
    let read: ScoreFormula = text.parse().expect(text);
    assert_eq!(read.text().parse(), Ok(read));
}
