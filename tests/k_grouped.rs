//! Groups along K: one launch for ranges of K of the same A and B, each with its own D.

use collective::{Cooperative, Form, Format, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
use cute_rs::atom::Major;
use emulator::Schedule;
use falchion::verify::SeveralProducts;
use half::bf16;
use kernel::{
    AnyGemm, Call, Composed, Emulator, GemmProblem, GroupedProblem, KGrouped, KernelSpec, LaunchError,
    Machine, Request, Types, select,
};
use scheduler::{AlongM, Persistent};
use typenum::{U2, U64, U128};

/// Groups along K: offsets that are multiples of tile K, in every kind of kernel. An empty group has D = beta *
/// C, or zeros.
#[test]
fn groups_along_k_have_a_product_each() {
    for text in [
        "tile=128x128x64 layout=kk store=direct",
        "tile=128x128x64 layout=mn store=direct scheduler=dynamic",
        "tile=64x64x64 layout=mk store=direct roles=pingpong scheduler=one-tile",
        "tile=64x64x64 layout=kn store=direct roles=unspecialised consumers=1",
        "tile=128x64x64 layout=kn store=direct swap=yes cluster=2x1",
        "tile=64x128x64 layout=mn store=direct cluster=1x2 raster=n consumers=1",
        "tile=64x64x64 layout=mn store=direct load=copy consumers=1",
        "tile=128x128x64 layout=mn store=direct step=32 dtype=f16 out=f32",
        "tile=64x64x32 layout=kk store=direct multiply=mma.sync consumers=1",
        "tile=64x64x16 layout=mn store=direct multiply=simt dtype=f32 consumers=1",
        "tile=64x64x64 layout=kk store=direct dtype=e4m3 out=bf16 promote=4 consumers=1",
        "tile=64x64x64 layout=kk store=direct dtype=s8 consumers=1",
        "tile=128x128x64 layout=mn",
        "tile=128x128x64 layout=mn epilogue=sourced",
        "tile=128x128x64 layout=mn swap=yes scheduler=narrow-tail splits=2",
    ] {
        let spec: KernelSpec =
            format!("form=k-grouped {text}").parse().unwrap_or_else(|e| panic!("{text}: {e}"));
        let entry = spec.kernel().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(spec.rust_type().starts_with("KGrouped<"), "{}", spec.rust_type());
        // Tensor copies store rows of 16 bytes; direct stores have odd rows.
        let n = if text.contains("store=direct") { 75 } else { 136 };
        for (why, k, offsets) in [
            ("several sizes and an empty one", 520, vec![0, 64, 64, 320, 520, 520]),
            ("K before the first group and after the last", 512, vec![64, 128, 448]),
            ("one group", 72, vec![0, 72]),
            ("no K", 0, vec![0, 0, 0]),
        ] {
            for factors in [[1.0, 0.0], [0.5, 2.0], [0.0, 1.0]] {
                let problem = GemmProblem { m: 137, n, k };
                let case = SeveralProducts { seed: 11, ..SeveralProducts::along_k(problem, offsets.clone()) };
                let interleaved = factors[0] != 1.0;
                // An integer D needs whole factors.
                let whole = if text.contains("s8") { 2.0 } else { 1.0 };
                let factors = factors.map(|factor| factor * whole);
                let case = SeveralProducts { factors, interleaved, d_padding: 8, ..case };
                let mut engine = Emulator::new().with_multiprocessors(3);
                let outcome = case.run(&entry, &mut engine);
                let outcome = outcome.unwrap_or_else(|error| panic!("{text}: {why}: {error}"));
                assert_eq!(outcome.mismatch, None, "{text}: {why}, {factors:?}");
            }
        }
    }
}

#[test]
fn whatever_offsets_say_groups_along_k_stay_inside() {
    for (why, offsets) in [
        ("between multiples of tile K", vec![0, 3, 65, 127, 300]),
        ("less than one before", vec![128, 256, 64, 192]),
        ("beyond K", vec![0, 64, 4_000_000_000, u32::MAX, 128]),
        ("all beyond", vec![401, u32::MAX]),
    ] {
        for text in
            ["layout=kk", "layout=mn roles=pingpong tile=64x128x64", "layout=mk load=copy store=direct"]
        {
            let spec: KernelSpec = format!("form=k-grouped {text}").parse().expect("legal");
            let entry = spec.kernel().expect("legal");
            let problem = GemmProblem { m: 72, n: 136, k: 400 };
            let case = SeveralProducts { seed: 11, ..SeveralProducts::along_k(problem, offsets.clone()) };
            for (schedule, seed) in [(Schedule::Default, 0), (Schedule::Latest, 0), (Schedule::Random, 1)] {
                let mut engine = Emulator::new().with_multiprocessors(2).with_schedule(schedule, seed);
                let outcome = case.run(&entry, &mut engine).expect("runs");
                assert_eq!(outcome.mismatch, None, "{why}: {text}, {schedule:?}");
            }
        }
    }
}

#[test]
fn groups_along_k_are_checked() {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U128, U64>, Cooperative<U2>>;
    type Mine = KGrouped<Composed<Mainloop, LinearCombination<bf16>, Persistent<AlongM>>>;
    let kernel = AnyGemm::of::<Mine>("mine");
    assert_eq!(kernel.form(), Form::KGrouped);
    let first = Call::of(GemmProblem { m: 16, n: 16, k: 256 }).a(0x1000, 256).b(0x4000, 256).d(0x8000, 16);
    let legal = first.k_grouped(3, 0x10000);
    assert!(kernel.launch(&legal, 132).expect("legal").is_some());
    assert_eq!(kernel.launch(&first.k_grouped(0, 0x10000), 132).expect("no groups"), None);
    for (call, words) in [
        (first.k_grouped(4097, 0x10000), "there are 4097 groups, at most 4096"),
        (first.k_grouped(3, 0), "the groups' offsets is a null pointer"),
        (first.k_grouped(3, 0x10002), "the groups' offsets begins at 0x10002, a multiple of 4 B"),
        (Call { d: legal.d.every(8), ..legal }, "overlap"),
        (legal.a(0x1000, 128), "A's leading dimension is 128 elements, at least 256"),
    ] {
        let error = kernel.launch(&call, 132).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    let form = |kernel, call| Err(LaunchError::Form { kernel, call });
    assert_eq!(kernel.launch(&first, 132), form(Form::KGrouped, Form::Single));
    assert_eq!(kernel.launch(&first.batched(2), 132), form(Form::KGrouped, Form::Batched));
    for (text, words) in [
        ("scheduler=stream-k", "only the device knows the K of each group"),
        ("scheduler=dynamic-tail splits=2", "only the device knows the K of each group"),
        (
            "scheduler=cluster-k splits=2 tile=64x64x64 store=direct",
            "only the device knows the K of each group",
        ),
        ("sparse=a tile=128x32x128", "groups along K are of dense operands"),
        ("weights-b=s4 group=128 swap=yes tile=128x32x64", "groups along K are of dense operands"),
        ("epilogue=bias-sums-ordered", "the epilogue counts the tiles of one output"),
    ] {
        let spec =
            KernelSpec::parse(&format!("form=k-grouped {text}")).unwrap_or_else(|e| panic!("{text}: {e}"));
        let error = spec.kernel().expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

/// A selection for groups along K has kernels whose tile K divides the documented step.
#[test]
fn kernels_for_groups_along_k_are_found() {
    let one = GemmProblem { m: 4096, n: 7168, k: 8192 };
    let shapes = [4096, 0, 128, 3968].map(|k| GemmProblem { k, ..one });
    for (types, majors) in [
        (Types::of(Format::Bf16), [Major::Mn; 2]),
        (Types::of(Format::Bf16), [Major::K; 2]),
        (Types::of(Format::E4m3).scaled([1, 1]), [Major::K; 2]),
        (Types::of(Format::E4m3).scaled([1, 128]), [Major::K; 2]),
    ] {
        let packed = Request::packed(types, majors, one);
        let request = packed.k_grouped(&shapes);
        assert_eq!(request.operations(), one.operations());
        let counted = Request { shapes: &[], ..request };
        assert_eq!(counted.operations(), one.operations());
        for request in [request, counted] {
            let selection = select(&request, &Machine::h200());
            assert!(!selection.ranked.is_empty(), "{types}: {selection:?}");
            for ranked in &selection.ranked {
                assert_eq!(ranked.gemm.form(), Form::KGrouped);
                let tile = ranked.gemm.plan().mainloop.tile[2];
                assert!(GroupedProblem::K_STEP.is_multiple_of(tile), "{}", ranked.gemm.name());
            }
        }
    }
    // 8-bit operands along M and N are transposed once, for all groups.
    let packed = Request::packed(Format::E4m3, [Major::Mn; 2], one).k_grouped(&shapes);
    assert_eq!(packed.k_major(1 << 20).workspace, u64::from(one.m + one.n) * u64::from(one.k));
}
