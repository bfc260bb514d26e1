//! The named fusions: every kernel is compared with its tree, and with the same catalogue kernel without the
//! fusion.

use cute_rs::atom::Major;
use falchion::verify::fusions::ranked;
use falchion::verify::{Bench, Format, Formula, FusedGemm, fused_catalogue};
use kernel::driver::tune::Inputs;
use kernel::{Emulator, Engine, GemmProblem, KernelSpec, Request};
use rayon::prelude::*;

fn failures(check: impl Fn(&FusedGemm) -> Result<(), String> + Sync) -> Vec<String> {
    let named = |kernel: FusedGemm| check(&kernel).err().map(|error| format!("{}: {error}", kernel.name()));
    fused_catalogue().into_par_iter().filter_map(named).collect()
}

/// Whole tiles and tiles at edges. With three workers, four tiles and eight k-tiles (the last one partial),
/// `256x192-stream-k` splits tiles.
#[test]
fn every_kernel_computes_its_tree() {
    let problem = |[m, n, k]: [u32; 3]| GemmProblem { m, n, k };
    let problems = [[256, 384, 64], [200, 144, 72]].map(problem);
    let divided = [[256, 768, 64], [200, 144, 72], [256, 768, 472]].map(problem);
    let checked = failures(|kernel| {
        let divides = kernel.kind() == "256x192-stream-k";
        for problem in if divides { &divided[..] } else { &problems } {
            let mut engine = Emulator::new().with_multiprocessors(if divides { 3 } else { 132 });
            let mut bench = Bench::new(&mut engine, 1);
            kernel.check(&mut bench, *problem).map_err(|error| format!("{problem:?}: {error}"))?;
        }
        Ok(())
    });
    assert_eq!(checked, [""; 0]);
}

/// Tiles that are split along K among several workers: each fusion with each reduction, for whole or for
/// partial tiles, with `cargo xtask test --long` for both.
#[test]
fn divided_tiles_are_fused_like_whole_ones() {
    let mut texts = Vec::new();
    for fusion in Formula::all() {
        for (store, reduction) in ["", " store=direct"]
            .into_iter()
            .flat_map(|store| ["ordered", "atomic", "separate"].map(|reduction| (store, reduction)))
        {
            texts.push(format!(
                "epilogue={} tile=128x128x64 scheduler=stream-k min-k-tiles=1 reduction={reduction}{store}",
                fusion.name()
            ));
        }
    }
    let fused = |text: &String| FusedGemm::of(KernelSpec::parse(text).ok()?.kernel().ok()?);
    let kernels: Vec<_> = texts.iter().filter_map(|text| Some((text, fused(text)?))).collect();
    // Some fusions need a particular store, or an ordered reduction.
    assert!(kernels.len() >= 90, "{} of {}", kernels.len(), texts.len());
    let problems = [[128, 128, 512], [136, 176, 200]].map(|[m, n, k]| GemmProblem { m, n, k });
    let long = std::env::var_os("FALCHION_LONG").is_some();
    let wrong = |(number, (text, kernel)): (usize, (&String, FusedGemm))| {
        // Six kernels have one fusion: each reduction gets both kinds of tiles.
        let of_turn = if long { 0..2 } else { number % 2..number % 2 + 1 };
        problems[of_turn].iter().copied().find_map(|problem| {
            let mut engine = Emulator::new().with_multiprocessors(5);
            let checked = kernel.check(&mut Bench::new(&mut engine, 7), problem);
            checked.err().map(|error| format!("{text}, {problem:?}: {error}"))
        })
    };
    let failures: Vec<String> = kernels.into_par_iter().enumerate().filter_map(wrong).collect();
    assert_eq!(failures, [""; 0]);
}

/// The difference is only the fusion: mainloop and schedule are those of the catalogue's kernel.
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

/// The whole space exists with every fusion, and each of its kernels has a counterpart without the fusion.
/// Where rows of the output are not a multiple of 16 bytes, all kernels store directly from registers.
#[test]
fn fusions_are_ranked_as_plain_kernels() {
    for (m, n, k) in
        [(2048, 2048, 2048), (4096, 4096, 512), (64, 1000, 64), (8192, 28672, 8192), (7, 512, 4096)]
    {
        let problem = GemmProblem { m, n, k };
        for fusion in Formula::all() {
            let all = ranked(fusion, Format::Bf16, problem);
            for kernel in &all {
                let plain = kernel::find(&kernel.plain_name()).expect("a plain kernel");
                let [fused, plain] = [kernel.gemm.plan(), plain.plan()];
                assert_eq!(fused.mainloop.tile, plain.mainloop.tile, "{}", kernel.name());
                let staged = fused.epilogue.staged_bits > 0;
                assert!(!staged || kernel.stores(n), "{} at {n} columns", kernel.name());
            }
            let name = fusion.name();
            let most = ["bias", "bias-relu", "bias-gelu", "residual"].contains(&name);
            assert!(!most || all.len() > 8, "{name}, {m} x {n} x {k}: {}", all.len());
        }
    }
}

/// Each set of matrices gets arguments of its own.
#[test]
fn calls_of_sets_run() {
    let problem = GemmProblem { m: 256, n: 768, k: 512 };
    let request = Request::packed(collective::Format::Bf16, [Major::K; 2], problem);
    let engine = &mut Emulator::new().with_multiprocessors(3);
    let inputs = Inputs::new(engine, &request).expect("memory");
    let names = ["256x192-stream-k-bias-gelu-bf16-kk", "128x128-pingpong-bias-gelu-bf16-kk"];
    for kernel in fused_catalogue().iter().filter(|kernel| names.contains(&kernel.name())) {
        let program = kernel.gemm.program().expect("legal");
        let mut launches = Vec::new();
        for set in &inputs.sets()[..2] {
            let mut bench = Bench::aligned(engine, 0);
            let mut call = kernel.call(&mut bench, set).expect("memory");
            let resident = engine.resident_clusters(&program).expect("legal");
            call.workspace = engine.workspace(kernel.gemm.workspace(&call, resident)).expect("memory");
            let launch = kernel.gemm.launch(&call, resident).expect("legal").expect("rows");
            engine.launch(&program, launch.grid, &launch.arguments).expect("a kernel that runs");
            launches.push(launch.arguments);
        }
        assert_ne!(launches[0], launches[1]);
    }
}
