//! 2:4 sparse operands on the command line.

use crate::{bytes, f32s, falchion, folder, npy, refused};

/// Random operands are pruned, of one product, a batch and groups of rows.
#[test]
fn products_of_sparse_operands_are_verified() {
    for (arguments, words) in [
        (&["--sparse", "a", "--m", "70", "--n", "40", "--k", "200"][..], " sparse=a "),
        (&["--sparse", "b", "--m", "20", "--n", "136"], " sparse=b "),
        (&["--sparse", "a", "--dtype", "e4m3", "--dtype-b", "e5m2", "--k", "300"], " sparse=a "),
        (&["--sparse", "b", "--dtype", "s8", "--m", "9", "--n", "48"], " sparse=b "),
        (&["--sparse", "a", "--dtype", "tf32", "--m", "65", "--beta", "2"], " sparse=a "),
        (&["--sparse", "a", "--batch", "3", "--m", "70"], "form=batched dtype=bf16 layout=kk sparse=a "),
        (&["--sparse", "b", "--rows", "3,0,70", "--n", "136"], "form=ragged dtype=bf16 layout=kk sparse=b "),
        (
            &["--sparse", "b", "--rows", "3,0,70", "--max-rows", "80"],
            "form=masked dtype=bf16 layout=kk sparse=b ",
        ),
    ] {
        let run = falchion(&[&["gemm", "--engine", "emulator"], arguments].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        assert!(run.stdout.contains(words), "{arguments:?}: no `{words}` in {}", run.stdout);
        assert_eq!(run.stdout.lines().last(), Some("verified"), "{arguments:?}: {}", run.stdout);
    }
}

/// Of a file's four neighbours along K two have to be zero.
#[test]
fn files_of_sparse_operands_are_checked() {
    let folder = folder("sparse");
    let all = f32s(64 * 64);
    let half: Vec<f32> =
        all.iter().enumerate().map(|(i, &value)| if i % 4 < 2 { value } else { 0.0 }).collect();
    let mut broken = half.clone();
    broken[17 * 64 + 22] = 1.0;
    let file = |name: &str, values: &[f32]| {
        npy(&folder.join(name), "<f4", false, "(64, 64)", &bytes(values, f32::to_le_bytes))
    };
    let (dense, pruned, broken) =
        (file("dense.npy", &all), file("pruned.npy", &half), file("broken.npy", &broken));
    let run = falchion(&["gemm", "--engine", "emulator", "--a", &pruned, "--b", &dense, "--sparse", "a"]);
    assert_eq!(run.stdout.lines().last(), Some("verified"), "{}{}", run.stdout, run.stderr);
    refused(
        "gemm",
        &[
            (
                "three of four",
                &["--a", &broken, "--b", &dense, "--sparse", "a"],
                &["--a: ", "in row 17 from column 20 on", "prune the operand first"],
            ),
            // B's rows are K.
            ("along N", &["--a", &dense, "--b", &pruned, "--sparse", "b"], &["--b: ", "row 0 from column 0"]),
        ],
    );
}

#[test]
fn sparse_kernels_are_planned() {
    let cube = ["--m", "8192", "--n", "8192", "--k", "8192"];
    for (arguments, words) in [
        (&["--sparse", "a"][..], &["bf16-sparse-a", " sparse=a tile=", "Sparse<KMajor<bf16>>"][..]),
        (&["--sparse", "b", "--dtype", "e4m3"], &["e4m3-sparse-b", "swap=yes"]),
        (
            &["--sparse", "a", "--layout", "kn"],
            &["directions kn", "Operands<Sparse<KMajor<bf16>>, MnMajor<bf16>>"],
        ),
        (&["--sparse", "a", "--dtype", "s8", "--layout", "kn"], &["B is N-major", "B is transposed first"]),
        (&["--sparse", "b", "--epilogue", "bias-gelu"], &["bf16-sparse-b with bias-gelu"]),
        (&["--sparse", "a", "--batch", "4"], &["form=batched dtype=bf16 layout=kk sparse=a"]),
    ] {
        let run = falchion(&[&["plan"], &cube[..], arguments].concat());
        assert_eq!(run.code, Some(0), "{arguments:?}: {}", run.stderr);
        for word in words {
            assert!(run.stdout.contains(word), "{arguments:?}: no `{word}` in {}", run.stdout);
        }
    }
}

#[test]
fn what_cannot_be_sparse_is_refused() {
    let cube = ["--m", "256", "--n", "256", "--k", "256"];
    let shape = ["--shape", "256x256x256"];
    let scaled = ["--dtype", "e4m3", "--scale-block-a", "1x128", "--scale-block-b", "1x128"];
    for (command, extents) in [("plan", &cube[..]), ("tune", &shape), ("bench", &shape)] {
        let of = |arguments: &[&'static str]| [extents, arguments].concat();
        refused(
            command,
            &[
                ("no operand", &of(&["--sparse", "c"]), &["--sparse", "'c'", "a, b"]),
                (
                    "plain instructions",
                    &of(&["--sparse", "a", "--dtype", "f32"]),
                    &["--sparse is a", "--dtype is f32", "one of bf16, f16"],
                ),
                (
                    "few bits",
                    &of(&["--sparse", "a", "--dtype-b", "s4g128"]),
                    &["--sparse is a", "--dtype-b is s4g128", "leave out one"],
                ),
                (
                    "scales",
                    &[&of(&["--sparse", "b"])[..], &scaled].concat(),
                    &["--scale-block-a cannot be used with --sparse"],
                ),
                (
                    "A along M",
                    &of(&["--sparse", "a", "--layout", "mk"]),
                    &["--sparse is a", "--layout is mk", "--layout kn or kk was needed"],
                ),
                (
                    "B along N",
                    &of(&["--sparse", "b", "--layout", "kn"]),
                    &["--sparse is b", "--layout is kn", "--layout mk or kk was needed"],
                ),
            ],
        );
    }
    let rows = ["--rows", "30,0,500", "--n", "256", "--k", "256", "--sparse", "a"];
    let of_rows = [("groups of rows", &rows[..], &["--rows", "--sparse b was needed"][..])];
    refused("plan", &of_rows);
    refused("tune", &of_rows);
    refused("gemm", &[("groups of rows", &["--rows", "3,5", "--sparse", "a"], &["--sparse b was needed"])]);
    refused(
        "bench",
        &[
            ("experts", &rows, &["leave out --sparse", "falchion tune --rows"]),
            ("launches", &["--launch", "--sparse", "a"], &["--launch", "leave out --sparse"]),
            (
                "a fused epilogue",
                &["--epilogue", "bias", "--sparse", "a"],
                &["operands are bf16-sparse-a", "falchion tune --epilogue bias"],
            ),
        ],
    );
    refused(
        "gemm",
        &[
            ("a named kernel", &["--sparse", "a", "--kernel", "tile=64x64x64"], &["--sparse", "--kernel"]),
            ("directions", &["--sparse", "a", "--layout", "mk"], &["--sparse is a", "--layout is mk"]),
            ("few bits", &["--sparse", "a", "--dtype-b", "s4"], &["--dtype-b is s4", "leave out one"]),
            (
                "bytes as codes",
                &["--sparse", "b", "--dtype-b", "e4m3"],
                &["--dtype-b is e4m3", "leave out one"],
            ),
            ("64 bits", &["--sparse", "b", "--dtype", "f64"], &["--dtype is f64", "one of bf16"]),
        ],
    );
}
