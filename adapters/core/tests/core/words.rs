//! Types, directions, epilogues and specs, as their texts.

use falchion::collective::Format::{self, Bf16, E4m3, F16, F32, S8, S32};
use falchion::cute_rs::atom::Major::{K, Mn};
use falchion::kernel::{AnyGemm, GemmProblem, Machine, Request};
use falchion_core::{Picked, Refusal, aligned, formula, majors, types};

use crate::refused;

/// The format of D is said by a third word alone; words of scales and of a sparse operand are not counted.
#[test]
fn types_of_texts() {
    let block = [1, 128];
    for (text, [a, b, d], said, scaled, sparse) in [
        ("bf16", [Bf16; 3], None, [0; 2], [false; 2]),
        ("f16-f16-f32", [F16, F16, F32], Some(F32), [0; 2], [false; 2]),
        ("e4m3-e4m3-bf16-1x128-128x128", [E4m3, E4m3, Bf16], Some(Bf16), block, [false; 2]),
        ("e4m3-1x128-128x128", [E4m3, E4m3, Bf16], None, block, [false; 2]),
        ("bf16-bf16-f32-sparse-a", [Bf16, Bf16, F32], Some(F32), [0; 2], [true, false]),
        ("bf16-bf16-sparse-b", [Bf16, Bf16, Bf16], None, [0; 2], [false, true]),
        ("s8-s8-s32", [S8, S8, S32], Some(S32), [0; 2], [false; 2]),
        ("bf16-s4g128", [Bf16, Bf16, Bf16], None, [0; 2], [false; 2]),
    ] {
        let (found, format) = types(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(([found.a, found.b, found.d], format), ([a, b, d], said), "{text}");
        assert_eq!((found.scaled, found.sparse), (scaled, sparse), "{text}");
        assert_eq!(found.weights[1].map(|weights| weights.group), (text == "bf16-s4g128").then_some(128));
    }
    for text in ["", "bf17", "bf16-bf16-f32-f32"] {
        assert!(refused(types(text)).starts_with(&format!("types is \"{text}\", one to three of")), "{text}");
    }
}

#[test]
fn directions() {
    for (text, wanted) in [("kk", [K, K]), ("kn", [K, Mn]), ("mk", [Mn, K]), ("mn", [Mn, Mn])] {
        assert_eq!(majors(text).ok(), Some(wanted), "{text}");
    }
    assert_eq!(refused(majors("nk")), "layout is \"nk\", one of kk, kn, mk, mn was needed");
}

/// A formula gives D's format: the one that it has by itself, or the one that is asked for.
#[test]
fn formulas() {
    for (text, d, wanted) in [
        ("relu(acc)", None, Bf16),
        ("relu(acc)", Some(Bf16), Bf16),
        ("relu(acc)", Some(F32), F32),
        ("f32(relu(acc))", None, F32),
    ] {
        let found = formula(text, Bf16, d).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(found.output(Bf16), wanted, "{text}, {d:?}");
    }
    assert!(refused(formula("relu(acc", Bf16, None)).starts_with("epilogue: "));
    let other = refused(formula("f32(relu(acc))", Bf16, Some(F16)));
    assert_eq!(other, "epilogue: f32(relu(acc)) gives f32, and D is f16: the same was needed");
}

/// What a call says may be left out in a spec, and may not be otherwise.
#[test]
fn specs() {
    let problem = GemmProblem { m: 256, n: 128, k: 64 };
    let of = |spec: &str, majors| {
        let request = Request::packed(Format::F16, majors, problem);
        Picked::<AnyGemm>::new(&request, Some(spec), &Machine::h200(), None)
            .map(|gemm| gemm.name().to_owned())
    };
    let all = "dtype=f16 dtype-b=f16 out=f16 form=single layout=kk tile=128x128x64";
    let (whole, short) = (of(all, [K; 2]), of("tile=128x128x64", [K; 2]));
    assert_eq!(whole.ok(), short.ok());
    let other = of("tile=128x128x64", [Mn, Mn]).expect("legal");
    assert!(other.contains("layout=mn"), "{other}");
    for (spec, words) in [
        ("dtype=bf16", "spec: dtype is `bf16`, `f16` was needed, as the call says"),
        ("dtype-b=bf16", "spec: dtype-b is `bf16`, `f16` was needed, as the call says"),
        ("tile=128x128x64,out=f32", "spec: out is `f32`, `f16` was needed, as the call says"),
        ("layout=mk", "spec: layout is `mk`, `kk` was needed, as the call says"),
        ("form=batched", "spec: form is `batched`, `single` was needed, as the call says"),
        ("tile=1x1x1", "spec: "),
        ("colour=red", "spec: "),
        ("epilogue=relu(acc)", "spec: `epilogue=linear` or `epilogue=sourced` was needed"),
    ] {
        let error = match of(spec, [K; 2]) {
            Err(Refusal::Invalid(error)) => error,
            other => panic!("{spec}: {other:?}"),
        };
        assert!(error.starts_with(words), "{spec}: {error}");
    }
}

/// An address says which powers of two divide the later ones, and no more.
#[test]
fn addresses() {
    for bytes in [1, 2, 16, 256] {
        let address = aligned(bytes);
        let multiples = [bytes, 2 * bytes].map(|of| address.is_multiple_of(of.into()));
        assert_eq!(multiples, [true, false], "{bytes}");
    }
}
