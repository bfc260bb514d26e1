//! Errors name what the user typed: flags and values.

use std::fs;

use crate::{bytes, f32s, falchion, folder, npy, refused, safetensors};

#[test]
fn values_are_judged_as_values() {
    refused(
        "gemm",
        &[
            (
                "a negative extent",
                &["--m", "-1"],
                &["invalid value '-1' for '--m <M>'", "from 1 to 4294967295"],
            ),
            (
                "a negative infinity",
                &["--beta", "-inf"],
                &["'-inf' for '--beta <BETA>'", "-inf is not finite"],
            ),
            ("an infinity", &["--alpha", "inf"], &["'--alpha <ALPHA>'", "inf is not finite"]),
            ("no number", &["--alpha", "nan"], &["NaN is not finite"]),
            (
                "a double's",
                &["--alpha", "1e400"],
                &["'1e400'", "more than an f64 holds, 1.7976931348623157e308 at most"],
            ),
            (
                "a little more than an f32's",
                &["--beta", "-3.5e38"],
                &["beta: it is -35000000", "f32, which holds 3.4028235e38 at most"],
            ),
            (
                "less than an f32's",
                &["--alpha", "1e-60"],
                &["--alpha is 1e-60", "f32, which holds 1e-45 at least"],
            ),
            ("a word", &["--alpha", "two"], &["'two'", "a number was needed"]),
            ("a negative count", &["--repeat", "-1"], &["'-1' for '--repeat <N>'"]),
            ("negative rows", &["--rows", "-1,3"], &["'-1' for '--rows"]),
            ("a negative shape", &["--group", "-1x8x8"], &["`-1x8x8` is no shape"]),
            ("a negative seed", &["--seed", "-5"], &["'-5' for '--seed"]),
            (
                "a kernel of groups",
                &["--kernel", "ragged-128x256-bf16-kk"],
                &["computes groups of rows", "--rows"],
            ),
            (
                "a kernel of any shapes",
                &["--kernel", "grouped-128x256-bf16-kk"],
                &["a pointer array of GEMMs", "--group"],
            ),
        ],
    );
    refused(
        "trace",
        &[
            ("an infinity", &["--kernel", "64x64-direct-bf16-kk", "--beta", "-inf"], &["-inf is not finite"]),
            (
                "a negative extent",
                &["--kernel", "64x64-direct-bf16-kk", "--k", "-8"],
                &["'-8' for '--k <K>'"],
            ),
            (
                "a kernel of groups",
                &["--kernel", "ragged-128x256-bf16-kk"],
                &["computes groups of rows", "`falchion gemm` and --rows"],
            ),
        ],
    );
    refused(
        "schedule",
        &[
            (
                "a negative extent",
                &["--kernel", "64x64-direct-bf16-kk", "--m", "-1"],
                &["'-1' for '--m <M>'"],
            ),
            (
                "a negative group",
                &["--kernel", "grouped-128x256-bf16-kk", "--group", "-1x8x8"],
                &["`-1x8x8` is no shape"],
            ),
        ],
    );
    refused("bench", &[("a negative extent", &["--m", "-1"], &["'-1' for '--m <M>'"])]);
    refused("layout", &[("a negative tile", &["(4,8)", "--tile", "-1x2"], &["a tile is written"])]);
    refused("plan", &[("a negative extent", &["--m", "-1"], &["'-1' for '--m <M>'"])]);
    refused(
        "verify",
        &[
            ("no schedules", &["--schedules", "0"], &["'0' for '--schedules <N>'", "0 is not in 1.."]),
            (
                "a record that is none",
                &["--suite", "instructions", "--replay", "/dev/null"],
                &["/dev/null", "a file was needed"],
            ),
        ],
    );
}

/// A record with other forms, or with none, is detected before any form runs.
#[test]
fn records_have_every_form() {
    let folder = folder("records");
    let empty = folder.join("empty").display().to_string();
    let broken = folder.join("broken").display().to_string();
    fs::write(&empty, "").expect("a writable folder");
    fs::write(&broken, [9, 0, 0, 0, 1]).expect("a writable folder");
    refused(
        "verify",
        &[
            (
                "empty",
                &["--suite", "instructions", "--replay", &empty],
                &["empty", "has no outputs of form", "more of the"],
            ),
            (
                "broken",
                &["--suite", "instructions", "--replay", &broken],
                &["broken", "breaks off", "5 bytes"],
            ),
        ],
    );
}

