//! NVIDIA's assembler compiles every kernel of the catalogue, latent attention, and every instruction the printer can write.
//!
//! `cargo xtask test` downloads `ptxas`, names it in `FALCHION_PTXAS`, and runs these tests with the others.

#[path = "../assembler/mod.rs"]
mod assembler;
mod instructions;
#[path = "../random/mod.rs"]
mod random;

use assembler::{Report, assemble, complaints};
use cute_rs::atom::Major;
use kernel::Kernel;
use ptx::{Entry, Function, Special, Target};

/// Whether a kernel is assembled. With `cargo xtask test --long` all are. Otherwise the K-major kernels of
/// `bf16`, and one in 16 of those that differ from them only in the format or the directions.
fn judged((number, gemm): &(usize, kernel::AnyGemm)) -> bool {
    let first = gemm.element() == "bf16" && gemm.plan().majors() == [Major::K; 2];
    first || number % 16 == 0 || long()
}

/// In long runs all, else one in `step`.
fn some<T>(all: impl IntoIterator<Item = T>, step: usize) -> impl Iterator<Item = T> {
    all.into_iter().step_by(if long() { 1 } else { step })
}

/// Whether everything is assembled: `cargo xtask test --long`.
pub(crate) fn long() -> bool {
    std::env::var_os("FALCHION_LONG").is_some()
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn every_catalogue_kernel_assembles_without_spills_or_serialization() {
    use rayon::prelude::*;
    let catalogue: Vec<_> = kernel::catalogue().into_iter().chain(kernel::several()).collect();
    assert!(catalogue.len() >= 24);
    catalogue.into_par_iter().enumerate().filter(judged).for_each(|(_, entry)| {
        let program = entry.program().expect("a legal program");
        let report = assemble(entry.name(), program.text());
        assert!(report.accepted, "{}:\n{}", entry.name(), report.log);
        assert!(report.log.contains("bytes spill stores"), "no resource report: {}", report.log);
        assert_eq!(complaints(&report), [""; 0], "{}", entry.name());
    });
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn the_self_test_of_compilers_assembles_without_spills_or_serialization() {
    let program = falchion::check::compiler_program().expect("a legal program");
    let report = assemble("compiler", program.text());
    assert!(report.accepted, "{}", report.log);
    assert_eq!(complaints(&report), [""; 0]);
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn kernels_without_wgmma_assemble_without_spills() {
    // Partial sums of `f64` that are exchanged between CTAs.
    let divided = ["reduction=ordered", "reduction=atomic", "reduction=separate divide=split3"].map(|how| {
        let spec = format!("dtype=f64 tile=128x64x16 consumers=1 stages=4 scheduler=stream-k {how}");
        kernel::find(&spec).expect("a legal spec")
    });
    let failures: Vec<String> = kernel::by_threads()
        .iter()
        .chain(&divided)
        .filter_map(|gemm| refused(gemm.name(), &gemm.program().expect("a legal program")))
        .collect();
    assert_eq!(failures, [""; 0]);
}

/// Larger tables of groups: roles with few registers go through the groups of an entry, and many groups are sorted.
#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn kernels_of_many_groups_assemble_without_spills() {
    use rayon::prelude::*;
    let usual = kernel::several()
        .into_iter()
        .filter(|gemm| gemm.form().has_table() && gemm.name().ends_with("bf16-kk"));
    let specs: Vec<_> = usual
        .flat_map(|gemm| {
            let spec = gemm.spec().expect("of built-in parts");
            [512, 4096].map(|most_groups| kernel::KernelSpec { most_groups, ..spec })
        })
        .collect();
    let judged = |spec: &kernel::KernelSpec| {
        spec.most_groups == 4096 && spec.mainloop.tile[1] == 256 && spec.mainloop.cluster == [1, 1]
    };
    let failures: Vec<_> = specs
        .par_iter()
        .filter(|spec| long() || judged(spec))
        .filter_map(|spec| {
            refused(&spec.to_string(), &spec.kernel().expect("legal").program().expect("legal"))
        })
        .collect();
    assert_eq!(failures, [""; 0]);
}

/// The kernels that prepare operands.
#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn kernels_that_prepare_operands_assemble_without_spills() {
    use collective::Format;
    let transposes = [Format::E4m3, Format::Bf16, Format::Tf32, Format::F64].map(|format| {
        kernel::Transpose::of(format).expect("at most 64 bits").program().expect("a legal program")
    });
    let compressors = Format::operands()
        .map(|format| kernel::Compress::of(format).expect("an operand").program().expect("a legal program"));
    let failures: Vec<String> = transposes
        .into_iter()
        .chain(compressors)
        .filter_map(|program| refused(program.name(), &program))
        .collect();
    assert_eq!(failures, [""; 0]);
}

/// Attention, whose registers are all in use: heads of each size, forms with the most of them, and latent attention with the most
/// coordinates in its producer; one in three of them, with `cargo xtask test --long` all. The assembler takes the order of products
/// badly if it is another one.
#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn attention_assembles_without_spills_or_serialization() {
    use falchion::attention::Attention;
    use falchion::attention::backward::AttentionBackward;
    let forward = [
        "tile=128x160 lazy=on overlap=on",
        "tile=128x192 mask=causal lazy=on",
        "mask=causal order=drawn overlap=on",
        "d=64 tile=192x128 mask=causal order=drawn",
        "d=64 tile=192x128 mask=causal overlap=on",
        "d=96 mask=window softcap=on alibi=on sinks=on",
        "d=192x128 tile=192x80 lazy=on overlap=on",
        "d=256 tile=128x80 lengths=packed order=drawn",
        "format=e4m3 tile=128x192 store=direct",
        "d=80 tile=128x192 mask=causal lazy=on overlap=on",
        "d=112 tile=128x176 lazy=on",
        "d=208 tile=128x64 mask=causal overlap=on",
        "d=512 tile=64x32 mask=causal lazy=on",
        "d=512 tile=64x32 pages=64 pack=4 parts=3",
        "d=512 tile=64x32 mask=window softcap=on alibi=on sinks=on lengths=packed pages=16 pack=2 part=64 order=drawn output=f32",
        "cache=e4m3 tile=64x128 pages=64 pack=8",
        "tile=64x176 pack=8 lazy=on",
        "tile=64x128 pages=16 pack=8 parts=16",
        "d=576x512 tile=64x64 pack=64",
        "d=576x512 tile=64x64 pack=64 lazy=on parts=8 pages=64 mask=causal",
        "d=576x512 tile=64x64 mask=window softcap=on alibi=on sinks=on lengths=packed pages=16 pack=2 part=64 order=drawn output=f32",
        "d=576x512 tile=64x64 pack=64 lazy=on loaders=4",
        "d=576x512 tile=64x64 lengths=packed pages=16 pack=64 parts=8 mask=causal order=drawn loaders=4",
    ];
    let backward = [
        "mask=causal deterministic=on",
        "d=64 tile=128x128 mask=causal deterministic=on",
        "d=64 tile=128x128",
        "d=96 lengths=packed",
        "tile=80x128",
        "d=192x128 tile=64x64",
        "d=192 tile=64x64 lengths=packed deterministic=on",
        "d=256 tile=64x64",
        "d=256 tile=64x64 mask=causal deterministic=on",
        "d=256 tile=64x64 mask=window lengths=packed format=f16",
        "mask=causal softcap=on alibi=on",
        "d=64 tile=64x64 softcap=on",
        "d=256 tile=64x64 softcap=on alibi=on",
        "d=80 tile=80x128 mask=causal",
        "d=112 tile=64x128",
        "d=240 tile=64x64 mask=causal",
    ];
    let forward = some(forward, 3).map(|words| {
        let kernel = Attention::new(words.parse().expect("a spec")).expect("legal");
        (words, kernel.program().expect("a legal program"))
    });
    let backward = some(backward, 3).map(|words| {
        let kernel = AttentionBackward::new(words.parse().expect("a spec")).expect("legal");
        (words, kernel.program().expect("a legal program"))
    });
    let failures: Vec<_> =
        forward.chain(backward).filter_map(|(words, program)| refused(words, &program)).collect();
    assert_eq!(failures, [""; 0]);
}

