//! `--family`: the commands for kernels of any family.

use super::falchion;

/// What each command prints, or why it refuses.
#[test]
fn attention_has_the_commands_of_gemm() {
    const OF: [&str; 2] = ["--family", "attention"];
    const CAUSAL: &str = "d=64 tile=64x64 mask=causal";
    for (line, code, words) in [
        (&["plan", "--kernel", CAUSAL][..], 0, "stages of K"),
        (
            &["plan", "--problem", "4x16/4x4096 mask=causal"],
            0,
            "4x16/4x4096x4096 mask=causal, predicted for H200",
        ),
        (&["emit", "--kernel", CAUSAL], 0, ".visible .entry attention_bf16_64_64x64_causal"),
        (
            &["verify", "--problem", "1x4/2x70x90 d=64", "--engine", "emulator"],
            0,
            "4 passed, 0 failed, 0 skipped",
        ),
        // Another mask than that of the problem.
        (
            &["verify", "--problem", "1x1x70 d=64", "--kernel", CAUSAL],
            1,
            "FAIL 1x1/1x70x70 d=64: d=64 tile=64x64 mask=causal",
        ),
        (&["trace", "--problem", "1x1x70 d=64"], 0, "kernel    attention_bf16_64_64x80_full"),
        (&["trace", "--problem", "64x64x8192"], 2, "blocks are multiplied or stored, at most 65536"),
        (&["explore", "-o", "-", "--problem", "1x1x70 d=64"], 0, "One warpgroup computes everything."),
        (&["explore"], 2, "--family attention needs --problem"),
        (&["explore", "--problem", "64x64x8192"], 2, "blocks are multiplied or stored, at most 65536"),
        (
            &["explore", "--problem", "1x1x70 d=64", "--m", "64"],
            2,
            "--m cannot be used with --family attention",
        ),
        (&["explore", "--problem", "1x1x70 d=64", "--kernel", "tile=7x7"], 2, "--kernel tile=7x7"),
        (&["plan"], 2, "--family attention needs --problem"),
        (&["plan", "--problem", "4x16"], 2, "sequences x heads x queries x keys were needed"),
        (
            &["plan", "--problem", "4x16x64 tile=64x64"],
            2,
            "is no word of a problem of attention: these are format, cache",
        ),
        (&["plan", "--problem", "4x16x64 d=72"], 2, "--problem 4x16/16x64x64 d=72"),
        (
            &["verify", "--problem", "1x1x70", "--suite", "quick"],
            2,
            "--suite cannot be used with --family attention",
        ),
    ] {
        let run = falchion(&[line, &OF].concat());
        let text = format!("{}{}", run.stdout, run.stderr);
        assert!(run.code == Some(code) && text.contains(words), "{line:?}: {:?} {text}", run.code);
    }
    let without = falchion(&["plan", "--problem", "4x16x64"]);
    assert!(without.stderr.contains("--problem needs --family"), "{}", without.stderr);
}

