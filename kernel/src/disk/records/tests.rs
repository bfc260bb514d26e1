//! Records in memory, as text and on disk.

use std::fs;
use std::path::Path;

use collective::Form;
use cute_rs::atom::Major;

use super::*;

fn spec(text: &str) -> KernelSpec {
    text.parse().expect("legal")
}

fn measured(text: &str, microseconds: f64, at: u64) -> Measurement {
    Measurement { spec: spec(text), microseconds, at, version: "0.1.0".to_owned(), program: None }
}

fn cube(size: u32) -> Problem {
    Problem::single("bf16", [Major::K; 2], [size; 3])
}

const LARGE: &str = "tile=128x256x64";
const SMALL: &str = "tile=64x64x64";

fn records(rows: &[(u32, &str, f64, u64)]) -> Records {
    let mut records = Records::default();
    for (size, text, microseconds, at) in rows {
        records.insert(cube(*size), measured(text, *microseconds, *at)).expect("legal");
    }
    records
}

fn key(driver: &str) -> Key {
    Key::new("NVIDIA H200", driver, Records::digest()).expect("legal")
}

#[test]
fn the_fastest_kernel_comes_first_and_the_later_time_stays() {
    let records = records(&[
        (64, LARGE, 5.0, 10),
        (64, SMALL, 2.0, 10),
        (128, LARGE, 5.0, 10),
        (128, LARGE, 7.0, 11),
        (256, LARGE, 5.0, 11),
        (256, LARGE, 3.0, 10),
        (512, LARGE, 5.0, 10),
        (512, LARGE, 4.0, 10),
    ]);
    for (why, size, want) in [
        ("the faster kernel first", 64, &[(SMALL, 2.0), (LARGE, 5.0)][..]),
        ("a slower time that is later", 128, &[(LARGE, 7.0)]),
        ("a faster time that is earlier", 256, &[(LARGE, 5.0)]),
        ("of one second, the faster", 512, &[(LARGE, 4.0)]),
        ("never measured", 1024, &[]),
    ] {
        let got = records.lookup(&cube(size)).iter().map(|of| (of.spec, of.microseconds));
        let want = want.iter().map(|(text, microseconds)| (spec(text), *microseconds));
        assert!(got.eq(want), "{why}");
    }
}

/// A merge gives the same result in every order, and when it is repeated.
#[test]
fn merges_commute() {
    let sets = [
        records(&[(64, LARGE, 5.0, 10), (64, SMALL, 2.0, 10)]),
        records(&[(64, LARGE, 4.0, 11), (128, SMALL, 9.0, 1)]),
        records(&[(64, LARGE, 6.0, 11), (64, SMALL, 2.0, 10)]),
        Records::default(),
    ];
    let merged = |order: &[usize]| {
        let mut all = Records::default();
        order.iter().for_each(|&i| all.merge(sets[i].clone()));
        all
    };
    let want = merged(&[0, 1, 2, 3]);
    assert_eq!((want.len(), want.lookup(&cube(64))[1].microseconds), (2, 4.0));
    for order in [[3, 2, 1, 0], [1, 0, 3, 2], [2, 3, 0, 1], [0, 2, 1, 3]] {
        assert_eq!(merged(&order), want, "{order:?}");
        assert_eq!(merged(&order).to_lines(), want.to_lines(), "{order:?}");
    }
    assert_eq!(merged(&[0, 1, 2, 3, 0, 1, 2, 3]), want);
}

/// Two problems that differ in anything have separate measurements.
#[test]
fn problems_are_told_apart() {
    let problem = cube(64);
    let others = [
        problem.clone(),
        Problem { form: Form::Batched, ..problem.clone() },
        Problem { element: "f16".to_owned(), ..problem.clone() },
        Problem { element: "bf16-sparse-a".to_owned(), ..problem.clone() },
        Problem { element: "bf16-sparse-b".to_owned(), ..problem.clone() },
        Problem { majors: [Major::K, Major::Mn], ..problem.clone() },
        Problem { majors: [Major::Mn, Major::K], ..problem.clone() },
        Problem { m: 65, ..problem.clone() },
        Problem { n: 65, ..problem.clone() },
        Problem { k: 65, ..problem.clone() },
        Problem { groups: 2, ..problem.clone() },
        Problem { aligned: [true, true, false], ..problem.clone() },
        Problem { epilogue: "bias-gelu".to_owned(), ..problem },
    ];
    let mut records = Records::default();
    for (i, problem) in others.iter().enumerate() {
        records.insert(problem.clone(), measured(LARGE, 1.0 + i as f64, 1)).expect("legal");
    }
    let (back, warnings) = Records::of_lines(&records.to_lines(), Path::new("memory"));
    assert_eq!((&back, warnings), (&records, Vec::new()));
    for (i, problem) in others.iter().enumerate() {
        let times: Vec<f64> = back.lookup(problem).iter().map(|of| of.microseconds).collect();
        assert_eq!(times, [1.0 + i as f64], "{problem:?}");
    }
}