/// A kernel that the assembler refuses or complains about, with its message.
fn refused(name: &str, program: &kernel::Program) -> Option<String> {
    let report = assemble(name, program.text());
    let complaints = complaints(&report).join("\n");
    (!report.accepted || !complaints.is_empty()).then(|| format!("{name}: {complaints}"))
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn fused_kernels_assemble_without_spills_or_serialization() {
    use rayon::prelude::*;
    let catalogue = falchion::verify::fused_catalogue();
    assert!(catalogue.len() >= 90);
    // One in three of those that are assembled in any case.
    let judged: Vec<_> =
        some(catalogue.into_iter().map(|kernel| kernel.gemm).enumerate().filter(judged), 3).collect();
    let failures: Vec<String> = judged
        .into_par_iter()
        .filter_map(|(_, gemm)| refused(gemm.name(), &gemm.program().expect("a legal program")))
        .collect();
    assert_eq!(failures, [""; 0]);
}

/// Every second function in the largest tiles that two warpgroups share, with one of the stores of D in turns; with
/// `cargo xtask test --long` every one with either.
#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn functions_in_large_tiles_assemble_without_spills() {
    use collective::functions::*;
    use collective::tree::{Accumulator, Compute, Node, ReduceColumn, RowVector, Sum};
    use collective::{Exact, Fast, Fastest};
    use falchion::prelude::*;
    use rayon::prelude::*;
    type Program = fn() -> kernel::Program;
    fn with<S: collective::Store, X: Node>() -> kernel::Program {
        type Long<S, X> = Composed<
            TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>,
            TreeEpilogue<bf16, S, X>,
            Persistent<Grouped<AlongM, U8>>,
        >;
        Gemm::<Long<S, X>>::program().expect("a legal program")
    }
    type Biased = Compute<Add, (Accumulator, RowVector<bf16>)>;
    let mut all: Vec<Program> = vec![with::<TmaStore, ReduceColumn<Sum, Biased>>];
    macro_rules! of {
        ($($function:ty),*) => {
            all.extend([$(
                with::<TmaStore, Compute<$function, (Biased,)>> as Program,
                with::<DirectStore, Compute<$function, (Biased,)>>,
            )*]);
        };
    }
    of!(Relu, LeakyRelu, ThresholdRelu, Clamp, HardSwish, Sigmoid<Exact>, Sigmoid<Fast>, Sigmoid<Fastest>);
    of!(Tanh<Exact>, Tanh<Fast>, Tanh<Fastest>, Silu<Exact>, Silu<Fast>, Silu<Fastest>);
    of!(Gelu<Exact>, Gelu<Fast>, Gelu<Fastest>, GeluTanh<Exact>, GeluTanh<Fast>, GeluTanh<Fastest>);
    let of_turn = |(at, _): &(usize, Program)| long() || matches!(at % 8, 0 | 5);
    let failures: Vec<String> = all
        .into_par_iter()
        .enumerate()
        .filter(of_turn)
        .filter_map(|(_, program)| {
            let program = program();
            refused(program.name(), &program)
        })
        .collect();
    assert_eq!(failures, [""; 0]);
}