/// By its family, GEMM has them for problems as texts: every form, direction and type.
#[test]
fn gemm_has_them_as_any_family() {
    const OF: [&str; 2] = ["--family", "gemm"];
    const ONE: &str = "single 70x40x136 bf16 kk epilogue=linear";
    for (line, code, words) in [
        (&["plan", "--kernel", "tile=128x64x64"][..], 0, "consumer warpgroups"),
        (&["plan", "--problem", "single 4096x4096x4096 e4m3 kk epilogue=linear"], 0, "predicted for H200"),
        (&["plan", "--problem", "single 4096x4096x4096 bf16 kk epilogue=linear"], 0, "measured, 174.6 us"),
        (&["plan", "--problem", "grouped 4096x512x512 bf16 kk groups=8 epilogue=linear"], 0, "form=grouped"),
        (&["emit", "--kernel", "tile=128x64x64 mask=causal"], 2, "--kernel tile=128x64x64 mask=causal"),
        (&["emit", "--kernel", "tile=128x64x64"], 0, ".visible .entry gemm_bf16_kk_128x64x64"),
        (&["verify", "--problem", ONE, "--engine", "emulator"], 0, "4 passed, 0 failed, 0 skipped"),
        (
            &[
                "verify",
                "--problem",
                "ragged 70x40x136 bf16 kn groups=3 epilogue=linear+c",
                "--engine",
                "emulator",
            ],
            0,
            "4 passed, 0 failed, 0 skipped",
        ),
        (
            &[
                "verify",
                "--problem",
                "single 70x136x256 e4m3-1x128-128x128 kk epilogue=linear",
                "--engine",
                "emulator",
            ],
            0,
            "4 passed, 0 failed, 0 skipped",
        ),
        (&["verify", "--problem", ONE, "--engine", "emulator", "--compare", "5"], 0, "200 of 2800 elements"),
        // Another type than that of the problem.
        (
            &["verify", "--problem", ONE, "--kernel", "dtype=f16"],
            2,
            "the kernel's types is f16, bf16 was needed",
        ),
        // Weights in floats, a formula, and GEMMs that records describe.
        (
            &[
                "verify",
                "--problem",
                "single 64x64x128 bf16-e5m2g128 kk epilogue=linear",
                "--engine",
                "emulator",
            ],
            0,
            "4096 of 4096 elements",
        ),
        (
            &["verify", "--problem", "single 64x64x64 bf16 kk epilogue=bias", "--engine", "emulator"],
            0,
            "4096 of 4096 elements",
        ),
        (
            &[
                "verify",
                "--problem",
                "grouped 128x64x64 bf16 kk groups=2 epilogue=linear",
                "--engine",
                "emulator",
            ],
            0,
            "8192 of 8192 elements",
        ),
        (&["trace", "--problem", ONE], 0, "kernel    gemm_bf16_"),
        (&["trace", "--problem", "ragged 70x40x136 bf16 kn groups=3 epilogue=linear"], 0, "kernel    gemm_"),
        (&["explore", "-o", "-", "--problem", ONE], 0, "consumer warpgroups"),
        (&["plan"], 2, "--family gemm needs --problem"),
        (&["plan", "--problem", "64x64x64"], 2, "has no epilogue"),
        (&["plan", "--problem", "single 64x64x64 bf17 kk epilogue=linear"], 2, "element is `bf17`"),
    ] {
        let run = falchion(&[line, &OF].concat());
        let text = format!("{}{}", run.stdout, run.stderr);
        assert!(run.code == Some(code) && text.contains(words), "{line:?}: {:?} {text}", run.code);
    }
}

/// A family whose calls have three programs.
#[test]
fn attention_backward_has_them_too() {
    const OF: [&str; 2] = ["--family", "attention-backward"];
    const CAUSAL: &str = "d=64 tile=64x64 mask=causal";
    for (line, code, words) in [
        (&["plan", "--kernel", CAUSAL][..], 0, "buffers of dS"),
        (&["plan", "--problem", "4x16x4096 mask=causal"], 0, "4x16/16x4096x4096 mask=causal, predicted"),
        (&["emit", "--kernel", CAUSAL], 0, ".visible .entry attention_backward_bf16_64_64x64_causal"),
        (
            &["verify", "--problem", "1x4/2x70x90 d=64 mask=causal", "--engine", "emulator"],
            0,
            "4 passed, 0 failed, 0 skipped",
        ),
        // Another mask than that of the problem.
        (
            &["verify", "--problem", "1x1x70 d=64", "--kernel", CAUSAL],
            1,
            "FAIL 1x1/1x70x70 d=64: d=64 tile=64x64 mask=causal",
        ),
        (&["trace", "--problem", "1x1x70 d=64"], 0, "kernel    attention_backward_bf16_64_"),
        (&["plan", "--problem", "4x16x64 d=192x128"], 0, "d=192x128 tile="),
        (
            &["plan", "--problem", "4x16x64 d=72"],
            2,
            "d, the elements of a head of Q and K, is 72, a multiple of 16 from 32 to 256 was needed",
        ),
    ] {
        let run = falchion(&[line, &OF].concat());
        let text = format!("{}{}", run.stdout, run.stderr);
        assert!(run.code == Some(code) && text.contains(words), "{line:?}: {:?} {text}", run.code);
    }
}