#[test]
fn times_that_are_none_are_refused() {
    for microseconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let mut records = Records::default();
        let error = records.insert(cube(64), measured(LARGE, microseconds, 1)).expect_err("illegal");
        let words = format!("microseconds is `{microseconds}`, a finite number above 0 was needed");
        assert!(error.to_string().contains(&words), "{error}");
        assert!(records.is_empty());
    }
}

/// A line or a measurement that this version does not understand is dropped; all others are kept.
#[test]
fn what_no_longer_parses_is_dropped_with_a_warning() {
    let good = records(&[(64, LARGE, 5.0, 10)]).to_lines();
    let with = |old: &str, new: &str| {
        let line = good.replacen(old, new, 1);
        assert_ne!(line, good, "{old}");
        line
    };
    let both = records(&[(64, LARGE, 5.0, 10), (64, SMALL, 2.0, 10)]).to_lines();
    for (why, line, kept, words) in [
        ("a good line", good.clone(), 1, None),
        ("an empty line", "\n".to_owned(), 0, None),
        ("a spec with a key that is gone", with("tile=", "brick="), 0, Some("`brick`")),
        ("a spec that is illegal now", with("tile=128x256x64", "tile=128x257x64"), 0, Some("257")),
        ("one of two", both.replacen("tile=64x64x64", "tile=65x64x64", 1), 1, Some("tile=65x64x64")),
        ("a form of tomorrow", with("single", "convolution"), 0, Some("form is `convolution`")),
        ("a layout of nobody's", with(" kk ", " xy "), 0, Some("layout is `xy`")),
        ("no time", with("5.0", "0.0"), 0, Some("microseconds is `0`")),
        ("a negative extent", with(" 64x", " -64x"), 0, Some("extents are `-64x64x64`")),
        ("a word of tomorrow", with(" epilogue", " groups=2 tomorrow=1 epilogue"), 0, Some("`tomorrow=1`")),
        ("no JSON", "tile=128x256x64 5.0 us\n".to_owned(), 0, Some("expected")),
        ("a line that breaks off", good[..good.len() / 2].to_owned() + "\n", 0, Some("EOF")),
    ] {
        let other = records(&[(2048, SMALL, 1.0, 1)]);
        let (read, warnings) = Records::of_lines(&(other.to_lines() + &line), Path::new("the/file"));
        assert_eq!(read.lookup(&cube(2048)).len(), 1, "{why}: other lines stay");
        assert_eq!(read.lookup(&cube(64)).len(), kept, "{why}");
        match (words, warnings.as_slice()) {
            (None, []) => {}
            (Some(words), [warning]) => {
                let text = warning.to_string();
                assert!(text.starts_with("line 2 of the/file was left out: "), "{why}: {text}");
                assert!(text.contains(words), "{why}: {text}");
            }
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[test]
fn what_is_saved_is_loaded_and_merged() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path().join("new"));
    let (here, there) = (key("580.1"), key("535.2"));
    let mut first = records(&[(64, LARGE, 5.0, 10)]);
    let mut second = records(&[(64, LARGE, 6.0, 11), (64, SMALL, 2.0, 10)]);
    assert_eq!(first.save(&cache, &here), Ok(Vec::new()));
    assert_eq!(second.save(&cache, &here), Ok(Vec::new()));
    assert_eq!(first.save(&cache, &here), Ok(Vec::new()), "what was saved before stays");
    assert_eq!(first, second, "it takes over what was saved");
    assert_eq!(Records::load(&cache, &here), (first.clone(), Vec::new()));
    assert_eq!(Records::load(&cache, &there), (Records::default(), Vec::new()), "another driver");
    // The file is readable text.
    let text = fs::read_to_string(cache.path(Kind::Records, &here)).expect("text");
    assert!(text.starts_with("falchion cache 1\nkind records\ncard NVIDIA H200\n"), "{text}");
    assert!(text.ends_with(&first.to_lines()), "{text}");
    // A damaged file is a warning, and the next save replaces it.
    fs::write(cache.path(Kind::Records, &here), &text[..text.len() - 3]).expect("writable");
    let (read, warnings) = Records::load(&cache, &here);
    assert!(read.is_empty() && matches!(warnings[..], [CacheError::Damaged { .. }]), "{warnings:?}");
    assert!(matches!(first.save(&cache, &here).as_deref(), Ok([CacheError::Damaged { .. }])));
    assert_eq!(Records::load(&cache, &here), (first, Vec::new()));
}

/// The problem of a request: types with D's, all rows of groups, C, and alignment of rows.
#[test]
fn requests_have_problems() {
    use crate::{GemmProblem, Request, Types};
    use collective::{Format, MatrixRef};
    let one = GemmProblem { m: 128, n: 256, k: 1023 };
    let packed = Request::packed(Format::Bf16, [Major::K; 2], one);
    let groups = [100, 0, 20].map(|m| GemmProblem { m, ..one });
    let along_k = [128, 0, 895].map(|k| GemmProblem { k, ..one });
    let any = [one, GemmProblem { m: 7, n: 512, k: 64 }];
    let mut padded = packed;
    (padded.call.a.ld, padded.call.b.ld) = (1024, 1024);
    let mut read = padded;
    (read.call.epilogue.beta, read.call.epilogue.c) = (0.5, Some(MatrixRef::new(1 << 20, 256)));
    let mut shifted = padded;
    shifted.call.d.address += 2;
    let scaled = Request::packed(Types::of(Format::E4m3).scaled([1, 128]), [Major::K; 2], one);
    let single = Problem::single("bf16", [Major::K; 2], [128, 256, 1023]);
    let whole = Problem { aligned: [true; 3], ..single.clone() };
    assert_eq!(single.aligned, [false, false, true], "rows of 2046 B");
    let element = |element: &str, of: &Problem| Problem { element: element.to_owned(), ..of.clone() };
    let epilogue = |name: &str, of: &Problem| Problem { epilogue: name.to_owned(), ..of.clone() };
    for (why, request, want) in [
        ("packed", packed, single.clone()),
        ("padded", padded, whole.clone()),
        ("with C", read, epilogue("linear+c", &whole)),
        ("D beside", shifted, Problem { aligned: [true, true, false], ..whole.clone() }),
        ("a batch", padded.batched(3), Problem { form: Form::Batched, groups: 3, ..whole.clone() }),
        (
            "rows",
            padded.ragged(&groups),
            Problem { form: Form::GroupedContiguous, m: 120, groups: 3, ..whole.clone() },
        ),
        (
            "buffers",
            packed.masked(128, &groups),
            Problem { form: Form::GroupedMasked, m: 120, groups: 3, ..single.clone() },
        ),
        (
            "groups along K",
            packed.k_grouped(&along_k),
            Problem { form: Form::KGrouped, groups: 3, ..single.clone() },
        ),
        (
            "any",
            packed.grouped(&any),
            Problem { form: Form::PointerArray, m: 135, n: 512, groups: 2, ..whole.clone() },
        ),
        ("fused", padded.fused("bias-gelu".parse().expect("a formula")), epilogue("bias-gelu", &whole)),
        (
            "fused, of 8 bits",
            padded.fused("bias-fp8".parse().expect("a formula")),
            element("bf16-bf16-e4m3", &epilogue("bias-fp8", &whole)),
        ),
        (
            "scales",
            scaled,
            Problem { aligned: [false, false, true], ..element("e4m3-1x128-128x128", &single) },
        ),
    ] {
        let problem = Problem::of(&request);
        assert_eq!(problem, want, "{why}");
        let mut records = Records::default();
        records.insert(problem, measured(LARGE, 1.0, 1)).expect("legal");
        assert_eq!(
            Records::of_lines(&records.to_lines(), Path::new("memory")),
            (records, Vec::new()),
            "{why}"
        );
    }
}

/// A program of the same spec is another kernel: its time is kept beside, until a later one comes.
#[test]
fn programs_are_told_apart() {
    let of = |microseconds: f64, at: u64, program: Option<&str>| {
        let program = program.map(Digest::of);
        Measurement { program, ..measured(LARGE, microseconds, at) }
    };
    let all = [of(5.0, 10, None), of(4.0, 10, Some("a")), of(3.0, 10, Some("b")), of(6.0, 9, Some("c"))];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let mut records = Records::default();
        for i in order {
            records.insert(cube(64), all[i].clone()).expect("legal");
        }
        assert_eq!(records.lookup(&cube(64)), [&all[2], &all[1], &all[0]].map(Clone::clone), "{order:?}");
        let lines = records.to_lines();
        assert_eq!(lines.matches("program").count(), 2, "{lines}");
        assert_eq!(Records::of_lines(&lines, Path::new("memory")), (records.clone(), Vec::new()));
        records.insert(cube(64), of(9.0, 11, Some("d"))).expect("legal");
        assert_eq!(records.lookup(&cube(64)).len(), 1, "{order:?}");
        let damaged = lines.replacen("\"program\":\"", "\"program\":\"x", 1);
        let (_, warnings) = Records::of_lines(&damaged, Path::new("memory"));
        assert!(
            matches!(&warnings[..], [one] if one.to_string().contains("64 digits were needed")),
            "{warnings:?}"
        );
    }
}
