//! The named fusions: every kernel against its tree, and beside the same kernel of the catalogue without the fusion.

#[path = "../kernel/tests/support/waits.rs"]
mod waits;

use falchion::verify::fusions::ranked;
use falchion::verify::{Bench, Format, FusedGemm, Fusion, fused_catalogue};
use kernel::{Emulator, Engine, GemmProblem};
use rayon::prelude::*;

fn failures(check: impl Fn(&FusedGemm) -> Result<(), String> + Sync) -> Vec<String> {
    let named = |kernel: FusedGemm| check(&kernel).err().map(|error| format!("{}: {error}", kernel.name()));
    fused_catalogue().into_par_iter().filter_map(named).collect()
}

/// Whole tiles and tiles at edges; where three workers have four tiles and eight k-tiles, of which the last is not whole,
/// `stream` divides them.
#[test]
fn every_kernel_computes_its_tree() {
    let problems = [
        GemmProblem { m: 256, n: 768, k: 64 },
        GemmProblem { m: 200, n: 144, k: 72 },
        GemmProblem { m: 256, n: 768, k: 472 },
    ];
    let checked = failures(|kernel| {
        let divides = kernel.kind() == "stream";
        for problem in &problems[..if divides { 3 } else { 2 }] {
            let mut engine = Emulator::new().with_multiprocessors(if divides { 3 } else { 132 });
            let mut bench = Bench::new(&mut engine, 1);
            kernel.check(&mut bench, *problem).map_err(|error| format!("{problem:?}: {error}"))?;
        }
        Ok(())
    });
    assert_eq!(checked, [""; 0]);
}

/// As all others: they may begin before their inputs are written.
#[test]
fn kernels_wait_before_they_touch_memory() {
    let checked = failures(|kernel| {
        let program = kernel.gemm.program().map_err(|error| error.to_string())?;
        waits::fault(&program).map_or(Ok(()), Err)
    });
    assert_eq!(checked, [""; 0]);
}

/// What is measured is the fusion alone: mainloop and schedule are those of the catalogue's kernel.
#[test]
fn kinds_are_those_of_the_catalogue() {
    let compared = failures(|kernel| {
        let plain = kernel::find(&kernel.plain_name()).map_err(|error| error.to_string())?;
        let [ours, theirs] = [kernel.gemm.plan().mainloop, plain.plan().mainloop];
        if ours != theirs || kernel.gemm.schedule() != plain.schedule() {
            return Err(format!("{ours:?}, {}; {theirs:?}, {}", kernel.gemm.schedule(), plain.schedule()));
        }
        Ok(())
    });
    assert_eq!(compared, [""; 0]);
}

/// What the plain selection takes at the shapes that are measured has a fused form with the fusions that are compared, and
/// kernels that cannot store a row of the output are left out.
#[test]
fn fusions_are_ranked_as_plain_kernels() {
    let shapes = [
        (2048, 2048, 2048, "staged"),
        (4096, 4096, 4096, "duo"),
        (4096, 4096, 512, "pingpong"),
        (3000, 5000, 1000, "quad"),
        (8192, 28672, 8192, "wide"),
        (4096, 14336, 4096, "broad"),
        (1024, 1024, 1024, "slim"),
        (512, 512, 512, "small"),
    ];
    let of = |name| Fusion::named(name).expect("a fusion");
    for name in ["bias", "bias-relu", "bias-gelu", "residual"] {
        for (m, n, k, kind) in shapes {
            let ranked = ranked(of(name), Format::Bf16, GemmProblem { m, n, k });
            assert_eq!(ranked.first().map(FusedGemm::kind), Some(kind), "{name}, {m} x {n} x {k}");
        }
    }
    // Two forms of one plain kernel stand beside each other.
    let short = ranked(of("bias-gelu"), Format::Bf16, GemmProblem { m: 4096, n: 4096, k: 512 });
    let kinds: Vec<_> = short.iter().take(2).map(FusedGemm::kind).collect();
    assert_eq!(kinds, ["pingpong", "pingpong6"]);
    // Rows of 1000 elements are 2000 B, of 1000 bytes 1000 B: 62.5 times 16 B.
    let problem = GemmProblem { m: 64, n: 1000, k: 64 };
    assert!(!ranked(of("bias"), Format::Bf16, problem).is_empty());
    assert!(ranked(of("bias-fp8"), Format::Bf16, problem).is_empty());
}

/// A launch for each set of matrices, with arguments of its own, of both kernels.
#[test]
fn both_kernels_are_prepared_for_every_set() {
    let problem = GemmProblem { m: 256, n: 768, k: 512 };
    let mut engine = Emulator::new().with_multiprocessors(3);
    let mut memory = |elements: u32| engine.upload(&vec![0; elements as usize * 2]).expect("memory").address;
    let sets = [(); 2].map(|()| [memory(256 * 512), memory(768 * 512), memory(256 * 768)]);
    let names = ["stream-bias-gelu-bf16-kk", "pingpong-bias-gelu-bf16-kk"];
    for kernel in fused_catalogue().iter().filter(|kernel| names.contains(&kernel.name())) {
        let mut bench = Bench::aligned(&mut engine, 0);
        let both = kernel.prepare(&mut bench, problem, &sets).expect("a legal problem");
        assert_eq!(both.kind, kernel.kind());
        for ready in [both.plain, both.fused] {
            let [first, second] = &ready.launches[..] else { panic!("{} launches", ready.launches.len()) };
            assert_ne!(first.arguments, second.arguments);
            for launch in [first, second] {
                engine.launch(&ready.program, launch.grid, &launch.arguments).expect("a kernel that runs");
            }
        }
    }
}