/// A family of several kernels, with tables and without products.
#[test]
fn rows_have_them_too() {
    const OF: [&str; 2] = ["--family", "rows"];
    const SUMS: &str = "gather-sum 70x40 bf16 table=9 choices=2 first=9 limit=30";
    for (line, code, words) in [
        (&["plan", "--kernel", "kernel=gather words=on"][..], 0, "bytes at a time"),
        (&["plan", "--problem", "gather 4096x8192 f16"], 0, "gather 4096x8192 f16, predicted for H200"),
        (&["plan", "--problem", "gather 4096x8192 f16"], 0, "kernel=gather format=f16 words=on"),
        (&["plan", "--problem", "add 64x40", "--card", "h100"], 0, "add 64x40 bf16, predicted for H100"),
        (&["emit", "--kernel", "kernel=peak format=f16"], 0, ".visible .entry cross_entropy_statistics_f16"),
        (&["verify", "--problem", "add 9x40", "--engine", "emulator"], 0, "1 passed, 0 failed, 0 skipped"),
        (&["verify", "--problem", "gather 9x40", "--engine", "emulator"], 0, "2 passed, 0 failed, 0 skipped"),
        (&["verify", "--problem", SUMS, "--engine", "emulator", "--compare", "5"], 0, "200 of 2800 elements"),
        (&["verify", "--problem", "merge 9 ranks=3", "--engine", "emulator"], 0, "18 of 18 elements"),
        (&["verify", "--problem", "gradient 0x40", "--engine", "emulator"], 0, "0 of 0 elements"),
        (
            &["verify", "--problem", "merge-attention 9x40 heads=2", "--engine", "emulator"],
            0,
            "738 of 738 elements",
        ),
        (
            &["verify", "--problem", "append-pages 9x40 heads=2 wide=on", "--engine", "emulator"],
            0,
            "2560 of 2560 elements",
        ),
        // A kernel of another problem.
        (
            &["verify", "--problem", "add 9x40", "--kernel", "kernel=peak"],
            2,
            "the kernel's name is peak, add was needed, as the problem says",
        ),
        (&["trace", "--problem", SUMS], 0, "kernel    gather_bf16_summed"),
        (&["trace", "--problem", "append-pages 9x40"], 0, "kernel    append_pages_bf16"),
        (&["trace", "--problem", "peak 9x40 f16"], 0, "kernel    cross_entropy_statistics_f16"),
        (&["trace", "--problem", "add 70000x8"], 2, "blocks are multiplied or stored, at most 65536"),
        (
            &["verify", "--problem", "add 4294967295x4294967288"],
            2,
            "blocks are multiplied or stored, at most 16777216",
        ),
        (&["verify", "--problem", "gather 1x1048576 table=4294967295"], 2, "GB of memory are needed"),
        (&["explore", "-o", "-", "--problem", "add 9x40"], 0, "bytes at a time"),
        (&["plan"], 2, "--family rows needs --problem"),
        (
            &["plan", "--problem", "add 9x12"],
            2,
            "--problem add 9x12: `columns=12`: a multiple of 8 was needed",
        ),
        (&["plan", "--problem", "norm 9x8"], 2, "`kernel=norm`: add, gather, gather-sum"),
        (&["emit", "--kernel", "format=f16"], 2, "--kernel format=f16: `kernel`: add, gather"),
        (&["emit", "--kernel", "kernel=add format=f32"], 2, "`format=f32`: bf16 or f16 was needed"),
    ] {
        let run = falchion(&[line, &OF].concat());
        let text = format!("{}{}", run.stdout, run.stderr);
        assert!(run.code == Some(code) && text.contains(words), "{line:?}: {:?} {text}", run.code);
    }
}
