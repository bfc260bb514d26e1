//! More groups than the usual table holds, in every form: each D is compared with the reference, and shared memory for more groups costs
//! no stage.

#[path = "../kernel/tests/support/skipped.rs"]
mod skipped;

use collective::{Cooperative, Form, Format, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
use cute_rs::atom::Major;
use emulator::Schedule;
use falchion::verify::SeveralProducts;
use half::bf16;
use kernel::{
    AnyGemm, Call, Composed, Emulator, Engine, GemmProblem, Gpu, GroupedContiguous, KernelSpec, Machine,
    PointerArray, Request, select, several,
};
use rayon::prelude::*;
use scheduler::{AlongM, Persistent};
use typenum::{U2, U64, U128, U320, U512};

/// Rows of `count` groups: most are empty, some have several tiles, and the last has rows.
fn rows_of(count: u32) -> Vec<u32> {
    let rows = |group: u32| match group % 29 {
        3 => 1 + group % 7,
        17 if group.is_multiple_of(5) => 150,
        _ => 0,
    };
    (0..count).map(|group| if group + 1 == count { 9 } else { rows(group) }).collect()
}

/// GEMMs of a form, with groups of these numbers of rows (elements along K for groups along K).
fn products(form: Form, rows: &[u32], [n, k]: [u32; 2]) -> SeveralProducts {
    let products = match form {
        Form::GroupedMasked => {
            let rows: Vec<u32> = rows.iter().map(|&rows| rows.min(11)).collect();
            SeveralProducts::masked(&rows, 10, [n, k])
        }
        Form::KGrouped => {
            let lengths: Vec<u32> = rows.iter().map(|&rows| rows.min(2) * 128).collect();
            SeveralProducts::of_lengths(&lengths, [24, n])
        }
        Form::PointerArray => {
            let one = |(i, &m): (usize, &u32)| GemmProblem { m, n: if i % 3 == 0 { 2 * n } else { n }, k };
            SeveralProducts::array(rows.iter().enumerate().map(one).collect())
        }
        Form::Single | Form::Batched | Form::GroupedContiguous => SeveralProducts::of_rows(rows, 3, [n, k]),
    };
    SeveralProducts { seed: 5, ..products }
}

fn kernel_of(text: &str) -> AnyGemm {
    kernel::find(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn assert_right(gemm: &AnyGemm, case: &SeveralProducts, engine: &mut dyn Engine, why: &str) {
    let outcome = case.run(gemm, engine).unwrap_or_else(|error| panic!("{why}: {error}"));
    assert_eq!(outcome.mismatch, None, "{why}: {}", gemm.name());
    assert!(outcome.ratio > 0.0, "{why}: nothing was compared");
}

/// Kernels by their specs, each with a launch.
fn launches() -> Vec<(String, u32, SeveralProducts)> {
    const SMALL: [u32; 2] = [16, 16];
    const DEEP: [u32; 2] = [16, 128];
    let mut cases = Vec::new();
    for (text, form, extents) in [
        ("tile=64x64x64 consumers=1", Form::GroupedContiguous, SMALL),
        ("tile=128x64x64 roles=pingpong cluster=2x1 raster=m4", Form::GroupedContiguous, SMALL),
        ("tile=64x32x64 swap=yes store=direct scheduler=dynamic", Form::GroupedContiguous, SMALL),
        ("tile=64x64x64 load=copy store=direct", Form::GroupedContiguous, SMALL),
        ("tile=64x64x64 step=16 swap=yes", Form::GroupedContiguous, SMALL),
        ("tile=128x128x64 step=32 swap=yes scheduler=dynamic-tail layout=kn", Form::GroupedContiguous, SMALL),
        (
            "tile=64x64x128 dtype=e4m3 scale-a=1x128 scale-b=128x128 consumers=1",
            Form::GroupedContiguous,
            DEEP,
        ),
        ("tile=64x32x128 weights-b=s4 group=128 swap=yes consumers=1", Form::GroupedContiguous, DEEP),
        ("tile=64x32x128 sparse=b swap=yes consumers=1", Form::GroupedContiguous, DEEP),
        ("tile=64x64x64 consumers=1", Form::GroupedMasked, SMALL),
        ("tile=64x64x64 step=16 swap=yes scheduler=dynamic", Form::GroupedMasked, SMALL),
        ("tile=64x64x64 store=direct", Form::PointerArray, SMALL),
        ("tile=64x32x64 swap=yes store=direct load=copy", Form::PointerArray, SMALL),
        ("tile=64x64x64 store=direct scheduler=dynamic consumers=1", Form::KGrouped, SMALL),
    ] {
        let word = match form {
            Form::GroupedMasked => "masked",
            Form::PointerArray => "grouped",
            Form::KGrouped => "k-grouped",
            Form::Single | Form::Batched | Form::GroupedContiguous => "ragged",
        };
        // Other numbers of groups for each way to find a group.
        let finds = text.contains("step=") || text.starts_with("tile=64x64x64");
        for (most, count) in [(512, 384), (512, 512), (512, 1), (1024, 1000), (4096, 321), (4096, 4096)] {
            let table = if form.has_table() { format!(" most-groups={most}") } else { String::new() };
            if finds || count == 384 {
                // An empty group along K has D = beta * C.
                let factors = if form == Form::KGrouped { [0.5, 0.0] } else { [0.5, 2.0] };
                let products = SeveralProducts { factors, ..products(form, &rows_of(count), extents) };
                cases.push((format!("form={word} {text}{table}"), count, products));
            }
        }
    }
    cases
}

#[test]
fn launches_of_many_groups_are_right() {
    launches().par_iter().for_each(|(text, count, case)| {
        let schedule = if *count == 384 { Schedule::Random } else { Schedule::Default };
        let mut engine = Emulator::new().with_multiprocessors(3).with_schedule(schedule, 7);
        assert_right(&kernel_of(text), case, &mut engine, &format!("{count} groups"));
    });
}

/// Runs if there is a usable GPU.
#[test]
fn launches_of_many_groups_are_right_on_the_gpu() {
    let Ok(mut gpu) = Gpu::new(0) else { return skipped::skipped("GPU") };
    for (text, count, case) in launches() {
        assert_right(&kernel_of(&text), &case, &mut gpu, &format!("{count} groups"));
    }
}

/// A selection has kernels for any number of groups up to the most, and its first one is right.
#[test]
fn selections_have_tables_for_many_groups() {
    let machine = Machine::h200();
    for (count, most) in [(320, 320), (321, 512), (384, 512), (512, 512), (4096, 4096)] {
        for form in [Form::GroupedContiguous, Form::GroupedMasked, Form::KGrouped, Form::PointerArray] {
            let rows = rows_of(count);
            let case = products(form, &rows, [64, 64]);
            let shapes: Vec<GemmProblem> = match form {
                Form::KGrouped => case
                    .offsets
                    .windows(2)
                    .map(|of| GemmProblem { k: of[1] - of[0], ..case.problem })
                    .collect(),
                Form::PointerArray => case.shapes.clone(),
                Form::Single | Form::Batched | Form::GroupedContiguous | Form::GroupedMasked => {
                    rows.iter().map(|&m| GemmProblem { m, ..case.problem }).collect()
                }
            };
            let whole = if form == Form::PointerArray { shapes[0] } else { case.problem };
            let request = Request::packed(Format::Bf16, [Major::K; 2], whole);
            let request = match form {
                Form::GroupedMasked => request.masked(10, &shapes),
                Form::KGrouped => request.k_grouped(&shapes),
                Form::PointerArray => request.grouped(&shapes),
                Form::Single | Form::Batched | Form::GroupedContiguous => request.ragged(&shapes),
            };
            let selection = select(&request, &machine);
            let why = format!("{count} groups, {form:?}");
            let gemm =
                &selection.ranked.first().unwrap_or_else(|| panic!("{why}: {:?}", selection.refused)).gemm;
            assert_eq!(gemm.plan().table.groups, if form.has_table() { most } else { 320 }, "{why}");
            if count == 384 {
                let mut engine = Emulator::new().with_multiprocessors(4);
                assert_right(gemm, &SeveralProducts { factors: [1.0, 0.0], ..case }, &mut engine, &why);
            }
        }
    }
    let shapes = vec![GemmProblem { m: 1, n: 64, k: 64 }; 4097];
    let request = Request::packed(Format::Bf16, [Major::K; 2], GemmProblem { m: 4097, n: 64, k: 64 });
    for request in [request.ragged(&shapes), request.masked(1, &shapes), request.grouped(&shapes)] {
        let selection = select(&request, &machine);
        assert!(selection.ranked.is_empty());
        let error = selection.refused.first().expect("a reason").error.to_string();
        assert_eq!(error, "there are 4097 groups, at most 4096 are possible: launch them in parts");
    }
}

/// Only kernels that sort more than 512 groups have a longer table in shared memory.
#[test]
fn larger_tables_cost_no_stage() {
    let with_table = several().into_iter().filter(|gemm| gemm.form().has_table());
    for gemm in with_table.filter(|gemm| gemm.name().ends_with("bf16-kk")) {
        let spec = gemm.spec().expect("of built-in parts");
        for most_groups in Form::TABLES {
            let large = KernelSpec { most_groups, ..spec }.kernel();
            let large = large.unwrap_or_else(|error| panic!("{spec} for {most_groups}: {error}")).plan();
            let plan = gemm.plan();
            assert_eq!(large.most_groups(), most_groups);
            if !plan.balanced() || most_groups <= 512 {
                assert_eq!(large.ring.stages, plan.ring.stages, "{spec} for {most_groups} groups");
                assert!(large.shared_bytes <= plan.shared_bytes, "{spec} for {most_groups} groups");
            }
        }
    }
}

#[test]
fn tables_have_words_types_and_errors() {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U128, U64>, Cooperative<U2>>;
    type Roles = Composed<Mainloop, LinearCombination<bf16>, Persistent<AlongM>>;
    let typed = AnyGemm::of::<GroupedContiguous<Roles, U512>>("mine");
    assert_eq!(typed.plan().table.groups, 512);
    let spec = typed.spec().expect("of built-in parts");
    assert!(spec.to_string().starts_with("form=ragged most-groups=512 "), "{spec}");
    assert!(spec.rust_type().ends_with(", U512>"), "{}", spec.rust_type());
    assert_eq!(KernelSpec::parse(&spec.to_string()).as_ref(), Ok(&spec));
    assert_eq!(AnyGemm::of::<PointerArray<Roles, U512>>("mine").plan().most_groups(), 512);
    let [usual, said] = [
        AnyGemm::of::<GroupedContiguous<Roles>>("usual"),
        AnyGemm::of::<GroupedContiguous<Roles, U320>>("said"),
    ];
    assert_eq!(usual.spec(), said.spec());
    let spec = usual.spec().expect("of built-in parts");
    assert!(!spec.to_string().contains("groups") && !spec.rust_type().contains("U320"), "{spec}");

    let first = Call::of(GemmProblem { m: 16, n: 16, k: 128 }).a(0x1000, 128).b(0x2000, 128).d(1 << 40, 16);
    for (gemm, count, words) in [
        (&usual, 321, "there are 321 groups, at most 320 are possible: use a kernel of `most-groups=512`"),
        (&typed, 513, "there are 513 groups, at most 512 are possible: use a kernel of `most-groups=1024`"),
        (&typed, 4097, "there are 4097 groups, at most 512 are possible: launch them in parts"),
    ] {
        let error = gemm.launch(&first.ragged(count, 0x8000), 132).expect_err(words).to_string();
        assert!(error.starts_with(words), "{error}");
    }
    assert!(typed.launch(&first.ragged(512, 0x8000), 132).expect("legal").is_some());
    let along_k = kernel_of("form=k-grouped tile=128x128x64");
    let call = |count| along_k.launch(&first.k_grouped(count, 0x8000), 132);
    assert!(call(4096).expect("legal").is_some());
    let error = call(4097).expect_err("too many").to_string();
    assert_eq!(error, "there are 4097 groups, at most 4096 are possible: launch them in parts");

    for (text, words) in [
        ("form=ragged most-groups=384", "the table is for 384 groups, not 320, 512, 1024, 2048 or 4096"),
        ("form=masked most-groups=0", "the table is for 0 groups, not 320"),
        ("form=k-grouped most-groups=512", "most-groups"),
        ("most-groups=512", "most-groups"),
    ] {
        let error = kernel::find(text).expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let error = KernelSpec { most_groups: 512, ..KernelSpec::DEFAULT }.kernel().expect_err("no table");
    assert!(error.to_string().contains("this form has no table"), "{error}");
    let of = |form: Form, groups| form.table_for(groups);
    assert_eq!(
        [0, 320, 321, 2049, 9999].map(|groups| of(Form::PointerArray, groups)),
        [320, 320, 512, 4096, 4096]
    );
    assert_eq!(of(Form::KGrouped, 4096), 320);
}
