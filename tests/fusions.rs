//! The named fusions: every kernel is compared with its tree, and with the same catalogue kernel without the
//! fusion.

#[path = "../kernel/tests/support/waits.rs"]
mod waits;

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
    let problems = [
        GemmProblem { m: 256, n: 768, k: 64 },
        GemmProblem { m: 200, n: 144, k: 72 },
        GemmProblem { m: 256, n: 768, k: 472 },
    ];
    let checked = failures(|kernel| {
        let divides = kernel.kind() == "256x192-stream-k";
        for problem in &problems[..if divides { 3 } else { 2 }] {
            let mut engine = Emulator::new().with_multiprocessors(if divides { 3 } else { 132 });
            let mut bench = Bench::new(&mut engine, 1);
            kernel.check(&mut bench, *problem).map_err(|error| format!("{problem:?}: {error}"))?;
        }
        Ok(())
    });
    assert_eq!(checked, [""; 0]);
}

/// Tiles that are split along K among several workers: each fusion with each reduction, for whole and for
/// partial tiles.
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
    let wrong = |(text, kernel): (&String, FusedGemm)| {
        problems.into_iter().find_map(|problem| {
            let mut engine = Emulator::new().with_multiprocessors(5);
            let checked = kernel.check(&mut Bench::new(&mut engine, 7), problem);
            checked.err().map(|error| format!("{text}, {problem:?}: {error}"))
        })
    };
    let failures: Vec<String> = kernels.into_par_iter().filter_map(wrong).collect();
    assert_eq!(failures, [""; 0]);
}

/// Fused kernels too may begin before their inputs are written.
#[test]
fn kernels_wait_before_they_touch_memory() {
    let checked = failures(|kernel| {
        let program = kernel.gemm.program().map_err(|error| error.to_string())?;
        waits::fault(&program).map_or(Ok(()), Err)
    });
    assert_eq!(checked, [""; 0]);
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

/// The fused epilogues of CUTLASS's device tests for this architecture: how many tests have each, operands, and the epilogue as one
/// line. Of 118 tests, 3 pack a mask into bits, 5 have an auxiliary matrix in another direction than D, and one maps a
/// number to another.
const OF_CUTLASS: [(u32, &str, &str); 26] = [
    (24, "f16", "alpha*scale_a[0]:f32*scale_b[0]:f32*acc + scale_c[0]:f32*(beta*c) + bias[m]"),
    (11, "e5m2", "e5m2((alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:f32 + beta*c)*scale_d[0]:f32)"),
    (8, "e4m3", "f32(alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:f32 + beta*c)"),
    (7, "e4m3", "bf16(alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:f32 + beta*c)"),
    (8, "e4m3", "e4m3((alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:bf16 + beta*c)*scale_d[0]:f32)"),
    (2, "e4m3", "bf16(relu(alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:f32 + beta*c))"),
    (1, "e4m3", "e4m3(relu(alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:bf16 + beta*c)*scale_d[0]:f32)"),
    (1, "e4m3", "bf16(relu(alpha*scale_a[m]:f32*scale_b[n]:f32*acc + bias[m]:f32 + beta*c))"),
    (1, "e4m3", "f32(relu(alpha*scale_a[m]:f32*scale_b[n]:f32*acc + bias[m]:f32 + beta*c))"),
    (1, "e4m3", "e4m3(relu(alpha*scale_a[m]:f32*scale_b[n]:f32*acc + bias[m]:f32 + beta*c)*scale_d[0]:f32)"),
    (5, "f16", "relu(alpha*acc + beta*c)"),
    (2, "f16", "relu(alpha*acc + bias[m]:f32 + beta*c)"),
    (4, "f16", "relu(store(aux[m,n]:f16, alpha*acc + bias[m]:f32 + beta*c))"),
    (2, "f16", "gelu(store(aux[m,n]:f16, alpha*acc + bias[m]:f32 + beta*c))"),
    (2, "f16", "-store(aux[m,n]:f16, alpha*acc + bias[m]:f32 + beta*c)"),
    (1, "f16", "relu(store(aux[m,n]:f16, alpha*acc + bias[m]:s8))"),
    (6, "f16", "alpha*acc + aux[m,n] + beta*c"),
    (1, "f16", "alpha*acc + aux[m,n]:f32 + beta*c"),
    (4, "f16", "alpha*acc + bias[n]:f32 + beta*c"),
    (1, "f16", "d_gelu(alpha*acc + beta*c, aux[m,n])"),
    (2, "f16", "x = aux[m,n]; relu(alpha*acc + x) + x + beta*c"),
    (2, "f16", "x = store(aux[m,n], alpha*acc + beta*c); max(x + bias[m], x)"),
    (2, "f16", "reduce_sum(sums[n], alpha*acc + beta*c)"),
    (2, "f16", "reduce_sum(sums[m], alpha*acc + beta*c)"),
    (2, "f16", "reduce_sum(sums[0], alpha*acc + beta*c)"),
    (
        7,
        "e4m3",
        "e4m3(z = alpha*scale_a[0]:f32*scale_b[0]:f32*acc + bias[m]:f32 + beta*c; \
         a = store(aux[m,n]:e4m3, reduce_amax(amax_aux[0], z)*scale_aux[0]:f32); \
         reduce_amax(amax[0], relu(z))*scale_d[0]:f32)",
    ),
];

#[test]
fn fusions_of_cutlass_are_one_line() {
    let tests: u32 = OF_CUTLASS.iter().map(|(tests, ..)| tests).sum();
    assert_eq!(tests, 118 - 3 - 5 - 1);
    let wrong = |&(_, dtype, text): &(u32, &str, &str)| {
        let check = || -> Result<(), String> {
            let spec = format!("tile=128x64x64 dtype={dtype} store=direct epilogue=\"{text}\"");
            let gemm = KernelSpec::parse(&spec).map_err(|error| error.to_string())?.kernel();
            let fused = FusedGemm::of(gemm.map_err(|error| error.to_string())?).ok_or("no formula")?;
            let mut engine = Emulator::new();
            let problem = GemmProblem { m: 150, n: 76, k: 144 };
            fused.check(&mut Bench::new(&mut engine, 5), problem).map_err(|error| error.to_string())?;
            Ok(())
        };
        check().err().map(|error| format!("{text}: {error}"))
    };
    let failures: Vec<String> = OF_CUTLASS.par_iter().filter_map(wrong).collect();
    assert_eq!(failures, [""; 0]);
}