/// Random formulas in a 128 x 256 tile, with `cargo xtask test --long` 200 of them.
#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn random_formulas_assemble_without_spills() {
    use rayon::prelude::*;
    let check = |case: u64| {
        let family = random::FAMILIES[case as usize / 3 % 8];
        let text = family.draw(&mut fastrand::Rng::with_seed(case), 1 + case as u32 % 3);
        let swap = if family.unordered { " swap=yes" } else { "" };
        let spec = random::kernel(&format!("tile=128x256x64{swap}"), &text).expect("a formula");
        let program = spec.kernel().expect("a legal kernel").program().expect("a legal program");
        refused(&format!("random-{case}"), &program).map(|complaints| format!("{text}: {complaints}"))
    };
    let failures: Vec<String> =
        (0..if long() { 200 } else { 16 }).into_par_iter().filter_map(check).collect();
    assert_eq!(failures, [""; 0]);
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn a_kernel_that_spills_or_serializes_is_noticed() {
    // 128 accumulators and 248 live values cannot fit in 255 registers.
    let entry = Entry {
        name: "spills".into(),
        target: Target::Sm90a,
        threads: 128,
        shared_bytes: 0,
        cluster: [1; 3],
    };
    let function = Function::build(entry, |f| {
        let data = f.param::<u64>("data");
        let values: Vec<_> = (0..300).map(|i| f.load_global::<f32>(data, 4 * i)).collect();
        f.barrier_sync(0, 128);
        let index = f.special(Special::ThreadX);
        for (i, value) in (0i32..).zip(&values) {
            f.store_global(data + index.mul_wide(4), 4 * i, [*value]);
        }
        f.barrier_sync(0, 128);
        for (i, value) in (0i32..).zip(values.iter().rev()) {
            f.store_global(data + index.mul_wide(8), 4 * i, [*value]);
        }
    });
    let report = assemble("spills", &ptx::module_text(&function.verify().expect("legal")));
    assert!(report.accepted, "{}", report.log);
    assert_ne!(complaints(&report), [""; 0], "{}", report.log);
}