#[test]
fn what_is_repeated_of_the_user_is_short() {
    let long = "x".repeat(20_000);
    let folder = folder("long");
    let data = bytes(&f32s(64), f32::to_le_bytes);
    let element = npy(&folder.join("element.npy"), &long[..2000], false, "(8, 8)", &data);
    let shape = npy(&folder.join("shape.npy"), "<f4", false, &format!("({})", "8, ".repeat(3000)), &data);
    let header = npy(&folder.join("header.npy"), "<f4", false, &long, &data);
    let names: Vec<String> = (0..500).map(|i| format!("model.layers.{i}.weight")).collect();
    let tensors: Vec<_> = names.iter().map(|name| (name.as_str(), "F32", [1, 1], vec![0; 4])).collect();
    let many = safetensors(&folder.join("many.safetensors"), &tensors);
    let other = safetensors(&folder.join("other.safetensors"), &[("a", &long, [1, 1], vec![0; 4])]);
    let sum = format!("size({}", "1,".repeat(8000));
    for (command, arguments, words) in [
        ("layout", &[long.as_str()][..], &["column 1: "][..]),
        ("layout", &[&sum], &["column 16006: ", "the expression ends"]),
        ("plan", &["--kernel", &long], &["more characters", "`falchion configs` lists all"]),
        ("verify", &["--filter", &long], &["more characters"]),
        ("verify", &["--suite", &long], &["more characters"]),
        ("gemm", &["--a", &element, "--b", &element], &["element.npy", "more characters"]),
        ("gemm", &["--a", &shape, "--b", &shape], &["shape.npy", "more characters"]),
        ("gemm", &["--a", &header, "--b", &header], &["header.npy", "more characters"]),
        ("gemm", &["--a", &many, "--b", &many], &["500 tensors", "model.layers.0.weight", "and 488 more"]),
        ("gemm", &["--a", &other, "--b", &other], &["other.safetensors", "more characters"]),
    ] {
        refused(command, &[("long", arguments, words)]);
        let run = crate::falchion(&[&[command], arguments].concat());
        assert!(run.stderr.len() < 1500, "{command}: {} characters: {}", run.stderr.len(), run.stderr);
    }
}

#[test]
fn files_are_named() {
    let folder = folder("named");
    let data = bytes(&f32s(64), f32::to_le_bytes);
    let none = npy(&folder.join("none.npy"), "<f4", false, "(0, 8)", &[]);
    let square = npy(&folder.join("square.npy"), "<f4", false, "(8, 8)", &data);
    let tensor = safetensors(&folder.join("none.safetensors"), &[("up", "F32", [8, 0], vec![])]);
    refused(
        "gemm",
        &[
            ("no rows", &["--a", &none, "--b", &square], &["none.npy", "[0, 8]", "at least 1 row"]),
            ("no columns", &["--a", &square, "--b", &tensor], &["none.safetensors", "[8, 0]", "1 column"]),
            (
                "C without a factor",
                &["--a", &square, "--b", &square, "--c", &square],
                &["--c is given and --beta is not", "--beta 1"],
            ),
        ],
    );
    let zero =
        ["gemm", "--engine", "emulator", "--a", &square, "--b", &square, "--c", &square, "--beta", "0"];
    let run = crate::falchion(&zero);
    assert_eq!(run.code, Some(0), "a factor of 0 that was typed leaves C out: {}", run.stderr);
}

/// Other libraries' names of formats mean the same, in options and in specs; what may mean several things, or is a function and no
/// epilogue, is answered with what to write.
#[test]
fn formats_have_the_names_of_other_libraries() {
    let plan = ["plan", "--m", "256", "--n", "256", "--k", "256"];
    for (words, own) in [
        (&["--dtype", "fp16"][..], &["--dtype", "f16"][..]),
        (&["--dtype", "bfloat16"], &["--dtype", "bf16"]),
        (&["--dtype", "int8", "--dtype-b", "uint8"], &["--dtype", "s8", "--dtype-b", "u8"]),
        (&["--dtype", "float8_e4m3fn", "--out-dtype", "float32"], &["--dtype", "e4m3", "--out-dtype", "f32"]),
        (&["--dtype-b", "int4g128z"], &["--dtype-b", "s4g128z"]),
        (&["--epilogue", "bfloat16(acc + bias[n]:fp16)"], &["--epilogue", "bf16(acc + bias[n]:f16)"]),
    ] {
        let [run, of] = [words, own].map(|words| falchion(&[&plan[..], words].concat()));
        assert_eq!((run.code, run.stdout), (Some(0), of.stdout), "{words:?}: {}", run.stderr);
    }
    let [run, of] = ["fp16", "f16"]
        .map(|name| falchion(&["plan", "--kernel", &format!("dtype={name} weights-b=int4 swap=yes")]));
    assert_eq!(
        (run.code, &run.stdout),
        (Some(0), &of.stdout.replace("weights-b=int4", "weights-b=s4")),
        "{}",
        run.stderr
    );
    let which = "e4m3 or e5m2 was needed";
    refused(
        "plan",
        &[
            ("two formats", &["--dtype", "fp8"], &["'fp8' for '--dtype <FORMAT>'", which]),
            ("of B", &["--dtype-b", "fp8"], &["'fp8' for '--dtype-b <FORMAT>'", which]),
            ("of D", &["--out-dtype", "fp8"], &["'fp8' for '--out-dtype <FORMAT>'", which]),
            ("of a spec", &["--kernel", "dtype=fp8"], &["dtype is `fp8`, e4m3 or e5m2 was needed"]),
            ("of a code", &["--kernel", "weights-b=fp8"], &["weights-b is `fp8`, e4m3 or e5m2 was needed"]),
            (
                "of a vector",
                &["--epilogue", "acc + bias[n]:fp8"],
                &["`fp8` is no format", "write e4m3 or e5m2"],
            ),
            (
                "a function",
                &["--epilogue", "relu"],
                &[
                    "`relu` is a function: write relu(alpha*acc), or relu(alpha*acc+bias[n]), which is bias-relu",
                ],
            ),
            (
                "one without a name",
                &["--epilogue", "hard_swish"],
                &[
                    "`hard_swish` is a function: write hard_swish(alpha*acc), or hard_swish(alpha*acc+bias[n])",
                ],
            ),
        ],
    );
}