/// Bytes of spill stores that random specs may have. Named kernels spill nothing. Of 500 random specs 12
/// spilled something, and four spilled more than this.
const FEW_BYTES: u32 = 48;

/// The most bytes that any spec may spill.
const MOST_BYTES: u32 = 128;

/// One in this number of specs may spill more than a few bytes.
const RARE: usize = 100;

/// The most bytes of spill stores of a kernel of a module.
fn spilled(report: &Report) -> u32 {
    let stores = report.log.split(" bytes spill stores");
    let numbers = stores.filter_map(|before| before.rsplit(' ').next()?.parse().ok());
    numbers.max().unwrap_or(0)
}

/// Random specs from the whole space: the assembler accepts each spec that the plan admits, serializes
/// nothing, and rarely spills. With `cargo xtask test --long` there are 500.
#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn random_specs_assemble_without_serialization() {
    use rayon::prelude::*;
    let count = if long() { 500 } else { 12 };
    let legal = |seed| {
        let spec = falchion::verify::random::spec(seed);
        spec.kernel().ok().map(|gemm| (spec, gemm))
    };
    let specs: Vec<_> = (0u64..).filter_map(legal).take(count).enumerate().collect();
    let judged: Vec<(u32, Option<String>)> = specs
        .into_par_iter()
        .map(|(number, (spec, gemm))| {
            let program = gemm.program().unwrap_or_else(|error| panic!("{spec}: {error}"));
            let report = assemble(&format!("spec-{number}"), program.text());
            let spilled = spilled(&report);
            let serialized = report.log.lines().any(|line| line.contains("(C75"));
            let right = report.accepted && !serialized && spilled <= MOST_BYTES;
            if spilled > 0 {
                println!("{spilled} B: {spec}");
            }
            (spilled, (!right).then(|| format!("{spec}\n{}", report.log)))
        })
        .collect();
    println!("{} of {count} spill", judged.iter().filter(|(spilled, _)| *spilled > 0).count());
    let more = judged.iter().filter(|(spilled, _)| *spilled > FEW_BYTES).count();
    assert!(more <= count.div_ceil(RARE), "{more} of {count} spill more than {FEW_BYTES} B");
    let failures: Vec<String> = judged.into_iter().filter_map(|(_, failure)| failure).collect();
    assert!(failures.is_empty(), "{} of {count}:\n{}", failures.len(), failures.join("\n"));
}
